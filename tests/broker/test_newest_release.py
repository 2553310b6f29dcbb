"""Kafka 4.4.0 over what we read and write of it: real brokers and tools of that release."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.bench.brokers import choose_ports
from tests.changes import rows_of
from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.capture.newest import GHOST, DynamicBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Golden = Callable[[str], Path]

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]
QUIET = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def tool(name: str, *arguments: str) -> str:
    from tests.kafka.jars import java_command

    done = subprocess.run(
        java_command(*QUIET, f"org.apache.kafka.tools.{name}", *arguments),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class FixedPorts(DynamicBroker):
    """A broker that listens where the voters' record says."""

    ports: tuple[int, int]

    def _choose_ports(self) -> tuple[int, int]:
        return self.ports


@pytest.mark.usefixtures("jars_of_4_4")
def test_states_of_groups(golden: Golden, eoctl: Cli, tmp_path: Path) -> None:
    """What `groups` says of a broker that was killed is what one says that starts there."""
    log_dirs = [
        copy_log_dir(golden("kafka-4.4.0") / "killed" / each, tmp_path / each)
        for each in ("one", "two")
    ]
    ours = {
        row["group"]: row
        for row in rows_of(eoctl("groups", "list", *log_dirs, "--output", "jsonl"), "group")
    }
    with DynamicBroker(log_dirs, overrides=SETTINGS) as broker:
        listed = tool("GroupsCommand", "--bootstrap-server", broker.bootstrap, "--list")
        kinds = dict(re.findall(r"^(\S+) +(Classic|Consumer|Share|Streams) ", listed, re.MULTILINE))
        states = tool(
            "streams.StreamsGroupCommand", "--bootstrap-server", broker.bootstrap, "--describe",
            "--all-groups", "--state",
        )  # fmt: skip
        streams = dict(re.findall(r"^(\S+) +\S+ \(1\) +\S+ +(\S+) +\d+", states, re.MULTILINE))
        broker.kill()
    assert {name: row["type"] for name, row in ours.items()} == kinds
    assert streams == {name: row["state"] for name, row in ours.items() if row["type"] == "Streams"}
    assert len(streams) == 2


@pytest.mark.usefixtures("jars_of_4_4")
def test_a_dynamic_quorum_that_init_made(eoctl: Cli, tmp_path: Path) -> None:
    log_dir = tmp_path / "made"
    FixedPorts.ports = (ports := choose_ports(2, None))[0], ports[1]
    made = eoctl(
        "init", log_dir, "--topic", "t:2", "--standalone", f"CONTROLLER://127.0.0.1:{ports[1]}",
        "--apply",
    )  # fmt: skip
    assert made.status == 0, made.errors
    values = tmp_path / "values"
    values.write_bytes(b"a\nb\n")
    assert eoctl("produce", log_dir / "t-0", values, "--apply").status == 0
    with FixedPorts(log_dir) as broker:
        read = client.consume(broker.bootstrap, "t", 0, isolation="read_committed")
        assert [each.value for each in read.records] == [b"a", b"b"]
        quorum = tool(
            "MetadataQuorumCommand", "--bootstrap-server", broker.bootstrap, "describe", "--status"
        )
        assert '"id": 1, "directoryId"' in quorum
    checked = eoctl("check", log_dir)
    assert checked.status == 0, checked.text
    assert "0 errors, 0 warnings, 0 notes" in checked.errors


@pytest.mark.usefixtures("jars_of_4_4")
@pytest.mark.parametrize(
    ("state", "is_dynamic"), [("killed", False), ("clean", False), ("killed", True)]
)
def test_adopted(
    golden: Golden, eoctl: Cli, tmp_path: Path, state: str, *, is_dynamic: bool
) -> None:
    """All that was there is there in the new cluster: lists of access with ranges, users, groups."""
    dead = [
        copy_log_dir(golden("kafka-4.4.0") / state / each, tmp_path / each)
        for each in ("one", "two")
    ]
    new = tmp_path / "new"
    FixedPorts.ports = (ports := choose_ports(2, None))[0], ports[1]
    quorum = ("--standalone", f"CONTROLLER://127.0.0.1:{ports[1]}") if is_dynamic else ()
    done = eoctl("adopt", *dead, "--to", new, *quorum, "--apply", "--output", "jsonl")
    assert done.status == 0, done.errors
    with (FixedPorts if is_dynamic else Broker)(new, overrides=SETTINGS) as broker:
        for row in rows_of(done, "adopted"):
            found = client.consume(
                broker.bootstrap, row["topic"], row["partition"], isolation=client.READ_UNCOMMITTED
            )
            assert found.end_offset == row["log_end_offset"], row
        features = tool("FeatureCommand", "--bootstrap-server", broker.bootstrap, "describe")
        assert re.search(r"metadata.version.*FinalizedVersionLevel: 4.4-IV2", features)
    shutil.rmtree(new)


@pytest.mark.usefixtures("jars_of_4_4")
@pytest.mark.parametrize("state", ["killed", "clean"])
def test_a_start_is_as_predicted(golden: Golden, eoctl: Cli, tmp_path: Path, state: str) -> None:
    log_dirs = [
        copy_log_dir(golden("kafka-4.4.0") / state / each, tmp_path / each)
        for each in ("one", "two")
    ]
    rows = [
        json.loads(each)
        for each in eoctl("check", *log_dirs, "--output", "jsonl").text.splitlines()
    ]
    ends = {
        (row["topic"], row["partition"]): row["start_end_offset"]
        for row in rows
        if row.get("kind") == "partition" and row["topic"] != "__cluster_metadata"
    }
    with DynamicBroker(log_dirs, overrides=SETTINGS) as broker:
        for (topic, number), end in ends.items():
            if not topic.startswith("__"):
                found = client.consume(
                    broker.bootstrap, topic, number, isolation=client.READ_UNCOMMITTED
                )
                assert found.end_offset == end, (topic, number)
        assert not broker.error_lines()
        broker.kill()
    assert len(ends) == 19
    assert GHOST == 9
