"""The rows that a search for duplicates keeps, on disk if need be, and those that it reports."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np

COMMITTED, ABORTED, OPEN, UNKNOWN = 0, 1, 2, 3
OUTCOMES = ("committed", "aborted", "open", "unknown")


class DuplicateKind(StrEnum):
    """How sure it is."""

    PROVED = "proved"
    SUSPECTED = "suspected"


# A data batch with a sequence; `sequences_count` is last_offset_delta + 1.
BATCH_DTYPE = np.dtype(
    [
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("base_sequence", np.int32),
        ("sequences_count", np.int64),
        ("base_offset", np.int64),
        ("pos", np.int64),
        ("max_timestamp_ms", np.int64),
        ("outcome", np.int8),
    ]
)

# The same with the place of its first sequence; see `sequence_ranges`.
PLACED_DTYPE = np.dtype([*BATCH_DTYPE.descr, ("start", np.int64)])

# A record that is compared. `directory` is the number of its partition directory in the search.
RECORD_DTYPE = np.dtype(
    [
        ("hash_high", np.uint64),
        ("hash_low", np.uint64),
        ("timestamp_ms", np.int64),
        ("directory", np.int32),
        ("offset", np.int64),
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("outcome", np.int8),
    ]
)
RECORD_KEYS = ("hash_high", "hash_low", "timestamp_ms", "directory", "offset")

# The same when ids are compared: then the hash is that of the id.
ID_RECORD_DTYPE = np.dtype(
    [*RECORD_DTYPE.descr, ("payload_high", np.uint64), ("payload_low", np.uint64)]
)


def pair_dtype(side: np.dtype[np.void]) -> np.dtype[np.void]:
    """Return the type of a found pair: where it is reported, the first copy, the repeat."""
    place = [("directory", np.int32), ("offset", np.int64)]
    return np.dtype([*place, ("first", side), ("repeat", side)])


PAIR_KEYS = ("directory", "offset")


class Duplicate(NamedTuple):
    """What is reported of a batch or a record that repeats another one.

    Offsets, sequences and times are inclusive; the time of a batch is its largest timestamp.

    Attributes:
        kind: proved or suspected.
        topic, partition: of the repeat.
        first_partition: of the first copy; another one only in a search across partitions.
        first_base_offset, first_last_offset: the first copy: a batch, or one record.
        repeat_base_offset, repeat_last_offset: what repeats it.
        records_count: of the repeat, those that are in the first copy too; None: unreadable.
        first_timestamp_ms, repeat_timestamp_ms: when, by the records.
        first_producer_id ... repeat_producer_epoch: -1 is none.
        base_sequence, last_sequence: what both batches hold; None of records.
        is_same_payload: key, value and headers are equal in all of these; None: unreadable.
        payload_hash: of these in the repeat, BLAKE2b with 128 bits; see `record_digests`.
        first_outcome, repeat_outcome: committed (or not in a transaction), aborted, open,
            unknown.
        first_path, path: the `.log` of each.
    """

    kind: DuplicateKind
    topic: str
    partition: int | None
    first_partition: int | None
    first_base_offset: int
    first_last_offset: int
    repeat_base_offset: int
    repeat_last_offset: int
    records_count: int | None
    first_timestamp_ms: int
    repeat_timestamp_ms: int
    first_producer_id: int
    first_producer_epoch: int
    repeat_producer_id: int
    repeat_producer_epoch: int
    base_sequence: int | None
    last_sequence: int | None
    is_same_payload: bool | None
    payload_hash: str | None
    first_outcome: str
    repeat_outcome: str
    first_path: str
    path: str
