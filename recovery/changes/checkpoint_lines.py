"""Lower one partition's lines in an offset checkpoint; all others stay byte for byte (FIX-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.formats.checkpoint import parse_offset_checkpoint

if TYPE_CHECKING:
    from storage.file_names import TopicPartition

_HEADER_LINES_COUNT = 2  # version and number of entries


def lower_offset(
    data: bytes, partition: TopicPartition, limit: int, *, is_removed: bool = False
) -> bytes:
    """Lower what a checkpoint says of a partition to `limit`, where it is above that.

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
