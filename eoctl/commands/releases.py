"""`eoctl releases`: which releases of Kafka start on log dirs, and what each would do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl.messages import Said, report_first
from eoctl.options import Output, Paths, ServerProperties, given_paths
from eoctl.output import Columns, OutputFormat
from eoctl.parameters import option, output_option
from recovery.rules.findings import Severity
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.output import Report
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.releases.answers import Reason, ReleaseAnswer
    from recovery.releases.levels import Obstacle
    from recovery.releases.survey import Survey


COLUMNS = ("release", "starts", "reason", "offset", "drops_count", "drops", "path")
DETAILS = ("release", "does", "what", "offset", "path")
ANSWERS = ("release", "starts", "reason", "offset", "drops")


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    broker_version: Annotated[
        str | None,
        option(metavar="X.Y", help="Exit with 1 unless this release starts."),
    ] = None,
    verbose: Annotated[
        bool,
        output_option("--verbose", "-v", help="Also all reasons, and what a downgrade needs."),
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show which releases of Kafka start on the log dirs of a node, and what each would drop.

    A row for each release from the oldest that is known, then the nodes that keep the next feature
    levels from being set. Only the metadata and the coordinators' topics are read.
    """
    from eoctl.output import emit, line, message
    from eoctl.progress import Progress, log_bytes
    from recovery.checks.context.broker_version import parse_broker_version
    from recovery.releases.answers import answer_for, answers_of
    from recovery.releases.levels import obstacles_of
    from recovery.releases.survey import survey
    from storage.dirs.discovery import discover

    wanted = given_paths(paths, server_properties, None)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl releases PATH...")
    version = None if broker_version is None else parse_broker_version(broker_version)
    found = discover(wanted)
    with Progress("reading", lambda: log_bytes(found.selected)) as progress:
        surveyed = survey(found.log_dirs, found.selected, on_bytes=progress.advance)
    surveyed.problems[:0] = map(str, found.problems)
    answers = answers_of(surveyed)
    asked = None if version is None else answer_for(surveyed, version)
    obstacles = list(obstacles_of(surveyed))
    report_first(_sentences(surveyed, answers, asked, obstacles), output)
    is_text = output is OutputFormat.TEXT
    reports = _reports(surveyed, answers, version, obstacles, is_whole=verbose or not is_text)
    for number, report in enumerate(reports):
        if number and is_text:
            line("")
        emit(report, output)
    for problem in surveyed.problems:
        message(problem)
    if asked is not None and asked.starts is False:
        return EXIT_FINDINGS
    return EXIT_SKIPPED if surveyed.problems or (asked or answers[-1]).starts is None else EXIT_OK


def _sentences(
    found: Survey,
    answers: Sequence[ReleaseAnswer],
    asked: ReleaseAnswer | None,
    obstacles: Sequence[Obstacle],
) -> Iterator[Said]:
    """Yield the verdict, then the dropped data, then the nodes that block the next levels."""
    from recovery.releases.answers import uses_zookeeper
    from recovery.releases.levels import ghosts_of, unregister_words

    if asked is not None:
        yield Said("Asked", _verdict(asked), 0 if asked.starts else Severity.ERROR.rank)
    yield Said("Starts", _summary(answers))
    if uses_zookeeper(found):
        yield Said("Mode", "ZooKeeper: what its brokers have in common is not in these log dirs")
    dropping = [each for each in answers if each.starts and each.drops]
    if dropping:
        first, last = dropping[0], dropping[-1]
        span = str(first.version) if first is last else f"{first.version} to {last.version}"
        counts = sorted({len(each.drops) for each in dropping})
        yield Said("Drops", f"{span} start and drop something (-v); at most {counts[-1]} things")
    for each in obstacles:
        if each.is_given:
            continue
        yield Said("Blocked", f"{each.feature} {each.level}: {_node(each)}; {each.remedy}")
    blocked = {(each.role, each.node_id) for each in obstacles}
    for ghost in ghosts_of(found):
        if ("controller", ghost.node_id) not in blocked:
            call = unregister_words(found, ghost.node_id)
            yield Said("Ghost", f"controller {ghost.node_id} does not vote; if it is gone: {call}")


