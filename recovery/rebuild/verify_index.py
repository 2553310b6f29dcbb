"""Compare a segment's `.index` and `.timeindex` with its `.log`, entry by entry.

The result has the mismatches that kafka-dump-log lists, and real errors apart from them. A mismatch
is an entry whose offset is not the last offset of its batch, or whose timestamp is not its batch's
maximum. Mismatches are normal on followers, compacted logs and indexes of brokers up to 1.1 (APP-8,
COMP-10, IDX-3). An error has its rule: IDX-3, IDX-4, TIM-2.
"""

from __future__ import annotations

from itertools import islice
from operator import le
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError
from storage.formats import legacy_message, record_batch
from storage.formats.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from storage.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from storage.kernels.pure import MIN_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.formats.offset_index import OffsetIndexEntry
    from storage.formats.record_batch import BatchHeader
    from storage.formats.time_index import TimeIndexEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

NOT_FOUND = -1  # the tool's log offset if no batch has the indexed offset


class CheckedIndexEntry(NamedTuple):
    """An `.index` entry and the batch at its position."""

    offset: int
    segment_pos: int
    log_offset: int | None  # last offset of the batch there, None without a batch
    error: FormatError | None

    @property
    def is_mismatch(self) -> bool:
        """Return whether the tool lists it under `Mismatches in`."""
        return self.log_offset is not None and self.log_offset != self.offset


class CheckedTimeEntry(NamedTuple):
    """A `.timeindex` entry and the batch with its offset."""

    timestamp_ms: int
    offset: int
    log_offset: int  # last offset of the first batch that reaches `offset`, NOT_FOUND if none
    log_timestamp_ms: (
        int | None
    )  # greatest record timestamp of that batch if its last offset is `offset`
    error: FormatError | None


def check_offset_index(
    entries: Iterable[OffsetIndexEntry], segment: Segment, *, max_message_bytes: int
) -> Iterator[CheckedIndexEntry]:
    """Look up each entry's position in the log, as the tool does, and judge it by IDX-3, IDX-4.

    Args:
        entries: the entries up to the logical end of the index.
        segment: the open `.log`.
        max_message_bytes: how far the tool looks from a position for a whole batch.
    """
    log_bytes = segment.file_bytes
    for place, entry in enumerate(entries):
        offset = segment.base_offset + entry.relative_offset
        header = _header_at(segment, entry.segment_pos, log_bytes, max_message_bytes)
        log_offset = None if header is None else header.last_offset
        error = None
        if log_offset != offset and not _is_untrimmed_start(entry):
            # The tool's limit is no limit of the log: a larger batch is a batch all the same.
            whole = header or _header_at(segment, entry.segment_pos, log_bytes, log_bytes)
            error = _judge_entry(segment, entry, offset, whole, place * INDEX_ENTRY_BYTES)
        yield CheckedIndexEntry(
            offset=offset, segment_pos=entry.segment_pos, log_offset=log_offset, error=error
        )


def _is_untrimmed_start(entry: OffsetIndexEntry) -> bool:
    """Return whether an entry is (0, 0): the first entry of an empty index never trimmed."""
    return entry.relative_offset == 0 and entry.segment_pos == 0


def _header_at(
    segment: Segment, pos: int, log_bytes: int, max_message_bytes: int
) -> BatchHeader | None:
    """Return the header of the whole batch at `pos` by the file reader's rules (BAT-2), or None."""
    end_pos = min(log_bytes, pos + max_message_bytes)
    if pos < 0 or pos >= end_pos - record_batch.CRC_POS:
        return None
    raw = segment.file.read_at(pos, record_batch.HEADER_BYTES).data
    try:
        is_legacy = raw[record_batch.CRC_POS - 1] < record_batch.MAGIC_V2
        header = (
            legacy_message.header_of(raw, 0) if is_legacy else record_batch.parse_header(raw, 0)
        )
    except FormatError:
        return None
    if header.batch_length < MIN_LENGTH:
        return None
    return header if pos + header.batch_bytes <= end_pos else None


def _judge_entry(
    segment: Segment,
    entry: OffsetIndexEntry,
    offset: int,
    header: BatchHeader | None,
    index_pos: int,
) -> FormatError | None:
    """Distinguish a position without a batch (IDX-3) from an offset that is only not the last."""
    if header is not None and _proves_itself(segment, entry.segment_pos, header):
        if header.magic < record_batch.MAGIC_V2 or header.base_offset <= offset:
            return None
        return CorruptError(
            "the batch at the entry's position starts above its offset",
            check_id="IDX-3",
            pos=index_pos,
            expected=f"base offset <= {offset}",
            found=f"base offset {header.base_offset}",
        )
    return CorruptError(
        "no batch starts at the entry's position",
        check_id="IDX-3",
        pos=index_pos,
        expected=f"a batch at position {entry.segment_pos} of the .log",
        found="none" if header is None else "other bytes",
    )


