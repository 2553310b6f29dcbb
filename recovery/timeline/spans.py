"""Transactions of a piece of log: all that were aborted, or are open, by themselves; others summed.

A transaction is what a producer has written up to its next end marker (RC-5, TXN-1). What a piece
begins with may belong to a transaction of the piece before: of each producer the batches up to its
first marker (`head`) and those behind its last one (`tail`) are kept apart until the neighbours are
known. Between them all is final.

Committed transactions are summed up by their first offset in at most MAX_COMMITTED bins: while they
are fewer, each has a bin of its own, and is there whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.replay.producer_columns import group_rows, group_starts, spans_of
from recovery.timeline.bins import Bins, Layout, bin_rows, join_bins, no_bins
from recovery.timeline.ended_epochs import EndedEpochs, ended_rows, join_ended, no_ended_rows
from recovery.timeline.producers import united_ids
from storage.formats.control_record import COMMIT, NO_MARKER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Rows = Any  # NDArray of structured rows: as such, type checkers need seconds for each module

MAX_COMMITTED = 2000
_PART = [
    ("batches", "<i8"),
    ("records", "<i8"),
    ("bytes", "<i8"),
    ("first_offset", "<i8"),
    ("last_offset", "<i8"),
    ("first_timestamp_ms", "<i8"),
    ("last_timestamp_ms", "<i8"),
    ("segment", "<i8"),  # where the first batch lies: base offset, and position
    ("pos", "<i8"),
    ("epoch", "<i2"),  # of the last batch
]
PART_DTYPE = np.dtype(_PART)
MARKER_DTYPE = np.dtype(
    [("kind", "i1"), ("epoch", "<i2"), ("offset", "<i8"), ("timestamp_ms", "<i8")]
)
# `batches` is 0 where a marker ended nothing; `marker.kind` NO_MARKER where there is none.
SPAN_DTYPE = np.dtype([("producer_id", "<i8"), ("data", PART_DTYPE), ("marker", MARKER_DTYPE)])
EDGE_DTYPE = np.dtype([*SPAN_DTYPE.descr, ("tail", PART_DTYPE)])

# Of a bin of committed transactions.
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
            tail, which is empty as long as there was no marker.
        aborted: rows of SPAN_DTYPE, by the offset of the marker.
        committed: bins by first offset.
        ended: rows of ENDED_DTYPE: how those ended, committed ones too, whose epoch is no other's.
    """

    edges: Rows
    aborted: Rows
    committed: Bins
    ended: Rows


class SpanEvents(NamedTuple):
    """Transactional data batches and end markers in log order; `marker` is NO_MARKER for data."""

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
    """Return those of nothing."""
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
    """Sum up batches [start, last]; empty where the last one is before the start."""
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
    """Spans that markers have ended, by how they did; see `Spans`."""

    aborted: Rows
    committed: Bins
    ended: Rows


def _settled(spans: Rows) -> _Settled:
    """Part them; a marker that ends nothing is no transaction."""
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
    """Join those of two neighbouring pieces."""
    if not len(left.edges) or not len(right.edges):  # then it has no transactional producers
        return left if len(left.edges) else right
    ids = united_ids(left.edges["producer_id"], right.edges["producer_id"])
    has_left, before = _spread(left.edges, ids)
    has_right, after = _spread(right.edges, ids)
    edges: Rows = np.where(has_left, before, after)
    both = np.flatnonzero(has_left & has_right)
    before, after = before[both], after[both]
    joined = before.copy()
    is_marked = before["marker"]["kind"] != NO_MARKER  # what is open at the seam is the tail
    ends = after["marker"]["kind"] != NO_MARKER
    opened = _put_together(np.where(is_marked, before["tail"], before["data"]), after["data"])
    # No marker before the seam: the head goes on.
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
    """The transactions of a whole log: nothing is before it.

    Attributes:
        open: rows of SPAN_DTYPE without a marker, by first offset.
        aborted, committed, ended: as in `Spans`.
    """

    open: Rows
    aborted: Rows
    committed: Bins
    ended: Rows


def settle(spans: Spans) -> EndedSpans:
    """Take what the log begins with for its beginning."""
    edges = spans.edges
    if not len(edges):  # nobody has written in a transaction
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
