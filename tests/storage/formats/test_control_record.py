"""Control records: the worked examples, every fault, and kafka-dump-log's words."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, TruncatedError, UsageError
from storage.formats.control_record import (
    MESSAGES,
    ControlKey,
    ControlRecordType,
    EndTxnMarker,
    describe,
    encode_control_key,
    encode_control_message,
    encode_end_txn_marker,
    parse_control_key,
    parse_control_message,
    parse_end_txn_marker,
)
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, parse_header
from tests.storage.formats.message_samples import golden_records, mutated, random_message, randoms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

T = 1_700_000_000_000
DIRECTORY_ID = bytes(range(16))

# The worked examples.
COMMIT_BATCH = bytes.fromhex(
    "00 00 00 00 00 00 00 66 00 00 00 42 00 00 00 07 02 a5 44 cf fa 00 30 00 00 00 00 00 00 01 8b cf"
    "e5 68 0a 00 00 01 8b cf e5 68 0a 00 00 00 00 00 00 03 e8 00 00 ff ff ff ff 00 00 00 01 20 00 00"
    "00 08 00 00 00 01 0c 00 00 00 00 00 03 00"
)
ABORT_BATCH = bytes.fromhex(
    "00 00 00 00 00 00 00 67 00 00 00 42 00 00 00 07 02 51 7a 19 b2 00 30 00 00 00 00 00 00 01 8b cf"
    "e5 68 0a 00 00 01 8b cf e5 68 0a 00 00 00 00 00 00 03 e8 00 00 ff ff ff ff 00 00 00 01 20 00 00"
    "00 08 00 00 00 00 0c 00 00 00 00 00 03 00"
)
LEADER_CHANGE_BATCH = bytes.fromhex(
    "00 00 00 00 00 00 00 00 00 00 00 5e 00 00 00 01 02 17 35 ab 2b 00 20 00 00 00 00 00 00 01 8b cf"
    "e5 68 00 00 00 01 8b cf e5 68 00 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 01 58 00 00"
    "00 08 00 00 00 02 44 00 00 00 00 00 01 04 00 00 00 01 00 00 00 00 02 00 00 00 00 03 00 03 00 00"
    "00 01 00 00 00 00 02 00 00 00"
)
VOTERS = [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}]
EXAMPLES = {
    ControlRecordType.LEADER_CHANGE: (
        (
            "00 00 00 00 00 01 04 00 00 00 01 00 00 00 00 02 00 00 00 00 03 00 03 00 00 00 01 00 00 00 00 02"
            "00 00"
        ),
        {"version": 0, "leaderId": 1, "voters": VOTERS, "grantingVoters": VOTERS[:2]},
        (
            ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1},{"voterId":2},{"voterId":3}],'
            '"grantingVoters":[{"voterId":1},{"voterId":2}]}'
        ),
    ),
    ControlRecordType.SNAPSHOT_HEADER: (
        "00 00 00 00 01 8b cf e5 68 00 00",
        {"version": 0, "lastContainedLogTimestamp": T},
        f' SnapshotHeader {{"version":0,"lastContainedLogTimestamp":{T}}}',
    ),
    ControlRecordType.SNAPSHOT_FOOTER: (
        "00 00 00",
        {"version": 0},
        ' SnapshotFooter {"version":0}',
    ),
    ControlRecordType.KRAFT_VERSION: (
        "00 00 00 01 00",
        {"version": 0, "kRaftVersion": 1},
        ' KRaftVersion {"version":0,"kRaftVersion":1}',
    ),
    ControlRecordType.KRAFT_VOTERS: (
        (
            "00 00 02 00 00 00 01 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 02 0b 43 4f 4e 54 52 4f 4c"
            "4c 45 52 03 68 31 23 85 00 00 00 00 01 00 00 00"
        ),
        {
            "version": 0,
            "voters": [
                {
                    "voterId": 1,
                    "voterDirectoryId": DIRECTORY_ID,
                    "endpoints": [{"name": "CONTROLLER", "host": "h1", "port": 9093}],
                    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
                }
            ],
        },
        (
            ' KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAECAwQFBgcICQoLDA0ODw",'
            '"endpoints":[{"name":"CONTROLLER","host":"h1","port":9093}],'
            '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
        ),
    ),
}


@pytest.mark.parametrize(
    ("batch", "control_type", "text"),
    [
        (COMMIT_BATCH, ControlRecordType.COMMIT, " endTxnMarker: COMMIT coordinatorEpoch: 3"),
        (ABORT_BATCH, ControlRecordType.ABORT, " endTxnMarker: ABORT coordinatorEpoch: 3"),
    ],
)
def test_marker_examples(batch: bytes, control_type: ControlRecordType, text: str) -> None:
    assert parse_header(batch, 0).is_control
    (record,) = parse_records(batch[HEADER_BYTES:], 1)
    assert parse_control_key(record.key) == ControlKey(0, control_type)
    assert parse_end_txn_marker(record.value) == EndTxnMarker(0, 3)
    assert describe(record.key, record.value) == text
    assert encode_control_key(control_type) == record.key
    assert encode_end_txn_marker(EndTxnMarker(0, 3)) == record.value


@pytest.mark.parametrize("control_type", EXAMPLES)
def test_message_examples(control_type: ControlRecordType) -> None:
    encoded, value, text = EXAMPLES[control_type]
    data = bytes.fromhex(encoded)
    assert parse_control_message(control_type, data) == value
    assert encode_control_message(control_type, value) == data
    assert describe(encode_control_key(control_type), data) == text


def test_leader_change_in_its_batch() -> None:
    (record,) = parse_records(LEADER_CHANGE_BATCH[HEADER_BYTES:], 1)
    encoded, _, text = EXAMPLES[ControlRecordType.LEADER_CHANGE]
    assert record.value == bytes.fromhex(encoded)
    assert describe(record.key, record.value) == text


def test_leader_change_version_1_has_directory_ids() -> None:
    value = {
        "version": 1, "leaderId": 1,
        "voters": [{"voterId": 1, "voterDirectoryId": DIRECTORY_ID}], "grantingVoters": [],
    }  # fmt: skip
    data = encode_control_message(ControlRecordType.LEADER_CHANGE, value)
    assert parse_control_message(ControlRecordType.LEADER_CHANGE, data) == value
    assert '"voterDirectoryId":"AAECAwQFBgcICQoLDA0ODw"' in describe(encode_control_key(2), data)


@pytest.mark.parametrize("control_type", [-32768, -1, 7, 32767])
def test_unknown_types_are_no_error(control_type: int) -> None:
    assert (
        describe(encode_control_key(control_type), None) == f" controlType: UNKNOWN({control_type})"
    )


def test_higher_versions_are_read_as_0_and_may_have_more_bytes() -> None:
    assert parse_control_key(b"\x00\x09\x00\x01more") == ControlKey(9, 1)
    assert parse_end_txn_marker(b"\x00\x09\x00\x00\x00\x05more") == EndTxnMarker(9, 5)
    header = struct.pack(">hq", 9, T) + b"\x00"
    assert parse_control_message(ControlRecordType.SNAPSHOT_HEADER, header)["version"] == 9
    assert describe(encode_control_key(3), header).startswith(' SnapshotHeader {"version":9,')


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_short_keys(key: bytes | None) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_control_key(key)
    assert caught.value.check_id == "CTL-1"


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00"])
def test_short_markers(value: bytes | None) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_end_txn_marker(value)
    assert caught.value.check_id == "CTL-2"


def test_negative_versions() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_control_key(b"\xff\xff\x00\x01")
    assert caught.value.check_id == "CTL-1"
    with pytest.raises(CorruptError) as caught:
        parse_end_txn_marker(b"\xff\xff\x00\x00\x00\x01")
    assert caught.value.check_id == "CTL-2"


@pytest.mark.parametrize("control_type", MESSAGES)
def test_messages_that_are_not_there(control_type: ControlRecordType) -> None:
    for value in (None, b"", b"\x00", b"\x00\x00"):
        with pytest.raises(TruncatedError):
            describe(encode_control_key(control_type), value)


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError):
        encode_control_message(ControlRecordType.KRAFT_VERSION, {"kRaftVersion": 2**15})


@given(control_type=st.sampled_from(sorted(MESSAGES)), rnd=randoms)
def test_messages_come_back(control_type: ControlRecordType, rnd: Random) -> None:
    schema = MESSAGES[control_type]
    version = rnd.randint(0, schema.highest_version)
    value = random_message(schema, version, rnd) | {"version": version}
    data = encode_control_message(control_type, value)
    assert parse_control_message(control_type, data) == value
    try:
        text = describe(encode_control_key(control_type), mutated(data, rnd))
    except FormatError as error:
        text = f" {error}"
    assert text.startswith(" ")


@given(key=st.none() | st.binary(max_size=6), value=st.none() | st.binary(max_size=40))
def test_any_bytes_are_text_or_a_format_error(key: bytes | None, value: bytes | None) -> None:
    try:
        text = describe(key, value)
    except FormatError:
        return
    assert text.split(" ")[1] in {
        "endTxnMarker:", "LeaderChange:", "SnapshotHeader", "SnapshotFooter", "KRaftVersion",
        "KRaftVoters", "controlType:",
    }  # fmt: skip


@pytest.mark.parametrize("pattern", ["*.checkpoint", "__*/*.log", "txn*/*.log"])
def test_golden(golden: Callable[[str], Path], pattern: str) -> None:
    seen: Counter[int] = Counter()
    for record in golden_records(golden, pattern):
        if not record.is_control:
            continue
        where = f"{record.name} offset {record.offset}"
        assert describe(record.key, record.value) == record.text, where
        key = parse_control_key(record.key)
        seen[key.type] += 1
        assert encode_control_key(key.type) == record.key, where
        if key.type in MESSAGES:
            message = parse_control_message(key.type, record.value)
            assert encode_control_message(key.type, message) == record.value, where
        else:
            assert encode_end_txn_marker(parse_end_txn_marker(record.value)) == record.value, where
    kinds = {"*.checkpoint": {3, 4}, "__*/*.log": {0, 1, 2}, "txn*/*.log": {0, 1}}
    assert kinds[pattern] <= set(seen)
