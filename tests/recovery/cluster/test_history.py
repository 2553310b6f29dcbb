"""What became of a cluster, change by change: of real brokers, and of records made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from recovery.cluster.history import (
    BrokerChange,
    FeatureChange,
    History,
    Moment,
    PartitionChange,
    QuorumLeaderChange,
    SettingChange,
    Unread,
    Why,
    read_history,
    read_state,
)
from storage.dirs.cluster_image import BROKER_RESOURCE, TOPIC_RESOURCE, load_cluster_image
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import UsageError
from storage.formats import cluster_metadata as records
from storage.formats.cluster_metadata import encode_record
from tests.metadata_logs import (
    batch,
    broker,
    change,
    leader_change,
    level,
    partition,
    setting,
    snapshot,
    topic,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.dirs.cluster_image import ClusterImage

T, U = bytes(range(16)), bytes(range(16, 32))
NEW_LEADER = {"leader": 2, "isr": [2]}


def open_log(path: Path) -> Partition:
    (selected,) = discover([path]).selected
    return Partition.of(selected)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    return path


def history_of(path: Path, **options: Any) -> tuple[list[Any], History]:
    history = read_history(open_log(path), **options)
    return list(history), history


def put_snapshot(directory: Path, end_offset: int, *values: bytes, time_ms: int = 0) -> None:
    path = directory / f"{end_offset:020d}-0000000001.checkpoint"
    path.write_bytes(snapshot(*values, time_ms=time_ms))


def seen(changes: list[Any], *kinds: type) -> list[Any]:
    return [each for each in changes if isinstance(each, kinds or PartitionChange)]


def reported(changes: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (each.offset, each.topic, [str(why) for why in each.why])
        for each in seen(changes, PartitionChange)
    ]


def state(image: ClusterImage) -> tuple[Any, ...]:
    return image.topics, image.configs, image.brokers, image.features, image.end_offset


# --- real brokers ---------------------------------------------------------------------------------


def test_what_became_of_three_brokers(golden: Callable[[str], Path]) -> None:
    """One was elected uncleanly, and the two others cut their logs when they came back."""
    path = golden("kafka-4.3.1-three-brokers") / "after" / "broker-2" / "__cluster_metadata-0"
    changes, history = history_of(path, is_wanted=lambda name: name == "div")
    assert history.is_complete
    assert [
        (each.offset, each.after.leader, each.after.leader_epoch, each.after.isr, *each.why)
        for each in seen(changes, PartitionChange)
        if each.offset < 250
    ] == [
        (54, 1, 0, (1, 2, 3), Why.CREATED),
        (89, 1, 0, (1, 3), Why.ISR_SHRINK),
        (98, 1, 0, (1,), Why.ISR_SHRINK),
        (131, 2, 1, (2,), Why.UNCLEAN_ELECTION, Why.ISR_SHRINK, Why.ISR_EXPAND),
        (175, -1, 2, (2,), Why.NO_LEADER),
        (182, 2, 3, (2,), Why.ELECTION),
        (215, 2, 3, (1, 2), Why.ISR_EXPAND, Why.RECOVERED),
        (216, 2, 3, (1, 2, 3), Why.ISR_EXPAND),
    ]
    assert [each.offset for each in seen(changes, PartitionChange) if each.is_unclean] == [131]
    under = [each.offset for each in seen(changes, PartitionChange) if each.is_under_min_isr]
    assert under[0] == 175
    brokers = [
        (each.offset, each.broker_id, *map(str, each.why))
        for each in seen(changes, BrokerChange)
        if each.offset < 130
    ]
    assert (93, 2, "fenced") in brokers
    assert (125, 2, "registered") in brokers
    assert (126, 2, "unfenced") in brokers
    (quorum,) = seen(changes, QuorumLeaderChange)
    assert (quorum.offset, quorum.leader, quorum.voters) == (0, 100, (100,))


@pytest.mark.parametrize(
    "place",
    [
        "kafka-4.3.1/crash", "kafka-4.3.1/tv2-clean", "kafka-4.3.1-two-dirs/one",
        "kafka-3.9.1/one", "kafka-3.3.2/one",
    ],
)  # fmt: skip
def test_the_state_at_the_end_is_the_image(golden: Callable[[str], Path], place: str) -> None:
    archive, _, name = place.partition("/")
    path = golden(archive) / name / "__cluster_metadata-0"
    changes, history = history_of(path)
    image = load_cluster_image(open_log(path))
    assert state(history.image) == state(image)
    assert history.is_complete == image.is_complete
    last = {(each.topic, each.partition): each.after for each in seen(changes, PartitionChange)}
    assert {key: value for key, value in last.items() if value is not None} == {
        (each.name, number): found
        for each in image.topics.values()
        for number, found in each.partitions.items()
    }


def test_each_moment_is_what_the_changes_before_it_come_to(golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1-two-dirs") / "one" / "__cluster_metadata-0"
    changes, history = history_of(path)
    for offset in range(history.start_offset, history.end_offset, 7):
        now = read_state(open_log(path), Moment(offset=offset))
        assert now.end_offset == offset + 1
        last: dict[Any, Any] = {}
        for each in seen(changes, PartitionChange):
            if each.offset <= offset:
                last[each.topic, each.partition] = each.after
        assert {key: value for key, value in last.items() if value is not None} == {
            (each.name, number): found
            for each in now.image.topics.values()
            for number, found in each.partitions.items()
        }


# --- record by record -----------------------------------------------------------------------------


def test_reasons(directory: Path) -> None:
    write_log(
        directory,
        [
            (10, [topic("t", T), partition(T, [1, 2, 3])]),
            (11, [change(T, isr=[2, 3], leader=2)]),
            (12, [change(T, isr=[3], leader=3, eligibleLeaderReplicas=[2])]),
            (13, [change(T, isr=[2], leader=2, eligibleLeaderReplicas=[3])]),
            (14, [change(T, isr=[], leader=-1, eligibleLeaderReplicas=[], lastKnownElr=[2])]),
            (15, [change(T, isr=[2], leader=2, lastKnownElr=[], leaderRecoveryState=1)]),
            (16, [change(T, isr=[2, 1], leaderRecoveryState=0)]),
            (17, [change(T, leader=2)]),
            (18, [change(T, replicas=[1, 2, 3, 4], addingReplicas=[4], removingReplicas=[3])]),
            (19, [change(T, isr=[2, 1, 4])]),
            (20, [change(T, replicas=[1, 2, 4], addingReplicas=[], removingReplicas=[])]),
            (21, [change(T, replicas=[1, 2, 4, 5], addingReplicas=[5])]),
            (22, [change(T, replicas=[1, 2, 4], addingReplicas=[])]),
            (23, [change(T, directories=[b"d" * 16, b"e" * 16, b"f" * 16])]),
            (24, [change(T)]),
            (25, [change(T, isr=[4], leader=3)]),
            (26, [encode_record(records.REMOVE_TOPIC, 0, {"topicId": T})]),
        ],
    )
    changes, history = history_of(directory)
    assert reported(changes) == [
        (1, "t", ["created"]),
        (2, "t", ["election", "ISR shrink"]),
        (3, "t", ["election", "ISR shrink", "ELR"]),
        (4, "t", ["ELR election", "ISR shrink", "ISR expand", "ELR"]),
        (5, "t", ["no leader", "ISR shrink", "ELR"]),
        (6, "t", ["last known election", "ISR expand", "ELR"]),
        (7, "t", ["ISR expand", "recovered"]),
        (8, "t", ["epoch bump"]),
        (9, "t", ["reassignment"]),
        (10, "t", ["ISR expand"]),
        (11, "t", ["reassigned"]),
        (12, "t", ["reassignment"]),
        (13, "t", ["reassignment cancelled"]),
        (14, "t", ["directory"]),
        (15, "t", ["no change"]),
        (16, "t", ["unclean election", "ISR shrink"]),
        (17, "t", ["deleted"]),
    ]
    assert [each.offset for each in changes if each.is_unclean] == [6, 16]
    assert [each.timestamp_ms for each in changes] == list(range(10, 27))
    assert history.image.topics == {}


def test_a_metadata_transaction_comes_with_its_end(directory: Path) -> None:
    begin = encode_record(records.BEGIN_TRANSACTION, 0, {"name": "x"})
    end = encode_record(records.END_TRANSACTION, 0, {})
    abort = encode_record(records.ABORT_TRANSACTION, 0, {"reason": "y"})
    write_log(
        directory,
        [
            (1, [begin, topic("t", T), partition(T, [1])]),
            (2, [change(T, isr=[1]), end]),
            (3, [begin, topic("u", U), partition(U, [1]), abort]),
            (4, [begin, change(T, isr=[])]),
        ],
    )
    changes, history = history_of(directory)
    assert [(each.offset, each.timestamp_ms, each.why[0]) for each in changes] == [
        (4, 2, Why.CREATED),
        (4, 2, Why.NONE),
    ]
    assert history.image.open_transaction_records_count == 1
    assert read_state(open_log(directory), Moment(offset=3)).image.topics == {}
    assert [*read_state(open_log(directory), Moment(offset=4)).image.topics] == ["t"]


def test_a_setting_may_put_a_partition_under_min_isr(directory: Path) -> None:
    name = "min.insync.replicas"
    write_log(
        directory,
        [
            (1, [topic("t", T), partition(T, [1, 2, 3], isr=[1, 2])]),
            (2, [topic("u", U), partition(U, [1])]),
            (3, [setting(BROKER_RESOURCE, "", name, "3")]),
            (4, [setting(TOPIC_RESOURCE, "t", name, "2")]),
            (5, [setting(TOPIC_RESOURCE, "t", "segment.bytes", "1")]),
            (6, [setting(TOPIC_RESOURCE, "t", name, None)]),
            (7, [change(T, isr=[1, 2, 3])]),
            (8, [setting(BROKER_RESOURCE, "", name, None)]),
        ],
    )
    changes, _ = history_of(directory)
    assert [
        (each.offset, each.min_insync_replicas, each.is_under_min_isr, each.why[0])
        for each in seen(changes, PartitionChange)
        if each.topic == "t"
    ] == [
        (1, 1, False, Why.CREATED),
        (4, 3, True, Why.SETTING),
        (5, 2, False, Why.SETTING),
        (7, 3, True, Why.SETTING),
        (8, 3, False, Why.ISR_EXPAND),
    ]
    # One replica never needs more than itself.
    assert [each.offset for each in seen(changes, PartitionChange) if each.topic == "u"] == [3]
    assert [(each.offset, each.before, each.after) for each in seen(changes, SettingChange)] == [
        (4, None, "3"), (5, None, "2"), (6, None, "1"), (7, "2", None), (9, "3", None),
    ]  # fmt: skip


def test_brokers_features_and_the_quorum(directory: Path) -> None:
    registration = encode_record(
        records.BROKER_REGISTRATION_CHANGE,
        3,
        {"brokerId": 1, "brokerEpoch": 5, "fenced": -1, "inControlledShutdown": 1},
    )
    (directory / f"{0:020d}.log").write_bytes(
        leader_change(0, 7, [7, 8, 9], time_ms=5, epoch=2)
        + batch(1, [level("f", 1), broker(1, 5, fenced=True), registration], time_ms=6)
        + leader_change(4, 8, [7, 8, 9], time_ms=4, epoch=3)
        + batch(5, [encode_record(records.FENCE_BROKER, 0, {"id": 1, "epoch": 5})], time_ms=9)
        + batch(6, [broker(1, 6), level("f", 0)], time_ms=9)
        + batch(8, [encode_record(records.UNREGISTER_BROKER, 0, {"brokerId": 1})], time_ms=9)
    )
    changes, history = history_of(directory)
    assert [
        (each.leader, each.epoch, each.voters) for each in seen(changes, QuorumLeaderChange)
    ] == [(7, 2, (7, 8, 9)), (8, 3, (7, 8, 9))]
    assert [[str(why) for why in each.why] for each in seen(changes, BrokerChange)] == [
        ["registered"], ["unfenced", "controlled shutdown"], ["fenced"], ["registered"],
        ["unregistered"],
    ]  # fmt: skip
    assert [(each.before, each.after) for each in seen(changes, FeatureChange)] == [(0, 1), (1, 0)]
    assert history.went_back_offset == 4
    assert history.image.voters == (7, 8, 9)


# --- where it begins and ends ---------------------------------------------------------------------


def test_what_a_snapshot_has_comes_first(directory: Path) -> None:
    put_snapshot(directory, 10, topic("t", T), partition(T, [1, 2]), level("f", 1), time_ms=7)
    put_snapshot(directory, 11, topic("t", T), partition(T, [1, 2], **NEW_LEADER), time_ms=8)
    log = batch(10, [change(T, **NEW_LEADER)], time_ms=8)
    (directory / f"{10:020d}.log").write_bytes(log + batch(11, [change(T, isr=[2, 1])], time_ms=9))
    changes, history = history_of(directory)
    assert [(each.offset, each.timestamp_ms, each.why[0]) for each in seen(changes)] == [
        (9, 7, Why.SNAPSHOT),
        (10, 8, Why.ELECTION),
        (11, 9, Why.ISR_EXPAND),
    ]
    assert history.start_offset == 10
    assert history.is_complete
    with pytest.raises(UsageError, match="before offset 10 is in no file"):
        read_state(open_log(directory), Moment(offset=8))
    with pytest.raises(UsageError, match="before offset 10 is in no file"):
        read_history(open_log(directory), until=Moment(timestamp_ms=6))
    assert read_state(open_log(directory), Moment(offset=9)).start_offset == 10
    assert read_state(open_log(directory), Moment(timestamp_ms=8)).start_offset == 11
    assert read_state(open_log(directory), Moment(offset=11)).start_offset == 11


def test_a_directory_of_snapshots_alone(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    put_snapshot(directory, 10, topic("t", T), time_ms=7)
    put_snapshot(directory, 20, topic("t", T), partition(T, [1, 2]), time_ms=8)
    changes, history = history_of(directory)
    assert reported(changes) == [(19, "t", ["snapshot"])]
    assert (history.start_offset, history.end_offset, history.is_complete) == (20, 20, True)


def test_until_a_moment(directory: Path) -> None:
    write_log(directory, [
        (10, [topic("t", T), partition(T, [1, 2, 3]), change(T, isr=[1, 2])]),
        (20, [change(T, isr=[1])]),
        (15, [change(T, isr=[1, 3])]),
    ])  # fmt: skip
    for until, isr, end_offset in (
        (Moment(offset=0), None, 1),
        (Moment(offset=1), (1, 2, 3), 2),
        (Moment(offset=3), (1,), 4),
        (Moment(offset=99), (1, 3), 5),
        (Moment(timestamp_ms=9), None, 0),
        (Moment(timestamp_ms=19), (1, 2), 3),
        (Moment(timestamp_ms=20), (1, 3), 5),
    ):
        history = read_state(open_log(directory), until)
        found = history.image.partition("t", 0)
        assert (None if found is None else found.isr, history.end_offset) == (isr, end_offset)


# --- damage ---------------------------------------------------------------------------------------


def test_a_gap_is_told_and_the_rest_counts(directory: Path) -> None:
    put_snapshot(directory, 6, topic("t", T), partition(T, [1, 2], isr=[2], leader=2), time_ms=30)
    first = batch(0, [topic("t", T), partition(T, [1, 2])], time_ms=10)
    lost = bytearray(batch(2, [change(T, isr=[2], leader=2)], time_ms=20))
    lost[-3] ^= 0xFF
    later = batch(3, [level("f", 1), level("f", 2), level("f", 3)], time_ms=25)
    last = batch(6, [change(T, isr=[2, 1])], time_ms=40)
    (directory / f"{0:020d}.log").write_bytes(first + lost + later + last)
    changes, history = history_of(directory)
    assert reported(changes) == [
        (1, "t", ["created"]),
        (5, "t", ["snapshot"]),
        (6, "t", ["ISR expand"]),
    ]
    (gap,) = seen(changes, Unread)
    assert (gap.offset, gap.end_offset, gap.timestamp_ms) == (2, 3, 10)
    assert not history.is_complete
    assert history.image.partition("t", 0) == seen(changes)[-1].after


def test_a_damaged_end(directory: Path) -> None:
    first = batch(0, [topic("t", T), partition(T, [1, 2])], time_ms=10)
    lost = bytearray(batch(2, [change(T, isr=[2], leader=2)], time_ms=20))
    lost[-3] ^= 0xFF
    (directory / f"{0:020d}.log").write_bytes(first + lost)
    write_log(directory, [(30, [change(T, isr=[1])])], base_offset=9)
    (directory / f"{9:020d}.log").write_bytes(
        b"\x00" * 8 + (directory / f"{9:020d}.log").read_bytes()[8:]
    )
    changes, history = history_of(directory)
    gaps = [(each.offset, each.end_offset) for each in seen(changes, Unread)]
    assert gaps == [(2, None)]
    assert not history.is_complete


def test_a_torn_tail_is_nothing(directory: Path) -> None:
    write_log(directory, [(1, [topic("t", T), partition(T, [1])])])
    with (directory / f"{0:020d}.log").open("ab") as log:
        log.write(batch(2, [change(T, isr=[])])[:-4])
    changes, history = history_of(directory)
    assert [type(each) for each in changes] == [PartitionChange]
    assert history.is_complete


def test_a_snapshot_ahead_of_its_log(directory: Path) -> None:
    write_log(directory, [(1, [topic("t", T), partition(T, [1, 2])])])
    put_snapshot(directory, 50, topic("u", U), partition(U, [3]), time_ms=9)
    changes, history = history_of(directory)
    assert reported(changes) == [
        (1, "t", ["created"]),
        (49, "t", ["snapshot"]),
        (49, "u", ["snapshot"]),
    ]
    assert [(each.offset, each.end_offset) for each in seen(changes, Unread)] == [(2, 50)]
    assert history.image.end_offset == 50
    assert [*read_state(open_log(directory), Moment(offset=1)).image.topics] == ["t"]


def test_records_that_are_not_understood(directory: Path) -> None:
    broken, newer = b"\x00\x02\x00", b"\x01\xff\x7f\x00"
    write_log(directory, [(1, [topic("t", T), newer, broken, partition(T, [1])])])
    changes, history = history_of(directory)
    assert reported(changes) == [(3, "t", ["created"])]
    assert [(each.offset, each.end_offset) for each in seen(changes, Unread)] == [(1, 2), (2, 3)]
    assert history.image.unknown_records_count == 2
    assert not history.is_complete


def test_nothing_at_all(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    changes, history = history_of(directory)
    assert (changes, history.end_offset, history.problems) == ([], 0, [])
