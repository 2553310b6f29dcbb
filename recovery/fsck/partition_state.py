"""The check of a partition and its timeline, from one pass."""

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
    """Facts about a partition besides its log. None is unknown.

    Attributes:
        recovery_point: the checkpoint says that everything below it is flushed to disk.
        last_stable_offset: as in `eoctl describe`.
        is_end_read: False if the last `.log` could not be read up to its end. The log may then
            continue after the bytes read.
        may_be_open: a transaction may be open, according to the log or a snapshot.
        segments: base offset, path and size of each, in log order.
        batches_crc: CRC-32 of the checksums of the good batches, in log order. Differs if the
            contents differ.
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


class PartitionInspection(NamedTuple):
    """The result of one partition: the check, the timeline, and facts."""

    check: CheckResult
    timeline: Timeline
    facts: PartitionFacts


def inspect_one(
    job: CheckJob,
    *,
    on_bytes: Callable[[int], None] | None = None,
    has_timeline: bool = True,
    max_bins: int = VOLUME.max_bins,
) -> PartitionInspection:
    """Check one partition directory, as `check_one` does, and build its timeline.

    Args:
        job: the directory.
        on_bytes: called with the number of bytes read.
        has_timeline: False if another pass has read the timeline. It is then left empty.
        max_bins: of the timeline, by time and by offset.
    """
    watch = TimelineWatch(has_timeline=has_timeline, max_bins=max_bins)
    result = check_one(job, on_bytes=on_bytes, watch=watch)
    return PartitionInspection(result, watch.timeline(), watch.facts(result.row.end_offset))


def inspect_without_timeline(
    job: CheckJob, *, on_bytes: Callable[[int], None] | None = None
) -> PartitionInspection:
    """Check a partition whose timeline an audit has read."""
    return inspect_one(job, on_bytes=on_bytes, has_timeline=False)


def inspect_with_image(
    images: Sequence[ClusterImage | None], numbered: tuple[int, CheckJob]
) -> PartitionInspection:
    """Check a partition in a worker that has the images of all clusters. The job has its number."""
    number, job = numbered
    return inspect_without_timeline(job._replace(image=images[number]))


class TimelineWatch:
    """The timeline of the batches that a check reads."""

    def __init__(self, *, has_timeline: bool, max_bins: int) -> None:
        self._has_timeline = has_timeline
        self._max_bins = max_bins
        self._is_end_read = True
        self._batches_crc = 0
        self._partition: Partition | None = None
        self._reading: TimelineReading | None = None
        self._transactions: OpenTransactions | None = None
        self._by_key: dict[tuple[str, int], int] = {}  # unreadable markers, by place

    def begin(self, partition: Partition) -> None:
        """Begin a partition."""
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
        """Take the kind of the marker from its key alone."""
        self._by_key[segment.path, batch.pos] = kind_by_key(segment, batch)

    def end(self, *, is_end_read: bool) -> None:
        """Note whether the log was read up to its end."""
        self._is_end_read = is_end_read

    def timeline(self) -> Timeline:
        """Return the timeline of the batches read."""
        return no_timeline() if self._reading is None else self._reading.finish().timeline

    def facts(self, end_offset: int | None) -> PartitionFacts:
        """Return the facts about the partition. `end_offset` is the log end offset."""
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
    """Return whether a snapshot has an open transaction. The log may not have its data."""
    for file in reversed(partition.files.snapshots):
        data = partition.read_file(file)
        try:
            entries = [] if data is None else parse_snapshot(data)
        except FormatError:
            continue  # the check has reported it
        if any(each.current_txn_first_offset >= 0 for each in entries):
            return True
    return False
