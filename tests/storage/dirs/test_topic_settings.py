"""Which setting of a topic is in force, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.cluster.clusters import Clusters
from storage.dirs.cluster_image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from storage.dirs.discovery import discover
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    SettingInForce,
    SettingSource,
    is_under_min_isr,
    min_insync_replicas,
    topic_setting,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def image_of(
    topic: dict[str, str], broker: dict[str, str], brokers: dict[str, str]
) -> ClusterImage:
    image = ClusterImage()
    image.configs[(TOPIC_RESOURCE, "t")] = topic
    image.configs[(BROKER_RESOURCE, "1")] = broker
    image.configs[(BROKER_RESOURCE, ALL_BROKERS)] = brokers
    return image


def test_the_topic_then_its_broker_then_all_brokers_then_kafka() -> None:
    hours = {"log.retention.hours": "2"}
    own = image_of({"retention.ms": "5"}, hours, {"log.retention.ms": "9"})
    assert topic_setting(own, "t", "retention.ms", broker_id=1) == SettingInForce(
        "retention.ms", "5", SettingSource.TOPIC, "retention.ms"
    )
    assert topic_setting(own, "other", "retention.ms", broker_id=1) == SettingInForce(
        "retention.ms", "9", SettingSource.ALL_BROKERS, "log.retention.ms"
    )
    of_broker = image_of({}, hours, {})
    assert topic_setting(of_broker, "t", "retention.ms", broker_id=1) == SettingInForce(
        "retention.ms", "7200000", SettingSource.BROKER, "log.retention.hours"
    )
    for broker_id in (None, -1, 2):
        assert topic_setting(of_broker, "t", "retention.ms", broker_id=broker_id) == SettingInForce(
            "retention.ms", "604800000", SettingSource.DEFAULT, "retention.ms"
        )


@pytest.mark.parametrize(
    ("setting", "isr", "leader", "expected"),
    [
        ("2", (1, 2), 1, (2, False)),
        ("2", (1,), 1, (2, True)),
        ("5", (1, 2, 3), 1, (3, False)),  # never more than there are replicas
        ("2", (1, 2), -1, (2, True)),  # nobody leads
        ("many", (1,), 1, (1, False)),
    ],
)
def test_how_many_must_be_in_sync(
    setting: str, isr: tuple[int, ...], leader: int, expected: tuple[int, bool]
) -> None:
    image = image_of({MIN_INSYNC_REPLICAS: setting}, {}, {})
    partition = PartitionImage((1, 2, 3), isr, (), (), leader, 0, 0, ())
    image.topics["t"] = TopicImage("t", bytes(16), {0: partition})
    found = (min_insync_replicas(image, "t", 0), is_under_min_isr(image, "t", 0))
    assert found == expected


def test_of_a_real_cluster(golden: Callable[[str], Path]) -> None:
    found = discover([golden("kafka-4.3.1") / "crash"])
    image = Clusters(found.log_dirs).image_for(found.log_dirs[0])
    assert image is not None
    # A new cluster of a release with ELR says this itself, for all brokers or for each.
    least = topic_setting(image, "plain", MIN_INSYNC_REPLICAS, broker_id=1)
    assert (least.value, least.source_name) == ("1", MIN_INSYNC_REPLICAS)
    assert least.source in {SettingSource.BROKER, SettingSource.ALL_BROKERS}
    assert topic_setting(image, "plain", "index.interval.bytes").source is SettingSource.TOPIC
