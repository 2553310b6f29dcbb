"""The history of a piece of log in bins: sums, producers, transactions.

A bin has all rows whose key has the same upper bits: `key >> width_bits`. The bins of a whole are
as narrow as the limit of their number allows, however it was joined. A piece has no more bins than
the whole at the same width, so no bin is wider than the bins of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.replay.producer_columns import group_rows, group_starts, spans_of
from storage.formats.control_record import COMMIT, NO_MARKER
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, MAX_SEQUENCE, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable

    EndedRows = NDArray[Any]
    Ints = NDArray[np.int64]
    Rows = Any  # NDArray of structured rows: as such, type checkers need seconds for each module


# -- the outcomes of a partition's transactions, in two bits each.
#
# They show whether other partitions ended the same transaction differently. This is possible for a
# transaction whose marker has a higher epoch than its data: no other transaction has that epoch.
# Version 2 always has such markers, older versions only if the coordinator fenced the producer
# (TXN-7).


WORD_BITS = 64
# A row for 64 epochs of one producer. Bit k is epoch 64 * word + k. By producer id and word.
ENDED_DTYPE = np.dtype(
    [("producer_id", "<i8"), ("word", "<i2"), ("committed", "<u8"), ("aborted", "<u8")]
)


class EndedEpochs(NamedTuple):
    """Transactions that a marker of a higher epoch ended: such an epoch ends one transaction only.

    One row each. `epoch` is the marker's.
    """

    producer_id: NDArray[np.int64]
    epoch: NDArray[np.int16]
    is_commit: NDArray[np.bool_]


def no_ended_rows() -> EndedRows:
    """Return the rows of a piece in which no such transaction ended."""
    return np.empty(0, ENDED_DTYPE)


def ended_rows(ended: EndedEpochs) -> EndedRows:
    """Pack ended transactions."""
    rows = np.zeros(len(ended.epoch), ENDED_DTYPE)
    rows["producer_id"] = ended.producer_id
    rows["word"] = ended.epoch // WORD_BITS
    bit = np.uint64(1) << (ended.epoch.astype(np.int64) % WORD_BITS).astype(np.uint64)
    rows["committed"] = np.where(ended.is_commit, bit, 0)
    rows["aborted"] = np.where(ended.is_commit, 0, bit)
    return _united(rows)


def join_ended(*parts: EndedRows) -> EndedRows:
    """Join the ended transactions of several pieces."""
    parts = tuple(part for part in parts if len(part))
    if len(parts) <= 1:
        return parts[0] if parts else no_ended_rows()
    return _united(np.concatenate(parts))


def _united(rows: EndedRows) -> EndedRows:
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows["word"], rows["producer_id"]))]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (np.diff(rows["producer_id"]) != 0) | (np.diff(rows["word"]) != 0)
    starts = np.flatnonzero(is_first)
    united = rows[starts]
    for name in ("committed", "aborted"):
        united[name] = np.bitwise_or.reduceat(rows[name], starts)
    return united


def epochs_of(words: NDArray[np.uint64], rows: EndedRows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return row and epoch of each bit that is set in `words`, one word per row."""
    bits = (words[:, None] >> np.arange(WORD_BITS, dtype=np.uint64)) & np.uint64(1)
    place, bit = np.nonzero(bits)
    return place, rows["word"][place].astype(np.int64) * WORD_BITS + bit


# -- spans


MAX_KEY_BITS = 63
MARKED_BINS = 8  # limit of bins before a sort, in multiples of the allowed number


class Layout(NamedTuple):
    """The columns of bins: sums, smallest and greatest values, each a number of columns."""

    sums: int
    lows: int
    highs: int
    max_bins: int

    @property
    def columns(self) -> int:
        """The number of columns of a row besides its key."""
        return self.sums + self.lows + self.highs


class Bins(NamedTuple):
    """Non-empty bins, by key. `values` has a row per bin and the columns of a Layout."""

    width_bits: int
    key: Ints
    values: Ints


def no_bins(layout: Layout) -> Bins:
    """Return empty bins."""
    return Bins(0, np.empty(0, np.int64), np.empty((0, layout.columns), np.int64))


