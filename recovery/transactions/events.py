"""The events of transactions in a log: their data batches and end markers, in log order.

Whoever asks what became of transactions goes over them here. Markers count if their batch has a
right checksum and its record decodes; the key alone says what a marker is, as for a consumer
(`storage.log.markers`). Everything here walks headers; of all records only those of control
batches are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from storage.dirs.lookup import DoubtfulOffsets
from storage.errors import AccessError, FormatError
from storage.formats.control_record import ABORT, COMMIT, KEY_BYTES, NO_MARKER
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.numpy_kernel import BulkScan, batch_at, rows_of, tables_and_windows
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.kernels.record_table import decode_records
from storage.log.markers import marker_is_commit
from storage.log.segment import open_segment
from storage.producers.pairs import TransactionPairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.log.segment import Segment
    from storage.producers.pairs import EndedBlock

    Kinds = NDArray[np.int8]
    Flags = NDArray[np.bool_]
    OnError = Callable[[ScannedBatch, FormatError | AccessError], None]

Named = TypeVar("Named")


class EventBlock(NamedTuple):
    """Transactional data batches and end markers in log order.

    `marker` is COMMIT or ABORT, NO_MARKER for a data batch.
    """

    table: HeaderTable
    marker: Kinds

    def from_offset(self, offset: int) -> EventBlock:
        """Return the rows that do not end below an offset."""
        is_kept = self.table.last_offset >= offset
        if is_kept.all():
            return self
        return EventBlock(
            HeaderTable._make(column[is_kept] for column in self.table), self.marker[is_kept]
        )


def is_data_of_transaction(table: HeaderTable) -> Flags:
    """Tell which rows are transactional data batches with a producer and a right checksum."""
    kind = table.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)
    is_data: Flags = (kind == TRANSACTIONAL_MASK) & (table.magic >= MAGIC_V2)
    is_data &= (table.producer_id >= 0) & table.crc_ok
    return is_data


def is_control_of_producer(table: HeaderTable) -> Flags:
    """Tell which rows may hold an end marker; an empty control batch has no effect (PROD-9)."""
    is_control: Flags = (table.attributes & CONTROL_MASK) != 0
    is_control &= (table.magic >= MAGIC_V2) & (table.producer_id >= 0)
    is_control &= (table.records_count > 0) & table.crc_ok
    return is_control


def _no_matter(batch: ScannedBatch, error: FormatError | AccessError) -> None:
    """Take no notice: who reads the records of that stretch tells of it."""


def read_marker_kinds(
    segment: Segment,
    table: HeaderTable,
    window: BulkWindow | None = None,
    on_error: OnError = _no_matter,
) -> Kinds:
    """Say what the control batches of a table are: COMMIT, ABORT, or NO_MARKER for anything else.

    Args:
        segment: where they are.
        table: control batches only.
        window: holds them all, if they are healthy.
        on_error: told of those that do not decode.
    """
    kinds = np.zeros(table.row_count, np.int8)
    is_known = np.zeros(table.row_count, np.bool_)
    done = 0
    while window is not None and done < table.row_count:
        part = rows_of(table, done, table.row_count)
        records = decode_records(*window.controls(part))
        count = records.batch_count
        # Ordinary ones: a single record with a key of a known type.
        batch = np.flatnonzero(records.is_whole & (part.records_count[:count] == 1))
        at = np.searchsorted(records.batch_row, batch)
        has_key = records.key_bytes[at] >= KEY_BYTES
        batch, key = batch[has_key], records.key_pos[at[has_key]]
        version_is_right = records.source[key] < 0x80  # not negative
        high, low = records.source[key + 2], records.source[key + 3]
        is_marker = version_is_right & (high == 0) & (low <= 1)
        rows = done + batch[is_marker]
        kinds[rows] = np.where(low[is_marker] == 1, COMMIT, ABORT)
        is_known[rows] = True
        done += count
    for row in np.flatnonzero(~is_known).tolist():
        each = batch_at(table, row)
        try:
            is_commit = marker_is_commit(segment, each)
        except (FormatError, AccessError) as exc:
            on_error(each, exc.without_frames())
            continue
        if is_commit is not None:
            kinds[row] = COMMIT if is_commit else ABORT
    return kinds


class EventWalk:
    """Iterable of EventBlock over a stretch of a segment; never raises for bad bytes.

    Attributes:
        end_offset: one above the last good batch that was passed; -1 if there was none.
    """

    def __init__(self, segment: Segment, *, start_pos: int = 0, end_pos: int | None = None) -> None:
        self.end_offset = -1
        self._segment = segment
        self._scan = BulkScan(segment, with_bodies=False, start_pos=start_pos, end_pos=end_pos)
        self._doubtful = DoubtfulOffsets(self._scan)

    def __iter__(self) -> Iterator[EventBlock]:
        for table, window in tables_and_windows(self._scan):
            yield self._block(table, window)

    @property
    def valid_bytes(self) -> int:
        """End of the last whole batch before any break of the chain: where to walk on later."""
        return self._scan.valid_bytes

    def _block(self, table: HeaderTable, window: BulkWindow | None) -> EventBlock:
        is_placed = table.crc_ok
        if window is None and self._doubtful.positions:
            is_placed = is_placed & ~np.isin(table.pos, list(self._doubtful.positions))
            table = self._doubtful.put_right(table, self.end_offset)
        if is_placed.any():
            self.end_offset = int(table.last_offset[is_placed][-1]) + 1
        is_control = is_control_of_producer(table)
        rows = np.flatnonzero(is_control | is_data_of_transaction(table))
        found = HeaderTable._make(column[rows] for column in table)
        marker = np.zeros(len(rows), np.int8)
        controls = np.flatnonzero(is_control[rows])
        if len(controls):
            control_table = HeaderTable._make(column[controls] for column in found)
            marker[controls] = read_marker_kinds(self._segment, control_table, window)
            is_event = ~is_control[rows] | (marker != NO_MARKER)
            if not is_event.all():
                found = HeaderTable._make(column[is_event] for column in found)
                marker = marker[is_event]
        return EventBlock(found, marker)


class LogEvents:
    """Iterable of EventBlock over the segments of a log, those from the log start on.

    Attributes:
        end_offset: one above the last good batch that was passed; -1 if there was none.
        problems: of segments that could not be opened.
    """

    def __init__(
        self,
        segments: Iterable[Named],
        opener: Callable[[Named], Segment],
        *,
        log_start_offset: int = 0,
    ) -> None:
        """`opener` opens what names a segment; all are given in order."""
        self.end_offset = -1
        self.problems: list[AccessError] = []
        self._blocks = self._read(segments, opener, log_start_offset)

    def __iter__(self) -> Iterator[EventBlock]:
        return self._blocks

    def _read(
        self, segments: Iterable[Named], opener: Callable[[Named], Segment], log_start_offset: int
    ) -> Iterator[EventBlock]:
        for each in segments:
            try:
                segment = opener(each)
            except AccessError as exc:
                self.problems.append(exc.without_frames())
                continue
            with segment:
                walk = EventWalk(segment)
                for block in walk:
                    kept = block.from_offset(log_start_offset)
                    if kept.table.row_count:
                        yield kept
                self.end_offset = max(self.end_offset, walk.end_offset)


def read_ended(
    partition: Partition, on_bytes: Callable[[int], None] | None = None
) -> Iterator[EndedBlock]:
    """Give the end markers of a whole partition, from its log start on.

    A segment that cannot be opened becomes a problem of the partition; `on_bytes` is told the size
    of each that is done.
    """

    def one_by_one() -> Iterator[SegmentFiles]:
        for files in partition.segments:
            yield files
            if on_bytes is not None:
                on_bytes(files.log.file_bytes)

    pairs = TransactionPairs()
    events = LogEvents(
        one_by_one(),
        lambda files: open_segment(files.log.path),
        log_start_offset=partition.local_log_start_offset or 0,
    )
    for table, marker in events:
        ended = pairs.take(table, marker)
        if len(ended.producer_id):
            yield ended
    partition.problems += events.problems
