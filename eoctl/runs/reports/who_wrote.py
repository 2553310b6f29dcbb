"""Who wrote a record, in words: what a person wants to know of an offset."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eoctl.clock import format_time_ms
from eoctl.runs.reports.bytes_text import bytes_text
from storage.errors import EoctlError, call_text
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.dirs.partition import Partition
    from storage.formats.record_batch import BatchHeader
    from storage.log.segment import LogRecord

MOST_CHARACTERS = 40  # of a key


def who_wrote(partition: Partition, offset: int) -> Iterator[str]:
    """Give at most three lines about the batch that an offset is in; nothing if it is not there."""
    try:
        place = partition.find_offset(offset)
        if place is None or place.batch.header.base_offset > offset:
            return
        with open_segment(place.files.log.path, base_offset=place.files.base_offset) as segment:
            found = (each for each in segment.records(place.batch) if each.offset == offset)
            record = next(found, None)
    except EoctlError:  # told by who has located it
        return
    header = place.batch.header
    doubt = "" if place.batch.crc_ok is not False else ", by a batch whose checksum is wrong"
    yield f"offset {offset}: {_writer(header)}, leader epoch {header.partition_leader_epoch}{doubt}"
    if record is not None and not header.is_control:
        yield f"  {_said(record)}"
    if header.is_transactional and header.producer_id >= 0:
        log_dir = os.path.dirname(partition.path) or "."  # noqa: PTH120 - as it was given
        call = ["eoctl", "txn", "describe", "--producer-id", str(header.producer_id), log_dir]
        yield f"  whose transactional id: {call_text(call)}"


def _writer(header: BatchHeader) -> str:
    if header.is_control:
        return f"a marker for producer {header.producer_id}, epoch {header.producer_epoch}"
    if header.producer_id < 0:
        return "a producer without idempotence"
    kind = "in a transaction" if header.is_transactional else "idempotent"
    return f"producer {header.producer_id}, epoch {header.producer_epoch}, {kind}"


def _said(record: LogRecord) -> str:
    key = "null" if record.key is None else bytes_text(record.key, MOST_CHARACTERS)
    time = (
        "without a time" if record.timestamp_ms < 0 else f"at {format_time_ms(record.timestamp_ms)}"
    )
    return f"key {key}, {time}"
