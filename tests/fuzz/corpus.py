"""What fuzzing starts from: pieces of the golden directories, cut out without our own parsers.

Only the records of messages that no golden directory holds are made by us, from their schemas.
"""

from __future__ import annotations

import gzip
import struct
import tarfile
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.storage.formats.message_samples import VERSIONS, random_message

from .mutations import ATTRIBUTES_POS, COUNT_POS, HEADER_BYTES, MAGIC_POS, whole_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GOLDEN_DIR = Path(__file__).parents[1] / "golden"
ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers", "kafka-0.10.2-legacy")
FILE_START_BYTES = 48 * 1024
SEED_MAX_BYTES = 3000
SEEDS_MAX_COUNT = 40
CODEC_MASK = 0x07
CONTROL_BIT = 0x20
NULL_KEY, NULL_VALUE = 1, 2  # flags of a packed pair
SPARE_SIZES = 4  # of a packed partition


class GoldenFile(NamedTuple):
    """The start of a file: its path below the archives' directory, and its first bytes."""

    path: str
    data: bytes

    @property
    def topic(self) -> str:
        """Topic by the directory's name."""
        return Path(self.path).parent.name.rpartition("-")[0]


class GoldenBatch(NamedTuple):
    """A batch or legacy message, whole; `attributes` and `record_count` are 0 in the latter."""

    topic: str
    data: bytes
    magic: int
    attributes: int
    record_count: int

    @property
    def body(self) -> bytes:
        """What follows the header of a v2 batch."""
        return self.data[HEADER_BYTES:]

    @property
    def codec(self) -> int:
        """Codec id of a v2 batch."""
        return self.attributes & CODEC_MASK


