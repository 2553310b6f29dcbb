"""What a salvage keeps of damaged segments: every good batch, and nothing that is none."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.repair import salvage_scan
from recovery.repair.salvage_scan import SalvagedSegment, salvage_segment
from storage.files.positioned_file import FileRange
from storage.formats.offset_index import parse_entries
from storage.formats.record import Record
from storage.kernels.protocol import VerdictKind
from tests.batches import encoded_batch
from tests.damage.faults import Batch, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.formats.offset_index import OffsetIndexEntry

UNCHECKED_BYTES = 17  # of a batch, that no checksum covers: offset, length, leader epoch, magic
EPOCH_BYTES = range(12, 16)
MAGIC_POS = 16
OFFSET_BYTES = range(8)


class Original:
    """An undamaged segment: its bytes, its batches, its index."""

    def __init__(self, path: Path) -> None:
        self.name = f"{path.parent.name}/{path.name}"
        self.data = path.read_bytes()
        self.base_offset = int(path.stem)
        self.batches = read_batches(self.data)
        self.entries = parse_entries(path.with_suffix(".index").read_bytes())

    def first_offset(self, number: int) -> int:
        """Of a batch; a legacy wrapper tells the last one only, and nothing is missing there."""
        batch = self.batches[number]
        if batch.magic == 2 or not number:
            return batch.base_offset if batch.magic == 2 else self.base_offset
        return self.batches[number - 1].last_offset + 1

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1

    def is_dense(self) -> bool:
        """Nothing is missing between its batches."""
        ends = [self.base_offset, *(each.last_offset + 1 for each in self.batches)]
        return [each.base_offset for each in self.batches] == ends[:-1]

    def kept_numbers(self, found: SalvagedSegment) -> set[int]:
        return {
            number
            for number, each in enumerate(self.batches)
            if any(run.start_pos <= each.pos and each.end <= run.end_pos for run in found.runs)
        }


def salvage(
    path: Path, original: Original, data: bytes, entries: Iterable[OffsetIndexEntry] = ()
) -> SalvagedSegment:
    path.write_bytes(data)
    return salvage_segment(
        str(path), original.base_offset, end_offset=original.end_offset, entries=[*entries]
    )


def content_of(found: SalvagedSegment, data: bytes) -> bytes:
    """What the `.log` is to be."""
    return b"".join(data[start:end] for start, end in found.kept_ranges)


def offsets_of(found: SalvagedSegment) -> set[int]:
    return {
        offset
        for each in found.losses
        if each.last_offset is not None
        for offset in range(each.base_offset, each.last_offset + 1)
    }


def logs_in(root: Path) -> list[Original]:
    paths = sorted(path for path in root.rglob("*.log") if "__cluster" not in str(path))
    return [Original(path) for path in paths if path.stat().st_size]


def require_right(original: Original, found: SalvagedSegment, touched: dict[int, set[int]]) -> None:
    """`touched`: changed places of batches, by their numbers."""
    kept, count = original.kept_numbers(found), len(original.batches)
    context = (original.name, touched, found.losses)
    assert {*range(count)} - {*touched} <= kept, context
    for number in kept & {*touched}:
        assert max(touched[number]) < UNCHECKED_BYTES, context
        # Beside a batch that is lost there is room for another offset, and nothing to tell it by.
        has_room = {number - 1, number + 1} & {*range(count)} - kept
        if original.is_dense() and original.batches[0].magic == 2 and not has_room:
            assert touched[number] <= {*EPOCH_BYTES, MAGIC_POS}, context
    missing, pending = set[int](), original.base_offset
    for number, batch in enumerate(original.batches):
        if number in kept:
            if number and number - 1 not in kept:
                missing |= {*range(pending, original.first_offset(number))}
            pending = batch.last_offset + 1
        elif number == count - 1:
            missing |= {*range(pending, original.end_offset)}
    if all(not touched[number] & {*OFFSET_BYTES} for number in kept & {*touched}):
        assert offsets_of(found) == missing, context
    assert sum(each.end_pos - each.start_pos for each in found.losses) + sum(
        end - start for start, end in found.kept_ranges
    ) == len(original.data)


@pytest.mark.share(1)
@pytest.mark.parametrize("golden_name", ["kafka-4.3.1", "kafka-0.10.2-legacy"])
def test_random_damage_costs_what_it_touched(
    golden: Callable[[str], Path], tmp_path: Path, golden_name: str
) -> None:
    """Bits, anywhere and in what no checksum covers, in up to six batches."""
    root = golden(golden_name)
    originals = logs_in(root / "clean" if golden_name == "kafka-4.3.1" else root)
    assert len(originals) >= 8
    lost_count = 0
    for original in originals:
        path = tmp_path / f"{original.base_offset:020d}.log"
        for seed in range(12):
            source = random.Random(f"{original.name} {seed}")
            data = bytearray(original.data)
            for _ in range(source.randint(1, 6)):
                number = source.randrange(len(original.batches))
                batch = original.batches[number]
                end = UNCHECKED_BYTES if source.random() < 0.5 else batch.size
                place = source.randrange(end)
                data[batch.pos + place] ^= 1 << source.randrange(8)
            found = salvage(path, original, data, original.entries)
            require_right(original, found, changes(original, data))
            lost_count += len(found.losses)
    assert lost_count > 100


def changes(original: Original, data: bytes) -> dict[int, set[int]]:
    """Places that differ, by the number of their batch."""
    found: dict[int, set[int]] = {}
    for number, batch in enumerate(original.batches):
        old, new = original.data[batch.pos : batch.end], data[batch.pos : batch.end]
        if old != new:
            places = range(batch.size)
            found[number] = {each for each in places if old[each] != new[each]}
    return found


def flips(batch: Batch, fields: range) -> Iterable[tuple[int, int]]:
    return ((batch.pos + place, 1 << bit) for place in fields for bit in range(8))


@pytest.mark.parametrize(
    "name", ["clean/plain-0/00000000000000000000.log", "clean/rolled-0/00000000000000000025.log"]
)
def test_every_bit_that_no_checksum_covers(
    golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """A raised or lowered offset or length costs its batch; a leader epoch costs nothing.

    Nor does a magic, which the checksum proves to be 2: it is put right.
    """
    original = Original(golden("kafka-4.3.1") / name)
    path = tmp_path / Path(name).name
    count = len(original.batches)
    for number in (0, 1, count - 2, count - 1):
        batch = original.batches[number]
        for pos, bit in flips(batch, range(UNCHECKED_BYTES)):
            data = bytearray(original.data)
            data[pos] ^= bit
            found = salvage(path, original, data)
            place = pos - batch.pos
            require_right(original, found, {number: {place}})
            is_kept = number in original.kept_numbers(found)
            assert is_kept == (place in (*EPOCH_BYTES, MAGIC_POS)), (number, place, bit)
            if place == MAGIC_POS:
                assert content_of(found, data) == original.data


def test_a_leader_epoch_that_falls_is_a_suspicion(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    original = Original(golden("kafka-4.3.1") / "clean/plain-0/00000000000000000000.log")
    data = bytearray(original.data)
    data[original.batches[1].pos + 15] ^= 8
    found = salvage(tmp_path / "00000000000000000000.log", original, data)
    assert found.losses == ()
    assert [each.check_id for each in found.suspicions] == ["BAT-14"]


# --- what lies between ----------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"\xff" * 100, bytes(50), b"\x00" * 8 + b"\x7f" * 30, b"x"])
def test_garbage_between_batches_loses_no_offset(
    golden: Callable[[str], Path], tmp_path: Path, garbage: bytes
) -> None:
    original = Original(golden("kafka-4.3.1") / "clean/plain-0/00000000000000000000.log")
    pos = original.batches[3].pos
    data = original.data[:pos] + garbage + original.data[pos:]
    found = salvage(tmp_path / "00000000000000000000.log", original, data)
    assert found.kept_ranges == ((0, pos), (pos + len(garbage), len(data)))
    assert offsets_of(found) == set()


def test_tails(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Zeros lose nothing; of a torn batch it is not known what it held, unless the end is."""
    original = Original(golden("kafka-4.3.1") / "clean/plain-0/00000000000000000000.log")
    path = tmp_path / "00000000000000000000.log"
    whole = len(original.data)
    (zeros,) = salvage(path, original, original.data + bytes(4096)).losses
    assert (zeros.kind, zeros.start_pos) == (VerdictKind.PREALLOCATED, whole)
    assert zeros.last_offset == zeros.base_offset - 1
    last = original.batches[-1]
    (torn,) = salvage(path, original, original.data[:-5]).losses
    assert torn.kind is VerdictKind.TORN_TAIL
    assert (torn.start_pos, torn.base_offset, torn.last_offset) == (
        last.pos, last.base_offset, last.last_offset,
    )  # fmt: skip
    (unknown,) = salvage_segment(str(path), 0).losses
    assert (unknown.base_offset, unknown.last_offset) == (last.base_offset, None)
    middle = salvage_segment(str(path), 0, is_last=False, end_offset=original.end_offset + 7)
    assert middle.losses[0].kind is VerdictKind.CORRUPT
    assert middle.losses[0].last_offset == original.end_offset + 6


