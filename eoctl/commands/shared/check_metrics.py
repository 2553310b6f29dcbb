"""The findings of a check as OpenMetrics text, for the textfile collector of node_exporter.

Each metric is a gauge with the label `log_dir`. Everything that `check` counts by log dir is
included, even if 0, so that an alert can distinguish "nothing" from "not checked".
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.fsck.verdict import Answer
from recovery.rules.findings import Severity
from storage.dirs.log_dir import StoppedState
from storage.errors import AccessError, RefusedError, UsageError
from storage.file_names import is_below
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eoctl.commands.shared.check_run import CheckRun
    from recovery.fsck.verdict import DirectoryVerdict
    from storage.dirs.log_dir import LogDir


class Metric(NamedTuple):
    """A gauge: its name without the prefix `eoctl_`, and its help text."""

    name: str
    help: str


START = Metric("start_answer", "Will the next broker start: 1 yes, 0 no, -1 unknown.")
UNCLEAN = Metric("unclean_stop", "1 if the log dir has no mark of a clean stop.")
FINDINGS = Metric("findings", "Findings by severity.")
PARTITIONS = Metric("partitions", "Partitions that were checked.")
UNREAD = Metric("unread_parts", "Files, or parts of files, that could not be read.")
BYTES = Metric("log_bytes", "Size of the .log files that were checked.")
LOST = Metric("lost_offsets", "Offsets of lost records, at most: absent, or damaged.")
LOST_PLACES = Metric("lost_places", "Places of lost records; an offset range may be unknown.")
CUT = Metric("start_cut_records", "Records that the next start of a broker truncates.")
TAKEN = Metric("first_run_records", "Records that retention deletes at its first run.")
OPEN = Metric("open_transactions", "Open transactions.")
HANGING = Metric("hanging_transactions", "Open transactions older than any may be.")
AGE = Metric("oldest_open_transaction_age_seconds", "Age of the oldest open transaction.")
BLOCKED = Metric("blocked_offsets", "Offsets between the last stable offset and the log end.")
ENDED = Metric("check_end_timestamp_seconds", "When the check ended.")
STATUS = Metric("check_exit_status", "Exit status of the check.")


def write_metrics(path: str, run: CheckRun, verdict: DirectoryVerdict, status: int) -> None:
    """Write the metrics of a completed check, in one step.

    Args:
        path: the file, which is replaced.
        run: the check.
        verdict: its verdict.
        status: its exit status.

    Raises:
        AccessError: the operating system refused.
    """
    text = "".join(_lines(run, verdict, status))
    fsio.replace_file(
        fsio.FileSystem(), path, text.encode("utf-8"), attributes=fsio.own_attributes()
    )


def require_outside(path: str, run: CheckRun) -> None:
    """Refuse a file in a log dir, where a broker would stop, before anything is read.

    Raises:
        UsageError: it is standard output, which is used for the rows.
        RefusedError: the file would lie in a log dir.
        AccessError: its directory does not exist.
    """
    if path == "-":
        raise UsageError("--metrics -: standard output has the rows", next_step="--metrics FILE")
    place = os.path.realpath(Path(path).absolute().parent)
    if not os.path.isdir(place):  # noqa: PTH112 - resolved already
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        raise AccessError(missing, place)
    for each in run.found.log_dirs:
        if is_below(place, os.path.realpath(each.path)):
            raise RefusedError(
                f"--metrics {path}: lies in the log dir {each.path}",
                next_step="a file elsewhere, such as in the directory of the textfile collector",
            )


def _lines(run: CheckRun, verdict: DirectoryVerdict, status: int) -> Iterator[str]:
    for metric, value_of in _values(run, verdict).items():
        yield from _head(metric)
        for each in run.found.log_dirs:
            yield f"eoctl_{metric.name}{_labels(log_dir=each.path)} {value_of(each)}\n"
    yield from _head(FINDINGS)
    for each in run.found.log_dirs:
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE):
            labels = _labels(log_dir=each.path, severity=str(severity))
            yield f"eoctl_{FINDINGS.name}{labels} {_findings_count(run, each.path, severity)}\n"
    for metric, value in ((ENDED, f"{time.time():.3f}"), (STATUS, status)):
        yield from _head(metric)
        yield f"eoctl_{metric.name} {value}\n"
    yield "# EOF\n"


def _values(run: CheckRun, verdict: DirectoryVerdict) -> dict[Metric, Callable[[LogDir], float]]:
    """Return the function for the value of a log dir, by metric."""
    answers = {path: start.answer for start in verdict.starts for path in start.log_dirs}
    lost = (*verdict.missing, *verdict.damaged)
    hanging = [
        each.directory
        for each in run.placed
        if each.finding.check_id == "TXO-1" and each.finding.severity is not Severity.NOTE
    ]

    def below(found: Iterable[Any], log_dir: LogDir) -> list[Any]:
        return [each for each in found if is_below(each.path, log_dir.path)]

    def age(log_dir: LogDir) -> float:
        times = [e.since_ms for e in below(verdict.held, log_dir) if e.since_ms is not None]
        return max((run.now_ms - min(times)) / 1000, 0) if times else 0

    def taken(log_dir: LogDir) -> Iterator[int]:
        for each in verdict.takes:
            if is_below(each.log.path, log_dir.path):
                yield from (row.records_count or 0 for row in each.first_run)

    def blocked(log_dir: LogDir) -> int:
        held = below(verdict.held, log_dir)
        return sum(max((each.end_offset or 0) - each.first_offset, 0) for each in held)

    return {
        START: lambda each: _ANSWERS[answers.get(each.path, Answer.UNKNOWN)],
        UNCLEAN: lambda each: int(each.stopped is StoppedState.UNCLEAN),
        PARTITIONS: lambda each: len(below(run.rows, each)),
        UNREAD: lambda each: sum(row.unreadable for row in below(run.rows, each)),
        BYTES: lambda each: sum(row.log_bytes or 0 for row in below(run.rows, each)),
        LOST: lambda each: sum(found.offsets_count or 0 for found in below(lost, each)),
        LOST_PLACES: lambda each: len(below(lost, each)),
        CUT: lambda each: sum(cut.records_count for cut in below(verdict.cuts, each)),
        TAKEN: lambda each: sum(taken(each)),
        OPEN: lambda each: sum(held.open_count for held in below(verdict.held, each)),
        HANGING: lambda each: sum(is_below(path, each.path) for path in hanging),
        AGE: age,
        BLOCKED: blocked,
    }


_ANSWERS = {Answer.YES: 1, Answer.NO: 0, Answer.UNKNOWN: -1}


def _findings_count(run: CheckRun, log_dir: str, severity: Severity) -> int:
    """Return the number of findings of a severity in a log dir's partitions and its own files."""
    of_rows = sum(
        getattr(row, f"{severity}s") or 0 for row in run.rows if is_below(row.path, log_dir)
    )
    beside = (each.finding for each in run.placed if not each.directory)
    return of_rows + sum(
        each.severity is severity and is_below(each.path, log_dir) for each in beside
    )


def _head(metric: Metric) -> Iterator[str]:
    yield f"# HELP eoctl_{metric.name} {metric.help}\n"
    yield f"# TYPE eoctl_{metric.name} gauge\n"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    text = value.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
