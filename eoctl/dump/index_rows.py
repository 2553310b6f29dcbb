"""`.index`, `.timeindex`, `.txnindex` and `.snapshot` as rows; indexes held against their log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from eoctl.dump.index_text import (
    index_sanity_error,
    sibling_log,
    snapshot_offset,
    time_index_sanity_error,
)
from eoctl.dump.rows import closing_rows
from recovery.rebuild.verify_index import (
    NOT_FOUND,
    CheckedIndexEntry,
    check_last_index_offset,
    check_offset_index,
    check_time_index,
)
from storage.errors import FormatError
from storage.file_names import FileKind
from storage.formats import offset_index, producer_snapshot, time_index, txn_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eoctl.dump.rows import Row
    from eoctl.dump.session import DumpSession
    from recovery.rebuild.verify_index import CheckedTimeEntry
    from storage.formats.producer_snapshot import ProducerEntry


def index_rows(path: str, data: bytes, base_offset: int, session: DumpSession) -> Iterator[Row]:
    """Yield the entries of an offset index, each with what its log has there; all are verified."""
    options = session.options
    if options.index_sanity_check:
        yield from _sanity_rows(path, data, index_sanity_error(data), session)
        return
    errors = offset_index.problems(data, base_offset)
    entries = offset_index.parse_entries(data)
    verified = ["entries"]
    with sibling_log(path) as segment:
        checked: Iterable[CheckedIndexEntry]
        if segment is None:
            checked = (
                CheckedIndexEntry(
                    offset=base_offset + each.relative_offset,
                    segment_pos=each.segment_pos,
                    log_offset=None,
                    error=None,
                )
                for each in entries
            )
        else:
            verified.append("log")
            checked = check_offset_index(
                entries, segment, max_message_bytes=options.max_message_bytes
            )
        for place, entry in enumerate(checked):
            if entry.error is not None:
                errors.append(entry.error)
            if not options.verify_index_only:
                yield {
                    "kind": "index_entry",
                    "path": path,
                    "pos": place * offset_index.ENTRY_BYTES,
                    "offset": entry.offset,
                    "segment_pos": entry.segment_pos,
                    "log_offset": entry.log_offset,
                }
        if segment is not None and entries:
            error = check_last_index_offset(entries[-1], segment)
            errors += [] if error is None else [error]
    yield from closing_rows(path, data, errors, session, verified)


def time_index_rows(
    path: str, data: bytes, base_offset: int, session: DumpSession
) -> Iterator[Row]:
    """Yield the entries of a time index, each with what its log has there; all are verified."""
    options = session.options
    if options.index_sanity_check:
        yield from _sanity_rows(path, data, time_index_sanity_error(data), session)
        return
    errors = time_index.problems(data, base_offset)
    entries = time_index.parse_entries(data)
    verified = ["entries"]
    with sibling_log(path) as segment:
        checked: Iterable[CheckedTimeEntry | None] = [None] * len(entries)
        if segment is not None:
            verified.append("log")
            checked = check_time_index(entries, segment)
        for place, (entry, found) in enumerate(zip(entries, checked, strict=True)):
            if found is not None and found.error is not None:
                errors.append(found.error)
            is_in_log = found is not None and found.log_offset != NOT_FOUND
            if not options.verify_index_only:
                yield {
                    "kind": "time_index_entry",
                    "path": path,
                    "pos": place * time_index.ENTRY_BYTES,
                    "timestamp_ms": entry.timestamp_ms,
                    "offset": base_offset + entry.relative_offset,
                    "log_offset": found.log_offset if found is not None and is_in_log else None,
                    "log_timestamp_ms": None if found is None else found.log_timestamp_ms,
                }
    yield from closing_rows(path, data, errors, session, verified)


def _sanity_rows(
    path: str, data: bytes, error: FormatError | None, session: DumpSession
) -> Iterator[Row]:
    errors = [] if error is None else [error]
    return closing_rows(path, data, errors, session, verified=["sanity"])


def txn_index_rows(path: str, data: bytes, base_offset: int, session: DumpSession) -> Iterator[Row]:
    """Yield the aborted transactions of a segment."""
    for place, txn in enumerate(txn_index.parse_entries(data)):
        pos = place * txn_index.ENTRY_BYTES
        yield {"kind": "aborted_txn", "path": path, "pos": pos, **txn._asdict()}
    yield from closing_rows(path, data, txn_index.problems(data, base_offset), session)


def snapshot_rows(path: str, data: bytes, _offset: int, session: DumpSession) -> Iterator[Row]:
    """Yield the producers of a snapshot; if its checksum is wrong they are still shown."""
    entries: list[ProducerEntry] = []
    crc_ok = True
    try:
        entries = producer_snapshot.parse_snapshot(data)
    except FormatError:
        crc_ok = False
        with suppress(FormatError):  # not even a header: the closing rows say so
            entries = producer_snapshot.entries_despite_crc(data)
    for entry in entries:
        row = {"kind": "producer", "path": path, **entry._asdict()}
        row |= {"first_sequence": entry.first_sequence, "crc_ok": crc_ok}
        yield row
    problems = producer_snapshot.problems(data, snapshot_offset(path))
    yield from closing_rows(path, data, problems, session)


ROW_DUMPERS: dict[FileKind, Callable[[str, bytes, int, DumpSession], Iterator[Row]]] = {
    FileKind.INDEX: index_rows,
    FileKind.TIMEINDEX: time_index_rows,
    FileKind.TXNINDEX: txn_index_rows,
    FileKind.SNAPSHOT: snapshot_rows,
}
