"""Ranges as every command takes them: `A..B`, both included; `A..`, `..B` or `A` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.clock import parse_time_ms
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class Range(NamedTuple):
    """First and last value, both included; None is open."""

    first: int | None = None
    last: int | None = None

    def holds(self, value: int) -> bool:
        """Whether the value lies inside."""
        return (self.first is None or value >= self.first) and (
            self.last is None or value <= self.last
        )

    def meets(self, first: int, last: int) -> bool:
        """Whether any value of first..last lies inside."""
        return (self.first is None or last >= self.first) and (
            self.last is None or first <= self.last
        )


def parse_range(text: str, parse: Callable[[str], int], option: str) -> Range:
    """Parse `A..B`, `A..`, `..B` or `A` (that one only).

    Raises:
        UsageError: it is none of these, or A is above B.
    """
    first_text, dots, last_text = text.partition("..")
    try:
        first = parse(first_text) if first_text else None
        last = parse(last_text) if last_text else None
    except ValueError:
        raise UsageError(f"{option}: not a range: {text!r}", next_step=f"{option} A..B") from None
    if not dots:
        last = first
    if first is None and last is None:
        raise UsageError(f"{option}: not a range: {text!r}", next_step=f"{option} A..B")
    if first is not None and last is not None and first > last:
        raise UsageError(f"{option}: {first} is above {last}")
    return Range(first, last)


def parse_offsets(text: str | None) -> Range:
    """Parse `--offsets`; None is all. Raises UsageError."""
    if text is None:
        return Range()
    found = parse_range(text, int, "--offsets")
    if min(each for each in found if each is not None) < 0:
        raise UsageError(f"--offsets {text}: no offset is below 0")
    return found


def parse_times(text: str | None) -> Range:
    """Parse `--times`, milliseconds since 1970 or ISO 8601; None is all. Raises UsageError."""
    return Range() if text is None else parse_range(text, parse_time_ms, "--times")
