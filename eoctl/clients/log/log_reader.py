"""Reads the records of a partition from an offset on, and again from where it came to.

That is what a consumer's fetches bring, with the damage that they would meet (`log_walk`). Control
batches give no records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from eoctl.clients.log.log_damage import content_damage
from eoctl.clients.log.log_walk import LogWalk
from eoctl.clients.log.single_records import SingleRecords
from storage.errors import AccessError, FormatError, RefusedError, TooLargeError
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import ScannedBatch
from storage.log.decoded_records import decoded_records

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from eoctl.clients.log.consumed import Records
    from eoctl.clients.log.log_walk import WalkOptions
    from eoctl.clients.log.table_records import TableRecords
    from storage.dirs.partition import Partition
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.log.segment import Segment

    AnyRecords = Records | TableRecords


class LogReader(LogWalk["AnyRecords"]):
    """Gives the records, in pieces of one timestamp type each."""

    gives_proven = True

    def __init__(
        self, partition: Partition, next_offset: int, **options: Unpack[WalkOptions]
    ) -> None:
        super().__init__(partition, next_offset, **options)
        self._singles = SingleRecords()

    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read many batches at a time."""
        from eoctl.clients.log.bulk_records import records_of_window, stop_in

        stop = stop_in(window.table, end_offset)
        found = records_of_window(
            window,
            self.next_offset,
            end_offset,
            self._is_hidden,
            max_batch_bytes=segment.max_batch_bytes,
        )
        for each in found:
            if isinstance(each, ScannedBatch):
                yield from self._decode(each, segment, end_offset)
                yield from self._flush()
            else:
                self._passed(each.next_offset)
                yield each
        self._pos = stop.pos
        self._passed(stop.next_offset)
        return stop.is_over

    def _read_single(
        self, batch: ScannedBatch, segment: Segment, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read a batch of an old format, or one that needed a closer look."""
        header = batch.header
        is_v2 = header.magic >= MAGIC_V2
        if is_v2 and header.base_offset >= end_offset:
            self._passed(end_offset)
            return True
        is_data = not (header.is_control or (is_v2 and header.records_count == 0))
        if is_data and header.last_offset >= self.next_offset and self._is_visible(batch):
            yield from self._decode(batch, segment, end_offset)
        is_over = header.last_offset + 1 >= end_offset
        self._pos = batch.pos + (0 if header.last_offset >= end_offset else header.batch_bytes)
        self._passed(end_offset if is_over else header.last_offset + 1)
        return is_over

    def _decode(self, batch: ScannedBatch, segment: Segment, end_offset: int) -> Iterator[Records]:
        """Collect the records of a batch that decodes to its end."""
        header = batch.header
        try:
            records = decoded_records(batch, segment, self._floor_offset)
        except TooLargeError as exc:
            yield from self._flush()
            if not self._skip_corrupt:
                raise RefusedError(
                    f"{segment.path}: position {batch.pos}: the batch at offset"
                    f" {header.base_offset} decompresses to more than"
                    f" {segment.max_batch_bytes:,} bytes",
                    next_step="--max-batch-bytes N, or --skip-corrupt",
                ) from exc
            self._lose(content_damage(batch, segment.path, exc, self._floor_offset))
            return
        except (FormatError, AccessError) as exc:
            yield from self._flush()
            self._lose(content_damage(batch, segment.path, exc, self._floor_offset))
            return
        for record in records:
            if self.next_offset <= record.offset < end_offset:
                if self._singles.is_full(header):
                    yield from self._flush()
                self._singles.add(header, record)
        self._passed(min(header.last_offset + 1, end_offset))

    def _flush(self) -> Iterator[Records]:
        if self._singles.records:
            yield self._singles.take()
