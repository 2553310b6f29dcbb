"""Reading small files: whole, or an error at once."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_the_whole_file(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("f")
    assert read_small_file(tmp_path / "f", 10) == b"x" * size
    assert read_small_file(tmp_path / "link", 10) == b"x" * size


def test_more_than_is_sensible(tmp_path: Path) -> None:
    """A sparse file is not read at all; one that says it is empty, not to its end."""
    (tmp_path / "f").touch()
    os.truncate(tmp_path / "f", 1 << 40)
    with pytest.raises(OSError, match="Larger than 10 bytes") as caught:
        read_small_file(tmp_path / "f", 10)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(OSError, match="Larger than 10 bytes"):
        read_small_file("/proc/self/status", 10)


@pytest.mark.parametrize("kind", ["fifo", "directory", "device", "loop", "missing"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(OSError, match=r"Not a regular|Too many levels|No such file"):
        read_small_file(path, 10)
