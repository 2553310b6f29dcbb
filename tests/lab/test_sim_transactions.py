"""eoctl sim run --transaction-records: transactions are played, told of, judged, repeated."""

from __future__ import annotations

import json
from itertools import takewhile
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.environment.settings import MARKER_NAME, RunSettings
from eoctl.lab.nodes.coordinator import SimulatedCoordinator
from eoctl.lab.sim.simulate import _transactions, _what_is_left
from eoctl.lab.simulation import RunResult
from storage.limits import INT32_MAX
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


OPTIONS = ("--transaction-records", 6, "--abort-every", 3, "--records", 120)
FAULTS = ("--faults", "kill leader at 20%, power any at 40%, start all at 70%", "--seed", 7)


@pytest.fixture
def simulate(eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    outcome = eoctl(
        "sim", "init", "play", "--partitions", 2, "--min-insync-replicas", 2, "--fsync", "batch"
    )
    assert outcome.status == 0, outcome.errors
    return tmp_path / "play"


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(each) for each in outcome.text.splitlines()]


def committed_in(path: Path) -> set[str]:
    """Values that were acknowledged in transactions that were told to be committed."""
    reported = [json.loads(each) for each in path.read_text().splitlines()[1:]]
    done = [each for each in reported if each["type"] == "ok"]
    committed = {each["transaction"] for each in done if each["op"] == "commit"}
    return {
        each["value"] for each in done if each["op"] == "send" and each["transaction"] in committed
    }


def values_in(eoctl: Run, log: Path) -> list[str]:
    outcome = eoctl("consume", log, "--isolation", "read_committed", "-o", "jsonl")
    assert outcome.status == 0, outcome.errors
    return [each["value"] for each in rows(outcome)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("faults", [(), FAULTS])
def test_what_is_committed_is_what_every_reader_is_given(
    eoctl: Run, simulate: Path, faults: tuple[object, ...]
) -> None:
    """The checker, the check of the log dirs, and our own consumer say the same."""
    ran = eoctl("sim", "run", "play", *OPTIONS, *faults)
    assert ran.status == 0, ran.errors
    assert "transactions: 20 begun, 14 committed, 6 aborted" in ran.errors or faults
    checked = eoctl("sim", "check", "play")
    assert checked.status == 0, checked.text
    nodes = [*simulate.glob("node-*")]
    assert len(nodes) == 3
    assert eoctl("check", *nodes).status == 0
    committed = committed_in(simulate / "history-1.jsonl")
    assert len(committed) >= 60
    for node in nodes:
        values = [each for number in (0, 1) for each in values_in(eoctl, node / f"t-{number}")]
        assert sorted(values) == sorted(committed)
    # The records of its coordinator are real ones.
    listed = eoctl(
        "dump-segment", *(simulate / "controller" / "__transaction_state-0").glob("*.log")
    )
    assert listed.status == 0, listed.errors
    # The whole cluster, with what its controller knows of the topic.
    whole = eoctl(
        "check", *nodes, simulate / "controller", "--metadata-dir", simulate / "controller"
    )
    assert whole.status == 0, whole.text
    assert "__transaction_state" in whole.text
    shown = eoctl(
        "metadata", simulate / "controller", "--topic", "__transaction_state", "-o", "jsonl"
    )
    assert '"compact"' in shown.text
    assert eoctl("check", simulate / "controller").status == 0


def test_its_topic_is_made_once(eoctl: Run, simulate: Path) -> None:
    for _ in range(2):
        assert eoctl("sim", "run", "play", *OPTIONS).status == 0
    logs = sorted((simulate / "controller" / "__cluster_metadata-0").glob("*.log"))
    lines = eoctl("dump-segment", *logs, "--cluster-metadata-decoder").text.splitlines()
    made = [each for each in lines if "TOPIC_RECORD" in each and "__transaction_state" in each]
    assert len(made) == 1


@pytest.mark.parametrize("command", ["check", "run"])
def test_without_what_its_coordinator_knew_nothing_is_done(
    eoctl: Run, simulate: Path, command: str
) -> None:
    """It would pass for a cluster that never had transactions."""
    assert eoctl("sim", "run", "play", *OPTIONS).status == 0
    rmtree(simulate / "controller" / "__transaction_state-0")
    before = (simulate / "cluster.json").read_bytes()
    refused = eoctl("sim", command, "play")
    assert refused.status == 4
    assert "__transaction_state-0: is not there" in refused.errors
    assert "nothing was touched" in refused.errors
    assert (simulate / "cluster.json").read_bytes() == before
    assert not (simulate / "history-2.jsonl").exists()


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (("commit", "fail"), "1 aborted by the coordinator, 0 without an end"),
        (("abort", "info"), "0 aborted by the coordinator, 1 without an end"),
    ],
)
def test_who_is_refused_to_abort_is_not_said_to_be_aborted(
    ended: tuple[str, str], words: str
) -> None:
    result = RunResult(
        digest="", events_count=0, virtual_us=0, is_quiet=True, is_read=True, is_answered=True,
        counts={("begin", "invoke"): 1, ended: 1}, servings=[], dropped_count=0,
    )  # fmt: skip
    assert _transactions(result).endswith(words)


