"""The rows of a survey of losses."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

KEY_BYTES = 256  # of a key that is shown


class LossKind(StrEnum):
    """The fate of some offsets, worst first."""

    LOST = "lost"
    UNKNOWN = "unknown"
    SUSPECTED = "suspected"
    DUPLICATE = "duplicate"
    ABORTED = "aborted"


class LossRow(NamedTuple):
    """Some offsets of a partition that a consumer misses, cannot read, or reads twice.

    Offsets and times are inclusive. Unknown values are None.

    Attributes:
        kind: lost, unknown, suspected, duplicate or aborted.
        topic, partition: None if unknown.
        base_offset, last_offset: of a loss the largest possible range. Of an aborted transaction
            its first and last record. Of a transaction of unknown outcome its readable batches. Of
            a duplicate the repeat.
        offsets_count: of a loss, at most.
        records_count: of an aborted transaction, above the log start. Of a repeat, the records in
            common with the first batch.
        first_timestamp_ms, last_timestamp_ms: of the records. Of a loss, of the last record before
            it and the first record after it.
        producer_id, producer_epoch: the writer. Of damaged bytes as far as they decode.
        first_key, last_key: of the records, at most KEY_BYTES of each. Of damaged bytes as above.
        is_acknowledged: below the high watermark or the recovery point. None if unknown.
        reason: the problem, or the place of the marker or the first batch.
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
    """The losses of one partition directory.

    Attributes:
        lost_offsets: at most. None if unknown. `lost_ranges` is the number of rows.
        aborted_transactions, aborted_records: with a marker and records above the log start.
        duplicate_records: in batches that repeat the sequences of an earlier batch. None if
            unknown.
        open_records: of transactions without a marker.
        unknown_records: of transactions whose marker may be damaged or absent.
        records: all records that a read_uncommitted reader gets.
        log_start_offset, log_end_offset: of the log on disk. None if unknown.
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
    """The kind of a difference: gone is in the first side only, new in the second side only."""

    GONE = "gone"
    CHANGED = "changed"
    NEW = "new"


class ChangeRow(NamedTuple):
    """A record that is not the same in two directories, or before and after.

    Attributes:
        kind: gone: the record is in A only. new: in B only. changed: in both.
        topic, partition, offset: of the record.
        timestamp_ms, producer_id, producer_epoch: of the record in B. Of a gone record, in A.
        key: likewise, at most KEY_BYTES of it.
        differences: of a changed record: key, value, headers, timestamp, producer, outcome.
        path, other_path: the directories in B and in A. None if there is none.
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
    """The differences of one partition.

    Attributes:
        gone, new, changed, equal: records.
        from_offset: the start of the comparison: the higher log start of the two.
        is_whole: both sides could be read completely.
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
    """Return the shown part of a key."""
    return None if key is None else bytes(key[:KEY_BYTES])
