"""Transactions of a piece of log in numbers, per producer id, so that pieces can be joined.

What a marker ends may lie in the piece before, and what ends a batch in the piece behind. So a
piece keeps, per producer id, the batches before its first marker (`head`), what that marker is, and
the batches behind its last marker (`tail`); everything between is final. Rules: RC-5 (a batch has
the outcome of its producer's next marker), TXN-1 and TXN-2 (a transaction opens with the first
batch behind a marker; a marker without open transaction completes nothing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_MARKER, COMMIT, ABORT = 0, 1, 2


class TransactionEnds(NamedTuple):
    """What a piece leaves open at both ends; a row per producer id, ascending.

    `head_count` are all batches if there is no marker; `tail_count` is then 0.
    """

    producer_id: NDArray[np.int64]
    head_count: NDArray[np.int64]
    first_marker: NDArray[np.int8]
    tail_count: NDArray[np.int64]

    @property
    def pending_count(self) -> NDArray[np.int64]:
        """Batches behind the last marker, by producer id."""
        return np.where(self.first_marker != NO_MARKER, self.tail_count, self.head_count)


class TransactionCounts(NamedTuple):
    """What is final in a piece, given that nothing was open before it."""

    aborted_batches: int = 0
    committed_transactions: int = 0
    aborted_transactions: int = 0

    def plus(self, other: TransactionCounts) -> TransactionCounts:
        """Return the sums."""
        return TransactionCounts._make(map(sum, zip(self, other, strict=True)))


ENDS_DTYPES = (np.int64, np.int64, np.int8, np.int64)


def no_transactions() -> TransactionEnds:
    """Return the ends of an empty piece."""
    return TransactionEnds._make(np.empty(0, dtype) for dtype in ENDS_DTYPES)


def count_transactions(
    producer_id: NDArray[np.int64], marker: NDArray[np.int8]
) -> tuple[TransactionEnds, TransactionCounts]:
    """Count over batches in log order.

    Args:
        producer_id: of transactional data batches and of end markers.
        marker: NO_MARKER for a data batch, else COMMIT or ABORT.
    """
    if not len(producer_id):
        return no_transactions(), TransactionCounts()
    order = np.argsort(producer_id, kind="stable")
    ids, ends = producer_id[order], marker[order]
    is_first = np.ones(len(ids), np.bool_)
    is_first[1:] = ids[1:] != ids[:-1]
    # A span: the batches of one producer up to and with its next marker.
    is_span = is_first.copy()
    is_span[1:] |= ends[:-1] != NO_MARKER
    starts = np.flatnonzero(is_span)
    lasts = np.append(starts[1:], len(ids)) - 1
    span_marker = ends[lasts]
    span_count = lasts - starts + (span_marker == NO_MARKER)
    firsts = np.flatnonzero(is_first[starts])
    finals = np.append(firsts[1:], len(starts)) - 1
    has_tail = (finals > firsts) & (span_marker[finals] == NO_MARKER)
    found = TransactionEnds(
        producer_id=ids[starts[firsts]],
        head_count=span_count[firsts],
        first_marker=span_marker[firsts],
        tail_count=np.where(has_tail, span_count[finals], 0),
    )
    return found, _final(span_count, span_marker, is_transaction=span_count > 0)


def _final(
    batches: NDArray[Any], marker: NDArray[Any], *, is_transaction: NDArray[np.bool_]
) -> TransactionCounts:
    return TransactionCounts(
        aborted_batches=int(batches[marker == ABORT].sum()),
        committed_transactions=int((is_transaction & (marker == COMMIT)).sum()),
        aborted_transactions=int((is_transaction & (marker == ABORT)).sum()),
    )


def join(
    left: TransactionEnds, right: TransactionEnds
) -> tuple[TransactionEnds, TransactionCounts]:
    """Join the ends of two neighbouring pieces; the counts are what the seam adds to both."""
    ids = np.union1d(left.producer_id, right.producer_id)
    l_head, l_marker, l_tail = _spread(left, ids)
    r_head, r_marker, r_tail = _spread(right, ids)
    pending = np.where(l_marker != NO_MARKER, l_tail, l_head)
    # With batches of its own in the head, the right piece has counted the transaction already.
    seam = _final(pending, r_marker, is_transaction=(pending > 0) & (r_head == 0))
    has_left, has_right = l_marker != NO_MARKER, r_marker != NO_MARKER
    tail = np.where(has_right, r_tail, np.where(has_left, l_tail + r_head, 0))
    joined = TransactionEnds(
        producer_id=ids,
        head_count=np.where(has_left, l_head, l_head + r_head),
        first_marker=np.where(has_left, l_marker, r_marker),
        tail_count=tail,
    )
    return joined, seam


def _spread(
    ends: TransactionEnds, ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
    rows = np.searchsorted(ids, ends.producer_id)
    head, tail = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    marker = np.zeros(len(ids), np.int8)
    head[rows], marker[rows], tail[rows] = ends.head_count, ends.first_marker, ends.tail_count
    return head, marker, tail
