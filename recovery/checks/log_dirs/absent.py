"""DIR-8: partitions that checkpoints or metadata name, and that have no directory.

A broker drops the lines, and makes the replicas anew that are its own: empty, from its log start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.cluster.absent import find_absent, find_unassigned
from recovery.rules.findings import Severity
from storage.file_names import HIGH_WATERMARK_NAME, RECOVERY_POINT_NAME, DirState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.checks.grounds.collector import Collector
    from recovery.cluster.absent import AbsentPartition
    from recovery.cluster.clusters import Clusters
    from recovery.cluster.placement import HeldBack
    from storage.dirs.log_dir import LogDir

# Of the checkpoints that name a partition, the first of these tells of its loss.
_TELLING = (HIGH_WATERMARK_NAME, RECOVERY_POINT_NAME)

_HELD_ACTIONS = {
    DirState.STRAY: "leaves it aside",
    DirState.DELETE: "deletes it after file.delete.delay.ms",
    DirState.FUTURE: "cuts it to match the live directory",
}


def check_absent(
    log_dirs: Sequence[LogDir],
    clusters: Clusters,
    collector_of: Callable[[LogDir], Collector],
    held_back: Sequence[HeldBack] = (),
) -> None:
    """Check the log dirs of one node for partitions that are not there (DIR-8, DIR-6).

    Args:
        log_dirs: those that were given as a whole.
        clusters: for their metadata.
        collector_of: of a log dir.
        held_back: what directories with a suffix have, of these log dirs and of others.
    """
    by_path = {each.path: each for each in log_dirs}
    for held in held_back:
        _add_held_back(held, collector_of(held.log_dir))
    for each in find_absent(log_dirs, clusters, held_back):
        _add_lines(each, collector_of(by_path[each.log_dir]))
    for each in find_unassigned(log_dirs, clusters):
        log_dir = by_path[each.log_dir]
        has_checkpoints = log_dir.recovery_points is not None or log_dir.high_watermarks is not None
        collector_of(log_dir).add(
            "DIR-8",
            each.log_dir,
            f"a partition without a directory: {each.why}",
            # Without any checkpoint nothing can speak of what was there.
            severity=None if has_checkpoints else Severity.WARNING,
            topic=each.key.topic,
            partition=each.key.partition,
            broker_action="makes it, empty",
        )


def _add_held_back(held: HeldBack, collector: Collector) -> None:
    """DIR-6: what only a directory has that no broker serves."""
    does = _HELD_ACTIONS[held.state]
    if not held.live:
        does += f", and makes {held.key} anew, empty"
    collector.add(
        "DIR-6",
        held.path,
        f"{held.missing.offsets} of {held.key} are in no directory that a broker serves",
        severity=Severity.ERROR,
        topic=held.key.topic,
        partition=held.key.partition,
        base_offset=held.base_offset,
        last_offset=held.end_offset - 1,
        expected=f"in {held.live}" if held.live else "a live directory",
        found="only here",
        broker_action=does,
        fix=held.way_back,
    )


def _add_lines(absent: AbsentPartition, collector: Collector) -> None:
    names = [name for name, _ in absent.lines]
    telling = next((each for each in _TELLING if each in names), None)
    missing = absent.missing
    for name, offset in absent.lines:
        is_loss = missing is not None and name == telling
        collector.add(
            "DIR-8",
            os.fspath(Path(absent.log_dir, name)),
            f"an entry of a partition that is not in this log dir: {absent.why}"
            if missing is None or not is_loss
            else f"{missing.offsets} are missing: the whole partition has no directory",
            severity=Severity.ERROR if is_loss else None,
            topic=absent.key.topic,
            partition=absent.key.partition,
            base_offset=missing.base_offset if missing is not None and is_loss else None,
            last_offset=missing.last_offset if missing is not None and is_loss else None,
            found=str(offset),
            broker_action="drops it",
        )
