"""A topic to be cut: 20 partitions with the same transactions over segments and leader epochs.

Every record goes to every partition, so that each of them can be truncated at another place. The
timestamps jump by an hour where a segment is to roll, into the future: markers have the broker's
clock, and one that was later than the records before it would roll, too.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from . import client
from .broker import Broker
from .reference_log import read_log, read_offset_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka import Producer

    from .reference_log import Log

TOPIC = "cut"
PARTITIONS_COUNT = 20
TRANSACTIONAL_IDS = ("a", "b", "c")
HOUR_MS = 3_600_000
HIGH_WATERMARKS = "replication-offset-checkpoint"
TIMEOUT_S = 90

# Partitions whose log start is moved into the first, the second and the third segment.
TRIMMED = (17, 18, 19)
# What is sent in one call becomes one batch: flush() does not wait for that long.
ONE_BATCH: dict[str, str | int] = {"linger_ms": 2000}

SETTINGS = {
    "segment.ms": str(HOUR_MS // 2),
    "index.interval.bytes": "100",
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(100 * HOUR_MS),
}
OVERRIDES = {
    # Segments below a log start go at once.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "0",
    # The checkpointed high watermark is one of the targets, and to be below the end.
    "replica.high.watermark.checkpoint.interval.ms": "3000",
}


class CutTopic(NamedTuple):
    """A log dir as kill -9 left it, and all that a client had read of each partition just before."""

    log_dir: Path
    read: list[Read]


def make_cut_topic(root: Path) -> CutTopic:
    """Make the log dir below `root`, which exists and is empty."""
    log_dir = root / "log-dir"
    author = Author(log_dir)
    broker = Broker(log_dir, overrides=OVERRIDES)
    try:
        broker.start()
        client.create_topics(broker.bootstrap, {TOPIC: (PARTITIONS_COUNT, SETTINGS)})
        author.connect(broker.bootstrap)
        author.first_life()
        broker.kill()
        author.disconnect()  # or they would still try to end their transactions
        broker.start()
        author.connect(broker.bootstrap)
        author.second_life()
        broker.stop()
        author.disconnect()
        broker.start()
        author.connect(broker.bootstrap)
        author.third_life()
        read = consume_all(broker.bootstrap)
        broker.kill()
        author.disconnect()
    finally:
        broker.close()
    return CutTopic(log_dir, read)


def read_logs(log_dir: Path) -> list[Log]:
    """The batches of each partition."""
    return [read_log(log_dir / f"{TOPIC}-{number}") for number in range(PARTITIONS_COUNT)]


@contextmanager
def markers_written(log_dir: Path) -> Iterator[None]:
    """Wait for the marker that this block writes to each partition: clients do not."""
    before = [each.end_offset for each in read_logs(log_dir)]
    yield
    wanted = [end + 1 for end in before]
    _wait(lambda: [each.end_offset for each in read_logs(log_dir)] == wanted)


class Read(NamedTuple):
    """What a client reads of a partition in both isolation levels."""

    uncommitted: client.Consumed
    committed: client.Consumed


def consume_all(bootstrap: str) -> list[Read]:
    """What a client reads of each partition; all at once, since each one waits for a second."""

    def consume(number: int, isolation: str) -> client.Consumed:
        return client.consume(bootstrap, TOPIC, number, isolation=isolation)

    numbers = range(PARTITIONS_COUNT)
    with ThreadPoolExecutor(2 * PARTITIONS_COUNT) as threads:
        uncommitted = threads.map(consume, numbers, repeat(client.READ_UNCOMMITTED))
        committed = threads.map(consume, numbers, repeat(client.READ_COMMITTED))
        return [*map(Read, uncommitted, committed)]


class Author:
    """Writes the same to all partitions, batch by batch."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.start_ms = int(time.time() * 1000)
        self.time_ms = self.start_ms
        self.bootstrap = ""
        self.senders: dict[str, Producer] = {}

    def connect(self, bootstrap: str) -> None:
        """Make a producer of each kind; what it sends to a partition in one call is one batch."""
        self.bootstrap = bootstrap
        self.senders = {
            "plain": client.producer(bootstrap, compression_type="lz4", **ONE_BATCH),
            "idempotent": client.producer(bootstrap, enable_idempotence=True, **ONE_BATCH),
            **{
                tid: client.transactional_producer(bootstrap, tid, **ONE_BATCH)
                for tid in TRANSACTIONAL_IDS
            },
        }

    def disconnect(self) -> None:
        self.senders.clear()

    # --- a batch for each partition --------------------------------------------------------------

    def send(self, who: str, count: int) -> list[tuple[bytes, bytes]]:
        """Send so many records to each partition; returns their keys and values."""
        self.time_ms += 10
        first_ms = self.time_ms
        self.time_ms += count
        key = who.encode()
        headers = (("writer", key),)
        times = range(first_ms, first_ms + count)
        client.send(
            self.senders[who],
            [
                client.Outgoing(TOPIC, number, key, b"%d" % ms, headers, ms)
                for number in range(PARTITIONS_COUNT)
                for ms in times
            ],
        )
        return [(key, b"%d" % ms) for ms in times]

    def begin(self, *tids: str) -> None:
        for tid in tids:
            self.senders[tid].begin_transaction()

    def commit(self, tid: str) -> None:
        with markers_written(self.log_dir):
            self.senders[tid].commit_transaction(client.TIMEOUT_S)

    def abort(self, tid: str) -> None:
        with markers_written(self.log_dir):
            self.senders[tid].abort_transaction(client.TIMEOUT_S)

    def roll(self) -> None:
        """The next batch begins a segment."""
        hours = (self.time_ms - self.start_ms) // HOUR_MS
        self.time_ms = self.start_ms + (hours + 1) * HOUR_MS

    # --- what is there ---------------------------------------------------------------------------

    def first_life(self) -> None:
        self.send("plain", 3)
        self.send("idempotent", 4)
        self.begin("a")
        self.send("a", 3)
        self.send("a", 2)
        self.commit("a")
        self.begin("b")
        self.send("b", 4)
        self.abort("b")
        self.interleaved()
        self.roll()
        self.send("plain", 5)
        self.begin("c")
        self.send("c", 1)
        self.commit("c")
        self.begin("b")
        self.send("b", 3)
        self.roll()  # a transaction over a seam
        self.send("b", 3)
        self.send("idempotent", 1)
        self.abort("b")
        self.send("plain", 2)
        self.begin("a")
        self.send("a", 2)
        self.send("idempotent", 2)

    def second_life(self) -> None:
        """It begins with the end of the transaction that the crash left open: an abort."""
        self.begin("b")
        self.send("b", 2)
        self.send("b", 3)
        self.commit("b")
        self.roll()
        self.send("idempotent", 4)
        self.begin("c")
        self.send("c", 2)
        self.abort("c")
        self.interleaved()
        self.send("plain", 4)
        self.trim()  # what follows is a clean stop, which notes log starts

    def third_life(self) -> None:
        self.send("idempotent", 1)
        self.begin("a")
        self.send("a", 3)
        self.send("a", 1)
        self.commit("a")
        self.roll()
        self.send("plain", 3)
        self.begin("c")
        self.send("c", 4)
        self.wait_for_high_watermarks()
        self.send("c", 2)
        self.abort("c")
        self.begin("a")
        self.send("a", 3)
        self.send("plain", 2)
        self.begin("b")
        self.send("b", 2)
        self.begin("c")
        self.send("c", 3)
        self.commit("c")
        self.send("a", 2)

    def interleaved(self) -> None:
        """Three transactions that overlap."""
        self.begin("a", "b")
        self.send("a", 2)
        self.send("b", 3)
        self.send("plain", 2)
        self.send("a", 4)
        self.begin("c")
        self.send("c", 2)
        self.abort("b")
        self.send("c", 1)
        self.commit("a")
        self.commit("c")

    def trim(self) -> None:
        """Move log starts into the middle of batches; whole segments below them go."""
        starts = {}
        for number, index in zip(TRIMMED, (0, 1, 2), strict=True):
            log = read_log(self.log_dir / f"{TOPIC}-{number}")
            batch = next(
                each
                for each in log.batches
                if each.segment == log.segments[index] and each.last_offset - each.base_offset > 1
            )
            starts[TOPIC, number] = batch.base_offset + 1
        client.delete_records(self.bootstrap, starts)
        for (_, number), offset in starts.items():
            self.wait_for_first_segment(number, offset)

    def wait_for_first_segment(self, number: int, log_start: int) -> None:
        """Until segments below the one with the log start are gone."""
        directory = self.log_dir / f"{TOPIC}-{number}"
        _wait(lambda: sum(int(each.stem) <= log_start for each in directory.glob("*.log")) == 1)

    def wait_for_high_watermarks(self) -> None:
        """Until the broker has noted those of now."""
        path = self.log_dir / HIGH_WATERMARKS
        ends = {number: each.end_offset for number, each in enumerate(read_logs(self.log_dir))}
        _wait(lambda: read_offset_lines(path, TOPIC) == ends)


def _wait(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the broker did not do it in time")
        time.sleep(0.02)
