"""The numbers of `--deep`, against a map that holds all keys."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from recovery.forecast.cleaner import Cleaning, DirtyFrom
from recovery.forecast.deep_counts import with_counts
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from tests.cases.files import HandLogDir, batch

if TYPE_CHECKING:
    from pathlib import Path


def cleaning_of(dirty: int, end: int) -> Cleaning:
    """Return the cleaning of c-0 from an offset to another."""
    return Cleaning(
        topic="c",
        partition=0,
        path="c-0",
        first_dirty_offset=dirty,
        first_dirty_from=DirtyFrom.LINE,
        first_uncleanable_offset=end,
        uncleanable_because=None,
        producer_id=None,
        clean_bytes=0,
        cleanable_bytes=1,
        cleanable_ratio=1.0,
        min_ratio=0.5,
        oldest_dirty_timestamp_ms=None,
        is_overdue=False,
        is_chosen=True,
        why_not=None,
        pass_end_offset=end,
        needed_bytes=0,
        dirty_records_count=None,
    )


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_a_plain_count(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    made = HandLogDir(tmp_path)
    made.remove(part="c-0")
    records = []
    for base in range(0, 60, 20):
        batches = []
        for first in range(base, base + 20, 5):
            five = [
                (
                    draw.choice([None, b"a", b"b", b"c", b"d", b"e"]),
                    draw.choice([None, b"value"]),
                )
                for _ in range(5)
            ]
            records += five
            batches.append(batch(first, five))
        made.segment(base, batches, part="c-0")
    made.segment(60, [batch(60)], part="c-0")
    partition = Partition.of(select_partition(made.path / "c-0"))
    dirty, end = draw.choice([0, 13, 20, 40]), 60
    newest = {key: place for place, (key, _) in enumerate(records[:end]) if place >= dirty}
    superseded = sum(
        key is not None and place < newest.get(key, -1) for place, (key, _) in enumerate(records)
    )
    for max_keys_count in (100, 2):
        found = with_counts(partition, cleaning_of(dirty, end), 1000, max_keys_count=max_keys_count)
        assert found.superseded_records_count == superseded
        assert found.keyless_records_count == sum(key is None for key, _ in records)
        assert found.tombstones_count == sum(
            key is not None and value is None for key, value in records
        )
        assert found.dirty_records_count == end - dirty
        assert found.pass_end_offset == end


def test_a_full_map_ends_the_pass(tmp_path: Path) -> None:
    made = HandLogDir(tmp_path)
    made.remove(part="c-0")
    five = [[(b"%d" % each, b"v") for each in range(first, first + 5)] for first in (0, 5)]
    made.segment(0, [batch(0, five[0]), batch(5, five[1])], part="c-0")
    made.segment(10, [batch(10)], part="c-0")
    partition = Partition.of(select_partition(made.path / "c-0"))
    assert with_counts(partition, cleaning_of(0, 10), 7).pass_end_offset == 7
    assert with_counts(partition, cleaning_of(0, 10), 5).pass_end_offset == 5
    assert with_counts(partition, cleaning_of(0, 10), 11).pass_end_offset == 10
