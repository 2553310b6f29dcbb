"""What the plain functions say of a segment: what each faster way of printing is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.dump.log_text import (
    as_it_stands,
    as_the_tool_reads,
    batch_line,
    record_contents,
    record_metadata,
)
from storage.errors import FormatError
from storage.formats import control_record
from storage.formats.java_text import kafka_text

if TYPE_CHECKING:
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.kernels.scan import Scan
    from storage.log.segment import LogRecord, Segment

MODES = [
    {"deep": False, "print_data": False, "skip_record_metadata": False},
    {"deep": True, "print_data": False, "skip_record_metadata": False},
    {"deep": True, "print_data": True, "skip_record_metadata": False},
    {"deep": True, "print_data": True, "skip_record_metadata": True},
]


class Said(NamedTuple):
    """All that one of the two paths says about a segment."""

    text: bytes
    faults: list[tuple[type, str, int, str]]
    verdicts: list[Verdict]
    valid_bytes: int
    last_offset: int
    non_consecutive: dict[int, int]


def fault(error: FormatError) -> tuple[type, str, int, str]:
    return type(error), error.check_id, error.pos, str(error)


class Speaker:
    """Makes the lines of batches plainly, one after the other."""

    def __init__(
        self,
        segment: Segment,
        *,
        deep: bool,
        print_data: bool,
        skip_record_metadata: bool,
        max_batch_bytes: int = 256 << 20,
    ) -> None:
        self.text = bytearray()
        self.faults: list[Any] = []
        self.last_offset = -1
        self.pairs: dict[int, int] = {}
        self._segment = segment
        self._deep = deep
        self._print_data = print_data
        self._skip_record_metadata = skip_record_metadata
        self._max_batch_bytes = max_batch_bytes

    def say(self, batch: ScannedBatch, as_it_is: ScannedBatch) -> None:
        self.text += f"{batch_line(as_it_is)}\n".encode()
        if not self._deep:
            return
        readable = as_the_tool_reads(as_it_is)
        try:
            for record in self._segment.records(readable, max_batch_bytes=self._max_batch_bytes):
                if record.offset != self.last_offset + 1:
                    self.pairs[self.last_offset] = record.offset
                self.last_offset = record.offset
                self.text += f"{self._record_line(batch, record)}\n".encode()
        except FormatError as error:
            self.faults.append(fault(error))
            self.last_offset = batch.header.last_offset

    def _record_line(self, batch: ScannedBatch, record: LogRecord) -> str:
        line, prefix = "", "| "
        if not self._skip_record_metadata:
            line, prefix = record_metadata(batch.header, record), " "
            if batch.header.is_control:
                try:
                    line += control_record.describe(record.key, record.value)
                except FormatError as error:
                    self.faults.append(fault(error.located(self._segment.path, batch.pos)))
        if self._print_data and not batch.header.is_control:
            key = None if record.key is None else kafka_text(record.key)
            payload = None if record.value is None else kafka_text(record.value)
            line += record_contents(prefix, key, payload)
        return line

    def said(self, scan: Scan) -> Said:
        return Said(
            text=bytes(self.text),
            faults=self.faults,
            verdicts=scan.verdicts,
            valid_bytes=scan.valid_bytes,
            last_offset=self.last_offset,
            non_consecutive=self.pairs,
        )


def say_plainly(segment: Segment, *, resume: bool, **mode: Any) -> Said:
    speaker = Speaker(segment, **mode)
    scan = segment.scan(resume=resume)
    for batch in scan:
        speaker.say(batch, as_it_stands(scan, batch))
    return speaker.said(scan)
