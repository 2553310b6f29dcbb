"""Values by their schemas: Confluent's wire format as JSON, by the topic `_schemas` or files.

The wire format (of the serializers for Schema Registry) is a zero byte, the schema id in four
bytes, big-endian, and the value. For Protobuf, the path to its message type comes before the value.
Values that cannot be decoded stay bytes, and are counted by reason.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from eoctl.clients.record_formats.record_text import JsonBytes
from eoctl.libraries import REQUIREMENTS, install_call
from recovery.records.read_options import SCHEMAS_TOPIC, UndecodableError
from storage.counts import agreeing, counted
from storage.errors import AccessError, UsageError
from storage.file_names import parse_partition_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eoctl.clients.log.consumed import Records

    Decode = Callable[[bytes], Any]

MAGIC, HEADER_BYTES = 0, 5
VARINT_BYTES = 10  # maximum
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
SUFFIXES = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}


class StoredSchema(NamedTuple):
    """A schema of the registry.

    Attributes:
        name: the subject, or the file.
        references: name in the schema, subject, version.
    """

    id: int
    kind: str
    text: str
    name: str
    references: tuple[tuple[str, str, int], ...] = ()


class Schemas:
    """A decoder of values.

    Attributes:
        counts: numbers of values that stay bytes, by reason.
        decoded_count: number of decoded values.
    """

    def __init__(
        self,
        by_id: Mapping[int, StoredSchema],
        by_version: Mapping[tuple[str, int], StoredSchema],
    ) -> None:
        """Take schemas by id, and by subject and version for references."""
        self._by_id = by_id
        self._by_version = by_version
        self._decoders: dict[int, Decode] = {}
        self._failed: dict[int, str] = {}
        self.counts: Counter[str] = Counter()
        self.decoded_count = 0

    def __reduce__(self) -> tuple[Callable[..., Schemas], tuple[Any, ...]]:
        """Pickle the texts of the schemas. Another process makes the decoders once."""
        return _schemas_of, (self.digest, self._by_id, self._by_version)

    @cached_property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of all schemas."""
        found = [sorted(self._by_id.items()), sorted(self._by_version.items())]
        return hashlib.sha256(repr(found).encode()).hexdigest()[:16]

    def require_libraries(self) -> None:
        """Require the libraries that decode these schemas. Raises LibraryMissingError."""
        for kind, name in ((AVRO, "fastavro"), (PROTOBUF, "grpc_tools")):
            if any(each.kind == kind for each in self._by_id.values()):
                _library(name)

    def decode_records(self, records: Records) -> Records:
        """Return records with their keys and values decoded if possible."""
        return records._replace(
            keys=[self._decoded_or(each, counts=False) for each in records.keys],
            values=[self._decoded_or(each, counts=True) for each in records.values],
        )

    def _decoded_or(self, data: bytes | None, *, counts: bool) -> bytes | None:
        """Return the decoded value, or the bytes. A key without the wire format is not counted."""
        if data is None:
            return None
        try:
            decoded = self.decode(data)
        except UndecodableError as exc:
            if counts:
                self.counts[str(exc)] += 1
            return data
        self.decoded_count += counts
        return decoded

    def decode(self, data: bytes) -> JsonBytes:
        """Return a value as JSON.

        Raises:
            UndecodableError: it is not in the wire format, or does not fit its schema.
        """
        if len(data) < HEADER_BYTES or data[0] != MAGIC:
            raise UndecodableError("not in Confluent's wire format")
        number = int.from_bytes(data[1:HEADER_BYTES], "big")
        decoder = self._decoder_of(number)
        try:
            found = decoder(data[HEADER_BYTES:])
            return JsonBytes(found if isinstance(found, bytes) else _json_of(found))
        except Exception as exc:  # any exception of a library for foreign bytes
            raise UndecodableError(f"the bytes do not fit schema {number}") from exc

    def _decoder_of(self, number: int) -> Decode:
        """Return the decoder of a schema, made once. Raises UndecodableError."""
        if number in self._failed:
            raise UndecodableError(self._failed[number])
        if number not in self._decoders:
            try:
                self._decoders[number] = self._made(number)
            except LibraryMissingError:
                raise
            except Exception as exc:  # any exception of a library for a foreign schema
                is_ours = isinstance(exc, UndecodableError)
                why = str(exc) if is_ours else f"schema {number} cannot be used: {exc}"
                self._failed[number] = why
                raise UndecodableError(why) from exc
        return self._decoders[number]

    def _made(self, number: int) -> Decode:
        schema = self._by_id.get(number)
        if schema is None:
            raise UndecodableError(f"schema {number} is unknown")
        if schema.kind == AVRO:
            return _avro_decoder(schema, self._referenced(schema))
        if schema.kind == PROTOBUF:
            return _protobuf_decoder(schema, self._referenced(schema))
        if schema.kind == JSON:
            return _checked_json
        raise UndecodableError(f"schema {number} is of the unknown type {schema.kind!r}")

    def _referenced(self, schema: StoredSchema) -> list[tuple[str, StoredSchema]]:
        """Return the schemas that a schema imports, with their names, imports of imports first."""
        found: dict[str, StoredSchema] = {}

        def add(of: StoredSchema) -> None:
            for name, subject, version in of.references:
                other = self._by_version.get((subject, version))
                if other is None:
                    raise UndecodableError(
                        f"schema {schema.id} refers to {subject!r} version {version}, which is"
                        " absent"
                    )
                if name not in found:
                    add(other)
                    found[name] = other

        add(schema)
        return list(found.items())

    def count(self, values: Iterable[bytes | None]) -> None:
        """Count values that can and cannot be decoded."""
        for each in values:
            self._decoded_or(each, counts=True)

    def reported(self) -> Iterator[str]:
        """Yield messages about decoded and undecoded values."""
        yield f"{counted(self.decoded_count, 'value')} decoded by schema"
        yield from report_undecoded(self.counts)


