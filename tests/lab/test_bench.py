"""eoctl bench: wrong calls touch nothing; the audit and the tables, from logs and samples made here."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.lab.bench import brokers as brokers_module
from eoctl.lab.bench import runner, tables
from eoctl.lab.bench.audit import (
    Landed,
    ReadCopy,
    Stretch,
    count,
    judge,
    read_copies,
    read_copy,
    stretches,
)
from eoctl.lab.bench.brokers import RunningBrokers, choose_ports, fsync_policy
from eoctl.lab.bench.load import (
    ACKNOWLEDGED,
    FAILED,
    KEY,
    MIN_SAMPLES,
    Load,
    LoadOptions,
    Sent,
    interrupts_kept,
    lane,
    latencies_ns,
    nearest_rank,
    producer_settings,
    records_per_s,
    send_by_java,
    summarise,
    values_pool,
)
from eoctl.lab.bench.run import Recorder, warming_notes, with_needed
from eoctl.lab.bench.runner import WARMUP, BenchRunner, CellRun, ScenarioOptions, left_s, order_of
from eoctl.lab.bench.scenarios import ACKS_ALL, SCENARIOS, Cell, with_bare
from eoctl.lab.bench.work_dir import MARKER_NAME, start_ticks
from eoctl.libraries import install_call
from storage.errors import EoctlError, RefusedError
from storage.files.broker_lock import take
from storage.formats.record import Record
from tests.batches import encoded_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


RUN_KEY = 0x1234_5678_9ABC


def tree_of(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else b""
        for each in sorted(path.rglob("*"))
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to be in, with a java and jars that are none: brokers cannot be started."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    java = home / "bin/java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\nexit 7\n")
    java.chmod(0o755)
    (home / "kafka_2.13-4.3.1.jar").touch()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("EOCTL_KAFKA_LIBS", str(home))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- wrong calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ([], "no --scenario given"),
        (["--scenario", 8], "--scenario 8: there is none"),
        (["--scenario", 1, "--all"], "one of them"),
        (["--scenario", 1, "--cell", "nope"], "no such cell"),
        (["--scenario", 1, "--brokers", 3], "3 brokers are too few for"),
        (["--scenario", 3, "--brokers", 1, "--cell", "all-rf2-min1"], "--brokers 2"),
        (["--scenario", 1, "--setting", "x"], "NAME=VALUE"),
        (["--scenario", 1, "--repetitions", 1], "repetitions"),
        (["--scenario", 1, "--against", "nowhere"], "is no HOST:PORT"),
        (["--scenario", 1, "--against", "h:0"], "is no HOST:PORT"),
        (["--scenario", 1, "--against", "h:1,h:x"], "'h:x' is no HOST:PORT"),
        (
            ["--scenario", 1, "--against", "h:1", "--brokers", 4, "--setting", "a=b"],
            "--brokers, --setting: of brokers that are started here",
        ),
        (["--scenario", 5, "--against", "h:1"], "brokers are killed there"),
        (["--scenario", 5, "--on-kill", "true"], "only with --against"),
        (["--scenario", 5, "--against", "h:1", "--on-kill", "true"], "both, or none"),
        (
            ["--scenario", 5, "--against", "h:1", "--on-kill", "no such", "--on-start", "true"],
            "--on-kill no such: no such program",
        ),
        (
            ["--scenario", 5, "--against", "h:1", "--on-kill", "'", "--on-start", "true"],
            "No closing quotation",
        ),
        (["--scenario", 1, "--kafka-home", "nowhere"], "no installation of Kafka"),
    ],
)
def test_wrong_calls(eoctl: Run, here: Path, call: list[object], words: str) -> None:
    before = tree_of(here)
    outcome = eoctl("bench", *call)
    assert (outcome.status, outcome.text) == (2, "")
    assert words in outcome.errors
    assert tree_of(here) == before


def test_nobody_answers(eoctl: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Java nor jars are asked for, and nothing is made."""
    monkeypatch.setattr("eoctl.lab.bench.brokers.FIND_S", 0.1)
    monkeypatch.setattr("eoctl.lab.bench.client.ASK_S", 0.5)
    monkeypatch.setenv("JAVA_HOME", str(here / "none"))
    monkeypatch.setenv("PATH", str(here / "none"))
    before = tree_of(here)
    outcome = eoctl("bench", "--scenario", 1, "--against", "127.0.0.1:1")
    assert (outcome.status, outcome.text) == (3, "")
    assert "127.0.0.1:1: no broker answers" in outcome.errors
    assert tree_of(here) == before


