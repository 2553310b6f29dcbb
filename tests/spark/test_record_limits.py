"""Records within the log start, the high watermark and the last stable offset, as an export's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from eoctl.spark.datasource import PushedRecordsReader, RecordsReader
from eoctl.spark.rows.source_options import splits_text
from recovery.export.piece import export_piece
from recovery.export.plan import ExportOptions, Until, plan_export
from recovery.export.run import run_export
from recovery.transactions.isolation import Isolation
from storage.errors import UsageError
from storage.places.list_places import list_places
from storage.places.splits import split_places
from tests.audit_logs import Batch, write_segments

if TYPE_CHECKING:
    from pathlib import Path

LOG_START, HIGH_WATERMARK, END = 5, 17, 22


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition: what is below 5 is deleted; a transaction from 15 ends at 20, above the HW."""
    root = tmp_path / "kafka"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=A\ndirectory.id=x\n")
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {LOG_START}\n")
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {HIGH_WATERMARK}\n")
    return write_segments(
        root / "t-0",
        [Batch(sequence=0, count=10)],
        [Batch(sequence=10, count=5), Batch(pid=2, kind="txn", count=5)],
        [Batch(pid=2, kind="commit"), Batch(sequence=15)],
    )


def offsets_of(reader: RecordsReader) -> list[int]:
    tasks, there = cloudpickle.loads(cloudpickle.dumps((reader.partitions(), reader)))
    parts = [part for task in tasks for part in there.read(task)]
    return [offset for part in parts for offset in part["offset"].to_pylist()]


def source(directory: Path, **options: object) -> RecordsReader:
    return RecordsReader({"path": str(directory), **{k: str(v) for k, v in options.items()}})


DATA = [*range(20), 21]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, DATA),
        ({"until": "log-end"}, DATA),
        ({"until": "hw"}, [*range(HIGH_WATERMARK)]),
        ({"isolation": "read_committed"}, DATA[LOG_START:]),
        ({"isolation": "read_committed", "from_offset": 0}, DATA),
        ({"isolation": "read_committed", "until": "hw"}, [*range(LOG_START, 15)]),
        ({"isolation": "read_committed", "until": "hw", "to_offset": 12}, [*range(LOG_START, 12)]),
        ({"isolation": "read_committed", "from_offset": 3, "to_offset": 12}, [*range(3, 12)]),
        ({"until": "hw", "from_offset": 16, "to_offset": 30}, [16]),
    ],
)
def test_what_is_read(directory: Path, options: dict[str, object], expected: list[int]) -> None:
    for size in (1, 1 << 30):
        assert offsets_of(source(directory, split_bytes=size, task_bytes=0, **options)) == expected


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("until", Until)
def test_an_export_has_the_same(
    directory: Path, tmp_path: Path, isolation: Isolation, until: Until
) -> None:
    options = ExportOptions(str(tmp_path / "out"), isolation=isolation, until=until)
    run_export(
        plan_export([str(directory)], options),
        options,
        lambda pieces, own: [export_piece(piece, own) for piece in pieces],
    )
    paths = sorted((tmp_path / "out").rglob("*.parquet"))
    exported = [
        each for path in paths for each in pq.ParquetFile(path).read()["offset"].to_pylist()
    ]
    found = offsets_of(source(directory, isolation=isolation, until=until))
    # Without a transaction to look for, the source gives what is in the files, below the start too.
    first = LOG_START if isolation is Isolation.READ_UNCOMMITTED else 0
    assert [each for each in found if each >= first] == exported


def test_filters_move_no_limit(directory: Path) -> None:
    reader = PushedRecordsReader({"path": str(directory), "isolation": "read_committed"})
    list(reader.pushFilters([GreaterThanOrEqual(("offset",), 2), LessThan(("offset",), 8)]))
    assert offsets_of(reader) == [5, 6, 7]


def test_given_splits_have_a_high_watermark(directory: Path) -> None:
    splits = split_places(list_places([str(directory)]).places, 1)
    reader = RecordsReader({"splits": splits_text(splits), "until": "hw"})
    assert offsets_of(reader) == [*range(HIGH_WATERMARK)]


def test_without_checkpoints_all_is_read(directory: Path) -> None:
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (directory.parent / name).unlink()
    assert offsets_of(source(directory, isolation="read_committed", until="hw")) == DATA


def test_wrong_options(directory: Path) -> None:
    with pytest.raises(UsageError, match="until"):
        source(directory, until="later")
    with pytest.raises(UsageError, match="until"):
        RecordsReader({"paths": json.dumps([str(directory)]), "until": "HW"})
