"""Why a partition or a broker is another one than before: told from the two states of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.dirs.cluster_image import BrokerImage, PartitionImage

NO_LEADER = -1


class Why(StrEnum):
    """What a change of a partition is."""

    CREATED = "created"
    DELETED = "deleted"
    ELECTION = "election"  # of a member of the ISR
    ELR_ELECTION = "ELR election"  # of an eligible leader replica: it has all that was acknowledged
    LAST_KNOWN_ELECTION = "last known election"  # of the last leader, with ISR and ELR empty
    UNCLEAN_ELECTION = "unclean election"
    NO_LEADER = "no leader"
    EPOCH_BUMP = "epoch bump"  # the same leader in a new epoch
    RECOVERED = "recovered"  # the leader of an unclean election is done with its recovery
    ISR_SHRINK = "ISR shrink"
    ISR_EXPAND = "ISR expand"
    ELR = "ELR"
    REASSIGNMENT = "reassignment"  # replicas are added or removed
    REASSIGNED = "reassigned"  # it is done
    REASSIGNMENT_CANCELLED = "reassignment cancelled"
    DIRECTORY = "directory"
    SETTING = "setting"  # of min.insync.replicas: acks=all is refused now, or taken again
    SNAPSHOT = "snapshot"  # how it came to this is not told
    NONE = "no change"

    @property
    def is_unclean(self) -> bool:
        """The new leader may not have had all that was acknowledged."""
        return self in (Why.UNCLEAN_ELECTION, Why.LAST_KNOWN_ELECTION)

    @property
    def is_election(self) -> bool:
        """There is another leader now."""
        return self in _ELECTIONS


_ELECTIONS = frozenset(
    (Why.ELECTION, Why.ELR_ELECTION, Why.LAST_KNOWN_ELECTION, Why.UNCLEAN_ELECTION)
)


class BrokerWhy(StrEnum):
    """What a change of a broker is."""

    REGISTERED = "registered"  # each start is a new registration
    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    DIRECTORIES = "directories"  # others are online now, or cordoned
    SNAPSHOT = "snapshot"
    OTHER = "other"


def partition_reasons(
    before: PartitionImage | None, after: PartitionImage | None
) -> tuple[Why, ...]:
    """Tell what makes two states of a partition differ; never empty."""
    if before is None or after is None:
        return (Why.DELETED if after is None else Why.CREATED,)
    found = []
    if after.leader_epoch != before.leader_epoch or after.leader != before.leader:
        found.append(_election(before, after))
    if after.isr is not before.isr and after.isr != before.isr:
        had, has = {*before.isr}, {*after.isr}
        if had - has:
            found.append(Why.ISR_SHRINK)
        if has - had:
            found.append(Why.ISR_EXPAND)
    if before.is_recovering and not after.is_recovering:
        found.append(Why.RECOVERED)
    if after.elr != before.elr or after.last_known_elr != before.last_known_elr:
        found.append(Why.ELR)
    if _moves(before) != _moves(after):
        found.append(_reassignment(before, after))
    if after.directories != before.directories and after.replicas == before.replicas:
        found.append(Why.DIRECTORY)
    return tuple(found) or (Why.NONE,)


def _election(before: PartitionImage, after: PartitionImage) -> Why:
    leader = after.leader
    if leader == NO_LEADER:
        return Why.NO_LEADER
    if leader == before.leader:
        return Why.EPOCH_BUMP
    if leader in before.isr:
        return Why.ELECTION
    if leader in before.elr:
        return Why.ELR_ELECTION
    if not before.isr and leader in before.last_known_elr:
        return Why.LAST_KNOWN_ELECTION
    return Why.UNCLEAN_ELECTION


def _moves(image: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return image.replicas, image.adding_replicas, image.removing_replicas


def _reassignment(before: PartitionImage, after: PartitionImage) -> Why:
    if after.adding_replicas or after.removing_replicas:
        return Why.REASSIGNMENT
    if not before.adding_replicas and not before.removing_replicas:
        return Why.REASSIGNED  # within one record
    replicas = {*after.replicas}
    is_done = replicas >= {*before.adding_replicas} and not replicas & {*before.removing_replicas}
    return Why.REASSIGNED if is_done else Why.REASSIGNMENT_CANCELLED


def broker_reasons(before: BrokerImage | None, after: BrokerImage | None) -> tuple[BrokerWhy, ...]:
    """Tell what makes two states of a broker differ; never empty."""
    if after is None:
        return (BrokerWhy.UNREGISTERED,)
    if before is None or after.broker_epoch != before.broker_epoch:
        return (BrokerWhy.REGISTERED,)
    found = []
    if after.is_fenced != before.is_fenced:
        found.append(BrokerWhy.FENCED if after.is_fenced else BrokerWhy.UNFENCED)
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        found.append(BrokerWhy.CONTROLLED_SHUTDOWN)
    if (after.log_dirs, after.cordoned_log_dirs) != (before.log_dirs, before.cordoned_log_dirs):
        found.append(BrokerWhy.DIRECTORIES)
    return tuple(found) or (BrokerWhy.OTHER,)
