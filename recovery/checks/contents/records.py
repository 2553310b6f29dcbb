"""Rules that need decoded records (`--deep`): headers and checksums cannot prove them.

    BAT-7   the body decompresses, within a limit, and its records fill it exactly
    BAT-8   offset deltas ascend, from 0 to the last offset delta
    BAT-9   the max timestamp is the records' maximum, unless it is the append time
    BAT-12  a control batch has one end marker, or without a producer, records of KRaft
    BAT-13  a delete horizon has a tombstone or a marker (not required after a compaction)
    BAT-17  legacy wrappers: null key, good inner messages whose offsets ascend to the wrapper's
    COO, MSG  records of the coordinators' topics decode

`kraft` checks records of `__cluster_metadata`.

Ordinary batches are checked in bulk, as columns of their records. This only clears batches. A
batch that is not cleared is decoded alone, and its findings come from there. A batch with a wrong
checksum, or with an impossible codec, has a finding already and is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.checks.context import broker_version as releases
from recovery.checks.context.broker_version import READERS_FAIL
from recovery.replay.end_markers import marker_columns, read_marker
from recovery.rules.findings import Severity
from storage.errors import AccessError, CorruptError, FormatError, TooLargeError, UnsupportedError
from storage.file_names import GROUPS_TOPIC, SHARE_GROUP_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats import consumer_offsets, share_group_state, transaction_state
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES, Codec, is_known
from storage.formats.control_record import (
    MESSAGES,
    REFUSED_CHECK_ID,
    ControlRecordType,
    parse_control_key,
    parse_control_message,
)
from storage.formats.coordinator_record import parse_prefix, parse_record
from storage.formats.legacy_message import MAGIC_V1, inner_messages, parse_message
from storage.formats.message import unknown_tags
from storage.formats.record_batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
)
from storage.kernels.numpy_kernel import batch_at, rows_of
from storage.kernels.protocol import HeaderTable
from storage.kernels.record_table import decode_in_pieces, decode_records
from storage.log.decoded_records import lost_base_offset, sound_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.checks.context.collector import Collector
    from storage.formats.coordinator_record import CoordinatorRecord
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord, Segment

    Flags = NDArray[np.bool_]
    Decode = Callable[[bytes | None, bytes | None], CoordinatorRecord]
    Ints = NDArray[np.int64]


# -- rules for all records of a batch (BAT-8, BAT-9), for tables and for single records


class RecordBounds:
    """Offsets and timestamps of the records of one batch, in record order."""

    def __init__(self, header: BatchHeader) -> None:
        self.count = 0
        self.max_timestamp_ms = 0
        self.has_tombstone = False
        self.wrong_offset = ""  # the first wrong offset
        self.is_outside = False
        self._before: int | None = None
        self._first, self._last = header.base_offset, header.last_offset
        # If the last offset is impossible (BAT-4), no record is within the bounds.
        self._is_bounded = 0 < header.records_count <= header.last_offset_delta + 1

    def take(self, record: LogRecord) -> None:
        """Add the next record."""
        offset = record.offset
        self._take_offset(offset, self._before)
        self._before = offset
        self.has_tombstone = self.has_tombstone or record.value is None
        if not self.count or record.timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = record.timestamp_ms
        self.count += 1

    def take_table(self, records: RecordTable) -> None:
        """Add the next records, one or more. The result is the same as with `take` for each."""
        offset = records.offset
        before = np.concatenate(([offset[0] - 1], offset[:-1]))
        if self._before is not None:
            before[0] = self._before
        doubtful = offset <= before
        if self._is_bounded:
            doubtful |= (offset < self._first) | (offset > self._last)
        for row in np.flatnonzero(doubtful).tolist():
            self._take_offset(int(offset[row]), int(before[row]))
        self._before = int(offset[-1])
        self.has_tombstone = self.has_tombstone or bool((records.value_bytes < 0).any())
        latest_ms = int(records.timestamp_ms.max())
        self.max_timestamp_ms = max(latest_ms, self.max_timestamp_ms) if self.count else latest_ms
        self.count += len(offset)

    def _take_offset(self, offset: int, before: int | None) -> None:
        is_outside = self._is_bounded and not self._first <= offset <= self._last
        if is_outside and not self.is_outside:
            self.is_outside = True
            self.wrong_offset = str(offset)
        elif before is not None and offset <= before and not self.wrong_offset:
            self.wrong_offset = f"{offset} after {before}"


def has_good_offsets(table: HeaderTable, records: RecordTable) -> Flags:
    """Return BAT-8 for each batch. Batches that are not whole have no records here."""
    row, offset = records.batch_row, records.offset
    wrong = (offset < table.base_offset[row]) | (offset > table.last_offset[row])
    wrong[1:] |= (offset[1:] <= offset[:-1]) & (row[1:] == row[:-1])
    good = np.ones(records.batch_count, np.bool_)
    good[row[wrong]] = False
    return good


def has_its_max_timestamp(table: HeaderTable, records: RecordTable) -> Flags:
    """Return BAT-9 for each batch. With the append time, records have the batch's timestamp."""
    good = np.ones(records.batch_count, np.bool_)
    if records.row_count:
        starts = np.flatnonzero(np.diff(records.batch_row, prepend=-1))
        latest_ms = np.maximum.reduceat(records.timestamp_ms, starts)
        batch = records.batch_row[starts]
        good[batch] = latest_ms == table.max_timestamp_ms[batch]
    return good


