"""Consumer of a simulated cluster: it reads all partitions from the start to the high watermark.

With read_committed it drops aborted records, which the leader reports. It never sees markers
(REPL-7, RC-4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.lab.clients.producer import NOT_APPENDED, REQUEST_TIMEOUT_US
from eoctl.lab.environment.leader import ACKS_ALL
from eoctl.lab.environment.network import MS_US, OFFSET_OUT_OF_RANGE, REQUEST_TIMED_OUT, SECOND_US
from eoctl.lab.environment.settings import READ_COMMITTED, READ_UNCOMMITTED, START_MS
from storage.formats.control_record import ControlRecordType, parse_control_key
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, parse_header
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.lab.environment.metadata import MetadataView
    from eoctl.lab.environment.network import (
        ConsumerAnswer,
        EventTrace,
        HistoryWriter,
        Network,
        Process,
        ProduceAnswer,
        Scheduler,
    )
    from eoctl.lab.nodes.broker import Broker
    from storage.file_names import TopicPartition
    from storage.formats.record_batch import BatchHeader

    Offsets = Mapping[TopicPartition, int]


POLL_US = 200 * MS_US
TIMEOUT_US = SECOND_US


class SimulatedConsumer:
    """Consumer that reads until its end. A final consumer reads everything again from the start.

    Attributes:
        positions: the next offset of each partition.
        ends: the latest high watermark of each partition.
    """

    incarnation = 0
    is_running = True

    def __init__(
        self,
        name: str,
        brokers: Mapping[int, Broker],
        keys: list[TopicPartition],
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
        *,
        isolation: str = READ_UNCOMMITTED,
        is_final: bool = False,
    ) -> None:
        self.name = name
        self._brokers = brokers
        self._scheduler = scheduler
        self._network = network
        self._history = history
        self._isolation = isolation
        self._reports_rest = is_final and isolation == READ_COMMITTED
        # Further fields of its history lines.
        self._fields: dict[str, object] = {"final": True} if is_final else {}
        if isolation == READ_COMMITTED:
            self._fields["isolation"] = isolation
        self._view: MetadataView | None = None
        self._number = 0
        self._asked = 0
        self._expected: dict[TopicPartition, int] = {}
        self._moved: dict[TopicPartition, int] = dict.fromkeys(keys, 0)
        self.positions: dict[TopicPartition, int] = dict.fromkeys(keys, 0)
        self.ends: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Begin to read all partitions."""
        for key in self.positions:
            self._poll(key)

    @property
    def is_at_end(self) -> bool:
        """True if it has read everything."""
        return all(self.ends.get(key) == offset for key, offset in self.positions.items())

    def _poll(self, key: TopicPartition) -> None:
        if not self.is_running:
            return
        self._number += 1
        number = self._number
        self._expected[key] = number
        view = self._view
        leader = -1 if view is None else view.partitions[key].leader
        broker = self._brokers.get(leader)
        if broker is None or not broker.is_running:
            self._ask()
            self._scheduler.after(POLL_US, self._poll_again, key, number)
            return

        def answered(given: ConsumerAnswer) -> None:
            self._answered(key, number, given)

        self._network.send(
            self, broker, broker.consume, self, key, self.positions[key], answered, self._isolation
        )
        self._scheduler.after(TIMEOUT_US, self._poll_again, key, number)

    def _poll_again(self, key: TopicPartition, number: int) -> None:
        if self._expected[key] == number:
            self._ask()
            self._poll(key)

    def _answered(self, key: TopicPartition, number: int, given: ConsumerAnswer) -> None:
        if self._expected[key] != number or not self.is_running:
            return
        error, batches, high_watermark, _ = given
        if error == OFFSET_OUT_OF_RANGE:
            # auto.offset.reset=latest: its position is beyond the log end offset.
            self._moved[key] = self.positions[key] = high_watermark
            self.ends[key] = high_watermark
        elif error:
            self._ask()
        else:
            self.ends[key] = high_watermark
            if batches:
                records = given_records(given, self.positions[key])
                self.positions[key] = parse_header(batches[-1], 0).last_offset + 1
                self._note(key, number, records, high_watermark)
                self._expected[key] = -1
                self._taken(key, records)
                return
        self._expected[key] = -1
        self._later(POLL_US, key)

    def _taken(self, key: TopicPartition, records: list[tuple[int, str]]) -> None:
        """Take records, which a plain consumer ignores, and poll again."""
        del records
        self._later(0, key)

    def _later(self, delay_us: int, key: TopicPartition) -> None:
        self._scheduler.after(delay_us, self._poll, key)

    def _note(
        self,
        key: TopicPartition,
        number: int,
        records: list[tuple[int, str]],
        high_watermark: int,
        **more: object,
    ) -> None:
        name = f"{key.topic}-{key.partition}"
        now_us = self._scheduler.now_us
        moved = self._moved.pop(key, None)
        seek = {"seek": {name: moved}} if moved is not None else {}
        position = self.positions[key]
        passed = {}
        if not records or records[-1][0] + 1 < position:  # markers, or aborted records
            passed = {"position": {name: position}}
        self._history.note("invoke", self.name, number, now_us, "poll", **seek, **self._fields)
        self._history.note(
            "ok", self.name, number, now_us, "poll",
            records={name: records}, high_watermark={name: high_watermark}, **passed,
            **self._fields, **more,
        )  # fmt: skip

    def _ask(self) -> None:
        running = [each for _, each in sorted(self._brokers.items()) if each.is_running]
        self._asked += 1
        if running:
            broker = running[self._asked % len(running)]
            self._network.send(self, broker, broker.report_metadata, self, self.learn)

    def learn(self, view: MetadataView) -> None:
        """Take the metadata from a broker."""
        if self._view is None or view.version >= self._view.version:
            self._view = view

    def end(self) -> None:
        """Stop. A final read_committed consumer also records where it still waits."""
        if self._reports_rest:
            for key, end_offset in sorted(self.ends.items()):
                if self.positions[key] < end_offset:
                    self._number += 1
                    self._note(key, self._number, [], end_offset, ended=True)
        self.is_running = False


