"""The settings that decide what a broker's tasks delete and clean, and the time of a segment.

The order is: the topic's setting, the broker's dynamic setting, the setting of all brokers, the
file `server.properties`, Kafka's default. `log.retention.ms` precedes `.minutes`, and that precedes
`.hours`, over all places together. Without the file, a setting that only the broker can have is
unknown, and Kafka's default is assumed.
"""

from __future__ import annotations

import os
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.topic_settings import (
    SETTINGS,
    SettingInForce,
    SettingSource,
    broker_setting,
    topic_setting,
)
from storage.errors import AccessError
from storage.file_names import COMPACTED_TOPICS, REMOTE_METADATA_TOPIC
from storage.files.positioned_file import PositionedFile
from storage.formats.time_index import ENTRY_BYTES, parse_entry
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition_files import FileEntry, SegmentFiles

# Settings of a broker alone, with Kafka's defaults.
BROKER_SETTINGS = {
    "log.retention.check.interval.ms": "300000",
    "log.initial.task.delay.ms": "30000",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.cleaner.threads": "1",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "remote.log.storage.system.enable": "false",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "transactional.id.expiration.ms": "604800000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "3600000",
}
_TRUE = "true"
_MAP_ENTRY_BYTES = 24  # an MD5 digest and an offset


class Number(NamedTuple):
    """A setting that is a number.

    Attributes:
        value: in the unit of the setting's name.
        setting: the setting in force.
        is_known: False for a default that an unread file may replace.
    """

    value: int
    setting: SettingInForce
    is_known: bool

    @property
    def is_default(self) -> bool:
        """Return whether no place has the setting."""
        return self.setting.source is SettingSource.DEFAULT


class NodeSettings(NamedTuple):
    """The places where the settings of a node are.

    Attributes:
        image: the metadata of the cluster. None: unknown.
        node_id: None if unknown.
        properties: of `server.properties`. None: not given.
    """

    image: ClusterImage | None
    node_id: int | None
    properties: Mapping[str, str] | None = None

    def of_topic(self, topic: str, name: str) -> SettingInForce:
        """Return the setting of a topic that is in force."""
        return topic_setting(
            self.image, topic, name, broker_id=self.node_id, properties=self._file()
        )

    def of_broker(self, name: str) -> SettingInForce:
        """Return a setting of `BROKER_SETTINGS` that is in force."""
        found = broker_setting(self.image, name, broker_id=self.node_id, properties=self._file())
        if found is not None:
            return found
        default = BROKER_SETTINGS[name]
        return SettingInForce(name, default, source=SettingSource.DEFAULT, source_name=name)

    def topic_number(self, topic: str, name: str) -> Number:
        """Return a topic's setting as a number. Kafka's default counts if it is no number."""
        is_topic_known = self.image is not None and topic in self.image.topics
        found = self.of_topic(topic, name)
        is_known = self._is_known(found) and is_topic_known
        return Number(_whole(found.value, SETTINGS[name].default), found, is_known)

    def broker_number(self, name: str) -> Number:
        """Return a broker's setting as a number. Kafka's default counts if it is no number."""
        found = self.of_broker(name)
        return Number(_whole(found.value, BROKER_SETTINGS[name]), found, self._is_known(found))

    def is_enabled(self, name: str) -> bool | None:
        """Return whether a switch of the broker is on. None: it is unknown."""
        found = self.of_broker(name)
        return found.value == _TRUE if self._is_known(found) else None

    def _is_known(self, found: SettingInForce) -> bool:
        return found.source is not SettingSource.DEFAULT or self.properties is not None

    def _file(self) -> Mapping[str, str]:
        return MappingProxyType({}) if self.properties is None else self.properties


def _whole(value: str, default: str) -> int:
    try:
        return int(value)
    except ValueError:
        return int(default)


class TopicRules(NamedTuple):
    """The settings in force for the log of a topic on a node.

    Attributes:
        policy: cleanup.policy. `compacts` and `deletes` say what it includes.
        retention_ms, retention_bytes: of the local log: local.retention.* with remote storage.
        delete_delay: file.delete.delay.ms.
        is_tiered: the topic has remote storage. `copies`: segments are copied before deletion.
        has_remote_system: the broker has remote storage. None: unknown.
        cleaner_enabled: None: unknown.
        map_keys_count: keys that one pass of the cleaner fits into its map.
    """

    policy: SettingInForce
    compacts: bool
    deletes: bool
    retention_ms: Number
    retention_bytes: Number
    delete_delay: Number
    min_ratio: float
    min_lag: Number
    max_lag: Number
    delete_retention: Number
    is_tiered: bool
    has_remote_system: bool | None
    copies: bool
    cleaner_enabled: bool | None
    backoff: Number
    first_delay: Number
    interval: Number
    map_keys_count: int


