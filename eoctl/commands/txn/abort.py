"""`eoctl txn abort`: end a hanging transaction."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.commands.txn.coordinators import CoordinatorDir, MaxTimeoutMs, Now
from eoctl.declared import argument, option
from eoctl.options import Output
from eoctl.output import OutputFormat
from storage.limits import INT64_MAX
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS


@with_change()
def abort(
    path: Annotated[str, argument(metavar="PARTITION", help="A partition directory.")],
    producer_id: Annotated[
        int,
        option(min=0, max=INT64_MAX, metavar="N", help="Producer id of the transaction to abort."),
    ],
    force_overdue: Annotated[
        bool, option("--force-overdue", help="Abort even if the coordinator still lists it.")
    ] = False,
    single_copy: Annotated[
        bool, option("--single-copy", help="This is the only replica that will be kept.")
    ] = False,
    all_replicas: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Another replica to write to; repeat for each replica."),
    ] = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """End a hanging transaction with the ABORT marker that a coordinator would have written."""
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.txn.abort import AbortOptions, abort_change
    from eoctl.runs.txn.readers import TxnOptions

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
