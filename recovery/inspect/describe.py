"""The summary of a partition and of each of its segments, from one pass.

The pass reads every `.log` from end to end and verifies checksums. It does not decompress records.
Batches without readable records (a wrong checksum, an unknown magic or codec, an impossible number
of records) are in no count. Unknown values are None, never 0.
"""

from __future__ import annotations

import os
from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple

from recovery.forecast.cleaner import cleanable_segments, first_dirty, whole_segments_end
from recovery.forecast.settings import largest_timestamp_ms
from storage.dirs.acknowledged_offsets import NOT_KNOWN, in_cluster
from storage.dirs.compaction import REPORTED_RATIO, is_compacted, uncompacted
from storage.dirs.log_dir import StoppedState
from storage.dirs.lookup import (
    BULK_BYTES,
    END_KINDS,
    DoubtfulOffsets,
    LostRecords,
    is_wrong_end,
)
from storage.dirs.offset_ledger import OffsetLedger, OffsetSpan, joined, unread
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import DELETE_HORIZON_MASK, LOG_APPEND_TIME_MASK, MAGIC_V2
from storage.kernels.protocol import VerdictKind, in_words, is_read_to_end
from storage.log.decoded_records import offsets_inside
from storage.log.segment import open_segment
from storage.producers.transactions import OpenTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.dirs.acknowledged_offsets import InCluster, Missing, ReplicaStanding
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.compaction import Uncompacted
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import PartitionDir, Problem
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.file_names import DirState
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import HeaderTable, ScannedBatch, Verdict
    from storage.log.segment import Segment

# Below this, importing numpy would cost more than the whole pass.
MAX_REPORTED_VERDICTS_COUNT = 10


class SegmentSummary(NamedTuple):
    """One segment. Counts of index entries are None if the index is missing or unreadable.

    `min_timestamp_ms` is the smallest first timestamp of a batch. It is None if no batch has it
    (v0, or only batches with a delete horizon in that field). `largest_timestamp_ms` is the time by
    which retention judges the segment: the last entry of its time index, else the file's time. It
    is None after a crash, where the next start derives time indexes again. `records_count` is None
    if the segment has compressed legacy messages. `snapshot`: the base offset has a producer
    snapshot.
    """

    topic: str
    partition: int | None
    base_offset: int
    last_offset: int | None
    verdict: VerdictKind | None  # None: the log could not be opened
    log_bytes: int
    batches_count: int
    records_count: int | None
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    largest_timestamp_ms: int | None
    index_entries_count: int | None
    time_index_entries_count: int | None
    txn_index_entries_count: int | None
    snapshot: bool
    path: str


class PartitionDescription(NamedTuple):
    """One partition directory.

    `local_log_start_offset` is above `log_start_offset` if the offsets between them are in remote
    storage only. `high_watermark` is the checkpointed high watermark. `stopped` is how its log dir
    was stopped. `verdict` is the worst of its segments, or that acknowledged offsets are missing.
    It is None if no segment could be opened. `log_end_offset` and `last_stable_offset` are None if
    the last `.log` could not be read up to its end. The log may then continue after the bytes read.

    `uncompacted_records_count`, `uncompacted_bytes`, `dirty_ratio` and `uncompacted_since_ms` are
    of closed segments that no cleaner has processed. `first_dirty_offset` and `cleanable_ratio` are
    as the cleaner computes them, with open transactions. They are None if the topic is not
    compacted, as far as eoctl knows.
    """

    topic: str
    partition: int | None
    state: DirState
    verdict: VerdictKind | None
    log_start_offset: int | None
    local_log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    open_transactions_count: int | None
    segments_count: int | None
    log_bytes: int | None
    batches_count: int | None
    records_count: int | None
    producers_count: int | None
    codecs: tuple[str, ...]
    replication_factor: int | None
    leader: int | None
    isr: tuple[int, ...] | None
    min_insync_replicas: int | None
    min_insync_from: str | None
    standing: ReplicaStanding | None
    uncompacted_records_count: int | None
    uncompacted_bytes: int | None
    dirty_ratio: float | None
    uncompacted_since_ms: int | None
    first_dirty_offset: int | None
    cleanable_ratio: float | None
    stopped: StoppedState
    problems_count: int
    path: str


