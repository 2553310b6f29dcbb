"""eoctl bench with real brokers: a kill, an interrupt, a driver that dies.

A consumer, or the bytes of the logs, tell the same of each record as the audit does.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from eoctl.lab.bench import tables
from eoctl.lab.bench.audit import LEADER, Stretch, consumed_copies, judge, read_copies, stretches
from eoctl.lab.bench.brokers import BrokerOptions, RealBrokers, RunningBrokers, find_kafka
from eoctl.lab.bench.load import ACKNOWLEDGED, Load, LoadOptions, producer_settings
from eoctl.lab.bench.runner import BenchRunner, CellRun, ScenarioOptions
from eoctl.lab.bench.scenarios import ACKS_ALL, RETRIES_MAX, BrokerFault, Cell
from eoctl.lab.bench.work_dir import Started, is_running, work_dir
from tests.kafka import jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome


pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

WAIT_S = 240
# Brokers that live for seconds: what takes long is to compile what is used once.
QUICK = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def environment() -> dict[str, str]:
    return os.environ | {"EOCTL_KAFKA_LIBS": str(jars.KAFKA_LIBS)}


def started(directory: Path, *more: object) -> subprocess.Popen[bytes]:
    """The smallest call that there is, in a process of its own."""
    call = [
        sys.executable, "-m", "eoctl", "bench", "--scenario", 3, "--cell", "all-rf2-min1",
        "--brokers", 2, "--records", 200, *(f"--java-option={each}" for each in QUICK),
        "--no-warm-up", "--to", "samples", "-o", "jsonl", *more,
    ]  # fmt: skip
    return subprocess.Popen(
        [str(each) for each in call],
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def noted(directory: Path) -> list[Started]:
    """Processes by the marker."""
    try:
        value = json.loads((directory / "eoctl-bench/bench.json").read_text())
    except FileNotFoundError:
        return []
    return [Started(**each) for each in value["processes"].values()]


def wait_for(what: str, is_so: object, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():  # type: ignore[operator]
        if process.poll() is not None:
            raise AssertionError((what, process.communicate()))
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


def test_a_driver_that_dies_and_one_that_is_interrupted(tmp_path: Path) -> None:
    """The next call tells of the first; the second stops its brokers and keeps what it has."""
    with started(tmp_path) as killed:
        wait_for("three processes", lambda: len(noted(tmp_path)) == 3, killed)
        left = noted(tmp_path)
        killed.kill()
        killed.communicate()
    with started(tmp_path) as again:
        runs = tmp_path / "samples/runs.jsonl"
        wait_for("a run", runs.exists, again)
        assert not any(map(is_running, left))
        own = noted(tmp_path)
        assert any(map(is_running, own))
        again.send_signal(signal.SIGINT)
        output, errors = again.communicate(timeout=WAIT_S)
    assert again.returncode == 130, errors
    assert b"did not come to its end" in errors
    assert not any(map(is_running, own))
    assert not (tmp_path / "eoctl-bench").exists()
    kinds = [json.loads(each)["kind"] for each in output.splitlines()]
    assert {"machine", "cell", "landed"} <= {*kinds}
    assert "relation" not in kinds
    first = json.loads(runs.read_text().splitlines()[0])
    assert (first["acknowledged_count"], first["missing_count"]) == (200, 0)


def test_a_broker_is_killed_and_one_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eoctl: Callable[..., Outcome]
) -> None:
    """What is acknowledged is in the log of who is left, by our readers, and by a consumer."""
    monkeypatch.setenv("EOCTL_KAFKA_LIBS", str(jars.KAFKA_LIBS))
    plain = Cell(
        scenario=5, name="kill", acks=ACKS_ALL, replication_factor=2, min_insync=1, partitions=2,
        retries=RETRIES_MAX, is_idempotent=True, faults=(BrokerFault(0.5, 1),),
    )  # fmt: skip
    txn = plain._replace(name="txn", faults=(), txn_records=10, txn_partitions=2, has_reader=True)
    load = LoadOptions(records=400, seconds=0, in_flight=8, value_bytes=1000, seed=1)
    options = BrokerOptions(brokers_count=2, java_options=QUICK)
    with (
        work_dir(str(tmp_path / "work")) as place,
        RealBrokers(find_kafka(None), place, options) as cluster,
    ):
        scenario = BenchRunner(cluster, [plain, txn], ScenarioOptions(1, False, 0.05, load), print)
        killed, committed = scenario.runs()
        assert {*cluster.known_brokers()} == {0, 1}
        outcome = eoctl(
            "bench", "--scenario", 3, "--cell", "1-rf2-min1", "--records", 200, "--no-warm-up", "--against",
            cluster.bootstrap, "--client", "java", "-o", "jsonl",
        )  # fmt: skip
        deadline = time.monotonic() + 60  # a deletion is seen some time after its answer
        while any(each.startswith("eoctl-bench") for each in cluster.topics()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    rows = [json.loads(each) for each in outcome.text.splitlines()]
    assert outcome.status == 0, outcome.errors
    assert "the brokers' disks are elsewhere" in outcome.errors
    landed = {each["cell"]: each for each in rows if each["kind"] == "landed"}
    assert {*landed} == {"1-rf2-min1", "1-rf2-min1-java", "bare"}
    for each in landed.values():
        assert each["acknowledged_count"] == each["landed_count"] == 600
        assert each["twice_count"] == each["missing_count"] == each["others_count"] == 0
    assert killed.landed.acknowledged_count == (killed.sent.status == ACKNOWLEDGED).sum() == 400
    assert killed.landed.landed_count == 400
    assert killed.landed.twice_count == 0
    assert committed.landed.landed_count == committed.landed.acknowledged_count == 400
    assert committed.landed.others_count == 0
    assert committed.received_ns is not None
    assert (committed.received_ns >= committed.sent.intended_ns).all()
    assert tables.is_sound([killed, committed])


# -- what eoctl bench says has landed, held against real brokers that are late, die, and lose records


# Brokers that live for seconds: what takes long is to compile what is used once.
PLAIN = Cell(5, "x", 1, replication_factor=2, min_insync=1, partitions=4)
RECORDS = 400
LOAD = LoadOptions(records=RECORDS, seconds=0, in_flight=8, value_bytes=1000, seed=1)
HEAD = Struct(">qi")  # of a batch: its base offset, and how many bytes follow


@contextmanager
def brokers_of(
    tmp_path: Path, kind: type[RealBrokers] = RealBrokers, **settings: str
) -> Iterator[RealBrokers]:
    """Start three brokers."""
    named = {each.replace("_", "."): value for each, value in settings.items()}
    options = BrokerOptions(brokers_count=3, java_options=QUICK, settings=named)
    kafka = find_kafka(str(jars.KAFKA_LIBS))
    with work_dir(str(tmp_path / "work")) as place, kind(kafka, place, options) as cluster:
        yield cluster


def run_of(cluster: Any, cell: Cell) -> CellRun:
    (run,) = BenchRunner(cluster, [cell], ScenarioOptions(1, False, 0.05, LOAD), print).runs()
    return run


# --- brokers that are late ------------------------------------------------------------------------


class PausedBrokers(RealBrokers):
    """One of them stands still, for two seconds, while a topic is made, or when it was."""

    is_late = True

    def create_topic(self, name: str, cell: Cell) -> Any:
        pid = self._processes[2].pid
        self.seen(name)  # the client is there, and asks whoever answers first
        if not self.is_late:
            made = super().create_topic(name, cell)
        os.kill(pid, signal.SIGSTOP)
        goes_on = threading.Timer(2.0, os.kill, (pid, signal.SIGCONT))
        goes_on.start()
        return super().create_topic(name, cell) if self.is_late else made


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.share(1)
def test_nothing_of_acks_0_is_lost_while_no_leader_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """A leader that hears late of its partitions is awaited, and one that reads late, too."""
    monkeypatch.setattr(PausedBrokers, "is_late", is_late)
    # It keeps its session, however slow the machine is.
    with brokers_of(tmp_path, PausedBrokers, broker_session_timeout_ms="600000") as cluster:
        run = run_of(cluster, PLAIN._replace(acks=0, replication_factor=1))
    assert run.landed._replace(log_bytes=0)[:4] == (RECORDS, RECORDS, 0, 0)
    assert (run.moved_count, run.landed.missing, run.landed.notes) == (0, (), ())


# --- brokers that die, by their owner's commands --------------------------------------------------

CALL = """\
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as owner:
    owner.sendall(" ".join(sys.argv[2:]).encode() + b"\\n")
    sys.exit(owner.makefile().read() != "done")
