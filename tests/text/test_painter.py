"""Painted lines are what formatting each of them gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.record_formats.bulk_record_writers import Painter, copy_slices

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-20, 20),
    st.sampled_from([10**exponent + step for exponent in range(19) for step in (-1, 0)]),
)


@given(st.lists(st.tuples(numbers, numbers, st.booleans(), st.binary(max_size=70)), min_size=1))
def test_painted_lines_are_the_formatted_ones(rows: list[tuple[int, int, bool, bytes]]) -> None:
    first, second, flags, texts = zip(*rows, strict=True)
    where = np.array(flags)
    source = np.frombuffer(b"".join(texts) + b" ", np.uint8)
    lengths = np.array([len(each) for each in texts])
    lines = Painter(len(rows))
    lines.number(b"first: ", np.array(first))
    lines.literal(b" set", where)
    lines.number(b"=", np.array(second), where)
    lines.literal(b" [")
    lines.slices(source, np.cumsum(lengths) - lengths, lengths)
    lines.literal(b"]\n")
    ends = np.cumsum(widths := lines.widths())
    out = np.zeros(int(ends[-1]), np.uint8)
    lines.paint(out, ends - widths)
    assert out.tobytes() == b"".join(
        b"first: %d%s [%s]\n" % (one, b" set=%d" % two if flag else b"", text)
        for one, two, flag, text in rows
    )


@given(st.lists(st.integers(0, 300), max_size=30), st.randoms(use_true_random=False))
def test_slices_are_copied_and_nothing_else(lengths: list[int], random: Any) -> None:
    source = np.frombuffer(random.randbytes(700), np.uint8)
    source_pos = [random.randrange(700 - length) for length in lengths]
    gaps = [random.randrange(3) for _ in lengths]
    out_pos, expected, end = [], bytearray(), 0
    for length, pos, gap in zip(lengths, source_pos, gaps, strict=True):
        expected += b"." * gap + source[pos : pos + length].tobytes()
        out_pos.append(end + gap)
        end += gap + length
    out = np.frombuffer(bytearray(b"." * end), np.uint8)
    copy_slices(
        out, np.array(out_pos, int), source, np.array(source_pos, int), np.array(lengths, int)
    )
    assert out.tobytes() == expected