# -- records of the coordinators' topics decode: the COO and MSG rules.
#
# Brokers skip records of unknown types, too. Types of the newer group protocols, and of share
# groups, changed without a new version during development. If such a record does not decode, it is
# a warning. With any other undecodable record a coordinator cannot load its partition. A requested
# release may know fewer types and versions than eoctl: COO-2 and COO-3 report that, too.


GROUP_METADATA_TYPE = 2  # of `__consumer_offsets`; higher types have changed within a version
UNKNOWN_TYPE = "COO-2"
UNKNOWN_VERSION = "COO-3"
UNKNOWN_TAGS = "COO-5"

# Releases before KIP-915. On an error, the group coordinator loads nothing of the partition, but
# the transaction coordinator keeps all earlier ids (GroupMetadataManager, TransactionStateManager).
_OLD_TRANSACTION_VERSION = 0
_OLD_VALUE_VERSION = 3  # of OffsetCommitValue and GroupMetadataValue
PASSES_OVER = "skips it"
LOADS_NO_GROUP = "its coordinator loads no group and no offset of the partition"
LOADS_NO_MORE_IDS = "its coordinator loads no transactional id that follows in the partition"


def _decode_transaction(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    record = parse_record(transaction_state.RECORD_TYPES, key, value)
    if record.value is not None:
        _ = transaction_state.known_status(record.value["transactionStatus"])
    return record


# Topic -> the decoder of a record, and the greatest type with settled schemas.
_TOPICS: dict[str, tuple[Decode, int]] = {
    TRANSACTION_STATE_TOPIC: (_decode_transaction, transaction_state.TRANSACTION_TYPE),
    GROUPS_TOPIC: (consumer_offsets.parse_record, GROUP_METADATA_TYPE),
    SHARE_GROUP_TOPIC: (share_group_state.parse_record, -1),
}


class _NotInReleaseError(UnsupportedError):
    """A record that eoctl knows, but the requested release does not."""

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


class UnknownTagsError(FormatError):
    """Tagged fields that no known release has."""

    def __init__(self, tags: Sequence[int]) -> None:
        found = ", ".join(map(str, sorted({*tags})))
        super().__init__(
            f"tagged fields that Kafka {releases.NEWEST} does not know: {found}",
            check_id=UNKNOWN_TAGS,
            pos=0,
            found=found,
        )


class CoordinatorRecordCheck:
    """The decoder of the records of one segment of a coordinator's topic."""

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
        """Return a check for a topic, or None if eoctl does not know its records."""
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
            record = self._decode(key, value)
            if self._version is not None and key is not None:
                self._require_known(self._version, key, value)
            tags = () if record.value is None else unknown_tags(record.value)
        except FormatError as error:
            return error
        return UnknownTagsError(tags) if tags else None

    def _require_known(self, version: BrokerVersion, key: bytes, value: bytes | None) -> None:
        """Raise _NotInReleaseError for a type or a version that a release does not know."""
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
        elif isinstance(error, UnknownTagsError):
            message = f"the record at offset {offset} has {error.message}"
            severity, action = Severity.NOTE, ""
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


# -- records


# Records decoded at once. A batch with more records than the second number is decoded in pieces.
MAX_RECORDS = 65_536
MAX_BATCH_RECORDS = 1 << 18
MAX_BULK_BATCH_BYTES = 16 << 20  # decompressed

ATTRIBUTES_MASK = 0xFF  # the attributes that brokers read
# The attributes of a marker. Compaction may add a delete horizon.
MARKER_ATTRIBUTES = TRANSACTIONAL_MASK | CONTROL_MASK
_MARKER_VARIANTS = LOG_APPEND_TIME_MASK | DELETE_HORIZON_MASK

# Rules for headers, which have findings already.
_HEADER_RULES = {"BAT-2", "BAT-4"}

_CUTS = "truncates the log after this batch where it recovers it"
_CANNOT_LOAD = "cannot load the partition from a point below it, and does not start"


class RecordCheck:
    """The check of the records of one segment, fed with all the output of a `BulkScan`, in order.

    Attributes:
        problems: batches that could not be read. They are no evidence about the data on disk.
    """

    def __init__(
        self,
        segment: Segment,
        path: str,
        collector: Collector,
        *,
        is_compacted: bool,
        topic: str = "",
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        version: BrokerVersion | None = None,
    ) -> None:
        """Take an open segment, and the `path` for findings.

        Args:
            segment: the source of the batches.
            path: of its `.log`.
            collector: takes the findings.
            is_compacted: the topic is compacted, or seems to be. BAT-13 is then not checked.
            topic: topics of coordinators have records of known types.
            max_batch_bytes: the limit for a decompressed body. A larger body is a finding.
            version: the release that will load the records. None: CHECKED.
        """
        self.problems: list[AccessError] = []
        self._segment = segment
        self._path = path
        self._collector = collector
        self._is_compacted = is_compacted
        self._max_batch_bytes = max_batch_bytes
        self._floor_offset = segment.base_offset  # end offset of the batch before
        self._contents = CoordinatorRecordCheck.of_topic(topic, path, collector, version)

    def take_window(self, window: BulkWindow) -> None:
        """Check healthy batches in one buffer."""
        table = window.table
        is_control = (table.attributes & CONTROL_MASK) != 0
        if is_control.any():
            self._take_controls(window, np.flatnonzero(is_control))
        rows = np.flatnonzero(~is_control & (table.records_count > 0))
        wanted = table
        if len(rows) < table.row_count:
            wanted = HeaderTable._make(column[rows] for column in table)
        ends = np.cumsum(wanted.records_count, dtype=np.int64)
        done = 0
        while done < wanted.row_count:
            before = int(ends[done - 1]) if done else 0
            end = max(int(np.searchsorted(ends, before + MAX_RECORDS, "right")), done + 1)
            if int(ends[end - 1]) - before > MAX_BATCH_RECORDS:
                self._take_huge(rows_of(wanted, done, end), window)
                done = end
                continue
            part = rows_of(wanted, done, end)
            done += self._take_data(part, window)
        self._floor_offset = int(table.last_offset[-1]) + 1

    def take_batch(self, batch: ScannedBatch) -> None:
        """Check a batch that is not healthy, or a legacy message."""
        header = batch.header
        if batch.crc_ok is False or not 0 <= header.magic <= MAGIC_V2:
            return
        if not is_known(header.codec, header.magic):
            return
        if header.magic == MAGIC_V2:
            self._check_batch(batch)
        else:
            self._check_legacy(batch)
        self._floor_offset = header.last_offset + 1

    # --- in bulk: which batches are certainly good ---

    def _take_data(self, table: HeaderTable, window: BulkWindow) -> int:
        """Check data batches that are not empty, and return the number of checked batches."""
        records = decode_records(
            table, window.buf, window.file_pos, max_batch_bytes=self._max_bulk_bytes
        )
        count = records.batch_count
        taken = rows_of(table, 0, count)
        good = records.is_whole & has_good_offsets(taken, records)
        good &= has_its_max_timestamp(taken, records)
        has_horizon = (taken.attributes & DELETE_HORIZON_MASK) != 0
        if not self._is_compacted and has_horizon.any():
            tombstones = np.bincount(records.batch_row[records.value_bytes < 0], minlength=count)
            good &= ~has_horizon | (tombstones > 0)
        for row in np.flatnonzero(~good).tolist():
            self._check_batch(batch_at(taken, row))
        if self._contents is not None:
            self._contents.take_table(taken, records, good)
        return count

    def _take_huge(self, table: HeaderTable, window: BulkWindow) -> None:
        """Check a batch of very many records in pieces."""
        batch = batch_at(table, 0)
        pieces = None
        if self._contents is None:
            pieces = decode_in_pieces(
                table, window.buf, window.file_pos, max_batch_bytes=self._max_batch_bytes
            )
        if pieces is None:
            self._check_batch(batch)
            return
        bounds = RecordBounds(batch.header)
        for piece in pieces:
            bounds.take_table(piece)
        self._check_bounds(bounds, batch)

    @property
    def _max_bulk_bytes(self) -> int:
        return min(self._max_batch_bytes, MAX_BULK_BATCH_BYTES)

    def _take_controls(self, window: BulkWindow, rows: Ints) -> None:
        """Check control batches, and ordinary markers in bulk."""
        while len(rows):
            table = HeaderTable._make(column[rows] for column in window.table)
            records = decode_records(
                table, window.buf, window.file_pos, max_batch_bytes=self._max_bulk_bytes
            )
            count = records.batch_count
            taken = rows_of(table, 0, count)
            _, good = marker_columns(records, rows[:count])
            good &= taken.records_count == 1
            good |= taken.records_count == 0
            good &= (taken.producer_id >= 0) & _has_marker_attributes(taken.attributes)
            good &= has_good_offsets(taken, records) & has_its_max_timestamp(taken, records)
            for row in np.flatnonzero(~good).tolist():
                self._check_batch(batch_at(taken, row))
            rows = rows[count:]

    # --- one by one: findings ---

    def _add(
        self,
        check_id: str,
        message: str,
        batch: ScannedBatch,
        *,
        severity: Severity | None = None,
        **fields: Any,
    ) -> None:
        header = batch.header
        place: dict[str, Any] = {
            "start_pos": batch.pos,
            "end_pos": batch.pos + header.batch_bytes,
            "base_offset": lost_base_offset(header, self._floor_offset),
            "last_offset": header.last_offset,
        }
        self._collector.add(check_id, self._path, message, severity=severity, **(place | fields))

    def _check_batch(self, batch: ScannedBatch) -> None:
        """Decode a single batch v2."""
        header = batch.header
        bounds = RecordBounds(header)
        try:
            for record in self._segment.records(batch, max_batch_bytes=self._max_batch_bytes):
                bounds.take(record)
                if self._contents is not None and not header.is_control:
                    self._contents.take_record(batch, record)
        except FormatError as error:
            self._add_body_error(error, batch)
            return
        except AccessError as error:
            self.problems.append(error.without_frames())
            return
        self._check_bounds(bounds, batch)
        if header.is_control:
            self._check_control(batch)

    def _add_body_error(self, error: FormatError, batch: ScannedBatch) -> None:
        if error.check_id in _HEADER_RULES:
            return
        is_control = batch.header.is_control
        is_too_large = isinstance(error, TooLargeError)
        self._add(
            "BAT-7",
            f"the records do not decode: {error.message}",
            batch,
            severity=Severity.WARNING if is_too_large else Severity.ERROR,
            start_pos=error.pos,
            expected=error.expected,
            found=error.found,
            broker_action=""
            if is_too_large
            else _CUTS
            if is_control and batch.header.producer_id >= 0
            else READERS_FAIL,
        )

    def _check_bounds(self, bounds: RecordBounds, batch: ScannedBatch) -> None:
        """Check BAT-8, BAT-9 and BAT-13."""
        header = batch.header
        if bounds.wrong_offset:
            self._add(
                "BAT-8",
                "offsets of records are outside of their batch"
                if bounds.is_outside
                else "offsets of records do not ascend",
                batch,
                severity=Severity.ERROR if bounds.is_outside else Severity.WARNING,
                expected=f"{header.base_offset} to {header.last_offset}, ascending",
                found=bounds.wrong_offset,
            )
        if not bounds.count:
            return
        if not header.is_log_append_time and bounds.max_timestamp_ms != header.max_timestamp_ms:
            self._add(
                "BAT-9",
                "the max timestamp is not the largest timestamp of the records",
                batch,
                expected=str(bounds.max_timestamp_ms),
                found=str(header.max_timestamp_ms),
            )
        is_awaited = bounds.has_tombstone or header.is_control or self._is_compacted
        if header.delete_horizon_ms is not None and not is_awaited:
            self._add(
                "BAT-13",
                "a delete horizon without a tombstone or a marker",
                batch,
                found=str(header.delete_horizon_ms),
            )

    def _check_control(self, batch: ScannedBatch) -> None:
        """Check BAT-12 for a batch whose records parse."""
        header = batch.header
        attributes = header.attributes & ATTRIBUTES_MASK
        is_marker = header.producer_id >= 0
        wanted = MARKER_ATTRIBUTES if is_marker else CONTROL_MASK
        variants = _MARKER_VARIANTS if is_marker else 0
        if attributes & ~variants != wanted:
            message = "attributes do not fit a control batch"
            expected, found = f"{wanted:#x}", f"{attributes:#x}"
            self._add("BAT-12", message, batch, expected=expected, found=found)
        if header.records_count == 0:
            return
        if is_marker:
            self._check_marker(batch)
        else:
            self._check_kraft_records(batch)

    def _check_marker(self, batch: ScannedBatch) -> None:
        count = batch.header.records_count
        if count > 1:
            message = "a control batch of a producer has several records"
            self._add("BAT-12", message, batch, expected="1 record", found=f"{count} records")
        try:
            read_marker(self._segment, batch)
        except FormatError as error:
            self._add(
                "BAT-12",
                error.message,
                batch,
                severity=Severity.ERROR,
                expected=error.expected,
                found=error.found,
                broker_action=_CANNOT_LOAD if error.check_id == REFUSED_CHECK_ID else _CUTS,
            )
        except AccessError as error:
            self.problems.append(error.without_frames())

    def _check_kraft_records(self, batch: ScannedBatch) -> None:
        try:
            for record in self._segment.records(batch, max_batch_bytes=self._max_batch_bytes):
                control_type = parse_control_key(record.key).type
                if control_type in MESSAGES:
                    parse_control_message(control_type, record.value)
                    continue
                is_end = control_type in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
                message = "an end marker without a producer" if is_end else "unknown control record"
                expected = "a producer id" if is_end else f"one of {sorted(map(int, MESSAGES))}"
                found = str(batch.header.producer_id if is_end else control_type)
                self._add("BAT-12", message, batch, expected=expected, found=found)
        except FormatError as error:
            self._add(
                "BAT-12",
                f"a control record does not decode: {error.message}",
                batch,
                severity=Severity.ERROR,
                expected=error.expected,
                found=error.found,
            )
        except AccessError as error:
            self.problems.append(error.without_frames())

    # --- legacy ---

    def _check_legacy(self, batch: ScannedBatch) -> None:
        """Check BAT-17, and BAT-9 for a wrapper v1."""
        try:
            message = parse_message(self._segment.read_batch(batch), 0)
            records = inner_messages(message, max_bytes=self._max_batch_bytes)
        except FormatError as error:
            self._add(
                "BAT-17",
                error.message,
                batch,
                severity=Severity.WARNING if isinstance(error, TooLargeError) else None,
                expected=error.expected,
                found=error.found,
                broker_action="" if isinstance(error, TooLargeError) else READERS_FAIL,
            )
            return
        except AccessError as error:
            self.problems.append(error.without_frames())
            return
        if message.codec == Codec.NONE:
            return
        if message.key is not None:
            words = "a wrapper message has a key"
            self._add("BAT-17", words, batch, severity=Severity.WARNING, expected="null")
        try:
            for _ in sound_records(records, batch, self._floor_offset):
                pass
        except CorruptError as error:
            self._add("BAT-17", error.message, batch, broker_action=READERS_FAIL)
            return
        if message.offset and records[-1].offset != message.offset:
            self._add(
                "BAT-17",
                "the last inner message does not have the offset of the wrapper",
                batch,
                expected=str(message.offset),
                found=str(records[-1].offset),
            )
        if message.magic == MAGIC_V1 and not message.is_log_append_time:
            latest_ms = max(each.timestamp_ms for each in records)
            if latest_ms != message.timestamp_ms:
                self._add(
                    "BAT-9",
                    "the timestamp of a wrapper is not the latest of its messages",
                    batch,
                    expected=str(latest_ms),
                    found=str(message.timestamp_ms),
                )


def _has_marker_attributes(attributes: NDArray[np.int16]) -> Flags:
    low = attributes & ATTRIBUTES_MASK & ~_MARKER_VARIANTS
    return np.asarray(low == MARKER_ATTRIBUTES, np.bool_)
