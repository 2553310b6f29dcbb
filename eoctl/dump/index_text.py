"""`.index`, `.timeindex`, `.txnindex` and `.snapshot` as kafka-dump-log's text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from eoctl import output
from eoctl.dump.session import absolute_path
from recovery.rebuild import verify_index
from storage.errors import AccessError, CorruptError, FormatError
from storage.file_names import FileKind, classify
from storage.formats import offset_index, producer_snapshot, time_index, txn_index
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.dump.session import DumpSession
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.log.segment import Segment

LOG_SUFFIX = ".log"


@contextmanager
def sibling_log(path: str) -> Iterator[Segment | None]:
    """Open the `.log` of an index; None (and a note) when it is not there."""
    directory, slash, name = path.rpartition("/")
    log_path = f"{directory}{slash}{name.partition('.')[0]}{LOG_SUFFIX}"
    try:
        segment = open_segment(log_path)
    except AccessError as exc:
        output.message(f"eoctl: {exc}: entries are not verified against the log")
        yield None
        return
    with segment:
        yield segment


def dump_index_text(path: str, data: bytes, base_offset: int, session: DumpSession) -> None:
    """Print an offset index; what does not match the log goes to the closing list."""
    options = session.options
    _report(path, offset_index.problems(data, base_offset), session)
    if len(data) < offset_index.ENTRY_BYTES:
        output.line(f"{path} is empty.")
        return
    if options.index_sanity_check:
        _sanity(path, index_sanity_error(data), session)
        return
    entries = offset_index.parse_entries(data)
    with sibling_log(path) as segment:
        if not entries and (segment is None or segment.file_bytes == 0):
            output.line(f"{path} is empty.")  # untrimmed; the tool dies on it
            return
        # Of an untrimmed index without entries the tool prints its first (0, 0).
        entries = entries or [offset_index.OffsetIndexEntry(0, 0)]
        if segment is None:
            for entry in entries:
                _index_line(base_offset + entry.relative_offset, entry.segment_pos, session)
            return
        checked = verify_index.check_offset_index(
            entries, segment, max_message_bytes=options.max_message_bytes
        )
        for each in checked:
            if each.log_offset is not None and each.is_mismatch:
                pairs = session.mismatches.setdefault(absolute_path(path), {})
                pairs[each.offset] = each.log_offset
            if each.error is not None:
                session.problem(each.error.located(path))
            _index_line(each.offset, each.segment_pos, session)
        error = verify_index.check_last_index_offset(entries[-1], segment)
        if error is not None:
            session.problem(error.located(path))


def _index_line(offset: int, segment_pos: int, session: DumpSession) -> None:
    if not session.options.verify_index_only:
        output.line(f"offset: {offset} position: {segment_pos}")


def dump_time_index_text(path: str, data: bytes, base_offset: int, session: DumpSession) -> None:
    """Print a time index; what does not match the log goes to the closing lists."""
    _report(path, time_index.problems(data, base_offset), session)
    if session.options.index_sanity_check:
        _sanity(path, time_index_sanity_error(data), session)
        return
    entries = time_index.parse_entries(data)
    if not entries and len(data) >= time_index.ENTRY_BYTES:
        entries = [time_index.TimeIndexEntry(0, 0)]
    with sibling_log(path) as segment:
        if segment is None:
            for entry in entries:
                _time_line(entry.timestamp_ms, base_offset + entry.relative_offset, session)
            return
        before_ms = -1
        for each in verify_index.check_time_index(entries, segment):
            _list_time_entry(absolute_path(path), each, before_ms, session)
            if each.error is not None:
                session.problem(each.error.located(path))
            _time_line(each.timestamp_ms, each.offset, session)
            before_ms = each.timestamp_ms


def _list_time_entry(
    path: str, entry: verify_index.CheckedTimeEntry, before_ms: int, session: DumpSession
) -> None:
    """Enter one entry into the tool's closing lists."""
    if entry.log_timestamp_ms is None:
        session.offsets_not_found.setdefault(path, []).append((entry.offset, entry.log_offset))
        return
    if entry.log_timestamp_ms != entry.timestamp_ms:
        pair = (entry.timestamp_ms, entry.log_timestamp_ms)
        session.timestamp_mismatches.setdefault(path, []).append(pair)
    if before_ms >= entry.timestamp_ms:
        session.out_of_order_timestamps.setdefault(path, []).append((entry.timestamp_ms, before_ms))


