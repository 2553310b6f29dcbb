"""Rules of replication that only show where brokers, a controller and clients meet."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource
from eoctl.lab.clients.consumer import CommittingConsumer
from eoctl.lab.environment.leader import IsrChange, LeaderReplica
from eoctl.lab.environment.network import NOT_LEADER, OFFSET_OUT_OF_RANGE, SECOND_US
from eoctl.lab.environment.settings import START_MS, PlaySettings, RunSettings
from eoctl.lab.guarantees.scenarios import simulate_scenario
from eoctl.lab.layout import make_cluster
from eoctl.lab.nodes.controller import (
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_UPDATE_VERSION,
)
from eoctl.lab.simulation import Simulation
from recovery.elections import rules
from storage.file_names import TopicPartition
from tests.writing import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eoctl.lab.environment.metadata import Led, MetadataView
    from eoctl.lab.environment.network import ConsumerAnswer


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Client:
    """Who is answered."""

    name, incarnation, is_running = "client", 0, True


class SimulationRun:
    """A run, its history and what happened."""

    def __init__(self, path: Path, settings: PlaySettings, run: RunSettings) -> None:
        cluster = make_cluster(str(path / "play"), settings)
        self.lines: list[bytes] = []
        self.simulation = Simulation(
            cluster.root, cluster.cluster, settings, run, 1, write=self.lines.append
        )

    def run(self) -> list[str]:
        self.simulation.run()
        return [each.words for each in self.simulation.trace.events]

    def begun(self) -> Simulation:
        """All brokers run and nothing else has happened yet."""
        for each in self.simulation.brokers.values():
            each.start()
        scheduler = self.simulation.scheduler
        assert scheduler.run(self.simulation.is_quiet, 60 * SECOND_US)
        return self.simulation

    def sends(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.reported("send") if each["type"] == kind]

    def reported(self, op: str) -> list[dict[str, Any]]:
        """Lines of the history."""
        return [each for each in map(json.loads, self.lines[1:]) if each["op"] == op]


def test_repl_1_the_leader_appends_and_its_end_is_what_it_has(tmp_path: Path) -> None:
    simulate = SimulationRun(
        tmp_path, PlaySettings(nodes=1, replication_factor=1), RunSettings(records=20)
    )
    simulate.run()
    assert [each["offset"] for each in simulate.sends("ok")] == [*range(20)]


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("shrinks", [False, True])
def test_repl_5_writes_go_on_once_the_isr_has_shrunk_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_dead: bool, shrinks: bool
) -> None:
    """A follower that hangs is taken out by its leader, a dead one by the controller, too."""
    if not shrinks:
        monkeypatch.setattr(LeaderReplica, "leaving", lambda _, __: ())
        if is_dead:
            monkeypatch.setattr(rules, "fenced", lambda state, *_: state)
    simulate = SimulationRun(tmp_path, PlaySettings(), RunSettings(records=5))
    simulation = simulate.begun()
    follower = simulation.brokers[2]
    if is_dead:
        follower.kill()
    else:
        monkeypatch.setattr(follower, "_fetch", lambda _: None)
    simulation.producer.start()
    now_us = simulation.scheduler.now_us
    simulation.scheduler.run(lambda: simulation.producer.is_done, now_us + 1000 * SECOND_US)
    assert len(simulate.sends("ok")) == (5 if shrinks else 0)
    assert simulation.controller.led(T0).leadership.isr == ((0, 1) if shrinks else (0, 1, 2))


def test_repl_7_consumers_read_below_the_high_watermark(tmp_path: Path) -> None:
    simulation = SimulationRun(tmp_path, PlaySettings(), RunSettings()).begun()
    leader, reported = simulation.brokers[0], []

    def answered(given: ConsumerAnswer) -> None:
        reported.append((given.error, len(given.batches), given.high_watermark))

    simulation.producer.start()
    simulation.scheduler.run(lambda: leader.log(T0).end_offset > 0, 60 * SECOND_US)
    assert leader.high_watermark(T0) == 0  # appended, and nobody has fetched it yet
    end_offset = leader.log(T0).end_offset
    for offset in (0, end_offset, end_offset + 1):
        leader.consume(Client(), T0, offset, answered)
    simulation.brokers[1].consume(Client(), T0, 0, answered)
    now_us = simulation.scheduler.now_us
    simulation.scheduler.run(lambda: len(reported) == 4, now_us + SECOND_US)
    assert reported.count(("", 0, 0)) == 2
    assert (OFFSET_OUT_OF_RANGE, 0, 0) in reported
    assert (NOT_LEADER, 0, -1) in reported


def test_repl_8_the_first_of_the_replicas_in_the_isr_is_elected(tmp_path: Path) -> None:
    faults = "kill 1 at 3s, kill 0 at 30s, start 1 at 60s"
    words = SimulationRun(tmp_path, PlaySettings(), RunSettings(records=10, faults=faults)).run()
    elected = [each for each in words if "elected" in each]
    assert elected[0] == "broker 2 is elected leader of t-0 (epoch 1), ISR 2"


def test_repl_8_the_last_one_in_the_isr_stays_there(tmp_path: Path) -> None:
    faults = "kill 1 at 3s, kill 2 at 30s, kill 0 at 60s, start 1 at 80s, start 2 at 100s"
    words = SimulationRun(tmp_path, PlaySettings(), RunSettings(records=10, faults=faults)).run()
    leaderless = words.index("t-0 has no leader any more (epoch 1), ISR 0")
    healed = next(place for place, each in enumerate(words) if "is healed" in each)
    assert not any("elected" in each for each in words[leaderless:healed])
    assert any("broker 0 is elected" in each for each in words[healed:])


def test_repl_8_what_is_asked_for_in_an_old_epoch_is_refused(tmp_path: Path) -> None:
    simulation = SimulationRun(tmp_path, PlaySettings(), RunSettings()).begun()
    controller, leader = simulation.controller, simulation.brokers[0]
    epochs = controller.led(T0).leadership
    answers: list[str] = []
    leader.altered = lambda *given: answers.append(given[2])  # type: ignore[method-assign]
    simulation.brokers[1].altered = leader.altered  # type: ignore[method-assign]
    leader_epoch, partition_epoch = epochs.leader_epoch, epochs.partition_epoch
    controller.alter(leader, T0, IsrChange((0,), leader_epoch + 1, partition_epoch))
    controller.alter(simulation.brokers[1], T0, IsrChange((1,), leader_epoch, partition_epoch))
    controller.alter(leader, T0, IsrChange((0,), leader_epoch, partition_epoch + 1))
    controller.alter(leader, T0, IsrChange((0, 7), leader_epoch, partition_epoch))
    controller.alter(leader, T0, IsrChange((0, 1), leader_epoch, partition_epoch))
    now_us = simulation.scheduler.now_us
    simulation.scheduler.run(lambda: len(answers) == 5, now_us + SECOND_US)
    assert sorted(answers) == sorted(
        [FENCED_LEADER_EPOCH, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA, ""]
    )
    assert controller.led(T0).leadership.isr == (0, 1)
    assert controller.led(T0).leadership.partition_epoch == partition_epoch + 1


def test_repl_8_who_was_started_leads_in_no_epoch_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the controller tells before it has registered it, it does not take over."""
    simulation = SimulationRun(tmp_path, PlaySettings(), RunSettings()).begun()
    leader = simulation.brokers[0]
    before = leader.leading[T0].leader_epoch
    led: list[int] = []
    lead = leader._lead

    def watched(key: TopicPartition, as_reported: Led, view: MetadataView) -> None:
        led.append(as_reported.leadership.leader_epoch)
        lead(key, as_reported, view)

    monkeypatch.setattr(leader, "_lead", watched)
    leader.kill()
    leader.start()
    simulation.controller.set_min_insync(1)
    scheduler = simulation.scheduler
    assert scheduler.run(simulation.is_quiet, scheduler.now_us + 60 * SECOND_US)
    assert leader.view is not None
    assert before not in led


