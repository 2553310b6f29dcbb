"""Records that say the same as another one a short time before.

All records are taken in order of time, then of partition and offset. One is suspected of being a
repeat if there is an earlier one in that order, not longer ago than the window, with the same key,
value and headers, and not of the same session: of another producer id or epoch, or one of both was
written without idempotence. (Within a session a broker keeps retries out.) Of several such records
the latest is its first copy. Where ids are compared instead, sessions do not matter.

Records without a timestamp (-1, format v0) are all of one time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.duplicates.rows import (
    ID_RECORD_DTYPE,
    PAIR_KEYS,
    RECORD_DTYPE,
    RECORD_KEYS,
    pair_dtype,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.duplicates.record_digests import Digester, Digests
    from recovery.duplicates.scan import DecodedBatches, DecodedRecords
    from recovery.duplicates.spill import Rows, Sorter, SpillSpace

RECORDS_SHARE = 1 / 2  # of the memory
PAIRS_SHARE = 1 / 8


def record_sorter(space: SpillSpace, *, by_id: bool) -> Sorter:
    """Return what takes the records, as `record_rows` gives them."""
    dtype = ID_RECORD_DTYPE if by_id else RECORD_DTYPE
    return space.sorter(dtype, RECORD_KEYS, RECORDS_SHARE)


def record_rows(
    decoded: DecodedBatches | DecodedRecords,
    outcome: NDArray[np.int8],
    digester: Digester,
    directory: int,
) -> Rows:
    """Turn decoded records into rows; `outcome` has a code per batch of the part."""
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
    """Find the repeats; the result has a row of `pair_dtype` per repeat, by directory and offset.

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
            # The last record, and the one that it would repeat: all that a later one can ask for.
            kept = [int(first[-1]), len(rows) - 1] if first[-1] >= 0 else [len(rows) - 1]
            before = rows[kept]
    except BaseException:
        pairs.close()
        raise
    return pairs


def _first_copies(rows: Rows, *, by_id: bool) -> NDArray[np.int64]:
    """Give for each record the latest one before it that it may repeat; -1 if there is none.

    That is the one before its run: equal records of one session that follow each other.
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
    """Make pairs of the records behind the known ones whose first copy is in the window."""
    repeat = np.flatnonzero(first >= 0)
    repeat = repeat[repeat >= known_count]
    # Unsigned: the distance of two 64-bit times needs 64 bits without a sign.
    times = rows["timestamp_ms"].astype(np.uint64)
    repeat = repeat[times[repeat] - times[first[repeat]] <= np.uint64(window_ms)]
    # Inside of messages of format 0 any offset may stand: one record twice is no duplicate.
    is_same = rows["offset"][repeat] == rows["offset"][first[repeat]]
    is_same &= rows["directory"][repeat] == rows["directory"][first[repeat]]
    repeat = repeat[~is_same]
    pairs = np.empty(len(repeat), pair_dtype(rows.dtype))
    pairs["first"], pairs["repeat"] = rows[first[repeat]], rows[repeat]
    pairs["directory"], pairs["offset"] = rows["directory"][repeat], rows["offset"][repeat]
    return pairs
