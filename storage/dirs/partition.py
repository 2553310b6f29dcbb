"""A partition: its segments in order, its log start and log end, lookup and reading.

Indexes only speed up a search, they never decide. A position from an index counts if the batch
there has a right checksum and an offset that fits. The walk from there must meet no fault.
Otherwise the segment is walked from its first byte. The directory may be in use. If segments are
rolled or removed during a read, they are listed once more, and `notes` reports it.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypedDict, TypeVar

from storage.dirs import lookup
from storage.dirs.acknowledged_offsets import acknowledged, claimed_end, find_remote_range
from storage.dirs.log_dir import PartitionDir, StoppedState, only_begins, read_log_dir, stopped_of
from storage.dirs.offset_ledger import MAX_GAPS, Cleanup, OffsetSpan, not_given, united
from storage.dirs.partition_files import list_partition
from storage.errors import AccessError, EoctlError, FormatError
from storage.file_names import (
    COMPACTED_TOPICS,
    LEADER_EPOCHS_NAME,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
    SET_ASIDE,
    DirState,
    PartitionName,
    parse_partition_name,
)
from storage.files.positioned_file import PositionedFile
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import VerdictKind, is_read_to_end
from storage.limits import MAX_OFFSET, MAX_RELATIVE_OFFSET
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from storage.dirs.acknowledged_offsets import Acknowledged, Missing, RemoteRange
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.offset_ledger import Gap, KnownRange
    from storage.dirs.partition_files import FileEntry, PartitionFiles, SegmentFiles
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.formats.offset_index import OffsetIndexEntry
    from storage.formats.time_index import TimeIndexEntry
    from storage.formats.txn_index import AbortedTxn
    from storage.kernels.offset_order import ClaimedEnd
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.log.segment import Segment

T = TypeVar("T")


class Place(NamedTuple):
    """A batch with its segment."""

    files: SegmentFiles
    batch: ScannedBatch
    via_index: bool  # found through an index entry that held


class TimePlace(NamedTuple):
    """The first record at or after a time."""

    place: Place
    offset: int
    timestamp_ms: int


class LogEnd(NamedTuple):
    """The end of a log.

    `offset` is one above the last batch with a right checksum in the last segment, even if it is
    behind damage. Without a batch it is the segment's base offset. `valid_bytes` is the end of that
    batch. `verdict` is the verdict from `start_pos` on.
    """

    offset: int
    files: SegmentFiles
    valid_bytes: int
    start_pos: int
    verdict: Verdict

    @property
    def is_read(self) -> bool:
        """False if the last bytes could not be read, so that the log may continue there."""
        return is_read_to_end([self.verdict], self.files.log.file_bytes)


class PlacedBatch(NamedTuple):
    """A batch of a range being read. `segment` is open until the iteration leaves it."""

    files: SegmentFiles
    segment: Segment
    batch: ScannedBatch


class SegmentBounds(TypedDict):
    """The place of a segment in its log. With it every scan has the same result.

    `is_active`: it is the last segment, and may have a torn tail. `end_offset`: base offset of the
    next segment, which no batch reaches, or None. `claimed_end`: of the log, for the last segment,
    or None if unknown.
    """

    is_active: bool
    end_offset: int | None
    claimed_end: ClaimedEnd | None


class Partition:
    """One partition directory.

    Attributes:
        directory: path, topic, partition, and the meaning of the suffix.
        log_dir: the log directory around it, or None if unknown.
        files: the listing that all methods use.
        problems: files that could not be read or parsed, collected during the reads.
        notes: remarks for the user on the result.
        ignores_log_start: all batches on disk count, whatever the log start of the checkpoint is.
    """

    def __init__(
        self,
        directory: PartitionDir,
        log_dir: LogDir | None = None,
        image: ClusterImage | None = None,
    ) -> None:
        """List the directory. Raises AccessError if that is not possible.

        `image` is the state of its cluster, if the caller has it. It decides which topics are
        tiered.
        """
        self.directory = directory
        self.log_dir = log_dir
        self._image = image
        self._cleanup: Cleanup | None = None
        self._remote: tuple[PartitionFiles, RemoteRange | None] | None = None
        self.files = list_partition(directory.path)
        self.problems: list[Problem] = list(self.files.problems)
        self.notes: list[str] = []
        self.ignores_log_start = False

    @classmethod
    def of(cls, selected: Selected, image: ClusterImage | None = None) -> Partition:
        """Open a partition that `discover` found."""
        return cls(selected.partition, selected.log_dir, image)

    @property
    def path(self) -> str:
        """The directory, as given."""
        return self.directory.path

    @property
    def topic(self) -> str:
        """Topic, from the directory's name."""
        return self.directory.name.topic

    @property
    def partition(self) -> int:
        """Number, from the directory's name, or -1."""
        return self.directory.name.partition

    @property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """Segments by base offset."""
        return self.files.segments

    @property
    def stopped(self) -> StoppedState:
        """The state in which the broker left this directory."""
        return stopped_of(self.log_dir, self.directory)

    @property
    def is_trimmed(self) -> bool:
        """Return whether the stop trimmed the indexes of the last segment, as a clean stop does.

        It does not trim the indexes of the metadata log. Since 4.4 they keep their size, and the
        time index lacks the entry that a roll or close adds in other logs (KafkaRaftLog). Each
        start rebuilds them anyway.
        """
        return self.stopped is StoppedState.CLEAN and self.topic != METADATA_TOPIC

    @property
    def is_set_aside(self) -> bool:
        """Return whether a broker has only to delete it (`-delete`, `-stray`)."""
        return self.directory.name.state in SET_ASIDE

    @property
    def high_watermark(self) -> int | None:
        """The checkpointed high watermark, a lower bound after a crash. None if unknown."""
        return None if self.log_dir is None else self.log_dir.high_watermark(self.directory)

    @property
    def log_start_offset(self) -> int | None:
        """The log start offset as a broker uses it (OFF-5, REC-13). None without segments.

        It is the larger of checkpoint and first base offset, or the start of the remote log.
        """
        remote = self.remote_range
        return self.local_log_start_offset if remote is None else remote.start_offset

    @property
    def local_log_start_offset(self) -> int | None:
        """The log start offset in this directory. None without segments."""
        if not self.segments:
            return None
        first_base = self.segments[0].base_offset
        if self.ignores_log_start:
            return first_base
        checkpoint = None if self.log_dir is None else self.log_dir.log_start_offset(self.directory)
        return first_base if checkpoint is None else max(checkpoint, first_base)

    @property
    def remote_range(self) -> RemoteRange | None:
        """The offsets that are only in remote storage, or None."""
        if self._remote is None or self._remote[0] is not self.files:
            found = find_remote_range(self, self._image, own_image) if self.segments else None
            self._remote = self.files, found
        return self._remote[1]

    @property
    def acknowledged(self) -> Acknowledged:
        """The evidence for the end of the log."""
        return acknowledged(self.directory, self.log_dir, self.files)

    def not_given(
        self,
        span: OffsetSpan | None = None,
        reported: Sequence[KnownRange] = (),
        *,
        end_offset: int | None = None,
        walked: Mapping[int, OffsetSpan] = MappingProxyType({}),
    ) -> tuple[Missing, ...]:
        """Return the offsets that no reader of the whole log returns, or that a log start hides.

        The result is empty if the end cannot be read, which is a problem of its own.

        Args:
            span: the result of a walk over the log. None: only gaps between segments are searched.
            reported: offsets that the walk already reports as lost.
            end_offset: the end of the log. None: it is searched.
            walked: without a span, the spans of the read segments by base offset.
        """
        if not self.segments:
            return self.acknowledged.not_given(None)
        is_end_read = True
        if end_offset is None:
            try:
                end = self.log_end()
            except AccessError:
                return ()
            if end is None:
                return self.acknowledged.not_given(None)
            end_offset, is_end_read = end.offset, end.is_read
        if span is None:
            span = self._seams_and(walked)
        return not_given(
            self.acknowledged,
            span,
            self.cleanup,
            reported,
            end_offset=end_offset,
            is_end_read=is_end_read,
        )

    def _seams_and(self, walked: Mapping[int, OffsetSpan]) -> OffsetSpan:
        """Return the seams with the results of the read segments."""
        span = self.seams()
        if not walked:
            return span
        spans = (span, *walked.values())
        return span._replace(
            gaps=united(gap for each in spans for gap in each.gaps),
            end_offset=max(each.end_offset or 0 for each in spans),
            cleaned_end=max(each.cleaned_end for each in spans),
        )

    def cleanup(self) -> Cleanup:
        """Return the topic's cleanup settings in the metadata, which are read once."""
        if self._cleanup is None:
            self._cleanup = cleanup_of(self.path, self._image)
        return self._cleanup

    def seams(self) -> OffsetSpan:
        """Compare the end of each segment with the name of the next segment.

        A segment that has damage at its end, or that cannot be read, gives no result.
        """
        cleaned_offset = self.acknowledged.cleaned_offset or 0
        gaps: list[Gap] = []
        for files, later in pairwise(self.segments):
            if later.base_offset <= cleaned_offset:
                continue
            try:
                with open_segment(files.log.path) as segment:
                    end = lookup.find_end(segment, self.index_entries(files), is_active=False)
            except AccessError:
                continue
            if end.verdict.kind == VerdictKind.OK:
                at_end = end.last
                first = files.base_offset if at_end is None else at_end.header.last_offset + 1
                gaps.append((first, later.base_offset - 1))
        gaps = [each for each in gaps if each[0] <= each[1]]
        first, last = self.segments[0].base_offset, self.segments[-1].base_offset
        return OffsetSpan(
            first_offset=first, end_offset=last, gaps=tuple(gaps[:MAX_GAPS]), begin_offset=first
        )

    @property
    def was_never_written(self) -> bool:
        """Return whether it has no segment because nothing was appended, as `eoctl init` leaves it.

        It has its `partition.metadata`. No checkpoint, index or leader epoch proves a record.
        """
        if self.segments or self.files.other(PARTITION_METADATA_NAME) is None:
            return False
        return not (self.acknowledged.not_given(None) or self.leader_epochs())

    def is_active(self, files: SegmentFiles) -> bool:
        """Return whether it is the last segment, the only segment that may have a torn tail."""
        return files.base_offset == self.segments[-1].base_offset

    def end_of(self, files: SegmentFiles) -> int | None:
        """Return the base offset of the next segment, or None for the last segment."""
        later = bisect_right(self.segments, files.base_offset, key=attrgetter("base_offset"))
        return self.segments[later].base_offset if later < len(self.segments) else None

    def end_bound(self, files: SegmentFiles) -> int | None:
        """Return the upper bound of a segment: the next segment, or the end of a clean stop."""
        bounds = self.bounds(files)
        claimed = bounds["claimed_end"]
        if claimed is not None and claimed.is_exact:
            return claimed.offset
        return bounds["end_offset"]

    def bounds(self, files: SegmentFiles) -> SegmentBounds:
        """Return the place of a segment in the log, for a scan."""
        is_active = self.is_active(files)
        return SegmentBounds(
            is_active=is_active,
            end_offset=self.end_of(files),
            claimed_end=self._claimed_end() if is_active else None,
        )

    def segment_at(self, files: SegmentFiles) -> Segment:
        """Open a segment with its place in the log. Raises AccessError."""
        bounds = self.bounds(files)
        return open_segment(files.log.path).within(bounds["end_offset"], bounds["claimed_end"])

    def _claimed_end(self) -> ClaimedEnd | None:
        return claimed_end(self.directory, self.log_dir)

    def segment_of(self, offset: int) -> SegmentFiles | None:
        """Return the segment where a walk from an offset on begins. None without segments."""
        return self.segments[floor_of(self.segments, offset)] if self.segments else None

    def segment_after(self, files: SegmentFiles) -> SegmentFiles | None:
        """Return the next segment of a walk, as listed now. None at the end."""
        later = (each for each in self.segments if each.base_offset > files.base_offset)
        return next(later, None)

    def start_in(self, files: SegmentFiles, segment: Segment, offset: int) -> int:
        """Return the position where a walk from an offset on begins (`lookup.find_start`)."""
        if offset <= files.base_offset:
            return 0
        entries = self.index_entries(files)
        return lookup.find_start(segment, entries, offset, **self.bounds(files))

    def index_entries(self, files: SegmentFiles) -> Sequence[OffsetIndexEntry]:
        """Return the entries of a segment's `.index`, valid or not. [] if missing or unreadable."""
        from storage.formats.offset_index import parse_entries

        return parse_entries(self.read_file(files.offset_index) or b"")

    def time_index_entries(self, files: SegmentFiles) -> Sequence[TimeIndexEntry]:
        """Return the entries of a segment's `.timeindex`, valid or not.

        [] if missing or unreadable.
        """
        from storage.formats.time_index import parse_entries

        return parse_entries(self.read_file(files.time_index) or b"")

    def leader_epochs(self) -> list[LeaderEpochEntry] | None:
        """Return the entries of `leader-epoch-checkpoint`. None if missing or unreadable.

        An unreadable file is a problem.
        """
        from storage.formats.checkpoint import parse_leader_epochs

        entry = self.files.other(LEADER_EPOCHS_NAME)
        data = self.read_file(entry)
        if entry is None or data is None:
            return None
        try:
            return parse_leader_epochs(data)
        except FormatError as exc:
            self.problems.append(exc.located(entry.path))
            return None

    def topic_id(self) -> str | None:
        """The id in `partition.metadata`. None if missing or unreadable."""
        from storage.formats.partition_metadata import format_uuid, parse_partition_metadata

        data = self.read_file(self.files.other(PARTITION_METADATA_NAME))
        try:
            return None if data is None else format_uuid(parse_partition_metadata(data).topic_id)
        except FormatError:
            return None

    def aborted_transactions(self, files: SegmentFiles) -> list[AbortedTxn] | None:
        """Return the entries of a segment's `.txnindex`.

        [] without one (normal), None if unreadable.
        """
        from storage.formats.txn_index import parse_entries

        if files.txn_index is None:
            return []
        data = self.read_file(files.txn_index)
        return None if data is None else parse_entries(data)

    def read_file(self, entry: FileEntry | None) -> bytes | None:
        """Read a small file whole. None if it does not exist, or cannot be read (a problem)."""
        if entry is None:
            return None
        try:
            with PositionedFile(entry.path) as file:
                reading = file.read_at(0, file.file_bytes)
        except AccessError as exc:
            self.problems.append(exc)
            return None
        if reading.unreadable:
            bad = reading.unreadable[0]
            error = OSError(bad.errno, f"{bad.strerror} at position {bad.start_pos}")
            self.problems.append(AccessError(error, entry.path))
            return None
        return reading.data

    def log_end(self) -> LogEnd | None:
        """Find the log end offset in the last segment. None without segments.

        Raises:
            AccessError: its `.log` cannot be opened.
        """
        return self._retrying(self._log_end)

    def goes_beyond_limit(self, files: SegmentFiles) -> bool:
        """Return whether offsets too far from the base offset of a segment are right (SEG-3).

        They are right if so many were acknowledged, or if another segment follows: a broker splits
        it.
        """
        return self.reached_offset(files) > files.base_offset + MAX_RELATIVE_OFFSET + 1

    def reached_offset(self, files: SegmentFiles) -> int:
        """Return the known end of a segment: the next segment, or the last acknowledged offset."""
        following = self.end_of(files)
        return (self.acknowledged.end_offset or 0) if following is None else following

    def _log_end(self) -> LogEnd | None:
        if not self.segments:
            return None
        files = self.segments[-1]
        is_far = self.goes_beyond_limit(files)
        check_ids = lookup.ENDED_CHECK_IDS if is_far else lookup.OFFSET_CHECK_IDS
        with open_segment(files.log.path) as segment:
            end = lookup.find_end(
                segment,
                self.index_entries(files),
                is_active=True,
                check_ids=check_ids,
                claimed_end=self._claimed_end(),
            )
        if end.last is None:
            return LogEnd(
                offset=files.base_offset,
                files=files,
                valid_bytes=0,
                start_pos=end.start_pos,
                verdict=end.verdict,
            )
        header = end.last.header
        valid_bytes = end.last.pos + header.batch_bytes
        return LogEnd(
            offset=header.last_offset + 1,
            files=files,
            valid_bytes=valid_bytes,
            start_pos=end.start_pos,
            verdict=end.verdict,
        )

    def find_offset(self, offset: int) -> Place | None:
        """Find the batch with an offset, or the next batch above it. None at or beyond the end.

        The search is as in a fetch: the segment with the greatest base offset at or below, then
        later segments.

        Raises:
            AccessError: a `.log` cannot be opened.
        """
        return self._retrying(lambda: self._find_offset(offset))

    def _find_offset(self, offset: int) -> Place | None:
        for files in self.segments[floor_of(self.segments, offset) :]:
            with open_segment(files.log.path) as segment:
                entries = self.index_entries(files)
                found = lookup.find_batch(segment, entries, offset, **self.bounds(files))
            if found is not None:
                return Place(files, found.batch, found.via_index)
        return None

    def find_timestamp(self, timestamp_ms: int, min_offset: int | None = None) -> TimePlace | None:
        """Find the first record at or above an offset with a timestamp >= the given timestamp.

        None as offset: the log start. With right time indexes a broker answers a ListOffsets
        request with the same record. A closed segment is skipped if its time index ends below the
        time and holds.

        Raises:
            AccessError: a `.log` cannot be opened.
        """
        return self._retrying(lambda: self._find_timestamp(timestamp_ms, min_offset))

    def _find_timestamp(self, timestamp_ms: int, min_offset: int | None) -> TimePlace | None:
        if min_offset is None:
            min_offset = self.local_log_start_offset or 0
        for files in self.segments:
            is_active = self.is_active(files)
            times, entries = self.time_index_entries(files), self.index_entries(files)
            with open_segment(files.log.path) as segment:
                if not is_active and lookup.is_older(segment, times, entries, timestamp_ms):
                    continue
                record = lookup.find_time(
                    segment,
                    times,
                    entries,
                    timestamp_ms,
                    min_offset=min_offset,
                    is_active=is_active,
                    on_error=self.problems.append,
                )
            if record is not None:
                place = Place(files, record.found.batch, record.found.via_index)
                return TimePlace(place, record.offset, record.timestamp_ms)
        return None

    def read(self, start_offset: int, end_offset: int | None = None) -> RangeRead:
        """Read the batches with offsets of [start_offset, end_offset), by default to the end.

        The first and the last batch may reach beyond the range. Reading raises nothing: see
        RangeRead.
        """
        return RangeRead(self, start_offset, MAX_OFFSET if end_offset is None else end_offset)

    def refresh(self) -> bool:
        """List the directory again. Returns True (and adds a note) if its segments have changed.

        If it cannot be listed, the old listing stays (a problem).
        """
        before = [each.base_offset for each in self.segments]
        try:
            self.files = list_partition(self.path)
        except AccessError as exc:
            self.problems.append(exc)
            return False
        if before == [each.base_offset for each in self.segments]:
            return False
        self.notes.append(f"{self.path}: segments were rolled or removed while it was read")
        return True

    def _retrying(self, call: Callable[[], T]) -> T:
        """Call once more with a new listing if a segment was removed since the listing."""
        try:
            return call()
        except AccessError as exc:
            if exc.errno != errno.ENOENT or not self.refresh():
                raise
            return call()


