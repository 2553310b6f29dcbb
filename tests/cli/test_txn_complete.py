"""`eoctl txn complete`: what a coordinator does by itself, offline."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from recovery.cluster.coordinator_log import CoordinatorLog
from storage.dirs.log_dir import read_log_dir
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.producers.transaction_metadata import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING
from tests.changes import held, notes_of, rows_of
from tests.crash.trees import difference, tree_of
from tests.terminal import on_terminal
from tests.transactional import session
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.formats.transaction_state import TransactionState
    from tests.running import Outcome

    Call = Callable[..., Outcome]

TIMEOUT_MS = 600_000  # of the two that were open when the broker was killed
STARTED_MS = (1795229940647, 1795229941194)


def state_of(log_dir: Path, transactional_id: str) -> TransactionState:
    found = CoordinatorLog([read_log_dir(log_dir)])
    assert found.problems == []
    state = found.ids[transactional_id].state
    assert state is not None
    return state


def rows(outcome: Outcome) -> list[tuple[Any, ...]]:
    names = ("transactional_id", "status", "outcome", "reason", "applied")
    return sorted(tuple(row[name] for name in names) for row in rows_of(outcome, "complete"))


def test_what_timed_out_is_aborted(killed: Path, eoctl: Call) -> None:
    before = tree_of(killed)
    call = ("txn", "complete", killed, "--output", "jsonl")
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert rows(outcome) == [(f"open-{n}", "Ongoing", "aborted", "", False) for n in (1, 2)]
    assert "this is a plan, nothing was changed: --apply runs it" in notes_of(outcome)
    assert difference(before, tree_of(killed)) == []
    planned = {(row["path"], row["action"]) for row in rows_of(outcome, "file")}
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 0, outcome.errors
    assert rows(outcome) == [(f"open-{n}", "Ongoing", "aborted", "", True) for n in (1, 2)]
    assert {(row["path"], row["action"]) for row in rows_of(outcome, "file")} == planned
    for number in (1, 2):
        state = state_of(killed, f"open-{number}")
        assert (state.status, state.producer_epoch) == (COMPLETE_ABORT, 1)  # it is fenced
    assert rows_of(eoctl("txn", "list", killed, "--output", "jsonl"), "transaction") == []
    checked = eoctl("check", killed, "--deep", "--output", "jsonl")
    assert rows_of(checked, "finding") == []
    before = tree_of(killed)
    outcome = eoctl(*call, "--apply")
    assert (outcome.status, rows(outcome)) == (0, [])
    assert difference(before, tree_of(killed)) == []


@pytest.mark.parametrize(("late_ms", "names"), [(0, []), (1, ["open-1"])])
def test_what_is_within_its_timeout_goes_on(
    killed: Path, eoctl: Call, late_ms: int, names: list[str]
) -> None:
    now_ms = STARTED_MS[0] + TIMEOUT_MS + late_ms
    outcome = eoctl("txn", "complete", killed, "--now", now_ms, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert [each[0] for each in rows(outcome)] == names
    left = f"{2 - len(names)} transaction(s) go on, and are within their timeout"
    assert left in notes_of(outcome)
    assert state_of(killed, "open-2").status is ONGOING


def test_what_is_decided_gets_its_markers(
    log_dir: Path, eoctl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process died behind its decision; nobody has read the data yet."""
    line = log_dir.with_name("line")
    line.write_bytes(b"0\n")
    for topic in ("a", "b"):
        written = eoctl("produce", log_dir / f"{topic}-0", line, "--apply", *NEW_TOPIC)
        assert written.status == 0, written.errors
    for name, is_commit in (("kept", True), ("dropped", False)):
        with session(log_dir, name, is_closed=False) as begun:
            for topic in ("a", "b"):
                begun.send(topic, 0, name.encode())
            begun.prepare(monkeypatch, is_commit=is_commit)
        if is_commit:
            only = eoctl("txn", "complete", log_dir, "--transactional-id", "kept", "--apply",
                         "--single-copy", "--output", "jsonl")  # fmt: skip
            assert rows(only) == [("kept", "PrepareCommit", "committed", "", True)], only.errors
            assert state_of(log_dir, "kept").status is COMPLETE_COMMIT
    outcome = eoctl("txn", "complete", log_dir, "--apply", "--single-copy", "--output", "jsonl")
    assert rows(outcome) == [("dropped", "PrepareAbort", "aborted", "", True)], outcome.errors
    for topic in ("a", "b"):
        text = eoctl("consume", log_dir / f"{topic}-0", "--isolation", "read_committed").text
        assert text == "0\nkept\n"


