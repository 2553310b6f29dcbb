"""`eoctl serve`: large groups, whose members are not held against each other, and large commits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from eoctl.commands.serve import ServeOptions, open_catalogue
from eoctl.serve.answers.groups import COMMITS_AT_ONCE, offset_commit
from eoctl.serve.protocol.messages import RequestError
from eoctl.serve.state.broker import Client, Request, VirtualBroker
from eoctl.serve.state.catalogue import ServeRules
from eoctl.serve.state.members import Asked, Group, LiveMember, Members
from storage.dirs.discovery import discover
from storage.errors import AccessError
from tests import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from eoctl.serve.state.members import PlacedCommit

DEADLINE_S = 60
MEMBERS = 300


def asked(member_id: str, instance_id: str | None, protocols: tuple[str, ...]) -> Asked:
    return Asked(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        host="/127.0.0.1",
        session_ms=600_000,
        rebalance_ms=600_000,
        protocol_type="consumer",
        protocols=dict.fromkeys(protocols, b""),
        needs_known_id=False,
    )


class Counted(dict[str, LiveMember]):
    """Members that count how many of them are looked through."""

    seen_count = 0

    def _seen(self, found: Iterable[Any]) -> Iterator[Any]:
        for each in found:
            self.seen_count += 1
            yield each

    def __iter__(self) -> Iterator[str]:
        return self._seen(super().__iter__())

    def values(self) -> Any:
        return self._seen(super().values())

    def items(self) -> Any:
        return self._seen(super().items())


async def join_all(members: Members, group: Group) -> None:
    """The first one forms a round alone, and comes again when all others are there."""
    first = await members.join("g", asked("", "0", ("range",)))
    joins = [
        asyncio.ensure_future(members.join("g", asked("", str(each), ("range",))))
        for each in range(1, MEMBERS)
    ]
    await asyncio.sleep(0)
    assert len(group.members) == MEMBERS
    again = await members.join("g", asked(first.member_id, "0", ("range",)))
    found = [again, *await asyncio.gather(*joins)]
    assert {each.generation for each in found} == {2}
    (leading,) = (each for each in found if each.members)
    assert len(leading.members) == MEMBERS


def test_who_joins_is_not_held_against_each_member() -> None:
    members, counted = Members(), Counted()
    group = members.groups["g"] = Group("g", members=counted)
    asyncio.run(asyncio.wait_for(join_all(members, group), DEADLINE_S))
    # A round looks at all of them some times; each of those who join at one.
    assert counted.seen_count < 30 * MEMBERS


async def meet_deadlines(members: Members) -> None:
    wishes = asked("", "0", ("range",))._replace(session_ms=45_000, rebalance_ms=700_000)
    before_s = time.monotonic()
    joined = await members.join("g", wishes)
    group = members.groups["g"]
    session_s = group.members[joined.member_id].deadline_s
    assert before_s + 45 <= session_s <= time.monotonic() + 45

    before_s = time.monotonic()
    second = asyncio.ensure_future(members.join("g", asked("", "1", ("range",))))
    await asyncio.sleep(0)  # it waits for the first one to come again
    assert before_s + 700 <= group.join_until_s <= time.monotonic() + 700
    second.cancel()


def test_a_session_and_a_round_last_for_the_milliseconds_asked() -> None:
    asyncio.run(meet_deadlines(Members()))


async def come_again(members: Members, group: Group, counted: Counted) -> None:
    """All static members of a stable group, under new ids; the last one knows another protocol."""
    await join_all(members, group)
    group.state = "Stable"
    counted.seen_count = 0
    leader = group.members[group.leader].asked.instance_id
    for each in range(MEMBERS):
        if str(each) != leader:
            again = await members.join("g", asked("", str(each), ("range",)))
            assert again.generation == 2
            assert again.member_id in group.members
    assert len(group.members) == MEMBERS
    assert counted.seen_count <= MEMBERS  # one of them each time, for the type of all
    counted.seen_count = 0
    joining = asyncio.ensure_future(members.join("g", asked("", "7", ("robin", "range"))))
    await asyncio.wait_for(joining, DEADLINE_S)  # the vote is the same: all know one alone
    assert counted.seen_count > MEMBERS


def test_static_members_that_come_again_are_not_held_against_each_other() -> None:
    members, counted = Members(), Counted()
    group = members.groups["g"] = Group("g", members=counted)
    asyncio.run(asyncio.wait_for(come_again(members, group, counted), DEADLINE_S))


# --- commits


class SavedCommits:
    """What was saved: a list a call. It fails when it is told to."""

    def __init__(self) -> None:
        self.saved: list[Sequence[PlacedCommit]] = []
        self.fails = False

    def __call__(self, group: str, commits: Sequence[PlacedCommit]) -> None:
        assert group == "g"
        if self.fails:
            raise AccessError(OSError(28, "No space left on device"), "commits")
        self.saved.append(commits)


async def committed(broker: VirtualBroker, count: int) -> tuple[set[int], int]:
    """Error codes of a commit of so many offsets, and how often others had their turn."""
    partitions = [
        {"partitionIndex": 0, "committedOffset": each, "committedMetadata": ""}
        for each in range(count)
    ]
    topics = [{"name": "plain", "partitions": partitions}]
    body = {"groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics}
    api = wire.api_named("OffsetCommit")
    client = Client(name="", address="", host="", port=0)
    request = Request(api=api, version=8, body=body, client=client, is_gone=lambda: False)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.ensure_future(take_turns())
    await asyncio.sleep(0)
    before = turns
    answered = await offset_commit(broker, request)
    others.cancel()
    ((topic),) = answered["topics"]
    assert len(topic["partitions"]) == count
    return {each["errorCode"] for each in topic["partitions"]}, turns - before


def test_a_large_commit_keeps_nobody_waiting(golden: Callable[[str], Path]) -> None:
    """It is saved a piece at a time, in its order; what cannot be saved is not committed."""
    count, pieces = 5 * COMMITS_AT_ONCE + 1, 6
    catalogue = open_catalogue(
        discover([str(golden("kafka-4.3.1") / "clean")]), ServeOptions(ServeRules())
    )
    journal = SavedCommits()
    with ThreadPoolExecutor(1) as executor:
        broker = VirtualBroker(catalogue, Members(journal), executor)
        codes, turns = asyncio.run(committed(broker, count))
        assert codes == {0}
        assert turns >= pieces
        assert len(journal.saved) == pieces
        saved = [each.at.offset for piece in journal.saved for each in piece]
        assert saved == [*range(count)]
        journal.fails = True
        codes, _ = asyncio.run(committed(broker, 3))
        assert codes == {-1}
        assert broker.members.groups["g"].commits["plain", 0].offset == count - 1


async def change_at_random(members: Members, group: Group, random: Random) -> None:
    tasks = set()
    for _ in range(400):
        known = [*group.members]
        ours = random.choice([*known, "", ""])
        if random.random() < 0.6 or not known:
            instance = random.choice([None, "a", "b", "c"])
            protocols = tuple(random.sample(["range", "sticky", "robin"], random.randint(2, 3)))
            tasks.add(asyncio.ensure_future(members.join("g", asked(ours, instance, protocols))))
        elif random.random() < 0.8:
            with suppress(RequestError):
                members.leave("g", ours, random.choice([None, "a"]))
        else:
            group.join_until_s = 0.0
            members.expire()
        await asyncio.sleep(0)
        everyone = group.members.items()
        assert group.offers == Counter(
            name for _, each in everyone for name in each.asked.protocols
        )
        assert group.joining == {
            key for key, each in everyone if each.joining is not None and not each.joining.done()
        }
        for name in ("a", "b", "c"):
            of_name = [key for key, each in everyone if each.asked.instance_id == name]
            assert len(of_name) <= 1
            found = group.of_instance(name)
            assert of_name == ([] if found is None else [found.asked.member_id])
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_what_is_known_of_all_members_is_what_each_of_them_says() -> None:
    for seed in range(10):
        members = Members()
        group = members.groups["g"] = Group("g")
        run = change_at_random(members, group, Random(seed))
        asyncio.run(asyncio.wait_for(run, DEADLINE_S))
