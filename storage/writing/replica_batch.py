"""What a follower checks of a batch that it has fetched (APP-2, APP-10): it is the leader's.

Source: UnifiedLog.appendAsFollower, analyzeAndValidateRecords.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from storage.errors import CorruptError, FormatError
from storage.formats.control_record import (
    ControlRecordType,
    parse_control_key,
    parse_end_txn_marker,
)
from storage.formats.record import parse_records
from storage.formats.record_batch import (
    HEADER_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    BatchHeader,
    compute_crc,
    parse_header,
    record_timestamp_ms,
)
from storage.producers.producer_state import AppendError, Marker

if TYPE_CHECKING:
    from storage.bounds import Buf

_END_TYPES = {ControlRecordType.ABORT, ControlRecordType.COMMIT}


def parse_replica_batch(batch: Buf, end_offset: int) -> tuple[BatchHeader, Marker | None]:
    """Read the header of one whole batch, and the marker if it is a control batch that has one.

    Raises:
        AppendError: its checksum is wrong, it is another format, or it lies below the log end.
    """
    try:
        header, marker, is_crc_right = _read_kept(batch) if type(batch) is bytes else _read(batch)
    except FormatError as exc:
        raise _refusal("CORRUPT_MESSAGE", exc.message, end_offset) from exc
    if not is_crc_right:
        raise _refusal("CORRUPT_MESSAGE", "its checksum is wrong", end_offset)
    if header.base_offset < end_offset:
        what = f"the batch at {header.base_offset} lies below the log end"
        raise _refusal("OFFSETS_OUT_OF_ORDER", what, end_offset)
    return header, marker


def _read(batch: Buf) -> tuple[BatchHeader, Marker | None, bool]:
    """Header, marker, and whether the checksum is right. Raises FormatError."""
    header = parse_header(batch, 0)
    if header.magic != MAGIC_V2 or header.batch_bytes != len(batch):
        raise CorruptError("not exactly one batch of format v2", check_id="BAT-2", pos=0)
    return header, _marker_of(header, batch), compute_crc(batch) == header.crc


# Where a leader and its followers are played in one process, the next one has the same bytes soon.
_read_kept = lru_cache(maxsize=4)(_read)


def _marker_of(header: BatchHeader, batch: Buf) -> Marker | None:
    if not header.is_control or header.producer_id < 0 or not header.records_count:
        return None
    record = next(iter(parse_records(memoryview(batch)[HEADER_BYTES:], 1)))
    kind = parse_control_key(record.key).type
    if kind not in _END_TYPES:
        return None
    return Marker(
        kind == ControlRecordType.COMMIT,
        parse_end_txn_marker(record.value).coordinator_epoch,
        record_timestamp_ms(header, record.timestamp_delta_ms),
    )


def _refusal(kafka_error: str, what: str, offset: int) -> AppendError:
    return AppendError(
        kafka_error, f"log end {offset}: {what}", producer_id=NO_PRODUCER_ID, offset=offset
    )
