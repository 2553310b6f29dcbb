"""Records of a piece with their contents, which are copied only on access."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from recovery.records.read_options import DecodedBatch
    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable

    Ints = NDArray[np.int64]
    Kinds = NDArray[np.int8]


_COLUMNS = ("offset", "timestamp_ms", "producer_id", "producer_epoch", "outcome")
_LENGTHS = (
    *("batch_row", "key_bytes", "value_bytes", "headers_count"),
    *("header_key_bytes", "header_value_bytes"),
)

_PLACES = ("key_pos", "value_pos", "header_key_pos", "header_value_pos")


class Content(NamedTuple):
    """Key, value and headers of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class ContentRows(ABC):
    """Some records in log order. Use them before fetching the next records.

    Attributes:
        offset, timestamp_ms, producer_id, producer_epoch, outcome: columns, one row per record.
    """

    offset: Ints
    timestamp_ms: Ints
    producer_id: Ints
    producer_epoch: Ints
    outcome: Kinds

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return len(self.offset)

    @abstractmethod
    def content(self, row: int) -> Content:
        """Return key, value and headers of a record."""

    def key(self, row: int) -> bytes | None:
        """Return the key of a record."""
        return self.content(row).key

    def is_same(self, other: ContentRows) -> bool:
        """Return whether both are quickly seen to be the same. False if that is not certain."""
        del other
        return False


class _TableContents(ContentRows):
    def __init__(
        self, table: HeaderTable, outcome: Kinds, records: RecordTable, chosen: Ints | None
    ) -> None:
        self._records = records
        self._rows = np.arange(records.row_count) if chosen is None else chosen
        batch = records.batch_row[self._rows]
        self.offset = records.offset[self._rows]
        self.timestamp_ms = records.timestamp_ms[self._rows]
        self.producer_id = table.producer_id[batch]
        self.producer_epoch = table.producer_epoch[batch].astype(np.int64)
        self.outcome = outcome[batch]

    def key(self, row: int) -> bytes | None:
        at = int(self._rows[row])
        return self._bytes(self._records.key_pos[at], self._records.key_bytes[at])

    def content(self, row: int) -> Content:
        records, at = self._records, int(self._rows[row])
        start, end = np.searchsorted(records.header_record, (at, at + 1)).tolist()
        headers = tuple(
            (
                self._bytes(records.header_key_pos[each], records.header_key_bytes[each]) or b"",
                self._bytes(records.header_value_pos[each], records.header_value_bytes[each]),
            )
            for each in range(start, end)
        )
        value = self._bytes(records.value_pos[at], records.value_bytes[at])
        return Content(self.key(row), value, headers)

    def is_same(self, other: ContentRows) -> bool:
        """Compare the bytes of the records."""
        if not isinstance(other, _TableContents) or self.num_rows != other.num_rows:
            return False
        is_alike = all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _COLUMNS
        )
        one, two = self._records, other._records  # noqa: SLF001 - of the same class
        is_alike = is_alike and np.array_equal(self._rows, other._rows)  # noqa: SLF001
        if not is_alike or not all(
            np.array_equal(getattr(one, name), getattr(two, name)) for name in _LENGTHS
        ):
            return False
        if not all(_relative_is_same(getattr(one, name), getattr(two, name)) for name in _PLACES):
            return False
        return bool(np.array_equal(one.source[_inside(one)], two.source[_inside(two)]))

    def _bytes(self, pos: np.int64, size: np.int64) -> bytes | None:
        if size < 0:
            return None
        return self._records.source[int(pos) : int(pos) + int(size)].tobytes()


def _relative_is_same(one: Ints, two: Ints) -> bool:
    return not len(one) or bool(np.array_equal(one - one[0], two - two[0]))


def _inside(records: RecordTable) -> slice:
    """Return the range of all keys, values and headers in the source."""
    if not records.row_count:
        return slice(0, 0)
    start = int(records.key_pos[0])
    end = int((records.value_pos + np.maximum(records.value_bytes, 0)).max())
    if len(records.header_value_pos):
        behind = records.header_value_pos + np.maximum(records.header_value_bytes, 0)
        end = max(end, int(behind.max()))
    return slice(start, end)


class _SingleContents(ContentRows):
    def __init__(self, batches: Sequence[DecodedBatch]) -> None:
        self._records = [record for each in batches for record in each.records]
        count = [len(each.records) for each in batches]
        self.offset = np.array([each.offset for each in self._records], np.int64)
        self.timestamp_ms = np.array([each.timestamp_ms for each in self._records], np.int64)
        headers = [each.header for each in batches]
        self.producer_id = np.repeat(
            np.array([each.producer_id for each in headers], np.int64), count
        )
        self.producer_epoch = np.repeat(
            np.array([each.producer_epoch for each in headers], np.int64), count
        )
        self.outcome = np.repeat(np.array([each.outcome for each in batches], np.int8), count)

    def content(self, row: int) -> Content:
        found = self._records[row]
        headers = tuple((each.key, each.value) for each in found.headers)
        return Content(found.key, found.value, headers)


class ContentBuilder:
    """A builder of ContentRows for a `PieceReader`."""

    has_content = True

    def from_table(
        self, table: HeaderTable, outcome: Kinds, records: RecordTable, chosen: Ints | None
    ) -> ContentRows:
        """Build from decoded batches; see `RowBuilder`."""
        return _TableContents(table, outcome, records, chosen)

    def from_batches(self, batches: Sequence[DecodedBatch]) -> ContentRows:
        """Build from single records."""
        return _SingleContents(batches)
