"""Answers about settings and directories: DescribeConfigs, ListConfigResources, DescribeLogDirs.

Settings come from the metadata, or else from Kafka's defaults, marked as defaults. No file on disk
holds a broker's server.properties. A setting that may be a secret has no value.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from enum import IntEnum
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from eoctl.serve.protocol.messages import ErrorCode, RequestError
from storage.dirs.cluster_image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from storage.dirs.group_settings import GROUP_SETTINGS
from storage.dirs.partition_files import list_partition
from storage.dirs.topic_settings import (
    FACTORS,
    SETTING_VALUES,
    SETTINGS,
    Fraction,
    Numbers,
    SettingSource,
    Text,
    topic_setting,
)
from storage.errors import AccessError
from storage.file_names import DirState, is_topic_name
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.serve.state.broker import Request, VirtualBroker
    from storage.dirs.log_dir import LogDir

SECRET = re.compile(r"password|secret|jaas|sasl|key|credential|token", re.IGNORECASE)


class Source(IntEnum):
    """The source of a setting, as clients know it."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class SettingKind(IntEnum):
    """The type of a setting's value."""

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


LOGGERS, CLIENT_METRICS = 8, 16  # types of resources, beside topics, brokers and groups
# Internal topic settings of Kafka, shown only if they were set.
INTERNAL_KINDS = {"internal.segment.bytes": SettingKind.INT}
# Broker setting -> topic setting.
TOPIC_NAMES = {other: name for name, each in SETTINGS.items() for other in each.broker_names}
OF_BROKERS = (BROKER_RESOURCE, LOGGERS)
OF_NAMES = {CLIENT_METRICS: Source.CLIENT_METRICS, GROUP_RESOURCE: Source.GROUP}
GROUP_KINDS = {
    "boolean": SettingKind.BOOLEAN,
    "string": SettingKind.STRING,
    "int": SettingKind.INT,
    "long": SettingKind.LONG,
    "list": SettingKind.LIST,
}
KINDS = {TOPIC_RESOURCE, *OF_BROKERS, *OF_NAMES}


def describe_configs(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeConfigs, for topics, brokers, groups and client metrics."""
    results = []
    kinds = {each["resourceType"] for each in request.body["resources"]}
    for each in request.body["resources"]:
        kind, name, keys = each["resourceType"], each["resourceName"], each["configurationKeys"]
        code, message, configs = ErrorCode.NONE, "", []
        try:
            _require_known(kinds)
            configs = list(_configs(broker, kind, name))
        except RequestError as exc:
            code, message = exc.code, exc.message
        results.append(
            {
                "errorCode": code,
                "errorMessage": message,
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


def _require_known(kinds: set[int]) -> None:
    """Require that all kinds of resources are known. Otherwise a broker answers none of them."""
    if not kinds <= KINDS:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Unsupported resource type")


def _configs(broker: VirtualBroker, kind: int, name: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of a resource. Raises RequestError: there is no such resource."""
    if kind == TOPIC_RESOURCE:
        if not is_topic_name(name):
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"not a topic's name: {name!r}")
        if name not in broker.catalogue.topics:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _of_topic(broker, name)
    if kind in OF_BROKERS and name not in (str(broker.node_id), ""):
        words = f"expected {broker.node_id} or empty string, but received {name}"
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {words}")
    if kind == BROKER_RESOURCE:
        return _of_broker(broker, name)
    if kind in OF_NAMES and not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the name must not be empty")
    if kind == GROUP_RESOURCE:
        return _of_group(broker, name)
    if kind == CLIENT_METRICS:
        return _of_name(broker, kind, name)
    return iter(())


def _of_topic(broker: VirtualBroker, topic: str) -> Iterator[dict[str, Any]]:
    image = broker.catalogue.image or ClusterImage()
    for name in SETTINGS:
        found = topic_setting(image, topic, name, broker_id=broker.node_id)
        yield _reported(
            name,
            found.value,
            SOURCES[found.source],
            kind=_kind(name),
            synonyms=list(_synonyms(image, topic, name, broker.node_id)),
        )
    for name, value in image.configs.get((TOPIC_RESOURCE, topic), {}).items():
        if name not in SETTINGS:
            yield _not_public(name, value, Source.TOPIC)


def _not_public(name: str, value: str, source: Source) -> dict[str, Any]:
    """Return the entry of a setting in the metadata that is not a public Kafka setting.

    As with a broker, the value of an unknown setting may be a secret and is not shown.
    """
    kind = INTERNAL_KINDS.get(name, SettingKind.UNKNOWN)
    shown = None if kind is SettingKind.UNKNOWN else value
    synonyms = [{"name": name, "value": shown, "source": source}]
    found = _reported(name, shown, source, kind=kind, synonyms=synonyms)
    return {**found, "isSensitive": shown is None}


