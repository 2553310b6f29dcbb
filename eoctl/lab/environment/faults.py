"""Classes of faults, and the language of `--faults`."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Draw = Callable[[int], int]


# -- classes of faults, for which a seed draws times and targets.
#
#   `kill-one`: a broker is killed, and may be started again.
#   `kill-in-turn`: brokers are killed one after the other until one is left.
#   `kill-then-power`: followers are killed one after the other, then the leader's machine loses
#     power.
#   `stop-then-power`: followers are stopped cleanly, then the leader's machine loses power.
#   `power-all`: all machines lose power at once.
#   `partition-leader`: the leader is isolated from the other brokers, and reaches them again later.
#   `rejoin`: a follower is killed and returns, and at that moment the leader is killed.
#   `restart-all`: all brokers are killed one after the other, then all but the first are started.
#   `isr-change`: a broker is killed and returns. While the ISR changes, the leader is killed or
#     isolated.
#   `slow-one`: a broker is slow, the leader is stopped or killed, and soon after the next leader is
#     killed.
#   `slow-change`: followers are killed, a broker is slow, and a follower returns. During the long
#     ISR change, the leader is killed or isolated.
#   `first-back`: brokers are killed one after the other, then the first of them is started.
#   `longer-log`: broker 0 leads, is isolated, takes records, and is killed. When the next leader is
#     killed, broker 0 returns with the longest log.
#
# The kinds `kill`, `power`, `partition` and `stop` draw one to three faults of any target.


KINDS = ("kill", "power", "partition", "stop")
DRAWN_TARGETS = ("leader", "follower", "any", "all")
ONES = DRAWN_TARGETS[:3]
AGAIN = ("first", "last", "all")
MAX_FAULTS = 3


class Size(NamedTuple):
    """Size of the cluster that faults are drawn for."""

    nodes: int
    replication_factor: int


def drawn_faults(draw: Draw, kinds: tuple[str, ...], size: Size) -> str:
    """Draw faults as text: of one class, or of some of the kinds."""
    classes = [each for each in kinds if each in CLASSES]
    plain = tuple(each for each in kinds if each not in CLASSES)
    if classes and draw(len(kinds)) < len(classes):
        return ", ".join(CLASSES[classes[draw(len(classes))]](draw, size))
    return ", ".join(_drawn(draw, plain or KINDS[:1]))


def _drawn(draw: Draw, kinds: tuple[str, ...]) -> Iterator[str]:
    moments = sorted(5 + draw(90) for _ in range(1 + draw(MAX_FAULTS)))
    for moment in moments:
        kind = kinds[draw(len(kinds))]
        yield f"{kind} {DRAWN_TARGETS[draw(len(DRAWN_TARGETS))]} at {moment}%"
    if len(moments) > 1 and draw(2):
        yield f"start {AGAIN[draw(3)]} at {min(moments[-1] + 1 + draw(30), 100)}%"


def _moment(draw: Draw, percent: int) -> str:
    """Return a moment, in one of three draws with `ahead`, which lasts less than 1 ms."""
    return f"{percent}%" if draw(3) else f"{percent}% ahead"


def _rising(draw: Draw, count: int, *, low: int = 5, high: int = 95) -> list[int]:
    return sorted(low + draw(high - low) for _ in range(count))


def _strike(
    action: str, targets: tuple[str, ...], then: tuple[str, ...]
) -> Callable[[Draw, Size], Iterator[str]]:
    """Return a fault and perhaps its end. Without "" in `then`, the end always comes."""

    def faults(draw: Draw, size: Size) -> Iterator[str]:
        del size
        moment, later = _rising(draw, 2)
        target = targets[draw(len(targets))]
        yield f"{action} {target} at {_moment(draw, moment)}"
        ending = then[draw(len(then))]
        if ending:
            yield f"{ending} at {later}%"

    return faults


def _kill_in_turn(draw: Draw, size: Size) -> Iterator[str]:
    moments = _rising(draw, max(size.nodes, 2))
    for moment in moments[:-1]:
        yield f"kill {ONES[draw(3)]} at {_moment(draw, moment)}"
    if draw(2):
        yield f"start {AGAIN[draw(3)]} at {moments[-1]}%"


def _then_power(action: str) -> Callable[[Draw, Size], Iterator[str]]:
    def faults(draw: Draw, size: Size) -> Iterator[str]:
        moments = _rising(draw, size.replication_factor)
        for moment in moments[:-1]:
            yield f"{action} follower at {_moment(draw, moment)}"
        yield f"power leader at {_moment(draw, moments[-1])}"
        yield f"start all at {moments[-1]}%"

    return faults


def _rejoin(draw: Draw, size: Size) -> Iterator[str]:
    del size
    moment, back = _rising(draw, 2)
    yield f"kill follower at {moment}%"
    yield f"start first at {back}%"
    yield f"kill leader at {_moment(draw, back)}"


def _isr_change(draw: Draw, size: Size) -> Iterator[str]:
    del size
    moment, back = _rising(draw, 2)
    yield f"kill {ONES[draw(3)]} at {moment}%"
    yield f"start first at {back}% quiet"
    yield f"{('kill', 'partition')[draw(2)]} leader at isr-change"
    if draw(2):
        yield "start first at quiet"


def _restart_all(draw: Draw, size: Size) -> Iterator[str]:
    moments = _rising(draw, size.nodes)
    for number, moment in enumerate(moments):
        yield f"kill {'leader' if not number else 'any'} at {moment}%"
    for _ in range(size.nodes - 1):
        yield f"start last at {moments[-1]}%"


def _slow_one(draw: Draw, size: Size) -> Iterator[str]:
    moment, later = _rising(draw, 2)
    yield f"slow {draw(size.nodes)} at {moment}%"
    yield f"{('kill', 'stop')[draw(2)]} leader at {later}%"
    yield f"kill leader at {later + 1}%"


def _slow_change(draw: Draw, size: Size) -> Iterator[str]:
    moments = _rising(draw, size.replication_factor + 1)
    for moment in moments[:-2]:
        yield f"kill follower at {moment}%"
    yield f"slow {draw(size.nodes)} at {moments[-2]}%"
    yield f"start last at {moments[-1]}%"
    yield f"{('kill', 'partition')[draw(2)]} leader at isr-change"


def _first_back(draw: Draw, size: Size) -> Iterator[str]:
    moments = _rising(draw, size.nodes + 1)
    for moment in moments[:-1]:
        yield f"kill {ONES[draw(3)]} at {_moment(draw, moment)}"
    yield f"start first at {moments[-1]}%"


def _longer_log(draw: Draw, size: Size) -> Iterator[str]:
    del size
    cut_off = 5 + draw(30)
    dead = cut_off + 16 + draw(20)
    back = dead + 1 + draw(15)
    yield f"partition 0 at {cut_off}%"
    yield f"kill 0 at {dead}%"
    yield f"heal at {dead}%"
    yield f"kill leader at {back}%"
    yield f"start first at {back}%"


_STARTS = tuple(f"start {each}" for each in AGAIN)
CLASSES: dict[str, Callable[[Draw, Size], Iterator[str]]] = {
    "kill-one": _strike("kill", ONES, ("", "start first")),
    "kill-in-turn": _kill_in_turn,
    "kill-then-power": _then_power("kill"),
    "stop-then-power": _then_power("stop"),
    "power-all": _strike("power", ("all",), ("", "", "", *_STARTS)),
    "partition-leader": _strike("partition", ("leader",), ("heal",)),
    "rejoin": _rejoin,
    "restart-all": _restart_all,
    "isr-change": _isr_change,
    "slow-one": _slow_one,
    "slow-change": _slow_change,
    "first-back": _first_back,
    "longer-log": _longer_log,
}


# -- language of faults: `kill leader at 20%, partition 2 at 3s, heal at 60%`.
#
#   WHAT [WHOM] at WHEN, ... with WHAT as follows.
#   `kill`: the process ends at once, and its written data stays.
#   `power`: the machine loses power, and unsynced data may be lost in part or whole.
#   `stop`: a clean stop.
#   `start`: a start.
#   `partition`: the broker is isolated from all other brokers and the controller. Clients still
#     reach it.
#   `slow`: messages between the broker and other brokers or the controller are late by half a
#     second.
#   `heal`: no broker is isolated or slow any more.
#   `set`: KEY=VALUE: min.insync.replicas, unclean.leader.election.enable.
#   `elect`: an unclean election for partitions without a leader.
#   `ask`: no fault, but a probe that reads and writes the first partition.
#
# WHOM is a node id, `leader` (of the first partition), `follower` (in its ISR), `any` or `all`.
# Among brokers that are down, it is also `first` or `last`. `consumer` is killed, stopped or
# started, if it commits. `producer` is killed or started.
#
# WHEN is `20%` of the records, `3s` or `250ms` of the clock, or a state. In state `quiet`, nothing
# happens any more. In state `ahead`, the leader of the first partition has uncommitted records. In
# state `isr-change`, that leader waits for the answer to an ISR change. In state `handling`, the
# consumer has records that it has not handled.
#
# The scheduler looks for the last three states after every message, for at most a minute. The fault
# comes up to 1 ms later for `ahead`, and up to 3 ms later for `isr-change`, because they last less.
# If a broker is slow, an ISR change lasts up to 1.5 s, and so does that delay. For `handling`, the
# fault comes before the consumer is done. `20% ahead` waits for one, then for the other.


ACTIONS_WITH_NODE = frozenset({"kill", "power", "stop", "start", "partition", "slow"})
ACTIONS = ACTIONS_WITH_NODE | {"ask", "heal", "set", "elect"}
CONSUMER = "consumer"
PRODUCER = "producer"
# Clients, and the actions on them.
CLIENTS = {CONSUMER: frozenset({"kill", "stop", "start"}), PRODUCER: frozenset({"kill", "start"})}
_NO_CONSUMER = "there is no consumer that commits"
_CONSUMER_STEP = "--consumer-commit before, or --consumer-commit after"
TARGETS = frozenset({"leader", "follower", "any", "all", "first", "last"})
SETTINGS = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
_FAULT = re.compile(
    r"(?P<action>[a-z]+)(?: +(?P<target>[^ ]+))? +at +(?P<when>[^ ]+)(?: +(?P<state>[^ ]+))?"
)
_WHEN = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>%|s|ms|us)")
_UNIT_US = {"s": 1_000_000, "ms": 1000, "us": 1}


class WhenKind(StrEnum):
    """Condition that a fault waits for."""

    RECORDS = "records"
    TIME = "time"
    QUIET = "quiet"
    AHEAD = "ahead"
    ISR_CHANGE = "isr-change"
    HANDLING = "handling"


STATES = (WhenKind.QUIET, WhenKind.AHEAD, WhenKind.ISR_CHANGE, WhenKind.HANDLING)


class Fault(NamedTuple):
    """One fault. `when` is a ratio of the records, a time in microseconds, or 0 for a state.

    Attributes:
        state: state that the fault waits for afterwards.
    """

    action: str
    target: str
    kind: WhenKind
    when: float
    state: WhenKind | None = None

    def __str__(self) -> str:
        target = f" {self.target}" if self.target else ""
        if self.kind is WhenKind.RECORDS:
            when = f"{self.when * 100:.6g}%"
        elif self.kind is WhenKind.TIME:
            when = f"{int(self.when)}us" if self.when % 1000 else f"{int(self.when) // 1000}ms"
        else:
            when = self.kind.value
        state = f" {self.state}" if self.state is not None else ""
        return f"{self.action}{target} at {when}{state}"


def parse_faults(text: str, nodes: int, clients: Collection[str] = ()) -> list[Fault]:
    """Parse faults. `clients` are the clients that may be killed.

    Raises:
        UsageError: a fault is unclear, or its node or client does not exist.
    """
    faults = []
    for each in filter(None, map(str.strip, text.split(","))):
        fault = _parse(each, nodes)
        needs_consumer = fault.target == CONSUMER or WhenKind.HANDLING in (fault.kind, fault.state)
        if needs_consumer and CONSUMER not in clients:
            raise UsageError(f"--faults: {each!r}: {_NO_CONSUMER}", next_step=_CONSUMER_STEP)
        faults.append(fault)
    return faults


def _parse(text: str, nodes: int) -> Fault:
    match = _FAULT.fullmatch(text)
    if match is None or match["action"] not in ACTIONS:
        raise UsageError(
            f"--faults: {text!r} is no fault",
            next_step="such as 'kill leader at 20%, start all at 70%'; WHAT is one of"
            f" {', '.join(sorted(ACTIONS))}",
        )
    action, target = match["action"], match["target"] or ""
    _require_target(text, action, target, nodes)
    first, then = match["when"], match["state"]
    if first in STATES and then is None:
        return Fault(action=action, target=target, kind=WhenKind(first), when=0)
    if then is not None and then not in STATES:
        first = f"{first} {then}"
    state = WhenKind(then) if then in STATES else None
    when = _WHEN.fullmatch(first)
    if when is None:
        raise UsageError(
            f"--faults: {text!r}: {first!r} is no moment",
            next_step=f"20% of the records, 3s, 250ms, {', '.join(STATES)}, or 20% ahead",
        )
    number = float(when["number"])
    if when["unit"] == "%":
        if number > 100:
            raise UsageError(f"--faults: {text!r}: at most 100%")
        kind, moment = WhenKind.RECORDS, number / 100
    else:
        kind, moment = WhenKind.TIME, number * _UNIT_US[when["unit"]]
    return Fault(action=action, target=target, kind=kind, when=moment, state=state)


def _require_target(text: str, action: str, target: str, nodes: int) -> None:
    if action in ACTIONS_WITH_NODE:
        is_node = target.isdecimal() and target.isascii() and int(target) < nodes
        if action in CLIENTS.get(target, ()):
            return
        if target not in TARGETS and not is_node:
            raise UsageError(
                f"--faults: {text!r}: {target or 'nobody'!r} is no node",
                next_step=f"0 to {nodes - 1}, or one of {', '.join(sorted(TARGETS))}",
            )
    elif action == "set":
        key, _, value = target.partition("=")
        is_number = value.isdecimal() and value.isascii() and int(value) > 0
        is_right = is_number if key == "min.insync.replicas" else value in {"true", "false"}
        if key not in SETTINGS or not is_right:
            raise UsageError(
                f"--faults: {text!r}: {target!r} cannot be set",
                next_step="set min.insync.replicas=1, set unclean.leader.election.enable=true",
            )
    elif target:
        raise UsageError(f"--faults: {text!r}: {action} is for all of the cluster")
