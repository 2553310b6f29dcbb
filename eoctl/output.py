"""The only module that prints: data to stdout, messages for people to stderr.

A `Report` has named columns and can be shown as a table, text, JSON or msgpack. Rich is imported
for a table only. Commands that stream their own text (`dump-segment`) write bytes.

Commands know three formats: text for people, JSON Lines and msgpack for programs. `begin` decides
whether text becomes a table or goes through a pager. It also decides whether the lines become one
array or CSV.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from enum import StrEnum
from errno import ENOENT
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO

from eoctl.console.columns import TerminalText, find_column, plain_line, printable
from eoctl.console.style import Inspection, is_colored, screen_size
from storage.counts import counted
from storage.errors import (
    EXIT_ACCESS,
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    EXIT_UNREAD,
    EoctlError,
    UsageError,
)
from storage.value_pieces import base64_pieces, is_large, is_utf8, json_pieces, msgpack_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eoctl.console.pager import Screen
    from eoctl.csv_table import CsvTable


# -- lines in very large numbers, written some hundred at a time


LINES_COUNT = 512


class Lines:
    """A buffer of lines of text. `flush` writes the waiting lines.

    `write`: takes text of one or more lines, without the last line's end.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._waiting: list[str] = []

    def put(self, text: str) -> None:
        """Add a line, and write the waiting lines if they are many."""
        self._waiting.append(text)
        if len(self._waiting) >= LINES_COUNT:
            self.flush()

    def flush(self) -> None:
        """Write the waiting lines. Call it before any other output."""
        if self._waiting:
            self._write("\n".join(self._waiting))
            self._waiting.clear()


# -- output


# Printed by a command that works on local files only.
URI_READERS = "this command reads no URIs; export, spark-audit, loss and eoctl on Spark do"


class OutputFormat(StrEnum):
    """The values of `--output`. Commands receive TEXT, JSONL or MSGPACK, see `begin`."""

    TABLE = "table"
    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MSGPACK = "msgpack"


PLACE = ("topic", "partition")  # the columns that name a partition


class Columns(tuple[str, ...]):  # noqa: SLOT001 - a tuple has none
    """The columns of a table, and the columns among them that answer.

    Attributes:
        answers: the columns that answer, in the order for people. The first of them that fit are
            shown, then other columns, and a line names the rest. Empty: all.
        is_whole: if not all columns fit, each row is written as one field per line.
        noun: the noun for a row, if the kind of the report does not say it.
    """

    answers: Sequence[str]
    noun: str
    is_whole: bool

    def __new__(
        cls,
        names: Iterable[str],
        *,
        answers: Sequence[str] = (),
        noun: str = "",
        is_whole: bool = False,
    ) -> Self:
        """Return the names with these attributes. The answers must be among the names."""
        made = super().__new__(cls, names)
        assert {*answers} <= {*made}
        made.answers, made.noun, made.is_whole = answers, noun, is_whole
        return made


class Report(NamedTuple):
    """Rows of one kind, printed in the same way by every command.

    Attributes:
        kind: the kind of a row ("partition", "segment"), in every jsonl object.
        columns: names for programs, which also select the meaning (`eoctl.console.columns`). Some
            columns answer, see `Columns`. In a plain tuple all do.
        rows: a value per column, None if unknown.
        notes: sentences for people, on stderr after the rows.
    """

    kind: str
    columns: tuple[str, ...]
    rows: Iterable[Sequence[Any]]
    notes: Sequence[str] = ()


class _Mode:
    """The output settings of this command.

    Attributes:
        machine: messages are JSON objects too.
        is_table: text is drawn as tables, None if only on a terminal.
        turner: makes one array, or CSV, of the lines.
        terminal: escapes data for a terminal, None if data is written unchanged.
        screen: text that may go to a pager.
        absent: names in `--columns` that no report has had so far.
        seen: columns of the reports.
        before_write: clears the progress line before the next line.
    """

    machine = False
    is_table: bool | None = None
    inspect = Inspection()
    turner: _JsonArray | CsvTable | None = None
    terminal: TerminalText | None = None
    screen: Screen | None = None
    absent: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    before_write: Callable[[], None] | None = None


