"""Read the records of a piece of a segment, past bad bytes, and pass them to a builder.

Ordinary batches are decoded many at a time, without a step per record. Others (legacy messages, odd
or huge batches) are decoded one by one. Control batches give no records. Three kinds of batches are
findings and losses: a wrong checksum, content that does not decode, and an offset that cannot be
right. In the last case the stated offsets belong to other records. A consumer loses the same
records. Neither bad bytes nor a failing disk raise an error.

read_committed yields what a consumer with that isolation level gets: committed records below the
last stable offset (`outcomes.find_stability`). The caller computes that offset once per partition.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from recovery.records.read_options import OUTCOMES, DecodedBatch, ReadCounts, ReadOptions, Rows
from recovery.transactions.events import (
    is_control_of_producer,
    is_data_of_transaction,
    read_marker_kinds,
)
from recovery.transactions.isolation import Isolation
from recovery.transactions.outcomes import ends_by_damage, later_segments, resolve_outcomes
from storage.errors import AccessError, CorruptError, FormatError
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER, UNKNOWN
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import BulkWindow, batch_at, rows_of, table_of
from storage.kernels.protocol import HeaderTable
from storage.kernels.record_table import decode_in_pieces, decode_records
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import decoded_records
from storage.places.list_places import open_place, was_deleted
from storage.places.log_reader import FindingsList, ReadFinding, SegmentReader, gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from recovery.records.read_options import RowBuilder
    from recovery.transactions.outcomes import Outcomes
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord, Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split

    Ints = NDArray[np.int64]
    Kinds = NDArray[np.int8]


# -- the wanted records, by offset and time, in tables and one by one


class WantedRecords:
    """The bounds of wanted offsets and times."""

    def __init__(self, options: ReadOptions) -> None:
        self._from_offset, self._to_offset = options.from_offset, options.to_offset
        self._end_offset = options.to_offset  # independent of the isolation level
        self._from_time_ms, self._to_time_ms = options.from_time_ms, options.to_time_ms
        stable_offset = options.stable_offset
        if options.isolation is Isolation.READ_COMMITTED and stable_offset is not None:
            to_offset = stable_offset if self._to_offset is None else self._to_offset
            self._to_offset = min(to_offset, stable_offset)
        limits = (self._from_offset, self._to_offset, self._from_time_ms, self._to_time_ms)
        self._is_open = limits == (None,) * len(limits)

    def may_hold(self, table: HeaderTable) -> NDArray[np.bool_]:
        """Return which batches (v2) may have offsets within the requested bounds."""
        is_wanted = np.ones(table.row_count, np.bool_)
        if self._from_offset is not None:
            is_wanted &= table.last_offset >= self._from_offset
        if self._end_offset is not None:
            is_wanted &= table.base_offset < self._end_offset
        return is_wanted

    def chosen(self, records: RecordTable) -> NDArray[np.int64] | None:
        """Return the wanted records, None for all."""
        if self._is_open:
            return None
        is_wanted = np.ones(records.row_count, np.bool_)
        for values, low, high in (
            (records.offset, self._from_offset, self._to_offset),
            (records.timestamp_ms, self._from_time_ms, self._to_time_ms),
        ):
            if low is not None:
                is_wanted &= values >= low
            if high is not None:
                is_wanted &= values < high
        return None if is_wanted.all() else np.flatnonzero(is_wanted)

    def holds(self, record: LogRecord) -> bool:
        """Return whether the record is wanted."""
        low, high = self._from_offset, self._to_offset
        from_ms, to_ms = self._from_time_ms, self._to_time_ms
        return (
            (low is None or record.offset >= low)
            and (high is None or record.offset < high)
            and (from_ms is None or record.timestamp_ms >= from_ms)
            and (to_ms is None or record.timestamp_ms < to_ms)
        )


# -- piece reader


RowsT = TypeVar("RowsT", bound=Rows)

MAX_SINGLES_AHEAD = 256  # batches whose headers are read before their records
MAX_RECORDS = 65_536  # of a decoded table, and of an Arrow batch of single records
RECORD_OVERHEAD_BYTES = 100  # of a collected single record


class PieceReader(Generic[RowsT]):
    """The rows that a builder makes of the records. Iterate once.

    Attributes:
        findings: bad stretches by position, complete after the iteration.
    """

    def __init__(
        self,
        split: Split,
        options: ReadOptions,
        builder: RowBuilder[RowsT],
        *,
        opener: Callable[[SegmentPlace], Segment] = open_place,
        listed: Sequence[SegmentPlace] | None = None,
    ) -> None:
        """Prepare.

        Args:
            split: what to read.
            options: the wanted records.
            builder: makes rows of the records.
            opener: for tests, special devices, and the old contents of changed files.
            listed: all segments of the directory. None: list them from the directory.
        """
        self._listed = listed
        self._split = split
        self._options = options
        self._opener = opener
        self._builder = builder
        self._notes = FindingsList.of(split)
        self._is_committed_only = self._options.isolation is Isolation.READ_COMMITTED
        self._bounds = WantedRecords(self._options)
        self._floor_offset = split.place.base_offset  # one above the previous batch
        self._outcomes: Outcomes | None = None
        self._singles: list[DecodedBatch] = []
        self._singles_bytes = 0
        self._singles_count = 0
        self._given: Counter[int] = Counter()
        self._skipped: Counter[str] = Counter()
        self._lost_records = 0
        self._lost_pos = -1  # of the last batch without readable records
        self._first_offset: int | None = None
        self._last_offset: int | None = None

    @property
    def findings(self) -> list[ReadFinding]:
        """The bad stretches so far."""
        return self._notes.found

    @property
    def span(self) -> OffsetSpan:
        """The offsets of the good batches so far, and the gaps between them."""
        return self._notes.ledger.span

    @property
    def counts(self) -> ReadCounts:
        """The counts of yielded and skipped records so far."""
        given, skipped = self._given, self._skipped
        return ReadCounts(
            records=sum(given.values()),
            committed=given[COMMIT],
            aborted=given[ABORT],
            open=given[NO_MARKER],
            unknown=given[UNKNOWN],
            aborted_skipped=skipped["aborted"],
            open_skipped=skipped["open"],
            unknown_skipped=skipped["unknown"],
            unstable_skipped=skipped["unstable"],
            first_offset=self._first_offset,
            last_offset=self._last_offset,
            lost_records=self._lost_records,
        )

    def __iter__(self) -> Iterator[RowsT]:
        split, notes = self._split, self._notes
        try:
            self._segment = self._opener(split.place)
        except AccessError as exc:
            if was_deleted(split.place.directory, split.place.path, exc):
                notes.found.append(gone(split.place.path))
            else:
                notes.add_unreadable(exc, split.start_pos, split.end_pos)
        else:
            self._segment.max_batch_bytes = self._options.max_batch_bytes
            with self._segment:
                yield from self._read()
        notes.finish()

    def _read(self) -> Iterator[RowsT]:
        reader = SegmentReader.of_split(
            self._split, self._segment, self._notes, most=MAX_SINGLES_AHEAD
        )
        for block in reader.blocks():
            if block.window is not None:
                yield from self._flush()
                yield from self._read_window(block.window)
                self._floor_offset = int(block.table.last_offset[-1]) + 1
            for single in block.singles:
                yield from self._read_single(single)
                if single.crc_ok is not False and single.pos != self._lost_pos:
                    self._floor_offset = single.header.last_offset + 1
        yield from self._flush()
        self._check_size(reader.scan.end_pos)

    @property
    def _end_pos(self) -> int | None:
        return None if self._split.is_last else self._split.end_pos

    def _check_size(self, end_pos: int) -> None:
        """Note missing bytes if the file is shorter than when it was listed."""
        if end_pos < self._split.end_pos:
            words = "the file has become shorter since it was listed"
            error = AccessError(OSError(0, words), self._split.place.path)
            start_pos = max(end_pos, self._split.start_pos)
            self._notes.add_unreadable(error, start_pos, self._split.end_pos)

    # --- many batches at a time ---

    def _read_window(self, window: BulkWindow) -> Iterator[RowsT]:
        table = window.table
        is_control = (table.attributes & CONTROL_MASK) != 0
        if is_control.any():
            self._check_markers(table, window)
        rows = np.flatnonzero(
            ~is_control & (table.records_count > 0) & self._bounds.may_hold(table)
        )
        rows, outcome = self._wanted(table, rows)
        wanted = HeaderTable._make(column[rows] for column in table)
        done = 0
        ends = np.cumsum(wanted.records_count, dtype=np.int64)
        while done < len(rows):
            before = int(ends[done - 1]) if done else 0
            end = max(int(np.searchsorted(ends, before + MAX_RECORDS, "right")), done + 1)
            if int(ends[end - 1]) - before > MAX_RECORDS:  # a single huge batch
                huge = rows_of(wanted, done, end)
                yield from self._give_huge(huge, outcome[done:end], window)
                done = end
                continue
            part = rows_of(wanted, done, end)
            records = decode_records(
                part, window.buf, window.file_pos, max_batch_bytes=self._options.max_batch_bytes
            )
            count = records.batch_count
            part, kinds = rows_of(part, 0, count), outcome[done : done + count]
            yield from self._give_decoded(part, kinds, records)
            done += count

    def _give_huge(self, table: HeaderTable, outcome: Kinds, window: BulkWindow) -> Iterator[RowsT]:
        """Yield the rows of a huge batch in pieces."""
        yield from self._flush()
        pieces = decode_in_pieces(
            table, window.buf, window.file_pos, max_batch_bytes=self._options.max_batch_bytes
        )
        if pieces is None:
            yield from self._decode_single(batch_at(table, 0), int(outcome[0]))
            yield from self._flush()
            return
        for piece in pieces:
            yield from self._give(table, outcome, piece)

    def _wanted(self, table: HeaderTable, rows: Ints) -> tuple[Ints, Kinds]:
        """Leave out batches by the isolation level. Return the outcome of the others."""
        outcome = np.full(len(rows), COMMIT, np.int8)
        part = HeaderTable._make(column[rows] for column in table)
        is_data = is_data_of_transaction(part)
        if is_data.any():
            if self._outcomes is None:
                start_pos = int(part.pos[is_data.argmax()])
                self._outcomes = resolve_outcomes(
                    self._segment,
                    start_pos,
                    self._end_pos,
                    lambda: later_segments(self._split.place, self._opener, self._listed),
                    ends_by_damage(self._split.place, self._opener, self._listed),
                )
            outcome[is_data] = self._outcomes.of(part.producer_id[is_data], part.pos[is_data])
        if not self._is_committed_only:
            return rows, outcome
        is_stable = np.ones(len(rows), np.bool_)
        if self._options.stable_offset is not None:
            is_stable = part.base_offset < self._options.stable_offset
        is_wanted = is_stable & (outcome == COMMIT)
        if not is_wanted.all():
            counts = np.maximum(part.records_count, 1).astype(np.int64)
            self._skipped["aborted"] += int(counts[outcome == ABORT].sum())
            self._skipped["open"] += int(counts[outcome == NO_MARKER].sum())
            self._skipped["unknown"] += int(counts[outcome == UNKNOWN].sum())
            self._skipped["unstable"] += int(counts[(outcome == COMMIT) & ~is_stable].sum())
        return rows[is_wanted], outcome[is_wanted]

    def _give_decoded(
        self, table: HeaderTable, outcome: Kinds, records: RecordTable
    ) -> Iterator[RowsT]:
        """Yield the rows of decoded batches, and in between decode the others one by one."""
        start = 0
        for row in (*np.flatnonzero(~records.is_whole).tolist(), table.row_count):
            if row > start:
                yield from self._flush()
                part = records
                if (start, row) != (0, table.row_count):
                    part = records.part(start, row)
                yield from self._give(rows_of(table, start, row), outcome[start:row], part)
            if row < table.row_count:
                yield from self._decode_single(batch_at(table, row), int(outcome[row]))
            start = row + 1

    def _give(self, table: HeaderTable, outcome: Kinds, records: RecordTable) -> Iterator[RowsT]:
        chosen = self._bounds.chosen(records)
        for rows in self._pieces(records, chosen):
            batch = self._builder.from_table(table, outcome, records, rows)
            if not batch.num_rows:
                continue
            given = slice(None) if rows is None else rows
            counts = np.bincount(outcome[records.batch_row[given]], minlength=len(OUTCOMES))
            self._given.update({kind: int(counts[kind]) for kind in OUTCOMES})
            offsets = records.offset[given]
            self._saw(int(offsets[0]), int(offsets[-1]))
            yield batch

    def _pieces(self, records: RecordTable, chosen: Ints | None) -> Iterator[Ints | None]:
        """Split records so that no Arrow batch becomes too large."""
        limit = self._options.batch_bytes
        if not self._builder.has_content or len(records.source) <= limit:
            yield chosen
            return
        sizes = np.maximum(records.key_bytes, 0) + np.maximum(records.value_bytes, 0)
        inside = records.header_key_bytes + np.maximum(records.header_value_bytes, 0)
        sizes += np.bincount(records.header_record, inside, records.row_count).astype(np.int64)
        rows = np.arange(records.row_count) if chosen is None else chosen
        ends = np.cumsum(sizes[rows])
        start = 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + limit, "right")), start + 1)
            yield rows[start:end]
            start = end

    def _check_markers(self, table: HeaderTable, window: BulkWindow | None) -> None:
        """Note markers that do not decode, wherever their transactions are."""
        controls = np.flatnonzero(is_control_of_producer(table))
        if len(controls):
            part = HeaderTable._make(column[controls] for column in table)
            read_marker_kinds(
                self._segment,
                part,
                window,
                lambda batch, error: self._notes.add_error(batch, error, is_lost=False),
            )

    # --- one at a time ---

    def _read_single(self, batch: ScannedBatch) -> Iterator[RowsT]:
        """Read a damaged batch, or a batch of an old format."""
        header = batch.header
        if batch.crc_ok is False:
            return
        if self._notes.is_lost(batch.pos):
            self._lose(batch)
            return
        if header.is_control:
            self._check_markers(table_of([batch]), None)
            return
        table = table_of([batch])
        is_empty = header.magic >= MAGIC_V2 and header.records_count == 0
        may_hold = header.magic < MAGIC_V2 or bool(self._bounds.may_hold(table)[0])
        if is_empty or not may_hold:
            return
        rows, outcome = self._wanted(table, np.zeros(1, np.int64))
        if len(rows):
            yield from self._decode_single(batch, int(outcome[0]))

    def _decode_single(self, batch: ScannedBatch, outcome: int) -> Iterator[RowsT]:
        """Decode a batch to its end, then collect its records."""
        header = batch.header
        if header.base_offset < 0 or header.last_offset > MAX_OFFSET:
            words = f"offsets {header.base_offset} to {header.last_offset} cannot be"
            error = CorruptError(words, check_id="SEG-3", pos=batch.pos)
            self._notes.add_error(batch, error, floor_offset=self._floor_offset)
            self._lose(batch)
            return
        try:
            records = decoded_records(batch, self._segment, self._floor_offset)
        except (FormatError, AccessError) as exc:
            self._notes.add_error(batch, exc.without_frames(), floor_offset=self._floor_offset)
            self._lose(batch)
            return
        # The header of a wrapper has the offset of the last record in it.
        first = header.base_offset if header.magic >= MAGIC_V2 else None
        kept: list[LogRecord] = []
        try:
            for record in records:
                if first is None:
                    first = record.offset
                if not self._bounds.holds(record):
                    continue
                kept.append(record)
                self._singles_bytes += _content_bytes(record) + RECORD_OVERHEAD_BYTES
                self._singles_count += 1
                if self._is_full():
                    self._singles.append(
                        DecodedBatch(
                            header=header, outcome=outcome, records=kept, base_offset=first or 0
                        )
                    )
                    kept = []
                    yield from self._flush()
        except (FormatError, AccessError) as exc:  # the file has changed meanwhile
            self._notes.add_error(batch, exc.without_frames(), floor_offset=self._floor_offset)
        if kept:
            self._singles.append(
                DecodedBatch(header=header, outcome=outcome, records=kept, base_offset=first or 0)
            )

    def _lose(self, batch: ScannedBatch) -> None:
        """Count the records of a whole batch that gives no records."""
        self._lost_pos = batch.pos
        header = batch.header
        if header.is_control:
            return
        if header.magic >= MAGIC_V2:
            self._lost_records += header.records_count
            return
        with suppress(FormatError, AccessError):  # otherwise their number is unknown
            self._lost_records += sum(1 for _ in self._segment.records(batch))

    def _is_full(self) -> bool:
        is_large = self._singles_bytes >= self._options.batch_bytes
        return is_large or self._singles_count >= MAX_RECORDS

    def _flush(self) -> Iterator[RowsT]:
        """Yield the rows of the collected single records."""
        batches, self._singles = self._singles, []
        self._singles_bytes = self._singles_count = 0
        if batches:
            for each in batches:
                self._given[each.outcome] += len(each.records)
                self._saw(each.records[0].offset, each.records[-1].offset)
            yield self._builder.from_batches(batches)

    def _saw(self, first_offset: int, last_offset: int) -> None:
        if self._first_offset is None:
            self._first_offset = first_offset
        self._last_offset = last_offset


def _content_bytes(record: LogRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(each.key) + len(each.value or b"") for each in record.headers)


# -- count the records of a piece of a segment, as a reader would get them.
#
# They are decoded, because a batch whose content does not decode gives no records. No rows are
# built.


class PieceCounts(NamedTuple):
    """The counts of a piece.

    Attributes:
        batches: good batches with offsets within the bounds, including control batches.
        control_batches: of these.
        batch_bytes: the bytes of the good batches.
        records: the records that a reader gets.
        findings: bad stretches, or batches with bad content. They are in no other count.
    """

    batches: int = 0
    control_batches: int = 0
    batch_bytes: int = 0
    records: ReadCounts = ReadCounts()
    findings: int = 0


class _Number(NamedTuple):
    num_rows: int


class _Numbers:
    """A builder that counts records."""

    has_content = False

    def from_table(
        self,
        table: HeaderTable,
        outcome: NDArray[np.int8],
        records: RecordTable,
        chosen: NDArray[np.int64] | None,
    ) -> _Number:
        del table, outcome
        return _Number(records.row_count if chosen is None else len(chosen))

    def from_batches(self, batches: Sequence[DecodedBatch]) -> _Number:
        return _Number(sum(len(each.records) for each in batches))


class _Counter(PieceReader[_Number]):
    """A counter of batches and records."""

    def __init__(
        self, split: Split, options: ReadOptions, opener: Callable[[SegmentPlace], Segment]
    ) -> None:
        super().__init__(split, options, _Numbers(), opener=opener)
        self.batches = self.control_batches = self.batch_bytes = 0

    def _read_window(self, window: BulkWindow) -> Iterator[_Number]:
        self._count(window.table)
        yield from super()._read_window(window)

    def _read_single(self, batch: ScannedBatch) -> Iterator[_Number]:
        if batch.crc_ok is not False:
            self._count(table_of([batch]))
        yield from super()._read_single(batch)

    def _count(self, table: HeaderTable) -> None:
        is_within = self._bounds.may_hold(table)
        self.batches += int(is_within.sum())
        self.control_batches += int((is_within & ((table.attributes & CONTROL_MASK) != 0)).sum())
        self.batch_bytes += int(table.batch_bytes[is_within].sum())


def count_piece(
    split: Split,
    options: ReadOptions,
    opener: Callable[[SegmentPlace], Segment] = open_place,
) -> PieceCounts:
    """Count a piece. A file that cannot be opened is a finding."""
    counter = _Counter(split, options, opener)
    for _ in counter:
        pass
    return PieceCounts(
        batches=counter.batches,
        control_batches=counter.control_batches,
        batch_bytes=counter.batch_bytes,
        records=counter.counts,
        findings=len(counter.findings),
    )
