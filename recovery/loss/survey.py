"""A survey of lost, duplicate and aborted records: offsets, times, producers and keys.

Losses are the same as in the list of an export: the same pieces, the same reader, and nothing below
the checkpointed log start. Aborted transactions have an abort marker. Duplicates come from the
search of `duplicates`.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.changes.journals.losses import journal_losses
from recovery.duplicates.groups import RecordFinder
from recovery.duplicates.search import DuplicateOptions, DuplicateSearch
from recovery.duplicates.spill import DuplicateKind
from recovery.export.lost import lost_absent, lost_of_directory, lost_offsets_count, lost_unlisted
from recovery.export.plan import ExportOptions, plan_export
from recovery.loss.content_rows import ContentBuilder
from recovery.loss.rows import LossKind, LossRow, LossSummary, shown
from recovery.records.piece_reader import PieceReader
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.segment import read_split
from recovery.summaries.sequence_ranges import HALF_LAP, LAP
from recovery.transactions.events import LogEvents
from recovery.transactions.unknown_ends import find_ends_of_places, log_files_of_places
from storage.counts import agreeing, counted
from storage.dirs.discovery import discover, select_partition
from storage.dirs.lookup import END_KINDS, is_wrong_end
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.partition import Partition, cleanup_of
from storage.errors import AccessError, EoctlError, FormatError
from storage.files.uris import is_uri
from storage.formats.control_record import ABORT
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment
from storage.places.list_places import open_place
from storage.producers.pairs import NO_DATA, TransactionPairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from recovery.changes.journals.losses import JournalLoss
    from recovery.duplicates.spill import Duplicate, SpillSpace
    from recovery.export.lost import LostRange
    from recovery.export.plan import ExportPiece, ExportPlan
    from recovery.loss.content_rows import ContentRows
    from recovery.records.read_options import ReadCounts
    from recovery.summaries.summary import Gaps
    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.dirs.offset_ledger import Gap, OffsetSpan
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.places.listing import DirectoryPlace, SegmentPlace
    from storage.places.log_reader import ReadFinding


# -- the aborted transactions of a partition: their markers, and the records on disk


class Aborted(NamedTuple):
    """An aborted transaction and its records. `marker_offset` is the offset of its marker."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    records_count: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    first_key: bytes | None
    last_key: bytes | None
    marker_offset: int


def _abort_markers(
    events: LogEvents[SegmentPlace], log_start_offset: int
) -> dict[int, NDArray[np.int64]]:
    """Return the marker offsets of aborted transactions, by producer id."""
    markers: dict[int, list[int]] = {}
    pairs = TransactionPairs()
    for table, marker in events:
        ended = pairs.take(table, marker)
        is_there = ended.is_abort & (ended.first_offset != NO_DATA)
        is_there &= ended.marker_offset >= log_start_offset
        for row in np.flatnonzero(is_there).tolist():
            offset = int(ended.marker_offset[row])
            markers.setdefault(int(ended.producer_id[row]), []).append(offset)
    return {each: np.array(offsets) for each, offsets in markers.items()}


