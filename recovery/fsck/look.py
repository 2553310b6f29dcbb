"""A check of a partition, and in the same pass what happened in it: its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from recovery.fsck.one_pass import CheckResult, check_one
from recovery.replay.recover_state import forgotten_transactions
from recovery.timeline.piece import (
    VOLUME,
    Timeline,
    TimelineReading,
    kind_by_key,
    marker_kinds,
    no_timeline,
)
from storage.errors import FormatError
from storage.formats.producer_snapshot import parse_snapshot
from storage.producers.transactions import OpenTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.fsck.one_pass import CheckJob
    from recovery.replay.producer_columns import MarkerColumns
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment


class PartitionFacts(NamedTuple):
    """What is said of a partition beside its log; None is unknown.

    Attributes:
        recovery_point: up to there the checkpoint says that all is on disk.
        last_stable_offset: as `eoctl describe` has it.
        is_end_read: False: the last `.log` could not be read up to its end, so that the log may go
            on behind what was read.
        may_be_open: a transaction may be open, by the log or by a snapshot.
        segments: base offset, path and size of each, in log order.
        batches_crc: CRC-32 of the checksums of the good batches, in log order: it tells two
            contents apart.
    """

    log_start_offset: int | None = None
    local_log_start_offset: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    last_stable_offset: int | None = None
    may_be_open: bool = False
    segments: tuple[tuple[int, str, int], ...] = ()
    is_end_read: bool = True
    batches_crc: int = 0


class PartitionLook(NamedTuple):
    """What came of one partition: the check, and the timeline of what was read."""

    check: CheckResult
    timeline: Timeline
    facts: PartitionFacts


def look_at_one(
    job: CheckJob,
    *,
    on_bytes: Callable[[int], None] | None = None,
    has_timeline: bool = True,
    max_bins: int = VOLUME.max_bins,
) -> PartitionLook:
    """Check one partition directory, as `check_one` does, and keep what happened in it.

    Args:
        job: the directory.
        on_bytes: is told how much was read.
        has_timeline: False where somebody else has read it; it is left empty here.
        max_bins: of the timeline, by time and by offset.
    """
    watch = TimelineWatch(has_timeline=has_timeline, max_bins=max_bins)
    result = check_one(job, on_bytes=on_bytes, watch=watch)
    return PartitionLook(result, watch.timeline(), watch.facts(result.row.end_offset))


def look_without_timeline(
    job: CheckJob, *, on_bytes: Callable[[int], None] | None = None
) -> PartitionLook:
    """Do it where an audit has read the timeline."""
    return look_at_one(job, on_bytes=on_bytes, has_timeline=False)


def look_with_image(
    images: Sequence[ClusterImage | None], numbered: tuple[int, CheckJob]
) -> PartitionLook:
    """Do it in a task that was sent what is known of clusters once, and the number of one."""
    number, job = numbered
    return look_without_timeline(job._replace(image=images[number]))


class TimelineWatch:
    """Builds a timeline of what a check reads."""

    def __init__(self, *, has_timeline: bool, max_bins: int) -> None:
        self._has_timeline = has_timeline
        self._max_bins = max_bins
        self._is_end_read = True
        self._batches_crc = 0
        self._partition: Partition | None = None
        self._reading: TimelineReading | None = None
        self._transactions: OpenTransactions | None = None
        self._by_key: dict[tuple[str, int], int] = {}  # markers that a broker cannot read, by place

    def begin(self, partition: Partition) -> None:
        """Go on with a partition."""
        self._partition = partition
        log_start = partition.local_log_start_offset or 0
        self._reading = TimelineReading(
            log_start, is_built=self._has_timeline, max_bins=self._max_bins
        )
        self._transactions = OpenTransactions(
            log_start_offset=partition.log_start_offset or 0,
            high_watermark=partition.high_watermark,
        )

    def take(
        self, table: HeaderTable, markers: MarkerColumns, files: SegmentFiles, doubtful: set[int]
    ) -> None:
        """Take batches with right checksums."""
        assert self._reading is not None
        assert self._transactions is not None
        self._batches_crc = crc32(table.crc.tobytes(), self._batches_crc)
        kinds = marker_kinds(table.row_count, markers)
        for (path, pos), kind in self._by_key.items():
            if path == files.log.path:
                kinds[table.pos == pos] = kind
        table = self._reading.take(table, kinds, files.base_offset, doubtful)
        self._transactions.add_table(table)

    def bad_marker(self, segment: Segment, batch: ScannedBatch) -> None:
        """Go by the key alone."""
        self._by_key[segment.path, batch.pos] = kind_by_key(segment, batch)

    def end(self, *, is_end_read: bool) -> None:
        """Know whether there may be more."""
        self._is_end_read = is_end_read

    def timeline(self) -> Timeline:
        """Return what was read comes to."""
        return no_timeline() if self._reading is None else self._reading.finish().timeline

    def facts(self, end_offset: int | None) -> PartitionFacts:
        """Return what is said of the partition; `end_offset`: of its log."""
        partition, transactions = self._partition, self._transactions
        if partition is None or transactions is None:
            return PartitionFacts()
        transactions.forget(forgotten_transactions(partition, transactions.ongoing))
        log_dir, stable = partition.log_dir, None
        if end_offset is not None and self._is_end_read:
            stable = transactions.last_stable_offset(end_offset)
        directory = partition.directory
        return PartitionFacts(
            log_start_offset=partition.log_start_offset,
            local_log_start_offset=partition.local_log_start_offset,
            high_watermark=partition.high_watermark,
            recovery_point=None if log_dir is None else log_dir.recovery_point(directory),
            last_stable_offset=stable,
            may_be_open=bool(len(transactions)) or _has_open(partition),
            segments=tuple(
                (each.base_offset, each.log.path, each.log.file_bytes)
                for each in partition.segments
            ),
            is_end_read=self._is_end_read,
            batches_crc=self._batches_crc,
        )


def _has_open(partition: Partition) -> bool:
    """Whether a snapshot has an open transaction: its data may be gone from the log."""
    for file in reversed(partition.files.snapshots):
        data = partition.read_file(file)
        try:
            entries = [] if data is None else parse_snapshot(data)
        except FormatError:
            continue  # a check has told of it
        if any(each.current_txn_first_offset >= 0 for each in entries):
            return True
    return False
