"""Logs and snapshots of `__cluster_metadata-0`, record by record, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.formats import cluster_metadata as records
from storage.formats.cluster_metadata import encode_record
from storage.formats.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_control_message,
)
from storage.formats.record import Record
from storage.formats.record_batch import CONTROL_MASK
from tests.batches import encoded_batch

if TYPE_CHECKING:
    from pathlib import Path

META = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id={}\ndirectory.id={}\n"


def batch(
    offset: int,
    values: list[bytes],
    *,
    control: list[int] | None = None,
    time_ms: int = 0,
    epoch: int = 1,
) -> bytes:
    """One batch of these values; `control`: the types of its records, which are control records."""
    keys: list[bytes | None] = [encode_control_key(each) for each in control or ()]
    keys = keys or [None] * len(values)
    made = [
        Record(0, 0, delta, key, value, ())
        for delta, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return encoded_batch(
        offset,
        made,
        partition_leader_epoch=epoch,
        attributes=CONTROL_MASK if control else 0,
        base_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )


def snapshot(*values: bytes, time_ms: int = 0) -> bytes:
    """A whole snapshot, header and footer included."""
    ends = [ControlRecordType.SNAPSHOT_HEADER, ControlRecordType.SNAPSHOT_FOOTER]
    messages = [
        encode_control_message(ends[0], {"lastContainedLogTimestamp": time_ms}),
        encode_control_message(ends[1], {}),
    ]
    return (
        batch(0, [messages[0]], control=[ends[0]])
        + batch(1, list(values))
        + batch(1 + len(values), [messages[1]], control=[ends[1]])
    )


def leader_change(
    offset: int, leader: int, voters: list[int], *, time_ms: int, epoch: int
) -> bytes:
    """The batch that a controller begins with when it leads."""
    value = encode_control_message(
        ControlRecordType.LEADER_CHANGE,
        {"leaderId": leader, "voters": [{"voterId": each} for each in voters]},
    )
    return batch(
        offset, [value], control=[ControlRecordType.LEADER_CHANGE], time_ms=time_ms, epoch=epoch
    )


def topic(name: str, topic_id: bytes) -> bytes:
    """A topic without partitions."""
    return encode_record(records.TOPIC, 0, {"name": name, "topicId": topic_id})


def partition(topic_id: bytes, replicas: list[int], **data: Any) -> bytes:
    """Partition 0 of a topic, led by its first replica, all in the ISR."""
    fields = {"partitionId": 0, "isr": replicas, "leader": replicas[0], "leaderEpoch": 0}
    fields |= {"partitionEpoch": 0, "topicId": topic_id, "replicas": replicas}
    return encode_record(records.PARTITION, 2, fields | data)


def change(topic_id: bytes, **data: Any) -> bytes:
    """A change of partition 0 of a topic."""
    return encode_record(
        records.PARTITION_CHANGE, 2, {"partitionId": 0, "topicId": topic_id} | data
    )


def level(name: str, value: int) -> bytes:
    """The level of a feature."""
    return encode_record(records.FEATURE_LEVEL, 0, {"name": name, "featureLevel": value})


def setting(kind: int, resource: str, name: str, value: str | None) -> bytes:
    """A dynamic setting."""
    data = {"resourceType": kind, "resourceName": resource, "name": name, "value": value}
    return encode_record(records.CONFIG, 0, data)


def broker(broker_id: int, epoch: int, **data: Any) -> bytes:
    """The registration of a broker."""
    fields = {"brokerId": broker_id, "brokerEpoch": epoch, "incarnationId": bytes(16)}
    return encode_record(records.REGISTER_BROKER, 4, fields | data)


def write_log(directory: Path, batches: list[tuple[int, list[bytes]]], base_offset: int = 0) -> int:
    """Write one segment of batches, each with its time; returns the end offset."""
    offset, data = base_offset, b""
    for time_ms, values in batches:
        data += batch(offset, values, time_ms=time_ms)
        offset += len(values)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(data)
    return offset


def node(
    root: Path,
    node_id: int,
    epochs: list[tuple[int, int]],
    end_offset: int,
    *,
    start_offset: int = 0,
) -> Path:
    """A log dir whose metadata have these epochs, by their start offsets, up to an end.

    Each record sets feature `f` to its own offset; those below `start_offset` are in a snapshot.
    """
    log_dir = root / f"node-{node_id}"
    directory = log_dir / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    (log_dir / "meta.properties").write_text(META.format(node_id, f"A{node_id}" + "A" * 20))
    starts = [start for _, start in epochs]
    batches = []
    for (epoch, start), end in zip(epochs, [*starts[1:], end_offset], strict=True):
        batches.append((start, leader_change(start, 1, [1, 2, 3], time_ms=epoch, epoch=epoch)))
        batches += (
            (offset, batch(offset, [level("f", offset)], epoch=epoch, time_ms=epoch))
            for offset in range(start + 1, end)
        )
    data = b"".join(each for offset, each in batches if offset >= start_offset)
    (directory / f"{start_offset:020d}.log").write_bytes(data)
    if start_offset:
        name = f"{start_offset:020d}-{epochs[-1][0]:010d}.checkpoint"
        (directory / name).write_bytes(snapshot(level("f", start_offset - 1)))
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")
    return log_dir
