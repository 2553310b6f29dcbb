"""When a consumer has each record: the other end of the latency from end to end.

It reads in a thread of its own, in the process of the producer: both have one clock, and share one
interpreter, which is part of what is measured.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from eoctl.bench.identity import sequence_of

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

TURN_S = 0.05
MAX_MESSAGES = 500
READY_S = 60.0
LATE_S = 60.0  # so long nothing may come before the rest counts as never received
FROM_BEGINNING = -2


class Reader:
    """Reads a topic from its beginning on, until it is told to end."""

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
        """Wait for some records, by sequence, and tell when each was there; 0: never."""
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
            # Not `consume` alone: with a time to wait it waits for all that it may give.
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
