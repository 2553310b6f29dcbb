"""What `advise` says first: which broker, why, what is lost, what is typed next."""

from __future__ import annotations

from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING

from eoctl.face.style import screen_size
from eoctl.runs.told import LABEL_WIDTH, MAX_NAMES, Said, counted, listing, span
from recovery.elections.advice import how_led
from storage.errors import pasted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.runs.reports.advise import AdviseRun, LeaderRow, SettingsRun
    from recovery.elections.advice import Advice, Advised
    from recovery.elections.orders import OrderSum

GRAVE, BAD = 1, 2
MIN_ROOM = 40  # columns, however narrow a terminal is
TOLD_REQUESTS = 2  # partitions whose unclean election is spelled out


def answer(run: AdviseRun) -> Iterator[Said]:
    """Say which broker to start first, and what comes of it."""
    advice = run.advice
    yield from _wrapped(_held_back(run), _start(advice), _why(advice), _lost(run), _doubt(advice))
    yield from _wrapped(_disks(advice))
    yield from _wrapped(_writes(run), _reads(run))
    yield from _requests(advice)
    if run.held_back:
        text = "rename as First says, before you start another broker; then run this again"
        yield from _wrapped([Said("Next", text)])
    else:
        yield from _wrapped(_next(advice))


def _wrapped(*parts: Iterable[Said]) -> Iterator[Said]:
    """Break lines between words where the terminal has no room."""
    room = screen_size()[0] - LABEL_WIDTH
    for said in chain(*parts):
        lines = wrap(said.text, max(room, MIN_ROOM), break_long_words=False) or [""]
        yield said._replace(text=lines[0])
        for each in lines[1:]:
            yield Said("", each)


def _held_back(run: AdviseRun) -> Iterator[Said]:
    """Name the records that only a directory with a suffix has: they come back before a start."""
    for each in run.held_back[:MAX_NAMES]:
        what = f"It alone has {each.missing.offsets} of {each.key}"
        yield Said("First", f"{each.way_back} {what}", BAD)
    if (more := len(run.held_back) - MAX_NAMES) > 0:
        yield Said("", f"{more:,} more of these: see the notes", BAD)


def _doubt(advice: Advice) -> Iterator[Said]:
    if advice.unseen:
        nodes = _ids(advice.unseen)
        text = f"controller {nodes} was not given, and may know of later elections: who leads may"
        yield Said("Doubt", f"{text} be another one. Give its log dir, or --metadata-dir", GRAVE)


def _disks(advice: Advice) -> Iterator[Said]:
    if emptied := sorted({broker for each in advice.partitions for broker in each.case.emptied}):
        have = "has a new disk" if len(emptied) == 1 else "have new disks"
        text = f"broker {_ids(emptied)} {have}: start it once another one leads, or all is lost"
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
            why = f"the metadata know no broker {_ids(plan.unknown)}: they are damaged or older"
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
    """Whether all orders that were tried are as good as the best one."""
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
    yield Said("Why", f"{_told_of_first(best, count)}{_told_of_others(advice, count)}")
    if known := _known_leader(advice):
        yield Said("", known)


def _told_of_first(best: OrderSum, count: int) -> str:
    what = counted(count, "partition")
    if best.first_partitions_count < count:
        led = best.first_partitions_count
        return f"with {best.order[0]} up, {led:,} of {what} {'is' if led == 1 else 'are'} led"
    all_are = f"all {what} are" if count > 1 else "the partition is"
    asked = best.asked_partitions_count
    request = ", once you ask for it" if asked == count else f", {asked:,} on request" * bool(asked)
    return f"with {best.order[0]} up, {all_are} led{request}"


def _told_of_others(advice: Advice, count: int) -> str:
    """What another broker first would come to: the worst of them."""
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
    return f"; {worst.order[0]} first: {waiting:,} wait" + ("s" if waiting == 1 else "")


def _known_leader(advice: Advice) -> str:
    """Why the first one may lead: of the partition that is led at once, if there is one."""
    first = advice.orders[0].order[0]
    for each in advice.partitions:
        if first in each.at_once and each.outcome is not None and each.outcome.leader == first:
            how = {
                "elr": "in the ELR, and stopped cleanly",
                "last known": "the last leader, with ISR and ELR empty",
            }.get(how_led(each), "the last one in the ISR")
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
        yield Said("Lost", "nothing: no copy that was given has what its leader has not")
    worst = max(_chosen(run), key=lambda each: each.lost_offsets_count or 0, default=None)
    if worst is not None and worst.lost_offsets_count:
        yield Said("", _told_of_cut(worst))


