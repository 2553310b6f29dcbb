"""Plan the repair of several partitions in parallel, and combine their steps."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.plan import Action, absolute_path, make_plan, remove_step, source_of
from recovery.changes.plans.preconditions import (
    CheckpointLimits,
    lower_checkpoints,
    require_same_segments,
)
from recovery.checks.partition_check import CheckedSegment
from recovery.pool import MIN_PARTITION_BYTES, map_in_order, paying_jobs
from recovery.repair.broker_start import plan_recovery
from recovery.repair.repaired import (
    KeptSegment,
    Repaired,
    changed_aborts,
    compare_state,
    count_intact,
    lost_range,
    topic_id_steps,
    with_missing,
)
from recovery.repair.salvage import plan_salvage
from recovery.repair.strategies import Strategy
from recovery.replay.recover_state import read_snapshots
from recovery.replay.snapshots import Clock
from recovery.start.segment_recovery import Fate, IndexLimits, recover_segment
from recovery.truncate.plan import require_changeable
from storage.dirs.log_tail import NotClosedError
from storage.dirs.lookup import verdict_of
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, RefusedError, pasted
from storage.file_names import LEADER_EPOCHS_NAME
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.changes.plans.plan import Plan
    from recovery.rebuild.derive import RebuildSettings
    from recovery.repair.broker_start import Recovery
    from recovery.repair.repaired import RemovedRange
    from recovery.replay.recover_state import RecoveryCost
    from storage.dirs.discovery import Selected
    from storage.dirs.partition_files import FileEntry, SegmentFiles


# -- plan to set a replica aside, so that the broker fetches all of it again (FIX-9).
#
# Every file of the log goes to the backups, outside of the log dir. `undo` restores them. The
# directory stays with `partition.metadata` alone, as for a new replica. The next start finds a log
# without segments (REC-15), and fetches from the leader.


_REASON = "set aside; the broker fetches it again"


def plan_move_away(partition: Partition) -> Repaired:
    """Plan to move a replica away, or its derived files without a segment. Reads only.

    Raises:
        RefusedError: it must not be changed.
        AccessError: a file cannot be examined.
    """
    require_changeable(partition)
    directory = Path(absolute_path(partition.path))
    log_dir = partition.log_dir
    log_start_offset = None if log_dir is None else log_dir.log_start_offset(partition.directory)
    start = log_start_offset or 0
    return Repaired(
        path=partition.path,
        strategy=Strategy.MOVE_AWAY,
        log_bytes=partition.files.log_bytes,
        log_start_offset=start,
        end_offset=start,
        limits=CheckpointLimits(
            partition=partition.directory.topic_partition,
            recovery_point=start,
            end=start,
            first_dirty=start,
            has_log_start=True,
        ),
        steps=tuple(
            remove_step(str(directory / each.name.name), _REASON) for each in _files(partition)
        ),
        segments=tuple(each.log.name.name for each in partition.segments),
        high_watermark=partition.acknowledged.high_watermark,
        moved_end_offset=_end_offset(partition),
        notes=(f"{partition.path}: {partition.files.log_bytes} bytes of .log are fetched again",),
    )


def _end_offset(partition: Partition) -> int:
    """Return the log end, from any available source."""
    try:
        end = partition.log_end()
    except EoctlError:
        end = None
    return max(0 if end is None else end.offset, partition.acknowledged.end_offset or 0)


def _files(partition: Partition) -> Iterator[FileEntry]:
    """Yield files, last segment and `.log` first, so that the rest is always a log."""
    epochs = partition.files.other(LEADER_EPOCHS_NAME)
    if epochs is not None:
        yield epochs
    for files in reversed(partition.segments):
        for each in (files.log, files.offset_index, files.time_index, files.txn_index):
            if each is not None:
                yield each
    yield from partition.files.snapshots
    yield from partition.files.orphans


# -- a repair that does what a start without the clean-shutdown marker does to a partition
#
# `recovery.repair.broker_start` has the plan. This adds its cost, and lowers the checkpoints that a
# broker clamps during the start.


def plan_as_broker(partition: Partition, settings: RebuildSettings) -> Repaired:
    """Plan the broker's recovery of a partition with at least one segment. Reads only.

    Raises:
        RefusedError: it must not be changed, or a broker could not load it, or would delete it.
        AccessError: it cannot be read.
    """
    require_changeable(partition)
    log_end = partition.log_end()
    disk, _ = read_snapshots(partition)
    clock = Clock(settings.now_ms, settings.expiration_ms)
    try:
        recovery = plan_recovery(partition, clock, settings.interval_bytes, is_written_to=False)
    except NotClosedError as error:
        raise RefusedError(
            f"{error}: a start of the broker does not look at that, and keeps it [REC-8]",
            next_step=f"eoctl repair {pasted(partition.path)} --strategy salvage",
        ) from error
    _require_cut(partition, recovery.stop)
    tail = recovery.tail
    end_before = tail.end_offset if log_end is None else log_end.offset
    lost = tuple(_lost(recovery, end_before))
    has_loss = any(each.base_offset is not None for each in lost)
    contents = {Path(e.path).name: e.content for e in recovery.steps if e.content is not None}
    kept = [each for each in partition.segments if each.base_offset <= tail.base_offset]
    cut_at = {each.path: each.start_pos for each in lost}
    lost = count_intact(
        lost,
        [_kept(each, cut_at) for each in kept],
        high_watermark=partition.acknowledged.high_watermark,
        log_start_offset=partition.log_start_offset or 0,
    )
    lost = with_missing(partition.path, lost, partition.acknowledged.missing(tail.end_offset))
    state = compare_state(
        partition.path,
        disk,
        clock,
        lost_from=tail.end_offset if has_loss else None,
        lost=lost,
        after=tail.producers,
    )
    txn_indexes = []
    for each in kept:
        content = contents.get(f"{each.base_offset:020d}.txnindex")
        txn_indexes.append(partition.read_file(each.txn_index) if content is None else content)
    return Repaired(
        path=partition.path,
        strategy=Strategy.AS_BROKER,
        log_bytes=partition.files.log_bytes,
        log_start_offset=partition.log_start_offset,
        end_offset=tail.end_offset,
        limits=CheckpointLimits(
            partition.directory.topic_partition,
            recovery_point=tail.end_offset,
            end=tail.end_offset,
            first_dirty=tail.base_offset,
            has_log_start=True,
        ),
        steps=recovery.steps,
        logs=recovery.logs,
        segments=tuple(each.log.name.name for each in partition.segments),
        lost=lost,
        producers=state.producers,
        open_transactions=state.open_transactions,
        changed_aborts=changed_aborts(partition, [each or b"" for each in txn_indexes], lost),
        notes=recovery.notes,
        high_watermark=partition.acknowledged.high_watermark,
    )


def _require_cut(partition: Partition, stop: Verdict | None) -> None:
    """Refuse what a broker does not truncate: a segment to split, or a start that fails.

    Raises:
        RefusedError: an offset does not fit (REC-10).
    """
    if stop is not None and stop.check_id in {"SEG-2", "SEG-3"}:
        what = f"{stop.reason}: a broker would split the segment, or not start at all [REC-10]"
        raise RefusedError(
            f"{partition.path}: position {stop.start_pos}: {what}",
            next_step=f"eoctl repair {pasted(partition.path)} --strategy salvage",
        )


def _kept(files: SegmentFiles, cut_at: Mapping[str, int]) -> KeptSegment:
    path = absolute_path(files.log.path)
    end_pos = cut_at.get(path, files.log.file_bytes)
    return KeptSegment(
        path=path, ranges=((0, end_pos),), base_offset=files.base_offset, end_offset=None
    )


def _lost(recovery: Recovery, end_before: int) -> Iterator[RemovedRange]:
    """Yield removed ranges: offsets in the truncated segment, only bytes in later segments."""
    stop = recovery.stop
    if stop is None:
        return
    cut, *_ = (
        each
        for each in recovery.steps
        if each.path.endswith(".log") and each.action is Action.TRUNCATE
    )
    end_offset = recovery.tail.end_offset
    removed = [
        each
        for each in recovery.steps
        if each.path.endswith(".log") and each.action is Action.REMOVE
    ]
    last_offset = end_before - 1 if end_before > end_offset else None
    if stop.kind is VerdictKind.PREALLOCATED and not removed:
        last_offset = end_offset - 1  # no record was ever there
    assert cut.before is not None
    if stop.kind is not VerdictKind.PREALLOCATED:
        with open_segment(cut.path) as segment:
            stop = verdict_of(segment, stop, is_active=not removed)
    verdict = stop._replace(start_pos=cut.after_bytes, end_pos=cut.before.file_bytes)
    yield lost_range(cut.path, verdict, end_offset, last_offset)
    for each in reversed(removed):
        assert each.before is not None
        whole = Verdict(
            kind=stop.kind,
            start_pos=0,
            end_pos=each.before.file_bytes,
            check_id=stop.check_id,
            reason="after the end of the truncated log",
        )
        yield lost_range(each.path, whole, end_offset, end_offset - 1)


# -- plan


class RepairJob(NamedTuple):
    """A partition, the settings of its derived files, and how to repair it.

    Attributes:
        is_named: the user named the partition itself, not its log dir. In a log dir, only damaged
            partitions are moved away.
        topic_id: for a `partition.metadata` that has none. None if unknown.
    """

    selected: Selected
    settings: RebuildSettings
    strategy: Strategy
    is_named: bool = False
    topic_id: bytes | None = None


def repair_many(
    work: Sequence[RepairJob], jobs: int, *, on_done: Callable[[Repaired], None]
) -> list[Repaired]:
    """Plan all repairs, in order, in several processes if worth it. Reads only.

    With one partition the processes share its segments.

    Args:
        work: the partitions.
        jobs: processes.
        on_done: called with each result as it arrives.
    """
    sizes_bytes = (each.selected.log_bytes() for each in work)
    jobs = paying_jobs(jobs, sizes_bytes, least_bytes=MIN_PARTITION_BYTES)
    one = partial(repair_one, jobs=jobs if len(work) == 1 else 1)
    return [*map_in_order(one, work, jobs, name_of=_path_of, on_done=on_done)]


def _path_of(job: RepairJob) -> str:
    return job.selected.partition.path


def repair_one(job: RepairJob, *, jobs: int = 1) -> Repaired:
    """Plan one repair. Errors become part of the result."""
    path = job.selected.partition.path
    try:
        partition = Partition.of(job.selected)
        if not partition.segments:
            return _without_segments(partition, job)
        if job.strategy is not Strategy.MOVE_AWAY and (splits := _splits(partition)):
            return Repaired(path, job.strategy, notes=splits)
        if job.strategy is Strategy.MOVE_AWAY:
            if job.is_named:
                return plan_move_away(partition)
            return _move_away_if_damaged(partition, job, jobs)
        if job.strategy is Strategy.AS_BROKER:
            repaired = plan_as_broker(partition, job.settings)
        else:
            repaired = plan_salvage(partition, job.settings, jobs=jobs)
        own_steps = topic_id_steps(partition, job.topic_id)
        return repaired._replace(steps=(*own_steps, *repaired.steps))
    except EoctlError as error:
        return Repaired(path, job.strategy, error=error)


def _splits(partition: Partition) -> tuple[str, ...]:
    """Return the segments that a broker splits. Their repair would cost what a split keeps.

    Raises:
        AccessError: a possible such segment cannot be read.
    """
    found = []
    for files in partition.segments:
        if partition.goes_beyond_limit(files):
            checked = CheckedSegment(
                files=files,
                log_bytes=files.log.file_bytes,
                stop=None,
                end_offset=partition.reached_offset(files),
                is_doubtful=True,
            )
            if recover_segment(checked, IndexLimits()).fate is Fate.SPLIT:
                found.append(
                    f"{files.log.path}: its offsets are too far from its base offset: a broker"
                    " splits it when it recovers it, and loses nothing"
                )
    return tuple(found)


def _without_segments(partition: Partition, job: RepairJob) -> Repaired:
    """Plan a directory without a `.log`: its records are fetched again, or lost.

    Raises:
        AccessError: it has a `.log` that cannot be read.
    """
    for problem in partition.problems:
        if isinstance(problem, AccessError):
            raise problem
    lost = with_missing(partition.path, (), partition.acknowledged.missing(None))
    if lost and job.strategy is Strategy.MOVE_AWAY:
        return plan_move_away(partition)
    notes = [*map(str, partition.problems), f"{partition.path}: has no segment"]
    if lost:
        notes.append(
            f"{partition.path}: nothing here brings back what it had: put its .log files back from"
            " a backup, or have it fetched from another replica (--strategy move-away)"
        )
    return Repaired(
        partition.path,
        job.strategy,
        lost=lost,
        notes=tuple(notes),
        high_watermark=partition.acknowledged.high_watermark,
    )


def _move_away_if_damaged(partition: Partition, job: RepairJob, jobs: int) -> Repaired:
    """Move the partition away if a salvage would have to change it, or would fail."""
    try:
        salvaged = plan_salvage(partition, job.settings, jobs=jobs)
    except EoctlError:
        return plan_move_away(Partition.of(job.selected))
    if salvaged.lost:
        return plan_move_away(Partition.of(job.selected))
    return salvaged._replace(strategy=Strategy.MOVE_AWAY, limits=None, steps=(), notes=())


def plan_repair(
    log_dir: str,
    repaired: Sequence[Repaired],
    arguments: Mapping[str, Any],
    recovery: RecoveryCost | None,
    checkpoints: Mapping[str, bytes] | None = None,
) -> Plan | None:
    """Combine the repairs of partitions of one log dir. None if there is nothing to do.

    Args:
        log_dir: absolute.
        repaired: the repairs without an error.
        arguments: the arguments of the command.
        recovery: the segments that the next start without the clean-shutdown marker recovers. None
            if unknown.
        checkpoints: repaired checkpoints, by name.

    Raises:
        RefusedError, AccessError, FormatError: as in `make_plan` and `lower_checkpoints`.
    """
    limits = [each.limits for each in repaired if each.limits is not None]
    steps = [
        *lower_checkpoints(Path(log_dir), limits, checkpoints),
        *(step for each in repaired for step in each.steps),
    ]
    if not steps:
        return None
    sources = [source_of(path) for each in repaired if each.steps for path in each.logs]
    price = {**_price(repaired), "recovery": None if recovery is None else recovery._asdict()}
    plan = make_plan("repair", arguments, steps, price, sources)
    require_same_segments({each.path: each.segments for each in repaired}, plan)
    return plan


def _price(repaired: Sequence[Repaired]) -> dict[str, Any]:
    """Return the losses and their effects. Lists name the partition by its directory."""
    counts = [each.lost_offsets_count for each in repaired]
    producers = [each.producers for each in repaired]
    return {
        "lost_offsets_count": sum(each or 0 for each in counts) if None not in counts else None,
        "lost_records_count": sum(each.lost_records_count for each in repaired),
        "lost_batches_count": sum(each.lost_batches_count for each in repaired),
        "lost_bytes": sum(each.lost_bytes for each in repaired),
        "lost_ranges": lost_ranges(repaired),
        **_moved(repaired),
        "producers_count": None
        if None in producers
        else sum(len(each or ()) for each in producers),
        "producers": [
            {"partition": _name(each), **change._asdict()}
            for each in repaired
            for change in each.producers or ()
        ],
        "open_transactions": [
            {"partition": _name(each), **dict(list(opened._asdict().items())[1:])}
            for each in repaired
            if each.lost
            for opened in each.open_transactions
        ],
        "changed_aborts": [
            {"partition": _name(each), **dict(list(abort._asdict().items())[1:])}
            for each in repaired
            for abort in each.changed_aborts
        ],
    }


def lost_ranges(repaired: Iterable[Repaired]) -> list[dict[str, Any]]:
    """Return removed ranges as JSON values, for `recovery.changes.journals.losses`."""
    return [
        {
            "file": str(Path(*Path(lost.path).parts[-2:])),
            "start_pos": lost.start_pos,
            "end_pos": lost.end_pos,
            "base_offset": lost.base_offset,
            "last_offset": lost.last_offset,
            "acknowledged_offsets_count": cost.acknowledged_offsets_count,
            "records_count": cost.records_count,
            "acknowledged_records_count": cost.acknowledged_records_count,
            "batches_count": cost.batches_count,
            "dropped_offsets": lost.dropped_offsets,
            "finding": str(lost.kind),
            "check_id": lost.check_id,
            "reason": lost.reason,
        }
        for each in repaired
        for lost in each.lost
        for cost in (lost.cost(each.high_watermark),)
    ]


def _moved(repaired: Sequence[Repaired]) -> dict[str, Any]:
    """Return the logs that are set aside as a whole. Empty without any."""
    moved = [each for each in repaired if each.moved_end_offset is not None and each.steps]
    rows = [
        {
            "partition": _name(each),
            "log_start_offset": each.log_start_offset,
            "log_end_offset": each.moved_end_offset,
            "acknowledged_offsets_count": None
            if each.high_watermark is None
            else max(each.high_watermark - (each.log_start_offset or 0), 0),
        }
        for each in moved
    ]
    return {"moved": rows} if rows else {}


def _name(repaired: Repaired) -> str:
    return Path(absolute_path(repaired.path)).name
