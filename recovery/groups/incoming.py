"""Offsets to import for groups: the result for each offset, and the obstacles.

A group coordinator takes offsets from a client without a member id (an AdminClient) if the group
has no members. The group may be classic, consumer or new. The coordinator does not look at the
logs, so the importer must: with an offset outside of its log, auto.offset.reset decides where the
consumer continues. All obstacles are found at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.groups.group_log import OffsetPlace
from recovery.groups.members import GroupKind
from storage.file_names import TopicPartition
from storage.formats.consumer_offsets import OffsetKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.groups.group_log import GroupCommit, GroupLog, LogPlaces, LogReach
    from recovery.groups.members import GroupState
    from recovery.groups.offset_files import FileOffset
    from storage.formats.consumer_offsets import OffsetCommit

FRESH_MS = 86_400_000  # an equal offset that was committed since then is kept


class Outside(StrEnum):
    """The treatment of an offset outside of its log."""

    REFUSE = "refuse"
    CLAMP = "clamp"  # to the nearer end, like kafka-consumer-groups
    KEEP = "keep"  # unchanged: the consumer's auto.offset.reset decides


class Taken(StrEnum):
    """The result of importing an offset."""

    AS_GIVEN = "as-given"
    CLAMPED = "clamped"
    UNCHANGED = "unchanged"  # committed already
    SKIPPED = "skipped"  # the cluster has no such partition


class ImportObstacle(StrEnum):
    """An obstacle to the import, by the option that overrides it."""

    MEMBERS = "members"
    KIND = "kind"
    PENDING = "pending"
    OUTSIDE = "outside"
    UNKNOWN = "unknown"
    NO_LOG = "no-log"


class IncomingRules(NamedTuple):
    """The user's choices.

    Attributes:
        now_ms: the time of the commits.
        outside: for offsets outside of their logs.
        skips_unknown: skip offsets of partitions that the cluster does not have.
        consumers_are_stopped: the recorded members have stopped.
    """

    now_ms: int
    outside: Outside = Outside.REFUSE
    skips_unknown: bool = False
    consumers_are_stopped: bool = False


class IncomingOffset(NamedTuple):
    """An offset as it is committed.

    Attributes:
        given_offset: as in the file.
        leader_epoch: of the record before it. -1 if not given because the log here has another
            epoch.
        before: the group's committed offset so far.
        reach: of the log. None if it is absent.
    """

    key: OffsetKey
    given_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    taken: Taken
    before: OffsetCommit | None
    reach: LogReach | None

    @property
    def is_written(self) -> bool:
        """Return whether a record has to be appended."""
        return self.taken in {Taken.AS_GIVEN, Taken.CLAMPED}


class Judged(NamedTuple):
    """All offsets, and sentences about the obstacles, by kind."""

    offsets: tuple[IncomingOffset, ...]
    obstacles: dict[ImportObstacle, list[str]]


def judge(
    log: GroupLog,
    places: LogPlaces,
    given: Sequence[tuple[str, FileOffset]],
    rules: IncomingRules,
) -> Judged:
    """Compare offsets with the groups and logs of the cluster.

    Args:
        log: the groups.
        places: the logs.
        given: the offsets, each with its group.
        rules: the user's choices.
    """
    obstacles: dict[ImportObstacle, list[str]] = {each: [] for each in ImportObstacle}
    keys = {OffsetKey(name, found.topic, found.partition) for name, found in given}
    known = log.all_commits()
    commits: dict[OffsetKey, GroupCommit] = {}
    for name in dict.fromkeys(group for group, _ in given):
        group = log.groups.get(name)
        if group is not None:
            _judge_group(group, rules, obstacles)
        for each in known.get(name, ()):
            if each.pending_producer_id is None:
                commits[each.key] = each
            elif each.key in keys:
                obstacles[ImportObstacle.PENDING].append(_reported_pending(each))
    offsets = []
    for group_name, offset in given:
        key = OffsetKey(group_name, offset.topic, offset.partition)
        before = commits.get(key)
        offsets.append(_judge_offset(key, offset, before, places, rules, obstacles))
    return Judged(tuple(offsets), {kind: found for kind, found in obstacles.items() if found})


def _judge_group(
    group: GroupState, rules: IncomingRules, obstacles: dict[ImportObstacle, list[str]]
) -> None:
    if group.kind is GroupKind.SHARE:
        obstacles[ImportObstacle.KIND].append(
            f"{group.group!r} is a share group, whose positions are in __share_group_state"
        )
    elif group.members and not rules.consumers_are_stopped:
        clients = sorted({each.client_id or each.member_id for each in group.members.values()})
        more = ", ..." if len(clients) > 2 else ""
        obstacles[ImportObstacle.MEMBERS].append(
            f"{group.group!r} has {len(group.members)} member(s) by its records"
            f" ({', '.join(clients[:2])}{more}), which commit their own offsets if they are at work"
        )


def _reported_pending(commit: GroupCommit) -> str:
    key = commit.key
    return (
        f"{key.topic}-{key.partition} of {key.group!r} has offset {commit.value.offset} pending in"
        f" an open transaction of producer {commit.pending_producer_id}"
    )


def _judge_offset(
    key: OffsetKey,
    given: FileOffset,
    before: GroupCommit | None,
    places: LogPlaces,
    rules: IncomingRules,
    obstacles: dict[ImportObstacle, list[str]],
) -> IncomingOffset:
    place = TopicPartition(key.topic, key.partition)
    reach = places.of(place)
    offset, taken = given.offset, Taken.AS_GIVEN
    name = f"{key.topic}-{key.partition}"
    if places.is_known(place) is False:
        taken = Taken.SKIPPED
        if not rules.skips_unknown:
            obstacles[ImportObstacle.UNKNOWN].append(
                f"line {given.line}: the cluster has no {name}"
            )
    elif reach is None:
        if rules.outside is not Outside.KEEP:
            obstacles[ImportObstacle.NO_LOG].append(
                f"line {given.line}: no log of {name} is here, which has to have offset {offset}"
            )
    elif reach.place_of(offset) is not OffsetPlace.IN_LOG:
        if rules.outside is Outside.CLAMP:
            offset = min(max(offset, reach.start_offset), reach.end_offset)
            taken = Taken.CLAMPED
        elif rules.outside is Outside.REFUSE:
            obstacles[ImportObstacle.OUTSIDE].append(
                f"line {given.line}: {key.group!r} at {offset} of {name}, which has offsets"
                f" {reach.start_offset}..{reach.end_offset}"
            )
    epoch = -1
    if given.leader_epoch >= 0 and reach is not None and offset == given.offset:
        is_same = reach.leader_epoch_before(offset) == given.leader_epoch
        epoch = given.leader_epoch if is_same else -1
    found = IncomingOffset(
        key=key,
        given_offset=given.offset,
        offset=offset,
        leader_epoch=epoch,
        metadata=given.metadata,
        taken=taken,
        before=None if before is None else before.value,
        reach=reach,
    )
    return found._replace(taken=Taken.UNCHANGED) if _is_there(found, rules) else found


def _is_there(found: IncomingOffset, rules: IncomingRules) -> bool:
    before = found.before
    return (
        found.is_written
        and before is not None
        and before.expire_timestamp_ms < 0
        and (before.offset, before.metadata) == (found.offset, found.metadata)
        and found.leader_epoch in {before.leader_epoch, -1}
        and 0 <= rules.now_ms - before.commit_timestamp_ms < FRESH_MS
    )


def groups_to_renew(
    log: GroupLog, offsets: Iterable[IncomingOffset], now_ms: int
) -> list[GroupState]:
    """Return groups whose offsets would expire relative to an old state, not to their commits.

    A classic group without members keeps the time since when it is empty. Its offsets live for
    offsets.retention.minutes from then on (ClassicGroup.offsetExpirationCondition). A group that
    was empty for a week would lose the imported offsets at once.
    """
    names = dict.fromkeys(each.key.group for each in offsets if each.is_written)
    found = []
    for name in names:
        group = log.groups.get(name)
        if group is None or group.members or group.kind is not GroupKind.CLASSIC:
            continue
        since_ms = group.state_timestamp_ms
        if group.protocol_type and since_ms is not None and since_ms < now_ms:
            found.append(group)
    return found


def emptied_value(group: GroupState, now_ms: int) -> dict[str, object]:
    """Return the record of a classic group without members, as a coordinator writes it now."""
    return {
        "protocolType": group.protocol_type,
        "generation": group.epoch or 0,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": now_ms,
        "members": [],
    }
