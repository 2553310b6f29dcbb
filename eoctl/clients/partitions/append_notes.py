"""What appending commands tell people: what was verified, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.replay.recover_state import recovery_price
from storage.dirs.log_dir import read_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.clients.partitions.open_partition import OpenPartition
    from eoctl.clock import Now


def notes_of(
    opened: Sequence[OpenPartition],
    now: Now,
    *,
    is_applied: bool,
    more: Iterable[str] = (),
) -> Iterator[str]:
    """Give sentences about a run that has ended; `more` are those of its own."""
    told: set[str] = set()
    for each in opened:
        told.update(each.target.notes)
        yield from each.notes
    yield from sorted(told)
    yield (
        "verified before: headers and checksums of all batches from the recovery point on;"
        " records were not decompressed"
    )
    yield now.describe()
    yield from more
    if not any(each.store.changes or each.recovery for each in opened):
        yield "nothing to append: nothing is changed"
        return
    if not is_applied:
        yield "this is a plan, nothing was changed: --apply does it"
    log_dir = opened[0].target.log_dir
    if log_dir is not None:
        yield price_of(log_dir.path) + ("" if is_applied else " and what is appended")
    factors = {each.target.replication_factor for each in opened} - {1}
    if factors:
        copies = ", ".join(sorted("unknown" if each is None else str(each) for each in factors))
        yield f"replication factor {copies}: other replicas lack what is appended here"


def price_of(log_dir_path: str) -> str:
    """Say what the next start of a broker has to recover, as things are now.

    Raises:
        AccessError: the log dir cannot be listed.
    """
    # Partitions may have been made since it was listed for the last time.
    partitions_count, log_bytes = recovery_price(read_log_dir(log_dir_path))
    partitions = "1 partition" if partitions_count == 1 else f"{partitions_count} partitions"
    return (
        "the log dir is without its clean-shutdown marker afterwards; recovery point and high"
        " watermark stay as they are: the next start of the broker recovers"
        f" {partitions}, {log_bytes} bytes of log"
    )
