"""`eoctl serve`: each option does what its words say, and what it prints works as pasted."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from tests import wire
from tests.kafka import client
from tests.kafka.jars import java_command, quick_start
from tests.serving import ROOT, Served
from tests.terminal import on_terminal
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

DEADLINE_S = 60
# Without the time in which nothing is drawn.
AT_ONCE = """
from eoctl import progress
progress.QUIET_SECONDS = progress.EVERY_SECONDS = 0
from eoctl.start import run
run()
"""
METADATA = "__cluster_metadata-0"
# What it loads on its way from the first line of the program to the rows, in this order.
STARTING = (
    "eoctl.main",
    "eoctl.outcome",
    "eoctl.commands.serve",
    "asyncio",
    "eoctl.serve.server",
    "recovery.transactions.view",
)


@pytest.fixture(scope="module")
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


def topics_of(bootstrap: str) -> dict[str, dict[str, Any]]:
    with Wire(bootstrap) as connection:
        topics = connection.ask("Metadata", 12, {"topics": None})["topics"]
    return {each["name"]: each for each in topics}


def rows_of(done: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.text.splitlines()]


# --- what is served


def test_topics_by_pattern(clean: Path) -> None:
    with Served(clean, "--topic", "idem-*", "--topic", "txn") as served:
        names = set(topics_of(served.bootstrap))
        with Wire(served.bootstrap) as connection:
            assert wire.fetch(connection, "plain", 0, 0)["errorCode"] == 3
            assert wire.fetch(connection, "txn", 0, 0)["records"]
    assert "txn" in names
    assert len(names) > 2
    assert all(each == "txn" or each.startswith("idem-") for each in names)


def test_internal_topics_only_if_asked_for(clean: Path) -> None:
    """Groups and transactions are answered in either case; the cluster's own log never is."""
    for options, is_served in ((("--internal",), True), ((), False)):
        with Served(clean, *options) as served, Wire(served.bootstrap) as connection:
            names = set(topics_of(served.bootstrap))
            assert ({"__consumer_offsets", "__transaction_state"} <= names) is is_served
            assert "__cluster_metadata" not in names
            code = wire.fetch(connection, "__consumer_offsets", 0, 0)["errorCode"]
            assert (code == 0) is is_served
            assert wire.fetch(connection, "__cluster_metadata", 0, 0)["errorCode"] == 3
            assert connection.ask("ListGroups", 4, {})["groups"]


@pytest.mark.exhaustive
def test_the_preferred_copy_is_served(diverged: Path) -> None:
    """Up to where all agree: the choice of a copy alone is no reason to serve more."""
    dirs = [diverged / f"broker-{each}" for each in (1, 2, 3)]
    for each in dirs:
        with Served(*dirs, "--prefer", each) as served, Wire(served.bootstrap) as connection:
            batches, _, last = wire.fetch_all(connection, "div", 0)
            ended = served.stop()
        path = str(each / "div-0")
        (row,) = [line for line in ended.stdout.splitlines() if "div-0" in line]
        assert path in row
        assert (last["highWatermark"], batches[-1].header.last_offset) == (36, 35)


def test_topics_that_appear_meanwhile_are_not_served(kafka: Path) -> None:
    """Whoever lists topics, and then asks for each, asks for those that there are: none comes or goes."""
    with Served(kafka, "--follow") as served, Wire(served.bootstrap) as connection:
        before = connection.ask("Metadata", 12, {"topics": None})["topics"]
        shutil.copytree(kafka / "plain-0", kafka / "appeared-0")
        for each in before:
            (again,) = connection.ask("Metadata", 12, {"topics": [{"name": each["name"]}]})[
                "topics"
            ]
            assert again == each
        assert connection.ask("Metadata", 12, {"topics": None})["topics"] == before
        asked = {"topics": [{"name": "appeared"}]}
        assert connection.ask("Metadata", 12, asked)["topics"][0]["errorCode"] == 3
        found: set[str] = set()
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": served.bootstrap, "group.id": "all", "log_level": 0,
        }  # fmt: skip
        reader = Consumer(settings)
        reader.subscribe(["^.*"])
        deadline_s = time.monotonic() + DEADLINE_S
        while found != {each["name"] for each in before}:
            assert time.monotonic() < deadline_s, found
            reader.poll(0.1)
            found = {each.topic for each in reader.assignment()}
        reader.close()
        ended = served.stop()
    assert "appeared" not in ended.stdout + ended.stderr


