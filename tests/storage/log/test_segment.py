"""Scans and records of real segments, and of segments made with struct for what those lack."""

from __future__ import annotations

import errno
import os
import re
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import (
    AccessError,
    CorruptError,
    EoctlError,
    FormatError,
    TooLargeError,
    TruncatedError,
    UnsupportedError,
)
from storage.kernels import resync
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.segment import LogRecord, open_segment, parse_base_offset
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.kernels.protocol import ScannedBatch

SEGMENT_NAME = f"{0:020}.log"


# --- making bytes


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def record(delta: int, value: bytes | None = b"v", *, timestamp_delta: int = 0) -> bytes:
    fields = b"\0" + varint(timestamp_delta) + varint(delta) + varint(-1)
    fields += varint(-1) if value is None else varint(len(value)) + value
    fields += varint(0)
    return varint(len(fields)) + fields


def batch(base_offset: int, body: bytes = b"", **changes: Any) -> bytes:
    """Bytes of a batch with a right checksum; one record unless it is said otherwise."""
    body = body or record(0)
    fields = {
        "epoch": 0,
        "magic": 2,
        "attributes": 0,
        "delta": 0,
        "base_ms": 1_000,
        "max_ms": 2_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "sequence": -1,
        "count": 1,
    } | changes
    epoch, magic, *checked = fields.values()
    tail = struct.pack(">hiqqqhii", *checked) + body
    head = struct.pack(">qiib", base_offset, 49 + len(body), epoch, magic)
    return head + struct.pack(">I", crc32c.crc32c(tail)) + tail


def message(offset: int, value: bytes = b"v", *, magic: int = 1, attributes: int = 0) -> bytes:
    """Bytes of a legacy message with a right checksum."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", 5_000) if magic else b""
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[..., Any]:
    """Write bytes to a segment and scan it: (positions of rows, short verdicts, scan)."""

    def scan_bytes(data: bytes, *, name: str = SEGMENT_NAME, **options: Any) -> Any:
        path = tmp_path / name
        path.write_bytes(data)
        with open_segment(path) as segment:
            scan = segment.scan(**options)
            positions = [each.pos for each in scan]
        return positions, [_short(each) for each in scan.verdicts], scan

    return scan_bytes


def _short(verdict: Verdict) -> tuple[str, str, int, int]:
    return verdict.kind.value, verdict.check_id, verdict.start_pos, verdict.end_pos


# --- against kafka-dump-log

BATCH_LINE = re.compile(
    r"^(?:baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"producerId: (?P<pid>-?\d+) producerEpoch: (?P<pepoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<epoch>-?\d+) .*?|offset: (?P<offset>\d+) )"
    r"position: (?P<pos>\d+) \w+: (?P<max_ms>-?\d+) size: (?P<size>\d+) magic: (?P<magic>\d+) "
    r"compresscodec: \w+ crc: (?P<crc>\d+) isvalid: (?P<valid>\w+)$"
)
RECORD_LINE = re.compile(
    r"^\| offset: (?P<offset>\d+) \w+: (?P<ms>-?\d+) keySize: (?P<key>-?\d+) "
    r"valueSize: (?P<value>-?\d+)(?: sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<keys>.*?)\])?"
    r"(?: isValid: (?P<valid>\w+) crc: (?P<crc>\d+))?(?: |$)"
)


def kafka_words(text: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Batch and record lines of kafka-dump-log as fields that are there."""
    batches, records = [], []
    for line in text.split("\n"):
        for pattern, found in ((BATCH_LINE, batches), (RECORD_LINE, records)):
            if match := pattern.match(line):
                fields = match.groupdict()
                found.append({key: value for key, value in fields.items() if value is not None})
    return batches, records


def our_batch_words(row: ScannedBatch) -> dict[str, Any]:
    header = row.header
    words: dict[str, Any] = {
        "pos": row.pos,
        "max_ms": header.max_timestamp_ms,
        "size": header.batch_bytes,
        "magic": header.magic,
        "crc": header.crc,
        "valid": str(row.crc_ok).lower(),
    }
    if header.magic < 2:
        return words | {"offset": header.base_offset}
    return words | {
        "base": header.base_offset,
        "last": header.last_offset,
        "count": header.records_count,
        "sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "pid": header.producer_id,
        "pepoch": header.producer_epoch,
        "epoch": header.partition_leader_epoch,
    }


