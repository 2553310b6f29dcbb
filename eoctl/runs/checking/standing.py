"""Where the copies that a check has read stood in their cluster: beside its rows, not in them.

What is kept of a check holds for the files; who led them is asked anew each time.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eoctl.output import OutputFormat
from eoctl.runs.in_cluster import NO_LEADER, ClusterNotes, state_words
from recovery.fsck.one_pass import PartitionRow
from storage.dirs.acknowledged import InCluster, in_cluster
from storage.file_names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.runs.checking.run import CheckRun

PLACED_COLUMNS = ("leader", "isr", "min_insync_replicas", "min_insync_from", "standing")
PARTITION_COLUMNS = (*PartitionRow._fields[:-1], *PLACED_COLUMNS, PartitionRow._fields[-1])


class CheckedCluster:
    """What the metadata say of the rows of a check; not to be asked before it has ended."""

    def __init__(self, run: CheckRun) -> None:
        self._run = run

    @cached_property
    def placed(self) -> list[tuple[PartitionRow, InCluster]]:
        """Each row, and what is known of its directory."""
        return [
            (row, in_cluster(*job.selected, job.image))
            for row, job in zip(self._run.rows, self._run.jobs, strict=False)
        ]

    def rows(self, output: OutputFormat) -> Iterator[tuple[Any, ...]]:
        """Give the rows with `PARTITION_COLUMNS`."""
        for row, placed in self.placed:
            known = [getattr(placed, each) for each in PLACED_COLUMNS]
            if output is OutputFormat.TEXT and placed.leader == -1:
                known[0] = NO_LEADER
            yield (*row[:-1], *known, row[-1])

    def words(self) -> str:
        """Sum up in a line; "": nothing is known."""
        return state_words([placed for _, placed in self.placed])

    @cached_property
    def notes(self) -> list[str]:
        """From which metadata that is, and what is not as it should be."""
        told = ClusterNotes()
        told.add_unread(self._run.clusters.unread)
        for job, (row, placed) in zip(self._run.jobs, self.placed, strict=False):
            if row.topic != METADATA_TOPIC:
                told.add_image(job.image)
                told.add(f"{row.topic}-{row.partition}", row.path, placed)
        return [*told.notes()]

    @property
    def is_short(self) -> bool:
        """Whether metadata that were used cannot be read as a whole, and no finding says so."""
        jobs = self._run.jobs
        images = {id(each.image): each.image for each in jobs if each.image is not None}
        doubtful = [each.path for each in images.values() if not each.is_complete]
        checked = {os.path.realpath(each.selected.partition.path) for each in jobs}
        is_found = all(os.path.realpath(each) in checked for each in doubtful)
        return not is_found or bool(self._run.clusters.unread)
