"""Plan as a repair what a start without the clean-shutdown marker does to a partition.

`recovery.repair.broker_start` has the plan. Here its price is worked out, and the checkpoints are
lowered that a broker clamps as it goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.lowered_checkpoints import CheckpointLimits
from recovery.changes.plans.plan import Action, absolute_path
from recovery.repair.broker_start import plan_recovery
from recovery.repair.repaired import (
    KeptSegment,
    Repaired,
    changed_aborts,
    compare_state,
    count_intact,
    lost_range,
    with_missing,
)
from recovery.repair.strategies import Strategy
from recovery.replay.recover_state import read_snapshots
from recovery.replay.snapshots import Clock
from recovery.truncate.plan import require_changeable
from storage.dirs.log_tail import NotClosedError
from storage.dirs.lookup import verdict_of
from storage.errors import RefusedError, pasted
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.rebuild.derive import RebuildSettings
    from recovery.repair.broker_start import Recovery
    from recovery.repair.repaired import RemovedRange
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles


def plan_as_broker(partition: Partition, settings: RebuildSettings) -> Repaired:
    """Plan it for a partition with at least one segment. Reads only.

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
    state = compare_state(
        partition.path,
        disk,
        clock,
        lost_from=tail.end_offset if has_loss else None,
        after=tail.producers,
    )
    contents = {Path(e.path).name: e.content for e in recovery.steps if e.content is not None}
    kept = [each for each in partition.segments if each.base_offset <= tail.base_offset]
    cut_at = {each.path: each.start_pos for each in lost}
    lost = count_intact(
        lost,
        [_kept(each, cut_at) for each in kept],
        high_watermark=partition.acknowledged.high_watermark,
        log_start_offset=partition.log_start_offset or 0,
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
        lost=with_missing(partition.path, lost, partition.acknowledged.missing(tail.end_offset)),
        producers=state.producers,
        open_transactions=state.open_transactions,
        changed_aborts=changed_aborts(partition, [each or b"" for each in txn_indexes], lost),
        notes=recovery.notes,
        high_watermark=partition.acknowledged.high_watermark,
    )


def _require_cut(partition: Partition, stop: Verdict | None) -> None:
    """Refuse what a broker does not cut: a segment to split, or no start at all.

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
    """The rest of the segment that is cut has all offsets; whole segments behind it only bytes."""
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
        last_offset = end_offset - 1  # nothing was ever there
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
            reason="behind the place of the cut",
        )
        yield lost_range(each.path, whole, end_offset, end_offset - 1)
