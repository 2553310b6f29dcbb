"""The settings of topics: which one is in force, and where it comes from.

A topic's own setting counts; else the dynamic one of the broker that leads; else the one for all
brokers, both from `__cluster_metadata`; else Kafka's default. A broker's `server.properties` lies
in between and is not known here: where a setting comes from Kafka's defaults, a broker may
have had another.

`SETTINGS` is Kafka 4.3.1's table (LogConfig, ServerTopicConfigSynonyms) but for what is for its
own tests only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.cluster_image import ALL_BROKERS, BROKER_RESOURCE

if TYPE_CHECKING:
    from storage.dirs.cluster_image import ClusterImage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class SettingSource(StrEnum):
    """Whose setting is in force."""

    TOPIC = "topic"
    BROKER = "broker"  # of one broker
    ALL_BROKERS = "all-brokers"
    DEFAULT = "default"  # Kafka's; a server.properties is not known


class SettingInForce(NamedTuple):
    """A setting in force."""

    name: str
    value: str
    source: SettingSource
    source_name: str  # its name there: `log.retention.hours` of a broker for `retention.ms`


class TopicSetting(NamedTuple):
    """What Kafka has of a setting: its default, its names among a broker's, first first."""

    default: str
    broker_names: tuple[str, ...] = ()


# A broker's setting in another unit -> what it is multiplied with.
FACTORS = {
    "log.retention.minutes": MINUTE_MS,
    "log.retention.hours": HOUR_MS,
    "log.roll.hours": HOUR_MS,
    "log.roll.jitter.hours": HOUR_MS,
}
SETTINGS: dict[str, TopicSetting] = {
    "cleanup.policy": TopicSetting("delete", ("log.cleanup.policy",)),
    "compression.gzip.level": TopicSetting("-1", ("compression.gzip.level",)),
    "compression.lz4.level": TopicSetting("9", ("compression.lz4.level",)),
    "compression.type": TopicSetting("producer", ("compression.type",)),
    "compression.zstd.level": TopicSetting("3", ("compression.zstd.level",)),
    "delete.retention.ms": TopicSetting("86400000", ("log.cleaner.delete.retention.ms",)),
    "file.delete.delay.ms": TopicSetting("60000", ("log.segment.delete.delay.ms",)),
    "flush.messages": TopicSetting("9223372036854775807", ("log.flush.interval.messages",)),
    "flush.ms": TopicSetting(
        "9223372036854775807", ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    ),
    "follower.replication.throttled.replicas": TopicSetting(""),
    "index.interval.bytes": TopicSetting("4096", ("log.index.interval.bytes",)),
    "leader.replication.throttled.replicas": TopicSetting(""),
    "local.retention.bytes": TopicSetting("-2", ("log.local.retention.bytes",)),
    "local.retention.ms": TopicSetting("-2", ("log.local.retention.ms",)),
    "max.compaction.lag.ms": TopicSetting(
        "9223372036854775807", ("log.cleaner.max.compaction.lag.ms",)
    ),
    "max.message.bytes": TopicSetting("1048588", ("message.max.bytes",)),
    "message.timestamp.after.max.ms": TopicSetting(
        "3600000", ("log.message.timestamp.after.max.ms",)
    ),
    "message.timestamp.before.max.ms": TopicSetting(
        "9223372036854775807", ("log.message.timestamp.before.max.ms",)
    ),
    "message.timestamp.type": TopicSetting("CreateTime", ("log.message.timestamp.type",)),
    "min.cleanable.dirty.ratio": TopicSetting("0.5", ("log.cleaner.min.cleanable.ratio",)),
    "min.compaction.lag.ms": TopicSetting("0", ("log.cleaner.min.compaction.lag.ms",)),
    MIN_INSYNC_REPLICAS: TopicSetting("1", (MIN_INSYNC_REPLICAS,)),
    "preallocate": TopicSetting("false", ("log.preallocate",)),
    "remote.log.copy.disable": TopicSetting("false"),
    "remote.log.delete.on.disable": TopicSetting("false"),
    "remote.storage.enable": TopicSetting("false"),
    "retention.bytes": TopicSetting("-1", ("log.retention.bytes",)),
    "retention.ms": TopicSetting(
        "604800000", ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    ),
    "segment.bytes": TopicSetting("1073741824", ("log.segment.bytes",)),
    "segment.index.bytes": TopicSetting("10485760", ("log.index.size.max.bytes",)),
    "segment.jitter.ms": TopicSetting("0", ("log.roll.jitter.ms", "log.roll.jitter.hours")),
    "segment.ms": TopicSetting("604800000", ("log.roll.ms", "log.roll.hours")),
    UNCLEAN_LEADER_ELECTION: TopicSetting("false", (UNCLEAN_LEADER_ELECTION,)),
}


def topic_setting(
    image: ClusterImage, topic: str, name: str, *, broker_id: int | None = None
) -> SettingInForce:
    """Find the setting of a topic that is in force, as far as the metadata tell.

    Args:
        image: the cluster.
        topic: its name; it need not be there.
        name: one of `SETTINGS`.
        broker_id: the broker whose own settings count, such as the leader; None or -1: only
            those for all brokers.
    """
    value = image.topic_config(topic, name)
    if value is not None:
        return SettingInForce(name, value, source=SettingSource.TOPIC, source_name=name)
    known = SETTINGS[name]
    places = [(SettingSource.ALL_BROKERS, ALL_BROKERS)]
    if broker_id is not None and broker_id >= 0:
        places.insert(0, (SettingSource.BROKER, str(broker_id)))
    for broker_name in known.broker_names:
        for source, resource in places:
            value = image.configs.get((BROKER_RESOURCE, resource), {}).get(broker_name)
            if value is not None:
                ours = _in_our_unit(broker_name, value)
                return SettingInForce(name, ours, source=source, source_name=broker_name)
    return SettingInForce(name, known.default, source=SettingSource.DEFAULT, source_name=name)


def _in_our_unit(broker_name: str, value: str) -> str:
    factor = FACTORS.get(broker_name)
    if factor is None:
        return value
    try:
        return str(int(value) * factor)
    except ValueError:
        return value  # whoever needs a number says that it is none


def wanted_min_insync_replicas(image: ClusterImage, topic: str, *, broker_id: int | None) -> int:
    """Tell min.insync.replicas as it is set, whatever the number of replicas.

    Kafka's 1 where the setting is no number.
    """
    value = topic_setting(image, topic, MIN_INSYNC_REPLICAS, broker_id=broker_id).value
    try:
        return int(value)
    except ValueError:
        return int(SETTINGS[MIN_INSYNC_REPLICAS].default)


def min_insync_replicas(image: ClusterImage, topic: str, partition: int) -> int:
    """Tell how many replicas acks=all needs in the ISR, the leader included.

    As a broker counts: never more than there are replicas.
    """
    found = image.partition(topic, partition)
    leader = None if found is None else found.leader
    wanted = wanted_min_insync_replicas(image, topic, broker_id=leader)
    return wanted if found is None else min(wanted, len(found.replicas))


def is_under_min_isr(image: ClusterImage, topic: str, partition: int) -> bool:
    """Whether acks=all is refused there, as kafka-topics tells it; no leader: it is, too."""
    found = image.partition(topic, partition)
    if found is None:
        return False
    return found.leader < 0 or len(found.isr) < min_insync_replicas(image, topic, partition)
