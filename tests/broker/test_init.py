"""What `eoctl init` makes, under a real broker: it starts, has the topics, and what was written."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.kafka import client, jars
from tests.kafka.broker import Broker
from tests.kafka.jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

# What makes a broker of today behave as one that was formatted by an older one.
RELEASES = ("3.7", "3.9", "4.0", "4.3", "4.4")
QUIET = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


def run_tool(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        java_command(*quick_start(), *QUIET, tool, *arguments),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require_known(release: str) -> None:
    """Leave a case out whose release is newer than the jars."""
    if tuple(map(int, release.split("."))) > tuple(map(int, jars.release().split("."))):
        pytest.skip(f"the jars are of Kafka {jars.release()}")


def beginning_of(eoctl: Callable[..., Outcome], log_dir: Path) -> list[str]:
    """The records that a controller begins with, their times and ids left out."""
    found = []
    for path in sorted(log_dir.rglob("*.checkpoint")):
        dumped = eoctl("dump-segment", path, "--cluster-metadata-decoder")
        assert dumped.status == 0, dumped.errors
        lines = [each for each in dumped.text.splitlines() if each.startswith("| ")]
        found.append(str(path.relative_to(log_dir)))
        found += [
            re.sub(r'(CreateTime: |Timestamp":)\d+|voterDirectoryId":"[^"]+', "", each)
            for each in lines
            if not re.search("(TOPIC|PARTITION|CONFIG)_RECORD", each)
        ]
    return found


@pytest.mark.share(1)
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_it_begins_like_a_formatted_log_dir(
    release: str, eoctl: Callable[..., Outcome], tmp_path: Path, *, is_dynamic: bool
) -> None:
    require_known(release)
    if is_dynamic and release not in (jars.release(), "4.4"):
        pytest.skip("a tool writes what its own release begins with")
    made, formatted = tmp_path / "made", tmp_path / "formatted"
    voter = "127.0.0.1:19093"
    more = ("--standalone", f"CONTROLLER://{voter}") if is_dynamic else ()
    only = ("--no-internal-topics", "--broker-version", release)
    assert eoctl("init", made, *only, *more, "--apply").status == 0
    properties = tmp_path / "server.properties"
    quorum = "bootstrap.servers=" if is_dynamic else "voters=1@"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.{quorum}{voter}\nlisteners=CONTROLLER://{voter},"
        f"PLAINTEXT://127.0.0.1:2\nlog.dirs={formatted}\n"
    )
    run_tool(
        "kafka.tools.StorageTool", "format", "-t", "abcdefghijklmnopqrstuv", "-c", str(properties),
        "--release-version", release, *(["--standalone"] if is_dynamic else []),
    )  # fmt: skip
    ours, theirs = (beginning_of(eoctl, each) for each in (made, formatted))
    if jars.release() == release:
        assert ours == theirs
    # A tool puts what is for an older release where it looks itself.
    assert (
        [each for each in ours if each.startswith("|")]
        == [each for each in theirs if each.startswith("|")]
        != []
    )
    ours, theirs = (
        {line.partition("=")[0] for line in (each / "meta.properties").read_text().splitlines()}
        for each in (made, formatted)
    )
    assert ours == {name for name in theirs if not name.startswith("#")}


@pytest.mark.share(1)
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_it(release: str, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    require_known(release)
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
