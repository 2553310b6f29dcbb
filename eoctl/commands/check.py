"""`eoctl check`: the fsck."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from eoctl.commands.shared.check_run import CheckRun, prepared
from eoctl.commands.shared.cluster_rows import NO_LEADER, ClusterNotes, state_words
from eoctl.console.style import screen_size
from eoctl.messages import answer_width, is_for_people, report, report_answer
from eoctl.options import (
    FailOn,
    Jobs,
    MetadataDir,
    Now,
    Output,
    Paths,
    ServerProperties,
    Topics,
    given_paths,
    process_count,
)
from eoctl.output import Columns, OutputFormat, Report, emit, line, message, row_writer, while_read
from eoctl.parameters import advanced_option, option, output_option, records_option
from recovery.checks.context.broker_version import CHECKED, NEWEST, OLDEST
from recovery.fsck.one_pass import PartitionRow
from recovery.rules.catalogue import Explanation, explain, find_rules, near_names
from recovery.rules.findings import Finding, Severity
from recovery.start.files import StartChange
from storage.dirs.acknowledged_offsets import InCluster, in_cluster
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError
from storage.file_names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.commands.shared.check_run import CheckRequest
    from recovery.fsck.verdict import DirectoryVerdict


CheckExpiryMs = Annotated[
    int | None,
    advanced_option(
        "--producer-expiry-ms",
        min=0,
        metavar="MS",
        help="producer.id.expiration.ms of the broker.",
        show_default="86400000",
    ),
]


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    metadata_dir: MetadataDir = None,
    deep: Annotated[bool, option("--deep", help="Decompress and decode all records too.")] = False,
    fast: Annotated[
        bool, option("--fast", help="Headers only, no checksums and no records.")
    ] = False,
    topic: Topics = None,
    since: Annotated[
        str | None,
        records_option(metavar="TIME", help="Only partitions with files changed since this time."),
    ] = None,
    predict: Annotated[
        bool,
        option("--predict", help="Also list every file that the next broker start changes."),
    ] = False,
    broker_version: Annotated[
        str | None,
        advanced_option(
            metavar="VERSION",
            help=f"Kafka release that will start, {OLDEST} to {NEWEST}.",
            show_default=str(CHECKED.line),
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        option(metavar="FILE", help="Also write OpenMetrics text to FILE, for node_exporter."),
    ] = None,
    resume: Annotated[
        str | None,
        option(metavar="FILE", help="Save results in FILE, and reuse valid results."),
    ] = None,
    jobs: Jobs = None,
    io_limit: Annotated[
        int,
        advanced_option(
            metavar="MIB", min=0, help="Read at most this many MiB per second. 0 is no limit."
        ),
    ] = 0,
    explain: Annotated[
        str | None,
        option(metavar="ID", help="Explain a rule (BAT-1) or a family (BAT). Takes no PATH."),
    ] = None,
    now: Now = None,
    producer_expiry_ms: CheckExpiryMs = None,
    fail_on: FailOn = Severity.WARNING,
    verbose: Annotated[
        bool, output_option("--verbose", "-v", help="All fields, on a terminal too.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Check partitions, or whole log dirs, against the rules a broker lives by.

    Each finding has the rule it breaks, where, how grave it is, and what a broker does about it at
    its next start. A normal state after a clean stop, after a crash, or in use is no finding.
    """
    wanted = given_paths(paths, server_properties)
    if explain is not None:
        if wanted:
            raise UsageError(
                "--explain takes no PATH", next_step=f"eoctl check --explain {explain}"
            )

        return explain_rules(explain, output)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl check PATH...")
    if deep and fast:
        raise UsageError("--deep and --fast exclude each other")
    from eoctl.commands.shared.check_run import CheckRequest

    return run_check(
        CheckRequest(
            wanted,
            metadata_dir=metadata_dir,
            is_deep=deep,
            is_fast=fast,
            topics=tuple(topic or ()),
            since=since,
            predicts=predict,
            jobs=process_count(jobs),
            io_limit_mib=io_limit,
            now=now,
            expiration_ms=producer_expiry_ms,
            fail_on=fail_on,
            resume=resume,
            server_properties=server_properties,
            broker_version=broker_version,
            is_verbose=verbose,
            metrics=metrics,
        ),
        output,
    )


