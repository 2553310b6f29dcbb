"""The comparison of the replicas of one partition: divergence, contents, cost of each leader.

Two answers are kept apart. The leader epochs are Kafka's own criterion. Below the end of their
latest common epoch two logs must agree (EPOCH-8), and there a follower truncates itself (EPOCH-7).
The checksums show whether they agree: batches are compared by offsets, leader epoch, size and CRC.

The comparison covers only readable batches: nothing after damage counts as different. Records below
a cleaner's position (COMP) cannot be compared, since each broker cleans for itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recovery.audit.replica_check import Copy, compare_copies
from recovery.summaries.summary import Extent, fingerprint, join_fingerprints, no_fingerprint
from recovery.truncate.cost import CutCounts, TransactionChanges, cut_parts
from recovery.truncate.plan import Truncation, producers_at_end
from recovery.truncate.target import (
    TargetKind,
    TargetRequest,
    find_agreed_end,
    find_common_end,
    find_target,
    read_epochs,
)
from storage.dirs.lookup import END_KINDS
from storage.dirs.offset_ledger import OffsetLedger, absent, joined, unread
from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.formats.checkpoint import LeaderEpochEntry
from storage.kernels.protocol import HeaderTable
from storage.log.segment import open_segment
from storage.places.listing import SegmentPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from recovery.replay.snapshots import Clock
    from recovery.summaries.summary import Fingerprint
    from recovery.truncate.cost import TransactionChange
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import Verdict
    from storage.log.segment import Segment


class LogEpochs(Protocol):
    """The facts about a replica that decide whom it follows."""

    @property
    def end_offset(self) -> int:
        """The log end offset."""

    @property
    def high_watermark(self) -> int | None:
        """The checkpointed high watermark, a lower bound. None if unknown."""

    @property
    def epochs(self) -> tuple[LeaderEpochEntry, ...] | None:
        """The entries of leader-epoch-checkpoint. None without one."""


class ReplicaLog(NamedTuple):
    """One directory, read from end to end.

    Attributes:
        partition: as listed.
        start_offset, end_offset: of the log.
        high_watermark: as checkpointed, a lower bound. None if unknown.
        epochs: of leader-epoch-checkpoint. None without one.
        copy: the fingerprint of its batches, for comparisons.
        sound_end_offset: every batch below was read and is good. The log end if all are.
        cleaned_end_offset: below it a cleaner may have removed records. 0 without cleaning.
        notes: damage, in words.
    """

    partition: Partition
    start_offset: int
    end_offset: int
    high_watermark: int | None
    epochs: tuple[LeaderEpochEntry, ...] | None
    copy: Copy
    sound_end_offset: int
    cleaned_end_offset: int
    notes: tuple[str, ...]

    @property
    def path(self) -> str:
        """The directory, as given."""
        return self.partition.path

    @property
    def is_sound(self) -> bool:
        """Return whether every batch was read and is good."""
        return self.sound_end_offset >= self.end_offset


class Likeness(StrEnum):
    """The result of comparing two replicas."""

    EQUAL = "equal"
    BEHIND = "behind"  # equal in their common offsets, but one ends earlier
    DIVERGED = "diverged"
    DISJOINT = "disjoint"  # they have no common offset
    UNKNOWN = "unknown"  # equal as far as compared, but a part could not be compared


class Comparison(NamedTuple):
    """Two replicas. Offsets are half open. None if unknown.

    Attributes:
        start_offset, end_offset: the compared range.
        epochs_end_offset: below it they must agree, by their leader epochs.
        divergence_offset: first offset of the first batch that only one of them has.
        is_hidden: they differ below `epochs_end_offset`, where no broker looks.
    """

    likeness: Likeness
    start_offset: int | None
    end_offset: int | None
    epochs_end_offset: int | None
    divergence_offset: int | None
    is_hidden: bool
    notes: tuple[str, ...]


class Tail(NamedTuple):
    """The records of a replica from an offset on, which it loses by a truncation. None if unknown.

    Attributes:
        start_offset: the offset of the truncation: the end of the last kept batch.
        end_offset: its log end.
        records_count: of data.
        acknowledged_end_offset: all lower records were acknowledged, according to checkpoints.
        transactions: the first removed, reopened or shortened transactions.
    """

    start_offset: int
    end_offset: int
    batches_count: int | None
    records_count: int | None
    log_bytes: int
    acknowledged_end_offset: int | None
    acknowledged_records_count: int | None
    transactions_count: dict[str, int] | None
    transactions: tuple[TransactionChange, ...] | None
    notes: tuple[str, ...]


# --- one replica ----------------------------------------------------------------------------------


def read_replica(
    partition: Partition, *, on_bytes: Callable[[int], None] = lambda _: None
) -> ReplicaLog:
    """Read a replica from end to end. Note unreadable parts of its `.log` files.

    Raises:
        RefusedError: it has leader epochs, but they are not sound.
        AccessError: its last `.log` cannot be opened.
    """
    epochs = read_epochs(partition)
    unread = list(map(str, partition.problems))  # above all a `.log` that is no file
    found = _Pass(partition)
    for files in partition.segments:
        found.read(files)
        on_bytes(files.log.file_bytes)
    end = partition.log_end()
    start_offset = partition.local_log_start_offset or 0
    end_offset = start_offset if end is None else end.offset
    span = joined(found.spans)
    lost = absent(partition.acknowledged, span, partition.cleanup, found.unread)
    sound_ends = [found.sound_end_offset, *(each.base_offset for each in lost[:1])]
    sound_end_offset = min((each for each in sound_ends if each is not None), default=end_offset)
    is_cleaned = bool(span.cleaned_end) or (bool(span.gaps) and not lost)
    return ReplicaLog(
        partition=partition,
        start_offset=start_offset,
        end_offset=end_offset,
        high_watermark=partition.high_watermark,
        epochs=None if epochs is None else tuple(epochs),
        copy=Copy(_places(partition), found.extent, found.fingerprint),
        sound_end_offset=sound_end_offset,
        cleaned_end_offset=_cleaned_end_offset(partition, is_cleaned=is_cleaned),
        notes=(*unread, *found.notes, *(f"{partition.path}: {each}" for each in lost)),
    )


def _places(partition: Partition) -> tuple[SegmentPlace, ...]:
    return tuple(
        SegmentPlace(
            broker="",
            topic=partition.topic,
            partition=partition.partition,
            directory=partition.path,
            path=each.log.path,
            base_offset=each.base_offset,
            is_active=partition.is_active(each),
            file_bytes=each.log.file_bytes,
            modified_ns=0,
        )
        for each in partition.segments
    )


def _cleaned_end_offset(partition: Partition, *, is_cleaned: bool) -> int:
    """Return the cleaner's highest noted position. A broker never cleans active segments."""
    offsets = None if partition.log_dir is None else partition.log_dir.cleaner_offsets
    noted = (offsets or {}).get(partition.directory.topic_partition)
    if noted is not None:
        return noted
    return partition.segments[-1].base_offset if is_cleaned else 0


