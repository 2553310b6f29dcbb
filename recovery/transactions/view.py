"""The transactions of one partition as its log grows: open and aborted transactions.

A consumer gets batches below the last stable offset, and a list of aborted transactions (producer
id, first offset). It hides the batches of a producer from such a first offset on, until the
producer's ABORT marker (RC-4). The list here has one of two sources:

    the log         recomputed from the end markers (RC-5): right even if the indexes are not
    the .txnindex   the list that a broker would send (RC-2, RC-3), right or wrong

Both become ranges [first offset, ABORT marker) of a producer. The markers always come from the log:
a consumer ends a range at the marker, even if the index disagrees.

If the log is damaged or absent, `unknown_ends` decides the markers that were there. Transactions of
unknown outcome are hidden, and listed in `unknown`.

`update` walks only new headers. After damage, a new marker may show more outcomes, or make more of
them unknown. Then the whole log is walked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.recover_state import forgotten_transactions
from recovery.transactions.events import Continuation, Ends, EventWalk
from recovery.transactions.isolation import AbortedSource
from recovery.transactions.outcomes import NextOfProducer
from recovery.transactions.unknown_ends import UnknownEnds, find_ends, log_files_of, spans
from storage.errors import AccessError
from storage.formats.control_record import NO_MARKER
from storage.limits import INT64_MAX
from storage.producers.pairs import NO_DATA, TransactionPairs
from storage.producers.transactions import OpenTransaction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.transactions.events import Stretch
    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.txn_index import AbortedTxn
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Kinds = NDArray[np.int8]


class ProducerRanges:
    """Ranges [first_offset, end_offset) of producers, in the order of their ends."""

    def __init__(self, producer_id: Ints, first_offset: Ints, end_offset: Ints) -> None:
        self.producer_id, self.first_offset, self.end_offset = producer_id, first_offset, end_offset
        self._next = NextOfProducer(producer_id, end_offset)

    def hold(self, table: HeaderTable) -> Flags:
        """Return which batches are in a range of their producer."""
        at = self._next.rows(table.producer_id, table.base_offset)
        if not len(self.end_offset):
            return at >= 0
        return (at >= 0) & (self.first_offset[at] <= table.last_offset)


class IndexGap(NamedTuple):
    """Aborted transactions that the `.txnindex` files do not have."""

    missing_count: int
    producer_id: int  # of the first
    first_offset: int


class TransactionView:
    """The known transactions of a partition up to `log_end_offset`.

    Attributes:
        log_end_offset: one above the last good batch read.
        problems: segments that could not be opened.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        high_watermark: int | None = None,
        source: AbortedSource = AbortedSource.LOG,
    ) -> None:
        """`high_watermark` None: the end of the log (as in `outcomes.find_stability`)."""
        self._partition = partition
        self._source = source
        self.high_watermark = high_watermark
        self.log_start_offset = partition.local_log_start_offset or 0
        self._found = UnknownEnds(Ends.none())
        self._begin()

    def _begin(self) -> None:
        """Forget all data of the log."""
        self.log_end_offset = self.log_start_offset
        self.problems: list[AccessError] = []
        self._known_offset = -1  # lower events were taken
        self._base_offset = -1  # of the segment to continue in, and the position
        self._pos = 0
        self._behind = Continuation()
        self._stretches: list[Stretch] = []
        self._is_spanning = False  # an event may reveal more about an end in a stretch
        self._decided_open: set[tuple[int, int]] = set()  # open data at the last decision
        self._pairs = TransactionPairs()
        self._unreplicated: list[tuple[int, int]] = []  # marker and first offset
        self._hidden: list[tuple[Ints, Ints, Ints]] = []  # with data: producer, first, end
        self._aborted: list[tuple[Ints, Ints, Ints]] = []  # transactions with a marker
        self._markers: list[tuple[Ints, Ints]] = []  # ABORT markers: producer, offset
        self._ranges: ProducerRanges | None = None
        self._columns: tuple[Ints, ...] | None = None
        self._forgotten: frozenset[int] = frozenset()

    # --- reading ---

    def update(self) -> None:
        """Read the batches appended since the last update, as the partition is listed now."""
        self._walk_on()
        spanning = self._open_before_stretches()
        if not self._is_spanning and spanning == self._decided_open:
            return
        found = find_ends(log_files_of(self._partition))
        before = self._found.ends
        is_other = not np.array_equal(found.ends.offset, before.offset)
        is_other |= not np.array_equal(found.ends.producer_id, before.producer_id)
        is_other |= not np.array_equal(found.ends.kind, before.kind)
        self._found = found
        if is_other:
            self._begin()
            self._walk_on()
        self._is_spanning = False
        self._decided_open = self._open_before_stretches()

    def _walk_on(self) -> None:
        self._ranges = self._columns = None
        for files in self._partition.segments:
            if files.base_offset >= self._base_offset:
                self._walk(files)
        is_damaged = self._behind.is_damaged or bool(self._stretches)  # then more may have ended
        opened = {} if is_damaged else self._pairs.open
        self._forgotten = forgotten_transactions(self._partition, opened)

    def _walk(self, files: SegmentFiles) -> None:
        start_pos = self._pos if files.base_offset == self._base_offset else 0
        self._base_offset, self._pos = files.base_offset, start_pos
        self.log_end_offset = max(self.log_end_offset, files.base_offset)
        try:
            segment = self._partition.segment_at(files)
        except AccessError as exc:
            self.problems.append(exc.without_frames())
            self._behind = self._behind._replace(is_damaged=True)
            return
        with segment:
            walk = EventWalk(
                segment, start_pos=start_pos, before=self._behind, ends=self._found.ends
            )
            for block in walk:
                if walk.stretches:
                    self._stretches += log_files_of(self._partition).matter(walk.stretches)
                    walk.stretches.clear()
                new = block.from_offset(max(self.log_start_offset, self._known_offset))
                if new.table.row_count:
                    self._add(*new)
            self._pos = walk.valid_bytes
            self._behind = walk.behind
            self._known_offset = max(self._known_offset, walk.end_offset)
            self.log_end_offset = max(self.log_end_offset, walk.end_offset)

    def _open_before_stretches(self) -> set[tuple[int, int]]:
        """Return producers and first offsets of open data with a stretch after it."""
        last = max((each.start_offset for each in self._stretches), default=-1)
        last = INT64_MAX if self._behind.is_damaged else last
        return {each for each in self._pairs.open.items() if each[1] < last}

    def _add(self, table: HeaderTable, marker: Kinds) -> None:
        """Take events in log order. Markers without data end nothing (TXN-2)."""
        ended = self._pairs.take(table, marker)
        is_abort, has_data = ended.is_abort, ended.first_offset != NO_DATA
        if self._stretches:
            spanning = has_data & spans(self._stretches, ended.first_offset, ended.marker_offset)
            self._is_spanning |= bool(spanning.any()) or self._has_ended_since(table, marker)
        if (is_abort | ended.is_unknown).any():
            is_marker = is_abort & ~np.isin(ended.marker_offset, self._found.ends.offset)
            columns = (ended.producer_id, ended.first_offset, ended.marker_offset)
            self._markers.append((ended.producer_id[is_marker], ended.marker_offset[is_marker]))
            for found, rows in (
                (self._aborted, is_marker & has_data),
                (self._hidden, (is_abort | ended.is_unknown) & has_data),
            ):
                found.append((columns[0][rows], columns[1][rows], columns[2][rows]))
        if self.high_watermark is not None:
            late = has_data & (ended.marker_offset >= self.high_watermark)
            self._unreplicated += zip(
                ended.marker_offset[late].tolist(), ended.first_offset[late].tolist(), strict=True
            )

    def _has_ended_since(self, table: HeaderTable, marker: Kinds) -> bool:
        """Return whether events show the end of a transaction that may have been open."""
        return any(
            (
                (table.producer_id == each.producer_id)
                & ((marker != NO_MARKER) | (table.producer_epoch > each.producer_epoch))
            ).any()
            for each in self._found.unknown
            if each.may_be_open
        )

    # --- results ---

    @property
    def place(self) -> tuple[int, int]:
        """The base offset (-1: the first segment) and position where `update` continues."""
        return self._base_offset, self._pos

    @property
    def open_transactions(self) -> list[OpenTransaction]:
        """Return transactions without a marker that a broker knows, by first offset."""
        return [each for each in self._opened() if each.producer_id not in self._forgotten]

    @property
    def exposed(self) -> list[OpenTransaction]:
        """Return open transactions that a broker does not know: consumers get their records."""
        return [each for each in self._opened() if each.producer_id in self._forgotten]

    def _opened(self) -> list[OpenTransaction]:
        unknown = {(each.producer_id, each.first_offset) for each in self.unknown}
        opened = self._pairs.open.items() - unknown
        by_offset = sorted((first, producer_id) for producer_id, first in opened)
        return [OpenTransaction(producer_id, first) for first, producer_id in by_offset]

    @property
    def unknown(self) -> tuple[UnknownTransaction, ...]:
        """The transactions of unknown outcome, by first offset."""
        return self._found.unknown

    @property
    def has_ends(self) -> bool:
        """Return whether transactions end without a marker: a list of aborts cannot show this."""
        return bool(len(self._found.ends.offset))

    @property
    def last_stable_offset(self) -> int:
        """Return where a read_committed consumer stops (TXN-4)."""
        end_offset = self.log_end_offset
        if self.high_watermark is not None:
            end_offset = max(min(self.high_watermark, end_offset), self.log_start_offset)
            self._unreplicated = [each for each in self._unreplicated if each[0] >= end_offset]
        exposed = set(self.exposed)
        firsts = [e[1] for e in self._pairs.open.items() if OpenTransaction(*e) not in exposed]
        firsts += [first for _, first in self._unreplicated]
        firsts += [each.first_offset for each in self._found.unknown if each.may_be_open]
        return min(end_offset, max(min(firsts, default=end_offset), self.log_start_offset))

    def is_hidden(self, table: HeaderTable) -> Flags:
        """Return which transactional batches below the last stable offset are not committed."""
        if self._ranges is None:
            is_from_log = self._source is AbortedSource.LOG
            self._ranges = self._from_log() if is_from_log else self._from_index()
        return self._ranges.hold(table)

    def aborted_within(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Return a broker's list for a fetch, by the log: producer ids and first offsets (RC-2).

        It has the aborted transactions that end at or above the start and begin below the end, in
        the order of their markers.
        """
        if self._columns is None:
            self._columns = _joined_columns(self._aborted)
        producer_id, first, marker = self._columns
        at = int(np.searchsorted(marker, start_offset))
        rows = np.flatnonzero(first[at:] < end_offset) + at
        return list(zip(producer_id[rows].tolist(), first[rows].tolist(), strict=True))

    def _from_log(self) -> ProducerRanges:
        columns = _joined_columns(self._hidden)
        in_order = np.argsort(columns[2], kind="stable")
        return ProducerRanges(*(each[in_order] for each in columns))

    def _from_index(self) -> ProducerRanges:
        entries = [each for entries in self._index_entries().values() for each in entries]
        producer_id = np.array([each.producer_id for each in entries], np.int64)
        first = np.array([each.first_offset for each in entries], np.int64)
        of_marker, marker = (_joined([each[place] for each in self._markers]) for place in (0, 1))
        at = NextOfProducer(of_marker, marker).rows(producer_id, first - 1)
        end = np.full(len(first), NO_DATA)  # without a marker a consumer hides all later batches
        end[at >= 0] = marker[at[at >= 0]]
        in_order = np.argsort(end, kind="stable")
        return ProducerRanges(producer_id[in_order], first[in_order], end[in_order])

    def _index_entries(self) -> dict[int, list[AbortedTxn]]:
        """Read the `.txnindex` files. Unreadable files become problems of the partition."""
        found = {}
        for files in self._partition.segments:
            found[files.base_offset] = self._partition.aborted_transactions(files) or []
        return found

    def index_gap(self) -> IndexGap | None:
        """Return aborted transactions that `.txnindex` lacks: a broker would show their records."""
        known = {
            (each.producer_id, each.last_offset)
            for entries in self._index_entries().values()
            for each in entries
        }
        lacking = [
            (producer_id, first)
            for columns in self._aborted
            for producer_id, first, marker in zip(*map(np.ndarray.tolist, columns), strict=True)
            if (producer_id, marker) not in known
        ]
        return IndexGap(len(lacking), *lacking[0]) if lacking else None


def _joined_columns(parts: list[tuple[Ints, Ints, Ints]]) -> tuple[Ints, ...]:
    return tuple(_joined([each[place] for each in parts]) for place in range(3))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
