"""Records as Spark's own Kafka source gives them: columns, values and options in Kafka's words."""

from __future__ import annotations

import json
import operator
import shutil
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from eoctl.spark.datasource import KafkaLogBatches, KafkaLogRecords, RecordsReader
from eoctl.spark.rows.kafka_options import (
    DataLossError,
    KafkaOptions,
    kafka_rows,
    parse_kafka_options,
)
from eoctl.spark.rows.record_plan import offset_at_time
from eoctl.spark.rows.source_options import parse_options
from recovery.records.columns import record_schema
from recovery.transactions.isolation import Isolation
from storage.errors import UsageError
from storage.formats.java_text import kafka_text
from storage.places.list_places import list_places
from tests.read_back import PARTITIONS, consumed
from tests.spark.test_datasource import read, source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TYPE_IDS = {"CreateTime": 0, "LogAppendTime": 1, None: -1}
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def kafka(*paths: Path | str, **options: object) -> list[dict[str, Any]]:
    return read(RecordsReader, *paths, schema="kafka", **options)


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


# --- the table ------------------------------------------------------------------------------------


def test_columns_are_those_of_sparks_source() -> None:
    """As KafkaRecordToRowConverter.kafkaSchema has them, with their names and types."""
    plain = (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, "
        "`timestamp` timestamp, `timestampType` int"
    )
    assert KafkaLogRecords({"path": "a", "schema": "kafka"}).schema() == plain
    with_headers = {"path": "a", "schema": "kafka", "includeHeaders": "true"}
    headers = ", `headers` array<struct<key: string, value: binary>>"
    assert KafkaLogRecords(with_headers).schema() == plain + headers


@pytest.mark.parametrize("isolation", Isolation)
def test_what_a_client_consumed(
    golden: Callable[[str], Path], clean: Path, isolation: Isolation
) -> None:
    rows = kafka(clean, includeHeaders=True, **{"kafka.isolation.level": isolation})
    for name in PARTITIONS:
        topic, _, number = name.rpartition("-")
        found = [
            each for each in rows if (each["topic"], each["partition"]) == (topic, int(number))
        ]
        found.sort(key=operator.itemgetter("offset"))
        expected = consumed(golden, name, isolation)[1]
        assert [list(each) for each in found[:1]] == [[*COLUMNS, "headers"]] * bool(expected)
        assert [
            (
                row["offset"], row["key"], row["value"],
                round(row["timestamp"].timestamp() * 1000), row["timestampType"], row["headers"],
            )
            for row in found
        ] == [
            (
                row["offset"], row["key"], row["value"], row["timestamp_ms"],
                TYPE_IDS[row["timestamp_type"]],
                [{**each, "key": kafka_text(each["key"])} for each in row["headers"]] or None,
            )
            for row in expected
        ]  # fmt: skip


headers = st.lists(
    st.fixed_dictionaries(
        {"key": st.binary(max_size=4), "value": st.none() | st.binary(max_size=3)}
    ),
    max_size=3,
)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.sampled_from(["CreateTime", "LogAppendTime", None]),
            headers,
        ),
        max_size=6,
    )
)
def test_any_record_has_a_row(rows: list[tuple[int, str | None, list[dict[str, Any]]]]) -> None:
    names = (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "timestamp_type",
        "headers",
    )
    schema = record_schema(names)
    values = [(None, b"v", "t", 0, number, *row) for number, row in enumerate(rows)]
    columns = zip(*values, strict=True) if values else [[] for _ in names]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
    made = kafka_rows(batch)
    made.validate(full=True)
    assert made.schema.names == [*COLUMNS, "headers"]
    assert made.column("timestampType").to_pylist() == [TYPE_IDS[row[1]] for row in rows]
    assert made.column("headers").to_pylist() == [
        [{**each, "key": kafka_text(each["key"])} for each in row[2]] or None for row in rows
    ]
    for value, row in zip(made.column("timestamp").cast(pa.int64()).to_pylist(), rows, strict=True):
        assert value == row[0] * 1000 or abs(row[0]) > 2**63 // 1000 - 2


# --- which partitions -----------------------------------------------------------------------------


