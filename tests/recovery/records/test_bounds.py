"""A batch of very many records is checked in pieces, with the findings of one record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.checks.contents import records as record_checks
from storage.formats.record_batch import encode_batch
from storage.formats.varint import encode_varint
from storage.kernels import record_table
from storage.log.segment import Segment
from tests.batches import PLAIN_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.running import Outcome

NULL = encode_varint(-1)
COUNT = 50
FIRST_MS = PLAIN_HEADER.base_timestamp_ms


def body(deltas: Iterable[int], times: Iterable[int], value: bytes) -> bytes:
    """Records without a key."""
    found = b""
    for delta, time_ms in zip(deltas, times, strict=True):
        fields = b"\0" + encode_varint(time_ms) + encode_varint(delta) + NULL + value + b"\0"
        found += encode_varint(len(fields)) + fields
    return found


def ordered(count: int = COUNT) -> list[int]:
    return list(range(count))


CASES = {
    "good": (ordered(), COUNT - 1, encode_varint(0)),
    "empty values": (ordered(), COUNT - 1, NULL),
    "swapped over a border": ([*range(9), 10, 9, *range(11, COUNT)], COUNT - 1, NULL),
    "twice at a border": ([*range(10), 9, *range(11, COUNT)], COUNT - 1, NULL),
    "outside": ([*range(COUNT - 1), COUNT + 5], COUNT - 1, NULL),
    "outside, then descending": ([0, COUNT + 5, *range(1, COUNT - 1)], COUNT - 1, NULL),
    "descending, then outside": ([5, 3, *range(6, COUNT + 4)], COUNT - 1, NULL),
    "wrong time": (ordered(), COUNT, NULL),
}


@pytest.mark.parametrize("horizon", [0, 0x40])
@pytest.mark.parametrize("case", CASES)
def test_pieces_and_single_records_agree(
    case: str,
    horizon: int,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    deltas, latest_ms, value = CASES[case]
    header = PLAIN_HEADER._replace(
        attributes=horizon,
        last_offset_delta=COUNT - 1,
        records_count=COUNT,
        max_timestamp_ms=FIRST_MS + latest_ms,
    )
    directory = tmp_path / "topic-0"
    directory.mkdir()
    log = encode_batch(header, body(deltas, range(COUNT), value))
    (directory / f"{0:020d}.log").write_bytes(log)
    call = ("check", "--deep", "--now", "2026-11-21T03:00:00Z", directory)
    bulk = eoctl(*call)
    monkeypatch.setattr(record_checks, "MAX_BATCH_RECORDS", 20)
    monkeypatch.setattr(record_table, "PIECE_RECORDS", 10)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "records", None)  # is not asked for
        pieces = eoctl(*call)
    monkeypatch.setattr(record_checks, "decode_in_pieces", lambda *_, **__: None)
    assert pieces == bulk == eoctl(*call)
    assert pieces.status in {0, 1}, pieces.errors
    is_wrong = "outside" in case or "border" in case
    assert (b"BAT-8" in pieces.stdout) == is_wrong
    assert (b"BAT-9" in pieces.stdout) == (case == "wrong time")
    assert (b"BAT-13" in pieces.stdout) == (horizon != 0 and value == encode_varint(0))
