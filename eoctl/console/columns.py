"""The meaning of columns by their names, and the text of their values for people."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import printable_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DURATION_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
NO_TIME_MS = -1  # Kafka's value for a batch or a transaction without a time


def size_text(size_bytes: float) -> str:
    """Return a number of bytes in binary units, three digits: `812 B`, `1.25 KiB`, `48.1 GiB`."""
    value, units = float(size_bytes), iter(SIZE_UNITS)
    if abs(value) < 1024:
        return f"{value:.0f} B"
    value, unit = value / 1024, next(units)
    while abs(value) >= 1023.5 and unit != SIZE_UNITS[-1]:
        value, unit = value / 1024, next(units)
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def duration_text(duration_ms: int) -> str:
    """Return milliseconds in their two greatest units: `3 d 4 h`, `12 s 50 ms`, `0 ms`."""
    sign, rest_ms = ("-" if duration_ms < 0 else ""), abs(duration_ms)
    parts: list[str] = []
    for name, unit_ms in DURATION_UNITS:
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count} {name}")
        if len(parts) == 2 or (parts and not count):  # 3 d 20 min is 3 d
            break
    return sign + " ".join(parts) if parts else "0 ms"


# Only for people, on a terminal and in a pipe. Programs get the seconds of a finding in jsonl.
SENTENCE = "message"  # the column with sentences
_SECONDS = re.compile(r"\b(\d+) s\b(?= old| after now)")
TIE = "\x1f"  # a blank at which no line is broken


def with_durations(text: str, blank: str = " ") -> str:
    """Replace `579355 s` by `6 d 16 h` in a sentence about an age. `blank` separates its parts."""
    return _SECONDS.sub(lambda found: duration_text(int(found[1]) * 1000).replace(" ", blank), text)


def time_text(time_ms: int, *, is_utc: bool = False) -> str:
    """Return a time in ISO 8601, with milliseconds and the zone of this machine or UTC.

    Commands accept this text. Kafka's -1 is "none". A time outside the calendar's range is printed
    as the number.
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


# -- the content of columns by their names: the only table of it, for all reports
#
# Names say units (`_ms`, `_bytes`) and kinds (`_count`, `_offset`, `_path`). All other names are in
# the table. Machine formats do not use it.


UNKNOWN = "unknown"  # in text, for a value that is not available, which is null in jsonl


class Kind(StrEnum):
    """The kind of a value, which decides its text and its alignment."""

    COUNT = "count"  # 1,234,567
    NUMBER = "number"  # an offset, an id, a position: plain digits, to be pasted into commands
    BYTES = "bytes"  # 1.25 GiB
    TIME = "time"  # milliseconds since 1970: ISO 8601 with the zone
    DURATION = "duration"  # milliseconds: 3 d 4 h
    FLAG = "flag"  # yes, no
    SEVERITY = "severity"
    STATE = "state"  # one of a few words, some of them good or bad
    PATH = "path"  # never wrapped, because it is pasted
    COMMAND = "command"  # never wrapped, quoted for a shell
    KEY = "key"  # of a record: bytes, may be wrapped anywhere
    TEXT = "text"  # may be wrapped between words


# The first pattern that matches the whole name counts.
_KINDS: tuple[tuple[str, Kind], ...] = (
    (r"severity", Kind.SEVERITY),
    (r"(first_|last_)?key", Kind.KEY),
    (r"state|status|verdict|outcome|likeness|action|stopped|compared", Kind.STATE),
    (r"\w+_(status|outcome)", Kind.STATE),
    (r"(is|has|was|holds)_\w+|\w+_(ok|holds)|applied|written|removed|snapshot", Kind.FLAG),
    (r"(\w+_)?(timestamp|at|start|update|now)_ms|now", Kind.TIME),
    (r"\w+_ms", Kind.DURATION),
    (r"(\w+_)?bytes", Kind.BYTES),
    (r"\w+_command|fix|command|undo", Kind.COMMAND),
    (r"(\w+_)?(path|file|directory|dir|dirs)", Kind.PATH),
    (r"leader|follower|one|other|source|session|backup|checkpoint|plan_id", Kind.PATH),
    (r"(\w+_)?(offset|pos|position|id|epoch|sequence|partition|line)", Kind.NUMBER),
    (r"broker|other_broker|generation|hour|magic|\w*version|replication_factor", Kind.NUMBER),
    (r"\w+_(count|counts|left|max|mean|in|out)", Kind.COUNT),
    (r"(\w+_)?(batches|records|transactions|markers|offsets|sequences|regressions)", Kind.COUNT),
    (r"(\w+_)?(ranges|gaps|duplicates|steps|files|segments|errors|warnings|notes)", Kind.COUNT),
    (r"\w+_per_s|(avg|min|max|p[\d_]+)_us", Kind.COUNT),
    (r"committed|aborted|open|skipped|unreadable|hand_overs|partitions", Kind.COUNT),
    (r"segments_rolled|partitions_read", Kind.COUNT),
)  # fmt: skip
# Operators' abbreviations, for names as wide as two other columns.
_HEADINGS = {
    "held_offsets_count": "blocked offsets",
    "high_watermark": "HW",
    "holds_last_stable_offset": "blocks LSO",
    "lag_offsets": "lag",
    "last_stable_offset": "LSO",
    "log_bytes": "log size",
    "price": "effect",
    "size_bytes": "size",
}
RIGHT = frozenset({Kind.COUNT, Kind.NUMBER, Kind.BYTES, Kind.DURATION})


