"""Time index: the worked example, every golden file, kafka-dump-log's lines, and damage."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import TruncatedError
from storage.formats.time_index import (
    ENTRY,
    ENTRY_BYTES,
    TimeIndexEntry,
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
TI = bytes.fromhex("0000018bcfe56809 00000014 0000018bcfe5682a 00000033")
T = 1_700_000_000_000
BASE = 100

SOUND = st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 10_000)), max_size=20).map(
    lambda steps: [
        TimeIndexEntry(sum(s[0] for s in steps[: i + 1]), sum(s[1] for s in steps[: i + 1]))
        for i in range(len(steps))
    ]
)


def file_of(*entries: tuple[int, int]) -> bytes:
    return b"".join(pack(">qi", *entry) for entry in entries)


def ids(buf: bytes) -> list[tuple[str, int]]:
    return [(problem.check_id, problem.pos) for problem in problems(buf, BASE)]


def test_layout() -> None:
    assert ENTRY.size == ENTRY_BYTES == 12


def test_worked_example() -> None:
    entries = [TimeIndexEntry(T + 9, 120 - BASE), TimeIndexEntry(T + 42, 151 - BASE)]
    assert parse_entries(TI) == entries
    assert encode_entries(entries) == TI
    assert [parse_entry(TI, 0), parse_entry(TI, 12)] == entries
    assert encode_entry(entries[1]) == TI[12:]
    assert problems(TI, BASE) == []


@pytest.mark.parametrize("archive", ARCHIVES)
def test_golden_files_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str
) -> None:
    paths = [path for path in golden(archive).rglob("*.timeindex*") if path.is_file()]
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
    for dump in sorted(dumps.rglob("*.timeindex.txt")):
        lines = [line for line in dump.read_text().splitlines() if line.startswith("timestamp: ")]
        path = golden("kafka-4.3.1") / dump.relative_to(dumps).with_suffix("")
        base = int(path.name.split(".")[0])
        ours = [
            f"timestamp: {entry.timestamp_ms} offset: {base + entry.relative_offset}"
            for entry in parse_entries(path.read_bytes())
        ]
        # Its line for an untrimmed index without entries names what is not there.
        assert lines in ([[f"timestamp: 0 offset: {base}"], []] if not ours else [ours])
        line_count += len(ours)
    assert line_count > 500


@given(SOUND, st.integers(0, 3))
def test_sound_entries_round_trip_with_any_tail(entries: list[TimeIndexEntry], tail: int) -> None:
    # One zero entry alone is an entry, see below.
    size = (len(entries) + (tail if entries else 2 * tail)) * ENTRY_BYTES
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
    assert all(problem.check_id in {"IDX-1", "TIM-1"} for problem in found)
    assert all(0 <= problem.pos < len(buf) for problem in found)
    is_sound = len(buf) % 12 == 0 and buf == encode_entries(entries, file_bytes=len(buf))
    steps = zip([TimeIndexEntry(-1, 0), *entries], entries, strict=False)
    is_sound &= all(a[0] < b[0] and a[1] <= b[1] for a, b in steps)
    assert (found == []) == is_sound


@pytest.mark.parametrize(
    "entries, count",
    [
        ([], 0),
        ([(0, 0)], 1),  # a trimmed file: one record with timestamp 0
        ([(0, 0), (0, 0)], 0),
        ([(T, 0)], 1),
        ([(T, 0), (0, 0)], 1),
        ([(T, 0), (T + 1, 3), (0, 0)], 2),
        ([(0, 0), (5, 2), (0, 0)], 2),
        ([(T, 3), (T + 1, 3)], 2),
        ([(T, 3), (T + 1, 0), (T + 2, 9)], 1),
    ],
)
def test_logical_end(entries: list[tuple[int, int]], count: int) -> None:
    assert logical_entry_count(file_of(*entries)) == count


@pytest.mark.parametrize(
    "entries, expected",
    [
        ([(-1, 5)], [("TIM-1", 0)]),
        ([(T, -5)], [("TIM-1", 8)]),
        ([(T, 5), (T, 6)], [("TIM-1", 12)]),
        ([(T, 5), (T + 1, 5)], []),  # offsets may stay
        ([(T, 5), (T + 1, 4)], [("TIM-1", 20)]),
        ([(T, 5), (T - 1, 4), (T - 2, 3)], [("TIM-1", 12), ("TIM-1", 20)]),
        ([(T, 5), (T, 0), (0, 0)], [("TIM-1", 14)]),  # its two high bytes are zero as well
        ([(0, 0), (0, 0), (0, 0)], []),
    ],
)
def test_damage_is_reported_at_its_first_position(
    entries: list[tuple[int, int]], expected: list[tuple[str, int]]
) -> None:
    assert ids(file_of(*entries)) == expected


def test_length_that_is_no_multiple_of_12() -> None:
    assert ids(TI + b"\0\0\0") == [("IDX-1", 24)]
    assert ids(TI[:-1]) == [("IDX-1", 12)]


def test_texts_name_absolute_offsets() -> None:
    problem = problems(file_of((T, 5), (T + 1, 4)), BASE)[0]
    assert (problem.expected, problem.found) == ("offset >= 105", "offset 104")


@pytest.mark.parametrize("pos", [-1, 13, 24, 100])
def test_entry_outside_of_the_buffer(pos: int) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_entry(TI, pos)
    assert caught.value.check_id == "IDX-1"


def test_preallocated_size() -> None:
    assert preallocated_bytes() == 10_485_756
    assert preallocated_bytes(16_384) == 16_380
