"""The cluster image that applies to each log dir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from storage.dirs.cluster_image import TORN_TAIL, load_bootstrap_image, load_cluster_image
from storage.dirs.discovery import Selected, discover
from storage.dirs.log_dir import only_begins
from storage.dirs.partition import Partition
from storage.errors import AccessError, FormatError, UsageError
from storage.file_names import METADATA_TOPIC, DirState
from storage.formats import quorum_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, Problem
    from storage.formats.checkpoint import LeaderEpochEntry


class Clusters:
    """Cluster images for log dirs, from their own `__cluster_metadata` or a given copy.

    If a cluster has several metadata directories, the newest whole copy applies (`newest_image`).
    Without any, a `bootstrap.checkpoint` with topics applies.

    Attributes:
        unread: messages about metadata that cannot be read, or that may be newer than the used
            copy. Only for the images requested so far.
    """

    def __init__(self, log_dirs: Iterable[LogDir], metadata: Selected | None = None) -> None:
        self._candidates: dict[str | None, list[Selected]] = {}
        self._images: dict[str | None, ClusterImage | None] = {}
        self._bootstraps: dict[str | None, list[str]] = {}
        self.unread: list[str] = []
        self._given = None if metadata is None else load_cluster_image(Partition.of(metadata))
        for log_dir in log_dirs:
            if log_dir.has_bootstrap:
                self._bootstraps.setdefault(_cluster_id(log_dir), []).append(log_dir.path)
            for each in log_dir.partitions:
                is_live = each.name.topic == METADATA_TOPIC and each.name.state is DirState.LIVE
                if is_live and not only_begins(each.path):
                    found = self._candidates.setdefault(_cluster_id(log_dir), [])
                    found.append(Selected(each, log_dir))

    def image_for(self, log_dir: LogDir | None) -> ClusterImage | None:
        """Return the image that applies to a log dir, or None if there is none."""
        if self._given is not None:
            return self._given
        cluster_id = None if log_dir is None else _cluster_id(log_dir)
        if cluster_id not in self._images:
            self._images[cluster_id] = self._load(cluster_id)
        return self._images[cluster_id]

    def _load(self, cluster_id: str | None) -> ClusterImage | None:
        if cluster_id in self._candidates:
            copies, unread = metadata_copies(self._candidates[cluster_id])
            self.unread += unread
            if not copies:
                return None
            reading = _read_newest(copies)
            self.unread += reading.passed_over
            return reading.found
        begun = map(load_bootstrap_image, self._bootstraps.get(cluster_id, ()))
        return next((each for each in begun if each is not None), None)


def _cluster_id(log_dir: LogDir) -> str | None:
    return None if log_dir.meta is None else log_dir.meta.cluster_id


def one_cluster(log_dirs: Iterable[LogDir], *, next_step: str = "") -> str | None:
    """Return the cluster id of log dirs, or None if none of them has an id.

    Raises:
        UsageError: they are of different clusters.
    """
    known: dict[str, str] = {}
    for each in log_dirs:
        cluster_id = _cluster_id(each)
        if cluster_id is not None:
            known.setdefault(cluster_id, each.path)
    if len(known) > 1:
        paths = ", ".join(f"{path}: {cluster_id}" for cluster_id, path in known.items())
        raise UsageError(f"these are of different clusters ({paths})", next_step=next_step)
    return next(iter(known), None)


class NewestImage(NamedTuple):
    """The state in the newest whole copy of the metadata log.

    Attributes:
        image: None: there is no copy.
        copies: newest first.
        notes: messages about unreadable or doubtful data.
    """

    image: ClusterImage | None
    copies: tuple[MetadataCopy, ...]
    notes: tuple[str, ...]


def newest_image(selected: Iterable[Selected]) -> NewestImage:
    """Load the longest log of the latest epoch, which a quorum would continue.

    If it cannot be read completely, an older whole copy applies.
    """
    copies, notes = metadata_copies(selected)
    if not copies:
        return NewestImage(None, (), tuple(notes))
    reading = _read_newest(copies)
    image = reading.found
    notes += reading.passed_over
    if not image.is_complete:
        notes += map(str, image.problems)
        notes.append(f"{image.path}: not all of it could be read. A state may be out of date")
    return NewestImage(image, tuple(copies), tuple(notes))


def _read_newest(copies: Sequence[MetadataCopy]) -> ChosenReading[ClusterImage]:
    return read_newest_whole(
        copies, lambda copy: load_cluster_image(copy.partition), lambda image: image.problems
    )


def find_metadata(path: str) -> Selected:
    """Find the `__cluster_metadata-0` at a path, or in the log dir at that path.

    Raises:
        UsageError: there is none.
        AccessError: the path cannot be read.
    """
    for selected in discover([path]).selected:
        name = selected.partition.name
        if name.topic == METADATA_TOPIC and name.state is DirState.LIVE:
            return selected
    raise UsageError(f"{path}: no {METADATA_TOPIC}-0 there", next_step="--metadata-dir DIR")


def image_around(log_dir: LogDir | None, metadata_dir: str | None) -> ClusterImage | None:
    """Return the cluster state for a log dir, from itself or from `metadata_dir`.

    Raises:
        UsageError: `metadata_dir` has none, or has another cluster's.
        AccessError: it cannot be read.
    """
    if metadata_dir is None:
        return None if log_dir is None else Clusters([log_dir]).image_for(log_dir)
    selected = find_metadata(metadata_dir)
    ours = None if log_dir is None or log_dir.meta is None else log_dir.meta.cluster_id
    other = selected.log_dir
    theirs = None if other is None or other.meta is None else other.meta.cluster_id
    if ours is not None and theirs is not None and ours != theirs:
        raise UsageError(f"{metadata_dir}: of cluster {theirs}, the partition is of {ours}")
    return Clusters([], selected).image_for(log_dir)


# -- the choice between copies of the metadata log, and the offset up to which a copy is certain.
#
# Each controller and each broker has a copy. A quorum would continue the longest copy of the latest
# epoch. The quorum's high watermark is stored nowhere. Records above it may never have been
# committed, and the next leader may truncate them. The certain records are in one of these.
#
#   `a snapshot`  It contains only committed records, so all offsets below its end are certain.
#   `one voter`   It agrees with itself, so its whole log is certain.
#   `copies`      A majority of the voters has these records in the newest epoch. They are never
#                 truncated.
#
# In any other copy, only the records that it shares with the newest copy are certain.


T = TypeVar("T")


class MetadataCopy(NamedTuple):
    """One `__cluster_metadata-0`.

    Attributes:
        node_id: the node of its log dir. None: unknown.
        epochs: of leader-epoch-checkpoint, ascending.
        snapshot_end_offset: of its newest snapshot, or 0.
        is_end_known: False: the end of its log is damaged, so that it may have had more.
    """

    partition: Partition
    node_id: int | None
    epochs: tuple[LeaderEpochEntry, ...]
    end_offset: int
    snapshot_end_offset: int
    is_end_known: bool = True

    @property
    def epoch(self) -> int:
        """Its latest epoch, or -1."""
        return self.epochs[-1].epoch if self.epochs else -1

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key of copies. The greatest is the newest."""
        return self.epoch, self.end_offset


