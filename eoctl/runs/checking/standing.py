"""Where the copies that a check has read stood in their cluster: beside its rows, not in them.

What is kept of a check holds for the files; who led them is asked anew each time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.output import OutputFormat
from eoctl.runs.in_cluster import NO_LEADER, ClusterNotes
from recovery.fsck.one_pass import PartitionRow
from storage.dirs.standing import InCluster, in_cluster
from storage.file_names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.runs.checking.run import CheckRun

PLACED_COLUMNS = ("leader", "isr", "min_insync_replicas", "min_insync_from", "standing")
PARTITION_COLUMNS = (*PartitionRow._fields[:-1], *PLACED_COLUMNS, PartitionRow._fields[-1])


class CheckedCluster(NamedTuple):
    """What is said of the cluster at the end.

    Attributes:
        is_short: metadata that were used, and were not among what was checked, cannot be read as
            a whole: no finding says so.
    """

    notes: tuple[str, ...]
    is_short: bool


def placed_rows(run: CheckRun) -> Iterator[tuple[PartitionRow, InCluster]]:
    """Give the rows of a check that has ended, and what the metadata say of each."""
    for row, job in zip(run.rows, run.jobs, strict=False):
        yield row, in_cluster(*job.selected, job.image)


def partition_rows(run: CheckRun, output: OutputFormat) -> Iterator[tuple[Any, ...]]:
    """Give the rows with `PARTITION_COLUMNS`."""
    for row, placed in placed_rows(run):
        known = [getattr(placed, each) for each in PLACED_COLUMNS]
        if output is OutputFormat.TEXT and placed.leader == -1:
            known[0] = NO_LEADER
        yield (*row[:-1], *known, row[-1])


def cluster_of(run: CheckRun) -> CheckedCluster:
    """Say from which metadata that is, and what is not as it should be."""
    told = ClusterNotes()
    checked = {os.path.realpath(each.selected.partition.path) for each in run.jobs}
    is_short = bool(run.clusters.unread)
    told.add_unread(run.clusters.unread)
    for job, (row, placed) in zip(run.jobs, placed_rows(run), strict=False):
        if row.topic == METADATA_TOPIC or job.image is None:
            continue
        told.add_image(job.image)
        told.add(f"{row.topic}-{row.partition}", row.path, placed)
        if not job.image.is_complete:
            is_short = is_short or os.path.realpath(job.image.path) not in checked
    return CheckedCluster(tuple(told.notes()), is_short)
