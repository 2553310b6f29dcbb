"""Audit of a run: its records in the brokers' logs, read by eoctl's own readers.

The audit of local logs asks no broker. It reads every batch of a replica with its checksum, and
compares every key with the producer's answer. It counts replicas by broker. Each acknowledged
record must be in the log of every replica that is in sync at the end.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition

from eoctl.lab.bench.load import ACKNOWLEDGED, sequence_of, sequences_in
from recovery.duplicates.scan import DecodedBatches, Trouble, decode_part, read_parts
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from eoctl.lab.bench.load import Sent

    Ints = NDArray[np.int64]


MAX_TIMES = 255  # higher numbers of copies of a record count as this number


class ReadCopy(NamedTuple):
    """Records in one replica of a partition.

    Attributes:
        times: for each record of the run, the number of its copies in this replica.
        others_count: records of other producers.
        beyond_count: records of this run with a sequence that it never used.
        notes: unreadable parts, with path and position.
        log_bytes: bytes that were read.
    """

    times: NDArray[np.uint8]
    others_count: int
    beyond_count: int
    notes: tuple[str, ...]
    log_bytes: int


class Stretch(NamedTuple):
    """Successive records that a run sent to one partition, by their sequences."""

    partition: int
    first_sequence: int
    last_sequence: int
    records_count: int


class Landed(NamedTuple):
    """Result of the audit of a run.

    Attributes:
        acknowledged_count: acknowledged records.
        landed_count: of these, records in the log of every replica in sync.
        missing_count: of these, records missing from at least one of the logs.
        nowhere_count: of these, records in no log at all.
        twice_count: records with duplicates in the log of a replica in sync.
        unacknowledged_count: records in the logs of all replicas in sync that failed or had no
            answer.
        others_count: records that this run did not send.
        misplaced_count: records in another partition than intended.
        missing: the missing records.
        twice: the duplicate records.
        notes: unreadable parts.
        log_bytes: bytes that were read.
    """

    acknowledged_count: int
    landed_count: int
    missing_count: int
    nowhere_count: int
    twice_count: int
    unacknowledged_count: int
    others_count: int
    misplaced_count: int
    missing: tuple[Stretch, ...] = ()
    twice: tuple[Stretch, ...] = ()
    notes: tuple[str, ...] = ()
    log_bytes: int = 0


def read_copy(directory: str | Path, run_key: int, records_count: int) -> ReadCopy:
    """Read a replica of a partition. Raises as `select_partition`."""
    trouble = Trouble()
    selected = select_partition(directory)
    partition = Partition.of(selected)
    times = np.zeros(records_count, np.int64)
    others = beyond = 0
    for part in read_parts(partition, trouble):
        for decoded in decode_part(part, part.is_data, trouble):
            if isinstance(decoded, DecodedBatches):
                found, others_count = sequences_in(decoded.records, run_key)
            else:
                keys = [sequence_of(each.key, run_key) for each in decoded.records]
                found = np.array([each for each in keys if each is not None], np.int64)
                others_count = len(keys) - len(found)
            is_known = (found >= 0) & (found < records_count)
            times += np.bincount(found[is_known], minlength=records_count)
            others += others_count
            beyond += int((~is_known).sum())
    return ReadCopy(
        times=np.minimum(times, MAX_TIMES).astype(np.uint8),
        others_count=others,
        beyond_count=beyond,
        notes=tuple(trouble.reported(str(directory))),
        log_bytes=selected.log_bytes(),
    )


def stretches(partition: NDArray[np.int32], is_one: NDArray[np.bool_]) -> tuple[Stretch, ...]:
    """Return the selected records by partition, with successive records as one stretch."""
    found: list[Stretch] = []
    for number in np.unique(partition[is_one]).tolist():
        own = np.flatnonzero(partition == number)
        places = np.flatnonzero(is_one[own])
        found += (
            Stretch(
                partition=number,
                first_sequence=int(own[each[0]]),
                last_sequence=int(own[each[-1]]),
                records_count=len(each),
            )
            for each in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        )
    return tuple(found)


def judge(
    sent: Sent,
    copies: Mapping[tuple[int, int], ReadCopy],
    in_sync: Mapping[int, Sequence[int]],
) -> Landed:
    """Compare the logs with the producer's answers.

    Args:
        sent: the producer's answers.
        copies: by broker and partition.
        in_sync: for each partition, the brokers whose logs count.
    """
    count = sent.records_count
    in_all = np.zeros(count, bool)
    is_twice = np.zeros(count, bool)
    is_anywhere = np.zeros(count, bool)
    misplaced = np.zeros(count, bool)
    for (_, partition), copy in copies.items():
        is_anywhere |= copy.times > 0
        misplaced |= (copy.times > 0) & (sent.partition != partition)
    for partition, brokers in in_sync.items():
        is_own = sent.partition == partition
        found = [copies[broker, partition].times for broker in brokers]
        if not found:
            continue
        in_all |= is_own & np.logical_and.reduce([each > 0 for each in found])
        is_twice |= np.logical_or.reduce([each > 1 for each in found])
    is_acknowledged = sent.status == ACKNOWLEDGED
    return Landed(
        acknowledged_count=int(is_acknowledged.sum()),
        landed_count=int((is_acknowledged & in_all).sum()),
        missing_count=int((is_acknowledged & ~in_all).sum()),
        nowhere_count=int((is_acknowledged & ~is_anywhere).sum()),
        twice_count=int(is_twice.sum()),
        unacknowledged_count=int((~is_acknowledged & in_all).sum()),
        others_count=sum(each.others_count + each.beyond_count for each in copies.values()),
        misplaced_count=int(misplaced.sum()),
        missing=stretches(sent.partition, is_acknowledged & ~in_all),
        twice=stretches(sent.partition, is_twice),
        notes=tuple(note for each in copies.values() for note in each.notes),
        log_bytes=sum(each.log_bytes for each in copies.values()),
    )


def count(
    sent: Sent,
    copies: Mapping[tuple[int, int], ReadCopy],
    in_sync: Mapping[int, Sequence[int]],
) -> Landed:
    """Compare as `judge`, by numbers alone, because the records have no keys."""
    acknowledged = int((sent.status == ACKNOWLEDGED).sum())
    there = anywhere = 0
    for partition, brokers in in_sync.items():
        own = [copies[broker, partition].others_count for broker in brokers]
        there += min(own, default=0)
        anywhere += max(
            (copy.others_count for (_, number), copy in copies.items() if number == partition),
            default=0,
        )
    landed = min(there, acknowledged)
    return Landed(
        acknowledged_count=acknowledged,
        landed_count=landed,
        missing_count=acknowledged - landed,
        nowhere_count=max(acknowledged - anywhere, 0),
        twice_count=max(there - sent.records_count, 0),
        unacknowledged_count=max(min(there, sent.records_count) - acknowledged, 0),
        others_count=0,
        misplaced_count=0,
        notes=tuple(note for each in copies.values() for note in each.notes),
        log_bytes=sum(each.log_bytes for each in copies.values()),
    )


def read_copies(
    run_key: int,
    records_count: int,
    log_dirs: Mapping[int, Path],
    topic: str,
    in_sync: Mapping[int, Sequence[int]],
) -> dict[tuple[int, int], ReadCopy]:
    """Read all existing replicas of a topic, by broker and partition.

    Args:
        run_key: of the run.
        records_count: of the run.
        log_dirs: by broker, with dead brokers.
        topic: the topic of the run.
        in_sync: for each partition, the brokers whose logs count.

    Raises:
        EoctlError: a partition of a broker in sync is missing or unreadable.
    """
    return {
        (broker, partition): read_copy(log_dir / f"{topic}-{partition}", run_key, records_count)
        for partition, brokers in in_sync.items()
        for broker, log_dir in log_dirs.items()
        if broker in brokers or (log_dir / f"{topic}-{partition}").is_dir()
    }


# -- arrival of each record at a consumer, for the latency from end to end.
#
# The consumer reads in its own thread, in the producer's process. Both share a clock, and one
# interpreter, whose cost is part of the measurement.


TURN_S = 0.05
MAX_MESSAGES = 500
READY_S = 60.0
LATE_S = 60.0  # silence after which the remaining records count as never received
FROM_BEGINNING = -2


class Reader:
    """Consumer that reads a topic from its beginning until it has to stop."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, run_key: int, *, is_committed: bool
    ) -> None:
        self._run_key = run_key
        self._received: dict[int, int] = {}
        self._ends = threading.Event()
        self._is_ready = threading.Event()
        self._last_ns = time.monotonic_ns()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"eoctl-bench-{run_key:x}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if is_committed else "read_uncommitted",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, FROM_BEGINNING)
                               for each in range(partitions)])  # fmt: skip
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait(READY_S)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.close()

    def received_ns(self, wanted: NDArray[np.int64], records_count: int) -> NDArray[np.int64]:
        """Wait for records, by sequence, and return when each arrived, 0 for never."""
        left = {*wanted.tolist()}
        while left := {each for each in left if each not in self._received}:
            if time.monotonic_ns() - self._last_ns > LATE_S * 1e9:
                break
            time.sleep(TURN_S)
        found = np.zeros(records_count, np.int64)
        for sequence, time_ns in list(self._received.items()):
            if sequence < records_count:
                found[sequence] = time_ns
        return found

    def _read(self) -> None:
        while not self._ends.is_set():
            # A timed `consume` alone would wait until all its messages have arrived.
            first = self._consumer.poll(TURN_S)
            self._is_ready.set()
            if first is None:
                continue
            messages = [first, *self._consumer.consume(MAX_MESSAGES, 0)]
            now_ns = time.monotonic_ns()
            for message in messages:
                sequence = None if message.error() else sequence_of(message.key(), self._run_key)
                if sequence is not None:
                    self._received.setdefault(sequence, now_ns)
                    self._last_ns = now_ns


