"""The bulk kernel agrees with the plain one: rows, verdicts, and records, whatever the bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import FormatError
from storage.kernels import numpy_kernel, pure, record_table
from storage.kernels.layouts import empty_table
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, scan_tables, scan_window, table_of
from storage.kernels.protocol import MAX_BLOCK_ROWS, HeaderTable, ScannedBatch
from storage.kernels.record_table import RecordTable, decode_records
from storage.log.segment import LogRecord, open_segment
from tests.bulk_kernels import BULK_KERNELS, NATIVE_SCANS, demanded
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs, many_batches, with_right_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.kernels.kernel_choice import KernelName
    from storage.log.segment import Segment

SEGMENT_NAME = f"{0:020}.log"


def opened(data: bytes, directory: str) -> Segment:
    path = Path(directory, SEGMENT_NAME)
    path.write_bytes(data)
    return open_segment(path)


def joined(tables: list[HeaderTable]) -> list[list[Any]]:
    columns = [np.concatenate(column) for column in zip(*tables, strict=True)]
    return [column.tolist() for column in columns]


def check_scans(segment: Segment, **options: Any) -> None:
    for kernel in BULK_KERNELS:
        with demanded(kernel):
            check_scan(segment, **options)


def check_scan(segment: Segment, **options: Any) -> None:
    plain = segment.scan(**options)
    rows = table_of(plain)
    bulk = scan_tables(segment, **options)
    tables = list(bulk)
    assert all(0 < each.row_count <= MAX_BLOCK_ROWS for each in tables)
    for table in tables:
        assert [column.dtype for column in table] == [column.dtype for column in rows]
    assert joined([empty_table(), *tables]) == [each.tolist() for each in rows]
    assert bulk.verdicts == plain.verdicts
    assert bulk.verdict == plain.verdict
    assert bulk.suspicions == plain.suspicions
    assert bulk.valid_bytes == plain.valid_bytes
    assert bulk.resynced == plain.resynced


# --- scans


@pytest.mark.parametrize("name", ["kafka-4.3.1/crash", "kafka-4.3.1/hard", "kafka-0.10.2-legacy"])
def test_real_logs_scan_the_same(golden: Callable[[str], Path], name: str) -> None:
    archive, _, state = name.partition("/")
    paths = sorted((golden(archive) / state).rglob("*.log"))
    assert len(paths) >= 8
    for path in paths:
        with open_segment(path) as segment:
            check_scans(segment)
            check_scans(segment, resume=False, verify_crc=False)


@given(data=damaged_logs(), resume=st.booleans(), verify_crc=st.booleans(), is_active=st.booleans())
@settings(max_examples=examples(80))
def test_damaged_logs_scan_the_same(data: bytes, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory, opened(data, directory) as segment:
        check_scans(segment, **options)


def test_small_windows_scan_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_kernel, "WINDOW_BYTES", 500)
    monkeypatch.setattr(numpy_kernel, "CAREFUL_BYTES", 70)
    monkeypatch.setattr(numpy_kernel, "MAX_BLOCK_ROWS", 3)

    @given(data=damaged_logs(), start=st.integers(0, 200), size=st.integers(0, 2000))
    @settings(max_examples=examples(80))
    def check(data: bytes, start: int, size: int) -> None:
        with tempfile.TemporaryDirectory() as directory, opened(data, directory) as segment:
            check_scans(segment, start_pos=start, end_pos=start + size)

    check()


@given(data=damaged_logs(), start=st.integers(0, 100), verify_crc=st.booleans())
@settings(max_examples=examples(80))
def test_one_window_stops_at_the_same_place(data: bytes, start: int, verify_crc: bool) -> None:
    buf = bytearray(data)
    plain_after = pure.Neighbours(0)
    options: dict[str, Any] = {"file_pos": 1000, "verify_crc": verify_crc}
    rows, stop = pure.scan_window(buf, start, len(buf), neighbours=plain_after, **options)
    for scan in (scan_window, *NATIVE_SCANS):
        bulk_after = pure.Neighbours(0)
        table, bulk_stop = scan(buf, start, len(buf), neighbours=bulk_after, **options)
        assert [each.tolist() for each in table] == [each.tolist() for each in table_of(rows)]
        assert bulk_stop == stop
        for name in ("last_offset", "leader_epoch"):
            assert getattr(bulk_after, name) == getattr(plain_after, name)


HEADER_EDITS: list[dict[str, int]] = [
    {"last_offset_delta": -1, "records_count": 0},
    {"last_offset_delta": 2**31 - 1},
    {"records_count": -1},
    {"records_count": 2},
    {"records_count": 0},
    {"attributes": 0x80},
    {"attributes": -1},
    {"attributes": 5},
    {"attributes": 0x7C},
    {"magic": 1},
    {"magic": 3},
    {"partition_leader_epoch": -1},
    {"partition_leader_epoch": -7},
    {"partition_leader_epoch": 1},
    {"base_offset": 0},
    {"base_offset": -1},
    {"base_offset": 2**63 - 1},
    {"base_offset": 2**31 - 1},
    {"base_offset": 2**31},
]


@pytest.mark.parametrize("edit", HEADER_EDITS, ids=str)
@pytest.mark.parametrize("place", [0, 1, 4, 9])
def test_every_rule_stops_at_the_same_place(edit: dict[str, int], place: int) -> None:
    """One header changed, with a right checksum; epochs 0 before and 2 behind the middle."""
    from storage.formats.record_batch import encode_batch, parse_header

    parts = []
    healthy = many_batches(10)
    for number in range(10):
        batch = healthy[number * 70 : number * 70 + 70]
        header = parse_header(batch, 0)._replace(partition_leader_epoch=2 * (number > 4))
        parts.append(
            encode_batch(header._replace(**edit) if number == place else header, batch[61:])
        )
    data = b"".join(parts)
    for base_offset in (None, 0, 1):
        buf = bytearray(data)
        plain_after = pure.Neighbours(base_offset)
        options: dict[str, Any] = {"file_pos": 0, "verify_crc": True}
        rows, stop = pure.scan_window(buf, 0, len(buf), neighbours=plain_after, **options)
        for scan in (scan_window, *NATIVE_SCANS):
            bulk_after = pure.Neighbours(base_offset)
            table, bulk_stop = scan(buf, 0, len(buf), neighbours=bulk_after, **options)
            assert (table.row_count, bulk_stop) == (len(rows), stop)
            assert bulk_after.leader_epoch == plain_after.leader_epoch
            assert bulk_after.last_offset == plain_after.last_offset


@pytest.mark.parametrize("length", [0, 8, 9, 14, 36, 48])
def test_a_batch_shorter_than_its_header_stops_both(length: int) -> None:
    healthy = many_batches(3)
    short = bytearray(healthy[70 : 70 + 12 + length])
    short[8:12] = length.to_bytes(4, "big")
    for verify_crc in (True, False):
        buf = bytearray(healthy[:70] + short + healthy[140:])
        options: dict[str, Any] = {"file_pos": 0, "verify_crc": verify_crc}
        rows, stop = pure.scan_window(buf, 0, len(buf), neighbours=pure.Neighbours(0), **options)
        for scan in (scan_window, *NATIVE_SCANS):
            table, same = scan(buf, 0, len(buf), neighbours=pure.Neighbours(0), **options)
            assert (table.row_count, same) == (len(rows), stop) == (1, 70)


def test_many_bad_places_do_not_make_bulk_work_pointless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is walked in bulk stays in proportion to the file, even if every other batch is odd."""
    with tempfile.TemporaryDirectory() as directory:
        data = bytearray(many_batches(2000))
        for pos in range(0, len(data), 2 * 70):
            data[pos + 17] ^= 1
        walked_bytes = 0
        walk = numpy_kernel.scan_window

        def counting(buf: bytearray, start: int, end: int, **options: Any) -> Any:
            nonlocal walked_bytes
            walked_bytes += end - start
            return walk(buf, start, end, **options)

        monkeypatch.setattr(numpy_kernel, "scan_window", counting)
        monkeypatch.setenv("EOCTL_KERNEL", "numpy")
        with opened(bytes(data), directory) as segment:
            rows = sum(each.row_count for each in scan_tables(segment, resume=False))
    assert rows == 2000
    assert walked_bytes <= 6 * len(data)


