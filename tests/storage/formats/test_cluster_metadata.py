"""Records of __cluster_metadata: the worked examples, secrets, real logs and snapshots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, UnsupportedError, UsageError
from storage.formats import cluster_metadata
from storage.formats.cluster_metadata import (
    CONFIG,
    DELEGATION_TOKEN,
    RECORDS,
    REGISTER_BROKER,
    USER_SCRAM_CREDENTIAL,
    FrameHeader,
    MetadataRecord,
    describe_record,
    encode_frame,
    encode_record,
    parse_header,
    parse_message,
    parse_record,
    redacted,
    require_known_version,
)
from storage.formats.message import Field, MessageSchema
from tests.storage.formats.message_samples import (
    golden_records,
    line_text,
    mutated,
    random_message,
    randoms,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random


# The worked examples.
TOPIC_BYTES = bytes.fromhex("01 02 00 02 74 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 00")
FEATURE_BYTES = bytes.fromhex(
    "01 0c 00 11 6d 65 74 61 64 61 74 61 2e 76 65 72 73 69 6f 6e 00 19 00"
)
EXAMPLES = [
    (
        TOPIC_BYTES,
        MetadataRecord(2, "TOPIC_RECORD", 0, {"name": "t", "topicId": bytes(range(16))}),
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAECAwQFBgcICQoLDA0ODw"}}',
    ),
    # Of the log of a 4.4.0 controller.
    (
        bytes.fromhex("01 1d 00 00 00 00 08 00"),
        MetadataRecord(29, "UNREGISTER_CONTROLLER_RECORD", 0, {"controllerId": 8}),
        '{"type":"UNREGISTER_CONTROLLER_RECORD","version":0,"data":{"controllerId":8}}',
    ),
    (
        FEATURE_BYTES,
        MetadataRecord(
            12, "FEATURE_LEVEL_RECORD", 0, {"name": "metadata.version", "featureLevel": 25}
        ),
        (
            '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version",'
            '"featureLevel":25}}'
        ),
    ),
]


@pytest.mark.parametrize(("value", "record", "text"), EXAMPLES)
def test_examples(value: bytes, record: MetadataRecord, text: str) -> None:
    assert parse_record(value) == record
    assert encode_record(record.api_key, record.version, record.data) == value
    assert describe_record(7, None, value) == (None, text)


def test_partition_change_has_its_directories_before_its_elr() -> None:
    value = encode_record(
        5, 2, {"directories": [bytes(16)], "eligibleLeaderReplicas": [1], "isr": []}
    )
    assert value.endswith(
        bytes.fromhex("03 00 01 01 06 05 02 00000001 08 11 02") + bytes(16)
    )  # fmt: skip
    assert (describe_record(0, None, value)[1]).endswith(
        '"isr":[],"directories":["AAAAAAAAAAAAAAAAAAAAAA"],"eligibleLeaderReplicas":[1]}}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Error at 7, skipping. Error while reading frame version"),
        (b"\x01\x06\x00", ("Error at 7, skipping. org.apache.kafka.common.errors."
         "UnsupportedVersionException: Unknown metadata id 6")),
        (TOPIC_BYTES[:-1], "Error at 7, skipping. Failed to deserialize record with type 2"),
        (TOPIC_BYTES + b"?", "Error at 7, skipping. Found 1 byte(s) of garbage after 2"),
    ],
)  # fmt: skip
def test_faults_are_text(value: bytes | None, text: str) -> None:
    assert describe_record(7, b"a key is not looked at", value) == (None, text)
    with pytest.raises(FormatError):
        parse_record(value)


def test_a_version_that_is_too_new_is_shown_and_not_parsed() -> None:
    newer = TOPIC_BYTES[:2] + b"\x05" + TOPIC_BYTES[3:]
    assert (
        '"type":"TOPIC_RECORD","version":5,"data":{"name":"t"' in describe_record(0, None, newer)[1]
    )
    with pytest.raises(UnsupportedError) as caught:
        parse_record(newer)
    assert caught.value.check_id == "FRM-4"


def test_what_cannot_be_encoded() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode_record(6, 0, {})
    assert caught.value.check_id == "FRM-3"
    with pytest.raises(UnsupportedError):
        encode_record(2, 1, {})
    with pytest.raises(UsageError):
        encode_record(2, 0, {"topicName": "t"})


def _texts(api_key: int, data: dict[str, Any]) -> tuple[str, str]:
    value = encode_record(api_key, 0, data)
    return describe_record(0, None, value)[1], describe_record(0, None, value, redact=False)[1]


def test_scram_credentials_are_hidden() -> None:
    data = {
        "name": "bob", "mechanism": 1, "salt": b"salt", "storedKey": b"stored", "serverKey": b"",
        "iterations": 4096,
    }  # fmt: skip
    hidden, shown = _texts(USER_SCRAM_CREDENTIAL, data)
    assert hidden.endswith(
        '{"name":"bob","mechanism":1,"salt":"(redacted)","storedKey":"(redacted)",'
        '"serverKey":"(redacted)","iterations":4096}}'
    )
    assert shown.endswith(
        '"salt":"c2FsdA==","storedKey":"c3RvcmVk","serverKey":"","iterations":4096}}'
    )


@pytest.mark.parametrize(
    "name",
    [
        # Every configuration of type PASSWORD of a 4.3.1 broker, then with a listener, then others.
        "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
        "ssl.keystore.certificate.chain", "ssl.truststore.password", "ssl.truststore.certificates",
        "sasl.jaas.config", "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase", "delegation.token.secret.key",
        "listener.name.internal.ssl.keystore.password",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", "my.plugin.PASSWORD", "my.token",
    ],
)  # fmt: skip
def test_secret_configurations_are_hidden(name: str) -> None:
    data = {"resourceType": 4, "resourceName": "1", "name": name, "value": "hunter2"}
    hidden, shown = _texts(CONFIG, data)
    assert "hunter2" not in hidden
    assert hidden.endswith('"value":"(redacted)"}}')
    assert shown.endswith('"value":"hunter2"}}')
    # Null says that it was deleted, and hides nothing.
    assert _texts(CONFIG, data | {"value": None})[0].endswith('"value":null}}')


@pytest.mark.parametrize(
    "name", ["segment.bytes", "ssl.keystore.location", "cleanup.policy", "min.insync.replicas"]
)
def test_other_configurations_are_shown(name: str) -> None:
    data = {"resourceType": 2, "resourceName": "t", "name": name, "value": "hunter2"}
    hidden, shown = _texts(CONFIG, data)
    assert hidden == shown


def test_delegation_tokens_are_shown() -> None:
    # The id is no secret: the token's HMAC is not in the record.
    hidden, shown = _texts(DELEGATION_TOKEN, {"owner": "User:a", "tokenId": "t"})
    assert hidden == shown


def test_redaction_leaves_the_record_as_it_is() -> None:
    record = parse_record(encode_record(USER_SCRAM_CREDENTIAL, 0, {"salt": b"s"}))
    assert redacted(record)["salt"] != b"s"
    assert record.data["salt"] == b"s"


@given(api_key=st.sampled_from(sorted(RECORDS)), rnd=randoms)
def test_round_trip_and_damage(api_key: int, rnd: Random) -> None:
    schema = RECORDS[api_key]
    version = rnd.randint(0, schema.highest_version)
    data = random_message(schema, version, rnd)
    value = encode_record(api_key, version, data)
    assert parse_record(value)[0:1] + parse_record(value)[2:] == (api_key, version, data)
    damaged = mutated(value, rnd)
    _, text = describe_record(0, None, damaged)
    try:
        parse_record(damaged)
    except UnsupportedError:
        assert text.startswith(('{"type":"', "Error at 0, skipping. "))
    except FormatError:
        assert text.startswith("Error at 0, skipping. ")
    else:
        assert text.startswith('{"type":"')


@pytest.mark.parametrize("pattern", ["*.checkpoint", "__cluster_metadata-0/*.log"])
def test_golden(golden: Callable[[str], Path], pattern: str) -> None:
    seen: Counter[str] = Counter()
    for record in golden_records(golden, pattern):
        if record.is_control:
            continue
        where = f"{record.name} offset {record.offset}"
        texts = describe_record(record.offset, record.key, record.value)
        assert line_text(texts) == record.text, where
        parsed = parse_record(record.value)
        assert encode_record(parsed.api_key, parsed.version, parsed.data) == record.value, where
        seen[parsed.name] += 1
    assert seen["FEATURE_LEVEL_RECORD"]
    if pattern != "*.checkpoint":
        assert set(seen) >= {
            "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD",
            "PARTITION_CHANGE_RECORD", "PRODUCER_IDS_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD",
            "NO_OP_RECORD", "BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD",
        }  # fmt: skip


def test_lists_of_two_records_are_two() -> None:
    """A default that can be changed is made anew for each record."""
    value = encode_record(REGISTER_BROKER, 4, {"brokerId": 1, "incarnationId": bytes(16)})
    first, second = parse_record(value), parse_record(value)
    first.data["logDirs"].append(bytes(16))
    assert second.data["logDirs"] == parse_record(value).data["logDirs"] == []


# -- the table of metadata records: keys, names and versions as of 4.3.1


NAMES = {
    0: "REGISTER_BROKER_RECORD", 1: "UNREGISTER_BROKER_RECORD", 2: "TOPIC_RECORD",
    3: "PARTITION_RECORD", 4: "CONFIG_RECORD", 5: "PARTITION_CHANGE_RECORD",
    7: "FENCE_BROKER_RECORD", 8: "UNFENCE_BROKER_RECORD", 9: "REMOVE_TOPIC_RECORD",
    10: "DELEGATION_TOKEN_RECORD", 11: "USER_SCRAM_CREDENTIAL_RECORD", 12: "FEATURE_LEVEL_RECORD",
    14: "CLIENT_QUOTA_RECORD", 15: "PRODUCER_IDS_RECORD", 17: "BROKER_REGISTRATION_CHANGE_RECORD",
    18: "ACCESS_CONTROL_ENTRY_RECORD", 19: "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    20: "NO_OP_RECORD", 21: "ZK_MIGRATION_STATE_RECORD", 22: "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    23: "BEGIN_TRANSACTION_RECORD", 24: "END_TRANSACTION_RECORD", 25: "ABORT_TRANSACTION_RECORD",
    26: "REMOVE_DELEGATION_TOKEN_RECORD", 27: "REGISTER_CONTROLLER_RECORD", 28: "CLEAR_ELR_RECORD",
    29: "UNREGISTER_CONTROLLER_RECORD",
}  # fmt: skip


def test_names() -> None:
    assert cluster_metadata.RECORD_NAMES == NAMES
    for key, name in NAMES.items():
        constant = name.removesuffix("_RECORD")
        assert getattr(cluster_metadata, constant) == key


def test_versions() -> None:
    versions = {key: schema.highest_version for key, schema in RECORDS.items()}
    assert {key: last for key, last in versions.items() if last} == {0: 4, 3: 2, 5: 2, 17: 3}
    assert all(schema.flexible_since == 0 for schema in RECORDS.values())


def test_tags_are_numbered_without_gaps() -> None:
    for schema in RECORDS.values():
        tags = sorted(field.tag for field in schema.fields if field.tag >= 0)
        assert tags == list(range(len(tags)))


# -- the frame around metadata records: every fault, in the words of Kafka's reader


SCHEMAS = {
    2: MessageSchema("TwoRecord", Field("name", "string"), highest_version=1),
    300: MessageSchema("ManyRecord", Field("list", "[]struct", fields=(Field("x", "int8"),))),
}
TWO = bytes.fromhex("01 02 00 02 74 00")


def test_frames() -> None:
    assert parse_header(TWO) == FrameHeader(2, 0, 3)
    assert parse_message(SCHEMAS, TWO, parse_header(TWO)) == {"name": "t"}
    assert encode_frame(SCHEMAS, 2, 0, {"name": "t"}) == TWO
    many = bytes.fromhex("01 ac02 00 02 07 00 00")
    assert parse_header(many) == FrameHeader(300, 0, 4)
    assert parse_message(SCHEMAS, many, parse_header(many)) == {"list": [{"x": 7}]}
    assert encode_frame(SCHEMAS, 300, 0, {"list": [{"x": 7}]}) == many


@pytest.mark.parametrize(
    ("data", "check_id", "pos", "message"),
    [
        (None, "FRM-1", 0, "Error while reading frame version"),
        ("", "FRM-1", 0, "Error while reading frame version"),
        ("01", "FRM-1", 1, "Error while reading type"),
        ("01 02", "FRM-1", 2, "Error while reading version"),
        ("ffffffffff 00", "FRM-1", 0, "Error while reading frame version"),
        ("01 808002 00", "FRM-1", 1, "Value for type was too large."),
        ("01 02 808002", "FRM-1", 2, "Value for version was too large."),
        ("00 02 00", "FRM-2", 0,
         ("Could not deserialize metadata record with frame version 0. Note that upgrades from the "
         "preview release of KRaft in 2.8 to newer versions are not supported.")),
        ("02 02 00", "FRM-2", 0,
         ("Could not deserialize metadata record due to unknown frame version 2"
         "(only frame version 1 is supported)")),
        ("01 09 00", "FRM-3", 1,
         "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 9"),
        ("01 02 00 00 00", "FRM-5", 3, "Failed to deserialize record with type 2"),
        ("01 02 00 02", "FRM-5", 4, "Failed to deserialize record with type 2"),
        ("01 02 00 02 74 00 ff ff", "FRM-5", 6, "Found 2 byte(s) of garbage after 2"),
        ("01 ac02 05 02 07 00 00", "FRM-5", 5, "Failed to deserialize record with type 300"),
    ],
)  # fmt: skip
def test_faults(data: str | None, check_id: str, pos: int, message: str) -> None:
    value = None if data is None else bytes.fromhex(data)
    with pytest.raises(FormatError) as caught:
        parse_message(SCHEMAS, value or b"", parse_header(value))
    assert (caught.value.check_id, caught.value.message) == (check_id, message)
    assert caught.value.pos == pos
    unsupported = check_id in {"FRM-2", "FRM-3"}
    assert type(caught.value) is (UnsupportedError if unsupported else CorruptError)


def test_versions_that_are_too_new_are_read_and_told() -> None:
    newer = bytes.fromhex("01 02 05 02 74 00")
    header = parse_header(newer)
    assert parse_message(SCHEMAS, newer, header) == {"name": "t"}
    with pytest.raises(UnsupportedError) as caught:
        require_known_version(SCHEMAS, header)
    assert caught.value.check_id == "FRM-4"
    require_known_version(SCHEMAS, header._replace(version=1))
    require_known_version(SCHEMAS, header._replace(api_key=9))
