"""The effect of the next start on a node's duplicate directories and directories with a suffix.

A 4.3.1 broker applies the metadata in this order:

    1  A live or a -future directory is stray if no topic has its id, or if the node has no replica
       of the partition. It is renamed to -stray, and no longer counts.
    2  Two live directories of a partition, or two -future directories, end the start.
    3  A -future directory becomes the live directory if it lies in the assigned log dir. A live
       directory in another log dir is renamed to -delete and removed, however long it is. If the
       live directory lies in the same log dir, the rename fails and the start ends.
    4  A replica without a live directory is created again. A remaining -future directory is
       truncated to match the empty log.

A directory that the broker does not serve may have records that nothing else has. It is a -stray
directory, a -delete directory, or a -future directory with an absent or shorter live directory.

Sources: LogManager.loadLog, recoverAbandonedFutureLogs, isStrayReplica, ReplicaManager.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.counts import counted
from storage.dirs.acknowledged_offsets import Missing, checkpoint_claims, topic_id_of
from storage.dirs.discovery import Selected
from storage.dirs.log_dir import PartitionDir, StoppedState
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    METADATA_TOPIC,
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


class DirFate(StrEnum):
    """The effect of a start on a directory, in addition to loading it."""

    STRAY = "stray"  # renamed to -stray
    DUPLICATE = "duplicate"  # there are two, which ends the start
    BLOCKED = "blocked"  # its live name is taken, which ends the start
    PROMOTED = "promoted"  # renamed to the live name
    REPLACED = "replaced"  # renamed to -delete, and removed
    EMPTIED = "emptied"  # truncated to match a new empty live log


# The start serves it, or another topic's directory replaces it.
_SERVED = frozenset({DirFate.STRAY, DirFate.PROMOTED, DirFate.DUPLICATE})


class Placed(NamedTuple):
    """A directory, and the effect of a start on it.

    Attributes:
        log_dir: the parent log dir.
        other: the path of the directory that it replaces, that replaces it, or that blocks it,
            or "".
        is_certain: the metadata decide. Without metadata a duplicate may be stray.
    """

    directory: PartitionDir
    log_dir: LogDir
    fate: DirFate
    other: str = ""
    is_certain: bool = True


class Blocked(NamedTuple):
    """Records of a live topic that only a directory with a suffix has.

    Attributes:
        key: the partition, by the full name of its topic.
        path: the directory.
        log_dir: the parent log dir.
        end_offset: of the records that are missing elsewhere. `base_offset`: of the first record.
        live: the path of the shorter live directory, or "".
    """

    key: TopicPartition
    path: str
    log_dir: LogDir
    state: DirState
    base_offset: int
    end_offset: int
    live: str

    @property
    def missing(self) -> Missing:
        """The records that readers of the live directory do not get."""
        return Missing(
            base_offset=self.base_offset,
            last_offset=self.end_offset - 1,
            why=f"they are in {self.path}, which no broker serves. {self.undo_steps}",
            check_id="DIR-6",
            is_on_disk=True,
        )

    @property
    def undo_steps(self) -> str:
        """Instructions to make the broker serve the records."""
        target = Path(self.log_dir.path, str(self.key))
        aside = f", move {self.live} away" if self.live else ""
        return f"Stop the broker{aside}, rename {self.path} to {target}, start the broker."


def nodes_of(log_dirs: Iterable[LogDir], *, is_one: bool = False) -> list[list[LogDir]]:
    """Return log dirs by node.

    A log dir without a node id belongs to the other log dirs' node if they have only one.
    """
    given = list(log_dirs)
    known = {_node_of(each) for each in given} - {None}
    nodes: dict[object, list[LogDir]] = {}
    for log_dir in given:
        key = "" if is_one or len(known) == 1 else _node_of(log_dir) or log_dir.path
        nodes.setdefault(key, []).append(log_dir)
    return list(nodes.values())


def _node_of(log_dir: LogDir) -> tuple[str | None, int] | None:
    meta = log_dir.meta
    if meta is None or meta.node_id is None:
        return None
    return meta.cluster_id, meta.node_id


def is_of_replica(
    directory: PartitionDir, log_dir: LogDir, image: ClusterImage
) -> PartitionImage | None:
    """Return the partition of which a directory is a replica, by topic id. None: it is stray."""
    topic_id = topic_id_of(directory)
    topic = None if topic_id is None else image.topic_by_id(topic_id)
    placed = None if topic is None else topic.partitions.get(directory.name.partition)
    node_id = None if log_dir.meta is None else log_dir.meta.node_id
    return placed if placed is not None and node_id in placed.replicas else None


class NodePlacement:
    """The directories of one node.

    Attributes:
        placed: effects of a start other than loading, by path.
    """

    def __init__(
        self,
        log_dirs: Sequence[LogDir],
        image: ClusterImage | None,
        *,
        knows_directories: bool = True,
        knows_strays: bool = True,
    ) -> None:
        """Find the effects of a start.

        Args:
            log_dirs: the given log dirs of the node.
            image: of its cluster. None or incomplete: it is not used.
            knows_directories: the release uses the log dir that the metadata assign.
            knows_strays: the release sets strays aside before it looks for duplicates.
        """
        is_good = image is not None and image.is_complete and bool(image.end_offset)
        self._image = image if is_good else None
        self._log_dirs = log_dirs
        self._knows_directories = knows_directories
        self._knows_strays = knows_strays
        self.placed: dict[str, Placed] = {}
        self._live: dict[TopicPartition, tuple[PartitionDir, LogDir]] = {}
        self._future: dict[TopicPartition, tuple[PartitionDir, LogDir]] = {}
        self._load()
        if self._image is not None and knows_directories:
            for key, (directory, log_dir) in self._future.items():
                self._place_future(key, directory, log_dir, self._image)

    def _load(self) -> None:
        """Check live and -future directories in their order of loading."""
        counts: dict[tuple[TopicPartition, DirState], int] = {}
        loaded = [
            (each, log_dir)
            for log_dir in self._log_dirs
            for each in log_dir.partitions
            if each.name.state in {DirState.LIVE, DirState.FUTURE}
            and each.name.topic != METADATA_TOPIC
        ]
        for directory, _ in loaded:
            counted = directory.topic_partition, directory.name.state
            counts[counted] = counts.get(counted, 0) + 1
        for directory, log_dir in loaded:
            key = directory.topic_partition
            is_alone = counts[key, directory.name.state] == 1
            has_future = (key, DirState.FUTURE) in counts
            if (has_future or not is_alone) and self._is_stray(directory, log_dir):
                self._set(directory, log_dir, DirFate.STRAY)
                continue
            found = self._future if directory.name.state is DirState.FUTURE else self._live
            first = found.setdefault(key, (directory, log_dir))
            if first[0] is not directory:
                self._set_duplicates(first, (directory, log_dir))

    def _is_stray(self, directory: PartitionDir, log_dir: LogDir) -> bool:
        if self._image is None or not self._knows_strays or log_dir.meta is None:
            return False
        return is_of_replica(directory, log_dir, self._image) is None

    def _set(
        self,
        directory: PartitionDir,
        log_dir: LogDir,
        fate: DirFate,
        other: str = "",
        *,
        is_certain: bool = True,
    ) -> None:
        self.placed[directory.path] = Placed(
            directory=directory, log_dir=log_dir, fate=fate, other=other, is_certain=is_certain
        )

    def _set_duplicates(
        self, first: tuple[PartitionDir, LogDir], second: tuple[PartitionDir, LogDir]
    ) -> None:
        """Report the directory that the metadata do not place there, else the second."""
        metas = [each[1].meta for each in (first, second)]
        if len({each.node_id for each in metas if each is not None} - {None}) > 1:
            return  # they are of two nodes, and a start ends before it reads partitions
        keeps, leaves = first, second
        if self._image is not None:
            placed = is_of_replica(*second, self._image)
            if placed is not None and _assigned(placed, second[1]) == _id_of(second[1]):
                keeps, leaves = second, first
        is_certain = self._image is not None or not self._knows_strays
        self._set(*leaves, DirFate.DUPLICATE, keeps[0].path, is_certain=is_certain)

    def _place_future(
        self, key: TopicPartition, directory: PartitionDir, log_dir: LogDir, image: ClusterImage
    ) -> None:
        placed = is_of_replica(directory, log_dir, image)
        if placed is None:  # a release that knows no strays
            return
        live = self._live.get(key)
        if _id_of(log_dir) is not None and _assigned(placed, log_dir) == _id_of(log_dir):
            if live is None:
                self._set(directory, log_dir, DirFate.PROMOTED)
            elif live[1] is log_dir:
                self._set(directory, log_dir, DirFate.BLOCKED, live[0].path)
            elif topic_id_of(live[0]) == topic_id_of(directory):
                self._set(directory, log_dir, DirFate.PROMOTED, live[0].path)
                self._set(*live, DirFate.REPLACED, directory.path)
        elif live is None and self._are_all_given:
            self._set(directory, log_dir, DirFate.EMPTIED)

    @cached_property
    def _are_all_given(self) -> bool:
        """Return whether all log dirs of the node are given."""
        metas = [each.meta for each in self._log_dirs if each.meta is not None]
        node_ids = {each.node_id for each in metas if each.node_id is not None}
        brokers = {} if self._image is None else self._image.brokers
        known = [
            each for node_id in node_ids if node_id in brokers for each in brokers[node_id].log_dirs
        ]
        return set(known) <= {each.directory_id for each in metas}

    # -- records that only a directory with a suffix has

    def blocked(self) -> Iterator[Blocked]:
        """Yield records that no live directory has, for each partition from the longest directory.

        A running broker is skipped: it may be about to copy or to remove the directory.
        """
        longest: dict[TopicPartition, Blocked] = {}
        for log_dir in self._log_dirs:
            if log_dir.stopped is StoppedState.LIVE or not log_dir.is_log_dir:
                continue
            for each in log_dir.partitions:
                key = self._key_of(each, log_dir)
                found = None if key is None else self._held(key, each, log_dir)
                if found is not None:
                    known = longest.setdefault(found.key, found)
                    if found.end_offset > known.end_offset:
                        longest[found.key] = found
        yield from longest.values()

    def _key_of(self, directory: PartitionDir, log_dir: LogDir) -> TopicPartition | None:
        """Return the partition of the cluster whose records may be in a directory, or None."""
        name = directory.name
        placed = self.placed.get(directory.path)
        is_served = placed is not None and placed.fate in _SERVED
        if name.topic == METADATA_TOPIC or name.state is DirState.LIVE or is_served:
            return None
        if self._image is None:
            return self._key_without_metadata(directory, log_dir)
        topic_id = topic_id_of(directory)
        topic = None if topic_id is None else self._image.topic_by_id(topic_id)
        replica = is_of_replica(directory, log_dir, self._image)
        if topic is None or replica is None:
            return None
        key = TopicPartition(topic.name, name.partition)
        given = {_id_of(each) for each in self._log_dirs}
        is_elsewhere = not self._are_all_given and _assigned(replica, log_dir) not in given
        return None if is_elsewhere and self._serving(key) is None else key

    def _key_without_metadata(
        self, directory: PartitionDir, log_dir: LogDir
    ) -> TopicPartition | None:
        """Return the partition that the broker still had here, by its recovery point, or None."""
        key, state = directory.topic_partition, directory.name.state
        if state is DirState.DELETE or directory.name.topic_may_be_cut:
            return None
        has_live = key in self._live
        if state is DirState.FUTURE and has_live:
            return key
        return key if key in (log_dir.recovery_points or {}) and not has_live else None

    def _held(
        self, key: TopicPartition, directory: PartitionDir, log_dir: LogDir
    ) -> Blocked | None:
        bounds = _bounds(directory, log_dir)
        if bounds is None:
            return None
        base_offset, end_offset = bounds
        serving = self._serving(key)
        if serving is not None:
            if topic_id_of(serving[0]) not in {None, topic_id_of(directory)}:
                return None  # the live directory is of another topic, and becomes stray itself
            live = _bounds(*serving)
            base_offset = max(base_offset, 0 if live is None else live[1])
        if base_offset >= end_offset:
            return None
        return Blocked(
            key=key,
            path=directory.path,
            log_dir=log_dir,
            state=directory.name.state,
            base_offset=base_offset,
            end_offset=end_offset,
            live="" if serving is None else serving[0].path,
        )

    def _serving(self, key: TopicPartition) -> tuple[PartitionDir, LogDir] | None:
        """Return the directory that the broker serves after the start."""
        future = self._future.get(key)
        if future is not None:
            placed = self.placed.get(future[0].path)
            if placed is not None and placed.fate is DirFate.PROMOTED:
                return future
        return self._live.get(key)

    def shortfall(self, placed: Placed) -> tuple[int, int] | None:
        """Return the offset range of the live directory beyond a -future directory, or None."""
        live, future = self._live_bounds(placed), _bounds(placed.directory, placed.log_dir)
        end_offset = 0 if future is None else future[1]
        if live is None or end_offset >= live[1]:
            return None
        return max(live[0], end_offset), live[1]

    def is_longer(self, placed: Placed) -> bool:
        """Return whether a -future directory has offsets beyond the live directory."""
        live, future = self._live_bounds(placed), _bounds(placed.directory, placed.log_dir)
        return future is not None and (live is None or live[1] < future[1])

    def _live_bounds(self, placed: Placed) -> tuple[int, int] | None:
        live = self._live.get(placed.directory.topic_partition)
        return None if live is None else _bounds(*live)


def _bounds(directory: PartitionDir, log_dir: LogDir) -> tuple[int, int] | None:
    """Return log start and end offset of a directory, or None if it is empty or unreadable."""
    try:
        partition = Partition.of(Selected(directory, log_dir))
        start_offset, end = partition.local_log_start_offset, partition.log_end()
    except EoctlError:
        return None
    if start_offset is None or end is None or end.offset <= start_offset:
        return None
    return start_offset, end.offset


def _assigned(placed: PartitionImage, log_dir: LogDir) -> bytes | None:
    meta = log_dir.meta
    if meta is None or meta.node_id not in placed.replicas:
        return None
    return placed.directories[placed.replicas.index(meta.node_id)]


def _id_of(log_dir: LogDir) -> bytes | None:
    return None if log_dir.meta is None else log_dir.meta.directory_id


# -- partitions that a log dir should have, and that no given directory has.
#
# A partition whose directory is lost still has lines in the log dir's checkpoints, and is still
# assigned by the cluster's metadata. The certain loss depends on the sources that name it.
#
#   `recovery point`   It is written for every replica of the log dir, and removed when a replica is
#                      deleted or moved. So the replica was here.
#   `high watermark`   It may be stale if the last replica of a log dir was deleted. A broker then
#                      does not write that file any more.
#   `metadata`         The replica belongs to this node, and to this log dir if they name a log dir.
#                      It may never have been created, if the broker was stopped before that.
#   `another log dir`  The node has the partition there. It was moved, and the line is old.
#
# Sources: LogManager.asyncDelete and checkpointLogsInDir, ReplicaManager.checkpointHighWatermarks,
# ReplicaManager.applyDelta.


class AbsentPartition(NamedTuple):
    """A partition without a directory.

    Attributes:
        key: topic and partition.
        log_dir: the path of the log dir that names it.
        lines: file name and offset of each checkpoint that has it.
        missing: the acknowledged offsets. None: no loss is known.
        why: its other place, or the reason why its state is unknown, as text.
        path: the directory that has its records, and that no broker serves, or "".
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
    log_dirs: Sequence[LogDir], clusters: Clusters, blocked: Iterable[Blocked] = ()
) -> list[AbsentPartition]:
    """Find the partitions without a directory, with their acknowledged offsets.

    A running broker is skipped: its directories and lines change all the time.

    Args:
        log_dirs: log dirs given as a whole. Give all log dirs of a node, to find moved partitions.
        clusters: for their metadata, which are only read if a partition is absent.
        blocked: data in directories with a suffix.
    """
    found: list[AbsentPartition] = []
    held = {each.key: each for each in blocked}
    for log_dir in log_dirs:
        if log_dir.is_log_dir and log_dir.stopped is not StoppedState.LIVE:
            found += _Inspection(log_dir, log_dirs, clusters, held).absent()
    return found


