"""Load of a producer. Each record has a key of 16 bytes, by which the audit recognises it on disk.

    pos  width  type    meaning
      0      8  uint64  the run, drawn for each run of a cell
      8      8  uint64  the record of the run, from 0 on

The value is 1,000 seeded bytes, which do not compress.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain, count, islice, takewhile
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaException, Producer

from storage.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from eoctl.lab.bench.brokers import Kafka
    from eoctl.lab.bench.scenarios import Cell
    from storage.kernels.record_table import RecordTable

    Ints = NDArray[np.int64]


KEY = Struct(">QQ")
KEY_BYTES = 16
SEQUENCE_POS = 8
POOL_COUNT = 256  # different values, used in turn


def values_pool(seed: int, value_bytes: int) -> list[bytes]:
    """Return the values of one seed."""
    data = np.random.default_rng(seed).bytes(POOL_COUNT * value_bytes)
    return [data[pos : pos + value_bytes] for pos in range(0, len(data), value_bytes or 1)] or [b""]


def sequence_of(key: bytes | None, run_key: int) -> int | None:
    """Return the sequence of a key in a run, None for another run."""
    if key is None or len(key) != KEY_BYTES:
        return None
    run, sequence = KEY.unpack(key)
    return int(sequence) if run == run_key else None


def sequences_in(records: RecordTable, run_key: int) -> tuple[NDArray[np.int64], int]:
    """Return the sequences of a run's records in a table, and the number of other records."""
    own = records.key_bytes == KEY_BYTES
    pos = records.key_pos[own]
    if not len(pos):
        return np.empty(0, np.int64), records.row_count
    source = np.asarray(records.source)
    keys = np.ascontiguousarray(source[pos[:, None] + np.arange(KEY_BYTES)]).view(">u8")
    is_ours = keys[:, 0] == np.uint64(run_key)
    found = keys[is_ours, 1].astype(np.int64)
    return found, records.row_count - len(found)


# -- latencies: every sample is kept, and a percentile is one of the samples.
#
# A sample is the time from the intended send of a record until its answer. If a producer falls
# behind its rate, the waiting counts too. Percentiles use the nearest rank, which is the smallest
# sample that is not below that share of all samples.


# In ten-thousandths: whole numbers, so that rounding never shifts a rank.
PERCENTILES = {"p50": 5000, "p95": 9500, "p99": 9900, "p99_9": 9990, "p99_99": 9999}
WHOLE = 10_000
MIN_SAMPLES = 10_000  # for p99.99, which would otherwise be the maximum


class Latency(NamedTuple):
    """Latencies in microseconds, rounded. None if there are too few samples."""

    samples_count: int
    avg_us: int
    min_us: int
    p50_us: int
    p95_us: int
    p99_us: int
    p99_9_us: int
    p99_99_us: int | None
    max_us: int


