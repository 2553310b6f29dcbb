"""`cluster run --replay`, `--script`, `cluster scripts`: courses of events that are saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.guarantees.saved import load_course, load_script, script_names
from eoctl.cluster.layout import make_cluster, open_cluster
from eoctl.cluster.world.settings import MARKER_NAME, RunSettings
from eoctl.output import Report, emit
from eoctl.runs.cluster.play import run_cluster
from storage.errors import RefusedError, UsageError
from storage.shell_words import pasted

if TYPE_CHECKING:
    from eoctl.cluster.guarantees.saved import SavedCourse
    from eoctl.output import OutputFormat


class ScriptRow(NamedTuple):
    """A script that is shipped."""

    script: str
    words: str


def replay_saved(
    path: str, given: RunSettings, output: OutputFormat, *, file: str, script: str
) -> int:
    """Make the cluster of a saved course, and run it; returns the exit status.

    Raises:
        UsageError: options that the course has itself, or no such script.
        RefusedError: the file is none, or there is another cluster, or one that was run before.
        AccessError: a file cannot be read or written.
    """
    option = f"--replay {pasted(file)}" if file else f"--script {pasted(script)}"
    if file and script:
        raise UsageError(
            "--replay and --script: one of them",
            next_step=f"eoctl cluster run {pasted(path)} --replay {pasted(file)}",
        )
    if given != RunSettings():
        raise UsageError(
            f"{option}: has all that a run is told itself",
            next_step=f"eoctl cluster run {pasted(path)} {option}",
        )
    course = load_course(file) if file else load_script(script)
    _require_ready(path, course)
    return run_cluster(path, course.whole_run, output, digest=course.digest)


def _require_ready(path: str, course: SavedCourse) -> None:
    """See that a cluster is there that is as that of the course, and was never run."""
    if not Path(path, MARKER_NAME).exists():
        make_cluster(path, course.settings)
        return
    cluster = open_cluster(path)
    if cluster.settings != course.settings or cluster.runs_count:
        why = "was run already" if cluster.runs_count else "is another cluster"
        raise RefusedError(
            f"{path}: {why}; the same course of events begins with a new one; nothing was touched",
            next_step="name a directory that is not there yet",
        )


def list_scripts(output: OutputFormat) -> int:
    """List what is shipped."""
    rows = [ScriptRow(each, load_script(each).title) for each in script_names()]
    emit(
        Report("script", ScriptRow._fields, rows, notes=["eoctl cluster run ./play --script NAME"]),
        output,
    )
    return 0
