"""A consumer of a partition: its range, its isolation level, and following."""

from __future__ import annotations

import errno
import time
from abc import ABC, abstractmethod
from collections import deque
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, NamedTuple, Unpack

from eoctl.clients.log.consumed import SingleRecords
from eoctl.clients.log.log_walk import DamageError, Given, LogWalk, LogWatch
from eoctl.clock import parse_time_ms
from recovery.transactions.isolation import AbortedSource, Isolation
from storage.dirs.discovery import select_partition
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.partition import Partition
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    FormatError,
    RefusedError,
    TooLargeError,
    UsageError,
)
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import ScannedBatch
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import decoded_records
from storage.places.log_reader import content_finding

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from eoctl.clients.log.consumed import Records
    from eoctl.clients.log.log_walk import WalkOptions
    from eoctl.clients.log.table_records import IsHidden, TableRecords
    from recovery.transactions.unknown_ends import UnknownTransaction
    from recovery.transactions.view import TransactionView
    from storage.dirs.acknowledged_offsets import Missing
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment

    AnyRecords = Records | TableRecords


# -- start and end of consuming, as on the command line.
#
# 1. --from earliest | latest | OFFSET | -N | TIME. A plain integer is an offset, -N means the last
#    N records. TIME is ISO 8601, or `time:` and a value of `--now`, in milliseconds, too.
# 2. --until log-end | hw | lso | OFFSET. The end is excluded.


TIME_PREFIX = "time:"


