"""Index of aborted transactions: the worked example, golden files, dump lines, damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import TruncatedError
from storage.formats.txn_index import (
    ENTRY,
    ENTRY_BYTES,
    AbortedTxn,
    encode_entries,
    encode_entry,
    parse_entries,
    parse_entry,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers")  # 0.10.2 has no transactions
BASE = 100
TX = bytes.fromhex(
    "0000 00000000000003e8 0000000000000064 0000000000000067 0000000000000068"
    "0000 00000000000007d0 000000000000006e 0000000000000082 0000000000000078"
)
FIRST = AbortedTxn(0, 1000, 100, 103, 104)
SECOND = AbortedTxn(0, 2000, 110, 130, 120)

INT64 = st.integers(-(2**63), 2**63 - 1)
TXNS = st.lists(st.builds(AbortedTxn, st.integers(-(2**15), 2**15 - 1), INT64, INT64, INT64, INT64))


def ids(*txns: AbortedTxn, next_base_offset: int | None = None) -> list[tuple[str, int]]:
    found = problems(encode_entries(txns), BASE, next_base_offset)
    return [(problem.check_id, problem.pos) for problem in found]


def test_layout() -> None:
    assert ENTRY.size == ENTRY_BYTES == 34


def test_worked_example() -> None:
    assert parse_entries(TX) == [FIRST, SECOND]
    assert encode_entries([FIRST, SECOND]) == TX
    assert parse_entry(TX, 34) == SECOND
    assert encode_entry(FIRST) == TX[:34]
    assert problems(TX, BASE) == []


@pytest.mark.parametrize("archive", ARCHIVES)
def test_golden_files_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str
) -> None:
    paths = [path for path in golden(archive).rglob("*.txnindex*") if path.is_file()]
    for path in paths:
        buf = path.read_bytes()
        assert encode_entries(parse_entries(buf)) == buf
        assert problems(buf, int(path.name.split(".")[0])) == []
    assert any(path.stat().st_size for path in paths) or archive == "kafka-4.3.1-three-brokers"


def test_golden_entries_are_those_of_kafka_dump_log(golden: Callable[[str], Path]) -> None:
    line_count = 0
    dumps = golden("kafka-4.3.1.dump")
    for dump in sorted(dumps.rglob("*.txnindex.txt")):
        path = golden("kafka-4.3.1") / dump.relative_to(dumps).with_suffix("")
        ours = [
            f"version: {txn.version} producerId: {txn.producer_id} firstOffset: {txn.first_offset}"
            f" lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
            for txn in parse_entries(path.read_bytes())
        ]
        assert dump.read_text().splitlines()[1:] == ours
        line_count += len(ours)
    assert line_count > 50


@given(TXNS)
def test_round_trip(txns: list[AbortedTxn]) -> None:
    assert parse_entries(encode_entries(txns)) == txns


@given(st.binary(max_size=120), st.none() | st.integers(0, 2**63 - 1))
def test_any_bytes_give_entries_and_located_problems(buf: bytes, next_base: int | None) -> None:
    entries = parse_entries(buf)
    assert encode_entries(entries) == buf[: len(buf) // 34 * 34]
    found = problems(buf, BASE, next_base)
    assert all(0 <= problem.pos < len(buf) for problem in found)
    assert {problem.check_id for problem in found} <= {"TXI-1", "TXI-2", "TXI-7"}
    assert any(problem.pos == len(entries) * 34 for problem in found) or len(buf) % 34 == 0


@pytest.mark.parametrize(
    "txns, expected",
    [
        ([FIRST._replace(version=1)], [("TXI-1", 0)]),
        ([FIRST, SECOND._replace(version=256)], [("TXI-1", 34)]),
        ([FIRST._replace(first_offset=95)], []),  # begun in an earlier segment
        ([FIRST._replace(first_offset=FIRST.last_offset + 1)], [("TXI-2", 10)]),
        # The marker itself: the data were cleaned away before 1.1 recovered the segment.
        ([FIRST._replace(first_offset=FIRST.last_offset)], []),
        ([FIRST._replace(first_offset=-1)], [("TXI-2", 10)]),
        ([FIRST._replace(first_offset=90, last_offset=99)], [("TXI-2", 18)]),
        ([FIRST, FIRST], [("TXI-2", 52)]),
        ([SECOND, FIRST, FIRST], [("TXI-2", 52)]),
        ([FIRST, SECOND._replace(last_stable_offset=-1)], [("TXI-7", 60)]),
        (
            [FIRST._replace(version=-1, first_offset=-1, last_offset=5, last_stable_offset=-9)],
            [("TXI-1", 0), ("TXI-2", 10), ("TXI-2", 18), ("TXI-7", 26)],
        ),
    ],
)
def test_damage_is_reported_at_its_first_position(
    txns: list[AbortedTxn], expected: list[tuple[str, int]]
) -> None:
    assert ids(*txns) == expected


def test_marker_must_lie_below_the_next_segment() -> None:
    assert ids(FIRST, SECOND, next_base_offset=131) == []
    assert ids(FIRST, SECOND, next_base_offset=130) == [("TXI-2", 52)]


def test_trailing_fragment_is_reported_and_left_out() -> None:
    assert parse_entries(TX + b"\0" * 33) == [FIRST, SECOND]
    found = problems(TX + b"\0" * 33, BASE)
    assert [(problem.check_id, problem.pos) for problem in found] == [("TXI-1", 68)]
    assert isinstance(found[0], TruncatedError)


@pytest.mark.parametrize("pos", [-1, 35, 68])
def test_entry_outside_of_the_buffer(pos: int) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_entry(TX, pos)
    assert caught.value.check_id == "TXI-1"
