"""Kafka's retention, run by run, as its source does it: a model of R2 to R6 for tests.

It shares nothing with `recovery.forecast`. A log is a list of segments with base offset, size and
largest timestamp, and a log end. Each run applies the three rules to the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class ModelSegment:
    """A segment of the model."""

    base: int
    size: int
    largest_ms: int


@dataclass
class ModelLog:
    """A log of the model, with its settings."""

    segments: list[ModelSegment]
    end: int
    high_watermark: int
    log_start: int
    retention_ms: int
    retention_bytes: int
    deletes: bool = True
    is_old: bool = False
    deleted: list[tuple[int, str, int]] = field(default_factory=list)  # base, rule, run

    def run(self, now_ms: int) -> None:
        """Do what one run of kafka-log-retention does."""
        rules: list[Callable[[int], None]] = [self._log_start, self._size, self._time]
        if not self.deletes:
            rules = rules[:1]
        for rule in reversed(rules) if self.is_old else rules:
            rule(now_ms)

    def _log_start(self, now_ms: int) -> None:
        self._delete(
            "log-start", now_ms, lambda _, after: after is not None and after.base <= self.log_start
        )

    def _size(self, now_ms: int) -> None:
        total = sum(each.size for each in self.segments)
        if self.retention_bytes < 0 or total < self.retention_bytes:
            return
        left = [total - self.retention_bytes]

        def is_over(segment: ModelSegment, _: ModelSegment | None) -> bool:
            if left[0] - segment.size < 0:
                return False
            left[0] -= segment.size
            return True

        self._delete("retention.bytes", now_ms, is_over)

    def _time(self, now_ms: int) -> None:
        if self.retention_ms >= 0:
            self._delete(
                "retention.ms", now_ms, lambda each, _: now_ms - each.largest_ms > self.retention_ms
            )

    def _delete(
        self,
        rule: str,
        now_ms: int,
        is_due: Callable[[ModelSegment, ModelSegment | None], bool],
    ) -> None:
        going: list[ModelSegment] = []
        for place, segment in enumerate(self.segments):
            after = self.segments[place + 1] if place + 1 < len(self.segments) else None
            upper = self.end if after is None else after.base
            is_empty_end = after is None and segment.size == 0
            if not (self.high_watermark >= upper and is_due(segment, after)) or is_empty_end:
                break
            going.append(segment)
        if not going:
            return
        self.deleted += ((each.base, rule, now_ms) for each in going)
        self.segments = self.segments[len(going) :]
        if not self.segments:
            self.segments = [ModelSegment(self.end, 0, now_ms)]
        self.log_start = max(self.log_start, self.segments[0].base)
