"""`cluster check`: histories and log dirs of a played cluster, judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.cluster.checker import HistoryChecker, HistoryFinding, read_replica
from eoctl.cluster.history import HistoryReader
from eoctl.output import Report, emit, message
from eoctl.runs.cluster.play import played
from eoctl.runs.told import counted, tell_first
from storage.errors import EXIT_FINDINGS, EXIT_SKIPPED
from storage.os_errors import os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.cluster.layout import PlayedCluster
    from eoctl.output import OutputFormat


def check_cluster(path: str, output: OutputFormat) -> int:
    """Judge a cluster; returns the exit status.

    Raises:
        RefusedError: this is no played cluster, or a history of another version.
        UsageError: it was never run.
        AccessError, FormatError: something cannot be read.
    """
    cluster = played(path)
    checker = HistoryChecker()
    is_whole = True
    for number in range(1, cluster.runs_count + 1):
        is_whole &= take_history(checker, cluster.history_path(number))
    compare_replicas(checker, cluster)
    if not checker.is_healed:
        message(
            "the last run was not healed at its end: what is missing may still come (unseen)",
            level="warning",
        )
    tell_first(_words(path, checker), output)
    emit(
        Report("finding", HistoryFinding._fields, checker.findings, notes=[*_notes(checker)]),
        output,
    )
    if checker.has_findings:
        return EXIT_FINDINGS
    return 0 if is_whole else EXIT_SKIPPED


def take_history(checker: HistoryChecker, path: str) -> bool:
    """Read a history; False: lines of it were skipped.

    Raises:
        RefusedError: it is none. AccessError: it cannot be read.
    """
    with os_errors(path), Path(path).open("rb") as file:
        reader = HistoryReader(file, path)
        for operation in reader:
            checker.take(operation)
    for each in reader.skipped[:10]:
        message(f"{path}: line {each.line}: skipped: {each.why}", level="warning")
    if len(reader.skipped) > 10:
        message(f"{path}: {len(reader.skipped)} lines skipped", level="warning")
    if reader.is_torn:
        message(f"{path}: its last line has no end: the writer was killed")
    return not reader.skipped


def compare_replicas(checker: HistoryChecker, cluster: PlayedCluster) -> None:
    """Hold the log dirs against the histories. Raises as `read_replica`."""
    for key in checker.partitions:
        replicas = (
            cluster.settings.assignment[key.partition]
            if key.topic == cluster.settings.topic and key.partition < cluster.settings.partitions
            else ()
        )
        found = (
            read_replica(f"node-{node}", f"{cluster.node_path(node)}/{key.topic}-{key.partition}")
            for node in replicas
        )
        checker.compare(key, found)


def _words(path: str, checker: HistoryChecker) -> Iterator[str]:
    if not checker.has_findings:
        yield f"{path}: nothing is wrong: {_looked_at(checker)}"
        return
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in checker.counts.items())
    yield f"{path}: {kinds}"


def _looked_at(checker: HistoryChecker) -> str:
    return (
        f"{checker.sends.get('ok', 0):,} acknowledged records, all that was read, and"
        f" {counted(len(checker.partitions), 'partition')} with all replicas"
    )


def _notes(checker: HistoryChecker) -> Iterator[str]:
    yield f"{counted(checker.operations_count, 'line')} of history; looked at {_looked_at(checker)}"
    for kind, count in checker.counts.items():
        yield f"{kind}: {count}"