class AbortedTransactions:
    """A grouping of records into transactions. The records must come in log order.

    Each abort marker takes eight bytes of memory.

    Attributes:
        unknown: transactions of unknown outcome.
    """

    def __init__(self, places: Iterable[SegmentPlace], log_start_offset: int) -> None:
        """Read the markers: the headers of all segments.

        Segments that cannot be opened are skipped. The reader of their records reports them.
        """
        listed = tuple(places)
        events = LogEvents(listed, open_place)
        self._markers = _abort_markers(events, log_start_offset)
        self.unknown: tuple[UnknownTransaction, ...] = ()
        if events.stretches and log_files_of_places(listed, open_place).matter(events.stretches):
            found = find_ends_of_places(listed, open_place)
            self.unknown = found.unknown
            events = LogEvents(listed, open_place, ends=found.ends)
            self._markers = _abort_markers(events, log_start_offset)
        self._found: dict[tuple[int, int], Aborted] = {}

    def take(self, rows: ContentRows) -> Iterator[Aborted]:
        """Take the next records. Yield the transactions whose marker is before them."""
        if rows.num_rows and self._found:
            yield from self._ended_before(int(rows.offset[0]))
        at = np.flatnonzero(rows.outcome == ABORT)
        if not len(at):
            return
        marker = np.full(len(at), -1, np.int64)
        for producer_id in np.unique(rows.producer_id[at]).tolist():
            own = rows.producer_id[at] == producer_id
            known = self._markers.get(producer_id)
            if known is not None:
                place = np.searchsorted(known, rows.offset[at][own], "right")
                marker[own] = np.where(
                    place < len(known), known[np.minimum(place, len(known) - 1)], -1
                )
        order = np.lexsort((np.arange(len(at)), marker, rows.producer_id[at]))
        at, marker = at[order], marker[order]
        ids = rows.producer_id[at]
        is_first = np.r_[True, (ids[1:] != ids[:-1]) | (marker[1:] != marker[:-1])]
        starts = np.flatnonzero(is_first)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
            self._add(rows, at[start:end].tolist(), int(marker[start]))

    def finish(self) -> Iterator[Aborted]:
        """Yield the remaining transactions."""
        yield from self._ended_before(None)

    def _add(self, rows: ContentRows, at: list[int], marker_offset: int) -> None:
        first, last = at[0], at[-1]
        name = int(rows.producer_id[first]), marker_offset
        times = rows.timestamp_ms[at]
        known = self._found.get(name)
        if known is None:
            known = Aborted(
                producer_id=name[0],
                producer_epoch=int(rows.producer_epoch[first]),
                base_offset=int(rows.offset[first]),
                last_offset=0,
                records_count=0,
                first_timestamp_ms=int(times.min()),
                last_timestamp_ms=int(times.max()),
                first_key=shown(rows.key(first)),
                last_key=None,
                marker_offset=marker_offset,
            )
        self._found[name] = known._replace(
            last_offset=int(rows.offset[last]),
            records_count=known.records_count + len(at),
            first_timestamp_ms=min(known.first_timestamp_ms, int(times.min())),
            last_timestamp_ms=max(known.last_timestamp_ms, int(times.max())),
            last_key=shown(rows.key(last)),
        )

    def _ended_before(self, offset: int | None) -> Iterator[Aborted]:
        done = [
            name
            for name, each in self._found.items()
            if offset is None or 0 <= each.marker_offset < offset
        ]
        for name in sorted(done, key=lambda each: self._found[each].base_offset):
            yield self._found.pop(name)


# -- known facts about lost records: their times, producers and keys
#
# The records around a loss bound its time. Damaged bytes have a producer and keys as far as they
# still decode. These are unconfirmed, because the checksum is wrong.


MAX_BATCHES = 1000  # of one damaged stretch, at most


class Trace(NamedTuple):
    """The known facts about a lost range. None if unknown."""

    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    first_key: bytes | None = None
    last_key: bytes | None = None


class Traces:
    """The traces of the losses of one directory."""

    def __init__(self, directory: str) -> None:
        self._partition: Partition | None = None
        if not is_uri(directory):
            try:
                self._partition = Partition.of(select_partition(directory))
            except EoctlError:  # absent: the listing has reported it
                self._partition = None

    def of(self, lost: LostRange) -> Trace:
        """Return the known facts about a loss."""
        first_ms = last_ms = None
        if lost.base_offset is not None and lost.base_offset > 0:
            first_ms = self._time_at(lost.base_offset - 1, is_before=True)
        if lost.last_offset is not None:
            last_ms = self._time_at(lost.last_offset + 1, is_before=False)
        trace = Trace(first_timestamp_ms=first_ms, last_timestamp_ms=last_ms)
        if self._partition is None or lost.start_pos is None or lost.end_pos is None:
            return trace
        try:
            with open_segment(lost.path) as segment:
                return _with_content(trace, segment, lost)
        except EoctlError:
            return trace

    def _time_at(self, offset: int, *, is_before: bool) -> int | None:
        if self._partition is None:
            return None
        try:
            place = self._partition.find_offset(offset)
        except EoctlError:
            return None
        if place is None or place.batch.crc_ok is not True:
            return None
        header = place.batch.header
        if is_before:
            found = header.max_timestamp_ms if header.base_offset <= offset else -1
        else:
            is_first = header.magic >= MAGIC_V2 and header.delete_horizon_ms is None
            found = header.base_timestamp_ms if is_first else header.max_timestamp_ms
        return found if found >= 0 else None


