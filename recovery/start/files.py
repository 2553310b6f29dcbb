"""The effects of a start on files: the steps, and the files that change, byte for byte."""

from __future__ import annotations

from enum import StrEnum
from filecmp import cmp
from typing import TYPE_CHECKING, NamedTuple

from recovery.rebuild.derive import encode_aborted
from recovery.rebuild.segment_pass import PassEnd, pass_over
from recovery.replay.bulk_state import BulkState, replay_segment
from recovery.start.segment_recovery import IndexLimits, open_start_segment, recovery_job
from storage.dirs.partition_files import all_entries
from storage.errors import FormatError
from storage.file_names import LEADER_EPOCHS_NAME, METADATA_TOPIC, QUORUM_STATE_NAME, DirState
from storage.formats.checkpoint import LeaderEpochEntry, encode_leader_epochs, parse_leader_epochs
from storage.formats.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from storage.formats.producer_snapshot import encode_snapshot, parse_snapshot
from storage.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.checks.partition_check import CheckedSegment
    from recovery.replay.snapshots import Clock
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry, SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry


class StartAction(StrEnum):
    """The change of a file by a start."""

    DELETES = "deletes"
    TRUNCATES = "truncates"  # to a size
    REBUILDS = "rebuilds"  # an index, from the batches
    REWRITES = "rewrites"
    RENAMES = "renames"
    CREATES = "creates"
    SPLITS = "splits"


class StartChange(NamedTuple):
    """A file that a start changes. `size_bytes` is the new size, known for a `.log` only."""

    path: str
    action: StartAction
    size_bytes: int | None = None

    def __str__(self) -> str:
        return self.action if self.size_bytes is None else f"{self.action} to {self.size_bytes}"


class RecoverStep(NamedTuple):
    """The recovery of a segment. `known` are the segments loaded by then."""

    segment: CheckedSegment
    known: tuple[CheckedSegment, ...]
    is_emptied: bool


class SplitStep(NamedTuple):
    """The split of a segment into several (REC-10)."""

    source: CheckedSegment
    parts: tuple[CheckedSegment, ...]


class RemoveStep(NamedTuple):
    """The removal of a segment after a truncation, with its snapshot (REC-6)."""

    files: SegmentFiles


LoadStep = RecoverStep | SplitStep | RemoveStep


# -- the files of a partition that a start creates, removes or changes, byte for byte.
#
# The start is simulated in memory, in the order of LogLoader and ProducerStateManager. It first
# recovers segments without `.index`, then segments from the recovery point on. It removes stray
# snapshots, and loads or replays the state up to the log end, with snapshots in between (SNAP-2 to
# SNAP-10). Recovery extends the leader epochs, they are truncated at both ends, and the leader adds
# its own (EPOCH-1, EPOCH-6). Derived files are compared with the disk, so equal files are no
# change.
#
# The predicted state is after a clean stop: indexes are trimmed, files waiting for deletion are
# gone.


_SWAP = ".swap"
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


class StartSettings(NamedTuple):
    """The settings of a start besides the partition itself.

    Attributes:
        clock: of the start, for the expiry of producers.
        leader_epochs: the epochs of the node as leader, in order. Empty if it does not have to
            lead.
        is_tiered: the topic has remote storage.
    """

    clock: Clock
    leader_epochs: tuple[int, ...] = ()
    is_tiered: bool = False


class StartedLog(NamedTuple):
    """The effect of a start on the log itself.

    Attributes:
        segments: remaining segments, by base offset. Files may still have their `.swap` names.
        steps: the changes of segments, in order.
        blank_indexes: base offsets of segments that get an index of zeros.
        leftovers: names of removed files.
        is_emptied: the log starts again, at `end_offset` (REC-9).
        end_offset: log end offset.
        is_clean: it was stopped cleanly.
    """

    segments: tuple[CheckedSegment, ...]
    steps: tuple[LoadStep, ...]
    blank_indexes: frozenset[int]
    leftovers: frozenset[str]
    is_emptied: bool
    end_offset: int
    is_clean: bool


