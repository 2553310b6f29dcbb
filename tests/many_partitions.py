"""A log dir of any number of partitions: a real broker's, with one of its partitions many times.

The copies are in the checkpoints and in the cluster's metadata, so that nothing is to be found.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from recovery.rebuild.derive import RebuildSettings
from recovery.rebuild.partitions import RebuildJob, rebuild_one
from storage.dirs.discovery import select_partition
from storage.file_names import (
    HIGH_WATERMARK_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
)
from storage.formats import cluster_metadata as metadata
from storage.formats.checkpoint import (
    OffsetCheckpointEntry,
    encode_offset_checkpoint,
    parse_offset_checkpoint,
)
from storage.formats.meta_properties import parse_meta_properties
from storage.formats.partition_metadata import parse_partition_metadata
from storage.formats.record import Record
from storage.log.segment import open_segment
from tests.batches import encoded_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOPIC = "idem-none"
RECORDS_PER_BATCH = 1000


def multiply_partition(log_dir: Path, count: int, topic: str = TOPIC) -> None:
    """Add copies of TOPIC-0 until there are `count`.

    Args:
        log_dir: of a broker that was stopped cleanly, the only one of its cluster; is changed.
        count: of partitions of the topic, the first one included.
        topic: of one partition.
    """
    first = log_dir / f"{topic}-0"
    numbers = range(1, count)
    for number in numbers:
        shutil.copytree(first, log_dir / f"{topic}-{number}")
    for name in (HIGH_WATERMARK_NAME, RECOVERY_POINT_NAME):
        path = log_dir / name
        entries = parse_offset_checkpoint(path.read_bytes())
        (offset,) = (each.offset for each in entries if each.topic == topic)
        entries += (OffsetCheckpointEntry(topic, number, offset) for number in numbers)
        path.write_bytes(encode_offset_checkpoint(entries))
    _report_cluster(log_dir, first, numbers)


def _report_cluster(log_dir: Path, first: Path, numbers: Sequence[int]) -> None:
    """Append a PartitionRecord for each, and derive the files of the metadata log anew."""
    directory = log_dir / f"{METADATA_TOPIC}-0"
    meta = parse_meta_properties((log_dir / META_PROPERTIES_NAME).read_bytes())
    topic_id = parse_partition_metadata((first / PARTITION_METADATA_NAME).read_bytes()).topic_id
    (path,) = directory.glob("*.log")
    with open_segment(path) as segment:
        *_, last = segment.scan()
    offset = last.header.last_offset + 1
    with path.open("ab") as log:
        for start in range(0, len(numbers), RECORDS_PER_BATCH):
            data = {
                "topicId": topic_id,
                "replicas": [meta.node_id],
                "isr": [meta.node_id],
                "leader": meta.node_id,
                "leaderEpoch": 0,
                "partitionEpoch": 0,
                "directories": [meta.directory_id],
            }
            records = [
                Record(
                    0,
                    0,
                    delta,
                    None,
                    metadata.encode_record(metadata.PARTITION, 2, data | {"partitionId": number}),
                    (),
                )
                for delta, number in enumerate(numbers[start : start + RECORDS_PER_BATCH])
            ]
            log.write(
                encoded_batch(
                    offset,
                    records,
                    partition_leader_epoch=last.header.partition_leader_epoch,
                    base_timestamp_ms=last.header.max_timestamp_ms,
                    max_timestamp_ms=last.header.max_timestamp_ms,
                )
            )
            offset += len(records)
    for each in directory.glob("*.snapshot"):
        each.unlink()
    settings = RebuildSettings(now_ms=last.header.max_timestamp_ms)
    for file in rebuild_one(RebuildJob(select_partition(directory), settings)).differences:
        if file.rebuilt is not None:
            (directory / file.name).write_bytes(file.rebuilt)
