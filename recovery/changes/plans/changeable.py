"""What must hold before a partition is changed: it is a live one, and all that counts is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.plan import absolute_path
from storage.errors import FormatError, RefusedError, pasted
from storage.file_names import METADATA_TOPIC, DirState, FileSuffix
from storage.formats.checkpoint import OFFSET_CHECKPOINT_NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from recovery.changes.plans.plan import Plan
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition import Partition
    from storage.file_names import PartitionName

# Leader epochs that do not parse, and files that only look like those of a segment.
_SALVAGED = frozenset({"DIR-7", "DIR-9"})


def require_live(path: str, name: PartitionName) -> None:
    """Refuse the metadata log, and what a broker has set aside. Raises RefusedError."""
    if name.topic == METADATA_TOPIC:
        raise RefusedError(f"{path}: {METADATA_TOPIC} is never changed")
    if name.state is not DirState.LIVE:
        raise RefusedError(f"{path}: set aside by a broker ({name.state}), not a live partition")


def require_no_problem(
    partition: Partition, more_advice: str = "", *, mended: frozenset[str] = frozenset()
) -> None:
    """Refuse a partition of which something could not be read so far.

    Args:
        partition: as read.
        more_advice: beside looking at it.
        mended: rules whose breaks are about to be mended.

    Raises:
        RefusedError: there is such a problem.
    """
    for problem in partition.problems:
        check_id = problem.check_id if isinstance(problem, FormatError) else ""
        if check_id in mended:
            continue
        next_step = f"eoctl describe {pasted(partition.path)}{more_advice}"
        if check_id in _SALVAGED:
            next_step = f"eoctl repair {pasted(partition.path)} --strategy salvage"
        raise RefusedError(f"{problem}: it must be put right first", next_step=next_step)


def require_compacted(partition: Partition) -> None:
    """Refuse what a broker's next start would choose the segments of. Raises RefusedError."""
    for each in partition.files.others:
        if each.name.suffix in {FileSuffix.CLEANED, FileSuffix.SWAP}:
            raise RefusedError(
                f"{each.path}: left by a compaction that did not end: what of it counts is decided"
                " at the next start of a broker",
                next_step="start the broker once and stop it, then run it again",
            )


def require_checkpoints(log_dir: LogDir | None, why: str) -> None:
    """Refuse a log dir with an offset checkpoint that cannot be read.

    Args:
        log_dir: None: there are no checkpoints.
        why: what is the matter with what they say of the partition.

    Raises:
        RefusedError: there is one.
    """
    if log_dir is None:
        return
    for problem in log_dir.problems:
        if Path(problem.path).name in OFFSET_CHECKPOINT_NAMES:
            raise RefusedError(
                f"{problem}: a broker would not use this log dir, and what it says of the partition"
                f" {why}",
                next_step=_how_to_mend(problem, log_dir),
            )


def _how_to_mend(problem: Problem, log_dir: LogDir) -> str:
    if isinstance(problem, FormatError):
        return f"eoctl repair {pasted(log_dir.path)} --strategy salvage"
    return "make that file readable first"


def require_same_segments(known: Mapping[str, Collection[str]], plan: Plan) -> None:
    """A segment that came while the log was read is in no step, and would stay behind a gap.

    Args:
        known: names of the `.log` files that were read, by the path of their partition directory.
        plan: made after that.

    Raises:
        RefusedError: there is one.
    """
    by_path = {absolute_path(path): (path, names) for path, names in known.items()}
    for listing in plan.listings:
        path, names = by_path.get(listing.path, (listing.path, None))
        if names is None:
            continue
        new = {each for each in listing.names if each.endswith(".log")} - {*names}
        if new:
            raise RefusedError(
                f"{path}: {min(new)} came while the log was read",
                next_step="stop the broker, then run it again",
            )
