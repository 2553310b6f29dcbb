"""`eoctl metadata` against what real brokers answered at that offset of the metadata."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from eoctl.lab.environment.settings import CONTROLLER_ID
from tests.changes import rows_of
from tests.kafka import jars
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.cluster import Cluster
from tests.kafka.jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

WAIT_S = 60.0
QUIET = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = jars.config_command()
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

# Whose setting it is, in Kafka's words and in ours. Those of a server.properties are in no metadata.
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all-brokers",
    "DEFAULT_CONFIG": "default",
}
TOPIC_LINE = re.compile(r"Topic: (\S+)\tTopicId: (\S+)\tPartitionCount: \d+\t.*?\tConfigs: (\S*)")
PARTITION_LINE = re.compile(
    r"\tTopic: (\S+)\tPartition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S*)\s+Isr: ?(\S*)"
    r"\s+Elr: ?(\S*)\s+LastKnownElr: ?(\S*)"
)
SETTING_LINE = re.compile(r"^  (\S+?)=(.*) sensitive=\w+ synonyms=\{(.*)\}$")


class Reported(NamedTuple):
    """What the brokers answered after a step, and the metadata's end when they did."""

    step: str
    end_offset: int
    partitions: dict[tuple[str, int], tuple[Any, ...]]
    brokers: set[int]
    settings: dict[str, dict[str, tuple[str, str]]]


def run_tool(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        java_command(*quick_start(), *QUIET, tool, *arguments),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each and each != "N/A")


