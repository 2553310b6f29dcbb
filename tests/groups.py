"""Records of groups, put into a log dir as a coordinator would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.dirs.log_dir import read_log_dir
from storage.formats import coordinator_record
from storage.formats.consumer_offsets import (
    ASSIGNMENT,
    RECORD_TYPES,
    OffsetCommit,
    OffsetKey,
    encode_message,
    encode_offset_key,
    encode_offset_value,
)
from storage.producers.java_hash_map import coordinator_partition
from storage.writing.record_builder import ProducerIdentity
from tests.hanging import append_record

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_795_229_950_000
GROUPS_TOPIC = "__consumer_offsets"


def home_of(log_dir: Path, group: str) -> Path:
    """The directory of the partition that a group belongs to."""
    count = len(read_log_dir(log_dir).partitions_of(GROUPS_TOPIC))
    return log_dir / f"{GROUPS_TOPIC}-{coordinator_partition(group, count)}"


def commit(
    log_dir: Path, group: str, topic: str, partition: int, offset: int, *, time_ms: int = NOW_MS
) -> None:
    """Commit an offset."""
    key = encode_offset_key(OffsetKey(group, topic, partition))
    value = encode_offset_value(OffsetCommit(3, offset, commit_timestamp_ms=time_ms))
    append_record(home_of(log_dir, group), key, value, time_ms)


def pending(
    log_dir: Path, group: str, topic: str, partition: int, offset: int, *, producer_id: int
) -> None:
    """Commit an offset in a transaction that stays open."""
    key = encode_offset_key(OffsetKey(group, topic, partition))
    value = encode_offset_value(OffsetCommit(3, offset, commit_timestamp_ms=NOW_MS))
    identity = ProducerIdentity(producer_id, 0, 0)
    append_record(home_of(log_dir, group), key, value, NOW_MS, identity)


def record(
    log_dir: Path, number: int, key: dict[str, Any], value: dict[str, Any] | None, version: int = 0
) -> None:
    """Append a record of any other type."""
    record_type = RECORD_TYPES[number]
    data = None
    if value is not None:
        data = coordinator_record.encode_value(record_type.value, version, value)
    group = key.get("group") or key["groupId"]
    where = home_of(log_dir, group)
    append_record(where, coordinator_record.encode_key(record_type, key), data, NOW_MS)


def classic_group(log_dir: Path, group: str, assigned: dict[str, list[int]]) -> None:
    """A classic group with one member."""
    topics = [{"topic": name, "partitions": numbers} for name, numbers in assigned.items()]
    data = encode_message(ASSIGNMENT, 0, {"assignedPartitions": topics, "userData": None})
    member = {
        "memberId": "m-1", "groupInstanceId": "static", "clientId": "app", "clientHost": "/10.0.0.7",
        "rebalanceTimeout": 1000, "sessionTimeout": 1000, "subscription": b"", "assignment": data,
    }  # fmt: skip
    value = {
        "protocolType": "consumer", "generation": 7, "protocol": "range", "leader": "m-1",
        "currentStateTimestamp": NOW_MS, "members": [member],
    }  # fmt: skip
    record(log_dir, 2, {"group": group}, value, version=3)
