"""Plan a truncation: the files of a partition as after a broker's truncation and restart.

Rules TRUNC, FIX-5, FIX-7. The order of steps is safe if a broker is started after any of them.
  1  Checkpoints: recovery point, high watermark, log start and cleaner are lowered to the new end.
     A lower recovery point makes the start verify what the next steps change. A log start above the
     end would make it delete everything (REC-9).
  2  Leader epochs that begin at or above the end. An unclean start adds them again if it finds
     their batches.
  3  Whole segments, from the last one backwards, so that the rest is always a log.
  4  The last remaining segment: `.log`, `.index`, `.timeindex`, `.txnindex`.
  5  The producer snapshot at the end.
If no segment is kept (truncateFully), an empty segment at the target comes before 3. Without any
segment the log would start at 0 again (REC-15).

The broker keeps the target as its log end in memory, even inside of a removed batch. After the next
start it is the end of the last batch. This plan always has the latter.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from recovery.changes.plans.plan import absolute_path, remove_step, replace_step, truncate_step
from recovery.changes.plans.preconditions import (
    CheckpointLimits,
    lower_checkpoints,
    read_whole,
    require_checkpoints,
    require_compacted,
    require_live,
    require_no_problem,
)
from recovery.replay.recover_state import recover_cut_state
from recovery.truncate.removed_part import cannot_load
from recovery.truncate.target import find_target
from storage.dirs.discovery import UNKNOWN_PARTITION
from storage.errors import FormatError, RefusedError
from storage.file_names import COORDINATOR_TOPICS, LEADER_EPOCHS_NAME
from storage.formats import offset_index, time_index, txn_index
from storage.formats.checkpoint import encode_leader_epochs
from storage.formats.producer_snapshot import encode_snapshot
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.replay.snapshots import Clock
    from recovery.truncate.removed_part import Cut
    from recovery.truncate.target import CutTarget, TargetRequest
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry, SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry

T = TypeVar("T")

REBUILD_HINT = "; eoctl rebuild derives files that are bad"


class Truncation(NamedTuple):
    """A planned truncation.

    Attributes:
        partition: as listed.
        clock: for the expiry of producers.
        target: the new end of the log.
        log_start_offset: after the truncation.
        producers: the broker's producers at the end, in a snapshot's order. None if unknown,
            because the replayed log is damaged.
        steps: empty if there is nothing to truncate.
        notes: facts for the user, including the target's.
    """

    partition: Partition
    clock: Clock
    target: CutTarget
    log_start_offset: int
    producers: tuple[ProducerEntry, ...] | None
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def cut(self) -> Cut:
        """The removed part of the log."""
        return self.target.cut


def plan_truncation(partition: Partition, request: TargetRequest, *, clock: Clock) -> Truncation:
    """Plan the truncation in `request`. Reads only.

    Args:
        partition: as listed now, nothing of it read before.
        request: the target.
        clock: for the expiry of producers.

    Raises:
        UsageError: a target outside of the log.
        RefusedError: the target is unknown or unsafe, or the directory must not be changed.
        AccessError: it cannot be read.
    """
    require_changeable(partition)
    target = find_target(partition, request)
    cut = target.cut
    notes = list(target.notes)
    log_start_offset = min(target.log_start_offset, cut.end_offset)
    if cut.is_nothing:
        return Truncation(
            partition=partition,
            clock=clock,
            target=target,
            log_start_offset=log_start_offset,
            producers=None,
            steps=(),
            notes=tuple(notes),
        )
    producers, unknown = producers_at_end(partition, target, clock)
    notes += unknown
    if partition.topic in COORDINATOR_TOPICS:
        notes.append(
            f"{partition.topic} belongs to a coordinator: its groups or transactions return to an "
            "earlier state, in all partitions that they concern"
        )
    planner = TruncationSteps(partition, cut, log_start_offset, producers)
    steps = tuple(planner.steps())
    require_no_problem(partition, REBUILD_HINT)
    return Truncation(
        partition=partition,
        clock=clock,
        target=target,
        log_start_offset=log_start_offset,
        producers=producers,
        steps=steps,
        notes=tuple(notes),
    )


def require_changeable(partition: Partition, *, repaired: frozenset[str] = frozenset()) -> None:
    """Refuse a partition that must not be changed, or is inconsistent.

    Args:
        partition: as listed.
        repaired: rules whose violations are about to be repaired.

    Raises:
        RefusedError: with the next step.
    """
    name = partition.directory.name
    require_live(partition.path, name)
    if name.partition == UNKNOWN_PARTITION:
        raise RefusedError(
            f"{partition.path}: not the name of a partition",
            next_step="name the directory TOPIC-N, as a broker has it",
        )
    require_no_problem(partition, REBUILD_HINT, repaired=repaired)
    require_compacted(partition)
    require_checkpoints(partition.log_dir, "cannot be lowered")


def producers_at_end(
    partition: Partition, target: CutTarget, clock: Clock
) -> tuple[tuple[ProducerEntry, ...] | None, list[str]]:
    """Derive the producer state at the new end.

    Returns:
        The state, None if damage makes it unknown, and the damage.
    """
    cut = target.cut
    if cut.end_offset <= target.log_start_offset:
        return (), []  # SNAP-3: a broker keeps nothing at or below the log start
    try:
        entries, stops = recover_cut_state(partition, clock, cut.end_offset, cut.kept_count)
    except AppendError as error:
        raise cannot_load(partition.path, error, error.offset) from error
    except FormatError as error:
        raise cannot_load(error.path, error, None) from error
    # The kept part of the last segment was walked, and is good.
    last = partition.segments[cut.kept_count - 1].log.path
    damage = {
        path: verdict
        for path, verdict in stops.items()
        if path != last or verdict.start_pos < cut.kept_bytes
    }
    unknown = [
        f"{path}: position {verdict.start_pos}: {verdict.reason or verdict.kind}: lies below the "
        "offsets that a broker verifies; the producer state after it is unknown"
        for path, verdict in damage.items()
    ]
    return None if damage else tuple(entries), unknown


class TruncationSteps:
    """The steps of a truncation that removes something."""

    def __init__(
        self,
        partition: Partition,
        cut: Cut,
        log_start_offset: int,
        producers: Sequence[ProducerEntry] | None,
    ) -> None:
        self._partition = partition
        self._cut = cut
        self._log_start_offset = log_start_offset
        self._producers = producers
        self._directory = Path(absolute_path(partition.path))
        segments = partition.segments
        self._removed = segments[cut.kept_count :]
        self._last = segments[cut.kept_count - 1] if cut.kept_count else None

    def steps(self) -> Iterator[Step]:
        """Yield the steps in a safe order."""
        yield from self.checkpoints()
        yield from self._leader_epochs()
        if self._last is None:
            yield from self._new_segment()
        yield from self.removals()
        if self._last is not None:
            yield from self._cut_last(self._last)
        yield from self._snapshot_at_end()

    # -- 1, 2

    def checkpoints(self) -> Iterator[Step]:
        """Lower the checkpoints of the log dir."""
        if self._partition.log_dir is None:
            return
        end = self._cut.end_offset
        first_base = active_base = end
        if self._last is not None:
            first_base = self._partition.segments[0].base_offset
            active_base = self._last.base_offset
        limits = CheckpointLimits(
            self._partition.directory.topic_partition,
            recovery_point=end,
            end=end,
            first_dirty=active_base,
            has_log_start=end > first_base,
        )
        yield from lower_checkpoints(self._directory.parent, [limits])

    def _leader_epochs(self) -> Iterator[Step]:
        entries = self._partition.leader_epochs()
        if not entries:
            return
        end = self._cut.end_offset
        kept = []
        if self._last is not None:
            kept = [each for each in entries if each.start_offset < end]
        if len(kept) < len(entries):
            path = self._directory / LEADER_EPOCHS_NAME
            reason = f"{len(entries) - len(kept)} of {len(entries)} leader epochs begin at the end"
            yield replace_step(str(path), encode_leader_epochs(kept), f"{reason} or above")

    # -- 3

    def _new_segment(self) -> Iterator[Step]:
        """Create the empty segment. Index files without a `.log` may have its name."""
        stem = f"{self._cut.offset:020d}"
        for suffix in (".log", ".index", ".timeindex"):
            path = self._directory / f"{stem}{suffix}"
            yield replace_step(str(path), b"", "empty segment, where the log starts")
        for each in self._partition.files.orphans:
            if each.name.name == f"{stem}.txnindex":
                yield remove_step(self._path(each), "has no segment")

    def removals(self) -> Iterator[Step]:
        """Remove whole segments, and snapshots that are invalid after the truncation."""
        end = self._cut.end_offset
        gone: set[str] = set()
        for files in reversed(self._removed):
            # The `.log` first: a broker deletes indexes without a `.log`, but rebuilds the others.
            for each in (
                files.log,
                files.offset_index,
                files.time_index,
                files.txn_index,
                files.snapshot,
            ):
                if each is not None:
                    gone.add(each.path)
                    yield remove_step(self._path(each), f"segment {files.base_offset} goes")
        for each in reversed(self._partition.files.snapshots):
            offset = each.name.offset
            if each.path in gone or offset is None:
                continue
            if offset > end or offset <= self._log_start_offset or self._last is None:
                where = "above the end" if offset > end else "not above the log start"
                yield remove_step(self._path(each), f"producer state {where}")

    # -- 4

    def _cut_last(self, files: SegmentFiles) -> Iterator[Step]:
        base_offset, cut = files.base_offset, self._cut
        yield from self._cut_file(files.log, cut.kept_bytes, "batches")

        def is_indexed(entry: offset_index.OffsetIndexEntry) -> bool:
            is_below = base_offset + entry.relative_offset < cut.end_offset
            return is_below and entry.segment_pos < cut.kept_bytes

        def is_timed(entry: time_index.TimeIndexEntry) -> bool:
            return base_offset + entry.relative_offset < cut.end_offset

        def is_ended(entry: txn_index.AbortedTxn) -> bool:
            return entry.last_offset < cut.end_offset

        yield from self._cut_entries(
            files.offset_index, offset_index.parse_entries, is_indexed, offset_index.ENTRY_BYTES
        )
        yield from self._cut_entries(
            files.time_index, time_index.parse_entries, is_timed, time_index.ENTRY_BYTES
        )
        yield from self._cut_entries(
            files.txn_index, txn_index.parse_entries, is_ended, txn_index.ENTRY_BYTES
        )

    def _cut_entries(
        self,
        entry: FileEntry | None,
        parse: Callable[[bytes], Iterable[T]],
        is_kept: Callable[[T], bool],
        entry_bytes: int,
    ) -> Iterator[Step]:
        """Keep the entries before the first removed entry. Remove zeros at the end as well."""
        data = self._partition.read_file(entry)
        if entry is None or data is None:
            return
        count = sum(1 for _ in takewhile(is_kept, parse(data)))
        yield from self._cut_file(entry, count * entry_bytes, "entries")

    def _cut_file(self, entry: FileEntry, kept_bytes: int, what: str) -> Iterator[Step]:
        if kept_bytes < entry.file_bytes:
            reason = f"{what} below offset {self._cut.end_offset} stay"
            yield truncate_step(self._path(entry), kept_bytes, reason)

    # -- 5

    def _snapshot_at_end(self) -> Iterator[Step]:
        end = self._cut.end_offset
        if self._producers is None or end <= self._log_start_offset:
            return
        content = encode_snapshot(self._producers)
        path = self._directory / f"{end:020d}.snapshot"
        if read_whole(path) != content:
            yield replace_step(str(path), content, "producer state at the end")

    def _path(self, entry: FileEntry) -> str:
        return str(self._directory / entry.name.name)
