"""From the options of `advise` to rows: who may lead, what orders of starting come to."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clock import resolve_now
from eoctl.progress import Progress
from recovery.cluster.clusters import Clusters
from recovery.cluster.placement import find_held_back
from recovery.elections.advice import TopicClaims, advise, claims_of, how_led, steps_of
from recovery.elections.copies import UNREAD, read_cut
from recovery.elections.nodes import find_dead_cluster
from recovery.elections.orders import NEVER
from recovery.replay.snapshots import Clock
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from recovery.elections.advice import Advice, Advised
    from recovery.elections.copies import CutContents
    from recovery.elections.orders import OrderSum

VERIFIED = (
    "verified: ends, high watermarks and leader epochs of the copies, and what a cut takes; not"
    " the batches below (eoctl replicas compare)"
)
NOT_KNOWN = (
    "a server.properties is not known: where settings_from says default, a broker may have another"
)


class OrderRow(NamedTuple):
    """An order of starting, over all partitions, at its worst."""

    order: str
    is_recommended: bool
    led_at_first_count: int
    waits_count: int
    unclean_count: int
    leaderless_count: int
    lost_acknowledged_offsets_count: int
    lost_offsets_count: int
    lost_partitions_count: int
    unknown_partitions_count: int


class StepRow(NamedTuple):
    """What is led, and accepts acks=all, after each start of the recommended order."""

    step: int
    up: tuple[int, ...]
    led_count: int
    writable_count: int
    asked_count: int


class AdvisedRow(NamedTuple):
    """A partition: before, who may lead, who does by the recommended order."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader_before: int
    at_once: tuple[int, ...]
    perhaps: tuple[int, ...]
    unclean_only: tuple[int, ...]
    leads: int | None
    how: str
    step: int | None
    writable_step: int | None
    hidden_offsets_count: int | None
    min_insync_replicas: int
    lower_to: int | None


class LeaderRow(NamedTuple):
    """What is lost when a broker leads: of the copy that loses most. None: not known."""

    topic: str
    partition: int
    broker: int
    how: str
    from_broker: int | None
    start_offset: int | None
    end_offset: int | None
    lost_acknowledged_offsets_count: int | None
    lost_offsets_count: int | None
    lost_records_count: int | None
    lost_transactions_count: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None


