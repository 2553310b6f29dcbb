"""The clean-shutdown marker: empty, JSON, and content that loses only the broker epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError
from storage.formats.clean_shutdown import (
    NAME,
    CleanShutdown,
    broker_epoch,
    encode_clean_shutdown,
    parse_clean_shutdown,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE = b'{"version":0,"brokerEpoch":1234}'


def test_worked_example() -> None:
    assert parse_clean_shutdown(FILE) == CleanShutdown(0, 1234)
    assert encode_clean_shutdown(CleanShutdown(0, 1234)) == FILE
    assert broker_epoch(FILE) == 1234
    assert problems(FILE) == []


def test_empty_marker_of_old_brokers() -> None:
    assert parse_clean_shutdown(b"") == CleanShutdown(None, None)
    assert encode_clean_shutdown(CleanShutdown(None, None)) == b""
    assert broker_epoch(b"") is None
    assert problems(b"") == []


def test_unknown_epoch_is_written_as_minus_one() -> None:
    assert encode_clean_shutdown(CleanShutdown(0, None)) == b'{"version":0,"brokerEpoch":-1}'


@pytest.mark.parametrize(
    "archive, are_empty",
    [("kafka-4.3.1", False), ("kafka-4.3.1-three-brokers", False), ("kafka-0.10.2-legacy", True)],
)
def test_golden_files_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str, are_empty: bool
) -> None:
    paths = list(golden(archive).rglob(NAME))
    assert paths
    for path in paths:
        buf = path.read_bytes()
        marker = parse_clean_shutdown(buf)
        assert encode_clean_shutdown(marker) == buf
        assert problems(buf) == []
        assert (marker.broker_epoch is None) == are_empty


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_round_trip(version: int, epoch: int) -> None:
    marker = CleanShutdown(version, epoch)
    assert parse_clean_shutdown(encode_clean_shutdown(marker)) == marker


@given(st.integers(0, len(FILE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_damage_gives_a_finding_or_another_value(pos: int, new: bytes, cut_bytes: int) -> None:
    buf = FILE[:pos] + new + FILE[pos + cut_bytes :]
    found = [problem.check_id for problem in problems(buf)]
    if found == ["CSD-1"]:
        assert broker_epoch(buf) is None
    else:
        marker = parse_clean_shutdown(buf)
        assert broker_epoch(buf) == marker.broker_epoch
        assert found == ["TXT-1"] * (encode_clean_shutdown(marker) != buf)


def test_unknown_keys_are_ignored() -> None:
    buf = b'{"x":[],"brokerEpoch":7,"version":1}\n'
    assert parse_clean_shutdown(buf) == CleanShutdown(1, 7)
    assert [(problem.check_id, problem.pos) for problem in problems(buf)] == [("TXT-1", 2)]


@pytest.mark.parametrize(
    "buf",
    [
        b" ",
        b"{}",
        b"[]",
        b'{"version":0}',
        b'{"version":0,"brokerEpoch":null}',
        b'{"version":0,"brokerEpoch":"7"}',
        b'{"version":0,"brokerEpoch":7.0}',
        b'{"version":0,"brokerEpoch":9223372036854775808}',
        b'{"version":2147483648,"brokerEpoch":7}',
        b'{"version":0,"brokerEpoch":' + b"9" * 10_000 + b"}",
        b"[" * 100_000,
        b"\xff",
        b"\0" * 33,
    ],
)
def test_content_that_loses_the_broker_epoch(buf: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_clean_shutdown(buf)
    assert broker_epoch(buf) is None
    assert [problem.check_id for problem in problems(buf)] == ["CSD-1"]
