"""Sizes, durations and times as people read them; programs get the numbers."""

from __future__ import annotations

from datetime import UTC, datetime

SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DURATION_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
NO_TIME_MS = -1  # Kafka's: a batch or a transaction that has none


def size_text(size_bytes: float) -> str:
    """A number of bytes in binary units, three digits: `812 B`, `1.25 KiB`, `48.1 GiB`."""
    value, units = float(size_bytes), iter(SIZE_UNITS)
    if abs(value) < 1024:
        return f"{value:.0f} B"
    value, unit = value / 1024, next(units)
    while abs(value) >= 1023.5 and unit != SIZE_UNITS[-1]:
        value, unit = value / 1024, next(units)
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def duration_text(duration_ms: int) -> str:
    """A number of milliseconds in its two greatest units: `3 d 4 h`, `12 s 50 ms`, `0 ms`."""
    sign, rest_ms = ("-" if duration_ms < 0 else ""), abs(duration_ms)
    parts: list[str] = []
    for name, unit_ms in DURATION_UNITS:
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count} {name}")
        if len(parts) == 2 or (parts and not count):  # 3 d 20 min is 3 d
            break
    return sign + " ".join(parts) if parts else "0 ms"


def time_text(time_ms: int, *, is_utc: bool = False) -> str:
    """ISO 8601 with milliseconds and the zone, of this machine or UTC; it can be pasted.

    Kafka's -1 is no time; what no calendar holds comes as the number.
    """
    if time_ms == NO_TIME_MS:
        return "none"
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
        moment = moment if is_utc else moment.astimezone()
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    text = moment.replace(microsecond=time_ms % 1000 * 1000).isoformat(timespec="milliseconds")
    return f"{text.removesuffix('+00:00')}Z" if is_utc else text