def _node(each: Obstacle) -> str:
    what = "" if each.role == "broker" else ", a voter" if each.is_voter else ", not a voter"
    since = "" if each.offset is None else f", registered at offset {each.offset}"
    return f"{each.role} {each.node_id}{what} knows {each.knows}{since}"


def _verdict(asked: ReleaseAnswer) -> str:
    if asked.starts is None:
        return f"Kafka {asked.version}: unknown: {asked.unknown}"
    if not asked.starts:
        return f"Kafka {asked.version} does not start: {_where(asked.reasons[0])}"
    dropped = "and drops nothing" if not asked.drops else f"and drops: {_where(asked.drops[0])}"
    more = f" (and {len(asked.drops) - 1} more)" if len(asked.drops) > 1 else ""
    return f"Kafka {asked.version} starts {dropped}{more}"


def _summary(answers: Sequence[ReleaseAnswer]) -> str:
    """Return text such as `4.3 to 4.4; 4.2 does not: metadata.version 30 at offset 30`."""
    unknown = next((each for each in answers if each.starts is None), None)
    if unknown is not None:
        refused = [str(each.version) for each in answers if each.starts is False]
        text = f"not known: {unknown.unknown}"
        return f"{text}; surely not {', '.join(refused)}" if refused else text
    runs: list[list[ReleaseAnswer]] = []
    for each in answers:
        if runs and runs[-1][-1].starts == each.starts:
            runs[-1].append(each)
        else:
            runs.append([each])
    parts = [_run(run) for run in runs if run[0].starts] or ["none of the known releases"]
    for number, run in enumerate(runs):
        if not run[0].starts:
            # The release next to the starting releases lacks the least.
            near = run[-1] if number + 1 < len(runs) else run[0]
            parts.append(f"{near.version} does not: {_where(near.reasons[0])}")
    return "; ".join(parts)


def _run(run: Sequence[ReleaseAnswer]) -> str:
    first, last = run[0].version, run[-1].version
    return str(first) if first == last else f"{first} to {last}"


def _where(reason: Reason) -> str:
    return reason.what if reason.offset < 0 else f"{reason.what} at offset {reason.offset}"


def _reports(
    found: Survey,
    answers: Sequence[ReleaseAnswer],
    version: BrokerVersion | None,
    obstacles: Sequence[Obstacle],
    *,
    is_whole: bool,
) -> Iterator[Report]:
    from eoctl.output import Report
    from recovery.releases.levels import Lowering, Obstacle, lowerings_for

    columns = Columns(COLUMNS, answers=ANSWERS)
    yield Report("release", columns, [_row(each) for each in answers])
    yield Report("obstacle", Obstacle._fields, obstacles)
    if is_whole:
        lowerings = [
            each
            for answer in answers
            if answer.starts is False and version in {None, answer.version}
            for each in lowerings_for(found, answer.version)
        ]
        yield Report("detail", DETAILS, list(_details(answers)))
        yield Report("lowering", Lowering._fields, lowerings)


def _offset(number: int) -> int | None:
    return None if number < 0 else number


def _row(answer: ReleaseAnswer) -> tuple[object, ...]:
    first = answer.reasons[0] if answer.reasons else None
    more = "; ..." if len(answer.drops) > 2 else ""
    return (
        str(answer.version),
        {True: "yes", False: "no", None: "unknown"}[answer.starts],
        answer.unknown if first is None else first.what,
        None if first is None else _offset(first.offset),
        len(answer.drops),
        "; ".join(each.what for each in answer.drops[:2]) + more,
        "" if first is None else first.path,
    )


def _details(answers: Sequence[ReleaseAnswer]) -> Iterator[tuple[object, ...]]:
    for answer in answers:
        for does, reasons in (("stops at", answer.reasons), ("drops", answer.drops)):
            for each in reasons:
                yield str(answer.version), does, each.what, _offset(each.offset), each.path
