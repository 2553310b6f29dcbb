"""Target: kafka-dump-log's text in bulk, against the plain functions that define it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.text.plain import (
    as_it_stands,
    as_the_tool_reads,
    batch_line,
    record_contents,
    record_metadata,
)
from eoctl.text.renderers import render_log
from storage.errors import FormatError
from storage.formats import control_record
from storage.formats.java_text import kafka_text

from .engine import Target
from .mutations import repair_log
from .segment_targets import MAX_BATCH_BYTES, chance, log_seeds, pieces, segment_of

if TYPE_CHECKING:
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.kernels.scan import Scan
    from storage.log.segment import LogRecord, Segment

SMALL_BATCH_BYTES = 400


class Mode(NamedTuple):
    """How a log is printed."""

    deep: bool
    print_data: bool
    skip_record_metadata: bool
    resume: bool
    max_batch_bytes: int


class Said(NamedTuple):
    """All that is said about a log."""

    text: bytes
    faults: list[str]
    verdicts: list[Verdict]
    valid_bytes: int
    last_offset: int
    non_consecutive: dict[int, int]


class _Plain:
    """Prints batch by batch and record by record."""

    def __init__(self, segment: Segment, mode: Mode) -> None:
        self.lines: list[str] = []
        self.faults: list[str] = []
        self.last_offset = -1
        self.non_consecutive: dict[int, int] = {}
        self._segment = segment
        self._mode = mode

    def print_batch(self, batch: ScannedBatch, scan: Scan) -> None:
        """Add the line of a batch, and with `deep` those of its records up to a fault."""
        self.lines.append(batch_line(as_it_stands(scan, batch)))
        if not self._mode.deep:
            return
        max_bytes = self._mode.max_batch_bytes
        try:
            readable = as_the_tool_reads(batch)
            for one in self._segment.records(readable, max_batch_bytes=max_bytes):
                if one.offset != self.last_offset + 1:
                    self.non_consecutive[self.last_offset] = one.offset
                self.last_offset = one.offset
                self.lines.append(self._record_line(batch, one))
        except FormatError as error:
            self.faults.append(f"{type(error).__name__} {error}")
            self.last_offset = batch.header.last_offset

    def _record_line(self, batch: ScannedBatch, one: LogRecord) -> str:
        line, prefix = "", "| "
        is_control = batch.header.is_control
        if not self._mode.skip_record_metadata:
            line, prefix = record_metadata(batch.header, one), " "
            if is_control:
                try:
                    line += control_record.describe(one.key, one.value)
                except FormatError as error:
                    error.located(self._segment.path, batch.pos)
                    self.faults.append(f"{type(error).__name__} {error}")
        if is_control or not self._mode.print_data:
            return line
        return line + record_contents(prefix, _text(one.key), _text(one.value))


def _text(data: bytes | None) -> str | None:
    return None if data is None else kafka_text(data)


def _say_plainly(segment: Segment, mode: Mode) -> Said:
    scan = segment.scan(resume=mode.resume)
    plain = _Plain(segment, mode)
    for batch in scan:
        plain.print_batch(batch, scan)
    return Said(
        "".join(f"{line}\n" for line in plain.lines).encode(),
        plain.faults,
        scan.verdicts,
        scan.valid_bytes,
        plain.last_offset,
        plain.non_consecutive,
    )


def _say_in_bulk(segment: Segment, mode: Mode) -> Said:
    out = bytearray()
    faults: list[str] = []
    options: dict[str, Any] = mode._asdict()
    result = render_log(
        segment,
        out.extend,
        on_error=lambda error: faults.append(f"{type(error).__name__} {error}"),
        **options,
    )
    return Said(
        bytes(out),
        faults,
        result.verdicts,
        result.valid_bytes,
        result.last_offset,
        result.non_consecutive,
    )


def _bulk_text(data: bytes) -> None:
    """The bulk renderer writes what the plain one writes, and finds the same faults."""
    rnd = chance(data)
    deep = rnd.random() < 0.8
    mode = Mode(
        deep=deep,
        print_data=deep and rnd.random() < 0.8,
        skip_record_metadata=deep and rnd.random() < 0.2,
        resume=rnd.random() < 0.5,
        max_batch_bytes=rnd.choice((MAX_BATCH_BYTES, SMALL_BATCH_BYTES)),
    )
    with segment_of(data) as segment, pieces(small=rnd.random() < 0.7):
        found, expected = _say_in_bulk(segment, mode), _say_plainly(segment, mode)
        for name, one, other in zip(Said._fields, found, expected, strict=True):
            assert one == other, f"{mode}: {name}: {one!r}, not {other!r}"


TARGETS = [Target("bulk_text", _bulk_text, log_seeds, 300, repair_log)]
