"""Rows of `cluster-state`: what the metadata say at a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.cluster_image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ZERO_UUID
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    is_under_min_isr,
    min_insync_replicas,
    topic_setting,
)
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.dirs.cluster_image import ClusterImage, TopicImage

_DIRECTORY_WORDS = {
    ZERO_UUID: "unknown",
    UNASSIGNED_DIRECTORY: "unassigned",
    LOST_DIRECTORY: "lost",
}


class ClusterRow(NamedTuple):
    """The cluster as a whole, and what is known of its metadata.

    Attributes:
        node_id: whose copy of the metadata it is.
        counted_offset: all records below it count for sure.
        maybe_records_count: how many are above that.
    """

    cluster_id: str | None
    path: str
    node_id: int | None
    start_offset: int
    end_offset: int
    timestamp_ms: int | None
    quorum_leader: int | None
    voters: tuple[int, ...]
    counted_offset: int
    counted_by: str
    maybe_records_count: int
    is_complete: bool
    brokers_count: int
    fenced_count: int
    topics_count: int
    partitions_count: int
    leaderless_count: int
    under_min_isr_count: int
    recovering_count: int
    open_transaction_records_count: int


class FeatureRow(NamedTuple):
    """A feature of the cluster."""

    feature: str
    level: int


class BrokerRow(NamedTuple):
    """A registered broker."""

    broker: int
    state: str
    leaders_count: int
    replicas_count: int
    out_of_isr_count: int
    broker_epoch: int
    rack: str | None
    endpoints: tuple[str, ...]
    directories: tuple[str, ...]
    cordoned_directories: tuple[str, ...]
    given_dirs: tuple[str, ...]


class ControllerRow(NamedTuple):
    """A controller that is registered, or votes.

    Attributes:
        is_leader: None: who leads is not known, as after a snapshot.
    """

    controller: int
    is_voter: bool
    is_leader: bool | None
    endpoints: tuple[str, ...]


class PartitionStateRow(NamedTuple):
    """A partition. `high_watermark`, `log_end_offset`: of the copies that were given, the most."""

    topic: str
    partition: int
    leader: int | str
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]
    is_under_min_isr: bool
    min_insync_replicas: int
    min_insync_from: str
    leader_epoch: int
    high_watermark: int | None
    log_end_offset: int | None
    last_known_elr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    partition_epoch: int
    is_recovering: bool
    directories: tuple[str, ...]
    topic_id: str


class CopyRow(NamedTuple):
    """The log of a partition in a log dir that was given.

    Attributes:
        standing: a `Standing`, or unreadable.
        leader_epoch: the last one of its log; None: not known.
    """

    topic: str
    partition: int
    broker: int | None
    standing: str
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    leader_epoch: int | None
    path: str


class SettingRow(NamedTuple):
    """A setting. Of a topic: the one in force; of others what was set dynamically."""

    resource: str
    resource_name: str
    setting: str
    value: str
    source: str
    source_name: str


def partition_state_row(
    image: ClusterImage,
    topic: TopicImage,
    number: int,
    *,
    high_watermark: int | None,
    log_end_offset: int | None,
) -> PartitionStateRow:
    """Say what the metadata have of a partition, beside the ends of the copies that are there."""
    name, found = topic.name, topic.partitions[number]
    setting = topic_setting(image, name, MIN_INSYNC_REPLICAS, broker_id=found.leader)
    return PartitionStateRow(
        topic=name,
        partition=number,
        leader=found.leader,
        isr=found.isr,
        elr=found.elr,
        replicas=found.replicas,
        is_under_min_isr=is_under_min_isr(image, name, number),
        min_insync_replicas=min_insync_replicas(image, name, number),
        min_insync_from=setting.source.value,
        leader_epoch=found.leader_epoch,
        high_watermark=high_watermark,
        log_end_offset=log_end_offset,
        last_known_elr=found.last_known_elr,
        adding_replicas=found.adding_replicas,
        removing_replicas=found.removing_replicas,
        partition_epoch=found.partition_epoch,
        is_recovering=found.is_recovering,
        directories=directory_words(found.directories),
        topic_id=format_uuid(topic.topic_id),
    )


def directory_words(ids: Iterable[bytes]) -> tuple[str, ...]:
    """Write directory ids; what is none by its word."""
    return tuple(_DIRECTORY_WORDS.get(each) or format_uuid(each) for each in ids)