class _JsonArray:
    """A converter of lines with one JSON object each to one JSON array."""

    notes: Sequence[str] = ()

    def __init__(self) -> None:
        self._has_begun = False
        self._is_line_over = True

    def turned(self, data: bytes) -> bytes:
        """Return the JSON for the next part of the lines."""
        if not data:
            return b""
        comma = b",\n" if self._is_line_over else b""
        start = comma if self._has_begun else b"[\n"
        self._has_begun, self._is_line_over = True, data.endswith(b"\n")
        return start + data.removesuffix(b"\n").replace(b"\n", b",\n")

    def wants(self, _kind: str | None) -> bool:
        """Return True: one array has rows of all kinds."""
        return True

    def declare(self, kind: str, columns: list[str]) -> None:
        """Do nothing: an array does not mention missing rows."""

    def flushed(self) -> bytes:
        """Return nothing: no text waits."""
        return b""

    def end(self) -> bytes:
        """Return the end of the array."""
        return b"\n]\n" if self._has_begun else b"[]\n"


def begin(output: OutputFormat | None, inspect: Inspection) -> OutputFormat:
    """Begin a command, and return the format it has to write: TEXT, JSONL or MSGPACK.

    Args:
        output: None is a table on a terminal, else text.
        inspect: how tables are drawn, and the wanted columns.
    """
    if output is None:
        output = OutputFormat.TABLE if sys.stdout.isatty() else OutputFormat.TEXT
    _Mode.is_table = output is OutputFormat.TABLE
    _Mode.inspect = inspect
    _Mode.turner = _JsonArray() if output is OutputFormat.JSON else None
    if output is OutputFormat.CSV:
        from eoctl.csv_table import CsvTable

        line_end = "\n" if sys.stdout.isatty() else "\r\n"
        _Mode.turner = CsvTable(inspect.table, is_change=inspect.is_change, line_end=line_end)
    elif inspect.table is not None:
        raise UsageError("--table names rows of --output csv", next_step="--output csv")
    _Mode.absent, _Mode.seen = inspect.columns, ()
    _Mode.screen = _Mode.terminal = None
    if sys.stdout.isatty():
        is_json = output in (OutputFormat.JSON, OutputFormat.JSONL)
        _Mode.terminal = TerminalText(is_json=is_json)
    if inspect.has_pager and sys.stdout.isatty():
        from eoctl.console.pager import new_screen

        _Mode.screen = new_screen(screen_size()[1])
    if output is OutputFormat.TABLE:
        output = OutputFormat.TEXT
    elif output in (OutputFormat.JSON, OutputFormat.CSV):
        output = OutputFormat.JSONL
    use_format(output)
    return output


def finish() -> None:
    """Write the rest: the end of an array and the text for a pager. Wait for the pager.

    Raises:
        UsageError: `--columns` names a column that no report has, or the rows are no single table.
        OutputError, UnreadError: as `write`.
    """
    turner, _Mode.turner = _Mode.turner, None
    if turner is not None:
        write(turner.end())
        for note in turner.notes:
            message(note, level="warning")
    terminal, _Mode.terminal = _Mode.terminal, None
    if terminal is not None and (rest := terminal.shown(b"", is_end=True)):
        _write(rest)
    screen, _Mode.screen = _Mode.screen, None
    if screen is not None:
        try:
            screen.end()
        except OSError as exc:
            raise OutputError(exc) from exc
    flush()
    absent, _Mode.absent = _Mode.absent, ()
    if absent:
        there = ", ".join(_Mode.seen) or "nothing that has columns"
        raise UsageError(f"--columns {','.join(absent)}: not among {there}")