def test_no_java(eoctl: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.delenv("JAVA_HOME")
    outcome = eoctl("bench", "--scenario", 1)
    assert outcome.status == 2
    assert "no java" in outcome.errors


def test_old_java(eoctl: Run, here: Path) -> None:
    (here / "home/bin/java").write_text("#!/bin/sh\necho 'java version \"1.8.0_202\"' >&2\n")
    outcome = eoctl("bench", "--scenario", 1)
    assert outcome.status == 2
    assert "Java 17 or later, and this is 1.8.0_202" in outcome.errors


def test_no_jars(eoctl: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOCTL_KAFKA_LIBS")
    monkeypatch.setattr(brokers_module, "FETCHED", here)
    outcome = eoctl("bench", "--scenario", 1)
    assert outcome.status == 2
    assert "--kafka-home" in outcome.errors


def test_no_client(eoctl: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers_module, "find_spec", lambda _: None)
    outcome = eoctl("bench", "--scenario", 1)
    assert outcome.status == 2
    assert f"try: {install_call('confluent-kafka>=2.6')}\n" in outcome.errors


@pytest.mark.parametrize("option", ["--work-dir", "--to"])
@pytest.mark.parametrize(
    ("name", "words"), [("log-dir", "lies in a log dir"), ("full", "is not empty")]
)
def test_existing_directories(eoctl: Run, here: Path, option: str, name: str, words: str) -> None:
    (here / "log-dir").mkdir()
    (here / "log-dir/meta.properties").write_text("version=1\n")
    (here / "full").mkdir()
    (here / "full/precious").write_text("only copy")
    before = tree_of(here)
    outcome = eoctl("bench", "--scenario", 1, option, name)
    assert (outcome.status, outcome.text) == (4, "")
    assert words in outcome.errors
    after = tree_of(here)
    assert {each: after[each] for each in before} == before
    assert {*after} == {*before}


def test_a_marker_of_somebody_else(eoctl: Run, here: Path) -> None:
    (here / "other").mkdir()
    (here / "other" / MARKER_NAME).write_text('{"eoctl_bench": 1, "processes": 7}')
    before = tree_of(here)
    outcome = eoctl("bench", "--scenario", 1, "--work-dir", "other")
    assert outcome.status == 4
    assert tree_of(here) == before


def test_another_call_runs_there(eoctl: Run, here: Path) -> None:
    """As the process that has the lock, which is this one."""
    (here / "eoctl-bench/node-0").mkdir(parents=True)
    marker = {"eoctl_bench": 1, "pid": os.getpid(), "processes": {}}
    (here / "eoctl-bench" / MARKER_NAME).write_text(json.dumps(marker))
    with take([here / "eoctl-bench"]):
        outcome = eoctl("bench", "--scenario", 1)
    assert outcome.status == 4
    assert f"another eoctl bench runs there (process {os.getpid()})" in outcome.errors
    assert (here / "eoctl-bench/node-0").is_dir()


def test_taken_ports(eoctl: Run, here: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        outcome = eoctl("bench", "--scenario", 1, "--first-port", min(port, 65_000))
    if port <= 65_000:
        assert outcome.status == 4
        assert f"taken: {port}" in outcome.errors


def test_ports_are_different() -> None:
    found = choose_ports(10, None)
    assert len({*found}) == 10


def test_a_broker_that_does_not_start(eoctl: Run, here: Path) -> None:
    outcome = eoctl("bench", "--scenario", 1)
    assert (outcome.status, outcome.text) == (4, "")
    assert "a log dir cannot be formatted: openjdk version" in outcome.errors
    assert "Traceback" not in outcome.errors


def test_what_a_call_before_has_left(eoctl: Run, here: Path) -> None:
    """A process that was started there is ended, another one with its pid is not."""
    left = here / "eoctl-bench"
    (left / "node-0/t-0").mkdir(parents=True)
    (left / "node-0/t-0/00000000000000000000.log").touch()
    (left / "node-1").symlink_to(here / "home")
    with (
        subprocess.Popen(["sleep", "600"]) as started,
        subprocess.Popen(["sleep", "600"]) as other,
    ):
        try:
            ticks = [start_ticks(each.pid) or 0 for each in (started, other)]
            processes = {
                "0": {"pid": started.pid, "start_ticks": ticks[0]},
                "1": {"pid": other.pid, "start_ticks": ticks[1] + 1},
            }
            marker = {"eoctl_bench": 1, "pid": 1, "processes": processes}
            (left / MARKER_NAME).write_text(json.dumps(marker))
            outcome = eoctl("bench", "--scenario", 1)
            assert started.wait(60) < 0
            assert other.poll() is None
        finally:
            for each in (started, other):
                each.kill()
    assert "did not come to its end" in outcome.errors
    assert f"node 0 ({started.pid})" in outcome.errors
    assert not (left / "node-0/t-0").exists()
    assert (here / "home/bin/java").exists()


def test_commands_of_owners_are_given_the_id(tmp_path: Path) -> None:
    reported = tmp_path / "told"
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\necho "$@" >>"{reported}"\n[ "$2" != 3 ]\n')
    script.chmod(0o755)
    cluster = RunningBrokers("127.0.0.1:1", [str(script), "kill"], [str(script), "start"])
    cluster.kill(2)
    cluster.close()
    cluster.start(2)
    cluster.close()
    cluster.require_running()
    assert reported.read_text() == "kill 2\nstart 2\n"
    cluster.kill(3)
    cluster.close()
    with pytest.raises(RefusedError, match="kill 3 ended with status 1"):
        cluster.require_running()


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("20000 records sent, 100.0 records/sec (0.10 MB/sec), 1.0 ms avg latency", 0),
        ("nothing that is known", 0),
        ("20000 records sent, 100.0 records/sec", 3),
    ],
)
def test_what_the_tool_of_java_says(here: Path, text: str, status: int) -> None:
    java = here / "home/bin/java"
    java.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
    kafka = brokers_module.Kafka(java=str(java), libs="x", version="4", java_version="17")
    load = LoadOptions(records=20_000, seconds=0, in_flight=1, value_bytes=1000, seed=0)
    cell = SCENARIOS[3][1][0]
    if status or "sent" not in text:
        with pytest.raises(RefusedError):
            send_by_java(kafka, "h:1", cell, "t", load)
        return
    sent = send_by_java(kafka, "h:1", cell, "t", load)
    assert records_per_s(sent, 0.0) == pytest.approx(100)
    assert (sent.status == ACKNOWLEDGED).sum() == 20_000


# --- the load, to a broker that librdkafka plays --------------------------------------------------


def simulated(cell: Cell, **options: float) -> Load:
    settings = producer_settings("played", cell, "x" if cell.txn_records else "")
    whole = {"records": 300, "seconds": 0, "in_flight": 7, "value_bytes": 10, "seed": 0} | options
    load = LoadOptions(**whole)  # type: ignore[arg-type]
    return Load(settings | {"test.mock.num.brokers": 1}, "t", cell.partitions, RUN_KEY, load)


SIMULATED = Cell(3, "x", ACKS_ALL, 1, 1, 4)


def test_each_record_is_followed() -> None:
    load = simulated(SIMULATED)
    opened: list[int] = []
    put = load._lane.put
    load._lane = load._lane._replace(put=lambda *each: opened.append(put(*each)) or opened[-1])
    sent = load.send()
    assert (sent.status == ACKNOWLEDGED).all()
    assert (sent.answered_ns >= sent.intended_ns).all()
    assert sent.partition.tolist() == [each % 4 for each in range(300)]
    assert max(opened) == 7
    assert sent.errors == {}


@pytest.mark.exhaustive
def test_records_are_sent_for_a_time() -> None:
    sent = simulated(SIMULATED, seconds=1.0).send()
    assert sent.records_count > 0
    assert np.ptp(sent.intended_ns) < 60e9
    assert (sent.status == ACKNOWLEDGED).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [{"records": 700}, {"seconds": 1.0}])
