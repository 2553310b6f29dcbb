"""The settings of a topic that decide how its log is written (Kafka's LogConfig).

Which one is in force: `topic_settings`. They decide: segment.bytes and segment.index.bytes ROLL-1,
segment.ms ROLL-2, max.compaction.lag.ms ROLL-3, index.interval.bytes APP-8, max.message.bytes
APP-2, message.timestamp.type APP-5, message.timestamp.before.max.ms and after.max.ms APP-3
(KIP-1030, Kafka 4), cleanup.policy APP-3 (records need keys), compression.type the codec.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.topic_settings import HOUR_MS, topic_setting
from storage.errors import RefusedError
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from storage.dirs.cluster_image import ClusterImage

PRODUCER_COMPRESSION = "producer"


class LogConfig(NamedTuple):
    """The settings of one topic; by default Kafka's."""

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


# What `--cleanup-policy` sets: worker processes inherit it.
CLEANUP_POLICY_VARIABLE = "EOCTL_CLEANUP_POLICY"


class _Settings:
    """Looks up one topic's settings."""

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
    """Find the settings of a topic; Kafka's defaults if there is no image.

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
    """Tell whether the cleanup.policy of a topic says compact."""
    return _says_compact(topic_setting(image, topic, "cleanup.policy", broker_id=broker_id).value)


def stated_is_compacted() -> bool | None:
    """Tell what the user states of topics that no metadata know; None: nothing."""
    policy = os.environ.get(CLEANUP_POLICY_VARIABLE)
    return _says_compact(policy) if policy else None


def _says_compact(policy: str) -> bool:
    return "compact" in {each.strip() for each in policy.split(",")}