# --- records


def bulk_records(table: RecordTable, row: int) -> list[LogRecord]:
    """The records of one batch, put together again; header values too."""
    from storage.formats.record import RecordHeader

    def cut(pos: int, size: int) -> bytes | None:
        return None if size < 0 else table.source[pos : pos + size].tobytes()

    found = []
    for index in np.flatnonzero(table.batch_row == row).tolist():
        headers = []
        for each in np.flatnonzero(table.header_record == index).tolist():
            key = cut(table.header_key_pos[each], table.header_key_bytes[each])
            value = cut(table.header_value_pos[each], table.header_value_bytes[each])
            headers.append(RecordHeader(key or b"", value))
        assert len(headers) == table.headers_count[index]
        found.append(
            LogRecord(
                table.offset[index],
                table.timestamp_ms[index],
                table.sequence[index],
                cut(table.key_pos[index], table.key_bytes[index]),
                cut(table.value_pos[index], table.value_bytes[index]),
                tuple(headers),
                None,
                None,
            )
        )
    return found


def decoded(segment: Segment) -> Iterator[tuple[ScannedBatch, list[LogRecord] | None]]:
    """Each healthy batch with its records, None where the bulk kernel leaves it to the plain one."""
    for part in BulkScan(segment, resume=False).parts():
        if not isinstance(part, BulkWindow):
            continue
        table = part.table
        while table.row_count:
            records = decode_records(table, part.buf, part.file_pos)
            assert 0 < records.batch_count <= table.row_count
            for row in range(records.batch_count):
                pos = int(table.pos[row])
                batch = ScannedBatch(pos, pure.parse_frame(part.buf, pos - part.file_pos), True)
                whole = bulk_records(records, row)
                assert records.is_whole[row] or not whole
                yield batch, whole if records.is_whole[row] else None
            table = numpy_kernel.rows_of(table, records.batch_count, table.row_count)


