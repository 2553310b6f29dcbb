"""The batches of a partition and what readers get of it, slowly: `struct`, text and rule RC-5.

It judges what `storage` and `recovery` say, so nothing of them is used here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .client import Incoming

_HEADER = struct.Struct(">qiibIhiqqqhii")  # offset ... records count: 61 bytes
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKERS = {0: "ABORT", 1: "COMMIT"}


class Batch(NamedTuple):
    """A batch; `marker` is "" for data, `segment` the base offset of its segment."""

    segment: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    marker: str


class Transaction(NamedTuple):
    """Data batches of a producer up to its marker; `marker` None: it is open."""

    producer_id: int
    data: list[Batch]
    marker: Batch | None

    @property
    def first_offset(self) -> int:
        return self.data[0].base_offset


class Log(NamedTuple):
    """What is on the disk of a partition."""

    segments: list[int]
    batches: list[Batch]

    @property
    def end_offset(self) -> int:
        return max([self.segments[-1], *(each.last_offset + 1 for each in self.batches[-1:])])

    def cut(self, target: int) -> Log:
        """What a truncation leaves: rules TRUNC 1 to 3, and the end as the next start finds it."""
        if target < self.segments[0]:
            return Log([target], [])
        segments = [base for base in self.segments if base <= target]
        batches = []
        for each in self.batches:
            if each.last_offset >= target:
                break
            batches.append(each)
        return Log(segments, batches)


def read_log(directory: Path) -> Log:
    """Take the `.log` files of a partition apart; a batch that is being written is left out."""
    segments, batches = [], []
    for path in sorted(directory.glob("*.log")):
        segments.append(int(path.stem))
        data = path.read_bytes()
        pos = 0
        while pos + _HEADER.size < len(data):
            end = pos + 12 + struct.unpack_from(">i", data, pos + 8)[0]
            if end > len(data):
                break
            batches.append(_read_batch(int(path.stem), data, pos))
            pos = end
    return Log(segments, batches)


def _read_batch(segment: int, data: bytes, pos: int) -> Batch:
    base, _, leader_epoch, magic, _, attributes, delta, _, _, pid, epoch, _, _ = (
        _HEADER.unpack_from(data, pos)
    )
    assert magic == 2
    marker = ""
    if attributes & _CONTROL:
        # length, attributes, timestamp and offset delta, length of the key: a byte each
        _, kind = struct.unpack_from(">hh", data, pos + _HEADER.size + 5)
        marker = _MARKERS[kind]
    return Batch(
        segment,
        base,
        base + delta,
        leader_epoch,
        pid,
        epoch,
        bool(attributes & _TRANSACTIONAL),
        marker,
    )


def transactions(batches: Iterable[Batch]) -> list[Transaction]:
    """All of them, by their first offset; a marker without data makes none."""
    found: list[Transaction] = []
    is_open: dict[int, list[Batch]] = {}
    for each in batches:
        if each.marker:
            data = is_open.pop(each.producer_id, None)
            if data:
                found.append(Transaction(each.producer_id, data, each))
        elif each.is_transactional:
            is_open.setdefault(each.producer_id, []).append(each)
    found += [Transaction(pid, data, None) for pid, data in is_open.items()]
    return sorted(found, key=lambda each: each.first_offset)


def stable_end(log: Log) -> int:
    """Where read_committed ends: at the first open transaction, else at the end of the log."""
    is_open = [each for each in transactions(log.batches) if each.marker is None]
    return min([each.first_offset for each in is_open], default=log.end_offset)


def read_committed(log: Log, records: Sequence[Incoming]) -> list[Incoming]:
    """Those of the records that a reader of committed ones gets (RC-5)."""
    dropped = {
        offset
        for each in transactions(log.batches)
        if each.marker is not None and each.marker.marker == "ABORT"
        for batch in each.data
        for offset in range(batch.base_offset, batch.last_offset + 1)
    }
    end = stable_end(log)
    return [each for each in records if each.offset < end and each.offset not in dropped]


def read_offset_lines(path: Path, topic: str) -> dict[int, int]:
    """Partition -> offset, of one topic in one of the checkpoints of a log dir."""
    lines = [line.split() for line in path.read_text().splitlines()[2:]]
    return {int(number): int(offset) for name, number, offset in lines if name == topic}
