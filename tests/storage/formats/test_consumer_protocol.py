"""The members' bytes of a classic consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, TruncatedError
from storage.formats.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    encode_message,
    parse,
    parsed_json,
)
from tests.storage.formats.message_samples import mutated, random_message, randoms

if TYPE_CHECKING:
    from random import Random

    from storage.formats.message import MessageSchema

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
