"""Consumer groups that clients form here: the classic protocol, in memory, and their commits.

A group begins with the commits of the dead cluster's group of that name. A round of joining ends
when all members have asked to join or its time is up. Then the leader's client assigns the
partitions. Only commits that `journal` has received outlive the program.

All of this runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from eoctl.serve.protocol.messages import ErrorCode, RequestError
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import os_errors
from storage.files.fsio import FileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


NO_GENERATION = -1
MIN_SESSION_MS, MAX_SESSION_MS = 6_000, 1_800_000
MAX_METADATA_CHARS = 4096
MAX_MEMBERS = 10_000
MAX_GROUPS = 10_000
PENDING_S = 60.0


class CommittedAt(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


class PlacedCommit(NamedTuple):
    """A committed offset of one partition."""

    topic: str
    partition: int
    at: CommittedAt


class Asked(NamedTuple):
    """A member's request to join."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    needs_known_id: bool
    may_skip_assignment: bool = False  # the client can lead without assigning again


class Joined(NamedTuple):
    """The result of a round for a member. Only the leader gets `members`.

    `skips_assignment`: the member leads, and the assignment stays.
    """

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...]
    skips_assignment: bool = False


@dataclass(slots=True)
class LiveMember:
    """A member. `joining` and `syncing` are the responses that it waits for."""

    asked: Asked
    deadline_s: float
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[bytes] | None = None


