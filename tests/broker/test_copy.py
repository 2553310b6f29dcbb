"""`eoctl copy` from and into directories of real brokers: what their clients are given."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.test_consume import names_in, produce_transactions
from tests.copying import require_sequences
from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.equal_dumps import require_equal_dumps

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.fresh import FreshLogDir
    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
INDEX_MAX = ("--index-max-bytes", 16_384)  # what the harness gives its brokers
KEPT = {"retention.ms": "-1"}


def without_places(records: list[client.Incoming]) -> list[tuple[Any, ...]]:
    return [tuple(each)[1:] for each in records]


def make_target(root: Path, topics: dict[str, int]) -> Path:
    """The log dir of a broker that has made some topics, and was stopped."""
    with Broker(root) as broker:
        client.create_topics(
            broker.bootstrap, {name: (count, KEPT) for name, count in topics.items()}
        )
    return root


def report(outcome: Outcome) -> dict[str, Any]:
    assert outcome.status == 0, outcome.errors
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    (found,) = [each for each in rows if each["kind"] == "copy"]
    return dict(found)


def require_loaded(broker: Broker, names: list[str]) -> None:
    """The broker has loaded the logs without a complaint."""
    for name in names:
        said = "\n".join(broker.log_lines(name))
        assert "Completed load of Log" in said, name
        assert not re.search(r"ERROR|WARN|Truncating|orrupt|Exception|[Ss]tray", said), said


@pytest.mark.exhaustive
def test_a_broker_takes_the_copies_over(
    fresh_log_dir: FreshLogDir, tmp_path: Path, eoctl: Eoctl
) -> None:
    """All partitions of a cluster into another one: its client is given what the first one was."""
    names = names_in(fresh_log_dir.clean)
    topics: dict[str, int] = {}
    for name in names:
        topic, _, number = name.rpartition("-")
        topics[topic] = max(topics.get(topic, 0), int(number) + 1)
    target = make_target(tmp_path / "target", topics)
    for name in names:
        found = report(
            eoctl("copy", fresh_log_dir.clean / name, target / name, "--apply", *INDEX_MAX,
                  "--output", "jsonl")
        )  # fmt: skip
        assert found["compared"] == "equal"
        require_sequences(target / name)
    assert eoctl("check", target, "--fail-on", "warning").status == 0
    require_equal_dumps([target / name for name in names], eoctl)
    source = copy_log_dir(fresh_log_dir.clean, tmp_path / "source")
    with Broker(source) as first, Broker(target) as second:
        for name in names:
            topic, _, text = name.rpartition("-")
            number = int(text)
            given, copied = (
                client.consume(each.bootstrap, topic, number, isolation=isolation).records
                for each, isolation in (
                    (first, client.READ_COMMITTED),
                    (second, client.READ_UNCOMMITTED),
                )
            )
            assert without_places(copied) == without_places(given), name
            assert [each.offset for each in copied] == list(range(len(given))), name
            sent = [client.Outgoing(topic, number, b"key", b"more")]
            where = client.send(client.producer(second.bootstrap, enable_idempotence=True), sent)
            assert where == [(topic, number, len(given))]
        second.stop()
        require_loaded(second, names)


@pytest.mark.exhaustive
def test_a_source_that_a_broker_is_writing(tmp_path: Path, eoctl: Eoctl) -> None:
    """Followed, interrupted, gone on with; then the broker of the copy, and on behind it."""
    target = make_target(tmp_path / "target", {"copy": 1})
    log_dir = tmp_path / "source"
    call = ["copy", str(log_dir / "live-0"), str(target / "copy-0"), "--apply", "--output",
            "jsonl", *map(str, INDEX_MAX)]  # fmt: skip
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {"live": (1, {"segment.bytes": "1048576"})})

        def given() -> list[client.Incoming]:
            isolation = client.READ_COMMITTED
            return client.consume(broker.bootstrap, "live", 0, isolation=isolation).records

        with subprocess.Popen(
            [sys.executable, "-m", "eoctl", *call, "--follow"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        ) as follower:  # fmt: skip
            try:
                produce_transactions(broker.bootstrap)
                count = len(given())
                wait_for_records(eoctl, target / "copy-0", count)
            finally:
                follower.send_signal(signal.SIGINT)
                try:
                    stdout, errors = follower.communicate(timeout=TIMEOUT_S)
                except subprocess.TimeoutExpired:  # where SIGINT is ignored, it would never end
                    follower.kill()
                    raise
        assert follower.returncode == 130, errors
        row = json.loads(stdout.splitlines()[0])
        assert (row["records"], row["compared"]) == (count, None)
        assert row["aborted_records"] > 0
        assert f"in use by process {broker.pid}" in errors.decode()
        produce_transactions(broker.bootstrap)
        found = report(eoctl(*call))
        assert (found["base_offset"], found["producer_epoch"]) == (count, 1)
        assert found["compared"] == "equal"
        expected = given()
    with Broker(target) as broker:
        copied = client.consume(broker.bootstrap, "copy", 0, isolation=client.READ_COMMITTED)
        assert without_places(copied.records) == without_places(expected)
        sent = [client.Outgoing("copy", 0, None, b"beside")]
        client.send(client.producer(broker.bootstrap), sent)
        broker.stop()
        require_loaded(broker, ["copy-0"])
    found = report(eoctl(*call, "--compare", "all"))
    assert (found["records"], found["compared_records"]) == (0, len(expected))


def wait_for_records(eoctl: Eoctl, partition: Path, count: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        outcome = eoctl("consume", partition, "--output", "jsonl")
        if outcome.stdout.count(b"\n") >= count:
            return
        time.sleep(0.2)
    raise AssertionError(f"{partition}: not {count} records in time")