def floor_of(segments: tuple[SegmentFiles, ...], offset: int) -> int:
    """Return the index of the segment where a search for `offset` begins, at least 0."""
    return max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)


class RangeRead:
    """Iterator of PlacedBatch in log order, including batches with a wrong checksum.

    It is for callers that judge batches themselves. `Partition` decides where a walk begins, how it
    continues and what a scan must know. A consumer's walk (`eoctl.clients.log.log_walk`) uses the
    same. That walk yields records, reports the offsets lost by damage, and can continue later.

    Attributes:
        verdicts: faults in the read data, with their segments.
        next_offset: one above the last batch so far with a right checksum and offset. Before the
            first batch it is the start of the range.
    """

    def __init__(self, partition: Partition, start_offset: int, end_offset: int) -> None:
        self.verdicts: list[tuple[SegmentFiles, Verdict]] = []
        self.next_offset = start_offset
        self._partition = partition
        self._from_offset = start_offset  # batches that end below it are skipped
        self._end_offset = end_offset
        self._relists_left = 1
        self._base_offset = -1  # of the last segment read
        self._pos = 0  # position there
        self._batches = self._read()

    def __iter__(self) -> Iterator[PlacedBatch]:
        return self._batches

    def __next__(self) -> PlacedBatch:
        return next(self._batches)

    def _read(self) -> Iterator[PlacedBatch]:
        files = self._partition.segment_of(self.next_offset)
        while files is not None and files.base_offset < self._end_offset:
            try:
                segment = open_segment(files.log.path)
            except AccessError as exc:
                if exc.errno == errno.ENOENT and self._relist():
                    files = self._partition.segment_of(self._from_offset)
                    continue
                self._partition.problems.append(exc)
                files = self._after(files)
                continue
            with segment:
                is_complete = yield from self._read_segment(files, segment)
            if is_complete:
                return
            files = self._after(files)

    def _read_segment(
        self, files: SegmentFiles, segment: Segment
    ) -> Generator[PlacedBatch, None, bool]:
        """Yield the batches of the range in one segment. Returns True at the end of the range."""
        partition = self._partition
        if files.base_offset != self._base_offset:
            self._base_offset = files.base_offset
            self._pos = partition.start_in(files, segment, self._from_offset)
        else:  # it may have grown: verdicts at its end are made again
            self.verdicts = [
                (of, verdict)
                for of, verdict in self.verdicts
                if of.base_offset != files.base_offset or verdict.start_pos < self._pos
            ]
        scan = segment.scan(start_pos=self._pos, **partition.bounds(files))
        doubtful = lookup.DoubtfulOffsets(scan)
        is_complete = False
        for batch in scan:
            header = batch.header
            if batch.crc_ok is not False and batch.pos not in doubtful.positions:
                if header.base_offset >= self._end_offset and header.magic >= MAGIC_V2:
                    is_complete = True
                    break
                if header.last_offset < self._from_offset:
                    continue
                self.next_offset = header.last_offset + 1
            self._pos = batch.pos + header.batch_bytes
            yield PlacedBatch(files, segment, batch)
        self.verdicts += ((files, verdict) for verdict in scan.verdicts)
        return is_complete or self.next_offset >= self._end_offset

    def _after(self, files: SegmentFiles) -> SegmentFiles | None:
        """Return the next segment. At the end of the list it looks once for new segments."""
        found = self._partition.segment_after(files)
        if found is None and self._relist():
            # Not the next segment: the current segment may have grown before it was rolled.
            return self._partition.segment_of(self._from_offset)
        return found

    def _relist(self) -> bool:
        """List the directory again, once per read. Returns True if it has changed."""
        self._relists_left -= 1
        if self._relists_left < 0 or not self._partition.refresh():
            return False
        self._from_offset = self.next_offset
        return True


