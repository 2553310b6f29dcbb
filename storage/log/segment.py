"""One segment of a partition: its `.log` (or a KRaft `.checkpoint`) as batches and records.

A segment is scanned forward. `Segment.scan` yields headers, with a verdict for every bad stretch
(the rules are in `scan`). `Segment.records` yields the records of one batch with their effective
values:

- offset: base offset + delta for v2. In a legacy wrapper it is absolute (v0), or computed from the
  wrapper's offset (v1).
- timestamp_ms: with LogAppendTime the batch's max timestamp for every record. With CreateTime base
  timestamp + delta, also when the base timestamp is a delete horizon.
- sequence: base sequence + offset delta, wrapping, or -1 without a sequence.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from storage.errors import (
    AccessError,
    CorruptError,
    FormatError,
    KernelError,
    TruncatedError,
    UnsupportedError,
)
from storage.files.positioned_file import PositionedFile
from storage.formats.record_batch import (
    HEADER_BYTES,
    MAGIC_POS,
    MAGIC_V2,
    NO_SEQUENCE,
    record_sequence,
    record_timestamp_ms,
)
from storage.kernels.scan import Scan
from storage.limits import INT32_MAX, MAX_OFFSET

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType

    from storage.files.positioned_file import Pread
    from storage.formats.record import RecordHeader
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.offset_order import ClaimedEnd
    from storage.kernels.protocol import ScannedBatch

DEFAULT_MAX_BATCH_BYTES = 256 << 20
# Kafka's FileRecords opens no larger file: positions in it, and in indexes, are ints (SEG-10).
MAX_SEGMENT_BYTES = INT32_MAX

# 00000000000000000100.log, also with the suffix .deleted, .cleaned or .swap
_SEGMENT_NAME = re.compile(r"([0-9]{1,20})\.log(?:\.[a-z]+)?")
_CHECKPOINT_NAME = re.compile(r"(?:[0-9]{20}-[0-9]{10}|bootstrap)\.checkpoint(?:\.[a-z]+)?")


def size_problem(path: str, file_bytes: int) -> CorruptError | None:
    """Return SEG-10 for a file that is larger than a broker and its tools open, else None."""
    if file_bytes <= MAX_SEGMENT_BYTES:
        return None
    return CorruptError(
        "larger than a segment can be. No broker opens it",
        check_id="SEG-10",
        pos=MAX_SEGMENT_BYTES,
        expected=f"at most {MAX_SEGMENT_BYTES} bytes",
        found=f"{file_bytes} bytes",
    ).located(path)


class LogRecord(NamedTuple):
    """One record with its effective offset, time and sequence number."""

    offset: int
    timestamp_ms: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]
    crc: int | None  # only legacy records have a checksum of their own
    crc_ok: bool | None


def parse_base_offset(name: str) -> int | None:
    """Return the base offset in a file name, or None.

    KRaft snapshots begin with offset 0, whatever end offset is in their name.
    """
    if _CHECKPOINT_NAME.fullmatch(name):
        return 0
    match = _SEGMENT_NAME.fullmatch(name)
    base_offset = int(match[1]) if match else None
    return base_offset if base_offset is not None and base_offset <= MAX_OFFSET else None


def open_segment(
    path: str | os.PathLike[str], *, base_offset: int | None = None, pread: Pread | None = None
) -> Segment:
    """Open a segment read-only. Raises AccessError. `pread` is for tests and unusual devices."""
    return Segment(PositionedFile(path, pread=pread), base_offset)


class Segment:
    """An open segment, which is a context manager.

    Attributes:
        path: as given.
        base_offset: as given, or from the name. 0 if the name has none. Then it judges no offset
            (SEG-2, SEG-3).
        max_batch_bytes: decompression limit of a batch, unless `records` gets another limit.
        end_offset, claimed_end: set by `within`.
    """

    max_batch_bytes = DEFAULT_MAX_BATCH_BYTES
    end_offset: int | None = None
    claimed_end: ClaimedEnd | None = None

    def __init__(self, file: PositionedFile, base_offset: int | None = None) -> None:
        self._file = file
        self.path = file.path
        if base_offset is None:
            base_offset = parse_base_offset(Path(file.path).name)
        self._known_base_offset = base_offset
        self.base_offset = base_offset or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A second `close` does nothing."""
        self._file.close()

    @property
    def file(self) -> PositionedFile:
        """The underlying file, for kernels."""
        return self._file

    @property
    def known_base_offset(self) -> int | None:
        """The base offset, or None if neither the caller nor the name gave it."""
        return self._known_base_offset

    @property
    def file_bytes(self) -> int:
        """The size of the file now."""
        return self._file.file_bytes

    def within(self, end_offset: int | None, claimed_end: ClaimedEnd | None) -> Self:
        """Store its place in its log, as for `scan`, for a caller that gets only the segment."""
        self.end_offset, self.claimed_end = end_offset, claimed_end
        return self

    def of_any_offset(self) -> Segment:
        """Return the same open file as a segment whose base offset is unknown (SEG-2, SEG-3)."""
        other = Segment(self._file, self.base_offset)
        other._known_base_offset = None
        return other

    def scan(
        self,
        *,
        start_pos: int = 0,
        end_pos: int | None = None,
        verify_crc: bool = True,
        is_active: bool = True,
        resume: bool = True,
        end_offset: int | None = None,
        claimed_end: ClaimedEnd | None = None,
    ) -> Scan:
        """Scan the batches of [start_pos, end_pos), by default up to the current size of the file.

        Args:
            start_pos: a batch boundary.
            end_pos: the end of the range, never beyond the file.
            verify_crc: compute checksums. Without them a wrong length may stay unnoticed for long.
            is_active: this is the last segment, which a crash may leave torn.
            resume: continue behind damage. False stops where the broker's reader stops.
            end_offset: base offset of the next segment, if any. No batch may reach it.
            claimed_end: of the log, if this is its last segment.
        """
        return Scan(
            self._file,
            self._known_base_offset,
            start_pos=start_pos,
            end_pos=end_pos,
            verify_crc=verify_crc,
            is_active=is_active,
            resume=resume,
            end_offset=end_offset,
            claimed_end=claimed_end,
        )

    def scan_tables(
        self,
        *,
        start_pos: int = 0,
        end_pos: int | None = None,
        verify_crc: bool = True,
        is_active: bool = True,
        resume: bool = True,
        end_offset: int | None = None,
        claimed_end: ClaimedEnd | None = None,
    ) -> Any:
        """Scan in blocks of columns: a TableScan, an iterator of HeaderTable with verdicts.

        Raises KernelError if numpy is not installed.
        """
        if find_spec("numpy") is None:
            raise KernelError("numpy is not installed", next_step="install numpy")
        from storage.kernels.numpy_kernel import scan_tables

        return scan_tables(
            self,
            start_pos=start_pos,
            end_pos=end_pos,
            verify_crc=verify_crc,
            is_active=is_active,
            resume=resume,
            end_offset=end_offset,
            claimed_end=claimed_end,
        )

    def read_batch(self, batch: ScannedBatch) -> bytes:
        """Read all bytes of a batch.

        Raises:
            TruncatedError: the file has become shorter since the scan.
            AccessError: a part of it cannot be read.
        """
        size = batch.header.batch_bytes
        available_bytes = max(self.file_bytes - batch.pos, 0)
        reading = self._file.read_at(batch.pos, min(size, available_bytes))
        if reading.unreadable:
            hole = reading.unreadable[0]
            words = f"{hole.strerror} (positions {hole.start_pos} to {hole.end_pos})"
            raise AccessError(OSError(hole.errno, words), self.path)
        if len(reading.data) < size:
            raise TruncatedError(
                "batch",
                check_id="BAT-2",
                pos=0,
                needed_bytes=size,
                available_bytes=len(reading.data),
            ).located(self.path, batch.pos)
        return reading.data

    def records(
        self, batch: ScannedBatch, *, max_batch_bytes: int | None = None
    ) -> Iterator[LogRecord]:
        """Yield the records of one batch, whether its checksum is right or not.

        Errors are raised when the iteration reaches them, with their path. Their position is in the
        file: the record in an uncompressed v2 batch, the body in a compressed v2 batch, the message
        in v0 and v1.

        Raises:
            CorruptError: the body does not decompress or parse (BAT-7, legacy BAT-17).
            TooLargeError: it would decompress to more than `max_batch_bytes` (None: the segment's
                own limit).
            UnsupportedError: magic is none of 0, 1, 2, or the codec is unknown.
            TruncatedError, AccessError: as `read_batch`.
        """
        if max_batch_bytes is None:
            max_batch_bytes = self.max_batch_bytes
        try:
            if 0 <= batch.header.magic < MAGIC_V2:
                yield from _legacy_records(self.read_batch(batch), max_batch_bytes)
            else:
                yield from _v2_records(batch.header, self.read_batch(batch), max_batch_bytes)
        except FormatError as error:
            raise error.located(self.path, batch.pos) from error.__cause__


