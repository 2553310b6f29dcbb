"""Transaction coordinator of a simulated cluster, next to the controller. It never fails.

Its decisions are real records in a real `__transaction_state-0`. The states of a transactional id
follow `storage.producers.transaction_metadata`, with transaction version 2 (KIP-890). Each end of a
transaction raises the producer epoch, which fences all earlier batches of the producer.

- REPL-13: the coordinator decides a transaction by a record, and answers the producer. It then
  sends a marker to each partition until the current leader acknowledges it, as with acks=all. The
  next transaction begins after all partitions have the marker.

Source: TransactionCoordinator, TransactionMarkerChannelManager of Kafka 4.3.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eoctl.lab.environment.metadata import transaction_topic_id
from eoctl.lab.environment.network import (
    INVALID_PRODUCER_EPOCH,
    MS_US,
    SECOND_US,
    EndMarker,
    Process,
)
from eoctl.lab.environment.settings import CONTROLLER_NAME, START_MS, TRANSACTION_STATE_DIRECTORY
from eoctl.lab.nodes.running_log import LogTerms, RunningLog, what_a_start_cuts
from storage.dirs.topic_settings import LogConfig
from storage.errors import FormatError, RefusedError, os_errors
from storage.file_names import PARTITION_METADATA_NAME, TopicPartition
from storage.files import fsio
from storage.files.fsio import FileSystem
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, parse_header
from storage.formats.transaction_state import encode_key, encode_value, parse_record
from storage.producers.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    ONGOING,
    PREPARED,
    CoordinatorError,
    Metadata,
    ProducerIdAndEpoch,
    add_partitions,
    complete,
    end,
    fence,
    init,
    is_timed_out,
    new_metadata,
    require_not_prepared,
    require_same,
)
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.lab.environment.network import EventTrace, Network, Scheduler
    from eoctl.lab.nodes.controller import Controller

    Answered = Callable[[str, ProducerIdAndEpoch | None], None]


COORDINATOR_NAME = "transaction coordinator"
TIMEOUTS_US = 10 * SECOND_US  # transaction.abort.timed.out.transaction.cleanup.interval.ms
RETRY_US = 100 * MS_US
REQUEST_TIMEOUT_US = 30 * SECOND_US
READ_BYTES = 1 << 20
FURTHER_ID_STEP = 1 << 32  # above all run numbers, and all ids of real brokers
# After these errors a leader never takes the marker. The coordinator stops sending, and the
# transaction keeps its state (TransactionMarkerRequestCompletionHandler).
REFUSED_FOR_GOOD = frozenset({INVALID_PRODUCER_EPOCH, "TRANSACTION_COORDINATOR_FENCED"})
RECORD_VERSION = 1


class MarkedLeader(Process, Protocol):
    """A broker from its transaction coordinator's view."""

    def write_marker(
        self,
        coordinator: Process,
        key: TopicPartition,
        marker: EndMarker,
        answered: Callable[[str], None],
    ) -> None:
        """End a transaction in a partition that the broker leads."""


class _SentMarker(NamedTuple):
    """The last attempt to mark a partition."""

    number: int
    leader: int


class _Ending:
    """A decided transaction, with its partitions that have no marker yet."""

    def __init__(self, prepared: Metadata) -> None:
        state = prepared.state
        self.prepared = prepared
        self.marker = EndMarker(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            is_commit=prepared.is_commit,
            coordinator_epoch=0,
        )
        self.waiting = [TopicPartition(*each) for each in state.partitions or ()]
        self.sent: dict[TopicPartition, _SentMarker] = {}


