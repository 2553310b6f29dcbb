"""Results of all runs: rows of figures, latencies, landed records and relations.

A figure is the median of its runs, with the lowest and the highest. A relation has an answer: yes,
no, or not decided if the runs spread too far. No speed is right or wrong. A missing acknowledged
record is wrong. A duplicate record is wrong if no retry could cause it, or if idempotence had to
prevent it.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.lab.bench.load import latencies_ns, summarise
from eoctl.lab.bench.runner import end_to_end_ns
from eoctl.lab.bench.scenarios import ACKS_ALL, ACKS_NAMES, BARE, SCENARIOS
from eoctl.output import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.lab.bench.runner import CellRun
    from eoctl.lab.bench.scenarios import Article, Cell

    Runs = dict[tuple[int, str], list[CellRun]]


YES, NO, OPEN = "yes", "no", "not decided"
ALIKE_RATIO = 1.25  # highest allowed median of similar cells, as a ratio to the lowest


class CellRow(NamedTuple):
    """Figures of a cell.

    Attributes:
        records_per_s: the median, next to the lowest and the highest.
        ratio: to the first cell of the scenario.
        article_records_per_s: result of the article.
        article_ratio: of the article's result to its own first cell.
    """

    scenario: int
    cell: str
    acks: str
    replication_factor: int
    min_insync: int
    partitions: int
    retries: int
    runs_count: int
    records_count: int
    records_per_s: int
    lowest_per_s: int
    highest_per_s: int
    ratio: float | None
    article_per_s: int | None
    article_ratio: float | None


class LatencyRow(NamedTuple):
    """Latencies of a cell, over all its runs."""

    scenario: int
    cell: str
    latency: str
    samples_count: int | None
    avg_us: int | None
    min_us: int | None
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    p99_9_us: int | None
    p99_99_us: int | None
    max_us: int | None


class LandedRow(NamedTuple):
    """Records in the logs of the brokers, from all runs of a cell, with its warm-up."""

    scenario: int
    cell: str
    acknowledged_count: int
    landed_count: int
    missing_count: int
    nowhere_count: int
    twice_count: int
    unacknowledged_count: int
    others_count: int
    misplaced_count: int
    failed: str


class StretchRow(NamedTuple):
    """Successive records of one partition that are `missing` or duplicated (`twice`)."""

    topic: str
    what: str
    partition: int
    first_sequence: int
    last_sequence: int
    records_count: int


class RelationRow(NamedTuple):
    """A relation, its answer (`YES`, `NO`, `OPEN`), and its figures."""

    scenario: int
    relation: str
    holds: str
    figures: str


CELL_COLUMNS = Columns(CellRow._fields, answers=(
    "scenario", "cell", "records_per_s", "lowest_per_s", "highest_per_s", "ratio", "article_per_s",
    "article_ratio",
))  # fmt: skip
LATENCY_COLUMNS = Columns(LatencyRow._fields, answers=(
    "scenario", "cell", "latency", "avg_us", "p50_us", "p99_us", "p99_99_us", "max_us",
))  # fmt: skip
LANDED_COLUMNS = Columns(LandedRow._fields, answers=(
    "cell", "acknowledged_count", "landed_count", "missing_count", "twice_count", "failed",
))  # fmt: skip
RELATION_COLUMNS = Columns(RelationRow._fields, answers=(
    "scenario", "holds", "relation", "figures",
))  # fmt: skip


class Spread(NamedTuple):
    """Runs of a cell, in records per second.

    Attributes:
        low, high: range for comparison: the lowest and the highest run. With 5 or more runs, a
            fifth at each end is left out. The ranges of two similar cells with 3 runs each are
            disjoint by chance once in 10 times.
    """

    cell: Cell
    middle: float
    lowest: float
    highest: float
    low: float
    high: float

    def meets(self, other: Spread) -> bool:
        """Return whether both ranges overlap."""
        return max(self.low, other.low) <= min(self.high, other.high)

    def reported(self) -> str:
        """Return the figures as text."""
        return f"{self.middle:,.0f} ({self.low:,.0f}..{self.high:,.0f})"


def by_cell(runs: Iterable[CellRun]) -> Runs:
    """Group the runs by cell, in the order of the scenarios."""
    found: Runs = {}
    for each in runs:
        found.setdefault((each.cell.scenario, each.cell.name), []).append(each)
    places = {
        (number, cell.name): place
        for number, (_, cells) in SCENARIOS.items()
        for place, cell in enumerate(cells)
    }
    last = len(places)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], places.get(item[0], last))))


def counted(runs: Runs) -> Runs:
    """Leave out warm-up runs, and cells without other runs."""
    found = {key: [run for run in each if run.is_counted] for key, each in runs.items()}
    return {key: each for key, each in found.items() if each}


def spreads(runs: Runs, scenario: int) -> list[Spread]:
    """Summarise the cells of a scenario that eoctl's load sends."""
    return [
        _spread(each)
        for (number, _), each in counted(runs).items()
        if number == scenario and each[0].cell.is_ours
    ]


