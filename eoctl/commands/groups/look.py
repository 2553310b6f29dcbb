"""`eoctl groups list`, `describe`: read, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.declared import argument, option
from eoctl.options import Output, given_paths
from eoctl.output import OutputFormat

if TYPE_CHECKING:
    from eoctl.runs.groups.world import GroupWorld

LogDirs = Annotated[
    list[str] | None, argument(metavar="[LOG-DIR]...", help="Log dirs of one cluster.")
]
Groups = Annotated[
    list[str] | None, option("--group", metavar="GROUP", help="Only this group; repeatable.")
]
GroupTopics = Annotated[
    list[str] | None,
    option("--topic", metavar="TOPIC", help="Only offsets of this topic; repeatable."),
]
Now = Annotated[
    str | None,
    option(metavar="TIME|wall|dir", help="The clock for what expires.", show_default="wall"),
]


def list_groups(
    paths: LogDirs = None,
    group: Groups = None,
    topic: GroupTopics = None,
    server_properties: options.ServerProperties = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """List the groups: members, committed offsets, how far behind the ends of the logs they are."""
    from eoctl.output import Report, emit
    from eoctl.runs.groups.look import GroupRow, group_rows, list_lines
    from eoctl.runs.told import tell_first

    world = _world_of(paths, group, topic, server_properties, metadata_dir, now)
    rows = group_rows(world)
    tell_first(list_lines(world, rows), output)
    emit(Report(kind="group", columns=GroupRow._fields, rows=rows, notes=world.notes), output)
    return world.status


def describe(
    paths: LogDirs = None,
    group: Groups = None,
    topic: GroupTopics = None,
    server_properties: options.ServerProperties = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show each committed offset of groups against its log, and the members."""
    from eoctl.output import Report, emit, line
    from eoctl.runs.groups.look import (
        MemberRow,
        OffsetRow,
        describe_lines,
        member_rows,
        offset_rows,
    )
    from eoctl.runs.told import tell_first

    world = _world_of(paths, group, topic, server_properties, metadata_dir, now)
    rows = offset_rows(world)
    members = member_rows(world)
    tell_first(describe_lines(world, rows), output)
    emit(Report("committed_offset", OffsetRow._fields, rows), output)
    if output is OutputFormat.TEXT:
        line("")
    emit(Report(kind="member", columns=MemberRow._fields, rows=members, notes=world.notes), output)
    return world.status


def _world_of(
    paths: list[str] | None,
    groups: list[str] | None,
    topics: list[str] | None,
    server_properties: str | None,
    metadata_dir: str | None,
    now: str | None,
) -> GroupWorld:
    from eoctl.runs.groups.world import WantedGroups, open_groups

    wanted = WantedGroups(
        groups=tuple(groups or ()),
        topics=tuple(topics or ()),
        metadata_dir=metadata_dir,
        now=now,
    )
    return open_groups(given_paths(paths, server_properties), wanted)
