"""`eoctl consume` of a directory that a broker has made in this run, beside a real client."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka import client
from tests.kafka.broker import KEPT, Broker
from tests.kafka.jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.fresh import FreshLogDir
    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
ISOLATIONS = (client.READ_UNCOMMITTED, client.READ_COMMITTED)
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def served(
    fresh_log_dir: FreshLogDir, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker over a copy of the clean state, which stays as it is however long that takes."""
    copy = tmp_path_factory.mktemp("served") / "log-dir"
    shutil.copytree(fresh_log_dir.clean, copy)
    # No log is dirtier than that: else `compacted` would be cleaned while it is compared.
    with Broker(copy, overrides={**KEPT, "log.cleaner.min.cleanable.ratio": "1"}) as broker:
        yield broker


def names_in(log_dir: Path) -> list[str]:
    return sorted(
        each.name for each in log_dir.iterdir()
        if each.is_dir() and not each.name.startswith("__") and not each.name.endswith("-delete")
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_it_is_what_the_client_is_given(
    isolation: str, fresh_log_dir: FreshLogDir, served: Broker, eoctl: Eoctl
) -> None:
    """Every partition, bytes and headers and times included; and how far it goes."""
    aborted = 0
    for name in names_in(fresh_log_dir.clean):
        topic, _, number = name.rpartition("-")
        expected = client.consume(served.bootstrap, topic, int(number), isolation=isolation)
        call = ("consume", fresh_log_dir.clean / name, "--isolation", isolation)
        outcome = eoctl(*call, "--output", "jsonl", "--bytes", "base64")
        assert outcome.status == 0, outcome.errors
        found = [client.from_json(line) for line in outcome.stdout.split(b"\n")[:-1]]
        assert found == expected.records, name
        assert f"next offset {expected.end_offset};" in outcome.errors, name
        if isolation == client.READ_COMMITTED:
            from_index = eoctl(*call, "--aborted-from", "txnindex", "--output", "jsonl")
            assert [json.loads(line)["offset"] for line in from_index.stdout.splitlines()] == [
                each.offset for each in found
            ], name
            everything = eoctl("consume", fresh_log_dir.clean / name, "--until", "lso")
            given = re.search(r"(?m)^(\d+) records?[,;] ", everything.errors)
            assert given, everything.errors
            aborted += int(given[1]) > len(found)
    assert aborted or isolation == client.READ_UNCOMMITTED


CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRINTED = ("timestamp", "partition", "offset", "headers", "key")


@pytest.mark.exhaustive
@pytest.mark.parametrize("topic", ["plain", "append-time", "codec-zstd"])
def test_text_is_that_of_the_console_consumer(
    topic: str, fresh_log_dir: FreshLogDir, served: Broker, eoctl: Eoctl
) -> None:
    """That there are no more records than these is seen by the test above."""
    records = eoctl("consume", fresh_log_dir.clean / f"{topic}-0", "--output", "jsonl")
    count = len(records.stdout.splitlines())
    for printed in ((), PRINTED):
        options = [f"--print-{each}" for each in printed]
        separator = "|" if printed else "\t"
        ours = eoctl(
            "consume", fresh_log_dir.clean / f"{topic}-0", *options, "--key-separator", separator
        )
        properties = [f"print.{each}=true" for each in printed] + [f"key.separator={separator}"]
        theirs = subprocess.run(
            java_command(
                *quick_start(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", CONSOLE,
                "--bootstrap-server", served.bootstrap, "--topic", topic, "--partition", "0",
                "--offset", "earliest", "--max-messages", str(count), "--timeout-ms", "50000",
                *(part for each in properties for part in ("--formatter-property", each)),
            ),
            capture_output=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert ours.stdout
        assert ours.stdout == theirs.stdout


@pytest.mark.exhaustive
def test_a_running_broker_is_followed(tmp_path: Path) -> None:
    """Records come when their transaction is committed; the client is given the same."""
    log_dir = tmp_path / "log-dir"
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {"live": (1, {"segment.bytes": "1048576"})})
        with subprocess.Popen(
            [sys.executable, "-m", "eoctl", "consume", str(log_dir / "live-0"), "--follow",
             "--isolation", "read_committed", "--output", "jsonl", "--bytes", "base64"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        ) as follower:  # fmt: skip
            try:
                produce_transactions(broker.bootstrap)
                expected = client.consume(
                    broker.bootstrap, "live", 0, isolation=client.READ_COMMITTED
                ).records
                lines = read_lines(follower, len(expected))
            finally:
                follower.send_signal(signal.SIGINT)
                try:
                    _, errors = follower.communicate(timeout=TIMEOUT_S)
                except subprocess.TimeoutExpired:  # where SIGINT is ignored, it would never end
                    follower.kill()
                    raise
        assert [client.from_json(line) for line in lines] == expected
        assert follower.returncode == 130
        assert f"in use by process {broker.pid}" in errors.decode()
        assert len(list((log_dir / "live-0").glob("*.log"))) > 1


def produce_transactions(bootstrap: str) -> None:
    senders = [client.transactional_producer(bootstrap, f"tid-{n}") for n in range(2)]
    value = b"x" * 3000
    for place in range(12):
        records = [client.Outgoing("live", 0, b"%d" % place, value) for _ in range(60)]
        client.transact(senders[place % 2], records, commit=place % 3 != 1)
        time.sleep(0.05)
    plain = client.producer(bootstrap)
    client.send(plain, [client.Outgoing("live", 0, None, None, (("h", b"v"),))])


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    stdout: Any = process.stdout
    os.set_blocking(stdout.fileno(), False)
    data = b""
    deadline_s = time.monotonic() + TIMEOUT_S
    while data.count(b"\n") < count and time.monotonic() < deadline_s:
        data += stdout.read() or b""
        time.sleep(0.05)
    time.sleep(0.5)  # nothing more comes
    data += stdout.read() or b""
    return data.splitlines()