class _Pass:
    """A reader of the segments of a replica, one after the other."""

    def __init__(self, partition: Partition) -> None:
        self.fingerprint: Fingerprint = no_fingerprint()
        self.extent = Extent()
        self.spans: list[OffsetSpan] = []
        self.unread: list[Missing] = []  # offsets after damage in their segment
        self.sound_end_offset: int | None = None  # None: no damage so far
        self.notes: list[str] = []
        self._partition = partition
        self._next_offset: int | None = None
        self._ledger = OffsetLedger()
        self._segment_start = 0  # first offset read in the previous segment

    def read(self, files: SegmentFiles) -> None:
        before = files.base_offset if self._next_offset is None else self._next_offset
        if before > files.base_offset:
            self.notes.append(
                f"{files.log.path}: begins at {files.base_offset}, and the segment before it ends"
                f" at {before}"
            )
            if self.sound_end_offset is None:
                self.sound_end_offset = self._segment_start
        self._segment_start = before
        self._ledger = OffsetLedger(files.base_offset)
        notes_count, read_end_offset = len(self.notes), files.base_offset
        try:
            with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                scan = segment.scan_tables(**self._partition.bounds(files))
                for table in scan:
                    self._take(table, segment)
                bad = next((each for each in scan.verdicts if each.kind not in END_KINDS), None)
                if bad is not None:
                    self.notes.append(
                        f"{files.log.path}: position {bad.start_pos}: {bad.reason or bad.kind}"
                    )
                    read_end_offset = _sound_end(segment, bad, before)
                    if self.sound_end_offset is None:
                        self.sound_end_offset = read_end_offset
        except AccessError as error:
            self.notes.append(str(error))
            if self.sound_end_offset is None:
                self.sound_end_offset = before
        self.spans.append(self._ledger.span)
        if len(self.notes) > notes_count:
            end_offset = self._partition.end_of(files)
            self.unread.append(unread(max(read_end_offset, files.base_offset), end_offset))

    def _take(self, table: HeaderTable, segment: Segment) -> None:
        good = HeaderTable._make(column[table.crc_ok] for column in table)
        if not good.row_count:
            return
        first, last = int(good.base_offset[0]), int(good.last_offset[-1])
        self._ledger.take(good, segment)
        self._next_offset = last + 1
        self.extent = self.extent.then(Extent(first, int(good.last_offset.max())))
        self.fingerprint = join_fingerprints(
            self.fingerprint, fingerprint(good, self.fingerprint.width_bits)
        )


