"""Partitions that a log dir should have and that are in none of the directories that were given.

A partition whose directory is gone leaves its lines in the log dir's checkpoints, and its place in
the cluster's metadata. What of it is gone for certain, and how much, depends on which of them
speak of it:

  recovery point     written for every replica of the log dir, taken out when one is deleted or
                     moved: the replica was here
  high watermark     may be stale where the last replica of a log dir was deleted: a broker then
                     does not write that file any more
  metadata           the replica belongs to this node, and to this log dir where they name one; it
                     may never have been created, if the broker was stopped before that
  another log dir    the node has the partition there: it was moved, the line is an old one

Sources: LogManager.asyncDelete and checkpointLogsInDir, ReplicaManager.checkpointHighWatermarks,
ReplicaManager.applyDelta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.placement import HeldBack, NodePlacement, nodes_of
from storage.dirs.acknowledged import Missing, checkpoint_claims
from storage.dirs.log_dir import PartitionDir, StoppedState
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    DirState,
    TopicPartition,
)
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.cluster.clusters import Clusters
    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.log_dir import LogDir


class AbsentPartition(NamedTuple):
    """A partition without a directory.

    Attributes:
        key: topic and partition.
        log_dir: the path of the one that speaks of it.
        lines: file name and offset of each checkpoint that has it.
        missing: what was acknowledged; None: nothing is known to be lost.
        why: where else it may be, or why nothing is known, in words.
        path: the directory that has its records, and that no broker serves; "" if there is none.
    """

    key: TopicPartition
    log_dir: str
    lines: tuple[tuple[str, int], ...]
    missing: Missing | None
    why: str
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{self.path}: {self.key}: {self.missing}"
        what = "nothing is known to be lost" if self.missing is None else str(self.missing)
        return f"{self.log_dir}: {self.key} is not in the given directories: {what}; {self.why}"


def find_absent(
    log_dirs: Sequence[LogDir], clusters: Clusters, held_back: Iterable[HeldBack] = ()
) -> list[AbsentPartition]:
    """Find the partitions that have no directory, with what was acknowledged of them.

    Nothing is said of a broker that runs: directories and lines come and go all the time.

    Args:
        log_dirs: those that were given as a whole; all of one node, for what lies in another.
        clusters: for their metadata, which are only read if a partition is absent.
        held_back: what directories with a suffix have.
    """
    found: list[AbsentPartition] = []
    held = {each.key: each for each in held_back}
    for log_dir in log_dirs:
        if log_dir.is_log_dir and log_dir.stopped is not StoppedState.LIVE:
            found += _Look(log_dir, log_dirs, clusters, held).absent()
    return found


def find_held_back(log_dirs: Sequence[LogDir], clusters: Clusters) -> Iterator[HeldBack]:
    """Find records of live topics that only directories with a suffix have.

    The metadata are only read if there is such a directory.
    """
    for node in nodes_of(log_dirs):
        if any(each.name.state is not DirState.LIVE for one in node for each in one.partitions):
            yield from NodePlacement(node, clusters.image_for(node[0])).held_back()


def lost_partitions(
    log_dirs: Sequence[LogDir], clusters: Clusters | None = None
) -> list[AbsentPartition]:
    """Find partitions of which something is lost to a reader of all of the live directories."""
    if clusters is None:
        from recovery.cluster.clusters import Clusters as NewClusters

        clusters = NewClusters(log_dirs)
    held = list(find_held_back(log_dirs, clusters))
    absent = find_absent(log_dirs, clusters, held)
    return [*(each for each in absent if each.missing is not None), *map(_of_held_back, held)]


def not_understood(log_dirs: Sequence[LogDir], clusters: Clusters) -> list[str]:
    """Say which metadata logs have records that this release of eoctl does not understand.

    What the metadata say of topics and settings may then be of an older state.
    """
    return not_understood_of(clusters.image_for(each) for each in log_dirs)


def not_understood_of(images: Iterable[ClusterImage | None]) -> list[str]:
    """Return the sentences of `not_understood`, for images that the caller has read."""
    return [
        f"{path}: {count} metadata record{'s' * (count != 1)} of a newer release could not be read:"
        " topics and settings may be of an older state"
        for path, count in {
            each.path: each.unknown_records_count for each in images if each is not None
        }.items()
        if count
    ]


def doubts_around(log_dirs: Sequence[LogDir]) -> list[str]:
    """Say both of log dirs: which partitions are lost, and which metadata are not understood."""
    from recovery.cluster.clusters import Clusters as NewClusters

    clusters = NewClusters(log_dirs)
    lost = lost_partitions(log_dirs, clusters)
    return [*map(str, lost), *not_understood(log_dirs, clusters)]


def _of_held_back(held: HeldBack) -> AbsentPartition:
    return AbsentPartition(
        key=held.key,
        log_dir=held.log_dir.path,
        lines=(),
        missing=held.missing,
        why="",
        path=held.path,
    )


def find_unassigned(log_dirs: Sequence[LogDir], clusters: Clusters) -> Iterator[AbsentPartition]:
    """Find replicas that metadata assign to a log dir where nothing at all speaks of them."""
    for log_dir in log_dirs:
        if log_dir.is_log_dir and log_dir.stopped is not StoppedState.LIVE:
            yield from _Look(log_dir, log_dirs, clusters, {}).assigned_only()


class _Look:
    """One log dir among those of its node."""

    def __init__(
        self,
        log_dir: LogDir,
        log_dirs: Sequence[LogDir],
        clusters: Clusters,
        held_back: Mapping[TopicPartition, HeldBack],
    ) -> None:
        self._log_dir = log_dir
        self._held_back = held_back
        self._elsewhere = {
            each.topic_partition: other.path
            for other in log_dirs
            if other is not log_dir and _is_same(other, log_dir)
            for each in other.partitions
            if each.name.state is DirState.LIVE
        }
        self._clusters = clusters
        self._here = {
            each.topic_partition
            for each in log_dir.partitions
            if each.name.state in {DirState.LIVE, DirState.FUTURE}
        }
        aside = [each for each in log_dir.partitions if each.topic_partition not in self._here]
        self._aside: dict[int, list[PartitionDir]] = {}
        for each in aside:
            self._aside.setdefault(each.name.partition, []).append(each)
        self._lines: dict[TopicPartition, list[tuple[str, int]]] = {}
        for name, offsets in (
            (RECOVERY_POINT_NAME, log_dir.recovery_points),
            (LOG_START_NAME, log_dir.log_start_offsets),
            (HIGH_WATERMARK_NAME, log_dir.high_watermarks),
            (CLEANER_NAME, log_dir.cleaner_offsets),
        ):
            for key, offset in (offsets or {}).items():
                if not self._has(key) or (key in held_back and not held_back[key].live):
                    self._lines.setdefault(key, []).append((name, offset))

    def _has(self, key: TopicPartition) -> bool:
        """Is it here, or a directory that is set aside and may be its?"""
        if key in self._here:
            return True
        return any(_may_be(each, key) for each in self._aside.get(key.partition, ()))

    def absent(self) -> Iterator[AbsentPartition]:
        """Give those that checkpoints name."""
        for key, lines in self._lines.items():
            why = self._why_harmless(key, dict(lines))
            missing = None if why else self._missing(dict(lines))
            held = self._held_back.get(key)
            if missing is not None and held is not None:
                missing = missing.within(held.end_offset, None)
                if missing is None:
                    continue
                why = f"what is left of it is in {held.path}"
            if not why:
                why = "its whole directory is gone, or lies in a log dir that was not given"
            yield AbsentPartition(
                key=key, log_dir=self._log_dir.path, lines=tuple(lines), missing=missing, why=why
            )

    def _missing(self, lines: dict[str, int]) -> Missing | None:
        claims = checkpoint_claims(lines.get(HIGH_WATERMARK_NAME), lines.get(RECOVERY_POINT_NAME))
        end_offset = max((each.end_offset for each in claims), default=0)
        first = lines.get(LOG_START_NAME, 0)
        if end_offset <= first:
            return None
        told = ", ".join(str(each) for each in claims if each.end_offset > first)
        return Missing(
            base_offset=first,
            last_offset=end_offset - 1,
            why=f"no directory, {told}",
            check_id="DIR-8",
        )

    def _why_harmless(self, key: TopicPartition, lines: dict[str, int]) -> str:
        """Tell why nothing is known to be lost; "" if it is."""
        if key in self._elsewhere:
            return f"{self._elsewhere[key]} has it"
        image = self._image()
        if image is not None:
            placed = image.partition(key.topic, key.partition)
            if placed is None:
                return "the cluster's metadata have no such partition: it was deleted"
            if not self._is_assigned(placed):
                return "the cluster's metadata have no replica of it in this log dir"
            return ""
        if RECOVERY_POINT_NAME not in lines and self._log_dir.recovery_points is not None:
            return f"{RECOVERY_POINT_NAME} does not have it: it may have been deleted"
        return ""

    def assigned_only(self) -> Iterator[AbsentPartition]:
        """Give those that only the metadata name."""
        image = self._image()
        if image is None:
            return
        why = "the cluster's metadata assign it to this log dir; it may never have been made"
        for topic in image.topics.values():
            for number, placed in topic.partitions.items():
                key = TopicPartition(topic.name, number)
                is_known = key in self._lines or key in self._elsewhere or self._has(key)
                if not is_known and self._is_assigned(placed):
                    yield AbsentPartition(
                        key=key, log_dir=self._log_dir.path, lines=(), missing=None, why=why
                    )

    def _image(self) -> ClusterImage | None:
        """The metadata, if they can be relied on."""
        image = self._clusters.image_for(self._log_dir)
        is_good = image is not None and image.is_complete and image.end_offset
        return image if is_good else None

    def _is_assigned(self, placed: PartitionImage) -> bool:
        """Does this node have a replica, in this log dir or in one that is not named?"""
        meta = self._log_dir.meta
        if meta is None or meta.node_id not in placed.replicas:
            return False
        assigned = placed.directories[placed.replicas.index(meta.node_id)]
        is_named = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
        return not is_named or meta.directory_id in {None, assigned}


def _is_same(one: LogDir, other: LogDir) -> bool:
    """May two log dirs be of one node?"""
    if one.meta is None or other.meta is None:
        return True
    return one.meta.node_id == other.meta.node_id and one.meta.cluster_id == other.meta.cluster_id


def _may_be(aside: PartitionDir, key: TopicPartition) -> bool:
    """Whether a directory that is set aside may be a partition's; its topic may be cut."""
    name = aside.name
    return key.topic.startswith(name.topic) if name.topic_may_be_cut else key.topic == name.topic
