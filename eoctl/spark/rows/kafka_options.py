"""Options of Spark's own Kafka source that choose the data, under their own names.

- `subscribe`, `subscribePattern`, `assign`: topics with commas, a pattern, {"topic":[0,1]}.
- `startingOffsets`, `endingOffsets`: earliest, latest, or {"topic":{"0":23,"1":-2}} with all
  partitions. -2 is the earliest offset, -1 the latest.
- `startingTimestamp`, `endingTimestamp`: milliseconds. They choose the first record of each
  partition that is not older.
- `startingOffsetsByTimestamp`, `endingOffsetsByTimestamp`: the same by partition.
- `startingOffsetsByTimestampStrategy`: error (default) or latest, if all records are older.
- `kafka.isolation.level`: as `isolation`.
- `includeHeaders`: true adds a column of headers, with schema=kafka.
- `failOnDataLoss`: true (default) ends the query if a requested offset does not exist.

A timestamp overrides timestamps by partition, which override offsets. Spark's source reads the
offsets of a broker. Here the earliest offset is the log start offset, and the latest is where
reading ends anyway.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import EXIT_ACCESS, EoctlError, UsageError
from storage.formats.java_text import kafka_text
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from storage.file_names import PartitionName
    from storage.places.listing import DirectoryPlace, SegmentPlace


EARLIEST, LATEST = -2, -1  # ListOffsetsRequest
TopicPartition = tuple[str, int]

CHOICE_OPTIONS = ("subscribe", "subscribePattern", "assign")
START_OPTIONS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END_OPTIONS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STRATEGY_OPTION = "startingOffsetsByTimestampStrategy"
ISOLATION_OPTION = "kafka.isolation.level"
HEADERS_OPTION = "includeHeaders"
LOSS_OPTION = "failOnDataLoss"
READ_THE_REST = f'.option("{LOSS_OPTION}", "false") reads the rest'
BOOLEANS = {"true": True, "false": False}  # as Spark's own source reads them
# Options that a query over brokers needs, and a query over directories does not have.
BROKER_OPTIONS = frozenset({"kafka.bootstrap.servers", "kafka.group.id", "groupidprefix"})


class DataLossError(EoctlError):
    """Error: offsets that a query requests, or must continue from, are lost."""

    exit_status = EXIT_ACCESS


class TopicChoice(NamedTuple):
    """Partitions that a query reads. None means all of them.

    Attributes:
        topics: by name.
        pattern: of the whole name.
        partitions: single partitions.
    """

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] | None = None

    def holds(self, place: SegmentPlace | DirectoryPlace | PartitionName) -> bool:
        """Return whether the partition is chosen."""
        if self.topics is not None:
            return place.topic in self.topics
        if self.pattern is not None:
            return self.pattern.fullmatch(place.topic) is not None
        return self.partitions is None or (place.topic, place.partition) in self.partitions

    def require_found(self, found: frozenset[TopicPartition]) -> None:
        """Check that named topics and partitions exist, as a broker does. Raises UsageError."""
        topics = {topic for topic, _ in found}
        missing = sorted((self.topics or frozenset()) - topics)
        missing += [
            f"{name}-{number}" for name, number in sorted((self.partitions or found) - found)
        ]
        if missing:
            raise UsageError(
                f"there is no {missing[0]} in the directories that were given",
                next_step=f"there are: {', '.join(sorted(topics)[:10]) or 'none'}",
            )


class PointKind(StrEnum):
    """Kinds of a point in each partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


class LogPoint(NamedTuple):
    """A point in each partition, as a start or an end.

    Attributes:
        option: its option, for errors.
        kind: kind of the point.
        value: for TIME, in ms.
        by_partition: for OFFSETS, and for TIMES in ms.
    """

    option: str
    kind: PointKind
    value: int = 0
    by_partition: Mapping[TopicPartition, int] = {}

    def number_of(self, partition: TopicPartition) -> int:
        """Return the offset or the time of a partition. Raises UsageError if it is missing."""
        if self.kind is PointKind.TIME:
            return self.value
        if partition not in self.by_partition:
            name, number = partition
            raise UsageError(
                f"option {self.option}: {name}-{number} is missing",
                next_step=f"name all partitions that are read; {EARLIEST} is the earliest offset,"
                f" {LATEST} the latest",
            )
        return self.by_partition[partition]

    @property
    def is_time(self) -> bool:
        """True for a timestamp."""
        return self.kind in {PointKind.TIME, PointKind.TIMES}

    @property
    def is_own(self) -> bool:
        """True for offsets or times, false for an end of the log."""
        return self.kind not in {PointKind.EARLIEST, PointKind.LATEST}


