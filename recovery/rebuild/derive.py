"""Rebuild what a broker derives from the `.log` files of a partition (rules FIX, REC-7)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.pool import paying_jobs, stream_in_order
from recovery.rebuild.index_builder import DEFAULT_INTERVAL_BYTES
from recovery.rebuild.segment_pass import Block, PassEnd, SegmentJob, add_epoch_run, pass_over
from recovery.replay.recover_state import read_snapshots
from recovery.replay.snapshots import Clock, StateHistory
from storage.file_names import LEADER_EPOCHS_NAME
from storage.formats.checkpoint import LeaderEpochEntry, encode_leader_epochs
from storage.formats.producer_snapshot import encode_snapshot
from storage.kernels.kernel_choice import load_native
from storage.kernels.layouts import TXN_ENTRY
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.changes.plans.file_facts import Range
    from recovery.rebuild.segment_pass import EpochRun
    from recovery.replay.bulk_state import EndedTransactions
    from recovery.replay.snapshots import Snapshots
    from storage.dirs.partition import Partition
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.producers.producer_state import Violation


# The rows that a worker keeps before it waits for the reader: about 60 bytes each.
MAX_WAITING_ROWS = 400_000


def run_passes(work: Sequence[SegmentJob], jobs: int = 1) -> Iterator[Iterator[Block | PassEnd]]:
    """Yield the messages of each segment, in order. Exceptions keep their place.

    With several jobs, several processes work. This process reads small inputs itself. It also reads
    a single segment, with a thread that reads ahead if the kernel supports it.
    """
    jobs = paying_jobs(jobs, map(_size_bytes, work))
    if jobs > 1 and len(work) == 1 and load_native() is not None:
        work, jobs = [each._replace(threads=jobs) for each in work], 1
    return stream_in_order(
        pass_over,
        work,
        jobs,
        weight_of=_rows_count,
        max_weight=MAX_WAITING_ROWS,
        name_of=lambda job: job.path,
    )


def _rows_count(message: Block | PassEnd) -> int:
    return message.table.row_count if isinstance(message, Block) else 0


def _size_bytes(job: SegmentJob) -> int:
    try:
        return Path(job.path).stat().st_size
    except OSError:  # the pass reports it
        return 0


# -- rebuild what a broker derives from the `.log` files (rules FIX, REC-7, SNAP-9).
#
# The result is what a broker writes that starts on the bare `.log` files after a crash: `.index`,
# `.timeindex`, `.txnindex`, `.snapshot` and `leader-epoch-checkpoint`, byte for byte. For each
# segment, in order:
#   1  load the newest snapshot at or below the base offset, without expired producers. If the base
#      is above it (an offset gap), write that state as snapshot of the base.
#   2  replay the batches. An aborted transaction goes to `.txnindex`.
#   3  write the state at the end as snapshot of the next offset.
# A segment that would be truncated is the last (REC-6). At the end, snapshots at or below the log
# start are removed (SNAP-3). So are snapshots that belong to no base, except at the log end
# (SNAP-5).


class RebuildSettings(NamedTuple):
    """The settings that shape the derived files. For their sources see `eoctl-rebuild(1)`."""

    now_ms: int
    interval_bytes: int = DEFAULT_INTERVAL_BYTES
    expiration_ms: int = DEFAULT_EXPIRATION_MS


class RebuiltSegment(NamedTuple):
    """The derived files of one segment.

    `txn_index` is None without any ABORT marker. It is empty if the data of all aborted
    transactions is gone: the broker that wrote them has the file, and recovery empties it.
    """

    end: PassEnd
    txn_index: bytes | None


class Rebuilt(NamedTuple):
    """All derived files of a partition.

    `snapshots` are the remaining snapshots, by offset. `epochs` are the leader epochs of the
    batches. `clock` is the clock for the expiry in the snapshots.
    """

    segments: tuple[RebuiltSegment, ...]
    snapshots: dict[int, bytes]
    epochs: tuple[EpochRun, ...]
    log_start_offset: int
    log_end_offset: int
    violations: tuple[Violation, ...]
    clock: Clock

    @property
    def cut(self) -> PassEnd | None:
        """The segment that recovery would truncate. Later segments were not read."""
        ends = [each.end for each in self.segments]
        return ends[-1] if ends and ends[-1].is_cut else None

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of every file."""
        for segment in self.segments:
            stem = f"{segment.end.base_offset:020d}"
            yield f"{stem}.index", segment.end.indexes.offset_index
            yield f"{stem}.timeindex", segment.end.indexes.time_index
            if segment.txn_index is not None:
                yield f"{stem}.txnindex", segment.txn_index
        for offset in sorted(self.snapshots):
            yield f"{offset:020d}.snapshot", self.snapshots[offset]
        if not self.segments:  # without a `.log` there is no source to derive from
            return
        entries = leader_epochs(self.epochs, self.log_start_offset)
        yield LEADER_EPOCHS_NAME, encode_leader_epochs(entries)


