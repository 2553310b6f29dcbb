"""The recommended order to start several dead brokers, for each partition and for all of them.

Elections come from the newest metadata, losses from the copies. A broker that is neither given nor
stated as running does not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.elections.orders import Case, Orders, Surroundings, outcomes
from recovery.elections.replica_logs import cost_of, cost_of_nothing, read_copy
from recovery.elections.rules import ELR_FEATURE, PartitionState, Terms, states_after_stop
from storage.counts import counted
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
    min_insync_replicas,
    topic_setting,
)
from storage.errors import AccessError, RefusedError
from storage.file_names import TopicPartition
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from recovery.elections.nodes import DeadCluster
    from recovery.elections.orders import OrderSum, Outcome
    from recovery.elections.replica_logs import LeaderCost, LogCopy
    from storage.dirs.cluster_image import ClusterImage, PartitionImage


# -- the failures that a topic claims to survive by its settings, and the failures it survives.
#
# To survive any one failure, a topic has at least three replicas, 2 <= min.insync.replicas <=
# replicas, no unclean elections, and eligible leader replicas (KIP-966). With acks=all, and all
# replicas in sync before, it survives these failures.
#
#   `writes`  (replicas - min.insync.replicas) brokers may be down.
#   `data`    (min.insync.replicas - 1) brokers may lose their disks: an acknowledged record may be
#             on min.insync.replicas brokers only. Start the brokers with empty disks when another
#             broker leads: they may be in the ISR, and then be elected. With unclean elections the
#             same number may be down. Then any broker may lead.
#   `power`   With an ELR, as many brokers as for data may lose unflushed records, if the others run
#             or were stopped cleanly. The ELR keeps an uncleanly stopped broker from leading if
#             there is another candidate. Without an ELR no broker may lose records: the last member
#             of the ISR leads whatever it has lost. Kafka flushes nothing by itself.


REPLICAS_CLAIM = 3
INSYNC_CLAIM = 2


class TopicClaims(NamedTuple):
    """A topic with its settings, their faults, and the number of failures it survives.

    Attributes:
        replicas_count: the lowest of all partitions.
        min_insync_replicas: the setting. A broker uses at most the number of replicas.
        settings_from: sources of min.insync.replicas and unclean.leader.election.enable.
        survives_for_writes, survives_for_data, survives_power: numbers of brokers, see above.
        under_min_isr_count: partitions that refuse acks=all now.
        faults: messages.
    """

    topic: str
    partitions_count: int
    replicas_count: int
    min_insync_replicas: int
    is_unclean: bool
    has_elr: bool
    settings_from: str
    survives_for_writes: int
    survives_for_data: int
    survives_power: int
    under_min_isr_count: int
    faults: tuple[str, ...]


def claims_of(image: ClusterImage, is_wanted: Callable[[str], bool]) -> Iterator[TopicClaims]:
    """Yield the claims of each topic."""
    for name in sorted(filter(is_wanted, image.topics)):
        if image.topics[name].partitions:
            yield _claims(image, name)


def _claims(image: ClusterImage, topic: str) -> TopicClaims:
    partitions = image.topics[topic].partitions.values()
    replicas_count = min(len({*each.replicas} - {*each.adding_replicas}) for each in partitions)
    insync = topic_setting(image, topic, MIN_INSYNC_REPLICAS)
    unclean = topic_setting(image, topic, UNCLEAN_LEADER_ELECTION)
    number = int(insync.value) if insync.value.strip().isdecimal() else 1
    needed = min(number, replicas_count)
    is_unclean = unclean.value.strip().lower() == "true"
    has_elr = bool(image.features.get(ELR_FEATURE))
    sources = dict.fromkeys(str(each.source) for each in (insync, unclean))
    return TopicClaims(
        topic=topic,
        partitions_count=len(partitions),
        replicas_count=replicas_count,
        min_insync_replicas=number,
        is_unclean=is_unclean,
        has_elr=has_elr,
        settings_from=", ".join(sources),
        survives_for_writes=replicas_count - needed,
        survives_for_data=needed - 1,
        survives_power=needed - 1 if has_elr and not is_unclean else 0,
        under_min_isr_count=sum(
            each.leader < 0 or len(each.isr) < min(number, len(each.replicas))
            for each in partitions
        ),
        faults=tuple(
            _faults(
                replicas_count,
                number,
                is_unclean=is_unclean,
                has_elr=has_elr,
            )
        ),
    )


def _faults(replicas_count: int, insync: int, *, is_unclean: bool, has_elr: bool) -> Iterator[str]:
    if replicas_count < REPLICAS_CLAIM:
        yield counted(replicas_count, "replica")
    if insync < INSYNC_CLAIM:
        yield f"min.insync {insync}"
    elif insync > replicas_count:
        yield f"min.insync {insync} of {replicas_count}"
    if is_unclean:
        yield "unclean"
    if not has_elr:
        yield "no ELR"


# -- advice


class StartPlan(NamedTuple):
    """The running nodes, and the nodes that can be started.

    Attributes:
        unknown: given nodes that are not in the metadata.
        needed: number of `voters` to start before a controller elects leaders.
        controllers: nodes to start first that are controllers but not brokers.
        missing_votes: number of controllers that are missing even when all of these run.
    """

    running: frozenset[int]
    startable: tuple[int, ...]
    absent: tuple[int, ...]
    unknown: tuple[int, ...]
    clean: frozenset[int]
    voters: frozenset[int]
    needed: int
    controllers: tuple[int, ...]
    missing_votes: int

    @property
    def setting(self) -> Surroundings:
        """The common conditions for orders."""
        return Surroundings(
            clean=self.clean, running=self.running, voters=self.voters, needed=self.needed
        )


class Advised(NamedTuple):
    """The advice for a partition.

    Attributes:
        case: the inputs of its elections.
        before: its state in the metadata.
        at_once: brokers that lead as soon as they are started, in any order.
        perhaps: brokers that do so only if the sessions of others have ended before theirs.
        unclean: brokers that lead only by an unclean election.
        missed: brokers that would lead at once, but do not come back.
        costs: by broker that may lead in any way.
        outcome: of the recommended order.
    """

    key: TopicPartition
    case: Case
    before: PartitionImage
    at_once: tuple[int, ...]
    perhaps: tuple[int, ...]
    unclean: tuple[int, ...]
    missed: tuple[int, ...]
    costs: dict[int, LeaderCost]
    copies: dict[int, LogCopy]
    outcome: Outcome | None = None

    @property
    def hidden_offsets_count(self) -> int | None:
        """Offsets of the leader that consumers do not get before acks=all is accepted.

        The high watermark stays at the value of the leader's checkpoint while the ISR has fewer
        replicas than min.insync.replicas. None: unknown, or there is no leader.
        """
        outcome = self.outcome
        if outcome is None or not outcome.is_led:
            return None
        if outcome.write_step <= outcome.step or outcome.step == 0:
            return 0
        copy = self.copies.get(outcome.leader)
        if copy is None:
            return None
        return copy.end_offset - max(copy.high_watermark or 0, copy.start_offset)

    @property
    def terms(self) -> Terms:
        """The settings of the partition."""
        return self.case.terms

    def most_in_sync(self, plan: StartPlan) -> int:
        """Return the greatest possible size of its ISR."""
        usable = {*plan.startable, *plan.running}
        return len(usable & {*self.before.replicas})


class Advice(NamedTuple):
    """The advice for a cluster.

    Attributes:
        orders: the best order first. Empty: there is nothing to start.
        unseen: controllers that may have newer metadata.
        notes: messages about doubtful facts.
        is_short: some data could not be read.
    """

    plan: StartPlan
    partitions: list[Advised]
    orders: list[OrderSum]
    unseen: tuple[int, ...]
    notes: list[str]
    is_short: bool


def plan_of(cluster: DeadCluster, running: Collection[int], gone: Collection[int]) -> StartPlan:
    """Return the nodes that can be started, and the conditions of elections."""
    image = cluster.metadata.image
    up = {*running, *(each.node_id for each in cluster.nodes.values() if each.is_running)}
    down = {*cluster.nodes} - up - {*gone}
    startable = sorted(down & {*image.brokers})
    clean = [
        each
        for each in startable
        if cluster.nodes[each].stopped_in() == image.brokers[each].broker_epoch
    ]
    voters = {*cluster.metadata.voters}
    controllers = sorted((voters & down) - {*image.brokers})
    combined = voters & {*image.brokers}
    # A dedicated controller that is not given is not dead, so it is assumed to run.
    elsewhere = voters - {*image.brokers} - {*gone}
    majority = len(voters) // 2 + 1 if voters else 0
    needed = max(majority - len(elsewhere | (voters & up)), 0)
    return StartPlan(
        running=frozenset(up & {*image.brokers}),
        startable=tuple(startable),
        absent=tuple(sorted({*image.brokers} - {*startable} - up)),
        unknown=tuple(sorted(down - {*image.brokers} - voters)),
        clean=frozenset(clean),
        voters=frozenset(combined & {*startable}),
        needed=needed,
        controllers=tuple(controllers),
        missing_votes=max(needed - len(combined & {*startable}), 0),
    )


def advise(
    cluster: DeadCluster,
    *,
    running: Collection[int] = (),
    gone: Collection[int] = (),
    is_wanted: Callable[[str], bool] = lambda _: True,
    on_partition: Callable[[], None] = lambda: None,
) -> Advice:
    """Determine possible leaders, their costs, and the best order of starts.

    Args:
        cluster: the given nodes and metadata.
        running: brokers that run.
        gone: brokers that do not come back, although their directories were given.
        is_wanted: selects topics.
        on_partition: called after each partition.
    """
    plan = plan_of(cluster, running, gone)
    adviser = _Adviser(cluster, plan)
    partitions = []
    for key, before in _partitions(cluster.metadata.image, is_wanted):
        partitions.append(adviser.inspect(key, before))
        on_partition()
    orders = Orders((each.case for each in partitions), plan.setting)
    tried = orders.all_of(plan.startable) if plan.startable else []
    best = tried[0].order if tried else ()
    partitions = [each._replace(outcome=orders.outcome(each.case, best)) for each in partitions]
    notes = [*cluster.notes, *adviser.notes, *_note_of_others(cluster, is_wanted)]
    return Advice(
        plan=plan,
        partitions=partitions,
        orders=tried,
        unseen=cluster.metadata.unseen,
        notes=list(dict.fromkeys(notes)),
        is_short=cluster.is_short or adviser.is_short,
    )


def _partitions(
    image: ClusterImage, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for name in sorted(filter(is_wanted, image.topics)):
        for number, before in sorted(image.topics[name].partitions.items()):
            yield TopicPartition(name, number), before


def _note_of_others(cluster: DeadCluster, is_wanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield messages about nodes and directories that are missing in the metadata."""
    image = cluster.metadata.image
    for node_id in sorted({*cluster.nodes} - {*image.brokers} - {*cluster.metadata.voters}):
        yield f"node {node_id}: not in the metadata, and not counted"
    unknown = [
        each
        for each in sorted(cluster.copies)
        if is_wanted(each.topic) and image.partition(each.topic, each.partition) is None
    ]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        yield (
            f"{unknown[0]}{more}: not in the metadata: a topic that was deleted, or is newer than"
            " they are"
        )


