"""Real partitions of `__transaction_state`: for the same events our coordinator writes these batches.

What happened is told by the records themselves. Of each id all records are there, since no segment
was cleaned; those of several ids lie between each other, so each id is followed by itself.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import pytest

from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import parse_record
from storage.log.segment import open_segment
from storage.producers.transaction_metadata import (
    COMPLETED,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    CoordinatorError,
    ProducerIdAndEpoch,
)
from storage.writing.coordinator import ClusterSettings, TransactionCoordinator
from tests.coordinators import MemoryPartitions, new_logs, states_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.formats.transaction_state import TransactionState

PARTITIONS_COUNT = 4
CHECKED_POS = 16  # base offset, length and leader epoch come before what the checksum is of


class Written:
    """A record of an id, and the batch that it came in."""

    def __init__(self, data: bytes, appended_ms: int, state: TransactionState) -> None:
        self.data = data
        self.appended_ms = appended_ms
        self.state = state


def read(directory: Path) -> dict[str, list[Written]]:
    """The records of each id in the partitions of a log dir."""
    found: dict[str, list[Written]] = {}
    for path in sorted(directory.glob("__transaction_state-*/*.log")):
        content = path.read_bytes()
        with open_segment(path) as segment:
            for batch in segment.scan():
                (record,) = segment.records(batch)
                name, state = parse_record(record.key, record.value)
                assert state is not None
                data = content[batch.pos : batch.pos + batch.header.batch_bytes]
                written = Written(data, batch.header.max_timestamp_ms, state)
                found.setdefault(name, []).append(written)
    return found


class Replay:
    """Has our coordinator do with one id what was done, at the same times."""

    def __init__(self, name: str, written: list[Written]) -> None:
        self.name = name
        self.todo = deque(written)
        self.clock: deque[int] = deque()
        named = {each for one in written for each in one.state.partitions or ()}
        self.logs = new_logs(PARTITIONS_COUNT, named)
        self.events: Counter[str] = Counter()
        self.coordinator = TransactionCoordinator(
            MemoryPartitions(self.logs, lambda: 1),
            (),
            ClusterSettings(PARTITIONS_COUNT, PARTITIONS_COUNT, transaction_version=2),
            now_ms=self.clock.popleft,
            new_producer_id=lambda: written[0].state.producer_id,
        )

    def run(self) -> list[bytes]:
        """What our coordinator writes."""
        before = None
        while self.todo:
            before = self.step(before, self.todo[0].state)
            assert not self.clock, "each time was asked for"
        number = self.coordinator.partition_for(self.name)
        return self.logs[TRANSACTION_STATE_TOPIC, number]

    def take(self) -> TransactionState:
        """The next record is written in what follows: it knows the time twice."""
        written = self.todo.popleft()
        self.clock += (written.state.last_update_timestamp_ms, written.appended_ms)
        return written.state

    def step(self, before: TransactionState | None, state: TransactionState) -> TransactionState:
        if state.status is EMPTY:
            self.events["init"] += 1
            after = self.take()
            self.coordinator.init_producer_id(self.name, state.timeout_ms)
            return after
        assert before is not None
        producer = ProducerIdAndEpoch(before.producer_id, before.producer_epoch)
        if state.status is ONGOING:
            self.events["add"] += 1
            known = (before.partitions or ()) if before.status is ONGOING else ()
            added = [each for each in state.partitions or () if each not in known]
            after = self.take()
            version = state.client_transaction_version
            self.coordinator.add_partitions(self.name, producer, added, client_version=version)
            return after
        assert state.status in PREPARED
        is_raised = state.producer_epoch > before.producer_epoch
        if is_raised and not before.client_transaction_version:
            return self.fence(state)
        self.events["end" if state.partitions else "end of nothing"] += 1
        self.take()
        after = self.take()
        self.coordinator.end_transaction(
            self.name,
            producer,
            is_commit=state.status is PREPARE_COMMIT,
            client_version=state.client_transaction_version,
        )
        return after

    def fence(self, state: TransactionState) -> TransactionState:
        """By its timeout, or by another producer."""
        deadline_ms = state.start_timestamp_ms + state.timeout_ms
        is_late = deadline_ms < state.last_update_timestamp_ms
        self.clock.append(state.last_update_timestamp_ms)
        self.take()
        after = self.take()
        if is_late:
            self.events["timeout"] += 1
            assert self.coordinator.abort_timed_out() == [self.name]
        else:
            self.events["fenced"] += 1
            with pytest.raises(CoordinatorError, match="CONCURRENT_TRANSACTIONS"):
                self.coordinator.init_producer_id(self.name, state.timeout_ms)
        return after


EVENTS = {
    "crash": {"init": 10, "add": 71, "end": 47, "fenced": 1},
    "clean": {"init": 10, "add": 71, "end": 47, "fenced": 1},
    "tv2": {"init": 14, "add": 92, "end": 68, "fenced": 1, "timeout": 2, "end of nothing": 3},
}


@pytest.mark.parametrize("name", EVENTS)
def test_each_batch(golden: Callable[[str], Path], name: str) -> None:
    """Byte by byte, but where several partitions come in the order of a hash table of Java."""
    events: Counter[str] = Counter()
    reordered = 0
    for transactional_id, written in read(golden("kafka-4.3.1") / name).items():
        replay = Replay(transactional_id, written)
        ours = replay.run()
        events += replay.events
        assert [state.status for _, state in states_of(ours) if state is not None] == [
            each.state.status for each in written
        ]
        for data, real in zip(ours, written, strict=True):
            if data[CHECKED_POS:] == real.data[CHECKED_POS:]:
                continue
            reordered += 1
            ((_, state),) = states_of([data])
            assert state is not None
            assert _sorted(state) == _sorted(real.state)
            assert len(state.partitions or ()) > 1
            assert len(data) == len(real.data)
    assert (dict(events), reordered) == (EVENTS[name], 18)


def _sorted(state: TransactionState) -> TransactionState:
    partitions = state.partitions
    return state._replace(partitions=None if partitions is None else tuple(sorted(partitions)))


def test_a_completed_transaction_is_the_last_record_of_most_ids(
    golden: Callable[[str], Path],
) -> None:
    """So the replay has seen whole transactions, not only beginnings."""
    ids = read(golden("kafka-4.3.1") / "tv2")
    assert sum(each[-1].state.status in COMPLETED for each in ids.values()) > len(ids) / 2