def metadata_copies(selected: Iterable[Selected]) -> tuple[list[MetadataCopy], list[str]]:
    """Return the copies among directories, newest first, and messages about unreadable ones."""
    found: list[MetadataCopy] = []
    notes: list[str] = []
    for each in selected:
        name = each.partition.name
        if name.topic != METADATA_TOPIC or name.state is not DirState.LIVE:
            continue
        if only_begins(each.partition.path):
            continue
        meta = None if each.log_dir is None else each.log_dir.meta
        try:
            copy = _read_copy(Partition.of(each), None if meta is None else meta.node_id)
        except AccessError as exc:
            notes.append(str(exc))
        else:
            found.append(copy)
    return sorted(found, key=lambda each: each.rank, reverse=True), notes


def _read_copy(partition: Partition, node_id: int | None) -> MetadataCopy:
    end = partition.log_end()
    snapshots = [each.name.offset or 0 for each in partition.files.checkpoints]
    newest = max(snapshots, default=0)
    return MetadataCopy(
        partition=partition,
        node_id=node_id,
        epochs=tuple(partition.leader_epochs() or ()),
        end_offset=max(newest, 0 if end is None else end.offset),
        snapshot_end_offset=newest,
        is_end_known=end is None or end.verdict.check_id in ("", TORN_TAIL),
    )


def doubtful_ends(copies: Iterable[MetadataCopy], chosen_path: str) -> Iterator[str]:
    """Yield messages about other copies that may have been newer before their damage."""
    for each in copies:
        path = each.partition.path
        if path != chosen_path and not each.is_end_known:
            yield f"{path}: damaged towards its end: what it had may be newer"


class ChosenReading(NamedTuple, Generic[T]):
    """The result of reading the copy that applies.

    Attributes:
        passed_over: messages about newer copies that could not be read completely, or that may have
            been newer before their damage. Empty: there are none.
    """

    copy: MetadataCopy
    found: T
    passed_over: tuple[str, ...] = ()


