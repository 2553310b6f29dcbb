"""Transactions of the writer: the bytes of markers, what they do to producers and `.txnindex`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from storage.dirs.log_tail import NotClosedError, empty_tail
from storage.dirs.topic_settings import LogConfig
from storage.files.fsio import FileSystem
from storage.formats.producer_snapshot import parse_snapshot
from storage.producers.producer_state import AppendError
from storage.writing.partition_store import FlushPolicy, PlannedStore
from storage.writing.writer import Appended, PartitionWriter
from tests.writing import NOW_MS, TOPIC_ID, batch, content, headers_of, make_log_dir, open_writer

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.fsio import Bytes, OpenFile

MARKER_BYTES = 78
TWO_IN_A_SEGMENT = LogConfig(segment_bytes=2 * MARKER_BYTES)  # of `txn` or markers
# A worked example: producer 1000, epoch 0, coordinator epoch 3, leader epoch 7, COMMIT at 102 and
# ABORT at 103.
EXAMPLE_MS = 0x18BCFE5680A
B1 = bytes.fromhex(
    "0000000000000066000000420000000702a544cffa0030000000000000018bcfe5680a0000018bcfe568"
    "0a00000000000003e80000ffffffff000000012000000008000000010c00000000000300"
)
B0 = bytes.fromhex(
    "0000000000000067000000420000000702517a19b20030000000000000018bcfe5680a0000018bcfe568"
    "0a00000000000003e80000ffffffff000000012000000008000000000c00000000000300"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_log_dir(tmp_path / "log-dir") / "t-0"


def txn(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> bytes:
    """A batch of a transaction."""
    return batch(count, (producer_id, epoch, sequence), is_transactional=True)


def txn_index(directory: Path, base_offset: int) -> list[tuple[int, ...]] | None:
    """(producer id, first, last, last stable offset) of its entries; None without the file."""
    path = directory / f"{base_offset:020d}.txnindex"
    if not path.exists():
        return None
    found = list(struct.iter_unpack(">hqqqq", path.read_bytes()))
    assert {version for version, *_ in found} <= {0}
    return [tuple(entry) for _, *entry in found]


def state(writer: PartitionWriter, producer_id: int) -> tuple[int, ...]:
    """(epoch, last sequence, coordinator epoch, first offset of its transaction)."""
    (found,) = [each for each in writer.producers.entries() if each.producer_id == producer_id]
    return (
        found.producer_epoch,
        found.last_sequence,
        found.coordinator_epoch,
        found.current_txn_first_offset,
    )


def refused(
    writer: PartitionWriter,
    producer_id: int,
    epoch: int,
    *,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> str:
    """The error of an ABORT marker; neither the files nor the writer have changed."""
    before = (writer.end_offset, writer.producers.entries(), dict(writer.store.changes))
    with pytest.raises(AppendError) as caught:
        writer.end_transaction(
            producer_id,
            epoch,
            is_commit=False,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
    assert (writer.end_offset, writer.producers.entries(), dict(writer.store.changes)) == before
    assert (caught.value.producer_id, caught.value.offset) == (producer_id, writer.end_offset)
    return caught.value.kafka_error


# --- the bytes ------------------------------------------------------------------------------------


def test_markers_are_the_worked_examples(directory: Path) -> None:
    tail = empty_tail(102, 4096)
    writer = open_writer(directory, tail=tail, leader_epoch=7, now_ms=EXAMPLE_MS)
    for is_commit, offset in ((True, 102), (False, 103)):
        found = writer.end_transaction(1000, 0, is_commit=is_commit, coordinator_epoch=3)
        assert found == Appended(offset, offset, is_duplicate=False)
    writer.close()
    assert (directory / f"{102:020d}.log").read_bytes() == B1 + B0
    assert len(B1) == len(B0) == MARKER_BYTES
    assert writer.log_bytes == 2 * MARKER_BYTES


def test_log_append_time(directory: Path) -> None:
    """The broker's clock, and bit 3, also in the headers of markers (APP-5)."""
    config = LogConfig(is_log_append_time=True)
    writer = open_writer(directory, config, now_ms=NOW_MS + 5)
    writer.append(batch(1, (7, 0, 0), timestamp_ms=NOW_MS - 900, is_transactional=True))
    writer.end_transaction(7, 0, is_commit=True)
    writer.close()
    data, marker = headers_of(directory)
    assert (data.attributes, marker.attributes) == (0x18, 0x38)
    assert data.max_timestamp_ms == marker.max_timestamp_ms == NOW_MS + 5
    assert (data.base_timestamp_ms, marker.base_timestamp_ms) == (NOW_MS - 900, NOW_MS + 5)
    (entry,) = parse_snapshot((directory / f"{2:020d}.snapshot").read_bytes())
    assert entry.timestamp_ms == NOW_MS + 5


