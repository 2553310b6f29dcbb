"""`eoctl txn`: transactions of partitions, joined with what their coordinators know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eoctl import options
from eoctl.clients.text.inputs import BytesAs, InputFormat
from eoctl.options import FailOn, Output, given_paths
from eoctl.output import OutputFormat
from recovery.rules.findings import Severity
from recovery.transactions.isolation import Isolation
from storage.errors import EXIT_FINDINGS, EXIT_SKIPPED, UsageError
from storage.limits import INT64_MAX
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from eoctl.runs.txn_readers import TxnWorld

CoordinatorDir = Annotated[
    list[str] | None,
    typer.Option(metavar="DIR", help="Log dir with __transaction_state; repeatable."),
]
Now = Annotated[
    str | None,
    typer.Option(metavar="TIME|wall|dir", help="The clock for ages.", show_default="wall"),
]
MaxTimeoutMs = Annotated[
    int, typer.Option(min=1, metavar="MS", help="transaction.max.timeout.ms of the brokers.")
]
TransactionalId = Annotated[
    str | None, typer.Option(metavar="ID", help="Show this transactional.id.")
]
ProducerId = Annotated[
    int | None, typer.Option(min=0, max=INT64_MAX, metavar="N", help="Show this producer id.")
]


def _world(
    paths: list[str] | None,
    server_properties: str | None,
    topics: list[str] | None,
    coordinator_dir: list[str] | None,
    metadata_dir: str | None,
    now: str | None,
    max_timeout_ms: int,
) -> TxnWorld:
    from eoctl.runs.txn_readers import TxnOptions, open_world

    wanted = given_paths(paths, server_properties, topics)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl txn list PATH...")
    dirs = tuple(coordinator_dir or ())
    return open_world(
        wanted,
        TxnOptions(
            coordinator_dirs=dirs, metadata_dir=metadata_dir, now=now, max_timeout_ms=max_timeout_ms
        ),
    )


def list_transactions(
    paths: options.Paths = None,
    all_transactions: Annotated[
        bool, typer.Option("--all", help="Include ended transactions, with their outcomes.")
    ] = False,
    server_properties: options.ServerProperties = None,
    topic: options.Topics = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    output: Output = OutputFormat.TEXT,
) -> int:
    """List the open transactions of partitions."""
    from eoctl.output import Report, emit, use_format
    from eoctl.runs.txn_readers import LIST_COLUMNS, list_rows

    use_format(output)
    clock = now, transaction_max_timeout_ms
    world = _world(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    rows = list_rows(world, is_all=all_transactions)
    emit(Report(kind="transaction", columns=LIST_COLUMNS, rows=rows, notes=world.notes), output)
    return world.status


def describe(
    paths: options.Paths = None,
    transactional_id: TransactionalId = None,
    producer_id: ProducerId = None,
    server_properties: options.ServerProperties = None,
    topic: options.Topics = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show what the coordinator knows of one id, and all its transactions in the partitions."""
    from eoctl.output import Report, emit, line, use_format
    from eoctl.runs.txn_readers import LIST_COLUMNS, list_rows
    from eoctl.runs.txn_reports import ID_COLUMNS, find_ids, id_row, where_it_would_be, who_has_it

    use_format(output)
    if (transactional_id is None) == (producer_id is None):
        raise UsageError(
            "one id is needed", next_step="--transactional-id ID or --producer-id N, not both"
        )
    clock = now, transaction_max_timeout_ms
    world = _world(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    found = find_ids(world, transactional_id, producer_id)
    id_rows = [id_row(world, *each) for each in found]
    emit(Report("transactional_id", ID_COLUMNS, id_rows), output)
    names = {record.transactional_id for _, record in found}
    if transactional_id is not None and not found:
        world.notes.append(where_it_would_be(world, transactional_id))
    if producer_id is not None and not found:
        world.notes.append(who_has_it(world, producer_id))
    if output is OutputFormat.TEXT:
        line("")
    rows = list_rows(
        world,
        is_all=True,
        is_wanted=lambda each: each.producer_id == producer_id or each.transactional_id in names,
    )
    emit(Report(kind="transaction", columns=LIST_COLUMNS, rows=rows, notes=world.notes), output)
    return world.status


def hanging(
    paths: options.Paths = None,
    server_properties: options.ServerProperties = None,
    topic: options.Topics = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    fail_on: FailOn = Severity.WARNING,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Find transactions that are open longer than any may be, and say why."""
    from eoctl.output import Report, draws_tables, emit, line, use_format
    from eoctl.runs.txn_readers import HANGING_COLUMNS, HOW_TO_END, hanging_lines, hanging_row

    use_format(output)
    clock = now, transaction_max_timeout_ms
    world = _world(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    opened = list(world.open_transactions())
    found = [each for each in opened if each.is_late]
    if len(opened) > len(found):
        world.notes.append(
            f"{len(opened) - len(found)} more are open, and not late by that clock: eoctl txn list"
        )
    if found:
        world.notes.append(HOW_TO_END)
    if output is OutputFormat.TEXT and draws_tables():
        for told in hanging_lines(world, found):
            line(told)
    emit(
        Report(
            kind="hanging",
            columns=HANGING_COLUMNS,
            rows=[hanging_row(world, each) for each in found],
            notes=world.notes,
        ),
        output,
    )
    if found and fail_on is not Severity.ERROR:
        return EXIT_FINDINGS
    return world.status


def torn(
    paths: options.Paths = None,
    server_properties: options.ServerProperties = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    fail_on: FailOn = Severity.WARNING,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Find transactions whose partitions contradict each other, or their coordinator."""
    from eoctl.output import Report, emit, use_format
    from eoctl.runs.txn_reports import TORN_COLUMNS, torn_rows

    use_format(output)
    clock = now, transaction_max_timeout_ms
    world = _world(paths, server_properties, None, coordinator_dir, metadata_dir, *clock)
    rows = torn_rows(world, given_paths(paths, server_properties))
    emit(
        Report(
            kind="torn_transaction",
            columns=TORN_COLUMNS,
            rows=rows,
            notes=world.notes,
        ),
        output,
    )
    if rows and fail_on is not Severity.ERROR:
        return EXIT_FINDINGS
    return world.status


def stats(
    paths: options.Paths = None,
    server_properties: options.ServerProperties = None,
    topic: options.Topics = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Count the transactions of partitions, and the ids of coordinators by status."""
    from eoctl.output import Report, emit, line, use_format
    from eoctl.runs.txn_reports import (
        COORDINATOR_COLUMNS,
        STATS_COLUMNS,
        coordinator_rows,
        stats_rows,
    )

    use_format(output)
    clock = now, transaction_max_timeout_ms
    world = _world(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    emit(
        Report(
            kind="transaction_stats",
            columns=STATS_COLUMNS,
            rows=stats_rows(world),
            notes=world.notes,
        ),
        output,
    )
    if output is OutputFormat.TEXT:
        line("")
    emit(Report("coordinator_stats", COORDINATOR_COLUMNS, coordinator_rows(world)), output)
    return world.status


def abort(
    path: Annotated[str, typer.Argument(metavar="PARTITION", help="A partition directory.")],
    producer_id: Annotated[
        int,
        typer.Option(
            min=0, max=INT64_MAX, metavar="N", help="Producer id of the transaction to abort."
        ),
    ],
    force_overdue: Annotated[
        bool, typer.Option("--force-overdue", help="Abort even if the coordinator still lists it.")
    ] = False,
    single_copy: Annotated[
        bool, typer.Option("--single-copy", help="This is the only replica that will be kept.")
    ] = False,
    all_replicas: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Another replica to write to; repeat for each replica."),
    ] = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    apply: options.Apply = False,
    save_plan: options.SavePlan = None,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """End a hanging transaction with the ABORT marker that a coordinator would have written."""
    from eoctl.changing import ChangeOptions
    from eoctl.output import use_format
    from eoctl.runs.change_command import run_change
    from eoctl.runs.txn_abort import AbortOptions, abort_change
    from eoctl.runs.txn_readers import TxnOptions

    use_format(output)
    change = ChangeOptions(
        apply=apply,
        save_plan=save_plan,
        backup_dir=backup_dir,
        no_backup=no_backup,
        accept_loss=i_accept_the_loss,
        broker_is_stopped=broker_is_stopped,
    )
    dirs = tuple(coordinator_dir or ())
    world = TxnOptions(
        coordinator_dirs=dirs,
        metadata_dir=metadata_dir,
        now=now,
        max_timeout_ms=transaction_max_timeout_ms,
    )
    replicas = tuple(all_replicas or ())
    wanted = AbortOptions(
        producer_id=producer_id,
        world=world,
        force_overdue=force_overdue,
        single_copy=single_copy,
        all_replicas=replicas,
    )
    return run_change(abort_change(path, wanted), change, output)


def complete(
    path: Annotated[
        str, typer.Argument(metavar="LOG-DIR", help="Log dir with __transaction_state.")
    ],
    transactional_id: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only this transactional.id; repeatable."),
    ] = None,
    single_copy: options.SingleCopy = False,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    apply: options.Apply = False,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Do what the coordinator would: write missing markers, abort what has timed out."""
    from eoctl.changing import ChangeOptions, show_appended
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.output import Report, use_format
    from eoctl.runs.txn_complete import CompleteOptions, CompleteReport, complete_transactions
    from storage.writing.partition_store import FlushPolicy

    use_format(output)
    change = ChangeOptions(
        apply=apply,
        backup_dir=backup_dir,
        no_backup=no_backup,
        accept_loss=i_accept_the_loss,
        broker_is_stopped=broker_is_stopped,
    )
    wanted = CompleteOptions(
        transactional_ids=tuple(transactional_id or ()),
        now=now,
        target=TargetOptions(metadata_dir, None, single_copy),
        write=WriteOptions(flush=FlushPolicy.BATCH, change=change),
    )
    result = complete_transactions(path, wanted)
    report = Report("complete", CompleteReport._fields, result.reports)
    show_appended([report], result.recoveries, result.changes, result.notes, output, result.error)
    return EXIT_SKIPPED if result.is_waiting else 0


def run(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Partition directories to consume.")
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to", metavar="PARTITION", help="Target partition; with --to-topic its log dir."
        ),
    ],
    program: Annotated[
        str,
        typer.Option(
            "--exec", metavar="CMD", help="Filter program: reads records, writes records."
        ),
    ],
    transactional_id: Annotated[
        str, typer.Option(metavar="ID", help="transactional.id of the transactions.")
    ],
    group: Annotated[
        str, typer.Option(metavar="GROUP", help="Consumer group whose offsets are committed.")
    ],
    topic: options.TargetTopic = None,
    partitions: options.PartitionsCount = None,
    txn_records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most records in a transaction.")
    ] = 500,
    max_transactions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Most transactions for each source.", show_default="to its end"
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where a new group starts: earliest, latest, an offset or a time.",
        ),
    ] = "earliest",
    isolation: Annotated[
        Isolation, typer.Option(help="Isolation level for reading the sources.")
    ] = Isolation.READ_COMMITTED,
    input_format: Annotated[
        InputFormat,
        typer.Option(
            "--format", metavar="lines|jsonl", help="Format that the filter reads and writes."
        ),
    ] = InputFormat.LINES,
    bytes_as: Annotated[
        BytesAs, typer.Option("--bytes", help="How strings of jsonl are read.")
    ] = BytesAs.TEXT,
    transaction_timeout_ms: options.TransactionTimeoutMs = 60_000,
    transaction_version: Annotated[
        int | None,
        typer.Option(
            min=0, max=2, metavar="0|1|2", help="transaction.version.", show_default="the cluster's"
        ),
    ] = None,
    fsync: options.FsyncChoice = options.Fsync.BATCH,
    single_copy: options.SingleCopy = False,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    apply: options.Apply = False,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Consume, transform, produce: each batch of records and its offsets in one transaction."""
    from eoctl.changing import ChangeOptions, show_appended
    from eoctl.clients.coordinators.transactional import TransactionalOptions
    from eoctl.clients.log.consume_bounds import parse_start
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.output import Report, use_format
    from eoctl.runs.txn_run import TransformOptions, TransformReport, transform
    from storage.writing.partition_store import FlushPolicy

    use_format(output)
    change = ChangeOptions(
        apply=apply,
        backup_dir=backup_dir,
        no_backup=no_backup,
        accept_loss=i_accept_the_loss,
        broker_is_stopped=broker_is_stopped,
    )
    wanted = TransformOptions(
        command=program,
        group=group,
        transactional=TransactionalOptions(
            transactional_id, transaction_timeout_ms, version=transaction_version
        ),
        topic=topic,
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
    report = Report("transform", TransformReport._fields, result.reports)
    show_appended([report], result.recoveries, result.changes, result.notes, output, result.error)
    return result.status


SUBCOMMANDS = {
    "list": list_transactions,
    "describe": describe,
    "hanging": hanging,
    "torn": torn,
    "stats": stats,
    "abort": abort,
    "complete": complete,
    "run": run,
}
