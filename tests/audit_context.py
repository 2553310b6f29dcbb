"""A cluster's logs with planted faults, and a ledger of what was planted. Imports nothing of ours.

Producers write transactions over several partitions (versions 1 and 2) and plain batches; segments
roll at random, so that every kind of fault lies across a seam somewhere. The ledger is kept while
the logs are written, by who writes them.
"""

from __future__ import annotations

import struct
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import crc32c

if TYPE_CHECKING:
    from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def record(delta: int, key: bytes | None, value: bytes) -> bytes:
    sized_key = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + sized_key + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    offset: int,
    time_ms: int,
    producer: tuple[int, int, int],
    count: int,
    *,
    attributes: int = 0,
    records: bytes | None = None,
) -> bytes:
    pid, epoch, sequence = producer
    body = records or b"".join(record(n, None, b"v%d" % n) for n in range(count))
    fields = (count - 1, time_ms, time_ms, pid, epoch, sequence, count)
    covered = struct.pack(">hiqqqhii", attributes, *fields) + body
    length = len(covered) + 9
    return struct.pack(">qiibI", offset, length, 0, 2, crc32c.crc32c(covered)) + covered


def marker(offset: int, time_ms: int, pid: int, epoch: int, *, is_commit: bool) -> bytes:
    key, value = struct.pack(">hh", 0, int(is_commit)), struct.pack(">hi", 0, 7)
    return batch(
        offset, time_ms, (pid, epoch, -1), 1, attributes=0x30, records=record(0, key, value)
    )


class Log:
    """One partition: batches by segment, and its ledger."""

    def __init__(self, topic: str, partition: int) -> None:
        self.name = f"{topic}-{partition}"
        self.key = topic, partition
        self.segments: list[tuple[int, list[bytes]]] = [(0, [])]
        self.end_offset = 0
        self.ledger: Counter[str] = Counter()
        self.sequences: dict[tuple[int, int], int] = {}
        self.open: dict[int, list[int]] = {}  # producer -> base offsets
        self.known: set[int] = set()
        self.violations: list[tuple[int | None, str]] = []

    def put(self, data: bytes, count: int) -> int:
        offset, self.end_offset = self.end_offset, self.end_offset + count
        self.segments[-1][1].append(data)
        self.ledger["batches"] += 1
        self.ledger["records"] += count
        self.ledger["bytes"] += len(data)
        return offset

    def roll(self) -> None:
        if self.segments[-1][1]:
            self.segments.append((self.end_offset, []))

    def data(
        self,
        time_ms: int,
        pid: int,
        epoch: int,
        count: int,
        *,
        is_transactional: bool,
        skip: int = 0,
    ) -> None:
        sequence = self.sequences.get((pid, epoch), 0) + skip
        offset = self.end_offset
        if skip:
            # Before the first sequence of a producer nothing is known to be missing.
            is_known = (pid, epoch) in self.sequences or pid in self.known
            self.ledger["gaps"] += is_known
            self.ledger["missing_sequences"] += skip * is_known
            if is_known:
                self.violations.append((offset, "sequence-gap"))
        self.sequences[pid, epoch] = sequence + count
        self.known.add(pid)
        attributes = 0x10 if is_transactional else 0
        self.put(
            batch(offset, time_ms, (pid, epoch, sequence), count, attributes=attributes), count
        )
        if is_transactional:
            self.ledger["transactional_batches"] += 1
            self.open.setdefault(pid, []).append(offset)

    def again(self, time_ms: int, pid: int, epoch: int, count: int) -> None:
        """The last sequences once more, at a new offset."""
        end = self.sequences[pid, epoch]
        offset = self.end_offset
        self.put(batch(offset, time_ms, (pid, epoch, end - count), count), count)
        self.ledger["duplicate_batches"] += 1
        self.violations.append((offset, "duplicate"))

    def end(self, time_ms: int, pid: int, epoch: int, *, is_commit: bool) -> None:
        self.put(marker(self.end_offset, time_ms, pid, epoch, is_commit=is_commit), 1)
        self.ledger["control_batches"] += 1
        ended = self.open.pop(pid, [])
        if not ended:
            self.ledger["empty_markers"] += 1
        elif is_commit:
            self.ledger["committed_transactions"] += 1
        else:
            self.ledger["aborted_transactions"] += 1
            self.ledger["aborted_batches"] += len(ended)

    def write(self, log_dir: Path) -> Path:
        directory = log_dir / self.name
        directory.mkdir(parents=True)
        for base_offset, batches in self.segments:
            (directory / f"{base_offset:020d}.log").write_bytes(b"".join(batches))
        return directory

    def figures(self) -> dict[str, int]:
        return {**self.ledger, "open_transactions": len(self.open)}


