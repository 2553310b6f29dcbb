"""Faults in `.log` files and what a scan has to say about them. Imports nothing of ours.

Everything here is worked out from the undamaged file and the layout in Kafka's words: where the
batches are, what a changed bit means, which rule it breaks, where the chain of lengths goes on.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

SEGMENT_SPAN = 2**31 - 1

# Why a changed bit may go unseen by a scan of headers and checksums, and where to look instead.
UNSEEN = {
    "offset_gap": (
        "base offset moved within a gap, or in the last batch upwards: gaps are legal (compaction, "
        "markers); producer sequences and indexes are what can tell"
    ),
    "leader_epoch_up": (
        "leader epoch raised, but not above that of the batch behind: epochs may rise at any batch; "
        "the leader epoch checkpoint is what can tell"
    ),
}


@dataclass(frozen=True)
class Batch:
    """One batch or legacy message of an undamaged file."""

    pos: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int

    @property
    def end(self) -> int:
        return self.pos + self.size


@dataclass
class Fault:
    """A damaged file and the result that a scan with resume has to give.

    rows: (pos, size, crc_ok) of every batch; verdicts: (kind, check_id, start_pos, end_pos);
    suspicions: (check_id, start_pos); unseen: key of UNSEEN if there is nothing to see.
    """

    label: str
    data: bytes
    rows: list[tuple[int, int, bool]]
    verdicts: list[tuple[str, str, int, int]] = field(default_factory=list)
    suspicions: list[tuple[str, int]] = field(default_factory=list)
    unseen: str = ""


def read_batches(data: bytes) -> list[Batch]:
    """Take an undamaged file apart; its checksums are verified on the way."""
    batches = []
    pos = 0
    while pos < len(data):
        offset, length = struct.unpack_from(">qi", data, pos)
        size, magic = length + 12, data[pos + 16]
        if magic == 2:
            crc, _, delta = struct.unpack_from(">Ihi", data, pos + 17)
            epoch = struct.unpack_from(">i", data, pos + 12)[0]
            assert crc == crc32c.crc32c(data[pos + 21 : pos + size])
            batches.append(Batch(pos, size, 2, offset, offset + delta, epoch))
        else:
            crc = struct.unpack_from(">I", data, pos + 12)[0]
            assert crc == zlib.crc32(data[pos + 16 : pos + size])
            batches.append(Batch(pos, size, magic, offset, offset, -1))
        pos += size
    assert pos == len(data)
    return batches


def broker_walk(data: bytes) -> list[tuple[int, int]]:
    """(pos, size) of what the broker's file reader gives before it stops or raises."""
    found = []
    pos, end = 0, len(data)
    while pos < end - 17:
        length = struct.unpack_from(">i", data, pos + 8)[0]
        if length < 14 or pos > end - 12 - length:
            break
        if 2 <= data[pos + 16] < 128 and pos + 61 > end:
            break  # the header cannot be read
        found.append((pos, length + 12))
        pos += 12 + length
    return found


def _good_rows(batches: list[Batch]) -> list[tuple[int, int, bool]]:
    return [(each.pos, each.size, True) for each in batches]


def _falling_epochs(epochs: list[tuple[int, int]]) -> list[tuple[str, int]]:
    """BAT-14 for each (pos, epoch) below the last known one before it; -1 stands for unknown."""
    found, before = [], -1
    for pos, epoch in epochs:
        if epoch < before and epoch != -1:
            found.append(("BAT-14", pos))
        if epoch >= 0:
            before = epoch
    return found