def our_record_words(each: LogRecord) -> dict[str, Any]:
    words: dict[str, Any] = {
        "offset": each.offset,
        "ms": each.timestamp_ms,
        "key": -1 if each.key is None else len(each.key),
        "value": -1 if each.value is None else len(each.value),
    }
    if each.crc is not None:
        return words | {"valid": str(each.crc_ok).lower(), "crc": each.crc}
    keys = ",".join(header.key_text for header in each.headers)
    return words | {"sequence": each.sequence, "keys": keys}


def as_text(words: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{key: str(value) for key, value in each.items()} for each in words]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "archive, state",
    [
        ("kafka-4.3.1", "crash"),
        ("kafka-4.3.1", "hard"),
        ("kafka-4.3.1", "tv2"),
        ("kafka-4.3.1-three-brokers", "diverged"),
        ("kafka-0.10.2-legacy", "."),
    ],
)
def test_every_batch_and_record_in_kafkas_words(
    archive: str, state: str, golden: Callable[[str], Path]
) -> None:
    logs, dumps = golden(archive), golden(f"{archive}.dump")
    count = 0
    dumped = [*(dumps / state).rglob("*.log.txt"), *(dumps / state).rglob("*.checkpoint.txt")]
    for words_path in sorted(dumped):
        path = logs / words_path.relative_to(dumps).with_suffix("")
        batches, records = kafka_words(words_path.read_text("utf-8"))
        with open_segment(path) as segment:
            scan = segment.scan()
            rows = list(scan)
            assert scan.verdicts == []
            assert scan.suspicions == []
            assert scan.valid_bytes == segment.file_bytes
            ours = [each for row in rows for each in segment.records(row)]
        assert as_text([our_batch_words(each) for each in rows]) == batches, path
        assert as_text([our_record_words(each) for each in ours]) == records, path
        count += len(rows)
    assert count > 50


# --- names, ranges


@pytest.mark.parametrize(
    "name, expected",
    [
        ("00000000000000000100.log", 100),
        ("00000000000000000100.log.deleted", 100),
        ("00000000000000000100.log.swap", 100),
        ("00000000000000000042-0000000003.checkpoint", 0),
        ("bootstrap.checkpoint", 0),
        ("00000000000000000100.index", None),
        ("copy.log", None),
        ("99999999999999999999.log", None),
        ("٣.log", None),
    ],
)
def test_base_offset_of_a_name(name: str, expected: int | None, tmp_path: Path) -> None:
    assert parse_base_offset(name) == expected
    (tmp_path / name).touch()
    with open_segment(tmp_path / name) as segment:
        assert segment.base_offset == (expected or 0)
        assert segment.known_base_offset == expected
    with open_segment(tmp_path / name, base_offset=7) as segment:
        assert segment.base_offset == 7


def test_an_empty_segment_is_ok(scanned: Callable[..., Any]) -> None:
    positions, verdicts, scan = scanned(b"")
    assert (positions, verdicts) == ([], [])
    assert scan.verdict == Verdict(VerdictKind.OK, 0, 0)
    assert scan.valid_bytes == 0


def test_ranges(scanned: Callable[..., Any]) -> None:
    data = batch(0) + batch(1) + batch(2)
    size = len(batch(0))
    assert scanned(data, start_pos=size)[:2] == ([size, 2 * size], [])
    assert scanned(data, start_pos=size, end_pos=2 * size)[:2] == ([size], [])
    assert scanned(data, end_pos=10**9)[0] == [0, size, 2 * size]
    assert scanned(data, start_pos=3 * size)[:2] == ([], [])
    assert scanned(data, start_pos=10**9)[:2] == ([], [])
    positions, verdicts, scan = scanned(data, end_pos=2 * size - 1)
    assert (positions, verdicts) == ([0], [("torn_tail", "SEG-6", size, 2 * size - 1)])
    assert scan.verdict.reason == f"{size - 1} bytes are left of a batch of {size}"


