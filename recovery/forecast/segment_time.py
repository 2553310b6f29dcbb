"""The time by which a broker judges the age of a segment (LogSegment.largestTimestamp)."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING

from storage.errors import AccessError
from storage.files.positioned_file import PositionedFile
from storage.formats.time_index import ENTRY_BYTES, parse_entry

if TYPE_CHECKING:
    from storage.dirs.partition_files import FileEntry, SegmentFiles


class TimeSource(StrEnum):
    """The source of the time by which a broker judges a segment."""

    TIME_INDEX = "time-index"  # the last entry of its `.timeindex`
    FILE_TIME = "file-time"  # the modification time of its `.log`
    BATCHES = "batches"  # the start reads them, and derives the time index again


def largest_timestamp_ms(files: SegmentFiles) -> int | None:
    """Return the time of a segment that a start does not recover. None: unknown."""
    entry_ms = last_entry_ms(files.time_index)
    return file_time_ms(files.log) if entry_ms is not None and entry_ms < 0 else entry_ms


def last_entry_ms(entry: FileEntry | None) -> int | None:
    """Return the last timestamp of a `.timeindex`, by its length as a broker does.

    -1 without an entry. None: it cannot be read. Zeros at the end are an entry of the year 1970.
    """
    if entry is None:
        return -1
    pos = (entry.file_bytes // ENTRY_BYTES - 1) * ENTRY_BYTES
    if pos < 0:
        return -1
    try:
        with PositionedFile(entry.path) as file:
            reading = file.read_at(pos, ENTRY_BYTES)
    except AccessError:
        return None
    if reading.unreadable or len(reading.data) < ENTRY_BYTES:
        return None
    return parse_entry(reading.data, 0).timestamp_ms


def file_time_ms(entry: FileEntry) -> int | None:
    """Return the modification time of a file. None: it cannot be read."""
    try:
        return os.stat(entry.path).st_mtime_ns // 1_000_000  # noqa: PTH116 - of many files
    except OSError:
        return None
