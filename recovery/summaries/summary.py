"""The mergeable summary of a contiguous piece of a partition's log, with its fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.summaries.producer_summary import (
    ProducerEvents,
    ProducersFound,
    join_producers,
    no_producers,
    pending,
    summarize_producers,
)
from recovery.summaries.sequence_ranges import LAP, SequencedBatches
from recovery.summaries.settled_epochs import Sequences, SequenceTracker, join_sequences
from recovery.timeline.spans import ended_rows, join_ended, no_ended_rows
from storage.formats.control_record import NO_MARKER
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.protocol import MAX_BLOCK_ROWS, HeaderTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from recovery.summaries.sequence_ranges import SequenceRanges

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]


# -- a fingerprint of a piece of log, by ranges of offsets, to compare replicas of one partition.
#
# A replica is a copy batch for batch: offsets, leader epochs and checksums are equal. Each batch is
# hashed. The hashes of all batches whose base offset is in one bucket of 2^width_bits offsets are
# added. A sum does not depend on the pieces that were read. There are at most MAX_BUCKETS buckets,
# so that two different replicas can be compared closely where they differ.


MAX_BUCKETS = 256


class Fingerprint(NamedTuple):
    """Sums of hashes by bucket. `bucket` ascends, without empty buckets."""

    width_bits: int
    bucket: Ints
    hashes: Words
    batches: Ints


def no_fingerprint() -> Fingerprint:
    """Return the fingerprint of an empty piece."""
    return Fingerprint(
        width_bits=0,
        bucket=np.empty(0, np.int64),
        hashes=np.empty(0, np.uint64),
        batches=np.empty(0, np.int64),
    )


def fingerprint(table: HeaderTable, width_bits: int = 0) -> Fingerprint:
    """Return the fingerprint of batches, in buckets of at least 2^width_bits offsets."""
    if not table.row_count:
        return no_fingerprint()
    counts = np.ones(table.row_count, np.int64)
    return _summed(width_bits, table.base_offset >> width_bits, hash_batches(table), counts)


def hash_batches(table: HeaderTable) -> Words:
    """Hash the common data of replicas: offsets, leader epoch, size, and bytes under the CRC."""
    mixed = _mix(_u64(table.base_offset))
    mixed = _mix(mixed ^ (table.crc.astype(np.uint64) << np.uint64(32)) ^ _u64(table.batch_bytes))
    last, epoch = _u64(table.last_offset), _u64(table.partition_leader_epoch)
    return _mix(mixed ^ (last << np.uint64(20)) ^ epoch)


def _u64(values: NDArray[np.int64] | NDArray[np.int32]) -> Words:
    return values.astype(np.int64).view(np.uint64)


def _mix(values: Words) -> Words:
    """Spread bits: the finalizer of splitmix64 (public domain, S. Vigna)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _summed(width_bits: int, bucket: Ints, hashes: Words, counts: Ints) -> Fingerprint:
    """Sum up each bucket, and widen the buckets until they are few enough."""
    if (np.diff(bucket) < 0).any():
        order = np.argsort(bucket, kind="stable")
        bucket, hashes, counts = bucket[order], hashes[order], counts[order]
    while True:
        starts = np.flatnonzero(np.diff(bucket, prepend=bucket[:1] - 1))
        if len(starts) <= MAX_BUCKETS:
            break
        # Widen by the certain minimum at once: a step at most halves the number of buckets.
        step = ((len(starts) - 1) // MAX_BUCKETS).bit_length()
        bucket, width_bits = bucket >> step, width_bits + step
    return Fingerprint(
        width_bits=width_bits,
        bucket=bucket[starts],
        hashes=np.add.reduceat(hashes, starts),
        batches=np.add.reduceat(counts, starts),
    )


def join_fingerprints(left: Fingerprint, right: Fingerprint) -> Fingerprint:
    """Join the fingerprints of two pieces."""
    if not len(left.bucket) or not len(right.bucket):
        return left if len(left.bucket) else right
    width_bits = max(left.width_bits, right.width_bits)
    return _summed(
        width_bits,
        np.concatenate([each.bucket >> (width_bits - each.width_bits) for each in (left, right)]),
        np.concatenate((left.hashes, right.hashes)),
        np.concatenate((left.batches, right.batches)),
    )


def widened(each: Fingerprint, width_bits: int) -> Fingerprint:
    """Return the same fingerprint in wider buckets."""
    if not len(each.bucket):
        return each._replace(width_bits=width_bits)
    step = width_bits - each.width_bits
    return _summed(width_bits, each.bucket >> step, each.hashes, each.batches)


# -- the mergeable summary of a contiguous piece of a partition's log


if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.summaries.producer_summary import Regressions

    Violations = NDArray[Any]
else:
    Violations = np.ndarray

MAX_VIOLATIONS_COUNT = 1000
EPOCH_FELL, LATE_DATA, DUPLICATE = 0, 1, 2
# Names of violations, and the rule: data after a marker is a decreasing epoch as well.
NAMES = ("epoch-regression", "data-after-marker", "duplicate")
CHECK_IDS = ("PRD-3", "PRD-3", "PRD-2")

# Expected and found: of an epoch, or of a duplicate its epoch and base sequence.
VIOLATION_DTYPE = np.dtype(
    [
        ("offset", "<i8"),
        ("kind", "i1"),
        ("producer_id", "<i8"),
        ("expected", "<i4"),
        ("found", "<i4"),
        ("last_offset", "<i8"),
    ]
)


def no_violations() -> Violations:
    """Return no violations."""
    return np.empty(0, VIOLATION_DTYPE)


def regression_violations(found: Regressions) -> Violations:
    """Return the violations of decreasing epochs."""
    rows = np.zeros(len(found.offset), VIOLATION_DTYPE)
    rows["offset"] = rows["last_offset"] = found.offset
    rows["kind"] = np.where(found.is_late, LATE_DATA, EPOCH_FELL)
    rows["producer_id"] = found.producer_id
    rows["expected"], rows["found"] = found.expected, found.found
    return rows


def duplicate_violations(table: HeaderTable, repeated: NDArray[np.int64]) -> Violations:
    """Return the violations of batches whose sequences an earlier batch has."""
    rows = np.zeros(len(repeated), VIOLATION_DTYPE)
    rows["offset"] = table.base_offset[repeated]
    rows["last_offset"] = table.last_offset[repeated]
    rows["kind"] = DUPLICATE
    rows["producer_id"] = table.producer_id[repeated]
    rows["expected"] = table.producer_epoch[repeated]
    rows["found"] = table.base_sequence[repeated]
    return rows


def join_violations(*parts: Violations) -> Violations:
    """Merge the violations of several pieces in order, and keep the first."""
    parts = tuple(part for part in parts if len(part))
    if not parts:
        return no_violations()
    rows = np.concatenate(parts)
    return np.sort(rows, order=VIOLATION_DTYPE.names)[:MAX_VIOLATIONS_COUNT]


# -- sequences that are missing in a piece of log, by producer id and epoch (PRD-1)
#
# A gap is between sequences of one producer and epoch. It can also be before the first sequence,
# which should be 0 if the log has an earlier epoch of that producer. Compaction of whole batches
# leaves gaps as well. A forgotten producer (expired, or with removed batches) may continue with any
# sequence.


class Gaps(NamedTuple):
    """Gaps as columns, by producer id, epoch and place.

    Attributes:
        first_sequence, missing_count: of the missing sequences.
        next_offset: base offset of the batch after the gap. -1 if it has sequence 0.
        before_offset: of a batch of the producer before the gap. -1 if there is none.
    """

    producer_id: Ints
    producer_epoch: Ints
    first_sequence: Ints
    missing_count: Ints
    next_offset: Ints
    before_offset: Ints


def find_gaps(
    ranges: SequenceRanges, producers: NDArray[Any], *, is_from_start: bool = False
) -> Gaps:
    """Return the gaps of a piece, by its sequence ranges and its rows of producers.

    Settled epochs have none. If the piece `is_from_start` of a log without earlier appends, the
    first sequence of each producer should be 0.
    """
    if not len(ranges.group):
        return Gaps._make(np.empty(0, np.int64) for _ in Gaps._fields)
    is_first = np.ones(len(ranges.group), np.bool_)
    is_first[1:] = np.diff(ranges.group) != 0
    place = np.searchsorted(producers["producer_id"], ranges.producer_id)
    is_later = producers["first_data_epoch"][place] != ranges.producer_epoch
    gap_start = np.roll(ranges.end, 1)
    # Before the first batch of the first epoch nothing is missing: earlier batches are unknown.
    gap_start[is_first] = np.where(
        is_later[ranges.group[is_first]] | is_from_start,
        np.minimum(ranges.start[is_first], 0),
        ranges.start[is_first],
    )
    missing_count = ranges.start - gap_start
    rows = np.flatnonzero(missing_count > 0)
    group = ranges.group[rows]
    return Gaps(
        producer_id=ranges.producer_id[group],
        producer_epoch=ranges.producer_epoch[group].astype(np.int64),
        first_sequence=gap_start[rows] % LAP,
        missing_count=missing_count[rows],
        next_offset=ranges.base_offset[rows],
        before_offset=np.where(is_first, -1, np.roll(ranges.base_offset, 1))[rows],
    )


# -- the mergeable summary of a contiguous piece of a partition's log.
#
# Counts over all batches with a right checksum:
#   `batches`               v2 batches and outer messages of v0 and v1.
#   `records`               from the headers of v2, counted inside of v0 and v1 wrappers.
#   `bytes`                 of the batches, headers included.
#   `control_batches`       markers, and KRaft's own control batches.
#   `transactional_batches` data batches of transactions (a marker is a control batch).
# Of the rest: corrupt_batches, batches of plausible length without records (LostRecords).
#
# By producer id. See `producer_summary`: transactions, decreasing epochs (PRD-3), data after a
# marker, markers without data (TXO-2).
#
# By producer id and epoch. See `sequence_ranges`, `settled_epochs`: missing sequences (PRD-1), and
# batches whose sequence an earlier batch has at another offset (PRD-2, duplicate_batches). None in
# the topics that coordinators write (PROD-12).
#
# By ranges of offsets. See `fingerprint`.
#
# Everything in the files counts, also below the log start offset and above the high watermark.
#
# A summary assumes that nothing is before its piece. `merge` resolves the seam. The merged summary
# of any pieces equals the summary of the whole, byte for byte, in any order of merging. Its size
# grows with producers, open transactions, violations and gaps in sequences. It does not grow with
# batches, or (except for at most 8 bytes) with ended transactions. Two facts need the batches:
# which of the right piece repeat sequences of the left, and which are at offsets that the left has
# passed. In these cases, after damage or duplicates, the right piece is read again.


NO_OFFSET = -1


class SummaryRows(NamedTuple):
    """Batches of a piece in log order, with facts that are not in their headers.

    Attributes:
        table: the headers.
        marker: NO_MARKER, COMMIT or ABORT, from the record of a control batch.
        records_count: of legacy messages as well.
        is_misplaced: the offset cannot be right, so duplicates are unknown.
        is_lost: the checksum is right, but the records are unreadable (LostRecords).
    """

    table: HeaderTable
    marker: NDArray[np.int8]
    records_count: NDArray[np.int64]
    is_misplaced: NDArray[np.bool_]
    is_lost: NDArray[np.bool_]


class Counts(NamedTuple):
    """Sums over a piece that need no neighbour."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    corrupt_batches: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts._make(map(sum, zip(self, other, strict=True)))


class Extent(NamedTuple):
    """The offsets of the batches of a piece. -1 is unknown.

    `first_offset` is the base offset of the first batch. `top_offset` is the highest last offset of
    all batches whose offset can be right.
    """

    first_offset: int = NO_OFFSET
    top_offset: int = NO_OFFSET

    def then(self, other: Extent) -> Extent:
        """Return the extent of both pieces. `other` follows this piece."""
        if other.first_offset < 0 or self.first_offset < 0:
            return self if other.first_offset < 0 else other
        return Extent(self.first_offset, max(self.top_offset, other.top_offset))


class Summary(NamedTuple):
    """A contiguous piece of a partition's log.

    `duplicate_batches` is None if the right piece had to be read again and could not be read.
    `producers` are rows of PRODUCER_DTYPE, `ended` of ENDED_DTYPE.
    """

    counts: Counts = Counts()
    extent: Extent = Extent()
    duplicate_batches: int | None = 0
    producers: NDArray[Any] = no_producers()
    sequences: Sequences = Sequences()
    ended: NDArray[Any] = no_ended_rows()
    violations: Violations = no_violations()
    fingerprint: Fingerprint = no_fingerprint()

    def gaps(self, *, is_from_start: bool = False) -> Gaps:
        """Return the missing sequences (PRD-1). For `is_from_start` see `find_gaps`."""
        return find_gaps(self.sequences.ranges, self.producers, is_from_start=is_from_start)

    def figures(self) -> dict[str, int | None]:
        """Return the figures of a partition by the names above."""
        rows, gaps = self.producers, self.gaps()
        return {
            **self.counts._asdict(),
            "aborted_batches": int(rows["aborted_batches"].sum()),
            "duplicate_batches": self.duplicate_batches,
            "open_transactions": int((pending(rows)["batches"] > 0).sum()),
            "committed_transactions": int(rows["committed_transactions"].sum()),
            "aborted_transactions": int(rows["aborted_transactions"].sum()),
            "empty_markers": int(rows["empty_markers"].sum()),
            "epoch_regressions": int(rows["epoch_regressions"].sum()),
            "late_batches": int(rows["late_batches"].sum()),
            "gaps": len(gaps.missing_count),
            "missing_sequences": int(gaps.missing_count.sum()),
        }


class Before(NamedTuple):
    """The facts about all earlier pieces that a piece needs to find its duplicates."""

    sequences: Sequences
    top_offset: int


class Piece(NamedTuple):
    """A summary, and a function that reads its piece again, or returns None if it cannot.

    The new summary includes the sequences of all earlier pieces.
    """

    summary: Summary
    reread: Callable[[Before], Summary | None]


def merge(left: Piece, right: Piece) -> Piece:
    """Join two neighbouring pieces."""

    def reread(before: Before) -> Summary | None:
        again = left.reread(before)
        if again is None:
            return None
        top_offset = max(before.top_offset, again.extent.top_offset)
        return _merge(again, right, top_offset)

    return Piece(_merge(left.summary, right, left.summary.extent.top_offset), reread)


def merge_again(pieces: Iterable[Piece], before: Before) -> Summary | None:
    """Read neighbouring pieces again, after all earlier pieces, and join them.

    None if the first piece cannot be read again. The first summary is not used.
    """
    whole: Summary | None = None
    for piece in pieces:
        if whole is None:
            whole = piece.reread(before)
            if whole is None:
                return None
        else:
            whole = _merge(whole, piece, max(before.top_offset, whole.extent.top_offset))
    return whole


def merge_all(pieces: Iterable[Piece]) -> Summary:
    """Join the pieces of one partition, given in log order."""
    whole = Summary()
    for piece in pieces:
        whole = _merge(whole, piece, whole.extent.top_offset)
    return whole


def _merge(left: Summary, piece: Piece, top_offset: int) -> Summary:
    right = piece.summary
    sequences, is_repeating = join_sequences(left.sequences, right.sequences)
    is_misplaced = 0 <= right.extent.first_offset <= top_offset
    duplicate_batches = right.duplicate_batches
    if (is_repeating or is_misplaced) and right.counts.batches:
        again = piece.reread(Before(left.sequences, top_offset))
        duplicate_batches = None
        if again is not None:
            right, duplicate_batches = again, again.duplicate_batches
            sequences = again.sequences
    found = join_producers(left.producers, right.producers)
    if left.duplicate_batches is None or duplicate_batches is None:
        duplicate_batches = None
    else:
        duplicate_batches += left.duplicate_batches
    return Summary(
        counts=left.counts.plus(right.counts),
        extent=left.extent.then(right.extent),
        duplicate_batches=duplicate_batches,
        producers=found.rows,
        sequences=sequences,
        ended=join_ended(left.ended, right.ended, ended_rows(found.ended)),
        violations=join_violations(
            left.violations, right.violations, regression_violations(found.regressions)
        ),
        fingerprint=join_fingerprints(left.fingerprint, right.fingerprint),
    )


class Summarizer:
    """A builder of the summary of one piece, from blocks of any size.

    Args:
        has_sequences: sequence rules hold in this topic.
        before: the earlier pieces, if the piece is read again. Batches at passed offsets must be
            given as misplaced.
    """

    def __init__(self, *, has_sequences: bool = True, before: Before | None = None) -> None:
        self._has_sequences = has_sequences
        self._tracker = SequenceTracker(None if before is None else before.sequences)
        self._whole = Summary()
        self._waiting: list[SummaryRows] = []
        self._waiting_rows_count = 0

    def add(self, rows: SummaryRows) -> None:
        """Take the next batches. Joins small blocks first: each join costs time per producer."""
        self._waiting.append(rows)
        self._waiting_rows_count += rows.table.row_count
        # At least as many rows as producers: otherwise it would join a million of them each time.
        if self._waiting_rows_count >= max(MAX_BLOCK_ROWS, len(self._whole.producers)):
            self._take_waiting()

    def finish(self) -> Summary:
        """Return the summary of all batches."""
        self._take_waiting()
        return self._whole._replace(sequences=self._tracker.finish())

    def _take_waiting(self) -> None:
        waiting, self._waiting, self._waiting_rows_count = self._waiting, [], 0
        rows = _put_together(waiting)
        if rows is None:
            return
        whole, table = self._whole, rows.table
        is_good = table.crc_ok
        is_v2 = is_good & (table.magic >= MAGIC_V2)
        is_control = is_v2 & ((table.attributes & CONTROL_MASK) != 0)
        is_data = is_v2 & ~is_control
        is_transactional = is_data & ((table.attributes & TRANSACTIONAL_MASK) != 0)
        has_producer = table.producer_id >= 0
        is_event = has_producer & (is_data | (is_control & (rows.marker != NO_MARKER)))
        found = _producers_of(rows, np.flatnonzero(is_event), is_transactional)
        is_sequenced = is_data & has_producer & ~rows.is_misplaced
        repeated = self._repeated(table, is_sequenced) if self._has_sequences else None
        if repeated is not None:
            place = np.searchsorted(found.rows["producer_id"], table.producer_id[repeated])
            np.add.at(found.rows["duplicate_batches"], place, 1)
        joined = join_producers(whole.producers, found.rows)
        good = HeaderTable._make(column[is_good] for column in table)
        self._whole = Summary(
            counts=whole.counts.plus(_counts_of(rows, is_control, is_transactional)),
            extent=whole.extent.then(_extent_of(rows)),
            duplicate_batches=(whole.duplicate_batches or 0)
            + (0 if repeated is None else len(repeated)),
            producers=joined.rows,
            ended=join_ended(whole.ended, ended_rows(found.ended), ended_rows(joined.ended)),
            violations=join_violations(
                whole.violations,
                regression_violations(found.regressions),
                regression_violations(joined.regressions),
                no_violations() if repeated is None else duplicate_violations(table, repeated),
            ),
            fingerprint=join_fingerprints(
                whole.fingerprint, fingerprint(good, whole.fingerprint.width_bits)
            ),
        )

    def _repeated(
        self, table: HeaderTable, is_wanted: NDArray[np.bool_]
    ) -> NDArray[np.int64] | None:
        """Return the rows that repeat sequences."""
        sequences_count = table.last_offset - table.base_offset + 1
        is_wanted = is_wanted & (table.base_sequence >= 0) & (sequences_count > 0)
        rows = np.flatnonzero(is_wanted & (sequences_count <= LAP))
        if not rows.size:
            return None
        batches = SequencedBatches(
            producer_id=table.producer_id[rows],
            producer_epoch=table.producer_epoch[rows],
            base_sequence=table.base_sequence[rows],
            sequences_count=sequences_count[rows],
            base_offset=table.base_offset[rows],
        )
        is_repeated = self._tracker.add(batches)
        return rows[is_repeated] if is_repeated.any() else None


def _put_together(blocks: list[SummaryRows]) -> SummaryRows | None:
    if len(blocks) <= 1:
        return blocks[0] if blocks else None
    tables = zip(*(each.table for each in blocks), strict=True)
    return SummaryRows(
        table=HeaderTable._make(np.concatenate(columns) for columns in tables),
        marker=np.concatenate([each.marker for each in blocks]),
        records_count=np.concatenate([each.records_count for each in blocks]),
        is_misplaced=np.concatenate([each.is_misplaced for each in blocks]),
        is_lost=np.concatenate([each.is_lost for each in blocks]),
    )


def _counts_of(
    rows: SummaryRows, is_control: NDArray[np.bool_], is_transactional: NDArray[np.bool_]
) -> Counts:
    is_good = rows.table.crc_ok & ~rows.is_lost
    return Counts(
        batches=int(is_good.sum()),
        records=int(rows.records_count[is_good].sum()),
        bytes=int(rows.table.batch_bytes[is_good].sum()),
        control_batches=int(is_control.sum()),
        transactional_batches=int(is_transactional.sum()),
        corrupt_batches=int((~is_good).sum()),
    )


def _extent_of(rows: SummaryRows) -> Extent:
    table = rows.table
    placed = np.flatnonzero(table.crc_ok & ~rows.is_misplaced)
    if not placed.size:
        return Extent()
    return Extent(
        first_offset=int(table.base_offset[placed[0]]),
        top_offset=int(table.last_offset[placed].max()),
    )


def _producers_of(
    rows: SummaryRows, events: NDArray[np.int64], is_transactional: NDArray[np.bool_]
) -> ProducersFound:
    table = rows.table
    return summarize_producers(
        ProducerEvents(
            producer_id=table.producer_id[events],
            epoch=table.producer_epoch[events],
            is_transactional=is_transactional[events],
            marker=rows.marker[events],
            base_offset=table.base_offset[events],
            last_offset=table.last_offset[events],
            records_count=rows.records_count[events],
            batch_bytes=table.batch_bytes[events],
            timestamp_ms=table.max_timestamp_ms[events],
        )
    )
