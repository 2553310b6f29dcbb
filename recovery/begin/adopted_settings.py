"""The settings that topics of dead brokers get, so that a first start deletes nothing.

Where the old cluster's metadata tell, they are taken over, but for what goes by other replicas, and
for how long records, and what compaction removes, are kept: what is too old would go minutes after
the start, and an outage counts, for tombstones, too. Where nothing tells, the log does: a cleaner
leaves gaps. Such a topic is compacted on, but not before somebody says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.begin.internal_topics import INTERNAL_TOPICS
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    SETTINGS,
    SettingSource,
    require_topic_setting,
    topic_setting,
)
from storage.errors import UsageError
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.begin.survey import Survey
    from storage.dirs.cluster_image import ClusterImage

CLEANUP_POLICY = "cleanup.policy"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
_KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_NEVER_YET = {MIN_COMPACTION_LAG: str(INT64_MAX)}
# They name replicas that are no more.
_OF_REPLICAS = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)


class AdoptedSettings(NamedTuple):
    """A topic's settings, and what is to be said of them."""

    settings: dict[str, str]
    notes: tuple[str, ...]


def adopted_settings(
    name: str,
    image: ClusterImage | None,
    surveys: Iterable[Survey],
    *,
    keeps_retention: bool = False,
) -> AdoptedSettings:
    """Choose the settings of a topic.

    Args:
        name: its name.
        image: the old cluster; None, or without the topic: what the copies show.
        surveys: of its copies.
        keeps_retention: as the metadata have it, whatever goes then.
    """
    if image is not None and name in image.topics:
        return _taken_over(name, image, keeps_retention=keeps_retention)
    if name in INTERNAL_TOPICS:
        return AdoptedSettings(dict(INTERNAL_TOPICS[name][1]), ())
    return _observed(name, list(surveys))


def _taken_over(name: str, image: ClusterImage, *, keeps_retention: bool) -> AdoptedSettings:
    own = image.configs.get((TOPIC_RESOURCE, name), {})
    settings, notes = dict[str, str](), list[str]()
    for key, value in sorted(own.items()):
        if key in _OF_REPLICAS:
            continue
        if key == MIN_INSYNC_REPLICAS and value != "1":
            notes.append(f"{name}: {key} was {value}, and is left out: there is one replica now")
            continue
        try:
            require_topic_setting(key, value)
        except UsageError as error:
            notes.append(f"{name}: left out: {error.message}")
            continue
        settings[key] = value
    for key in SETTINGS:  # those of all brokers are not taken over
        found = topic_setting(image, name, key)
        if found.source is SettingSource.ALL_BROKERS and key != MIN_INSYNC_REPLICAS:
            settings.setdefault(key, found.value)
    if settings.get("remote.storage.enable") == "true":
        notes.append(
            f"{name}: has segments in remote storage: the broker needs its settings of that, too"
        )
    if name in INTERNAL_TOPICS:
        return AdoptedSettings(INTERNAL_TOPICS[name][1] | settings, tuple(notes))
    if not keeps_retention:
        policy = settings.get(CLEANUP_POLICY, "delete")
        held: dict[str, str] = {}
        if "delete" in policy:
            held |= _KEPT_FOR_EVER
        if "compact" in policy:
            held |= _NEVER_YET
        was = [
            f"{key}={settings[key]}"
            for key in (*held, MAX_COMPACTION_LAG)
            if settings.get(key, held.get(key)) != held.get(key)
        ]
        if "compact" in policy:
            settings.pop(MAX_COMPACTION_LAG, None)  # must not be less than the least
        settings |= held
        if was:
            notes.append(f"{name}: had {' '.join(was)} (--keep-retention keeps that)")
    return AdoptedSettings(settings, tuple(notes))


def _observed(name: str, surveys: list[Survey]) -> AdoptedSettings:
    if not any(each.has_gaps for each in surveys):
        return AdoptedSettings(dict(_KEPT_FOR_EVER), ())
    if any(each.has_unkeyed for each in surveys):
        note = (
            f"{name}: its log has gaps, but also records without a key, which a cleaner would"
            " remove: it is not compacted"
        )
        return AdoptedSettings(dict(_KEPT_FOR_EVER), (note,))
    note = (
        f"{name}: its log has the gaps that compaction leaves: {CLEANUP_POLICY}=compact, and with"
        f" {MIN_COMPACTION_LAG}={INT64_MAX} nothing is cleaned before you have looked;"
        f" kafka-configs --alter --entity-type topics --entity-name {name}"
        f" --delete-config {MIN_COMPACTION_LAG} lets it go on"
    )
    return AdoptedSettings({CLEANUP_POLICY: "compact"} | _KEPT_FOR_EVER | _NEVER_YET, (note,))
