"""Members of a classic group, request by request, and all that they are answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from eoctl.serve.protocol.messages import ErrorCode
from tests.wire import Wire, api_named, decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Iterable

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = (
    "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit"
)  # fmt: skip
APIS = (JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT)
NEWEST = (9, 5, 4, 5, 8)  # versions
ID_FIRST_SINCE = 4  # of JoinGroup: a member is given its id before it joins (KIP-394)
MEMBERS_SINCE = 3  # of LeaveGroup: several at a time
SESSION_MS = 6000  # no broker takes less
TIMEOUT_S = 90.0
PAUSE_S = 0.1
TOPIC = "plain"


class Group:
    """A group of one broker: what its members were answered, with names instead of their ids."""

    def __init__(self, bootstrap: str, name: str, versions: tuple[int, ...] = NEWEST) -> None:
        """`versions` are those of `APIS` that its members speak."""
        self.bootstrap = bootstrap
        self.versions = dict(zip(APIS, versions, strict=True))
        self.name = name
        self.reported: list[tuple[Any, ...]] = []
        self._names: dict[str, str] = {}
        self._members: list[Member] = []

    def __enter__(self) -> Self:
        """Wait until its coordinator knows it."""
        deadline_s = time.monotonic() + TIMEOUT_S
        with Wire(self.bootstrap) as wire:
            body = {"groupId": self.name, "memberId": "nobody", "generationId": 1}
            version = self.versions[HEARTBEAT]
            while wire.ask(HEARTBEAT, version, body)["errorCode"] != ErrorCode.UNKNOWN_MEMBER_ID:
                assert time.monotonic() < deadline_s
                time.sleep(PAUSE_S)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._members:
            each.wire.socket.close()

    def member(self, name: str, instance: str | None = None) -> Member:
        """Connect one that has not joined."""
        self._members.append(Member(self, name, instance))
        return self._members[-1]

    def learn(self, member_id: str, name: str) -> None:
        """Take note of an id."""
        self._names[member_id] = name

    def meet(self, member_id: str, name: str) -> None:
        """Take note of an id that may be known."""
        self._names.setdefault(member_id, name)

    def named(self, member_id: str) -> str:
        """Who has an id."""
        return self._names.get(member_id, member_id)

    def report(self, who: str, what: str, code: int, *more: object) -> None:
        """Note an answer."""
        self.reported.append((who, what, ErrorCode(code).name, *more))

    def describe(self) -> None:
        """Note what others are told of it."""
        with Wire(self.bootstrap) as wire:
            (found,) = wire.ask("DescribeGroups", 5, {"groups": [self.name]})["groups"]
        members = sorted(
            (self.named(each["memberId"]), each["groupInstanceId"], each["memberAssignment"])
            for each in found["members"]
        )
        self.reported.append(("described", found["groupState"], found["protocolData"], members))


class Member:
    """A client of its own."""

    def __init__(self, group: Group, name: str, instance: str | None) -> None:
        self.group = group
        self.name = name
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.wire = Wire(group.bootstrap, timeout_s=TIMEOUT_S)

    def _send(self, name: str, body: dict[str, Any]) -> None:
        asked = {"groupId": self.group.name, **body}
        self.wire.send(encoded(api_named(name), self.group.versions[name], asked))

    def _receive(self, name: str) -> dict[str, Any]:
        return decoded(api_named(name), self.group.versions[name], self.wire.receive())

    @property
    def _me(self) -> dict[str, Any]:
        return {
            "memberId": self.id,
            "generationId": self.generation,
            "groupInstanceId": self.instance,
        }

    def ask_to_join(self, protocols: Iterable[str] = ("range",)) -> None:
        """Send JoinGroup, and do not wait."""
        offered = [{"name": each, "metadata": self.name.encode()} for each in protocols]
        self._send(JOIN, {
            "sessionTimeoutMs": SESSION_MS, "rebalanceTimeoutMs": SESSION_MS,
            "memberId": self.id, "groupInstanceId": self.instance, "protocolType": "consumer",
            "protocols": offered, "reason": None,
        })  # fmt: skip

    def joined(self) -> int:
        """Wait for the answer; returns its error."""
        found = self._receive(JOIN)
        if found["memberId"]:
            self.id = found["memberId"]
            self.group.learn(self.id, self.name)
        self.generation = found["generationId"]
        named = self.group.named
        for each in found["members"]:  # an older member has no id before it has joined
            self.group.meet(each["memberId"], each["metadata"].decode())
        members = sorted((each.get("groupInstanceId") or named(each["memberId"]), each["metadata"]) for each in found["members"])  # fmt: skip
        self.group.report(
            self.name, "join", found["errorCode"], found["generationId"], found["protocolName"],
            named(found["leader"]), found.get("skipAssignment"), members,
        )  # fmt: skip
        return int(found["errorCode"])

    def join(self, protocols: Iterable[str] = ("range",)) -> None:
        """Ask to join, with the id that it is given if it needs one, and wait for nobody."""
        self.ask_to_join(protocols)
        is_id_first = self.group.versions[JOIN] >= ID_FIRST_SINCE
        if not self.id and self.instance is None and is_id_first:
            self.joined()
            self.ask_to_join(protocols)

    def ask_to_sync(self, *others: Member) -> None:
        """Send SyncGroup, with assignments if it leads."""
        assignments = [
            {"memberId": each.id, "assignment": f"{each.name} {each.generation}".encode()}
            for each in others
        ]
        self._send(SYNC, {
            **self._me, "protocolType": "consumer", "protocolName": "range",
            "assignments": assignments,
        })  # fmt: skip

    def synced(self) -> None:
        """Wait for the answer."""
        found = self._receive(SYNC)
        self.group.report(self.name, "sync", found["errorCode"], found["assignment"])

    def heartbeat(self) -> int:
        """Send one, and note nothing."""
        self._send(HEARTBEAT, self._me)
        return int(self._receive(HEARTBEAT)["errorCode"])

    def beats(self) -> None:
        """Note what a heartbeat is answered."""
        self.group.report(self.name, "heartbeat", self.heartbeat())

    def beat_until_called(self, *others: Member) -> None:
        """Send heartbeats until it is told something else than that all is well."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not (code := self.heartbeat()):
            assert time.monotonic() < deadline_s
            for each in others:
                each.heartbeat()
            time.sleep(PAUSE_S)
        self.group.report(self.name, "heartbeat", code)

    def commits(self, generation: int | None = None) -> None:
        """Note what a commit is answered."""
        offsets = [{"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}]
        self._send(COMMIT, {
            "memberId": self.id, "groupInstanceId": self.instance,
            "generationIdOrMemberEpoch": self.generation if generation is None else generation,
            "topics": [{"name": TOPIC, "partitions": offsets}],
        })  # fmt: skip
        (topic,) = self._receive(COMMIT)["topics"]
        self.group.report(self.name, "commit", topic["partitions"][0]["errorCode"])

    def leaves(self, member_id: str | None = None) -> None:
        """Note what leaving is answered."""
        one = {"memberId": self.id if member_id is None else member_id, "groupInstanceId": self.instance, "reason": None}  # fmt: skip
        is_one = self.group.versions[LEAVE] < MEMBERS_SINCE
        self._send(LEAVE, {"memberId": one["memberId"]} if is_one else {"members": [one]})
        found = self._receive(LEAVE)
        self.group.report(self.name, "leave", found["errorCode"], [each["errorCode"] for each in found.get("members", ())])  # fmt: skip


def settle(leader: Member, *others: Member) -> None:
    """End a round that all have asked to join: they are told, and get their assignments."""
    for each in (leader, *others):
        each.joined()
    for each in others:
        each.ask_to_sync()
    leader.ask_to_sync(leader, *others)
    for each in (leader, *others):
        each.synced()
