"""Where consuming begins and ends, as it is said on the command line.

--from   earliest | latest | OFFSET | TIME     a plain integer is an offset; TIME is ISO 8601, or
                                               `time:` and what `--now` takes, milliseconds too
--until  log-end | hw | lso | OFFSET           the end is excluded
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from eoctl.clock import parse_time_ms
from storage.errors import UsageError
from storage.limits import MAX_OFFSET

TIME_PREFIX = "time:"


class StartKind(StrEnum):
    """What `--from` names."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


class EndKind(StrEnum):
    """What `--until` names."""

    LOG_END = "log-end"
    HW = "hw"
    LSO = "lso"
    OFFSET = "offset"


class Start(NamedTuple):
    """The first record: `number` is an offset, or milliseconds since 1970."""

    kind: StartKind = StartKind.EARLIEST
    number: int = 0


class End(NamedTuple):
    """The first record that is not consumed any more; `number` is an offset."""

    kind: EndKind = EndKind.LOG_END
    number: int = MAX_OFFSET


def parse_start(text: str) -> Start:
    """Read `--from`. Raises UsageError."""
    if text in (StartKind.EARLIEST, StartKind.LATEST):
        return Start(StartKind(text))
    if text.isdecimal() and text.isascii():
        return Start(StartKind.OFFSET, _offset("--from", text))
    if text.startswith(TIME_PREFIX):
        return Start(StartKind.TIME, parse_time_ms(text.removeprefix(TIME_PREFIX)))
    if text.removeprefix("-").isdecimal():
        raise UsageError(f"--from {text}: no offset is below 0", next_step="--from earliest")
    try:
        return Start(StartKind.TIME, parse_time_ms(text))
    except UsageError as exc:
        raise UsageError(
            f"--from {text}: neither an offset nor a time",
            next_step="earliest, latest, an offset, 2026-11-21T04:38:00Z, or time:1795229886343",
        ) from exc


def parse_end(text: str) -> End:
    """Read `--until`. Raises UsageError."""
    if text in (EndKind.LOG_END, EndKind.HW, EndKind.LSO):
        return End(EndKind(text))
    if text.isdecimal() and text.isascii():
        return End(EndKind.OFFSET, _offset("--until", text))
    raise UsageError(f"--until {text}: no such end", next_step="log-end, hw, lso, or an offset")


def _offset(option: str, text: str) -> int:
    # Longer ones are not converted: Python refuses thousands of digits.
    if len(text.lstrip("0")) > len(str(MAX_OFFSET)) or int(text) > MAX_OFFSET:
        raise UsageError(f"{option}: an offset has 63 bits")
    return int(text)