def partitions_of(rows: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(row["topic"], row["partition"]) for row in rows}


def test_partitions_are_chosen(clean: Path) -> None:
    assert partitions_of(kafka(clean, subscribe="txn, plain")) == {
        ("txn", 0), ("txn", 1), ("plain", 0), ("plain", 1)
    }  # fmt: skip
    assert partitions_of(kafka(clean, subscribePattern="pl.*n")) == {("plain", 0), ("plain", 1)}
    assert partitions_of(kafka(clean, assign='{"txn":[1]}')) == {("txn", 1)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nothing"}, "there is no nothing"),
        ({"assign": '{"txn":[7]}'}, "there is no txn-7"),
        ({"subscribe": "txn", "assign": '{"txn":[1]}'}, "only one of them"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"assign": "[1]"}, "assign"),
        ({"assign": '{"txn":["1"]}'}, "assign"),
        ({"startingOffsets": "latest"}, "does not begin at the latest"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"startingOffsets": '{"txn":{"0":-3,"1":0}}'}, "txn-0"),
        ({"startingOffsets": '{"txn":{"0":true,"1":0}}'}, "txn-0"),
        ({"startingOffsets": '{"txn":{"0":5}}', "subscribe": "txn"}, "txn-1 is missing"),
        ({"startingOffsets": '{"txn":{"x":5}}'}, "no partition"),
        ({"startingOffsets": '{"txn":[5]}'}, "partitions are needed"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"txn":{"0":-2,"1":9}}', "subscribe": "txn"}, "the end is not -2"),
        ({"startingTimestamp": "now"}, "startingTimestamp"),
        ({"startingTimestamp": str(1 << 50), "subscribe": "txn"}, "no record is as young"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "Strategy"),
        ({"startingOffsets": "earliest", "from_offset": "5"}, "only one can be given"),
        ({"endingTimestamp": "5", "to_time_ms": "5"}, "only one can be given"),
        ({"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "two things"),
        ({"kafka.isolation.level": "none"}, "kafka.isolation.level"),
        ({"includeHeaders": "yes"}, "includeHeaders"),
        ({"kafka.bootstrap.servers": "a:9092"}, "there is no broker"),
        ({"maxOffsetsPerTrigger": "5"}, "belongs to a stream"),
        ({"columns": "offset"}, "columns of its own"),
        ({"schema": "avro"}, "option schema"),
        ({"startingOffset": "5"}, "meant is perhaps startingOffsets"),
    ],
)  # fmt: skip
def test_wrong_options(clean: Path, options: dict[str, str], words: str) -> None:
    given_options = {"path": str(clean), "schema": "kafka", **options}

    def plan() -> None:
        KafkaLogRecords(given_options).reader(None).partitions()

    with pytest.raises(UsageError, match=words):
        plan()


def test_headers_belong_to_the_table() -> None:
    with pytest.raises(UsageError, match="schema=kafka"):
        parse_options({"path": "a", "includeHeaders": "true"})
    with pytest.raises(UsageError, match="does not take it"):
        KafkaLogBatches({"path": "a", "startingOffsets": "earliest"}).schema()


def test_options_in_any_case() -> None:
    found = parse_kafka_options({"STARTINGOFFSETS": "Earliest", "failondataloss": "FALSE"})
    assert found.starting is not None
    assert found.starting.kind == "earliest"
    assert not found.fails_on_loss


# --- bounds ---------------------------------------------------------------------------------------


