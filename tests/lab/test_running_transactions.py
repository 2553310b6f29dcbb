"""What a running log says of its transactions is what its batches say, read from the start."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.nodes.power_loss import ForgettingFileSystem
from eoctl.lab.nodes.running_log import LogTerms, RunningLog
from storage.dirs.topic_settings import LogConfig
from storage.formats.control_record import ControlRecordType, parse_control_key
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, BatchHeader, parse_header
from storage.log.decoded_records import BatchOutcome, MarkerIndex
from storage.producers.producer_state import AppendError
from storage.producers.transactions import OpenTransactions
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.writing import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from storage.formats.txn_index import AbortedTxn


AT_MS = 1_700_000_000_000
COORDINATOR = 0


def log_of(path: Path) -> RunningLog:
    """Open a log of small segments."""
    if not path.exists():
        make_log_dir(path)
        (path / "t-0").mkdir()
    config = LogConfig(segment_bytes=600)
    terms = LogTerms(ForgettingFileSystem(path), config, lambda: AT_MS, FlushPolicy.SEGMENT)
    return RunningLog(str(path / "t-0"), terms)


class Producers:
    """Some, of which each has its epoch, its sequence, and knows whether it is in a transaction."""

    def __init__(self, count: int) -> None:
        self.epochs = dict.fromkeys(range(1, count + 1), 0)
        self.sequences = dict.fromkeys(self.epochs, 0)

    def batch(self, producer_id: int, count: int) -> bytes:
        """The next transactional one."""
        builder = BatchBuilder()
        for _ in range(count):
            builder.add(None, b"value", AT_MS)
        epoch, sequence = self.epochs[producer_id], self.sequences[producer_id]
        self.sequences[producer_id] += count
        return builder.build(ProducerIdentity(producer_id, epoch, sequence), is_transactional=True)

    def end(self, log: RunningLog, producer_id: int, *, is_commit: bool) -> None:
        """Write its marker."""
        self.epochs[producer_id] += 1
        self.sequences[producer_id] = 0
        log.end_transaction(
            producer_id, self.epochs[producer_id], is_commit=is_commit,
            coordinator_epoch=COORDINATOR,
        )  # fmt: skip


def some(log: RunningLog, drawn: Random, producers: Producers) -> None:
    """Do one thing to it."""
    producer_id = drawn.choice([*producers.epochs])
    match drawn.randrange(5):
        case 0 | 1:
            log.append(producers.batch(producer_id, 1 + drawn.randrange(3)))
        case 2:
            producers.end(log, producer_id, is_commit=True)
        case 3:
            producers.end(log, producer_id, is_commit=False)
        case _:
            builder = BatchBuilder()
            builder.add(None, b"plain", AT_MS)
            log.append(builder.build())


def headers_of(log: RunningLog) -> list[tuple[BatchHeader, bytes]]:
    """All that it has."""
    batches: list[tuple[BatchHeader, bytes]] = []
    offset = 0
    while offset < log.end_offset:
        found = log.read(offset, log.end_offset, 1 << 20)
        batches += [(parse_header(each, 0), each) for each in found]
        offset = batches[-1][0].last_offset + 1
    return batches


def is_commit(header: BatchHeader, data: bytes) -> bool:
    (record,) = parse_records(data[HEADER_BYTES:], header.records_count)
    return parse_control_key(record.key).type == ControlRecordType.COMMIT


def hidden_by(aborted: list[AbortedTxn], batches: list[tuple[BatchHeader, bytes]]) -> set[int]:
    """Base offsets of what a consumer drops that was given this list (RC-4)."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    active: set[int] = set()
    hidden = set()
    for header, data in batches:
        while waiting and waiting[0].first_offset <= header.last_offset:
            active.add(waiting.pop(0).producer_id)
        if header.is_control:
            if not is_commit(header, data):
                active.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in active:
            hidden.add(header.base_offset)
    return hidden


def require_true(log: RunningLog, high_watermark: int, drawn: Random) -> None:
    """Hold the log against what its batches say."""
    batches = headers_of(log)
    slow = OpenTransactions(log_start_offset=0, high_watermark=high_watermark)
    outcomes = MarkerIndex()
    for header, data in batches:
        slow.add_batch(header)
        if header.is_control:
            outcomes.add(header.producer_id, header.last_offset, is_commit=is_commit(header, data))
    stable = log.last_stable_offset(high_watermark)
    assert stable == slow.last_stable_offset(log.end_offset)
    offset = drawn.randrange(stable + 1)
    end_offset = offset + drawn.randrange(stable - offset + 1)
    given = [each for each in batches if offset <= each[0].last_offset < end_offset]
    aborted = log.aborted_in(offset, end_offset)
    expected = {
        header.base_offset
        for header, _ in given
        if not header.is_control and outcomes.outcome(header) is BatchOutcome.ABORTED
    }
    assert hidden_by(aborted, given) == expected
    assert {each.producer_id for each in aborted} <= {1, 2, 3}
    assert all(each.last_offset >= offset and each.first_offset < end_offset for each in aborted)


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(30))
def test_txn_4_and_rc_3_of_a_log_that_is_written_to(tmp_path: Path, seed: int) -> None:
    drawn, producers = Random(seed), Producers(3)
    log, follower = log_of(tmp_path / "a"), log_of(tmp_path / "b")
    high_watermark = 0
    for number in range(120):
        some(log, drawn, producers)
        if number % 10 == 9:
            high_watermark = max(high_watermark, drawn.randrange(log.end_offset + 1))
            # A high watermark is never inside of a batch.
            ends = [0, *(header.last_offset + 1 for header, _ in headers_of(log))]
            high_watermark = max(each for each in ends if each <= high_watermark)
            require_true(log, high_watermark, drawn)
        if number % 20 == 19:
            follower.follow(log.read(follower.end_offset, log.end_offset, 1 << 20))
    while found := log.read(follower.end_offset, log.end_offset, 1 << 20):
        follower.follow(found)
    require_true(follower, high_watermark, drawn)
    assert follower.rolled_count > 5
    follower.cut(drawn.randrange(high_watermark, log.end_offset + 1))
    require_true(follower, high_watermark, drawn)
    follower.abandon()
    follower = log_of(tmp_path / "b")
    require_true(follower, high_watermark, drawn)
    log.close()
    log = log_of(tmp_path / "a")
    require_true(log, high_watermark, drawn)
    assert log.rolled_count == 0
    for each in (log, follower):
        each.close()


def test_prod_8_what_comes_late_is_fenced_by_the_epoch_of_the_marker(tmp_path: Path) -> None:
    log, producers = log_of(tmp_path / "a"), Producers(1)
    log.append(producers.batch(1, 2))
    assert log.has_open(1, 0)
    assert not log.has_open(1, 1)
    late = producers.batch(1, 1)
    producers.end(log, 1, is_commit=False)
    assert not log.has_open(1, 0)
    with pytest.raises(AppendError, match="INVALID_PRODUCER_EPOCH"):
        log.append(late)
    log.close()
