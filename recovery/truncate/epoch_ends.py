"""Where leader epochs end, and up to where two logs agree by them.

The rules are EPOCH-5 (where an epoch ends), EPOCH-7 and EPOCH-8 (what other replicas say).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import RefusedError, pasted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.dirs.partition import Partition
    from storage.formats.checkpoint import LeaderEpochEntry


class EpochEnd(NamedTuple):
    """Where a leader epoch ends; `epoch` is the one that the answer is for."""

    epoch: int
    end_offset: int


def find_epoch_end(
    entries: Sequence[LeaderEpochEntry], epoch: int, log_end_offset: int
) -> EpochEnd | None:
    """Tell what a leader answers to the question where an epoch ends (EPOCH-5); None: undefined."""
    if entries and epoch == entries[-1].epoch:
        return EpochEnd(epoch, log_end_offset)
    higher = next((each for each in entries if each.epoch > epoch), None)
    if higher is None or epoch < 0:
        return None
    known = max((each.epoch for each in entries if each.epoch <= epoch), default=epoch)
    return EpochEnd(known, min(higher.start_offset, log_end_offset))


def find_agreed_end(
    ours: Sequence[LeaderEpochEntry],
    our_end_offset: int,
    theirs: Sequence[LeaderEpochEntry],
    their_end_offset: int,
    *,
    epoch: int,
) -> int | None:
    """Tell where a follower truncates that asks a leader about an epoch, and again (EPOCH-7).

    Ours are the follower's entries, not empty. None: the other side knows no end.
    """
    known = {each.epoch for each in ours}
    limit = our_end_offset
    while True:
        answer = find_epoch_end(theirs, epoch, their_end_offset) if theirs else None
        if answer is None:
            return None
        if answer.epoch in known:
            own = find_epoch_end(ours, answer.epoch, our_end_offset)
            assert own is not None
            return min(limit, answer.end_offset, own.end_offset)
        lower = [each for each in known if each < answer.epoch]
        if not lower:
            return min(limit, ours[0].start_offset, answer.end_offset)
        # Of that epoch we have nothing: to the end of the one before, and ask about that.
        epoch = max(lower)
        own = find_epoch_end(ours, epoch, our_end_offset)
        assert own is not None
        limit = min(limit, own.end_offset)


def find_common_end(
    ours: Sequence[LeaderEpochEntry],
    our_end_offset: int,
    theirs: Sequence[LeaderEpochEntry],
    their_end_offset: int,
) -> int | None:
    """Tell below which offset two logs must agree (EPOCH-8); None: without a common epoch."""
    common = {each.epoch for each in ours} & {each.epoch for each in theirs}
    if not common:
        return None
    our_end = find_epoch_end(ours, max(common), our_end_offset)
    their_end = find_epoch_end(theirs, max(common), their_end_offset)
    assert our_end is not None
    assert their_end is not None
    return min(our_end.end_offset, their_end.end_offset)


def read_epochs(partition: Partition) -> list[LeaderEpochEntry] | None:
    """Entries of leader-epoch-checkpoint; None if there is no such file.

    Raises:
        RefusedError: they are there, and not sound (DIR-7, EPC-1).
    """
    entries = partition.leader_epochs()
    next_step = f"eoctl rebuild {pasted(partition.path)}"
    if entries is None:
        if partition.problems:
            raise RefusedError(str(partition.problems[-1]), next_step=next_step)
        return None
    if any(
        late.epoch <= early.epoch or late.start_offset <= early.start_offset
        for early, late in pairwise(entries)
    ):
        raise RefusedError(
            f"{partition.path}: its leader epochs or their start offsets go back [EPC-1]",
            next_step=next_step,
        )
    return entries
