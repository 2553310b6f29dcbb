"""Rejoins of real logs at every place: the leader's batches, one by one, in segments of their own."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.replay.snapshots import Clock
from recovery.replicas.compare import find_follow_offset, read_replica
from recovery.replicas.rejoin import assign_epoch, plan_rejoin
from storage.dirs.topic_settings import LogConfig
from storage.errors import RefusedError
from storage.formats.checkpoint import LeaderEpochEntry
from tests.diverged_logs import batches_of, begin_epoch, copy_partition, log_of, write_epochs
from tests.truncations import Tree, carry_out, open_partition, read_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "many-producers-0"
CLOCK = Clock(1_795_229_939_000)


@pytest.fixture
def source(golden: Callable[[str], Path]) -> Path:
    """Four segments."""
    return golden("kafka-4.3.1") / "hard" / NAME


def rejoined(one: Path, other: Path, config: LogConfig) -> Tree:
    """The files of a copy after it followed the other one."""
    follower, leader = (read_replica(open_partition(each)) for each in (one, other))
    plan = plan_rejoin(follower, leader, clock=CLOCK, config=config)
    return carry_out(read_tree(one.parent), plan.steps, one.parent)


@pytest.mark.share(1)
@pytest.mark.parametrize("segment_bytes", [1, 30_000, 1 << 30])
def test_at_every_place(source: Path, tmp_path: Path, segment_bytes: int) -> None:
    """However much fits into a segment; files that are derived are those of a rebuild."""
    config = LogConfig(segment_bytes=segment_bytes)
    wanted = log_of(source)
    bases = [base for base, _, _ in batches_of(source)]
    first_bases = [int(path.stem) for path in sorted(source.glob("*.log"))]
    around = [bases.index(each) for each in first_bases]
    places = sorted({*around, *(each + 1 for each in around), *range(3, len(bases), 89)})
    for number, place in enumerate(places):
        one = copy_partition(source, tmp_path / str(number) / NAME)
        begin_epoch(one, bases[place], 6)
        tree = rejoined(one, source, config)
        logs = {name: data for name, data in sorted(tree.items()) if name.endswith(".log")}
        assert b"".join(logs.values()) == wanted, place
        assert tree[f"{NAME}/leader-epoch-checkpoint"] == b"0\n1\n0 0\n" if place else True
        shutil.rmtree(one)
        one.mkdir()
        for name, data in tree.items():
            (one.parent / name).write_bytes(data)
        rebuilt = rebuild_partition(open_partition(one), RebuildSettings(now_ms=CLOCK.now_ms))
        assert rebuilt.cut is None
        derived = dict(rebuilt.files())
        # Before the cut the follower's own files stay, which a rebuild from scratch may differ from.
        first = max(base for base in first_bases if base <= bases[place])
        for name, data in derived.items():
            if name[:20].isdecimal() and int(name[:20]) >= first and "snapshot" not in name:
                assert tree[f"{NAME}/{name}"] == data, (place, name)
        newest = max(name for name in derived if name.endswith(".snapshot"))
        assert tree[f"{NAME}/{newest}"] == derived[newest], place
        shutil.rmtree(one.parent)


def test_a_leader_that_ends_earlier(source: Path, tmp_path: Path) -> None:
    """What it lacks goes; nothing comes."""
    other = copy_partition(source, tmp_path / "b" / NAME)
    last = max(other.glob("*.log"))
    last.write_bytes(b"")
    one = copy_partition(source, tmp_path / "a" / NAME)
    tree = rejoined(one, other, LogConfig())
    logs = [data for name, data in sorted(tree.items()) if name.endswith(".log")]
    assert b"".join(logs) == log_of(other)


E = LeaderEpochEntry


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "wanted"),
    [
        # KIP-101: the follower's epoch goes on where the leader's has ended.
        ("0@0", 73, "0@0 1@36", 66, 36),
        ("0@0 1@36", 66, "0@0", 73, 36),
        # The leader is not elected yet, or has an epoch without batches.
        ("0@0", 36, "0@0", 40, 36),
        ("0@0", 40, "0@0", 36, 36),
        ("0@0 3@66", 66, "0@0", 66, 66),
        # KIP-279: epochs that only one of them knows; the leader is asked again.
        ("0@0 2@10", 20, "0@0 1@15 3@25", 30, 10),
        ("0@0 4@10 5@20", 30, "0@0 3@12 6@40", 50, 10),
        ("1@0 2@10", 20, "1@0 2@10 4@18", 40, 18),
        # Not one in common: nothing of the follower's can stay.
        ("3@5 4@9", 12, "0@0 1@8", 10, 5),
    ],
)
def test_where_a_follower_is_cut(
    source: Path, tmp_path: Path, ours: str, our_end: int, theirs: str, their_end: int, wanted: int
) -> None:
    log = read_replica(open_partition(source))

    def of(text: str, end: int) -> object:
        entries = [E(*map(int, each.split("@"))) for each in text.split()]
        return log._replace(epochs=tuple(entries), end_offset=end)

    assert find_follow_offset(of(ours, our_end), of(theirs, their_end)) == wanted


def test_epochs_are_noted_as_by_an_append() -> None:
    """EPOCH-1."""
    noted = partial(assign_epoch, [E(0, 0), E(2, 10)])
    assert noted(E(2, 15)) == [E(0, 0), E(2, 10)]
    assert noted(E(3, 15)) == [E(0, 0), E(2, 10), E(3, 15)]
    assert noted(E(3, 10)) == [E(0, 0), E(3, 10)]
    assert noted(E(1, 20)) == [E(0, 0), E(1, 20)]
    assert assign_epoch([], E(4, 7)) == [E(4, 7)]


def test_nothing_in_common(source: Path, tmp_path: Path) -> None:
    one = copy_partition(source, tmp_path / NAME)
    for path in sorted(one.glob("*.log"))[:2]:
        path.unlink()
    write_epochs(one, ["7 0"])
    logs = [read_replica(open_partition(each)) for each in (one, source)]
    with pytest.raises(RefusedError, match="has nothing in common"):
        plan_rejoin(*logs, clock=CLOCK, config=LogConfig())
