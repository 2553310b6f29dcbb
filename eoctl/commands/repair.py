"""`eoctl repair`: repair damaged partitions, with a plan and an undo."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.command_line import Lacking, refusal
from eoctl.commands.rebuild import is_named, named_directories, rebuild_jobs
from eoctl.commands.shared.changes import ChangeCommand, PlanAnswer, Planned
from eoctl.messages import (
    LABEL_WIDTH,
    WIDE,
    Line,
    Said,
    fitting,
    is_for_people,
    listing,
    said_line,
)
from eoctl.output import Columns, OutputFormat, Report, emit, line
from eoctl.parameters import advanced_option, argument, option
from eoctl.progress import Progress
from recovery.changes.journals.losses import Lost
from recovery.changes.plans.plan import absolute_path
from recovery.cluster.clusters import Clusters, find_metadata, image_around
from recovery.cluster.placement import lost_partitions
from recovery.repair.plan import RepairJob, plan_repair, repair_many, repair_one
from recovery.repair.repaired import assigned_topic_id, repair_checkpoints
from recovery.repair.strategies import Strategy
from recovery.replay.recover_state import recovery_price
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.dirs.discovery import discover
from storage.errors import EXIT_OK, EXIT_SKIPPED, RefusedError, UsageError, as_argument, call_text
from storage.file_names import DirState
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eoctl.commands.shared.changes import Done
    from recovery.changes.plans.plan import Plan
    from recovery.rebuild.partitions import RebuildJob
    from recovery.repair.repaired import Repaired, RepairedCheckpoints
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.errors import EoctlError


@with_change()
def command(
    paths: Annotated[
        list[str], argument(metavar="PATH...", help="Partition directories or log dirs.")
    ],
    topic: options.Topics = None,
    strategy: Annotated[
        Strategy | None,
        option(help="How to repair. Without it, eoctl shows the damage and proposes a strategy."),
    ] = None,
    single_copy: options.SingleCopy = False,
    replicated: options.Replicated = False,
    index_interval_bytes: Annotated[
        int | None,
        advanced_option(
            min=0,
            max=INT32_MAX,
            metavar="N",
            help="index.interval.bytes.",
            show_default="the topic's",
        ),
    ] = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    metadata_dir: options.MetadataDir = None,
    change: ChangeOptions = PLAN_ONLY,
    jobs: options.Jobs = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Repair damaged partitions as a broker would, by keeping every good batch, or by refetching.

    Without --apply the plan is shown: every step, and what is lost.
    """
    from eoctl.commands.shared.changes import run_change

    wanted = RepairOptions(
        strategy=strategy,
        single_copy=single_copy,
        interval_bytes=index_interval_bytes,
        expiration_ms=producer_expiry_ms,
        now=now,
        metadata_dir=metadata_dir,
        replicated=replicated,
    )
    wanted.check()
    wanted_paths = options.given_paths(paths, None, topic)
    if change.is_kept and strategy is None:
        raise no_strategy(wanted_paths, wanted, options.process_count(jobs))
    run = RepairRun(wanted_paths, wanted)
    return run_change(repair_command(run, options.process_count(jobs)), change, output)


# -- the answer of a repair, and a comparison of the strategies, for a terminal


# Larger logs are not read again for a comparison.
MAX_COMPARED_BYTES = 4 << 30


class ComparedStrategy(NamedTuple):
    """The effect of one strategy on one directory. Counts are upper bounds, None if unknown.

    Attributes:
        is_proposed: eoctl proposes this strategy.
    """

    partition: str
    strategy: str
    kept_offsets_count: int | None
    lost_offsets_count: int | None
    acknowledged_lost_count: int | None
    is_proposed: bool


