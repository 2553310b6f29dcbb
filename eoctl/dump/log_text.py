"""A `.log` or KRaft `.checkpoint` as kafka-dump-log's text; keys and values as text."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from eoctl import output
from eoctl.dump.selection import Decoder, ValueDecoder, log_context
from eoctl.dump.session import absolute_path
from eoctl.text.plain import (
    as_it_stands,
    as_the_tool_reads,
    batch_line,
    record_contents,
    record_metadata,
)
from storage.errors import CorruptError, FormatError
from storage.formats import control_record
from storage.formats.java_text import kafka_text, kafka_text_pieces
from storage.kernels.protocol import VerdictKind
from storage.kernels.select import load_native, select_kernel
from storage.log.segment import size_problem
from storage.value_pieces import PIECE_BYTES, is_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.dump.selection import BatchFilter, DumpOptions, LogContext
    from eoctl.dump.session import DumpSession
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.kernels.scan import Scan
    from storage.kernels.select import Native
    from storage.log.segment import LogRecord, Segment


TOPIC_DECODERS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTION_LOG,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
    "__share_group_state": Decoder.SHARE_GROUP_STATE,
}


def decoder_of_path(path: str) -> Decoder | None:
    """Guess the decoder by the directory's topic name; `.checkpoint` files are cluster metadata."""
    if path.endswith(".checkpoint"):
        return Decoder.CLUSTER_METADATA
    parts = path.split("/")
    topic = parts[-2].rpartition("-")[0] if len(parts) > 1 else ""
    return TOPIC_DECODERS.get(topic)


def contents_of(record: LogRecord, options: DumpOptions) -> tuple[str | None, str | None]:
    """Key and payload of a data record as the tool prints them; None is left out.

    Raises:
        FormatError: the decoder cannot start on it (a coordinator record without a key).
    """
    decoded = decode_internal(record, options.decoder, show_secrets=options.show_secrets)
    if decoded is not None:
        return decoded
    return (
        decode_plain(record.key, options.key_decoder),
        decode_plain(record.value, options.value_decoder),
    )


def decode_internal(
    record: LogRecord, decoder: Decoder | None, *, show_secrets: bool = False
) -> tuple[str | None, str | None] | None:
    """Key and payload of an internal topic's record, None when `decoder` is not for one."""
    if decoder is Decoder.OFFSETS:
        from storage.formats.consumer_offsets import describe_record
    elif decoder is Decoder.TRANSACTION_LOG:
        from storage.formats.transaction_state import describe_record
    elif decoder is Decoder.SHARE_GROUP_STATE:
        from storage.formats.share_group_state import describe_record
    elif decoder is Decoder.REMOTE_LOG_METADATA:
        from storage.formats.remote_log_metadata import describe_record
    elif decoder is Decoder.CLUSTER_METADATA:
        from storage.formats import cluster_metadata

        return cluster_metadata.describe_record(
            record.offset, record.key, record.value, redact=not show_secrets
        )
    else:
        return None
    return describe_record(record.offset, record.key, record.value)


def decode_plain(data: bytes | None, decoder: ValueDecoder) -> str | None:
    """Text of a key or value under one of Kafka's decoder classes.

    DefaultDecoder is an object's identity in Java ("[B@1b2c3d"); here it is hexadecimal.

    Raises:
        CorruptError: too short for a number.
    """
    if data is None:
        return None
    if decoder is ValueDecoder.STRING:
        return kafka_text(data)
    if decoder is ValueDecoder.DEFAULT:
        return data.hex()
    width = 8 if decoder is ValueDecoder.LONG else 4
    if len(data) < width:
        raise CorruptError(
            "too short for a number",
            check_id="BAT-7",
            pos=0,
            expected=f"{width} bytes",
            found=f"{len(data)} bytes",
        )
    return str(int.from_bytes(data[:width], "big", signed=True))


# -- a `.log` or KRaft `.checkpoint` as kafka-dump-log's text


# Below this, what a kernel saves takes longer to import.
BULK_MIN_BYTES = {"pure": 1 << 62, "numpy": 1 << 20, "native": 64 << 10}
WRITE_LINES = 512
MAX_KERNEL_BATCH_BYTES = 16 << 20  # a larger batch is printed in pieces, and needs less memory
STDOUT_FD = 1
FRAMING_CHECK_ID = "BAT-2"


