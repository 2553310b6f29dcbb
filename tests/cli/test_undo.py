"""`eoctl undo`: every byte, mode and time as it was, or nothing at all."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage.files.fsio import FileSystem
from tests.changes import (
    held,
    interrupt,
    journal_of,
    leave_unfinished,
    notes_of,
    rows_of,
    split_answer,
    table,
    unpacked,
)
from tests.crash.trees import difference, leftovers, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = "txn-0/00000000000000000000.log"
TRUNCATE = ("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")


class Applied:
    """A truncation of kafka/txn-0 that was applied, and the tree as it was before."""

    def __init__(self, kafka: Path, eoctl: Callable) -> None:
        self.before = tree_of(kafka, directory_times=True)
        assert eoctl(*TRUNCATE).status == 0
        self.kafka = kafka
        self.journal = journal_of(kafka)

    def require_restored(self) -> None:
        """All is as it was; the log dir itself has got a `.lock`, which is no change of its own."""
        differences = difference(self.before, tree_of(self.kafka, directory_times=True))
        assert [each for each in differences if each != ".: mtime_ns"] == []
        assert leftovers(self.kafka) == []


@pytest.fixture
def applied(kafka: Path, eoctl: Callable) -> Applied:
    return Applied(kafka, eoctl)


def refuses(eoctl: Callable, kafka: Path, words: str, *arguments: Any, status: int = 4) -> str:
    """Call it; nothing is touched by what is refused. Returns what it says."""
    before = tree_of(kafka.parent, directory_times=True)
    outcome = eoctl("undo", *arguments)
    assert outcome.status == status, outcome.errors
    assert words in outcome.errors
    assert "Traceback" not in outcome.errors
    assert difference(before, tree_of(kafka.parent, directory_times=True)) == []
    return str(outcome.errors)


# --- put back -------------------------------------------------------------------------------------


def test_the_whole_output(applied: Applied, kafka: Path, eoctl: Callable) -> None:
    """In each format, as a look, done, and done again: the same files and the same words."""
    journal = applied.journal
    row = {
        "kind": "undone_plan",
        "plan_id": journal.name,
        "command": "truncate",
        "status": "undone",
        "steps": 8,
        "path": str(journal),
    }
    after = tree_of(kafka.parent, directory_times=True)
    inspect = eoctl("undo", "--dry-run", journal)
    assert inspect.status == 0
    assert inspect.text == table(
        "plan_id | command | status | steps | path",
        f"{journal.name} | truncate | applied | 8 | {journal}",
    )
    answer, notes = split_answer(inspect.errors)
    assert notes == ["nothing was changed: it can be undone"]
    assert answer == ["Undo truncate can be undone: 8 files", f"Next eoctl undo {journal}"]
    rows = eoctl("undo", "--dry-run", journal, "--output", "jsonl")
    assert rows_of(rows) == [{**row, "status": "applied"}]
    assert difference(after, tree_of(kafka.parent, directory_times=True)) == []
    done = eoctl("undo", journal)
    taken_back = "Done    undid truncate, restored 8 files"
    assert (done.status, done.errors) == (0, f"{taken_back}\n")
    assert done.text == inspect.text.replace("\tapplied\t", "\tundone\t")
    applied.require_restored()
    for again in (journal, journal / "journal", os.path.relpath(journal)):
        outcome = eoctl("undo", again)
        assert (outcome.status, outcome.text, outcome.errors) == (0, done.text, done.errors)
    assert rows_of(eoctl("undo", journal, "--output", "jsonl")) == [row]
    packed = eoctl("undo", journal, "--output", "msgpack")
    assert unpacked(packed) == [row]
    assert json.loads(packed.errors)["message"] == " ".join(taken_back.split())
    applied.require_restored()


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "target"), [("rolled-0", "12"), ("trimmed-0", "7"), ("txn-1", "0"), ("plain-0", "90")]
)
def test_modes_and_times_come_back(name: str, target: str, kafka: Path, eoctl: Callable) -> None:
    """Of files that were cut, replaced, removed and made, and of their directory."""
    min((kafka / name).glob("*.log")).chmod(0o604)
    (kafka / "replication-offset-checkpoint").chmod(0o640)
    before = tree_of(kafka, directory_times=True)
    call = ("truncate", f"kafka/{name}", "--to-offset", target, "--single-copy", "--apply")
    assert eoctl(*call).status == 0
    changed = difference(before, tree_of(kafka, directory_times=True))
    assert len(changed) > 5
    assert eoctl("undo", journal_of(kafka)).status == 0
    differences = difference(before, tree_of(kafka, directory_times=True))
    assert [each for each in differences if each != ".: mtime_ns"] == []


def test_several_at_once(kafka: Path, eoctl: Callable) -> None:
    """Given in any order, the newest is taken back first."""
    before = tree_of(kafka)
    for offset in ("311", "300", "200"):
        call = ("truncate", "kafka/txn-0", "--to-offset", offset, "--apply")
        assert eoctl(*call).status == 0
    oldest, middle, newest = sorted(Path("kafka.eoctl").iterdir())
    outcome = eoctl("undo", middle, oldest, newest, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert [row["plan_id"] for row in rows_of(outcome)] == [
        newest.name,
        middle.name,
        oldest.name,
    ]
    assert difference(before, tree_of(kafka)) == []


def test_what_is_undone_before_an_error_is_told(kafka: Path, eoctl: Callable) -> None:
    """The older one lacks a backup; the newer one is taken back nevertheless."""
    for offset in ("311", "300"):
        call = ("truncate", "kafka/txn-0", "--to-offset", offset, "--apply")
        assert eoctl(*call).status == 0
    older, newer = sorted(Path("kafka.eoctl").iterdir())
    (next(older.glob("*.log"))).unlink()
    outcome = eoctl("undo", older, newer, "--output", "jsonl")
    assert outcome.status in (3, 4)
    assert [row["plan_id"] for row in rows_of(outcome)] == [newer.name]
    assert str(older.absolute()) in outcome.errors


def test_all_commands_can_be_undone(kafka: Path, eoctl: Callable) -> None:
    """Two rebuilt partitions have a journal each, and one call takes both back."""
    index = kafka / "txn-0" / "00000000000000000000.index"
    index.write_bytes(index.read_bytes()[:-8])
    (kafka / "txn-1" / "00000000000000000000.timeindex").unlink()
    before = tree_of(kafka)
    rebuilt = eoctl("rebuild", "--apply", "kafka/txn-0", "kafka/txn-1")
    assert rebuilt.status == 0
    journals = sorted(Path("kafka.eoctl").iterdir())
    assert len(journals) == 2
    call = f"eoctl undo --with-later {journals[0].absolute()} undoes all of it"
    assert rebuilt.errors.count(call) == 1
    assert f"Undo    eoctl undo --with-later {journals[0].absolute()}\n" in rebuilt.errors
    assert eoctl("undo", *journals).status == 0
    assert difference(before, tree_of(kafka)) == []
    snapshot = kafka / "txn-0" / f"{329:020d}.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:10])
    before = tree_of(kafka)
    assert eoctl("journal", "prune", "kafka", "--apply").status == 0
    assert eoctl("recover-state", "kafka/txn-0", "--apply").status == 0
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []


# --- refused --------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Path], object]] = {
    "cut_file": lambda kafka: os.truncate(kafka / LOG, 20_000),
    "cut_file_touched": lambda kafka: os.utime(kafka / LOG),
    "made_file": lambda kafka: (kafka / f"txn-0/{311:020d}.snapshot").write_bytes(b"x"),
    "made_file_gone": lambda kafka: (kafka / f"txn-0/{311:020d}.snapshot").unlink(),
    "replaced_file": lambda kafka: (kafka / "replication-offset-checkpoint").write_text("0\n0\n"),
    "removed_file": lambda kafka: (kafka / ".kafka_cleanshutdown").write_text("{}"),
    "new_file": lambda kafka: (kafka / f"txn-0/{329:020d}.log").write_bytes(b""),
    "other_file": lambda kafka: os.utime(kafka / "txn-0" / "partition.metadata"),
    "other_file_gone": lambda kafka: (kafka / "txn-0" / "partition.metadata").unlink(),
    "other_checkpoint": lambda kafka: os.utime(kafka / "log-start-offset-checkpoint"),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_since(name: str, applied: Applied, kafka: Path, eoctl: Callable) -> None:
    """As a broker does that runs; a look says the same."""
    CHANGES[name](kafka)
    for options in ((), ("--dry-run",)):
        words = refuses(eoctl, kafka, "would lose that", *options, applied.journal)
        assert "nothing was touched" in words or options
        assert "try: " in words


def test_old_bytes_that_are_not_what_was_kept(
    applied: Applied, kafka: Path, eoctl: Callable
) -> None:
    """A copy with a flipped bit, a link that was written to, one that is gone."""
    (cut,) = applied.journal.glob("*.log")
    good = cut.read_bytes()
    cut.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    refuses(eoctl, kafka, "is not what was kept of", applied.journal)
    cut.write_bytes(good)
    (linked,) = applied.journal.glob(f"*-{329:020d}.snapshot")
    good, times = linked.read_bytes(), linked.stat()
    linked.write_bytes(good + b"x")
    refuses(eoctl, kafka, "is not what was kept of", applied.journal)
    linked.write_bytes(good)
    os.utime(linked, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert eoctl("undo", "--dry-run", applied.journal).status == 0
    linked.rename(kafka.parent / "away")
    assert eoctl("undo", applied.journal).status in (3, 4)
    (kafka.parent / "away").rename(linked)
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()


def test_an_older_one_waits_for_the_later(kafka: Path, eoctl: Callable) -> None:
    """Also when the two are about different partitions of the log dir."""
    assert eoctl(*TRUNCATE).status == 0
    assert eoctl("truncate", "kafka/txn-1", "--to-offset", "200", "--apply").status == 0
    older, later = sorted(Path("kafka.eoctl").iterdir())
    words = refuses(eoctl, kafka, "a later plan for the same log dir is applied", older)
    assert f"eoctl undo {later.absolute()}   # first" in words
    assert eoctl("undo", later).status == 0
    assert eoctl("undo", older).status == 0


def test_a_log_dir_that_was_moved(applied: Applied, kafka: Path, eoctl: Callable) -> None:
    """The journal restores files by their paths, and names the path."""
    for name in ("kafka", "kafka.eoctl"):
        (kafka.parent / name).rename(kafka.parent / f"moved{name.removeprefix('kafka')}")
    moved = kafka.parent / "moved"
    words = refuses(eoctl, moved, f"its changes were applied at {kafka}", moved, status=2)
    assert f"move the log dir back to {kafka}" in words
    words = refuses(eoctl, moved, f"{kafka}: No such file", journal_of(moved), status=3)
    assert f"move the log dir back to {kafka}" in words
    for name in ("kafka", "kafka.eoctl"):
        (kafka.parent / f"moved{name.removeprefix('kafka')}").rename(kafka.parent / name)
    assert eoctl("undo", kafka).status == 0
    applied.require_restored()


def test_a_dry_run_with_later_changes(kafka: Path, eoctl: Callable) -> None:
    """What the undo of the later ones will restore counts, not what is on disk now."""
    before = tree_of(kafka)
    line = kafka.with_name("line")
    line.write_bytes(b"a line\n")
    for each in (
        ("truncate", "kafka/plain-0", "--to-offset", "100", "--apply"),
        TRUNCATE,
        ("produce", "kafka/txn-0", line, "--apply"),
        ("truncate", "kafka/txn-0", "--to-offset", "200", "--apply"),
        ("produce", "kafka/plain-0", line, "--apply"),
        ("produce", "kafka/txn-0", line, "--apply"),
    ):
        outcome = eoctl(*each)
        assert outcome.status == 0, outcome.errors
    after = tree_of(kafka)
    journals = sorted(Path("kafka.eoctl").iterdir())
    oldest = journals[0].absolute()
    call = ("undo", "--dry-run", "--with-later", oldest)
    dry = eoctl(*call)
    assert dry.status == 0, dry.errors
    assert len(dry.text.splitlines()) == 1 + len(journals) == 7
    answer, _ = split_answer(dry.errors)
    steps = [each for each in answer if each.startswith("Next")]
    assert steps == answer[-1:] == [f"Next eoctl undo --with-later {oldest}"]
    assert difference(after, tree_of(kafka)) == []
    assert eoctl("undo", "--with-later", oldest).status == 0
    assert difference(before, tree_of(kafka)) == []


def test_a_dry_run_sees_a_foreign_change_below_later_ones(kafka: Path, eoctl: Callable) -> None:
    """Also in a partition that only the oldest change touched."""
    for partition in ("plain-0", "txn-0"):
        call = ("truncate", f"kafka/{partition}", "--to-offset", "100", "--apply")
        assert eoctl(*call).status == 0
    oldest = min(Path("kafka.eoctl").iterdir())
    os.utime(kafka / "plain-0" / Path(LOG).name, ns=(0, 0))
    call = ("--dry-run", "--with-later", oldest)
    assert "plain-0" in refuses(eoctl, kafka, "was changed since", *call)


def test_a_later_one_without_a_backup(kafka: Path, eoctl: Callable) -> None:
    """It is not asked for an undo that it cannot have, and nothing newer is undone for nothing."""
    other = ("truncate", "kafka/txn-1", "--apply", "--to-offset")
    assert eoctl(*TRUNCATE).status == 0
    assert eoctl(*other, "200", "--no-backup", "--i-accept-the-loss").status == 0
    assert eoctl(*other, "100").status == 0
    older, lost, newest = sorted(Path("kafka.eoctl").iterdir())
    for arguments in ([older], ["--with-later", older], ["--dry-run", older], [older, newest]):
        words = refuses(eoctl, kafka, "was applied without a backup, so nothing", *arguments)
        assert f"before it can be undone: {lost.absolute()}" in words
        assert f"eoctl undo {lost.absolute()}" not in words
        assert f"is kept in {older.absolute()}" in words
    refuses(eoctl, kafka, "so it cannot be undone", "--with-later", lost)
    assert eoctl("undo", newest).status == 0


def test_a_held_lock(applied: Applied, kafka: Path, eoctl: Callable) -> None:
    """A look may be had."""
    with held(kafka) as pid:
        refuses(eoctl, kafka, f"process {pid} holds the lock; nothing was touched", applied.journal)
        assert eoctl("undo", "--dry-run", applied.journal).status == 0
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()


def test_another_change_is_unfinished(
    applied: Applied, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ("truncate", "kafka/txn-1", "--to-offset", "200", "--apply")
    leave_unfinished(eoctl, monkeypatch, *other)
    words = refuses(eoctl, kafka, "an earlier change has not been finished", applied.journal)
    path = (kafka / ".eoctl-unfinished").read_text().strip()
    assert f"eoctl apply {path}" in words
    assert eoctl("undo", path, applied.journal).status == 0
    applied.require_restored()


def test_what_is_no_journal(applied: Applied, kafka: Path, eoctl: Callable) -> None:
    """Nothing, a place with journals: cannot be read, and nothing happens."""
    for path in ("nowhere", "kafka.eoctl", applied.journal / "no"):
        refuses(eoctl, kafka, "No such file", path, status=3)
    outcome = eoctl("undo")
    assert outcome.status == 2
    data = (applied.journal / "journal").read_bytes()
    for bad in (b"", b"x", data[: len(data) // 2], bytes(1000), data[:50] + b"\xff" + data[51:]):
        (applied.journal / "journal").write_bytes(bad)
        words = refuses(eoctl, kafka, "the journal is damaged [JNL-1]", applied.journal, status=1)
        assert str(applied.journal / "journal") in words


# --- interrupted ----------------------------------------------------------------------------------


def test_an_interrupted_run_is_rolled_back(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the tree as it was, whichever of the first cuts was the last that was done."""
    before = tree_of(kafka, directory_times=True)
    for call in (1, 2):
        with monkeypatch.context() as patch:
            interrupt(patch, call=call)
            assert eoctl(*TRUNCATE).status == 130
        assert (kafka / ".eoctl-unfinished").exists()
        assert not (kafka / ".kafka_cleanshutdown").exists()
        outcome = eoctl("undo", max(Path("kafka.eoctl").iterdir()), "--output", "jsonl")
        assert outcome.status == 0, outcome.errors
        assert [row["status"] for row in rows_of(outcome)] == ["undone"]
        differences = difference(before, tree_of(kafka, directory_times=True))
        assert [each for each in differences if each != ".: mtime_ns"] == []
        assert leftovers(kafka) == []


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("method", "name", "call"),
    [
        ("truncate", "", 1),
        ("rename", "", 2),
        ("write", ".log", 1),
        ("set_times", "", 1),
        ("fsync_dir", "", 3),
        ("unlink", f"{311:020d}.snapshot", 1),
        ("unlink", ".eoctl-unfinished", 1),
    ],
)
def test_an_interrupted_undo_is_completed(
    method: str,
    name: str,
    call: int,
    applied: Applied,
    kafka: Path,
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By another one, whatever was done last; meanwhile nothing else is done to the log dir."""
    with monkeypatch.context() as patch:
        interrupt(patch, method, call=call, name=name)
        outcome = eoctl("undo", applied.journal)
    assert outcome.status == 130
    assert (kafka / ".eoctl-unfinished").exists()
    other = eoctl("truncate", "kafka/txn-1", "--to-offset", "200", "--apply")
    assert other.status == 4
    assert f"eoctl undo {applied.journal}" in other.errors
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()


def test_an_interrupted_undo_says_what_to_do(
    applied: Applied, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = leave_unfinished(eoctl, monkeypatch, "undo", applied.journal)
    assert outcome.errors == (
        f"eoctl: interrupted: the undo is unfinished: eoctl undo {applied.journal} completes it\n"
    )


def test_no_journal_is_lost_by_going_back_and_forth(kafka: Path, eoctl: Callable) -> None:
    """A plan can be applied and undone any number of times, in one directory."""
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--save-plan", "plan.json")
    assert eoctl(*call).status == 0
    before = tree_of(kafka)
    for _ in range(3):
        assert eoctl("apply", "plan.json").status == 0
        done = eoctl("undo", journal_of(kafka), "--output", "jsonl")
        assert (done.status, notes_of(done)) == (0, [])
        assert difference(before, tree_of(kafka)) == []


# --- what else happened in the log dir ------------------------------------------------------------


def test_the_marker_does_not_vouch_for_what_was_changed_since(
    applied: Applied, kafka: Path, eoctl: Callable
) -> None:
    """Another partition got batches, perhaps torn ones: the next start has to recover."""
    with (kafka / "plain-0" / "00000000000000000000.log").open("ab") as log:
        log.write(b"half a batch")
    outcome = eoctl("undo", applied.journal)
    assert outcome.status == 0
    assert f"{kafka}/plain-0: was changed since: the clean-shutdown marker stays away" in (
        outcome.errors
    )
    assert not (kafka / ".kafka_cleanshutdown").exists()
    files = {name: each for name, each in tree_of(kafka).items() if each.data is not None}
    old = {name: each for name, each in applied.before.items() if each.data is not None}
    assert [each.split(":")[0] for each in difference(old, files)] == [
        ".kafka_cleanshutdown",
        "plain-0/00000000000000000000.log",
    ]
    assert leftovers(kafka) == []


def test_the_order_is_that_of_applying_not_of_planning(kafka: Path, eoctl: Callable) -> None:
    """A plan that was saved first and applied last is undone first."""
    before = tree_of(kafka)
    (kafka / "txn-1" / "00000000000000000000.timeindex").write_bytes(b"")
    changed = tree_of(kafka)
    assert eoctl("rebuild", "kafka/txn-1", "--save-plan", "saved").status == 0
    assert eoctl(*TRUNCATE).status == 0
    truncated = journal_of(kafka)
    # The marker is gone since: the plan says that it goes, so it is stale, and has to be made anew.
    assert eoctl("apply", "saved").status == 4
    assert eoctl("rebuild", "kafka/txn-1", "--save-plan", "again").status == 0
    assert eoctl("undo", truncated).status == 0
    assert eoctl("apply", "again").status == 4  # it is there again
    assert difference(changed, tree_of(kafka)) == []
    assert difference(before, changed)


def test_an_earlier_plan_that_was_applied_later_goes_first(killed: Path, eoctl: Callable) -> None:
    (killed / "txn-1" / "00000000000000000000.index").write_bytes(b"")
    before = tree_of(killed)
    assert eoctl("rebuild", "killed/txn-1", "--save-plan", "saved").status == 0
    assert eoctl("truncate", "killed/txn-0", "--to-offset", "311", "--apply").status == 0
    assert eoctl("apply", "saved").status == 0
    rebuilt, truncated = sorted(Path("killed.eoctl").iterdir())
    assert "rebuild" in rebuilt.name
    refused = eoctl("undo", truncated)
    assert refused.status == 4
    assert f"eoctl undo {rebuilt.resolve()}   # first" in refused.errors
    assert eoctl("undo", truncated, rebuilt).status == 0
    assert difference(before, tree_of(killed)) == []


def test_a_journal_that_was_moved_to_another_disk(
    applied: Applied, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that cannot be renamed back are copied back."""
    rename = FileSystem.rename

    def other_disk(fs: FileSystem, old: str, new: str) -> None:
        if Path(old).parent != Path(new).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(fs, old, new)

    monkeypatch.setattr(FileSystem, "rename", other_disk)
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()


def test_a_log_dir_that_is_a_link(kafka: Path, eoctl: Callable) -> None:
    Path("link").symlink_to("kafka")
    before = tree_of(kafka)
    assert eoctl("truncate", "link/txn-0", "--to-offset", "311", "--apply").status == 0
    for name in ("link", "kafka"):
        (row,) = rows_of(eoctl("journal", "list", name, "--output", "jsonl"))
        assert row["status"] == "applied"
    assert eoctl("undo", row["path"]).status == 0
    assert difference(before, tree_of(kafka)) == []


# --- modes and owners of backups ------------------------------------------------------------------


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the place for backups is on another disk: whole files are copied."""
    link = FileSystem.link

    def other_disk(fs: FileSystem, old: str, new: str) -> None:
        if Path(old).parent != Path(new).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(fs, old, new)

    monkeypatch.setattr(FileSystem, "link", other_disk)


def test_a_copy_is_as_readable_as_the_original(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the mode of the log dir is; what is cut as well as what is whole."""
    kafka.chmod(0o755)
    (kafka / LOG).chmod(0o600)
    (kafka / "replication-offset-checkpoint").chmod(0o640)
    (kafka / f"txn-0/{329:020d}.snapshot").chmod(0o444)
    before = tree_of(kafka)
    without_links(monkeypatch)
    assert eoctl(*TRUNCATE).status == 0
    modes = {
        path.name.partition("-")[2]: path.stat().st_mode & 0o7777
        for path in journal_of(kafka).iterdir()
    }
    assert modes[Path(LOG).name] == 0o600
    assert modes["replication-offset-checkpoint"] == 0o640
    assert modes[f"{329:020d}.snapshot"] == 0o444
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_copy_with_another_owner_is_for_that_one_alone(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place belongs to somebody else: who may read there could read what he must not."""
    for path in [kafka, *kafka.rglob("*")]:
        os.chown(path, 12345, 23456)
    (kafka / LOG).chmod(0o640)
    before = tree_of(kafka)
    Path("place").mkdir()
    without_links(monkeypatch)
    assert eoctl(*TRUNCATE, "--backup-dir", "place").status == 0
    (journal,) = Path("place").iterdir()
    (cut,) = journal.glob("*.log")
    assert (cut.stat().st_uid, cut.stat().st_mode & 0o7777) == (os.geteuid(), 0o600)
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(kafka)) == []


@pytest.mark.share(2)
@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("change", ["chmod", "chown", "utime"])
def test_backups_with_other_modes_owners_and_times(
    change: str,
    is_copied: bool,
    kafka: Path,
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bytes count; what is put back has the mode, the owner and the time of the journal."""
    if is_copied:
        without_links(monkeypatch)
    applied = Applied(kafka, eoctl)
    for path in applied.journal.iterdir():
        if change == "chmod":
            path.chmod(0o604)
        elif change == "utime":
            os.utime(path, ns=(1, 1))
        elif os.geteuid() == 0:
            os.chown(path, 12345, 23456)
    assert eoctl("undo", "--dry-run", applied.journal).status == 0
    undone = eoctl("undo", applied.journal)
    assert undone.status == 0, undone.errors
    applied.require_restored()


def test_a_backup_that_cannot_get_its_owner_back_is_copied(
    applied: Applied, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has given it away; a copy of it belongs to who makes it."""
    (linked,) = applied.journal.glob(f"*-{329:020d}.snapshot")
    linked.chmod(0o604)
    open_existing = FileSystem.open_existing

    def refused(fs: FileSystem, path: Any) -> Any:
        if Path(path) == linked:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_existing(fs, path)

    monkeypatch.setattr(FileSystem, "open_existing", refused)
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()


def test_the_mode_of_a_file_that_was_cut_comes_back(applied: Applied, eoctl: Callable) -> None:
    (applied.kafka / LOG).chmod(0o604)
    assert eoctl("undo", applied.journal).status == 0
    applied.require_restored()


# --- the clock ------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later plan has the earlier time: it still is the one that goes first."""
    before = tree_of(kafka)
    real = time.time_ns
    journals: list[Path] = []
    for days, offset in ((0, "311"), (40, "300"), (80, "200")):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda past=days: real() - past * 86_400 * 10**9)
            assert eoctl("truncate", "kafka/txn-0", "--to-offset", offset, "--apply").status == 0
        journals += [each for each in Path("kafka.eoctl").iterdir() if each not in journals]
    oldest, middle, newest = journals
    assert newest.name < middle.name < oldest.name
    for each in (oldest, middle):
        refuses(eoctl, kafka, f"is applied: {newest.absolute()}", each)
    outcome = eoctl("undo", middle, newest, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert [row["plan_id"] for row in rows_of(outcome)] == [newest.name, middle.name]
    assert eoctl("undo", oldest).status == 0
    assert difference(before, tree_of(kafka)) == []
    times = [
        row["applied_at_ms"]
        for row in rows_of(eoctl("journal", "list", oldest, "--output", "jsonl"))
    ]
    assert abs(times[0] - real() // 10**6) < 3_600_000  # the real one is told, not the order


# --- what else lies in a log dir ------------------------------------------------------------------


def test_links_to_themselves_in_the_log_dir(kafka: Path, eoctl: Callable) -> None:
    """Neither a partition nor anything else: they stand in nobody's way."""
    for name in ("loop", "loop-0", f"loop-0.{'0' * 32}-delete"):
        (kafka / name).symlink_to(name)
    (kafka / "lost+found").mkdir()
    Applied(kafka, eoctl)
    assert eoctl("undo", "--dry-run", journal_of(kafka)).status == 0
    (kafka / "lost+found" / f"{0:020d}.log").touch()
    undone = eoctl("undo", journal_of(kafka))
    assert (undone.status, split_answer(undone.errors)[1]) == (0, [])
    assert (kafka / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("when", ["before", "after", "always"])
def test_a_partition_that_cannot_be_listed(
    when: str, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was changed is not known: the clean-shutdown marker must not vouch for it."""
    scandir = os.scandir

    def unreadable(path: Any = ".") -> Any:
        if str(path).endswith("kafka/plain-0"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        if when != "after":
            patch.setattr(os, "scandir", unreadable)
        assert eoctl(*TRUNCATE).status == 0
    with monkeypatch.context() as patch:
        if when != "before":
            patch.setattr(os, "scandir", unreadable)
        undone = eoctl("undo", journal_of(kafka))
    assert undone.status == 0, undone.errors
    assert f"{kafka}/plain-0: was changed since: the clean-shutdown marker stays away" in (
        undone.errors
    )
    assert not (kafka / ".kafka_cleanshutdown").exists()


def test_a_log_dir_stands_for_its_newest_journal(kafka: Path, eoctl: Callable) -> None:
    """It is told which; one call after the other goes back to the beginning, and then no further."""
    states = [tree_of(kafka)]
    for offset in (300, 200):
        call = ("truncate", kafka / "txn-0", "--to-offset", offset, "--apply", "--single-copy")
        assert eoctl(*call).status == 0
        states.append(tree_of(kafka))
    journals = sorted(Path(f"{kafka}.eoctl").iterdir())
    for journal, before in zip(reversed(journals), reversed(states[:-1]), strict=True):
        assert eoctl("undo", kafka, "--dry-run").status == 0
        outcome = eoctl("undo", kafka)
        assert outcome.status == 0, outcome.errors
        assert f"{kafka}: its newest change is {journal}: truncate" in outcome.errors
        assert tree_of(kafka) == before
    outcome = eoctl("undo", kafka)
    assert outcome.status == 2
    assert "nothing there can be undone" in outcome.errors
