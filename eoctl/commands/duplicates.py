"""`eoctl duplicates`: what is in a log twice, proved by sequences or suspected by content."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from eoctl.options import Output, Paths, ServerProperties, given_paths
from eoctl.output import OutputFormat
from recovery.rules.findings import Severity
from recovery.transactions.isolation import Isolation
from storage.errors import UsageError

MIB = 1 << 20


class Kind(StrEnum):
    """What `--kind` takes."""

    ALL = "all"
    PROVED = "proved"
    SUSPECTED = "suspected"


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    kind: Annotated[Kind, typer.Option(help="What to look for.")] = Kind.ALL,
    window: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How far apart suspected ones may be: 30s, 5m, 1h."),
    ] = "10m",
    record_id: Annotated[
        str | None,
        typer.Option("--id", metavar="key|header:NAME", help="Compare this, not whole records."),
    ] = None,
    min_bytes: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave smaller contents (or ids) out.")
    ] = 1,
    across_partitions: Annotated[
        bool,
        typer.Option("--across-partitions", help="Compare with the topic's other partitions."),
    ] = False,
    isolation: Annotated[
        Isolation, typer.Option(help="Look at all batches, or at committed ones.")
    ] = Isolation.READ_UNCOMMITTED,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Print no more; all are counted.")
    ] = None,
    fail_on: Annotated[
        Severity, typer.Option(help="Exit with 1 from here on: warning proved, note suspected.")
    ] = Severity.WARNING,
    spill_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="For what does not fit into memory.")
    ] = None,
    memory: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="How much of it is for rows.")
    ] = 256,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Find duplicates: proved ones by sequence numbers, suspected ones by their content.

    Proved: two batches of one producer id and epoch share sequences, at different offsets.
    Suspected: two records say the same within the window, and no session kept retries out.
    """
    from eoctl.clock import parse_duration_ms
    from eoctl.output import Report, emit, use_format, while_read
    from eoctl.runs.duplicates import DuplicatesRun
    from recovery.duplicates.record_digests import parse_record_id
    from recovery.duplicates.rows import Duplicate, DuplicateKind
    from recovery.duplicates.search import DuplicateOptions
    from recovery.duplicates.spill import spill_space
    from storage.dirs.discovery import discover

    use_format(output)
    kinds = frozenset(DuplicateKind) if kind is Kind.ALL else {DuplicateKind(kind.value)}
    if DuplicateKind.SUSPECTED not in kinds and (across_partitions or record_id is not None):
        raise UsageError("--id and --across-partitions look for suspected ones, not --kind proved")
    options = DuplicateOptions(
        kinds=frozenset(kinds),
        window_ms=parse_duration_ms(window),
        record_id=None if record_id is None else parse_record_id(record_id),
        min_bytes=min_bytes,
        is_across_partitions=across_partitions,
        is_committed_only=isolation is Isolation.READ_COMMITTED,
    )
    wanted = given_paths(paths, server_properties)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl duplicates PATH...")
    space = spill_space(spill_dir, memory * MIB)
    run = DuplicatesRun(discover(wanted), wanted, options, space, limit=limit, fail_on=fail_on)
    with while_read(lambda: run.status, is_verdict=True):
        emit(
            Report(kind="duplicate", columns=Duplicate._fields, rows=run.rows(), notes=run.notes),
            output,
        )
    return run.status
