"""The records of one batch, decoded to its end first, and the end markers of a stretch of log."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from storage.errors import AccessError, CorruptError, FormatError
from storage.formats.compression import Codec
from storage.formats.control_record import ControlRecordType, parse_control_key
from storage.formats.record_batch import MAGIC_V2
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.formats.legacy_message import InnerOffsets, LegacyRecord
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment

    R = TypeVar("R", LogRecord, LegacyRecord)


# -- the records of one batch, decoded to its end before the first is returned
#
# With this, consumers and exports agree on which batches are whole.


KEPT_RECORDS = 4096  # a larger batch is decoded twice instead of kept


def decoded_records(
    batch: ScannedBatch, segment: Segment, floor_offset: int = 0
) -> Iterable[LogRecord]:
    """Return the records of a batch that decodes to its end. A large batch is decoded again.

    Raises:
        FormatError, AccessError: it does not decode, or `sound_records` refuses a record.
    """
    sound = sound_records(segment.records(batch), batch, floor_offset)
    return decoded_to_end(sound, lambda: segment.records(batch))


def decoded_to_end(records: Iterable[R], again: Callable[[], Iterable[R]]) -> Iterable[R]:
    """Decode all records and return them, decoded again if they are too many to keep.

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
    """Yield the records of a batch up to the first fault.

    The inner offsets of a wrapper are in no header. If they decrease, a consumer skips records as
    already consumed. No offset may be below `floor_offset` either, the end of the batch before.

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
    if is_wrapper and (error := wrong_wrapper_offset(batch, floor_offset - 1)) is not None:
        raise error


def wrong_wrapper_offset(batch: ScannedBatch, last_inner_offset: int) -> CorruptError | None:
    """Return BAT-17 for a v0 wrapper whose offset differs from its last inner offset.

    Messages in a v0 wrapper have absolute offsets. A wrapper at offset 0 may have been stored as it
    was sent.
    """
    stated = batch.header.last_offset
    if batch.header.magic or not stated or last_inner_offset == stated:
        return None
    return CorruptError(
        f"the last inner message has offset {last_inner_offset}, and the wrapper {stated}",
        check_id="BAT-17",
        pos=batch.pos,
    )


def offsets_inside(batch: ScannedBatch, segment: Segment) -> InnerOffsets | None:
    """Return the inner offsets of a legacy wrapper, or None.

    A wrapper's header has only the last offset, so its content is decompressed. The result is None
    if the batch is no wrapper or does not decode.
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
    """Return the first offset that is lost with a batch.

    A wrapper's header has only its last offset.
    """
    is_wrapper = header.magic < MAGIC_V2 and header.codec != Codec.NONE
    if not is_wrapper or floor_offset is None:
        return header.base_offset
    return min(floor_offset, header.base_offset)


def _require_order(offset: int, floor_offset: int, header: BatchHeader) -> None:
    # A wrapper at offset 0 may have been stored as it was sent, with offsets counted from 0.
    last_offset = header.last_offset or MAX_OFFSET
    if not floor_offset <= offset <= last_offset:
        upper = "" if last_offset == MAX_OFFSET else f" and <= {last_offset}"
        raise CorruptError(
            f"offsets of inner messages do not ascend to the wrapper's: {offset} where"
            f" >= {floor_offset}{upper} is expected",
            check_id="BAT-17",
            pos=0,
        )


# -- end markers of a stretch of log, and the outcomes of the batches before them (RC-5)
#
# Only the key of its record gives the type of a marker. A consumer (CompletedFetch) and a group
# coordinator that loads offsets ignore the value. A broker that replays the log requires a whole
# value (`recovery.replay.end_markers`).


class BatchOutcome(StrEnum):
    """The outcome of a batch."""

    COMMITTED = "committed"  # or not transactional
    ABORTED = "aborted"
    OPEN = "open"  # no marker of its producer follows
    UNKNOWN = "unknown"  # its marker may be in a damaged or missing stretch


class MarkerIndex:
    """End markers per producer: the offline oracle of rule RC-5, for logs that are not compacted.

    It works on one batch at a time and without numpy. `recovery.transactions.outcomes` does the
    same in bulk.

    A transactional batch has the outcome of the next marker of its producer after it. Markers must
    be added in the order of their offsets.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._commits: dict[int, list[bool]] = {}

    def add(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        """Add one marker."""
        self._offsets.setdefault(producer_id, []).append(offset)
        self._commits.setdefault(producer_id, []).append(is_commit)

    def outcome(self, header: BatchHeader) -> BatchOutcome:
        """Return the outcome of a data batch, or of the transaction that a marker ends."""
        if not header.is_transactional:
            return BatchOutcome.COMMITTED
        # A marker belongs to the transaction it ends, so its own offset is looked up as one before
        # it.
        offset = header.last_offset - 1 if header.is_control else header.last_offset
        offsets = self._offsets.get(header.producer_id, [])
        place = bisect_right(offsets, offset)
        if place == len(offsets):
            return BatchOutcome.OPEN
        is_commit = self._commits[header.producer_id][place]
        return BatchOutcome.COMMITTED if is_commit else BatchOutcome.ABORTED

    def read_segment(
        self, segment: Segment, *, on_error: Callable[[FormatError], None] | None = None
    ) -> None:
        """Add every good marker of a segment. `on_error` receives the errors of the others."""
        for batch in segment.scan():
            header = batch.header
            is_control = header.is_control and header.producer_id >= 0 and header.records_count > 0
            if not is_control or batch.crc_ok is False:
                continue
            try:
                is_commit = marker_is_commit(segment, batch)
            except FormatError as exc:
                if on_error is not None:
                    on_error(exc)
                continue
            if is_commit is not None:
                self.add(header.producer_id, header.last_offset, is_commit=is_commit)


def marker_is_commit(segment: Segment, batch: ScannedBatch) -> bool | None:
    """Return whether a control batch commits, or None if it has no end marker.

    Raises:
        FormatError: its record or key does not decode.
    """
    for record in segment.records(batch):
        control_type = parse_control_key(record.key).type
        if control_type == ControlRecordType.COMMIT:
            return True
        if control_type == ControlRecordType.ABORT:
            return False
    return None