class _Adviser:
    def __init__(self, cluster: DeadCluster, plan: StartPlan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._has_elr = bool(cluster.metadata.image.features.get(ELR_FEATURE))
        self._terms: dict[tuple[str, int], Terms] = {}
        self._states: dict[tuple[PartitionState, Terms], frozenset[PartitionState]] = {}
        self._led: dict[tuple[frozenset[PartitionState], Terms, int], tuple[bool, bool]] = {}
        self.notes: list[str] = []
        self.is_short = False

    def inspect(self, key: TopicPartition, before: PartitionImage) -> Advised:
        """Return the possible leaders of a partition, and their costs."""
        terms = self._terms_of(key, len(before.replicas))
        terms = terms._replace(emptied=self._emptied(before))
        states = self._states_of(before, terms)
        copies = self._copies(key, before)
        in_sync = ({*before.isr, *before.elr} or {*before.last_known_elr}) - terms.emptied
        is_doubtful = bool(self._cluster.metadata.unseen)
        costs = {
            each: cost_of_nothing(copies)
            if each in terms.emptied and each not in copies
            else cost_of(each, copies, in_sync, is_doubtful=is_doubtful)
            for each in before.replicas
        }
        usable = [each for each in before.replicas if each in self._plan.startable]
        at_once: list[int] = []
        perhaps: list[int] = []
        unclean: list[int] = []
        is_led = all(each.has_leader for each in states)
        for each in [] if is_led else usable:
            is_sure, is_possible = self._leads(states, terms, each)
            (at_once if is_sure else perhaps if is_possible else unclean).append(each)
        running = [each for each in before.replicas if each in self._plan.running]
        cheap = [each for each in (*usable, *running) if each in copies] or usable
        wanted = min(cheap, key=lambda each: costs[each].price, default=None)
        case = Case(
            states=states,
            terms=terms,
            prices=tuple((each, costs[each].price) for each in before.replicas),
            wanted=None if is_led else wanted,
            emptied=terms.emptied,
        )
        return Advised(
            key=key,
            case=case,
            before=before,
            at_once=tuple(at_once),
            perhaps=tuple(perhaps),
            unclean=tuple(unclean),
            missed=tuple(self._missed(before, states, terms)) if not is_led else (),
            costs=costs,
            copies=copies,
        )

    def _terms_of(self, key: TopicPartition, replicas_count: int) -> Terms:
        shared = key.topic, replicas_count
        if shared not in self._terms:
            image = self._cluster.metadata.image
            unclean = topic_setting(image, key.topic, UNCLEAN_LEADER_ELECTION).value
            self._terms[shared] = Terms(
                min_insync=min_insync_replicas(image, key.topic, key.partition),
                is_unclean=unclean.strip().lower() == "true",
                has_elr=self._has_elr,
            )
        return self._terms[shared]

    def _emptied(self, before: PartitionImage) -> frozenset[int]:
        """Return the brokers that came back without the log dir of the replica."""
        replaced = self._cluster.replaced
        if not replaced:
            return frozenset()
        places = zip(before.replicas, before.directories, strict=False)
        return frozenset(each for each, where in places if where in replaced.get(each, ()))

    def _states_of(self, before: PartitionImage, terms: Terms) -> frozenset[PartitionState]:
        state = PartitionState(
            replicas=before.replicas,
            isr=before.isr,
            leader=before.leader,
            elr=before.elr,
            last_known=before.last_known_elr,
            is_unclean=before.is_recovering,
        )
        found = self._states.get((state, terms))
        if found is None:
            running = self._plan.running
            stopped = [each for each in before.replicas if each not in running]
            found = states_after_stop(state, terms, stopped, running)
            self._states[state, terms] = found
        return found

    def _leads(
        self, states: frozenset[PartitionState], terms: Terms, broker: int
    ) -> tuple[bool, bool]:
        """Return whether a started broker certainly leads, and whether it may, by a clean election.

        The last known leader counts: it had all acknowledged records.
        """
        key = states, terms, broker
        if key not in self._led:
            calm = terms._replace(is_unclean=False)
            case = Case(states=states, terms=calm, prices=(), wanted=None)
            setting = Surroundings(clean=self._plan.clean, running=self._plan.running)
            found = [each.leader == broker for each in outcomes(case, (broker,), setting, 1)]
            self._led[key] = all(found), any(found)
        return self._led[key]

    def _missed(
        self, before: PartitionImage, states: frozenset[PartitionState], terms: Terms
    ) -> Iterator[int]:
        for each in before.replicas:
            if each not in self._plan.startable and each not in self._plan.running:
                is_sure, _ = self._leads(states, terms, each)
                if is_sure:
                    yield each

    def _copies(self, key: TopicPartition, before: PartitionImage) -> dict[int, LogCopy]:
        image = self._cluster.metadata.image
        topic_id = format_uuid(image.topics[key.topic].topic_id)
        found = {}
        given = self._cluster.copies.get(key, {})
        for broker in before.replicas:
            selected = given.get(broker)
            if selected is None:
                if broker in self._cluster.nodes:
                    self._report(f"{key}: broker {broker} has no directory of it")
                continue
            try:
                copy = read_copy(selected, broker)
            except (AccessError, RefusedError) as exc:
                self._report(str(exc))
                continue
            if copy.topic_id not in (None, topic_id):
                self._report(
                    f"{copy.partition.path}: of another topic of that name (id {copy.topic_id},"
                    f" not {topic_id}). A broker sets it aside, and it does not count"
                )
                continue
            for each in copy.notes:
                self._report(each)
            found[broker] = copy
        return found

    def _report(self, note: str) -> None:
        self.notes.append(note)
        self.is_short = True


# --- results --------------------------------------------------------------------------------------


class StartStep(NamedTuple):
    """The progress after a number of starts in the recommended order.

    Attributes:
        step: number of started brokers. 0: only brokers that run already.
        up: brokers that run now.
        asked: partitions for which the operator must request an unclean election now.
    """

    step: int
    up: tuple[int, ...]
    led_count: int
    writable_count: int
    asked: tuple[TopicPartition, ...]


def steps_of(advice: Advice) -> Iterator[StartStep]:
    """Yield numbers of led and writable partitions after each start of the recommended order."""
    order = advice.orders[0].order if advice.orders else ()
    done: list[Outcome] = [each.outcome for each in advice.partitions if each.outcome is not None]
    for number in range(len(order) + 1):
        yield StartStep(
            step=number,
            up=(*sorted(advice.plan.running), *order[:number]),
            led_count=sum(each.step <= number for each in done),
            writable_count=sum(each.write_step <= number for each in done),
            asked=tuple(
                each.key
                for each in advice.partitions
                if each.outcome is not None
                and each.outcome.is_requested
                and each.outcome.step == number
            ),
        )


def how_led(partition: Advised) -> str:
    """Return a word for the way in which the recommended order finds a leader."""
    outcome = partition.outcome
    if outcome is None or not outcome.is_led:
        return "nobody"
    if outcome.step == 0:
        return "leads"
    if outcome.is_requested:
        return "by request"
    if not outcome.is_unclean:
        return "elr" if _is_of_elr(partition, outcome.leader) else "isr"
    is_known = any(each.last_known == (outcome.leader,) for each in partition.case.states)
    return "last known" if is_known else "unclean"


def _is_of_elr(partition: Advised, leader: int) -> bool:
    return all(leader in each.elr for each in partition.case.states)
