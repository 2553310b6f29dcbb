"""Committed offsets as a file: the CSV of `kafka-consumer-groups --reset-offsets`, or JSON Lines.

A CSV line has group,topic,partition,offset, or without a group column topic,partition,offset. There
is no head. The format is the same as with --export in Kafka's tool (Jackson's CsvMapper). It quotes
a name with a character below `-`, a backslash, or more than 24 UTF-16 units, and doubles quotes.
The tool splits a file at line feeds before it looks for quotes, so CSV cannot have a name with a
line feed. JSON Lines has all names, and the other fields of a commit.

Reading is stricter than in the tool, which takes a missing column for 0.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import UsageError
from storage.formats.message import MAX_STRING_BYTES
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUOTE_FROM_CHARS = 25
FIRST_PLAIN_CHAR = "-"
NUMBER = re.compile(r"[ \t]*[+-]?[0-9]{1,30}[ \t]*", re.ASCII)
# In CSV, a name that begins like this has the quotes before the brace.
JSON_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*\"")
REPORTED_LINES = 10
COLUMNS = {3: ("topic", "partition", "offset"), 4: ("group", "topic", "partition", "offset")}
MAX_FIELD_CHARS = 1 << 17


class FileOffset(NamedTuple):
    """An offset in a file.

    Attributes:
        line: the line number where it begins, from 1.
        group: None if the file has no group column.
        leader_epoch: of the record before it, as its consumer knew. -1 if unknown.
    """

    line: int
    group: str | None
    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class _BadLineError(Exception):
    """The problem of a line."""


# --- writing


def is_sayable(name: str) -> bool:
    """Return whether Kafka's tool can read a name in CSV."""
    return "\n" not in name


def csv_line(group: str | None, topic: str, partition: int, offset: int) -> str:
    """Return a line as Kafka's tool writes it. Without a group there is no group column."""
    names = [] if group is None else [_quoted(group)]
    return ",".join([*names, _quoted(topic), str(partition), str(offset)])


def _quoted(name: str) -> str:
    units_count = len(name) + sum(char > "\uffff" for char in name)
    is_plain = units_count < QUOTE_FROM_CHARS and all(
        char >= FIRST_PLAIN_CHAR and char != "\\" for char in name
    )
    return name if is_plain else '"' + name.replace('"', '""') + '"'


# --- reading


def parse_offsets(data: bytes, path: str) -> list[FileOffset]:
    """Read a file of either kind.

    Raises:
        UsageError: it has no offset, or has wrong lines. The error names the first ten.
    """
    is_json = JSON_START.match(data) is not None
    found: list[FileOffset] = []
    problems: list[tuple[int, str]] = []
    for line, row in _json_rows(data) if is_json else _csv_rows(data):
        try:
            if isinstance(row, _BadLineError):
                raise row
            found.append(_offset_of_json(line, row) if is_json else _offset_of_csv(line, row))
        except _BadLineError as exc:
            problems.append((line, str(exc)))
    problems += _doubled(found)
    problems += _mixed(found)
    if problems:
        reported = [f"line {line}: {what}" for line, what in sorted(set(problems))]
        more = (
            f" (and {len(reported) - REPORTED_LINES} more)"
            if len(reported) > REPORTED_LINES
            else ""
        )
        raise UsageError(
            f"{path}: {'; '.join(reported[:REPORTED_LINES])}{more}",
            next_step="lines are group,topic,partition,offset, as eoctl groups export and"
            " kafka-consumer-groups --export write them",
        )
    if not found:
        raise UsageError(f"{path}: has no offset")
    return found


def _csv_rows(data: bytes) -> Iterator[tuple[int, Any]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        yield data.count(b"\n", 0, exc.start) + 1, _BadLineError("is not UTF-8")
        return
    csv.field_size_limit(MAX_FIELD_CHARS)
    # Only a line feed ends a line, as in Kafka's tool.
    reader = csv.reader((f"{each}\n" for each in text.split("\n")), strict=True)
    line = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as exc:
            yield line, _BadLineError(f"is no CSV: {exc}")
            return
        if row is None:
            return
        if row:
            yield line, row
        line = reader.line_num + 1


def _offset_of_csv(line: int, row: Sequence[str]) -> FileOffset:
    names = COLUMNS.get(len(row))
    if names is None:
        raise _BadLineError(f"has {len(row)} columns")
    values = dict(zip(names, row, strict=True))
    return FileOffset(
        line=line,
        group=_name("group", values["group"]) if "group" in values else None,
        topic=_name("topic", values["topic"]),
        partition=_number("partition", values["partition"], INT32_MAX),
        offset=_number("offset", values["offset"], INT64_MAX),
    )


def _json_rows(data: bytes) -> Iterator[tuple[int, Any]]:
    for line, text in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            yield line, json.loads(text.decode())
        except UnicodeDecodeError:
            yield line, _BadLineError("is not UTF-8")
        except (ValueError, RecursionError):
            yield line, _BadLineError("is no JSON object")


def _offset_of_json(line: int, row: Any) -> FileOffset:
    if not isinstance(row, dict):
        raise _BadLineError("is no JSON object")
    group = row.get("group")
    epoch = row.get("leader_epoch")
    metadata = row.get("metadata") or ""
    if not isinstance(metadata, str) or not _fits(metadata):
        raise _BadLineError("metadata is no text that fits into a record")
    return FileOffset(
        line=line,
        group=None if group is None else _name("group", group),
        topic=_name("topic", row.get("topic")),
        partition=_number("partition", row.get("partition"), INT32_MAX),
        offset=_number("offset", row.get("offset"), INT64_MAX),
        metadata=metadata,
        leader_epoch=-1 if epoch in (None, -1) else _number("leader_epoch", epoch, INT32_MAX),
    )


def _name(what: str, found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise _BadLineError(f"no {what}")
    if not _fits(found):
        raise _BadLineError(f"the {what} does not fit into a record")
    return found


def _fits(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair, escaped in JSON
        return False


def _number(what: str, found: Any, most: int) -> int:
    if isinstance(found, str) and NUMBER.fullmatch(found):
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool):
        raise _BadLineError(f"{what} {found!r} is no number" if found else f"no {what}")
    if found < 0:
        raise _BadLineError(f"{what} {found} is negative")
    if found > most:
        raise _BadLineError(f"{what} {found} is above {most}")
    return found


def _doubled(found: Sequence[FileOffset]) -> Iterator[tuple[int, str]]:
    """Yield repeated partitions. Kafka's tool takes the last line, but the intent is unknown."""
    counts = Counter(each[1:4] for each in found)
    first: dict[tuple[object, ...], int] = {}
    for each in found:
        if counts[each[1:4]] == 1:
            continue
        if each[1:4] not in first:
            first[each[1:4]] = each.line
            continue
        of = "" if each.group is None else f" of group {each.group!r}"
        yield (
            each.line,
            f"{each.topic}-{each.partition}{of} is in line {first[each[1:4]]} already",
        )


def _mixed(found: Sequence[FileOffset]) -> Iterator[tuple[int, str]]:
    first = found[0] if found else None
    for each in found:
        if first is not None and (each.group is None) != (first.group is None):
            has = "no group" if each.group is None else "a group"
            yield each.line, f"has {has}, unlike line {first.line}"
