"""`eoctl trim`: delete the oldest records of a partition as DeleteRecords, with plan and undo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clock import resolve_now
from eoctl.command_line import Lacking, require_given
from eoctl.commands.shared.changes import ChangeCommand, PlanAnswer, Planned
from eoctl.console.columns import size_text
from eoctl.messages import Said, listing, span
from eoctl.output import Columns, OutputFormat, Report, emit
from eoctl.parameters import argument, option, safety_option
from eoctl.progress import Progress
from eoctl.replica_paths import more_replicas, note_of_use, require_known_bounds, select_replicas
from recovery.changes.journals.backups import is_on_log_disk
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.changes.plans.preconditions import require_same_segments
from recovery.cluster.clusters import image_around
from recovery.cluster.remote_segments import RemoteSegments
from recovery.replay.recover_state import bytes_to_replay
from recovery.replay.snapshots import Clock
from recovery.rules.findings import Severity
from recovery.trim.cost import TrimReport, estimate_trim, removed_bytes, report_trim
from recovery.trim.plan import TrimKind, TrimRequest, known_high_watermark, plan_trim
from storage.counts import agreeing, counted
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.commands.shared.changes import Done
    from recovery.changes.plans.plan import Plan
    from recovery.cluster.remote_segments import RemoteSegment
    from recovery.trim.cost import TrimCost
    from recovery.trim.plan import Trim
    from storage.dirs.cluster_image import ClusterImage


@with_change()
def command(
    path: Annotated[str, argument(metavar="PARTITION", help="A partition directory.")],
    to_offset: Annotated[
        int | None, option(min=0, max=MAX_OFFSET, metavar="N", help="Keep offsets from N on.")
    ] = None,
    to_time: Annotated[
        str | None,
        option(
            metavar="TIME", help="Keep everything from the first record at or after this time on."
        ),
    ] = None,
    to_bytes: Annotated[
        str | None,
        option(
            metavar="SIZE", help="Delete the oldest segments as retention.bytes with this size."
        ),
    ] = None,
    local: Annotated[
        bool,
        option("--local", help="Only segments that are in remote storage; the log start stays."),
    ] = False,
    assume_hw: options.AssumeHw = None,
    all_replicas: Annotated[
        list[str] | None,
        safety_option(metavar="DIR", help="Another replica to trim too; repeat for each replica."),
    ] = None,
    single_copy: options.SingleCopy = False,
    replicated: options.Replicated = False,
    coordinator_dir: options.CoordinatorDirs = None,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Delete the oldest records of a partition, as DeleteRecords does on a running broker.

    The log begins at the new offset, and whole segments below it are removed. The last segment
    stays. Without --apply the plan is shown: every step, and what is lost.
    """
    from eoctl.clock import parse_time_ms
    from eoctl.commands.shared.changes import run_change

    targets: dict[TrimKind, int] = {}
    if to_offset is not None:
        targets[TrimKind.OFFSET] = to_offset
    if to_time is not None:
        targets[TrimKind.TIME] = parse_time_ms(to_time)
    if to_bytes is not None:
        targets[TrimKind.BYTES] = options.parse_size(to_bytes)
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} targets, one is needed",
            next_step="--to-offset N, --to-time TIME or --to-bytes SIZE",
        )
    if replicated and single_copy:
        raise UsageError("--replicated and --single-copy contradict each other")
    ((kind, value),) = targets.items()
    wanted = TrimOptions(
        request=TrimRequest(kind, value, is_local=local, assume_hw=assume_hw),
        all_replicas=tuple(all_replicas or ()),
        single_copy=single_copy,
        replicated=replicated,
        coordinator_dirs=tuple(coordinator_dir or ()),
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    return run_change(trim_command(path, wanted, change), change, output)


# -- from the options of `trim` to a plan: the partition, its other replicas, the cost


class TrimOptions(NamedTuple):
    """The command line options on the target and on the cluster."""

    request: TrimRequest
    all_replicas: tuple[str, ...] = ()
    single_copy: bool = False
    replicated: bool = False
    coordinator_dirs: tuple[str, ...] = ()
    metadata_dir: str | None = None
    now: str | None = None
    expiration_ms: int | None = None


COLUMNS = Columns(TrimReport._fields, answers=(
    "path", "log_start_offset", "new_log_start_offset", "segments_count", "freed_bytes", "applied",
))  # fmt: skip


class PlannedTrim(NamedTuple):
    """The plan (None: nothing to trim), a row for each directory, and notes for people.

    `is_short`: acknowledged records are missing, and there is nothing to trim.
    """

    plan: Plan | None
    rows: tuple[TrimReport, ...]
    notes: tuple[str, ...]
    is_short: bool = False


def arguments_of(path: str, options: TrimOptions) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    return {
        "partition": absolute_path(path),
        "to": str(options.request.kind),
        "value": options.request.value,
        "local": options.request.is_local,
        "all_replicas": [absolute_path(each) for each in options.all_replicas],
    }


def trim_command(path: str, options: TrimOptions, change: ChangeOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it."""
    return ChangeCommand(
        name="trim",
        selected=lambda: [select_partition(each) for each in (path, *options.all_replicas)],
        arguments=lambda: [arguments_of(path, options)],
        plan=lambda: _planned(plan_run(path, options), options, change),
        if_done=_planned(PlannedTrim(None, (), ()), options, change),
    )


def _planned(found: PlannedTrim, options: TrimOptions, change: ChangeOptions) -> Planned:
    def show(done: Done, output: OutputFormat) -> None:
        rows = [each._replace(applied=done.is_applied) for each in found.rows]
        emit(Report("trim", COLUMNS, rows), output)

    return Planned(
        plans=() if found.plan is None else (found.plan,),
        show=show,
        notes=found.notes,
        nothing="there is nothing to trim",
        answer=lambda: _answer(found, options, change),
        status=lambda: EXIT_SKIPPED if found.is_short else EXIT_OK,
    )


def plan_run(path: str, options: TrimOptions) -> PlannedTrim:
    """Plan the trim of a partition, and of all its replicas if they are given.

    Raises:
        RefusedError, UsageError, AccessError: as `plan_trim`, or other replicas would differ.
    """
    selected = select_replicas([path, *options.all_replicas])
    require_known_bounds(selected)
    first = selected[0]
    image = image_around(first.log_dir, options.metadata_dir)
    moment = resolve_now(options.now, [] if first.log_dir is None else [first.log_dir.path])
    clock = Clock.at(moment.ms, options.expiration_ms)
    partitions = [Partition.of(each, image) for each in selected]
    high_watermark = known_high_watermark(partitions, image, options.request.assume_hw)
    log_dirs = [each.log_dir for each in selected if each.log_dir is not None]
    remote = RemoteSegments(log_dirs).of(partitions[0]) if options.request.is_local else []
    trims: list[Trim] = []
    request = options.request
    for each in partitions:
        trims.append(
            plan_trim(each, request, high_watermark=high_watermark, image=image, remote=remote)
        )
        request = request._replace(kind=TrimKind.OFFSET, value=trims[0].offset)
    if any(each.steps for each in trims):
        _require_no_other_copy(trims[0], image, options)
    if partitions[0].remote_range is not None and not remote:
        remote = RemoteSegments(log_dirs).of(partitions[0])
    planned = _put_together(trims, path, options, image, high_watermark, clock, remote)
    notes = (moment.describe(), *note_of_use(partitions), *planned.notes)
    return planned._replace(notes=tuple(dict.fromkeys(notes)))


def _put_together(
    trims: Sequence[Trim],
    path: str,
    options: TrimOptions,
    image: ClusterImage | None,
    high_watermark: int | None,
    clock: Clock,
    remote: Sequence[RemoteSegment],
) -> PlannedTrim:
    first = trims[0]
    given = [read_log_dir(each) for each in options.coordinator_dirs]
    own = [each for each in (first.partition.log_dir,) if each is not None]
    with Progress("counting records", lambda: _bytes_to_count(first)):
        cost = estimate_trim(first, clock, log_dirs=given or own, image=image, remote=remote)
    rows = tuple(report_trim(each, cost, high_watermark) for each in trims)
    notes = [note for each in trims for note in each.notes]
    steps = [step for each in trims for step in each.steps]
    missing = [
        f"{each.partition.path}: {found}" for each in trims for found in each.partition.not_given()
    ]
    notes += missing
    if not steps:
        return PlannedTrim(None, rows, tuple(notes), is_short=bool(missing))
    price = cost.to_json()
    notes += price.pop("notes")
    notes += _notes_of(first, cost)
    if len(trims) > 1:
        price["replicas"] = [
            {"path": each.partition.path, "freed_bytes": removed_bytes(each)} for each in trims[1:]
        ]
    notes.append("verified: headers of the removed batches; records were not decompressed")
    plan = make_plan("trim", arguments_of(path, options), steps, price)
    names = {
        each.partition.path: [files.log.name.name for files in each.partition.segments]
        for each in trims
        if each.steps
    }
    require_same_segments(names, plan)
    return PlannedTrim(plan, rows, tuple(notes))


def _bytes_to_count(trim: Trim) -> int:
    """Return the bytes to read: the headers below the new start, and the replay to the end."""
    counted_bytes = sum(
        each.log.file_bytes
        for each in trim.partition.segments
        if each.base_offset < trim.new_log_start_offset
    )
    replayed = bytes_to_replay(trim.partition, from_scratch=False, at_offset=trim.log_end_offset)
    return counted_bytes + replayed


def _notes_of(trim: Trim, cost: TrimCost) -> Iterator[str]:
    """Yield the effects beyond the records."""
    start = trim.new_log_start_offset
    if cost.open_transactions:
        count = counted(len(cost.open_transactions), "open transaction")
        first = min(cost.open_transactions.values())
        yield f"below {start} {count} began, the first at {first}: records below it are lost"
    if cost.producers_count:
        later = any((each.name.offset or 0) > start for each in trim.partition.files.snapshots)
        known = "only later producer snapshots know them" if later else "a broker forgets them"
        yield f"{counted(cost.producers_count, 'producer')} wrote nothing from {start} on: {known}"


def _require_no_other_copy(trim: Trim, image: ClusterImage | None, options: TrimOptions) -> None:
    """Refuse to trim one of several replicas, unless the user says what becomes of the others."""
    if options.single_copy or options.replicated:
        return
    partition = trim.partition
    has = more_replicas(partition, image, given_count=1 + len(options.all_replicas))
    if has is None:
        return
    require_given(
        partition.path,
        [
            Lacking(
                why=f"would begin at {trim.new_log_start_offset}, and has {has} replicas: when it"
                " leads, the others delete the same records",
                options=("--replicated",),
                meaning="another broker has an in-sync replica, which keeps the records until this"
                " replica leads",
                first="--all-replicas DIR for each other replica; --single-copy if no other replica"
                " is kept",
            )
        ],
    )


# -- the lines of a plan


def _answer(found: PlannedTrim, options: TrimOptions, change: ChangeOptions) -> PlanAnswer | None:
    if found.plan is None:
        return None
    first, *others = found.rows
    name = f"{first.topic}-{first.partition}"
    also_others = f", and {counted(len(others), 'replica')} more" if others else ""
    if options.request.is_local:
        what = f"{counted(first.segments_count, 'local segment')} of {name}"
        does = f"{what}, up to {first.first_local_offset - 1}{also_others}"
        verbs = ("remove", "removed")
    else:
        does = f"{name} at {first.new_log_start_offset}{also_others}"
        verbs = ("begin", "began")
        does = f"{does} (was {first.log_start_offset})"
    records = first.records_count
    is_loss = records is None or records > 0
    lost = "no record"
    if options.request.is_local:
        lost = "no record: remote storage has them"
    elif records is None:
        lost = (
            f"up to {first.new_log_start_offset - first.log_start_offset:,} records, acknowledged"
        )
    elif records:
        lost = f"{counted(records, 'record')}, {first.acknowledged_count or 0:,} acknowledged"
    times = ""
    if first.first_timestamp_ms is not None and first.last_timestamp_ms is not None and is_loss:
        times = f", {span(first.first_timestamp_ms, first.last_timestamp_ms, is_short=True)}"
    remote = ""
    if first.remote_segments_count:
        remote = (
            f"; the leader deletes {counted(first.remote_segments_count, 'remote segment')},"
            f" {size_text(first.remote_bytes or 0)}"
        )
    return PlanAnswer(
        verbs=verbs,
        does=(does,),
        loses=(f"{lost}{times}{remote}", f"{lost}{remote}", lost),
        is_loss=is_loss and not options.request.is_local,
        frees=_frees(found, change),
        also=tuple(_also(found, options)),
    )


def _frees(found: PlannedTrim, change: ChangeOptions) -> tuple[str, str]:
    """Return the freed room of the plan, and after it was applied."""
    size = sum(each.freed_bytes for each in found.rows)
    if not size or found.plan is None:
        return "nothing: no whole segment lies below", "nothing"
    text = size_text(size)
    if change.no_backup or not is_on_log_disk(found.plan.log_dirs, change.backup_dir):
        return text, text
    return (
        f"{text} once the backup is pruned; at once with --backup-dir on another disk",
        f"nothing yet: {text} are in the backup, until eoctl journal prune",
    )


def _also(found: PlannedTrim, options: TrimOptions) -> Iterator[Said]:
    """Yield the groups that reset, and the replicas that keep the records for now."""
    first = found.rows[0]
    if first.groups and found.plan is not None:
        offsets = [each["offset"] for each in found.plan.price["group_offsets"]]
        names = listing(list(first.groups), "groups")
        verb = agreeing(len(first.groups), "is", "are")
        least = f"at {min(offsets)}" if len(first.groups) == 1 else f"at {min(offsets)} or above"
        text = f"{names} {verb} {least}: next {first.new_log_start_offset}, or as its reset says"
        yield Said("Groups", text, Severity.WARNING.rank)
    if options.replicated and not options.request.is_local:
        yield Said("Copies", "other replicas keep the records until this one leads")
