"""The guarantee matrix, searched and written: `make explore`.

    python -m tests.lab.explored [--seeds 200] [--seconds S] [--jobs N] [--anew] [--recount] [--trusted]

Goes on where the file that is shipped ends. First each witness is tried again, and one that is
condemned no more is looked for anew; then each cell that nothing was found in is given --seeds that
were not played before, behind the last one, and at least as many as are enough to say so, those with
the fewest first, for --seconds at most. So every call plays new courses in all of them. After a change
of what brokers do, --recount counts these from the first seed on: their courses are others now.
Whenever there is a new witness, its course of events is tried in the cells that differ from it in one
setting and do not do it yet: weaker settings lose no less. What is there is written every minute, and
at the end, Ctrl-C included.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from eoctl.lab.guarantees.matrix import (
    DIMENSIONS,
    EFFECTS,
    ENOUGH_SEEDS,
    LOSE,
    MATRIX_PATH,
    CellResult,
    Matrix,
    Witness,
    effect_of,
    encode_matrix,
    load_matrix,
    tried_cells,
)
from eoctl.lab.guarantees.scenarios import shortened, simulate_scenario
from tests.lab.claims import CLAIMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from multiprocessing.pool import AsyncResult, Pool

    from eoctl.lab.guarantees.matrix import GuaranteeCell


FIRST_SEEDS = 5  # of every cell, also of those that something was found in
LOSS_SEEDS = 50  # of those that do something, and lose nothing
MORE_SEEDS = 20  # at a time
PATIENCE_SEEDS = 100  # in a cell that a claim is made of
ALSO = {"kill-one": "kill-in-turn"}  # what one death does, the first of several may do
MAX_KNOWN = 4  # courses of other cells that are tried first, the newest
MAX_NEAR = 6  # of those that differ in one setting, for each effect
SAVED_EVERY_S = 60


class Found(NamedTuple):
    """What is known of a cell, with its own witnesses."""

    cell: GuaranteeCell
    seeds_count: int = 0
    violations_count: int = 0
    witnesses: dict[str, Witness] = {}  # noqa: RUF012 - never changed


class Task(NamedTuple):
    """What is to be done for a cell."""

    found: Found
    more: int
    known: tuple[Witness, ...]  # of others, to be tried first


def effects_in(cell: GuaranteeCell, witness: Witness) -> set[str]:
    """What a course of events comes to in a cell."""
    return {
        effect_of(each) for each in simulate_scenario(cell.settings, witness.run_in(cell)).kinds
    }


def explored(task: Task) -> Found:
    """Try more seeds of a cell, and find the shortest course for each effect."""
    found, cell = task.found, task.found.cell
    witnesses = dict(found.witnesses)
    violations = 0
    for known in task.known:
        if not {*EFFECTS} <= {*witnesses}:
            for effect in effects_in(cell, known):
                witnesses.setdefault(effect, known)
    for seed in range(found.seeds_count, found.seeds_count + task.more):
        scenario = simulate_scenario(cell.settings, cell.run_of_seed(seed))
        violations += bool(scenario.findings)
        for effect in {effect_of(each) for each in scenario.kinds} - {*witnesses}:
            wanted = {each for each in scenario.kinds if effect_of(each) == effect}
            run = shortened(cell.settings, scenario, wanted).run
            witnesses[effect] = Witness(run.seed, run.records, run.rate, run.burst, run.faults)
    return found._replace(
        seeds_count=found.seeds_count + task.more,
        violations_count=found.violations_count + violations,
        witnesses=witnesses,
    )


def pursued(aim: tuple[Found, str]) -> Found:
    """Try seeds until one comes to an effect that is claimed, or the patience ends."""
    found, effect = aim
    for _ in range(PATIENCE_SEEDS):
        found = explored(Task(found, 1, ()))
        if effect in found.witnesses:
            break
    return found


def tried(aim: tuple[Found, tuple[Witness, ...]]) -> Found:
    """Try courses of events that were found in other cells."""
    found, scenarios = aim
    witnesses = dict(found.witnesses)
    for each in scenarios:
        for effect in effects_in(found.cell, each):
            witnesses.setdefault(effect, each)
    return found._replace(witnesses=witnesses)


def near(cell: GuaranteeCell) -> set[GuaranteeCell]:
    """Cells that differ from it in one setting."""
    values = {**DIMENSIONS, "faults": (ALSO.get(cell.faults, cell.faults),)}
    return {
        cell._replace(**{name: value}).canonical
        for name, each in values.items()
        for value in each
        if value != getattr(cell, name)
    }


def checked(found: Found) -> Found:
    """See which witnesses still hold; a cell whose witness does not begins anew."""
    if all(effect in effects_in(found.cell, each) for effect, each in found.witnesses.items()):
        return found
    return Found(found.cell)


def as_found(matrix: Matrix) -> dict[GuaranteeCell, Found]:
    """What was written before."""
    return {
        each.cell: Found(
            each.cell, each.seeds_count, each.violations_count,
            {effect: matrix.witnesses[place] for effect, place in each.witnesses.items()},
        )
        for each in matrix.results
    }  # fmt: skip


def as_matrix(found: Collection[Found]) -> Matrix:
    """As it is written: each witness once."""
    order = {each: place for place, each in enumerate(tried_cells())}
    places: dict[Witness, int] = {}
    results = []
    for each in sorted(found, key=lambda found: order[found.cell]):
        witnesses = {
            effect: places.setdefault(each.witnesses[effect], len(places))
            for effect in EFFECTS
            if effect in each.witnesses
        }
        results.append(CellResult(each.cell, each.seeds_count, each.violations_count, witnesses))
    return Matrix(tuple(places), tuple(results))


def _has_witnesses(found: Found) -> bool:
    return bool(found.witnesses)


def is_open(found: Found) -> bool:
    """Whether more seeds are wanted: nothing was found, or not what is claimed never to be."""
    never = {each for claim in CLAIMS if claim.cell.canonical == found.cell for each in claim.never}
    return not found.witnesses or (bool(never) and never.isdisjoint(found.witnesses))


class Search:
    """The whole search.

    Args:
        found: what is known.
        more: seeds that each open cell is given.
        seconds: after that they are given no more.

    Attributes:
        simulated_count: courses of events with seeds that no cell had yet.
    """

    def __init__(self, found: dict[GuaranteeCell, Found], more: int, seconds: float) -> None:
        self.found = found
        self.simulated_count = 0
        # What is enough for a cell that nothing is found in.
        self._wanted = {
            cell: max(each.seeds_count + more, ENOUGH_SEEDS) for cell, each in found.items()
        }
        self._seconds = seconds
        self._known: dict[str, list[Witness]] = {}
        self._saved = time.monotonic()

    def _due(self) -> Iterator[tuple[GuaranteeCell, int]]:
        """Cells, and how many seeds they are to have: those with the fewest first, in rounds."""
        end = time.monotonic() + self._seconds
        goal, last = FIRST_SEEDS, max(self._wanted.values(), default=0)
        while goal < last + MORE_SEEDS:
            for cell in [*self.found]:
                if time.monotonic() > end:
                    return
                if self._lacking(cell, goal) > 0:
                    yield cell, goal
            goal = goal + MORE_SEEDS if goal > FIRST_SEEDS else MORE_SEEDS

    def _lacking(self, cell: GuaranteeCell, goal: int) -> int:
        found = self.found[cell]
        return min(goal, self._most(found)) - found.seeds_count

    def _most(self, found: Found) -> int:
        """So many seeds are enough for it."""
        if is_open(found):
            return self._wanted[found.cell]
        return FIRST_SEEDS if LOSE in found.witnesses else LOSS_SEEDS

    def _known_of(self, cell: GuaranteeCell) -> tuple[Witness, ...]:
        return tuple(self._known.get(cell.faults, ()))

    def take(self, each: Found) -> None:
        """Take what was found in a cell."""
        before = self.found[each.cell]
        self.simulated_count += max(each.seeds_count - before.seeds_count, 0)
        if before.seeds_count >= ENOUGH_SEEDS and {*each.witnesses} - {*before.witnesses}:
            print("nothing had been found here:", each.cell, each.witnesses, flush=True)
        self.found[each.cell] = each
        known = self._known.setdefault(each.cell.faults, [])
        for witness in each.witnesses.values():
            if witness not in known:
                known.append(witness)
                del known[:-MAX_KNOWN]
        if time.monotonic() - self._saved > SAVED_EVERY_S:
            self.save()

    def _pursue(self, pool: Pool) -> None:
        """Find what is claimed, then see in which other cells the same course does the same."""
        aims = [
            (self.found[each.cell.canonical], each.effect)
            for each in CLAIMS
            if each.effect and each.effect not in self.found[each.cell.canonical].witnesses
        ]
        for (_, effect), found in zip(aims, pool.imap(pursued, aims), strict=True):
            self.take(found)
            if effect not in found.witnesses:
                print("claimed, and not found:", effect, found.cell, flush=True)
                continue
            others = [
                (each, (found.witnesses[effect],))
                for each in self.found.values()
                if each.cell.faults in {found.cell.faults, ALSO.get(found.cell.faults)}
                and effect not in each.witnesses
            ]
            for each in pool.imap(tried, others, chunksize=4):
                self.take(each)

    def _spread(self, pool: Pool) -> None:
        """Try in each cell what its neighbours do, and it does not, until nothing new comes of it."""
        done: set[tuple[GuaranteeCell, Witness]] = set()
        while True:
            aims = []
            for cell, found in self.found.items():
                scenarios = dict.fromkeys(
                    scenario
                    for effect in EFFECTS
                    if effect not in found.witnesses
                    for scenario in self._near_scenarios(cell, effect)
                    if (cell, scenario) not in done
                )
                done |= {(cell, scenario) for scenario in scenarios}
                if scenarios:
                    aims.append((found, tuple(scenarios)))
            before = sum(len(each.witnesses) for each in self.found.values())
            for each in pool.imap(tried, aims, chunksize=4):
                self.take(each)
            if sum(len(each.witnesses) for each in self.found.values()) == before:
                return

    def _near_scenarios(self, cell: GuaranteeCell, effect: str) -> list[Witness]:
        others = (self.found[each].witnesses for each in near(cell) if each in self.found)
        return sorted({each[effect] for each in others if effect in each})[:MAX_NEAR]

    def save(self) -> None:
        """Write what is known."""
        self._saved = time.monotonic()
        MATRIX_PATH.write_bytes(encode_matrix(as_matrix(self.found.values())))

    def run(self, pool: Pool, jobs: int, *, is_trusted: bool) -> None:
        """Look until the end."""
        before = {cell: each.witnesses for cell, each in self.found.items()}
        if not is_trusted:
            for each in pool.imap(checked, [*filter(_has_witnesses, self.found.values())], 8):
                if each != self.found[each.cell]:
                    print("its witness is none any more:", each.cell, flush=True)
                self.take(each)
        self._pursue(pool)
        under_way: deque[tuple[GuaranteeCell, AsyncResult[Found]]] = deque()
        for cell, goal in self._due():
            while len(under_way) > 2 * jobs or any(cell == each for each, _ in under_way):
                self.take(under_way.popleft()[1].get())
            more = self._lacking(cell, goal)
            if more > 0:
                known = () if self.found[cell].seeds_count else self._known_of(cell)
                task = Task(self.found[cell], more, known)
                under_way.append((cell, pool.apply_async(explored, (task,))))
        for _, result in under_way:
            self.take(result.get())
        if before != {cell: each.witnesses for cell, each in self.found.items()}:
            self._spread(pool)


def main() -> None:
    """Explore, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200, help="new ones, of each open cell")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new ones after that")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--recount", action="store_true", help="begin anew where nothing was found")
    parser.add_argument("--trusted", action="store_true", help="do not try known witnesses again")
    options = parser.parse_args()
    found = {each: Found(each) for each in tried_cells()}
    if MATRIX_PATH.exists() and not options.anew:
        before = as_found(load_matrix())
        if options.recount:
            before = {cell: each for cell, each in before.items() if not is_open(each)}
        found = {each: before.get(each, empty) for each, empty in found.items()}
    search = Search(found, options.seeds, options.seconds)
    with contextlib.suppress(KeyboardInterrupt), multiprocessing.Pool(options.jobs) as pool:
        search.run(pool, options.jobs, is_trusted=options.trusted)
    search.save()
    none = [each.seeds_count for each in search.found.values() if not each.witnesses]
    may = len(search.found) - len(none)
    print(
        f"{search.simulated_count} new seeds; {may} cells with a witness; {len(none)} with none in {min(none, default=0)} to"
        f" {max(none, default=0)} seeds; {sum(each.seeds_count for each in search.found.values())}"
        " seeds in all"
    )


if __name__ == "__main__":
    main()
