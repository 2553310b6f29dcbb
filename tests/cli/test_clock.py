"""One clock in every command: the wall clock, and that of the directory only when asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl import clock
from storage.formats.producer_snapshot import encode_snapshot, parse_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

JSONL = ("--output", "jsonl")
LATER = "2030-01-01T00:00:00Z"
LATER_MS = 1_893_456_000_000
OPEN_TRANSACTIONS = {"open-1", "open-2"}


@pytest.fixture
def years_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: LATER_MS)


def rows_of(outcome: Any, kind: str) -> list[dict[str, Any]]:
    rows = map(json.loads, outcome.text.splitlines())
    return [each for each in rows if each["kind"] == kind]


@pytest.mark.share(3)
@pytest.mark.usefixtures("years_later")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "killed"),
        ("rebuild", "killed/txn-0"),
        ("recover-state", "killed/txn-0"),
        ("producers", "killed"),
        ("truncate", "killed/txn-0", "--to-offset", "311", "--single-copy"),
        ("txn", "list", "killed"),
        ("txn", "hanging", "killed"),
        ("txn", "torn", "killed"),
        ("txn", "stats", "killed"),
        ("txn", "describe", "killed", "--transactional-id", "open-1"),
        ("txn", "complete", "killed", "--single-copy"),
        ("txn", "abort", "killed/txn-0", "--producer-id", "40", "--force-overdue", "--single-copy"),
        ("repair", "killed", "--strategy", "as-broker"),
        ("lease-pid", "list", "killed"),
    ],
)
def test_the_clock_is_told(killed: Path, eoctl: Callable, arguments: tuple[str, ...]) -> None:
    """Whatever the directory says."""
    assert killed.exists()
    outcome = eoctl(*arguments)
    assert "now is 2030-01-01 00:00:00 UTC (the wall clock)" in outcome.errors
    of_directory = eoctl(*arguments, "--now", "dir")
    assert "(the newest checkpoint of" in of_directory.errors


@pytest.mark.usefixtures("years_later")
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "broker-1/div-0", "broker-2/div-0"),
        ("rejoin", "broker-1/div-0", "--leader", "broker-2/div-0", "--unclean"),
    ],
)
def test_the_clock_of_replicas_is_told(
    diverged: Path, eoctl: Callable, arguments: tuple[str, ...]
) -> None:
    assert diverged.exists()
    outcome = eoctl("replicas", *arguments)
    assert "(the wall clock)" in outcome.errors


def test_what_hangs_is_what_would_be_aborted(killed: Path, eoctl: Callable) -> None:
    """A crashed directory, looked at a day later."""
    hanging = eoctl("txn", "hanging", killed, *JSONL)
    assert hanging.status == 1
    late = {each["transactional_id"] for each in rows_of(hanging, "hanging")}
    planned = rows_of(eoctl("txn", "complete", killed, "--single-copy", *JSONL), "complete")
    assert late == {each["transactional_id"] for each in planned} == OPEN_TRANSACTIONS
    checked = rows_of(eoctl("check", killed, *JSONL), "finding")
    severities = [each["severity"] for each in checked if each["check_id"] == "TXO-1"]
    assert severities == ["warning", "warning"]
    assert eoctl("txn", "hanging", killed, "--now", "dir").status == 0


def test_what_has_expired_since_is_no_difference(
    golden: Callable[[str], Path], eoctl: Callable
) -> None:
    """A broker leaves old producers out when it loads its snapshots: it has not damaged them."""
    directory = golden("kafka-4.3.1") / "hard-clean"
    at_its_time = rows_of(eoctl("rebuild", directory, "--now", "dir", *JSONL), "derived_file")
    later = rows_of(eoctl("rebuild", directory, "--now", LATER, *JSONL), "derived_file")
    assert [each["state"] for each in later] == [each["state"] for each in at_its_time]
    reasons = {each["file"]: each["reason"] for each in later if "expired" in each["reason"]}
    assert len(reasons) >= 6
    assert reasons["00000000000000000181.snapshot"] == "7 of its 16 producers have expired since"


def test_the_same_producers_in_another_order(killed: Path, eoctl: Callable) -> None:
    """Said as what it is; brokers before 3.5 have them in the order of another map."""
    path = killed / "many-producers-0" / "00000000000000000174.snapshot"
    written = eoctl("rebuild", path.parent, "--now", "dir", "--apply")
    assert written.status == 0, written.errors
    path.write_bytes(encode_snapshot(parse_snapshot(path.read_bytes())[::-1]))
    rows = rows_of(eoctl("rebuild", path.parent, "--now", "dir", *JSONL), "derived_file")
    (row,) = (each for each in rows if each["state"] != "equal")
    assert (row["file"], row["state"]) == (path.name, "differs")
    assert row["reason"].startswith("the same producers in another order")


def test_a_snapshot_with_expired_producers_stays(
    killed: Path, golden: Callable[[str], Path], eoctl: Callable
) -> None:
    """`recover-state` names them, finds nothing wrong, and has nothing to write."""
    source = golden("kafka-4.3.1") / "hard-clean" / "many-producers-0"
    shutil.rmtree(killed / "many-producers-0")
    (killed / "recovery-point-offset-checkpoint").unlink()  # all of it is recovered
    copy = Path(shutil.copytree(source, killed / "many-producers-0"))
    snapshots = {path.name: path.read_bytes() for path in copy.glob("*.snapshot")}
    call = ("recover-state", copy, "--now", LATER)
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert "51 of the 137 producers in 00000000000000001914.snapshot have expired" in outcome.errors
    states = {each["state"] for each in rows_of(eoctl(*call, *JSONL), "producer")}
    assert states == {"equal", "expired"}
    assert "nothing to write" in eoctl(*call, "--apply").errors
    assert snapshots == {path.name: path.read_bytes() for path in copy.glob("*.snapshot")}


def test_an_earlier_check_by_another_clock(killed: Path, tmp_path: Path, eoctl: Callable) -> None:
    """What was not late then may be so now; the rest is taken."""
    state = tmp_path / "check.state"
    call = ("check", killed, "--resume", state)
    assert eoctl(*call, "--now", "dir").status == 0
    later = eoctl(*call, "--now", LATER)
    assert later.status == 1
    assert "22 partitions as an earlier run found them" in later.errors
