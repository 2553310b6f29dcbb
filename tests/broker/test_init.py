"""What `eoctl init` makes, under a real broker: it starts, has the topics, and what was written."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

# What makes a broker of today behave as one that was formatted by an older one.
RELEASES = ("3.7", "3.9", "4.0", "4.3")
QUIET = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


def run_tool(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        java_command(*quick_start(), *QUIET, tool, *arguments),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def features_of(eoctl: Callable[..., Outcome], log_dir: Path) -> list[str]:
    dumped = eoctl("dump-segment", log_dir / "bootstrap.checkpoint", "--cluster-metadata-decoder")
    assert dumped.status == 0, dumped.errors
    return re.findall(r'"type":"FEATURE_LEVEL_RECORD","version":0,"data":(\{.*?\})', dumped.text)


@pytest.mark.share(1)
@pytest.mark.parametrize("release", RELEASES)
def test_its_features_are_those_of_a_formatted_log_dir(
    release: str, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    made, formatted = tmp_path / "made", tmp_path / "formatted"
    assert eoctl("init", made, "--broker-version", release, "--apply").status == 0
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@127.0.0.1:1\nlisteners=CONTROLLER://127.0.0.1:1,"
        f"PLAINTEXT://127.0.0.1:2\nlog.dirs={formatted}\n"
    )
    run_tool(
        "kafka.tools.StorageTool", "format", "-t", "abcdefghijklmnopqrstuv", "-c", str(properties),
        "--release-version", release,
    )  # fmt: skip
    assert features_of(eoctl, made) == features_of(eoctl, formatted) != []
    ours, theirs = (
        {line.partition("=")[0] for line in (each / "meta.properties").read_text().splitlines()}
        for each in (made, formatted)
    )
    assert ours == {name for name in theirs if not name.startswith("#")}


@pytest.mark.share(1)
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_it(release: str, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    require_served(release, eoctl, tmp_path)


def require_served(release: str, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    """Topics, settings and what was written without any option, before the first start."""
    log_dir = tmp_path / "kafka"
    made = eoctl(
        "init", log_dir, "--topic", "orders:3", "--topic", "kept", "--topic", "piped", "--config",
        "orders:retention.ms=-1", "--config", "kept:cleanup.policy=compact", "--broker-version",
        release, "--node-id", "7", "--apply", "--output", "jsonl",
    )  # fmt: skip
    assert made.status == 0, made.errors
    ids = {row["topic"]: row["topic_id"] for row in map(json.loads, made.text.splitlines())}
    values = [b"%d" % number for number in range(300)]
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(value + b"\n" for value in values))
    for call in (
        ("produce", log_dir / "orders-0", lines, "--apply"),
        ("produce", log_dir / "orders-1", lines, "--transactional-id", "writer", "--apply"),
        ("copy", log_dir / "orders-0", log_dir / "orders-2", "--apply"),
        ("lease-pid", "acquire", log_dir, "--app-id", "app", "--expiry-ms", "600000"),
        (
            "txn", "run", log_dir / "orders-0", "--to", log_dir / "piped-0", "--exec", "cat",
            "--transactional-id", "job", "--group", "job", "--apply",
        ),
    ):  # fmt: skip
        done = eoctl(*call)
        assert done.status == 0, (call, done.errors)
    with Broker(log_dir) as broker:
        for name, number in (("orders", 0), ("orders", 1), ("orders", 2), ("piped", 0)):
            read = client.consume(broker.bootstrap, name, number, isolation="read_committed")
            assert [each.value for each in read.records] == values, (name, number)
        assert client.committed_offset(broker.bootstrap, "job", "orders", 0) == len(values)
        described = run_tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap,
            "--describe",
        )  # fmt: skip
        found = {
            match["topic"]: match.groupdict()
            for match in re.finditer(
                r"Topic: (?P<topic>\S+)\tTopicId: (?P<id>\S+)\tPartitionCount: (?P<count>\d+)\t"
                r"ReplicationFactor: (?P<factor>\d+)\tConfigs: (?P<configs>\S*)",
                described,
            )
        }
        assert {name: each["id"] for name, each in found.items()} == ids
        assert found["orders"]["count"] == "3"
        assert {each["factor"] for each in found.values()} == {"1"}
        assert "retention.ms=-1" in found["orders"]["configs"]
        assert "cleanup.policy=compact" in found["kept"]["configs"]
        writer = client.transactional_producer(broker.bootstrap, "writer")
        client.transact(writer, [client.Outgoing("orders", 1, None, b"after")], commit=True)
        [(_, _, offset)] = client.send(
            client.producer(broker.bootstrap), [client.Outgoing("kept", 0, b"k", b"v")]
        )
        assert offset == 0
    assert not [each.name for each in log_dir.iterdir() if each.name.endswith("-stray")]
    assert eoctl("check", log_dir).status == 0
