"""`eoctl groups import`: offsets from a file into the `__consumer_offsets` of a dead broker."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.coordinators.log_dir_coordinator import written_offset_version
from eoctl.clients.partitions.open_partition import WriteOptions
from eoctl.clients.partitions.target import TargetOptions, lacking_single_copy, require_log_dir
from eoctl.command_line import Lacking, again, require_given
from eoctl.commands.groups.group_context import GroupContext, WantedGroups
from eoctl.commands.shared.changes import ChangeCommand, PlanAnswer, Planned
from eoctl.commands.txn.written_copies import (
    CopiesWriter,
    WrittenCopy,
    notes_of,
    open_copies,
    recovered,
    sources_of,
)
from eoctl.messages import listing
from eoctl.options import Output
from eoctl.output import PLACE, Columns, OutputFormat, Report, emit
from eoctl.parameters import advanced_option, argument, option, records_option, safety_option
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.groups.incoming import (
    ImportObstacle,
    IncomingRules,
    Outside,
    Taken,
    emptied_value,
    groups_to_renew,
    judge,
)
from recovery.groups.offset_files import parse_offsets
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.errors import AccessError, RefusedError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC, DirState
from storage.formats import coordinator_record
from storage.formats.consumer_offsets import (
    GROUP_METADATA_TYPE,
    GROUP_VALUE_VERSIONS,
    RECORD_TYPES,
    OffsetCommit,
    OffsetKey,
    encode_offset_key,
    encode_offset_value,
)
from storage.formats.message import ZERO_UUID
from storage.producers.java_hash_map import coordinator_partition
from storage.writing.coordinator import append_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.clock import Now
    from eoctl.commands.shared.changes import Done
    from recovery.changes.plans.plan import Plan, PlanSource, Step
    from recovery.groups.incoming import IncomingOffset, Judged
    from recovery.groups.members import GroupState
    from recovery.groups.offset_files import FileOffset
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir


@with_change()
def import_offsets(
    paths: Annotated[
        list[str],
        argument(metavar="LOG-DIR...", help="Log dirs to commit them in: all that have a replica."),
    ],
    source: Annotated[
        str, option("--from", metavar="FILE", help="Offsets: CSV of Kafka's tool, or JSON Lines.")
    ],
    group: Annotated[
        list[str] | None,
        records_option(
            "--group",
            metavar="GROUP",
            help="Only this group, or the group of a file without a group column.",
        ),
    ] = None,
    outside: Annotated[
        Outside, option("--outside", help="Handling of offsets outside their logs.")
    ] = Outside.REFUSE,
    skip_unknown: Annotated[
        bool,
        records_option(
            "--skip-unknown", help="Leave out partitions that the cluster does not have."
        ),
    ] = False,
    consumers_are_stopped: Annotated[
        bool,
        safety_option("--consumers-are-stopped", help="Members that are recorded are not at work."),
    ] = False,
    single_copy: options.SingleCopy = False,
    logs: Annotated[
        list[str] | None,
        advanced_option("--logs", metavar="DIR", help="Log dir with logs to compare offsets with."),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    now: Annotated[
        str | None,
        advanced_option(
            metavar="TIME|wall|dir", help="The time of the commits.", show_default="wall"
        ),
    ] = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Commit offsets for groups, as a coordinator of a broker that starts there takes them."""
    from eoctl.commands.shared.changes import run_change

    wanted = ImportOptions(
        source=source,
        groups=tuple(group or ()),
        outside=outside,
        skips_unknown=skip_unknown,
        consumers_are_stopped=consumers_are_stopped,
        single_copy=single_copy,
        logs=tuple(logs or ()),
        metadata_dir=metadata_dir,
        now=now,
    )
    return run_change(import_change(paths, wanted), change, output)


# -- partitions of `__consumer_offsets`: all given replicas are opened, and receive the same appends


REASON = "a segment with committed offsets"


