"""Plan what a broker does to a partition when it starts without the clean-shutdown marker (REC).

It goes from the segment with the recovery point on, in order (REC-6, REC-7, SNAP-9).
  1  producer state at its base, from the newest good snapshot below and a replay.
  2  its batches are walked and verified. The `.log` ends before the first bad batch.
  3  `.index`, `.timeindex` and `.txnindex` from the batches.
  4  a snapshot at the end of the segment.
After a truncation, later segments are removed. At the end, leader epochs are truncated at the log
end and extended by the batches' epochs (EPOCH-6). Stray snapshots are removed (SNAP-3, SNAP-5).

A broker changes the files directly. Here it is a plan, whose steps keep the bytes that they
truncate or replace. eoctl refuses two cases that a broker does not notice. A log that ends below
its recovery point has lost flushed records (OFS-2). A log that ends below its log start would be
deleted (REC-9).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import absolute_path, remove_step, replace_step, truncate_step
from recovery.changes.plans.preconditions import require_compacted, require_no_problem
from recovery.rebuild.derive import cut_at_log_start, recover_segment, stays
from recovery.rebuild.index_builder import BuiltIndexes
from recovery.rebuild.segment_pass import SegmentJob, add_epoch_run, pass_over
from recovery.replay.recover_state import first_recovered, read_snapshots
from recovery.replay.snapshots import StateHistory
from storage.dirs.log_tail import LogTail, TailWalk, require_flushed, require_room
from storage.errors import FormatError, RefusedError, pasted
from storage.file_names import LEADER_EPOCHS_NAME
from storage.formats.checkpoint import LeaderEpochEntry, encode_leader_epochs
from storage.formats.producer_snapshot import encode_snapshot
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.formats.txn_index import parse_entries
from storage.kernels.protocol import Verdict, VerdictKind
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.rebuild.derive import RebuiltSegment
    from recovery.rebuild.segment_pass import EpochRun
    from recovery.replay.snapshots import Clock
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry, SegmentFiles


class Recovery(NamedTuple):
    """The effects of a start.

    Attributes:
        steps: changes of files, in a safe order. None: the partition is already closed.
        logs: paths of the `.log` files that the plan comes from, and that no step changes.
        tail: the position where a writer continues.
        cut_bytes: removed bytes of the log, including whole segments after the truncation.
        stop: why the last remaining segment is truncated. None if it is not.
        notes: facts for the user.
    """

    steps: tuple[Step, ...]
    logs: tuple[str, ...]
    tail: LogTail
    cut_bytes: int
    stop: Verdict | None
    notes: tuple[str, ...]


def plan_recovery(
    partition: Partition,
    clock: Clock,
    interval_bytes: int,
    *,
    on_bytes: Callable[[int], None] | None = None,
    is_written_to: bool = True,
) -> Recovery:
    """Plan the recovery of a partition with at least one segment. Reads only.

    Args:
        partition: as listed now, nothing of it read before.
        clock: for the expiry of producers.
        interval_bytes: `index.interval.bytes`.
        on_bytes: called with the size of each finished segment.
        is_written_to: a writer will append. If False, the plan covers a log that ends below the
            recovery point, and the caller reports the loss. It also covers older message formats.

    Raises:
        RefusedError: the broker's behaviour is not safe, or it could not load the partition.
        AccessError: it cannot be read.
    """
    require_compacted(partition)
    try:
        planner = _BrokerStartPlanner(partition, clock, interval_bytes, on_bytes)
        return planner.plan(is_written_to=is_written_to)
    except (FormatError, AppendError) as error:
        raise RefusedError(
            f"{partition.path}: a broker could not load it: {error}",
            next_step=f"eoctl repair {pasted(partition.path)} --strategy salvage   # without"
            " that batch; or eoctl truncate to what is before it",
        ) from error


class _BrokerStartPlanner:
    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        interval_bytes: int,
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._partition = partition
        self._interval_bytes = interval_bytes
        self._on_bytes = on_bytes
        self._directory = Path(absolute_path(partition.path))
        self._log_start_offset = partition.log_start_offset or 0
        self._disk_epochs = partition.leader_epochs() or []
        disk, self._notes = read_snapshots(partition)
        require_no_problem(partition)
        self._history = StateHistory(clock, disk, log_start_offset=self._log_start_offset)
        log_dir = partition.log_dir
        recovery_point = None if log_dir is None else log_dir.recovery_point(partition.directory)
        self._first = first_recovered(partition.segments, recovery_point or 0)
        self._done: list[RebuiltSegment] = []
        self._epoch_runs: list[EpochRun] = []

    def plan(self, *, is_written_to: bool) -> Recovery:
        """Recover segment by segment, then compare with the disk."""
        segments = self._partition.segments
        for files in segments[self._first :]:
            self._recover(files)
            if self._done[-1].end.is_cut:
                break
        kept, removed = self._recovered(), segments[self._first + len(self._done) :]
        last, end = kept[-1], self._done[-1].end
        self._require_readable(last, end.verdict)
        self._require_safe(last, end.next_offset, is_written_to=is_written_to)
        epochs = self._epochs(end.next_offset)
        steps = [*self._epoch_steps(epochs), *self._removals(removed)]
        for files, done in zip(kept, self._done, strict=True):
            steps += self._segment_steps(files, done)
        steps += self._snapshot_steps(end.next_offset)
        touched = {each.path for each in steps}
        logs = [str(self._directory / each.log.name.name) for each in kept]
        return Recovery(
            steps=tuple(steps),
            logs=tuple(each for each in logs if each not in touched),
            tail=self._tail(last, epochs, may_be_older=not is_written_to),
            cut_bytes=end.log_bytes
            - end.valid_bytes
            + sum(each.log.file_bytes for each in removed),
            stop=end.verdict if end.is_cut else None,
            notes=tuple(self._notes),
        )

    def _recovered(self) -> Sequence[SegmentFiles]:
        return self._partition.segments[self._first : self._first + len(self._done)]

    def _recover(self, files: SegmentFiles) -> None:
        history, segments = self._history, self._partition.segments
        state = history.load_to(files.base_offset, segments)
        history.forget_above(files.base_offset)
        history.take(state)
        job = SegmentJob(
            path=files.log.path,
            base_offset=files.base_offset,
            is_last=self._partition.is_active(files),
            interval_bytes=self._interval_bytes,
            is_as_broker=True,
        )
        done = recover_segment(history, files.base_offset, pass_over(job))
        if done.end.failure is None:
            for run in done.end.epochs:
                add_epoch_run(self._epoch_runs, run)
        else:
            done = self._emptied(done, files)
        if done.end.is_cut:
            verdict = done.end.verdict
            self._notes.append(
                f"{files.log.path}: {verdict.kind.replace('_', ' ')} at position "
                f"{done.end.valid_bytes}: {verdict.reason}: a broker truncates it there"
            )
        self._done.append(done)
        if self._on_bytes is not None:
            self._on_bytes(done.end.log_bytes)

    def _emptied(self, done: RebuiltSegment, files: SegmentFiles) -> RebuiltSegment:
        """Apply REC-8: an index does not take an offset, so the whole segment is emptied."""
        end, base_offset = done.end, files.base_offset
        assert end.failure is not None
        if end.failure.is_full:
            raise RefusedError(
                f"{files.log.path}: {end.failure.reason}: no broker starts on it",
                next_step="a higher segment.index.bytes for the topic",
            )
        self._history.forget_above(base_offset)
        verdict = Verdict(
            kind=VerdictKind.CORRUPT,
            start_pos=0,
            end_pos=end.log_bytes,
            check_id="BAT-3",
            reason=f"{end.failure.reason}, and a broker empties the segment",
        )
        end = end._replace(
            next_offset=base_offset,
            valid_bytes=0,
            indexes=BuiltIndexes(b"", b""),
            epochs=(),
            verdict=verdict,
        )
        return done._replace(end=end, txn_index=None if done.txn_index is None else b"")

    def _require_readable(self, last: SegmentFiles, stop: Verdict) -> None:
        """Refuse a segment that a broker would empty instead of truncating it (REC-6)."""
        if stop.kind is VerdictKind.UNREADABLE:
            raise RefusedError(
                f"{last.log.path}: position {stop.start_pos}: {stop.reason}: a broker would"
                " empty the whole segment, and drop those behind it",
                next_step=f"eoctl repair {pasted(self._partition.path)} --strategy salvage",
            )

    def _require_safe(self, last: SegmentFiles, end_offset: int, *, is_written_to: bool) -> None:
        require_room(last, end_offset)
        if is_written_to:
            require_flushed(self._partition, end_offset)
        if self._log_start_offset > end_offset:
            raise RefusedError(
                f"{self._partition.path}: its log start offset is {self._log_start_offset}, above"
                f" its end {end_offset}: a broker would delete all of it at its start [OFS-1]",
                next_step=f"eoctl repair {pasted(self._partition.path)} --strategy salvage",
            )

    def _epochs(self, end_offset: int) -> list[LeaderEpochEntry]:
        """Apply EPOCH-6: truncate at the end and at the log start, add epochs of the batches.

        The epoch that begins at the end stays, though a start drops it: no lower epoch may be
        assigned.
        """
        entries = [each for each in self._disk_epochs if each.start_offset <= end_offset]
        for run in self._epoch_runs:
            if not entries or run.epoch > entries[-1].epoch:
                entries.append(LeaderEpochEntry(run.epoch, run.first_base_offset))
        return cut_at_log_start(entries, self._log_start_offset)

    def _tail(
        self, last: SegmentFiles, epochs: Sequence[LeaderEpochEntry], *, may_be_older: bool
    ) -> LogTail:
        done = self._done[-1]
        walk = TailWalk(self._interval_bytes, None, may_be_older=may_be_older)
        walk.read(last, done.end.valid_bytes)
        known = [each.epoch for each in (*self._disk_epochs, *epochs)]
        return LogTail(
            base_offset=last.base_offset,
            log_bytes=done.end.valid_bytes,
            end_offset=walk.end_offset,
            first_timestamp_ms=walk.first_timestamp_ms,
            indexes=walk.indexes,
            aborted=tuple(parse_entries(done.txn_index or b"")),
            epochs=tuple(epochs),
            last_leader_epoch=max(known, default=NO_LEADER_EPOCH),
            producers=tuple(self._history.snapshots.get(walk.end_offset, ())),
        )

    # -- steps

    def _epoch_steps(self, epochs: Sequence[LeaderEpochEntry]) -> Iterator[Step]:
        if list(epochs) != self._disk_epochs:
            path = self._directory / LEADER_EPOCHS_NAME
            yield replace_step(str(path), encode_leader_epochs(epochs), "leader epochs of the log")

    def _removals(self, removed: Sequence[SegmentFiles]) -> Iterator[Step]:
        """Yield removals, last segment and `.log` first, so that the rest is always a log."""
        for files in reversed(removed):
            for each in (files.log, files.offset_index, files.time_index, files.txn_index):
                if each is not None:
                    yield remove_step(self._path(each), "after the end of the truncated log")

    def _segment_steps(self, files: SegmentFiles, done: RebuiltSegment) -> Iterator[Step]:
        if done.end.is_cut:
            yield truncate_step(self._path(files.log), done.end.valid_bytes, "not a good batch")
        for entry, suffix, content in (
            (files.offset_index, ".index", done.end.indexes.offset_index),
            (files.time_index, ".timeindex", done.end.indexes.time_index),
            (files.txn_index, ".txnindex", done.txn_index or b""),
        ):
            # The indexes exist even if empty. `.txnindex` may be absent without aborts.
            is_missing = entry is None and suffix != ".txnindex"
            if is_missing or (self._partition.read_file(entry) or b"") != content:
                path = str(self._directory / f"{files.base_offset:020d}{suffix}")
                yield replace_step(path, content, "derived from the .log")
        require_no_problem(self._partition)

    def _snapshot_steps(self, end_offset: int) -> Iterator[Step]:
        """Yield the steps for snapshots. The last snapshot closes the partition."""
        bases = [each.base_offset for each in self._partition.segments[: self._first]]
        bases += [each.end.base_offset for each in self._done]
        snapshots = self._history.snapshots
        wanted = {
            offset: encode_snapshot(snapshots[offset])
            for offset in sorted(snapshots)
            if offset <= end_offset and stays(offset, bases, snapshots)
        }
        on_disk: dict[int, FileEntry] = {}
        for entry in self._partition.files.snapshots:
            offset = entry.name.offset
            if offset is None or offset not in wanted:
                yield remove_step(self._path(entry), "producer state that a broker deletes")
            else:
                on_disk[offset] = entry
        for offset, content in wanted.items():
            if self._partition.read_file(on_disk.get(offset)) != content:
                path = str(self._directory / f"{offset:020d}.snapshot")
                yield replace_step(path, content, "producer state, derived from the .log")

    def _path(self, entry: FileEntry) -> str:
        return str(self._directory / entry.name.name)
