"""Records of `__transaction_state`: the coordinator's state of each transactional id.

The topic has 50 partitions and is compacted by transactional id. Records are never compressed and
have no producer id of their own. `coordinator_record` describes the framing of key and value.

Key, type 0 (TransactionLogKey): transactionalId string.

Value (TransactionLogValue). Version 1 is flexible and written if transaction.version >= 1:

    field                            type    since meaning
    producerId                       int64       0
    previousProducerId               int64   tag 0 default -1; written by 4.3, not by 4.0
    nextProducerId                   int64   tag 1 default -1; likewise
    producerEpoch                    int16       0
    nextProducerEpoch                int16   tag 3 default -1
    transactionTimeoutMs             int32       0 ms
    transactionStatus                int8        0 see `TransactionStatus`
    transactionPartitions            []?         0 null in Empty; [] in Complete...
      topic                          string
      partitionIds                   []int32
    transactionLastUpdateTimestampMs int64       0 ms
    transactionStartTimestampMs      int64       0 ms; -1 in Empty
    clientTransactionVersion         int16   tag 2 default 0; 2 after a client of KIP-890 part 2

Valid if and only if the COO and MSG rules hold. An unknown status breaks COO-4, but its bytes can
be read. `TransactionState.status` finds it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import UnsupportedError
from storage.formats import coordinator_record as records
from storage.formats.coordinator_record import CoordinatorRecord, RecordType
from storage.formats.message import NEVER, Field, MessageSchema, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.formats.varint import BytesLike

KEY = MessageSchema("TransactionLogKey", Field("transactionalId", "string"), flexible_since=NEVER)
VALUE = MessageSchema(
    "TransactionLogValue",
    Field("producerId", "int64"),
    Field("previousProducerId", "int64", since=1, tag=0, default=-1),
    Field("nextProducerId", "int64", since=1, tag=1, default=-1),
    Field("producerEpoch", "int16"),
    Field("nextProducerEpoch", "int16", since=1, tag=3, default=-1),
    Field("transactionTimeoutMs", "int32"),
    Field("transactionStatus", "int8"),
    Field(
        "transactionPartitions",
        "[]struct?",
        fields=(Field("topic", "string"), Field("partitionIds", "[]int32")),
    ),
    Field("transactionLastUpdateTimestampMs", "int64"),
    Field("transactionStartTimestampMs", "int64"),
    Field("clientTransactionVersion", "int16", since=1, tag=2, default=0),
    highest_version=1,
    flexible_since=1,
)

# The value as kafka-dump-log shows it since 4.4.
_NAMED_VALUE = MessageSchema(
    VALUE.name,
    *(
        each._replace(type="string") if each.name == "transactionStatus" else each
        for each in VALUE.fields
    ),
    highest_version=VALUE.highest_version,
    flexible_since=VALUE.flexible_since,
)

TRANSACTION_TYPE = 0
RECORD_TYPES = {TRANSACTION_TYPE: RecordType(TRANSACTION_TYPE, KEY, (VALUE,))}


class TransactionStatus(IntEnum):
    """State of a transactional id. Dead and PrepareEpochFence are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the status, such as PrepareCommit."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class TransactionState(NamedTuple):
    """The value of a record, by name. `partitions` is None if the list is null."""

    transactional_id: str
    version: int
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    timeout_ms: int
    transaction_status: int
    partitions: tuple[tuple[str, int], ...] | None
    last_update_timestamp_ms: int
    start_timestamp_ms: int
    client_transaction_version: int

    @property
    def status(self) -> TransactionStatus:
        """The status, if it is known. UnsupportedError: COO-4."""
        return known_status(self.transaction_status)


def known_status(number: int) -> TransactionStatus:
    """Return the status of a number. UnsupportedError: COO-4."""
    try:
        return TransactionStatus(number)
    except ValueError:
        raise UnsupportedError(
            f"unknown transaction status {number}",
            check_id="COO-4",
            pos=0,
            expected="0..7",
            found=str(number),
        ) from None


def parse_key(key: BytesLike) -> str:
    """Return the transactional id. Errors: COO-2 and the MSG rules."""
    transactional_id: str = records.parse_key(RECORD_TYPES, key)[1]["transactionalId"]
    return transactional_id


def parse_record(
    key: BytesLike | None, value: BytesLike | None
) -> tuple[str, TransactionState | None]:
    """Read a record. Returns (transactional id, state or None for a tombstone).

    Raises:
        CorruptError, TruncatedError, UnsupportedError: the COO and MSG rules.
    """
    record = records.parse_record(RECORD_TYPES, key, value)
    return record.key["transactionalId"], _state(record)


