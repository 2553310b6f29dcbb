"""`eoctl rebuild`: derive indexes, snapshots and leader epochs from the `.log` files."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.errors import AccessError, UsageError
from storage.limits import INT32_MAX


@with_change()
def command(
    paths: Annotated[
        list[str], argument(metavar="PARTITION...", help="Partition directories or log dirs.")
    ],
    topic: options.Topics = None,
    index_interval_bytes: Annotated[
        int | None,
        option(
            min=0,
            max=INT32_MAX,
            metavar="BYTES",
            help="index.interval.bytes.",
            show_default="the topic's",
        ),
    ] = None,
    index_max_bytes: Annotated[
        int | None,
        option(
            min=12,
            max=INT32_MAX,
            metavar="BYTES",
            help="segment.index.bytes.",
            show_default="the topic's",
        ),
    ] = None,
    preallocate: Annotated[
        bool,
        option("--preallocate", help="Preallocate the active indexes as a running broker does."),
    ] = False,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    metadata_dir: options.MetadataDir = None,
    to: Annotated[
        str | None, option(metavar="DIR", help="Write all rebuilt files below DIR instead.")
    ] = None,
    apply: Annotated[
        bool, option("--apply", help="Write the files that differ or are missing.")
    ] = False,
    change: ChangeOptions = PLAN_ONLY,
    jobs: options.Jobs = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Rebuild what a broker derives from the .log files, and show what differs on disk.

    Nothing is written without --apply or --to.
    """
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.changes.rebuild import RebuildRun
    from eoctl.runs.changes.rebuild_jobs import rebuild_jobs
    from recovery.cluster.placement import lost_partitions
    from storage.dirs.discovery import discover

    if to is not None and (change.is_kept):
        raise UsageError("--apply writes in place, --to elsewhere: give one of them")
    wanted = options.given_paths(paths, None, topic)
    work, notes = rebuild_jobs(
        wanted,
        interval_bytes=index_interval_bytes,
        index_max_bytes=index_max_bytes,
        preallocate=preallocate,
        expiration_ms=producer_expiry_ms,
        now=now,
        metadata_dir=metadata_dir,
        is_applied=change.is_kept,
    )
    if to is not None:
        from recovery.rebuild.many import require_elsewhere

        for each in work:
            require_elsewhere(to, each.selected)
    found = discover(wanted)
    absent = lost_partitions(found.whole)
    run = RebuildRun(
        work,
        options.process_count(jobs),
        [*notes, *map(str, absent)],
        # A partition that cannot be opened was not derived; one without its log start may be wrong.
        is_short=bool(absent)
        or any(isinstance(each, AccessError) for each in found.problems)
        or any(each.problems for each in found.selected),
    )
    if change.is_kept:
        return run_change(run.change(is_saved=not apply), change, output)
    return run.show(to, output)
