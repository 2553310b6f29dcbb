"""The load: one producer of librdkafka, every record of which is followed to its answer.

A synchronous producer waits for answers: at most so many records are without one (`in_flight`), and
the next is sent when one comes. At a rate records have their times beforehand, and one that is sent
late is late by that: its latency begins at the time that was intended.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain, count, islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaException, Producer

from eoctl.bench.identity import KEY, POOL_COUNT, values_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from eoctl.bench.scenarios import Cell

ACKNOWLEDGED, FAILED = 1, 2  # 0: without an answer
TURN_S = 0.05
FLUSH_S = 330.0  # longer than librdkafka keeps a record, so that each one has an answer
SHORTEST_SLEEP_NS = 200_000
CLOCK_EVERY = 256  # records of the bare loop


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


class SendLane(NamedTuple):
    """Sends records and follows them: functions over one state, as attributes cost a fifth more.

    Attributes:
        put: sends one, by (sequence, key, intended_ns, partition); returns how many have no answer.
        open_count: how many have none by now.
        silence_s: since the last answer.
    """

    put: Callable[[int, bytes, int, int], int]
    open_count: Callable[[], int]
    silence_s: Callable[[], float]


class Followed(NamedTuple):
    """What is known of records, by their sequence; lists, as these are quicker than arrays."""

    intended_ns: list[int]
    answered_ns: list[int]
    failed: list[int]
    errors: Counter[str]


def lane(producer: Producer, topic: str, values: list[bytes], followed: Followed) -> SendLane:
    """Begin to send. What is done for each record decides whether brokers are measured, or this."""
    produce, clock_ns = producer.produce, time.monotonic_ns
    intended, answered = followed.intended_ns, followed.answered_ns
    open_count, last_answer_ns = 0, clock_ns()

    def answer(sequence: int, error: Any, _message: object) -> None:
        nonlocal open_count, last_answer_ns
        open_count -= 1
        answered[sequence] = last_answer_ns = clock_ns()
        if error is not None:
            followed.failed.append(sequence)
            followed.errors[error.name()] += 1

    def put(sequence: int, key: bytes, intended_ns: int, partition: int) -> int:
        nonlocal open_count
        intended.append(intended_ns)
        answered.append(0)
        open_count += 1
        value = values[sequence % POOL_COUNT]
        produce(topic, value, key, partition, partial(answer, sequence))
        return open_count

    return SendLane(put, lambda: open_count, lambda: (clock_ns() - last_answer_ns) / 1e9)


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raise an interrupt that came while librdkafka told of an answer: it makes nothing of it.

    Raises KeyboardInterrupt.
    """
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    with ExitStack() as stack:
        for each in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not in the main thread
                stack.callback(signal.signal, each, signal.signal(each, note))
        try:
            yield
        except SystemError as error:  # "poll returned NULL without setting an exception"
            if not came:
                raise
            raise KeyboardInterrupt from error


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
        self._followed = Followed(intended_ns=[], answered_ns=[], failed=[], errors=Counter())
        self._lane = lane(self._producer, topic, self._values, self._followed)

    def send(self, rate: float = 0.0) -> Sent:
        """Send all records, `rate` a second or (0) as answers come, and wait for their answers."""
        self.send_all(rate)
        answered_ns = np.array(self._followed.answered_ns, np.int64)
        status = np.where(answered_ns > 0, ACKNOWLEDGED, 0).astype(np.int8)
        return self._result(status, np.arange(len(status)) % self._partitions)

    def send_all(self, rate: float = 0.0) -> None:
        """Do what `send` does but for its result: as much as is timed."""
        keys, partitions, in_flight = self._keys(), self._partitions, self._options.in_flight
        poll, put, clock_ns = self._producer.poll, self._lane.put, time.monotonic_ns
        is_slow = self._on_turn is not None or rate > 0
        gap_ns = 1e9 / rate if rate else 0.0
        begun_ns = clock_ns()
        due_ns = sequence = 0
        for sequence, key in enumerate(keys):
            if is_slow:
                due_ns = begun_ns + int(sequence * gap_ns) if rate else 0
                self._wait(sequence, due_ns)
            is_full = put(sequence, key, due_ns or clock_ns(), sequence % partitions) >= in_flight
            poll(0)
            if is_full:
                self._wait(sequence, 0)
        self._finish(sequence)

    def _keys(self) -> Iterable[bytes]:
        """Give the keys of all records: made before where it is known how many there are."""
        run_key, seconds = self._run_key, self._options.seconds
        if seconds:
            deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
            return takewhile(
                lambda _: time.monotonic_ns() < deadline_ns,
                (KEY.pack(run_key, each) for each in count()),
            )
        return [KEY.pack(run_key, each) for each in range(self._options.records)]

    def send_transactions(self, records: int, partitions: int, max_count: int) -> Sent:
        """Send records in transactions of so many, each over so many partitions.

        The answer to a record is the end of its transaction.
        """
        self._producer.init_transactions(FLUSH_S)
        keys = iter(self._keys())
        sent_to: list[int] = []
        committed: list[tuple[int, int]] = []  # sequences [first, end) of transactions
        for number in range(max_count):
            first = len(sent_to)
            if (key := next(keys, None)) is None:
                break
            self._producer.begin_transaction()
            for sequence, each in enumerate(chain([key], islice(keys, records - 1)), first):
                self._wait(sequence, 0)
                sent_to.append((number + sequence % partitions) % self._partitions)
                self._lane.put(sequence, each, time.monotonic_ns(), sent_to[-1])
                self._producer.poll(0)
            if self._has_committed(first, len(sent_to)):
                committed.append((first, len(sent_to)))
        self._finish(len(sent_to))
        status = np.zeros(len(sent_to), np.int8)
        for first, end in committed:
            status[first:end] = ACKNOWLEDGED
        return self._result(status, np.array(sent_to, np.int64))

    def _has_committed(self, first: int, end: int) -> bool:
        """Commit; the records are acknowledged if that is."""
        sent, is_committed = self._followed, True
        try:
            self._producer.commit_transaction(FLUSH_S)
        except KafkaException as error:
            sent.errors[error.args[0].name()] += 1
            sent.failed.extend(range(first, end))
            is_committed = False
            self._producer.abort_transaction(FLUSH_S)
        sent.answered_ns[first:end] = [time.monotonic_ns()] * (end - first)
        return is_committed

    def send_bare(self) -> Sent:
        """Send them by the plainest loop there is: nothing is known of a record but that it ended.

        The clock is read before each `CLOCK_EVERY`th record; the others' times lie between. All
        are answered at the end.
        """
        keys, in_flight, clock_ns = self._keys(), self._options.in_flight, time.monotonic_ns
        produce, poll, topic = self._producer.produce, self._producer.poll, self._topic
        values, partitions = self._values, self._partitions
        left = Counter(open=0, failed=0)
        times_ns: list[int] = []
        sequence = -1

        def done(error: object, _message: object) -> None:
            left["open"] -= 1
            if error is not None:
                left["failed"] += 1

        for sequence, key in enumerate(keys):
            if not sequence % CLOCK_EVERY:
                times_ns.append(clock_ns())
            while left["open"] >= in_flight:
                poll(TURN_S)
            left["open"] += 1
            produce(topic, values[sequence % POOL_COUNT], key, sequence % partitions, done)
            poll(0)
        records = sequence + 1
        times_ns.append(clock_ns())
        self._producer.flush(FLUSH_S)
        return Sent(
            intended_ns=_between(times_ns, records),
            answered_ns=np.full(records, clock_ns(), np.int64),
            status=np.full(records, FAILED if left["failed"] else ACKNOWLEDGED, np.int8),
            partition=(np.arange(records) % partitions).astype(np.int32),
            errors={"failed": left["failed"]} if left["failed"] else {},
        )

    # --- inside ----------------------------------------------------------------------------------

    def _result(self, status: NDArray[np.int8], partition: NDArray[np.int64]) -> Sent:
        sent = self._followed
        status[sent.failed] = FAILED
        return Sent(
            intended_ns=np.array(sent.intended_ns, np.int64),
            answered_ns=np.array(sent.answered_ns, np.int64),
            status=status,
            partition=partition.astype(np.int32),
            errors=dict(sent.errors.most_common()),
        )

    def _wait(self, sequence: int, due_ns: int) -> None:
        """Wait for an answer where too many are missing, and for the time of this record."""
        poll, in_flight = self._producer.poll, self._options.in_flight
        self._turn(sequence)
        while self._lane.open_count() >= in_flight:
            poll(TURN_S)
            self._turn(sequence)
        while due_ns and (left_ns := due_ns - time.monotonic_ns()) > SHORTEST_SLEEP_NS:
            poll(min(left_ns / 1e9, TURN_S))

    def _finish(self, sequence: int) -> None:
        end_ns = time.monotonic_ns() + int(FLUSH_S * 1e9)
        while len(self._producer) and time.monotonic_ns() < end_ns:
            self._producer.poll(TURN_S)
            self._turn(sequence)

    def _turn(self, sequence: int) -> None:
        if self._on_turn is not None:
            self._on_turn(sequence, self._lane.silence_s())


def _between(times_ns: list[int], records: int) -> NDArray[np.int64]:
    """Give each record's time, of those of each `CLOCK_EVERY`th one and of the end."""
    known = [*range(0, records, CLOCK_EVERY), records]
    begun_ns = times_ns[0]  # a float64 has too few bits for the clock itself
    passed_ns = np.interp(np.arange(records), known, np.array(times_ns) - begun_ns)
    found: NDArray[np.int64] = passed_ns.astype(np.int64) + begun_ns
    return found


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
