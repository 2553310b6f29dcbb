"""Options that the commands of `txn` share, and the world that they open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl.declared import option
from eoctl.options import given_paths
from storage.errors import UsageError
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from eoctl.runs.txn.readers import TxnWorld

CoordinatorDir = Annotated[
    list[str] | None,
    option(metavar="DIR", help="Log dir with __transaction_state; repeatable."),
]
Now = Annotated[
    str | None,
    option(metavar="TIME|wall|dir", help="The clock for ages.", show_default="wall"),
]
MaxTimeoutMs = Annotated[
    int, option(min=1, metavar="MS", help="transaction.max.timeout.ms of the brokers.")
]
TransactionalId = Annotated[str | None, option(metavar="ID", help="Show this transactional.id.")]
ProducerId = Annotated[
    int | None, option(min=0, max=INT64_MAX, metavar="N", help="Show this producer id.")
]


def world_of(
    paths: list[str] | None,
    server_properties: str | None,
    topics: list[str] | None,
    coordinator_dir: list[str] | None,
    metadata_dir: str | None,
    now: str | None,
    max_timeout_ms: int,
) -> TxnWorld:
    """Open partitions, and the coordinators that know their transactions.

    Raises:
        UsageError: no path.
    """
    from eoctl.runs.txn.readers import TxnOptions, open_world

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
