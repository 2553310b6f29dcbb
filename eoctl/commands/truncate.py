"""`eoctl truncate`: cut a partition back, as a broker does, with a plan and a way back."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.limits import INT32_MAX, MAX_OFFSET


@with_change()
def command(
    path: Annotated[str, argument(metavar="PARTITION", help="A partition directory.")],
    to_hw: Annotated[
        bool, option("--to-hw", help="Cut at the checkpointed high watermark.")
    ] = False,
    to_offset: Annotated[
        int | None, option(min=0, max=MAX_OFFSET, metavar="N", help="Keep offsets below N.")
    ] = None,
    to_leader_epoch: Annotated[
        int | None,
        option(
            min=0,
            max=INT32_MAX,
            metavar="EPOCH",
            help="Keep everything up to the end of this leader epoch.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        option(
            metavar="TIME", help="Keep everything before the first record at or after this time."
        ),
    ] = None,
    exact: Annotated[bool, option("--exact", help="Refuse a cut inside a batch.")] = False,
    assume_hw: Annotated[
        int | None,
        option(
            min=0,
            max=MAX_OFFSET,
            metavar="N",
            help="Use this high watermark instead of the checkpointed one.",
        ),
    ] = None,
    replica: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Another replica to compare with; repeatable."),
    ] = None,
    all_replicas: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Another replica to cut too; repeat for each replica."),
    ] = None,
    single_copy: Annotated[
        bool, option("--single-copy", help="This is the only replica that will be kept.")
    ] = False,
    coordinator_dir: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Log dir with __consumer_offsets; repeatable."),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Cut a partition back to an offset, the high watermark, a leader epoch or a time.

    The batch with the target goes as a whole, as a broker does it. Without --apply the plan is
    shown: every step, and what is lost.
    """
    from eoctl.clock import parse_time_ms
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.changes.truncate import TruncateOptions, truncate_command
    from recovery.truncate.target import TargetKind

    targets: dict[TargetKind, int | None] = {}
    if to_hw:
        targets[TargetKind.HW] = None
    if to_offset is not None:
        targets[TargetKind.OFFSET] = to_offset
    if to_leader_epoch is not None:
        targets[TargetKind.LEADER_EPOCH] = to_leader_epoch
    if to_time is not None:
        targets[TargetKind.TIME] = parse_time_ms(to_time)
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} targets, one is needed",
            next_step="--to-hw, --to-offset N, --to-leader-epoch E or --to-time TIME",
        )
    ((kind, value),) = targets.items()
    wanted = TruncateOptions(
        kind=kind,
        value=value,
        assume_hw=assume_hw,
        exact=exact,
        replicas=tuple(replica or ()),
        all_replicas=tuple(all_replicas or ()),
        single_copy=single_copy,
        coordinator_dirs=tuple(coordinator_dir or ()),
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    return run_change(truncate_command(path, wanted), change, output)
