"""A coordinator over partitions in memory: what it writes, what a process that dies leaves."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_tail import empty_tail
from storage.dirs.topic_settings import LogConfig
from storage.errors import RefusedError
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.record import Record, parse_record
from storage.formats.record_batch import HEADER, BatchHeader, parse_header
from storage.formats.transaction_state import encode_key, encode_value
from storage.formats.transaction_state import parse_record as parse_state
from storage.producers.producer_state import Marker, ProducerStateManager
from storage.producers.transaction_metadata import CoordinatorError, Metadata, ProducerIdAndEpoch
from storage.writing.coordinator import ClusterSettings, TransactionCoordinator
from storage.writing.partition_store import PlannedStore
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from storage.formats.transaction_state import TransactionState

Where = tuple[str, int]

CONFIG = LogConfig(segment_bytes=2**31 - 1, segment_ms=2**62, index_max_bytes=2**30)


class DiedError(BaseException):
    """The process ends here: no handler of errors may stop it."""


class Fuse:
    """Lets a process die at its n-th write from now on; `is_written`: just behind it."""

    def __init__(self) -> None:
        self.left = -1
        self.is_written = False
        self.count = 0  # writes made

    def set(self, left: int, *, is_written: bool = False) -> None:
        self.left, self.is_written = left, is_written

    def write(self, change: Callable[[], None]) -> None:
        self.left -= 1
        if self.left == -1 and not self.is_written:
            raise DiedError
        change()
        self.count += 1
        if self.left == -1:
            raise DiedError


class MemoryStore(PlannedStore):
    """A directory that is a list of batches."""

    def __init__(self, log: list[bytes], fuse: Fuse) -> None:
        super().__init__("/nowhere/t-0")
        self._log = log
        self._fuse = fuse

    def append(self, batch: bytes | bytearray) -> None:
        data = bytes(batch)
        self._fuse.write(lambda: self._log.append(data))


class Row(NamedTuple):
    """A batch of a log."""

    header: BatchHeader
    records: list[Record]

    @property
    def marker(self) -> Marker | None:
        if not self.header.is_control:
            return None
        key, value = self.records[0].key, self.records[0].value
        assert key is not None
        assert value is not None
        coordinator_epoch = int.from_bytes(value[2:6], signed=True)
        return Marker(key[3] == 1, coordinator_epoch, self.header.max_timestamp_ms)


def rows_of(log: list[bytes]) -> list[Row]:
    """The batches of a log, none of them compressed."""
    return [Row(parse_header(data, 0), list(_records(data))) for data in log]


def _records(data: bytes) -> Iterator[Record]:
    pos = HEADER.size
    while pos < len(data):
        record, pos = parse_record(data, pos, len(data))
        yield record


def states_of(log: list[bytes]) -> list[tuple[str, TransactionState | None]]:
    """The records of a partition of `__transaction_state`."""
    return [parse_state(each.key, each.value) for row in rows_of(log) for each in row.records]


def committed(log: list[bytes]) -> list[bytes | None]:
    """The values that a read_committed consumer gets of a log whose end is its last stable offset.

    In the order of the markers, not of the offsets.
    """
    pending: dict[int, list[bytes | None]] = {}
    found: list[bytes | None] = []
    for header, records in rows_of(log):
        if not header.is_control:
            pending.setdefault(header.producer_id, []).extend(each.value for each in records)
            continue
        key = records[0].key
        assert key is not None
        values = pending.pop(header.producer_id, [])
        found += values if key[3] == 1 else []
    return found


class MemoryPartitions:
    """The partitions of a log dir, by topic and number; what is not in `logs` is not there."""

    def __init__(
        self, logs: dict[Where, list[bytes]], now_ms: Callable[[], int], fuse: Fuse | None = None
    ) -> None:
        self.logs = logs
        self.leader_epoch = 0
        self._now_ms = now_ms
        self._fuse = fuse or Fuse()
        self._writers: dict[Where, PartitionWriter] = {}

    def is_here(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self.logs

    def writer(self, topic: str, partition: int) -> PartitionWriter:
        where = (topic, partition)
        if where not in self._writers:
            if where not in self.logs:
                raise RefusedError(f"{topic}-{partition}: is not here")
            self._writers[where] = self._open(where)
        return self._writers[where]

    def _open(self, where: Where) -> PartitionWriter:
        log = self.logs[where]
        state = ProducerStateManager()
        for row in rows_of(log):
            completed = state.append(row.header, row.marker)
            if completed is not None:
                state.complete(completed)
        end_offset = state.map_end_offset
        tail = empty_tail(end_offset, 4096)._replace(producers=tuple(state.entries()))
        return PartitionWriter(
            MemoryStore(log, self._fuse),
            tail,
            CONFIG,
            leader_epoch=self.leader_epoch,
            now_ms=self._now_ms,
            expiration_ms=2**62,
        )


def new_logs(states_count: int, data: Collection[Where]) -> dict[Where, list[bytes]]:
    """Empty partitions of `__transaction_state`, and others."""
    states = [(TRANSACTION_STATE_TOPIC, n) for n in range(states_count)]
    return {each: [] for each in (*states, *data)}


def known_states(logs: dict[Where, list[bytes]]) -> dict[str, TransactionState]:
    """The newest record of each id."""
    known: dict[str, TransactionState] = {}
    for (topic, _), log in logs.items():
        if topic != TRANSACTION_STATE_TOPIC:
            continue
        for name, state in states_of(log):
            known.pop(name, None)
            if state is not None:
                known[name] = state
    return known


# --- commands, as tests/kafka/CoordinatorAnswers.java takes them ----------------------------------


class Commands:
    """Carries out commands in text; a case is a line of them and begins with nothing known."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.next_id = 0
        self.version = 0

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def answers(self, case: str) -> str:
        """The answers to a line of commands, each with the records that were written."""
        logs = new_logs(1, [("t", n) for n in range(3)])
        known: list[Metadata] = []
        found = []
        coordinator = None
        for command in case.split(";"):
            word, *arguments = command.split()
            match word, arguments:
                case "version", [level]:
                    self.version = int(level)
                case "now", [now_ms]:
                    self.now_ms = int(now_ms)
                case "next", [producer_id]:
                    self.next_id = int(producer_id)
                case "load", [name, last_epoch, value]:
                    known.append(Metadata(_loaded(name, value), int(last_epoch)))
                case _:
                    coordinator = coordinator or self._coordinator(logs, known)
                    log = logs[TRANSACTION_STATE_TOPIC, 0]
                    before = len(log)
                    answer = _answer(coordinator, word, arguments)
                    values = [
                        "null" if record.value is None else record.value.hex()
                        for row in rows_of(log[before:])
                        for record in row.records
                    ]
                    found.append(" ".join([answer, *values]))
                    continue
            found.append("-")
        return ";".join(found)

    def _coordinator(
        self, logs: dict[Where, list[bytes]], known: list[Metadata]
    ) -> TransactionCoordinator:
        coordinator = TransactionCoordinator(
            MemoryPartitions(logs, lambda: self.now_ms),
            (),
            ClusterSettings(1, 1, transaction_version=self.version),
            now_ms=lambda: self.now_ms,
            new_producer_id=self._new_id,
        )
        coordinator._ids = {each.state.transactional_id: each for each in known}
        return coordinator


