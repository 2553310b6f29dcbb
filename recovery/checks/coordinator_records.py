"""Records of the coordinators' topics decode: the COO and MSG rules.

A record of a type that is not known is passed over by brokers, too. Types of the newer group
protocols, and of share groups, have changed without a new version while they were developed: that
one of them does not decode is a warning. With any other a coordinator cannot load its partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.end_markers import batch_at
from recovery.findings import Severity
from storage.errors import FormatError, UnsupportedError
from storage.formats import consumer_offsets, share_group_state, transaction_state
from storage.formats.coordinator_record import parse_prefix
from storage.log_dir import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from recovery.checks.collector import Collector
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.kernels.record_table import RecordTable
    from storage.segment import LogRecord

    Decode = Callable[[bytes | None, bytes | None], object]

GROUP_METADATA_TYPE = 2  # of `__consumer_offsets`; the types above have changed within a version
UNKNOWN_TYPE = "COO-2"


def _decode_transaction(key: bytes | None, value: bytes | None) -> None:
    _, state = transaction_state.parse_record(key, value)
    if state is not None:
        _ = state.status


# Topic -> how a record is decoded, and the greatest type whose schemas are settled.
_TOPICS: dict[str, tuple[Decode, int]] = {
    TRANSACTION_STATE_TOPIC: (_decode_transaction, transaction_state.TRANSACTION_TYPE),
    GROUPS_TOPIC: (consumer_offsets.parse_record, GROUP_METADATA_TYPE),
    "__share_group_state": (share_group_state.parse_record, -1),
}


class CoordinatorRecordCheck:
    """Decodes the records of one segment of such a topic."""

    def __init__(self, decode: Decode, settled: int, path: str, collector: Collector) -> None:
        self._decode = decode
        self._settled = settled
        self._path = path
        self._collector = collector

    @classmethod
    def of_topic(cls, topic: str, path: str, collector: Collector) -> CoordinatorRecordCheck | None:
        """Return a check for a topic; None if its records are not ours to know."""
        found = _TOPICS.get(topic)
        return None if found is None else cls(*found, path, collector)

    def take_table(
        self, table: HeaderTable, records: RecordTable, is_wanted: NDArray[np.bool_]
    ) -> None:
        """Decode the records of some batches of a table."""
        source = records.source.data
        rows = np.flatnonzero(is_wanted[records.batch_row])
        columns = (records.key_pos, records.key_bytes, records.value_pos, records.value_bytes)
        places = zip(rows.tolist(), *(each[rows].tolist() for each in columns), strict=True)
        for row, key_pos, key_bytes, value_pos, value_bytes in places:
            key = None if key_bytes < 0 else bytes(source[key_pos : key_pos + key_bytes])
            value = None if value_bytes < 0 else bytes(source[value_pos : value_pos + value_bytes])
            try:
                self._decode(key, value)
            except FormatError as error:
                batch = batch_at(table, int(records.batch_row[row]))
                self._add(error, batch, int(records.offset[row]), key)

    def take_record(self, batch: ScannedBatch, record: LogRecord) -> None:
        """Decode one record."""
        try:
            self._decode(record.key, record.value)
        except FormatError as error:
            self._add(error, batch, record.offset, record.key)

    def _add(self, error: FormatError, batch: ScannedBatch, offset: int, key: bytes | None) -> None:
        severity, action = Severity.ERROR, "its coordinator cannot load the partition"
        if error.check_id == UNKNOWN_TYPE:
            severity, action = Severity.NOTE, "passes over it"
        elif isinstance(error, UnsupportedError) or self._is_unsettled(key):
            severity = Severity.WARNING
        self._collector.add(
            error.check_id,
            self._path,
            f"the record at offset {offset} does not decode: {error.message}",
            severity=severity,
            start_pos=batch.pos,
            end_pos=batch.pos + batch.header.batch_bytes,
            base_offset=offset,
            last_offset=offset,
            expected=error.expected,
            found=error.found,
            broker_action=action,
        )

    def _is_unsettled(self, key: bytes | None) -> bool:
        try:
            return key is not None and parse_prefix(key, "key") > self._settled
        except FormatError:
            return False
