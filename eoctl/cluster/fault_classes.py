"""Classes of faults: what may befall a cluster, of which a seed draws when and whom.

  kill-one         a broker is killed, and may be started again
  kill-in-turn     brokers are killed one after the other until one is left
  kill-then-power  followers are killed one after the other, then the leader's machine loses power
  stop-then-power  followers are stopped cleanly, then the leader's machine loses power
  power-all        all machines lose power at once
  partition-leader the leader is cut off from the others, and reaches them again later
  rejoin           a follower is killed and comes back; right then the leader is killed
  restart-all      one after the other is killed; then all that fell last are started

The kinds `kill`, `power`, `partition` and `stop` draw one to three faults of any target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.cluster.settings import PlaySettings

    Draw = Callable[[int], int]

KINDS = ("kill", "power", "partition", "stop")
TARGETS = ("leader", "follower", "any", "all")
MAX_FAULTS = 3


def drawn_faults(seed: int, kinds: tuple[str, ...], settings: PlaySettings) -> str:
    """Give the faults of a seed, as they are written: of one class, or of some of the kinds."""
    draw = Scheduler(seed).draw
    classes = [each for each in kinds if each in CLASSES]
    plain = tuple(each for each in kinds if each not in CLASSES)
    if classes and draw(len(kinds)) < len(classes):
        return ", ".join(CLASSES[classes[draw(len(classes))]](draw, settings))
    return ", ".join(_drawn(draw, plain or KINDS[:1]))


def _drawn(draw: Draw, kinds: tuple[str, ...]) -> Iterator[str]:
    moments = sorted(5 + draw(90) for _ in range(1 + draw(MAX_FAULTS)))
    for moment in moments:
        kind = kinds[draw(len(kinds))]
        yield f"{kind} {TARGETS[draw(len(TARGETS))]} at {moment}%"
    if len(moments) > 1 and draw(2):
        who = ("first", "last", "all")[draw(3)]
        yield f"start {who} at {min(moments[-1] + 1 + draw(30), 100)}%"


def _rising(draw: Draw, count: int, *, low: int = 5, high: int = 95) -> list[int]:
    return sorted(low + draw(high - low) for _ in range(count))


def _kill_one(draw: Draw, settings: PlaySettings) -> Iterator[str]:
    del settings
    moment, again = _rising(draw, 2)
    yield f"kill {TARGETS[draw(3)]} at {moment}%"
    if draw(2):
        yield f"start first at {again}%"


def _kill_in_turn(draw: Draw, settings: PlaySettings) -> Iterator[str]:
    moments = _rising(draw, max(settings.nodes, 2))
    for moment in moments[:-1]:
        yield f"kill {TARGETS[draw(3)]} at {moment}%"
    if draw(2):
        yield f"start {('first', 'last', 'all')[draw(3)]} at {moments[-1]}%"


def _then_power(action: str) -> Callable[[Draw, PlaySettings], Iterator[str]]:
    def faults(draw: Draw, settings: PlaySettings) -> Iterator[str]:
        moments = _rising(draw, settings.replication_factor)
        for moment in moments[:-1]:
            yield f"{action} follower at {moment}%"
        yield f"power leader at {moments[-1]}%"
        yield f"start all at {moments[-1]}%"

    return faults


def _power_all(draw: Draw, settings: PlaySettings) -> Iterator[str]:
    del settings
    moment, again = _rising(draw, 2)
    yield f"power all at {moment}%"
    if draw(2):
        yield f"start {('first', 'last', 'all')[draw(3)]} at {again}%"


def _partition_leader(draw: Draw, settings: PlaySettings) -> Iterator[str]:
    del settings
    moment, healed = _rising(draw, 2)
    yield f"partition leader at {moment}%"
    yield f"heal at {healed}%"


def _rejoin(draw: Draw, settings: PlaySettings) -> Iterator[str]:
    del settings
    moment, back = _rising(draw, 2)
    yield f"kill follower at {moment}%"
    yield f"start first at {back}%"
    yield f"kill leader at {back}%"


def _restart_all(draw: Draw, settings: PlaySettings) -> Iterator[str]:
    moments = _rising(draw, settings.nodes)
    for number, moment in enumerate(moments):
        yield f"kill {'leader' if not number else 'any'} at {moment}%"
    for _ in range(settings.nodes - 1):
        yield f"start last at {moments[-1]}%"


CLASSES: dict[str, Callable[[Draw, PlaySettings], Iterator[str]]] = {
    "kill-one": _kill_one,
    "kill-in-turn": _kill_in_turn,
    "kill-then-power": _then_power("kill"),
    "stop-then-power": _then_power("stop"),
    "power-all": _power_all,
    "partition-leader": _partition_leader,
    "rejoin": _rejoin,
    "restart-all": _restart_all,
}
