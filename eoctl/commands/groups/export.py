"""`eoctl groups export`: committed offsets, for Kafka's own tool and for `groups import`."""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.commands.groups.group_context import GroupContext, WantedGroups
from eoctl.commands.groups.inspect_groups import LogDirs, Now
from eoctl.options import Output, given_paths
from eoctl.output import (
    OutputFormat,
    Report,
    chosen_columns,
    draws_tables,
    emit,
    inspect,
    json_text,
    message,
    write,
)
from eoctl.parameters import option, output_option, records_option
from recovery.groups.group_log import OffsetPlace
from recovery.groups.offset_files import csv_line, is_sayable
from storage.counts import agreeing, counted
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError, pasted
from storage.files import fsio
from storage.files.fsio import FileAttributes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.groups.group_log import GroupCommit


GroupGlobs = Annotated[
    list[str] | None,
    records_option("--group", metavar="GLOB", help="Only groups with such a name. Repeatable."),
]
TopicGlob = Annotated[
    str | None, records_option("--topic", metavar="GLOB", help="Only offsets of such topics.")
]
ToFile = Annotated[str | None, option("--to", metavar="FILE", help="Write to this new file.")]
NoGroupColumn = Annotated[
    bool, output_option("--no-group-column", help="Lines without the group, for one group.")
]


