"""`eoctl rebuild`: derive indexes, snapshots and leader epochs from the `.log` files."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eoctl import options  # noqa: TC001 - Typer reads the annotations
from eoctl.output import OutputFormat
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    EoctlError,
    RefusedError,
    UsageError,
)
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.changing import ChangeOptions
    from recovery.rebuild.diff import FileDifference
    from recovery.rebuild.many import RebuildJob, RebuildResult
    from recovery.rebuild.write_derived import Derived
    from recovery.replay.price import RecoveryPrice
    from storage.log_dir import LogDir

COLUMNS = (
    "partition",
    "file",
    "state",
    "disk_bytes",
    "rebuilt_bytes",
    "written",
    "reason",
)


def command(
    paths: Annotated[
        list[str], typer.Argument(metavar="PARTITION...", help="Partition directories or log dirs.")
    ],
    index_interval_bytes: Annotated[
        int | None,
        typer.Option(min=0, max=INT32_MAX, help="index.interval.bytes, else as the topic has it."),
    ] = None,
    index_max_bytes: Annotated[
        int | None,
        typer.Option(min=12, max=INT32_MAX, help="segment.index.bytes, else as the topic has it."),
    ] = None,
    preallocate: Annotated[
        bool, typer.Option("--preallocate", help="Extend the active indexes as a live broker does.")
    ] = False,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    metadata_dir: options.MetadataDir = None,
    to: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write all rebuilt files below DIR instead.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the files that differ or are missing.")
    ] = False,
    save_plan: options.SavePlan = None,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: all cores.")] = 0,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Rebuild what a broker derives from the .log files, and show what differs on disk.

    Nothing is written without --apply or --to.
    """
    from eoctl.changing import ChangeOptions
    from eoctl.output import Report, emit, use_format, while_read
    from eoctl.runs.rebuild import rebuild_jobs
    from recovery.cluster.absent import lost_partitions
    from recovery.rebuild.many import rebuild_many
    from storage.discovery import discover

    use_format(output)
    change = ChangeOptions(
        apply=apply,
        save_plan=save_plan,
        backup_dir=backup_dir,
        no_backup=no_backup,
        accept_loss=i_accept_the_loss,
        broker_is_stopped=broker_is_stopped,
    )
    change.check()
    if to is not None and (apply or save_plan is not None):
        raise UsageError("--apply writes in place, --to elsewhere: give one of them")
    work, notes = rebuild_jobs(
        paths,
        interval_bytes=index_interval_bytes,
        index_max_bytes=index_max_bytes,
        preallocate=preallocate,
        expiration_ms=producer_expiry_ms,
        now=now,
        metadata_dir=metadata_dir,
        is_applied=apply or save_plan is not None,
    )
    if to is not None:
        from recovery.rebuild.write_derived import require_elsewhere

        for each in work:
            require_elsewhere(to, each.selected)
    jobs = jobs or len(os.sched_getaffinity(0))
    found = discover(paths)
    absent = lost_partitions(found.whole)
    run = _Run([*notes, *map(str, absent)], to=to)
    # A partition that cannot be opened was not derived; one without its log start may be wrong.
    run.has_failed = bool(absent) or any(isinstance(each, AccessError) for each in found.problems)
    if apply:
        # All of it before the first row is printed: whoever reads them may go away early.
        rows = iter(list(run.applied(work, jobs, change)))
    elif save_plan is not None:
        rows = iter(list(run.saved(work, jobs, save_plan)))
    else:
        rows = run.rows(rebuild_many(work, jobs))
    is_only_shown = not apply and save_plan is None and to is None
    with while_read(lambda: run.status, is_verdict=True) if is_only_shown else nullcontext():
        emit(Report(kind="derived_file", columns=COLUMNS, rows=rows, notes=run.notes), output)
    return run.status


