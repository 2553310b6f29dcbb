"""A segment that changes while it is scanned: a broker appends, truncates, deletes or replaces it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from storage.log.segment import open_segment
from tests.damage.faults import FaultMaker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANGE_AT_REQUEST = 7
PIECE_BYTES = 2_048


class Meddler:
    """A pread that gives small pieces and calls `change` once, in the middle of the scan."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.change = change
        self.count = 0

    def __call__(self, fd: int, view: memoryview, pos: int) -> int:
        self.count += 1
        if self.count == CHANGE_AT_REQUEST:
            self.change()
        return os.preadv(fd, [view[:PIECE_BYTES]], pos)


@pytest.fixture
def maker(golden: Callable[[str], Path]) -> FaultMaker:
    path = golden("kafka-4.3.1") / "crash/many-producers-0/00000000000000000000.log"
    return FaultMaker("many-producers", path.read_bytes(), 0)


@pytest.fixture
def path(maker: FaultMaker, tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(maker.data)
    return path


def scan(path: Path, change: Callable[[], None], **options: Any) -> Any:
    with open_segment(path, pread=Meddler(change)) as segment:
        scan = segment.scan(**options)
        rows = [(each.pos, each.header.batch_bytes, each.crc_ok) for each in scan]
    verdicts = [(each.kind.value, each.check_id, *each[1:3]) for each in scan.verdicts]
    return rows, verdicts, scan


def expected_rows(maker: FaultMaker, end_pos: int) -> list[tuple[int, int, bool]]:
    return [(each.pos, each.size, True) for each in maker.batches if each.end <= end_pos]


def test_truncated_at_any_place(maker: FaultMaker, path: Path) -> None:
    """What was there before the cut is given; the torn rest is a torn tail."""
    already_read = (CHANGE_AT_REQUEST - 1) * PIECE_BYTES
    for end_pos in range(0, maker.end, 1_111):
        path.write_bytes(maker.data)
        rows, verdicts, result = scan(path, lambda end=end_pos: os.truncate(path, end))
        seen_end = max(end_pos, already_read)
        assert rows == expected_rows(maker, seen_end)
        good_end = sum(rows[-1][:2])
        torn = [("torn_tail", "SEG-6", good_end, end_pos)] if good_end < end_pos else []
        assert verdicts == torn
        assert result.shrank
        assert (result.end_pos, result.valid_bytes) == (end_pos, good_end)


def test_truncated_at_a_batch_boundary(maker: FaultMaker, path: Path) -> None:
    end_pos = maker.batches[-3].pos
    for resume in (True, False):
        path.write_bytes(maker.data)
        rows, verdicts, result = scan(path, lambda: os.truncate(path, end_pos), resume=resume)
        assert rows == expected_rows(maker, end_pos)
        assert verdicts == []
        assert result.shrank
        assert result.verdict[:3] == ("ok", 0, end_pos)


@pytest.mark.exhaustive
def test_truncated_under_a_large_batch(maker: FaultMaker, path: Path) -> None:
    """Batches beyond the largest window are checksummed in pieces: the end comes in between."""
    first = maker.batches[0]
    size = 9 << 20
    head = bytearray(maker.data[: first.end] + maker.data[maker.batches[1].pos :][:61])
    head[first.end + 8 : first.end + 12] = (size - 12).to_bytes(4, "big")
    path.write_bytes(bytes(head) + bytes(size - 61))
    cut_pos = 5 << 20

    class Cutter(Meddler):
        def __call__(self, fd: int, view: memoryview, pos: int) -> int:
            if pos >= 3 << 20:
                self.change()
            return os.preadv(fd, [view], pos)

    with open_segment(path, pread=Cutter(lambda: os.truncate(path, cut_pos))) as segment:
        result = segment.scan()
        assert [each.pos for each in result] == [0]
    assert [(each.kind.value, *each[1:3]) for each in result.verdicts] == [
        ("torn_tail", first.end, cut_pos)
    ]


def test_appended(maker: FaultMaker, path: Path) -> None:
    """The size at the start of the scan is its end, also when a batch was just being written."""
    cut_pos = maker.batches[-1].pos + 100
    rest = maker.data[cut_pos:]
    path.write_bytes(maker.data[:cut_pos])

    def append() -> None:
        with path.open("ab") as file:
            file.write(rest)

    rows, verdicts, result = scan(path, append)
    assert path.stat().st_size == maker.end
    assert rows == expected_rows(maker, cut_pos)
    assert verdicts == [("torn_tail", "SEG-6", maker.batches[-1].pos, cut_pos)]
    assert not result.shrank
    assert scan(path, lambda: None)[:2] == (expected_rows(maker, maker.end), [])


def test_deleted_or_replaced(maker: FaultMaker, path: Path, tmp_path: Path) -> None:
    """The file that was opened is read to its end."""
    other = tmp_path / "other"

    def replace() -> None:
        other.write_bytes(b"junk" * 100)
        other.replace(path)

    assert scan(path, replace)[:2] == (expected_rows(maker, maker.end), [])
    path.write_bytes(maker.data)
    assert scan(path, path.unlink)[:2] == (expected_rows(maker, maker.end), [])
    assert not path.exists()


def test_overwritten_in_place(maker: FaultMaker, path: Path) -> None:
    """What the scan had not read yet is another file's: corrupt, and no traceback."""

    def overwrite() -> None:
        with path.open("r+b") as file:
            file.write(b"\xaa" * maker.end)

    rows, verdicts, _ = scan(path, overwrite)
    assert rows == expected_rows(maker, (CHANGE_AT_REQUEST - 1) * PIECE_BYTES)
    assert [each[:2] for each in verdicts] == [("corrupt", "BAT-2")]
    assert verdicts[0][3] == maker.end


def test_the_disk_fails_from_some_moment_on(maker: FaultMaker, path: Path) -> None:
    """A stale handle or a dead disk: what was read is given, the rest is unreadable."""
    for code in (errno.EIO, errno.ESTALE):
        is_dead = False

        def pread(fd: int, view: memoryview, pos: int, code: int = code) -> int:
            nonlocal is_dead
            is_dead = is_dead or pos >= 10_000
            if is_dead:
                raise OSError(code, os.strerror(code))
            return os.preadv(fd, [view[:PIECE_BYTES]], pos)

        with open_segment(path, pread=pread) as segment:
            result = segment.scan()
            rows = [(each.pos, each.header.batch_bytes, each.crc_ok) for each in result]
        assert rows == expected_rows(maker, 10_240)
        good_end = sum(rows[-1][:2])
        assert [(each.kind.value, each.errno, *each[1:3]) for each in result.verdicts] == [
            ("unreadable", code, good_end, maker.end)
        ]
        (refused,) = result.unreadable  # the search asks once more for what was read before
        assert good_end < refused.start_pos <= 10_240
        assert refused[1:] == (maker.end, code)
