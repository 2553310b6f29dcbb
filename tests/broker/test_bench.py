"""eoctl bench with real brokers: a kill, an interrupt, a driver that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from eoctl.bench import tables
from eoctl.bench.brokers import BrokerOptions, RealBrokers
from eoctl.bench.course import BenchCourse, CourseOptions
from eoctl.bench.load import ACKNOWLEDGED, LoadOptions
from eoctl.bench.programs import find_kafka
from eoctl.bench.scenarios import ACKS_ALL, RETRIES_MAX, BrokerFault, Cell
from eoctl.bench.work_dir import Started, is_running, work_dir
from tests.kafka import jars

if TYPE_CHECKING:
    from collections.abc import Callable
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
        course = BenchCourse(cluster, [plain, txn], CourseOptions(1, False, 0.05, load), print)
        killed, committed = course.runs()
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
