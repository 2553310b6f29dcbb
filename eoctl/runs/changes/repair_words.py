"""What a repair comes to, and the strategies beside each other; for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.runs.changes.plan_words import PlanAnswer
from eoctl.runs.told import LABEL_WIDTH, Said, counted, fitting, listing, said_line
from recovery.repair.strategies import Strategy
from recovery.rules.findings import Severity
from storage.shell_words import call_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eoctl.runs.told import Line
    from recovery.repair.repaired import Repaired
    from storage.dirs.discovery import Selected

# More than so much is not read once more only to compare.
MAX_COMPARED_BYTES = 4 << 30


class ComparedStrategy(NamedTuple):
    """What one strategy makes of one directory. Offsets are at most so many; None is unknown.

    Attributes:
        is_proposed: it is the one to go on with.
    """

    partition: str
    strategy: str
    kept_offsets_count: int | None
    lost_offsets_count: int | None
    acknowledged_lost_count: int | None
    is_proposed: bool


class RepairCost(NamedTuple):
    """What a repair of some directories costs.

    Attributes:
        names: of those that are changed.
        lost_count: offsets that no file has afterwards, at most; `is_least`: or more.
        acknowledged_count: those below the checkpointed high watermarks; None: not known.
        records_count: records of intact batches that no file has afterwards, in `batches_count`;
            `acknowledged_records_count` of them lie below the high watermarks; None: not known.
        copies_count: intact batches that go and stay elsewhere.
        opened_count: transactions that have no marker afterwards.
    """

    names: tuple[str, ...] = ()
    lost_count: int = 0
    is_least: bool = False
    acknowledged_count: int | None = 0
    records_count: int = 0
    acknowledged_records_count: int | None = 0
    batches_count: int = 0
    copies_count: int = 0
    opened_count: int = 0

    def plus(self, name: str, repaired: Repaired, high_watermark: int | None) -> RepairCost:
        """Add a directory."""
        counts = [each.offsets_count for each in repaired.lost]
        acknowledged = repaired.acknowledged_lost_count(high_watermark)
        records = [each.acknowledged_records_count for each in repaired.lost if each.records_count]
        return RepairCost(
            names=(*self.names, name),
            lost_count=self.lost_count + sum(each or 0 for each in counts),
            is_least=self.is_least or None in counts,
            acknowledged_count=_total([self.acknowledged_count, acknowledged]),
            records_count=self.records_count + repaired.lost_records_count,
            acknowledged_records_count=_total([self.acknowledged_records_count, *records]),
            batches_count=self.batches_count + repaired.lost_batches_count,
            copies_count=self.copies_count + sum(each.copies_count for each in repaired.lost),
            opened_count=self.opened_count + len(repaired.open_transactions),
        )


def _total(counts: Sequence[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


class StrategyComparison(NamedTuple):
    """The strategies beside each other, and how to go on.

    Attributes:
        rows: of the damaged directories.
        costs: by strategy.
        call: words to go on with; none: there is no way to.
        remark: what has to be true for it.
    """

    rows: tuple[ComparedStrategy, ...]
    costs: Mapping[str, RepairCost]
    call: tuple[str, ...]
    remark: str


def cost_of(selected: Iterable[Selected], repaired: Iterable[Repaired]) -> RepairCost:
    """Add up what repairs cost, of some of these partitions."""
    watermarks = {each.partition.path: _high_watermark(each) for each in selected}
    cost = RepairCost()
    for each in repaired:
        cost = cost.plus(Path(each.path).name, each, watermarks[each.path])
    return cost


def compare(
    selected: Sequence[Selected],
    by_strategy: Mapping[Strategy, Mapping[str, Repaired]],
    proposed: Mapping[str, str],
) -> StrategyComparison:
    """Put the strategies beside each other, without a call to go on with.

    Args:
        selected: the damaged partitions.
        by_strategy: what each makes of them, by path.
        proposed: the strategy for each, by path. Where it is to move all of it away, nobody here
            knows how much another replica has.
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
    costs = {
        str(name): cost_of(selected, found.values()) for name, found in by_strategy.items() if found
    }
    return StrategyComparison(rows=tuple(rows), costs=costs, call=(), remark="")


