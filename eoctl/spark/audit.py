"""Audit on Spark: tasks summarize splits, then tasks join the summaries in a tree.

Only packed summaries cross to the JVM. A task joins RUN_SEGMENTS neighbouring segments of one
directory. The next stage joins as many of those runs, until each directory is one run. No process
has all pieces of a large partition at once. The summaries come to the driver in portions. If a seam
needs the batches of its segments, the joining task reads the segments again (see
`recovery.summaries.partition`).
"""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.spark.datasource import KafkaLogAudit, register
from eoctl.spark.executors import SparkJobError, context_of
from eoctl.spark.rows.gc_freeze import keep_modules
from eoctl.spark.rows.source_options import splits_text
from eoctl.spark.session import job_errors, stages_reported
from recovery.summaries.codec import (
    pack_partition,
    pack_run,
    unpack_piece,
    unpack_run,
    unpack_split,
)
from recovery.summaries.partition import ReadPiece, join_pieces, join_runs, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from recovery.summaries.codec import HeldSummary, Shelf
    from storage.places.splits import Split


# -- fetch the packed summaries of directories to the driver, in portions.
#
# The rows stay where they were joined, persisted. One job reads all sizes, and fetches the small
# rows. Further jobs fetch up to AT_ONCE_BYTES of the other rows, and a larger row in slices. So
# Spark's `maxResultSize` and the driver's memory need less room than all summaries, or the largest.


AT_ONCE_BYTES = 64 << 20
TRIES = 4  # for a summary that was computed again between its slices
DIRECTORY, WHOLE = "directory", "whole"


class _FarSummary(NamedTuple):
    """A summary that is still on an executor."""

    directory: str
    size_bytes: int


def bring_summaries(
    session: SparkSession, rows: DataFrame, directories: Collection[str], shelf: Shelf
) -> dict[str, HeldSummary]:
    """Put the packed summaries of directories on a shelf.

    Args:
        session: owner of the rows.
        rows: the columns `directory` and `whole`, one row for each directory.
        directories: directories that have rows.
        shelf: target of the summaries.

    Raises:
        SparkJobError: Spark gave a job up, or the rows have other directories.
        AccessError: from the shelf.
    """
    with job_errors():
        kept = rows.persist()
    try:
        found = _brought(session, kept, directories, shelf)
    except BaseException:
        with suppress(Exception):  # Spark may be gone, which raised the error
            kept.unpersist()
        raise
    with suppress(Exception):  # all rows are fetched
        kept.unpersist()
    return found


def _brought(
    session: SparkSession, rows: DataFrame, directories: Collection[str], shelf: Shelf
) -> dict[str, HeldSummary]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    small_bytes = AT_ONCE_BYTES // max(len(directories), 1)
    size, whole = F.length(WHOLE), F.col(WHOLE)
    found: dict[str, HeldSummary] = {}
    waiting: list[_FarSummary] = []
    asked = rows.select(DIRECTORY, size, F.when(size <= small_bytes, whole))
    came = _collected(session, asked)
    _require(directories, [each[0] for each in came])
    for directory, size_bytes, packed in came:
        if packed is None:
            waiting.append(_FarSummary(directory, size_bytes))
        else:
            found[directory] = shelf.put(packed)
    del came
    for wave in _waves(sorted(waiting)):
        names = [each.directory for each in wave]
        if len(wave) == 1 and wave[0].size_bytes > AT_ONCE_BYTES:
            found[names[0]] = shelf.put(_in_slices(session, rows, names[0]))
            continue
        wanted = rows.where(F.col(DIRECTORY).isin(names)).select(DIRECTORY, WHOLE)
        came = _collected(session, wanted)
        _require(names, [each[0] for each in came])
        found.update((directory, shelf.put(packed)) for directory, packed in came)
    return found


def _waves(waiting: Iterable[_FarSummary]) -> Iterator[list[_FarSummary]]:
    """Yield as many summaries at a time as fit into AT_ONCE_BYTES, at least one."""
    wave: list[_FarSummary] = []
    for each in waiting:
        if wave and sum(one.size_bytes for one in wave) + each.size_bytes > AT_ONCE_BYTES:
            yield wave
            wave = []
        wave.append(each)
    if wave:
        yield wave


def _in_slices(session: SparkSession, rows: DataFrame, directory: str) -> bytearray:
    """Fetch a large summary in slices.

    If an executor is lost, Spark computes its rows again, from files that may have changed. Slices
    belong to one summary only if it has the same length and checksum each time.
    """
    from pyspark.sql import functions as F  # noqa: N812

    row = rows.where(F.col(DIRECTORY) == directory)
    identity = [F.length(WHOLE), F.crc32(WHOLE)]
    for _ in range(TRIES):
        packed = bytearray()
        first: list[Any] = []
        while True:
            part = F.substring(WHOLE, len(packed) + 1, AT_ONCE_BYTES)
            came = _collected(session, row.select(DIRECTORY, *identity, part))
            _require([directory], [each[0] for each in came])
            ((_, *reported, data),) = came
            first = first or reported
            packed += data
            if reported != first or not data or len(packed) >= first[0]:
                break
        if reported == first and [len(packed), zlib.crc32(packed)] == first:
            return packed
    raise SparkJobError(
        f"{directory}: what was found in it has changed {TRIES} times while it was sent",
        next_step="its broker writes, and executors are lost: call it again",
    )


def _collected(session: SparkSession, rows: DataFrame) -> list[tuple[Any, ...]]:
    with job_errors(), stages_reported(context_of(session)):
        return [tuple(row) for row in rows.collect()]


