"""Transactions of a simulated cluster: what is committed is read whole, and nothing else is."""

from __future__ import annotations

import io
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource
from eoctl.lab.clients.consumer import given_records
from eoctl.lab.clients.producer import OUT_OF_ORDER, TransactionalProducer
from eoctl.lab.environment.faults import parse_faults
from eoctl.lab.environment.leader import NOT_ENOUGH_REPLICAS
from eoctl.lab.environment.network import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    SECOND_US,
    ConsumerAnswer,
    EndMarker,
    ProduceAnswer,
)
from eoctl.lab.environment.settings import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    PlaySettings,
    RunSettings,
)
from eoctl.lab.guarantees.scenarios import faults_of_seed, simulate_scenario
from eoctl.lab.nodes.coordinator import SimulatedCoordinator
from eoctl.lab.simulation import Simulation
from storage.errors import RefusedError
from storage.file_names import TopicPartition
from storage.log.segment import open_segment
from storage.producers import producer_state, transaction_metadata
from storage.producers.transaction_metadata import ProducerIdAndEpoch
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.drawn import IS_ALL
from tests.lab.test_replication_rules import T0, SimulationRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eoctl.lab.environment.network import Process


T1 = TopicPartition("t", 1)
PAIR = PlaySettings(min_insync=2, partitions=2)
RUN = RunSettings(records=60, rate=20, transaction_records=6, abort_every=3)
AT_MS = 1_700_000_000_000
NAME = "an id"


class Client:
    """Who sends and reads."""

    name, incarnation, is_running = "client", 0, True


class Stage:
    """A cluster on which one transaction is played by hand."""

    def __init__(self, path: Path, settings: PlaySettings = PAIR) -> None:
        self.simulation = SimulationRun(path, settings, RUN).begun()
        assert self.simulation.coordinator is not None
        self.coordinator = self.simulation.coordinator
        self.sequences: dict[tuple[ProducerIdAndEpoch, TopicPartition], int] = {}
        self.client = Client()

    def until(self, holds: Callable[[], bool], limit_us: int = 100 * SECOND_US) -> bool:
        """Run until something holds."""
        scheduler = self.simulation.scheduler
        return scheduler.run(holds, scheduler.now_us + limit_us)

    def asked(self, call: Callable[..., None], *given: object) -> tuple[Any, ...]:
        """What a call is answered, which has the client first and who is told last."""
        reported: list[tuple[Any, ...]] = []

        def answered(*answer: object) -> None:
            reported.append(answer)

        call(self.client, *given, answered)
        assert self.until(lambda: bool(reported))
        return reported[0]

    def begin(self) -> ProducerIdAndEpoch:
        """A new session."""
        while True:
            error, who = self.asked(self.coordinator.init_producer_id, NAME, 60_000)
            if not error:
                assert isinstance(who, ProducerIdAndEpoch)
                return who
            assert error == CONCURRENT_TRANSACTIONS

    def batch(self, who: ProducerIdAndEpoch, key: TopicPartition, *values: str) -> bytes:
        """The next one of a producer."""
        builder = BatchBuilder()
        for each in values:
            builder.add(None, each.encode(), AT_MS)
        sequence = self.sequences.get((who, key), 0)
        self.sequences[who, key] = sequence + len(values)
        return builder.build(ProducerIdentity(*who, sequence), is_transactional=True)

    def send(self, who: ProducerIdAndEpoch, key: TopicPartition, *values: str) -> str:
        """Send values to the leader; its error."""
        return self.send_batch(key, self.batch(who, key, *values))

    def send_batch(self, key: TopicPartition, batch: bytes) -> str:
        """Send a batch to the leader; its error."""
        leader = self.simulation.brokers[self.simulation.controller.led(key).leader]
        reported: list[ProduceAnswer] = []
        leader.produce(self.client, key, batch, -1, 30 * SECOND_US, reported.append, NAME)
        assert self.until(lambda: bool(reported))
        return reported[0].error

    def end(self, who: ProducerIdAndEpoch, *, is_commit: bool) -> tuple[str, Any]:
        """Commit or abort."""
        error, who_next = self.asked(self.coordinator.end_transaction, NAME, who, is_commit)
        return error, who_next

    def read(self, key: TopicPartition, isolation: str = READ_COMMITTED) -> list[str]:
        """All values that a consumer is given."""
        leader = self.simulation.brokers[self.simulation.controller.led(key).leader]
        reported: list[ConsumerAnswer] = []
        leader.consume(self.client, key, 0, reported.append, isolation)
        assert self.until(lambda: bool(reported))
        assert reported[0].error == ""
        return [value for _, value in given_records(reported[0], 0)]


