"""Ranges of several files as one: every position, the seams, and what cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import AccessError
from storage.files.positioned_file import SplicedFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three files of different bytes."""
    root = tmp_path_factory.mktemp("spliced")
    paths = [root / name for name in "abc"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(range(number * 50, number * 50 + 50)))
    return paths


@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 50)), max_size=5
    ),
    pos=st.integers(0, 260),
    count=st.integers(0, 260),
)
def test_it_reads_as_the_joined_bytes(
    files: list[Path], ranges: list[tuple[int, int, int]], pos: int, count: int
) -> None:
    wanted = [(files[each], min(ends), max(ends)) for each, *ends in ranges]
    joined = b"".join(path.read_bytes()[start:end] for path, start, end in wanted)
    with SplicedFile("name.log", [(str(path), start, end) for path, start, end in wanted]) as file:
        assert (file.path, file.file_bytes) == ("name.log", len(joined))
        found = file.read_at(pos, count)
        assert (found.data, found.unreadable) == (joined[pos : pos + count], ())


def test_a_file_that_has_become_shorter_ends_it(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"0123456789")
    with SplicedFile("x", [(str(path), 0, 10), (str(files[0]), 0, 5)]) as file:
        path.write_bytes(b"0123")
        assert file.read_at(0, 15).data == b"0123"


def test_one_that_is_not_there(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        SplicedFile("x", [(str(files[0]), 0, 5), (str(tmp_path / "none"), 0, 5)])
    assert caught.value.path == str(tmp_path / "none")
    file = SplicedFile("x", [(str(files[0]), 0, 5)])
    file.close()
    file.close()
