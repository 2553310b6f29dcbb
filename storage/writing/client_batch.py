"""What a leader checks of a client's batch before anything is touched (APP-2, APP-3).

Its records are not looked at. Source: UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import FormatError
from storage.formats.record_batch import (
    CONTROL_MASK,
    LOG_APPEND_TIME_MASK,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP_MS,
    TRANSACTIONAL_MASK,
    BatchHeader,
    compute_crc,
    parse_header,
)
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from storage.dirs.log_config import LogConfig


def parse_client_batch(batch: bytes, offset: int) -> BatchHeader:
    """Read the header of one whole batch with a right checksum, as a client sends it.

    Raises:
        AppendError: what a broker answers; `offset` is the one that it would get.
    """
    try:
        header = parse_header(batch, 0)
    except FormatError as exc:
        raise _refusal("CORRUPT_MESSAGE", exc.message, offset) from exc
    if header.magic != MAGIC_V2:
        raise _refusal("CORRUPT_MESSAGE", f"magic {header.magic}", offset, header)
    if header.batch_bytes != len(batch):
        raise _refusal("CORRUPT_MESSAGE", "not exactly one batch", offset, header)
    if compute_crc(batch) != header.crc:
        raise _refusal("CORRUPT_MESSAGE", "its checksum is wrong", offset, header)
    if header.attributes & LOG_APPEND_TIME_MASK:
        what = "a client may not set LogAppendTime"
        raise _refusal("INVALID_TIMESTAMP", what, offset, header)
    return header


def require_valid(header: BatchHeader, config: LogConfig, offset: int) -> None:
    """Make sure that a batch is dense, not too large, and of a kind that a client may send.

    Raises:
        AppendError: what a broker answers; `offset` is the one that it would get.
    """
    batch_bytes = header.batch_bytes
    if batch_bytes > config.max_message_bytes:
        what = f"{batch_bytes} bytes, at most {config.max_message_bytes} (max.message.bytes)"
        raise _refusal("MESSAGE_TOO_LARGE", what, offset, header)
    if batch_bytes > config.segment_bytes:
        what = f"{batch_bytes} bytes, at most {config.segment_bytes} (segment.bytes)"
        raise _refusal("RECORD_LIST_TOO_LARGE", what, offset, header)
    attributes = header.attributes
    is_right = (
        header.base_offset == 0
        and header.records_count == header.last_offset_delta + 1 > 0
        and not attributes & CONTROL_MASK
        and (
            header.base_sequence >= 0
            if header.producer_id >= 0
            else not attributes & TRANSACTIONAL_MASK
        )
    )
    if not is_right:
        raise _refusal("INVALID_RECORD", _fault_of(header), offset, header)


def require_timely(header: BatchHeader, config: LogConfig, now_ms: int, offset: int) -> None:
    """Make sure that the times which the header has are not too far from the clock.

    Those are that of the first record and the largest; LogAppendTime replaces them.

    Raises:
        AppendError: INVALID_TIMESTAMP; `offset` is the one that the batch would get.
    """
    if config.is_log_append_time:
        return
    oldest_ms, newest_ms = time_bounds(config, now_ms)
    for each_ms in (header.base_timestamp_ms, header.max_timestamp_ms):
        if each_ms != NO_TIMESTAMP_MS and not oldest_ms <= each_ms <= newest_ms:
            what = (
                f"its timestamp {each_ms} is more than {config.timestamp_after_max_ms} ms ahead of"
                " the clock (message.timestamp.after.max.ms)"
                if each_ms > newest_ms
                else f"its timestamp {each_ms} is more than {config.timestamp_before_max_ms} ms"
                " behind the clock (message.timestamp.before.max.ms)"
            )
            raise _refusal("INVALID_TIMESTAMP", what, offset, header)


def time_bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """The smallest and the largest timestamp that a client may set."""
    return now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms


def _refusal(
    kafka_error: str, what: str, offset: int, header: BatchHeader | None = None
) -> AppendError:
    producer_id = NO_PRODUCER_ID if header is None else header.producer_id
    return AppendError(
        kafka_error, f"batch for offset {offset}: {what}", producer_id=producer_id, offset=offset
    )


def _fault_of(header: BatchHeader) -> str:
    """Tell why a client may not send a batch (APP-3)."""
    faults = {
        "its base offset is not 0": header.base_offset != 0,
        "offsets without records": header.records_count != header.last_offset_delta + 1,
        "it has no record": header.records_count <= 0,
        "a client may not write control records": header.is_control,
        "a producer id without sequence": header.producer_id >= 0 > header.base_sequence,
        "a transaction without producer id": header.is_transactional and header.producer_id < 0,
    }
    return next(what for what, is_so in faults.items() if is_so)
