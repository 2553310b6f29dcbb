"""The audit on Spark: a task summarizes splits, then tasks join them in a tree.

Only packed summaries cross to the JVM. A task joins RUN_SEGMENTS neighbouring segments of one
directory, the next stage as many of those runs, until a directory is one: nothing holds all pieces
of a large partition at once. They come to the driver some at a time (`eoctl.spark.results`). Where
a seam cannot be resolved without its batches, the joining task reads segments again (see
`recovery.summaries.partition`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from eoctl.spark.datasource import KafkaLogAudit, register
from eoctl.spark.executors import context_of
from eoctl.spark.results import DIRECTORY, WHOLE, bring_summaries
from eoctl.spark.rows.kept_modules import keep_modules
from eoctl.spark.rows.source_options import splits_text
from eoctl.spark.session import job_errors
from eoctl.spark.stages import stages_told
from recovery.summaries.codec import (
    pack_partition,
    pack_run,
    unpack_piece,
    unpack_run,
    unpack_split,
)
from recovery.summaries.partition import (
    ReadPiece,
    join_pieces,
    join_runs,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from recovery.summaries.codec import HeldSummary, Shelf
    from storage.places.splits import Split

RUN_SEGMENTS = 16  # of a directory, and then runs of them, that one task joins
# To each group that is joined: where a hash puts them, several may meet in one task.
TASKS_PER_GROUP = 4
MOST_TASKS = 200  # where Spark is told to choose: some have "auto"
UDF_ROWS = "spark.sql.execution.python.udf.maxRecordsPerBatch"


def read_pieces(session: SparkSession, splits: Sequence[Split]) -> Iterator[ReadPiece]:
    """Summarize splits, in any order.

    Raises:
        SparkJobError: Spark gave the job up; nothing in the files makes it do so.
    """
    with job_errors(), stages_told(context_of(session)):
        rows = [tuple(row) for row in _pieces(session, splits).select("split", "piece").collect()]
    for split, piece in rows:
        yield ReadPiece(unpack_split(bytes(split)), unpack_piece(bytes(piece)))


def summarize_directories(
    session: SparkSession, splits: Sequence[Split], shelf: Shelf
) -> dict[str, HeldSummary]:
    """Summarize the directories that the splits are of, joined where Spark likes.

    Args:
        session: that does it.
        splits: all of each segment.
        shelf: where the summaries are held.

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
    """Have Spark hand rows to functions in Python one by one, not 100 at once.

    Each row is a group of packed summaries, so a task of many groups would hold 100 of them. Where
    a task has one or so it is not needed, and would cost: workers are kept by their environment,
    which has this number, so that those that have read would not be those that join.

    Args:
        session: whose setting it is; it has its own again afterwards.
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
        with suppress(Exception):  # Spark may be gone, which is what ends this
            session.conf.set(UDF_ROWS, str(known))


def _runs_count(segments_count: int) -> int:
    return -(-segments_count // RUN_SEGMENTS)


def _joined(rows: DataFrame, names: list[str], join: Any, tasks_count: int) -> DataFrame:
    """Join the rows of each directory that have one number.

    What is persisted keeps the tasks that it is given: Spark leaves no empty ones of them out.
    """
    from pyspark.sql import functions as F  # noqa: N812

    gathered = rows.repartition(tasks_count, "directory", "number")
    gathered = gathered.groupBy("directory", "number").agg(
        F.collect_list(F.struct(*names)).alias("rows")
    )
    return gathered.select("directory", "number", join("rows").alias("whole"))


def join_rows(rows: Iterable[Any]) -> bytes:
    """Join the rows of some segments of one directory; runs in a task."""
    pieces = [
        ReadPiece(unpack_split(bytes(row["split"])), unpack_piece(bytes(row["piece"])))
        for row in rows
    ]
    packed = pack_run(join_pieces(pieces))
    keep_modules()
    return packed


def join_joined(rows: Iterable[Any]) -> bytes:
    """Join what `join_rows` has joined; runs in a task."""
    ordered = sorted(rows, key=lambda row: int(row["place"]))
    return pack_run(join_runs(unpack_run(bytes(row["whole"])) for row in ordered))


def finish_run(run: Any) -> bytes:
    """Return what is sent to the driver of a directory."""
    return pack_partition(partition_of(unpack_run(bytes(run))))


def _pieces(session: SparkSession, splits: Sequence[Split]) -> DataFrame:
    register(session)
    source = session.read.format(KafkaLogAudit.name())
    return source.option("splits", splits_text(splits)).load()