def partitions_reported(described: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Of each partition leader, replicas, ISR, ELR and last known ELR, as kafka-topics has them."""
    found = {}
    for line in described.splitlines():
        match = PARTITION_LINE.match(line)
        assert match or not line.startswith("\t"), line
        if match:
            topic, number, leader, replicas, *rest = match.groups()
            isr, elr, last = (frozenset(ids(each)) for each in rest)
            led_by = -1 if leader == "none" else int(leader)
            found[topic, int(number)] = (led_by, ids(replicas), isr, elr, last)
    return found


def partitions_said(done: Outcome) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {
        (row["topic"], row["partition"]): (
            row["leader"],
            tuple(row["replicas"]),
            *(frozenset(row[each]) for each in ("isr", "elr", "last_known_elr")),
        )
        for row in rows_of(done, "cluster_partition")
    }


def set_now(
    admin: AdminClient, kind: ResourceType, resource: str, settings: dict[str, str]
) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    asked = ConfigResource(kind, resource, incremental_configs=entries)
    for future in admin.incremental_alter_configs([asked]).values():
        future.result(WAIT_S)


def set_for_all_brokers(bootstrap: str) -> None:
    """By the tool: the client has no name for all brokers."""
    run_tool(
        CONFIGS, "--bootstrap-server", bootstrap, "--alter", "--entity-type", "brokers",
        "--entity-default", "--add-config", "log.retention.ms=3600000,message.max.bytes=1234567",
    )  # fmt: skip


def end_of(eoctl: Callable[..., Outcome], log_dir: Path) -> int:
    (row,) = rows_of(eoctl("metadata", log_dir, "--output", "jsonl"), "cluster")
    found: int = row["end_offset"]
    return found


def settings_listed(listed: str) -> dict[str, tuple[str, str]]:
    """What kafka-configs --describe --all prints of one resource: value and source by name."""
    found = {}
    for line in listed.splitlines():
        if match := SETTING_LINE.match(line):
            name, value, synonyms = match.groups()
            source, _, rest = synonyms.partition(":")
            assert not source or rest
            found[name] = (value, source or "DEFAULT_CONFIG")
    assert found, listed
    return found


def test_a_node_over_a_golden_directory(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """kafka-topics and kafka-configs, before and after settings are changed."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "log-dir")
    with Broker(log_dir) as broker:
        server = ("--bootstrap-server", broker.bootstrap)
        names = [*partitions_reported(run_tool(TOPICS, *server, "--describe"))]
        topic = next(name for name, _ in names if not name.startswith("__"))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        set_now(
            admin, ResourceType.TOPIC, topic,
            {"retention.ms": "123456", "cleanup.policy": "compact,delete"},
        )  # fmt: skip
        set_for_all_brokers(broker.bootstrap)
        set_now(admin, ResourceType.BROKER, str(broker_id(log_dir)), {"log.cleaner.threads": "2"})
        described = run_tool(TOPICS, *server, "--describe")
        topics = run_tool(CONFIGS, *server, "--describe", "--all", "--entity-type", "topics")
        own = run_tool(
            CONFIGS, *server, "--describe", "--entity-type", "brokers", "--entity-name",
            str(broker_id(log_dir)),
        )  # fmt: skip
        at = end_of(eoctl, log_dir) - 1
    done = eoctl("metadata", log_dir, "--at", at, "--settings", "--output", "jsonl")
    assert done.status == 0, done.errors
    assert partitions_said(done) == partitions_reported(described) != {}
    lines = {match[1]: match for match in map(TOPIC_LINE.match, described.splitlines()) if match}
    assert {row["topic"]: row["topic_id"] for row in rows_of(done, "cluster_partition")} == {
        name: match[2] for name, match in lines.items()
    }
    rows = rows_of(done, "setting")
    parts = re.split(r"^All configs for topic (\S+) are:$", topics, flags=re.MULTILINE)
    assert {*parts[1::2]} == {*lines}
    for name, listed in zip(parts[1::2], parts[2::2], strict=True):
        assert_settings(
            {each["setting"]: each for each in rows if each["resource_name"] == name},
            settings_listed(listed),
        )
    of_brokers = {
        (row["resource"], row["resource_name"], row["setting"]): row["value"]
        for row in rows
        if row["resource"] != "topic"
    }
    assert of_brokers == {
        ("broker", "all", "log.retention.ms"): "3600000",
        ("broker", "all", "message.max.bytes"): "1234567",
        # Kafka itself, once the cluster keeps eligible leader replicas.
        ("broker", "all", "min.insync.replicas"): "1",
        ("broker", str(broker_id(log_dir)), "log.cleaner.threads"): "2",
    }
    assert "log.cleaner.threads=2" in own


def broker_id(log_dir: Path) -> int:
    match = re.search(r"^node\.id=(\d+)$", (log_dir / "meta.properties").read_text(), re.MULTILINE)
    assert match
    return int(match[1])


def assert_settings(said: dict[str, dict[str, Any]], reported: dict[str, tuple[str, str]]) -> None:
    """The same settings, values and sources; a server.properties is not known to the metadata."""
    assert {*said} == {*reported}
    for name, (value, source) in reported.items():
        row = said[name]
        if source == "STATIC_BROKER_CONFIG":
            assert row["source"] == "default", row
            continue
        assert (row["value"], row["source"]) == (value, SOURCES[source]), row


# Why partitions changed, up to each step. 1 leads t-1, 0 leads the others but moved.
UNDER = {"ISR shrink", "ELR"}
WHYS = {
    "created": {each: {"created"} for each in ("t-0", "t-1", "u-0", "moved-0", "gone-0")},
    "set, added, moved, deleted": {
        "t-2": {"created"},
        "moved-0": {"reassignment", "epoch bump", "ISR expand", "ISR shrink", "reassigned"},
        "gone-0": {"deleted"},
    },
    "1 is dead": {
        **{each: {"ISR shrink"} for each in ("t-0", "t-2", "u-0", "moved-0")},
        "t-1": {"election", "ISR shrink"},
    },
    "0 is dead": {
        "t-0": {"election"} | UNDER, "t-1": UNDER, "t-2": UNDER, "u-0": {"no leader"} | UNDER,
    },
    "1 is back, behind in u": {
        **{each: {"ISR expand", "ELR"} for each in ("t-0", "t-1", "t-2")},
        "moved-0": {"ISR expand"},
    },
    "forced": {"u-0": {"unclean election", "ISR expand", "ELR"}},
    "allowed": {
        **{each: {"ISR expand"} | UNDER for each in ("t-0", "t-1", "t-2")},
        "moved-0": {"ISR shrink"},
        "u-0": {"ISR expand", "recovered", "no leader", "unclean election"} | UNDER,
    },
    "2 was stopped": {
        **{
            each: {"ISR expand", "election", "ISR shrink"}
            for each in ("t-0", "t-1", "t-2", "moved-0")
        },
        "u-0": {"ISR expand", "recovered"},
    },
}  # fmt: skip


def observe(cluster: Cluster, step: str, eoctl: Callable[..., Outcome]) -> Reported:
    """Ask until two answers in a row are the same, with nothing between that changed."""
    admin = cluster.admin()
    server = ("--bootstrap-server", cluster.bootstrap)
    deadline_s = time.monotonic() + WAIT_S
    before: Any = None
    while True:
        end_offset = end_of(eoctl, cluster.log_dir(CONTROLLER_ID))
        partitions = partitions_reported(run_tool(TOPICS, *server, "--describe"))
        brokers = {each.id for each in admin.describe_cluster().result(WAIT_S).nodes}
        settings = settings_reported(admin, {name for name, _ in partitions})
        if before == (partitions, brokers, settings):
            return Reported(step, end_offset, partitions, brokers, settings)
        assert time.monotonic() < deadline_s, (step, before, partitions, brokers)
        before = (partitions, brokers, settings)


def settings_reported(
    admin: AdminClient, topics: Iterable[str]
) -> dict[str, dict[str, tuple[str, str]]]:
    """Of each topic the settings in force as a client is told: value and source by name."""
    asked = [ConfigResource(ResourceType.TOPIC, each) for each in topics]
    return {
        resource.name: {
            name: (entry.value, ConfigSource(entry.source).name)
            for name, entry in future.result(WAIT_S).items()
        }
        for resource, future in admin.describe_configs(asked).items()
    }


def reassign(cluster: Cluster, topic: str, replicas: list[int], tmp_path: Path) -> None:
    """Give partition 0 other replicas, by kafka-reassign-partitions, and wait until it has them."""
    plan = tmp_path / "reassignment.json"
    wanted = {"topic": topic, "partition": 0, "replicas": replicas}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    run_tool(
        REASSIGN, "--bootstrap-server", cluster.bootstrap, "--execute",
        "--reassignment-json-file", str(plan),
    )  # fmt: skip
    cluster.wait_until(topic, 0, lambda seen: seen.replicas == (*replicas,))
    cluster.wait_for(topic, 0, isr=replicas)


def test_after_each_step_of_three_brokers(eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    """Offline, at the offset of each step, the state is what the brokers told then."""
    reported: list[Reported] = []
    # A snapshot every few records: the states are read from them, and from what comes after.
    # Sessions that outlast a machine that stands still for a while: the steps alone change an ISR.
    overrides = {
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "broker.session.timeout.ms": "7000", "replica.lag.time.max.ms": "8000",
    }  # fmt: skip
    with Cluster(tmp_path / "cluster", overrides=overrides) as cluster:

        def inspect(step: str) -> None:
            reported.append(observe(cluster, step, eoctl))

        def in_sync(brokers: set[int]) -> None:
            for number in range(3):
                cluster.wait_for("t", number, isr=brokers)

        cluster.create_topic("t", [[0, 1, 2], [1, 2, 0]], {"min.insync.replicas": "2"})
        cluster.create_topic("u", [[0, 1]], {"min.insync.replicas": "1"})
        cluster.create_topic("moved", [[2, 0]])
        cluster.create_topic("gone", [[2]])
        inspect("created")
        admin = cluster.admin()
        set_for_all_brokers(cluster.bootstrap)
        set_now(admin, ResourceType.TOPIC, "t", {"retention.ms": "7200000"})
        (added,) = admin.create_partitions([NewPartitions("t", 3, [[2, 0, 1]])]).values()
        added.result(WAIT_S)
        cluster.wait_for("t", 2, leader=2, isr={0, 1, 2})
        reassign(cluster, "moved", [2, 1], tmp_path)
        (deleted,) = admin.delete_topics(["gone"]).values()
        deleted.result(WAIT_S)
        inspect("set, added, moved, deleted")
        cluster.kill(1)
        cluster.wait_for("t", 1, leader=2, isr={0, 2})
        cluster.wait_for("u", 0, leader=0, isr={0})
        inspect("1 is dead")
        cluster.kill(0)
        cluster.wait_for("t", 0, leader=2, isr={2})
        cluster.wait_for("u", 0, leader=-1)
        inspect("0 is dead")
        cluster.start(1)
        in_sync({1, 2})
        cluster.wait_for("moved", 0, isr={1, 2})
        inspect("1 is back, behind in u")
        cluster.elect_uncleanly("u")
        cluster.wait_for("u", 0, leader=1, isr={1})
        inspect("forced")
        cluster.start(0)
        cluster.wait_for("u", 0, leader=1, isr={0, 1})
        in_sync({0, 1, 2})
        cluster.kill(0)
        cluster.wait_for("u", 0, leader=1, isr={1})
        cluster.kill(1)
        cluster.wait_for("u", 0, leader=-1)
        set_now(
            cluster.admin(), ResourceType.TOPIC, "u", {"unclean.leader.election.enable": "true"}
        )
        cluster.start(0)
        cluster.wait_for("u", 0, leader=0, isr={0})
        in_sync({0, 2})
        inspect("allowed")
        cluster.start(1)
        in_sync({0, 1, 2})
        cluster.wait_for("moved", 0, isr={1, 2})
        cluster.wait_for("u", 0, isr={0, 1})
        cluster.stop(2)
        in_sync({0, 1})
        inspect("2 was stopped")
    log_dir = cluster.log_dir(CONTROLLER_ID)
    assert len([*(log_dir / "__cluster_metadata-0").glob("*.checkpoint")]) > 2
    for each in reported:
        assert_as_reported(each, eoctl, log_dir)
    assert_history(reported, eoctl, log_dir)


def assert_as_reported(reported: Reported, eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    options = ("--at", reported.end_offset - 1, "--settings", "--output", "jsonl")
    done = eoctl("metadata", log_dir, *options)
    assert done.status == 0, (reported.step, done.errors)
    assert partitions_said(done) == reported.partitions, reported.step
    active = {row["broker"] for row in rows_of(done, "broker") if row["state"] == "active"}
    assert active == reported.brokers, reported.step
    (controller,) = rows_of(done, "controller")
    assert controller["is_leader"] is not False, reported.step  # no snapshot tells who leads
    rows = [row for row in rows_of(done, "setting") if row["resource"] == "topic"]
    assert {row["resource_name"] for row in rows} == {*reported.settings}, reported.step
    for name, settings in reported.settings.items():
        of_topic = {row["setting"]: row for row in rows if row["resource_name"] == name}
        assert_settings(of_topic, settings)


def assert_history(reported: list[Reported], eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    """Between the steps are the changes that they were, with why."""
    done = eoctl("metadata", log_dir, "--history", "--output", "jsonl")
    assert done.status == 0, done.errors
    rows = rows_of(done, "partition_change")
    found: dict[str, dict[str, set[str]]] = {}
    start = 0
    for each in reported:
        between = [row for row in rows if start <= row["offset"] < each.end_offset]
        start = each.end_offset
        whys = found.setdefault(each.step, {})
        for row in between:
            whys.setdefault(f"{row['topic']}-{row['partition']}", set()).update(row["why"])
    assert found == WHYS
    unclean = [(row["topic"], row["leader"]) for row in rows if row["is_unclean"]]
    assert unclean == [("u", 1), ("u", 0)]