@cache
def _loaded(name: str, value: str) -> TransactionState:
    state = parse_state(encode_key(name), bytes.fromhex(value))[1]
    assert state is not None
    return state


def _answer(coordinator: TransactionCoordinator, word: str, arguments: list[str]) -> str:
    who = ProducerIdAndEpoch(-1, -1)
    try:
        match word, arguments:
            case "init", [name, timeout_ms]:
                who = coordinator.init_producer_id(name, int(timeout_ms))
            case "init", [name, timeout_ms, *expected]:
                who = coordinator.init_producer_id(name, int(timeout_ms), _producer(expected))
            case "add", [name, producer_id, epoch, version, *partitions]:
                coordinator.add_partitions(
                    name,
                    _producer([producer_id, epoch]),
                    [(topic, int(n)) for topic, n in (each.split(":") for each in partitions)],
                    client_version=int(version),
                )
            case "end", [name, producer_id, epoch, version, how]:
                who = coordinator.end_transaction(
                    name,
                    _producer([producer_id, epoch]),
                    is_commit=how == "commit",
                    client_version=int(version),
                )
            case "finish", []:
                assert coordinator.complete_prepared() == []
                return "-"
            case "timeouts", []:
                late = coordinator.abort_timed_out()
                if late:
                    state = coordinator[late[-1]].state
                    who = ProducerIdAndEpoch(state.producer_id, state.producer_epoch)
                return "-" if not late else f"NONE {who.producer_id} {who.producer_epoch}"
            case "expire", []:
                coordinator.expire_ids()
                return "-"
            case _:
                raise ValueError(word)
    except CoordinatorError as refusal:
        return f"{refusal.kafka_error} -1 -1"
    return f"NONE {who.producer_id} {who.producer_epoch}"


def _producer(words: list[str]) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(*map(int, words))


def parse_answer(answer: str) -> tuple[list[str], list[TransactionState | None]]:
    """The words of an answer and the records that were written, partitions in order.

    Ids are left out of the record's key: which one it was is not told.
    """
    words = answer.split()
    at = next((n for n, each in enumerate(words) if len(each) > 40 or each == "null"), len(words))
    states = []
    for value in words[at:]:
        data = None if value == "null" else bytes.fromhex(value)
        state = parse_state(encode_key("a"), data)[1]
        if state is not None and state.partitions is not None:
            state = state._replace(partitions=tuple(sorted(state.partitions)))
        states.append(state)
    return words[:at], states


def is_same_answer(ours: str, kafka: str) -> bool:
    """Whether both say the same: the same error, producer and records.

    The order of partitions is that of a hash table of Java; to a producer of an older version
    Kafka does not tell its id again.
    """
    (words, states), (its_words, its_states) = parse_answer(ours), parse_answer(kafka)
    if words != its_words and its_words == ["NONE", "-1", "-1"]:
        words[1:] = its_words[1:]
    return words == its_words and states == its_states


def value_of(state: TransactionState) -> str:
    """The value of a record, as a command takes it."""
    return encode_value(state).hex()
