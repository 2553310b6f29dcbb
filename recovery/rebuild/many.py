"""Rebuild several partitions and compare each with its disk; several at once where it pays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from recovery.pool import MIN_PARTITION_BYTES, map_in_order, paying_jobs
from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.rebuild.diff import FileDifference, compare_files
from recovery.rebuild.index_builder import DEFAULT_INDEX_MAX_BYTES
from storage.dirs.log_dir import StoppedState
from storage.dirs.lookup import END_KINDS
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.formats import offset_index, time_index
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.rebuild.derive import Rebuilt
    from recovery.rebuild.segment_pass import PassEnd
    from storage.dirs.acknowledged import Missing
    from storage.dirs.discovery import Selected


class RebuildJob(NamedTuple):
    """One partition with what shapes its files."""

    selected: Selected
    settings: RebuildSettings
    index_max_bytes: int = DEFAULT_INDEX_MAX_BYTES
    preallocate: bool = False


class RebuildResult(NamedTuple):
    """What came out for one partition; `error` is why nothing did.

    `unread` are `.log` files of the directory that nothing was derived from.
    `logs` are those that something was.
    `cut` is the segment with bytes that recovery would cut: later ones were not looked at.
    `is_short`: what was acknowledged is not there, as `notes` tell.
    """

    path: str
    log_bytes: int
    log_end_offset: int | None
    differences: tuple[FileDifference, ...]
    cut: PassEnd | None
    notes: tuple[str, ...]
    unread: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    is_short: bool = False
    error: EoctlError | None = None


def rebuild_many(work: Sequence[RebuildJob], jobs: int) -> Iterator[RebuildResult]:
    """Give the results in the order of `work`.

    With at least as many partitions as processes each process takes whole partitions, else the
    segments of a partition are shared out; where there is little to read, all is done in this one.
    """
    sizes_bytes = (each.selected.log_bytes() for each in work)
    jobs = paying_jobs(jobs, sizes_bytes, least_bytes=MIN_PARTITION_BYTES)
    if jobs <= 1 or len(work) < jobs:
        yield from map(partial(rebuild_one, jobs=jobs), work)
        return
    yield from map_in_order(
        rebuild_one, work, jobs, name_of=lambda job: job.selected.partition.path
    )


def rebuild_one(
    job: RebuildJob, *, jobs: int = 1, on_bytes: Callable[[int], None] | None = None
) -> RebuildResult:
    """Rebuild one partition and compare; errors become part of the result."""
    path = job.selected.partition.path
    try:
        partition = Partition.of(job.selected)
        rebuilt = rebuild_partition(partition, job.settings, jobs=jobs, on_bytes=on_bytes)
        differences = tuple(
            compare_files(
                partition,
                rebuilt,
                index_max_bytes=job.index_max_bytes,
                preallocate=job.preallocate,
            )
        )
    except EoctlError as exc:
        return RebuildResult(
            path=path,
            log_bytes=0,
            log_end_offset=None,
            differences=(),
            cut=None,
            notes=(),
            error=exc,
        )
    notes = [*map(str, partition.problems)]
    cut = rebuilt.cut
    is_live = partition.stopped is StoppedState.LIVE
    if is_live and cut is not None and cut.verdict.kind in END_KINDS:
        notes.append(f"{path}: in use: its last batch was being written, and is left out")
        cut = None
    if partition.remote_range is not None:
        notes.append(f"{path}: {partition.remote_range}: what is known of their producers stays")
    not_given = _not_given(partition, rebuilt)
    notes += (f"{path}: {each}" for each in not_given)
    notes += _full_indexes(path, differences, job.index_max_bytes)
    notes += [
        f"{path}: offset {each.offset}: producer {each.producer_id}: epoch {each.found} after"
        f" {each.expected} [{each.check_id}]"
        for each in rebuilt.violations
    ]
    return RebuildResult(
        path=path,
        log_bytes=partition.files.log_bytes,
        log_end_offset=rebuilt.log_end_offset,
        differences=differences,
        cut=cut,
        notes=tuple(notes),
        unread=tuple(str(each) for each in partition.problems if _is_of_log(each)),
        logs=tuple(each.log.path for each in partition.segments),
        is_short=bool(not_given),
    )


def _not_given(partition: Partition, rebuilt: Rebuilt) -> tuple[Missing, ...]:
    """Tell what a reader cannot give; the end of a log that is whole is known already."""
    ends = [each.end for each in rebuilt.segments]
    if ends and all(each.verdict.kind is VerdictKind.OK for each in ends) and rebuilt.cut is None:
        return partition.not_given(end_offset=rebuilt.log_end_offset)
    return partition.not_given()


def _is_of_log(problem: EoctlError) -> bool:
    return getattr(problem, "path", "").endswith(".log")


def _full_indexes(
    path: str, differences: Sequence[FileDifference], index_max_bytes: int
) -> Iterator[str]:
    """Indexes that do not fit: a broker with that setting cannot recover the segment."""
    limits = {
        ".index": offset_index.preallocated_bytes(index_max_bytes),
        ".timeindex": time_index.preallocated_bytes(index_max_bytes),
    }
    for each in differences:
        limit = limits.get(each.name[each.name.rfind(".") :])
        if limit is not None and (each.rebuilt_bytes or 0) > limit:
            yield (
                f"{path}/{each.name}: {each.rebuilt_bytes} bytes do not fit into the"
                f" {index_max_bytes} of segment.index.bytes: a broker with that setting does not"
                " start when it recovers this segment"
            )
