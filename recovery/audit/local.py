"""Summaries of many splits by processes on this machine: what Spark's tasks do, without Spark."""

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

# Small splits share a task: handing over costs as much as reading a megabyte.
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
        splits: what to read.
        jobs: how many processes; 1 reads in this one.
        on_bytes: told how many bytes have been read, for progress.
        read: a function of a module, which a new process imports.
        task_bytes: small splits share a task up to this size.

    Raises:
        WorkerLostError: processes were killed again and again.
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
    """Put neighbours together as long as they are not larger than `task_bytes` in sum."""
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