def test_the_bare_loop_has_times_of_its_own(size: dict[str, Any]) -> None:
    """A clock is read now and then: what lies between two readings has its share of both."""
    begun_ns = time.monotonic_ns()
    sent = simulated(SIMULATED, **size).send_bare()
    ended_ns = time.monotonic_ns()
    assert sent.records_count == size.get("records", sent.records_count) > 0
    assert (np.diff(sent.intended_ns) >= 0).all()
    assert begun_ns <= sent.intended_ns[0] <= sent.intended_ns[-1] < sent.answered_ns[0] <= ended_ns
    assert np.ptp(sent.answered_ns) == 0
    assert np.ptp(sent.intended_ns) >= size.get("seconds", 0) * 0.9e9
    assert (sent.status == ACKNOWLEDGED).all()
    assert records_per_s(sent, 0.05) > 0
    assert sent.partition[:5].tolist() == [0, 1, 2, 3, 0]


def test_records_have_their_times_beforehand() -> None:
    sent = simulated(SIMULATED, records=100).send(rate=1000)
    assert np.diff(sent.intended_ns).tolist() == [1_000_000] * 99


def test_transactions_are_answered_by_their_ends() -> None:
    cell = SIMULATED._replace(is_idempotent=True, retries=100, txn_records=10, txn_partitions=2)
    sent = simulated(cell).send_transactions(10, 2, 5)
    assert sent.records_count == 50
    assert (sent.status == ACKNOWLEDGED).all()
    assert {*np.unique(sent.answered_ns, return_counts=True)[1].tolist()} == {10}
    assert sent.partition[10:14].tolist() == [1, 2, 1, 2]
    assert simulated(cell, records=25).send_transactions(10, 2, 500).records_count == 25


@pytest.mark.exhaustive
def test_records_that_fail_are_named() -> None:
    """Nobody listens: they are given up."""
    settings = producer_settings("127.0.0.1:1", SIMULATED) | {"message.timeout.ms": 200}
    options = LoadOptions(records=5, seconds=0, in_flight=5, value_bytes=10, seed=0)
    sent = Load(settings, "t", 4, RUN_KEY, options).send()
    assert (sent.status == FAILED).all()
    assert sent.errors == {"_MSG_TIMED_OUT": 5}


class Trap(list[int]):
    """An interrupt comes as the first answer is noted: in a call of librdkafka, which loses it."""

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(place, value)
        if len(self) < 5:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_within_an_answer_is_one() -> None:
    load = simulated(SIMULATED)
    followed = load._followed._replace(answered_ns=Trap())
    load._lane = lane(load._producer, "t", load._values, followed)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        load.send(rate=5)
    assert signal.getsignal(signal.SIGINT) is before


# --- percentiles ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=300), st.integers(1, 10_000))
def test_percentiles_are_samples(samples: list[int], share: int) -> None:
    """The smallest one that at least that share does not exceed; numpy's where it is exact."""
    ordered = np.sort(np.array(samples, np.int64))
    found = nearest_rank(ordered, share)
    enough = [
        each for each in samples
        if sum(other <= each for other in samples) * 10_000 >= share * len(samples)
    ]  # fmt: skip
    assert found == min(enough)
    if share * len(samples) % 10_000:
        method = "inverted_cdf"
        assert found == np.quantile(ordered, share / 10_000, method=method)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=100))
