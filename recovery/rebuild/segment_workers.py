"""Passes over the segments of a partition, in this process or in several."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.rebuild.segment_pass import Block, PassEnd, pass_over
from recovery.work.processes import WorkerLostError, end_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from recovery.rebuild.segment_pass import SegmentJob

# What a worker keeps before it waits for the reader: about 60 bytes a row.
MAX_WAITING_ROWS = 400_000
# Less than this is read sooner here. To start and feed two processes costs 0.1 to 0.25 s of
# processor time (check and rebuild of 3 to 400 partitions, with one and with two): they gain from
# 0.2 to 0.5 s of work on, and later where other programs have the processors. This is 0.6 s of
# work, at 200 MB/s.
MIN_SHARED_BYTES = 128 << 20
# To open and look at the smallest partition takes 2 ms, as much as reading so many bytes.
MIN_PARTITION_BYTES = 512 << 10


def paying_jobs(jobs: int, sizes_bytes: Iterable[int], *, least_bytes: int = 0) -> int:
    """Tell how many of `jobs` processes pay for these values: all, or 1 for little work.

    Args:
        jobs: processes that there may be.
        sizes_bytes: what is read for each value; no more of them are taken than it takes to know.
        least_bytes: what a value costs at least, as bytes read.
    """
    if jobs <= 1:
        return 1
    total_bytes = 0
    for each in sizes_bytes:
        total_bytes += max(each, least_bytes)
        if total_bytes >= MIN_SHARED_BYTES:
            return jobs
    return 1


def run_passes(work: Sequence[SegmentJob], jobs: int = 1) -> Iterator[Iterator[Block | PassEnd]]:
    """Give the messages of each segment, in order; exceptions come where they belong.

    With several jobs the segments are dealt out in turn to as many processes, which work ahead of
    the reader. They end when the iteration does. Few bytes are read in this process.
    """
    jobs = paying_jobs(jobs, map(_size_bytes, work))
    if jobs <= 1 or len(work) <= 1:
        yield from (pass_over(job) for job in work)
        return
    workers = [_SegmentWorker(work[first::jobs]) for first in range(min(jobs, len(work)))]
    try:
        for place in range(len(work)):
            yield workers[place % len(workers)].next_segment()
    finally:
        for worker in workers:
            worker.stop()


def _size_bytes(job: SegmentJob) -> int:
    try:
        return Path(job.path).stat().st_size
    except OSError:  # the pass tells of it
        return 0


class _SegmentWorker:
    def __init__(self, work: Sequence[SegmentJob]) -> None:
        import multiprocessing  # a partition of one segment does not pay for it

        # fork: the modules are loaded, and nothing here runs threads.
        context = multiprocessing.get_context("fork")
        self._messages, sender = context.Pipe(duplex=False)
        parent = os.getpid()
        self._process = context.Process(target=_run, args=(work, sender, parent), daemon=True)
        self._process.start()
        sender.close()

    def next_segment(self) -> Iterator[Block | PassEnd]:
        while True:
            try:
                message = self._messages.recv()
            except EOFError:
                raise WorkerLostError from None
            if isinstance(message, BaseException):
                raise message
            yield message
            if isinstance(message, PassEnd):
                return

    def stop(self) -> None:
        self._messages.close()
        self._process.terminate()
        self._process.join()


def _run(work: Sequence[SegmentJob], sender: Connection, parent_pid: int) -> None:
    try:
        end_with(parent_pid)
        for job in work:
            _send_segment(job, sender)
    except (BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as exc:  # noqa: BLE001 - raised again where the segment is read
        sender.send(exc)


def _send_segment(job: SegmentJob, sender: Connection) -> None:
    """Work ahead of the reader up to MAX_WAITING_ROWS, then at its pace."""
    waiting: deque[Any] = deque()
    waiting_rows = 0
    for message in pass_over(job):
        waiting.append(message)
        waiting_rows += message.table.row_count if isinstance(message, Block) else 0
        while waiting_rows > MAX_WAITING_ROWS:
            oldest = waiting.popleft()
            sender.send(oldest)
            waiting_rows -= oldest.table.row_count
    for message in waiting:
        sender.send(message)
