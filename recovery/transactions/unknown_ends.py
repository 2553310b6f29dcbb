"""Decide the outcomes of transactions whose end marker may be damaged or absent.

A transactional batch has the outcome of its producer's next end marker (RC-5). If a stretch of
offsets between the two is in no good batch, it may have had the marker of that transaction. The
next marker may then belong to a later transaction. Only this module decides such cases. All readers
take its `Ends` among their events (`events.EventWalk`).

A stretch matters if it may have had a marker. Damaged batches with whole frames that cannot be
markers by their size or offsets do not matter. Neither do absent offsets in a log that compaction
explains.

The next marker, or the next data, belongs to the same transaction in these cases:
- `.txnindex` entries of other producers explain all missing offsets.
- With transaction version 2, where every transaction has its own epoch (KIP-890), it has that
  epoch.
- It is a COMMIT marker without any data after the stretch, and no data of the producer is missing.
  Either only one offset is missing at all, or its next batch has the next sequence. A COMMIT marker
  always ends data.
- The next ABORT marker has a `.txnindex` entry whose first offset shows it.

The outcome of a transaction that ended in a stretch is known in these cases:
- ABORT: a `.txnindex` entry has its marker in the stretch.
- COMMIT: a `.txnindex` that knew the stretch has no entry.
- Both: the coordinator has the transaction as complete, and no other has its epoch.

A `.txnindex` counts if it is well formed and has all readable ABORT markers of its segment. It knew
damage if it has an entry from the damage on: a rebuild ends at damage. It knew absent offsets if it
has an entry that nobody can derive from the present log. Such an entry has a marker in the stretch,
a first offset after it, or a last stable offset above the transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.transactions.events import Ends, LogEvents
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import read_log_dir
from storage.dirs.offset_ledger import unread
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import TRANSACTION_STATE_TOPIC, DirState
from storage.files.uris import is_uri
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER, UNKNOWN
from storage.formats.record_batch import MAX_SEQUENCE
from storage.formats.transaction_state import TransactionStatus
from storage.formats.txn_index import AbortedTxn, parse_entries, problems
from storage.limits import INT64_MAX
from storage.producers.pairs import NO_DATA, TransactionPairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from recovery.cluster.coordinator_log import IdRecord
    from recovery.transactions.events import EventBlock, Stretch
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.log_dir import LogDir
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.formats.transaction_state import TransactionState
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.producers.pairs import EndedBlock

    Ints = NDArray[np.int64]
    Kinds = NDArray[np.int8]


# -- evidence in `__transaction_state` for transactions whose end marker is damaged or absent.
#
# A coordinator writes Complete... only after all markers are in their logs, so a transaction with
# this record has ended, with a known outcome. Data of a log certainly belong to it if no other
# transaction has their producer id and epoch (KIP-890, transaction version 2). It requires two
# conditions.
#   1  The client wrote it with that version: Ongoing has it, and Complete has a higher epoch.
#   2  The epoch was new when it began: the record before is Empty, or the Complete of such a
#      transaction, with that epoch.
#
# Before that version all transactions of a producer share an epoch, and data cannot be assigned to
# one of them. The version in Complete alone does not count: a coordinator that aborts by itself
# writes its own version. A partition of the topic that was not read whole proves nothing.
# Sources: TransactionMetadata, TransactionCoordinator.


_VERSION_2 = 2
_KINDS = {
    TransactionStatus.COMPLETE_COMMIT: COMMIT,
    TransactionStatus.COMPLETE_ABORT: ABORT,
}


class _Begun(NamedTuple):
    """The newest Ongoing of an id. `is_alone`: no other transaction has its epoch."""

    state: TransactionState
    is_alone: bool


class CoordinatorHistory:
    """The outcomes in the coordinators' logs of a log dir, by producer id and epoch of the data."""

    def __init__(self, log_dir: LogDir) -> None:
        """Read `__transaction_state`, as far as it is in the log dir."""
        from recovery.cluster.coordinator_log import CoordinatorLog

        self._begun: dict[str, _Begun] = {}
        self._new_epochs: dict[str, tuple[int, int]] = {}  # unused by any transaction
        self._kinds: dict[tuple[int, int], int] = {}
        self._log = CoordinatorLog([log_dir], None, self._take)

    def outcome(self, producer_id: int, epoch: int) -> int:
        """Return COMMIT or ABORT for data of an epoch, UNKNOWN without evidence."""
        if not self._log.knows(producer_id):
            return UNKNOWN
        return self._kinds.get((producer_id, epoch), UNKNOWN)

    def _take(self, record: IdRecord) -> None:
        name, state = record.transactional_id, record.state
        status = None if state is None else state.status
        if state is None or status is TransactionStatus.EMPTY:
            self._begun.pop(name, None)
            self._new_epochs.pop(name, None)
            if state is not None:
                self._new_epochs[name] = state.producer_id, state.producer_epoch
        elif status is TransactionStatus.ONGOING:
            self._begin(name, state)
        elif status in _KINDS:
            self._complete(name, state, _KINDS[status])

    def _begin(self, name: str, state: TransactionState) -> None:
        begun, epoch = self._begun.get(name), (state.producer_id, state.producer_epoch)
        is_alone = self._new_epochs.pop(name, None) == epoch
        if begun is not None and _is_same(begun.state, state):
            is_alone = begun.is_alone and begun.state.producer_epoch == state.producer_epoch
        self._begun[name] = _Begun(state, is_alone)

    def _complete(self, name: str, state: TransactionState, kind: int) -> None:
        begun = self._begun.pop(name, None)
        self._new_epochs.pop(name, None)
        if begun is None or not _is_same(begun.state, state):
            return
        before = begun.state
        is_next_id = state.producer_id != before.producer_id  # epochs have run out
        is_raised = state.producer_epoch > before.producer_epoch or is_next_id
        versions = before.client_transaction_version, state.client_transaction_version
        if min(versions) < _VERSION_2 or not is_raised:
            return
        self._new_epochs[name] = state.producer_id, state.producer_epoch
        if begun.is_alone:
            self._kinds[before.producer_id, before.producer_epoch] = kind


