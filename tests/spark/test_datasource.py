"""The data sources: planning without a JVM, and rows through Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from eoctl.spark.audit import join_pieces
from eoctl.spark.datasource import (
    AUDIT_COLUMNS,
    BATCH_COLUMNS,
    AuditReader,
    BatchesReader,
    KafkaLogBatches,
    SegmentsInput,
    list_segments,
    pack,
    paths_of,
)
from recovery.audit import SUMMARY_FIELDS, unpack_audit
from storage.errors import UsageError
from storage.segment import open_segment
from tests.audit_logs import Batch, write_segments
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]


def reader(cls: type[AuditReader | BatchesReader], *paths: Path, pack_bytes: int = 1) -> object:
    return cls({"paths": json.dumps([str(path) for path in paths]), "pack_bytes": str(pack_bytes)})


# --- without a JVM --------------------------------------------------------------------------------


def test_paths() -> None:
    assert paths_of({"path": "a", "paths": '["b", "c"]'}) == ["a", "b", "c"]
    for options in ({}, {"path": ""}, {"paths": "a"}, {"paths": "{}"}, {"paths": "[1]"}):
        with pytest.raises(UsageError):
            paths_of(options)


def test_segments_of_a_log_dir(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "tv2"
    segments = list_segments([str(root)])
    assert [place.path for place, _ in segments] == sorted(map(str, root.glob("*-*/*.log")))
    assert all(size == (root / place.path).stat().st_size for place, size in segments)
    rolled = [place for place, _ in segments if place.topic == "rolled"]
    assert [place.is_active for place in rolled] == [False] * (len(rolled) - 1) + [True]
    assert {place.topic for place, _ in segments if not place.has_sequences} == {
        "__cluster_metadata", "__consumer_offsets", "__transaction_state",
    }  # fmt: skip


def test_small_segments_share_a_task(golden: Callable[[str], Path]) -> None:
    segments = list_segments([str(golden("kafka-4.3.1") / "tv2")])
    sizes = dict(segments)
    for pack_bytes in (0, 1, 100_000, 1_200_000, 1 << 30):
        tasks = list(pack(segments, pack_bytes))
        assert [place for task in tasks for place in task] == [place for place, _ in segments]
        assert all(len(task) == 1 or sum(map(sizes.get, task)) <= pack_bytes for task in tasks)
    assert len(list(pack(segments, 1 << 30))) == 1
    assert list(pack([], 1)) == []


def test_tasks_can_be_sent(golden: Callable[[str], Path]) -> None:
    tasks = reader(AuditReader, golden("kafka-4.3.1") / "crash").partitions()
    assert all(isinstance(task, SegmentsInput) for task in tasks)
    assert pickle.loads(pickle.dumps(tasks)) == tasks


def test_an_audit_is_one_small_row(golden: Callable[[str], Path]) -> None:
    source = reader(AuditReader, golden("kafka-4.3.1") / "clean" / "rolled-0")
    rows = [
        row
        for task in source.partitions()
        for part in source.read(task)
        for row in part.to_pylist()
    ]
    assert len(rows) == 3
    assert list(rows[0]) == list(AUDIT_COLUMNS)
    assert sum(unpack_audit(row["audit"]).counts.batches for row in rows) == 12
    assert all(len(row["audit"]) < 500 for row in rows)


def test_files_that_go_or_cannot_be_read_do_not_fail_the_task(tmp_path: Path) -> None:
    directory = write_segments(
        tmp_path / "t-0", [Batch()], [Batch(sequence=1)], [Batch(sequence=2)]
    )
    source = reader(AuditReader, directory, pack_bytes=1 << 30)
    (task,) = source.partitions()
    first, second, _ = sorted(directory.iterdir())
    first.unlink()
    second.unlink()
    second.mkdir()
    rows = [row for part in source.read(task) for row in part.to_pylist()]
    whole = dict(
        zip(
            (*SUMMARY_FIELDS, "problems", "notes", "corrupt", "unreadable"),
            join_pieces("t", rows),
            strict=True,
        )
    )
    assert (whole["batches"], whole["problems"]) == (1, 1)
    assert (whole["corrupt"], whole["unreadable"]) == (False, True)
    gone, unreadable = whole["notes"]
    assert gone == f"{first}: removed since the directory was listed"
    assert str(second) in unreadable
    assert [part.num_rows for part in reader(BatchesReader, directory).read(task)] == [1]


def test_a_segment_that_goes_before_it_is_read_again(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch()])
    source = reader(AuditReader, directory, pack_bytes=1 << 30)
    (task,) = source.partitions()
    rows = [row for part in source.read(task) for row in part.to_pylist()]
    duplicates = SUMMARY_FIELDS.index("duplicate_batches")
    assert join_pieces("t", rows)[duplicates] == 1
    max(directory.iterdir()).unlink()
    values = join_pieces("t", rows)
    assert values[duplicates] is None
    assert "read again for duplicates" in values[len(SUMMARY_FIELDS) + 1][0]


# --- through Spark --------------------------------------------------------------------------------


@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_batches_are_rows(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = tmp_path / "clean"
    root.mkdir()
    for name in ("txn-0", "rolled-0"):
        shutil.copytree(golden("kafka-4.3.1") / "clean" / name, root / name)
    log = root / "txn-0" / f"{0:020d}.log"
    log.chmod(0o644)
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    spark.dataSource.register(KafkaLogBatches)
    frame = spark.read.format("kafka-log-batches").load(str(root))
    assert frame.columns == list(BATCH_COLUMNS)
    rows = sorted(frame.collect(), key=lambda row: (row.path, row.pos))
    expected = []
    for path in sorted(root.glob("*/*.log")):
        with open_segment(path) as segment:
            expected += [(str(path), batch) for batch in segment.scan()]
    assert len(rows) == len(expected) > 160
    for row, (path, batch) in zip(rows, expected, strict=True):
        header = batch.header
        assert (row.path, row.pos, row.crc_ok) == (path, batch.pos, batch.crc_ok)
        assert (row.crc, row.producer_id, row.base_sequence, row.attributes) == (
            header.crc, header.producer_id, header.base_sequence, header.attributes,
        )  # fmt: skip
        assert (row.last_offset, row.records_count) == (header.last_offset, header.records_count)
        assert f"{row.topic}-{row.partition}" == log.parent.name or row.topic == "rolled"
    assert sum(not row.crc_ok for row in rows) == 1