def _time_line(timestamp_ms: int, offset: int, session: DumpSession) -> None:
    if not session.options.verify_index_only:
        output.line(f"timestamp: {timestamp_ms} offset: {offset}")


def index_sanity_error(data: bytes) -> CorruptError | None:
    """Kafka's OffsetIndex.sanityCheck, which an empty index passes."""
    if len(data) % offset_index.ENTRY_BYTES:
        return _sanity_error(
            f"its length of {len(data)} is no multiple of {offset_index.ENTRY_BYTES}"
        )
    if not data:
        return None
    last = offset_index.parse_entry(data, len(data) - offset_index.ENTRY_BYTES)
    is_below = last.relative_offset < 0
    return _sanity_error("the last offset is below the base offset") if is_below else None


def time_index_sanity_error(data: bytes) -> CorruptError | None:
    """Kafka's TimeIndex.sanityCheck, which an empty index passes."""
    if len(data) % time_index.ENTRY_BYTES:
        return _sanity_error(
            f"its length of {len(data)} is no multiple of {time_index.ENTRY_BYTES}"
        )
    if not data:
        return None
    first = time_index.parse_entry(data, 0)
    last = time_index.parse_entry(data, len(data) - time_index.ENTRY_BYTES)
    if last.timestamp_ms < first.timestamp_ms:
        return _sanity_error(
            f"the last timestamp {last.timestamp_ms} is below the first {first.timestamp_ms}"
        )
    is_below = last.relative_offset < 0
    return _sanity_error("the last offset is below the base offset") if is_below else None


def _sanity_error(reason: str) -> CorruptError:
    return CorruptError(f"sanity check failed: {reason}", check_id="IDX-1", pos=0)


def _sanity(path: str, error: CorruptError | None, session: DumpSession) -> None:
    if error is None:
        output.line(f"{path} passed sanity check.")
    else:
        session.problem(error.located(path))


def dump_txn_index_text(path: str, data: bytes, base_offset: int, session: DumpSession) -> None:
    """Print the aborted transactions of a segment."""
    for txn in txn_index.parse_entries(data):
        output.line(
            f"version: {txn.version} producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
            f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        )
    _report(path, txn_index.problems(data, base_offset), session)


def producer_line(entry: ProducerEntry) -> str:
    """One producer of a snapshot, as the tool prints it."""
    open_since = entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
        f"{f'OptionalLong[{open_since}]' if open_since >= 0 else 'OptionalLong.empty'}"
        f" lastTimestamp: {entry.timestamp_ms}"
    )
    if entry.has_batch:
        text += (
            f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence}"
            f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
            f" timestamp: {entry.timestamp_ms}"
        )
    return text


def snapshot_offset(path: str) -> int | None:
    """The offset that a snapshot is of, by its name; None: it has a name of another kind.

    In remote storage the name is the base offset of the segment, with an id behind it.
    """
    name = classify(path.rpartition("/")[2])
    return name.offset if name.has_padded_offset else None


def dump_snapshot_text(path: str, data: bytes, _offset: int, session: DumpSession) -> None:
    """Print a producer snapshot; of a corrupt one only the reason, as the tool does."""
    try:
        entries = producer_snapshot.parse_snapshot(data)
    except FormatError as exc:
        session.problem(exc.located(path))
        return
    for entry in entries:
        output.line(producer_line(entry))
    _report(path, producer_snapshot.problems(data, snapshot_offset(path)), session)


def _report(path: str, errors: list[FormatError], session: DumpSession) -> None:
    for error in errors:
        session.problem(error.located(path))


TEXT_DUMPERS: dict[FileKind, Callable[[str, bytes, int, DumpSession], None]] = {
    FileKind.INDEX: dump_index_text,
    FileKind.TIMEINDEX: dump_time_index_text,
    FileKind.TXNINDEX: dump_txn_index_text,
    FileKind.SNAPSHOT: dump_snapshot_text,
}
