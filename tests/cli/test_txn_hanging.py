"""`eoctl txn hanging`: it agrees with `check`, and the calls that it names end what hangs."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.damage.planted import layout
from tests.hanging import forget
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

LATE = ("--now", "2026-11-21T04:00:00Z")  # an hour after the golden transactions began
LOG_DIRS = (
    *(f"kafka-4.3.1/{each}" for each in ("clean", "crash", "hard", "hard-clean", "tv2")),
    *(f"kafka-4.3.1-three-brokers/diverged/broker-{each}" for each in (1, 2, 3)),
    "kafka-2.8.2/one",
    "kafka-3.9.1/two",
)
AT_LEAST = {"kafka-4.3.1/clean": 2, "kafka-4.3.1/hard": 106}  # by the wall clock


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def both(eoctl: Callable[..., Any], path: Path, *clock: object) -> tuple[set[Any], set[Any]]:
    """What hangs by `txn hanging`, and by `check`: directory, first and last offset."""
    found = rows_of(eoctl("txn", "hanging", path, *clock, "--output", "jsonl").text)
    checked = rows_of(eoctl("check", path, *clock, "--jobs", "1", "--output", "jsonl").text)
    return (
        {(row["path"], row["first_offset"], row["last_offset"]) for row in found},
        {
            (str(Path(row["path"]).parent), row["base_offset"], row["last_offset"])
            for row in checked
            if row.get("check_id") == "TXO-1" and row["severity"] == "warning"
        },
    )


@pytest.mark.share(2)
@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_check_agrees(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], log_dir: str
) -> None:
    archive, _, below = log_dir.partition("/")
    for clock in ((), ("--now", "dir"), LATE):
        hanging, checked = both(eoctl, golden(archive) / below, *clock)
        assert hanging == checked
        assert clock or len(hanging) >= AT_LEAST.get(log_dir, 0)


def remove_snapshots(path: Path) -> None:
    for each in path.glob("*.snapshot"):
        each.unlink()


def cut_the_tail(path: Path) -> None:
    """The markers of the last transactions go: those before them are open again."""
    log = layout.log_files(path)[-1]
    layout.write(log, log.read_bytes()[: layout.batch_at(log, 12).pos])
    remove_snapshots(path)


def raise_the_log_start(path: Path) -> None:
    layout.set_offset(path.parent, "log-start", path.name, 313)


@pytest.mark.parametrize("change", [remove_snapshots, cut_the_tail, raise_the_log_start])
def test_check_agrees_of_what_was_made(
    eoctl: Callable[..., Any], kafka: Path, change: Callable[[Path], None]
) -> None:
    change(kafka / "txn-0")
    for each in kafka.glob("txn-*"):
        hanging, checked = both(eoctl, each)
        assert hanging == checked != set()


def test_the_call_for_what_a_coordinator_lists(eoctl: Callable[..., Any], kafka: Path) -> None:
    rows = rows_of(eoctl("txn", "hanging", kafka, "--output", "jsonl").text)
    assert [row["verdict"] for row in rows] == ["overdue", "overdue"]
    for row in rows:
        name, *call = shlex.split(row["offline_command"])
        assert (name, *call[:2]) == ("eoctl", "txn", "complete")
        plan = eoctl(*call)
        assert (plan.status, "this is a plan" in plan.errors) == (0, True), plan.errors
        assert "the wall clock" in plan.errors
        assert eoctl(*call, "--apply").status == 0
    after = eoctl("txn", "hanging", kafka, "--output", "jsonl")
    assert (after.status, after.text) == (0, "")
    assert "the wall clock" in after.errors


@pytest.mark.parametrize("clock", [(), LATE])
def test_the_call_for_what_no_coordinator_will_end(
    eoctl: Callable[..., Any], kafka: Path, clock: tuple[str, ...]
) -> None:
    """With the clock of the call that named it."""
    forget(kafka, "open-1")
    rows = rows_of(eoctl("txn", "hanging", kafka / "txn-0", *clock, "--output", "jsonl").text)
    (row,) = rows
    name, *call = shlex.split(row["offline_command"])
    assert (name, *call[:2], row["verdict"]) == ("eoctl", "txn", "abort", "hanging")
    assert eoctl(*call).status == 0
    assert eoctl(*call, "--apply").status == 0
    assert eoctl("txn", "hanging", kafka / "txn-0", *clock).status == 0


def test_the_call_where_the_coordinators_lie_elsewhere(
    eoctl: Callable[..., Any], kafka: Path, tmp_path: Path
) -> None:
    """With a blank in a name, too. Without a coordinator's log there is no call."""
    other = tmp_path / "other dir"
    other.mkdir()
    for path in [*kafka.glob("__transaction_state-*"), *kafka.glob("__cluster_metadata-*")]:
        shutil.move(path, other / path.name)
    shutil.copy2(kafka / "meta.properties", other)
    arguments = ("--coordinator-dir", other, "--metadata-dir", other, "--output", "jsonl")
    for row in rows_of(eoctl("txn", "hanging", kafka, *arguments).text):
        name, *call = shlex.split(row["offline_command"])
        assert (name, "--force-overdue" in call) == ("eoctl", True)
        assert eoctl(*call, "--apply").status == 0
    assert eoctl("txn", "hanging", kafka, *arguments).text == ""


def test_without_a_coordinator_there_is_no_call(eoctl: Callable[..., Any], kafka: Path) -> None:
    for path in kafka.glob("__transaction_state-*"):
        shutil.rmtree(path)
    rows = rows_of(eoctl("txn", "hanging", kafka, "--output", "jsonl").text)
    assert {(row["verdict"], row["offline_command"]) for row in rows} == {("unknown", None)}


def test_what_hangs_since_when_and_how_to_end_it(kafka: Path) -> None:
    shown = on_terminal("txn", "hanging", kafka, streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == 1
    seen = "\n".join(lines[:10])
    assert "txn-0: open-1, overdue since 2026-11-21 02:59:00 UTC, 18 offsets" in seen
    assert f"eoctl txn complete {kafka} --transactional-id open-1" in seen
