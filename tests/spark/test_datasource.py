"""The data sources: planning and reading without a JVM, and rows through Spark."""

from __future__ import annotations

import json
import operator
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.drawn import drawn

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from eoctl.spark.datasource import (
    AuditReader,
    BatchesReader,
    FindingsReader,
    KafkaLogAudit,
    KafkaLogBatches,
    KafkaLogFindings,
    KafkaLogRecords,
    PushedBatchesReader,
    PushedRecordsReader,
    RecordsReader,
    SegmentsReader,
    SplitsInput,
    register,
)
from eoctl.spark.rows.columns import AUDIT_COLUMNS, BATCH_COLUMNS, FINDING_COLUMNS
from eoctl.spark.rows.kafka_options import DataLossError
from eoctl.spark.rows.missing_segments import Needed
from eoctl.spark.rows.source_options import parse_options, paths_of, splits_text
from eoctl.spark.rows.task_rows import read_piece
from recovery.records.read_options import RECORD_COLUMNS
from recovery.summaries.codec import unpack_piece, unpack_split
from recovery.transactions.isolation import Isolation
from storage.dirs.discovery import NotKafkaError
from storage.errors import UsageError
from storage.log.segment import open_segment
from storage.places.list_places import list_places
from storage.places.splits import split_places
from tests.audit_logs import Batch, write_segments
from tests.cases.test_absence import HOLES, Hole, log_dir_with
from tests.read_back import PARTITIONS, consumed
from tests.spark.opened import Opened, opened
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from eoctl.spark.datasource import SplitsReader
    from storage.places.splits import Split

__all__ = ["opened", "spark"]

Row = dict[str, Any]
CONSUMED = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
NO_SPLITS = {"split_bytes": 1 << 30}


def on_spark(test: Any) -> Any:
    for mark in SPARK_MARKS:
        test = mark(test)
    return test


def source(cls: type[SplitsReader], *paths: Path | str, **options: object) -> SplitsReader:
    """A reader whose splits are tasks of their own."""
    texts = {name: str(value) for name, value in {"task_bytes": 0, **options}.items()}
    return cls({"paths": json.dumps([str(path) for path in paths]), **texts})


def rows_of(reader: SplitsReader) -> list[Row]:
    """What Spark would be given; tasks and the reader travel as Spark sends them."""
    tasks, there = cloudpickle.loads(cloudpickle.dumps((reader.partitions(), reader)))
    return [row for task in tasks for part in there.read(task) for row in part.to_pylist()]


def read(cls: type[SplitsReader], *paths: Path | str, **options: object) -> list[Row]:
    return rows_of(source(cls, *paths, **options))


def splits_in(reader: SplitsReader) -> list[tuple[str, int]]:
    """The pieces of which tasks read rows, as they are cut there."""
    found: list[tuple[str, int]] = []

    def note(split: Split) -> Iterator[Any]:
        found.append((split.place.path, split.start_pos))
        yield from ()

    for task in reader.partitions():
        bounds = [each.bounds for each in task.reads] or [reader.bounds()] * len(task.splits)
        for split, wanted in zip(task.splits, bounds, strict=True):
            assert [*read_piece(split, wanted, note, needed=Needed.BY_QUERY)] == []
    return found


# --- options --------------------------------------------------------------------------------------


def test_paths() -> None:
    assert paths_of({"path": "a", "paths": '["b", "c"]'}) == ["a", "b", "c"]
    for options in ({}, {"path": ""}, {"paths": "a"}, {"paths": "{}"}, {"paths": "[1]"}):
        with pytest.raises(UsageError):
            paths_of(options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("split_bytes", "0"),
        ("split_bytes", "much"),
        ("task_bytes", "-1"),
        ("isolation", "serializable"),
        ("columns", "offset,size"),
        ("columns", " , "),
        ("from_offset", "x"),
        ("to_offset", "1.5"),
        ("from_time_ms", ""),
        ("to_time_ms", "now"),
        ("push_filters", "ture"),
    ],
)
def test_wrong_options(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        parse_options({"path": "a", name: value})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("isolaton", "isolation"),
        ("from_ofset", "from_offset"),
        ("fromOffset", "from_offset"),
        ("Columms", "columns"),
        ("recursiveFileLookup", None),
    ],
)
def test_unknown_options(name: str, nearest: str | None) -> None:
    """They are no options that are ignored: the nearest one is named, or all of them."""
    for call in (parse_options, lambda options: KafkaLogRecords(options).schema()):
        with pytest.raises(UsageError, match=f"option {name}: there is no such option") as caught:
            call({"path": "a", name: "1"})
        if nearest is None:
            assert "from_offset, from_time_ms, includeHeaders" in caught.value.next_step
        else:
            assert str(caught.value).endswith(f"meant is perhaps {nearest}")


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (KafkaLogBatches, "isolation"),
        (KafkaLogBatches, "until"),
        (KafkaLogFindings, "from_offset"),
        (KafkaLogAudit, "columns"),
    ],
)
def test_options_of_another_source(cls: Any, name: str) -> None:
    """Whoever asks for committed batches only must not get all of them."""
    source = cls({"path": "a", name: "read_committed"})
    for call in (source.schema, lambda: source.reader(None)):
        with pytest.raises(UsageError, match=f"option {name}: {cls.name()} does not take it"):
            call()


