"""Records of __remote_log_metadata, in the words of Kafka's toString methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import FormatError
from storage.formats.remote_log_metadata import (
    PARTITION_DELETE,
    RECORDS,
    SEGMENT,
    SEGMENT_SNAPSHOT,
    SEGMENT_UPDATE,
    RemoteLogRecord,
    describe_record,
    encode_record,
    parse_record,
)
from tests.storage.formats.message_samples import mutated, random_message, randoms

if TYPE_CHECKING:
    from random import Random

TOPIC = {"name": "t", "id": bytes(16), "partition": 3}
SEGMENT_ID = {"topicIdPartition": TOPIC, "id": b"\xff" * 16}
SEGMENT_DATA = {
    "startOffset": 5, "endOffset": 9, "brokerId": 1, "maxTimestampMs": 7, "eventTimestampMs": 8,
    "segmentLeaderEpochs": [{"leaderEpoch": 4, "offset": 6}, {"leaderEpoch": 0, "offset": 5}],
    "segmentSizeInBytes": 100, "customMetadata": b"abc", "remoteLogSegmentState": 1,
    "txnIndexEmpty": True,
}  # fmt: skip
UPDATE = {
    "remoteLogSegmentId": SEGMENT_ID, "brokerId": 1, "eventTimestampMs": 8, "customMetadata": None,
    "remoteLogSegmentState": 3,
}  # fmt: skip
DELETE = {
    "topicIdPartition": TOPIC, "brokerId": 1, "eventTimestampMs": 8, "remotePartitionDeleteState": 2,
}  # fmt: skip
TOPIC_TEXT = "AAAAAAAAAAAAAAAAAAAAAA:t-3"
SEGMENT_ID_TEXT = f"RemoteLogSegmentId{{topicIdPartition={TOPIC_TEXT}, id=_____________________w}}"
DATA = {
    SEGMENT: {"remoteLogSegmentId": SEGMENT_ID, **SEGMENT_DATA},
    SEGMENT_UPDATE: UPDATE,
    PARTITION_DELETE: DELETE,
    SEGMENT_SNAPSHOT: {"segmentId": b"\xff" * 16, **SEGMENT_DATA},
}
TEXTS = {
    SEGMENT: (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={SEGMENT_ID_TEXT}, startOffset=5, "
        "endOffset=9, brokerId=1, maxTimestampMs=7, eventTimestampMs=8, "
        "segmentLeaderEpochs={0=5, 4=6}, segmentSizeInBytes=100, "
        "customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, "
        "txnIdxEmpty=true}"
    ),
    SEGMENT_UPDATE: (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={SEGMENT_ID_TEXT}, "
        "customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, eventTimestampMs=8, "
        "brokerId=1}"
    ),
    PARTITION_DELETE: (
        f"RemotePartitionDeleteMetadata{{topicPartition={TOPIC_TEXT}, "
        "state=DELETE_PARTITION_FINISHED, eventTimestampMs=8, brokerId=1}"
    ),
    SEGMENT_SNAPSHOT: (
        "RemoteLogSegmentMetadataSnapshot{segmentId=_____________________w, startOffset=5, "
        "endOffset=9, maxTimestampMs=7, segmentLeaderEpochs={0=5, 4=6}, segmentSizeInBytes=100, "
        "customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, "
        "txnIdxEmpty=true}"
    ),
}


@pytest.mark.parametrize("api_key", DATA)
def test_records(api_key: int) -> None:
    record = RemoteLogRecord(api_key, 0, DATA[api_key])
    value = encode_record(record)
    assert parse_record(value) == record
    assert describe_record(0, None, value) == (None, TEXTS[api_key])


@pytest.mark.parametrize(
    ("api_key", "change", "reason"),
    [
        (SEGMENT, {"startOffset": -1},
         "Unexpected start offset = -1. StartOffset for a remote segment cannot be negative"),
        (SEGMENT, {"endOffset": 4},
         ("Unexpected end offset = 4. "
         "EndOffset for a remote segment cannot be less than startOffset = 5")),
        (SEGMENT, {"segmentLeaderEpochs": []}, "segmentLeaderEpochs can not be null or empty"),
        (SEGMENT, {"remoteLogSegmentState": 4}, "state can not be null"),
        (SEGMENT_UPDATE, {"remoteLogSegmentState": -1}, "state can not be null"),
        (PARTITION_DELETE, {"remotePartitionDeleteState": 3}, "null"),
        (SEGMENT_SNAPSHOT, {"segmentLeaderEpochs": []},
         "segmentLeaderEpochs can not be null or empty"),
    ],
)  # fmt: skip
def test_values_that_kafka_refuses(api_key: int, change: dict[str, Any], reason: str) -> None:
    record = RemoteLogRecord(api_key, 0, DATA[api_key] | change)
    value = encode_record(record)
    assert parse_record(value) == record
    assert describe_record(3, None, value) == (None, f"Error at offset 3, skipping. {reason}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "Error while reading frame version"),
        (b"\x01\x04\x00", ("org.apache.kafka.common.errors.UnsupportedVersionException: "
         "Unknown metadata id 4")),
        (b"\x01\x01\x00", "Failed to deserialize record with type 1"),
        (None, ('Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
         '"org.apache.kafka.common.record.internal.Record.value()" is null')),
    ],
)  # fmt: skip
def test_faults(value: bytes | None, reason: str) -> None:
    assert describe_record(3, None, value) == (None, f"Error at offset 3, skipping. {reason}")
    with pytest.raises(FormatError):
        parse_record(value)


@given(api_key=st.sampled_from(sorted(RECORDS)), rnd=randoms)
def test_round_trip_and_damage(api_key: int, rnd: Random) -> None:
    record = RemoteLogRecord(api_key, 0, random_message(RECORDS[api_key], 0, rnd))
    value = encode_record(record)
    assert parse_record(value) == record
    _, text = describe_record(0, None, mutated(value, rnd))
    assert text.startswith(("Remote", "Error at offset 0, skipping. "))
