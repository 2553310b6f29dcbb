"""Rows of `cluster-state`: what the metadata say at a moment."""

from __future__ import annotations

from typing import NamedTuple


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
        standing: leader, in sync, out of sync, eligible, no replica, not this topic.
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
