"""`eoctl reclaim`: classes, their order and cost, the room of a start, and what stays."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.changes.journals import backups
from recovery.reclaim import find
from tests.changes import held, interrupt, journal_of, rows_of
from tests.crash.trees import difference, tree_of
from tests.kafka.broker import copy_log_dir
from tests.planted_waste import HEX, LOG, plant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

WITHOUT = ("--no-backup", "--i-accept-the-loss")


@pytest.fixture
def clean(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return golden("kafka-4.3.1") / "clean"


@pytest.fixture
def wasted(clean: Path, tmp_path: Path) -> Path:
    return plant(clean, tmp_path / "kafka", is_clean=False)


def found(eoctl: Cli, *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    outcome = eoctl("reclaim", *arguments, "--output", "jsonl")
    assert outcome.status == status, outcome.errors
    return rows_of(outcome, "reclaimable")


CLASS_A = {
    "*.tmp": 1,
    "plain-0/*.deleted": 1,
    "plain-0/*.tmp": 1,
    "plain-1/00000000000000000009.*index": 2,
    "rolled-0/00000000000000000000.*": 3,
    "gone-0-delete": 7,
}


def test_class_a(wasted: Path, eoctl: Cli) -> None:
    rows = found(eoctl, "kafka")
    assert {each["class"] for each in rows} == {"A"}
    by_end = {each["path"].replace("kafka/", "").replace(f".{HEX}", ""): each for each in rows}
    assert {key: by_end[key]["files_count"] for key in CLASS_A} == CLASS_A
    taken = {key for key, each in by_end.items() if not each["is_taken_by_start"]}
    assert taken == {"*.tmp", "plain-0/*.tmp", "rolled-0/00000000000000000000.*"}
    assert by_end["plain-0/*.deleted"]["freed_bytes"] == 12288
    (split,) = (each for key, each in by_end.items() if key.startswith("compacted-0"))
    assert split["path"] == "kafka/compacted-0/*.swap kafka/compacted-0/*.cleaned"
    assert split["files_count"] == 4
    tails = [each for each in rows if each["why"].startswith("zeros at its end")]
    assert len(tails) == 3
    assert all(each["freed_bytes"] + 4096 >= 64 << 10 for each in tails)
    snapshots = [each for each in rows if each["why"].startswith("a producer snapshot")]
    assert {Path(each["path"]).parent.name for each in snapshots} == {"rolled-0", "trimmed-0"}


def test_only_looked_at(wasted: Path, eoctl: Cli) -> None:
    before = tree_of(wasted)
    assert eoctl("reclaim", "kafka", "--class", "A,B,C,D,E").status == 0
    assert difference(before, tree_of(wasted)) == []


def test_applied(wasted: Path, eoctl: Cli) -> None:
    """Only what the rows name goes, and no journal is left; then there is nothing more."""
    before = tree_of(wasted)
    done = eoctl("reclaim", "kafka", "--class", "A,B", "--apply")
    assert done.status == 0, done.errors
    assert "Undo    no: no start would have read them" in done.errors
    assert not wasted.with_name("kafka.eoctl").exists()
    after = tree_of(wasted)
    gone = {name for name in before if name not in after}
    assert all(
        name.endswith((".deleted", ".tmp", ".cleaned", ".swap", "-delete"))
        or name.startswith((f"gone-0.{HEX}-delete/", "remote-log-index-cache/"))
        or Path(name).parent.name in {"plain-1", "rolled-0", "trimmed-0"}
        for name in gone
    ), gone
    assert {name for name in gone if name.startswith("rolled-0")} == {
        *(f"rolled-0/{0:020d}.{end}" for end in ("log", "index", "timeindex")),
        f"rolled-0/{25:020d}.snapshot",
    }
    assert found(eoctl, "kafka", "--class", "A,B") == []
    again = eoctl("reclaim", "kafka", "--apply")
    assert "Done    nothing: there was nothing to remove, class A" in again.errors


def test_a_swap_never_loses_its_cleaned_file_first(
    wasted: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted anywhere: the next run completes it, and no half of a split becomes valid."""
    whole = copy_log_dir(wasted, wasted.with_name("whole"))
    assert eoctl("reclaim", whole, "--apply").status == 0
    after = {name: each.data for name, each in tree_of(whole).items() if not name.endswith(".lock")}
    count = sum(name not in after for name in tree_of(wasted))
    for call in range(1, count):
        with monkeypatch.context() as patch:
            interrupt(patch, "unlink", call=1)
            assert eoctl("reclaim", "kafka", "--apply").status == 130
        swaps = [*wasted.glob("compacted-0/*.swap")]
        assert not swaps or len([*wasted.glob("compacted-0/*.cleaned")]) == 2
        outcome = eoctl("reclaim", "kafka", "--need", "1", "--class", "A", "--apply")
        assert outcome.status in {0, 1}, (call, outcome.errors)
        if not found(eoctl, "kafka"):
            break
    assert eoctl("reclaim", "kafka", "--apply").status == 0
    now = {name: each.data for name, each in tree_of(wasted).items() if not name.endswith(".lock")}
    assert now == after