def _sound_end(segment: Segment, bad: Verdict, before: int) -> int:
    """Return the end of the good batches before a bad place, `before` without one."""
    end_offset = before
    for table in segment.scan_tables(end_pos=bad.start_pos, verify_crc=False):
        end_offset = int(table.last_offset[-1]) + 1 if table.row_count else end_offset
    return end_offset


# --- two replicas ---------------------------------------------------------------------------------


def compare_replicas(one: ReplicaLog, other: ReplicaLog) -> Comparison:
    """Compare the common offsets of two replicas.

    Raises:
        AccessError: a `.log` was removed since it was read.
    """
    notes: list[str] = []
    epochs_end_offset = None
    if one.epochs and other.epochs:
        epochs_end_offset = find_common_end(
            one.epochs, one.end_offset, other.epochs, other.end_offset
        )
    start_offset = max(one.start_offset, other.start_offset)
    end_offset = min(one.end_offset, other.end_offset)
    if start_offset >= end_offset and max(one.end_offset, other.end_offset) > start_offset:
        low, high = sorted((one, other), key=lambda each: each.end_offset)
        notes.append(
            f"{low.path} ends at {low.end_offset}, {high.path} begins at {high.start_offset}. They"
            " have no offset in common, and it is unknown where they diverged"
        )
        return Comparison(
            likeness=Likeness.DISJOINT,
            start_offset=None,
            end_offset=None,
            epochs_end_offset=epochs_end_offset,
            divergence_offset=None,
            is_hidden=False,
            notes=(*notes,),
        )
    cleaned_end_offset = max(one.cleaned_end_offset, other.cleaned_end_offset)
    if cleaned_end_offset > start_offset:
        start_offset = min(cleaned_end_offset, end_offset)
        notes.append(
            f"{one.path} and {other.path}: a cleaner was at work below {cleaned_end_offset}: what"
            f" they have below {start_offset} may differ by right, and is not compared"
        )
    sound_end_offset = min(one.sound_end_offset, other.sound_end_offset)
    is_whole = sound_end_offset >= end_offset
    found = compare_copies(one.copy, other.copy, start_offset=start_offset)
    different = found.first_different_offset
    if different is not None and different >= min(sound_end_offset, end_offset):
        different = None  # after damage, or beyond the end of one of them
    if different is not None:
        likeness = Likeness.DIVERGED
    elif not is_whole or (found.is_equal is False and found.first_different_offset is None):
        likeness = Likeness.UNKNOWN
        end_offset = max(min(end_offset, sound_end_offset), start_offset)
        notes.append(
            f"{one.path} and {other.path}: no difference below {end_offset}; after that there is "
            "damage, and it is unknown whether they differ"
        )
    else:
        is_same_end = one.end_offset == other.end_offset
        likeness = Likeness.EQUAL if is_same_end else Likeness.BEHIND
    is_hidden = (
        different is not None and epochs_end_offset is not None and different < epochs_end_offset
    )
    if is_hidden:
        notes.append(
            f"{one.path} and {other.path}: their batches differ from offset {different} on, while"
            f" their leader epochs agree up to {epochs_end_offset}. No broker will notice"
        )
    return Comparison(
        likeness=likeness,
        start_offset=start_offset,
        end_offset=end_offset,
        epochs_end_offset=epochs_end_offset,
        divergence_offset=different,
        is_hidden=is_hidden,
        notes=tuple(notes),
    )