class RepairCost(NamedTuple):
    """The cost of a repair of some directories.

    Attributes:
        names: the changed directories.
        markers_count: transactions that lose their marker.
        doubtful_count: transactions that may lose it.
    """

    names: tuple[str, ...] = ()
    lost: Lost = Lost()
    markers_count: int = 0
    doubtful_count: int = 0

    def plus(self, name: str, repaired: Repaired) -> RepairCost:
        """Add a directory."""
        lost = self.lost
        for each in repaired.lost:
            lost = lost.plus(each.cost(repaired.high_watermark))
        was_open = [each.was_open for each in repaired.open_transactions]
        return RepairCost(
            names=(*self.names, name),
            lost=lost,
            markers_count=self.markers_count + was_open.count(False),
            doubtful_count=self.doubtful_count + was_open.count(None),
        )


class StrategyComparison(NamedTuple):
    """A comparison of the strategies, and the next command.

    Attributes:
        rows: rows of the damaged directories.
        costs: costs by strategy.
        call: the words of the next command, empty if there is none.
        remark: its effect, or the condition for it.
        is_conditional: the remark is a condition, which nobody checked.
    """

    rows: tuple[ComparedStrategy, ...]
    costs: Mapping[str, RepairCost]
    call: tuple[str, ...]
    remark: str
    is_conditional: bool = False


def cost_of(repaired: Iterable[Repaired]) -> RepairCost:
    """Add up the costs of repairs."""
    cost = RepairCost()
    for each in repaired:
        cost = cost.plus(Path(each.path).name, each)
    return cost


def compare(
    selected: Sequence[Selected],
    by_strategy: Mapping[Strategy, Mapping[str, Repaired]],
    proposed: Mapping[str, str],
) -> StrategyComparison:
    """Compare the strategies, without a next command.

    Args:
        selected: the damaged partitions.
        by_strategy: the results of each strategy, by path.
        proposed: the proposed strategy, by path. For move-away the content of other replicas is
            unknown here.
    """
    rows = []
    for each in selected:
        path = each.partition.path
        results = {name: found.get(path) for name, found in by_strategy.items() if path in found}
        if proposed[path] == Strategy.MOVE_AWAY:
            results[Strategy.MOVE_AWAY] = None
        rows += [
            _compared(each, found, name, is_proposed=name == proposed[path])
            for name, found in results.items()
        ]
    costs = {str(name): cost_of(found.values()) for name, found in by_strategy.items() if found}
    return StrategyComparison(rows=tuple(rows), costs=costs, call=(), remark="")


def _compared(
    selected: Selected, repaired: Repaired | None, strategy: Strategy, *, is_proposed: bool
) -> ComparedStrategy:
    kept = lost = acknowledged = None
    if repaired is not None:
        kept, lost = repaired.kept_offsets_count, repaired.lost_offsets_count
        acknowledged = repaired.acknowledged_lost_count(repaired.high_watermark)
    return ComparedStrategy(
        partition=Path(selected.partition.path).name,
        strategy=str(strategy),
        kept_offsets_count=kept,
        lost_offsets_count=lost,
        acknowledged_lost_count=acknowledged,
        is_proposed=is_proposed,
    )


def repair_answer(strategy: Strategy, cost: RepairCost) -> PlanAnswer:
    """Sum up a plan."""
    names = listing(cost.names, "partitions") or "the checkpoints of the log dir"
    if strategy is Strategy.MOVE_AWAY:
        return PlanAnswer(
            verbs=("move", "moved"),
            does=(f"{names} away as a whole, for the broker to fetch again", f"{names} away"),
            loses=("nothing that another replica has in sync; all of it if there is none",),
            is_loss=True,
        )
    return PlanAnswer(
        verbs=("repair", "repaired"),
        does=(f"{names}, strategy {strategy}", names),
        loses=(_loses(cost),),
        is_loss=cost.lost.is_something or bool(cost.markers_count or cost.doubtful_count),
    )


def _loses(cost: RepairCost) -> str:
    """Return the whole loss: records, offsets and markers."""
    parts = [cost.lost.text]
    if cost.markers_count:
        parts.append(f"the marker of {counted(cost.markers_count, 'transaction')}")
    if cost.doubtful_count:
        parts.append(f"perhaps the marker of {counted(cost.doubtful_count, 'transaction')}")
    return "; ".join(parts)


