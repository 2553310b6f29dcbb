"""`eoctl report`: one HTML file with timelines, to attach to an incident."""

from __future__ import annotations

import hmac
import os
import re
from enum import StrEnum
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from eoctl.commands.reporting.report_rows import gather
from eoctl.options import (
    Jobs,
    MetadataDir,
    Now,
    Output,
    Paths,
    ProducerExpiryMs,
    ServerProperties,
    Topics,
    given_paths,
    process_count,
)
from eoctl.output import OutputFormat, Report, emit, message
from eoctl.parameters import advanced_option, option, records_option
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, RefusedError, UsageError, pasted
from storage.files import fsio
from storage.files.fsio import FileAttributes, own_attributes
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.commands.reporting.report_options import ReportRequest
    from eoctl.report.model import Model


class Redacted(StrEnum):
    """The values of `--redact`."""

    NAMES = "names"


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    to: Annotated[str | None, option(metavar="FILE", help="Write the page to this file.")] = None,
    force: Annotated[bool, option("--force", help="Replace FILE if it is there.")] = False,
    title: Annotated[str, option(metavar="TEXT", help="Title of the page.")] = "",
    topic: Topics = None,
    transactional_id: Annotated[
        list[str] | None,
        records_option(
            metavar="ID", help="Only transactions of this transactional.id. Repeatable."
        ),
    ] = None,
    from_time: Annotated[
        str | None, records_option(metavar="TIME", help="Only what happened at this time or later.")
    ] = None,
    to_time: Annotated[
        str | None,
        records_option(metavar="TIME", help="Only what happened at this time or before."),
    ] = None,
    max_lanes: Annotated[
        int, records_option(min=1, metavar="N", help="Draw at most N lanes of each kind.")
    ] = 200,
    redact: Annotated[
        Redacted | None, option(help="Write pseudonyms in the place of names and paths.")
    ] = None,
    key_file: Annotated[
        str | None,
        advanced_option(metavar="FILE", help="Key of the pseudonyms. Created if missing."),
    ] = None,
    deep: Annotated[
        bool, option("--deep", help="Decode all records. Look for suspected duplicates too.")
    ] = False,
    coordinator_dir: Annotated[
        list[str] | None,
        advanced_option(metavar="DIR", help="Log dir with __transaction_state. Repeatable."),
    ] = None,
    metadata_dir: MetadataDir = None,
    jobs: Jobs = None,
    now: Now = None,
    producer_expiry_ms: ProducerExpiryMs = None,
    transaction_max_timeout_ms: Annotated[
        int,
        advanced_option(
            min=1,
            metavar="MS",
            help="transaction.max.timeout.ms of the brokers.",
            show_default=str(DEFAULT_MAX_TIMEOUT_MS),
        ),
    ] = DEFAULT_MAX_TIMEOUT_MS,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Make one HTML file of log dirs: verdict, timelines, findings, transactions, replicas.

    Everything is read as by check, in the same pass. The file needs no network and no server, and
    has no keys and no values. The exit status is the exit status of check.
    """
    wanted = given_paths(paths, server_properties)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl report PATH... --to report.html")
    from eoctl.clock import parse_time_ms
    from eoctl.commands.reporting.report_options import ReportRequest

    return run_report(
        ReportRequest(
            wanted,
            to=to,
            is_forced=force,
            metadata_dir=metadata_dir,
            coordinator_dirs=tuple(coordinator_dir or ()),
            topics=tuple(topic or ()),
            transactional_ids=tuple(transactional_id or ()),
            from_ms=None if from_time is None else parse_time_ms(from_time),
            to_ms=None if to_time is None else parse_time_ms(to_time),
            max_lanes=max_lanes,
            title=title,
            redacts=redact is not None,
            key_file=key_file,
            is_deep=deep,
            jobs=process_count(jobs),
            now=now,
            expiration_ms=producer_expiry_ms,
            max_timeout_ms=transaction_max_timeout_ms,
            server_properties=server_properties,
        ),
        output,
    )


# -- the key of pseudonyms: generated for one report, or kept in a file for several


def read_key(path: str | None) -> bytes:
    """Return the key of a file, created if it does not exist, or a new key without a file.

    Raises:
        AccessError: the file cannot be read or written.
        UsageError: the file is no such key.
        RefusedError: the file would lie in a log dir.
    """
    if path is None:
        return os.urandom(KEY_BYTES)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        require_outside_log_dirs(path, "name a file elsewhere")
        data = os.urandom(KEY_BYTES)
        private = FileAttributes(os.geteuid(), os.getegid(), 0o600)
        fsio.replace_file(fsio.FileSystem(), path, data.hex().encode() + b"\n", attributes=private)
        return data
    except OSError as exc:
        raise AccessError(exc, path) from exc
    try:
        key = bytes.fromhex(data.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(f"--key-file {path}: no key of eoctl", next_step="name a file to be made")
    return key


# -- a run of `eoctl report`: the checks of its targets, the rows, the page


def run_report(request: ReportRequest, output: OutputFormat) -> int:
    """Read, write the page, and print rows for programs. Return the exit status."""
    is_for_programs = output is not OutputFormat.TEXT
    if request.to is None and not is_for_programs:
        raise UsageError(
            "--to is missing, so the page has no file name",
            next_step=f"eoctl report {' '.join(map(pasted, request.paths))} --to report.html",
        )
    if request.key_file is not None and not request.redacts:
        raise UsageError("--key-file goes with --redact names")
    if (
        request.from_ms is not None
        and request.to_ms is not None
        and request.from_ms > request.to_ms
    ):
        raise UsageError("--from-time is later than --to-time")
    if request.to is not None:
        require_target(request.to, is_forced=request.is_forced)
    # Pseudonyms may sort differently, and so may the lanes.
    model = gather(request._replace(draws_only=not (is_for_programs or request.redacts)))
    if request.redacts:
        model = redacted(model, read_key(request.key_file))
    if is_for_programs:
        for kind, columns, rows in model.tables():
            emit(Report(kind, columns, rows), output)
    if request.to is not None:
        write_page(request.to, model, max_lanes=request.max_lanes)
    return model.status


def write_page(to: str, model: Model, *, max_lanes: int) -> None:
    """Draw the page, and replace its file in one step. Raises AccessError."""
    from eoctl.console.columns import size_text
    from eoctl.report.page import page_of

    data = page_of(model, max_lanes=max_lanes)
    fsio.replace_file(fsio.FileSystem(), to, data, attributes=own_attributes())
    message(f"{to}: {size_text(len(data))}")
    for said in model.verdict:
        message(f"{said.label}: {said.text}")


def require_target(to: str, *, is_forced: bool, option: str = "--to") -> None:
    """Check that a file can be written there, before the work begins.

    Raises:
        UsageError: the path has no file name.
        RefusedError: the file exists, or would lie in a log dir.
        AccessError: the directory is not writable.
    """
    if not to or to.endswith("/"):
        raise UsageError(f"{option}: no file is named", next_step=f"{option} report.html")
    if to == "-":
        raise UsageError(
            f"{option} -: a page goes into a file, not to standard output",
            next_step=f"{option} report.html",
        )
    require_outside_log_dirs(to, "name a file elsewhere")
    if os.path.lexists(to):
        if Path(to).is_dir():
            raise UsageError(
                f"{option} {pasted(to)}: is a directory", next_step=f"{option} report.html"
            )
        if not is_forced:
            raise RefusedError(f"{to}: is there already", next_step="--force, or another name")
    fsio.require_replaceable(to)
    directory = Path(to).parent
    if not os.access(directory, os.W_OK | os.X_OK):
        raise AccessError(OSError(EACCES, os.strerror(EACCES)), str(directory))


# -- pseudonyms in place of names and paths, for reports that are shown to strangers
#
# A pseudonym is an HMAC of the name. All reports made with one key have the same pseudonyms, and
# nobody without the key can guess names. Kafka's own topics keep their names, and offsets, times,
# sizes and ids stay. Messages and commands are text with names in it, so all names and directories
# of the report are replaced in them.


DIGEST = "sha256"
DIGITS = 10
KEY_BYTES = 32
# Columns that contain a name -> the prefix of its pseudonym.
KINDS = {
    "topic": "topic",
    "transactional_id": "id",
    "group": "group",
    "client_id": "client",
    "host": "host",
}
PARTITION_LISTS = ("committed_in", "aborted_in", "open_in", "without_marker", "not_here")
PATHS = ("path", "other_path", "file")
SOURCE_NAMES = ("cluster", "host")
_OWN = re.compile(r"__[a-z_]+")  # Kafka's own
_WORD = r"[\w.\-]"


def redacted(model: Model, key: bytes) -> Model:
    """Return the same report with pseudonyms."""
    return _Redaction(model, key).model()


class _Redaction:
    def __init__(self, model: Model, key: bytes) -> None:
        self._model = model
        self._key = key
        self._names: dict[str, str] = {}
        for name, kind in _names_of(model):
            if name and not _OWN.fullmatch(name):
                self._names.setdefault(name, self._pseudonym(kind, name))
        for path in _log_dirs_of(model):
            self._names.setdefault(path, self._pseudonym("dir", path))
        for each in model.sources:
            if each.what in SOURCE_NAMES:
                self._names.setdefault(each.value, self._pseudonym(each.what, each.value))
        # Longest first, because a name may be a prefix of another name.
        parts = [re.escape(each) for each in sorted(self._names, key=len, reverse=True)]
        self._known = re.compile(f"(?<!{_WORD})(?:{'|'.join(parts)})(?![\\w.])") if parts else None

    def _pseudonym(self, kind: str, name: str) -> str:
        data = f"{kind}\0{name}".encode("utf-8", "surrogateescape")
        return f"{kind}-{hmac.new(self._key, data, DIGEST).hexdigest()[:DIGITS]}"

    def model(self) -> Model:
        model = self._model
        changed: dict[str, Any] = {}
        for field, value in model._asdict().items():
            if isinstance(value, tuple):
                changed[field] = tuple(map(self._row, value))
        title = self._text(model.title)
        return model._replace(**changed, title=title, next_command=self._text(model.next_command))

    def _row(self, row: Any) -> Any:
        if isinstance(row, str):
            return self._text(row)
        values = {
            name: self._value(name, value)
            for name, value in zip(row._fields, row, strict=True)
            if isinstance(value, str | tuple)
        }
        return row._replace(**values)

    def _value(self, name: str, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, tuple):  # of PARTITION_LISTS
            return tuple(map(self._text, value))
        if name in KINDS:
            return self._names.get(value, value)
        return self._text(value)

    def _text(self, text: str) -> str:
        if self._known is None:
            return text
        return self._known.sub(lambda found: self._names[found[0]], text)


def _names_of(model: Model) -> Iterator[tuple[str, str]]:
    for _, columns, rows in model.tables():
        for place, column in enumerate(columns):
            kind = KINDS.get(column)
            if kind is not None:
                yield from ((row[place], kind) for row in rows if row[place] is not None)
            elif column in PARTITION_LISTS:  # including partitions that are not given
                for row in rows:
                    yield from ((each.rpartition("-")[0], "topic") for each in row[place])


def _log_dirs_of(model: Model) -> Iterator[str]:
    """Yield the directories that contain partitions, and the given paths."""
    for _, columns, rows in model.tables():
        for place, column in enumerate(columns):
            if column in PATHS:
                for row in rows:
                    path = row[place]
                    if path and "/" in path:
                        yield path.rpartition("/")[0] if column != "file" else _above(path)
    for each in model.sources:
        if each.what in {"path", "metadata", "coordinators"}:
            yield each.value.rstrip("/")


def _above(file: str) -> str:
    """Return the log dir of a file in a partition directory."""
    return file.rpartition("/")[0].rpartition("/")[0] or file.rpartition("/")[0]
