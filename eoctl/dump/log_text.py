"""A `.log` or KRaft `.checkpoint` as kafka-dump-log's text, with keys and values as text.

Source: class org.apache.kafka.tools.DumpLogSegments of 4.3.1. The bulk variants in this package
print the same bytes and are tested against this module.

The plain scan reads every place at which the kernel stops: damage, or a batch that the kernel does
not support. It also reads the batches before it that a later batch may contradict, so the rules are
only in the scan. The kernel continues behind the place. After damage the plain scan reads a stretch
first, so that a log full of damage is not slower.
"""

from __future__ import annotations

from itertools import chain, repeat, starmap
from typing import TYPE_CHECKING, NamedTuple

from eoctl import output
from eoctl.dump.selection import Decoder, ValueDecoder, log_context
from eoctl.dump.session import absolute_path
from storage.errors import CorruptError, FormatError
from storage.files import positioned_file
from storage.formats import control_record
from storage.formats.compression import Codec
from storage.formats.java_text import kafka_text, kafka_text_pieces
from storage.formats.record import RecordHeader
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.kernel_choice import load_native, select_kernel
from storage.kernels.protocol import ScannedBatch, VerdictKind
from storage.kernels.scan import Scan
from storage.limits import as_int64
from storage.log.segment import LogRecord, size_problem
from storage.value_pieces import PIECE_BYTES, is_large

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from eoctl.dump.selection import BatchFilter, DumpOptions, LogContext
    from eoctl.dump.session import DumpSession
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.kernel_choice import Native
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import Verdict
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import Segment

    Ints = NDArray[np.int64]


def java_boolean(*, value: bool) -> str:
    """Return `true` or `false`, as Java prints it."""
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """Return a java.util.OptionalLong as text."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def timestamp_type(header: BatchHeader) -> str:
    """Return the name of the batch's timestamp type, which the tool uses as a field name."""
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def codec_name(header: BatchHeader) -> str:
    """Return the name of the codec. If the tool would fail on the codec, it is `unknown(N)`."""
    try:
        return Codec(header.codec).label
    except ValueError:
        return f"unknown({header.codec})"


def batch_line(batch: ScannedBatch) -> str:
    """Return the line of a batch (v2) or of an outer message (v0, v1), without a newline."""
    header = batch.header
    if header.magic >= MAGIC_V2:
        start = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
            f" count: {header.records_count} baseSequence: {header.base_sequence}"
            f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
            f" producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.partition_leader_epoch}"
            f" isTransactional: {java_boolean(value=header.is_transactional)}"
            f" isControl: {java_boolean(value=header.is_control)}"
            f" deleteHorizonMs: {optional_long(header.delete_horizon_ms)}"
        )
    else:
        start = f"offset: {header.base_offset}"
    return (
        f"{start} position: {batch.pos} {timestamp_type(header)}: {header.max_timestamp_ms}"
        f" size: {header.batch_bytes} magic: {header.magic} compresscodec: {codec_name(header)}"
        f" crc: {header.crc} isvalid: {java_boolean(value=batch.crc_ok is not False)}"
    )


def as_it_stands(scan: Scan, batch: ScannedBatch) -> ScannedBatch:
    """Return a batch with the magic in the file, which may be above 2."""
    magic = scan.wrong_magics.get(batch.pos, 0)
    if magic <= MAGIC_V2:
        return batch
    return batch._replace(header=batch.header._replace(magic=magic))


def as_the_tool_reads(batch: ScannedBatch) -> ScannedBatch:
    """Return a batch of a magic above 2 as magic 2, because Kafka's file reader does so."""
    if batch.header.magic <= MAGIC_V2:
        return batch
    return batch._replace(header=batch.header._replace(magic=MAGIC_V2))


def record_metadata(header: BatchHeader, record: LogRecord) -> str:
    """Return the part of a record line before the control part, the key and the payload."""
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    line = (
        f"| offset: {record.offset} {timestamp_type(header)}: {record.timestamp_ms}"
        f" keySize: {key_bytes} valueSize: {value_bytes}"
    )
    if header.magic >= MAGIC_V2:
        keys = ",".join(each.key_text for each in record.headers)
        return f"{line} sequence: {record.sequence} headerKeys: [{keys}]"
    return f"{line} isValid: {java_boolean(value=bool(record.crc_ok))} crc: {record.crc}"


def record_contents(prefix: str, key: str | None, payload: str | None) -> str:
    """Return key and payload as the tool appends them.

    `prefix` is a blank, or the bar if nothing precedes them.
    """
    text = ""
    if key is not None:
        text = f"{prefix}key: {key}"
        prefix = " "
    if payload is not None:
        text += f"{prefix}payload: {payload}"
    return text


# -- log text


