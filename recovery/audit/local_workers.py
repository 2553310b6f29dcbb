"""Summaries of many splits, read by processes on this machine instead of Spark's tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.pool import map_unordered, paying_jobs, reading_bytes
from recovery.summaries.codec import pack_piece, unpack_piece
from recovery.summaries.partition import ReadPiece
from recovery.summaries.segment import read_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.summaries.segment import PieceSummary
    from storage.places.splits import Split

    ReadSplit = Callable[[Split], PieceSummary]

# Small splits share a task. Starting a task costs as much as reading a megabyte.
TASK_BYTES = 32 << 20


def read_pieces(
    splits: Sequence[Split],
    jobs: int,
    on_bytes: Callable[[int], None] | None = None,
    read: ReadSplit = read_split,
    task_bytes: int = TASK_BYTES,
) -> Iterator[ReadPiece]:
    """Summarize splits, in any order.

    Args:
        splits: the splits to read.
        jobs: the number of processes. With 1, this process reads.
        on_bytes: called with the number of bytes read, for progress.
        read: a function of a module. A new process imports it.
        task_bytes: small splits share a task up to this size.

    Raises:
        WorkerLostError: processes were killed repeatedly.
    """
    tasks = [*tasks_of(splits, task_bytes)]
    jobs = paying_jobs(jobs, map(_reading_bytes, splits))
    for number, pieces in map_unordered(
        partial(_read_task, read), tasks, jobs, name_of=lambda task: task[0].place.path
    ):
        if on_bytes is not None:
            on_bytes(sum(each.end_pos - each.start_pos for each in tasks[number]))
        yield from map(ReadPiece, tasks[number], map(unpack_piece, pieces))


def _reading_bytes(split: Split) -> int:
    return reading_bytes(split.place.path, split.end_pos - split.start_pos)


def tasks_of(splits: Iterable[Split], task_bytes: int = TASK_BYTES) -> Iterator[list[Split]]:
    """Group neighbouring splits into tasks of up to `task_bytes`. A larger split is alone."""
    task: list[Split] = []
    size = 0
    for split in splits:
        split_bytes = split.end_pos - split.start_pos
        if task and size + split_bytes > task_bytes:
            yield task
            task, size = [], 0
        task.append(split)
        size += split_bytes
    if task:
        yield task


def _read_task(read: ReadSplit, task: list[Split]) -> list[bytes]:
    return [pack_piece(read(split)) for split in task]
