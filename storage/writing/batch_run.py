"""Batches of one producer that are appended at once, back to back, and their encoding from values.

The work per batch, from the producer's side to the log's, takes longer than the work on its bytes.
A run is made as it will be in the log, with offsets and leader epoch, and written in one piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from storage.kernels.kernel_choice import load_native
from storage.producers.producer_state import CACHED_BATCHES_COUNT
from storage.writing.record_builder import (
    LONG_DELTAS,
    NO_HEADERS,
    SHORT_DELTAS,
    VALUE_HEADS,
    VARINTS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.kernels.kernel_choice import Native
    from storage.writing.record_builder import ProducerIdentity, ValueRecords

FIRST_CUT_COUNT = 8  # batches
_PARTS_COUNT = 4  # of a record: head, offset delta, value head, value


class RunColumns(NamedTuple):
    """The data of each batch that a log needs before it takes them."""

    batch_bytes: Sequence[int]
    records_count: Sequence[int]
    max_timestamp_ms: Sequence[int]


class BatchRun(NamedTuple):
    """Batches as they will be in the log.

    Attributes:
        headers: of the batches of `headers_needed`. Their crc may be missing.
        columns: of all batches.
        data: their bytes.
    """

    headers: Sequence[BatchHeader]
    columns: RunColumns
    data: bytes | bytearray | memoryview


def headers_needed(batches_count: int) -> list[int]:
    """Return which batches need a header for the producer state: the first and the last batches."""
    return [0, *range(max(batches_count - CACHED_BATCHES_COUNT, 1), batches_count)]


class ValueSizes:
    """The sizes of the records of values, summed up once for all runs made of them.

    Args:
        values: of the records, without key and headers.

    Attributes:
        sizes: of each value.
        short: bytes of the records before each value and, at the end, of all records. Each record
            counts with an offset delta of one byte.
    """

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values
        self.sizes = list(map(len, values))
        self.short = self._sums(SHORT_DELTAS)

    @cached_property
    def long(self) -> list[int]:
        """The same as `short`, with an offset delta of two bytes."""
        return self._sums(LONG_DELTAS)

    def _sums(self, records: ValueRecords) -> list[int]:
        return list(accumulate(map(records.record_bytes.__getitem__, self.sizes), initial=0))


class Values:
    """Values that are appended at once: values[start:end]."""

    def __init__(self, values: list[bytes], start: int, end: int) -> None:
        self.values = values
        self.start = start
        self.end = end

    @cached_property
    def sizes(self) -> ValueSizes:
        """The sizes that all their runs share."""
        return ValueSizes(self.values[self.start : self.end])


class ValueBatches(ABC):
    """The batches that `BatchBuilder.add_values` and `build` make of values from a start on.

    These are only full, uncompressed batches. Values behind them have to wait for more values. The
    values are divided on request, so that a run costs as much as the bytes it writes.

    Args:
        batch_bytes, batch_records: as of a `BatchBuilder`.
        timestamp_ms: of all records.
    """

    def __init__(self, *, batch_bytes: int, batch_records: int, timestamp_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._timestamp_ms = timestamp_ms
        self._sizes: list[int] = []  # of the batches so far
        self._counts: list[int] = []

    def parts(self) -> Iterator[RunColumns]:
        """Yield some batches, then twice as many, and so on. Use it once."""
        limit = FIRST_CUT_COUNT
        while True:
            sizes, counts = self._cut(limit)
            if not sizes:
                return
            self._sizes += sizes
            self._counts += counts
            yield RunColumns(sizes, counts, [self._timestamp_ms] * len(sizes))
            limit *= 2

    def encode(
        self,
        count: int,
        identity: ProducerIdentity,
        base_offset: int,
        leader_epoch: int,
        *,
        is_transactional: bool,
    ) -> BatchRun:
        """Encode the first `count` batches. `identity` belongs to the first batch."""
        sizes, counts = self._sizes[:count], self._counts[:count]
        first = BatchHeader(  # by position, since this runs for every run
            base_offset,
            0,  # length
            leader_epoch,
            MAGIC_V2,
            0,  # crc
            TRANSACTIONAL_MASK if is_transactional else 0,
            0,  # last offset delta
            self._timestamp_ms,
            self._timestamp_ms,
            *identity,
            0,  # records
        )
        starts = [0, *accumulate(counts)]
        needed = headers_needed(count)
        headers = [_header_of(first, sizes[n], starts[n], counts[n]) for n in needed]
        data = self._encode(sizes, counts, first)
        return BatchRun(headers, RunColumns(sizes, counts, [self._timestamp_ms] * count), data)

    @abstractmethod
    def _cut(self, limit: int) -> tuple[list[int], list[int]]:
        """Return the bytes and the record counts of the next batches."""

    @abstractmethod
    def _encode(
        self, sizes: Sequence[int], counts: Sequence[int], first: BatchHeader
    ) -> bytes | bytearray:
        """Encode the first batches. `first` has the fields that do not depend on them."""


def value_batches(
    values: Values, start: int, *, batch_bytes: int, batch_records: int, timestamp_ms: int
) -> ValueBatches:
    """Return the batches of values from `start` on, made by the available kernel."""
    native = load_native()
    options = {
        "batch_bytes": batch_bytes,
        "batch_records": batch_records,
        "timestamp_ms": timestamp_ms,
    }
    if native is not None:
        return _NativeBatches(native, values, start, **options)
    return _PlainBatches(values.sizes, start - values.start, **options)


class _NativeBatches(ValueBatches):
    def __init__(self, native: Native, values: Values, start: int, **options: int) -> None:
        super().__init__(**options)
        self._native = native
        self._values = values
        self._start = self._next = start

    def _cut(self, limit: int) -> tuple[list[int], list[int]]:
        sizes, counts = self._native.cut_values(
            self._values.values,
            (self._next, self._values.end),
            limit,
            batch_bytes=self._batch_bytes,
            batch_records=self._batch_records,
        )
        self._next += sum(counts)
        return sizes, counts

    def _encode(
        self, sizes: Sequence[int], counts: Sequence[int], first: BatchHeader
    ) -> bytes | bytearray:
        return self._native.encode_values(
            self._values.values,
            self._start,
            list(zip(sizes, counts, strict=True)),
            (
                first.base_offset,
                first.partition_leader_epoch,
                first.producer_id,
                first.producer_epoch,
                first.base_sequence,
            ),
            timestamp_ms=first.base_timestamp_ms,
            is_transactional=first.is_transactional,
        )


class _PlainBatches(ValueBatches):
    def __init__(self, of: ValueSizes, start: int, **options: int) -> None:
        super().__init__(**options)
        self._of = of
        self._start = self._next = start

    def _cut(self, limit: int) -> tuple[list[int], list[int]]:
        of, max_records = self._of, self._batch_records
        room_bytes = self._batch_bytes - HEADER_BYTES
        short, count, stop = of.short, len(of.sizes), SHORT_DELTAS.stop
        start = self._next
        sizes: list[int] = []
        counts: list[int] = []
        while len(sizes) < limit:
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
                break
            sizes.append(HEADER_BYTES + body_bytes)
            counts.append(end - start)
            start = end
        self._next = start
        return sizes, counts

    def _encode(
        self, sizes: Sequence[int], counts: Sequence[int], first: BatchHeader
    ) -> bytes | bytearray:
        edges = [0, *accumulate(counts)]
        values = self._of.values[self._start : self._start + edges[-1]]
        value_sizes = self._of.sizes[self._start : self._start + edges[-1]]
        parts = [b""] * (_PARTS_COUNT * len(values) + 1)
        parts[0:-1:_PARTS_COUNT] = map(SHORT_DELTAS.heads.__getitem__, value_sizes)
        parts[2::_PARTS_COUNT] = map(VALUE_HEADS.__getitem__, value_sizes)
        parts[3::_PARTS_COUNT] = values
        parts[-1] = NO_HEADERS
        behind_bytes = len(NO_HEADERS)  # a head begins with the end of the record before
        for number, (start, end) in enumerate(pairwise(edges)):
            header = _header_of(first, sizes[number], start, counts[number])
            place, behind = _PARTS_COUNT * start, _PARTS_COUNT * end
            parts[place + 1 : behind : _PARTS_COUNT] = VARINTS[: counts[number]]
            long_start = start + SHORT_DELTAS.stop
            if long_start < end:
                heads = map(LONG_DELTAS.heads.__getitem__, value_sizes[long_start:end])
                parts[_PARTS_COUNT * long_start : behind : _PARTS_COUNT] = heads
            ending = NO_HEADERS if number else b""
            parts[place] = ending + HEADER.pack(*header) + parts[place][behind_bytes:]
        data = bytearray().join(parts)
        _set_checksums(data, sizes)
        return data


def _header_of(first: BatchHeader, size: int, start: int, count: int) -> BatchHeader:
    """Return the header of a batch of `count` records, `start` records after the first.

    crc is 0.
    """
    return BatchHeader(  # by position, since this runs for every batch
        first.base_offset + start,
        size - LOG_OVERHEAD_BYTES,
        first.partition_leader_epoch,
        MAGIC_V2,
        0,  # crc
        first.attributes,
        count - 1,
        first.base_timestamp_ms,
        first.max_timestamp_ms,
        first.producer_id,
        first.producer_epoch,
        increment_sequence(first.base_sequence, start),
        count,
    )


def _set_checksums(data: bytearray, batch_sizes: Sequence[int]) -> None:
    pos = 0
    with memoryview(data) as view:
        for size in batch_sizes:
            crc = crc32c(view[pos + CRC_START_POS : pos + size])
            CRC.pack_into(view, pos + CRC_POS, crc)
            pos += size
