"""One course of events: a small cluster made, run and judged, in a directory that then goes."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.checker.directories import read_contents
from eoctl.cluster.checker.judge import judge
from eoctl.cluster.checker.reader import HistorySource
from eoctl.cluster.checker.rules import RULES
from eoctl.cluster.guarantees.scratch import scratch
from eoctl.cluster.layout import make_cluster
from eoctl.cluster.simulation import Simulation
from storage.files.fsio import FileSystem

if TYPE_CHECKING:
    from eoctl.cluster.checker.directories import ReplicaContent
    from eoctl.cluster.checker.verdict import HistoryFinding
    from eoctl.cluster.layout import PlayedCluster
    from eoctl.cluster.simulation import RunResult
    from eoctl.cluster.world.settings import PlaySettings, RunSettings
    from eoctl.cluster.world.trace import TraceEvent
    from storage.file_names import TopicPartition

    _Entries = tuple[tuple[str, bytes | None], ...]

MAX_STEPS = 12
MADE_MAX = 8  # clusters that are known as they are made: one cell is played many times in a row
# What a person has to see of a course of events, the first what goes first when it is too much.
_LESS_TOLD = ("session", "start", "isr", "refused", "election")


class Course(NamedTuple):
    """One run, and what the checker says of it."""

    run: RunSettings
    result: RunResult
    events: list[TraceEvent]
    findings: list[HistoryFinding]

    @property
    def kinds(self) -> set[str]:
        """What is wrong, by name."""
        return {each.kind for each in self.findings}


def play_course(settings: PlaySettings, run: RunSettings) -> Course:
    """Make a cluster, run it, judge it, and leave nothing behind.

    Raises:
        RefusedError, AccessError: it could not be run.
    """
    made = _as_made(settings)  # first: it takes a directory, too, and one at a time is taken
    with scratch() as directory:
        cluster = _made_again(str(directory.resolve() / "play"), *made)
        lines: list[bytes] = []
        simulation = Simulation(cluster.root, cluster.cluster, settings, run, 1, write=lines.append)
        result = simulation.run()
        history = b"".join(lines)

        def replicas_of(key: TopicPartition) -> list[ReplicaContent]:
            name = f"{key.topic}-{key.partition}"
            nodes = settings.assignment[key.partition]
            return read_contents(
                (f"node-{each}", f"{cluster.node_path(each)}/{name}") for each in nodes
            )

        source = HistorySource("history", lambda: io.BytesIO(history))
        verdict = judge([source], replicas_of, checks=False)
    found = [each for each in verdict.findings if RULES[each.kind].is_finding]
    return Course(run=run, result=result, events=simulation.trace.events, findings=found)


def _made_again(root: str, cluster: PlayedCluster, entries: _Entries) -> PlayedCluster:
    """Make a cluster as `make_cluster` has made the first one with these settings."""
    fs = FileSystem()
    fs.make_dir(root)
    for name, content in entries:
        if content is None:
            fs.make_dir(f"{root}/{name}")
        else:
            with fs.open_new(f"{root}/{name}") as file:
                fs.write(file, content)
    return cluster._replace(root=root)


@lru_cache(MADE_MAX)
def _as_made(settings: PlaySettings) -> tuple[PlayedCluster, _Entries]:
    """A cluster as it is made, and what is below it, directories first: name, content or None."""
    with scratch() as directory:
        cluster = make_cluster(str(Path(directory, "play")), settings)
        root = Path(cluster.root)
        entries = tuple(
            (str(each.relative_to(root)), None if each.is_dir() else each.read_bytes())
            for each in sorted(root.rglob("*"))
        )
    return cluster, entries


def steps(course: Course) -> list[TraceEvent]:
    """What has happened, in at most MAX_STEPS events: what all starts begin with is left out."""
    begun = next((each.time_us for each in course.events if each.kind == "fault"), 0)
    told = [each for each in course.events if each.time_us >= begun]
    # The clean stop at the end, where all is decided, tells nothing.
    healed = [place for place, each in enumerate(told) if each.words.startswith("all is healed")]
    if healed:
        last = told[healed[-1]].time_us
        told = [each for each in told if each.time_us <= last or each.kind in {"cut", "lost"}]
    for kind in _LESS_TOLD:
        while len(told) > MAX_STEPS and any(each.kind == kind for each in told):
            told.remove(next(each for each in reversed(told) if each.kind == kind))
    return told[:MAX_STEPS]