def compared_lines(
    compared: StrategyComparison, total_count: int, nothing: str, width: int
) -> Iterator[Line]:
    """Yield the damage, the losses of each strategy, and the next command."""
    room = width - LABEL_WIDTH
    if not compared.rows:
        text = f"nothing: {nothing}" if nothing else f"nothing can be repaired: {NO_UNDO}"
        yield said_line(Said("Plan", text, 0 if nothing else Severity.ERROR.rank))
        return
    names = list(dict.fromkeys(each.partition for each in compared.rows))
    found = f"{len(names)} of {counted(total_count, 'partition')} to repair"
    texts = [f"{found}: {listing(names, 'partitions')}", found]
    yield said_line(Said("Found", fitting(texts, room), Severity.ERROR.rank))
    for strategy, cost in compared.costs.items():
        text = f"by {strategy}: {_loses(cost)}"
        yield said_line(Said("Loses", text, Severity.WARNING.rank))
    if compared.call:
        yield from _next_lines(compared, width)


def _next_lines(compared: StrategyComparison, width: int) -> Iterator[Line]:
    """Yield the next command. A condition for it is never left out, and comes first."""
    command = call_text(compared.call)
    text = f"{command}   # {compared.remark}"
    if not compared.is_conditional or width >= WIDE:
        is_whole = len(text) <= width - LABEL_WIDTH
        yield said_line(Said("Next", text if is_whole else command))
    else:
        yield said_line(Said("Next", f"{compared.remark}:"))
        yield Line(f"{'':{LABEL_WIDTH}}{command}")


# -- from the options of `repair` to plans: the partitions, their other replicas, the cost


NO_STRATEGY = "none"  # no repair is needed, or none is possible
NO_UNDO = (
    "what is missing cannot be made from what is here; a backup or another replica may have it"
)


_COMPARE = "eoctl replicas compare with the log dirs of the other brokers"


class RepairOptions(NamedTuple):
    """The command line options. Without a strategy, eoctl proposes one."""

    strategy: Strategy | None
    single_copy: bool = False
    interval_bytes: int | None = None
    expiration_ms: int | None = None
    now: str | None = None
    metadata_dir: str | None = None
    replicated: bool = False

    def check(self) -> None:
        """Refuse contradictory options.

        Raises:
            UsageError: options contradict each other.
        """
        if self.single_copy and self.strategy is Strategy.MOVE_AWAY:
            raise UsageError(
                "--single-copy: what is moved away is fetched again from another replica",
                next_step="--strategy salvage or as-broker for the only copy",
            )
        if self.replicated and self.single_copy:
            raise UsageError("--replicated and --single-copy contradict each other")
        if self.replicated and self.strategy not in {None, Strategy.MOVE_AWAY}:
            raise UsageError(
                "--replicated: only what is moved away is fetched again from another replica",
                next_step="--strategy move-away",
            )


class RepairReport(NamedTuple):
    """The row of a directory, None for unknown values. `log_end_offset` is the new end.

    `lost_records_count` is the number of records of intact batches that are in no file afterwards.
    """

    path: str
    strategy: str
    log_start_offset: int | None
    log_end_offset: int | None
    lost_offsets_count: int | None
    lost_records_count: int
    lost_ranges_count: int
    lost_bytes: int
    open_transactions_count: int
    steps_count: int
    applied: bool


COLUMNS = Columns(RepairReport._fields, answers=(
    "path", "strategy", "lost_offsets_count", "lost_records_count", "lost_ranges_count",
    "lost_bytes", "applied",
))  # fmt: skip


class PlannedRepair(NamedTuple):
    """A plan for each log dir that needs a repair, rows, errors, and notes for people.

    `is_needed`: a repair is needed, with a plan or with a proposal only. `is_short`: acknowledged
    records are missing, and no plan here restores them. `is_unread`: something in the log dirs was
    unreadable or unusable, and no plan repairs it. `cost`: the cost of the plans. `comparison`: the
    comparison of strategies, if none was given.
    """

    plans: tuple[Plan, ...]
    rows: tuple[RepairReport, ...]
    errors: tuple[EoctlError, ...]
    notes: tuple[str, ...]
    is_needed: bool
    is_short: bool = False
    is_unread: bool = False
    cost: RepairCost = RepairCost()
    comparison: StrategyComparison | None = None


