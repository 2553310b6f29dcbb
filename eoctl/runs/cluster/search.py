"""`cluster explore`: is there a course of events that loses something, and how does it go?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.faults.classes import CLASSES, KINDS
from eoctl.cluster.guarantees.course import steps
from eoctl.cluster.guarantees.explore import explore
from eoctl.cluster.guarantees.saved import require_new, save_course, saved
from eoctl.output import Report, emit, message
from eoctl.progress import Progress
from eoctl.runs.cluster.play import (
    EventRow,
    event_row,
    require_isolation,
    require_possible,
    require_producer,
)
from eoctl.runs.told import counted, tell_first
from storage.errors import EXIT_FINDINGS, UsageError
from storage.shell_words import pasted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.cluster.checker.verdict import HistoryFinding
    from eoctl.cluster.guarantees.course import Course
    from eoctl.cluster.world.settings import PlaySettings, RunSettings
    from eoctl.output import OutputFormat


def explore_cluster(
    settings: PlaySettings,
    run: RunSettings,
    faults: str,
    seeds: range,
    output: OutputFormat,
    witness: str,
) -> int:
    """Look for it, and save it in a file `witness` if that is named; returns the exit status.

    Raises:
        UsageError: what cannot be. RefusedError: the file is there already.
        RefusedError, AccessError: no run was possible, the file cannot be written.
    """
    require_possible(settings)
    require_producer(run)
    require_isolation(run, has_transactions=False)
    if witness:
        require_new(witness)
    kinds = parse_kinds(faults)
    with Progress("playing", len(seeds), unit="seeds") as progress:
        course = explore(settings, run, kinds, seeds, on_seed=lambda _: progress.advance(1))
    if course is None:
        words = f"nothing is lost, doubled or different in {counted(len(seeds), 'seed')}"
        tell_first([words], output)
        emit(Report("event", EventRow._fields, [], notes=[words]), output)
        return 0
    tell_first(_words(course), output)
    rows = [event_row(each) for each in steps(course)]
    rows += [
        EventRow(
            time_us=course.events[-1].time_us,
            event=each.kind,
            node="",
            partition=each.partition,
            words=each.words,
        )
        for each in _first_of_each(course)
    ]
    repeats = calls(settings, course.run)
    if witness:
        save_course(witness, saved(settings, course, title_of(course)))
        repeats = replay_calls(witness)
    emit(Report("event", EventRow._fields, rows, notes=[*repeats]), output)
    message(f"of {counted(len(course.findings), 'finding')} one of each kind is shown")
    return EXIT_FINDINGS


OTHER_WORDS = {"crash": "kill"}


def parse_kinds(text: str) -> tuple[str, ...]:
    """Read --faults of explore. Raises UsageError."""
    named = [each.strip() for each in text.split(",") if each.strip()]
    kinds = tuple(dict.fromkeys(OTHER_WORDS.get(each, each) for each in named))
    known = (*KINDS, *CLASSES)
    wrong = [each for each in kinds if each not in known]
    if wrong or not kinds:
        what = f"{wrong[0]!r} is none of {', '.join(known)}" if wrong else "names no kind of fault"
        raise UsageError(f"--faults {pasted(text)}: {what}", next_step="--faults kill,power")
    return kinds


def _first_of_each(course: Course) -> list[HistoryFinding]:
    first: dict[str, HistoryFinding] = {}
    for each in course.findings:
        first.setdefault(each.kind, each)
    return [*first.values()]


def _words(course: Course) -> Iterator[str]:
    yield f"seed {course.run.seed}: {', '.join(sorted(course.kinds))}"


def title_of(course: Course) -> str:
    """What a saved course is about."""
    return f"{', '.join(sorted(course.kinds))} after {course.run.faults or 'nothing'}"


def replay_calls(witness: str) -> Iterator[str]:
    """The calls that repeat a saved course of events."""
    yield f"eoctl cluster run ./play --replay {pasted(witness)}"
    yield "eoctl cluster check ./play"


def calls(settings: PlaySettings, run: RunSettings) -> Iterator[str]:
    """The calls that repeat a course of events."""
    yield f"eoctl cluster init ./play {_options(INIT_OPTIONS, settings)}".rstrip()
    options = RUN_OPTIONS | (TRANSACTION_OPTIONS if run.is_transactional else {})
    yield f"eoctl cluster run ./play {_options(options, run)}".rstrip()
    yield "eoctl cluster check ./play"


# Option -> field. True is said by the option alone, or by its being there where the field is not.
INIT_OPTIONS = {
    "--nodes": "nodes",
    "--partitions": "partitions",
    "--replication-factor": "replication_factor",
    "--min-insync-replicas": "min_insync",
    "--unclean-leader-election": "is_unclean",
    "--elr": "has_elr",
    "--truncation": "truncation",
    "--fsync": "fsync",
}
RUN_OPTIONS = {
    "--acks": "acks",
    "--retries": "retries",
    "--no-idempotence": "is_idempotent",
    "--records": "records",
    "--rate": "rate",
    "--burst": "burst",
    "--in-flight": "in_flight",
    "--faults": "faults",
    "--seed": "seed",
}
TRANSACTION_OPTIONS = {
    "--transaction-records": "transaction_records",
    "--abort-every": "abort_every",
    "--isolation": "isolation",
}


def _options(options: dict[str, str], settings: PlaySettings | RunSettings) -> str:
    words = []
    for name, field in options.items():
        value = getattr(settings, field)
        if isinstance(value, bool):
            if value != name.startswith("--no-"):
                words.append(name)
        elif name == "--acks":
            words.append(f"{name} {'all' if value < 0 else value}")
        else:
            words.append(f"{name} {pasted(str(value))}")
    return " ".join(words)
