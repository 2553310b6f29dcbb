"""The frame around metadata records: every fault, in the words of Kafka's reader."""

from __future__ import annotations

import pytest

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.api_message_frame import (
    FrameHeader,
    encode_frame,
    parse_header,
    parse_message,
    require_known_version,
)
from storage.formats.message import MessageSchema
from storage.formats.message_codec import Field

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
