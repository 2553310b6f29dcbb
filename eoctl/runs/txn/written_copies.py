"""Copies of one partition that are written to alike: opened, appended to, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.partitions.open_partition import open_partition
from eoctl.clients.partitions.target import resolve_target
from eoctl.replica_paths import require_one_topic, select_replicas
from recovery.changes.plans.plan import absolute_path, source_of
from recovery.transactions.abort import PlannedAppends, with_recovery
from storage.dirs.partition import Partition
from storage.errors import RefusedError, pasted
from storage.file_names import CLEAN_SHUTDOWN_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eoctl.clients.partitions.open_partition import OpenPartition, WriteOptions
    from eoctl.clients.partitions.target import TargetOptions, WriteTarget
    from eoctl.clock import Now
    from recovery.changes.plans.plan import PlanSource, Step
    from storage.producers.producer_state import Origin
    from storage.writing.writer import Appended


class WrittenCopy(NamedTuple):
    """One directory of a partition, and what is appended to it."""

    path: str
    partition: Partition
    opened: OpenPartition
    appends: PlannedAppends


class CopiesWriter:
    """Writes the same to all copies of a partition.

    Attributes:
        copies: of the partition.
        marker_offsets: by producer id, in the first copy.
    """

    def __init__(self, copies: Sequence[WrittenCopy]) -> None:
        self.copies = copies
        self.marker_offsets: dict[int, int] = {}

    @property
    def leader_epoch(self) -> int:
        """Of the first copy: they are compared when all is written."""
        return self.copies[0].appends.writer.leader_epoch

    def append(self, batch: bytes, *, origin: Origin) -> Appended:
        """Append a batch to each; returns where the first one has it."""
        first, *_ = [each.appends.writer.append(batch, origin=origin) for each in self.copies]
        return first

    def end_transaction(self, producer_id: int, producer_epoch: int, **marker: Any) -> Appended:
        """Append an end marker to each; returns where the first one has it."""
        first, *_ = [
            each.appends.writer.end_transaction(producer_id, producer_epoch, **marker)
            for each in self.copies
        ]
        self.marker_offsets[producer_id] = first.base_offset
        return first

    def roll_next(self) -> None:
        """Have what comes next go into another segment."""
        for each in self.copies:
            each.appends.writer.roll_next()

    def require_alike(self) -> None:
        """All copies get the same batches at the same offsets.

        Raises:
            RefusedError: they have diverged, or one lags behind.
        """
        first, *others = self.copies
        for each in others:
            if each.appends.logs != first.appends.logs:
                paths = " ".join(pasted(copy.path) for copy in self.copies)
                raise RefusedError(
                    f"{each.path}: ends differently: what is written would not be the same as in"
                    f" {first.path}",
                    next_step=f"eoctl replicas compare {paths}   # then eoctl replicas rejoin",
                )


def _let_pass(_: WriteTarget) -> None:
    pass


def open_copies(
    paths: Sequence[str],
    target_of: Callable[[Partition], TargetOptions],
    write: WriteOptions,
    moment: Now,
    check: Callable[[WriteTarget], None] = _let_pass,
) -> list[WrittenCopy]:
    """Find the end of each copy, after a crash as it is recovered; reads only.

    Args:
        paths: of the directories.
        target_of: what is known of a copy.
        write: how it is written to.
        moment: the clock.
        check: looks at each copy before it is opened.

    Raises:
        RefusedError, UsageError, AccessError: one must not be written to, or cannot be.
    """
    partitions = [Partition.of(each) for each in select_replicas(paths)]
    require_one_topic(partitions)
    copies = []
    for path, partition in zip(paths, partitions, strict=True):
        target = resolve_target(path, target_of(partition))
        check(target)
        opened = open_partition(target, write, moment, None)
        appends = PlannedAppends(
            target.path,
            opened.tail,
            opened.config,
            leader_epoch=opened.writer.leader_epoch,
            now_ms=moment.ms,
            expiration_ms=write.expiration_ms,
        )
        copies.append(WrittenCopy(path=path, partition=partition, opened=opened, appends=appends))
    return copies


def recovered(
    copy: WrittenCopy, appended: Iterable[Step], later: Iterable[Step] = ()
) -> list[Step]:
    """Put the recovery of a copy before what is appended; a file is changed once.

    The clean-shutdown markers are left out, which every plan adds itself.

    Args:
        copy: what was opened.
        appended: the steps that come now.
        later: those that come after others: they change their files.
    """
    recovery = copy.opened.recovery
    touched = {each.path for each in later}
    before = (
        each
        for each in (() if recovery is None else recovery.steps)
        if each.path not in touched and not each.path.endswith(f"/{CLEAN_SHUTDOWN_NAME}")
    )
    return [*with_recovery(before, list(appended))]


def sources_of(copies: Iterable[WrittenCopy], steps: Iterable[Step]) -> dict[str, PlanSource]:
    """The `.log` files that steps depend on and do not touch."""
    touched = {each.path for each in steps}
    found: dict[str, PlanSource] = {}
    for each in copies:
        if each.opened.recovery is not None:
            found |= {source.path: source for source in each.opened.recovery.sources}
        if each.partition.segments:
            path = absolute_path(each.partition.segments[-1].log.path)
            if path not in touched and path not in found:
                found[path] = source_of(path)
    return {path: each for path, each in found.items() if path not in touched}


def notes_of(copies: Iterable[WrittenCopy]) -> list[str]:
    """What a person should know of what was opened."""
    return [note for each in copies for note in (*each.opened.target.notes, *each.opened.notes)]
