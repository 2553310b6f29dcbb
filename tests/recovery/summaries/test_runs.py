"""Segments joined in a tree: the same, byte for byte, as joined one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.summaries.codec import (
    pack_partition,
    pack_run,
    pack_summary,
    unpack_partition,
    unpack_run,
)
from recovery.summaries.partition import (
    JoinedRun,
    ReadPiece,
    join_partition,
    join_pieces,
    join_runs,
    partition_of,
)
from recovery.summaries.segment import read_split
from storage.places.list_places import list_places
from storage.places.splits import TimelineStart, plan_places
from tests.audit_context import Context
from tests.audit_logs import Batch, write_segments
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WANTED = TimelineStart(0, max_bins=1 << 12)


def pieces_in(path: Path, *, has_timeline: bool = True) -> dict[str, list[list[ReadPiece]]]:
    """By directory, then segment."""
    found: dict[str, dict[str, list[ReadPiece]]] = {}
    for split in plan_places(list_places([str(path)]).places, 1 << 30):
        wanted = split._replace(timeline=WANTED if has_timeline else None)
        segments = found.setdefault(split.place.directory, {})
        segments.setdefault(split.place.path, []).append(ReadPiece(wanted, read_split(wanted)))
    return {name: [*segments.values()] for name, segments in found.items()}


def sent(run: JoinedRun) -> JoinedRun:
    return unpack_run(pack_run(run))


def in_a_tree(segments: Sequence[Sequence[ReadPiece]], count: int) -> JoinedRun:
    """As Spark's tasks do: `count` segments to a run, `count` of those to one, and so on."""
    runs = [
        sent(join_pieces([each for one in segments[start : start + count] for each in one]))
        for start in range(0, len(segments), count)
    ]
    while len(runs) > 1:
        runs = [
            sent(join_runs(runs[start : start + count])) for start in range(0, len(runs), count)
        ]
    return runs[0]


def check_trees(path: Path, *, has_timeline: bool = True) -> int:
    joined_count = 0
    for segments in pieces_in(path, has_timeline=has_timeline).values():
        flat = pack_partition(join_partition([each for one in segments for each in one]))
        for count in (2, 3, 5):
            assert pack_partition(partition_of(in_a_tree(segments, count))) == flat
        joined_count += len(segments) > 2
    return joined_count


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_worlds_with_planted_faults(tmp_path: Path, seed: int) -> None:
    for log in Context(seed, steps=40).logs:
        log.write(tmp_path)
    assert check_trees(tmp_path, has_timeline=seed % 2 == 0)


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["clean", "crash", "hard", "tv2"])
def test_golden_directories(golden: Callable[[str], Path], state: str) -> None:
    assert check_trees(golden("kafka-4.3.1") / state)


some_batches = st.builds(
    Batch,
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 6),
    st.integers(1, 3),
    st.sampled_from(["txn", "data", "abort", "commit"]),
)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(st.lists(some_batches, max_size=4), min_size=3, max_size=7),
    damage=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 400)), max_size=2),
)
def test_any_segments(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[Batch]],
    damage: list[tuple[int, int]],
) -> None:
    """Repeated sequences, transactions over seams, damage: all that a seam may have to read again."""
    directory = write_segments(tmp_path_factory.mktemp("log") / "t-0", *segments)
    logs = sorted(directory.iterdir())
    for number, pos in damage:
        content = bytearray(logs[number % len(logs)].read_bytes())
        if content:
            content[pos % len(content)] ^= 0x55
            logs[number % len(logs)].write_bytes(content)
    check_trees(directory)


def test_a_segment_that_goes_meanwhile_makes_duplicates_unknown(tmp_path: Path) -> None:
    """Who has to read segments again and cannot does not count those that are left."""
    repeated = [Batch(sequence=0), Batch(sequence=1)]
    directory = write_segments(tmp_path / "t-0", *([each] for each in repeated * 2))
    (segments,) = pieces_in(directory, has_timeline=False).values()
    left = join_pieces([each for one in segments[:2] for each in one])
    right = join_pieces([each for one in segments[2:] for each in one])
    assert join_runs([left, right]).summary.duplicate_batches == 2
    max(directory.iterdir()).unlink()
    found = partition_of(join_runs([left, sent(right)]))
    assert found.summary.duplicate_batches is None
    assert found.summary.counts.batches == 4
    kept = unpack_partition(pack_partition(found))
    assert pack_summary(kept.summary) == pack_summary(found.summary)
