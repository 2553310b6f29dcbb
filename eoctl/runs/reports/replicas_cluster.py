"""What the newest metadata say of the copies that are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.runs.in_cluster import ClusterNotes
from eoctl.runs.reports.cluster_rows import partition_state_row
from recovery.cluster.clusters import find_metadata, newest_image
from storage.dirs.acknowledged import in_cluster
from storage.dirs.cluster_image import load_bootstrap_image
from storage.dirs.discovery import Selected
from storage.errors import UsageError
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eoctl.runs.reports.cluster_rows import PartitionStateRow
    from recovery.replicas.compare import ReplicaLog
    from storage.dirs.acknowledged import InCluster
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


class ComparedCluster:
    """The newest metadata among log dirs of several brokers, or those in `metadata_dir`.

    Attributes:
        is_short: not all of it could be read.

    Raises:
        UsageError: there are none in `metadata_dir`, or they are another cluster's.
        AccessError: these cannot be read.
    """

    def __init__(self, log_dirs: Iterable[LogDir | None], metadata_dir: str | None) -> None:
        known = {each.path: each for each in log_dirs if each is not None}
        self._notes: list[str] = []
        self._told = ClusterNotes()
        self.is_short = False
        self._image = self._load([*known.values()], metadata_dir)
        if self._image is not None:
            self._told.add_image(self._image, has_doubts=False)

    def _load(self, log_dirs: Sequence[LogDir], metadata_dir: str | None) -> ClusterImage | None:
        clusters = dict.fromkeys(
            each.meta.cluster_id
            for each in log_dirs
            if each.meta is not None and each.meta.cluster_id is not None
        )
        if metadata_dir is not None:
            given = find_metadata(metadata_dir)
            meta = None if given.log_dir is None else given.log_dir.meta
            other = None if meta is None else meta.cluster_id
            if other is not None and clusters and other not in clusters:
                ours = ", ".join(map(str, clusters))
                raise UsageError(f"{metadata_dir}: of cluster {other}, the copies are of {ours}")
            candidates = [given]
        elif len(clusters) > 1:
            told = ", ".join(map(str, clusters))
            self._notes.append(f"of different clusters ({told}): whose leader and ISR is not told")
            return None
        else:
            candidates = [
                Selected(each, log_dir)
                for log_dir in log_dirs
                for each in log_dir.partitions
                if each.name.topic == METADATA_TOPIC and each.name.state is DirState.LIVE
            ]
        newest = newest_image(candidates)
        self._notes += newest.notes
        self.is_short = bool(newest.notes)
        if newest.image is not None or newest.notes:
            return newest.image
        begun = (load_bootstrap_image(each.path) for each in log_dirs if each.has_bootstrap)
        return next((each for each in begun if each is not None), None)

    def places(self, logs: Sequence[ReplicaLog]) -> list[InCluster]:
        """Say of each copy what is known."""
        found = []
        for log in logs:
            directory, log_dir = log.partition.directory, log.partition.log_dir
            placed = in_cluster(directory, log_dir, self._image)
            name = f"{directory.name.topic}-{directory.name.partition}"
            self._told.add(name, log.path, placed)
            found.append(placed)
        return found

    def state(
        self, logs: Sequence[ReplicaLog], places: Sequence[InCluster]
    ) -> PartitionStateRow | None:
        """Say what the metadata have of the partition of these copies; None: it is not known."""
        image, first = self._image, logs[0].partition
        if image is None or all(each.leader is None for each in places):
            return None
        marks = [each.high_watermark for each in logs if each.high_watermark is not None]
        return partition_state_row(
            image,
            image.topics[first.topic],
            first.partition,
            high_watermark=max(marks, default=None),
            log_end_offset=max(each.end_offset for each in logs),
        )

    def notes(self) -> list[str]:
        """Sentences for the end: which metadata these are, and what is doubtful."""
        return [*self._notes, *self._told.notes()]
