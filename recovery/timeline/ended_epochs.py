"""Which transactions of a partition ended how, in two bits each.

Kept to see whether other partitions ended the same transaction otherwise. That can be said of a
transaction whose marker has a higher epoch than its data (version 2 always, before that only when
the coordinator fenced the producer, TXN-7): no other transaction has that epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[Any]

WORD_BITS = 64
# A row for 64 epochs of one producer; bit k is epoch 64 * word + k. By producer id and word.
ENDED_DTYPE = np.dtype(
    [("producer_id", "<i8"), ("word", "<i2"), ("committed", "<u8"), ("aborted", "<u8")]
)


class EndedEpochs(NamedTuple):
    """Transactions that a marker of a higher epoch ended: such an epoch ends one transaction only.

    One row each; `epoch` is the marker's.
    """

    producer_id: NDArray[np.int64]
    epoch: NDArray[np.int16]
    is_commit: NDArray[np.bool_]


def no_ended_rows() -> Rows:
    """Return the rows of a piece where no such transaction ended."""
    return np.empty(0, ENDED_DTYPE)


def ended_rows(ended: EndedEpochs) -> Rows:
    """Pack transactions that ended."""
    rows = np.zeros(len(ended.epoch), ENDED_DTYPE)
    rows["producer_id"] = ended.producer_id
    rows["word"] = ended.epoch // WORD_BITS
    bit = np.uint64(1) << (ended.epoch.astype(np.int64) % WORD_BITS).astype(np.uint64)
    rows["committed"] = np.where(ended.is_commit, bit, 0)
    rows["aborted"] = np.where(ended.is_commit, 0, bit)
    return _united(rows)


def join_ended(*parts: Rows) -> Rows:
    """Put the transactions of several pieces together."""
    parts = tuple(part for part in parts if len(part))
    if len(parts) <= 1:
        return parts[0] if parts else no_ended_rows()
    return _united(np.concatenate(parts))


def _united(rows: Rows) -> Rows:
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows["word"], rows["producer_id"]))]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (np.diff(rows["producer_id"]) != 0) | (np.diff(rows["word"]) != 0)
    starts = np.flatnonzero(is_first)
    united = rows[starts]
    for name in ("committed", "aborted"):
        united[name] = np.bitwise_or.reduceat(rows[name], starts)
    return united


def epochs_of(words: NDArray[np.uint64], rows: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return row and epoch of each bit that is set in `words`, a word for each of the rows."""
    bits = (words[:, None] >> np.arange(WORD_BITS, dtype=np.uint64)) & np.uint64(1)
    place, bit = np.nonzero(bits)
    return place, rows["word"][place].astype(np.int64) * WORD_BITS + bit
