"""Batches and derived files, read and written by hand, in Kafka's words.

Nothing here knows our own formats: a mistake that both had would let a fault go unseen.
Files keep their times, since a log dir's clock is the time of its checkpoints.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
# Field of the v2 header -> its position in the batch, and its format.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">H"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "records_count": (57, ">i"),
}
ABORT, COMMIT = 0, 1


class Batch(NamedTuple):
    """One v2 batch of an undamaged file."""

    pos: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


# --- files ----------------------------------------------------------------------------------------


def write(path: Path, data: bytes | str) -> None:
    """Replace or make a file; it has the time of the one before, or of its directory's oldest."""
    beside = [each.stat().st_mtime_ns for each in path.parent.iterdir() if each.is_file()]
    mtime_ns = path.stat().st_mtime_ns if path.exists() else min(beside, default=10**18)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, ns=(mtime_ns, mtime_ns))


def patch(path: Path, pos: int, data: bytes) -> None:
    """Overwrite bytes within a file."""
    before = path.read_bytes()
    assert pos + len(data) <= len(before)
    write(path, before[:pos] + data + before[pos + len(data) :])


def flip(path: Path, pos: int, mask: int = 1) -> None:
    """Change bits of one byte."""
    patch(path, pos, bytes([path.read_bytes()[pos] ^ mask]))


def segment(partition_dir: Path, base_offset: int = 0, kind: str = "log") -> Path:
    return partition_dir / f"{base_offset:020d}.{kind}"


def log_files(partition_dir: Path) -> list[Path]:
    return sorted(partition_dir.glob("*.log"))


# --- batches --------------------------------------------------------------------------------------


def walk(data: bytes) -> list[Batch]:
    """Take an undamaged v2 file apart."""
    batches = []
    pos = 0
    while pos < len(data):
        base, length, epoch, magic, _, attributes, delta, first, last, *rest = HEADER.unpack_from(
            data, pos
        )
        assert magic == 2
        row = (pos, length + 12, base, base + delta, epoch, attributes & 0xFFFF, first, last, *rest)
        batches.append(Batch._make(row))
        pos += length + 12
    assert pos == len(data)
    return batches


