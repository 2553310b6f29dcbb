"""Batches as bytes: the same as records one by one, by whatever way they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.clients.copying.copied_batch import difference, equal_count, stamp
from eoctl.clients.log import batch_reader, log_walk
from eoctl.clients.log.batch_reader import BatchReader, TableBatches
from storage.formats.record_batch import HEADER_BYTES, parse_header
from storage.kernels.protocol import ScannedBatch
from storage.writing.record_builder import ProducerIdentity
from tests.copying import write
from tests.drawn import examples
from tests.made_logs import logs
from tests.writing import batch, make_log_dir, partition_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.log.segment import LogRecord

WAYS = [(0, 1 << 20), (1 << 30, 1 << 20), (1 << 30, 1)]  # in bulk, one by one, in small blocks


def read(directory: Path, start: int, end: int) -> tuple[list[LogRecord], list[int], int, int]:
    """Records, sizes of batches, the next offset, control batches."""
    reader = BatchReader(partition_at(directory), start)
    records: list[LogRecord] = []
    sizes, controls = [], 0
    for block in reader.read(end):
        for each in block.batches:
            records += each.records()
            sizes.append(len(each.data))
        controls += block.left_out.control_batches
        assert block.next_offset <= end
    return records, sizes, reader.next_offset, controls


@settings(max_examples=examples(60))
@given(data=logs(), bounds=st.tuples(st.integers(0, 60), st.integers(0, 90)))
def test_all_ways_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, bounds: tuple[int, int]
) -> None:
    directory = tmp_path_factory.mktemp("made") / "t-0"
    directory.mkdir()
    first_offset = int.from_bytes(data[:8], "big") if data else 0
    (directory / f"{0:020d}.log").write_bytes(data)
    start, end = (first_offset + each for each in bounds)
    found = []
    for bulk_bytes, gathered_bytes in WAYS:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log_walk, "BULK_MIN_BYTES", bulk_bytes)
            patched.setattr(batch_reader, "GATHERED_BYTES", gathered_bytes)
            found.append(read(directory, start, end))
    assert found[1:] == found[:1] * 2
    plain = [each for each in read_plainly(directory, end) if each.offset >= start]
    assert found[0][0] == plain


def read_plainly(directory: Path, end: int) -> Iterator[LogRecord]:
    """Records of data batches that end below an offset."""
    from storage.log.segment import open_segment

    with open_segment(directory / f"{0:020d}.log") as segment:
        for each in segment.scan():
            header = each.header
            if not header.is_control and header.last_offset < end:
                yield from segment.records(each)


@settings(max_examples=examples(60))
@given(data=logs())
def test_a_stamped_batch_is_a_clients_and_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    from storage.errors import RefusedError
    from storage.formats.record_batch import compute_crc

    directory = tmp_path_factory.mktemp("made") / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(data)
    sequence = 0
    for block in BatchReader(partition_at(directory), 0).read():
        for each in block.batches:
            try:
                header, sent = stamp(each, ProducerIdentity(5, 3, sequence))
            except RefusedError:  # times too far from each other
                assert each.own_records is not None
                continue
            crc = compute_crc(bytes(sent))
            assert header._replace(crc=crc) == parse_header(bytes(sent), 0)
            assert header.records_count == header.last_offset_delta + 1 == each.records_count
            assert not header.is_transactional
            assert header.delete_horizon_ms is None
            assert header[9:12] == (5, 3, sequence)
            sequence += header.records_count
            copied = each._replace(batch=ScannedBatch(0, header, crc_ok=True), own_records=None)
            if each.own_records is None:
                assert difference(each, copied, has_own_times=False) == ""


def test_a_difference_is_named(tmp_path: Path) -> None:
    directories = [make_log_dir(tmp_path / name) / "t-0" for name in ("one", "two")]
    write(directories[0], batch(3), batch(2, value=b"a"))
    write(directories[1], batch(3), batch(2, value=b"b"), batch(2, timestamp_ms=5))
    one, other = (
        [each for block in BatchReader(partition_at(path), 0).read() for each in block.batches]
        for path in directories
    )
    assert difference(one[0], other[0], has_own_times=False) == ""
    assert "3 records in the source, 2" in difference(one[0], other[1], has_own_times=False)


@pytest.mark.share(3)
@pytest.mark.parametrize("value_bytes", range(8))
def test_every_byte_of_the_records_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value_bytes: int
) -> None:
    """Many batches at once; their headers are compared as columns."""
    monkeypatch.setattr(log_walk, "BULK_MIN_BYTES", 0)
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    write(directory, batch(3), batch(1, value=b"v" * value_bytes))

    def read() -> TableBatches:
        (block,) = BatchReader(partition_at(directory), 0).read()
        assert isinstance(block.batches, TableBatches)
        return block.batches

    assert equal_count(read(), read(), has_own_times=False) == 2
    starts = (read().table.pos - read().first_pos).tolist()
    for place in range(len(read().data)):
        other = read()
        other.data[place] ^= 1
        is_in_header = any(start <= place < start + HEADER_BYTES for start in starts)
        assert equal_count(read(), other, has_own_times=False) == (2 if is_in_header else 0)