class RepairRun:
    """A planner for the repair of the given partitions, which may plan repeatedly."""

    def __init__(self, paths: Sequence[str], options: RepairOptions) -> None:
        """Find the partitions. UsageError if there is none."""
        self._options = options
        self._paths = tuple(paths)
        found, notes = rebuild_jobs(
            paths,
            interval_bytes=options.interval_bytes,
            index_max_bytes=None,
            preallocate=False,
            expiration_ms=options.expiration_ms,
            now=options.now,
            metadata_dir=options.metadata_dir,
            is_applied=True,
        )
        self._found: list[RebuildJob] = []
        self._work = self._found
        discovered = discover(paths)
        whole = discovered.whole
        self._problems = discovered.problems
        metadata = None if options.metadata_dir is None else find_metadata(options.metadata_dir)
        self._absent = lost_partitions(whole, Clusters(whole, metadata))
        self._repaired: dict[str, RepairedCheckpoints] = {}
        self._images: dict[str, ClusterImage | None] = {}
        self.notes = notes
        for each in found:
            if each.selected.partition.name.state is DirState.LIVE:
                self._found.append(each)
            else:
                self.notes.append(f"{each.selected.partition.path}: skipped, not a live directory")

    @property
    def strategy(self) -> Strategy | None:
        """The strategy on the command line."""
        return self._options.strategy

    @property
    def selected(self) -> list[Selected]:
        """The partitions."""
        return [each.selected for each in self._work]

    @property
    def log_bytes(self) -> int:
        """The bytes of all `.log` files."""
        total = 0
        for each in self._work:
            for path in Path(each.selected.partition.path).glob("*.log"):
                with suppress(OSError):  # a dangling link is reported by the plan
                    total += path.stat().st_size
        return total

    def arguments(self) -> dict[str, dict[str, Any]]:
        """Return the arguments that identify an unfinished plan of this command, by log dir."""
        by_log_dir: dict[str, list[str]] = {}
        for each in self._work:
            name = Path(absolute_path(each.selected.partition.path)).name
            by_log_dir.setdefault(_parent_of(each), []).append(name)
        strategy = None if self._options.strategy is None else str(self._options.strategy)
        return {
            log_dir: {"log_dir": log_dir, "strategy": strategy, "partitions": sorted(names)}
            for log_dir, names in by_log_dir.items()
        }

    def plan(self, jobs: int, on_bytes: Callable[[int], None]) -> PlannedRepair:
        """Read all partitions, and plan a repair for each log dir.

        Raises:
            RefusedError, AccessError: the only partition, or its log dir, cannot be repaired.
        """
        # Salvage counts every good batch, so it shows the damage best.
        strategy = self._options.strategy or Strategy.SALVAGE
        if strategy is Strategy.SALVAGE:
            self._repair_checkpoints()
        work = self._jobs_of(self._work, strategy)
        done = repair_many(work, jobs, on_done=lambda each: on_bytes(each.log_bytes))
        checked = [self._checked(job, each) for job, each in zip(self._work, done, strict=True)]
        errors = tuple(each.error for each in checked if each.error is not None)
        if errors and len(checked) == 1 and not self._has_repaired:
            raise errors[0]
        good = [each for each in checked if each.error is None]
        notes = [*self.notes, *(note for each in good for note in each.notes)]
        notes += (note for each in self._repaired.values() for note in each.notes)
        notes += map(str, self._absent)
        is_short = bool(self._absent) or any(map(_has_no_way, good))
        if self._options.strategy is None:
            rows = tuple(self._proposals(done))
            is_needed = self._has_repaired or any(row.strategy != NO_STRATEGY for row in rows)
            notes += (*self._note_of_salvage(), *self._note_of_replicas(rows))
            return PlannedRepair(
                plans=(),
                rows=rows,
                errors=errors,
                notes=tuple(notes),
                is_needed=is_needed,
                is_short=is_short,
                is_unread=self._is_unread,
                comparison=None if self.strategy else self._comparison(done, rows, jobs),
            )
        if strategy is Strategy.MOVE_AWAY and (stays := [each for each in good if not each.steps]):
            notes.append(
                f"{len(stays)} of {len(checked)} partitions stay: they have lost nothing."
                " To move such a partition, name its directory"
            )
        plans = tuple(self._plans(good))
        rows = tuple(_row(each) for each in good)
        return PlannedRepair(
            plans=plans,
            rows=rows,
            errors=errors,
            notes=tuple(notes),
            is_needed=bool(plans),
            is_short=is_short,
            is_unread=self._is_unread,
            cost=cost_of([e for e in good if e.steps or e.limits is not None]),
        )

    def _jobs_of(self, work: Iterable[RebuildJob], strategy: Strategy) -> list[RepairJob]:
        named = named_directories(self._paths)
        return [
            RepairJob(
                each.selected,
                each.settings,
                strategy,
                is_named=is_named(each.selected.partition.path, named),
                topic_id=assigned_topic_id(each.selected, self._image(each.selected)),
            )
            for each in work
        ]

    # -- for people

    def _comparison(
        self, salvaged: Sequence[Repaired], rows: Sequence[RepairReport], jobs: int
    ) -> StrategyComparison:
        """Compare salvage with as-broker for the damaged partitions, which are read again."""
        proposed = {row.path: row.strategy for row in rows if row.strategy != NO_STRATEGY}
        work = [each for each in self._work if each.selected.partition.path in proposed]
        found = {each.path: each for each in salvaged if each.path in proposed}
        by_strategy = {Strategy.SALVAGE: found}
        if sum(each.log_bytes for each in found.values()) <= MAX_COMPARED_BYTES:
            wanted = self._jobs_of(work, Strategy.AS_BROKER)
            cut = repair_many(wanted, jobs, on_done=lambda _: None)
            by_strategy[Strategy.AS_BROKER] = {e.path: e for e in cut if e.error is None}
        call, condition = self._way_on(work, proposed, found)
        selected = [each.selected for each in work]
        return compare(selected, by_strategy, proposed)._replace(
            call=call,
            remark=condition or "shows the plan. --apply runs it",
            is_conditional=bool(condition),
        )

    def _way_on(
        self,
        work: Sequence[RebuildJob],
        proposed: Mapping[str, str],
        salvaged: Mapping[str, Repaired],
    ) -> tuple[tuple[str, ...], str]:
        """Return the next command, for the first proposal and all partitions that share it.

        And the condition for it, "" if there is none.
        """
        if not work:
            return (), ""
        strategy = Strategy(next(iter(proposed.values())))
        alike = [each for each in work if proposed[each.selected.partition.path] == strategy]
        paths = [each.selected.partition.path for each in alike]
        if len(alike) == len(proposed) and len(alike) > 1:
            paths = [*self._paths]
        words = ["eoctl", "repair", *paths, "--strategy", str(strategy)]
        if self._options.metadata_dir is not None:
            words += ["--metadata-dir", self._options.metadata_dir]
        condition = ""
        if strategy is Strategy.MOVE_AWAY:
            if any(self._is_only_copy(each.selected) is None for each in alike):
                words.append("--replicated")
                condition = "if another broker has it in sync"
        elif any(self._why_not_here(e, salvaged[e.selected.partition.path]) for e in alike):
            words.append("--single-copy")
            condition = f"{self._if_only(alike)} (see eoctl replicas compare)"
        elif self._options.single_copy:
            words.append("--single-copy")
        return tuple(words), condition

    def _if_only(self, work: Iterable[RebuildJob]) -> str:
        """Return the condition for --single-copy, with the other replicas in the metadata."""
        nodes = sorted({node for each in work for node in self._other_nodes(each.selected)})
        names = listing([*map(str, nodes)], "brokers")
        if not nodes:
            return "if this is the only copy"
        if len(nodes) == 1:
            return f"if the replica on broker {names} is lost"
        return f"if the replicas on brokers {names} are lost"

    def _plans(self, repaired: Sequence[Repaired]) -> Iterable[Plan]:
        jobs = {each.selected.partition.path: each.selected for each in self._work}
        known = {_parent_of(each): each.selected.log_dir for each in self._work}
        by_log_dir: dict[str, list[Repaired]] = {each: [] for each in known}
        for each in repaired:
            by_log_dir[str(Path(absolute_path(each.path)).parent)].append(each)
        arguments = self.arguments()
        for log_dir, parts in by_log_dir.items():
            around = known[log_dir]
            lowered = {
                jobs[each.path].partition.name: each.limits.recovery_point
                for each in parts
                if each.limits is not None
            }
            price = None if around is None else recovery_price(around, lowered=lowered)
            found = self._repaired.get(os.path.realpath(log_dir))
            contents = None if found is None else found.contents
            plan = plan_repair(log_dir, parts, arguments[log_dir], price, contents)
            if plan is not None:
                yield plan

    # -- checkpoints that do not parse

    @property
    def _has_repaired(self) -> bool:
        return any(each.contents for each in self._repaired.values())

    @property
    def _is_unread(self) -> bool:
        """True if the log dirs have problems other than repaired checkpoints."""
        repaired = {
            os.path.join(real, name)  # noqa: PTH118 - a path is not looked at again
            for real, each in self._repaired.items()
            for name in each.contents
        }
        return any(os.path.realpath(each.path) not in repaired for each in self._problems)

    def _repair_checkpoints(self) -> None:
        """Plan as if the checkpoints of the given log dirs were repaired already.

        A checkpoint has lines for all partitions, so a PATH must be the whole log dir.
        """
        wanted = [os.path.realpath(each) for each in self._paths]
        self._repaired, self._work = {}, []
        for each in self._found:
            log_dir = each.selected.log_dir
            real = None if log_dir is None else os.path.realpath(log_dir.path)
            if log_dir is not None and real in wanted:
                if real not in self._repaired:
                    self._repaired[real] = repair_checkpoints(log_dir)
                selected = each.selected._replace(log_dir=self._repaired[real].log_dir)
                self._work.append(each._replace(selected=selected))
            else:
                self._work.append(each)

    def _note_of_salvage(self) -> Iterable[str]:
        for each in self._repaired.values():
            for name in each.contents:
                yield (
                    f"{each.log_dir.path}: --strategy salvage of the log dir makes {name} again."
                    " Run it before anything else"
                )

    # -- other replicas

    def _checked(self, job: RebuildJob, repaired: Repaired) -> Repaired:
        """Refuse a repair that would make replicas diverge, or remove the last replica."""
        if repaired.error is not None or self._options.strategy is None:
            return repaired
        error = (
            self._why_not_away(job, repaired)
            if repaired.strategy is Strategy.MOVE_AWAY
            else self._why_not_here(job, repaired)
        )
        return repaired._replace(error=error) if error is not None else repaired

    def _why_not_here(self, job: RebuildJob, repaired: Repaired) -> RefusedError | None:
        log_dir = job.selected.log_dir
        watermark = None if log_dir is None else log_dir.high_watermark(job.selected.partition)
        factor = self._replication_factor(job.selected)
        if self._options.single_copy or factor == 1 or not repaired.loses_below(watermark):
            return None
        where = "where its high watermark is unknown"
        if watermark is not None:
            where = f"below its high watermark {watermark}"
        has = "an unknown number of" if factor is None else str(factor)
        is_only = self._is_only_copy(job.selected)
        first = self._command(job, Strategy.MOVE_AWAY)
        if is_only:
            first = _COMPARE
        elif is_only is None:
            first = f"if another broker has it in sync: {first} --replicated"
        return refusal(
            repaired.path,
            [
                Lacking(
                    why=f"would lose offsets {where}, and has {has} replicas: they would diverge"
                    " where Kafka cannot see it",
                    options=("--single-copy",),
                    meaning="this directory is the only replica that survives",
                    first=first if factor else f"{first}; --metadata-dir DIR if it has one replica",
                )
            ],
        )

    def _why_not_away(self, job: RebuildJob, repaired: Repaired) -> RefusedError | None:
        is_only = self._is_only_copy(job.selected) if repaired.steps else False
        if is_only:
            return RefusedError(
                f"{repaired.path}: no other replica is in sync: moved away, it could not be fetched"
                " again",
                next_step=self._instead_of_moving(job),
            )
        if is_only is None and not self._options.replicated:
            return refusal(
                repaired.path,
                [
                    Lacking(
                        why="nothing is known of other replicas: moved away, it may be gone",
                        options=("--replicated",),
                        meaning="another broker has a replica that is in sync",
                        first="--metadata-dir DIR with the cluster's metadata",
                    )
                ],
            )
        return None

    def _instead_of_moving(self, job: RebuildJob) -> str:
        """Return a step that is not refused for a partition that must not be moved away."""
        [salvage] = self._jobs_of([job], Strategy.SALVAGE)
        salvaged = repair_one(salvage)
        command = self._command(job, Strategy.SALVAGE)
        if salvaged.error is not None:
            return salvaged.error.next_step
        if self._why_not_here(job, salvaged) is None:
            return command
        return f"{_COMPARE}; {self._if_only([job])}: {command} --single-copy"

    def _command(self, job: RebuildJob, strategy: Strategy) -> str:
        """Return the command that shows the plan of one partition."""
        words = ["eoctl", "repair", as_argument(job.selected.partition.path)]
        if self._options.metadata_dir is not None:
            words += ["--metadata-dir", self._options.metadata_dir]
        return call_text([*words, "--strategy", str(strategy)])

    def _note_of_replicas(self, rows: Iterable[RepairReport]) -> Iterable[str]:
        """Yield the conditions of each proposed move-away."""
        jobs = {each.selected.partition.path: each for each in self._work}
        for each in rows:
            if each.strategy != Strategy.MOVE_AWAY or self._options.replicated:
                continue
            if self._is_only_copy(jobs[each.path].selected) is None:
                yield (
                    f"{each.path}: nothing is known of other replicas: move-away needs"
                    " --metadata-dir DIR, or --replicated"
                )

    def _image(self, selected: Selected) -> ClusterImage | None:
        """Return the cluster metadata for the log dir of a partition."""
        log_dir = selected.log_dir
        key = "" if log_dir is None else log_dir.path
        if key not in self._images:
            self._images[key] = image_around(log_dir, self._options.metadata_dir)
        return self._images[key]

    def _replication_factor(self, selected: Selected) -> int | None:
        image = self._image(selected)
        if image is None or image.problems:
            return None
        name = selected.partition.name
        return image.replication_factor(name.topic, name.partition)

    def _is_only_copy(self, selected: Selected) -> bool | None:
        """Return whether no other node is in sync, or None if unknown."""
        image = self._image(selected)
        if image is None or image.problems:
            return None
        name = selected.partition.name
        found = image.partition(name.topic, name.partition)
        meta = None if selected.log_dir is None else selected.log_dir.meta
        if found is None or meta is None:
            return None
        return not {*found.isr} - {meta.node_id}

    def _other_nodes(self, selected: Selected) -> set[int]:
        """Return the other brokers with a replica, as far as the metadata say."""
        image = self._image(selected)
        name, meta = selected.partition.name, selected.log_dir and selected.log_dir.meta
        found = None if image is None else image.partition(name.topic, name.partition)
        return set() if found is None or meta is None else {*found.replicas} - {meta.node_id}

    def _proposals(self, repaired: Iterable[Repaired]) -> Iterable[RepairReport]:
        for job, each in zip(self._work, repaired, strict=True):
            if each.error is not None:
                continue
            row = _row(each)
            if not each.lost:
                is_good = not each.steps and each.limits is None
                strategy = NO_STRATEGY if is_good else str(Strategy.SALVAGE)
            else:
                is_only = self._options.single_copy or self._is_only_copy(job.selected) is True
                strategy = str(Strategy.SALVAGE if is_only else Strategy.MOVE_AWAY)
                if is_only and _has_no_way(each):
                    strategy = NO_STRATEGY  # no data is left
            yield row._replace(strategy=strategy)