def report_undecoded(counts: Counter[str]) -> Iterator[str]:
    """Yield messages about values that stay bytes, by reason."""
    for reason, count in counts.most_common():
        stay = agreeing(count, "stays", "stay")
        yield f"{counted(count, 'value')} {stay} bytes: {reason}"


# Schemas of this process, by digest, so that each decoder is made once.
_known: dict[str, Schemas] = {}


def _schemas_of(
    digest: str,
    by_id: Mapping[int, StoredSchema],
    by_version: Mapping[tuple[str, int], StoredSchema],
) -> Schemas:
    return _known.setdefault(digest, Schemas(by_id, by_version))


def schemas_for(paths: Iterable[str], schema_dir: Sequence[str] | None) -> Schemas:
    """Read schemas from the given directories, or else from the log dirs of partitions.

    A directory is a log dir, is named `_schemas-0`, or has files ID.avsc, ID.proto, ID.json.

    Raises:
        UsageError: there are none, or a schema is not UTF-8.
        AccessError, DamageError: they cannot be read.
    """
    given = list(schema_dir or [])
    if not given:
        for path in map(os.path.abspath, paths):
            is_partition = parse_partition_name(Path(path).name) is not None
            given.append(str(Path(path).parent) if is_partition else path)
    given = [*dict.fromkeys(given)]
    by_id: dict[int, StoredSchema] = {}
    by_version: dict[tuple[str, int], StoredSchema] = {}
    for place in map(Path, given):
        topic = place if place.name == f"{SCHEMAS_TOPIC}-0" else place / f"{SCHEMAS_TOPIC}-0"
        if topic.is_dir():
            for found, version in _stored_in(str(topic)):
                by_id[found.id] = found
                by_version[found.name, version] = found
        by_id |= {each.id: each for each in _files_in(place)}
    if not by_id:
        raise UsageError(
            f"{', '.join(given)}: no schema: neither {SCHEMAS_TOPIC}-0 nor files ID.avsc,"
            " ID.proto, ID.json",
            next_step="--schema-dir DIR",
        )
    return Schemas(by_id, by_version)