def _with_content(trace: Trace, segment: Segment, lost: LostRange) -> Trace:
    """Add the contents of damaged batches whose frames are in the range."""
    scan = segment.scan(start_pos=lost.start_pos or 0, end_pos=lost.end_pos, is_active=False)
    sessions: set[tuple[int, int]] = set()
    keys: list[bytes | None] = []
    for batch in islice(scan, MAX_BATCHES):
        header = batch.header
        low, high = lost.base_offset or 0, lost.last_offset
        if header.base_offset < low or (high is not None and header.last_offset > high):
            continue
        if header.magic >= MAGIC_V2:
            sessions.add((header.producer_id, header.producer_epoch))
        found = _keys_of(segment, batch)
        if found:
            keys = [*(keys[:1] or found[:1]), found[-1]]
    producer = sessions.pop() if len(sessions) == 1 else (None, None)
    return trace._replace(
        producer_id=producer[0],
        producer_epoch=producer[1],
        first_key=shown(keys[0]) if keys else None,
        last_key=shown(keys[-1]) if keys else None,
    )


def _keys_of(segment: Segment, batch: ScannedBatch) -> list[bytes | None]:
    """Return the first and the last key that decode."""
    first: bytes | None = None
    last: bytes | None = None
    is_found = False
    try:
        for record in segment.records(batch):
            if not is_found:
                first, is_found = record.key, True
            last = record.key
    except EoctlError:
        pass
    return [first, last] if is_found else []


# -- survey


PROVED = DuplicateOptions(kinds=frozenset({DuplicateKind.PROVED}))
# Only these fields of records are read, so no decoder of columns is necessary.
OPTIONS = ExportOptions(to="", columns=("offset", "key"))


class SurveyedPiece(NamedTuple):
    """The facts about a piece that was read. See `recovery.export.lost.PieceRead`."""

    piece: ExportPiece
    findings: tuple[ReadFinding, ...]
    span: OffsetSpan


