"""The writer against a slow model: any appends, markers, crashes, truncations, and a day that passes.

pytest tests/storage/writing/test_writer_model.py --hypothesis-profile=fuzz     # for hours
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from recovery.rebuild.derive import RebuildSettings
from recovery.replay.snapshots import Clock
from recovery.truncate.plan import plan_truncation
from recovery.truncate.target import TargetKind, TargetRequest
from storage.dirs.log_tail import NotClosedError
from storage.dirs.topic_settings import LogConfig
from storage.formats.compression import Codec
from storage.producers.producer_state import AppendError
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.writer import PartitionWriter
from tests import writer_model
from tests.fuzz.segment_targets import memory_dir
from tests.writer_files import require_files_of_model, require_files_of_rebuild
from tests.writer_model import EXPIRY_MS, AnswerError, Model, Sent
from tests.writing import (
    NOW_MS,
    TOPIC_ID,
    NoSyncFileSystem,
    batch,
    carry_out,
    make_log_dir,
    partition_at,
    recover,
    tail_at,
)

PRODUCERS = (1, 17, 2**40 + 5)  # the first two share a bucket of Java's table
KEPT_SENT = 9  # of the newest batches, to be sent again: beyond the five that are known
LONG_AGO_MS = 0  # nothing has expired yet
SEQUENCES = st.sampled_from([0, 1, 7, 2**31 - 4, 2**31 - 1])
EXPECTED_ANSWERS = {
    "append: written",
    "append: duplicate",
    "append: INVALID_PRODUCER_EPOCH",
    "append: OUT_OF_ORDER_SEQUENCE_NUMBER",
    "append: INVALID_TXN_STATE",
    "append: RECORD_LIST_TOO_LARGE",
    "marker: written",
    "marker: INVALID_PRODUCER_EPOCH",
    "marker: TRANSACTION_COORDINATOR_FENCED",
    "aborted",
    "rolled",
    "expired",
    "sequence wrapped",
}
ANSWERS: Counter[str] = Counter()  # how often each was met in this run


def note(answer: str) -> None:
    ANSWERS[answer] += 1


class WriterMachine(RuleBasedStateMachine):
    """One partition in a directory of its own."""

    @initialize(
        segment_bytes=st.sampled_from([330, 700, 2500]),
        interval_bytes=st.sampled_from([0, 150, 4096]),
        index_max_bytes=st.sampled_from([36, 60, 10_485_760]),
        is_log_append_time=st.sampled_from([False, False, True]),
    )
    def begin(
        self,
        segment_bytes: int,
        interval_bytes: int,
        index_max_bytes: int,
        is_log_append_time: bool,
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="eoctl-model-", dir=memory_dir()))
        self.directory = make_log_dir(self.root / "log-dir") / "t-0"
        self.fs = NoSyncFileSystem()
        model_settings = writer_model.Settings(
            segment_bytes, 3 * 60 * 60 * 1000, interval_bytes, index_max_bytes, is_log_append_time
        )
        self.model = Model(model_settings, NOW_MS)
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=model_settings.segment_ms,
            index_interval_bytes=interval_bytes,
            index_max_bytes=index_max_bytes,
            is_log_append_time=is_log_append_time,
        )
        self.sent: list[Sent] = []
        self.cut_bases: set[int] = set()  # segments whose time index lacks its last entry
        self.writer = self.opened()

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.close()
            self.check_files()
            shutil.rmtree(self.root)

    def opened(self) -> PartitionWriter:
        self.model.open()
        is_new = not self.directory.exists()
        store = FileStore(str(self.directory), self.fs, topic_id=TOPIC_ID if is_new else None)
        return PartitionWriter(
            store,
            tail_at(self.directory, self.config),
            self.config,
            leader_epoch=self.model.leader_epoch,
            now_ms=lambda: self.model.now_ms,
            flush=FlushPolicy.NEVER,
        )

    # -- what clients and coordinators send

    def send(self, sent: Sent) -> None:
        try:
            expected: Any = self.model.append(sent)
        except AnswerError as refusal:
            expected = str(refusal)
        try:
            found: Any = tuple(self.writer.append(sent.data))
        except AppendError as error:
            found = error.kafka_error
        is_done = not isinstance(expected, str)
        note(f"append: {('written', 'duplicate')[expected[2]] if is_done else expected}")
        assert found == expected
        if is_done and sent.sequence + sent.count > 2**31:
            note("sequence wrapped")

    def identity(self, producer_id: int, first_sequence: int) -> tuple[int, int]:
        """Epoch and sequence that the producer has to send next."""
        known = self.model.producers.get(producer_id)
        if known is None:
            return 0, first_sequence
        batches = known["batches"]
        return known["epoch"], (batches[-1][1] + 1) % 2**31 if batches else 0

    def send_made(self, sent: Sent, **made: Any) -> None:
        data = batch(
            sent.count,
            (sent.producer_id, sent.epoch, sent.sequence),
            timestamp_ms=sent.time_ms,
            is_transactional=sent.is_transactional,
            **made,
        )
        sent = replace(sent, data=data)
        self.sent = [*self.sent, sent][-KEPT_SENT:]
        self.send(sent)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        first_sequence=SEQUENCES,
        count=st.integers(1, 4),
        size=st.sampled_from([1, 40, 150]),
        codec=st.sampled_from(Codec),
        delay_ms=st.integers(-50, 50),
        is_transactional=st.booleans(),
    )
    def produce(
        self,
        producer_id: int,
        first_sequence: int,
        count: int,
        size: int,
        codec: Codec,
        delay_ms: int,
        is_transactional: bool,
    ) -> None:
        """The next batch of a producer, as it should be."""
        epoch, sequence = self.identity(producer_id, first_sequence)
        known = self.model.producers.get(producer_id)
        is_transactional |= known is not None and known["txn"] is not None
        time_ms = self.model.now_ms + delay_ms
        sent = Sent(producer_id, epoch, sequence, count, is_transactional, time_ms, b"")
        self.send_made(sent, value=b"v" * size, codec=codec)

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 3))
    def produce_in_a_transaction(self, producer_id: int, count: int) -> None:
        epoch, sequence = self.identity(producer_id, 0)
        self.send_made(Sent(producer_id, epoch, sequence, count, True, self.model.now_ms, b""))

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        epoch_step=st.sampled_from([-1, 0, 0, 1, 1, 40_000]),
        sequence_step=st.sampled_from([None, -1, 0, 0, 1]),
        count=st.integers(1, 2),
        is_transactional=st.booleans(),
    )
    def produce_anything(
        self,
        producer_id: int,
        epoch_step: int,
        sequence_step: int | None,
        count: int,
        is_transactional: bool,
    ) -> None:
        """An older or newer epoch, sequences behind or with a gap, outside of a transaction."""
        epoch, sequence = self.identity(producer_id, 5)
        epoch = min(max(epoch + epoch_step, 0), writer_model.MAX_EPOCH)
        sequence = 0 if sequence_step is None else (sequence + sequence_step) % 2**31
        time_ms = self.model.now_ms
        self.send_made(Sent(producer_id, epoch, sequence, count, is_transactional, time_ms, b""))

    @rule(count=st.integers(1, 3), size=st.sampled_from([1, 90]), delay_ms=st.integers(-90, 90))
    def produce_without_id(self, count: int, size: int, delay_ms: int) -> None:
        time_ms = self.model.now_ms + delay_ms
        data = batch(count, timestamp_ms=time_ms, value=b"p" * size)
        self.send(Sent(-1, -1, -1, count, False, time_ms, data))

    @rule(back=st.integers(1, KEPT_SENT))
    def retry(self, back: int) -> None:
        if back <= len(self.sent):
            self.send(self.sent[-back])

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        counts=st.lists(st.integers(1, 3), max_size=2),
        is_commit=st.booleans(),
        version=st.integers(0, 2),
    )
    def complete_a_transaction(
        self, producer_id: int, counts: list[int], is_commit: bool, version: int
    ) -> None:
        """The one that is open or a new one, ended as its coordinator does."""
        for count in counts:
            self.produce_in_a_transaction(producer_id, count)
        known = self.model.producers.get(producer_id)
        if known is not None:
            epoch = min(known["epoch"] + (version == 2), writer_model.MAX_EPOCH)
            coordinator_epoch = max(known["coordinator_epoch"], 0)
            self.end(producer_id, epoch, is_commit, coordinator_epoch, version)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        epoch_step=st.sampled_from([-1, -1, 0, 0, 1, 1, 40_000]),
        is_commit=st.booleans(),
        coordinator_epoch=st.sampled_from([0, 0, 1, 2]),
        version=st.integers(0, 2),
    )
    def end_anything(
        self,
        producer_id: int,
        epoch_step: int,
        is_commit: bool,
        coordinator_epoch: int,
        version: int,
    ) -> None:
        epoch, _ = self.identity(producer_id, 0)
        epoch = min(max(epoch + epoch_step, 0), writer_model.MAX_EPOCH)
        self.end(producer_id, epoch, is_commit, coordinator_epoch, version)

    def end(
        self, producer_id: int, epoch: int, is_commit: bool, coordinator_epoch: int, version: int
    ) -> None:
        try:
            expected: Any = self.model.end_transaction(
                producer_id,
                epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                version=version,
            )
        except AnswerError as refusal:
            expected = str(refusal)
        try:
            answer = self.writer.end_transaction(
                producer_id,
                epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            )
            found: Any = answer.base_offset
        except AppendError as error:
            found = error.kafka_error
        note(f"marker: {expected if isinstance(expected, str) else 'written'}")
        assert found == expected

    # -- what happens to the writer

    def close(self) -> None:
        self.writer.close()
        if self.model.is_written:
            self.cut_bases.discard(self.model.segments[-1].base)
        self.model.close()

    @rule(step=st.sampled_from([0, 0, 1, 3]))
    def reopen(self, step: int) -> None:
        """Also as the next leader."""
        self.close()
        self.check_files()
        self.model.leader_epoch += step
        self.writer = self.opened()

    @rule(torn=st.sampled_from([0.0, 0.0, 0.02, 0.3, 0.99]))
    def crash(self, torn: float) -> None:
        self.writer.store.close_log()
        if not self.model.segments:
            self.writer = self.opened()
            return
        if torn:
            data = batch(2, (1, 0, 0), value=b"torn" * 20)
            log = self.directory / f"{self.model.segments[-1].base:020d}.log"
            log.write_bytes(log.read_bytes() + data[: max(int(len(data) * torn), 1)])
        if torn or self.model.is_written:
            with pytest.raises(NotClosedError):
                tail_at(self.directory, self.config)
        clock = Clock(self.model.now_ms)
        recover(self.directory, clock, self.config.index_interval_bytes, self.fs, self.root)
        self.model.recover()
        self.cut_bases.clear()
        self.check_files(clock)
        self.writer = self.opened()

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        self.close()
        if self.model.segments:
            offset = int(self.model.end * part)
            partition = partition_at(self.directory)
            request = TargetRequest(TargetKind.OFFSET, offset)
            plan = plan_truncation(partition, request, clock=Clock(self.model.now_ms))
            carry_out(partition, plan.steps, self.fs, self.root)
            was = self.model.end
            self.model.truncate(offset)
            if self.model.end < was:
                self.cut_bases.add(self.model.segments[-1].base)
            self.check_files()
        self.writer = self.opened()

    @rule(passed_ms=st.sampled_from([1000, 60_000, 4 * 60 * 60 * 1000, EXPIRY_MS]))
    def wait(self, passed_ms: int) -> None:
        self.model.now_ms += passed_ms

    # -- what must hold

    @invariant()
    def the_writer_knows_what_the_model_knows(self) -> None:
        if not hasattr(self, "writer"):
            return
        assert self.writer.end_offset == self.model.end
        known = self.writer.producers
        found = sorted(tuple(each) for each in known.entries())
        assert found == writer_model.snapshot_entries(self.model.producers)
        is_open = {
            each["txn"]: producer_id
            for producer_id, each in self.model.producers.items()
            if each["txn"] is not None
        }
        assert known.ongoing == is_open
        cached = {
            each.producer_id: [
                (one.first_sequence, one.last_sequence, one.base_offset, one.last_offset)
                for one in each.batches
            ]
            for each in known.producers.values()
        }
        assert cached == {each: value["batches"] for each, value in self.model.producers.items()}

    def check_files(self, clock: Clock | None = None) -> None:
        """Compare the files with the model, and with a rebuild from the `.log` files alone.

        Args:
            clock: of the recovery that has just been made, after which nothing else is there.
        """
        for what, is_so in (
            ("rolled", len(self.model.segments) > 1),
            ("aborted", any(each.aborted for each in self.model.segments)),
            ("expired", self.model.was_forgetful),
        ):
            ANSWERS[what] += is_so
        if not self.model.segments:
            assert not self.directory.exists()
            return
        require_files_of_model(self.directory, self.model)
        if clock is not None or not self.model.was_forgetful:
            require_files_of_rebuild(
                self.directory,
                RebuildSettings(
                    LONG_AGO_MS if clock is None else clock.now_ms,
                    self.config.index_interval_bytes,
                ),
                is_recovered=clock is not None,
                cut_bases=self.cut_bases,
            )


@pytest.mark.exhaustive
def test_the_writer_is_the_model() -> None:
    """Forty random lives of a partition; `--hypothesis-profile=fuzz` has as many as you like."""
    examples = settings.default.max_examples
    examples = 40 if examples <= 100 else examples
    lives = settings(max_examples=examples, stateful_step_count=60)
    run_state_machine_as_test(WriterMachine, settings=lives)
    print(dict(ANSWERS))


def test_the_machine_gets_everywhere() -> None:
    """One life by hand with every answer and event, so that the random ones can have them, too."""
    ANSWERS.clear()
    life = WriterMachine()
    life.begin(330, 0, 10_485_760, is_log_append_time=False)
    plain = {"size": 1, "codec": Codec.NONE, "delay_ms": 0, "is_transactional": False}
    life.produce(1, 2**31 - 1, 3, **plain)
    life.retry(1)
    life.produce(1, 0, 4, **{**plain, "size": 150})
    life.complete_a_transaction(17, [1, 2], is_commit=False, version=1)
    for epoch_step, sequence_step in ((0, 1), (1, 1)):
        life.produce_anything(17, epoch_step, sequence_step, 1, is_transactional=False)
    life.end_anything(17, 0, is_commit=True, coordinator_epoch=2, version=0)
    for coordinator_epoch in (1, 2):
        life.end_anything(17, 1, True, coordinator_epoch, version=2)
    life.produce_in_a_transaction(17, 1)
    life.produce_anything(17, -1, 0, 1, is_transactional=True)
    life.produce_anything(17, 0, 0, 1, is_transactional=False)
    life.end_anything(17, 0, is_commit=True, coordinator_epoch=2, version=2)
    life.truncate(0.9)
    life.crash(0.3)
    life.wait(EXPIRY_MS)
    life.reopen(1)
    life.the_writer_knows_what_the_model_knows()
    life.teardown()
    assert {each for each, count in ANSWERS.items() if count} == EXPECTED_ANSWERS
