"""`eoctl truncate`: truncate a partition as a broker does, with a plan and an undo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clock import resolve_now
from eoctl.command_line import Lacking, require_given
from eoctl.commands.shared.changes import ChangeCommand, Planned, cut_answer
from eoctl.output import Columns, OutputFormat, Report, emit
from eoctl.parameters import argument, option, safety_option
from eoctl.progress import Progress
from eoctl.replica_paths import more_replicas, require_known_bounds, select_replicas
from recovery.changes.journals.listing import unfinished_path
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.changes.plans.preconditions import require_same_segments
from recovery.cluster.clusters import image_around
from recovery.replay.recover_state import bytes_to_replay
from recovery.replay.snapshots import Clock
from recovery.truncate.cost import cut_parts, estimate_truncation
from recovery.truncate.plan import plan_truncation
from recovery.truncate.target import TargetKind, TargetRequest
from storage.counts import agreeing, counted
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import StoppedState, read_log_dir
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError
from storage.limits import INT32_MAX, MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.commands.shared.changes import Done, PlanAnswer
    from recovery.changes.plans.plan import Plan
    from recovery.truncate.cost import TruncationCost
    from recovery.truncate.plan import Truncation
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir


@with_change()
def command(
    path: Annotated[str, argument(metavar="PARTITION", help="A partition directory.")],
    to_hw: Annotated[
        bool, option("--to-hw", help="Truncate at the checkpointed high watermark.")
    ] = False,
    to_offset: Annotated[
        int | None, option(min=0, max=MAX_OFFSET, metavar="N", help="Keep offsets below N.")
    ] = None,
    to_leader_epoch: Annotated[
        int | None,
        option(
            min=0,
            max=INT32_MAX,
            metavar="EPOCH",
            help="Keep everything up to the end of this leader epoch.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        option(
            metavar="TIME", help="Keep everything before the first record at or after this time."
        ),
    ] = None,
    exact: Annotated[
        bool, safety_option("--exact", help="Refuse a target inside a batch.")
    ] = False,
    assume_hw: options.AssumeHw = None,
    replica: Annotated[
        list[str] | None,
        safety_option(metavar="DIR", help="Another replica to compare with. Repeatable."),
    ] = None,
    all_replicas: Annotated[
        list[str] | None,
        safety_option(
            metavar="DIR", help="Another replica to truncate too. Repeat it for each replica."
        ),
    ] = None,
    single_copy: options.SingleCopy = False,
    coordinator_dir: options.CoordinatorDirs = None,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Truncate a partition to an offset, the high watermark, a leader epoch or a time.

    The batch with the target goes as a whole, as a broker does it. Without --apply the plan is
    shown: every step, and what is lost.
    """
    from eoctl.clock import parse_time_ms
    from eoctl.commands.shared.changes import run_change
    from recovery.truncate.target import TargetKind

    targets: dict[TargetKind, int | None] = {}
    if to_hw:
        targets[TargetKind.HW] = None
    if to_offset is not None:
        targets[TargetKind.OFFSET] = to_offset
    if to_leader_epoch is not None:
        targets[TargetKind.LEADER_EPOCH] = to_leader_epoch
    if to_time is not None:
        targets[TargetKind.TIME] = parse_time_ms(to_time)
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} targets, one is needed",
            next_step="--to-hw, --to-offset N, --to-leader-epoch E or --to-time TIME",
        )
    ((kind, value),) = targets.items()
    wanted = TruncateOptions(
        kind=kind,
        value=value,
        assume_hw=assume_hw,
        exact=exact,
        replicas=tuple(replica or ()),
        all_replicas=tuple(all_replicas or ()),
        single_copy=single_copy,
        coordinator_dirs=tuple(coordinator_dir or ()),
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    return run_change(truncate_command(path, wanted), change, output)


# -- from the options of `truncate` to a plan: the partition, its other replicas, the cost


class TruncateOptions(NamedTuple):
    """The command line options on the target and on the cluster."""

    kind: TargetKind
    value: int | None
    assume_hw: int | None = None
    exact: bool = False
    replicas: tuple[str, ...] = ()
    all_replicas: tuple[str, ...] = ()
    single_copy: bool = False
    coordinator_dirs: tuple[str, ...] = ()
    metadata_dir: str | None = None
    now: str | None = None
    expiration_ms: int | None = None


class TruncationReport(NamedTuple):
    """The row of a directory. Offsets that are unknown, or not requested, are None."""

    path: str
    target_offset: int
    log_start_offset: int
    log_end_offset: int
    end_after_restart: int
    high_watermark: int | None
    applied: bool


COLUMNS = Columns(TruncationReport._fields, answers=(
    "path", "target_offset", "log_end_offset", "end_after_restart", "applied",
))  # fmt: skip


class PlannedTruncation(NamedTuple):
    """The plan (None: nothing to truncate), a row for each directory, and notes for people.

    `is_short`: acknowledged records are missing, and there is nothing to truncate.
    """

    plan: Plan | None
    rows: tuple[TruncationReport, ...]
    notes: tuple[str, ...]
    is_short: bool = False


def _require_others(selected: Selected, compared: Sequence[Selected]) -> None:
    """Refuse to compare the partition with itself.

    Raises:
        UsageError: a compared directory is the partition.
    """
    for each in compared:
        if os.path.realpath(each.partition.path) == os.path.realpath(selected.partition.path):
            raise UsageError(
                f"{each.partition.path}: is the partition itself: there is nothing to compare",
                next_step="--replica with a directory of another node",
            )


def arguments_of(path: str, options: TruncateOptions) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    return {
        "partition": absolute_path(path),
        "to": str(options.kind),
        "value": options.value,
        "assume_hw": options.assume_hw,
        "all_replicas": [absolute_path(each) for each in options.all_replicas],
    }


def truncate_command(path: str, options: TruncateOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it."""
    return ChangeCommand(
        name="truncate",
        selected=lambda: [select_partition(each) for each in (path, *options.all_replicas)],
        arguments=lambda: [arguments_of(path, options)],
        plan=lambda: _planned(plan_run(path, options)),
        # After a completed run its target may have no meaning.
        if_done=_planned(PlannedTruncation(None, (), ())),
    )


def _planned(found: PlannedTruncation) -> Planned:
    def show(done: Done, output: OutputFormat) -> None:
        rows = [each._replace(applied=done.is_applied) for each in found.rows]
        emit(Report("truncation", COLUMNS, rows), output)

    return Planned(
        plans=() if found.plan is None else (found.plan,),
        show=show,
        notes=found.notes,
        nothing="there is nothing to truncate",
        answer=lambda: _answer(found),
        status=lambda: EXIT_SKIPPED if found.is_short else EXIT_OK,
    )


def _answer(found: PlannedTruncation) -> PlanAnswer | None:
    if found.plan is None:
        return None
    replicas = [Path(each.path) for each in found.rows]
    others = f", and {counted(len(replicas) - 1, 'replica')}" if len(replicas) > 1 else ""
    return cut_answer(f"{replicas[0].name}{others}", found.plan.price, path=found.rows[0].path)


def plan_run(path: str, options: TruncateOptions) -> PlannedTruncation:
    """Plan the truncation of a partition, and of all its replicas if they are given.

    Raises:
        RefusedError, UsageError, AccessError: as `plan_truncation`, or other replicas would keep
            more records.
    """
    selected, *others = select_replicas([path, *options.all_replicas])
    compared = [select_partition(each) for each in options.replicas]
    _require_others(selected, compared)
    require_known_bounds((*others, *compared))
    image = image_around(selected.log_dir, options.metadata_dir)
    moment = resolve_now(
        options.now,
        [] if selected.log_dir is None else [selected.log_dir.path],
    )
    clock = Clock.at(moment.ms, options.expiration_ms)
    replicas = (*map(Partition.of, compared), *map(Partition.of, others))
    request = TargetRequest(
        options.kind,
        options.value,
        assume_hw=options.assume_hw,
        exact=options.exact,
        replicas=replicas,
    )
    partition = Partition.of(selected)
    # Each checkpoint is a lower bound of the real high watermark, whatever is assumed.
    known = [options.assume_hw, *(each.high_watermark for each in (partition, *replicas))]
    high_watermark = max((each for each in known if each is not None), default=None)
    replicas_cut = [Partition.of(each) for each in others]
    with Progress("planning", lambda: _bytes_to_plan([partition, *replicas_cut])):
        truncation = plan_truncation(partition, request, clock=clock)
        same = TargetRequest(TargetKind.OFFSET, truncation.target.offset)
        truncations = [
            truncation,
            *(plan_truncation(each, same, clock=clock) for each in replicas_cut),
        ]
    for each in truncations:
        if not each.cut.is_nothing:
            _require_no_other_copy(each, image, options, high_watermark)
    planned = _put_together(
        truncations, arguments_of(path, options), options, image, high_watermark
    )
    notes = (moment.describe(), *_warnings(truncations), *planned.notes)
    return planned._replace(notes=notes)


def _bytes_to_plan(partitions: Sequence[Partition]) -> int:
    """Return the most bytes that are replayed for the states at the new ends."""
    return sum(bytes_to_replay(each, from_scratch=False, at_offset=None) for each in partitions)


def _bytes_to_count(truncation: Truncation) -> int:
    """Return the bytes to read: removed bytes twice, and the replay to the old end."""
    partition, cut = truncation.partition, truncation.cut
    gone = sum(files.log.file_bytes - start_pos for files, start_pos in cut_parts(truncation))
    replayed = bytes_to_replay(partition, from_scratch=False, at_offset=cut.log_end_offset)
    return 2 * gone + replayed


def _warnings(truncations: Sequence[Truncation]) -> Iterator[str]:
    """Yield doubts about a plan that is only shown."""
    for each in truncations:
        log_dir = each.partition.log_dir
        if each.partition.stopped is StoppedState.LIVE:
            yield f"{each.partition.path}: a broker is running on it: what is said here may change"
        unfinished = None if log_dir is None else unfinished_path(log_dir.path)
        if unfinished is not None:
            yield f"{each.partition.path}: an earlier change is unfinished: {unfinished}"


def _put_together(
    truncations: Sequence[Truncation],
    arguments: dict[str, Any],
    options: TruncateOptions,
    image: ClusterImage | None,
    high_watermark: int | None,
) -> PlannedTruncation:
    rows = tuple(_report(each, high_watermark) for each in truncations)
    notes = [note for each in truncations for note in each.notes]
    missing = [
        f"{each.partition.path}: {found}"
        for each in truncations
        for found in each.partition.not_given()
    ]
    notes += missing
    steps = [step for each in truncations for step in each.steps]
    if not steps:
        return PlannedTruncation(None, rows, tuple(notes), is_short=bool(missing))
    log_dirs = [read_log_dir(each) for each in options.coordinator_dirs]
    cut = [each for each in truncations if each.steps]
    with Progress("counting removed records", lambda: sum(map(_bytes_to_count, cut))):
        first, *others = (
            estimate_truncation(
                each,
                log_dirs=log_dirs or _own_log_dirs(each),
                image=image,
                high_watermark=high_watermark,
            )
            for each in cut
        )
    price = first.to_json()
    notes += price.pop("notes")
    notes += _note_of_reopened(first)
    if others:
        price["replicas"] = [
            _replica_price(each, found) for each, found in zip(cut[1:], others, strict=True)
        ]
    notes.append(
        "verified: checksums from the recovery point to the truncation, headers of the removed "
        "batches; records were not decompressed"
    )
    plan = make_plan("truncate", arguments, steps, price)
    names = {
        each.partition.path: [files.log.name.name for files in each.partition.segments]
        for each in cut
    }
    require_same_segments(names, plan)
    return PlannedTruncation(plan, rows, tuple(dict.fromkeys(notes)))


def _note_of_reopened(price: TruncationCost) -> Iterator[str]:
    """Yield the result for transactions that lose their marker and keep data."""
    count = (price.transactions_count or {}).get("reopened", 0)
    if count:
        reopened = [each for each in price.transactions or () if each.outcome == "reopened"]
        aborted_count = sum(each.kind == "abort" for each in reopened)
        yield (
            f"{counted(count, 'transaction')} {agreeing(count, 'keeps', 'keep')} data without a"
            f" marker, and {aborted_count} of the lost markers"
            f" {agreeing(aborted_count, 'was', 'were')}"
            " ABORT: read_committed stops before the first such transaction. The next marker"
            " of the same producer id in this partition decides about their data: a commit"
            " makes aborted data visible, an abort hides committed data. kafka-transactions.sh"
            " abort ends them"
        )


def _own_log_dirs(truncation: Truncation) -> list[LogDir]:
    log_dir = truncation.partition.log_dir
    return [] if log_dir is None else [log_dir]


def _replica_price(truncation: Truncation, price: TruncationCost) -> dict[str, Any]:
    names = (
        *("cut_start_offset", "cut_end_offset", "records_count", "missing_offsets_count"),
        "log_bytes",
    )
    values = {name: getattr(price, name) for name in names}
    return {**values, "path": truncation.partition.path}


def _report(truncation: Truncation, high_watermark: int | None) -> TruncationReport:
    partition = truncation.partition
    return TruncationReport(
        path=partition.path,
        target_offset=truncation.target.offset,
        log_start_offset=truncation.log_start_offset,
        log_end_offset=truncation.cut.log_end_offset,
        end_after_restart=truncation.cut.end_offset,
        high_watermark=high_watermark,
        applied=False,
    )


def _require_no_other_copy(
    truncation: Truncation,
    image: ClusterImage | None,
    options: TruncateOptions,
    high_watermark: int | None,
) -> None:
    """Refuse to truncate below the high watermark if another replica keeps the records (FIX-9)."""
    partition = truncation.partition
    if high_watermark is not None and truncation.cut.end_offset >= high_watermark:
        return
    has = more_replicas(partition, image, given_count=1 + len(options.all_replicas))
    if options.single_copy or has is None:
        return
    where = (
        "where its high watermark is unknown"
        if high_watermark is None
        else f"below its high watermark {high_watermark}"
    )
    require_given(
        partition.path,
        [
            Lacking(
                why=f"would end at {truncation.cut.end_offset}, {where}, and has {has} replicas:"
                " they would diverge where Kafka cannot see it",
                options=("--single-copy",),
                meaning="this directory will be the only replica that survives",
                first="--all-replicas DIR for each other replica; --metadata-dir DIR if it is the "
                "only replica",
            )
        ],
    )