class Description(NamedTuple):
    """Everything about one partition directory.

    `problems` could not be read or parsed. `remarks` are sentences about bad stretches and about
    other observations.
    """

    summary: PartitionDescription
    segments: tuple[SegmentSummary, ...]
    placed: InCluster
    problems: tuple[Problem, ...]
    remarks: tuple[str, ...]
    is_bad: bool  # damaged, torn although a clean stop leaves no torn tail, or incomplete
    is_unreadable: bool  # the operating system did not return a part of it


class _Tally:
    """Counts over the batches of one segment."""

    def __init__(self, base_offset: int) -> None:
        """Begin with the segment of this base offset."""
        self.ledger = OffsetLedger(base_offset)
        self.batches_count = 0
        self.records_count: int | None = 0
        self.last_offset: int | None = None
        self.min_timestamp_ms: int | None = None
        self.max_timestamp_ms: int | None = None
        self.codecs: set[int] = set()
        self.producer_ids: set[int] = set()

    @property
    def next_offset(self) -> int:
        """The offset after the last batch whose offset is right. -1 if there is none."""
        return -1 if self.last_offset is None else self.last_offset + 1

    def add_batch(
        self, batch: ScannedBatch, segment: Segment, *, is_offset_right: bool, is_lost: bool
    ) -> None:
        """Count a batch with a right checksum. A batch whose records are lost is in no count."""
        header = batch.header
        if is_offset_right:
            self.last_offset = header.last_offset
            self.ledger.take_batch(header, offsets_inside(batch, segment))
        if is_lost:
            return
        self.batches_count += 1
        count = header.records_count
        if header.magic < MAGIC_V2 and not header.codec:
            count = 1
        self._add_records(None if count < 0 else count)
        self._see_time(first_timestamp_ms(header), header.max_timestamp_ms)
        if not header.is_control:
            self.codecs.add(header.codec)
        if header.producer_id >= 0:
            self.producer_ids.add(header.producer_id)

    def add_table(
        self,
        table: HeaderTable,
        segment: Segment,
        doubtful_positions: set[int],
        lost_positions: set[int],
    ) -> None:
        """Count the batches of a table, as `add_batch` does."""
        import numpy as np

        from storage.formats.record_batch import CODEC_MASK, CONTROL_MASK

        good = is_right = table.crc_ok
        if doubtful_positions:
            is_right = good & ~np.isin(table.pos, list(doubtful_positions))
        if is_right.any():
            self.last_offset = int(table.last_offset[is_right][-1])
            placed = table
            if not is_right.all():
                placed = type(table)._make(column[is_right] for column in table)
            self.ledger.take(placed, segment)
        if lost_positions:
            good = good & ~np.isin(table.pos, list(lost_positions))
        if not good.any():
            return
        attributes = table.attributes[good]
        codecs = attributes & CODEC_MASK
        is_legacy = table.magic[good] < MAGIC_V2
        counts = np.where(is_legacy & (codecs == 0), 1, table.records_count[good].astype(np.int64))
        self.batches_count += int(good.sum())
        self._add_records(None if (counts < 0).any() else int(counts.sum()))
        base_ms, max_ms = table.base_timestamp_ms[good], table.max_timestamp_ms[good]
        first_ms = np.where(is_legacy | ((attributes & LOG_APPEND_TIME_MASK) != 0), max_ms, base_ms)
        first_ms = first_ms[((attributes & DELETE_HORIZON_MASK) == 0) | is_legacy]
        first_ms = first_ms[first_ms >= 0]
        self._see_time(int(first_ms.min()) if first_ms.size else -1, int(max_ms.max()))
        is_data = (attributes & CONTROL_MASK) == 0
        self.codecs.update(np.unique(codecs[is_data]).tolist())
        producer_ids = np.unique(table.producer_id[good])
        self.producer_ids.update(producer_ids[producer_ids >= 0].tolist())

    def _add_records(self, count: int | None) -> None:
        if count is None or self.records_count is None:
            self.records_count = None
        else:
            self.records_count += count

    def _see_time(self, first_ms: int, max_ms: int) -> None:
        if first_ms >= 0 and (self.min_timestamp_ms is None or first_ms < self.min_timestamp_ms):
            self.min_timestamp_ms = first_ms
        if max_ms >= 0 and (self.max_timestamp_ms is None or max_ms > self.max_timestamp_ms):
            self.max_timestamp_ms = max_ms


