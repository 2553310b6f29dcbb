"""Records of `__remote_log_metadata`: the segments in tiered storage, and their states.

Keys are null. Values are frames (`cluster_metadata.parse_header`). All messages have version 0 and
are flexible.

    api key  message                         about
          0  RemoteLogSegmentMetadata        a segment that is being copied
          1  RemoteLogSegmentMetadataUpdate  a change of its state
          2  RemotePartitionDeleteMetadata   a partition that is being deleted
          3  RemoteLogSegmentMetadataSnapshot  as 0; in snapshot files, never in the topic

The numbers of the states:

    segment state   0 COPY_SEGMENT_STARTED 1 COPY_SEGMENT_FINISHED
                    2 DELETE_SEGMENT_STARTED 3 DELETE_SEGMENT_FINISHED
    deletion state  0 DELETE_PARTITION_MARKED 1 DELETE_PARTITION_STARTED 2 DELETE_PARTITION_FINISHED

A record is valid if and only if the FRM rules hold, and these rules:

- RLM-1: its state is known.
- RLM-2: a segment has a start offset >= 0, an end offset >= start offset, and a leader epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError, FormatError
from storage.formats import cluster_metadata as frame
from storage.formats.message import Field, MessageSchema, json_uuid, unknown_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.formats.varint import BytesLike

SEGMENT = 0
SEGMENT_UPDATE = 1
PARTITION_DELETE = 2
SEGMENT_SNAPSHOT = 3

SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
DELETE_STATES = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)

_TOPIC_ID_PARTITION = Field(
    "topicIdPartition",
    "struct",
    fields=(Field("name", "string"), Field("id", "uuid"), Field("partition", "int32")),
)
_SEGMENT_ID = Field(
    "remoteLogSegmentId", "struct", fields=(_TOPIC_ID_PARTITION, Field("id", "uuid"))
)
_SEGMENT_DATA = (
    Field("startOffset", "int64"),
    Field("endOffset", "int64"),
    Field("brokerId", "int32"),
    Field("maxTimestampMs", "int64"),
    Field("eventTimestampMs", "int64"),
    Field(
        "segmentLeaderEpochs",
        "[]struct",
        fields=(Field("leaderEpoch", "int32"), Field("offset", "int64")),
    ),
    Field("segmentSizeInBytes", "int32"),
    Field("customMetadata", "bytes?", default=None),
    Field("remoteLogSegmentState", "int8"),
    Field("txnIndexEmpty", "bool", tag=0),
)

RECORDS: dict[int, MessageSchema] = {
    SEGMENT: MessageSchema("RemoteLogSegmentMetadataRecord", _SEGMENT_ID, *_SEGMENT_DATA),
    SEGMENT_UPDATE: MessageSchema(
        "RemoteLogSegmentMetadataUpdateRecord",
        _SEGMENT_ID,
        Field("brokerId", "int32"),
        Field("eventTimestampMs", "int64"),
        Field("customMetadata", "bytes?", default=None),
        Field("remoteLogSegmentState", "int8"),
    ),
    PARTITION_DELETE: MessageSchema(
        "RemotePartitionDeleteMetadataRecord",
        _TOPIC_ID_PARTITION,
        Field("brokerId", "int32"),
        Field("eventTimestampMs", "int64"),
        Field("remotePartitionDeleteState", "int8"),
    ),
    SEGMENT_SNAPSHOT: MessageSchema(
        "RemoteLogSegmentMetadataSnapshotRecord", Field("segmentId", "uuid"), *_SEGMENT_DATA
    ),
}


class RemoteLogRecord(NamedTuple):
    """One record. `data` has Kafka's field names."""

    api_key: int
    version: int
    data: dict[str, Any]


def parse_record(value: BytesLike | None) -> RemoteLogRecord:
    """Read the value of a record. RLM-1 and RLM-2 are not checked.

    Raises:
        CorruptError: FRM-1, FRM-5.
        UnsupportedError: FRM-2, FRM-3, FRM-4.
    """
    header = frame.parse_header(value)
    frame.require_known_version(RECORDS, header)
    return _parse(value, header)


def _parse(value: BytesLike | None, header: frame.FrameHeader) -> RemoteLogRecord:
    data = frame.parse_message(RECORDS, b"" if value is None else value, header)
    return RemoteLogRecord(header.api_key, header.version, data)


def encode_record(record: RemoteLogRecord) -> bytes:
    """Return the value of a record. UsageError and UnsupportedError as `message.encode`."""
    return frame.encode_frame(RECORDS, record.api_key, record.version, record.data)


def describe_record(
    offset: int,
    key: BytesLike | None,
    value: BytesLike | None,
    *,
    on_tags: Callable[[list[int]], object] | None = None,
) -> tuple[None, str]:
    """Return the output of kafka-dump-log with --remote-log-metadata-decoder: (no key, payload).

    Never raises for bad bytes: the payload then names the fault. `on_tags` receives the tagged
    fields that the schemas lack. The text does not contain them.
    """
    del key  # the tool ignores it too
    try:
        if value is None:
            raise CorruptError(NULL_VALUE_REASON, check_id="FRM-1", pos=0)
        record = _parse(value, frame.parse_header(value))
        text = _DESCRIBERS[record.api_key](record.data)
        if on_tags is not None and (tags := unknown_tags(record.data)):
            on_tags(tags)
    except FormatError as error:
        text = f"Error at offset {offset}, skipping. {error.message}"
    return None, text


