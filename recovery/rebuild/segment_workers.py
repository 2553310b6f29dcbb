"""Passes over the segments of a partition, in this process or in several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.pool import paying_jobs, stream_in_order
from recovery.rebuild.segment_pass import Block, PassEnd, pass_over
from storage.kernels.select import load_native

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.rebuild.segment_pass import SegmentJob

# What a worker keeps before it waits for the reader: about 60 bytes a row.
MAX_WAITING_ROWS = 400_000


def run_passes(work: Sequence[SegmentJob], jobs: int = 1) -> Iterator[Iterator[Block | PassEnd]]:
    """Give the messages of each segment, in order; exceptions come where they belong.

    With several jobs by as many processes; few bytes are read in this one, and a single segment in
    it, with a thread that reads ahead, where the kernel has it.
    """
    jobs = paying_jobs(jobs, map(_size_bytes, work))
    if jobs > 1 and len(work) == 1 and load_native() is not None:
        work, jobs = [each._replace(threads=jobs) for each in work], 1
    return stream_in_order(
        pass_over,
        work,
        jobs,
        weight_of=_rows_count,
        max_weight=MAX_WAITING_ROWS,
        name_of=lambda job: job.path,
    )


def _rows_count(message: Block | PassEnd) -> int:
    return message.table.row_count if isinstance(message, Block) else 0


def _size_bytes(job: SegmentJob) -> int:
    try:
        return Path(job.path).stat().st_size
    except OSError:  # the pass tells of it
        return 0
