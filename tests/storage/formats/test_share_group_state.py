"""Records of __share_group_state in both of their layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import FormatError
from storage.formats.coordinator_record import encode_key, encode_value
from storage.formats.share_group_state import SNAPSHOT, UPDATE, describe_record, parse_record
from tests.storage.formats.message_samples import mutated, random_message, randoms

if TYPE_CHECKING:
    from random import Random

    from storage.formats.coordinator_record import RecordType

KEY = {"groupId": "g", "topicId": bytes(range(16)), "partition": 3}
KEY_BYTES = bytes.fromhex("0001 67 000102030405060708090a0b0c0d0e0f 00000003")
KEY_JSON = '"data":{"groupId":"g","topicId":"AAECAwQFBgcICQoLDA0ODw","partition":3}}'
BATCH = {"firstOffset": 5, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}
BATCH_BYTES = "0000000000000005 0000000000000009 02 0001 00"
BATCH_JSON = '{"firstOffset":5,"lastOffset":9,"deliveryState":2,"deliveryCount":1}'


@pytest.mark.parametrize(
    ("record_type", "layout", "fields", "encoded", "data"),
    [
        (
            SNAPSHOT, 0,
            {"snapshotEpoch": 1, "stateEpoch": 2, "leaderEpoch": 3, "startOffset": 4,
             "deliveryCompleteCount": -1, "createTimestamp": 6, "writeTimestamp": 7,
             "stateBatches": [BATCH]},
            "0000 00000001 00000002 00000003 0000000000000004 0000000000000006 0000000000000007 02"
            + BATCH_BYTES + "00",
            ('{"snapshotEpoch":1,"stateEpoch":2,"leaderEpoch":3,"startOffset":4,"createTimestamp":6,'
            f'"writeTimestamp":7,"stateBatches":[{BATCH_JSON}]}}'),
        ),
        (
            SNAPSHOT, 1,
            {"snapshotEpoch": 65535, "stateEpoch": 2, "leaderEpoch": 3, "startOffset": 4,
             "stateBatches": []},
            "0000 ffff 00000002 00000003 0000000000000004 01 00",
            ('{"snapshotEpoch":65535,"stateEpoch":2,"leaderEpoch":3,"startOffset":4,'
            '"stateBatches":[]}'),
        ),
        (
            UPDATE, 0,
            {"snapshotEpoch": 1, "leaderEpoch": 3, "startOffset": -1, "deliveryCompleteCount": 8,
             "stateBatches": []},
            "0000 00000001 00000003 ffffffffffffffff 01 01 00 04 00000008",
            ('{"snapshotEpoch":1,"leaderEpoch":3,"startOffset":-1,"deliveryCompleteCount":8,'
            '"stateBatches":[]}'),
        ),
        (
            UPDATE, 1,
            {"snapshotEpoch": 1, "leaderEpoch": 3, "startOffset": -1, "stateBatches": [BATCH]},
            "0000 0001 00000003 ffffffffffffffff 02" + BATCH_BYTES + "00",
            f'{{"snapshotEpoch":1,"leaderEpoch":3,"startOffset":-1,"stateBatches":[{BATCH_JSON}]}}',
        ),
    ],
    ids=["snapshot", "snapshot of 4.0", "update", "update of 4.0"],
)  # fmt: skip
def test_examples(
    record_type: RecordType, layout: int, fields: dict[str, Any], encoded: str, data: str
) -> None:
    key = record_type.type.to_bytes(2, "big") + KEY_BYTES
    value = bytes.fromhex(encoded)
    record = parse_record(key, value)
    schema = record_type.values[layout]
    assert record == (record_type.type, KEY, 0, fields, schema)
    assert encode_key(record_type, KEY) == key
    assert encode_value(schema, 0, fields) == value
    assert describe_record(0, key, value) == (
        f'{{"type":"{record_type.type}",{KEY_JSON}',
        f'{{"version":"0","data":{data}}}',
    )


def test_tombstones_and_unknown_types() -> None:
    assert describe_record(0, b"\x00\x01" + KEY_BYTES, None)[1] == "<DELETE>"
    assert parse_record(b"\x00\x00" + KEY_BYTES, None).value is None
    assert describe_record(9, b"\x00\x02" + KEY_BYTES, b"") == (
        "Unknown record type 2 at offset 9, skipping.",
        None,
    )


@given(record_type=st.sampled_from([SNAPSHOT, UPDATE]), rnd=randoms)
def test_round_trip_and_damage(record_type: RecordType, rnd: Random) -> None:
    key = encode_key(record_type, random_message(record_type.key, 0, rnd))
    fields = random_message(record_type.value, 0, rnd)
    value = encode_value(record_type.value, 0, fields)
    assert parse_record(key, value).value == fields
    damaged = mutated(value, rnd)
    key_text, payload = describe_record(0, key, damaged)
    try:
        parse_record(key, damaged)
    except FormatError:
        assert payload is None
        assert "skipping" in (key_text or "")
    else:
        assert (payload or "").startswith('{"version":"0","data":{"snapshotEpoch":')
