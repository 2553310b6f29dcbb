"""Transactions that ended in one partition and not, or otherwise, in another.

A transaction of a producer ends in all its partitions alike (TXN-2). It is torn if the log of one
partition says that it ended and that of another one
  holds the same epoch's other outcome    outcome-differs: markers that raise the epoch end one
                                          transaction each (TXN-7, see `ended_epochs`)
  still has it open                       marker-missing: a marker of a higher epoch than the open
                                          data, or one that ended data which the producer sent
                                          later (by its own clock) under the same epoch;
                                          marker-missing-by-clock: a marker of the same epoch that
                                          is later than all of the open data, if the clocks of
                                          producer and broker go together
Two outcomes under one epoch with transaction versions 0 and 1 cannot be told from two transactions.
A coordinator that was stopped between its markers leaves a torn transaction too, which it completes
when it starts again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.summaries.producer_summary import pending
from recovery.timeline.ended_epochs import epochs_of, join_ended
from storage.formats.control_record import COMMIT, NO_MARKER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from recovery.summaries.summary import Summary

OUTCOME_DIFFERS, MARKER_MISSING = "outcome-differs", "marker-missing"
MISSING_BY_CLOCK = "marker-missing-by-clock"


class _Ends(NamedTuple):
    """The last transaction with data that each producer ended."""

    producer_id: NDArray[np.int64]
    kind: NDArray[np.int8]
    epoch: NDArray[np.int16]
    timestamp_ms: NDArray[np.int64]
    data_timestamp_ms: NDArray[np.int64]


class TransactionEnds(NamedTuple):
    """What is compared of a partition; nothing of it holds the rest of the summary in memory.

    Attributes:
        ended: rows of ENDED_DTYPE.
        last: of producers that have ended one.
        open_producer_id, open: of producers with an open transaction, rows of PART_DTYPE.
    """

    ended: NDArray[Any]
    last: _Ends
    open_producer_id: NDArray[np.int64]
    open: NDArray[Any]


class TornTransaction(NamedTuple):
    """One transaction; the partitions are places in what was given.

    Attributes:
        epoch: of the marker (outcome-differs), of the open data (marker-missing).
        committed, aborted, open: where it ended, and where not.
        first_offset: of the open data, in the first partition of `open`; -1 if there is none.
    """

    kind: str
    producer_id: int
    epoch: int
    committed: tuple[int, ...]
    aborted: tuple[int, ...]
    open: tuple[int, ...]
    first_offset: int


def ends_of(summary: Summary) -> TransactionEnds:
    """Return what `find_torn` needs of a partition."""
    rows = summary.producers
    has_ended = rows["last_end"]["kind"] != NO_MARKER
    end = rows["last_end"]
    opened = pending(rows)
    is_open = opened["batches"] > 0
    return TransactionEnds(
        ended=summary.ended,
        last=_Ends(
            producer_id=rows["producer_id"][has_ended],
            kind=end["kind"][has_ended],
            epoch=end["epoch"][has_ended],
            timestamp_ms=end["timestamp_ms"][has_ended],
            data_timestamp_ms=rows["last_end_data_timestamp_ms"][has_ended],
        ),
        open_producer_id=rows["producer_id"][is_open],
        open=opened[is_open],
    )


def find_torn(partitions: Sequence[TransactionEnds]) -> list[TornTransaction]:
    """Find torn transactions over different partitions, by producer id and epoch."""
    found = [*_differing(partitions), *_missing(partitions)]
    return sorted(found, key=lambda each: (each.producer_id, each.epoch, each.kind, each.open))


def _differing(partitions: Sequence[TransactionEnds]) -> list[TornTransaction]:
    rows = join_ended(*(each.ended for each in partitions))
    place, epochs = epochs_of(rows["committed"] & rows["aborted"], rows)
    found = []
    for row, epoch in zip(rows[place].tolist(), epochs.tolist(), strict=True):
        producer_id, word, *_ = row
        outcomes: list[tuple[int, ...]] = []
        for name in ("committed", "aborted"):
            bit = np.uint64(1 << (epoch % 64))
            outcomes.append(
                tuple(
                    number
                    for number, each in enumerate(partitions)
                    if _word(each.ended, producer_id, word, name) & bit
                )
            )
        found.append(
            TornTransaction(
                kind=OUTCOME_DIFFERS,
                producer_id=producer_id,
                epoch=epoch,
                committed=outcomes[0],
                aborted=outcomes[1],
                open=(),
                first_offset=-1,
            )
        )
    return found


def _word(rows: NDArray[Any], producer_id: int, word: int, name: str) -> np.uint64:
    first, end = np.searchsorted(rows["producer_id"], [producer_id, producer_id + 1])
    at = first + int(np.searchsorted(rows["word"][first:end], word))
    is_there = at < end and rows["word"][at] == word
    return np.uint64(rows[name][at]) if is_there else np.uint64(0)


class _AllEnds(NamedTuple):
    """Of all partitions, by producer id."""

    partition: NDArray[np.int64]
    ends: _Ends


def _all_ends(partitions: Sequence[TransactionEnds]) -> _AllEnds:
    partition = np.repeat(
        np.arange(len(partitions)), [len(each.last.producer_id) for each in partitions]
    )
    parts = zip(*(each.last for each in partitions), strict=True)
    whole = _Ends._make(map(np.concatenate, parts))
    order = np.argsort(whole.producer_id, kind="stable")
    return _AllEnds(partition[order], _Ends._make(column[order] for column in whole))


class _Missing(NamedTuple):
    """An open transaction that others have ended."""

    partition: int
    first_offset: int
    why: str
    proofs: frozenset[tuple[int, int]]  # partition and kind of the marker


def _missing(partitions: Sequence[TransactionEnds]) -> list[TornTransaction]:
    if len(partitions) < 2:
        return []
    ends = _all_ends(partitions)
    found: dict[tuple[int, int], list[_Missing]] = {}
    for number, each in enumerate(partitions):
        for producer_id, part in zip(each.open_producer_id.tolist(), each.open, strict=True):
            missing = _ended_elsewhere(ends, producer_id, number, part)
            if missing is not None:
                found.setdefault((producer_id, int(part["epoch"])), []).append(missing)
    return [_torn(producer_id, epoch, each) for (producer_id, epoch), each in found.items()]


def _ended_elsewhere(
    ends: _AllEnds, producer_id: int, partition: int, part: np.void
) -> _Missing | None:
    """Tell whether another partition has a marker that an open transaction lacks."""
    bounds = [producer_id, producer_id + 1]
    first, end = np.searchsorted(ends.ends.producer_id, bounds).tolist()
    own = _Ends._make(column[first:end] for column in ends.ends)
    where = ends.partition[first:end]
    is_same = (own.epoch == part["epoch"]) & (where != partition)
    is_proof = (own.epoch > part["epoch"]) & (where != partition)
    is_proof |= is_same & (own.data_timestamp_ms > part["first_timestamp_ms"])
    why = MARKER_MISSING
    if not is_proof.any():
        is_proof = is_same & (own.timestamp_ms > part["last_timestamp_ms"])
        why = MISSING_BY_CLOCK
    if not is_proof.any():
        return None
    proofs = zip(where[is_proof].tolist(), own.kind[is_proof].tolist(), strict=True)
    return _Missing(
        partition=partition,
        first_offset=int(part["first_offset"]),
        why=why,
        proofs=frozenset(proofs),
    )


def _torn(producer_id: int, epoch: int, found: list[_Missing]) -> TornTransaction:
    proofs = frozenset().union(*(each.proofs for each in found))
    return TornTransaction(
        kind=MARKER_MISSING
        if any(each.why == MARKER_MISSING for each in found)
        else MISSING_BY_CLOCK,
        producer_id=producer_id,
        epoch=epoch,
        committed=tuple(sorted(place for place, kind in proofs if kind == COMMIT)),
        aborted=tuple(sorted(place for place, kind in proofs if kind != COMMIT)),
        open=tuple(each.partition for each in found),
        first_offset=found[0].first_offset,
    )