def no_strategy(paths: Sequence[str], options: RepairOptions, jobs: int) -> UsageError:
    """Return the error of a changing command without a strategy, with the command that would work.

    Raises:
        RefusedError, AccessError, UsageError: nothing can be proposed.
    """
    run = RepairRun(paths, options)
    with Progress("reading", run.log_bytes) as progress:
        found = run.plan(jobs, progress.advance).comparison
    next_step = "the same without --apply and --save-plan compares them"
    if found is not None and found.call:
        remark = f"{found.remark}: " if found.is_conditional else ""
        next_step = f"{next_step}; {remark}{call_text([*found.call, '--apply'])}"
    return UsageError("--apply and --save-plan need a --strategy", next_step=next_step)


def repair_command(run: RepairRun, jobs: int) -> ChangeCommand:
    """Return the command as `run_change` needs it."""

    def plan() -> Planned:
        with Progress("reading", run.log_bytes) as progress:
            return _planned(run.plan(jobs, progress.advance), run.strategy)

    return ChangeCommand(
        name="repair",
        selected=lambda: run.selected,
        arguments=lambda: [*run.arguments().values()],
        plan=plan,
        applied_noun="log dirs repaired",
    )


def _planned(found: PlannedRepair, strategy: Strategy | None) -> Planned:
    is_open = found.is_short and not found.plans
    is_left = bool(found.errors) or is_open or found.is_unread
    notes, nothing = found.notes, ""
    if not found.plans and found.is_needed:
        notes += ("nothing was changed: --strategy NAME shows a plan",)
    elif is_open:
        notes += (f"nothing was changed: {NO_UNDO}",)
    else:
        where = " in the part that could be read and repaired here" if found.is_unread else ""
        where = " in the other partitions" if found.errors else where
        nothing = f"there is nothing to repair{where}"

    def show(done: Done, output: OutputFormat) -> None:
        rows = [
            each._replace(
                applied=(done.is_applied and each.steps_count > 0) or done.was_resumed(each.path)
            )
            for each in found.rows
        ]
        if found.comparison is not None and is_for_people(output):
            if found.comparison.rows:
                rows_of = ComparedStrategy._fields
                emit(Report("strategy", rows_of, found.comparison.rows), output)
            return
        reported = rows
        if is_for_people(output):
            reported = [each for each in rows if each.steps_count or each.lost_ranges_count]
        if reported or not rows:
            emit(Report("repair", COLUMNS, reported), output)
        if len(reported) < len(rows):
            line(f"{counted(len(rows) - len(reported), 'partition')} with nothing to repair")

    def opening(width: int) -> Iterator[Line]:
        if found.comparison is not None:
            yield from compared_lines(found.comparison, len(found.rows), nothing, width)

    return Planned(
        plans=found.plans,
        show=show,
        notes=notes,
        nothing=nothing,
        errors=found.errors,
        status=lambda: EXIT_SKIPPED if is_left else EXIT_OK,
        answer=lambda: None if strategy is None else repair_answer(strategy, found.cost),
        opening=opening if found.comparison is not None else None,
    )


def _has_no_way(repaired: Repaired) -> bool:
    """Return whether acknowledged records are missing, and there is nothing to repair."""
    return repaired.is_short and not repaired.steps and repaired.limits is None


def _parent_of(job: RebuildJob) -> str:
    return str(Path(absolute_path(job.selected.partition.path)).parent)


def _row(repaired: Repaired) -> RepairReport:
    return RepairReport(
        path=repaired.path,
        strategy=str(repaired.strategy),
        log_start_offset=repaired.log_start_offset,
        log_end_offset=repaired.end_offset,
        lost_offsets_count=repaired.lost_offsets_count,
        lost_records_count=repaired.lost_records_count,
        lost_ranges_count=len(repaired.lost),
        lost_bytes=repaired.lost_bytes,
        open_transactions_count=len(repaired.open_transactions),
        steps_count=len(repaired.steps),
        applied=False,
    )
