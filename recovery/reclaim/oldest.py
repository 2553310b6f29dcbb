"""Class F: the oldest whole segments of all partitions, until enough room is free.

Segments go by the largest timestamp of their records, as retention sees it: the last entry of the
`.timeindex`, else the time of the `.log`. In each partition they go in order. The last segment
stays, and so does everything above the high watermark.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.file_facts import freed_bytes
from recovery.trim.plan import known_high_watermark, require_trimmable
from storage.dirs.log_dir import StoppedState
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition_files import SegmentFiles


def choose_oldest(
    selected: Iterable[Selected],
    image_for: Callable[[LogDir | None], ClusterImage | None],
    wanted_bytes: int,
) -> list[tuple[Selected, int, int]]:
    """Choose the oldest segments of all partitions until they free `wanted_bytes`.

    Compacted topics, topics of coordinators and logs with problems are left out.

    Returns:
        The partitions, each with its new log start and the largest timestamp in its first segment.
    """
    heads: list[tuple[int, int]] = []
    logs: list[tuple[Selected, Partition, int]] = []
    for each in selected:
        name = each.partition.name
        if name.state is not DirState.LIVE or name.topic == METADATA_TOPIC:
            continue
        image = image_for(each.log_dir)
        try:
            partition = Partition.of(each, image)
            require_trimmable(partition, image)
            high_watermark = known_high_watermark([partition], image, None)
        except EoctlError:
            continue
        if high_watermark is None or partition.stopped is StoppedState.LIVE:
            continue
        if _may_go(partition, 0, high_watermark):
            heads.append((_largest_ms(partition, partition.segments[0]), len(logs)))
        logs.append((each, partition, high_watermark))
    heapq.heapify(heads)
    chosen: dict[int, tuple[Selected, int, int]] = {}
    places = [0] * len(logs)
    freed = 0
    while heads and freed < wanted_bytes:
        time_ms, number = heapq.heappop(heads)
        found, partition, high_watermark = logs[number]
        files, later = partition.segments[places[number] :][:2]
        places[number] += 1
        freed += _freed(files)
        oldest_ms = chosen[number][2] if number in chosen else time_ms
        chosen[number] = found, later.base_offset, oldest_ms
        if _may_go(partition, places[number], high_watermark):
            following = partition.segments[places[number]]
            heapq.heappush(heads, (_largest_ms(partition, following), number))
    return sorted(chosen.values(), key=lambda each: each[2])


def _may_go(partition: Partition, place: int, high_watermark: int) -> bool:
    segments = partition.segments
    return len(segments) > place + 1 and segments[place + 1].base_offset <= high_watermark


def _largest_ms(partition: Partition, files: SegmentFiles) -> int:
    entries = partition.time_index_entries(files)
    if entries and entries[-1].timestamp_ms >= 0:
        return entries[-1].timestamp_ms
    try:
        return Path(files.log.path).stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _freed(files: SegmentFiles) -> int:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index)
    return sum(freed_bytes(each.path) for each in entries if each is not None)
