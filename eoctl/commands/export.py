"""`eoctl export`: the records of partitions as Parquet or JSON Lines."""

from __future__ import annotations

import os
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from eoctl.console.columns import size_text
from eoctl.libraries import REQUIREMENTS, install_call
from eoctl.messages import Said, first_of, report_first
from eoctl.options import (
    Conf,
    EngineChoice,
    EngineName,
    Jobs,
    Master,
    MaxBatchBytes,
    Offsets,
    Output,
    Range,
    SchemaDir,
    ServerProperties,
    Times,
    Topics,
    given_paths,
    parse_offsets,
    parse_times,
)
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import argument, option, output_option, records_option
from eoctl.progress import Progress
from recovery.export.files import require_target
from recovery.export.piece import export_piece
from recovery.export.plan import (
    DECODED_COLUMNS,
    ExportCodec,
    ExportFormat,
    ExportOptions,
    Until,
    plan_export,
    run_stability,
)
from recovery.export.run import ExportSummary, run_export
from recovery.pool import reading_bytes
from recovery.records.read_options import RECORD_COLUMNS
from recovery.rules.findings import Severity
from recovery.transactions.isolation import Isolation
from storage.counts import agreeing, counted
from storage.errors import EXIT_ACCESS, EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, EoctlError, UsageError
from storage.files.uris import is_uri
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.clients.record_formats.schemas import Schemas
    from eoctl.commands.shared.engine import EngineRun
    from recovery.export.piece import PieceResult
    from recovery.export.plan import ExportPiece, ExportPlan, StabilityJob
    from recovery.export.run import ExportResult
    from recovery.transactions.outcomes import Stability
    from storage.places.splits import Split


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[PATH]...", help="Partition directories, log dirs, URIs, *."),
    ] = None,
    to: Annotated[str | None, option(metavar="DIR", help="Output directory, new or empty.")] = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    file_format: Annotated[
        ExportFormat, option("--format", help="File format.")
    ] = ExportFormat.PARQUET,
    codec: Annotated[
        ExportCodec | None, output_option(help="Compression of Parquet.", show_default="zstd")
    ] = None,
    text: Annotated[
        bool, output_option("--text", help="Write text as text in JSON Lines, not as base64.")
    ] = False,
    columns: Annotated[
        str | None, output_option(metavar="NAME,...", help="Only these columns.")
    ] = None,
    decode: Annotated[
        bool,
        output_option(
            "--decode",
            help="Add columns key_json and value_json, by schema (Avro, Protobuf, JSON).",
        ),
    ] = False,
    schema_dir: SchemaDir = None,
    isolation: Annotated[
        Isolation, records_option(help="Isolation level of the consumer.")
    ] = Isolation.READ_UNCOMMITTED,
    until: Annotated[
        Until, records_option(help="Stop at the log end, or at a checkpointed mark.")
    ] = Until.LOG_END,
    offsets: Offsets = None,
    times: Times = None,
    max_batch_bytes: MaxBatchBytes = None,
    resume: Annotated[bool, option("--resume", help="Continue an interrupted export.")] = False,
    engine: EngineChoice = EngineName.AUTO,
    jobs: Jobs = None,
    master: Master = None,
    conf: Conf = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Export records with offsets, times and outcomes, skipping unreadable parts.

    A file is complete or absent. Unreadable ranges are listed in DIR/_lost.jsonl.
    """
    from eoctl.commands.shared.engine import EngineOptions, EngineRun, require_lasting
    from eoctl.output import Report, emit
    from eoctl.spark.session import parse_settings
    from recovery.export.plan import check_columns

    wanted = given_paths(paths, server_properties, topic)
    if not wanted or to is None:
        what = "no --to DIR given" if wanted else "no PATH given"
        raise UsageError(what, next_step="eoctl export PATH... --to DIR")
    if is_uri(to):
        raise UsageError(
            f"{to}: --to takes a directory, no URI",
            next_step="a local or mounted one, which is then uploaded; or Spark reads the format"
            " kafka-log-records and writes anywhere",
        )
    require_lasting({"--to": to})
    if file_format is ExportFormat.JSONL and codec not in (None, ExportCodec.NONE):
        raise UsageError("--codec is for Parquet. JSON Lines are not compressed")
    if file_format is ExportFormat.PARQUET and text:
        raise UsageError("--text is for JSON Lines. Parquet holds the bytes as they are")
    default_codec = ExportCodec.ZSTD if file_format is ExportFormat.PARQUET else ExportCodec.NONE
    schemas = None
    if decode or schema_dir:
        from eoctl.clients.record_formats.schemas import schemas_for

        schemas = schemas_for(wanted, schema_dir)
        schemas.require_libraries()
    names = RECORD_COLUMNS if schemas is None else (*RECORD_COLUMNS, *DECODED_COLUMNS)
    if columns is not None:
        names = tuple(filter(None, columns.split(",")))
    from_offset, to_offset = _half_open(parse_offsets(offsets))
    from_time_ms, to_time_ms = _half_open(parse_times(times))
    options = ExportOptions(
        to=os.path.abspath(to),  # noqa: PTH100 - keeps symbolic links
        format=file_format,
        codec=codec or default_codec,
        text=text,
        columns=names,
        schemas="" if schemas is None else schemas.digest,
        isolation=isolation,
        until=until,
        from_offset=from_offset,
        to_offset=to_offset,
        from_time_ms=from_time_ms,
        to_time_ms=to_time_ms,
    )
    if max_batch_bytes is not None:
        options = options._replace(max_batch_bytes=max_batch_bytes)
    check_columns(options)
    _check_requirements()

    run = ExportRun(options, to, schemas)
    with EngineRun(
        EngineOptions(
            name=engine, jobs=jobs, master=master, settings=tuple(parse_settings(conf or []))
        )
    ) as engine_run:
        run.export(wanted, engine_run, resume=resume)
    report_first(run.answer(), output)
    emit(Report(kind="export", columns=run.columns, rows=run.rows(), notes=run.notes), output)
    return run.status


def _half_open(found: Range) -> tuple[int | None, int | None]:
    """Return the bounds of a range, the second excluded."""
    return found.first, None if found.last is None else found.last + 1


class ArrowMissingError(EoctlError):
    """Python without pyarrow."""

    exit_status = EXIT_ACCESS


def _check_requirements() -> None:
    if find_spec("pyarrow") is None:
        raise ArrowMissingError(
            "pyarrow is not installed, which export needs for either format",
            next_step=install_call(REQUIREMENTS["pyarrow"]),
        )


# -- a run of `eoctl export`: the plan, its engine, the notes, and the exit status


VERIFIED = "verified: checksums of all batches, and that their content decodes"
# Decoding and writing a record takes as long as reading this many times its bytes.
EXPORT_COST = 8
# An NFS client may see a new file some seconds late.
PATIENCE_S = (0.0, 0.5, 2.0, 5.0)


class NotSharedError(EoctlError):
    """A file from an executor is missing on this machine."""

    exit_status = EXIT_ACCESS


def require_file(to: str, name: str, file_bytes: int) -> None:
    """Check that a file written by another machine is visible here.

    Raises:
        NotSharedError: it does not exist, or has another size.
    """
    path = Path(to, name)
    found: int | None = None
    for pause in PATIENCE_S:
        time.sleep(pause)
        try:
            found = path.stat().st_size
        except OSError:
            found = None
        if found == file_bytes:
            return
    what = "is not there" if found is None else f"has {found} bytes"
    raise NotSharedError(
        f"{path}: an executor has written {file_bytes} bytes, but here it {what}",
        next_step=f"a DIR that the driver and all executors share under one path, or --engine local"
        f" (executors may have files of their own below {to})",
    )


def _size_of(pieces: Iterable[ExportPiece]) -> int:
    places = {each.split.place.path: each.split.place for each in pieces}
    return sum(each.data_bytes() for each in places.values())


def _headers_bytes(job: StabilityJob) -> int:
    return sum(reading_bytes(each.path, each.file_bytes) for each in job.places)


def _export_cost(split: Split) -> int:
    return EXPORT_COST * reading_bytes(split.place.path, split.end_pos - split.start_pos)


TOO_LARGE = "decompressed data exceeds the limit"
ANSWERS = (*PLACE, "records", "bytes", "skipped", "lost_offsets", "lost_records", "path")


class ExportRun:
    """A run that plans and exports, with the notes for the end."""

    def __init__(self, options: ExportOptions, to: str, schemas: Schemas | None) -> None:
        """Prepare a run. `to`: the directory as given on the command line."""
        self.columns = Columns(ExportSummary._fields, answers=ANSWERS)
        self.notes: list[str] = [VERIFIED]
        self._options = options
        self._to = to
        self._decode = None if schemas is None else schemas.decode
        self._result: ExportResult | None = None

    def export(self, paths: list[str], engine: EngineRun, *, resume: bool) -> None:
        """Plan and export all records."""

        def stabilities(work: list[StabilityJob]) -> list[Stability]:
            found = dict(
                engine.map(
                    run_stability,
                    work,
                    lambda job: job.places[0].directory,
                    _headers_bytes,
                )
            )
            return [found[number] for number in range(len(work))]

        def execute(pieces: Sequence[ExportPiece], options: ExportOptions) -> Iterator[PieceResult]:
            export = partial(export_piece, options=options, decode=self._decode)
            for _, result in engine.map(
                export,
                pieces,
                lambda piece: piece.split.place.path,
                lambda piece: _export_cost(piece.split),
            ):
                if engine.chosen is not None and engine.chosen.is_spark and result.file_bytes:
                    require_file(options.to, result.piece.name, result.file_bytes)
                yield result

        require_target(self._options.to, [])
        plan = plan_export(paths, self._options, stabilities=stabilities)
        try:
            with Progress("exporting", _size_of(plan.pieces)) as progress:
                self._result = run_export(
                    plan, self._options, execute, resume=resume, on_bytes=progress.advance
                )
        except KeyboardInterrupt as exc:
            exc.add_note("finished files stay, and the same command with --resume goes on")
            raise
        if engine.chosen is not None:
            self.notes.append(engine.chosen.why)
        self._note(plan, self._result)

    def _note(self, plan: ExportPlan, result: ExportResult) -> None:
        self.notes += map(str, plan.problems)
        self.notes += plan.notes
        if result.resumed_count:
            self.notes.append(
                f"{counted(result.resumed_count, 'piece')}"
                f" {agreeing(result.resumed_count, 'was', 'were')} finished already"
            )
        if result.kept_count:
            self.notes.append(
                f"{counted(result.kept_count, 'file')} of earlier runs"
                f" {agreeing(result.kept_count, 'stays', 'stay')} without a segment here;"
                " no row counts them"
            )
        reported = [
            f"{each.path}: positions {each.start_pos} to {each.end_pos}: {each.kind}: {each.reason}"
            for each in result.lost
            if each.start_pos is not None
        ]
        gone = [
            each.reason if each.reason.startswith(each.path) else f"{each.path}: {each.reason}"
            for each in result.lost
            if each.kind == VerdictKind.MISSING
        ]
        for sentences in (reported, gone, list(result.remarks)):
            self.notes += first_of(sentences, "such places")
        if result.undecoded:
            from eoctl.clients.record_formats.schemas import report_undecoded

            self.notes += report_undecoded(result.undecoded)
        if any(TOO_LARGE in each.reason for each in result.lost):
            self.notes.append("--max-batch-bytes N raises the limit; memory is 3 to 7 times that")
        if result.lost:
            self.notes.append(f"all losses are listed in {self._to}/_lost.jsonl")

    def answer(self) -> Iterator[Said]:
        """Yield the number of written and of lost records."""
        assert self._result is not None
        found, to = self._result.summaries, self._to
        records = counted(sum(each.records for each in found), "record")
        files = counted(sum(each.files for each in found), "file")
        size = size_text(sum(each.bytes for each in found))
        where = f"of {counted(len(found), 'partition')}, {size} in {files} below {to}"
        yield Said("Wrote", f"{records} {where}")
        if self._decode is not None:
            decoded, left = self._result.decoded_count, sum(self._result.undecoded.values())
            bytes_left = f"; {counted(left, 'other')} stay bytes" if left else ""
            yield Said("Decoded", f"{counted(decoded, 'value')} by schema{bytes_left}")
        lost = [each for each in found if each.lost_ranges]
        if lost:
            known = [each.lost_offsets for each in lost if each.lost_offsets is not None]
            most = "at most" if len(known) == len(lost) else "at least"
            offsets = counted(sum(known), "offset")
            places = counted(sum(each.lost_ranges for each in lost), "place")
            words = f"{most} {offsets} in {places}, listed in {to}/_lost.jsonl"
            yield Said("Lost", words, Severity.ERROR.rank)
        skipped = sum(each.skipped for each in found)
        if skipped:
            yield Said("Skipped", f"{counted(skipped, 'record')}, as --isolation asks")

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row per partition directory, by topic, partition and broker."""
        assert self._result is not None
        rows = [tuple(each) for each in self._result.summaries]
        return sorted(rows, key=lambda row: (row[0], row[1] or 0, row[2], row[-1]))

    @property
    def status(self) -> int:
        """The exit status."""
        assert self._result is not None
        if self._result.is_corrupt:
            return EXIT_FINDINGS
        if self._result.is_unreadable:
            return EXIT_SKIPPED
        return EXIT_FINDINGS if self._result.has_wrong_end else EXIT_OK