def _spread(runs: Sequence[CellRun]) -> Spread:
    rates = sorted(each.records_per_s for each in runs)
    cut = len(rates) // 5
    return Spread(
        cell=runs[0].cell,
        middle=median(rates),
        lowest=rates[0],
        highest=rates[-1],
        low=rates[cut],
        high=rates[-1 - cut],
    )


def cell_rows(runs: Runs) -> Iterator[CellRow]:
    """Yield the figures, with ratios to the first cell of each scenario."""
    first: dict[int, tuple[float, Article]] = {}
    for (scenario, name), each in counted(runs).items():
        spread, cell = _spread(each), each[0].cell
        base, article = first.setdefault(scenario, (spread.middle, cell.article))
        theirs = cell.article.records_per_s
        yield CellRow(
            scenario=scenario,
            cell=name,
            acks=ACKS_NAMES[cell.acks],
            replication_factor=cell.replication_factor,
            min_insync=cell.min_insync,
            partitions=cell.partitions,
            retries=cell.retries,
            runs_count=len(each),
            records_count=sum(run.sent.records_count for run in each),
            records_per_s=round(spread.middle),
            lowest_per_s=round(spread.lowest),
            highest_per_s=round(spread.highest),
            ratio=round(spread.middle / base, 3) if base else None,
            article_per_s=theirs,
            article_ratio=(
                round(theirs / article.records_per_s, 3)
                if theirs and article.records_per_s
                else None
            ),
        )


def latency_rows(runs: Runs, warmup_ratio: float) -> Iterator[LatencyRow]:
    """Yield the latencies, followed by the article's latencies."""
    for (scenario, name), each in counted(runs).items():
        if not each[0].cell.is_ours:
            continue
        kinds = {
            "send": [latencies_ns(run.sent, warmup_ratio) for run in each],
            "end to end": [end_to_end_ns(run, warmup_ratio) for run in each],
        }
        for kind, samples in kinds.items():
            found = summarise(np.concatenate(samples))
            if found is not None:
                yield LatencyRow(scenario=scenario, cell=name, latency=kind, **found._asdict())
        article = each[0].cell.article
        for kind, values in (("send", article.send_ms), ("end to end", article.e2e_ms)):
            if values:
                yield _article_row(scenario, name, kind, values)


def _article_row(scenario: int, name: str, kind: str, values: tuple[float, ...]) -> LatencyRow:
    average, least, most, p99, p99_99 = (round(each * 1000) for each in values)
    return LatencyRow(
        scenario=scenario, cell=name, latency=f"{kind}, article", samples_count=None,
        avg_us=average, min_us=least, p50_us=None, p95_us=None, p99_us=p99, p99_9_us=None,
        p99_99_us=p99_99, max_us=most,
    )  # fmt: skip


