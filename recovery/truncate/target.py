"""Turn a requested target (high watermark, offset, leader epoch, time) into an offset."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import SpentTargetError
from recovery.truncate.removed_part import find_cut
from storage.errors import RefusedError, UsageError, pasted
from storage.file_names import HIGH_WATERMARK_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.truncate.removed_part import Cut
    from storage.dirs.partition import Partition
    from storage.formats.checkpoint import LeaderEpochEntry


# -- where leader epochs end, and up to where two logs agree by them.
#
# The rules are EPOCH-5 (where an epoch ends), EPOCH-7 and EPOCH-8 (the epochs of other replicas).


class EpochEnd(NamedTuple):
    """The end of a leader epoch. `epoch` is the epoch in the answer."""

    epoch: int
    end_offset: int


def find_epoch_end(
    entries: Sequence[LeaderEpochEntry], epoch: int, log_end_offset: int
) -> EpochEnd | None:
    """Return a leader's answer about the end of an epoch (EPOCH-5). None: undefined."""
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
    """Return where a follower truncates that asks a leader about an epoch, repeatedly (EPOCH-7).

    `ours` are the follower's entries, not empty. None: the leader does not know an end.
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
        # The leader's epoch is absent here: go to the end of the previous epoch, and ask again.
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
    """Return the offset below which two logs must agree (EPOCH-8). None without a common epoch."""
    common = {each.epoch for each in ours} & {each.epoch for each in theirs}
    if not common:
        return None
    our_end = find_epoch_end(ours, max(common), our_end_offset)
    their_end = find_epoch_end(theirs, max(common), their_end_offset)
    assert our_end is not None
    assert their_end is not None
    return min(our_end.end_offset, their_end.end_offset)


def read_epochs(partition: Partition) -> list[LeaderEpochEntry] | None:
    """Return entries of leader-epoch-checkpoint. None if there is no such file.

    Raises:
        RefusedError: the file exists, but is not sound (DIR-7, EPC-1).
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
            f"{partition.path}: its leader epochs or their start offsets fall [EPC-1]",
            next_step=next_step,
        )
    return entries


# -- turn a requested target (high watermark, offset, leader epoch, time) into an offset.
#
# The rules are TRUNC, OFF-3 (a checkpointed high watermark is a lower bound), EPOCH-5 (where an
# epoch ends), EPOCH-7 and EPOCH-8 (other replicas' epochs).


class TargetKind(StrEnum):
    """The kind of a target."""

    HW = "hw"
    OFFSET = "offset"
    LEADER_EPOCH = "leader_epoch"
    TIME = "time"


class TargetRequest(NamedTuple):
    """A requested target.

    Attributes:
        kind: of `value`.
        value: the offset, the epoch, or milliseconds since 1970. None for HW.
        assume_hw: replaces the checkpointed high watermark.
        exact: refuse an offset inside of a batch.
        replicas: other directories of the partition, to compare leader epochs with.
    """

    kind: TargetKind
    value: int | None = None
    assume_hw: int | None = None
    exact: bool = False
    replicas: tuple[Partition, ...] = ()


class CutTarget(NamedTuple):
    """The new end of the log.

    Attributes:
        offset: the requested offset.
        end_offset: log end after a restart: the end of the last kept batch.
        log_start_offset: before the truncation.
        `cut`: the removed part.
        notes: facts for the user.
    """

    offset: int
    end_offset: int
    log_start_offset: int
    cut: Cut
    notes: tuple[str, ...]


class _FoundOffset(NamedTuple):
    """An offset, and notes for the user on how it was found."""

    offset: int
    notes: tuple[str, ...] = ()


class _Log(NamedTuple):
    """A partition and its bounds."""

    partition: Partition
    start_offset: int
    end_offset: int

    @property
    def path(self) -> str:
        return self.partition.path


