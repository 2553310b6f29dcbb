"""Options of eoctl's data sources, and the splits that they choose."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.spark.rows.kafka_options import (
    BOOLEANS,
    BROKER_OPTIONS,
    CHOICE_OPTIONS,
    END_OPTIONS,
    HEADERS_OPTION,
    ISOLATION_OPTION,
    LOSS_OPTION,
    START_OPTIONS,
    STRATEGY_OPTION,
    KafkaOptions,
    boolean,
    parse_kafka_options,
    source_columns,
    value_of,
)
from recovery.export.plan import Until
from recovery.records.read_options import RECORD_COLUMNS
from recovery.transactions.isolation import Isolation
from storage.dirs.state_file import read_as
from storage.errors import UsageError
from storage.places.list_places import list_places
from storage.places.splits import SearchBounds, Split, plan_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from storage.places.listing import Listing, SegmentPlace

DEFAULT_TASK_BYTES = 32 << 20
UNCUT_BYTES = 1 << 62
PLACE_NAMES = frozenset({"broker", "topic", "partition", "directory", "path"})


class ReadBounds(NamedTuple):
    """Offsets and times, start included and end excluded. None means no bound."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None

    def narrowed(self, other: ReadBounds) -> ReadBounds:
        """Return the bounds that satisfy both."""
        return ReadBounds(
            from_offset=_bound(max, self.from_offset, other.from_offset),
            to_offset=_bound(min, self.to_offset, other.to_offset),
            from_time_ms=_bound(max, self.from_time_ms, other.from_time_ms),
            to_time_ms=_bound(min, self.to_time_ms, other.to_time_ms),
        )

    def inclusive(self) -> SearchBounds:
        """Return the same bounds with both ends included."""
        to_offset = None if self.to_offset is None else self.to_offset - 1
        to_time_ms = None if self.to_time_ms is None else self.to_time_ms - 1
        return SearchBounds(
            min_offset=self.from_offset,
            max_offset=to_offset,
            min_timestamp_ms=self.from_time_ms,
            max_timestamp_ms=to_time_ms,
        )


class TableKind(StrEnum):
    """Columns of records."""

    LOG = "log"
    KAFKA = "kafka"


class SourceOptions(NamedTuple):
    """Values of `.option(...)` calls."""

    paths: tuple[str, ...]
    splits: str | None
    split_bytes: int | None
    task_bytes: int
    columns: tuple[str, ...]
    isolation: Isolation
    bounds: ReadBounds
    until: Until = Until.LOG_END
    table: TableKind = TableKind.LOG
    kafka: KafkaOptions = KafkaOptions()


class StreamLimits(NamedTuple):
    """Maximum size of a micro-batch. None means all data."""

    max_bytes: int | None = None
    max_offsets: int | None = None


# Options of each source. All sources have the first set. Spark ignores case.
PLACE_OPTIONS = frozenset({"path", "paths", "splits", "split_bytes", "task_bytes"})
BATCH_OPTIONS = PLACE_OPTIONS | {"push_filters", LOSS_OPTION, *ReadBounds._fields}
RECORD_OPTIONS = (
    BATCH_OPTIONS
    | {"isolation", "until", "columns", "schema"}
    | {*CHOICE_OPTIONS, *START_OPTIONS, *END_OPTIONS}
    | {STRATEGY_OPTION, ISOLATION_OPTION, HEADERS_OPTION}
)
SEGMENT_OPTIONS = RECORD_OPTIONS - {"columns", "schema", HEADERS_OPTION}
AUDIT_STREAM_OPTIONS = PLACE_OPTIONS | {"until", *CHOICE_OPTIONS, *START_OPTIONS, LOSS_OPTION}
STREAM_OPTIONS = frozenset({"maxBytesPerTrigger", "maxOffsetsPerTrigger"})
OWN_BOOLEANS = BOOLEANS | {"yes": True, "no": False}


def parse_options(
    options: Mapping[str, str], known: frozenset[str] = RECORD_OPTIONS, source: str = "this source"
) -> SourceOptions:
    """Parse the options of a data source.

    Args:
        options: from `.option(...)` calls and `.load(...)`.
        known: names of the options that the source takes.
        source: its name.

    Raises:
        UsageError: an option is wrong or unknown, or no path is given.
    """
    _require_known(options, known, source)
    wants_filters(options)
    splits = options.get("splits")
    table = _table(options)
    kafka = parse_kafka_options(options)
    _require_one_bound(options, kafka)
    has_headers = kafka.has_headers
    if has_headers and table is not TableKind.KAFKA:
        raise UsageError(f"option {HEADERS_OPTION}: belongs to schema={TableKind.KAFKA}")
    is_kafka = table is TableKind.KAFKA
    return SourceOptions(
        paths=() if splits else tuple(paths_of(options)),
        splits=splits,
        split_bytes=_number(options, "split_bytes", None, least=1),
        task_bytes=_number(options, "task_bytes", DEFAULT_TASK_BYTES, least=0) or 0,
        columns=(
            source_columns(has_headers=has_headers)
            if is_kafka
            else _columns(options.get("columns"))
        ),
        isolation=_isolation(options),
        bounds=ReadBounds._make(_number(options, name, None) for name in ReadBounds._fields),
        until=_until(options.get("until")),
        table=table,
        kafka=kafka,
    )


