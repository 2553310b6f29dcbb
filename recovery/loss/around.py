"""What can still be said of records that are lost: when they were written, by whom, their keys.

The time is bounded by the records around them. Damaged bytes tell of a producer and of keys as far
as they still decode; nothing vouches for that, since their checksum is wrong.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from recovery.loss.rows import shown
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.files.uris import is_uri
from storage.formats.record_batch import MAGIC_V2
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from recovery.export.lost import LostRange
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

MAX_BATCHES = 1000  # of one damaged stretch that are looked at


class Trace(NamedTuple):
    """What is known of a lost range; None: nothing."""

    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    first_key: bytes | None = None
    last_key: bytes | None = None


class Traces:
    """Looks around the losses of one directory."""

    def __init__(self, directory: str) -> None:
        self._partition: Partition | None = None
        if not is_uri(directory):
            try:
                self._partition = Partition.of(select_partition(directory))
            except EoctlError:  # gone, or never there: told by who has listed it
                self._partition = None

    def of(self, lost: LostRange) -> Trace:
        """Return what is known of a loss."""
        first_ms = last_ms = None
        if lost.base_offset is not None and lost.base_offset > 0:
            first_ms = self._time_at(lost.base_offset - 1, is_before=True)
        if lost.last_offset is not None:
            last_ms = self._time_at(lost.last_offset + 1, is_before=False)
        trace = Trace(first_timestamp_ms=first_ms, last_timestamp_ms=last_ms)
        if self._partition is None or lost.start_pos is None or lost.end_pos is None:
            return trace
        try:
            with open_segment(lost.path) as segment:
                return _with_content(trace, segment, lost)
        except EoctlError:
            return trace

    def _time_at(self, offset: int, *, is_before: bool) -> int | None:
        if self._partition is None:
            return None
        try:
            place = self._partition.find_offset(offset)
        except EoctlError:
            return None
        if place is None or place.batch.crc_ok is not True:
            return None
        header = place.batch.header
        if is_before:
            found = header.max_timestamp_ms if header.base_offset <= offset else -1
        else:
            is_first = header.magic >= MAGIC_V2 and header.delete_horizon_ms is None
            found = header.base_timestamp_ms if is_first else header.max_timestamp_ms
        return found if found >= 0 else None


def _with_content(trace: Trace, segment: Segment, lost: LostRange) -> Trace:
    """Add what the damaged batches say whose frames lie in the range."""
    scan = segment.scan(start_pos=lost.start_pos or 0, end_pos=lost.end_pos, is_active=False)
    sessions: set[tuple[int, int]] = set()
    keys: list[bytes | None] = []
    for batch in islice(scan, MAX_BATCHES):
        header = batch.header
        low, high = lost.base_offset or 0, lost.last_offset
        if header.base_offset < low or (high is not None and header.last_offset > high):
            continue
        if header.magic >= MAGIC_V2:
            sessions.add((header.producer_id, header.producer_epoch))
        found = _keys_of(segment, batch)
        if found:
            keys = [*(keys[:1] or found[:1]), found[-1]]
    producer = sessions.pop() if len(sessions) == 1 else (None, None)
    return trace._replace(
        producer_id=producer[0],
        producer_epoch=producer[1],
        first_key=shown(keys[0]) if keys else None,
        last_key=shown(keys[-1]) if keys else None,
    )


def _keys_of(segment: Segment, batch: ScannedBatch) -> list[bytes | None]:
    """Return the first and the last key that decode."""
    first: bytes | None = None
    last: bytes | None = None
    is_found = False
    try:
        for record in segment.records(batch):
            if not is_found:
                first, is_found = record.key, True
            last = record.key
    except EoctlError:
        pass
    return [first, last] if is_found else []
