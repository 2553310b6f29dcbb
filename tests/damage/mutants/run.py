"""Draw mutants, ask the readers, compare with the judge."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tests.damage.mutants import faults, judge, pieces
from tests.damage.mutants.readers import READERS, Answer, Reported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class Fault(NamedTuple):
    """What a reader did wrong with a mutant."""

    reader: str
    problem: str
    number: int
    words: str


class Result(NamedTuple):
    """Sums over a run.

    Attributes:
        mutants_count: how many were drawn, and of these
        damaged_count: have bytes that differ from what they were.
        good_count: batches that are valid by checksum, over all mutants.
        refused: how many of these that have the offset they had each reader reported as lost.
        faults: each good batch that is in no output and no report; each report whose offsets run
            backwards; each reader that says nothing of a mutant that misses a batch.
    """

    mutants_count: int
    damaged_count: int
    good_count: int
    refused: Counter[str]
    faults: list[Fault]


class _Good(NamedTuple):
    segment: int
    batch: judge.Batch
    true_offset: int  # its last one, before the damage


def run(golden: Path, legacy: Path, scratch: Path, seed: int, numbers: Iterable[int]) -> Result:
    """Try some mutants of a seed. `scratch` is a directory for the files of one at a time."""
    v2, old = pieces.read_sources(golden, legacy)
    directory = scratch / "t-0"
    directory.mkdir(exist_ok=True)
    mutants_count = damaged_count = good_count = 0
    refused: Counter[str] = Counter()
    found: list[Fault] = []
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        name, segments = pieces.draw(rng, v2, old)
        mutant = faults.mutate(rng, segments)
        write_files(directory, segments, mutant.files)
        good = [
            _Good(segment, batch, places[batch.pos])
            for segment, (data, places) in enumerate(zip(mutant.files, mutant.places, strict=True))
            for batch in judge.good_batches(data, places)
        ]
        mutants_count += 1
        damaged_count += mutant.files != tuple(each.data for each in segments)
        good_count += len(good)
        for reader, ask in READERS.items():
            try:
                answer = ask(directory)
            except Exception as error:  # noqa: BLE001 - that, too, is a fault
                found.append(Fault(reader, f"raised {error!r}", number, f"{name}: {mutant.words}"))
                continue
            problems, refused_count = _compare(answer, good)
            problems += _unsaid(answer, segments, good)
            refused[reader] += refused_count
            found += [Fault(reader, each, number, f"{name}: {mutant.words}") for each in problems]
    return Result(mutants_count, damaged_count, good_count, refused, found)


def write_files(
    directory: Path, segments: Sequence[pieces.Segment], files: Sequence[bytes]
) -> None:
    for path in directory.iterdir():
        path.unlink()
    for segment, data in zip(segments, files, strict=True):
        (directory / f"{segment.base_offset:020d}.log").write_bytes(data)
        if segment.index is not None:
            (directory / f"{segment.base_offset:020d}.index").write_bytes(segment.index)


def _compare(answer: Answer, good: Sequence[_Good]) -> tuple[list[str], int]:
    """Return what is wrong, and how many good batches were reported as lost."""
    problems = [
        f"reversed range {each.base_offset}..{each.last_offset} at {each.start_pos}"
        for each in answer.reported
        if each.base_offset is not None
        and each.last_offset is not None
        and each.last_offset < each.base_offset - 1
    ]
    reported = [_report_of(each, answer.reported) for each in good]
    given = _given(answer, good, [each is not None for each in reported])
    problems += [
        f"batch at {each.segment}:{each.batch.pos}, offsets {each.batch.first_offset} to"
        f" {each.batch.last_offset}, is neither given nor reported"
        for each, is_given, report in zip(good, given, reported, strict=True)
        if not is_given and report is None
    ]
    refused_count = sum(
        not is_given and report is not None and each.batch.last_offset == each.true_offset
        for each, is_given, report in zip(good, given, reported, strict=True)
    )
    return problems, refused_count


def _unsaid(answer: Answer, segments: Sequence[pieces.Segment], good: Sequence[_Good]) -> list[str]:
    """Return what is wrong with an answer that reports nothing.

    Nobody can know of batches that are gone from the end of the log, torn or cut, nor of an offset
    that was moved within a gap: then all offsets still ascend.
    """
    if answer.reported:
        return []
    left = {each.true_offset for each in good if each.batch.last_offset == each.true_offset}
    moved = {each.true_offset for each in good} - left
    offsets = [each.batch.last_offset for each in good]
    is_ascending = offsets == sorted(set(offsets))
    end = max(left, default=-1)
    unsaid = [
        last
        for segment in segments
        for _, last in segment.places
        if last not in left and last < end and not (last in moved and is_ascending)
    ]
    return [f"says nothing of what is missing: last offsets {unsaid}"] if unsaid else []


def _report_of(good: _Good, reported: Sequence[Reported]) -> Reported | None:
    for each in reported:
        if each.segment == good.segment and each.start_pos <= good.batch.pos < each.end_pos:
            return each
    return None


def _given(answer: Answer, good: Sequence[_Good], is_reported: Sequence[bool]) -> list[bool]:
    if answer.places is not None:
        return [(each.segment, each.batch.pos) in answer.places for each in good]
    if answer.offsets is not None:
        return [_has_records(each, answer.offsets) for each in good]
    # Counts cannot be told apart: of what is not reported, as many as are missing are not given.
    assert answer.batches_count is not None
    left = list(answer.batches_count)
    given = []
    for each, reported in zip(good, is_reported, strict=True):
        is_given = not reported and left[each.segment] > 0
        left[each.segment] -= is_given
        given.append(is_given)
    for number, (each, reported) in enumerate(zip(good, is_reported, strict=True)):
        if reported and left[each.segment] > 0:
            given[number] = True
            left[each.segment] -= 1
    return given


def _has_records(good: _Good, offsets: Counter[int]) -> bool:
    batch = good.batch
    if not batch.is_data:
        return True
    if batch.records_count is None:
        # The messages in a wrapper of format v0 have their own offsets, whatever its header says.
        return batch.last_offset in offsets or (batch.magic == 0 and good.true_offset in offsets)
    if batch.last_offset - batch.first_offset + 1 == batch.records_count:
        return all(offset in offsets for offset in range(batch.first_offset, batch.last_offset + 1))
    count = sum(1 for offset in offsets if batch.first_offset <= offset <= batch.last_offset)
    return count >= batch.records_count
