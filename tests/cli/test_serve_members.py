"""`eoctl serve`: large groups, whose members are not held against each other one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from eoctl.serve.errors import RequestError
from eoctl.serve.members import Asked, Group, LiveMember, Members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