class Facts(NamedTuple):
    """The properties of a column.

    Attributes:
        kind: of its values.
        heading: its name without the unit, which each value has.
    """

    kind: Kind
    heading: str

    @property
    def is_right(self) -> bool:
        """True if its values are right-aligned."""
        return self.kind in RIGHT


@cache
def facts_of(name: str) -> Facts:
    """Return the properties of a column by its name. The default kind is text."""
    found = (kind for pattern, kind in _KINDS if re.fullmatch(pattern, name))
    kind = next(found, Kind.TEXT)
    plain = re.sub(r"_(ms|counts?)$", "", name).replace("_", " ")
    return Facts(kind, _HEADINGS.get(name) or re.sub(r" transactions$", " txns", plain))


def find_column(wanted: str, columns: Sequence[str]) -> str | None:
    """Return the column that a person means, by its name or its heading."""
    plain = wanted.strip().lower().replace("-", "_").replace(" ", "_")
    for name in columns:
        if plain in (name, facts_of(name).heading.lower().replace(" ", "_")):
            return name
    return None


def plain_text(name: str, value: Any) -> str:
    """Render one value of a column for `cut` and awk.

    Separators and control characters are escaped.
    """
    if isinstance(value, str):
        if name == SENTENCE:
            value = with_durations(value)
        elif facts_of(name).kind is Kind.COMMAND:
            value = printable_call(value)
    return printable(cell_text(value))


def plain_line(names: tuple[str, ...], values: Sequence[Any]) -> str:
    """Render a row of columns, separated by tabs."""
    cells = [str(value) if type(value) is int else cell_text(value) for value in values]
    text = "\t".join(cells)
    is_plain = text.count("\t") < len(cells) and text.replace("\t", "").isprintable()
    if is_plain and not _has_other_texts(names):
        return text
    return "\t".join(map(plain_text, names, values))


@cache
def _has_other_texts(names: tuple[str, ...]) -> bool:
    """Return whether `plain_text` changes the values of some of the columns."""
    return any(each == SENTENCE or facts_of(each).kind is Kind.COMMAND for each in names)


def cell_text(value: Any) -> str:
    """Render one value for `cut` and awk."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def readable(kind: Kind, value: Any, *, is_utc: bool = False) -> str:
    """Render one value for people: with separators, units and zones. Text is unchanged."""
    if kind is Kind.COMMAND and isinstance(value, str):
        return printable_call(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cell_text(value)
    if kind is Kind.COUNT:
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    if kind is Kind.BYTES:
        return size_text(value)
    if kind is Kind.DURATION:
        return duration_text(int(value))
    if kind is Kind.TIME and isinstance(value, int):
        return time_text(value, is_utc=is_utc)
    return str(value)


def printable(cell: str) -> str:
    """Escape the characters that a terminal or a reader of columns would interpret."""
    if cell.isprintable():
        return cell
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cell)


# Control characters except tab and line feed, and characters that change or end a line's direction.
# Also bytes that are not UTF-8, which a terminal may take for control characters.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\udc80-\udcff]"
)


class TerminalText:
    """A stream of data to a terminal that escapes everything that the terminal would interpret.

    Args:
        is_json: escapes have the form of a JSON string.
    """

    def __init__(self, *, is_json: bool) -> None:
        self._escape = _json_escape if is_json else _escape
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def shown(self, data: bytes | bytearray | memoryview, *, is_end: bool = False) -> bytes:
        """Return the next part. Incomplete characters wait for their end, unless `is_end`."""
        text = _OBEYED.sub(self._escape, self._decoder.decode(bytes(data), is_end))
        return text.encode("utf-8", "surrogateescape")


def _escape(found: re.Match[str]) -> str:
    each = found[0]
    return f"\\x{ord(each) & 0xFF:02x}" if each >= "\udc80" else ascii(each)[1:-1]


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


# -- keys and values as text, for people


def row_as_text(row: Iterable[Any], most: int | None = None) -> tuple[Any, ...]:
    """Return a row with its bytes as text. `most` is as in `bytes_text`."""
    return tuple(bytes_text(value, most) if isinstance(value, bytes) else value for value in row)


def bytes_text(content: bytes, most: int | None = None) -> str:
    """Return bytes as UTF-8 text if they are valid, else as hexadecimal digits.

    With `most`, the text has at most this length, and no characters that a terminal would escape.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{content.hex()}"
    if most is None:
        return text
    if not text.isprintable():
        text = f"0x{content.hex()}"
    return text if len(text) <= most else f"{text[: most - 3]}..."