MIN_BYTES = 64 << 10  # below this size the plain scan is as fast
KERNEL_PIECE_BYTES = 256 << 10  # per thread and read, to fit into the processor's cache
HEADERS_FACTOR = 4  # without records a piece is little work, so the overhead per piece shows


class PrintTo(NamedTuple):
    """The content that the kernel prints, and its destination.

    Attributes:
        records: None to print batches alone. Else two flags: keys and values are printed, and
            nothing else of a record is.
        max_batch_bytes: the plain scan prints batches that decompress to more.
        threads: number of threads.
        write: takes bytes. None is the standard output, whose buffer must be empty.
        before: runs before anything is printed and flushes buffers. Returns the offset of the last
            printed record.
        after: gets the offset of the last printed record, and the pairs of consecutive records
            whose offsets are not consecutive.
    """

    records: tuple[bool, bool] | None
    max_batch_bytes: int
    threads: int
    write: Callable[[bytes], object] | None
    before: Callable[[], int]
    after: Callable[[int, list[tuple[int, int]]], object]


class PrintingScan(Scan):
    """A Scan of a plain file that prints most of its batches, and also yields some of them.

    Attributes:
        printed_pos: batches before it are printed.
    """

    def __init__(
        self, segment: Segment, native: Native, print_to: PrintTo, **options: object
    ) -> None:
        """Take the options of `Segment.scan`."""
        super().__init__(segment.file, segment.known_base_offset, **options)  # type: ignore[arg-type]
        self.printed_pos = self.start_pos
        self._native = native
        self._print_to = print_to
        self._path = segment.path
        self._name = segment.file.name_to_open_again
        self._careful_pos = 0  # the plain scan reads up to here first

    def _run(self, pos: int) -> Generator[list[ScannedBatch], None, int]:
        pos = yield from super()._run(pos)
        self._careful_pos = pos + MIN_BYTES
        return pos

    def _start_of_window(self, pos: int) -> int:
        # The scan may have to read printed batches again: see `_print`.
        is_free = pos >= max(self._careful_pos, self.printed_pos)
        if is_free and self._name and self.end_pos - pos >= MIN_BYTES:
            return self._print(pos)
        return pos

    def _print(self, pos: int) -> int:
        """Print the healthy batches from `pos` on. Return where the plain scan must start."""
        to, neighbours, watcher = (
            self._print_to,
            self._neighbours,
            positioned_file.current_watcher(),
        )
        last_record_offset = to.before()
        if as_int64(last_record_offset) != last_record_offset:
            return pos  # the offset of a batch is wrong and does not fit into the kernel's 64 bits
        reported_pos = pos

        def report(end_pos: int) -> None:
            nonlocal reported_pos
            if watcher is not None:
                watcher.read(self._path, reported_pos, end_pos - reported_pos)
            reported_pos = end_pos

        printed = self._native.print_log(
            self._name,
            start=(pos, neighbours.last_offset, neighbours.leader_epoch),
            last_record_offset=last_record_offset,
            end_pos=self.end_pos,
            limits=(neighbours.min_offset, neighbours.max_offset),
            records=to.records,
            max_batch_bytes=to.max_batch_bytes,
            threads=to.threads,
            piece_bytes=KERNEL_PIECE_BYTES * (1 if to.records else HEADERS_FACTOR),
            write=to.write,
            tick=report,
        )
        to.after(printed.last_record_offset, printed.non_consecutive)
        self.printed_pos = max(self.printed_pos, printed.place[0])
        sure_pos, neighbours.last_offset, neighbours.leader_epoch = printed.sure
        return sure_pos


# -- a `.log` or KRaft `.checkpoint` as kafka-dump-log's text, with keys and values as text


TOPIC_DECODERS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTION_LOG,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
    "__share_group_state": Decoder.SHARE_GROUP_STATE,
}


def decoder_of_path(path: str) -> Decoder | None:
    """Guess the decoder from the directory's topic name.

    `.checkpoint` files are cluster metadata.
    """
    if path.endswith(".checkpoint"):
        return Decoder.CLUSTER_METADATA
    parts = path.split("/")
    topic = parts[-2].rpartition("-")[0] if len(parts) > 1 else ""
    return TOPIC_DECODERS.get(topic)


def contents_of(
    record: LogRecord, options: DumpOptions, on_tags: Callable[[list[int]], object] | None = None
) -> tuple[str | None, str | None]:
    """Return key and payload of a data record as the tool prints them. None is left out.

    `on_tags` gets the unknown tagged fields, which are not printed.

    Raises:
        FormatError: the decoder cannot start on it (a coordinator record without a key).
    """
    decoded = decode_internal(record, options.decoder, options, on_tags)
    if decoded is not None:
        return decoded
    return (
        decode_plain(record.key, options.key_decoder),
        decode_plain(record.value, options.value_decoder),
    )


