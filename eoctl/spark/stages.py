"""Progress of Spark's jobs: their stages and tasks, for whoever waits at a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from eoctl.progress import Progress, is_drawn

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK_SECONDS = 0.3


@contextmanager
def stages_told(context: Any) -> Iterator[None]:
    """Tell of the stages of the jobs that run meanwhile; nothing is asked where nobody waits.

    Args:
        context: a SparkContext; None where there is none to ask.
    """
    if context is None or not is_drawn():
        yield
        return
    is_over = Event()
    with Progress("Spark") as progress:
        asking = Thread(target=_ask, args=(context.statusTracker(), progress, is_over), daemon=True)
        asking.start()
        try:
            yield
        finally:
            is_over.set()
            asking.join()


def _ask(tracker: Any, progress: Progress, is_over: Event) -> None:
    while not is_over.wait(ASK_SECONDS):
        try:
            progress.tell(stages_text(tracker))
        except Exception:  # noqa: BLE001 - whatever py4j raises: the job itself tells what is wrong
            return


def stages_text(tracker: Any) -> str:
    """Tell of the stages that are at work: `stage 2: 37 of 120 tasks`.

    Args:
        tracker: a StatusTracker.
    """
    infos = (tracker.getStageInfo(each) for each in tracker.getActiveStageIds())
    told = [
        f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks"
        for each in sorted((each for each in infos if each is not None), key=_stage_id)
    ]
    return ", ".join(told) or "waiting for a stage"


def _stage_id(info: Any) -> int:
    number: int = info.stageId
    return number
