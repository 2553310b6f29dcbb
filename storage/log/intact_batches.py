"""Intact batches that a change drops, and their records that no remaining batch contains.

A batch is intact if its checksum is right and its own header contradicts nothing. The batches
around it do not matter for that. A reader returns no record of a batch with an impossible offset
(BAT-3, SEG-1, SEG-2), and a change that drops such a batch drops records.

A dropped batch may be a duplicate. Its records count as lost only if no remaining batch has a
record with the same offset, time, key, value and headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.errors import AccessError, FormatError
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.numpy_kernel import batch_at
from storage.kernels.protocol import HeaderTable, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment

# Rules that a batch breaks by its offsets alone.
OFFSET_CHECK_IDS = frozenset({"BAT-3", "SEG-1", "SEG-2", "SEG-3"})


class LeftOut(NamedTuple):
    """Intact batches of one file. `opener` opens the file again."""

    opener: Callable[[], Segment]
    table: HeaderTable


class Dropped(NamedTuple):
    """One intact batch that a change drops.

    Attributes:
        number: index of its `LeftOut`.
        batch: the batch in that file.
        kept: digests of the remaining records at its offsets. None: the whole batch remains.
    """

    number: int
    batch: ScannedBatch
    kept: frozenset[int] | None

    def lost_records(self, segment: Segment) -> Iterator[LogRecord]:
        """Yield its records that no remaining batch contains."""
        if self.kept is not None and not self.batch.header.is_control:
            for record in _records_of(segment, self.batch):
                if not self.kept or _digest_of(record) not in self.kept:
                    yield record

    def lost_counts(self, segment: Segment, high_watermark: int | None) -> tuple[int, int]:
        """Count these records, and those below a high watermark (None counts as 0)."""
        header, limit = self.batch.header, high_watermark or 0
        if self.kept is None or header.is_control:
            return 0, 0
        is_split = header.base_offset < limit <= header.last_offset
        if not self.kept and not is_split and header.magic >= MAGIC_V2:
            count = header.records_count
            return count, count if header.last_offset < limit else 0
        offsets = [each.offset for each in self.lost_records(segment)]
        return len(offsets), sum(each < limit for each in offsets)


def intact_batches(segment: Segment, start_pos: int, end_pos: int) -> Iterator[HeaderTable]:
    """Yield the headers of the intact batches in a stretch of a segment, by position."""
    segment = segment.of_any_offset()
    found: list[HeaderTable] = []
    todo = [(start_pos, end_pos)]
    while todo:
        first_pos, last_pos = todo.pop()
        scan = segment.scan_tables(start_pos=first_pos, end_pos=last_pos, is_active=False)
        tables = [each for each in scan if each.row_count]
        damage = [
            each for each in scan.verdicts if each.is_lost and each.check_id not in OFFSET_CHECK_IDS
        ]
        bad = [each.start_pos for each in damage]
        starts = {int(pos) for each in tables for pos in each.pos[np.isin(each.pos, bad)]}
        for table in tables:
            rows = np.flatnonzero(table.crc_ok & ~np.isin(table.pos, bad))
            if len(rows):
                found.append(HeaderTable._make(column[rows] for column in table))
        # A search behind damage accepts only offsets above the batch before it.
        todo += (
            (each.start_pos, each.end_pos)
            for each in damage
            if each.kind is VerdictKind.CORRUPT
            and each.start_pos > first_pos
            and each.start_pos not in starts
        )
    yield from sorted(found, key=_first_pos_of)


def _first_pos_of(table: HeaderTable) -> int:
    return int(table.pos[0])


def dropped_batches(
    left_out: Sequence[LeftOut], kept: Iterable[tuple[Callable[[], Segment], int, int | None]]
) -> Iterator[Dropped]:
    """Compare dropped intact batches with the remaining log.

    Batches of one file ascend by position.

    Args:
        left_out: the dropped batches.
        kept: the remaining log as openers of segments with their first offset and their end offset
            (None if unknown). A segment without an offset of `left_out` is not read.

    Raises:
        AccessError: a segment cannot be opened.
    """
    rows = [(number, row) for number, each in enumerate(left_out)
            for row in range(each.table.row_count)]  # fmt: skip
    if not rows:
        return
    columns = [
        np.concatenate([getattr(each.table, name) for each in left_out])
        for name in ("base_offset", "last_offset", "crc", "batch_bytes")
    ]
    compared = _Comparison(*columns)
    for opener, from_offset, to_offset in kept:
        if compared.overlaps(from_offset, to_offset):
            with opener() as segment:
                compared.take(segment)
    for place, (number, row) in enumerate(rows):
        is_same = bool(compared.is_same[place])
        kept_records = None if is_same else frozenset(compared.digests.get(place, ()))
        yield Dropped(number=number, batch=batch_at(left_out[number].table, row), kept=kept_records)


class _Comparison:
    """Dropped batches, by row, compared with the remaining batches.

    Memory grows with the dropped batches, and with the remaining records at their offsets.
    """

    def __init__(self, base_offset: Any, last_offset: Any, crc: Any, batch_bytes: Any) -> None:
        self._base_offset, self._last_offset = base_offset, last_offset
        self._crc, self._batch_bytes = crc, batch_bytes
        self.is_same = np.zeros(len(base_offset), np.bool_)
        self.digests: dict[int, set[int]] = {}

    def overlaps(self, from_offset: int, to_offset: int | None) -> bool:
        """Return whether a batch may have an offset in this range."""
        is_below = True if to_offset is None else bool((self._base_offset < to_offset).any())
        return is_below and bool((self._last_offset >= from_offset).any())

    def take(self, segment: Segment) -> None:
        """Compare the dropped batches with a remaining segment."""
        scan = segment.of_any_offset().scan_tables(verify_crc=False, is_active=False)
        for table in scan:
            if not table.row_count:
                continue
            low, high = int(table.base_offset.min()), int(table.last_offset.max())
            is_near = (self._base_offset <= high) & (self._last_offset >= low) & ~self.is_same
            for place in np.flatnonzero(is_near).tolist():
                self._compare(segment, table, place)

    def _compare(self, segment: Segment, table: HeaderTable, place: int) -> None:
        base, last = self._base_offset[place], self._last_offset[place]
        rows = np.flatnonzero((table.base_offset <= last) & (table.last_offset >= base))
        if not len(rows):
            return
        is_equal = (
            (table.base_offset[rows] == base)
            & (table.last_offset[rows] == last)
            & (table.crc[rows] == self._crc[place])
            & (table.batch_bytes[rows] == self._batch_bytes[place])
        )
        if is_equal.any():
            self.is_same[place] = True
            return
        known = self.digests.setdefault(place, set())
        for batch in (batch_at(table, row) for row in rows.tolist()):
            if not batch.header.is_control:
                known.update(map(_digest_of, _records_of(segment, batch)))


def _records_of(segment: Segment, batch: ScannedBatch) -> Iterator[LogRecord]:
    """Yield the records of a batch up to the first that does not decode."""
    try:
        yield from segment.records(batch)
    except (FormatError, AccessError):
        return


def _digest_of(record: LogRecord) -> int:
    """Return a digest of a record: offset, time, key, value and headers.

    Two records with equal digests are taken as equal.
    """
    said = (record.key, record.value, record.headers)
    return hash((record.offset, record.timestamp_ms, *said))
