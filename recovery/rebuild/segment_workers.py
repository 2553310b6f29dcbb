"""Passes over the segments of a partition, in this process or in several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.rebuild.segment_pass import Block, PassEnd, pass_over
from recovery.work.streams import stream_in_order
from storage.kernels.select import load_native

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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

    With several jobs by as many processes; few bytes are read in this one, and a single segment in
    it, with a thread that reads ahead, where the kernel has it.
    """
    jobs = paying_jobs(jobs, map(_size_bytes, work))
    if jobs > 1 and len(work) == 1 and load_native() is not None:
        work, jobs = [each._replace(threads=jobs) for each in work], 1
    return stream_in_order(
        pass_over, work, jobs, weight_of=_rows_count, max_weight=MAX_WAITING_ROWS
    )


def _rows_count(message: Block | PassEnd) -> int:
    return message.table.row_count if isinstance(message, Block) else 0


def _size_bytes(job: SegmentJob) -> int:
    try:
        return Path(job.path).stat().st_size
    except OSError:  # the pass tells of it
        return 0