def test_all_of_it_is_gone(golden: Callable[[str], Path], tmp_path: Path) -> None:
    original = Original(golden("kafka-4.3.1") / "clean/plain-0/00000000000000000000.log")
    noise = random.Random(5).randbytes(len(original.data))
    found = salvage(tmp_path / "00000000000000000000.log", original, noise)
    assert found.kept_ranges == ()
    assert offsets_of(found) == {*range(original.end_offset)}


def test_what_follows_a_clean_end_stays_if_it_goes_on(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """The recovery point of a clean stop may be older than what another program appended."""
    original = Original(golden("kafka-4.3.1") / "clean/plain-0/00000000000000000000.log")
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(original.data)
    end_offset = original.batches[-2].base_offset
    assert salvage_segment(str(path), 0, end_offset=end_offset).losses == ()


# --- batches in batches ---------------------------------------------------------------------------


def records(*values: bytes) -> list[Record]:
    return [Record(0, 0, number, None, value, ()) for number, value in enumerate(values)]


def with_a_batch_inside(inner: bytes, behind: bytes) -> tuple[bytes, list[int]]:
    """Six batches, of which the third holds a whole one; returns also where each begins."""
    parts = [encoded_batch(offset, records(b"a", b"b")) for offset in (0, 2)]
    parts.append(encoded_batch(4, records(b"before", inner + behind, b"after" * 9)))
    parts += [encoded_batch(offset, records(b"c", b"d" * 60)) for offset in (7, 9, 11)]
    starts = [sum(map(len, parts[:number])) for number in range(len(parts) + 1)]
    return b"".join(parts), starts


@pytest.mark.parametrize("behind", [b"", bytes(40), struct.pack(">qi", 7, 90) + b"\0\0\0\0\2"])
@pytest.mark.parametrize("inner_offset", [0, 5, 6])
@pytest.mark.parametrize("place", [*range(17)])
def test_a_batch_in_a_value_is_none(
    tmp_path: Path, behind: bytes, inner_offset: int, place: int
) -> None:
    """Its own header is whole and plausible, and what is behind it, too."""
    inner = encoded_batch(inner_offset, records(b"inner"))
    data, starts = with_a_batch_inside(inner, behind)
    path = tmp_path / "00000000000000000000.log"
    for bit in range(8):
        damaged = bytearray(data)
        damaged[starts[2] + place] ^= 1 << bit
        path.write_bytes(damaged)
        found = salvage_segment(str(path), 0, end_offset=13)
        if place in EPOCH_BYTES:
            assert found.kept_ranges == ((0, len(data)),)
        elif place == MAGIC_POS:
            assert content_of(found, damaged) == data
            assert found.losses == ()
        else:
            assert found.kept_ranges == ((0, starts[2]), (starts[3], len(data)))
            assert offsets_of(found) == {4, 5, 6}


def test_a_batch_in_a_value_with_damage_on_both_sides(tmp_path: Path) -> None:
    """The checksum of the outer batch, whose length is wrong, reaches over it to a later one."""
    inner = encoded_batch(5, records(b"inner"))
    data, starts = with_a_batch_inside(inner * 3, bytes(30))
    damaged = bytearray(data)
    for place in (starts[2] + 11, starts[4] + 70):
        damaged[place] ^= 0x55
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(damaged)
    found = salvage_segment(str(path), 0, end_offset=13)
    assert found.kept_ranges == (
        (0, starts[2]), (starts[3], starts[4]), (starts[5], len(data)),
    )  # fmt: skip


# --- offsets that contradict each other -----------------------------------------------------------


def dense(count: int = 10) -> tuple[list[bytes], list[int]]:
    parts = [encoded_batch(2 * number, records(b"a", b"b")) for number in range(count)]
    return parts, [sum(map(len, parts[:number])) for number in range(count + 1)]


def moved(batch: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + batch[8:]


@pytest.mark.parametrize("number", [0, 1, 5, 8, 9])
@pytest.mark.parametrize("by", [-19, -3, -2, -1, 1, 2, 3, 5, 300, 2**20, 2**31, 2**40])
@pytest.mark.parametrize("end_offset", [None, 20])
def test_one_wrong_offset_costs_one_batch(
    tmp_path: Path, number: int, by: int, end_offset: int | None
) -> None:
    parts, starts = dense()
    data = b"".join(
        moved(each, max(2 * place + by, -1)) if place == number else each
        for place, each in enumerate(parts)
    )
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    found = salvage_segment(str(path), 0, end_offset=end_offset)
    expected = [*itertools.pairwise(starts)]
    if number == 9 and by > 0 and end_offset is None and by < 2**31 - 20:
        assert found.losses == ()  # a gap before the last batch is legal, and nothing tells
        return
    del expected[number]
    kept = {place for start, end in found.kept_ranges for place in range(start, end)}
    assert kept == {place for start, end in expected for place in range(start, end)}


def test_batches_of_the_next_segment_do_not_stay(tmp_path: Path) -> None:
    parts, starts = dense()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    found = salvage_segment(str(path), 0, is_last=False, end_offset=16)
    assert found.kept_ranges == ((0, starts[8]),)
    assert [each.check_id for each in found.losses] == ["SEG-1"]
    assert offsets_of(found) == set()


def test_behind_a_raised_offset_and_damage(tmp_path: Path) -> None:
    """The search takes a raised offset for its lower bound, and finds nothing; so again."""
    parts, starts = dense()
    parts[3] = moved(parts[3], 1 << 28)
    damaged = bytearray(b"".join(parts))
    damaged[starts[4] + 9] ^= 0x11
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(damaged)
    for end_offset in (None, 20):
        found = salvage_segment(str(path), 0, end_offset=end_offset)
        assert found.kept_ranges == ((0, starts[3]), (starts[5], starts[10]))


def test_index_decides_one_against_one(tmp_path: Path) -> None:
    """Between two losses nothing else can tell which of two batches has the wrong offset."""
    parts, starts = dense(6)
    for lost in (1, 4):
        parts[lost] = parts[lost][:-1] + b"?"
    parts[3] = moved(parts[3], 4)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    right = [(5, starts[2])]
    entries = parse_entries(b"".join(struct.pack(">ii", *each) for each in right))
    found = salvage_segment(str(path), 0, end_offset=12, entries=entries)
    assert (starts[2], starts[3]) in found.kept_ranges
    wrong = parse_entries(struct.pack(">ii", 5, starts[3]) + struct.pack(">ii", 4, starts[2]))
    assert salvage_segment(str(path), 0, end_offset=12, entries=wrong).losses


def test_behind_raised_offsets_that_fall(tmp_path: Path) -> None:
    """Each is found only behind the one before, and what is good behind the last of them."""
    parts, starts = dense(30)
    for number in range(0, 8, 2):
        parts[number] = moved(parts[number], (1 << 20) - number * 1000)
        parts[number + 1] = parts[number + 1][:-1] + b"?"
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    for end_offset in (None, 60):
        found = salvage_segment(str(path), 0, end_offset=end_offset)
        assert found.kept_ranges == ((starts[8], starts[30]),)


def test_behind_a_raised_offset_and_one_above_the_end(tmp_path: Path) -> None:
    parts, starts = dense(40)
    parts[7] = parts[7][:-1] + b"?"
    parts[9] = moved(parts[9], 50)
    parts[10] = moved(parts[10], 1 << 18)
    damaged = bytearray(b"".join(parts))
    for place in (6, 11):
        damaged[starts[11] + place] ^= 0x24
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(damaged)
    found = salvage_segment(str(path), 0, end_offset=80)
    assert found.kept_ranges == (
        (0, starts[7]), (starts[8], starts[9]), (starts[12], starts[40]),
    )  # fmt: skip


def test_many_batches_above_the_end(tmp_path: Path) -> None:
    """None of them is looked for again, one behind the other."""
    parts = [moved(each, (1 << 30) + 2 * number) for number, each in enumerate(dense(1200)[0])]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    found = salvage_segment(str(path), 0, end_offset=2400)
    assert found.kept_ranges == ()
    assert offsets_of(found) == {*range(2400)}


def test_many_raised_offsets_behind_each_other(tmp_path: Path) -> None:
    """More than are followed: the search ends, and what it has stays."""
    parts, starts = dense(800)
    for number in range(10, 790, 2):
        parts[number] = moved(parts[number], (1 << 30) - number * 1000)
        parts[number + 1] = parts[number + 1][:-1] + b"?"
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    found = salvage_segment(str(path), 0)
    assert found.kept_ranges[0][0] == 0
    assert found.kept_ranges[0][1] >= starts[10]


def test_content_of_damaged_batches_has_a_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind each of many damaged batches the rest is not read again, boundary by boundary."""
    monkeypatch.setattr(salvage_scan, "CONTENT_BUDGET_BYTES", 0)
    parts, _ = dense(400)
    damaged = [each[:-1] + b"?" if number % 2 else each for number, each in enumerate(parts)]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(damaged))
    read_count = 0
    read = FileRange.read

    def counted(source: FileRange, pos: int, count: int) -> bytes:
        nonlocal read_count
        read_count += count > 1000
        return read(source, pos, count)

    monkeypatch.setattr(FileRange, "read", counted)
    assert len(salvage_segment(str(path), 0).kept_ranges) == 200
    assert read_count < 20


def test_a_good_batch_between_damaged_headers(tmp_path: Path) -> None:
    """Neither lengths lead to it, nor is offset or length of what follows possible."""
    parts, starts = dense()
    damaged = bytearray(b"".join(parts))
    for number, places in ((5, (11, 29)), (7, (0, 10))):
        for place in places:
            damaged[starts[number] + place] ^= 0x10
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(damaged)
    found = salvage_segment(str(path), 0, end_offset=20)
    assert found.kept_ranges == (
        (0, starts[5]), (starts[6], starts[7]), (starts[8], starts[10]),
    )  # fmt: skip


def test_the_batch_goes_that_has_room_elsewhere(tmp_path: Path) -> None:
    """The first says the offsets of the third; only it finds others between its neighbours."""
    counts = (3, 1, 4, 1, 5)
    offsets = [sum(counts[:number]) for number in range(6)]
    parts = [
        encoded_batch(offset, records(*[b"v"] * count))
        for offset, count in zip(offsets, counts, strict=False)
    ]
    starts = [sum(map(len, parts[:number])) for number in range(6)]
    parts[0] = moved(parts[0], 4)
    for lost in (1, 3):
        parts[lost] = parts[lost][:-1] + b"?"
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    found = salvage_segment(str(path), 0, end_offset=offsets[5])
    assert found.kept_ranges == ((starts[2], starts[3]), (starts[4], starts[5]))


def test_a_lowered_legacy_wrapper(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Its header tells the last offset only, which is above those of the batch before."""
    original = Original(golden("kafka-0.10.2-legacy") / "v1-gzip-0/00000000000000000000.log")
    data = bytearray(original.data)
    batch = original.batches[3]
    data[batch.pos + 7] ^= 4
    assert original.first_offset(3) <= batch.last_offset - 4
    found = salvage(tmp_path / "00000000000000000000.log", original, data)
    assert original.kept_numbers(found) == {0, 1, 2, 4}


@pytest.mark.parametrize("number", [0, 1, 2, 4])
@pytest.mark.parametrize("bit", [1, 4, 16, 64])
def test_a_wrong_offset_of_a_wrapper_of_absolute_ones(
    golden: Callable[[str], Path], tmp_path: Path, number: int, bit: int
) -> None:
    original = Original(golden("kafka-0.10.2-legacy") / "v0-snappy-0/00000000000000000000.log")
    data = bytearray(original.data)
    data[original.batches[number].pos + 7] ^= bit
    found = salvage(tmp_path / "00000000000000000000.log", original, data)
    assert original.kept_numbers(found) == {0, 1, 2, 3, 4} - {number}


def test_a_suspicion_is_of_a_batch_that_stays(tmp_path: Path) -> None:
    parts, starts = dense()
    later = [each[:15] + b"\1" + each[16:] for each in parts]
    later[6] = moved(parts[6], 15)  # of epoch 0 again, and its offset is not its own
    later[8] = parts[8]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(later))
    found = salvage_segment(str(path), 0, end_offset=20)
    assert found.kept_ranges == ((0, starts[6]), (starts[7], starts[10]))
    assert [each.start_pos for each in found.suspicions] == [starts[8]]
