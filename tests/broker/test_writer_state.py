"""A real broker goes on with the producers of our writer: next, repeated and wrong sequences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from recovery.replay.recover_state import recover_state
from recovery.replay.snapshots import Clock
from storage.dirs.log_tail import NotClosedError
from storage.dirs.topic_settings import HOUR_MS, LogConfig
from storage.files.fsio import FileSystem
from storage.formats.producer_snapshot import parse_snapshot
from storage.producers.producer_state import AppendError
from tests.kafka import client
from tests.kafka.broker import CLEAN_MARKER, Broker
from tests.kafka.raw_produce import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TIMESTAMP,
    INVALID_TXN_STATE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    Answer,
    RawProducer,
)
from tests.writing import batch, open_writer, partition_at, recover, tail_at

if TYPE_CHECKING:
    from pathlib import Path

    from storage.formats.producer_snapshot import ProducerEntry
    from storage.writing.writer import PartitionWriter

pytestmark = pytest.mark.broker

CONFIG = LogConfig(segment_bytes=9000, index_interval_bytes=512, index_max_bytes=16_384)
TOPICS = ("closed", "crashed", "recovered")
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
MAX_SEQUENCE = 2**31 - 1


class Producer(NamedTuple):
    """Where a producer of `write_all` stands afterwards.

    Attributes:
        epoch: the last one of it that is in the log.
        next_sequence: what a leader expects.
        newest: first sequence and offset of its newest batch; None if that is of an older epoch.
        is_open: its transaction.
    """

    producer_id: int
    epoch: int
    next_sequence: int
    newest: tuple[int, int] | None
    is_open: bool = False


def data(
    producer_id: int, epoch: int, sequence: int, count: int = 3, *, is_transactional: bool = False
) -> bytes:
    now_ms = int(time.time() * 1000)
    identity = (producer_id, epoch, sequence)
    return batch(
        count, identity, timestamp_ms=now_ms, value=b"v" * 200, is_transactional=is_transactional
    )


def write_all(writer: PartitionWriter) -> list[Producer]:
    """Several segments: sequences that wrap, epochs, commits and aborts of both protocols."""
    found = []
    for n in range(20):
        offset = writer.append(data(1000, 4, 3 * n)).base_offset
    found.append(Producer(1000, 4, 60, (57, offset)))
    writer.append(data(1001, 0, 0))
    offset = writer.append(data(1001, 1, 0)).base_offset  # another epoch
    found.append(Producer(1001, 1, 3, (0, offset)))
    offset = writer.append(data(1002, 0, MAX_SEQUENCE - 1)).base_offset  # MAX - 1, MAX, 0
    found.append(Producer(1002, 0, 1, (MAX_SEQUENCE - 1, offset)))
    offset = writer.append(data(1003, 0, MAX_SEQUENCE - 2)).base_offset  # up to MAX
    found.append(Producer(1003, 0, 0, (MAX_SEQUENCE - 2, offset)))
    for producer_id, version in ((1004, 1), (1005, 2)):
        epoch = 0
        for is_commit in (True, False):
            sequence = 0 if version == 2 or is_commit else 3
            made = data(producer_id, epoch, sequence, is_transactional=True)
            offset = writer.append(made).base_offset
            epoch += version == 2
            writer.end_transaction(
                producer_id, epoch, is_commit=is_commit, transaction_version=version
            )
        newest = None if version == 2 else (3, offset)
        found.append(Producer(producer_id, epoch, 0 if version == 2 else 6, newest))
    offset = writer.append(data(1006, 0, 0, is_transactional=True)).base_offset
    found.append(Producer(1006, 0, 3, (0, offset), is_open=True))
    return found


def make(log_dir: Path, *, is_closed: bool) -> dict[str, list[Producer]]:
    """Topics of a broker that was stopped, written to by our writer.

    Every partition is closed, or one is, one is not, and one was recovered by us.
    """
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {name: (1, {}) for name in TOPICS})
    producers = {}
    now_ms = int(time.time() * 1000)
    for name in TOPICS:
        directory = log_dir / f"{name}-0"
        tail = tail_at(directory, CONFIG)
        writer = open_writer(
            directory, CONFIG, leader_epoch=max(tail.last_leader_epoch, 0), now_ms=now_ms
        )
        producers[name] = write_all(writer)
        assert writer.rolled_count >= 1
        if is_closed or name == "closed":
            writer.close()
            continue
        writer.store.close_log()
        log = max(directory.glob("*.log"))
        log.write_bytes(log.read_bytes() + data(1000, 4, 60)[:-7])
        with pytest.raises(NotClosedError):
            tail_at(directory, CONFIG)
        if name == "recovered":
            backups = log_dir.parent / "backups"
            recover(directory, Clock(now_ms), 512, FileSystem(), backups)
            assert tail_at(directory, CONFIG).end_offset == writer.end_offset
    return producers


def require_answers(raw: RawProducer, topic: str, producers: list[Producer]) -> None:
    """The broker answers as a leader that wrote all of it by itself; -1 is no offset."""
    end_offset = None
    for each in producers:
        producer_id, epoch, following, newest, is_open = each
        if newest is not None:
            sent = data(producer_id, epoch, newest[0], is_transactional=is_open)
            if not is_open:  # whether a transaction is going on is asked first, of a coordinator
                assert raw.send(topic, 0, sent) == (NONE, newest[1]), each
        gap = data(producer_id, epoch, following + 1)
        assert raw.send(topic, 0, gap) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1), each
        behind = data(producer_id, epoch, (following - 1) % 2**31, 1)
        assert raw.send(topic, 0, behind) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1), each
        gap = data(producer_id, epoch + 1, 1)
        assert raw.send(topic, 0, gap) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1), each
        if epoch:
            old = data(producer_id, epoch - 1, following)
            assert raw.send(topic, 0, old) == (INVALID_PRODUCER_EPOCH, -1), each
        right = data(producer_id, epoch, following)
        found = raw.send(topic, 0, right)
        if is_open:
            assert found == (INVALID_TXN_STATE, -1), each
            continue
        expected = found.base_offset if end_offset is None else end_offset
        assert found == Answer(NONE, expected), each
        assert raw.send(topic, 0, right) == found, each
        end_offset = expected + 3


def entries_on_disk(directory: Path) -> tuple[int, list[ProducerEntry]]:
    path = max(directory.glob("*.snapshot"))
    return int(path.stem), sorted(parse_snapshot(path.read_bytes()))


def require_agreement(log_dir: Path, name: str) -> None:
    """What we derive from the log is what the broker stored; and our writer goes on once more."""
    directory = log_dir / f"{name}-0"
    offset, stored = entries_on_disk(directory)
    clock = Clock(int(time.time() * 1000))
    for from_scratch in (False, True):
        state = recover_state(partition_at(directory), clock, from_scratch=from_scratch)
        assert (state.offset, sorted(state.entries)) == (offset, stored)
    assert len(stored) == 7
    tail = tail_at(directory, CONFIG)
    writer = open_writer(
        directory, CONFIG, tail=tail, leader_epoch=tail.last_leader_epoch, now_ms=clock.now_ms
    )
    assert sorted(writer.producers.entries()) == stored
    last = next(each for each in stored if each.producer_id == 1000)
    assert writer.append(data(1000, 4, 60)).base_offset == last.last_offset - 2  # it is known
    assert writer.append(data(1000, 4, 63)).base_offset == offset
    writer.close()


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("is_clean", [False, True])
def test_the_broker_goes_on(tmp_path: Path, is_clean: bool) -> None:
    """From the log after an unclean start, from our snapshot after a clean one (FIX-8)."""
    log_dir = tmp_path / "log-dir"
    producers = make(log_dir, is_closed=is_clean)
    if is_clean:
        ends = {name: tail_at(log_dir / f"{name}-0", CONFIG).end_offset for name in TOPICS}
        checkpoint = log_dir / RECOVERY_POINTS
        lines = checkpoint.read_text().splitlines()[2:]
        lines = [each for each in lines if each.split()[0] not in ends]
        lines += [f"{name} 0 {end}" for name, end in ends.items()]
        checkpoint.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        (log_dir / CLEAN_MARKER).touch()
    with Broker(log_dir) as broker, RawProducer(broker.bootstrap) as raw:
        for name in TOPICS:
            require_answers(raw, name, producers[name])
            said = "\n".join(broker.log_lines(f"{name}-0"))
            assert ("Recovering unflushed segment" in said) == (not is_clean), said
    for name in TOPICS:
        require_agreement(log_dir, name)


MINUTE_MS = 60_000


@pytest.mark.exhaustive
def test_a_broker_takes_the_same_timestamps(tmp_path: Path) -> None:
    """By default up to an hour ahead, and as old as they like (KIP-1030)."""
    log_dir = tmp_path / "log-dir"
    hour = {"message.timestamp.before.max.ms": str(HOUR_MS)}
    configs = {"usual": LogConfig(), "bounded": LogConfig(timestamp_before_max_ms=HOUR_MS)}
    now_ms = int(time.time() * 1000)
    times = [-1, 0, now_ms - HOUR_MS - 5 * MINUTE_MS, now_ms - HOUR_MS + 5 * MINUTE_MS, now_ms]
    times += [now_ms + HOUR_MS - 5 * MINUTE_MS, now_ms + HOUR_MS + 5 * MINUTE_MS]
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {"usual": (1, {}), "bounded": (1, hour)})
        with RawProducer(broker.bootstrap) as raw:
            answers = {
                (name, each): raw.send(name, 0, batch(2, timestamp_ms=each)).error_code
                for name in configs
                for each in times
            }
    ours = {}
    for name, config in configs.items():
        writer = open_writer(tmp_path / f"{name}-0", config, now_ms=now_ms)
        for each in times:
            try:
                writer.append(batch(2, timestamp_ms=each))
                ours[name, each] = NONE
            except AppendError as exc:
                ours[name, each] = {"INVALID_TIMESTAMP": INVALID_TIMESTAMP}[exc.kafka_error]
        writer.close()
    assert ours == answers
    assert set(ours.values()) == {NONE, INVALID_TIMESTAMP}
