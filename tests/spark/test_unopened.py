"""What a query has to read and cannot open ends it: without its rows the others would look whole."""

from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
import socket
import traceback
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eoctl.spark.datasource import (
    BatchesReader,
    KafkaLogAuditStream,
    KafkaLogBatches,
    KafkaLogRecords,
    RecordsReader,
    SegmentsReader,
    register,
)
from eoctl.spark.rows import missing_segments
from eoctl.spark.rows.missing_segments import LeftOutWarning, UnopenedError
from recovery.transactions.isolation import Isolation
from storage.errors import AccessError
from storage.places.list_places import open_place
from tests.audit_logs import Batch, write_segments
from tests.spark.running import spark
from tests.spark.test_datasource import read, rows_of, source
from tests.spark.test_streams import Growing, Stream, growing, kept
from tests.storage.places.test_splits import TEN, write_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from eoctl.spark.datasource import SplitsReader
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace

    Spoil = Callable[[Path], None]

__all__ = ["growing", "spark"]

MAY_WARN = "ignore::eoctl.spark.rows.missing_segments.LeftOutWarning"
pytestmark = pytest.mark.filterwarnings(MAY_WARN)
READERS = (BatchesReader, RecordsReader, SegmentsReader)
STREAMED = (KafkaLogBatches, KafkaLogRecords, KafkaLogAuditStream)
LOG = f"{0:020d}.log"
KEEPING = {"failOnDataLoss": False}


def as_directory(log: Path) -> None:
    log.unlink()
    log.mkdir()


def as_pipe(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def as_loop(log: Path) -> None:
    log.unlink()
    log.symlink_to(log.name)


SPOILED = (as_directory, as_pipe, as_loop)


def failing_at(path: Path, code: int, patch: pytest.MonkeyPatch) -> None:
    """Let the disk fail when this one is opened: root's open knows no modes."""

    def failing(place: SegmentPlace) -> Segment:
        if place.path == str(path):
            raise AccessError(OSError(code, os.strerror(code)), place.path)
        return open_place(place)

    patch.setattr(missing_segments, "open_place", failing)


def read_tasks(reader: Any, tasks: Any) -> list[dict[str, Any]]:
    return [row for task in tasks for part in reader.read(task) for row in part.to_pylist()]


def check_reported(caught: pytest.ExceptionInfo[UnopenedError], path: Path) -> None:
    """With path, host and next step, as Spark prints it, too."""
    again = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, again):
        printed = "".join(traceback.format_exception_only(error))
        for words in (str(path), socket.gethostname(), "failOnDataLoss", "kafka-log-findings"):
            assert words in printed


# --- queries that end -----------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("reader_class", READERS)
@pytest.mark.parametrize("split_bytes", [150, 1 << 30])
def test_a_segment_that_was_there_when_it_was_planned(
    tmp_path: Path, spoil: Spoil, reader_class: type[SplitsReader], split_bytes: int
) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    log = tmp_path / "t-0" / LOG
    reader = source(reader_class, tmp_path / "t-0", split_bytes=split_bytes)
    keeping = source(reader_class, tmp_path / "t-0", split_bytes=split_bytes, **KEEPING)
    tasks = reader.partitions()
    keeping.partitions()
    assert (len(tasks) > 1) is (split_bytes < place.file_bytes)
    spoil(log)
    with pytest.raises(UnopenedError) as caught:
        read_tasks(reader, tasks)
    check_reported(caught, log)
    rows = read_tasks(keeping, tasks)
    if reader_class is SegmentsReader:
        assert {(row["records"], row["findings"]) for row in rows} == {(0, 1)}
    else:
        assert rows == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("reader_class", READERS)
