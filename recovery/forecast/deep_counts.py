"""The records that a cleaning removes, counted by their keys (`--deep`).

The count does as the cleaner does. A map takes the last offset of each key in the dirty part. Then
each record from the log start to the end of the pass is compared with the map. A map of the cleaner
that is full ends the pass behind the last batch that fitted.

Large logs are counted in several passes, each over a share of the keys, so memory is bounded.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import AccessError, FormatError
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.forecast.cleaner import Cleaning
    from storage.dirs.partition import Partition
    from storage.formats.txn_index import AbortedTxn
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

MAX_KEYS_COUNT = 1_000_000  # in memory at a time
_DIGEST_BYTES = 16


class _Batch(NamedTuple):
    """A data batch that the cleaner decodes."""

    segment: Segment
    batch: ScannedBatch


class _Counts:
    """The running numbers of one log."""

    def __init__(self) -> None:
        self.dirty = self.superseded = self.keyless = self.tombstones = 0


def with_counts(partition: Partition, cleaning: Cleaning, map_keys_count: int) -> Cleaning:
    """Return a cleaning with the numbers of its records. Unreadable data leaves them unknown.

    Args:
        partition: the directory, whose log the start does not change.
        cleaning: of that log.
        map_keys_count: keys that one pass of the cleaner fits into its map.
    """
    end = cleaning.first_uncleanable_offset
    if end is None or cleaning.fails_at_offset is not None or not cleaning.cleanable_bytes:
        return cleaning
    try:
        return _Counter(partition, cleaning, end, map_keys_count).counted()
    except (AccessError, FormatError):
        return cleaning


class _Counter:
    def __init__(
        self, partition: Partition, cleaning: Cleaning, end: int, map_keys_count: int
    ) -> None:
        self._partition = partition
        self._cleaning = cleaning
        self._end = end
        self._dirty = cleaning.first_dirty_offset
        self._map_keys_count = map_keys_count
        self._start = partition.local_log_start_offset or 0
        self._aborted = self._find_aborted()

    def counted(self) -> Cleaning:
        records_count = sum(1 for _ in self._keys(self._dirty, self._end))
        shares = -(-records_count // MAX_KEYS_COUNT) or 1
        pass_end: int | None = self._end
        counts = _Counts()
        counts.dirty = records_count
        if shares == 1:
            newest, pass_end = self._map_of(0, 1)
            self._compare(newest, 0, 1, pass_end, counts)
        elif records_count > self._map_keys_count:
            pass_end = None  # how far the cleaner's map reaches is unknown
        else:
            for share in range(shares):
                newest, _ = self._map_of(share, shares)
                self._compare(newest, share, shares, self._end, counts)
        is_known = pass_end is not None
        return self._cleaning._replace(
            pass_end_offset=pass_end if self._cleaning.is_chosen else None,
            dirty_records_count=counts.dirty,
            superseded_records_count=counts.superseded if is_known else None,
            keyless_records_count=counts.keyless if is_known else None,
            tombstones_count=counts.tombstones if is_known else None,
        )

    def _map_of(self, share: int, shares: int) -> tuple[dict[bytes, int], int]:
        """Return the last offset by key of a share of the keys, and the end of the pass."""
        newest: dict[bytes, int] = {}
        end = self._dirty
        for segment, batch in self._batches(self._dirty, self._end):
            for record in segment.records(batch):
                if record.key is None or record.offset < self._dirty:
                    continue
                if shares == 1 and len(newest) >= self._map_keys_count:
                    return newest, end
                key = _digest(record.key)
                if key[0] % shares == share:
                    newest[key] = record.offset
            end = max(end, batch.header.last_offset + 1)
        return newest, self._end

    def _compare(
        self, newest: dict[bytes, int], share: int, shares: int, end: int, counts: _Counts
    ) -> None:
        for segment, batch in self._batches(self._start, end):
            for record in segment.records(batch):
                if record.offset >= end:
                    continue
                if record.key is None:
                    counts.keyless += share == 0
                    continue
                key = _digest(record.key)
                if key[0] % shares != share:
                    continue
                counts.superseded += record.offset < newest.get(key, -1)
                counts.tombstones += record.value is None

    def _keys(self, start: int, end: int) -> Iterator[None]:
        for segment, batch in self._batches(start, end):
            for record in segment.records(batch):
                if record.offset >= start:
                    yield None

    def _batches(self, start: int, end: int) -> Iterator[_Batch]:
        """Yield the data batches with offsets of [start, end), without aborted data."""
        segments = self._partition.segments
        for files in segments:
            following = self._partition.end_of(files)
            if files.base_offset >= end or (following is not None and following <= start):
                continue
            with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                for batch in segment.scan(verify_crc=False):
                    header = batch.header
                    if header.last_offset < start or header.base_offset >= end:
                        continue
                    if not header.is_control and not self._is_aborted(batch):
                        yield _Batch(segment, batch)

    def _find_aborted(self) -> list[AbortedTxn]:
        return [
            each
            for files in self._partition.segments
            for each in self._partition.aborted_transactions(files) or ()
        ]

    def _is_aborted(self, batch: ScannedBatch) -> bool:
        header = batch.header
        return header.is_transactional and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset
            and header.last_offset <= each.last_offset
            for each in self._aborted
        )


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