# -- `eoctl check --explain`: the rule of an id, for people and programs


_WIDTH = 80
_PARTS = (
    ("broker_action", "A broker"),
    ("fix", "To put it right"),
    ("excused", "Excused"),
    ("kafka_class", "In Kafka"),
    ("page", "See"),
)


def explain_rules(name: str, output: OutputFormat) -> int:
    """Print a rule, or a family of rules. UsageError: none has this name."""
    rules = find_rules(name)
    if not rules:
        near = near_names(name)
        next_step = f"did you mean {', '.join(near)}?" if near else "see docs/rules/README.md"
        raise UsageError(f"no rule has the id {name!r}", next_step=next_step)
    explanations = [explain(rule) for rule in rules]
    if output is OutputFormat.TEXT:
        line("\n\n".join(map(_text, explanations)))
        return EXIT_OK
    put = row_writer(output)
    for each in explanations:
        put({"kind": "rule", **each._asdict()})
    return EXIT_OK


def _text(rule: Explanation) -> str:
    head = f"{rule.check_id}  {rule.severity}".rstrip()
    lines = [head, *textwrap.wrap(rule.title, _WIDTH, break_on_hyphens=False)]
    said = rule._asdict()
    for name, words in _PARTS:
        if said[name]:
            first = f"{words}: "
            lines += textwrap.wrap(
                said[name],
                _WIDTH,
                initial_indent=f"  {first}",
                subsequent_indent="    ",
                break_on_hyphens=False,
                break_long_words=False,
            )
    return "\n".join(lines)


# -- the replicas of a check in their cluster: next to its rows, not in them
#
# Saved results of a check hold for the files. The metadata are read again each time.


PLACED_COLUMNS = ("leader", "isr", "min_insync_replicas", "min_insync_from", "standing")
PARTITION_COLUMNS = Columns(
    (*PartitionRow._fields[:-1], *PLACED_COLUMNS, PartitionRow._fields[-1]),
    answers=(
        *("topic", "partition", "errors", "warnings", "notes", "end_offset", "start_end_offset"),
        "start",
    ),
)


class CheckedCluster:
    """The cluster metadata for the rows of a check, valid after the check has ended."""

    def __init__(self, run: CheckRun) -> None:
        self._run = run

    @cached_property
    def placed(self) -> list[tuple[PartitionRow, InCluster]]:
        """Each row, and its directory's place in the cluster."""
        return [
            (row, in_cluster(*job.selected, job.image))
            for row, job in zip(self._run.rows, self._run.jobs, strict=False)
        ]

    def rows(self, output: OutputFormat) -> Iterator[tuple[Any, ...]]:
        """Yield the rows with `PARTITION_COLUMNS`."""
        for row, placed in self.placed:
            known = [getattr(placed, each) for each in PLACED_COLUMNS]
            if output is OutputFormat.TEXT and placed.leader == -1:
                known[0] = NO_LEADER
            yield (*row[:-1], *known, row[-1])

    def words(self) -> str:
        """Return a summary in one line, "" if nothing is known."""
        return state_words([placed for _, placed in self.placed])

    @cached_property
    def notes(self) -> list[str]:
        """The source of the metadata, and the problems in them."""
        reported = ClusterNotes()
        reported.add_unread(self._run.clusters.unread)
        for job, (row, placed) in zip(self._run.jobs, self.placed, strict=False):
            if row.topic != METADATA_TOPIC:
                reported.add_image(job.image)
                reported.add(f"{row.topic}-{row.partition}", row.path, placed)
        return [*reported.notes()]

    @property
    def is_short(self) -> bool:
        """True if metadata that were used are incomplete, and no finding says so."""
        jobs = self._run.jobs
        images = {id(each.image): each.image for each in jobs if each.image is not None}
        doubtful = [each.path for each in images.values() if not each.is_complete]
        checked = {os.path.realpath(each.selected.partition.path) for each in jobs}
        is_found = all(os.path.realpath(each) in checked for each in doubtful)
        return not is_found or bool(self._run.clusters.unread)