def _arguments(partition_path: str) -> dict[str, Any]:
    """What tells an unfinished rebuild of a partition from other plans."""
    from recovery.changes.plan import absolute_path

    return {"partition": absolute_path(partition_path)}


class _Run:
    """Turns results into rows, writes where asked to, and keeps the status."""

    def __init__(self, notes: list[str], *, to: str | None) -> None:
        self.notes = notes
        self.to = to
        self.has_findings = False
        self.has_failed = False
        self.written = 0  # partitions
        self._prices: dict[str, RecoveryPrice] = {}  # by log dir

    @property
    def status(self) -> int:
        if self.has_failed:
            return EXIT_SKIPPED
        return EXIT_FINDINGS if self.has_findings else EXIT_OK

    def rows(self, results: Iterator[RebuildResult]) -> Iterator[Sequence[Any]]:
        """Rows of results that are shown, or written elsewhere."""
        from eoctl.output import error, flush

        flush()  # processes are started now
        for result in results:
            self._note(result)
            if result.error is not None:
                self.has_failed = True
                error(result.error)
                continue
            names = [] if self.to is None else self._written_elsewhere(result, self.to)
            for each in result.differences:
                # Without --apply what differs is a finding; a file written elsewhere is not.
                # An empty .txnindex that is not there says the same as one that is.
                self.has_findings |= bool(each.content) or bool(
                    each.content is not None and each.disk_bytes
                )
                yield self._row(result, each, each.name in names)

    def applied(
        self, work: Sequence[RebuildJob], jobs: int, change: ChangeOptions
    ) -> Iterator[Sequence[Any]]:
        """Rows of results that are written in place, under the locks; a plan a partition."""
        from eoctl.changing import apply_one, how_to_undo, how_to_undo_all
        from eoctl.output import message
        from recovery.changes.apply import resume, writing
        from recovery.rebuild.many import rebuild_many
        from recovery.rebuild.write_derived import Derived, derived_plan
        from storage.fsio import FileSystem

        fs = FileSystem()
        selected = [each.selected for each in work]
        arguments = [_arguments(each.partition.path) for each in selected]
        with writing(selected, fs, broker_is_stopped=change.broker_is_stopped) as log_dirs:
            for done in resume(fs, log_dirs, "rebuild", arguments):
                self.notes.append(f"completed what an earlier run began: {done.journal.path}")
            around = {each.partition.path: each.log_dir for each in selected}
            tell = how_to_undo if len(work) == 1 else how_to_undo_all
            places: set[Path] = set()
            for result in rebuild_many(work, jobs):
                try:
                    files = self._wanted_files(result)
                    if files:
                        derived = [Derived(result.path, files, result.logs)]
                        price = self._price(around[result.path])
                        plan = derived_plan("rebuild", _arguments(result.path), derived, price)
                        # At once: whatever becomes of the rows, the way back is known.
                        applied = apply_one(fs, plan, change)
                        place = Path(applied.journal.path).parent
                        if place not in places or change.no_backup:
                            message(tell(applied))
                        places.add(place)
                        self.written += 1
                except EoctlError as exc:
                    self._tell_what_stays(exc)
                    raise
                written = {name for name, _ in files}
                for each in result.differences:
                    yield self._row(result, each, each.name in written)

    def saved(self, work: Sequence[RebuildJob], jobs: int, path: str) -> Iterator[Sequence[Any]]:
        """Rows of results whose writing is planned: one plan for all of them."""
        from eoctl.changing import save_plan
        from recovery.changes.plan import absolute_path
        from recovery.rebuild.many import rebuild_many
        from recovery.rebuild.write_derived import Derived, derived_plan

        derived: list[Derived] = []
        for result in rebuild_many(work, jobs):
            if files := self._wanted_files(result):
                derived.append(Derived(result.path, files, result.logs))
            for each in result.differences:
                yield self._row(result, each, is_written=False)
        if not derived:
            self.notes.append("nothing to write: no plan was saved")
            return
        arguments = {"partitions": [absolute_path(each.selected.partition.path) for each in work]}
        (first, *more), around = derived, {each.selected.partition.path: each for each in work}
        log_dir = around[first.partition_path].selected.log_dir
        price = None if more else self._price(log_dir)
        save_plan(derived_plan("rebuild", arguments, derived, price), path)
        self.notes.append(f"eoctl apply {path} does it")

    def _price(self, log_dir: LogDir | None) -> RecoveryPrice | None:
        """What the broker recovers at its next start in a log dir; None: unknown.

        Worked out once for a log dir, and told.
        """
        from recovery.replay.price import recovery_price

        if log_dir is None:
            return None
        if log_dir.path not in self._prices:
            found = self._prices[log_dir.path] = recovery_price(log_dir)
            self.notes.append(
                f"{log_dir.path}: without the clean-shutdown marker, which goes before the first"
                f" change, the next start of the broker recovers {found.partitions_count}"
                f" partitions, {found.log_bytes} bytes of log"
            )
        return self._prices[log_dir.path]

    def _wanted_files(self, result: RebuildResult) -> list[tuple[str, bytes]]:
        """What is to be written for one partition; damage is refused."""
        self._note(result)
        if result.error is not None:
            raise result.error
        self._refuse_damage(result)
        changed = ((each.name, each.content) for each in result.differences)
        return [(name, content) for name, content in changed if content is not None]

    def _tell_what_stays(self, exc: EoctlError) -> None:
        """The rows are not shown after an error: say that partitions before it were written."""
        if self.written:
            stays = f"partitions rebuilt before it, which stay: {self.written}"
            exc.next_step = f"{exc.next_step}; {stays}" if exc.next_step else stays

    def _note(self, result: RebuildResult) -> None:
        self.notes += result.notes
        self.has_failed |= bool(result.unread) or result.is_short
        if result.cut is not None:
            self.has_findings = True
            cut = result.cut
            self.notes.append(
                f"{result.path}/{cut.base_offset:020d}.log: position {cut.valid_bytes}: recovery"
                f" would cut {cut.log_bytes - cut.valid_bytes} bytes here and drop all later"
                f" segments ({cut.verdict.kind.replace('_', ' ')}: {cut.verdict.reason})"
            )

    @staticmethod
    def _refuse_damage(result: RebuildResult) -> None:
        """A derived file must not lie about bytes that are still in the log."""
        from storage.kernels.protocol import VerdictKind

        for problem in result.unread:
            raise RefusedError(
                f"{problem}; the rebuilt files would lack what is in it",
                next_step="--to DIR, and decide what becomes of that file first",
            )
        cut = result.cut
        tails = (VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED)
        if cut is not None and cut.verdict.kind not in tails:
            raise RefusedError(
                f"{result.path}: the log is damaged at position {cut.valid_bytes} of segment"
                f" {cut.base_offset}; files for the part before it would hide that",
                next_step="--to DIR, and decide what becomes of the log first",
            )

    @staticmethod
    def _written_elsewhere(result: RebuildResult, directory: str) -> list[str]:
        from recovery.rebuild.write_derived import write_elsewhere
        from storage.fsio import FileSystem

        rebuilt = [(each.name, each.rebuilt) for each in result.differences]
        files = [(name, content) for name, content in rebuilt if content is not None]
        name = Path(os.path.realpath(result.path)).name
        return write_elsewhere(FileSystem(), directory, name, files)

    @staticmethod
    def _row(result: RebuildResult, each: FileDifference, is_written: bool) -> Sequence[Any]:
        reason = each.reason
        if each.first_pos is not None and not reason:
            reason = f"from byte {each.first_pos} on"
        return (
            Path(os.path.realpath(result.path)).name,
            each.name,
            str(each.state),
            each.disk_bytes or 0,
            each.rebuilt_bytes or 0,
            is_written,
            reason,
        )
