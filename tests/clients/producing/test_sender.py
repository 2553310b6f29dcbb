"""A producer, a bad network and a real leader: what is in the log in the end."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.producing import producer as sender_module
from eoctl.clients.producing.producer import (
    DeliveryTimeoutError,
    Faults,
    Sender,
    SenderStats,
    SentBatch,
)
from storage.dirs.discovery import discover
from storage.dirs.log_tail import empty_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.errors import EXIT_ACCESS, AccessError, UsageError
from storage.files.fsio import FileSystem
from storage.formats.record_batch import MAX_SEQUENCE, increment_sequence
from storage.log.segment import open_segment
from storage.producers.producer_state import AppendError
from storage.writing.partition_store import FileStore, PlannedStore
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from storage.writing.writer import Appended, PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOW_MS = 1_800_000_000_000
NOTHING_LOST = Faults()

FAULTS = st.builds(
    Faults,
    drop=st.floats(0, 0.7),
    reorder=st.floats(0, 1),
    lost_ack=st.floats(0, 0.7),
    seed=st.integers(0, 2**32),
)


def batch_of(values: Sequence[int], sequence: int) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.add(None, b"%d" % value, NOW_MS)
    identity = ProducerIdentity(7, 0, sequence) if sequence >= 0 else ProducerIdentity()
    return builder.build(identity)


class Run:
    """A sender, its leader, and what is in the log: `tag` of each batch as often as it is there."""

    def __init__(
        self, faults: Faults | None, *, in_flight: int = 5, is_idempotent: bool = True,
        store: PlannedStore | None = None, base_sequence: int = 0,
    ) -> None:  # fmt: skip
        self.writer = PartitionWriter(
            store or PlannedStore("t-0", topic_id=bytes(range(16))),
            empty_tail(0, 4096),
            LogConfig(segment_bytes=2000),
            leader_epoch=0,
            now_ms=lambda: NOW_MS,
        )
        self.written: list[bytes] = []
        self.seen: list[bytes] = []
        self.acks: list[tuple[SentBatch, Appended]] = []
        self.outstanding_max = 0
        self.is_idempotent = is_idempotent
        self.sender = Sender(
            self.append,
            in_flight=in_flight,
            faults=faults,
            is_idempotent=is_idempotent,
            on_ack=lambda *ack: self.acks.append(ack),
        )
        self.sequence = base_sequence
        self.sent: list[bytes] = []

    def append(self, batch: bytes) -> Appended:
        done = {sent.tag for sent, _ in self.acks}
        oldest = next(number for number in range(len(self.sent)) if number not in done)
        number = self.sent.index(batch)
        self.outstanding_max = max(self.outstanding_max, number - oldest + 1)
        if self.is_idempotent and batch in self.seen:
            assert number == oldest  # what is sent again waits for its turn
        self.seen.append(batch)
        appended = self.writer.append(batch)
        if not appended.is_duplicate:
            self.written.append(batch)
        return appended

    def send(self, counts: Sequence[int]) -> None:
        """Send a batch of so many records each."""
        for count in counts:
            number = len(self.sent)
            first = self.sequence if self.is_idempotent else -1
            batch = batch_of(range(number * 100, number * 100 + count), first)
            self.sent.append(batch)
            self.sequence = increment_sequence(self.sequence, count)
            self.sender.send(batch, first, count, number)

    def deliver(self, counts: Sequence[int]) -> None:
        """Send, and wait for the acknowledgements."""
        self.send(counts)
        self.sender.flush()

    def order(self) -> list[int]:
        """The numbers of the batches, as they are in the log."""
        return [self.sent.index(each) for each in self.written]


COUNTS = st.lists(st.integers(1, 4), max_size=25)


@given(FAULTS, st.integers(1, 5), COUNTS, st.integers(0, 3))
def test_with_idempotence_each_batch_is_there_once_and_in_order(
    faults: Faults, in_flight: int, counts: list[int], flushes: int
) -> None:
    run = Run(faults, in_flight=in_flight)
    for _ in range(flushes + 1):
        run.deliver(counts)
        assert not run.sender._unacknowledged
    assert run.order() == list(range(len(run.sent)))
    assert run.outstanding_max <= in_flight

    assert sorted(sent.tag for sent, _ in run.acks) == list(range(len(run.sent)))
    for sent, appended in run.acks:
        assert sent.batch is run.sent[sent.tag]
        before = sum(counts[n % len(counts)] for n in range(sent.tag))
        assert appended[:2] == (before, before + sent.records_count - 1)
    stats = run.sender.stats
    assert stats.requests == len(run.seen) + stats.drops
    assert stats.requests == len(run.sent) + stats.retries
    assert stats.duplicates == sum(appended.is_duplicate for _, appended in run.acks)
    assert stats.duplicates <= stats.lost_acks

    again = Run(faults, in_flight=in_flight)
    for _ in range(flushes + 1):
        again.deliver(counts)
    assert (again.seen, again.sender.stats) == (run.seen, stats)


@given(FAULTS, st.integers(1, 5), COUNTS, st.integers(0, 20))
def test_sequence_numbers_may_begin_again(
    faults: Faults, in_flight: int, counts: list[int], before_wrap: int
) -> None:
    run = Run(faults, in_flight=in_flight, base_sequence=MAX_SEQUENCE - before_wrap)
    run.deliver(counts)
    assert run.order() == list(range(len(counts)))


@given(FAULTS, st.integers(1, 5), COUNTS)
def test_without_idempotence_nothing_is_lost(
    faults: Faults, in_flight: int, counts: list[int]
) -> None:
    """Each lost acknowledgement is one time more that a batch is there, and no other."""
    run = Run(faults, in_flight=in_flight, is_idempotent=False)
    run.deliver(counts)
    assert set(run.order()) == set(range(len(counts)))
    assert len(run.written) == len(counts) + run.sender.stats.lost_acks
    assert run.sender.stats.duplicates == 0
    assert run.outstanding_max <= in_flight


def test_what_goes_wrong_without_idempotence() -> None:
    kinds = set()
    for seed in range(20):
        for faults in (Faults(drop=0.2, seed=seed), Faults(reorder=0.5, seed=seed),
                       Faults(lost_ack=0.2, seed=seed)):  # fmt: skip
            run = Run(faults, is_idempotent=False)
            run.deliver([2] * 30)
            order = run.order()
            if len(set(order)) < len(order):
                kinds.add(("repeated", faults[:3]))
            if any(after < before for before, after in pairwise(dict.fromkeys(order))):
                kinds.add(("overtaken", faults[:3]))
    assert kinds == {
        ("overtaken", (0.2, 0, 0)), ("overtaken", (0, 0.5, 0)), ("repeated", (0, 0, 0.2)),
    }  # fmt: skip


def test_one_at_a_time_is_in_order_without_idempotence_too() -> None:
    run = Run(Faults(0.3, 0.5, 0.3, seed=2), in_flight=1, is_idempotent=False)
    run.deliver([1] * 50)
    assert run.order() == sorted(run.order())
    assert run.sender.stats.reorders == 0


def test_every_kind_of_fault_happens() -> None:
    run = Run(Faults(0.1, 0.3, 0.1, seed=1))
    run.deliver([1] * 300)
    assert min(run.sender.stats) > 20
    assert any(a.tag > b.tag for (a, _), (b, _) in pairwise(run.acks))
    assert run.outstanding_max == 5


@pytest.mark.parametrize("in_flight", [1, 5])
def test_without_a_link_batches_are_appended_at_once(in_flight: int) -> None:
    run = Run(None, in_flight=in_flight)
    run.send([3])
    assert [(sent.tag, appended) for sent, appended in run.acks] == [(0, Appended(0, 2, False))]
    run.acks.clear()
    run.sender.send(run.sent[0], 0, 3)
    run.sender.flush()
    assert run.acks[0][1].is_duplicate
    assert run.sender.stats == SenderStats(2, 0, 0, 0, 0, 1)
    quiet = Sender(run.append, in_flight=in_flight, faults=None, is_idempotent=True)
    quiet.send(run.sent[0], 0, 3)
    assert quiet.stats.duplicates == 1


def test_in_flight_has_bounds() -> None:
    for in_flight in (0, 6):
        with pytest.raises(UsageError, match="expected 1 to 5"):
            Run(None, in_flight=in_flight)


# --- what nothing mends ---------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [None, NOTHING_LOST, Faults(0.3, 0.3, 0.3, seed=3)])
def test_a_gap_of_the_callers_making(faults: Faults | None) -> None:
    run = Run(faults)
    run.send([1] * 10)
    run.sequence += 1
    with pytest.raises(AppendError) as caught:
        run.deliver([1])
    assert caught.value.kafka_error == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert run.order() == list(range(10))
    assert not run.sender._unacknowledged
    run.sender.flush()


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_what_the_leader_refuses(is_idempotent: bool) -> None:
    run = Run(Faults(0.3, 0.3, 0.3, seed=3), is_idempotent=is_idempotent)
    run.send([1] * 10)
    with pytest.raises(AppendError) as caught:
        run.deliver([1000, 1, 1])
    assert caught.value.kafka_error == "RECORD_LIST_TOO_LARGE"
    assert not run.sender._unacknowledged
    seen_count = len(run.seen)
    run.sender.flush()
    assert len(run.seen) == seen_count


def test_a_disk_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(NOTHING_LOST)
    run.send([1] * 3)

    def fails(*_: Any) -> None:
        raise AccessError(OSError(5, "Input/output error"), "t-0")

    monkeypatch.setattr(run.writer.store, "append", fails)
    with pytest.raises(AccessError):
        run.sender.flush()
    assert not run.sender._unacknowledged


@pytest.mark.parametrize("faults", [Faults(drop=1.0), Faults(lost_ack=1.0)])
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_that_never_arrives(
    faults: Faults, is_idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "MAX_ATTEMPTS", 20)
    run = Run(faults, is_idempotent=is_idempotent)
    with pytest.raises(DeliveryTimeoutError, match="sent 20 times and not acknowledged") as caught:
        run.send([1] * 6)
    assert caught.value.exit_status == EXIT_ACCESS
    assert not run.sender._unacknowledged
    assert run.acks == []


# --- the log itself -------------------------------------------------------------------------------


def test_the_records_are_in_the_log_once(tmp_path: Path) -> None:
    directory = tmp_path / "log-dir" / "t-0"
    directory.parent.mkdir()
    store = FileStore(str(directory), FileSystem(), topic_id=bytes(range(16)))
    run = Run(Faults(0.2, 0.4, 0.2, seed=11), store=store)
    run.deliver([1, 3, 2] * 40)
    run.writer.close()
    (selected,) = discover([directory]).selected
    found = []
    for files in Partition.of(selected).segments:
        with open_segment(files.log.path) as segment:
            for batch in segment.scan():
                found += [(each.offset, each.value) for each in segment.records(batch)]
    values = [b"%d" % (n * 100 + k) for n in range(120) for k in range([1, 3, 2][n % 3])]
    assert found == list(enumerate(values))
    assert run.writer.rolled_count > 3
