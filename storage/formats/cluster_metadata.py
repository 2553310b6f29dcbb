"""Records of `__cluster_metadata` and of KRaft's snapshots: the state of the cluster.

One partition, written by the controllers. Keys are null, values are frames (`api_message_frame`)
around one of the messages in `metadata_records`; control records are in `control_record`. Batches
have no producer id, the partition leader epoch of Raft, and one timestamp for all their records.

`<offset>-<epoch>.checkpoint` and `bootstrap.checkpoint` are made of the same batches: first a
control batch that opens with SNAPSHOT_HEADER, then data, last a control batch with SNAPSHOT_FOOTER.
Offsets inside start at 0 again. Without a footer the file is incomplete.

Records between BEGIN_TRANSACTION and END_TRANSACTION take effect together; what lies between
BEGIN_TRANSACTION and ABORT_TRANSACTION never does.

A record is valid if and only if the FRM rules hold (KRF-4).

Some records hold secrets: the parts of a SCRAM credential, and values of configurations that are
passwords or keys, in plain text. `describe_record` hides them unless told otherwise; this is the
one place where our text differs from that of kafka-dump-log, which prints them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import FormatError, UnsupportedError
from storage.formats import api_message_frame as frame
from storage.formats.message import MessageSchema, to_json
from storage.formats.message_json import Json, json_string
from storage.formats.metadata_records import RECORDS

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike

REGISTER_BROKER = 0
UNREGISTER_BROKER = 1
TOPIC = 2
PARTITION = 3
CONFIG = 4
PARTITION_CHANGE = 5
FENCE_BROKER = 7
UNFENCE_BROKER = 8
REMOVE_TOPIC = 9
DELEGATION_TOKEN = 10
USER_SCRAM_CREDENTIAL = 11
FEATURE_LEVEL = 12
CLIENT_QUOTA = 14
PRODUCER_IDS = 15
BROKER_REGISTRATION_CHANGE = 17
ACCESS_CONTROL_ENTRY = 18
REMOVE_ACCESS_CONTROL_ENTRY = 19
NO_OP = 20
ZK_MIGRATION_STATE = 21
REMOVE_USER_SCRAM_CREDENTIAL = 22
BEGIN_TRANSACTION = 23
END_TRANSACTION = 24
ABORT_TRANSACTION = 25
REMOVE_DELEGATION_TOKEN = 26
REGISTER_CONTROLLER = 27
CLEAR_ELR = 28


def _record_name(schema: MessageSchema) -> str:
    """TopicRecord -> TOPIC_RECORD, as in Kafka's MetadataRecordType."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", schema.name).upper()


RECORD_NAMES = {api_key: _record_name(schema) for api_key, schema in RECORDS.items()}

REDACTED = Json(json_string("(redacted)"))  # Kafka's own word for it (RecordRedactor)
SCRAM_SECRETS = ("salt", "storedKey", "serverKey")
# The configurations of type PASSWORD in 4.3.1 end like this, with or without a listener's prefix;
# the rest is for plugins, whose types are not known.
SECRET_CONFIG = re.compile(
    r"password|passwd|passphrase|secret|jaas\.config|certificate|(credentials?|token|\.key)$",
    re.IGNORECASE,
)


class MetadataRecord(NamedTuple):
    """One record: `data` has Kafka's field names (see `metadata_records`)."""

    api_key: int
    name: str  # such as TOPIC_RECORD
    version: int
    data: dict[str, Any]


def parse_record(value: BytesLike | None) -> MetadataRecord:
    """Read the value of a record.

    Raises:
        CorruptError: FRM-1, FRM-5.
        UnsupportedError: FRM-2, FRM-3, FRM-4: of a newer (or preview) release; do not guess.
    """
    header = frame.parse_header(value)
    frame.require_known_version(RECORDS, header)
    return _parse(value, header)


def _parse(value: BytesLike | None, header: frame.FrameHeader) -> MetadataRecord:
    data = frame.parse_message(RECORDS, b"" if value is None else value, header)
    return MetadataRecord(
        api_key=header.api_key, name=RECORD_NAMES[header.api_key], version=header.version, data=data
    )


def encode_record(api_key: int, version: int, data: dict[str, Any]) -> bytes:
    """The value of a record; fields that are left out have their defaults.

    Raises:
        UnsupportedError: FRM-3, MSG-5.
        UsageError: a name or a value that does not fit.
    """
    if api_key not in RECORDS:
        raise UnsupportedError(
            f"unknown api key {api_key}",
            check_id="FRM-3",
            pos=0,
            expected=f"one of {sorted(RECORDS)}",
            found=str(api_key),
        )
    return frame.encode_frame(RECORDS, api_key, version, data)


def describe_record(
    offset: int, key: BytesLike | None, value: BytesLike | None, *, redact: bool = True
) -> tuple[None, str]:
    """What kafka-dump-log with --cluster-metadata-decoder prints: (no key, payload text).

    Never raises for bad bytes: the payload then says what is wrong. As the tool, it shows a record
    of a version that is too new if it can be read as the newest known one.
    """
    del key  # the tool does not look at it either
    try:
        header = frame.parse_header(value)
        record = _parse(value, header)
    except FormatError as error:
        return None, f"Error at {offset}, skipping. {error.message}"
    schema = RECORDS[record.api_key]
    data = redacted(record) if redact else record.data
    text = to_json(schema, schema.nearest_version(record.version), data)
    return None, f'{{"type":"{record.name}","version":{record.version},"data":{text}}}'


def redacted(record: MetadataRecord) -> dict[str, Any]:
    """The data with secrets replaced by `(redacted)`, for printing only."""
    data = record.data
    if record.api_key == USER_SCRAM_CREDENTIAL:
        return data | dict.fromkeys(SCRAM_SECRETS, REDACTED)
    if (
        record.api_key == CONFIG
        and data["value"] is not None
        and SECRET_CONFIG.search(data["name"])
    ):
        return data | {"value": REDACTED}
    return data
