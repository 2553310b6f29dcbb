"""`eoctl groups export`: committed offsets, for Kafka's own tool and for `groups import`."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.commands.groups.look import LogDirs, Now
from eoctl.declared import option
from eoctl.options import Output, given_paths
from eoctl.output import OutputFormat

GroupGlobs = Annotated[
    list[str] | None,
    option("--group", metavar="GLOB", help="Only groups with such a name; repeatable."),
]
TopicGlob = Annotated[
    str | None, option("--topic", metavar="GLOB", help="Only offsets of such topics.")
]
ToFile = Annotated[str | None, option("--to", metavar="FILE", help="Write to this new file.")]
NoGroupColumn = Annotated[
    bool, option("--no-group-column", help="Lines without the group; for one group.")
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
    from eoctl.runs.groups.export import OffsetExportOptions
    from eoctl.runs.groups.export import export as run

    wanted = OffsetExportOptions(
        groups=tuple(group or ()),
        topic=topic,
        metadata_dir=metadata_dir,
        now=now,
        to=to,
        has_group=not no_group_column,
    )
    return run(given_paths(paths, server_properties), wanted, output)