def test_a_marker_counts_against_the_segment(directory: Path) -> None:
    """Full to the last byte by a marker; the next one rolls."""
    data = txn(7, 0)
    config = LogConfig(segment_bytes=len(data) + MARKER_BYTES)
    writer = open_writer(directory, config)
    writer.append(data)
    writer.end_transaction(7, 0, is_commit=True)
    assert (writer.rolled_count, writer.base_offset) == (0, 0)
    writer.end_transaction(7, 0, is_commit=True)
    assert (writer.rolled_count, writer.base_offset) == (1, 2)
    writer.close()
    sizes = [path.stat().st_size for path in sorted(directory.glob("*.log"))]
    assert sizes == [config.segment_bytes, MARKER_BYTES]


# --- the effects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_ends_the_transaction(directory: Path, is_commit: bool) -> None:
    writer = open_writer(directory, now_ms=NOW_MS + 3)
    writer.append(txn(7, 0, 2))
    assert state(writer, 7) == (0, 1, -1, 0)
    writer.end_transaction(7, 0, is_commit=is_commit, coordinator_epoch=4)
    assert state(writer, 7) == (0, 1, 4, -1)
    assert writer.producers.ongoing == {}
    # The marker's epoch is that of the data: sequences go on, and the batch before is still known.
    assert writer.append(txn(7, 0, 2)) == Appended(0, 1, is_duplicate=True)
    assert writer.append(txn(7, 2)).base_offset == 3
    assert state(writer, 7) == (0, 2, 4, 3)
    writer.close()
    (entry,) = parse_snapshot((directory / f"{4:020d}.snapshot").read_bytes())
    assert entry.current_txn_first_offset == 3
    assert (entry.coordinator_epoch, entry.timestamp_ms) == (4, NOW_MS)
    assert txn_index(directory, 0) == (None if is_commit else [(7, 0, 2, 3)])


