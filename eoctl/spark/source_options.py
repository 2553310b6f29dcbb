"""Options of our data sources, and which splits they ask for."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.records.read_options import RECORD_COLUMNS
from recovery.transactions.isolation import Isolation
from storage.dirs.state_file import read_as
from storage.errors import UsageError
from storage.places.find import list_places
from storage.places.split_pruning import SearchBounds
from storage.places.splits import Split, split_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from storage.places.listing import Listing, SegmentPlace

DEFAULT_SPLIT_BYTES = 128 << 20
DEFAULT_TASK_BYTES = 32 << 20


class ReadBounds(NamedTuple):
    """Offsets and times: from included, to excluded; None: no bound."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None

    def narrowed(self, other: ReadBounds) -> ReadBounds:
        """Return what both allow."""
        return ReadBounds(
            from_offset=_bound(max, self.from_offset, other.from_offset),
            to_offset=_bound(min, self.to_offset, other.to_offset),
            from_time_ms=_bound(max, self.from_time_ms, other.from_time_ms),
            to_time_ms=_bound(min, self.to_time_ms, other.to_time_ms),
        )

    def inclusive(self) -> SearchBounds:
        """Return the same with both ends included."""
        to_offset = None if self.to_offset is None else self.to_offset - 1
        to_time_ms = None if self.to_time_ms is None else self.to_time_ms - 1
        return SearchBounds(
            min_offset=self.from_offset,
            max_offset=to_offset,
            min_timestamp_ms=self.from_time_ms,
            max_timestamp_ms=to_time_ms,
        )


class SourceOptions(NamedTuple):
    """What `.option(...)` calls say."""

    paths: tuple[str, ...]
    splits: str | None
    split_bytes: int
    task_bytes: int
    columns: tuple[str, ...]
    isolation: Isolation
    bounds: ReadBounds


# What each source takes: the first ones are all sources'. Spark does not care for case.
PLACE_OPTIONS = frozenset({"path", "paths", "splits", "split_bytes", "task_bytes"})
BATCH_OPTIONS = PLACE_OPTIONS | {"push_filters", *ReadBounds._fields}
RECORD_OPTIONS = BATCH_OPTIONS | {"isolation", "until", "columns"}
BOOLEANS = {"true": True, "false": False, "yes": True, "no": False}


def parse_options(
    options: Mapping[str, str], known: frozenset[str] = RECORD_OPTIONS, source: str = "this source"
) -> SourceOptions:
    """Read the options of a data source.

    Args:
        options: as `.option(...)` calls and `.load(...)` give them.
        known: names of those that it takes.
        source: its name.

    Raises:
        UsageError: one is wrong or unknown, or no path is given.
    """
    _require_known(options, known, source)
    wants_filters(options)
    splits = options.get("splits")
    return SourceOptions(
        paths=() if splits else tuple(paths_of(options)),
        splits=splits,
        split_bytes=_number(options, "split_bytes", DEFAULT_SPLIT_BYTES, least=1) or 1,
        task_bytes=_number(options, "task_bytes", DEFAULT_TASK_BYTES, least=0) or 0,
        columns=_columns(options.get("columns")),
        isolation=_isolation(options.get("isolation")),
        bounds=ReadBounds._make(_number(options, name, None) for name in ReadBounds._fields),
    )


def _require_known(options: Mapping[str, str], known: frozenset[str], source: str) -> None:
    """See that no option would be ignored: it may have been meant to leave something out."""
    for name in options:
        if name.lower() in known:
            continue
        if name.lower() in RECORD_OPTIONS:
            raise UsageError(
                f"option {name}: {source} does not take it", next_step=", ".join(sorted(known))
            )
        from difflib import get_close_matches

        nearest = get_close_matches(name.lower(), sorted(known), 1)
        hint = f", meant is perhaps {nearest[0]}" if nearest else ""
        raise UsageError(
            f"option {name}: there is no such option of {source}{hint}",
            next_step=f'.option("{nearest[0]}", ...)' if nearest else ", ".join(sorted(known)),
        )


def wants_filters(options: Mapping[str, str]) -> bool:
    """Whether filters of the query are to be pushed down.

    Raises:
        UsageError: the option is neither true nor false.
    """
    text = options.get("push_filters", "false")
    if text.lower() not in BOOLEANS:
        raise UsageError(f"option push_filters: {text!r}", next_step=" or ".join(BOOLEANS))
    return BOOLEANS[text.lower()]


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the PATHs that the options name.

    Raises:
        UsageError: none, or `paths` is no JSON list of strings.
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
    text = options.get(name)
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


def _isolation(text: str | None) -> Isolation:
    try:
        return Isolation(text or Isolation.READ_UNCOMMITTED)
    except ValueError:
        raise UsageError(f"option isolation: {text!r}", next_step=" or ".join(Isolation)) from None


class Wanted:
    """Which segments filters of a query ask for; conditions that tell nothing are passed over."""

    def __init__(self) -> None:
        self._tests: list[Callable[[SegmentPlace], bool]] = []
        self.bounds = ReadBounds()

    def take(self, filters: Iterable[Any]) -> None:
        """Take the filters of a query (pyspark.sql.datasource.Filter)."""
        for each in filters:
            column = ".".join(getattr(each, "attribute", ()))
            value, kind = getattr(each, "value", None), type(each).__name__
            if column in ("broker", "topic", "partition", "directory", "path"):
                self._take_place(column, kind, value)
            elif isinstance(value, int) and column in ("offset", "base_offset", "last_offset"):
                # A lower bound of a batch's offsets, or an upper one, is one of its records' too.
                low, high = _range(kind, value)
                self.bounds = self.bounds.narrowed(ReadBounds(low, high))
            elif isinstance(value, int) and column == "timestamp_ms":
                low, high = _range(kind, value)
                self.bounds = self.bounds.narrowed(ReadBounds(from_time_ms=low, to_time_ms=high))

    def holds(self, place: SegmentPlace) -> bool:
        """May the segment hold something of interest, by its place?"""
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
    """Return the bounds that a comparison with a number sets."""
    low = high = None
    if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe"):
        low = value + (kind == "GreaterThan")
    if kind in ("LessThan", "LessThanOrEqual", "EqualTo", "EqualNullSafe"):
        high = value + (kind != "LessThan")
    return low, high


def read_splits(options: SourceOptions, wanted: Wanted) -> tuple[list[Split], Listing | None]:
    """Return the splits to read, and the listing they come from (None: they were given)."""
    if options.splits is not None:
        return splits_of(options.splits), None
    listing = list_places(options.paths)
    places = [each for each in listing.places if wanted.holds(each)]
    return split_places(places, options.split_bytes), listing


def splits_text(splits: Iterable[Split]) -> str:
    """Return the value of the option `splits`: exactly these are read, and nothing is listed."""
    from msgpack import packb

    data = packb([*splits], use_bin_type=True, unicode_errors="surrogateescape")
    return b64encode(zlib.compress(data, 1)).decode("ascii")


def splits_of(text: str) -> list[Split]:
    """Read what `splits_text` has written."""
    from msgpack import unpackb

    rows = unpackb(zlib.decompress(b64decode(text)), unicode_errors="surrogateescape")
    return [read_as(Split, each) for each in rows]
