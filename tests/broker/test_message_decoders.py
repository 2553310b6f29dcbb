"""kafka-dump-log and we say the same of any message in an internal topic, well formed or not.

The golden directories hold a few kinds of records only. Here every record type and version is
written with random fields, some of them cut short, and printed by both.
"""

from __future__ import annotations

import os
import re
import struct
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from storage.formats import (
    cluster_metadata,
    consumer_offsets,
    control_record,
    coordinator_record,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from storage.formats.message import encode
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import CONTROL_MASK, BatchHeader, encode_batch
from tests.kafka.dump import dump_log
from tests.storage.formats.message_samples import line_text, random_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from storage.formats.coordinator_record import RecordType
    from storage.formats.message import MessageSchema

    KeyAndValue = tuple[bytes | None, bytes | None]
    Describe = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]

pytestmark = pytest.mark.broker

RECORDS_PER_KIND = 8
T = 1_700_000_000_000
LINE = re.compile(r"\| offset: (\d+) .*? headerKeys: \[\](.*)")
# Of other releases than 4.3.1, whose tool calls them unknown; we show them.
NOT_IN_4_3_1 = {9, 18, 24}


class Topic(NamedTuple):
    """What is printed with a decoder, by the tool and by us."""

    option: str
    records: Callable[[Random], Iterator[KeyAndValue]]
    describe: Describe


def _cut(data: bytes, rnd: Random) -> bytes:
    return data[: rnd.randint(0, len(data))] if rnd.random() < 0.2 else data


def _coordinator_records(
    types: Mapping[int, RecordType],
) -> Callable[[Random], Iterator[KeyAndValue]]:
    def records(rnd: Random) -> Iterator[KeyAndValue]:
        for number, record_type in types.items():
            if types is consumer_offsets.RECORD_TYPES and number in NOT_IN_4_3_1:
                continue
            schema = record_type.value
            for version in range(schema.highest_version + 1):
                for _ in range(RECORDS_PER_KIND):
                    key_fields = random_message(record_type.key, 0, rnd)
                    key = coordinator_record.encode_key(record_type, key_fields)
                    fields = random_message(schema, version, rnd)
                    if schema.name == "GroupMetadataValue":
                        fields |= {"protocolType": "consumer"}
                        for member in fields["members"]:
                            member.update(_embedded(rnd))
                    value = coordinator_record.encode_value(schema, version, fields)
                    # What is left may be a value of the layout that only we know.
                    known = len(record_type.values) == 1
                    yield _cut(key, rnd), _cut(value, rnd) if known else value
            key = coordinator_record.encode_key(record_type, {})
            yield key, None
            yield key, struct.pack(">h", schema.highest_version + 1)
        yield struct.pack(">h", 99), b""

    return records


def _embedded(rnd: Random) -> dict[str, bytes]:
    message = {}
    for name, schema in consumer_offsets.EMBEDDED.items():
        version = rnd.randint(0, 3)
        fields = random_message(schema, version, rnd)
        data = consumer_offsets.encode_message(schema, version, fields)
        later = struct.pack(">h", 7) + data[2:]
        message[name] = _cut(rnd.choice([data, data, later]) if version == 3 else data, rnd)
    return message


def _framed_records(
    schemas: Mapping[int, MessageSchema],
) -> Callable[[Random], Iterator[KeyAndValue]]:
    def records(rnd: Random) -> Iterator[KeyAndValue]:
        for api_key, schema in schemas.items():
            for version in range(schema.highest_version + 1):
                for _ in range(RECORDS_PER_KIND):
                    fields = random_message(schema, version, rnd)
                    if "startOffset" in fields and rnd.random() < 0.8:
                        fields |= {"startOffset": 5, "endOffset": rnd.choice([4, 5, 9])}
                    if "remoteLogSegmentState" in fields:
                        fields["remoteLogSegmentState"] = rnd.randint(-1, 4)
                    body = encode(schema, version, fields)
                    newer = rnd.random() < 0.1
                    frame = bytes([1, api_key, 9 if newer else version]) + body
                    yield None, _cut(frame, rnd) + (b"?" if rnd.random() < 0.1 else b"")
        for frame in (b"", b"\x00\x02\x00", b"\x02\x02\x00", b"\x01\x06\x00", b"\x01\x80\x80\x02"):
            yield None, frame
        yield None, None

    return records