def test_latencies_are_in_order(samples: list[int]) -> None:
    found = summarise(np.array(samples, np.int64))
    assert found is not None
    assert found.samples_count == len(samples)
    assert found.p99_99_us is None
    row = [found.min_us, found.p50_us, found.p95_us, found.p99_us, found.p99_9_us, found.max_us]
    assert row == sorted(row)
    assert found.min_us <= found.avg_us <= found.max_us


def test_many_samples_have_a_last_percentile() -> None:
    found = summarise(np.arange(1, MIN_SAMPLES + 1, dtype=np.int64) * 1000)
    assert found is not None
    assert (found.p50_us, found.p99_us, found.p99_99_us, found.max_us) == (5000, 9900, 9999, 10_000)
    assert summarise(np.empty(0, np.int64)) is None


# --- the audit ------------------------------------------------------------------------------------


def sent_of(status: Sequence[int], partitions: int = 1, gap_ns: int = 1_000_000) -> Sent:
    count = len(status)
    intended = 10**9 + np.arange(count, dtype=np.int64) * gap_ns
    return Sent(
        intended_ns=intended,
        answered_ns=intended + 2_000_000,
        status=np.array(status, np.int8),
        partition=(np.arange(count) % partitions).astype(np.int32),
        errors={"_TRANSPORT": int(np.sum(np.array(status) == FAILED))},
    )


def put_log(directory: Path, keys: Sequence[bytes | None], per_batch: int = 3) -> Path:
    """A partition with records of these keys."""
    directory.mkdir(parents=True)
    data, offset = b"", 0
    for start in range(0, len(keys), per_batch):
        part = keys[start : start + per_batch]
        records = [Record(0, 0, place, key, b"v" * 50, ()) for place, key in enumerate(part)]
        data += encoded_batch(offset, records)
        offset += len(part)
    (directory / f"{0:020}.log").write_bytes(data)
    return directory


def audit(
    sent: Sent,
    run_key: int,
    log_dirs: dict[int, Path],
    topic: str,
    in_sync: dict[int, tuple[int, ...]],
) -> Landed:
    copies = read_copies(run_key, sent.records_count, log_dirs, topic, in_sync)
    return judge(sent, copies, in_sync)


def key(sequence: int, run: int = RUN_KEY) -> bytes:
    return KEY.pack(run, sequence)


def test_a_copy_is_counted(tmp_path: Path) -> None:
    keys = [key(0), key(2), key(2), None, key(1, RUN_KEY + 1), b"short", key(99)]
    copy = read_copy(put_log(tmp_path / "t-0", keys), RUN_KEY, 4)
    assert copy.times.tolist() == [1, 0, 2, 0]
    assert (copy.others_count, copy.beyond_count, copy.notes) == (3, 1, ())


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    """Of three replicas one is dead; one in sync has lost a record, another has one twice."""
    status = [ACKNOWLEDGED] * 9 + [FAILED, FAILED, 0]
    whole = [key(each) for each in (0, 2, 4, 6, 8, 10)]
    put_log(tmp_path / "0/t-0", whole)
    put_log(tmp_path / "1/t-0", [*whole[:2], *whole[3:]])  # without 4
    put_log(tmp_path / "2/t-0", whole[:1])  # dead
    odd = [key(each) for each in (1, 3, 5, 7)]
    put_log(tmp_path / "0/t-1", [*odd, key(3)])  # 3 twice
    put_log(tmp_path / "1/t-1", [*odd, key(6)])  # of the other partition
    log_dirs = {each: tmp_path / str(each) for each in range(3)}
    found = audit(sent_of(status, 2), RUN_KEY, log_dirs, "t", {0: (0, 1), 1: (0, 1)})
    assert found._replace(log_bytes=0) == Landed(
        acknowledged_count=9,
        landed_count=8,
        missing_count=1,
        nowhere_count=0,
        twice_count=1,
        unacknowledged_count=1,  # 10 failed, and is there
        others_count=0,
        misplaced_count=1,
        missing=(Stretch(0, 4, 4, 1),),
        twice=(Stretch(1, 3, 3, 1),),
    )


def test_damage_is_told_and_counts_as_missing(tmp_path: Path) -> None:
    log = put_log(tmp_path / "0/t-0", [key(each) for each in range(9)]) / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = audit(sent_of([ACKNOWLEDGED] * 9), RUN_KEY, {0: tmp_path / "0"}, "t", {0: (0,)})
    assert (found.landed_count, found.missing_count, found.nowhere_count) == (6, 3, 3)
    assert str(log) in found.notes[0]


def test_a_copy_in_sync_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EoctlError):
        audit(sent_of([ACKNOWLEDGED]), RUN_KEY, {0: tmp_path}, "t", {0: (0,)})


@given(st.data())
def test_stretches_say_each_record_once(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 20))
    partition = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    chosen = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    found = stretches(np.array(partition, np.int32), np.array(chosen, np.bool_))
    own = {part: [each for each in range(count) if partition[each] == part] for part in range(3)}
    reported = [
        each
        for one in found
        for each in own[one.partition]
        if one.first_sequence <= each <= one.last_sequence
    ]
    assert sorted(reported) == [each for each in range(count) if chosen[each]]
    assert sum(each.records_count for each in found) == len(reported)


