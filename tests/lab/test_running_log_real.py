"""REPL-10 on real brokers' directories: what parted becomes what their brokers made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eoctl.lab.nodes.running_log import (
    LogTerms,
    RunningLog,
    RunningLogDir,
    cut_offset,
    diverging_end,
)
from storage.dirs.topic_settings import LogConfig
from storage.file_names import TopicPartition
from storage.files.fsio import FileSystem
from storage.writing.partition_store import FlushPolicy
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


DIV = TopicPartition("div", 0)
CALM = TopicPartition("calm", 0)
LEADER, FOLLOWERS = 2, (1, 3)
AT_MS = 1_700_000_000_000


def rejoin(leader: RunningLog, follower: RunningLog) -> list[int]:
    """Fetch until the follower has all; returns where it was cut."""
    cuts = []
    while True:
        diverging = diverging_end(
            leader.epochs,
            leader.end_offset,
            last_epoch=follower.last_epoch,
            fetch_offset=follower.end_offset,
        )
        if diverging is not None:
            offset = cut_offset(follower.epochs, follower.end_offset, diverging)
            cuts.append(offset)
            assert follower.cut(offset) == offset
            continue
        batches = leader.read(follower.end_offset, leader.end_offset, 2000)
        if not batches:
            return cuts
        follower.follow(batches)


def test_repl_10_diverged_replicas_become_what_their_brokers_made_of_them(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    source = golden("kafka-4.3.1-three-brokers")
    terms = LogTerms(
        fs=FileSystem(), config=LogConfig(), now_ms=lambda: AT_MS, flush=FlushPolicy.SEGMENT
    )
    nodes = {}
    for node in (1, 2, 3):
        path = copy_log_dir(source / "diverged" / f"broker-{node}", tmp_path / f"broker-{node}")
        nodes[node] = RunningLogDir(str(path), (DIV, CALM), terms)
    for key in (DIV, CALM):  # broker 2 was elected once more as it was started
        nodes[LEADER].replicas[key].begin_epoch(3)
    cuts = {
        (node, key.topic): rejoin(nodes[LEADER].replicas[key], nodes[node].replicas[key])
        for node in FOLLOWERS
        for key in (DIV, CALM)
    }
    assert cuts[1, "div"] == [36]
    for each in nodes.values():
        each.close({}, 9)
    for node in (1, 2, 3):
        for key in ("div-0", "calm-0"):
            ours, real = (
                tmp_path / f"broker-{node}" / key,
                source / "after" / f"broker-{node}" / key,
            )
            patterns = ("*.log", "leader-epoch-checkpoint", "*.snapshot")
            names = {path.name for pattern in patterns for path in real.glob(pattern)}
            assert names == {path.name for pattern in patterns for path in ours.glob(pattern)}
            different = [
                each for each in names if (ours / each).read_bytes() != (real / each).read_bytes()
            ]
            assert not different
            assert len(names) >= 3


@pytest.mark.parametrize("node", FOLLOWERS)
def test_it_would_be_seen_if_the_cut_were_wrong(
    golden: Callable[[str], Path], tmp_path: Path, node: int
) -> None:
    """Broker 1 has a tail of its own; a follower that went on behind it would keep that."""
    source = golden("kafka-4.3.1-three-brokers") / "diverged"
    logs = [(source / f"broker-{each}" / "div-0" / f"{0:020d}.log") for each in (LEADER, node)]
    leader, follower = (each.read_bytes() for each in logs)
    assert (follower == leader[: len(follower)]) == (node != 1)
