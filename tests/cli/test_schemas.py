"""`--decode`: values of confluent-kafka's serializers, by `_schemas` and by files."""

from __future__ import annotations

import json
import os
import struct
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry.avro")

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from eoctl.clients.record_formats.schemas import schemas_for
from recovery.records.read_options import UndecodableError
from tests.doubled_logs import Said, Sent, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTEXT = SerializationContext("orders", MessageField.VALUE)
ADDRESS = {
    "type": "record", "name": "Address", "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}],
}  # fmt: skip
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "to", "type": "shop.Address"},
    ],
}  # fmt: skip
PERSON = {
    "type": "object", "title": "Person", "properties": {"name": {"type": "string"}},
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message First { string text = 1; }
message Outer {
  message Skipped { int32 x = 1; }
  message Inner { int64 number = 1; repeated string names = 2;
                  google.protobuf.Timestamp at = 3; }
}
"""


def registered(client: Any, subject: str, version: int, text: str, **more: Any) -> tuple[Any, Any]:
    """A record of the registry's topic."""
    found = client.lookup_schema(subject, Schema(text, **more))
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {
        "subject": subject, "version": version, "id": found.schema_id, "deleted": False,
        "schema": text,
        "references": [each.to_dict() for each in more.get("references", ())],
    }  # fmt: skip
    if more.get("schema_type", "AVRO") != "AVRO":
        value["schemaType"] = more["schema_type"]
    return key, value


def inner_message() -> Any:
    """A message of `Outer.Inner`, as protoc's classes have it."""
    from google.protobuf import timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="First").field.add(name="text", number=1, type=9, label=1)
    outer = file.message_type.add(name="Outer")
    outer.nested_type.add(name="Skipped").field.add(name="x", number=1, type=5, label=1)
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="number", number=1, type=3, label=1)
    inner.field.add(name="names", number=2, type=9, label=3)
    inner.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Inner"))
    made = kind(number=5, names=["a", "ä"])
    made.at.FromJsonString("2026-11-21T03:00:00Z")
    return made


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, list[Any], dict[int, tuple[str, str]]]:
    """A log dir with values of each kind and `_schemas`; what they say; schema files by id."""
    client = SchemaRegistryClient.new_client({"url": "mock://eoctl"})
    address = json.dumps(ADDRESS)
    client.register_schema("address", Schema(address))
    reference = SchemaReference("shop.Address", "address", 1)
    order = Schema(json.dumps(ORDER), references=[reference])
    avro = AvroSerializer(client, order, conf={"auto.register.schemas": True})
    said = {
        "number": 1, "note": None, "raw": b"\x00\xff", "price": Decimal("12.50"),
        "day": date(2026, 11, 21), "to": {"city": "Zürich"},
    }  # fmt: skip
    values = [avro(said, CONTEXT)]
    person = json.dumps(PERSON)
    values.append(
        JSONSerializer(person, client)(
            {"name": "Ada"}, SerializationContext("people", MessageField.VALUE)
        )
    )
    client.register_schema("protos", Schema(PROTO, schema_type="PROTOBUF"))
    number = client.lookup_schema("protos", Schema(PROTO, schema_type="PROTOBUF")).schema_id
    message = inner_message()
    path = b"\x04\x02\x02"  # two indexes, 1 and 1, as zigzag
    values.append(b"\x00" + number.to_bytes(4, "big") + path + message.SerializeToString())
    values += [b"plain", None, b"\x00\x00\x00\x00\x63rest", values[0][:-1], values[0] + b"x"]
    stored = [
        ({"keytype": "NOOP", "magic": 0}, None),
        registered(client, "address", 1, address),
        registered(client, "orders-value", 1, order.schema_str, references=[reference]),
        registered(client, "people-value", 1, person, schema_type="JSON"),
        registered(client, "protos", 1, PROTO, schema_type="PROTOBUF"),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
    ]
    topic = [
        Sent(-1, -1, -1, (Said(n, json.dumps(key).encode(), json.dumps(value).encode()),))
        for n, (key, value) in enumerate(stored)
    ]
    log = [Sent(-1, -1, -1, (Said(n, b"k%d" % n, value),)) for n, value in enumerate(values)]
    write_log(tmp_path / "kafka" / "_schemas-0", topic)
    write_log(tmp_path / "kafka" / "orders-0", log)
    expected = [
        {"number": 1, "note": None, "raw": "AP8=", "price": "12.50", "day": "2026-11-21",
         "to": {"city": "Zürich"}},
        {"name": "Ada"},
        {"number": "5", "names": ["a", "ä"], "at": "2026-11-21T03:00:00Z"},
    ]  # fmt: skip
    files = {number: (".proto", PROTO)}
    files[int.from_bytes(values[1][1:5], "big")] = (".json", person)
    return tmp_path / "kafka", expected, files


