"""Batches of one producer that are appended at once, one behind the other, and how values get so.

What is done for every batch, from the producer's side to the log's, takes longer than its bytes do.
A run is made as it will be in the log, with offsets and leader epoch, and written in one piece.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
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
    from collections.abc import Iterator, Sequence

    from storage.writing.record_builder import ProducerIdentity
    from storage.writing.value_records import ValueRecords

_PARTS_COUNT = 4  # of a record: head, offset delta, value head, value


class RunColumns(NamedTuple):
    """What a log has to know of each batch before it takes them."""

    batch_bytes: Sequence[int]
    records_count: Sequence[int]
    max_timestamp_ms: Sequence[int]


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


class ValueSizes:
    """How large the records of values are, summed up once for all runs that are made of them.

    Args:
        values: the records', without key and headers.

    Attributes:
        sizes: of each value.
        short: of the records before each value and, at the end, of all: bytes, as if each had an
            offset delta of one byte.
    """

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values
        self.sizes = list(map(len, values))
        self.short = self._sums(SHORT_DELTAS)

    @cached_property
    def long(self) -> list[int]:
        """As `short`, with an offset delta of two bytes."""
        return self._sums(LONG_DELTAS)

    def _sums(self, records: ValueRecords) -> list[int]:
        return list(accumulate(map(records.record_bytes.__getitem__, self.sizes), initial=0))


class ValueBatches:
    """The batches that `BatchBuilder.add_values` and `build` make of values from one on.

    Only uncompressed ones that are full: what comes behind them has to wait for more values. Each
    is cut when it is asked for, so that a run costs as much as what it writes.

    Args:
        of: the values.
        start: the first one.
        batch_bytes, batch_records: as of a `BatchBuilder`.
        timestamp_ms: of all records.
    """

    def __init__(
        self,
        of: ValueSizes,
        start: int,
        *,
        batch_bytes: int,
        batch_records: int,
        timestamp_ms: int,
    ) -> None:
        self._of = of
        self._room_bytes = batch_bytes - HEADER_BYTES
        self._max_records = batch_records
        self._timestamp_ms = timestamp_ms
        self._edges = [start]
        self._batch_sizes: list[int] = []

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Cut one batch after the other, and give of each its row of `RunColumns`; for one call."""
        of, room_bytes, max_records = self._of, self._room_bytes, self._max_records
        short, count, stop = of.short, len(of.sizes), SHORT_DELTAS.stop
        start = self._edges[0]
        while True:
            end = bisect_right(short, short[start] + room_bytes, start) - 1
            # A record that is too large is a batch of its own.
            end = min(max(end, start + 1), start + max_records)
            behind = start + stop
            if end <= behind:
                body_bytes = short[end] - short[start]
            else:
                long = of.long
                first_bytes = short[behind] - short[start] - long[behind]
                end = min(bisect_right(long, room_bytes - first_bytes) - 1, start + max_records)
                body_bytes = first_bytes + long[end]
            if end >= count or end - start > LONG_DELTAS.stop:
                return
            self._edges.append(end)
            self._batch_sizes.append(HEADER_BYTES + body_bytes)
            yield self._batch_sizes[-1], end - start, self._timestamp_ms
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
        """Encode the first `count` batches that were cut; `identity` is that of the first one."""
        edges = [each - self._edges[0] for each in self._edges[: count + 1]]
        values = self._of.values[self._edges[0] : self._edges[count]]
        sizes = self._of.sizes[self._edges[0] : self._edges[count]]
        parts = [b""] * (_PARTS_COUNT * len(sizes) + 1)
        parts[0:-1:_PARTS_COUNT] = map(SHORT_DELTAS.heads.__getitem__, sizes)
        parts[2::_PARTS_COUNT] = map(VALUE_HEADS.__getitem__, sizes)
        parts[3::_PARTS_COUNT] = values
        parts[-1] = NO_HEADERS
        columns = RunColumns(
            self._batch_sizes[:count],
            [end - start for start, end in pairwise(edges)],
            [self._timestamp_ms] * count,
        )
        headers = []
        needed = headers_needed(count)
        behind_bytes = len(NO_HEADERS)  # a head begins with the end of the record before
        for number, (start, end) in enumerate(pairwise(edges)):
            records_count = columns.records_count[number]
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
