"""The filters that need more than one header: a batch's outcome is told by a later marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.dump.context import later_segments
from storage.errors import AccessError
from storage.log.decoded_records import BatchOutcome, MarkerIndex
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from eoctl.dump.selection import Selection
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment


class BatchFilter:
    """A selection applied to one `.log`, with the markers of it and of the segments behind it."""

    def __init__(self, selection: Selection, segment: Segment | None = None) -> None:
        self.selection = selection
        self.is_everything = selection.is_everything
        self._markers: MarkerIndex | None = None
        if selection.only_aborted and segment is not None:
            self._markers = _markers_from(segment)

    def wants_batch(self, batch: ScannedBatch) -> bool:
        """Whether to show a batch."""
        if self.is_everything:
            return True
        if not self.selection.wants_batch(batch):
            return False
        if self._markers is None:
            return True
        return self._markers.outcome(batch.header) is BatchOutcome.ABORTED

    def wants_record(self, record: LogRecord) -> bool:
        """Whether to show a record of a wanted batch."""
        return self.is_everything or self.selection.wants_record(record)


def _markers_from(segment: Segment) -> MarkerIndex:
    markers = MarkerIndex()
    markers.read_segment(segment)
    for path in later_segments(segment.path):
        try:
            with open_segment(path) as later:
                markers.read_segment(later)
        except AccessError:
            break  # rolled away by a live broker: what ends later is open as far as we can see
    return markers