def _files_in(place: Path) -> Iterator[StoredSchema]:
    """Yield the schemas in files of a directory."""
    try:
        texts = {
            file: file.read_bytes()
            for file in sorted(place.iterdir())
            if file.suffix in SUFFIXES
            and file.stem.isdecimal()
            and file.stem.isascii()
            and file.is_file()
        }
    except OSError as exc:
        raise AccessError(exc, exc.filename or str(place)) from exc
    for file, data in texts.items():
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise UsageError(
                f"{file}: not UTF-8 at byte {exc.start}", next_step="a schema as text"
            ) from exc
        yield StoredSchema(id=int(file.stem), kind=SUFFIXES[file.suffix], text=text, name=file.name)


def _stored_in(directory: str) -> Iterator[tuple[StoredSchema, int]]:
    """Yield the schemas of the registry's topic with their versions, in the order of the log."""
    from eoctl.clients.log.consumer import ConsumeOptions, Consumer

    consumer = Consumer(directory, ConsumeOptions(skip_corrupt=True), lambda _: None)
    consumer.start()
    for given in consumer.records():
        records = None if given is None else given.lists()
        for key, value in () if records is None else zip(records.keys, records.values, strict=True):
            try:
                name, said = json.loads(key or b"{}"), json.loads(value or b"null")
                if name.get("keytype") != "SCHEMA" or said is None:
                    continue
                references = tuple(
                    (each["name"], each["subject"], each["version"])
                    for each in said.get("references") or ()
                )
                found = StoredSchema(
                    id=said["id"],
                    kind=said.get("schemaType") or AVRO,
                    text=said["schema"],
                    name=said["subject"],
                    references=references,
                )
                version = said["version"]
                if type(version) is not int or not _is_sound(found):
                    continue
                yield found, version
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                continue  # of another program or a later registry


def _is_sound(schema: StoredSchema) -> bool:
    """Return whether each field has the type that the registry writes."""
    texts = [schema.kind, schema.text, schema.name]
    texts += [each for name, subject, _ in schema.references for each in (name, subject)]
    numbers = [schema.id, *(version for _, _, version in schema.references)]
    return all(isinstance(each, str) for each in texts) and all(
        type(each) is int for each in numbers
    )


def _json_of(value: Any) -> bytes:
    """Return a value as JSON. Raises ValueError, TypeError: JSON cannot represent it."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False
        )
    except ValueError:
        return _json_of(_named_numbers(value))
    return text.encode("utf-8")


def _named_numbers(value: Any) -> Any:
    """Return a value with NaN and Infinity as these words, as in Protobuf's JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _named_numbers(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named_numbers(each) for each in value]
    return value


