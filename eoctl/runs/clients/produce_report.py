"""What came of a run of `eoctl produce`, as it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.runs.appended import AppendAnswer, places_text
from eoctl.runs.told import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.clients.partitions.open_partition import OpenPartition
    from eoctl.clients.producing.producer import PartitionProducer
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.writing.partition_store import FileChange


class ProduceReport(NamedTuple):
    """The row that is printed of a partition. Bytes are those of the batches in the log."""

    topic: str
    partition: int
    applied: bool
    records: int
    batches: int
    bytes: int
    duplicates: int
    skipped: int
    committed: int
    aborted: int
    base_offset: int | None
    last_offset: int | None
    segments_rolled: int
    producer_id: int
    producer_epoch: int
    base_sequence: int | None
    last_sequence: int | None
    leader_epoch: int
    path: str


class ProduceResult(NamedTuple):
    """What came of a run. `error` ended it early; what the report says was done all the same.

    `link` counts what happened to batches on a faulty link, by name; None without faults.
    """

    reports: tuple[ProduceReport, ...]
    recoveries: tuple[Plan, ...]
    changes: tuple[FileChange, ...]
    link: dict[str, int] | None
    notes: tuple[str, ...]
    error: BaseException | None
    journal: AppendJournal | None = None


def answer_of(reports: Sequence[ProduceReport]) -> AppendAnswer:
    """Tell what an append comes to."""
    filled = [each for each in reports if each.records]
    verbs = ("append", "appended")
    if not filled:
        return AppendAnswer(verbs, ())
    aborted_count = sum(each.aborted for each in filled)
    records = counted(sum(each.records for each in filled), "record")
    aborted = f", {counted(aborted_count, 'transaction')} aborted" if aborted_count else ""
    short = f"{records} to {places_text([f'{each.topic}-{each.partition}' for each in filled])}"
    if len(filled) > 1:
        return AppendAnswer(verbs, (f"{short}{aborted}", short))
    (only,) = filled
    where = f"{short}, offsets {only.base_offset}..{only.last_offset}"
    return AppendAnswer(verbs, (f"{where}{aborted}", where, short))


def report_of(
    opened: OpenPartition, producer: PartitionProducer, *, is_applied: bool
) -> ProduceReport:
    """Return the row of a partition."""
    target, writer, outcome = opened.target, opened.writer, producer.outcome
    first = producer.identities.first
    return ProduceReport(
        topic=target.name.topic,
        partition=target.name.partition,
        applied=is_applied,
        records=outcome.records,
        batches=outcome.batches,
        bytes=writer.log_bytes,
        duplicates=outcome.duplicates,
        skipped=outcome.skipped,
        committed=outcome.committed,
        aborted=outcome.aborted,
        base_offset=outcome.base_offset,
        last_offset=outcome.last_offset,
        segments_rolled=writer.rolled_count,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=outcome.base_sequence,
        last_sequence=outcome.last_sequence,
        leader_epoch=writer.leader_epoch,
        path=target.path,
    )


def link_counts(producers: Sequence[PartitionProducer]) -> dict[str, int]:
    """Count what happened to batches on a faulty link, by name."""
    stats = [each.sender.stats._asdict() for each in producers]
    return {name: sum(each[name] for each in stats) for name in stats[0]}
