"""Rebuild several partitions and compare each with its disk, in parallel if worth it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.plan import absolute_path, make_plan, replace_step, source_of
from recovery.pool import MIN_PARTITION_BYTES, map_in_order, paying_jobs
from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.rebuild.diff import FileDifference, compare_files
from recovery.rebuild.index_builder import DEFAULT_INDEX_MAX_BYTES
from storage.dirs.discovery import is_in_log_dir
from storage.dirs.log_dir import StoppedState
from storage.dirs.lookup import END_KINDS
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, RefusedError
from storage.files import fsio
from storage.files.fsio import umask
from storage.formats import offset_index, time_index
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.changes.plans.plan import Plan
    from recovery.rebuild.derive import Rebuilt
    from recovery.rebuild.segment_pass import PassEnd
    from recovery.replay.recover_state import RecoveryCost
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.discovery import Selected
    from storage.files.fsio import FileSystem


class RebuildJob(NamedTuple):
    """A partition and the settings of its files."""

    selected: Selected
    settings: RebuildSettings
    index_max_bytes: int = DEFAULT_INDEX_MAX_BYTES
    preallocate: bool = False


class RebuildResult(NamedTuple):
    """The result of one partition. `error` is set if there is no result.

    `unread` are `.log` files of the directory that nothing was derived from. `logs` are the `.log`
    files with derived files. `cut` is the segment that recovery would truncate: later segments were
    not read. `is_short`: acknowledged offsets are absent, as `notes` say.
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
    """Yield the results in the order of `work`.

    With at least as many partitions as processes, each process takes whole partitions. Otherwise
    the processes share the segments of a partition. This process does small work alone.
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
    """Rebuild one partition and compare. Errors become part of the result."""
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
    """Return what a reader cannot get. For a whole log its end is known already."""
    ends = [each.end for each in rebuilt.segments]
    if ends and all(each.verdict.kind is VerdictKind.OK for each in ends) and rebuilt.cut is None:
        return partition.not_given(end_offset=rebuilt.log_end_offset)
    return partition.not_given()


def _is_of_log(problem: EoctlError) -> bool:
    return getattr(problem, "path", "").endswith(".log")


def _full_indexes(
    path: str, differences: Sequence[FileDifference], index_max_bytes: int
) -> Iterator[str]:
    """Yield indexes that do not fit: a broker with that setting cannot recover the segment."""
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


# -- derived files: a plan that replaces them, or the same files elsewhere


_REASON = "derived from the .log"


class Derived(NamedTuple):
    """Files to write into one partition. `logs` are the `.log` files that they derive from."""

    partition_path: str
    files: Sequence[tuple[str, bytes]]
    logs: Sequence[str]


def derived_plan(
    command: str,
    arguments: Mapping[str, Any],
    derived: Sequence[Derived],
    recovery: RecoveryCost | None,
) -> Plan:
    """Plan to give files of partitions, by name, their right content.

    Args:
        command: the command that makes the plan.
        arguments: the arguments of the command.
        derived: the files.
        recovery: the segments that the next start without the clean-shutdown marker recovers. None
            if unknown.

    Raises:
        RefusedError: a name is a link, a directory or the like, or the partition must not be
            changed.
        AccessError: a file cannot be examined.
    """
    steps = [
        replace_step(str(Path(absolute_path(each.partition_path), name)), content, _REASON)
        for each in derived
        for name, content in each.files
    ]
    sources = [source_of(absolute_path(path)) for each in derived for path in each.logs]
    price = {"recovery": None if recovery is None else recovery._asdict()}
    return make_plan(command, arguments, steps, price, sources)


def require_elsewhere(path: str, selected: Selected) -> None:
    """Refuse an output path inside a log dir, where writing needs a lock and a plan.

    Raises:
        RefusedError: the path is in the partition's log dir, or in any other log dir.
    """
    around = Path(os.path.realpath(selected.partition.path)).parent
    if Path(os.path.realpath(path)).is_relative_to(around) or is_in_log_dir(path):
        raise RefusedError(
            f"{path}: is in a log dir; nothing was touched",
            next_step="--to with a place outside of it, or --apply",
        )


def write_elsewhere(
    fs: FileSystem, directory: str, partition_name: str, files: Iterable[tuple[str, bytes]]
) -> list[str]:
    """Write files below `directory/partition_name`. Create the directories if necessary.

    Returns:
        The names written.

    Raises:
        AccessError: the operating system refused.
    """
    target = Path(directory, partition_name)
    for each in (Path(directory), target):
        try:
            fs.make_dir(each, 0o777 & ~umask())
        except FileExistsError:
            continue
        except OSError as exc:
            raise AccessError(exc, str(each)) from exc
    names = []
    for name, content in files:
        fsio.replace_file(fs, target / name, content)
        names.append(name)
    return names
