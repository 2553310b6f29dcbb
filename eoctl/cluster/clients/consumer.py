"""A consumer of a played cluster: reads all partitions from the start, below the high watermark.

With read_committed it drops what was aborted, as told by its leader; of markers it is told nothing
in either case (REPL-7, RC-4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.world.messages import OFFSET_OUT_OF_RANGE
from eoctl.cluster.world.scheduler import MS_US, SECOND_US
from eoctl.cluster.world.settings import READ_COMMITTED, READ_UNCOMMITTED
from storage.formats.control_record import ControlRecordType, parse_control_key
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, parse_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eoctl.cluster.nodes.broker import Broker
    from eoctl.cluster.world.history import HistoryWriter
    from eoctl.cluster.world.messages import ConsumerAnswer
    from eoctl.cluster.world.metadata import MetadataView
    from eoctl.cluster.world.network import Network
    from eoctl.cluster.world.scheduler import Scheduler
    from storage.file_names import TopicPartition
    from storage.formats.record_batch import BatchHeader

POLL_US = 200 * MS_US
TIMEOUT_US = SECOND_US


class PlayedConsumer:
    """Reads until it is told to end; a final one reads all once more, from the start.

    Attributes:
        positions: the next offset of each partition.
        ends: the high watermark that each was told last.
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
        self._tells_rest = is_final and isolation == READ_COMMITTED
        # What its lines have besides.
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
        """Begin with all partitions."""
        for key in self.positions:
            self._poll(key)

    @property
    def is_at_end(self) -> bool:
        """It has read all that there is."""
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
            # auto.offset.reset=latest: what it has read is no longer there.
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
        """It has been given records: here they are looked at, and the next ones asked for."""
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
        if not records or records[-1][0] + 1 < position:  # markers, or what was aborted
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
            self._network.send(self, broker, broker.tell_metadata, self, self.learn)

    def learn(self, view: MetadataView) -> None:
        """A broker has told who leads."""
        if self._view is None or view.version >= self._view.version:
            self._view = view

    def end(self) -> None:
        """Read no more; where the last one of what is committed has waited for more is told."""
        if self._tells_rest:
            for key, end_offset in sorted(self.ends.items()):
                if self.positions[key] < end_offset:
                    self._number += 1
                    self._note(key, self._number, [], end_offset, ended=True)
        self.is_running = False


def given_records(given: ConsumerAnswer, offset: int) -> list[tuple[int, str]]:
    """Offset and value of the records that an application is given, from an offset on (RC-4)."""
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