def _state(record: CoordinatorRecord) -> TransactionState | None:
    fields = record.value
    if fields is None:
        return None
    topics = fields["transactionPartitions"]
    return TransactionState(
        transactional_id=record.key["transactionalId"],
        version=record.version,
        producer_id=fields["producerId"],
        previous_producer_id=fields.get("previousProducerId", -1),
        next_producer_id=fields.get("nextProducerId", -1),
        producer_epoch=fields["producerEpoch"],
        next_producer_epoch=fields.get("nextProducerEpoch", -1),
        timeout_ms=fields["transactionTimeoutMs"],
        transaction_status=fields["transactionStatus"],
        partitions=None
        if topics is None
        else tuple(
            (one["topic"], partition) for one in topics for partition in one["partitionIds"]
        ),
        last_update_timestamp_ms=fields["transactionLastUpdateTimestampMs"],
        start_timestamp_ms=fields["transactionStartTimestampMs"],
        client_transaction_version=fields.get("clientTransactionVersion", 0),
    )


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id. UsageError if it is longer than 32767 bytes."""
    return records.encode_key(RECORD_TYPES[TRANSACTION_TYPE], {"transactionalId": transactional_id})


def encode_value(state: TransactionState) -> bytes:
    """Return the value of a state in its version, with the partitions grouped by topic, in order.

    In version 0 the tagged fields are not written. UsageError: a value that does not fit its type.
    """
    try:
        head = _HEAD.pack(
            state.version,
            state.producer_id,
            state.producer_epoch,
            state.timeout_ms,
            state.transaction_status,
        )
        times = _TIMES.pack(state.last_update_timestamp_ms, state.start_timestamp_ms)
        tags = b""
        if state.version >= 1:
            tags = _encode_tags(
                state.previous_producer_id,
                state.next_producer_id,
                state.client_transaction_version,
                state.next_producer_epoch,
            )
    except struct.error:
        return _encode_plainly(state)  # raises the error for the value that does not fit
    return head + _encode_partitions(state.version, state.partitions) + times + tags


# A coordinator writes three of these per transaction, which differ only in numbers. Encoding by the
# schema takes more than ten times as long.
_HEAD = struct.Struct(">hqhib")  # up to transactionStatus
_TIMES = struct.Struct(">qq")
_NO_STATE = TransactionState(
    transactional_id="",
    version=0,
    producer_id=-1,
    previous_producer_id=-1,
    next_producer_id=-1,
    producer_epoch=-1,
    next_producer_epoch=-1,
    timeout_ms=0,
    transaction_status=0,
    partitions=None,
    last_update_timestamp_ms=-1,
    start_timestamp_ms=-1,
    client_transaction_version=0,
)


@lru_cache(maxsize=1024)
def _encode_partitions(version: int, partitions: tuple[tuple[str, int], ...] | None) -> bytes:
    value = _encode_plainly(_NO_STATE._replace(version=version, partitions=partitions))
    tags_bytes = len(_encode_tags(-1, -1, 0, -1)) if version >= 1 else 0
    return value[_HEAD.size : len(value) - _TIMES.size - tags_bytes]


@lru_cache(maxsize=1024)
def _encode_tags(previous_id: int, next_id: int, client_version: int, next_epoch: int) -> bytes:
    """Return the tagged fields in the order of their tags, without default values."""
    tags = []
    if previous_id != -1:
        tags.append(struct.pack(">BBq", 0, 8, previous_id))
    if next_id != -1:
        tags.append(struct.pack(">BBq", 1, 8, next_id))
    if client_version:
        tags.append(struct.pack(">BBh", 2, 2, client_version))
    if next_epoch != -1:
        tags.append(struct.pack(">BBh", 3, 2, next_epoch))
    return bytes([len(tags)]) + b"".join(tags)


def _encode_plainly(state: TransactionState) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in state.partitions or ():
        topics.setdefault(topic, []).append(partition)
    fields: dict[str, Any] = {
        "producerId": state.producer_id,
        "producerEpoch": state.producer_epoch,
        "transactionTimeoutMs": state.timeout_ms,
        "transactionStatus": state.transaction_status,
        "transactionPartitions": None
        if state.partitions is None
        else [{"topic": topic, "partitionIds": ids} for topic, ids in topics.items()],
        "transactionLastUpdateTimestampMs": state.last_update_timestamp_ms,
        "transactionStartTimestampMs": state.start_timestamp_ms,
    }
    if state.version >= 1:
        fields |= {
            "previousProducerId": state.previous_producer_id,
            "nextProducerId": state.next_producer_id,
            "nextProducerEpoch": state.next_producer_epoch,
            "clientTransactionVersion": state.client_transaction_version,
        }
    return records.encode_value(VALUE, state.version, fields)


def describe_record(
    offset: int,
    key: BytesLike | None,
    value: BytesLike | None,
    *,
    on_tags: Callable[[list[int]], object] | None = None,
    names_status: bool = True,
) -> tuple[str | None, str | None]:
    """Return the output of kafka-dump-log with --transaction-log-decoder: (key text, payload text).

    `on_tags` is as in `coordinator_record.describe_record`. `names_status` prints the status by
    name, as since 4.4. Older releases print the number.

    Raises:
        CorruptError: COO-1, there is no key. The tool fails there.
    """
    return records.describe_record(
        RECORD_TYPES, offset, key, value,
        data_json=_named_json if names_status else records.value_json, on_tags=on_tags,
    )  # fmt: skip


def _named_json(schema: MessageSchema, version: int, fields: dict[str, Any]) -> str:
    """Return the JSON as `to_json` does. An unknown status is its number, as a string."""
    del schema
    number = fields["transactionStatus"]
    known = number in TransactionStatus._value2member_map_
    name = TransactionStatus(number).label if known else str(number)
    return to_json(_NAMED_VALUE, version, fields | {"transactionStatus": name})
