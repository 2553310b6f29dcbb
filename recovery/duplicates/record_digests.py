"""Digests of the contents of records: key, value and headers, or an id in them.

The digest covers the record from its key length on, in the shortest encoding (`record`). This is
key, value, number of headers and headers, each with its length. Null and empty are different.
Without headers, the zero for their number is left out. No other record can then be equal.
The digest is BLAKE2b with 128 bits: records with equal digests are taken as equal. It does not
include offset, time, attributes or any field of the batch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.errors import UsageError
from storage.formats.varint import encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from storage.formats.record import RecordHeader
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Words = NDArray[np.uint64]

DIGEST_BYTES = 16
_NEW_STATE = blake2b(digest_size=DIGEST_BYTES).copy  # takes half the time of a new state
HEADER_PREFIX = "header:"
LARGE_RECORD_BYTES = 4096
NULL_BYTE = 1  # -1 as a varint


class RecordId(NamedTuple):
    """The place of a record's id: its key, or its last header of a name."""

    header_name: bytes | None  # None: the key


def parse_record_id(text: str) -> RecordId:
    """Parse `key` or `header:NAME`. Raises UsageError."""
    if text == "key":
        return RecordId(None)
    if text.startswith(HEADER_PREFIX) and text != HEADER_PREFIX:
        return RecordId(text[len(HEADER_PREFIX) :].encode("utf-8", "surrogateescape"))
    raise UsageError(f"no id of a record: {text!r}", next_step="--id key, or --id header:NAME")


class Digests(NamedTuple):
    """The digests of the compared rows among some records.

    `match` and `payload` have two words per row, the halves of a digest. `match` decides whether
    records are equal. `payload` is the digest of key, value and headers.
    """

    rows: Ints
    match: Words
    payload: Words


def content_of(record: LogRecord) -> bytes:
    """Return the bytes of a record that its digest covers."""
    content = _with_length(record.key) + _with_length(record.value)
    if record.headers:
        content += encode_varint(len(record.headers))
        content += b"".join(_with_length(k) + _with_length(v) for k, v in record.headers)
    return content


def digest_of(contents: Iterable[bytes]) -> bytes:
    """Return the digest of joined contents. Each content is self-delimiting."""
    state = blake2b(digest_size=DIGEST_BYTES)
    for each in contents:
        state.update(each)
    return state.digest()


def id_of(record: LogRecord, wanted: RecordId) -> bytes | None:
    """Return a record's id, or None if it is null or missing."""
    if wanted.header_name is None:
        return record.key
    found = [value for key, value in record.headers if bytes(key) == wanted.header_name]
    return found[-1] if found else None