class HomePartition:
    """A partition of the topic, in all given replicas.

    Attributes:
        number: the partition number.
        paths: the directories.
        lacking_count: the number of replicas that are not given, None if unknown.
    """

    def __init__(self, number: int, log_dirs: Sequence[LogDir], image: ClusterImage | None) -> None:
        self.number = number
        self.paths = [
            str(each.path)
            for log_dir in log_dirs
            for each in log_dir.partitions_of(GROUPS_TOPIC)
            if each.name.partition == number and each.name.state is DirState.LIVE
        ]
        self.lacking_count: int | None = None
        factor = None
        if image is not None and not image.problems:
            factor = image.replication_factor(GROUPS_TOPIC, number)
        if factor is not None:
            self.lacking_count = max(factor - len(self.paths), 0)
        self._copies: tuple[WrittenCopy, ...] = ()

    def lacking_replicas(self) -> Iterator[Lacking]:
        """Yield the refusal for replicas that are not given, or whose number is unknown."""
        if self.lacking_count is None and len(self.paths) == 1:
            found = lacking_single_copy(None, TargetOptions())
            if found is not None:
                yield found._replace(why=f"{self.paths[0]}: {found.why}")
        elif self.lacking_count:
            count = len(self.paths) + self.lacking_count
            yield Lacking(
                why=f"{GROUPS_TOPIC}-{self.number} has {count} replicas, and {self.lacking_count}"
                " would lack what is appended",
                options=("--single-copy",),
                meaning="the given replicas are the only replicas that survive",
                first="name the log dirs of the other brokers, too",
            )

    def inspect(self, metadata_dir: str | None, now: Now) -> None:
        """Find the end of each replica, as recovered if it was not stopped cleanly. Reads only.

        The caller decides whether some replicas may be missing.

        Raises:
            RefusedError, UsageError, AccessError: a replica is not writable, or must not be written
                to.
        """
        options = TargetOptions(
            metadata_dir=metadata_dir,
            single_copy=True,
            may_be_internal=True,
            keeps_directory=True,
        )
        self._copies = tuple(open_copies(self.paths, lambda _: options, WriteOptions(), now))

    @property
    def copies(self) -> tuple[WrittenCopy, ...]:
        """The open replicas."""
        return self._copies

    def steps(self) -> list[Step]:
        """Close the replicas, and return the steps that create or replace files.

        Raises:
            RefusedError: the replicas do not end alike.
        """
        CopiesWriter(self._copies).require_alike()
        steps: list[Step] = []
        for each in self._copies:
            steps += recovered(
                each, (step for group in each.appends.steps(REASON) for step in group)
            )
        return steps

    def sources(self, steps: Sequence[Step]) -> dict[str, PlanSource]:
        """Return the `.log` files that the steps depend on and do not change."""
        return sources_of(self._copies, steps)

    @property
    def cut_bytes(self) -> int:
        """The bytes that the recovery of all replicas truncates."""
        recoveries = [each.opened.recovery for each in self._copies]
        return sum(each.price["cut_bytes"] for each in recoveries if each is not None)

    @property
    def notes(self) -> list[str]:
        """Notes on the opened replicas."""
        return notes_of(self._copies)


# -- `groups import`: from a file of offsets to a plan that commits them as a coordinator would


COMMAND = "groups-import"
REPORTED = 3
EXPIRING_VERSION = 1  # of OffsetCommitValue: has an expiry time, for brokers before 2.1
RETENTION_MS = 10_080 * 60_000


class ImportOptions(NamedTuple):
    """The command line options.

    Attributes:
        source: the file.
        groups: only these groups. If the file has no group column, the group of its offsets.
        logs: log dirs of the cluster whose logs are compared with the offsets.
    """

    source: str
    groups: tuple[str, ...] = ()
    outside: Outside = Outside.REFUSE
    skips_unknown: bool = False
    consumers_are_stopped: bool = False
    single_copy: bool = False
    logs: tuple[str, ...] = ()
    metadata_dir: str | None = None
    now: str | None = None