def decode_internal(
    record: LogRecord,
    decoder: Decoder | None,
    options: DumpOptions,
    on_tags: Callable[[list[int]], object] | None = None,
) -> tuple[str | None, str | None] | None:
    """Return key and payload of an internal topic's record, None without a decoder."""
    if decoder is Decoder.OFFSETS:
        from storage.formats.consumer_offsets import describe_record
    elif decoder is Decoder.TRANSACTION_LOG:
        from storage.formats import transaction_state

        return transaction_state.describe_record(
            record.offset, record.key, record.value,
            on_tags=on_tags, names_status=options.names_status,
        )  # fmt: skip
    elif decoder is Decoder.SHARE_GROUP_STATE:
        from storage.formats.share_group_state import describe_record
    elif decoder is Decoder.REMOTE_LOG_METADATA:
        from storage.formats.remote_log_metadata import describe_record
    elif decoder is Decoder.CLUSTER_METADATA:
        from storage.formats import cluster_metadata

        return cluster_metadata.describe_record(
            record.offset, record.key, record.value,
            redact=not options.show_secrets, on_tags=on_tags,
        )  # fmt: skip
    else:
        return None
    return describe_record(record.offset, record.key, record.value, on_tags=on_tags)


def decode_plain(data: bytes | None, decoder: ValueDecoder) -> str | None:
    """Return the text of a key or value under one of Kafka's decoder classes.

    DefaultDecoder prints an object's identity in Java ("[B@1b2c3d"). Here it is hexadecimal.

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


# Below these sizes, importing a kernel takes longer than it saves.
BULK_MIN_BYTES = {"pure": 1 << 62, "numpy": 1 << 20, "native": 64 << 10}
MAX_KERNEL_BATCH_BYTES = 16 << 20  # larger batches are printed in pieces, which saves memory
STDOUT_FD = 1
FRAMING_CHECK_ID = "BAT-2"


def dump_log_text(path: str, segment: Segment, session: DumpSession, wanted: BatchFilter) -> None:
    """Print the lines of all batches (and records), and the trailing bytes as the tool does.

    At some damage the tool's reader fails (an impossible length, a bad sector). It stops silently
    before good batches (a length that is too large), or follows a length into the middle of a
    batch. Here the rest is found again and printed, too. At a torn tail the dump stops like the
    tool.
    """
    options = session.options
    file_bytes = segment.file_bytes
    end_pos = options.end_pos(file_bytes)
    context = log_context(path, is_limited=end_pos < file_bytes)
    printer = LinePrinter(segment, session, wanted)
    kernel = select_kernel()
    is_bulk = wanted.is_everything and options.is_plain_utf8 and end_pos >= BULK_MIN_BYTES[kernel]
    native = load_native() if is_bulk and segment.file.name_to_open_again else None
    if native is not None:
        walked = _print_native(segment, printer, end_pos, context, native)
    elif is_bulk:
        walked = _print_windows(segment, printer, end_pos, context)
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
    """The result of a scan: a broker's end, the verdicts, and whether batches follow later."""

    valid_bytes: int
    verdicts: list[Verdict]
    is_resynced: bool


def _kills_the_tool(verdict: Verdict, valid_bytes: int) -> bool:
    """Return whether the tool's scan ends at a verdict with an exception instead of silently."""
    if verdict.start_pos < valid_bytes:
        return False
    return verdict.kind is VerdictKind.UNREADABLE or verdict.check_id == FRAMING_CHECK_ID


def _print_windows(
    segment: Segment, printer: LinePrinter, end_pos: int, context: LogContext
) -> Walked:
    """Print the lines of all batches that numpy finds and decodes, many batches at a time."""
    from storage.kernels.numpy_kernel import BulkScan, BulkWindow

    scan = BulkScan(
        segment,
        end_pos=end_pos,
        is_active=context.is_last,
        end_offset=context.end_offset,
        resume=True,
    )
    for part in scan.parts():
        if isinstance(part, BulkWindow):
            printer.print_window(part)
        else:
            printer.print_batch(as_it_stands(scan, part))
    printer.flush()
    return Walked(scan.valid_bytes, scan.verdicts, is_resynced=scan.resynced)


def _print_native(
    segment: Segment, printer: LinePrinter, end_pos: int, context: LogContext, native: Native
) -> Walked:
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


