"""What is said of an open transaction, by age and by the newest record of its coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.transactions.open_transactions import OpenTransactionReport, abort_command, find_open
from storage.dirs.cluster_image import ClusterImage, PartitionImage, TopicImage
from storage.dirs.log_dir import read_log_dir
from storage.formats.transaction_state import (
    TransactionState,
    TransactionStatus,
    encode_key,
    encode_value,
)
from storage.producers.java_hash_map import coordinator_partition
from tests.hanging import append_record
from tests.writing import NOW_MS, batch, make_log_dir, open_writer, partition_at

if TYPE_CHECKING:
    from pathlib import Path

LATE_MS = NOW_MS + 900_000 + 300_000 + 1
STATUS = TransactionStatus
HERE = (("t", 0),)
ELSEWHERE = (("t", 1), ("u", 0))


def state_of(**fields: Any) -> TransactionState:
    return TransactionState(
        "id", 1, 7, 7, -1, 3, -1, 60_000, STATUS.ONGOING, HERE, NOW_MS, NOW_MS, 0
    )._replace(**fields)


def write_record(log_dir: Path, state: TransactionState | None, name: str = "id") -> None:
    directory = log_dir / "__transaction_state-0"
    value = None if state is None else encode_value(state)
    append_record(directory, encode_key(name), value, NOW_MS)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Producer 7, epoch 3, has a transaction open in t-0; 8 behind it."""
    made = make_log_dir(tmp_path / "log-dir")
    writer = open_writer(made / "t-0")
    writer.append(batch(2, (7, 3, 0), is_transactional=True))
    writer.append(batch(1, (8, 0, 0), is_transactional=True, timestamp_ms=-1))
    writer.append(batch(1, (7, 3, 2), is_transactional=True))
    writer.close()
    return made


def found_in(
    log_dir: Path, now_ms: int = LATE_MS, *, is_complete: bool = False
) -> OpenTransactionReport:
    log = CoordinatorLog([read_log_dir(log_dir)])
    if is_complete:
        log.partitions_count = 1
    first, _ = find_open(partition_at(log_dir / "t-0"), log, now_ms=now_ms)[0]
    return first


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (state_of(), "overdue"),
        (state_of(transaction_status=STATUS.PREPARE_COMMIT, producer_epoch=4), "overdue"),
        (state_of(transaction_status=STATUS.PREPARE_ABORT), "overdue"),
        (state_of(partitions=ELSEWHERE), "hanging"),
        (state_of(partitions=ELSEWHERE, transaction_status=STATUS.PREPARE_ABORT), "hanging"),
        (state_of(transaction_status=STATUS.EMPTY, partitions=None), "hanging"),
        (state_of(transaction_status=STATUS.COMPLETE_COMMIT, partitions=()), "hanging"),
        (state_of(transaction_status=STATUS.COMPLETE_ABORT, partitions=()), "hanging"),
        # Another transaction of the id goes on in this very partition, with another producer id.
        (state_of(producer_id=9, previous_producer_id=7), "hanging"),
    ],
)
def test_verdicts_of_late_ones(record: TransactionState, verdict: str, log_dir: Path) -> None:
    """The newest record counts, and younger ones are not judged so."""
    write_record(log_dir, state_of(transaction_status=STATUS.EMPTY, partitions=None))
    write_record(log_dir, record)
    found = found_in(log_dir)
    assert (found.verdict, found.transactional_id, found.is_late) == (verdict, "id", True)
    young = found_in(log_dir, LATE_MS - 1)
    assert young.verdict == {"overdue": "ongoing", "hanging": "unlisted"}[verdict]
    assert not young.is_late


def test_an_id_that_was_forgotten(log_dir: Path) -> None:
    """A tombstone: the producer id is known by the older record."""
    write_record(log_dir, state_of())
    write_record(log_dir, None)
    found = found_in(log_dir)
    assert (found.verdict, found.transactional_id) == ("hanging", "id")
    assert found.reason == "the coordinator has forgotten the id"


def test_a_producer_that_nobody_knows(log_dir: Path) -> None:
    """Only the whole of the coordinators' topic can say so."""
    write_record(log_dir, state_of(producer_id=1, previous_producer_id=1))
    assert found_in(log_dir).verdict == "unknown"
    assert found_in(log_dir, is_complete=True).verdict == "hanging"
    alone, _ = find_open(partition_at(log_dir / "t-0"), None, now_ms=LATE_MS)
    assert {each.verdict for each in alone} == {"unknown"}
    assert {each.reason for each in alone} == {"no partition of __transaction_state was given"}


def test_a_damaged_coordinators_log_says_nothing(log_dir: Path) -> None:
    """What is missing may be the record that lists the partition."""
    write_record(log_dir, state_of(transaction_status=STATUS.EMPTY, partitions=None))
    log = log_dir / "__transaction_state-0" / "00000000000000000000.log"
    write_record(log_dir, state_of())
    data = bytearray(log.read_bytes())
    data[-5] ^= 1
    log.write_bytes(data)
    found = found_in(log_dir)
    assert (found.verdict, found.transactional_id) == ("unknown", "id")
    assert found.reason == "__transaction_state-0 was not read whole"


def test_what_is_told_of_each(log_dir: Path) -> None:
    """Offsets, epochs, ages; without a timestamp the age is unknown, and counts as high."""
    write_record(log_dir, state_of())
    partition = partition_at(log_dir / "t-0")
    log = CoordinatorLog([read_log_dir(log_dir)])
    first, second = find_open(partition, log, now_ms=NOW_MS + 5, max_timeout_ms=1)[0]
    assert (first.first_offset, first.last_offset, first.producer_epoch) == (0, 3, 3)
    assert (first.age_ms, first.last_timestamp_ms, first.is_late) == (5, NOW_MS, False)
    assert (first.holds_last_stable_offset, first.held_offsets_count) == (True, 4)
    assert (first.coordinator_epoch, first.coordinator_producer_epoch) == (-1, 3)
    assert (second.first_offset, second.last_offset, second.age_ms) == (2, 2, None)
    assert (second.holds_last_stable_offset, second.held_offsets_count) == (False, 2)
    assert second.is_late
    assert abort_command(second).endswith("abort --topic t --partition 0 --start-offset 2")


def test_ids_by_partition(log_dir: Path) -> None:
    """An id without a record belongs to a partition by its hash, if their number is known."""
    write_record(log_dir, state_of())
    log = CoordinatorLog([read_log_dir(log_dir)])
    assert log.partition_of("id") == 0
    assert log.partition_of("my-tx") is None
    log.partitions_count = 50
    assert log.partition_of("my-tx") == 11
    assert not log.is_complete
    assert log.partitions[0].leader_epoch == 0


def test_a_record_where_its_id_does_not_belong(log_dir: Path) -> None:
    """As after the number of partitions was changed: no coordinator reads it."""
    write_record(log_dir, state_of())
    image = ClusterImage()
    at = PartitionImage((1, 2), (1,), (), (), 1, 7, 0, ())
    image.topics["__transaction_state"] = TopicImage(
        "__transaction_state", bytes(16), dict.fromkeys(range(3), at)
    )
    log = CoordinatorLog([read_log_dir(log_dir)], image)
    assert coordinator_partition("id", 3) != 0
    assert (log.ids, log.misplaced_count, log.lagging) == ({}, 1, [0])
    assert log.owner_of(7) is None
    assert log.partitions[0].leader_epoch == 7
