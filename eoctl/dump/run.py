"""One run of `dump-segment`: every path in order, each file by the decoder for its name."""

from __future__ import annotations

import os
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl import output
from eoctl.dump.selection import BatchFilter
from eoctl.dump.session import DumpSession
from eoctl.progress import Progress
from storage.dirs.discovery import NotKafkaError, is_partition_file
from storage.dirs.log_dir import LOG_DIR_FILES
from storage.errors import AccessError, FormatError
from storage.file_names import REMOTE_INDEX_CACHE_NAME, FileKind, classify
from storage.files.positioned_file import PositionedFile
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.dump.selection import DumpOptions
    from storage.file_names import FileName

LOG_KINDS = {FileKind.LOG, FileKind.CHECKPOINT}
SKIPPED_IN_DIRECTORIES = {FileKind.UNKNOWN, FileKind.LOCK}

ENTRY_KINDS = {FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT}
PROPERTY_KINDS = {
    FileKind.OFFSET_CHECKPOINT,
    FileKind.LEADER_EPOCHS,
    FileKind.PARTITION_METADATA,
    FileKind.META_PROPERTIES,
    FileKind.QUORUM_STATE,
    FileKind.CLEAN_SHUTDOWN,
}


def dump_paths(paths: Iterable[str], options: DumpOptions) -> int:
    """Dump all files and return the exit status.

    A bad file does not stop the dump of the others.
    """
    output.use_format(options.output)
    session = DumpSession(options)
    files = list(expand(paths, session))
    with (
        Progress("dumping", _total_bytes(files)) as progress,
        output.while_read(lambda: session.exit_status),
    ):
        for path in files:
            dump_file(path, session)
            progress.advance(_size_bytes(path))
    output.flush()
    session.print_lists()
    return session.exit_status


def expand(paths: Iterable[str], session: DumpSession) -> Iterator[str]:
    """Replace directories by the files in them.

    A log dir stands for the files of all partitions.
    """
    for given in paths:
        path = java_path(given)
        if Path(path).is_dir():
            is_empty = True
            for each in _files_below(path, session):
                is_empty = False
                yield each
            if is_empty:
                session.failed(NotKafkaError(path))
        else:
            yield path


def _files_below(directory: str, session: DumpSession) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entries, key=lambda each: each.name)
    except OSError as exc:
        session.missing(exc, directory)
        return
    # Other programs also have `.log` files. Without Kafka's files beside them they are ignored.
    is_cache = Path(directory).name == REMOTE_INDEX_CACHE_NAME
    is_ours = (is_partition_file(each.name) or each.name in LOG_DIR_FILES for each in names)
    has_kafkas = is_cache or any(is_ours)
    for entry in names:
        if entry.is_dir():
            yield from _files_below(entry.path, session)
        elif has_kafkas and classify(entry.name).kind not in SKIPPED_IN_DIRECTORIES:
            yield entry.path


def java_path(path: str) -> str:
    """Spell a path as java.io.File does: no doubled and no trailing slashes."""
    collapsed = re.sub("/+", "/", path)
    return collapsed.rstrip("/") or collapsed


def dump_file(path: str, session: DumpSession) -> None:
    """Dump one file. Report and count everything that is wrong with it."""
    if session.options.is_text:
        output.line(f"Dumping {path}")
    name = classify(path.rpartition("/")[2])
    try:
        if name.kind in LOG_KINDS:
            _dump_log(path, name, session)
        elif name.kind in ENTRY_KINDS:
            _dump_entries(path, name, session)
        elif name.kind in PROPERTY_KINDS:
            _dump_properties(path, name, session)
        elif Path(path).exists():
            output.message(f"Ignoring unknown file {path}")
            return
        else:
            raise FileNotFoundError(2, "No such file or directory", path)
    except AccessError as exc:
        session.failed(exc)
    except FormatError as exc:
        session.problem(exc if exc.path else exc.located(path))
        session.dumped_count += 1
    except BrokenPipeError:  # of stdout, not of the file
        raise
    except OSError as exc:
        session.missing(exc, path)
    else:
        session.dumped_count += 1


def _dump_log(path: str, name: FileName, session: DumpSession) -> None:
    with open_segment(path) as segment:
        wanted = BatchFilter(session.options.selection, segment)
        if session.options.is_text:
            from eoctl.dump.log_text import dump_log_text

            output.line(_log_heading(name, segment.base_offset))
            dump_log_text(path, segment, session, wanted)
            return
        from eoctl.dump.rows import log_rows

        _put_rows(log_rows(path, segment, session, wanted), session)


def _log_heading(name: FileName, base_offset: int) -> str:
    if name.kind is FileKind.LOG:
        return f"Log starting offset: {base_offset}"
    if name.offset is None:
        return "KRaft bootstrap snapshot"
    return f"Snapshot end offset: {name.offset}, epoch: {name.epoch}"


def _dump_entries(path: str, name: FileName, session: DumpSession) -> None:
    data = read_file(path, session)
    number = name.offset or 0
    if session.options.is_text and not output.draws_tables():
        from eoctl.dump.index_text import TEXT_DUMPERS

        TEXT_DUMPERS[name.kind](path, data, number, session)
        return
    from eoctl.dump.index_text import ROW_DUMPERS

    _put_rows(ROW_DUMPERS[name.kind](path, data, number, session), session)


def _dump_properties(path: str, name: FileName, session: DumpSession) -> None:
    from eoctl.dump.index_text import property_problems, property_rows, property_text

    data = read_file(path, session)
    errors = property_problems(name.kind, data)
    if session.options.is_text and not output.draws_tables():
        for each in property_text(name.kind, data):
            output.line(each)
        for error in errors:
            session.problem(error.located(path))
        return
    from eoctl.dump.rows import closing_rows

    rows = property_rows(path, name.kind, data)
    _put_rows(chain(rows, closing_rows(path, data, errors, session)), session)


def _put_rows(all_rows: Iterable[dict[str, Any]], session: DumpSession) -> None:
    if session.options.is_text:
        from eoctl.dump.rows import print_table

        print_table(all_rows)
        return
    put = output.row_writer(session.options.output)
    for row in all_rows:
        put(row)


def read_file(path: str, session: DumpSession) -> bytes:
    """Read a whole small file. Unreadable places are zeros and are reported."""
    with PositionedFile(path) as file:
        data, unreadable = file.read_at(0, file.file_bytes)
    for each in unreadable:
        session.unreadable_count += 1
        output.message(
            f"eoctl: {path}: position {each.start_pos}..{each.end_pos}: unreadable: {each.strerror}"
        )
    return data


def _size_bytes(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _total_bytes(paths: list[str]) -> int:
    return sum(map(_size_bytes, paths))
