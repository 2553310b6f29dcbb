"""The acknowledged offsets of a partition, compared with the offsets on disk.

A log directory proves more of a partition than its `.log` files. All offsets below these existed:

- high watermark: replicated, so producers got an acknowledgement and consumers could read it.
- recovery point: flushed to the disk. After a clean stop it is the log end offset.
- producer snapshot: taken at the log end of a clean stop, or at the end of a segment.
- an index: a segment began at its base offset. The index has no `.log`, or it has entries while its
  `.log` is empty.

Every command that claims to have read all of a log uses `Acknowledged.missing` for the offsets it
did not read. Bounds are inclusive and an upper limit: they include control records and compacted
records. A broker notices none of this at its next start. It lowers its checkpoints to the log that
it finds, and assigns the offsets again (OFS-1 to OFS-3, SEG-9, REC-9). Readers continue behind an
emptied segment (SEG-11). A cleaner that removes all records of a segment leaves it without entries,
too.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.dirs.log_dir import MAX_FILE_BYTES, PartitionDir, StoppedState, stopped_of
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    is_under_min_isr,
    min_insync_replicas,
    topic_setting,
)
from storage.errors import AccessError, FormatError
from storage.file_names import (
    LEADER_EPOCHS_NAME,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
    REMOTE_METADATA_TOPIC,
    SET_ASIDE,
    DirState,
    FileKind,
    FileSuffix,
    classify,
)
from storage.files.positioned_file import read_small_file
from storage.files.uris import is_uri
from storage.formats.checkpoint import parse_leader_epochs
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import parse_partition_metadata
from storage.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from storage.kernels.offset_order import ClaimedEnd
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition_files import FileEntry, PartitionFiles, SegmentFiles


# -- tiered storage (KIP-405): partitions whose log begins in remote storage.
#
# Such a partition keeps its log start below its first `.log`. The log start is its checkpoint line,
# or 0 without a line (REC-13). In any other partition such a line is from before retention, or
# there is no line, and the log starts at the first segment. The topic's setting
# remote.storage.enable in `__cluster_metadata` decides. Without that metadata, a partition is
# tiered if both conditions hold.
#
# * A line in log-start-offset-checkpoint, or a partition of `__remote_log_metadata` beside it.
#   Other partitions have a line only for a log start above their first segment.
# * No `leader-epoch-checkpoint` that begins at or above the first segment. A broker truncates it at
#   the log start (EPOCH-4).


REMOTE_STORAGE_ENABLE = "remote.storage.enable"


class RemoteRange(NamedTuple):
    """Offsets of a log that are only in remote storage: from the log start to the first `.log`."""

    start_offset: int
    end_offset: int  # exclusive

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset - 1} are in remote storage only"


class LocalLog(Protocol):
    """The interface required of a `storage.dirs.partition.Partition`."""

    @property
    def log_dir(self) -> LogDir | None:
        """The log directory of the partition, or None if unknown."""

    @property
    def directory(self) -> PartitionDir:
        """The directory of the partition."""

    @property
    def topic(self) -> str:
        """Topic, from the directory's name."""

    @property
    def files(self) -> PartitionFiles:
        """The files of the directory."""

    @property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """Segments by base offset."""


def find_remote_range(
    partition: LocalLog,
    image: ClusterImage | None,
    own_image: Callable[[LogDir], ClusterImage | None],
) -> RemoteRange | None:
    """Return the offsets that are only in remote storage, or None.

    Args:
        partition: with at least one segment.
        image: of its cluster. None: the image from its own log directory, if it matters.
        own_image: loads that image.
    """
    log_dir = partition.log_dir
    first_base = partition.segments[0].base_offset
    if log_dir is None or not first_base or partition.directory.name.topic == METADATA_TOPIC:
        return None
    checkpoint = log_dir.log_start_offset(partition.directory)
    start_offset = checkpoint or 0
    if start_offset >= first_base:
        return None
    is_likely = is_likely_tiered(log_dir, checkpoint)
    if image is None and not is_likely and _is_cut_at(partition, first_base):
        return None  # the common case after retention: no need to read the metadata
    if image is None:
        image = own_image(log_dir)
    if image is not None and partition.topic in image.topics:
        is_remote = is_tiered(image, partition.topic)
    else:
        is_remote = is_likely and not _is_cut_at(partition, first_base)
    return RemoteRange(start_offset, first_base) if is_remote else None