def rules_of(node: NodeSettings, topic: str, *, is_compacted: bool = False) -> TopicRules:
    """Return the settings in force for a topic.

    Args:
        node: the places of the settings.
        topic: its name.
        is_compacted: other evidence. It counts only if the metadata do not have the topic.
    """
    policy = node.of_topic(topic, "cleanup.policy")
    if is_compacted and (node.image is None or topic not in node.image.topics):
        policy = policy._replace(value="compact")
    words = {each.strip() for each in policy.value.split(",")}
    compacts = "compact" in words
    is_internal = topic in COMPACTED_TOPICS or topic == REMOTE_METADATA_TOPIC
    wants_remote = node.of_topic(topic, "remote.storage.enable").value == _TRUE
    is_tiered = wants_remote and not compacts and not is_internal
    has_system = node.is_enabled("remote.log.storage.system.enable")
    is_disabled = node.of_topic(topic, "remote.log.copy.disable").value == _TRUE
    copies = is_tiered and has_system is not False and not is_disabled
    return TopicRules(
        policy=policy,
        compacts=compacts,
        deletes="delete" in words,
        retention_ms=_local(node, topic, "retention.ms", copies=copies),
        retention_bytes=_local(node, topic, "retention.bytes", copies=copies),
        delete_delay=node.topic_number(topic, "file.delete.delay.ms"),
        min_ratio=_fraction(node.of_topic(topic, "min.cleanable.dirty.ratio").value, 0.5),
        min_lag=node.topic_number(topic, "min.compaction.lag.ms"),
        max_lag=node.topic_number(topic, "max.compaction.lag.ms"),
        delete_retention=node.topic_number(topic, "delete.retention.ms"),
        is_tiered=is_tiered,
        has_remote_system=has_system,
        copies=copies,
        cleaner_enabled=node.is_enabled("log.cleaner.enable"),
        backoff=node.broker_number("log.cleaner.backoff.ms"),
        first_delay=node.broker_number("log.initial.task.delay.ms"),
        interval=node.broker_number("log.retention.check.interval.ms"),
        map_keys_count=_map_keys(node),
    )


def _local(node: NodeSettings, topic: str, name: str, *, copies: bool) -> Number:
    """Return local.retention.* if segments are copied. -2 there means as retention.*."""
    own = node.topic_number(topic, name)
    if not copies:
        return own
    local = node.topic_number(topic, f"local.{name}")
    return own if local.value == -2 else local


def _fraction(value: str, default: float) -> float:
    try:
        return float(value)
    except ValueError:
        return default


def _map_keys(node: NodeSettings) -> int:
    """Return as `SkimpyOffsetMap` and `Cleaner` count: slots of 24 bytes, filled in part."""
    buffer_bytes = node.broker_number("log.cleaner.dedupe.buffer.size").value
    threads_count = max(node.broker_number("log.cleaner.threads").value, 1)
    factor = _fraction(node.of_broker("log.cleaner.io.buffer.load.factor").value, 0.9)
    slots = min(buffer_bytes // threads_count, INT32_MAX) // _MAP_ENTRY_BYTES
    return int(slots * factor)


# --- the time by which a broker judges the age of a segment (LogSegment.largestTimestamp)


class TimeSource(StrEnum):
    """The source of the time by which a broker judges a segment."""

    TIME_INDEX = "time-index"  # the last entry of its `.timeindex`
    FILE_TIME = "file-time"  # the modification time of its `.log`
    BATCHES = "batches"  # the start reads them, and derives the time index again


def largest_timestamp_ms(files: SegmentFiles) -> int | None:
    """Return the time of a segment that a start does not recover. None: unknown."""
    entry_ms = last_entry_ms(files.time_index)
    return file_time_ms(files.log) if entry_ms is not None and entry_ms < 0 else entry_ms


def last_entry_ms(entry: FileEntry | None) -> int | None:
    """Return the last timestamp of a `.timeindex`, by its length as a broker does.

    -1 without an entry. None: it cannot be read. Zeros at the end are an entry of the year 1970.
    """
    if entry is None:
        return -1
    pos = (entry.file_bytes // ENTRY_BYTES - 1) * ENTRY_BYTES
    if pos < 0:
        return -1
    try:
        with PositionedFile(entry.path) as file:
            reading = file.read_at(pos, ENTRY_BYTES)
    except AccessError:
        return None
    if reading.unreadable or len(reading.data) < ENTRY_BYTES:
        return None
    return parse_entry(reading.data, 0).timestamp_ms


def file_time_ms(entry: FileEntry) -> int | None:
    """Return the modification time of a file. None: it cannot be read."""
    try:
        return os.stat(entry.path).st_mtime_ns // 1_000_000  # noqa: PTH116 - of many files
    except OSError:
        return None
