"""The work of the log cleaner after a start (LogCleanerManager, LogToClean, Cleaner).

C1  It begins at its line in `cleaner-offset-checkpoint`, else at the log start. A line below the
    log start, or above the log end, is replaced by the log start at once.
C2  It ends before the active segment, the last stable offset, and the first segment with a record
    younger than `min.compaction.lag.ms`. It takes whole segments only.
C3  A log is chosen if the dirty share is above `min.cleanable.dirty.ratio`, or if the oldest dirty
    segment is older than `max.compaction.lag.ms`. The dirtiest log is first.
C4  One pass takes as many keys as its map holds.
C7  Any exception makes the log uncleanable until the restart. The next start fails again.
C8  The cleaner verifies no checksum. A damaged batch gets a new, right checksum.
C9  The new segments need room beside the old segments until `file.delete.delay.ms` has passed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from storage.file_names import COMPACTED_TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.forecast.retention import HighWatermark
    from recovery.forecast.settings import TopicRules
    from recovery.forecast.started_log import StartedLog, StartedSegment


class DirtyFrom(StrEnum):
    """The source of the first dirty offset."""

    LINE = "line"
    NO_LINE = "no-line"
    BELOW_START = "below-start"
    BEYOND_END = "beyond-end"


class Uncleanable(StrEnum):
    """The reason why the cleaner ends at an offset."""

    ACTIVE_SEGMENT = "active-segment"
    HIGH_WATERMARK = "high-watermark"
    OPEN_TRANSACTION = "open-transaction"
    MIN_LAG = "min.compaction.lag.ms"


class NotChosen(StrEnum):
    """The reason why the cleaner does not clean a log."""

    NO_COMPACT = "no-compact"  # a coordinator's topic without `compact`: its offsets are deleted
    CLEANER_OFF = "cleaner-off"
    FAILS = "fails"
    OPEN_TRANSACTION = "open-transaction"
    MIN_LAG = "min.compaction.lag.ms"
    HIGH_WATERMARK = "high-watermark"
    ONLY_ACTIVE = "only-active-segment"
    CLEAN = "clean"
    RATIO = "min.cleanable.dirty.ratio"


class Cleaning(NamedTuple):
    """The state of one compacted partition for the cleaner. Unknown is None.

    Attributes:
        first_dirty_offset: where the next cleaning begins.
        first_uncleanable_offset: where it ends at the latest.
        producer_id: of the oldest open transaction, if it ends the cleanable part.
        clean_bytes, cleanable_bytes: `.log` bytes below the first dirty offset, and from the
            segment that has it up to the first uncleanable offset.
        oldest_dirty_timestamp_ms: of the first batch of the first dirty segment.
        is_overdue: older than max.compaction.lag.ms.
        pass_end_offset: where the first pass ends, and the new line.
        needed_bytes: room that the copies need at most.
        dirty_records_count: records from the first dirty offset to the first uncleanable offset.
        superseded_records_count: records that have a newer record with the same key.
        keyless_records_count: records without a key, which a cleaning removes.
        damaged_batches_count: batches with a wrong checksum that a cleaning rewrites.
        fails_at_offset: where the cleaner's reader fails.
        run_at_ms: when it begins, if it is chosen.
    """

    topic: str
    partition: int
    path: str
    first_dirty_offset: int
    first_dirty_from: DirtyFrom
    first_uncleanable_offset: int | None
    uncleanable_because: Uncleanable | None
    producer_id: int | None
    clean_bytes: int
    cleanable_bytes: int | None
    cleanable_ratio: float | None
    min_ratio: float
    oldest_dirty_timestamp_ms: int | None
    is_overdue: bool | None
    is_chosen: bool | None
    why_not: NotChosen | None
    pass_end_offset: int | None
    needed_bytes: int | None
    dirty_records_count: int | None
    superseded_records_count: int | None = None
    keyless_records_count: int | None = None
    tombstones_count: int | None = None
    damaged_batches_count: int | None = None
    fails_at_offset: int | None = None
    run_at_ms: int | None = None


class _End(NamedTuple):
    offset: int
    because: Uncleanable
    producer_id: int | None = None


def forecast_cleaning(
    log: StartedLog, rules: TopicRules, mark: HighWatermark, now_ms: int, *, is_old: bool = False
) -> Cleaning | None:
    """Return what the cleaner does with a log. None: the cleaner has nothing to do with it.

    Args:
        log: after the start.
        rules: the settings of its topic.
        mark: the high watermark. The cleaner gets as far as `most` in the end.
        now_ms: the moment at which the log is loaded.
        is_old: the release is older than 3.1, where the high watermark does not count.
    """
    needs_compaction = log.topic in COMPACTED_TOPICS
    if log.is_future or not (rules.compacts or needs_compaction):
        return None
    run_ms = now_ms + rules.backoff.value
    dirty, source = first_dirty(log.cleaner_line, log.log_start_offset, log.end_offset)
    limit = None if log.opened is None else _limit(log, rules, mark, dirty, run_ms, is_old=is_old)
    clean_bytes = sum(each.log_bytes for each in log.segments if each.base_offset < dirty)
    is_overdue = _is_overdue(log, rules, dirty, run_ms)
    found = Cleaning(
        topic=log.topic,
        partition=log.partition,
        path=log.path,
        first_dirty_offset=dirty,
        first_dirty_from=source,
        first_uncleanable_offset=None,
        uncleanable_because=None,
        producer_id=None,
        clean_bytes=clean_bytes,
        cleanable_bytes=None,
        cleanable_ratio=None,
        min_ratio=rules.min_ratio,
        oldest_dirty_timestamp_ms=_oldest_dirty_ms(log, dirty),
        is_overdue=is_overdue,
        is_chosen=None,
        why_not=None,
        pass_end_offset=None,
        needed_bytes=None,
        dirty_records_count=None,
    )
    if not rules.compacts:
        return found._replace(is_chosen=False, why_not=NotChosen.NO_COMPACT)
    if limit is None:
        return found
    uncleanable = whole_segments_end(log.segments, max(dirty, limit.offset))
    cleanable = cleanable_segments(log.segments, dirty, uncleanable)
    cleanable_bytes = sum(each.log_bytes for each in cleanable)
    total_bytes = clean_bytes + cleanable_bytes
    ratio = cleanable_bytes / total_bytes if total_bytes else None
    is_due = total_bytes > 0 and (
        (ratio or 0.0) > rules.min_ratio or bool(is_overdue and cleanable_bytes)
    )
    fails_at = _fails_at(log, uncleanable)
    why_not = _why_not(rules, limit, cleanable, is_due=is_due, fails_at=fails_at)
    if why_not is NotChosen.CLEAN and len(log.segments) < 2:
        why_not = NotChosen.ONLY_ACTIVE
    is_chosen: bool | None = why_not is None
    if any(each.is_doubtful for each in log.segments if each.base_offset < uncleanable):
        # The cleaner fails where an index entry is due at an offset that goes back.
        is_chosen = None if is_chosen else False
    records_count = _records_count(cleanable, dirty)
    fits = records_count is not None and records_count <= rules.map_keys_count
    return found._replace(
        first_uncleanable_offset=uncleanable,
        uncleanable_because=limit.because,
        producer_id=limit.producer_id,
        cleanable_bytes=cleanable_bytes,
        cleanable_ratio=ratio,
        is_chosen=None if log.is_guess else is_chosen,
        why_not=why_not,
        pass_end_offset=uncleanable if is_chosen and fits else None,
        needed_bytes=total_bytes if is_chosen else 0,
        dirty_records_count=records_count,
        damaged_batches_count=_damaged_count(log, uncleanable),
        fails_at_offset=fails_at,
        run_at_ms=run_ms if is_chosen else None,
    )


def first_dirty(line: int | None, log_start: int, log_end: int) -> tuple[int, DirtyFrom]:
    """Return the first dirty offset, and its source (C1). `line`: None without a line."""
    if line is None:
        return log_start, DirtyFrom.NO_LINE
    if line < log_start:
        return log_start, DirtyFrom.BELOW_START
    if line > log_end:
        return log_start, DirtyFrom.BEYOND_END
    return line, DirtyFrom.LINE


class Based(Protocol):
    """A segment, of which only the base offset counts."""

    @property
    def base_offset(self) -> int:
        """The base offset."""


Segment = TypeVar("Segment", bound=Based)


def segments_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """Return the segments from an offset on, with the segment that contains it."""
    later = sum(each.base_offset > offset for each in segments)
    return segments[max(len(segments) - later - 1, 0) :]


def whole_segments_end(segments: Sequence[Segment], offset: int) -> int:
    """Return the base offset of the segment that has an offset, at most of the active segment."""
    if not segments:
        return offset
    last = segments[-1].base_offset
    return last if offset > last else segments_from(segments, offset)[0].base_offset


def cleanable_segments(segments: Sequence[Segment], dirty: int, uncleanable: int) -> list[Segment]:
    """Return the segments from the first dirty offset up to the first uncleanable offset."""
    if dirty >= uncleanable:
        return []
    return [each for each in segments_from(segments, dirty) if each.base_offset < uncleanable]


def _limit(
    log: StartedLog,
    rules: TopicRules,
    mark: HighWatermark,
    dirty: int,
    now_ms: int,
    *,
    is_old: bool,
) -> _End:
    """Return the first offset that the cleaner cannot reach, and why (C2)."""
    active = log.segments[-1].base_offset if log.segments else log.end_offset
    ends = [_End(active, Uncleanable.ACTIVE_SEGMENT)]
    if log.opened:
        first_offset, producer_id = log.opened[0]
        if first_offset < mark.most or is_old:
            ends.append(_End(first_offset, Uncleanable.OPEN_TRANSACTION, producer_id))
    if not is_old:
        ends.append(_End(mark.most, Uncleanable.HIGH_WATERMARK))
    if rules.min_lag.value > 0:
        for each in segments_from(log.segments, dirty)[:-1]:
            newest_ms = each.largest_timestamp_ms
            if newest_ms is not None and newest_ms > now_ms - rules.min_lag.value:
                ends.append(_End(each.base_offset, Uncleanable.MIN_LAG))
                break
    # The last segment is out in any case, so another reason only counts below it.
    return min(ends, key=lambda each: each.offset)


def _oldest_dirty_ms(log: StartedLog, dirty: int) -> int | None:
    closed = [each for each in segments_from(log.segments, dirty) if each in log.segments[:-1]]
    first_ms = closed[0].first_timestamp_ms if closed else None
    return None if first_ms is None or first_ms < 0 else first_ms


def _is_overdue(log: StartedLog, rules: TopicRules, dirty: int, now_ms: int) -> bool:
    if not log.segments or dirty > log.segments[-1].base_offset:
        return False
    closed = segments_from(log.segments, dirty)[:-1]
    times = [each.first_timestamp_ms or 0 for each in closed]
    oldest_ms = min((each for each in times if each > 0), default=None)
    return oldest_ms is not None and oldest_ms < now_ms - max(rules.max_lag.value, 0)


def _why_not(
    rules: TopicRules,
    limit: _End,
    cleanable: Sequence[StartedSegment],
    *,
    is_due: bool,
    fails_at: int | None,
) -> NotChosen | None:
    if rules.cleaner_enabled is False:
        return NotChosen.CLEANER_OFF
    if is_due:
        return None if fails_at is None else NotChosen.FAILS
    if cleanable:
        return NotChosen.RATIO
    reasons = {
        Uncleanable.OPEN_TRANSACTION: NotChosen.OPEN_TRANSACTION,
        Uncleanable.MIN_LAG: NotChosen.MIN_LAG,
        Uncleanable.HIGH_WATERMARK: NotChosen.HIGH_WATERMARK,
    }
    return reasons.get(limit.because, NotChosen.CLEAN)


def _fails_at(log: StartedLog, uncleanable: int) -> int | None:
    """Return where a cleaning up to an offset fails. It reads from the log start on."""
    for each in log.segments:
        if each.base_offset >= uncleanable:
            return None
        if each.unreadable_offset is not None:
            return each.unreadable_offset
    return None


def _records_count(cleanable: Sequence[StartedSegment], dirty: int) -> int | None:
    """Return the records from the first dirty offset on. None: it is inside a segment."""
    if cleanable and cleanable[0].base_offset < dirty:
        return None
    counts = [each.records_count for each in cleanable]
    return None if None in counts else sum(each or 0 for each in counts)


def _damaged_count(log: StartedLog, uncleanable: int) -> int | None:
    if not log.is_verified:
        return None
    return sum(each.damaged_count for each in log.segments if each.base_offset < uncleanable)