class LossSurvey:
    """One survey. Iterate over `rows`, then read the attributes.

    Attributes:
        summaries: a row per partition directory.
        lost: all losses, as an export lists them.
        by_changes: records that applied changes of eoctl removed, from their journals.
        notes: sentences for people.
        is_lost: something acknowledged or on disk is gone or damaged, even if only the frame of a
            batch, or sequences of a producer are missing.
        is_short: a part could not be read or judged.
        suspected_records: records that no batch has, by the sequences of their producers.
        total_bytes: to read before the first rows.
    """

    def __init__(
        self, paths: Sequence[str], space: SpillSpace, *, on_bytes: Callable[[int], object] = int
    ) -> None:
        """List the pieces to read. Raises the errors of `plan_export`."""
        self._plan: ExportPlan = plan_export(paths, OPTIONS)
        self._paths = paths
        self._space = space
        self._on_bytes = on_bytes
        self.summaries: list[LossSummary] = []
        self.lost: list[LostRange] = []
        self.by_changes: list[JournalLoss] = []
        local = [each.directory for each in self._plan.directories if not is_uri(each.directory)]
        parents = {os.path.dirname(os.path.realpath(each)) for each in local}  # noqa: PTH120
        self._changes = [*journal_losses(sorted(parents))]
        self.notes: list[str] = [*map(str, self._plan.problems), *self._plan.notes]
        self.is_lost = False
        self.suspected_records = 0
        self.is_short = bool(self._plan.doubts)
        self.is_short |= any(isinstance(each, FormatError) for each in self._plan.problems)
        self.total_bytes = sum(
            each.split.end_pos - each.split.start_pos for each in self._plan.pieces
        )

    def rows(self) -> Iterator[LossRow]:
        """Yield the losses, partition by partition. Duplicates come last.

        Raises:
            AccessError: temporary files cannot be written.
        """
        pieces: dict[str, list[ExportPiece]] = {}
        for each in self._plan.pieces:
            pieces.setdefault(each.split.place.directory, []).append(each)
        yield from self._around(lost_unlisted(self._plan))
        for directory in self._plan.directories:
            yield from self._directory(directory, pieces.get(directory.directory, []))
        yield from self._around(lost_absent(self._plan))
        yield from self._by_changes()
        yield from self._duplicates()

    # --- lost and aborted ---

    def _directory(
        self, directory: DirectoryPlace, pieces: Sequence[ExportPiece]
    ) -> Iterator[LossRow]:
        path = directory.directory
        low = self._low(path)
        places = list({each.split.place.path: each.split.place for each in pieces}.values())
        aborted = AbortedTransactions(places, low)
        counted = _Counted()
        results = []
        for piece in pieces:
            reader = PieceReader(piece.split, piece.read_options(OPTIONS), ContentBuilder())
            for rows in reader:
                for each in aborted.take(rows):
                    yield counted.aborted(_of_aborted(directory, each))
            counted.add(reader.counts)
            results.append(
                SurveyedPiece(
                    piece=piece,
                    findings=tuple(reader.findings),
                    span=reader.span,
                )
            )
            self._on_bytes(piece.split.end_pos - piece.split.start_pos)
        for each in aborted.finish():
            yield counted.aborted(_of_aborted(directory, each))
        self.is_lost |= bool(aborted.unknown)
        yield from (_of_unknown(directory, each) for each in aborted.unknown)
        lost = lost_of_directory(self._plan, directory, results)
        lost = [each for each in lost if not self._is_of_change(path, each)]
        self._judge_ends(path, results)
        traces = Traces(path) if lost else None
        for found in lost:
            trace = Trace() if traces is None else traces.of(found)
            yield self._of_lost(found, trace)
        if not lost:
            yield from self._suspected(directory, pieces)
        ends = [each.span.end_offset for each in results if each.span.end_offset is not None]
        unknown = any(each.missing_offsets is None for each in lost)
        self.summaries.append(
            LossSummary(
                topic=directory.topic,
                partition=directory.partition if directory.partition >= 0 else None,
                lost_offsets=None if unknown else lost_offsets_count(lost),
                lost_ranges=len(lost),
                aborted_transactions=counted.aborted_transactions,
                aborted_records=counted.aborted_records,
                duplicate_records=0,
                open_records=counted.open_records,
                unknown_records=counted.unknown_records,
                records=counted.records,
                log_start_offset=low,
                log_end_offset=max(ends, default=None),
                path=path,
            )
        )

    def _suspected(
        self, directory: DirectoryPlace, pieces: Sequence[ExportPiece]
    ) -> Iterator[LossRow]:
        """Yield the sequences that no batch has, though no offset is missing.

        Either a broker accepted and then lost them with their offsets, or they never arrived
        (KAFKA-15591). In a compacted log, the cleaner may have removed their batches.
        """
        known = self._plan.known_of(directory.directory)
        is_plain = all(each.split.place.has_sequences for each in pieces)
        if not pieces or not is_plain or known.cleaned_offset:
            return
        found = join_partition(ReadPiece(each.split, read_split(each.split)) for each in pieces)
        is_from_start = known.bases[:1] == (0,) and not known.log_start_offset
        gaps = found.summary.gaps(is_from_start=is_from_start)
        # One log never lost this many: the producer began there near the end of the sequence range.
        rows = [row for row, count in enumerate(gaps.missing_count.tolist()) if count < HALF_LAP]
        between = [*zip(gaps.before_offset.tolist(), gaps.next_offset.tolist(), strict=True)]
        removed = self._removed_from(directory.directory, found.span.gaps)
        rows = [row for row in rows if not _is_within(removed, between[row])]
        if not rows or cleanup_of(directory.directory).is_compacted:
            return
        self.is_lost = True
        for row in rows:
            self.suspected_records += int(gaps.missing_count[row])
            yield _of_sequences(directory, gaps, row)

    def _low(self, directory: str) -> int:
        known = self._plan.known_of(directory)
        return known.log_start_offset or 0

    def _judge_ends(self, path: str, results: Sequence[SurveyedPiece]) -> None:
        """Note problems that cost no record, but make the log unreliable.

        Examples are a torn end of a closed log, and a batch with only a wrong frame.
        """
        stopped = self._plan.known_of(path).stopped
        for each in (found for result in results for found in result.findings):
            if is_wrong_end(each.kind, stopped):
                self.is_short = True
                self.notes.append(each.reported)
            elif each.is_gone:
                self.notes.append(str(each))
            elif not each.is_lost and each.kind not in END_KINDS:
                self.is_lost = True
                self.notes.append(f"{each.reported}; its records are there")

    def _around(self, lost: Sequence[LostRange]) -> Iterator[LossRow]:
        """Yield losses that belong to no directory that was read."""
        for each in lost:
            yield self._of_lost(each, Trace())
            if each.topic:
                self.summaries.append(
                    LossSummary(
                        topic=each.topic,
                        partition=each.partition,
                        lost_offsets=each.missing_offsets,
                        lost_ranges=1,
                        aborted_transactions=0,
                        aborted_records=0,
                        duplicate_records=None,
                        open_records=0,
                        unknown_records=0,
                        records=0,
                        log_start_offset=each.base_offset,
                        log_end_offset=None,
                        path=each.path,
                    )
                )

    def _of_lost(self, lost: LostRange, trace: Trace) -> LossRow:
        self.lost.append(lost)
        if lost.kind == VerdictKind.UNREADABLE:
            self.is_short = True
        else:
            self.is_lost = True
        claims = [each.end_offset for each in self._plan.known_of(lost.path).claims]
        claims += self._claims_of(lost)
        is_below = lost.base_offset is not None and lost.base_offset < max(claims, default=0)
        return LossRow(
            kind=LossKind.LOST,
            topic=lost.topic or None,
            partition=lost.partition if lost.topic and lost.partition >= 0 else None,
            base_offset=lost.base_offset,
            last_offset=lost.last_offset,
            offsets_count=lost.missing_offsets,
            records_count=None,
            is_acknowledged=True if is_below or lost.kind == VerdictKind.MISSING else None,
            reason=lost.reason,
            check_id=lost.check_id,
            start_pos=lost.start_pos,
            end_pos=lost.end_pos,
            path=lost.path,
            **trace._asdict(),
        )

    def _claims_of(self, lost: LostRange) -> list[int]:
        directory = os.path.dirname(lost.path)  # noqa: PTH120 - it may be a URI
        return [each.end_offset for each in self._plan.known_of(directory).claims]

    # --- applied changes ---

    def _is_of_change(self, directory: str, lost: LostRange) -> bool:
        """Return whether a change of eoctl caused a gap, which is then reported once."""
        first, last = lost.base_offset, lost.last_offset
        if lost.check_id != GAP_CHECK_ID or first is None or last is None:
            return False
        return any(each.explains(first, last) for each in self._changes_of(directory))

    def _removed_from(self, directory: str, absent: Sequence[Gap]) -> list[Gap]:
        """Return absent ranges that changes of eoctl removed. They are reported once."""
        found = []
        for first, last in (each for one in self._changes_of(directory) for each in one.ranges):
            for begin, end in absent:
                low, high = max(first, begin), end if last is None else min(last, end)
                if low <= high:
                    found.append((low, high))
        return found

    def _changes_of(self, directory: str) -> list[JournalLoss]:
        path = os.path.realpath(directory)
        return [each for each in self._changes if os.path.realpath(each.directory) == path]

    def _by_changes(self) -> Iterator[LossRow]:
        """Yield losses from the journals next to the log dirs. The logs do not show them."""
        known = {
            os.path.realpath(each.directory): each
            for each in self._plan.directories
            if not is_uri(each.directory)
        }
        for found in self._changes:
            directory = known.get(os.path.realpath(found.directory))
            if directory is None:
                continue
            self.by_changes.append(found)
            self.is_lost = True
            yield _of_journal(directory, found)

    # --- duplicates ---

    def _duplicates(self) -> Iterator[LossRow]:
        local = [each.directory for each in self._plan.directories if not is_uri(each.directory)]
        remote_count = len(self._plan.directories) - len(local)
        if remote_count:
            self.notes.append(
                f"{counted(remote_count, 'partition')} behind URIs"
                f" {agreeing(remote_count, 'was', 'were')} not searched for repeats"
            )
        if not local:
            return
        try:
            selected = discover(local).selected
        except AccessError as exc:  # removed meanwhile
            self.notes.append(str(exc))
            self.is_short = True
            return
        search = DuplicateSearch(selected, PROVED, self._space)
        finder = RecordFinder()
        counts: dict[str, int | None] = {}
        for each in search.duplicates():
            directory = os.path.dirname(each.path)  # noqa: PTH120 - called for each row
            if each.repeat_last_offset < self._low(directory):
                continue
            known = counts.get(directory, 0)
            is_known = known is not None and each.records_count is not None
            counts[directory] = (known or 0) + (each.records_count or 0) if is_known else None
            yield _of_duplicate(each, finder)
        self.summaries = [
            each._replace(duplicate_records=counts.get(each.path, each.duplicate_records))
            for each in self.summaries
        ]
        # The losses include what the search could not read. Without losses, the search is
        # incomplete.
        self.is_short |= search.is_skipped and not self.lost


