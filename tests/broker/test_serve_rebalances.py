"""Members of groups are answered by `eoctl serve` as by a broker: rounds, deaths, static members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.broker import Broker, copy_log_dir
from tests.rebalances import NEWEST, Group, settle
from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def both(
    golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A broker over a copy, and what serves the directory."""
    dead = golden("kafka-4.3.1") / "clean"
    copy = copy_log_dir(dead, tmp_path_factory.mktemp("rebalances") / "log-dir")
    with Broker(copy) as broker, Served(dead) as served:
        yield broker.bootstrap, served.bootstrap


def require_same(
    both: tuple[str, str], simulate: Callable[[Group], None], versions: tuple[int, ...] = NEWEST
) -> None:
    """Play it against both, and compare all that its members were told."""
    reported = []
    name = f"{simulate.__name__}-{versions[0]}"
    for bootstrap in both:
        with Group(bootstrap, name, versions) as group:
            simulate(group)
            reported.append(group.reported)
    theirs, ours = reported
    assert len(theirs) > 5
    different = [pair for pair in zip(theirs, ours, strict=False) if pair[0] != pair[1]]
    assert not different, "\n".join(f"{one}\n{other}\n" for one, other in different)
    assert len(ours) == len(theirs)


def come_and_go(group: Group) -> None:
    """One, two, three members; one leaves; all leave."""
    a, b, c = (group.member(each) for each in "abc")
    a.join()
    settle(a)
    a.beats()
    a.commits()
    group.describe()
    b.join()
    a.beat_until_called()
    a.commits()
    a.join()
    settle(a, b)
    group.describe()
    a.commits(1)
    b.commits()
    b.commits(7)
    c.join()
    b.beat_until_called(a)
    a.ask_to_sync(a)
    a.synced()
    for each in (a, b):
        each.join()
    for each in (a, b, c):
        each.joined()
    b.beats()
    b.commits()
    b.ask_to_sync()
    a.ask_to_sync(a, b, c)
    for each in (a, b):
        each.synced()
    c.ask_to_sync()  # late
    c.synced()
    b.leaves()
    b.beats()
    b.leaves()
    b.commits()
    a.beat_until_called(c)
    a.join()
    c.join()
    settle(a, c)
    a.leaves()  # who leads
    c.beat_until_called()
    c.join()
    settle(c)
    group.describe()
    c.leaves()
    group.describe()


def wrong(group: Group) -> None:
    """What does not fit is refused."""
    a, b = group.member("a"), group.member("b")
    a.join(("range", "sticky"))
    settle(a)
    b.ask_to_join(("cooperative",))
    b.joined()
    b.id = "nobody"
    b.ask_to_join()
    b.joined()
    b.beats()
    b.leaves()
    b.ask_to_sync()
    b.synced()
    b.commits(-1)
    a.generation += 1
    a.beats()
    a.ask_to_sync(a)
    a.synced()
    a.generation -= 1
    a.beats()
    a.ask_to_sync(a)  # once more: what it had
    a.synced()
    a.leaves()


def die(group: Group) -> None:
    """A member falls silent; another one does not come back to a round."""
    a, b, c = (group.member(each) for each in "abc")
    a.join()
    settle(a)
    b.join()
    a.beat_until_called()
    a.join()
    settle(a, b)
    a.beat_until_called()  # b is silent for its session's time
    a.join()
    settle(a)
    b.beats()
    b.ask_to_join()
    b.joined()
    c.join()
    settle(c)  # a has not come in time
    a.beats()
    group.describe()
    c.leaves()


def static(group: Group) -> None:
    """Static members come again under a new id, without a round; one leaves by its name."""
    a, b = group.member("a", "first"), group.member("b", "second")
    a.join()
    settle(a)
    b.join()
    a.beat_until_called()
    a.join()
    settle(a, b)
    group.describe()
    again = group.member("b-again", "second")
    again.join()
    again.joined()
    again.ask_to_sync()
    again.synced()
    b.beats()
    b.commits()
    b.ask_to_sync()
    b.synced()
    b.ask_to_join()
    b.joined()
    b.leaves()
    a.beats()
    again.beats()
    group.describe()
    leader = group.member("a-again", "first")
    leader.join()
    leader.joined()
    leader.ask_to_sync()
    leader.synced()
    again.beats()
    a.beats()
    leader.beats()
    other = group.member("other", "third")
    other.leaves("")
    again.leaves("")
    leader.beat_until_called()
    again.beats()


@pytest.mark.exhaustive
@pytest.mark.parametrize("simulate", [come_and_go, wrong, die, static])
def test_members_are_told_the_same(
    both: tuple[str, str], simulate: Callable[[Group], None]
) -> None:
    """Answers in their order, with generations, assignments and errors."""
    require_same(both, simulate)


# Of JoinGroup, SyncGroup, Heartbeat, LeaveGroup and OffsetCommit, as clients of one time have them.
OLDER = {
    "of 0.10": (0, 0, 0, 0, 2),
    "of 2.0": (3, 2, 2, 2, 4),
    "ids first": (4, 2, 2, 2, 6),
    "static members": (5, 3, 3, 3, 7),
    "of 2.4": (6, 4, 4, 4, 8),
    "protocols told": (7, 5, 4, 4, 8),
    "reasons told": (8, 5, 4, 5, 8),
}


@pytest.mark.exhaustive
@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("simulate", "versions"),
    [
        *((come_and_go, each) for each in OLDER),
        *((wrong, each) for each in ("of 0.10", "ids first", "protocols told")),
        *((static, each) for each in ("static members", "of 2.4", "reasons told")),
    ],
)
def test_older_members_are_told_the_same(
    both: tuple[str, str], simulate: Callable[[Group], None], versions: str
) -> None:
    """One leaves by the one name that it has, or in a list; ids come with the round, or before."""
    require_same(both, simulate, OLDER[versions])
