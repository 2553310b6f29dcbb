"""Files other than logs as text and rows: indexes, snapshots, checkpoints, properties."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from eoctl import output
from eoctl.dump.rows import closing_rows
from eoctl.dump.session import absolute_path
from recovery.rebuild import verify_index
from recovery.rebuild.verify_index import (
    NOT_FOUND,
    CheckedIndexEntry,
    check_last_index_offset,
    check_offset_index,
    check_time_index,
)
from storage.errors import AccessError, CorruptError, FormatError
from storage.file_names import FileKind, classify
from storage.formats import offset_index, producer_snapshot, time_index, txn_index
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eoctl.dump.rows import Row
    from eoctl.dump.session import DumpSession
    from recovery.rebuild.verify_index import CheckedTimeEntry
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.log.segment import Segment


LOG_SUFFIX = ".log"


@contextmanager
def sibling_log(path: str) -> Iterator[Segment | None]:
    """Open the `.log` of an index. None, and a note, if it does not exist."""
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
    """Print an offset index. Mismatches with the log go to the closing lists."""
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
            output.line(f"{path} is empty.")  # untrimmed, where the tool fails with an exception
            return
        # For an untrimmed index without entries, the tool prints its first entry (0, 0).
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
    """Print a time index. Mismatches with the log go to the closing lists."""
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
    """Add one entry to the tool's closing lists."""
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
    """Check an offset index as Kafka's OffsetIndex.sanityCheck does. An empty index passes."""
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
    """Check a time index as Kafka's TimeIndex.sanityCheck does. An empty index passes."""
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
    """Return the line of one producer of a snapshot, as the tool prints it."""
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
    """Return the offset in the name of a snapshot, None for a name of another kind.

    In remote storage the name is the base offset of the segment, followed by an id.
    """
    name = classify(path.rpartition("/")[2])
    return name.offset if name.has_padded_offset else None


def dump_snapshot_text(path: str, data: bytes, _offset: int, session: DumpSession) -> None:
    """Print a producer snapshot.

    For a corrupt snapshot, print only the reason, as the tool does.
    """
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


# -- `.index`, `.timeindex`, `.txnindex` and `.snapshot` as rows, with indexes compared to their log


def index_rows(path: str, data: bytes, base_offset: int, session: DumpSession) -> Iterator[Row]:
    """Yield the entries of an offset index, each verified and with the offset in the log."""
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
    """Yield the entries of a time index, each verified and with the timestamp in the log."""
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
    """Yield the producers of a snapshot, even if its checksum is wrong."""
    entries: list[ProducerEntry] = []
    crc_ok = True
    try:
        entries = producer_snapshot.parse_snapshot(data)
    except FormatError:
        crc_ok = False
        with suppress(FormatError):  # without a readable header the closing rows have the reason
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


# -- text checkpoints and properties files, which kafka-dump-log ignores: one line or row per entry


Entries = list[dict[str, Any]]


def _offset_checkpoint(data: bytes) -> Entries:
    from storage.formats.checkpoint import parse_offset_checkpoint

    return [each._asdict() for each in parse_offset_checkpoint(data)]


def _leader_epochs(data: bytes) -> Entries:
    from storage.formats.checkpoint import parse_leader_epochs

    return [each._asdict() for each in parse_leader_epochs(data)]


def _partition_metadata(data: bytes) -> Entries:
    from storage.formats.partition_metadata import format_uuid, parse_partition_metadata

    parsed = parse_partition_metadata(data)
    return [{"version": parsed.version, "topic_id": format_uuid(parsed.topic_id)}]


def _meta_properties(data: bytes) -> Entries:
    from storage.formats.meta_properties import parse_meta_properties

    parsed = parse_meta_properties(data)
    return [
        {
            "version": parsed.version,
            "cluster_id": parsed.cluster_id,
            "node_id": parsed.node_id,
            "directory_id": _uuid_text(parsed.directory_id),
            **dict(parsed.other),
        }
    ]


def _quorum_state(data: bytes) -> Entries:
    from storage.formats.quorum_state import parse_quorum_state

    parsed = parse_quorum_state(data)
    voters = parsed.current_voters
    return [
        {
            "data_version": parsed.data_version,
            "leader_id": parsed.leader_id,
            "leader_epoch": parsed.leader_epoch,
            "voted_id": parsed.voted_id,
            "voted_directory_id": _uuid_text(parsed.voted_directory_id),
            "current_voters": None if voters is None else [each.voter_id for each in voters],
        }
    ]


def _clean_shutdown(data: bytes) -> Entries:
    from storage.formats.clean_shutdown import parse_clean_shutdown

    return [parse_clean_shutdown(data)._asdict()]


def _uuid_text(value: bytes | None) -> str | None:
    from storage.formats.partition_metadata import format_uuid

    return None if value is None else format_uuid(value)


PARSERS: dict[FileKind, Callable[[bytes], Entries]] = {
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}


def property_problems(kind: FileKind, data: bytes) -> list[FormatError]:
    """Return the problems of a text file. A parse error is one of them."""
    from storage.formats import (
        checkpoint,
        clean_shutdown,
        meta_properties,
        partition_metadata,
        quorum_state,
    )

    check = {
        FileKind.OFFSET_CHECKPOINT: checkpoint.offset_checkpoint_problems,
        FileKind.LEADER_EPOCHS: checkpoint.leader_epoch_problems,
        FileKind.PARTITION_METADATA: partition_metadata.problems,
        FileKind.META_PROPERTIES: meta_properties.problems,
        FileKind.QUORUM_STATE: quorum_state.problems,
        FileKind.CLEAN_SHUTDOWN: clean_shutdown.problems,
    }[kind]
    return check(data)


def entries_of(kind: FileKind, data: bytes) -> Entries:
    """Return the entries of a file, none if it cannot be parsed (see `property_problems`)."""
    try:
        return PARSERS[kind](data)
    except FormatError:
        return []


def property_text(kind: FileKind, data: bytes) -> Iterator[str]:
    """Yield one line of `name: value` pairs per entry, in the style of kafka-dump-log."""
    for entry in entries_of(kind, data):
        known = [f"{name}: {value}" for name, value in entry.items() if value is not None]
        if known:  # brokers before 3.7 leave .kafka_cleanshutdown empty
            yield " ".join(known)


def property_rows(path: str, kind: FileKind, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield one row per entry."""
    for entry in entries_of(kind, data):
        yield {"kind": str(kind), "path": path, **entry}
