"""Steps that lower what the checkpoints of a log dir say of partitions (FIX-5, FIX-7).

They come before all other steps: a recovery point below makes a start verify what the other steps
change, and a log start above the end would make it delete everything (REC-9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import replace_step
from storage.errors import AccessError, FormatError
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
)
from storage.formats.checkpoint import parse_offset_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from recovery.changes.plans.plan import Step
    from storage.file_names import TopicPartition

_HEADER_LINES_COUNT = 2  # version and number of entries


class CheckpointLimits(NamedTuple):
    """The greatest offsets that may stay of one partition; `end` is of high watermark and start.

    `has_log_start`: the line of the log start may stay; it is listed only above the first base.
    """

    partition: TopicPartition
    recovery_point: int
    end: int
    first_dirty: int
    has_log_start: bool


def lower_checkpoints(
    log_dir: Path, limits: Sequence[CheckpointLimits], mended: Mapping[str, bytes] | None = None
) -> Iterator[Step]:
    """Plan to lower the lines of some partitions of one log dir, each file once.

    Args:
        log_dir: absolute.
        limits: of these partitions.
        mended: what files are made anew from that do not parse, by name.

    Raises:
        AccessError, RefusedError: a checkpoint cannot be read.
        FormatError: DIR-7, one is damaged.
    """
    for name, what in (
        (RECOVERY_POINT_NAME, "recovery point"),
        (HIGH_WATERMARK_NAME, "high watermark"),
        (LOG_START_NAME, "log start"),
        (CLEANER_NAME, "first dirty offset"),
    ):
        path = log_dir / name
        is_mended = mended is not None and name in mended
        data = mended[name] if mended is not None and is_mended else read_whole(path)
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
                changes.append("line goes" if is_removed else f"at most {limit}")
        change = changes[0] if len(changes) == 1 else f"lowered, {len(changes)} partitions"
        if is_mended:
            change = "made anew from the lines that parse"
        if changes or is_mended:
            yield replace_step(str(path), lowered, f"{what}: {change}")


def read_whole(path: Path) -> bytes | None:
    """Read a small file; None if there is none. Raises AccessError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(error, str(path)) from error


def lower_offset(
    data: bytes, partition: TopicPartition, limit: int, *, is_removed: bool = False
) -> bytes:
    """Lower what a checkpoint says of a partition to `limit`, where it is above that.

    All other lines stay byte for byte (FIX-7).

    Args:
        data: the file.
        partition: a line of it is never added; of several a broker takes the last, all are lowered.
        limit: the greatest offset that may stay.
        is_removed: take such lines out instead.

    Returns the file, the same bytes if nothing is above.

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


def _line_end(line: bytes) -> bytes:
    return line[len(line.rstrip(b"\r\n")) :]