class AdviseRun:
    """Looks at dead brokers; rows are complete once it is made."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        topics: Sequence[str],
        metadata_dir: str | None,
        running: Sequence[int],
        gone: Sequence[int],
        now: str | None,
        expiration_ms: int | None,
    ) -> None:
        moment = resolve_now(now, paths)
        self._clock = Clock.at(moment.ms, expiration_ms)
        cluster = find_dead_cluster(paths, metadata_dir)
        image = cluster.metadata.image
        _require_known([*running, *gone], image.brokers, cluster.metadata.voters)
        is_wanted = _wanted(topics)
        if topics and not any(map(is_wanted, image.topics)):
            raise UsageError(f"no topic {', '.join(topics)} in {cluster.metadata.path}")
        given = [each for node in cluster.nodes.values() for each in node.log_dirs]
        self.held_back = [
            each for each in find_held_back(given, Clusters(given)) if is_wanted(each.key.topic)
        ]
        with Progress("reading"):
            self.advice: Advice = advise(cluster, running=running, gone=gone, is_wanted=is_wanted)
            self.notes = [f"{each.path}: {each.key}: {each.missing}" for each in self.held_back]
            self.notes += self.advice.notes
            self.partitions = [_partition_row(each, self.advice) for each in self.advice.partitions]
            self.choices = [row for each in self.advice.partitions for row in self._choices(each)]
        self.orders = [
            _order_row(each, is_recommended=not number)
            for number, each in enumerate(self.advice.orders)
        ]
        self.steps = [
            StepRow(
                step=each.step,
                up=each.up,
                led_count=each.led_count,
                writable_count=each.writable_count,
                asked_count=len(each.asked),
            )
            for each in steps_of(self.advice)
        ]
        self.notes += (
            f"metadata: {cluster.metadata.path}, up to offset {image.end_offset}",
            VERIFIED,
            moment.describe(),
        )
        self.notes = list(dict.fromkeys(self.notes))

    @property
    def status(self) -> int:
        """1: something is lost or not served, needs an unclean election, or stays as it is."""
        best = self.advice.orders[0] if self.advice.orders else None
        partitions = [each.outcome for each in self.advice.partitions if each.outcome is not None]
        is_dear = best is not None and bool(
            best.lost_acknowledged_offsets_count or best.unclean_partitions_count
        )
        if (
            is_dear
            or self.held_back
            or self.advice.plan.missing_votes
            or any(not each.is_led or each.is_asked_for for each in partitions)
            or any(each.lower_to is not None for each in self.partitions)
        ):
            return EXIT_FINDINGS
        is_unknown = any(each.price.is_unknown for each in partitions)
        return EXIT_SKIPPED if self.advice.is_short or is_unknown else EXIT_OK

    def _choices(self, each: Advised) -> Iterator[LeaderRow]:
        plan = self.advice.plan
        running = [broker for broker in each.before.replicas if broker in plan.running]
        leading = [
            broker for broker in running if any(s.leader == broker for s in each.case.states)
        ]
        kinds = (
            ("leads", sorted(leading)),
            ("at once", each.at_once),
            ("perhaps", each.perhaps),
            ("unclean", each.unclean),
        )
        for how, brokers in kinds:
            for broker in brokers:
                cost = each.costs[broker]
                contents: CutContents | None = None
                if cost.cut is not None:
                    contents = read_cut(cost.cut, self._clock)
                    self.notes += contents.notes
                yield _choice_row(each, broker, how, contents)


def _choice_row(each: Advised, broker: int, how: str, contents: CutContents | None) -> LeaderRow:
    cost = each.costs[broker]
    cut, is_unknown = cost.cut, cost.price.is_unknown
    none = None if is_unknown else 0
    found = contents or UNREAD
    return LeaderRow(
        topic=each.key.topic,
        partition=each.key.partition,
        broker=broker,
        how=how,
        from_broker=None if cut is None else cut.copy.broker,
        start_offset=None if cut is None else cut.start_offset,
        end_offset=None if cut is None else cut.copy.end_offset,
        lost_acknowledged_offsets_count=cost.price.acknowledged_count or none,
        lost_offsets_count=cost.price.offsets_count or none,
        lost_records_count=none if cut is None else found.records_count,
        lost_transactions_count=none if cut is None else found.transactions_count,
        first_timestamp_ms=found.first_timestamp_ms,
        last_timestamp_ms=found.last_timestamp_ms,
    )


def _partition_row(each: Advised, advice: Advice) -> AdvisedRow:
    outcome, before = each.outcome, each.before
    is_led = outcome is not None and outcome.is_led
    most = each.most_in_sync(advice.plan)
    return AdvisedRow(
        topic=each.key.topic,
        partition=each.key.partition,
        replicas=before.replicas,
        isr=before.isr,
        elr=before.elr,
        last_known_elr=before.last_known_elr,
        leader_before=before.leader,
        at_once=each.at_once,
        perhaps=each.perhaps,
        unclean_only=each.unclean,
        leads=outcome.leader if outcome is not None and is_led else None,
        how=how_led(each),
        step=outcome.step if outcome is not None and is_led else None,
        writable_step=None
        if outcome is None or outcome.write_step == NEVER
        else outcome.write_step,
        hidden_offsets_count=each.hidden_offsets_count,
        min_insync_replicas=each.terms.min_insync,
        lower_to=most if 0 < most < each.terms.min_insync else None,
    )


def _order_row(each: OrderSum, *, is_recommended: bool) -> OrderRow:
    return OrderRow(
        order=",".join(map(str, each.order)),
        is_recommended=is_recommended,
        led_at_first_count=each.first_partitions_count,
        waits_count=each.waits_count,
        unclean_count=each.unclean_partitions_count,
        leaderless_count=each.leaderless_partitions_count,
        lost_acknowledged_offsets_count=each.lost_acknowledged_offsets_count,
        lost_offsets_count=each.lost_offsets_count,
        lost_partitions_count=each.lost_partitions_count,
        unknown_partitions_count=each.unknown_partitions_count,
    )


class SettingsRun:
    """Looks at what the topics claim to survive."""

    def __init__(
        self, paths: Sequence[str], *, topics: Sequence[str], metadata_dir: str | None
    ) -> None:
        cluster = find_dead_cluster(paths, metadata_dir, takes_beginning=True)
        image, is_wanted = cluster.metadata.image, _wanted(topics)
        self.rows: list[TopicClaims] = list(claims_of(image, is_wanted))
        if topics and not self.rows:
            raise UsageError(f"no topic {', '.join(topics)} in {cluster.metadata.path}")
        self._is_short = not image.is_complete
        self.notes = [
            *(each for each in cluster.notes if cluster.metadata.path in each),
            f"metadata: {cluster.metadata.path}, up to offset {image.end_offset}",
            NOT_KNOWN,
        ]

    @property
    def status(self) -> int:
        """1: a topic does not survive what it should."""
        if any(each.faults for each in self.rows):
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self._is_short else EXIT_OK


def _require_known(ids: Sequence[int], brokers: Collection[int], voters: Sequence[int]) -> None:
    for each in ids:
        if each not in brokers and each not in voters:
            told = ", ".join(map(str, sorted({*brokers, *voters})))
            raise UsageError(f"{each}: no node of that id; the metadata know {told}")


def _wanted(topics: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic was asked for: by its name, or by a pattern."""
    return lambda name: not topics or any(fnmatchcase(name, each) for each in topics)