@pytest.mark.exhaustive
def test_metadata_from_elsewhere(clean: Path, tmp_path: Path) -> None:
    """Topics, their ids, and partitions that are not here are known by them alone."""
    bare = tmp_path / "bare"
    shutil.copytree(clean, bare, ignore=shutil.ignore_patterns(METADATA, "partition.metadata"))
    with Served(bare) as served:
        without = topics_of(served.bootstrap)["txn"]
    shutil.rmtree(bare / "txn-1")
    with Served(bare, "--metadata-dir", clean) as served:
        there = topics_of(served.bootstrap)["txn"]
    with Served(bare, "--metadata-dir", clean / METADATA) as served:
        assert topics_of(served.bootstrap)["txn"] == there
    with Served(clean) as served:
        expected = topics_of(served.bootstrap)["txn"]
    assert without["topicId"] == bytes(16)
    assert there["topicId"] == expected["topicId"] != bytes(16)
    leaders = {each["partitionIndex"]: each["leaderId"] for each in there["partitions"]}
    assert leaders[1] == -1
    assert leaders[0] >= 0


def test_log_dirs_from_the_configuration(clean: Path, tmp_path: Path, eoctl: Eoctl) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={clean}\n")
    done = eoctl("serve", "--server-properties", config, "--for-seconds", 0, "--output", "jsonl")
    assert done.status in (0, 5)
    assert {row["topic"] for row in rows_of(done)[1:]} >= {"txn", "plain"}
    config.write_text("node.id=1\nlog.dirs=/absent\n")
    assert eoctl("serve", "--server-properties", config, "--for-seconds", 0).status == 3


def test_verify_counts_damage_before_anybody_is_given_it(kafka: Path, eoctl: Eoctl) -> None:
    log = kafka / "plain-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[3000] ^= 0x55
    log.write_bytes(data)
    call = ("serve", kafka, "--topic", "plain", "--for-seconds", 0, "--output", "jsonl")
    found = {row["partition"]: row["damaged_places"] for row in rows_of(eoctl(*call))[1:]}
    assert set(found.values()) == {None}
    done = eoctl(*call, "--verify")
    found = {row["partition"]: row["damaged_places"] for row in rows_of(done)[1:]}
    assert found.pop(0) == 1
    assert set(found.values()) == {0}
    assert done.status == 5
    assert "damaged: " in done.errors
    assert "verified: headers and checksums" in done.errors


def test_the_progress_of_verification(clean: Path, tmp_path: Path) -> None:
    shown = on_terminal(
        "serve", clean, "--verify", "--for-seconds", 0, width=120, cwd=tmp_path,
        program=(sys.executable, "-c", AT_ONCE),
    )  # fmt: skip
    assert re.search(r"\rverifying [^\r\n]*%", shown.raw), shown.raw
    last = shown.raw.rindex("\rverifying")
    assert shown.raw.find("bootstrap 127.0.0.1:") > last


# --- how long, where


@pytest.mark.exhaustive
def test_it_ends_by_itself(clean: Path) -> None:
    """With all that it has to say, and while clients are connected."""
    with Served(clean, "--topic", "plain", "--for-seconds", 1) as served:
        with Wire(served.bootstrap) as connection:
            wire.fetch(connection, "plain", 0, 0)
            with pytest.raises((EOFError, ConnectionError)):
                connection.receive()
        ended = served.wait()
    assert ended.status == 0
    lines = ended.stderr.splitlines()
    assert re.search(r"client 127\.0\.0\.1:\d+ \(wire\): 1 request, .* of 1 partition", lines[-2])
    assert re.match(r"served [\d.]+ KiB over 1 connection", lines[-1])