def first_timestamp_ms(header: BatchHeader) -> int:
    """Return the timestamp of the first record. -1 if the header does not have it."""
    if header.magic < MAGIC_V2 or header.is_log_append_time:
        return header.max_timestamp_ms
    return -1 if header.delete_horizon_ms is not None else header.base_timestamp_ms


def describe_partition(
    partition: Partition,
    *,
    image: ClusterImage | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Description:
    """Read a partition from end to end and summarise it.

    Args:
        partition: listed, not yet read.
        image: the cluster's state, for replicas, leader and ISR.
        on_bytes: called after each segment with its number of bytes.
    """
    transactions = OpenTransactions(
        log_start_offset=partition.log_start_offset or 0, high_watermark=partition.high_watermark
    )
    segments, verdicts, codecs, producer_ids, spans = _read_log(partition, transactions, on_bytes)
    was_read = all(each.verdict is not None for each in segments) and bool(segments)
    exposed = [] if verdicts else _forget(partition, transactions)
    read_end_offset, log_end_offset = _ends(segments[-1], verdicts) if was_read else (None, None)
    left = uncompacted(partition, image)
    uncompacted_count = None
    if left is not None:
        uncompacted_count = _sum(
            each.records_count
            for each in segments
            if each.base_offset < left.end_offset and (each.last_offset or 0) >= left.first_offset
        )
    stable_offset = None
    if log_end_offset is not None:
        stable_offset = transactions.last_stable_offset(log_end_offset)
    dirty_offset, ratio = None, None
    if is_compacted(partition, image) and not partition.is_set_aside:
        dirty_offset, ratio = _cleanable(partition, segments, log_end_offset, stable_offset)
    name = partition.directory.name
    placed = in_cluster(partition.directory, partition.log_dir, image)
    span = joined(spans, partition.acknowledged.cleaned_offset)
    missing = _missing(partition, log_end_offset, span, verdicts)
    is_bad = bool(missing) or any(_is_bad(verdict, partition.stopped) for _, verdict in verdicts)
    kinds = [each.verdict for each in segments] + [VerdictKind.MISSING] * bool(missing)
    unknown = _unknown_ends(partition) if is_bad else ()
    summary = PartitionDescription(
        topic=name.topic,
        partition=_number(partition.directory),
        state=name.state,
        verdict=_worst(kinds) if was_read or not segments else None,
        log_start_offset=partition.log_start_offset,
        local_log_start_offset=partition.local_log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=stable_offset,
        open_transactions_count=len(transactions) if was_read else None,
        segments_count=len(segments),
        log_bytes=sum(each.log_bytes for each in segments),
        batches_count=sum(each.batches_count for each in segments),
        records_count=_sum(each.records_count for each in segments),
        producers_count=len(producer_ids),
        codecs=codec_names(codecs),
        replication_factor=None if placed.replicas is None else len(placed.replicas),
        leader=placed.leader,
        isr=placed.isr,
        min_insync_replicas=placed.min_insync_replicas,
        min_insync_from=placed.min_insync_from,
        standing=placed.standing,
        uncompacted_records_count=uncompacted_count,
        uncompacted_bytes=None if left is None else left.log_bytes,
        dirty_ratio=None if left is None else round(left.dirty_ratio, 4),
        uncompacted_since_ms=None if left is None else left.since_ms,
        first_dirty_offset=dirty_offset,
        cleanable_ratio=ratio,
        stopped=partition.stopped,
        problems_count=len(partition.problems) + len(verdicts) + len(missing),
        path=partition.path,
    )
    return Description(
        summary=summary,
        segments=tuple(segments),
        placed=placed,
        problems=tuple(partition.problems),
        remarks=(
            *_report(verdicts),
            *(f"{partition.path}: {each}" for each in missing),
            *(f"{partition.path}: {each}" for each in unknown),
            *_report_end(partition, read_end_offset, log_end_offset),
            *exposed,
            *_report_uncompacted(partition, left, uncompacted_count),
            *partition.notes,
        ),
        is_bad=is_bad or any(isinstance(each, FormatError) for each in partition.problems),
        is_unreadable=any(verdict.kind is VerdictKind.UNREADABLE for _, verdict in verdicts)
        or any(isinstance(each, AccessError) for each in partition.problems),
    )


def _cleanable(
    partition: Partition,
    segments: Sequence[SegmentSummary],
    end_offset: int | None,
    stable_offset: int | None,
) -> tuple[int | None, float | None]:
    """Return the first dirty offset and the cleanable share, as the cleaner computes them."""
    start_offset, log_dir = partition.log_start_offset, partition.log_dir
    if start_offset is None or end_offset is None or not segments:
        return None, None
    line = None if log_dir is None else log_dir.cleaned_offset(partition.directory)
    dirty, _ = first_dirty(line, start_offset, end_offset)
    if stable_offset is None:
        return dirty, None
    uncleanable = whole_segments_end(segments, max(dirty, stable_offset))
    cleanable = cleanable_segments(segments, dirty, uncleanable)
    cleanable_bytes = sum(each.log_bytes for each in cleanable)
    clean_bytes = sum(each.log_bytes for each in segments if each.base_offset < dirty)
    total_bytes = clean_bytes + cleanable_bytes
    return dirty, round(cleanable_bytes / total_bytes, 4) if total_bytes else None


def _report_uncompacted(
    partition: Partition, left: Uncompacted | None, records_count: int | None
) -> Iterator[str]:
    if left is not None and left.segments_count and left.dirty_ratio >= REPORTED_RATIO:
        yield f"{partition.path}: {left.reported(records_count)}"


def _forget(partition: Partition, transactions: OpenTransactions) -> list[str]:
    """Remove open transactions that a broker does not know. Return sentences about them."""
    if not len(transactions):
        return []
    from recovery.replay.recover_state import exposed_text, forgotten_transactions

    forgotten = forgotten_transactions(partition, transactions.ongoing)
    exposed = [each for each in transactions if each.producer_id in forgotten]
    transactions.forget(forgotten)
    return [f"{partition.path}: {exposed_text(*each)}" for each in exposed]


def _unknown_ends(partition: Partition) -> tuple[UnknownTransaction, ...]:
    """Return the transactions whose outcome damage hides. Only this function loads numpy."""
    from recovery.transactions.unknown_ends import find_ends, log_files_of

    return tuple(find_ends(log_files_of(partition)).unknown)


class _ReadLog(NamedTuple):
    """The result of all segments of a partition."""

    segments: list[SegmentSummary]
    verdicts: list[tuple[SegmentFiles, Verdict]]
    codecs: set[int]
    producer_ids: set[int]
    spans: list[OffsetSpan]


def _read_log(
    partition: Partition,
    transactions: OpenTransactions,
    on_bytes: Callable[[int], None] | None,
) -> _ReadLog:
    """Read the segments in order. Leave out a segment that has gone meanwhile."""
    found = _ReadLog(segments=[], verdicts=[], codecs=set(), producer_ids=set(), spans=[])
    for files in partition.segments:
        tally, verdicts = _read_segment(partition, files, transactions)
        if verdicts is None and _is_gone(partition, files):
            continue
        found.verdicts.extend((files, verdict) for verdict in verdicts or ())
        found.codecs.update(tally.codecs)
        found.producer_ids.update(tally.producer_ids)
        found.spans.append(tally.ledger.span)
        found.segments.append(_segment_summary(partition, files, tally, verdicts))
        if on_bytes is not None:
            on_bytes(files.log.file_bytes)
    return found


def _ends(
    last: SegmentSummary, verdicts: Sequence[tuple[SegmentFiles, Verdict]]
) -> tuple[int, int | None]:
    """Return where reading ended, and the log end. None if the disk did not return its end."""
    end_offset = last.base_offset if last.last_offset is None else last.last_offset + 1
    said = (verdict for files, verdict in verdicts if files.log.path == last.path)
    return end_offset, end_offset if is_read_to_end(said, last.log_bytes) else None


def unlisted(selected: Selected, problem: AccessError) -> Description:
    """Describe a partition directory that cannot be listed: almost nothing is known."""
    directory, log_dir = selected
    summary = PartitionDescription(
        topic=directory.name.topic,
        partition=_number(directory),
        state=directory.name.state,
        verdict=None,
        log_start_offset=None,
        local_log_start_offset=None,
        log_end_offset=None,
        high_watermark=None if log_dir is None else log_dir.high_watermark(directory),
        last_stable_offset=None,
        open_transactions_count=None,
        segments_count=None,
        log_bytes=None,
        batches_count=None,
        records_count=None,
        producers_count=None,
        codecs=(),
        replication_factor=None,
        leader=None,
        isr=None,
        min_insync_replicas=None,
        min_insync_from=None,
        standing=None,
        uncompacted_records_count=None,
        uncompacted_bytes=None,
        dirty_ratio=None,
        uncompacted_since_ms=None,
        first_dirty_offset=None,
        cleanable_ratio=None,
        stopped=StoppedState.UNKNOWN if log_dir is None else log_dir.stopped,
        problems_count=1,
        path=directory.path,
    )
    return Description(
        summary=summary,
        segments=(),
        placed=NOT_KNOWN,
        problems=(problem,),
        remarks=(),
        is_bad=False,
        is_unreadable=True,
    )


def _read_segment(
    partition: Partition, files: SegmentFiles, transactions: OpenTransactions
) -> tuple[_Tally, list[Verdict] | None]:
    """Scan one segment. The verdicts are None if it could not be opened."""
    tally = _Tally(files.base_offset)
    bounds = partition.bounds(files)
    try:
        with open_segment(files.log.path) as segment:
            if segment.file_bytes >= BULK_BYTES:
                tables = segment.scan_tables(**bounds)
                doubtful, lost = DoubtfulOffsets(tables), LostRecords(tables)
                for table in tables:
                    if doubtful.positions:
                        transactions.add_table(doubtful.put_right(table, tally.next_offset))
                    else:
                        transactions.add_table(table)
                    tally.add_table(table, segment, doubtful.positions, lost.positions)
                return tally, list(tables.verdicts)
            scan = segment.scan(**bounds)
            doubtful, lost = DoubtfulOffsets(scan), LostRecords(scan)
            for batch in scan:
                if batch.crc_ok is not False:
                    is_offset_right = batch.pos not in doubtful.positions
                    header = placed = batch.header
                    if not is_offset_right and tally.next_offset >= 0:  # like `put_right`
                        placed = header._replace(base_offset=tally.next_offset)
                    transactions.add_batch(placed)
                    is_lost = lost.has(batch)
                    tally.add_batch(
                        batch, segment, is_offset_right=is_offset_right, is_lost=is_lost
                    )
            return tally, scan.verdicts
    except AccessError as exc:
        if exc.errno != ENOENT:
            partition.problems.append(exc)
        return tally, None


def _missing(
    partition: Partition,
    log_end_offset: int | None,
    span: OffsetSpan,
    verdicts: Sequence[tuple[SegmentFiles, Verdict]],
) -> tuple[Missing, ...]:
    """Return the acknowledged offsets that are not on disk.

    Nothing is known of an unread end. The gaps of a damaged segment belong to its damage.
    """
    if partition.segments and log_end_offset is None:
        return tuple(partition.acknowledged.holes())
    damaged = {files.base_offset: files for files, each in verdicts if each.kind not in END_KINDS}
    reported = [unread(base, partition.end_of(files)) for base, files in damaged.items()]
    return partition.not_given(span, reported, end_offset=log_end_offset)


def _report_end(partition: Partition, read: int | None, end: int | None) -> Iterator[str]:
    """Yield where reading ended, if that is not the end of the log."""
    if read is not None and end is None:
        yield (
            f"{partition.path}: the log end is unknown, it is {read} at least. The last .log "
            "could not be read up to its end"
        )


def _is_gone(partition: Partition, files: SegmentFiles) -> bool:
    """Return whether a running broker removed the segment since the listing. Adds a note."""
    if os.path.lexists(files.log.path):
        return False
    partition.refresh()
    return True


def _segment_summary(
    partition: Partition, files: SegmentFiles, tally: _Tally, verdicts: list[Verdict] | None
) -> SegmentSummary:
    from storage.formats import offset_index, time_index

    index = partition.read_file(files.offset_index)
    times = partition.read_file(files.time_index)
    aborted = partition.aborted_transactions(files)
    kinds = None if verdicts is None else [each.kind for each in verdicts] or [VerdictKind.OK]
    return SegmentSummary(
        topic=partition.topic,
        partition=_number(partition.directory),
        base_offset=files.base_offset,
        last_offset=tally.last_offset,
        verdict=None if kinds is None else _worst(kinds),
        log_bytes=files.log.file_bytes,
        batches_count=tally.batches_count,
        records_count=tally.records_count,
        min_timestamp_ms=tally.min_timestamp_ms,
        max_timestamp_ms=tally.max_timestamp_ms,
        # After a crash the next start derives time indexes again.
        largest_timestamp_ms=largest_timestamp_ms(files) if partition.is_trimmed else None,
        index_entries_count=None if index is None else offset_index.logical_entry_count(index),
        time_index_entries_count=None if times is None else time_index.logical_entry_count(times),
        txn_index_entries_count=None if aborted is None else len(aborted),
        snapshot=files.snapshot is not None,
        path=files.log.path,
    )


def codec_names(codecs: Iterable[int]) -> tuple[str, ...]:
    """Return names in the order of the codec ids. An unknown id is its number."""
    from storage.formats.compression import Codec

    known = {int(each): each.label for each in Codec}
    return tuple(known.get(each, str(each)) for each in sorted(codecs))


def _is_bad(verdict: Verdict, stopped: StoppedState) -> bool:
    is_damaged = verdict.kind.is_damage and verdict.kind is not VerdictKind.UNREADABLE
    return is_damaged or is_wrong_end(verdict.kind, stopped)


def _worst(kinds: Iterable[VerdictKind | None]) -> VerdictKind:
    known = [each for each in kinds if each is not None]
    return max(known, key=lambda each: each.rank, default=VerdictKind.OK)


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _number(directory: PartitionDir) -> int | None:
    return directory.name.partition if directory.name.partition >= 0 else None


def _report(verdicts: list[tuple[SegmentFiles, Verdict]]) -> list[str]:
    first = verdicts[:MAX_REPORTED_VERDICTS_COUNT]
    reported = [in_words(files.log.path, verdict) for files, verdict in first]
    if len(verdicts) > len(reported):
        reported.append(f"and {len(verdicts) - len(reported)} more bad stretches in that partition")
    return reported