def export(
    paths: LogDirs = None,
    group: GroupGlobs = None,
    topic: TopicGlob = None,
    to: ToFile = None,
    no_group_column: NoGroupColumn = False,
    server_properties: options.ServerProperties = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Give the committed offsets, as kafka-consumer-groups --reset-offsets takes them."""
    wanted = OffsetExportOptions(
        groups=tuple(group or ()),
        topic=topic,
        metadata_dir=metadata_dir,
        now=now,
        to=to,
        has_group=not no_group_column,
    )
    return export_offsets(given_paths(paths, server_properties), wanted, output)


# -- `groups export`: committed offsets as lines for Kafka's tool and for `groups import`


KIND = "group_offset"
GLOB_CHARS = frozenset("*?[")


class OffsetExportOptions(NamedTuple):
    """The command line options.

    Attributes:
        groups: names or globs, empty for all.
        topic: a name or a glob.
        to: the file, None for standard output.
        has_group: lines have a group column.
    """

    groups: tuple[str, ...] = ()
    topic: str | None = None
    metadata_dir: str | None = None
    now: str | None = None
    to: str | None = None
    has_group: bool = True


class ExportedOffset(NamedTuple):
    """The row of a committed offset that counts."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int


def open_chosen(
    paths: Sequence[str], options: OffsetExportOptions
) -> tuple[GroupContext, list[ExportedOffset]]:
    """Read the groups of log dirs, and return the selected committed offsets.

    Raises:
        UsageError: as `GroupContext`, or no group has such a name.
    """
    if not paths:
        raise UsageError("no LOG-DIR given", next_step="eoctl groups export LOG-DIR...")
    has_globs = any(GLOB_CHARS & {*each} for each in options.groups)
    wanted = WantedGroups(
        groups=() if has_globs else options.groups,
        metadata_dir=options.metadata_dir,
        now=options.now,
    )
    context = GroupContext(paths, wanted)
    if has_globs:
        context.commits = {
            name: commits
            for name, commits in context.commits.items()
            if any(_matches(name, each) for each in options.groups)
        }
        if not context.commits:
            raise UsageError(
                f"no group is called {' or '.join(options.groups)}",
                next_step=f"eoctl groups list {' '.join(map(pasted, paths))}",
            )
    if options.topic is not None:
        topic = options.topic
        context.commits = {
            name: [each for each in commits if _matches(each.key.topic, topic)]
            for name, commits in context.commits.items()
        }
    return context, [_exported(each) for each in _counting(context)]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _counting(context: GroupContext) -> Iterator[GroupCommit]:
    for commits in context.commits.values():
        yield from (each for each in commits if each.pending_producer_id is None)


def _exported(commit: GroupCommit) -> ExportedOffset:
    key, value = commit.key, commit.value
    return ExportedOffset(
        group=key.group,
        topic=key.topic,
        partition=key.partition,
        offset=value.offset,
        leader_epoch=None if value.leader_epoch < 0 else value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp_ms,
    )


def export_offsets(paths: Sequence[str], options: OffsetExportOptions, output: OutputFormat) -> int:
    """Export, and return the exit status.

    Raises:
        UsageError, RefusedError, AccessError: as `open_chosen`, or the file cannot be created.
    """
    require_writable(options.to, output)
    context, rows = open_chosen(paths, options)
    _report(context, rows)
    report = OffsetReport(KIND, ExportedOffset._fields, rows)
    left_out = give(report, options, output, context.notes)
    for note in context.notes:
        message(note)
    return max(context.status, EXIT_SKIPPED if left_out and context.status == EXIT_OK else EXIT_OK)


class OffsetReport(NamedTuple):
    """Rows that become lines of CSV, JSON Lines or a table."""

    kind: str
    columns: tuple[str, ...]
    rows: Sequence[Any]


def give(
    report: OffsetReport, options: OffsetExportOptions, output: OutputFormat, notes: list[str]
) -> int:
    """Write rows to the file, or print them, and return how many could not be expressed.

    Raises:
        UsageError: there are several groups without a group column, or `--table` names no row here.
        RefusedError, AccessError: the file cannot be created.
    """
    rows = report.rows
    groups = {each.group for each in rows}
    if not options.has_group and len(groups) > 1:
        raise UsageError(
            f"--no-group-column is for the offsets of one group. These are of {len(groups)}",
            next_step=f"--group {pasted(min(groups))}",
        )
    is_csv = output is OutputFormat.TEXT and (options.to is not None or not draws_tables())
    if not is_csv and options.to is None:
        emit(Report(kind=report.kind, columns=report.columns, rows=rows), output)
        return 0
    said = list(rows)
    if is_csv:
        said = [each for each in rows if is_sayable(each.group) or not options.has_group]
        data = "".join(_csv_lines(said, options))
    elif inspect().is_csv:
        data = _csv_table(report, output)
    else:
        data = "".join(_json_line(report.kind, each._asdict()) for each in rows)
    if options.to is None:
        write(data.encode())
    else:
        _save(options.to, data.encode())
        what = counted(len({each.group for each in said}), "group")
        notes.append(f"{options.to}: {counted(len(said), 'offset')} of {what}")
    if len(said) < len(rows):
        notes.append(
            f"{counted(len(rows) - len(said), 'offset')}"
            f" {agreeing(len(rows) - len(said), 'is', 'are')} left out. The names of their"
            " groups have line"
            " breaks, which the CSV of Kafka's tool cannot say; -o jsonl has them"
        )
    return len(rows) - len(said)


def _csv_lines(rows: Iterable[Any], options: OffsetExportOptions) -> Iterator[str]:
    for each in rows:
        group = each.group if options.has_group else None
        yield csv_line(group, each.topic, each.partition, each.offset) + "\n"


def _csv_table(report: OffsetReport, output: OutputFormat) -> str:
    """Return the output of `--output csv` for a report."""
    from eoctl.csv_table import CsvTable

    table = CsvTable(inspect().table)
    columns = chosen_columns(report.columns)
    table.declare(report.kind, columns)
    made = []
    for each in report.rows:
        row = {"kind": report.kind, **{name: getattr(each, name) for name in columns}}
        made.append(table.turned(json_text(row).encode() + b"\n"))
    made.append(table.end())
    # Standard output has no row of this kind, and must not say that there is none.
    emit(Report(report.kind, (), ()), output)
    return b"".join(made).decode()


def _json_line(kind: str, row: dict[str, Any]) -> str:
    return json.dumps({"kind": kind, **row}, ensure_ascii=False) + "\n"


def require_writable(to: str | None, output: OutputFormat) -> None:
    """Check the target before the work begins."""
    if to is None:
        return
    if output is OutputFormat.MSGPACK:
        raise UsageError(
            "--to writes the CSV of Kafka's tool, with -o csv or -o jsonl all columns; not msgpack"
        )
    require_outside_log_dirs(to, "name a file elsewhere")


def _save(path: str, data: bytes) -> None:
    """Write a new file, because an existing file may hold an earlier export."""
    fs = fsio.FileSystem()
    private = FileAttributes(os.geteuid(), os.getegid(), 0o600)
    fsio.create_file(fs, path, data, private)
    fsio.sync_dir(fs, Path(path).parent)


def _report(context: GroupContext, rows: Sequence[ExportedOffset]) -> None:
    commits = [each for found in context.commits.values() for each in found]
    pending_count = sum(each.pending_producer_id is not None for each in commits)
    if pending_count:
        context.notes.append(
            f"{counted(pending_count, 'offset')} {agreeing(pending_count, 'is', 'are')} pending"
            " in a transaction that is open, and left out"
        )
    outside: list[str] = []
    for each in _counting(context):
        found = context.places.of(each.place)
        place = OffsetPlace.IN_LOG if found is None else found.place_of(each.value.offset)
        if place is not OffsetPlace.IN_LOG and found is not None:
            bounds = f"{found.start_offset}..{found.end_offset}"
            outside.append(
                f"{each.key.group}: {each.key.topic}-{each.key.partition} at {each.value.offset} is"
                f" {place} of its log {bounds}"
            )
    context.report_places()
    context.notes += outside[:3]
    if len(outside) > 3:
        context.notes.append(f"and {len(outside) - 3} more outside of their logs")
    context.report_expired()
    if not rows:
        context.notes.append("no committed offset")
