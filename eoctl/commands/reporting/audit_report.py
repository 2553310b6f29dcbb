"""Pictures on a terminal, and a report with the timelines of an audit."""

from __future__ import annotations

import os
from functools import partial
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.commands.report import require_target, write_page
from eoctl.commands.reporting.report_rows import InspectionRun, ReportGathering, gather
from eoctl.console.style import has_unicode, screen_size
from eoctl.messages import first_of
from eoctl.output import OutputFormat, inspect, message, write_drawn
from eoctl.report.model import SourceMark, VerdictMark
from eoctl.report.terminal import Canvas
from recovery.fsck.partition_state import inspect_one, inspect_with_image, inspect_without_timeline
from recovery.rules.findings import Severity
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import EoctlError, UsageError, pasted
from storage.files.uris import Uri, has_wildcard, is_uri, local_path
from storage.places.splits import TimelineStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eoctl.commands.reporting.report_options import ReportRequest
    from eoctl.commands.shared.audit_run import AuditResult
    from eoctl.commands.shared.engine import EngineRun
    from eoctl.report.model import Model
    from recovery.fsck.one_pass import CheckJob, CheckResult
    from recovery.fsck.partition_state import PartitionInspection
    from recovery.timeline.piece import Timeline
    from storage.dirs.cluster_image import ClusterImage


# -- pictures on a terminal: `eoctl describe --picture` and `eoctl txn list --picture`
#
# They are drawn from the rows of a report. Everything is read as by a check, so that the picture
# shows errors, and the exit status is the check's.


MAX_LANES = 40


def show_offsets(
    request: ReportRequest, output: OutputFormat, max_lanes: int | None, *, is_picture: bool
) -> int:
    """Draw partitions by offset, and return the exit status. Raises UsageError, and as `gather`."""
    from eoctl.report.offsets_chart import draw_offsets

    model, canvas = _begun(request, output, is_picture=is_picture)
    draw_offsets(canvas, model, max_lanes or MAX_LANES)
    return _shown(canvas, model)


def show_transactions(
    request: ReportRequest,
    output: OutputFormat,
    max_lanes: int | None,
    *,
    is_picture: bool,
    is_all: bool,
) -> int:
    """Draw transactions by time, and return the exit status. Raises UsageError, and as `gather`."""
    from eoctl.report.transactions_chart import draw_transactions

    model, canvas = _begun(request, output, is_picture=is_picture)
    draw_transactions(canvas, model, max_lanes or MAX_LANES, is_all=is_all)
    return _shown(canvas, model)


def _begun(
    request: ReportRequest, output: OutputFormat, *, is_picture: bool
) -> tuple[Model, Canvas]:
    """Check that a picture is possible, and read its rows."""
    if not is_picture:
        raise UsageError("--max-lanes goes with --picture")
    if output is not OutputFormat.TEXT:
        paths = " ".join(map(pasted, request.paths))
        raise UsageError(
            "--picture is for people, and has no rows",
            next_step=f"eoctl report {paths} --output {output}   # what is drawn, as rows",
        )
    if inspect().columns or inspect().has_all:
        raise UsageError("--picture has no columns. Leave out --columns")
    model = gather(request._replace(is_picture=True))
    return model, Canvas(screen_size()[0], has_unicode=has_unicode(), inspect=inspect())


def _shown(canvas: Canvas, model: Model) -> int:
    write_drawn(canvas.text().encode("utf-8", "backslashreplace").decode())
    notes = [each.value for each in model.sources if each.what in {"not read", "note"}]
    for each in first_of(notes, "notes"):
        message(each)
    return model.status


# -- a report with timelines of an audit, made by processes on this machine or by Spark
#
# Everything else is as in `eoctl report`. Each directory is checked by the engine of the audit, and
# data beyond the directories is read here. So both give the same page.
#
# So the `.log` files are read twice, by the audit and by the check. An audit splits segments into
# independent pieces and joins their summaries. A check reads a partition in order, since most of
# its rules compare with earlier batches. One pass for both would need a second implementation of
# the check.


REPORTED_COUNT = 3