"""


@contextmanager
def owner_of(cluster: RealBrokers, tmp_path: Path) -> Iterator[Callable[[str], list[str]]]:
    """Give the commands by which brokers are killed and started; who asked is answered after it."""
    script = tmp_path / "call.py"
    script.write_text(CALL)

    class Owner(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            what, broker = self.rfile.readline().split()
            {b"kill": cluster.kill, b"start": cluster.start}[what](int(broker))
            self.wfile.write(b"done")

    # In one thread, which lives as long as the brokers: they die with the one that started them.
    with socketserver.TCPServer(("127.0.0.1", 0), Owner) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = str(server.server_address[1])
        try:
            yield lambda what: [sys.executable, str(script), port, what]
        finally:
            cluster.close()
            server.shutdown()
            thread.join()


class KeepingBrokers(RunningBrokers):
    """Topics stay, so that they can be read again."""

    def delete_topic(self, name: str) -> None:
        """Do not."""


def run_key_of(run: CellRun, log_dir: Path) -> int:
    """Find it in a log: it is in the key of each record."""
    from eoctl.lab.bench.load import KEY
    from recovery.duplicates.scan import Trouble, decode_part, read_parts
    from storage.dirs.discovery import select_partition
    from storage.dirs.partition import Partition

    for each in sorted(log_dir.glob(f"{run.topic}-*")):
        partition = Partition.of(select_partition(each))
        trouble = Trouble()
        for part in read_parts(partition, trouble):
            for decoded in decode_part(part, part.is_data, trouble):
                table: Any = decoded.records
                pos = int(table.key_pos[0])
                return int(KEY.unpack(bytes(table.source[pos : pos + KEY.size]))[0])
    raise AssertionError(log_dir)


@pytest.mark.parametrize(
    ("acks", "retries", "is_idempotent"),
    [(0, 0, False), (1, 0, False), (ACKS_ALL, 0, False), (ACKS_ALL, RETRIES_MAX, False),
     (ACKS_ALL, RETRIES_MAX, True)],
)  # fmt: skip
@pytest.mark.share(1)
def test_a_leader_is_killed_by_its_owner(
    tmp_path: Path, acks: int, retries: int, is_idempotent: bool
) -> None:
    """All that acks=all acknowledged has landed; what others lost is named, record by record."""
    cell = PLAIN._replace(
        acks=acks, retries=retries, is_idempotent=is_idempotent, partitions=6,
        faults=(BrokerFault(0.5, 1),),
    )  # fmt: skip
    with (
        brokers_of(tmp_path, broker_session_timeout_ms="3000") as cluster,
        owner_of(cluster, tmp_path) as command,
        KeepingBrokers(cluster.bootstrap, command("kill"), command("start")) as against,
    ):
        run = run_of(against, cell)
        against.require_running()
        seen = cluster.settled(run.topic, 6, cluster.broker_ids)
        in_sync = {number: part.in_sync for number, part in seen.items()}
        assert {len(each) for each in in_sync.values()} == {2}
        run_key = run_key_of(run, cluster.log_dirs[0])
        on_disk = read_copies(run_key, RECORDS, cluster.log_dirs, run.topic, in_sync)
        assert cluster.broker_ids == cluster.known_brokers()
    landed, sent = run.landed, run.sent
    assert sent.records_count == RECORDS
    # The same of each record, by the logs of both replicas.
    by_disk = judge(sent, on_disk, in_sync)
    assert (landed.missing, landed.twice) == (by_disk.missing, by_disk.twice)
    assert landed[:6] == by_disk[:6]
    assert landed.missing_count == sum(each.records_count for each in landed.missing)
    if acks == ACKS_ALL:
        assert (landed.missing_count, landed.landed_count) == (0, landed.acknowledged_count)
    if not retries or is_idempotent:
        assert landed.twice == ()
    if retries:
        assert landed.acknowledged_count == RECORDS
    else:
        assert landed.acknowledged_count == RECORDS - sum(sent.errors.values())
    rows = [*tables.relation_rows(tables.by_cell([run]))]
    assert {each.holds for each in rows if "there twice only" in each.relation} == {"yes"}
    reported = {each.holds for each in rows if "every acknowledged" in each.relation}
    assert reported == (set() if acks == 0 else {"no" if landed.missing_count else "yes"})
    assert tables.is_sound([run]) is (acks == 0 or not landed.missing_count)


# --- what is planted in the logs of brokers -------------------------------------------------------


def batches_of(log: Path) -> list[tuple[int, int]]:
    """Positions of the batches of a log, [start, end), by their lengths alone."""
    data, pos = log.read_bytes(), 0
    found = []
    while pos < len(data):
        end = pos + HEAD.size + HEAD.unpack_from(data, pos)[1]
        found.append((pos, end))
        pos = end
    return found


def test_what_is_planted_in_logs_of_brokers_is_named(tmp_path: Path) -> None:
    """In copies of their log dirs: a batch is gone, one is there again, as a broker appends it."""
    run_key = 0x5EED
    cell = PLAIN._replace(acks=ACKS_ALL, name="planted")
    with brokers_of(tmp_path) as cluster:
        cluster.create_topic("planted", cell)
        settings = producer_settings(cluster.bootstrap, cell)
        sent = Load(settings, "planted", 4, run_key, LOAD).send()
        assert (sent.status == ACKNOWLEDGED).all()
        seen = cluster.settled("planted", 4, cluster.broker_ids)
        in_sync = {number: part.in_sync for number, part in seen.items()}
        consumed = consumed_copies(cluster.bootstrap, "planted", 4, run_key, RECORDS)
    whole = judge(sent, consumed, dict.fromkeys(in_sync, (LEADER,)))
    log_dirs = {}
    for broker, log_dir in cluster.log_dirs.items():
        log_dirs[broker] = tmp_path / f"copy-{broker}"
        shutil.copytree(log_dir, log_dirs[broker])
    shutil.rmtree(tmp_path / "work", ignore_errors=True)

    def audited() -> Any:
        copies = read_copies(run_key, RECORDS, log_dirs, "planted", in_sync)
        return judge(sent, copies, in_sync)

    assert audited()[:4] == whole[:4] == (RECORDS, RECORDS, 0, 0)
    assert audited().twice == audited().missing == audited().notes == ()

    # Of partition 0 one replica has lost a batch in the middle.
    follower = in_sync[0][-1]
    log = next((log_dirs[follower] / "planted-0").glob("*.log"))
    data, batches = log.read_bytes(), batches_of(log)
    start, end = batches[len(batches) // 2]
    first, count = HEAD.unpack_from(data, start)[0], _records_in(data, start)
    gone = np.zeros(RECORDS, bool)
    gone[np.arange(first, first + count) * 4] = True  # the record of an offset, in its order
    log.write_bytes(data[:start] + data[end:])
    # Of partition 1 the leader has a batch once more, behind all others.
    leader_log = next((log_dirs[in_sync[1][0]] / "planted-1").glob("*.log"))
    data, batches = leader_log.read_bytes(), batches_of(leader_log)
    start, end = batches[0]
    last = batches[-1][0]
    log_end = HEAD.unpack_from(data, last)[0] + _records_in(data, last)
    again = HEAD.pack(log_end, HEAD.unpack_from(data, start)[1])
    leader_log.write_bytes(data + again + data[start + HEAD.size : end])
    doubled = np.zeros(RECORDS, bool)
    doubled[1 + np.arange(_records_in(data, start)) * 4] = True

    found = audited()
    assert found.missing == stretches(sent.partition, gone)
    assert found.twice == stretches(sent.partition, doubled)
    assert (found.missing_count, found.nowhere_count) == (count, 0)
    assert found.landed_count == RECORDS - count
    assert found.missing == (Stretch(0, first * 4, (first + count - 1) * 4, count),)


def _records_in(data: bytes, pos: int) -> int:
    """How many records a batch has: the last field of its header."""
    return int.from_bytes(data[pos + 57 : pos + 61], "big")