class SimulatedCoordinator:
    """Coordinator that knows all transactional ids, and ends their transactions."""

    name = COORDINATOR_NAME
    incarnation = 0
    is_running = True

    def __init__(
        self,
        root: Path,
        run_number: int,
        brokers: Mapping[int, MarkedLeader],
        controller: Controller,
        scheduler: Scheduler,
        network: Network,
        trace: EventTrace,
    ) -> None:
        """Load the state of earlier runs. Raises RefusedError, AccessError."""
        self._run_number = run_number
        self._given_ids_count = 0
        self._brokers = brokers
        self._controller = controller
        self._scheduler = scheduler
        self._network = network
        self._trace = trace
        self._builder = BatchBuilder()
        controller.make_transaction_topic()
        self._log = _open_log(root, self._now_ms)
        self._ids: dict[str, Metadata] = {}
        self._ending: dict[str, _Ending] = {}
        try:
            self._load()
        except FormatError as error:
            raise RefusedError(f"{self._log.path}: cannot be read: {error}") from None

    def _load(self) -> None:
        offset = 0
        while batches := self._log.read(offset, self._log.end_offset, READ_BYTES):
            for each in batches:
                header = parse_header(each, 0)
                for record in parse_records(each[HEADER_BYTES:], header.records_count):
                    _, state = parse_record(record.key, record.value)
                    if state is not None:
                        self._ids[state.transactional_id] = Metadata(state)
                offset = header.last_offset + 1

    def start(self) -> None:
        """End the decided transactions, and begin to look for timeouts."""
        for each in [*self._ids.values()]:
            if each.status in PREPARED:
                self._end(each)
        self._scheduler.after(TIMEOUTS_US, self._find_late)

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open or waits for a marker."""
        return not any(
            each.status is ONGOING or each.status in PREPARED for each in self._ids.values()
        )

    def close(self) -> None:
        """Close its log. Raises AccessError."""
        self._log.close()

    # -- requests of producers and brokers

    def init_producer_id(
        self,
        client: Process,
        transactional_id: str,
        timeout_ms: int,
        answered: Answered,
    ) -> None:
        """Begin a session of an id, and fence an older session (InitProducerId)."""
        try:
            found = self._begun(transactional_id, timeout_ms)
        except CoordinatorError as problem:
            self._network.send(self, client, answered, problem.kafka_error, None)
        else:
            self._network.send(self, client, answered, "", found)

    def _begun(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
        metadata = self._ids.get(transactional_id) or new_metadata(
            transactional_id, self._new_producer_id(), timeout_ms, now_ms=self._now_ms()
        )
        if metadata.status is ONGOING:
            require_same(metadata, None)
            self._abort(metadata, "a new session of its producer")
            raise metadata.refusal("CONCURRENT_TRANSACTIONS", "its transaction is aborted")
        begun = init(
            metadata, timeout_ms, None, now_ms=self._now_ms(),
            new_producer_id=self._new_producer_id,
        )  # fmt: skip
        self._put(begun)
        return _who(begun)

    def add_partition(
        self,
        broker: Process,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        key: TopicPartition,
        answered: Callable[[str], None],
    ) -> None:
        """Add a partition to a transaction for its leader (AddPartitionsToTxn, KIP-890)."""
        error = ""
        try:
            added = add_partitions(
                self._settled(transactional_id), producer, [(key.topic, key.partition)],
                now_ms=self._now_ms(), client_version=EPOCH_BUMP_VERSION,
            )  # fmt: skip
        except CoordinatorError as problem:
            error = problem.kafka_error
        else:
            if added is not None:
                self._put(added)
        self._network.send(self, broker, answered, error)

    def end_transaction(
        self,
        client: Process,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        answered: Answered,
    ) -> None:
        """Commit or abort (EndTxn). The answer comes after the decision, with the raised epoch."""
        try:
            prepared = end(
                self._settled(transactional_id), producer, is_commit=is_commit,
                version=EPOCH_BUMP_VERSION, now_ms=self._now_ms(),
                new_producer_id=self._new_producer_id,
            )  # fmt: skip
        except CoordinatorError as problem:
            self._network.send(self, client, answered, problem.kafka_error, None)
            return
        if prepared is not None:
            self._put(prepared)
            self._end(self._ids[transactional_id])
        self._network.send(self, client, answered, "", _next_of(self._ids[transactional_id]))

    def _settled(self, transactional_id: str) -> Metadata:
        """Return the state of an id whose markers are all written.

        While markers are being sent, no producer gets a fencing error, whatever its epoch. A
        transition is pending, and Kafka looks for that first (TransactionMetadata.prepareComplete).

        Raises:
            CoordinatorError: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS.
        """
        found = self._ids.get(transactional_id)
        if found is None:
            raise CoordinatorError("INVALID_PRODUCER_ID_MAPPING", f"{transactional_id}: not known")
        require_not_prepared(found)
        return found

    # -- decisions without a request

    def _find_late(self) -> None:
        for each in [*self._ids.values()]:
            if is_timed_out(each, self._now_ms()):
                self._abort(each, "transaction.timeout.ms is over")
        self._scheduler.after(TIMEOUTS_US, self._find_late)

    def _abort(self, metadata: Metadata, reason: str) -> None:
        state = metadata.state
        words = f"the transaction of producer id {state.producer_id}, epoch {state.producer_epoch}"
        self._trace.report("transaction", f"{words}, is aborted: {reason}")
        prepared = fence(
            metadata, version=EPOCH_BUMP_VERSION, now_ms=self._now_ms(),
            new_producer_id=self._new_producer_id,
        )  # fmt: skip
        self._put(prepared)
        self._end(self._ids[state.transactional_id])

    def _new_producer_id(self) -> int:
        """Return the run number as for other producers, or another id if its epochs are used up."""
        count = self._given_ids_count
        self._given_ids_count += 1
        return self._run_number + count * FURTHER_ID_STEP

    # -- markers

    def _end(self, prepared: Metadata) -> None:
        ending = self._ending[prepared.state.transactional_id] = _Ending(prepared)
        for key in [*ending.waiting]:
            self._send(ending, key)
        self._finish(ending)

    def _send(self, ending: _Ending, key: TopicPartition) -> None:
        if key not in ending.waiting:
            return
        number = ending.sent[key].number + 1 if key in ending.sent else 1
        leader = self._controller.led(key).leader
        broker = self._brokers.get(leader)
        ending.sent[key] = _SentMarker(number, leader)
        if broker is None or not broker.is_running:
            self._send_later(ending, key, number, RETRY_US)
            return

        def answered(error: str) -> None:
            if not error:
                self._marked(ending, key)
            elif error in REFUSED_FOR_GOOD:
                self._cancel(ending, key, error)
            elif ending.sent[key].number == number:
                self._send_later(ending, key, number, RETRY_US)

        self._network.send(self, broker, broker.write_marker, self, key, ending.marker, answered)
        self._send_later(ending, key, number, REQUEST_TIMEOUT_US)

    def _send_later(self, ending: _Ending, key: TopicPartition, number: int, delay_us: int) -> None:
        def send() -> None:
            if ending.sent[key].number == number:
                self._send(ending, key)

        self._scheduler.after(delay_us, send)

    def broker_ended(self, number: int) -> None:
        """Send unanswered markers again, because the connection to a broker was reset."""
        for ending in self._ending.values():
            for key in ending.waiting:
                sent = ending.sent[key]
                if sent.leader == number:
                    self._send_later(ending, key, sent.number, RETRY_US)

    def _cancel(self, ending: _Ending, key: TopicPartition, error: str) -> None:
        if key not in ending.waiting:
            return
        ending.waiting.clear()
        del self._ending[ending.prepared.state.transactional_id]
        marker = ending.marker
        self._trace.report(
            "transaction",
            f"the transaction of producer id {marker.producer_id} has no end any more: its marker,"
            f" epoch {marker.producer_epoch}, is refused: {error}",
            key=key,
        )

    def _marked(self, ending: _Ending, key: TopicPartition) -> None:
        if key in ending.waiting:
            ending.waiting.remove(key)
            self._finish(ending)

    def _finish(self, ending: _Ending) -> None:
        if not ending.waiting:
            del self._ending[ending.prepared.state.transactional_id]
            self._put(complete(ending.prepared, now_ms=self._now_ms()))

    # -- records

    def _put(self, metadata: Metadata) -> None:
        state = metadata.state._replace(version=RECORD_VERSION)
        self._builder.add(encode_key(state.transactional_id), encode_value(state), self._now_ms())
        self._log.append(self._builder.build())
        self._ids[state.transactional_id] = metadata._replace(state=state)

    def _now_ms(self) -> int:
        return START_MS + self._scheduler.now_us // MS_US


def _who(metadata: Metadata) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(metadata.state.producer_id, metadata.state.producer_epoch)


def _next_of(metadata: Metadata) -> ProducerIdAndEpoch:
    """Return the producer's next identity, with another id if the epochs of its id are used up."""
    next_id = metadata.state.next_producer_id
    return _who(metadata) if next_id < 0 else ProducerIdAndEpoch(next_id, 0)