class AuditedRun(InspectionRun):
    """A check by the engine of the audit, with the audit's timelines.

    Attributes:
        timelines: by directory, as an absolute path.
        engine: None for processes of this machine, as many as a check would use.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.timelines: dict[str, Timeline] = {}
        self.engine: EngineRun | None = None
        self._job_of = {each.selected.partition.path: each for each in self.jobs}

    def reader(self) -> Callable[..., PartitionInspection]:
        """Return the function that checks a partition without a timeline."""
        return inspect_without_timeline

    def starts(self) -> dict[str, TimelineStart]:
        """Return the starts of the directories' timelines, by absolute path."""
        found = {}
        for job in self.jobs:
            try:
                partition = Partition.of(job.selected, job.image)
            except EoctlError:
                continue  # the check reports it
            log_start = partition.local_log_start_offset or 0
            found[_absolute(partition.path)] = TimelineStart(log_start, max_bins=self.most_bins())
        return found

    def is_apart(self, jobs_count: int, partitions_count: int) -> bool:
        """Return whether other processes read the partitions, as on Spark always."""
        return self.engine is not None or super().is_apart(jobs_count, partitions_count)

    def arriving(self, jobs: Sequence[CheckJob], jobs_count: int) -> Iterator[tuple[int, Any]]:
        """Check directories on Spark, if the audit ran there."""
        if self.engine is None:
            yield from super().arriving(jobs, jobs_count)
            return
        # The metadata of a cluster are sent once, not with each directory.
        images: list[ClusterImage | None] = []
        numbered = []
        for job in jobs:
            if not any(job.image is each for each in images):
                images.append(job.image)
            number = next(n for n, each in enumerate(images) if job.image is each)
            numbered.append((number, job._replace(image=None)))
        yield from self.engine.map(partial(inspect_with_image, tuple(images)), numbered)

    def arrived(self, found: Any) -> CheckResult:
        """Join check and timeline. A directory without an audited timeline is read here."""
        path = found.check.row.path
        timeline = self.timelines.get(_absolute(path))
        if timeline is None:
            found = inspect_one(self._job_of[path], max_bins=self.most_bins())
        else:
            found = found._replace(timeline=timeline)
        return super().arrived(found)


class AuditedReport:
    """The page that an audit makes in addition to its own reports.

    Attributes:
        starts: see `AuditedRun.starts`.
    """

    def __init__(self, request: ReportRequest) -> None:
        """Check that the page can be written, and find its directories.

        Raises:
            UsageError: there is no directory, or it lies behind a URI.
            RefusedError, AccessError: the page cannot be written, or no directory can be read.
        """
        assert request.to is not None
        require_target(request.to, is_forced=request.is_forced, option="--report-html")
        self._request = request = request._replace(paths=[*_local(request.paths)])
        self._gathering = ReportGathering(request, AuditedRun)
        self.starts = self._gathering.run.starts()

    def write(self, result: AuditResult, engine: EngineRun) -> None:
        """Write the page of an audit."""
        run, request = self._gathering.run, self._request
        timelines = ((each.place.directory, each.timeline()) for each in result.audited)
        run.timelines = {
            _absolute(directory): timeline
            for directory, timeline in timelines
            if timeline is not None
        }
        if engine.chosen is not None and engine.chosen.is_spark:
            run.engine = engine
        model = self._gathering.model()
        assert request.to is not None
        write_page(request.to, _with_unread(model, result), max_lanes=request.max_lanes)


def _with_unread(model: Model, result: AuditResult) -> Model:
    """Add a verdict on parts that the audit could not read, though the check could."""
    reported = {_absolute(each.path) for each in model.partitions if each.unreadable}
    unread = [
        each.place.directory
        for each in result.audited
        if each.outline is not None
        and any(one.is_unreadable for one in each.outline.damage.findings)
        and _absolute(each.place.directory) not in reported
    ]
    if not unread:
        return model
    names = ", ".join(unread[:REPORTED_COUNT])
    more = f" and {len(unread) - REPORTED_COUNT:,} more" if len(unread) > REPORTED_COUNT else ""
    text = f"parts of {names}{more} could not be read: their timelines are not whole"
    severity = str(Severity.ERROR)
    return model._replace(
        verdict=(VerdictMark("Unread", severity, text), *model.verdict),
        sources=(*model.sources, SourceMark("not read", text, severity)),
    )


def _local(paths: Iterable[str]) -> Iterator[str]:
    """Yield local paths with wildcards expanded, as a shell does."""
    for given in paths:
        path: str | None = given
        if is_uri(given):
            path = local_path(Uri.parse(given))
        if path is None:
            raise UsageError(
                f"{given}: --report-html checks directories of this machine",
                next_step="a mount of it, or spark-audit without --report-html",
            )
        if not has_wildcard(path) or os.path.lexists(path):
            yield path
            continue
        matches = [each for each in sorted(glob(path)) if _is_wanted(each)]  # noqa: PTH207
        yield from matches or [path]


def _is_wanted(path: str) -> bool:
    """Return whether a path is a log dir, a partition or its file. A wildcard skips others."""
    try:
        discover([path])
    except UsageError:
        return False
    except EoctlError:
        return True  # the error is reported by the read
    return True


def _absolute(path: str) -> str:
    """Return an absolute path in an audit's form, which keeps links."""
    there = Path(path)
    return os.path.realpath(path) if ".." in there.parts else str(there.absolute())
