"""The records of one batch, decoded to its end before any of them is given.

Consumers and exports take the same batches for whole.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from storage.errors import AccessError, CorruptError, FormatError
from storage.formats.compression import Codec
from storage.formats.record_batch import MAGIC_V2
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.formats.legacy_message import InnerOffsets, LegacyRecord
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment

    R = TypeVar("R", LogRecord, LegacyRecord)

KEPT_RECORDS = 4096  # a larger batch is decoded twice rather than kept


def decoded_records(
    batch: ScannedBatch, segment: Segment, floor_offset: int = 0
) -> Iterable[LogRecord]:
    """Return the records of a batch, which was decoded to its end; a large one is decoded again.

    Raises:
        FormatError, AccessError: it cannot be, or `sound_records` does not take them.
    """
    sound = sound_records(segment.records(batch), batch, floor_offset)
    return decoded_to_end(sound, lambda: segment.records(batch))


def decoded_to_end(records: Iterable[R], again: Callable[[], Iterable[R]]) -> Iterable[R]:
    """Decode to the end; give what came, or decode again what is too much to be kept.

    Raises whatever `records` does.
    """
    kept: list[R] | None = []
    for record in records:
        if kept is not None:
            kept.append(record)
            if len(kept) > KEPT_RECORDS:
                kept = None
    return again() if kept is None else kept


def sound_records(records: Iterable[R], batch: ScannedBatch, floor_offset: int) -> Iterator[R]:
    """Give the records of a batch as long as nothing is wrong with them.

    Offsets inside of a wrapper are in no header: where they go back, a consumer would pass over
    records as if it had had them already. None may be below `floor_offset` either, where the batch
    before it ends.

    Raises:
        CorruptError: BAT-17 of a wrapper, BAT-1 of another legacy message.
    """
    is_wrapper = batch.header.magic < MAGIC_V2 and batch.header.codec != Codec.NONE
    for record in records:
        if record.crc_ok is False:
            raise CorruptError(
                f"checksum of the {'inner ' if is_wrapper else ''}message at offset"
                f" {record.offset} does not match",
                check_id="BAT-17" if is_wrapper else "BAT-1",
                pos=batch.pos,
                found=str(record.crc),
            )
        if is_wrapper:
            _require_order(record.offset, floor_offset, batch.header)
            floor_offset = record.offset + 1
        yield record
    stated = batch.header.last_offset
    if is_wrapper and batch.header.magic == 0 and stated and floor_offset != stated + 1:
        raise CorruptError(
            f"the last inner message has offset {floor_offset - 1}, and the wrapper {stated}",
            check_id="BAT-17",
            pos=batch.pos,
        )


def offsets_inside(batch: ScannedBatch, segment: Segment) -> InnerOffsets | None:
    """Return the offsets inside of a wrapper of an old format; None: it is none, or hides them.

    The header of a wrapper has the last offset alone; what is in it is decompressed.
    """
    header = batch.header
    if header.magic >= MAGIC_V2 or header.codec == Codec.NONE:
        return None
    from storage.formats.legacy_message import inner_offsets, parse_message

    with suppress(FormatError, AccessError):
        message = parse_message(segment.read_batch(batch), 0)
        return inner_offsets(message, max_bytes=segment.max_batch_bytes)
    return None


def lost_base_offset(header: BatchHeader, floor_offset: int | None) -> int:
    """Return the first offset that is missing with a batch; a wrapper's header has its last one."""
    is_wrapper = header.magic < MAGIC_V2 and header.codec != Codec.NONE
    if not is_wrapper or floor_offset is None:
        return header.base_offset
    return min(floor_offset, header.base_offset)


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
