"""`eoctl spark-audit`: count batches, transactions and duplicates per partition, with Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eoctl.output import OutputFormat
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    FormatError,
    UsageError,
)

if TYPE_CHECKING:
    from eoctl.spark.audit import PartitionAudit
    from storage.discovery import Discovery, Selected

COLUMNS = (
    "topic",
    "partition",
    "batches",
    "records",
    "bytes",
    "control_batches",
    "transactional_batches",
    "aborted_batches",
    "duplicate_batches",
    "open_transactions",
    "committed_transactions",
    "aborted_transactions",
    "corrupt_batches",
    "problems_count",
    "path",
)
VERIFIED = "verified: headers and checksums of all batches; records of format 2 were not looked at"


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Partition directories or log dirs."),
    ] = None,
    server_properties: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Take the log dirs from a broker's configuration."),
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
    ] = None,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TEXT,
) -> int:
    """Count batches, transactions and duplicates of each partition in a Spark job.

    Needs Java 17 or later and pyspark 4. Every batch is read and its checksum verified.
    """
    from eoctl.output import Report, emit, use_format
    from eoctl.spark.session import check_requirements, parse_settings, spark_session
    from storage.discovery import discover, read_server_properties

    use_format(output)
    wanted = list(paths or [])
    if server_properties is not None:
        wanted += read_server_properties(server_properties).all_dirs
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl spark-audit PATH...")
    settings = parse_settings(conf or [])
    found = discover(wanted)
    check_requirements()
    run = _Run(found)
    given = [os.path.abspath(each) for each in wanted]  # noqa: PTH100 - keeps symbolic links
    if run.directories:
        from eoctl.spark.audit import audit_directories

        with spark_session(master, settings) as session:
            run.take(audit_directories(session, given))
    emit(Report("audit", COLUMNS, run.rows(), run.notes), output)
    return run.status


class _Run:
    """Brings together what was asked for and what Spark has counted."""

    def __init__(self, found: Discovery) -> None:
        from eoctl.spark.datasource import is_text

        self.notes: list[str] = [VERIFIED]
        self.is_bad = any(isinstance(each, FormatError) for each in found.problems)
        self.is_unreadable = any(isinstance(each, AccessError) for each in found.problems)
        self.notes += map(str, found.problems)
        for log_dir in found.log_dirs:
            if log_dir.lock.is_held:
                holder = "a process" if log_dir.lock.pid is None else f"process {log_dir.lock.pid}"
                self.notes.append(
                    f"{log_dir.path}: in use by {holder}; what is printed may have changed since"
                )
        self.directories: dict[str, Selected] = {}
        for each in found.selected:
            path = each.partition.path
            if is_text(path):
                self.directories[os.path.abspath(path)] = each  # noqa: PTH100
            else:
                self.is_unreadable = True
                self.notes.append(f"{path}: left out, Spark takes no names that are not UTF-8")
        self._audits: dict[str, PartitionAudit] = {}
        self._unlisted: set[str] = set()

    @property
    def status(self) -> int:
        if self.is_bad:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self.is_unreadable else EXIT_OK

    def take(self, audits: list[PartitionAudit]) -> None:
        """Take the result of the job, and look at what it says nothing of."""
        self._audits = {each.directory: each for each in audits}
        for audit in audits:
            self.notes += audit.notes
            self.is_bad = self.is_bad or audit.is_corrupt
            self.is_unreadable = self.is_unreadable or audit.is_unreadable
        for path, selected in self.directories.items():
            self._check_listing(path, selected)

    def _check_listing(self, path: str, selected: Selected) -> None:
        """A directory without segments is normal; one with files that cannot be read is not."""
        from storage.partition_files import list_partition

        try:
            problems = list(list_partition(selected.partition.path).problems)
        except AccessError as exc:
            problems = [exc]
        if problems:
            if path not in self._audits:
                self._unlisted.add(path)
            self.notes += map(str, problems)
            self.is_unreadable = True

    def rows(self) -> list[list[Any]]:
        """Return a row per directory, sorted by topic, partition and path."""
        rows = [self._row(path, selected) for path, selected in self.directories.items()]
        return sorted(rows, key=lambda row: (row[0], row[1] or 0, row[-1]))

    def _row(self, path: str, selected: Selected) -> list[Any]:
        from recovery.audit import PieceAudit

        directory = selected.partition
        number = directory.name.partition if directory.name.partition >= 0 else None
        audit = self._audits.get(path)
        counts: dict[str, int | None] = {**PieceAudit().summary(), "problems_count": 0}
        if audit is not None:
            counts = {**audit.counts, "problems_count": audit.problems_count}
        elif path in self._unlisted:
            counts = {**dict.fromkeys(counts), "problems_count": 1}
        names = COLUMNS[2:-1]
        return [directory.name.topic, number, *(counts[each] for each in names), directory.path]