@pytest.mark.parametrize("is_unclean", [False, True])
def test_repl_9_an_unclean_election_is_held_only_where_it_is_allowed(
    tmp_path: Path, is_unclean: bool
) -> None:
    faults = "kill 1 at 3s, kill 2 at 30s, kill 0 at 60s, start 1 at 80s, start 0 at 100s"
    settings = PlaySettings(is_unclean=is_unclean)
    words = SimulationRun(tmp_path, settings, RunSettings(records=10, faults=faults)).run()
    assert any("in an unclean election" in each for each in words) == is_unclean


@pytest.mark.parametrize("has_elr", [False, True])
def test_repl_11_with_elr_who_was_killed_does_not_lead_with_what_it_forgot(
    tmp_path: Path, has_elr: bool
) -> None:
    """The last replica standing loses power; with ELR another that has all leads in its place."""
    faults = "kill 1 at 3s, stop 2 at 30s, power 0 at 60s, start 0 at 80s, start 2 at 81s"
    settings = PlaySettings(min_insync=2, has_elr=has_elr)
    words = SimulationRun(tmp_path, settings, RunSettings(records=10, faults=faults)).run()
    start = words.index("start broker 0")
    elected = next(each for each in words[start:] if "is elected leader" in each)
    assert elected.startswith("broker 2" if has_elr else "broker 0")