def find_follow_offset(follower: LogEpochs, leader: LogEpochs) -> int | None:
    """Return where a follower truncates itself after the leader's election (EPOCH-7).

    None if unknown. The election begins a new epoch at the end of the leader's log (EPOCH-2). So
    the leader has an end for every epoch that the follower may request.
    """
    if not follower.epochs or not leader.epochs:
        return None
    latest = max(follower.epochs[-1].epoch, leader.epochs[-1].epoch)
    elected = [
        *(each for each in leader.epochs if each.start_offset <= leader.end_offset),
        LeaderEpochEntry(latest + 1, leader.end_offset),
    ]
    found = find_agreed_end(
        follower.epochs,
        follower.end_offset,
        elected,
        leader.end_offset,
        epoch=follower.epochs[-1].epoch,
    )
    return None if found is None else min(found, leader.end_offset)


def acknowledged_end_offset(one: LogEpochs, others: Iterable[LogEpochs]) -> int | None:
    """Return the offset below which all records of a replica were acknowledged. None if unknown.

    High watermarks of other replicas count up to the end of their common log.
    """
    known = [one.high_watermark]
    for each in others:
        if each.high_watermark is not None and one.epochs and each.epochs:
            common = find_common_end(one.epochs, one.end_offset, each.epochs, each.end_offset)
            if common is not None:
                known.append(min(each.high_watermark, common))
    if one.high_watermark is None:
        return None
    return min(max(each for each in known if each is not None), one.end_offset)


# --- losses of a truncation -----------------------------------------------------------------------


def estimate_tail(
    listed: Partition, offset: int, *, acknowledged_offset: int | None, clock: Clock
) -> Tail:
    """Return what a replica has from an offset on.

    Raises:
        RefusedError: the log below the offset is damaged, so the remaining records are unknown.
        AccessError: a `.log` cannot be read.
    """
    partition = Partition(listed.directory, listed.log_dir)
    target = find_target(partition, TargetRequest(TargetKind.OFFSET, offset))
    return estimate_target(
        Truncation(
            partition=partition,
            clock=clock,
            target=target,
            log_start_offset=min(target.log_start_offset, offset),
            producers=None,
            steps=(),
            notes=target.notes,
        ),
        acknowledged_offset,
    )


def estimate_target(truncation: Truncation, acknowledged_offset: int | None) -> Tail:
    """Return what a truncation removes. Looks up its producers.

    Raises:
        RefusedError, AccessError: as in `estimate_tail`.
    """
    partition, cut = truncation.partition, truncation.cut
    start_offset = max(cut.end_offset, truncation.target.log_start_offset)
    counts = CutCounts(start_offset, acknowledged_offset)
    for files, start_pos in cut_parts(truncation):
        counts.add_segment(files, start_pos, is_active=partition.is_active(files))
    changed, notes = None, counts.notes
    if counts.is_whole:
        if not cut.is_nothing:
            producers, unknown = producers_at_end(partition, truncation.target, truncation.clock)
            truncation = truncation._replace(producers=producers)
            notes = [*notes, *unknown]
        transactions = TransactionChanges(truncation, start_offset)
        changed = transactions.follow()
        notes = [*notes, *transactions.notes]
    return Tail(
        start_offset=cut.end_offset,
        end_offset=cut.log_end_offset,
        batches_count=counts.batches_count if counts.is_whole else None,
        records_count=counts.records_count,
        log_bytes=counts.log_bytes,
        acknowledged_end_offset=acknowledged_offset,
        acknowledged_records_count=counts.acknowledged_count,
        transactions_count=None if changed is None else changed.counts(),
        transactions=None if changed is None else changed.rows(),
        notes=tuple(notes),
    )


# -- the replica that should lead, by the criteria of an election and by cost.
#
# The log with the latest leader epoch leads, and of several such logs the longest. It has all
# records that were committed in the last epoch (EPOCH-7, and the order of KRaft's own elections).
# Records after damage do not count: a broker that starts there truncates them. Of several equal
# logs, the log whose lead costs the fewest acknowledged records is chosen.
#
# A broker that elects uncleanly does not know any of this and takes any live replica. The operator
# chooses by starting the right broker first.


class Cost(NamedTuple):
    """The losses of the other replicas if one leads, each counted by itself. None if unknown."""

    records_count: int | None
    acknowledged_records_count: int | None
    acknowledged_offsets_count: int | None