def test_rows_come_one_by_one_too(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT_NAME
    path.write_bytes(batch(0) + batch(1))
    with open_segment(path) as segment:
        scan = segment.scan(verify_crc=False)
        assert next(scan).header.base_offset == 0
        assert [(each.header.base_offset, each.crc_ok) for each in scan] == [(1, None)]


def test_offsets_are_judged_by_the_name(scanned: Callable[..., Any]) -> None:
    data = batch(99) + batch(100 + 2**31 - 1) + batch(100 + 2**31)
    size = len(batch(0))
    _, verdicts, _ = scanned(data, name=f"{100:020}.log")
    assert verdicts == [("corrupt", "SEG-2", 0, size), ("corrupt", "SEG-3", 2 * size, 3 * size)]
    assert scanned(data, name="copy.log")[1] == []


def test_every_rule_has_its_verdict(scanned: Callable[..., Any]) -> None:
    batches = [
        batch(0),
        batch(1, count=3),
        batch(2, delta=-1, count=0),
        batch(3, attributes=6),
        batch(4, magic=9),
        batch(5, attributes=0x180),
        batch(6, epoch=4),
        batch(7, epoch=3),
        batch(7, epoch=3),
        message(8, magic=0),
        message(9, attributes=4),
        message(9),
        batch(10, epoch=3),
    ]
    ends = [len(b"".join(batches[: index + 1])) for index in range(len(batches))]
    starts = [0, *ends]
    positions, verdicts, scan = scanned(b"".join(batches))
    assert positions == starts[:-1]
    expected = {
        1: "BAT-4",
        2: "BAT-4",
        3: "BAT-7",
        4: "BAT-2",
        8: "BAT-3",
        10: "BAT-7",
        11: "BAT-3",
    }
    assert verdicts == [
        ("corrupt", check_id, starts[index], ends[index]) for index, check_id in expected.items()
    ]
    assert [_short(each)[1:3] for each in scan.suspicions] == [
        ("BAT-10", starts[5]),
        ("BAT-14", starts[7]),
    ]
    assert scan.valid_bytes == ends[-1]


# --- going on behind damage


def test_a_wrong_length_does_not_swallow_its_equals(scanned: Callable[..., Any]) -> None:
    """Batches of one size: a length that is too large by a multiple leads to a real batch."""
    size = len(batch(0))
    for reach in (2, 3, 6):
        data = bytearray(b"".join(batch(offset) for offset in range(6)))
        struct.pack_into(">i", data, 8, reach * size - 12)
        positions, verdicts, scan = scanned(bytes(data))
        assert positions == [size * index for index in range(1, 6)]
        assert verdicts == [("corrupt", "BAT-2", 0, size)]
        assert scan.resynced
        assert scan.valid_bytes == len(data)  # the broker's walk follows the wrong length


def test_a_batch_in_a_value_is_not_taken_for_one_of_the_log(scanned: Callable[..., Any]) -> None:
    """A topic of mirrored batches: damage around a value must not bring it to life."""
    inside = batch(3, record(0, b"x" * 300))
    holder = batch(2, record(0, b"a" * 50 + inside + b"b" * 50))
    head, tail = batch(0) + batch(1), batch(9) + batch(10)
    whole = head + holder + tail
    holder_pos, tail_pos = len(head), len(head + holder)
    expected = [0, len(batch(0)), tail_pos, tail_pos + len(batch(9))]
    for byte in (8, 10, 11, 16):  # length and magic of the holder
        data = bytearray(whole)
        data[holder_pos + byte] ^= 0x20
        positions, verdicts, _ = scanned(bytes(data))
        assert [each for each in positions if each != holder_pos] == expected
        assert [each[2:] for each in verdicts] == [(holder_pos, tail_pos)]
    torn = whole[: tail_pos - 1]
    positions, verdicts, scan = scanned(torn)
    assert verdicts == [("torn_tail", "SEG-6", holder_pos, len(torn))]
    assert not scan.resynced
    for pos in range(holder_pos + 61, tail_pos, 40):  # the checksum fails, the length is believed
        data = bytearray(whole)
        data[pos] ^= 1
        positions, verdicts, _ = scanned(bytes(data))
        assert positions == sorted([*expected, holder_pos])
        assert verdicts == [("corrupt", "BAT-1", holder_pos, tail_pos)]


def test_several_bad_checksums_in_a_row_keep_their_rows(scanned: Callable[..., Any]) -> None:
    data = bytearray(b"".join(batch(offset) for offset in range(5)))
    size = len(batch(0))
    for index in (1, 2, 3):
        data[(index + 1) * size - 1] ^= 1
    positions, verdicts, scan = scanned(bytes(data))
    assert positions == [index * size for index in range(5)]
    assert [each[1] for each in verdicts] == ["BAT-1"] * 3
    assert not scan.resynced
    positions, verdicts, _ = scanned(bytes(data[: 4 * size + 30]))
    assert positions == [index * size for index in range(4)]
    assert verdicts[-1] == ("torn_tail", "SEG-6", 4 * size, 4 * size + 30)


def test_legacy_messages_are_found_again(scanned: Callable[..., Any]) -> None:
    parts = [message(offset, b"some value", magic=offset % 2) for offset in range(6)]
    data = bytearray(b"".join(parts))
    pos = len(parts[0]) + len(parts[1])
    data[pos + 8] = 0x80
    positions, verdicts, _ = scanned(bytes(data))
    starts = [len(b"".join(parts[:index])) for index in range(6)]
    assert positions == starts[:2] + starts[3:]
    assert verdicts == [("corrupt", "BAT-2", starts[2], starts[3])]


def test_a_damaged_start_of_either_format(scanned: Callable[..., Any]) -> None:
    for part in (batch, message):
        data = b"\xff" * 1000 + b"".join(part(offset) for offset in range(3))
        positions, verdicts, scan = scanned(data)
        assert positions == [1000 + index * len(part(0)) for index in range(3)]
        assert verdicts == [("corrupt", "BAT-2", 0, 1000)]
        assert scan.valid_bytes == 0


def test_damage_far_from_the_next_batch(scanned: Callable[..., Any]) -> None:
    """Searched in chunks: the next batch lies across the end of one, wherever that is."""
    for gap in (32 * 1024 - 30, 32 * 1024 + 45, 3_000_000):
        data = batch(0) + b"\xfe" * gap + batch(1) + batch(2)
        positions, verdicts, _ = scanned(data)
        start = len(batch(0))
        assert positions == [0, start + gap, start + gap + len(batch(1))]
        assert verdicts == [("corrupt", "BAT-2", start, start + gap)]


def test_the_work_on_a_hostile_file_is_bounded(tmp_path: Path) -> None:
    """Headers that each claim the rest of the file, some behind good batches: no squares."""
    parts = []
    total_bytes = 400_000
    position = 0
    for offset in range(total_bytes // 130):
        good = batch(offset)
        claim = struct.pack(">qi", offset + 1, total_bytes - position - 200) + good[12:61]
        parts.append(good + claim)
        position += len(parts[-1])
    path = tmp_path / SEGMENT_NAME
    path.write_bytes(b"".join(parts))
    read_bytes = 0

    def pread(fd: int, view: memoryview, pos: int) -> int:
        nonlocal read_bytes
        count = os.preadv(fd, [view], pos)
        read_bytes += count
        return count

    with open_segment(path, pread=pread) as segment:
        rows = list(segment.scan())
        assert [each.header.base_offset for each in rows] == list(range(len(parts)))
        assert read_bytes < 3 * (resync.BUDGET_BYTES + segment.file_bytes)


def test_a_scan_gives_up_when_its_budget_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "BUDGET_BYTES", 0)
    monkeypatch.setattr(resync, "BUDGET_PER_BYTE", 1)
    size = len(batch(0))
    data = bytearray(b"".join(batch(offset) for offset in range(100)))
    struct.pack_into(">i", data, 8, 90 * size)  # costs nearly all
    struct.pack_into(">i", data, 5 * size + 8, 90 * size)
    path = tmp_path / SEGMENT_NAME
    path.write_bytes(data)
    with open_segment(path) as segment:
        scan = segment.scan()
        positions = [each.pos for each in scan]
        assert list(segment.scan(resume=False))  # has no budget and no need of one
    assert positions == [index * size for index in range(1, 5)]
    assert _short(scan.verdicts[-1]) == ("corrupt", "BAT-2", 5 * size, len(data))


# --- size


def test_batches_larger_than_any_window(tmp_path: Path) -> None:
    """From small to 20 MB, checksums right and wrong, with flat memory."""
    sizes = [10, 300_000, 1_100_000, 4_000_000, 20_000_000, 5, 20_000_000]
    path = tmp_path / SEGMENT_NAME
    with path.open("wb") as file:
        for offset, size in enumerate(sizes):
            file.write(batch(offset, bytes([offset]) * size))
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    tracemalloc.start()
    try:
        with open_segment(path) as segment:
            scan = segment.scan()
            rows = [(each.header.batch_bytes, each.crc_ok) for each in scan]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == [(size + 61, index < 6) for index, size in enumerate(sizes)]
    assert [_short(each)[:2] for each in scan.verdicts] == [("corrupt", "BAT-1")]
    assert peak_bytes < 16 << 20


# --- records


def one_row(path: Path, data: bytes) -> tuple[Any, ScannedBatch]:
    path.write_bytes(data)
    segment = open_segment(path)
    return segment, list(segment.scan())[-1]


def test_effective_values_of_records(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT_NAME
    body = record(0, timestamp_delta=-5) + record(2, None)
    numbered = {"delta": 2, "count": 2, "producer_id": 1, "producer_epoch": 0}
    segment, row = one_row(path, batch(7, body, sequence=2**31 - 2, **numbered))
    with segment:
        assert [each[:5] for each in segment.records(row)] == [
            (7, 995, 2**31 - 2, None, b"v"),
            (9, 1_000, 0, None, None),
        ]
    segment, row = one_row(path, batch(7, body, attributes=8, **numbered))
    with segment:
        assert [each[:3] for each in segment.records(row)] == [(7, 2_000, -1), (9, 2_000, -1)]


def test_errors_in_records_name_their_place(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT_NAME
    first = batch(0)
    cases: list[tuple[bytes, type[FormatError], str, int]] = [
        (batch(1, record(0) + b"\x7f\0", delta=1, count=2), CorruptError, "BAT-7", 61 + 8),
        (batch(1, record(0) + b"!"), CorruptError, "BAT-7", 61 + 8),
        (batch(1, attributes=1), CorruptError, "BAT-7", 61),
        (batch(1, attributes=7), UnsupportedError, "BAT-7", 61),
        (message(1, b"no gzip", attributes=1), CorruptError, "BAT-17", 0),
    ]
    for data, error_class, check_id, pos in cases:
        segment, row = one_row(path, first + data)
        with segment, pytest.raises(error_class) as caught:
            list(segment.records(row))
        assert (caught.value.check_id, caught.value.pos) == (check_id, len(first) + pos)
        assert caught.value.path == str(path)
    segment, row = one_row(path, first + batch(1))
    with segment, pytest.raises(UnsupportedError) as unsupported:
        list(segment.records(row._replace(header=row.header._replace(magic=5))))
    assert (unsupported.value.check_id, unsupported.value.pos) == ("BAT-2", len(first) + 16)


def test_a_magic_that_the_checksum_disproves(scanned: Callable[..., Any], tmp_path: Path) -> None:
    """No checksum covers it: it holds for magic 2, and the batch is given as what it is."""
    whole = batch(0) + batch(1) + batch(2)
    size = len(batch(0))
    for magic in (0, 1, 3, 5, 0x82):
        data = bytearray(whole)
        data[size + 16] = magic
        positions, verdicts, scan = scanned(bytes(data))
        assert positions == [0, size, 2 * size]
        is_old = magic < 2 or magic > 127
        assert verdicts == [("corrupt", "BAT-1" if is_old else "BAT-2", size, 2 * size)]
        assert not scan.verdicts[0].is_lost
        assert "where the checksum holds for magic 2" in scan.verdicts[0].reason
        path = tmp_path / SEGMENT_NAME
        path.write_bytes(data)
        with open_segment(path) as segment:
            offsets = [each.offset for row in segment.scan() for each in segment.records(row)]
        assert offsets == [0, 1, 2]


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(record(0, bytes(1 << 20))) + packer.flush()
    segment, row = one_row(tmp_path / SEGMENT_NAME, batch(0, body, attributes=1))
    with segment:
        assert len(next(segment.records(row)).value or b"") == 1 << 20
        with pytest.raises(TooLargeError):
            list(segment.records(row, max_batch_bytes=1 << 19))


def test_a_batch_that_is_gone_or_unreadable(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT_NAME
    segment, row = one_row(path, batch(0) + batch(1))
    with segment:
        assert segment.read_batch(row) == batch(1)
        os.truncate(path, row.pos + 3)
        with pytest.raises(TruncatedError) as caught:
            segment.read_batch(row)
        assert (caught.value.path, caught.value.pos) == (str(path), row.pos)

    def refuse(fd: int, view: memoryview, pos: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path.write_bytes(batch(0) + batch(1))
    with open_segment(path, pread=refuse) as broken, pytest.raises(AccessError) as access:
        broken.read_batch(row)
    assert access.value.errno == errno.EIO


@settings(max_examples=examples(150))
@given(
    body=st.binary(max_size=60),
    attributes=st.integers(0, 255),
    count=st.integers(-2, 9),
    magic=st.sampled_from([2, 2, 2, 0, 1]),
)
def test_any_body_gives_records_or_a_located_error(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, attributes: int, count: int, magic: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-body.log"
    data = batch(5, body, attributes=attributes, count=count, delta=9)
    if magic < 2:
        data = message(5, body, magic=magic, attributes=attributes & 0x0F)
    segment, row = one_row(path, data)
    with segment:
        error = None
        try:
            assert all(isinstance(each, LogRecord) for each in segment.records(row))
        except EoctlError as caught:
            error = caught
    if error is not None:
        assert isinstance(error, FormatError)
        assert error.path == str(path)
        assert 0 <= error.pos <= len(data)
