"""`eoctl rebuild`: derive indexes, snapshots and leader epochs from the `.log` files."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clock import resolve_now
from eoctl.command_line import Lacking, require_given
from eoctl.commands.shared.changes import ChangeCommand, Planned, compared_lines, derived_answer
from eoctl.messages import is_for_people, report_answer
from eoctl.output import Columns, OutputFormat, Report, emit, error, flush, while_read
from eoctl.parameters import advanced_option, argument, option, safety_option
from eoctl.progress import Progress, log_bytes
from recovery.changes.plans.plan import absolute_path
from recovery.rebuild.derive import RebuildSettings
from recovery.rebuild.diff import FileState
from recovery.rebuild.index_builder import DEFAULT_INDEX_MAX_BYTES, DEFAULT_INTERVAL_BYTES
from recovery.rebuild.partitions import (
    Derived,
    RebuildJob,
    derived_plan,
    rebuild_many,
    write_elsewhere,
)
from recovery.replay.recover_state import recovery_price
from storage.counts import counted
from storage.dirs.discovery import discover
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, AccessError, UsageError
from storage.file_names import METADATA_TOPIC, DirState
from storage.files import fsio
from storage.limits import INT32_MAX
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from eoctl.commands.shared.changes import Done, PlanAnswer
    from recovery.changes.plans.plan import Plan
    from recovery.cluster.clusters import Clusters
    from recovery.rebuild.diff import FileDifference
    from recovery.rebuild.partitions import RebuildResult
    from recovery.replay.recover_state import RecoveryCost
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Discovery, Selected
    from storage.dirs.log_dir import LogDir


@with_change()
def command(
    paths: Annotated[
        list[str], argument(metavar="PARTITION...", help="Partition directories or log dirs.")
    ],
    topic: options.Topics = None,
    index_interval_bytes: Annotated[
        int | None,
        advanced_option(
            min=0,
            max=INT32_MAX,
            metavar="BYTES",
            help="index.interval.bytes.",
            show_default="the topic's",
        ),
    ] = None,
    index_max_bytes: Annotated[
        int | None,
        advanced_option(
            min=12,
            max=INT32_MAX,
            metavar="BYTES",
            help="segment.index.bytes.",
            show_default="the topic's",
        ),
    ] = None,
    preallocate: Annotated[
        bool,
        advanced_option(
            "--preallocate", help="Preallocate the active indexes as a running broker does."
        ),
    ] = False,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    metadata_dir: options.MetadataDir = None,
    to: Annotated[
        str | None, option(metavar="DIR", help="Write all rebuilt files below DIR instead.")
    ] = None,
    apply: Annotated[
        bool, safety_option("--apply", help="Write the files that differ or are missing.")
    ] = False,
    change: ChangeOptions = PLAN_ONLY,
    jobs: options.Jobs = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Rebuild what a broker derives from the .log files, and show what differs on disk.

    Nothing is written without --apply or --to.
    """
    from eoctl.commands.shared.changes import run_change
    from recovery.cluster.placement import lost_partitions
    from storage.dirs.discovery import discover

    if to is not None and (change.is_kept):
        raise UsageError("--apply writes in place, --to elsewhere. Give one of them")
    wanted = options.given_paths(paths, None, topic)
    work, notes = rebuild_jobs(
        wanted,
        interval_bytes=index_interval_bytes,
        index_max_bytes=index_max_bytes,
        preallocate=preallocate,
        expiration_ms=producer_expiry_ms,
        now=now,
        metadata_dir=metadata_dir,
        is_applied=change.is_kept,
    )
    if to is not None:
        from recovery.rebuild.partitions import require_elsewhere

        for each in work:
            require_elsewhere(to, each.selected)
    found = discover(wanted)
    absent = lost_partitions(found.whole)
    run = RebuildRun(
        work,
        options.process_count(jobs),
        [*notes, *map(str, absent)],
        # An unopened partition was not derived. A partition without its log start may be wrong.
        is_short=bool(absent)
        or any(isinstance(each, AccessError) for each in found.problems)
        or any(each.problems for each in found.selected),
    )
    if change.is_kept:
        return run_change(run.change(is_saved=not apply), change, output)
    return run.show(to, output)


# -- from the options of `rebuild` to a job for each partition, with its settings


# The setting of a topic, and of a broker for all topics.
INTERVAL_SETTINGS = ("index.interval.bytes", "log.index.interval.bytes")
INDEX_SIZE_SETTINGS = ("segment.index.bytes", "log.index.size.max.bytes")