def check_records(data: bytes) -> tuple[int, int]:
    """Compare with the plain parser; how many batches bulk took, and left to it without need."""
    taken, left = zip(*(count_records(data, kernel) for kernel in BULK_KERNELS), strict=True)
    return min(taken), max(left)


def count_records(data: bytes, kernel: KernelName) -> tuple[int, int]:
    taken = left = 0
    with (
        tempfile.TemporaryDirectory() as directory,
        opened(data, directory) as segment,
        demanded(kernel),
    ):
        for batch, in_bulk in decoded(segment):
            try:
                plainly = list(segment.records(batch))
            except FormatError:
                assert in_bulk is None
                continue
            if in_bulk is None:
                left += 1
            else:
                assert in_bulk == plainly
                taken += 1
    return taken, left


@pytest.mark.share(2)
@pytest.mark.parametrize("lanes", [1, 10**9])
@pytest.mark.parametrize("damage", [False, True])
def test_records_are_the_same(monkeypatch: pytest.MonkeyPatch, lanes: int, damage: bool) -> None:
    monkeypatch.setattr(record_table, "MIN_LANES", lanes)
    monkeypatch.setattr(record_table, "MAX_SOURCE_BYTES", 500)

    @given(data=damaged_logs() if damage else logs())
    @settings(max_examples=examples(50))
    def check(data: bytes) -> None:
        check_records(with_right_checksums(data))

    check()


@pytest.mark.native
@given(data=logs())
@settings(max_examples=examples(60))
def test_the_columns_of_both_kernels_are_the_same(data: bytes) -> None:
    """Places of nulls too: whoever reads columns need not know which kernel made them."""
    with tempfile.TemporaryDirectory() as directory, opened(data, directory) as segment:
        for part in BulkScan(segment, resume=False).parts():
            if not isinstance(part, BulkWindow):
                continue
            tables = []
            for kernel in BULK_KERNELS:
                with demanded(kernel):
                    tables.append(decode_records(part.table, part.buf, part.file_pos))
            by_numpy, natively = tables
            size = len(natively.source)  # numpy's may have some bytes behind it
            assert by_numpy.source[:size].tobytes() == natively.source.tobytes()
            assert by_numpy.batch_count == natively.batch_count
            for name in RecordTable._fields[2:]:
                ours, theirs = getattr(natively, name), getattr(by_numpy, name)
                assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist()), name


def test_ordinary_records_are_not_left_to_the_plain_path(golden: Callable[[str], Path]) -> None:
    for topic in ("plain-0", "idem-zstd-0", "txn-0", "append-time-0"):
        path = golden("kafka-4.3.1") / "crash" / topic / SEGMENT_NAME
        with open_segment(path) as segment:
            found = list(decoded(segment))
            assert found
            for batch, in_bulk in found:
                assert in_bulk == list(segment.records(batch))