def _with_length(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _content_bytes(key: bytes | None, value: bytes | None, headers: Sequence[RecordHeader]) -> int:
    fields = [key, value, *(each for header in headers for each in header)]
    return sum(len(each) for each in fields if each is not None)


class Digester:
    """Digests of records, from tables or from single records.

    Args:
        record_id: compare by an id. None: compare by key, value and headers.
        min_bytes: records whose id (or key, value and headers together) is smaller are left out.
    """

    def __init__(self, record_id: RecordId | None = None, *, min_bytes: int = 1) -> None:
        self._id = record_id
        self._min_bytes = min_bytes

    @property
    def is_by_id(self) -> bool:
        """Return whether records are compared by an id."""
        return self._id is not None

    def of_records(self, records: Sequence[LogRecord]) -> Digests:
        """Return the digests of records that were decoded one by one."""
        rows, matches, payloads = [], [], []
        for row, record in enumerate(records):
            payload = content_of(record)
            if self._id is None:
                match, size = payload, _content_bytes(record.key, record.value, record.headers)
            else:
                found = id_of(record, self._id)
                if found is None:
                    continue
                match, size = found, len(found)
            if size < self._min_bytes:
                continue
            rows.append(row)
            payloads.append(payload)
            matches.append(match)
        return self._digests(np.array(rows, np.int64), payloads, matches)

    def of_table(self, records: RecordTable) -> Digests:
        """Return the digests of the records of a table."""
        contents = _Contents(records)
        # Slices of bytes are far faster than views, which garbage collection tracks.
        is_large = records.row_count * LARGE_RECORD_BYTES < len(records.source)
        view = records.source.data if is_large else records.source.tobytes()
        if self._id is None:
            rows = np.flatnonzero(contents.size_bytes >= self._min_bytes)
            return self._digests(rows, contents.pieces(view, rows), None)
        pos, size_bytes = _places_of_id(records, self._id)
        rows = np.flatnonzero((size_bytes >= 0) & (size_bytes >= self._min_bytes))
        ids = _slices(view, pos[rows], pos[rows] + size_bytes[rows])
        return self._digests(rows, contents.pieces(view, rows), ids)

    def _digests(self, rows: Ints, payloads: list[Any], matches: list[Any] | None) -> Digests:
        payload = _words(payloads)
        same = matches is None or self._id is None
        return Digests(rows, payload if same else _words(matches or []), payload)


def _words(pieces: list[Any]) -> Words:
    found = []
    for each in pieces:
        state = _NEW_STATE()
        state.update(each)
        found.append(state.digest())
    return np.frombuffer(b"".join(found), ">u8").reshape(-1, 2).astype(np.uint64)


def _slices(data: Any, start: Ints, end: Ints) -> list[Any]:
    return [data[first:behind] for first, behind in zip(start.tolist(), end.tolist(), strict=True)]


class _Contents:
    """The places of the contents of records in the source, as they were written."""

    def __init__(self, records: RecordTable) -> None:
        self._records = records
        key_bytes, value_bytes = records.key_bytes, records.value_bytes
        key_end = records.key_pos + np.maximum(key_bytes, 0)
        self.start = records.key_pos - _varint_bytes(key_bytes)
        self.end = records.value_pos + np.maximum(value_bytes, 0)
        self.size_bytes = np.maximum(key_bytes, 0) + np.maximum(value_bytes, 0)
        # Kafka also reads number formats that no client writes: a longer number ends with a zero,
        # and any negative length is null.
        before = records.source[records.key_pos - 1]
        self.is_shortest = np.where(key_bytes < 0, before == NULL_BYTE, before != 0)
        self.is_shortest |= key_bytes == 0
        self.is_shortest &= records.value_pos - key_end == _varint_bytes(value_bytes)
        self.is_shortest &= self._has_usual_null(records.value_pos, value_bytes)
        if len(records.header_record):
            self._add_headers()

    def _has_usual_null(self, pos: Ints, size_bytes: Ints) -> Flags:
        is_usual: Flags = (size_bytes >= 0) | (self._records.source[pos - 1] == NULL_BYTE)
        return is_usual

    def _add_headers(self) -> None:
        records = self._records
        count = records.headers_count
        has = np.flatnonzero(count)
        sizes = np.maximum(records.header_value_bytes, 0) + records.header_key_bytes
        encoded = sizes + _varint_bytes(records.header_key_bytes)
        encoded += _varint_bytes(records.header_value_bytes)
        behind = np.cumsum(count)  # for each record, one above its last header row
        first = behind[has] - count[has]
        value_end = self.end[has]
        last = behind[has] - 1
        end = records.header_value_pos[last] + np.maximum(records.header_value_bytes[last], 0)
        wanted = _varint_bytes(count[has]) + np.add.reduceat(encoded, first)
        self.is_shortest[has] &= end - value_end == wanted
        usual = self._has_usual_null(records.header_value_pos, records.header_value_bytes)
        self.is_shortest[records.header_record[~usual]] = False
        self.end[has] = end
        self.size_bytes[has] += np.add.reduceat(sizes, first)

    def pieces(self, view: Any, rows: Ints) -> list[Any]:
        """Return the contents of some records."""
        found = _slices(view, self.start[rows], self.end[rows])
        for place in np.flatnonzero(~self.is_shortest[rows]).tolist():
            found[place] = self._encoded(int(rows[place]))
        return found

    def _encoded(self, row: int) -> bytes:
        """Encode a record's content again."""
        records = self._records

        def field(pos: int, size_bytes: int) -> bytes:
            data = records.source[pos : pos + size_bytes].tobytes() if size_bytes >= 0 else None
            return _with_length(data)

        content = field(int(records.key_pos[row]), int(records.key_bytes[row]))
        content += field(int(records.value_pos[row]), int(records.value_bytes[row]))
        count = int(records.headers_count[row])
        if not count:
            return content
        content += encode_varint(count)
        first = int(records.headers_count[:row].sum())
        for each in range(first, first + count):
            content += field(int(records.header_key_pos[each]), int(records.header_key_bytes[each]))
            content += field(
                int(records.header_value_pos[each]), int(records.header_value_bytes[each])
            )
        return content


def _varint_bytes(value: Ints) -> Ints:
    """Return the sizes of the shortest encoding of small numbers (-1 and up)."""
    raw = np.where(value < 0, 1, value << 1)
    size = np.ones(len(raw), np.int64)
    for bits in (7, 14, 21, 28):
        size += raw >> bits != 0
    return size


def _places_of_id(records: RecordTable, wanted: RecordId) -> tuple[Ints, Ints]:
    """Return position and size of each record's id, -1 if there is none."""
    if wanted.header_name is None:
        return records.key_pos, records.key_bytes
    name = wanted.header_name
    rows = np.flatnonzero(records.header_key_bytes == len(name))
    for place, byte in enumerate(name):
        rows = rows[records.source[records.header_key_pos[rows] + place] == byte]
    pos = np.zeros(records.row_count, np.int64)
    size_bytes = np.full(records.row_count, -1, np.int64)
    # With several headers of that name, the last assignment is the last header.
    pos[records.header_record[rows]] = records.header_value_pos[rows]
    size_bytes[records.header_record[rows]] = records.header_value_bytes[rows]
    return pos, size_bytes
