"""Damage: single and paired faults, most of them where no checksum looks. Imports nothing of ours.

A fault is a list of edits of the files; a mutant knows where every batch lies afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.damage.mutants.pieces import Segment

COPY = -1  # in the place of an offset: the batch is one too many
UNCOVERED = {"offset": (0, 8), "length": (8, 12), "epoch": (12, 16), "magic": (16, 17)}


class Edit(NamedTuple):
    """Bytes [pos, pos + size) of a segment become others."""

    segment: int
    pos: int
    size: int
    content: bytes
    places: tuple[tuple[int, int], ...] = ()  # of whole batches in the content


class Mutant(NamedTuple):
    """Files by segment, where their batches begin now and ended once, and what was done.

    A place is a position and the last offset that the batch there had before.
    """

    files: tuple[bytes, ...]
    places: tuple[dict[int, int], ...]
    words: str


class _Target(NamedTuple):
    segment: int
    pos: int
    end: int
    last_offset: int
    data: bytes  # of the segment


def mutate(rng: random.Random, segments: Sequence[Segment]) -> Mutant:
    """Damage a partition in one place or in two."""
    targets = [
        _Target(number, pos, end, last_offset, each.data)
        for number, each in enumerate(segments)
        for (pos, last_offset), (end, _) in zip(
            each.places, [*each.places[1:], (len(each.data), 0)], strict=True
        )
    ]
    count = rng.choice((1, 2, 2))
    first = rng.randrange(len(targets))
    near = min(len(targets) - 1, first + rng.choice((1, 1, 1, 2, 3)))
    chosen = [first, near if rng.random() < 0.8 else rng.randrange(len(targets))][:count]
    words, edits = [], []
    for place in dict.fromkeys(chosen):
        is_uncovered = rng.random() < 0.6
        fault = rng.choice(_UNCOVERED if is_uncovered else _OTHERS)
        found = fault(rng, targets, place)
        words.append(
            f"{fault.__name__.strip('_')} at {targets[place].segment}:{targets[place].pos}"
        )
        edits += found
    return _apply(segments, edits, " and ".join(words))


def _apply(segments: Sequence[Segment], edits: list[Edit], words: str) -> Mutant:
    files, places = [], []
    for number, segment in enumerate(segments):
        data, at = segment.data, list(segment.places)
        done = len(data)
        for edit in sorted(
            (each for each in edits if each.segment == number), key=lambda each: -each.pos
        ):
            if edit.pos + edit.size > done:  # of two faults in one place, one
                continue
            done = edit.pos
            data = data[: edit.pos] + edit.content + data[edit.pos + edit.size :]
            grown = len(edit.content) - edit.size
            # What began where something was put in begins behind it.
            at = [(pos if pos < edit.pos + edit.size else pos + grown, last) for pos, last in at]
            at += [(edit.pos + pos, last) for pos, last in edit.places]
        files.append(data)
        places.append(dict(at))
    return Mutant(tuple(files), tuple(places), words)


def _flip(rng: random.Random, target: _Target, field: tuple[int, int]) -> list[Edit]:
    start, end = field
    pos = target.pos + rng.randrange(start, min(end, target.end - target.pos))
    value = target.data[pos] ^ (1 << rng.randrange(8))
    return [Edit(target.segment, pos, 1, bytes([value]))]


def _flipped_offset(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    return _flip(rng, targets[place], UNCOVERED["offset"])


def _moved_offset(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    """In its last two bytes: among those of its neighbours."""
    return _flip(rng, targets[place], (6, 8))


def _flipped_length(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    return _flip(rng, targets[place], UNCOVERED["length"])


def _flipped_epoch(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    return _flip(rng, targets[place], UNCOVERED["epoch"])


def _flipped_magic(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    return _flip(rng, targets[place], UNCOVERED["magic"])


def _garbled_frame(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    """All that no checksum covers, or some of it."""
    target = targets[place]
    start, end = rng.choice(((0, 8), (8, 12), (0, 12), (0, 17), (8, 17)))
    return [Edit(target.segment, target.pos + start, end - start, rng.randbytes(end - start))]


def _flipped_bit(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    return _flip(rng, targets[place], (0, 1 << 30))


def _garbled_header(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    target = targets[place]
    size = min(61, target.end - target.pos)
    return [Edit(target.segment, target.pos, size, rng.randbytes(size))]


def _some_bytes(rng: random.Random, target: _Target) -> tuple[int, int]:
    """Where in a batch, or beyond it, and how many."""
    pos = rng.randrange(target.pos, target.end)
    size = rng.choice((1, 3, 17, 61, 200, 900))
    return pos, min(size, len(target.data) - pos)


def _zeroed(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    pos, size = _some_bytes(rng, targets[place])
    return [Edit(targets[place].segment, pos, size, bytes(size))]


def _cut_out(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    pos, size = _some_bytes(rng, targets[place])
    return [Edit(targets[place].segment, pos, size, b"")]


def _put_in(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    pos, size = _some_bytes(rng, targets[place])
    content = rng.choice((bytes(size), rng.randbytes(size)))
    return [Edit(targets[place].segment, pos, 0, content)]


def _doubled_batch(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    """A batch of the same segment stands once more between two others."""
    target = targets[place]
    other = rng.choice([each for each in targets if each.segment == target.segment])
    content = other.data[other.pos : other.end]
    return [Edit(target.segment, target.end, 0, content, ((0, COPY),))]


def _across_the_border(rng: random.Random, targets: Sequence[_Target], place: int) -> list[Edit]:
    """The end of one segment and the begin of the next, or of the log."""
    segment = targets[place].segment
    last = [each for each in targets if each.segment == segment][-1]
    size = rng.randrange(1, last.end - last.pos + 1)
    edits = [Edit(segment, last.end - size, size, rng.randbytes(size))]
    behind = [each for each in targets if each.segment == segment + 1]
    if behind:
        size = rng.randrange(1, min(behind[0].end, 400))
        edits.append(Edit(segment + 1, 0, size, rng.choice((bytes(size), rng.randbytes(size)))))
    return edits


_Fault = "Callable[[random.Random, Sequence[_Target], int], list[Edit]]"
_UNCOVERED = (
    _flipped_offset,
    _flipped_offset,
    _moved_offset,
    _flipped_length,
    _flipped_epoch,
    _flipped_magic,
    _garbled_frame,
)
_OTHERS = (
    _flipped_bit,
    _garbled_header,
    _zeroed,
    _cut_out,
    _put_in,
    _doubled_batch,
    _across_the_border,
)
