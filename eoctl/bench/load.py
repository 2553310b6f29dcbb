"""The load: one producer of librdkafka, every record of which is followed to its answer.

A synchronous producer waits for answers: at most so many records are without one (`in_flight`), and
the next is sent when one comes. At a rate records have their times beforehand, and one that is sent
late is late by that: its latency begins at the time that was intended.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaException, Producer

from eoctl.bench.identity import KEY, POOL_COUNT, values_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from eoctl.bench.scenarios import Cell

ACKNOWLEDGED, FAILED = 1, 2  # 0: without an answer
TURN_S = 0.05
FLUSH_S = 330.0  # longer than librdkafka keeps a record, so that each one has an answer
SHORTEST_SLEEP_NS = 200_000


class LoadOptions(NamedTuple):
    """What all loads of a call have in common.

    Attributes:
        records: how many.
        seconds: 0, or as long as this in place of so many records.
        in_flight: so many records at most are without an answer.
        seed: of the values.
    """

    records: int
    seconds: float
    in_flight: int
    value_bytes: int
    seed: int


class Sent(NamedTuple):
    """What became of the records of a run, by their sequence.

    Attributes:
        intended_ns: when each was to be sent, of a monotonic clock.
        answered_ns: 0: never.
        status: ACKNOWLEDGED, FAILED, 0.
        errors: by name.
    """

    intended_ns: NDArray[np.int64]
    answered_ns: NDArray[np.int64]
    status: NDArray[np.int8]
    partition: NDArray[np.int32]
    errors: dict[str, int]

    @property
    def records_count(self) -> int:
        """How many were given to the producer."""
        return len(self.intended_ns)


def producer_settings(bootstrap: str, cell: Cell, txn_id: str = "") -> dict[str, Any]:
    """Settings of the producer of a cell; all others are librdkafka's defaults."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": cell.acks,
        "retries": cell.retries,
        "linger.ms": 0,
        # As an idempotent producer has to: otherwise order, not idempotence, would be compared.
        "max.in.flight.requests.per.connection": 5,
        "enable.idempotence": cell.is_idempotent,
        "log_level": 0,
    }
    return settings | ({"transactional.id": txn_id} if txn_id else {})


