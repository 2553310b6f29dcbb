"""What a consumer is given of a topic, for the audit of brokers whose disks are elsewhere.

It reads all of it, in read_uncommitted. That is one copy, the leader's: it says that a record is
there, and not that every replica in sync has it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition

from eoctl.bench.identity import sequence_of
from eoctl.bench.landed import MAX_TIMES, ReadCopy

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEADER = -1  # the broker that stands for whoever leads
TURN_S = 1.0
SILENCE_S = 60.0
MAX_MESSAGES = 2000
FROM_BEGINNING = -2


def consumed_copies(
    bootstrap: str, topic: str, partitions: int, run_key: int, records_count: int
) -> dict[tuple[int, int], ReadCopy]:
    """Read a topic to its end; a copy of each partition, of the broker LEADER."""
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
            for message in consumer.consume(MAX_MESSAGES, TURN_S):
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
