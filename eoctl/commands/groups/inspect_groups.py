"""`eoctl groups list` and `describe`, which change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options
from eoctl.messages import listing
from eoctl.options import Output, given_paths
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option, argument, records_option
from recovery.groups.group_log import OffsetPlace
from recovery.groups.members import assigned_names
from storage.counts import counted
from storage.errors import pasted
from storage.file_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.commands.groups.group_context import GroupContext
    from recovery.groups.group_log import GroupCommit
    from recovery.groups.members import GroupState, Member


LogDirs = Annotated[
    list[str] | None, argument(metavar="[LOG-DIR]...", help="Log dirs of one cluster.")
]
Groups = Annotated[
    list[str] | None,
    records_option("--group", metavar="GROUP", help="Only this group. Repeatable."),
]
GroupTopics = Annotated[
    list[str] | None,
    records_option("--topic", metavar="TOPIC", help="Only offsets of this topic. Repeatable."),
]
Now = Annotated[
    str | None,
    advanced_option(
        metavar="TIME|wall|dir", help="The clock for what expires.", show_default="wall"
    ),
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
    from eoctl.messages import report_first
    from eoctl.output import Report, emit

    context = _context_of(paths, group, topic, server_properties, metadata_dir, now)
    rows = group_rows(context)
    report_first(list_lines(context, rows), output)
    emit(Report(kind="group", columns=GROUP_COLUMNS, rows=rows, notes=context.notes), output)
    return context.status


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
    from eoctl.messages import report_first
    from eoctl.output import Report, emit, line

    context = _context_of(paths, group, topic, server_properties, metadata_dir, now)
    rows = offset_rows(context)
    members = member_rows(context)
    report_first(describe_lines(context, rows), output)
    emit(Report("committed_offset", OFFSET_COLUMNS, rows), output)
    if output is OutputFormat.TEXT:
        line("")
    emit(Report(kind="member", columns=MEMBER_COLUMNS, rows=members, notes=context.notes), output)
    return context.status


def _context_of(
    paths: list[str] | None,
    groups: list[str] | None,
    topics: list[str] | None,
    server_properties: str | None,
    metadata_dir: str | None,
    now: str | None,
) -> GroupContext:
    from eoctl.commands.groups.group_context import WantedGroups, open_groups

    wanted = WantedGroups(
        groups=tuple(groups or ()),
        topics=tuple(topics or ()),
        metadata_dir=metadata_dir,
        now=now,
    )
    return open_groups(given_paths(paths, server_properties), wanted)


# -- `groups list` and `groups describe`: rows and their summary


OUTSIDE = (OffsetPlace.BELOW_START, OffsetPlace.BEYOND_END)


class GroupRow(NamedTuple):
    """A group.

    Attributes:
        state: its state once a broker has loaded it, None if unknown.
        offsets_count: the partitions with a committed offset that counts.
        pending_count: offsets committed in an open transaction.
        lag_offsets: from there to the ends of the logs, None if a log is not given.
        outside_count: offsets that are outside their log.
        no_log_count: offsets whose log is not given.
        expired_count: offsets that a broker deletes soon after its start.
    """

    group: str
    type: str
    state: str | None
    protocol_type: str
    protocol: str | None
    epoch: int | None
    members_count: int
    offsets_count: int
    pending_count: int
    lag_offsets: int | None
    outside_count: int
    no_log_count: int
    expired_count: int
    last_commit_timestamp_ms: int | None
    coordinator_partition: int


class OffsetRow(NamedTuple):
    """A partition of a group: with a committed offset, or assigned to a member.

    Attributes:
        status: `committed`, `pending` (in an open transaction, so it does not count), `none`.
        lag_offsets: from the committed offset to the log end.
        place: the place of the committed offset (`OffsetPlace`).
        record_offset: the offset of the commit record, in the coordinator's partition.
    """

    group: str
    topic: str
    partition: int
    status: str
    committed_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    lag_offsets: int | None
    place: str | None
    is_expired: bool
    committed_leader_epoch: int | None
    metadata: str | None
    commit_timestamp_ms: int | None
    pending_producer_id: int | None
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    host: str | None
    coordinator_partition: int
    record_offset: int | None
    path: str | None


class MemberRow(NamedTuple):
    """A member, with its partitions."""

    group: str
    member_id: str
    instance_id: str | None
    client_id: str | None
    host: str | None
    epoch: int | None
    assigned_count: int
    assigned_partitions: list[str]


GROUP_COLUMNS = Columns(GroupRow._fields, answers=(
    "group", "type", "state", "members_count", "offsets_count", "lag_offsets", "outside_count",
    "last_commit_timestamp_ms",
))  # fmt: skip
OFFSET_COLUMNS = Columns(OffsetRow._fields, answers=(
    "group", *PLACE, "status", "committed_offset", "log_end_offset", "lag_offsets", "place",
))  # fmt: skip
MEMBER_COLUMNS = Columns(MemberRow._fields, answers=(
    "group", "client_id", "host", "assigned_partitions", "member_id",
))  # fmt: skip


# --- list


def group_rows(context: GroupContext) -> list[GroupRow]:
    """Return a row for each chosen group."""
    rows = [
        _group_row(context, context.group(name), each) for name, each in context.commits.items()
    ]
    context.report_places()
    context.report_expired()
    return rows


def _group_row(
    context: GroupContext, group: GroupState, commits: Sequence[GroupCommit]
) -> GroupRow:
    counting = [each for each in commits if each.pending_producer_id is None]
    lag_offsets: int | None = 0
    outside_count = no_log_count = 0
    for each in counting:
        found = context.places.of(each.place)
        if found is None:
            no_log_count += 1
            lag_offsets = None
            continue
        outside_count += found.place_of(each.value.offset) in OUTSIDE
        if lag_offsets is not None:
            lag_offsets += max(found.end_offset - each.value.offset, 0)
    times_ms = [each.value.commit_timestamp_ms for each in counting]
    return GroupRow(
        group=group.group,
        type=str(group.kind),
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        epoch=group.epoch,
        members_count=len(group.members),
        offsets_count=len(counting),
        pending_count=len(commits) - len(counting),
        lag_offsets=lag_offsets if counting else None,
        outside_count=outside_count,
        no_log_count=no_log_count,
        expired_count=sum(map(context.is_expired, counting)),
        last_commit_timestamp_ms=max(times_ms, default=None),
        coordinator_partition=group.partition,
    )


def list_lines(context: GroupContext, rows: Sequence[GroupRow]) -> Iterator[str]:
    """Yield a summary, and the next command."""
    if not rows:
        yield "no group has committed an offset here, as far as it was read"
        return
    behind = [each for each in rows if each.lag_offsets]
    outside = [each for each in rows if each.outside_count]
    unknown = [each for each in rows if each.no_log_count]
    parts = [counted(len(rows), "group")]
    if behind:
        total = sum(each.lag_offsets or 0 for each in behind)
        parts.append(f"{len(behind)} behind by {counted(total, 'offset')}")
    else:
        parts.append("none behind" if not unknown else "none known to be behind")
    if outside:
        offsets = sum(each.outside_count for each in outside)
        parts.append(f"{counted(offsets, 'committed offset')} outside of the log")
    if unknown:
        parts.append(f"{counted(len(unknown), 'group')} with logs that are not here")
    yield ", ".join(parts)
    first = (outside or sorted(behind, key=lambda each: -(each.lag_offsets or 0)) or [*rows])[0]
    yield f"  eoctl groups describe {_paths(context)} --group {pasted(first.group)}"


def _paths(context: GroupContext) -> str:
    return " ".join(pasted(each.path) for each in context.log_dirs)


# --- describe


def offset_rows(context: GroupContext) -> list[OffsetRow]:
    """Return a row for each committed offset, and each partition of a member without one."""
    rows = []
    for name, commits in context.commits.items():
        group = context.group(name)
        owners = _owners(context, group)
        rows += [_offset_row(context, each, owners.get(each.place)) for each in commits]
        known = {each.place for each in commits}
        topics = context.options.topics
        rows += [
            _uncommitted(context, group, place, member)
            for place, member in owners.items()
            if place not in known and (not topics or place.topic in topics)
        ]
    context.report_places()
    context.report_expired()
    return sorted(rows, key=lambda each: (each.group, each.topic, each.partition, each.status))


def _owners(context: GroupContext, group: GroupState) -> dict[TopicPartition, Member]:
    return {
        TopicPartition(*each): member
        for member in group.members.values()
        for each in assigned_names(member, context.places.name_of)
    }


def _offset_row(context: GroupContext, commit: GroupCommit, member: Member | None) -> OffsetRow:
    found, value = context.places.of(commit.place), commit.value
    is_pending = commit.pending_producer_id is not None
    epoch = value.leader_epoch
    return OffsetRow(
        group=commit.key.group,
        topic=commit.key.topic,
        partition=commit.key.partition,
        status="pending" if is_pending else "committed",
        committed_offset=value.offset,
        log_start_offset=None if found is None else found.start_offset,
        log_end_offset=None if found is None else found.end_offset,
        high_watermark=None if found is None else found.high_watermark,
        lag_offsets=None if found is None else found.end_offset - value.offset,
        place=str(OffsetPlace.NO_LOG if found is None else found.place_of(value.offset)),
        is_expired=context.is_expired(commit),
        committed_leader_epoch=None if epoch < 0 else epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp_ms,
        pending_producer_id=commit.pending_producer_id,
        member_id=None if member is None else member.member_id,
        instance_id=None if member is None else member.instance_id,
        client_id=None if member is None else member.client_id,
        host=None if member is None else member.host,
        coordinator_partition=commit.partition,
        record_offset=commit.record_offset,
        path=None if found is None else found.path,
    )


def _uncommitted(
    context: GroupContext, group: GroupState, place: TopicPartition, member: Member
) -> OffsetRow:
    found = context.places.of(place)
    return OffsetRow(
        group=group.group,
        topic=place.topic,
        partition=place.partition,
        status="none",
        committed_offset=None,
        log_start_offset=None if found is None else found.start_offset,
        log_end_offset=None if found is None else found.end_offset,
        high_watermark=None if found is None else found.high_watermark,
        lag_offsets=None,
        place=None,
        is_expired=False,
        committed_leader_epoch=None,
        metadata=None,
        commit_timestamp_ms=None,
        pending_producer_id=None,
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.host,
        coordinator_partition=group.partition,
        record_offset=None,
        path=None if found is None else found.path,
    )


def member_rows(context: GroupContext) -> list[MemberRow]:
    """Return a row for each member of the chosen groups."""
    return [
        MemberRow(
            group=name,
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.host,
            epoch=member.epoch,
            assigned_count=len(assigned),
            assigned_partitions=[f"{topic}-{number}" for topic, number in assigned],
        )
        for name in context.commits
        for member in sorted(context.group(name).members.values(), key=lambda each: each.member_id)
        for assigned in [assigned_names(member, context.places.name_of)]
    ]


def describe_lines(context: GroupContext, rows: Sequence[OffsetRow]) -> Iterator[str]:
    """Yield a summary, and the next command."""
    counting = [each for each in rows if each.status == "committed"]
    outside = [each for each in counting if each.place in OUTSIDE]
    unknown = [each for each in counting if each.place == OffsetPlace.NO_LOG]
    pending = [each for each in rows if each.status == "pending"]
    lag = sum(max(each.lag_offsets or 0, 0) for each in counting)
    names = listing(list(context.commits), "groups")
    parts = [
        f"{names}: {counted(len(counting), 'offset')} committed, {counted(lag, 'offset')} behind"
    ]
    if unknown:
        parts.append(f"{len(unknown)} without a log here")
    if pending:
        parts.append(f"{len(pending)} pending in an open transaction")
    yield ", ".join(parts)
    for each in outside[:3]:
        is_below = each.place == OffsetPlace.BELOW_START
        what = "below the log start" if is_below else "beyond the log end"
        bound = each.log_start_offset if is_below else each.log_end_offset
        yield (
            f"{each.group}: {each.topic}-{each.partition} at {each.committed_offset} is {what}"
            f" {bound}: auto.offset.reset decides"
        )
