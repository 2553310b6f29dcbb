"""`eoctl produce --transactional-id`: what its coordinator writes, and who is fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.cluster.coordinator_log import CoordinatorLog
from storage.dirs.log_dir import read_log_dir
from storage.file_names import TRANSACTION_STATE_TOPIC
from tests.changes import notes_of, rows_of
from tests.crash.trees import difference, tree_of
from tests.read_log import read_log
from tests.transactional import session
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.formats.transaction_state import TransactionState
    from tests.running import Outcome

ID = ("--transactional-id", "id")


def state_of(log_dir: Path, name: str = "id") -> TransactionState:
    found = CoordinatorLog([read_log_dir(log_dir)])
    assert not found.problems
    state = found.ids[name].state
    assert state is not None
    return state


def lines_in(directory: Path, count: int = 10) -> Path:
    path = directory / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(count)))
    return path


def test_transactions_of_an_id(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Each ends with the epoch of the next; a later session begins above that."""
    lines = lines_in(kafka.parent)
    call = ("produce", "kafka/ctp-out-0", lines, *ID, "--output", "jsonl")
    before = tree_of(kafka)
    assert eoctl(*call).status == 0
    assert difference(before, tree_of(kafka)) == []
    outcome = eoctl(*call, "--txn-records", 3, "--abort-every", 2, "--apply")
    assert outcome.status == 0, outcome.errors
    (row,) = rows_of(outcome, "append")
    assert (row["records"], row["committed"], row["aborted"]) == (10, 2, 2)
    state = state_of(kafka)
    assert (state.status.label, state.producer_epoch) == ("CompleteAbort", 4)
    assert eoctl(*call, "--apply").status == 0  # all of it is one transaction
    state = state_of(kafka)
    assert (state.status.label, state.producer_epoch) == ("CompleteCommit", 6)
    found = read_log(kafka / "ctp-out-0")
    values = [b"%d" % number for number in (0, 1, 2, 6, 7, 8, *range(10))]
    assert [each.value for each in found.committed][-len(values) :] == values


def test_an_older_session_is_aborted_and_fenced(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """What it left open ends before anything new begins."""
    with session(kafka, "id", is_closed=False) as begun:
        begun.send("ctp-out", 0, b"lost")
        older = begun.transactional.producer
    outcome = eoctl(
        *("produce", "kafka/ctp-out-0", lines_in(kafka.parent), *ID, "--apply"),
        *("--output", "jsonl"),
    )
    assert outcome.status == 0, outcome.errors
    assert any("its transaction was aborted" in note for note in notes_of(outcome))
    (row,) = rows_of(outcome, "append")
    assert (row["producer_id"], row["producer_epoch"]) == (older[0], older[1] + 2)
    found = read_log(kafka / "ctp-out-0")
    assert not found.undecided
    assert b"lost" not in [each.value for each in found.committed]


def test_an_error_aborts_the_transaction(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """What was sent of it is void; those before it stay."""
    path = kafka.parent / "bad"
    path.write_text('{"value":"1"}\n{"value":"2"}\n{"value":"3"}\nbad\n')
    call = ("produce", "kafka/idem-none-0", path, "--format", "jsonl", "--batch-records", 1)
    outcome = eoctl(*call, *ID, "--txn-records", 2, "--apply")
    assert outcome.status == 2
    found = read_log(kafka / "idem-none-0")
    assert not found.undecided
    assert [each.value for each in found.committed][-2:] == [b"1", b"2"]
    assert state_of(kafka).status.label == "CompleteAbort"


def test_a_log_dir_of_no_cluster(log_dir: Path, eoctl: Callable[..., Outcome]) -> None:
    """The coordinators' topic is made with Kafka's number of partitions, and found again."""
    call = ("produce", log_dir / "t-0", lines_in(log_dir.parent), *ID, "--apply", *NEW_TOPIC)
    for _ in range(2):
        outcome = eoctl(*call)
        assert outcome.status == 0, outcome.errors
    assert len([*log_dir.glob(f"{TRANSACTION_STATE_TOPIC}-*")]) == 50
    assert state_of(log_dir).producer_epoch == 3
    assert len(read_log(log_dir / "t-0").committed) == 20
    assert not [*log_dir.glob("__consumer_offsets-*")]
    assert eoctl("check", log_dir, "--deep").status == 0


def test_wrong_calls(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Its coordinator says who the producer is."""
    call = ("produce", "kafka/ctp-out-0", lines_in(kafka.parent), *ID)
    before = tree_of(kafka)
    for option, value in (
        ("--producer-id", 7),
        ("--producer-epoch", 1),
        ("--base-sequence", 0),
        ("--producer-session", kafka.parent / "session"),
        ("--lease", "app"),
        ("--coordinator-epoch", 4),
    ):
        outcome = eoctl(*call, option, value, "--apply")
        assert outcome.status == 2
        assert f"{option} and --transactional-id exclude each other" in outcome.errors
    outcome = eoctl(*call, "--transaction-timeout-ms", 900_001, "--apply")
    assert outcome.status == 4
    assert "INVALID_TRANSACTION_TIMEOUT" in outcome.errors
    outcome = eoctl("produce", "kafka/ctp-out-0", call[2], "--transactional-id", "", "--apply")
    assert outcome.status == 4
    assert "INVALID_REQUEST" in outcome.errors
    assert difference(before, tree_of(kafka)) == []


def test_a_coordinators_log_that_is_damaged(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Nobody may decide by half of it."""
    (log,) = (
        each
        for each in kafka.glob(f"{TRANSACTION_STATE_TOPIC}-*/*.log")
        if b"open-1" in each.read_bytes()
    )
    data = bytearray(log.read_bytes())
    data[data.index(b"open-1")] ^= 1
    log.write_bytes(data)
    outcome = eoctl("produce", "kafka/ctp-out-0", lines_in(kafka.parent), *ID, "--apply")
    assert outcome.status == 4
    assert "cannot be read whole" in outcome.errors
    assert "eoctl check" in outcome.errors