def nearest_rank(ordered: Ints, share: int) -> int:
    """Return the percentile of at least one sorted sample. `share` is of 10,000."""
    rank = -(-share * len(ordered) // WHOLE)
    return int(ordered[max(rank, 1) - 1])


def summarise(samples_ns: Ints) -> Latency | None:
    """Summarise samples in nanoseconds. Return None without samples."""
    if not len(samples_ns):
        return None
    ordered = np.sort(samples_ns)
    found = {name: _us(nearest_rank(ordered, share)) for name, share in PERCENTILES.items()}
    has_enough = len(ordered) >= MIN_SAMPLES
    return Latency(
        samples_count=len(ordered),
        avg_us=_us(int(ordered.mean())),
        min_us=_us(int(ordered[0])),
        p50_us=found["p50"],
        p95_us=found["p95"],
        p99_us=found["p99"],
        p99_9_us=found["p99_9"],
        p99_99_us=found["p99_99"] if has_enough else None,
        max_us=_us(int(ordered[-1])),
    )


def _us(time_ns: int) -> int:
    return (time_ns + 500) // 1000


# -- the load: one librdkafka producer, with every record followed to its answer.
#
# A synchronous producer waits for answers. At most `in_flight` records have no answer, and the next
# record is sent when an answer comes. At a rate, records have planned times. The latency of a late
# record begins at the planned time.


ACKNOWLEDGED, FAILED = 1, 2  # 0: no answer
TURN_S = 0.05
FLUSH_S = 330.0  # longer than librdkafka keeps a record, so that each record has an answer
SHORTEST_SLEEP_NS = 200_000
CLOCK_EVERY = 256  # records of the bare loop


class LoadOptions(NamedTuple):
    """Settings of all loads of a command.

    Attributes:
        records: number of records.
        seconds: duration of the load instead of `records`, 0 without a duration.
        in_flight: maximum of unanswered records.
        seed: of the values.
    """

    records: int
    seconds: float
    in_flight: int
    value_bytes: int
    seed: int


class Sent(NamedTuple):
    """Results of a run's records, by their sequence.

    Attributes:
        intended_ns: planned time of each record, of a monotonic clock.
        answered_ns: time of the answer, 0 for never.
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
        """Number of records that the producer got."""
        return len(self.intended_ns)


def producer_settings(bootstrap: str, cell: Cell, txn_id: str = "") -> dict[str, Any]:
    """Return the producer settings of a cell. Others are librdkafka's defaults."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": cell.acks,
        "retries": cell.retries,
        "linger.ms": 0,
        # The limit of an idempotent producer. Otherwise the test would compare order, not
        # idempotence.
        "max.in.flight.requests.per.connection": 5,
        "enable.idempotence": cell.is_idempotent,
        "log_level": 0,
    }
    return settings | ({"transactional.id": txn_id} if txn_id else {})


class SendLane(NamedTuple):
    """Functions that send and follow records. They share state, as attributes cost a fifth more.

    Attributes:
        put: sends a record, by (sequence, key, intended_ns, partition), and returns the number of
            records without an answer.
        open_count: returns the number of records without an answer.
        silence_s: returns the time since the last answer.
    """

    put: Callable[[int, bytes, int, int], int]
    open_count: Callable[[], int]
    silence_s: Callable[[], float]


class Followed(NamedTuple):
    """State of records by their sequence, in lists, which are faster than arrays."""

    intended_ns: list[int]
    answered_ns: list[int]
    failed: list[int]
    errors: Counter[str]


def lane(producer: Producer, topic: str, values: list[bytes], followed: Followed) -> SendLane:
    """Begin to send. The work per record decides whether brokers or the client set the rate."""
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
    """Raise an interrupt that librdkafka has swallowed in a callback. Raises KeyboardInterrupt."""
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
    """Sender of one run's records.

    Args:
        settings: of the producer.
        topic: has `partitions`. Record i goes to partition i modulo their number.
        run_key: key of this run.
        on_turn: called now and then with (sequence, seconds without an answer). It may inject
            faults.
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
        """Send all records, `rate` per second or (0) as answers come, and wait for the answers."""
        self.send_all(rate)
        answered_ns = np.array(self._followed.answered_ns, np.int64)
        status = np.where(answered_ns > 0, ACKNOWLEDGED, 0).astype(np.int8)
        return self._result(status, np.arange(len(status)) % self._partitions)

    def send_all(self, rate: float = 0.0) -> None:
        """Send as `send` does, without the result. This part is timed."""
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
        """Return the keys of all records, prepared if their number is known."""
        run_key, seconds = self._run_key, self._options.seconds
        if seconds:
            deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
            return takewhile(
                lambda _: time.monotonic_ns() < deadline_ns,
                (KEY.pack(run_key, each) for each in count()),
            )
        return [KEY.pack(run_key, each) for each in range(self._options.records)]

    def send_transactions(self, records: int, partitions: int, max_count: int) -> Sent:
        """Send transactions of `records` records, each over `partitions` partitions.

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
        """Commit, and return whether the records are acknowledged by that."""
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
        """Send by the simplest loop, which only counts the records that ended.

        It reads the clock before each `CLOCK_EVERY`th record, and interpolates the other times. All
        answers get the time of the end.
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
        """Wait for an answer if too many are missing, and for the time of this record."""
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
    """Return each record's time, interpolated from the clock readings and the end."""
    known = [*range(0, records, CLOCK_EVERY), records]
    begun_ns = times_ns[0]  # a float64 has too few bits for the clock itself
    passed_ns = np.interp(np.arange(records), known, np.array(times_ns) - begun_ns)
    found: NDArray[np.int64] = passed_ns.astype(np.int64) + begun_ns
    return found


