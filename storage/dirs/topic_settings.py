"""The settings of topics: the setting in force, its source, and the values that brokers accept."""

from __future__ import annotations

import os
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.cluster_image import ALL_BROKERS, BROKER_RESOURCE
from storage.errors import RefusedError, UsageError
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.dirs.cluster_image import ClusterImage


# -- the settings of topics: the setting in force, and its source.
#
# A topic's own setting counts first, then the dynamic setting of the leader's broker, then the
# setting for all brokers, then the broker's `server.properties`, then Kafka's default. The first
# three are in `__cluster_metadata`. Without the file, a broker may have another setting than the
# default.
#
# `SETTINGS` is Kafka 4.4.0's table (LogConfig, ServerTopicConfigSynonyms) without the settings that
# only its own tests use.


MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class SettingSource(StrEnum):
    """The source of a setting in force."""

    TOPIC = "topic"
    BROKER = "broker"  # of one broker
    ALL_BROKERS = "all-brokers"
    SERVER_PROPERTIES = "server-properties"  # the broker's configuration file
    DEFAULT = "default"  # Kafka's default; server.properties does not have it, or is unknown


class SettingInForce(NamedTuple):
    """A setting in force."""

    name: str
    value: str
    source: SettingSource
    source_name: str  # its name there: `log.retention.hours` of a broker for `retention.ms`


class TopicSetting(NamedTuple):
    """Kafka's data of a setting: its default, and its names among broker settings in order."""

    default: str
    broker_names: tuple[str, ...] = ()


