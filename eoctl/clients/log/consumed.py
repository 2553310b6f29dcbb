"""Consumed records as columns: lists of plain values, ready to be printed or handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.formats.record_batch import MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.formats.record_batch import BatchHeader
    from storage.log.segment import LogRecord

    Headers = Sequence[tuple[bytes, bytes | None]]


CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
MAX_ROWS = 8192


class Records(NamedTuple):
    """Records in the order of their offsets. All lists have the same length, which is not 0.

    Attributes:
        timestamp_type: of all records. None in message format 0, which has no timestamps.
        headers: of each record. None if no record has any.
        next_offset: the position after all of these records.
    """

    timestamp_type: str | None
    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None
    next_offset: int

    @property
    def row_count(self) -> int:
        """The number of records (len() of a NamedTuple is its number of columns)."""
        return len(self.offsets)

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.offsets[-1]

    def lists(self) -> Records:
        """Return the records themselves, which are lists already."""
        return self

    def part(self, start: int, end: int) -> Records:
        """Return some of the records, at least one."""
        end = min(end, self.row_count)
        return Records(
            timestamp_type=self.timestamp_type,
            offsets=self.offsets[start:end],
            timestamps_ms=self.timestamps_ms[start:end],
            keys=self.keys[start:end],
            values=self.values[start:end],
            headers=None if self.headers is None else self.headers[start:end],
            next_offset=self.next_offset if end == self.row_count else self.offsets[end - 1] + 1,
        )


def records_of_batch(header: BatchHeader, found: Sequence[LogRecord], next_offset: int) -> Records:
    """Return records that were decoded one by one, at least one record."""
    kind: str | None = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
    if header.magic < MAGIC_V2 - 1:
        kind = None
    return Records(
        timestamp_type=kind,
        offsets=[each.offset for each in found],
        timestamps_ms=[each.timestamp_ms for each in found],
        keys=[each.key for each in found],
        values=[each.value for each in found],
        headers=[each.headers for each in found] if any(each.headers for each in found) else None,
        next_offset=next_offset,
    )


# -- records that are decoded one by one: old formats, and unusual or huge batches


MAX_SINGLES_BYTES = 4 << 20


class SingleRecords:
    """Records of one timestamp type that were decoded one by one."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self._header: BatchHeader | None = None
        self._bytes = 0

    def is_full(self, header: BatchHeader) -> bool:
        """Return whether `take` is required before a record of this batch can be added."""
        before = self._header
        if not self.records or before is None:
            return False
        is_other = before.is_log_append_time != header.is_log_append_time
        is_other = is_other or before.magic != header.magic
        return is_other or len(self.records) >= MAX_ROWS or self._bytes >= MAX_SINGLES_BYTES

    def add(self, header: BatchHeader, record: LogRecord) -> None:
        """Add a record of a batch."""
        self._header = header
        self.records.append(record)
        self._bytes += len(record.key or b"") + len(record.value or b"")

    def take(self) -> Records:
        """Return all records, at least one."""
        records, self.records, self._bytes = self.records, [], 0
        assert self._header is not None
        return records_of_batch(self._header, records, records[-1].offset + 1)
