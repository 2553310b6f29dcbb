"""What is taken of an offset checkpoint that does not parse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.repair.repaired import entries_that_parse
from storage.formats.checkpoint import (
    OffsetCheckpointEntry,
    encode_offset_checkpoint,
    parse_offset_checkpoint,
)


@pytest.mark.parametrize(
    ("data", "kept", "lost_count"),
    [
        (b"", [], None),
        (b"xxx", [], None),
        (b"0\n1\nplain 0\n", [], 1),
        (b"0\n1\ncompac", [], 1),
        (b"0\n2\na 0 5\nb 1 77", [("a", 0, 5)], 1),
        (b"0\n9\na 0 5\n", [("a", 0, 5)], 8),
        (b"0\n1\na 0 5\nb 0 6\n", [("a", 0, 5), ("b", 0, 6)], 0),
        (b"0\n2\na 0 5\na 0 4\nb 0 x\n", [("a", 0, 4)], 1),
        (b"7\n1\na 0 5\n", [("a", 0, 5)], 0),
        (b"0\n-1\na 0 5\n", [("a", 0, 5)], None),
        (b"\xff\n2\n\xffa 0 5\nb 0 6\n", [("b", 0, 6)], 1),
        (b"a 0 5\nb 0 6\nc 0", [("a", 0, 5), ("b", 0, 6)], None),
        (b"0\n3\na -1 5\n 0 5\na 2147483648 5\n", [], 3),
    ],
)
def test_lines(data: bytes, kept: list[tuple[str, int, int]], lost_count: int | None) -> None:
    assert entries_that_parse(data) == (kept, lost_count)


ENTRIES = st.lists(
    st.builds(
        OffsetCheckpointEntry,
        st.from_regex(r"[a-z]{1,5}", fullmatch=True),
        st.integers(0, 9),
        st.integers(0, 2**63 - 1),
    ),
    max_size=8,
    unique_by=lambda each: each[:2],
)


@given(ENTRIES, st.data())
def test_one_line_is_broken(entries: list[OffsetCheckpointEntry], data: st.DataObject) -> None:
    """All others stay, wherever the file ends or is broken; what is written is a checkpoint."""
    lines = encode_offset_checkpoint(entries).splitlines(keepends=True)
    lines.insert(data.draw(st.integers(2, len(lines))), b"\x80broken 0\n")
    found, lost_count = entries_that_parse(b"".join(lines))
    assert (found, lost_count) == (entries, 1)
    cut = b"".join(lines[: data.draw(st.integers(0, len(lines)))])
    found, _ = entries_that_parse(cut + b"z 1 12")
    assert found == entries[: len(found)]
    assert parse_offset_checkpoint(encode_offset_checkpoint(found)) == found