def test_repl_12_what_is_sent_again_is_there_once_with_idempotence(tmp_path: Path) -> None:
    run = RunSettings(records=40, rate=200, faults="kill leader at 50%", seed=3)
    counts = {}
    for is_idempotent in (True, False):
        path = tmp_path / str(is_idempotent)
        path.mkdir()
        simulate = SimulationRun(path, PlaySettings(), run._replace(is_idempotent=is_idempotent))
        simulate.run()
        assert len(simulate.sends("ok")) == 40
        log = path / "play" / "node-0" / "t-0" / f"{0:020d}.log"
        counts[is_idempotent] = sum(
            log.read_bytes().count(b"r1-%d\x00" % number) for number in range(40)
        )
    assert counts[True] == 40
    assert counts[False] > 40


def test_repl_12_what_is_sent_again_is_not_overtaken(tmp_path: Path) -> None:
    """One batch went to a leader that was cut off, and came to the next one behind forty others."""
    run = RunSettings(
        records=60, rate=4, seed=50, faults="kill follower at 28%, partition leader at 62%"
    )
    simulate = SimulationRun(tmp_path, PlaySettings(), run)
    simulate.run()
    offsets = [each["offset"] for each in simulate.sends("ok")]
    assert sorted(offsets) == [*range(60)]


def test_repl_12_what_the_buffer_has_no_room_for_is_dropped_by_the_client(tmp_path: Path) -> None:
    run = RunSettings(
        records=60, rate=100, buffered_max=5, is_blocking=False, faults="kill all at 10%"
    )
    simulate = SimulationRun(tmp_path, PlaySettings(), run)
    simulate.run()
    dropped = [each for each in simulate.sends("fail") if each["error"] == "BUFFER_FULL"]
    assert dropped
    assert len(dropped) == simulate.simulation.producer.dropped_count


def test_repl_12_a_synchronous_producer_has_one_record_on_its_way(tmp_path: Path) -> None:
    """As `producer.type=sync`: see the man page of `eoctl sim`."""
    simulate = SimulationRun(tmp_path, PlaySettings(), RunSettings(records=20, rate=0, in_flight=1))
    simulate.run()
    assert [each["type"] for each in simulate.reported("send")] == ["invoke", "ok"] * 20


