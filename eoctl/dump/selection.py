"""The filters of `dump-segment`: which batches and which records are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.ranges import Range

if TYPE_CHECKING:
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord


class Selection(NamedTuple):
    """What to show; everything by default. All conditions must hold."""

    offsets: Range = Range()
    times_ms: Range = Range()
    producer_id: int | None = None
    producer_epoch: int | None = None
    key: bytes | None = None
    only_control: bool = False
    only_aborted: bool = False

    @property
    def is_everything(self) -> bool:
        """No filter was given."""
        return self == Selection()

    @property
    def needs_records(self) -> bool:
        """A batch can only be judged by its records: of a key nothing stands in a header."""
        return self.key is not None

    def wants_batch(self, batch: ScannedBatch) -> bool:
        """Judge by the header alone; a v0 or v1 wrapper's first offset and times are unknown."""
        header = batch.header
        first_offset = header.base_offset if header.magic >= 2 else 0
        first_ms = header.base_timestamp_ms if header.magic >= 2 else -1
        if header.is_log_append_time:
            first_ms = header.max_timestamp_ms
        elif header.delete_horizon_ms is not None:
            first_ms = -1  # the base is a point in the future; deltas reach back from it
        return (
            self.offsets.meets(first_offset, header.last_offset)
            and self.times_ms.meets(min(first_ms, header.max_timestamp_ms), header.max_timestamp_ms)
            and self.producer_id in (None, header.producer_id)
            and self.producer_epoch in (None, header.producer_epoch)
            and (header.is_control or not self.only_control)
        )

    def wants_record(self, record: LogRecord) -> bool:
        """Judge one record of a batch that is wanted."""
        return (
            self.offsets.holds(record.offset)
            and self.times_ms.holds(record.timestamp_ms)
            and (self.key is None or self.key == record.key)
        )
