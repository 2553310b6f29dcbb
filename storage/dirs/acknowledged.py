"""What was acknowledged of a partition, held against what is on disk: is it all there?

A log dir says more of a partition than its `.log` files do. What lies below these was there:

  high watermark     replicated, so that producers were told it is safe and consumers could
    read it
  recovery point     flushed to the disk; after a clean stop it is the log end offset
  producer snapshot  taken at the log end of a clean stop, or where a segment ends
  an index           a segment that began at its base offset; alone, without its `.log`, or with
                     entries beside one that has no byte

Every command that claims to have seen all of a log takes `Acknowledged.missing` for what it has
not seen. Bounds are inclusive, and the most that can be gone: control records and what
compaction has removed are among them. A broker at its next start notices none of this: it
clamps its checkpoints to the log that it finds, and gives the offsets out again (OFS-1 to
OFS-3, SEG-9, REC-9); readers go on behind an emptied segment (SEG-11). A cleaner that removes
all records of a segment leaves it without entries, too.
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


# -- tiered storage (KIP-405): partitions whose log begins in remote storage, not in a local
#    segment
#
# Such a partition keeps its log start below its first `.log`: the checkpoint's, or 0 without a line
# there (REC-13). In any other partition that is a line left over from before retention, or none,
#   and
# the log starts at the first segment. What tells them apart is remote.storage.enable of the topic
# in `__cluster_metadata`. Where that is not there, it is
#   -  a line in log-start-offset-checkpoint at all, which other partitions have only for a log
#     start
#      above their first segment, or a partition of `__remote_log_metadata` beside it
#   -  and a `leader-epoch-checkpoint` that begins below the first segment: it is cut at the log
#     start
#      (EPOCH-4)


REMOTE_STORAGE_ENABLE = "remote.storage.enable"


class RemoteRange(NamedTuple):
    """Offsets of a log that are in remote storage only: from the log start to the first `.log`."""

    start_offset: int
    end_offset: int  # exclusive

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset - 1} are in remote storage only"


class LocalLog(Protocol):
    """What is asked of a `storage.dirs.partition.Partition`."""

    @property
    def log_dir(self) -> LogDir | None:
        """The log dir that it is in, if that is known."""

    @property
    def directory(self) -> PartitionDir:
        """Its directory."""

    @property
    def topic(self) -> str:
        """Topic by the directory's name."""

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
    """Tell which offsets are remote only; None: none.

    Args:
        partition: with at least one segment.
        image: of its cluster; None: the one in its own log dir, if it matters.
        own_image: loads that.
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
        return None  # as of every topic whose oldest segments are gone: no look at the metadata
    if image is None:
        image = own_image(log_dir)
    if image is not None and partition.topic in image.topics:
        is_remote = is_tiered(image, partition.topic)
    else:
        is_remote = is_likely and not _is_cut_at(partition, first_base)
    return RemoteRange(start_offset, first_base) if is_remote else None


def is_tiered(image: ClusterImage, topic: str) -> bool:
    """Whether a topic has remote storage by its own setting; there is none of the broker."""
    return image.topic_config(topic, REMOTE_STORAGE_ENABLE) == "true"


def is_likely_tiered(log_dir: LogDir, log_start: int | None) -> bool:
    """Tell whether a line of the log start, or what is beside a log, hints at remote storage."""
    return log_start is not None or bool(log_dir.partitions_of(REMOTE_METADATA_TOPIC))


def first_epoch_offset(path: str) -> int | None:
    """Return where the first entry of a leader-epoch-checkpoint begins; None: there is none."""
    try:
        entries = parse_leader_epochs(read_small_file(path, MAX_FILE_BYTES))
    except (FormatError, OSError):  # who needs the file tells of it
        return None
    return entries[0].start_offset if entries else None


def _is_cut_at(partition: LocalLog, first_base: int) -> bool:
    """Whether the leader epochs say that nothing is below the first segment."""
    entry = partition.files.other(LEADER_EPOCHS_NAME)
    if entry is None:
        return False
    begin = first_epoch_offset(entry.path)
    return begin is not None and begin >= first_base


# -- what the cluster's metadata say of one directory of a partition: who leads, who is in the ISR
#
# And where this copy stood. A directory is held against the metadata by its topic id: an older
# topic of that name, or another cluster's, is told nothing about. What is not known is None.


MAX_METADATA_FILE_BYTES = 4096  # of a partition.metadata; they have 50


class CopyStanding(StrEnum):
    """What a copy was to the cluster."""

    LEADER = "leader"
    IN_SYNC = "in sync"
    ELIGIBLE = "eligible"  # out of the ISR, and has all that was acknowledged (ELR)
    OUT_OF_SYNC = "out of sync"
    NO_REPLICA = "no replica"  # that broker has none
    ELSEWHERE = "in another log dir"  # that broker's replica is
    OTHER_TOPIC = "another topic of that name"
    NOT_THERE = "not in the metadata"


class InCluster(NamedTuple):
    """A partition as the metadata have it, and where one copy stood.

    Attributes:
        leader: broker id; -1: none.
        min_insync_replicas: as a broker counts: never more than there are replicas.
        min_insync_from: whose setting that is (`SettingSource`).
        is_under_min_isr: acks=all is refused, or nobody leads.
        lacks_leader: nobody leads although the broker of a replica runs; where all of them are
            stopped, that is as it should be.
        standing: a `CopyStanding`; None, too, where it is not known whose log dir this is, and of a
            directory that is being moved here.
    """

    leader: int | None = None
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    min_insync_replicas: int | None = None
    min_insync_from: str | None = None
    is_under_min_isr: bool | None = None
    lacks_leader: bool | None = None
    standing: CopyStanding | None = None


NOT_KNOWN = InCluster()


def in_cluster(
    directory: PartitionDir, log_dir: LogDir | None, image: ClusterImage | None
) -> InCluster:
    """Tell what the metadata say of a partition directory; raises nothing.

    Args:
        directory: of any partition.
        log_dir: the one that it lies in; None: not known.
        image: the cluster's state; None: not known.
    """
    name = directory.name
    if image is None or not image.topics:
        return NOT_KNOWN
    if name.topic == METADATA_TOPIC or name.partition < 0 or name.state in SET_ASIDE:
        return NOT_KNOWN
    found = image.partition(name.topic, name.partition)
    if found is None:
        return InCluster(standing=CopyStanding.NOT_THERE)
    if topic_id_of(directory) not in (None, image.topics[name.topic].topic_id):
        return InCluster(standing=CopyStanding.OTHER_TOPIC)
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
    """Read the id in `partition.metadata`; None: there is none that can be read."""
    path = Path(directory.path, PARTITION_METADATA_NAME)
    try:
        return parse_partition_metadata(read_small_file(path, MAX_METADATA_FILE_BYTES)).topic_id
    except (OSError, FormatError):
        return None


def _runs(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown


def _standing(found: PartitionImage, log_dir: LogDir | None) -> CopyStanding | None:
    meta = None if log_dir is None else log_dir.meta
    broker_id = None if meta is None else meta.node_id
    if meta is None or broker_id is None:
        return None
    if broker_id not in found.replicas:
        return CopyStanding.NO_REPLICA
    assigned = found.directories[found.replicas.index(broker_id)]
    is_known = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
    if is_known and meta.directory_id not in {None, assigned}:
        return CopyStanding.ELSEWHERE
    if broker_id == found.leader:
        return CopyStanding.LEADER
    if broker_id in found.isr:
        return CopyStanding.IN_SYNC
    return CopyStanding.ELIGIBLE if broker_id in found.elr else CopyStanding.OUT_OF_SYNC


# -- acknowledged


HIGH_WATERMARK = "high watermark"
RECOVERY_POINT = "recovery point"
SNAPSHOT = "producer snapshot"

# A segment whose `.log` has one of these beside it is being deleted or replaced by a broker.
_UNDER_WAY = frozenset({FileSuffix.DELETED, FileSuffix.CLEANED, FileSuffix.SWAP})
_PREALLOCATED_BYTES = 4096  # and more: both indexes of a segment to which a broker appends


class Missing(NamedTuple):
    """Offsets that a log had and that its broker does not give, both bounds included.

    Attributes:
        last_offset: None: how far it went is not known.
        why: what says that they were there, as words.
        check_id: the rule.
        is_on_disk: the bytes are there, but below a log start that cannot be right, or in files
            that get their names at the next start.
        is_read: False: they may be in what could not be read at the end of the log.
    """

    base_offset: int
    last_offset: int | None
    why: str
    check_id: str
    is_on_disk: bool = False
    is_read: bool = True

    @property
    def offsets_count(self) -> int | None:
        """How many offsets, at most; None: not known."""
        return None if self.last_offset is None else self.last_offset - self.base_offset + 1

    @property
    def offsets(self) -> str:
        """As words: `offsets 200 to 220 (21)`."""
        if self.last_offset is None:
            return f"offsets from {self.base_offset} on"
        return f"offsets {self.base_offset} to {self.last_offset} ({self.offsets_count})"

    def within(self, from_offset: int, to_offset: int | None) -> Missing | None:
        """Cut to [from_offset, to_offset); None if nothing is left."""
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
    """How many offsets, at most; None: not known."""
    counts = [each.offsets_count for each in missing]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


class Claim(NamedTuple):
    """Something says that a log reached up to an offset, excluded."""

    end_offset: int
    what: str
    check_id: str

    def __str__(self) -> str:
        return f"{self.what} {self.end_offset}"


class Acknowledged(NamedTuple):
    """What is known of how far a log reached, and of segments without their `.log`.

    Attributes:
        log_start_offset: as checkpointed; None: not there, or not known.
        claims: how far it reached.
        orphans: base offsets of indexes without a `.log`, ascending.
        emptied: those of segments without a byte whose indexes say that there were batches, but of
            the last one, ascending.
        bases: base offsets of the segments that are there, ascending.
        stopped: how the broker left the directory.
        swapped: the offsets of `.swap` files that the next start puts in place, the end excluded;
            None: there are none.
        cleaned_offset: the cleaner has been below it, by its checkpoint; 0: that has no line of the
            log; None: there is no checkpoint that can be read.
        begin_offset: the log had offsets from there on, below its first segment, by its leader
            epochs, which a broker cuts at the log start; None: nothing tells of any.
        is_likely_tiered: what is below the first segment may be in remote storage.
        unlisted: those of segments that the operating system does not give: what is in them is not
            known, and whoever reads says that it could not be read.
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
        """As checkpointed; None: not known."""
        return next((each.end_offset for each in self.claims if each.what == HIGH_WATERMARK), None)

    @property
    def end_offset(self) -> int | None:
        """The log reached at least so far; None: nothing tells."""
        return max((each.end_offset for each in self.claims), default=None)

    def missing(self, end_offset: int | None, *, is_end_read: bool = True) -> tuple[Missing, ...]:
        """Tell what is not there, in order.

        Args:
            end_offset: one above the last good batch that is on disk, the base offset of the last
                segment if that is empty; None: the log has no segment.
            is_end_read: False: the last `.log` could not be read up to its end.
        """
        found = (*self.holes(), *self._tail(end_offset, is_end_read=is_end_read))
        return tuple(part for each in found for part in self._outside_swapped(each))

    def _outside_swapped(self, missing: Missing) -> Iterator[Missing]:
        """Give the parts that no `.swap` file has: a start puts those in place (REC-4)."""
        parts = [missing]
        if self.swapped is not None:
            start, end = self.swapped
            found = (missing.within(0, start), missing.within(end, None))
            parts = [each for each in found if each is not None]
        yield from parts

    def holes(self) -> Iterator[Missing]:
        """Tell what is missing in front of segments that are there.

        Those have indexes without their `.log`, or without a byte in it.
        """
        start = self.log_start_offset or 0
        covered = -1  # of what was told already
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
        """Tell what lies on disk below a log start that is beyond the log's end (OFS-1)."""
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
        """Tell both: what is hidden, and what is missing."""
        hidden = self.hidden(end_offset)
        if hidden is None:
            hidden = self._pending(end_offset)
        missing = self.missing(end_offset, is_end_read=is_end_read)
        return (*(() if hidden is None else (hidden,)), *missing)

    def _pending(self, end_offset: int | None) -> Missing | None:
        """Tell what lies in `.swap` files alone, which nobody reads before a start (REC-4)."""
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
        """What lies behind the log's end; all of it where there is no segment."""
        if self.unlisted and self.unlisted[-1] >= max(self.bases, default=0):
            return
        first = end_offset
        if first is None:
            first = self.orphans[0] if self.orphans else 0
        first = max(first, self.log_start_offset or 0)
        beyond = sorted(each for each in self.claims if each.end_offset > first)
        if beyond:
            beyond.reverse()
            told = ", ".join(dict.fromkeys(map(str, beyond)))
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
                why=f"{where}, {told}",
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
    """Gather what is known of a partition directory, from its listing and its log dir.

    Only the live directory of a partition has to reach anywhere: a copy that is under way is
    short, and a broker removes the files of a -delete directory in no order.
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
    # After a crash one may be left of records that nobody was told of.
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
    """Find the offsets that the `.log.swap` files have which a start keeps (REC-3)."""
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
    """Offset behind the last batch of a `.log`, by its headers; its base offset if it has none.

    Raises AccessError: it cannot be read.
    """
    found = entry.name.offset or 0
    with open_segment(entry.path, base_offset=None) as segment:
        for table in segment.scan_tables(verify_crc=False, resume=False):
            if table.row_count:
                found = int(table.last_offset[-1]) + 1
    return found


def claimed_end(directory: PartitionDir, log_dir: LogDir | None) -> ClaimedEnd | None:
    """Return how far a log reached; None: nothing tells, or a broker appends to it."""
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
    """Return where the log began by its leader epochs, if segments are gone from its front."""
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
    """Return what two lines of checkpoints say; None: there is none."""
    claims = []
    if high_watermark is not None:
        claims.append(Claim(high_watermark, HIGH_WATERMARK, "OFS-3"))
    if recovery_point is not None:
        claims.append(Claim(recovery_point, RECOVERY_POINT, "OFS-2"))
    return claims


def _is_emptied(files: SegmentFiles) -> bool:
    """Whether indexes tell of batches in a segment that has none.

    Where a broker has appended last, both are preallocated, as long as each other but for a part of
    an entry: their sizes tell nothing.
    """
    sizes = [
        0 if each is None else each.file_bytes for each in (files.offset_index, files.time_index)
    ]
    is_preallocated = (
        min(sizes) >= _PREALLOCATED_BYTES and abs(sizes[0] - sizes[1]) < TIME_ENTRY_BYTES
    )
    return not files.log.file_bytes and max(sizes) > 0 and not is_preallocated


def _orphans(files: PartitionFiles) -> set[int]:
    """Base offsets of indexes whose `.log` is neither there nor being removed or replaced."""
    explained = {
        each.name.offset
        for each in files.others
        if each.name.kind is FileKind.LOG and each.name.suffix in _UNDER_WAY
    }
    found = {each.name.offset for each in files.orphans} - explained
    return {each for each in found if each is not None}


def _unlisted(files: PartitionFiles) -> set[int]:
    """Base offsets of `.log` files that cannot even be asked for their size."""
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