def dump_log_text(path: str, segment: Segment, session: DumpSession, wanted: BatchFilter) -> None:
    """Print the lines of all batches (and records), and the trailing bytes as the tool does.

    Where the tool's reader dies (a length that cannot be, a bad sector), stops in silence before
    good batches (a length that is too large) or follows a length into the midst of a batch, the
    rest is found again and printed too. At a torn tail this stops as it does.
    """
    options = session.options
    file_bytes = segment.file_bytes
    end_pos = options.end_pos(file_bytes)
    context = log_context(path, is_limited=end_pos < file_bytes)
    printer = LinePrinter(segment, session, wanted)
    kernel = select_kernel()
    is_bulk = wanted.is_everything and options.is_plain_utf8 and end_pos >= BULK_MIN_BYTES[kernel]
    native = load_native() if is_bulk else None
    if native is not None and segment.file.name_to_open_again:
        walked = _print_native(segment, printer, end_pos, context, native)
    elif is_bulk:
        walked = _print_bulk(segment, printer, end_pos, context)
    else:
        scan = segment.scan(
            end_pos=end_pos, is_active=context.is_last, end_offset=context.end_offset
        )
        printer.print_scan(scan)
        walked = Walked(scan.valid_bytes, scan.verdicts, is_resynced=scan.resynced)
    is_silent = not walked.is_resynced and not any(
        _kills_the_tool(each, walked.valid_bytes) for each in walked.verdicts
    )
    if is_silent and end_pos > walked.valid_bytes and not options.is_limited:
        name = path.rpartition("/")[2]
        output.line(f"Found {end_pos - walked.valid_bytes} invalid bytes at the end of {name}")
    if printer.non_consecutive and wanted.is_everything:
        session.non_consecutive[absolute_path(path)] = printer.non_consecutive
    if too_large := size_problem(path, file_bytes):
        session.problem(too_large)
    for verdict in walked.verdicts:
        session.verdict(path, verdict, is_normal=context.is_normal(verdict))


class Walked(NamedTuple):
    """How far the broker's walk came, what was met, and whether batches follow behind a break."""

    valid_bytes: int
    verdicts: list[Verdict]
    is_resynced: bool


def _kills_the_tool(verdict: Verdict, valid_bytes: int) -> bool:
    """Whether the walk ended there with an exception rather than in silence."""
    if verdict.start_pos < valid_bytes:
        return False
    return verdict.kind is VerdictKind.UNREADABLE or verdict.check_id == FRAMING_CHECK_ID


def _print_bulk(
    segment: Segment, printer: LinePrinter, end_pos: int, context: LogContext
) -> Walked:
    from eoctl.text.renderers import render_log

    options = printer.options
    output.flush()
    result = render_log(
        segment,
        output.write,
        deep=options.deep_iteration,
        print_data=options.print_data_log,
        skip_record_metadata=options.skip_record_metadata,
        end_pos=end_pos,
        is_active=context.is_last,
        end_offset=context.end_offset,
        resume=True,
        max_batch_bytes=options.max_batch_bytes,
        on_error=printer.session.problem,
    )
    printer.continue_after(result.last_offset, result.non_consecutive.items())
    return Walked(result.valid_bytes, result.verdicts, is_resynced=result.is_resynced)


def _print_native(
    segment: Segment, printer: LinePrinter, end_pos: int, context: LogContext, native: Native
) -> Walked:
    from eoctl.text.printing_scan import PrintingScan, PrintTo

    options, fd = printer.options, output.stdout_fd()
    records = (options.print_data_log, options.skip_record_metadata)
    print_to = PrintTo(
        records=records if options.deep_iteration else None,
        max_batch_bytes=min(options.max_batch_bytes, MAX_KERNEL_BATCH_BYTES),
        threads=options.jobs,
        write=None if fd == STDOUT_FD else output.write,
        before=printer.last_printed_offset,
        after=printer.continue_after,
    )
    scan = PrintingScan(
        segment,
        native,
        print_to,
        end_pos=end_pos,
        is_active=context.is_last,
        end_offset=context.end_offset,
    )
    for batch in scan:
        if batch.pos >= scan.printed_pos:
            printer.print_batch(as_it_stands(scan, batch))
    printer.flush()
    return Walked(scan.valid_bytes, scan.verdicts, is_resynced=scan.resynced)