def landed_rows(runs: Runs) -> Iterator[LandedRow]:
    """Yield the landed records, also from warm-up runs."""
    for (scenario, name), each in runs.items():
        failed: Counter[str] = Counter()
        for run in each:
            failed.update(run.sent.errors)
        found = [run.landed for run in each]
        yield LandedRow(
            scenario=scenario,
            cell=name,
            acknowledged_count=sum(one.acknowledged_count for one in found),
            landed_count=sum(one.landed_count for one in found),
            missing_count=sum(one.missing_count for one in found),
            nowhere_count=sum(one.nowhere_count for one in found),
            twice_count=sum(one.twice_count for one in found),
            unacknowledged_count=sum(one.unacknowledged_count for one in found),
            others_count=sum(one.others_count for one in found),
            misplaced_count=sum(one.misplaced_count for one in found),
            failed=", ".join(f"{name} {count}" for name, count in failed.most_common()),
        )


def stretch_rows(runs: Iterable[CellRun]) -> Iterator[StretchRow]:
    """Yield the missing and the duplicate records of each run."""
    for run in runs:
        for what, found in (("missing", run.landed.missing), ("twice", run.landed.twice)):
            for each in found:
                yield StretchRow(topic=run.topic, what=what, **each._asdict())


# --- relations ------------------------------------------------------------------------------------


def relation_rows(runs: Runs, *, is_consumed: bool = False) -> Iterator[RelationRow]:
    """Yield the relations whose cells were run.

    `is_consumed` means that landed records come from a consumer, because the logs are on other
    machines.
    """
    for scenario in dict.fromkeys(number for number, _ in runs):
        found = spreads(runs, scenario)
        if scenario in (1, 3):
            yield from _acks_relations(scenario, found)
        if scenario in (1, 2, 3):
            yield from _replica_relations(scenario, found)
        yield from _landed_relations(scenario, runs, is_consumed=is_consumed)


def _acks_relations(scenario: int, found: Sequence[Spread]) -> Iterator[RelationRow]:
    least = {(each.cell.acks, each.cell.replication_factor): each for each in found
             if each.cell.min_insync == 1}  # fmt: skip
    for factor in sorted({factor for _, factor in least}):
        row = [least[acks, factor] for acks in (0, 1, ACKS_ALL) if (acks, factor) in least]
        if len(row) == len(ACKS_NAMES):
            yield _falls(scenario, f"acks 0 > 1 > all at RF {factor}", row)
    for acks in (0, 1):
        same = [each for (own, _), each in sorted(least.items()) if own == acks]
        if len(same) > 1:
            yield _alike(scenario, f"acks={acks} does not depend on RF", same)


def _replica_relations(scenario: int, found: Sequence[Spread]) -> Iterator[RelationRow]:
    of_all = [each for each in found if each.cell.acks == ACKS_ALL]
    row = sorted(
        (each for each in of_all if each.cell.min_insync == 1),
        key=lambda each: each.cell.replication_factor,
    )
    if len(row) > 1:
        factors = " > ".join(str(each.cell.replication_factor) for each in row)
        yield _falls(scenario, f"acks=all falls with replicas: RF {factors}", row)
    for factor in sorted({each.cell.replication_factor for each in of_all}):
        same = [each for each in of_all if each.cell.replication_factor == factor]
        if len(same) > 1:
            what = f"min.insync.replicas has no effect at RF {factor}"
            yield _alike(scenario, what, same)


def _falls(scenario: int, relation: str, row: Sequence[Spread]) -> RelationRow:
    """Return whether each spread is above the next, not decided if two of them overlap."""
    answers = {
        OPEN if one.meets(other) else YES if one.low > other.high else NO
        for one, other in pairwise(row)
    }
    holds = next(each for each in (NO, OPEN, YES) if each in answers)
    figures = " > ".join(each.reported() for each in row)
    return RelationRow(scenario=scenario, relation=relation, holds=holds, figures=figures)


