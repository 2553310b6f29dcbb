"""Preconditions of a change to a partition, and steps that lower its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import absolute_path, replace_step
from storage.counts import counted
from storage.errors import AccessError, FormatError, RefusedError, pasted
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    METADATA_TOPIC,
    RECOVERY_POINT_NAME,
    DirState,
    FileSuffix,
)
from storage.formats.checkpoint import OFFSET_CHECKPOINT_NAMES, parse_offset_checkpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from recovery.changes.plans.plan import Plan, Step
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition import Partition
    from storage.file_names import PartitionName, TopicPartition


# Leader epochs that do not parse, and files that only look like segment files.
_SALVAGED = frozenset({"DIR-7", "DIR-9"})


def require_live(path: str, name: PartitionName) -> None:
    """Refuse the metadata log, and directories that a broker has set aside. Raises RefusedError."""
    if name.topic == METADATA_TOPIC:
        raise RefusedError(f"{path}: {METADATA_TOPIC} is never changed")
    if name.state is not DirState.LIVE:
        raise RefusedError(f"{path}: set aside by a broker ({name.state}), not a live partition")


def require_no_problem(
    partition: Partition, more_advice: str = "", *, repaired: frozenset[str] = frozenset()
) -> None:
    """Refuse a partition with data that could not be read so far.

    Args:
        partition: as read.
        more_advice: in addition to the advice to describe it.
        repaired: rules whose violations the change repairs.

    Raises:
        RefusedError: there is such a problem.
    """
    for problem in partition.problems:
        check_id = problem.check_id if isinstance(problem, FormatError) else ""
        if check_id in repaired:
            continue
        next_step = f"eoctl describe {pasted(partition.path)}{more_advice}"
        if check_id in _SALVAGED:
            next_step = f"eoctl repair {pasted(partition.path)} --strategy salvage"
        raise RefusedError(f"{problem}: it must be put right first", next_step=next_step)


def require_compacted(partition: Partition) -> None:
    """Refuse files from which a broker's next start chooses segments. Raises RefusedError."""
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
        why: the problem with the checkpoints' values for the partition.

    Raises:
        RefusedError: there is such a checkpoint.
    """
    if log_dir is None:
        return
    for problem in log_dir.problems:
        if Path(problem.path).name in OFFSET_CHECKPOINT_NAMES:
            raise RefusedError(
                f"{problem}: a broker would not use this log dir, and what it says of the partition"
                f" {why}",
                next_step=_how_to_repair(problem, log_dir),
            )


def _how_to_repair(problem: Problem, log_dir: LogDir) -> str:
    if isinstance(problem, FormatError):
        return f"eoctl repair {pasted(log_dir.path)} --strategy salvage"
    return "make that file readable first"


def require_same_segments(known: Mapping[str, Collection[str]], plan: Plan) -> None:
    """Refuse a segment that appeared while the log was read: it would be left behind a gap.

    Args:
        known: names of the `.log` files that were read, by the path of their partition directory.
        plan: made after that.

    Raises:
        RefusedError: there is such a segment.
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


# -- steps that lower the checkpoints of a log dir for partitions (FIX-5, FIX-7).
#
# They come before all other steps. A lower recovery point makes a start verify the bytes that the
# other steps change. A log start offset above the end would make it delete everything (REC-9).


_HEADER_LINES_COUNT = 2  # version and number of entries


class CheckpointLimits(NamedTuple):
    """The greatest offsets that may stay for one partition.

    `end` limits the high watermark and the log start offset. `has_log_start`: the line of the log
    start offset may stay. It is listed only above the first base offset.
    """

    partition: TopicPartition
    recovery_point: int
    end: int
    first_dirty: int
    has_log_start: bool