def format_utc() -> None:
    """Show times in UTC from now on, because the text made here is read elsewhere."""
    _Mode.inspect = _Mode.inspect._replace(is_utc=True)


def inspect() -> Inspection:
    """Return how the reports of this command are shown."""
    return _Mode.inspect


def is_paged() -> bool:
    """Return whether a pager uses the terminal."""
    return _Mode.screen is not None and _Mode.screen.is_paged


def pass_escapes() -> None:
    """Write data unchanged from now on, to a terminal too."""
    _Mode.terminal = None


def draws_tables() -> bool:
    """Return whether text for people is drawn as tables, also for kafka-dump-log's lines."""
    return sys.stdout.isatty() if _Mode.is_table is None else _Mode.is_table


def use_format(output: OutputFormat) -> None:
    """Write messages as JSON objects too when the data is for machines."""
    _Mode.machine = output not in (OutputFormat.TEXT, OutputFormat.TABLE)


def clear_before_writing(clear: Callable[[], None] | None) -> None:
    """Set the function to run before the next line. None removes it."""
    _Mode.before_write = clear


class UnreadError(EoctlError):
    """The reader of stdout closed the pipe (head, less), and no further search is needed.

    Attributes:
        exit_status: the status so far: findings, or unreadable parts, else 141.
    """

    def __init__(self, status: int) -> None:
        super().__init__("standard output: nobody reads it any more")
        # "Nothing can be read" is known only after every part was tried.
        self.exit_status = EXIT_SKIPPED if status == EXIT_ACCESS else status or EXIT_UNREAD


class _Reader:
    """The reader of stdout.

    Attributes:
        is_gone: the reader closed the pipe.
        status_so_far: the exit status so far of a search that may end without the reader. None if a
            command always runs to its end.
        is_needed: the search has no purpose without the reader.
    """

    is_gone = False
    status_so_far: Callable[[], int] | None = None
    is_needed = False

    @classmethod
    def went(cls) -> None:
        """Raise UnreadError if that ends the command, else discard all further output."""
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
    """Search and print only while stdout has a reader.

    Outside of it a command continues without a reader. It completes its changes, and its exit
    status and errors stay the same.

    Args:
        status_so_far: the exit status by the findings until now.
        is_verdict: the exit status is useful without the rows, so the search continues silently to
            the first finding.

    Raises:
        UnreadError: the reader closed the pipe.
    """
    _Reader.is_gone, _Reader.is_needed = False, not is_verdict
    _Reader.status_so_far = staticmethod(status_so_far)
    try:
        yield
    except BrokenPipeError:  # from code that writes to the descriptor
        discard_stdout()
        raise UnreadError(status_so_far()) from None
    finally:
        _Reader.status_so_far = None


class OutputError(EoctlError):
    """The data cannot be written, for example to a full disk. No input file is at fault."""

    exit_status = EXIT_ACCESS

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror or error}")


def write(data: bytes | bytearray | memoryview) -> None:
    """Write data to stdout, or discard it after its reader closed the pipe.

    Escape sequences in the data are made visible on a terminal, see `pass_escapes`.

    Raises:
        OutputError: the data cannot be written.
        UnreadError: the reader closed the pipe, within `while_read`.
    """
    if _Mode.turner is not None:
        data = _Mode.turner.turned(bytes(data))
    if _Mode.terminal is not None:
        data = _Mode.terminal.shown(data)
    _write(data)


def write_drawn(text: str) -> None:
    """Write a table or a picture, whose escapes are colours. Raises as `write`."""
    _write(_utf8(text))


def _write(data: bytes | bytearray | memoryview) -> None:
    stream = sys.stdout.buffer
    if _Reader.is_gone:
        _Reader.went()
    try:
        if _Mode.screen is not None and _Mode.screen.put(stream, data):
            return
        if _Mode.before_write is not None:
            _Mode.before_write()
        # Without a buffer (python -u), a signal or a full disk leaves a part unwritten.
        while (written_bytes := stream.write(data)) < len(data):
            data = memoryview(data)[written_bytes:]
    except BrokenPipeError:
        _Reader.went()
    except OSError as exc:
        raise OutputError(exc) from exc


