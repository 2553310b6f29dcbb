"""A log directory that nobody has seen before: a broker and a real client make it, from a seed.

The seed decides what the client sends. Clocks, ids and the packing into batches are the broker's and
the client's own, so two directories of one seed are alike, not equal.
"""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

from . import client
from .broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .client import Outgoing

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_RECORDS = (1, 2, 7, 50, 1000)
# A batch must fit into a segment.
BATCH_MAX_BYTES = 3000
SEGMENT_MIN_BYTES = 6000
CLEANER_TIMEOUT_S = 90
DAY_MS = 86_400_000

OVERRIDES = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "600000",
    # Topic directories that are being deleted and cleaned-up segments stay to be seen.
    "log.retention.ms": "-1",
}

# Pieces of keys, values and header names: control characters, line ends, every length of UTF-8,
# what looks like a line of kafka-dump-log, and (in values) bytes that are not UTF-8 at all.
WORDS = (
    "", "a", "order", "Größe", "ключ", "価格", "🙂", "\ufeff", "\x00", "\t", "\r", "\n", "\x7f",
    "\u2028", "\uffff", " ", "key: payload:", "| offset: 1", "baseOffset: 0", '{"a":1}', "[a,b]",
)  # fmt: skip
NOT_UTF8 = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x80\x80", b"\xc0\xaf")


class FreshLogDir(NamedTuple):
    """One log directory in two states, and what the broker logged while it was made.

    crash: killed with -9 while a transaction was open. clean: the same, recovered by the broker,
    written to a little more, and stopped cleanly.
    """

    seed: int
    crash: Path
    clean: Path
    log_lines: list[str]


def make_fresh_log_dir(root: Path, seed: int) -> FreshLogDir:
    """Make both states below `root`, which exists and is empty."""
    working, crash, clean = root / "log-dir", root / "crash", root / "clean"
    author = _Author(random.Random(seed))
    broker = Broker(working, overrides=OVERRIDES)
    try:
        broker.start()
        first_life = author.write(broker.bootstrap)
        _wait_for_cleaner(broker, "compacted-0")
        broker.kill()
        shutil.copytree(working, crash)
        del first_life  # its clients would still try to end their transactions
        broker.start()
        author.write_more(broker.bootstrap)
        broker.stop()
        shutil.copytree(working, clean)
        shutil.rmtree(working)
        return FreshLogDir(seed, crash, clean, broker.log_lines())
    finally:
        broker.close()


def _wait_for_cleaner(broker: Broker, partition: str) -> None:
    deadline_s = time.monotonic() + CLEANER_TIMEOUT_S
    while not any("cleaned log" in line for line in broker.log_lines(partition)):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the cleaner left {partition} alone\n{broker.log_tail()}")
        time.sleep(0.1)


