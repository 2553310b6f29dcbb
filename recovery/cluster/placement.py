"""What the next start makes of the directories of a node that have a suffix, or are there twice.

A 4.3.1 broker goes by the metadata, in this order:

  1  a live or a -future directory is stray if no topic has its id, or if the node has no replica of
     the partition: it is renamed to -stray, and no longer counts
  2  two live directories of a partition, or two -future ones, end the start
  3  a -future directory becomes the live one if it lies in the log dir that the metadata assign.
     The live one in another log dir is renamed to -delete and removed, however long it is. If the
     live one lies in the same log dir, the rename fails and the start ends.
  4  a replica without a live directory is made anew, and a -future directory that is left is cut to
     match the empty log

A directory that the broker does not serve may have records that nothing else has: a -stray one, a
-delete one, or a -future one whose live directory is absent or shorter.

Sources: LogManager.loadLog, recoverAbandonedFutureLogs, isStrayReplica, ReplicaManager.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.acknowledged import Missing, topic_id_of
from storage.dirs.discovery import Selected
from storage.dirs.log_dir import StoppedState
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import METADATA_TOPIC, DirState, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.log_dir import LogDir, PartitionDir


class DirFate(StrEnum):
    """What a start makes of a directory, beside loading it."""

    STRAY = "stray"  # renamed to -stray
    DUPLICATE = "duplicate"  # there are two: ends the start
    BLOCKED = "blocked"  # its live name is taken: ends the start
    PROMOTED = "promoted"  # renamed to the live name
    REPLACED = "replaced"  # renamed to -delete, and removed
    EMPTIED = "emptied"  # cut to match a live log that is made anew


# The start serves it, or another topic's directory is in its place.
_SERVED = frozenset({DirFate.STRAY, DirFate.PROMOTED, DirFate.DUPLICATE})


class Placed(NamedTuple):
    """A directory, and what a start makes of it.

    Attributes:
        log_dir: the one that it lies in.
        other: the path of the directory that it replaces, that replaces it, or that is in its way;
            "" if there is none.
        is_certain: the metadata decide; without them a duplicate may turn out to be stray.
    """

    directory: PartitionDir
    log_dir: LogDir
    fate: DirFate
    other: str = ""
    is_certain: bool = True


class HeldBack(NamedTuple):
    """Records of a live topic that only a directory with a suffix has.

    Attributes:
        key: the partition, by the full name of its topic.
        path: the directory.
        log_dir: the one that it lies in.
        end_offset: of the records that are missing elsewhere; `base_offset`: the first of them.
        live: the path of the live directory, which is shorter; "" if there is none.
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
        """What readers of the live directory do not get."""
        return Missing(
            base_offset=self.base_offset,
            last_offset=self.end_offset - 1,
            why=f"they are in {self.path}, which no broker serves. {self.way_back}",
            check_id="DIR-6",
            is_on_disk=True,
        )

    @property
    def way_back(self) -> str:
        """What a person does to have the records served."""
        target = Path(self.log_dir.path, str(self.key))
        aside = f", move {self.live} away" if self.live else ""
        return f"Stop the broker{aside}, rename {self.path} to {target}, start the broker."


def nodes_of(log_dirs: Iterable[LogDir], *, is_one: bool = False) -> list[list[LogDir]]:
    """Return log dirs by node.

    A log dir that names no node belongs to the node of the others, if these are of one node.
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
    """Return the partition that a directory is a replica of by its topic id; None: it is stray."""
    topic_id = topic_id_of(directory)
    topic = None if topic_id is None else image.topic_by_id(topic_id)
    placed = None if topic is None else topic.partitions.get(directory.name.partition)
    node_id = None if log_dir.meta is None else log_dir.meta.node_id
    return placed if placed is not None and node_id in placed.replicas else None


class NodePlacement:
    """The directories of one node.

    Attributes:
        placed: what a start makes of them, by path, where it is more than to load them.
    """

    def __init__(
        self,
        log_dirs: Sequence[LogDir],
        image: ClusterImage | None,
        *,
        knows_directories: bool = True,
        knows_strays: bool = True,
    ) -> None:
        """Find it out.

        Args:
            log_dirs: of the node, as far as they were given.
            image: of its cluster; None, or one that is not whole: nothing is decided by it.
            knows_directories: the release goes by the log dir that the metadata assign.
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
        """Go through live and -future directories as they are loaded."""
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
        """Report the one that the metadata do not place where it is, else the second."""
        metas = [each[1].meta for each in (first, second)]
        if len({each.node_id for each in metas if each is not None} - {None}) > 1:
            return  # of two nodes, and a start ends before it looks at partitions
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
        """Whether no log dir of the node is missing, where the live directory might lie."""
        metas = [each.meta for each in self._log_dirs if each.meta is not None]
        node_ids = {each.node_id for each in metas if each.node_id is not None}
        brokers = {} if self._image is None else self._image.brokers
        known = [
            each for node_id in node_ids if node_id in brokers for each in brokers[node_id].log_dirs
        ]
        return set(known) <= {each.directory_id for each in metas}

    # -- records that only a directory with a suffix has

    def held_back(self) -> Iterator[HeldBack]:
        """Give what no live directory has, a directory for each partition: the longest one.

        Nothing is said of a broker that runs: it may be about to copy or to remove it.
        """
        longest: dict[TopicPartition, HeldBack] = {}
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
        """Return the partition of the cluster whose records may be in there; None: of none."""
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
        """Without metadata the recovery point tells that a broker still had the partition here."""
        key, state = directory.topic_partition, directory.name.state
        if state is DirState.DELETE or directory.name.topic_may_be_cut:
            return None
        has_live = key in self._live
        if state is DirState.FUTURE and has_live:
            return key
        return key if key in (log_dir.recovery_points or {}) and not has_live else None

    def _held(
        self, key: TopicPartition, directory: PartitionDir, log_dir: LogDir
    ) -> HeldBack | None:
        bounds = _bounds(directory, log_dir)
        if bounds is None:
            return None
        base_offset, end_offset = bounds
        serving = self._serving(key)
        if serving is not None:
            if topic_id_of(serving[0]) not in {None, topic_id_of(directory)}:
                return None  # the live one is of another topic, and is set aside itself
            live = _bounds(*serving)
            base_offset = max(base_offset, 0 if live is None else live[1])
        if base_offset >= end_offset:
            return None
        return HeldBack(
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
        """Return the offsets that the live directory has beyond a -future one; None: none."""
        live, future = self._live_bounds(placed), _bounds(placed.directory, placed.log_dir)
        end_offset = 0 if future is None else future[1]
        if live is None or end_offset >= live[1]:
            return None
        return max(live[0], end_offset), live[1]

    def is_longer(self, placed: Placed) -> bool:
        """Whether a -future directory has offsets beyond those of the live one."""
        live, future = self._live_bounds(placed), _bounds(placed.directory, placed.log_dir)
        return future is not None and (live is None or live[1] < future[1])

    def _live_bounds(self, placed: Placed) -> tuple[int, int] | None:
        live = self._live.get(placed.directory.topic_partition)
        return None if live is None else _bounds(*live)


def _bounds(directory: PartitionDir, log_dir: LogDir) -> tuple[int, int] | None:
    """Return log start and log end of a directory; None: it has no record, or cannot be read."""
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