def test_repl_12_an_asynchronous_producer_sends_what_it_has_after_its_linger(
    tmp_path: Path,
) -> None:
    """As `producer.type=async` with its `queue.buffering.max.ms` of 5000."""
    run = RunSettings(records=300, rate=100, in_flight=1, linger_ms=5000, batch_records=200)
    simulate = SimulationRun(tmp_path, PlaySettings(), run)
    simulate.run()
    begun = [each["time_us"] for each in simulate.reported("send") if each["type"] == "invoke"]
    ended = [each["time_us"] for each in simulate.sends("ok")]
    # The first 200 fill a batch in 2 s; the others come in one more, 5 s after the first of all.
    assert len({*ended[:200]}) == len({*ended[200:]}) == 1
    assert 1.9e6 < ended[0] - begun[0] < 2.1e6
    assert 4.9e6 < ended[-1] - begun[0] < 5.1e6


def test_repl_12_a_consumer_that_is_closed_is_given_no_more(tmp_path: Path) -> None:
    """It handles what it has; what a fetch that is under way brings it, it has never had."""
    simulate = SimulationRun(
        tmp_path, PlaySettings(partitions=2), RunSettings(records=400, rate=1000)
    )
    simulation = simulate.begun()
    scheduler = simulation.scheduler
    consumer = CommittingConsumer(
        "consumer", simulation.brokers, [T0, T1], scheduler, simulation._network,
        simulate.simulation.history, simulation.trace, commits_before=False,
    )  # fmt: skip

    def is_between() -> bool:
        """One partition is handled, and records of the other one are asked for."""
        return any(
            consumer._busy == {one}
            and consumer._expected[other] > 0
            and simulation.brokers[other.partition].high_watermark(other)
            > consumer.positions[other]
            for one, other in ((T0, T1), (T1, T0))
        )

    simulation.producer.start()
    consumer.start()
    assert scheduler.run(is_between, scheduler.now_us + 10 * SECOND_US)
    given = len(simulate.reported("poll"))
    consumer.close()
    assert scheduler.run(lambda: not consumer.is_running, scheduler.now_us + 10 * SECOND_US)
    assert len(simulate.reported("poll")) == given
    polled = [each["records"] for each in simulate.reported("poll") if each["type"] == "ok"]
    assert polled == [each["records"] for each in simulate.reported("handle")]


@pytest.mark.parametrize("in_flight", [5, 1])
def test_repl_12_what_a_started_broker_forgot_is_sent_again(tmp_path: Path, in_flight: int) -> None:
    """Synced or not: of the five batches in flight it knows the last, and refuses the others."""
    run = RunSettings(
        records=60, rate=4, seed=54, in_flight=in_flight,
        faults="kill follower at 17%, power all at 55%, start all at 57%",
    )  # fmt: skip
    scenario = simulate_scenario(PlaySettings(min_insync=2, fsync="batch"), run)
    assert scenario.result.is_answered
    assert scenario.kinds == ({"duplicate"} if in_flight > 1 else set())
    twice = sorted(each.value for each in scenario.findings)
    assert twice == ([f"r1-{number}" for number in range(11, 16)] if in_flight > 1 else [])


# When it commits -> the faults; whether records are then passed over, and handled twice.
KILLED = "kill consumer at 30% handling, start consumer at 60%"
COMMITTING = {
    ("before", KILLED): (True, False),
    ("after", KILLED): (False, True),
    ("before", "stop consumer at 30% handling, start consumer at 60%"): (False, False),
    ("after", "stop consumer at 30% handling, start consumer at 60%"): (False, False),
    ("before", ""): (False, False),
    ("after", ""): (False, False),
    ("before", "kill consumer at 30% handling"): (True, False),  # the heal starts it
    ("after", "kill leader at 40%, kill consumer at 41% handling, start all at 60%"): (False, True),
    ("before", f"{KILLED}, kill consumer at 70% handling, start consumer at 80%"): (True, False),
    # Started, and killed again before it knows where to go on.
    ("after", f"{KILLED}, kill consumer at 60%, start consumer at 60%"): (False, True),
}