@pytest.mark.exhaustive
@given(st.data())
def test_judging_as_a_plain_loop_does(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    status = data.draw(st.lists(st.sampled_from([0, ACKNOWLEDGED, FAILED]),
                                min_size=count, max_size=count))  # fmt: skip
    sent = sent_of(status, 2)
    in_sync = {each: data.draw(st.sets(st.integers(0, 2), min_size=1)) for each in (0, 1)}
    times = {
        (broker, partition): data.draw(
            st.lists(st.sampled_from([0, 1, 1, 2]), min_size=count, max_size=count)
        )
        for broker in range(3)
        for partition in (0, 1)
    }
    copies = {
        place: ReadCopy(np.array(each, np.uint8), 0, 0, (), 0) for place, each in times.items()
    }
    found = judge(sent, copies, {each: (*brokers,) for each, brokers in in_sync.items()})

    def of(sequence: int) -> list[int]:
        own = sequence % 2
        return [times[broker, own][sequence] for broker in in_sync[own]]

    acknowledged = [each for each in range(count) if status[each] == ACKNOWLEDGED]
    landed = [each for each in acknowledged if all(of(each))]
    assert found.acknowledged_count == len(acknowledged)
    assert found.landed_count == len(landed)
    assert found.missing_count == len(acknowledged) - len(landed)
    assert found.nowhere_count == sum(
        not any(each[sequence] for each in times.values()) for sequence in acknowledged
    )
    doubled = [
        each for each in range(count)
        if any(times[broker, part][each] > 1 for part in (0, 1) for broker in in_sync[part])
    ]  # fmt: skip
    assert found.twice_count == len(doubled)
    assert found.unacknowledged_count == sum(
        all(of(each)) for each in range(count) if status[each] != ACKNOWLEDGED
    )


def test_what_has_no_names_is_counted(tmp_path: Path) -> None:
    """Of 8 records, the last of which failed, one replica in sync has one less."""
    put_log(tmp_path / "0/t-0", [None] * 5)
    put_log(tmp_path / "1/t-0", [None] * 4)
    put_log(tmp_path / "0/t-1", [None] * 3)
    log_dirs = {each: tmp_path / str(each) for each in range(2)}
    in_sync = {0: (0, 1), 1: (0,)}
    sent = sent_of([ACKNOWLEDGED] * 7 + [FAILED])
    copies = read_copies(RUN_KEY, 8, log_dirs, "t", in_sync)
    found = count(sent, copies, in_sync)
    assert (found.landed_count, found.missing_count, found.nowhere_count) == (7, 0, 0)
    found = count(sent_of([ACKNOWLEDGED] * 8), copies, in_sync)
    assert (found.landed_count, found.missing_count, found.nowhere_count) == (7, 1, 0)
    found = count(sent_of([ACKNOWLEDGED, FAILED]), copies, in_sync)
    assert (found.twice_count, found.unacknowledged_count) == (5, 1)


# --- tables ---------------------------------------------------------------------------------------


def run_of(cell: Cell, rate: float, *, count: int = 100, **landed: int) -> CellRun:
    """A run of which the samples say `rate`."""
    sent = sent_of([ACKNOWLEDGED] * count, cell.partitions)
    is_there = dict.fromkeys(Landed._fields[:-4], 0) | {
        "acknowledged_count": count, "landed_count": count - landed.get("missing_count", 0),
    }  # fmt: skip
    return CellRun(
        cell=cell,
        repetition=0,
        topic="t",
        sent=sent,
        records_per_s=rate,
        rate=0.0,
        received_ns=None,
        landed=Landed(**(is_there | landed)),
        audit_s=0.1,
        moved_count=0,
        load_average=1.0,
    )


def three(rates: dict[str, Sequence[float]], **landed: int) -> list[CellRun]:
    cells = {each.name: each for each in SCENARIOS[3][1]}
    return [
        run_of(cells[name], rate, **landed) for name, all_of in rates.items() for rate in all_of
    ]


ARTICLE_LIKE = {
    "0-rf1-min1": (76, 77, 78), "0-rf2-min1": (75, 76, 79), "0-rf4-min1": (70, 78, 80),
    "1-rf1-min1": (30, 31, 32), "1-rf2-min1": (29, 31, 33), "1-rf4-min1": (30, 30, 31),
    "all-rf1-min1": (19, 20, 21), "all-rf2-min1": (9, 10, 11), "all-rf4-min1": (5, 6, 7),
}  # fmt: skip


def relations_of(runs: list[CellRun]) -> dict[str, str]:
    return {each.relation: each.holds for each in tables.relation_rows(tables.by_cell(runs))}


def test_relations_that_hold() -> None:
    rows = [*tables.relation_rows(tables.by_cell(three(ARTICLE_LIKE)))]
    assert [each.holds for each in rows] == ["yes"] * 8
    assert rows[0].figures == "77 (76..78) > 31 (30..32) > 20 (19..21)"


def test_of_brokers_elsewhere_only_what_a_consumer_was_given_is_known() -> None:
    runs = tables.by_cell(three(ARTICLE_LIKE))
    *_, landed, _ = tables.relation_rows(runs, is_consumed=True)
    assert landed.relation == "every acknowledged record is given to a consumer"
    assert landed.holds == "yes"


@pytest.mark.parametrize(
    ("name", "rates", "answers"),
    [
        ("1-rf2-min1", (80, 81, 82), {"acks 0 > 1 > all at RF 2": "no",
                                      "acks=1 does not depend on RF": "no"}),
        ("1-rf2-min1", (29, 31, 76), {"acks 0 > 1 > all at RF 2": "not decided"}),
        ("all-rf2-min1", (3, 31, 32), {"acks 0 > 1 > all at RF 2": "not decided",
                                       "acks=all falls with replicas: RF 1 > 2 > 4": "not decided"}),
        ("all-rf4-min1", (10, 11, 12), {"acks=all falls with replicas: RF 1 > 2 > 4":
                                        "not decided"}),
        ("all-rf4-min1", (12, 13, 14), {"acks=all falls with replicas: RF 1 > 2 > 4": "no"}),
        ("0-rf4-min1", (40, 41, 42), {"acks=0 does not depend on RF": "no"}),
        ("0-rf4-min1", (60, 78, 80), {}),
        ("0-rf4-min1", (50, 55, 79), {"acks=0 does not depend on RF": "not decided"}),
    ],
)  # fmt: skip
def test_relations_that_do_not(
    name: str, rates: tuple[float, ...], answers: dict[str, str]
) -> None:
    found = relations_of(three(ARTICLE_LIKE | {name: rates}))
    assert {what: is_so for what, is_so in found.items() if is_so != "yes"} == answers


def test_one_run_of_five_may_be_an_outlier() -> None:
    """With three it leaves the relation open: nobody knows which of them is the odd one."""
    cells = {each.name: each for each in SCENARIOS[3][1]}
    fast = [run_of(cells["all-rf1-min1"], each) for each in (90, 91, 92, 93, 5)]
    slow = [run_of(cells["all-rf2-min1"], each) for each in (10, 11, 12, 13, 99)]
    (what,) = [each for each in relations_of(fast + slow) if "falls" in each]
    assert relations_of(fast + slow)[what] == "yes"
    assert relations_of(fast[2:] + slow[2:])[what] == "not decided"


def test_min_insync_has_no_effect() -> None:
    cells = {each.name: each for each in SCENARIOS[2][1]}
    runs = [run_of(cells["all-rf2-min1"], each) for each in (100, 105, 110)]
    name = "min.insync.replicas has no effect at RF 2"
    for rates, is_so in (
        ((90, 112, 120), "yes"), ((111, 130, 140), "no"), ((100, 135, 140), "not decided"),
    ):  # fmt: skip
        other = [run_of(cells["all-rf2-min2"], each) for each in rates]
        assert relations_of(runs + other)[name] == is_so


@pytest.mark.parametrize(
    ("landed", "retries", "is_idempotent", "is_sound"),
    [
        ({}, 0, False, True),
        ({"missing_count": 1}, 0, False, False),
        ({"twice_count": 1}, 0, False, False),
        ({"twice_count": 1}, 100, False, True),
        ({"twice_count": 1}, 100, True, False),
        ({"unacknowledged_count": 1}, 0, False, True),
    ],
)
def test_what_is_a_finding(
    landed: dict[str, int], retries: int, is_idempotent: bool, is_sound: bool
) -> None:
    cell = Cell(5, "x", ACKS_ALL, 4, 2, 12, retries=retries, is_idempotent=is_idempotent)
    runs = [run_of(cell, 10, **landed)]
    assert tables.is_sound(runs) is is_sound
    rows = [*tables.relation_rows(tables.by_cell(runs))]
    assert all(each.holds == "yes" for each in rows) is is_sound
    reported = [*tables.answer(runs)]
    assert any(each.startswith("WRONG: ") for each in reported) is not is_sound
    assert all(len(each) <= 80 for each in reported)


@pytest.mark.parametrize(
    ("bare_rates", "reported"),
    [
        ((12, 130, 131), "77 (76..78) to 130 (12..131): not decided, as their runs overlap"),
        ((79, 80, 81), "77 (76..78) to 80 (79..81)"),
    ],
)
def test_our_load_beside_the_bare_loop(bare_rates: tuple[float, ...], reported: str) -> None:
    """A busy machine slows runs, and not loads: where they overlap no ratio is one of loads."""
    bare = next(each for each in with_bare(SCENARIOS[3][1]) if each.name == "bare")
    runs = three({"0-rf1-min1": (76, 77, 78)}) + [run_of(bare, each) for each in bare_rates]
    assert tables.bare_ratio(tables.by_cell(runs)) == [(3, 77 / sorted(bare_rates)[1], reported)]


def test_nothing_was_promised_by_acks_0() -> None:
    runs = three({"0-rf1-min1": (1, 2, 3)}, missing_count=3)
    assert tables.is_sound(runs)
    assert "acknowledged" not in str([*tables.relation_rows(tables.by_cell(runs))])
    assert [*tables.answer(runs)] == [
        "Of 300 records with acks=0, of which nothing is promised, 9 have not landed",
        "No record is there twice that should not be",
    ]


def test_figures_are_medians_beside_the_article() -> None:
    rows = [*tables.cell_rows(tables.by_cell(three(ARTICLE_LIKE)))]
    first, last = rows[0], rows[-1]
    assert (first.cell, first.records_per_s, first.ratio, first.article_ratio) == (
        "0-rf1-min1", 77, 1.0, 1.0,
    )  # fmt: skip
    assert (last.cell, last.records_per_s, last.lowest_per_s, last.highest_per_s) == (
        "all-rf4-min1", 6, 5, 7,
    )  # fmt: skip
    assert (last.ratio, last.article_ratio) == (round(6 / 77, 3), round(9006 / 76696, 3))
    assert first.runs_count == 3


def test_rates_and_latencies_of_samples() -> None:
    sent = sent_of([ACKNOWLEDGED] * 90 + [FAILED] * 10)
    assert records_per_s(sent, 0.0) == pytest.approx(90 / 0.101)
    assert records_per_s(sent, 0.5) == pytest.approx(40 / 0.051)
    assert latencies_ns(sent, 0.05).tolist() == [2_000_000] * 85
    assert records_per_s(sent_of([FAILED]), 0.0) == 0.0


def test_each_cell_begins_once() -> None:
    cells = SCENARIOS[1][1]
    orders = [order_of(cells, each, 3) for each in range(3)]
    assert len({each[0].name for each in orders}) == 3
    assert all({*each} == {*cells} for each in orders)


def scenario_of(cells: Sequence[Cell], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Repetitions and cells of a course in which nothing is sent."""
    load = LoadOptions(records=1, seconds=0, in_flight=1, value_bytes=1, seed=0)
    monkeypatch.setattr(
        BenchRunner, "_run", lambda _, cell, each, __: run_of(cell, 1.0)._replace(repetition=each)
    )
    sequence = BenchRunner(None, cells, ScenarioOptions(3, True, 0.05, load), print)  # type: ignore[arg-type]
    found = [(each.repetition, each.cell.name) for each in sequence.runs()]
    assert len(found) == sequence.runs_count
    return found


def test_each_cell_warms_brokers_but_those_that_kill_or_have_a_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = SCENARIOS[3][1]
    found = scenario_of(three, monkeypatch)
    assert found[: len(three) + 1] == [
        *((WARMUP, each.name) for each in three),
        (0, three[0].name),
    ]
    assert len(found) == 4 * len(three)
    assert all(number != WARMUP for number, _ in scenario_of(SCENARIOS[5][1], monkeypatch))
    rates = scenario_of(SCENARIOS[6][1], monkeypatch)
    assert rates[:4] == [(WARMUP, "max"), (0, "max"), (1, "max"), (2, "max")]
    assert len({*rates}) == len(rates) == 4 + 3 * 3


def test_brokers_are_warmed_until_they_do_not_become_quicker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = iter([90, 180, 190, 230, 220, 300, 310, 320, 310, 290, 340, 320, 330])
    asked: list[tuple[Cell, int, float]] = []

    def run(_: BenchRunner, cell: Cell, repetition: int, load: LoadOptions) -> CellRun:
        asked.append((cell, repetition, load.seconds))
        return run_of(cell, next(rates))._replace(repetition=repetition)

    monkeypatch.setattr(BenchRunner, "_run", run)
    load = LoadOptions(records=1, seconds=0, in_flight=1, value_bytes=1, seed=0)
    options = ScenarioOptions(3, True, 0.05, load)
    runs = [*BenchRunner(None, SCENARIOS[5][1], options, print).warm()]  # type: ignore[arg-type]
    assert next(rates, None) is None
    cell, _, seconds = asked[0]
    assert (cell.replication_factor, cell.faults, cell.rate_ratio) == (4, (), 0)
    assert {each for each, _, _ in asked} == {cell}
    assert [each for _, each, _ in asked] == [*range(WARMUP, WARMUP - len(asked), -1)]
    assert seconds > 0
    assert not any(each.is_counted for each in runs)
    assert [*warming_notes(runs)] == ["brokers were warmed by 13 runs: from 90 to 330 records/s"]
    assert "still became quicker" in str([*warming_notes(runs[:11])])
    options = options._replace(has_warmup=False)
    assert [*BenchRunner(None, SCENARIOS[5][1], options, print).warm()] == []  # type: ignore[arg-type]
    assert [*warming_notes([])] == []


def test_brokers_that_never_are_steady_are_warmed_for_minutes_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates: list[float] = [1.0]
    now_s = 100.0

    def run(_: BenchRunner, cell: Cell, repetition: int, load: LoadOptions) -> CellRun:
        nonlocal now_s
        now_s += load.seconds
        rates.append(rates[-1] * 1.2)
        return run_of(cell, rates[-1])._replace(repetition=repetition)

    monkeypatch.setattr(BenchRunner, "_run", run)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    load = LoadOptions(records=1, seconds=0, in_flight=1, value_bytes=1, seed=0)
    options = ScenarioOptions(3, True, 0.05, load)
    warmed = [*BenchRunner(None, SCENARIOS[6][1], options, print).warm()]  # type: ignore[arg-type]
    assert len(warmed) * runner.WARM_RUN_S == runner.WARM_MOST_S


def test_a_warm_up_run_counts_in_what_has_landed_alone() -> None:
    cell = SCENARIOS[3][1][0]
    cold = run_of(cell, 1.0)._replace(repetition=WARMUP)
    runs = [cold, *(run_of(cell, each) for each in (70, 80, 90))]
    found = tables.by_cell(runs)
    (row,) = tables.cell_rows(found)
    assert (row.runs_count, row.records_count, row.lowest_per_s, row.records_per_s) == (
        3, 300, 70, 80,
    )  # fmt: skip
    (latency,) = tables.latency_rows(found, 0.0)
    assert latency.samples_count == 300
    (landed,) = tables.landed_rows(found)
    assert landed.acknowledged_count == 400
    alone = tables.by_cell([cold])
    assert [*tables.cell_rows(alone)] == [*tables.latency_rows(alone, 0.0)] == []
    assert tables.bare_ratio(alone) == []
    acks_1 = SCENARIOS[3][1][3]
    lost = [run_of(acks_1, 1.0, missing_count=2)._replace(repetition=WARMUP)]
    assert not tables.is_sound(lost)


def test_javas_tool_is_told_a_time_in_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as it sent in its run before; it knows no time itself."""
    asked: list[int] = []
    cell = SCENARIOS[3][1][3]._replace(is_java=True)

    def send(_kafka: object, _bootstrap: str, _cell: Cell, _topic: str, load: LoadOptions) -> Sent:
        asked.append(load.records)
        return sent_of([ACKNOWLEDGED] * 101)  # 100 in 0.101 s

    cluster = SimpleNamespace(bootstrap="b", create_topic=lambda *_: {}, delete_topic=lambda _: 0)
    cluster.broker_ids = []
    monkeypatch.setattr(runner, "send_by_java", send)
    landed = run_of(cell, 1.0).landed
    monkeypatch.setattr(BenchRunner, "_audit", lambda *_: ({}, landed))
    load = LoadOptions(records=7, seconds=5.0, in_flight=1, value_bytes=1, seed=0)
    options = ScenarioOptions(1, True, 0.05, load, kafka=object())  # type: ignore[arg-type]
    runs = [*BenchRunner(cluster, [cell], options, print).runs()]  # type: ignore[arg-type]
    assert asked == [7, math.ceil(5 * runs[0].records_per_s)]
    assert asked[1] > 7


def test_what_is_left_is_foretold_by_what_ran() -> None:
    first, second, third = SCENARIOS[5][1][:3]
    assert left_s({}, [first]) is None
    assert left_s({first: [30, 50]}, [first, second]) == 80
    assert left_s({first: [30], second: [90]}, [second, third, third]) == 90 + 60 + 60
    assert left_s({first: [30]}, []) == 0


def test_cells_that_others_need() -> None:
    rates = [each for each in SCENARIOS[6][1] if each.rate_ratio == 0.5]
    assert [each.name for each in with_needed(rates)] == ["max", "rate50"]
    names = [each.name for each in with_bare(SCENARIOS[5][1])]
    assert "bare" not in names  # of nothing that goes on without faults


def test_names_of_cells_are_legal_in_topics() -> None:
    for number, (_, cells) in SCENARIOS.items():
        names = [each.name for each in cells]
        assert len({*names}) == len(names)
        assert all(each.scenario == number for each in cells)
        assert all(name.replace("-", "").isalnum() and name.islower() for name in names)


def test_fsync_policy_is_told() -> None:
    assert fsync_policy({"log.flush.interval.messages": "1"}) == "log.flush.interval.messages=1"
    assert "no fsync" in fsync_policy({"x": "1"})


def test_samples_are_kept(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    recorder = Recorder(str(tmp_path / "to"))
    run = run_of(SCENARIOS[3][1][0], 12.5)
    recorder.keep(run)
    recorder.keep(run._replace(repetition=1, received_ns=np.zeros(100, np.int64)))
    lines = (tmp_path / "to/runs.jsonl").read_text().splitlines()
    assert [json.loads(each)["repetition"] for each in lines] == [1, 2]
    table = parquet.read_table(tmp_path / "to/s3-0-rf1-min1-1.parquet")
    assert table.column("answered_ns").to_pylist() == run.sent.answered_ns.tolist()
    second = parquet.read_table(tmp_path / "to/s3-0-rf1-min1-2.parquet")
    assert second.column("received_ns").null_count == 100


def test_a_record_is_received_as_soon_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that may give many waits for all of them: records had its time as their latency."""
    pytest.importorskip("confluent_kafka")
    from eoctl.lab.bench import audit as landed_module

    key = KEY.pack(7, 0)

    class Message:
        def error(self) -> None:
            return None

        def key(self) -> bytes:
            return key

    class Consumer:
        def __init__(self, settings: object) -> None:
            self.left = [Message()]

        def assign(self, partitions: object) -> None:
            pass

        def close(self) -> None:
            pass

        def poll(self, timeout: float) -> Message | None:
            return self.left.pop() if self.left else None

        def consume(self, count: int, timeout: float) -> list[Message]:
            assert timeout == 0
            return []

    monkeypatch.setattr(landed_module, "Consumer", Consumer)
    with landed_module.Reader("x:1", "t", 1, 7, is_committed=False) as running:
        assert running.received_ns(np.zeros(1, np.int64), 1).all()


def test_values_are_of_their_seed() -> None:
    assert values_pool(1, 1000) == values_pool(1, 1000) != values_pool(2, 1000)
    assert {len(each) for each in values_pool(1, 1000)} == {1000}


def test_dead_processes_have_no_start() -> None:
    assert start_ticks(os.getpid())
    assert start_ticks(2**22 + 1) is None
