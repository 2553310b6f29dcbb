"""The search for duplicates in logs: proved by sequences, or suspected by content.

Partitions are searched one by one, or all partitions of a topic together. Each is read once. If it
has a transaction, its headers are read a second time. Batches and records become rows of sorters
(see `spill`), so memory does not depend on the log.

    proved      see `proved_pairs`, not in topics without sequence rules (PROD-12)
    suspected   see `suspected_pairs`, in internal topics only if they are named

Control batches are not data. The search includes batches below the log start offset and above the
high watermark. With `is_committed_only` it includes only batches that a read_committed consumer may
see. Aborted batches and batches without a marker are then left out.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.duplicates.groups import PairReporter, by_group
from recovery.duplicates.record_digests import Digester
from recovery.duplicates.scan import Trouble, decode_part, read_parts
from recovery.duplicates.spill import (
    ABORTED,
    BATCH_DTYPE,
    COMMITTED,
    ID_RECORD_DTYPE,
    OPEN,
    PAIR_KEYS,
    PLACED_DTYPE,
    RECORD_DTYPE,
    RECORD_KEYS,
    UNKNOWN,
    DuplicateKind,
    pair_dtype,
)
from recovery.summaries.sequence_ranges import HALF_LAP, LAP
from recovery.transactions.events import read_marker_kinds
from recovery.transactions.unknown_ends import find_ends, log_files_of
from storage.counts import agreeing, counted
from storage.dirs.offset_ledger import joined
from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.file_names import REMOTE_METADATA_TOPIC, DirState
from storage.formats.control_record import NO_MARKER
from storage.kernels.protocol import HeaderTable
from storage.places.listing import UNSEQUENCED_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from recovery.duplicates.record_digests import Digests, RecordId
    from recovery.duplicates.scan import DecodedBatches, DecodedRecords, Part
    from recovery.duplicates.spill import Duplicate, Rows, Sorter, SpillSpace
    from recovery.transactions.unknown_ends import LogFiles
    from storage.dirs.discovery import Selected

    Codes = NDArray[np.int8]
    Ints = NDArray[np.int64]


# -- the outcomes of a partition's transactional batches, looked up in log order.
#
# A batch has the outcome of the next end marker of its producer (RC-5), which may be anywhere after
# it. So all transactional batches and markers are sorted by producer, the last first: then each
# marker comes right before the batches that it ends. Uncommitted batches are sorted back into log
# order. The sorters limit memory, however many transactions there are. If a marker may be damaged
# or absent, `recovery.transactions.unknown_ends` decides.


OUTCOMES_SHARE = 1 / 16  # of the memory, for each of two sorters
UNDECIDED = -1
# The outcome of the batches before a marker, by the marker's kind.
_OUTCOMES = np.array([UNDECIDED, COMMITTED, ABORTED, UNKNOWN], np.int8)

_EVENT_DTYPE = np.dtype(
    [("producer_id", np.int64), ("from_end", np.int64), ("outcome", np.int8)]
)  # outcome: of the batches before a marker; UNDECIDED for a batch
_BATCH_DTYPE = np.dtype([("base_offset", np.int64), ("outcome", np.int8)])


def outcome_sorter(
    partition: Partition, space: SpillSpace, on_bytes: Callable[[int], object] = int
) -> Sorter:
    """Read a partition's transactions, and return its uncommitted batches by offset.

    The caller closes the result. Damage is not reported here, but when the batches are read.
    """
    uncommitted = space.sorter(_BATCH_DTYPE, ("base_offset",), OUTCOMES_SHARE)
    try:
        with space.sorter(_EVENT_DTYPE, ("producer_id", "from_end"), OUTCOMES_SHARE) as events:
            trouble, has_gap, end_offset = Trouble(), False, -1
            for part in read_parts(partition, trouble, on_bytes):
                if part.table.row_count:
                    base, last = part.table.base_offset, part.table.last_offset
                    has_gap |= 0 <= end_offset < base[0] or bool((base[1:] > last[:-1] + 1).any())
                    end_offset = int(last[-1]) + 1
                if part.is_transactional.any() or not part.is_data.all():
                    events.add(_events_of(part))
            log = log_files_of(partition)
            if trouble.count or (has_gap and log.gaps_are_losses()):
                events.add(_events_of_ends(log))
            last_producer_id, outcome = -1, OPEN
            for rows in events.chunks():
                found, last_producer_id, outcome = _outcomes(rows, last_producer_id, outcome)
                uncommitted.add(found)
    except BaseException:
        uncommitted.close()
        raise
    return uncommitted


def _events_of(part: Part) -> Rows:
    table = part.table
    outcome = np.full(table.row_count, UNDECIDED, np.int8)
    is_event = part.is_transactional & part.is_data
    # An empty control batch is a compacted marker without effect (PROD-9).
    is_control = ~part.is_data & (table.producer_id >= 0) & (table.records_count > 0)
    controls = np.flatnonzero(is_control)
    if len(controls):
        of_control = type(table)._make(column[controls] for column in table)
        kinds = read_marker_kinds(part.segment, of_control, part.window)
        outcome[controls] = _OUTCOMES[kinds]
        is_event[controls] = kinds != NO_MARKER
    rows = np.empty(int(is_event.sum()), _EVENT_DTYPE)
    rows["producer_id"] = table.producer_id[is_event]
    rows["from_end"] = -table.base_offset[is_event]
    rows["outcome"] = outcome[is_event]
    return rows


def _events_of_ends(log: LogFiles) -> Rows:
    """Return the transaction ends without a readable marker."""
    ends = find_ends(log).ends
    rows = np.empty(len(ends.offset), _EVENT_DTYPE)
    rows["producer_id"] = ends.producer_id
    rows["from_end"] = -ends.offset
    rows["outcome"] = _OUTCOMES[ends.kind]
    return rows


def _outcomes(rows: Rows, last_producer_id: int, last_outcome: int) -> tuple[Rows, int, int]:
    """Return the uncommitted batches, and the last producer id and outcome for the next chunk."""
    ids, codes = rows["producer_id"], rows["outcome"]
    starts = np.ones(len(rows), np.bool_)
    starts[1:] = ids[1:] != ids[:-1]
    starts[0] = int(ids[0]) != last_producer_id
    # For each row, the last deciding row up to it: a marker, or a producer's first row.
    is_marker = codes != UNDECIDED
    decides = np.where(is_marker, codes, OPEN)
    source = np.maximum.accumulate(np.where(is_marker | starts, np.arange(len(rows)), -1))
    outcome = np.where(source >= 0, decides[source], last_outcome)
    is_found = ~is_marker & (outcome != COMMITTED)
    found = np.empty(int(is_found.sum()), _BATCH_DTYPE)
    found["base_offset"] = -rows["from_end"][is_found]
    found["outcome"] = outcome[is_found]
    return found, int(ids[-1]), int(outcome[-1])


class OutcomeReader:
    """The outcomes of transactional batches. Callers must request them in log order."""

    def __init__(self, uncommitted: Sorter) -> None:
        self._chunks: Iterator[Rows] = uncommitted.chunks()
        self._rows: Rows = next(self._chunks, np.empty(0, _BATCH_DTYPE))

    def outcomes(self, base_offsets: NDArray[np.int64]) -> Codes:
        """Return a code per batch, for ascending offsets."""
        result = np.full(len(base_offsets), COMMITTED, np.int8)
        done = 0
        while done < len(base_offsets) and len(self._rows):
            known = self._rows["base_offset"]
            end = done + int(np.searchsorted(base_offsets[done:], known[-1], "right"))
            places = np.searchsorted(known, base_offsets[done:end])
            hit = np.flatnonzero(known[places] == base_offsets[done:end])
            result[done + hit] = self._rows["outcome"][places[hit]]
            done = end
            if done < len(base_offsets):
                self._rows = next(self._chunks, self._rows[:0])
        return result


# -- batches of one producer id and epoch that share sequences, at different offsets (PRD-2).
#
# Places are defined in `sequence_ranges`: 64-bit numbers that continue when sequences wrap. A
# session is a producer id and epoch. Of the places with its sequence, a batch gets the place
# nearest to the end of the batch before it in its session. A batch is a duplicate if an earlier
# batch in the log has one of its places. Take the first of its places that earlier batches have.
# Its first copy is the first batch in the log with that place.
#
# Batches are sorted by session and offset, to give them places. In nearly every log no batch goes
# back to lower places, and there is no duplicate. Else batches are sorted by session and place, and
# a sweep finds the pairs. The sweep keeps batches that reach beyond its current place, but only if
# no earlier batch reaches as far.


SHARE = 1 / 8  # of the memory, for each of three sorters
PAIR_DTYPE = pair_dtype(PLACED_DTYPE)
_MAX_FOUND = 4096


def batch_sorter(space: SpillSpace) -> Sorter:
    """Return the sorter for the batches of a partition, from `sequenced_rows`."""
    return space.sorter(BATCH_DTYPE, ("producer_id", "producer_epoch", "base_offset"), SHARE)


def sequenced_rows(table: HeaderTable, outcome: NDArray[np.int8]) -> Rows:
    """Return rows for data batches, without batches that have no producer id or sequence."""
    sequences_count = table.last_offset - table.base_offset + 1
    is_wanted = (table.producer_id >= 0) & (table.base_sequence >= 0)
    is_wanted &= (sequences_count > 0) & (sequences_count <= LAP)
    rows = np.empty(int(is_wanted.sum()), BATCH_DTYPE)
    rows["sequences_count"] = sequences_count[is_wanted]
    rows["outcome"] = outcome[is_wanted]
    for name in ("producer_id", "producer_epoch", "base_sequence", "base_offset", "pos"):
        rows[name] = getattr(table, name)[is_wanted]
    rows["max_timestamp_ms"] = table.max_timestamp_ms[is_wanted]
    return rows


def proved_pairs(batches: Sorter, space: SpillSpace, directory: int) -> Sorter | None:
    """Find the duplicates among the batches of one partition, or return None without any.

    The result has a row of PAIR_DTYPE per duplicate, in log order. The caller closes it.
    """
    if not any((jump < 0).any() for _, jump in _placed(batches)):
        return None
    pairs = space.sorter(PAIR_DTYPE, PAIR_KEYS, SHARE)
    keys = ("producer_id", "producer_epoch", "start", "base_offset")
    try:
        with space.sorter(PLACED_DTYPE, keys, SHARE) as placed:
            for rows, _ in _placed(batches):
                placed.add(rows)
            sweep = _Sweep(pairs, directory)
            for rows in placed.chunks():
                sweep.add(rows)
            sweep.finish()
    except BaseException:
        pairs.close()
        raise
    return pairs


def _placed(batches: Sorter) -> Iterator[tuple[Rows, Ints]]:
    """Yield the batches with their places, and their jumps from the end of the previous batch."""
    before: Rows = np.empty(0, PLACED_DTYPE)  # the last batch, with its place
    for chunk in batches.chunks():
        rows = np.empty(len(before) + len(chunk), PLACED_DTYPE)
        rows[: len(before)] = before
        for name in BATCH_DTYPE.names or ():
            rows[name][len(before) :] = chunk[name]
        jump = _give_places(rows, known_count=len(before))
        yield rows[len(before) :], jump[len(before) :]
        before = rows[-1:].copy()


def _give_places(rows: Rows, *, known_count: int) -> Ints:
    base, count = rows["base_sequence"].astype(np.int64), rows["sequences_count"]
    is_first = _is_new_session(rows)
    jump = np.zeros(len(rows), np.int64)
    jump[1:] = (base[1:] - base[:-1] - count[:-1] + HALF_LAP) % LAP - HALF_LAP
    jump[is_first] = 0
    step = jump.copy()
    step[1:] += count[:-1]
    step[is_first] = 0
    total = np.cumsum(step)
    firsts = np.flatnonzero(is_first)
    origin = base[firsts]
    if known_count:
        origin[0] = rows["start"][0]
    rows["start"] = total + (origin - total[firsts])[np.cumsum(is_first) - 1]
    return jump


def _is_new_session(rows: Rows) -> NDArray[np.bool_]:
    is_new = np.ones(len(rows), np.bool_)
    for name in ("producer_id", "producer_epoch"):
        column = rows[name]
        is_new[1:] &= column[1:] == column[:-1]
    is_new[1:] = ~is_new[1:]
    return is_new


class _Batch(NamedTuple):
    """A batch in the sweep. Places are half open."""

    start: int
    end: int
    base_offset: int
    row: Rows  # its only row


class _Sweep:
    """The sweep that finds pairs among batches sorted by session and place."""

    def __init__(self, pairs: Sorter, directory: int) -> None:
        self._pairs = pairs
        self._directory = directory
        self._found: list[tuple[Rows, Rows]] = []
        self._session = (-1, -1)
        self._open: list[_Batch] = []  # they may reach beyond the current place of the sweep
        self._waiting: list[_Batch] = []  # the open batches that repeat nothing so far

    def add(self, rows: Rows) -> None:
        """Take the next batches."""
        for place in np.flatnonzero(self._may_overlap(rows)).tolist():
            row = rows[place : place + 1].copy()  # a view would keep the whole chunk
            session = (int(row["producer_id"][0]), int(row["producer_epoch"][0]))
            if session != self._session:
                self._session, self._open, self._waiting = session, [], []
            start = int(row["start"][0])
            end = start + int(row["sequences_count"][0])
            self._step(
                _Batch(start=start, end=end, base_offset=int(row["base_offset"][0]), row=row)
            )

    def finish(self) -> None:
        """Pass on the found pairs."""
        if not self._found:
            return
        first, repeat = (np.concatenate(side) for side in zip(*self._found, strict=True))
        rows = np.empty(len(first), PAIR_DTYPE)
        rows["directory"] = self._directory
        rows["offset"] = repeat["base_offset"]
        rows["first"], rows["repeat"] = first, repeat
        self._pairs.add(rows)
        self._found = []

    def _may_overlap(self, rows: Rows) -> NDArray[np.bool_]:
        """Return the batches that the sweep must check, always including the first and the last.

        Ends are compared with starts through their common ranks in a session, so that a running
        maximum stays within the session.
        """
        is_new = _is_new_session(rows)
        session = np.cumsum(is_new)
        end = rows["start"] + rows["sequences_count"]
        reach = [each.end for each in self._open]
        if reach and self._session == (int(rows["producer_id"][0]), int(rows["producer_epoch"][0])):
            end[0] = max(int(end[0]), *reach)
        places = np.concatenate((rows["start"], end))
        order = np.lexsort((places, np.concatenate((session, session))))
        sorted_places, sorted_session = places[order], np.concatenate((session, session))[order]
        is_next = np.ones(len(order), np.bool_)
        is_next[1:] = (np.diff(sorted_places) != 0) | (np.diff(sorted_session) != 0)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(is_next)
        start_rank, end_rank = np.split(ranks, 2)
        overlaps = np.zeros(len(rows), np.bool_)
        overlaps[1:] = start_rank[1:] < np.maximum.accumulate(end_rank)[:-1]
        overlaps[:-1] |= overlaps[1:]
        overlaps[[0, -1]] = True
        return overlaps

    def _step(self, batch: _Batch) -> None:
        self._open = [each for each in self._open if each.end > batch.start]
        waiting = [each for each in self._waiting if each.end > batch.start]
        for each in waiting:
            if batch.base_offset < each.base_offset:
                self._note(batch, each)
        self._waiting = [each for each in waiting if batch.base_offset > each.base_offset]
        first = min(self._open, key=_by_offset, default=batch)
        if first.base_offset < batch.base_offset:
            self._note(first, batch)
        else:
            self._waiting.append(batch)
        earlier = [each for each in self._open if each.base_offset < batch.base_offset]
        if all(each.end < batch.end for each in earlier):
            later = [each for each in self._open if each.base_offset > batch.base_offset]
            self._open = [*earlier, batch, *(each for each in later if each.end > batch.end)]

    def _note(self, first: _Batch, repeat: _Batch) -> None:
        self._found.append((first.row, repeat.row))
        if len(self._found) >= _MAX_FOUND:
            self.finish()


def _by_offset(batch: _Batch) -> int:
    return batch.base_offset


# -- records with the same content as another record a short time before.
#
# All records are sorted by time, then by partition and offset. A record is suspected as a repeat
# if the window before it has a record of another session with the same key, value and headers.
# Another session has another producer id or epoch, or one of the two records has no
# idempotence. (Within a session a broker rejects retries.) The first copy is the latest such
# record. If ids are compared instead, sessions do not matter.
#
# Records without a timestamp (-1, format v0) all have the same time.


RECORDS_SHARE = 1 / 2  # of the memory
PAIRS_SHARE = 1 / 8


def record_sorter(space: SpillSpace, *, by_id: bool) -> Sorter:
    """Return the sorter for the records, from `record_rows`."""
    dtype = ID_RECORD_DTYPE if by_id else RECORD_DTYPE
    return space.sorter(dtype, RECORD_KEYS, RECORDS_SHARE)


def record_rows(
    decoded: DecodedBatches | DecodedRecords,
    outcome: NDArray[np.int8],
    digester: Digester,
    directory: int,
) -> Rows:
    """Return rows for decoded records. `outcome` has a code per batch of the part."""
    table = decoded.table
    if isinstance(decoded.records, list):
        digests = digester.of_records(decoded.records)
        offset = np.array([each.offset for each in decoded.records], np.int64)
        timestamp_ms = np.array([each.timestamp_ms for each in decoded.records], np.int64)
        batch_row = np.zeros(len(decoded.records), np.int64)
    else:
        digests = digester.of_table(decoded.records)
        offset, timestamp_ms = decoded.records.offset, decoded.records.timestamp_ms
        batch_row = decoded.records.batch_row
    batch = batch_row[digests.rows]
    dtype = ID_RECORD_DTYPE if digester.is_by_id else RECORD_DTYPE
    rows = np.empty(len(digests.rows), dtype)
    rows["directory"] = directory
    rows["offset"] = offset[digests.rows]
    rows["timestamp_ms"] = timestamp_ms[digests.rows]
    rows["producer_id"] = table.producer_id[batch]
    rows["producer_epoch"] = table.producer_epoch[batch]
    rows["outcome"] = outcome[decoded.part_rows[batch]]
    _set_hashes(rows, digests)
    return rows


def _set_hashes(rows: Rows, digests: Digests) -> None:
    rows["hash_high"], rows["hash_low"] = digests.match.T
    if rows.dtype == ID_RECORD_DTYPE:
        rows["payload_high"], rows["payload_low"] = digests.payload.T


def suspected_pairs(records: Sorter, space: SpillSpace, window_ms: int, *, by_id: bool) -> Sorter:
    """Find the repeats, and return a row of `pair_dtype` per repeat, by directory and offset.

    The caller closes the result.
    """
    dtype = ID_RECORD_DTYPE if by_id else RECORD_DTYPE
    pairs = space.sorter(pair_dtype(dtype), PAIR_KEYS, PAIRS_SHARE)
    try:
        before: Rows = np.empty(0, dtype)
        for chunk in records.chunks():
            rows = np.concatenate((before, chunk))
            first = _first_copies(rows, by_id=by_id)
            pairs.add(_within(rows, first, len(before), window_ms))
            # A later record needs only the last record, and the record that this would repeat.
            kept = [int(first[-1]), len(rows) - 1] if first[-1] >= 0 else [len(rows) - 1]
            before = rows[kept]
    except BaseException:
        pairs.close()
        raise
    return pairs


def _first_copies(rows: Rows, *, by_id: bool) -> NDArray[np.int64]:
    """Return for each record the latest earlier record that it may repeat, or -1.

    This is the record before its run of equal records of one session.
    """
    places = np.arange(len(rows))
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (rows["hash_high"][1:] != rows["hash_high"][:-1]) | (
        rows["hash_low"][1:] != rows["hash_low"][:-1]
    )
    is_run = np.ones(len(rows), np.bool_)
    if not by_id:
        ids, epochs = rows["producer_id"], rows["producer_epoch"]
        is_run[1:] = (ids[1:] != ids[:-1]) | (epochs[1:] != epochs[:-1]) | (ids[1:] < 0)
        is_run |= is_new
    run_start = np.maximum.accumulate(np.where(is_run, places, 0))
    group_start = np.maximum.accumulate(np.where(is_new, places, 0))
    return np.where(run_start > group_start, run_start - 1, -1)


def _within(rows: Rows, first: NDArray[np.int64], known_count: int, window_ms: int) -> Rows:
    """Make pairs of the records after the known rows whose first copy is in the window."""
    repeat = np.flatnonzero(first >= 0)
    repeat = repeat[repeat >= known_count]
    # Unsigned: the difference of two 64-bit times needs 64 bits without a sign.
    times = rows["timestamp_ms"].astype(np.uint64)
    repeat = repeat[times[repeat] - times[first[repeat]] <= np.uint64(window_ms)]
    # Inner messages of format 0 may have any offset. The same offset is no duplicate.
    is_same = rows["offset"][repeat] == rows["offset"][first[repeat]]
    is_same &= rows["directory"][repeat] == rows["directory"][first[repeat]]
    repeat = repeat[~is_same]
    pairs = np.empty(len(repeat), pair_dtype(rows.dtype))
    pairs["first"], pairs["repeat"] = rows[first[repeat]], rows[repeat]
    pairs["directory"], pairs["offset"] = rows["directory"][repeat], rows["offset"][repeat]
    return pairs


# -- search


# Topics with intentional repeats: commits, states, metadata.
INTERNAL_TOPICS = UNSEQUENCED_TOPICS | {REMOTE_METADATA_TOPIC}


class DuplicateOptions(NamedTuple):
    """The options of a search.

    Attributes:
        kinds: proved, suspected or both.
        window_ms: the greatest age of a suspected repeat's first copy, by record timestamps.
        record_id: compare this instead of key, value and headers.
        min_bytes: see `Digester`.
        is_across_partitions: a suspected repeat may have its first copy in another partition.
        is_committed_only: see the module.
        is_by_group: pairs are in order of groups instead of offsets.
    """

    kinds: frozenset[DuplicateKind] = frozenset(DuplicateKind)
    window_ms: int = 600_000
    record_id: RecordId | None = None
    min_bytes: int = 1
    is_across_partitions: bool = False
    is_committed_only: bool = False
    is_by_group: bool = False


class DuplicateSearch:
    """A search over partition directories. Iterate over `duplicates`, then read the attributes.

    Attributes:
        counts: duplicates found so far, by kind.
        notes: sentences about data that was left out, and why.
        is_skipped: some data could not be read.
        is_short: some acknowledged data is not on disk.
        opened_count: segments that could be opened.
        spilled_bytes: bytes written to temporary files.
    """

    def __init__(
        self,
        selected: Sequence[Selected],
        options: DuplicateOptions,
        space: SpillSpace,
        *,
        requested: Callable[[Selected], bool] = lambda _: True,
        on_bytes: Callable[[int], object] = int,
    ) -> None:
        """Prepare the search.

        Args:
            selected: the directories.
            options: of the search.
            space: memory and disk that may be used.
            requested: whether the operator named a directory itself, as an internal topic requires.
            on_bytes: called with the number of further bytes read.
        """
        self._selected = selected
        self._options = options
        self._space = space
        self._requested = requested
        self._on_bytes = on_bytes
        self._left: int | None = None
        self._is_by_id = options.record_id is not None
        self._digester = Digester(options.record_id, min_bytes=options.min_bytes)
        self.counts = dict.fromkeys(DuplicateKind, 0)
        self.notes: list[str] = []
        self.is_skipped = self.is_short = False
        self.opened_count = 0
        self.spilled_bytes = 0

    def duplicates(self, limit: int | None = None) -> Iterator[Duplicate]:
        """Yield the duplicates, partition by partition: first proved, then suspected duplicates.

        A limit bounds only the returned duplicates. All are counted.

        Raises:
            AccessError: temporary files cannot be written.
        """
        self._left = limit
        for unit in self._units():
            yield from self._search(unit)
        internal = [each for each in self._selected if not self._is_compared(each)]
        if internal and DuplicateKind.SUSPECTED in self._options.kinds:
            self.notes.append(
                f"{counted(len(internal), 'partition')} of internal topics"
                f" {agreeing(len(internal), 'was', 'were')} not searched for suspected"
                " duplicates; name their directories to have it done"
            )

    def _is_compared(self, selected: Selected) -> bool:
        return selected.partition.name.topic not in INTERNAL_TOPICS or self._requested(selected)

    def _units(self) -> Iterator[list[Selected]]:
        """Yield the directories to search together. A further replica is searched alone."""
        if not self._options.is_across_partitions:
            yield from ([each] for each in self._selected)
            return
        topics: dict[str, dict[int, Selected]] = {}
        alone = []
        for each in self._selected:
            name = each.partition.name
            together = topics.setdefault(name.topic, {})
            if name.state is not DirState.LIVE or name.partition < 0:
                alone.append(each)
            elif name.partition in together:
                alone.append(each)
                self.notes.append(
                    f"{each.partition.path}: not compared with other partitions: "
                    f"{together[name.partition].partition.path} is the same directory"
                )
            else:
                together[name.partition] = each
        for together in topics.values():
            if together:
                yield [together[number] for number in sorted(together)]
        yield from ([each] for each in alone)

    def _search(self, unit: list[Selected]) -> Iterator[Duplicate]:
        partitions = dict(self._listed(unit))
        kinds = self._options.kinds
        with ExitStack() as stack:
            reporter = stack.enter_context(PairReporter(partitions))
            records = None
            if DuplicateKind.SUSPECTED in kinds and self._is_compared(unit[0]):
                records = record_sorter(self._space, by_id=self._is_by_id)
                stack.enter_context(records)
            for number, partition in partitions.items():
                proved = self._read(partition, number, records)
                if proved is not None:
                    with proved:
                        yield from map(reporter.proved, self._taken(proved, DuplicateKind.PROVED))
            if records is None:
                return
            window_ms = self._options.window_ms
            suspected = suspected_pairs(records, self._space, window_ms, by_id=self._is_by_id)
            self.spilled_bytes += records.spilled_bytes
            records.close()
            with suspected:
                for pair in self._taken(suspected, DuplicateKind.SUSPECTED):
                    yield reporter.suspected(pair, by_id=self._is_by_id)

    def _listed(self, unit: list[Selected]) -> Iterator[tuple[int, Partition]]:
        for number, each in enumerate(unit):
            try:
                partition = Partition.of(each)
            except AccessError as exc:
                self._leave_out([str(exc)])
            else:
                self._leave_out(map(str, partition.problems))
                if partition.remote_range is not None:
                    self.notes.append(f"{partition.path}: {partition.remote_range}: not searched")
                yield number, partition

    def _taken(self, pairs: Sorter, kind: DuplicateKind) -> Iterator[Any]:
        """Count pairs, and yield as many as the limit allows."""
        self.counts[kind] += pairs.rows_count
        self.spilled_bytes += pairs.spilled_bytes
        if self._left == 0:
            return
        for row in self._ordered(pairs, kind):
            yield row
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    return

    def _ordered(self, pairs: Sorter, kind: DuplicateKind) -> Iterator[Any]:
        if not self._options.is_by_group:
            for rows in pairs.chunks():
                yield from rows
            return
        with by_group(pairs, kind, self._space) as grouped:
            for rows in grouped.chunks():
                yield from rows["pair"]
            self.spilled_bytes += grouped.spilled_bytes

    def _leave_out(self, notes: Iterable[str]) -> None:
        for each in notes:
            self.notes.append(each)
            self.is_skipped = True

    def _read(self, partition: Partition, number: int, records: Sorter | None) -> Sorter | None:
        """Read a partition, and return its proved pairs, or None without any."""
        trouble = Trouble()
        is_proved = DuplicateKind.PROVED in self._options.kinds
        is_proved = is_proved and partition.topic not in UNSEQUENCED_TOPICS
        with ExitStack() as stack:
            batches = stack.enter_context(batch_sorter(self._space)) if is_proved else None
            outcomes = _Outcomes(partition, self._space, stack)
            for part in read_parts(partition, trouble, self._on_bytes):
                outcome = outcomes.of(part)
                wanted = part.is_data.copy()
                if self._options.is_committed_only:
                    wanted &= outcome == COMMITTED
                if batches is not None:
                    table = HeaderTable._make(column[wanted] for column in part.table)
                    batches.add(sequenced_rows(table, outcome[wanted]))
                if records is not None:
                    for decoded in decode_part(part, wanted, trouble):
                        records.add(record_rows(decoded, outcome, self._digester, number))
            self.opened_count += trouble.opened_count
            self._leave_out(trouble.reported(partition.path))
            span = joined(trouble.spans, partition.acknowledged.cleaned_offset)
            not_given = partition.not_given(span, trouble.lost)
            self.notes += (f"{partition.path}: {each}" for each in not_given)
            self.is_short |= bool(not_given)
            if batches is None:
                return None
            self.spilled_bytes += batches.spilled_bytes
            return proved_pairs(batches, self._space, number)


class _Outcomes:
    """The outcomes of a partition's batches. Transactions are read when the first occurs."""

    def __init__(self, partition: Partition, space: SpillSpace, stack: ExitStack) -> None:
        self._partition = partition
        self._space = space
        self._stack = stack
        self._reader: OutcomeReader | None = None

    def of(self, part: Part) -> NDArray[np.int8]:
        """Return a code per batch of the next part."""
        codes = np.full(part.table.row_count, COMMITTED, np.int8)
        rows = np.flatnonzero(part.is_transactional & part.is_data)
        if rows.size:
            if self._reader is None:
                sorter = self._stack.enter_context(outcome_sorter(self._partition, self._space))
                self._reader = OutcomeReader(sorter)
            codes[rows] = self._reader.outcomes(part.table.base_offset[rows])
        return codes
