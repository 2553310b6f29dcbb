"""Classes of faults: what may befall a cluster, of which a seed draws when and whom.

  kill-one         a broker is killed, and may be started again
  kill-in-turn     brokers are killed one after the other until one is left
  kill-then-power  followers are killed one after the other, then the leader's machine loses power
  stop-then-power  followers are stopped cleanly, then the leader's machine loses power
  power-all        all machines lose power at once
  partition-leader the leader is cut off from the others, and reaches them again later
  rejoin           a follower is killed and comes back; right then the leader is killed
  restart-all      one after the other is killed; then all that fell last are started
  isr-change       a follower is killed and comes back; while the ISR changes, the leader is killed
  slow-one         a broker is slow; the leader is stopped or killed, and soon after the next one
  slow-change      followers are killed, a broker is slow, and one comes back; while the ISR
                   changes, which takes long now, the leader is killed or cut off
  first-back       one after the other is killed; then the one that fell first is started
  longer-log       broker 0, who leads, is cut off and takes records, and dies; when the next leader
                   does, too, it comes back, and its log is the longest

The kinds `kill`, `power`, `partition` and `stop` draw one to three faults of any target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Draw = Callable[[int], int]

KINDS = ("kill", "power", "partition", "stop")
TARGETS = ("leader", "follower", "any", "all")
ONES = TARGETS[:3]
AGAIN = ("first", "last", "all")
MAX_FAULTS = 3


class Size(NamedTuple):
    """Of the cluster that faults are drawn for."""

    nodes: int
    replication_factor: int


def drawn_faults(draw: Draw, kinds: tuple[str, ...], size: Size) -> str:
    """Draw faults, as they are written: of one class, or of some of the kinds."""
    classes = [each for each in kinds if each in CLASSES]
    plain = tuple(each for each in kinds if each not in CLASSES)
    if classes and draw(len(kinds)) < len(classes):
        return ", ".join(CLASSES[classes[draw(len(classes))]](draw, size))
    return ", ".join(_drawn(draw, plain or KINDS[:1]))


def _drawn(draw: Draw, kinds: tuple[str, ...]) -> Iterator[str]:
    moments = sorted(5 + draw(90) for _ in range(1 + draw(MAX_FAULTS)))
    for moment in moments:
        kind = kinds[draw(len(kinds))]
        yield f"{kind} {TARGETS[draw(len(TARGETS))]} at {moment}%"
    if len(moments) > 1 and draw(2):
        yield f"start {AGAIN[draw(3)]} at {min(moments[-1] + 1 + draw(30), 100)}%"


def _moment(draw: Draw, percent: int) -> str:
    """One time in three as the leader has what is not committed: that lasts less than 1 ms."""
    return f"{percent}%" if draw(3) else f"{percent}% ahead"


def _rising(draw: Draw, count: int, *, low: int = 5, high: int = 95) -> list[int]:
    return sorted(low + draw(high - low) for _ in range(count))


def _strike(
    action: str, targets: tuple[str, ...], then: tuple[str, ...]
) -> Callable[[Draw, Size], Iterator[str]]:
    """One fault, and perhaps what ends it; `then` without "" always comes."""

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