@pytest.mark.share(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["idle", "connected"])
def test_an_interrupt_is_a_clean_end(clean: Path, moment: str, number: signal.Signals) -> None:
    """Ctrl-C, or the `kill` of a service manager: all that it has to say, and commits are kept."""
    with Served(clean) as served:
        held = [Wire(served.bootstrap) for _ in range(5)] if moment == "connected" else []
        for each in held:
            wire.fetch(each, "plain", 0, 0)
        ended = served.stop(number)
        for each in held:
            each.socket.close()
    assert ended.status == 130
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[0].startswith("read it: ")
    assert f"over {len(held)} connection" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_right_after_the_first_line(
    clean: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """It listens by then, and its rows are not all known: what is printed is whole all the same."""
    many = tmp_path / "many"
    shutil.copytree(clean, many)
    for place in range(2, 100):
        shutil.copytree(clean / "plain-0", many / f"plain-{place}")
    with Served(many, "--topic", "plain") as served:
        ended = served.stop(number)
    assert ended.status == 130
    assert "Traceback" not in ended.stderr
    head, *rows = ended.stdout.splitlines()
    assert head.startswith("topic\t")
    assert [int(row.split("\t")[1]) for row in rows] == [*range(100)]
    assert "over 0 connections" in ended.stderr


INTERRUPTED_AT = """
import os, sys
class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == sys.argv[0]:
            sys.argv[0] = "eoctl"
            os.kill(os.getpid(), NUMBER)
sys.meta_path.insert(0, Interrupt)
from eoctl.start import run
sys.argv[0] = MODULE
run()
"""


@pytest.mark.share(4)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", STARTING)
def test_an_interrupt_while_it_starts(clean: Path, module: str, number: signal.Signals) -> None:
    """Whatever it is just about to load: one line, and the same status."""
    code = INTERRUPTED_AT.replace("NUMBER", str(int(number))).replace("MODULE", repr(module))
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", str(clean), "--for-seconds", str(4 * DEADLINE_S)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=2 * DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("eoctl: interrupted")
    assert done.stdout == "" or f"{clean}/txn-1" in done.stdout


def test_an_interrupt_while_it_verifies(tmp_path: Path, clean: Path) -> None:
    """There is no line of where it listens then; it does not go on to the end of the logs."""
    many = tmp_path / "many"
    shutil.copytree(clean, many)
    for number in range(2, 400):
        shutil.copytree(clean / "plain-0", many / f"plain-{number}")
    typed: list[int] = []

    def react(shown: str, terminal: int) -> None:
        if "\rverifying" in shown and not typed:
            typed.append(os.write(terminal, b"\x03"))

    shown = on_terminal(
        "serve", many, "--verify", cwd=tmp_path, program=(sys.executable, "-c", AT_ONCE),
        react=react,
    )  # fmt: skip
    assert typed
    assert shown.status == 130
    assert "Traceback" not in shown.raw


def test_a_second_signal_is_no_other_end(clean: Path) -> None:
    """Nor where an interrupt is ignored, as it is of what a shell has put in the background."""

    def be_in_the_background() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with Served(clean, prepare=be_in_the_background) as served:
        with Wire(served.bootstrap) as connection:
            wire.fetch(connection, "plain", 0, 0)
        for _ in range(3):
            os.kill(served.pid, signal.SIGTERM)
        ended = served.wait()
    assert ended.status == 130
    assert "over 1 connection" in ended.stderr


def test_others_can_reach_it_only_if_that_is_said(clean: Path, eoctl: Eoctl) -> None:
    refused = eoctl("serve", clean, "--listen", "0.0.0.0:0")
    assert refused.status == 4
    call = "--listen 0.0.0.0:0 --allow-remote"
    assert call in refused.errors
    with Served(clean, *call.split()) as served:
        host, _, port = served.bootstrap.rpartition(":")
        assert host == "0.0.0.0"
        with Wire(f"127.0.0.1:{port}") as connection:
            (node,) = connection.ask("Metadata", 9, {"topics": None})["brokers"]
    # Clients are told the address by which they have come.
    assert (node["host"], node["port"]) == ("127.0.0.1", int(port))


# --- groups


def test_commits_are_appended_to_a_file(clean: Path, tmp_path: Path) -> None:
    saved = tmp_path / "commits.jsonl"
    saved.write_text('{"group":"before"}\n')
    with Served(clean, "--offsets-to", saved) as served:
        client.commit_offsets(served.bootstrap, "g", {("plain", 0): 3})
        # They are there at once: nobody knows how it will end.
        rows = [json.loads(line) for line in saved.read_text().splitlines()]
        os.kill(served.pid, signal.SIGKILL)
    assert rows[0] == {"group": "before"}
    assert {"group": "g", "topic": "plain", "partition": 0, "offset": 3}.items() <= rows[1].items()


def test_what_groups_commit_is_nowhere_else(clean: Path) -> None:
    with Served(clean) as served:
        client.commit_offsets(served.bootstrap, "g", {("plain", 0): 3})
        assert client.committed_offset(served.bootstrap, "g", "plain", 0) == 3
    with Served(clean) as served:
        assert client.committed_offset(served.bootstrap, "g", "plain", 0) < 0


# --- following


def set_high_watermark(log_dir: Path, topic: str, partition: int, offset: int) -> None:
    """Write the checkpoint anew, as a broker does."""
    path = log_dir / "replication-offset-checkpoint"
    name = f"{topic} {partition} "
    lines = [
        f"{name}{offset}" if each.startswith(name) else each
        for each in path.read_text().splitlines()
    ]
    new = path.with_suffix(".tmp")
    new.write_text("\n".join(lines) + "\n")
    new.rename(path)


def test_what_is_followed_ends_at_the_checkpoint(killed: Path) -> None:
    """A waiting client is given more as soon as the high watermark moves, and never beyond it."""
    whole = [each.header.last_offset + 1 for each in all_batches(killed, "plain", 0)]
    first, second = whole[1], whole[3]
    set_high_watermark(killed, "plain", 0, first)
    api = wire.api_named("Fetch")
    with Served(killed, "--follow") as served, Wire(served.bootstrap) as connection:
        batches, _, last = wire.fetch_all(connection, "plain", 0)
        assert last["highWatermark"] == first == batches[-1].header.last_offset + 1
        where = {"partition": 0, "fetchOffset": first, "partitionMaxBytes": 1 << 20}
        body = {"maxWaitMs": 1000 * DEADLINE_S, "minBytes": 1, "isolationLevel": 0,
                "topics": [{"topic": "plain", "partitions": [where]}]}  # fmt: skip
        connection.send(wire.encoded(api, 11, body))
        with Wire(served.bootstrap) as other:
            assert wire.list_offset(other, "plain", 0, -1)["offset"] == first
        set_high_watermark(killed, "plain", 0, second)
        answer = wire.decoded(api, 11, connection.receive())["responses"][0]["partitions"][0]
        given = wire.batches_in(answer["records"])
        assert answer["highWatermark"] == second == given[-1].header.last_offset + 1


def all_batches(log_dir: Path, topic: str, partition: int) -> list[wire.Batch]:
    logs = sorted((log_dir / f"{topic}-{partition}").glob("*.log"))
    return [each for log in logs for each in wire.batches_in(log.read_bytes())]


# --- others, and what nobody may see


def test_other_commands_do_not_load_it(clean: Path) -> None:
    """Nor the event loop that it works in: they start as quickly as without it."""
    for call, is_loaded in (
        (("describe", clean), False),
        (("serve", clean, "--for-seconds", 0), True),
    ):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "eoctl", *map(str, call)],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode in (0, 5)
        for module in ("eoctl.serve.server", "asyncio"):
            assert bool(re.search(rf"\| +{module}$", done.stderr, re.MULTILINE)) is is_loaded


