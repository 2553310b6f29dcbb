"""The rows of a survey of losses."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

KEY_BYTES = 256  # of a key that is shown


class LossKind(StrEnum):
    """What became of some offsets, worst first."""

    LOST = "lost"
    UNKNOWN = "unknown"
    SUSPECTED = "suspected"
    DUPLICATE = "duplicate"
    ABORTED = "aborted"


class LossRow(NamedTuple):
    """Some offsets of a partition that a consumer misses, is not given, or is given twice.

    Offsets and times are inclusive. What cannot be known is None.

    Attributes:
        kind: lost, unknown, suspected, duplicate or aborted.
        topic, partition: whose; None where nothing says whose they are.
        base_offset, last_offset: of what is lost the most that can be gone; of an aborted
            transaction its first and last record; of one whose outcome is unknown, its readable
            batches; of a duplicate the repeat.
        offsets_count: of what is lost, at most.
        records_count: of an aborted transaction, above the log start; of a repeat, what it has in
            common with the first copy.
        first_timestamp_ms, last_timestamp_ms: of the records; of what is lost, of the last record
            before it and the first one behind it.
        producer_id, producer_epoch: who wrote it; of damaged bytes as far as they tell.
        first_key, last_key: of the records, at most KEY_BYTES of each; of damaged bytes as above.
        is_acknowledged: below the high watermark or the recovery point; None: not known.
        reason: what is wrong, or where the marker or the first copy is.
        check_id: the broken rule, "" if none is.
        start_pos, end_pos: damaged bytes.
        path: the segment, or the directory.
    """

    kind: LossKind
    topic: str | None
    partition: int | None
    base_offset: int | None
    last_offset: int | None
    offsets_count: int | None
    records_count: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    producer_id: int | None
    producer_epoch: int | None
    first_key: bytes | None
    last_key: bytes | None
    is_acknowledged: bool | None
    reason: str
    check_id: str
    start_pos: int | None
    end_pos: int | None
    path: str


class LossSummary(NamedTuple):
    """What became of one partition directory.

    Attributes:
        lost_offsets: at most; None: unknown. `lost_ranges` is the number of rows.
        aborted_transactions, aborted_records: that have a marker and records above the log start.
        duplicate_records: in batches that repeat the sequences of another one; None: unknown.
        open_records: of transactions without a marker.
        unknown_records: of transactions whose marker may be damaged or absent.
        records: all that are given by a reader without isolation.
        log_start_offset, log_end_offset: of what is there; None: not known.
        path: the directory.
    """

    topic: str
    partition: int | None
    lost_offsets: int | None
    lost_ranges: int
    aborted_transactions: int
    aborted_records: int
    duplicate_records: int | None
    open_records: int
    unknown_records: int
    records: int
    log_start_offset: int | None
    log_end_offset: int | None
    path: str


class ChangeKind(StrEnum):
    """How two sides differ: gone is in the first side only, new in the second side only."""

    GONE = "gone"
    CHANGED = "changed"
    NEW = "new"


class ChangeRow(NamedTuple):
    """A record that is not the same in two directories, or before and after.

    Attributes:
        kind: gone: the record is in A only; new: in B only; changed.
        topic, partition, offset: which.
        timestamp_ms, producer_id, producer_epoch: of the record in B; of a gone record, in A.
        key: likewise, at most KEY_BYTES of it.
        differences: of a changed record: key, value, headers, timestamp, producer, outcome.
        path, other_path: the directories in B and in A; None: there is none.
    """

    kind: ChangeKind
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    key: bytes | None
    differences: tuple[str, ...]
    path: str | None
    other_path: str | None


class ChangeSummary(NamedTuple):
    """What became of the records of one partition.

    Attributes:
        gone, new, changed, equal: records.
        from_offset: where the comparison begins: the higher log start of the two.
        is_whole: all of both could be read.
    """

    topic: str
    partition: int
    gone: int
    new: int
    changed: int
    equal: int
    from_offset: int
    is_whole: bool
    path: str | None
    other_path: str | None


def shown(key: bytes | None) -> bytes | None:
    """Return as much of a key as is shown."""
    return None if key is None else bytes(key[:KEY_BYTES])
