"""A census of the producer ids of partitions: known and expired ids, and their cost.

A broker keeps an entry for every producer id that has written to a partition until it expires
(PROD-10). Large numbers of short-lived producers fill its heap. A broker knows the producers of the
newest snapshot and of the log after it. The census replays the log from its start, so it counts all
ids that have left a batch, including expired ids.

The heap is an estimate from the objects of Kafka 4's ProducerStateManager, in bytes. It assumes a
64-bit HotSpot with compressed references (a heap below 32 GiB).

    a producer id    HashMap.Node 32, Long 24, ProducerStateEntry 48, ArrayDeque 24, its 17 slots 88
    a cached batch   BatchMetadata 40. At most five of the latest epoch, one after a restart
    an open          OptionalLong 24, TreeMap.Entry 40, Long 24, TxnMetadata 32,
    transaction      LogOffsetMetadata 32
    a partition      the table of the HashMap: 16, and 4 per bucket. At most 3/4 are full
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.bulk_state import BulkState, replay_segment
from recovery.replay.end_markers import CUT_CHECK_IDS
from recovery.replay.recover_state import read_snapshots
from storage.dirs.lookup import END_KINDS, all_verdicts, is_wrong_end, verdict_of
from storage.dirs.offset_ledger import OffsetLedger, OffsetSpan, joined, unread
from storage.errors import AccessError, FormatError
from storage.formats.control_record import REFUSED_CHECK_ID
from storage.formats.producer_snapshot import ProducerEntry
from storage.formats.record_batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAGIC_V2,
)
from storage.kernels.protocol import in_words
from storage.log.segment import open_segment
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from recovery.replay.snapshots import Clock
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.partition import Partition
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment

    Ints = NDArray[np.int64]

HOUR_MS = 3_600_000
PRODUCER_BYTES = 32 + 24 + 48 + 24 + 88
CACHED_BATCH_BYTES = 40
OPEN_TRANSACTION_BYTES = 24 + 40 + 24 + 32 + 32
TABLE_HEADER_BYTES = 16
BUCKET_BYTES = 4
MIN_BUCKETS = 16

_NO_TIME = np.iinfo(np.int64).max
_FOLD_ROWS = 1 << 18


class Producers(NamedTuple):
    """The producers of one partition, as columns by ascending producer id.

    Attributes:
        first_ms: timestamp of the first record of the first batch. The highest value if unknown.
        last_ms: the time that decides expiry.
        batches: of data, in the log.
        cached: batches that a broker remembers after reading the whole log.
        is_open: a transaction is open.
        is_in_log: False if only a snapshot has the producer.
    """

    producer_id: Ints
    first_ms: Ints
    last_ms: Ints
    batches: Ints
    cached: Ints
    is_open: NDArray[np.bool_]
    is_in_log: NDArray[np.bool_]


class PartitionProducers(NamedTuple):
    """The producers of a partition, and notes.

    Attributes:
        producers: the columns.
        notes: parts that were not counted, and damage that a broker ignores. Empty if all is well.
        is_whole: every segment was read to its end.
    """

    producers: Producers
    notes: tuple[str, ...]
    is_whole: bool


class Census(NamedTuple):
    """Counts of producer ids.

    Attributes:
        producers_count: different ids.
        entries_count: entries of ids in partitions. Brokers keep one for each.
        live_count: entries that have not expired, including open entries.
        expired_count: the other entries.
        open_transactions_count: entries with an open transaction. They do not expire.
        single_batch_count: entries with a single data batch in the log.
        snapshot_only_count: entries whose batches are gone.
        new_last_hour_count: ids whose first record is from the last hour.
        new_per_hour_max: in the busiest hour of the clock. None without timestamps.
        new_per_hour_mean: from the first to the last new id. None without timestamps.
        heap_bytes: of live entries, in one replica of each partition.
    """

    producers_count: int
    entries_count: int
    live_count: int
    expired_count: int
    open_transactions_count: int
    single_batch_count: int
    snapshot_only_count: int
    new_last_hour_count: int
    new_per_hour_max: int | None
    new_per_hour_mean: float | None
    heap_bytes: int


# --- one partition --------------------------------------------------------------------------------


def read_producers(
    partition: Partition, *, on_bytes: Callable[[int], None] = lambda _: None
) -> PartitionProducers:
    """Read the log of a partition from its start. Note unreadable parts, and leave them out."""
    state = BulkState()
    seen = _SeenProducers()
    notes: list[str] = []
    spans: list[OffsetSpan] = []
    unread_ranges: list[Missing] = []
    is_whole = True
    cleaned_offset = partition.acknowledged.cleaned_offset
    for files in partition.segments:
        ledger = OffsetLedger(files.base_offset, cleaned_offset=cleaned_offset)
        end_offset = partition.end_of(files)
        known_count = len(notes)
        try:
            with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                is_far = partition.goes_beyond_limit(files)
                found = replay_segment(
                    segment.of_any_offset() if is_far else segment,
                    state,
                    start_offset=partition.local_log_start_offset,
                    is_active=partition.is_active(files),
                    on_table=partial(_take, seen, ledger, segment, partition.end_bound(files)),
                )
                stop = found.stop
                if stop is not None and stop.kind not in END_KINDS:
                    stop = verdict_of(segment, stop, is_active=partition.is_active(files))
                    if stop.check_id in CUT_CHECK_IDS:  # damaged, but no end marker
                        stop = stop._replace(check_id=REFUSED_CHECK_ID)
                verdicts = found.verdicts
                if stop is None and end_offset is not None and found.last_offset >= end_offset:
                    verdicts = all_verdicts(segment, is_active=False, end_offset=end_offset)
        except (AccessError, AppendError, FormatError) as error:
            notes.append(f"{files.log.path}: {error}: what follows in it is not counted")
            unread_ranges.append(unread(files.base_offset, partition.end_of(files)))
            is_whole = False
            continue
        finally:
            on_bytes(files.log.file_bytes)
        stopped = partition.stopped
        bad = [
            each
            for each in verdicts
            if each.kind not in END_KINDS or is_wrong_end(each.kind, stopped)
        ]
        if stop is not None and stop.kind not in END_KINDS:
            bad = [each for each in bad if each.start_pos < stop.start_pos]
            reported = in_words(files.log.path, stop)
            notes.append(f"{reported}: what follows in it is not counted")
            is_whole = False
        # A broker ignores these. A reader of the records does not.
        notes += [in_words(files.log.path, each) for each in bad]
        spans.append(ledger.span)
        if len(notes) > known_count:
            unread_ranges.append(unread(files.base_offset, partition.end_of(files)))
    snapshots, snapshot_notes = read_snapshots(partition)
    entries = snapshots[max(snapshots)] if snapshots else []
    notes += snapshot_notes
    not_given = partition.not_given(joined(spans, cleaned_offset), unread_ranges)
    notes += (f"{partition.path}: {each}" for each in not_given)
    notes += map(str, partition.problems)
    return PartitionProducers(_joined(state, seen, entries), tuple(dict.fromkeys(notes)), is_whole)


def _take(
    seen: _SeenProducers,
    ledger: OffsetLedger,
    segment: Segment,
    end_bound: int | None,
    table: HeaderTable,
) -> None:
    """Pass a table of a segment to the producers, and its offsets to the ledger."""
    seen.add(table)
    # An offset beyond the segment cannot be right.
    if end_bound is not None and table.last_offset.max() >= end_bound:
        is_own = table.last_offset < end_bound
        table = type(table)._make(column[is_own] for column in table)
    if table.row_count:
        ledger.take(table, segment)


class _SeenProducers:
    """Sums of batches by producer id."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, Ints]] = []
        self._rows = 0

    def add(self, table: HeaderTable) -> None:
        """Take a table of batches."""
        rows = np.flatnonzero((table.magic >= MAGIC_V2) & (table.producer_id >= 0))
        if not len(rows):
            return
        attributes = table.attributes[rows]
        is_max = attributes & (LOG_APPEND_TIME_MASK | DELETE_HORIZON_MASK) != 0
        times = np.where(is_max, table.max_timestamp_ms[rows], table.base_timestamp_ms[rows])
        times = np.where(times < 0, _NO_TIME, times)
        is_data = (attributes & CONTROL_MASK == 0).astype(np.int64)
        self._fold([(table.producer_id[rows], times, is_data)])

    def _fold(self, more: list[tuple[Ints, Ints, Ints]]) -> None:
        """Merge rows to keep few: about as many as there are producers."""
        self._parts += [_by_producer(*each) for each in more]
        self._rows += sum(len(each[0]) for each in self._parts[-len(more) :])
        if self._rows > _FOLD_ROWS:
            self._parts = [self.columns()]
            self._rows = 0

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Return ascending producer ids, first times, and numbers of data batches."""
        if not self._parts:
            return (np.empty(0, np.int64),) * 3
        ids, times, batches = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        return _by_producer(ids, times, batches)


def _by_producer(ids: Ints, times: Ints, batches: Ints) -> tuple[Ints, Ints, Ints]:
    order = np.argsort(ids, kind="stable")
    unique, starts = np.unique(ids[order], return_index=True)
    return (
        unique,
        np.minimum.reduceat(times[order], starts),
        np.add.reduceat(batches[order], starts),
    )


def _joined(state: BulkState, seen: _SeenProducers, entries: Sequence[ProducerEntry]) -> Producers:
    """Merge the replayed state, the counts, and the producers that only a snapshot has."""
    columns, count = state.columns, state.columns.count
    ids, first_ms, batches = seen.columns()
    place = np.searchsorted(ids, columns.producer_id[:count])
    known = {*columns.producer_id[:count].tolist()}
    gone = np.array([each for each in entries if each.producer_id not in known], np.int64).reshape(
        -1, len(ProducerEntry._fields)
    )
    gone_count = len(gone)
    producer_id = np.concatenate((columns.producer_id[:count], gone[:, 0]))
    order = np.argsort(producer_id)
    found = Producers(
        producer_id=producer_id,
        first_ms=np.concatenate((first_ms[place], np.full(gone_count, _NO_TIME))),
        last_ms=np.concatenate((columns.timestamp_ms[:count], gone[:, 5])),
        batches=np.concatenate((batches[place], np.zeros(gone_count, np.int64))),
        cached=np.concatenate((columns.batches_count[:count], (gone[:, 3] >= 0).astype(np.int64))),
        is_open=np.concatenate((columns.is_open[:count], gone[:, 7] >= 0)),
        is_in_log=np.concatenate((np.ones(count, np.bool_), np.zeros(gone_count, np.bool_))),
    )
    return Producers._make(column[order] for column in found)


# --- counting -------------------------------------------------------------------------------------


def count_producers(partitions: Sequence[Producers], clock: Clock) -> Census:
    """Count the producers of one partition, or of several together."""
    live = [is_live(each, clock) for each in partitions]
    first_ms = _first_times(partitions)
    dated = first_ms[first_ms != _NO_TIME]
    hours = np.unique(dated // HOUR_MS, return_counts=True)[1]
    mean = None
    if len(dated):
        mean = round(len(dated) / max((int(dated.max()) - int(dated.min())) / HOUR_MS, 1), 1)
    live_count = sum(int(each.sum()) for each in live)
    entries_count = sum(len(each.producer_id) for each in partitions)
    is_new = (dated > clock.now_ms - HOUR_MS) & (dated <= clock.now_ms)
    return Census(
        producers_count=len(first_ms),
        entries_count=entries_count,
        live_count=live_count,
        expired_count=entries_count - live_count,
        open_transactions_count=sum(int(each.is_open.sum()) for each in partitions),
        single_batch_count=sum(int((each.batches == 1).sum()) for each in partitions),
        snapshot_only_count=sum(int((~each.is_in_log).sum()) for each in partitions),
        new_last_hour_count=int(is_new.sum()),
        new_per_hour_max=int(hours.max()) if len(hours) else None,
        new_per_hour_mean=mean,
        heap_bytes=sum(
            heap_bytes(each, is_known) for each, is_known in zip(partitions, live, strict=True)
        ),
    )


def is_live(producers: Producers, clock: Clock) -> NDArray[np.bool_]:
    """Return which producers have not expired (PROD-10)."""
    # Exact: the clock is no offset, and both are far from 2**63.
    return producers.is_open | (producers.last_ms > clock.now_ms - clock.expiration_ms)


def new_by_hour(partitions: Sequence[Producers]) -> list[tuple[int, int]]:
    """Return the starts of hours, in ms, and the number of ids whose first record is in each."""
    first_ms = _first_times(partitions)
    hours, counts = np.unique(first_ms[first_ms != _NO_TIME] // HOUR_MS, return_counts=True)
    return list(zip((hours * HOUR_MS).tolist(), counts.tolist(), strict=True))


def _first_times(partitions: Sequence[Producers]) -> Ints:
    """Return the first time of each producer id, over all partitions."""
    if not partitions:
        return np.empty(0, np.int64)
    ids = np.concatenate([each.producer_id for each in partitions])
    times = np.concatenate([each.first_ms for each in partitions])
    return _by_producer(ids, times, np.zeros(len(ids), np.int64))[1]


def heap_bytes(producers: Producers, is_known: NDArray[np.bool_]) -> int:
    """Estimate the heap bytes of the known producers of a partition in a broker."""
    count = int(is_known.sum())
    if not count:
        return 0
    buckets_count = MIN_BUCKETS
    while count > buckets_count * 3 // 4:
        buckets_count *= 2
    return (
        TABLE_HEADER_BYTES
        + BUCKET_BYTES * buckets_count
        + PRODUCER_BYTES * count
        + CACHED_BATCH_BYTES * int(producers.cached[is_known].sum())
        + OPEN_TRANSACTION_BYTES * int(producers.is_open[is_known].sum())
    )
