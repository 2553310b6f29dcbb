"""`eoctl groups translate`: where the groups of a source go on in its copy."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.commands.groups.export import GroupGlobs, NoGroupColumn, ToFile, TopicGlob
from eoctl.commands.groups.look import LogDirs, Now
from eoctl.declared import option
from eoctl.options import Output, given_paths
from eoctl.output import OutputFormat


def translate(
    copy: Annotated[
        str, option("--copy", metavar="LOG-DIR", help="The log dir that eoctl copy wrote to.")
    ],
    paths: LogDirs = None,
    session: Annotated[
        list[str] | None,
        option("--session", metavar="PATH", help="Session of a copy, or a directory of them."),
    ] = None,
    group: GroupGlobs = None,
    topic: TopicGlob = None,
    to: ToFile = None,
    no_group_column: NoGroupColumn = False,
    server_properties: options.ServerProperties = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Give the committed offsets as those of a copy: each group goes on where it was."""
    from eoctl.runs.groups.export import OffsetExportOptions
    from eoctl.runs.groups.translate import TranslateOptions, translate_offsets

    wanted = OffsetExportOptions(
        groups=tuple(group or ()),
        topic=topic,
        metadata_dir=metadata_dir,
        now=now,
        to=to,
        has_group=not no_group_column,
    )
    chosen = TranslateOptions(copy, tuple(session or ()), wanted)
    return translate_offsets(given_paths(paths, server_properties), chosen, output)