class FaultMaker:
    """Makes faults of one undamaged file whose segment starts at `base_offset`."""

    def __init__(self, name: str, data: bytes, base_offset: int) -> None:
        self.name = name
        self.data = data
        self.base_offset = base_offset
        self.batches = read_batches(data)
        self.end = len(data)

    def chosen(self) -> list[int]:
        """Indexes of the first three and the last two batches."""
        count = len(self.batches)
        return sorted({*range(min(3, count)), *range(max(count - 2, 0), count)})

    # --- one bit

    def bit_flips(self, *, payload_step_bits: int = 211) -> Iterator[Fault]:
        """Every bit of the headers of the chosen batches, and samples of the bits behind them."""
        for index in self.chosen():
            batch = self.batches[index]
            header_bytes = 61 if batch.magic == 2 else 26
            header_bits = min(header_bytes, batch.size) * 8
            last_bit = batch.size * 8 - 1
            bits = [*range(header_bits), *range(header_bits, last_bit, payload_step_bits), last_bit]
            for bit in dict.fromkeys(bits):
                yield self._flip(index, bit // 8, 7 - bit % 8)

    def _flip(self, index: int, byte: int, bit: int) -> Fault:
        batch = self.batches[index]
        data = bytearray(self.data)
        data[batch.pos + byte] ^= 1 << bit
        fault = Fault(
            f"{self.name} batch {index} byte {byte} bit {bit}",
            bytes(data),
            _good_rows(self.batches),
        )
        if byte < 8:
            self._expect_offset(fault, index)
        elif byte < 12:
            self._expect_length(fault, index)
        elif byte < 16 and batch.magic == 2:
            self._expect_epoch(fault, index)
        elif byte == 16:
            self._expect_magic(fault, index)
        else:
            self._spoil(fault, index, "BAT-1")
        return fault

    def _spoil(self, fault: Fault, index: int, check_id: str, *, has_row: bool = True) -> None:
        """The batch is corrupt from its start to the next; it has a row with a bad checksum."""
        batch = self.batches[index]
        fault.verdicts.append(("corrupt", check_id, batch.pos, batch.end))
        if has_row:
            fault.rows[index] = (batch.pos, batch.size, False)
        else:
            del fault.rows[index]

    def _expect_offset(self, fault: Fault, index: int) -> None:
        batch = self.batches[index]
        base = struct.unpack_from(">q", fault.data, batch.pos)[0]
        last = base + batch.last_offset - batch.base_offset
        before = self.batches[index - 1].last_offset if index else -1
        behind = self.batches[index + 1] if index + 1 < len(self.batches) else None
        here = (batch.pos, batch.end)
        if base < self.base_offset:
            fault.verdicts.append(("corrupt", "SEG-2", *here))
        elif last - self.base_offset > SEGMENT_SPAN:
            fault.verdicts.append(("corrupt", "SEG-3", *here))
        elif base <= before:
            fault.verdicts.append(("corrupt", "BAT-3", *here))
        elif behind is not None and behind.base_offset <= last:
            # One against all behind it. Where it overlaps one of them in part, both have room
            # between their neighbours, and the one whose offset is nearer to the others stays.
            later = self.batches[index + 2] if index + 2 < len(self.batches) else None
            is_unclear = base < behind.base_offset and batch.base_offset > before + 1
            if is_unclear and later is not None and later.base_offset > last + 1:
                here = (behind.pos, behind.end)
            fault.verdicts.append(("corrupt", "BAT-3", *here))
        else:
            fault.unseen = "offset_gap"

    def _expect_length(self, fault: Fault, index: int) -> None:
        """No length but the true one leads to the next batch, so the scan has to search it."""
        batch = self.batches[index]
        length = struct.unpack_from(">i", fault.data, batch.pos + 8)[0]
        end = batch.pos + 12 + length
        is_last = index == len(self.batches) - 1
        if not is_last or length < (49 if batch.magic == 2 else 14):
            self._spoil(fault, index, "BAT-2", has_row=False)
        elif end > self.end:
            del fault.rows[index]
            fault.verdicts.append(("torn_tail", "SEG-6", batch.pos, self.end))
        elif end >= self.end - 17:
            fault.rows[index] = (batch.pos, length + 12, False)
            fault.verdicts.append(("corrupt", "BAT-1", batch.pos, end))
            fault.verdicts.append(("torn_tail", "SEG-6", end, self.end))
        else:
            self._spoil(fault, index, "BAT-2", has_row=False)

    def _expect_epoch(self, fault: Fault, index: int) -> None:
        batch = self.batches[index]
        epoch = struct.unpack_from(">i", fault.data, batch.pos + 12)[0]
        epochs = [(each.pos, each.leader_epoch) for each in self.batches]
        epochs[index] = (batch.pos, epoch)
        fault.suspicions = _falling_epochs(epochs)
        if not fault.suspicions:
            fault.unseen = "leader_epoch_up"

    def _expect_magic(self, fault: Fault, index: int) -> None:
        """Magic 2 and above is read as v2, below (and negative) as legacy."""
        batch = self.batches[index]
        magic = struct.unpack_from(">b", fault.data, batch.pos + 16)[0]
        if magic >= 2 and batch.size < 61:
            self._spoil(fault, index, "BAT-2", has_row=False)
            return
        is_known = 0 <= magic <= 2 and not (magic == 1 and batch.size < 34)
        if batch.magic == 2:  # whose checksum does not cover the magic: what is there is proven
            is_known = magic < 2  # to a broker it is an old message with a wrong checksum
        self._spoil(fault, index, "BAT-1" if is_known else "BAT-2")
        fault.rows[index] = (batch.pos, batch.size, batch.magic == 2)

    # --- tails

    def cut_tails(self) -> Iterator[Fault]:
        """Every length of the last batch but its own."""
        last = self.batches[-1]
        rows = _good_rows(self.batches[:-1])
        for size in range(last.size):
            end = last.pos + size
            verdicts = [("torn_tail", "SEG-6", last.pos, end)] if size else []
            yield Fault(f"{self.name} cut to {size}", self.data[:end], list(rows), verdicts)

    def appended_tails(self) -> Iterator[Fault]:
        """Bytes behind the last batch: too few to be looked at, zeros, and junk of three kinds."""
        header = struct.pack(">qi", 2**40, 2**20) + b"\x00\x00\x00\x00\x02"
        tails = [
            (f"{size} {fill}", bytes([fill]) * size) for size in range(1, 18) for fill in (0, 9)
        ]
        tails += [(f"{size} zeros", bytes(size)) for size in (18, 61, 100, 4096, 70_000)]
        tails += [("negative length", b"\xff" * 40), ("zeros but one", bytes(5000) + b"\x01")]
        tails += [("head of a long batch", header + b"x" * 50), ("first 60", self.data[:60])]
        for label, tail in tails:
            kind, check_id = "torn_tail", "SEG-6"
            if len(tail) > 17:
                length = struct.unpack_from(">i", tail, 8)[0]
                if not any(tail):
                    kind = "preallocated"
                elif length < 14 or length + 12 <= len(tail):
                    kind, check_id = "corrupt", "BAT-2"
            verdicts = [(kind, check_id, self.end, self.end + len(tail))]
            if label == "first 60" and kind == "corrupt":
                continue  # a whole small message: see duplicated
            rows = _good_rows(self.batches)
            yield Fault(f"{self.name} + {label}", self.data + tail, rows, verdicts)

    # --- stretches

    def zeroed(self) -> Iterator[Fault]:
        """A payload, a batch or several, and everything from somewhere to the end become zeros."""
        for index in self.chosen():
            batch = self.batches[index]
            header_bytes = 61 if batch.magic == 2 else 34
            if batch.size > header_bytes + 8:
                yield self._zeroed_payload(index, header_bytes)
            for reach in (index, min(index + 2, len(self.batches) - 1)):
                yield self._zeroed_batches(index, reach)
            yield self._zeroed_to_end(index)

    def _zero(self, label: str, start: int, end: int) -> Fault:
        data = self.data[:start] + bytes(end - start) + self.data[end:]
        return Fault(f"{self.name} zeros {label}", data, _good_rows(self.batches))

    def _zeroed_payload(self, index: int, header_bytes: int) -> Fault:
        batch = self.batches[index]
        fault = self._zero(f"in payload {index}", batch.pos + header_bytes, batch.end)
        self._spoil(fault, index, "BAT-1")
        return fault

    def _zeroed_batches(self, index: int, reach: int) -> Fault:
        """From the start of one batch into the payload of another."""
        first, last = self.batches[index], self.batches[reach]
        fault = self._zero(f"from batch {index} into {reach}", first.pos, last.end - 4)
        del fault.rows[index : reach + 1]
        kind, check_id = "corrupt", "BAT-2"
        if not any(fault.data[first.pos :]):
            kind, check_id = "preallocated", "SEG-6"
        fault.verdicts.append((kind, check_id, first.pos, last.end))
        return fault

    def _zeroed_to_end(self, index: int) -> Fault:
        """From the middle of a batch to the end: what a crash leaves of a file without fsync."""
        batch = self.batches[index]
        fault = self._zero(f"from inside {index} to the end", batch.end - 6, self.end)
        fault.rows = fault.rows[: index + 1]
        if fault.data[: batch.end] != self.data[: batch.end]:
            self._spoil(fault, index, "BAT-1")
        if batch.end < self.end:
            fault.verdicts.append(("preallocated", "SEG-6", batch.end, self.end))
        return fault

    # --- whole batches

    def rearranged(self) -> Iterator[Fault]:
        """A batch twice, two batches swapped, a batch taken out."""
        for index in self.chosen():
            order = list(range(len(self.batches)))
            yield self._in_order("doubled", [*order[: index + 1], *order[index:]])
            yield self._in_order("taken out", [*order[:index], *order[index + 1 :]])
            if index + 1 < len(order):
                swapped = [*order[:index], index + 1, index, *order[index + 2 :]]
                yield self._in_order("swapped", swapped)

    def _in_order(self, label: str, order: list[int]) -> Fault:
        """The batch whose offset is not between those before and behind it is the damage."""
        fault = Fault(f"{self.name} {label} {order}", b"", [])
        epochs = []
        before = -1
        for place, index in enumerate(order):
            batch, pos = self.batches[index], len(fault.data)
            fault.data += self.data[batch.pos : batch.end]
            fault.rows.append((pos, batch.size, True))
            epochs.append((pos, batch.leader_epoch))
            # At the end nothing is behind both: the last one has room there, and the other none.
            is_too_early = [index - 1] == order[place + 1 : place + 2] != order[-1:]
            if is_too_early:  # unless nothing is missing if the other one is moved behind it
                other, following = self.batches[index - 1], self.batches[order[place + 2]]
                count = other.last_offset - other.base_offset + 1
                is_dense = other.base_offset == before + 1
                is_too_early = is_dense or following.base_offset != batch.last_offset + 1 + count
            if batch.base_offset <= before or is_too_early:
                fault.verdicts.append(("corrupt", "BAT-3", pos, pos + batch.size))
            else:
                before = batch.last_offset
        fault.suspicions = _falling_epochs(epochs)
        return fault

    def unreadable_stretch(self, start: int, end: int) -> Fault:
        """The operating system refuses [start, end): batches that touch it are lost."""
        fault = Fault(f"{self.name} unreadable {start}..{end}", self.data, _good_rows(self.batches))
        touched = [
            index for index, each in enumerate(self.batches) if each.pos < end and start < each.end
        ]
        first, last = self.batches[touched[0]], self.batches[touched[-1]]
        del fault.rows[touched[0] : touched[-1] + 1]
        fault.verdicts.append(("unreadable", "", first.pos, last.end))
        return fault
