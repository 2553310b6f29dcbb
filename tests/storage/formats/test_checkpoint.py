"""Text checkpoints: what a broker reads and refuses, every golden file, damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.checkpoint import (
    LEADER_EPOCH_NAME,
    OFFSET_CHECKPOINT_NAMES,
    LeaderEpochEntry,
    OffsetCheckpointEntry,
    encode_leader_epochs,
    encode_offset_checkpoint,
    leader_epoch_problems,
    offset_checkpoint_problems,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from storage.formats.java_text import NotANumberError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers", "kafka-0.10.2-legacy")
TWO_EPOCHS = b"0\n2\n0 0\n7 100\n"

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.lists(st.builds(OffsetCheckpointEntry, TOPICS, INT32, INT64), max_size=10)
EPOCHS = st.lists(st.builds(LeaderEpochEntry, INT32, INT64), max_size=10)
NEARLY_A_CHECKPOINT = st.lists(
    st.sampled_from(
        [b"0\n", b"1\n", b"2\n", b"0 ", b"7 100\n", b"t 0 5\n", b"\n", b"-", b"\xff", b"x"]
    )
).map(b"".join)


def test_worked_example() -> None:
    entries = [LeaderEpochEntry(0, 0), LeaderEpochEntry(7, 100)]
    assert parse_leader_epochs(TWO_EPOCHS) == entries
    assert encode_leader_epochs(entries) == TWO_EPOCHS
    assert leader_epoch_problems(TWO_EPOCHS) == []


@pytest.mark.parametrize("archive", ARCHIVES)
def test_golden_offset_checkpoints_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str
) -> None:
    paths = [path for name in OFFSET_CHECKPOINT_NAMES for path in golden(archive).rglob(name)]
    assert len(paths) >= 3
    entry_count = 0
    for path in paths:
        buf = path.read_bytes()
        entries = parse_offset_checkpoint(buf)
        assert encode_offset_checkpoint(entries, zero_bytes_if_none=not buf) == buf
        assert offset_checkpoint_problems(buf) == []
        entry_count += len(entries)
    assert entry_count > 5


def test_golden_leader_epochs_come_out_with_the_same_bytes(golden: Callable[[str], Path]) -> None:
    paths = [
        path
        for archive in ARCHIVES[:2]
        for path in golden(archive).rglob(LEADER_EPOCH_NAME)
        if path.is_file()
    ]
    assert len(paths) > 150
    for path in paths:
        buf = path.read_bytes()
        entries = parse_leader_epochs(buf)
        assert encode_leader_epochs(entries, zero_bytes_if_none=not buf) == buf
        assert leader_epoch_problems(buf) == []


@given(OFFSETS)
def test_offset_checkpoint_round_trip(entries: list[OffsetCheckpointEntry]) -> None:
    assert parse_offset_checkpoint(encode_offset_checkpoint(entries)) == entries


@given(EPOCHS)
def test_leader_epochs_round_trip(entries: list[LeaderEpochEntry]) -> None:
    buf = encode_leader_epochs(entries)
    assert parse_leader_epochs(buf) == entries
    steps = zip([LeaderEpochEntry(-1, -1), *entries], entries, strict=False)
    is_sound = all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in steps)
    assert (leader_epoch_problems(buf) == []) == is_sound


@given(st.binary(max_size=60) | NEARLY_A_CHECKPOINT)
def test_any_bytes_give_entries_or_format_error(buf: bytes) -> None:
    for parse, judge in (
        (parse_offset_checkpoint, offset_checkpoint_problems),
        (parse_leader_epochs, leader_epoch_problems),
    ):
        error = None
        try:
            parse(buf)
        except FormatError as caught:
            error = caught
        found = judge(buf)
        assert all(0 <= problem.pos <= len(buf) for problem in found)
        if error is None:
            assert {problem.check_id for problem in found} <= {"EPC-1", "TXT-1"}
        else:
            assert [(p.check_id, p.pos) for p in found] == [("DIR-7", error.pos)]


@pytest.mark.parametrize("buf", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n", b"+0\r\n-0\r"])
def test_files_without_entries(buf: bytes) -> None:
    assert parse_offset_checkpoint(buf) == []
    assert parse_leader_epochs(buf) == []


def test_zero_bytes_and_zero_entries_are_two_files() -> None:
    assert encode_offset_checkpoint([]) == b"0\n0\n"
    assert encode_offset_checkpoint([], zero_bytes_if_none=True) == b""
    assert encode_leader_epochs([LeaderEpochEntry(0, 0)], zero_bytes_if_none=True) == b"0\n1\n0 0\n"


@pytest.mark.parametrize(
    "buf, entry",
    [
        (b"0\n1\nt\t 3  42 \n", OffsetCheckpointEntry("t", 3, 42)),
        (b"0\n1\nt 3 42", OffsetCheckpointEntry("t", 3, 42)),
        (b"0\r\n1\r\nt 3 42\r\n", OffsetCheckpointEntry("t", 3, 42)),
        (b"0\n1\nt +3 00042\n", OffsetCheckpointEntry("t", 3, 42)),
        (b"0\n1\n 3 42\n", OffsetCheckpointEntry("", 3, 42)),
        (
            "0\n1\n\u00e9\u00a0x \uff13 \u0664\u0662\n".encode(),
            OffsetCheckpointEntry("é\u00a0x", 3, 42),
        ),
    ],
)
def test_unusual_text_is_read_as_a_broker_reads_it(
    buf: bytes, entry: OffsetCheckpointEntry
) -> None:
    assert parse_offset_checkpoint(buf) == [entry]
    assert [problem.check_id for problem in offset_checkpoint_problems(buf)] == ["TXT-1"]


@pytest.mark.parametrize(
    "text, pos",
    [("0\n3\nt 0 5\nu 0 5\nt 0 6\n", 16), ("0\n2\nt 0 5\nt -1 5\n", 10), ("0\n1\n 0 5\n", 4)],
)
def test_partitions_that_a_broker_would_not_have_listed(text: str, pos: int) -> None:
    assert len(parse_offset_checkpoint(text.encode())) == int(text[2])
    found = offset_checkpoint_problems(text.encode())
    assert [(problem.check_id, problem.pos) for problem in found] == [("TXT-1", pos)]


@pytest.mark.parametrize(
    "buf, error, pos",
    [
        (b"1\n0\n", UnsupportedError, 0),
        (b"-1\n", UnsupportedError, 0),
        (b"x\n0\n", CorruptError, 0),
        (b"\n", CorruptError, 0),
        (b"0\nx\n", CorruptError, 2),
        (b"0\n\n", CorruptError, 2),
        (b"0\n-1\n", NotANumberError, 2),
        (b"0\n1\n", CorruptError, 2),
        (b"0\n2\nt 0 5\n", CorruptError, 2),
        (b"0\n0\nt 0 5\n", CorruptError, 2),
        (b"0\n2147483647\nt 0 5\n", CorruptError, 2),
        (b"0\n1\nt 0 5\n\n", CorruptError, 10),
        (b"0\n1\nt 0\n", CorruptError, 4),
        (b"0\n1\nt u 0 5\n", CorruptError, 4),
        (b"0\n2\nt 0 5\nt x 5\n", NotANumberError, 10),
        (b"0\n1\nt 0 x\n", NotANumberError, 4),
        (b"0\n1\nt 2147483648 5\n", NotANumberError, 4),
        (b"0\n1\nt 0 9223372036854775808\n", NotANumberError, 4),
        (b"0\n1\nt 0 " + b"9" * 1_000_000 + b"\n", NotANumberError, 4),
        (b"0\n1\nt x 5\nt\n", NotANumberError, 4),
        (b"0\n1\nt 0 5\xff\n", CorruptError, 9),
        (b"\xef\xbb\xbf0\n0\n", CorruptError, 0),
        (b"0\n1\nt\x000 5\n", CorruptError, 4),
    ],
)
def test_what_a_broker_refuses(buf: bytes, error: type[FormatError], pos: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_offset_checkpoint(buf)
    assert type(caught.value) is error
    assert (caught.value.check_id, caught.value.pos) == ("DIR-7", pos)
    found = [(problem.check_id, problem.pos) for problem in offset_checkpoint_problems(buf)]
    assert found == [("DIR-7", pos)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0\n2\n3 0\n3 5\n", [("EPC-1", 8)]),
        ("0\n2\n3 5\n4 5\n", [("EPC-1", 8)]),
        ("0\n3\n3 5\n4 4\n2 9\n", [("EPC-1", 8), ("EPC-1", 12)]),
        ("0\n1\n-1 5\n", [("EPC-1", 4)]),
        ("0\n1\n0 -1\n", [("EPC-1", 4)]),
        ("0\n2\n-7 0\n-5 -9\n", [("EPC-1", 4), ("EPC-1", 9)]),
        ("0\n2\n0  0\n0 1\n", [("TXT-1", 6), ("EPC-1", 9)]),
        ("0\n2\n0 0\n2 1\n", []),
    ],
)
def test_leader_epochs_must_increase(text: str, expected: list[tuple[str, int]]) -> None:
    found = leader_epoch_problems(text.encode())
    assert [(problem.check_id, problem.pos) for problem in found] == expected
