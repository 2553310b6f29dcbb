"""Producer snapshot: the worked examples, golden files, dump lines, damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.checksum import crc32c
from storage.errors import CorruptError, FormatError, TruncatedError, UnsupportedError
from storage.formats.producer_snapshot import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    ProducerEntry,
    blank_entry,
    encode_snapshot,
    entries_despite_crc,
    parse_snapshot,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers")  # 0.10.2 has no producer ids
T = 1_700_000_000_000

S0 = bytes.fromhex("0001 48674bc7 00000000")
S3 = bytes.fromhex(
    "0001 3f8172b0 00000003"
    "00000000000003e8 0000 00000001 0000000000000065 00000001 0000018bcfe56805 00000003 ffffffffffffffff"
    "00000000000007d0 0004 ffffffff ffffffffffffffff 00000000 0000018bcfe56814 00000003 ffffffffffffffff"
    "0000000000000bb8 0002 00000006 000000000000008c 00000002 0000018bcfe5681e ffffffff 000000000000008a"
)
ENTRIES = [
    ProducerEntry(1000, 0, 1, 101, 1, T + 5, 3, -1),
    ProducerEntry(2000, 4, -1, -1, 0, T + 20, 3, -1),
    ProducerEntry(3000, 2, 6, 140, 2, T + 30, -1, 138),
]

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ANY_ENTRIES = st.lists(
    st.builds(ProducerEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64), max_size=5
)


def with_crc(buf: bytes) -> bytes:
    return buf[:2] + crc32c(buf[6:]).to_bytes(4, "big") + buf[6:]


def test_layout() -> None:
    assert (HEADER.size, ENTRY.size) == (HEADER_BYTES, ENTRY_BYTES) == (10, 46)


@pytest.mark.parametrize("buf, entries", [(S0, []), (S3, ENTRIES)])
def test_worked_examples(buf: bytes, entries: list[ProducerEntry]) -> None:
    assert parse_snapshot(buf) == entries
    assert parse_snapshot(memoryview(buf)) == entries
    assert encode_snapshot(entries) == buf
    assert entries_despite_crc(buf) == entries
    assert problems(buf, 143) == []


def test_derived_fields() -> None:
    assert [entry.first_sequence for entry in ENTRIES] == [0, -1, 4]
    assert [entry.first_offset for entry in ENTRIES] == [100, -1, 138]
    assert [entry.has_batch for entry in ENTRIES] == [True, False, True]
    wrapped = ENTRIES[0]._replace(last_sequence=1, offset_delta=3)
    assert wrapped.first_sequence == 2**31 - 2


@pytest.mark.parametrize("archive", ARCHIVES)
def test_golden_files_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str
) -> None:
    paths = [path for path in golden(archive).rglob("*.snapshot*") if path.is_file()]
    assert paths
    for path in paths:
        buf = path.read_bytes()
        entries = parse_snapshot(buf)
        assert encode_snapshot(entries) == buf
        assert entries_despite_crc(buf) == entries
        assert problems(buf, int(path.name.split(".")[0])) == []


def dump_line(entry: ProducerEntry) -> str:
    txn = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
        f"{'OptionalLong.empty' if txn == -1 else f'OptionalLong[{txn}]'} "
        f"lastTimestamp: {entry.timestamp_ms}"
    )
    if entry.has_batch:
        line += (
            f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence}"
            f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
            f" timestamp: {entry.timestamp_ms}"
        )
    return line


def test_golden_entries_are_those_of_kafka_dump_log(golden: Callable[[str], Path]) -> None:
    line_count = 0
    dumps = golden("kafka-4.3.1.dump")
    for dump in sorted(dumps.rglob("*.snapshot.txt")):
        path = golden("kafka-4.3.1") / dump.relative_to(dumps).with_suffix("")
        ours = [dump_line(entry) for entry in parse_snapshot(path.read_bytes())]
        assert dump.read_text().splitlines()[1:] == ours
        line_count += len(ours)
    assert line_count > 500


@given(ANY_ENTRIES)
def test_round_trip_keeps_the_order(entries: list[ProducerEntry]) -> None:
    assert parse_snapshot(encode_snapshot(entries)) == entries


@given(st.binary(max_size=200))
def test_any_bytes_give_entries_or_format_error(buf: bytes) -> None:
    # A version and a CRC that fit, or else hardly a random file gets past them.
    for candidate in (buf, with_crc(b"\0\x01" + buf)):
        error, entries = None, []
        try:
            entries = parse_snapshot(candidate)
        except FormatError as caught:
            error = caught
        found = [(problem.check_id, problem.pos) for problem in problems(candidate, 0)]
        if error is None:
            assert encode_snapshot(entries) == candidate
            assert {check_id for check_id, _pos in found} <= {"SNP-5"}
        else:
            assert found == [("SNP-1", error.pos)]
            assert 0 <= error.pos <= len(candidate)


def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(len(S3) * 8):
        damaged = bytearray(S3)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError) as caught:
            parse_snapshot(damaged)
        assert caught.value.check_id == "SNP-1"
        assert isinstance(caught.value, UnsupportedError) == (bit < 16)


@pytest.mark.parametrize("size", [0, 9, 10, 55, len(S3) - 1])
def test_short_files(size: int) -> None:
    with pytest.raises(FormatError):
        parse_snapshot(S3[:size])
    if size < HEADER_BYTES:
        with pytest.raises(TruncatedError):
            entries_despite_crc(S3[:size])
    else:
        assert entries_despite_crc(S3[:size]) == ENTRIES[: (size - 10) // 46]


def test_sizes_that_contradict_the_count() -> None:
    with pytest.raises(TruncatedError, match="truncated"):
        parse_snapshot(with_crc(S3[:-1]))
    with pytest.raises(CorruptError, match="bytes after the last entry"):
        parse_snapshot(with_crc(S3 + S3[10:]))
    with pytest.raises(CorruptError, match="negative"):
        parse_snapshot(with_crc(S3[:6] + b"\xff\xff\xff\xff" + S3[10:]))
    # Nothing may be allocated for a count that the file cannot hold.
    with pytest.raises(TruncatedError) as caught:
        parse_snapshot(with_crc(S3[:6] + b"\x7f\xff\xff\xff" + S3[10:]))
    assert caught.value.needed_bytes == 10 + 46 * (2**31 - 1)


def test_entries_of_a_damaged_file() -> None:
    damaged = bytearray(S3)
    damaged[20] ^= 1
    assert entries_despite_crc(damaged)[1:] == ENTRIES[1:]
    assert entries_despite_crc(S3[:6] + b"\x7f\xff\xff\xff" + S3[10:]) == ENTRIES
    assert entries_despite_crc(S3[:6] + b"\xff\xff\xff\xff" + S3[10:]) == ENTRIES
    assert entries_despite_crc(S3[:6] + b"\0\0\0\x01" + S3[10:]) == ENTRIES[:1]
    with pytest.raises(UnsupportedError):
        entries_despite_crc(b"\0\x02" + S3[2:])


@pytest.mark.parametrize(
    "change, field_pos",
    [
        ({"producer_id": -1}, 0),
        ({"producer_epoch": -1}, 8),
        ({"last_sequence": -1}, 10),
        ({"last_sequence": -2}, 10),
        ({"last_offset": 143}, 14),
        ({"last_offset": -2}, 14),
        ({"offset_delta": -1}, 22),
        ({"offset_delta": 141}, 22),
        ({"current_txn_first_offset": 143}, 38),
        ({"current_txn_first_offset": -2}, 38),
    ],
)
def test_unsound_entries(change: dict[str, int], field_pos: int) -> None:
    buf = encode_snapshot([*ENTRIES[:2], ENTRIES[2]._replace(**change)])
    found = [(problem.check_id, problem.pos) for problem in problems(buf, 143)]
    assert found == [("SNP-5", 10 + 2 * 46 + field_pos)]


def test_entry_without_batch_has_no_sequence_and_no_delta() -> None:
    for change, field_pos in (({"last_sequence": 4}, 10), ({"offset_delta": 1}, 22)):
        buf = encode_snapshot([ENTRIES[1]._replace(**change)])
        assert [problem.pos for problem in problems(buf, 143)] == [10 + field_pos]


def test_producer_id_that_is_listed_twice() -> None:
    found = problems(encode_snapshot([*ENTRIES, ENTRIES[1], ENTRIES[0]]), 143)
    assert [(problem.check_id, problem.pos) for problem in found] == [("SNP-5", 10 + 3 * 46)]


def test_offsets_are_not_judged_without_the_snapshot_offset() -> None:
    assert problems(S3) == []
    assert [problem.pos for problem in problems(S3, 138)] == [10 + 92 + 14, 10 + 92 + 38]


def test_an_empty_control_batch_leaves_a_blank_entry() -> None:
    """A broker writes it (all fields -1); any other negative epoch is a fault."""
    blank = blank_entry(7)
    assert problems(encode_snapshot([blank]), 10) == []
    odd = blank._replace(timestamp_ms=5)
    assert [each.check_id for each in problems(encode_snapshot([odd]), 10)] == ["SNP-5"]