def test_repl_7_read_committed_ends_below_the_last_stable_offset(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    who = stage.begin()
    assert stage.send(who, T0, "a", "b") == ""
    assert stage.until(stage.simulation.brokers[0].peers[1].is_running.__bool__)
    assert stage.read(T0) == []
    assert stage.read(T0, READ_UNCOMMITTED) == ["a", "b"]
    error, who = stage.end(who, is_commit=True)
    assert error == ""
    assert stage.until(lambda: stage.coordinator.is_idle)
    assert stage.read(T0) == ["a", "b"]
    assert stage.send(who, T0, "c") == ""
    assert stage.end(who, is_commit=False)[0] == ""
    assert stage.until(lambda: stage.coordinator.is_idle)
    assert stage.read(T0) == ["a", "b"]
    assert stage.read(T0, READ_UNCOMMITTED) == ["a", "b", "c"]


def test_repl_7_a_marker_that_is_not_replicated_leaves_its_transaction_unstable(
    tmp_path: Path,
) -> None:
    """TXN-3: the leader has the marker, and the followers may not get it."""
    stage = Stage(tmp_path, PAIR._replace(min_insync=1))
    who = stage.begin()
    assert stage.send(who, T0, "a") == ""
    simulation = stage.simulation
    leader = simulation.brokers[0]
    for number in (1, 2):
        simulation._network.isolate(f"broker {number}", {f"broker {each}" for each in range(3)})
    before = leader.log(T0).end_offset
    assert stage.end(who, is_commit=True)[0] == ""
    assert stage.until(lambda: leader.log(T0).end_offset > before)
    assert leader.high_watermark(T0) == before
    assert leader.log(T0).last_stable_offset(before) == 0
    assert stage.read(T0) == []
    assert not stage.coordinator.is_idle
    simulation._network.heal()
    assert stage.until(lambda: stage.coordinator.is_idle)
    assert stage.read(T0) == ["a"]


def test_repl_13_what_comes_late_is_refused_and_opens_nothing(tmp_path: Path) -> None:
    """A batch that was on its way while its transaction was aborted, to two partitions."""
    stage = Stage(tmp_path)
    who = stage.begin()
    assert stage.send(who, T0, "a") == ""
    late, elsewhere = stage.batch(who, T0, "b"), stage.batch(who, T1, "c")
    assert stage.end(who, is_commit=False)[0] == ""
    assert stage.until(lambda: stage.coordinator.is_idle)
    assert stage.send_batch(T0, late) == INVALID_PRODUCER_EPOCH
    assert stage.send_batch(T1, elsewhere) == INVALID_PRODUCER_EPOCH
    for key in (T0, T1):
        leader = stage.simulation.brokers[stage.simulation.controller.led(key).leader]
        end_offset = leader.log(key).end_offset
        assert leader.log(key).last_stable_offset(end_offset) == end_offset


def test_repl_13_what_comes_late_is_refused_where_the_coordinator_is_cut_off(
    tmp_path: Path,
) -> None:
    """The log knows a later epoch: nobody has to be asked (maybeStartTransactionVerification)."""
    stage = Stage(tmp_path)
    who = stage.begin()
    assert stage.send(who, T0, "a") == ""
    late = stage.batch(who, T0, "b")
    assert stage.end(who, is_commit=False)[0] == ""
    assert stage.until(lambda: stage.coordinator.is_idle)
    network = stage.simulation._network
    network.isolate("broker 0", {"broker 0", stage.coordinator.name})
    before_us = stage.simulation.scheduler.now_us
    assert stage.send_batch(T0, late) == INVALID_PRODUCER_EPOCH
    assert stage.simulation.scheduler.now_us < before_us + SECOND_US


def test_repl_13_a_transaction_does_not_go_on_where_what_it_began_with_is_lost(
    tmp_path: Path,
) -> None:
    """A leader has lost its log whole, with what it knew of producers (KIP-890)."""
    settings = PAIR._replace(
        nodes=2, replication_factor=2, min_insync=1, partitions=1, has_elr=False
    )
    run = RunSettings(
        seed=6, records=30, rate=1, transaction_records=30,
        faults="kill follower at 3%, power leader at 60%, start all at 61%",
    )  # fmt: skip
    simulate = SimulationRun(tmp_path, settings, run)
    assert simulate.simulation.run().is_answered
    assert {each["error"] for each in simulate.sends("fail")} == {OUT_OF_ORDER}
    first = [each["type"] for each in simulate.reported("abort") if each["transaction"] == "x1-1"]
    assert first == ["invoke", "ok"]
    data = b"".join(simulate.lines)
    verdict = judge([HistorySource("history", lambda: io.BytesIO(data))])
    assert "torn-transaction" not in {each.kind for each in verdict.findings}
    assert read_values(simulate) <= committed_values(simulate)


def test_repl_13_another_session_aborts_what_the_one_before_left_open(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    zombie = stage.begin()
    assert stage.send(zombie, T0, "a") == ""
    who = stage.begin()
    assert who.producer_id == zombie.producer_id
    assert who.producer_epoch > zombie.producer_epoch
    assert stage.send(who, T0, "b") == ""
    assert stage.send(zombie, T0, "c") == INVALID_PRODUCER_EPOCH
    assert stage.end(zombie, is_commit=True)[0] == "PRODUCER_FENCED"
    assert stage.end(who, is_commit=True)[0] == ""
    assert stage.until(lambda: stage.coordinator.is_idle)
    assert stage.read(T0) == ["b"]


def test_repl_13_a_marker_is_written_once_more_by_whoever_leads(tmp_path: Path) -> None:
    """The leader dies with it; a second one at a leader that has it ends nothing."""
    stage = Stage(tmp_path)
    who = stage.begin()
    assert stage.send(who, T0, "a") == ""
    assert stage.send(who, T1, "b") == ""
    assert stage.end(who, is_commit=True)[0] == ""
    leader = stage.simulation.brokers[0]
    leader.kill()  # nothing has reached it yet
    assert not stage.coordinator.is_idle
    assert stage.until(lambda: stage.coordinator.is_idle)
    assert stage.simulation.controller.led(T0).leader == 1
    assert stage.read(T0) == ["a"]
    assert stage.read(T1) == ["b"]
    marker = EndMarker(*who._replace(producer_epoch=who.producer_epoch + 1), True, 0)
    reported = stage.asked(stage.simulation.brokers[1].write_marker, T0, marker)
    assert reported == ("",)
    assert stage.read(T0) == ["a"]


def test_repl_13_nobody_is_fenced_while_markers_are_being_written(tmp_path: Path) -> None:
    """Whichever epoch is named: a transition is pending, which Kafka looks for first."""
    stage = Stage(tmp_path)
    before = stage.begin()
    assert stage.send(before, T0, "a") == ""
    for each in stage.simulation.brokers.values():
        each.kill()
    error, newest = stage.end(before, is_commit=True)
    assert error == ""
    coordinator = stage.coordinator
    for who in (before, newest):
        assert stage.end(who, is_commit=False)[0] == CONCURRENT_TRANSACTIONS
        assert stage.asked(coordinator.add_partition, NAME, who, T0) == (CONCURRENT_TRANSACTIONS,)
    for each in stage.simulation.brokers.values():
        each.start()
    assert stage.until(lambda: coordinator.is_idle)
    assert stage.asked(coordinator.add_partition, NAME, before, T0) == ("PRODUCER_FENCED",)
    assert stage.end(newest, is_commit=False)[0] == ""  # of nothing


def test_repl_13_a_leader_that_does_not_reach_the_coordinator_takes_no_transaction(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    who = stage.begin()
    simulation = stage.simulation
    simulation._network.isolate("broker 0", {"broker 0", stage.coordinator.name})
    end_offset = simulation.brokers[0].log(T0).end_offset
    assert stage.send(who, T0, "a") == NOT_ENOUGH_REPLICAS
    assert simulation.brokers[0].log(T0).end_offset == end_offset
    simulation._network.heal()
    stage.sequences.clear()
    assert stage.send(who, T0, "a") == ""


def test_repl_13_a_transaction_that_takes_too_long_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer hangs before it commits; then it is refused, and goes on in a new session."""
    ask = TransactionalProducer._ask_end
    held: list[TransactionalProducer] = []

    def hang(self: TransactionalProducer, operation: str) -> None:
        if held:
            ask(self, operation)
            return
        held.append(self)
        self._scheduler.after(100 * SECOND_US, ask, self, operation)

    monkeypatch.setattr(TransactionalProducer, "_ask_end", hang)
    simulate = SimulationRun(tmp_path, PAIR, RUN)
    words = simulate.run()
    assert sum("transaction.timeout.ms is over" in each for each in words) == 1
    (refused,) = [each for each in simulate.reported("commit") if each["type"] == "fail"]
    assert refused["error"] == "INVALID_TXN_STATE"
    assert read_values(simulate) == committed_values(simulate)
    assert len(committed_values(simulate)) == 36  # ten transactions: one refused, three on purpose


def committed_values(simulate: SimulationRun) -> set[str]:
    """What was acknowledged in transactions that were told to be committed."""
    committed = {
        each["transaction"] for each in simulate.reported("commit") if each["type"] == "ok"
    }
    return {each["value"] for each in simulate.sends("ok") if each["transaction"] in committed}


def read_values(simulate: SimulationRun) -> set[str]:
    """What the last reader was given."""
    polls = [
        each for each in simulate.reported("poll") if each["type"] == "ok" and each.get("final")
    ]
    assert all(each["isolation"] == READ_COMMITTED for each in polls)
    return {value for each in polls for records in each["records"].values() for _, value in records}


def test_each_line_says_which_transaction_it_is_of(tmp_path: Path) -> None:
    simulate = SimulationRun(tmp_path, PAIR, RUN)
    simulate.run()
    begun = [each["transaction"] for each in simulate.reported("begin") if each["type"] == "ok"]
    assert begun == [f"x1-{number}" for number in range(1, 11)]
    for kind in ("invoke", "ok"):
        sent = [each["transaction"] for each in simulate.sends(kind)]
        assert sorted(sent) == sorted(begun * 6)
    ended = {
        each["transaction"]: op
        for op in ("commit", "abort")
        for each in simulate.reported(op)
        if each["type"] == "ok"
    }
    assert [ended[each] for each in begun] == ["commit", "commit", "abort"] * 3 + ["commit"]
    numbers = [
        each["id"] for op in ("send", "begin", "commit", "abort") for each in simulate.reported(op)
        if each["type"] == "invoke"
    ]  # fmt: skip
    assert len(numbers) == len({*numbers})
    assert read_values(simulate) == committed_values(simulate)
    assert len(read_values(simulate)) == 42


@pytest.mark.parametrize("rate", [0, 1000])
@pytest.mark.parametrize("commit", ["none", "before", "after"])
def test_any_way_to_give_and_to_read_them(tmp_path: Path, rate: int, commit: str) -> None:
    run = RUN._replace(rate=rate, records=61, consumer_commit=commit, linger_ms=5)
    simulate = SimulationRun(tmp_path, PAIR, run)
    result = simulate.simulation.run()
    assert result.is_quiet
    assert result.is_read
    assert result.is_answered
    assert read_values(simulate) == committed_values(simulate)
    assert len(read_values(simulate)) == 61 - 18
    if commit != "none":
        handled = {
            value for each in simulate.reported("handle") for records in each["records"].values()
            for _, value in records
        }  # fmt: skip
        assert handled == read_values(simulate)


def test_what_the_buffer_has_no_room_for_aborts_its_transaction(tmp_path: Path) -> None:
    run = RUN._replace(
        rate=1000, buffered_max=3, is_blocking=False, abort_every=0, faults="kill all at 10%"
    )
    simulate = SimulationRun(tmp_path, PAIR, run)
    result = simulate.simulation.run()
    assert result.dropped_count
    dropped = {each["transaction"] for each in simulate.sends("fail")}
    assert dropped.isdisjoint(each["transaction"] for each in simulate.reported("commit"))
    assert read_values(simulate) == committed_values(simulate)


def test_uncommitted_readers_are_given_all(tmp_path: Path) -> None:
    simulate = SimulationRun(tmp_path, PAIR, RUN._replace(isolation=READ_UNCOMMITTED))
    simulate.run()
    polls = [
        each for each in simulate.reported("poll") if each["type"] == "ok" and each.get("final")
    ]
    values = [
        value for each in polls for records in each["records"].values() for _, value in records
    ]
    assert sorted(values) == sorted(each["value"] for each in simulate.sends("ok"))
    assert len(values) == 60
    assert not any("isolation" in each for each in simulate.reported("poll"))


def test_a_commit_does_not_wait_for_the_linger(tmp_path: Path) -> None:
    """What lingers goes out as the transaction is ended, and nothing of the next one with it."""
    run = RunSettings(
        records=12, rate=10, transaction_records=3, linger_ms=20_000, transaction_timeout_ms=5000
    )
    simulate = SimulationRun(tmp_path, PAIR, run)
    simulation = simulate.begun()
    begun_us = simulation.scheduler.now_us
    simulate.run()
    assert [each["type"] for each in simulate.reported("commit")] == ["invoke", "ok"] * 4
    assert simulate.reported("commit")[-1]["time_us"] < begun_us + 10 * SECOND_US


def test_what_lingers_is_not_sent_by_the_timer_of_what_has_gone(tmp_path: Path) -> None:
    """It was sent as its transaction ended: records of the next one wait for their own time."""
    run = RunSettings(records=9, rate=20, linger_ms=120, transaction_records=3)
    simulate = SimulationRun(tmp_path, PAIR._replace(partitions=1), run)
    simulate.run()
    answered = [each["time_us"] for each in simulate.sends("ok")]
    assert len(answered) == 9
    assert len({*answered}) == 3  # each transaction in one batch


def test_a_producer_that_is_killed_before_it_knows_who_leads_begins_one_session(
    tmp_path: Path,
) -> None:
    faults = "kill producer at 0ms, start producer at 0ms"
    simulate = SimulationRun(tmp_path, PAIR, RUN._replace(faults=faults, seed=1))
    result = simulate.simulation.run()
    assert result.is_answered
    begun = [each["transaction"] for each in simulate.reported("begin") if each["type"] == "ok"]
    assert begun == [f"x1-{number}" for number in range(1, 11)]
    data = b"".join(simulate.lines)
    verdict = judge([HistorySource("history", lambda: io.BytesIO(data))])
    assert not verdict.has_findings, verdict.findings
    assert verdict.problems == ()
    assert read_values(simulate) == committed_values(simulate)


ENDING = "start all at 50s, heal at 50s"
KINDS = ("kill", "power", "partition", "stop", "kill-in-turn", "rejoin", "slow-one")
SAFE = PAIR._replace(fsync="batch", has_elr=True)


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(80 if IS_ALL else 8))
def test_what_is_committed_is_there_and_what_is_aborted_is_not(seed: int) -> None:
    """With faults of any kind, drawn settings, and small segments: `.txnindex` has several."""
    drawn = Random(seed)
    settings = SAFE._replace(
        partitions=1 + drawn.randrange(4),
        segment_bytes=drawn.choice([1024, 1 << 30]),
        lag_time_max_ms=drawn.choice([1500, 30_000]),
    )
    faults = f"{faults_of_seed(seed, KINDS, settings)}, {ENDING}"
    if drawn.randrange(2):
        faults = f"kill producer at {drawn.randrange(90)}%, start producer at 0ms, {faults}"
    run = RUN._replace(
        seed=seed, faults=faults, in_flight=drawn.choice([1, 5]), rate=drawn.choice([0, 20, 1000]),
        transaction_records=drawn.choice([1, 6, 30]), abort_every=drawn.choice([2, 3]),
        transaction_timeout_ms=drawn.choice([5000, 60_000]),
        consumer_commit=drawn.choice(["none", "after"]),
    )  # fmt: skip
    scenario = simulate_scenario(settings, run)
    assert scenario.findings == []
    assert scenario.result.is_answered
    assert scenario.result.is_quiet
    assert scenario.result.is_read
    assert scenario.result.counts["begin", "ok"] > 1


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(40 if IS_ALL else 13))
def test_what_a_killed_producer_has_begun_is_aborted(tmp_path: Path, seed: int) -> None:
    """At any moment of a transaction: nobody reads half of it, and the next session goes on."""
    drawn = Random(seed)
    moments = sorted(drawn.randrange(5, 95) for _ in range(3))
    back = ("0ms", "quiet")[seed % 2]
    faults = ", ".join(f"kill producer at {each}%, start producer at {back}" for each in moments)
    if seed % 4 > 1:
        faults += ", kill leader at 95%, kill producer at 96%"
    settings = PAIR._replace(partitions=1 + seed % 3)
    run = RUN._replace(seed=seed, faults=faults, rate=(20, 1000, 0)[seed % 3])
    simulate = SimulationRun(tmp_path, settings, run)
    result = simulate.simulation.run()
    assert result.is_quiet
    assert result.is_read
    assert result.is_answered
    data = b"".join(simulate.lines)
    verdict = judge([HistorySource("history", lambda: io.BytesIO(data))])
    assert not verdict.has_findings, verdict.findings
    assert verdict.problems == ()
    asked = {
        each["transaction"] for each in simulate.reported("commit") if each["type"] == "invoke"
    }
    sent = {each["value"]: each["transaction"] for each in simulate.sends("invoke")}
    assert len(sent) == 60
    read = read_values(simulate)
    assert committed_values(simulate) <= read
    assert {sent[each] for each in read} <= asked
    whole = [each for each, name in sent.items() if name in {sent[value] for value in read}]
    assert {*whole} == read  # of no transaction a part


def run_of(simulate: SimulationRun, number: int, run: RunSettings) -> SimulationRun:
    """Another run on the same directories."""
    before = simulate.simulation
    lines: list[bytes] = []
    simulate.lines = lines
    before.controller.close()
    assert before.coordinator is not None
    before.coordinator.close()
    simulate.simulation = Simulation(
        str(before.brokers[0].path).removesuffix("/node-0"), "eoctlPlayedClusterAAAA",
        before._settings, run, number, start_us=before.scheduler.now_us, write=lines.append,
    )  # fmt: skip
    return simulate


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_a_killed_run_leaves_open_the_next_one_aborts(tmp_path: Path, goes_on: bool) -> None:
    """By a new session of its producer; or, where none comes, once it takes too long."""
    simulate = SimulationRun(tmp_path, PAIR, RUN)
    simulation = simulate.begun()
    simulation.producer.start()
    scheduler = simulation.scheduler
    # Two transactions of three are over, and aborted is only the third.
    assert scheduler.run(lambda: simulation.producer.answered_count == 14, 100 * SECOND_US)
    committed = committed_values(simulate)
    assert len(committed) == 12
    assert len(simulate.sends("ok")) == 14
    for each in simulation.brokers.values():
        each.kill()
    simulate = run_of(simulate, 2, RUN if goes_on else RunSettings(records=20))
    result = simulate.simulation.run()
    assert result.is_quiet
    assert result.is_read
    words = [each.words for each in simulate.simulation.trace.events if each.kind == "transaction"]
    reason = "a new session of its producer" if goes_on else "transaction.timeout.ms is over"
    assert len(words) == 1
    assert words[0].endswith(reason)
    mine = committed_values(simulate) if goes_on else {f"r2-{each}" for each in range(20)}
    assert read_values(simulate) == committed | mine


def test_what_a_run_has_decided_the_next_one_ends(tmp_path: Path) -> None:
    """All brokers are dead when the transaction has taken too long: nobody takes the markers."""
    simulate = SimulationRun(tmp_path, PAIR, RUN._replace(faults="kill all at 15%", heals=False))
    assert any("timeout" in each for each in simulate.run())
    committed = committed_values(simulate)
    assert not simulate.simulation.coordinator.is_idle  # type: ignore[union-attr]
    simulate = run_of(simulate, 2, RUN)
    result = simulate.simulation.run()
    assert result.is_quiet
    assert result.is_read
    assert not [each for each in simulate.simulation.trace.events if each.kind == "transaction"]
    assert read_values(simulate) == committed | committed_values(simulate)


def test_a_producer_whose_epochs_are_used_up_goes_on_with_another_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (transaction_metadata, producer_state):
        monkeypatch.setattr(module, "MAX_PRODUCER_EPOCH", 10)
    simulate = SimulationRun(tmp_path, PAIR, RUN._replace(transaction_records=2, seed=4))
    result = simulate.simulation.run()
    assert result.is_answered
    assert result.is_quiet
    assert [each["type"] for each in simulate.reported("commit")] == ["invoke", "ok"] * 20
    assert read_values(simulate) == committed_values(simulate)
    assert len(read_values(simulate)) == 40
    log = tmp_path / "play" / "node-0" / "t-0" / f"{0:020d}.log"
    with open_segment(str(log), base_offset=0) as segment:
        headers = [each.header for each in segment.scan(verify_crc=False)]
    ids = [each.producer_id for each in headers]
    assert [*dict.fromkeys(ids)] == [1, 1 + (1 << 32), 1 + (2 << 32)]
    assert {each.producer_epoch for each in headers} == {*range(11)}


def state_log(path: Path) -> Path:
    return path / "play" / "controller" / "__transaction_state-0" / f"{0:020d}.log"


def flipped(path: Path) -> None:
    data = bytearray(state_log(path).read_bytes())
    data[len(data) // 2] ^= 1
    state_log(path).write_bytes(data)


def emptied(path: Path) -> None:
    for each in state_log(path).parent.iterdir():
        each.unlink()


@pytest.mark.parametrize(
    ("damage", "words"), [(flipped, "would be cut off"), (emptied, "has no partition.metadata")]
)
def test_what_the_coordinator_has_decided_is_not_cut_without_a_word(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    simulate = SimulationRun(tmp_path, PAIR, RUN)
    simulate.run()
    damage(tmp_path)
    log = state_log(tmp_path)
    before = log.read_bytes() if log.exists() else None
    with pytest.raises(RefusedError, match=words) as caught:
        run_of(simulate, 2, RUN)
    assert str(log.parent) in str(caught.value)
    assert (log.read_bytes() if log.exists() else None) == before


def test_a_marker_that_a_leader_refuses_for_good_is_told_and_not_sent_again(
    tmp_path: Path,
) -> None:
    """A later epoch is in the log: the transaction keeps its state, as with Kafka."""
    stage = Stage(tmp_path)
    who = stage.begin()
    assert stage.send(who, T0, "a") == ""
    later = EndMarker(who.producer_id, who.producer_epoch + 5, False, 0)
    leader = stage.simulation.brokers[0]
    assert stage.asked(leader.write_marker, T0, later) == ("",)
    assert stage.end(who, is_commit=True)[0] == ""
    events = stage.simulation.trace.events
    assert stage.until(lambda: any("has no end any more" in each.words for each in events))
    end_offset = leader.log(T0).end_offset
    assert not stage.until(lambda: stage.coordinator.is_idle)
    assert leader.log(T0).end_offset == end_offset
    assert sum("has no end any more" in each.words for each in events) == 1
    assert stage.end(who, is_commit=True)[0] == CONCURRENT_TRANSACTIONS


def test_the_coordinator_is_cut_off_with_the_controller(tmp_path: Path) -> None:
    simulate = SimulationRun(tmp_path, PAIR, RUN)
    simulation = simulate.begun()
    assert isinstance(simulation.coordinator, SimulatedCoordinator)
    (fault,) = parse_faults("partition 1 at 1s", 3)
    simulation._nemesis.inflict(fault, 1)
    ends: list[Process] = [simulation.coordinator, simulation.controller]
    for each in ends:
        assert simulation._network.is_cut(each.name, "broker 1")
        assert not simulation._network.is_cut(each.name, "broker 0")


@pytest.mark.exhaustive
def test_what_was_committed_and_is_open_again_is_condemned() -> None:
    """A marker that one of two replicas had, and that lost power before it was on its disk."""
    settings = PlaySettings(nodes=2, replication_factor=2)
    faults = "kill follower at 10%, power leader at 100% quiet, start all at quiet"
    run = RunSettings(records=8, rate=4, transaction_records=2, faults=faults)
    alone = 0
    for seed in range(30):
        scenario = simulate_scenario(settings, run._replace(seed=seed))
        assert scenario.result.is_quiet
        assert scenario.result.is_read is ("lost-commit" not in scenario.kinds)
        alone += scenario.kinds == {"lost-commit"}
    assert alone
