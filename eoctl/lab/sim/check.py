"""`sim check`: judge histories and log dirs of a simulated or real cluster."""

from __future__ import annotations

import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.console.style import screen_size
from eoctl.lab.checker.directories import read_contents
from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource
from eoctl.lab.checker.operations import SENT
from eoctl.lab.checker.rules import RULES, Family
from eoctl.lab.layout import require_whole
from eoctl.lab.sim.simulate import simulated
from eoctl.messages import LABEL_WIDTH, Line, Said, is_for_people, report, said_line, wrapped
from eoctl.output import OutputFormat, Report, emit, message
from storage.counts import counted
from storage.dirs.discovery import discover
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_SKIPPED,
    AccessError,
    RefusedError,
    UsageError,
    access_error,
    pasted,
)
from storage.file_names import DirState, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from eoctl.lab.checker.directories import ReplicaContent
    from eoctl.lab.checker.rules import HistoryFinding, HistoryVerdict


SHOWN_OF_A_KIND = 3
SHOWN_PROBLEMS = 10


class FindingRow(NamedTuple):
    """A finding, as it is printed.

    Attributes:
        witness: the lines that show it: `history:line: words`.
    """

    kind: str
    partition: str
    offset: int
    value: str
    words: str
    line: int
    witness: list[str]


class ClusterToCheck(NamedTuple):
    """Input of a judgement.

    Attributes:
        what: the input, in words.
        again: the command that repeats the judgement.
        replicas: for each partition, names and directories of replicas, None without directories.
        ended_count: number of histories, from the first on, that are known to have ended.
        problems: unreadable parts of the directories.
    """

    what: str
    again: str
    histories: tuple[str, ...]
    replicas: dict[TopicPartition, list[tuple[str, str]]] | None
    ended_count: int
    problems: tuple[str, ...] = ()


def check_cluster(
    path: str | None, histories: Sequence[str], directories: Sequence[str], output: OutputFormat
) -> int:
    """Judge a simulated cluster, or histories with or without log dirs. Return the exit status.

    Raises:
        RefusedError: no simulated cluster, no history, or a history that cannot be read twice.
        UsageError: the cluster was never run, or the command is wrong.
        AccessError, FormatError: a file cannot be read.
    """
    judged = _given(histories, directories) if path is None else _simulated(path)
    if path is not None and (histories or directories):
        raise UsageError(
            f"{path}: a simulated cluster has its own histories and log dirs",
            next_step="leave DIR out, or --history and --directory",
        )
    for each in judged.histories:
        _require_history(each, path)
    replicas = judged.replicas

    def replicas_of(key: TopicPartition) -> list[ReplicaContent] | None:
        return None if replicas is None else read_contents(replicas.get(key, ()))

    sources = [
        HistorySource(each, partial(_open, each), place < judged.ended_count)
        for place, each in enumerate(judged.histories)
    ]
    verdict = judge(sources, replicas_of)
    without = _without_replicas(judged, verdict)
    _report_problems(verdict, (*judged.problems, *without))
    if is_for_people(output):
        report(_lines(judged, verdict))
    else:
        # Witness lines are for programs, and for a terminal.
        columns = FindingRow._fields[: -1 if output is OutputFormat.TEXT else None]
        rows = [_row(each)[: len(columns)] for each in verdict.findings]
        emit(Report("finding", columns, rows, notes=[*_notes(judged, verdict)]), output)
    if verdict.has_findings:
        return EXIT_FINDINGS
    return 0 if verdict.is_whole and not judged.problems and not without else EXIT_SKIPPED


