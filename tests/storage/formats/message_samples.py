"""Messages for tests: random ones for a schema, and all that the golden directories hold."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from storage.formats import (
    cluster_metadata,
    consumer_offsets,
    control_record,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from storage.formats.compression import decompress
from storage.formats.message import UNKNOWN_TAGS
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, parse_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from storage.formats.message import Field, MessageSchema

_COORDINATORS = (consumer_offsets, transaction_state, share_group_state)
SCHEMAS: list[MessageSchema] = [
    *(one.key for module in _COORDINATORS for one in module.RECORD_TYPES.values()),
    *(value for module in _COORDINATORS for one in module.RECORD_TYPES.values() for value in one.values),
    *cluster_metadata.RECORDS.values(),
    *remote_log_metadata.RECORDS.values(),
    *control_record.MESSAGES.values(),
    consumer_offsets.SUBSCRIPTION,
    consumer_offsets.ASSIGNMENT,
]  # fmt: skip
VERSIONS = [
    (schema, version) for schema in SCHEMAS for version in range(schema.highest_version + 1)
]
VERSION_IDS = [f"{schema.name}-{version}" for schema, version in VERSIONS]

TEXTS = [
    "", "a", "group", "\x00\x01\x1f\x7f\x80", '"\\/', "\n\r\t\b\f", "é漢字😀", "\u2028\ufeff",
    "x" * 200, "<>&'",
]  # fmt: skip
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
FLOATS = [0.0, -0.0, 1.0, 100.0, 1e7, 9999999.0, 1e-3, 9.99e-4, 0.1, 1e21, 1 / 3, 5e-324]

randoms = st.randoms(use_true_random=False)


def random_message(schema: MessageSchema, version: int, rnd: Random) -> dict[str, Any]:
    """A message with every field of the version, now and then with tags that the schema lacks."""
    message = _random_struct(schema.fields, version, rnd)
    if version >= schema.flexible_since and rnd.random() < 0.2:
        message[UNKNOWN_TAGS] = [(50, b"xyz"), (1000, b"")]
    return message


def _random_struct(fields: tuple[Field, ...], version: int, rnd: Random) -> dict[str, Any]:
    return {
        field.name: _random_value(field, field.type, version, rnd)
        for field in fields
        if field.since <= version <= field.until
    }


def _random_value(field: Field, type_name: str, version: int, rnd: Random) -> Any:
    if type_name.endswith("?"):
        if rnd.random() < 0.25:
            return None
        type_name = type_name[:-1]
    if type_name.startswith("[]"):
        return [_random_value(field, type_name[2:], version, rnd) for _ in range(rnd.randint(0, 3))]
    match type_name:
        case "struct":
            return _random_struct(field.fields, version, rnd)
        case "string":
            return rnd.choice(TEXTS)
        case "bytes" | "records":
            return rnd.randbytes(rnd.choice([0, 1, 2, 3, 20]))
        case "bool":
            return rnd.random() < 0.5
        case "uuid":
            return rnd.choice([bytes(16), b"\xff" * 16, rnd.randbytes(16)])
        case "float64":
            return rnd.choice([*FLOATS, rnd.uniform(-1e9, 1e9)])
    bits = BITS[type_name]
    low, high = (
        (0, 2**bits - 1) if type_name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return rnd.choice([0, 1, low, high, rnd.randint(low, high)])


def mutated(data: bytes, rnd: Random) -> bytes:
    """A few bytes changed, cut off or added."""
    kind = rnd.randrange(3)
    if kind == 0:
        return data[: rnd.randint(0, len(data))]
    if kind == 1:
        return data + rnd.randbytes(rnd.randint(1, 4))
    changed = bytearray(data)
    for _ in range(rnd.randint(1, 3) if data else 0):
        changed[rnd.randrange(len(changed))] = rnd.choice(
            [0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)]
        )
    return bytes(changed)


class GoldenRecord(NamedTuple):
    """A record of a golden directory, and what kafka-dump-log prints after `headerKeys: []`."""

    name: str  # of the file, for messages
    offset: int
    is_control: bool
    key: bytes | None
    value: bytes | None
    text: str


LINE = re.compile(r"\| offset: (\d+) .*? headerKeys: \[\](.*)")
ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers")


def golden_records(golden: Callable[[str], Path], pattern: str) -> Iterator[GoldenRecord]:
    """Every record, outside of preallocated and torn tails, of the logs that match `pattern`."""
    for archive in ARCHIVES:
        root, dumps = golden(archive), golden(f"{archive}.dump")
        for path in sorted(root.rglob(pattern)):
            name = path.relative_to(root)
            dump = dumps / name.parent / f"{name.name}.txt"
            if not dump.exists():  # some states were dumped in part
                continue
            # A file may hold an offset twice: after an epoch's end the log was cut and written anew.
            texts: defaultdict[int, list[str]] = defaultdict(list)
            for line in dump.read_text(encoding="utf-8").split("\n"):
                if found := LINE.fullmatch(line):
                    texts[int(found[1])].append(found[2])
            for offset, is_control, key, value in _records(path.read_bytes()):
                yield GoldenRecord(str(name), offset, is_control, key, value, texts[offset].pop(0))
            assert not any(texts.values()), f"{name}: lines without a record"


def _records(data: bytes) -> Iterator[tuple[int, bool, bytes | None, bytes | None]]:
    pos = 0
    while len(data) - pos >= HEADER_BYTES and struct.unpack_from(">i", data, pos + 8)[0]:
        header = parse_header(data, pos)
        body = decompress(header.codec, data[pos + HEADER_BYTES : pos + header.batch_bytes])
        pos += header.batch_bytes
        for record in parse_records(body, header.records_count):
            offset = header.base_offset + record.offset_delta
            yield offset, header.is_control, record.key, record.value


def line_text(texts: tuple[str | None, str | None]) -> str:
    """What `describe_record` gives, as it stands in a line."""
    key, payload = texts
    return "".join(
        f" {name}: {text}"
        for name, text in (("key", key), ("payload", payload))
        if text is not None
    )