def rebuild_partition(
    partition: Partition,
    settings: RebuildSettings,
    *,
    jobs: int = 1,
    on_bytes: Callable[[int], None] | None = None,
    kept_ranges: Mapping[int, tuple[Range, ...]] | None = None,
    known: Snapshots | None = None,
    log_start_offset: int | None = None,
) -> Rebuilt:
    """Derive everything from the `.log` files alone.

    If the log begins in remote storage, the producers before the first `.log` come from the
    snapshot there.

    Args:
        partition: as listed. Only its `.log` files are read.
        settings: the broker's configuration and clock.
        kept_ranges: by base offset, of segments that keep only some ranges.
        known: right snapshots. A snapshot at a base offset replaces the derived state.
        log_start_offset: replaces the log dir's checkpoint.
        jobs: processes that scan segments.
        on_bytes: called with the size of each finished segment.

    Raises:
        AccessError: a segment cannot be read.
        FormatError, AppendError: a broker could not load the log either (PROD-6, PROD-9).
    """
    segments = partition.segments
    work = [
        SegmentJob(
            path=each.log.path,
            base_offset=each.base_offset,
            is_last=partition.is_active(each),
            interval_bytes=settings.interval_bytes,
            ranges=(kept_ranges or {}).get(each.base_offset),
        )
        for each in segments
    ]
    if log_start_offset is None:
        log_start_offset = partition.log_start_offset or 0
    # Snapshots at or below the log start are taken, and deleted at the end (SNAP-3).
    clock = Clock(settings.now_ms, settings.expiration_ms)
    history = StateHistory(clock, _remote_state(partition, log_start_offset))
    done: list[RebuiltSegment] = []
    epochs: list[EpochRun] = []
    for job, messages in zip(work, run_passes(work, jobs), strict=True):
        if known and job.base_offset in known and job.base_offset > log_start_offset:
            history.snapshots[job.base_offset] = known[job.base_offset]
        rebuilt = recover_segment(history, job.base_offset, messages)
        done.append(rebuilt)
        for run in rebuilt.end.epochs:
            add_epoch_run(epochs, run)
        if on_bytes is not None:
            on_bytes(rebuilt.end.log_bytes)
        if rebuilt.end.is_cut:
            break
    log_end_offset = done[-1].end.next_offset if done else 0
    bases = [each.end.base_offset for each in done]
    return Rebuilt(
        segments=tuple(done),
        snapshots={
            offset: encode_snapshot(entries)
            for offset, entries in history.snapshots.items()
            if offset > log_start_offset and stays(offset, bases, history.snapshots)
        },
        epochs=tuple(epochs),
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        violations=tuple(history.violations),
        clock=clock,
    )


def _remote_state(partition: Partition, log_start_offset: int) -> Snapshots:
    """Return the state of the part in remote storage, which no `.log` here has."""
    remote = partition.remote_range
    if remote is None:
        return {}
    found, _ = read_snapshots(partition)
    return {
        offset: entries
        for offset, entries in found.items()
        if log_start_offset < offset <= remote.end_offset
    }


def stays(offset: int, bases: Sequence[int], snapshots: dict[int, list[ProducerEntry]]) -> bool:
    """SNAP-5: keep a base's snapshot, and the largest other snapshot if no base is above it."""
    if offset in bases:
        return True
    strays = [each for each in snapshots if each not in bases]
    return offset == max(strays) and offset >= max(bases)


def leader_epochs(runs: Sequence[EpochRun], log_start_offset: int) -> list[LeaderEpochEntry]:
    """Return entries from the batches. The epoch in force at the log start begins there."""
    entries = [LeaderEpochEntry(each.epoch, each.first_base_offset) for each in runs]
    return cut_at_log_start(entries, log_start_offset)


def cut_at_log_start(
    entries: Sequence[LeaderEpochEntry], log_start_offset: int
) -> list[LeaderEpochEntry]:
    """Apply EPOCH-4: the epoch in force at the log start begins there."""
    below = [each for each in entries if each.start_offset <= log_start_offset]
    kept = [each for each in entries if each.start_offset > log_start_offset]
    return [LeaderEpochEntry(below[-1].epoch, log_start_offset), *kept] if below else kept


def recover_segment(
    history: StateHistory, base_offset: int, messages: Iterator[Block | PassEnd]
) -> RebuiltSegment:
    """Recover one segment: load the state at its base, replay, take snapshots (SNAP-9)."""
    state = history.load(base_offset)
    if state.map_end_offset < base_offset:
        # Nothing is between: the previous segments were replayed to their ends.
        state.map_end_offset = base_offset
        history.take(state)
    aborted: list[bytes] = []
    has_abort = False
    for message in messages:
        if isinstance(message, PassEnd):
            history.violations += state.violations
            history.take(state)
            return RebuiltSegment(message, b"".join(aborted) if has_abort else None)
        has_abort = has_abort or not message.markers.is_commit.all()
        aborted.append(encode_aborted(state.apply(message.table, message.markers).aborted))
    raise ChildProcessError("a pass over a segment has no end")


def encode_aborted(ended: EndedTransactions) -> bytes:
    """Return entries of `.txnindex` for aborted transactions."""
    entries = np.zeros(len(ended.producer_id), TXN_ENTRY)
    entries["producer_id"] = ended.producer_id
    entries["first_offset"] = ended.first_offset
    entries["last_offset"] = ended.last_offset
    entries["last_stable_offset"] = ended.last_stable_offset
    return entries.tobytes()