def _compared(
    selected: Selected, repaired: Repaired | None, strategy: Strategy, *, is_proposed: bool
) -> ComparedStrategy:
    kept = lost = acknowledged = None
    if repaired is not None:
        kept, lost = repaired.kept_offsets_count, repaired.lost_offsets_count
        acknowledged = repaired.acknowledged_lost_count(_high_watermark(selected))
    return ComparedStrategy(
        partition=Path(selected.partition.path).name,
        strategy=str(strategy),
        kept_offsets_count=kept,
        lost_offsets_count=lost,
        acknowledged_lost_count=acknowledged,
        is_proposed=is_proposed,
    )


def _high_watermark(selected: Selected) -> int | None:
    log_dir = selected.log_dir
    return None if log_dir is None else log_dir.high_watermark(selected.partition)


def repair_answer(strategy: Strategy, cost: RepairCost) -> PlanAnswer:
    """Tell what a plan comes to."""
    names = listing(cost.names, "partitions") or "the checkpoints of the log dir"
    if strategy is Strategy.MOVE_AWAY:
        return PlanAnswer(
            verbs=("move", "moved"),
            does=(f"{names} away as a whole, for the broker to fetch anew", f"{names} away"),
            loses=("nothing that another replica has in sync; all of it if there is none",),
            is_loss=True,
        )
    return PlanAnswer(
        verbs=("mend", "mended"),
        does=(f"{names}, strategy {strategy}", names),
        loses=_loses(cost),
        is_loss=bool(cost.lost_count or cost.is_least or cost.batches_count),
    )


def _loses(cost: RepairCost) -> tuple[str, ...]:
    opened = f"; {counted(cost.opened_count, 'transaction')} without a marker"
    opened = opened if cost.opened_count else ""
    parts = []
    if cost.lost_count:
        least = "at least " if cost.is_least else ""
        offsets = f"{least}{counted(cost.lost_count, 'offset')}"
        parts.append(f"{offsets}, {_acknowledged(cost.acknowledged_count)}")
    elif cost.is_least:
        is_unacknowledged = cost.acknowledged_count == 0
        end = "" if is_unacknowledged else f", {_acknowledged(cost.acknowledged_count)}"
        no_batch = "no whole batch; " if is_unacknowledged and not cost.batches_count else ""
        parts.append(f"{no_batch}a torn end{end}" + (" goes" if no_batch else ""))
    if cost.batches_count:
        records = f"{counted(cost.records_count, 'intact record')}"
        where = f"in {counted(cost.batches_count, 'batch', 'batches')}"
        parts.append(f"{records} {where}, {_acknowledged(cost.acknowledged_records_count)}")
    elif not parts and cost.copies_count:
        copies = counted(cost.copies_count, "duplicate batch", "duplicate batches")
        parts.append(f"no record; {copies}")
    text = "; ".join(reversed(parts)) or "no offset"
    return (f"{text}{opened}", text)


def _acknowledged(count: int | None) -> str:
    return "how many acknowledged is unknown" if count is None else f"{count:,} acknowledged"


def compared_lines(
    compared: StrategyComparison, total_count: int, nothing: str, width: int
) -> Iterator[Line]:
    """Tell what is damaged, what each strategy loses, and how to go on."""
    room = width - LABEL_WIDTH
    if not compared.rows:
        yield said_line(Said("Found", fitting([nothing], room)))
        return
    names = list(dict.fromkeys(each.partition for each in compared.rows))
    found = f"{len(names)} of {counted(total_count, 'partition')} to repair"
    texts = [f"{found}: {listing(names, 'partitions')}", found]
    yield said_line(Said("Found", fitting(texts, room), Severity.ERROR.rank))
    for strategy, cost in compared.costs.items():
        loses = [f"by {strategy}: {each}" for each in _loses(cost)]
        yield said_line(Said("Loses", fitting(loses, room), Severity.WARNING.rank))
    if compared.call:
        command = call_text(compared.call)
        texts = [f"{command}   # {compared.remark}"] if compared.remark else []
        yield said_line(Said("Next", next((e for e in texts if len(e) <= room), command)))
