"""Where the logs begin and end that groups have committed offsets of.

Of several copies of a partition the one that reaches furthest counts.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.internal_topics import furthest
from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.file_names import DirState, TopicPartition
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, PartitionDir, Problem
    from storage.formats.checkpoint import LeaderEpochEntry


class OffsetPlace(StrEnum):
    """Where a committed offset lies, which decides where a consumer goes on."""

    IN_LOG = "in-log"  # at its end included
    BELOW_START = "below-start"  # auto.offset.reset decides: what was there is deleted
    BEYOND_END = "beyond-end"  # likewise: the log has lost its end
    NO_LOG = "no-log"  # not given, or it cannot be read


class LogReach(NamedTuple):
    """A log, as far as it can be read.

    Attributes:
        high_watermark: as checkpointed; None: unknown.
        end_offset: one above the last batch.
        path: of the copy.
        epochs: its leader epochs; empty: not known.
    """

    start_offset: int
    end_offset: int
    high_watermark: int | None
    path: str
    epochs: tuple[LeaderEpochEntry, ...] = ()

    def leader_epoch_before(self, offset: int) -> int | None:
        """The leader epoch of the record before an offset; None: not known."""
        found = [each.epoch for each in self.epochs if each.start_offset < offset]
        return max(found, default=None)

    def place_of(self, offset: int) -> OffsetPlace:
        """Tell where an offset lies."""
        if offset < self.start_offset:
            return OffsetPlace.BELOW_START
        return OffsetPlace.BEYOND_END if offset > self.end_offset else OffsetPlace.IN_LOG


class LogPlaces:
    """The logs in some log dirs of one cluster, each looked at when it is asked for.

    Attributes:
        problems: what could not be read of them.
    """

    def __init__(self, log_dirs: Iterable[LogDir], image: ClusterImage | None = None) -> None:
        self.problems: list[Problem] = []
        self._image = image
        self._known: dict[TopicPartition, LogReach | None] = {}
        self._directories: dict[TopicPartition, list[tuple[PartitionDir, LogDir]]] = {}
        self._names: dict[str, str] | None = None
        for log_dir in log_dirs:
            for each in log_dir.partitions:
                if each.name.state is DirState.LIVE:
                    key = TopicPartition(each.name.topic, each.name.partition)
                    self._directories.setdefault(key, []).append((each, log_dir))

    def of(self, key: TopicPartition) -> LogReach | None:
        """Return where a log begins and ends; None: it is not here, or cannot be read."""
        if key not in self._known:
            self._known[key] = self._look(key)
        return self._known[key]

    def _look(self, key: TopicPartition) -> LogReach | None:
        try:
            copies = [Partition(*each, self._image) for each in self._directories.get(key, ())]
            for source in furthest(copies):
                end, start_offset = source.log_end(), source.log_start_offset
                for problem in source.problems:
                    self.problems.append(problem.without_frames())
                if end is not None and start_offset is not None:
                    return LogReach(
                        start_offset=start_offset,
                        end_offset=end.offset,
                        high_watermark=source.high_watermark,
                        path=source.path,
                        epochs=tuple(source.leader_epochs() or ()),
                    )
        except AccessError as exc:
            self.problems.append(exc.without_frames())
        return None

    def is_known(self, key: TopicPartition) -> bool | None:
        """Whether the cluster has a partition; None: nothing tells."""
        if self._image is None:
            return True if key in self._directories else None
        return self._image.partition(*key) is not None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id, by the metadata or a partition's own file."""
        topic = None if self._image is None else self._image.topic_by_id(topic_id)
        if topic is not None:
            return topic.name
        if self._names is None:
            self._names = self._own_names()
        return self._names.get(format_uuid(topic_id))

    def _own_names(self) -> dict[str, str]:
        found = {}
        for key, directories in self._directories.items():
            with suppress(AccessError):
                own_id = Partition(*directories[0]).topic_id()
                if own_id is not None:
                    found[own_id] = key.topic
        return found