def flush() -> None:
    """Write buffered data to stdout. Raises as `write`, here at the latest.

    Call it before processes are started: multiprocessing flushes too, but does not handle a missing
    reader. Text that may need a pager stays in memory, see `finish`.
    """
    if _Mode.turner is not None and (held := _Mode.turner.flushed()):
        _write(held if _Mode.terminal is None else _Mode.terminal.shown(held))
    try:
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _Reader.went()
    except OSError as exc:
        raise OutputError(exc) from exc


def open_missing_streams() -> None:
    """Replace closed streams (`>&-`). Then writing data fails, and messages are lost."""
    if sys.stdout is None:
        read_only = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = os.fdopen(read_only, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def stdout_fd() -> int | None:
    """Return the descriptor of stdout, or None if text is converted or buffered first."""
    if any(each is not None for each in (_Mode.screen, _Mode.turner, _Mode.terminal)):
        return None
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def line(text: str) -> None:
    """Write one line of text to stdout, as UTF-8 in every locale.

    Lone surrogates (undecodable file names) are written as the bytes they represent.
    """
    write(_utf8(text) + b"\n")


def _utf8(text: str) -> bytes:
    """Encode text. A surrogate without a byte (a file may escape one) becomes U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        import re

        known = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text)
        return known.encode("utf-8", "surrogateescape")


def message(text: str, *, level: str = "note", **fields: Any) -> None:
    """Print a message: a plain line on stderr, or one JSON object in machine formats."""
    if _Mode.machine:
        text = json_text({"level": level, "message": text, **fields})
    is_note = not _Mode.machine and level == "note" and sys.stderr.isatty()
    write_stderr(_wrapped(text) if is_note else text, is_dim=is_note)


# Parts of notes that contain a command, or an absolute path.
PASTED = ("eoctl ", "kcat ", ".sh ", " /", "=/", ":/", "(/")


def _wrapped(text: str) -> str:
    """Break a note between words at the terminal's width. A command or a path stays whole."""
    is_pasted = any(each in f" {text}" for each in PASTED)
    if len(text) < screen_size()[0] or is_pasted or "\n" in text:
        return text
    import textwrap

    return "\n".join(
        textwrap.wrap(
            text, screen_size()[0] - 1, subsequent_indent="  ", break_long_words=False,
            break_on_hyphens=False,
        )
    )  # fmt: skip


def write_stderr(text: str, *, is_dim: bool = False) -> None:
    """Write one line to stderr, after pending stdout if both are the same terminal.

    The text contains names and other words from files, so terminal escapes in it are made visible.
    Undecodable bytes of names are passed on if stderr is no terminal.
    """
    if not _Mode.machine and not text.isprintable():
        text = "\n".join(map(_for_people, text.split("\n")))
    stream, data = sys.stderr.buffer, _utf8(text) + b"\n"
    if not text.isprintable() and sys.stderr.isatty():
        data = TerminalText(is_json=_Mode.machine).shown(data, is_end=True)
    if is_dim and is_colored(_Mode.inspect.color):
        data = b"\x1b[2m" + data.removesuffix(b"\n") + b"\x1b[0m\n"
    try:
        if _Mode.screen is not None and sys.stderr.isatty() and _Mode.screen.put(stream, data):
            return
    except BrokenPipeError:  # the pager was closed, and stderr is still readable
        pass
    if sys.stdout.isatty():
        flush()
    try:
        if _Mode.before_write is not None:
            _Mode.before_write()
        stream.write(data)
        stream.flush()
    except OSError:
        # A failed message does not change the findings.
        discard_stderr()


def _for_people(text: str) -> str:
    return "".join(
        each if each == "\t" or "\udc80" <= each <= "\udcff" else printable(each) for each in text
    )


def error(exc: EoctlError) -> None:
    """Report an error: what, where, and the next step."""
    fields: dict[str, Any] = {"error": type(exc).__name__, "exit_status": exc.exit_status}
    for name in ("path", "pos", "check_id", "expected", "found", "errno"):
        value = getattr(exc, name, None)
        if value not in (None, ""):
            fields[name] = value
    next_step = exc.next_step or _instead_of_uri(fields)
    if _Mode.machine:
        message(exc.message, level="error", **fields, next_step=next_step)
        return
    for start, words in (("eoctl: ", str(exc)), ("  try: ", next_step)):
        if words:  # a name may have several lines
            write_stderr(start + words.replace("\n", "\\n"))


def _instead_of_uri(fields: Mapping[str, Any]) -> str:
    """Return the next step for a URI that was taken for a file path and does not exist."""
    # A command that reads URIs has loaded this module.
    if fields.get("errno") != ENOENT or "eoctl.arrow_files" in sys.modules:
        return ""
    from storage.files.uris import is_uri

    path = fields.get("path", "")
    is_remote = isinstance(path, str) and is_uri(path) and not path.lower().startswith("file:")
    return URI_READERS if is_remote else ""


_BYTES = frozenset((bytes, bytearray, memoryview))


@cache
def _encoder() -> Callable[[Any], str]:
    import json

    return json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_text(value: Mapping[str, Any]) -> str:
    """Return one JSON object on one line. Bytes that are not UTF-8 become `NAME_base64`."""
    encode = _encoder()
    if _BYTES.isdisjoint(map(type, value.values())):
        with suppress(TypeError):  # bytes in a nested value
            text = encode(value)
            if text.isascii():  # no character needs escaping
                return text
    return encode(_json_ready(value))


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


def _has_large(row: Mapping[str, Any]) -> bool:
    return any(type(each) is bytes and is_large(each) for each in row.values())


def _json_object_pieces(row: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the text of `json_text` in pieces, because some bytes are large."""
    for place, (name, value) in enumerate(row.items()):
        yield b"," if place else b"{"
        if type(value) is not bytes or not is_large(value):
            yield _utf8(json_text({name: value})[1:-1])
        elif is_utf8(value):
            yield _utf8(f"{json_text({name: 0})[1:-2]}")
            yield from json_pieces(value)
        else:
            yield _utf8(f"{json_text({f'{name}_base64': 0})[1:-2]}")
            yield from base64_pieces(value)
    yield b"}"


def row_writer(
    output: OutputFormat, put_line: Callable[[str], None] | None = None
) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes one row to stdout as JSON Lines or msgpack.

    With `--columns` a row keeps its kind and these columns. A row without any of them is left out.
    `put_line` writes a line, by default `line`.
    """
    put = _json_or_msgpack(output, put_line or line)
    if not _Mode.inspect.columns:
        return put

    def put_chosen(row: Mapping[str, Any]) -> None:
        if _Mode.turner is not None and not _Mode.turner.wants(row.get("kind")):
            put(row)  # counted, not written
            return
        wanted = chosen_columns([name for name in row if name != "kind"])
        if wanted:
            put({name: row[name] for name in ("kind", *wanted) if name in row})

    return put_chosen


def _json_or_msgpack(
    output: OutputFormat, put_line: Callable[[str], None]
) -> Callable[[Mapping[str, Any]], None]:
    if output in (OutputFormat.JSONL, OutputFormat.JSON):

        def put_json(row: Mapping[str, Any]) -> None:
            if _has_large(row):
                for piece in _json_object_pieces(row):
                    write(piece)
                write(b"\n")
            else:
                put_line(json_text(row))

        return put_json
    from msgpack import Packer

    packer = Packer(use_bin_type=True, unicode_errors="surrogateescape")
    pack = packer.pack

    def put(row: Mapping[str, Any]) -> None:
        if _has_large(row):
            write(packer.pack_map_header(len(row)))
            for name, value in row.items():
                write(pack(name))
                is_in_pieces = type(value) is bytes and is_large(value)
                for piece in msgpack_pieces(value) if is_in_pieces else [pack(value)]:
                    write(piece)
            return
        try:
            write(pack(row))
        except UnicodeEncodeError:
            write(pack(_with_known_surrogates(row)))

    return put


def chosen_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns that `--columns` selects, in its order, or all without it."""
    _Mode.seen = tuple(dict.fromkeys((*_Mode.seen, *columns)))
    wanted = _Mode.inspect.columns
    if not wanted:
        return list(columns)
    found = {each: find_column(each, columns) for each in wanted}
    _Mode.absent = tuple(each for each in _Mode.absent if found.get(each) is None)
    return list(dict.fromkeys(each for each in found.values() if each is not None))


def _with_known_surrogates(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _with_known_surrogates(name): _with_known_surrogates(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_known_surrogates(each) for each in value]
    return _utf8(value).decode("utf-8", "surrogateescape") if isinstance(value, str) else value


def emit(report: Report, output: OutputFormat, *, is_long: bool = False) -> None:
    """Print a report. `is_long`: it has very many rows, which may be buffered."""
    use_format(output)
    if _Mode.machine:
        turner, is_wanted = _Mode.turner, True
        if turner is not None:
            is_wanted = turner.wants(report.kind)
            turner.declare(report.kind, chosen_columns(report.columns) if is_wanted else [])
        put = row_writer(output)
        for row in report.rows:  # unwanted rows too, since a later report may count them
            if is_wanted:
                put({"kind": report.kind, **dict(zip(report.columns, row, strict=True))})
    elif output is OutputFormat.TABLE or draws_tables():
        _emit_table(report)
    else:
        _emit_plain(report, is_long=is_long)
    for note in report.notes:
        message(note)


def _emit_plain(report: Report, *, is_long: bool) -> None:
    """Write tab-separated rows with a header line, for `cut` and `awk`."""
    wanted = chosen_columns(report.columns)
    if not wanted:
        return
    line("\t".join(wanted))
    lines = Lines(line)
    put = lines.put if is_long else line
    names = tuple(wanted)
    places = [report.columns.index(name) for name in wanted]
    is_all = names == tuple(report.columns)
    for row in report.rows:
        put(plain_line(names, row if is_all else [row[place] for place in places]))
    lines.flush()


def _emit_table(report: Report) -> None:
    """Draw a table that fits, and name the columns left out in one line."""
    from eoctl.console.table import draw

    wanted = chosen_columns(report.columns)
    if not wanted:
        return
    inspect, width = _Mode.inspect, screen_size()[0]
    columns = report.columns if isinstance(report.columns, Columns) else Columns(report.columns)
    # All columns that `--columns` names are answers.
    answers = wanted if inspect.columns else columns.answers
    places = [report.columns.index(name) for name in wanted]
    rows = [[row[place] for place in places] for row in report.rows]
    if not rows:
        line(f"no {columns.noun or report.kind.replace('_', ' ').replace('-', ' ')}")
        return
    is_whole = columns.is_whole or inspect.has_all or bool(inspect.columns)
    drawn = draw(wanted, rows, answers=answers, width=width, inspect=inspect, is_whole=is_whole)
    write_drawn(drawn.text)
    if drawn.left_out:
        count, names = len(drawn.left_out), ", ".join(drawn.left_out)
        reported = f"not shown: {names}; --wide shows them"
        more = f"{counted(count, 'more column')} not shown; --wide shows them"
        message(reported if len(reported) <= width else more)


def discard_stdout() -> None:
    """Discard the interpreter's last flush after a closed pipe, so that it does not fail."""
    _discard(sys.stdout)


def discard_stderr() -> None:
    """Discard the rest of stderr after a failed write, which would end the program with 120."""
    _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