# -- records that a consumer gets, for the audit of brokers on other machines.
#
# It reads everything in read_uncommitted. This is one replica, the leader's. It proves that a
# record exists, but not that every replica in sync has it.


LEADER = -1  # stands for the broker that leads
AUDIT_TURN_S = 1.0
SILENCE_S = 60.0
AUDIT_MESSAGES = 2000


def consumed_copies(
    bootstrap: str, topic: str, partitions: int, run_key: int, records_count: int
) -> dict[tuple[int, int], ReadCopy]:
    """Read a topic to its end, and return a copy of each partition, from the broker LEADER."""
    times: dict[int, NDArray[np.int64]] = {
        each: np.zeros(records_count, np.int64) for each in range(partitions)
    }
    others, beyond, read_bytes = [np.zeros(partitions, np.int64) for _ in range(3)]
    notes: dict[int, str] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"eoctl-bench-audit-{run_key:x}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    left = {*range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, each, FROM_BEGINNING) for each in range(partitions)])
        last_s = time.monotonic()
        while left and time.monotonic() - last_s < SILENCE_S:
            for message in consumer.consume(AUDIT_MESSAGES, AUDIT_TURN_S):
                last_s = time.monotonic()
                partition = message.partition()
                assert partition is not None  # it was assigned
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        left.discard(partition)
                    elif partition in times:
                        notes[partition] = f"{topic}-{partition}: {error.str()}"
                    continue
                sequence = sequence_of(message.key(), run_key)
                read_bytes[partition] += len(message)
                if sequence is None:
                    others[partition] += 1
                elif sequence < records_count:
                    times[partition][sequence] += 1
                else:
                    beyond[partition] += 1
    finally:
        consumer.close()
    for each in left:
        notes.setdefault(each, f"{topic}-{each}: not read to its end within {SILENCE_S:.0f} s")
    return {
        (LEADER, each): ReadCopy(
            times=np.minimum(times[each], MAX_TIMES).astype(np.uint8),
            others_count=int(others[each]),
            beyond_count=int(beyond[each]),
            notes=(notes[each],) if each in notes else (),
            log_bytes=int(read_bytes[each]),
        )
        for each in range(partitions)
    }