def test_one_with_a_partition_elsewhere_waits(killed: Path, eoctl: Call) -> None:
    """Nothing of it is begun; the other one is ended all the same."""
    (killed / "txn-1").rename(killed.with_name("txn-1"))
    outcome = eoctl("txn", "complete", killed, "--apply", "--output", "jsonl")
    assert outcome.status == 5
    assert rows(outcome) == [
        ("open-1", "Ongoing", "aborted", "", True),
        ("open-2", "Ongoing", "waiting", "txn-1 is not here", False),
    ]
    assert state_of(killed, "open-2").status is ONGOING


def test_what_may_not_be_written_to_waits(killed: Path, eoctl: Call) -> None:
    """A directory of a topic that was deleted and made anew; a broker would set it aside."""
    metadata = killed / "txn-1/partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {NEW_TOPIC[-1]}")
    before = tree_of(killed / "txn-1")
    outcome = eoctl("txn", "complete", killed, "--apply", "--output", "jsonl")
    assert (outcome.status, state_of(killed, "open-1").status) == (5, COMPLETE_ABORT)
    (row,) = (each for each in rows_of(outcome, "complete") if each["outcome"] == "waiting")
    assert str(killed / "txn-1") in row["reason"]
    assert state_of(killed, "open-2").status is ONGOING
    assert difference(before, tree_of(killed / "txn-1")) == []


def test_an_answer_names_what_waits_and_the_option(killed: Path) -> None:
    """Without the cluster's metadata the number of replicas is unknown."""
    shutil.rmtree(killed / "__cluster_metadata-0")
    unknown = "its replication factor is unknown. Other replicas would lack what is appended here"
    call = "eoctl txn complete killed"
    for apply, label in (((), "Plan"), (("--apply",), "Done")):
        shown = on_terminal("txn", "complete", "killed", *apply, width=200)
        assert shown.status == 5
        answer = [each for each in shown.lines if each[:4] in {label, "Wait", "Next"}]
        asked = " ".join([call, *apply, "--single-copy"])
        only = f"if this directory is the only replica that counts: {asked}"
        assert answer == [
            f"{label}    nothing: 2 transactions wait",
            f"Waits   open-2: killed/txn-1: {unknown}",
            f"Waits   open-1: killed/txn-0: {unknown}",
            f"Next    add --metadata-dir DIR with the cluster's metadata; {only}",
        ]


def test_an_answer_names_what_waits_beside_what_ends(killed: Path) -> None:
    (killed / "txn-1").rename(killed.with_name("txn-1"))
    step = "start the brokers: the coordinator ends the transactions that wait"
    plan = on_terminal("txn", "complete", "killed", width=200).lines
    assert plan[0] == "Plan    end 1 transaction: 1 aborted; 1 transaction waits"
    place = plan.index("Waits   open-2: txn-1 is not here")
    assert plan[place + 1] == f"        {step}"
    done = on_terminal("txn", "complete", "killed", "--apply", width=200).lines
    assert "Waits   open-2: txn-1 is not here" in done
    assert done[-1] == f"Next    {step}"


def test_what_is_refused(killed: Path, eoctl: Call) -> None:
    before = tree_of(killed)
    unknown = eoctl("txn", "complete", killed, "--transactional-id", "nobody", "--apply")
    assert unknown.status == 2
    assert "knows no transactional id nobody" in unknown.errors
    assert eoctl("txn", "complete", killed / "txn-0", "--apply").status == 2
    with held(killed):
        assert eoctl("txn", "complete", killed, "--apply").status == 4
    assert difference(before, tree_of(killed)) == []
    state = min(
        each for each in killed.glob(f"{TRANSACTION_STATE_TOPIC}-*/*.log") if each.stat().st_size
    )
    data = bytearray(state.read_bytes())
    data[80] ^= 1
    state.write_bytes(data)
    damaged = eoctl("txn", "complete", killed, "--apply")
    assert damaged.status == 4
    assert "cannot be read whole" in damaged.errors
    assert state.read_bytes() == data
