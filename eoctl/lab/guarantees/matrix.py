"""The guarantee matrix: its cells, their results, and groups of cells with the same result."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.checker.rules import RULES, Family
from eoctl.lab.environment.settings import PlaySettings, RunSettings
from eoctl.lab.guarantees.scenarios import faults_of_seed
from storage.dirs.state_file import StateSchema, read_as
from storage.errors import RefusedError, os_errors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping


# -- cells of the guarantee matrix: settings, and faults of the cluster.
#
# Some settings are equal by construction, and are tried once (`canonical`).
#   With acks 0 or 1, a producer is not idempotent.
#   With one replica, min.insync.replicas counts as 1, and no follower truncates.
#   Without a power loss, no data is forgotten. `fsync never` and `batch` then give the same
#     messages.
# No release has some other combinations, so they are no cells. Truncation to the high watermark
# ended with Kafka 0.11, which introduced idempotent producers. ELR exists since 4.0.
# Each cluster has as many brokers as replicas, and its producer has one batch in flight.


# Faults of the cluster -> the classes of faults that a seed draws from.
FAULTS = {
    "kill-one": ("kill-one",),
    "kill-in-turn": ("kill-in-turn", "rejoin", "first-back"),
    "partition-leader": ("partition-leader",),
    "kill-then-power": ("kill-then-power",),
    "stop-then-power": ("stop-then-power",),
    "power-all": ("power-all",),
}
_WITH_POWER = frozenset({"kill-then-power", "stop-then-power", "power-all"})
# Prevents a wait of an hour for brokers that are not started.
ENDING = "start all at 50s, heal at 50s"
SPARSE = RunSettings(records=60, rate=2, in_flight=1)
# Every other seed sends in bursts, so that records are in flight whenever a fault comes.
BURST_RECORDS = 6
# One death is enough if it comes while a follower's next fetch is in flight, as in a burst.
DENSE = RunSettings(records=300, rate=1000, in_flight=1)


class GuaranteeCell(NamedTuple):
    """One cell, with the names of the options."""

    acks: str
    idempotence: bool
    min_insync_replicas: int
    replication_factor: int
    unclean: bool
    truncation: str
    elr: bool
    fsync: str
    faults: str

    @property
    def canonical(self) -> GuaranteeCell:
        """The cell that is tried in its place."""
        cell = self
        if cell.replication_factor == 1:
            cell = cell._replace(min_insync_replicas=1, truncation="epoch")
        if cell.faults not in _WITH_POWER:
            cell = cell._replace(fsync="never")
        return cell

    @property
    def settings(self) -> PlaySettings:
        """Settings of the cluster."""
        return PlaySettings(
            nodes=self.replication_factor,
            replication_factor=self.replication_factor,
            min_insync=self.min_insync_replicas,
            is_unclean=self.unclean,
            has_elr=self.elr,
            truncation=self.truncation,
            fsync=self.fsync,
        )

    @property
    def run(self) -> RunSettings:
        """Settings of the run, without seed and faults."""
        acks = -1 if self.acks == "all" else int(self.acks)
        run = DENSE if self.faults == "kill-one" else SPARSE
        return run._replace(acks=acks, is_idempotent=self.idempotence)

    def run_of_seed(self, seed: int) -> RunSettings:
        """Return the run of a seed, which draws the faults."""
        faults = faults_of_seed(seed, FAULTS[self.faults], self.settings)
        burst = BURST_RECORDS if seed % 2 else 1
        return self.run._replace(seed=seed, faults=f"{faults}, {ENDING}", burst=burst)


# Each dimension, and its values in their order.
DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "acks": ("0", "1", "all"),
    "idempotence": (False, True),
    "min_insync_replicas": (1, 2),
    "replication_factor": (1, 2, 3),
    "unclean": (False, True),
    "truncation": ("epoch", "hw"),
    "elr": (False, True),
    "fsync": ("never", "batch"),
    "faults": tuple(FAULTS),
}
# Defaults of the other settings: Kafka's own defaults, and three replicas.
DEFAULTS: dict[str, Any] = {
    "acks": "all",
    "idempotence": True,
    "min_insync_replicas": 1,
    "replication_factor": 3,
    "unclean": False,
    "truncation": "epoch",
    "elr": True,
    "fsync": "never",
}


def all_cells() -> Iterator[GuaranteeCell]:
    """Yield every cell."""
    for values in product(*DIMENSIONS.values()):
        cell = GuaranteeCell(**dict(zip(DIMENSIONS, values, strict=True)))
        is_old = cell.truncation == "hw" and (cell.idempotence or cell.elr)
        if (cell.acks == "all" or not cell.idempotence) and not is_old:
            yield cell


def tried_cells() -> list[GuaranteeCell]:
    """Return the cells that differ."""
    return [*dict.fromkeys(each.canonical for each in all_cells())]


# -- results of the guarantee matrix, as `make explore` found them, with a witness of each effect.
#
# A cell that may lose, duplicate or diverge has a scenario: seed, records and faults. The other
# settings are the cell's own. An effect without a scenario was not found with the tried seeds,
# which is no proof.


MATRIX_PATH = Path(__file__).with_name("matrix.json")
ENOUGH_SEEDS = 2000  # with fewer seeds, a cell says `none found`
LOSE, DUPLICATE, DIVERGE = "lose", "duplicate", "diverge"
EFFECTS = (LOSE, DUPLICATE, DIVERGE)


def effect_of(kind: str) -> str:
    """Return the effect of a finding. Reassigned offsets follow from a loss."""
    if kind == "duplicate":
        return DUPLICATE
    return DIVERGE if RULES[kind].family is Family.DIRECTORIES else LOSE


class Witness(NamedTuple):
    """A scenario in a cell."""

    seed: int
    records: int
    rate: int
    burst: int
    faults: str

    def run_in(self, cell: GuaranteeCell) -> RunSettings:
        """Return the whole run."""
        return cell.run._replace(
            seed=self.seed,
            records=self.records,
            rate=self.rate,
            burst=self.burst,
            faults=self.faults,
        )


class CellResult(NamedTuple):
    """Result of a cell.

    Attributes:
        seeds_count: number of tried seeds, from 0 on.
        violations_count: number of these seeds with findings.
        witnesses: effect -> place in the witnesses of the matrix.
    """

    cell: GuaranteeCell
    seeds_count: int
    violations_count: int
    witnesses: dict[str, int]

    @property
    def effects(self) -> tuple[str, ...]:
        """The possible effects, in their order."""
        return tuple(each for each in EFFECTS if each in self.witnesses)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.effects:
            return f"may {', '.join(self.effects)}"
        if self.seeds_count >= ENOUGH_SEEDS:
            return "none lost"
        return "none found" if self.seeds_count else "not tried"


class Matrix(NamedTuple):
    """All tried cells, with the scenarios that they share."""

    witnesses: tuple[Witness, ...]
    results: tuple[CellResult, ...]

    def by_cell(self) -> dict[GuaranteeCell, CellResult]:
        """Return the results by cell."""
        return {each.cell: each for each in self.results}


SCHEMA = StateSchema("eoctl guarantee matrix", 2, (Matrix,))


def encode_matrix(matrix: Matrix) -> bytes:
    """Encode a matrix as JSON, one cell per line."""
    lines = [f'{{"schema": {json.dumps(SCHEMA.name)}, "version": {SCHEMA.version},']
    for name, rows in (("witnesses", matrix.witnesses), ("results", matrix.results)):
        lines.append(f'"{name}": [')
        lines.append(",\n".join(json.dumps(each, separators=(",", ":")) for each in rows))
        lines.append("]," if name == "witnesses" else "]}")
    return "\n".join(lines).encode() + b"\n"


def parse_matrix(data: bytes, path: str) -> Matrix:
    """Parse the result of `encode_matrix`. Raises RefusedError for other data or releases."""
    try:
        value = json.loads(data)
        is_known = (value.pop("schema"), value.pop("version")) == (SCHEMA.name, SCHEMA.version)
        matrix = read_as(Matrix, value) if is_known else None
    except (ValueError, KeyError, TypeError, AttributeError):
        matrix = None
    if matrix is None or not _is_whole(matrix):
        raise RefusedError(f"{path}: is no guarantee matrix of this release; install eoctl again")
    return matrix


def _is_whole(matrix: Matrix) -> bool:
    places = range(len(matrix.witnesses))
    return all(place in places for each in matrix.results for place in each.witnesses.values())


@cache
def load_matrix() -> Matrix:
    """Read the shipped matrix. Raises RefusedError, AccessError for a damaged installation."""
    with os_errors(MATRIX_PATH):
        data = MATRIX_PATH.read_bytes()
    return parse_matrix(data, str(MATRIX_PATH))


# -- groups of cells with the same result, for a person.
#
# Cells that differ in one setting and have the same result are merged, repeatedly. The order of the
# settings decides the number of groups, so several orders are tried.


_NAMES = tuple(DIMENSIONS)
# The least important setting comes first. The other orders are its rotations.
_ORDER = (
    "truncation", "elr", "unclean", "replication_factor", "min_insync_replicas", "idempotence",
    "fsync", "faults", "acks",
)  # fmt: skip


def text_of_value(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


class CellGroup(NamedTuple):
    """Cells with the same result, with the values of each dimension in their order."""

    values: dict[str, tuple[Any, ...]]
    comes_to: Hashable

    def text_of(self, name: str) -> str:
        """Return the values of a dimension, `any` if they do not matter."""
        values = self.values[name]
        if values == DIMENSIONS[name]:
            return "any"
        return ", ".join(map(text_of_value, values))


def grouped(cells: Mapping[GuaranteeCell, Hashable]) -> list[CellGroup]:
    """Group cells by their results. Each cell is in one group."""
    found = min(
        (_merged(cells, (*_ORDER[place:], *_ORDER[:place])) for place in range(len(_ORDER))),
        key=len,
    )
    ranks = {name: {each: place for place, each in enumerate(DIMENSIONS[name])} for name in _NAMES}

    def rank(group: CellGroup) -> list[list[int]]:
        return [[ranks[name][each] for each in group.values[name]] for name in _NAMES]

    return sorted(found, key=rank)


def _merged(cells: Mapping[GuaranteeCell, Hashable], order: tuple[str, ...]) -> list[CellGroup]:
    groups = [(tuple((each,) for each in cell), comes_to) for cell, comes_to in cells.items()]
    for name in order:
        place = _NAMES.index(name)
        together: dict[Any, set[Any]] = {}
        for values, comes_to in groups:
            rest = (values[:place], values[place + 1 :], comes_to)
            together.setdefault(rest, set()).update(values[place])
        groups = [
            ((*before, tuple(each for each in DIMENSIONS[name] if each in own), *after), comes_to)
            for (before, after, comes_to), own in together.items()
        ]
    return [CellGroup(dict(zip(_NAMES, values, strict=True)), each) for values, each in groups]
