"""Everything that is printed goes through here: data to stdout, words for people to stderr.

A `Report` has named columns and can be shown as text, JSON Lines or msgpack; Rich is imported only
for a table on a terminal. Commands that stream their own text (`dump-segment`) write bytes.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from storage.errors import (
    EXIT_ACCESS,
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    EXIT_UNREAD,
    EoctlError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

UNKNOWN = "unknown"  # in text, for what was not given or cannot be known; null in jsonl


class OutputFormat(StrEnum):
    """What `--output` takes."""

    TEXT = "text"
    JSONL = "jsonl"
    MSGPACK = "msgpack"


class Report(NamedTuple):
    """Rows of one kind, printed the same way whatever the command.

    Attributes:
        kind: what a row is ("partition", "segment"); every jsonl object carries it.
        columns: names in order of importance: a narrow terminal leaves out the last ones.
        rows: a value per column; None is unknown.
        notes: sentences for people, on stderr after the rows.
        is_whole: a part of a row says too little: a narrow terminal gets a paragraph a row.
    """

    kind: str
    columns: tuple[str, ...]
    rows: Iterable[Sequence[Any]]
    notes: Sequence[str] = ()
    is_whole: bool = False


class _Mode:
    """How messages on stderr are written; follows the command's --output."""

    machine = False


def use_format(output: OutputFormat) -> None:
    """Write messages as JSON objects too when the data is for machines."""
    _Mode.machine = output is not OutputFormat.TEXT


class UnreadError(EoctlError):
    """Who read stdout went away (head, less), and nothing more need be looked at.

    Attributes:
        exit_status: as far as it is known: findings, or parts that are unreadable; else 141.
    """

    def __init__(self, status: int) -> None:
        super().__init__("standard output: nobody reads it any more")
        # That nothing at all can be read is known only when everything has been tried.
        self.exit_status = EXIT_SKIPPED if status == EXIT_ACCESS else status or EXIT_UNREAD


class _Reader:
    """Who reads stdout.

    Attributes:
        is_gone: and left it to us to go on or not.
        status_so_far: of the search that has no sense without the reader, once this is known; None
            where a command goes on to its end.
        is_needed: it has none at all.
    """

    is_gone = False
    status_so_far: Callable[[], int] | None = None
    is_needed = False

    @classmethod
    def went(cls) -> None:
        """Raise UnreadError if that ends the command; else what is written goes nowhere."""
        if not cls.is_gone:
            discard_stdout()
            cls.is_gone = True
        if cls.status_so_far is None:
            return
        status = cls.status_so_far()
        if cls.is_needed or status == EXIT_FINDINGS:
            raise UnreadError(status) from None


@contextmanager
def while_read(
    status_so_far: Callable[[], int] = lambda: EXIT_OK, *, is_verdict: bool = False
) -> Iterator[None]:
    """Search and print only as long as somebody reads stdout.

    Everywhere else a command goes on without its reader: what it changes is changed to the end,
    and its exit status and its errors are those that it would have had.

    Args:
        status_so_far: exit status by what has been found until now.
        is_verdict: the status is worth the search: it goes on, in silence, to the first finding.

    Raises:
        UnreadError: the reader went away.
    """
    _Reader.is_gone, _Reader.is_needed = False, not is_verdict
    _Reader.status_so_far = staticmethod(status_so_far)
    try:
        yield
    except BrokenPipeError:  # of who writes to the descriptor
        discard_stdout()
        raise UnreadError(status_so_far()) from None
    finally:
        _Reader.status_so_far = None


class OutputError(EoctlError):
    """The data cannot be written: a full disk, say. No input file is to blame."""

    exit_status = EXIT_ACCESS

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror or error}")


def write(data: bytes | bytearray | memoryview) -> None:
    """Write bytes to stdout, or nowhere when its reader went away.

    Raises:
        OutputError: they cannot be written.
        UnreadError: the reader went away, within `while_read`.
    """
    stream = sys.stdout.buffer
    if _Reader.is_gone:
        _Reader.went()
    try:
        # Without a buffer (python -u) a signal, or a disk that gets full, leaves a part of it.
        while (written_bytes := stream.write(data)) < len(data):
            data = memoryview(data)[written_bytes:]
    except BrokenPipeError:
        _Reader.went()
    except OSError as exc:
        raise OutputError(exc) from exc


def flush() -> None:
    """Push what is buffered to stdout; raises as `write`, here at the latest.

    Call it before processes are started: multiprocessing does so too, and knows of no reader.
    """
    try:
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _Reader.went()
    except OSError as exc:
        raise OutputError(exc) from exc


