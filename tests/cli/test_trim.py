"""`eoctl trim`: targets, refusals, what it says, and what other commands say after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.options import parse_size
from recovery.changes.plans.preconditions import put_offset
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import FormatError, UsageError
from storage.file_names import TopicPartition
from tests.changes import journal_of, notes_of, rows_of, split_answer
from tests.crash.trees import difference, tree_of
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

# Of a cleanly stopped broker: segments 0, 25 and 50, log end 60, leader epochs 0 and 2.
ROLLED = "kafka/rolled-0"
BASES = (0, 25, 50)
LOG_START = "log-start-offset-checkpoint"
POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


@pytest.fixture
def kafka(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")


@pytest.fixture
def tiered(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_log_dir(golden("kafka-4.3.1-tiered") / "clean", tmp_path / "tiered")


def trimmed(eoctl: Cli, *arguments: object) -> dict[str, Any]:
    outcome = eoctl("trim", *arguments, "--now", "dir", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    return rows_of(outcome, "trim")[0]


def bases(path: str) -> tuple[int, ...]:
    return tuple(sorted(int(each.stem) for each in Path(path).glob("*.log")))


# --- targets


@pytest.mark.parametrize(
    ("arguments", "start", "first_base"),
    [
        (("--to-offset", 0), 0, 0),
        (("--to-offset", 24), 24, 0),
        (("--to-offset", 25), 25, 25),
        (("--to-offset", 35), 35, 25),
        (("--to-offset", 50), 50, 50),
        (("--to-offset", 60), 60, 50),
        (("--to-time", 0), 0, 0),
        (("--to-time", "2027-01-01"), 60, 50),
        (("--to-time", 1795229896800), 35, 25),
        (("--to-bytes", "1G"), 0, 0),
        (("--to-bytes", 1443095), 25, 25),
        (("--to-bytes", 1443096), 0, 0),
        (("--to-bytes", "350K"), 50, 50),
        (("--to-bytes", 0), 50, 50),
    ],
)
def test_a_target(
    kafka: Path, eoctl: Cli, arguments: tuple[object, ...], start: int, first_base: int
) -> None:
    row = trimmed(eoctl, ROLLED, *arguments, "--apply")
    assert row["new_log_start_offset"] == start
    assert row["first_local_offset"] == first_base
    assert row["records_count"] == row["acknowledged_count"] == start
    assert row["segments_count"] == BASES.index(first_base)
    assert row["applied"] == (start > 0)
    assert bases(ROLLED) == tuple(each for each in BASES if each >= first_base)
    assert Partition.of(select_partition(ROLLED)).log_start_offset == start
    lines = (kafka / LOG_START).read_text()
    assert (f"rolled 0 {start}\n" in lines) == (start > first_base)


def test_it_is_no_loss_for_the_other_commands(kafka: Path, eoctl: Cli) -> None:
    """`check`, `loss`, `consume` and `export` begin at the new log start; undo restores it all."""
    before = tree_of(kafka)
    row = trimmed(eoctl, ROLLED, "--to-offset", 35, "--apply")
    lost = eoctl("loss", ROLLED, "--output", "jsonl")
    assert lost.status == 0, lost.errors
    (summary,) = rows_of(lost, "partition")
    assert (summary["lost_offsets"], summary["records"]) == (0, 60 - row["records_count"])
    assert summary["log_start_offset"] == 35
    consumed = rows_of(eoctl("consume", ROLLED, "--output", "jsonl"))
    assert [each["offset"] for each in consumed] == [*range(35, 60)]
    exported = eoctl("export", ROLLED, "--to", "out", "--format", "jsonl", "--output", "jsonl")
    assert exported.status == 0, exported.errors
    (summary,) = rows_of(exported, "export")
    assert summary["records"] == 25
    findings = rows_of(eoctl("check", kafka, "--now", "dir", "--output", "jsonl"), "finding")
    assert [each for each in findings if each["topic"] == "rolled"] == []
    assert eoctl("undo", journal_of(kafka)).status == 0
    after = tree_of(kafka)
    assert [each for each in difference(before, after) if ".lock" not in each] == []


def test_a_second_run_has_nothing_to_do(kafka: Path, eoctl: Cli) -> None:
    trimmed(eoctl, ROLLED, "--to-offset", 35, "--apply")
    again = eoctl("trim", ROLLED, "--to-offset", 30)
    assert again.status == 0
    assert "the log begins at 35 already" in again.errors
    assert "there is nothing to trim: nothing would be changed" in again.errors


def test_segments_below_the_log_start_go(kafka: Path, eoctl: Cli) -> None:
    """A broker stopped between DeleteRecords and its retention run."""
    (kafka / LOG_START).write_text("0\n1\nrolled 0 35\n")
    row = trimmed(eoctl, ROLLED, "--to-offset", 35, "--apply")
    assert (row["records_count"], row["segments_count"]) == (0, 1)
    assert bases(ROLLED) == (25, 50)


def test_checkpoints_below_the_log_start_are_raised(kafka: Path, eoctl: Cli) -> None:
    """After a crash of a node that is alone in the ISR."""
    (kafka / ".kafka_cleanshutdown").unlink()
    for name in (POINTS, HIGH_WATERMARKS):
        data = (kafka / name).read_bytes()
        (kafka / name).write_bytes(put_offset(data, TopicPartition("rolled", 0), 10))
    row = trimmed(eoctl, ROLLED, "--to-offset", 35, "--apply")
    assert row["high_watermark"] == 60
    for name in (POINTS, HIGH_WATERMARKS):
        assert "rolled 0 35\n" in (kafka / name).read_text()


# --- words


def test_the_plan(kafka: Path, eoctl: Cli) -> None:
    outcome = eoctl("trim", ROLLED, "--to-offset", "35", "--now", "dir")
    answer, _ = split_answer(outcome.errors)
    assert answer[0] == "Plan begin rolled-0 at 35 (was 0); 7 files change"
    assert "Loses 35 records, 35 acknowledged, 2026-11-21 02:58 UTC" in answer
    assert answer[-1] == "Next eoctl trim kafka/rolled-0 --to-offset 35 --now dir --apply"
    assert "Frees   952 KiB once the backup is pruned; at once with --backup-dir" in outcome.errors


def test_no_whole_segment(kafka: Path, eoctl: Cli) -> None:
    outcome = eoctl("trim", ROLLED, "--to-offset", "5")
    assert "Frees   nothing: no whole segment lies below" in outcome.errors
    assert "5 is inside the first segment, which stays: no room is freed here" in outcome.errors


def test_without_a_backup_the_room_is_free_at_once(kafka: Path, eoctl: Cli) -> None:
    call = ("trim", ROLLED, "--to-offset", "35", "--no-backup", "--i-accept-the-loss", "--apply")
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert "Freed   952 KiB\n" in outcome.errors


def test_a_file_with_other_names_frees_nothing(kafka: Path, eoctl: Cli) -> None:
    os.link(f"{ROLLED}/{0:020d}.log", "kept")
    assert trimmed(eoctl, ROLLED, "--to-offset", 35)["freed_bytes"] <= 3 * 4096


def test_groups_and_transactions_below(kafka: Path, eoctl: Cli) -> None:
    row = trimmed(eoctl, "kafka/txn-1", "--to-offset", 290)
    assert row["open_transactions_count"] == 1
    assert row["groups"] == ["ctp"]
    outcome = eoctl("trim", "kafka/txn-1", "--to-offset", 290)
    assert "Groups  ctp is at 89: next 290, or as its reset says" in outcome.errors
    assert "below 290 1 open transaction began, the first at 282" in outcome.errors


# --- refusals


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((ROLLED,), 2, "0 targets, one is needed"),
        ((ROLLED, "--to-offset", "5", "--to-bytes", "0"), 2, "2 targets, one is needed"),
        ((ROLLED, "--to-bytes", "much"), 2, "not a size: 'much'"),
        ((ROLLED, "--to-offset", "5", "--single-copy", "--replicated"), 2, "contradict"),
        ((ROLLED, "--to-offset", "61"), 4, "61 is above its log end 60"),
        ((ROLLED, "--to-offset", "35", "--assume-hw", "30"), 4, "above its known high watermark"),
        (("kafka/compacted-0", "--to-offset", "5"), 4, "cleanup.policy is compact alone"),
        (("kafka/__consumer_offsets-0", "--to-offset", "5"), 4, "belongs to a coordinator"),
        (("kafka/__cluster_metadata-0", "--to-offset", "5"), 4, "is never changed"),
        ((ROLLED, "--to-offset", "35", "--local"), 4, "its topic has no remote storage"),
    ],
)
def test_refused(
    kafka: Path, eoctl: Cli, arguments: tuple[str, ...], status: int, words: str
) -> None:
    before = tree_of(kafka)
    outcome = eoctl("trim", *arguments, "--apply")
    assert (outcome.status, outcome.stdout) == (status, b"")
    assert words in outcome.errors
    assert [each for each in difference(before, tree_of(kafka)) if ".lock" not in each] == []


def test_an_unknown_high_watermark(kafka: Path, eoctl: Cli) -> None:
    for path in kafka.glob("__cluster_metadata-0/*"):
        path.unlink()
    (kafka / "__cluster_metadata-0").rmdir()
    (kafka / "bootstrap.checkpoint").unlink()
    (kafka / HIGH_WATERMARKS).write_text("0\n0\n")
    call = ("trim", ROLLED, "--to-offset", "5", "--single-copy")
    refused = eoctl(*call)
    assert refused.status == 4
    assert "its high watermark is unknown" in refused.errors
    assert eoctl(*call, "--assume-hw", "60").status == 0


def test_replicas(golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli) -> None:
    """One of several is trimmed only if the user says what becomes of the others."""
    nodes = sorted((golden("kafka-4.3.1-three-brokers") / "after").iterdir())
    log_dirs = [copy_log_dir(each, tmp_path / each.name) for each in nodes]
    name = next(
        each.name
        for each in sorted(log_dirs[0].iterdir())
        if each.is_dir()
        and not each.name.startswith("__")
        and Partition.of(select_partition(each)).high_watermark
    )
    copies = [each / name for each in log_dirs if (each / name).is_dir()]
    call = ("trim", copies[0], "--to-offset", "1", "--now", "dir")
    refused = eoctl(*call)
    assert refused.status == 4, refused.errors
    assert "replicas: when it leads, the others delete the same records" in refused.errors
    told = eoctl(*call, "--replicated")
    assert told.status == 0, told.errors
    assert "Copies  other replicas keep the records until this one leads" in told.errors
    assert eoctl(*call, "--single-copy").status == 0
    others = [each for copy in copies[1:] for each in ("--all-replicas", copy)]
    done = eoctl(*call, *others, "--apply", "--output", "jsonl")
    assert done.status == 0, done.errors
    rows = rows_of(done, "trim")
    assert [each["new_log_start_offset"] for each in rows] == [1] * len(copies)
    for each in copies:
        assert Partition.of(select_partition(each)).log_start_offset == 1


# --- remote storage


def test_local_segments_that_are_copied(tiered: Path, eoctl: Cli) -> None:
    path = "tiered/halved-0"
    before = (tiered / LOG_START).read_bytes()
    row = trimmed(eoctl, path, "--to-offset", 240, "--local", "--apply")
    assert (row["log_start_offset"], row["new_log_start_offset"]) == (0, 0)
    assert (row["first_local_offset"], row["segments_count"], row["records_count"]) == (236, 3, 0)
    assert bases(path) == (236, 254)
    assert (tiered / LOG_START).read_bytes() == before
    partition = Partition.of(select_partition(path))
    assert partition.remote_range == (0, 236)
    assert rows_of(eoctl("check", tiered, "--now", "dir", "--output", "jsonl"), "finding") == []


def test_only_what_remote_storage_has_completely(tiered: Path, eoctl: Cli) -> None:
    for number in (0, 1):
        for path in tiered.glob(f"__remote_log_metadata-{number}/*"):
            path.unlink()
        (tiered / f"__remote_log_metadata-{number}").rmdir()
    outcome = eoctl("trim", "tiered/halved-0", "--to-offset", "240", "--local")
    assert outcome.status == 0, outcome.errors
    assert "no local segment is known to be in remote storage completely" in outcome.errors
    assert "there is nothing to trim" in outcome.errors


def test_a_tiered_log_start(tiered: Path, eoctl: Cli) -> None:
    """The line stays even where it is the first base offset: without it the log begins at 0."""
    row = trimmed(eoctl, "tiered/halved-0", "--to-offset", 100)
    assert (row["records_count"], row["remote_segments_count"]) == (None, 7)
    row = trimmed(eoctl, "tiered/halved-0", "--to-offset", 236, "--apply")
    assert bases("tiered/halved-0") == (236, 254)
    assert "halved 0 236\n" in (tiered / LOG_START).read_text()


# --- parts


@pytest.mark.parametrize(
    ("data", "offset", "result"),
    [
        (b"", 5, b"0\n1\nt 1 5\n"),
        (b"", None, b""),
        (b"0\n0\n", 5, b"0\n1\nt 1 5\n"),
        (b"0\n2\nt 1 3\nu 0 1\n", 5, b"0\n2\nt 1 5\nu 0 1\n"),
        (b"0\n2\nt 1 3\nu 0 1\n", None, b"0\n1\nu 0 1\n"),
        (b"0\n2\nt 1 3\nt 1 4\n", 5, b"0\n1\nt 1 5\n"),
        (b"0\n1\nt 1 3\n", None, b"0\n0\n"),
        (b"0\n1\nu 0 1\n", None, b"0\n1\nu 0 1\n"),
    ],
)
def test_a_line_of_a_checkpoint(data: bytes, offset: int | None, result: bytes) -> None:
    assert put_offset(data, TopicPartition("t", 1), offset) == result


def test_a_damaged_checkpoint() -> None:
    with pytest.raises(FormatError):
        put_offset(b"0\n1\nt 1\n", TopicPartition("t", 1), 5)


def test_sizes() -> None:
    sizes = {"0": 0, "512": 512, "1K": 1024, "2 MiB": 2 << 20, "1.5g": 3 << 29, "1TB": 1 << 40}
    assert {text: parse_size(text) for text in sizes} == sizes
    with pytest.raises(UsageError):
        parse_size("-1")


def test_notes_of_a_program(kafka: Path, eoctl: Cli) -> None:
    outcome = eoctl("trim", ROLLED, "--to-offset", "60", "--now", "dir", "--output", "jsonl")
    assert "1 producer wrote nothing from 60 on: a broker forgets them" in notes_of(outcome)