def _require(wanted: Collection[str], came: Collection[str]) -> None:
    """Check that each directory has one row, because a missing row would count as empty."""
    if sorted(wanted) == sorted(came):
        return
    differing = sorted({*wanted} ^ {*came}) or sorted(came)
    raise SparkJobError(
        f"Spark gave {len(came)} rows for {len(wanted)} directories, differing in {differing[0]}",
        next_step="call it again, or --engine local",
    )


# -- audit


RUN_SEGMENTS = 16  # segments of a directory, and then runs, that one task joins
# Per joined group, because a hash may put several groups into one task.
TASKS_PER_GROUP = 4
MOST_TASKS = 200  # if Spark chooses the number, as with "auto"
UDF_ROWS = "spark.sql.execution.python.udf.maxRecordsPerBatch"


def read_pieces(session: SparkSession, splits: Sequence[Split]) -> Iterator[ReadPiece]:
    """Summarize splits, in any order.

    Raises:
        SparkJobError: Spark gave the job up. No content of a file causes this.
    """
    with job_errors(), stages_reported(context_of(session)):
        rows = [tuple(row) for row in _pieces(session, splits).select("split", "piece").collect()]
    for split, piece in rows:
        yield ReadPiece(unpack_split(bytes(split)), unpack_piece(bytes(piece)))


def summarize_directories(
    session: SparkSession, splits: Sequence[Split], shelf: Shelf
) -> dict[str, HeldSummary]:
    """Summarize the directories of the splits, joined on any executor.

    Args:
        session: the session that does it.
        splits: all splits of each segment.
        shelf: target of the summaries.

    Raises:
        SparkJobError: as above.
        AccessError: there is no room for them.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    segments = Counter(each.place.directory for each in splits if each.start_pos == 0)
    counts = [_runs_count(each) for each in segments.values()] or [1]
    with job_errors():
        most_text = str(session.conf.get("spark.sql.shuffle.partitions"))
    most_tasks = int(most_text) if most_text.isdecimal() else MOST_TASKS
    groups_count = sum(counts)
    pieces = _pieces(session, splits)
    number = F.floor(F.col("segment") / RUN_SEGMENTS)
    join = F.udf(join_rows, "binary", useArrow=False)
    tasks = min(TASKS_PER_GROUP * sum(counts), most_tasks)
    runs = _joined(pieces.withColumn("number", number), ["split", "piece"], join, tasks)
    while max(counts) > 1:
        counts = [_runs_count(each) for each in counts]
        tasks = min(TASKS_PER_GROUP * sum(counts), most_tasks)
        numbered = runs.select(
            "directory",
            F.col("number").alias("place"),
            F.floor(F.col("number") / RUN_SEGMENTS).alias("number"),
            "whole",
        )
        join = F.udf(join_joined, "binary", useArrow=False)
        runs = _joined(numbered, ["place", "whole"], join, tasks)
    finish = F.udf(finish_run, "binary", useArrow=False)
    rows = runs.select(F.col("directory").alias(DIRECTORY), finish("whole").alias(WHOLE))
    with one_group_at_a_time(session, is_needed=groups_count > most_tasks):
        return bring_summaries(session, rows, {each.place.directory for each in splits}, shelf)


@contextmanager
def one_group_at_a_time(session: SparkSession, *, is_needed: bool) -> Iterator[None]:
    """Make Spark pass rows to Python functions one by one, instead of 100 at once.

    Each row is a group of packed summaries, so a task with many groups would have 100 of them in
    memory. With about one group per task this is not needed, and costs time. Spark keeps workers by
    their environment, which has this number, so the workers that have read could not join.

    Args:
        session: its setting is restored afterwards.
        is_needed: a task has several groups.
    """
    if not is_needed:
        yield
        return
    known = session.conf.get(UDF_ROWS)
    session.conf.set(UDF_ROWS, "1")
    try:
        yield
    finally:
        with suppress(Exception):  # Spark may be gone, which raised the error
            session.conf.set(UDF_ROWS, str(known))


def _runs_count(segments_count: int) -> int:
    return -(-segments_count // RUN_SEGMENTS)


def _joined(rows: DataFrame, names: list[str], join: Any, tasks_count: int) -> DataFrame:
    """Join the rows of each directory and number.

    Persisted rows keep their number of tasks, because Spark does not leave out empty tasks.
    """
    from pyspark.sql import functions as F  # noqa: N812

    gathered = rows.repartition(tasks_count, "directory", "number")
    gathered = gathered.groupBy("directory", "number").agg(
        F.collect_list(F.struct(*names)).alias("rows")
    )
    return gathered.select("directory", "number", join("rows").alias("whole"))


def join_rows(rows: Iterable[Any]) -> bytes:
    """Join the rows of some segments of one directory, in a task."""
    pieces = [
        ReadPiece(unpack_split(bytes(row["split"])), unpack_piece(bytes(row["piece"])))
        for row in rows
    ]
    packed = pack_run(join_pieces(pieces))
    keep_modules()
    return packed


def join_joined(rows: Iterable[Any]) -> bytes:
    """Join the results of `join_rows`, in a task."""
    ordered = sorted(rows, key=lambda row: int(row["place"]))
    return pack_run(join_runs(unpack_run(bytes(row["whole"])) for row in ordered))


def finish_run(run: Any) -> bytes:
    """Return the packed summary of a directory for the driver."""
    return pack_partition(partition_of(unpack_run(bytes(run))))


def _pieces(session: SparkSession, splits: Sequence[Split]) -> DataFrame:
    register(session)
    source = session.read.format(KafkaLogAudit.name())
    return source.option("splits", splits_text(splits)).load()
