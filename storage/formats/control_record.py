"""Control records: the end of a transaction in any partition, and KRaft's own records.

A control batch (attributes bit 5) contains them. All but the first two types occur only in
`__cluster_metadata` and its snapshots.

    part   pos  width  type   field    meaning
    key      0      2  int16  version  0; a higher version is read as 0
    key      2      2  int16  type     `ControlRecordType`
    value                              by type:

End of a transaction (ABORT, COMMIT), at least 6 bytes, one record in its batch:

    pos  width  type   field              meaning
      0      2  int16  version            0; a higher version is read as 0
      2      4  int32  coordinator_epoch  leader epoch of the coordinator's partition

The others are flexible messages (see `message`) that open with their own int16 version:

- LEADER_CHANGE: leaderId, voters, grantingVoters. Voters have a directory id from version 1 on.
- SNAPSHOT_HEADER: lastContainedLogTimestamp. Opens a `.checkpoint`.
- SNAPSHOT_FOOTER: no more fields. Closes a `.checkpoint`.
- KRAFT_VERSION: kRaftVersion.
- KRAFT_VOTERS: voters with their directory ids, endpoints and supported KRaft versions.

Valid if and only if these rules hold:

- CTL-1: the key has at least 4 bytes and its version is not negative.
- CTL-2: a marker's value has at least 6 bytes and its version is not negative.
- CTL-3: the value of another known type is a message of that type (the MSG rules).

Readers skip unknown types without an error.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError
from storage.formats.message import INT16, Field, MessageSchema, decode, encode, to_json
from storage.limits import require_bytes

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike

# A control batch of a producer without an end marker. A broker refuses the log and truncates
# nothing.
REFUSED_CHECK_ID = "BAT-12"

KEY = Struct(">hh")
KEY_BYTES = 4
END_TXN_MARKER = Struct(">hi")
END_TXN_MARKER_BYTES = 6
CURRENT_VERSION = 0


# The end marker of a table's row. The numbers are persisted and must not change. UNKNOWN belongs to
# no record: a transaction ended, or may have ended, where the log is damaged or has no batch.
NO_MARKER, COMMIT, ABORT, UNKNOWN = 0, 1, 2, 3


class ControlRecordType(IntEnum):
    """The known types. A key may have any other int16."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_VERSION = Field("version", "int16")
_LEADER_VOTER = (Field("voterId", "int32"), Field("voterDirectoryId", "uuid", since=1))

MESSAGES = {
    ControlRecordType.LEADER_CHANGE: MessageSchema(
        "LeaderChangeMessage",
        _VERSION,
        Field("leaderId", "int32"),
        Field("voters", "[]struct", fields=_LEADER_VOTER),
        Field("grantingVoters", "[]struct", fields=_LEADER_VOTER),
        highest_version=1,
    ),
    ControlRecordType.SNAPSHOT_HEADER: MessageSchema(
        "SnapshotHeaderRecord", _VERSION, Field("lastContainedLogTimestamp", "int64")
    ),
    ControlRecordType.SNAPSHOT_FOOTER: MessageSchema("SnapshotFooterRecord", _VERSION),
    ControlRecordType.KRAFT_VERSION: MessageSchema(
        "KRaftVersionRecord", _VERSION, Field("kRaftVersion", "int16")
    ),
    ControlRecordType.KRAFT_VOTERS: MessageSchema(
        "VotersRecord",
        _VERSION,
        Field(
            "voters",
            "[]struct",
            fields=(
                Field("voterId", "int32"),
                Field("voterDirectoryId", "uuid"),
                Field(
                    "endpoints",
                    "[]struct",
                    fields=(
                        Field("name", "string"),
                        Field("host", "string"),
                        Field("port", "uint16"),
                    ),
                ),
                Field(
                    "kRaftVersionFeature",
                    "struct",
                    fields=(
                        Field("minSupportedVersion", "int16"),
                        Field("maxSupportedVersion", "int16"),
                    ),
                ),
            ),
        ),
    ),
}

