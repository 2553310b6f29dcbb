"""Names, classification, and what the top level of a log dir tells."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.dirs.log_dir import StoppedState, read_log_dir
from storage.errors import AccessError, CorruptError
from storage.file_names import (
    DirState,
    FileKind,
    FileName,
    FileSuffix,
    PartitionName,
    TopicPartition,
    classify,
    parse_partition_name,
)
from storage.files.broker_lock import LockKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.dirs.log_dir import LogDir

BASE = "00000000000000000100"
HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "kind", "suffix", "offset", "epoch"),
    [
        (f"{BASE}.log", FileKind.LOG, "", 100, None),
        (f"{BASE}.index", FileKind.INDEX, "", 100, None),
        (f"{BASE}.timeindex", FileKind.TIMEINDEX, "", 100, None),
        (f"{BASE}.txnindex", FileKind.TXNINDEX, "", 100, None),
        (f"{BASE}.snapshot", FileKind.SNAPSHOT, "", 100, None),
        (f"{BASE}.log.deleted", FileKind.LOG, ".deleted", 100, None),
        (f"{BASE}.index.swap", FileKind.INDEX, ".swap", 100, None),
        (f"{BASE}.timeindex.cleaned", FileKind.TIMEINDEX, ".cleaned", 100, None),
        (f"{BASE}.snapshot.deleted", FileKind.SNAPSHOT, ".deleted", 100, None),
        (f"{BASE}.log.cleaned.deleted", FileKind.LOG, ".deleted", 100, None),
        ("09223372036854775807.log", FileKind.LOG, "", 2**63 - 1, None),
        ("09223372036854775808.log", FileKind.LOG, "", None, None),
        ("99999999999999999999.index", FileKind.INDEX, "", None, None),
        ("5.log", FileKind.LOG, "", 5, None),
        ("server.log", FileKind.LOG, "", None, None),
        (".log", FileKind.LOG, "", None, None),
        ("log", FileKind.UNKNOWN, "", None, None),
        ("12_AAECAwQFBgcICQoLDA0ODw.index", FileKind.INDEX, "", 12, None),
        ("12_AAECAwQFBgcICQoLDA0ODw.txnindex.tmp", FileKind.TXNINDEX, ".tmp", 12, None),
        (f"{BASE}-0000000007.checkpoint", FileKind.CHECKPOINT, "", 100, 7),
        (f"{BASE}-0000000007.checkpoint.deleted", FileKind.CHECKPOINT, ".deleted", 100, 7),
        (f"{BASE}-0000000007-8151.checkpoint.part", FileKind.CHECKPOINT, ".part", 100, 7),
        ("bootstrap.checkpoint", FileKind.CHECKPOINT, "", None, None),
        ("leader-epoch-checkpoint", FileKind.LEADER_EPOCHS, "", None, None),
        ("leader-epoch-checkpoint.tmp", FileKind.LEADER_EPOCHS, ".tmp", None, None),
        ("partition.metadata", FileKind.PARTITION_METADATA, "", None, None),
        ("partition.metadata.tmp", FileKind.PARTITION_METADATA, ".tmp", None, None),
        ("quorum-state", FileKind.QUORUM_STATE, "", None, None),
        ("meta.properties", FileKind.META_PROPERTIES, "", None, None),
        (".kafka_cleanshutdown", FileKind.CLEAN_SHUTDOWN, "", None, None),
        (".lock", FileKind.LOCK, "", None, None),
        ("recovery-point-offset-checkpoint", FileKind.OFFSET_CHECKPOINT, "", None, None),
        ("log-start-offset-checkpoint", FileKind.OFFSET_CHECKPOINT, "", None, None),
        ("replication-offset-checkpoint.tmp", FileKind.OFFSET_CHECKPOINT, ".tmp", None, None),
        ("cleaner-offset-checkpoint", FileKind.OFFSET_CHECKPOINT, "", None, None),
        ("", FileKind.UNKNOWN, "", None, None),
        (".", FileKind.UNKNOWN, "", None, None),
        (".deleted", FileKind.UNKNOWN, "", None, None),
        ("README.deleted", FileKind.UNKNOWN, ".deleted", None, None),
        ("segment.logs", FileKind.UNKNOWN, "", None, None),
    ],
)
def test_classify(
    name: str, kind: FileKind, suffix: str, offset: int | None, epoch: int | None
) -> None:
    assert classify(name) == FileName(name, kind, FileSuffix(suffix), offset, epoch)


def test_padded_offset() -> None:
    assert classify(f"{BASE}.log").has_padded_offset
    assert classify(f"{BASE}.log.deleted").has_padded_offset
    assert not classify("100.log").has_padded_offset
    assert not classify("server.log").has_padded_offset


@given(st.text(max_size=60))
def test_classify_never_fails(name: str) -> None:
    assert classify(name).name == name


def test_every_golden_file_has_a_kind(golden: Callable[[str], Path]) -> None:
    names = {
        path.name
        for archive in ("kafka-4.3.1", "kafka-4.3.1-three-brokers", "kafka-0.10.2-legacy")
        for path in golden(archive).rglob("*")
        if path.is_file()
    }
    assert len(names) > 50
    assert [name for name in names if classify(name).kind is FileKind.UNKNOWN] == []


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("orders-2147483647", "orders", 2**31 - 1),
        ("a-b.c_d-12", "a-b.c_d", 12),
        ("a.b-3", "a.b", 3),
        ("t--1", "t-", 1),
        ("t-+1", "t", 1),
        ("t-007", "t", 7),
        ("__cluster_metadata-0", "__cluster_metadata", 0),
        ("future-0", "future", 0),
    ],
)
def test_live_names(name: str, topic: str, partition: int) -> None:
    assert parse_partition_name(name) == PartitionName(topic, partition, DirState.LIVE)


@pytest.mark.parametrize("state", [DirState.FUTURE, DirState.DELETE, DirState.STRAY])
def test_suffixed_names(state: DirState) -> None:
    name = parse_partition_name(f"my.topic-x-7.{HEX}-{state}")
    assert name == PartitionName("my.topic-x", 7, state, HEX)


def test_a_cut_topic_is_marked() -> None:
    tail = f"-12.{HEX}-delete"
    cut = "x" * (255 - len(tail)) + tail
    assert parse_partition_name(cut) == PartitionName(
        cut.removesuffix(tail), 12, DirState.DELETE, HEX, topic_may_be_cut=True
    )
    assert parse_partition_name(cut[1:]) == PartitionName(
        cut[1:].removesuffix(tail), 12, DirState.DELETE, HEX
    )
    # A future name is never cut, however long it is.
    future = parse_partition_name("x" * 249 + f"-0.{HEX}-future")
    assert future is not None
    assert not future.topic_may_be_cut


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "-0",
        "orders",
        "orders-",
        "orders-x",
        "orders-1.5",
        "orders-2147483648",
        "orders-99999999999999999999999",
        "orders-1_0",
        "orders- 1",
        "lost+found",
        "remote-log-index-cache",
        "orders-0-delete",
        "orders-0.-delete",
        "orders.x-delete",
        f"orders.{HEX}-future",
        f"orders 1-0.{HEX}-stray",
        "-delete",
    ],
)
def test_names_that_a_broker_refuses(name: str) -> None:
    assert parse_partition_name(name) is None


@given(st.text(alphabet="ab-._0", max_size=20), st.integers(0, 2**31 - 1))
def test_partition_names_come_back(topic: str, partition: int) -> None:
    parsed = parse_partition_name(f"{topic}-{partition}")
    assert parsed == (PartitionName(topic, partition, DirState.LIVE) if topic else None)


@given(st.text(max_size=60))
def test_parse_partition_name_never_fails(name: str) -> None:
    parsed = parse_partition_name(name)
    assert parsed is None or (parsed.topic and 0 <= parsed.partition < 2**31)


# --- reading a log dir ----------------------------------------------------------------------------


def test_crashed_log_dir(golden: Callable[[str], Path]) -> None:
    log_dir = read_log_dir(golden("kafka-4.3.1") / "crash")
    assert len(log_dir.partitions) == 24
    assert log_dir.stopped is StoppedState.UNCLEAN
    assert log_dir.lock.kind is LockKind.MISSING
    assert log_dir.meta is not None
    assert log_dir.meta.node_id == 1
    assert log_dir.problems == ()
    assert log_dir.cleaner_offsets == {("compacted", 0): 35}
    assert log_dir.log_start_offsets == {}
    assert log_dir.recovery_points is not None
    assert log_dir.recovery_points["rolled", 0] == 50
    by_name = {str(each.topic_partition): each for each in log_dir.partitions}
    assert log_dir.high_watermark(by_name["txn-0"]) == 311
    assert log_dir.high_watermark(by_name["__cluster_metadata-0"]) is None
    assert log_dir.high_watermark(by_name["trimmed-0"]) is None
    assert log_dir.recovery_point(by_name["txn-0"]) == 0


def test_clean_log_dir(golden: Callable[[str], Path]) -> None:
    log_dir = read_log_dir(golden("kafka-4.3.1") / "clean")
    assert log_dir.clean_shutdown
    assert log_dir.stopped is StoppedState.CLEAN
    assert log_dir.high_watermarks == log_dir.recovery_points
    assert log_dir.is_log_dir


def test_legacy_log_dir(golden: Callable[[str], Path]) -> None:
    log_dir = read_log_dir(golden("kafka-0.10.2-legacy"))
    assert log_dir.clean_shutdown
    assert log_dir.meta is not None
    assert log_dir.meta.version == 0
    assert log_dir.log_start_offsets is None  # the file came with a later release
    assert len(log_dir.partitions) == 8


def make_log_dir(path: Path, *partitions: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    for name in partitions:
        (path / name).mkdir()
    return path


def test_foreign_directories_are_problems(tmp_path: Path) -> None:
    make_log_dir(tmp_path, "t-0", "lost+found", "remote-log-index-cache", f"t-1.{HEX}-stray")
    (tmp_path / "notes.txt").touch()
    log_dir = read_log_dir(tmp_path)
    assert [each.name.state for each in log_dir.partitions] == [DirState.LIVE, DirState.STRAY]
    (problem,) = log_dir.problems
    assert isinstance(problem, CorruptError)
    assert problem.check_id == "DIR-1"
    assert problem.path == str(tmp_path / "lost+found")
    names = {each.file.name for each in log_dir.others}
    assert names == {"meta.properties", "notes.txt", "lost+found", "remote-log-index-cache"}


def test_unreadable_checkpoints_are_problems(tmp_path: Path) -> None:
    make_log_dir(tmp_path, "t-0")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 5\n")
    (tmp_path / "recovery-point-offset-checkpoint").mkdir()
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"")
    (tmp_path / "cleaner-offset-checkpoint").symlink_to(tmp_path / "nowhere")
    (tmp_path / "meta.properties").write_text("version=9\n")
    log_dir = read_log_dir(tmp_path)
    assert log_dir.high_watermarks is None
    assert log_dir.high_watermark(log_dir.partitions[0]) is None
    assert log_dir.recovery_points is None
    assert log_dir.log_start_offsets == {}
    assert log_dir.cleaner_offsets is None
    assert log_dir.meta is None
    found = {each.path.rpartition("/")[2] for each in log_dir.problems}
    assert found == {
        "meta.properties",
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",  # a directory of that name is no partition
        "cleaner-offset-checkpoint",
    }


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_log_dir(tmp_path)

    def refuse(path: Path, max_bytes: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("storage.dirs.log_dir.read_small_file", refuse)
    (problem,) = read_log_dir(tmp_path).problems
    assert isinstance(problem, AccessError)
    assert problem.path == str(tmp_path / "meta.properties")


def test_what_is_set_aside_has_no_checkpoint(tmp_path: Path) -> None:
    make_log_dir(tmp_path, f"t-0.{HEX}-delete", f"t-0.{HEX}-future")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    log_dir = read_log_dir(tmp_path)
    by_state = {each.name.state: each for each in log_dir.partitions}
    assert log_dir.high_watermark(by_state[DirState.DELETE]) is None
    assert log_dir.high_watermark(by_state[DirState.FUTURE]) == 5
    assert by_state[DirState.FUTURE].topic_partition == TopicPartition("t", 0)


def test_symbolic_links_count_as_what_they_lead_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "anything"
    elsewhere.mkdir(parents=True)
    log_dir_path = make_log_dir(tmp_path / "logs")
    (log_dir_path / "t-3").symlink_to(elsewhere)
    (log_dir_path / "u-0").symlink_to(tmp_path / "nowhere")
    log_dir = read_log_dir(log_dir_path)
    assert [str(each.topic_partition) for each in log_dir.partitions] == ["t-3"]
    (problem,) = log_dir.problems
    assert isinstance(problem, AccessError)
    assert problem.path == str(log_dir_path / "u-0")


def test_a_marker_that_leads_nowhere_is_none(tmp_path: Path) -> None:
    log_dir_path = make_log_dir(tmp_path / "logs")
    (log_dir_path / ".kafka_cleanshutdown").symlink_to(tmp_path / "nowhere")
    assert not read_log_dir(log_dir_path).clean_shutdown


def test_a_directory_that_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        read_log_dir(tmp_path / "none")
    assert caught.value.path == str(tmp_path / "none")


def test_stopped_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_log_dir(tmp_path).stopped is StoppedState.UNKNOWN  # nothing of a log dir in it
    make_log_dir(tmp_path)
    assert read_log_dir(tmp_path).stopped is StoppedState.UNCLEAN
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert read_log_dir(tmp_path).stopped is StoppedState.CLEAN
    log_dir = read_log_dir(tmp_path)
    held = log_dir.lock._replace(kind=LockKind.HELD, pid=1)
    unknown = log_dir.lock._replace(kind=LockKind.UNKNOWN)
    assert log_dir._replace(lock=held).stopped is StoppedState.LIVE
    assert log_dir._replace(lock=unknown).stopped is StoppedState.UNKNOWN


def calls_to_read(log_dir_path: Path, count: int) -> tuple[LogDir, int]:
    """A log dir of so many partitions, and how many functions are called to read it."""
    make_log_dir(log_dir_path)
    for number in range(count):
        (log_dir_path / f"topic-with-a-name-{number}").mkdir()
    lines = ["0", str(count), *(f"topic-with-a-name {number} {number}" for number in range(count))]
    (log_dir_path / "replication-offset-checkpoint").write_text("\n".join([*lines, ""]))
    events: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda _, event, __: events.update((event,)))
    try:
        log_dir = read_log_dir(log_dir_path)
    finally:
        sys.setprofile(before)
    return log_dir, events["call"] + events["c_call"]


def test_ten_thousand_partitions(tmp_path: Path) -> None:
    """Ten times as many take ten times as much, and no pass over all of them for each."""
    _, few_calls = calls_to_read(tmp_path / "few", 1000)
    log_dir, many_calls = calls_to_read(tmp_path / "many", 10_000)
    assert len(log_dir.partitions) == 10_000
    assert log_dir.partitions[-1].name.partition == 9_999
    assert log_dir.high_watermark(log_dir.partitions[77]) == 77
    assert few_calls < many_calls < 11 * few_calls


@pytest.mark.parametrize(
    "name", ["meta.properties", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (problem,) = read_log_dir(tmp_path).problems
    assert isinstance(problem, AccessError)
    assert problem.path == str(tmp_path / name)
