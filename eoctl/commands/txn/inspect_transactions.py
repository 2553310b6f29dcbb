"""`eoctl txn list`, `describe`, `hanging`, `torn` and `stats`, which change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from eoctl import options
from eoctl.commands.txn.readers import (
    CoordinatorDir,
    MaxTimeoutMs,
    Now,
    ProducerId,
    TransactionalId,
    context_of,
)
from eoctl.options import FailOn, Output, given_paths
from eoctl.output import OutputFormat
from eoctl.parameters import output_option, records_option
from recovery.rules.findings import Severity
from storage.counts import agreeing, counted
from storage.errors import EXIT_FINDINGS, UsageError
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.transactions.open_transactions import OpenTransactionReport


def list_transactions(
    paths: options.Paths = None,
    all_transactions: Annotated[
        bool, records_option("--all", help="Include ended transactions, with their outcomes.")
    ] = False,
    server_properties: options.ServerProperties = None,
    topic: options.Topics = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    picture: Annotated[
        bool, output_option("--picture", help="Draw them as bars of time, by producer.")
    ] = False,
    max_lanes: Annotated[
        int | None,
        records_option(min=1, metavar="N", help="Draw at most N producers.", show_default="40"),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """List the open transactions of partitions."""
    if picture or max_lanes is not None:
        from eoctl.commands.reporting.audit_report import show_transactions
        from eoctl.commands.reporting.report_options import ReportRequest

        wanted = given_paths(paths, server_properties)
        if not wanted:
            raise UsageError("no PATH given", next_step="eoctl txn list PATH... --picture")
        request = ReportRequest(
            wanted,
            metadata_dir=metadata_dir,
            coordinator_dirs=tuple(coordinator_dir or ()),
            topics=tuple(topic or ()),
            jobs=options.process_count(None),
            now=now,
            max_timeout_ms=transaction_max_timeout_ms,
            server_properties=server_properties,
        )
        return show_transactions(
            request, output, max_lanes, is_picture=picture, is_all=all_transactions
        )
    from eoctl.commands.txn.readers import LIST_COLUMNS, few_of_each, list_rows, open_lines
    from eoctl.messages import is_for_people, report_answer, report_first
    from eoctl.output import Report, emit

    state_at = LIST_COLUMNS.index("state")
    clock = now, transaction_max_timeout_ms
    context = context_of(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    rows: Iterable[tuple[Any, ...]] = list_rows(context, is_all=all_transactions)
    notes = context.notes
    if is_for_people(output):
        rows = [*rows]
        if rows or context.status:
            report_first(open_lines(rows, paths or (), is_whole=not context.status), output)
        if not all_transactions:
            rows, more = few_of_each(rows)
            notes = [*more, *notes]
        emit(Report(kind="transaction", columns=LIST_COLUMNS, rows=rows, notes=notes), output)
        return context.status
    opened: list[tuple[Any, ...]] = []

    def watched() -> Iterator[tuple[Any, ...]]:
        for row in rows:
            if row[state_at] == "open":
                opened.append(row)
            yield row

    emit(Report(kind="transaction", columns=LIST_COLUMNS, rows=watched(), notes=notes), output)
    report_answer(open_lines(opened, paths or (), is_whole=not context.status), output)
    return context.status


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
    from eoctl.commands.txn.readers import (
        LIST_COLUMNS,
        EndedTransaction,
        how_to_commit,
        list_rows,
    )
    from eoctl.commands.txn.reports import (
        ID_COLUMNS,
        find_ids,
        id_row,
        where_it_would_be,
        who_has_it,
    )
    from eoctl.output import Report, emit, line
    from storage.log.decoded_records import BatchOutcome

    if (transactional_id is None) == (producer_id is None):
        raise UsageError(
            "one id is needed", next_step="--transactional-id ID or --producer-id N, not both"
        )
    clock = now, transaction_max_timeout_ms
    context = context_of(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    found = find_ids(context, transactional_id, producer_id)
    id_rows = [id_row(context, *each) for each in found]
    emit(Report("transactional_id", ID_COLUMNS, id_rows), output)
    names = {record.transactional_id for _, record in found}
    if transactional_id is not None and not found:
        context.notes.append(where_it_would_be(context, transactional_id))
    if producer_id is not None and not found:
        context.notes.append(who_has_it(context, producer_id))
    states = {each.transactional_id: each.state for _, each in found if each.state is not None}
    aborted: dict[str, str] = {}  # by id: a partition with the ABORT marker

    def is_wanted(each: OpenTransactionReport | EndedTransaction) -> bool:
        state = states.get(each.transactional_id or "")
        if (
            isinstance(each, EndedTransaction)
            and each.outcome is BatchOutcome.ABORTED
            and state is not None
            and each.ends(state, state.producer_epoch)
        ):
            aborted[state.transactional_id] = f"{each.topic}-{each.partition}"
        return each.producer_id == producer_id or each.transactional_id in names

    def rows() -> Iterator[tuple[Any, ...]]:
        yield from list_rows(context, is_all=True, is_wanted=is_wanted)
        context.notes += how_to_commit(
            context,
            (
                (name, state.producer_id, state.producer_epoch, state.status.label)
                for name, state in states.items()
            ),
            aborted,
        )

    if output is OutputFormat.TEXT:
        line("")
    emit(Report(kind="transaction", columns=LIST_COLUMNS, rows=rows(), notes=context.notes), output)
    return context.status


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
    from eoctl.commands.txn.readers import (
        HANGING_COLUMNS,
        HOW_TO_END,
        few_of_each,
        hanging_lines,
        hanging_row,
        how_to_commit,
    )
    from eoctl.messages import is_for_people, report_first
    from eoctl.output import Report, emit

    clock = now, transaction_max_timeout_ms
    context = context_of(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    opened = list(context.open_transactions())
    found = [each for each in opened if each.is_late]
    left_count = len(opened) - len(found)
    if left_count:
        context.notes.append(
            f"{counted(left_count, 'more transaction')} {agreeing(left_count, 'is', 'are')}"
            " open, and not late"
            " by that clock: eoctl txn list"
        )
    if found:
        context.notes.append(HOW_TO_END)
        context.notes += how_to_commit(
            context,
            (
                (e.transactional_id, e.producer_id, e.producer_epoch, e.coordinator_status)
                for e in found
            ),
        )
    if found or not is_for_people(output):
        report_first(hanging_lines(context, found), output)
    rows, notes = [hanging_row(context, each) for each in found], context.notes
    if is_for_people(output):
        rows, more = few_of_each(rows, HANGING_COLUMNS)
        notes = [*more, *notes]
    emit(Report(kind="hanging", columns=HANGING_COLUMNS, rows=rows, notes=notes), output)
    if found and fail_on is not Severity.ERROR:
        return EXIT_FINDINGS
    return context.status


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
    from eoctl.commands.txn.reports import TORN_COLUMNS, torn_lines, torn_rows
    from eoctl.messages import is_for_people, report_first
    from eoctl.output import Report, emit

    clock = now, transaction_max_timeout_ms
    context = context_of(paths, server_properties, None, coordinator_dir, metadata_dir, *clock)
    rows = torn_rows(context, given_paths(paths, server_properties))
    if rows or context.status or not is_for_people(output):
        report_first(torn_lines(rows, is_whole=not context.status), output)
    emit(
        Report(
            kind="torn_transaction",
            columns=TORN_COLUMNS,
            rows=rows,
            notes=context.notes,
        ),
        output,
    )
    if rows and fail_on is not Severity.ERROR:
        return EXIT_FINDINGS
    return context.status


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
    from eoctl.commands.txn.reports import (
        COORDINATOR_COLUMNS,
        STATS_COLUMNS,
        coordinator_rows,
        stats_lines,
        stats_rows,
    )
    from eoctl.messages import report_first
    from eoctl.output import Report, emit, line

    clock = now, transaction_max_timeout_ms
    context = context_of(paths, server_properties, topic, coordinator_dir, metadata_dir, *clock)
    rows = [*stats_rows(context)]
    ids = [*coordinator_rows(context)]
    report_first(stats_lines(rows, ids, is_whole=not context.status), output)
    report = Report("transaction_stats", columns=STATS_COLUMNS, rows=rows, notes=context.notes)
    emit(report, output)
    if output is OutputFormat.TEXT:
        line("")
    emit(Report("coordinator_stats", COORDINATOR_COLUMNS, ids), output)
    return context.status
