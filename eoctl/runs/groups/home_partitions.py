"""Partitions of `__consumer_offsets` in all copies that are given: opened, appended to alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.call import Lacking
from eoctl.clients.partitions.open_partition import WriteOptions
from eoctl.clients.partitions.target import TargetOptions, lacking_single_copy
from eoctl.runs.txn.written_copies import (
    CopiesWriter,
    WrittenCopy,
    notes_of,
    open_copies,
    recovered,
    sources_of,
)
from storage.file_names import GROUPS_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.clock import Now
    from recovery.changes.plans.plan import PlanSource, Step
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir

REASON = "a segment with committed offsets"


class HomePartition:
    """One partition of the topic, in all copies that are given.

    Attributes:
        number: of the partition.
        paths: of the directories.
        lacking_count: so many replicas are not given; None: it is not known how many there are.
    """

    def __init__(self, number: int, log_dirs: Sequence[LogDir], image: ClusterImage | None) -> None:
        self.number = number
        self.paths = [
            str(each.path)
            for log_dir in log_dirs
            for each in log_dir.partitions_of(GROUPS_TOPIC)
            if each.name.partition == number and each.name.state is DirState.LIVE
        ]
        self.lacking_count: int | None = None
        factor = None
        if image is not None and not image.problems:
            factor = image.replication_factor(GROUPS_TOPIC, number)
        if factor is not None:
            self.lacking_count = max(factor - len(self.paths), 0)
        self._copies: tuple[WrittenCopy, ...] = ()

    def lacking_replicas(self) -> Iterator[Lacking]:
        """Tell which replicas are not given, or that it is not known."""
        if self.lacking_count is None and len(self.paths) == 1:
            found = lacking_single_copy(None, TargetOptions())
            if found is not None:
                yield found._replace(why=f"{self.paths[0]}: {found.why}")
        elif self.lacking_count:
            count = len(self.paths) + self.lacking_count
            yield Lacking(
                why=f"{GROUPS_TOPIC}-{self.number} has {count} replicas, and {self.lacking_count}"
                " would lack what is appended",
                options=("--single-copy",),
                meaning="what is given are the only ones that survive",
                first="name the log dirs of the other brokers, too",
            )

    def look(self, metadata_dir: str | None, now: Now) -> None:
        """Find the end of each copy, after a crash as it is recovered; reads only.

        That not all copies are given is the caller's to decide.

        Raises:
            RefusedError, UsageError, AccessError: one must not be written to, or cannot be.
        """
        options = TargetOptions(
            metadata_dir=metadata_dir,
            single_copy=True,
            may_be_internal=True,
            keeps_directory=True,
        )
        self._copies = tuple(open_copies(self.paths, lambda _: options, WriteOptions(), now))

    @property
    def copies(self) -> tuple[WrittenCopy, ...]:
        """Those that are open."""
        return self._copies

    def steps(self) -> list[Step]:
        """Close them, and give the files that are made or replaced.

        Raises:
            RefusedError: the copies do not end alike.
        """
        CopiesWriter(self._copies).require_alike()
        steps: list[Step] = []
        for each in self._copies:
            steps += recovered(
                each, (step for group in each.appends.steps(REASON) for step in group)
            )
        return steps

    def sources(self, steps: Sequence[Step]) -> dict[str, PlanSource]:
        """The `.log` files that the steps depend on and do not touch."""
        return sources_of(self._copies, steps)

    @property
    def cut_bytes(self) -> int:
        """What their recovery cuts off, in all copies."""
        recoveries = [each.opened.recovery for each in self._copies]
        return sum(each.price["cut_bytes"] for each in recoveries if each is not None)

    @property
    def notes(self) -> list[str]:
        """What a person should know of what was opened."""
        return notes_of(self._copies)
