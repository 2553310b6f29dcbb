"""`eoctl init`: a log dir from nothing, that a broker starts on and all commands write to."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.limits import INT32_MAX


@with_change()
def command(
    path: Annotated[
        str | None,
        argument(metavar="LOG-DIR", help="An empty directory, or one that is made."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        option(metavar="NAME:N", help="A topic with N partitions, or one; repeatable."),
    ] = None,
    config: Annotated[
        list[str] | None,
        option(metavar="TOPIC:KEY=VALUE", help="A setting of a topic; repeatable."),
    ] = None,
    node_id: Annotated[
        int, option(min=0, max=INT32_MAX, metavar="N", help="node.id of the broker.")
    ] = 1,
    cluster_id: options.ClusterId = None,
    directory_id: options.DirectoryId = None,
    broker_version: Annotated[
        str | None,
        option(metavar="X.Y", help="The release that will start there, from 3.3 on."),
    ] = None,
    no_internal_topics: Annotated[
        bool,
        option(
            "--no-internal-topics",
            help="Without the topics of groups, transactions and leased producer ids.",
        ),
    ] = False,
    ids: Annotated[
        bool, option("--ids", help="Only print new ids: of a topic, a cluster, a log dir.")
    ] = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Make a log dir from nothing: who it is, its topics, an empty directory for each partition.

    What is written there by produce, copy, txn run and lease-pid needs no further option, and a
    broker that starts there serves it.
    """
    from eoctl.runs.begin.init import InitOptions, init_command, show_ids
    from eoctl.runs.changes.change_command import run_change

    if ids:
        if path is not None:
            raise UsageError("--ids only prints ids: without LOG-DIR")
        return show_ids(output)
    if path is None:
        raise UsageError("no LOG-DIR given", next_step="eoctl init LOG-DIR --topic orders:12")
    wanted = InitOptions(
        topics=tuple(topic or ()),
        node_id=node_id,
        cluster_id=cluster_id,
        directory_id=directory_id,
        configs=tuple(config or ()),
        broker_version=broker_version,
        has_internal_topics=not no_internal_topics,
    )
    return run_change(init_command(path, wanted, is_kept=change.is_kept), change, output)