# The text of kafka-dump-log 4.3.1 before the JSON. Only the first text has a colon.
LABELS = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


class ControlKey(NamedTuple):
    """The key of a control record. `type` may be unknown."""

    version: int
    type: int


class EndTxnMarker(NamedTuple):
    """The value of an ABORT or COMMIT record."""

    version: int
    coordinator_epoch: int


def parse_control_key(buf: BytesLike | None) -> ControlKey:
    """Read the first 4 bytes of a key.

    Raises:
        TruncatedError, CorruptError: CTL-1 (a null key counts as an empty key).
    """
    buf = b"" if buf is None else buf
    require_bytes(buf, 0, KEY_BYTES, "key of a control record", check_id="CTL-1")
    key = ControlKey(*KEY.unpack_from(buf, 0))
    if key.version < 0:
        raise _negative_version("key of a control record", "CTL-1", key.version)
    return key


def encode_control_key(control_type: int) -> bytes:
    """Return the key of a type, version 0."""
    return KEY.pack(CURRENT_VERSION, control_type)


def parse_end_txn_marker(buf: BytesLike | None) -> EndTxnMarker:
    """Read the first 6 bytes of a marker's value. Later versions may append fields.

    Raises:
        TruncatedError, CorruptError: CTL-2 (a null value counts as an empty value).
    """
    buf = b"" if buf is None else buf
    require_bytes(buf, 0, END_TXN_MARKER_BYTES, "end-transaction marker", check_id="CTL-2")
    marker = EndTxnMarker(*END_TXN_MARKER.unpack_from(buf, 0))
    if marker.version < 0:
        raise _negative_version("end-transaction marker", "CTL-2", marker.version)
    return marker


def encode_end_txn_marker(marker: EndTxnMarker) -> bytes:
    """Return the 6 bytes of a marker."""
    return END_TXN_MARKER.pack(*marker)


def _negative_version(what: str, check_id: str, version: int) -> CorruptError:
    return CorruptError(
        f"version of the {what} is negative",
        check_id=check_id,
        pos=0,
        expected=">= 0",
        found=str(version),
    )


def parse_control_message(control_type: int, buf: BytesLike | None) -> dict[str, Any]:
    """Read the value of a KRaft control record by its version, or by the highest known version.

    Kafka 4.3.1 reads all of them as version 0, even version 1 of LEADER_CHANGE.

    Raises:
        TruncatedError, CorruptError: CTL-3 by the MSG rules (a null value counts as an empty
            value).
    """
    buf = b"" if buf is None else buf
    schema = MESSAGES[ControlRecordType(control_type)]
    # Too short for a version: `decode` raises the error.
    version = INT16.unpack_from(buf, 0)[0] if len(buf) >= INT16.size else 0
    return decode(schema, schema.nearest_version(version), buf)[0]


def encode_control_message(control_type: int, value: dict[str, Any]) -> bytes:
    """Write the value of a KRaft control record in the version that it names.

    Raises:
        UsageError: a value that does not fit its type.
        UnsupportedError: MSG-5.
    """
    return encode(MESSAGES[ControlRecordType(control_type)], value.get("version", 0), value)


def describe(key: BytesLike | None, value: BytesLike | None) -> str:
    """Return the text of kafka-dump-log for a control record, with a leading blank.

    Raises:
        TruncatedError, CorruptError: CTL-1, CTL-2, CTL-3. The tool fails there.
    """
    control_type = parse_control_key(key).type
    if control_type in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        epoch = parse_end_txn_marker(value).coordinator_epoch
        return f" endTxnMarker: {ControlRecordType(control_type).name} coordinatorEpoch: {epoch}"
    if control_type not in MESSAGES:
        return f" controlType: UNKNOWN({control_type})"
    known = ControlRecordType(control_type)
    message = parse_control_message(known, value)
    schema = MESSAGES[known]
    version = schema.nearest_version(message["version"])
    return f" {LABELS[known]} {to_json(schema, version, message)}"