def own_image(log_dir: LogDir) -> ClusterImage | None:
    """Return the state in the metadata log of a log directory. None if it cannot be read.

    Without a metadata log, a controller's first snapshot counts.
    """
    for each in log_dir.partitions_of(METADATA_TOPIC):
        if each.name.state is DirState.LIVE and not only_begins(each.path):
            try:
                return _load_image(each.path, list_partition(each.path).log_bytes)
            except AccessError:
                return None
    return _load_bootstrap(log_dir.path) if log_dir.has_bootstrap else None


@lru_cache(maxsize=4)
def _load_bootstrap(log_dir: str) -> ClusterImage | None:
    from storage.dirs.cluster_image import load_bootstrap_image

    return load_bootstrap_image(log_dir)


@lru_cache(maxsize=4)  # all partitions of a log directory use the same image
def _load_image(path: str, log_bytes: int) -> ClusterImage:
    """Read the metadata log of that size. A log only grows, so the size is a cache key."""
    del log_bytes
    from storage.dirs.cluster_image import load_cluster_image

    name = PartitionName(METADATA_TOPIC, 0, DirState.LIVE)
    return load_cluster_image(Partition(PartitionDir(path, name)))


@lru_cache(maxsize=16)
def _around(path: str, changed_ns: int) -> LogDir:
    """Read a log directory as it was at that time. Raises as `read_log_dir`."""
    del changed_ns
    return read_log_dir(path)