@dataclass(slots=True)
class Group:
    """A group with members, or with its commits."""

    name: str
    generation: int = 0
    state: str = "Empty"
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, LiveMember] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)  # ids of clients to join again
    commits: dict[tuple[str, int], CommittedAt] = field(default_factory=dict)
    join_until_s: float = 0.0
    # Indexes of the members, so that a join does not compare with every member:
    statics: dict[str, str] = field(default_factory=dict)  # static name -> id
    offers: Counter[str] = field(default_factory=Counter)  # protocol -> how many members support it
    joining: set[str] = field(default_factory=set)  # members that wait for the others

    def enter(self, asked: Asked) -> LiveMember:
        """Add a member, or update the request of a member."""
        member = self.members.get(asked.member_id)
        if member is None:
            member = self.members[asked.member_id] = LiveMember(asked, 0.0)
        else:
            self._uncount(member.asked)
            member.asked = asked
        self._count(asked)
        return member

    def drop(self, member_id: str) -> LiveMember:
        """Remove a member."""
        member = self.members.pop(member_id)
        self._uncount(member.asked)
        self.joining.discard(member_id)
        return member

    def replace(self, before: LiveMember, member: LiveMember) -> None:
        """Replace a member by its successor."""
        self._uncount(before.asked)
        self.joining.discard(before.asked.member_id)
        del self.members[before.asked.member_id]
        self.members[member.asked.member_id] = member
        self._count(member.asked)

    def _count(self, asked: Asked) -> None:
        self.offers.update(asked.protocols.keys())
        if asked.instance_id is not None:
            self.statics[asked.instance_id] = asked.member_id

    def _uncount(self, asked: Asked) -> None:
        for each in asked.protocols:
            self.offers[each] -= 1
            if not self.offers[each]:
                del self.offers[each]
        if asked.instance_id is not None and self.statics.get(asked.instance_id) == asked.member_id:
            del self.statics[asked.instance_id]

    def has(self, member_id: str, generation: int, instance_id: str | None = None) -> LiveMember:
        """Return a member. Raises RequestError: it is not a member, or of another generation."""
        member = self.members.get(member_id)
        if instance_id is not None:
            other = self.of_instance(instance_id)
            if other is not None and other.asked.member_id != member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID)
        if member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def everyone(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return ids, static names and metadata of all members, for the leader's assignment."""
        return tuple(
            (key, each.asked.instance_id, each.asked.protocols[self.protocol])
            for key, each in self.members.items()
        )

    def of_instance(self, instance_id: str) -> LiveMember | None:
        """Return the static member with that name."""
        return self.members.get(self.statics.get(instance_id, ""))


class Members:
    """All groups."""

    def __init__(
        self, journal: Callable[[str, Sequence[PlacedCommit]], None] | None = None
    ) -> None:
        """Make an empty set of groups. `journal` gets all commits, with the name of the group."""
        self.groups: dict[str, Group] = {}
        self._journal = journal

    def _group(self, name: str) -> Group:
        if not name:
            raise RequestError(ErrorCode.INVALID_GROUP_ID)
        found = self.groups.get(name)
        if found is None:
            if len(self.groups) >= MAX_GROUPS:
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            found = self.groups[name] = Group(name)
        return found

    def _known(self, name: str) -> Group:
        if not name:
            raise RequestError(ErrorCode.INVALID_GROUP_ID)
        found = self.groups.get(name)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return found

    # --- joining

    async def join(self, name: str, asked: Asked) -> Joined:
        """Join, and wait until all members have joined. Raises RequestError."""
        if not MIN_SESSION_MS <= asked.session_ms <= MAX_SESSION_MS:
            raise RequestError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._group(name)
        self._require_protocol(group, asked)
        static = None if asked.instance_id is None else group.of_instance(asked.instance_id)
        if static is not None and not asked.member_id:
            asked = asked._replace(member_id=_new_id(asked))
            if (joined := self._take_over(group, static, asked)) is not None:
                return joined
        else:
            asked = self._admitted(group, asked)
        if asked.member_id not in group.members and len(group.members) >= MAX_MEMBERS:
            raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = group.enter(asked)
        _touch(member)
        loop = asyncio.get_running_loop()
        if member.joining is None or member.joining.done():
            member.joining = loop.create_future()
            group.joining.add(asked.member_id)
        waiting = member.joining
        self._rebalance(group)
        return await asyncio.shield(waiting)

    def _admitted(self, group: Group, asked: Asked) -> Asked:
        """Assign an id to a new member, or verify the id of a member."""
        if not asked.member_id:
            new_id = _new_id(asked)
            if asked.needs_known_id and asked.instance_id is None:
                if len(group.pending) >= MAX_MEMBERS:
                    raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED)
                group.pending[new_id] = time.monotonic() + PENDING_S
                raise RequestError(ErrorCode.MEMBER_ID_REQUIRED, new_id)
            return asked._replace(member_id=new_id)
        static = None if asked.instance_id is None else group.of_instance(asked.instance_id)
        if static is not None and static.asked.member_id != asked.member_id:
            raise RequestError(ErrorCode.FENCED_INSTANCE_ID)
        is_pending = group.pending.pop(asked.member_id, None) is not None
        if not is_pending and asked.member_id not in group.members:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return asked

    @staticmethod
    def _take_over(group: Group, before: LiveMember, asked: Asked) -> Joined | None:
        """Give a returning static member its old place, under a new id.

        While the group is stable and its protocol stays the same, no other member is informed.
        Returns None if the member has to join a round.
        """
        old_id, new_id = before.asked.member_id, asked.member_id
        _end(before, ErrorCode.FENCED_INSTANCE_ID)
        member = LiveMember(asked, 0.0, assignment=before.assignment)
        _touch(member)
        group.replace(before, member)
        is_leader = group.leader == old_id
        if is_leader:
            group.leader = new_id
        if group.state != "Stable":
            return None
        if [*before.asked.protocols] != [*asked.protocols]:  # otherwise the vote is the same
            offered = [each.asked.protocols for each in group.members.values()]
            if _voted(offered) != group.protocol:
                return None
        may_skip = is_leader and asked.may_skip_assignment
        return Joined(
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            # An older client would assign again if it led, so it gets its former id as the leader.
            leader=old_id if is_leader and not may_skip else group.leader,
            member_id=new_id,
            members=group.everyone() if may_skip else (),
            skips_assignment=may_skip,
        )

    @staticmethod
    def _require_protocol(group: Group, asked: Asked) -> None:
        if not asked.protocols or not asked.protocol_type:
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not group.members:
            return
        one = next(iter(group.members.values())).asked  # all have the same type
        is_common = any(group.offers[each] == len(group.members) for each in asked.protocols)
        if one.protocol_type != asked.protocol_type or not is_common:
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _rebalance(self, group: Group) -> None:
        """Begin a round of joining unless it has begun. End it if all members have joined."""
        if group.state != "PreparingRebalance":
            group.state = "PreparingRebalance"
            longest = max((each.asked.rebalance_ms for each in group.members.values()), default=0)
            group.join_until_s = time.monotonic() + longest / 1000
            for each in group.members.values():
                if each.syncing is not None and not each.syncing.done():
                    each.syncing.set_exception(RequestError(ErrorCode.REBALANCE_IN_PROGRESS))
                each.syncing = None
        if len(group.joining) == len(group.members):
            self._complete(group)

    def _complete(self, group: Group) -> None:
        """End a round. Members that have not joined are removed."""
        for key in [key for key, each in group.members.items() if not _is_joining(each)]:
            group.drop(key)
        group.joining.clear()
        group.generation += 1
        if not group.members:
            group.state, group.protocol, group.leader = "Empty", "", ""
            return
        group.state = "CompletingRebalance"
        members = group.members
        group.protocol_type = next(iter(members.values())).asked.protocol_type
        group.protocol = _voted([each.asked.protocols for each in members.values()])
        if group.leader not in members:
            group.leader = next(iter(members))
        everyone = group.everyone()
        for key, each in members.items():
            assert each.joining is not None
            _touch(each)
            each.assignment = b""
            each.joining.set_result(
                Joined(
                    generation=group.generation,
                    protocol_type=group.protocol_type,
                    protocol=group.protocol,
                    leader=group.leader,
                    member_id=key,
                    members=everyone if key == group.leader else (),
                )
            )
            each.joining = None

    # --- having joined

    async def sync(
        self,
        name: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        assignments: Mapping[str, bytes],
    ) -> tuple[Group, bytes]:
        """Store the leader's assignments, or wait for the own assignment. Raises RequestError."""
        group = self._known(name)
        member = group.has(member_id, generation, instance_id)
        _touch(member)
        if group.state == "PreparingRebalance":
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state == "CompletingRebalance" and member_id == group.leader:
            group.state = "Stable"
            for key, each in group.members.items():
                each.assignment = assignments.get(key, b"")
                if each.syncing is not None and not each.syncing.done():
                    each.syncing.set_result(each.assignment)
                each.syncing = None
        if group.state == "Stable":
            return group, member.assignment
        member.syncing = asyncio.get_running_loop().create_future()
        return group, await asyncio.shield(member.syncing)

    def heartbeat(
        self, name: str, member_id: str, generation: int, instance_id: str | None
    ) -> None:
        """Keep a member alive. Raises RequestError: it must do something else."""
        group = self._known(name)
        _touch(group.has(member_id, generation, instance_id))
        if group.state == "PreparingRebalance":
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, name: str, member_id: str, instance_id: str | None) -> None:
        """Remove a member. Raises RequestError: it is not a member."""
        group = self._known(name)
        if not member_id and instance_id is not None:
            static = group.of_instance(instance_id)
            member_id = "" if static is None else static.asked.member_id
        elif instance_id is not None:
            static = group.of_instance(instance_id)
            if static is not None and static.asked.member_id != member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID)
        if group.pending.pop(member_id, None) is not None:
            return
        if member_id not in group.members:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._forget(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance(group)

    @staticmethod
    def _forget(group: Group, member_id: str, code: ErrorCode) -> None:
        _end(group.drop(member_id), code)

    def expire(self) -> None:
        """Remove members that were silent too long, and end rounds that take too long."""
        now_s = time.monotonic()
        for group in self.groups.values():
            for key in [key for key, until_s in group.pending.items() if until_s < now_s]:
                del group.pending[key]
            silent = [
                key
                for key, each in group.members.items()
                if each.deadline_s < now_s and not _is_joining(each)
            ]
            for key in silent:
                self._forget(group, key, ErrorCode.UNKNOWN_MEMBER_ID)
            if silent:
                self._rebalance(group)
            elif group.state == "PreparingRebalance" and group.join_until_s < now_s:
                self._complete(group)

    # --- offsets

    def require_may_commit(
        self, name: str, member_id: str, generation: int, instance_id: str | None
    ) -> Group:
        """Require that a member may commit offsets. Raises RequestError."""
        group = self._group(name)
        if generation < 0 and not member_id:
            if group.members:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
            return group
        _touch(group.has(member_id, generation, instance_id))
        if group.state == "CompletingRebalance":
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        return group

    def commit(self, group: Group, commits: Sequence[PlacedCommit]) -> None:
        """Keep committed offsets. Raises AccessError: they could not be saved, and are not kept."""
        if self._journal is not None:
            self._journal(group.name, commits)
        group.commits.update(((each.topic, each.partition), each.at) for each in commits)


def _new_id(asked: Asked) -> str:
    return f"{asked.instance_id or asked.client_id or 'member'}-{uuid4()}"


def _end(member: LiveMember, code: ErrorCode) -> None:
    """End the waiting requests of a removed member with an error."""
    for each in (member.joining, member.syncing):
        if each is not None and not each.done():
            each.set_exception(RequestError(code))
            each.exception()  # mark it as retrieved, as nobody may wait for it


def _touch(member: LiveMember) -> None:
    member.deadline_s = time.monotonic() + member.asked.session_ms / 1000


def _is_joining(member: LiveMember) -> bool:
    return member.joining is not None and not member.joining.done()


def _voted(offered: Sequence[Mapping[str, bytes]]) -> str:
    """Choose the protocol that most members prefer among the protocols that all support."""
    common = set.intersection(*map(set, offered))
    votes = Counter(next(name for name in each if name in common) for each in offered)
    return votes.most_common(1)[0][0]


# -- commits of groups while they are served, as JSON Lines: one object per commit, in order


class CommitFile:
    """A file that commits are appended to. It is created if it does not exist."""

    def __init__(self, path: str) -> None:
        """Open the file.

        Raises:
            RefusedError: it is inside a log dir.
            AccessError: it cannot be written.
        """
        require_outside_log_dirs(path, "name a file elsewhere")
        self._path = path
        self._fs = FileSystem()
        with os_errors(path):
            is_there = Path(path).exists()
            opened = self._fs.open_existing if is_there else self._fs.open_new
            self._file = opened(path)

    def add(self, group: str, commits: Sequence[PlacedCommit]) -> None:
        """Write the commits of a group, in one write. Raises AccessError."""
        rows = (
            {
                "group": group,
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.at.offset,
                "leader_epoch": each.at.leader_epoch,
                "metadata": each.at.metadata,
            }
            for each in commits
        )
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        data = "".join(lines).encode("utf-8", "replace")
        with os_errors(self._path):
            self._fs.write(self._file, data)

    def close(self) -> None:
        """Make the file durable and close it. Raises AccessError."""
        with os_errors(self._path):
            self._fs.fsync(self._file)
            self._fs.close(self._file)