GOOD = bytes.fromhex("160000020 26b02760202 6801".replace(" ", ""))  # key k, value v, h: null


USUAL = {"good", "attributes", "length of 2 bytes", "length of 4 bytes", "timestamp 0x7f"}


def odd_bodies() -> Iterator[tuple[str, bytes, int]]:
    """Bodies that are wrong or unusual in one way: name, bytes, number of records."""
    from storage.formats.record import Record, RecordHeader, encode_record

    yield "good", GOOD * 3, 3
    yield "a byte left over", GOOD * 3 + b"\0", 3
    yield "a record left over", GOOD * 3, 2
    yield "a record missing", GOOD * 3, 4
    yield "cut", (GOOD * 3)[:-1], 3
    yield "length 1 less", GOOD + b"\x14" + GOOD[1:] + GOOD, 3
    yield "length 1 more", GOOD + b"\x18" + GOOD[1:] + GOOD, 3
    yield "negative length", GOOD + b"\x01" + GOOD[1:] + GOOD, 3
    yield "short length", GOOD + b"\x02" + GOOD[1:] + GOOD, 3
    for spare in range(1, 6):
        long_length = b"\x96" + b"\x80" * (spare - 1) + b"\x00"
        yield f"length of {spare + 1} bytes", GOOD + long_length + GOOD[1:] + GOOD, 3
    for at, name in ((2, "timestamp"), (3, "offset"), (4, "key"), (6, "value"), (8, "headers")):
        for byte in (0x01, 0x03, 0x04, 0x7E, 0x7F, 0x80, 0xFF):
            odd = GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]
            yield f"{name} {byte:#x}", GOOD + odd + GOOD, 3
            yield f"{name} {byte:#x} at the end", GOOD + GOOD + odd, 3
    for byte in (0x00, 0x01, 0x03, 0x06):
        yield f"header key {byte:#x}", GOOD * 2 + GOOD[:9] + bytes([byte]) + GOOD[10:], 3
        yield f"header value {byte:#x}", GOOD * 2 + GOOD[:11] + bytes([byte]), 3
    many = (RecordHeader(b"", b"x"),) * 65
    yield "65 headers", encode_record(Record(0, 0, 0, None, None, many)) + GOOD, 2
    for delta in (2**55, -(2**55) - 1, 2**63 - 1, -(2**63)):
        yield f"timestamp delta {delta}", encode_record(Record(0, delta, 0, b"", b"", ())) + GOOD, 2
    yield "attributes", GOOD[:1] + b"\xff" + GOOD[2:], 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("lanes", [1, 10**9])
def test_odd_records_are_the_same_or_left_to_the_plain_path(
    monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    from storage.formats.record_batch import BatchHeader, encode_batch

    monkeypatch.setattr(record_table, "MIN_LANES", lanes)
    for name, body, count in odd_bodies():
        for timestamp_ms in (5, 2**63 - 1, -(2**63)):
            header = BatchHeader(9, 0, 0, 2, 0, 0, 9, timestamp_ms, 5, 7, 0, 2**31 - 2, count)
            data = encode_batch(header, body)
            taken, left = check_records(data + many_batches(100)[70 * 50 :])
            assert taken >= 50
            if name in USUAL and timestamp_ms == 5:
                assert (taken, left) == (51, 0), name


@pytest.mark.parametrize(
    "value",
    [0, -1, 63, 64, -64, -65, 8191, 8192, 2**20, 2**27 - 1, 2**54, -(2**54), 2**55 - 1],
)
def test_varints_of_any_length(value: int) -> None:
    from storage.formats.varint import encode_varlong

    data = encode_varlong(value)
    for tail in (b"", b"\xff" * 9):
        source = np.frombuffer(b"\0" * 8 + data + tail, np.uint8)
        read, next_pos, longer = record_table._read_varints(source, np.array([8, 0]), 8)
        assert (read[0], next_pos[0], longer[0]) == (value, 8 + len(data), False)
        assert (read[1], next_pos[1]) == (0, 1)


def test_a_claim_of_many_records_allocates_nothing() -> None:
    """2^31 - 1 records in a batch of 70 bytes."""
    data = bytearray(many_batches(1))
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    data[23:27] = (2**31 - 1).to_bytes(4, "big")
    assert check_records(with_right_checksums(bytes(data))) == (0, 0)