# A broker's setting in another unit -> its factor.
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
    "errors.deadletterqueue.group.enable": TopicSetting("false"),
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
    "max.decompressed.message.bytes": TopicSetting(
        str(INT32_MAX - 8), ("max.decompressed.message.bytes",)
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
    "remote.copy.lag.bytes": TopicSetting("-1", ("log.remote.copy.lag.bytes",)),
    "remote.copy.lag.ms": TopicSetting("0", ("log.remote.copy.lag.ms",)),
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
    image: ClusterImage | None,
    topic: str,
    name: str,
    *,
    broker_id: int | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> SettingInForce:
    """Find the setting of a topic that is in force, by the metadata and a configuration file.

    Args:
        image: the cluster. None: only the file counts.
        topic: its name. It need not exist.
        name: a key of `SETTINGS`.
        broker_id: the broker whose own settings count, such as the leader. None or -1: only the
            settings for all brokers.
        properties: the broker's configuration file.
    """
    value = None if image is None else image.topic_config(topic, name)
    if value is not None:
        return SettingInForce(name, value, source=SettingSource.TOPIC, source_name=name)
    known = SETTINGS[name]
    for broker_name in known.broker_names:
        found = broker_setting(image, broker_name, broker_id=broker_id, properties=properties)
        if found is not None:
            ours = _in_our_unit(broker_name, found.value)
            return found._replace(name=name, value=ours)
    return SettingInForce(name, known.default, source=SettingSource.DEFAULT, source_name=name)


def broker_setting(
    image: ClusterImage | None,
    name: str,
    *,
    broker_id: int | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> SettingInForce | None:
    """Find a broker's setting: dynamic, of all brokers, or in its file.

    Returns None if none of them has it.
    """
    configs = {} if image is None else image.configs
    places: list[tuple[SettingSource, Mapping[str, str]]] = [
        (SettingSource.ALL_BROKERS, configs.get((BROKER_RESOURCE, ALL_BROKERS), {})),
        (SettingSource.SERVER_PROPERTIES, properties),
    ]
    if broker_id is not None and broker_id >= 0:
        own = configs.get((BROKER_RESOURCE, str(broker_id)), {})
        places.insert(0, (SettingSource.BROKER, own))
    for source, settings in places:
        value = settings.get(name)
        if value is not None:
            return SettingInForce(name, value, source=source, source_name=name)
    return None


def _in_our_unit(broker_name: str, value: str) -> str:
    factor = FACTORS.get(broker_name)
    if factor is None:
        return value
    try:
        return str(int(value) * factor)
    except ValueError:
        return value  # a caller that needs a number reports it


def wanted_min_insync_replicas(image: ClusterImage, topic: str, *, broker_id: int | None) -> int:
    """Return min.insync.replicas as it is set, whatever the number of replicas.

    If the setting is no number, this is Kafka's default.
    """
    value = topic_setting(image, topic, MIN_INSYNC_REPLICAS, broker_id=broker_id).value
    try:
        return int(value)
    except ValueError:
        return int(SETTINGS[MIN_INSYNC_REPLICAS].default)


def min_insync_replicas(image: ClusterImage, topic: str, partition: int) -> int:
    """Return how many replicas acks=all requires in the ISR, including the leader.

    As in a broker, this is never more than the number of replicas.
    """
    found = image.partition(topic, partition)
    leader = None if found is None else found.leader
    wanted = wanted_min_insync_replicas(image, topic, broker_id=leader)
    return wanted if found is None else min(wanted, len(found.replicas))


def is_under_min_isr(image: ClusterImage, topic: str, partition: int) -> bool:
    """Return whether acks=all is refused, as kafka-topics reports it. True without a leader."""
    found = image.partition(topic, partition)
    if found is None:
        return False
    return found.leader < 0 or len(found.isr) < min_insync_replicas(image, topic, partition)


# -- the values that a broker accepts for the settings of a topic (Kafka's LogConfig)
#
# A controller checks them when a client sets them, but not in a snapshot. A broker with a value
# that it cannot read does not open the topic's logs. So we check them too.


class Numbers(NamedTuple):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int


class Choices(NamedTuple):
    """One of some words. With `is_list` several words, separated by commas."""

    words: tuple[str, ...]
    is_list: bool = False


class Fraction(NamedTuple):
    """A number from 0 to 1."""


class Text(NamedTuple):
    """Any text, which is not checked."""


_BOOLEAN = Choices(("true", "false"))


def _int(low: int, high: int = INT32_MAX) -> Numbers:
    return Numbers(low, high)


def _long(low: int) -> Numbers:
    return Numbers(low, INT64_MAX)


# As in Kafka 4.4.0 (LogConfig.configDefCopy), without the settings that only its own tests set.
SETTING_VALUES: dict[str, Numbers | Choices | Fraction | Text] = {
    "cleanup.policy": Choices(("delete", "compact"), is_list=True),
    "compression.gzip.level": _int(-1, 9),
    "compression.lz4.level": _int(1, 17),
    "compression.type": Choices(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "compression.zstd.level": _int(-131_072, 22),
    "delete.retention.ms": _long(0),
    "errors.deadletterqueue.group.enable": _BOOLEAN,
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(1),
    "follower.replication.throttled.replicas": Text(),
    "index.interval.bytes": _int(0),
    "leader.replication.throttled.replicas": Text(),
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.decompressed.message.bytes": _int(1, INT32_MAX - 8),
    "max.message.bytes": _int(0),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.type": Choices(("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": Fraction(),
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _BOOLEAN,
    "remote.copy.lag.bytes": _long(-1),
    "remote.copy.lag.ms": _long(-1),
    "remote.log.copy.disable": _BOOLEAN,
    "remote.log.delete.on.disable": _BOOLEAN,
    "remote.storage.enable": _BOOLEAN,
    "retention.bytes": _long(-INT64_MAX - 1),
    "retention.ms": _long(-1),
    "segment.bytes": _int(1 << 20),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _BOOLEAN,
}


# Settings that older releases do not have, with the first release that has them.
SETTINGS_SINCE: dict[str, tuple[int, ...]] = {
    "message.timestamp.after.max.ms": (3, 6),
    "message.timestamp.before.max.ms": (3, 6),
    "compression.gzip.level": (3, 8),
    "compression.lz4.level": (3, 8),
    "compression.zstd.level": (3, 8),
    "remote.log.copy.disable": (3, 9),
    "remote.log.delete.on.disable": (3, 9),
    "errors.deadletterqueue.group.enable": (4, 4),
    "max.decompressed.message.bytes": (4, 4),
    "remote.copy.lag.bytes": (4, 4),
    "remote.copy.lag.ms": (4, 4),
}


def require_topic_setting(name: str, value: str, release: tuple[int, ...] | None = None) -> None:
    """Require that a broker of a release (None: the newest) knows a setting and accepts its value.

    Raises:
        UsageError: it does not.
    """
    kind = SETTING_VALUES.get(name)
    since = SETTINGS_SINCE.get(name, ())
    if release is not None and release < since:
        raise UsageError(
            f"{name}: no setting of a topic before Kafka {'.'.join(map(str, since))}",
            next_step="leave it out, or name a later --broker-version",
        )
    if kind is None:
        raise UsageError(
            f"{name}: no setting of a topic", next_step=f"one of {', '.join(SETTING_VALUES)}"
        )
    if isinstance(kind, Text):
        return
    if isinstance(kind, Choices):
        words = value.split(",") if kind.is_list else [value]
        allowed = f"{' or '.join(kind.words)}{', or several with commas' if kind.is_list else ''}"
        is_right = all(each.strip() in kind.words for each in words)
    elif isinstance(kind, Fraction):
        allowed = "0 to 1"
        is_right = value.replace(".", "", 1).isdecimal() and float(value) <= 1
    else:
        allowed = f"{kind.low} to {kind.high}"
        is_right = value.removeprefix("-").isdecimal() and kind.low <= int(value) <= kind.high
    if not is_right:
        raise UsageError(f"{name}={value}: a broker takes {allowed}")


# -- the settings of a topic that decide how its log is written (Kafka's LogConfig)
#
# `topic_settings` finds the setting in force. The settings decide these rules: segment.bytes and
# segment.index.bytes ROLL-1, segment.ms ROLL-2, max.compaction.lag.ms ROLL-3, index.interval.bytes
# APP-8, max.message.bytes APP-2, message.timestamp.type APP-5. `message.timestamp.before.max.ms`
# and after.max.ms decide APP-3 (KIP-1030, Kafka 4), cleanup.policy APP-3 (records need keys). The
# codec depends on compression.type.


PRODUCER_COMPRESSION = "producer"


class LogConfig(NamedTuple):
    """The settings of one topic, by default Kafka's."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    index_interval_bytes: int = 4096
    index_max_bytes: int = 10_485_760
    max_message_bytes: int = 1_048_588
    is_log_append_time: bool = False
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = HOUR_MS
    is_compacted: bool = False
    compression_type: str = PRODUCER_COMPRESSION


# The value of `--cleanup-policy`, in a variable that worker processes inherit.
CLEANUP_POLICY_VARIABLE = "EOCTL_CLEANUP_POLICY"


class _Settings:
    """A lookup of one topic's settings."""

    def __init__(self, image: ClusterImage, topic: str, broker_id: int | None) -> None:
        self._image = image
        self._topic = topic
        self._broker_id = broker_id

    def text(self, key: str) -> str:
        return topic_setting(self._image, self._topic, key, broker_id=self._broker_id).value

    def number(self, key: str) -> int:
        setting = topic_setting(self._image, self._topic, key, broker_id=self._broker_id)
        try:
            return int(setting.value)
        except ValueError:
            raise RefusedError(
                f"{self._topic}: the setting {setting.source_name}={setting.value} is no number"
            ) from None


def read_log_config(
    image: ClusterImage | None, topic: str, *, broker_id: int | None = None
) -> LogConfig:
    """Find the settings of a topic, or Kafka's defaults without an image.

    Raises:
        RefusedError: a setting that must be a number is none.
    """
    if image is None:
        return LogConfig()
    settings = _Settings(image, topic, broker_id)
    segment_ms = settings.number("segment.ms")
    compacts = is_compacted(image, topic, broker_id=broker_id)
    if compacts:
        lag_ms = settings.number("max.compaction.lag.ms")
        segment_ms = min(segment_ms, lag_ms) if lag_ms > 0 else segment_ms
    return LogConfig(
        segment_bytes=settings.number("segment.bytes"),
        segment_ms=segment_ms,
        index_interval_bytes=settings.number("index.interval.bytes"),
        index_max_bytes=settings.number("segment.index.bytes"),
        max_message_bytes=settings.number("max.message.bytes"),
        is_log_append_time=settings.text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=settings.number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=settings.number("message.timestamp.after.max.ms"),
        is_compacted=compacts,
        compression_type=settings.text("compression.type"),
    )


def is_compacted(image: ClusterImage, topic: str, *, broker_id: int | None = None) -> bool:
    """Return whether the cleanup.policy of a topic includes compact."""
    return _says_compact(topic_setting(image, topic, "cleanup.policy", broker_id=broker_id).value)


def stated_is_compacted() -> bool | None:
    """Return the user's cleanup.policy for topics without metadata, or None."""
    policy = os.environ.get(CLEANUP_POLICY_VARIABLE)
    return _says_compact(policy) if policy else None


def _says_compact(policy: str) -> bool:
    return "compact" in {each.strip() for each in policy.split(",")}
