"""Records that are decoded one by one: of old formats, and of batches that are odd or huge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.clients.log.consumed import MAX_ROWS, Records, records_of_batch

if TYPE_CHECKING:
    from storage.formats.record_batch import BatchHeader
    from storage.log.segment import LogRecord

MAX_SINGLES_BYTES = 4 << 20


class SingleRecords:
    """Records of one timestamp type that were decoded one by one."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self._header: BatchHeader | None = None
        self._bytes = 0

    def is_full(self, header: BatchHeader) -> bool:
        """Must they be taken before one of this batch can be added?"""
        before = self._header
        if not self.records or before is None:
            return False
        is_other = before.is_log_append_time != header.is_log_append_time
        is_other = is_other or before.magic != header.magic
        return is_other or len(self.records) >= MAX_ROWS or self._bytes >= MAX_SINGLES_BYTES

    def add(self, header: BatchHeader, record: LogRecord) -> None:
        """Keep a record of a batch."""
        self._header = header
        self.records.append(record)
        self._bytes += len(record.key or b"") + len(record.value or b"")

    def take(self) -> Records:
        """Return all of them; there is at least one."""
        records, self.records, self._bytes = self.records, [], 0
        assert self._header is not None
        return records_of_batch(self._header, records, records[-1].offset + 1)