class StartKind(StrEnum):
    """A value of `--from`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    LAST = "last"


class EndKind(StrEnum):
    """A value of `--until`."""

    LOG_END = "log-end"
    HW = "hw"
    LSO = "lso"
    OFFSET = "offset"


class Start(NamedTuple):
    """The first record. `number` is an offset, milliseconds since 1970, or a number of records."""

    kind: StartKind = StartKind.EARLIEST
    number: int = 0


class End(NamedTuple):
    """The first record that is not consumed. `number` is an offset."""

    kind: EndKind = EndKind.LOG_END
    number: int = MAX_OFFSET


def parse_start(text: str) -> Start:
    """Parse `--from`. Raises UsageError."""
    if text in (StartKind.EARLIEST, StartKind.LATEST):
        return Start(StartKind(text))
    if text.isdecimal() and text.isascii():
        return Start(StartKind.OFFSET, _offset("--from", text))
    if text.startswith(TIME_PREFIX):
        return Start(StartKind.TIME, parse_time_ms(text.removeprefix(TIME_PREFIX)))
    if text.startswith("-") and text[1:].isdecimal() and text.isascii():
        return Start(StartKind.LAST, _offset("--from", text[1:]))
    try:
        return Start(StartKind.TIME, parse_time_ms(text))
    except UsageError as exc:
        raise UsageError(
            f"--from {text}: neither an offset nor a time",
            next_step="earliest, latest, an offset, -10 (the last ten), 2026-11-21T04:38:00Z, or"
            " time:1795229886343",
        ) from exc


def parse_end(text: str) -> End:
    """Parse `--until`. Raises UsageError."""
    if text in (EndKind.LOG_END, EndKind.HW, EndKind.LSO):
        return End(EndKind(text))
    if text.isdecimal() and text.isascii():
        return End(EndKind.OFFSET, _offset("--until", text))
    raise UsageError(f"--until {text}: no such end", next_step="log-end, hw, lso, or an offset")


def _offset(option: str, text: str) -> int:
    # Longer numbers are not converted, because Python refuses thousands of digits.
    if len(text.lstrip("0")) > len(str(MAX_OFFSET)) or int(text) > MAX_OFFSET:
        raise UsageError(f"{option}: an offset has 63 bits")
    return int(text)


# -- reads the records of a partition from an offset on, and again from the last position.
#
# The result is the same as a consumer's fetches, with the damage that they would meet (`log_walk`).
# Control batches have no records.


class LogReader(LogWalk["AnyRecords"]):
    """A reader of records, in pieces with one timestamp type each."""

    gives_proven = True

    def __init__(
        self, partition: Partition, next_offset: int, **options: Unpack[WalkOptions]
    ) -> None:
        super().__init__(partition, next_offset, **options)
        self._singles = SingleRecords()

    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read many batches at a time."""
        from eoctl.clients.log.table_records import records_of_window, stop_in

        stop = stop_in(window.table, end_offset)
        found = records_of_window(
            window,
            self.next_offset,
            end_offset,
            self._is_hidden,
            max_batch_bytes=segment.max_batch_bytes,
        )
        for each in found:
            if isinstance(each, ScannedBatch):
                yield from self._decode(each, segment, end_offset)
                yield from self._flush()
            else:
                self._passed(each.next_offset)
                yield each
        self._pos = stop.pos
        self._passed(stop.next_offset)
        return stop.is_over

    def _read_single(
        self, batch: ScannedBatch, segment: Segment, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read a batch of an old format, or a batch that requires separate decoding."""
        header = batch.header
        is_v2 = header.magic >= MAGIC_V2
        if is_v2 and header.base_offset >= end_offset:
            self._passed(end_offset)
            return True
        is_data = not (header.is_control or (is_v2 and header.records_count == 0))
        if is_data and header.last_offset >= self.next_offset and self._is_visible(batch):
            yield from self._decode(batch, segment, end_offset)
        is_over = header.last_offset + 1 >= end_offset
        self._pos = batch.pos + (0 if header.last_offset >= end_offset else header.batch_bytes)
        self._passed(end_offset if is_over else header.last_offset + 1)
        return is_over

    def _decode(self, batch: ScannedBatch, segment: Segment, end_offset: int) -> Iterator[Records]:
        """Yield the records of a batch that can be decoded to its end."""
        header = batch.header
        try:
            records = decoded_records(batch, segment, self._floor_offset)
        except TooLargeError as exc:
            yield from self._flush()
            if not self._skip_corrupt:
                raise RefusedError(
                    f"{segment.path}: position {batch.pos}: the batch at offset"
                    f" {header.base_offset} decompresses to more than"
                    f" {segment.max_batch_bytes:,} bytes",
                    next_step="--max-batch-bytes N, or --skip-corrupt",
                ) from exc
            self._lose(content_finding(segment.path, batch, exc, self._floor_offset))
            return
        except (FormatError, AccessError) as exc:
            yield from self._flush()
            self._lose(content_finding(segment.path, batch, exc, self._floor_offset))
            return
        for record in records:
            if self.next_offset <= record.offset < end_offset:
                if self._singles.is_full(header):
                    yield from self._flush()
                self._singles.add(header, record)
        self._passed(min(header.last_offset + 1, end_offset))

    def _flush(self) -> Iterator[Records]:
        if self._singles.records:
            yield self._singles.take()


# -- a consumer of a partition directory: its range, its isolation level, and following
#
# `LogConsumer` is the base of all consumers, `Consumer` returns records. A read_committed consumer
# stops before the last stable offset, and does not get aborted records
# (`recovery.transactions.view`). The bounds are a client's bounds, as far as checkpoints know them.
# Nothing below the log start offset is read, and with `--until hw` nothing from the high watermark
# on.


RELISTS_MAX = 5
TAIL_GRACE_S = 2.0  # longer than an append in progress takes


class ConsumeOptions(NamedTuple):
    """The options of the command line."""

    start: Start = Start()
    end: End = End()
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    aborted_from: AbortedSource = AbortedSource.LOG
    follow: bool = False
    max_messages: int | None = None
    skip_corrupt: bool = False
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES


class Consumed(NamedTuple):
    """The records so far.

    `next_offset` is the position at which another consumer would continue.
    """

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    next_offset: int = 0


class LogConsumer(ABC, Generic[Given]):
    """A consumer that reads a partition once.

    Attributes:
        partition: as it is listed now.
        view: its transactions, None if nothing depends on them.
        consumed: so far.
        around: problems that hide its log start offset and high watermark.
        reader: None before `start`.
    """

    def __init__(self, path: str, options: ConsumeOptions, report: Callable[[str], None]) -> None:
        """Find the partition. `report` takes messages for people.

        Raises:
            UsageError: the path is not a single partition, or its high watermark is unknown.
            AccessError: it cannot be read.
        """
        self._path = path
        self._options = options
        self._report = report
        selected = select_partition(path)
        self.partition = Partition.of(selected)
        self.around = selected.problems
        self._high_watermark = self.partition.high_watermark
        if options.end.kind is EndKind.HW and self._high_watermark is None:
            raise UsageError(
                f"{path}: its high watermark is unknown. No checkpoint around it names it",
                next_step="--until log-end, or an offset",
            )
        self._start_at = 0  # the first requested offset
        start = options.start
        if start.kind is StartKind.OFFSET and self._hides(start.number):
            self.partition.ignores_log_start = True
        self._is_committed = options.isolation is Isolation.READ_COMMITTED
        self.view: TransactionView | None = None
        if self._is_committed or options.end.kind is EndKind.LSO:
            self.view = self._new_view()
        self.consumed = Consumed()
        self.reader: LogWalk[Given] | None = None
        self._reported_unknown: set[UnknownTransaction] = set()
        self.reported_gaps: set[Missing] = set()  # reported while the log was followed
        self._judged_gaps: tuple[object, int] | None = None  # gaps of the walk, and segments

    def _hides(self, offset: int) -> bool:
        """Return whether an offset on disk is below a wrong log start offset (OFS-1)."""
        log_start_offset = self.partition.log_start_offset
        if log_start_offset is None or offset >= log_start_offset:
            return False
        hidden = [each for each in self.partition.not_given() if each.check_id == "OFS-1"]
        for each in hidden:
            self._report(
                f"{self.partition.path}: {each.why}. The records below it are given all the same"
            )
        return bool(hidden)

    def not_given(self) -> list[Missing]:
        """Return the requested offsets that were acknowledged but are not returned.

        Damage is reported while reading. The result has offsets that no file has, or that a log
        start offset hides.
        """
        end = self._options.end
        to_offset = end.number if end.kind is EndKind.OFFSET else None
        if end.kind is EndKind.HW:
            to_offset = self._high_watermark
        is_earliest = self._options.start.kind is StartKind.EARLIEST
        from_offset = 0 if is_earliest else self._start_at
        partition, reader = self.partition, self.reader
        if reader is None:
            found = partition.not_given()
        else:
            found = partition.not_given(reader.ledger.span, reader.skipped)
        reached = self.end_offset if to_offset is None else min(to_offset, self.end_offset)
        cut = (
            each.within(from_offset, reached if each.check_id == GAP_CHECK_ID else to_offset)
            for each in found
            if not (each.check_id == "OFS-1" and partition.ignores_log_start)
        )
        return [each for each in cut if each is not None]

    def _report_gaps(self) -> None:
        """Report the gaps between batches so far, as a follower may never see the end of the log.

        The check is repeated only if the walk has met another gap, or the log has rolled.
        """
        assert self.reader is not None
        judged = self.reader.ledger.span.gaps, len(self.partition.segments)
        if judged == self._judged_gaps:
            return
        self._judged_gaps = judged
        for each in self.not_given():
            if each.check_id == GAP_CHECK_ID and each not in self.reported_gaps:
                self.reported_gaps.add(each)
                self._report(f"{self.partition.path}: {each}")

    def status(self, not_given: Sequence[Missing]) -> int:
        """Return the exit status of the reads so far. `not_given` is the result of that method."""
        reader = self.reader
        is_skipped = reader is not None and reader.skipped
        withheld = self._reported_unknown
        if self.around or self.partition.problems or is_skipped or not_given or withheld:
            return EXIT_SKIPPED
        is_wrong = reader is not None and (reader.noted or reader.wrong_end is not None)
        return EXIT_FINDINGS if is_wrong else EXIT_OK

    def reported(self, not_given: Sequence[Missing]) -> Iterator[str]:
        """Yield the messages for `status`, and other notes."""
        partition = self.partition
        yield from map(str, (*self.around, *partition.problems, *partition.notes))
        for each in [] if self.reader is None else self.reader.noted:
            yield f"damaged, and given: {each.with_offsets}"
        if self.reader is not None and self.reader.wrong_end is not None:
            yield f"behind the last batch: {self.reader.wrong_end.with_offsets}"
        yield from (f"{partition.path}: {each}" for each in not_given)

    def _new_view(self) -> TransactionView:
        from recovery.transactions.view import TransactionView

        is_hw = self._options.end.kind is EndKind.HW
        view = TransactionView(
            self.partition,
            high_watermark=self._high_watermark if is_hw else None,
            source=self._options.aborted_from,
        )
        view.update()
        return view

    # --- bounds ---

    @property
    def log_end_offset(self) -> int:
        """The offset after the last good batch."""
        if self.view is not None:
            return self.view.log_end_offset
        end = self.partition.log_end()
        return 0 if end is None else max(end.offset, self.partition.local_log_start_offset or 0)

    @property
    def end_offset(self) -> int:
        """The end of the offsets that may be consumed now. MAX_OFFSET: the end of the log."""
        kind, number = self._options.end
        if kind is EndKind.HW:
            number = self._high_watermark or 0
        if self.view is not None and (self._is_committed or kind is EndKind.LSO):
            number = min(number, self.view.last_stable_offset)
        return number

    def start(self, offset: int | None = None) -> int:
        """Begin at `offset`, or at the start in the options. Return the first offset.

        Raises:
            UsageError: the log ends below the offset.
            AccessError: a segment cannot be read.
        """
        offset = self._start_offset() if offset is None else offset
        self._report_remote(offset)
        self.consumed = Consumed(next_offset=offset)
        self._start_at = offset
        self._report_unknown()
        self.reader = self._new_reader(offset, self._is_hidden if self._is_committed else None)
        return offset

    def _report_unknown(self) -> None:
        """Report each transaction of unknown outcome once, because its records are withheld."""
        end = self._options.end
        for each in () if self.view is None else self.view.unknown:
            is_behind = end.kind is EndKind.OFFSET and each.first_offset >= end.number
            if each.last_offset < self._start_at or is_behind or each in self._reported_unknown:
                continue
            self._reported_unknown.add(each)
            self._report(f"{self.partition.path}: {each}. read_committed withholds these records")

    def _report_remote(self, offset: int) -> None:
        """Report remote segments that a broker's client would also read."""
        remote, log_dir = self.partition.remote_range, self.partition.log_dir
        kind, number = self._options.start
        wanted = number if kind is StartKind.OFFSET else offset
        if remote is None or log_dir is None:
            return
        if kind is not StartKind.EARLIEST and wanted >= remote.end_offset:
            return
        from recovery.cluster.remote_segments import RemoteSegments

        self._report(f"{RemoteSegments([log_dir]).report(self.partition)}: they are not given")

    @abstractmethod
    def _new_reader(self, offset: int, is_hidden: IsHidden) -> LogWalk[Given]:
        """Return a reader from an offset on."""

    def _start_offset(self) -> int:
        log_start_offset = self.partition.local_log_start_offset or 0
        kind, number = self._options.start
        if kind is StartKind.EARLIEST:
            return log_start_offset
        log_end_offset = self.log_end_offset
        if kind is StartKind.LAST:
            end_offset = max(min(self.end_offset, log_end_offset), log_start_offset)
            return self._offset_of_last(number, log_start_offset, end_offset)
        if kind is StartKind.LATEST:
            return max(min(self.end_offset, log_end_offset), log_start_offset)
        if kind is StartKind.TIME:
            found = self.partition.find_timestamp(number)
            if found is not None:
                return found.offset
            self._report(
                f"no record is that late. eoctl begins at the log end, offset {log_end_offset}"
            )
            return log_end_offset
        if number > log_end_offset:
            raise UsageError(
                f"{self._path}: the log ends at offset {log_end_offset}, below {number}",
                next_step="--from latest",
            )
        if number < log_start_offset and self.partition.remote_range is None:
            self._report(
                f"the log starts at offset {log_start_offset}. A consumer is given nothing below"
            )
        return max(number, log_start_offset)

    def _offset_of_last(self, count: int, log_start_offset: int, end_offset: int) -> int:
        """Return the offset of the record that is `count` records before an end.

        Raises:
            UsageError: this consumer cannot count records.
        """
        del count, log_start_offset, end_offset
        raise UsageError("--from -N: only eoctl consume counts records", next_step="--from OFFSET")

    def _is_hidden(self, table: HeaderTable) -> NDArray[np.bool_]:
        assert self.view is not None
        return self.view.is_hidden(table)

    # --- records ---

    def records(self) -> Iterator[Given | None]:
        """Yield all records, and None after all present records, before waiting for more.

        Raises:
            DamageError: there is damage, and it is not skipped.
            AccessError: a segment cannot be read.
        """
        reader = self.reader
        assert reader is not None
        if self._is_full():
            return
        if not self._options.follow:
            yield from self._pass(reader)
            if not self._is_full():
                self._read_behind_end(reader)
                reader.finish()
            return
        watch = LogWatch(self.partition)
        reader.remember()
        while True:
            yield from self._pass(reader)
            if self._is_full() or reader.next_offset >= self._options.end.number:
                return
            self._report_gaps()
            yield None
            self._wait(watch, reader)

    def _pass(self, reader: LogWalk[Given]) -> Iterator[Given]:
        """Read once to the present end. Segments may be deleted meanwhile."""
        for attempt in range(RELISTS_MAX):
            try:
                for records in reader.read(self.end_offset):
                    yield self._count(records)
                    if self._is_full():
                        return
            except DamageError as exc:
                # A log truncated and written again meanwhile looks like damage at the old position.
                is_at_place = reader.is_place_of(exc.damage)
                if attempt or not (self._options.follow and is_at_place):
                    raise
                if reader.first_other_offset() is None:
                    reader.seek(reader.next_offset)
                else:
                    self._find_again(reader)
                continue
            except AccessError as exc:
                is_gone = exc.errno == errno.ENOENT and attempt + 1 < RELISTS_MAX
                if not (is_gone and self.partition.refresh()):
                    raise
                self._find_again(reader)
                continue
            self.consumed = self.consumed._replace(next_offset=reader.next_offset)
            return

    def _is_full(self) -> bool:
        """Return whether the maximum number of messages is reached."""
        return False

    @abstractmethod
    def _count(self, given: Given) -> Given:
        """Count the records, and return the wanted part of them."""

    def _read_behind_end(self, reader: LogWalk[Given]) -> None:
        """Report damage at the end of a log that was read to its last stable offset."""
        view, next_offset = self.view, reader.next_offset
        is_to_end = self._options.end.kind in (EndKind.LOG_END, EndKind.LSO)
        if view is not None and is_to_end and view.last_stable_offset == view.log_end_offset:
            for _ in reader.read():  # appended meanwhile
                break
            reader.next_offset = next_offset

    # --- following ---

    def _wait(self, watch: LogWatch, reader: LogWalk[Given]) -> None:
        """Wait for the log to change, and load the change."""
        tail_since_s = time.monotonic()
        while not watch.wait():
            if reader.tail and time.monotonic() - tail_since_s > TAIL_GRACE_S:
                reader.finish()
        self._take_in(watch, reader)

    def _take_in(self, watch: LogWatch, reader: LogWalk[Given]) -> None:
        """List the changed partition again."""
        if self._options.end.kind is EndKind.HW:
            self._high_watermark = Partition.of(select_partition(self._path)).high_watermark
            if self.view is not None:
                self.view.high_watermark = self._high_watermark
        places = [reader.place] + ([] if self.view is None else [self.view.place])
        is_there = watch.refresh(each for each in places if each[0] >= 0)
        if not (is_there and reader.is_last_as_passed()):
            self._find_again(reader)
        elif self.view is not None:
            self.view.update()
        self._report_unknown()

    def _find_again(self, reader: LogWalk[Given]) -> None:
        """Continue at a valid offset. The log was truncated, written again, or lost its start."""
        offset = reader.next_offset
        first_offset = self.partition.local_log_start_offset or 0
        end = self.partition.log_end()
        end_offset = first_offset if end is None else max(end.offset, first_offset)
        other_offset = reader.first_other_offset()
        if other_offset is not None:
            end_offset = min(end_offset, max(other_offset, first_offset))
        if offset > end_offset:
            self._meet_truncation(offset, end_offset)
            offset = end_offset
        elif offset < first_offset:
            self._meet_deletion(offset, first_offset)
            offset = first_offset
        reader.seek(offset)
        if self.view is not None:
            self.view = self._new_view()

    def _meet_truncation(self, offset: int, end_offset: int) -> None:
        """Report that the log was truncated below the position `offset`."""
        self._report(
            f"the log was truncated to offset {end_offset}. eoctl goes on from there. Offsets up to"
            f" {offset - 1} were consumed already and may come again with other records"
        )

    def _meet_deletion(self, offset: int, first_offset: int) -> None:
        """Report that the log now starts above the position `offset`."""
        self._report(f"offsets {offset} to {first_offset - 1} are gone. The log starts there now")


class Consumer(LogConsumer["AnyRecords"]):
    """A consumer of the records of one partition, once."""

    def _new_reader(self, offset: int, is_hidden: IsHidden) -> LogReader:
        return LogReader(
            self.partition,
            offset,
            skip_corrupt=self._options.skip_corrupt,
            is_hidden=is_hidden,
            max_batch_bytes=self._options.max_batch_bytes,
        )

    def _offset_of_last(self, count: int, log_start_offset: int, end_offset: int) -> int:
        """Search backwards until there are enough records.

        Markers and aborted records do not count.
        """
        width = count
        while True:
            first = max(end_offset - width, log_start_offset)
            reader = LogReader(
                self.partition,
                first,
                skip_corrupt=True,
                is_hidden=self._is_hidden if self._is_committed else None,
                max_batch_bytes=self._options.max_batch_bytes,
            )
            found: deque[int] = deque(maxlen=count)
            for each in reader.read(end_offset):
                found.extend(each.lists().offsets)
            if len(found) == count or first == log_start_offset:
                return found[0] if found else end_offset
            width *= 4

    def _is_full(self) -> bool:
        limit = self._options.max_messages
        return limit is not None and self.consumed.records >= limit

    def _count(self, given: AnyRecords) -> AnyRecords:
        """Count records, and return the wanted part of them."""
        before = self.consumed
        if self._options.max_messages is not None:
            given = given.part(0, self._options.max_messages - before.records)
        first = given.first_offset if before.first_offset is None else before.first_offset
        self.consumed = Consumed(
            records=before.records + given.row_count,
            first_offset=first,
            last_offset=given.last_offset,
            next_offset=given.next_offset,
        )
        return given


def require_in_log(consumer: Consumer, offset: int, where: str) -> int:
    """Return a saved offset if it is in the log.

    Raises:
        RefusedError: it is outside of the log.
    """
    log_start_offset = consumer.partition.local_log_start_offset or 0
    log_end_offset = consumer.log_end_offset
    if log_start_offset <= offset <= log_end_offset:
        return offset
    raise RefusedError(
        f"{where}: its next offset is {offset}, and the log holds {log_start_offset} to"
        f" {log_end_offset - 1}. Records between are gone, or it is another log",
        next_step="begin again at --from, with another file or group",
    )


class MergedConsumers:
    """A consumer of several partitions that merges records by their timestamps.

    A partition keeps its order. Of the next record of each partition, the oldest comes first, and
    among equally old records the record of the lower partition.

    Attributes:
        records_count: returned so far.
    """

    def __init__(self, consumers: Sequence[Consumer], max_messages: int | None) -> None:
        """Make a merge. `max_messages` counts all partitions. The consumers have no limit."""
        self._consumers = consumers
        self._limit = max_messages
        self.records_count = 0

    def records(self) -> Iterator[tuple[Consumer, Records]]:
        """Yield all records, each run of one partition with its consumer.

        Raises:
            DamageError, AccessError: as `Consumer.records`.
        """
        if self._limit == 0:
            return
        streams = [iter(each.records()) for each in self._consumers]
        waiting = [self._next_of(each) for each in streams]
        places = [0] * len(waiting)  # the first row of each that was not returned
        heap = [(each.timestamps_ms[0], n) for n, each in enumerate(waiting) if each is not None]
        heapify(heap)
        while heap:
            _, number = heappop(heap)
            records, start = waiting[number], places[number]
            assert records is not None
            end = self._end_of_run(records, start, heap[0] if heap else None, number)
            if self._limit is not None:
                end = min(end, start + self._limit - self.records_count)
            self.records_count += end - start
            yield self._consumers[number], records.part(start, end)
            if self._limit is not None and self.records_count >= self._limit:
                return
            if end == records.row_count:
                waiting[number] = records = self._next_of(streams[number])
                end = 0
            places[number] = end
            if records is not None:
                heappush(heap, (records.timestamps_ms[end], number))

    @staticmethod
    def _next_of(stream: Iterator[AnyRecords | None]) -> Records | None:
        for given in stream:
            if given is not None and given.row_count:
                return given.lists()
        return None

    @staticmethod
    def _end_of_run(
        records: Records, start: int, other: tuple[int, int] | None, number: int
    ) -> int:
        """Return the first row after `start` that comes after a record of another partition."""
        if other is None:
            return records.row_count
        for row in range(start + 1, records.row_count):
            if (records.timestamps_ms[row], number) > other:
                return row
        return records.row_count
