"""`eoctl txn complete`: do what the coordinator has left undone."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.commands.txn.coordinators import Now
from eoctl.declared import argument, option
from eoctl.options import Output
from eoctl.output import OutputFormat
from storage.errors import EXIT_SKIPPED


@with_change(without=("save_plan",))
def complete(
    path: Annotated[str, argument(metavar="LOG-DIR", help="Log dir with __transaction_state.")],
    transactional_id: Annotated[
        list[str] | None,
        option(metavar="ID", help="Only this transactional.id; repeatable."),
    ] = None,
    single_copy: options.SingleCopy = False,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Do what the coordinator would: write missing markers, abort what has timed out."""
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.output import Report
    from eoctl.runs.appended import AppendedRows, show_appended
    from eoctl.runs.txn.complete import (
        CompleteOptions,
        CompleteReport,
        answer_of,
        complete_transactions,
    )
    from storage.writing.partition_store import FlushPolicy

    wanted = CompleteOptions(
        transactional_ids=tuple(transactional_id or ()),
        now=now,
        target=TargetOptions(metadata_dir, None, single_copy),
        write=WriteOptions(flush=FlushPolicy.BATCH, change=change),
    )
    result = complete_transactions(path, wanted)
    report = Report("complete", CompleteReport._fields, result.reports)
    show_appended(
        AppendedRows(
            reports=[report],
            recoveries=result.recoveries,
            changes=result.changes,
            notes=result.notes,
            error=result.error,
            answer=answer_of(path, result.reports),
            journal=result.journal,
            has_backup=not change.no_backup,
        ),
        output,
    )
    return EXIT_SKIPPED if result.is_waiting else 0