def _proves_itself(segment: Segment, pos: int, header: BatchHeader) -> bool:
    """Return whether the bytes at `pos` are a batch with a right checksum."""
    scan = segment.scan(start_pos=pos, end_pos=pos + header.batch_bytes, resume=False)
    first = next(iter(scan), None)
    return first is not None and bool(first.crc_ok)


def check_last_index_offset(entry: OffsetIndexEntry, segment: Segment) -> FormatError | None:
    """Apply IDX-4: an index beyond its log makes the log end offset collapse (REC-11)."""
    if _is_untrimmed_start(entry):
        return None
    last_offset = -1
    for batch in segment.scan(start_pos=entry.segment_pos, verify_crc=False, resume=False):
        last_offset = batch.header.last_offset
    offset = segment.base_offset + entry.relative_offset
    if last_offset >= offset:
        return None
    return CorruptError(
        "the last entry's offset is beyond every batch of the log",
        check_id="IDX-4",
        pos=0,
        expected=f"an offset <= {last_offset}",
        found=str(offset),
    )


def check_time_index(
    entries: Sequence[TimeIndexEntry], segment: Segment
) -> Iterator[CheckedTimeEntry]:
    """Find the batch of each entry in one walk over the log, and judge the entry by TIM-2.

    An unordered index is read by offset, and yielded in its own order. A walk for each step back
    would take hours.
    """
    walk = _Walk(segment)
    offsets = [each.relative_offset for each in entries]
    if all(map(le, offsets, islice(offsets, 1, None))):
        for place, entry in enumerate(entries):
            yield _check_time_entry(walk, place, entry)
        return
    checked: dict[int, CheckedTimeEntry] = {}
    for place in sorted(range(len(entries)), key=offsets.__getitem__):
        checked[place] = _check_time_entry(walk, place, entries[place])
    yield from (checked[place] for place in range(len(entries)))


def _check_time_entry(walk: _Walk, place: int, entry: TimeIndexEntry) -> CheckedTimeEntry:
    offset = walk.segment.base_offset + entry.relative_offset
    batch = walk.first_reaching(offset)
    error = None
    if walk.max_timestamp_ms > entry.timestamp_ms and not _is_untrimmed(entry):
        error = CorruptError(
            "a batch at or before the entry's offset has a later timestamp: look-ups skip it",
            check_id="TIM-2",
            pos=place * TIME_ENTRY_BYTES,
            expected=f"timestamp >= {walk.max_timestamp_ms}",
            found=str(entry.timestamp_ms),
        )
    if batch is None:
        return CheckedTimeEntry(
            timestamp_ms=entry.timestamp_ms,
            offset=offset,
            log_offset=NOT_FOUND,
            log_timestamp_ms=None,
            error=error,
        )
    if batch.header.last_offset != offset:
        found = batch.header.last_offset
        return CheckedTimeEntry(
            timestamp_ms=entry.timestamp_ms,
            offset=offset,
            log_offset=found,
            log_timestamp_ms=None,
            error=error,
        )
    greatest_ms = walk.greatest_timestamp_ms(batch)
    return CheckedTimeEntry(
        timestamp_ms=entry.timestamp_ms,
        offset=offset,
        log_offset=offset,
        log_timestamp_ms=greatest_ms,
        error=error,
    )


def _is_untrimmed(entry: TimeIndexEntry) -> bool:
    return entry.timestamp_ms == 0 and entry.relative_offset == 0


class _Walk:
    """A forward walk over a log to the first batch that reaches each of ascending offsets."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.max_timestamp_ms = -1  # over all batches whose last offset is <= the requested offset
        self._scan = iter(segment.scan(verify_crc=False, resume=False))
        self._current: ScannedBatch | None = next(self._scan, None)
        self._greatest = (-1, -1)  # position of the last examined batch, and its result

    def first_reaching(self, offset: int) -> ScannedBatch | None:
        while self._current is not None and self._current.header.last_offset < offset:
            self._note(self._current)
            self._current = next(self._scan, None)
        if self._current is not None and self._current.header.last_offset == offset:
            self._note(self._current)
        return self._current

    def greatest_timestamp_ms(self, batch: ScannedBatch) -> int:
        """Return the greatest timestamp of a batch's records, -1 if it has none."""
        pos, greatest_ms = self._greatest
        if pos != batch.pos:
            times = (each.timestamp_ms for each in self.segment.records(batch))
            greatest_ms = max(times, default=-1)
            self._greatest = batch.pos, greatest_ms
        return max(greatest_ms, -1)

    def _note(self, batch: ScannedBatch) -> None:
        self.max_timestamp_ms = max(self.max_timestamp_ms, batch.header.max_timestamp_ms)
