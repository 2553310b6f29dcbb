"""The rules by which retention deletes the oldest segments of a log (R2 to R6).

Each run applies the rules in order, each to what the rule before it left. A rule deletes from the
oldest segment on, up to the first segment that must stay. So the result of all runs is a list of
segments from the oldest on, each with a rule and a run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.forecast.started_log import StartedSegment


class TakenBy(StrEnum):
    """The rule that removes something."""

    RETENTION_MS = "retention.ms"
    RETENTION_BYTES = "retention.bytes"
    LOG_START = "log-start"
    LOCAL_RETENTION_MS = "local.retention.ms"
    LOCAL_RETENTION_BYTES = "local.retention.bytes"
    EXPIRY = "expiry"
    NOT_SERVED = "not-served"


class HeldBy(StrEnum):
    """The reason why a rule does not take a segment."""

    FUTURE_TIME = "future-time"
    OLDER_SEGMENT = "older-segment"
    HIGH_WATERMARK = "high-watermark"
    NOT_COPIED = "not-copied"
    UNCLEANABLE = "uncleanable"
    CLEANER_OFF = "cleaner-off"
    NO_POLICY = "no-policy"


class Removal(NamedTuple):
    """A segment, by its number, that a run deletes."""

    place: int
    by: TakenBy
    due_at_ms: int | None
    run_at_ms: int


class RuleSet(NamedTuple):
    """The numbers that decide about the segments of a log. -1: no limit.

    Attributes:
        deletes: time and size count.
        high_watermark: no segment that ends above it goes.
        copied_end: one above the last offset in remote storage. None: segments need no copy.
    """

    deletes: bool
    retention_ms: int
    retention_bytes: int
    log_start_offset: int
    high_watermark: int
    copied_end: int | None = None
    is_old: bool = False


def removals(
    segments: Sequence[StartedSegment],
    rules: RuleSet,
    *,
    first_run_ms: int,
    interval_ms: int,
    until_ms: int,
) -> list[Removal]:
    """Return the deleted segments in order, with the run that deletes each."""
    found: list[Removal] = []
    run_ms = first_run_ms
    while run_ms <= until_ms:
        before = len(found)
        for rule in _order(rules):
            found += rule(segments, rules, len(found), run_ms)
        if len(found) == len(segments):
            break
        if len(found) > before:
            run_ms += interval_ms
            continue
        due_ms = due_at(segments[len(found)], rules)
        if due_ms is None or due_ms <= run_ms:
            break  # something else than the time holds it
        run_ms = run_at(due_ms, first_run_ms, interval_ms)
    return found


def run_at(due_ms: int, first_run_ms: int, interval_ms: int) -> int:
    """Return the first run at or after a moment."""
    runs_count = -(-max(due_ms - first_run_ms, 0) // max(interval_ms, 1))
    return first_run_ms + runs_count * max(interval_ms, 1)


def _order(rules: RuleSet) -> list[Callable[..., Iterator[Removal]]]:
    if not rules.deletes:
        return [_by_log_start]
    order: list[Callable[..., Iterator[Removal]]] = [_by_log_start, _by_size, _by_time]
    return order[::-1] if rules.is_old else order


def may_go(segments: Sequence[StartedSegment], place: int, rules: RuleSet) -> HeldBy | None:
    """Return why a segment must stay, whatever its age. None: it may go."""
    segment = segments[place]
    if rules.high_watermark < segment.end_offset:
        return HeldBy.HIGH_WATERMARK
    if rules.copied_end is not None and segment.end_offset > rules.copied_end:
        is_below = place + 1 < len(segments) and rules.log_start_offset > segment.end_offset
        return None if is_below else HeldBy.NOT_COPIED
    return None


def is_empty_end(segments: Sequence[StartedSegment], place: int) -> bool:
    """Return whether a segment is the active segment, and empty. It is never deleted."""
    return place == len(segments) - 1 and not segments[place].log_bytes


def _by_log_start(
    segments: Sequence[StartedSegment], rules: RuleSet, place: int, run_ms: int
) -> Iterator[Removal]:
    while (
        place < len(segments) - 1
        and segments[place].end_offset <= rules.log_start_offset
        and may_go(segments, place, rules) is None
    ):
        yield Removal(place=place, by=TakenBy.LOG_START, due_at_ms=None, run_at_ms=run_ms)
        place += 1


def _by_size(
    segments: Sequence[StartedSegment], rules: RuleSet, place: int, run_ms: int
) -> Iterator[Removal]:
    if rules.retention_bytes < 0:
        return
    excess = sum(each.log_bytes for each in segments[place:]) - rules.retention_bytes
    while (
        place < len(segments)
        and excess >= segments[place].log_bytes
        and not is_empty_end(segments, place)
        and may_go(segments, place, rules) is None
    ):
        excess -= segments[place].log_bytes
        yield Removal(place=place, by=TakenBy.RETENTION_BYTES, due_at_ms=None, run_at_ms=run_ms)
        place += 1


def _by_time(
    segments: Sequence[StartedSegment], rules: RuleSet, place: int, run_ms: int
) -> Iterator[Removal]:
    while place < len(segments) and not is_empty_end(segments, place):
        due_ms = due_at(segments[place], rules)
        if due_ms is None or due_ms > run_ms or may_go(segments, place, rules) is not None:
            return
        yield Removal(place=place, by=TakenBy.RETENTION_MS, due_at_ms=due_ms, run_at_ms=run_ms)
        place += 1


def due_at(segment: StartedSegment, rules: RuleSet) -> int | None:
    """Return from when on a segment is too old. None: never, or its time is unknown."""
    if not rules.deletes or rules.retention_ms < 0 or segment.largest_timestamp_ms is None:
        return None
    return segment.largest_timestamp_ms + rules.retention_ms + 1
