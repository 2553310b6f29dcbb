"""Records of __consumer_offsets: the worked examples, groups of all kinds, real ones, damage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, TruncatedError
from storage.formats import consumer_offsets
from storage.formats import coordinator_record as records
from storage.formats.consumer_offsets import (
    ASSIGNMENT,
    COMMIT_FIELDS,
    GROUP_METADATA_VALUE,
    GROUP_VALUE_VERSIONS,
    OFFSET_COMMIT_VALUE,
    RECORD_TYPES,
    SUBSCRIPTION,
    OffsetCommit,
    OffsetKey,
    describe_record,
    encode_message,
    encode_offset_key,
    encode_offset_value,
    offset_value_version,
    parse,
    parse_offset_record,
    parse_record,
    parsed_json,
)
from storage.formats.coordinator_record import encode_key, encode_value
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

    from storage.formats.message import MessageSchema


T = 1_700_000_000_000
# The worked examples.
OFFSET_KEY = bytes.fromhex("00 01 00 01 67 00 01 74 00 00 00 00")
OFFSET_VALUE = bytes.fromhex(
    "00 03 00 00 00 00 00 00 00 2a 00 00 00 07 00 00 00 00 01 8b cf e5 68 00"
)
GROUP_KEY = bytes.fromhex("00 02 00 01 67")
GROUP_VALUE = bytes.fromhex(
    "00 03 00 08 63 6f 6e 73 75 6d 65 72 00 00 00 00 ff ff ff ff 00 00 01 8b cf e5 68 00 00 00 00 00"
)
CONSUMER_GROUP_KEY = bytes.fromhex("00 03 00 01 67")
CONSUMER_GROUP_VALUE = bytes.fromhex("00 00 00 00 00 05 00")

offsets = st.integers(-(2**63), 2**63 - 1)
commits = st.builds(
    OffsetCommit,
    version=st.just(4),
    offset=offsets,
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=st.text(max_size=10),
    commit_timestamp_ms=offsets,
    expire_timestamp_ms=st.just(-1),
    topic_id=st.binary(min_size=16, max_size=16),
) | st.builds(
    OffsetCommit,
    version=st.just(1),
    offset=offsets,
    leader_epoch=st.just(-1),
    metadata=st.text(max_size=10),
    commit_timestamp_ms=offsets,
    expire_timestamp_ms=offsets,
    topic_id=st.just(bytes(16)),
)
keys = st.builds(
    OffsetKey,
    group=st.text(max_size=10),
    topic=st.text(max_size=10),
    partition=st.integers(-(2**31), 2**31 - 1),
)


def test_committed_offset() -> None:
    key, value = OffsetKey("g", "t", 0), OffsetCommit(3, 42, 7, "", T)
    assert parse_offset_record(OFFSET_KEY, OFFSET_VALUE) == (key, value)
    assert parse_offset_record(OFFSET_KEY, None) == (key, None)
    assert (encode_offset_key(key), encode_offset_value(value)) == (OFFSET_KEY, OFFSET_VALUE)
    assert describe_record(5, OFFSET_KEY, OFFSET_VALUE) == (
        '{"type":"1","data":{"group":"g","topic":"t","partition":0}}',
        (
            '{"version":"3","data":{"offset":42,"leaderEpoch":7,"metadata":"",'
            '"commitTimestamp":1700000000000}}'
        ),
    )
    assert describe_record(5, OFFSET_KEY, None)[1] == "<DELETE>"


def test_legacy_committed_offset() -> None:
    value = bytes.fromhex("0000 000000000000002a 0001 6d 0000018bcfe56800")
    key = b"\x00\x00" + OFFSET_KEY[2:]
    assert parse_offset_record(key, value) == (
        OffsetKey("g", "t", 0),
        OffsetCommit(0, 42, -1, "m", T),
    )


def test_groups() -> None:
    assert parse_offset_record(GROUP_KEY, b"not looked at") is None
    record = parse_record(GROUP_KEY, GROUP_VALUE)
    assert record.value is not None
    assert (record.type, record.key, record.version) == (2, {"group": "g"}, 3)
    assert record.value["currentStateTimestamp"] == T
    assert describe_record(5, GROUP_KEY, GROUP_VALUE) == (
        '{"type":"2","data":{"group":"g"}}',
        (
            '{"version":"3","data":{"protocolType":"consumer","generation":0,"protocol":null,'
            '"leader":null,"currentStateTimestamp":1700000000000,"members":[]}}'
        ),
    )
    assert describe_record(5, CONSUMER_GROUP_KEY, CONSUMER_GROUP_VALUE) == (
        '{"type":"3","data":{"groupId":"g"}}',
        '{"version":"0","data":{"epoch":5}}',
    )


MEMBER = {
    "memberId": "m", "clientId": "c", "clientHost": "/h", "sessionTimeout": 1,
    "subscription": consumer_offsets.encode_message(
        consumer_offsets.SUBSCRIPTION, 1, {"topics": ["t"]}
    ),
    "assignment": b"\x00",
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol_type", "subscription"),
    [
        ("consumer", '{"topics":["t"],"userData":null,"ownedPartitions":[]}'),
        ("connect", '"AAEAAAABAAF0/////wAAAAA="'),
    ],
)
def test_members_bytes_are_decoded_in_place(protocol_type: str, subscription: str) -> None:
    fields = {"protocolType": protocol_type, "members": [MEMBER]}
    value = records.encode_value(GROUP_METADATA_VALUE, 0, fields)
    _, payload = describe_record(5, GROUP_KEY, value)
    # What cannot be decoded stays base64, the other one is decoded all the same.
    assert payload == (
        f'{{"version":"0","data":{{"protocolType":"{protocol_type}","generation":0,"protocol":"",'
        '"leader":"","members":[{"memberId":"m","clientId":"c","clientHost":"/h",'
        f'"sessionTimeout":1,"subscription":{subscription},"assignment":"AA=="}}]}}}}'
    )


@pytest.mark.parametrize("number", [-1, 25, 99])
def test_unknown_types(number: int) -> None:
    key = number.to_bytes(2, "big", signed=True) + b"\x00\x01g"
    assert describe_record(8, key, OFFSET_VALUE) == (
        f"Unknown record type {number} at offset 8, skipping.",
        None,
    )
    assert parse_offset_record(key, OFFSET_VALUE) is None


def test_without_a_key() -> None:
    for call in (describe_record, lambda _, key, value: parse_offset_record(key, value)):
        with pytest.raises(CorruptError) as caught:
            call(8, None, OFFSET_VALUE)
        assert caught.value.check_id == "COO-1"


@given(key=keys, value=commits)
def test_round_trip(key: OffsetKey, value: OffsetCommit) -> None:
    assert parse_offset_record(encode_offset_key(key), encode_offset_value(value)) == (key, value)


def test_every_version_and_field_has_its_place() -> None:
    """A field that nobody maps would be lost between an export and an import."""
    assert ("version", *COMMIT_FIELDS) == OffsetCommit._fields
    assert {*COMMIT_FIELDS.values()} == {each.name for each in OFFSET_COMMIT_VALUE.fields}
    for version in range(OFFSET_COMMIT_VALUE.highest_version + 1):
        names = {
            field.name
            for field in OFFSET_COMMIT_VALUE.fields
            if field.since <= version <= field.until
        }
        value = OffsetCommit(version, 1, 2, "m", 3, 4, b"t" * 16)
        lacking = [name for name, field in COMMIT_FIELDS.items() if field not in names]
        expected = value._replace(**{each: OffsetCommit._field_defaults[each] for each in lacking})
        found = parse_offset_record(OFFSET_KEY, encode_offset_value(value))
        assert found == (OffsetKey("g", "t", 0), expected)
    newest = OFFSET_COMMIT_VALUE.highest_version
    assert [offset_value_version(each) for each in (0, 29, 30, 99)] == [3, 3, 4, newest]
    assert {*GROUP_VALUE_VERSIONS} == {*range(2, newest + 1)}
    assert max(GROUP_VALUE_VERSIONS.values()) <= GROUP_METADATA_VALUE.highest_version


@given(number=st.sampled_from(sorted(RECORD_TYPES)), rnd=randoms)
def test_damage_is_a_value_or_a_format_error(number: int, rnd: Random) -> None:
    record_type = RECORD_TYPES[number]
    version = rnd.randint(0, record_type.value.highest_version)
    key = records.encode_key(record_type, random_message(record_type.key, 0, rnd))
    fields = random_message(record_type.value, version, rnd)
    if record_type.value is GROUP_METADATA_VALUE:
        fields["protocolType"] = "consumer"
    value = records.encode_value(record_type.value, version, fields)
    assert parse_record(key, value).value == fields
    if rnd.random() < 0.3:
        key = mutated(key, rnd)
    else:
        value = mutated(value, rnd)
    key_text, _ = describe_record(0, key, value)
    assert key_text is not None
    try:
        parse_record(key, value)
    except FormatError:
        assert "skipping" in key_text
    else:
        assert key_text.startswith('{"type":"')


def test_golden(golden: Callable[[str], Path]) -> None:
    seen: Counter[int] = Counter()
    for record in golden_records(golden, "__consumer_offsets-*/*.log"):
        if record.is_control:
            continue
        where = f"{record.name} offset {record.offset}"
        texts = describe_record(record.offset, record.key, record.value)
        assert line_text(texts) == record.text, where
        parsed = parse_record(record.key, record.value)
        seen[parsed.type] += 1
        assert records.encode_key(RECORD_TYPES[parsed.type], parsed.key) == record.key, where
        if parsed.value is not None and parsed.value_schema is not None:
            encoded = records.encode_value(parsed.value_schema, parsed.version, parsed.value)
            assert encoded == record.value, where
    assert set(seen) == {1, 2}


# -- the members' bytes of a classic consumer group


OWNED = {
    "topics": ["t"], "userData": None,
    "ownedPartitions": [{"topic": "t", "partitions": [0]}], "generationId": 3, "rackId": None,
}  # fmt: skip
SUBSCRIPTION_3 = bytes.fromhex(
    "0003 00000001 0001 74 ffffffff 00000001 0001 74 00000001 00000000 00000003 ffff"
)
ASSIGNMENT_0 = bytes.fromhex("0000 00000001 0001 74 00000002 00000000 00000001 00000001 ff")
ASSIGNED = {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": b"\xff"}


@pytest.mark.parametrize(
    ("schema", "version", "fields", "encoded", "text"),
    [
        (SUBSCRIPTION, 3, OWNED, SUBSCRIPTION_3,
         ('{"topics":["t"],"userData":null,"ownedPartitions":[{"topic":"t","partitions":[0]}],'
         '"generationId":3,"rackId":null}')),
        (ASSIGNMENT, 0, ASSIGNED, ASSIGNMENT_0,
         '{"assignedPartitions":[{"topic":"t","partitions":[0,1]}],"userData":"/w=="}'),
    ],
)  # fmt: skip
def test_examples(
    schema: MessageSchema, version: int, fields: dict[str, Any], encoded: bytes, text: str
) -> None:
    assert parse(schema, encoded) == (version, fields)
    assert encode_message(schema, version, fields) == encoded
    assert parsed_json(schema, encoded + b"more") == text


def test_a_later_version_is_read_as_3_unless_there_are_structs_in_it() -> None:
    plain = encode_message(SUBSCRIPTION, 3, {"topics": ["t"]})
    assert parse(SUBSCRIPTION, b"\x00\x09" + plain[2:])[0] == 9
    assert parsed_json(SUBSCRIPTION, b"\x00\x09" + plain[2:]) == parsed_json(SUBSCRIPTION, plain)
    with pytest.raises(CorruptError):
        parse(SUBSCRIPTION, b"\x00\x09" + SUBSCRIPTION_3[2:])


@pytest.mark.parametrize("data", [b"", b"\x00"])
def test_without_a_version(data: bytes) -> None:
    with pytest.raises(TruncatedError):
        parse(ASSIGNMENT, data)


@given(schema=st.sampled_from([SUBSCRIPTION, ASSIGNMENT]), rnd=randoms)
def test_round_trip_and_damage(schema: MessageSchema, rnd: Random) -> None:
    version = rnd.randint(0, 3)
    fields = random_message(schema, version, rnd)
    encoded = encode_message(schema, version, fields)
    assert parse(schema, encoded) == (version, fields)
    try:
        text = parsed_json(schema, mutated(encoded, rnd))
    except FormatError:
        return
    assert text.startswith(('{"topics":', '{"assignedPartitions":'))


# -- the tables of group records: types, names, versions, and layouts of development releases


KEY = b"\x00\x01g"


def test_types() -> None:
    assert sorted(RECORD_TYPES) == list(range(25))
    assert all(number == one.type for number, one in RECORD_TYPES.items())
    assert {number: one.value.highest_version for number, one in RECORD_TYPES.items()
            if one.value.highest_version} == {1: 4, 2: 4}  # fmt: skip
    for one in RECORD_TYPES.values():
        assert one.key.name.removesuffix("Key") == one.value.name.removesuffix("Value")


def test_a_member_that_is_not_classic_says_so_in_a_tag() -> None:
    member = RECORD_TYPES[5]
    classic = {"sessionTimeoutMs": 45_000, "supportedProtocols": []}
    texts = {}
    for name, one in (("absent", None), ("null", {"classicMemberMetadata": None}),
                      ("given", {"classicMemberMetadata": classic})):  # fmt: skip
        value = encode_value(member.value, 0, one or {})
        texts[name] = describe_record(0, b"\x00\x05" + KEY + KEY, value)[1]
        if name == "null":
            assert value.endswith(bytes.fromhex("01 00 01 00"))
    assert "classicMemberMetadata" not in (texts["absent"] or "")
    assert '"classicMemberMetadata":null' in (texts["null"] or "")
    assert '"classicMemberMetadata":{"sessionTimeoutMs":45000' in (texts["given"] or "")


@pytest.mark.parametrize(
    ("number", "value", "data"),
    [
        (11, "0000 00000005 00", '{"epoch":5}'),
        (11, "0000 00000005 0000000000000007 00", '{"epoch":5,"metadataHash":7}'),
        (15, "0000 01 01 00", '{"initializedTopics":[],"deletingTopics":[]}'),
        (15, "0000 01 01 01 00",
         '{"initializingTopics":[],"initializedTopics":[],"deletingTopics":[]}'),
    ],
)  # fmt: skip
def test_layouts_before_the_release(number: int, value: str, data: str) -> None:
    key = number.to_bytes(2, "big") + KEY
    assert describe_record(0, key, bytes.fromhex(value)) == (
        f'{{"type":"{number}","data":{{"groupId":"g"}}}}',
        f'{{"version":"0","data":{data}}}',
    )


@pytest.mark.parametrize("number", [4, 9, 18])
def test_types_that_are_not_written_any_more(number: int) -> None:
    record_type = RECORD_TYPES[number]
    topic = {
        "topicId": bytes(16), "topicName": "t", "numPartitions": 1,
        "partitionMetadata": [{"partition": 0, "racks": ["r"]}],
    }  # fmt: skip
    key = encode_key(record_type, {"groupId": "g"})
    value = encode_value(record_type.value, 0, {"topics": [topic]})
    assert parse_record(key, value).value == {"topics": [topic]}
