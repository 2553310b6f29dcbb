"""`eoctl repair`: mend damaged partitions, with a plan and a way back."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from recovery.repair.strategies import Strategy
from storage.limits import INT32_MAX


@with_change()
def command(
    paths: Annotated[
        list[str], argument(metavar="PATH...", help="Partition directories or log dirs.")
    ],
    topic: options.Topics = None,
    strategy: Annotated[
        Strategy | None,
        option(help="How to repair; without it the damage is shown and a strategy proposed."),
    ] = None,
    single_copy: Annotated[
        bool, option("--single-copy", help="These are the only replicas that will be kept.")
    ] = False,
    replicated: Annotated[
        bool, option("--replicated", help="Another broker has an in-sync replica.")
    ] = False,
    index_interval_bytes: Annotated[
        int | None,
        option(
            min=0,
            max=INT32_MAX,
            metavar="N",
            help="index.interval.bytes.",
            show_default="the topic's",
        ),
    ] = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    metadata_dir: options.MetadataDir = None,
    change: ChangeOptions = PLAN_ONLY,
    jobs: options.Jobs = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Mend damaged partitions: as a broker would, keeping every good batch, or by refetching.

    Without --apply the plan is shown: every step, and what is lost.
    """
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.changes.repair import (
        RepairOptions,
        RepairRun,
        no_strategy,
        repair_command,
    )
    from eoctl.runs.told import is_for_people

    wanted = RepairOptions(
        strategy=strategy,
        single_copy=single_copy,
        interval_bytes=index_interval_bytes,
        expiration_ms=producer_expiry_ms,
        now=now,
        metadata_dir=metadata_dir,
        replicated=replicated,
    )
    wanted.check()
    wanted_paths = options.given_paths(paths, None, topic)
    if change.is_kept and strategy is None:
        raise no_strategy(wanted_paths, wanted, options.process_count(jobs))
    compares = strategy is None and is_for_people(output)
    run = RepairRun(wanted_paths, wanted, compares=compares)
    return run_change(repair_command(run, options.process_count(jobs)), change, output)
