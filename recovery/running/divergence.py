"""Where a follower parts from its leader, by what it fetches (REPL-10, EPOCH-5, EPOCH-7; KIP-595).

A fetch names the epoch of the last batch that the follower has. The leader looks where that epoch
ends in its own log. If that is below the fetch offset, or it does not know the epoch, it gives no
records but that end; the follower cuts, and fetches again, until they agree.

Source: UnifiedLog and Partition.readRecords (divergingEpoch), AbstractFetcherThread.
getOffsetTruncationState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.truncate.epoch_ends import EpochEnd, find_epoch_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.formats.checkpoint import LeaderEpochEntry


def diverging_end(
    epochs: Sequence[LeaderEpochEntry], end_offset: int, *, last_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """What a leader answers instead of records; None: the follower may go on.

    An end of -1: the leader knows of no end, and the follower cannot be told where to cut.
    """
    found = find_epoch_end(epochs, last_epoch, end_offset)
    if found is None:
        return EpochEnd(last_epoch, -1)
    if found.epoch < last_epoch or found.end_offset < fetch_offset:
        return found
    return None


def cut_offset(epochs: Sequence[LeaderEpochEntry], end_offset: int, diverging: EpochEnd) -> int:
    """Where a follower cuts itself, given the leader's answer; it then asks again."""
    own = find_epoch_end(epochs, diverging.epoch, end_offset)
    if own is None:
        return min(diverging.end_offset, end_offset)
    if own.epoch != diverging.epoch:  # it has nothing of that epoch: to the end of the one before
        return min(own.end_offset, end_offset)
    return min(own.end_offset, diverging.end_offset, end_offset)
