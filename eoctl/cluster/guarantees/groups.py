"""Cells of the matrix put together where they come to the same: what a person reads.

Cells that differ in one setting and come to the same become one group, again and again; which
settings are put together first decides how many groups are left, so several orders are tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.cluster.guarantees.cells import DIMENSIONS, GuaranteeCell

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_NAMES = tuple(DIMENSIONS)
# From what matters least. Each other order begins with another one.
_ORDER = (
    "truncation", "elr", "unclean", "replication_factor", "min_insync_replicas", "idempotence",
    "fsync", "faults", "acks",
)  # fmt: skip


def text_of_value(value: Any) -> str:
    """A value as it is written."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


class CellGroup(NamedTuple):
    """Cells that come to the same: the values of each dimension, in their order."""

    values: dict[str, tuple[Any, ...]]
    comes_to: Hashable

    def text_of(self, name: str) -> str:
        """The values of a dimension: `any` where it does not matter."""
        values = self.values[name]
        if values == DIMENSIONS[name]:
            return "any"
        return ", ".join(map(text_of_value, values))


def grouped(cells: Mapping[GuaranteeCell, Hashable]) -> list[CellGroup]:
    """Put cells together by what they come to; each is in one group."""
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
