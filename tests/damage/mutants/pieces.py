"""Small partitions cut from golden logs: one to three segments, one format or v1 and then v2."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from tests.damage.mutants import judge

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

MAX_BATCHES = 24
MAX_BYTES = 24_000
INDEX_EVERY = 3  # batches


class Segment(NamedTuple):
    """An undamaged segment.

    Attributes:
        base_offset, data: of the `.log`.
        places: where its batches begin, each with its last offset.
        index: its `.index`, which some have.
    """

    base_offset: int
    data: bytes
    places: tuple[tuple[int, int], ...]
    index: bytes | None


class Source(NamedTuple):
    """A golden log as its batches, each with its bytes."""

    name: str
    batches: tuple[judge.Batch, ...]
    data: bytes


def read_sources(golden: Path, legacy: Path) -> tuple[list[Source], list[Source]]:
    """Read the golden logs: those of format v2, and those of v0 and v1."""
    v2 = sorted((golden / "clean").glob("[!_]*-*/*.log")) + sorted(
        (golden / "hard-clean").glob("idem-none-0/*.log")
    )
    found = []
    for paths in (v2, sorted(legacy.glob("*-*/*.log"))):
        sources = []
        for path in paths:
            data = path.read_bytes()[: 4 * MAX_BYTES]
            batches, pos = [], 0
            while (batch := judge.batch_at(data, pos)) is not None:
                batches.append(batch)
                pos = batch.end
            if len(batches) > 2:
                sources.append(Source(f"{path.parent.name}/{path.name}", tuple(batches), data))
        found.append(sources)
    return found[0], found[1]


def draw(
    rng: random.Random, v2: Sequence[Source], legacy: Sequence[Source]
) -> tuple[str, list[Segment]]:
    """Draw a partition: its name, and its segments."""
    kind = rng.choice(("v2", "v2", "v2", "legacy", "mixed"))
    sources = {"v2": [v2], "legacy": [legacy], "mixed": [legacy, v2]}[kind]
    chosen = [rng.choice(each) for each in sources]
    batches: list[tuple[int, int, bytes]] = []  # first and last offset, bytes
    next_offset = -1
    for source in chosen:
        is_moved = kind == "mixed" and source is chosen[-1]  # to behind the older formats
        limit = MAX_BATCHES // len(chosen)
        start = rng.randrange(max(1, len(source.batches) - limit))
        previous = source.batches[start - 1].last_offset + 1 if start else 0
        for batch in _some(rng, source, start, limit):
            data = source.data[batch.pos : batch.end]
            first, last = batch.first_offset, batch.last_offset
            if batch.magic < 2:  # the header of a wrapper names the last one
                first = previous
            previous = last + 1
            if is_moved and next_offset > first:  # no checksum covers the base offset
                data = struct.pack(">q", next_offset) + data[8:]
                first, last = next_offset, next_offset + last - first
            next_offset = last + 1
            batches.append((first, last, data))
    return f"{kind} {' + '.join(each.name for each in chosen)}", _segments(rng, batches)


def _some(rng: random.Random, source: Source, start: int, limit: int) -> list[judge.Batch]:
    batches: list[judge.Batch] = []
    size = 0
    for batch in source.batches[start : start + limit]:
        size += batch.size
        if batches and size > MAX_BYTES:
            break
        batches.append(batch)
    if rng.random() < 0.2:  # as compaction leaves it
        batches = [each for each in batches if rng.random() < 0.6] or batches
    return batches


def _segments(rng: random.Random, batches: list[tuple[int, int, bytes]]) -> list[Segment]:
    count = rng.choice((1, 1, 2, 3))
    cuts = sorted(rng.sample(range(1, len(batches)), min(count - 1, len(batches) - 1)))
    segments = []
    has_index = rng.random() < 0.4
    for start, end in zip([0, *cuts], [*cuts, len(batches)], strict=True):
        data, places, index = b"", [], b""
        base_offset = batches[start][0]
        for number, (_, last, content) in enumerate(batches[start:end], 1):
            if number % INDEX_EVERY == 0:
                index += struct.pack(">ii", last - base_offset, len(data))
            places.append((len(data), last))
            data += content
        segments.append(Segment(base_offset, data, tuple(places), index if has_index else None))
    return segments
