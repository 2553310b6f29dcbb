"""The records that a cleaning removes, counted by their keys (`--deep`).

The cleaner maps each key of the dirty part to its last offset. A record from the log start on goes
if its key has a later offset in the map, or if it has no key. A map that is full ends the pass
behind the last key that fitted.

Memory is bounded: if a log has too many keys, it is read several times, for a share of the keys
each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from recovery.duplicates.scan import DecodedBatches, Trouble, decode_part, read_parts
from storage.kernels.record_table import byte_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from recovery.duplicates.scan import DecodedRecords, Part
    from recovery.forecast.cleaner import Cleaning
    from storage.dirs.partition import Partition

    Flags = NDArray[np.bool_]
    Keyed = tuple[int, bytes | None, bool]  # offset, key, is a tombstone

MAX_KEYS_COUNT = 1_000_000  # in memory at a time


def with_counts(
    partition: Partition,
    cleaning: Cleaning,
    map_keys_count: int,
    *,
    max_keys_count: int = MAX_KEYS_COUNT,
) -> Cleaning:
    """Return a cleaning with the numbers of its records. Unreadable data leaves them unknown.

    Args:
        partition: the directory, whose log the start does not change.
        cleaning: of that log.
        map_keys_count: keys that one pass of the cleaner fits into its map.
        max_keys_count: keys in memory.
    """
    end = cleaning.first_uncleanable_offset
    is_readable = cleaning.fails_at_offset is None and not cleaning.damaged_batches_count
    if end is None or not is_readable or not cleaning.cleanable_bytes:
        return cleaning
    shares_count = 1
    while True:
        shares: list[_Share] = []
        for number in range(shares_count):
            share = _Share(partition, cleaning, number, shares_count, map_keys_count)
            share.read(end, max_keys_count)
            shares.append(share)
            if share.is_too_large:
                break
        if not shares[-1].is_too_large:
            break
        shares_count *= 2
    if any(share.has_trouble for share in shares):
        return cleaning
    first = shares[0]
    found = cleaning._replace(dirty_records_count=sum(share.dirty_count for share in shares))
    is_one_pass = sum(share.dirty_keys_count for share in shares) < map_keys_count
    if shares_count > 1 and not is_one_pass:
        return found._replace(pass_end_offset=None)  # where the map is full is unknown
    return found._replace(
        pass_end_offset=first.end_offset if cleaning.is_chosen else None,
        superseded_records_count=sum(share.superseded_count for share in shares),
        keyless_records_count=first.keyless_count,
        tombstones_count=sum(share.tombstones_count for share in shares),
    )


class _Share:
    """The count over one share of the keys.

    Attributes:
        end_offset: where the cleaner's pass ends.
        dirty_count: records of the dirty part that were read, only in the first share.
        dirty_keys_count: different keys in it.
        superseded_count, tombstones_count: of this share's keys.
        keyless_count: records without a key, only in the first share.
        is_too_large: there are more keys than memory may have.
        has_trouble: a part of the log could not be read or decoded.
    """

    def __init__(
        self,
        partition: Partition,
        cleaning: Cleaning,
        number: int,
        shares_count: int,
        map_keys_count: int,
    ) -> None:
        self.end_offset = 0
        self.dirty_count = self.dirty_keys_count = 0
        self.superseded_count = self.keyless_count = self.tombstones_count = 0
        self.is_too_large = self.has_trouble = False
        self._partition = partition
        self._start = partition.local_log_start_offset or 0
        self._dirty = cleaning.first_dirty_offset
        self._number, self._shares_count = number, shares_count
        self._map_keys_count = map_keys_count
        # By key: its records that no dirty record has superseded so far. Negative: the cleaner's
        # map has the key.
        self._pending: dict[bytes, int] = {}
        self._read_end = self._dirty  # behind the last whole part

    def read(self, end: int, max_keys_count: int) -> None:
        """Read the log up to an offset, or until the cleaner's map is full."""
        self.end_offset = end
        trouble = Trouble()
        aborted = _aborted_of(self._partition)
        for part in read_parts(self._partition, trouble):
            if part.table.row_count and int(part.table.base_offset[0]) >= end:
                break
            wanted = part.is_data & (part.table.base_offset < end)
            wanted &= part.table.last_offset >= self._start
            wanted &= ~_is_aborted(part, aborted)
            full_at = self._take(part, wanted, trouble)
            if full_at is not None:
                self.end_offset = full_at
                break
            if part.table.row_count:
                self._read_end = max(self._read_end, int(part.table.last_offset[-1]) + 1)
            if len(self._pending) > max_keys_count:
                self.is_too_large = True
                return
        self.has_trouble = bool(trouble.count)

    def _take(self, part: Part, wanted: Flags, trouble: Trouble) -> int | None:
        """Count the records of a part. Return the end of the pass if the map is full, else None."""
        if not wanted.any():
            return None
        records: list[Keyed] = []
        for decoded in decode_part(part, wanted, trouble):
            if not self._take_table(decoded):
                records += _keyed(decoded)
        records.sort(key=lambda each: each[0])
        put_offset = -1
        for offset, key, is_tombstone in records:
            if offset < self._start:
                continue
            is_dirty = offset >= self._dirty
            self.dirty_count += is_dirty and self._number == 0
            if key is None:
                self.keyless_count += self._number == 0
                continue
            if self._shares_count > 1 and crc32(key) % self._shares_count != self._number:
                continue
            pending = self._pending.get(key, 0)
            if not is_dirty:
                self._pending[key] = pending + 1
            else:
                if self._shares_count == 1 and self.dirty_keys_count >= self._map_keys_count:
                    return self._full_at(part, offset, put_offset)
                put_offset = offset
                self.dirty_keys_count += pending >= 0
                self.superseded_count += abs(pending)
                self._pending[key] = -1
            self.tombstones_count += is_tombstone
        return None

    def _take_table(self, decoded: DecodedBatches | DecodedRecords) -> bool:
        """Count many records at once, if all are dirty and their keys surely fit into the map.

        The order of dirty records among themselves makes no difference to the numbers.
        """
        if not isinstance(decoded, DecodedBatches) or self._shares_count > 1:
            return False
        table = decoded.records
        if not table.row_count or int(table.offset.min()) < max(self._dirty, self._start):
            return False
        if self.dirty_keys_count + table.row_count >= self._map_keys_count:
            return False
        has_key = table.key_bytes >= 0
        rows = np.flatnonzero(has_key)
        self.dirty_count += table.row_count
        self.keyless_count += table.row_count - len(rows)
        self.tombstones_count += int((has_key & (table.value_bytes < 0)).sum())
        if not len(rows):
            return True
        keys = byte_slices(table.source.tobytes(), table.key_pos[rows], table.key_bytes[rows])
        pending, superseded_count, new_count = self._pending, 0, 0
        for key in keys:
            count = pending.get(key, 0)  # type: ignore[arg-type]
            if count < 0:
                superseded_count += 1
            else:
                superseded_count += count
                new_count += 1
                pending[key] = -1  # type: ignore[index]
        self.superseded_count += superseded_count
        self.dirty_keys_count += new_count
        return True

    def _full_at(self, part: Part, offset: int, put_offset: int) -> int:
        """Return the end of the pass: behind the last key that fitted, and all whole batches."""
        row = int(np.searchsorted(part.table.base_offset, offset, "right")) - 1
        whole_end = int(part.table.last_offset[row - 1]) + 1 if row > 0 else self._read_end
        return max(whole_end, put_offset + 1)


