"""Headers read in native code, without bodies and in threads, are those of the plain scan."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.formats.record_batch import CONTROL_MASK
from storage.kernels import native_kernel, numpy_kernel
from storage.kernels.kernel_choice import KERNEL_VARIABLE
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, rows_of, table_of
from storage.kernels.protocol import VerdictKind
from storage.kernels.record_table import decode_records
from storage.log.segment import open_segment
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs, many_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment

pytestmark = pytest.mark.native

SEGMENT_NAME = f"{0:020}.log"


@pytest.fixture(autouse=True, scope="module")
def small_stretches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numpy_kernel, "WINDOW_BYTES", 700)
        patch.setattr(numpy_kernel, "CAREFUL_BYTES", 70)
        patch.setattr(native_kernel, "STRETCH_BYTES", 1500)
        patch.setattr(native_kernel, "PIECE_BYTES", 300)
        patch.setenv(KERNEL_VARIABLE, "native")  # the variable may demand another one
        yield


def opened(data: bytes, directory: str | Path) -> Segment:
    path = Path(directory, SEGMENT_NAME)
    path.write_bytes(data)
    return open_segment(path)


def check(segment: Segment, *, threads: int, **options: Any) -> int:
    """Compare with the plain scan, and the control batches with the file; count stretches."""
    plain = segment.scan(**options)
    rows = table_of(plain)
    scan = BulkScan(segment, with_bodies=False, threads=threads, **options)
    data = Path(segment.path).read_bytes()
    tables: list[HeaderTable] = [rows_of(rows, 0, 0)]
    stretch_count = 0
    for part in scan.parts():
        if not isinstance(part, BulkWindow):
            tables.append(table_of([part]))
            continue
        stretch_count += not part.has_bodies
        tables.append(part.table)
        check_controls(part, data)
    found = [np.concatenate(column) for column in zip(*tables, strict=True)]
    assert [each.dtype for each in found] == [each.dtype for each in rows]
    assert [each.tolist() for each in found] == [each.tolist() for each in rows]
    assert scan.verdicts == plain.verdicts
    assert scan.verdict == plain.verdict
    assert scan.suspicions == plain.suspicions
    assert scan.valid_bytes == plain.valid_bytes
    assert scan.resynced == plain.resynced
    return stretch_count


def check_controls(window: BulkWindow, data: bytes) -> None:
    """Of all, and of some: the first of them left out."""
    is_control = window.table.attributes & CONTROL_MASK != 0
    for rows in (np.flatnonzero(is_control), np.flatnonzero(is_control)[1:]):
        wanted = window.table._make(column[rows] for column in window.table)
        table, buf, file_pos = window.controls(wanted)
        for place, pos, size in zip(table.pos, wanted.pos, wanted.batch_bytes, strict=True):
            assert buf[place - file_pos :][:size] == data[pos : pos + size]
        if not len(rows):
            continue
        ours, theirs = decode_records(table, buf, file_pos), decode_records(wanted, data, 0)
        assert ours.offset.tolist() == theirs.offset.tolist()


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["kafka-4.3.1/crash", "kafka-4.3.1/hard", "kafka-0.10.2-legacy"])
def test_real_logs(golden: Callable[[str], Path], name: str) -> None:
    archive, _, state = name.partition("/")
    paths = sorted((golden(archive) / state).rglob("*.log"))
    stretch_count = 0
    for path in paths:
        with open_segment(path) as segment:
            for threads in (1, 2, 3):
                stretch_count += check(segment, threads=threads)
            check(segment, threads=2, verify_crc=False)
    assert (stretch_count > 0) == (name != "kafka-0.10.2-legacy")


@given(data=logs(), threads=st.integers(1, 4), start=st.integers(0, 200), size=st.integers(0, 4000))
@settings(max_examples=examples(60))
def test_logs_and_parts_of_them(data: bytes, threads: int, start: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as directory, opened(data, directory) as segment:
        check(segment, threads=threads)
        check(segment, threads=threads, start_pos=start, end_pos=start + size)


@given(
    data=damaged_logs(),
    threads=st.integers(1, 3),
    resume=st.booleans(),
    is_active=st.booleans(),
)
@settings(max_examples=examples(120))
def test_damaged_logs(data: bytes, threads: int, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory, opened(data, directory) as segment:
        check(segment, threads=threads, **options)


def test_a_log_that_got_shorter_since(tmp_path: Path) -> None:
    with opened(many_batches(400), tmp_path) as segment:
        full = BulkScan(segment, with_bodies=False, threads=2)
        parts = full.parts()
        first = next(parts)
        assert isinstance(first, BulkWindow)
        assert not first.has_bodies
        with Path(segment.path).open("r+b") as file:
            file.truncate(200 * 70 + 11)
        rows = first.table.row_count + sum(
            each.table.row_count if isinstance(each, BulkWindow) else 1 for each in parts
        )
        assert rows == 200
        assert full.verdict.start_pos == 200 * 70
        assert full.verdict.kind is VerdictKind.TORN_TAIL


def test_what_brings_little_is_read_in_vain_for_a_share_of_the_file_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = bytearray(many_batches(3000))
    for pos in range(0, len(data), 4 * 70):
        data[pos + 17] ^= 1
    read_bytes = 0
    read = native_kernel.HeaderReader.read

    def counting(self: Any, pos: int, limit_pos: int, **options: Any) -> Any:
        nonlocal read_bytes
        if pos >= self._next_pos:
            read_bytes += min(limit_pos - pos, native_kernel.STRETCH_BYTES)
        return read(self, pos, limit_pos, **options)

    monkeypatch.setattr(native_kernel.HeaderReader, "read", counting)
    with opened(bytes(data), tmp_path) as segment:
        check(segment, threads=2)
    assert 0 < read_bytes <= len(data) / 4
