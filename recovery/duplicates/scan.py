"""The pass over a partition directory for duplicates: valid batches, and their records.

A batch is valid if its checksum and its offset are correct. Its offsets are above all earlier
batches in the segment, at least the segment's base offset, and below the next segment's base
offset. Any other batch may be a second copy at the same offset, which no consumer reads twice. The
pass reports everything that it leaves out.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.counts import counted
from storage.dirs.lookup import DoubtfulOffsets, LostRecords, is_wrong_end
from storage.dirs.offset_ledger import OffsetLedger, unread
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, batch_at, blocks, rows_of
from storage.kernels.protocol import HeaderTable, in_words
from storage.kernels.record_table import decode_in_pieces, decode_records
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import decoded_to_end
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.log_dir import StoppedState
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.dirs.partition import Partition, SegmentBounds
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord, Segment

    Flags = NDArray[np.bool_]

MAX_TABLE_RECORDS = 65_536  # per call of the decoder, unless a single batch has more
MAX_REPORTED_COUNT = 10  # per directory


class Trouble:
    """The unreadable data of a directory, reported in at most MAX_TOLD_COUNT sentences.

    Attributes:
        count: number of places.
        opened_count: segments that could be opened.
        notes: sentences about the first places.
        spans: the offsets of each segment that was read.
        lost: the offsets of segments with such places.
    """

    def __init__(self) -> None:
        self.count = 0
        self.opened_count = 0
        self.notes: list[str] = []
        self.spans: list[OffsetSpan] = []
        self.lost: list[Missing] = []

    def add(self, text: str) -> None:
        """Add one sentence."""
        self.count += 1
        if self.count <= MAX_REPORTED_COUNT:
            self.notes.append(text)

    def reported(self, path: str) -> list[str]:
        """Return the sentences, and the number of further sentences."""
        more = self.count - len(self.notes)
        return [*self.notes, f"{path}: {more} more such places"] if more else self.notes


class Part(NamedTuple):
    """Some valid batches of a segment, in log order.

    Attributes:
        table: their headers.
        is_data: not a control batch.
        segment: their segment. It is open until the next part is requested.
        window: the buffer that contains them. None: they are read one by one.
    """

    table: HeaderTable
    is_data: Flags
    segment: Segment
    window: BulkWindow | None

    @property
    def is_transactional(self) -> Flags:
        """Data batches and markers of transactions."""
        is_transactional: Flags = self.table.attributes & TRANSACTIONAL_MASK != 0
        return is_transactional & (self.table.magic >= MAGIC_V2) & (self.table.producer_id >= 0)


def read_parts(
    partition: Partition, trouble: Trouble, on_bytes: Callable[[int], object] = int
) -> Iterator[Part]:
    """Yield all valid batches, in log order.

    Args:
        partition: as listed.
        trouble: takes everything that is left out.
        on_bytes: called with the number of bytes read.
    """
    cleaned_offset = partition.acknowledged.cleaned_offset
    for place, files in enumerate(partition.segments):
        later = partition.segments[place + 1 : place + 2]
        end_offset = later[0].base_offset if later else MAX_OFFSET
        try:
            segment = open_segment(files.log.path, base_offset=files.base_offset)
        except AccessError as exc:
            trouble.add(str(exc))
            trouble.lost.append(unread(files.base_offset, partition.end_of(files)))
            continue
        trouble.opened_count += 1
        known_count = trouble.count
        ledger = OffsetLedger(files.base_offset, cleaned_offset=cleaned_offset)
        with segment:
            is_far = partition.goes_beyond_limit(files)
            placed = segment.of_any_offset() if is_far else segment
            reader = _PartReader(placed, end_offset, trouble)
            done_pos = 0
            stopped = partition.stopped
            for part in reader.parts(partition.bounds(files), stopped=stopped):
                if part.table.row_count:
                    ledger.take(part.table, part.segment)
                yield part
                pos = int(part.table.pos[-1]) if len(part.table.pos) else done_pos
                on_bytes(pos - done_pos)
                done_pos = pos
        trouble.spans.append(ledger.span)
        if trouble.count > known_count:
            trouble.lost.append(unread(files.base_offset, partition.end_of(files)))


class _PartReader:
    def __init__(self, segment: Segment, end_offset: int, trouble: Trouble) -> None:
        self._segment = segment
        self._end_offset = end_offset
        self._trouble = trouble
        self._top_offset = -1

    def parts(self, bounds: SegmentBounds, *, stopped: StoppedState) -> Iterator[Part]:
        # Batches that reach into the next segment are left out with a separate message.
        scan = BulkScan(
            self._segment, is_active=bounds["is_active"], claimed_end=bounds["claimed_end"]
        )
        self._doubtful = DoubtfulOffsets(scan)
        self._lost = LostRecords(scan)
        for block in blocks(scan):
            yield self._part(block.table, block.window)
        for verdict in scan.verdicts:
            if verdict.kind.is_damage or is_wrong_end(verdict.kind, stopped):
                self._trouble.add(in_words(self._segment.path, verdict))

    def _part(self, table: HeaderTable, window: BulkWindow | None) -> Part:
        counts = table.crc_ok.copy()
        if bad := self._doubtful.positions | self._lost.positions:
            counts &= ~np.isin(table.pos, list(bad))
        offsets = np.where(counts, table.last_offset, -1)
        tops = np.maximum.accumulate(np.concatenate(([self._top_offset], offsets)))
        self._top_offset = int(tops[-1])
        is_back = counts & (table.base_offset <= tops[:-1])
        self._leave_out(table, is_back, "have offsets that are not behind all before them")
        counts &= ~is_back
        is_beyond = counts & (table.last_offset >= self._end_offset)
        self._leave_out(table, is_beyond, "have offsets of the next segment")
        counts &= ~is_beyond
        if not counts.all():
            table = HeaderTable._make(column[counts] for column in table)
        is_control = (table.magic >= MAGIC_V2) & (table.attributes & CONTROL_MASK != 0)
        return Part(table=table, is_data=~is_control, segment=self._segment, window=window)

    def _leave_out(self, table: HeaderTable, rows: Flags, reason: str) -> None:
        if rows.any():
            pos = int(table.pos[rows][0])
            path = self._segment.path
            self._trouble.add(
                f"{path}: position {pos}: {counted(int(rows.sum()), 'batch', 'batches')} {reason}"
            )


class DecodedBatches(NamedTuple):
    """Records of some batches. Their `batch_row` is a row of this table.

    `part_rows` are the rows of these batches in the part.
    """

    table: HeaderTable
    part_rows: NDArray[np.int64]
    records: RecordTable


class DecodedRecords(NamedTuple):
    """Records that were decoded one by one, including legacy messages."""

    table: HeaderTable  # of one row
    part_rows: NDArray[np.int64]
    records: list[LogRecord]


def decode_part(
    part: Part, wanted: Flags, trouble: Trouble
) -> Iterator[DecodedBatches | DecodedRecords]:
    """Decode the records of the wanted batches of a part, approximately in log order.

    Batches that do not decode are added to `trouble` and left out.
    """
    table = HeaderTable._make(column[wanted] for column in part.table)
    part_rows = np.flatnonzero(wanted)
    if part.window is None:
        for row in range(table.row_count):
            yield from _decode_one(part.segment, table, part_rows, row, trouble)
        return
    behind = np.cumsum(np.maximum(table.records_count.astype(np.int64), 1))
    start = 0
    while start < table.row_count:
        done = int(behind[start - 1]) if start else 0
        end = int(np.searchsorted(behind, done + MAX_TABLE_RECORDS, "right"))
        rows = rows_of(table, start, max(end, start + 1))
        pieces = None
        if int(behind[start]) - done > MAX_TABLE_RECORDS:  # a single huge batch
            rows = rows_of(table, start, start + 1)
            pieces = decode_in_pieces(rows, part.window.buf, part.window.file_pos)
        if pieces is not None:
            for piece in pieces:
                yield DecodedBatches(rows, part_rows[start:], piece)
            start += 1
            continue
        records = decode_records(rows, part.window.buf, part.window.file_pos)
        yield DecodedBatches(rows, part_rows[start:], records)
        for row in np.flatnonzero(~records.is_whole).tolist():
            yield from _decode_one(part.segment, table, part_rows, start + row, trouble)
        start += records.batch_count


def _decode_one(
    segment: Segment,
    table: HeaderTable,
    part_rows: NDArray[np.int64],
    row: int,
    trouble: Trouble,
) -> Iterator[DecodedRecords]:
    batch = batch_at(table, row)
    try:
        # Decode to the end first. A batch of very many records is decoded twice rather than kept.
        records = decoded_to_end(segment.records(batch), lambda: segment.records(batch))
    except (FormatError, AccessError) as exc:
        trouble.add(str(exc))
        return
    left = iter(records)
    while kept := [*islice(left, MAX_TABLE_RECORDS)]:
        yield DecodedRecords(rows_of(table, row, row + 1), part_rows[row : row + 1], kept)
