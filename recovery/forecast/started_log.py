"""A log as it is after the start, with the facts that retention and the cleaner go by.

The facts come from a check and its prediction of the start. Only the last entry of each
`.timeindex` and the times of files are read here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from recovery.forecast.settings import TimeSource, file_time_ms, last_entry_ms
from recovery.start.segment_recovery import Fate, open_start_segment
from storage.errors import AccessError, FormatError
from storage.file_names import METADATA_TOPIC, DirState
from storage.formats.producer_snapshot import parse_snapshot
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.checks.partition_check import CheckedPartition, CheckedSegment
    from recovery.start.prediction import LoadedSegment, StartPrediction
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

BLOCK_BYTES = 512  # of st_blocks


class StartedSegment(NamedTuple):
    """A segment after the start.

    Attributes:
        end_offset: the base offset of the next segment, or the log end.
        disk_bytes: blocks of all its files.
        largest_timestamp_ms: the time by which the broker judges it. None: unknown.
        batches_timestamp_ms: the largest timestamp of its batches. None: none has a time.
        first_timestamp_ms: the largest timestamp of its first batch. None: it has no batch.
        records_count: None if unknown.
        damaged_count: batches with a wrong checksum.
        unreadable_offset: a cleaner fails at this offset. None: at none, as far as is known.
        is_doubtful: offsets of the segment contradict each other.
    """

    base_offset: int
    end_offset: int
    log_bytes: int
    disk_bytes: int
    largest_timestamp_ms: int | None
    largest_from: TimeSource
    batches_timestamp_ms: int | None
    first_timestamp_ms: int | None
    records_count: int | None
    damaged_count: int = 0
    unreadable_offset: int | None = None
    is_doubtful: bool = False


class StartedLog(NamedTuple):
    """A log that a start has loaded.

    Attributes:
        log_start_offset: with remote storage the start of the remote log.
        local_start_offset: the log start in this directory.
        high_watermark: as checkpointed. None: unknown.
        cleaner_line: in `cleaner-offset-checkpoint`. None: no line.
        opened: open transactions, as first offset and producer id. None: unknown.
        is_future: the directory has the suffix -future, also after the start.
        is_guess: the start recovers segments whose checksums were not computed.
        is_changed: the start changes the segments.
        is_compacted: by the metadata, the cleaner's line, or the name of the topic.
        is_verified: the checksums of batches were computed.
    """

    topic: str
    partition: int
    path: str
    segments: tuple[StartedSegment, ...]
    log_start_offset: int
    local_start_offset: int
    end_offset: int
    high_watermark: int | None
    cleaner_line: int | None
    opened: tuple[tuple[int, int], ...] | None
    is_future: bool = False
    is_guess: bool = False
    is_changed: bool = False
    is_compacted: bool = False
    is_verified: bool = False


def started_log(
    partition: Partition,
    checked: CheckedPartition,
    prediction: StartPrediction,
    *,
    now_ms: int,
    is_verified: bool,
    is_promoted: bool = False,
    is_compacted: bool = False,
) -> StartedLog | None:
    """Return the log after the start. None: the start does not load it, or it is the metadata log.

    Args:
        partition: the directory.
        checked: what a check has read.
        prediction: of the start.
        now_ms: the moment at which the log is loaded.
        is_verified: the check computed checksums.
        is_promoted: the start renames a -future directory to the live name.
        is_compacted: the cleaner reads the log, so damage is examined as it does.
    """
    end_offset = prediction.end_offset
    if end_offset is None or partition.topic == METADATA_TOPIC:
        return None
    loaded = prediction.segments
    bases = [each.checked.files.base_offset for each in loaded]
    segments = tuple(
        _segment(each, end, now_ms, compacts=is_compacted)
        for each, end in zip(loaded, [*bases[1:], end_offset], strict=bool(loaded))
    )
    log_dir, directory = partition.log_dir, partition.directory
    line = 0 if log_dir is None else log_dir.loaded_from(directory)[1]
    local_start = max(line, bases[0]) if bases else end_offset
    remote = partition.remote_range
    return StartedLog(
        topic=partition.topic,
        partition=partition.partition,
        path=partition.path,
        segments=segments,
        log_start_offset=local_start if remote is None else remote.start_offset,
        local_start_offset=local_start,
        end_offset=end_offset,
        high_watermark=partition.high_watermark,
        cleaner_line=None if log_dir is None else log_dir.cleaned_offset(directory),
        opened=_opened(partition, checked, prediction, end_offset),
        is_future=directory.name.state is DirState.FUTURE and not is_promoted,
        is_guess=bool(prediction.recovered_count) and not is_verified,
        is_changed=_is_changed(partition, loaded),
        is_compacted=is_compacted,
        is_verified=is_verified,
    )


def _is_changed(partition: Partition, loaded: tuple[LoadedSegment, ...]) -> bool:
    """Return whether the start changes a `.log` or the list of segments."""
    before = [(each.log.path, each.log.file_bytes) for each in partition.segments]
    return before != [(each.checked.files.log.path, each.log_bytes) for each in loaded]


def _opened(
    partition: Partition, checked: CheckedPartition, prediction: StartPrediction, end_offset: int
) -> tuple[tuple[int, int], ...] | None:
    """Return the open transactions by first offset. None: unknown.

    A broker loads them from the snapshot at the log end. The check knows the same from the log,
    unless damage hides it.
    """
    if not prediction.recovered_count:
        for entry in partition.files.snapshots:
            if entry.name.offset == end_offset and entry.path not in prediction.changes:
                with suppress(FormatError):
                    entries = parse_snapshot(partition.read_file(entry) or b"")
                    firsts = [(e.current_txn_first_offset, e.producer_id) for e in entries]
                    return tuple(sorted(each for each in firsts if each[0] >= 0))
    if checked.opened is None:
        return None
    return tuple(sorted(each for each in checked.opened.items() if each[0] < end_offset))


def _segment(
    loaded: LoadedSegment, end_offset: int, now_ms: int, *, compacts: bool
) -> StartedSegment:
    checked, outcome = loaded.checked, loaded.outcome
    files, facts = checked.files, checked.facts
    batches_ms = records_count = first_ms = None
    damaged_count = 0
    if facts is not None:
        is_recovered = outcome is not None
        batches_ms = facts.recovered_timestamp_ms if is_recovered else facts.largest_timestamp_ms
        records_count = facts.recovered_records_count if is_recovered else facts.records_count
        first_ms = facts.first_timestamp_ms
        damaged_count = 0 if is_recovered else facts.damaged_count
    unreadable_offset = None
    is_bad = checked.stop is not None or damaged_count or checked.is_doubtful
    if compacts and is_bad and outcome is None:
        unreadable_offset = _reader_stop(checked)
    if outcome is not None and outcome.fate is Fate.EMPTIED:
        batches_ms, records_count, first_ms = -1, 0, None
    largest_ms: int | None
    if outcome is not None or checked.range_bytes is not None:
        largest_ms, largest_from = batches_ms, TimeSource.BATCHES
    else:
        largest_ms, largest_from = last_entry_ms(files.time_index), TimeSource.TIME_INDEX
    if largest_ms is not None and largest_ms < 0:
        is_written = outcome is not None and loaded.log_bytes != checked.log_bytes
        largest_ms = now_ms if is_written else file_time_ms(files.log)
        largest_from = TimeSource.FILE_TIME
    return StartedSegment(
        base_offset=files.base_offset,
        end_offset=end_offset,
        log_bytes=loaded.log_bytes,
        disk_bytes=_disk_bytes(files),
        largest_timestamp_ms=largest_ms,
        largest_from=largest_from,
        batches_timestamp_ms=None if batches_ms is None or batches_ms < 0 else batches_ms,
        first_timestamp_ms=first_ms,
        records_count=records_count,
        damaged_count=damaged_count,
        unreadable_offset=unreadable_offset,
        is_doubtful=checked.is_doubtful and outcome is None,
    )


def _reader_stop(checked: CheckedSegment) -> int | None:
    """Return the offset at which the cleaner's reader fails in a segment, or None.

    It verifies no checksum. It fails on a frame that no batch has, on the end of the file within a
    batch, and on records that it cannot decode.
    """
    next_offset = checked.files.base_offset
    try:
        with open_start_segment(checked) as segment:
            scan = segment.scan(resume=False)
            end_pos = 0
            for batch in scan:
                if batch.crc_ok is False and not _is_decodable(segment, batch):
                    return next_offset
                next_offset = batch.header.last_offset + 1
                end_pos = batch.pos + batch.header.batch_bytes
    except AccessError:
        return None
    stops = [each for each in scan.verdicts if each.start_pos >= end_pos]
    is_stopped = any(each.kind is not VerdictKind.UNREADABLE for each in stops)
    return next_offset if is_stopped else None


def _is_decodable(segment: Segment, batch: ScannedBatch) -> bool:
    try:
        for _ in segment.records(batch):
            pass
    except (FormatError, AccessError):
        return False
    return True


def _disk_bytes(files: SegmentFiles) -> int:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index, files.snapshot)
    return disk_bytes_of(each.path for each in entries if each is not None)


def disk_bytes_of(paths: Iterable[str]) -> int:
    """Return the allocated bytes of files. A file that cannot be read counts as 0."""
    total = 0
    for path in paths:
        try:
            total += os.stat(path).st_blocks * BLOCK_BYTES  # noqa: PTH116 - of many files
        except OSError:
            continue
    return total
