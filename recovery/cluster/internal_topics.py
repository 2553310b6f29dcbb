"""The partitions of an internal topic in log dirs: which copy of each to read, and are they all.

Of several copies of one partition, from several nodes, the one that reaches furthest counts: what
it lacks was never there, or is no part of the log any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.dirs.partition import Partition
from storage.errors import AccessError, CorruptError, FormatError
from storage.file_names import DirState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition import RangeRead
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

MAX_PROBLEMS_COUNT = 100


def find_copies(
    log_dirs: Iterable[LogDir], topic: str
) -> tuple[dict[int, list[Partition]], list[Problem]]:
    """Find the live directories of a topic by partition, and those that cannot be listed."""
    copies: dict[int, list[Partition]] = {}
    problems: list[Problem] = []
    listed = ((each, log_dir) for log_dir in log_dirs for each in log_dir.partitions)
    for directory, around in listed:
        if directory.name.topic == topic and directory.name.state is DirState.LIVE:
            of_number = copies.setdefault(directory.name.partition, [])
            try:
                of_number.append(Partition(directory, around))
            except AccessError as exc:  # it may be the copy that reaches furthest
                problems.append(exc.without_frames())
    return copies, problems


def furthest(copies: list[Partition]) -> list[Partition]:
    """Return the copies of one partition that reach furthest, as an election compares them."""
    if len(copies) < 2:
        return copies
    found = [reach(each.leader_epochs(), _end_offset(each)) for each in copies]
    return [each for each, own in zip(copies, found, strict=True) if own == max(found)]


def reach(epochs: Sequence[LeaderEpochEntry] | None, end_offset: int) -> tuple[int, int]:
    """Return what tells how far a copy reaches: the last leader epoch first, then the length.

    After an unclean election the longer log may be that of the leader before, which is lost.
    """
    return (epochs[-1].epoch if epochs else -1, end_offset)


def _end_offset(partition: Partition) -> int:
    try:
        end = partition.log_end()
    except AccessError:  # met again, and recorded, if this copy is read
        end = None
    return -1 if end is None else end.offset


def partitions_count(image: ClusterImage | None, topic: str, highest: int) -> int | None:
    """How many partitions the topic has; None if the image does not tell, or cannot be right."""
    if image is None or image.problems or topic not in image.topics:
        return None
    numbers = image.topics[topic].partitions.keys()
    is_likely = highest in numbers and numbers == set(range(len(numbers)))
    return len(numbers) if is_likely else None


def read_batches(
    source: Partition, take: Callable[[Segment, ScannedBatch], None], problems: list[Problem]
) -> None:
    """Hand over the batches of a partition from its log start on, but for damaged ones.

    What cannot be read, and what `take` raises of a batch, joins `problems`.
    """
    reading = source.read(source.local_log_start_offset or 0)
    for _, segment, batch in reading:
        if batch.crc_ok is False:
            continue  # there is a verdict about the first ones
        try:
            take(segment, batch)
        except FormatError as exc:
            add_problem(problems, exc if exc.path else exc.located(segment.path, batch.pos))
        except AccessError as exc:
            add_problem(problems, exc)
    for each in reading_problems(source, reading):
        add_problem(problems, each)


def add_problem(problems: list[Problem], problem: Problem) -> None:
    """Keep a problem, unless there are very many."""
    if len(problems) < MAX_PROBLEMS_COUNT:
        problems.append(problem.without_frames())


def reading_problems(source: Partition, reading: RangeRead) -> Iterator[Problem]:
    """Tell what could not be read of a partition that was read to its end."""
    for files, verdict in reading.verdicts:
        if verdict.errno:
            yield AccessError(OSError(verdict.errno, verdict.reason), files.log.path)
        elif verdict.check_id != "SEG-6":  # a torn or preallocated tail is no loss
            reason, check_id = verdict.reason or verdict.kind, verdict.check_id
            damage = CorruptError(reason, check_id=check_id, pos=verdict.start_pos)
            yield damage.located(files.log.path)
    yield from source.problems
