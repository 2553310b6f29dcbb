"""Logs that lost, swapped or misplaced whole batches, drawn by a seed, and who may say what of them.

Nothing here imports anything of eoctl. Each record's value tells its offset, so that a record that
is given under another offset is seen. Of every record that was acknowledged one of two must hold:
it is given under its offset, or its offset lies in a loss that is reported.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tests.cases.files import T0, HandLogDir, batch, offset_index, time_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


class Written(NamedTuple):
    """One batch as it was written."""

    base: int
    last: int
    data: bytes


class Absence(NamedTuple):
    """A mutant.

    Attributes:
        partition: its directory, in a log dir.
        offsets: what was acknowledged.
        story: what was done to it, in words.
        is_ambiguous: a base offset was changed and something else, too. Then a batch may fit a
            place that is not its own, and nothing tells.
    """

    partition: Path
    offsets: frozenset[int]
    story: str
    is_ambiguous: bool


def value_of(offset: int) -> bytes:
    return b"value of %d" % offset


def _batches(draw: random.Random, start: int, end: int, *, sequenced: bool) -> list[Written]:
    found = []
    offset = start
    while offset < end:
        count = min(draw.choice((1, 1, 1, 2, 3, 7)), end - offset)
        records = [(b"k", value_of(each)) for each in range(offset, offset + count)]
        more = {"pid": 7, "epoch": 0, "seq": offset} if sequenced else {}
        data = batch(offset, records, **more)  # type: ignore[arg-type]
        found.append(Written(offset, offset + count - 1, data))
        offset += count
    return found


# --- what is done to the batches of a segment -----------------------------------------------------


def _remove(draw: random.Random, log: list[Written]) -> str:
    at = draw.randrange(len(log))
    count = draw.choice((1, 1, 2, 3))
    gone = log[at : at + count]
    del log[at : at + count]
    return f"without {gone[0].base} to {gone[-1].last}"


def _cut(draw: random.Random, log: list[Written]) -> str:
    at = draw.randrange(len(log))
    gone = log[at:]
    del log[at:]
    return f"cut before {gone[0].base}"


def _swap(draw: random.Random, log: list[Written]) -> str:
    if len(log) < 2:
        return "as it was"
    at = draw.randrange(len(log) - 1)
    log[at], log[at + 1] = log[at + 1], log[at]
    return f"{log[at].base} before {log[at + 1].base}"


def _overwrite(draw: random.Random, log: list[Written]) -> str:
    one, other = draw.randrange(len(log)), draw.randrange(len(log))
    reported = f"{log[other].base} written over {log[one].base}"
    log[one] = log[other]
    return reported


def _misplace(draw: random.Random, log: list[Written]) -> str:
    moved = log.pop(draw.randrange(len(log)))
    log.insert(draw.randrange(len(log) + 1), moved)
    return f"{moved.base} in another place"


def _flip(draw: random.Random, log: list[Written]) -> str:
    at = draw.randrange(len(log))
    data = bytearray(log[at].data)
    pos, bit = draw.randrange(len(data)), draw.randrange(8)
    data[pos] ^= 1 << bit
    log[at] = log[at]._replace(data=bytes(data))
    return f"bit {bit} of byte {pos} of {log[at].base}"


def _raise_offset(draw: random.Random, log: list[Written]) -> str:
    at = draw.randrange(len(log))
    data = bytearray(log[at].data)
    bit = draw.randrange(24)
    data[7 - bit // 8] ^= 1 << bit % 8
    log[at] = log[at]._replace(data=bytes(data))
    return f"bit {bit} of the offset of {log[at].base}"


CHANGES: tuple[Callable[[random.Random, list[Written]], str], ...] = (
    _remove, _remove, _cut, _swap, _overwrite, _misplace, _flip, _raise_offset,
)  # fmt: skip


# --- a mutant -------------------------------------------------------------------------------------


def absence(seed: int, out: Path, *, is_whole: bool = False) -> Absence:
    """Write the mutant of a seed; or the log as it was before, `is_whole`."""
    draw = random.Random(seed)
    end = draw.choice((12, 40, 60))
    bases = sorted({0, *(draw.randrange(1, end) for _ in range(draw.choice((0, 2, 3))))})
    is_clean, sequenced = draw.random() < 0.6, draw.random() < 0.5
    segments = {
        base: _batches(draw, base, stop, sequenced=sequenced)
        for base, stop in zip(bases, [*bases[1:], end], strict=True)
    }
    offsets = frozenset(range(end))
    story: list[str] = []
    for _ in range(0 if is_whole else draw.choice((1, 1, 1, 2))):
        base = draw.choice(bases)
        if len(bases) > 1 and draw.random() < 0.2:
            segments.pop(base, None)
            story.append(f"without segment {base}")
        elif segments.get(base):
            story.append(f"segment {base}: {draw.choice(CHANGES)(draw, segments[base])}")
    made = HandLogDir(out)
    made.remove()
    keeps_index = draw.random() < 0.5
    for base, log in segments.items():
        _write(made, base, log, keeps_index=keeps_index)
    for base in (*bases, end):
        made.snapshot(
            base, [(7, 0, base - 1, base - 1, 0, T0, -1, -1)] if sequenced and base else ()
        )
    made.checkpoints(high_watermark=end, recovery_point=end if is_clean else 0)
    made.epochs()
    if not is_clean:
        made.crash()
    return Absence(
        partition=made.path / "t-0",
        offsets=offsets,
        story=f"seed {seed}: {'; '.join(story)}",
        is_ambiguous=len(story) > 1 and "of the offset of" in " ".join(story),
    )


def _write(made: HandLogDir, base: int, log: list[Written], *, keeps_index: bool) -> None:
    entries, pos = [], 0
    for number, each in enumerate(log):
        if number % 3 == 2:
            entries.append((each.last, pos))
        pos += len(each.data)
    index = b""
    if keeps_index and all(low < high for (low, _), (high, _) in pairwise(entries)):
        index = offset_index([each for each in entries if each[0] >= base], base)
    times = b""
    if log:
        last = max(each.last for each in log)
        times = time_index([(T0 + last, last)], base)
    made.segment(base, (each.data for each in log), index=index, times=times)


# --- the judge ------------------------------------------------------------------------------------


def complaints(
    mutant: Absence,
    given: Iterable[tuple[int, bytes | None]],
    lost: Iterable[tuple[int | None, int | None]],
) -> list[str]:
    """Tell what is wrong with what a reader gave (offset, value) and reported (first, last)."""
    reported, seen = [], set()
    for offset, value in given:
        if value != value_of(offset) and not mutant.is_ambiguous:
            reported.append(f"offset {offset} was given as {value!r}")
        if offset in seen:
            reported.append(f"offset {offset} was given twice")
        seen.add(offset)
    end = max(mutant.offsets)
    ranges = [(first or 0, max(end, first or 0) if last is None else last) for first, last in lost]
    unreported = sorted(
        each
        for each in mutant.offsets - seen
        if not any(first <= each <= last for first, last in ranges)
    )
    if unreported:
        reported.append(f"offsets {unreported} are neither given nor reported")
    reported += (f"a loss runs from {first} to {last}" for first, last in ranges if last < first)
    return reported
