from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.errors import AccessError
from storage.files.positioned_file import (
    SECTOR_BYTES,
    FileRange,
    PositionedFile,
    ReadWindow,
    Unreadable,
)
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CONTENT = bytes(range(1, 251)) * 40  # 10,000 bytes, none of them zero


class FaultyDisk:
    """A pread that refuses every request that touches one of its sectors, and counts requests."""

    def __init__(self, sectors: Sequence[int], code: int = errno.EIO) -> None:
        self.sectors = set(sectors)
        self.code = code
        self.requests: list[tuple[int, int]] = []

    def __call__(self, fd: int, view: memoryview, pos: int) -> int:
        self.requests.append((pos, len(view)))
        if any(each in self.sectors for each in self.touched(pos, len(view))):
            raise OSError(self.code, os.strerror(self.code))
        return os.preadv(fd, [view], pos)

    @staticmethod
    def touched(pos: int, size: int) -> range:
        return range(pos // SECTOR_BYTES, (pos + size - 1) // SECTOR_BYTES + 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "content"
    path.write_bytes(CONTENT)
    return path


def with_zeros(start: int, end: int, holes: Sequence[Unreadable]) -> bytes:
    """What is read of CONTENT[start:end] with zeros in the holes."""
    data = bytearray(CONTENT)
    for hole in holes:
        data[hole.start_pos : hole.end_pos] = bytes(hole.end_pos - hole.start_pos)
    return bytes(data[start:end])


def test_reads_what_is_there(path: Path) -> None:
    with PositionedFile(path) as file:
        assert file.file_bytes == len(CONTENT)
        assert file.read_at(0, 20) == (CONTENT[:20], ())
        assert file.read_at(9_990, 100) == (CONTENT[9_990:], ())
        assert file.read_at(10_000, 1) == (b"", ())
        assert file.read_at(2**40, 1) == (b"", ())


def test_short_reads_are_repeated_to_the_end(path: Path) -> None:
    def pread(fd: int, view: memoryview, pos: int) -> int:
        return os.preadv(fd, [view[:7]], pos)

    with PositionedFile(path, pread=pread) as file:
        assert file.read_at(3, 9_000) == (CONTENT[3:9_003], ())
        assert file.read_at(9_000, 9_000) == (CONTENT[9_000:], ())


def test_a_bad_sector_is_found_exactly_and_the_rest_is_read(path: Path) -> None:
    disk = FaultyDisk([5])
    hole = Unreadable(5 * 512, 6 * 512, errno.EIO)
    with PositionedFile(path, pread=disk) as file:
        assert file.read_at(0, 20_000) == (with_zeros(0, 10_000, [hole]), (hole,))
        assert hole.strerror == os.strerror(errno.EIO)
        inside = Unreadable(2_600, 2_700, errno.EIO)
        assert file.read_at(2_600, 100) == (bytes(100), (inside,))
    assert len(disk.requests) < 20


def test_a_stale_handle_is_not_tried_in_halves(path: Path) -> None:
    disk = FaultyDisk([15], errno.ESTALE)
    with PositionedFile(path, pread=disk) as file:
        hole = Unreadable(0, 9_000, errno.ESTALE)
        assert file.read_at(0, 9_000) == (bytes(9_000), (hole,))
    assert len(disk.requests) == 1


@settings(max_examples=examples(100))
@example(sectors={0, 1, 2, 3, 4, 5, 19}, pos=10_000, count=1, chunk=1)
@given(
    sectors=st.sets(st.integers(0, 20), max_size=8),
    pos=st.integers(0, 11_000),
    count=st.integers(0, 11_000),
    chunk=st.integers(1, 5_000),
)
def test_any_bad_sectors(path: Path, sectors: set[int], pos: int, count: int, chunk: int) -> None:
    """Whatever the cuts of the request: exactly the bad sectors are missing, joined and in order."""
    end = max(pos, min(pos + count, len(CONTENT)))
    bad = sorted(sectors & set(FaultyDisk.touched(pos, end - pos)) if end > pos else ())
    expected: list[Unreadable] = []
    for sector in bad:
        start_pos, end_pos = max(sector * 512, pos), min((sector + 1) * 512, pos + count)
        if expected and expected[-1].end_pos == start_pos:
            start_pos = expected.pop().start_pos
        expected.append(Unreadable(start_pos, end_pos, errno.EIO))
    disk = FaultyDisk(list(sectors))
    with PositionedFile(path, pread=disk) as file:
        data, holes = file.read_at(pos, count)
        # A bad last sector hides where the file ends.
        if pos + count > len(CONTENT) and sectors & {19, 20}:
            assert data[: end - pos] == with_zeros(pos, end, holes)
            reported = [each[:1] for each in holes if each.start_pos < len(CONTENT)]
            assert reported == [each[:1] for each in expected]
        else:
            assert data == with_zeros(pos, end, expected)
            assert holes == tuple(expected)

        source = FileRange(file, end)
        view = memoryview(bytearray(chunk))
        parts = []
        for at_pos in range(pos, end, chunk):
            filled_bytes = source.read_into(view, at_pos)
            parts.append(bytes(view[:filled_bytes]))
        clipped = [each._replace(end_pos=min(each.end_pos, end)) for each in expected]
        assert b"".join(parts) == with_zeros(pos, end, clipped)
        assert source.unreadable == clipped


def test_a_bad_place_is_asked_for_once(path: Path) -> None:
    disk = FaultyDisk([3, 4])
    with PositionedFile(path, pread=disk) as file:
        source = FileRange(file)
        first = source.read(0, 10_000)
        asked = len(disk.requests)
        assert source.unreadable == [Unreadable(1_536, 2_560, errno.EIO)]
        assert source.read(1_000, 4_000) == first[1_000:5_000]
        assert disk.requests[asked:] == [(1_000, 536), (2_560, 2_440)]
        assert source.first_unreadable(0, 1_536) is None
        assert source.first_unreadable(2_559, 2_560) == source.unreadable[0]
        assert source.first_unreadable(2_560, 9_000) is None


def test_a_range_is_cut_and_follows_a_file_that_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    with PositionedFile(path) as file:
        source = FileRange(file, 5_000)
        assert source.read(4_990, 100) == CONTENT[4_990:5_000]
        assert source.read(6_000, 1) == b""
        assert FileRange(file, 2**40).end_pos == 10_000
        os.truncate(path, 4_000)
        assert not source.shrank
        assert source.read(3_000, 2_000) == CONTENT[3_000:4_000]
        assert source.shrank
        assert source.end_pos == 4_000


def test_zeros_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\0" * 100 + b"x" + b"\0" * 3_000_000)
    with PositionedFile(path) as file:
        source = FileRange(file)
        assert source.is_zero_from(101)
        assert source.is_zero_from(2_000_000)
        assert not source.is_zero_from(100)
        assert not source.is_zero_from(0)
        assert not FileRange(file, 101).is_zero_from(100)
        assert FileRange(file, 100).is_zero_from(0)
    with PositionedFile(path, pread=FaultyDisk([3_000])) as file:
        source = FileRange(file)
        assert not source.is_zero_from(3_001 * 512 - 1)
        assert source.is_zero_from(3_001 * 512)


def test_a_window_slides_and_stops_at_a_bad_place(path: Path) -> None:
    with PositionedFile(path, pread=FaultyDisk([10])) as file:
        window = ReadWindow(FileRange(file), 4_096)
        assert not window.buf  # of very many files most are never read through their window
        assert window.load(0, 61) == 4_096
        assert window.load(4_000, 61) == 96  # what is loaded is enough
        assert window.load(4_050, 61) == 1_070
        assert window.load(4_050, 61) == 1_070
        assert window.buf[:100] == CONTENT[4_050:4_150]
        assert window.load(5_119, 61) == 1
        assert window.load(5_120, 61) == 0
        assert window.load(9_990, 61) == 10
        assert window.load(10_000, 61) == 0
        assert window.load(0, 61) == 4_096  # backwards


def test_a_window_is_no_larger_than_what_is_left(path: Path) -> None:
    with PositionedFile(path) as file:
        window = ReadWindow(FileRange(file), 4_096)
        assert window.load(9_000, 61) == 1_000
        assert len(window.buf) == 1_000
        assert window.load(2_000, 4_096) == 4_096  # backwards, where more is left
        assert window.buf == CONTENT[2_000:6_096]
        window.grow(6_000)
        assert window.load(2_000, 6_000) == 6_000
        assert window.buf == CONTENT[2_000:8_000]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        PositionedFile(tmp_path / "absent")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.path == str(tmp_path / "absent")
    with pytest.raises(AccessError) as caught:
        PositionedFile(tmp_path)
    assert caught.value.errno == errno.EISDIR
    with pytest.raises(AccessError):
        PositionedFile("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AccessError, match="Not a regular file"):  # and it does not hang
        PositionedFile(tmp_path / "pipe")


def test_a_removed_file_is_still_read_and_close_is_final(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    file = PositionedFile(path)
    path.unlink()
    assert file.read_at(0, 10_000).data == CONTENT
    file.close()
    file.close()
    with pytest.raises(AccessError):
        _ = file.file_bytes


def test_what_is_open_can_be_opened_again_though_its_path_is_another_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with PositionedFile(path) as file:
        path.unlink()
        path.write_bytes(b"new")
        name = file.name_to_open_again
        with open(name, "rb") as again:  # noqa: PTH123
            assert again.read() == b"old"
    assert file.name_to_open_again == ""


def test_where_reads_are_replaced_there_is_no_way_round_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with PositionedFile(path, pread=lambda fd, view, pos: os.preadv(fd, [view], pos)) as file:
        assert file.name_to_open_again == ""