def find_blocked(log_dirs: Sequence[LogDir], clusters: Clusters) -> Iterator[Blocked]:
    """Find records of live topics that only directories with a suffix have.

    The metadata are only read if there is such a directory.
    """
    for node in nodes_of(log_dirs):
        if any(each.name.state is not DirState.LIVE for one in node for each in one.partitions):
            yield from NodePlacement(node, clusters.image_for(node[0])).blocked()


def lost_partitions(
    log_dirs: Sequence[LogDir], clusters: Clusters | None = None
) -> list[AbsentPartition]:
    """Find partitions with records that a reader of all live directories would miss."""
    if clusters is None:
        from recovery.cluster.clusters import Clusters as NewClusters

        clusters = NewClusters(log_dirs)
    held = list(find_blocked(log_dirs, clusters))
    absent = find_absent(log_dirs, clusters, held)
    return [*(each for each in absent if each.missing is not None), *map(_of_blocked, held)]


def not_understood(log_dirs: Sequence[LogDir], clusters: Clusters) -> list[str]:
    """Return messages about metadata logs with records that this release of eoctl does not know.

    Topics and settings in these metadata may then be out of date.
    """
    return not_understood_of(clusters.image_for(each) for each in log_dirs)


def not_understood_of(images: Iterable[ClusterImage | None]) -> list[str]:
    """Return the messages of `not_understood` for images that are already read."""
    return [
        f"{path}: {counted(count, 'metadata record')} of a newer release could not be read."
        " Topics and settings may be of an older state"
        for path, count in {
            each.path: each.unknown_records_count for each in images if each is not None
        }.items()
        if count
    ]