def _v2_records(header: BatchHeader, data: bytes, max_bytes: int) -> Iterator[LogRecord]:
    """Yield the records of a v2 batch. Positions of errors are in `data`."""
    from storage.formats.compression import decompress
    from storage.formats.record import parse_records

    if header.magic != MAGIC_V2:
        raise UnsupportedError(
            "unknown magic",
            check_id="BAT-2",
            pos=MAGIC_POS,
            expected="0, 1 or 2",
            found=str(header.magic),
        )
    if len(data) < HEADER_BYTES:
        raise TruncatedError(
            "batch header",
            check_id="BAT-2",
            pos=0,
            needed_bytes=HEADER_BYTES,
            available_bytes=len(data),
        )
    body = data[HEADER_BYTES:]
    del data  # a large record would be in memory three times
    try:
        if header.codec and header.records_count:
            body = decompress(header.codec, body, max_bytes=max_bytes)
        for record in parse_records(body, header.records_count):
            yield LogRecord(
                header.base_offset + record.offset_delta,
                record_timestamp_ms(header, record.timestamp_delta_ms),
                record_sequence(header, record.offset_delta),
                record.key,
                record.value,
                record.headers,
                None,
                None,
            )
    except FormatError as error:
        # A position in the decompressed body is no position in the file: use the body's first byte.
        error.pos = HEADER_BYTES if header.codec else error.pos + HEADER_BYTES
        raise


def _legacy_records(data: bytes, max_bytes: int) -> Iterator[LogRecord]:
    """Yield a legacy message, or the messages in a wrapper. Positions of errors are in `data`."""
    from storage.formats.legacy_message import inner_messages, parse_message

    message = parse_message(data, 0)
    try:
        records = inner_messages(message, max_bytes=max_bytes)
    except FormatError as error:
        error.pos = 0  # it may be a position in the decompressed value
        raise
    for record in records:
        yield LogRecord(
            record.offset,
            record.timestamp_ms,
            NO_SEQUENCE,
            record.key,
            record.value,
            (),
            record.crc,
            record.crc_ok,
        )
