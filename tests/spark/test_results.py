"""Summaries come to the driver some bytes at a time: reports are the local engine's all the same."""

from __future__ import annotations

import os
import zlib
from contextlib import contextmanager
from errno import EACCES
from random import Random
from struct import pack_into
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import eoctl.spark.audit as results_module
import recovery.summaries.codec as held_module
from eoctl.spark.audit import TASKS_PER_GROUP, TRIES, bring_summaries, summarize_directories
from eoctl.spark.executors import SparkJobError
from recovery.summaries.codec import Shelf, pack_partition
from storage.checksum import load_crc32c
from storage.places.list_places import list_places
from storage.places.splits import splits_at
from tests.audit_context import Context
from tests.audit_logs import Batch, encoded
from tests.recovery.summaries.test_held import summaries_of, temporary
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from recovery.summaries.codec import HeldSummary
    from storage.places.listing import Listing
    from storage.places.splits import Split

pytestmark = [*SPARK_MARKS, pytest.mark.usefixtures("spark")]
__all__ = ["spark", "temporary"]

MAX_RESULT = "spark.driver.maxResultSize"


class Jobs:
    """What each job brings, in bytes of summaries; something may be done after the first one."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, after: Callable[[], object] | None = None
    ) -> None:
        self.brought_bytes: list[int] = []
        self.largest_bytes = 0
        collected = results_module._collected

        def counted(session: SparkSession, rows: DataFrame) -> list[tuple[Any, ...]]:
            found = collected(session, rows)
            if after is not None and not self.brought_bytes:
                after()
            values = [each for row in found for each in row if isinstance(each, (bytes, bytearray))]
            self.brought_bytes.append(sum(map(len, values)))
            self.largest_bytes = max(self.largest_bytes, *map(len, values), 0)
            return found

        monkeypatch.setattr(results_module, "_collected", counted)


def splits_in(listing: Listing) -> list[Split]:
    return [split for place in listing.places for split in splits_at(place, [0])]


def persisted(session: SparkSession) -> int:
    """How many frames Spark holds."""
    jvm: Any = session.sparkContext._jsc
    return len(jvm.getPersistentRDDs())


SHUFFLE_TASKS = "spark.sql.shuffle.partitions"


@pytest.mark.exhaustive
def test_one_directory_takes_few_tasks_however_many_a_cluster_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark leaves no empty task out of what it persists: 200 of them are seconds of two cores."""
    kept: list[int] = []
    brought = results_module._brought

    def counted(session: SparkSession, rows: DataFrame, *more: Any) -> dict[str, HeldSummary]:
        kept.append(rows.rdd.getNumPartitions())
        return brought(session, rows, *more)

    monkeypatch.setattr(results_module, "_brought", counted)
    Context(1, steps=30).logs[0].write(tmp_path / "logs")
    splits = splits_in(list_places([f"{tmp_path}/logs"]))
    directories = {each.place.directory for each in splits}
    before = spark.conf.get(SHUFFLE_TASKS)
    spark.conf.set(SHUFFLE_TASKS, "200")
    try:
        assert {*summarize_directories(spark, splits, Shelf())} == directories
    finally:
        spark.conf.set(SHUFFLE_TASKS, str(before))
    assert len(directories) == 1
    assert kept == [TASKS_PER_GROUP]


# --- the same as from this machine ----------------------------------------------------------------