def batch_at(path: Path, index: int) -> Batch:
    return walk(path.read_bytes())[index]


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum that it should have."""
    return (
        bytes(batch[:17]) + struct.pack(">I", crc32c.crc32c(bytes(batch[21:]))) + bytes(batch[21:])
    )


def edit_batch(path: Path, index: int, **fields: int) -> Batch:
    """Set header fields of one batch, with a right checksum. Returns the batch as it was."""
    before = batch_at(path, index)
    raw = bytearray(path.read_bytes()[before.pos : before.pos + before.size])
    for name, value in fields.items():
        at, code = FIELDS[name]
        struct.pack_into(code, raw, at, value)
    patch(path, before.pos, sealed(raw))
    return before


def edit_body(path: Path, index: int, at: int, data: bytes) -> Batch:
    """Overwrite bytes of one batch from `at` of the batch on, with a right checksum."""
    before = batch_at(path, index)
    raw = bytearray(path.read_bytes()[before.pos : before.pos + before.size])
    assert at + len(data) <= len(raw)
    raw[at : at + len(data)] = data
    patch(path, before.pos, sealed(raw))
    return before


def replace_batch(path: Path, index: int, batch: bytes) -> Batch:
    """Put a batch of the same size in the place of one. Returns the batch as it was."""
    before = batch_at(path, index)
    assert len(batch) == before.size
    patch(path, before.pos, batch)
    return before


def varint(number: int) -> bytes:
    """Zig-zag, base 128, least significant group first."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record(
    offset_delta: int, key: bytes | None, value: bytes | None, *, timestamp_delta: int = 0
) -> bytes:
    """A v2 record without headers."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + body


def make_batch(base_offset: int, records: bytes, count: int, **fields: int) -> bytes:
    """A v2 batch around records that are already encoded; `fields` as in FIELDS."""
    values = {
        "base_offset": base_offset,
        "length": HEADER_BYTES - 12 + len(records),
        "leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": -1,
        "max_timestamp": fields.get("base_timestamp", -1),
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": count,
        **fields,
    }
    raw = bytearray(HEADER_BYTES)
    for name, (at, code) in FIELDS.items():
        struct.pack_into(code, raw, at, values[name])
    return sealed(raw + records)


def data_batch(base_offset: int, count: int = 1, **fields: int) -> bytes:
    """A batch of `count` small records."""
    records = b"".join(record(delta, b"key", b"value") for delta in range(count))
    return make_batch(base_offset, records, count, **fields)


def marker_record(kind: int, coordinator_epoch: int = 0, *, offset_delta: int = 0) -> bytes:
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)
    return record(offset_delta, key, value)


def marker_batch(
    base_offset: int, kind: int, *, coordinator_epoch: int = 0, **fields: int
) -> bytes:
    """The batch of an end-transaction marker: 78 bytes."""
    fields = {"attributes": 0x30, **fields}
    return make_batch(base_offset, marker_record(kind, coordinator_epoch), 1, **fields)


def stand_in(before: Batch, deltas: Iterable[int], *, late_ms: int = 0, **fields: int) -> bytes:
    """A batch of the same size and header as `before`, with one small record for each delta.

    The last record is as long as it takes. All have the batch's maxTimestamp, less `late_ms`.
    """
    wanted = list(deltas)
    values = {
        "leader_epoch": before.leader_epoch,
        "attributes": before.attributes,
        "last_offset_delta": before.last_offset - before.base_offset,
        "base_timestamp": before.max_timestamp,
        "max_timestamp": before.max_timestamp,
        "producer_id": before.producer_id,
        "producer_epoch": before.producer_epoch,
        "base_sequence": before.base_sequence,
        **fields,
    }
    small = [record(delta, b"k", b"v", timestamp_delta=-late_ms) for delta in wanted[:-1]]
    room = before.size - HEADER_BYTES - sum(map(len, small))
    for key_bytes in (1, 2, 3):  # a length of one byte more may step over the size
        for value_bytes in range(room, max(room - 40, 0), -1):
            last = record(
                wanted[-1], b"k" * key_bytes, b"v" * value_bytes, timestamp_delta=-late_ms
            )
            if len(last) == room:
                records = b"".join([*small, last])
                return make_batch(before.base_offset, records, len(wanted), **values)
    raise AssertionError(f"no {len(wanted)} records make {before.size} bytes")


# --- indexes --------------------------------------------------------------------------------------

INDEX, TIME_INDEX, TXN_INDEX = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")


def entries_of(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    return list(entry.iter_unpack(path.read_bytes()))


def write_entries(path: Path, entry: struct.Struct, rows: Iterable[tuple[int, ...]]) -> None:
    write(path, b"".join(entry.pack(*row) for row in rows))


def move_indexed(partition_dir: Path, base_offset: int, before: int, after: int) -> None:
    """Let `.index` and `.timeindex` have one last offset (absolute) in the place of another."""
    for kind, entry, column in (("index", INDEX, 0), ("timeindex", TIME_INDEX, 1)):
        path = segment(partition_dir, base_offset, kind)
        rows = [list(row) for row in entries_of(path, entry)]
        for row in rows:
            if row[column] == before - base_offset:
                row[column] = after - base_offset
        write_entries(path, entry, [tuple(row) for row in rows])


def rename_segment(partition_dir: Path, old_base: int, new_base: int) -> None:
    """Give a segment another base offset; its index entries still mean the same offsets."""
    shift = old_base - new_base
    index = segment(partition_dir, old_base, "index")
    times = segment(partition_dir, old_base, "timeindex")
    write_entries(index, INDEX, [(row[0] + shift, row[1]) for row in entries_of(index, INDEX)])
    rows = [(row[0], row[1] + shift) for row in entries_of(times, TIME_INDEX)]
    write_entries(times, TIME_INDEX, rows)
    for kind in ("log", "index", "timeindex"):
        segment(partition_dir, old_base, kind).rename(segment(partition_dir, new_base, kind))


# --- producer snapshots ---------------------------------------------------------------------------

PRODUCER = struct.Struct(">qhiqiqiq")
PRODUCER_FIELDS = (
    "producer_id",
    "epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)


def read_snapshot(path: Path) -> list[dict[str, int]]:
    data = path.read_bytes()[10:]
    return [dict(zip(PRODUCER_FIELDS, row, strict=True)) for row in PRODUCER.iter_unpack(data)]


def write_snapshot(path: Path, rows: list[dict[str, int]]) -> None:
    """With a right checksum and number of entries."""
    body = struct.pack(">i", len(rows))
    body += b"".join(PRODUCER.pack(*(row[name] for name in PRODUCER_FIELDS)) for row in rows)
    write(path, struct.pack(">hI", 1, crc32c.crc32c(body)) + body)


def edit_producer(path: Path, index: int, **fields: int) -> int:
    """Set fields of one entry of a snapshot. Returns the entry's position."""
    rows = read_snapshot(path)
    rows[index].update(fields)
    write_snapshot(path, rows)
    return 10 + index * PRODUCER.size


# --- text files -----------------------------------------------------------------------------------


def read_lines(path: Path) -> list[list[str]]:
    """The entries of a checkpoint, field by field."""
    return [line.split() for line in path.read_text().splitlines()[2:]]


def write_lines(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    lines = [" ".join(map(str, row)) for row in rows]
    write(path, "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]))


def set_offset(log_dir: Path, kind: str, partition: str, offset: int | None) -> Path:
    """Set, add or (None) remove the line of a partition in `kind`-offset-checkpoint."""
    path = log_dir / f"{kind}-offset-checkpoint"
    topic, _, number = partition.rpartition("-")
    rows = [row for row in read_lines(path) if row[:2] != [topic, number]]
    if offset is not None:
        rows.append([topic, number, str(offset)])
    write_lines(path, rows)
    return path


def set_epochs(partition_dir: Path, *entries: tuple[int, int]) -> str:
    """Write leader-epoch-checkpoint. Returns its path in the log dir."""
    write_lines(partition_dir / "leader-epoch-checkpoint", entries)
    return f"{partition_dir.name}/leader-epoch-checkpoint"