# -- a run of `eoctl check`: its scope, its rows and its notes


def run_check(request: CheckRequest, output: OutputFormat) -> int:
    """Check, print, and return the exit status.

    On a terminal the output is a verdict and a line for each finding. Programs, and `-v`, get all
    fields.
    """
    is_reported = is_for_people(output) and not request.is_verbose
    run, end_notes = prepared(request, CheckRun)
    if request.metrics is not None:
        from eoctl.commands.shared.check_metrics import require_outside

        require_outside(request.metrics, run)
    cluster = CheckedCluster(run)
    reports: list[Report] = []
    if not is_reported:
        reports.append(Report("finding", Columns(Finding._fields, is_whole=True), run.findings()))
        reports.append(Report("partition", PARTITION_COLUMNS, cluster.rows(output)))
    if request.predicts and is_reported:
        reports.append(Report("start_change", FOLDED_COLUMNS, _folded(run.changes)))
    elif request.predicts:
        reports.append(Report("start_change", StartChange._fields, run.changes))
    if is_reported:
        verdict = _report(run, request, cluster)
    for place, each in enumerate(reports):
        if (place or is_reported) and output is OutputFormat.TEXT:
            line("")
        is_first = not place and not is_reported
        with while_read(lambda: run.status, is_verdict=True) if is_first else nullcontext():
            emit(each, output)
    # The answer contains the first note, the scope of the verification.
    for note in (*run.notes[1:], *cluster.notes, *end_notes()):
        message(note)
    if not is_reported:
        from eoctl.commands.shared.check_verdict import top, verdict_of_run

        message(run.summary())
        verdict = verdict_of_run(run, request)
        report_answer(top(verdict, answer_width(output)), output)
    # With incomplete metadata the verdict does not cover everything.
    status = run.status or (EXIT_SKIPPED if cluster.is_short else EXIT_OK)
    if request.metrics is not None:
        from eoctl.commands.shared.check_metrics import write_metrics

        write_metrics(request.metrics, run, verdict, status)
    return status


def _report(run: CheckRun, request: CheckRequest, cluster: CheckedCluster) -> DirectoryVerdict:
    """Print the verdict on a terminal, and return it."""
    from eoctl.commands.shared.check_verdict import lines, verdict_of_run

    with while_read(lambda: run.status, is_verdict=True):
        for _ in run.findings():
            pass
        verdict = verdict_of_run(run, request)
        report(lines(verdict, screen_size()[0], cluster.words()))
    return verdict


def _kind_of_change(change: StartChange) -> tuple[str, str]:
    """Return a change's kind and file: the suffix of a segment's file, unless truncated."""
    name = os.path.basename(change.path)  # noqa: PTH119
    suffix = name.lstrip("0123456789")
    is_of_segment = suffix.startswith(".") and change.size_bytes is None
    return str(change), f"*{suffix}" if is_of_segment else name


FOLDED_COLUMNS = Columns(
    ("directories", "changes", "first"), answers=("changes", "directories", "first")
)


def _folded(changes: Iterable[StartChange]) -> Iterator[tuple[int, str, str]]:
    """Group directories with the same changes: their number, the changes, one directory."""
    by_directory: dict[str, list[StartChange]] = {}
    for each in changes:
        by_directory.setdefault(os.path.dirname(each.path), []).append(each)  # noqa: PTH120
    alike: dict[str, list[str]] = {}
    for directory, found in by_directory.items():
        parts: dict[str, list[str]] = {}
        for (action, name), count in Counter(map(_kind_of_change, found)).items():
            parts.setdefault(action, []).append(name if count == 1 else f"{count} {name}")
        words = "; ".join(f"{action} {', '.join(names)}" for action, names in parts.items())
        alike.setdefault(words, []).append(directory)
    for words, paths in alike.items():
        yield len(paths), words, paths[0]