class Load:
    """Sends the records of one run.

    Args:
        settings: of the producer.
        topic: has `partitions`; record i goes to partition i modulo these.
        run_key: which run this is, for the keys.
        on_turn: is called with (sequence, seconds without any answer) now and then, and may do
            something to brokers.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        topic: str,
        partitions: int,
        run_key: int,
        options: LoadOptions,
        on_turn: Callable[[int, float], None] | None = None,
    ) -> None:
        self._producer = Producer(settings)
        self._topic, self._partitions, self._run_key = topic, partitions, run_key
        self._options = options
        self._on_turn = on_turn
        self._values = values_pool(options.seed, options.value_bytes)
        self._intended, self._answered = array("q"), array("q")
        self._failed: list[int] = []
        self._committed: list[tuple[int, int]] = []  # sequences [first, end) of transactions
        self._sent_to = array("i")
        self._has_transactions = "transactional.id" in settings
        self._errors: Counter[str] = Counter()
        self._open = 0
        self._last_answer_ns = 0

    def send(self, rate: float = 0.0) -> Sent:
        """Send all records, `rate` a second or (0) as answers come, and wait for their answers.

        What is done for each record is what decides whether brokers are measured, or this loop.
        """
        keys = self._keys()
        poll, put, clock_ns = self._producer.poll, self._put, time.monotonic_ns
        in_flight, partitions, on_turn = self._options.in_flight, self._partitions, self._on_turn
        begun_ns = self._last_answer_ns = clock_ns()
        deadline_ns = begun_ns + int(self._options.seconds * 1e9) if self._options.seconds else 0
        gap_ns = 1e9 / rate if rate else 0.0
        sequence = 0
        for sequence, key in enumerate(keys):
            if deadline_ns and clock_ns() >= deadline_ns:
                break
            poll(0)
            intended_ns = begun_ns + int(sequence * gap_ns) if rate else 0
            if on_turn is not None or self._open >= in_flight or rate:
                self._wait(sequence, intended_ns)
            put(sequence, key, intended_ns or clock_ns(), sequence % partitions)
        self._finish(sequence)
        return self.result()

    def _keys(self) -> Iterable[bytes]:
        """Give the keys of all records: made before where it is known how many there are."""
        if self._options.seconds:
            return (KEY.pack(self._run_key, each) for each in count())
        return [KEY.pack(self._run_key, each) for each in range(self._options.records)]

    def send_transactions(self, records: int, partitions: int, max_count: int) -> Sent:
        """Send records in transactions of so many, each over so many partitions.

        The answer to a record is the end of its transaction.
        """
        self._producer.init_transactions(FLUSH_S)
        begun_ns = time.monotonic_ns()
        deadline_ns = begun_ns + int(self._options.seconds * 1e9) if self._options.seconds else 0
        sequence = number = 0
        while number < max_count and self._goes_on(sequence, deadline_ns):
            first = sequence
            self._producer.begin_transaction()
            while sequence - first < records:
                self._producer.poll(0)
                self._wait(sequence, 0)
                partition = (number + sequence % partitions) % self._partitions
                key = KEY.pack(self._run_key, sequence)
                self._put(sequence, key, time.monotonic_ns(), partition)
                sequence += 1
            self._end_transaction(first, sequence)
            number += 1
        self._finish(sequence)
        return self.result()

    def _end_transaction(self, first: int, end: int) -> None:
        """Commit; the records are acknowledged if that is."""
        try:
            self._producer.commit_transaction(FLUSH_S)
            status = ACKNOWLEDGED
        except KafkaException as error:
            self._errors[error.args[0].name()] += 1
            status = FAILED
            self._producer.abort_transaction(FLUSH_S)
        now_ns = time.monotonic_ns()
        for sequence in range(first, end):
            self._answered[sequence] = now_ns
        if status == ACKNOWLEDGED:
            self._committed.append((first, end))
        else:
            self._failed.extend(range(first, end))

    def send_bare(self, warmup_ratio: float) -> Sent:
        """Send them by the plainest loop there is: nothing is known of a record but that it ended.

        The times of all are the begin behind the warm-up, and the end.
        """
        warmup_count = int(self._options.records * warmup_ratio)
        records, in_flight = self._options.records, self._options.in_flight
        produce, poll, topic = self._producer.produce, self._producer.poll, self._topic
        values, partitions = self._values, self._partitions
        keys = [KEY.pack(self._run_key, each) for each in range(records)]
        left = Counter(open=0, failed=0)

        def done(error: object, _message: object) -> None:
            left["open"] -= 1
            if error is not None:
                left["failed"] += 1

        begun_ns = time.monotonic_ns()
        for sequence, key in enumerate(keys):
            if sequence == warmup_count:
                begun_ns = time.monotonic_ns()
            while left["open"] >= in_flight:
                poll(TURN_S)
            left["open"] += 1
            produce(topic, values[sequence % POOL_COUNT], key, sequence % partitions, done)
            poll(0)
        self._producer.flush(FLUSH_S)
        ended_ns = time.monotonic_ns()
        return Sent(
            intended_ns=np.full(records, begun_ns, np.int64),
            answered_ns=np.full(records, ended_ns, np.int64),
            status=np.full(records, FAILED if left["failed"] else ACKNOWLEDGED, np.int8),
            partition=(np.arange(records) % partitions).astype(np.int32),
            errors={"failed": left["failed"]} if left["failed"] else {},
        )

    def result(self) -> Sent:
        """What is known of all records that were sent until now."""
        answered_ns = np.array(self._answered, np.int64)
        status = np.zeros(len(answered_ns), np.int8)
        if self._has_transactions:  # the end of its transaction is the answer to a record
            for first, end in self._committed:
                status[first:end] = ACKNOWLEDGED
        else:
            status[answered_ns > 0] = ACKNOWLEDGED
        status[self._failed] = FAILED
        return Sent(
            intended_ns=np.array(self._intended, np.int64),
            answered_ns=answered_ns,
            status=status,
            partition=np.array(self._sent_to, np.int32),
            errors=dict(self._errors.most_common()),
        )

    # --- one record ------------------------------------------------------------------------------

    def _goes_on(self, sequence: int, deadline_ns: int) -> bool:
        if deadline_ns:
            return time.monotonic_ns() < deadline_ns
        return sequence < self._options.records

    def _wait(self, sequence: int, intended_ns: int) -> None:
        """Wait for an answer where too many are missing, and for the time of this record."""
        poll = self._producer.poll
        if self._on_turn is not None:
            self._on_turn(sequence, self._silence_s())
        while self._open >= self._options.in_flight:
            poll(TURN_S)
            if self._on_turn is not None:
                self._on_turn(sequence, self._silence_s())
        while intended_ns and (left_ns := intended_ns - time.monotonic_ns()) > SHORTEST_SLEEP_NS:
            poll(min(left_ns / 1e9, TURN_S))

    def _put(self, sequence: int, key: bytes, intended_ns: int, partition: int) -> None:
        self._intended.append(intended_ns)
        self._answered.append(0)
        self._sent_to.append(partition)
        self._open += 1
        self._producer.produce(
            self._topic,
            self._values[sequence % POOL_COUNT],
            key,
            partition,
            partial(self._answer, sequence),
        )

    def _answer(self, sequence: int, error: Any, _message: object) -> None:
        self._open -= 1
        self._last_answer_ns = self._answered[sequence] = time.monotonic_ns()
        if error is not None:
            self._failed.append(sequence)
            self._errors[error.name()] += 1

    def _finish(self, sequence: int) -> None:
        end_ns = time.monotonic_ns() + int(FLUSH_S * 1e9)
        while len(self._producer) and time.monotonic_ns() < end_ns:
            self._producer.poll(TURN_S)
            if self._on_turn is not None:
                self._on_turn(sequence, self._silence_s())

    def _silence_s(self) -> float:
        return (time.monotonic_ns() - self._last_answer_ns) / 1e9


def measured(sent: Sent, warmup_ratio: float) -> slice:
    """Which records count for figures: all but those of the warm-up."""
    return slice(int(sent.records_count * warmup_ratio), None)


def records_per_s(sent: Sent, warmup_ratio: float) -> float:
    """Acknowledged records a second, from the first one behind the warm-up to the last answer."""
    part = measured(sent, warmup_ratio)
    is_acknowledged = sent.status[part] == ACKNOWLEDGED
    if not is_acknowledged.any():
        return 0.0
    begun_ns = int(sent.intended_ns[part][0])
    ended_ns = int(sent.answered_ns[part].max())
    return float(is_acknowledged.sum()) * 1e9 / max(ended_ns - begun_ns, 1)


def latencies_ns(sent: Sent, warmup_ratio: float) -> NDArray[np.int64]:
    """From the intended time to the answer, of each acknowledged record behind the warm-up."""
    part = measured(sent, warmup_ratio)
    is_acknowledged = sent.status[part] == ACKNOWLEDGED
    found: NDArray[np.int64] = (sent.answered_ns[part] - sent.intended_ns[part])[is_acknowledged]
    return found
