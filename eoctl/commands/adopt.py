"""`eoctl adopt`: partitions of dead brokers, under a new cluster that a broker starts on."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from recovery.repair.strategies import Strategy
from storage.errors import UsageError
from storage.limits import INT32_MAX


@with_change()
def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[LOG-DIR]...", help="Log dirs of dead brokers, or partitions of them."),
    ] = None,
    to: Annotated[
        str | None, option(metavar="NEW-LOG-DIR", help="An empty directory, or one that is made.")
    ] = None,
    copy: Annotated[bool, option("--copy", help="Copy all files, without another word.")] = False,
    link: Annotated[
        bool, option("--link", help="Second names for .log files of closed segments.")
    ] = False,
    move: Annotated[
        bool, option("--move", help="As --link; then take the files out of the sources.")
    ] = False,
    prefer: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Take copies in it before others; repeatable."),
    ] = None,
    topic_id: Annotated[
        list[str] | None,
        option(metavar="NAME=ID", help="The id of a topic, where nothing tells; repeatable."),
    ] = None,
    partitions: Annotated[
        list[str] | None,
        option(metavar="NAME=N", help="How many partitions a topic has; repeatable."),
    ] = None,
    fill_holes: Annotated[
        bool, option("--fill-holes", help="Partitions without a copy become empty ones.")
    ] = False,
    repair: Annotated[
        Strategy | None,
        option(metavar="as-broker|salvage", help="Mend what is damaged on the way."),
    ] = None,
    with_security: Annotated[
        bool, option("--with-security", help="Users' SCRAM credentials and ACLs, too.")
    ] = False,
    keep_retention: Annotated[
        bool,
        option("--keep-retention", help="Retention as it was, whatever a first start deletes."),
    ] = False,
    node_id: Annotated[
        int | None,
        option(min=0, max=INT32_MAX, metavar="N", help="node.id.", show_default="a source's"),
    ] = None,
    cluster_id: options.ClusterId = None,
    directory_id: options.DirectoryId = None,
    broker_version: Annotated[
        str | None,
        option(metavar="X.Y", help="The release that will start there.", show_default="as before"),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    change: ChangeOptions = PLAN_ONLY,
    jobs: options.Jobs = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Bring partitions up whose controllers, or whose other brokers, are lost.

    A new log dir with the best copy of each partition, one replica each, under a new cluster id.
    The sources are not changed without --move.
    """
    from eoctl.runs.begin.adopt import AdoptOptions, Way, adopt_command
    from eoctl.runs.changes.change_command import run_change

    if not paths or to is None:
        raise UsageError(
            "no LOG-DIR given" if not paths else "no --to given",
            next_step="eoctl adopt LOG-DIR... --to NEW-LOG-DIR",
        )
    ways = [way for way, wanted in zip(Way, (copy, link, move), strict=True) if wanted]
    if len(ways) > 1:
        raise UsageError(f"--{ways[0]} and --{ways[1]}: one of them")
    if repair is Strategy.MOVE_AWAY:
        raise UsageError(
            "--repair move-away: there is no other replica to fetch it from",
            next_step="--repair salvage, or --repair as-broker",
        )
    wanted = AdoptOptions(
        to=to,
        way=ways[0] if ways else Way.COPY,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=directory_id,
        broker_version=broker_version,
        metadata_dir=metadata_dir,
        preferred=tuple(prefer or ()),
        topic_ids=tuple(topic_id or ()),
        partitions=tuple(partitions or ()),
        fills_holes=fill_holes,
        has_security=with_security,
        keeps_retention=keep_retention,
        repair=repair,
        now=now,
    )
    adoption = adopt_command(paths, wanted, options.process_count(jobs), is_kept=change.is_kept)
    return run_change(adoption, change, output)
