"""`eoctl txn commit`: end a transaction whose commit was decided elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.commands.txn.coordinators import Now
from eoctl.declared import argument, option
from eoctl.options import Output
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.limits import INT64_MAX
from storage.producers.producer_state import MAX_PRODUCER_EPOCH

if TYPE_CHECKING:
    from recovery.transactions.abort import Committable

VALUES = {"--transactional-id": "ID", "--producer-id": "N", "--producer-epoch": "N"}
ONE = "--transactional-id, --producer-id and --producer-epoch, or --from-file FILE"


@with_change()
def commit(
    paths: Annotated[
        list[str],
        argument(metavar="LOG-DIR...", help="Log dirs of all brokers of the cluster."),
    ],
    transactional_id: Annotated[
        str | None, option(metavar="ID", help="transactional.id of the transaction to commit.")
    ] = None,
    producer_id: Annotated[
        int | None,
        option(min=0, max=INT64_MAX, metavar="N", help="Its producer id, as it was prepared."),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        option(min=0, max=MAX_PRODUCER_EPOCH, metavar="N", help="Its producer epoch, likewise."),
    ] = None,
    from_file: Annotated[
        str | None,
        option(metavar="FILE", help="Several: JSON Lines, CSV, or committables of Flink."),
    ] = None,
    transaction_version: Annotated[
        int | None,
        option(
            min=0,
            max=2,
            metavar="0|1|2",
            help="transaction.version of who commits; 0 for Flink.",
            show_default="the producer's",
        ),
    ] = None,
    force_overdue: Annotated[
        bool,
        option("--force-overdue", help="Commit even if its coordinator ran on after its timeout."),
    ] = False,
    single_copy: Annotated[
        bool, option("--single-copy", help="No other replicas than those given will be kept.")
    ] = False,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Commit a transaction in all its partitions, as decided by a checkpoint elsewhere."""
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.txn.commit import CommitOptions, commit_change
    from eoctl.runs.txn.readers import TxnOptions

    wanted = CommitOptions(
        wanted=_wanted(transactional_id, producer_id, producer_epoch, from_file),
        world=TxnOptions(metadata_dir=metadata_dir, now=now),
        version=transaction_version,
        force_overdue=force_overdue,
        single_copy=single_copy,
    )
    return run_change(commit_change(paths, wanted), change, output)


def _wanted(
    transactional_id: str | None,
    producer_id: int | None,
    producer_epoch: int | None,
    from_file: str | None,
) -> tuple[Committable, ...]:
    from eoctl.call import again
    from eoctl.runs.txn.committables import read_committables, require_committable
    from recovery.transactions.abort import Committable

    given = [transactional_id, producer_id, producer_epoch]
    if from_file is not None:
        if any(each is not None for each in given):
            raise UsageError("--from-file has all of each transaction", next_step=ONE)
        return read_committables(from_file)
    missing = [name for name, each in zip(VALUES, given, strict=True) if each is None]
    if transactional_id is None or producer_id is None or producer_epoch is None:
        raise UsageError(
            f"{', '.join(missing)} not given: who decided it knows them",
            next_step=f"{again(*(word for name in missing for word in (name, VALUES[name])))}, with"
            " what the checkpoint has; or --from-file FILE for several",
        )
    found = Committable(transactional_id, producer_id, producer_epoch)
    return (require_committable(found, "--transactional-id"),)
