"""Offset index: the worked example, every golden file, kafka-dump-log's lines, and damage."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import TruncatedError
from storage.formats.offset_index import (
    ENTRY,
    ENTRY_BYTES,
    OffsetIndexEntry,
    encode_entries,
    encode_entry,
    logical_entry_count,
    parse_entries,
    parse_entry,
    preallocated_bytes,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers", "kafka-0.10.2-legacy")
IX = bytes.fromhex("00000017 00001041 00000033 00002099")
BASE = 100

SOUND = st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 30_000)), max_size=20).map(
    lambda steps: [
        OffsetIndexEntry(sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[: i + 1]))
        for i in range(len(steps))
    ]
)


def ids(buf: bytes) -> list[tuple[str, int]]:
    return [(problem.check_id, problem.pos) for problem in problems(buf, BASE)]


def test_layout() -> None:
    assert ENTRY.size == ENTRY_BYTES == 8


def test_worked_example() -> None:
    entries = [OffsetIndexEntry(123 - BASE, 4161), OffsetIndexEntry(151 - BASE, 8345)]
    assert parse_entries(IX) == entries
    assert encode_entries(entries) == IX
    assert [parse_entry(IX, 0), parse_entry(IX, 8)] == entries
    assert encode_entry(entries[0]) == IX[:8]
    assert problems(IX, BASE) == []


@pytest.mark.parametrize("archive", ARCHIVES)
def test_golden_files_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str
) -> None:
    paths = [path for path in golden(archive).rglob("*.index*") if path.is_file()]
    assert paths
    zero_tails = 0
    for path in paths:
        buf = path.read_bytes()
        entries = parse_entries(buf)
        assert encode_entries(entries, file_bytes=len(buf)) == buf
        assert encode_entries(entries) == buf[: len(entries) * ENTRY_BYTES]
        assert problems(buf, int(path.name.split(".")[0])) == []
        zero_tails += len(buf) > len(entries) * ENTRY_BYTES
    assert zero_tails or archive == "kafka-0.10.2-legacy"


def test_golden_entries_are_those_of_kafka_dump_log(golden: Callable[[str], Path]) -> None:
    line_count = 0
    dumps = golden("kafka-4.3.1.dump")
    for dump in sorted(dumps.rglob("*.index.txt")):
        lines = [line for line in dump.read_text().splitlines() if line.startswith("offset: ")]
        path = golden("kafka-4.3.1") / dump.relative_to(dumps).with_suffix("")
        base = int(path.name.split(".")[0])
        expected = [
            f"offset: {base} position: 0"
        ]  # its line for an untrimmed index without entries
        ours = [
            f"offset: {base + entry.relative_offset} position: {entry.segment_pos}"
            for entry in parse_entries(path.read_bytes())
        ]
        assert lines in ([expected, []] if not ours else [ours])
        line_count += len(ours)
    assert line_count > 500


@given(SOUND, st.integers(0, 3))
def test_sound_entries_round_trip_with_any_tail(entries: list[OffsetIndexEntry], tail: int) -> None:
    size = (len(entries) + tail) * ENTRY_BYTES
    buf = encode_entries(entries, file_bytes=size)
    assert len(buf) == size
    assert parse_entries(buf) == entries
    assert problems(buf, BASE) == []


@given(st.binary(max_size=100))
def test_any_bytes_give_entries_and_located_problems(buf: bytes) -> None:
    entries = parse_entries(buf)
    assert len(entries) == logical_entry_count(buf)
    assert encode_entries(entries) == buf[: len(entries) * ENTRY_BYTES]
    found = problems(buf, BASE)
    assert all(problem.check_id in {"IDX-1", "IDX-2"} for problem in found)
    assert all(0 <= problem.pos < len(buf) for problem in found)
    is_sound = len(buf) % 8 == 0 and buf == encode_entries(entries, file_bytes=len(buf))
    steps = zip([OffsetIndexEntry(-1, -1), *entries], entries, strict=False)
    is_sound &= all(a[0] < b[0] and a[1] < b[1] for a, b in steps)
    assert (found == []) == is_sound


@pytest.mark.parametrize(
    "fields, count",
    [
        ((), 0),
        ((0, 0), 0),
        ((0, 0, 0, 0, 0, 0), 0),
        ((0, 5), 1),  # an old broker's first offset
        ((0, 5, 0, 0), 1),
        ((5, 0), 1),
        ((0, 0, 5, 9), 2),
        ((0, 0, 0, 0, 5, 9), 0),
        ((3, 9, 0, 0, 5, 19), 1),
        ((3, 9, 5, 10, 0, 0, 0, 0), 2),
        ((3, 9, 2, 8, 5, 10), 3),  # disorder is no end
    ],
)
def test_logical_end(fields: tuple[int, ...], count: int) -> None:
    buf = pack(f">{len(fields)}i", *fields)
    assert logical_entry_count(buf) == count
    assert logical_entry_count(buf + b"\x01\x02\x03") == count


@pytest.mark.parametrize(
    "fields, expected",
    [
        ((-1, 5), [("IDX-2", 0)]),
        ((1, -5), [("IDX-2", 4)]),
        ((3, 9, 3, 10), [("IDX-2", 8)]),
        ((3, 9, 2, 8, 1, 7), [("IDX-2", 8), ("IDX-2", 12)]),
        ((3, 9, 4, 9), [("IDX-2", 12)]),
        ((3, 9, 0, 7, 5, 10), [("IDX-2", 15)]),  # an entry in the middle lost its offset
        ((3, 9, 0, 0, 0, 0, 0, 1, 0, 0), [("IDX-2", 31)]),
        ((0, 0, 0, 0), []),
    ],
)
def test_damage_is_reported_at_its_first_position(
    fields: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    assert ids(pack(f">{len(fields)}i", *fields)) == expected


def test_length_that_is_no_multiple_of_8() -> None:
    assert ids(IX + b"\0\0\0") == [("IDX-1", 16)]
    assert ids(IX[:-1]) == [("IDX-1", 8)]
    assert ids(b"\x01") == [("IDX-1", 0)]


def test_texts_name_absolute_offsets() -> None:
    problem = problems(pack(">4i", 5, 1, 3, 2), BASE)[0]
    assert (problem.expected, problem.found) == ("offset >= 106", "offset 103")


@pytest.mark.parametrize("pos", [-1, 9, 16, 100])
def test_entry_outside_of_the_buffer(pos: int) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_entry(IX, pos)
    assert caught.value.check_id == "IDX-1"


def test_preallocated_size() -> None:
    assert preallocated_bytes() == 10_485_760
    assert preallocated_bytes(1023) == 1016
