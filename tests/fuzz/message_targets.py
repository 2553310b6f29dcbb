"""Targets: keys and values of the internal topics, and the generated messages that they are."""

from __future__ import annotations

import json
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats import (
    cluster_metadata,
    consumer_offsets,
    control_record,
    message,
    producer_id_record,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from storage.formats.cluster_metadata import RECORDS
from storage.formats.java_text import kafka_text, kafka_text_pieces
from tests.storage.formats.message_samples import VERSIONS

from .corpus import messages, pack_pair, unpack_pair
from .engine import Target
from .promises import outcome, reads_any_buffer, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from .corpus import Corpus

OFFSET = 42
LENIENT_BIT = 0x01
DESCRIBERS = {
    "consumer_offsets": consumer_offsets.describe_record,
    "transaction_state": transaction_state.describe_record,
    "share_group_state": share_group_state.describe_record,
    "cluster_metadata": cluster_metadata.describe_record,
    "remote_log_metadata": remote_log_metadata.describe_record,
}


def _message(data: bytes) -> None:
    """The first two bytes choose schema and version, the third one the lenient reader."""
    place, flags = struct.unpack(">HB", data[:3].ljust(3, b"\0"))
    schema, version = VERSIONS[place % len(VERSIONS)]
    body = data[3:]
    if flags & LENIENT_BIT:
        other = flags >> 1
        value, _ = reads_any_buffer(partial(message.decode_lenient, schema, other), body)
        message.to_json(schema, schema.nearest_version(other), value)
        return
    value, next_pos = reads_any_buffer(partial(message.decode, schema, version), body)
    assert 0 <= next_pos <= len(body)
    moved, moved_pos = message.decode(schema, version, b"\xff" + body, 1)
    assert (repr(moved), moved_pos) == (repr(value), next_pos + 1)
    text = message.to_json(schema, version, value)
    text.encode()
    json.loads(text)
    again = message.encode(schema, version, value)
    reread, _ = message.decode(schema, version, again)
    # Unknown tags stand in the order of their numbers once written.
    assert message.encode(schema, version, reread) == again


def _pair(parse: Callable[[Any, Any], Any], describe: Callable[..., Any], data: bytes) -> None:
    """Parse and describe; only a missing key may keep a record from being described."""
    key, value = unpack_pair(data)
    try:
        texts = describe(OFFSET, key, value)
    except CorruptError as error:
        require(key is None and error.check_id == "COO-1", f"not described: {error}")
    else:
        for text in texts:
            (text or "").encode()
    views = [None if each is None else memoryview(each) for each in (key, value)]
    expected = outcome(parse, key, value)
    assert repr(outcome(parse, *views)) == repr(expected)
    if expected[0] == "value":
        _ = getattr(expected[1], "data", None)
    parse(key, value)


def _parse_transaction(key: bytes | None, value: bytes | None) -> Any:
    transactional_id, state = transaction_state.parse_record(key, value)
    assert key is not None
    assert transaction_state.parse_key(key) == transactional_id
    if state is not None:
        status = outcome(lambda: state.status)
        assert status[0] in ("value", UnsupportedError)
        again = transaction_state.encode_value(state)
        reread = transaction_state.parse_record(
            transaction_state.encode_key(transactional_id), again
        )
        # Partitions of a topic that was listed twice are put together.
        assert reread[1] is not None
        assert transaction_state.encode_value(reread[1]) == again
    return transactional_id, state


def _parse_offset(key: bytes | None, value: bytes | None) -> Any:
    found = consumer_offsets.parse_offset_record(key, value)
    if found is not None and found[1] is not None:
        packed = consumer_offsets.encode_offset_key(found[0])
        again = consumer_offsets.encode_offset_value(found[1])
        assert consumer_offsets.parse_offset_record(packed, again) == found
    return consumer_offsets.parse_record(key, value)


def _parse_metadata(_: bytes | None, value: bytes | None) -> Any:
    parsed = cluster_metadata.parse_record(value)
    again = cluster_metadata.encode_record(parsed.api_key, parsed.version, parsed.data)
    reread = cluster_metadata.parse_record(again)
    assert cluster_metadata.encode_record(reread.api_key, reread.version, reread.data) == again
    cluster_metadata.redacted(parsed)
    return parsed


def _parse_remote(_: bytes | None, value: bytes | None) -> Any:
    parsed = remote_log_metadata.parse_record(value)
    again = remote_log_metadata.encode_record(parsed)
    assert remote_log_metadata.encode_record(remote_log_metadata.parse_record(again)) == again
    return parsed


def _producer_id(data: bytes) -> None:
    key, value = unpack_pair(data)
    found = producer_id_record.parse_record(key, value)
    if isinstance(found, producer_id_record.Forgotten):
        return
    packed = producer_id_record.encode_key(producer_id_record.key_of(found))
    again = producer_id_record.encode_value(found)
    assert producer_id_record.parse_record(packed, again) == found


PRODUCER_ID_ENTRIES: list[producer_id_record.Entry] = [
    producer_id_record.Ids(),
    producer_id_record.Lease("app", 2**48, 3, 60_000, 1_800_000_000_000, partitions=(("t", 0),)),
    producer_id_record.FreeId(2**48 + 7, 5),
    producer_id_record.Floor(12),
]


def _made_producer_ids() -> list[bytes]:
    keys = [
        producer_id_record.encode_key(producer_id_record.key_of(e)) for e in PRODUCER_ID_ENTRIES
    ]
    values = map(producer_id_record.encode_value, PRODUCER_ID_ENTRIES)
    return [*map(pack_pair, keys, values), pack_pair(keys[1], None)]


def _consumer_protocol(data: bytes) -> None:
    errors: list[FormatError] = []
    for schema in (consumer_offsets.SUBSCRIPTION, consumer_offsets.ASSIGNMENT):
        try:
            reads_any_buffer(partial(consumer_offsets.parse, schema), data)
            json.loads(consumer_offsets.parsed_json(schema, data))
        except FormatError as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]