def _require_history(path: str, cluster: str | None) -> None:
    """Check that a history is a readable plain file. Raises RefusedError, AccessError."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError as error:
        if cluster is None:
            raise access_error(error, path) from error
        logs = " ".join(map(pasted, sorted(map(str, Path(cluster).glob("node-*")))))
        step = f"what was acknowledged is not known without it; the logs alone: eoctl check {logs}"
        raise AccessError(error, path, next_step=step) from error
    except OSError as error:
        raise access_error(error, path) from error
    if not stat.S_ISREG(mode):
        raise RefusedError(
            f"{path}: is no plain file, and a history is read twice",
            next_step="save it as a file",
        )


def _open(path: str) -> BinaryIO:
    return Path(path).open("rb")


def _simulated(path: str) -> ClusterToCheck:
    cluster = simulated(path)
    require_whole(cluster, with_controller=False)
    settings = cluster.settings
    return ClusterToCheck(
        what=path,
        again=f"eoctl sim check {pasted(path)}",
        histories=tuple(map(cluster.history_path, range(1, cluster.runs_count + 1))),
        replicas={
            TopicPartition(settings.topic, number): [
                (f"node-{node}", str(Path(path, f"node-{node}", f"{settings.topic}-{number}")))
                for node in nodes
            ]
            for number, nodes in enumerate(settings.assignment)
        },
        ended_count=cluster.ended_count,
    )


def _given(histories: Sequence[str], directories: Sequence[str]) -> ClusterToCheck:
    if not histories:
        raise UsageError(
            "neither a simulated cluster nor a history is named",
            next_step="eoctl sim check DIR, or eoctl sim check --history FILE",
        )
    words = " ".join(f"--history {pasted(each)}" for each in histories)
    if not directories:
        return ClusterToCheck(
            what=", ".join(histories),
            again=f"eoctl sim check {words}",
            histories=(*histories,),
            replicas=None,
            ended_count=len(histories),
        )
    found = discover(directories)
    replicas: dict[TopicPartition, list[tuple[str, str]]] = {}
    for each in found.selected:
        if each.partition.name.state is DirState.LIVE:
            name = str(Path(each.partition.path).parent)
            replicas.setdefault(each.partition.topic_partition, []).append(
                (name, each.partition.path)
            )
    words += "".join(f" --directory {pasted(each)}" for each in directories)
    return ClusterToCheck(
        what=", ".join(histories),
        again=f"eoctl sim check {words}",
        histories=(*histories,),
        replicas=replicas,
        ended_count=len(histories),
        problems=tuple(map(str, found.problems)),
    )


def _without_replicas(judged: ClusterToCheck, verdict: HistoryVerdict) -> list[str]:
    """Return the partitions of the histories without a given directory."""
    if judged.replicas is None:
        return []
    return [
        f"no directory of {key.topic}-{key.partition} is given: judged by what was read"
        for key in verdict.partitions
        if not judged.replicas.get(key)
    ]


def _row(finding: HistoryFinding) -> FindingRow:
    return FindingRow(
        **{name: getattr(finding, name) for name in FindingRow._fields[:-1]},
        witness=[f"{each.history}:{each.line}: {each.words}" for each in finding.witness],
    )


def _report_problems(verdict: HistoryVerdict, of_directories: Sequence[str]) -> None:
    for each in verdict.problems[:SHOWN_PROBLEMS]:
        message(f"{each.history}: line {each.line}: {each.why}", level="warning")
    if verdict.problems_count > SHOWN_PROBLEMS:
        message(
            f"{counted(verdict.problems_count, 'line')} of histories cannot be relied on;"
            f" {SHOWN_PROBLEMS} are named",
            level="warning",
        )
    for path in verdict.torn:
        words = "its last line has no end, and is not judged: the writer was killed, or is writing"
        message(f"{path}: {words}", level="warning")
    for words in of_directories[:SHOWN_PROBLEMS]:
        message(words, level="warning")


def _answer(judged: ClusterToCheck, verdict: HistoryVerdict) -> str:
    reported = [
        f"{verdict.counts[name]:,} {name} ({rule.title})"
        for name, rule in RULES.items()
        if name in verdict.counts and (rule.is_finding or not verdict.has_findings)
    ]
    if verdict.has_findings:
        return f"{judged.what}: {', '.join(reported)}"
    if verdict.is_whole:
        also = f"; {', '.join(reported)}" if reported else ""
        return f"{judged.what}: nothing is wrong: {_inspected(verdict)}{also}"
    return f"{judged.what}: nothing wrong was found, and not all could be judged: {_why(verdict)}"


def _why(verdict: HistoryVerdict) -> str:
    parts = []
    if verdict.counts.get("unseen"):
        unseen = counted(verdict.counts["unseen"], "acknowledged value")
        parts.append(f"{unseen} may still come (unseen)")
    if verdict.problems_count:
        parts.append(f"{counted(verdict.problems_count, 'line')} of history")
    if verdict.torn:
        parts.append(f"the last line of {', '.join(verdict.torn)}, which has no end")
    return ", ".join(parts) or "directories"


def _inspected(verdict: HistoryVerdict) -> str:
    handled = (
        f" {counted(verdict.handled_count, 'record')} handled," if verdict.handled_count else ""
    )
    replicas = f", {counted(verdict.replicas_count, 'replica')}" if verdict.replicas_count else ""
    sent = f" {verdict.sends[SENT]:,} sent with acks=0," if SENT in verdict.sends else ""
    return (
        f"{verdict.sends.get('ok', 0):,} acknowledged records,{sent}"
        f" {counted(verdict.reads_count, 'record')} read,{handled}"
        f" {counted(len(verdict.partitions), 'partition')}{replicas}"
    )


def _notes(judged: ClusterToCheck, verdict: HistoryVerdict) -> Iterator[str]:
    yield _answer(judged, verdict)
    yield f"looked at {counted(verdict.lines_count, 'line')} of history, {_inspected(verdict)}"
    yield from _dropped(verdict)
    yield from _next_commands(judged, verdict)


def _dropped(verdict: HistoryVerdict) -> Iterator[str]:
    """Yield records that are lost without a fault of the brokers."""
    if verdict.dropped_count:
        records = counted(verdict.dropped_count, "record")
        yield f"dropped by the client: {records}, for which its buffer had no room"


def _next_commands(judged: ClusterToCheck, verdict: HistoryVerdict) -> Iterator[str]:
    """Yield commands that show more, once for each partition with a finding."""
    if not verdict.is_healed and verdict.counts.get("unseen"):
        yield "the last fault was not healed: what is missing may still come"
    if judged.replicas is None:
        if verdict.counts:
            yield f"{judged.again} --directory LOG-DIR..., one of each broker, looks at the logs"
        return
    reported: set[str] = set()
    for each in verdict.findings:
        paths = [path for _, path in judged.replicas.get(_key_of(each, verdict), ())]
        call = _call(each.kind, paths)
        if call and len(reported) < SHOWN_OF_A_KIND and call not in reported:
            reported.add(call)
            yield call


def _key_of(finding: HistoryFinding, verdict: HistoryVerdict) -> TopicPartition:
    names = {f"{each.topic}-{each.partition}": each for each in verdict.partitions}
    return names.get(finding.partition, TopicPartition("", -1))


def _call(kind: str, paths: list[str]) -> str:
    family = RULES[kind].family
    named = " ".join(map(pasted, paths))
    if not paths or not RULES[kind].is_finding:
        return ""
    if kind in {"damaged-replica", "lost-commit"}:
        return f"eoctl check {named}"
    if kind == "duplicate":
        return f"eoctl duplicates {named}"
    if kind in {"replicas-differ", "replica-lags", "inconsistent-offsets"} and len(paths) > 1:
        return f"eoctl replicas compare {named}"
    return f"eoctl describe {named}" if family is Family.VALUES else ""


def _lines(judged: ClusterToCheck, verdict: HistoryVerdict) -> Iterator[Line]:
    """Yield the lines for a person: answer, findings with their witnesses, next commands."""
    rank = 2 if verdict.has_findings else 0 if verdict.is_whole else 1
    width = screen_size()[0]
    label = ("OK", "UNKNOWN", "WRONG")[rank]
    yield from wrapped(said_line(Said(label, _answer(judged, verdict), rank)), width, LABEL_WIDTH)
    yield Line(f"{'':{LABEL_WIDTH}}{counted(verdict.lines_count, 'line')} of history")
    for words in _dropped(verdict):
        yield from wrapped(Line(f"{'':{LABEL_WIDTH}}{words}"), width, LABEL_WIDTH)
    shown: dict[str, int] = {}
    for each in verdict.findings:
        shown[each.kind] = shown.get(each.kind, 0) + 1
        if shown[each.kind] > (SHOWN_OF_A_KIND if RULES[each.kind].is_finding else 1):
            continue
        yield Line("")
        at = f" {each.partition}" if each.partition else ""
        yield from wrapped(Line(f"{each.kind}{at}: {each.words}"), width, 2)
        names = len(judged.histories) > 1
        for one in each.witness:
            where = f"{one.history} line {one.line}" if names else f"line {one.line}"
            yield from wrapped(Line(f"  {where}, {one.words}"), width, 4)
    left = {kind: verdict.counts[kind] - SHOWN_OF_A_KIND for kind in shown}
    more = [f"{count:,} more of {kind}" for kind, count in left.items() if count > 0]
    calls = [*_next_commands(judged, verdict)]
    if more or calls:
        yield Line("")
    if more:
        yield from wrapped(Line(f"and {', '.join(more)}: {judged.again} -o jsonl"), width, 2)
    for call in calls:
        yield said_line(Said("Next", call))