@pytest.mark.share(2)
@pytest.mark.parametrize(("commit", "faults"), COMMITTING)
@pytest.mark.parametrize("partitions", [1, 3])
def test_repl_12_who_commits_before_loses_and_who_commits_after_is_given_again(
    tmp_path: Path, commit: str, faults: str, partitions: int
) -> None:
    run = RunSettings(records=200, faults=faults, consumer_commit=commit)
    settings = PlaySettings(min_insync=2, partitions=partitions)
    may_lose, may_double = COMMITTING[commit, faults]
    reported: set[str] = set()
    for seed in range(3):
        path = tmp_path / str(seed)
        path.mkdir()
        simulate = SimulationRun(path, settings, run._replace(seed=seed))
        simulate.run()
        data = b"".join(simulate.lines)
        verdict = judge([HistorySource("history", lambda data=data: io.BytesIO(data))])  # type: ignore[misc]
        assert not verdict.has_findings, verdict.findings
        assert verdict.problems == ()
        reported |= {*verdict.counts}
        handled = [
            (name, *record)
            for each in simulate.reported("handle")
            for name, records in each["records"].items()
            for record in records
        ]
        sent = {
            (f"t-{each['partition']}", each["offset"], each["value"])
            for each in simulate.sends("ok")
        }
        assert verdict.counts.get("never-handled", 0) == len(sent - {*handled})
        assert verdict.counts.get("handled-twice", 0) == len(handled) - len({*handled})
        assert verdict.handled_count == len(handled)
        assert {*handled} <= sent
    assert reported == (
        {"never-handled"} if may_lose else {"handled-twice"} if may_double else set()
    )


def test_what_the_consumer_commits_changes_nothing_of_a_run_without_it(tmp_path: Path) -> None:
    """Digests of before there was such a consumer."""
    run = RunSettings(records=100, faults="kill leader at 20%, start all at 70%", seed=7)
    simulate = SimulationRun(tmp_path, PlaySettings(min_insync=2), run)
    simulate.run()
    assert simulate.simulation.history.digest.startswith("461803bb9f265ef7")
    assert not simulate.reported("offset-commit")
    assert not simulate.reported("handle")


@pytest.mark.parametrize(
    ("min_bytes", "batches", "is_at_once"),
    [(1, 1, True), (0, 1, True), (200, 1, False), (200, 2, False), (200, 3, True)],
)
def test_repl_2_a_fetch_waits_for_min_bytes_or_until_its_time_is_over(
    tmp_path: Path, min_bytes: int, batches: int, *, is_at_once: bool
) -> None:
    """Each batch has between a third and the half of 200 bytes."""
    settings = PlaySettings(
        nodes=2, replication_factor=2, fetch_min_bytes=min_bytes, fetch_wait_max_ms=2000
    )
    simulation = SimulationRun(tmp_path, settings, RunSettings()).begun()
    scheduler, leader = simulation.scheduler, simulation.brokers[0]
    data = batch(value=b"v", timestamp_ms=START_MS)
    assert 200 / 3 < len(data) < 200 / 2

    def is_there() -> bool:
        return simulation.brokers[1].log(T0).end_offset == batches

    def until(is_so: Callable[[], bool], limit_us: int) -> bool:
        return scheduler.run(is_so, scheduler.now_us + limit_us)

    if min_bytes:  # else it never waits; it has just begun to
        assert until(lambda: not leader._waiting_fetches, 3 * SECOND_US)
        assert until(lambda: bool(leader._waiting_fetches), SECOND_US)
    begun_us = scheduler.now_us
    for _ in range(batches):
        leader.produce(Client(), T0, data, 1, SECOND_US, lambda _: None)
    assert until(is_there, SECOND_US) is is_at_once
    assert until(is_there, 2 * SECOND_US)
    if not is_at_once:
        assert 1_990_000 < scheduler.now_us - begun_us < 2_010_000


def test_repl_2_a_fetch_with_an_error_does_not_wait(tmp_path: Path) -> None:
    settings = PlaySettings(fetch_min_bytes=1_000_000, fetch_wait_max_ms=20_000)
    faults = "kill leader at 3s, start all at 40s"
    simulate = SimulationRun(tmp_path, settings, RunSettings(records=5, faults=faults))
    result = simulate.simulation.run()
    assert result.is_quiet
    assert len(simulate.sends("ok")) == 5
