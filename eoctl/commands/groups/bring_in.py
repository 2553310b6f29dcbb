"""`eoctl groups import`: offsets from a file into the `__consumer_offsets` of a dead broker."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.options import Output
from eoctl.output import OutputFormat
from recovery.groups.incoming import Outside


@with_change()
def import_offsets(
    paths: Annotated[
        list[str],
        argument(metavar="LOG-DIR...", help="Log dirs to commit them in: all that have a replica."),
    ],
    source: Annotated[
        str, option("--from", metavar="FILE", help="Offsets: CSV of Kafka's tool, or JSON Lines.")
    ],
    group: Annotated[
        list[str] | None,
        option("--group", metavar="GROUP", help="Only this group; or whose offsets these are."),
    ] = None,
    outside: Annotated[
        Outside, option("--outside", help="What becomes of offsets outside of their logs.")
    ] = Outside.REFUSE,
    skip_unknown: Annotated[
        bool, option("--skip-unknown", help="Leave out partitions that the cluster has not.")
    ] = False,
    consumers_are_stopped: Annotated[
        bool,
        option("--consumers-are-stopped", help="Members that are recorded are not at work."),
    ] = False,
    single_copy: options.SingleCopy = False,
    logs: Annotated[
        list[str] | None,
        option("--logs", metavar="DIR", help="Log dir with logs to hold offsets against."),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    now: Annotated[
        str | None,
        option(metavar="TIME|wall|dir", help="The time of the commits.", show_default="wall"),
    ] = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Commit offsets for groups, as a coordinator of a broker that starts there takes them."""
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.groups.bring_in import ImportOptions, import_change

    wanted = ImportOptions(
        source=source,
        groups=tuple(group or ()),
        outside=outside,
        skips_unknown=skip_unknown,
        consumers_are_stopped=consumers_are_stopped,
        single_copy=single_copy,
        logs=tuple(logs or ()),
        metadata_dir=metadata_dir,
        now=now,
    )
    return run_change(import_change(paths, wanted), change, output)
