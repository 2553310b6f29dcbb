"""The export of one piece: from the records of a split to a file, with the result as a value.

Pieces are independent. Any process that has the sources and the target directory under the same
paths may call `export_piece`, in any order, also twice.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recovery.export.files import TargetFile, make_dirs, output_errors
from recovery.export.plan import DECODED_COLUMNS, ExportFormat
from recovery.records.columns import RecordReader
from recovery.records.read_options import ReadCounts, UndecodableError, has_schema_values
from storage.dirs.offset_ledger import OffsetSpan
from storage.dirs.state_file import read_as
from storage.files.fsio import FileSystem
from storage.kernels.kernel_choice import load_native
from storage.kernels.protocol import VerdictKind
from storage.places.list_places import open_place
from storage.places.log_reader import ReadFinding
from storage.value_pieces import LARGE_BYTES, base64_pieces, is_utf8, json_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from recovery.export.plan import ExportOptions, ExportPiece
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace


# -- records as JSON Lines: one object per record, with one form for bytes.
#
#     `key_base64`, `value_base64`   Base64, null for null. Headers are the same.
#     `key`, `value`                 With text: the bytes as text, if they are valid UTF-8 or null.
#                                    Else the field is NAME_base64, so its name shows its form.
#     `key_json`, `value_json`       With a schema: JSON, or null if the value stays bytes.
#
# All other columns keep their names and are numbers, booleans or strings.


CHUNK_ROWS = 8192


class _Target(Protocol):
    def write(self, data: bytes) -> int: ...


class JsonLines:
    """A writer of record batches of one schema as lines."""

    def __init__(self, target: _Target, schema: pa.Schema, *, is_text: bool) -> None:
        self._target = target
        self._native = load_native()
        self._is_text = is_text
        self._named = _as_text if is_text else _as_base64
        self._texts: dict[str, str] = {}  # of strings with few different values
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a line per record."""
        if batch.nbytes > LARGE_BYTES and batch.num_rows == 1:
            for piece in self._pieces(batch):
                self._target.write(piece)
            return
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            part = batch.slice(start, CHUNK_ROWS)
            if self._native is not None:
                columns = [_native_column(name, part.column(name)) for name in self._names]
                lines = self._native.object_lines(columns, part.num_rows, is_text=self._is_text)
                self._target.write(lines)
                continue
            fields = [self._fields(name, part.column(name)) for name in self._names]
            text = "}\n{".join(map(",".join, zip(*fields, strict=True)))
            self._target.write(f"{{{text}}}\n".encode())

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the line of one large record."""
        for place, name in enumerate(self._names):
            yield b"," if place else b"{"
            column = batch.column(name)
            if (
                name in DECODED_COLUMNS
                or not pa.types.is_binary(column.type)
                or not column[0].is_valid
            ):
                (field,) = self._fields(name, column)
                yield field.encode()
                continue
            data = memoryview(column[0].as_buffer())
            is_text = self._is_text and is_utf8(data)
            yield f'"{name}":'.encode() if is_text else f'"{name}_base64":'.encode()
            yield from json_pieces(data) if is_text else base64_pieces(data)
        yield b"}\n"

    def close(self) -> None:
        """Do nothing: every line is complete."""

    def _fields(self, name: str, column: Any) -> Iterable[str]:
        """Return `"name":value` for each record."""
        values = column.to_pylist()
        if name in DECODED_COLUMNS:
            return [f'"{name}":{value or "null"}' for value in values]
        if pa.types.is_binary(column.type):
            named = self._named
            return [named(name, value) for value in values]
        if pa.types.is_list(column.type):
            return [f'"{name}":{self._headers(value)}' for value in values]
        if pa.types.is_boolean(column.type):
            return [f'"{name}":true' if value else f'"{name}":false' for value in values]
        if pa.types.is_integer(column.type):
            return [f'"{name}":{value}' for value in values]
        return [self._string(name, value) for value in values]

    def _string(self, name: str, value: str | None) -> str:
        key = f"{name}\0{value}" if value is not None else name
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = f'"{name}":{json.dumps(value)}'
        return text

    def _headers(self, headers: list[dict[str, bytes | None]]) -> str:
        if not headers:
            return "[]"
        named = self._named
        inside = ",".join(
            f"{{{named('key', each['key'])},{named('value', each['value'])}}}" for each in headers
        )
        return f"[{inside}]"


def _native_column(name: str, column: Any) -> tuple[Any, ...]:
    """Return a column as an argument for `object_lines`, see native/src/json_text.rs."""
    prefix = f'"{name}":'
    if pa.types.is_binary(column.type):
        return _native_bytes(name, column)
    if pa.types.is_list(column.type):
        ends = column.offsets.to_numpy().astype(np.int64)
        inside = column.values.slice(ends[0], ends[-1] - ends[0])
        fields = tuple(_native_bytes(each, inside.field(each)) for each in ("key", "value"))
        return prefix, np.diff(ends), fields
    if pa.types.is_boolean(column.type):
        return [prefix + "false", prefix + "true"], _numbers(column)
    if pa.types.is_integer(column.type):
        return prefix, _numbers(column)
    encoded = column.dictionary_encode()
    words = [*encoded.dictionary.to_pylist(), None]
    places = encoded.indices.fill_null(len(words) - 1)
    if name in DECODED_COLUMNS:
        return [prefix + (word or "null") for word in words], _numbers(places)
    return [prefix + json.dumps(word) for word in words], _numbers(places)


def _native_bytes(
    name: str, column: Any
) -> tuple[str, NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return name, bytes, and the values' positions and sizes in them, -1 for null."""
    _, offsets, data = column.buffers()
    row_count = len(column)
    if not row_count:
        return name, np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    ends = np.frombuffer(offsets, np.int32, row_count + 1, 4 * column.offset).astype(np.int64)
    source = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    size = np.diff(ends)
    if column.null_count:
        size[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return name, source, ends[:-1] - ends[0], size


def _numbers(column: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return numbers


def _as_base64(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}_base64":null'
    return f'"{name}_base64":"{b2a_base64(value, newline=False).decode("ascii")}"'


def _as_text(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}":null'
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return _as_base64(name, value)
    return f'"{name}":{_dumps(text)}'


_dumps: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode


# -- piece


BOUNDS = ("from_offset", "to_offset", "stable_offset")
ROW_GROUP_BYTES = 32 << 20
ROW_GROUP_ROWS = 1 << 20
# These have few different values each. The codec compresses keys and values.
DICTIONARY_COLUMNS = (
    "broker",
    "directory",
    "path",
    "timestamp_type",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "outcome",
    "codec",
)


class PieceResult(NamedTuple):
    """The result of a piece.

    Attributes:
        piece: the piece.
        file_bytes: size of its file. 0: there were no records, and there is no file.
        counts: of the records.
        findings: unreadable ranges.
        span: the offsets of its good batches.
        decoded_count: values that schemas have decoded.
        undecoded: numbers of values that stay bytes, by reason.
    """

    piece: ExportPiece
    file_bytes: int
    counts: ReadCounts
    findings: tuple[ReadFinding, ...]
    span: OffsetSpan
    decoded_count: int
    undecoded: dict[str, int]

    def to_entry(self) -> dict[str, Any]:
        """Return the line of the manifest."""
        return {
            "kind": "piece",
            "name": self.piece.name,
            **source_of(self.piece),
            "file_bytes": self.file_bytes,
            "counts": self.counts._asdict(),
            "findings": [each._asdict() for each in self.findings],
            "span": self.span._asdict(),
            "decoded_count": self.decoded_count,
            "undecoded": self.undecoded,
        }

    @property
    def is_final(self) -> bool:
        """Return whether the result stays the same whatever is appended to the log.

        An open transaction may end. A later marker may show an unknown outcome.
        """
        counts = self.counts
        return not (counts.open or counts.open_skipped or counts.unknown or counts.unknown_skipped)


def source_of(piece: ExportPiece) -> dict[str, Any]:
    """Return the data that the file of a piece depends on, without the options of the export."""
    place = piece.split.place
    return {
        "path": place.path,
        "start_pos": piece.split.start_pos,
        "end_pos": piece.split.end_pos,
        "is_last": piece.split.is_last,
        "source_bytes": place.file_bytes,
        "source_modified_ns": place.modified_ns,
        **{name: getattr(piece, name) for name in BOUNDS},
    }


def result_of_entry(piece: ExportPiece, entry: Mapping[str, Any]) -> PieceResult | None:
    """Return the result in a manifest, or None if it does not match the current piece.

    Bounds may have moved if they stay outside of the piece.
    """
    source = source_of(piece)
    if any(entry.get(name) != source[name] for name in source if name not in BOUNDS):
        return None
    try:
        findings = read_as(tuple[ReadFinding, ...], entry["findings"])
        result = PieceResult(
            piece=piece,
            file_bytes=read_as(int, entry["file_bytes"]),
            counts=read_as(ReadCounts, entry["counts"]),
            findings=tuple(each._replace(kind=VerdictKind(each.kind)) for each in findings),
            span=read_as(OffsetSpan, entry["span"]),
            decoded_count=read_as(int, entry["decoded_count"]),
            undecoded=read_as(dict[str, int], entry["undecoded"]),
        )
        before = {name: entry[name] for name in BOUNDS}
        is_equal = before == {name: source[name] for name in BOUNDS}
        if is_equal or _inside(result, before) == _inside(result, source):
            return result
    except (KeyError, TypeError, ValueError):  # another release wrote it
        pass
    return None


def _inside(result: PieceResult, bounds: Mapping[str, int | None]) -> list[int | None]:
    """Limit bounds to the range of a piece's offsets. With damage they stay as they are."""
    if result.findings:
        return [bounds[name] for name in BOUNDS]
    low = result.piece.split.place.base_offset
    high = max(low, result.span.end_offset or 0)
    clamped: list[int | None] = []
    for name in BOUNDS:
        value = bounds[name]
        if value is None:
            value = low if name == "from_offset" else high
        clamped.append(min(max(value, low), high))
    return clamped


class Decode(Protocol):
    """A decoder from a value to JSON, by its schema. It can be pickled."""

    def __call__(self, data: bytes) -> bytes:
        """Return JSON in UTF-8. Raises UndecodableError."""


class _DecodedColumns:
    """A converter that adds JSON of keys and values, and counts the values that stay bytes."""

    def __init__(self, names: Sequence[str], decode: Decode | None) -> None:
        """Prepare it. `decode` is None for a topic whose values have no schemas."""
        self._names = names
        self._decode = decode
        # Without value_json, the keys count instead.
        self._counted = "value_json" if "value_json" in names else "key_json"
        self.decoded_count = 0
        self.undecoded: Counter[str] = Counter()

    def add_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted columns of the records of a batch."""
        made: dict[str, Any] = {}
        for name in self._names:
            if name not in DECODED_COLUMNS:
                made[name] = batch.column(name)
                continue
            texts = [self._json_of(each, name) for each in batch.column(DECODED_COLUMNS[name])]
            made[name] = pa.array(texts, pa.large_string())
        return pa.record_batch(made)

    def _json_of(self, found: Any, name: str) -> bytes | None:
        """Return JSON, or None. A key without the wire format is no failure."""
        data = found.as_py()
        if data is None or self._decode is None:
            return None
        is_counted = name == self._counted
        try:
            text = self._decode(data)
        except UndecodableError as exc:
            self.undecoded[str(exc)] += is_counted
            return None
        self.decoded_count += is_counted
        return text


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


def export_piece(
    piece: ExportPiece,
    options: ExportOptions,
    *,
    decode: Decode | None = None,
    fs: FileSystem | None = None,
    opener: Callable[[SegmentPlace], Segment] = open_place,
) -> PieceResult:
    """Write the file of a piece, durably and in one step, unless it has no records.

    Args:
        piece: the piece to export.
        options: of the export.
        decode: by the schemas of the options.
        fs: changes files.
        opener: opens the segment, and later segments of its directory.

    Raises:
        AccessError: the file cannot be written. The result contains errors of the source.
    """
    fs = FileSystem() if fs is None else fs
    reader = RecordReader(piece.split, piece.read_options(options), opener=opener)
    path = Path(options.to, piece.name)
    file_bytes = 0
    batches: Iterator[pa.RecordBatch] = iter(reader)
    decoded = None
    if decode is not None:
        is_decoded = has_schema_values(piece.split.place.topic)
        decoded = _DecodedColumns(options.file_columns, decode if is_decoded else None)
        batches = map(decoded.add_to, batches)
    first = next(batches, None)
    with output_errors(path):
        if first is None:
            with suppress(FileNotFoundError):
                fs.unlink(path)  # of an earlier run that had records
        else:
            make_dirs(fs, path.parent)
            with TargetFile(fs, path) as target:
                writer = _writer(target, first.schema, piece, options)
                try:
                    writer.write(first)
                    del first  # releases its memory
                    for batch in batches:
                        writer.write(batch)
                    writer.close()
                except BaseException:
                    target.give_up()
                    with suppress(Exception):
                        writer.close()
                    raise
                target.finish()
                file_bytes = target.file_bytes
    return PieceResult(
        piece=piece,
        file_bytes=file_bytes,
        counts=reader.counts,
        findings=tuple(reader.findings),
        span=reader.span,
        decoded_count=0 if decoded is None else decoded.decoded_count,
        undecoded={} if decoded is None else dict(+decoded.undecoded),
    )


def _writer(
    target: TargetFile, schema: pa.Schema, piece: ExportPiece, options: ExportOptions
) -> _Writer:
    if options.format is ExportFormat.JSONL:
        return JsonLines(target, schema, is_text=options.text)
    return _ParquetRows(target, schema, piece, options)


class _ParquetRows:
    """A writer that joins batches into row groups."""

    def __init__(
        self, target: TargetFile, schema: pa.Schema, piece: ExportPiece, options: ExportOptions
    ) -> None:
        place = piece.split.place
        reported = {f"eoctl.{name}": str(getattr(place, name)) for name in ("topic", "partition")}
        self._schema = schema.with_metadata(reported)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(target, "w"),
            self._schema,
            compression=str(options.codec),
            use_dictionary=[name for name in schema.names if name in DICTIONARY_COLUMNS],
            # The least and the greatest value would be two copies of a large value.
            write_statistics=[
                name
                for name in schema.names
                if name not in {*DECODED_COLUMNS, *DECODED_COLUMNS.values()}
            ],
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_rows += batch.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        batches, self._waiting = self._waiting, []
        self._waiting_bytes = self._waiting_rows = 0
        if batches:
            table = pa.Table.from_batches(batches).replace_schema_metadata(self._schema.metadata)
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        self._write_group()
        self._writer.close()
