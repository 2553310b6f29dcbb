"""Plan to let a replica follow a leader: truncate and append like a follower.

The truncation follows the rules EPOCH-7 and TRUNC. The later batches of the leader are copied as
bytes. Their leader epochs are noted from the batches, as by a fetch (EPOCH-1, EPOCH-2). The plan
requires that the two logs certainly agree below the truncation. Otherwise the joined replica would
look sound to every broker without being so.

The order of steps is safe if a broker is started after any of them.
  1  Checkpoints are lowered to the truncation, so that every start recovers the changed files.
  2  Whole segments after the truncation are removed, from the last one backwards.
  3  The segment that is then the last gets its new content in one step.
  4  The leader's later segments are added, in order.
  5  Indexes, leader epochs, producer snapshots: an earlier start derives them again.
Leader epochs come after the log. Otherwise the replica would vouch for absent batches of the
leader, and a leader would not find the batches in their place. A plan has one step per file, so new
segments never have the name of a removed segment: they begin at the next batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import (
    LogSlice,
    absolute_path,
    replace_step,
    source_of,
    splice_step,
    truncate_step,
)
from recovery.changes.plans.preconditions import read_whole, require_no_problem
from recovery.rebuild.derive import recover_segment, stays
from recovery.rebuild.segment_pass import SegmentJob, pass_over_segment
from recovery.replay.recover_state import read_snapshots
from recovery.replay.snapshots import StateHistory
from recovery.replicas.compare import compare_replicas, find_follow_offset
from recovery.truncate.plan import Truncation, TruncationSteps, require_changeable
from recovery.truncate.target import TargetKind, TargetRequest, find_target
from storage.dirs.partition import Partition
from storage.errors import FormatError, RefusedError, pasted
from storage.file_names import LEADER_EPOCHS_NAME
from storage.files.positioned_file import SplicedFile
from storage.formats.checkpoint import LeaderEpochEntry, encode_leader_epochs
from storage.formats.producer_snapshot import encode_snapshot
from storage.formats.record_batch import MAGIC_V2
from storage.limits import MAX_RELATIVE_OFFSET
from storage.log.segment import MAX_SEGMENT_BYTES, Segment, open_segment
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import PlanSource, Step
    from recovery.rebuild.derive import RebuiltSegment
    from recovery.replay.snapshots import Clock
    from recovery.replicas.compare import ReplicaLog
    from storage.dirs.topic_settings import LogConfig

ADVICE = "move the directory away, so that its broker fetches all of it again"


class Rejoin(NamedTuple):
    """A planned rejoin.

    Attributes:
        truncation: of the replica, without steps of its own.
        append_end_offset: log end after the rejoin.
        append_bytes: bytes of log copied from the leader.
        epochs: after the rejoin.
        steps: empty if the replica has everything that the leader has.
        sources: the leader's files.
        notes: facts for the user.
    """

    truncation: Truncation
    append_end_offset: int
    append_bytes: int
    epochs: tuple[LeaderEpochEntry, ...]
    steps: tuple[Step, ...]
    sources: tuple[PlanSource, ...]
    notes: tuple[str, ...]


def plan_rejoin(
    follower: ReplicaLog, leader: ReplicaLog, *, clock: Clock, config: LogConfig
) -> Rejoin:
    """Plan the rejoin. Reads only.

    Args:
        follower: the replica that is changed.
        leader: the replica that it follows.
        clock: for the expiry of producers.
        config: the settings of the follower's log.

    Raises:
        RefusedError: they have nothing in common, their divergence is unknown, damage prevents it,
            or the directory must not be changed.
        AccessError: it cannot be read.
    """
    offset = require_follow_offset(follower, leader)
    partition = Partition(follower.partition.directory, follower.partition.log_dir)
    require_changeable(partition)
    target = find_target(partition, TargetRequest(TargetKind.OFFSET, offset))
    cut = target.cut
    notes = [*target.notes, *_require_agreement(follower, leader, cut.end_offset)]
    truncation = Truncation(
        partition=partition,
        clock=clock,
        target=target,
        log_start_offset=min(target.log_start_offset, cut.end_offset),
        producers=None,
        steps=(),
        notes=(),
    )
    try:
        planner = _RejoinPlanner(truncation, leader.partition, config)
        steps = tuple(planner.steps())
    except (FormatError, AppendError) as error:
        raise RefusedError(
            f"{leader.path}: a broker could not load what would be taken of it: {error}",
            next_step=f"eoctl check {pasted(leader.path)}",
        ) from error
    require_no_problem(partition)
    return Rejoin(
        truncation=truncation,
        append_end_offset=max(leader.end_offset, cut.end_offset),
        append_bytes=planner.append_bytes,
        epochs=planner.epochs,
        steps=steps,
        sources=tuple(source_of(each) for each in dict.fromkeys(planner.sources)) if steps else (),
        notes=tuple(notes),
    )


def require_follow_offset(follower: ReplicaLog, leader: ReplicaLog) -> int:
    """Return where a follower truncates itself, and check that it can continue from there.

    Raises:
        RefusedError: a broker would remove the whole log, or the offset is unknown.
    """
    for each in (follower, leader):
        if not each.partition.segments:
            unread = "".join(f"; {problem}" for problem in each.partition.problems)
            raise RefusedError(f"{each.path}: has no segments{unread}", next_step=ADVICE)
    offset = find_follow_offset(follower, leader)
    if offset is None:
        lacking = follower.path if not follower.epochs else leader.path
        raise RefusedError(
            f"{lacking}: knows no leader epochs, so that no follower could find where they diverge",
            next_step=f"eoctl rebuild {pasted(lacking)}   # without batches of leader epochs,"
            f" {ADVICE}",
        )
    first = max(follower.start_offset, leader.start_offset)
    if offset < first:
        whose, other = (follower, leader) if first == follower.start_offset else (leader, follower)
        raise RefusedError(
            f"{follower.path}: would be truncated at {offset}, below the log start {first} of "
            f"{whose.path}. It has nothing in common with {other.path} there, and a broker would "
            "drop all of it",
            next_step=ADVICE,
        )
    return offset


def _require_agreement(follower: ReplicaLog, leader: ReplicaLog, end_offset: int) -> list[str]:
    """Check that both agree below an offset. Return what could not be compared."""
    for each in (follower, leader):
        limit = end_offset if each is follower else each.end_offset
        if each.sound_end_offset < limit:
            raise RefusedError(
                f"{each.path}: is damaged behind offset {each.sound_end_offset}:"
                f" {'; '.join(each.notes)}",
                next_step=ADVICE if each is follower else "choose another leader, or repair it",
            )
    found = compare_replicas(follower, leader)
    different = found.divergence_offset
    if different is not None and different < end_offset:
        raise RefusedError(
            f"{follower.path} and {leader.path}: their batches differ from offset {different} on, "
            f"while by their leader epochs they agree up to {end_offset}. A follower would keep "
            "records that the leader lacks",
            next_step=f"eoctl truncate {pasted(follower.path)} --to-offset {different}"
            " --single-copy   # then the same again",
        )
    return [*found.notes]


class _Composed(NamedTuple):
    """A planned segment: its name, and the sources of its `.log`."""

    path: str
    base_offset: int
    ranges: list[LogSlice]
    is_changed: bool

    @property
    def log_bytes(self) -> int:
        return sum(each.end_pos - each.start_pos for each in self.ranges)


class _RejoinPlanner:
    """The steps of one rejoin.

    Attributes:
        epochs: after the rejoin, once the steps are made.
        append_bytes: as in Rejoin.
        sources: the leader's files to copy from.
    """

    def __init__(self, truncation: Truncation, leader: Partition, config: LogConfig) -> None:
        self._truncation = truncation
        self._cut = truncation.cut
        self._partition = truncation.partition
        self._leader = leader
        self._config = config
        self._directory = Path(absolute_path(self._partition.path))
        self._disk_epochs = self._partition.leader_epochs() or []
        self._bases = {each.base_offset for each in self._partition.segments}
        self._bases |= {
            each.name.offset
            for each in self._partition.files.orphans
            if each.name.offset is not None
        }
        self.epochs = tuple(self._disk_epochs)
        self.append_bytes = 0
        self.sources: list[str] = []

    def steps(self) -> Iterator[Step]:
        """Yield the steps in a safe order."""
        composed = self._compose()
        if self._cut.is_nothing and not self.append_bytes:
            return
        history = self._history_at(composed[0].base_offset)
        done = [self._rebuild(history, each) for each in composed]
        self._note_epochs(done)
        snapshots = self._snapshots(history, composed)
        later = [
            *self._index_steps(composed, done),
            *self._epoch_steps(),
            *self._snapshot_steps(snapshots),
        ]
        cutting = TruncationSteps(
            self._partition, self._cut, self._truncation.log_start_offset, None
        )
        yield from cutting.checkpoints()
        yield from (each for each in cutting.removals() if each.path not in snapshots)
        for each in composed:
            yield from self._log_steps(each)
        yield from later

    # -- the planned segments

    def _compose(self) -> list[_Composed]:
        """Append the leader's log to the kept log. The first result is the last kept segment."""
        cut = self._cut
        files = self._partition.segments[cut.kept_count - 1]
        own_bytes = cut.kept_bytes
        if cut.is_nothing:
            end = self._partition.log_end()
            own_bytes = 0 if end is None else end.valid_bytes
        path = str(self._directory / files.log.name.name)
        own = [LogSlice(path, 0, own_bytes)] if own_bytes else []
        is_cut = own_bytes < files.log.file_bytes and not cut.is_nothing
        composed = [
            _Composed(path=path, base_offset=files.base_offset, ranges=own, is_changed=is_cut)
        ]
        for base_offset, last_offset, piece in self._leader_pieces():
            self.append_bytes += piece.end_pos - piece.start_pos
            self.sources.append(piece.path)
            is_first = len(composed) == 1 and base_offset <= cut.end_offset
            if is_first and self._fits(composed[0], piece, last_offset):
                composed[0].ranges.append(piece)
                composed[0] = composed[0]._replace(is_changed=True)
                continue
            start_offset, rest = self._under_a_free_name(
                composed, cut.end_offset if is_first else base_offset, piece
            )
            if rest.start_pos < rest.end_pos:
                name = str(self._directory / f"{start_offset:020d}.log")
                composed.append(_Composed(name, start_offset, [rest], is_changed=True))
        return composed

    def _fits(self, first: _Composed, piece: LogSlice, last_offset: int) -> bool:
        """Return whether a follower would append to that segment, not roll (ROLL-1)."""
        size_bytes = first.log_bytes + piece.end_pos - piece.start_pos
        return not first.ranges or (
            size_bytes <= self._config.segment_bytes
            and last_offset - first.base_offset <= MAX_RELATIVE_OFFSET
        )

    def _leader_pieces(self) -> Iterator[tuple[int, int, LogSlice]]:
        """Yield base offset, last offset and place of the leader's batches after the truncation."""
        end = self._leader.log_end()
        place = self._leader.find_offset(self._cut.end_offset)
        if place is None or end is None:
            return
        header = place.batch.header
        if header.base_offset < self._cut.end_offset or header.magic < MAGIC_V2:
            raise RefusedError(
                f"{place.files.log.path}: position {place.batch.pos}: the batch with offsets"
                f" {header.base_offset} to {header.last_offset} (magic {header.magic}) cannot be"
                f" appended to a log that ends at {self._cut.end_offset}",
                next_step=ADVICE,
            )
        segments = self._leader.segments
        for index, files in enumerate(segments):
            if files.base_offset < place.files.base_offset:
                continue
            start_pos = place.batch.pos if files.base_offset == place.files.base_offset else 0
            is_last = files.base_offset == end.files.base_offset
            end_pos = end.valid_bytes if is_last else files.log.file_bytes
            last_offset = (end.offset if is_last else segments[index + 1].base_offset) - 1
            if start_pos < end_pos:
                path = absolute_path(files.log.path)
                yield files.base_offset, last_offset, LogSlice(path, start_pos, end_pos)

    def _under_a_free_name(
        self, composed: list[_Composed], base_offset: int, piece: LogSlice
    ) -> tuple[int, LogSlice]:
        """Move batches to the previous segment until the next segment has an unused name.

        Only existing files, which are removed, use a name.
        """
        if base_offset not in self._bases:
            return base_offset, piece
        start_pos = piece.start_pos
        with open_segment(piece.path) as segment:
            scan = segment.scan(start_pos=start_pos, end_pos=piece.end_pos, verify_crc=False)
            while base_offset in self._bases and start_pos < piece.end_pos:
                batch = next(scan, None)
                if batch is None:
                    break
                base_offset = batch.header.last_offset + 1
                start_pos = batch.pos + batch.header.batch_bytes
        composed[-1].ranges.append(piece._replace(end_pos=start_pos))
        composed[-1] = composed[-1]._replace(is_changed=True)
        return base_offset, piece._replace(start_pos=start_pos)

    # -- derived files

    def _history_at(self, base_offset: int) -> StateHistory:
        disk, _ = read_snapshots(self._partition)
        history = StateHistory(
            self._truncation.clock, disk, log_start_offset=self._truncation.log_start_offset
        )
        history.forget_above(base_offset)
        history.take(history.load_to(base_offset, self._partition.segments[: self._cut.kept_count]))
        return history

    def _rebuild(self, history: StateHistory, composed: _Composed) -> RebuiltSegment:
        base_offset = composed.base_offset
        job = SegmentJob(
            composed.path, base_offset, is_last=False,
            interval_bytes=self._config.index_interval_bytes,
        )  # fmt: skip
        with Segment(SplicedFile(composed.path, composed.ranges), base_offset) as segment:
            done = recover_segment(history, base_offset, pass_over_segment(segment, job))
        end = done.end
        is_too_large = (
            end.log_bytes > MAX_SEGMENT_BYTES or end.next_offset - base_offset > MAX_RELATIVE_OFFSET
        )
        if end.is_cut or is_too_large:
            reason = "larger than a segment can be" if is_too_large else end.verdict.reason
            raise RefusedError(
                f"{composed.path}: what would be put together there is no good log at position"
                f" {end.valid_bytes}: {reason}",
                next_step=ADVICE,
            )
        return done

    def _note_epochs(self, done: Iterable[RebuiltSegment]) -> None:
        """Apply EPOCH-2 to every batch of the leader."""
        end_offset = self._cut.end_offset
        entries = [each for each in self._disk_epochs if each.start_offset < end_offset]
        for run in (run for each in done for run in each.end.epochs):
            if run.last_base_offset >= end_offset:
                entry = LeaderEpochEntry(run.epoch, run.first_base_offset)
                entries = assign_epoch(entries, entry)
        self.epochs = tuple(entries)

    # -- steps

    def _log_steps(self, composed: _Composed) -> Iterator[Step]:
        if not composed.is_changed:
            return
        ranges = composed.ranges
        is_own = all(each.path == composed.path for each in ranges)
        if is_own:
            reason = f"batches below offset {self._cut.end_offset} stay"
            yield truncate_step(composed.path, composed.log_bytes, reason)
        else:
            yield splice_step(composed.path, ranges, "batches of the leader, as bytes")

    def _index_steps(
        self, composed: Sequence[_Composed], done: Sequence[RebuiltSegment]
    ) -> Iterator[Step]:
        for each, rebuilt in zip(composed, done, strict=True):
            if not each.is_changed:
                continue
            indexes = rebuilt.end.indexes
            for suffix, content in (
                (".index", indexes.offset_index),
                (".timeindex", indexes.time_index),
                (".txnindex", rebuilt.txn_index),
            ):
                path = Path(each.path).with_suffix(suffix)
                found = read_whole(path)
                # Without aborts, `.txnindex` may be absent.
                wanted = b"" if content is None and found is not None else content
                if wanted is not None and wanted != found:
                    yield replace_step(str(path), wanted, "derived from the .log")

    def _epoch_steps(self) -> Iterator[Step]:
        if self.epochs != tuple(self._disk_epochs):
            path = self._directory / LEADER_EPOCHS_NAME
            yield replace_step(
                str(path), encode_leader_epochs(self.epochs), "leader epochs of the log"
            )

    def _snapshots(self, history: StateHistory, composed: Sequence[_Composed]) -> dict[str, bytes]:
        """Return snapshots from the first changed segment on, by path."""
        bases = [each.base_offset for each in self._partition.segments[: self._cut.kept_count]]
        bases += [each.base_offset for each in composed[1:]]
        snapshots = history.snapshots
        return {
            str(self._directory / f"{offset:020d}.snapshot"): encode_snapshot(snapshots[offset])
            for offset in sorted(snapshots)
            if offset >= composed[0].base_offset and stays(offset, bases, snapshots)
        }

    def _snapshot_steps(self, snapshots: dict[str, bytes]) -> Iterator[Step]:
        for path, content in snapshots.items():
            if read_whole(Path(path)) != content:
                yield replace_step(path, content, "producer state, derived from the .log")


def assign_epoch(
    entries: Sequence[LeaderEpochEntry], entry: LeaderEpochEntry
) -> list[LeaderEpochEntry]:
    """Add the epoch of an appended batch (EPOCH-1)."""
    if (
        entries
        and entries[-1].epoch == entry.epoch
        and entries[-1].start_offset <= (entry.start_offset)
    ):
        return list(entries)
    kept = list(entries)
    while kept and (kept[-1].epoch >= entry.epoch or kept[-1].start_offset >= entry.start_offset):
        kept.pop()
    return [*kept, entry]