class Standing(NamedTuple):
    """The qualities of a replica as leader.

    Attributes:
        end_offset: the end of its good batches.
        leader_epoch: of its last good batch. -1: none.
        is_sound: it has no damage.
        cost: if it leads.
    """

    path: str
    end_offset: int
    leader_epoch: int
    is_sound: bool
    cost: Cost


class Recommendation(NamedTuple):
    """The replica that should lead, and why.

    Attributes:
        cheaper: another replica whose lead costs fewer acknowledged records, if there is one.
    """

    leader: Standing
    reason: str
    cheaper: Standing | None


def standing_of(log: ReplicaLog, cost: Cost) -> Standing:
    """Return the qualities of a replica. `cost` is its cost as leader."""
    end_offset = min(log.sound_end_offset, log.end_offset)
    return Standing(
        path=log.path,
        end_offset=end_offset,
        leader_epoch=max(_noted_epoch(log, end_offset), _written_epoch(log, end_offset)),
        is_sound=log.is_sound,
        cost=cost,
    )


def _noted_epoch(log: ReplicaLog, end_offset: int) -> int:
    """Return the epoch in leader-epoch-checkpoint below an offset."""
    return max(
        (each.epoch for each in log.epochs or () if each.start_offset < end_offset), default=-1
    )


def _written_epoch(log: ReplicaLog, end_offset: int) -> int:
    """Return the epoch of the last batch below an offset."""
    if end_offset <= log.start_offset:
        return -1
    try:
        place = log.partition.find_offset(end_offset - 1)
    except AccessError:  # its segment was removed meanwhile
        return -1
    return -1 if place is None else place.batch.header.partition_leader_epoch


def recommend(found: Sequence[Standing]) -> Recommendation:
    """Choose the replica that should lead. There must be at least one."""
    best = max(found, key=_rank)
    others = [each for each in found if each is not best]
    return Recommendation(best, _reason(best, others), _cheaper(best, others))


def _rank(one: Standing) -> tuple[int, int, int, bool]:
    lost = one.cost.acknowledged_records_count
    return one.leader_epoch, one.end_offset, -(lost or 0) if lost is not None else -1, one.is_sound


def _reason(best: Standing, others: Sequence[Standing]) -> str:
    damage = "" if best.is_sound else "; records after its damage do not count"
    if not others:
        return f"the only copy{damage}"
    if not best.end_offset:
        is_damaged = not all(each.is_sound for each in (best, *others))
        first = "; salvage what is damaged before any of them leads" if is_damaged else ""
        return f"none of them has a good batch{first}"
    epoch = max(each.leader_epoch for each in others)
    if best.leader_epoch > epoch:
        known = f"{epoch} at most" if epoch >= 0 else "none"
        return f"leader epoch {best.leader_epoch}, the others have {known}{damage}"
    rivals = [each for each in others if each.leader_epoch == best.leader_epoch]
    end_offset = max(each.end_offset for each in rivals)
    same = f"leader epoch {best.leader_epoch}"
    if best.end_offset > end_offset:
        return f"{same}, and the longest log of it: {best.end_offset}, not {end_offset}{damage}"
    equal = [each for each in rivals if each.end_offset == end_offset]
    lost = best.cost.acknowledged_records_count
    if lost is not None and any(
        (each.cost.acknowledged_records_count or 0) > lost for each in equal
    ):
        return f"{same} up to {end_offset}, and it costs the fewest acknowledged records{damage}"
    damaged = [each for each in equal if not each.is_sound]
    if best.is_sound and damaged:
        return f"{same} up to {end_offset}, and nothing of it is damaged"
    alike = "the other copy" if len(equal) == 1 else f"{len(equal)} others"
    return f"{same} up to {end_offset}, as {alike}: any of them may lead{damage}"


def _cheaper(best: Standing, others: Sequence[Standing]) -> Standing | None:
    lost = best.cost.acknowledged_records_count
    if not lost:
        return None
    known = [each for each in others if each.cost.acknowledged_records_count is not None]
    cheapest = min(known, key=lambda each: each.cost.acknowledged_records_count or 0, default=None)
    if cheapest is None or (cheapest.cost.acknowledged_records_count or 0) >= lost:
        return None
    return cheapest