@pytest.mark.exhaustive
def test_a_decided_transaction_without_markers_fences_nobody(eoctl: Run, simulate: Path) -> None:
    """All brokers are dead: its producer waits, and the coordinator has aborted nothing."""
    ran = eoctl(
        "sim", "run", "play", "--records", 12, "--rate", 10, "--transaction-records", 3,
        "--no-heal", "--transaction-timeout-ms", 900_000, "--faults", "kill all at 60%",
    )  # fmt: skip
    assert ", 0 aborted by the coordinator, " in ran.errors
    assert "PRODUCER_FENCED" not in (simulate / "history-1.jsonl").read_text()


def test_a_run_without_transactions_says_nothing_of_them(eoctl: Run, simulate: Path) -> None:
    ran = eoctl("sim", "run", "play", "--records", 20)
    assert ran.status == 0
    assert "transactions:" not in ran.errors
    assert not (simulate / "controller" / "__transaction_state-0").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--transaction-records", 5, "--acks", 1], "idempotent, with acks=all"),
        (["--transaction-records", 5, "--no-idempotence"], "idempotent, with acks=all"),
        (["--transaction-records", 5, "--retries", 0], "--retries max"),
        (["--abort-every", 2], "there are no transactions"),
        (["--in-flight", 6], "--in-flight 5, or --no-idempotence"),
        (["--transaction-timeout-ms", DEFAULT_MAX_TIMEOUT_MS + 1], "transaction.max.timeout.ms"),
        (["--transaction-timeout-ms", DEFAULT_MAX_TIMEOUT_MS + 1], "900000, or less"),
        (["--transaction-timeout-ms", 5000], "there are no transactions"),
        (["--isolation", "read_uncommitted"], "there are no transactions"),
        (["--transaction-records", 5, "--abort-every", INT32_MAX + 1], "2147483647"),
        (["--buffer-records", INT32_MAX + 1], "2147483647"),
        (["--isolation", "read_all"], "read_all"),
        (["--transaction-records", 5, "--faults", "stop producer at 3s"], "is no node"),
        (["--transaction-records", -1], "transaction-records"),
    ],
)
def test_what_no_producer_does_is_refused(
    eoctl: Run, simulate: Path, options: list[object], words: str
) -> None:
    outcome = eoctl("sim", "run", "play", *options)
    assert outcome.status == 2
    assert words in outcome.errors
    assert not (simulate / "history-1.jsonl").exists()


