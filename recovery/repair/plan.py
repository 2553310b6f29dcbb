"""Plan the repair of several partitions, several at once, and put their steps together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.changeable import require_same_segments
from recovery.changes.plans.lowered_checkpoints import lower_checkpoints
from recovery.changes.plans.plan import absolute_path, make_plan, source_of
from recovery.checks.partition_check import CheckedSegment
from recovery.pool import MIN_PARTITION_BYTES, map_in_order, paying_jobs
from recovery.repair.as_broker import plan_as_broker
from recovery.repair.directory_files import topic_id_steps
from recovery.repair.move_away import plan_move_away
from recovery.repair.repaired import Repaired, with_missing
from recovery.repair.salvage import plan_salvage
from recovery.repair.strategies import Strategy
from recovery.start.segment_recovery import Fate, IndexLimits, recover_segment
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from recovery.changes.plans.plan import Plan
    from recovery.rebuild.derive import RebuildSettings
    from recovery.replay.price import RecoveryPrice
    from storage.dirs.discovery import Selected


class RepairJob(NamedTuple):
    """One partition, what shapes its derived files, and how it is repaired.

    Attributes:
        is_named: it is meant by itself, not as one of all in a log dir; of those only damaged ones
            are moved away.
        topic_id: for a `partition.metadata` that has none; None: not known.
    """

    selected: Selected
    settings: RebuildSettings
    strategy: Strategy
    is_named: bool = False
    topic_id: bytes | None = None


def repair_many(
    work: Sequence[RepairJob], jobs: int, *, on_done: Callable[[Repaired], None]
) -> list[Repaired]:
    """Plan all of them, each in a process of its own where that pays, in order. Reads only.

    With one partition the processes share its segments.

    Args:
        work: the partitions.
        jobs: processes.
        on_done: told each result as it comes.
    """
    sizes_bytes = (each.selected.log_bytes() for each in work)
    jobs = paying_jobs(jobs, sizes_bytes, least_bytes=MIN_PARTITION_BYTES)
    one = partial(repair_one, jobs=jobs if len(work) == 1 else 1)
    return [*map_in_order(one, work, jobs, name_of=_path_of, on_done=on_done)]


def _path_of(job: RepairJob) -> str:
    return job.selected.partition.path


def repair_one(job: RepairJob, *, jobs: int = 1) -> Repaired:
    """Plan one of them; errors become part of the result."""
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
    """Tell which segments a broker splits: to repair them would cost what a split keeps.

    Raises:
        AccessError: one that may be among them cannot be read.
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
    """Without a `.log` there is nothing to mend: what it had is fetched again, or lost.

    Raises:
        AccessError: there is one, which the operating system does not give.
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
    """Move away what a salvage would have to change, or could make nothing of."""
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
    recovery: RecoveryPrice | None,
    checkpoints: Mapping[str, bytes] | None = None,
) -> Plan | None:
    """Put the repairs of partitions of one log dir together; None: nothing is to be done.

    Args:
        log_dir: absolute.
        repaired: those without an error.
        arguments: what was asked for.
        recovery: what the next start without the clean-shutdown marker recovers; None: not known.
        checkpoints: those that are mended, by name.

    Raises:
        RefusedError, AccessError, FormatError: as `make_plan` and `lower_checkpoints`.
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
    """What goes, and what follows from it. Lists name the partition by its directory."""
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
    """What is set aside as a whole; no key where nothing is."""
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