def test_passwords_and_tokens_are_nobodys_business(clean: Path) -> None:
    """Of users, the mechanism and the iterations are told, and nothing else is read."""
    with Served(clean, "--internal") as served, Wire(served.bootstrap) as connection:
        users = connection.ask("DescribeUserScramCredentials", 0, {"users": None})
        assert (users["errorCode"], users["results"]) == (0, [])
        tokens = connection.ask("DescribeDelegationToken", 3, {"owners": None})
        assert (tokens["errorCode"], tokens["tokens"]) == (61, [])
        for name in ("SaslHandshake", "SaslAuthenticate"):
            assert connection.ask(name, 1, {"mechanism": "PLAIN"})["errorCode"] != 0


def test_the_name_of_a_client_is_one_line(clean: Path) -> None:
    name = b"\x1b[2J\nclient 127.0.0.1:1 (forged)"
    with Served(clean) as served:
        with Wire(served.bootstrap) as connection:
            connection.send(wire.HEADER.pack(18, 0, 7, len(name)) + name)
            assert connection.receive()
        ended = served.stop()
    assert "(\\x1b[2J\\nclient 127.0.0.1:1 (forged))" in ended.stderr


# --- what it prints


def printed_calls(stderr: str) -> list[list[str]]:
    return [shlex.split(each.partition("read it: ")[2]) for each in stderr.splitlines()
            if "read it: " in each]  # fmt: skip


def records_count(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records a client is given of a topic."""
    isolation = client.READ_UNCOMMITTED
    found = [client.consume(bootstrap, topic, each, isolation=isolation).records
             for each in range(partitions)]  # fmt: skip
    return sum(map(len, found))


@pytest.mark.kcat
def test_the_call_of_kcat_works_as_pasted(clean: Path) -> None:
    with Served(clean, "--topic", "plain") as served:
        kcat, _ = printed_calls(served.first_messages(2))
        assert kcat[0] == "kcat"
        done = subprocess.run(
            [*kcat, "-f", "%o\n"], capture_output=True, check=True, timeout=DEADLINE_S
        )
        assert len(done.stdout.split()) == records_count(served.bootstrap, "plain", 2) > 100


@pytest.mark.broker
@pytest.mark.exhaustive
def test_the_call_of_the_console_consumer_works_as_pasted(clean: Path) -> None:
    """The script is a shell around this class; as it is, it waits for more at the end."""
    with Served(clean, "--topic", "plain") as served:
        _, console = printed_calls(served.first_messages(2))
        assert console[0] == "kafka-console-consumer.sh"
        count = records_count(served.bootstrap, "plain", 2)
        done = subprocess.run(
            java_command(
                *quick_start(), "org.apache.kafka.tools.consumer.ConsoleConsumer", *console[1:],
                "--max-messages", str(count),
            ),
            capture_output=True, check=False, timeout=4 * DEADLINE_S,
        )  # fmt: skip
        ended = served.stop()
    assert f"Processed a total of {count} messages".encode() in done.stderr, done.stderr
    assert re.search(r"\(console-consumer[^)]*\): \d+ requests", ended.stderr)
