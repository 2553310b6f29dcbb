"""The bulk renderer says the same as the plain functions: bytes, faults, verdicts, offsets."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.text import renderers
from eoctl.text.painter import Painter, copy_slices
from eoctl.text.renderers import render_log, with_replacements
from storage.formats.java_text import kafka_text
from storage.kernels import numpy_kernel, record_table
from storage.log.segment import open_segment
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs, with_right_checksums
from tests.text.plain_text import MODES, Said, fault, say_plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.log.segment import Segment

SEGMENT_NAME = f"{0:020}.log"


def say_in_bulk(segment: Segment, **mode: Any) -> Said:
    out = bytearray()
    faults: list[Any] = []
    result = render_log(
        segment, out.extend, on_error=lambda error: faults.append(fault(error)), **mode
    )
    return Said(
        bytes(out),
        faults,
        result.verdicts,
        result.valid_bytes,
        result.last_offset,
        result.non_consecutive,
    )


def check_equal(data: bytes, modes: list[dict[str, bool]], **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, SEGMENT_NAME)
        path.write_bytes(data)
        with open_segment(path) as segment:
            for mode in modes:
                assert say_in_bulk(segment, **mode, **options) == say_plainly(
                    segment, **mode, **options
                )


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything that is done in pieces have seams in a small log."""
    monkeypatch.setattr(numpy_kernel, "WINDOW_BYTES", 600)
    monkeypatch.setattr(numpy_kernel, "CAREFUL_BYTES", 100)
    monkeypatch.setattr(record_table, "MIN_LANES", 2)
    monkeypatch.setattr(record_table, "MAX_SOURCE_BYTES", 300)
    monkeypatch.setattr(renderers, "PAINT_LINES", 4)
    monkeypatch.setattr(renderers, "PIECE_RECORDS", 3)
    monkeypatch.setattr(record_table, "PIECE_RECORDS", 2)
    monkeypatch.setattr(renderers, "WRITE_BYTES", 200)


# --- golden logs


def golden_logs(root: Path) -> Iterator[Path]:
    yield from sorted(each for each in root.rglob("*") if each.suffix in (".log", ".checkpoint"))


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "modes"),
    [
        ("kafka-4.3.1/crash", MODES),
        ("kafka-4.3.1/hard", MODES[2:3]),
        ("kafka-4.3.1/tv2", MODES[2:3]),
        ("kafka-0.10.2-legacy", MODES),
    ],
)
def test_real_logs_are_the_same_in_bulk(
    golden: Callable[[str], Path], name: str, modes: list[dict[str, bool]]
) -> None:
    archive, _, state = name.partition("/")
    seen = 0
    for path in golden_logs(golden(archive) / state):
        with open_segment(path) as segment:
            for mode in modes:
                plainly = say_plainly(segment, resume=False, **mode)
                assert say_in_bulk(segment, resume=False, **mode) == plainly, (path, mode)
            seen += bool(plainly.text)
    assert seen >= 8


def test_one_line_is_what_kafka_says(golden: Callable[[str], Path]) -> None:
    """The plain functions are compared with Kafka elsewhere; this is the same with no detour."""
    text = (golden("kafka-4.3.1.dump") / f"crash/plain-0/{SEGMENT_NAME}.txt").read_bytes()
    with open_segment(golden("kafka-4.3.1") / f"crash/plain-0/{SEGMENT_NAME}") as segment:
        said = say_in_bulk(segment, **MODES[2])
    assert said.text == b"".join(text.splitlines(keepends=True)[2 : 2 + said.text.count(b"\n")])


# --- made logs


@given(logs())
@settings(max_examples=examples(40))
def test_healthy_logs_are_the_same_in_bulk(data: bytes) -> None:
    check_equal(data, MODES, resume=False)


@given(data=damaged_logs(), resume=st.booleans())
@settings(max_examples=examples(70))
def test_damaged_logs_are_the_same_in_bulk(data: bytes, resume: bool) -> None:
    check_equal(data, [MODES[0], MODES[2]], resume=resume)


@given(data=damaged_logs())
@settings(max_examples=examples(70))
def test_damaged_records_with_right_checksums_are_the_same_in_bulk(data: bytes) -> None:
    check_equal(with_right_checksums(data), MODES[2:], resume=False)


@pytest.mark.usefixtures("small_pieces")
def test_seams_do_not_show() -> None:
    @given(data=damaged_logs(), resume=st.booleans(), right=st.booleans())
    @settings(max_examples=examples(80))
    def check(data: bytes, resume: bool, right: bool) -> None:
        check_equal(with_right_checksums(data) if right else data, MODES[:3], resume=resume)

    check()


@given(data=logs(), limit=st.integers(1, 400))
@settings(max_examples=examples(20))
def test_a_limit_for_decompressed_batches_is_kept(data: bytes, limit: int) -> None:
    check_equal(data, [MODES[2]], resume=False, max_batch_bytes=limit)


def test_a_writer_that_fails_ends_the_work(golden: Callable[[str], Path]) -> None:
    def closed(data: object) -> None:
        raise BrokenPipeError

    path = golden("kafka-4.3.1") / f"crash/plain-0/{SEGMENT_NAME}"
    for mode in MODES:
        with open_segment(path) as segment, pytest.raises(BrokenPipeError):
            render_log(segment, closed, on_error=print, **mode)


# --- the painter

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


# --- text that is none


@given(
    st.lists(st.lists(st.sampled_from([b"a", b"&", b"\xe5", b"\xc3\xa9"]), max_size=20), max_size=6)
)
def test_lines_that_are_no_text_are_replaced_wherever_they_lie(made: list[list[bytes]]) -> None:
    """Also in the last few bytes, before another short line: groups of eight end there."""
    lines = [b"".join(each) + b"\n" for each in made]
    ends = np.cumsum([len(each) for each in lines], dtype=np.int64)
    starts = ends - np.array([len(each) for each in lines], np.int64)
    text = np.frombuffer(b"".join(lines), np.uint8)
    assert b"".join(with_replacements(text, starts, ends)) == b"".join(
        kafka_text(each).encode() for each in lines
    )
