"""The audit as a Spark job: a task counts over segments, then one task per partition joins them.

Only the packed audits of segments cross to the JVM. Where a segment repeats sequences of earlier
ones, the joining task reads that segment once more (see `recovery.audit`).
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.spark.datasource import DEFAULT_PACK_BYTES, KafkaLogAudit
from eoctl.spark.session import SparkJobError
from recovery.audit import (
    SUMMARY_FIELDS,
    UNSEQUENCED_TOPICS,
    AuditedPiece,
    merge_all,
    unpack_audit,
)
from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from recovery.sequence_ranges import SequenceRanges

MAX_NOTES_COUNT = 10
PIECE_COLUMNS = (
    "path",
    "segment_base_offset",
    "is_active",
    "audit",
    "problems_count",
    "notes",
    "is_corrupt",
    "is_unreadable",
)
WHOLE_SCHEMA = (
    "struct<"
    + "".join(f"{name}: bigint, " for name in SUMMARY_FIELDS)
    + "problems_count: bigint, notes: array<string>, is_corrupt: boolean, is_unreadable: boolean>"
)


class PartitionAudit(NamedTuple):
    """The audit of one partition directory; the counts by the names of `recovery.audit`."""

    topic: str
    partition: int
    directory: str
    counts: dict[str, int | None]
    problems_count: int
    notes: tuple[str, ...]
    is_corrupt: bool
    is_unreadable: bool


def audit_directories(
    session: SparkSession, paths: Sequence[str], *, pack_bytes: int = DEFAULT_PACK_BYTES
) -> list[PartitionAudit]:
    """Audit all partitions behind the paths, sorted by topic, partition and directory.

    Partitions without segments are not among them.

    Args:
        session: runs the job.
        paths: absolute, since the tasks run elsewhere.
        pack_bytes: small segments share a task up to this size.

    Raises:
        SparkJobError: Spark gave the job up; nothing in the directories makes it do so.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    session.dataSource.register(KafkaLogAudit)
    join = F.udf(join_pieces, WHOLE_SCHEMA, useArrow=False)
    try:
        pieces = (
            session.read.format(KafkaLogAudit.name())
            .options(paths=json.dumps(paths), pack_bytes=pack_bytes)
            .load()
        )
        joined = (
            pieces.groupBy("topic", "partition", "directory")
            .agg(F.collect_list(F.struct(*PIECE_COLUMNS)).alias("pieces"))
            .select("topic", "partition", "directory", join("topic", "pieces").alias("whole"))
        )
        rows = joined.collect()
    except (PySparkException, Py4JError) as exc:
        raise SparkJobError(
            f"Spark gave the job up: {_first_line(exc)}",
            next_step="EOCTL_DEBUG=1 shows all of Spark's words",
        ) from exc
    return sorted((_partition_audit(row.asDict(recursive=True)) for row in rows), key=_order)


def join_pieces(topic: str, pieces: list[Any]) -> tuple[Any, ...]:
    """Join the rows of one partition's segments; runs in a task. Returns WHOLE_SCHEMA's values."""
    pieces = sorted(pieces, key=itemgetter("segment_base_offset"))
    notes = [note for piece in pieces for note in piece["notes"]]
    audited = [
        AuditedPiece(unpack_audit(bytes(piece["audit"])), _recount(topic, piece, notes))
        for piece in pieces
    ]
    summary = merge_all(audited).summary()
    if len(notes) > MAX_NOTES_COUNT:
        more = len(notes) - MAX_NOTES_COUNT
        notes[MAX_NOTES_COUNT:] = [f"and {more} more notes on that partition"]
    return (
        *summary.values(),
        sum(piece["problems_count"] for piece in pieces),
        notes,
        any(piece["is_corrupt"] for piece in pieces),
        any(piece["is_unreadable"] for piece in pieces),
    )


def _recount(topic: str, piece: Any, notes: list[str]) -> Callable[[SequenceRanges], int | None]:
    def recount(before: SequenceRanges) -> int | None:
        from recovery.segment_audit import audit_segment

        try:
            found = audit_segment(
                piece["path"],
                base_offset=piece["segment_base_offset"],
                is_active=piece["is_active"],
                has_sequences=topic not in UNSEQUENCED_TOPICS,
                before=before,
            )
        except AccessError as exc:
            notes.append(f"{exc} (when it was read again for duplicates)")
            return None
        return found.audit.duplicate_batches

    return recount


def _partition_audit(row: dict[str, Any]) -> PartitionAudit:
    whole = row["whole"]
    return PartitionAudit(
        topic=row["topic"],
        partition=row["partition"],
        directory=row["directory"],
        counts={name: whole[name] for name in SUMMARY_FIELDS},
        problems_count=whole["problems_count"],
        notes=tuple(whole["notes"]),
        is_corrupt=whole["is_corrupt"],
        is_unreadable=whole["is_unreadable"],
    )


def _order(audit: PartitionAudit) -> tuple[str, int, str]:
    return audit[:3]


def _first_line(exc: Exception) -> str:
    lines: Iterable[str] = str(exc).splitlines()
    return next((line.strip() for line in lines if line.strip()), type(exc).__name__)