def _is_same(one: TransactionState, other: TransactionState) -> bool:
    """Return whether two records are of one transaction: same start, and same producer id."""
    ids = other.producer_id, other.previous_producer_id
    return one.start_timestamp_ms == other.start_timestamp_ms >= 0 and one.producer_id in ids


def history_of(partition: Partition) -> CoordinatorHistory | None:
    """Read the coordinators' logs in a partition's log dir. None if there are none."""
    log_dir = partition.log_dir
    if log_dir is None:
        return None
    from storage.dirs.partition_files import list_partition

    found = log_dir.partitions_of(TRANSACTION_STATE_TOPIC)
    live = [each.path for each in found if each.name.state is DirState.LIVE]
    try:
        sizes = tuple((each, list_partition(each).log_bytes) for each in live)
        return _read(log_dir.path, sizes) if live else None
    except EoctlError:
        return None


@lru_cache(maxsize=8)
def _read(log_dir: str, sizes: tuple[tuple[str, int], ...]) -> CoordinatorHistory:
    """Read the coordinators' logs of these sizes."""
    del sizes
    return CoordinatorHistory(read_log_dir(log_dir))


# -- unknown ends


_CONTINUES = NO_MARKER  # outcome of a piece that the next piece, or the next marker, decides


class LogFiles(NamedTuple):
    """The readable files of a log.

    Attributes:
        bases: base offsets of its segments, ascending.
        opener: opens the segment of a base offset.
        read_index: reads its `.txnindex`. None: it is absent or unreadable.
        log_start_offset: where the log starts.
        gaps_are_losses: returns whether compaction does not explain absent offsets.
        coordinated: returns the coordinators' outcome of data by producer id and epoch: COMMIT,
            ABORT or UNKNOWN.
    """

    bases: tuple[int, ...]
    opener: Callable[[int], Segment]
    read_index: Callable[[int], bytes | None]
    log_start_offset: int
    gaps_are_losses: Callable[[], bool]
    coordinated: Callable[[int, int], int]

    def matter(self, stretches: Sequence[Stretch]) -> list[Stretch]:
        """Leave out absent offsets that compaction may explain."""
        return [each for each in stretches if each.is_damaged or self.gaps_are_losses()]


