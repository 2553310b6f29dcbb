"""Offset checkpoints that do not parse (DIR-7), made anew from those of their lines that do.

For a field that is no number a broker takes such a file for one without entries, for all else it
loses the log dir (REC-2). A line that is missing is safe for recovery point, high watermark and
first dirty offset: a start verifies more, a follower asks its leader, more is compacted. Without
its log start a log begins at its first segment, and records that were deleted come back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.lowered_checkpoints import read_whole
from storage.errors import FormatError
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    TopicPartition,
)
from storage.formats.checkpoint import (
    OFFSET_CHECKPOINT_NAMES,
    OffsetCheckpointEntry,
    encode_offset_checkpoint,
    parse_offset_checkpoint,
)
from storage.formats.java_text import parse_integer
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from storage.dirs.log_dir import LogDir, Offsets

_HEADER_LINES_COUNT = 2  # version and number of entries

_FOLLOWS = {
    RECOVERY_POINT_NAME: "a partition without a line is recovered from its first segment on",
    HIGH_WATERMARK_NAME: "a partition without a line begins with its log start, and its"
    " replicas raise it",
    LOG_START_NAME: "a partition without a line begins at its first segment: records that were"
    " deleted come back",
    CLEANER_NAME: "a partition without a line is compacted from its beginning",
}


class MendedCheckpoints(NamedTuple):
    """A log dir as it is read when its offset checkpoints are mended.

    Attributes:
        log_dir: without what was wrong with them; what is lost is absent.
        contents: those that are mended, by name.
        notes: what each of them lost, and what follows.
    """

    log_dir: LogDir
    contents: dict[str, bytes]
    notes: tuple[str, ...]


def mend_checkpoints(log_dir: LogDir) -> MendedCheckpoints:
    """Make those anew that could be read, and not be parsed; they are read once more.

    Raises:
        AccessError: one cannot be read.
    """
    contents: dict[str, bytes] = {}
    offsets: dict[str, Offsets] = {}
    notes = []
    for problem in log_dir.problems:
        name = Path(problem.path).name
        if not isinstance(problem, FormatError) or name not in OFFSET_CHECKPOINT_NAMES:
            continue
        data = read_whole(Path(problem.path))
        if data is None:
            continue
        entries, lost_count = entries_that_parse(data)
        contents[name] = encode_offset_checkpoint(entries)
        offsets[name] = {TopicPartition(*each[:2]): each.offset for each in entries}
        lost = "an unknown number is" if lost_count is None else f"{lost_count} are"
        notes.append(
            f"{problem.path}: no broker could use it: {len(entries)} lines stay, {lost} lost;"
            f" {_FOLLOWS[name]}"
        )
    if not contents:
        return MendedCheckpoints(log_dir, {}, ())
    mended = log_dir._replace(
        recovery_points=offsets.get(RECOVERY_POINT_NAME, log_dir.recovery_points),
        log_start_offsets=offsets.get(LOG_START_NAME, log_dir.log_start_offsets),
        high_watermarks=offsets.get(HIGH_WATERMARK_NAME, log_dir.high_watermarks),
        cleaner_offsets=offsets.get(CLEANER_NAME, log_dir.cleaner_offsets),
        problems=tuple(e for e in log_dir.problems if Path(e.path).name not in contents),
    )
    return MendedCheckpoints(mended, contents, tuple(notes))


def entries_that_parse(data: bytes) -> tuple[list[OffsetCheckpointEntry], int | None]:
    """Read what is whole of a checkpoint that does not parse, each partition once.

    Of several lines of one partition the last one holds, as for a broker. A last line that does
    not end may be cut within its number, and is none.

    Returns:
        The entries, and how many lines are lost at least; None: the file does not tell.
    """
    lines = data.splitlines(keepends=True)
    found: dict[tuple[str, int], OffsetCheckpointEntry] = {}
    whole_count = broken_count = 0
    for number, line in enumerate(lines):
        entry = _entry(line)
        if entry is not None:
            whole_count += 1
            found[entry[:2]] = entry
        elif number >= _HEADER_LINES_COUNT and line.strip():
            broken_count += 1
    declared_count = _declared_count(lines)
    if declared_count is None:
        return list(found.values()), None
    return list(found.values()), max(broken_count, declared_count - whole_count)


def _entry(line: bytes) -> OffsetCheckpointEntry | None:
    if not line.endswith((b"\n", b"\r")):
        return None
    try:
        (entry,) = parse_offset_checkpoint(b"0\n1\n" + line)
    except FormatError:
        return None
    return entry if entry.topic and entry.partition >= 0 else None


def _declared_count(lines: list[bytes]) -> int | None:
    """What line 2 says; None if it does not."""
    if len(lines) < _HEADER_LINES_COUNT or not lines[1].endswith((b"\n", b"\r")):
        return None
    text = lines[1].strip().decode("ascii", "replace")
    count = parse_integer(text, max_value=INT32_MAX)
    return count if count is not None and count >= 0 else None
