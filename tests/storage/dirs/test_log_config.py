"""A topic's settings: its own, the broker's, or Kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.cluster.clusters import Clusters
from storage.dirs.cluster_image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from storage.dirs.discovery import discover
from storage.dirs.topic_settings import LogConfig, read_log_config
from storage.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def image(topic: dict[str, str], broker: dict[str, str] | None = None) -> ClusterImage:
    found = ClusterImage()
    found.configs[(TOPIC_RESOURCE, "t")] = topic
    found.configs[(BROKER_RESOURCE, "1")] = broker or {}
    return found


def test_kafkas_own_values() -> None:
    assert read_log_config(None, "t") == LogConfig()
    assert read_log_config(image({}), "t", broker_id=1) == LogConfig()


def test_the_topics_setting_comes_before_the_brokers() -> None:
    found = read_log_config(
        image(
            {"segment.bytes": "100", "message.timestamp.type": "LogAppendTime"},
            {"log.segment.bytes": "200", "log.index.size.max.bytes": "300", "log.roll.hours": "2"},
        ),
        "t",
        broker_id=1,
    )
    assert (found.segment_bytes, found.index_max_bytes) == (100, 300)
    assert found.segment_ms == 2 * 3_600_000
    assert found.is_log_append_time


def test_how_far_timestamps_may_be_from_the_clock() -> None:
    found = read_log_config(
        image(
            {"message.timestamp.after.max.ms": "5"},
            {"log.message.timestamp.after.max.ms": "6", "log.message.timestamp.before.max.ms": "7"},
        ),
        "t",
        broker_id=1,
    )
    assert (found.timestamp_before_max_ms, found.timestamp_after_max_ms) == (7, 5)


@pytest.mark.parametrize(
    ("policy", "is_compacted", "segment_ms"),
    [("delete", False, 9000), ("compact", True, 5000), ("delete, compact", True, 5000)],
)
def test_the_lag_of_compaction_rolls_too(policy: str, is_compacted: bool, segment_ms: int) -> None:
    settings = {
        "cleanup.policy": policy,
        "segment.ms": "9000",
        "max.compaction.lag.ms": "5000",
    }
    found = read_log_config(image(settings), "t")
    assert (found.is_compacted, found.segment_ms) == (is_compacted, segment_ms)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"segment\.bytes=many"):
        read_log_config(image({"segment.bytes": "many"}), "t")


def test_of_a_real_cluster(golden: Callable[[str], Path]) -> None:
    found = discover([golden("kafka-4.3.1") / "clean"])
    cluster = Clusters(found.log_dirs).image_for(found.log_dirs[0])
    assert read_log_config(cluster, "append-time", broker_id=1).is_log_append_time
    plain = read_log_config(cluster, "plain", broker_id=1)
    assert plain == LogConfig(segment_bytes=1048576, index_interval_bytes=512)
    compacted = read_log_config(cluster, "compacted", broker_id=1)
    assert (compacted.is_compacted, compacted.segment_ms) == (True, 1000)
