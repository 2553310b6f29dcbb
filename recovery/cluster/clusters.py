"""Which cluster image holds for which log dir."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.quorum import metadata_copies, read_newest_whole
from storage.dirs.cluster_image import load_bootstrap_image, load_cluster_image
from storage.dirs.discovery import Selected, discover
from storage.dirs.partition import Partition
from storage.errors import UsageError
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.cluster.quorum import ChosenReading, MetadataCopy
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


class Clusters:
    """Cluster images for log dirs: their own `__cluster_metadata`, or one that was given.

    Of several metadata directories of one cluster the newest whole one is used (`newest_image`);
    without any, a `bootstrap.checkpoint` with topics.

    Attributes:
        unread: metadata that cannot be read, or may be newer than those that are used, in words; as
            far as images were asked for.
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
                if each.name.topic == METADATA_TOPIC and each.name.state is DirState.LIVE:
                    found = self._candidates.setdefault(_cluster_id(log_dir), [])
                    found.append(Selected(each, log_dir))

    def image_for(self, log_dir: LogDir | None) -> ClusterImage | None:
        """Return the image that holds for a log dir; None if nothing tells."""
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


class NewestImage(NamedTuple):
    """The state that the newest of several copies of the metadata log tells, the newest whole one.

    Attributes:
        image: None: there is no copy.
        copies: newest first.
        notes: what cannot be read, or is doubtful, in words.
    """

    image: ClusterImage | None
    copies: tuple[MetadataCopy, ...]
    notes: tuple[str, ...]


def newest_image(selected: Iterable[Selected]) -> NewestImage:
    """Load the log of the latest epoch, of these the longest one: what a quorum would go on with.

    Where not all of it can be read, an older one that is whole counts.
    """
    copies, notes = metadata_copies(selected)
    if not copies:
        return NewestImage(None, (), tuple(notes))
    reading = _read_newest(copies)
    image = reading.found
    notes += reading.passed_over
    if not image.is_complete:
        notes += map(str, image.problems)
        notes.append(f"{image.path}: not all of it could be read: a state may be an older one")
    return NewestImage(image, tuple(copies), tuple(notes))


def _read_newest(copies: Sequence[MetadataCopy]) -> ChosenReading[ClusterImage]:
    return read_newest_whole(
        copies, lambda copy: load_cluster_image(copy.partition), lambda image: image.problems
    )


def find_metadata(path: str) -> Selected:
    """Find the `__cluster_metadata-0` that a path names: itself, or the one in a log dir.

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
    """Return the cluster's state that holds for a log dir: its own, or the one in `metadata_dir`.

    Raises:
        UsageError: there is none in `metadata_dir`, or it is another cluster's.
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