def _checked_json(data: bytes) -> bytes:
    """Return JSON unchanged, on one line, so that numbers keep their digits. Raises ValueError."""
    json.loads(data.decode("utf-8"), parse_constant=_refused, parse_int=str, parse_float=str)
    return data.replace(b"\r", b" ").replace(b"\n", b" ")  # in strings these are escaped


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _plain(value: object) -> object:
    """Return a value of Avro for JSON: times as ISO 8601, bytes as base64."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(type(value).__name__)


def _avro_decoder(schema: StoredSchema, referenced: list[tuple[str, StoredSchema]]) -> Decode:
    fastavro = _library("fastavro")
    named: dict[str, Any] = {}
    for _, other in referenced:
        fastavro.parse_schema(json.loads(other.text), named)
    parsed = fastavro.parse_schema(json.loads(schema.text), named)
    _require_bounded(parsed, named, ())

    def decode(data: bytes) -> Any:
        stream = BytesIO(data)
        found = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise ValueError("bytes are left over")
        return found

    return decode


def _require_bounded(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> bool:
    """Refuse a schema with which a few bytes decode endlessly.

    Return whether its values have bytes.

    The library reads types that contain themselves on the C stack. It reads as many items without
    bytes as the value states.

    Raises:
        UndecodableError: the schema contains itself, or an array has items without bytes.
    """
    if isinstance(schema, list):
        for each in schema:
            _require_bounded(each, named, within)
        return True  # the index of the branch
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, (dict, list)):
        return _require_bounded(kind, named, within)
    if kind in named and kind not in ("record", "enum", "fixed"):
        schema, kind = named[kind], named[kind]["type"]
    if kind in ("record", "error"):
        if schema["name"] in within:
            raise UndecodableError(f"the type {schema['name']} contains itself")
        inner = (*within, schema["name"])
        has_bytes = False
        for each in schema["fields"]:
            has_bytes |= _require_bounded(each["type"], named, inner)
        return has_bytes
    if kind == "array":
        if not _require_bounded(schema["items"], named, within):
            raise UndecodableError("an array of items that take no bytes")
        return True
    if kind == "map":
        _require_bounded(schema["values"], named, within)
        return True
    return bool(kind != "null" and (kind != "fixed" or schema["size"]))


def _protobuf_decoder(schema: StoredSchema, referenced: list[tuple[str, StoredSchema]]) -> Decode:
    """Return a decoder of messages by the descriptors of a schema and its imports."""
    _library("grpc_tools")
    from google.protobuf import descriptor_pool, json_format, message_factory

    files = _serialized(schema, referenced) or _compiled(schema, referenced)
    pool = descriptor_pool.DescriptorPool()
    for each in files:
        pool.Add(each)
    by_name = pool.FindFileByName(files[-1].name).message_types_by_name
    top = [by_name[each.name] for each in files[-1].message_type]  # in the order of the file

    def decode(data: bytes) -> Any:
        path, pos = _message_path(data)
        found = top[path[0]]
        for number in path[1:]:
            found = found.nested_types[number]
        message = message_factory.GetMessageClass(found).FromString(data[pos:])
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    return decode


def _serialized(schema: StoredSchema, referenced: list[tuple[str, StoredSchema]]) -> list[Any]:
    """Return descriptors that clients have registered as base64. Empty: the schema is text."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    found: dict[str, Any] = {}
    for name, each in [*referenced, ("eoctl_schema.proto", schema)]:
        try:
            data = b64decode(each.text, validate=True)
            found[name] = descriptor_pb2.FileDescriptorProto.FromString(data)
        except (ValueError, DecodeError):
            return []
        found[name].name = name
    known: dict[str, Any] = {}
    for each in found.values():
        for name in each.dependency:
            if name not in found:  # a file of Protobuf itself
                known[name] = descriptor_pb2.FileDescriptorProto()
                descriptor_pool.Default().FindFileByName(name).CopyToProto(known[name])
    return [*known.values(), *found.values()]


def _compiled(schema: StoredSchema, referenced: list[tuple[str, StoredSchema]]) -> list[Any]:
    """Compile a schema and its imports. The last descriptor belongs to the schema itself."""
    from google.protobuf import descriptor_pb2

    name = "eoctl_schema.proto"
    with TemporaryDirectory(prefix="eoctl-schema-") as place:
        for file, other in [*referenced, (name, schema)]:
            path = Path(place, file)
            if not path.resolve().is_relative_to(Path(place).resolve()):
                raise UndecodableError(f"schema {schema.id} refers to the file {file}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(other.text, encoding="utf-8")
        made = Path(place, "eoctl_schema.pb")
        call = [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", "--include_imports"]
        done = subprocess.run(
            [*call, f"--descriptor_set_out={made}", name], capture_output=True, check=False
        )
        if done.returncode:
            raise UndecodableError(f"schema {schema.id} does not compile")
        return [*descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file]


def _message_path(data: bytes) -> tuple[list[int], int]:
    """Return the indexes of the message type, and the position of the message.

    They are a count and that many indexes, as zigzag varints. A count of 0 means the first message.
    """
    count, pos = _zigzag(data, 0)
    path = []
    for _ in range(count):
        number, pos = _zigzag(data, pos)
        path.append(number)
    if count < 0 or any(each < 0 for each in path):
        raise ValueError("a negative index")
    return path or [0], pos


def _zigzag(data: bytes, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * VARINT_BYTES, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
    raise ValueError("a number of more than ten bytes")


class LibraryMissingError(UsageError):
    """A library for decoding is not installed."""


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as exc:
        raise LibraryMissingError(
            f"{name} is not installed, which decodes these values",
            next_step=install_call(*(REQUIREMENTS[each] for each in ("fastavro", "grpc_tools"))),
        ) from exc
