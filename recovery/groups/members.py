"""A group and its members, from the newest records that a coordinator would load.

    type     kind      contents
    2        classic   the whole group, generation, protocol, members with their assignments
    3        consumer  epoch of the group (11: of a share group, 17: of a streams group)
    5        consumer  a member, its client, its subscription (10: share, 19: streams)
    6        consumer  epoch of the target assignment (12: share, 20: streams)
    7        consumer  the planned assignment of a member (21: streams)
    8        consumer  the current assignment of a member (14: share, 22: streams)
    15       share     the partitions whose state the share coordinators have
    23       streams   the topology, by its epoch. The group has the validated topology epoch

A tombstone removes the contents of a record. The other types change neither members nor states.

The state is the state in a coordinator that has loaded the records. Members stay, and leave only
when their session times out.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import FormatError
from storage.formats import consumer_offsets
from storage.formats.consumer_offsets import CONSUMER_PROTOCOL_TYPE, GROUP_METADATA_TYPE
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# MemberState of a member with its planned assignment. The states of streams groups begin at 1.
STABLE = 0
STABLE_WITH_TASKS = 1
SHARED_PARTITIONS_TYPE = 15  # ShareGroupStatePartitionMetadata


class GroupKind(StrEnum):
    """The type of a group, as `kafka-groups --list` prints it."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


class RecordNumbers(NamedTuple):
    """The record types of a kind of group. 0: not read."""

    group: int
    member: int
    target: int
    current: int
    planned: int = 0
    topology: int = 0


LAYOUTS = {
    GroupKind.CONSUMER: RecordNumbers(group=3, member=5, target=6, current=8, planned=7),
    GroupKind.SHARE: RecordNumbers(group=11, member=10, target=12, current=14),
    GroupKind.STREAMS: RecordNumbers(
        group=17, member=19, target=20, current=22, planned=21, topology=23
    ),
}
KIND_OF = {number: kind for kind, numbers in LAYOUTS.items() for number in numbers if number}