def lower_checkpoints(
    log_dir: Path, limits: Sequence[CheckpointLimits], repaired: Mapping[str, bytes] | None = None
) -> Iterator[Step]:
    """Plan to lower the lines of some partitions of one log dir, each file once.

    Args:
        log_dir: absolute.
        limits: of these partitions.
        repaired: the valid lines of files that do not parse, by name. They replace the file.

    Raises:
        AccessError, RefusedError: a checkpoint cannot be read.
        FormatError: DIR-7, a checkpoint is damaged.
    """
    for name, what in (
        (RECOVERY_POINT_NAME, "recovery point"),
        (HIGH_WATERMARK_NAME, "high watermark"),
        (LOG_START_NAME, "log start"),
        (CLEANER_NAME, "first dirty offset"),
    ):
        path = log_dir / name
        is_repaired = repaired is not None and name in repaired
        data = repaired[name] if repaired is not None and is_repaired else read_whole(path)
        if data is None:
            continue
        lowered, changes = data, []
        for each in limits:
            limit = each.end
            if name == RECOVERY_POINT_NAME:
                limit = each.recovery_point
            elif name == CLEANER_NAME:
                limit = each.first_dirty
            is_removed = name == LOG_START_NAME and not each.has_log_start
            before = lowered
            try:
                lowered = lower_offset(before, each.partition, limit, is_removed=is_removed)
            except FormatError as error:
                raise error.located(str(path)) from error
            if lowered != before:
                changes.append("line removed" if is_removed else f"at most {limit}")
        change = (
            changes[0] if len(changes) == 1 else f"lowered, {counted(len(changes), 'partition')}"
        )
        if is_repaired:
            change = "rewritten from the lines that parse"
        if changes or is_repaired:
            yield replace_step(str(path), lowered, f"{what}: {change}")


def read_whole(path: Path) -> bytes | None:
    """Read a small file, or return None if it does not exist. Raises AccessError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(error, str(path)) from error


def lower_offset(
    data: bytes, partition: TopicPartition, limit: int, *, is_removed: bool = False
) -> bytes:
    """Lower the offset of a partition in a checkpoint to `limit`, and return the file.

    All other lines stay byte for byte (FIX-7). If no offset is above the limit, no byte changes.

    Args:
        data: the file.
        partition: no line is added. A broker uses the last of several lines, but all are lowered.
        limit: the greatest offset that may stay.
        is_removed: remove such lines instead.

    Raises:
        FormatError: DIR-7, as parse_offset_checkpoint.
    """
    entries = parse_offset_checkpoint(data)
    raw_lines = data.splitlines(keepends=True)
    lines = list(raw_lines)
    removed_count = 0
    for number, entry in enumerate(entries, _HEADER_LINES_COUNT):
        if entry[:2] != partition or entry.offset <= limit:
            continue
        if is_removed:
            lines[number] = b""
            removed_count += 1
        else:
            text = f"{entry.topic} {entry.partition} {limit}".encode()
            lines[number] = text + _line_end(raw_lines[number])
    if removed_count:
        lines[1] = str(len(entries) - removed_count).encode() + _line_end(raw_lines[1])
    return b"".join(lines)


def put_offset(data: bytes, partition: TopicPartition, offset: int | None) -> bytes:
    """Set the offset of a partition in a checkpoint, and return the file. None removes its lines.

    All other lines stay byte for byte (FIX-7). A new line is the last.

    Args:
        data: the file. Without bytes it has no entries.
        partition: of several lines of it, the first stays.
        offset: to set.

    Raises:
        FormatError: DIR-7, as parse_offset_checkpoint.
    """
    entries = parse_offset_checkpoint(data)
    own = [n for n, entry in enumerate(entries, _HEADER_LINES_COUNT) if entry[:2] == partition]
    if not own and offset is None:
        return data
    lines = data.splitlines(keepends=True) if entries else [b"0\n", b"0\n"]
    count = len(entries)
    if offset is not None:
        text = f"{partition.topic} {partition.partition} {offset}".encode()
        if own:
            lines[own[0]] = text + _line_end(lines[own[0]])
        else:
            lines.append(text + b"\n")
            count += 1
    for number in own if offset is None else own[1:]:
        lines[number] = b""
        count -= 1
    if count != len(entries):
        lines[1] = str(count).encode() + _line_end(lines[1])
    return b"".join(lines)


def _line_end(line: bytes) -> bytes:
    return line[len(line.rstrip(b"\r\n")) :]
