"""Answers about settings and directories: DescribeConfigs, ListConfigResources, DescribeLogDirs.

Settings are those of the metadata, else Kafka's defaults, marked as such: no file tells what a
broker's server.properties said. What may be a secret has no value.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from eoctl.serve.errors import ErrorCode
from storage.dirs.cluster_image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from storage.dirs.partition_files import list_partition
from storage.dirs.setting_values import SETTING_VALUES, Fraction, Numbers, Text
from storage.dirs.topic_settings import SETTINGS, SettingSource, topic_setting
from storage.errors import AccessError
from storage.file_names import DirState
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.serve.broker import Request, VirtualBroker
    from storage.dirs.log_dir import LogDir

SECRET = re.compile(r"password|secret|jaas|sasl|key|credential|token", re.IGNORECASE)


class Source(IntEnum):
    """Where a setting comes from, as clients know it."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    DEFAULT = 5


class SettingKind(IntEnum):
    """What its value is."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


SOURCES = {
    SettingSource.TOPIC: Source.TOPIC,
    SettingSource.BROKER: Source.BROKER,
    SettingSource.ALL_BROKERS: Source.ALL_BROKERS,
    SettingSource.DEFAULT: Source.DEFAULT,
}


def describe_configs(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeConfigs, of topics and brokers; of other resources nothing is known."""
    results = []
    for each in request.body["resources"]:
        kind, name, keys = each["resourceType"], each["resourceName"], each["configurationKeys"]
        code, configs = ErrorCode.NONE, []
        if kind == TOPIC_RESOURCE:
            if name in broker.catalogue.topics:
                configs = list(_of_topic(broker, name))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif kind == BROKER_RESOURCE:
            configs = list(_of_broker(broker, name))
        results.append(
            {
                "errorCode": code,
                "errorMessage": "" if code is ErrorCode.NONE else None,
                "resourceType": kind,
                "resourceName": name,
                "configs": [
                    found if request.body["includeSynonyms"] else {**found, "synonyms": []}
                    for found in configs
                    if keys is None or found["name"] in keys
                ],
            }
        )
    return {"results": results}


def _of_topic(broker: VirtualBroker, topic: str) -> Iterator[dict[str, Any]]:
    image = broker.catalogue.image or ClusterImage()
    for name in SETTINGS:
        found = topic_setting(image, topic, name, broker_id=broker.node_id)
        source = SOURCES[found.source]
        synonyms = [{"name": found.source_name, "value": found.value, "source": source}]
        if source is not Source.DEFAULT:
            own = SETTINGS[name]
            default_name = own.broker_names[0] if own.broker_names else name
            synonyms.append({"name": default_name, "value": own.default, "source": Source.DEFAULT})
        elif SETTINGS[name].broker_names:
            synonyms[0]["name"] = SETTINGS[name].broker_names[0]
        yield {
            "name": name,
            "value": found.value,
            "readOnly": False,
            "configSource": source,
            "isSensitive": False,
            "synonyms": synonyms,
            "configType": _kind(name),
        }


def _kind(name: str) -> SettingKind:
    values = SETTING_VALUES[name]
    if isinstance(values, Numbers):
        return SettingKind.LONG if values.high == INT64_MAX else SettingKind.INT
    if isinstance(values, Fraction):
        return SettingKind.DOUBLE
    if isinstance(values, Text):
        return SettingKind.LIST
    if values.is_list:
        return SettingKind.LIST
    return SettingKind.BOOLEAN if {*values.words} == {"true", "false"} else SettingKind.STRING


def _of_broker(broker: VirtualBroker, name: str) -> Iterator[dict[str, Any]]:
    """What the metadata have of a broker; "": of all of them."""
    image = broker.catalogue.image
    if image is None:
        return
    own = image.configs.get((BROKER_RESOURCE, name), {})
    for_all = image.configs.get((BROKER_RESOURCE, ""), {})
    for key in sorted({**for_all, **own}):
        is_own = key in own and name != ""
        is_secret = SECRET.search(key) is not None
        yield {
            "name": key,
            "value": None if is_secret else {**for_all, **own}[key],
            "readOnly": False,
            "configSource": Source.BROKER if is_own else Source.ALL_BROKERS,
            "isSensitive": is_secret,
            "synonyms": [],
            "configType": SettingKind.UNKNOWN,
        }


def list_config_resources(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ListConfigResources."""
    wanted = request.body.get("resourceTypes") or (TOPIC_RESOURCE, BROKER_RESOURCE)
    found = []
    if request.version >= 1:
        if TOPIC_RESOURCE in wanted:
            found += [(name, TOPIC_RESOURCE) for name in broker.catalogue.topics]
        if BROKER_RESOURCE in wanted:
            found.append((str(broker.node_id), BROKER_RESOURCE))
    return {
        "configResources": [{"resourceName": name, "resourceType": kind} for name, kind in found]
    }


def describe_log_dirs(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeLogDirs: what is in which directory."""
    asked = request.body["topics"]
    wanted = None
    if asked is not None:
        wanted = {(each["topic"], number) for each in asked for number in each["partitions"]}
    return {
        "errorCode": ErrorCode.NONE,
        "results": [_directory(broker, each, wanted) for each in broker.catalogue.log_dirs],
    }


def _directory(
    broker: VirtualBroker, log_dir: LogDir, wanted: set[tuple[str, int]] | None
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for each in log_dir.partitions:
        name = each.name
        is_wanted = wanted is None or (name.topic, name.partition) in wanted
        if name.state is not DirState.LIVE or not is_wanted:
            continue
        if not broker.catalogue.rules.wants(name.topic):
            continue
        with suppress(AccessError):
            topics.setdefault(name.topic, []).append(
                {
                    "partitionIndex": name.partition,
                    "partitionSize": list_partition(each.path).log_bytes,
                    "offsetLag": 0,
                    "isFutureKey": False,
                }
            )
    total_bytes = usable_bytes = -1
    with suppress(OSError):
        disk = os.statvfs(log_dir.path)
        total_bytes = disk.f_blocks * disk.f_frsize
        usable_bytes = disk.f_bavail * disk.f_frsize
    return {
        "errorCode": ErrorCode.NONE,
        "logDir": log_dir.path,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
        "totalBytes": total_bytes,
        "usableBytes": usable_bytes,
    }
