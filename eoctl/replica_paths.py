"""Directories given as replicas of one partition: their selection, checks and clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.clock import resolve_now
from recovery.changes.journals.listing import unfinished_path
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import StoppedState
from storage.errors import FormatError, RefusedError, UsageError, pasted
from storage.file_names import PARTITION_METADATA_NAME
from storage.formats.partition_metadata import format_uuid, parse_partition_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.clock import Now
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.partition import Partition


def select_replicas(paths: Sequence[str]) -> list[Selected]:
    """Find directories that are replicas of one partition, each of another node.

    Raises:
        UsageError: they are not.
        AccessError: a directory cannot be read.
    """
    found = [select_partition(each) for each in paths]
    first, seen, nodes = found[0].partition, set[str](), dict[int, str]()
    for each in found:
        path, real = each.partition.path, os.path.realpath(each.partition.path)
        if each.partition.topic_partition != first.topic_partition:
            raise UsageError(f"{path}: is no replica of {first.topic_partition}")
        if real in seen:
            raise UsageError(f"{path}: is given twice")
        seen.add(real)
        node_id = node_id_of(each)
        if node_id is not None and nodes.setdefault(node_id, path) != path:
            raise UsageError(
                f"{path}: is of node {node_id}, as {nodes[node_id]} is. That node has one replica"
            )
    return found


def require_known_bounds(replicas: Iterable[Selected]) -> None:
    """Refuse replicas whose log start or high watermark is in a file that cannot be read.

    Raises:
        RefusedError: there is such a replica.
    """
    for each in replicas:
        for problem in each.problems:
            around = Path(problem.path).parent
            raise RefusedError(
                f"{problem}: it may say what was acknowledged of {each.partition.path}",
                next_step=f"put it right first; eoctl check {pasted(around)} says how",
            )


def node_id_of(selected: Selected) -> int | None:
    """Return the node id of the broker, or None if unknown."""
    meta = None if selected.log_dir is None else selected.log_dir.meta
    return None if meta is None else meta.node_id


def require_one_topic(partitions: Sequence[Partition]) -> None:
    """Refuse topics of one name and different ids: one was deleted and created again.

    Raises:
        RefusedError: the topic ids differ.
    """
    known: dict[bytes, str] = {}
    for each in partitions:
        data = each.read_file(each.files.other(PARTITION_METADATA_NAME))
        try:
            topic_id = None if data is None else parse_partition_metadata(data).topic_id
        except FormatError:
            continue  # a broker refuses that directory anyway
        if topic_id is not None:
            known.setdefault(topic_id, each.path)
    if len(known) > 1:
        reported = ", ".join(f"{path}: {format_uuid(each)}" for each, path in known.items())
        raise RefusedError(
            f"these are different topics of one name, by their topic ids ({reported})",
            next_step="eoctl dump-segment DIR/partition.metadata   # of each",
        )


def moment_of(selected: Sequence[Selected], now: str | None) -> Now:
    """Return "now" by the clock of the selected log dirs."""
    log_dirs = [each.log_dir for each in selected if each.log_dir is not None]
    return resolve_now(
        now,
        [each.path for each in log_dirs],
    )


def note_of_use(partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield notes on running brokers and unfinished changes, which make a result doubtful."""
    for each in partitions:
        if each.stopped is StoppedState.LIVE:
            yield f"{each.path}: a broker is running on it: what is said here may change"
        log_dir = each.log_dir
        unfinished = None if log_dir is None else unfinished_path(log_dir.path)
        if unfinished is not None:
            yield f"{each.path}: an earlier change is unfinished: {unfinished}"


def more_replicas(
    partition: Partition, image: ClusterImage | None, *, given_count: int
) -> str | None:
    """Return the number of a partition's replicas, in words, if not all of them are given.

    If the metadata do not say the number, a second given replica counts as all others.
    """
    factor = None
    if image is not None and not image.problems:
        factor = image.replication_factor(partition.topic, partition.partition)
    if factor is None:
        return "an unknown number of" if given_count == 1 else None
    return str(factor) if given_count < factor else None