def _keyed(decoded: DecodedBatches | DecodedRecords) -> Iterator[Keyed]:
    if isinstance(decoded, DecodedBatches):
        table = decoded.records
        if not table.row_count:
            return
        keys = byte_slices(table.source.tobytes(), table.key_pos, table.key_bytes)
        yield from zip(table.offset.tolist(), keys, (table.value_bytes < 0).tolist(), strict=True)
        return
    for each in decoded.records:
        yield each.offset, each.key, each.value is None


def _aborted_of(partition: Partition) -> list[tuple[int, int, int]]:
    """Return producer id, first and last offset of the aborted transactions."""
    return [
        (each.producer_id, each.first_offset, each.last_offset)
        for files in partition.segments
        for each in partition.aborted_transactions(files) or ()
    ]


def _is_aborted(part: Part, aborted: list[tuple[int, int, int]]) -> Flags:
    """Return which batches the cleaner drops as data of aborted transactions."""
    found = np.zeros(part.table.row_count, np.bool_)
    if not part.table.row_count:
        return found
    low, high = int(part.table.base_offset[0]), int(part.table.last_offset[-1])
    for producer_id, first, last in aborted:
        if first > high or last < low:
            continue
        within = (part.table.base_offset >= first) & (part.table.last_offset <= last)
        found |= part.is_transactional & (part.table.producer_id == producer_id) & within
    return found
