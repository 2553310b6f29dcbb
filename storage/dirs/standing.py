"""What the cluster's metadata say of one directory of a partition: who leads, who is in the ISR.

And where this copy stood. A directory is held against the metadata by its topic id: an older topic
of that name, or another cluster's, is told nothing about. What is not known is None.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    is_under_min_isr,
    min_insync_replicas,
    topic_setting,
)
from storage.errors import FormatError
from storage.file_names import METADATA_TOPIC, PARTITION_METADATA_NAME, SET_ASIDE, DirState
from storage.files.small_file import read_small_file
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import parse_partition_metadata

if TYPE_CHECKING:
    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.log_dir import LogDir, PartitionDir

MAX_FILE_BYTES = 4096  # of a partition.metadata; they have 50


class CopyStanding(StrEnum):
    """What a copy was to the cluster."""

    LEADER = "leader"
    IN_SYNC = "in sync"
    ELIGIBLE = "eligible"  # out of the ISR, and has all that was acknowledged (ELR)
    OUT_OF_SYNC = "out of sync"
    NO_REPLICA = "no replica"  # that broker has none
    ELSEWHERE = "in another log dir"  # that broker's replica is
    OTHER_TOPIC = "another topic of that name"
    NOT_THERE = "not in the metadata"


class InCluster(NamedTuple):
    """A partition as the metadata have it, and where one copy stood.

    Attributes:
        leader: broker id; -1: none.
        min_insync_replicas: as a broker counts: never more than there are replicas.
        min_insync_from: whose setting that is (`SettingSource`).
        is_under_min_isr: acks=all is refused, or nobody leads.
        lacks_leader: nobody leads although the broker of a replica runs; where all of them are
            stopped, that is as it should be.
        standing: a `CopyStanding`; None, too, where it is not known whose log dir this is, and of a
            directory that is being moved here.
    """

    leader: int | None = None
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    min_insync_replicas: int | None = None
    min_insync_from: str | None = None
    is_under_min_isr: bool | None = None
    lacks_leader: bool | None = None
    standing: CopyStanding | None = None


NOT_KNOWN = InCluster()


def in_cluster(
    directory: PartitionDir, log_dir: LogDir | None, image: ClusterImage | None
) -> InCluster:
    """Tell what the metadata say of a partition directory; raises nothing.

    Args:
        directory: of any partition.
        log_dir: the one that it lies in; None: not known.
        image: the cluster's state; None: not known.
    """
    name = directory.name
    if image is None or not image.topics:
        return NOT_KNOWN
    if name.topic == METADATA_TOPIC or name.partition < 0 or name.state in SET_ASIDE:
        return NOT_KNOWN
    found = image.partition(name.topic, name.partition)
    if found is None:
        return InCluster(standing=CopyStanding.NOT_THERE)
    if topic_id_of(directory) not in (None, image.topics[name.topic].topic_id):
        return InCluster(standing=CopyStanding.OTHER_TOPIC)
    setting = topic_setting(image, name.topic, MIN_INSYNC_REPLICAS, broker_id=found.leader)
    return InCluster(
        leader=found.leader,
        isr=found.isr,
        replicas=found.replicas,
        min_insync_replicas=min_insync_replicas(image, name.topic, name.partition),
        min_insync_from=setting.source.value,
        is_under_min_isr=is_under_min_isr(image, name.topic, name.partition),
        lacks_leader=found.leader < 0 and any(_runs(image, each) for each in found.replicas),
        standing=_standing(found, log_dir) if name.state is DirState.LIVE else None,
    )


def topic_id_of(directory: PartitionDir) -> bytes | None:
    """Read the id in `partition.metadata`; None: there is none that can be read."""
    path = Path(directory.path, PARTITION_METADATA_NAME)
    try:
        return parse_partition_metadata(read_small_file(path, MAX_FILE_BYTES)).topic_id
    except (OSError, FormatError):
        return None


def _runs(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown


def _standing(found: PartitionImage, log_dir: LogDir | None) -> CopyStanding | None:
    meta = None if log_dir is None else log_dir.meta
    broker_id = None if meta is None else meta.node_id
    if meta is None or broker_id is None:
        return None
    if broker_id not in found.replicas:
        return CopyStanding.NO_REPLICA
    assigned = found.directories[found.replicas.index(broker_id)]
    is_known = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
    if is_known and meta.directory_id not in {None, assigned}:
        return CopyStanding.ELSEWHERE
    if broker_id == found.leader:
        return CopyStanding.LEADER
    if broker_id in found.isr:
        return CopyStanding.IN_SYNC
    return CopyStanding.ELIGIBLE if broker_id in found.elr else CopyStanding.OUT_OF_SYNC