def test_a_marker_of_a_higher_epoch_starts_sequences_anew(directory: Path) -> None:
    """As a coordinator fences (TV 0, 1), and as it always does with TV 2."""
    for version in (0, 2):
        producer_id = 7 + version
        writer = open_writer(directory)
        start = writer.end_offset
        writer.append(txn(producer_id, 5))
        writer.end_transaction(producer_id, 1, is_commit=False, transaction_version=version)
        assert state(writer, producer_id) == (1, -1, 0, -1)
        with pytest.raises(AppendError, match="INVALID_PRODUCER_EPOCH"):
            writer.append(txn(producer_id, 5))  # no duplicate any more
        with pytest.raises(AppendError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            writer.append(txn(producer_id, 6, epoch=1))
        assert writer.append(txn(producer_id, 0, epoch=1)).base_offset == start + 2
        writer.close()


def test_without_a_transaction_it_ends_nothing(directory: Path) -> None:
    """TXN-2: written all the same, and its producer is known from then on."""
    writer = open_writer(directory)
    writer.append(batch(1, (8, 2, 0)))
    writer.end_transaction(7, 3, is_commit=False, coordinator_epoch=1)
    writer.end_transaction(8, 2, is_commit=False, coordinator_epoch=1)
    writer.close()
    assert (state(writer, 7), state(writer, 8)) == ((3, -1, 1, -1), (2, 0, 1, -1))
    assert [each.is_control for each in headers_of(directory)] == [False, True, True]
    assert txn_index(directory, 0) is None
    writer = open_writer(directory)
    assert state(writer, 7) == (3, -1, 1, -1)
    with pytest.raises(AppendError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        writer.append(batch(1, (7, 3, 9)))
    assert writer.append(batch(1, (7, 3, 0))).base_offset == 3


def test_only_its_transaction_takes_batches(directory: Path) -> None:
    writer = open_writer(directory)
    writer.append(txn(7, 0))
    with pytest.raises(AppendError, match="INVALID_TXN_STATE"):
        writer.append(batch(1, (7, 0, 1)))
    with pytest.raises(AppendError, match="INVALID_TXN_STATE"):
        writer.append(batch(1, (7, 1, 0)))
    writer.append(batch(1, (8, 0, 0)))  # TXN-10: others go on
    writer.end_transaction(7, 0, is_commit=True)
    assert writer.append(batch(1, (7, 0, 1))).base_offset == 3


def test_a_closed_writer_takes_no_marker(directory: Path) -> None:
    writer = open_writer(directory)
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.end_transaction(7, 0, is_commit=True)
    assert not directory.exists()


# --- what a coordinator is refused ----------------------------------------------------------------


def test_epochs_of_transaction_versions_0_and_1(directory: Path) -> None:
    for version in (0, 1):
        writer = open_writer(directory, store=PlannedStore(str(directory)))
        writer.append(txn(7, 0, epoch=5))
        assert refused(writer, 7, 4, transaction_version=version) == "INVALID_PRODUCER_EPOCH"
        writer.end_transaction(7, 5, is_commit=True, transaction_version=version)
        writer.end_transaction(7, 5, is_commit=True, transaction_version=version)
        writer.end_transaction(7, 6, is_commit=True, transaction_version=version)
        assert refused(writer, 7, 5, transaction_version=version) == "INVALID_PRODUCER_EPOCH"


def test_epochs_of_transaction_version_2(directory: Path) -> None:
    """PROD-8: above that of the data, unless it is the same marker again (KAFKA-19999)."""
    writer = open_writer(directory)
    writer.append(txn(7, 0, epoch=5))
    for epoch in (4, 5):
        assert refused(writer, 7, epoch, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
    writer.end_transaction(7, 6, is_commit=False, transaction_version=2)
    writer.end_transaction(7, 6, is_commit=False, transaction_version=2)
    assert refused(writer, 7, 5, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
    writer.append(txn(7, 0, epoch=6))
    assert refused(writer, 7, 6, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
    writer.end_transaction(7, 8, is_commit=True, transaction_version=2)
    writer.close()
    assert state(writer, 7) == (8, -1, 0, -1)
    assert txn_index(directory, 0) == [(7, 0, 1, 2)]


def test_the_last_epoch_can_be_ended(directory: Path) -> None:
    """KAFKA-20090: there is no higher one, so that of the data will do."""
    writer = open_writer(directory, store=PlannedStore(str(directory)))
    writer.append(txn(7, 0, epoch=32_766))
    assert refused(writer, 7, 32_766, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
    writer.end_transaction(7, 32_767, is_commit=True, transaction_version=2)
    writer.append(txn(7, 0, epoch=32_767))
    assert refused(writer, 7, 32_766, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
    writer.end_transaction(7, 32_767, is_commit=True, transaction_version=2)
    assert state(writer, 7) == (32_767, 0, 0, -1)


def test_coordinator_epochs(directory: Path) -> None:
    writer = open_writer(directory)
    writer.append(txn(7, 0))
    writer.end_transaction(7, 0, is_commit=True, coordinator_epoch=3)
    writer.append(txn(7, 1))
    assert refused(writer, 7, 0, coordinator_epoch=2) == "TRANSACTION_COORDINATOR_FENCED"
    # The producer's epoch comes first.
    assert refused(writer, 7, -1, coordinator_epoch=2) == "INVALID_PRODUCER_EPOCH"
    writer.end_transaction(8, 0, is_commit=True, coordinator_epoch=2)  # of another producer
    writer.close()
    writer = open_writer(directory)
    assert refused(writer, 7, 0, coordinator_epoch=2) == "TRANSACTION_COORDINATOR_FENCED"
    writer.end_transaction(7, 0, is_commit=True, coordinator_epoch=3)


# --- `.txnindex` ----------------------------------------------------------------------------------


def test_interleaved_transactions(directory: Path) -> None:
    """TXN-6: the first offset of the earliest other one, the offset behind the marker if none."""
    writer = open_writer(directory, LogConfig())
    for producer_id in (1, 2, 3):
        writer.append(txn(producer_id, 0, 2))
    writer.end_transaction(2, 0, is_commit=False)  # at 6: 1 is open since 0, 3 since 4
    writer.end_transaction(1, 0, is_commit=False)  # at 7: 3 since 4
    writer.append(txn(2, 2))  # at 8
    writer.append(txn(1, 2))  # at 9
    writer.end_transaction(3, 0, is_commit=True)  # at 10
    writer.end_transaction(1, 0, is_commit=False)  # at 11: 2 since 8, before its own
    writer.end_transaction(2, 0, is_commit=False)  # at 12: nobody
    writer.close()
    assert txn_index(directory, 0) == [(2, 2, 6, 0), (1, 0, 7, 4), (1, 9, 11, 8), (2, 8, 12, 13)]


def test_the_segment_of_the_marker_has_the_entry(directory: Path) -> None:
    """TXN-9, at a roll and at the close; a segment without one has no file."""
    writer = open_writer(directory, TWO_IN_A_SEGMENT)
    for sequence in range(4):  # 0..1 | 2..3
        writer.append(txn(7, sequence))
    assert txn_index(directory, 0) is None
    writer.end_transaction(7, 0, is_commit=False)  # 4, rolls
    assert (writer.base_offset, writer.rolled_count) == (4, 2)
    writer.append(txn(7, 4))  # 5
    writer.end_transaction(7, 0, is_commit=False)  # 6, rolls
    assert txn_index(directory, 4) == [(7, 0, 4, 5)]
    writer.end_transaction(9, 0, is_commit=False)  # 7, ends nothing
    writer.append(txn(7, 5))  # 8, rolls
    assert txn_index(directory, 6) == [(7, 5, 6, 7)]
    writer.end_transaction(7, 0, is_commit=True)  # 9
    writer.close()
    assert writer.rolled_count == 4
    found = [txn_index(directory, int(path.stem)) for path in sorted(directory.glob("*.log"))]
    assert found == [None, None, [(7, 0, 4, 5)], [(7, 5, 6, 7)], None]


def test_the_snapshot_of_a_roll_has_the_transaction_open(directory: Path) -> None:
    """A marker that opens a segment is not in the snapshot at its base."""
    data = txn(7, 0)
    writer = open_writer(directory, LogConfig(segment_bytes=len(data)))
    writer.append(data)
    writer.end_transaction(7, 0, is_commit=False, coordinator_epoch=2)
    writer.close()
    (before,) = parse_snapshot((directory / f"{1:020d}.snapshot").read_bytes())
    (after,) = parse_snapshot((directory / f"{2:020d}.snapshot").read_bytes())
    assert (before.current_txn_first_offset, before.coordinator_epoch) == (0, -1)
    assert (after.current_txn_first_offset, after.coordinator_epoch) == (-1, 2)


def test_a_reopened_segment_keeps_its_entries(directory: Path) -> None:
    writer = open_writer(directory)
    writer.append(txn(7, 0))
    writer.end_transaction(7, 0, is_commit=False)
    writer.append(txn(7, 1))
    writer.close()
    first = [(7, 0, 1, 2)]
    assert txn_index(directory, 0) == first
    writer = open_writer(directory)
    assert writer.producers.ongoing == {2: 7}
    writer.append(txn(8, 0))
    writer.close()
    assert txn_index(directory, 0) == first
    writer = open_writer(directory)
    writer.end_transaction(7, 0, is_commit=False)
    writer.close()
    assert txn_index(directory, 0) == [*first, (7, 2, 4, 3)]
    # Rolled before anything is written: the old segment's file stays as it is, the new one has its.
    before = content(directory)
    writer = open_writer(directory, LogConfig(segment_bytes=100))
    writer.end_transaction(8, 0, is_commit=False)
    writer.close()
    assert {name: data for name, data in content(directory).items() if name in before} == before
    assert txn_index(directory, 5) == [(8, 3, 5, 6)]


@pytest.mark.parametrize(
    ("what", "check_id"),
    [("cut", "TXI-1"), ("version", "TXI-1"), ("behind the end", "TXI-2"), ("doubled", "TXI-2")],
)
def test_a_damaged_txnindex_is_not_gone_on_with(directory: Path, what: str, check_id: str) -> None:
    writer = open_writer(directory)
    writer.append(txn(7, 0))
    writer.end_transaction(7, 0, is_commit=False)
    writer.close()
    path = directory / f"{0:020d}.txnindex"
    good = path.read_bytes()
    damaged = {
        "cut": good[:-1],
        "version": b"\0\1" + good[2:],
        "behind the end": good[:18] + struct.pack(">q", 2) + good[26:],
        "doubled": good + good,
    }
    path.write_bytes(damaged[what])
    with pytest.raises(NotClosedError, match=check_id) as caught:
        open_writer(directory)
    assert caught.value.next_step
    path.write_bytes(good)
    assert open_writer(directory).end_offset == 2


def test_what_is_left_of_another_segment_is_not_taken_over(directory: Path) -> None:
    """ROLL-6: a broker deletes it; no abort may come from it."""
    writer = open_writer(directory, TWO_IN_A_SEGMENT)
    writer.append(txn(7, 0))
    writer.append(txn(7, 1))
    stale = struct.pack(">hqqqq", 0, 7, 0, 3, 4)
    (directory / f"{2:020d}.txnindex").write_bytes(stale)
    writer.append(txn(7, 2))
    writer.end_transaction(7, 0, is_commit=True)
    assert writer.base_offset == 2
    writer.close()
    assert not txn_index(directory, 2)


# --- durable --------------------------------------------------------------------------------------


class Watching(FileSystem):
    """Notes what is written and synced, by the last part of the name."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def write(self, file: OpenFile, data: Bytes) -> None:
        self.calls.append("write " + file.path.rsplit(".", 1)[1])
        super().write(file, data)

    def fsync(self, file: OpenFile) -> None:
        self.calls.append("fsync " + file.path.rsplit(".", 1)[1])
        super().fsync(file)


@pytest.mark.parametrize(
    ("flush", "after_each"),
    [
        (FlushPolicy.BATCH, ["write log", "fsync log"]),
        (FlushPolicy.SEGMENT, ["write log"]),
        (FlushPolicy.NEVER, ["write log"]),
    ],
)
def test_flush_policies(directory: Path, flush: FlushPolicy, after_each: list[str]) -> None:
    fs = Watching()
    writer = open_writer(directory, LogConfig(), fs=fs, flush=flush)
    writer.append(txn(7, 0))
    fs.calls.clear()
    writer.end_transaction(7, 0, is_commit=False)
    assert fs.calls == after_each
    fs.calls.clear()
    writer.close()
    # Before anything else, what the other files are derived from.
    assert (fs.calls[0] == "fsync log") == (flush is FlushPolicy.SEGMENT)
    assert "fsync log" not in fs.calls[1:]
    assert fs.calls.count("write eoctl-tmp") == 4  # both indexes, `.txnindex`, the snapshot
    assert txn_index(directory, 0) == [(7, 0, 1, 2)]


def test_a_plan_is_what_is_done(directory: Path) -> None:
    changes = []
    for store in (PlannedStore(str(directory), topic_id=TOPIC_ID), None):
        writer = open_writer(directory, LogConfig(segment_bytes=400), store=store)
        for sequence in range(12):
            writer.append(txn(7, sequence))
            if sequence % 3 == 2:
                writer.end_transaction(7, 0, is_commit=sequence % 2 == 0)
        writer.close()
        changes.append(list(writer.store.changes.values()))
    assert changes[0] == changes[1]
    assert sum(each.path.endswith(".txnindex") for each in changes[0]) == 2
    sizes = {str(path): path.stat().st_size for path in directory.iterdir()}
    assert {each.path: each.bytes for each in changes[0]} == sizes