def _chosen(run: AdviseRun) -> list[LeaderRow]:
    """What is lost by the leaders of the best order."""
    leaders = {(each.topic, each.partition): each.leads for each in run.partitions}
    return [each for each in run.choices if leaders[each.topic, each.partition] == each.broker]


def _told_of_cut(row: LeaderRow) -> str:
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
        text = "acks=all now" if not last else _told_of_step(run, last)
        yield Said("Writes", f"{text}; min.insync.replicas may stay")


def _reads(run: AdviseRun) -> Iterator[Said]:
    """Say what a leader does not show until there are enough in the ISR."""
    hidden = [each for each in run.partitions if each.hidden_offsets_count]
    count = sum(each.hidden_offsets_count or 0 for each in hidden)
    if not count:
        return
    what = f"{counted(count, 'offset')} of {counted(len(hidden), 'partition')}"
    below = "below the high watermark on its disk until acks=all is accepted"
    yield Said("Reads", f"a leader shows what is {below}: {what} later")


def _told_of_step(run: AdviseRun, step: int) -> str:
    order = run.advice.orders[0].order[:step]
    if step == 1:
        return f"acks=all with broker {order[0]} up"
    return f"acks=all once {_ids(order)} are up and in sync"


def _requests(advice: Advice) -> Iterator[Said]:
    asked = [
        each for each in advice.partitions if each.outcome is not None and each.outcome.is_asked_for
    ]
    if not asked:
        return
    names = listing([str(each.key) for each in asked], "partitions")
    missed = sorted({broker for each in asked for broker in each.missed})
    better = f": bring back broker {_ids(missed)}, if you can" if missed else ""
    yield from _wrapped([Said("Unclean", f"none of these may lead {names}{better}", BAD)])
    for each in asked[:TOLD_REQUESTS]:
        assert each.outcome is not None
        up = advice.orders[0].order[: each.outcome.step]
        when = f"with {_ids(up)} up, and no other" if up else "now"
        yield Said("", f"{when}, broker {each.outcome.leader} leads once you ask for it:")
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
            yield Said("Next", f"eoctl advise LOG-DIR...   {others}")
            return
    if best is None:
        return
    first = [each.outcome for each in advice.partitions if each.outcome is not None]
    by_first = sum(each.step == 1 for each in first)
    waiting = [each.step for each in first if 1 < each.step <= len(best.order)]
    if not waiting:
        text = f"start {_controllers_first(advice)}broker {best.order[0]}"
        if any(each.is_asked_for and each.step == 1 for each in first):
            text += ", ask for it"
        if by_first:
            text += ", and see that it leads before the next one"
        yield Said("Next", text)
        return
    together = _ids(best.order[: max(waiting)])
    text = f"start {_controllers_first(advice)}brokers {together} one after the other"
    text += ": only with all of them up"
    are = "is" if len(waiting) == 1 else "are"
    yield Said("Next", f"{text} {are} {counted(len(waiting), 'more partition')} led")


def _controllers_first(advice: Advice) -> str:
    """Name what must run before anybody is elected."""
    plan = advice.plan
    parts = [f"controller {_ids(plan.controllers)}"] if plan.controllers else []
    if plan.missing_votes:
        parts.append(counted(plan.missing_votes, "more controller"))
    return f"{' and '.join(parts)}, then " if parts else ""


def settings_answer(run: SettingsRun) -> Iterator[Said]:
    """Say how many topics do not survive what they should."""
    return _wrapped(_settings_lines(run))


def _settings_lines(run: SettingsRun) -> Iterator[Said]:
    bad = [each for each in run.rows if each.faults]
    count = counted(len(run.rows), "topic")
    if not bad:
        yield Said("Topics", f"{count}, and each survives that any one broker is lost")
        return
    yield Said("Topics", f"{len(bad):,} of {count} do not claim to survive any one failure", BAD)
    lossy = [each.topic for each in bad if not each.survives_for_data]
    if lossy:
        yield Said(
            "Data", f"one lost disk may lose what was acknowledged: {listing(lossy, 'topics')}"
        )
    stopped = [each.topic for each in bad if not each.survives_for_writes]
    if stopped:
        yield Said("Writes", f"stop when one broker is away: {listing(stopped, 'topics')}")
    if any(not each.has_elr for each in bad):
        yield Said(
            "Power", "kafka-features.sh upgrade --feature eligible.leader.replicas.version=1"
        )
