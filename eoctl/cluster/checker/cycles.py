"""Circles in a directed graph: strongly connected components, and the shortest circle of one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


MERGED_ROWS = 1 << 16  # before it is worth it to look for what is there twice


class Edges(NamedTuple):
    """From one transaction to another that comes behind it, and the lines that show it."""

    source: Ints
    target: Ints
    source_line: Ints
    target_line: Ints

    def unique(self) -> Edges:
        """Each edge once, the first; none from a node to itself."""
        is_other = self.source != self.target
        one = Edges._make(each[is_other] for each in self)
        order = np.lexsort((one.target_line, one.target, one.source))
        one = Edges._make(each[order] for each in one)
        is_new = np.ones(len(order), bool)
        is_new[1:] = (one.source[1:] != one.source[:-1]) | (one.target[1:] != one.target[:-1])
        return Edges._make(each[is_new] for each in one)


def unique_edges(parts: Iterable[Edges]) -> Edges:
    """Each edge of all parts once, the first.

    Parts are put together once they are as many rows as what is unique so far: neither do all rows
    lie side by side, nor is what is unique sorted again for each part.
    """
    kept = Edges._make(np.empty(0, np.int64) for _ in range(4))
    waiting: list[Edges] = []
    rows_count = 0
    for each in parts:
        waiting.append(each)
        rows_count += len(each.source)
        if rows_count > max(len(kept.source), MERGED_ROWS):
            kept = _joined([kept, *waiting])
            waiting.clear()
            rows_count = 0
    return _joined([kept, *waiting])


def _joined(edges: list[Edges]) -> Edges:
    return Edges._make(np.concatenate(columns) for columns in zip(*edges, strict=True)).unique()


def components(edges: Edges) -> Iterator[list[int]]:
    """The sets of nodes that reach each other, of two nodes and more (Tarjan, without recursion).

    `edges` are unique.
    """
    nodes, begins, targets = _rows(_spanned(edges))
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(nodes)):
        if root in index:
            continue
        work = [(root, begins[root])]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, at = work.pop()
            if at < begins[node + 1]:
                work.append((node, at + 1))
                other = targets[at]
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, begins[other]))
                elif other in on_stack:
                    low[node] = min(low[node], index[other])
                continue
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                found: list[int] = []
                while not found or found[-1] != node:
                    found.append(stack.pop())
                    on_stack.discard(found[-1])
                if len(found) > 1:
                    yield sorted(nodes[each] for each in found)


def shortest_circle(edges: Edges, nodes: list[int], start: int) -> list[int]:
    """The rows of the edges of a shortest circle through one of some connected nodes."""
    inside = np.flatnonzero(np.isin(edges.source, nodes) & np.isin(edges.target, nodes))
    after: dict[int, list[int]] = {}
    for row in inside.tolist():
        after.setdefault(int(edges.source[row]), []).append(row)
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for row in after.get(node, ()):
            target = int(edges.target[row])
            if target == start:
                circle = [row]
                while node != start:
                    circle.append(came[node])
                    node = int(edges.source[came[node]])
                return circle[::-1]
            if target not in came:
                came[target] = row
                queue.append(target)
    raise AssertionError("nodes that reach each other have a circle")


def _spanned(edges: Edges) -> Edges:
    """The edges that may be of a circle.

    A circle that goes up must come down: between its lowest and its highest node each step is
    spanned by an edge downwards. Where none goes down, most often everywhere, there is no circle.
    """
    if not len(edges.source):
        return edges
    steps = np.zeros(int(max(edges.source.max(), edges.target.max())) + 1, np.int64)
    falls = edges.target < edges.source
    np.add.at(steps, edges.target[falls], 1)
    np.add.at(steps, edges.source[falls], -1)
    is_spanned = np.cumsum(steps) > 0  # the step from this node to the next one
    is_inside = is_spanned.copy()
    is_inside[1:] |= is_spanned[:-1]
    kept = is_inside[edges.source] & is_inside[edges.target]
    return Edges._make(each[kept] for each in edges)


def _rows(edges: Edges) -> tuple[list[int], list[int], list[int]]:
    """Nodes, where the targets of each begin, and the targets, as places among the nodes."""
    nodes, both = np.unique(np.concatenate((edges.source, edges.target)), return_inverse=True)
    source, target = both[: len(edges.source)], both[len(edges.source) :]
    order = np.argsort(source, kind="stable")
    begins = np.searchsorted(source[order], np.arange(len(nodes) + 1))
    return nodes.tolist(), begins.tolist(), target[order].tolist()