class _Author:
    """Writes with a real client what the random numbers say."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = int(time.time() * 1000)

    # --- records ---------------------------------------------------------------------------------

    def text(self, pieces_max: int) -> str:
        return "".join(self.rng.choices(WORDS, k=self.rng.randint(0, pieces_max)))

    def value(self) -> bytes | None:
        kind = self.rng.randrange(6)
        if kind == 0:
            return None
        if kind == 1:
            return self.rng.randbytes(self.rng.choice((0, 1, 63, 64, 127, 128, 700)))
        if kind == 2:
            return self.text(4).encode() + self.rng.choice(NOT_UTF8) + self.text(4).encode()
        return self.text(self.rng.choice((1, 5, 60))).encode()

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        count = self.rng.choice((0, 0, 0, 1, 2, 5))
        values = (None, b"", self.text(3).encode(), self.rng.randbytes(20))
        return tuple((self.text(2), self.rng.choice(values)) for _ in range(count))

    def timestamp_ms(self) -> int:
        """Mostly the client's clock; sometimes up to three days back."""
        if self.rng.randrange(4):
            return 0
        return self.now_ms - self.rng.randrange(3 * DAY_MS)

    def records(
        self, topic: str, *, partitions: int = 1, most: int = 200, keys_count: int = 0
    ) -> Iterator[Outgoing]:
        """Up to `most` records; with `keys_count` every key is one of so many."""
        for _ in range(self.rng.randint(most // 2, most)):
            if keys_count:
                key: bytes | None = b"key-%d" % self.rng.randrange(keys_count)
            else:
                key = self.rng.choice((None, b"", self.text(3).encode(), self.rng.randbytes(9)))
            yield client.Outgoing(
                topic,
                self.rng.randrange(partitions),
                key,
                self.value(),
                self.headers(),
                self.timestamp_ms(),
            )

    def shape(self, **more: str) -> dict[str, str]:
        """Topic settings that make many small segments with many index entries."""
        return {
            "internal.segment.bytes": str(
                self.rng.randint(SEGMENT_MIN_BYTES, 2 * SEGMENT_MIN_BYTES)
            ),
            "index.interval.bytes": str(self.rng.choice((1, 64, 200, 1000, 4096))),
            "retention.ms": "-1",
            **more,
        }

    # --- the directory ---------------------------------------------------------------------------

    def write(self, bootstrap: str) -> list[object]:
        """All that is there at the crash. Returns the clients whose transactions are open."""
        topics = {f"codec-{codec}": (1, self.shape()) for codec in CODECS}
        topics |= {
            "plain": (1, self.shape()),
            "recompressed": (1, self.shape(**{"compression.type": "zstd"})),
            "append-time": (1, self.shape(**{"message.timestamp.type": "LogAppendTime"})),
            "producers": (1, self.shape()),
            "txn": (2, self.shape()),
            "out": (1, self.shape()),
            "compacted": (1, self.shape(**{"cleanup.policy": "compact", "segment.ms": "1000"})),
            "trimmed": (1, self.shape()),
            "doomed": (2, self.shape()),
            "empty": (1, {}),
        }
        client.create_topics(bootstrap, topics)
        for codec in CODECS:
            self.send(bootstrap, f"codec-{codec}", compression_type=codec, enable_idempotence=True)
        for topic in ("plain", "recompressed", "trimmed", "doomed"):
            self.send(bootstrap, topic)
        self.send(bootstrap, "append-time", compression_type="gzip")
        for _ in range(self.rng.randint(4, 9)):
            self.send(bootstrap, "producers", most=20, enable_idempotence=True)
        self.write_transactions(bootstrap)
        self.write_compacted(bootstrap)
        self.write_groups(bootstrap)
        client.delete_records(bootstrap, {("trimmed", 0): self.rng.randint(30, 60)})
        client.delete_topics(bootstrap, ["doomed"])
        return [self.open_transaction(bootstrap, f"open-{number}") for number in range(2)]

    def write_more(self, bootstrap: str) -> None:
        """After the recovery: a new leader epoch in some logs."""
        self.send(bootstrap, "codec-lz4", most=30, compression_type="lz4")
        after = client.transactional_producer(bootstrap, "after")
        client.transact(after, self.records("txn", partitions=2, most=20), commit=True)
        client.transact(after, self.records("txn", partitions=2, most=20), commit=False)
        # It is given its id when the markers are written. Without them a broker that is stopped now
        # would write them after its next start.
        client.transactional_producer(bootstrap, "after")

    def send(
        self,
        bootstrap: str,
        topic: str,
        *,
        most: int = 200,
        keys_count: int = 0,
        **settings: str | int,
    ) -> None:
        # Two rounds with different batch sizes, each by a producer of its own.
        for batch_records in self.rng.sample(BATCH_RECORDS, 2):
            sender = client.producer(
                bootstrap,
                batch_num_messages=batch_records,
                batch_size=BATCH_MAX_BYTES,
                **settings,
            )
            client.send(sender, self.records(topic, most=most, keys_count=keys_count))

    def write_transactions(self, bootstrap: str) -> None:
        """Three transactional producers take turns; their transactions overlap."""
        senders = [
            client.transactional_producer(
                bootstrap, f"tid-{number}", compression_type=codec, batch_size=BATCH_MAX_BYTES
            )
            for number, codec in enumerate(self.rng.sample(CODECS, 3))
        ]
        commits = False  # the first one is aborted, so that there always is an aborted one
        for _ in range(self.rng.randint(6, 10)):
            group = self.rng.sample(senders, self.rng.randint(1, 3))
            for sender in group:
                sender.begin_transaction()
            for _ in range(2):
                for sender in group:
                    client.send(sender, self.records("txn", partitions=2, most=40))
            for sender in group:
                end = sender.commit_transaction if commits else sender.abort_transaction
                end(client.TIMEOUT_S)
                commits = bool(self.rng.randrange(3))
        # Consume, transform, produce: group offsets inside of a transaction, kept and dropped.
        for commit in (True, False):
            records = self.records("out", most=20)
            client.transact(senders[0], records, commit=commit, offsets={("txn", 0): 5})

    def write_compacted(self, bootstrap: str) -> None:
        """Few keys and many tombstones, with and without transactions, over several segments."""
        tid = client.transactional_producer(bootstrap, "compacting")
        for commit in (True, False, True):
            self.send(bootstrap, "compacted", most=60, keys_count=50, enable_idempotence=True)
            client.transact(tid, self.records("compacted", most=40, keys_count=9), commit=commit)
            self.send(bootstrap, "compacted", keys_count=9)
        time.sleep(1.1)  # segment.ms: the next batch rolls, and what is before it may be cleaned
        self.send(bootstrap, "compacted", keys_count=9)

    def write_groups(self, bootstrap: str) -> None:
        """Every kind of record that groups leave in `__consumer_offsets`, tombstones too."""
        for number in range(self.rng.randint(3, 6)):
            offsets = {("plain", 0): self.rng.randrange(60), ("txn", 1): self.rng.randrange(9)}
            client.commit_offsets(bootstrap, f"simple-{number}", offsets)
        client.join_group(bootstrap, "classic", "plain")
        client.join_group(bootstrap, "modern", "txn", protocol="consumer")
        client.delete_groups(bootstrap, ["simple-0"])

    def open_transaction(self, bootstrap: str, transactional_id: str) -> object:
        sender = client.transactional_producer(bootstrap, transactional_id)
        sender.begin_transaction()
        client.send(sender, self.records("txn", partitions=2, most=12))
        return sender
