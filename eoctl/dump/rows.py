"""Any file of a log directory as rows, for jsonl and msgpack. A `verdict` row ends each file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.dump.log_text import codec_name, decode_internal, decoder_of_path, timestamp_type
from eoctl.dump.selection import log_context
from eoctl.dump.session import verdict_row
from eoctl.output import Columns, OutputFormat, Report, emit, line
from storage.errors import FormatError
from storage.formats import control_record
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.segment import size_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.dump.selection import BatchFilter
    from eoctl.dump.session import DumpSession
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment


Row = dict[str, Any]


def log_rows(
    path: str, segment: Segment, session: DumpSession, wanted: BatchFilter
) -> Iterator[Row]:
    """Yield batches (and records) of a log, continuing after damaged or unreadable parts."""
    options = session.options
    file_bytes = segment.file_bytes
    end_pos = options.end_pos(file_bytes)
    context = log_context(path, is_limited=end_pos < file_bytes)
    scan = segment.scan(
        end_pos=end_pos,
        is_active=context.is_last,
        end_offset=context.end_offset,
    )
    invalid_before = session.invalid_count
    for batch in scan:
        if wanted.wants_batch(batch):
            yield from rows_of_batch(
                path, segment, batch, session, wanted, is_resynced=scan.resynced
            )
    if too_large := size_problem(path, file_bytes):
        session.problem(too_large)
        yield error_row(path, too_large)
    has_bad_records = session.invalid_count > invalid_before
    for verdict in [*scan.verdicts, *scan.suspicions]:
        is_normal = verdict in scan.suspicions or context.is_normal(verdict)
        session.verdict(path, verdict, is_normal=is_normal)
        yield verdict_row(path, verdict, is_normal=is_normal)
    if not scan.verdicts and not has_bad_records:
        verified = ["headers", "crc", *(["records"] if options.deep_iteration else [])]
        yield verdict_row(path, scan.verdict, is_normal=True, verified=verified)


def rows_of_batch(
    path: str,
    segment: Segment,
    batch: ScannedBatch,
    session: DumpSession,
    wanted: BatchFilter,
    *,
    is_resynced: bool = False,
) -> Iterator[Row]:
    """Yield the row of a wanted batch and, if requested, the rows of its records."""
    options = session.options
    if not wanted.selection.needs_records:
        yield batch_row(path, batch, is_resynced=is_resynced)
    if not options.deep_iteration:
        return
    decoder = options.decoder or decoder_of_path(path)
    try:
        for record in segment.records(batch, max_batch_bytes=options.max_batch_bytes):
            if wanted.wants_record(record):
                yield record_row(path, batch, record, decoder, session)
    except FormatError as exc:
        session.problem(exc)
        yield error_row(path, exc)


def batch_row(path: str, batch: ScannedBatch, *, is_resynced: bool = False) -> Row:
    """Build the row of one batch: the header's fields under their names, and derived fields."""
    header = batch.header
    is_v2 = header.magic >= 2
    row: Row = {
        "kind": "batch",
        "path": path,
        "pos": batch.pos,
        "batch_bytes": header.batch_bytes,
        "magic": header.magic,
        "base_offset": header.base_offset if is_v2 else None,
        "last_offset": header.last_offset,
        "records_count": header.records_count if is_v2 else None,
        "codec": codec_name(header),
        "timestamp_type": timestamp_type(header),
        "base_timestamp_ms": header.base_timestamp_ms if is_v2 else None,
        "max_timestamp_ms": header.max_timestamp_ms,
        "crc": header.crc,
        "crc_ok": batch.crc_ok,
    }
    if is_v2:
        row |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "partition_leader_epoch": header.partition_leader_epoch,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
            "delete_horizon_ms": header.delete_horizon_ms,
        }
    if is_resynced:
        row["is_resynced"] = True
    return row


def record_row(
    path: str, batch: ScannedBatch, record: LogRecord, decoder: Any, session: DumpSession
) -> Row:
    """Build the row of one record. Keys and values require --print-data-log."""
    row: Row = {
        "kind": "record",
        "path": path,
        "pos": batch.pos,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key_bytes": -1 if record.key is None else len(record.key),
        "value_bytes": -1 if record.value is None else len(record.value),
    }
    if batch.header.magic >= 2:
        row["sequence"] = record.sequence
        row["header_keys"] = [each.key_text for each in record.headers]
    else:
        row |= {"crc": record.crc, "crc_ok": record.crc_ok}
    if batch.header.is_control:
        return row | _control_fields(path, batch, record, session)
    if session.options.print_data_log:
        row |= {"key": record.key, "value": record.value}
        row["headers"] = [{"key": each.key_text, "value": each.value} for each in record.headers]
        try:
            on_tags = session.tags_of(path, batch.pos, record)
            decoded = decode_internal(record, decoder, session.options, on_tags)
        except FormatError as exc:
            session.problem(exc.located(path, batch.pos))
            decoded = None
        if decoded is not None:
            row |= {"key_text": decoded[0], "value_text": decoded[1]}
    return row


def _control_fields(path: str, batch: ScannedBatch, record: LogRecord, session: DumpSession) -> Row:
    try:
        return {"control": control_record.describe(record.key, record.value).strip()}
    except FormatError as exc:
        session.problem(exc.located(path, batch.pos))
        return {"control": None}


def error_row(path: str, error: FormatError) -> Row:
    """Build the row of an invalid part of a file."""
    return {
        "kind": "error",
        "path": path,
        "pos": error.pos,
        "check_id": error.check_id,
        "message": error.message,
        "expected": error.expected or None,
        "found": error.found or None,
    }


def closing_rows(
    path: str,
    data: bytes,
    errors: list[FormatError],
    session: DumpSession,
    verified: Sequence[str] = ("entries",),
) -> Iterator[Row]:
    """Yield the errors of a small file, then its verdict."""
    for error in errors:
        session.problem(error.located(path))
        yield error_row(path, error)
    first = errors[0] if errors else None
    verdict = Verdict(
        VerdictKind.OK if first is None else VerdictKind.CORRUPT,
        0 if first is None else first.pos,
        len(data),
        check_id="" if first is None else first.check_id,
        reason="" if first is None else first.message,
    )
    yield verdict_row(path, verdict, is_normal=first is None, verified=list(verified))


# -- files other than logs as tables of their entries, for people on a terminal


# Rows that only programs get. People get them as messages.
REPORTED = ("error", "verdict")
REPEATED = ("kind", "path")
PRODUCER_ANSWERS = (
    "producer_id", "producer_epoch", "last_sequence", "last_offset", "current_txn_first_offset",
    "timestamp_ms",
)  # fmt: skip


def print_table(rows: Iterable[dict[str, Any]]) -> None:
    """Print the entries among the rows of one file. Fields that no entry has are left out."""
    entries = [row for row in rows if row["kind"] not in REPORTED]
    if not entries:
        line("no entries")
        return
    names = dict.fromkeys(name for row in entries for name in row if name not in REPEATED)
    columns = tuple(each for each in names if any(row.get(each) is not None for row in entries))
    if {*PRODUCER_ANSWERS} <= {*columns}:
        columns = Columns(columns, answers=PRODUCER_ANSWERS)
    values = [tuple(row.get(each) for each in columns) for row in entries]
    emit(Report(kind=entries[0]["kind"], columns=columns, rows=values), OutputFormat.TABLE)