class KafkaOptions(NamedTuple):
    """Values of the options with Kafka's names."""

    choice: TopicChoice = TopicChoice()
    starting: LogPoint | None = None
    ending: LogPoint | None = None
    is_latest_without_match: bool = False
    has_headers: bool = False
    fails_on_loss: bool = True


def parse_kafka_options(options: Mapping[str, str]) -> KafkaOptions:
    """Parse the options with Kafka's names. Raises UsageError."""
    return KafkaOptions(
        choice=_choice(options),
        starting=_point(options, START_OPTIONS, "earliest", "latest"),
        ending=_point(options, END_OPTIONS, "latest"),
        is_latest_without_match=_strategy(options),
        has_headers=boolean(options, HEADERS_OPTION, default=False),
        fails_on_loss=boolean(options, LOSS_OPTION, default=True),
    )


def boolean(
    options: Mapping[str, str], name: str, *, default: bool, words: Mapping[str, bool] = BOOLEANS
) -> bool:
    """Parse an option that has a few values, in any case. Raises UsageError."""
    text = value_of(options, name)
    if text is None:
        return default
    if text.lower() not in words:
        raise UsageError(f"option {name}: {text!r}", next_step=" or ".join(words))
    return words[text.lower()]


def value_of(options: Mapping[str, str], name: str) -> str | None:
    """Return an option whose name is in any case, None if it is missing."""
    if name in options:
        return options[name]
    lowered = name.lower()
    return next((value for key, value in options.items() if key.lower() == lowered), None)


def _choice(options: Mapping[str, str]) -> TopicChoice:
    given = [name for name in CHOICE_OPTIONS if value_of(options, name) is not None]
    if not given:
        return TopicChoice()
    if len(given) > 1:
        raise UsageError(f"options {' and '.join(given)}: only one of them can be given")
    name = given[0]
    text = value_of(options, name) or ""
    if name == "subscribe":
        topics = frozenset(each.strip() for each in text.split(",") if each.strip())
        if not topics:
            raise UsageError("option subscribe: names no topic")
        return TopicChoice(topics=topics)
    if name == "assign":
        return TopicChoice(partitions=_assigned(text))
    try:
        return TopicChoice(pattern=re.compile(text))
    except re.error as exc:
        raise UsageError(f"option subscribePattern: {text!r}: {exc}") from exc


def _assigned(text: str) -> frozenset[TopicPartition]:
    document = _document("assign", text, '{"orders":[0,1]}')
    found = set()
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not all(_is_integer(each) for each in numbers):
            raise UsageError(f"option assign: {topic}: a list of partitions is needed")
        found |= {(topic, number) for number in numbers}
    if not found:
        raise UsageError("option assign: names no partition")
    return frozenset(found)


def _point(options: Mapping[str, str], names: tuple[str, ...], *ends: str) -> LogPoint | None:
    """Return the first given of: a timestamp, timestamps by partition, offsets."""
    time_option, times_option, offsets_option = names
    text = value_of(options, time_option)
    if text is not None:
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            raise UsageError(f"option {time_option}: {text!r} is no number of ms since 1970")
        return LogPoint(time_option, PointKind.TIME, value=int(text))
    text = value_of(options, times_option)
    if text is not None:
        times = _by_partition(times_option, text, least=0)
        return LogPoint(times_option, PointKind.TIMES, by_partition=times)
    text = value_of(options, offsets_option)
    if text is None:
        return None
    if text.strip().lower() in ends:
        return LogPoint(offsets_option, PointKind(text.strip().lower()))
    offsets = _by_partition(offsets_option, text, least=EARLIEST, words=" or ".join(ends))
    return LogPoint(offsets_option, PointKind.OFFSETS, by_partition=offsets)


