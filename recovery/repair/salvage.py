"""Plan a salvage: every good batch stays, byte for byte and with its offset, also after damage.

A broker truncates a log at the first bad batch and drops everything after it (REC-6). Below the
recovery point it does not check at all (REC-14). A salvage removes only the bad ranges. The offsets
then have gaps, which consumers and replicas accept (FIX-6). It also removes whole batches with
which no broker loads the log (`quarantine`). All derived files are rebuilt for the remaining
batches: indexes, aborted transactions, leader epochs, producer state. Producer state comes from the
log alone, except for snapshots of segments below the first loss. Such snapshots may have producers
whose batches are deleted (SNAP-7).

The order of steps is safe if a broker is started after any of them.
  1  Checkpoints. The recovery point is lowered to the first changed segment, so that a start
     verifies it and derives its files again. Others are lowered to the new end (FIX-5).
  2  Foreign files, leader epochs, surplus producer snapshots.
  3  Segments, from the last one backwards: `.log`, then `.index`, `.timeindex`, `.txnindex`.
  4  Producer snapshots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.changes.plans.plan import (
    LogSlice,
    absolute_path,
    remove_step,
    replace_step,
    splice_step,
    truncate_step,
)
from recovery.changes.plans.preconditions import CheckpointLimits
from recovery.checks.partition_check import CheckOptions, check_partition
from recovery.checks.replay_check import ReplayLimits
from recovery.rebuild.derive import rebuild_partition
from recovery.rebuild.diff import FileState, compare_files
from recovery.repair.repaired import (
    FOREIGN_FILE_ID,
    KeptSegment,
    Repaired,
    changed_aborts,
    compare_state,
    count_intact,
    foreign_steps,
    lost_range,
    with_missing,
)
from recovery.repair.salvage_scan import Loss, salvage_misnamed, salvage_segment
from recovery.repair.strategies import Strategy
from recovery.replay.end_markers import CUT_CHECK_IDS
from recovery.replay.recover_state import first_recovered, read_snapshots
from recovery.replay.snapshots import Clock
from recovery.rules.findings import Severity
from recovery.transactions.unknown_ends import find_ends, log_files_of
from recovery.truncate.plan import require_changeable
from storage.counts import counted
from storage.dirs.log_dir import StoppedState
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.errors import FormatError, RefusedError, pasted
from storage.file_names import LEADER_EPOCHS_NAME, FileKind, classify
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER, UNKNOWN
from storage.formats.producer_snapshot import parse_snapshot
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.segment import open_segment
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.rebuild.derive import RebuildSettings, Rebuilt
    from recovery.rebuild.diff import FileDifference
    from recovery.rebuild.segment_pass import PassEnd
    from recovery.repair.repaired import RemovedRange
    from recovery.repair.salvage_scan import Run, SalvagedSegment
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.partition import Partition
    from storage.kernels.protocol import HeaderTable


# -- whole batches with which no broker loads a log: a salvage removes them like damage.
#
#   PRD-4                a data batch outside of the open transaction of its producer.
#   BAT-12               a control batch without an end marker.
#   CTL-1, CTL-2, BAT-7  a control batch whose record does not parse: recovery truncates after it.
#
# Their checksums are right. No scan finds them, but the replay of producer state at every start
# does (PROD-6, PROD-9).


class _QuarantinedBatch(NamedTuple):
    """The place of a batch to remove."""

    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int


def without_refused(
    found: Sequence[SalvagedSegment], error: FormatError | AppendError
) -> list[SalvagedSegment] | None:
    """Remove the batches that made a replay fail from the remaining ranges.

    For a producer's non-transactional data batches, all are removed up to its next control batch in
    that segment.

    Args:
        found: the segments of the partition, in order.
        error: the error of `rebuild_partition` for their kept ranges.

    Returns:
        The remaining segments. None if the error has no batch to remove.

    Raises:
        AccessError: the segment cannot be opened.
    """
    batches: list[_QuarantinedBatch] = []
    if isinstance(error, AppendError):
        check_id, reason = "PRD-4", f"{error}: a broker cannot load it"
        number = max(bisect_right([each.base_offset for each in found], error.offset) - 1, 0)
        batches += _of_producer(found[number], error)
    else:
        check_id, reason = error.check_id, f"{error.message}: {error.found}"
        numbers = [n for n, each in enumerate(found) if each.path == error.path]
        number = numbers[0] if numbers else 0
        if numbers:
            batches += _at(found[number], error.pos)
    return _without(found, number, batches, check_id, reason)


def without_cut(found: Sequence[SalvagedSegment], end: PassEnd) -> list[SalvagedSegment] | None:
    """Remove the control batch after which recovery would truncate. None for other reasons.

    Raises:
        AccessError: the segment cannot be opened.
    """
    verdict = end.verdict
    if verdict.check_id not in CUT_CHECK_IDS or verdict.start_pos >= end.valid_bytes:
        return None
    number = [each.base_offset for each in found].index(end.base_offset)
    batches = [*_at(found[number], verdict.start_pos)]
    reason = f"{verdict.reason}: a broker truncates the log after this control batch"
    return _without(found, number, batches, verdict.check_id, reason)


def _without(
    found: Sequence[SalvagedSegment],
    number: int,
    batches: Sequence[_QuarantinedBatch],
    check_id: str,
    reason: str,
) -> list[SalvagedSegment] | None:
    if not batches:
        return None
    segment = found[number]
    runs = segment.runs
    for each in batches:
        runs = tuple(_split(runs, each))
    losses = [
        *segment.losses,
        *(
            Loss(
                kind=VerdictKind.CORRUPT,
                start_pos=each.start_pos,
                end_pos=each.end_pos,
                base_offset=each.base_offset,
                last_offset=each.last_offset,
                check_id=check_id,
                reason=reason,
            )
            for each in batches
        ),
    ]
    losses.sort(key=_start_pos_of)
    left = [*found]
    left[number] = segment._replace(runs=runs, losses=tuple(losses))
    return left


def _split(runs: Iterable[Run], batch: _QuarantinedBatch) -> Iterator[Run]:
    for run in runs:
        if not run.start_pos <= batch.start_pos < run.end_pos:
            yield run
            continue
        # Only a search uses their numbers of batches, and the search is over.
        if run.start_pos < batch.start_pos:
            yield run._replace(end_pos=batch.start_pos, last_offset=batch.base_offset - 1)
        if batch.end_pos < run.end_pos:
            yield run._replace(start_pos=batch.end_pos, base_offset=batch.last_offset + 1)


def _start_pos_of(loss: Loss) -> int:
    return loss.start_pos


def _at(segment: SalvagedSegment, pos: int) -> Iterator[_QuarantinedBatch]:
    """Yield the batch at a position in the kept ranges, counted as a file of its own."""
    for run in segment.runs:
        if pos < run.end_pos - run.start_pos:
            wanted = run.start_pos + pos
            for table in _tables(segment, run):
                rows = np.flatnonzero(table.pos <= wanted)
                if len(rows) and wanted < table.pos[rows[-1]] + table.batch_bytes[rows[-1]]:
                    yield _batch(table, int(rows[-1]))
            return
        pos -= run.end_pos - run.start_pos


def _of_producer(segment: SalvagedSegment, error: AppendError) -> Iterator[_QuarantinedBatch]:
    """Yield non-transactional data batches from the refused batch to the next control batch."""
    for run in segment.runs:
        if run.last_offset < error.offset:
            continue
        for table in _tables(segment, run):
            is_own = (table.producer_id == error.producer_id) & (table.magic >= MAGIC_V2)
            for row in np.flatnonzero(is_own & (table.base_offset >= error.offset)).tolist():
                attributes = int(table.attributes[row])
                if attributes & CONTROL_MASK:
                    return
                if not attributes & TRANSACTIONAL_MASK:
                    yield _batch(table, row)


def _tables(segment: SalvagedSegment, run: Run) -> Iterator[HeaderTable]:
    with open_segment(segment.path, base_offset=segment.base_offset) as file:
        yield from file.scan_tables(
            start_pos=run.start_pos, end_pos=run.end_pos, verify_crc=False, resume=False
        )


def _batch(table: HeaderTable, row: int) -> _QuarantinedBatch:
    pos = int(table.pos[row])
    return _QuarantinedBatch(
        start_pos=pos,
        end_pos=pos + int(table.batch_bytes[row]),
        base_offset=int(table.base_offset[row]),
        last_offset=int(table.last_offset[row]),
    )


# -- salvage


_REASON = "derived from the .log"
_INDEXES = frozenset({FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX})
MAX_QUARANTINES = 1000  # of a partition: each costs a pass over it
_SNAPSHOT_IS_MISSING = frozenset({"SNP-3", "SNP-4"})


def plan_salvage(
    partition: Partition,
    settings: RebuildSettings,
    *,
    jobs: int = 1,
    on_bytes: Callable[[int], None] | None = None,
) -> Repaired:
    """Plan the salvage of a partition with at least one segment. Reads only.

    Args:
        partition: as listed now, nothing of it read before.
        settings: the settings of the derived files.
        jobs: processes that derive them.
        on_bytes: called with the size of each searched segment.

    Raises:
        RefusedError: it must not be changed, or no broker could load the rest.
        AccessError: a file cannot be opened.
    """
    require_changeable(partition, repaired=frozenset({FOREIGN_FILE_ID}))
    found = []
    for number, files in enumerate(partition.segments):
        found.append(_salvage(partition, number))
        if on_bytes is not None:
            on_bytes(files.log.file_bytes)
    found = _rename(partition, found)
    return _SalvagePlanner(partition, settings, found).plan(jobs)


def _salvage(partition: Partition, number: int) -> SalvagedSegment:
    segments = partition.segments
    files, is_last = segments[number], number + 1 == len(segments)
    end_offset = None if is_last else segments[number + 1].base_offset
    if is_last and partition.stopped is StoppedState.CLEAN and partition.log_dir is not None:
        end_offset = partition.log_dir.recovery_point(partition.directory)  # OFS-6
        if end_offset is not None and end_offset < files.base_offset:
            end_offset = None
    return salvage_segment(
        files.log.path,
        files.base_offset,
        is_last=is_last,
        end_offset=end_offset,
        entries=partition.index_entries(files),
    )


def _rename(partition: Partition, found: Sequence[SalvagedSegment]) -> list[SalvagedSegment]:
    """Rename segments with a wrong name after their batches, also in the partition."""
    named = {each.path: each for each in found}
    for each in found:
        others = [other for other in named.values() if other.path != each.path]
        is_last = each.base_offset == max(other.base_offset for other in found)
        renamed = salvage_misnamed(each, others, is_last=is_last)
        if renamed is not None:
            named[each.path] = renamed
    segments = [
        each._replace(base_offset=named[each.log.path].base_offset) for each in partition.segments
    ]
    segments.sort(key=attrgetter("base_offset"))
    partition.files = partition.files._replace(segments=tuple(segments))
    return sorted(named.values(), key=attrgetter("base_offset"))


class _SalvagePlanner:
    def __init__(
        self, partition: Partition, settings: RebuildSettings, found: Sequence[SalvagedSegment]
    ) -> None:
        self._partition = partition
        self._settings = settings
        self._directory = Path(absolute_path(partition.path))
        self._disk, self._notes = read_snapshots(partition)
        self._take(found)

    def _take(self, found: Sequence[SalvagedSegment]) -> None:
        self._found = found
        self._changed = [
            each for each in found if each.is_changed and not self._is_cut_by_start(each)
        ]
        self._lost = tuple(self._lost_ranges())
        firsts = [each.base_offset for each in self._lost if each.base_offset is not None]
        self._lost_from = min(firsts, default=None)

    def plan(self, jobs: int) -> Repaired:
        rebuilt = self._rebuild(jobs, None)
        end_offset = rebuilt.log_end_offset
        is_beyond = self._starts_beyond(end_offset)
        if is_beyond:
            rebuilt = self._rebuild(jobs, self._partition.segments[0].base_offset)
        differences = [each for each in self._differences(rebuilt) if self._is_wanted(each)]
        if differences and not self._changed:
            differences = self._at_fault(differences)
        missing = self._missing(end_offset)
        foreign = tuple(foreign_steps(self._partition))
        steps = (*foreign, *self._steps(differences))
        touched = {each.path for each in steps}
        logs = [str(self._directory / each.log.name.name) for each in self._partition.segments]
        lost = with_missing(
            self._partition.path, self._counted(keeps_log_start=not is_beyond), missing
        )
        content = rebuilt.snapshots.get(end_offset)
        clock = Clock(self._settings.now_ms, self._settings.expiration_ms)
        state = compare_state(
            self._partition.path,
            self._disk,
            clock,
            lost_from=self._lost_from,
            lost=lost,
            after=[] if content is None else parse_snapshot(content),
        )
        txn_indexes = [each.txn_index or b"" for each in rebuilt.segments]
        return Repaired(
            path=self._partition.path,
            strategy=Strategy.SALVAGE,
            log_bytes=self._partition.files.log_bytes,
            log_start_offset=min(rebuilt.log_start_offset, end_offset),
            end_offset=end_offset,
            limits=self._limits(
                end_offset,
                keeps_log_start=not is_beyond,
                is_short=any(each.base_offset >= end_offset for each in missing),
            ),
            steps=steps,
            logs=tuple(each for each in logs if each not in touched),
            segments=(
                *(each.log.name.name for each in self._partition.segments),
                *(Path(each.path).name for each in foreign),
            ),
            lost=lost,
            producers=state.producers,
            open_transactions=state.open_transactions,
            changed_aborts=changed_aborts(self._partition, txn_indexes, self._lost),
            notes=(
                *self._notes,
                *self._reported(),
                *self._note_of_start(is_beyond),
                *self._note_of_outcomes(),
            ),
            high_watermark=self._partition.acknowledged.high_watermark,
        )

    def _missing(self, end_offset: int) -> tuple[Missing, ...]:
        """Return acknowledged offsets that no file has. Gaps next to damage belong to it."""
        missing = self._partition.acknowledged.missing(end_offset)
        if self._changed:
            return missing
        gaps = self._partition.not_given(end_offset=end_offset)
        return (*missing, *(each for each in gaps if each.check_id == GAP_CHECK_ID))

    def _lost_ranges(self) -> Iterator[RemovedRange]:
        for segment in self._changed:
            for each in segment.losses:
                yield lost_range(
                    segment.path,
                    Verdict(
                        kind=each.kind,
                        start_pos=each.start_pos,
                        end_pos=each.end_pos,
                        check_id=each.check_id,
                        reason=each.reason,
                    ),
                    each.base_offset,
                    each.last_offset,
                )

    def _is_cut_by_start(self, segment: SalvagedSegment) -> bool:
        """Return whether it loses only zeros at the end, which a start truncates (REC-6)."""
        partition = self._partition
        if partition.stopped is not StoppedState.UNCLEAN or segment is not self._found[-1]:
            return False
        kinds = [each.kind for each in segment.losses]
        if kinds != [VerdictKind.PREALLOCATED] or segment.repaired or segment.is_renamed:
            return False
        return segment.base_offset >= self._recovered_from

    @property
    def _recovered_from(self) -> int:
        """The base offset of the first segment that a start recovers."""
        log_dir, segments = self._partition.log_dir, self._partition.segments
        point = None if log_dir is None else log_dir.recovery_point(self._partition.directory)
        return segments[first_recovered(segments, point or 0)].base_offset

    def _counted(self, *, keeps_log_start: bool) -> tuple[RemovedRange, ...]:
        """Return the removed ranges with their intact records."""
        kept = (
            KeptSegment(
                path=each.path,
                ranges=each.kept_ranges,
                base_offset=each.base_offset,
                end_offset=each.end_offset,
            )
            for each in self._found
        )
        acknowledged = self._partition.acknowledged
        start = (acknowledged.log_start_offset or 0) if keeps_log_start else 0
        return count_intact(
            self._lost,
            kept,
            high_watermark=acknowledged.high_watermark,
            log_start_offset=start,
        )

    def _starts_beyond(self, end_offset: int) -> bool:
        """Return whether the checkpointed log start is above all offsets, lost or not (OFS-1)."""
        ends = [each.last_offset + 1 for each in self._lost if each.last_offset is not None]
        is_known = all(
            each.base_offset is None or each.last_offset is not None for each in self._lost
        )
        return is_known and (self._partition.log_start_offset or 0) > max([end_offset, *ends])

    def _note_of_start(self, is_beyond: bool) -> Iterator[str]:
        if is_beyond:
            yield (
                f"{self._partition.path}: its log start offset {self._partition.log_start_offset}"
                " lies beyond the log, and a broker would delete all of it [OFS-1]: the line goes;"
                " records that were deleted below the right one come back"
            )

    def _note_of_outcomes(self) -> Iterator[str]:
        """Count records whose outcome changes for a broker after the damage is removed.

        The next marker of the producer then decides their outcome.
        """
        names = {COMMIT: "committed", ABORT: "aborted", UNKNOWN: "unknown", NO_MARKER: "open"}
        counts: Counter[tuple[int, int]] = Counter()
        decided = find_ends(log_files_of(self._partition)).decided if self._lost else ()
        for each in decided:
            if each.kind != each.marker_kind:
                counts[each.kind, each.marker_kind] += each.records_count
        for (before, after), count in sorted(counts.items()):
            yield (
                f"{self._partition.path}: the outcome of {counted(count, 'record')} changes from"
                f" {names[before]} to {names[after]}, as a broker goes by the next end marker of"
                " their producer"
            )

    def _rebuild(self, jobs: int, log_start_offset: int | None) -> Rebuilt:
        """Derive everything for the remaining batches. Remove batches that no broker loads.

        Each of these is known only when all before it are right.
        """
        for _ in range(MAX_QUARANTINES):
            try:
                rebuilt = self._rebuild_once(jobs, log_start_offset)
            except (FormatError, AppendError) as refused:
                left = without_refused(self._found, refused)
                error = self._cannot_load(refused)
            else:
                if rebuilt.cut is None:
                    return rebuilt
                left = without_cut(self._found, rebuilt.cut)
                error = self._would_cut(rebuilt.cut)
            if left is None:
                raise error
            self._take(left)
        raise error

    def _rebuild_once(self, jobs: int, log_start_offset: int | None) -> Rebuilt:
        known = {
            offset: entries
            for offset, entries in self._disk.items()
            if self._lost_from is None or offset <= self._lost_from
        }
        return rebuild_partition(
            self._partition,
            self._settings,
            jobs=jobs,
            kept_ranges={
                each.base_offset: each.kept_ranges for each in self._found if each.is_changed
            },
            known=known,
            log_start_offset=log_start_offset,
        )

    def _cannot_load(self, error: FormatError | AppendError) -> RefusedError:
        return RefusedError(
            f"{self._partition.path}: a broker could not load what is left of it: {error}",
            next_step=f"eoctl dump-segment {pasted(self._partition.path)}   # then eoctl truncate",
        )

    def _would_cut(self, cut: PassEnd) -> RefusedError:
        return RefusedError(
            f"{self._partition.path}/{cut.base_offset:020d}.log: a broker would truncate the rest "
            f"of it at offset {cut.next_offset}: {cut.verdict.reason}",
            next_step=f"eoctl truncate {pasted(self._partition.path)} --to-offset"
            f" {cut.next_offset}",
        )

    def _limits(
        self, end_offset: int, *, keeps_log_start: bool, is_short: bool
    ) -> CheckpointLimits | None:
        """Return the bounds for checkpoints. `is_short`: they claim more offsets than exist."""
        if not self._changed and keeps_log_start and not is_short:
            return None
        segments = self._partition.segments
        verified_from = self._changed[0].base_offset if self._changed else end_offset
        return CheckpointLimits(
            self._partition.directory.topic_partition,
            recovery_point=min(verified_from, end_offset),
            end=end_offset,
            first_dirty=segments[-1].base_offset,
            has_log_start=keeps_log_start and end_offset > segments[0].base_offset,
        )

    def _reported(self) -> Iterator[str]:
        for segment in self._found:
            if segment.is_renamed:
                yield (
                    f"{segment.path}: its batches begin at offset {segment.base_offset}: the file"
                    " gets that name"
                )
            if segment.suspicions:
                first = segment.suspicions[0]
                yield (
                    f"{segment.path}: position {first.start_pos}: {first.reason}"
                    f" [{first.check_id}]: a suspicion, the batch stays;"
                    f" {len(segment.suspicions)} in this file"
                )

    # -- steps

    def _differences(self, rebuilt: Rebuilt) -> Iterator[FileDifference]:
        return compare_files(self._partition, rebuilt, log_stays=not self._changed)

    def _is_wanted(self, each: FileDifference) -> bool:
        """Return whether to write a file. In an unchanged log a start derives some files anyway."""
        if each.state is FileState.EQUAL:
            return False
        if self._changed or self._partition.stopped is StoppedState.CLEAN:
            return True
        name = classify(each.name)
        if name.kind is FileKind.SNAPSHOT:
            return each.state is not FileState.MISSING
        if name.kind not in _INDEXES:
            return True  # a start reads leader epochs before it derives anything (REC-2)
        return name.offset is not None and name.offset < self._recovered_from

    def _at_fault(self, differences: Sequence[FileDifference]) -> list[FileDifference]:
        """Leave out files that differ from a rebuild, but are right.

        Truncated followers, cleaned segments and logs that grew over several starts have such
        indexes (APP-8, COMP-10). So do all logs of brokers up to 1.1.
        """
        options = CheckOptions(
            self._settings.now_ms, limits=ReplayLimits(expiration_ms=self._settings.expiration_ms)
        )
        found = check_partition(self._partition, None, options).collector.kept
        grave = [each for each in found if each.severity is not Severity.NOTE]
        wrong = {Path(each.path).name for each in grave}
        lacks_snapshot = any(each.check_id in _SNAPSHOT_IS_MISSING for each in grave)

        def is_at_fault(each: FileDifference) -> bool:
            if each.name in wrong:
                return True
            if each.state is not FileState.MISSING:
                return False
            kind = classify(each.name).kind
            return kind in _INDEXES or (kind is FileKind.SNAPSHOT and lacks_snapshot)

        return [each for each in differences if is_at_fault(each)]

    def _steps(self, differences: Sequence[FileDifference]) -> Iterator[Step]:
        contents = {each.name: each.content for each in differences}
        for name, content in contents.items():
            if name == LEADER_EPOCHS_NAME and content is not None:
                yield replace_step(str(self._directory / name), content, "leader epochs of the log")
        for each in differences:
            if each.state is FileState.SURPLUS:
                path = str(self._directory / each.name)
                yield remove_step(path, "not of the log as it is then")
        for segment in reversed(self._found):
            if segment.is_renamed:
                yield from self._rename_steps(segment)
            elif segment in self._changed:
                yield self._log_step(segment)
            for suffix in (".index", ".timeindex", ".txnindex"):
                name = f"{segment.base_offset:020d}{suffix}"
                content = contents.get(name)
                if content is not None:
                    yield replace_step(str(self._directory / name), content, _REASON)
        for name, content in contents.items():
            if name.endswith(".snapshot") and content is not None:
                yield replace_step(
                    str(self._directory / name), content, "producer state, derived from the .log"
                )

    def _rename_steps(self, segment: SalvagedSegment) -> Iterator[Step]:
        """Yield a copy to the new name: a broker may append to it, but not to the backup."""
        old = str(self._directory / Path(segment.path).name)
        new = str(self._directory / f"{segment.base_offset:020d}.log")
        pieces = [LogSlice(old, *each) for each in segment.kept_ranges]
        yield splice_step(new, pieces, f"{Path(old).name} under its right name")
        yield remove_step(old, "its batches have another name now")

    def _log_step(self, segment: SalvagedSegment) -> Step:
        path = str(self._directory / Path(segment.path).name)
        kept = segment.kept_ranges
        losses = segment.losses
        is_tail = len(losses) == 1 and losses[0].end_pos == segment.log_bytes
        is_tail = is_tail and not segment.repaired
        if is_tail and kept and losses[0].kind is not VerdictKind.UNREADABLE:
            return truncate_step(path, kept[-1][1], "not a good batch from there on")
        digest_range = kept[-1] if kept else (0, 0)
        pieces = [LogSlice(path, *each) for each in kept]
        reasons = [f"bad ranges removed: {len(losses)}"] if losses else []
        if segment.repaired:
            reasons.append(f"magic bytes corrected: {len(segment.repaired)}")
        return splice_step(path, pieces, ", ".join(reasons), digest_range)