def find_target(partition: Partition, request: TargetRequest) -> CutTarget:
    """Find the offset to truncate to.

    Raises:
        UsageError: an offset below 0, a replica of another partition.
        RefusedError: the data for the target is unknown or contradictory, the target is inside of a
            batch (`exact`), or the kept part is damaged.
        AccessError: it cannot be read.
    """
    log = _bounds(partition)
    if log.start_offset > log.end_offset:
        raise RefusedError(
            f"{log.path}: its log start offset is {log.start_offset}, above its end"
            f" {log.end_offset}: a broker would delete all of it at its start [OFS-1]",
            next_step=f"eoctl repair {pasted(log.path)} --strategy salvage",
        )
    for each in request.replicas:
        if each.directory.topic_partition != partition.directory.topic_partition:
            raise UsageError(f"{each.path}: is no replica of {partition.directory.topic_partition}")
    offset, notes = _FINDERS[request.kind](log, request)
    if partition.problems:
        raise RefusedError(
            (
                f"{partition.problems[0]}: the part that cannot be read may matter to the place of "
                "the truncation"
            ),
            next_step=f"put right what it names, or move it away; eoctl describe"
            f" {pasted(log.path)}",
        )
    remote = partition.remote_range
    if remote is not None and offset < remote.end_offset:
        raise RefusedError(
            f"{log.path}: {remote}: a truncation at {offset} would leave nothing of the local "
            "log, and the segments after it in remote storage would remain",
            next_step=f"an offset from {remote.end_offset} on",
        )
    cut = find_cut(partition, offset, log.end_offset)
    return CutTarget(
        offset=offset,
        end_offset=cut.end_offset,
        log_start_offset=log.start_offset,
        cut=cut,
        notes=(*notes, *_note_of(log, cut, is_exact=request.exact)),
    )


def _bounds(partition: Partition) -> _Log:
    end = partition.log_end()
    start_offset = partition.log_start_offset or 0
    return _Log(partition, start_offset, start_offset if end is None else end.offset)


def _note_of(log: _Log, cut: Cut, *, is_exact: bool) -> Iterator[str]:
    """Refuse what `exact` refuses. Yield notes that hold for every kind of target."""
    around = cut.around
    if around is not None:
        where = (
            f"offset {cut.offset} lies inside of the batch with offsets {around.base_offset} to"
            f" {around.last_offset} (position {around.pos} of {around.path})"
        )
        if is_exact:
            raise RefusedError(
                f"{where}, and only whole batches can be removed",
                next_step=f"--to-offset {around.base_offset}, --to-offset"
                f" {around.last_offset + 1}, or leave out --exact",
            )
        yield f"{where}: all of that batch goes"
    if cut.is_nothing:
        beyond = f", below {cut.offset}" if cut.offset > cut.log_end_offset else ""
        yield f"nothing to truncate: the log ends at {cut.log_end_offset}{beyond}"
        yield from _note_of_tail(log)
        return
    if cut.end_offset < cut.offset:
        yield (
            f"the log will end at {cut.end_offset}, behind the last batch that stays, not at"
            f" {cut.offset}"
        )
    if cut.offset < log.start_offset:
        yield (
            f"below the log start offset {log.start_offset}: no record stays, and the log start"
            " goes down with the end"
        )


def _note_of_tail(log: _Log) -> Iterator[str]:
    """Yield a note about the bytes after the last batch."""
    end = log.partition.log_end()
    if end is not None and end.valid_bytes < end.files.log.file_bytes:
        yield (
            f"{end.files.log.path}: from position {end.valid_bytes} on there is no whole batch "
            f"({end.verdict.kind}): the next start of a broker truncates that"
        )


# --- the high watermark ---------------------------------------------------------------------------


def _to_high_watermark(log: _Log, request: TargetRequest) -> _FoundOffset:
    if request.assume_hw is not None:
        if request.assume_hw < 0:
            raise UsageError(f"{request.assume_hw}: a high watermark is not negative")
        given = f"the high watermark is taken to be {request.assume_hw}, as given"
        return _clamped(log, request.assume_hw, [given])
    high_watermark = log.partition.high_watermark
    if high_watermark is None:
        why = "the directory around it is no log dir"
        if log.partition.log_dir is not None:
            why = f"{HIGH_WATERMARK_NAME} has no line of it"
        raise RefusedError(
            f"{log.path}: its high watermark is unknown: {why}",
            next_step="--assume-hw N, or --to-offset N",
        )
    compared = (
        _require_common(log, _bounds(replica), high_watermark) for replica in request.replicas
    )
    notes = [each for each in compared if each]
    notes.append(
        f"the checkpointed high watermark {high_watermark} is a lower bound: after a crash the"
        " real one may have been higher, by what was acknowledged in the last seconds"
    )
    return _clamped(log, high_watermark, notes)


def _clamped(log: _Log, high_watermark: int, notes: Sequence[str]) -> _FoundOffset:
    """Limit the high watermark to the log, like a broker at its start."""
    clamped = max(min(high_watermark, log.end_offset), log.start_offset)
    if clamped == high_watermark:
        return _FoundOffset(clamped, tuple(notes))
    side = "end" if high_watermark > clamped else "start"
    beyond = f"the high watermark {high_watermark} lies beyond the log {side} {clamped}"
    return _FoundOffset(clamped, (*notes, beyond))


