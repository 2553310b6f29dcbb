"""What of a log dir cannot be read, beside its `.log` files: who is asked for all of it says so."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.damage.planted import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
READ = ("meta.properties", *CHECKPOINTS)
OF_ALL = (
    ("check",),
    ("describe",),
    ("repair",),
    ("repair", "--strategy", "salvage", "--single-copy"),
    ("repair", "--strategy", "as-broker", "--single-copy"),
    ("rebuild",),
    ("producers",),
    ("duplicates",),
    ("loss",),
    ("spark-audit", "--engine", "local"),
    ("txn", "list"),
    ("txn", "hanging"),
    ("txn", "torn"),
    ("txn", "stats"),
)


def dangling(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("gone")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture(name="call")
def _call(golden: Callable[[str], Path], eoctl: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a command; `rebuild` is told what the topics' settings are."""

    def call(command: str, *arguments: object) -> Any:
        metadata = ("--metadata-dir", golden("kafka-4.3.1") / "clean")
        return eoctl(command, *arguments, *(metadata if command == "rebuild" else ()))

    return call


@pytest.fixture(name="log_dir")
def _log_dir(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    clean = golden("kafka-4.3.1") / "clean"
    log_dir = tmp_path / "log-dir"
    log_dir.mkdir()
    for name in (*READ, ".kafka_cleanshutdown"):
        shutil.copy2(clean / name, log_dir)
    shutil.copytree(clean / "plain-0", log_dir / "plain-0")
    for name in CHECKPOINTS:  # of what was copied only
        lines = (log_dir / name).read_text().splitlines()[2:]
        kept = [line for line in lines if line.startswith("plain 0 ")]
        (log_dir / name).write_text("\n".join(("0", str(len(kept)), *kept, "")))
    return log_dir


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("gone-0", dangling),
        *((name, plant) for name in READ for plant in (dangling, directory)),
    ],
)
def test_who_reads_a_whole_log_dir(
    name: str, plant: Callable[[Path], None], log_dir: Path, call: Callable[..., Any]
) -> None:
    """A status that is not 0, and the path; without the damage it is 0."""
    plant(log_dir / name)
    for command in OF_ALL:
        outcome = call(*command, log_dir)
        assert outcome.status in {1, 3, 4, 5}, (command, outcome.status, outcome.errors)
        assert str(log_dir / name) in outcome.errors + outcome.text, (command, outcome.errors)
        if command[0] == "repair":
            assert outcome.status != 1, outcome.errors
            assert "there is nothing to repair:" not in outcome.errors
    assert call("journal", "list", log_dir).status == 0


OF_ONE = (
    ("consume",),
    ("consume", "--isolation", "read_committed"),
    ("recover-state",),
    ("locate", "--offset", "3"),
    *OF_ALL,
)


def garbled(path: Path) -> None:
    path.write_text("0\n1\nplain 0\n")


@pytest.mark.share(2)
@pytest.mark.parametrize("plant", [dangling, directory, garbled])
@pytest.mark.parametrize("name", CHECKPOINTS[1:])
def test_who_reads_one_partition(
    name: str, plant: Callable[[Path], None], log_dir: Path, call: Callable[..., Any]
) -> None:
    """Its log start and high watermark may be in there: nobody ends with 0, or without the path."""
    for command in OF_ONE:
        outcome = call(*command, log_dir / "plain-0")
        assert outcome.status == 0, (command, outcome.errors, outcome.text)
    plant(log_dir / name)
    for command in OF_ONE:
        outcome = call(*command, log_dir / "plain-0")
        assert outcome.status in {1, 4, 5}, (command, outcome.status, outcome.errors)
        assert name in outcome.errors + outcome.text, (command, outcome.errors)


@pytest.mark.parametrize("plant", [dangling, directory, garbled])
@pytest.mark.parametrize("name", CHECKPOINTS[1:])
def test_who_reads_a_replica(
    name: str,
    plant: Callable[[Path], None],
    log_dir: Path,
    call: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """What was acknowledged of it is not known: a comparison is not whole, a cut is refused."""
    other = tmp_path / "other"
    shutil.copytree(log_dir, other)
    meta = other / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    own, replica = log_dir / "plain-0", other / "plain-0"
    calls = {
        ("replicas", "compare", own, replica): 5,
        ("replicas", "rejoin", own, "--leader", replica): 4,
        ("truncate", own, "--to-hw", "--replica", replica): 4,
        ("truncate", own, "--to-hw", "--all-replicas", replica): 4,
    }
    for words in calls:
        outcome = call(*words)
        assert outcome.status == 0, (words, outcome.errors)
    plant(other / name)
    for words, status in calls.items():
        outcome = call(*words)
        assert outcome.status == status, (words, outcome.status, outcome.errors)
        assert name in outcome.errors, (words, outcome.errors)


def test_they_are_clean_without_damage(log_dir: Path, call: Callable[..., Any]) -> None:
    for command in OF_ALL:
        outcome = call(*command, log_dir)
        assert outcome.status == 0, (command, outcome.errors, outcome.text)


def test_what_is_repaired_beside_it(log_dir: Path, call: Callable[..., Any]) -> None:
    """The damage is mended, and the status says that something was not read."""
    log = layout.segment(log_dir / "plain-0")
    layout.flip(log, layout.batch_at(log, 5).pos + 70, 4)
    dangling(log_dir / "gone-0")
    salvage = ("repair", log_dir, "--strategy", "salvage", "--single-copy", "--apply")
    outcome = call(*salvage)
    assert (outcome.status, "undoes it" in outcome.errors) == (5, True), outcome.errors
    (log_dir / "gone-0").unlink()
    assert call(*salvage).status == 0
