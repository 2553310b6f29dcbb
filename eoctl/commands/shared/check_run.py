"""A run of `eoctl check`: its scope, findings as they are found, rows, and notes for the end."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from eoctl import __version__
from eoctl.clock import format_time_ms, parse_time_ms, resolve_now
from eoctl.messages import notes_in_use
from eoctl.output import flush
from recovery.changes.journals.losses import journal_losses
from recovery.changes.plans.file_facts import list_files
from recovery.checks.context.broker_version import DIRECTORY_IDS, is_before, parse_broker_version
from recovery.checks.context.collector import Collector
from recovery.checks.log_dirs.log_dirs import (
    check_absent,
    check_log_dirs,
    is_explained,
    lost_by_changes,
    placements_of,
    unfinished_changes,
)
from recovery.checks.partition_check import CheckOptions
from recovery.checks.replay_check import ReplayLimits
from recovery.cluster.placement import DirFate, nodes_of
from recovery.forecast.one_forecast import (
    findings_of,
    forecast_log,
    free_bytes_of,
    horizon_at,
    node_settings,
)
from recovery.fsck.one_pass import CheckJob, PartitionRow, check_one
from recovery.fsck.state import CheckState, key_of
from recovery.fsck.verdict import PlacedFinding, ends_start
from recovery.pool import MIN_PARTITION_BYTES, map_unordered, paying_jobs
from recovery.rules.findings import Finding, Severity
from recovery.start.log_dirs import StartedOffsets, changed_log_dirs
from recovery.start.prediction import STARTS_WITHOUT
from storage.counts import counted
from storage.dirs.discovery import discover, read_server_properties
from storage.errors import (
    EXIT_ACCESS,
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    UsageError,
)
from storage.file_names import METADATA_TOPIC, DirState
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.changes.journals.losses import JournalLoss
    from recovery.cluster.clusters import Clusters
    from recovery.forecast.one_forecast import LogForecast
    from recovery.fsck.one_pass import CheckResult
    from recovery.start.files import StartChange
    from storage.dirs.discovery import Discovery, Selected, ServerProperties
    from storage.dirs.log_dir import PartitionDir


class CheckRequest(NamedTuple):
    """The options as given."""

    paths: Sequence[str]
    metadata_dir: str | None = None
    is_deep: bool = False
    is_fast: bool = False
    topics: tuple[str, ...] = ()
    since: str | None = None
    predicts: bool = False
    jobs: int = 1
    io_limit_mib: int = 0
    now: str | None = None
    expiration_ms: int | None = None
    fail_on: Severity = Severity.WARNING
    resume: str | None = None
    server_properties: str | None = None
    broker_version: str | None = None
    is_verbose: bool = False
    metrics: str | None = None


class CheckRun:
    """A check of the requested partitions and log dirs.

    Attributes:
        rows: the partitions, in the order of the directories, complete after `findings`.
        changes: the changes of the next start.
        forecasts: of the logs that the next start loads.
        notes: sentences for the end.
        placed, changes_of: all findings, and the changes of a start by directory, if kept.
        found, clusters, jobs: the scope of the check.
        placements, moves: the effects of a start on the directories of the nodes.
        blocked: records that only directories with a suffix have.
        node: the configuration of the node of all log dirs, None if not given.
        unreadable_count: files, or parts of them.
        now_ms: the clock.
        until_ms: the end of the forecasts. None: the first run.
        release: the release that starts. None: CHECKED.
    """

    def __init__(
        self,
        found: Discovery,
        selected: Sequence[Selected],
        clusters: Clusters,
        options: CheckOptions,
        *,
        jobs: int,
        bytes_per_second: int,
        fail_on: Severity,
        node: ServerProperties | None,
        topics: Sequence[str] = (),
        state: CheckState | None = None,
    ) -> None:
        self.rows: list[PartitionRow] = []
        self.changes: list[StartChange] = []
        self.forecasts: list[LogForecast] = []
        self.until_ms: int | None = None
        self.notes: list[str] = [_verified(options)]
        self.placed: list[PlacedFinding] = []
        self.changes_of: dict[str, tuple[StartChange, ...]] = {}
        self.found = found
        self.clusters = clusters
        self.node = node
        # All processes share an --io-limit.
        sizes_bytes = (each.log_bytes() for each in selected)
        self._jobs_count = jobs = _paying_jobs(jobs, sizes_bytes, options)
        self.release = options.broker_version
        self.placements = placements_of(
            found.log_dirs, clusters.image_for, self.release, is_one_node=node is not None
        )
        whole = {each.path for each in found.whole}
        paths = {each.partition.path for each in found.selected}
        self.blocked = [
            each
            for node in self.placements
            for each in node.blocked()
            if each.log_dir.path in whole or each.path in paths
        ]
        self.moves = moves = {
            path: one for node in self.placements for path, one in node.placed.items()
        }
        self.jobs = [
            CheckJob(
                selected=each,
                image=clusters.image_for(each.log_dir),
                options=options,
                bytes_per_second=bytes_per_second // min(jobs, max(len(selected), 1)),
                fate=None if each.partition.path not in moves else moves[each.partition.path].fate,
            )
            for each in selected
        ]
        self._fail_on = fail_on
        self.now_ms = options.now_ms
        self._topics = topics
        self._state = state
        self._predicts = options.predicts
        self._started: dict[str, StartedOffsets] = {}
        self._counts: Counter[Severity] = Counter()
        self._losses: list[JournalLoss] = []
        self.unreadable_count = 0
        self.unread_count = 0  # partitions that may have rotted since an earlier run
        self.notes += notes_in_use(found.log_dirs)

    read: Callable[..., Any] = staticmethod(check_one)

    def arrived(self, found: Any) -> CheckResult:
        """Take a result of `read`. A run that reads more keeps the rest here."""
        result: CheckResult = found
        return result

    def arriving(self, jobs: Sequence[CheckJob], jobs_count: int) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of `read` of each partition, as processes finish."""
        return map_unordered(
            self.read, jobs, jobs_count, name_of=lambda job: job.selected.partition.path
        )

    def is_apart(self, jobs_count: int, partitions_count: int) -> bool:
        """Return whether other processes read the partitions."""
        return jobs_count > 1 and partitions_count > 1

    def findings(self) -> Iterator[Finding]:
        """Check, and yield findings as they are found, in order within a directory."""
        for each in self._of_log_dirs():
            self.placed.append(PlacedFinding("", each))
            yield each
        results: dict[int, CheckResult] = {}
        keys: list[bytes] = []
        if self._state is not None:
            keys = [key_of(each) for each in self.jobs]
            for number, (job, key) in enumerate(zip(self.jobs, keys, strict=True)):
                known = self._state.take(job, key)
                if known is not None:
                    results[number] = known
            if results:
                since = format_time_ms(min(each.read_ms for each in self._state.taken))
                self.unread_count = self._state.unread_count
                self.notes.append(
                    f"{counted(len(results), 'partition')} as an earlier run found them:"
                    f" unchanged since {since}, not read again"
                )
        try:
            yield from self._in_order(results, keys)
            if self._state is not None:
                self._state.finish()
        finally:
            if self._state is not None:
                self._state.save()
        if self._predicts:
            self.changes += self._log_dir_changes()

    def _log_dir_changes(self) -> Iterator[StartChange]:
        """Yield the changes of the next start outside partitions, if all of a node's are known."""
        for log_dirs in nodes_of(self.found.log_dirs, is_one=self.node is not None):
            live = [
                each.path
                for log_dir in log_dirs
                for each in log_dir.partitions
                if self._is_live(each) and each.name.topic != METADATA_TOPIC
            ]
            if all(path in self._started for path in live):
                started = {path: self._started[path] for path in live}
                image = self.clusters.image_for(log_dirs[0])
                gives_ids = not is_before(self.release, DIRECTORY_IDS)
                yield from changed_log_dirs(
                    log_dirs, image, started, self.moves, gives_ids=gives_ids
                )

    def _is_live(self, directory: PartitionDir) -> bool:
        """Return whether a start treats a directory as the live directory of its partition."""
        placed = self.moves.get(directory.path)
        is_promoted = placed is not None and placed.fate is DirFate.PROMOTED
        return directory.name.state is DirState.LIVE or is_promoted

    def _in_order(
        self, results: dict[int, CheckResult], keys: Sequence[bytes]
    ) -> Iterator[Finding]:
        """Check partitions without a result, and take all results in order of directories."""
        from eoctl.progress import Progress

        numbers = [each for each in range(len(self.jobs)) if each not in results]
        jobs = [self.jobs[each] for each in numbers]
        sizes_bytes = [each.selected.log_bytes() for each in jobs]
        jobs_count = self._jobs_count
        if jobs:  # not covered by an earlier run
            jobs_count = _paying_jobs(jobs_count, sizes_bytes, jobs[0].options)
        is_parallel = self.is_apart(jobs_count, len(jobs))
        next_number = 0
        with Progress("checking", sum(sizes_bytes)) as progress:
            if is_parallel:
                flush()
                arrived = self.arriving(jobs, jobs_count)
            else:
                one = partial(self.read, on_bytes=progress.advance)
                arrived = ((place, one(job)) for place, job in enumerate(jobs))
            for place, found in chain(arrived, [(None, None)]):
                if place is not None and found is not None:
                    result = results[numbers[place]] = self.arrived(found)
                    if is_parallel:
                        progress.advance(result.row.log_bytes or 0)
                    if self._state is not None:
                        self._state.add(jobs[place], keys[numbers[place]], result)
                while next_number in results:
                    yield from self._take(results.pop(next_number))
                    next_number += 1

    def _of_log_dirs(self) -> Iterator[Finding]:
        """Yield findings on log dirs, which a broker meets before it opens a partition."""
        around = (str(Path(each.partition.path).parent) for each in self.found.selected)
        for each in unfinished_changes([*(each.path for each in self.found.log_dirs), *around]):
            self._counts[each.severity] += 1
            yield each
        directories = [each.selected.partition.path for each in self.jobs]
        self._losses = [*journal_losses({str(Path(path).parent) for path in directories})]
        for each in lost_by_changes(self._losses, directories):
            self._counts[each.severity] += 1
            yield each
        collectors = {id(each): Collector(topics=self._topics) for each in self.found.log_dirs}
        check_log_dirs(
            self.found.log_dirs,
            lambda each: collectors[id(each)],
            is_one_node=self.node is not None,
            node=self.node,
            placements=self.placements,
            version=self.release,
        )
        check_absent(
            self.found.whole, self.clusters, lambda each: collectors[id(each)], self.blocked
        )
        for collector in collectors.values():
            self._counts += collector.severity_counts()
            yield from collector.kept
        for problem in self.found.problems:
            if isinstance(problem, AccessError):
                self.notes.append(str(problem))
                self.unreadable_count += 1

    def _without_explained(self, result: CheckResult) -> CheckResult:
        """Leave out findings that a journal explains, because they are reported once as such."""
        path = os.path.realpath(result.row.path)
        losses = [each for each in self._losses if os.path.realpath(each.directory) == path]
        reported = [each for each in result.findings if losses and is_explained(each, losses)]
        if not reported:
            return result
        counts = Counter(each.severity for each in reported)
        return result._replace(
            findings=tuple(each for each in result.findings if each not in reported),
            row=result.row._replace(
                errors=(result.row.errors or 0) - counts[Severity.ERROR],
                warnings=(result.row.warnings or 0) - counts[Severity.WARNING],
                notes=(result.row.notes or 0) - counts[Severity.NOTE],
            ),
        )

    def _with_forecast(self, result: CheckResult) -> CheckResult:
        """Add what the broker's tasks take at their first run to the findings."""
        if result.log is None:
            return result
        job = self.jobs[len(self.rows)]  # results come in the order of the jobs
        node = node_settings(job.selected.log_dir, job.image, self.node)
        horizon = horizon_at(self.now_ms, self.until_ms, self.release)
        forecast = forecast_log(result.log, node, horizon)
        self.forecasts.append(forecast)
        found = [*findings_of([forecast], free_bytes_of([result.row.path]), has_notes=False)]
        errors_count = sum(each.severity is Severity.ERROR for each in found)
        return result._replace(
            findings=(*result.findings, *found),
            row=result.row._replace(errors=(result.row.errors or 0) + errors_count),
        )

    def _take(self, result: CheckResult) -> Iterator[Finding]:
        result = self._with_forecast(self._without_explained(result))
        row = result.row
        self.rows.append(row)
        self.changes += result.changes
        self.changes_of[row.path] = result.changes
        self.placed += (PlacedFinding(row.path, each) for each in result.findings)
        self._started[row.path] = StartedOffsets(
            row.start_end_offset,
            result.log_start_line,
            is_refused=row.start_end_offset is None and row.start not in STARTS_WITHOUT,
        )
        self._counts[Severity.ERROR] += row.errors or 0
        self._counts[Severity.WARNING] += row.warnings or 0
        self._counts[Severity.NOTE] += row.notes or 0
        self.unreadable_count += row.unreadable
        self.notes += result.problems
        listed = len(result.findings)
        total = (row.errors or 0) + (row.warnings or 0) + (row.notes or 0)
        if total > listed:
            more = counted(total - listed, "more finding")
            self.notes.append(f"{row.path}: {more} of the same kinds")
        yield from result.findings

    def summary(self) -> str:
        """Return a summary in one sentence."""
        counts = self._counts
        return (
            f"{counted(len(self.rows), 'partition')}: {counted(counts[Severity.ERROR], 'error')},"
            f" {counted(counts[Severity.WARNING], 'warning')},"
            f" {counted(counts[Severity.NOTE], 'note')}"
        )

    @property
    def status(self) -> int:
        """Exit status."""
        # A state that stops the start need not be a finding: after a crash it may be normal.
        if any(map(ends_start, self.rows)):
            return EXIT_FINDINGS
        if any(count and each.rank >= self._fail_on.rank for each, count in self._counts.items()):
            return EXIT_FINDINGS
        if self.unreadable_count and all(row.batches is None for row in self.rows):
            return EXIT_ACCESS
        return EXIT_SKIPPED if self.unreadable_count or self.unread_count else EXIT_OK