def test_columns_have_one_order() -> None:
    assert parse_options({"path": "a", "columns": " value, offset"}).columns == ("offset", "value")
    assert parse_options({"path": "a"}).columns == RECORD_COLUMNS
    schema = KafkaLogRecords({"path": "a", "columns": "headers,offset,is_transactional"}).schema()
    assert schema == (
        "`offset` bigint, `headers` array<struct<key: binary, value: binary>>, "
        "`is_transactional` boolean"
    )


def test_filters_are_taken_where_they_are_asked_for() -> None:
    for text, cls in (("true", PushedRecordsReader), ("True", PushedRecordsReader)):
        options = {"path": "a", "push_filters": text}
        assert type(KafkaLogRecords(options).reader(None)) is cls
    assert type(KafkaLogRecords({"path": "a"}).reader(None)) is RecordsReader
    assert type(KafkaLogBatches({"path": "a", "push_filters": "no"}).reader(None)) is BatchesReader


# --- tasks ----------------------------------------------------------------------------------------


def test_small_splits_share_a_task(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "tv2"
    alone = source(AuditReader, root).partitions()
    assert all(sum(split.end_pos > 0 for split in task.splits) <= 1 for task in alone)
    count = len([*root.glob("*-*/*.log")])
    assert sum(len(task.splits) for task in alone) == count
    assert len(source(AuditReader, root, task_bytes=1 << 30).partitions()) == 1
    assert len(source(AuditReader, root, split_bytes=1).partitions()) > count


def test_an_audit_is_one_small_row(golden: Callable[[str], Path]) -> None:
    rows = read(AuditReader, golden("kafka-4.3.1") / "clean" / "rolled-0")
    assert len(rows) == 3
    assert list(rows[0]) == list(AUDIT_COLUMNS)
    assert sum(unpack_piece(row["piece"]).summary.counts.batches for row in rows) == 12
    assert [unpack_split(row["split"]).place.topic for row in rows] == ["rolled"] * 3
    assert all(len(row["piece"]) < 1000 for row in rows)


def test_nothing_to_read(tmp_path: Path) -> None:
    for cls in (BatchesReader, FindingsReader):
        with pytest.raises(NotKafkaError, match="neither a log dir nor a partition"):
            read(cls, tmp_path)
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "empty-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    for cls in (BatchesReader, RecordsReader, FindingsReader, AuditReader):
        assert read(cls, tmp_path) == []
        assert [*source(cls, tmp_path).read(None)] == []  # Spark's one task for no tasks


def test_given_splits_tell_no_last_stable_offset(golden: Callable[[str], Path]) -> None:
    splits = split_places(list_places([str(golden("kafka-4.3.1") / "clean" / "txn-0")]).places, 1)
    options = {"splits": splits_text(splits)}
    assert len(rows_of(RecordsReader(options))) > 200
    with pytest.raises(UsageError, match="read_committed"):
        RecordsReader({**options, "isolation": "read_committed"}).partitions()


# --- records --------------------------------------------------------------------------------------


def by_partition(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row['topic']}-{row['partition']}"
        found.setdefault(name, []).append({each: row[each] for each in CONSUMED})
    return found


def check_consumed(golden: Callable[[str], Path], rows: list[Row], isolation: Isolation) -> None:
    found = by_partition(rows)
    for name in PARTITIONS:
        given = sorted(found.get(name, []), key=operator.itemgetter("offset"))
        assert given == consumed(golden, name, isolation)[1], name


@pytest.mark.share(2)
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("options", [{"split_bytes": 1}, {}])
def test_what_a_client_consumed(
    golden: Callable[[str], Path], isolation: Isolation, options: dict[str, object]
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    columns = ",".join(("topic", "partition", *CONSUMED))
    rows = read(RecordsReader, root, columns=columns, isolation=isolation, **options)
    check_consumed(golden, rows, isolation)


def test_outcomes(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "clean"
    for name in ("txn-0", "txn-1"):
        rows = read(RecordsReader, root / name, columns="offset,outcome", split_bytes=1)
        offsets = {outcome: [] for outcome in ("committed", "aborted", "open")}
        for row in rows:
            offsets[row["outcome"]].append(row["offset"])
        first, committed = consumed(golden, name, Isolation.READ_COMMITTED)
        stable_offset = first["high_watermark"]
        assert [each for each in offsets["committed"] if each < stable_offset] == [
            row["offset"] for row in committed
        ]
        assert offsets["aborted"]
        assert min(offsets["open"]) == stable_offset


def test_several_brokers(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    rows = read(RecordsReader, f"{root}/broker-*/div-0", columns="broker,offset,path,value")
    by_broker: dict[str, dict[int, bytes]] = {}
    for row in rows:
        assert f"/broker-{row['broker']}/" in row["path"]
        by_broker.setdefault(row["broker"], {})[row["offset"]] = row["value"]
    assert sorted(by_broker) == ["1", "2", "3"]
    assert by_broker["3"].items() <= by_broker["2"].items()
    diverged = by_broker["1"].items() ^ by_broker["2"].items()
    assert min(offset for offset, _ in diverged) == 36


# --- bounds and filters ---------------------------------------------------------------------------

OPERATORS = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
    StringStartsWith: str.startswith,
}


def holds(row: Row, each: Any) -> bool:
    if isinstance(each, Not):
        return not holds(row, each.child)
    if isinstance(each, IsNotNull):
        return row[each.attribute[0]] is not None
    return bool(OPERATORS[type(each)](row[each.attribute[0]], each.value))


@pytest.mark.exhaustive
def test_bounds(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "clean"
    columns = "topic,partition,offset,timestamp_ms,value"
    everything = read(RecordsReader, root, columns=columns)
    times = sorted(row["timestamp_ms"] for row in everything)
    early, late = times[len(times) // 3], times[len(times) // 2]
    every = (
        {"from_offset": 100},
        {"to_offset": 120},
        {"from_offset": 100, "to_offset": 120},
        {"from_time_ms": early},
        {"from_time_ms": early, "to_time_ms": late},
        {"from_offset": 9, "to_time_ms": late},
        {"from_offset": 1 << 40},
    )
    for bounds in drawn(every, 3):
        expected = [
            row
            for row in everything
            if bounds.get("from_offset", 0) <= row["offset"] < bounds.get("to_offset", 1 << 60)
            and bounds.get("from_time_ms", 0)
            <= row["timestamp_ms"]
            < bounds.get("to_time_ms", 1 << 60)
        ]
        for split_bytes in (1, 1 << 30):
            options = {"columns": columns, "split_bytes": split_bytes}
            assert read(RecordsReader, root, **options, **bounds) == expected, bounds
    planned = splits_in(source(RecordsReader, root, split_bytes=1))
    fewer = splits_in(source(RecordsReader, root, split_bytes=1, from_offset=100, to_offset=120))
    assert 0 < len(fewer) < len(planned) / 2


def filters_of(rows: list[Row], offset_name: str) -> list[list[Any]]:
    path = rows[len(rows) // 2]["path"]
    offset = (offset_name,)
    return [
        [EqualTo(("topic",), "txn"), EqualTo(("partition",), 1)],
        [EqualNullSafe(("topic",), "rolled")],
        [In(("topic",), ("txn", "plain", "nowhere"))],
        [StringStartsWith(("path",), path[:-8])],
        [EqualTo(("path",), path), IsNotNull(("path",))],
        [EqualTo(("broker",), "1"), GreaterThan(offset, 150)],
        [EqualTo(("broker",), "2")],
        [GreaterThanOrEqual(offset, 100), LessThan(offset, 110)],
        [GreaterThan(offset, 99), LessThanOrEqual(offset, 100)],
        [EqualTo(offset, 315), EqualTo(("topic",), "txn")],
        [Not(EqualTo(("topic",), "txn")), LessThan(offset, 5)],
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("cls", "offset_name"),
    [
        (PushedRecordsReader, "offset"),
        (PushedBatchesReader, "base_offset"),
        (PushedBatchesReader, "last_offset"),
    ],
)
def test_filters_lose_no_row(
    golden: Callable[[str], Path], cls: type[SplitsReader], offset_name: str
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    options: dict[str, object] = {"split_bytes": 1}
    if offset_name == "offset":
        options["columns"] = "broker,topic,partition,path,offset,timestamp_ms"
    everything = read(cls, root, **options)
    all_splits = set(splits_in(source(cls, root, **options)))
    wanted = filters_of(everything, offset_name)
    if offset_name == "offset":
        times = sorted(row["timestamp_ms"] for row in everything)
        wanted.append([GreaterThan(("timestamp_ms",), times[-20])])
        wanted.append([EqualTo(("timestamp_ms",), times[-1])])
    for filters in drawn(wanted, 3):
        reader = source(cls, root, **options)
        assert [*reader.pushFilters(filters)] == filters  # Spark looks at every row again
        assert set(splits_in(reader)) < all_splits or isinstance(filters[0], Not), filters
        found = [row for row in rows_of(reader) if all(holds(row, each) for each in filters)]
        expected = [row for row in everything if all(holds(row, each) for each in filters)]
        assert found == expected, filters


@pytest.mark.parametrize("isolation", Isolation)
def test_files_outside_of_the_filter_are_not_opened(
    golden: Callable[[str], Path], opened: type[Opened], isolation: Isolation
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    reader = source(PushedRecordsReader, root, split_bytes=1, isolation=isolation)
    reader.pushFilters([EqualTo(("topic",), "txn"), EqualTo(("partition",), 1)])
    assert rows_of(reader)
    assert {path.rpartition("/")[0] for path in opened.logs()} == {str(root / "txn-1")}
    opened.paths.clear()
    last = max(root.glob("rolled-0/*.log"))
    reader = source(PushedBatchesReader, root / "rolled-0")
    reader.pushFilters([GreaterThanOrEqual(("base_offset",), int(last.stem) + 1)])
    assert rows_of(reader)
    assert opened.logs() == {str(last)}


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def damaged(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """A log dir with a flipped bit, a torn end, what is no file, and what cannot be listed."""
    root = tmp_path / "damaged"
    root.mkdir()
    for name in ("txn-0", "rolled-0"):
        shutil.copytree(golden("kafka-4.3.1") / "clean" / name, root / name)
    log = root / "txn-0" / f"{0:020d}.log"
    log.chmod(0o644)
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    torn = write_segments(root / "torn-0", [Batch(), Batch(sequence=1)])
    log = torn / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-3])
    odd = write_segments(root / "odd-0", [Batch()], [Batch(sequence=1)])
    (odd / f"{0:020d}.log").unlink()
    (odd / f"{0:020d}.log").symlink_to(f"{0:020d}.log")
    (root / "loop-0").symlink_to("loop-0")
    return root


def check_findings(rows: list[Row], root: Path) -> None:
    names = ("topic", "partition", "finding", "check_id", "start_pos", "base_offset", "last_offset")
    found = sorted(
        (tuple(row[name] for name in names), row["path"].removeprefix(f"{root}/")) for row in rows
        if "loop" not in row["path"]
    )  # fmt: skip
    assert found == [
        (("odd", 0, "unreadable", None, None, None, None), f"odd-0/{0:020d}.log"),
        (("torn", 0, "torn_tail", "SEG-6", 69, 1, None), f"torn-0/{0:020d}.log"),
        (("txn", 0, "corrupt", "BAT-1", 0, 0, 0), f"txn-0/{0:020d}.log"),
    ]
    (unlisted,) = [row for row in rows if "loop" in row["path"]]
    assert (unlisted["finding"], unlisted["topic"]) == ("unreadable", None)
    assert unlisted["path"] == str(root / "loop-0")
    assert str(root / "loop-0") in unlisted["reason"]


@pytest.mark.filterwarnings("ignore::eoctl.spark.rows.missing_segments.LeftOutWarning")
@pytest.mark.parametrize("options", [{"split_bytes": 1}, {"task_bytes": 1 << 30}])
def test_damage_is_a_row(damaged: Path, options: dict[str, object]) -> None:
    rows = read(FindingsReader, damaged, **options)
    assert {tuple(row) for row in rows} == {tuple(FINDING_COLUMNS)}
    check_findings(rows, damaged)
    options = {**options, "failOnDataLoss": False}
    batches = read(BatchesReader, damaged, **options)
    assert sum(not row["crc_ok"] for row in batches) == 1
    assert {row["topic"] for row in batches} == {"odd", "rolled", "torn", "txn"}
    for isolation in Isolation:
        records = read(RecordsReader, damaged, isolation=isolation, **options)
        assert {row["topic"] for row in records} == {"odd", "rolled", "torn", "txn"}


@pytest.mark.parametrize("is_known", [True, False], ids=["delete policy", "policy unknown"])
@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.name)
def test_absent_offsets_are_rows(hole: Hole, is_known: bool, tmp_path: Path) -> None:
    log_dir = log_dir_with(tmp_path, hole)
    if not is_known:
        shutil.rmtree(log_dir / "__cluster_metadata-0")
    lost = {
        offset
        for row in read(FindingsReader, log_dir)
        if row["finding"] == "missing" and row["topic"] == "t"
        for offset in range(row["base_offset"], row["last_offset"] + 1)
    }
    assert lost == {*range(hole.first, hole.last + 1)}


def test_compaction_explains_absent_offsets(tmp_path: Path) -> None:
    log_dir = log_dir_with(tmp_path, HOLES[2], part="c-0")
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    for line, count in ((HOLES[2].last + 1, 0), (HOLES[2].first, 1)):
        checkpoint.write_text(f"0\n1\nc 0 {line}\n")
        assert len(read(FindingsReader, log_dir)) == count


def test_a_lost_log_is_a_row(tmp_path: Path) -> None:
    log_dir = log_dir_with(tmp_path, HOLES[0])
    for each in (log_dir / "t-0").glob("*.log"):
        each.unlink()
    (row,) = [row for row in read(FindingsReader, log_dir) if row["topic"] == "t"]
    assert (row["base_offset"], row["last_offset"]) == (0, 39)


@pytest.mark.filterwarnings("ignore::eoctl.spark.rows.missing_segments.LeftOutWarning")
def test_files_that_go_between_planning_and_reading(tmp_path: Path) -> None:
    segments = [[Batch()], [Batch(sequence=1)], [Batch(sequence=2)]]
    directory = write_segments(tmp_path / "t-0", *segments)
    readers = [
        source(cls, directory, task_bytes=1 << 30, failOnDataLoss=False)
        for cls in (BatchesReader, RecordsReader, FindingsReader, AuditReader)
    ]
    tasks = [reader.partitions() for reader in readers]
    gone, unreadable, _ = sorted(directory.iterdir())
    gone.unlink()
    unreadable.unlink()
    unreadable.mkdir()
    found = [
        [row for part in reader.read(task) for row in part.to_pylist()]
        for reader, (task,) in zip(readers, tasks, strict=True)
    ]
    batches, records, findings, pieces = found
    assert [row["base_offset"] for row in batches] == [2]
    assert [row["offset"] for row in records] == [2]
    assert [(row["finding"], row["path"]) for row in findings] == [
        ("gone", str(gone)), ("unreadable", str(unreadable)),
    ]  # fmt: skip
    assert [unpack_piece(row["piece"]).summary.counts.batches for row in pieces] == [0, 0, 1]


@pytest.mark.parametrize("reader_class", [BatchesReader, RecordsReader, SegmentsReader])
@pytest.mark.parametrize("split_bytes", [100, 1 << 30])
def test_a_segment_that_goes_fails_a_query_that_asks_for_its_rows(
    tmp_path: Path, reader_class: type[SplitsReader], split_bytes: int
) -> None:
    """Retention of a running broker removes it: a count without it would look whole."""
    directory = write_segments(tmp_path / "t-0", [Batch(), Batch(sequence=1)], [Batch(sequence=2)])
    reader = source(reader_class, directory, split_bytes=split_bytes)
    tasks = reader.partitions()
    gone = min(directory.iterdir())
    gone.unlink()
    with pytest.raises(DataLossError, match="is gone since the query was planned") as caught:
        [row for task in tasks for row in reader.read(task)]
    assert str(gone) in str(caught.value)
    assert "failOnDataLoss" in caught.value.next_step


# --- through Spark --------------------------------------------------------------------------------


def load(spark: SparkSession, name: str, path: Path | str, **options: object) -> Any:
    register(spark)
    reader = spark.read.format(name)
    for option, value in options.items():
        reader = reader.option(option, value)
    return reader.load(str(path))


@on_spark
def test_batches_on_spark(spark: SparkSession, damaged: Path) -> None:
    frame = load(spark, "kafka-log-batches", damaged, failOnDataLoss=False)
    assert frame.columns == list(BATCH_COLUMNS)
    rows = sorted(frame.collect(), key=lambda row: (row.path, row.pos))
    expected = []
    for path in sorted(damaged.glob("*-0/*.log")):
        if path.is_file():
            with open_segment(path) as segment:
                expected += [(str(path), batch) for batch in segment.scan()]
    assert len(rows) == len(expected) > 160
    for row, (path, batch) in zip(rows, expected, strict=True):
        header = batch.header
        assert (row.path, row.pos, row.crc_ok) == (path, batch.pos, batch.crc_ok)
        assert row.path.startswith(f"{row.directory}/")
        assert row.directory.endswith(f"/{row.topic}-{row.partition}")
        assert (row.crc, row.producer_id, row.base_sequence, row.attributes) == (
            header.crc, header.producer_id, header.base_sequence, header.attributes,
        )  # fmt: skip
        assert (row.last_offset, row.records_count) == (header.last_offset, header.records_count)


@pytest.mark.share(1)
@on_spark
@pytest.mark.parametrize(
    ("isolation", "options"),
    [("read_committed", {"split_bytes": 1}), ("read_committed", {}), ("read_uncommitted", {})],
)
def test_what_a_client_consumed_on_spark(
    spark: SparkSession, golden: Callable[[str], Path], isolation: str, options: dict[str, object]
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    if isolation == "read_committed":
        options = {**options, "columns": ",".join(("topic", "partition", *CONSUMED))}
    frame = load(spark, "kafka-log-records", root, isolation=isolation, **options)
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    for row in rows:
        for name in ("key", "value"):
            row[name] = row[name] and bytes(row[name])
        row["headers"] = [
            {"key": bytes(each["key"]), "value": each["value"] and bytes(each["value"])}
            for each in row["headers"]
        ]
    check_consumed(golden, rows, Isolation(isolation))
    if isolation == "read_uncommitted":
        alone = read(RecordsReader, root)
        key = operator.itemgetter("path", "offset")
        assert sorted(rows, key=key) == sorted(alone, key=key)


@pytest.mark.exhaustive
@on_spark
def test_filters_choose_the_files_on_spark(
    spark: SparkSession, golden: Callable[[str], Path]
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    options = {"split_bytes": 1, "task_bytes": 0, "columns": "topic,partition,offset,outcome"}
    condition = "topic = 'txn' and partition = 0 and offset >= 300"
    asked = load(spark, "kafka-log-records", root, push_filters=True, **options).where(condition)
    unasked = load(spark, "kafka-log-records", root, **options).where(condition)
    counts = [frame.rdd.getNumPartitions() for frame in (asked, unasked)]
    reader = source(PushedRecordsReader, root, **options)
    reader.pushFilters([EqualTo(("topic",), "txn"), EqualTo(("partition",), 0)])
    reader.pushFilters([GreaterThanOrEqual(("offset",), 300)])
    assert counts == [
        len(reader.partitions()),
        len(source(RecordsReader, root, **options).partitions()),
    ]
    assert counts[0] < counts[1] / 10
    rows = sorted((row.offset, row.outcome) for row in asked.collect())
    assert rows[0][0] >= 300
    assert [offset for offset, outcome in rows if outcome == "open"] == list(range(311, 318))


@on_spark
def test_findings_on_spark(spark: SparkSession, damaged: Path) -> None:
    rows = load(spark, "kafka-log-findings", damaged).collect()
    check_findings([row.asDict() for row in rows], damaged)


@on_spark
def test_wrong_calls_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="isolation"):
        load(spark, "kafka-log-records", tmp_path, isolation="none").collect()
    with pytest.raises(AnalysisException, match="meant is perhaps isolation"):
        load(spark, "kafka-log-records", tmp_path, isolaton="read_committed").collect()
    with pytest.raises(AnalysisException, match="nowhere-0"):
        load(spark, "kafka-log-batches", tmp_path / "nowhere-0").collect()


def test_tasks_are_plain(golden: Callable[[str], Path]) -> None:
    """What is sent to executors is small, and needs nothing but our packages."""
    tasks = source(RecordsReader, golden("kafka-4.3.1") / "clean", split_bytes=1).partitions()
    assert all(type(task) is SplitsInput for task in tasks)
    assert max(len(pickle.dumps(task)) for task in tasks) < 1000
