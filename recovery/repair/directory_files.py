"""What lies in a partition directory beside the log, and keeps a broker from using it.

DIR-4  `partition.metadata` missing or malformed, where the cluster's metadata tell the topic id
DIR-9  a file named like one of a segment, but for the base offset: loading the partition fails
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.plan import absolute_path, remove_step, replace_step
from storage.errors import FormatError
from storage.file_names import PARTITION_METADATA_NAME, FileKind, FileSuffix, keeps_from_loading
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import (
    PartitionMetadata,
    encode_partition_metadata,
    parse_partition_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.changes.plans.plan import Step
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.partition import Partition

FOREIGN_FILE_ID = "DIR-9"


def assigned_topic_id(selected: Selected, image: ClusterImage | None) -> bytes | None:
    """The id of the topic of which a directory must be, by its name and place; None: not known.

    Not of a name that an earlier topic had, too: the directory may be that one's.
    """
    meta = None if selected.log_dir is None else selected.log_dir.meta
    if image is None or not image.is_complete or meta is None or meta.node_id is None:
        return None
    name = selected.partition.name
    topic = image.topics.get(name.topic)
    placed = image.partition(name.topic, name.partition)
    if topic is None or placed is None or name.topic in image.deleted_topics.values():
        return None
    if meta.node_id not in placed.replicas:
        return None
    assigned = placed.directories[placed.replicas.index(meta.node_id)]
    is_elsewhere = assigned != meta.directory_id and meta.directory_id is not None
    if is_elsewhere and int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS:
        return None
    return topic.topic_id


def topic_id_steps(partition: Partition, topic_id: bytes | None) -> Iterator[Step]:
    """Plan to write a `partition.metadata` that is missing or malformed.

    Raises:
        AccessError, RefusedError: as `replace_step`.
    """
    if topic_id is None or _has_topic_id(partition):
        return
    path = Path(absolute_path(partition.path), PARTITION_METADATA_NAME)
    content = encode_partition_metadata(PartitionMetadata(0, topic_id))
    yield replace_step(str(path), content, "the topic id that the cluster's metadata have")


def _has_topic_id(partition: Partition) -> bool:
    entry = partition.files.other(PARTITION_METADATA_NAME)
    if entry is None:
        return False
    data = partition.read_file(entry)
    if data is None:
        return True  # whatever it says cannot be read
    try:
        parse_partition_metadata(data)
    except FormatError:
        return False
    return True


def foreign_steps(partition: Partition) -> Iterator[Step]:
    """Plan to take files away that are named like those of a segment; the backups have them.

    Raises:
        AccessError, RefusedError: as `remove_step`.
    """
    for each in partition.files.others:
        is_log = each.name.kind is FileKind.LOG and each.name.suffix is FileSuffix.NONE
        if is_log or keeps_from_loading(each.name.name):
            path = Path(absolute_path(partition.path), each.name.name)
            yield remove_step(str(path), "no segment: its name is no base offset")
