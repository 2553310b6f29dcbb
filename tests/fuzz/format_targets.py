"""Targets: the modules of `storage/formats` that read fixed layouts, codecs and small text files."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from storage.errors import FormatError, TooLargeError
from storage.formats import (
    checkpoint,
    clean_shutdown,
    compression,
    index_entries,
    java_text,
    legacy_message,
    meta_properties,
    offset_index,
    partition_metadata,
    producer_snapshot,
    quorum_state,
    record,
    record_batch,
    time_index,
    txn_index,
    varint,
)
from storage.limits import INT32_MAX, INT64_MAX, MAX_OFFSET

from .corpus import gzip_seeds
from .engine import Target
from .mutations import (
    TEXTS,
    repair_gzip,
    repair_log,
    repair_lz4,
    repair_snappy,
    repair_snapshot,
)
from .promises import (
    are_problems,
    never_raises,
    outcome,
    reads_any_buffer,
    reads_at_any_pos,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .corpus import Corpus

PLAIN_MAX_BYTES = 2**20
SMALL_MAX_BYTES = 1000
BASE_OFFSETS = (0, 1000, MAX_OFFSET)


# --- fixed layouts --------------------------------------------------------------------------------


def _varint(data: bytes) -> None:
    error = None
    for parse, encode in (
        (varint.parse_uvarint, varint.encode_uvarint),
        (varint.parse_varint, varint.encode_varint),
        (varint.parse_uvarlong, varint.encode_uvarlong),
        (varint.parse_varlong, varint.encode_varlong),
    ):
        try:
            value = reads_at_any_pos(parse, data, has_next=True)
        except FormatError as caught:
            error = caught
            continue
        encoded = encode(value)
        assert parse(encoded, 0) == (value, len(encoded))
    if error is not None:
        raise error


def _record_batch(data: bytes) -> None:
    header = reads_at_any_pos(record_batch.parse_header, data, has_next=False)
    assert record_batch.encode_header(header) == data[: record_batch.HEADER_BYTES]
    record_batch.compute_crc(data)
    body = data[record_batch.HEADER_BYTES :]
    again = record_batch.parse_header(record_batch.encode_batch(header, body), 0)
    assert again == header._replace(crc=again.crc, batch_length=again.batch_length)
    assert header.last_sequence < 2**31 or header.last_offset_delta < 0
    delta = header.max_timestamp_ms
    assert -(2**63) <= record_batch.record_timestamp_ms(header, delta) < 2**63
    assert record_batch.record_sequence(header, header.last_offset_delta) < 2**31
    _ = header.batch_bytes, header.last_offset, header.codec, header.delete_horizon_ms


def _record(data: bytes) -> None:
    def parse(buf: Any, pos: int) -> tuple[record.Record, int]:
        return record.parse_record(buf, pos, len(buf))

    one = outcome(reads_at_any_pos, parse, data, has_next=True)
    if one[0] == "value":
        encoded = record.encode_record(one[1])
        assert parse(encoded, 0) == (one[1], len(encoded))
    count = int.from_bytes(data[:4], "big", signed=True)
    # Half of the inputs have a count that fits, so that the others are not all cut short.
    body = data[4:] if count < len(data) else data

    def parse_all(buf: Any) -> list[record.Record]:
        return list(record.parse_records(buf, count if count < len(data) else 1))

    records = reads_any_buffer(parse_all, body)
    assert len(records) == max(count if count < len(data) else 1, 0)
    again = b"".join(map(record.encode_record, records))
    assert list(record.parse_records(again, len(records))) == records
    for each in records:
        for header in each.headers:
            str(header.key_text).encode()


def _legacy_message(data: bytes) -> None:
    for parse in (legacy_message.parse_entry, legacy_message.header_of):
        outcome(reads_at_any_pos, parse, data, has_next=False)
    for size in (0, 17, 26, len(data), len(data) + 1, -5):
        legacy_message.message_crc_ok(data, 0, size)
    message = reads_at_any_pos(legacy_message.parse_message, data, has_next=False)
    assert message.crc_ok == legacy_message.message_crc_ok(
        data, 0, 12 + int.from_bytes(data[8:12], "big")
    )
    fixed = legacy_message.with_crc(message)
    assert legacy_message.parse_message(legacy_message.encode_message(fixed), 0) == fixed
    records = legacy_message.inner_messages(message, max_bytes=PLAIN_MAX_BYTES)
    assert records
    assert all(-(2**63) <= each.offset < 2**63 for each in records)


def _index(data: bytes) -> None:
    for module in (offset_index, time_index):
        entries = never_raises(module.parse_entries, data)
        assert len(entries) == module.logical_entry_count(data)
        assert entries == module.parse_entries(memoryview(data))
        encoded = module.encode_entries(entries)
        assert encoded == data[: len(encoded)]
        assert module.encode_entries(entries, file_bytes=len(data))[: len(encoded)] == encoded
        for base_offset in BASE_OFFSETS:
            are_problems(module.problems(data, base_offset), data)
        outcome(reads_at_any_pos, module.parse_entry, data, has_next=False)


def _txn_index(data: bytes) -> None:
    entries = never_raises(txn_index.parse_entries, data)
    encoded = txn_index.encode_entries(entries)
    assert encoded == data[: len(encoded)]
    assert len(data) - len(encoded) < txn_index.ENTRY_BYTES
    for base_offset in BASE_OFFSETS:
        are_problems(txn_index.problems(data, base_offset), data)
        are_problems(txn_index.problems(data, base_offset, base_offset + 100), data)
    outcome(reads_at_any_pos, txn_index.parse_entry, data, has_next=False)


def _producer_snapshot(data: bytes) -> None:
    are_problems(producer_snapshot.problems(data), data)
    are_problems(producer_snapshot.problems(memoryview(data), 1000), data)
    error = None
    try:
        entries = reads_any_buffer(producer_snapshot.parse_snapshot, data)
    except FormatError as caught:
        error = caught
        entries = producer_snapshot.entries_despite_crc(data)
    else:
        assert producer_snapshot.encode_snapshot(entries) == data
        assert producer_snapshot.entries_despite_crc(data) == entries
    for entry in entries:
        _ = entry.first_sequence, entry.first_offset, entry.has_batch
    if error is not None:
        raise error


def _zero_tail(data: bytes) -> None:
    assert index_entries.data_end_pos(data) == len(data.rstrip(b"\0"))
    pos = len(data) // 3
    rest = data[pos:].lstrip(b"\0")
    assert index_entries.first_data_pos(data, pos) == (len(data) - len(rest) if rest else None)
    for entry_bytes, field_pos in ((8, 0), (12, 8)):
        found = index_entries.used_entry_count(
            data, entry_bytes=entry_bytes, relative_offset_pos=field_pos
        )
        assert 0 <= found <= len(data) // entry_bytes


# --- codecs ---------------------------------------------------------------------------------------


def _decompress(codec: int, magic: int, data: bytes) -> None:
    def unpack(buf: Any) -> bytes:
        return compression.decompress(codec, buf, magic=magic, max_bytes=PLAIN_MAX_BYTES)

    try:
        small = compression.decompress(codec, data, magic=magic, max_bytes=SMALL_MAX_BYTES)
    except TooLargeError:
        small = None
    except FormatError:
        small = b""  # the fault comes again below, unless the data is too large before it
    plain = reads_any_buffer(unpack, data)
    assert len(plain) <= PLAIN_MAX_BYTES
    assert (small is None) == (len(plain) > SMALL_MAX_BYTES)
    assert small in (None, plain)
    again = compression.compress(codec, plain, magic=magic)
    assert compression.decompress(codec, again, magic=magic, max_bytes=len(plain)) == plain


_REPAIRS = {1: repair_gzip, 2: repair_snappy, 3: repair_lz4}


def _codec_targets() -> list[Target]:
    targets = []
    for codec in range(1, 5):
        for magic in (0, 1, 2) if codec == 3 else (1, 2) if codec < 3 else (2,):

            def seeds(corpus: Corpus, codec: int = codec, magic: int = magic) -> list[bytes]:
                made = [compression.compress(codec, bytes(300) + b"abc" * 30, magic=magic)]
                return [*made, *corpus.bodies(codec), *(gzip_seeds() if codec == 1 else [])]

            name = f"compression-{compression.Codec(codec).label}-v{magic}"
            run = partial(_decompress, codec, magic)
            if codec in _REPAIRS:
                targets.append(Target(name, run, seeds, 500, _REPAIRS[codec]))
            else:
                targets.append(Target(name, run, seeds, 500))
    return targets


# --- text -----------------------------------------------------------------------------------------


def _offset_checkpoint(data: bytes) -> None:
    are_problems(checkpoint.offset_checkpoint_problems(data), data)
    entries = reads_any_buffer(checkpoint.parse_offset_checkpoint, data)
    again = checkpoint.encode_offset_checkpoint(entries)
    assert checkpoint.parse_offset_checkpoint(again) == entries


def _leader_epochs(data: bytes) -> None:
    are_problems(checkpoint.leader_epoch_problems(data), data)
    entries = reads_any_buffer(checkpoint.parse_leader_epochs, data)
    again = checkpoint.encode_leader_epochs(entries)
    assert checkpoint.parse_leader_epochs(again) == entries


def _text_file(
    parse: Callable[[bytes], Any], encode: Callable[[Any], bytes], problems: Any, data: bytes
) -> Any:
    """A file of one value: what is read and written again is the same value."""
    are_problems(problems(data), data)
    value = reads_any_buffer(parse, data)
    assert parse(encode(value)) == value
    return value


def _clean_shutdown(data: bytes) -> None:
    broker_epoch = never_raises(clean_shutdown.broker_epoch, data)
    marker = _text_file(
        clean_shutdown.parse_clean_shutdown,
        clean_shutdown.encode_clean_shutdown,
        clean_shutdown.problems,
        data,
    )
    assert marker.broker_epoch == broker_epoch


def _java_text(data: bytes) -> None:
    lines = java_text.parse_lines(data, check_id="X-1")
    for line in lines:
        java_text.split_fields(line.text)
        for max_value in (INT32_MAX, INT64_MAX):
            value = never_raises(
                lambda: java_text.parse_integer(line.text, max_value=max_value)  # noqa: B023
            )
            assert value is None or -max_value - 1 <= value <= max_value
        java_text.shown(line.text).encode("utf-8", "surrogateescape")


def _json_object(data: bytes) -> None:
    text = java_text.decode_utf8(data, check_id="X-1")
    document = java_text.parse_json_object(text, check_id="X-1")
    encoded = java_text.encode_json(document)
    assert json.loads(encoded) == document
    are_problems(java_text.unusual_text(data, encoded), data)


def _files(suffix: str) -> Callable[[Corpus], list[bytes]]:
    return lambda corpus: corpus.starts(suffix)


TARGETS = [
    Target(
        "varint", _varint, lambda _: [b"\x00", b"\xff" * 10, b"\x80\x01", b"\x80" * 4 + b"\x0f"]
    ),
    Target(
        "record_batch",
        _record_batch,
        lambda corpus: [each.data[:400] for each in corpus.batches[:: len(corpus.batches) // 40]],
        repair=repair_log,
    ),
    Target("record", _record, lambda corpus: corpus.record_bodies(), 700),
    Target(
        "legacy_message",
        _legacy_message,
        lambda corpus: corpus.legacy_messages(),
        700,
        repair_log,
    ),
    Target("index", _index, lambda c: [*c.starts(".index"), *c.starts(".timeindex")], 400),
    Target("txn_index", _txn_index, _files(".txnindex")),
    Target("producer_snapshot", _producer_snapshot, _files(".snapshot"), 1000, repair_snapshot),
    Target("zero_tail", _zero_tail, lambda c: [*c.starts(".index"), *c.starts(".timeindex")]),
    *_codec_targets(),
    Target("offset_checkpoint", _offset_checkpoint, _files("offset-checkpoint"), 700, words=TEXTS),
    Target("leader_epochs", _leader_epochs, _files("leader-epoch-checkpoint"), 700, words=TEXTS),
    Target(
        "partition_metadata",
        partial(
            _text_file,
            partition_metadata.parse_partition_metadata,
            partition_metadata.encode_partition_metadata,
            partition_metadata.problems,
        ),
        _files("partition.metadata"),
        700,
        words=TEXTS,
    ),
    Target(
        "meta_properties",
        partial(
            _text_file,
            meta_properties.parse_meta_properties,
            meta_properties.encode_meta_properties,
            meta_properties.problems,
        ),
        _files("meta.properties"),
        700,
        words=(*TEXTS, b"version", b"cluster.id", b"node.id", b"broker.id", b"directory.id"),
    ),
    Target(
        "quorum_state",
        partial(
            _text_file,
            quorum_state.parse_quorum_state,
            quorum_state.encode_quorum_state,
            quorum_state.problems,
        ),
        _files("quorum-state"),
        700,
        words=(*TEXTS, *(f'"{key}":'.encode() for key in quorum_state.KEYS_V0)),
    ),
    Target(
        "clean_shutdown",
        _clean_shutdown,
        lambda corpus: [*corpus.starts(".kafka_cleanshutdown"), b'{"version":0,"brokerEpoch":7}'],
        700,
        words=TEXTS,
    ),
    Target(
        "java_text",
        _java_text,
        lambda corpus: [*corpus.starts("quorum-state"), *corpus.starts("offset-checkpoint")],
        700,
        words=TEXTS,
    ),
    Target("json_object", _json_object, _files("quorum-state"), 700, words=TEXTS),
]