def rebuild_jobs(
    paths: Sequence[str],
    *,
    interval_bytes: int | None,
    index_max_bytes: int | None,
    preallocate: bool,
    expiration_ms: int | None,
    now: str | None,
    metadata_dir: str | None,
    is_applied: bool = False,
) -> tuple[list[RebuildJob], list[str]]:
    """Return the jobs, and notes on the clock and the source of the settings.

    Directories that are being deleted are skipped. So is the metadata log if it would be changed,
    and it is refused if a PATH names it.

    Raises:
        UsageError: no PATH has a partition.
    """
    found = discover(paths)
    clusters = _clusters(found, metadata_dir)
    log_dirs = [each.path for each in found.log_dirs]
    moment = resolve_now(now, log_dirs)
    notes = [moment.describe(), *map(str, found.problems)]
    jobs = []
    named = named_directories(paths)
    for selected in found.selected:
        if selected.partition.name.state is DirState.DELETE:
            notes.append(f"{selected.partition.path}: skipped, it is being deleted")
            continue
        is_metadata = selected.partition.name.topic == METADATA_TOPIC
        if is_applied and is_metadata and not is_named(selected.partition.path, named):
            notes.append(f"{selected.partition.path}: skipped, it is never changed")
            continue
        image = None if clusters is None else clusters.image_for(selected.log_dir)
        topic = selected.partition.name.topic
        interval = interval_bytes
        if interval is None:
            interval = _setting(image, topic, *INTERVAL_SETTINGS, DEFAULT_INTERVAL_BYTES)
            notes += _doubts_of_interval(selected.partition.path, image, interval)
        settings = RebuildSettings(
            now_ms=moment.ms,
            interval_bytes=interval,
            expiration_ms=DEFAULT_EXPIRATION_MS if expiration_ms is None else expiration_ms,
        )
        largest = index_max_bytes or _setting(
            image, topic, *INDEX_SIZE_SETTINGS, DEFAULT_INDEX_MAX_BYTES
        )
        jobs.append(
            RebuildJob(
                selected=selected,
                settings=settings,
                index_max_bytes=largest,
                preallocate=preallocate,
            )
        )
    if not jobs:
        raise UsageError(
            "no partition there that can be changed", next_step="eoctl describe PATH..."
        )
    return jobs, notes


def _doubts_of_interval(
    path: str, image: ClusterImage | None, interval_bytes: int
) -> Iterator[str]:
    """Yield why the actual `index.interval.bytes` may differ from the assumed value."""
    if image is None:
        yield (
            f"{path}: no cluster metadata: index.interval.bytes taken as {DEFAULT_INTERVAL_BYTES}"
        )
    elif image.problems:
        yield (
            f"{path}: the cluster metadata cannot be read in full, so index.interval.bytes may be"
            f" another than {interval_bytes}: {image.problems[0]}"
        )


def named_directories(paths: Iterable[str]) -> frozenset[Path]:
    """Return the real paths of the PATHs and of all their parent directories."""
    real = [Path(os.path.realpath(each)) for each in paths]
    return frozenset(around for each in real for around in (each, *each.parents))


def is_named(partition_path: str, named: Collection[Path]) -> bool:
    """Return whether a PATH is the directory itself, or lies in it.

    Args:
        partition_path: the directory.
        named: `named_directories` of the PATHs, computed once for all partitions.
    """
    return Path(os.path.realpath(partition_path)) in named


def _clusters(found: Discovery, metadata_dir: str | None) -> Clusters | None:
    """Return the source of the topics' settings, or None without any cluster metadata."""
    has_metadata = any(
        each.name.topic == METADATA_TOPIC
        for log_dir in found.log_dirs
        for each in log_dir.partitions
    )
    if metadata_dir is None and not has_metadata:
        return None
    from recovery.cluster.clusters import Clusters, find_metadata

    metadata = None if metadata_dir is None else find_metadata(metadata_dir)
    return Clusters(found.log_dirs, metadata)


def _setting(
    image: ClusterImage | None, topic: str, topic_key: str, broker_key: str, default: int
) -> int:
    """Return the topic's setting, else the broker's dynamic setting, else Kafka's default."""
    if image is None:
        return default
    for value in (image.topic_config(topic, topic_key), image.broker_config(broker_key)):
        if value is not None and value.isdecimal():
            return int(value)
    return default


# -- one run of `rebuild`: the results of partitions as rows, as files elsewhere, or as plans


class DerivedFileRow(NamedTuple):
    """The row of a file that a broker derives. The size of an absent file is 0."""

    partition: str
    file: str
    state: str
    disk_bytes: int
    rebuilt_bytes: int
    written: bool
    reason: str


COLUMNS = Columns(DerivedFileRow._fields, answers=(
    "partition", "file", "state", "written", "reason",
))  # fmt: skip


class _PlannedFile(NamedTuple):
    """A row before any write, and whether the plan writes its file."""

    path: str
    row: DerivedFileRow
    is_written: bool