def bin_rows(layout: Layout, key: Ints, columns: Sequence[Ints], width_bits: int = 0) -> Bins:
    """Put rows into bins. `key` and `columns` have a value per row.

    Args:
        layout: of `columns`, in its order.
        key: in any order, may be negative.
        columns: 64-bit numbers.
        width_bits: no bin is narrower.
    """
    if not len(key):
        return no_bins(layout)._replace(width_bits=width_bits)
    width_bits = _certain_width(key, layout.max_bins, width_bits)
    return _summed(layout, width_bits, key >> width_bits, columns)


def _certain_width(key: Ints, max_bins: int, width_bits: int) -> int:
    """Return a lower bound for the width of the bins, most often their exact width.

    It takes one mark per row in a short table. Sorting unordered keys and summing up useless bins
    would take much longer.
    """
    if len(key) <= max_bins:
        return width_bits
    low, high = int(key.min()), int(key.max())
    at_least = ((high - low) // (MARKED_BINS * max_bins)).bit_length()
    wide = max(width_bits, min(at_least, MAX_KEY_BITS))
    bins = key >> wide
    bins -= low >> wide
    is_used = np.zeros((high >> wide) - (low >> wide) + 1, np.bool_)
    is_used[bins] = True
    if np.count_nonzero(is_used) <= max_bins:
        return width_bits  # distant keys make this width too wide: a narrower width may do
    used = np.flatnonzero(is_used) + (low >> wide)
    while len(used) > max_bins and wide < MAX_KEY_BITS:
        used >>= 1
        used = used[np.flatnonzero(np.diff(used, prepend=used[0] - 1))]
        wide += 1
    return wide


def join_bins(layout: Layout, left: Bins, right: Bins) -> Bins:
    """Join the bins of two pieces."""
    if not len(left.key) or not len(right.key):
        return left if len(left.key) else right
    width_bits = max(left.width_bits, right.width_bits)
    keys = [each.key >> (width_bits - each.width_bits) for each in (left, right)]
    values = np.concatenate((left.values, right.values))
    return _summed(layout, width_bits, np.concatenate(keys), [*values.T])


def widened(layout: Layout, bins: Bins, max_bins: int) -> Bins:
    """Return the same contents in fewer bins."""
    if len(bins.key) <= max_bins:
        return bins
    fewer = layout._replace(max_bins=max_bins)
    return _summed(fewer, bins.width_bits, bins.key, [*bins.values.T])


def _summed(layout: Layout, width_bits: int, key: Ints, columns: Sequence[Ints]) -> Bins:
    if (key[1:] < key[:-1]).any():
        order = group_rows(key)
        # Some columns occur twice: a time is the least and the greatest of its row.
        sorted_columns = {id(each): each[order] for each in {id(c): c for c in columns}.values()}
        key, columns = key[order], [sorted_columns[id(each)] for each in columns]
    key, columns = _runs(layout, key, columns)
    while len(key) > layout.max_bins and width_bits < MAX_KEY_BITS:  # below 0 and above stay two
        # Widen by the certain minimum at once: a step at most halves the number of bins.
        step = min(((len(key) - 1) // layout.max_bins).bit_length(), MAX_KEY_BITS - width_bits)
        width_bits += step
        key, columns = _runs(layout, key >> step, columns)
    return Bins(width_bits, key, np.column_stack(columns))


def _runs(layout: Layout, key: Ints, columns: Sequence[Ints]) -> tuple[Ints, Sequence[Ints]]:
    """Join neighbours with the same key."""
    is_first = np.ones(len(key), np.bool_)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    if len(starts) == len(key):
        return key, columns
    summed = []
    for place, column in enumerate(columns):
        whole: np.ufunc = np.add
        if place >= layout.sums:
            whole = np.minimum if place < layout.sums + layout.lows else np.maximum
        summed.append(whole.reduceat(column, starts))
    return key[starts], summed


# -- the range and volume that each producer id has written in a piece of log.
#
# The column `irregular` counts batches whose sequence does not follow the previous batch of the
# same producer, or whose epoch is lower. Without any, no batch repeats the sequences of another
# batch.


PRODUCER_DTYPE = np.dtype(
    [
        ("producer_id", "<i8"),
        ("batches", "<i8"),
        ("records", "<i8"),
        ("bytes", "<i8"),
        ("transactional_batches", "<i8"),
        ("irregular", "<i8"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),
        ("first_timestamp_ms", "<i8"),
        ("last_timestamp_ms", "<i8"),  # the greatest
        ("first_epoch", "<i2"),
        ("last_epoch", "<i2"),
        ("first_sequence", "<i4"),
        ("next_sequence", "<i4"),
    ]
)
_SUMS = ("batches", "records", "bytes", "transactional_batches", "irregular")


def no_producers() -> Rows:
    """Return no producers."""
    return np.empty(0, PRODUCER_DTYPE)


def find_producers(table: HeaderTable, records: Ints) -> Rows:
    """Sum up the data batches of a table by producer id. `records` has a value per batch."""
    is_data = (table.magic >= MAGIC_V2) & (table.attributes & CONTROL_MASK == 0)
    is_data &= table.producer_id >= 0
    rows = np.flatnonzero(is_data)
    if not len(rows):
        return no_producers()
    if len(rows) == table.row_count:
        rows = group_rows(table.producer_id)
    else:
        rows = rows[group_rows(table.producer_id[rows])]
    ids = table.producer_id[rows]
    starts = group_starts(ids)
    lasts = np.append(starts[1:], len(rows)) - 1
    found = np.zeros(len(starts), PRODUCER_DTYPE)
    found["producer_id"] = ids[starts]
    found["batches"] = lasts - starts + 1
    times, epochs = table.max_timestamp_ms[rows], table.producer_epoch[rows]
    following = table.last_offset - table.base_offset
    following += table.base_sequence
    following += 1
    following &= MAX_SEQUENCE  # 0 follows the last sequence
    following, sequence = following[rows], table.base_sequence[rows]
    is_transactional = table.attributes & TRANSACTIONAL_MASK != 0
    for name, values in (
        ("records", records[rows]),
        ("bytes", table.batch_bytes[rows]),
        ("irregular", _irregular(ids, epochs, sequence, following)),
    ):
        found[name] = np.add.reduceat(values, starts)
    if is_transactional.any():
        counted = is_transactional[rows].astype(np.int64)
        found["transactional_batches"] = np.add.reduceat(counted, starts)
    first, last = rows[starts], rows[lasts]
    found["first_offset"], found["last_offset"] = table.base_offset[first], table.last_offset[last]
    found["first_timestamp_ms"] = times[starts]
    found["last_timestamp_ms"] = np.maximum.reduceat(times, starts)
    found["first_epoch"], found["last_epoch"] = epochs[starts], epochs[lasts]
    found["first_sequence"], found["next_sequence"] = sequence[starts], following[lasts]
    return found


def _irregular(
    ids: Ints, epochs: NDArray[np.int16], sequence: NDArray[np.int32], following: Ints
) -> Ints:
    is_odd = np.zeros(len(ids), np.int64)
    same = ids[1:] == ids[:-1]
    skips = (epochs[1:] == epochs[:-1]) & (sequence[1:] != following[:-1])
    is_odd[1:] = same & (skips | (epochs[1:] < epochs[:-1]))
    return is_odd


def united_ids(left: Ints, right: Ints) -> Ints:
    """Return the ids of both, each once. Both ascend."""
    if np.array_equal(left, right):
        return left
    ids = np.sort(np.concatenate((left, right)))
    return ids[group_starts(ids)]


def join_producers(left: Rows, right: Rows) -> Rows:
    """Join the producers of two neighbouring pieces."""
    if not len(left) or not len(right):
        return left if len(left) else right
    ids = united_ids(left["producer_id"], right["producer_id"])
    joined = np.zeros(len(ids), PRODUCER_DTYPE)
    at_left = np.searchsorted(ids, left["producer_id"])
    at_right = np.searchsorted(ids, right["producer_id"])
    joined[at_right] = right
    has_both = np.isin(at_left, at_right, assume_unique=True)
    after = joined[at_left].copy()
    joined[at_left] = left
    both = at_left[has_both]
    before, after = left[has_both], after[has_both]
    for name in _SUMS:
        joined[name][both] = before[name] + after[name]
    is_same = before["last_epoch"] == after["first_epoch"]
    is_odd = is_same & (before["next_sequence"] != after["first_sequence"])
    joined["irregular"][both] += is_odd | (after["first_epoch"] < before["last_epoch"])
    for name in ("last_offset", "last_epoch", "next_sequence"):
        joined[name][both] = after[name]
    joined["last_timestamp_ms"][both] = np.maximum(
        before["last_timestamp_ms"], after["last_timestamp_ms"]
    )
    return joined


# -- transactions of a piece of log: each aborted or open one, and sums of the others.
#
# A transaction is everything that a producer writes up to its next end marker (RC-5, TXN-1). The
# first batches of a piece may belong to a transaction of the previous piece. So for each producer
# the batches up to its first marker (`head`) and after its last (`tail`) are kept separately until
# the neighbours are known. Everything in between is final.
#
# Committed transactions are summed up by their first offset in at most MAX_COMMITTED bins. While
# they are fewer, each has a bin of its own with all its data.


MAX_COMMITTED = 2000
_PART = [
    ("batches", "<i8"),
    ("records", "<i8"),
    ("bytes", "<i8"),
    ("first_offset", "<i8"),
    ("last_offset", "<i8"),
    ("first_timestamp_ms", "<i8"),
    ("last_timestamp_ms", "<i8"),
    ("segment", "<i8"),  # place of the first batch: base offset, and position
    ("pos", "<i8"),
    ("epoch", "<i2"),  # of the last batch
]
PART_DTYPE = np.dtype(_PART)
MARKER_DTYPE = np.dtype(
    [("kind", "i1"), ("epoch", "<i2"), ("offset", "<i8"), ("timestamp_ms", "<i8")]
)
# `batches` is 0 if a marker ended nothing. `marker.kind` is NO_MARKER if there is none.
SPAN_DTYPE = np.dtype([("producer_id", "<i8"), ("data", PART_DTYPE), ("marker", MARKER_DTYPE)])
EDGE_DTYPE = np.dtype([*SPAN_DTYPE.descr, ("tail", PART_DTYPE)])

# Columns of a bin of committed transactions.
COMMITTED_SUMS = ("transactions", "batches", "records", "bytes")
COMMITTED_LOWS = ("first_offset", "first_timestamp_ms", "producer_id", "epoch", "segment", "pos")
COMMITTED_HIGHS = ("marker_offset", "marker_timestamp_ms", "last_producer_id", "last_epoch")
COMMITTED_COLUMNS = (*COMMITTED_SUMS, *COMMITTED_LOWS, *COMMITTED_HIGHS)
COMMITTED = Layout(
    len(COMMITTED_SUMS), len(COMMITTED_LOWS), len(COMMITTED_HIGHS), max_bins=MAX_COMMITTED
)


class Spans(NamedTuple):
    """The transactions of a piece.

    Attributes:
        edges: rows of EDGE_DTYPE by producer id: the head with the marker that ends it, and the
            tail, which is empty until the first marker.
        aborted: rows of SPAN_DTYPE, by the offset of the marker.
        committed: bins by first offset.
        ended: rows of ENDED_DTYPE: the outcomes of all transactions with an epoch of their own.
    """

    edges: Rows
    aborted: Rows
    committed: Bins
    ended: Rows


class SpanEvents(NamedTuple):
    """Transactional data batches and end markers in log order. `marker` is NO_MARKER for data."""

    producer_id: Ints
    epoch: NDArray[np.int16]
    marker: NDArray[np.int8]
    base_offset: Ints
    last_offset: Ints
    records: Ints
    batch_bytes: Ints
    timestamp_ms: Ints
    segment: Ints
    pos: Ints


def no_spans() -> Spans:
    """Return no transactions."""
    return Spans(
        edges=np.empty(0, EDGE_DTYPE),
        aborted=np.empty(0, SPAN_DTYPE),
        committed=no_bins(COMMITTED),
        ended=no_ended_rows(),
    )


def find_spans(events: SpanEvents) -> Spans:
    """Find the transactions of some events, as if nothing were before them."""
    if not len(events.producer_id):
        return no_spans()
    order = group_rows(events.producer_id)
    events = SpanEvents._make(column[order] for column in events)
    starts, ends, kind = spans_of(events.producer_id, events.marker)
    spans = np.zeros(len(starts), SPAN_DTYPE)
    spans["producer_id"] = events.producer_id[starts]
    spans["data"] = _parts(events, starts, ends - (kind != NO_MARKER))
    has = np.flatnonzero(kind != NO_MARKER)
    at = ends[has]
    for name, values in (
        ("kind", kind[has]),
        ("epoch", events.epoch[at]),
        ("offset", events.base_offset[at]),
        ("timestamp_ms", events.timestamp_ms[at]),
    ):
        spans["marker"][name][has] = values
    firsts = group_starts(spans["producer_id"])
    lasts = np.append(firsts[1:], len(spans)) - 1
    edges = np.zeros(len(firsts), EDGE_DTYPE)
    for name in SPAN_DTYPE.names or ():
        edges[name] = spans[name][firsts]
    has_tail = (lasts > firsts) & (kind[lasts] == NO_MARKER)
    edges["tail"][has_tail] = spans["data"][lasts[has_tail]]
    is_between = np.ones(len(spans), np.bool_)
    is_between[firsts] = False
    is_between[lasts[kind[lasts] == NO_MARKER]] = False
    settled = _settled(spans[is_between])
    return Spans(
        edges=edges, aborted=settled.aborted, committed=settled.committed, ended=settled.ended
    )


def _parts(events: SpanEvents, starts: Ints, lasts: Ints) -> Rows:
    """Sum up batches [start, last]. Empty if the last is before the start."""
    parts = np.zeros(len(starts), PART_DTYPE)
    has = np.flatnonzero(lasts >= starts)
    first, last = starts[has], lasts[has]
    parts["batches"][has] = last - first + 1
    for name, values in (("records", events.records), ("bytes", events.batch_bytes)):
        sums = np.concatenate(([0], np.cumsum(values)))
        parts[name][has] = sums[last + 1] - sums[first]
    parts["first_offset"][has] = events.base_offset[first]
    parts["last_offset"][has] = events.last_offset[last]
    parts["first_timestamp_ms"][has] = events.timestamp_ms[first]
    parts["last_timestamp_ms"][has] = events.timestamp_ms[last]
    parts["segment"][has] = events.segment[first]
    parts["pos"][has] = events.pos[first]
    parts["epoch"][has] = events.epoch[last]
    return parts


class _Settled(NamedTuple):
    """Spans that markers have ended, by outcome. See `Spans`."""

    aborted: Rows
    committed: Bins
    ended: Rows


def _settled(spans: Rows) -> _Settled:
    """Split spans by outcome. A marker that ends nothing is no transaction."""
    spans = spans[spans["data"]["batches"] > 0]
    is_commit = spans["marker"]["kind"] == COMMIT
    raised = spans[spans["marker"]["epoch"] > spans["data"]["epoch"]]
    epochs = EndedEpochs(
        producer_id=raised["producer_id"],
        epoch=raised["marker"]["epoch"],
        is_commit=raised["marker"]["kind"] == COMMIT,
    )
    return _Settled(
        _by_marker(spans[~is_commit]), _committed_bins(spans[is_commit]), ended_rows(epochs)
    )


def _by_marker(spans: Rows) -> Rows:
    order = (spans["data"]["first_offset"], spans["producer_id"], spans["marker"]["offset"])
    return spans[np.lexsort(order)]


def _committed_bins(spans: Rows) -> Bins:
    data, marker = spans["data"], spans["marker"]
    columns = [
        *(np.ones(len(spans), np.int64), data["batches"], data["records"], data["bytes"]),
        *(data["first_offset"], data["first_timestamp_ms"], spans["producer_id"]),
        *(marker["epoch"], data["segment"], data["pos"]),
        *(marker["offset"], marker["timestamp_ms"], spans["producer_id"], marker["epoch"]),
    ]
    return bin_rows(COMMITTED, data["first_offset"], columns)


def join_spans(left: Spans, right: Spans) -> Spans:
    """Join the transactions of two neighbouring pieces."""
    if not len(left.edges) or not len(right.edges):  # no transactional producers in one piece
        return left if len(left.edges) else right
    ids = united_ids(left.edges["producer_id"], right.edges["producer_id"])
    has_left, before = _spread(left.edges, ids)
    has_right, after = _spread(right.edges, ids)
    edges: Rows = np.where(has_left, before, after)
    both = np.flatnonzero(has_left & has_right)
    before, after = before[both], after[both]
    joined = before.copy()
    is_marked = before["marker"]["kind"] != NO_MARKER  # the tail is open at the seam
    ends = after["marker"]["kind"] != NO_MARKER
    opened = _put_together(np.where(is_marked, before["tail"], before["data"]), after["data"])
    # Without a marker before the seam, the head continues.
    grows = ~is_marked
    joined["data"][grows] = opened[grows]
    joined["marker"][grows] = after["marker"][grows]
    joined["tail"][grows] = after["tail"][grows]
    still_open = is_marked & ~ends
    joined["tail"][still_open] = opened[still_open]
    is_final = is_marked & ends
    joined["tail"][is_final] = after["tail"][is_final]
    edges[both] = joined
    final = np.zeros(int(is_final.sum()), SPAN_DTYPE)
    final["producer_id"] = ids[both][is_final]
    final["data"], final["marker"] = opened[is_final], after["marker"][is_final]
    settled = _settled(final)
    parts = [each for each in (left.aborted, right.aborted, settled.aborted) if len(each)]
    committed = join_bins(COMMITTED, settled.committed, right.committed)
    return Spans(
        edges=edges,
        aborted=_by_marker(np.concatenate(parts)) if parts else left.aborted,
        committed=join_bins(COMMITTED, left.committed, committed),
        ended=join_ended(left.ended, right.ended, settled.ended),
    )


def _spread(rows: Rows, ids: Ints) -> tuple[NDArray[np.bool_], Rows]:
    spread = np.zeros(len(ids), EDGE_DTYPE)
    has = np.zeros(len(ids), np.bool_)
    places = np.searchsorted(ids, rows["producer_id"])
    spread[places], has[places] = rows, True
    return has, spread


def _put_together(first: Rows, second: Rows) -> Rows:
    joined: Rows = np.where(first["batches"] > 0, first, second)
    both = np.flatnonzero((first["batches"] > 0) & (second["batches"] > 0))
    for name in ("batches", "records", "bytes"):
        joined[name][both] = first[name][both] + second[name][both]
    for name in ("last_offset", "last_timestamp_ms", "epoch"):
        joined[name][both] = second[name][both]
    return joined


class EndedSpans(NamedTuple):
    """The transactions of a whole log, with nothing before it.

    Attributes:
        open: rows of SPAN_DTYPE without a marker, by first offset.
        aborted, committed, ended: as in `Spans`.
    """

    open: Rows
    aborted: Rows
    committed: Bins
    ended: Rows


def settle(spans: Spans) -> EndedSpans:
    """Settle the spans at the beginning: nothing is before the log."""
    edges = spans.edges
    if not len(edges):  # no producer has written in a transaction
        return EndedSpans(
            open=np.empty(0, SPAN_DTYPE),
            aborted=spans.aborted,
            committed=spans.committed,
            ended=spans.ended,
        )
    is_marked = edges["marker"]["kind"] != NO_MARKER
    heads = np.zeros(int(is_marked.sum()), SPAN_DTYPE)
    for name in SPAN_DTYPE.names or ():
        heads[name] = edges[name][is_marked]
    settled = _settled(heads)
    opened = np.zeros(len(edges), SPAN_DTYPE)
    opened["producer_id"] = edges["producer_id"]
    opened["data"] = np.where(is_marked, edges["tail"], edges["data"])
    opened = opened[opened["data"]["batches"] > 0]
    return EndedSpans(
        open=opened[np.argsort(opened["data"]["first_offset"], kind="stable")],
        aborted=_by_marker(np.concatenate((spans.aborted, settled.aborted))),
        committed=join_bins(COMMITTED, spans.committed, settled.committed),
        ended=join_ended(spans.ended, settled.ended),
    )