def test_need_takes_no_more_than_is_needed(wasted: Path, eoctl: Cli) -> None:
    rows = found(eoctl, "kafka", "--need", "1")
    assert len(rows) == 1
    every = found(eoctl, "kafka")
    total = sum(each["freed_bytes"] for each in every)
    more = found(eoctl, "kafka", "--need", total + 1)
    assert {each["class"] for each in more} == {"A", "B"}
    outcome = eoctl("reclaim", "kafka", "--need", "1G")
    assert outcome.status == 1
    assert "of 1.00 GiB that are needed; then --class with F, the oldest records" in outcome.errors


def test_journals(wasted: Path, eoctl: Cli) -> None:
    assert eoctl("trim", "kafka/rolled-0", "--to-offset", "52", "--apply").status == 0
    journal = journal_of(wasted)
    (row,) = found(eoctl, "kafka", "--class", "C")
    assert (row["path"], row["class"]) == (str(journal), "C")
    assert row["freed_bytes"] > 900_000
    assert "Frees" in eoctl("reclaim", "kafka").errors
    done = eoctl("reclaim", "kafka", "--class", "C", "--apply")
    assert done.status == 0, done.errors
    assert not journal.exists()


def test_an_unfinished_change_comes_first(
    wasted: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, "unlink", name=".log")
        call = ("trim", "kafka/rolled-0", "--to-offset", "52", "--apply")
        assert eoctl(*call).status == 130
    refused = eoctl("reclaim", "kafka", "--class", "A,C", "--apply")
    assert refused.status == 4, refused.errors
    assert found(eoctl, "kafka", "--class", "C") == []


def test_a_broker_holds_the_lock(wasted: Path, eoctl: Cli) -> None:
    (wasted / ".lock").touch()
    with held(wasted):
        assert eoctl("reclaim", "kafka", "--apply").status == 4


# --- the room of a start


def test_no_room(wasted: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backups, find):
        monkeypatch.setattr(module, "free_bytes", lambda _: 0)
    outcome = eoctl("reclaim", "kafka", "--need", "1")
    assert re.search(
        r"Room    a start needs up to \d+ KiB, 0 B are free, [\d.]+ KiB afterwards: NOT enough",
        outcome.errors,
    )
    assert eoctl("reclaim", "kafka", "--apply").status == 0  # nothing is written for it


def test_a_clean_stop_needs_less(clean: Path, tmp_path: Path, eoctl: Cli) -> None:
    def needed(log_dir: Path) -> float:
        text = eoctl("reclaim", log_dir).errors
        return float(re.findall(r"needs up to ([\d.]+) KiB", text)[0])

    log_dir = copy_log_dir(clean, tmp_path / "kafka")
    before = needed(log_dir)
    assert 4 * 4 < before < 200
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert needed(log_dir) > 2 * before


# --- replicas elsewhere


@pytest.fixture
def moving(clean: Path, tmp_path: Path) -> Path:
    log_dir = copy_log_dir(clean, tmp_path / "kafka")
    shutil.copytree(log_dir / "plain-1", log_dir / f"plain-1.{HEX}-future")
    shutil.copytree(log_dir / "plain-0", log_dir / f"plain-0.{HEX}-stray")
    return log_dir


def test_only_what_a_live_replica_has(moving: Path, eoctl: Cli) -> None:
    rows = found(eoctl, "kafka", "--class", "D")
    assert {Path(each["path"]).name for each in rows} == {
        f"plain-1.{HEX}-future", f"plain-0.{HEX}-stray",
    }  # fmt: skip
    before = tree_of(moving / f"plain-1.{HEX}-future")
    refused = eoctl("reclaim", "kafka", "--class", "D", "--apply")
    assert refused.status == 4
    assert "the backups of classes D to F would be on the disk" in refused.errors
    assert difference(before, tree_of(moving / f"plain-1.{HEX}-future")) == []
    done = eoctl("reclaim", "kafka", "--class", "D", *WITHOUT, "--apply")
    assert done.status == 0, done.errors
    for each in moving.glob(f"*.{HEX}-*"):
        assert [file.name for file in each.iterdir()] == ["partition.metadata"]