class UnknownTransaction(NamedTuple):
    """Data of a transaction whose outcome is unknown.

    Attributes:
        producer_epoch: of the data.
        first_offset, last_offset: of its readable batches, before the stretch.
        stretch_offset, stretch_last_offset: where its marker may have been. None: to the log end.
        may_be_open: no later event of the producer shows that it ended.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    batches_count: int
    records_count: int
    stretch_offset: int
    stretch_last_offset: int | None
    may_be_open: bool

    @property
    def reason(self) -> str:
        """Return where its end marker may have been."""
        first, last = self.stretch_offset, self.stretch_last_offset
        where = f"offset {first}" if first == last else f"offsets {first} to {last}"
        if last is None:
            where = f"offset {first} or behind it"
        return f"its end marker may have been at {where}, where the log is damaged or absent"

    def __str__(self) -> str:
        records = counted(self.records_count, "record")
        return (
            f"unknown outcome of a transaction: producer id {self.producer_id}, epoch"
            f" {self.producer_epoch}, offsets {self.first_offset} to {self.last_offset}, {records};"
            f" {self.reason}"
        )


class DecidedData(NamedTuple):
    """Data that the next marker of its producer does not decide.

    Attributes:
        kind: its outcome: COMMIT, ABORT or UNKNOWN.
        marker_kind: of that marker. NO_MARKER: there is none.
        next_offset: of the next data before that marker. -1: there is none.
        may_be_open: as in UnknownTransaction. To a broker it is open.
    """

    producer_id: int
    kind: int
    marker_kind: int
    batches_count: int
    records_count: int
    next_offset: int
    may_be_open: bool


class UnknownEnds(NamedTuple):
    """The results for the stretches of a log: ends for its readers, and unknown outcomes."""

    ends: Ends
    unknown: tuple[UnknownTransaction, ...] = ()
    decided: tuple[DecidedData, ...] = ()

    @property
    def first_open_offset(self) -> int | None:
        """Return the first offset of possibly open data, where consumers stop. None without any."""
        return min((each.first_offset for each in self.unknown if each.may_be_open), default=None)


def log_files_of(partition: Partition) -> LogFiles:
    """Return the files of a partition directory, as listed."""
    files = {each.base_offset: each for each in partition.segments}

    def read_index(base_offset: int) -> bytes | None:
        return partition.read_file(files[base_offset].txn_index)

    history: list[CoordinatorHistory | None] = []

    def coordinated(producer_id: int, epoch: int) -> int:
        if not history:
            history.append(history_of(partition))
        [found] = history
        return UNKNOWN if found is None else found.outcome(producer_id, epoch)

    return LogFiles(
        bases=tuple(files),
        opener=lambda base_offset: partition.segment_at(files[base_offset]),
        read_index=read_index,
        log_start_offset=partition.local_log_start_offset or 0,
        gaps_are_losses=cache(lambda: gaps_are_losses(partition)),
        coordinated=coordinated,
    )


def gaps_are_losses(partition: Partition) -> bool:
    """Return whether nothing explains absent offsets: the topic is known, and never compacted."""
    is_cleaned = bool(partition.acknowledged.cleaned_offset)
    return partition.cleanup().is_compacted is False and not is_cleaned


@lru_cache(maxsize=8)
def log_files_of_places(
    places: tuple[SegmentPlace, ...], opener: Callable[[SegmentPlace], Segment]
) -> LogFiles:
    """Return the files of a log from all its segments. Behind URIs only these are read."""
    by_base = {each.base_offset: each for each in places}
    directory = places[0].directory
    known = None
    if not is_uri(directory):
        with suppress(EoctlError):  # removed meanwhile
            known = log_files_of(Partition.of(select_partition(directory)))
    return LogFiles(
        bases=tuple(sorted(by_base)),
        opener=lambda base_offset: opener(by_base[base_offset]),
        read_index=lambda base_offset: (
            known.read_index(base_offset)
            if known is not None and base_offset in known.bases
            else None
        ),
        log_start_offset=0,
        gaps_are_losses=lambda: known is not None and known.gaps_are_losses(),
        coordinated=lambda *epoch: UNKNOWN if known is None else known.coordinated(*epoch),
    )


@lru_cache(maxsize=8)
def find_ends_of_places(
    places: tuple[SegmentPlace, ...], opener: Callable[[SegmentPlace], Segment]
) -> UnknownEnds:
    """Decide for a log that several readers share. See `find_ends`."""
    return find_ends(log_files_of_places(places, opener))


class EndedTransactions(NamedTuple):
    """Ends of transactions in log order, with the transactions of unknown outcome.

    Attributes:
        spans: the offsets of each segment, by its base offset.
        damaged: offsets in damaged bytes, up to the last good batch.
    """

    blocks: list[EndedBlock]
    unknown: tuple[UnknownTransaction, ...]
    spans: Mapping[int, OffsetSpan]
    damaged: tuple[Missing, ...]


def read_ended(
    partition: Partition, on_bytes: Callable[[int], None] | None = None
) -> EndedTransactions:
    """Return the ends of the transactions of a whole partition, from its log start on.

    A segment that cannot be opened becomes a problem of the partition. `on_bytes` is called with
    the size of each finished segment.
    """
    log = log_files_of(partition)
    sizes = {each.base_offset: each.log.file_bytes for each in partition.segments}

    def one_by_one() -> Iterator[int]:
        for base_offset in log.bases:
            yield base_offset
            if on_bytes is not None:
                on_bytes(sizes[base_offset])

    start = log.log_start_offset
    events = LogEvents(one_by_one(), log.opener, log_start_offset=start, has_spans=True)
    blocks = _ended(events)
    partition.problems += events.problems
    found = UnknownEnds(Ends.none())
    if log.matter(events.stretches):
        found = find_ends(log)
    if len(found.ends.offset):
        blocks = _ended(LogEvents(log.bases, log.opener, log_start_offset=start, ends=found.ends))
    damaged = tuple(unread(each.start_offset, each.end_offset) for each in events.damaged)
    return EndedTransactions(
        blocks=blocks, unknown=found.unknown, spans=events.spans, damaged=damaged
    )


def _ended(events: LogEvents[int]) -> list[EndedBlock]:
    pairs = TransactionPairs()
    found = (pairs.take(*block) for block in events)
    return [each for each in found if len(each.producer_id)]


def find_ends(log: LogFiles) -> UnknownEnds:
    """Decide all transactions with stretches. Reads the headers, twice if there are any."""
    survey = _Survey(log)
    if not survey.spanned:
        return UnknownEnds(Ends.none())
    return _Decisions(log, survey).found()


def spans(stretches: Sequence[Stretch], first_offset: Ints, end_offset: Ints) -> NDArray[np.bool_]:
    """Return which ranges of offsets have a stretch in them."""
    starts = np.array([each.start_offset for each in stretches], np.int64)
    before, behind = (np.searchsorted(starts, each, "right") for each in (first_offset, end_offset))
    found: NDArray[np.bool_] = behind > before
    return found


class _Survey:
    """The results of a first pass over the events.

    Attributes:
        stretches: relevant stretches.
        spanned: by producer id, the first offset of data before a stretch, and the offset of the
            last marker after such data.
        version_2_epochs: by producer id, the lowest epoch whose COMMIT marker has the next epoch.
    """

    def __init__(self, log: LogFiles) -> None:
        self.stretches: list[Stretch] = []
        self.spanned: dict[int, tuple[int, int]] = {}
        self.version_2_epochs: dict[int, int] = {}
        self._aborts: list[tuple[Ints, Ints, Ints]] = []
        pairs = TransactionPairs()
        events = LogEvents(log.bases, log.opener, log_start_offset=log.log_start_offset)
        for table, marker in events:
            self.stretches = log.matter(events.stretches)
            self._find_version_2(table, marker)
            ended = pairs.take(table, marker)
            rows = ended.is_abort
            columns = ended.producer_id[rows], ended.marker_offset[rows], ended.first_offset[rows]
            self._aborts.append(columns)
            has_data = ended.first_offset != NO_DATA
            has_data &= spans(self.stretches, ended.first_offset, ended.marker_offset)
            for row in np.flatnonzero(has_data).tolist():
                first, end = int(ended.first_offset[row]), int(ended.marker_offset[row])
                self._span(int(ended.producer_id[row]), first, end)
        self.stretches = log.matter(events.stretches)
        last = max((each.start_offset for each in self.stretches), default=-1)
        for producer_id, first in pairs.open.items():
            if first < last:
                self._span(producer_id, first, INT64_MAX)

    def _span(self, producer_id: int, first: int, end: int) -> None:
        known = self.spanned.get(producer_id, (first, end))
        self.spanned[producer_id] = min(first, known[0]), max(end, known[1])

    def _find_version_2(self, table: HeaderTable, marker: Kinds) -> None:
        """Find data directly before its COMMIT marker that has the next epoch."""
        order = np.argsort(table.producer_id, kind="stable")
        ids, epochs, kinds = table.producer_id[order], table.producer_epoch[order], marker[order]
        is_pair = (ids[1:] == ids[:-1]) & (kinds[:-1] == NO_MARKER) & (kinds[1:] == COMMIT)
        is_pair &= epochs[1:] == epochs[:-1].astype(np.int64) + 1
        if is_pair.any() and self.stretches:
            offset = table.base_offset[order]
            is_pair &= ~spans(self.stretches, offset[:-1], offset[1:])
        for row in np.flatnonzero(is_pair).tolist():
            self.version_2_epochs.setdefault(int(ids[row]), int(epochs[row]))

    def aborts(self) -> tuple[Ints, Ints, Ints]:
        """Return producer ids, offsets and first offsets of all ABORT markers, by offset."""
        columns = [np.concatenate(each) for each in zip(*self._aborts, strict=True)]
        order = np.argsort(columns[1], kind="stable")
        ids, offsets, firsts = (each[order] for each in columns)
        return ids, offsets, firsts


class _Piece:
    """Data batches of a producer without a stretch or a marker between them."""

    def __init__(self, row: _Row) -> None:
        self.first_offset = self.last_offset = row.base_offset
        self.epoch, self.first_sequence, self.next_sequence = row.epoch, row.sequence, -1
        self.batches = self.records = 0
        self.add(row)

    def add(self, row: _Row) -> None:
        self.last_offset = row.last_offset
        self.epoch = row.epoch
        sequences = row.last_offset - row.base_offset + 1
        self.next_sequence = -1
        if row.sequence >= 0:
            self.next_sequence = (row.sequence + sequences) % (MAX_SEQUENCE + 1)
        self.batches += 1
        self.records += row.records


class _Row(NamedTuple):
    """An event of a producer."""

    kind: int
    base_offset: int
    last_offset: int
    epoch: int
    sequence: int
    records: int


class _Ended(NamedTuple):
    """Pieces before a marker (None without one). The last piece may be directly before it."""

    pieces: list[_Piece]
    marker: _Row | None


class _Decisions:
    """The decisions about each piece, from the events of the producers in question."""

    def __init__(self, log: LogFiles, survey: _Survey) -> None:
        self._log = log
        self._survey = survey
        self._stretches = survey.stretches
        self._starts = [each.start_offset for each in survey.stretches]
        self._index = _AbortIndex(log, survey)
        self._pieces: dict[int, list[_Piece]] = {}
        self._waiting: dict[int, _Ended] = {}  # until the next data of the producer
        self._ends: list[tuple[int, int, int, int]] = []
        self._unknown: list[UnknownTransaction] = []
        self._decided: list[DecidedData] = []

    def found(self) -> UnknownEnds:
        events = LogEvents(
            self._log.bases, self._log.opener, log_start_offset=self._log.log_start_offset
        )
        wanted = np.array(sorted(self._survey.spanned), np.int64)
        lowest = min(first for first, _ in self._survey.spanned.values())
        for block in events:
            self._take(block, wanted, lowest)
        for producer_id, ended in self._waiting.items():
            self._decide(producer_id, ended, None)
        for producer_id, pieces in self._pieces.items():
            self._decide(producer_id, _Ended(pieces, None), None)
        self._ends.sort()
        offset, ids, epoch, kind = np.array(self._ends, np.int64).reshape(-1, 4).T
        ends = Ends(
            producer_id=ids,
            epoch=epoch.astype(np.int16),
            offset=offset,
            kind=kind.astype(np.int8),
        )
        self._unknown.sort(key=lambda each: (each.first_offset, each.producer_id))
        return UnknownEnds(ends, tuple(self._unknown), tuple(self._decided))

    def _take(self, block: EventBlock, wanted: Ints, lowest: int) -> None:
        table, marker = block
        is_wanted = np.isin(table.producer_id, wanted) & (table.base_offset >= lowest)
        rows = np.flatnonzero(is_wanted)
        columns = (
            *(table.producer_id, marker, table.base_offset, table.last_offset),
            *(table.producer_epoch, table.base_sequence, table.records_count),
        )
        for producer_id, *values in zip(*(each[rows].tolist() for each in columns), strict=True):
            first, last = self._survey.spanned[producer_id]
            row = _Row._make(values)
            if row.base_offset < first:
                continue
            if row.kind == NO_MARKER and producer_id in self._waiting:
                self._decide(producer_id, self._waiting.pop(producer_id), row)
            if row.base_offset > last:  # no stretch follows it
                continue
            if row.kind == NO_MARKER:
                self._take_data(producer_id, row)
            else:
                self._take_marker(producer_id, row)

    def _take_data(self, producer_id: int, row: _Row) -> None:
        pieces = self._pieces.setdefault(producer_id, [])
        if pieces and not self._between(pieces[-1].last_offset, row.base_offset):
            pieces[-1].add(row)
        else:
            pieces.append(_Piece(row))

    def _take_marker(self, producer_id: int, row: _Row) -> None:
        pieces = self._pieces.pop(producer_id, [])
        if pieces and self._between(pieces[0].last_offset, row.base_offset):
            waiting = self._waiting.pop(producer_id, None)
            if waiting is not None:
                self._decide(producer_id, waiting, None)
            self._waiting[producer_id] = _Ended(pieces, row)

    def _between(self, first_offset: int, end_offset: int) -> list[Stretch]:
        start = bisect_right(self._starts, first_offset)
        return self._stretches[start : bisect_right(self._starts, end_offset)]

    # --- the decision

    def _decide(self, producer_id: int, ended: _Ended, next_data: _Row | None) -> None:
        """Add the ends of the pieces that a marker does not decide.

        `next_data` is the first data of this producer after the marker. None if unknown.
        """
        group: list[_Piece] = []
        followers: list[_Piece | None] = [*ended.pieces[1:], None]
        for piece, behind in zip(ended.pieces, followers, strict=True):
            group.append(piece)
            end_offset = INT64_MAX
            if behind is not None:
                end_offset = behind.first_offset
            elif ended.marker is not None:
                end_offset = ended.marker.base_offset
            stretches = self._between(piece.last_offset, end_offset)
            relevant = [each for each in stretches if self._index.may_hold(producer_id, each)]
            if not relevant:
                if behind is not None:
                    continue
                return
            if behind is None and ended.marker is not None:
                kind = self._at_marker(producer_id, ended, relevant, next_data)
            else:
                kind = self._at_data(producer_id, ended, piece, behind)
            if kind == UNKNOWN:
                kind = self._by_coordinator(producer_id, group, ended, behind)
            if kind == _CONTINUES:
                continue
            is_ended = self._is_ended(ended, piece, behind)
            self._decided.append(
                DecidedData(
                    producer_id=producer_id,
                    kind=kind,
                    marker_kind=NO_MARKER if ended.marker is None else ended.marker.kind,
                    batches_count=sum(each.batches for each in group),
                    records_count=sum(each.records for each in group),
                    next_offset=-1 if behind is None else behind.first_offset,
                    may_be_open=kind == UNKNOWN and not is_ended,
                )
            )
            self._end(producer_id, group, kind, relevant, is_ended=is_ended)
            group = []

    def _at_marker(
        self, producer_id: int, ended: _Ended, relevant: Sequence[Stretch], next_data: _Row | None
    ) -> int:
        """Decide the last piece, with only stretches before the marker."""
        piece, marker = ended.pieces[-1], ended.marker
        assert marker is not None
        kind = self._index.outcome(producer_id, piece, None, marker, self._between)
        if kind != UNKNOWN:
            return kind
        if self._has_own_epochs(producer_id, ended) and marker.epoch == piece.epoch + 1:
            return _CONTINUES
        if marker.kind == COMMIT and self._log.gaps_are_losses():
            missing = sum(each.end_offset - each.start_offset for each in relevant)
            if missing == 1 or _follows(piece, marker, next_data):
                return _CONTINUES
        return UNKNOWN

    def _at_data(
        self, producer_id: int, ended: _Ended, piece: _Piece, behind: _Piece | None
    ) -> int:
        """Decide a piece before more data, or before the end of the log."""
        kind = self._index.outcome(producer_id, piece, behind, ended.marker, self._between)
        if kind != UNKNOWN or behind is None or behind.epoch != piece.epoch:
            return kind
        return _CONTINUES if self._has_own_epochs(producer_id, ended) else UNKNOWN

    def _by_coordinator(
        self, producer_id: int, group: Sequence[_Piece], ended: _Ended, behind: _Piece | None
    ) -> int:
        """Return the coordinators' outcome of data.

        Later data with the same epoch, and a marker with the next epoch, belong to the same
        transaction.
        """
        epoch = group[0].epoch
        kind = self._log.coordinated(producer_id, epoch)
        if kind == UNKNOWN or any(each.epoch != epoch for each in group):
            return UNKNOWN
        if behind is not None:
            return _CONTINUES if behind.epoch == epoch else kind
        marker = ended.marker
        return _CONTINUES if marker is not None and marker.epoch == epoch + 1 else kind

    def _has_own_epochs(self, producer_id: int, ended: _Ended) -> bool:
        """Return whether a transaction is of version 2, so that no other transaction has its epoch.

        Sequences of such a transaction begin with 0.
        """
        known = self._survey.version_2_epochs.get(producer_id)
        first = ended.pieces[0]
        if known is None or known > first.epoch:
            return False
        return known < first.epoch or first.first_sequence == 0

    @staticmethod
    def _is_ended(ended: _Ended, piece: _Piece, behind: _Piece | None) -> bool:
        """Return whether a transaction has certainly ended: by a later marker or a higher epoch."""
        return ended.marker is not None or (behind is not None and behind.epoch > piece.epoch)

    def _end(
        self,
        producer_id: int,
        group: Sequence[_Piece],
        kind: int,
        relevant: Sequence[Stretch],
        *,
        is_ended: bool,
    ) -> None:
        first, last, stretch = group[0], group[-1], relevant[0]
        self._ends.append((stretch.start_offset, producer_id, last.epoch, kind))
        if kind != UNKNOWN:
            return
        end = relevant[-1].end_offset
        self._unknown.append(
            UnknownTransaction(
                producer_id=producer_id,
                producer_epoch=last.epoch,
                first_offset=first.first_offset,
                last_offset=last.last_offset,
                batches_count=sum(each.batches for each in group),
                records_count=sum(each.records for each in group),
                stretch_offset=stretch.start_offset,
                stretch_last_offset=None if end == INT64_MAX else end - 1,
                may_be_open=not is_ended,
            )
        )


def _follows(piece: _Piece, marker: _Row, next_data: _Row | None) -> bool:
    """Return whether no data of a producer is missing between a piece and the data after a marker.

    Sequences prove this only within one epoch.
    """
    return (
        next_data is not None
        and next_data.epoch == marker.epoch == piece.epoch
        and piece.next_sequence >= 0
        and next_data.sequence == piece.next_sequence
    )


class _AbortIndex:
    """The valid `.txnindex` files of a log."""

    def __init__(self, log: LogFiles, survey: _Survey) -> None:
        self._bases = log.bases
        self._stretches = survey.stretches
        self._entries: dict[int, list[AbortedTxn]] = {}  # by base offset, of the valid files
        self._by_producer: dict[int, list[AbortedTxn]] = {}
        ids, offsets, firsts = survey.aborts()
        for base, behind in pairwise((*log.bases, INT64_MAX)):
            data = log.read_index(base)
            if not data or problems(data, base, None if behind == INT64_MAX else behind):
                continue
            start, end = np.searchsorted(offsets, (base, behind))
            columns = (each[start:end].tolist() for each in (ids, offsets, firsts))
            markers = {(each, offset): first for each, offset, first in zip(*columns, strict=True)}
            entries = parse_entries(data)
            if self._is_complete(entries, markers, log.log_start_offset):
                self._entries[base] = entries
                for each in entries:
                    self._by_producer.setdefault(each.producer_id, []).append(each)

    def _is_complete(
        self,
        entries: Sequence[AbortedTxn],
        markers: dict[tuple[int, int], int],
        log_start_offset: int,
    ) -> bool:
        """Return whether an index has the readable ABORT markers, and others only in stretches.

        `markers`: by producer id and offset, the first offset of the transactions that they end.
        """
        listed = {(each.producer_id, each.last_offset) for each in entries}
        with_data = {place for place, first in markers.items() if first != NO_DATA}
        others = (
            offset for place in listed - markers.keys() if (offset := place[1]) >= log_start_offset
        )
        return with_data <= listed and all(self._stretch_at(each) is not None for each in others)

    def _stretch_at(self, offset: int) -> Stretch | None:
        row = bisect_right(self._stretches, offset, key=lambda each: each.start_offset) - 1
        if row < 0 or offset >= self._stretches[row].end_offset:
            return None
        return self._stretches[row]

    def may_hold(self, producer_id: int, stretch: Stretch) -> bool:
        """Return whether a stretch has room for a marker of a producer."""
        entries = self._within(stretch)
        if any(each.producer_id == producer_id for each in entries):
            return True
        return len(entries) < stretch.end_offset - stretch.start_offset

    def _within(self, stretch: Stretch) -> list[AbortedTxn]:
        """Return the entries whose markers are in a stretch."""
        entries = self._of_segment(stretch)
        if entries is None:
            return []
        start = bisect_left(entries, stretch.start_offset, key=lambda each: each.last_offset)
        end = bisect_left(entries, stretch.end_offset, key=lambda each: each.last_offset)
        return entries[start:end]

    def _of_segment(self, stretch: Stretch) -> list[AbortedTxn] | None:
        """Return the valid index entries of the only segment with the stretch, None otherwise."""
        row = bisect_right(self._bases, stretch.start_offset) - 1
        if row < 0 or (row + 1 < len(self._bases) and self._bases[row + 1] < stretch.end_offset):
            return None
        return self._entries.get(self._bases[row])

    def outcome(
        self,
        producer_id: int,
        piece: _Piece,
        behind: _Piece | None,
        marker: _Row | None,
        between: Callable[[int, int], list[Stretch]],
    ) -> int:
        """Return the outcome of a piece, by the next listed abort of its producer."""
        listed = self._by_producer.get(producer_id, [])
        at = bisect_right(listed, piece.last_offset, key=lambda each: each.last_offset)
        entry = listed[at] if at < len(listed) else None
        if entry is not None and entry.first_offset <= piece.last_offset:
            if entry.first_offset > piece.first_offset:
                return UNKNOWN  # it contradicts the log
            if self._stretch_at(entry.last_offset) is not None:
                return ABORT
            stretches = between(piece.last_offset, entry.last_offset)
            is_known = all(each.is_damaged or self._knew(each, piece, marker) for each in stretches)
            is_its = marker is not None and marker.base_offset == entry.last_offset
            return _CONTINUES if is_known and is_its else UNKNOWN
        end_offset = INT64_MAX if marker is None else marker.base_offset
        is_ended = marker is not None and marker.kind == COMMIT
        if entry is not None and entry.first_offset < end_offset:
            end_offset, is_ended = entry.first_offset, True
        if not is_ended and not (behind is not None and behind.epoch > piece.epoch):
            return UNKNOWN
        stretches = between(piece.last_offset, end_offset)
        if all(self._knew(each, piece, marker, entry) for each in stretches):
            return COMMIT
        return UNKNOWN

    def _knew(
        self,
        stretch: Stretch,
        piece: _Piece,
        marker: _Row | None,
        entry: AbortedTxn | None = None,
    ) -> bool:
        """Return whether the index was written with knowledge of the contents of a stretch."""
        entries = self._of_segment(stretch)
        if not entries:
            return False
        if self._within(stretch):
            return True
        later = [each for each in entries if each.last_offset >= stretch.end_offset]
        if stretch.is_damaged:
            return bool(later)
        marker_offset = INT64_MAX if marker is None else marker.base_offset
        return any(
            each is entry
            or (each.last_offset < marker_offset and each.last_stable_offset > piece.first_offset)
            for each in later
        )
