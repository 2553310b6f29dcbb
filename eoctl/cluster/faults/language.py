"""Faults as they are written: `kill leader at 20%, partition 2 at 3s, heal at 60%`.

    WHAT [WHOM] at WHEN, ...

  kill       the process ends at once; what it wrote stays
  power      the machine ends: what was not synced may be lost, in part or whole
  stop       a clean stop
  start      it is started
  partition  it is cut off from all other brokers and the controller; clients still reach it
  slow       what it and other brokers or the controller send each other is late by half a second
  heal       nothing is cut off or slow any more
  set        KEY=VALUE: min.insync.replicas, unclean.leader.election.enable
  elect      leaders where there are none, in an unclean election
  ask        no fault: is the first partition read, and is it written?

WHOM: a node id, `leader` (of the first partition), `follower` (one in its ISR), `any`, `all`, and
of those that are down `first` and `last`; or `consumer`, where it commits, which is killed, stopped
or started; or `producer`, which is killed or started. WHEN: `20%` of the
records, `3s` or `250ms` of the clock, or a state: `quiet`, nothing happens any more; `ahead`, the
leader of the first partition has what is not committed yet; `isr-change`, it has asked for another
ISR and has no answer yet; `handling`, the consumer has been given records and has not done with
them. For the last three it is looked after every message, and not longer than a minute; the fault
comes up to 1 or 3 ms later, as `ahead` and `isr-change` go on for less; a change of the ISR, where
a broker is slow, for up to 1.5 s; and before the consumer has done. `20% ahead`: one, then the
other.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

ACTIONS_WITH_NODE = frozenset({"kill", "power", "stop", "start", "partition", "slow"})
ACTIONS = ACTIONS_WITH_NODE | {"ask", "heal", "set", "elect"}
CONSUMER = "consumer"
PRODUCER = "producer"
# Clients, and what befalls them.
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
    """What a fault waits for."""

    RECORDS = "records"
    TIME = "time"
    QUIET = "quiet"
    AHEAD = "ahead"
    ISR_CHANGE = "isr-change"
    HANDLING = "handling"


STATES = (WhenKind.QUIET, WhenKind.AHEAD, WhenKind.ISR_CHANGE, WhenKind.HANDLING)


class Fault(NamedTuple):
    """One fault; `when` is a ratio of the records, microseconds, or nothing.

    Attributes:
        state: that is waited for then.
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
    """Read faults; `clients`: those that may be killed.

    Raises:
        UsageError: what they are is not clear, or there is no such node, or no such client.
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
