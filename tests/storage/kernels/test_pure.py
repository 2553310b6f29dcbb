"""The rules for one batch and its neighbours, on headers made by hand with struct."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.formats.record_batch import BatchHeader
from storage.kernels.pure import (
    Neighbours,
    Problem,
    extend_checksum,
    judge,
    parse_frame,
    scan_window,
    suspect,
)
from tests.drawn import examples

GOOD: dict[str, Any] = {
    "base_offset": 100,
    "batch_length": 59,
    "partition_leader_epoch": 3,
    "magic": 2,
    "crc": 0,
    "attributes": 0,
    "last_offset_delta": 4,
    "base_timestamp_ms": 1000,
    "max_timestamp_ms": 2000,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "records_count": 5,
}


def header(**changes: Any) -> BatchHeader:
    return BatchHeader(**{**GOOD, **changes})


def legacy(**changes: Any) -> BatchHeader:
    fields = {"magic": 1, "partition_leader_epoch": -1, "last_offset_delta": 0, "records_count": -1}
    return header(**{**fields, **changes})


def batch(**changes: Any) -> bytes:
    """Bytes of a batch with a right checksum, unless `crc` is given."""
    value = header(**changes)
    body = b"r" * (value.batch_length - 49)
    checked = struct.pack(">hiqqqhii", *value[5:]) + body
    crc = value.crc if "crc" in changes else crc32c.crc32c(checked)
    return struct.pack(">qiibI", *value[:4], crc) + checked


@pytest.mark.parametrize(
    "value, expected",
    [
        (header(), None),
        (header(base_offset=90), None),
        (header(base_offset=89), "SEG-2"),
        (header(base_offset=-1), "SEG-2"),
        (header(base_offset=90 + 2**31 - 5), None),
        (header(base_offset=90 + 2**31 - 4), "SEG-3"),
        (header(base_offset=2**63 - 1), "SEG-3"),
        (header(last_offset_delta=-1, records_count=0), "BAT-4"),
        (header(records_count=6), "BAT-4"),
        (header(records_count=-1), "BAT-4"),
        (header(records_count=0), None),
        (header(attributes=4), None),
        (header(attributes=5), "BAT-7"),
        (header(attributes=7), "BAT-7"),
        (header(magic=3), "BAT-2"),
        (header(magic=127), "BAT-2"),
        (header(batch_length=48), "BAT-2"),
        (legacy(), None),
        (legacy(magic=0, batch_length=14), None),
        (legacy(batch_length=22), None),
        (legacy(batch_length=21), "BAT-2"),
        (legacy(magic=-1), "BAT-2"),
        (legacy(attributes=3), None),
        (legacy(attributes=4), "BAT-7"),
        (legacy(base_offset=89), "SEG-2"),
    ],
)
def test_rules_of_one_batch(value: BatchHeader, expected: str | None) -> None:
    for crc_ok in (True, None):
        problem = judge(value, crc_ok, Neighbours(90))
        assert (problem and problem.check_id) == expected
    failed = judge(value, False, Neighbours(90))
    assert failed is not None
    assert failed.check_id == (expected if expected == "BAT-2" else "BAT-1")


@pytest.mark.parametrize(
    "value, is_neighbour",
    [
        (header(), True),
        (header(attributes=7), True),  # nobody can read it, but its offsets are checksummed
        (header(base_offset=50), False),  # BAT-3: the offset is the damage
        (header(records_count=9), False),
        (header(base_offset=2**40), False),
        (header(attributes=7, base_offset=2**40), False),
        (header(magic=4), False),
    ],
)
def test_only_trusted_batches_judge_the_next(value: BatchHeader, is_neighbour: bool) -> None:
    neighbours = Neighbours(0)
    neighbours.last_offset, neighbours.leader_epoch = 60, 2
    judge(value, True, neighbours)
    expected = (value.last_offset, 3) if is_neighbour else (60, 2)
    assert (neighbours.last_offset, neighbours.leader_epoch) == expected


def test_a_failed_checksum_makes_no_neighbour() -> None:
    neighbours = Neighbours(0)
    judge(header(), False, neighbours)
    assert neighbours.last_offset == -1


def test_offsets_must_rise() -> None:
    neighbours = Neighbours(0)
    assert judge(header(base_offset=10), True, neighbours) is None  # 10 to 14
    assert judge(header(base_offset=15), True, neighbours) is None  # 15 to 19
    problem = judge(header(base_offset=19), True, neighbours)
    assert problem == Problem("BAT-3", "offset 19 is not above 19 of the batch before")
    assert judge(legacy(base_offset=24), True, neighbours) is None
    problem = judge(legacy(base_offset=24), True, neighbours)
    assert problem is not None
    assert problem.check_id == "BAT-3"


def test_no_base_offset_no_range() -> None:
    neighbours = Neighbours(None)
    assert judge(header(base_offset=0), True, neighbours) is None
    assert judge(header(base_offset=2**62), True, neighbours) is None
    negative = judge(header(base_offset=-7), True, Neighbours(None))
    assert negative is not None
    assert negative.check_id == "SEG-2"


def test_suspicions() -> None:
    assert suspect(header(), 3) == []
    assert suspect(header(partition_leader_epoch=-1), 3) == []
    assert [each.check_id for each in suspect(header(), 4)] == ["BAT-14"]
    assert [each.check_id for each in suspect(header(partition_leader_epoch=-2), -1)] == ["BAT-14"]
    assert [each.check_id for each in suspect(header(attributes=0x80), 3)] == ["BAT-10"]
    assert [each.check_id for each in suspect(header(attributes=-(2**15)), 3)] == ["BAT-10"]
    assert suspect(header(attributes=0x7F), 3) == []
    assert suspect(legacy(attributes=0x70), 3) == []


def test_frames() -> None:
    data = batch(attributes=0x30)
    value = parse_frame(data, 0)
    assert value == header(attributes=0x30, crc=value.crc)
    assert parse_frame(b"junk" + data, 4) == value
    entry = struct.pack(">qiIbbq", 7, 22, 2**32 - 1, 1, 8, 5_000)
    expected = legacy(
        base_offset=7,
        batch_length=22,
        crc=2**32 - 1,
        attributes=8,
        base_timestamp_ms=-1,
        max_timestamp_ms=5_000,
    )
    assert parse_frame(entry, 0) == expected
    v0 = bytearray(entry)
    v0[16] = 0
    assert parse_frame(v0, 0) == expected._replace(magic=0, max_timestamp_ms=-1)
    v0[16] = 0xFE
    assert parse_frame(v0, 0).magic == -2


def test_checksums_continue() -> None:
    part, rest = memoryview(b"12345"), memoryview(b"6789")
    assert extend_checksum(rest, 2, extend_checksum(part, 2, 0)) == 0xE3069283
    assert extend_checksum(rest, 1, extend_checksum(part, 1, 0)) == 0xCBF43926


def window(data: bytes, *, verify_crc: bool = True, end_pos: int | None = None) -> Any:
    neighbours = Neighbours(0)
    end_pos = len(data) if end_pos is None else end_pos
    rows, stop_pos = scan_window(
        data, 0, end_pos, file_pos=1_000, neighbours=neighbours, verify_crc=verify_crc
    )
    return rows, stop_pos, neighbours


FIRST = batch(base_offset=10, partition_leader_epoch=3)


def test_a_window_of_healthy_batches() -> None:
    data = FIRST + batch(base_offset=15, partition_leader_epoch=-1) + batch(base_offset=30)
    rows, stop_pos, neighbours = window(data)
    assert [each.pos for each in rows] == [1_000, 1_071, 1_142]
    assert [each.header.base_offset for each in rows] == [10, 15, 30]
    assert all(type(each.header) is BatchHeader and each.crc_ok is True for each in rows)
    assert stop_pos == len(data)
    assert (neighbours.last_offset, neighbours.leader_epoch) == (34, 3)
    assert window(data, verify_crc=False)[0][0].crc_ok is None
    for end_pos in range(71, 142):
        assert window(data, end_pos=end_pos)[1] == 71


@pytest.mark.parametrize(
    "second",
    [
        batch(base_offset=15, crc=1),
        batch(base_offset=14),
        batch(base_offset=2**31),
        batch(base_offset=15, last_offset_delta=-1, records_count=0),
        batch(base_offset=15, records_count=6),
        batch(base_offset=15, attributes=5),
        batch(base_offset=15, attributes=0x80),
        batch(base_offset=15, partition_leader_epoch=2),
        batch(base_offset=15, partition_leader_epoch=-2),
        batch(base_offset=15, magic=1),
        batch(base_offset=15, magic=3),
        bytes(61),
        batch(base_offset=15)[:-1],
    ],
)
def test_a_window_stops_before_anything_else(second: bytes) -> None:
    rows, stop_pos, neighbours = window(FIRST + second)
    assert len(rows) == 1
    assert stop_pos == 71
    assert (neighbours.last_offset, neighbours.leader_epoch) == (14, 3)


MOVED = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": st.sampled_from([0, 14, 15, 2**31 - 5, 2**31 - 4, -1, 2**63 - 1]),
        "partition_leader_epoch": st.sampled_from([-2, -1, 0, 2, 3, 4]),
        "attributes": st.sampled_from([0, 4, 5, 0x7C, 0x80, -1]),
        "last_offset_delta": st.sampled_from([-1, 0, 4, 2**31 - 1]),
        "records_count": st.sampled_from([-1, 0, 1, 5, 6, 2**31 - 1]),
        "magic": st.sampled_from([-1, 0, 1, 2, 3]),
        "crc": st.just(7),
    },
)


@settings(max_examples=examples(200))
@given(changes=MOVED)
def test_the_loop_and_the_rules_agree(changes: dict[str, Any]) -> None:
    """The hot loop passes exactly what has no problem and no suspicion."""
    data = FIRST + batch(**{"base_offset": 15, **changes})
    rows, _, after = window(data)
    neighbours = Neighbours(0)
    judge(rows[0].header, True, neighbours)
    second = parse_frame(data, 71)
    crc_ok = second.magic == 2 and "crc" not in changes
    suspicions = suspect(second, neighbours.leader_epoch)
    problem = judge(second, crc_ok, neighbours)
    assert (len(rows) == 2) == (problem is None and not suspicions)
    if len(rows) == 2:
        assert (after.last_offset, after.leader_epoch) == (
            neighbours.last_offset,
            neighbours.leader_epoch,
        )