def measured(sent: Sent, warmup_ratio: float) -> slice:
    """Return the slice of records that count for figures, without the warm-up."""
    return slice(int(sent.records_count * warmup_ratio), None)


def records_per_s(sent: Sent, warmup_ratio: float) -> float:
    """Return acknowledged records per second, from the end of the warm-up to the last answer."""
    part = measured(sent, warmup_ratio)
    is_acknowledged = sent.status[part] == ACKNOWLEDGED
    if not is_acknowledged.any():
        return 0.0
    begun_ns = int(sent.intended_ns[part][0])
    ended_ns = int(sent.answered_ns[part].max())
    return float(is_acknowledged.sum()) * 1e9 / max(ended_ns - begun_ns, 1)


def latencies_ns(sent: Sent, warmup_ratio: float) -> NDArray[np.int64]:
    """Return the time from plan to answer of each acknowledged record after the warm-up."""
    part = measured(sent, warmup_ratio)
    is_acknowledged = sent.status[part] == ACKNOWLEDGED
    found: NDArray[np.int64] = (sent.answered_ns[part] - sent.intended_ns[part])[is_acknowledged]
    return found


# -- the same records from Kafka's own producer, for comparison: kafka-producer-perf-test.
#
# It waits for room in its buffer (32 MiB), not for answers. Its records have no keys, so the audit
# counts them.


PROGRAM = "org.apache.kafka.tools.ProducerPerformance"
LONGEST_S = 3600.0
_REPORTED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
_FAILED = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")


def send_by_java(
    kafka: Kafka, bootstrap: str, cell: Cell, topic: str, options: LoadOptions
) -> Sent:
    """Send with Kafka's tool. All records get the same times, which give the tool's rate.

    Raises:
        RefusedError: the tool fails, or its output is unknown.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": str(cell.acks),
        "retries": str(cell.retries),
        "linger.ms": "0",
        "enable.idempotence": str(cell.is_idempotent).lower(),
    }
    command = kafka.command(
        "-Xmx256M", PROGRAM, "--topic", topic, "--num-records", str(options.records),
        "--record-size", str(options.value_bytes), "--throughput", "-1",
        "--producer-props", *(f"{name}={value}" for name, value in settings.items()),
    )  # fmt: skip
    begun_ns = time.monotonic_ns()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False, timeout=LONGEST_S,
    )  # fmt: skip
    reported = _REPORTED.findall(done.stdout)
    if done.returncode != 0 or not reported:
        last = [*filter(None, (done.stderr + done.stdout).splitlines())][-1:]
        raise RefusedError(f"{PROGRAM} ended with status {done.returncode}: {''.join(last)}")
    count, rate = int(reported[-1][0]), float(reported[-1][1])
    errors: dict[str, int] = {}
    for name in _FAILED.findall(done.stdout + done.stderr):
        errors[name] = errors.get(name, 0) + 1
    acknowledged = max(count - sum(errors.values()), 0)
    ended_ns = begun_ns + round(count * 1e9 / rate) if rate else begun_ns
    return Sent(
        intended_ns=np.full(count, begun_ns, np.int64),
        answered_ns=np.full(count, ended_ns, np.int64),
        status=np.where(np.arange(count) < acknowledged, ACKNOWLEDGED, FAILED).astype(np.int8),
        partition=np.full(count, -1, np.int32),
        errors=errors,
    )
