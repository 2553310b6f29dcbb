"""Records of `__share_group_state`: the acknowledgements of consumers in a share group.

The topic has 50 partitions. `coordinator_record` describes the framing of key and value. Both types
have the same key: groupId string, topicId uuid, partition int32.

Value, version 0, flexible:

    field                  type    type 0 (snapshot)  type 1 (update)  meaning
    snapshotEpoch          int32   yes                yes              counts snapshots
    stateEpoch             int32   yes                -
    leaderEpoch            int32   yes                yes
    startOffset            int64   yes                yes              -1 in an update: unchanged
    deliveryCompleteCount  int32   tag 0              tag 0            default -1
    createTimestamp        int64   yes                -                ms
    writeTimestamp         int64   yes                -                ms
    stateBatches           []      yes                yes
      firstOffset          int64
      lastOffset           int64
      deliveryState        int8                                        see `DeliveryState`
      deliveryCount        int16

Under the same version, 4.0 wrote snapshotEpoch as uint16, without the tagged field and the
timestamps. A value has the layout that reads it exactly.

Valid if and only if the COO and MSG rules hold for one of the layouts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from storage.formats import coordinator_record as records
from storage.formats.coordinator_record import CoordinatorRecord, RecordType
from storage.formats.message import NEVER, Field, MessageSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.formats.varint import BytesLike


class DeliveryState(IntEnum):
    """State of records of a share group. ACQUIRED is never stored (RecordState)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3  # being written to a dead letter queue; since share.version 2
    ARCHIVED = 4


SNAPSHOT_TYPE = 0
UPDATE_TYPE = 1

_KEY = (Field("groupId", "string"), Field("topicId", "uuid"), Field("partition", "int32"))
_STATE_BATCHES = Field(
    "stateBatches",
    "[]struct",
    fields=(
        Field("firstOffset", "int64"),
        Field("lastOffset", "int64"),
        Field("deliveryState", "int8"),
        Field("deliveryCount", "int16"),
    ),
)
_DELIVERY_COMPLETE_COUNT = Field("deliveryCompleteCount", "int32", tag=0, default=-1)

SNAPSHOT = RecordType(
    SNAPSHOT_TYPE,
    MessageSchema("ShareSnapshotKey", *_KEY, flexible_since=NEVER),
    (
        MessageSchema(
            "ShareSnapshotValue",
            Field("snapshotEpoch", "int32"),
            Field("stateEpoch", "int32"),
            Field("leaderEpoch", "int32"),
            Field("startOffset", "int64"),
            _DELIVERY_COMPLETE_COUNT,
            Field("createTimestamp", "int64"),
            Field("writeTimestamp", "int64"),
            _STATE_BATCHES,
        ),
        MessageSchema(
            "ShareSnapshotValue of 4.0",
            Field("snapshotEpoch", "uint16"),
            Field("stateEpoch", "int32"),
            Field("leaderEpoch", "int32"),
            Field("startOffset", "int64"),
            _STATE_BATCHES,
        ),
    ),
)
UPDATE = RecordType(
    UPDATE_TYPE,
    MessageSchema("ShareUpdateKey", *_KEY, flexible_since=NEVER),
    (
        MessageSchema(
            "ShareUpdateValue",
            Field("snapshotEpoch", "int32"),
            Field("leaderEpoch", "int32"),
            Field("startOffset", "int64"),
            _DELIVERY_COMPLETE_COUNT,
            _STATE_BATCHES,
        ),
        MessageSchema(
            "ShareUpdateValue of 4.0",
            Field("snapshotEpoch", "uint16"),
            Field("leaderEpoch", "int32"),
            Field("startOffset", "int64"),
            _STATE_BATCHES,
        ),
    ),
)
RECORD_TYPES = {SNAPSHOT_TYPE: SNAPSHOT, UPDATE_TYPE: UPDATE}


def parse_record(key: BytesLike | None, value: BytesLike | None) -> CoordinatorRecord:
    """Read a record. Its value is None for a tombstone.

    Raises:
        CorruptError, TruncatedError, UnsupportedError: the COO and MSG rules.
    """
    return records.parse_record(RECORD_TYPES, key, value)


def describe_record(
    offset: int,
    key: BytesLike | None,
    value: BytesLike | None,
    *,
    on_tags: Callable[[list[int]], object] | None = None,
) -> tuple[str | None, str | None]:
    """Return the output of kafka-dump-log with --share-group-state-decoder: (key, payload).

    `on_tags` is as in `coordinator_record.describe_record`.

    Raises:
        CorruptError: COO-1, there is no key. The tool fails there.
    """
    return records.describe_record(RECORD_TYPES, offset, key, value, on_tags=on_tags)
