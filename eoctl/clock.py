"""The one clock of every command that needs "now" (age, expiry, leases, timeouts).

It is the wall clock in every command, because the next broker on the directory and its clients use
that clock too. `--now` selects another clock, such as that directory's clock: the newest mtime of
its checkpoints, the time at which the broker last ran.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import UsageError
from storage.limits import INT64_MAX, is_int64

if TYPE_CHECKING:
    from collections.abc import Iterable

CHECKPOINT_NAMES = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_DURATION_MS = INT64_MAX
_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")


class NowSource(StrEnum):
    """The source of "now", printed with every result that depends on it."""

    GIVEN = "given"
    WALL = "wall"
    DIR = "dir"


class Now(NamedTuple):
    """A point in time in milliseconds since 1970, with its source."""

    ms: int
    source: NowSource

    def describe(self) -> str:
        """Return a sentence for a report's notes."""
        origin = {
            NowSource.GIVEN: "as given",
            NowSource.WALL: "the wall clock",
            NowSource.DIR: "the newest checkpoint of the directory",
        }[self.source]
        return f"now is {format_time_ms(self.ms)} ({origin})"


def parse_time_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a number of milliseconds or an ISO 8601 time.

    ` UTC` may replace the offset, as in printed times. A time without an offset is UTC too, so its
    meaning never depends on the machine's time zone.

    Raises:
        UsageError: the text is neither.
    """
    stripped = text.strip()
    try:
        if stripped.lstrip("-").isdecimal():
            return _within_bounds(int(stripped), text)  # it refuses "--1" and thousands of digits
        moment = datetime.fromisoformat(stripped.replace(" UTC", "Z"))
    except ValueError:
        raise UsageError(
            f"not a time: {text!r}",
            next_step="milliseconds since 1970, or ISO 8601 such as 2026-11-21T04:38:00Z",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _within_bounds(time_ms: int, text: str) -> int:
    if not is_int64(time_ms):
        raise UsageError(
            f"not a time that fits into 64 bits: {text!r}",
            next_step="milliseconds since 1970, or ISO 8601 such as 2026-11-21T04:38:00Z",
        )
    return time_ms


def format_time_ms(time_ms: int) -> str:
    """Return a time in UTC for a sentence: `2026-11-21 04:38:00.250 UTC`.

    `parse_time_ms` reads it back. Milliseconds are left out if they are 0. A time outside the
    calendar is described as such.
    """
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"outside of the calendar ({time_ms:,} ms)"
    fraction = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} UTC"


def resolve_now(option: str | None, log_dirs: Iterable[str | Path]) -> Now:
    """Return "now" for these log dirs.

    Args:
        option: the value of `--now`: a time, `wall`, `dir`, or None for the wall clock.
        log_dirs: directories that contain the checkpoints.

    Raises:
        UsageError: the value is none of these, or there is no checkpoint for `dir`.
    """
    if option in (None, NowSource.WALL):
        return Now(wall_ms(), NowSource.WALL)
    if option != NowSource.DIR:
        return Now(parse_time_ms(str(option)), NowSource.GIVEN)
    newest = newest_checkpoint_ms(log_dirs)
    if newest is None:
        raise UsageError(
            "--now dir needs a log dir with checkpoints", next_step="--now TIME or --now wall"
        )
    return Now(newest, NowSource.DIR)


def wall_ms() -> int:
    """Read the wall clock, for callers that need the time repeatedly after `resolve_now`."""
    return time.time_ns() // 1_000_000


def newest_checkpoint_ms(log_dirs: Iterable[str | Path]) -> int | None:
    """Return the newest time of a broker's checkpoint in these log dirs, or None."""
    times_ms = []
    for each in log_dirs:
        for name in CHECKPOINT_NAMES:
            try:
                times_ms.append((Path(each) / name).stat().st_mtime_ns // 1_000_000)
            except OSError:
                continue
    return max(times_ms, default=None)


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of `500ms`, `30s`, `5m`, `1h` or `2d`.

    Raises:
        UsageError: the text is no such duration, or does not fit into 64 bits.
    """
    match = _DURATION.fullmatch(text.strip())
    duration_ms = int(match[1]) * UNITS_MS[match[2]] if match else None
    if duration_ms is None or duration_ms > MAX_DURATION_MS:
        raise UsageError(
            f"not a duration: {text!r}", next_step="a number and a unit: 500ms, 30s, 5m, 1h, 2d"
        )
    return duration_ms
