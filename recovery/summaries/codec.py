"""Summaries as bytes, to send between processes or to keep for the next run."""

from __future__ import annotations

import os
import tempfile
import zlib
from errno import EIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import finalize

import numpy as np

from recovery.summaries.partition import JoinedRun, PartitionSummary
from recovery.summaries.producer_summary import PRODUCER_DTYPE
from recovery.summaries.segment import PieceSummary
from recovery.summaries.sequence_ranges import RANGES_DTYPES, SequenceRanges
from recovery.summaries.settled_epochs import SETTLED_DTYPES, Sequences, SettledEpochs
from recovery.summaries.summary import VIOLATION_DTYPE, Counts, Extent, Fingerprint, Summary
from recovery.timeline.piece import ReadTimeline, pack_timeline, unpack_timeline
from recovery.timeline.spans import ENDED_DTYPE
from storage.dirs.offset_ledger import OffsetSpan  # noqa: TC001 - `read_as` resolves it
from storage.dirs.state_file import read_as
from storage.errors import AccessError, CorruptError, UnsupportedError
from storage.places.log_reader import ReadFinding  # noqa: TC001 - `read_as` resolves it
from storage.places.splits import Split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


PACKED_VERSION = 5
FINGERPRINT_DTYPES = (np.int64, np.uint64, np.int64)
COLUMN_DTYPES = [
    np.dtype(each).newbyteorder("<")
    for each in (
        PRODUCER_DTYPE,
        ENDED_DTYPE,
        VIOLATION_DTYPE,
        *RANGES_DTYPES,
        *SETTLED_DTYPES,
        *FINGERPRINT_DTYPES,
    )
]
# Built once: an array keeps its type, and the type of a structure is larger than a small column.
NATIVE_DTYPES = [each.newbyteorder("=") for each in COLUMN_DTYPES]
COMPRESSION_LEVEL = 1  # columns of small numbers shrink a lot at any level


Row = TypeVar("Row")


class _PackedPiece(NamedTuple):
    """The fields of `PieceSummary` as bytes."""

    summary: bytes
    findings: tuple[ReadFinding, ...]
    findings_count: int
    walked_end_pos: int
    lowest_leader_epoch: int
    highest_leader_epoch: int
    timeline: bytes | None
    span: OffsetSpan


class _PackedPartition(NamedTuple):
    """The fields of `PartitionSummary` that are sent."""

    summary: bytes
    findings: tuple[ReadFinding, ...]
    findings_count: int
    timeline: bytes | None
    span: OffsetSpan


class _PackedRun(NamedTuple):
    """The fields of `JoinedRun` as bytes."""

    splits: tuple[Split, ...]
    summary: bytes
    findings: tuple[ReadFinding, ...]
    findings_count: int
    timeline: bytes | None
    needs_floor: bool
    span: OffsetSpan


def pack_summary(summary: Summary) -> bytes:
    """Encode a summary. Equal summaries give equal bytes."""
    from msgpack import packb

    columns = (
        summary.producers,
        summary.ended,
        summary.violations,
        *summary.sequences.ranges,
        *summary.sequences.settled,
        summary.fingerprint.bucket,
        summary.fingerprint.hashes,
        summary.fingerprint.batches,
    )
    value = [
        PACKED_VERSION,
        [*summary.counts],
        [*summary.extent],
        summary.duplicate_batches,
        summary.fingerprint.width_bits,
        [*_packed(columns)],
    ]
    return zlib.compress(packb(value, use_bin_type=True), COMPRESSION_LEVEL)


def _packed(columns: Iterable[NDArray[Any]]) -> Iterator[bytes]:
    for column, dtype in zip(columns, COLUMN_DTYPES, strict=True):
        yield np.ascontiguousarray(column, dtype).tobytes()


