"""The coordinator against a slow model: any requests, time that passes, and death at any write.

pytest tests/storage/writing/test_coordinator_model.py --hypothesis-profile=fuzz     # for hours
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.file_names import GROUPS_TOPIC
from storage.formats.consumer_offsets import (
    OffsetCommit,
    OffsetKey,
    encode_offset_key,
    parse_offset_record,
)
from storage.producers.producer_state import AppendError
from storage.producers.transaction_metadata import CoordinatorError, ProducerIdAndEpoch
from storage.writing.coordinator import (
    DEFAULT_ID_EXPIRATION_MS,
    ClusterSettings,
    TransactionCoordinator,
    append_offsets,
)
from tests.coordinator_model import Model, RefusedByModel
from tests.coordinators import (
    DiedError,
    Fuse,
    MemoryPartitions,
    committed,
    known_states,
    new_logs,
)
from tests.drawn import examples
from tests.writing import NOW_MS, batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.formats.transaction_state import TransactionState

NAMES = ("a", "b", "c")
DATA_COUNT = 3
OFFSETS = DATA_COUNT  # the model's number of the partition of `__consumer_offsets`
PLACES = (*(("t", number) for number in range(DATA_COUNT)), (GROUPS_TOPIC, 0))
GROUP = "g"
STATES_COUNT = 2
TIMEOUT_MS = 60_000
EXPECTED_ANSWERS = {
    "init: done", "init: PRODUCER_FENCED", "init: CONCURRENT_TRANSACTIONS",
    "add: done", "add: PRODUCER_FENCED", "add: INVALID_PRODUCER_ID_MAPPING",
    "end: done", "end: PRODUCER_FENCED", "end: INVALID_PRODUCER_ID_MAPPING",
    "end: INVALID_TXN_STATE",
    "send: done", "send: INVALID_PRODUCER_EPOCH",
    "add offsets: done", "add offsets: PRODUCER_FENCED", "send offsets: done",
    "died: add offsets", "died: send offsets",
    "died: init", "died: add", "died: send", "died: end", "died: complete", "died: abort late",
    "committed after death", "aborted late", "expired", "another producer id",
}  # fmt: skip
ANSWERS: Counter[str] = Counter()  # how often each was met in this run

WHICH = st.integers(0, 5)
# At which write the process dies, if at all: before the first, behind it, before the second ...
LEFT = st.sampled_from([None] * 14 + [0, 1, 2, 3, 4])


class Session:
    """A producer as it knows itself."""

    def __init__(self, name: str, number: int, who: tuple[int, int], client: int) -> None:
        self.name = name
        self.number = number
        self.who = who
        self.client = client
        self.transaction = 0

    def tag(self, partition: int, n: int) -> bytes:
        return f"{self.number}.{self.transaction}:{partition}.{n}".encode()


class CoordinatorMachine(RuleBasedStateMachine):
    """Three ids over two partitions of the coordinator's and three of data."""

    @initialize(version=st.sampled_from([0, 1, 2, 2]), epoch=st.sampled_from([None, 32764]))
    def begin(self, version: int, epoch: int | None) -> None:
        self.model = Model(version, NOW_MS, DEFAULT_ID_EXPIRATION_MS)
        self.logs = new_logs(STATES_COUNT, PLACES)
        self.fuse = Fuse()
        self.next_id = self.model.next_id
        self.sessions: list[Session] = []
        self.given: dict[tuple[int, int], int] = {}  # to which session
        self.sent: dict[bytes, set[bytes]] = defaultdict(set)  # of each transaction
        self.sent_count = 0
        self.dies_again: int | None = None  # when it is opened after its death
        self.open()
        if epoch is not None:
            self.begin_near_the_end(epoch)

    def begin_near_the_end(self, epoch: int) -> None:
        """The first id has almost used up its producer id."""
        self.run(
            "init",
            None,
            lambda: tuple(self.coordinator.init_producer_id("a", TIMEOUT_MS)),
            self.model.init("a", TIMEOUT_MS, None),
        )
        metadata = self.coordinator["a"]
        state = metadata.state._replace(producer_epoch=epoch)
        self.coordinator._put(metadata._replace(state=state))
        self.model.ids["a"]["epoch"] = epoch

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def open(self) -> None:
        self.partitions = MemoryPartitions(self.logs, lambda: self.model.now_ms, self.fuse)
        self.coordinator = TransactionCoordinator(
            self.partitions,
            known_states(self.logs).values(),
            ClusterSettings(STATES_COUNT, 1, transaction_version=self.model.version),
            now_ms=lambda: self.model.now_ms,
            new_producer_id=self.take_id,
        )

    # -- doing the same with both

    def run(self, what: str, left: int | None, real: Callable[[], Any], steps: Any) -> Any:
        """Do it; returns the answer, None if there was none."""
        before = self.fuse.count
        self.fuse.set(-1 if left is None else left // 2, is_written=bool((left or 0) % 2))
        try:
            answer: Any = real()
        except DiedError:
            for _ in range(self.fuse.count - before):
                next(steps)
            steps.close()
            ANSWERS[f"died: {what}"] += 1
            left, self.dies_again = self.dies_again, None
            self.restart(left)
            return None
        except (CoordinatorError, AppendError) as refusal:
            answer = refusal.kafka_error
        finally:
            self.fuse.set(-1)
        expected = _outcome(steps)
        is_done = not isinstance(expected, str)
        ANSWERS[f"{what}: {'done' if is_done else expected}"] += 1
        if what in {"init", "end", "complete", "abort late", "expire"} or not is_done:
            assert answer == expected, what
        return expected if is_done else None

    def restart(self, left: int | None = None) -> None:
        """A new process: what is in the logs, decided transactions finished."""
        self.model.restart()
        self.model.next_id = self.next_id
        self.open()
        order = self.order()
        before = {n: len(values) for n, values in self.model.committed.items()}
        self.run(
            "complete",
            left,
            lambda: self.coordinator.complete_prepared() or None,
            self.model.complete_prepared(order),
        )
        self.next_id = self.model.next_id = max(self.next_id, self.model.next_id)
        if any(len(values) > before.get(n, 0) for n, values in self.model.committed.items()):
            ANSWERS["committed after death"] += 1

    def order(self) -> list[str]:
        return [each.state.transactional_id for each in self.coordinator]

    def session(self, which: int) -> Session | None:
        """One of the newest sessions."""
        return self.sessions[-1 - which] if which < len(self.sessions) else None

    def give(self, session: Session, who: tuple[int, int]) -> None:
        owner = self.given.setdefault(who, session.number)
        assert owner == session.number, f"{who} was given to two producers"
        if session.who[0] != who[0]:
            ANSWERS["another producer id"] += 1
        session.who = who
        session.transaction += 1

    # -- requests

    @rule(name=st.sampled_from(NAMES), left=LEFT, is_older=st.booleans())
    def begin_session(self, name: str, left: int | None, is_older: bool) -> None:
        self.init(name, left, is_older=is_older)

    def init(self, name: str, left: int | None, *, is_older: bool) -> None:
        """As a client does: once more if an older transaction had to be aborted first."""
        for _ in range(2):
            answer = self.run(
                "init",
                left,
                lambda: tuple(self.coordinator.init_producer_id(name, TIMEOUT_MS)),
                self.model.init(name, TIMEOUT_MS, None),
            )
            if answer is not None:
                client = 0 if is_older or self.model.version < 2 else 2
                session = Session(name, len(self.given) + len(self.sessions), answer, client)
                assert answer not in self.given
                self.give(session, answer)
                self.sessions.append(session)
                return

    @rule(which=WHICH, left=LEFT)
    def resume(self, which: int, left: int | None) -> None:
        """A producer goes on after an error (KIP-360)."""
        session = self.session(which)
        if session is None:
            return
        asked, name = ProducerIdAndEpoch(*session.who), session.name
        answer = self.run(
            "init",
            left,
            lambda: tuple(self.coordinator.init_producer_id(name, TIMEOUT_MS, asked)),
            self.model.init(name, TIMEOUT_MS, session.who),
        )
        if answer is not None:
            self.give(session, answer)

    @rule(
        which=st.sampled_from([0, 0, 0, 1, 2, 3]),
        partitions=st.lists(st.integers(0, DATA_COUNT - 1), min_size=1, max_size=3),
        left=LEFT,
    )
    def add_and_send(self, which: int, partitions: list[int], left: int | None) -> None:
        """No batch goes to a partition that was not added."""
        session = self.session(which)
        if session is None:
            return
        producer = ProducerIdAndEpoch(*session.who)
        where = [("t", each) for each in partitions]
        is_added = ANSWERS["add: done"]
        self.run(
            "add",
            left,
            lambda: self.coordinator.add_partitions(
                session.name, producer, where, client_version=session.client
            ),
            self.model.add(session.name, session.who, partitions, session.client),
        )
        if ANSWERS["add: done"] == is_added:
            return
        for partition in dict.fromkeys(partitions):
            # Behind the write of the batch, unless it is another one that is the last.
            if not self.send(session, partition, None if left is None or partition else left % 2):
                return

    def send(self, session: Session, partition: int, left: int | None) -> bool:
        count = 1 + self.sent_count % 2
        self.sent_count += 1
        values = [session.tag(partition, self.sent_count)] * count
        producer_id, epoch = session.who
        is_known = self.model.epochs[partition].get(producer_id) == epoch
        sequence = self.model.sequences[partition].get(producer_id, 0) if is_known else 0
        data = batch(count, (producer_id, epoch, sequence), value=values[0], is_transactional=True)
        is_sent = ANSWERS["send: done"]
        opened = len(self.model.open[partition].get(producer_id, []))
        self.run(
            "send",
            left,
            lambda: self.partitions.writer("t", partition).append(data),
            self.model.send(session.who, partition, values),
        )
        if len(self.model.open[partition].get(producer_id, [])) > opened:
            self.sent[values[0].split(b":")[0]].add(values[0])
        return ANSWERS["send: done"] > is_sent

    @rule(which=st.sampled_from([0, 0, 0, 1, 2, 3]), left=LEFT, dies_added=st.booleans())
    def commit_any_offsets(self, which: int, left: int | None, dies_added: bool) -> None:
        self.commit_offsets(which, left, dies_added=dies_added)

    def commit_offsets(self, which: int, left: int | None, *, dies_added: bool) -> None:
        """Offsets of a group go with the transaction; `dies_added`: when that is asked for."""
        session = self.session(which)
        if session is None:
            return
        producer = ProducerIdAndEpoch(*session.who)
        added = ANSWERS["add offsets: done"]
        self.run(
            "add offsets",
            left if dies_added else None,
            lambda: self.coordinator.add_offsets(
                session.name, producer, GROUP, client_version=session.client
            ),
            self.model.add(session.name, session.who, [OFFSETS], session.client),
        )
        if ANSWERS["add offsets: done"] > added:
            self.send_offsets(session, None if dies_added else left)

    def send_offsets(self, session: Session, left: int | None) -> None:
        """One commit; its metadata says whose it is."""
        self.sent_count += 1
        tag = session.tag(OFFSETS, self.sent_count)
        key = OffsetKey(GROUP, "t", self.sent_count % DATA_COUNT)
        value = OffsetCommit(3, self.sent_count, metadata=tag.decode())
        producer = ProducerIdAndEpoch(*session.who)
        opened = len(self.model.open[OFFSETS].get(producer.producer_id, []))
        self.run(
            "send offsets",
            left,
            lambda: append_offsets(
                self.partitions.writer(GROUPS_TOPIC, 0),
                {key: value},
                now_ms=self.model.now_ms,
                producer=producer,
            ),
            self.model.send(session.who, OFFSETS, [tag]),
        )
        if len(self.model.open[OFFSETS].get(producer.producer_id, [])) > opened:
            self.sent[tag.split(b":")[0]].add(tag)

    @rule(
        name=st.sampled_from(NAMES),
        partitions=st.permutations(range(DATA_COUNT)),
        is_commit=st.booleans(),
        dies_in=st.sampled_from([None, None, "add", "offsets", "end", "end", "late"]),
        has_offsets=st.booleans(),
        left=st.integers(0, 11),
        dies_again=LEFT,
    )
    def transact(
        self,
        name: str,
        partitions: list[int],
        is_commit: bool,
        dies_in: str | None,
        has_offsets: bool,
        left: int,
        dies_again: int | None,
    ) -> None:
        """A whole transaction of the newest producer of an id, or one that takes too long."""
        mine = [n for n, each in enumerate(reversed(self.sessions)) if each.name == name]
        if not mine:
            self.init(name, None, is_older=False)
            mine = [0]
        count = 1 + left % DATA_COUNT
        self.add_and_send(mine[0], partitions[:count], left if dies_in == "add" else None)
        self.dies_again = dies_again
        if has_offsets or dies_in == "offsets":
            dies = left % 2 if dies_in == "offsets" else None
            self.commit_offsets(mine[0], dies, dies_added=left % 4 < 2)
        if dies_in == "late":
            self.abort_late_ones(TIMEOUT_MS + 1, left)
        else:
            self.end(mine[0], is_commit, left if dies_in == "end" else None, asks_twice=False)
        self.dies_again = None

    @rule(which=WHICH, partition=st.integers(0, DATA_COUNT - 1))
    def zombie_sends(self, which: int, partition: int) -> None:
        """Without asking the coordinator: where something newer was written, it is refused."""
        session = self.session(which)
        if session is None:
            return
        producer_id, epoch = session.who
        if epoch < self.model.epochs[partition].get(producer_id, -1):
            assert not self.send(session, partition, None)

    @rule(
        which=st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
        is_commit=st.booleans(),
        left=LEFT,
        asks_twice=st.booleans(),
    )
    def end_any(self, which: int, is_commit: bool, left: int | None, asks_twice: bool) -> None:
        self.end(which, is_commit, left, asks_twice=asks_twice)

    def end(self, which: int, is_commit: bool, left: int | None, *, asks_twice: bool) -> None:
        session = self.session(which)
        if session is None:
            return
        producer = ProducerIdAndEpoch(*session.who)
        for _ in range(1 + asks_twice):
            answer = self.run(
                "end",
                left,
                lambda: tuple(
                    self.coordinator.end_transaction(
                        session.name,
                        producer,
                        is_commit=is_commit,
                        client_version=session.client,
                    )
                ),
                self.model.end(
                    session.name, tuple(producer), is_commit=is_commit, client=session.client
                ),
            )
        if answer is not None:
            self.give(session, answer)
        elif self.model.ids.get(session.name, {}).get("status") != "Ongoing":
            session.transaction += 1  # it goes on without the answer

    # -- time, and new processes

    @rule(passed_ms=st.sampled_from([1, 30_000, 59_999, 60_001]))
    def wait(self, passed_ms: int) -> None:
        self.model.now_ms += passed_ms

    @rule(passed_ms=st.sampled_from([30_000, 60_001]), left=LEFT)
    def abort_late(self, passed_ms: int, left: int | None) -> None:
        self.abort_late_ones(passed_ms, left)

    def abort_late_ones(self, passed_ms: int, left: int | None) -> None:
        self.model.now_ms += passed_ms
        late = self.run(
            "abort late",
            left,
            self.coordinator.abort_timed_out,
            self.model.abort_late(self.order()),
        )
        if late:
            ANSWERS["aborted late"] += 1

    @rule(is_long=st.sampled_from([False] * 7 + [True]), left=LEFT)
    def expire(self, is_long: bool, left: int | None) -> None:
        self.model.now_ms += DEFAULT_ID_EXPIRATION_MS if is_long else 1
        late = self.run(
            "expire", left, self.coordinator.expire_ids, self.model.expire(self.order())
        )
        if late:
            ANSWERS["expired"] += 1

    @rule(left=LEFT)
    def reopen(self, left: int | None) -> None:
        self.restart(left)

    # -- what must hold

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def both_know_the_same(self) -> None:
        assert self.next_id == self.model.next_id
        newest = known_states(self.logs)
        assert {name: _fields(state) for name, state in newest.items()} == {
            name: {key: value for key, value in each.items() if key != "last"}
            | {"partitions": _in_order(each["partitions"])}
            | ({"previous": -1, "next": -1, "client": 0} if not self.model.version else {})
            for name, each in self.model.ids.items()
        }
        for each in self.coordinator:
            known = self.model.ids[each.state.transactional_id]
            assert each.last_producer_epoch == known["last"]
            assert each.state.producer_epoch == known["epoch"]

    def committed_in(self, partition: int) -> list[bytes]:
        """What the model calls the values: of an offset, its metadata."""
        values = [each for each in committed(self.logs[PLACES[partition]]) if each is not None]
        if partition != OFFSETS:
            return values
        key = encode_offset_key(OffsetKey(GROUP, "t", 0))
        return [parse_offset_record(key, each)[1].metadata.encode() for each in values]

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def the_partitions_are_as_the_model_says(self) -> None:
        for partition, place in enumerate(PLACES):
            assert self.committed_in(partition) == self.model.committed[partition]
            writer = self.partitions.writer(*place)
            epochs = {each.producer_id: each.producer_epoch for each in writer.producers.entries()}
            assert epochs == self.model.epochs[partition]
            is_open = {
                producer_id for producer_id, each in self.model.open[partition].items() if each
            }
            assert set(writer.producers.ongoing.values()) == is_open

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def transactions_are_whole(self) -> None:
        """All that was sent in one is committed, or nothing of it; nothing twice."""
        if any(each["status"].startswith("Prepare") for each in self.model.ids.values()):
            return
        found: dict[bytes, set[bytes]] = defaultdict(set)
        for partition in range(len(PLACES)):
            for value in self.committed_in(partition):
                found[value.split(b":")[0]].add(value)
        for tag, values in found.items():
            assert values == self.sent[tag]


def _outcome(steps: Any) -> Any:
    """What the model answers: a name of an error, or the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value
    except RefusedByModel as refusal:
        return str(refusal)


def _in_order(partitions: list[int] | None) -> list[int] | None:
    """A record of the coordinator groups partitions by topic: the order they were added in is not kept."""
    return None if partitions is None else sorted(partitions)


def _fields(state: TransactionState) -> dict[str, Any]:
    partitions = state.partitions
    return {
        "status": state.status.label,
        "id": state.producer_id,
        "previous": state.previous_producer_id,
        "next": state.next_producer_id,
        "epoch": state.producer_epoch,
        "timeout": state.timeout_ms,
        "partitions": _in_order(partitions and [PLACES.index(each) for each in partitions]),
        "started": state.start_timestamp_ms,
        "updated": state.last_update_timestamp_ms,
        "client": state.client_transaction_version,
    }


@pytest.mark.exhaustive
def test_any_requests_and_deaths() -> None:
    ANSWERS.clear()
    run_state_machine_as_test(
        CoordinatorMachine, settings=settings(max_examples=examples(250), stateful_step_count=30)
    )
    print(sorted(ANSWERS.items()))
    assert {each for each in EXPECTED_ANSWERS if not ANSWERS[each]} == set()
