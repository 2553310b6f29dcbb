"""The bytes of the `.log` files that a truncation removes, and the end after a broker's start.

Rules TRUNC 1 to 3: segments with a base above the offset are removed. In the last remaining
segment, everything is removed from the first batch on whose last offset is at or above the offset.
The rest is walked like the next start of the broker (REC-6): from the segment with the recovery
point on, including checksums. That start would truncate at damage, and end lower than predicted.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from recovery.replay.bulk_state import BulkState, replay_segment
from recovery.replay.recover_state import first_recovered
from storage.errors import FormatError, RefusedError
from storage.formats.record_batch import MAGIC_V2
from storage.log.segment import open_segment
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from recovery.replay.bulk_state import SegmentReplay
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.log.segment import Segment


class BatchAround(NamedTuple):
    """The batch around an offset: above its first offset, not above its last."""

    base_offset: int
    last_offset: int
    pos: int
    path: str


class Cut(NamedTuple):
    """The removed part of a log.

    Attributes:
        offset: the requested offset.
        end_offset: log end after a restart: one above the last kept batch, else the base offset of
            the last kept segment.
        log_end_offset: before the truncation.
        kept_count: number of kept segments, from the first. 0: all are removed, and an empty
            segment at `offset` replaces them (truncateFully).
        kept_bytes: of the `.log` of the last kept segment.
        around: the batch that has `offset` inside.
    """

    offset: int
    end_offset: int
    log_end_offset: int
    kept_count: int
    kept_bytes: int
    around: BatchAround | None

    @property
    def is_nothing(self) -> bool:
        """Return whether the log ends at or below the offset."""
        return self.offset >= self.log_end_offset

    @property
    def is_full(self) -> bool:
        """Return whether no segment is kept."""
        return not self.is_nothing and self.kept_count == 0


def find_cut(partition: Partition, offset: int, log_end_offset: int) -> Cut:
    """Find the part of a log that a truncation to `offset` removes.

    Raises:
        RefusedError: the kept part is damaged, or no broker could load it.
        AccessError: a `.log` cannot be read.
    """
    segments = partition.segments
    kept_count = bisect_right(segments, offset, key=attrgetter("base_offset"))
    if offset >= log_end_offset:
        last_bytes = segments[-1].log.file_bytes if segments else 0
        return Cut(
            offset=offset,
            end_offset=log_end_offset,
            log_end_offset=log_end_offset,
            kept_count=len(segments),
            kept_bytes=last_bytes,
            around=None,
        )
    if not kept_count:
        return Cut(
            offset=offset,
            end_offset=offset,
            log_end_offset=log_end_offset,
            kept_count=0,
            kept_bytes=0,
            around=None,
        )
    recovery_point = None
    if partition.log_dir is not None:
        recovery_point = partition.log_dir.recovery_point(partition.directory)
    kept = segments[:kept_count]
    first = first_recovered(kept, min(recovery_point or 0, offset))
    state = BulkState()
    for files in kept[first:-1]:
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            found = _walk(segment, state, None)
            if found.stop is not None:
                raise _damaged(segment, found.stop, _end_of(files, found))
    files = kept[-1]
    with open_segment(files.log.path, base_offset=files.base_offset) as segment:
        found = _walk(segment, state, offset)
        end_offset = _end_of(files, found)
        if found.stop is not None and not _is_above(segment, found.valid_bytes, end_offset, offset):
            raise _damaged(segment, found.stop, end_offset)
        around = _batch_around(segment, found.valid_bytes, offset)
    return Cut(
        offset=offset,
        end_offset=end_offset,
        log_end_offset=log_end_offset,
        kept_count=kept_count,
        kept_bytes=found.valid_bytes,
        around=around,
    )


def _walk(segment: Segment, state: BulkState, end_offset: int | None) -> SegmentReplay:
    try:
        return replay_segment(segment, state, end_offset=end_offset, is_active=False)
    except AppendError as error:
        raise cannot_load(segment.path, error, error.offset) from error
    except FormatError as error:
        batch = next(segment.scan(start_pos=error.pos, verify_crc=False), None)
        offset = None if batch is None else batch.header.base_offset
        raise cannot_load(segment.path, error, offset) from error


def cannot_load(path: str, error: Exception, offset: int | None) -> RefusedError:
    """Return the error for a log that no broker loads after it. `offset`: of the batch."""
    where = "below that batch" if offset is None else str(offset)
    found = str(error) if isinstance(error, FormatError) and error.path else f"{path}: {error}"
    return RefusedError(
        f"{found}: this stays, and a broker cannot load it",
        next_step=f"--to-offset {where}",
    )


def _end_of(files: SegmentFiles, found: SegmentReplay) -> int:
    return max(found.last_offset + 1, files.base_offset)


def _is_above(segment: Segment, pos: int, end_offset: int, offset: int) -> bool:
    """Return whether damage at `pos` is at or above `offset`. The log is good up to `end_offset`.

    A batch with a wrong checksum counts as reaching `offset` if no good batch after it is below.
    """
    if end_offset >= offset:
        return True
    scan = segment.scan(start_pos=pos, is_active=False)
    first = next(scan, None)
    if first is None or first.pos != pos or first.header.last_offset < offset:
        return False
    following = next((each for each in scan if each.crc_ok), None)
    return following is None or following.header.base_offset >= offset


def _damaged(segment: Segment, stop: Verdict, end_offset: int) -> RefusedError:
    rule = f" [{stop.check_id}]" if stop.check_id else ""
    return RefusedError(
        f"{segment.path}: position {stop.start_pos}: {stop.reason or stop.kind}{rule}: this "
        "stays, and the next start of a broker would truncate the log there, at offset "
        f"{end_offset}",
        next_step=f"--to-offset {end_offset}, or below",
    )


def _batch_around(segment: Segment, pos: int, offset: int) -> BatchAround | None:
    batch = next(segment.scan(start_pos=pos, is_active=False), None)
    if batch is None or batch.pos != pos or batch.header.last_offset < offset:
        return None
    base_offset = _first_offset(segment, batch)
    if base_offset >= offset:
        return None
    return BatchAround(
        base_offset=base_offset, last_offset=batch.header.last_offset, pos=pos, path=segment.path
    )


def _first_offset(segment: Segment, batch: ScannedBatch) -> int:
    """Return the first offset of a batch. A legacy wrapper's header has only its last offset."""
    header = batch.header
    if header.magic >= MAGIC_V2 or not header.codec:
        return header.base_offset
    try:
        record = next(segment.records(batch), None)
    except FormatError:
        record = None  # it is removed, so its damage does not matter
    return header.base_offset if record is None else record.offset
