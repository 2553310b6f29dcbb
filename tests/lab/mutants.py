"""Rules of replication, each broken on purpose: what `explore` must condemn (the judge of judges).

A mutant is a patch of the one place that has the rule. What it is explored with says which faults
bring it to light, and that without the patch the same settings lose nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.clients.producer import Producer
from eoctl.lab.environment.leader import LeaderReplica
from eoctl.lab.environment.network import MS_US, ConsumerAnswer, ProduceAnswer
from eoctl.lab.environment.settings import PlaySettings, RunSettings
from eoctl.lab.nodes import broker_life
from eoctl.lab.nodes.broker import Broker
from eoctl.lab.nodes.controller import Controller
from eoctl.lab.nodes.coordinator import SimulatedCoordinator
from eoctl.lab.nodes.running_log import RunningLog
from recovery.elections import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pytest

    from eoctl.lab.environment.leader import IsrChange
    from eoctl.lab.environment.network import FetchPart
    from recovery.elections.rules import PartitionState, Terms
    from storage.file_names import TopicPartition


TWO_IN_SYNC = PlaySettings(min_insync=2, fsync="batch")
IMPATIENT = TWO_IN_SYNC._replace(lag_time_max_ms=1500)
ELR = PlaySettings(min_insync=2, has_elr=True)
# One batch in flight: a broker that is started again knows the last batch of a producer only, so
# that several may be there twice, without any rule being broken.
SPARSE = RunSettings(records=60, rate=4, in_flight=1)
ALONE = PlaySettings(nodes=1, replication_factor=1)
ONCE = RunSettings(records=480, rate=4, retries=0, is_idempotent=False)
LONG = RunSettings(records=240, rate=4)
LONG_ONE = LONG._replace(in_flight=1)
IN_BURSTS = LONG_ONE._replace(burst=9)


# What is given while nobody may answer is on its way, too, and is not sent again.
OPEN = RunSettings(records=240, rate=4, retries=0, is_idempotent=False, in_flight=1000)
IN_BURST = RunSettings(records=300, rate=1000, in_flight=1)
PAIR = PlaySettings(nodes=2, replication_factor=2, fsync="batch", lag_time_max_ms=3000)


# In transactions of six records, each other one aborted.
IN_TRANSACTIONS = RunSettings(
    records=120, rate=20, transaction_records=6, abort_every=2, in_flight=1
)
TWO_PARTITIONS = TWO_IN_SYNC._replace(partitions=2)
# Broker 0 leads two of them: the second of two markers finds no fetch that waits for it.
FOUR_PARTITIONS = TWO_IN_SYNC._replace(partitions=4)
IN_FOURS = IN_TRANSACTIONS._replace(rate=1000, transaction_records=4)


class Mutant(NamedTuple):
    """One broken rule.

    Attributes:
        rule: the id of what is broken.
        seed: the first that brings it to light.
        patch: breaks it.
        faults: kinds and classes that do.
    """

    rule: str
    seed: int
    patch: Callable[[pytest.MonkeyPatch], None]
    faults: tuple[str, ...] = ("kill", "power", "partition")
    settings: PlaySettings = TWO_IN_SYNC
    run: RunSettings = SPARSE


def _advance_to(choose: Callable[[LeaderReplica, int], int]) -> Callable[..., None]:
    """Break REPL-3 by another choice of the high watermark."""

    def patch(patched: pytest.MonkeyPatch) -> None:
        def advance(self: LeaderReplica, now_us: int) -> bool:
            candidate = choose(self, now_us)
            if candidate <= self.high_watermark:
                return False
            self.high_watermark = candidate
            return True

        patched.setattr(LeaderReplica, "advance", advance)

    return patch


def _log_end(leader: LeaderReplica, now_us: int) -> int:
    del now_us
    return leader.end_offset


def _of_the_isr(leader: LeaderReplica, now_us: int) -> int:
    """Nobody waits for who is being added to the ISR, nor for who is about to be (KIP-497)."""
    del now_us
    ends = [leader.followers[each].end_offset for each in leader.isr if each != leader.broker_id]
    return min([*ends, leader.end_offset])


def _greatest(leader: LeaderReplica, now_us: int) -> int:
    """The greatest end of a follower in the ISR, not the smallest."""
    del now_us
    ends = [leader.followers[each].end_offset for each in leader.isr if each != leader.broker_id]
    return max(ends, default=leader.end_offset)


def _of_those_who_keep_up(leader: LeaderReplica, now_us: int) -> int:
    """Followers that lag stay in the ISR, and are not waited for."""
    ends = [
        each.end_offset
        for each in leader.followers.values()
        if now_us - each.caught_up_us <= 1_000_000
    ]
    return min(ends, default=leader.end_offset)


def _acknowledges_at_once(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(LeaderReplica, "answer", lambda _, __: "")


def _asks_for_nobody(patched: pytest.MonkeyPatch) -> None:
    """REPL-6: min.insync.replicas is asked for neither before nor after the append."""
    patched.setattr(LeaderReplica, "min_insync", property(lambda _: 1))


def _answers_before_it_appends(patched: pytest.MonkeyPatch) -> None:
    """REPL-1: the batch is written 20 ms after the answer."""
    produce = Broker.produce

    def later(self: Broker, life: int, *given: Any) -> None:
        if self.is_running and self.incarnation == life:
            produce(self, *given)

    def answer_first(
        self: Broker, client: Any, key: TopicPartition, batch: bytes, acks: int, timeout_us: int,
        answered: Callable[..., None], _transactional_id: str | None = None,
    ) -> None:  # fmt: skip
        core = self.leading.get(key)
        if core is None:
            produce(self, client, key, batch, acks, timeout_us, answered)
            return
        given = ProduceAnswer("", core.end_offset, self.number, core.leader_epoch)
        self._network.send(self, client, answered, given)
        self._scheduler.after(
            20 * MS_US, later, self, self.incarnation, client, key, batch, acks, timeout_us,
            lambda _: None,
        )  # fmt: skip

    patched.setattr(Broker, "produce", answer_first)


def _believes_what_it_sent(patched: pytest.MonkeyPatch) -> None:
    """REPL-2: a follower has what was sent to it, not what it asks from."""

    def fetched(self: LeaderReplica, follower: int, fetch_offset: int, now_us: int) -> bool:
        del fetch_offset
        self.followers[follower].fetched(self.end_offset, self.end_offset, now_us)
        return self.advance(now_us)

    patched.setattr(LeaderReplica, "fetched", fetched)


def _follower_commits_all(patched: pytest.MonkeyPatch) -> None:
    """REPL-4: a follower takes all that it has for committed, not what its leader has told."""
    patched.setattr(broker_life, "follower_high_watermark", lambda _, end_offset: end_offset)


def _lets_anybody_join(patched: pytest.MonkeyPatch) -> None:
    """REPL-5: a follower that has fetched once is asked for, however far behind it is."""

    def may_join(self: LeaderReplica, follower: int) -> bool:
        return self.pending is None and follower not in self.isr and follower not in self.fenced

    patched.setattr(LeaderReplica, "may_join", may_join)


def _elects_uncleanly(patched: pytest.MonkeyPatch) -> None:
    """REPL-9: nobody asks whether unclean elections are allowed."""
    terms = rules.Terms
    patched.setattr(
        Controller, "terms",
        property(lambda self: terms(self.min_insync, True, self._settings.has_elr)),
    )  # fmt: skip


def _numbers_anew(patched: pytest.MonkeyPatch) -> None:
    """REPL-12: what is sent again has another sequence."""
    wait = Producer._wait

    def renumbered(self: Producer, batch: Any) -> None:
        if batch.attempts == 1:
            batch.data = self._encode(batch.key, batch.records)
        wait(self, batch)

    patched.setattr(Producer, "_wait", renumbered)


def _elects_by_log_end(patched: pytest.MonkeyPatch) -> None:
    """REPL-8: the one with the longest log, which may be one that was cut off and is not cut yet."""
    learned: dict[int, Controller] = {}
    init = Controller.__init__

    def remember(self: Controller, *given: Any) -> None:
        init(self, *given)
        learned[0] = self

    def elect(
        state: PartitionState,
        _terms: Terms,
        _isr: tuple[int, ...],
        _elr: tuple[int, ...],
        running: Collection[int],
    ) -> tuple[int, bool]:
        if state.leader in running:
            return state.leader, False
        brokers = {
            number: each.broker for number, each in learned[0]._brokers.items() if number in running
        }
        ends: list[tuple[int, int]] = [
            (each.log(key).end_offset, -number)
            for number, each in brokers.items()
            if isinstance(each, Broker) and each.is_running
            for key in each._hosted
        ]
        return (-max(ends)[1], False) if ends else (rules.NO_LEADER, False)

    patched.setattr(Controller, "__init__", remember)
    patched.setattr(rules, "_elect", elect)


def _never_cuts(patched: pytest.MonkeyPatch) -> None:
    def diverging(_self: Broker, _key: TopicPartition, _part: FetchPart) -> None:
        return None

    patched.setattr(Broker, "_diverging", diverging)


def _consumers_read_all(patched: pytest.MonkeyPatch) -> None:
    def given(self: Broker, key: TopicPartition, offset: int, _isolation: str) -> ConsumerAnswer:
        core = self.leading.get(key)
        if core is None:
            return ConsumerAnswer(
                error="NOT_LEADER_OR_FOLLOWER", batches=[], high_watermark=-1, aborted=[]
            )
        batches = self.log(key).read(offset, core.end_offset, 1 << 20)
        return ConsumerAnswer(error="", batches=batches, high_watermark=core.end_offset, aborted=[])

    patched.setattr(Broker, "_given", given)


def _reads_past_what_is_stable(patched: pytest.MonkeyPatch) -> None:
    """REPL-7: a read_committed consumer is given all below the high watermark."""
    patched.setattr(RunningLog, "last_stable_offset", lambda _, high_watermark: high_watermark)


def _names_no_aborted(patched: pytest.MonkeyPatch) -> None:
    """REPL-7: a read_committed consumer is not told what was aborted."""
    patched.setattr(RunningLog, "aborted_in", lambda *_: [])


def _believes_unreplicated_markers(patched: pytest.MonkeyPatch) -> None:
    """REPL-13: a marker counts as soon as a leader has it, which may die with it."""
    append = Broker._append

    def write(self: Broker, key: TopicPartition, write: Any, acks: int, *given: Any) -> None:
        is_marker = write.__name__ == "write"
        append(self, key, write, 1 if is_marker else acks, *given)

    patched.setattr(Broker, "_append", write)


def _forgets_who_has_a_marker(patched: pytest.MonkeyPatch) -> None:
    """REPL-13: a transaction counts as ended with the first of its markers."""
    marked = SimulatedCoordinator._marked

    def forget(self: SimulatedCoordinator, ending: Any, key: TopicPartition) -> None:
        if ending.waiting:
            ending.waiting = [key]
        marked(self, ending, key)

    patched.setattr(SimulatedCoordinator, "_marked", forget)


def _elects_outside(patched: pytest.MonkeyPatch) -> None:
    """REPL-8: the first that runs, whether it is in the ISR or not."""

    def elect(
        state: PartitionState,
        _terms: Terms,
        _isr: tuple[int, ...],
        _elr: tuple[int, ...],
        running: Collection[int],
    ) -> tuple[int, bool]:
        for each in (state.leader, *state.replicas):
            if each in running:
                return each, False
        return rules.NO_LEADER, False

    patched.setattr(rules, "_elect", elect)


def _keeps_epoch(patched: pytest.MonkeyPatch) -> None:
    def next_epochs(leader_epoch: int, partition_epoch: int, *, has_new_leader: bool) -> Any:
        del has_new_leader
        return leader_epoch, partition_epoch + 1

    patched.setattr(Controller, "next_epochs", staticmethod(next_epochs))


def _fences_nobody(patched: pytest.MonkeyPatch) -> None:
    """Changes of the ISR are taken from leaders of an epoch that is over."""

    def alter(self: Controller, broker: Any, key: TopicPartition, change: IsrChange) -> None:
        changed = self._changed(
            lambda each: rules.altered(each, self.terms, change.isr, self._running), only=key
        )
        self._write(changed)
        self._network.send(self, broker, broker.altered, key, change, "", self.led(key))

    patched.setattr(Controller, "alter", alter)


def _lets_the_dead_in(patched: pytest.MonkeyPatch) -> None:
    """REPL-11: with ELR, a broker that was not stopped cleanly keeps its place."""

    def registered(*reported: Any, is_clean: bool) -> PartitionState:
        del is_clean
        return rules.fenced(*reported)

    patched.setattr(rules, "registered", registered)


MUTANTS = {
    "answers-before-append": Mutant(
        "REPL-1", 2, _answers_before_it_appends, ("kill-one",), settings=ALONE
    ),
    "believes-what-it-sent": Mutant("REPL-2", 6, _believes_what_it_sent, ("slow-one",), run=LONG),
    "hw-forgets-pending": Mutant(
        "REPL-3", 0, _advance_to(_of_the_isr), ("slow-change",), settings=PAIR, run=IN_BURSTS
    ),
    "hw-is-log-end": Mutant("REPL-3", 0, _advance_to(_log_end)),
    "hw-is-greatest": Mutant("REPL-3", 54, _advance_to(_greatest)),
    "hw-skips-laggards": Mutant("REPL-3", 13, _advance_to(_of_those_who_keep_up)),
    "follower-commits-all": Mutant("REPL-4", 5, _follower_commits_all, ("slow-one",), run=LONG),
    "anybody-joins": Mutant(
        "REPL-5", 10, _lets_anybody_join, ("slow-change",), settings=PAIR, run=IN_BURSTS
    ),
    "acks-at-once": Mutant("REPL-6", 0, _acknowledges_at_once),
    "asks-for-nobody": Mutant("REPL-6", 0, _asks_for_nobody, ("stop-then-power",), settings=ELR),
    "reads-all": Mutant("REPL-7", 9, _consumers_read_all),
    "reads-past-stable": Mutant("REPL-7", 0, _reads_past_what_is_stable, run=IN_TRANSACTIONS),
    "names-no-aborted": Mutant("REPL-7", 0, _names_no_aborted, run=IN_TRANSACTIONS),
    "elects-by-log-end": Mutant("REPL-8", 0, _elects_by_log_end, ("longer-log",), run=OPEN),
    "elects-outside": Mutant("REPL-8", 23, _elects_outside),
    "keeps-epoch": Mutant("REPL-8", 0, _keeps_epoch, ("kill-in-turn",), run=LONG_ONE),
    "fences-nobody": Mutant(
        "REPL-8", 7, _fences_nobody, ("partition-leader",), settings=IMPATIENT, run=LONG
    ),
    "elects-uncleanly": Mutant("REPL-9", 1, _elects_uncleanly, ("first-back",), run=LONG_ONE),
    "never-cuts": Mutant("REPL-10", 1, _never_cuts, ("partition-leader",), run=ONCE),
    "dead-let-in": Mutant("REPL-11", 3, _lets_the_dead_in, ("stop-then-power",), settings=ELR),
    "numbers-anew": Mutant("REPL-12", 4, _numbers_anew, ("kill-one",), run=IN_BURST),
    "unreplicated-markers": Mutant(
        "REPL-13",
        8,
        _believes_unreplicated_markers,
        ("kill-one",),
        settings=FOUR_PARTITIONS,
        run=IN_FOURS,
    ),
    "first-marker-ends-all": Mutant(
        "REPL-13",
        34,
        _forgets_who_has_a_marker,
        ("kill-one",),
        settings=TWO_PARTITIONS,
        run=IN_TRANSACTIONS,
    ),
}
