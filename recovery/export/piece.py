"""Export one piece: from the records of a split to a file, and what came of it as a value.

Pieces are independent of each other: any process that reaches the sources and the target directory
under the same paths may call `export_piece`, in any order, and twice does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from recovery.export.files import TargetFile, make_dirs, output_errors
from recovery.export.json_lines import JsonLines
from recovery.export.options import ExportFormat
from recovery.records.read_options import ReadCounts
from recovery.records.reader import RecordReader
from recovery.summaries.read_findings import ReadFinding
from storage.dirs.offset_ledger import OffsetSpan
from storage.dirs.state_file import read_as
from storage.files.fsio import FileSystem
from storage.kernels.protocol import VerdictKind
from storage.places.find import open_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.export.options import ExportOptions
    from recovery.export.plan import ExportPiece
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace

BOUNDS = ("from_offset", "to_offset", "stable_offset")
ROW_GROUP_BYTES = 32 << 20
ROW_GROUP_ROWS = 1 << 20
# Few different values each; keys and values are left to the codec.
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
    """What came of a piece.

    Attributes:
        piece: what was to be exported.
        file_bytes: of its file; 0: there were no records, and there is no file.
        counts: of the records.
        findings: what could not be read.
        span: the offsets of its good batches.
    """

    piece: ExportPiece
    file_bytes: int
    counts: ReadCounts
    findings: tuple[ReadFinding, ...]
    span: OffsetSpan

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
        }

    @property
    def is_final(self) -> bool:
        """Will the same come out whatever is appended to the log?

        An open transaction may end. A later marker may show an outcome that is unknown.
        """
        counts = self.counts
        return not (counts.open or counts.open_skipped or counts.unknown or counts.unknown_skipped)


def source_of(piece: ExportPiece) -> dict[str, Any]:
    """Return what the file of a piece depends on, but for the options of the export."""
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
    """Return the result that a manifest tells of; None if it is not of this piece as it is now.

    Bounds may have moved as long as they do it outside of the piece.
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
        )
        before = {name: entry[name] for name in BOUNDS}
        is_equal = before == {name: source[name] for name in BOUNDS}
        if is_equal or _inside(result, before) == _inside(result, source):
            return result
    except (KeyError, TypeError, ValueError):  # another release wrote it
        pass
    return None


def _inside(result: PieceResult, bounds: Mapping[str, int | None]) -> list[int | None]:
    """Bring bounds into the range of a piece's offsets; with damage, that is not sure of them."""
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


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


def export_piece(
    piece: ExportPiece,
    options: ExportOptions,
    *,
    fs: FileSystem | None = None,
    opener: Callable[[SegmentPlace], Segment] = open_place,
) -> PieceResult:
    """Write the file of a piece, durably and in one step, unless it has no records.

    Args:
        piece: what to export.
        options: how.
        fs: what changes files.
        opener: opens the segment, and later ones of its directory.

    Raises:
        AccessError: the file cannot be written. What is bad in the source is told in the result.
    """
    fs = FileSystem() if fs is None else fs
    reader = RecordReader(piece.split, piece.read_options(options), opener=opener)
    path = Path(options.to, piece.name)
    file_bytes = 0
    batches = iter(reader)
    first = next(batches, None)
    with output_errors(path):
        if first is None:
            with suppress(FileNotFoundError):
                fs.unlink(path)  # of an earlier run, when there were records
        else:
            make_dirs(fs, path.parent)
            with TargetFile(fs, path) as target:
                writer = _writer(target, reader.schema, piece, options)
                try:
                    writer.write(first)
                    del first  # or it would be kept to the end
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
    )


def _writer(
    target: TargetFile, schema: pa.Schema, piece: ExportPiece, options: ExportOptions
) -> _Writer:
    if options.format is ExportFormat.JSONL:
        return JsonLines(target, schema, is_text=options.text)
    return _ParquetRows(target, schema, piece, options)


class _ParquetRows:
    """Puts batches together to row groups."""

    def __init__(
        self, target: TargetFile, schema: pa.Schema, piece: ExportPiece, options: ExportOptions
    ) -> None:
        place = piece.split.place
        told = {f"eoctl.{name}": str(getattr(place, name)) for name in ("topic", "partition")}
        self._schema = schema.with_metadata(told)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(target, "w"),
            self._schema,
            compression=str(options.codec),
            use_dictionary=[name for name in schema.names if name in DICTIONARY_COLUMNS],
            # The least and the greatest value would be two copies of a large one.
            write_statistics=[name for name in schema.names if name not in {"key", "value"}],
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