class _Counted:
    """Counts of one directory."""

    def __init__(self) -> None:
        self.records = self.open_records = self.unknown_records = 0
        self.aborted_transactions = self.aborted_records = 0

    def add(self, counts: ReadCounts) -> None:
        self.records += counts.records
        self.open_records += counts.open
        self.unknown_records += counts.unknown

    def aborted(self, row: LossRow) -> LossRow:
        self.aborted_transactions += 1
        self.aborted_records += row.records_count or 0
        return row


def _of_journal(directory: DirectoryPlace, found: JournalLoss) -> LossRow:
    lost = found.lost
    return LossRow(
        kind=LossKind.LOST,
        topic=directory.topic,
        partition=directory.partition if directory.partition >= 0 else None,
        base_offset=found.base_offset,
        last_offset=found.last_offset,
        offsets_count=None if lost.is_least else lost.offsets_count,
        records_count=lost.records_count,
        first_timestamp_ms=None,
        last_timestamp_ms=None,
        producer_id=None,
        producer_epoch=None,
        first_key=None,
        last_key=None,
        is_acknowledged=lost.is_acknowledged,
        reason=found.reported,
        check_id="JNL-3",
        start_pos=None,
        end_pos=None,
        path=found.journal,
    )


def _of_aborted(directory: DirectoryPlace, found: Aborted) -> LossRow:
    marker = found.marker_offset
    return LossRow(
        kind=LossKind.ABORTED,
        topic=directory.topic,
        partition=directory.partition if directory.partition >= 0 else None,
        base_offset=found.base_offset,
        last_offset=found.last_offset,
        offsets_count=None,
        records_count=found.records_count,
        first_timestamp_ms=found.first_timestamp_ms,
        last_timestamp_ms=found.last_timestamp_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        first_key=found.first_key,
        last_key=found.last_key,
        is_acknowledged=None,
        reason=f"abort marker at offset {marker}" if marker >= 0 else "its marker was not read",
        check_id="",
        start_pos=None,
        end_pos=None,
        path=directory.directory,
    )