def read_newest_whole(
    copies: Sequence[MetadataCopy],
    read: Callable[[MetadataCopy], T],
    problems_of: Callable[[T], Sequence[Problem]],
    *,
    reaches: Callable[[T], bool] = lambda _: True,
) -> ChosenReading[T]:
    """Read the newest copy, or if it is incomplete, the newest whole copy.

    If no copy is whole, the newest copy applies. A copy with records of an unknown kind counts as
    whole: the release that wrote them wrote them to all copies.

    Args:
        copies: newest first.
        read: raises UsageError for a copy that begins after the requested moment.
        problems_of: returns the unreadable data.
        reaches: whether an older copy also reaches the requested moment.

    Raises:
        UsageError: all copies begin after the requested moment.
    """
    first: ChosenReading[T] | None = None
    refused: UsageError | None = None
    passed_over: list[str] = []
    for copy in copies:
        if first is not None and not passed_over:
            break
        try:
            found = read(copy)
        except UsageError as exc:
            refused = refused or exc
            continue
        path, problems = copy.partition.path, problems_of(found)
        if first is None:
            first = ChosenReading(copy, found)
            if problems:
                passed_over = [
                    *map(str, problems),
                    f"{path}: not all of it could be read. A state may be out of date",
                ]
        elif not problems and reaches(found):
            passed_over.append(f"{path} counts: older, and whole")
            return ChosenReading(copy, found, tuple(passed_over))
    if first is None:
        raise refused or UsageError("no copy of the metadata")
    doubts = () if passed_over else doubtful_ends(copies, first.copy.partition.path)
    return first._replace(passed_over=tuple(doubts))


def voters_of(image: ClusterImage, copies: Iterable[MetadataCopy]) -> tuple[int, ...]:
    """Return the voters by the log, else by quorum-state, else all registered controllers."""
    if image.voters:
        return image.voters
    named = (_static_voters(each.partition) for each in copies)
    return next(filter(None, named), tuple(sorted(image.controllers)))


def _static_voters(partition: Partition) -> tuple[int, ...]:
    data = partition.read_file(partition.files.other(quorum_state.NAME))
    try:
        state = None if data is None else quorum_state.parse_quorum_state(data)
    except FormatError:
        return ()
    found = () if state is None else state.current_voters or ()
    return tuple(sorted(each.voter_id for each in found))


class CountedTo(NamedTuple):
    """The offset up to which a metadata log is certain.

    Attributes:
        end_offset: all records below it are certain. Records above may be committed.
        why: the reason, as text.
        diverged_from: the newer copy that differs or ends there. None: the newest copy was read.
    """

    end_offset: int
    why: str
    diverged_from: str | None = None


def counted_to(
    copies: Sequence[MetadataCopy],
    voters: Sequence[int],
    end_offset: int,
    *,
    read: MetadataCopy | None = None,
) -> CountedTo:
    """Return the offset up to which a copy is certain.

    Args:
        copies: from `metadata_copies`.
        voters: node ids of the voters. Empty: unknown.
        end_offset: the end found in the copy that was read.
        read: that copy. None: the newest.
    """
    newest = copies[0]
    if read is None or read is newest:
        return _counted_newest(copies, voters, end_offset)
    # The certain part of the newest copy by its epochs only: its contents may be damaged.
    known = _counted_newest(copies, voters, newest.end_offset)
    path = newest.partition.path
    shared = _common(newest, read, read.end_offset) if read.epochs and newest.epochs else 0
    own = min(read.snapshot_end_offset, end_offset)
    agreed = min(known.end_offset, shared, end_offset)
    if own >= agreed:
        return CountedTo(own, "a snapshot" if own else "nothing shows it", path)
    return CountedTo(agreed, known.why, path if shared < end_offset else None)


def _counted_newest(
    copies: Sequence[MetadataCopy], voters: Sequence[int], end_offset: int
) -> CountedTo:
    newest = copies[0]
    snapshot = max((_common(newest, each, each.snapshot_end_offset) for each in copies), default=0)
    best = CountedTo(min(snapshot, end_offset), "a snapshot" if snapshot else "nothing shows it")
    if len(voters) == 1:
        return CountedTo(end_offset, "one voter")
    of_voters: dict[int, int] = {}
    for each in copies:
        if each.node_id in voters and each.node_id is not None:
            agreed = _common(newest, each, each.end_offset)
            of_voters[each.node_id] = max(agreed, of_voters.get(each.node_id, 0))
    needed = len(voters) // 2 + 1
    if voters and len(of_voters) >= needed:
        agreed = min(sorted(of_voters.values(), reverse=True)[needed - 1], end_offset)
        newest_epoch_start = newest.epochs[-1].start_offset if newest.epochs else 0
        if agreed > max(newest_epoch_start, best.end_offset):
            return CountedTo(agreed, "a majority of the voters has it")
    return best


def _common(newest: MetadataCopy, other: MetadataCopy, other_end_offset: int) -> int:
    """Return the end of the common part of two logs, by their epochs: an epoch has one leader."""
    if other is newest or not other.epochs or not newest.epochs:
        return min(other_end_offset, newest.end_offset)
    ends = {
        entry.epoch: following
        for entry, following in zip(
            newest.epochs,
            [*(each.start_offset for each in newest.epochs[1:]), newest.end_offset],
            strict=True,
        )
    }
    follows = [*(each.start_offset for each in other.epochs[1:]), other.end_offset]
    for entry, following in reversed(list(zip(other.epochs, follows, strict=True))):
        if entry.epoch in ends:
            return min(ends[entry.epoch], following, other_end_offset)
    return 0