def doubts_around(log_dirs: Sequence[LogDir]) -> list[str]:
    """Return messages about lost partitions, and about unknown metadata records."""
    from recovery.cluster.clusters import Clusters as NewClusters

    clusters = NewClusters(log_dirs)
    lost = lost_partitions(log_dirs, clusters)
    return [*map(str, lost), *not_understood(log_dirs, clusters)]


def _of_blocked(held: Blocked) -> AbsentPartition:
    return AbsentPartition(
        key=held.key,
        log_dir=held.log_dir.path,
        lines=(),
        missing=held.missing,
        why="",
        path=held.path,
    )


def find_unassigned(log_dirs: Sequence[LogDir], clusters: Clusters) -> Iterator[AbsentPartition]:
    """Find replicas that metadata assign to a log dir without any other trace of them."""
    for log_dir in log_dirs:
        if log_dir.is_log_dir and log_dir.stopped is not StoppedState.LIVE:
            yield from _Inspection(log_dir, log_dirs, clusters, {}).assigned_only()


class _Inspection:
    """One log dir among the log dirs of its node."""

    def __init__(
        self,
        log_dir: LogDir,
        log_dirs: Sequence[LogDir],
        clusters: Clusters,
        blocked: Mapping[TopicPartition, Blocked],
    ) -> None:
        self._log_dir = log_dir
        self._blocked = blocked
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
                if not self._has(key) or (key in blocked and not blocked[key].live):
                    self._lines.setdefault(key, []).append((name, offset))

    def _has(self, key: TopicPartition) -> bool:
        """Return whether it has the partition, or a set-aside directory that may be its."""
        if key in self._here:
            return True
        return any(_may_be(each, key) for each in self._aside.get(key.partition, ()))

    def absent(self) -> Iterator[AbsentPartition]:
        """Yield the partitions that checkpoints name."""
        for key, lines in self._lines.items():
            why = self._why_harmless(key, dict(lines))
            missing = None if why else self._missing(dict(lines))
            held = self._blocked.get(key)
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
        reported = ", ".join(str(each) for each in claims if each.end_offset > first)
        return Missing(
            base_offset=first,
            last_offset=end_offset - 1,
            why=f"no directory, {reported}",
            check_id="DIR-8",
        )

    def _why_harmless(self, key: TopicPartition, lines: dict[str, int]) -> str:
        """Return why no loss is known, or "" if a loss is known."""
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
            return f"{RECOVERY_POINT_NAME} does not have it. It may have been deleted"
        return ""

    def assigned_only(self) -> Iterator[AbsentPartition]:
        """Yield the partitions that only the metadata name."""
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
        """Return the metadata if they are complete."""
        image = self._clusters.image_for(self._log_dir)
        is_good = image is not None and image.is_complete and image.end_offset
        return image if is_good else None

    def _is_assigned(self, placed: PartitionImage) -> bool:
        """Return whether this node has a replica in this log dir, or in an unnamed log dir."""
        meta = self._log_dir.meta
        if meta is None or meta.node_id not in placed.replicas:
            return False
        assigned = placed.directories[placed.replicas.index(meta.node_id)]
        is_named = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
        return not is_named or meta.directory_id in {None, assigned}


def _is_same(one: LogDir, other: LogDir) -> bool:
    """Return whether two log dirs may be of one node."""
    if one.meta is None or other.meta is None:
        return True
    return one.meta.node_id == other.meta.node_id and one.meta.cluster_id == other.meta.cluster_id


def _may_be(aside: PartitionDir, key: TopicPartition) -> bool:
    """Return whether a set-aside directory may be a partition's. Its name may be shortened."""
    name = aside.name
    return key.topic.startswith(name.topic) if name.topic_may_be_cut else key.topic == name.topic