class Assigned(NamedTuple):
    """Partitions of a topic, or tasks of a subtopology, that a member has.

    `topic` is a name, or a topic id of 16 bytes if only the id is recorded.
    """

    topic: str | bytes
    partitions: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Member:
    """A member. `epoch` is the generation of a classic group. None: not recorded.

    For a classic group `subscription` and `assignment` are the clients' own bytes. For a consumer
    group `planned` is the member's planned assignment, and `revoking` are partitions that it still
    has and must give up. A member with `is_classic` speaks the older protocol. For a streams group
    `client`, `tasks` and `planned_tasks` are the fields of the newest records, if any.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    epoch: int | None = None
    is_stable: bool = True
    assigned: tuple[Assigned, ...] = ()
    subscription: bytes = b""
    assignment: bytes = b""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rack_id: str | None = None
    server_assignor: str | None = None
    is_classic: bool = False
    planned: tuple[Assigned, ...] = ()
    revoking: tuple[Assigned, ...] = ()
    client: Mapping[str, Any] | None = None
    tasks: Mapping[str, Any] | None = None
    planned_tasks: Mapping[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class GroupState:
    """The recorded state of a group.

    Attributes:
        kind: by its last record. A group with nothing but committed offsets is classic.
        protocol_type: of a classic group. "" if it has only committed offsets.
        protocol: the members' way of assigning partitions.
        epoch: generation, or group epoch. None: not recorded.
        topology: the fields of a streams group's topology. None if it has no topology.
        shared: the partitions of a share group whose state is initialized.
        validated_topology_epoch: of the topology whose topics exist. -1: none.
        state_timestamp_ms: since when a classic group is in its state.
    """

    group: str
    partition: int  # of `__consumer_offsets`
    kind: GroupKind = GroupKind.CLASSIC
    protocol_type: str = ""
    protocol: str | None = None
    epoch: int | None = None
    target_epoch: int | None = None
    topology: Mapping[str, Any] | None = None
    shared: tuple[Assigned, ...] = ()
    validated_topology_epoch: int = -1
    state_timestamp_ms: int | None = None
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def topology_epoch(self) -> int | None:
        """The epoch of a streams group's topology. None if it has no topology."""
        return None if self.topology is None else int(self.topology["epoch"])

    @property
    def state(self) -> str:
        """The name of the state after loading the records (ConsumerGroup, StreamsGroup)."""
        if not self.members:
            return "Empty"
        if self.kind in {GroupKind.CLASSIC, GroupKind.SHARE}:
            return "Stable"
        if self.kind is GroupKind.STREAMS and self.topology_epoch != self.validated_topology_epoch:
            return "NotReady"
        if (self.epoch or 0) > (self.target_epoch or 0):
            return "Assigning"
        is_done = all(each.is_stable and each.epoch == self.target_epoch
                      for each in self.members.values())  # fmt: skip
        return "Stable" if is_done else "Reconciling"

    def take(self, number: int, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Take the next record of the group, of a type other than a commit."""
        if number == GROUP_METADATA_TYPE:
            self._take_classic(value)
            return
        if number == SHARED_PARTITIONS_TYPE:  # a coordinator keeps these apart from the group
            self.shared = () if value is None else _topics(value["initializedTopics"])
            return
        kind = KIND_OF.get(number)
        if kind is None:
            return
        numbers = LAYOUTS[kind]
        if value is None:
            if kind is self.kind:
                self._forget(numbers, number, key)
            return
        if kind is not self.kind:  # converted, or deleted and recreated
            self._become(kind)
        if number == numbers.group:
            self.epoch = value["epoch"]
            self.validated_topology_epoch = value.get("validatedTopologyEpoch", -1)
        elif number == numbers.topology:
            self.topology = value
        elif number == numbers.target:
            self.target_epoch = value["assignmentEpoch"]
        else:
            name = key["memberId"]
            member = self.members.setdefault(name, Member(member_id=name))
            if number == numbers.planned and kind is GroupKind.STREAMS:
                member.planned_tasks = value
            elif number == numbers.planned:
                member.planned = _topics(value["topicPartitions"])
            else:
                (_describe if number == numbers.member else _place)(member, value)

    def _forget(self, numbers: RecordNumbers, number: int, key: Mapping[str, Any]) -> None:
        if number == numbers.group:
            self._become(GroupKind.CLASSIC)
        elif number == numbers.topology:
            self.topology = None
        elif number == numbers.member:
            self.members.pop(key["memberId"], None)
        elif number == numbers.planned and key["memberId"] in self.members:
            member = self.members[key["memberId"]]
            member.planned, member.planned_tasks = (), None

    def _become(self, kind: GroupKind) -> None:
        self.kind = kind
        self.protocol_type, self.protocol = "", None
        self.epoch = self.target_epoch = self.state_timestamp_ms = None
        self.topology, self.validated_topology_epoch = None, -1
        self.members = {}

    def _take_classic(self, value: Mapping[str, Any] | None) -> None:
        if value is None:
            if self.kind is GroupKind.CLASSIC:
                self._become(GroupKind.CLASSIC)
            return
        self._become(GroupKind.CLASSIC)
        self.protocol_type = value["protocolType"]
        self.protocol = value["protocol"]
        self.epoch = value["generation"]
        known_ms = value.get("currentStateTimestamp", -1)
        self.state_timestamp_ms = None if known_ms < 0 else known_ms
        for each in value["members"]:
            assigned: tuple[Assigned, ...] = ()
            if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
                assigned = _opaque_assignment(each["assignment"])
            self.members[each["memberId"]] = Member(
                member_id=each["memberId"],
                instance_id=each.get("groupInstanceId"),
                client_id=each["clientId"],
                host=each["clientHost"],
                epoch=self.epoch,
                assigned=assigned,
                subscription=each["subscription"],
                assignment=each["assignment"],
            )


def _describe(member: Member, value: Mapping[str, Any]) -> None:
    member.instance_id = value.get("instanceId")
    member.client_id = value["clientId"]
    member.host = value["clientHost"]
    member.rack_id = value.get("rackId")
    member.topic_names = tuple(value.get("subscribedTopicNames") or ())
    member.topic_regex = value.get("subscribedTopicRegex")
    member.server_assignor = value.get("serverAssignor")
    member.is_classic = value.get("classicMemberMetadata") is not None
    if "processId" in value:
        member.client = value


def _place(member: Member, value: Mapping[str, Any]) -> None:
    member.epoch = value["memberEpoch"]
    tasks = value.get("activeTasks")
    member.is_stable = value["state"] == (STABLE if tasks is None else STABLE_WITH_TASKS)
    if tasks is not None:
        member.tasks = value
        member.assigned = tuple(
            Assigned(each["subtopologyId"], tuple(each["partitions"])) for each in tasks
        )
    else:
        member.assigned = _topics(value["assignedPartitions"])
        member.revoking = _topics(value.get("partitionsPendingRevocation") or ())


def _topics(found: Iterable[Mapping[str, Any]]) -> tuple[Assigned, ...]:
    return tuple(Assigned(each["topicId"], tuple(each["partitions"])) for each in found)


def _opaque_assignment(data: bytes) -> tuple[Assigned, ...]:
    """Return the assignment in the clients' own bytes, which may be anything."""
    with suppress(FormatError):
        fields = consumer_offsets.parse(consumer_offsets.ASSIGNMENT, data)[1]
        found = fields["assignedPartitions"]
        return tuple(Assigned(each["topic"], tuple(each["partitions"])) for each in found)
    return ()


def assigned_names(member: Member, name_of: Callable[[bytes], str | None]) -> list[tuple[str, int]]:
    """Return a member's partitions by topic and number. A topic id without a name stays an id."""
    return names_of(member.assigned, name_of)


def names_of(
    assigned: Iterable[Assigned], name_of: Callable[[bytes], str | None]
) -> list[tuple[str, int]]:
    """Return topics and numbers. A topic id without a name stays an id."""
    found = []
    for each in assigned:
        topic = each.topic
        if isinstance(topic, bytes):
            topic = name_of(topic) or format_uuid(topic)
        found += [(topic, number) for number in each.partitions]
    return sorted(found)