def test_values_of_serializers(shop: Any, eoctl: Callable[..., Any]) -> None:
    """In JSON Lines as objects, in text and formats as JSON; the others stay, and are counted."""
    log_dir, expected, _ = shop
    done = eoctl("consume", log_dir / "orders-0", "--decode", "-o", "jsonl")
    assert done.status == 0, done.errors
    found = [json.loads(line)["value"] for line in done.text.splitlines()]
    assert found[:3] == expected
    assert found[3:5] == ["plain", None]
    assert all(isinstance(each, (str, dict)) and each not in expected for each in found[5:])
    notes = [json.loads(line)["message"] for line in done.errors.splitlines()]
    assert "3 values decoded by schema" in notes
    assert "1 value stays bytes: not in Confluent's wire format" in notes
    assert "1 value stays bytes: schema 99 is unknown" in notes
    assert sum(each.startswith("2 values stay bytes: the bytes do not fit") for each in notes) == 1
    lines = eoctl("consume", log_dir / "orders-0", "--decode", "-f", r"%k %v\n").stdout.splitlines()
    assert [json.loads(each.partition(b" ")[2]) for each in lines[:3]] == expected
    base64 = eoctl("consume", log_dir / "orders-0", "--decode", "--bytes", "base64", "-o", "jsonl")
    assert [json.loads(each)["value"] for each in base64.text.splitlines()][:3] == expected
    raw = eoctl("consume", log_dir / "orders-0", "-o", "jsonl")
    assert json.loads(raw.text.splitlines()[1])["value"].startswith("\x00")
    topic = eoctl("consume", log_dir, "--topic", "orders", "--decode", "-o", "jsonl")
    assert [json.loads(each)["value"] for each in topic.text.splitlines()][:3] == expected


def test_schemas_of_files(shop: Any, eoctl: Callable[..., Any], tmp_path: Path) -> None:
    log_dir, expected, files = shop
    place = tmp_path / "schemas"
    place.mkdir()
    for number, (suffix, text) in files.items():
        (place / f"{number}{suffix}").write_text(text)
    done = eoctl("consume", log_dir / "orders-0", "--schema-dir", place, "-o", "jsonl")
    found = [json.loads(line)["value"] for line in done.text.splitlines()]
    assert found[1:3] == expected[1:]
    assert isinstance(found[0], (str, dict))
    for file in place.iterdir():
        file.write_text("no schema")
    broken = eoctl("consume", log_dir / "orders-0", "--schema-dir", place)
    assert broken.status == 0
    assert "does not compile" in broken.errors