# The message of the JVM's NullPointerException, which is all that the tool prints.
NULL_VALUE_REASON = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def _state(names: tuple[str, ...], number: int, reason: str) -> str:
    if not 0 <= number < len(names):
        raise CorruptError(
            reason, check_id="RLM-1", pos=0, expected=f"0..{len(names) - 1}", found=str(number)
        )
    return names[number]


def _require_epochs(data: dict[str, Any]) -> None:
    if not data["segmentLeaderEpochs"]:
        raise CorruptError("segmentLeaderEpochs can not be null or empty", check_id="RLM-2", pos=0)


def _require_offsets(start_offset: int, end_offset: int) -> None:
    if start_offset < 0:
        raise CorruptError(
            f"Unexpected start offset = {start_offset}. "
            "StartOffset for a remote segment cannot be negative",
            check_id="RLM-2",
            pos=0,
        )
    if end_offset < start_offset:
        raise CorruptError(
            f"Unexpected end offset = {end_offset}. "
            f"EndOffset for a remote segment cannot be less than startOffset = {start_offset}",
            check_id="RLM-2",
            pos=0,
        )


def _uuid(value: bytes) -> str:
    return json_uuid(value).strip('"')


def _topic_id_partition(data: dict[str, Any]) -> str:
    return f"{_uuid(data['id'])}:{data['name']}-{data['partition']}"


def _segment_id(data: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentId{{topicIdPartition={_topic_id_partition(data['topicIdPartition'])}, "
        f"id={_uuid(data['id'])}}}"
    )


def _custom_metadata(value: bytes | None) -> str:
    return "Optional.empty" if value is None else f"Optional[CustomMetadata{{{len(value)} bytes}}]"


def _leader_epochs(entries: list[dict[str, int]]) -> str:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in entries}
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _segment_text(data: dict[str, Any]) -> str:
    _require_offsets(data["startOffset"], data["endOffset"])
    _require_epochs(data)
    state = _state(SEGMENT_STATES, data["remoteLogSegmentState"], "state can not be null")
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(data['remoteLogSegmentId'])}, "
        f"startOffset={data['startOffset']}, endOffset={data['endOffset']}, "
        f"brokerId={data['brokerId']}, maxTimestampMs={data['maxTimestampMs']}, "
        f"eventTimestampMs={data['eventTimestampMs']}, "
        f"segmentLeaderEpochs={_leader_epochs(data['segmentLeaderEpochs'])}, "
        f"segmentSizeInBytes={data['segmentSizeInBytes']}, "
        f"customMetadata={_custom_metadata(data['customMetadata'])}, state={state}, "
        f"txnIdxEmpty={_bool(data['txnIndexEmpty'])}}}"
    )


def _update_text(data: dict[str, Any]) -> str:
    state = _state(SEGMENT_STATES, data["remoteLogSegmentState"], "state can not be null")
    return (
        "RemoteLogSegmentMetadataUpdate{"
        f"remoteLogSegmentId={_segment_id(data['remoteLogSegmentId'])}, "
        f"customMetadata={_custom_metadata(data['customMetadata'])}, state={state}, "
        f"eventTimestampMs={data['eventTimestampMs']}, brokerId={data['brokerId']}}}"
    )


def _delete_text(data: dict[str, Any]) -> str:
    state = _state(DELETE_STATES, data["remotePartitionDeleteState"], "null")
    return (
        "RemotePartitionDeleteMetadata{"
        f"topicPartition={_topic_id_partition(data['topicIdPartition'])}, state={state}, "
        f"eventTimestampMs={data['eventTimestampMs']}, brokerId={data['brokerId']}}}"
    )


def _snapshot_text(data: dict[str, Any]) -> str:
    state = _state(SEGMENT_STATES, data["remoteLogSegmentState"], "state can not be null")
    _require_epochs(data)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={_uuid(data['segmentId'])}, "
        f"startOffset={data['startOffset']}, endOffset={data['endOffset']}, "
        f"maxTimestampMs={data['maxTimestampMs']}, "
        f"segmentLeaderEpochs={_leader_epochs(data['segmentLeaderEpochs'])}, "
        f"segmentSizeInBytes={data['segmentSizeInBytes']}, "
        f"customMetadata={_custom_metadata(data['customMetadata'])}, state={state}, "
        f"txnIdxEmpty={_bool(data['txnIndexEmpty'])}}}"
    )


def _bool(value: bool) -> str:
    return "true" if value else "false"


_DESCRIBERS = {
    SEGMENT: _segment_text,
    SEGMENT_UPDATE: _update_text,
    PARTITION_DELETE: _delete_text,
    SEGMENT_SNAPSHOT: _snapshot_text,
}
