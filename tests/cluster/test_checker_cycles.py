"""Circles in a directed graph, held against who reaches whom by walking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.cluster.checker import cycles
from eoctl.cluster.checker.cycles import Edges, components, shortest_circle, unique_edges

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30)


def edges_of(pairs: Sequence[tuple[int, int]], first_line: int = 1) -> Edges:
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    lines = np.arange(first_line, first_line + len(pairs))
    return Edges(columns[:, 0], columns[:, 1], lines, lines + 1000)


def reached(pairs: Sequence[tuple[int, int]], start: int) -> set[int]:
    found: set[int] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        new = {target for source, target in pairs if source == node} - found
        found |= new
        waiting += new
    return found


@given(PAIRS)
def test_nodes_that_reach_each_other_are_found_together(pairs: list[tuple[int, int]]) -> None:
    after = {node: reached(pairs, node) for pair in pairs for node in pair}
    expected = {
        tuple(sorted(other for other in after[node] if node in after[other]))
        for node in after
        if node in after[node]
    }
    found = [*components(unique_edges([edges_of(pairs)]))]
    assert sorted(map(tuple, found)) == sorted(each for each in expected if len(each) > 1)


@given(PAIRS)
def test_a_circle_goes_round(pairs: list[tuple[int, int]]) -> None:
    edges = unique_edges([edges_of(pairs)])
    for nodes in components(edges):
        for start in nodes:
            rows = shortest_circle(edges, nodes, start)
            sources = [int(edges.source[row]) for row in rows]
            targets = [int(edges.target[row]) for row in rows]
            assert sources[0] == start
            assert targets == [*sources[1:], start]
            assert len({*sources}) == len(sources)


@pytest.mark.parametrize("merged", [0, 3, 1000])
@given(parts=st.lists(PAIRS, max_size=5))
def test_in_parts_the_first_of_each_edge_is_kept(
    merged: int, parts: list[list[tuple[int, int]]]
) -> None:
    made = [edges_of(each, 1 + 100 * place) for place, each in enumerate(parts)]
    expected: dict[tuple[int, int], int] = {}
    for each in made:
        for source, target, line in zip(each.source, each.target, each.source_line, strict=True):
            if source != target:
                expected.setdefault((int(source), int(target)), int(line))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cycles, "MERGED_ROWS", merged)
        edges = unique_edges(made)
    rows = zip(
        edges.source.tolist(), edges.target.tolist(), edges.source_line.tolist(), strict=True
    )
    assert {(source, target): line for source, target, line in rows} == expected
    assert len(edges.source) == len(expected)
    assert (edges.target_line - edges.source_line == 1000).all()
