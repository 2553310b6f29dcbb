"""`eoctl export`: the records of partitions as Parquet or JSON Lines."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from eoctl.options import Conf, EngineChoice, EngineName, Jobs, Master
from eoctl.output import OutputFormat
from recovery.export_options import ExportCodec, ExportFormat, ExportOptions, Until
from recovery.read_options import RECORD_COLUMNS, Isolation
from storage.errors import (
    EXIT_ACCESS,
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    EoctlError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.engine import EngineRun
    from recovery.export import ExportResult
    from recovery.export_piece import PieceResult
    from recovery.export_plan import ExportPiece, ExportPlan, StabilityJob
    from recovery.outcomes import Stability

MAX_OFFSET = 2**63 - 1
MAX_TOLD = 10
VERIFIED = "verified: checksums of all batches, and that their content decodes"


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Partition directories, log dirs; also URIs, *."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the files go: new, or empty.")
    ] = None,
    server_properties: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Take the log dirs from a broker's configuration."),
    ] = None,
    file_format: Annotated[
        ExportFormat, typer.Option("--format", help="What the files are.")
    ] = ExportFormat.PARQUET,
    codec: Annotated[
        ExportCodec | None, typer.Option(help="Compression of Parquet (default zstd).")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="JSON Lines with text instead of base64 where it is.")
    ] = False,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these columns.")
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option(help="What a consumer would be given.")
    ] = Isolation.READ_UNCOMMITTED,
    until: Annotated[
        Until, typer.Option(help="Up to the checkpointed high watermark, or to the end.")
    ] = Until.LOG_END,
    from_offset: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_OFFSET, metavar="N", help="From this one (log start)."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, max=MAX_OFFSET, metavar="N", help="Only what is below N.")
    ] = None,
    from_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only timestamps at or after it.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only timestamps before it.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an export that was interrupted.")
    ] = False,
    engine: EngineChoice = EngineName.AUTO,
    jobs: Jobs = None,
    master: Master = None,
    conf: Conf = None,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TEXT,
) -> int:
    """Export records with offsets, times and outcomes, past whatever cannot be read.

    A file is complete or not there. What could not be read is listed in DIR/_lost.jsonl.
    """
    from eoctl.clock import parse_time_ms
    from eoctl.engine import EngineOptions, EngineRun
    from eoctl.output import Report, emit, use_format
    from eoctl.spark.session import parse_settings
    from recovery.export_plan import check_columns
    from storage.discovery import read_server_properties

    use_format(output)
    wanted = list(paths or [])
    if server_properties is not None:
        wanted += read_server_properties(server_properties).all_dirs
    if not wanted or to is None:
        what = "no --to DIR given" if wanted else "no PATH given"
        raise UsageError(what, next_step="eoctl export PATH... --to DIR")
    if file_format is ExportFormat.JSONL and codec not in (None, ExportCodec.NONE):
        raise UsageError("--codec is for Parquet: JSON Lines are not compressed")
    if file_format is ExportFormat.PARQUET and text:
        raise UsageError("--text is for JSON Lines: Parquet holds the bytes as they are")
    default_codec = ExportCodec.ZSTD if file_format is ExportFormat.PARQUET else ExportCodec.NONE
    names = RECORD_COLUMNS if columns is None else tuple(filter(None, columns.split(",")))
    options = ExportOptions(
        to=os.path.abspath(to),  # noqa: PTH100 - keeps symbolic links
        format=file_format,
        codec=codec or default_codec,
        text=text,
        columns=names,
        isolation=isolation,
        until=until,
        from_offset=from_offset,
        to_offset=to_offset,
        from_time_ms=None if from_time is None else parse_time_ms(from_time),
        to_time_ms=None if to_time is None else parse_time_ms(to_time),
    )
    check_columns(options)
    _check_requirements()
    run = _Run(options)
    with EngineRun(
        EngineOptions(engine, jobs, master, tuple(parse_settings(conf or [])))
    ) as engine_run:
        run.export(wanted, engine_run, resume=resume)
    emit(Report("export", run.columns, run.rows(), run.notes), output)
    return run.status


class ArrowMissingError(EoctlError):
    """pyarrow is not installed."""

    exit_status = EXIT_ACCESS


def _check_requirements() -> None:
    if find_spec("pyarrow") is None:
        raise ArrowMissingError(
            "pyarrow is not installed", next_step="pip install 'eoctl[spark]', or pyarrow alone"
        )


def _size_of(pieces: Iterable[ExportPiece]) -> int:
    return sum(each.split.end_pos - each.split.start_pos for each in pieces)


class _Run:
    """Plans and exports, and keeps what is said at the end."""

    def __init__(self, options: ExportOptions) -> None:
        from recovery.export import ExportSummary

        self.columns = ExportSummary._fields
        self.notes: list[str] = [VERIFIED]
        self._options = options
        self._result: ExportResult | None = None

    def export(self, paths: list[str], engine: EngineRun, *, resume: bool) -> None:
        """Do all of it."""
        from eoctl.progress import Progress
        from recovery.export import run_export
        from recovery.export_files import require_target
        from recovery.export_piece import export_piece
        from recovery.export_plan import plan_export, run_stability

        def stabilities(work: list[StabilityJob]) -> list[Stability]:
            size = sum(place.file_bytes for job in work for place in job.places)
            found = dict(engine.map(run_stability, work, size))
            return [found[number] for number in range(len(work))]

        def execute(pieces: Sequence[ExportPiece], options: ExportOptions) -> Iterator[PieceResult]:
            for _, result in engine.map(
                partial(export_piece, options=options), pieces, _size_of(pieces)
            ):
                yield result

        require_target(self._options.to, [])
        plan = plan_export(paths, self._options, stabilities=stabilities)
        try:
            with Progress("exporting", _size_of(plan.pieces)) as progress:
                self._result = run_export(
                    plan, self._options, execute, resume=resume, on_bytes=progress.advance
                )
        except KeyboardInterrupt as exc:
            exc.add_note("what is finished stays; the same with --resume goes on")
            raise
        if engine.chosen is not None:
            self.notes.append(engine.chosen.why)
        self._note(plan, self._result)

    def _note(self, plan: ExportPlan, result: ExportResult) -> None:
        self.notes += map(str, plan.problems)
        self.notes += plan.notes
        if result.resumed_count:
            self.notes.append(f"{result.resumed_count} pieces were finished already")
        if result.kept_count:
            self.notes.append(
                f"{result.kept_count} files of earlier runs stay whose segments have gone since;"
                " no row counts them"
            )
        told = [
            f"{each.path}: positions {each.start_pos} to {each.end_pos}: {each.kind}: {each.reason}"
            for each in result.lost
            if each.start_pos is not None
        ]
        for sentences in (told, list(result.remarks)):
            self.notes += sentences[:MAX_TOLD]
            if len(sentences) > MAX_TOLD:
                self.notes.append(f"and {len(sentences) - MAX_TOLD} more such places")
        if result.lost:
            self.notes.append(f"all losses are listed in {self._options.to}/_lost.jsonl")

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row per partition directory, by topic, partition and broker."""
        assert self._result is not None
        rows = [tuple(each) for each in self._result.summaries]
        return sorted(rows, key=lambda row: (row[0], row[1] or 0, row[2], row[-1]))

    @property
    def status(self) -> int:
        """Return the exit status."""
        assert self._result is not None
        if self._result.is_corrupt:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self._result.is_unreadable else EXIT_OK