class LinePrinter:
    """Prints batches one at a time: the definition, for small files, filters and decoders."""

    def __init__(self, segment: Segment, session: DumpSession, wanted: BatchFilter) -> None:
        self.segment = segment
        self.session = session
        self.options: DumpOptions = session.options
        self.wanted = wanted
        self.non_consecutive: dict[int, int] = {}
        self._last_offset = -1
        self._lines: list[str] = []

    def last_printed_offset(self) -> int:
        """Write out what waits, for another one to take over; returns the last record's offset."""
        self.flush()
        output.flush()
        return self._last_offset

    def continue_after(self, last_offset: int, non_consecutive: Iterable[tuple[int, int]]) -> None:
        """Take over from a bulk renderer behind the record at `last_offset`."""
        self._last_offset = last_offset
        self.non_consecutive.update(non_consecutive)

    def print_scan(self, scan: Scan) -> None:
        """Print all wanted batches of a scan."""
        for batch in scan:
            if self.wanted.wants_batch(batch):
                self.print_batch(as_it_stands(scan, batch))
        self.flush()

    def print_batch(self, batch: ScannedBatch) -> None:
        """Print the line of a batch, and those of its records when asked for."""
        records: Iterator[str | Iterator[str]] = iter(())
        if self.options.deep_iteration:
            records = self._record_lines(batch)
            if self.wanted.selection.needs_records:
                first = next(records, None)
                if first is None:
                    return
                records = chain([first], records)
        self._lines.append(batch_line(batch))
        # A small file may hold a batch of millions of records.
        for line in records:
            if isinstance(line, str):
                self._lines.append(line)
            else:
                self.flush()
                for piece in line:
                    output.write(piece.encode("utf-8", "surrogateescape"))
                output.write(b"\n")
            if len(self._lines) >= WRITE_LINES:
                self.flush()
        if len(self._lines) >= WRITE_LINES:
            self.flush()

    def flush(self) -> None:
        """Write out what has gathered."""
        if self._lines:
            output.line("\n".join(self._lines))
            self._lines.clear()

    def _record_lines(self, batch: ScannedBatch) -> Iterator[str | Iterator[str]]:
        """Give the lines of records; of a large one in pieces."""
        is_plain = self.options.print_data_log and self.options.is_plain_utf8
        try:
            for record in self.segment.records(
                as_the_tool_reads(batch), max_batch_bytes=self.options.max_batch_bytes
            ):
                if record.offset != self._last_offset + 1:
                    self.non_consecutive[self._last_offset] = record.offset
                self._last_offset = record.offset
                if not self.wanted.wants_record(record):
                    continue
                if is_plain and is_large(record.key, record.value) and not batch.header.is_control:
                    yield self._large_line(batch, record)
                else:
                    yield self._record_line(batch, record)
        except FormatError as exc:
            # The tool dies here; the batch is named and the rest of the log is still shown.
            self.session.problem(exc)
            self._last_offset = batch.header.last_offset

    def _large_line(self, batch: ScannedBatch, record: LogRecord) -> Iterator[str]:
        prefix = "| "
        if not self.options.skip_record_metadata:
            yield record_metadata(batch.header, record)
            prefix = " "
        for name, data in (("key", record.key), ("payload", record.value)):
            if data is not None:
                yield f"{prefix}{name}: "
                yield from kafka_text_pieces(data, PIECE_BYTES)
                prefix = " "

    def _record_line(self, batch: ScannedBatch, record: LogRecord) -> str:
        text = ""
        prefix = "| "
        if not self.options.skip_record_metadata:
            text = record_metadata(batch.header, record)
            prefix = " "
            if batch.header.is_control:
                text += self._control_part(batch, record)
        if not self.options.print_data_log or batch.header.is_control:
            return text
        try:
            key, payload = contents_of(record, self.options)
        except FormatError as exc:
            self.session.problem(exc.located(self.segment.path, batch.pos))
            return text
        return text + record_contents(prefix, key, payload)

    def _control_part(self, batch: ScannedBatch, record: LogRecord) -> str:
        try:
            return control_record.describe(record.key, record.value)
        except FormatError as exc:
            self.session.problem(exc.located(self.segment.path, batch.pos))
            return ""