def given_records(given: ConsumerAnswer, offset: int) -> list[tuple[int, str]]:
    """Return offset and value of records for an application, from an offset on (RC-4)."""
    waiting = sorted(given.aborted, key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    records: list[tuple[int, str]] = []
    for batch in given.batches:
        header = parse_header(batch, 0)
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborted.add(waiting.pop().producer_id)
        if header.is_control:
            (marker,) = parse_records(batch[HEADER_BYTES:], header.records_count)
            if parse_control_key(marker.key).type == ControlRecordType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            records += _records(header, batch, offset)
    return records


def _records(header: BatchHeader, batch: bytes, offset: int) -> list[tuple[int, str]]:
    base_offset = header.base_offset
    return [
        (base_offset + each.offset_delta, (each.value or b"").decode(errors="replace"))
        for each in parse_records(batch[HEADER_BYTES:], header.records_count)
        if base_offset + each.offset_delta >= offset
    ]


# -- a consumer that commits before or after it handles its records (REPL-12).
#
# At its end, a consumer that commits before has lost its unhandled records (at most once). A
# consumer that commits after gets them again (at least once). It handles one record after the
# other, a millisecond each. A coordinator that is no broker and never fails keeps the committed
# offsets.


HANDLE_US = MS_US  # per record


class GroupCoordinator:
    """Coordinator with the committed offsets of a group. It never fails."""

    name = "group-coordinator"
    incarnation = 0
    is_running = True

    def __init__(self, keys: list[TopicPartition], network: Network) -> None:
        self._network = network
        self._offsets: dict[TopicPartition, int] = dict.fromkeys(keys, 0)

    def commit(
        self, client: Process, key: TopicPartition, offset: int, answered: Callable[[], None]
    ) -> None:
        """Store an offset (OffsetCommit)."""
        self._offsets[key] = offset
        self._network.send(self, client, answered)

    def report(self, client: Process, answered: Callable[[Offsets], None]) -> None:
        """Return the stored offsets (OffsetFetch)."""
        self._network.send(self, client, answered, dict(self._offsets))


class _HandledRecords(NamedTuple):
    """Records of a partition that are being handled."""

    records: list[tuple[int, str]]
    begun_us: int


class CommittingConsumer(SimulatedConsumer):
    """A consumer that can be killed, and continues at its committed offsets.

    Attributes:
        incarnation: number of its starts.
        is_closing: it takes no more records, and ends once it has handled all of them.
    """

    def __init__(
        self,
        name: str,
        brokers: Mapping[int, Broker],
        keys: list[TopicPartition],
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
        trace: EventTrace,
        *,
        commits_before: bool,
        isolation: str = READ_UNCOMMITTED,
    ) -> None:
        super().__init__(name, brokers, keys, scheduler, network, history, isolation=isolation)
        self._trace = trace
        self._commits_before = commits_before
        self._coordinator = GroupCoordinator(keys, network)
        self._handling: dict[TopicPartition, _HandledRecords] = {}
        self._busy: set[TopicPartition] = set()
        self._is_starting = False
        self.is_closing = False

    @property
    def left_us(self) -> int:
        """Remaining time of its handling without a fault, 0 without records."""
        ends = (each.begun_us + len(each.records) * HANDLE_US for each in self._handling.values())
        return max((each - self._scheduler.now_us for each in ends), default=0)

    @property
    def is_at_end(self) -> bool:
        """True if it has handled everything."""
        is_idle = not (self._busy or self._is_starting)
        return self.is_running and is_idle and super().is_at_end

    # -- its life

    def restart(self) -> None:
        """Start after a kill or a stop, at the committed offsets."""
        self.incarnation += 1
        self.is_running = self._is_starting = True
        self.is_closing = False
        self.ends.clear()
        self._network.send(self, self._coordinator, self._coordinator.report, self, self._go_on)

    def _go_on(self, committed: Offsets) -> None:
        if not self._is_starting:
            return
        self._is_starting = False
        if self.is_closing:
            self._forget()
            return
        for key, offset in committed.items():
            self.positions[key] = self._moved[key] = offset
            self._trace.report(
                "consumer", f"the consumer goes on at offset {offset} of {_named(key)}", key=key
            )
        self.start()

    def kill(self) -> None:
        """End at once. Records handled before stay handled."""
        now_us = self._scheduler.now_us
        for key, taken in self._handling.items():
            count = min((now_us - taken.begun_us) // HANDLE_US, len(taken.records))
            self._note_handled(key, taken.records[:count])
        self._forget()

    def close(self) -> None:
        """Take no more records. Handle and commit the current records.

        It ignores records of a pending fetch (AsyncKafkaConsumer.close).
        """
        self.is_closing = True
        self._expected = dict.fromkeys(self.positions, -1)
        if not (self._busy or self._is_starting):
            self._forget()

    def _forget(self) -> None:
        self.is_running = self._is_starting = False
        self._handling.clear()
        self._busy.clear()
        self._expected = dict.fromkeys(self.positions, -1)

    # -- records

    def _later(self, delay_us: int, key: TopicPartition) -> None:
        incarnation = self.incarnation

        def poll() -> None:
            if self.incarnation == incarnation and not self.is_closing:
                self._poll(key)

        self._scheduler.after(delay_us, poll)

    def _taken(self, key: TopicPartition, records: list[tuple[int, str]]) -> None:
        self._busy.add(key)
        if self._commits_before:
            self._commit(key, lambda: self._handle(key, records, lambda: self._done(key)))
        else:
            self._handle(key, records, lambda: self._commit(key, lambda: self._done(key)))

    def _done(self, key: TopicPartition) -> None:
        self._busy.discard(key)
        if not self.is_closing:
            self._poll(key)
        elif not self._busy:
            self._forget()

    def _commit(self, key: TopicPartition, then: Callable[[], None]) -> None:
        offset = self.positions[key]
        number, incarnation = self._note_commit("invoke", key, offset), self.incarnation

        def answered() -> None:
            if self.incarnation != incarnation:
                return
            self._note_commit("ok", key, offset, number)
            then()

        coordinator = self._coordinator
        self._network.send(self, coordinator, coordinator.commit, self, key, offset, answered)

    def _note_commit(self, kind: str, key: TopicPartition, offset: int, number: int = 0) -> int:
        if not number:
            self._number += 1
            number = self._number
        now_us = self._scheduler.now_us
        self._history.note(
            kind, self.name, number, now_us, "offset-commit", offsets={_named(key): offset}
        )
        return number

    def _handle(
        self, key: TopicPartition, records: list[tuple[int, str]], then: Callable[[], None]
    ) -> None:
        taken = self._handling[key] = _HandledRecords(records, self._scheduler.now_us)

        def handled() -> None:
            if self._handling.get(key) is taken:  # otherwise it was killed
                del self._handling[key]
                self._note_handled(key, records)
                then()

        self._scheduler.after(len(records) * HANDLE_US, handled)

    def _note_handled(self, key: TopicPartition, records: list[tuple[int, str]]) -> None:
        if records:
            self._number += 1
            now_us = self._scheduler.now_us
            self._history.note(
                "ok", self.name, self._number, now_us, "handle", records={_named(key): records}
            )


def _named(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"


# -- a client with one question: can it read a partition, and write it with acks=all?
#
# It sends requests and writes a history as any client does.


METADATA_US = 2 * SECOND_US
LEADER_NOT_AVAILABLE = "LEADER_NOT_AVAILABLE"


class Probe:
    """Client that reads from the start, then sends one record, once.

    Attributes:
        is_read: a leader has answered.
        records_count: records in that answer.
        write_error: "" if the record is acknowledged.
    """

    incarnation = 0
    is_running = True

    def __init__(
        self,
        number: str,
        brokers: Mapping[int, Broker],
        key: TopicPartition,
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
    ) -> None:
        self.name = f"probe-{number}"
        self.is_read = False
        self.records_count = 0
        self.write_error = LEADER_NOT_AVAILABLE
        self._value = f"p{number}"
        self._brokers = brokers
        self._key = key
        self._scheduler = scheduler
        self._network = network
        self._history = history
        self._view: MetadataView | None = None

    def ask(self) -> None:
        """Find the leader, read, write."""
        for _, each in sorted(self._brokers.items()):
            if each.is_running:
                self._network.send(self, each, each.report_metadata, self, self.learn)
        self._until(lambda: False, METADATA_US)
        leader = -1 if self._view is None else self._view.partitions[self._key].leader
        broker = self._brokers.get(leader)
        if broker is not None and broker.is_running:
            self._read(broker)
            self._write(broker)

    def learn(self, view: MetadataView) -> None:
        """Take the metadata from a broker."""
        if self._view is None or view.version > self._view.version:
            self._view = view

    def _until(self, holds: Callable[[], bool], limit_us: int) -> bool:
        return self._scheduler.run(holds, self._scheduler.now_us + limit_us)

    def _read(self, broker: Broker) -> None:
        reported: list[ConsumerAnswer] = []
        self._network.send(self, broker, broker.consume, self, self._key, 0, reported.append)
        self._until(lambda: bool(reported), REQUEST_TIMEOUT_US)
        if not reported or reported[0].error:
            return
        self.is_read = True
        records, high_watermark = given_records(reported[0], 0), reported[0].high_watermark
        self.records_count = len(records)
        name, now_us = f"{self._key.topic}-{self._key.partition}", self._scheduler.now_us
        self._history.note("invoke", self.name, 0, now_us, "poll")
        self._history.note(
            "ok", self.name, 0, now_us, "poll",
            records={name: records}, high_watermark={name: high_watermark},
        )  # fmt: skip

    def _write(self, broker: Broker) -> None:
        reported: list[ProduceAnswer] = []
        builder = BatchBuilder()
        builder.add(None, self._value.encode(), START_MS + self._scheduler.now_us // MS_US)
        self._note("invoke")
        self._network.send(
            self, broker, broker.produce, self, self._key, builder.build(), ACKS_ALL,
            REQUEST_TIMEOUT_US, reported.append,
        )  # fmt: skip
        self._until(lambda: bool(reported), REQUEST_TIMEOUT_US + SECOND_US)
        self.write_error = reported[0].error if reported else REQUEST_TIMED_OUT
        if not self.write_error:
            answer = reported[0]
            self._note(
                "ok", offset=answer.base_offset, leader=answer.leader,
                leader_epoch=answer.leader_epoch,
            )  # fmt: skip
            return
        kind = "fail" if self.write_error in NOT_APPENDED else "info"
        self._note(kind, error=self.write_error)

    def _note(self, kind: str, **fields: object) -> None:
        self._history.note(
            kind, self.name, 1, self._scheduler.now_us, "send",
            topic=self._key.topic, partition=self._key.partition, value=self._value, **fields,
        )  # fmt: skip