def offsets_by_partition(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return {name: sorted(offsets) for name, offsets in found.items()}


def test_offsets_by_partition(clean: Path) -> None:
    everything = offsets_by_partition(kafka(clean, subscribe="txn"))
    bounds = {"startingOffsets": {"0": 100, "1": -2}, "endingOffsets": {"0": 120, "1": -1}}
    texts = {name: json.dumps({"txn": value}) for name, value in bounds.items()}
    found = offsets_by_partition(kafka(clean, subscribe="txn", **texts))
    assert found["txn-0"] == [each for each in everything["txn-0"] if 100 <= each < 120]
    assert found["txn-1"] == everything["txn-1"]


LOG_START = 100


@pytest.fixture
def trimmed(clean: Path, tmp_path: Path) -> Path:
    """A log dir in which records of trimmed-0 were deleted up to an offset within its segment."""
    log_dir = tmp_path / "trimmed"
    log_dir.mkdir()
    for each in clean.iterdir():
        if each.is_file():
            shutil.copy(each, log_dir)
    shutil.copytree(clean / "trimmed-0", log_dir / "trimmed-0")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\ntrimmed 0 {LOG_START}\n")
    return log_dir


def test_the_earliest_is_the_log_start(trimmed: Path) -> None:
    found = kafka(trimmed, subscribe="trimmed", startingOffsets="earliest")
    assert offsets_by_partition(found)["trimmed-0"] == [*range(LOG_START, 300)]


@pytest.mark.parametrize("offset", [-2, 0, LOG_START - 1, LOG_START, 300, 301])
def test_offsets_that_are_not_there(trimmed: Path, offset: int) -> None:
    starting = json.dumps({"trimmed": {"0": offset}})
    options = {"subscribe": "trimmed", "startingOffsets": starting}
    expected = [*range(LOG_START if offset == -2 else max(offset, LOG_START), 300)]
    if offset == -2 or LOG_START <= offset <= 300:
        assert offsets_by_partition(kafka(trimmed, **options)).get("trimmed-0", []) == expected
        return
    words = f"names offset {offset}, and the log goes from {LOG_START} to 300"
    with pytest.raises(DataLossError, match=words):
        kafka(trimmed, **options)
    found = offsets_by_partition(kafka(trimmed, **options, failOnDataLoss=False))
    assert found.get("trimmed-0", []) == expected


@pytest.mark.parametrize("name", ["txn-0", "append-time-0", "rolled-0", "compacted-0", "plain-1"])
def test_times_lead_to_the_first_record_that_is_not_older(
    golden: Callable[[str], Path], clean: Path, name: str
) -> None:
    rows = consumed(golden, name, Isolation.READ_UNCOMMITTED)[1]
    times = sorted({row["timestamp_ms"] for row in rows})
    places = list_places([str(clean / name)]).places
    for time_ms in (
        times[0] - 1,
        times[0],
        times[len(times) // 2],
        times[-1] - 1,
        times[-1],
        times[-1] + 1,
    ):
        expected = next((row["offset"] for row in rows if row["timestamp_ms"] >= time_ms), None)
        assert offset_at_time(KafkaOptions(), places, time_ms) == expected, time_ms


def test_times_bound_a_query(golden: Callable[[str], Path], clean: Path) -> None:
    rows = consumed(golden, "txn-0", Isolation.READ_UNCOMMITTED)[1]
    early, late = rows[len(rows) // 3]["timestamp_ms"], rows[len(rows) // 2]["timestamp_ms"]
    first, end = (
        next(row["offset"] for row in rows if row["timestamp_ms"] >= each) for each in (early, late)
    )
    expected = [row["offset"] for row in rows if first <= row["offset"] < end]
    times = {"startingTimestamp": early, "endingTimestamp": late}
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({"txn": {"0": early}}),
        "endingOffsetsByTimestamp": json.dumps({"txn": {"0": late}}),
    }
    for options in (times, by_partition, {**times, "startingOffsets": '{"txn":{"0":1}}'}):
        found = offsets_by_partition(kafka(clean, assign='{"txn":[0]}', **options))
        assert found == {"txn-0": expected}
    young = {"startingTimestamp": 1 << 50, "startingOffsetsByTimestampStrategy": "latest"}
    assert kafka(clean, assign='{"txn":[0]}', **young) == []
    assert len(kafka(clean, assign='{"txn":[0]}', endingTimestamp=1 << 50)) == len(rows)


def test_names_of_kafka_work_with_our_own_columns(clean: Path) -> None:
    found = read(RecordsReader, clean, columns="offset,broker", assign='{"txn":[0]}',
                 startingOffsets='{"txn":{"0":303}}')  # fmt: skip
    assert min(row["offset"] for row in found) == 303
    assert (
        source(RecordsReader, clean, startingOffsets="earliest").options.kafka.starting is not None
    )
