"""`eoctl txn run`: consume, transform and produce in transactions."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.text.inputs import BytesAs, InputFormat
from eoctl.commands.txn.coordinators import Now
from eoctl.declared import argument, option
from eoctl.options import Output
from eoctl.output import OutputFormat
from recovery.transactions.isolation import Isolation


@with_change(without=("save_plan",))
def run(
    sources: Annotated[
        list[str], argument(metavar="SOURCE...", help="Partition directories to consume.")
    ],
    target: Annotated[
        str,
        option("--to", metavar="PARTITION", help="Target partition; with --to-topic its log dir."),
    ],
    program: Annotated[
        str,
        option("--exec", metavar="CMD", help="Filter program: reads records, writes records."),
    ],
    transactional_id: Annotated[
        str, option(metavar="ID", help="transactional.id of the transactions.")
    ],
    group: Annotated[
        str, option(metavar="GROUP", help="Consumer group whose offsets are committed.")
    ],
    topics: Annotated[
        list[str] | None,
        option(
            "--to-topic",
            "--topic",
            metavar="TOPIC",
            help="Write to all partitions of this topic; repeatable: records name theirs.",
        ),
    ] = None,
    partitions: options.PartitionsCount = None,
    txn_records: Annotated[
        int, option(min=1, metavar="N", help="Most records in a transaction.")
    ] = 500,
    max_transactions: Annotated[
        int | None,
        option(
            min=1, metavar="N", help="Most transactions for each source.", show_default="to its end"
        ),
    ] = None,
    start: Annotated[
        str,
        option(
            "--from",
            metavar="WHERE",
            help="Where a new group starts: earliest, latest, an offset or a time.",
        ),
    ] = "earliest",
    isolation: Annotated[
        Isolation, option(help="Isolation level for reading the sources.")
    ] = Isolation.READ_COMMITTED,
    input_format: Annotated[
        InputFormat,
        option("--format", metavar="lines|jsonl", help="Format that the filter reads and writes."),
    ] = InputFormat.LINES,
    bytes_as: Annotated[
        BytesAs, option("--bytes", help="How strings of jsonl are read.")
    ] = BytesAs.TEXT,
    transaction_timeout_ms: options.TransactionTimeoutMs = 60_000,
    transaction_version: Annotated[
        int | None,
        option(
            min=0, max=2, metavar="0|1|2", help="transaction.version.", show_default="the cluster's"
        ),
    ] = None,
    fsync: options.FsyncChoice = options.Fsync.BATCH,
    single_copy: options.SingleCopy = False,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Consume, transform, produce: each batch of records and its offsets in one transaction."""
    from eoctl.clients.coordinators.log_dir_coordinator import TransactionalOptions
    from eoctl.clients.log.consumer import parse_start
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.output import Report
    from eoctl.runs.appended import AppendedRows, show_appended
    from eoctl.runs.txn.run import (
        SinkReport,
        TransformOptions,
        TransformReport,
        answer_of,
        transform,
    )
    from storage.writing.partition_store import FlushPolicy

    wanted = TransformOptions(
        command=program,
        group=group,
        transactional=TransactionalOptions(
            transactional_id, transaction_timeout_ms, version=transaction_version
        ),
        topics=tuple(topics or ()),
        partitions_count=partitions,
        start=parse_start(start),
        isolation=isolation,
        txn_records=txn_records,
        max_transactions=max_transactions,
        input_format=input_format,
        bytes_as=bytes_as,
        now=now,
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        write=WriteOptions(flush=FlushPolicy(fsync), change=change),
    )
    result = transform(sources, target, wanted)
    reports = [Report("transform", TransformReport._fields, result.reports)]
    if result.sinks:
        reports.append(Report("sink", SinkReport._fields, result.sinks))
    show_appended(
        AppendedRows(
            reports=reports,
            recoveries=result.recoveries,
            changes=result.changes,
            notes=result.notes,
            error=result.error,
            answer=answer_of(result.reports),
            journal=result.journal,
            has_backup=not change.no_backup,
        ),
        output,
    )
    return result.status
