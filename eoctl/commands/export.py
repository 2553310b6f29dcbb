"""`eoctl export`: the records of partitions as Parquet or JSON Lines."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated

from eoctl.clock import parse_time_ms
from eoctl.declared import argument, option
from eoctl.libraries import REQUIREMENTS, install_call
from eoctl.options import (
    Conf,
    EngineChoice,
    EngineName,
    Jobs,
    Master,
    MaxBatchBytes,
    Offsets,
    Output,
    ServerProperties,
    Times,
    Topics,
    given_paths,
)
from eoctl.output import OutputFormat
from eoctl.ranges import Range, parse_offsets, parse_times
from recovery.export.plan import ExportCodec, ExportFormat, ExportOptions, Until
from recovery.records.read_options import RECORD_COLUMNS
from recovery.transactions.isolation import Isolation
from storage.errors import EXIT_ACCESS, EoctlError, UsageError
from storage.files.uris import is_uri
from storage.limits import MAX_OFFSET


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[PATH]...", help="Partition directories, log dirs; also URIs, *."),
    ] = None,
    to: Annotated[str | None, option(metavar="DIR", help="Output directory, new or empty.")] = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    file_format: Annotated[
        ExportFormat, option("--format", help="File format.")
    ] = ExportFormat.PARQUET,
    codec: Annotated[
        ExportCodec | None, option(help="Compression of Parquet.", show_default="zstd")
    ] = None,
    text: Annotated[
        bool, option("--text", help="Write text as text in JSON Lines, not as base64.")
    ] = False,
    columns: Annotated[str | None, option(metavar="NAME,...", help="Only these columns.")] = None,
    isolation: Annotated[
        Isolation, option(help="Isolation level of the consumer.")
    ] = Isolation.READ_UNCOMMITTED,
    until: Annotated[
        Until, option(help="Stop at the log end, or at a checkpointed mark.")
    ] = Until.LOG_END,
    offsets: Offsets = None,
    times: Times = None,
    from_offset: Annotated[
        int | None, option(min=0, max=MAX_OFFSET, metavar="N", hidden=True)
    ] = None,
    to_offset: Annotated[
        int | None, option(min=0, max=MAX_OFFSET, metavar="N", hidden=True)
    ] = None,
    from_time: Annotated[str | None, option(metavar="TIME", hidden=True)] = None,
    to_time: Annotated[str | None, option(metavar="TIME", hidden=True)] = None,
    max_batch_bytes: MaxBatchBytes = None,
    resume: Annotated[bool, option("--resume", help="Continue an interrupted export.")] = False,
    engine: EngineChoice = EngineName.AUTO,
    jobs: Jobs = None,
    master: Master = None,
    conf: Conf = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Export records with offsets, times and outcomes, past whatever cannot be read.

    A file is complete or not there. What could not be read is listed in DIR/_lost.jsonl.
    """
    from eoctl.output import Report, emit
    from eoctl.runs.reports.engine import EngineOptions, EngineRun, require_lasting
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
        raise UsageError("--codec is for Parquet: JSON Lines are not compressed")
    if file_format is ExportFormat.PARQUET and text:
        raise UsageError("--text is for JSON Lines: Parquet holds the bytes as they are")
    default_codec = ExportCodec.ZSTD if file_format is ExportFormat.PARQUET else ExportCodec.NONE
    names = RECORD_COLUMNS if columns is None else tuple(filter(None, columns.split(",")))
    from_offset, to_offset = _bounds("--offsets", parse_offsets(offsets), from_offset, to_offset)
    old_times = [None if each is None else parse_time_ms(each) for each in (from_time, to_time)]
    from_time_ms, to_time_ms = _bounds("--times", parse_times(times), *old_times)
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
        from_time_ms=from_time_ms,
        to_time_ms=to_time_ms,
    )
    if max_batch_bytes is not None:
        options = options._replace(max_batch_bytes=max_batch_bytes)
    check_columns(options)
    _check_requirements()
    from eoctl.runs.reports.export import ExportRun  # needs pyarrow

    run = ExportRun(options)
    with EngineRun(
        EngineOptions(
            name=engine, jobs=jobs, master=master, settings=tuple(parse_settings(conf or []))
        )
    ) as engine_run:
        run.export(wanted, engine_run, resume=resume)
    emit(Report(kind="export", columns=run.columns, rows=run.rows(), notes=run.notes), output)
    return run.status


def _bounds(
    option: str, found: Range, old_first: int | None, old_end: int | None
) -> tuple[int | None, int | None]:
    """The bounds of a range or of its old options, the second excluded. Raises UsageError."""
    if found == Range():
        return old_first, old_end
    if old_first is not None or old_end is not None:
        raise UsageError(f"{option} and its old names: one of them", next_step=f"{option} A..B")
    return found.first, None if found.last is None else found.last + 1


class ArrowMissingError(EoctlError):
    """pyarrow is not installed."""

    exit_status = EXIT_ACCESS


def _check_requirements() -> None:
    if find_spec("pyarrow") is None:
        raise ArrowMissingError(
            "pyarrow is not installed, which export needs for either format",
            next_step=install_call(REQUIREMENTS["pyarrow"]),
        )