def _control(data: bytes) -> None:
    key, value = unpack_pair(data)
    outcome(control_record.parse_end_txn_marker, value)
    for control_type in control_record.MESSAGES:
        found = outcome(control_record.parse_control_message, control_type, value)
        if found[0] == "value" and 0 <= found[1]["version"] <= 1:
            outcome(control_record.encode_control_message, control_type, found[1])
    parsed = control_record.parse_control_key(key)
    assert -(2**15) <= parsed.type < 2**15
    control_record.describe(key, value).encode()


def _frame(data: bytes) -> None:
    header = reads_any_buffer(cluster_metadata.parse_header, data)
    outcome(cluster_metadata.require_known_version, RECORDS, header)
    cluster_metadata.parse_message(RECORDS, data, header)


def _json(data: bytes) -> None:
    """Text and numbers as Java prints them are JSON with the same meaning."""
    text = kafka_text(data)
    assert "".join(kafka_text_pieces(data, 7)) == text
    assert json.loads(message.json_string(text)) == text
    for (value,) in struct.iter_unpack(">d", data[: len(data) // 8 * 8]):
        shown = json.loads(message.json_double(value))
        assert isinstance(shown, str) or shown == value


def _pairs(topic: str, *made: bytes) -> Callable[[Corpus], list[bytes]]:
    return lambda corpus: [*corpus.pairs(topic), *made]


def _made_pairs(module: Any) -> list[bytes]:
    """Pairs of every type and version of a coordinator's topic, made from the schemas."""
    types = module.RECORD_TYPES.values()
    keys = {id(one.key): one.type for one in types}
    values = {id(schema): one.type for one in types for schema in one.values}
    bodies = [
        (schema, version, seed[3:])
        for (schema, version), seed in zip(VERSIONS, messages(), strict=True)
    ]
    by_type = {keys[id(s)]: body for s, _, body in bodies if id(s) in keys}
    return [
        pack_pair(
            struct.pack(">h", values[id(schema)]) + by_type[values[id(schema)]],
            struct.pack(">h", version) + body,
        )
        for schema, version, body in bodies
        if id(schema) in values
    ]


def _made_frames(records: dict[int, message.MessageSchema]) -> list[bytes]:
    api_keys = {id(schema): api_key for api_key, schema in records.items()}
    return [
        pack_pair(None, bytes([1, api_keys[id(schema)], version]) + seed[3:])
        for (schema, version), seed in zip(VERSIONS, messages(), strict=True)
        if id(schema) in api_keys
    ]


TARGETS = [
    Target("message", _message, lambda _: messages(), 2500),
    Target(
        "consumer_offsets",
        partial(_pair, _parse_offset, DESCRIBERS["consumer_offsets"]),
        _pairs("__consumer_offsets", *_made_pairs(consumer_offsets)),
    ),
    Target(
        "transaction_state",
        partial(_pair, _parse_transaction, DESCRIBERS["transaction_state"]),
        _pairs("__transaction_state", *_made_pairs(transaction_state)),
        700,
    ),
    Target(
        "share_group_state",
        partial(_pair, share_group_state.parse_record, DESCRIBERS["share_group_state"]),
        _pairs("__share_group_state", *_made_pairs(share_group_state)),
        700,
    ),
    Target("producer_id_record", _producer_id, lambda _: _made_producer_ids(), 700),
    Target(
        "cluster_metadata",
        partial(_pair, _parse_metadata, DESCRIBERS["cluster_metadata"]),
        _pairs("__cluster_metadata", *_made_frames(RECORDS)),
        1200,
    ),
    Target(
        "remote_log_metadata",
        partial(_pair, _parse_remote, DESCRIBERS["remote_log_metadata"]),
        _pairs("__remote_log_metadata", *_made_frames(remote_log_metadata.RECORDS)),
        700,
    ),
    Target(
        "consumer_protocol",
        _consumer_protocol,
        lambda _: [
            struct.pack(">h", version) + seed[3:]
            for (schema, version), seed in zip(VERSIONS, messages(), strict=True)
            if schema in (consumer_offsets.SUBSCRIPTION, consumer_offsets.ASSIGNMENT)
        ],
        700,
    ),
    Target(
        "control_record",
        _control,
        lambda corpus: [
            *corpus.pairs(""),
            *(
                pack_pair(control_record.encode_control_key(control_type), seed[3:])
                for control_type, schema in control_record.MESSAGES.items()
                for (other, _), seed in zip(VERSIONS, messages(), strict=True)
                if other is schema
            ),
        ],
        700,
    ),
    Target(
        "api_message_frame",
        _frame,
        lambda corpus: [unpack_pair(seed)[1] or b"" for seed in corpus.pairs("__cluster_metadata")],
        700,
    ),
    Target(
        "json",
        _json,
        lambda _: [struct.pack(">4d", 1.5, 1e7, 5e-324, -0.001), 'a"\\é\x01😀'.encode()],
    ),
]
