"""From the options of `rebuild` to one job a partition: whose settings hold for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.clock import resolve_now
from recovery.rebuild.derive import RebuildSettings
from recovery.rebuild.index_builder import DEFAULT_INDEX_MAX_BYTES, DEFAULT_INTERVAL_BYTES
from recovery.rebuild.many import RebuildJob
from storage.dirs.discovery import discover
from storage.errors import UsageError
from storage.file_names import METADATA_TOPIC, DirState
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from recovery.cluster.clusters import Clusters
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Discovery

# As a topic has it, and as a broker has it for all topics.
INTERVAL_SETTINGS = ("index.interval.bytes", "log.index.interval.bytes")
INDEX_SIZE_SETTINGS = ("segment.index.bytes", "log.index.size.max.bytes")


def rebuild_jobs(
    paths: Sequence[str],
    *,
    interval_bytes: int | None,
    index_max_bytes: int | None,
    preallocate: bool,
    expiration_ms: int | None,
    now: str | None,
    metadata_dir: str | None,
    is_applied: bool = False,
) -> tuple[list[RebuildJob], list[str]]:
    """Make the jobs, and notes that say where the clock and the settings come from.

    Directories that are being deleted are passed over, and so is the metadata log if it would be
    changed, unless it is asked for by its name: that is refused.

    Raises:
        UsageError: no partition there.
    """
    found = discover(paths)
    clusters = _clusters(found, metadata_dir)
    log_dirs = [each.path for each in found.log_dirs]
    moment = resolve_now(now, log_dirs)
    notes = [moment.describe(), *map(str, found.problems)]
    jobs = []
    named = named_directories(paths)
    for selected in found.selected:
        if selected.partition.name.state is DirState.DELETE:
            notes.append(f"{selected.partition.path}: passed over, it is being deleted")
            continue
        is_metadata = selected.partition.name.topic == METADATA_TOPIC
        if is_applied and is_metadata and not is_named(selected.partition.path, named):
            notes.append(f"{selected.partition.path}: passed over, it is never changed")
            continue
        image = None if clusters is None else clusters.image_for(selected.log_dir)
        topic = selected.partition.name.topic
        interval = interval_bytes
        if interval is None:
            interval = _setting(image, topic, *INTERVAL_SETTINGS, DEFAULT_INTERVAL_BYTES)
            notes += _doubts_of_interval(selected.partition.path, image, interval)
        settings = RebuildSettings(
            now_ms=moment.ms,
            interval_bytes=interval,
            expiration_ms=DEFAULT_EXPIRATION_MS if expiration_ms is None else expiration_ms,
        )
        largest = index_max_bytes or _setting(
            image, topic, *INDEX_SIZE_SETTINGS, DEFAULT_INDEX_MAX_BYTES
        )
        jobs.append(
            RebuildJob(
                selected=selected,
                settings=settings,
                index_max_bytes=largest,
                preallocate=preallocate,
            )
        )
    if not jobs:
        raise UsageError(
            "no partition there that can be changed", next_step="eoctl describe PATH..."
        )
    return jobs, notes


def _doubts_of_interval(
    path: str, image: ClusterImage | None, interval_bytes: int
) -> Iterator[str]:
    """Say why `index.interval.bytes` may be another than what is taken for it."""
    if image is None:
        yield (
            f"{path}: no cluster metadata: index.interval.bytes taken as {DEFAULT_INTERVAL_BYTES}"
        )
    elif image.problems:
        yield (
            f"{path}: the cluster metadata cannot be read in full, so index.interval.bytes may be"
            f" another than {interval_bytes}: {image.problems[0]}"
        )


def named_directories(paths: Iterable[str]) -> frozenset[Path]:
    """Return the real paths of the PATHs and of all directories around them."""
    real = [Path(os.path.realpath(each)) for each in paths]
    return frozenset(around for each in real for around in (each, *each.parents))


def is_named(partition_path: str, named: Collection[Path]) -> bool:
    """Whether one of the PATHs is the directory itself, or lies in it.

    Args:
        partition_path: the directory.
        named: `named_directories` of the PATHs, made once for all partitions.
    """
    return Path(os.path.realpath(partition_path)) in named


def _clusters(found: Discovery, metadata_dir: str | None) -> Clusters | None:
    """Return what knows the topics' settings; None without any cluster metadata."""
    has_metadata = any(
        each.name.topic == METADATA_TOPIC
        for log_dir in found.log_dirs
        for each in log_dir.partitions
    )
    if metadata_dir is None and not has_metadata:
        return None
    from recovery.cluster.clusters import Clusters, find_metadata

    metadata = None if metadata_dir is None else find_metadata(metadata_dir)
    return Clusters(found.log_dirs, metadata)


def _setting(
    image: ClusterImage | None, topic: str, topic_key: str, broker_key: str, default: int
) -> int:
    """Return the topic's setting, else the broker's dynamic one, else Kafka's default."""
    if image is None:
        return default
    for value in (image.topic_config(topic, topic_key), image.broker_config(broker_key)):
        if value is not None and value.isdecimal():
            return int(value)
    return default
