"""What each producer id has written in a piece of log: from where to where, and how much.

`irregular` counts batches whose sequence does not follow that of the batch before of the same
producer, or whose epoch is lower: where there is none, no batch repeats another one's sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.replay.producer_columns import group_rows, group_starts
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, MAX_SEQUENCE, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Rows = Any  # NDArray of structured rows: as such, type checkers need seconds for each module

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
    """Return those of nothing."""
    return np.empty(0, PRODUCER_DTYPE)


def find_producers(table: HeaderTable, records: Ints) -> Rows:
    """Sum up the data batches of a table by producer id; `records`: of each batch."""
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
    following &= MAX_SEQUENCE  # behind the last one 0 comes
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
    """Return the ids of both, each once; both ascend."""
    if np.array_equal(left, right):
        return left
    ids = np.sort(np.concatenate((left, right)))
    return ids[group_starts(ids)]


def join_producers(left: Rows, right: Rows) -> Rows:
    """Join those of two neighbouring pieces."""
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
