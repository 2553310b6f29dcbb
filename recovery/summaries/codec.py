"""Summaries as bytes, to be sent between processes or kept for the next run."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from recovery.summaries.fingerprint import Fingerprint
from recovery.summaries.partition import JoinedRun, PartitionSummary
from recovery.summaries.producer_summary import PRODUCER_DTYPE
from recovery.summaries.read_findings import ReadFinding  # noqa: TC001 - `read_as` resolves it
from recovery.summaries.segment import PieceSummary
from recovery.summaries.sequence_ranges import RANGES_DTYPES, SequenceRanges
from recovery.summaries.settled_epochs import SETTLED_DTYPES, Sequences, SettledEpochs
from recovery.summaries.summary import Counts, Extent, Summary
from recovery.summaries.violations import VIOLATION_DTYPE
from recovery.timeline.codec import pack_timeline, unpack_timeline
from recovery.timeline.ended_epochs import ENDED_DTYPE
from recovery.timeline.reading import ReadTimeline
from storage.dirs.offset_ledger import OffsetSpan  # noqa: TC001 - `read_as` resolves it
from storage.dirs.state_file import read_as
from storage.errors import CorruptError, UnsupportedError
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
# Made once: an array keeps its type, and that of a structure is larger than a small column.
NATIVE_DTYPES = [each.newbyteorder("=") for each in COLUMN_DTYPES]
COMPRESSION_LEVEL = 1  # columns of small numbers shrink a lot at any level


Row = TypeVar("Row")


class _PackedPiece(NamedTuple):
    """Fields of `PieceSummary`, as they are sent."""

    summary: bytes
    findings: tuple[ReadFinding, ...]
    findings_count: int
    walked_end_pos: int
    lowest_leader_epoch: int
    highest_leader_epoch: int
    timeline: bytes | None
    span: OffsetSpan


class _PackedPartition(NamedTuple):
    """Fields of `PartitionSummary` that are sent."""

    summary: bytes
    findings: tuple[ReadFinding, ...]
    findings_count: int
    timeline: bytes | None
    span: OffsetSpan


class _PackedRun(NamedTuple):
    """Fields of `JoinedRun`, as they are sent."""

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
    """Encode what was found in a split."""
    from msgpack import packb

    timeline = None if piece.timeline is None else pack_timeline(piece.timeline)
    packed = {**piece._asdict(), "summary": pack_summary(piece.summary), "timeline": timeline}
    return bytes(packb([*packed.values()], use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_piece(data: bytes) -> PieceSummary:
    """Decode what `pack_piece` made. Raises as `unpack_summary`."""
    packed = _packed_row(_PackedPiece, data)
    timeline = None if packed.timeline is None else unpack_timeline(packed.timeline)
    whole = {"summary": unpack_summary(packed.summary), "timeline": timeline}
    return PieceSummary(**{**packed._asdict(), **whole})


def pack_split(split: Split) -> bytes:
    """Encode where a piece lies."""
    from msgpack import packb

    return bytes(packb(split, use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_split(data: bytes) -> Split:
    """Decode what `pack_split` made. Raises as `unpack_summary`."""
    return _packed_row(Split, data)


def pack_run(run: JoinedRun) -> bytes:
    """Encode what was found in neighbouring segments."""
    from msgpack import packb

    timeline = None if run.timeline is None else pack_timeline(run.timeline)
    packed = {**run._asdict(), "summary": pack_summary(run.summary), "timeline": timeline}
    return bytes(packb([*packed.values()], use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_run(data: bytes) -> JoinedRun:
    """Decode what `pack_run` made. Raises as `unpack_summary`."""
    packed = _packed_row(_PackedRun, data)
    timeline = None if packed.timeline is None else unpack_timeline(packed.timeline)
    whole = {"summary": unpack_summary(packed.summary), "timeline": timeline}
    return JoinedRun(**{**packed._asdict(), **whole})


def pack_partition(found: PartitionSummary) -> bytes:
    """Encode what was found in a partition directory; not what its log dir says of it."""
    from msgpack import packb

    timeline = None
    if found.timeline is not None:
        timeline = pack_timeline(ReadTimeline(found.timeline, -1, needs_floor=False))
    summary = pack_summary(found.summary)
    packed = [summary, found.findings, found.findings_count, timeline, found.span]
    return bytes(packb(packed, use_bin_type=True, unicode_errors="surrogateescape"))


def unpack_partition(data: bytes) -> PartitionSummary:
    """Decode what `pack_partition` made. Raises as `unpack_summary`."""
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
    """Decode what `pack_summary` made.

    Raises:
        UnsupportedError: another version made it.
        CorruptError: nothing of that kind.
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