class ImportRow(NamedTuple):
    """A committed offset.

    Attributes:
        offset_before: the group's earlier committed offset, None if there was none.
        given_offset: the offset in the file.
        committed_offset: the new committed offset.
        taken: the reason for the new offset.
        coordinator_partition: the partition of the group's records.
    """

    group: str
    topic: str
    partition: int
    offset_before: int | None
    given_offset: int
    committed_offset: int | None
    taken: str
    log_start_offset: int | None
    log_end_offset: int | None
    leader_epoch: int | None
    coordinator_partition: int
    applied: bool


COLUMNS = Columns(ImportRow._fields, answers=(
    "group", *PLACE, "offset_before", "given_offset", "committed_offset", "taken", "log_end_offset",
    "applied",
))  # fmt: skip


class PlannedImport(NamedTuple):
    """The plan (None if all is committed already), rows, notes."""

    plan: Plan | None
    rows: tuple[ImportRow, ...]
    notes: tuple[str, ...]


def import_change(paths: Sequence[str], options: ImportOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it.

    Raises:
        AccessError: the file cannot be read.
    """
    data = _read(options.source)  # read once, as it may be a pipe
    return ChangeCommand(
        name=COMMAND,
        selected=lambda: [found for each in paths for found in _any_partition(each, paths)],
        arguments=lambda: [_arguments_of(paths, options, data)],
        plan=lambda: _planned(plan_import(paths, options, data)),
        if_done=_planned(PlannedImport(None, (), ())),
    )


def _planned(found: PlannedImport) -> Planned:
    def show(done: Done, output: OutputFormat) -> None:
        rows = [each._replace(applied=done.is_applied) for each in found.rows]
        emit(Report("imported_offset", COLUMNS, rows), output)

    return Planned(
        plans=() if found.plan is None else (found.plan,),
        show=show,
        notes=found.notes,
        nothing="all of these offsets are committed already",
        answer=lambda: None if found.plan is None else _answer(found.plan.price),
    )


def _answer(price: dict[str, Any]) -> PlanAnswer:
    offsets = counted(price["offsets_count"], "offset")
    does = f"{offsets} of {counted(price['groups_count'], 'group')}"
    skipped, reread = price["skipped_offsets_count"], price["reread_offsets_count"]
    loses = f"no record; groups skip {counted(skipped, 'offset')}, read {reread:,} again"
    return PlanAnswer(verbs=("commit", "committed"), does=(does,), loses=(loses,))


def _any_partition(path: str, paths: Sequence[str]) -> list[Selected]:
    """Return a partition of the topic in a log dir whose lock is taken.

    If several log dirs are given, a log dir may have none.
    """
    found = require_log_dir(path).partitions_of(GROUPS_TOPIC)
    if not found and len(paths) == 1:
        raise _no_topic(path)
    return [select_partition(each.path) for each in found[:1]]


def _no_topic(path: str) -> RefusedError:
    return RefusedError(
        f"{path}: has no {GROUPS_TOPIC}: its broker makes that topic when a consumer first "
        "requests its group",
        next_step="start the broker, have any consumer commit an offset, stop it; then again",
    )


def _arguments_of(paths: Sequence[str], options: ImportOptions, data: bytes) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    return {
        "log_dirs": sorted(map(absolute_path, paths)),
        "offsets": sha256(data).hexdigest(),
        "groups": sorted(options.groups),
        "outside": str(options.outside),
        "skips_unknown": options.skips_unknown,
    }


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise AccessError(exc, path) from exc


def plan_import(paths: Sequence[str], options: ImportOptions, data: bytes) -> PlannedImport:
    """Plan the commits of a file's offsets in log dirs of one cluster. Reads only.

    Raises:
        UsageError: the file is wrong, or is for other groups.
        RefusedError: lists every obstacle.
        AccessError: something cannot be read.
    """
    given = _for_groups(parse_offsets(data, options.source), options)
    for each in (*paths, *options.logs):
        require_log_dir(each)
    places = dict.fromkeys([*paths, *options.logs])
    context = GroupContext(
        [*places], WantedGroups(metadata_dir=options.metadata_dir, now=options.now)
    )
    arguments = _arguments_of(paths, options, data)
    return _Import(paths, options, context, given).plan(arguments)


def _for_groups(
    offsets: Sequence[FileOffset], options: ImportOptions
) -> list[tuple[str, FileOffset]]:
    """Pair each offset with its group, and leave out other groups."""
    wanted = options.groups
    if offsets[0].group is None:
        if len(wanted) != 1:
            raise UsageError(
                f"{options.source}: has no group column, so the group of its offsets is unknown",
                next_step=again("--group", "GROUP") if not wanted else "one --group",
            )
        return [(wanted[0], each) for each in offsets]
    found = [(each.group or "", each) for each in offsets]
    known = {group for group, _ in found}
    lacking = [each for each in wanted if each not in known]
    if lacking:
        raise UsageError(f"{options.source}: has no offset of group {' nor of '.join(lacking)}")
    return [each for each in found if not wanted or each[0] in wanted]


class _Import:
    """The plan of one run."""

    def __init__(
        self,
        paths: Sequence[str],
        options: ImportOptions,
        context: GroupContext,
        given: Sequence[tuple[str, FileOffset]],
    ) -> None:
        self._paths = paths
        self._options = options
        self._context = context
        self._given = given
        self._homes: dict[int, HomePartition] = {}
        targets = {absolute_path(each) for each in paths}
        self._log_dirs = [each for each in context.log_dirs if absolute_path(each.path) in targets]

    def plan(self, arguments: dict[str, Any]) -> PlannedImport:
        """Judge, append, and assemble the steps. `arguments` become the plan's."""
        context, options = self._context, self._options
        if not context.log.partitions:
            raise _no_topic(self._paths[0])
        judged = judge(
            context.log,
            context.places,
            self._given,
            IncomingRules(
                now_ms=context.moment.ms,
                outside=options.outside,
                skips_unknown=options.skips_unknown,
                consumers_are_stopped=options.consumers_are_stopped,
            ),
        )
        context.report_places()
        self._require(judged)
        written = [each for each in judged.offsets if each.is_written]
        rows = tuple(self._row(each) for each in judged.offsets)
        if not written:
            return PlannedImport(None, rows, tuple(context.notes))
        renewed = groups_to_renew(context.log, written, context.moment.ms)
        self._append(written, renewed)
        steps = [step for each in self._homes.values() for step in each.steps()]
        sources = {
            path: source
            for each in self._homes.values()
            for path, source in each.sources(steps).items()
        }
        plan = make_plan(COMMAND, arguments, steps, self._price(written), sources.values())
        notes = [*context.notes, *self._notes(judged.offsets, renewed)]
        return PlannedImport(plan, rows, tuple(dict.fromkeys(notes)))

    # --- checks

    def _knows_count(self) -> bool:
        """Return whether the number of partitions of the topic is known.

        Without metadata all partitions must be given, with each group in its own partition.
        """
        log = self._context.log
        if log.partitions_count is not None:
            return True
        count = max(log.partitions) + 1
        misplaced = [
            each.group
            for each in log.groups.values()
            if coordinator_partition(each.group, count) != each.partition
        ]
        if log.has_gaps or misplaced:
            return False
        log.partitions_count = count
        self._context.notes.append(
            f"without the cluster's metadata {GROUPS_TOPIC} has the {count} partitions that are"
            " here"
        )
        return True

    def _home_of(self, group: str) -> int:
        home = self._context.log.home_of(group)
        assert home is not None, "the number of partitions is known"
        return home

    def _require(self, judged: Judged) -> None:
        """Refuse with all obstacles at once, and the command that would work."""
        lacking = [
            self._lacking(kind, _shortened(words)) for kind, words in judged.obstacles.items()
        ]
        if self._knows_count():
            numbers = dict.fromkeys(self._home_of(group) for group, _ in self._given)
            lacking += [each for number in sorted(numbers) for each in self._inspect_home(number)]
        else:
            lacking.append(
                Lacking(
                    why=f"{self._paths[0]}: the number of partitions of {GROUPS_TOPIC} is "
                    "unknown, and so is the partition of a group",
                    options=("--metadata-dir", "DIR"),
                    meaning="DIR has the cluster's metadata",
                )
            )
        require_given("", lacking)

    def _lacking(self, kind: ImportObstacle, why: str) -> Lacking:
        """Return an obstacle with the option or the step that overcomes it."""
        if kind is ImportObstacle.MEMBERS:
            meaning = "no consumer of these groups is at work"
            return Lacking(why, ("--consumers-are-stopped",), meaning)
        if kind is ImportObstacle.OUTSIDE:
            return Lacking(why, ("--outside", "clamp"), "the nearer end of the log is good enough")
        if kind is ImportObstacle.UNKNOWN:
            meaning = "offsets of partitions that are not on disk can be left out"
            return Lacking(why, ("--skip-unknown",), meaning)
        if kind is ImportObstacle.NO_LOG:
            first = "--logs DIR with each log dir that has them, or --outside keep"
        elif kind is ImportObstacle.PENDING:
            log_dirs = " ".join(map(pasted, self._paths))
            first = f"eoctl txn list {log_dirs}; eoctl txn complete ends what is due"
        else:
            first = "leave these groups out: --group with each other one"
        return Lacking(why, first=first)

    def _inspect_home(self, number: int) -> Iterator[Lacking]:
        """Open a partition for writing, and yield the obstacles."""
        log, image, options = self._context.log, self._context.image, self._options
        name = f"{GROUPS_TOPIC}-{number}"
        groups = dict.fromkeys(g for g, _ in self._given if self._home_of(g) == number)
        home = HomePartition(number, self._log_dirs, image)
        if not home.paths:
            why = f"{name} is not here, which has {listing([*groups], 'groups')}"
            yield Lacking(why, first="name the log dir that has it, too")
            return
        if not log.partitions.get(number):
            first = f"eoctl check {pasted(home.paths[0])}"
            yield Lacking(f"{home.paths[0]}: cannot be read whole", first=first)
            return
        if image is not None and GROUPS_TOPIC not in image.topics:
            why = (
                f"the cluster's metadata does not know {GROUPS_TOPIC}. A broker would set it aside"
            )
            yield Lacking(why, first="start the broker, have a consumer commit an offset, stop it")
            return
        if not options.single_copy:
            yield from home.lacking_replicas()
        try:
            home.inspect(options.metadata_dir, self._context.moment)
        except (RefusedError, UsageError) as exc:
            yield Lacking(exc.message, first=exc.next_step)
            return
        self._homes[number] = home

    # --- writing

    def _append(self, written: Sequence[IncomingOffset], renewed: Sequence[GroupState]) -> None:
        """Append a batch for each group to each replica."""
        now_ms = self._context.moment.ms
        by_group: dict[str, list[IncomingOffset]] = {}
        for each in written:
            by_group.setdefault(each.key.group, []).append(each)
        versions = [
            each.value.version for commits in self._context.commits.values() for each in commits
        ]
        version = written_offset_version(self._context.image, versions)
        states = {each.group: each for each in renewed if version > EXPIRING_VERSION}
        for group, offsets in by_group.items():
            home = self._homes[self._home_of(group)]
            records = [self._record(each, version) for each in offsets]
            if group in states:
                group_type = RECORD_TYPES[GROUP_METADATA_TYPE]
                key = coordinator_record.encode_key(group_type, {"group": group})
                value = coordinator_record.encode_value(
                    group_type.value,
                    GROUP_VALUE_VERSIONS[version],
                    emptied_value(states[group], now_ms),
                )
                records.append((key, value))
            for copy in home.copies:
                append_records(copy.appends.writer, records, now_ms=now_ms)
        self._homes = {n: each for n, each in self._homes.items() if each.copies[0].appends.logs}

    def _record(self, offset: IncomingOffset, version: int) -> tuple[bytes, bytes]:
        now_ms, image = self._context.moment.ms, self._context.image
        topic = None if image is None else image.topics.get(offset.key.topic)
        value = OffsetCommit(
            version=version,
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=now_ms + RETENTION_MS if version == EXPIRING_VERSION else -1,
            topic_id=ZERO_UUID if topic is None else topic.topic_id,
        )
        return encode_offset_key(offset.key), encode_offset_value(value)

    # --- printing

    def _row(self, offset: IncomingOffset) -> ImportRow:
        reach = offset.reach
        is_skipped = offset.taken is Taken.SKIPPED
        return ImportRow(
            group=offset.key.group,
            topic=offset.key.topic,
            partition=offset.key.partition,
            offset_before=None if offset.before is None else offset.before.offset,
            given_offset=offset.given_offset,
            committed_offset=None if is_skipped else offset.offset,
            taken=str(offset.taken),
            log_start_offset=None if reach is None else reach.start_offset,
            log_end_offset=None if reach is None else reach.end_offset,
            leader_epoch=None if offset.leader_epoch < 0 else offset.leader_epoch,
            coordinator_partition=self._home_of(offset.key.group),
            applied=False,
        )

    def _price(self, written: Sequence[IncomingOffset]) -> dict[str, Any]:
        moves = [each.offset - each.before.offset for each in written if each.before is not None]
        known = self._context.log.living()
        return {
            "groups_count": len({each.key.group for each in written}),
            "new_groups_count": len({each.key.group for each in written} - known),
            "offsets_count": len(written),
            "clamped_count": sum(each.taken is Taken.CLAMPED for each in written),
            "skipped_offsets_count": sum(each for each in moves if each > 0),
            "reread_offsets_count": -sum(each for each in moves if each < 0),
            "cut_bytes": sum(each.cut_bytes for each in self._homes.values()),
        }

    def _notes(
        self, offsets: Sequence[IncomingOffset], renewed: Sequence[GroupState]
    ) -> Iterator[str]:
        moment = self._context.moment
        yield (
            f"{moment.describe()}: the offsets are committed then, and live for"
            " offsets.retention.minutes (seven days by default) in a group without members"
        )
        for each in self._homes.values():
            yield from each.notes
        counts = Counter(each.taken for each in offsets)
        if counts[Taken.SKIPPED]:
            yield (
                f"{counted(counts[Taken.SKIPPED], 'offset')} left out: the cluster has no such"
                " partition"
            )
        if counts[Taken.UNCHANGED]:
            yield f"{counted(counts[Taken.UNCHANGED], 'offset')} unchanged: committed already"
        if renewed:
            names = listing([each.group for each in renewed], "groups")
            yield (f"{names}: empty for some time; a record dates that from now, else they expire")
        epochs = {
            OffsetKey(group, each.topic, each.partition): each.leader_epoch
            for group, each in self._given
        }
        dropped = [
            each for each in offsets if each.is_written and each.leader_epoch < epochs[each.key]
        ]
        if dropped:
            yield (
                f"the leader epochs of {counted(len(dropped), 'offset')} are left out. The logs"
                " here do not"
                " have them there"
            )


def _shortened(words: Sequence[str]) -> str:
    more = f" (and {len(words) - REPORTED} more)" if len(words) > REPORTED else ""
    return f"{'; '.join(words[:REPORTED])}{more}"
