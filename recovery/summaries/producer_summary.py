"""The counts, epochs and transactions of each producer id in a piece of log.

A marker may end batches of the previous piece, and a marker of the next piece may end batches of
this piece. So a piece keeps per producer id the batches before its first marker (`head`), its kind,
and the batches after its last marker (`tail`). Everything in between is final. The counts assume
that nothing is before the piece. A join corrects them at the seam. Rules: RC-5 (a batch has the
outcome of its producer's next marker), PRD-3 (epochs never fall), TXN-1 and TXN-2. A transaction
opens with the first batch after a marker, and a marker without open transaction completes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.replay.producer_columns import group_rows, group_starts, spans_of
from recovery.timeline.spans import EndedEpochs
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    # Rows of PRODUCER_DTYPE or of one of its parts.
    Rows = Any  # NDArray of structured rows: as such, type checkers need seconds for each module


# Consecutive transactional batches of one producer. All is 0 if there are none.
PART_DTYPE = np.dtype(
    [
        ("batches", "<i8"),
        ("records", "<i8"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),
        ("first_timestamp_ms", "<i8"),
        ("last_timestamp_ms", "<i8"),
        ("epoch", "<i2"),  # of the last batch
    ]
)
_NO_PART = np.zeros(1, PART_DTYPE)
MARKER_DTYPE = np.dtype(
    [("kind", "i1"), ("epoch", "<i2"), ("offset", "<i8"), ("timestamp_ms", "<i8")]
)
PRODUCER_DTYPE = np.dtype(
    [
        ("producer_id", "<i8"),
        # data batches, transactional or not
        ("batches", "<i8"),
        ("records", "<i8"),
        ("bytes", "<i8"),
        ("transactional_batches", "<i8"),
        # transactions that ended here, and their batches
        ("committed_transactions", "<i8"),
        ("aborted_transactions", "<i8"),
        ("committed_batches", "<i8"),
        ("committed_records", "<i8"),
        ("aborted_batches", "<i8"),
        ("aborted_records", "<i8"),
        ("empty_markers", "<i8"),  # TXO-2
        ("epoch_regressions", "<i8"),
        ("late_batches", "<i8"),  # regressions after a marker: data after the end
        ("duplicate_batches", "<i8"),  # PRD-2, filled in by the caller that follows sequences
        # first and last data batch or marker
        ("first_offset", "<i8"),
        ("first_epoch", "<i2"),
        ("first_is_marker", "?"),
        ("last_offset", "<i8"),
        ("last_epoch", "<i2"),
        ("last_is_marker", "?"),
        ("last_timestamp_ms", "<i8"),
        ("first_data_epoch", "<i2"),  # -1 without data
        ("head", PART_DTYPE),
        ("first_marker", MARKER_DTYPE),
        ("tail", PART_DTYPE),
        ("last_marker", MARKER_DTYPE),
        # the last marker that ended a transaction with data, and the last time in that data
        ("last_end", MARKER_DTYPE),
        ("last_end_data_timestamp_ms", "<i8"),
    ]
)
SUMS = tuple(PRODUCER_DTYPE.names or ())[1:15]


class ProducerEvents(NamedTuple):
    """Data batches and end markers that have a producer id, in log order.

    `marker` is NO_MARKER for data. `timestamp_ms` is the batch's maximum.
    """

    producer_id: Ints
    epoch: NDArray[np.int16]
    is_transactional: Flags
    marker: NDArray[np.int8]
    base_offset: Ints
    last_offset: Ints
    records_count: Ints
    batch_bytes: Ints
    timestamp_ms: Ints


class Regressions(NamedTuple):
    """Batches and markers with a lower epoch than before, of the same producer (PRD-3)."""

    offset: Ints
    producer_id: Ints
    expected: NDArray[np.int16]
    found: NDArray[np.int16]
    is_late: Flags  # data after a marker with a higher epoch


class ProducersFound(NamedTuple):
    """Producers of a piece, with regressions and ended epochs."""

    rows: Rows
    regressions: Regressions
    ended: EndedEpochs


def no_producers() -> Rows:
    """Return the rows of a piece without producers."""
    return np.empty(0, PRODUCER_DTYPE)


def pending(rows: Rows) -> Rows:
    """Return the open batches at the end, a PART_DTYPE row per producer."""
    has_marker = rows["first_marker"]["kind"] != NO_MARKER
    return np.where(has_marker, rows["tail"], rows["head"])


def summarize_producers(events: ProducerEvents) -> ProducersFound:
    """Summarize a piece from its batches."""
    order = group_rows(events.producer_id) if len(events.producer_id) else np.empty(0, np.int64)
    events = ProducerEvents._make(column[order] for column in events)
    starts = group_starts(events.producer_id)
    rows = np.zeros(len(starts), PRODUCER_DTYPE)
    if not len(starts):
        return ProducersFound(rows, _no_regressions(), _no_ended())
    lasts = np.append(starts[1:], len(order)) - 1
    is_data = events.marker == NO_MARKER
    rows["producer_id"] = events.producer_id[starts]
    for name, values in (
        ("batches", is_data.astype(np.int64)),
        ("records", np.where(is_data, events.records_count, 0)),
        ("bytes", np.where(is_data, events.batch_bytes, 0)),
        ("transactional_batches", (is_data & events.is_transactional).astype(np.int64)),
    ):
        rows[name] = np.add.reduceat(values, starts)
    for side, places in (("first", starts), ("last", lasts)):
        rows[f"{side}_epoch"] = events.epoch[places]
        rows[f"{side}_is_marker"] = ~is_data[places]
    rows["first_offset"] = events.base_offset[starts]
    rows["last_offset"] = events.last_offset[lasts]
    rows["last_timestamp_ms"] = np.maximum.reduceat(events.timestamp_ms, starts)
    rows["first_data_epoch"] = _first_data_epoch(events.epoch, is_data, starts)
    regressions = _find_regressions(events, starts, is_data)
    group = np.searchsorted(rows["producer_id"], regressions.producer_id)
    rows["epoch_regressions"] = np.bincount(group, minlength=len(rows))
    rows["late_batches"] = np.bincount(group[regressions.is_late], minlength=len(rows))
    return ProducersFound(rows, regressions, _count_transactions(events, rows))


def _first_data_epoch(epoch: NDArray[np.int16], is_data: Flags, starts: Ints) -> Ints:
    places = np.where(is_data, np.arange(len(epoch)), len(epoch))
    first = np.minimum.reduceat(places, starts)
    return np.where(first < len(epoch), epoch[np.minimum(first, len(epoch) - 1)], -1)


def _find_regressions(events: ProducerEvents, starts: Ints, is_data: Flags) -> Regressions:
    before = np.roll(events.epoch, 1)
    is_lower = events.epoch < before
    is_lower[starts] = False
    places = np.flatnonzero(is_lower)
    return Regressions(
        offset=events.base_offset[places],
        producer_id=events.producer_id[places],
        expected=before[places],
        found=events.epoch[places],
        is_late=is_data[places] & ~is_data[places - 1],
    )


def _no_regressions() -> Regressions:
    none = np.empty(0, np.int64)
    epochs = np.empty(0, np.int16)
    return Regressions(
        offset=none, producer_id=none, expected=epochs, found=epochs, is_late=np.empty(0, np.bool_)
    )


def _no_ended() -> EndedEpochs:
    return EndedEpochs(np.empty(0, np.int64), np.empty(0, np.int16), np.empty(0, np.bool_))


def _count_transactions(grouped: ProducerEvents, rows: Rows) -> EndedEpochs:
    """Fill in the transaction columns of rows, from events grouped by producer."""
    is_marker = grouped.marker != NO_MARKER
    wanted = np.flatnonzero(is_marker | grouped.is_transactional)
    if not len(wanted):
        return _no_ended()
    events = ProducerEvents._make(column[wanted] for column in grouped)
    starts, ends, kind = spans_of(events.producer_id, events.marker)
    parts = _parts(events, starts, ends - (kind != NO_MARKER))
    ids = events.producer_id[starts]
    firsts = group_starts(ids)
    finals = np.append(firsts[1:], len(ids)) - 1
    slot = np.searchsorted(rows["producer_id"], ids)
    _add_ended(rows, slot, parts, kind)
    markers = np.zeros(len(ids), MARKER_DTYPE)
    has = np.flatnonzero(kind != NO_MARKER)
    markers["kind"][has], markers["epoch"][has] = kind[has], events.epoch[ends[has]]
    markers["offset"][has] = events.base_offset[ends[has]]
    markers["timestamp_ms"][has] = events.timestamp_ms[ends[has]]
    owner = slot[firsts]
    rows["head"][owner] = parts[firsts]
    rows["first_marker"][owner] = markers[firsts]
    is_open = kind[finals] == NO_MARKER
    has_tail = is_open & (finals > firsts)
    rows["tail"][owner[has_tail]] = parts[finals[has_tail]]
    last = np.where(is_open, finals - 1, finals)
    has_last = last >= firsts
    rows["last_marker"][owner[has_last]] = markers[last[has_last]]
    is_end = (parts["batches"] > 0) & (kind != NO_MARKER)
    ends_at = np.flatnonzero(is_end)  # ascending by producer: the last end of each stays
    rows["last_end"][slot[ends_at]] = markers[ends_at]
    rows["last_end_data_timestamp_ms"][slot[ends_at]] = parts["last_timestamp_ms"][ends_at]
    is_unique = is_end & (markers["epoch"] > parts["epoch"])
    return EndedEpochs(ids[is_unique], markers["epoch"][is_unique], kind[is_unique] == COMMIT)


def _parts(events: ProducerEvents, starts: Ints, lasts: Ints) -> Rows:
    """Sum up batches [start, last]. Empty if the last is before the start."""
    parts = np.zeros(len(starts), PART_DTYPE)
    has = np.flatnonzero(lasts >= starts)
    first, last = starts[has], lasts[has]
    sums = np.concatenate(([0], np.cumsum(events.records_count)))
    parts["batches"][has] = last - first + 1
    parts["records"][has] = sums[last + 1] - sums[first]
    parts["first_offset"][has] = events.base_offset[first]
    parts["last_offset"][has] = events.last_offset[last]
    parts["first_timestamp_ms"][has] = events.timestamp_ms[first]
    parts["last_timestamp_ms"][has] = events.timestamp_ms[last]
    parts["epoch"][has] = events.epoch[last]
    return parts


def _add_ended(rows: Rows, slot: Ints, parts: Rows, kind: NDArray[np.int8]) -> None:
    """Count `parts` as ended by markers of a kind, for the producers in `slot`."""
    is_transaction = parts["batches"] > 0
    for name, value in (("committed", COMMIT), ("aborted", ABORT)):
        ended = np.flatnonzero(is_transaction & (kind == value))
        np.add.at(rows[f"{name}_transactions"], slot[ended], 1)
        np.add.at(rows[f"{name}_batches"], slot[ended], parts["batches"][ended])
        np.add.at(rows[f"{name}_records"], slot[ended], parts["records"][ended])
    empty = np.flatnonzero(~is_transaction & (kind != NO_MARKER))
    np.add.at(rows["empty_markers"], slot[empty], 1)


def join_producers(left: Rows, right: Rows) -> ProducersFound:
    """Join the producers of two neighbouring pieces. Return also what the seam adds."""
    if not len(left) or not len(right):
        rows: Rows = left if len(left) else right
        return ProducersFound(rows, _no_regressions(), _no_ended())
    ids = np.union1d(left["producer_id"], right["producer_id"])
    has_left, before = _spread(left, ids)
    has_right, after = _spread(right, ids)
    rows = np.where(has_left, before, after)
    both = np.flatnonzero(has_left & has_right)
    before, after = before[both], after[both]
    joined = before.copy()
    for name in SUMS:
        joined[name] += after[name]
    for name in ("last_offset", "last_epoch", "last_is_marker"):
        joined[name] = after[name]
    joined["last_timestamp_ms"] = np.maximum(
        before["last_timestamp_ms"], after["last_timestamp_ms"]
    )
    no_data = before["batches"] == 0
    joined["first_data_epoch"][no_data] = after["first_data_epoch"][no_data]
    ended = _join_transactions(before, after, joined)
    regressions = _seam_regressions(before, after)
    joined["epoch_regressions"] += after["first_epoch"] < before["last_epoch"]
    joined["late_batches"][np.searchsorted(ids[both], regressions.producer_id)] += (
        regressions.is_late
    )
    rows[both] = joined
    return ProducersFound(rows, regressions, ended)


def _spread(rows: Rows, ids: Ints) -> tuple[Flags, Rows]:
    spread = np.zeros(len(ids), PRODUCER_DTYPE)
    has = np.zeros(len(ids), np.bool_)
    places = np.searchsorted(ids, rows["producer_id"])
    spread[places], has[places] = rows, True
    return has, spread


def _seam_regressions(before: Rows, after: Rows) -> Regressions:
    lower = np.flatnonzero(after["first_epoch"] < before["last_epoch"])
    return Regressions(
        offset=after["first_offset"][lower],
        producer_id=after["producer_id"][lower],
        expected=before["last_epoch"][lower],
        found=after["first_epoch"][lower],
        is_late=before["last_is_marker"][lower] & ~after["first_is_marker"][lower],
    )


def _join_transactions(before: Rows, after: Rows, joined: Rows) -> EndedEpochs:
    """Resolve the open batches at the seam, for producers in both pieces."""
    opened = pending(before)
    marker = after["first_marker"]
    has_left = before["first_marker"]["kind"] != NO_MARKER
    has_right = marker["kind"] != NO_MARKER
    is_ended = (opened["batches"] > 0) & has_right
    kind = np.where(is_ended, marker["kind"], NO_MARKER)
    # With batches of its own in the head, the right piece has already counted the transaction.
    is_counted = after["head"]["batches"] > 0
    _add_ended(joined, np.arange(len(joined)), opened, kind)
    for name, value in (("committed", COMMIT), ("aborted", ABORT)):
        joined[f"{name}_transactions"] -= is_counted & (kind == value)
    joined["empty_markers"] -= is_ended & ~is_counted
    together = _put_together(before["head"], after["head"])
    joined["head"] = np.where(has_left, before["head"], together)
    joined["first_marker"] = np.where(has_left, before["first_marker"], marker)
    tail = np.where(has_left, _put_together(before["tail"], after["head"]), before["tail"])
    joined["tail"] = np.where(has_right, after["tail"], tail)
    joined["last_marker"] = np.where(has_right, after["last_marker"], before["last_marker"])
    _join_ends(before, after, joined, np.where(is_ended & ~is_counted, opened, _NO_PART))
    is_unique = is_ended & ~is_counted & (marker["epoch"] > opened["epoch"])
    return EndedEpochs(
        joined["producer_id"][is_unique], marker["epoch"][is_unique], kind[is_unique] == COMMIT
    )


def _join_ends(before: Rows, after: Rows, joined: Rows, at_seam: Rows) -> None:
    """Set the last transaction that ended: in the right piece, at the seam, else in the left."""
    has_right = after["last_end"]["kind"] != NO_MARKER
    has_seam = ~has_right & (at_seam["batches"] > 0)
    for name, seam in (
        ("last_end", after["first_marker"]),
        ("last_end_data_timestamp_ms", at_seam["last_timestamp_ms"]),
    ):
        joined[name] = np.where(has_seam, seam, before[name])
        joined[name] = np.where(has_right, after[name], joined[name])


def _put_together(first: Rows, second: Rows) -> Rows:
    """Join two rows of batches. The second follows the first."""
    joined: Rows = np.where(first["batches"] > 0, first, second)
    both = (first["batches"] > 0) & (second["batches"] > 0)
    for name in ("batches", "records"):
        joined[name][both] += second[name][both]
    for name in ("last_offset", "last_timestamp_ms", "epoch"):
        joined[name][both] = second[name][both]
    return joined