class RebuildRun:
    """A rebuild of the files of all given partitions, with its rows, notes and status."""

    def __init__(
        self, work: Sequence[RebuildJob], processes: int, notes: Sequence[str], *, is_short: bool
    ) -> None:
        """Take the jobs of `rebuild_jobs`. `is_short`: some partitions are missing from them."""
        self._work = work
        self._processes = processes
        self._notes = [*notes]
        self._has_findings = False
        self._has_failed = is_short
        self._damaged: list[str] = []  # paths whose files are not written in place
        self._rows_count = self._others_count = 0
        self._is_changeable = False  # a partition other than `__cluster_metadata` differs
        self._planned: list[_PlannedFile] = []
        self._prices: dict[str, RecoveryCost] = {}  # by log dir

    @property
    def status(self) -> int:
        """The exit status so far."""
        if self._has_failed:
            return EXIT_SKIPPED
        return EXIT_FINDINGS if self._has_findings else EXIT_OK

    # -- without changes in place

    def show(self, to: str | None, output: OutputFormat) -> int:
        """Print the differences, and write all files below `to` if it is given.

        Raises:
            AccessError, RefusedError: as `write_elsewhere`.
        """
        reading = while_read(lambda: self.status, is_verdict=True) if to is None else nullcontext()
        with reading:
            rows = self._counted(self._rows(to))
            is_reported = is_for_people(output)
            if is_reported:
                others = [each for each in rows if each.state != str(FileState.EQUAL)]
                rows = iter(others)
                self._report(to, output)
            report = Report(
                kind="derived_file",
                columns=COLUMNS,
                rows=rows,
                notes=self._notes,
            )
            emit(report, output)
            if not is_reported:
                self._report(to, output)
        return self.status

    def _counted(self, rows: Iterable[DerivedFileRow]) -> Iterator[DerivedFileRow]:
        for each in rows:
            self._rows_count += 1
            if each.state != str(FileState.EQUAL):
                self._others_count += 1
                self._is_changeable |= each.partition != f"{METADATA_TOPIC}-0"
            yield each

    def _report(self, to: str | None, output: OutputFormat) -> None:
        """Print the findings, and the next command."""
        if to is not None:
            return
        damaged = [each for each in self._damaged if Path(each).name != f"{METADATA_TOPIC}-0"]
        lines = compared_lines(
            self._others_count,
            self._rows_count,
            ("eoctl", "repair", *damaged) if damaged else None,
            is_changeable=self._is_changeable,
        )
        report_answer(lines, output)

    def _rows(self, to: str | None) -> Iterator[DerivedFileRow]:
        flush()  # before processes are started
        for result in self._results():
            self._note(result)
            if result.error is not None:
                self._has_failed = True
                error(result.error)
                continue
            names = [] if to is None else _written_elsewhere(result, to)
            for each in result.differences:
                # Without --apply a difference is a finding, but a file written elsewhere is not. An
                # absent .txnindex means the same as an empty .txnindex.
                self._has_findings |= bool(each.content) or bool(
                    each.content is not None and each.disk_bytes
                )
                yield _row(result, each, is_written=each.name in names)

    def _selected(self) -> list[Selected]:
        return [each.selected for each in self._work]

    def _results(self) -> Iterator[RebuildResult]:
        with Progress("rebuilding", lambda: log_bytes(self._selected())) as progress:
            for result in rebuild_many(self._work, self._processes):
                progress.advance(result.log_bytes)
                yield result

    # -- writing in place

    def change(self, *, is_saved: bool) -> ChangeCommand:
        """Return the command as `run_change` needs it. A saved plan covers all partitions.

        An applied plan covers one partition. Its files stay, even if the next partition fails.
        """

        def plan() -> Planned:
            return Planned(
                plans=self._one_plan() if is_saved else self._plans(),
                show=lambda done, output: self._print(done, output, is_applied=not is_saved),
                notes=self._notes,
                nothing="there is nothing to write",
                status=lambda: self.status,
                answer=self._answer,
            )

        return ChangeCommand(
            name="rebuild",
            selected=self._selected,
            arguments=lambda: [_arguments(each.selected.partition.path) for each in self._work],
            plan=plan,
            is_by_partition=len(self._work) > 1,
            shows_steps=False,
            applied_noun="partitions rebuilt",
        )

    def _answer(self) -> PlanAnswer:
        written = [each for each in self._planned if each.is_written]
        partitions_count = len({each.row.partition for each in written})
        return derived_answer(len(written), partitions_count)

    def _plans(self) -> Iterator[Plan]:
        log_dirs = self._log_dirs()
        for derived in self._derived():
            path = derived.partition_path
            price = self._price(log_dirs[path])
            yield derived_plan("rebuild", _arguments(path), [derived], price)

    def _one_plan(self) -> Iterator[Plan]:
        derived = list(self._derived())
        if derived:
            paths = [absolute_path(each.selected.partition.path) for each in self._work]
            log_dir = self._log_dirs()[derived[0].partition_path]
            price = None if len(derived) > 1 else self._price(log_dir)
            yield derived_plan("rebuild", {"partitions": paths}, derived, price)

    def _log_dirs(self) -> dict[str, LogDir | None]:
        return {each.selected.partition.path: each.selected.log_dir for each in self._work}

    def _derived(self) -> Iterator[Derived]:
        """Yield the files to write, by partition.

        Raises:
            RefusedError: damage.
            EoctlError: a partition cannot be read.
        """
        for result in self._results():
            self._note(result)
            if result.error is not None:
                raise result.error
            _refuse_damage(result)
            changed = ((each.name, each.content) for each in result.differences)
            files = [(name, content) for name, content in changed if content is not None]
            # Contents are dropped, because there may be thousands of partitions.
            self._planned += [
                _PlannedFile(
                    path=f"{result.path}/{each.name}",
                    row=_row(result, each, is_written=False),
                    is_written=each.content is not None,
                )
                for each in result.differences
            ]
            if files:
                yield Derived(result.path, files, result.logs)

    def _print(self, done: Done, output: OutputFormat, *, is_applied: bool) -> None:
        rows = (
            each.row._replace(
                written=(is_applied and each.is_written) or done.was_resumed(each.path)
            )
            for each in self._planned
        )
        emit(Report("derived_file", COLUMNS, rows), output)

    def _price(self, log_dir: LogDir | None) -> RecoveryCost | None:
        """Return the recovery at the next broker start in a log dir, or None if unknown.

        It is computed and reported once for a log dir.
        """
        if log_dir is None:
            return None
        if log_dir.path not in self._prices:
            found = self._prices[log_dir.path] = recovery_price(log_dir)
            self._notes.append(
                f"{log_dir.path}: without the clean-shutdown marker, which goes before the first"
                f" change, the next start of the broker recovers"
                f" {counted(found.partitions_count, 'partition')}, {found.log_bytes:,} bytes of log"
            )
        return self._prices[log_dir.path]

    def _note(self, result: RebuildResult) -> None:
        self._notes += result.notes
        self._has_failed |= bool(result.unread) or result.is_short
        cut = result.cut
        is_split = cut is not None and cut.verdict.check_id == "SEG-3"  # which no repair can do
        if result.unread or (cut is not None and not cut.verdict.kind.is_end and not is_split):
            self._damaged.append(result.path)
        if cut is not None and is_split:
            self._has_findings = True
            self._notes.append(
                f"{result.path}/{cut.base_offset:020d}.log: position {cut.valid_bytes}: a broker"
                f" splits the segment here when it recovers it ({cut.verdict.reason})"
            )
        elif cut is not None:
            self._has_findings = True
            self._notes.append(
                f"{result.path}/{cut.base_offset:020d}.log: position {cut.valid_bytes}: recovery "
                f"would truncate {cut.log_bytes - cut.valid_bytes} bytes here and drop all later "
                f"segments ({cut.verdict.kind.replace('_', ' ')}: {cut.verdict.reason})"
            )


