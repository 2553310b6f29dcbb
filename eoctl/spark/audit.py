"""The audit on Spark: a task summarizes splits, then one task per directory joins them.

Only packed summaries cross to the JVM. Where a seam cannot be resolved without its batches, the
joining task reads a segment again (see `recovery.summaries.partition`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.spark.datasource import KafkaLogAudit, register
from eoctl.spark.rows.source_options import splits_text
from eoctl.spark.session import job_errors
from eoctl.spark.stages import stages_told
from recovery.summaries.codec import (
    pack_partition,
    unpack_partition,
    unpack_piece,
    unpack_split,
)
from recovery.summaries.partition import PartitionSummary, ReadPiece, join_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from storage.places.splits import Split


def read_pieces(session: SparkSession, splits: Sequence[Split]) -> Iterator[ReadPiece]:
    """Summarize splits, in any order.

    Raises:
        SparkJobError: Spark gave the job up; nothing in the files makes it do so.
    """
    with job_errors(), stages_told(session.sparkContext):
        rows = [tuple(row) for row in _pieces(session, splits).select("split", "piece").collect()]
    for split, piece in rows:
        yield ReadPiece(unpack_split(bytes(split)), unpack_piece(bytes(piece)))


def summarize_directories(
    session: SparkSession, splits: Sequence[Split]
) -> dict[str, PartitionSummary]:
    """Summarize the directories that the splits are of, joined where Spark likes.

    Raises:
        SparkJobError: as above.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    join = F.udf(join_rows, "binary", useArrow=False)
    with job_errors(), stages_told(session.sparkContext):
        joined = (
            _pieces(session, splits)
            .groupBy("directory")
            .agg(F.collect_list(F.struct("split", "piece")).alias("pieces"))
            .select("directory", join("pieces").alias("whole"))
        )
        rows = [tuple(row) for row in joined.collect()]
    return {directory: unpack_partition(bytes(whole)) for directory, whole in rows}


def join_rows(rows: Iterable[Any]) -> bytes:
    """Join the rows of one directory; runs in a task."""
    pieces = [
        ReadPiece(unpack_split(bytes(row["split"])), unpack_piece(bytes(row["piece"])))
        for row in rows
    ]
    return pack_partition(join_partition(pieces))


def _pieces(session: SparkSession, splits: Sequence[Split]) -> DataFrame:
    register(session)
    source = session.read.format(KafkaLogAudit.name())
    return source.option("splits", splits_text(splits)).load()
