"""The tables of group records: types, names, versions, and layouts of development releases."""

from __future__ import annotations

import pytest

from storage.formats.consumer_offsets import describe_record, parse_record
from storage.formats.coordinator_record import encode_key, encode_value
from storage.formats.group_records import RECORD_TYPES

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
