"""All checks of one partition directory, in one pass over its log.

The order per segment: batches and the scan's verdicts, both indexes, leader epochs, and the replay
with `.txnindex` and `.snapshot`. The pass continues after damage.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recovery.checks.batches import BatchCheck
from recovery.checks.context.broker_version import REFUSES
from recovery.checks.context.collector import Circumstances, Collector, Refusal
from recovery.checks.indexes import OffsetIndexCheck, TimeIndexCheck
from recovery.checks.log_dirs.kraft import check_metadata_log
from recovery.checks.log_dirs.log_dirs import LOSES_LOG_DIR, check_against_cluster, check_leftovers
from recovery.checks.log_dirs.offsets import EpochCheck, check_missing, check_offsets
from recovery.checks.log_walk import CheckWalk
from recovery.checks.replay_check import ReplayCheck, ReplayLimits
from recovery.replay.recover_state import forgotten_transactions
from recovery.rules.catalogue import NORMAL_WHEN_COMPACTED
from recovery.rules.findings import Severity
from storage.dirs.offset_ledger import absent, joined, unread
from storage.dirs.partition import cleanup_of
from storage.errors import AccessError, FormatError
from storage.file_names import DirState
from storage.formats import producer_snapshot, txn_index
from storage.formats.control_record import REFUSED_CHECK_ID
from storage.kernels.protocol import is_read_to_end
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.checks.contents.records import RecordCheck
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.checks.log_walk import BatchFacts, RecoveryStop
    from recovery.replay.producer_columns import MarkerColumns
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.offset_ledger import KnownRange, OffsetSpan
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.txn_index import AbortedTxn
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment


# -- single `.snapshot` and `.txnindex` files: SNP-1, SNP-2, SNP-5, TXI-1, TXI-2, TXI-7


def check_snapshots(
    partition: Partition, circumstances: Circumstances, collector: Collector
) -> dict[int, tuple[list[ProducerEntry], str]]:
    """Check each snapshot alone, and return entries and paths of valid snapshots, by offset."""
    found: dict[int, tuple[list[ProducerEntry], str]] = {}
    bases = {each.base_offset for each in partition.segments}
    last_base = max(bases, default=0)
    for file in partition.files.snapshots:
        data, offset = partition.read_file(file), file.name.offset
        if data is None or offset is None:
            continue
        problems = producer_snapshot.problems(data, offset)
        for problem in problems:
            action = "deletes it, and reads more of the log" if problem.check_id == "SNP-1" else ""
            collector.add_error(problem, path=file.path, broker_action=action)
        if not any(each.check_id == "SNP-1" for each in problems):
            found[offset] = producer_snapshot.parse_snapshot(data), file.path
        if offset not in bases and offset < last_base and not circumstances.is_compacted:
            collector.add(
                "SNP-2",
                file.path,
                "no segment begins at its offset",
                broker_action="deletes it",
            )
    return found


def read_txn_index(
    partition: Partition,
    files: SegmentFiles,
    circumstances: Circumstances,
    collector: Collector,
) -> list[AbortedTxn]:
    """Check a `.txnindex` alone, and return its whole entries, good or not."""
    data = partition.read_file(files.txn_index)
    if data is None or files.txn_index is None:
        return []
    bases = [each.base_offset for each in partition.segments]
    next_base = min((each for each in bases if each > files.base_offset), default=None)
    severity = Severity.NOTE if circumstances.is_recovered(files) else None
    for problem in txn_index.problems(data, files.base_offset, next_base):
        collector.add_error(problem, path=files.txn_index.path, severity=severity)
    return txn_index.parse_entries(data)


# -- partition check


_STOPPING = frozenset({REFUSES, LOSES_LOG_DIR})


class CheckOptions(NamedTuple):
    """The thoroughness of a check.

    Attributes:
        now_ms: the clock.
        verify_crc: compute the checksums of batches.
        deep: decode all records.
        limits: ages that count as old.
        broker_version: the release that starts. None: CHECKED.
        predicts: report each file that the next start changes.
    """

    now_ms: int
    verify_crc: bool = True
    deep: bool = False
    limits: ReplayLimits = ReplayLimits()
    broker_version: BrokerVersion | None = None
    predicts: bool = False


class Watch(Protocol):
    """A further consumer of the batches that a check reads, in the same pass."""

    def begin(self, partition: Partition) -> None:
        """Prepare for a partition that is about to be read."""

    def take(
        self, table: HeaderTable, markers: MarkerColumns, files: SegmentFiles, doubtful: set[int]
    ) -> None:
        """Take batches with correct checksums. At `doubtful` positions the offset is impossible."""

    def bad_marker(self, segment: Segment, batch: ScannedBatch) -> None:
        """Take a control batch, not taken yet, that a broker cannot read as a marker."""

    def end(self, *, is_end_read: bool) -> None:
        """Take the end of the log. False: the last `.log` could not be read up to its end."""


class CheckedSegment(NamedTuple):
    """The state of a segment that decides the action of a start on it.

    Attributes:
        files: as listed.
        log_bytes: size when it was read.
        stop: the place where a recovery ends. None: at the end of the file.
        end_offset: of the last good batch of the log so far.
        is_doubtful: offsets contradict each other or the name. A recovery may then end with an
            exception.
        fatal_reason: the producer state on which a recovery fails, or "".
        range_bytes: the part of the `.log` that is the segment. None: all of it.
        facts: times and numbers of its batches. None: no check has read it.
    """

    files: SegmentFiles
    log_bytes: int
    stop: RecoveryStop | None
    end_offset: int
    is_doubtful: bool = False
    fatal_reason: str = ""
    range_bytes: tuple[int, int] | None = None
    facts: BatchFacts | None = None


class CheckedPartition(NamedTuple):
    """The result of a check.

    Attributes:
        collector: the findings.
        segments: the state for a start, in log order.
        refusals: batches that keep a broker from loading the log, if it reads them.
        end_offset: of the last good batch, or the log start offset if there is none.
        batches_count, log_bytes: of the data that was read.
        unreadable: messages about unreadable files or ranges.
        opened: producer id of each open transaction, by first offset. None: damage hides it.
    """

    collector: Collector
    segments: tuple[CheckedSegment, ...]
    refusals: tuple[Refusal, ...]
    end_offset: int
    batches_count: int
    log_bytes: int
    unreadable: tuple[str, ...]
    opened: dict[int, int] | None = None


def check_partition(
    partition: Partition,
    image: ClusterImage | None,
    options: CheckOptions,
    *,
    on_bytes: Callable[[int], None] | None = None,
    watch: Watch | None = None,
) -> CheckedPartition:
    """Check one partition directory.

    Args:
        partition: as listed now.
        image: of its cluster. None: settings and assignment are unknown.
        options: the thoroughness.
        on_bytes: called with the number of log bytes read.
        watch: gets the data that is read.
    """
    if watch is not None:
        watch.begin(partition)
    return _PartitionCheck(partition, image, options, on_bytes, watch).run()


class _PartitionCheck:
    def __init__(
        self,
        partition: Partition,
        image: ClusterImage | None,
        options: CheckOptions,
        on_bytes: Callable[[int], None] | None,
        watch: Watch | None,
    ) -> None:
        self._watch = watch
        self._reading: tuple[SegmentFiles, Segment] | None = None
        self._partition = partition
        self._image = image
        self._options = options
        self._on_bytes = on_bytes
        self._collector = Collector(partition.topic, partition.partition)
        self.circumstances = Circumstances(partition, image, now_ms=options.now_ms)
        snapshots = check_snapshots(partition, self.circumstances, self._collector)
        self._snapshots = snapshots
        self._replay = ReplayCheck(self.circumstances, self._collector, snapshots, options.limits)
        self._epochs = EpochCheck(partition, self.circumstances, self._collector)
        self._batches_count = 0
        self._segments: list[CheckedSegment] = []
        self._unreadable: list[str] = []
        self._spans: list[OffsetSpan] = []
        self._opened: dict[int, int] | None = {}
        self._lost: list[KnownRange] = []  # ranges that explain gaps already

    def run(self) -> CheckedPartition:
        """Walk the log once, then check the claims about its end."""
        partition, circumstances = self._partition, self.circumstances
        for files in partition.segments:
            try:
                with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                    self._check_segment(files, segment)
            except AccessError as error:
                self._unreadable.append(str(error))
                circumstances.has_damage = True
                circumstances.is_end_read &= files is not partition.segments[-1]
                self._lost.append(unread(files.base_offset, partition.end_of(files)))
        if partition.segments:
            self._finish()
        if self._watch is not None:
            self._watch.end(is_end_read=circumstances.is_end_read)
        span = joined(self._spans, partition.acknowledged.cleaned_offset)
        gaps = absent(
            partition.acknowledged,
            span,
            partial(cleanup_of, partition.path, self._image),
            self._lost,
        )
        check_missing(partition, self._end_offset(), gaps, self._collector)
        version = self._options.broker_version
        check_leftovers(partition, self._collector)
        if circumstances.is_metadata:
            check_metadata_log(partition, self._collector, version)
        else:
            check_against_cluster(partition, self._image, self._collector, version)
        if circumstances.is_compacted:
            self._collector.forgive(NORMAL_WHEN_COMPACTED)
        for problem in partition.files.problems:
            if isinstance(problem, FormatError):
                self._collector.add_error(problem)
        if partition.directory.name.state is DirState.DELETE:
            # A broker killed while it removed the files may leave any of them.
            self._collector.soften(
                lambda each: each.check_id == "DIR-9" or each.broker_action in _STOPPING
            )
        self._unreadable += [
            str(each) for each in partition.problems if isinstance(each, AccessError)
        ]
        return CheckedPartition(
            collector=self._collector,
            segments=tuple(self._segments),
            refusals=tuple(circumstances.refusals),
            end_offset=circumstances.end_offset,
            batches_count=self._batches_count,
            log_bytes=partition.files.log_bytes,
            unreadable=tuple(dict.fromkeys(self._unreadable)),
            opened=self._opened,
        )

    def _finish(self) -> None:
        self._replay.compare_snapshot(self.circumstances.end_offset)
        opened = {} if self.circumstances.has_damage else self._replay.state.ongoing.owners
        by_producer = {producer_id: first_offset for first_offset, producer_id in opened.items()}
        forgotten = forgotten_transactions(self._partition, by_producer)
        self._opened = {
            first_offset: producer_id
            for first_offset, producer_id in opened.items()
            if producer_id not in forgotten
        }
        if self.circumstances.has_damage:
            self._opened = None
        self._replay.finish(forgotten)
        self._epochs.finish()
        check_offsets(self._partition, self.circumstances, self._collector)
        self._check_end_snapshot()

    def _end_offset(self) -> int | None:
        """Return the log end offset, or None without segments or if it was not read."""
        try:
            end = self._partition.log_end()
        except AccessError:
            return None
        return None if end is None or not end.is_read else end.offset

    def _check_end_snapshot(self) -> None:
        """Check SNP-3 and SNP-4: the snapshot that a clean stop leaves for the next start."""
        circumstances, partition = self.circumstances, self._partition
        end_offset = circumstances.end_offset
        if not circumstances.is_clean or circumstances.is_metadata:
            return
        if end_offset <= circumstances.log_start_offset or circumstances.has_damage:
            return
        if not self._epochs.has_epochs:
            return  # a broker before producers existed
        if not self._snapshots and self._replay.state.producers_count:
            self._collector.add(
                "SNP-4",
                partition.path,
                f"no snapshot beside the clean marker: {self._replay.state.producers_count}"
                " producers would be forgotten",
            )
        elif end_offset not in self._snapshots:
            self._collector.add(
                "SNP-3", partition.path, f"no snapshot of the log end offset {end_offset}"
            )

    # -- one segment

    def _check_segment(self, files: SegmentFiles, segment: Segment) -> None:
        is_active = self._partition.is_active(files)
        circumstances, collector = self.circumstances, self._collector
        batches = BatchCheck(
            files, self._partition.topic, circumstances, collector, is_active=is_active
        )
        indexes = self._indexes(files, is_active=is_active)
        self._replay.begin_segment(
            files, read_txn_index(self._partition, files, circumstances, collector)
        )
        records = self._record_check(files, segment)
        self._reading = files, segment
        begins_below = circumstances.reach_offset > files.base_offset
        walk = CheckWalk(
            self,
            segment,
            batches,
            indexes,
            records,
            self._partition.bounds(files),
        )
        walk.run(verify_crc=self._options.verify_crc, on_bytes=self._on_bytes)
        self._batches_count += walk.batches_count
        if walk.found is not None:
            self._spans.append(walk.found.ledger.span)
            self._lost += (each for each in walk.found.found if each.is_lost)
        self._segments.append(
            CheckedSegment(
                files=files,
                log_bytes=segment.file_bytes,
                stop=walk.stop,
                end_offset=circumstances.end_offset,
                is_doubtful=walk.is_doubtful or begins_below,
                fatal_reason=self._replay.fatal_reason(),
                facts=walk.facts,
            )
        )
        self._unreadable += map(str, batches.unreadable)
        if files is self._partition.segments[-1]:
            circumstances.is_end_read = is_read_to_end(batches.unreadable, segment.file_bytes)
        if records is not None:
            self._unreadable += map(str, records.problems)
        batches.finish()
        for index in indexes:
            if isinstance(index, OffsetIndexCheck):
                index.finish(segment.file_bytes, batches.max_batch_bytes)
            else:
                index.finish()
        self._replay.end_segment()

    def _record_check(self, files: SegmentFiles, segment: Segment) -> RecordCheck | None:
        if not self._options.deep:
            return None
        from recovery.checks.contents.records import RecordCheck

        return RecordCheck(
            segment,
            files.log.path,
            self._collector,
            is_compacted=self.circumstances.is_compacted,
            topic=self._partition.topic,
            version=self._options.broker_version,
        )

    def _indexes(
        self, files: SegmentFiles, *, is_active: bool
    ) -> list[OffsetIndexCheck | TimeIndexCheck]:
        found: list[OffsetIndexCheck | TimeIndexCheck] = []
        is_recovered = self.circumstances.is_recovered(files)
        for entry, kind in (
            (files.offset_index, OffsetIndexCheck),
            (files.time_index, TimeIndexCheck),
        ):
            data = self._partition.read_file(entry)
            if entry is None:
                self._missing_index(files, kind is OffsetIndexCheck)
            elif data is not None:
                found.append(
                    kind(
                        entry.path,
                        data,
                        files.base_offset,
                        self.circumstances,
                        self._collector,
                        is_active=is_active,
                        is_recovered=is_recovered,
                    )
                )
        return found

    def _missing_index(self, files: SegmentFiles, is_offset_index: bool) -> None:
        if not files.log.file_bytes:
            return  # a broker creates it with the first append
        name = ".index" if is_offset_index else ".timeindex"
        self._collector.add(
            "SEG-8",
            files.log.path,
            f"its {name} is missing",
            broker_action="recovers the segment" if is_offset_index else "makes an empty file",
        )

    def take(
        self, table: HeaderTable, markers: MarkerColumns, log_path: str, doubtful: set[int]
    ) -> None:
        """Pass on batches with correct checksums."""
        self._epochs.take(table, log_path, doubtful)
        self._replay.take(table, markers)
        if self._watch is not None and self._reading is not None:
            self._watch.take(table, markers, self._reading[0], doubtful)

    def bad_marker(self, error: FormatError, batch: ScannedBatch) -> None:
        """Report a control batch whose record is no end marker, unless `--deep` reports it."""
        self.circumstances.has_damage = True
        if self._watch is not None and self._reading is not None:
            self._watch.bad_marker(self._reading[1], batch)
        self.circumstances.refusals.append(Refusal(batch.header.base_offset, str(error)))
        if self._options.deep:
            return
        self._collector.add(
            "BAT-12",
            error.path,
            error.message,
            # A start fails on both. A reader skips a record that is only garbled.
            severity=Severity.ERROR if error.check_id == REFUSED_CHECK_ID else None,
            start_pos=batch.pos,
            end_pos=batch.pos + batch.header.batch_bytes,
            base_offset=batch.header.base_offset,
            last_offset=batch.header.last_offset,
            expected=error.expected,
            found=error.found,
        )
