"""Cuts that tasks prove: planning opens nothing, and the rows are those of cuts proven beforehand."""

from __future__ import annotations

import os
import pickle
import shutil
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from tests.drawn import examples

pytest.importorskip("pyspark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eoctl.spark.datasource import BatchesReader, RecordsReader
from eoctl.spark.rows import record_plan
from eoctl.spark.rows.missing_segments import LeftOutWarning, NotMountedError
from eoctl.spark.rows.source_options import splits_text
from storage.files.positioned_file import PositionedFile
from storage.log.segment import Segment
from storage.places import place_files
from storage.places.list_places import list_places
from storage.places.place_files import FileStamp
from storage.places.splits import UnprovenCutError, plan_apart, proven_apart, split_places
from tests.damage.conftest import copied
from tests.damage.planted import FAULTS
from tests.made_logs import damaged_logs, logs
from tests.spark.opened import opened
from tests.spark.test_datasource import read, rows_of, source
from tests.storage.files.test_broker_lock import holder, python_holder
from tests.storage.files.test_positioned_file import FaultyDisk
from tests.storage.places.test_splits import (
    SIZE,
    TEN,
    lies,
    lying_entries,
    starts_of,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eoctl.spark.datasource import SplitsReader
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split
    from tests.damage.planted.shape import Fault
    from tests.spark.opened import Opened

__all__ = ["copied", "opened"]

READERS = (BatchesReader, RecordsReader)
INDEX = f"{0:020d}.index"
LOG = f"{0:020d}.log"
Row = dict[str, Any]


def rows_of_proven(cls: type[SplitsReader], root: Path, split_bytes: int) -> list[Row]:
    """Rows by cuts that were proven where the query is planned."""
    splits = split_places(list_places([str(root)]).places, split_bytes)
    return rows_of(cls({"splits": splits_text(splits), "task_bytes": "0"}))


def check_rows(root: Path, split_bytes: int) -> int:
    """All readers, cut in tasks and before; how many rows that were."""
    count = 0
    for cls in READERS:
        expected = rows_of_proven(cls, root, split_bytes)
        assert read(cls, root, split_bytes=split_bytes) == expected
        count += len(expected)
    return count


# --- planning -------------------------------------------------------------------------------------


def test_planning_opens_no_segment(golden: Callable[[str], Path], opened: type[Opened]) -> None:
    root = golden("kafka-4.3.1") / "clean"
    opened.paths.clear()  # it was unpacked
    for cls in READERS:
        tasks = source(cls, root, split_bytes=1).partitions()
        assert sum(split.part is not None for task in tasks for split in task.splits) > 500
        assert not opened.ending(".log", ".index", ".timeindex")
        assert opened.ending("meta.properties")  # the hook works
        opened.paths.clear()


@pytest.mark.exhaustive
def test_planning_looks_into_few_time_indexes(
    golden: Callable[[str], Path], opened: type[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    columns = "topic,partition,offset,timestamp_ms"
    times = sorted(row["timestamp_ms"] for row in read(RecordsReader, root, columns=columns))
    wanted = {"from_time_ms": times[-20], "columns": columns, "split_bytes": 1}
    expected = read(RecordsReader, root, **wanted)
    assert len(expected) >= 20
    opened.paths.clear()
    few = source(RecordsReader, root, **wanted).partitions()
    assert opened.ending(".timeindex")
    monkeypatch.setattr(record_plan, "MAX_INSPECTIONS_COUNT", 0)
    opened.paths.clear()
    many = source(RecordsReader, root, **wanted).partitions()
    assert not opened.ending(".log", ".index", ".timeindex")
    assert len(many) > len(few)
    assert read(RecordsReader, root, **wanted) == expected


def test_what_a_broker_appends_to_is_cut_where_it_is_planned(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """A task would not see it as it was planned; segments that are closed are left to the tasks."""
    root = tmp_path / "logs"
    shutil.copytree(golden("kafka-4.3.1") / "clean", root)
    (root / ".lock").touch()
    expected = read(BatchesReader, root, split_bytes=4000)
    with holder(python_holder(root / ".lock")):
        tasks = source(BatchesReader, root, split_bytes=4000).partitions()
        found = read(BatchesReader, root, split_bytes=4000)
    splits = [split for task in tasks for split in task.splits]
    assert {each.part is None for each in splits if not each.place.is_active} == {True, False}
    active = [each for each in splits if each.place.is_active]
    assert all(each.part is None for each in active)
    assert any(each.start_pos for each in active)
    assert found == expected


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_golden_logs(golden_log_dirs: dict[str, list[Path]]) -> None:
    assert sum(check_rows(each, 20_000) for each in chain(*golden_log_dirs.values())) > 1000


@pytest.mark.share(8)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_damaged_logs(fault: Fault, copied: Callable[[Fault], Path]) -> None:
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    check_rows(log_dir, 8000)


@pytest.mark.exhaustive
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=logs(), damage=damaged_logs(), lies=lies, split_bytes=st.integers(1, 400),
    kept=st.sets(st.integers(0, 30)),
)  # fmt: skip
def test_damaged_indexes(
    tmp_path: Path, data: bytes, damage: bytes, lies: Any, split_bytes: int, kept: set[int]
) -> None:
    """Each good batch is given once, whatever the index says."""
    mixed = lying_entries(write_segment(tmp_path / "t-0", data), kept, lies)
    for content in (data, damage):
        write_segment(tmp_path / "t-0", content, mixed)
        whole = read(BatchesReader, tmp_path / "t-0", split_bytes=1 << 40)
        assert read(BatchesReader, tmp_path / "t-0", split_bytes=split_bytes) == whole


# --- files that change ----------------------------------------------------------------------------


def planned(
    root: Path, split_bytes: int = 2 * SIZE, **options: object
) -> tuple[SplitsReader, list[Any]]:
    reader = source(BatchesReader, root, split_bytes=split_bytes, **options)
    tasks = list(reader.partitions())
    assert len(tasks) > 2
    return reader, tasks


def write_later(path: Path, data: bytes) -> None:
    """Change a file so that its time tells, too."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize("change", ["shorter index", "other index", "no index", "other log"])
def test_files_that_change_after_planning(tmp_path: Path, change: str) -> None:
    """Every task says so: two that found other cuts would lose batches, or give them twice."""
    root = tmp_path / "t-0"
    write_segment(root, TEN)
    reader, tasks = planned(root)
    index, log = root / INDEX, root / LOG
    if change == "shorter index":
        index.write_bytes(index.read_bytes()[:-16])
    elif change == "other index":
        data = index.read_bytes()
        write_later(index, data[:40] + data[32:40] + data[48:])
    elif change == "no index":
        index.unlink()
    else:
        write_later(log, log.read_bytes())
    for task in tasks:
        with pytest.raises(UnprovenCutError, match=r"has changed since|index cannot be read"):
            list(reader.read(task))
    assert len(read(BatchesReader, root, split_bytes=1 << 40)) == 10


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    root = tmp_path / "t-0"
    write_segment(root, TEN)
    reader, tasks = planned(root)
    rows = reader.read(tasks[1])
    assert next(rows).num_rows == 2
    write_later(root / LOG, TEN)
    with pytest.raises(UnprovenCutError, match="read by several tasks"):
        list(rows)


def test_files_that_go(tmp_path: Path) -> None:
    """A segment that was deleted has no rows where that is asked for, as one that is not cut.

    Where even the directory is not there, this host has it not mounted.
    """
    root = tmp_path / "t-0"
    write_segment(root, TEN)
    reader, tasks = planned(root, failOnDataLoss=False)
    (root / LOG).unlink()
    with pytest.warns(LeftOutWarning, match=f"{LOG}: left out"):
        assert [row for task in tasks for row in reader.read(task)] == []
    shutil.rmtree(root)
    for task in tasks:
        with pytest.raises(NotMountedError, match="there is no directory"):
            list(reader.read(task))


def planned_apart(root: Path) -> list[Split]:
    return plan_apart(list_places([str(root)]).places, 2 * SIZE, lambda _: False)


def test_a_place_near_a_cut_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task on another try may be given it, and find another cut."""
    root = tmp_path / "t-0"
    write_segment(root, TEN)
    splits = planned_apart(root)
    assert starts_of([each for split in splits if (each := proven_apart(split))]) == [
        2 * SIZE * number for number in range(5)
    ]

    def failing(path: str) -> PositionedFile:
        return PositionedFile(path, pread=FaultyDisk(range(10)))

    def opener(place: SegmentPlace) -> Segment:
        return Segment(failing(place.path), place.base_offset)

    for split in splits:
        with pytest.raises(UnprovenCutError, match="a place near a split") as caught:
            proven_apart(split, opener)
        assert "split_bytes" in caught.value.next_step
    monkeypatch.setattr(place_files, "open_file", failing)
    for split in splits:
        with pytest.raises(UnprovenCutError, match="its index cannot be read"):
            proven_apart(split, open_segment_of)


def open_segment_of(place: SegmentPlace) -> Segment:
    return Segment(PositionedFile(place.path), place.base_offset)


def test_an_error_travels(tmp_path: Path) -> None:
    error = UnprovenCutError(str(tmp_path), "it has changed")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert FileStamp(1, 0).is_same(FileStamp(1, 5))
    assert not FileStamp(1, 4).is_same(FileStamp(1, 5))
    assert not FileStamp(2, 5).is_same(FileStamp(1, 5))
    assert not FileStamp(2, 5).is_same(None)