def _by_partition(
    name: str, text: str, *, least: int, words: str = ""
) -> dict[TopicPartition, int]:
    example = '{"orders":{"0":23}}'
    document = _document(name, text, f"{words}, or {example}" if words else example)
    found = {}
    for topic, numbers in document.items():
        if not isinstance(numbers, dict):
            raise UsageError(f"option {name}: {topic}: partitions are needed", next_step=example)
        for number, value in numbers.items():
            if not re.fullmatch(r"\d{1,10}", number, re.ASCII):
                raise UsageError(f"option {name}: {topic}: {number!r} is no partition")
            if not _is_integer(value) or value < least:
                raise UsageError(
                    f"option {name}: {topic}-{number}: {value!r} is no number from {least} on"
                )
            found[topic, int(number)] = value
    return found


def _document(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UsageError(f"option {name}: {text!r} cannot be read", next_step=example)
    return document


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _strategy(options: Mapping[str, str]) -> bool:
    text = (value_of(options, STRATEGY_OPTION) or "error").lower()
    if text not in {"error", "latest"}:
        raise UsageError(f"option {STRATEGY_OPTION}: {text!r}", next_step="error or latest")
    return text == "latest"


# -- records as the table of Spark's own Kafka source, so that a query works unchanged.
#
# Columns, types and nulls follow KafkaRecordToRowConverter. `headers` exist with `includeHeaders`
# only, and are null for a record without headers. The type of a timestamp is its number.


KAFKA_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS_COLUMN = {"headers": "array<struct<key: string, value: binary>>"}
# TimestampType.id of kafka-clients. A record of message format 0 has none.
_TIMESTAMP_TYPE_IDS = {"CreateTime": 0, "LogAppendTime": 1}
_NO_TIMESTAMP_TYPE = -1
_US_PER_MS = 1000
_MAX_TIMESTAMP_MS = INT64_MAX // _US_PER_MS - 1


def kafka_columns(*, has_headers: bool) -> dict[str, str]:
    """Return columns and their Spark types."""
    return {**KAFKA_COLUMNS, **(HEADERS_COLUMN if has_headers else {})}


def source_columns(*, has_headers: bool) -> tuple[str, ...]:
    """Return the columns of `kafka-log-records` that make the table."""
    names = ("key", "value", "topic", "partition", "offset", "timestamp_ms", "timestamp_type")
    return (*names, "headers") if has_headers else names


def kafka_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """Turn rows of `source_columns` into rows of `kafka_columns`."""
    import pyarrow as pa

    arrays: dict[str, Any] = {
        name: records.column(name) for name in ("key", "value", "topic", "partition", "offset")
    }
    arrays["timestamp"] = _timestamps(records.column("timestamp_ms"))
    arrays["timestampType"] = _timestamp_types(records.column("timestamp_type"))
    if "headers" in records.schema.names:
        arrays["headers"] = _headers(records.column("headers"))
    return pa.RecordBatch.from_pydict(arrays)


def _timestamps(timestamp_ms: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    # A timestamp outside Spark's range becomes its last or first timestamp.
    values = timestamp_ms.to_numpy()
    bounded = np.clip(values, -_MAX_TIMESTAMP_MS, _MAX_TIMESTAMP_MS)
    return pa.array(bounded * _US_PER_MS).cast(pa.timestamp("us", tz="UTC"))


def _timestamp_types(names: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.index_in(names, value_set=pa.array(list(_TIMESTAMP_TYPE_IDS)))
    return pc.fill_null(numbers, _NO_TIMESTAMP_TYPE)


def _headers(headers: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    inside = headers.flatten()
    # As a Java consumer decodes bytes that are not UTF-8.
    keys = pa.array([kafka_text(key) for key in inside.field("key").to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([keys, inside.field("value")], names=["key", "value"])
    counts = pc.list_value_length(headers)
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())]
    )
    return pa.ListArray.from_arrays(offsets, pairs, mask=pc.equal(counts, 0))
