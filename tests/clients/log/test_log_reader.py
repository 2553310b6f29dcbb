"""Reading a log as a consumer's fetches do: in bulk as plainly, in parts as at once, past damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.log import log_walk
from eoctl.clients.log.consumer import LogReader
from eoctl.clients.log.log_walk import DamageError
from storage.dirs.discovery import select_partition
from storage.dirs.lookup import END_KINDS
from storage.dirs.partition import Partition
from storage.errors import AccessError, FormatError
from storage.formats.offset_index import OffsetIndexEntry, encode_entries
from storage.formats.record import Record
from storage.limits import MAX_OFFSET
from storage.log.segment import open_segment
from tests.batches import encoded_batch
from tests.made_logs import damaged_logs, logs, with_right_checksums
from tests.writing import partition_at

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from eoctl.clients.log.consumer import AnyRecords
    from storage.places.log_reader import ReadFinding

Rows = list[tuple[Any, ...]]
BULK, PLAIN = 0, 1 << 62


def partition_of(directory: Path, *segments: bytes) -> Partition:
    """A partition with these segments; each begins behind the last offset of the one before."""
    directory.mkdir(exist_ok=True)
    base_offset = 0
    for data in segments:
        path = directory / f"{base_offset:020d}.log"
        path.write_bytes(data)
        with open_segment(path) as segment:
            last = [each.header.last_offset for each in segment.scan()]
        base_offset = max([base_offset, *last]) + 1
    return Partition.of(select_partition(directory))


def rows_of(found: Iterable[AnyRecords]) -> Rows:
    rows: Rows = []
    for each in found:
        lists = each.lists()
        headers = lists.headers or [()] * lists.row_count
        assert lists.row_count == each.row_count
        assert (lists.offsets[0], lists.offsets[-1]) == (each.first_offset, each.last_offset)
        assert each.next_offset > each.last_offset
        assert each.next_offset == lists.next_offset
        for row in zip(
            lists.offsets, lists.timestamps_ms, lists.keys, lists.values, headers, strict=True
        ):
            rows.append((*row[:4], tuple(map(tuple, row[4])), lists.timestamp_type))
    return rows


def read(partition: Partition, least_bytes: int, start: int, end: int) -> tuple[Any, ...]:
    """Read past damage, in bulk or plainly: records, what was skipped, where it ended."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(log_walk, "BULK_MIN_BYTES", least_bytes)
        reader = LogReader(partition, start, skip_corrupt=True)
        rows = rows_of(reader.read(end))
        tail = list(reader.tail)
        reader.finish()
    return rows, reader.skipped, tail, reader.next_offset


def until_damage(reader: LogReader, end: int = MAX_OFFSET) -> tuple[Rows, ReadFinding | None]:
    """The records before the first damage, and that."""
    rows: Rows = []
    try:
        for each in reader.read(end):
            rows += rows_of([each])
        reader.finish()
    except DamageError as exc:
        return rows, exc.damage
    return rows, None


def defined(partition: Partition, start: int, end: int) -> Rows:
    """The records of all good batches, by the plain scan."""
    rows: Rows = []
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            scan = segment.scan(is_active=partition.is_active(files))
            batches = list(scan)
            bad = {each.start_pos for each in scan.verdicts if each.kind not in END_KINDS}
            for batch in batches:
                if batch.pos in bad or batch.header.is_control:
                    continue
                try:
                    records = list(segment.records(batch))
                except (FormatError, AccessError):
                    continue
                kind = "LogAppendTime" if batch.header.is_log_append_time else "CreateTime"
                rows += (
                    (r.offset, r.timestamp_ms, r.key, r.value, tuple(map(tuple, r.headers)), kind)
                    for r in records
                )
    return [row for row in rows if start <= row[0] < end]


bounds = st.tuples(st.integers(0, 40), st.integers(0, 40) | st.just(MAX_OFFSET))


