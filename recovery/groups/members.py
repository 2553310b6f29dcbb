"""A group and its members, by the newest records of it that a coordinator would load.

type     kind      what it says
2        classic   the whole group: generation, protocol, members with their assignments
3        consumer  epoch of the group (11: of a share group, 17: of a streams group)
5        consumer  a member: its client, what it subscribes to (10: share, 19: streams)
6        consumer  epoch of the target assignment (12: share, 20: streams)
7        consumer  what a member shall have
8        consumer  what a member has now (14: share, 22: streams)
23       streams   the topology, by its epoch; the group says which one of them was validated
A tombstone takes away what a record said. The other types change neither members nor states.

The state is the one that a coordinator has when it has loaded the records: members are kept, and
leave only when their session times out.
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

# MemberState of a member that has what it should have; of streams groups the states count from 1.
STABLE = 0
STABLE_WITH_TASKS = 1


class GroupKind(StrEnum):
    """What `kafka-groups --list` calls the type of a group."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


class RecordNumbers(NamedTuple):
    """Which record types tell what of a kind of group; 0: what is not looked at."""

    group: int
    member: int
    target: int
    current: int
    planned: int = 0
    topology: int = 0


LAYOUTS = {
    GroupKind.CONSUMER: RecordNumbers(group=3, member=5, target=6, current=8, planned=7),
    GroupKind.SHARE: RecordNumbers(group=11, member=10, target=12, current=14),
    GroupKind.STREAMS: RecordNumbers(group=17, member=19, target=20, current=22, topology=23),
}
KIND_OF = {number: kind for kind, numbers in LAYOUTS.items() for number in numbers if number}


class Assigned(NamedTuple):
    """Partitions of a topic, or tasks of a subtopology, that a member has.

    `topic` is a name or, where only that is recorded, a topic id of 16 bytes.
    """

    topic: str | bytes
    partitions: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Member:
    """A member; `epoch` is the generation of a classic group; what is not recorded is None.

    Of a classic group `subscription` and `assignment` are the clients' own bytes. Of a consumer
    group `planned` is what the member shall have; one that `is_classic` speaks the older protocol.
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


@dataclass(slots=True, kw_only=True)
class GroupState:
    """What is recorded of a group.

    Attributes:
        kind: by its last record; a group with committed offsets alone is a classic one.
        protocol_type: of a classic group; "" if it has only committed offsets.
        protocol: how partitions are assigned, as the members agreed.
        epoch: generation, or group epoch; None: nothing is recorded.
        topology_epoch: of a streams group; None: it has no topology.
        validated_topology_epoch: the one whose topics were found to be there; -1: none.
        state_timestamp_ms: since when a classic group is in its state.
    """

    group: str
    partition: int  # of `__consumer_offsets`
    kind: GroupKind = GroupKind.CLASSIC
    protocol_type: str = ""
    protocol: str | None = None
    epoch: int | None = None
    target_epoch: int | None = None
    topology_epoch: int | None = None
    validated_topology_epoch: int = -1
    state_timestamp_ms: int | None = None
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The name of the state, once the records are loaded (ConsumerGroup, StreamsGroup)."""
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
        kind = KIND_OF.get(number)
        if kind is None:
            return
        numbers = LAYOUTS[kind]
        if value is None:
            if kind is self.kind:
                self._forget(numbers, number, key)
            return
        if kind is not self.kind:  # converted, or deleted and made anew
            self._become(kind)
        if number == numbers.group:
            self.epoch = value["epoch"]
            self.validated_topology_epoch = value.get("validatedTopologyEpoch", -1)
        elif number == numbers.topology:
            self.topology_epoch = value["epoch"]
        elif number == numbers.target:
            self.target_epoch = value["assignmentEpoch"]
        else:
            name = key["memberId"]
            member = self.members.setdefault(name, Member(member_id=name))
            if number == numbers.planned:
                member.planned = _topics(value["topicPartitions"])
            else:
                (_describe if number == numbers.member else _place)(member, value)

    def _forget(self, numbers: RecordNumbers, number: int, key: Mapping[str, Any]) -> None:
        if number == numbers.group:
            self._become(GroupKind.CLASSIC)
        elif number == numbers.topology:
            self.topology_epoch = None
        elif number == numbers.member:
            self.members.pop(key["memberId"], None)
        elif number == numbers.planned and key["memberId"] in self.members:
            self.members[key["memberId"]].planned = ()

    def _become(self, kind: GroupKind) -> None:
        self.kind = kind
        self.protocol_type, self.protocol = "", None
        self.epoch = self.target_epoch = self.state_timestamp_ms = None
        self.topology_epoch, self.validated_topology_epoch = None, -1
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


def _place(member: Member, value: Mapping[str, Any]) -> None:
    member.epoch = value["memberEpoch"]
    tasks = value.get("activeTasks")
    member.is_stable = value["state"] == (STABLE if tasks is None else STABLE_WITH_TASKS)
    if tasks is not None:
        member.assigned = tuple(
            Assigned(each["subtopologyId"], tuple(each["partitions"])) for each in tasks
        )
    else:
        member.assigned = _topics(value["assignedPartitions"])


def _topics(found: Iterable[Mapping[str, Any]]) -> tuple[Assigned, ...]:
    return tuple(Assigned(each["topicId"], tuple(each["partitions"])) for each in found)


def _opaque_assignment(data: bytes) -> tuple[Assigned, ...]:
    """What the members' bytes hold; they are the clients' own, and may be anything."""
    with suppress(FormatError):
        fields = consumer_offsets.parse(consumer_offsets.ASSIGNMENT, data)[1]
        found = fields["assignedPartitions"]
        return tuple(Assigned(each["topic"], tuple(each["partitions"])) for each in found)
    return ()


def assigned_names(member: Member, name_of: Callable[[bytes], str | None]) -> list[tuple[str, int]]:
    """Return what a member has, by topic and number; a topic id without a name stays one."""
    return names_of(member.assigned, name_of)


def names_of(
    assigned: Iterable[Assigned], name_of: Callable[[bytes], str | None]
) -> list[tuple[str, int]]:
    """Return topics and numbers; a topic id without a name stays one."""
    found = []
    for each in assigned:
        topic = each.topic
        if isinstance(topic, bytes):
            topic = name_of(topic) or format_uuid(topic)
        found += [(topic, number) for number in each.partitions]
    return sorted(found)