def _reported(
    name: str,
    value: str | None,
    source: Source,
    *,
    kind: SettingKind,
    synonyms: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the entry of a setting in an answer."""
    return {
        "name": name,
        "value": value,
        "readOnly": False,
        "configSource": source,
        "isSensitive": False,
        "synonyms": synonyms,
        "configType": kind,
        "documentation": None,
    }


def _synonyms(image: ClusterImage, topic: str, name: str, node_id: int) -> Iterator[dict[str, Any]]:
    """Yield all places that set a topic setting, the effective place first."""
    own = image.topic_config(topic, name)
    if own is not None:
        yield {"name": name, "value": own, "source": Source.TOPIC}
    if SETTINGS[name].broker_names:
        yield from _broker_synonyms(image, name, node_id)


def _broker_synonyms(image: ClusterImage, name: str, node_id: int) -> Iterator[dict[str, Any]]:
    """Yield what sets it for brokers, by source, from its first name on, as a broker does."""
    known = SETTINGS[name]
    last = known.broker_names[-1]  # the default is known for this name, in its unit
    default = str(int(known.default) // FACTORS[last]) if last in FACTORS else known.default
    places = (
        (Source.BROKER, image.configs.get((BROKER_RESOURCE, str(node_id)), {})),
        (Source.ALL_BROKERS, image.configs.get((BROKER_RESOURCE, ALL_BROKERS), {})),
        (Source.DEFAULT, {last: default}),
    )
    found = (
        {"name": other, "value": values[other], "source": source}
        for source, values in places
        for other in known.broker_names
        if other in values
    )
    return dropwhile(lambda each: each["name"] != known.broker_names[0], found)


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
    """Yield the settings of a broker in the metadata, or of all brokers if the name is empty."""
    image = broker.catalogue.image
    if image is None:
        return
    own = image.configs.get((BROKER_RESOURCE, name), {})
    for_all = image.configs.get((BROKER_RESOURCE, ""), {})
    for key in sorted({**for_all, **own}):
        is_own = key in own and name != ""
        is_secret = SECRET.search(key) is not None
        places = ((Source.BROKER, own if name else {}), (Source.ALL_BROKERS, for_all))
        synonyms = [
            {"name": key, "value": None if is_secret else values[key], "source": source}
            for source, values in places
            if key in values
        ]
        if name and key in TOPIC_NAMES:
            synonyms = list(_broker_synonyms(image, TOPIC_NAMES[key], broker.node_id))
        value = None if is_secret else {**for_all, **own}[key]
        source = Source.BROKER if is_own else Source.ALL_BROKERS
        kind = _kind(TOPIC_NAMES[key]) if key in TOPIC_NAMES else SettingKind.UNKNOWN
        yield {
            **_reported(key, value, source, kind=kind, synonyms=synonyms),
            "isSensitive": is_secret,
        }


def _of_group(broker: VirtualBroker, group: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of a group, which need not exist, with Kafka's defaults."""
    image = broker.catalogue.image
    own = {} if image is None else image.configs.get((GROUP_RESOURCE, group), {})
    for name, known in GROUP_SETTINGS.items():
        if known.is_internal and name not in own:
            continue
        value, source = known.default, Source.DEFAULT
        synonyms = [{"name": known.broker_name or name, "value": value, "source": source}]
        if name in own:
            value, source = own[name], Source.GROUP
            synonyms.insert(0, {"name": name, "value": value, "source": source})
        yield _reported(name, value, source, kind=GROUP_KINDS[known.type], synonyms=synonyms)
    for name, value in own.items():
        if name not in GROUP_SETTINGS:
            yield _not_public(name, value, Source.GROUP)


def _of_name(broker: VirtualBroker, kind: int, name: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of client metrics in the metadata, without defaults."""
    image = broker.catalogue.image
    for key, value in ({} if image is None else image.configs.get((kind, name), {})).items():
        source = OF_NAMES[kind]
        synonyms = [{"name": key, "value": value, "source": source}]
        yield _reported(key, value, source, kind=SettingKind.UNKNOWN, synonyms=synonyms)


def list_config_resources(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ListConfigResources."""
    is_any = request.version >= 1
    every = (TOPIC_RESOURCE, *OF_BROKERS, *OF_NAMES) if is_any else (CLIENT_METRICS,)
    wanted = request.body.get("resourceTypes") or every
    if not {*wanted} <= {*every}:
        return {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "configResources": []}
    found = []
    if TOPIC_RESOURCE in wanted:
        found += [(name, TOPIC_RESOURCE) for name in broker.catalogue.topics]
    found += [(str(broker.node_id), each) for each in OF_BROKERS if each in wanted]
    image = broker.catalogue.image or ClusterImage()
    found += [(name, kind) for kind, name in image.configs if kind in OF_NAMES and kind in wanted]
    return {
        "configResources": [{"resourceName": name, "resourceType": kind} for name, kind in found]
    }


def describe_log_dirs(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeLogDirs: the partitions of each directory."""
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