def is_tiered(image: ClusterImage, topic: str) -> bool:
    """Return whether a topic has remote storage.

    Only the topic has this setting, not the broker.
    """
    return image.topic_config(topic, REMOTE_STORAGE_ENABLE) == "true"


def is_likely_tiered(log_dir: LogDir, log_start: int | None) -> bool:
    """Return whether a log start line, or a partition next to the log, hints at remote storage."""
    return log_start is not None or bool(log_dir.partitions_of(REMOTE_METADATA_TOPIC))


def first_epoch_offset(path: str) -> int | None:
    """Return the start offset of the first entry of a leader-epoch-checkpoint, or None."""
    try:
        entries = parse_leader_epochs(read_small_file(path, MAX_FILE_BYTES))
    except (FormatError, OSError):  # a caller that needs the file reports this
        return None
    return entries[0].start_offset if entries else None


def _is_cut_at(partition: LocalLog, first_base: int) -> bool:
    """Return whether the leader epochs begin at or above the first segment."""
    entry = partition.files.other(LEADER_EPOCHS_NAME)
    if entry is None:
        return False
    begin = first_epoch_offset(entry.path)
    return begin is not None and begin >= first_base


# -- the metadata of one partition directory: its leader, its ISR, and the state of this replica
#
# The topic id links a directory with the metadata. An older topic of that name, or a topic of
# another cluster, gets no data. Unknown values are None.


MAX_METADATA_FILE_BYTES = 4096  # of a partition.metadata, which has about 50


class ReplicaStanding(StrEnum):
    """The state of a replica in the cluster."""

    LEADER = "leader"
    IN_SYNC = "in sync"
    ELIGIBLE = "eligible"  # not in the ISR, but with all acknowledged records (ELR)
    OUT_OF_SYNC = "out of sync"
    NO_REPLICA = "no replica"  # that broker has no replica
    ELSEWHERE = "in another log dir"  # that broker's replica is there
    OTHER_TOPIC = "another topic of that name"
    NOT_THERE = "not in the metadata"


class InCluster(NamedTuple):
    """A partition as in the metadata, with the state of one replica.

    Attributes:
        leader: broker id, or -1 without a leader.
        min_insync_replicas: as a broker counts, never more than there are replicas.
        min_insync_from: the source of that setting (`SettingSource`).
        is_under_min_isr: acks=all is refused, or there is no leader.
        lacks_leader: there is no leader although the broker of a replica runs. If all these brokers
            are stopped, this is False.
        standing: a `ReplicaStanding`. None also if the owner of this log directory is unknown, and
            for a directory that is being moved here.
    """

    leader: int | None = None
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    min_insync_replicas: int | None = None
    min_insync_from: str | None = None
    is_under_min_isr: bool | None = None
    lacks_leader: bool | None = None
    standing: ReplicaStanding | None = None


NOT_KNOWN = InCluster()


def in_cluster(
    directory: PartitionDir, log_dir: LogDir | None, image: ClusterImage | None
) -> InCluster:
    """Return the metadata of a partition directory. Raises nothing.

    Args:
        directory: of any partition.
        log_dir: its log directory, or None if unknown.
        image: the cluster's state, or None if unknown.
    """
    name = directory.name
    if image is None or not image.topics:
        return NOT_KNOWN
    if name.topic == METADATA_TOPIC or name.partition < 0 or name.state in SET_ASIDE:
        return NOT_KNOWN
    found = image.partition(name.topic, name.partition)
    if found is None:
        return InCluster(standing=ReplicaStanding.NOT_THERE)
    if topic_id_of(directory) not in (None, image.topics[name.topic].topic_id):
        return InCluster(standing=ReplicaStanding.OTHER_TOPIC)
    setting = topic_setting(image, name.topic, MIN_INSYNC_REPLICAS, broker_id=found.leader)
    return InCluster(
        leader=found.leader,
        isr=found.isr,
        replicas=found.replicas,
        min_insync_replicas=min_insync_replicas(image, name.topic, name.partition),
        min_insync_from=setting.source.value,
        is_under_min_isr=is_under_min_isr(image, name.topic, name.partition),
        lacks_leader=found.leader < 0 and any(_runs(image, each) for each in found.replicas),
        standing=_standing(found, log_dir) if name.state is DirState.LIVE else None,
    )