def _arguments(partition_path: str) -> dict[str, Any]:
    """Return the arguments that identify an unfinished rebuild of a partition."""
    return {"partition": absolute_path(partition_path)}


def _refuse_damage(result: RebuildResult) -> None:
    """Refuse derived files that would contradict bytes that are still in the log."""
    lacking = [
        Lacking(
            why=f"{problem}; the rebuilt files would lack what is in it",
            first="--to DIR, and decide what becomes of that file first",
        )
        for problem in result.unread
    ]
    cut = result.cut
    if cut is not None and not cut.verdict.kind.is_end:
        lacking.append(
            Lacking(
                why=f"{result.path}: the log is damaged at position {cut.valid_bytes} of segment"
                f" {cut.base_offset}; files for the part before it would hide that",
                first="--to DIR, and decide what becomes of the log first",
            )
        )
    require_given("", lacking)


def _written_elsewhere(result: RebuildResult, directory: str) -> list[str]:
    rebuilt = [(each.name, each.rebuilt) for each in result.differences]
    files = [(name, content) for name, content in rebuilt if content is not None]
    return write_elsewhere(fsio.FileSystem(), directory, _name_of(result), files)


def _name_of(result: RebuildResult) -> str:
    return Path(os.path.realpath(result.path)).name


def _row(result: RebuildResult, each: FileDifference, *, is_written: bool) -> DerivedFileRow:
    reason = each.reason
    if each.first_pos is not None and not reason:
        reason = f"from byte {each.first_pos} on"
    return DerivedFileRow(
        partition=_name_of(result),
        file=each.name,
        state=str(each.state),
        disk_bytes=each.disk_bytes or 0,
        rebuilt_bytes=each.rebuilt_bytes or 0,
        written=is_written,
        reason=reason,
    )