def _is_within(ranges: Sequence[Gap], between: tuple[int, int]) -> bool:
    """Return whether a range has an offset between two offsets."""
    low, high = between
    return any(first < high and last > low for first, last in ranges)


def _of_sequences(directory: DirectoryPlace, gaps: Gaps, row: int) -> LossRow:
    count, first = int(gaps.missing_count[row]), int(gaps.first_sequence[row])
    last = (first + count - 1) % LAP
    next_offset = int(gaps.next_offset[row])
    before = f"before offset {next_offset}" if next_offset >= 0 else "before a later lap"
    return LossRow(
        kind=LossKind.SUSPECTED,
        topic=directory.topic,
        partition=directory.partition if directory.partition >= 0 else None,
        base_offset=next_offset if next_offset >= 0 else None,
        last_offset=None,
        offsets_count=None,
        records_count=count,
        first_timestamp_ms=None,
        last_timestamp_ms=None,
        producer_id=int(gaps.producer_id[row]),
        producer_epoch=int(gaps.producer_epoch[row]),
        first_key=None,
        last_key=None,
        is_acknowledged=None,
        reason=f"no batch has sequences {first} to {last} of the producer, {before}",
        check_id="PRD-1",
        start_pos=None,
        end_pos=None,
        path=directory.directory,
    )


def _of_unknown(directory: DirectoryPlace, found: UnknownTransaction) -> LossRow:
    return LossRow(
        kind=LossKind.UNKNOWN,
        topic=directory.topic,
        partition=directory.partition if directory.partition >= 0 else None,
        base_offset=found.first_offset,
        last_offset=found.last_offset,
        offsets_count=None,
        records_count=found.records_count,
        first_timestamp_ms=None,
        last_timestamp_ms=None,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        first_key=None,
        last_key=None,
        is_acknowledged=None,
        reason=found.reason,
        check_id="",
        start_pos=None,
        end_pos=None,
        path=directory.directory,
    )


def _of_duplicate(found: Duplicate, finder: RecordFinder) -> LossRow:
    first = finder.at(found.path, found.repeat_base_offset)
    last = finder.at(found.path, found.repeat_last_offset)
    return LossRow(
        kind=LossKind.DUPLICATE,
        topic=found.topic,
        partition=found.partition,
        base_offset=found.repeat_base_offset,
        last_offset=found.repeat_last_offset,
        offsets_count=None,
        records_count=found.records_count,
        first_timestamp_ms=None if first is None else first.timestamp_ms,
        last_timestamp_ms=found.repeat_timestamp_ms,
        producer_id=found.repeat_producer_id,
        producer_epoch=found.repeat_producer_epoch,
        first_key=None if first is None else shown(first.key),
        last_key=None if last is None else shown(last.key),
        is_acknowledged=None,
        reason=f"repeats offsets {found.first_base_offset} to {found.first_last_offset}",
        check_id="",
        start_pos=None,
        end_pos=None,
        path=found.path,
    )
