"""End markers of a stretch of log, and what they make of the batches before them (RC-5).

The key of its record alone says what a marker is: neither a consumer (CompletedFetch) nor a group
coordinator that loads offsets looks at the value, while a broker that replays the log wants a whole
one (`recovery.replay.end_markers`).
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from typing import TYPE_CHECKING

from storage.errors import FormatError
from storage.formats.control_record import ControlRecordType, parse_control_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment


class BatchOutcome(StrEnum):
    """What became of a batch."""

    COMMITTED = "committed"  # or not transactional at all
    ABORTED = "aborted"
    OPEN = "open"  # no marker of its producer follows it
    UNKNOWN = "unknown"  # its marker may be in a stretch that is damaged or absent


class MarkerIndex:
    """End markers per producer: the offline oracle of rule RC-5, for logs that are not compacted.

    One batch at a time and without numpy; `recovery.transactions.outcomes` is the bulk twin.

    A transactional batch has the outcome of the next marker of its producer after it. Markers must
    be added in the order of their offsets.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._commits: dict[int, list[bool]] = {}

    def add(self, producer_id: int, offset: int, *, is_commit: bool) -> None:
        """Take in one marker."""
        self._offsets.setdefault(producer_id, []).append(offset)
        self._commits.setdefault(producer_id, []).append(is_commit)

    def outcome(self, header: BatchHeader) -> BatchOutcome:
        """Outcome of a data batch, or of the transaction that a marker ends."""
        if not header.is_transactional:
            return BatchOutcome.COMMITTED
        # A marker itself belongs to what it ends, so it counts as following its own offset.
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
        """Take in every good marker of a segment; what does not decode is told to `on_error`."""
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
    """Whether a control batch commits; None when it holds no end marker.

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