def cleanup_of(directory: str, image: ClusterImage | None = None) -> Cleanup:
    """Look a topic up in its cluster's metadata. For an unknown topic the user's setting counts.

    Args:
        directory: of a partition of the topic. Behind a URI nothing is read.
        image: of the cluster. None: the image in the log directory around the directory.
    """
    from storage.dirs.topic_settings import is_compacted, stated_is_compacted
    from storage.files.uris import Uri, is_uri

    path = Path(Uri.parse(directory).path if is_uri(directory) else directory).absolute()
    name = parse_partition_name(path.name)
    topic = None if name is None else name.topic
    if topic == METADATA_TOPIC:
        return Cleanup(is_compacted=False)
    unknown = Cleanup(is_compacted=topic in COMPACTED_TOPICS or stated_is_compacted())
    if name is None or is_uri(directory):
        return unknown
    log_dir = None
    with suppress(OSError, EoctlError):
        log_dir = _around(str(path.parent), path.parent.stat().st_mtime_ns)
    if image is None and log_dir is not None:
        image = own_image(log_dir)
    if image is None or name.topic not in image.topics:
        return unknown
    from storage.dirs.acknowledged_offsets import is_tiered

    node_id = None if log_dir is None or log_dir.meta is None else log_dir.meta.node_id
    found = image.partition(name.topic, name.partition)
    return Cleanup(
        is_compacted=is_compacted(image, name.topic, broker_id=node_id),
        has_other_replicas=None if found is None else len(found.replicas) > 1,
        is_tiered=is_tiered(image, name.topic),
    )
