"""The order of java.util.HashMap, with trees, removals and growth: Java itself is the judge."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from recovery.replay.producer_columns import ProducerColumns, may_have_trees, spread_hashes
from storage.producers.java_hash_map import JavaHashMap, long_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

JUDGE = Path(__file__).with_name("java") / "HashMapOrder.java"
MAPS_COUNT = 120

# In a table of 64 buckets all of these share one.
KEYS = [448, 1152, 64, 1216, 256, 960, 768, 0, 1088, 640, 192, 576, 832, 320, 1024, 704]
GONE = [[960, 0, 64], [192, 256, 320, 448]]
RETURNED = [128, 512, 896]
ANSWERS = [
    [960, 448, 1152, 64, 1216, 256, 320, 768, 704, 832, 0, 1088, 1024, 640, 576, 192],
    [1024, 448, 1152, 1216, 256, 320, 768, 704, 832, 1088, 640, 576, 192],
    [1024, 1152, 1216, 768, 704, 832, 1088, 640, 576],
    [1024, 1152, 1216, 768, 704, 832, 896, 1088, 640, 576, 128, 512],
]


def ids_of(draw: random.Random) -> list[int]:
    """Ids of producers: random, in blocks, in strides, or with one hash."""
    count = draw.choice([5, 12, 40, 60, 130, 400])
    first, stride = draw.randrange(5000), 2 ** draw.randrange(3, 20)
    kind = draw.randrange(5)
    if kind == 0:
        ids = [draw.randrange(-(2**63), 2**63) for _ in range(count)]
    elif kind == 1:
        ids = [*range(first, first + count)]
    elif kind == 2:
        ids = [first + stride * number for number in range(count)]
    elif kind == 3:
        ids = [first + stride * draw.randrange(4 * count) for _ in range(count)]
    else:
        uppers = [draw.randrange(2**31) for _ in range(count)]
        ids = [upper << 32 | (upper ^ draw.randrange(4)) for upper in uppers]
    if draw.random() < 0.6:
        draw.shuffle(ids)
    return [*dict.fromkeys(ids)]


def words(name: str, ids: list[int]) -> str:
    return " ".join([name, *map(str, ids)])


def life_of_a_map(draw: random.Random) -> Iterator[tuple[str, str | None]]:
    """Calls of the judge, each with what it is to answer."""
    table: JavaHashMap[int] = JavaHashMap(long_hash)
    ids, present = ids_of(draw), list[int]()
    yield "new", None
    while ids:
        count = draw.choice([1, 5, 30, 200])
        new, ids = ids[:count], ids[count:]
        for each in new:
            table.put(each)
        present += new
        yield words("+", new), None
        gone = draw.sample(present, len(present) * draw.choice([0, 0, 1, 5, 9]) // 10)
        if gone:
            table.remove_all(gone)
            present = [each for each in present if each not in gone]
            ids += gone[::3]
            yield words("-", gone), None
        if draw.random() < 0.2:
            table = table.copy()
        assert len(table) == len(present)
        yield "?", " ".join(map(str, table))


@pytest.mark.java
def test_as_java_does() -> None:
    draw = random.Random(18)
    calls = [each for _ in range(MAPS_COUNT) for each in life_of_a_map(draw)]
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", JUDGE],
        input="".join(f"{call}\n" for call, _ in calls),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    answers = [answer for _, answer in calls if answer is not None]
    assert len(answers) > 2 * MAPS_COUNT
    assert done.stdout.splitlines() == answers


def test_a_tree_as_java_has_it() -> None:
    """Java's own answers for ids of one bucket, for where there is no Java."""
    table = JavaHashMap(long_hash, KEYS)
    assert [*table] == ANSWERS[0]
    assert [*table] != KEYS
    for gone, answer in zip(GONE, ANSWERS[1:3], strict=True):
        table.remove_all(gone)
        assert [*table] == answer
    for each in RETURNED:
        table.put(each)
    assert [*table] == ANSWERS[3]


@pytest.mark.parametrize("stride", [1, 3, 16, 64, 100, 1024, 4096])
def test_the_bulk_twin_agrees(stride: int) -> None:
    """However the ids come in, and whenever somebody asks for the order."""
    draw = random.Random(stride)
    ids = [7000 + stride * number for number in range(700)]
    if stride > 16:
        draw.shuffle(ids)
    table, columns, done = JavaHashMap(long_hash), ProducerColumns(), 0
    while done < len(ids):
        new = ids[done : done + draw.randrange(1, 200)]
        done += len(new)
        for each in new:
            table.put(each)
        columns.add(np.array(new, np.int64))
        assert columns.producer_id[columns.slots_in_table_order()].tolist() == [*table]


def test_ordinary_ids_need_no_map() -> None:
    """Blocks of ids, as brokers hand them out, are spread evenly: no bucket is a tree."""
    ids = np.concatenate([np.arange(start, start + 1000) for start in range(0, 9_000_000, 30_000)])
    spread = spread_hashes(ids)
    assert not may_have_trees(spread, 1 << 19)
    assert may_have_trees(spread_hashes(ids[:100] * 64), 256)