# What 4.4 brought: a metadata record, and tagged fields that the tool of 4.3.1 leaves out.
NEWER = re.compile(r"UNREGISTER_CONTROLLER_RECORD|DescriptionTopologyEpoch")
TOPICS = {
    "__consumer_offsets": Topic(
        "--offsets-decoder",
        _coordinator_records(consumer_offsets.RECORD_TYPES),
        consumer_offsets.describe_record,
    ),
    "__transaction_state": Topic(
        "--transaction-log-decoder",
        _coordinator_records(transaction_state.RECORD_TYPES),
        # The tool of 4.3.1 prints the status as a number.
        partial(transaction_state.describe_record, names_status=False),
    ),
    "__share_group_state": Topic(
        "--share-group-state-decoder",
        _coordinator_records(share_group_state.RECORD_TYPES),
        share_group_state.describe_record,
    ),
    "__cluster_metadata": Topic(
        "--cluster-metadata-decoder",
        _framed_records(cluster_metadata.RECORDS),
        lambda offset, key, value: cluster_metadata.describe_record(
            offset, key, value, redact=False
        ),
    ),
    "__remote_log_metadata": Topic(
        "--remote-log-metadata-decoder",
        _framed_records(remote_log_metadata.RECORDS),
        remote_log_metadata.describe_record,
    ),
}


def _write_log(path: Path, records: list[KeyAndValue], attributes: int = 0) -> None:
    """One batch with all of `records`, from offset 0 on."""
    path.parent.mkdir()
    body = b"".join(
        encode_record(Record(0, 0, offset, key, value, ()))
        for offset, (key, value) in enumerate(records)
    )
    header = BatchHeader(
        0, 0, 0, 2, 0, attributes, len(records) - 1, T, T, -1, -1, -1, len(records)
    )
    path.write_bytes(encode_batch(header, body))


def _printed(path: Path, option: str) -> dict[int, str]:
    """Offset -> what the tool prints of the record after `headerKeys: []`."""
    text = dump_log([path], option).stdout.decode()
    found = (LINE.fullmatch(line) for line in text.split("\n"))
    return {int(line[1]): line[2] for line in found if line}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", TOPICS)
def test_decoders(tmp_path: Path, name: str) -> None:
    topic = TOPICS[name]
    rnd = Random(int(os.environ["EOCTL_SEED"]))
    records = list(topic.records(rnd))
    path = tmp_path / f"{name}-0" / "00000000000000000000.log"
    _write_log(path, records)
    printed = _printed(path, topic.option)
    for offset, (key, value) in enumerate(records):
        ours = line_text(topic.describe(offset, key, value))
        # A topic's name may hold a line break, and toString does not escape it.
        if NEWER.search(ours):
            continue
        assert printed[offset] == ours.split("\n")[0], f"{key!r} {value!r}"


def test_control_records(tmp_path: Path) -> None:
    rnd = Random(int(os.environ["EOCTL_SEED"]))
    marker = control_record.encode_end_txn_marker(control_record.EndTxnMarker(0, 3))
    records: list[tuple[bytes, bytes]] = [
        (control_record.encode_control_key(control_type), value)
        for control_type in (-5, 0, 1, 7, 300)
        for value in (marker, marker + b"more")
    ]
    for control_type, schema in control_record.MESSAGES.items():
        for _ in range(RECORDS_PER_KIND):
            # The tool reads every LEADER_CHANGE as version 0.
            fields = random_message(schema, 0, rnd) | {"version": 0}
            value = control_record.encode_control_message(control_type, fields)
            records.append((control_record.encode_control_key(control_type), value))
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    _write_log(path, list(records), CONTROL_MASK)
    printed = _printed(path, "--cluster-metadata-decoder")
    assert printed == {
        offset: control_record.describe(*record) for offset, record in enumerate(records)
    }