def _require_common(log: _Log, other: _Log, high_watermark: int) -> str:
    """Refuse a high watermark above the possible common end of two replicas (EPOCH-8).

    Returns:
        Why they were not compared, "" if they were.
    """
    ours, theirs = read_epochs(log.partition), read_epochs(other.partition)
    if not ours or not theirs:
        lacking = log.path if not ours else other.path
        return f"{lacking}: knows no leader epochs: {other.path} was not compared"
    common_end = find_common_end(ours, log.end_offset, theirs, other.end_offset)
    limit = min(high_watermark, log.end_offset)
    if common_end is not None and limit <= common_end:
        return ""
    advice = f"--to-offset {common_end}, or --to-leader-epoch E with the last common epoch"
    if common_end is None:
        found, advice = "they have not one leader epoch in common", "--to-offset N"
    elif common_end == other.end_offset:
        found = f"that ends at {common_end}: it lags behind, or lost its tail"
    else:
        found = f"by their leader epochs they diverge at {common_end} at the latest"
    raise RefusedError(
        f"{log.path}: its high watermark {high_watermark} is above the end of the part in common "
        f"with {other.path}: {found}, so the acknowledged offsets are unknown",
        next_step=f"{advice}; --assume-hw N if you know better",
    )


# --- an offset, an epoch, a time ------------------------------------------------------------------


def _to_offset(_log: _Log, request: TargetRequest) -> _FoundOffset:
    offset = _value(request)
    if offset < 0:
        raise UsageError(f"offset {offset}: an offset is not negative")
    # Above the end there is nothing to truncate: after a first run of a command, for example.
    return _FoundOffset(offset)


def _to_leader_epoch(log: _Log, request: TargetRequest) -> _FoundOffset:
    epoch = _value(request)
    entries = read_epochs(log.partition)
    if not entries:
        raise SpentTargetError(
            f"{log.path}: knows no leader epochs: leader-epoch-checkpoint is missing or empty",
            next_step=f"eoctl rebuild {pasted(log.path)}",
        )
    end = find_epoch_end(entries, epoch, log.end_offset)
    if end is None:
        raise SpentTargetError(
            f"{log.path}: its latest leader epoch is {entries[-1].epoch}, of {epoch} it knows no"
            " end",
            next_step=f"--to-leader-epoch {entries[-1].epoch} or below; eoctl rebuild if epochs"
            " are missing",
        )
    notes = []
    if end.epoch != epoch or epoch not in {each.epoch for each in entries}:
        notes.append(
            f"leader epoch {epoch} is unknown here: a replica would get the end of epoch "
            f"{end.epoch}, {end.end_offset}"
        )
    offset = end.end_offset
    for replica in request.replicas:
        other = _bounds(replica)
        theirs = read_epochs(other.partition)
        limit = find_agreed_end(
            entries, log.end_offset, theirs or (), other.end_offset, epoch=epoch
        )
        if limit is None:
            notes.append(f"{other.path}: cannot say where leader epoch {epoch} ends")
        elif limit < offset:
            notes.append(
                f"{other.path}: by its leader epochs the two diverge at {limit}: the target is "
                f"that instead of {offset}"
            )
            offset = limit
    return _FoundOffset(offset, tuple(notes))


def _to_time(log: _Log, request: TargetRequest) -> _FoundOffset:
    found = log.partition.find_timestamp(_value(request))
    if found is None:
        return _FoundOffset(log.end_offset, ("no record has that timestamp or a later timestamp",))
    reported = (
        f"the first record at or after that time has offset {found.offset} and timestamp "
        f"{found.timestamp_ms}; records after it with earlier timestamps are removed, too"
    )
    return _FoundOffset(found.offset, (reported,))


def _value(request: TargetRequest) -> int:
    if request.value is None:
        raise UsageError(f"a target of the kind {request.kind} needs a value")
    return request.value


_FINDERS: dict[TargetKind, Callable[[_Log, TargetRequest], _FoundOffset]] = {
    TargetKind.HW: _to_high_watermark,
    TargetKind.OFFSET: _to_offset,
    TargetKind.LEADER_EPOCH: _to_leader_epoch,
    TargetKind.TIME: _to_time,
}
