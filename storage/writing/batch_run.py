"""Batches of one producer that are appended at once, one behind the other, and how values get so.

What is done for every batch, from the producer's side to the log's, takes longer than its bytes do.
A run is made as it will be in the log, with offsets and leader epoch, and written in one piece.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from storage.checksum import crc32c
from storage.formats.record_batch import (
    CRC,
    CRC_POS,
    CRC_START_POS,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    BatchHeader,
    increment_sequence,
)
from storage.producers.producer_state import CACHED_BATCHES_COUNT
from storage.writing.value_records import (
    LONG_DELTAS,
    NO_HEADERS,
    SHORT_DELTAS,
    VALUE_HEADS,
    VARINTS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.writing.record_builder import ProducerIdentity

_PARTS_COUNT = 4  # of a record: head, offset delta, value head, value


class RunColumns(NamedTuple):
    """What a log has to know of each batch before it takes them."""

    batch_bytes: Sequence[int]
    records_count: Sequence[int]
    max_timestamp_ms: Sequence[int]

    def first(self, count: int) -> RunColumns:
        """Those of the first batches."""
        return RunColumns(*(each[:count] for each in self))


class BatchRun(NamedTuple):
    """Batches as they will be in the log.

    Attributes:
        headers: of those of `headers_needed`; their crc may be missing.
        columns: of all of them.
        data: their bytes.
    """

    headers: Sequence[BatchHeader]
    columns: RunColumns
    data: bytearray | memoryview


def headers_needed(batches_count: int) -> list[int]:
    """Of which batches the producer state has to see the header: the first, and the last ones."""
    return [0, *range(max(batches_count - CACHED_BATCHES_COUNT, 1), batches_count)]


class ValueBatches:
    """The batches that `BatchBuilder.add_values` and `build` make of values[start:end].

    Only uncompressed ones that are full: what comes behind them has to wait for more values.

    Args:
        values: the records', without key and headers.
        start, end: which of them.
        batch_bytes, batch_records: as of a `BatchBuilder`.
        timestamp_ms: of all records.

    Attributes:
        columns: what the log has to know.
    """

    def __init__(
        self,
        values: Sequence[bytes],
        start: int,
        end: int,
        *,
        batch_bytes: int,
        batch_records: int,
        timestamp_ms: int,
    ) -> None:
        self._values = values[start:end]
        self._sizes = list(map(len, self._values))
        self._timestamp_ms = timestamp_ms
        self._edges = [0]
        sizes = self._cut(batch_bytes - HEADER_BYTES, min(batch_records, LONG_DELTAS.stop))
        counts = [end - start for start, end in pairwise(self._edges)]
        self.columns = RunColumns(sizes, counts, [timestamp_ms] * len(sizes))

    def _cut(self, room_bytes: int, max_records: int) -> list[int]:
        """Find where full batches end; returns their sizes."""
        # Sums over all of the values, as if each had an offset delta of one, and of two bytes.
        short = list(accumulate(map(SHORT_DELTAS.record_bytes.__getitem__, self._sizes), initial=0))
        long: list[int] = []
        count, stop = len(self._sizes), SHORT_DELTAS.stop
        batch_sizes: list[int] = []
        start = 0
        while True:
            end = bisect_right(short, short[start] + room_bytes) - 1
            behind = start + stop
            if end <= behind:
                body_bytes = short[end] - short[start]
            else:
                if not long:
                    each_bytes = map(LONG_DELTAS.record_bytes.__getitem__, self._sizes)
                    long = list(accumulate(each_bytes, initial=0))
                first_bytes = short[behind] - short[start] - long[behind]
                end = bisect_right(long, room_bytes - first_bytes) - 1
                body_bytes = first_bytes + long[end]
            if end <= start or end == count or end - start > max_records:
                return batch_sizes
            self._edges.append(end)
            batch_sizes.append(HEADER_BYTES + body_bytes)
            start = end

    def encode(
        self,
        count: int,
        identity: ProducerIdentity,
        base_offset: int,
        leader_epoch: int,
        *,
        is_transactional: bool,
    ) -> BatchRun:
        """Encode the first `count` batches; `identity` is that of the first one."""
        sizes = self._sizes[: self._edges[count]]
        parts = [b""] * (_PARTS_COUNT * len(sizes) + 1)
        parts[0:-1:_PARTS_COUNT] = map(SHORT_DELTAS.heads.__getitem__, sizes)
        parts[2::_PARTS_COUNT] = map(VALUE_HEADS.__getitem__, sizes)
        parts[3::_PARTS_COUNT] = self._values[: len(sizes)]
        parts[-1] = NO_HEADERS
        columns = self.columns.first(count)
        headers = []
        needed = headers_needed(count)
        behind_bytes = len(NO_HEADERS)  # a head begins with the end of the record before
        for number, (start, end) in enumerate(pairwise(self._edges[: count + 1])):
            records_count = end - start
            header = BatchHeader(  # by place: this is done for every batch
                base_offset + start,
                columns.batch_bytes[number] - LOG_OVERHEAD_BYTES,
                leader_epoch,
                MAGIC_V2,
                0,  # crc
                TRANSACTIONAL_MASK if is_transactional else 0,
                records_count - 1,
                self._timestamp_ms,
                self._timestamp_ms,
                identity.producer_id,
                identity.producer_epoch,
                increment_sequence(identity.base_sequence, start),
                records_count,
            )
            if number in needed:
                headers.append(header)
            first, behind = _PARTS_COUNT * start, _PARTS_COUNT * end
            parts[first + 1 : behind : _PARTS_COUNT] = VARINTS[:records_count]
            long_start = start + SHORT_DELTAS.stop
            if long_start < end:
                heads = map(LONG_DELTAS.heads.__getitem__, sizes[long_start:end])
                parts[_PARTS_COUNT * long_start : behind : _PARTS_COUNT] = heads
            ending = NO_HEADERS if number else b""
            parts[first] = ending + HEADER.pack(*header) + parts[first][behind_bytes:]
        data = bytearray().join(parts)
        _set_checksums(data, columns.batch_bytes)
        return BatchRun(headers, columns, data)


def _set_checksums(data: bytearray, batch_sizes: Sequence[int]) -> None:
    pos = 0
    with memoryview(data) as view:
        for size in batch_sizes:
            crc = crc32c(view[pos + CRC_START_POS : pos + size])
            CRC.pack_into(view, pos + CRC_POS, crc)
            pos += size