def records_of(table: RecordTable) -> list[list[LogRecord]]:
    """Return the records of each batch. A batch that must be read separately has none."""
    import numpy as np

    from storage.kernels.record_table import byte_slices, headers_of

    found: list[list[LogRecord]] = [[] for _ in range(table.batch_count)]
    if not table.row_count:
        return found
    source = table.source.data
    headers: Iterable[tuple[RecordHeader, ...]] = repeat(())
    if len(table.header_record):
        pairs = headers_of(table, np.arange(table.row_count), source)
        headers = (tuple(starmap(RecordHeader, each)) for each in pairs)
    columns = zip(
        table.batch_row.tolist(),
        table.offset.tolist(),
        table.timestamp_ms.tolist(),
        table.sequence.tolist(),
        byte_slices(source, table.key_pos, table.key_bytes),
        byte_slices(source, table.value_pos, table.value_bytes),
        headers,
        strict=False,
    )
    for row, offset, timestamp_ms, sequence, key, value, own_headers in columns:
        found[row].append(
            LogRecord(
                offset=offset,
                timestamp_ms=timestamp_ms,
                sequence=sequence,
                key=key,
                value=value,
                headers=own_headers,
                crc=None,
                crc_ok=None,
            )
        )
    return found


class LinePrinter:
    """A printer of one batch at a time: the definition, for small files, filters and decoders."""

    def __init__(self, segment: Segment, session: DumpSession, wanted: BatchFilter) -> None:
        self.segment = segment
        self.session = session
        self.options: DumpOptions = session.options
        self.wanted = wanted
        self.non_consecutive: dict[int, int] = {}
        self._last_offset = -1
        self._lines = output.Lines(output.line)

    def last_printed_offset(self) -> int:
        """Write all buffered lines, so that the kernel can continue.

        Return the last record's offset.
        """
        self.flush()
        output.flush()
        return self._last_offset

    def continue_after(self, last_offset: int, non_consecutive: Iterable[tuple[int, int]]) -> None:
        """Continue after the kernel, from the record at `last_offset`."""
        self._last_offset = last_offset
        self.non_consecutive.update(non_consecutive)

    def print_scan(self, scan: Scan) -> None:
        """Print all wanted batches of a scan."""
        for batch in scan:
            if self.wanted.wants_batch(batch):
                self.print_batch(as_it_stands(scan, batch))
        self.flush()

    def print_window(self, window: BulkWindow) -> None:
        """Print healthy batches. Records are decoded many at a time."""
        from storage.kernels.numpy_kernel import rows_of
        from storage.kernels.pure import parse_frame
        from storage.kernels.record_table import PIECE_RECORDS, decode_records

        table, max_batch_bytes = window.table, self.options.max_batch_bytes
        while table.row_count:
            behind = table.records_count.cumsum(dtype="int64")
            rows = rows_of(table, 0, max(int(behind.searchsorted(PIECE_RECORDS, "right")), 1))
            decoded: list[list[LogRecord]] = [[] for _ in range(rows.row_count)]
            # The records of a huge batch are read one by one, which saves memory.
            if self.options.deep_iteration and int(behind[0]) <= PIECE_RECORDS:
                decoded = records_of(
                    decode_records(
                        rows, window.buf, window.file_pos, max_batch_bytes=max_batch_bytes
                    )
                )
            for pos, records in zip(rows.pos.tolist(), decoded, strict=False):
                header = parse_frame(window.buf, pos - window.file_pos)
                batch = ScannedBatch(pos, header, crc_ok=True)
                self.print_batch(batch, () if header.is_control else records)
            table = rows_of(table, len(decoded), table.row_count)

    def print_batch(self, batch: ScannedBatch, decoded: Sequence[LogRecord] = ()) -> None:
        """Print the line of a batch, and the lines of its records if they are requested.

        `decoded`: its records. If empty, they are read.
        """
        records: Iterator[str | Iterator[str]] = iter(())
        if self.options.deep_iteration:
            records = self._record_lines(batch, decoded)
            if self.wanted.selection.needs_records:
                first = next(records, None)
                if first is None:
                    return
                records = chain([first], records)
        put = self._lines.put
        put(batch_line(batch))
        # Not collected first, because a small file may have a batch of millions of records.
        for line in records:
            if isinstance(line, str):
                put(line)
            else:
                self.flush()
                for piece in line:
                    output.write(piece.encode("utf-8", "surrogateescape"))
                output.write(b"\n")

    def flush(self) -> None:
        """Write all buffered lines."""
        self._lines.flush()

    def _record_lines(
        self, batch: ScannedBatch, decoded: Sequence[LogRecord]
    ) -> Iterator[str | Iterator[str]]:
        """Yield the lines of records. The line of a large record comes in pieces."""
        is_plain = self.options.print_data_log and self.options.is_plain_utf8
        try:
            for record in decoded or self.segment.records(
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
            # The tool fails here. The batch is reported and the rest of the log is still printed.
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
            key, payload = contents_of(
                record, self.options, self.session.tags_of(self.segment.path, batch.pos, record)
            )
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
