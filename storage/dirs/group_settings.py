"""The settings of groups: Kafka's defaults, and the setting in force.

A group's own setting counts first, then the broker's setting with another name, which is in its
`server.properties` and unknown here, then Kafka's default.

`GROUP_SETTINGS` is Kafka 4.4.0's table (GroupConfig).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.cluster_image import GROUP_RESOURCE

if TYPE_CHECKING:
    from storage.dirs.cluster_image import ClusterImage

STREAMS_ASSIGNOR = "streams.assignor.name"


class GroupSetting(NamedTuple):
    """Kafka's data of a setting.

    `broker_name` is its name for brokers, "" without one. A broker shows an internal setting only
    if it was set.
    """

    default: str
    type: str
    broker_name: str = ""
    is_internal: bool = False


def _of_broker(name: str, default: int) -> dict[str, GroupSetting]:
    return {name: GroupSetting(str(default), "int", f"group.{name}")}


def _internal(name: str, default: str, kind: str) -> dict[str, GroupSetting]:
    return {name: GroupSetting(default, kind, f"group.{name}", is_internal=True)}


GROUP_SETTINGS: dict[str, GroupSetting] = {
    **_of_broker("consumer.assignment.interval.ms", 1000),
    **_of_broker("consumer.heartbeat.interval.ms", 5000),
    **_of_broker("consumer.session.timeout.ms", 45_000),
    "errors.deadletterqueue.copy.record.enable": GroupSetting("false", "boolean"),
    "errors.deadletterqueue.topic.name": GroupSetting("", "string"),
    **_of_broker("share.assignment.interval.ms", 1000),
    "share.auto.offset.reset": GroupSetting("latest", "string"),
    **_of_broker("share.delivery.count.limit", 5),
    **_of_broker("share.heartbeat.interval.ms", 5000),
    "share.isolation.level": GroupSetting("read_uncommitted", "string"),
    **_of_broker("share.partition.max.record.locks", 2000),
    **_of_broker("share.record.lock.duration.ms", 30_000),
    "share.renew.acknowledge.enable": GroupSetting("true", "boolean"),
    **_of_broker("share.session.timeout.ms", 45_000),
    **_of_broker("streams.assignment.interval.ms", 1000),
    STREAMS_ASSIGNOR: GroupSetting("sticky", "string", "group.streams.assignors"),
    **_of_broker("streams.heartbeat.interval.ms", 5000),
    **_of_broker("streams.initial.rebalance.delay.ms", 3000),
    **_of_broker("streams.num.standby.replicas", 0),
    "streams.rack.aware.assignment.tags": GroupSetting(
        "", "list", "group.streams.rack.aware.assignment.tags"
    ),
    **_of_broker("streams.session.timeout.ms", 45_000),
    **_internal("consumer.assignor.offload.enable", "true", "boolean"),
    **_internal("share.assignor.offload.enable", "true", "boolean"),
    **_internal("streams.acceptable.recovery.lag", "10000", "long"),
    **_internal("streams.assignor.offload.enable", "true", "boolean"),
    **_internal("streams.num.warmup.replicas", "2", "int"),
    **_internal("streams.task.offset.interval.ms", "60000", "int"),
}


def streams_assignor(image: ClusterImage | None, group: str) -> str:
    """Return the name of the task assignor of a streams group."""
    own = {} if image is None else image.configs.get((GROUP_RESOURCE, group), {})
    return own.get(STREAMS_ASSIGNOR, GROUP_SETTINGS[STREAMS_ASSIGNOR].default)
