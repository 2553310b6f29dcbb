"""Duplicates by group: one row for all copies of one batch or of one record, with their records."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.duplicates.record_digests import content_of, digest_of
from recovery.duplicates.spill import OUTCOMES, Duplicate, DuplicateCause, DuplicateKind
from recovery.summaries.sequence_ranges import LAP
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition, floor_of
from storage.errors import AccessError, EoctlError, FormatError
from storage.formats.record_batch import HEADER_BYTES, parse_header
from storage.kernels.protocol import ScannedBatch
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from recovery.duplicates.spill import Rows, Sorter, SpillSpace
    from storage.dirs.partition_files import SegmentFiles
    from storage.log.segment import LogRecord, Segment


MAX_BATCH_RECORDS = 65_536  # of a kept batch; of a larger batch only the record is found
MAX_PARTITIONS = 64  # kept open at a time


class RecordFinder:
    """A finder of records by offset. Consecutive requests share batches."""

    def __init__(self) -> None:
        self._partitions: dict[str, Partition | None] = {}
        self._batch: tuple[str, int, int] | None = None  # directory, first and last offset
        self._records: dict[int, LogRecord] = {}

    def at(self, log_path: str, offset: int) -> LogRecord | None:
        """Return the record at an offset in the directory of a `.log`, or None if unreadable."""
        directory = os.path.dirname(log_path)  # noqa: PTH120 - called for each row
        if self._batch is not None:
            known, first, last = self._batch
            if known == directory and first <= offset <= last:
                return self._records.get(offset)
        try:
            return self._read(directory, offset)
        except EoctlError:
            return None

    def _read(self, directory: str, offset: int) -> LogRecord | None:
        partition = self._partition(directory)
        place = None if partition is None else partition.find_offset(offset)
        if place is None or place.batch.crc_ok is False:
            return None
        with open_segment(place.files.log.path, base_offset=place.files.base_offset) as segment:
            records = segment.records(place.batch)
            if place.batch.header.records_count > MAX_BATCH_RECORDS:
                return next((each for each in records if each.offset == offset), None)
            found = {each.offset: each for each in records}
        if found:
            self._batch = directory, min(found), max(found)
            self._records = found
        return found.get(offset)

    def _partition(self, directory: str) -> Partition | None:
        if directory not in self._partitions:
            if len(self._partitions) == MAX_PARTITIONS:
                self._partitions.clear()
            self._partitions[directory] = None
            self._partitions[directory] = Partition.of(select_partition(directory))
        return self._partitions[directory]


# -- reports of found pairs: with paths, and whether two batches have the same content


MAX_OPEN_SEGMENTS = 4


class _Compared(NamedTuple):
    """The comparison of two batches over their common sequences."""

    records_count: int | None
    is_same_payload: bool | None
    payload_hash: str | None


UNREADABLE = _Compared(None, None, None)


class PairReporter:
    """A context manager that makes a Duplicate of each pair, and keeps some segments open.

    Args:
        partitions: by the directory numbers of the pairs.
    """

    def __init__(self, partitions: dict[int, Partition]) -> None:
        self._partitions = partitions
        self._segments: dict[str, Segment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()

    def proved(self, pair: Rows) -> Duplicate:
        """Report two batches. Both are read again."""
        partition = self._partitions[int(pair["directory"])]
        first, repeat = pair["first"], pair["repeat"]
        start = max(_start(first), _start(repeat))
        end = min(_end(first), _end(repeat))
        compared = self._compare(partition, first, repeat, start, end)
        return Duplicate(
            kind=DuplicateKind.PROVED,
            cause=DuplicateCause.RETRY,
            topic=partition.topic,
            partition=_number(partition),
            first_partition=_number(partition),
            first_base_offset=int(first["base_offset"]),
            first_last_offset=_last_offset(first),
            repeat_base_offset=int(repeat["base_offset"]),
            repeat_last_offset=_last_offset(repeat),
            records_count=compared.records_count,
            first_timestamp_ms=int(first["max_timestamp_ms"]),
            repeat_timestamp_ms=int(repeat["max_timestamp_ms"]),
            **_sessions(first, repeat),
            base_sequence=start % LAP,
            last_sequence=(end - 1) % LAP,
            is_same_payload=compared.is_same_payload,
            payload_hash=compared.payload_hash,
            first_path=_files(partition, int(first["base_offset"])).log.path,
            path=_files(partition, int(repeat["base_offset"])).log.path,
        )

    def suspected(self, pair: Rows, *, by_id: bool) -> Duplicate:
        """Report two records."""
        first, repeat = pair["first"], pair["repeat"]
        first_in = self._partitions[int(first["directory"])]
        repeat_in = self._partitions[int(repeat["directory"])]
        prefix = "payload" if by_id else "hash"
        first_hash, repeat_hash = _hash(first, prefix), _hash(repeat, prefix)
        return Duplicate(
            kind=DuplicateKind.SUSPECTED,
            cause=_cause(first, repeat),
            topic=repeat_in.topic,
            partition=_number(repeat_in),
            first_partition=_number(first_in),
            first_base_offset=int(first["offset"]),
            first_last_offset=int(first["offset"]),
            repeat_base_offset=int(repeat["offset"]),
            repeat_last_offset=int(repeat["offset"]),
            records_count=1,
            first_timestamp_ms=int(first["timestamp_ms"]),
            repeat_timestamp_ms=int(repeat["timestamp_ms"]),
            **_sessions(first, repeat),
            base_sequence=None,
            last_sequence=None,
            is_same_payload=first_hash == repeat_hash,
            payload_hash=repeat_hash,
            first_path=_files(first_in, int(first["offset"])).log.path,
            path=_files(repeat_in, int(repeat["offset"])).log.path,
        )

    def _compare(
        self, partition: Partition, first: Any, repeat: Any, start: int, end: int
    ) -> _Compared:
        contents = []
        for each in (first, repeat):
            try:
                records = self._records(partition, each)
            except (AccessError, FormatError):
                return UNREADABLE
            shift = _start(each) - int(each["base_offset"])
            contents.append(
                {
                    record.offset + shift: content_of(record)
                    for record in records
                    if start <= record.offset + shift < end
                }
            )
        in_first, in_repeat = contents
        digest = digest_of(in_repeat.values())
        return _Compared(len(in_repeat), in_first == in_repeat, digest.hex())

    def _records(self, partition: Partition, batch: Any) -> list[LogRecord]:
        """Read a batch again. Raises AccessError, FormatError."""
        segment = self._segment(_files(partition, int(batch["base_offset"])))
        pos = int(batch["pos"])
        header = parse_header(segment.file.read_at(pos, HEADER_BYTES).data, 0)
        return list(segment.records(ScannedBatch(pos, header, crc_ok=True)))

    def _segment(self, files: SegmentFiles) -> Segment:
        path = files.log.path
        if path not in self._segments:
            if len(self._segments) == MAX_OPEN_SEGMENTS:
                self._segments.pop(next(iter(self._segments))).close()
            self._segments[path] = open_segment(path, base_offset=files.base_offset)
        return self._segments[path]


def _start(batch: Any) -> int:
    return int(batch["start"])


def _end(batch: Any) -> int:
    return int(batch["start"]) + int(batch["sequences_count"])


def _last_offset(batch: Any) -> int:
    return int(batch["base_offset"]) + int(batch["sequences_count"]) - 1


def _number(partition: Partition) -> int | None:
    return partition.partition if partition.partition >= 0 else None


def _files(partition: Partition, offset: int) -> SegmentFiles:
    return partition.segments[floor_of(partition.segments, offset)]


def _hash(record: Any, prefix: str) -> str:
    return f"{int(record[prefix + '_high']):016x}{int(record[prefix + '_low']):016x}"


def _cause(first: Any, repeat: Any) -> DuplicateCause:
    """Return the writer of the repeat of a record: another session, or unknown."""
    if int(first["producer_id"]) < 0 or int(repeat["producer_id"]) < 0:
        return DuplicateCause.UNKNOWN
    return DuplicateCause.SESSION


def _sessions(first: Any, repeat: Any) -> dict[str, Any]:
    return {
        "first_producer_id": int(first["producer_id"]),
        "first_producer_epoch": int(first["producer_epoch"]),
        "repeat_producer_id": int(repeat["producer_id"]),
        "repeat_producer_epoch": int(repeat["producer_epoch"]),
        "first_outcome": OUTCOMES[int(first["outcome"])],
        "repeat_outcome": OUTCOMES[int(repeat["outcome"])],
    }


# -- duplicates by group: one row for all copies of one batch or of one record.
#
# A pair has a repeat and one earlier copy. A sorter puts the pairs of a group next to each other,
# so memory does not depend on their number. A group consists of:
#
#   proved      All repeats of one batch, by its offset.
#   suspected   Records of equal contents (or ids), by time. A pair belongs to a group if its first
#               copy does. A longer pause than the window begins a new group.


SHARE = 1 / 8  # of the memory
MAX_LISTED = 10  # copies of a group, and sessions
SHOWN_BYTES = 64  # of a key, and of a value

_KEYS = ("group_high", "group_low", "time", "place", "at")
_KEY_DTYPE = [
    ("group_high", np.uint64),
    ("group_low", np.uint64),
    ("time", np.int64),
    ("place", np.int32),
    ("at", np.int64),
]


class DuplicateGroup(NamedTuple):
    """A batch or a record with all its copies. Times and offsets are inclusive.

    Attributes:
        kind: proved or suspected.
        causes: the writers of the other copies, each cause once.
        topic, partition: of the first copy.
        copies_count: the first copy, and all its repeats.
        base_offset: of the first copy. `offsets`: of the first MAX_LISTED copies, in order of time.
            For copies in several partitions they are PARTITION:OFFSET.
        records_count: the most records that a copy shares with another. None: unreadable.
        first_timestamp_ms, last_timestamp_ms: of the copies.
        sessions: producer id and epoch of the first MAX_LISTED sessions. -1/-1: no idempotence.
        key, value: of the first record of the first copy, SHOWN_BYTES of each. None: null.
        is_same_payload: key, value and headers of all copies are equal. None: unreadable.
        outcomes: of the copies, each once: committed, aborted, open.
        path: the `.log` of the first copy.
    """

    kind: DuplicateKind
    causes: tuple[str, ...]
    topic: str
    partition: int | None
    copies_count: int
    base_offset: int
    offsets: tuple[int | str, ...]
    records_count: int | None
    first_timestamp_ms: int
    last_timestamp_ms: int
    sessions: tuple[str, ...]
    key: bytes | None
    value: bytes | None
    is_same_payload: bool | None
    outcomes: tuple[str, ...]
    path: str


def by_group(pairs: Sorter, kind: DuplicateKind, space: SpillSpace) -> Sorter:
    """Sort pairs so that the pairs of a group follow each other. The caller closes the result.

    Each row has its pair as `pair`.

    Raises:
        AccessError: temporary files cannot be written.
    """
    dtype = np.dtype([*_KEY_DTYPE, ("pair", pairs.dtype)])
    found = space.sorter(dtype, _KEYS, SHARE)
    try:
        for rows in pairs.chunks():
            found.add(_with_keys(rows, kind, dtype))
    except BaseException:
        found.close()
        raise
    return found


def _with_keys(rows: Rows, kind: DuplicateKind, dtype: np.dtype[np.void]) -> Rows:
    keyed = np.empty(len(rows), dtype)
    first, repeat = rows["first"], rows["repeat"]
    if kind is DuplicateKind.PROVED:
        keyed["group_high"] = rows["directory"]
        keyed["group_low"] = first["base_offset"]
        keyed["time"] = 0
    else:
        keyed["group_high"], keyed["group_low"] = first["hash_high"], first["hash_low"]
        keyed["time"] = repeat["timestamp_ms"]
    keyed["place"], keyed["at"] = rows["directory"], rows["offset"]
    keyed["pair"] = rows
    return keyed


def groups_of(duplicates: Iterable[Duplicate], finder: RecordFinder) -> Iterator[DuplicateGroup]:
    """Yield the groups of sorted duplicates."""
    group: _Group | None = None
    for each in duplicates:
        if group is None or not group.has(each):
            if group is not None:
                yield group.row(finder)
            group = _Group(each)
        group.add(each)
    if group is not None:
        yield group.row(finder)


class _Group:
    """The copies of a group so far."""

    def __init__(self, first: Duplicate) -> None:
        self._first = first
        self._tails = {(first.topic, *_first_of(first))}
        self._copies: list[tuple[int | None, int]] = []
        self._sessions: dict[str, None] = {}
        self._outcomes: dict[str, None] = {}
        self._causes: dict[str, None] = {}
        self._count = 1
        self._records_count: int | None = 0
        self._times = [first.first_timestamp_ms]
        self._is_same: bool | None = True
        self._see(first.first_partition, first.first_base_offset)
        self._met(first.first_producer_id, first.first_producer_epoch, first.first_outcome)

    def has(self, other: Duplicate) -> bool:
        """Return whether the first copy of a pair is in the group."""
        is_of_kind = other.kind is self._first.kind
        return is_of_kind and (other.topic, *_first_of(other)) in self._tails

    def add(self, other: Duplicate) -> None:
        """Add the repeat of a pair."""
        self._count += 1
        self._causes.setdefault(str(other.cause))
        # In a run of one session all pairs have the same first copy. The next run's first copy is a
        # repeat of this run.
        first, repeat = (other.topic, *_first_of(other)), (other.topic, *_repeat_of(other))
        self._tails = {first, repeat}
        self._see(other.partition, other.repeat_base_offset)
        self._met(other.repeat_producer_id, other.repeat_producer_epoch, other.repeat_outcome)
        self._times = [
            min(*self._times, other.repeat_timestamp_ms),
            max(*self._times, other.repeat_timestamp_ms),
        ]
        known, count = self._records_count, other.records_count
        self._records_count = None if known is None or count is None else max(known, count)
        if self._is_same is not None:
            same = other.is_same_payload
            self._is_same = None if same is None else self._is_same and same

    def _see(self, partition: int | None, offset: int) -> None:
        if len(self._copies) < MAX_LISTED:
            self._copies.append((partition, offset))

    def _met(self, producer_id: int, epoch: int, outcome: str) -> None:
        if len(self._sessions) < MAX_LISTED:
            self._sessions.setdefault(f"{producer_id}/{epoch}")
        self._outcomes.setdefault(outcome)

    def row(self, finder: RecordFinder) -> DuplicateGroup:
        """Return the group, and read its first record."""
        first = self._first
        record = finder.at(first.first_path, first.first_base_offset)
        partitions = {partition for partition, _ in self._copies}
        offsets: tuple[int | str, ...] = tuple(offset for _, offset in self._copies)
        if len(partitions) > 1:
            offsets = tuple(f"{partition}:{offset}" for partition, offset in self._copies)
        return DuplicateGroup(
            kind=first.kind,
            causes=tuple(self._causes),
            topic=first.topic,
            partition=first.first_partition,
            copies_count=self._count,
            base_offset=first.first_base_offset,
            offsets=offsets,
            records_count=self._records_count,
            first_timestamp_ms=min(self._times),
            last_timestamp_ms=max(self._times),
            sessions=tuple(self._sessions),
            key=_start_of(None if record is None else record.key),
            value=_start_of(None if record is None else record.value),
            is_same_payload=self._is_same,
            outcomes=tuple(self._outcomes),
            path=first.first_path,
        )


def _first_of(pair: Duplicate) -> tuple[str, int | None, int]:
    return pair.first_path, pair.first_partition, pair.first_base_offset


def _repeat_of(pair: Duplicate) -> tuple[str, int | None, int]:
    return pair.path, pair.partition, pair.repeat_base_offset


def _start_of(content: bytes | None) -> bytes | None:
    return None if content is None else bytes(content[:SHOWN_BYTES])
