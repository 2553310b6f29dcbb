"""Many courses of events, one a seed, and the shortest one that loses something.

A seed chooses faults of the wanted kinds or classes (`faults.classes`). What the checker condemns
is made shorter as long as it still condemns the same: faults are left out, then records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.faults.classes import Size, drawn_faults
from eoctl.cluster.guarantees.course import play_course
from eoctl.cluster.world.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from eoctl.cluster.guarantees.course import Course
    from eoctl.cluster.world.settings import PlaySettings, RunSettings


def faults_of_seed(seed: int, kinds: tuple[str, ...], settings: PlaySettings) -> str:
    """Give the faults that a seed draws, as they are written."""
    size = Size(settings.nodes, settings.replication_factor)
    return drawn_faults(Scheduler(seed).draw, kinds, size)


def explore(
    settings: PlaySettings,
    run: RunSettings,
    kinds: tuple[str, ...],
    seeds: range,
    *,
    on_seed: Callable[[int], None],
) -> Course | None:
    """Look for a course of events that is condemned, and give the shortest; None: there is none.

    Raises as `play_course`.
    """
    for seed in seeds:
        tried = run._replace(seed=seed, faults=faults_of_seed(seed, kinds, settings))
        course = play_course(settings, tried)
        on_seed(seed)
        if course.findings:
            return shortened(settings, course, course.kinds)
    return None


def shortened(settings: PlaySettings, course: Course, wanted: Collection[str]) -> Course:
    """Leave out what is not needed for one of the wanted kinds of findings to come about."""
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for run in _shorter(course.run):
            tried = play_course(settings, run)
            if not tried.kinds.isdisjoint(wanted):
                course, is_shorter = tried, True
                break
    return course


def _shorter(run: RunSettings) -> Iterator[RunSettings]:
    faults = run.faults.split(", ")
    if len(faults) > 1:
        for place in range(len(faults)):
            yield run._replace(faults=", ".join(faults[:place] + faults[place + 1 :]))
    if run.records > 10:
        yield run._replace(records=run.records // 2)
