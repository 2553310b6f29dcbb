"""The rows of one partition in a report, from the data read."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eoctl.commands.reporting import report_options
from eoctl.commands.txn.readers import offline_command
from eoctl.report.model import (
    EpochMark,
    FindingMark,
    PartitionMark,
    ProducerMark,
    SegmentMark,
    TransactionMark,
    VolumeMark,
)
from recovery.timeline.piece import VOLUME_COLUMNS
from recovery.timeline.spans import (
    COMMITTED_COLUMNS,
    MARKER_DTYPE,
    PART_DTYPE,
    SpanEvents,
    find_spans,
    join_spans,
    no_spans,
    settle,
)
from recovery.transactions.events import LogEvents
from recovery.transactions.unknown_ends import find_ends, log_files_of
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.files.uris import is_uri
from storage.formats.control_record import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.commands.reporting.report_options import ReportRequest
    from eoctl.commands.txn.readers import TxnOptions
    from recovery.fsck.partition_state import PartitionInspection
    from recovery.fsck.verdict import PlacedFinding
    from recovery.replay.snapshots import Clock
    from recovery.timeline.spans import EndedSpans, Spans
    from recovery.transactions.open_transactions import OpenTransactionReport


FIRST_OFFSET, FIRST_MS, LAST_OFFSET, LAST_MS = map(
    VOLUME_COLUMNS.index,
    ("first_offset", "first_timestamp_ms", "last_offset", "last_timestamp_ms"),
)


class PartitionStory(NamedTuple):
    """The data read from a partition, and the state of its open transactions.

    Attributes:
        opened: as in `eoctl txn list`.
        owner_names: transactional ids by producer id. Other owners are unknown.
        files: the `.log` of each segment, by base offset.
    """

    inspect: PartitionInspection
    broker: int | None
    ended: EndedSpans
    opened: Sequence[OpenTransactionReport]
    owner_names: dict[int, str]
    files: dict[int, str]

    @classmethod
    def of(
        cls,
        inspect: PartitionInspection,
        broker: int | None,
        opened: Sequence[OpenTransactionReport],
        owner_names: dict[int, str],
    ) -> PartitionStory:
        """Return the story of a log, whose start counts as the start of its first transactions."""
        files = {base: path for base, path, _ in inspect.facts.segments}
        return cls(inspect, broker, settle(_spans_of(inspect)), opened, owner_names, files)

    @property
    def path(self) -> str:
        """The directory."""
        return self.inspect.check.row.path

    def file_of(self, base_offset: int) -> str:
        """Return the `.log` of a segment."""
        return self.files.get(base_offset, self.path)

    def time_at(self, offset: int | None) -> int | None:
        """Return the approximate time of an offset, by the bins."""
        bins = self.inspect.timeline.by_offset
        if offset is None or not len(bins.key):
            return None
        firsts = bins.values[:, FIRST_OFFSET]
        at = max(int(np.searchsorted(firsts, offset, "right")) - 1, 0)
        # An offset between two bins was lost after the records before it.
        is_behind = offset > bins.values[at, LAST_OFFSET]
        time_ms = int(bins.values[at, LAST_MS if is_behind else FIRST_MS])
        return None if time_ms < 0 else time_ms

    def last_ms(self) -> int | None:
        """Return the newest time of the log."""
        return known_ms(self.inspect.timeline.by_offset.values[:, LAST_MS].max(initial=-1))

    def first_ms(self) -> int | None:
        """Return the oldest time of the log."""
        bins = self.inspect.timeline.by_time
        return known_ms(bins.values[0, FIRST_MS]) if len(bins.key) else None


def _spans_of(inspect: PartitionInspection) -> Spans:
    """Return the transactions of a log.

    In a damaged log, the next marker after a damaged or absent range may end another transaction.
    Then the log is read again with the outcomes that `unknown_ends` decides.
    """
    row, spans = inspect.check.row, inspect.timeline.spans
    if not row.errors or is_uri(row.path):
        return spans
    try:
        log = log_files_of(Partition.of(select_partition(row.path)))
        ends = find_ends(log).ends
        if not len(ends.offset):
            return spans
        bases, spans = np.array(log.bases, np.int64), no_spans()
        start = log.log_start_offset
        for table, marker in LogEvents(log.bases, log.opener, log_start_offset=start, ends=ends):
            events = SpanEvents(
                producer_id=table.producer_id,
                epoch=table.producer_epoch,
                marker=marker,
                base_offset=table.base_offset,
                last_offset=table.last_offset,
                records=np.maximum(table.records_count, 0).astype(np.int64),
                batch_bytes=table.batch_bytes,
                timestamp_ms=table.max_timestamp_ms,
                segment=bases[np.searchsorted(bases, table.base_offset, "right") - 1],
                pos=table.pos,
            )
            spans = join_spans(spans, find_spans(events))
    except EoctlError:  # the log was removed meanwhile
        return inspect.timeline.spans
    return spans


def known_ms(time_ms: Any) -> int | None:
    """Return the time of a batch, None if it has none."""
    return None if time_ms < 0 else int(time_ms)


def partition_row(story: PartitionStory) -> PartitionMark:
    """Return the summary of a partition."""
    row, facts, timeline = story.inspect.check.row, story.inspect.facts, story.inspect.timeline
    is_read = row.batches is not None
    return PartitionMark(
        topic=row.topic,
        partition=row.partition,
        broker=story.broker,
        log_start_offset=facts.log_start_offset,
        local_log_start_offset=facts.local_log_start_offset,
        recovery_point=facts.recovery_point,
        high_watermark=facts.high_watermark,
        last_stable_offset=facts.last_stable_offset,
        end_offset=row.end_offset,
        is_end_read=facts.is_end_read if is_read else None,
        start_end_offset=row.start_end_offset,
        segments_count=len(facts.segments) if is_read else None,
        batches=row.batches,
        log_bytes=row.log_bytes,
        first_timestamp_ms=story.first_ms(),
        last_timestamp_ms=story.last_ms(),
        producers_count=len(timeline.producers) if is_read else None,
        committed_transactions=_committed_count(story.ended) if is_read else None,
        aborted_transactions=_aborted_count(story.ended) if is_read else None,
        open_transactions=len(story.opened) if is_read and facts.is_end_read else None,
        errors=row.errors,
        warnings=row.warnings,
        notes=row.notes,
        unreadable=row.unreadable,
        start=row.start,
        path=row.path,
    )


def _committed_count(ended: EndedSpans) -> int:
    return int(ended.committed.values[:, 0].sum())


def _aborted_count(ended: EndedSpans) -> int:
    return int(np.count_nonzero(ended.aborted["marker"]["kind"] != UNKNOWN))


def volume_rows(story: PartitionStory, request: ReportRequest) -> Iterator[VolumeMark]:
    """Yield the amounts written, by time and by offset."""
    timeline = story.inspect.timeline
    for axis, bins in (("time", timeline.by_time), ("offset", timeline.by_offset)):
        firsts, lasts = bins.values[:, FIRST_MS], bins.values[:, LAST_MS]
        before = np.maximum.accumulate(np.append([-1], lasts))[:-1]
        backwards = (axis == "offset") & (firsts >= 0) & (firsts < before)
        values = (each.tolist() for each in bins.values.T)
        columns: dict[str, Iterable[Any]] = dict(zip(VOLUME_COLUMNS, values, strict=True))
        for name in ("first_timestamp_ms", "last_timestamp_ms"):
            columns[name] = [None if time_ms < 0 else time_ms for time_ms in columns[name]]
        starts = (bins.key << bins.width_bits).tolist()
        columns |= {
            "path": repeat(story.path, len(starts)),
            "axis": repeat(axis, len(starts)),
            "start": starts,
            "end": [each + (1 << bins.width_bits) for each in starts],
            "log_bytes": columns["bytes"],
            "goes_back": backwards.tolist(),
        }
        # Column by column, because a page of many partitions has tens of thousands of these rows.
        marks = map(
            VolumeMark._make, zip(*map(columns.__getitem__, VolumeMark._fields), strict=True)
        )
        if request.from_ms is None and request.to_ms is None:
            yield from marks
            continue
        for each in marks:
            if request.is_within(each.first_timestamp_ms, each.last_timestamp_ms):
                yield each


def segment_rows(story: PartitionStory, request: ReportRequest) -> Iterator[SegmentMark]:
    """Yield the segments, including segments without a batch."""
    row = story.inspect.check.row
    read = {int(each["base_offset"]): each for each in story.inspect.timeline.segments}
    for base_offset, file, log_bytes in story.inspect.facts.segments:
        each = read.get(base_offset)
        found = SegmentMark(
            topic=row.topic,
            partition=row.partition,
            base_offset=base_offset,
            last_offset=None if each is None else int(each["last_offset"]),
            first_timestamp_ms=None if each is None else known_ms(each["first_timestamp_ms"]),
            last_timestamp_ms=None if each is None else known_ms(each["last_timestamp_ms"]),
            batches=0 if each is None else int(each["batches"]),
            records=0 if each is None else _records_of(each),
            log_bytes=log_bytes,
            file=file,
            path=row.path,
        )
        if request.is_within(found.first_timestamp_ms, found.last_timestamp_ms):
            yield found


def _records_of(segment: Any) -> int | None:
    """Return the number of records, or None: headers of compressed v0 and v1 messages lack it."""
    return None if segment["wrappers"] else int(segment["records"])


def epoch_rows(story: PartitionStory, request: ReportRequest) -> Iterator[EpochMark]:
    """Yield the changes of the leader epoch."""
    row = story.inspect.check.row
    for epoch, first_offset, time_ms, segment, pos in story.inspect.timeline.epochs.tolist():
        if request.is_within(time_ms, time_ms):
            yield EpochMark(
                topic=row.topic,
                partition=row.partition,
                leader_epoch=epoch,
                first_offset=first_offset,
                timestamp_ms=known_ms(time_ms),
                file=story.file_of(segment),
                position=pos,
                path=row.path,
                command=report_options.locate(row.path, first_offset),
            )


def producer_rows(
    story: PartitionStory, request: ReportRequest, clock: Clock
) -> Iterator[ProducerMark]:
    """Yield the producer ids, by offset."""
    row = story.inspect.check.row
    names = story.inspect.timeline.producers.dtype.names or ()
    for values in story.inspect.timeline.producers.tolist():
        each = dict(zip(names, values, strict=True))
        producer_id, last_ms = each["producer_id"], known_ms(each["last_timestamp_ms"])
        name = story.owner_names.get(producer_id)
        if request.transactional_ids and name not in request.transactional_ids:
            continue
        if request.is_within(each["first_timestamp_ms"], last_ms):
            yield ProducerMark(
                topic=row.topic,
                partition=row.partition,
                producer_id=producer_id,
                transactional_id=name,
                first_epoch=each["first_epoch"],
                last_epoch=each["last_epoch"],
                batches=each["batches"],
                records=each["records"],
                log_bytes=each["bytes"],
                transactional_batches=each["transactional_batches"],
                first_offset=each["first_offset"],
                last_offset=each["last_offset"],
                first_timestamp_ms=known_ms(each["first_timestamp_ms"]),
                last_timestamp_ms=last_ms,
                expires_at_ms=None if last_ms is None else last_ms + clock.expiration_ms,
                is_expired=None if last_ms is None else clock.has_expired(last_ms),
                path=row.path,
                command=report_options.transaction(row.path, producer_id, request)
                if each["transactional_batches"]
                else report_options.locate(row.path, each["first_offset"]),
            )


# --- transactions ---------------------------------------------------------------------------------


def transaction_rows(
    story: PartitionStory, request: ReportRequest, options: TxnOptions
) -> Iterator[TransactionMark]:
    """Yield transactions by first offset. Committed transactions may be summed up."""
    rows = [*_committed(story, request), *_aborted(story, request)]
    rows += _opened(story, request, options)
    wanted = request.transactional_ids
    for each in sorted(rows, key=lambda each: (each.first_offset, each.last_offset or 0)):
        if wanted and each.transactional_id not in wanted:
            continue
        if request.is_within(each.first_timestamp_ms, each.last_timestamp_ms):
            yield each


def _committed(story: PartitionStory, request: ReportRequest) -> Iterator[TransactionMark]:
    for values in story.ended.committed.values.tolist():
        each = dict(zip(COMMITTED_COLUMNS, values, strict=True))
        path, count, producer_id = story.path, each["transactions"], each["producer_id"]
        is_one, has_one_producer = count == 1, producer_id == each["last_producer_id"]
        yield _ended(
            story,
            each,
            state="committed",
            transactions=count,
            producer_id=producer_id if has_one_producer else None,
            producer_epoch=each["epoch"] if is_one else None,
            position=each["pos"] if is_one else None,
            command=report_options.transaction(path, producer_id, request)
            if has_one_producer
            else report_options.transactions(path, request),
        )


def _aborted(story: PartitionStory, request: ReportRequest) -> Iterator[TransactionMark]:
    for producer_id, data_values, marker_values in story.ended.aborted.tolist():
        data = dict(zip(PART_DTYPE.fields or (), data_values, strict=True))
        marker = dict(zip(MARKER_DTYPE.fields or (), marker_values, strict=True))
        yield _ended(
            story,
            data | {f"marker_{name}": value for name, value in marker.items()},
            state="unknown" if marker["kind"] == UNKNOWN else "aborted",
            transactions=1,
            producer_id=producer_id,
            producer_epoch=marker["epoch"],
            position=data["pos"],
            command=report_options.transaction(story.path, producer_id, request),
        )


def _ended(
    story: PartitionStory,
    found: dict[str, int],
    *,
    state: str,
    transactions: int,
    producer_id: int | None,
    producer_epoch: int | None,
    position: int | None,
    command: str,
) -> TransactionMark:
    """Return transactions that a marker ends. `found`: their data and the last marker, by name."""
    row = story.inspect.check.row
    return TransactionMark(
        topic=row.topic,
        partition=row.partition,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional_id=None if producer_id is None else story.owner_names.get(producer_id),
        state=state,
        verdict=None,
        transactions=transactions,
        first_offset=found["first_offset"],
        last_offset=found["marker_offset"],
        first_timestamp_ms=known_ms(found["first_timestamp_ms"]),
        last_timestamp_ms=known_ms(found["marker_timestamp_ms"]),
        batches=found["batches"],
        records=found["records"],
        log_bytes=found["bytes"],
        holds_last_stable_offset=False,
        held_offsets_count=None,
        age_ms=None,
        reason="",
        file=story.file_of(found["segment"]),
        position=position,
        path=story.path,
        command=command,
        fix="",
    )


def _opened(
    story: PartitionStory, request: ReportRequest, options: TxnOptions
) -> Iterator[TransactionMark]:
    """Yield transactions that are open for a broker, with their data in the log."""
    row = story.inspect.check.row
    in_log = {
        (int(each["producer_id"]), int(each["data"]["first_offset"])): each["data"]
        for each in story.ended.open
    }
    for each in story.opened:
        data = in_log.get((each.producer_id, each.first_offset))
        yield TransactionMark(
            topic=row.topic,
            partition=row.partition,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            transactional_id=each.transactional_id,
            state="open",
            verdict=str(each.verdict),
            transactions=1,
            first_offset=each.first_offset,
            last_offset=None if each.last_offset < 0 else each.last_offset,
            first_timestamp_ms=None if data is None else known_ms(data["first_timestamp_ms"]),
            last_timestamp_ms=known_ms(each.last_timestamp_ms),
            batches=None if data is None else int(data["batches"]),
            records=None if data is None else int(data["records"]),
            log_bytes=None if data is None else int(data["bytes"]),
            holds_last_stable_offset=each.holds_last_stable_offset,
            held_offsets_count=each.held_offsets_count,
            age_ms=each.age_ms,
            reason=each.reason,
            file=row.path if data is None else story.file_of(int(data["segment"])),
            position=None if data is None else int(data["pos"]),
            path=row.path,
            command=report_options.transaction(row.path, each.producer_id, request),
            fix=offline_command(each, options) or "",
        )


# --- findings -------------------------------------------------------------------------------------


def finding_row(
    placed: PlacedFinding, story: PartitionStory | None, *, is_consequence: bool
) -> FindingMark:
    """Return a finding with its approximate time."""
    each, directory = placed.finding, placed.directory
    time_ms = None
    if story is not None:
        offset = each.base_offset if each.base_offset is not None else each.last_offset
        time_ms = story.time_at(offset)
        if offset is None and each.start_pos is not None:
            time_ms = _time_of_segment(story, each.path)
    return FindingMark(
        check_id=each.check_id,
        severity=str(each.severity),
        file=each.path,
        message=each.message,
        topic=each.topic,
        partition=each.partition,
        start_pos=each.start_pos,
        end_pos=each.end_pos,
        base_offset=each.base_offset,
        last_offset=each.last_offset,
        expected=each.expected,
        found=each.found,
        broker_action=each.broker_action,
        fix=each.fix,
        timestamp_ms=time_ms,
        is_consequence=is_consequence,
        path=directory,
        command=report_options.check(directory or each.path),
    )


def _time_of_segment(story: PartitionStory, file: str) -> int | None:
    bases = [base for base, path in story.files.items() if path == file]
    return story.time_at(bases[0]) if bases else None