def test_what_is_asked_to_commit_is_in_the_history_before_it_is_asked(
    eoctl: Run, simulate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed right then has transactions that are committed in the logs."""
    asked: list[int] = []
    history = simulate / "history-1.jsonl"
    end = SimulatedCoordinator.end_transaction

    def reported(*given: Any) -> None:
        if given[4]:  # it is to be committed
            lines = history.read_bytes().splitlines()[1:]
            last = json.loads(lines[-1])
            asked.append(sum(json.loads(each)["op"] == "commit" for each in lines))
            assert (last["op"], last["type"]) == ("commit", "invoke")
        end(*given)

    monkeypatch.setattr(SimulatedCoordinator, "end_transaction", reported)
    assert eoctl("sim", "run", "play", *OPTIONS).status == 0
    assert asked
    assert {each % 2 for each in asked} == {1}  # the one that is asked, and pairs before


def test_a_run_that_has_no_end_says_nothing_of_what_was_not_asked(
    eoctl: Run, simulate: Path
) -> None:
    """Its machine has lost power, and the page cache with it: lines are missing at the end."""
    assert eoctl("sim", "run", "play", *OPTIONS).status == 0
    history = simulate / "history-1.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    commits = [place for place, each in enumerate(lines) if b'"op":"commit"' in each]
    kept = [each for place, each in enumerate(lines) if place not in commits[-2:]]
    history.write_bytes(b"".join(kept))
    assert eoctl("sim", "check", "play").status == 1  # it has ended, and never asked to commit
    marker = simulate / MARKER_NAME
    reported = json.loads(marker.read_bytes())
    reported["ended_count"] = 0
    marker.write_text(json.dumps(reported))
    checked = eoctl("sim", "check", "play")
    assert checked.status == 0, checked.text


def test_an_isolation_level_counts_where_a_run_before_had_transactions(
    eoctl: Run, simulate: Path
) -> None:
    assert eoctl("sim", "run", "play", *OPTIONS).status == 0
    ran = eoctl("sim", "run", "play", "--records", 5, "--isolation", "read_uncommitted")
    assert ran.status == 0, ran.errors


@pytest.mark.parametrize("width", [80, 132])
def test_what_became_of_transactions_is_told_once_and_fits(simulate: Path, width: int) -> None:
    shown = on_terminal("sim", "run", "play", *OPTIONS, cwd=simulate.parent, width=width)
    assert shown.status == 0
    reported = [*takewhile(str.strip, shown.lines)]
    assert max(map(len, reported)) <= width
    assert "transactions: 20 begun, 14 committed, 6 aborted" in " ".join(reported)
    assert shown.text.count("transactions:") == 1


@pytest.mark.parametrize(("answers", "words"), [(5, "last transaction"), (4, "have an answer")])
def test_why_a_run_is_not_whole_is_told(answers: int, words: str) -> None:
    """Each record has an answer, and the end of its transaction has none."""
    counts = {("send", "invoke"): 5, ("send", "ok"): answers}
    result = RunResult(
        digest="", events_count=0, virtual_us=0, is_quiet=True, is_read=True, is_answered=False,
        counts=counts, servings=[], dropped_count=0,
    )  # fmt: skip
    (reported,) = _what_is_left("play", RunSettings(records=12), result)
    assert reported.startswith("of 12 records 5 were given to the producer, and")
    assert words in reported


def test_explore_saves_nothing_that_cannot_be_repeated(eoctl: Run, tmp_path: Path) -> None:
    witness = tmp_path / "course.json"
    for options in (("--abort-every", INT32_MAX + 1), ("--isolation", "read_uncommitted")):
        found = eoctl("sim", "explore", "--acks", 1, *options, "--witness", witness)
        assert found.status == 2
        assert not witness.exists()


REOPENED = (
    "--records", 8, "--rate", 4, "--transaction-records", 2, "--faults",
    "kill follower at 10%, power leader at 100% quiet, start all at quiet",
)  # fmt: skip


@pytest.mark.exhaustive
def test_what_is_committed_and_open_again_is_lost_whoever_ends_it(
    eoctl: Run, tmp_path: Path
) -> None:
    """It is in all replicas; the next session of its producer aborts it."""
    found = []
    for seed in range(30):
        simulate = tmp_path / f"play-{seed}"
        made = eoctl("sim", "init", simulate, "--nodes", 2, "--replication-factor", 2)
        assert made.status == 0
        ran = eoctl("sim", "run", simulate, *REOPENED, "--seed", seed)
        checked = eoctl("sim", "check", simulate)
        if {each.split("\t")[0] for each in checked.text.splitlines()[1:]} == {"lost-commit"}:
            found.append((ran, checked, simulate))
            break
    ((ran, checked, simulate),) = found
    assert (ran.status, checked.status) == (5, 1)
    assert "was not given all that they have" in ran.errors
    assert "and the last reader waits at" in checked.text
    assert eoctl("check", *simulate.glob("node-*")).status == 1
    again = eoctl("sim", "run", simulate, *REOPENED[:6], "--abort-every", 1)
    assert again.status == 0
    checked = eoctl("sim", "check", simulate, "-o", "jsonl")
    lost = [each for each in rows(checked) if each["kind"] == "lost-commit"]
    assert lost
    assert all("has passed over it" in each["words"] for each in lost)


@pytest.mark.exhaustive
def test_explore_plays_transactions_and_prints_the_calls_that_repeat_them(
    eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one replica in sync acks=all loses what was committed, too."""
    monkeypatch.chdir(tmp_path)
    options = (
        "--transaction-records", 4, "--abort-every", 3, "--faults", "stop-then-power", "--rate", 4,
    )  # fmt: skip
    found = eoctl("sim", "explore", *options, "--seeds", 60)
    assert found.status == 1, found.errors
    call = next(each for each in found.errors.splitlines() if "sim run ./play" in each)
    assert "--transaction-records 4 --abort-every 3 --isolation read_committed" in call
    saved = eoctl("sim", "explore", *options, "--seeds", 60, "--witness", "loses.json")
    assert saved.status == 1
    ran = eoctl("sim", "run", "again", "--replay", "loses.json")
    assert ran.status == 0, ran.errors
    assert eoctl("sim", "check", "again").status == 1
    wrong = eoctl("sim", "explore", *options, "--acks", 1)
    assert wrong.status == 2
    assert "idempotent" in wrong.errors