def test_a_segment_that_its_disk_or_its_mode_keeps_closed(
    tmp_path: Path,
    code: int,
    reader_class: type[SplitsReader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    failing_at(root / LOG, code, monkeypatch)
    with pytest.raises(UnopenedError, match=os.strerror(code)) as caught:
        read(reader_class, root)
    check_reported(caught, root / LOG)
    words = f"{root / LOG}: left out on {socket.gethostname()}: {os.strerror(code)}"
    with pytest.warns(LeftOutWarning, match=f"^{re.escape(words)}$"):
        rows = read(reader_class, root, **KEEPING)
    found = [row.get("findings", 0) for row in rows]
    assert found == ([1, 0] if reader_class is SegmentsReader else [0])


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("reader_class", READERS)
def test_what_is_no_file_before_the_query_is_planned(
    tmp_path: Path, spoil: Spoil, reader_class: type[SplitsReader]
) -> None:
    """A directory, or a link to nothing, is not even listed as a segment."""
    root = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    spoil(root / LOG)
    with pytest.raises(UnopenedError) as caught:
        read(reader_class, root)
    check_reported(caught, root / LOG)
    rows = read(reader_class, root, **KEEPING)
    assert next(row for row in rows if not row.get("findings"))["path"].endswith("1.log")


@pytest.mark.parametrize("reader_class", READERS)
def test_a_partition_that_cannot_be_listed(
    tmp_path: Path, reader_class: type[SplitsReader]
) -> None:
    root = tmp_path / "logs"
    write_segments(root / "t-0", [Batch()])
    (root / "loop-0").symlink_to("loop-0")
    (root / "lost").symlink_to("nowhere")  # is no partition's, nor a directory
    with pytest.raises(UnopenedError) as caught:
        read(reader_class, root)
    check_reported(caught, root / "loop-0")
    assert {row["topic"] for row in read(reader_class, root, **KEEPING)} == {"t"}
    if reader_class is not BatchesReader:
        rows = read(reader_class, root, subscribe="t")  # who does not ask for the other
        assert {row["topic"] for row in rows} == {"t"}


def test_a_path_of_several_that_is_not_there(tmp_path: Path) -> None:
    write_segments(tmp_path / "t-0", [Batch()])
    paths = (tmp_path / "t-0", tmp_path / "t-1")
    with pytest.raises(UnopenedError) as caught:
        read(RecordsReader, *paths)
    check_reported(caught, tmp_path / "t-1")
    assert len(read(RecordsReader, *paths, **KEEPING)) == 1


def test_what_stands_beside_a_segment_may_be_unreadable(tmp_path: Path) -> None:
    """No record is in it."""
    root = write_segments(tmp_path / "t-0", [Batch()])
    for name in (f"{1:020d}.snapshot", f"{0:020d}.timeindex", f"{0:020d}.log.deleted"):
        (root / name).symlink_to(name)
    assert len(read(RecordsReader, root)) == 1


def test_the_end_of_a_transaction_in_a_segment_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records would be told as open, or left out of read_committed."""
    root = write_segments(tmp_path / "t-0", [Batch(kind="txn")], [Batch(kind="commit")])
    last = root / f"{1:020d}.log"
    for isolation, options in (
        (Isolation.READ_UNCOMMITTED, {}),
        (Isolation.READ_COMMITTED, {}),
        (Isolation.READ_COMMITTED, {"from_offset": 0, "to_offset": 1}),
    ):
        assert [
            row["outcome"] for row in read(RecordsReader, root, isolation=isolation, **options)
        ] == ["committed"]
    failing_at(last, errno.EIO, monkeypatch)
    first = {"from_offset": 0, "to_offset": 1}
    for isolation in Isolation:
        with pytest.raises(UnopenedError) as caught:
            read(RecordsReader, root, isolation=isolation, **first)
        check_reported(caught, last)


def test_a_time_is_not_looked_for_past_what_cannot_be_opened(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query would begin behind it."""
    root = shutil.copytree(golden("kafka-4.3.1") / "clean" / "rolled-0", tmp_path / "rolled-0")
    logs = sorted(root.glob("*.log"))
    assert len(logs) > 1
    failing_at(logs[0], errno.EIO, monkeypatch)
    options = {"startingTimestamp": 0, "columns": "offset"}
    with pytest.raises(UnopenedError) as caught:
        source(RecordsReader, root, **options).partitions()
    check_reported(caught, logs[0])
    rows = rows_of(source(RecordsReader, root, **options, **KEEPING))
    assert min(row["offset"] for row in rows) == int(logs[1].stem)


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("streamed", STREAMED)
def test_a_micro_batch(growing: Growing, spoil: Spoil, streamed: Any) -> None:
    growing.send(0, *"abcdefgh", roll=True)
    log = growing.log_dir / "t-0" / LOG
    planned = []
    for options in ({}, KEEPING):
        stream = Stream(streamed, growing.log_dir, **options)
        start = kept(stream.reader.initialOffset())
        end = kept(stream.reader.latestOffset(start, ReadAllAvailable()))
        planned.append((stream, stream.reader.partitions(start, end)))
    spoil(log)
    (failing, tasks), (keeping, kept_tasks) = planned
    with pytest.raises(UnopenedError) as caught:
        read_tasks(failing.reader, tasks)
    check_reported(caught, log)
    rows = read_tasks(keeping.reader, kept_tasks)
    assert rows
    assert all(row.get("path") != str(log) for row in rows)


@pytest.mark.share(3)
@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("streamed", STREAMED)
def test_a_stream_plans_no_micro_batch_without_it(
    growing: Growing, spoil: Spoil, streamed: Any
) -> None:
    """A new query would begin at the next segment, as if nothing had been before."""
    growing.send(0, *"abcdefgh", roll=True)
    log = growing.log_dir / "t-0" / LOG
    spoil(log)
    with pytest.raises(UnopenedError) as caught:
        Stream(streamed, growing.log_dir).rest()
    check_reported(caught, log)
    assert Stream(streamed, growing.log_dir, **KEEPING).rest()


@pytest.mark.share(2)
@pytest.mark.parametrize("streamed", STREAMED)
def test_a_segment_that_is_gone_from_a_micro_batch_that_may_lose_it(
    growing: Growing, streamed: Any
) -> None:
    growing.send(0, *"abcdefgh", roll=True)
    stream = Stream(streamed, growing.log_dir, **KEEPING)
    start = kept(stream.reader.initialOffset())
    end = kept(stream.reader.latestOffset(start, ReadAllAvailable()))
    tasks = stream.reader.partitions(start, end)
    (growing.log_dir / "t-0" / LOG).unlink()
    assert read_tasks(stream.reader, tasks)


# --- through Spark --------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("name", ["kafka-log-batches", "kafka-log-records", "kafka-log-segments"])
def test_on_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Where Spark plans and where its tasks read, the user sees path, host and next step."""
    root = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    register(spark)
    frame = spark.read.format(name).load(str(root))
    assert frame.count() == 2
    as_pipe(root / LOG)
    for query in (frame, spark.read.format(name).load(str(root))):
        with pytest.raises(PySparkException) as caught:
            query.collect()
        printed = str(caught.value)
        for words in (str(root / LOG), socket.gethostname(), "try: make it readable"):
            assert words in printed
    keeping = spark.read.format(name).option("failOnDataLoss", "false").load(str(root))
    assert keeping.where("path LIKE '%1.log'").count() == 1