def write_logs(golden: Callable[[str], Path], root: Path) -> str:
    """Golden directories, logs with all planted faults, and a damaged one; a pattern of them."""
    for seed in range(2):
        for log in Context(seed, steps=30).logs:
            log.write(root / f"broker-{seed}")
    damaged = min((root / "broker-0").rglob("*.log"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2 :] = os.urandom(len(data) - len(data) // 2)
    damaged.write_bytes(data)
    (root / "golden").symlink_to(golden("kafka-4.3.1") / "hard")
    return f"{root}/*"


@pytest.mark.exhaustive
def test_any_bound(
    eoctl: Callable[..., Any],
    spark: SparkSession,
    golden: Callable[[str], Path],
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some summaries below it, some above, all below and all above; the driver holds none or some."""
    root = tmp_path / "logs"
    root.mkdir()
    paths = write_logs(golden, root)
    sizes = sorted(
        len(pack_partition(each)) for each in summaries_of(list_places([paths])).values()
    )
    count, largest, middle = len(sizes), sizes[-1], sizes[-len(sizes) // 4]
    assert count > 20
    assert sizes[0] < middle < largest
    words = ("spark-audit", paths, "--report", "all", "--output", "jsonl")
    local = eoctl(*words, "--engine", "local", "--jobs", "1")
    errors = local.errors.replace("engine: local", "engine: spark")
    assert '"kind":"corrupt-range"' in local.text
    # Bytes at once -> jobs at least and at most: all come with the first one; some do; one or
    # more at a time, whole; the larger ones in slices.
    bounds = {
        largest * count: (1, 1),
        middle * count: (2, count),
        largest: (3, count),
        middle: (count // 4 + 3, 4 * count),
    }
    for at_once, (least, most) in bounds.items():
        monkeypatch.setattr(results_module, "AT_ONCE_BYTES", at_once)
        for held_bytes in (0, sum(sizes) // 2, held_module.HELD_BYTES):
            with monkeypatch.context() as patch:
                patch.setattr(held_module, "HELD_BYTES", held_bytes)
                jobs = Jobs(patch)
                found = eoctl(*words, "--engine", "spark")
            assert (found.stdout, found.status) == (local.stdout, local.status)
            assert found.errors == errors
            assert least <= len(jobs.brought_bytes) <= most
            assert sum(jobs.brought_bytes) == sum(sizes)
            assert max(jobs.brought_bytes) <= at_once
            assert (jobs.largest_bytes < largest) == (at_once == middle)
            assert [*temporary.iterdir()] == []
            assert persisted(spark) == 0


@pytest.mark.exhaustive
def test_what_was_read_is_not_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first job the files may hold anything: the rest comes from what Spark keeps."""
    for log in Context(3, steps=30).logs:
        log.write(tmp_path)
    listing = list_places([str(tmp_path)])
    expected = {path: pack_partition(each) for path, each in summaries_of(listing).items()}
    largest = max(map(len, expected.values()))

    def overwrite() -> None:
        for each in tmp_path.rglob("*.log"):
            each.write_bytes(b"\xff" * each.stat().st_size)

    monkeypatch.setattr(results_module, "AT_ONCE_BYTES", largest // 2)
    jobs = Jobs(monkeypatch, overwrite)
    found = summarize_directories(spark, splits_in(listing), Shelf(0))
    assert {path: each.packed() for path, each in found.items()} == expected
    assert len(jobs.brought_bytes) > 2


# --- one that is larger than Spark's own bound ----------------------------------------------------


def write_many_producers(directory: Path, count: int) -> None:
    """Write a batch of each of so many producers, whose ids do not pack well."""
    random, crc32c = Random(count), load_crc32c()
    batch = bytearray(encoded(Batch(kind="txn"), 0))
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}.log").open("wb") as file:
        for number in range(count):
            pack_into(">q", batch, 0, number)
            pack_into(">q", batch, 43, random.getrandbits(62))
            pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
            file.write(batch)


@contextmanager
def max_result(session: SparkSession, size: str) -> Iterator[None]:
    """Have Spark give up jobs whose results are larger."""
    jvm: Any = session.sparkContext._jsc
    conf = jvm.sc().conf()
    before = conf.get(MAX_RESULT, "1g")
    conf.set(MAX_RESULT, size)
    try:
        yield
    finally:
        conf.set(MAX_RESULT, before)


@pytest.mark.exhaustive
def test_one_directory_larger_than_a_result_may_be(
    eoctl: Callable[..., Any],
    spark: SparkSession,
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_many_producers(tmp_path / "logs" / "many-0", 20_000)
    write_many_producers(tmp_path / "logs" / "few-0", 3)
    words = ("spark-audit", tmp_path / "logs", "--report", "all", "--output", "jsonl")
    local = eoctl(*words, "--engine", "local", "--jobs", "1")
    assert len(local.stdout.splitlines()) > 20_000
    monkeypatch.setattr(held_module, "HELD_BYTES", 1000)
    with max_result(spark, "400k"):
        whole = eoctl(*words, "--engine", "spark")
        monkeypatch.setattr(results_module, "AT_ONCE_BYTES", 300 << 10)
        jobs = Jobs(monkeypatch)
        sliced = eoctl(*words, "--engine", "spark")
    assert (sliced.stdout, sliced.status) == (local.stdout, local.status)
    assert sum(jobs.brought_bytes) > 400 << 10
    assert jobs.largest_bytes == 300 << 10
    # What it takes in one go is larger than the setting lets it.
    assert (whole.status, whole.stdout) == (3, b"")
    assert MAX_RESULT in whole.errors
    assert "try" in whole.errors or "next_step" in whole.errors
    assert "Traceback" not in whole.errors
    assert [*temporary.iterdir()] == []
    assert persisted(spark) == 0


# --- what goes wrong ------------------------------------------------------------------------------


def frame_of(session: SparkSession, rows: dict[str, bytes]) -> DataFrame:
    values = [(path, bytearray(data)) for path, data in rows.items()]
    return session.createDataFrame(values, "directory string, whole binary")


ROWS = {"/a-0": b"a" * 10, "/b-0": b"b" * 200, "/c-0": b"c" * 90, "/d-0": b""}


@pytest.mark.share(1)
@pytest.mark.parametrize("at_once_bytes", [60, 400, 4000])
def test_a_directory_without_a_row_is_no_empty_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, at_once_bytes: int
) -> None:
    monkeypatch.setattr(results_module, "AT_ONCE_BYTES", at_once_bytes)
    rows = frame_of(spark, ROWS)
    found = bring_summaries(spark, rows, ROWS, Shelf(100))
    assert {path: each.packed() for path, each in found.items()} == ROWS
    for wanted in ({*ROWS, "/e-0"}, {*ROWS} - {"/b-0"}):
        with pytest.raises(SparkJobError, match=r"rows for \d directories, differing in /[be]-0"):
            bring_summaries(spark, rows, wanted, Shelf(100))
    with pytest.raises(SparkJobError, match="8 rows for 4 directories"):
        bring_summaries(spark, rows.union(rows), ROWS, Shelf(100))
    assert persisted(spark) == 0


def sent_anew(
    monkeypatch: pytest.MonkeyPatch, session: SparkSession, versions: list[bytes]
) -> bytes:
    """Bring one of 100 bytes in slices; each job sees another version, of any length."""
    monkeypatch.setattr(results_module, "AT_ONCE_BYTES", 40)
    collected = results_module._collected
    left = [b"x" * 100, *versions]

    begun: list[bytes] = []  # the slices of this try, by the version that they are of

    def changing(_: SparkSession, rows: DataFrame) -> list[tuple[Any, ...]]:
        now = left.pop(0) if len(left) > 1 else left[0]
        ((path, _size, *others),) = collected(session, rows)
        if len(others) == 1:  # the first job
            return [(path, len(now), None)]
        part = now[40 * len(begun) : 40 * len(begun) + 40]
        begun.append(now)
        if begun[0] != now or 40 * len(begun) >= len(now):
            begun.clear()
        return [(path, len(now), zlib.crc32(now), part)]

    monkeypatch.setattr(results_module, "_collected", changing)
    rows = frame_of(session, {"/a-0": b"x" * 100})
    return bring_summaries(session, rows, ["/a-0"], Shelf(0))["/a-0"].packed()


def test_slices_of_two_versions_are_not_put_together(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor was lost, and its broker has written meanwhile: the summary is another one."""
    old, new = b"o" * 100, b"n" * 90
    with monkeypatch.context() as patch:
        assert sent_anew(patch, spark, [old, new, new, new, new]) == new
    with (
        monkeypatch.context() as patch,
        pytest.raises(SparkJobError, match=f"has changed {TRIES} times") as caught,
    ):
        sent_anew(patch, spark, [old, new] * TRIES * 2)
    assert "/a-0" in caught.value.message


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_is_left_of_what_ends_early(
    spark: SparkSession,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    monkeypatch.setattr(results_module, "AT_ONCE_BYTES", 400)
    shelf = Shelf(0)
    put = shelf.put

    def failing(packed: bytes) -> Any:
        if len(packed) == len(ROWS["/b-0"]):
            assert persisted(spark) > 0
            raise error
        return put(packed)

    monkeypatch.setattr(shelf, "put", failing)
    with pytest.raises(error):
        bring_summaries(spark, frame_of(spark, ROWS), ROWS, shelf)
    assert shelf.in_file_bytes > 0
    assert [*temporary.iterdir()] == []
    assert persisted(spark) == 0


def test_no_place_for_what_does_not_fit(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def refused() -> Any:
        raise PermissionError(EACCES, os.strerror(EACCES))

    monkeypatch.setattr(held_module, "HELD_BYTES", 1000)
    monkeypatch.setattr(held_module, "_new_file", refused)
    outcome = eoctl("spark-audit", golden("kafka-4.3.1") / "clean", "--engine", "spark")
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert str(temporary) in outcome.errors
    assert "try: TMPDIR=DIR" in outcome.errors
    assert "Traceback" not in outcome.errors