def has_state(root: Path) -> bool:
    """Return whether a run of a cluster has had transactions."""
    return Path(root, CONTROLLER_NAME, TRANSACTION_STATE_DIRECTORY).is_dir()


def _require_whole(path: Path, now_ms: int) -> None:
    """Refuse a log that a broker's start would truncate.

    The truncation could remove decisions whose markers the nodes have.

    Raises:
        RefusedError: the log is damaged or empty, and nothing was touched.
    """
    next_step = "put it back, or begin with another one: eoctl sim init ./play"
    if not Path(path, PARTITION_METADATA_NAME).is_file():
        raise RefusedError(
            f"{path}: has no {PARTITION_METADATA_NAME}; nothing was touched", next_step=next_step
        )
    if cut := what_a_start_cuts(str(path), now_ms):
        raise RefusedError(f"{cut}; nothing was touched", next_step=next_step)


def _open_log(root: Path, now_ms: Callable[[], int]) -> RunningLog:
    path, fs = Path(root, CONTROLLER_NAME, TRANSACTION_STATE_DIRECTORY), FileSystem()
    if not has_state(root):
        with os_errors(path):
            fs.make_dir(path, 0o755)
        content = encode_partition_metadata(PartitionMetadata(0, transaction_topic_id()))
        fsio.put_file(fs, path / PARTITION_METADATA_NAME, content)
    else:
        _require_whole(path, now_ms())
    terms = LogTerms(fs=fs, config=LogConfig(), now_ms=now_ms, flush=FlushPolicy.SEGMENT)
    log = RunningLog(str(path), terms)
    log.begin_epoch(0)
    return log
