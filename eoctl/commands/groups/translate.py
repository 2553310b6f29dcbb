"""`eoctl groups translate`: the offsets in a copy at which the groups of a source continue."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options
from eoctl.clients.copying.resume import Exactness, Translated, destination_of, translate_offset
from eoctl.clients.copying.session import PartitionOf, read_session, sessions_of
from eoctl.clients.log.batch_reader import BatchConsumer
from eoctl.clients.log.consumer import ConsumeOptions
from eoctl.clients.partitions.target import require_log_dir
from eoctl.commands.groups.export import (
    ExportedOffset,
    GroupGlobs,
    NoGroupColumn,
    OffsetReport,
    ToFile,
    TopicGlob,
    give,
    open_chosen,
    require_writable,
)
from eoctl.commands.groups.inspect_groups import LogDirs, Now
from eoctl.messages import listing
from eoctl.options import Output, given_paths
from eoctl.output import PLACE, Columns, OutputFormat, message
from eoctl.parameters import option
from eoctl.progress import Progress
from recovery.cluster.clusters import image_around
from recovery.transactions.isolation import Isolation
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import read_log_config
from storage.errors import EXIT_OK, EXIT_SKIPPED, AccessError, UsageError
from storage.file_names import DirState, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eoctl.clients.copying.session import CopySession
    from eoctl.commands.groups.export import OffsetExportOptions
    from eoctl.commands.groups.group_context import GroupContext
    from storage.dirs.log_dir import LogDir


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
    """Translate committed offsets to a copy, so that each group continues where it was."""
    from eoctl.commands.groups.export import OffsetExportOptions

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


# -- `groups translate`: committed offsets of a source, as offsets of its copy by its session


REPORTED = 5


class TranslatedOffset(NamedTuple):
    """A committed offset of the copy.

    Attributes:
        exactness: `exact`, `rounded-down`, or `begins-later`.
        source_offset: the committed offset in `source_topic`.
        reason: the reason for an inexact offset.
    """

    group: str
    topic: str
    partition: int
    offset: int
    exactness: str
    source_topic: str
    source_partition: int
    source_offset: int
    metadata: str
    reason: str


COLUMNS = Columns(TranslatedOffset._fields, answers=(
    "group", "source_topic", "source_partition", "source_offset", *PLACE, "offset", "exactness",
))  # fmt: skip


class TranslateOptions(NamedTuple):
    """The command line options.

    Attributes:
        copy_dir: the log dir with the copies.
        sessions: files, or directories of them. Empty: the sessions next to the log dir.
        export: the wanted offsets, and the target.
    """

    copy_dir: str
    sessions: tuple[str, ...]
    export: OffsetExportOptions


class _Copied(NamedTuple):
    """A partition of the source with its copy."""

    path: str  # session path
    session: CopySession
    source: str
    copy: Partition


def translate_offsets(paths: Sequence[str], options: TranslateOptions, output: OutputFormat) -> int:
    """Translate, and return the exit status.

    Raises:
        UsageError, RefusedError, AccessError: as `groups export`. Also if a session cannot be read,
            or a partition was copied into several.
    """
    require_writable(options.export.to, output)
    context, rows = open_chosen(paths, options.export)
    copied = _pair(context, options)
    wanted: dict[TopicPartition, set[int]] = {}
    for each in rows:
        wanted.setdefault(_place_of(each), set()).add(each.offset)
    with Progress("translating"):
        found = {
            place: _translated(copied[place], sorted(offsets), context)
            for place, offsets in wanted.items()
            if place in copied
        }
    given = [_row(each, copied, found) for each in rows if _place_of(each) in found]
    context.report_places()
    _report(context, rows, given)
    report = OffsetReport("translated_offset", COLUMNS, given)
    left_out = give(report, options.export, output, context.notes) + len(rows) - len(given)
    for note in context.notes:
        message(note)
    is_doubtful = any(each.is_doubtful for of in found.values() for each in of.values())
    if context.status == EXIT_OK and (left_out or is_doubtful):
        return EXIT_SKIPPED
    return context.status


def _place_of(row: ExportedOffset) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)


def _row(
    row: ExportedOffset,
    copied: Mapping[TopicPartition, _Copied],
    found: Mapping[TopicPartition, Mapping[int, Translated]],
) -> TranslatedOffset:
    place = _place_of(row)
    answer, copy = found[place][row.offset], copied[place].copy
    return TranslatedOffset(
        group=row.group,
        topic=copy.topic,
        partition=copy.partition,
        offset=answer.offset,
        exactness=str(answer.exactness),
        source_topic=row.topic,
        source_partition=row.partition,
        source_offset=row.offset,
        metadata=row.metadata,
        reason=answer.reason,
    )


# --- the copy of each partition


def _pair(context: GroupContext, options: TranslateOptions) -> dict[TopicPartition, _Copied]:
    """Find the copy of each partition, by the sessions."""
    found: dict[TopicPartition, _Copied] = {}
    around = require_log_dir(options.copy_dir)
    for path in _session_paths(options):
        session = read_session(path)
        copied = _copied(path, session, context, around)
        if copied is None:
            continue
        place = TopicPartition(session.source.topic, session.source.partition)
        if place in found:
            raise UsageError(
                f"{session.source} has two sessions of copies: {found[place].path} and {path}",
                next_step="--session with the session that you mean",
            )
        found[place] = copied
    if not found:
        raise UsageError(
            f"{options.copy_dir}: no session of a copy of these log dirs into it is known",
            next_step="--session FILE, as eoctl copy was given or printed it",
        )
    return found


def _session_paths(options: TranslateOptions) -> list[str]:
    if not options.sessions:
        return sessions_of(options.copy_dir)
    found = []
    for each in options.sessions:
        path = Path(each)
        if not path.is_dir():
            found.append(each)
            continue
        try:
            found += sorted(str(file) for file in path.iterdir() if file.is_file())
        except OSError as exc:
            raise AccessError(exc, each) from exc
    return found


def _copied(
    path: str, session: CopySession, context: GroupContext, around: LogDir
) -> _Copied | None:
    """Return the two directories of a session, or None if it is for other partitions."""
    copy = _live(around, session.destination)
    reach = context.places.of(TopicPartition(session.source.topic, session.source.partition))
    if copy is None or reach is None:
        return None
    source = Partition.of(select_partition(reach.path))
    is_other = session.source.is_other(PartitionOf.of(source))
    if is_other or session.destination.is_other(PartitionOf.of(copy)):
        return None
    return _Copied(path=path, session=session, source=source.path, copy=copy)


def _live(log_dir: LogDir, wanted: PartitionOf) -> Partition | None:
    for each in log_dir.partitions_of(wanted.topic):
        if each.name.partition == wanted.partition and each.name.state is DirState.LIVE:
            return Partition(each, log_dir)
    return None


def _translated(
    copied: _Copied, offsets: Sequence[int], context: GroupContext
) -> dict[int, Translated]:
    session, log_dir = copied.session, copied.copy.log_dir
    image = None if log_dir is None else image_around(log_dir, None)
    destination = destination_of(copied.copy, read_log_config(image, copied.copy.topic))
    isolation = Isolation(session.isolation)
    source = BatchConsumer(copied.source, ConsumeOptions(isolation=isolation), context.notes.append)
    return translate_offset(session, destination, source, offsets)


# --- printing


def _report(
    context: GroupContext, rows: Sequence[ExportedOffset], given: Sequence[TranslatedOffset]
) -> None:
    counts = Counter(each.exactness for each in given)
    words = [f"{counts[str(kind)]} {kind}" for kind in Exactness if counts[str(kind)]]
    context.notes.append(
        f"{counted(len(given), 'offset')} translated: {', '.join(words) or 'none'}"
    )
    unsure = [each for each in given if each.reason]
    context.notes += [
        f"{each.group}: {each.source_topic}-{each.source_partition} at {each.source_offset} is"
        f" {each.topic}-{each.partition} at {each.offset}, {each.exactness}: {each.reason}"
        for each in unsure[:REPORTED]
    ]
    if len(unsure) > REPORTED:
        context.notes.append(f"and {len(unsure) - REPORTED} more that are not exact")
    known = {(each.source_topic, each.source_partition) for each in given}
    lacking = [each for each in rows if (each.topic, each.partition) not in known]
    if lacking:
        names = sorted({f"{each.topic}-{each.partition}" for each in lacking})
        context.notes.append(
            f"{counted(len(lacking), 'offset')} left out, of partitions that no session says are"
            f" copied: {listing(names, 'partitions')}"
        )