def unpack_golden(target: Path) -> Callable[[str], Path]:
    """Unpack the archives once more: what the fixture `golden` does for tests."""
    for name in ARCHIVES:
        with tarfile.open(GOLDEN_DIR / f"{name}.tar.xz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(target / name)
    return target.joinpath


class Corpus:
    """Seeds of every kind; `golden` gives the directory of an archive."""

    def __init__(self, golden: Callable[[str], Path]) -> None:
        self._golden = golden

    @cached_property
    def files(self) -> list[GoldenFile]:
        """The starts of all files, equal ones once."""
        found: dict[bytes, GoldenFile] = {}
        for archive in ARCHIVES:
            root = self._golden(archive)
            for path in sorted(each for each in root.rglob("*") if each.is_file()):
                with path.open("rb") as file:
                    data = file.read(FILE_START_BYTES)
                found.setdefault(data, GoldenFile(f"{archive}/{path.relative_to(root)}", data))
        return list(found.values())

    @cached_property
    def batches(self) -> list[GoldenBatch]:
        """The batches at the starts of all logs."""
        found = {}
        for file in self.files:
            if file.path.endswith((".log", ".checkpoint")):
                for pos, end_pos in whole_batches(file.data):
                    batch = _batch(file.topic, file.data[pos:end_pos])
                    found[batch.data] = batch
        return list(found.values())

    def starts(self, suffix: str, *, max_bytes: int = SEED_MAX_BYTES) -> list[bytes]:
        """The starts of the files whose path ends with `suffix`."""
        return _some(file.data[:max_bytes] for file in self.files if file.path.endswith(suffix))

    def logs(self, *, max_bytes: int = SEED_MAX_BYTES, topic: str | None = None) -> list[bytes]:
        """Some batches of every log, from its start and from its middle, and logs made of them."""
        found = []
        for file in self.files:
            if file.path.endswith((".log", ".checkpoint")) and topic in (None, file.topic):
                places = list(whole_batches(file.data))
                for first in {0, len(places) // 2}:
                    ends = [end for _, end in places[first:] if end - places[first][0] <= max_bytes]
                    if ends:
                        found.append(file.data[places[first][0] : ends[-1]])
        return _some(found, 3 * SEEDS_MAX_COUNT)

    def bodies(self, codec: int) -> list[bytes]:
        """Compressed bodies of v2 batches, and values of legacy wrappers (in their messages)."""
        bodies = [each.body for each in self.batches if each.magic == 2 and each.codec == codec]
        return _some(body for body in bodies if len(body) <= 2 * SEED_MAX_BYTES)

    def record_bodies(self) -> list[bytes]:
        """The number of records as int32, then the uncompressed body."""
        return _some(
            struct.pack(">i", each.record_count) + each.body[:SEED_MAX_BYTES]
            for each in self.batches
            if each.magic == 2 and not each.codec
        )

    def legacy_messages(self) -> list[bytes]:
        """Messages v0 and v1."""
        return _some(each.data[: 2 * SEED_MAX_BYTES] for each in self.batches if each.magic < 2)

    def pairs(self, topic: str) -> list[bytes]:
        """Keys and values of a topic's records (of control batches: topic ""), packed."""
        found: dict[bytes, bytes] = {}
        for batch in self.batches:
            is_control = bool(batch.attributes & CONTROL_BIT)
            is_wanted = is_control if not topic else batch.topic == topic and not is_control
            if batch.magic == 2 and not batch.codec and is_wanted:
                for key, value in _pairs_of(batch):
                    # One of each kind and size is enough.
                    shape = (key or b"")[:2] + (value or b"")[:4] + bytes([len(value or b"") % 256])
                    found.setdefault(shape, pack_pair(key, value))
        return _some(found.values(), 2 * SEEDS_MAX_COUNT)

    def partitions(self) -> list[bytes]:
        """Small partition directories, packed."""
        by_dir: dict[str, dict[str, bytes]] = {}
        for file in self.files:
            path = Path(file.path)
            if path.suffix in PARTITION_SUFFIXES:
                by_dir.setdefault(f"{path.parent}/{path.stem}", {})[path.suffix] = file.data
        found = []
        for files in by_dir.values():
            log = files.get(".log", b"")
            ends = [end for _, end in whole_batches(log) if end <= SEED_MAX_BYTES]
            if ends:
                others = [files.get(suffix, b"")[:240] for suffix in PARTITION_SUFFIXES[1:]]
                found.append(pack_partition(log[: ends[-1]], others))
        return _some(found)


PARTITION_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def pack_partition(log: bytes, others: list[bytes]) -> bytes:
    """The files of a segment in one: the log, the others, at the end the sizes of the others."""
    sizes = struct.pack(f">{SPARE_SIZES}H", *map(len, others))
    return log + b"".join(others) + sizes


def unpack_partition(data: bytes) -> list[bytes]:
    """What `pack_partition` was given, the log first; any bytes will do."""
    sizes_bytes = 2 * SPARE_SIZES
    sizes = struct.unpack(f">{SPARE_SIZES}H", data[-sizes_bytes:].rjust(sizes_bytes, b"\0"))
    end_pos = max(len(data) - sizes_bytes, 0)
    files = []
    for size in reversed(sizes):
        pos = max(end_pos - size, 0)
        files.append(data[pos:end_pos])
        end_pos = pos
    return [data[:end_pos], *reversed(files)]


def pack_pair(key: bytes | None, value: bytes | None) -> bytes:
    """A key and a value in one: flags for what is null, length of the key, key, value."""
    flags = (NULL_KEY if key is None else 0) | (NULL_VALUE if value is None else 0)
    return struct.pack(">BH", flags, len(key or b"")) + (key or b"") + (value or b"")


def unpack_pair(data: bytes) -> tuple[bytes | None, bytes | None]:
    """What `pack_pair` was given; any bytes will do."""
    flags, key_bytes = struct.unpack(">BH", data[:3].ljust(3, b"\0"))
    key, value = data[3 : 3 + key_bytes], data[3 + key_bytes :]
    return None if flags & NULL_KEY else key, None if flags & NULL_VALUE else value


def messages() -> list[bytes]:
    """One message of every schema and version, behind its place in VERSIONS (see `targets`)."""
    rnd = Random("messages")
    found = []
    for place, (schema, version) in enumerate(VERSIONS):
        message = schema.codec(version)
        out = bytearray(struct.pack(">HB", place, 0))
        message.write(out, random_message(schema, version, rnd))
        found.append(bytes(out))
    return found


def many_small_batches(batches: Iterable[GoldenBatch], count: int) -> bytes:
    """A log of many batches, so that what works on many at a time has many: offsets follow."""
    out = bytearray()
    offset = 0
    smallest = sorted((each for each in batches if each.magic == 2), key=lambda b: len(b.data))
    for each in (smallest * count)[:count]:
        (delta,) = struct.unpack_from(">i", each.data, 23)
        out += struct.pack(">q", offset) + each.data[8:12] + b"\0\0\0\0" + each.data[16:]
        offset += delta + 1
    return bytes(out)


def _batch(topic: str, data: bytes) -> GoldenBatch:
    if data[MAGIC_POS] < 2:
        return GoldenBatch(topic, data, data[MAGIC_POS], 0, 0)
    (attributes,) = struct.unpack_from(">h", data, ATTRIBUTES_POS)
    (record_count,) = struct.unpack_from(">i", data, COUNT_POS)
    return GoldenBatch(topic, data, data[MAGIC_POS], attributes, record_count)


def _pairs_of(batch: GoldenBatch) -> list[tuple[bytes | None, bytes | None]]:
    pairs = []
    pos = 0
    for _ in range(batch.record_count):
        length, pos = _varint(batch.body, pos)
        end_pos = pos + length
        _, at = _varint(batch.body, pos + 1)
        _, at = _varint(batch.body, at)
        key, at = _nullable(batch.body, at)
        value, _ = _nullable(batch.body, at)
        pairs.append((key, value))
        pos = end_pos
    return pairs


def _nullable(data: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = _varint(data, pos)
    return (None, pos) if length < 0 else (data[pos : pos + length], pos + length)


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[pos]
        raw |= (byte & 0x7F) << shift
        pos, shift = pos + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos


def _some(seeds: Iterable[bytes], count: int = SEEDS_MAX_COUNT) -> list[bytes]:
    """At most `count` different ones, from all over."""
    unique = list(dict.fromkeys(seeds))
    step = max(len(unique) / count, 1.0)
    return [unique[int(place * step)] for place in range(min(count, len(unique)))]


def gzip_seeds() -> list[bytes]:
    """Members with what Kafka never writes: a name, two members, bytes behind."""
    member = gzip.compress(b"records " * 20, mtime=0)
    named = member[:3] + b"\x1e" + member[4:10] + b"\x03\x00abcname\0comment\0\0\0" + member[10:]
    return [member, member + member, member + bytes(40), named]
