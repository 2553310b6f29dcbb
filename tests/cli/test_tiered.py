"""Partitions whose log begins in remote storage (KIP-405), as a real broker left them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.cluster.remote_segments import RemoteSegments
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.formats.producer_snapshot import parse_snapshot
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

ARCHIVE = "kafka-4.3.1-tiered"
# Log start and first local offset of a cleanly stopped broker's partitions.
STARTS = {
    "tiered-0": (0, 254),
    "halved-0": (0, 186),
    "shortened-0": (24, 254),
    "grown-0": (0, 0),
    "plain-0": (0, 0),
}
REMOTE = [name for name, (start, local) in STARTS.items() if start < local]
LOG_START = "log-start-offset-checkpoint"


@pytest.fixture
def log_dir(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda state: copy_log_dir(golden(ARCHIVE) / state, tmp_path / state)


def rows(text: str, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    return [each for each in found if each["kind"] == kind]


def set_log_start(log_dir: Path, name: str, offset: int) -> None:
    topic, _, number = name.rpartition("-")
    (log_dir / LOG_START).write_text(f"0\n1\n{topic} {number} {offset}\n")


@pytest.mark.parametrize("state", ["clean", "crash"])
def test_a_tiered_log_dir_has_no_finding(
    golden: Callable[[str], Path], eoctl: Callable[..., Any], state: str
) -> None:
    outcome = eoctl(
        "check", "--now", "dir", "--fail-on", "note", "--output", "jsonl", golden(ARCHIVE) / state
    )
    assert outcome.status == 0, outcome.text
    assert not rows(outcome.text, "finding")


def test_everything_that_the_broker_derived_is_right(
    golden: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    outcome = eoctl(
        "rebuild", "--now", "dir", "--output", "jsonl", golden(ARCHIVE) / "clean" / "tiered-0"
    )
    assert outcome.status == 0
    files = {each["file"]: each["state"] for each in rows(outcome.text, "derived_file")}
    assert files.keys() == {
        each.name
        for each in (golden(ARCHIVE) / "clean" / "tiered-0").iterdir()
        if each.suffix not in {".log", ".metadata"}
    }
    assert set(files.values()) == {"equal"}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("options", [(), ("--from-scratch",)])
def test_the_producers_up_to_the_local_log_are_those_of_the_snapshot(
    golden: Callable[[str], Path],
    log_dir: Callable[[str], Path],
    eoctl: Callable[..., Any],
    name: str,
    options: tuple[str, ...],
) -> None:
    crashed = log_dir("crash") / name
    before = {each.name: each.read_bytes() for each in crashed.glob("*.snapshot")}
    outcome = eoctl("recover-state", "--now", "dir", "--apply", *options, crashed)
    assert outcome.status in {0, 1}, outcome.text
    after = {each.name: each.read_bytes() for each in crashed.glob("*.snapshot")}
    (new,) = after.keys() - before.keys()
    assert {key: after[key] for key in before} == before
    assert after[new] == (golden(ARCHIVE) / "clean" / name / new).read_bytes()


@pytest.mark.parametrize("name", REMOTE)
def test_rebuilding_keeps_the_snapshot_at_the_local_log_start(
    golden: Callable[[str], Path],
    log_dir: Callable[[str], Path],
    eoctl: Callable[..., Any],
    name: str,
) -> None:
    crashed = log_dir("crash")
    outcome = eoctl("rebuild", "--now", "dir", "--apply", crashed / name)
    assert outcome.status == 0, outcome.text
    expected = golden(ARCHIVE) / "clean" / name
    for path in expected.iterdir():
        if path.suffix in {".snapshot", ".timeindex", ".txnindex"}:
            assert (crashed / name / path.name).read_bytes() == path.read_bytes(), path


def test_describe_tells_the_two_log_starts_apart(
    golden: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    outcome = eoctl("describe", "--segments", "--output", "jsonl", golden(ARCHIVE) / "clean")
    assert outcome.status == 0
    found = {Path(each["path"]).name: each for each in rows(outcome.text, "partition")}
    for name, starts in STARTS.items():
        row = found[name]
        assert (row["log_start_offset"], row["local_log_start_offset"]) == starts
    reported = [each for each in outcome.errors.splitlines() if "remote storage only" in each]
    assert len(reported) == len(REMOTE)
    remote = {
        f"{each['topic']}-{each['partition']}" for each in rows(outcome.text, "remote_segment")
    }
    assert remote == set(REMOTE)


@pytest.mark.parametrize("name", [*REMOTE, "grown-0"])
def test_the_remote_segments_are_those_of_the_remote_storage(
    golden: Callable[[str], Path], name: str
) -> None:
    """LocalTieredStorage names a segment by its base offset and its id."""
    selected = select_partition(golden(ARCHIVE) / "clean" / name)
    assert selected.log_dir is not None
    remote = RemoteSegments([selected.log_dir])
    partition = Partition.of(selected)
    found = {
        f"{each.start_offset:020d}-{each.segment_id}.log": each.log_bytes
        for each in remote.of(partition)
    }
    there = {}
    for line in (golden(ARCHIVE) / "remote.txt").read_text().splitlines():
        path, size = line.split()
        if path.startswith(f"{name}-") and path.endswith(".log"):
            there[Path(path).name] = int(size)
    assert found == there
    assert bool(remote.report(partition)) is (name in REMOTE)
    assert "no finished segment" not in remote.report(partition)
    assert not remote.problems


def test_readers_say_what_is_remote(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    partition = golden(ARCHIVE) / "clean" / "tiered-0"
    words = "offsets 0 to 253 are in remote storage only, in 18 segments of"
    for outcome in (
        eoctl("consume", partition),
        eoctl("consume", "--from", "10", partition),
        eoctl("export", "--to", tmp_path / "out", partition),
        eoctl("describe", partition),
        eoctl("spark-audit", "--engine", "local", partition),
    ):
        assert outcome.status == 0
        assert words in outcome.text + outcome.errors
    outcome = eoctl("consume", "--from", "254", partition)
    assert "remote" not in outcome.errors


def test_a_search_for_duplicates_says_what_it_has_not_seen(
    golden: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    outcome = eoctl("duplicates", golden(ARCHIVE) / "clean" / "tiered-0")
    assert "offsets 0 to 253 are in remote storage only: not searched" in outcome.errors


@pytest.mark.parametrize(("name", "strategy"), [("tiered-0", "as-broker"), ("halved-0", "salvage")])
def test_a_repair_keeps_the_snapshot_at_the_local_log_start(
    log_dir: Callable[[str], Path], eoctl: Callable[..., Any], name: str, strategy: str
) -> None:
    directory = log_dir("crash") / name
    before = {each.name: each.read_bytes() for each in directory.glob("*.snapshot")}
    log = max(directory.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-10])
    outcome = eoctl("repair", "--now", "dir", "--strategy", strategy, "--apply", directory)
    assert outcome.status == 0, outcome.text
    after = {each.name: each.read_bytes() for each in directory.glob("*.snapshot")}
    assert {key: after.get(key) for key in before} == before
    (new,) = after.keys() - before.keys()
    # Producers whose batches are in remote storage only are among those of the new end.
    remote = {each.producer_id for each in parse_snapshot(before[min(before)])}
    assert remote <= {each.producer_id for each in parse_snapshot(after[new])}
    checked = eoctl("check", "--now", "dir", directory, "--output", "jsonl")
    found = [row for row in map(json.loads, checked.text.splitlines()) if "check_id" in row]
    assert {row["check_id"] for row in found if row["severity"] != "note"} <= {"JNL-3"}


def test_what_remote_storage_has_lost_is_told(
    log_dir: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    """After the crash the log start was forgotten, but what had been deleted stayed so."""
    outcome = eoctl("describe", log_dir("crash") / "shortened-0")
    assert "no finished segment is known of offsets 0 to 23" in outcome.text + outcome.errors


def test_a_cut_inside_of_what_is_remote_is_refused(
    log_dir: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    outcome = eoctl("truncate", "--to-offset", "100", log_dir("clean") / "tiered-0")
    assert outcome.status == 4
    assert "remote storage" in outcome.errors


# What is there beside the partition -> whether its log begins in remote storage.
@pytest.mark.parametrize(
    ("topic", "has_line", "gone", "is_remote"),
    [
        ("tiered", False, (), True),
        ("tiered", False, ("__cluster_metadata-0",), True),
        ("tiered", True, ("__cluster_metadata-0", "__remote_log_metadata-*"), True),
        ("tiered", False, ("__cluster_metadata-0", "__remote_log_metadata-*"), False),
        ("plain", True, (), False),  # a line from before retention
        ("plain", False, (), False),
    ],
)
def test_what_makes_a_partition_tiered(
    log_dir: Callable[[str], Path],
    topic: str,
    has_line: bool,
    gone: tuple[str, ...],
    is_remote: bool,
) -> None:
    directory = log_dir("crash")
    if has_line:
        set_log_start(directory, f"{topic}-0", 5)
    for pattern in gone:
        for each in directory.glob(pattern):
            shutil.rmtree(each)
    if topic == "plain":
        for each in (directory / "plain-0").glob("0*"):
            if int(each.stem) < 100:
                each.unlink()
    partition = Partition.of(select_partition(directory / f"{topic}-0"))
    first_base = partition.segments[0].base_offset
    expected = ((5 if has_line else 0), first_base) if is_remote else None
    assert partition.remote_range == expected
    assert partition.local_log_start_offset == first_base
    assert partition.log_start_offset == (expected or (first_base,))[0]


def test_leader_epochs_that_begin_at_the_local_log_leave_nothing_remote(
    log_dir: Callable[[str], Path],
) -> None:
    """Unless the topic's settings are known: a broker goes by nothing else."""
    directory = log_dir("clean")
    (directory / "tiered-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 254\n")
    assert Partition.of(select_partition(directory / "tiered-0")).remote_range == (0, 254)
    shutil.rmtree(directory / "__cluster_metadata-0")
    assert Partition.of(select_partition(directory / "tiered-0")).remote_range is None


@pytest.mark.exhaustive
def test_what_is_said_is_in_the_same_order_every_time(golden: Callable[[str], Path]) -> None:
    """Whatever seed Python hashes with."""
    arguments = [sys.executable, "-m", "eoctl", "loss", golden(ARCHIVE) / "clean"]
    said = [
        subprocess.run(
            arguments, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=False
        )
        for seed in ("1", "2")
    ]
    assert b"remote storage" in said[0].stderr
    assert (said[0].stdout, said[0].stderr) == (said[1].stdout, said[1].stderr)
