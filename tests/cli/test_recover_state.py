"""`eoctl recover-state`: its text, its rows, its differences, and what it writes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def copies(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """Writable copies of `crash` and `clean`."""
    for state in ("crash", "clean"):
        shutil.copytree(golden("kafka-4.3.1") / state, tmp_path / state)
        for path in [tmp_path / state, *(tmp_path / state).rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
    return tmp_path


def newest_snapshot(directory: Path) -> Path:
    return max(directory.glob("*.snapshot"))


def test_text_is_that_of_the_snapshot_a_broker_wrote(copies: Path, eoctl: Callable) -> None:
    """Recovered from the crash: the lines of the snapshot after the broker's own recovery."""
    snapshot = newest_snapshot(copies / "clean" / "txn-0")
    dumped = eoctl("dump-segment", snapshot).text.splitlines()[1:]
    outcome = eoctl("recover-state", copies / "crash" / "txn-0")
    assert outcome.status == 0
    assert outcome.text.splitlines() == dumped
    assert f"no valid {snapshot.name} on disk" in outcome.errors


def test_what_differs_is_told_entry_by_entry(copies: Path, eoctl: Callable) -> None:
    """A snapshot of another partition in place of the right one."""
    directory = copies / "clean" / "txn-0"
    snapshot = newest_snapshot(directory)
    snapshot.write_bytes(newest_snapshot(copies / "clean" / "txn-1").read_bytes())
    outcome = eoctl("recover-state", "--from-scratch", directory)
    assert outcome.status == 1
    assert "differs: " in outcome.errors
    assert "last_offset" in outcome.errors
    rows = [
        json.loads(line)
        for line in eoctl(
            "recover-state", "--from-scratch", directory, "--output", "jsonl"
        ).stdout.splitlines()
    ]
    assert {row["state"] for row in rows} >= {"differs"}
    assert any("last_offset" in row["differing_fields"] for row in rows)
    assert all(row["current_txn_first_offset"] != -1 for row in rows)


def test_to_and_apply_write_the_broker_s_bytes(copies: Path, eoctl: Callable) -> None:
    """Elsewhere, or in place without the clean marker; a second run has nothing to do."""
    wanted = newest_snapshot(copies / "clean" / "txn-0")
    out = copies / "out.snapshot"
    assert eoctl("recover-state", copies / "crash" / "txn-0", "--to", out).status == 0
    assert out.read_bytes() == wanted.read_bytes()

    clean = copies / "clean"
    content = wanted.read_bytes()
    wanted.unlink()
    outcome = eoctl("recover-state", "--from-scratch", "--apply", clean / "txn-0")
    assert outcome.status == 0
    assert wanted.read_bytes() == content
    assert not (clean / ".kafka_cleanshutdown").exists()
    mtime_ns = wanted.stat().st_mtime_ns
    again = eoctl("recover-state", "--from-scratch", "--apply", clean / "txn-0")
    assert "nothing to write" in again.errors
    assert wanted.stat().st_mtime_ns == mtime_ns


def test_at_an_offset_it_never_applies(copies: Path, eoctl: Callable) -> None:
    """A look at the past is not a state to start with."""
    path = copies / "clean" / "txn-0"
    assert eoctl("recover-state", path, "--at-offset", 40).status == 0
    assert eoctl("recover-state", path, "--at-offset", 40, "--apply").status == 2
    assert eoctl("recover-state", path, "--at-offset", 10**6).status == 2
    assert eoctl("recover-state", copies / "clean").status == 2


def test_now_is_printed_with_the_result(copies: Path, eoctl: Callable) -> None:
    """The wall clock by default, any other when asked."""
    path = copies / "crash" / "txn-0"
    assert "the wall clock" in eoctl("recover-state", path).errors
    newest = "the newest checkpoint of the directory"
    assert newest in eoctl("recover-state", path, "--now", "dir").errors
    assert "as given" in eoctl("recover-state", path, "--now", "2026-01-01T00:00:00Z").errors
    assert "the wall clock" in eoctl("recover-state", path, "--now", "wall").errors


@pytest.mark.parametrize("options", [["--from-scratch"], []])
def test_a_damaged_log_is_told_and_not_papered_over(
    options: list[str], copies: Path, eoctl: Callable
) -> None:
    """The replay stops at a bad checksum: the state is not that of the log end."""
    directory = copies / "crash" / "txn-0"
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    inspect = eoctl("recover-state", *options, directory)
    assert inspect.status == 1
    assert f"{path}: position " in inspect.errors
    assert "no batch behind it in this file is part of the state" in inspect.errors
    assert eoctl("recover-state", *options, "--apply", directory).status == 4
    assert not list(directory.glob("*.snapshot"))


def test_a_torn_tail_is_told(copies: Path, eoctl: Callable) -> None:
    """As after a crash: the snapshot at the end of what is whole may be written."""
    directory = copies / "clean" / "txn-0"
    path = directory / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-7])
    inspect = eoctl("recover-state", directory)
    assert inspect.status == 1
    assert "torn tail" in inspect.errors
    assert eoctl("recover-state", "--apply", directory).status == 1
    assert (directory / f"{318:020d}.snapshot").exists()


def test_a_log_that_cannot_be_read_is_no_empty_one(copies: Path, eoctl: Callable) -> None:
    """Status 5, and the file is named."""
    directory = copies / "clean" / "txn-0"
    path = directory / "00000000000000000000.log"
    path.unlink()
    path.symlink_to("nowhere")
    outcome = eoctl("recover-state", directory)
    assert outcome.status == 5
    assert "leads nowhere" in outcome.errors


def test_a_log_start_beyond_the_end_is_no_wrong_call(copies: Path, eoctl: Callable) -> None:
    """OFS-1: a broker would delete all of it."""
    (copies / "clean" / "log-start-offset-checkpoint").write_text("0\n1\ntxn 0 99999\n")
    outcome = eoctl("recover-state", copies / "clean" / "txn-0")
    assert outcome.status == 4
    assert "OFS-1" in outcome.errors
