"""Partitions of internal topics: which one holds a key, and which copy of it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.cluster.coordinator_log import CoordinatorLog, find_copies, furthest
from storage.dirs.log_dir import read_log_dir
from storage.producers.java_hash_map import coordinator_partition
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("my-tx", 11),
        ("g", 3),
        ("console-consumer-12345", 6),
        ("café", 21),
        ("polygenelubricants", 0),  # the smallest number, which has no absolute value
        ("", 0),
    ],
)
def test_the_partition_of_a_key(key: str, partition: int) -> None:
    assert coordinator_partition(key, 50) == partition


@pytest.mark.parametrize("state", ["clean", "crash", "tv2", "tv2-clean"])
def test_brokers_put_ids_where_the_hash_says(state: str, golden: Callable[[str], Path]) -> None:
    log = CoordinatorLog([read_log_dir(golden("kafka-4.3.1") / state)])
    assert len(log.ids) >= 9
    assert all(coordinator_partition(name, 4) == each.partition for name, each in log.ids.items())


def test_the_copy_that_reaches_furthest(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Of two nodes, one of which was cut: the other one's, whatever the order is."""
    whole = read_log_dir(golden("kafka-4.3.1") / "clean")
    cut = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "cut")
    log = cut / "__transaction_state-1" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-100])
    for log_dirs in ([whole, read_log_dir(cut)], [read_log_dir(cut), whole]):
        copies, problems = find_copies(log_dirs, "__transaction_state")
        assert (sorted(copies), problems) == ([0, 1, 2, 3], [])
        assert [len(each) for each in copies.values()] == [2] * 4
        (chosen,) = furthest(copies[1])
        assert str(tmp_path) not in chosen.path
        state = CoordinatorLog(log_dirs).ids["open-2"].state
        assert state is not None
        assert state.status.label == "Ongoing"


def test_a_longer_log_of_an_older_leader_reaches_less_far(golden: Callable[[str], Path]) -> None:
    """After an unclean election: what the leader before has alone is no part of the log any more."""
    diverged = golden("kafka-4.3.1-three-brokers") / "diverged"
    log_dirs = [read_log_dir(diverged / f"broker-{each}") for each in (1, 2, 3)]
    for order in (log_dirs, log_dirs[::-1]):
        (chosen,) = furthest(find_copies(order, "div")[0][0])
        assert "/broker-2/" in chosen.path