def test_a_batch_that_only_a_stray_directory_has(moving: Path, eoctl: Cli) -> None:
    live = moving / "plain-0" / LOG
    os.truncate(live, live.stat().st_size - 500)
    outcome = eoctl("reclaim", "kafka", "--class", "D", "--output", "jsonl")
    assert not any(f"plain-0.{HEX}" in each["path"] for each in rows_of(outcome, "reclaimable"))
    data = bytearray((moving / "plain-1" / LOG).read_bytes())
    data[len(data) // 2] ^= 1
    (moving / "plain-1" / LOG).write_bytes(data)
    outcome = eoctl("reclaim", "kafka", "--class", "D", "--output", "jsonl")
    assert rows_of(outcome, "reclaimable") == []
    assert "stays: the current replica" in outcome.errors


def test_a_stray_directory_by_itself(moving: Path, eoctl: Cli) -> None:
    stray = moving / f"plain-0.{HEX}-stray"
    outcome = eoctl("reclaim", stray, "--class", "D", "--output", "jsonl")
    assert rows_of(outcome, "reclaimable") == []
    assert "it may be the only copy" in outcome.errors
    assert len(found(eoctl, stray, "--class", "D", "--elsewhere")) == 1


def test_backups_on_another_disk(
    moving: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("eoctl.commands.reclaim.is_on_log_disk", lambda *_: False)
    before = tree_of(moving)
    call = ("reclaim", "kafka", "--class", "D", "--backup-dir", tmp_path / "other")
    assert f"Undo    yes: copies in {tmp_path / 'other'}" in eoctl(*call).errors
    done = eoctl(*call, "--apply")
    assert done.status == 0, done.errors
    journals = sorted((tmp_path / "other").iterdir())
    assert len(journals) == 2
    for each in reversed(journals):
        assert eoctl("undo", each).status == 0
    assert [e for e in difference(before, tree_of(moving)) if ".lock" not in e] == []


# --- records


def test_the_oldest_records(clean: Path, tmp_path: Path, eoctl: Cli) -> None:
    log_dir = copy_log_dir(clean, tmp_path / "kafka")
    assert eoctl("reclaim", "kafka", "--class", "F").status == 2
    (row,) = found(eoctl, "kafka", "--class", "A,F", "--need", "1")
    assert row["path"] == "kafka/rolled-0  offsets 0..24"
    assert (row["class"], row["costs"]) == ("F", "25 records")
    assert row["why"] == "oldest, of 2026-11-21"
    (row,) = found(eoctl, "kafka", "--class", "F", "--need", "1M")
    assert row["path"] == "kafka/rolled-0  offsets 0..49"
    call = ("reclaim", "kafka", "--class", "F", "--need", "1M", *WITHOUT)
    assert eoctl(*call, "--apply").status == 0
    assert [each.stem for each in (log_dir / "rolled-0").glob("*.log")] == [f"{50:020d}"]
    outcome = eoctl("reclaim", "kafka", "--class", "F", "--need", "1M")
    assert outcome.status == 1  # the last segments, and compacted topics, stay
    assert "Plan    nothing: there is nothing to remove, class F" in outcome.errors


def test_local_copies_of_remote_segments(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1-tiered") / "clean", tmp_path / "kafka")
    rows = found(eoctl, log_dir, "--class", "E")
    assert {re.split(r"/|  ", each["path"])[-2] for each in rows} == {"grown-0", "halved-0"}
    assert eoctl("reclaim", log_dir, "--class", "E", *WITHOUT, "--apply").status == 0
    assert [each.stem for each in (log_dir / "grown-0").glob("*.log")] == [f"{254:020d}"]
    assert rows_of(eoctl("check", log_dir, "--now", "dir", "--output", "jsonl"), "finding") == []


# --- words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--class", "A,X"), "'X' is none of A, B, C, D, E, F"),
        (("--class", "F"), "class F removes records, and needs a size"),
        (("--need", "much"), "not a size"),
    ],
)
def test_wrong(wasted: Path, eoctl: Cli, arguments: tuple[str, ...], words: str) -> None:
    outcome = eoctl("reclaim", "kafka", *arguments)
    assert outcome.status == 2
    assert words in outcome.errors


def test_the_older_option(wasted: Path, eoctl: Cli) -> None:
    older = eoctl("check", "kafka", "--reclaim", "--output", "jsonl")
    assert rows_of(older) == rows_of(eoctl("reclaim", "kafka", "--output", "jsonl"))
