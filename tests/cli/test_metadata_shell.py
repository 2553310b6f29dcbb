"""`eoctl metadata` says what kafka-metadata-shell says of the same files."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from storage.log.segment import open_segment
from tests.changes import rows_of
from tests.kafka.metadata_shell import Tree, fields_of, image_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.kafka_shell]

JSONL = ("--output", "jsonl")
METADATA_VERSIONS = {"4.3-IV0": 30, "3.9-IV0": 21}
RECOVERING = "RECOVERING"


def of_the_shell(image: Tree) -> dict[str, Any]:
    """What both tell, from Kafka's image."""
    features = {
        name.removeprefix("finalized_"): int(level)
        for name, level in image["features"].items()
        if name.startswith("finalized_")
    }
    version = image["features"]["metadataVersion"].removeprefix("Optional[").removesuffix("]")
    features["metadata.version"] = METADATA_VERSIONS[version]
    partitions = {
        f"{topic}-{number}": _partition(fields_of(text), found["id"])
        for topic, found in image["topics"]["byName"].items()
        for number, text in found.items()
        if number.isdigit()
    }
    return {
        "features": features,
        "partitions": partitions,
        "brokers": {int(each): _broker(text) for each, text in _named(image, "brokers")},
        "controllers": {
            int(each): _endpoints(fields_of(text)["listeners"])
            for each, text in _named(image, "controllers")
        },
        "settings": {
            tuple(name.lower().split(":", 1)) if ":" in name else (name.lower(), "all"): settings
            for name, settings in image["configs"].items()
        },
    }


def _named(image: Tree, kind: str) -> list[tuple[str, str]]:
    return list(image["cluster"][kind].items())


def _partition(fields: dict[str, Any], topic_id: str) -> dict[str, Any]:
    names = {
        "elr": "elr", "isr": "isr", "lastKnownElr": "last_known_elr", "replicas": "replicas",
        "addingReplicas": "adding_replicas", "removingReplicas": "removing_replicas",
    }  # fmt: skip
    return {
        **{ours: list(map(int, fields[theirs])) for theirs, ours in names.items()},
        "leader": int(fields["leader"]),
        "leader_epoch": int(fields["leaderEpoch"]),
        "partition_epoch": int(fields["partitionEpoch"]),
        "is_recovering": fields["leaderRecoveryState"] == RECOVERING,
        "directories": fields["directories"],
        "topic_id": topic_id,
    }


def _broker(text: str) -> dict[str, Any]:
    fields = fields_of(text)
    is_stopping = fields["inControlledShutdown"] == "true"
    active = "controlled shutdown" if is_stopping else "active"
    cordoned = fields["cordonedDirectories"]
    return {
        "broker_epoch": int(fields["epoch"]),
        "state": "fenced" if fields["fenced"] == "true" else active,
        "directories": fields["directories"],
        "cordoned_directories": [] if cordoned == "null" else cordoned,
        "endpoints": _endpoints(fields["listeners"]),
    }


def _endpoints(listeners: str) -> list[str]:
    if not listeners:
        return []
    found = re.findall(
        r"listenerName='(\w+)', securityProtocol=\w+, host='([^']*)', port=(\d+)", listeners
    )
    return [f"{name}://{host}:{port}" for name, host, port in found]


def of_ours(done: Any) -> dict[str, Any]:
    """What both tell, from our rows."""
    assert done.status == 0, done.errors
    settings: dict[tuple[str, str], dict[str, str]] = {}
    for each in rows_of(done, "setting"):
        # What a topic has from elsewhere is told there.
        if each["resource"] != "topic" or each["source"] == "topic":
            key = each["resource"], each["resource_name"]
            settings.setdefault(key, {})[each["setting"]] = each["value"]
    partitions = {
        f"{each['topic']}-{each['partition']}": {name: each[name] for name in _PARTITION_COLUMNS}
        for each in rows_of(done, "cluster_partition")
    }
    return {
        "features": {each["feature"]: each["level"] for each in rows_of(done, "feature")},
        "partitions": partitions,
        "brokers": {
            each["broker"]: {name: each[name] for name in _BROKER_COLUMNS}
            for each in rows_of(done, "broker")
        },
        "controllers": {
            each["controller"]: each["endpoints"]
            for each in rows_of(done, "controller")
            if each["endpoints"]
        },
        "settings": settings,
    }


_PARTITION_COLUMNS = (
    "elr", "isr", "last_known_elr", "replicas", "adding_replicas", "removing_replicas", "leader",
    "leader_epoch", "partition_epoch", "is_recovering", "directories", "topic_id",
)  # fmt: skip
_BROKER_COLUMNS = (
    "broker_epoch", "state", "directories", "cordoned_directories", "endpoints",
)  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("release", ["3.9.1", "4.3.1-two-dirs"])
def test_a_snapshot(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any], release: str
) -> None:
    snapshots = golden(f"kafka-{release}").joinpath("one/__cluster_metadata-0").glob("*.checkpoint")
    source = max(snapshots)
    directory = tmp_path / "log-dir" / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    snapshot = shutil.copyfile(source, directory / source.name)
    theirs = of_the_shell(image_of(snapshot))
    assert len(theirs["partitions"]) > 10
    assert of_ours(eoctl("metadata", directory, *JSONL)) == theirs


@pytest.mark.exhaustive
def test_what_a_cluster_begins_with(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    log_dir = tmp_path / "kafka"
    settings = ("--config", "orders:retention.ms=5", "--config", "orders:min.insync.replicas=1")
    done = eoctl("init", log_dir, "--topic", "orders:3", "--topic", "b:1", *settings, "--apply")
    assert done.status == 0, done.errors
    theirs = of_the_shell(image_of(log_dir / "bootstrap.checkpoint"))
    assert set(theirs["partitions"]) >= {"orders-0", "orders-1", "orders-2", "b-0"}
    assert of_ours(eoctl("metadata", log_dir, *JSONL)) == theirs


@pytest.mark.share(1)
@pytest.mark.parametrize("offset", [63, 97, 130, 164])
def test_after_a_record_of_three_brokers(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any], offset: int
) -> None:
    """The log of three brokers, two of which die, cut behind the batch with this record."""
    source = golden("kafka-4.3.1-three-brokers") / "diverged/broker-2/__cluster_metadata-0"
    log = source / f"{0:020d}.log"
    with open_segment(str(log)) as segment:
        (end_pos,) = (
            each.pos + each.header.batch_bytes
            for each in segment.scan(is_active=True)
            if each.header.last_offset == offset
        )
    cut = tmp_path / log.name
    cut.write_bytes(log.read_bytes()[:end_pos])
    theirs = of_the_shell(image_of(cut))
    assert theirs["brokers"]
    assert of_ours(eoctl("metadata", source, "--at", offset, *JSONL)) == theirs
