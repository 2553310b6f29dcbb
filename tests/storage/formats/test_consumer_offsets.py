"""Records of __consumer_offsets: the worked examples, groups of all kinds, real ones, damage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError
from storage.formats import consumer_protocol
from storage.formats import coordinator_record as records
from storage.formats.consumer_offsets import (
    OffsetCommit,
    OffsetKey,
    describe_record,
    encode_offset_key,
    encode_offset_value,
    parse_offset_record,
    parse_record,
)
from storage.formats.group_records import GROUP_METADATA_VALUE, RECORD_TYPES
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
    "subscription": consumer_protocol.encode_message(
        consumer_protocol.SUBSCRIPTION, 1, {"topics": ["t"]}
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