@given(first=logs(max_batches=6), second=logs(max_batches=6), wanted=bounds)
def test_healthy_logs(
    first: bytes, second: bytes, wanted: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    partition = partition_of(tmp_path_factory.mktemp("log") / "t-0", first, second)
    start, end = wanted
    plain = read(partition, PLAIN, start, end)
    assert read(partition, BULK, start, end) == plain
    in_order = [each[0] for each in plain[0]]
    if in_order == sorted(set(in_order)):  # else offsets lie before the batch that they are in
        assert plain[0] == defined(partition, start, end)


@given(data=damaged_logs(), is_repaired=st.booleans(), wanted=bounds)
def test_damaged_logs(
    data: bytes, wanted: tuple[int, int], tmp_path_factory: pytest.TempPathFactory, *,
    is_repaired: bool,
) -> None:  # fmt: skip
    data = with_right_checksums(data) if is_repaired else data
    partition = partition_of(tmp_path_factory.mktemp("log") / "t-0", data)
    start, end = wanted
    plain = read(partition, PLAIN, start, end)
    assert read(partition, BULK, start, end) == plain
    everything, skipped, _, _ = plain
    strict = LogReader(partition, start)
    found, damage = until_damage(strict, end)
    assert damage == (skipped[0] if skipped else None)
    assert found == (everything[: len(found)] if skipped else everything)
    assert strict.next_offset >= max([start - 1, *(row[0] for row in found)])


@given(data=logs(), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_in_parts_as_at_once(
    data: bytes, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A reader goes on where it ended, also in the middle of a batch."""
    partition = partition_of(tmp_path_factory.mktemp("log") / "t-0", data)
    for least_bytes in (BULK, PLAIN):
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(log_walk, "BULK_MIN_BYTES", least_bytes)
            reader = LogReader(partition, 0)
            parts: Rows = []
            for end in [*sorted(cuts), MAX_OFFSET]:
                parts += rows_of(reader.read(end))
        assert parts == read(partition, least_bytes, 0, MAX_OFFSET)[0]


# --- indexes, and damage before what is wanted ----------------------------------------------------


def batch(offset: int, count: int = 10) -> bytes:
    return encoded_batch(offset, [Record(0, 0, n, None, b"%d" % n, ()) for n in range(count)])


def offsets(found: Iterable[AnyRecords]) -> list[int]:
    return [offset for each in found for offset in each.lists().offsets]


@pytest.mark.parametrize("index", ["right", "wrong", "missing"])
def test_the_index_is_only_a_hint(index: str, tmp_path: Path) -> None:
    batches = [batch(10 * n) for n in range(20)]
    partition_of(tmp_path / "t-0", b"".join(batches))
    size = len(batches[0])
    if index != "missing":
        shift = 3 if index == "wrong" else 0
        entries = [OffsetIndexEntry(10 * n + 9, n * size + shift) for n in range(2, 20, 3)]
        (tmp_path / "t-0" / f"{0:020d}.index").write_bytes(encode_entries(entries))
    partition = Partition.of(select_partition(tmp_path / "t-0"))
    for start in (0, 1, 57, 120, 199, 200, 500):
        reader = LogReader(partition, start)
        assert offsets(reader.read()) == list(range(start, 200))
        reader.seek(3)
        assert offsets(reader.read(7)) == [3, 4, 5, 6]


@pytest.mark.parametrize("least_bytes", [BULK, PLAIN])
def test_damage_before_the_first_record_does_not_matter(
    least_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_walk, "BULK_MIN_BYTES", least_bytes)
    data = bytearray(b"".join(batch(10 * n) for n in range(6)))
    size = len(data) // 6
    data[2 * size + 70] ^= 1  # offsets 20 to 29
    partition = partition_of(tmp_path / "t-0", bytes(data))
    assert offsets(LogReader(partition, 30).read()) == list(range(30, 60))
    assert offsets(LogReader(partition, 35).read()) == list(range(35, 60))
    for start in (20, 29):
        reader = LogReader(partition, start)
        with pytest.raises(DamageError) as caught:
            list(reader.read())
        found = caught.value.damage
        assert (found.base_offset, found.last_offset, found.check_id) == (start, 29, "BAT-1")
        assert (found.start_pos, found.end_pos) == (2 * size, 3 * size)
    rows, damage = until_damage(LogReader(partition, 5))
    assert [row[0] for row in rows] == list(range(5, 20))
    assert damage is not None
    assert offsets(LogReader(partition, 5).read(20)) == list(range(5, 20))  # not met
    skipping = LogReader(partition, 5, skip_corrupt=True)
    assert offsets(skipping.read()) == [*range(5, 20), *range(30, 60)]
    assert [(each.base_offset, each.last_offset) for each in skipping.skipped] == [(20, 29)]


def test_damage_at_the_end_waits(tmp_path: Path) -> None:
    """It may be an append under way; only `finish` takes it for what it is."""
    whole = batch(0) + batch(10)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    bad = bytearray(whole)
    bad[-1] ^= 1
    partition = partition_of(tmp_path / "t-0", bytes(bad))
    reader = LogReader(partition, 0)
    assert offsets(reader.read()) == list(range(10))
    assert [each.check_id for each in reader.tail] == ["BAT-1"]
    log.write_bytes(whole)
    assert offsets(reader.read()) == list(range(10, 20))
    assert reader.tail == []
    log.write_bytes(whole + bytes(bad[len(bad) // 2 :]))
    assert offsets(reader.read()) == []
    with pytest.raises(DamageError, match="offsets 20 to unknown"):
        reader.finish()


def test_segments_that_cannot_be_opened(tmp_path: Path) -> None:
    partition = partition_of(tmp_path / "t-0", batch(0), batch(10), batch(20))
    middle = tmp_path / "t-0" / f"{10:020d}.log"
    middle.unlink()
    middle.mkdir()
    reader = LogReader(partition, 0, skip_corrupt=True)
    assert offsets(reader.read()) == [*range(10), *range(20, 30)]
    (found,) = reader.skipped
    assert (found.kind, found.base_offset, found.last_offset) == ("unreadable", 10, 19)
    reader = LogReader(partition, 0)
    with pytest.raises(DamageError) as caught:
        list(reader.read())
    assert caught.value.exit_status == 5
    middle.rmdir()
    with pytest.raises(AccessError):  # gone: to be listed again
        list(LogReader(partition, 0).read())


@pytest.mark.parametrize("base_offset, last_offset", [(10, 19), (20, None)])
def test_segments_that_cannot_be_listed(
    tmp_path: Path, base_offset: int, last_offset: int | None
) -> None:
    """A link that leads nowhere is part of the log: its records are missing."""
    directory = tmp_path / "t-0"
    partition_of(directory, batch(0), batch(10), batch(20))
    lost = directory / f"{base_offset:020d}.log"
    lost.unlink()
    lost.symlink_to("nowhere")
    partition = partition_at(directory)
    reader = LogReader(partition, 0, skip_corrupt=True)
    found = offsets(reader.read())
    reader.finish()
    assert found == [each for each in range(30) if each // 10 * 10 != base_offset]
    (damage,) = reader.skipped
    assert (damage.path, damage.kind) == (str(lost), "unreadable")
    assert (damage.base_offset, damage.last_offset) == (base_offset, last_offset)
    reader = LogReader(partition, 0)
    with pytest.raises(DamageError) as caught:  # noqa: PT012 - one of the two, by the place
        list(reader.read())
        reader.finish()
    assert caught.value.exit_status == 5
    assert offsets(LogReader(partition, 0).read(base_offset)) == [*range(base_offset)]


@pytest.mark.exhaustive
def test_many_records_in_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Huge batches and long tables are given in pieces."""
    monkeypatch.setattr(log_walk, "BULK_MIN_BYTES", BULK)
    data = batch(0, 70_000) + b"".join(batch(70_000 + 3000 * n, 3000) for n in range(30))
    partition = partition_of(tmp_path / "t-0", data)
    found = list(LogReader(partition, 69_990).read(150_000))
    assert offsets(found) == list(range(69_990, 150_000))
    assert max(each.row_count for each in found) <= 8192
    with monkeypatch.context() as plain:
        plain.setattr(log_walk, "BULK_MIN_BYTES", PLAIN)
        found = list(LogReader(partition, 5).read(150_000))
    assert offsets(found) == list(range(5, 150_000))
    assert max(each.row_count for each in found) <= 8192