class Context:
    """Several partitions; `torn` has (producer id, why, names of partitions where it is open)."""

    def __init__(self, seed: int, steps: int = 60) -> None:
        self.random = Random(seed)
        self.logs = [Log(topic, n) for topic in ("a", "b") for n in range(2)]
        self.torn: list[tuple[int, str, tuple[str, ...]]] = []
        self.time_ms = 1_700_000_000_000
        self._pid = 0
        for _ in range(steps):
            kind = self.random.choice(
                ["plain", "plain", "gap", "again", "regress", "late", "missing", "differs"]
                + ["transactions"] * 4
            )
            getattr(self, f"_{kind}")()

    def _tick(self) -> int:
        self.time_ms += self.random.randint(1, 5)
        return self.time_ms

    def _new(self) -> int:
        self._pid += self.random.randint(1, 3)
        return self._pid

    def _one(self) -> Log:
        log = self.random.choice(self.logs)
        self._maybe_roll(log)
        return log

    def _maybe_roll(self, log: Log) -> None:
        if self.random.random() < 0.4:
            log.roll()

    def _data(self, log: Log, pid: int, epoch: int, **more: object) -> int:
        count = self.random.randint(1, 3)
        log.data(self._tick(), pid, epoch, count, **more)  # type: ignore[arg-type]
        self._maybe_roll(log)
        return count

    def _plain(self) -> None:
        log, pid = self._one(), self._new()
        for _ in range(self.random.randint(1, 4)):
            self._data(log, pid, 0, is_transactional=False)

    def _gap(self) -> None:
        log, pid = self._one(), self._new()
        self._data(log, pid, 0, is_transactional=False)
        self._data(log, pid, 0, is_transactional=False, skip=self.random.randint(1, 9))
        # A new epoch that does not begin with 0.
        self._data(log, pid, 3, is_transactional=False, skip=2)

    def _again(self) -> None:
        log, pid = self._one(), self._new()
        count = self._data(log, pid, 0, is_transactional=False)
        for _ in range(self.random.randint(0, 3)):
            self._maybe_roll(log)
            self._other(log)
        log.again(self._tick(), pid, 0, count)

    def _other(self, log: Log) -> None:
        self._data(log, self._new(), 0, is_transactional=False)

    def _regress(self) -> None:
        log, pid = self._one(), self._new()
        self._data(log, pid, 5, is_transactional=False)
        offset = log.end_offset
        self._data(log, pid, 4, is_transactional=False)
        log.ledger["epoch_regressions"] += 1
        log.violations.append((offset, "epoch-regression"))

    def _late(self) -> None:
        """A batch that comes after its transaction has ended: it hangs (KIP-890)."""
        log, pid = self._one(), self._new()
        self._data(log, pid, 0, is_transactional=True)
        log.end(self._tick(), pid, 1, is_commit=False)
        self._maybe_roll(log)
        offset = log.end_offset
        self._data(log, pid, 0, is_transactional=True)
        log.ledger["epoch_regressions"] += 1
        log.ledger["late_batches"] += 1
        log.violations.append((offset, "data-after-marker"))

    def _transactions(self) -> None:
        pid, is_v2 = self._new(), self.random.random() < 0.5
        epoch = 0
        for _ in range(self.random.randint(1, 4)):
            logs = self.random.sample(self.logs, self.random.randint(1, 3))
            self._fill(logs, pid, epoch)
            epoch += is_v2
            is_commit = self.random.random() < 0.5
            for log in (*logs, self.random.choice(self.logs)):
                log.end(self._tick(), pid, epoch, is_commit=is_commit)
                self._maybe_roll(log)
        if self.random.random() < 0.3:
            self._fill([self._one()], pid, epoch)  # and one that stays open

    def _fill(self, logs: list[Log], pid: int, epoch: int) -> None:
        for log in logs:
            for _ in range(self.random.randint(1, 3)):
                self._data(log, pid, epoch, is_transactional=True)

    def _missing(self) -> None:
        """A transaction whose marker is missing in one partition."""
        pid, epoch = self._new(), self.random.randint(0, 1)
        logs = self.random.sample(self.logs, 3)
        self._fill(logs, pid, 0)
        for log in logs[1:]:
            log.end(self._tick(), pid, epoch, is_commit=True)
        self.torn.append((pid, "marker-missing", (logs[0].name,)))

    def _differs(self) -> None:
        """One that was committed here and aborted there."""
        pid = self._new()
        logs = self.random.sample(self.logs, 2)
        self._fill(logs, pid, 0)
        for log, is_commit in zip(logs, (True, False), strict=True):
            log.end(self._tick(), pid, 1, is_commit=is_commit)
        self.torn.append((pid, "outcome-differs", ()))