def topic_id_of(directory: PartitionDir) -> bytes | None:
    """Return the id in `partition.metadata`, or None if it cannot be read."""
    path = Path(directory.path, PARTITION_METADATA_NAME)
    try:
        return parse_partition_metadata(read_small_file(path, MAX_METADATA_FILE_BYTES)).topic_id
    except (OSError, FormatError):
        return None


def _runs(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown


def _standing(found: PartitionImage, log_dir: LogDir | None) -> ReplicaStanding | None:
    meta = None if log_dir is None else log_dir.meta
    broker_id = None if meta is None else meta.node_id
    if meta is None or broker_id is None:
        return None
    if broker_id not in found.replicas:
        return ReplicaStanding.NO_REPLICA
    assigned = found.directories[found.replicas.index(broker_id)]
    is_known = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
    if is_known and meta.directory_id not in {None, assigned}:
        return ReplicaStanding.ELSEWHERE
    if broker_id == found.leader:
        return ReplicaStanding.LEADER
    if broker_id in found.isr:
        return ReplicaStanding.IN_SYNC
    return ReplicaStanding.ELIGIBLE if broker_id in found.elr else ReplicaStanding.OUT_OF_SYNC


# -- acknowledged


HIGH_WATERMARK = "high watermark"
RECOVERY_POINT = "recovery point"
SNAPSHOT = "producer snapshot"

# A broker is deleting or replacing a segment whose `.log` has one of these suffixes.
_UNDER_WAY = frozenset({FileSuffix.DELETED, FileSuffix.CLEANED, FileSuffix.SWAP})
_PREALLOCATED_BYTES = 4096  # or more: both indexes of a segment to which a broker appends


class Missing(NamedTuple):
    """Offsets that a log had and that its broker does not return. Both bounds are inclusive.

    Attributes:
        last_offset: None if unknown.
        why: the evidence for them, in words.
        check_id: the rule.
        is_on_disk: the bytes are on disk, but below an impossible log start, or in files that get
            their names at the next start.
        is_read: False if they may be in the unreadable end of the log.
    """

    base_offset: int
    last_offset: int | None
    why: str
    check_id: str
    is_on_disk: bool = False
    is_read: bool = True

    @property
    def offsets_count(self) -> int | None:
        """The maximum number of offsets, or None if unknown."""
        return None if self.last_offset is None else self.last_offset - self.base_offset + 1

    @property
    def offsets(self) -> str:
        """The offsets in words: `offsets 200 to 220 (21)`."""
        if self.last_offset is None:
            return f"offsets from {self.base_offset} on"
        return f"offsets {self.base_offset} to {self.last_offset} ({self.offsets_count})"

    def within(self, from_offset: int, to_offset: int | None) -> Missing | None:
        """Return the part in [from_offset, to_offset), or None if it is empty."""
        base = max(self.base_offset, from_offset)
        last = self.last_offset
        if to_offset is not None:
            last = to_offset - 1 if last is None else min(last, to_offset - 1)
        if last is not None and last < base:
            return None
        return self._replace(base_offset=base, last_offset=last)

    def __str__(self) -> str:
        what = "are missing" if self.is_read else "could not be read"
        if self.is_on_disk:
            what = "are on disk, and kept from consumers"
        return f"{self.offsets} {what}: {self.why} [{self.check_id}]"


def offsets_count(missing: Iterable[Missing]) -> int | None:
    """Return the maximum number of offsets, or None if unknown."""
    counts = [each.offsets_count for each in missing]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


class Claim(NamedTuple):
    """Evidence that a log reached up to an offset, exclusive."""

    end_offset: int
    what: str
    check_id: str

    def __str__(self) -> str:
        return f"{self.what} {self.end_offset}"


class Acknowledged(NamedTuple):
    """The evidence for the end of a log, and its segments without a `.log`.

    Attributes:
        log_start_offset: the checkpointed log start, or None.
        claims: evidence for its end.
        orphans: base offsets of indexes without a `.log`, ascending.
        emptied: base offsets of empty segments whose indexes prove batches, ascending. The last
            segment is not included.
        bases: base offsets of the segments on disk, ascending.
        stopped: how the broker left the directory.
        swapped: the offsets of `.swap` files that the next start renames, the end exclusive, or
            None.
        cleaned_offset: the end of the cleaner's progress, by its checkpoint. 0 if that has no line
            of the log, None if no checkpoint can be read.
        begin_offset: an offset below the first segment at which the log began, by its leader
            epochs. A broker truncates these at the log start. None without such evidence.
        is_likely_tiered: offsets below the first segment may be in remote storage.
        unlisted: base offsets of segments that the operating system cannot open. Their content is
            unknown, and their reader reports the error.
    """

    log_start_offset: int | None = None
    claims: tuple[Claim, ...] = ()
    orphans: tuple[int, ...] = ()
    emptied: tuple[int, ...] = ()
    bases: tuple[int, ...] = ()
    unlisted: tuple[int, ...] = ()
    stopped: StoppedState = StoppedState.UNKNOWN
    swapped: tuple[int, int] | None = None
    cleaned_offset: int | None = None
    begin_offset: int | None = None
    is_likely_tiered: bool = False

    @property
    def high_watermark(self) -> int | None:
        """The checkpointed high watermark, or None if unknown."""
        return next((each.end_offset for each in self.claims if each.what == HIGH_WATERMARK), None)

    @property
    def end_offset(self) -> int | None:
        """A lower bound of the log end offset, or None without evidence."""
        return max((each.end_offset for each in self.claims), default=None)

    def missing(self, end_offset: int | None, *, is_end_read: bool = True) -> tuple[Missing, ...]:
        """Return the missing offsets, in order.

        Args:
            end_offset: one above the last good batch on disk, or the base offset of the last
                segment if that is empty. None if the log has no segment.
            is_end_read: False if the last `.log` could not be read up to its end.
        """
        found = (*self.holes(), *self._tail(end_offset, is_end_read=is_end_read))
        return tuple(part for each in found for part in self._outside_swapped(each))

    def _outside_swapped(self, missing: Missing) -> Iterator[Missing]:
        """Yield the parts that are in no `.swap` file. A start renames these files (REC-4)."""
        parts = [missing]
        if self.swapped is not None:
            start, end = self.swapped
            found = (missing.within(0, start), missing.within(end, None))
            parts = [each for each in found if each is not None]
        yield from parts

    def holes(self) -> Iterator[Missing]:
        """Yield the offsets that are missing before segments on disk.

        These are the segments with indexes and no `.log`, or with an empty `.log`.
        """
        start = self.log_start_offset or 0
        covered = -1  # last offset that was yielded
        bases = sorted((*self.bases, *self.unlisted))
        for base in sorted((*self.orphans, *self.emptied)):
            place = bisect_right(bases, base)
            if place == len(bases):
                return
            first, last = max(base, start, covered + 1), bases[place] - 1
            if first <= last:
                covered = last
                is_emptied = base in self.emptied
                yield Missing(
                    base_offset=first,
                    last_offset=last,
                    why=f"{_name(base)} have entries, its .log has no byte"
                    if is_emptied
                    else f"{_name(base)} are there without their .log",
                    check_id="SEG-11" if is_emptied else "SEG-9",
                )

    def hidden(self, end_offset: int | None) -> Missing | None:
        """Return the offsets on disk that a log start beyond the log's end hides (OFS-1)."""
        start = self.log_start_offset
        if start is None or end_offset is None or not self.bases:
            return None
        if start <= end_offset or end_offset == self.bases[0]:
            return None
        why = f"the log start {start} lies beyond the end {end_offset} of the log"
        return Missing(
            base_offset=self.bases[0],
            last_offset=end_offset - 1,
            why=why,
            check_id="OFS-1",
            is_on_disk=True,
        )

    def not_given(self, end_offset: int | None, *, is_end_read: bool = True) -> tuple[Missing, ...]:
        """Return the hidden and the missing offsets."""
        hidden = self.hidden(end_offset)
        if hidden is None:
            hidden = self._pending(end_offset)
        missing = self.missing(end_offset, is_end_read=is_end_read)
        return (*(() if hidden is None else (hidden,)), *missing)

    def _pending(self, end_offset: int | None) -> Missing | None:
        """Return the offsets that are only in `.swap` files, unreadable before a start (REC-4)."""
        if self.swapped is None:
            return None
        pending = Missing(
            base_offset=self.swapped[0],
            last_offset=self.swapped[1] - 1,
            why=".swap files hold them, and the next start of a broker puts these in place",
            check_id="DIR-5",
            is_on_disk=True,
        )
        known = end_offset if self.bases else None
        return pending if known is None else pending.within(known, None)

    def _tail(self, end_offset: int | None, *, is_end_read: bool) -> Iterator[Missing]:
        """Yield the missing offsets behind the log's end, or all offsets without a segment."""
        if self.unlisted and self.unlisted[-1] >= max(self.bases, default=0):
            return
        first = end_offset
        if first is None:
            first = self.orphans[0] if self.orphans else 0
        first = max(first, self.log_start_offset or 0)
        beyond = sorted(each for each in self.claims if each.end_offset > first)
        if beyond:
            beyond.reverse()
            reported = ", ".join(dict.fromkeys(map(str, beyond)))
            if end_offset is None:
                where = "the log has no segment"
            else:
                what = "the log ends at" if is_end_read else "the disk gave the log up to"
                where = f"{what} {end_offset}"
            check_id = next(
                (each.check_id for each in beyond if each.what == HIGH_WATERMARK),
                beyond[0].check_id,
            )
            yield Missing(
                base_offset=first,
                last_offset=beyond[0].end_offset - 1,
                why=f"{where}, {reported}",
                check_id=check_id,
                is_read=is_end_read,
            )
        elif not self.claims and self.orphans and self.orphans[-1] >= first:
            base = next(each for each in self.orphans if each >= first)
            yield Missing(
                base_offset=base,
                last_offset=None,
                why=f"{_name(base)} are there without their .log",
                check_id="SEG-9",
            )


def acknowledged(
    directory: PartitionDir, log_dir: LogDir | None, files: PartitionFiles
) -> Acknowledged:
    """Collect the evidence of a partition directory, from its listing and its log directory.

    Only the live directory of a partition has to reach an end. An unfinished copy is short, and a
    broker removes the files of a -delete directory in no order.
    """
    is_live = directory.name.state is DirState.LIVE
    if directory.name.state is DirState.DELETE:
        return Acknowledged(stopped=stopped_of(log_dir, directory))
    bases = tuple(each.base_offset for each in files.segments)
    snapshots = [each.name.offset for each in files.snapshots if each.name.offset is not None]
    unlisted = _unlisted(files)
    orphans = _orphans(files) - unlisted
    is_clean = log_dir is not None and log_dir.stopped is StoppedState.CLEAN
    claims: list[Claim] = []
    log_start: int | None = None
    cleaned: int | None = None
    if log_dir is not None and directory.name.topic != METADATA_TOPIC:
        log_start = log_dir.log_start_offset(directory)
        if log_dir.cleaner_offsets is not None:
            cleaned = log_dir.cleaned_offset(directory) or 0
        if is_live:
            claims += checkpoint_claims(
                log_dir.high_watermark(directory), log_dir.recovery_point(directory)
            )
    # After a crash there may be a snapshot of records that were never acknowledged.
    has_snapshot = snapshots and is_live and directory.name.topic != METADATA_TOPIC
    if has_snapshot and (is_clean or not bases):
        claims.append(Claim(max(snapshots), SNAPSHOT, "SNP-2"))
    return Acknowledged(
        log_start_offset=log_start,
        claims=tuple(claims),
        orphans=tuple(sorted(orphans)),
        emptied=tuple(each.base_offset for each in files.segments[:-1] if _is_emptied(each)),
        bases=bases,
        unlisted=tuple(sorted(unlisted)),
        stopped=stopped_of(log_dir, directory),
        swapped=_swapped(files),
        cleaned_offset=cleaned,
        begin_offset=_begin_offset(directory, files, log_start) if is_live else None,
        is_likely_tiered=log_dir is not None and is_likely_tiered(log_dir, log_start),
    )


def _swapped(files: PartitionFiles) -> tuple[int, int] | None:
    """Return the offsets of the `.log.swap` files that a start keeps (REC-3)."""
    least = min(
        (e.name.offset or 0 for e in files.others if e.name.suffix is FileSuffix.CLEANED),
        default=None,
    )
    logs = [
        each
        for each in files.others
        if each.name.kind is FileKind.LOG
        and each.name.suffix is FileSuffix.SWAP
        and (least is None or (each.name.offset or 0) < least)
    ]
    if not logs:
        return None
    try:
        end = max(next_offset(each) for each in logs)
    except AccessError:
        return None
    return min(each.name.offset or 0 for each in logs), end


def next_offset(entry: FileEntry) -> int:
    """Return the offset after the last batch of a `.log`, by its headers, else its base offset.

    Raises AccessError if it cannot be read.
    """
    found = entry.name.offset or 0
    with open_segment(entry.path, base_offset=None) as segment:
        for table in segment.scan_tables(verify_crc=False, resume=False):
            if table.row_count:
                found = int(table.last_offset[-1]) + 1
    return found


def claimed_end(directory: PartitionDir, log_dir: LogDir | None) -> ClaimedEnd | None:
    """Return the claimed end of a log. None without evidence, or if a broker appends to it."""
    is_live = directory.name.state is DirState.LIVE
    if log_dir is None or not is_live or directory.name.topic == METADATA_TOPIC:
        return None
    stopped = stopped_of(log_dir, directory)
    point, high_watermark = log_dir.recovery_point(directory), log_dir.high_watermark(directory)
    if stopped is StoppedState.LIVE:
        return None
    if stopped is StoppedState.CLEAN and point is not None:
        return ClaimedEnd(point, is_exact=True)
    known = [each for each in (point, high_watermark) if each is not None]
    return ClaimedEnd(max(known), is_exact=False) if known else None


def _begin_offset(
    directory: PartitionDir, files: PartitionFiles, log_start: int | None
) -> int | None:
    """Return the start of the log by its leader epochs, if its first segments are missing."""
    if not files.segments or directory.name.topic == METADATA_TOPIC:
        return None
    first_base = files.segments[0].base_offset
    is_removed = any(
        each.name.kind is FileKind.LOG
        and each.name.suffix is FileSuffix.DELETED
        and (each.name.offset or 0) < first_base
        for each in files.others
    )
    entry = files.other(LEADER_EPOCHS_NAME)
    if entry is None or is_removed or first_base <= (log_start or 0) or is_uri(entry.path):
        return None
    begin = first_epoch_offset(entry.path)
    return begin if begin is not None and begin < first_base else None


def checkpoint_claims(high_watermark: int | None, recovery_point: int | None) -> list[Claim]:
    """Return the evidence of two checkpoint lines, where None is a missing line."""
    claims = []
    if high_watermark is not None:
        claims.append(Claim(high_watermark, HIGH_WATERMARK, "OFS-3"))
    if recovery_point is not None:
        claims.append(Claim(recovery_point, RECOVERY_POINT, "OFS-2"))
    return claims


def _is_emptied(files: SegmentFiles) -> bool:
    """Return whether indexes prove batches in a segment that has none.

    If a broker has appended last, both indexes are preallocated. Their sizes are then equal except
    for a part of an entry, and prove nothing.
    """
    sizes = [
        0 if each is None else each.file_bytes for each in (files.offset_index, files.time_index)
    ]
    is_preallocated = (
        min(sizes) >= _PREALLOCATED_BYTES and abs(sizes[0] - sizes[1]) < TIME_ENTRY_BYTES
    )
    return not files.log.file_bytes and max(sizes) > 0 and not is_preallocated


def _orphans(files: PartitionFiles) -> set[int]:
    """Return base offsets of indexes whose `.log` is missing and not being removed or replaced."""
    explained = {
        each.name.offset
        for each in files.others
        if each.name.kind is FileKind.LOG and each.name.suffix in _UNDER_WAY
    }
    found = {each.name.offset for each in files.orphans} - explained
    return {each for each in found if each is not None}


def _unlisted(files: PartitionFiles) -> set[int]:
    """Return base offsets of `.log` files whose size the operating system does not give."""
    names = [
        classify(each.path.rpartition("/")[2])
        for each in files.problems
        if isinstance(each, AccessError)
    ]
    return {
        each.offset
        for each in names
        if each.offset is not None and each.kind is FileKind.LOG and each.suffix is FileSuffix.NONE
    }


def _name(base_offset: int) -> str:
    return f"indexes of segment {base_offset:020d}"
