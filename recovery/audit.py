"""Counts over a partition, made of counts over pieces of it: any split gives the same result.

What is counted (all of it over batches with a right checksum)
  batches                 v2 batches and outer messages of v0 and v1
  records                 as the headers of v2 say; inside of v0 and v1 wrappers they are counted
  bytes                   of the batches, headers included
  control_batches         markers, and KRaft's own control batches
  transactional_batches   data batches of transactions (a marker is a control batch)
  aborted_batches         those of them whose producer's next marker is ABORT (RC-5)
  duplicate_batches       data batches with a sequence that an earlier batch of the same producer
                          id and epoch has, at another offset; none in the topics that coordinators
                          write (PROD-12)
  open, committed, aborted transactions                                       (TXN-1, TXN-2)
and of the rest: corrupt_batches, batches of believable length with a wrong checksum.

All that is in the files counts, also below the log start offset and above the high watermark.

A piece is counted as if it were the whole log, and keeps what its neighbours must know: see
`transaction_counts` and `sequence_ranges`. Its size grows with producers and with gaps in their
sequences, not with batches. One thing cannot be told from ranges: how many batches of the right
piece lie in what the left one covers. If that is so, which only duplicates bring about, the right
piece is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery import sequence_ranges, transaction_counts
from recovery.sequence_ranges import SequencedBatches, SequenceRanges, cover, no_ranges
from recovery.transaction_counts import (
    NO_MARKER,
    TransactionCounts,
    TransactionEnds,
    count_transactions,
    no_transactions,
)
from storage.errors import CorruptError, UnsupportedError
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.protocol import MAX_BLOCK_ROWS, HeaderTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Recount = Callable[[SequenceRanges], int | None]

# PROD-12: their coordinators write what sequence rules do not hold for.
UNSEQUENCED_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
PACKED_VERSION = 1


class AuditRows(NamedTuple):
    """Batches of a piece in log order, with what their headers do not say.

    Attributes:
        table: the headers.
        marker: NO_MARKER, COMMIT or ABORT, by the record of a control batch.
        records_count: of legacy messages too.
        is_misplaced: the offset cannot be right, so that nothing can be said of duplicates.
    """

    table: HeaderTable
    marker: NDArray[np.int8]
    records_count: NDArray[np.int64]
    is_misplaced: NDArray[np.bool_]


class AuditCounts(NamedTuple):
    """Sums over a piece that need no neighbour."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    corrupt_batches: int = 0

    def plus(self, other: AuditCounts) -> AuditCounts:
        """Return the sums."""
        return AuditCounts._make(map(sum, zip(self, other, strict=True)))


class PieceAudit(NamedTuple):
    """A contiguous piece of a partition's log, counted as if nothing were before it.

    `duplicate_batches` is None in the one case that `merge` cannot decide by itself.
    """

    counts: AuditCounts = AuditCounts()
    transactions: TransactionCounts = TransactionCounts()
    duplicate_batches: int | None = 0
    ends: TransactionEnds = no_transactions()
    ranges: SequenceRanges = no_ranges()

    @property
    def open_transactions(self) -> int:
        """Transactions without a marker by the end of the piece."""
        return int((self.ends.pending_count > 0).sum())

    def summary(self) -> dict[str, int | None]:
        """Return the counts by the names above."""
        counts, transactions = self.counts, self.transactions
        return {
            "batches": counts.batches,
            "records": counts.records,
            "bytes": counts.bytes,
            "control_batches": counts.control_batches,
            "transactional_batches": counts.transactional_batches,
            "aborted_batches": transactions.aborted_batches,
            "duplicate_batches": self.duplicate_batches,
            "open_transactions": self.open_transactions,
            "committed_transactions": transactions.committed_transactions,
            "aborted_transactions": transactions.aborted_transactions,
            "corrupt_batches": counts.corrupt_batches,
        }


SUMMARY_FIELDS = tuple(PieceAudit().summary())


def merge(
    left: PieceAudit,
    right: PieceAudit,
    recount: Recount | None = None,
) -> PieceAudit:
    """Join the audits of two neighbouring pieces.

    Args:
        left: the piece before.
        right: the piece behind.
        recount: called only if sequences of the right piece are in the left one too, with what the
            left one covers; returns the right piece's duplicates given that, or None. Without it
            they are then unknown.
    """
    ends, seam = transaction_counts.join(left.ends, right.ends)
    ranges, is_overlapping = sequence_ranges.join(left.ranges, right.ranges)
    in_right = right.duplicate_batches
    if is_overlapping:
        in_right = recount(left.ranges) if recount is not None else None
    is_known = left.duplicate_batches is not None and in_right is not None
    return PieceAudit(
        counts=left.counts.plus(right.counts),
        transactions=left.transactions.plus(right.transactions).plus(seam),
        duplicate_batches=(left.duplicate_batches or 0) + (in_right or 0) if is_known else None,
        ends=ends,
        ranges=ranges,
    )


