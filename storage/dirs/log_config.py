"""The settings of a topic that decide how its log is written (Kafka's LogConfig).

A topic's own setting counts, else the broker's dynamic one, both from `__cluster_metadata`, else
Kafka's default. What a broker has in its `server.properties` is not known here.

topic setting           setting of the broker             default        decides
segment.bytes           log.segment.bytes                 1073741824     ROLL-1
segment.ms              log.roll.ms (log.roll.hours)      604800000      ROLL-2
index.interval.bytes    log.index.interval.bytes          4096           APP-8
segment.index.bytes     log.index.size.max.bytes          10485760       ROLL-1
max.message.bytes       message.max.bytes                 1048588        APP-2
max.compaction.lag.ms   log.cleaner.max.compaction.lag.ms 2^63-1         ROLL-3
message.timestamp.type  log.message.timestamp.type        CreateTime     APP-5
message.timestamp.      log.message.timestamp.
  before.max.ms         before.max.ms                     2^63-1         APP-3
  after.max.ms          after.max.ms                      3600000        APP-3 (KIP-1030, Kafka 4)
cleanup.policy          log.cleanup.policy                delete         APP-3: records need keys
compression.type        compression.type                  producer       the codec
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import RefusedError
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from storage.dirs.cluster_image import ClusterImage

HOUR_MS = 3_600_000
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


class _Settings:
    """Looks up one topic's settings."""

    def __init__(self, image: ClusterImage, topic: str, broker_id: int | None) -> None:
        self._image = image
        self._topic = topic
        self._broker_id = broker_id

    def text(self, key: str, broker_key: str, default: str) -> str:
        value = self._image.topic_config(self._topic, key)
        if value is None:
            value = self._image.broker_config(broker_key, broker_id=self._broker_id)
        return default if value is None else value

    def number(self, key: str, broker_key: str, default: int) -> int:
        value = self.text(key, broker_key, str(default))
        try:
            return int(value)
        except ValueError:
            raise RefusedError(f"{self._topic}: the setting {key}={value} is no number") from None


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
    default = LogConfig()
    roll_hours = settings.number("", "log.roll.hours", default.segment_ms // HOUR_MS)
    segment_ms = settings.number("segment.ms", "log.roll.ms", roll_hours * HOUR_MS)
    policy = settings.text("cleanup.policy", "log.cleanup.policy", "delete")
    is_compacted = "compact" in {each.strip() for each in policy.split(",")}
    if is_compacted:
        lag_ms = settings.number(
            "max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", INT64_MAX
        )
        segment_ms = min(segment_ms, lag_ms) if lag_ms > 0 else segment_ms
    timestamp_type = settings.text(
        "message.timestamp.type", "log.message.timestamp.type", "CreateTime"
    )
    return LogConfig(
        segment_bytes=settings.number("segment.bytes", "log.segment.bytes", default.segment_bytes),
        segment_ms=segment_ms,
        index_interval_bytes=settings.number(
            "index.interval.bytes", "log.index.interval.bytes", default.index_interval_bytes
        ),
        index_max_bytes=settings.number(
            "segment.index.bytes", "log.index.size.max.bytes", default.index_max_bytes
        ),
        max_message_bytes=settings.number(
            "max.message.bytes", "message.max.bytes", default.max_message_bytes
        ),
        is_log_append_time=timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=settings.number(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            default.timestamp_before_max_ms,
        ),
        timestamp_after_max_ms=settings.number(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            default.timestamp_after_max_ms,
        ),
        is_compacted=is_compacted,
        compression_type=settings.text(
            "compression.type", "compression.type", PRODUCER_COMPRESSION
        ),
    )