def _alike(scenario: int, relation: str, row: Sequence[Spread]) -> RelationRow:
    """Return whether all spreads overlap, not decided if their medians differ too much."""
    if not all(one.meets(other) for one, other in combinations(row, 2)):
        holds = NO
    elif max(each.middle for each in row) > ALIKE_RATIO * min(each.middle for each in row):
        holds = OPEN
    else:
        holds = YES
    figures = " = ".join(each.reported() for each in row)
    return RelationRow(scenario=scenario, relation=relation, holds=holds, figures=figures)


def _landed_relations(scenario: int, runs: Runs, *, is_consumed: bool) -> Iterator[RelationRow]:
    own = [run for (number, _), each in runs.items() if number == scenario for run in each]
    wrong = _wrong(own)
    answered = [run.landed for run in own if run.cell.acks != 0]
    if answered:
        total = sum(each.acknowledged_count for each in answered)
        where = "given to a consumer" if is_consumed else "in the log of every replica in sync"
        yield RelationRow(
            scenario=scenario,
            relation=f"every acknowledged record is {where}",
            holds=NO if wrong.missing_count else YES,
            figures=f"{wrong.missing_count:,} of {total:,} are not",
        )
    rest = sum(run.landed.twice_count for run in own if run.cell.may_double)
    yield RelationRow(
        scenario=scenario,
        relation="records are there twice only with retries and without idempotence",
        holds=NO if wrong.twice_count else YES,
        figures=f"{wrong.twice_count:,} otherwise, {rest:,} with",
    )


def answer(runs: Sequence[CellRun]) -> Iterator[str]:
    """Yield the results of all runs for people: landed and duplicate records."""
    wrong = _wrong(runs)
    promised = sum(each.landed.acknowledged_count for each in runs if each.cell.acks != 0)
    if wrong.missing_count:
        yield f"WRONG: of {promised:,} acknowledged records {wrong.missing_count:,} have not landed"
    elif promised:
        yield f"All {promised:,} acknowledged records have landed"
    rest = [each for each in runs if each.cell.acks == 0]
    if rest:
        count = sum(each.sent.records_count for each in rest)
        missing = sum(each.landed.missing_count for each in rest)
        lost = f"{missing:,} have not" if missing else "all have"
        yield f"Of {count:,} records with acks=0, of which nothing is promised, {lost} landed"
    if wrong.twice_count:
        yield f"WRONG: {wrong.twice_count:,} records are there twice that should not be"
    else:
        yield "No record is there twice that should not be"


def bare_ratio(runs: Runs) -> list[tuple[int, float, str]]:
    """Return, by scenario, the share of the bare loop's rate that eoctl's load reaches.

    The text has both rates. If the runs overlap, only other work of the machine separates the
    rates, and the text says so.
    """
    found = []
    runs = counted(runs)
    for scenario in dict.fromkeys(number for number, _ in runs):
        bare = runs.get((scenario, BARE))
        plain = next(
            (
                each
                for (number, _), each in runs.items()
                if number == scenario and each[0].cell.is_ours
            ),
            None,
        )
        if bare and plain and (rate := _spread(bare).middle):
            ours, theirs = _spread(plain), _spread(bare)
            reported = f"{ours.reported()} to {theirs.reported()}"
            reported += ": not decided, as their runs overlap" if ours.meets(theirs) else ""
            found.append((scenario, ours.middle / rate, reported))
    return found


def is_sound(runs: Sequence[CellRun]) -> bool:
    """Return whether no acknowledged record is missing, and no duplicate lacks a reason."""
    return _wrong(runs) == Wrong(missing_count=0, twice_count=0)


class Wrong(NamedTuple):
    """Records with a wrong result.

    Attributes:
        missing_count: acknowledged and missing, except with acks=0, which promises nothing.
        twice_count: duplicated, although no retry could cause it or idempotence was on.
    """

    missing_count: int
    twice_count: int


def _wrong(runs: Iterable[CellRun]) -> Wrong:
    missing = twice = 0
    for each in runs:
        missing += 0 if each.cell.acks == 0 else each.landed.missing_count
        twice += 0 if each.cell.may_double else each.landed.twice_count
    return Wrong(missing_count=missing, twice_count=twice)
