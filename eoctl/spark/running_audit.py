"""Running audit: counts by topic of new data in the logs, by micro-batches.

    query = start_audit(spark, "/var/lib/kafka", "/data/audit")

    /data/audit/counts/batch=7/...    a row for each topic, as of micro-batch 7
    /data/audit/state/batch=7/...     a packed summary for each partition (the last two are kept)
    /data/audit/checkpoint            Spark's

A micro-batch joins new data with the state of the previous micro-batch, and writes a new state
under its own number. After a crash, Spark repeats the micro-batch from the same state, so it counts
once.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import eoctl.spark.own_packages  # isort: skip - says what is missing before the rest fails to import

from eoctl.spark.datasource import KafkaLogAuditStream, register
from eoctl.spark.executors import is_remote
from recovery.summaries.codec import pack_summary, unpack_piece, unpack_split, unpack_summary
from recovery.summaries.segment import read_split
from recovery.summaries.summary import Before, Piece, Summary, merge_all
from storage.errors import UsageError
from storage.files.uris import is_uri
from storage.places.log_reader import GONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from storage.places.splits import Split

_IMPORTED_FOR_ITS_EFFECT = eoctl.spark.own_packages
PARTITION = ("broker", "topic", "partition")
COUNTS = (
    "batches",
    "records",
    "bytes",
    "corrupt_batches",
    "committed_transactions",
    "aborted_transactions",
    "aborted_batches",
    "open_transactions",
    "duplicate_batches",
)
STATE_DDL = "broker string, topic string, partition int, summary binary"
FIGURES_DDL = "struct<top_offset: bigint, " + ", ".join(f"{each}: bigint" for each in COUNTS) + ">"


def start_audit(
    session: SparkSession,
    path: str,
    to: str,
    *,
    options: Mapping[str, str] | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start the query, or continue an earlier query with the same `to`.

    Args:
        session: of Spark 4.2 or later.
        path: log dirs, as for the sources.
        to: place of counts, state and checkpoint: a path or URI that the executors reach too.
        options: of the source: `maxOffsetsPerTrigger`, `until`, `failOnDataLoss` and others.
        trigger: as for `DataStreamWriter.trigger`. The default reads the current data and ends.

    Raises:
        UsageError: `to` is a relative path, or the session is of Spark Connect.
    """
    if not is_uri(to) and not os.path.isabs(to):  # noqa: PTH117 - it may be a URI
        raise UsageError(f"{to}: executors have other working directories", next_step="/DIR")
    if is_remote(session):
        raise UsageError(
            "an audit that goes on keeps its state through the JVM, which Spark Connect lacks",
            next_step="start it below spark-submit, or read the sources as streams",
        )
    register(session)
    stream = session.readStream.format(KafkaLogAuditStream.name()).options(**(options or {}))
    writer = stream.load(path).writeStream.foreachBatch(partial(take_batch, to))
    writer = writer.option("checkpointLocation", f"{to}/checkpoint")
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def take_batch(to: str, rows: DataFrame, number: int) -> None:
    """Join a micro-batch with the state before it, and write state and counts."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    session = rows.sparkSession
    new = rows.select(*PARTITION, "split", "piece", "from_offset", "to_offset")
    new = new.withColumn("summary", F.lit(None).cast("binary"))
    if number > 0:
        before = session.read.schema(STATE_DDL).parquet(f"{to}/state/batch={number - 1}")
        new = new.unionByName(before, allowMissingColumns=True)
    row = F.struct("split", "piece", "from_offset", "to_offset", "summary")
    join = F.udf(join_state, "binary", useArrow=False)
    joined = new.groupBy(*PARTITION).agg(F.collect_list(row).alias("rows"))
    state = joined.select(*PARTITION, join("rows").alias("summary"))
    state.write.mode("overwrite").parquet(f"{to}/state/batch={number}")
    write_counts(session, to, number)
    forget(session, f"{to}/state/batch={number - 2}")


def join_state(rows: Iterable[Any]) -> bytes:
    """Join the new data of one partition with its earlier summary, in a task."""
    pieces, known = [], Summary()
    for row in rows:
        if row["summary"] is not None:
            known = unpack_summary(bytes(row["summary"]))
        else:
            offsets = int(row["from_offset"]), int(row["to_offset"])
            pieces.append((unpack_split(bytes(row["split"])), offsets, bytes(row["piece"])))
    pieces.sort(key=lambda each: (each[0].place.base_offset, each[0].start_pos))
    found = [
        Piece(unpack_piece(packed).summary, partial(_again, split, offsets))
        for split, offsets, packed in pieces
    ]
    return pack_summary(merge_all([Piece(known, lambda _: None), *found]))


def _again(split: Split, offsets: tuple[int, int], before: Before) -> Summary | None:
    again = read_split(split, before, offsets)
    is_lost = any(each.kind == GONE or each.is_unreadable for each in again.findings)
    return None if is_lost else again.summary


def write_counts(session: SparkSession, to: str, number: int) -> None:
    """Write the counts by topic, from the fullest replica of each partition."""
    from pyspark.sql import functions as F  # noqa: N812

    state = session.read.schema(STATE_DDL).parquet(f"{to}/state/batch={number}")
    figures = F.udf(figures_of, FIGURES_DDL, useArrow=False)
    each = state.select(*PARTITION, figures("summary").alias("found"))
    fullness = F.struct("found.top_offset", "found.batches", "broker")
    best = each.groupBy("topic", "partition").agg(F.max_by("found", fullness).alias("found"))
    # An unknown figure of a partition makes the topic's figure unknown.
    sums = [
        F.when(F.count(f"found.{name}") == F.count("*"), F.sum(f"found.{name}")).alias(name)
        for name in COUNTS
    ]
    counts = best.groupBy("topic").agg(F.count("*").alias("partitions_count"), *sums)
    counts.coalesce(1).write.mode("overwrite").parquet(f"{to}/counts/batch={number}")


def figures_of(packed: Any) -> tuple[int | None, ...]:
    """Return the figures of a partition, in a task."""
    summary = unpack_summary(bytes(packed))
    figures = summary.figures()
    return summary.extent.top_offset, *(figures[name] for name in COUNTS)


def forget(session: SparkSession, path: str) -> None:
    """Remove a state that is not needed, because Spark repeats at most one micro-batch."""
    jvm: Any = session._jvm  # noqa: SLF001 - there is no other way to the file system
    target = jvm.org.apache.hadoop.fs.Path(path)
    configuration = session._jsc.hadoopConfiguration()  # noqa: SLF001
    target.getFileSystem(configuration).delete(target, True)