def open_missing_streams() -> None:
    """Stand in for what the caller closed (`>&-`): data then fails to go out, words are lost."""
    if sys.stdout is None:
        read_only = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = os.fdopen(read_only, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def stdout_fd() -> int | None:
    """Return the descriptor of stdout, None where it has none (a test's own stream)."""
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def line(text: str) -> None:
    """Write one line of text to stdout, as UTF-8 whatever the locale.

    Lone surrogates (undecodable file names) come out as the bytes they stand for.
    """
    write(_utf8(text) + b"\n")


def _utf8(text: str) -> bytes:
    """Encode text; surrogates that stand for no byte (escapes in a file allow them) are U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        import re

        known = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text)
        return known.encode("utf-8", "surrogateescape")


def message(text: str, *, level: str = "note", **fields: Any) -> None:
    """Tell people something: a plain line on stderr, or one JSON object in machine formats."""
    if _Mode.machine:
        text = json_text({"level": level, "message": text, **fields})
    write_stderr(text)


def write_stderr(text: str) -> None:
    """Write one line to stderr, after what is pending on stdout when both are one terminal."""
    if sys.stdout.isatty():
        flush()
    try:
        sys.stderr.buffer.write(_utf8(text) + b"\n")
        sys.stderr.buffer.flush()
    except OSError:
        # Words that cannot be said change nothing of what was found.
        discard_stderr()


def error(exc: EoctlError) -> None:
    """Report an error: what, where, and what to try next."""
    fields: dict[str, Any] = {"error": type(exc).__name__, "exit_status": exc.exit_status}
    for name in ("path", "pos", "check_id", "expected", "found", "errno"):
        value = getattr(exc, name, None)
        if value not in (None, ""):
            fields[name] = value
    if _Mode.machine:
        message(exc.message, level="error", **fields, next_step=exc.next_step)
        return
    write_stderr(f"eoctl: {exc}")
    if exc.next_step:
        write_stderr(f"  try: {exc.next_step}")


def json_text(value: Mapping[str, Any]) -> str:
    """One JSON object on one line; bytes that are not UTF-8 become `NAME_base64`."""
    import json

    return json.dumps(_json_ready(value), ensure_ascii=False, separators=(",", ":"))


def _json_ready(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(_json_item(name, each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return [_json_ready(each) for each in value]
    if isinstance(value, str):
        return _utf8(value).decode("utf-8", "replace")
    return value


def _json_item(name: str, value: Any) -> tuple[str, Any]:
    if not name.isascii():
        name = str(_json_ready(name))
    if not isinstance(value, bytes | bytearray | memoryview):
        return name, _json_ready(value)
    raw = bytes(value)
    try:
        return name, raw.decode("utf-8")
    except UnicodeDecodeError:
        from base64 import b64encode

        return f"{name}_base64", b64encode(raw).decode("ascii")


def row_writer(output: OutputFormat) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes one row to stdout as JSON Lines or msgpack."""
    if output is OutputFormat.JSONL:
        return lambda row: line(json_text(row))
    from msgpack import Packer

    pack = Packer(use_bin_type=True, unicode_errors="surrogateescape").pack

    def put(row: Mapping[str, Any]) -> None:
        try:
            write(pack(row))
        except UnicodeEncodeError:
            write(pack(_with_known_surrogates(row)))

    return put


def _with_known_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _with_known_surrogates(name): _with_known_surrogates(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_known_surrogates(each) for each in value]
    return _utf8(value).decode("utf-8", "surrogateescape") if isinstance(value, str) else value


def emit(report: Report, output: OutputFormat) -> None:
    """Print a report."""
    use_format(output)
    if output is OutputFormat.TEXT:
        if sys.stdout.isatty():
            _emit_table(report)
        else:
            _emit_plain(report)
        for note in report.notes:
            message(note)
        return
    put = row_writer(output)
    for row in report.rows:
        put({"kind": report.kind, **dict(zip(report.columns, row, strict=True))})
    for note in report.notes:
        message(note)


def cell_text(value: Any) -> str:
    """Render one value in a text report."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _emit_plain(report: Report) -> None:
    """Tab-separated with a header line, for cut and awk."""
    line("\t".join(report.columns))
    for row in report.rows:
        line("\t".join(_printable(cell_text(value)) for value in row))


def _emit_table(report: Report) -> None:
    """Draw a table that fits the terminal: the last columns go first, and a note says so.

    What must stay whole becomes paragraphs instead.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    rows = [[cell_text(value) for value in row] for row in report.rows]
    shown = _fitting_columns(report.columns, rows, console.width)
    if report.is_whole and rows and shown < len(report.columns):
        _emit_paragraphs(report.columns, rows, console.width)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(report.columns[:shown]):
        numeric = all(row[place].lstrip("-").isdigit() or row[place] == UNKNOWN for row in rows)
        justify: Literal["left", "right"] = "right" if numeric and rows else "left"
        width = _column_width(name, [row[place] for row in rows])
        table.add_column(name.replace("_", " "), justify=justify, min_width=width)
    for row in rows:
        table.add_row(*(escape(_printable(cell)) for cell in row[:shown]))
    console.print(table)
    if shown < len(report.columns):
        hidden = len(report.columns) - shown
        message(f"{hidden} more columns do not fit; a wider terminal or --output jsonl shows them")


def _emit_paragraphs(columns: tuple[str, ...], rows: list[list[str]], width: int) -> None:
    """Write `name: value` of all that has one, several to a line as far as they fit.

    What is longer than a line has its own and is not broken: paths and commands are to be copied.
    """
    for number, row in enumerate(rows):
        if number:
            line("")
        pending = ""
        for name, cell in zip(columns, row, strict=True):
            if not cell:
                continue
            pair = f"{name.replace('_', ' ')}: {_printable(cell)}"
            if pending and len(pending) + 2 + len(pair) > width:
                line(pending)
                pending = f"  {pair}"
            else:
                pending = f"{pending}  {pair}" if pending else pair
        line(pending)


def _printable(cell: str) -> str:
    """Escape what a terminal, or a reader of columns, would act on."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cell)


def _column_width(name: str, cells: list[str]) -> int:
    """Width of a column: a heading breaks between its words, a cell nowhere."""
    return max(map(len, [*name.split("_"), *cells]))


def _fitting_columns(columns: tuple[str, ...], rows: list[list[str]], width: int) -> int:
    """How many of the leading columns fit; at least the first."""
    used = 0
    for count, name in enumerate(columns):
        used += _column_width(name, [row[count] for row in rows]) + (2 if count else 0)
        if used > width:
            return max(count, 1)
    return len(columns)


def discard_stdout() -> None:
    """After a closed pipe: let the interpreter's own last flush go nowhere instead of failing."""
    _discard(sys.stdout)


def discard_stderr() -> None:
    """After words that could not be said: what is left of them would end the program with 120."""
    _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
