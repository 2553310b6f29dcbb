"""Records of the coordinators' topics decode: the COO and MSG rules.

A record of a type that is not known is passed over by brokers, too. Types of the newer group
protocols, and of share groups, have changed without a new version while they were developed: that
one of them does not decode is a warning. With any other a coordinator cannot load its partition.
A release that is asked for may know less than ours does: COO-2 and COO-3 tell of that, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.checks.grounds import broker_version as releases
from recovery.rules.findings import Severity
from storage.errors import FormatError, UnsupportedError
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats import consumer_offsets, share_group_state, transaction_state
from storage.formats.coordinator_record import parse_prefix
from storage.kernels.numpy_kernel import batch_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from recovery.checks.grounds.broker_version import BrokerVersion
    from recovery.checks.grounds.collector import Collector
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord

    Decode = Callable[[bytes | None, bytes | None], object]

SHARE_GROUP_TOPIC = "__share_group_state"
GROUP_METADATA_TYPE = 2  # of `__consumer_offsets`; the types above have changed within a version
UNKNOWN_TYPE = "COO-2"
UNKNOWN_VERSION = "COO-3"

# Releases before KIP-915. The group coordinator takes what it has read when it is through; the
# transaction coordinator keeps what came before (GroupMetadataManager, TransactionStateManager).
_OLD_TRANSACTION_VERSION = 0
_OLD_VALUE_VERSION = 3  # of OffsetCommitValue and GroupMetadataValue
PASSES_OVER = "passes over it"
LOADS_NO_GROUP = "its coordinator loads no group and no offset of the partition"
LOADS_NO_MORE_IDS = "its coordinator loads no transactional id that follows in the partition"


def _decode_transaction(key: bytes | None, value: bytes | None) -> None:
    _, state = transaction_state.parse_record(key, value)
    if state is not None:
        _ = state.status


# Topic -> how a record is decoded, and the greatest type whose schemas are settled.
_TOPICS: dict[str, tuple[Decode, int]] = {
    TRANSACTION_STATE_TOPIC: (_decode_transaction, transaction_state.TRANSACTION_TYPE),
    GROUPS_TOPIC: (consumer_offsets.parse_record, GROUP_METADATA_TYPE),
    SHARE_GROUP_TOPIC: (share_group_state.parse_record, -1),
}


class _NotInReleaseError(UnsupportedError):
    """A record that we know, and the release that is asked for does not."""

    def __init__(
        self,
        version: BrokerVersion,
        check_id: str,
        what: str,
        found: int,
        last: int,
        broker_action: str,
    ) -> None:
        super().__init__(
            f"Kafka {version} does not know a record of {what} {found}",
            check_id=check_id,
            pos=0,
            expected=f"0..{last}",
            found=str(found),
        )
        self.broker_action = broker_action


class CoordinatorRecordCheck:
    """Decodes the records of one segment of such a topic."""

    def __init__(
        self,
        topic: str,
        path: str,
        collector: Collector,
        version: BrokerVersion | None,
    ) -> None:
        self._decode, self._settled = _TOPICS[topic]
        self._topic = topic
        self._path = path
        self._collector = collector
        self._version = version

    @classmethod
    def of_topic(
        cls, topic: str, path: str, collector: Collector, version: BrokerVersion | None = None
    ) -> CoordinatorRecordCheck | None:
        """Return a check for a topic; None if its records are not ours to know."""
        return cls(topic, path, collector, version) if topic in _TOPICS else None

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
            error = self._error(key, value)
            if error is not None:
                batch = batch_at(table, int(records.batch_row[row]))
                self._add(error, batch, int(records.offset[row]), key)

    def take_record(self, batch: ScannedBatch, record: LogRecord) -> None:
        """Decode one record."""
        error = self._error(record.key, record.value)
        if error is not None:
            self._add(error, batch, record.offset, record.key)

    def _error(self, key: bytes | None, value: bytes | None) -> FormatError | None:
        try:
            self._decode(key, value)
            if self._version is not None and key is not None:
                self._require_known(self._version, key, value)
        except FormatError as error:
            return error
        return None

    def _require_known(self, version: BrokerVersion, key: bytes, value: bytes | None) -> None:
        """Raise NotInReleaseError for a type or a version that a release does not know."""
        record_type = parse_prefix(key, "key")
        is_lenient = version >= releases.LENIENT_COORDINATORS
        if self._topic == GROUPS_TOPIC:
            last = releases.highest(releases.GROUP_RECORD_TYPES, version) or 0
            if record_type > last:
                action = PASSES_OVER if is_lenient else LOADS_NO_GROUP
                raise _NotInReleaseError(version, UNKNOWN_TYPE, "type", record_type, last, action)
        is_groups = self._topic == GROUPS_TOPIC
        if is_lenient or value is None or self._topic == SHARE_GROUP_TOPIC:
            return
        found = parse_prefix(value, "value")
        last = _OLD_VALUE_VERSION if is_groups else _OLD_TRANSACTION_VERSION
        if found > last:
            action = LOADS_NO_GROUP if is_groups else LOADS_NO_MORE_IDS
            raise _NotInReleaseError(version, UNKNOWN_VERSION, "version", found, last, action)

    def _add(self, error: FormatError, batch: ScannedBatch, offset: int, key: bytes | None) -> None:
        message = f"the record at offset {offset} does not decode: {error.message}"
        severity, action = Severity.ERROR, "its coordinator cannot load the partition"
        if isinstance(error, _NotInReleaseError):
            message, action = error.message, error.broker_action
            severity = Severity.NOTE if action == PASSES_OVER else Severity.ERROR
        elif error.check_id == UNKNOWN_TYPE:
            severity, action = Severity.NOTE, PASSES_OVER
        elif isinstance(error, UnsupportedError) or self._is_unsettled(key):
            severity = Severity.WARNING
        self._collector.add(
            error.check_id,
            self._path,
            message,
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