def pack_piece(piece: PieceSummary) -> bytes:
    """Encode the summary of a split."""
    from msgpack import packb

    timeline = None if piece.timeline is None else pack_timeline(piece.timeline)
    packed = {**piece._asdict(), "summary": pack_summary(piece.summary), "timeline": timeline}
    return bytes(packb([*packed.values()], use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_piece(data: bytes) -> PieceSummary:
    """Decode the output of `pack_piece`. Raises the errors of `unpack_summary`."""
    packed = _packed_row(_PackedPiece, data)
    timeline = None if packed.timeline is None else unpack_timeline(packed.timeline)
    whole = {"summary": unpack_summary(packed.summary), "timeline": timeline}
    return PieceSummary(**{**packed._asdict(), **whole})


def pack_split(split: Split) -> bytes:
    """Encode the place of a piece."""
    from msgpack import packb

    return bytes(packb(split, use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_split(data: bytes) -> Split:
    """Decode the output of `pack_split`. Raises the errors of `unpack_summary`."""
    return _packed_row(Split, data)


def pack_run(run: JoinedRun) -> bytes:
    """Encode the summary of neighbouring segments."""
    from msgpack import packb

    timeline = None if run.timeline is None else pack_timeline(run.timeline)
    packed = {**run._asdict(), "summary": pack_summary(run.summary), "timeline": timeline}
    return bytes(packb([*packed.values()], use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_run(data: bytes) -> JoinedRun:
    """Decode the output of `pack_run`. Raises the errors of `unpack_summary`."""
    packed = _packed_row(_PackedRun, data)
    timeline = None if packed.timeline is None else unpack_timeline(packed.timeline)
    whole = {"summary": unpack_summary(packed.summary), "timeline": timeline}
    return JoinedRun(**{**packed._asdict(), **whole})


def pack_partition(found: PartitionSummary) -> bytes:
    """Encode the summary of a partition directory, without the facts from its log dir."""
    from msgpack import packb

    timeline = None
    if found.timeline is not None:
        timeline = pack_timeline(ReadTimeline(found.timeline, -1, needs_floor=False))
    summary = pack_summary(found.summary)
    packed = [summary, found.findings, found.findings_count, timeline, found.span]
    return bytes(packb(packed, use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_partition(data: bytes) -> PartitionSummary:
    """Decode the output of `pack_partition`. Raises the errors of `unpack_summary`."""
    packed = _packed_row(_PackedPartition, data)
    timeline = None if packed.timeline is None else unpack_timeline(packed.timeline).timeline
    return PartitionSummary(
        unpack_summary(packed.summary),
        packed.findings,
        packed.findings_count,
        timeline=timeline,
        span=packed.span,
    )


def _packed_row(kind: type[Row], data: bytes) -> Row:
    from msgpack import unpackb

    try:
        return read_as(kind, unpackb(data, unicode_errors="surrogateescape"))
    except ValueError as exc:
        raise CorruptError(f"not a packed summary: {exc}", check_id="AUD-1", pos=0) from None


def unpack_summary(data: bytes) -> Summary:
    """Decode the output of `pack_summary`.

    Raises:
        UnsupportedError: another version wrote it.
        CorruptError: it is no summary.
    """
    from msgpack import unpackb

    try:
        version, *values = unpackb(zlib.decompress(data), strict_map_key=False)
        if version == PACKED_VERSION:
            return _unpacked(*values)
    except (ValueError, TypeError, zlib.error) as exc:
        raise CorruptError(f"not a packed summary: {exc}", check_id="AUD-1", pos=0) from None
    raise UnsupportedError(
        "summary of another version",
        check_id="AUD-1",
        pos=0,
        expected=str(PACKED_VERSION),
        found=str(version),
    )


def _unpacked(
    counts: list[int],
    extent: list[int],
    duplicate_batches: int | None,
    width_bits: int,
    packed: list[bytes],
) -> Summary:
    columns = [
        np.frombuffer(column, dtype).astype(native)
        for column, dtype, native in zip(packed, COLUMN_DTYPES, NATIVE_DTYPES, strict=True)
    ]
    producers, ended, violations, *columns = columns
    ranges, columns = columns[: len(RANGES_DTYPES)], columns[len(RANGES_DTYPES) :]
    settled, columns = columns[: len(SETTLED_DTYPES)], columns[len(SETTLED_DTYPES) :]
    return Summary(
        counts=read_as(Counts, counts),
        extent=read_as(Extent, extent),
        duplicate_batches=duplicate_batches,
        producers=producers,
        sequences=Sequences(SequenceRanges._make(ranges), SettledEpochs._make(settled)),
        ended=ended,
        violations=violations,
        fingerprint=Fingerprint._make([width_bits, *columns]),
    )


# -- the summaries of many directories, with few of them in memory at a time
#
# A summary grows with the producer ids of its directory. Unpacked it takes at least five times its
# packed size. So large summaries are kept packed, and unpacked in the turn of their directory. Up
# to `HELD_BYTES` are kept in memory. The rest goes to a file whose name is removed at once, so that
# even a killed process leaves no file.


HELD_BYTES = 64 << 20  # packed, in memory
NEXT_STEP = "TMPDIR=DIR on a file system with more space"


class HeldSummary(Protocol):
    """The summary of a directory."""

    def unpacked(self) -> PartitionSummary:
        """Return the summary. A packed summary is unpacked each time."""

    def packed(self) -> bytes:
        """Return the output of `pack_partition`."""


class LoadedSummary:
    """A summary in memory, unpacked."""

    def __init__(self, found: PartitionSummary) -> None:
        self._found = found

    def unpacked(self) -> PartitionSummary:
        """Return the summary."""
        return self._found

    def packed(self) -> bytes:
        """Pack the summary."""
        return pack_partition(self._found)


class Shelf:
    """Packed summaries: the first in memory, others in a file.

    Attributes:
        in_memory_bytes, in_file_bytes: so far.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        """Keep at most `memory_bytes` in memory. None: HELD_BYTES."""
        self._memory_bytes = HELD_BYTES if memory_bytes is None else memory_bytes
        self.in_memory_bytes = self.in_file_bytes = 0
        self._file: IO[bytes] | None = None

    def put(self, packed: bytes | bytearray) -> HeldSummary:
        """Add a summary. Raises AccessError if it cannot be written."""
        if self.in_memory_bytes + len(packed) <= self._memory_bytes:
            self.in_memory_bytes += len(packed)
            return _InMemory(bytes(packed))
        start_pos = self.in_file_bytes
        left = memoryview(packed)
        try:
            if self._file is None:
                self._file = _new_file()
                finalize(self, self._file.close)
            while left:
                left = left[self._file.write(left) :]
        except OSError as exc:
            raise AccessError(exc, tempfile.gettempdir(), next_step=NEXT_STEP) from exc
        self.in_file_bytes += len(packed)
        return _InFile(self, start_pos, len(packed))

    def read(self, start_pos: int, size_bytes: int) -> bytes:
        """Read from the file. Raises AccessError."""
        assert self._file is not None
        parts = []
        try:
            while size_bytes:
                part = os.pread(self._file.fileno(), size_bytes, start_pos)
                if not part:
                    raise OSError(EIO, "the temporary file has become shorter")  # noqa: TRY301
                parts.append(part)
                start_pos += len(part)
                size_bytes -= len(part)
        except OSError as exc:
            raise AccessError(exc, tempfile.gettempdir(), next_step=NEXT_STEP) from exc
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _new_file() -> IO[bytes]:
    # Unbuffered: after an error, Python would write the rest of a buffer again at the end.
    return tempfile.TemporaryFile(prefix="eoctl-", buffering=0)


class _InMemory:
    """A packed summary in memory."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def unpacked(self) -> PartitionSummary:
        return unpack_partition(self._packed)

    def packed(self) -> bytes:
        return self._packed


class _InFile:
    """A summary in the file of a shelf."""

    def __init__(self, shelf: Shelf, start_pos: int, size_bytes: int) -> None:
        self._shelf = shelf
        self._start_pos = start_pos
        self._size_bytes = size_bytes

    def unpacked(self) -> PartitionSummary:
        return unpack_partition(self.packed())

    def packed(self) -> bytes:
        return self._shelf.read(self._start_pos, self._size_bytes)