def parse_stream(options: Mapping[str, str], source: str) -> StreamLimits:
    """Parse the options of a stream, and refuse options that a stream does not have.

    Raises:
        UsageError: an option is wrong, or is not for streams.
    """
    for name in (*END_OPTIONS, "push_filters", "splits", "from_offset", "to_offset"):
        if value_of(options, name) is not None:
            raise UsageError(
                f"option {name}: {source} does not take it as a stream",
                next_step=f"spark.read.format({source!r}), or startingOffsets",
            )
    max_bytes = _number(options, "maxBytesPerTrigger", None, least=1)
    max_offsets = _number(options, "maxOffsetsPerTrigger", None, least=1)
    if max_bytes is not None and max_offsets is not None:
        raise UsageError("options maxBytesPerTrigger and maxOffsetsPerTrigger: only one of them")
    return StreamLimits(max_bytes, max_offsets)


def refuse_stream_options(options: Mapping[str, str], source: str) -> None:
    """Check that a query without a stream has no stream options. Raises UsageError."""
    for name in STREAM_OPTIONS:
        if value_of(options, name) is not None:
            raise UsageError(
                f"option {name}: belongs to a stream",
                next_step=f"spark.readStream.format({source!r})",
            )


def _require_known(options: Mapping[str, str], known: frozenset[str], source: str) -> None:
    """Refuse unknown options, which may have been meant to leave data out."""
    names = {name.lower(): name for name in sorted(known, key=str.lower)}
    others = {name.lower() for name in STREAM_OPTIONS | RECORD_OPTIONS}
    for name in options:
        if name.lower() in names:
            continue
        if name.lower() in others:
            raise UsageError(
                f"option {name}: {source} does not take it", next_step=", ".join(names.values())
            )
        if name.lower() in BROKER_OPTIONS:
            raise UsageError(
                f"option {name}: there is no broker to be asked", next_step='.load("DIR") alone'
            )
        from difflib import get_close_matches

        nearest = [names[each] for each in get_close_matches(name.lower(), list(names), 1)]
        hint = f", meant is perhaps {nearest[0]}" if nearest else ""
        raise UsageError(
            f"option {name}: there is no such option of {source}{hint}",
            next_step=f'.option("{nearest[0]}", ...)' if nearest else ", ".join(names.values()),
        )


def _require_one_bound(options: Mapping[str, str], kafka: KafkaOptions) -> None:
    for point, own in ((kafka.starting, "from"), (kafka.ending, "to")):
        for name in (f"{own}_offset", f"{own}_time_ms"):
            if point is not None and options.get(name) is not None:
                raise UsageError(f"options {point.option} and {name}: only one can be given")


def _table(options: Mapping[str, str]) -> TableKind:
    text = options.get("schema") or TableKind.LOG
    if text not in set(TableKind):
        raise UsageError(f"option schema: {text!r}", next_step=" or ".join(TableKind))
    if text == TableKind.KAFKA and options.get("columns") is not None:
        raise UsageError(
            "option columns: schema=kafka has columns of its own", next_step="leave one of them out"
        )
    return TableKind(text)


def _until(text: str | None) -> Until:
    if (text or Until.LOG_END) not in set(Until):
        raise UsageError(f"option until: {text!r}", next_step=" or ".join(Until))
    return Until(text or Until.LOG_END)