Run = TypeVar("Run", bound=CheckRun)


def _verified(options: CheckOptions) -> str:
    if options.deep:
        return "verified: headers, checksums and records of all batches"
    if options.verify_crc:
        return "verified: headers and checksums of all batches; records were not decoded"
    return "verified: headers of all batches; no checksums, no records"


DEEP_TIMES = 8  # decoding large batches takes as long as reading this many times the bytes


def _paying_jobs(jobs: int, sizes_bytes: Iterable[int], options: CheckOptions) -> int:
    times = DEEP_TIMES if options.deep else 1
    weights_bytes = (each * times for each in sizes_bytes)
    return paying_jobs(jobs, weights_bytes, least_bytes=MIN_PARTITION_BYTES)


def prepared(request: CheckRequest, kind: type[Run]) -> tuple[Run, Callable[[], Sequence[str]]]:
    """Return the run for the options, and a function for the notes on its state at the end.

    `kind`: the class of the run, which may read more than a check.
    """
    from recovery.cluster.clusters import Clusters, find_metadata

    version = None
    if request.broker_version is not None:
        version = parse_broker_version(request.broker_version)
    found = discover(request.paths)
    node = None
    if request.server_properties is not None:
        node = read_server_properties(request.server_properties)
    metadata = None if request.metadata_dir is None else find_metadata(request.metadata_dir)
    moment = resolve_now(request.now, [each.path for each in found.log_dirs])
    state = None
    if request.resume is not None:
        state = CheckState(request.resume, f"eoctl {__version__}")
    limits = ReplayLimits()
    if request.expiration_ms is not None:
        limits = limits._replace(expiration_ms=request.expiration_ms)
    run = kind(
        found,
        _wanted(found, request),
        Clusters(found.log_dirs, metadata),
        CheckOptions(
            moment.ms,
            verify_crc=not request.is_fast,
            deep=request.is_deep,
            limits=limits,
            broker_version=version,
            predicts=request.predicts,
        ),
        jobs=request.jobs,
        bytes_per_second=request.io_limit_mib << 20,
        fail_on=request.fail_on,
        node=node,
        topics=request.topics,
        state=state,
    )
    run.notes.append(moment.describe())
    if version is not None:
        run.notes.append(f"the start is predicted for Kafka {version}")
    return run, lambda: () if state is None else state.notes


def _wanted(found: Discovery, request: CheckRequest) -> list[Selected]:
    selected = of_topics(found, request)
    if request.topics and not selected:
        raise UsageError(
            f"no partition of {', '.join(request.topics)} there",
            next_step="eoctl describe PATH...",
        )
    if request.since is not None:
        since_ms = parse_time_ms(request.since)
        selected = [each for each in selected if _changed_ms(each) >= since_ms]
    return selected


def of_topics(found: Discovery, request: CheckRequest) -> list[Selected]:
    """Return the partitions of the requested topics."""
    is_any = not request.topics
    return [e for e in found.selected if is_any or e.partition.name.topic in request.topics]


def _changed_ms(selected: Selected) -> int:
    """Return the newest mtime of a partition's files. An unreadable directory counts as new."""
    newest_ns = 0
    try:
        for name in list_files(selected.partition.path).values():
            newest_ns = max(newest_ns, name[1])
    except AccessError:
        return INT64_MAX
    return newest_ns // 1_000_000
