"""`eoctl advise`: which of several dead brokers to start first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl.declared import argument, option
from eoctl.options import (
    TERMINAL_ROWS,
    Limit,
    MetadataDir,
    Now,
    Output,
    ProducerExpiryMs,
    TopicPatterns,
)
from eoctl.output import OutputFormat
from storage.errors import UsageError

if TYPE_CHECKING:
    from eoctl.output import Report
    from eoctl.runs.reports.advise import AdvisedRow, AdviseRun, SettingsRun


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="LOG-DIR...", help="Log dirs of the brokers, controllers included."),
    ] = None,
    settings: Annotated[
        bool, option("--settings", help="What each topic claims to survive, and what it does.")
    ] = False,
    topic: TopicPatterns = None,
    running: Annotated[
        list[int] | None,
        option(min=0, metavar="ID", help="A broker that runs; repeatable."),
    ] = None,
    gone: Annotated[
        list[int] | None,
        option(min=0, metavar="ID", help="A broker that does not come back; repeatable."),
    ] = None,
    metadata_dir: MetadataDir = None,
    limit: Limit = None,
    now: Now = None,
    producer_expiry_ms: ProducerExpiryMs = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Say which dead broker to start first: who may lead, and what each order loses.

    Who was in the ISR comes from the newest metadata among the log dirs, what would be lost from
    the copies. A broker that is not among them, and does not run, does not come back.
    """
    if not paths:
        raise UsageError("no LOG-DIR given", next_step="eoctl advise LOG-DIR...")
    if both := set(running or ()) & set(gone or ()):
        raise UsageError(f"{min(both)}: it runs, or does not come back: not both")
    if settings:
        if running or gone:
            raise UsageError("--settings looks at no broker: without --running and --gone")
        return _settings(paths, topic or (), metadata_dir, limit, output)
    from eoctl.runs.reports.advise import AdviseRun

    run = AdviseRun(
        paths,
        topics=topic or (),
        metadata_dir=metadata_dir,
        running=running or (),
        gone=gone or (),
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    from eoctl.runs.reports.advise_words import answer
    from eoctl.runs.told import is_for_people, said_line, tell

    if is_for_people(output):
        tell(map(said_line, answer(run)))
        limit = TERMINAL_ROWS if limit is None else limit
    _print(_reports(run, limit), output)
    _tell(run)
    return run.status


def _settings(
    paths: list[str],
    topics: tuple[str, ...] | list[str],
    metadata_dir: str | None,
    limit: int | None,
    output: OutputFormat,
) -> int:
    from eoctl.output import Report
    from eoctl.runs.reports.advise import SettingsRun
    from eoctl.runs.reports.advise_words import settings_answer
    from eoctl.runs.told import is_for_people, said_line, tell
    from recovery.elections.advice import TopicClaims

    run = SettingsRun(paths, topics=topics, metadata_dir=metadata_dir)
    if is_for_people(output):
        tell(map(said_line, settings_answer(run)))
        limit = TERMINAL_ROWS if limit is None else limit
    report = Report(kind="topic", columns=TopicClaims._fields, rows=run.rows[:limit])
    left = len(run.rows) - len(run.rows[:limit])
    _print([report._replace(notes=_left(left, "topic"))], output)
    _tell(run)
    return run.status


def _reports(run: AdviseRun, limit: int | None) -> list[Report]:
    from eoctl.output import Report
    from eoctl.runs.reports.advise import AdvisedRow, LeaderRow, OrderRow, StepRow

    partitions = sorted(run.partitions, key=_gravity) if limit is not None else run.partitions
    shown = {(each.topic, each.partition) for each in partitions[:limit]}
    choices = [each for each in run.choices if (each.topic, each.partition) in shown]
    if limit is not None:
        choices = [each for each in choices if each.lost_offsets_count != 0]
    found = [
        Report("order", OrderRow._fields, run.orders[:limit]),
        Report("step", StepRow._fields, run.steps),
        Report(
            "partition",
            AdvisedRow._fields,
            partitions[:limit],
            notes=_left(len(partitions) - len(shown), "partition"),
        ),
        Report("choice", LeaderRow._fields, choices),
    ]
    return [each for each in found if each.rows]


def _gravity(row: AdvisedRow) -> tuple[bool, bool, bool, bool, str, int]:
    """Those of which there is most to tell come first."""
    return (
        row.leads is not None,
        row.how not in ("by request", "unclean"),
        row.lower_to is None,
        bool(row.at_once),
        row.topic,
        row.partition,
    )


def _left(count: int, what: str) -> list[str]:
    from eoctl.runs.told import counted

    return [f"{counted(count, f'more {what}')} not printed (--limit)"] if count else []


def _print(reports: list[Report], output: OutputFormat) -> None:
    from eoctl.output import emit, line
    from eoctl.runs.told import is_for_people

    begun = is_for_people(output)
    for number, each in enumerate(reports):
        if output is OutputFormat.TEXT and (number or begun):
            line("")
        emit(each, output)


def _tell(run: AdviseRun | SettingsRun) -> None:
    from eoctl.output import message

    for note in run.notes:
        message(note)
