"""What a repair comes to, and the strategies beside each other; for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.runs.changes.plan_words import PlanAnswer
from eoctl.runs.told import LABEL_WIDTH, Said, counted, fitting, listing, said_line
from recovery.changes.journals.losses import Lost
from recovery.repair.strategies import Strategy
from recovery.rules.findings import Severity
from storage.errors import call_text

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
        opened_count: transactions that have no marker afterwards.
    """

    names: tuple[str, ...] = ()
    lost: Lost = Lost()
    opened_count: int = 0

    def plus(self, name: str, repaired: Repaired) -> RepairCost:
        """Add a directory."""
        lost = self.lost
        for each in repaired.lost:
            lost = lost.plus(each.cost(repaired.high_watermark))
        return RepairCost(
            names=(*self.names, name),
            lost=lost,
            opened_count=self.opened_count + len(repaired.open_transactions),
        )


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


def cost_of(repaired: Iterable[Repaired]) -> RepairCost:
    """Add up what repairs cost."""
    cost = RepairCost()
    for each in repaired:
        cost = cost.plus(Path(each.path).name, each)
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
        is_loss=cost.lost.is_something,
    )


def _loses(cost: RepairCost) -> tuple[str, ...]:
    text = cost.lost.text
    opened = f"; {counted(cost.opened_count, 'transaction')} without a marker"
    return (f"{text}{opened}" if cost.opened_count else text, text, text.partition(";")[0])


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
