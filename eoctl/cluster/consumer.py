"""A consumer of a played cluster: reads all partitions from the start, below the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.messages import OFFSET_OUT_OF_RANGE
from eoctl.cluster.scheduler import MS_US, SECOND_US
from storage.formats.record import parse_records
from storage.formats.record_batch import HEADER_BYTES, parse_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eoctl.cluster.broker import Broker
    from eoctl.cluster.history import HistoryWriter
    from eoctl.cluster.metadata import MetadataView
    from eoctl.cluster.network import Network
    from eoctl.cluster.scheduler import Scheduler
    from storage.file_names import TopicPartition

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
        is_final: bool = False,
    ) -> None:
        self.name = name
        self._brokers = brokers
        self._scheduler = scheduler
        self._network = network
        self._history = history
        self._is_final = is_final
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

        def answered(error: str, batches: list[bytes], high_watermark: int) -> None:
            self._answered(key, number, error, batches, high_watermark)

        self._network.send(self, broker, broker.consume, self, key, self.positions[key], answered)
        self._scheduler.after(TIMEOUT_US, self._poll_again, key, number)

    def _poll_again(self, key: TopicPartition, number: int) -> None:
        if self._expected[key] == number:
            self._ask()
            self._poll(key)

    def _answered(
        self,
        key: TopicPartition,
        number: int,
        error: str,
        batches: list[bytes],
        high_watermark: int,
    ) -> None:
        if self._expected[key] != number or not self.is_running:
            return
        if error == OFFSET_OUT_OF_RANGE:
            # auto.offset.reset=latest: what it has read is no longer there.
            self._moved[key] = self.positions[key] = high_watermark
            self.ends[key] = high_watermark
        elif error:
            self._ask()
        else:
            self.ends[key] = high_watermark
            records = [
                each for batch in batches for each in plain_records(batch, self.positions[key])
            ]
            if records:
                self._note(key, number, records, high_watermark)
                self.positions[key] = records[-1][0] + 1
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
        self, key: TopicPartition, number: int, records: list[tuple[int, str]], high_watermark: int
    ) -> None:
        name = f"{key.topic}-{key.partition}"
        now_us = self._scheduler.now_us
        moved = self._moved.pop(key, None)
        seek = {"seek": {name: moved}} if moved is not None else {}
        final = {"final": True} if self._is_final else {}
        self._history.note("invoke", self.name, number, now_us, "poll", **seek, **final)
        self._history.note(
            "ok", self.name, number, now_us, "poll",
            records={name: records}, high_watermark={name: high_watermark}, **final,
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
        """Read no more."""
        self.is_running = False


def plain_records(batch: bytes, offset: int) -> list[tuple[int, str]]:
    """Offset and value of the records of a plain batch, from an offset on."""
    header = parse_header(batch, 0)
    base_offset = header.base_offset
    return [
        (base_offset + each.offset_delta, (each.value or b"").decode(errors="replace"))
        for each in parse_records(batch[HEADER_BYTES:], header.records_count)
        if base_offset + each.offset_delta >= offset
    ]