def changed_files(
    partition: Partition, started: StartedLog, settings: StartSettings, limits: IndexLimits
) -> dict[str, StartChange]:
    """Return the files that a start changes, by path.

    Args:
        partition: as listed.
        started: the effect on its segments.
        settings: of the start.
        limits: of the topic's indexes.

    Raises:
        AccessError, FormatError, AppendError: the log cannot be read or loaded.
    """
    return _StartFiles(partition, started, settings, limits).run()


def _stem(segment: CheckedSegment) -> str:
    return f"{segment.files.base_offset:020d}"


class _StartFiles:
    """The planned directory: `_made` are files with new bytes, `_gone` are removed files."""

    def __init__(
        self,
        partition: Partition,
        started: StartedLog,
        settings: StartSettings,
        limits: IndexLimits,
    ) -> None:
        self._partition = partition
        self._started = started
        self._settings = settings
        self._limits = limits
        self._segments = list(started.segments)
        self._disk = {each.name.name: each for each in all_entries(partition.files)}
        self._gone = set(started.leftovers)
        self._made: dict[str, bytes] = {}
        self._moved: dict[str, str] = {}  # old names: a `.log` may be large
        self._cut: dict[str, int] = {}
        self._parts: dict[str, int] = {}  # new `.log` files of a split, and their sizes
        self._sources: set[str] = set()  # split segments
        self._grows: set[str] = set()
        log_dir, directory = partition.log_dir, partition.directory
        self._checkpoint = 0 if log_dir is None else log_dir.loaded_from(directory)[1]
        self._snapshots: dict[int, list[ProducerEntry] | None] = {}  # None: corrupt
        self._known: dict[int, list[ProducerEntry] | None] = {}  # as on disk
        for entry in partition.files.snapshots:
            if entry.name.offset is not None and entry.name.name not in self._gone:
                data = partition.read_file(entry) or b""
                try:
                    self._known[entry.name.offset] = parse_snapshot(data)
                except FormatError:
                    self._known[entry.name.offset] = None
        self._snapshots.update(self._known)
        self._disk_epochs = self._read_epochs()
        self._epochs = list(self._disk_epochs or ())

    def run(self) -> dict[str, StartChange]:
        started = self._started
        self._take_swaps()
        for each in started.steps:
            if isinstance(each, RecoverStep):
                self._add_missing_indexes(each.known)
                self._recover(each)
            elif isinstance(each, SplitStep):
                self._split(each)
            else:
                self._remove(each.files)
        end_offset = started.end_offset
        if started.is_emptied or not self._segments:
            self._start_anew(end_offset)
        else:
            self._add_missing_indexes(self._segments)
            self._trim_indexes(self._segments[-1])
            self._drop_strays()
            log_start = max(self._checkpoint, self._segments[0].files.base_offset)
            if self._partition.remote_range is not None:
                log_start = self._checkpoint
            self._rebuild_state(self._segments, log_start, end_offset, is_clean=started.is_clean)
        self._settle_epochs(end_offset)
        return self._compare()

    # -- segments

    def _take_swaps(self) -> None:
        names = [name for name in self._disk if name.endswith(_SWAP) and name not in self._gone]
        bases = {each.files.base_offset for each in self._segments}
        for name in names:
            self._gone.add(name)
            entry = self._disk[name]
            if entry.name.offset in bases:
                self._moved[name.removesuffix(_SWAP)] = entry.path
        for base_offset in self._started.blank_indexes:
            size = self._limits.max_bytes // INDEX_ENTRY_BYTES * INDEX_ENTRY_BYTES
            self._made[f"{base_offset:020d}.index"] = bytes(size)

    def _add_missing_indexes(self, segments: Sequence[CheckedSegment]) -> None:
        for each in segments:
            if each.files.time_index is None:
                self._made.setdefault(f"{_stem(each)}.timeindex", b"")

    def _trim_indexes(self, last: CheckedSegment) -> None:
        """Trim the last segment's indexes to whole entries: a broker opens and closes them."""
        for entry, entry_bytes in (
            (last.files.offset_index, INDEX_ENTRY_BYTES),
            (last.files.time_index, TIME_ENTRY_BYTES),
        ):
            if entry is not None and entry.file_bytes % entry_bytes:
                data = self._partition.read_file(entry) or b""
                kept = data[: len(data) // entry_bytes * entry_bytes]
                self._made.setdefault(entry.name.name.removesuffix(_SWAP), kept)

    def _recover(self, step: RecoverStep) -> None:
        """Apply REC-7 and SNAP-9."""
        segment = step.segment
        state, last_snapshot = self._rebuild_state(
            step.known, self._checkpoint, segment.files.base_offset, is_clean=False
        )
        is_last = segment is self._segments[-1]
        aborted: list[bytes] = []
        end = None
        for message in pass_over(recovery_job(segment, self._limits, is_last=is_last)):
            if isinstance(message, PassEnd):
                end = message
                break
            aborted.append(encode_aborted(state.apply(message.table, message.markers).aborted))
        assert end is not None
        for run in end.epochs:
            if not self._epochs or run.epoch > self._epochs[-1].epoch:
                self._assign(run.epoch, run.first_base_offset)
        self._take_recovered(segment, end, b"".join(aborted), is_emptied=step.is_emptied)
        if not step.is_emptied:
            self._take(state, last_snapshot)

    def _take_recovered(
        self, segment: CheckedSegment, end: PassEnd, aborted: bytes, *, is_emptied: bool
    ) -> None:
        stem = _stem(segment)
        self._made[f"{stem}.index"] = b"" if is_emptied else end.indexes.offset_index
        self._made[f"{stem}.timeindex"] = b"" if is_emptied else end.indexes.time_index
        if aborted or f"{stem}.txnindex" in self._made or segment.files.txn_index is not None:
            self._made[f"{stem}.txnindex"] = b"" if is_emptied else aborted
        if is_emptied or end.is_cut:
            self._cut[f"{stem}.log"] = 0 if is_emptied else end.valid_bytes

    def _split(self, step: SplitStep) -> None:
        """Apply REC-10."""
        source = step.source.files
        snapshot = self._snapshots.get(source.base_offset)
        self._remove(source)
        self._sources.add(f"{source.base_offset:020d}.log")
        for part in step.parts:
            stem = _stem(part)
            self._remove(part.files._replace(log=source.log))
            if part.files.base_offset == source.base_offset and snapshot is not None:
                self._snapshots[source.base_offset] = snapshot
            self._parts[f"{stem}.log"] = part.log_bytes
            for message in pass_over(recovery_job(part, self._limits, is_last=False)):
                if isinstance(message, PassEnd):
                    self._made[f"{stem}.index"] = message.indexes.offset_index
                    self._made[f"{stem}.timeindex"] = message.indexes.time_index

    def _remove(self, files: SegmentFiles) -> None:
        for entry in _files_of(files):
            self._gone.add(entry.name.name)
        for suffix in _SUFFIXES:
            name = f"{files.base_offset:020d}{suffix}"
            for each in (self._made, self._moved, self._cut, self._parts):
                each.pop(name, None)
        self._snapshots.pop(files.base_offset, None)

    def _start_anew(self, offset: int) -> None:
        """Apply REC-9 and REC-15: an empty segment at the log start."""
        for each in self._started.segments:
            self._remove(each.files)
        self._segments = []
        had_snapshots = bool(self._snapshots)
        self._snapshots.clear()
        if self._started.is_emptied:
            self._epochs.clear()
            had_snapshots = False
        for suffix in (".log", ".index", ".timeindex"):
            self._made[f"{offset:020d}{suffix}"] = b""
        if self._started.is_clean and not had_snapshots and offset:
            self._snapshots[offset] = []

    # -- producer state

    def _drop_strays(self) -> None:
        """Apply SNAP-5."""
        bases = {each.files.base_offset for each in self._segments}
        strays = sorted(each for each in self._snapshots if each not in bases)
        if strays and strays[-1] >= max(bases):
            strays.pop()
        for each in strays:
            del self._snapshots[each]

    def _rebuild_state(
        self,
        segments: Sequence[CheckedSegment],
        log_start: int,
        end_offset: int,
        *,
        is_clean: bool,
    ) -> tuple[BulkState, int]:
        """Simulate UnifiedLog.rebuildProducerState. Return state and last snapshot's offset."""
        last_bases = [each.files.base_offset for each in segments[-2:]]
        if is_clean and not self._snapshots:  # like the files of a broker before snapshots existed
            state, last_snapshot = BulkState(), 0
            for offset in (*last_bases, end_offset):
                state.map_end_offset = offset
                last_snapshot = self._take(state, last_snapshot)
            return state, last_snapshot
        state, last_snapshot = self._reload(log_start, end_offset)
        if end_offset > state.map_end_offset:
            last_snapshot = self._replay(
                state, last_snapshot, segments, log_start, end_offset, set(last_bases)
            )
        state.map_end_offset = end_offset
        return state, self._take(state, last_snapshot)

    def _reload(self, log_start: int, end_offset: int) -> tuple[BulkState, int]:
        """Simulate ProducerStateManager.truncateAndReload: the newest good snapshot in range."""
        for each in list(self._snapshots):
            if each > end_offset or each <= log_start:
                del self._snapshots[each]
        clock = self._settings.clock
        while self._snapshots:
            newest = max(self._snapshots)
            entries = self._snapshots[newest]
            if entries is not None:
                state = BulkState()
                state.load(entries, newest, now_ms=clock.now_ms, expiration_ms=clock.expiration_ms)
                return state, newest
            del self._snapshots[newest]
        return BulkState(log_start), log_start

    def _replay(
        self,
        state: BulkState,
        last_snapshot: int,
        segments: Sequence[CheckedSegment],
        log_start: int,
        end_offset: int,
        snapshot_bases: set[int],
    ) -> int:
        first = state.map_end_offset
        bases = [each.files.base_offset for each in segments]
        below = [each for each in bases if each <= first]
        for each, base_offset in zip(segments, bases, strict=True):
            if base_offset < max(below, default=0) or base_offset >= end_offset:
                continue
            start = max(base_offset, state.map_end_offset, log_start)
            state.map_end_offset = start
            if base_offset in snapshot_bases:
                last_snapshot = self._take(state, last_snapshot)
            name = f"{_stem(each)}.log"
            if self._cut.get(name) == 0:
                continue
            with open_start_segment(each) as segment:
                replay_segment(
                    segment,
                    state,
                    start_offset=start,
                    end_offset=end_offset,
                    # A broker verifies nothing here, but recovery has already removed its truncated
                    # bytes.
                    verify_crc=name in self._cut,
                )
            state.map_end_offset = start  # a load does not advance it batch by batch
        return last_snapshot

    def _take(self, state: BulkState, last_snapshot: int) -> int:
        """Apply SNAP-1."""
        if state.map_end_offset <= last_snapshot:
            return last_snapshot
        self._snapshots[state.map_end_offset] = state.entries()
        return state.map_end_offset

    # -- leader epochs

    def _read_epochs(self) -> list[LeaderEpochEntry] | None:
        data = self._partition.read_file(self._partition.files.other(LEADER_EPOCHS_NAME))
        try:
            return None if data is None else parse_leader_epochs(data)
        except FormatError:
            return None

    def _assign(self, epoch: int, offset: int) -> None:
        """Apply EPOCH-1."""
        epochs = self._epochs
        if epochs and epochs[-1].epoch == epoch and epochs[-1].start_offset <= offset:
            return
        while epochs and (epochs[-1].epoch >= epoch or epochs[-1].start_offset >= offset):
            epochs.pop()
        epochs.append(LeaderEpochEntry(epoch, offset))

    def _settle_epochs(self, end_offset: int) -> None:
        """Apply EPOCH-6, and assign the leader's epochs, which replace equal or higher epochs."""
        if self._epochs and self._epochs[-1].start_offset >= end_offset:
            self._epochs = [each for each in self._epochs if each.start_offset < end_offset]
        below = [each for each in self._epochs if each.start_offset <= self._checkpoint]
        if below:
            above = self._epochs[len(below) :]
            self._epochs = [LeaderEpochEntry(below[-1].epoch, self._checkpoint), *above]
        for epoch in self._settings.leader_epochs:
            self._assign(epoch, end_offset)
        if self._epochs != (self._disk_epochs or []):
            self._made[LEADER_EPOCHS_NAME] = encode_leader_epochs(self._epochs)
        elif LEADER_EPOCHS_NAME not in self._disk:
            self._made[LEADER_EPOCHS_NAME] = b""

    # -- changes

    def _compare(self) -> dict[str, StartChange]:
        for offset, entries in self._known.items():
            if self._snapshots.get(offset, ()) is not entries:
                self._gone.add(f"{offset:020d}.snapshot")
        for offset, taken in self._snapshots.items():
            if taken is not None and taken is not self._known.get(offset):
                self._made[f"{offset:020d}.snapshot"] = encode_snapshot(taken)
        if self._partition.topic == METADATA_TOPIC:
            self._grow()
        if self._partition.directory.name.state is DirState.STRAY:
            self._leave_open()
        changes: dict[str, StartChange] = {}
        names = {*self._disk, *self._made, *self._moved, *self._grows, *self._parts}
        for name in sorted(names):
            action = self._action(name)
            if action is not None:
                entry = self._disk.get(name)
                path = f"{self._partition.path}/{name}" if entry is None else entry.path
                size = self._cut.get(name, self._parts.get(name))
                changes[path] = StartChange(path, action, size)
        return changes

    def _grow(self) -> None:
        """Mark the files of the quorum, which continues to write. Snapshots get other names."""
        logs = [f"{_stem(each)}.log" for each in self._segments[-1:]]
        for name in (*logs, LEADER_EPOCHS_NAME, QUORUM_STATE_NAME):
            self._grows.add(name)

    def _leave_open(self) -> None:
        """Extend the last indexes of a stray log to full size: a stop does not close the log."""
        for segment in self._segments[-1:]:
            for kind, entry_bytes in (
                ("index", INDEX_ENTRY_BYTES),
                ("timeindex", TIME_ENTRY_BYTES),
            ):
                name = f"{_stem(segment)}.{kind}"
                entry = self._disk.get(name)
                size_bytes = self._limits.max_bytes // entry_bytes * entry_bytes
                if entry is None or entry.file_bytes != size_bytes:
                    self._grows.add(name)

    def _action(self, name: str) -> StartAction | None:
        if name in self._grows:
            return StartAction.REWRITES if name in self._disk else StartAction.CREATES
        entry, made, source = self._disk.get(name), self._made.get(name), self._moved.get(name)
        if name in self._parts:
            if entry is None:
                return StartAction.CREATES
            return StartAction.SPLITS if name in self._sources else StartAction.REWRITES
        if made is None and source is None:
            if name in self._sources:
                return StartAction.RENAMES  # and deletes it later
            if name in self._cut:
                return StartAction.TRUNCATES
            if name not in self._gone:
                return None
            is_renamed = name.removesuffix(_SWAP) in self._moved and name.endswith(_SWAP)
            return StartAction.RENAMES if is_renamed else StartAction.DELETES
        if entry is None:
            return StartAction.CREATES
        if made is not None:
            is_equal = self._partition.read_file(entry) == made
        else:
            is_equal = name not in self._cut and cmp(entry.path, str(source), shallow=False)
        is_index = name.endswith((".index", ".timeindex", ".txnindex"))
        action = StartAction.REBUILDS if is_index else StartAction.REWRITES
        return None if is_equal else action


def _files_of(files: SegmentFiles) -> Iterable[FileEntry]:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index)
    return (each for each in entries if each is not None)
