"""Records that are decoded one by one: of old formats, and of batches that are odd or huge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.clients.consumed import MAX_ROWS, Records, records_of_batch
from storage.errors import CorruptError
from storage.formats.compression import Codec
from storage.formats.record_batch import MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import ScannedBatch
    from storage.segment import LogRecord, Segment

MAX_OFFSET = 2**63 - 1
MAX_SINGLES_BYTES = 4 << 20
KEPT_RECORDS = 4096  # a larger batch is decoded twice rather than kept


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


def decoded_records(
    batch: ScannedBatch, segment: Segment, floor_offset: int = 0
) -> Iterable[LogRecord]:
    """Return the records of a batch, which was decoded to its end; a large one is decoded again.

    Offsets inside of a wrapper are in no header: where they go back, a consumer would pass over
    records as if it had had them already. None may be below `floor_offset` either, where the batch
    before it ends.

    Raises:
        FormatError, AccessError: it cannot be.
    """
    is_wrapper = batch.header.magic < MAGIC_V2 and batch.header.codec != Codec.NONE
    kept: list[LogRecord] | None = []
    for record in segment.records(batch):
        if record.crc_ok is False:
            raise CorruptError("checksum of a message does not match", check_id="BAT-1", pos=0)
        if is_wrapper:
            _require_order(record.offset, floor_offset, batch.header)
            floor_offset = record.offset + 1
        if kept is not None:
            kept.append(record)
            if len(kept) > KEPT_RECORDS:
                kept = None
    return segment.records(batch) if kept is None else kept


def _require_order(offset: int, floor_offset: int, header: BatchHeader) -> None:
    # A set at offset 0 may have been stored as it was sent: its messages are counted from there.
    last_offset = header.last_offset or MAX_OFFSET
    if not floor_offset <= offset <= last_offset:
        upper = "" if last_offset == MAX_OFFSET else f" and <= {last_offset}"
        raise CorruptError(
            f"offsets of inner messages do not ascend to the wrapper's: {offset} where"
            f" >= {floor_offset}{upper} is expected",
            check_id="BAT-17",
            pos=0,
        )
