"""The audit as a Spark job: the same answer as from this machine's processes, whatever happens."""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import eoctl.spark.audit as eoctl_audit
from eoctl.spark import packages_root
from eoctl.spark.audit import read_pieces, summarize_directories
from eoctl.spark.executors import SparkJobError
from recovery.summaries.codec import Shelf
from storage.places.list_places import list_places, open_place
from storage.places.log_reader import GONE
from storage.places.splits import split_places
from tests.audit_context import Context
from tests.audit_logs import Batch, define, write_segments
from tests.spark.odd_sources import DIED, DeletingAudit, DyingAudit
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from storage.places.splits import Split

pytestmark = [*SPARK_MARKS, pytest.mark.usefixtures("spark")]
__all__ = ["spark"]


def splits_of(path: Path | str, split_bytes: int = 1) -> list[Split]:
    return split_places(list_places([str(path)]).places, split_bytes)


def write_indexes(root: Path) -> None:
    """An entry for each batch but the first: splits begin wherever they are wanted."""
    for log in root.rglob("*.log"):
        with open_place(str(log)) as segment:
            batches = [*segment.scan()][1:]
            base_offset = segment.base_offset
        entries = [struct.pack(">ii", b.header.last_offset - base_offset, b.pos) for b in batches]
        log.with_suffix(".index").write_bytes(b"".join(entries))


# --- two engines ----------------------------------------------------------------------------------


def check_engines(eoctl: Callable[..., Any], *call: object, split_bytes: int) -> None:
    words = ("spark-audit", "--report", "all", "--output", "jsonl", *call)
    one = eoctl(*words, "--engine", "local", "--jobs", "1")
    other = eoctl(*words, "--engine", "spark", "--split-bytes", split_bytes)
    assert other.stdout == one.stdout
    assert other.status == one.status
    assert other.errors == one.errors.replace("engine: local", "engine: spark")
    assert len(one.stdout.splitlines()) > 100


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("split_bytes", [1, 128 << 20])
def test_real_directories(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], split_bytes: int
) -> None:
    paths = [
        f"{golden('kafka-4.3.1')}/*",
        f"{golden('kafka-4.3.1-three-brokers')}/*/*",
        str(golden("kafka-0.10.2-legacy")),
    ]
    check_engines(eoctl, *paths, split_bytes=split_bytes)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("split_bytes", "run_segments"), [(1, 2), (200, 3), (1 << 20, 16)])
def test_planted_faults(
    eoctl: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split_bytes: int,
    run_segments: int,
) -> None:
    """Several worlds at once: copies of partitions that have little in common."""
    monkeypatch.setattr(eoctl_audit, "RUN_SEGMENTS", run_segments)
    for seed in range(3):
        for log in Context(seed, steps=30).logs:
            log.write(tmp_path / f"broker-{seed}")
    write_indexes(tmp_path)
    is_cut = len(splits_of(f"{tmp_path}/*", split_bytes)) > len([*tmp_path.rglob("*.log")])
    assert is_cut == (split_bytes < 1 << 20)
    check_engines(eoctl, f"{tmp_path}/*", split_bytes=split_bytes)


def test_later_runs_read_what_is_new(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "logs"
    context = Context(4, steps=8)
    for log in context.logs[1:]:
        log.write(root)
    write_indexes(root)
    words = ("spark-audit", "--report", "all", "--output", "jsonl", root)
    state = ("--state", tmp_path / "state", "--engine", "spark", "--split-bytes", 20_000)
    eoctl("spark-audit", "--report", "topics", root, *state)
    context.logs[0].write(root)
    outcome = eoctl(*words, *state)
    assert outcome.stdout == eoctl(*words, "--engine", "local", "--jobs", "1").stdout
    count = sum(len(log.segments) for log in context.logs[1:])
    assert f"{count} of " in outcome.errors


@pytest.mark.exhaustive
def test_duplicates_and_transactions_across_segments(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [
        [Batch(1, 0, 0, 3, "txn"), Batch(2, 0, 0, 2), Batch(3, 0, 2**31 - 2, 4, "txn")],
        [Batch(1, 0, 3, 2, "txn"), Batch(2, 0, 2, 2), Batch(2, 0, 0, 2), Batch(3, 0, 1, 1)],
        [Batch(1, kind="abort"), Batch(2, 0, 3, 1), Batch(2, 0, 4, 1), Batch(3, 0, 2, 1)],
        [Batch(3, kind="commit"), Batch(1, 0, 4, 2, "txn")],
    ]
    directory = write_segments(tmp_path / "t-0", *segments)
    write_indexes(tmp_path)
    monkeypatch.setattr(eoctl_audit, "RUN_SEGMENTS", 2)
    (held,) = summarize_directories(spark, splits_of(directory), Shelf()).values()
    found = held.unpacked()
    expected = define([batch for segment in segments for batch in segment])
    figures = found.summary.figures()
    assert expected["duplicate_batches"] == 4
    assert {**{name: figures[name] for name in expected}, "bytes": 0} == {**expected, "bytes": 0}


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_file_removed_during_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    spark.dataSource.register(DeletingAudit)
    monkeypatch.setattr(eoctl_audit, "KafkaLogAudit", DeletingAudit)
    (held,) = summarize_directories(spark, splits_of(directory), Shelf()).values()
    found = held.unpacked()
    assert not (directory / f"{0:020d}.log").exists()
    assert found.summary.counts.batches == 1
    assert (found.damage.is_corrupt, found.damage.is_unreadable, found.findings_count) == (
        False,
        False,
        0,
    )
    assert [(each.kind, each.path) for each in found.findings] == [
        (GONE, str(directory / f"{0:020d}.log"))
    ]


def test_a_killed_worker_is_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in Context(5).logs:
        log.write(tmp_path)
    write_indexes(tmp_path)
    splits = splits_of(tmp_path, 500)
    alone = {each.split: each.piece for each in read_pieces(spark, splits)}
    spark.dataSource.register(DyingAudit)
    monkeypatch.setattr(eoctl_audit, "KafkaLogAudit", DyingAudit)
    found = {each.split: each.piece for each in read_pieces(spark, splits)}
    killed = int((tmp_path / DIED).read_text())
    assert not os.path.exists(f"/proc/{killed}")  # noqa: PTH110
    assert found.keys() == alone.keys() == set(splits)
    for split, piece in found.items():
        assert piece.summary.figures() == alone[split].summary.figures()
        assert piece.findings == alone[split].findings


def test_a_job_that_fails_is_an_error_of_ours(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eoctl_audit, "splits_text", lambda _: "no splits")
    with pytest.raises(SparkJobError, match="Spark gave the job up: ") as caught:
        list(read_pieces(spark, []))
    assert caught.value.exit_status == 3


@contextmanager
def python_path(session: SparkSession, *places: Path) -> Iterator[None]:
    """What Python processes that Spark starts from now on have in their path."""
    environment = session.sparkContext.environment
    before = environment["PYTHONPATH"]
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, places), str(packages_root())])
    try:
        yield
    finally:
        environment["PYTHONPATH"] = before


def test_a_foreign_module_is_named(spark: SparkSession, tmp_path: Path) -> None:
    foreign = tmp_path / "path" / "storage" / "__init__.py"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("")
    directory = write_segments(tmp_path / "t-0", [Batch()])
    with python_path(spark, tmp_path / "path"), pytest.raises(SparkJobError) as caught:
        list(read_pieces(spark, splits_of(directory)))
    assert f"the module storage is foreign, {foreign}, and hides" in caught.value.message
    assert "PYTHONPATH" in caught.value.message
    assert len(list(read_pieces(spark, splits_of(directory)))) == 1