def wants_filters(options: Mapping[str, str]) -> bool:
    """Return whether to push down the query's filters.

    Raises:
        UsageError: the option is neither true nor false.
    """
    return boolean(options, "push_filters", default=False, words=OWN_BOOLEANS)


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the PATHs of the options.

    Raises:
        UsageError: there is no path, or `paths` is no JSON list of strings.
    """
    paths = [options["path"]] if options.get("path") else []
    if options.get("paths"):
        try:
            more = json.loads(options["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(each, str) for each in more):
            raise UsageError("option paths: not a JSON list of strings")
        paths += more
    if not paths:
        raise UsageError("no directory given", next_step='.load("DIR") or .option("paths", JSON)')
    return paths


def _number(
    options: Mapping[str, str], name: str, default: int | None, *, least: int | None = None
) -> int | None:
    text = value_of(options, name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or (least is not None and value < least):
        what = "no number" if least is None else f"no number from {least} on"
        raise UsageError(f"option {name}: {text!r} is {what}")
    return value


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return RECORD_COLUMNS
    wanted = [each.strip() for each in text.split(",") if each.strip()]
    unknown = [each for each in wanted if each not in RECORD_COLUMNS]
    if unknown or not wanted:
        raise UsageError(
            f"option columns: {', '.join(unknown) or 'none'} is no column of a record",
            next_step=", ".join(RECORD_COLUMNS),
        )
    return tuple(each for each in RECORD_COLUMNS if each in wanted)


def _isolation(options: Mapping[str, str]) -> Isolation:
    names = ("isolation", ISOLATION_OPTION)
    given = {name: text for name in names if (text := value_of(options, name))}
    if len(set(given.values())) > 1:
        raise UsageError(f"options {' and '.join(given)} say two things")
    for name, text in given.items():
        if text not in set(Isolation):
            raise UsageError(f"option {name}: {text!r}", next_step=" or ".join(Isolation))
        return Isolation(text)
    return Isolation.READ_UNCOMMITTED


def by_place(filters: Iterable[Any]) -> list[Any]:
    """Return the filters on places of segments."""
    return [each for each in filters if ".".join(getattr(each, "attribute", ())) in PLACE_NAMES]


class Wanted:
    """Segments that a query's filters choose. It ignores conditions of other kinds."""

    def __init__(self) -> None:
        self._tests: list[Callable[[SegmentPlace], bool]] = []
        self.bounds = ReadBounds()

    def take(self, filters: Iterable[Any]) -> None:
        """Take the filters of a query (pyspark.sql.datasource.Filter)."""
        for each in filters:
            column = ".".join(getattr(each, "attribute", ()))
            value, kind = getattr(each, "value", None), type(each).__name__
            if column in PLACE_NAMES:
                self._take_place(column, kind, value)
            elif isinstance(value, int) and column in ("offset", "base_offset", "last_offset"):
                # A bound of a batch's offsets is a bound of its records too.
                low, high = _range(kind, value)
                self.bounds = self.bounds.narrowed(ReadBounds(low, high))
            elif isinstance(value, int) and column == "timestamp_ms":
                low, high = _range(kind, value)
                self.bounds = self.bounds.narrowed(ReadBounds(from_time_ms=low, to_time_ms=high))

    def holds(self, place: SegmentPlace) -> bool:
        """Return whether the segment may match, by its place."""
        return all(test(place) for test in self._tests)

    def _take_place(self, column: str, kind: str, value: Any) -> None:
        if kind in ("EqualTo", "EqualNullSafe"):
            self._tests.append(lambda place: getattr(place, column) == value)
        elif kind == "In":
            values = frozenset(value)
            self._tests.append(lambda place: getattr(place, column) in values)
        elif kind == "StringStartsWith":
            self._tests.append(lambda place: getattr(place, column).startswith(value))


def _bound(choose: Callable[[list[int]], int], *bounds: int | None) -> int | None:
    known = [each for each in bounds if each is not None]
    return choose(known) if known else None


def _range(kind: str, value: int) -> tuple[int | None, int | None]:
    """Return the bounds of a comparison with a number."""
    low = high = None
    if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe"):
        low = value + (kind == "GreaterThan")
    if kind in ("LessThan", "LessThanOrEqual", "EqualTo", "EqualNullSafe"):
        high = value + (kind != "LessThan")
    return low, high


def read_splits(options: SourceOptions, wanted: Wanted) -> tuple[list[Split], Listing | None]:
    """Return the segments to read, each as one split, and their listing.

    Given splits are returned as they are, without a listing.
    """
    if options.splits is not None:
        return splits_of(options.splits), None
    listing = list_places(options.paths)
    require_chosen(options, listing)
    chosen = options.kafka.choice
    places = [each for each in listing.places if chosen.holds(each) and wanted.holds(each)]
    return plan_places(places, UNCUT_BYTES), listing


def require_chosen(options: SourceOptions, listing: Listing) -> None:
    """Check that the topics and partitions of the options exist. Raises UsageError."""
    options.kafka.choice.require_found(
        frozenset((each.topic, each.partition) for each in listing.directories)
    )


def splits_text(splits: Iterable[Split]) -> str:
    """Return the value of the option `splits`, which replaces the listing."""
    from msgpack import packb

    data = packb([*splits], use_bin_type=True, unicode_errors="surrogateescape")
    return b64encode(zlib.compress(data, 1)).decode("ascii")


def splits_of(text: str) -> list[Split]:
    """Parse the result of `splits_text`."""
    from msgpack import unpackb

    rows = unpackb(zlib.decompress(b64decode(text)), unicode_errors="surrogateescape")
    return [read_as(Split, each) for each in rows]
