"""Which of several copies should lead: by what an election goes by, and what it costs.

The log with the latest leader epoch leads, of these the longest one: it has all that was committed
in the last epoch (EPOCH-7, and the order of KRaft's own elections). What lies behind damage counts
for nothing: a broker that starts there cuts it off. Where that leaves several, the one whose lead
costs the fewest acknowledged records is taken.

A broker that elects uncleanly knows none of this and takes any replica that is alive: the choice is
the operator's, by starting the right broker first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.replicas.compare import ReplicaLog


class Cost(NamedTuple):
    """What the other copies lose when one leads, each counted by itself; None: not known."""

    records_count: int | None
    acknowledged_records_count: int | None
    acknowledged_offsets_count: int | None


class Standing(NamedTuple):
    """What speaks for a copy.

    Attributes:
        end_offset: where what is good of it ends.
        leader_epoch: of its last good batch; -1: none.
        is_sound: nothing of it is damaged.
        cost: when it leads.
    """

    path: str
    end_offset: int
    leader_epoch: int
    is_sound: bool
    cost: Cost


class Recommendation(NamedTuple):
    """The copy that should lead, and why.

    Attributes:
        cheaper: another one whose lead costs fewer acknowledged records, if there is one.
    """

    leader: Standing
    reason: str
    cheaper: Standing | None


def standing_of(log: ReplicaLog, cost: Cost) -> Standing:
    """Return what speaks for a copy; `cost` when it leads."""
    end_offset = min(log.sound_end_offset, log.end_offset)
    return Standing(
        path=log.path,
        end_offset=end_offset,
        leader_epoch=max(_noted_epoch(log, end_offset), _written_epoch(log, end_offset)),
        is_sound=log.is_sound,
        cost=cost,
    )


def _noted_epoch(log: ReplicaLog, end_offset: int) -> int:
    """The epoch of leader-epoch-checkpoint below an offset."""
    return max(
        (each.epoch for each in log.epochs or () if each.start_offset < end_offset), default=-1
    )


def _written_epoch(log: ReplicaLog, end_offset: int) -> int:
    """The epoch that the last batch below an offset has."""
    if end_offset <= log.start_offset:
        return -1
    try:
        place = log.partition.find_offset(end_offset - 1)
    except AccessError:  # its segment has gone meanwhile
        return -1
    return -1 if place is None else place.batch.header.partition_leader_epoch


def recommend(found: Sequence[Standing]) -> Recommendation:
    """Choose the copy that should lead. There must be one at least."""
    best = max(found, key=_rank)
    others = [each for each in found if each is not best]
    return Recommendation(best, _reason(best, others), _cheaper(best, others))


def _rank(one: Standing) -> tuple[int, int, int, bool]:
    lost = one.cost.acknowledged_records_count
    return one.leader_epoch, one.end_offset, -(lost or 0) if lost is not None else -1, one.is_sound


def _reason(best: Standing, others: Sequence[Standing]) -> str:
    damage = "" if best.is_sound else "; what lies behind its damage does not count"
    if not others:
        return f"the only one{damage}"
    if not best.end_offset:
        is_damaged = not all(each.is_sound for each in (best, *others))
        first = "; salvage what is damaged before any of them leads" if is_damaged else ""
        return f"none of them has a good batch{first}"
    epoch = max(each.leader_epoch for each in others)
    if best.leader_epoch > epoch:
        known = f"{epoch} at most" if epoch >= 0 else "none"
        return f"leader epoch {best.leader_epoch}, the others have {known}{damage}"
    rivals = [each for each in others if each.leader_epoch == best.leader_epoch]
    end_offset = max(each.end_offset for each in rivals)
    same = f"leader epoch {best.leader_epoch}"
    if best.end_offset > end_offset:
        return f"{same}, and the longest log of it: {best.end_offset}, not {end_offset}{damage}"
    equal = [each for each in rivals if each.end_offset == end_offset]
    lost = best.cost.acknowledged_records_count
    if lost is not None and any(
        (each.cost.acknowledged_records_count or 0) > lost for each in equal
    ):
        return f"{same} up to {end_offset}, and it costs the fewest acknowledged records{damage}"
    damaged = [each for each in equal if not each.is_sound]
    if best.is_sound and damaged:
        return f"{same} up to {end_offset}, and nothing of it is damaged"
    alike = "the other one" if len(equal) == 1 else f"{len(equal)} others"
    return f"{same} up to {end_offset}, as {alike}: any of them may lead{damage}"


def _cheaper(best: Standing, others: Sequence[Standing]) -> Standing | None:
    lost = best.cost.acknowledged_records_count
    if not lost:
        return None
    known = [each for each in others if each.cost.acknowledged_records_count is not None]
    cheapest = min(known, key=lambda each: each.cost.acknowledged_records_count or 0, default=None)
    if cheapest is None or (cheapest.cost.acknowledged_records_count or 0) >= lost:
        return None
    return cheapest