class Auditor:
    """Counts over the batches of one piece, given in blocks of any size.

    Args:
        has_sequences: sequence rules hold in this topic.
        before: what is covered by the pieces before this one, for `merge`'s `recount`.
    """

    def __init__(self, *, has_sequences: bool = True, before: SequenceRanges | None = None) -> None:
        self._has_sequences = has_sequences
        self._ranges = no_ranges() if before is None else before
        self._counts = AuditCounts()
        self._transactions = TransactionCounts()
        self._ends = no_transactions()
        self._duplicates_count = 0
        self._waiting: list[AuditRows] = []
        self._waiting_rows_count = 0

    def add(self, rows: AuditRows) -> None:
        """Take the next batches. Small blocks are put together: joining costs by producer."""
        self._waiting.append(rows)
        self._waiting_rows_count += rows.table.row_count
        if self._waiting_rows_count >= MAX_BLOCK_ROWS:
            self._count_waiting()

    def finish(self) -> PieceAudit:
        """Return the counts of all that was added."""
        self._count_waiting()
        return PieceAudit(
            self._counts, self._transactions, self._duplicates_count, self._ends, self._ranges
        )

    def _count_waiting(self) -> None:
        waiting, self._waiting, self._waiting_rows_count = self._waiting, [], 0
        rows = _put_together(waiting)
        if rows is None:
            return
        table, is_good = rows.table, rows.table.crc_ok
        is_v2 = is_good & (table.magic >= MAGIC_V2)
        is_control = is_v2 & ((table.attributes & CONTROL_MASK) != 0)
        is_data = is_v2 & ~is_control
        is_transactional = is_data & ((table.attributes & TRANSACTIONAL_MASK) != 0)
        counts = AuditCounts(
            batches=int(is_good.sum()),
            records=int(rows.records_count[is_good].sum()),
            bytes=int(table.batch_bytes[is_good].sum()),
            control_batches=int(is_control.sum()),
            transactional_batches=int(is_transactional.sum()),
            corrupt_batches=int((~is_good).sum()),
        )
        self._counts = self._counts.plus(counts)
        has_producer = table.producer_id >= 0
        is_marker = is_control & (rows.marker != NO_MARKER)
        events = np.flatnonzero(has_producer & (is_transactional | is_marker))
        marker = np.where(is_marker[events], rows.marker[events], NO_MARKER)
        self._add_transactions(table.producer_id[events], marker)
        if self._has_sequences:
            self._add_sequences(table, is_data & has_producer & ~rows.is_misplaced)

    def _add_transactions(self, producer_id: NDArray[np.int64], marker: NDArray[np.int8]) -> None:
        if not len(producer_id):
            return
        ends, inside = count_transactions(producer_id, marker)
        self._ends, seam = transaction_counts.join(self._ends, ends)
        self._transactions = self._transactions.plus(inside).plus(seam)

    def _add_sequences(self, table: HeaderTable, is_wanted: NDArray[np.bool_]) -> None:
        sequences_count = table.last_offset - table.base_offset + 1
        is_wanted &= (table.base_sequence >= 0) & (sequences_count > 0)
        is_wanted &= sequences_count <= sequence_ranges.LAP
        rows = np.flatnonzero(is_wanted)
        if not rows.size:
            return
        batches = SequencedBatches(
            table.producer_id[rows],
            table.producer_epoch[rows],
            table.base_sequence[rows],
            sequences_count[rows],
            table.base_offset[rows],
        )
        self._ranges, is_repeated = cover(batches, self._ranges)
        self._duplicates_count += int(is_repeated.sum())


def _put_together(blocks: list[AuditRows]) -> AuditRows | None:
    if len(blocks) <= 1:
        return blocks[0] if blocks else None
    tables = zip(*(each.table for each in blocks), strict=True)
    return AuditRows(
        HeaderTable._make(np.concatenate(columns) for columns in tables),
        *(np.concatenate(columns) for columns in zip(*(each[1:] for each in blocks), strict=True)),
    )


class AuditedPiece(NamedTuple):
    """The audit of a piece, and how to read it once more given what is covered before it."""

    audit: PieceAudit
    recount: Recount


def merge_all(pieces: Iterable[AuditedPiece]) -> PieceAudit:
    """Join the pieces of one partition, given in log order."""
    whole = PieceAudit()
    for audit, recount in pieces:
        whole = merge(whole, audit, recount)
    return whole


# -- as bytes, to be sent or kept


def pack_audit(audit: PieceAudit) -> bytes:
    """Encode an audit."""
    from msgpack import packb

    columns = [_packed(column) for column in (*audit.ends, *audit.ranges)]
    value = [PACKED_VERSION, *map(list, audit[:2]), audit.duplicate_batches, columns]
    return bytes(packb(value, use_bin_type=True))


def unpack_audit(data: bytes) -> PieceAudit:
    """Decode what `pack_audit` made.

    Raises:
        UnsupportedError: another version made it.
        CorruptError: nothing of that kind.
    """
    from msgpack import unpackb

    try:
        version, *values = unpackb(data, strict_map_key=False)
        if version == PACKED_VERSION:
            counts, transactions, duplicate_batches, packed = values
            dtypes = (*transaction_counts.ENDS_DTYPES, *sequence_ranges.RANGES_DTYPES)
            columns = [
                np.frombuffer(column, np.dtype(dtype).newbyteorder("<")).astype(dtype)
                for column, dtype in zip(packed, dtypes, strict=True)
            ]
            ends_count = len(transaction_counts.ENDS_DTYPES)
            return PieceAudit(
                AuditCounts(*counts),
                TransactionCounts(*transactions),
                duplicate_batches,
                TransactionEnds._make(columns[:ends_count]),
                SequenceRanges._make(columns[ends_count:]),
            )
    except (ValueError, TypeError) as exc:
        raise CorruptError(f"not a packed audit: {exc}", check_id="AUD-1", pos=0) from None
    raise UnsupportedError(
        "audit of another version",
        check_id="AUD-1",
        pos=0,
        expected=str(PACKED_VERSION),
        found=str(version),
    )


def _packed(column: NDArray[Any]) -> bytes:
    return column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