def test_a_schema_that_a_client_registered_as_base64(
    eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """As the serializer for Protobuf of this client does."""
    client = SchemaRegistryClient.new_client({"url": "mock://base64"})
    message = inner_message()
    serializer = ProtobufSerializer(type(message), client, {"use.deprecated.format": False})
    value = serializer(message, SerializationContext("t", MessageField.VALUE))
    found = client.get_latest_version("t-value")
    key = {"keytype": "SCHEMA", "subject": "t-value", "version": 1, "magic": 1}
    stored = {
        "subject": "t-value", "version": 1, "id": found.schema_id, "schemaType": "PROTOBUF",
        "schema": found.schema.schema_str,
    }  # fmt: skip
    said = Said(1, json.dumps(key).encode(), json.dumps(stored).encode())
    write_log(tmp_path / "kafka" / "_schemas-0", [Sent(-1, -1, -1, (said,))])
    write_log(tmp_path / "kafka" / "t-0", [Sent(-1, -1, -1, (Said(1, b"k", value),))])
    done = eoctl("consume", tmp_path / "kafka" / "t-0", "--decode", "-o", "jsonl")
    expected = {"number": "5", "names": ["a", "ä"], "at": "2026-11-21T03:00:00Z"}
    assert json.loads(done.text)["value"] == expected, done.errors


def test_without_any_schema(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    done = eoctl("consume", golden("kafka-4.3.1") / "clean" / "plain-0", "--decode")
    assert (done.status, done.stdout) == (2, b"")
    assert "no schema: neither _schemas-0 nor files" in done.errors
    assert eoctl("consume", "x", "--schema-dir", "none").status == 3


def test_values_that_json_has_no_word_for(tmp_path: Path) -> None:
    """NaN as Protobuf's JSON writes it; JSON as it was written; else the bytes stay, and count."""
    (tmp_path / "1.avsc").write_text('{"type": "array", "items": "double"}')
    (tmp_path / "2.json").write_text('{"type": "object"}')
    schemas = schemas_for([], [str(tmp_path)])
    doubles = struct.pack("<4d", float("nan"), float("inf"), -float("inf"), 1.5)
    decoded = schemas.decode(b"\x00" + (1).to_bytes(4, "big") + b"\x08" + doubles + b"\x00")
    assert json.loads(decoded, parse_constant=pytest.fail) == ["NaN", "Infinity", "-Infinity", 1.5]
    head = b"\x00" + (2).to_bytes(4, "big")
    text = b'{"a":\n1.00000000000000000000001, "b": "\\ud800"}'
    assert schemas.decode(head + text) == text.replace(b"\n", b" ")
    for wrong in (b'{"a": NaN}', b'{"a": "\xff"}', b"{", b'{"a": "\xed\xa0\x80"}'):
        with pytest.raises(UndecodableError):
            schemas.decode(head + wrong)


def test_a_schema_that_is_no_text(shop: Any, eoctl: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "7.avsc").write_bytes(b'"\xff"')
    outcome = eoctl("consume", shop[0], "--topic", "orders", "--decode", "--schema-dir", folder)
    assert outcome.status == 2
    assert "7.avsc: not UTF-8 at byte 1" in outcome.errors


def wire(number: int, data: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + data


def test_hostile_values_stay_bytes(tmp_path: Path) -> None:
    """A few bytes cannot make a value endless, nor end the process."""
    node = {"type": "record", "name": "Node",
            "fields": [{"name": "next", "type": ["null", "Node"]}]}  # fmt: skip
    inner = {"type": "record", "name": "None", "fields": [{"name": "a", "type": "null"}]}
    files = {
        1: (".avsc", json.dumps(node)),
        2: (".avsc", '{"type": "array", "items": "null"}'),
        3: (".avsc", json.dumps({"type": "array", "items": inner})),
        4: (".proto", 'syntax = "proto3"; message A { int32 x = 1; } message B { int32 y = 1; }'),
        5: (".json", "{}"),
        6: (".avsc", '{"type": "map", "values": "null"}'),
    }
    for number, (suffix, text) in files.items():
        (tmp_path / f"{number}{suffix}").write_text(text)
    os.mkfifo(tmp_path / "7.avsc")
    schemas = schemas_for([], [str(tmp_path)])
    for value in (
        wire(1, b"\x02" * 900_000 + b"\x00"),
        wire(2, b"\x80\x80\x80\x80\x80\x01\x00"),
        wire(3, b"\x80\x80\x80\x80\x80\x01\x00"),
        wire(4, b"\xff" * 900_000),
        wire(4, b"\x02\x01\x08\x05"),
        wire(5, b"[" * 200_000),
        wire(7, b"\x00"),
    ):
        with pytest.raises(UndecodableError):
            schemas.decode(value)
    assert schemas.decode(wire(4, b"\x02\x02\x08\x05")) == b'{"y":5}'
    assert schemas.decode(wire(6, b"\x02\x02a\x00")) == b'{"a":null}'


def test_what_is_no_record_of_a_registry(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    """Records of `_schemas` with other types are passed over."""
    log_dir = tmp_path / "kafka"
    good = {"subject": "s", "version": 1, "id": 1, "schema": '"long"', "deleted": False}
    wrong = [{**good, "id": [1]}, {**good, "subject": [1]}, {**good, "version": {}},
             {**good, "schemaType": 5}, {**good, "references": [[1]]}, good]  # fmt: skip
    key = json.dumps({"keytype": "SCHEMA", "subject": "s", "version": 1}).encode()
    texts = [*(json.dumps(each).encode() for each in wrong), b"[" * 200_000]
    said = tuple(Said(10, key, each) for each in texts)
    write_log(log_dir / "_schemas-0", [Sent(1, 0, 0, said)])
    write_log(log_dir / "orders-0", [Sent(1, 0, 0, (Said(10, b"k", wire(1, b"\x0e")),))])
    done = eoctl(
        "consume", log_dir / "orders-0", "--decode", "--schema-dir", log_dir, "-o", "jsonl"
    )
    assert (done.status, json.loads(done.text)["value"]) == (0, 7)


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "msgpack", "text"])
def test_half_a_surrogate_pair_ends_no_output(
    form: str, eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """JSON may escape what UTF-8 has no bytes for; the records behind it are printed, too."""
    values = [rb'{"a": "\ud800"}', b'{"a": "next"}']
    said = tuple(Said(10, b"k", wire(5, each)) for each in values)
    write_log(tmp_path / "orders-0", [Sent(1, 0, 0, said)])
    (tmp_path / "5.json").write_text("{}")
    call = ("consume", tmp_path / "orders-0", "--decode", "--schema-dir", tmp_path, "-o", form)
    done = eoctl(*call)
    assert done.status == 0, done.errors
    assert b"next" in done.stdout
    assert b"\xed\xa0\x80" not in done.stdout


@pytest.mark.parametrize("more", [(), ("--text",)])
def test_an_export_has_json_beside_the_bytes(
    more: tuple[str, ...], shop: Any, eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """Null where a value stays bytes; what a resumed export counts is the same."""
    log_dir, expected, _ = shop
    call = (
        "export",
        log_dir / "orders-0",
        "--to",
        tmp_path / "out",
        "--format",
        "jsonl",
        "--decode",
    )
    done = eoctl(*call, *more)
    assert done.status == 0, done.errors
    (path,) = (tmp_path / "out").rglob("topic=orders/**/*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["value_json"] for row in rows] == [*expected, None, None, None, None, None]
    assert {row["key_json"] for row in rows} == {None}
    assert len({row.get("value_base64", row.get("value")) for row in rows}) == len(rows)
    again = eoctl(*call, *more, "--resume")
    for each in (done, again):
        assert "Decoded 3 values by schema; 4 others stay bytes" in " ".join(each.errors.split())
        assert "1 value stays bytes: schema 99 is unknown" in each.errors


def test_a_parquet_file_has_json_as_text(
    shop: Any, eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """With workers, too; only the columns that are asked for are in the file."""
    parquet = pytest.importorskip("pyarrow.parquet")
    log_dir, expected, _ = shop
    columns = "offset,value_json"
    for number, jobs in enumerate((1, 2)):
        to = tmp_path / str(number)
        call = ("export", log_dir, "--to", to, "--columns", columns, "--jobs", jobs, "--decode")
        done = eoctl(*call)
        assert done.status == 0, done.errors
        (path,) = to.rglob("topic=orders/**/*.parquet")
        table = parquet.ParquetFile(path).read()
        assert table.column_names == columns.split(",")
        texts = table.column("value_json").to_pylist()
        assert [None if each is None else json.loads(each) for each in texts[:4]] == [
            *expected, None,
        ]  # fmt: skip
    other = tmp_path / "schemas"
    other.mkdir()
    (other / "99.json").write_text("{}")
    refused = eoctl(*call, "--schema-dir", other, "--resume")
    assert refused.status == 4, refused.errors
    without = eoctl("export", log_dir, "--to", tmp_path / "x", "--columns", columns)
    assert (without.status, "--decode" in without.errors) == (2, True)


def test_serve_counts_what_can_be_decoded(shop: Any, eoctl: Callable[..., Any]) -> None:
    """Before anything is served; only together with --verify."""
    log_dir, _, _ = shop
    call = ("serve", log_dir, "--for-seconds", 0, "--decode")
    done = eoctl(*call, "--verify", "-o", "jsonl")
    assert done.status == 0, done.errors
    notes = [json.loads(line).get("message") for line in done.errors.splitlines()]
    assert "3 values decoded by schema" in notes
    assert "1 value stays bytes: schema 99 is unknown" in notes
    refused = eoctl(*call)
    assert refused.status == 2
    assert "--decode counts what --verify reads" in refused.errors
    assert "--verify --decode" in refused.errors


def test_what_is_not_offered_is_not_decoded(
    shop: Any, eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """Behind damage that stops clients; internal topics and the registry's own count nowhere."""
    log_dir, _, _ = shop
    log = log_dir / "orders-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    call = ("serve", log_dir, "--for-seconds", 0, "--verify", "--decode", "-o", "jsonl")
    for more, count in ((), 7), (("--on-damage", "skip"), 7):
        done = eoctl(*call, *more)
        notes = [json.loads(line).get("message") for line in done.errors.splitlines()]
        decoded = [each for each in notes if each and "stay" in each and "bytes:" in each]
        assert sum(int(each.split()[0]) for each in decoded) + 3 == count - 1, notes
    exported = eoctl("export", log_dir, "--to", tmp_path / "out", "--decode")
    assert "3 values by schema; 3 others stay bytes" in " ".join(exported.errors.split())
    keys = ("--columns", "offset,key_json")
    done = eoctl("export", log_dir / "orders-0", "--to", tmp_path / "keys", "--decode", *keys)
    assert "0 values by schema; 7 others stay bytes" in " ".join(done.errors.split())
