"""The log dirs of dead brokers that the operator names, and their copies of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.listing import require_finished
from recovery.cluster.clusters import Clusters, find_metadata, one_cluster
from recovery.cluster.placement import find_blocked
from storage.dirs.discovery import discover, duplicate_partitions, is_foreign
from storage.dirs.log_dir import MAX_FILE_BYTES, StoppedState
from storage.errors import AccessError, FormatError, RefusedError, UsageError
from storage.file_names import METADATA_TOPIC, PARTITION_METADATA_NAME, DirState
from storage.files.positioned_file import read_small_file
from storage.formats.partition_metadata import parse_partition_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.cluster.placement import Blocked
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.file_names import TopicPartition

ONE_CALL_EACH = "one run for each cluster"


class DeadCopy(NamedTuple):
    """The directory of a live partition. Without a valid partition.metadata `topic_id` is None."""

    selected: Selected
    topic_id: bytes | None

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self.selected.partition.path

    @property
    def node_id(self) -> int | None:
        """The node id of its broker. None: unknown."""
        log_dir = self.selected.log_dir
        return None if log_dir is None or log_dir.meta is None else log_dir.meta.node_id


class DeadBrokers(NamedTuple):
    """The log dirs and copies behind the given paths.

    Attributes:
        log_dirs: all of them, including the parents of single partitions.
        copies: by partition, in the given order.
        node_ids: known node ids of the brokers.
        cluster_id: None: unknown.
        image: of their cluster. None: no metadata is available.
        set_aside: directories that a broker was deleting or moving, or did not know.
        blocked: data of live topics that only such directories of a broker have.
        damaged: messages about unusable checkpoints.
        notes: messages about doubtful facts.
    """

    log_dirs: tuple[LogDir, ...]
    copies: dict[TopicPartition, tuple[DeadCopy, ...]]
    node_ids: tuple[int, ...]
    cluster_id: str | None
    image: ClusterImage | None
    set_aside: tuple[str, ...]
    blocked: tuple[Blocked, ...]
    damaged: tuple[str, ...]
    notes: tuple[str, ...]


def find_dead_brokers(paths: Sequence[str], metadata_dir: str | None) -> DeadBrokers:
    """Find the copies behind the paths.

    Raises:
        UsageError: there is no copy, or the copies are of different clusters.
        RefusedError: a broker is running there, or an earlier change is unfinished.
        AccessError: a path or a checkpoint cannot be read.
    """
    found = discover(paths)
    _require_dead(found.log_dirs)
    twice = {str(each) for each in duplicate_partitions(found.log_dirs)}
    notes, damaged = list[str](), list[str]()
    for problem in found.problems:
        if isinstance(problem, AccessError):
            problem.next_step = problem.next_step or "make it readable, or name the partitions"
            raise problem
        if str(problem) in twice or is_foreign(problem):
            continue  # the better of two directories of one node is adopted
        damaged.append(str(problem))
    copies: dict[TopicPartition, list[DeadCopy]] = {}
    set_aside = []
    for each in found.selected:
        if each.partition.name.topic == METADATA_TOPIC:
            continue
        if each.partition.name.state is not DirState.LIVE:
            set_aside.append(each.partition.path)
            continue
        copy = DeadCopy(each, _topic_id(each.partition.path))
        copies.setdefault(each.partition.topic_partition, []).append(copy)
    if not copies:
        raise UsageError(
            f"{', '.join(paths)}: no live partition there",
            next_step="eoctl adopt LOG-DIR... --to NEW-LOG-DIR, of dead brokers",
        )
    known = {each.meta.node_id for each in found.log_dirs if each.meta is not None}
    metadata = None if metadata_dir is None else find_metadata(metadata_dir)
    if metadata is not None and metadata.log_dir is not None:
        one_cluster([*found.log_dirs, metadata.log_dir], next_step=ONE_CALL_EACH)
    cluster_id = one_cluster(found.log_dirs, next_step=ONE_CALL_EACH)
    clusters = Clusters(found.log_dirs, metadata)
    image = next(filter(None, map(clusters.image_for, found.log_dirs or (None,))), None)
    if image is not None and not image.is_complete:
        first = f": {image.problems[0]}" if image.problems else ""
        notes.append(f"not all of the cluster's metadata could be read{first}")
    return DeadBrokers(
        log_dirs=found.log_dirs,
        copies={key: tuple(copies[key]) for key in sorted(copies)},
        node_ids=tuple(sorted(each for each in known if each is not None)),
        cluster_id=cluster_id,
        image=image,
        set_aside=tuple(set_aside),
        blocked=tuple(find_blocked(found.log_dirs, clusters)) if set_aside else (),
        damaged=tuple(damaged),
        notes=tuple(notes),
    )


def _require_dead(log_dirs: Sequence[LogDir]) -> None:
    live = [each for each in log_dirs if each.stopped is StoppedState.LIVE]
    if live:
        held = "; ".join(f"{each.path}: in use by {each.lock.holder}" for each in live)
        raise RefusedError(held, next_step="stop that broker, then run it again")
    require_finished(each.path for each in log_dirs)


def _topic_id(path: str) -> bytes | None:
    name = str(Path(path, PARTITION_METADATA_NAME))
    try:
        data = read_small_file(name, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(error, name) from error
    try:
        return parse_partition_metadata(data).topic_id
    except FormatError:
        return None
