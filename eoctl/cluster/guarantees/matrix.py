"""The guarantee matrix, as `make explore` found it: what each cell may do, with a witness.

A cell that may lose, duplicate or diverge has a course of events for it: seed, records and faults;
the rest is the cell's. What is not named was not found in so many seeds, which is no proof.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from eoctl.cluster.checker.rules import RULES, Family
from eoctl.cluster.guarantees.cells import GuaranteeCell  # noqa: TC001 - read_as asks for the types
from eoctl.cluster.world.settings import RunSettings  # noqa: TC001
from storage.dirs.state_file import StateSchema, read_as
from storage.errors import RefusedError
from storage.os_errors import os_errors

MATRIX_PATH = Path(__file__).with_name("matrix.json")
ENOUGH_SEEDS = 2000  # before that a cell says `none found`
LOSE, DUPLICATE, DIVERGE = "lose", "duplicate", "diverge"
EFFECTS = (LOSE, DUPLICATE, DIVERGE)


def effect_of(kind: str) -> str:
    """What a finding of the checker comes to; offsets that are given anew follow from a loss."""
    if kind == "duplicate":
        return DUPLICATE
    return DIVERGE if RULES[kind].family is Family.DIRECTORIES else LOSE


class Witness(NamedTuple):
    """A course of events, in a cell."""

    seed: int
    records: int
    rate: int
    burst: int
    faults: str

    def run_in(self, cell: GuaranteeCell) -> RunSettings:
        """The whole of it."""
        return cell.run._replace(
            seed=self.seed,
            records=self.records,
            rate=self.rate,
            burst=self.burst,
            faults=self.faults,
        )


class CellResult(NamedTuple):
    """What was found in a cell.

    Attributes:
        seeds_count: so many were tried, from 0 on.
        violations_count: so many of them were condemned.
        witnesses: places in those of the matrix, by effect.
    """

    cell: GuaranteeCell
    seeds_count: int
    violations_count: int
    witnesses: dict[str, int]

    @property
    def effects(self) -> tuple[str, ...]:
        """What it may do, in their order."""
        return tuple(each for each in EFFECTS if each in self.witnesses)

    @property
    def verdict(self) -> str:
        """It in words."""
        if self.effects:
            return f"may {', '.join(self.effects)}"
        if self.seeds_count >= ENOUGH_SEEDS:
            return "none lost"
        return "none found" if self.seeds_count else "not tried"


class Matrix(NamedTuple):
    """All cells that were tried, and the courses of events that they share."""

    witnesses: tuple[Witness, ...]
    results: tuple[CellResult, ...]

    def by_cell(self) -> dict[GuaranteeCell, CellResult]:
        """Find results by their cells."""
        return {each.cell: each for each in self.results}


SCHEMA = StateSchema("eoctl guarantee matrix", 2, (Matrix,))


def encode_matrix(matrix: Matrix) -> bytes:
    """Write it as JSON, a cell in a line."""
    lines = [f'{{"schema": {json.dumps(SCHEMA.name)}, "version": {SCHEMA.version},']
    for name, rows in (("witnesses", matrix.witnesses), ("results", matrix.results)):
        lines.append(f'"{name}": [')
        lines.append(",\n".join(json.dumps(each, separators=(",", ":")) for each in rows))
        lines.append("]," if name == "witnesses" else "]}")
    return "\n".join(lines).encode() + b"\n"


def parse_matrix(data: bytes, path: str) -> Matrix:
    """Read what `encode_matrix` wrote. RefusedError: it is none, or of another release."""
    try:
        value = json.loads(data)
        is_known = (value.pop("schema"), value.pop("version")) == (SCHEMA.name, SCHEMA.version)
        matrix = read_as(Matrix, value) if is_known else None
    except (ValueError, KeyError, TypeError, AttributeError):
        matrix = None
    if matrix is None or not _is_whole(matrix):
        raise RefusedError(f"{path}: is no guarantee matrix of this release; install eoctl anew")
    return matrix


def _is_whole(matrix: Matrix) -> bool:
    places = range(len(matrix.witnesses))
    return all(place in places for each in matrix.results for place in each.witnesses.values())


@cache
def load_matrix() -> Matrix:
    """Read the one that is shipped. Raises RefusedError, AccessError: this installation is torn."""
    with os_errors(MATRIX_PATH):
        data = MATRIX_PATH.read_bytes()
    return parse_matrix(data, str(MATRIX_PATH))
