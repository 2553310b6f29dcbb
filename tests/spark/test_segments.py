"""kafka-log-segments: counted where it is read, as many as kafka-log-records gives."""

from __future__ import annotations

from collections import Counter
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import EqualTo, GreaterThan

from eoctl.spark.datasource import (
    BatchesReader,
    FindingsReader,
    KafkaLogSegments,
    PushedSegmentsReader,
    RecordsReader,
    SegmentsReader,
    register,
)
from eoctl.spark.rows.columns import SEGMENT_COLUMNS
from recovery.transactions.isolation import Isolation
from storage.errors import UsageError
from tests.audit_logs import Batch, write_segments
from tests.damage.conftest import copied
from tests.damage.planted import FAULTS
from tests.spark.running import spark
from tests.spark.test_datasource import read, rows_of, source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.damage.planted.shape import Fault

__all__ = ["copied", "spark"]

Row = dict[str, Any]
COLUMNS = "path,offset,outcome"
LOG = f"{0:020d}.log"
MARKERS = ("short-marker", "unknown-control-type")  # of no producer: no record is missing


def counted(rows: list[Row], name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[row["path"]] += row[name]
    return +found


def check_counts(root: Path | str, **options: object) -> int:
    """Against the source that gives the records; how many they are."""
    rows = read(SegmentsReader, root, **options)
    records = read(RecordsReader, root, columns=COLUMNS, **options)
    assert counted(rows, "records") == Counter(row["path"] for row in records)
    for outcome in ("committed", "aborted", "open"):
        given = Counter(row["path"] for row in records if row["outcome"] == outcome)
        assert counted(rows, f"{outcome}_records") == given
    for path in {row["path"] for row in records}:
        offsets = [row["offset"] for row in records if row["path"] == path]
        mine = [row for row in rows if row["path"] == path and row["records"]]
        assert mine[0]["first_offset"] == offsets[0]
        assert mine[-1]["last_offset"] == offsets[-1]
    return len(records)


@pytest.mark.share(1)
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("split_bytes", [3000, 1 << 30])
def test_as_many_as_records(
    golden: Callable[[str], Path], isolation: Isolation, split_bytes: int
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    assert check_counts(root, isolation=isolation, split_bytes=split_bytes) > 1000


@pytest.mark.exhaustive
def test_golden_logs(golden_log_dirs: dict[str, list[Path]]) -> None:
    """Of all versions and codecs, legacy messages too."""
    tried = product(chain(*golden_log_dirs.values()), Isolation)
    assert sum(check_counts(root, isolation=isolation) for root, isolation in tried) > 10_000


@pytest.mark.share(8)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_damaged_logs(fault: Fault, copied: Callable[[Fault], Path]) -> None:
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    for isolation in Isolation:
        check_counts(log_dir, isolation=isolation)
    if fault.name in MARKERS:
        return
    rows = read(SegmentsReader, log_dir)
    bad = {row["path"] for row in read(FindingsReader, log_dir) if row["finding"] == "corrupt"}
    assert bad & {row["path"] for row in rows} <= {row["path"] for row in rows if row["findings"]}


@pytest.mark.exhaustive
def test_bounds(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "clean"
    times = sorted(row["timestamp_ms"] for row in read(RecordsReader, root, columns="timestamp_ms"))
    for bounds in (
        {"from_offset": 100, "to_offset": 120},
        {"from_time_ms": times[len(times) // 3], "to_time_ms": times[len(times) // 2]},
        {"until": "hw"},
    ):
        for split_bytes in (3000, 1 << 30):
            assert check_counts(root, split_bytes=split_bytes, **bounds) > 0
    offsets = '{"txn":{"0":250,"1":-2}}'
    options = {"subscribe": "txn", "startingOffsets": offsets, "isolation": "read_committed"}
    assert check_counts(root, **options) == 30 + 181


def test_batches(golden: Callable[[str], Path]) -> None:
    """Beside the records: what kafka-log-batches has of them."""
    root = golden("kafka-4.3.1") / "clean"
    batches = read(BatchesReader, root)
    for split_bytes in (3000, 1 << 30):
        rows = read(SegmentsReader, root, split_bytes=split_bytes)
        assert counted(rows, "batches") == Counter(row["path"] for row in batches)
        controls = [row["path"] for row in batches if row["attributes"] & 0x20]
        assert counted(rows, "control_batches") == Counter(controls)
        assert counted(rows, "batch_bytes") == counted(batches, "batch_bytes")
        assert not counted(rows, "findings")
    assert [*rows[0]] == [*SEGMENT_COLUMNS]


@pytest.mark.filterwarnings("ignore::eoctl.spark.rows.missing_segments.LeftOutWarning")
def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """A sum over the rows of other segments only must not look whole."""
    root = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    reader = source(SegmentsReader, root, split_bytes=1 << 30, failOnDataLoss=False)
    tasks = reader.partitions()
    (root / LOG).unlink()
    (root / LOG).mkdir()
    rows = [row for task in tasks for part in reader.read(task) for row in part.to_pylist()]
    assert [(row["records"], row["findings"]) for row in rows] == [(0, 1), (1, 0)]


def test_filters_choose_segments_and_change_no_count(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "clean"
    everything = read(SegmentsReader, root)
    reader = source(PushedSegmentsReader, root)
    filters = [EqualTo(("topic",), "txn"), GreaterThan(("last_offset",), 300)]
    assert [*reader.pushFilters(filters)] == filters
    assert rows_of(reader) == [row for row in everything if row["topic"] == "txn"]


@pytest.mark.parametrize("name", ["columns", "schema", "includeHeaders", "maxBytesPerTrigger"])
def test_options_that_it_has_not(name: str) -> None:
    with pytest.raises(UsageError, match=f"option {name}"):
        KafkaLogSegments({"path": "a", name: "offset"}).schema()
    with pytest.raises(UsageError, match="cannot be read as a stream"):
        KafkaLogSegments({"path": "a"}).streamReader(None)


@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_on_spark(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    """The sum over segments is the count of records; nothing else crosses to the JVM."""
    root = str(golden("kafka-4.3.1") / "clean")
    register(spark)
    for isolation in Isolation:
        options = {"isolation": isolation.value}
        segments = spark.read.format("kafka-log-segments").options(**options).load(root)
        records = spark.read.format("kafka-log-records").options(**options).load(root)
        place = ("topic", "partition")
        sums = segments.groupBy(*place).sum("records").collect()
        counts = {tuple(row)[:2]: row["count"] for row in records.groupBy(*place).count().collect()}
        assert {tuple(row)[:2]: row[2] for row in sums if row[2]} == counts
        assert segments.count() == len(read(SegmentsReader, root, **options))
    with pytest.raises(AnalysisException, match="does not take it"):
        spark.read.format("kafka-log-segments").option("columns", "offset").load(root).collect()
