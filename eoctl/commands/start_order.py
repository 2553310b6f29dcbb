"""`eoctl start-order`: which of several dead brokers to start first."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl.clock import resolve_now
from eoctl.console.style import screen_size
from eoctl.messages import LABEL_WIDTH, MAX_NAMES, Said, listing, span
from eoctl.options import (
    TERMINAL_ROWS,
    Limit,
    MetadataDir,
    Now,
    Output,
    ProducerExpiryMs,
    TopicPatterns,
)
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import argument, option
from eoctl.progress import Progress
from recovery.cluster.clusters import Clusters
from recovery.cluster.placement import find_blocked
from recovery.elections.advice import advise, how_led, steps_of
from recovery.elections.nodes import find_dead_cluster
from recovery.elections.orders import NEVER
from recovery.elections.replica_logs import UNREAD, read_cut
from recovery.replay.snapshots import Clock
from storage.counts import agreeing, counted
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError, pasted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from eoctl.output import Report
    from recovery.elections.advice import Advice, Advised
    from recovery.elections.orders import OrderSum
    from recovery.elections.replica_logs import CutContents


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="LOG-DIR...", help="Log dirs of the brokers, controllers included."),
    ] = None,
    topic: TopicPatterns = None,
    running: Annotated[
        list[int] | None,
        option(min=0, metavar="ID", help="A broker that runs. Repeatable."),
    ] = None,
    gone: Annotated[
        list[int] | None,
        option(min=0, metavar="ID", help="A broker that does not return. Repeatable."),
    ] = None,
    metadata_dir: MetadataDir = None,
    limit: Limit = None,
    now: Now = None,
    producer_expiry_ms: ProducerExpiryMs = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Say which dead broker to start first: which may lead, and what each order loses.

    The newest metadata among the log dirs say who was in the ISR, and the replicas say what would
    be lost. A broker that is not given, and does not run, counts as lost.
    """
    if not paths:
        raise UsageError("no LOG-DIR given", next_step="eoctl start-order LOG-DIR...")
    if both := set(running or ()) & set(gone or ()):
        raise UsageError(f"{min(both)}: it runs, or does not come back: not both")

    run = AdviseRun(
        paths,
        topics=topic or (),
        metadata_dir=metadata_dir,
        running=running or (),
        gone=gone or (),
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    from eoctl.messages import is_for_people, report_answer

    report_answer(answer(run), output)
    if is_for_people(output):
        limit = TERMINAL_ROWS if limit is None else limit
    _print(_reports(run, limit), output)
    _report(run)
    return run.status


def _reports(run: AdviseRun, limit: int | None) -> list[Report]:
    from eoctl.output import Report

    partitions = sorted(run.partitions, key=_gravity) if limit is not None else run.partitions
    shown = {(each.topic, each.partition) for each in partitions[:limit]}
    choices = [each for each in run.choices if (each.topic, each.partition) in shown]
    if limit is not None:
        choices = [each for each in choices if each.lost_offsets_count != 0]
    found = [
        Report("order", ORDER_COLUMNS, run.orders[:limit]),
        Report("step", StepRow._fields, run.steps),
        Report(
            "partition",
            PARTITION_COLUMNS,
            partitions[:limit],
            notes=_left(len(partitions) - len(shown), "partition"),
        ),
        Report("choice", CHOICE_COLUMNS, choices),
    ]
    return [each for each in found if each.rows]


def _gravity(row: AdvisedRow) -> tuple[bool, bool, bool, bool, str, int]:
    """Return a sort key that puts rows with most problems first."""
    return (
        row.leads is not None,
        row.how not in ("by request", "unclean"),
        row.lower_to is None,
        bool(row.at_once),
        row.topic,
        row.partition,
    )


def _left(count: int, what: str) -> list[str]:
    from storage.counts import counted

    return [f"{counted(count, f'more {what}')} not printed (--limit)"] if count else []


def _print(reports: list[Report], output: OutputFormat) -> None:
    from eoctl.messages import is_for_people
    from eoctl.output import emit, line

    begun = is_for_people(output)
    for number, each in enumerate(reports):
        if output is OutputFormat.TEXT and (number or begun):
            line("")
        emit(each, output)


def _report(run: AdviseRun) -> None:
    from eoctl.output import message

    for note in run.notes:
        message(note)


# -- from the options of `start-order` to rows: possible leaders, and the result of each order


VERIFIED = (
    "verified: ends, high watermarks and leader epochs of the copies, and the records that a "
    "truncation removes; not the batches below (eoctl replicas compare)"
)


class OrderRow(NamedTuple):
    """An order of starting, with its worst result over all partitions."""

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
    """The partitions with a leader, and with acks=all, after a start of the recommended order."""

    step: int
    up: tuple[int, ...]
    led_count: int
    writable_count: int
    asked_count: int


class AdvisedRow(NamedTuple):
    """A partition: its earlier state, possible leaders, and leader by the recommended order."""

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
    """The loss if a broker leads, from the replica that loses most. None: unknown."""

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


ORDER_COLUMNS = Columns(OrderRow._fields, answers=(
    "order", "is_recommended", "led_at_first_count", "waits_count", "unclean_count",
    "lost_acknowledged_offsets_count", "lost_offsets_count",
))  # fmt: skip
PARTITION_COLUMNS = Columns(AdvisedRow._fields, answers=(
    *PLACE, "isr", "at_once", "unclean_only", "leads", "how", "writable_step",
))  # fmt: skip
CHOICE_COLUMNS = Columns(LeaderRow._fields, answers=(
    *PLACE, "broker", "how", "lost_acknowledged_offsets_count", "lost_offsets_count",
    "lost_transactions_count", "from_broker",
))  # fmt: skip


class AdviseRun:
    """A read of dead brokers, whose rows are complete after construction."""

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
        self.blocked = [
            each for each in find_blocked(given, Clusters(given)) if is_wanted(each.key.topic)
        ]
        with Progress("reading"):
            self.advice: Advice = advise(cluster, running=running, gone=gone, is_wanted=is_wanted)
            self.notes = [f"{each.path}: {each.key}: {each.missing}" for each in self.blocked]
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
        """The exit status.

        It is 1 if acknowledged records are lost or only in a directory with a suffix, or if
        controllers are missing. It is also 1 if a partition has no leader, needs an unclean
        election or a request, or needs a lower min.insync.replicas.
        """
        best = self.advice.orders[0] if self.advice.orders else None
        partitions = [each.outcome for each in self.advice.partitions if each.outcome is not None]
        is_dear = best is not None and bool(
            best.lost_acknowledged_offsets_count or best.unclean_partitions_count
        )
        if (
            is_dear
            or self.blocked
            or self.advice.plan.missing_votes
            or any(not each.is_led or each.is_requested for each in partitions)
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


def _require_known(ids: Sequence[int], brokers: Collection[int], voters: Sequence[int]) -> None:
    for each in ids:
        if each not in brokers and each not in voters:
            reported = ", ".join(map(str, sorted({*brokers, *voters})))
            raise UsageError(f"{each}: no node of that id; the metadata know {reported}")


def _wanted(topics: Sequence[str]) -> Callable[[str], bool]:
    """Return a filter for topics by name or pattern."""
    return lambda name: not topics or any(fnmatchcase(name, each) for each in topics)


# -- the answer of `start-order`: the first broker, the reason, the losses, the next command


GRAVE, BAD = 1, 2
MIN_ROOM = 40  # columns, even on a narrower terminal
REPORTED_REQUESTS = 2  # partitions whose unclean election is written out


def answer(run: AdviseRun) -> Iterator[Said]:
    """Yield which broker to start first, and the result."""
    advice = run.advice
    yield from _wrapped(_blocked(run), _start(advice), _why(advice), _lost(run), _doubt(advice))
    yield from _wrapped(_disks(advice))
    yield from _wrapped(_writes(run), _reads(run))
    yield from _requests(advice)
    if run.blocked:
        text = "rename as First says, before you start another broker; then run this again"
        yield from _wrapped([Said("Next", text)])
    else:
        yield from _wrapped(_next(advice))


def _wrapped(*parts: Iterable[Said]) -> Iterator[Said]:
    """Break lines between words at the terminal's width."""
    room = screen_size()[0] - LABEL_WIDTH
    for said in chain(*parts):
        lines = wrap(said.text, max(room, MIN_ROOM), break_long_words=False) or [""]
        yield said._replace(text=lines[0])
        for each in lines[1:]:
            yield Said("", each)


def _blocked(run: AdviseRun) -> Iterator[Said]:
    """Yield the records that only a directory with a suffix has, to restore before a start."""
    for each in run.blocked[:MAX_NAMES]:
        what = f"It alone has {each.missing.offsets} of {each.key}"
        yield Said("First", f"{each.undo_steps} {what}", BAD)
    if (more := len(run.blocked) - MAX_NAMES) > 0:
        yield Said("", f"{more:,} more of these. See the notes", BAD)


def _doubt(advice: Advice) -> Iterator[Said]:
    if advice.unseen:
        nodes = _ids(advice.unseen)
        text = f"controller {nodes} was not given, and may know of later elections. The leader may"
        yield Said("Doubt", f"{text} be another broker. Give its log dir, or --metadata-dir", GRAVE)


def _disks(advice: Advice) -> Iterator[Said]:
    if emptied := sorted({broker for each in advice.partitions for broker in each.case.emptied}):
        have = "has a new disk" if len(emptied) == 1 else "have new disks"
        text = (
            f"broker {_ids(emptied)} {have}: start it once another broker leads, or everything is "
            "lost"
        )
        yield Said("Disk", text, BAD)


def _start(advice: Advice) -> Iterator[Said]:
    plan = advice.plan
    if plan.missing_votes:
        more = counted(plan.missing_votes, "more controller")
        yield Said("Quorum", f"NO: {more} must run before anybody is elected", BAD)
    elif plan.controllers:
        nodes = ", ".join(map(str, plan.controllers))
        yield Said("Quorum", f"controller {nodes} first: without a majority nobody is elected")
    if not advice.orders:
        why = "none of these brokers is stopped and can come back"
        if plan.unknown:
            why = f"the metadata know no broker {_ids(plan.unknown)}. They are damaged or older"
        yield Said("Start", f"nothing: {why}", GRAVE)
        return
    best = advice.orders[0].order
    first, *rest = best
    if len(best) == 1:
        text = f"broker {first}"
    elif _is_any(advice):
        text = f"brokers {_ids(best)}, in any order"
    elif plan.needed > 1:
        together = plan.setting.together(best)
        text = f"brokers {_ids(best[:together])} together, as they are the controllers"
        text += f", then {_ids(best[together:])}" if best[together:] else ""
    else:
        text = f"broker {first} first, then {_ids(rest)}"
    yield Said("Start", text)


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _is_any(advice: Advice) -> bool:
    """Return whether all orders that were tried are as good as the best order."""
    first = advice.orders[0]
    return all(each.weight[:-1] == first.weight[:-1] for each in advice.orders)


def _why(advice: Advice) -> Iterator[Said]:
    if not advice.orders:
        return
    best, count = advice.orders[0], len(advice.partitions)
    if not count:
        yield Said("Why", "there is no topic")
        return
    if all(map(_leads_now, advice.partitions)):
        yield Said("Why", f"{counted(count, 'partition')}, all led already by brokers that run")
        return
    yield Said("Why", f"{_note_of_first(best, count)}{_note_of_others(advice, count)}")
    if known := _known_leader(advice):
        yield Said("", known)


def _note_of_first(best: OrderSum, count: int) -> str:
    what = counted(count, "partition")
    if best.first_partitions_count < count:
        led = best.first_partitions_count
        return f"with {best.order[0]} up, {led:,} of {what} {agreeing(led, 'is', 'are')} led"
    all_are = f"all {what} are" if count > 1 else "the partition is"
    asked = best.asked_partitions_count
    request = ", once you request it" if asked == count else f", {asked:,} on request" * bool(asked)
    return f"with {best.order[0]} up, {all_are} led{request}"


def _note_of_others(advice: Advice, count: int) -> str:
    """Return the worst result of starting another broker first."""
    best = advice.orders[0]
    others = [each for each in advice.orders if each.order[0] != best.order[0]]
    if not others or _is_any(advice):
        return ""
    worst = max(others, key=lambda each: each.weight)
    lost = worst.lost_acknowledged_offsets_count - best.lost_acknowledged_offsets_count
    if lost > 0:
        return f"; {worst.order[0]} first loses {counted(lost, 'acknowledged offset')} more"
    if worst.unclean_partitions_count > best.unclean_partitions_count:
        more = counted(worst.unclean_partitions_count, "partition")
        return f"; {worst.order[0]} first leads {more} uncleanly"
    waiting = count - worst.first_partitions_count
    return f"; {worst.order[0]} first: {waiting:,} {agreeing(waiting, 'waits', 'wait')}"


def _known_leader(advice: Advice) -> str:
    """Return why the first broker may lead, for a partition that has it as leader immediately."""
    first = advice.orders[0].order[0]
    for each in advice.partitions:
        if first in each.at_once and each.outcome is not None and each.outcome.leader == first:
            how = {
                "elr": "in the ELR, and stopped cleanly",
                "last known": "the last leader, with ISR and ELR empty",
            }.get(how_led(each), "the last member of the ISR")
            return f"{each.key}: broker {first} is {how}"
    return ""


def _leads_now(each: Advised) -> bool:
    return all(state.has_leader for state in each.case.states)


def _lost(run: AdviseRun) -> Iterator[Said]:
    best = run.advice.orders[0] if run.advice.orders else None
    if best is None:
        return
    if best.lost_acknowledged_offsets_count:
        text = counted(best.lost_acknowledged_offsets_count, "acknowledged offset")
        text += f" at least, {best.lost_offsets_count:,} at most"
        text += f", in {counted(best.lost_partitions_count, 'partition')}"
        yield Said("Lost", text, BAD)
    elif best.lost_offsets_count:
        text = counted(best.lost_offsets_count, "offset")
        text += f" in {counted(best.lost_partitions_count, 'partition')}"
        yield Said("Lost", f"{text}, none known to be acknowledged", GRAVE)
    elif best.unknown_partitions_count:
        what = counted(best.unknown_partitions_count, "partition")
        yield Said(
            "Lost", f"not known of {what}: not every live copy is in the given log dirs", GRAVE
        )
    else:
        yield Said("Lost", "nothing: no given copy has records that its leader lacks")
    worst = max(_chosen(run), key=lambda each: each.lost_offsets_count or 0, default=None)
    if worst is not None and worst.lost_offsets_count:
        yield Said("", _note_of_cut(worst))


def _chosen(run: AdviseRun) -> list[LeaderRow]:
    """Return the losses by the leaders of the best order."""
    leaders = {(each.topic, each.partition): each.leads for each in run.partitions}
    return [each for each in run.choices if leaders[each.topic, each.partition] == each.broker]


def _note_of_cut(row: LeaderRow) -> str:
    text = f"{row.topic}-{row.partition}: {row.start_offset}..{(row.end_offset or 0) - 1}"
    text += f" of broker {row.from_broker}"
    if row.lost_transactions_count:
        text += f", {counted(row.lost_transactions_count, 'transaction')}"
    if row.first_timestamp_ms is not None and row.last_timestamp_ms is not None:
        text += f", {span(row.first_timestamp_ms, row.last_timestamp_ms)}"
    return text


def _writes(run: AdviseRun) -> Iterator[Said]:
    count = len(run.partitions)
    if not count or not run.advice.orders:
        return
    short = [each for each in run.partitions if each.lower_to is not None]
    if short:
        names = listing([f"{each.topic}-{each.partition}" for each in short], "partitions")
        yield Said("Writes", f"acks=all refused by {names}: too few replicas come back", BAD)
        first = short[0]
        yield Said(
            "", f"lower min.insync.replicas of {first.topic} to {first.lower_to}, or add replicas"
        )
        return
    steps = [each.writable_step for each in run.partitions]
    last = max((each for each in steps if each is not None), default=0)
    if None not in steps:
        text = "acks=all now" if not last else _note_of_step(run, last)
        yield Said("Writes", f"{text}; min.insync.replicas may stay")


def _reads(run: AdviseRun) -> Iterator[Said]:
    """Yield the records that a leader does not serve until the ISR is large enough."""
    hidden = [each for each in run.partitions if each.hidden_offsets_count]
    count = sum(each.hidden_offsets_count or 0 for each in hidden)
    if not count:
        return
    what = f"{counted(count, 'offset')} of {counted(len(hidden), 'partition')}"
    yield Said("Reads", f"consumers get {what} only once acks=all is accepted")


def _note_of_step(run: AdviseRun, step: int) -> str:
    order = run.advice.orders[0].order[:step]
    if step == 1:
        return f"acks=all with broker {order[0]} up"
    return f"acks=all once {_ids(order)} are up and in sync"


def _requests(advice: Advice) -> Iterator[Said]:
    asked = [
        each for each in advice.partitions if each.outcome is not None and each.outcome.is_requested
    ]
    if not asked:
        return
    names = listing([str(each.key) for each in asked], "partitions")
    missed = sorted({broker for each in asked for broker in each.missed})
    better = f": bring back broker {_ids(missed)}, if you can" if missed else ""
    yield from _wrapped([Said("Unclean", f"none of these may lead {names}{better}", BAD)])
    for each in asked[:REPORTED_REQUESTS]:
        assert each.outcome is not None
        up = advice.orders[0].order[: each.outcome.step]
        when = f"with {_ids(up)} up, and no other" if up else "now"
        yield Said("", f"{when}, broker {each.outcome.leader} leads once you request it:")
        yield Said("", "kafka-leader-election.sh --bootstrap-server HOST:PORT \\")
        topic = pasted(each.key.topic)
        yield Said(
            "", f"  --election-type UNCLEAN --topic {topic} --partition {each.key.partition}"
        )


def _next(advice: Advice) -> Iterator[Said]:
    best = advice.orders[0] if advice.orders else None
    if best is None or best.unknown_partitions_count:
        absent = [*advice.plan.absent][:MAX_NAMES]
        if absent:
            others = f"# with the log dirs of broker {_ids(absent)}, too"
            yield Said("Next", f"eoctl start-order LOG-DIR...   {others}")
            return
    if best is None:
        return
    first = [each.outcome for each in advice.partitions if each.outcome is not None]
    by_first = sum(each.step == 1 for each in first)
    waiting = [each.step for each in first if 1 < each.step <= len(best.order)]
    if not waiting:
        text = f"start {_controllers_first(advice)}broker {best.order[0]}"
        if any(each.is_requested and each.step == 1 for each in first):
            text += ", request its election"
        if by_first:
            text += ", and see that it leads before the next broker"
        yield Said("Next", text)
        return
    together = _ids(best.order[: max(waiting)])
    text = f"start {_controllers_first(advice)}brokers {together} one after the other"
    text += ": only with all of them up"
    are = agreeing(len(waiting), "is", "are")
    yield Said("Next", f"{text} {are} {counted(len(waiting), 'more partition')} led")


def _controllers_first(advice: Advice) -> str:
    """Return what must run before any election."""
    plan = advice.plan
    parts = [f"controller {_ids(plan.controllers)}"] if plan.controllers else []
    if plan.missing_votes:
        parts.append(counted(plan.missing_votes, "more controller"))
    return f"{' and '.join(parts)}, then " if parts else ""
