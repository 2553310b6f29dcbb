"""Offsets of share groups, as a share coordinator has them once it has loaded its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from recovery.groups.share_states import ShareLog, SharePartition, ShareState
from storage.dirs.cluster_image import load_cluster_image
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.formats.coordinator_record import CoordinatorRecord
from storage.formats.share_group_state import SNAPSHOT_TYPE, UPDATE_TYPE
from storage.producers.java_hash_map import coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = SharePartition("g", b"\1" * 16, 3)


def record(number: int, value: dict[str, Any] | None) -> CoordinatorRecord:
    key = {"groupId": KEY.group, "topicId": KEY.topic_id, "partition": KEY.partition}
    return CoordinatorRecord(number, key, 0, value, None)


def snapshot(start: int, *, epoch: int = 0, count: int = 0) -> CoordinatorRecord:
    value = {"startOffset": start, "leaderEpoch": epoch, "deliveryCompleteCount": count}
    return record(SNAPSHOT_TYPE, value)


def update(start: int, *, epoch: int = -1, count: int = 0) -> CoordinatorRecord:
    return snapshot(start, epoch=epoch, count=count)._replace(type=UPDATE_TYPE)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([snapshot(5, epoch=1, count=2)], ShareState(5, 1, 2)),
        ([snapshot(5), snapshot(-1)], ShareState(-1, 0, 0)),
        ([snapshot(5, epoch=1), update(-1, count=3)], ShareState(5, 1, 3)),
        ([snapshot(5, epoch=1), update(9, epoch=4)], ShareState(9, 4, 0)),
        ([update(9, epoch=4, count=1)], ShareState(9, 4, 1)),
        ([snapshot(5), record(SNAPSHOT_TYPE, None)], None),
        ([snapshot(5), record(UPDATE_TYPE, None)], ShareState(5, 0, 0)),
        # As 4.0 wrote it: without a complete count.
        ([record(SNAPSHOT_TYPE, {"startOffset": 5, "leaderEpoch": 0})], ShareState(5, 0, -1)),
    ],
)  # fmt: skip
def test_records_in_their_order(
    records: list[CoordinatorRecord], expected: ShareState | None
) -> None:
    log = ShareLog([])
    for each in records:
        log._take(0, each)
    assert log.states.get(KEY) == expected


def test_records_of_another_partition_do_not_count() -> None:
    log = ShareLog([])
    log.partitions_count = 3
    home = coordinator_partition("g:AQEBAQEBAQEBAQEBAQEBAQ:3", 3)
    for number in range(3):
        if number != home:
            log._take(number, snapshot(5))
    assert not log.states
    assert not log.has_all_of(KEY)
    log.partitions[home] = True
    log._take(home, snapshot(5))
    assert log.has_all_of(KEY)
    assert [*log.states] == [KEY]


def test_real_groups(golden: Callable[[str], Path]) -> None:
    """Start offsets and complete counts are those of a broker's answer."""
    places = [golden("kafka-4.4.0") / "killed" / each for each in ("one", "two")]
    log_dirs = discover([*map(str, places)]).log_dirs
    (directory,) = [
        each for each in log_dirs[0].partitions if each.name.topic == "__cluster_metadata"
    ]
    log = ShareLog(log_dirs, load_cluster_image(Partition(directory, log_dirs[0])))
    found = {(key.group, key.partition): state for key, state in log.states.items()}
    assert found["rejecting", 0] == ShareState(1, 0, 11)
    assert found["accepting", 0] == ShareState(12, 0, 0)
    assert all(log.has_all_of(each) for each in log.states)
    assert not log.problems
