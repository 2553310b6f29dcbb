"""Durations as options take them: a number and a unit."""

from __future__ import annotations

import re

from storage.errors import UsageError

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_DURATION_MS = 2**63 - 1

_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")


def parse_duration_ms(text: str) -> int:
    """Milliseconds from `500ms`, `30s`, `5m`, `1h` or `2d`.

    Raises:
        UsageError: it is nothing of that kind, or does not fit into 64 bits.
    """
    match = _DURATION.fullmatch(text.strip())
    duration_ms = int(match[1]) * UNITS_MS[match[2]] if match else None
    if duration_ms is None or duration_ms > MAX_DURATION_MS:
        raise UsageError(
            f"not a duration: {text!r}", next_step="a number and a unit: 500ms, 30s, 5m, 1h, 2d"
        )
    return duration_ms
