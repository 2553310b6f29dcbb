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


def find_torn(summaries: Sequence[Summary]) -> list[TornTransaction]:
    """Find torn transactions over different partitions, by producer id and epoch."""
    found = [*_differing(summaries), *_missing(summaries)]
    return sorted(found, key=lambda each: (each.producer_id, each.epoch, each.kind, each.open))


def _differing(summaries: Sequence[Summary]) -> list[TornTransaction]:
    rows = join_ended(*(each.ended for each in summaries))
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
                    for number, each in enumerate(summaries)
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


class _Ends(NamedTuple):
    """The last transaction with data that each producer ended in each partition."""

    producer_id: NDArray[np.int64]
    partition: NDArray[np.int64]
    kind: NDArray[np.int8]
    epoch: NDArray[np.int16]
    timestamp_ms: NDArray[np.int64]
    data_timestamp_ms: NDArray[np.int64]


def _ends(summaries: Sequence[Summary]) -> _Ends:
    parts = []
    for number, each in enumerate(summaries):
        rows = each.producers[each.producers["last_end"]["kind"] != NO_MARKER]
        end = rows["last_end"]
        parts.append(
            _Ends(
                producer_id=rows["producer_id"],
                partition=np.full(len(rows), number),
                kind=end["kind"],
                epoch=end["epoch"],
                timestamp_ms=end["timestamp_ms"],
                data_timestamp_ms=rows["last_end_data_timestamp_ms"],
            )
        )
    whole = _Ends._make(map(np.concatenate, zip(*parts, strict=True)))
    order = np.argsort(whole.producer_id, kind="stable")
    return _Ends._make(column[order] for column in whole)


class _Missing(NamedTuple):
    """An open transaction that others have ended."""

    partition: int
    first_offset: int
    why: str
    proofs: frozenset[tuple[int, int]]  # partition and kind of the marker


def _missing(summaries: Sequence[Summary]) -> list[TornTransaction]:
    if len(summaries) < 2:
        return []
    ends = _ends(summaries)
    found: dict[tuple[int, int], list[_Missing]] = {}
    for number, each in enumerate(summaries):
        opened = pending(each.producers)
        for row in np.flatnonzero(opened["batches"] > 0).tolist():
            producer_id = int(each.producers["producer_id"][row])
            missing = _ended_elsewhere(ends, producer_id, number, opened[row])
            if missing is not None:
                found.setdefault((producer_id, int(opened[row]["epoch"])), []).append(missing)
    return [_torn(producer_id, epoch, each) for (producer_id, epoch), each in found.items()]


def _ended_elsewhere(
    ends: _Ends, producer_id: int, partition: int, part: np.void
) -> _Missing | None:
    """Tell whether another partition has a marker that an open transaction lacks."""
    first, end = np.searchsorted(ends.producer_id, [producer_id, producer_id + 1]).tolist()
    own = _Ends._make(column[first:end] for column in ends)
    is_same = (own.epoch == part["epoch"]) & (own.partition != partition)
    is_proof = (own.epoch > part["epoch"]) & (own.partition != partition)
    is_proof |= is_same & (own.data_timestamp_ms > part["first_timestamp_ms"])
    why = MARKER_MISSING
    if not is_proof.any():
        is_proof = is_same & (own.timestamp_ms > part["last_timestamp_ms"])
        why = MISSING_BY_CLOCK
    if not is_proof.any():
        return None
    proofs = zip(own.partition[is_proof].tolist(), own.kind[is_proof].tolist(), strict=True)
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
