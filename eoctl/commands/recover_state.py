"""`eoctl recover-state`: the producer state a broker would recover, and how disk compares."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.errors import UsageError


@with_change()
def command(
    path: Annotated[str, argument(metavar="PARTITION", help="A partition directory.")],
    from_scratch: Annotated[
        bool, option("--from-scratch", help="Use no snapshot: replay from the log start.")
    ] = False,
    at_offset: Annotated[
        int | None, option(min=0, metavar="OFFSET", help="The state up to offset N.")
    ] = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    to: Annotated[str | None, option(metavar="FILE", help="Write the snapshot to FILE.")] = None,
    apply: Annotated[
        bool, option("--apply", help="Write the snapshot that a broker would.")
    ] = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.KafkaOutput = OutputFormat.TEXT,
) -> int:
    """Show the producers that a broker would know after its next start.

    Producers come as kafka-dump-log prints a snapshot; what differs from the snapshot on disk is
    told entry by entry. Nothing is written without --apply or --to.
    """
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.changes.recover_state import RecoverOptions, recover_state_command, show_state

    writes = apply or change.save_plan is not None
    if writes and (to is not None or at_offset is not None):
        raise UsageError("--apply goes with neither --to nor --at-offset")
    wanted = RecoverOptions(
        from_scratch=from_scratch, at_offset=at_offset, expiration_ms=producer_expiry_ms, now=now
    )
    if writes:
        return run_change(recover_state_command(path, wanted), change, output)
    return show_state(path, wanted, to, output)
