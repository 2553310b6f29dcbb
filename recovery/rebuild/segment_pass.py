"""One pass over a segment, like recovery's: build the indexes, keep rows for the producer state.

The scan, the checksums and the indexes of a segment do not depend on other segments, so several
processes may do them. Only the producer state depends on order. The caller replays it from the
relevant rows of each block, with the markers of its control batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.rebuild.index_builder import (
    DEFAULT_INDEX_MAX_BYTES,
    DEFAULT_INTERVAL_BYTES,
    BuiltIndexes,
    IndexBuilder,
    IndexFailure,
)
from recovery.replay.bulk_state import SegmentWalk
from storage.files.positioned_file import SplicedFile
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.numpy_kernel import BulkScan, rows_of
from storage.kernels.protocol import HeaderTable
from storage.log.segment import Segment, open_segment
from storage.producers.producer_state import CACHED_BATCHES_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from recovery.changes.plans.file_facts import Range
    from recovery.replay.producer_columns import MarkerColumns
    from storage.kernels.protocol import Verdict


# -- the few rows of a block of batches that producer state depends on.
#
# In a sequence of one producer's batches of the same epoch and kind, only the first and the last
# five leave a trace. Replaying only these rows gives the same state, transactions and violations as
# replaying all. So a process that scans need not send more.


KIND_MASK = CONTROL_MASK | TRANSACTIONAL_MASK


def relevant_rows(table: HeaderTable) -> NDArray[np.int64]:
    """Return the rows to keep, ascending: relevant rows, and the last row for the end offset."""
    rows = np.flatnonzero((table.producer_id >= 0) & (table.magic >= 2))
    if not len(rows):
        return np.arange(max(table.row_count - 1, 0), table.row_count)
    order = rows[np.argsort(table.producer_id[rows], kind="stable")]
    producer_id = table.producer_id[order]
    producer_epoch = table.producer_epoch[order]
    kind = table.attributes[order] & KIND_MASK
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (
        (producer_id[1:] != producer_id[:-1])
        | (producer_epoch[1:] != producer_epoch[:-1])
        | (kind[1:] != kind[:-1])
        | ((kind[1:] & CONTROL_MASK) != 0)
    )
    is_kept = is_first.copy()
    # The last five of each run: a row with a run's first among the five rows after it.
    for distance in range(1, CACHED_BATCHES_COUNT + 1):
        is_kept[:-distance] |= is_first[distance:]
    is_kept[-CACHED_BATCHES_COUNT:] = True
    is_relevant = np.zeros(table.row_count, np.bool_)
    is_relevant[order[is_kept]] = True
    is_relevant[-1] = True
    return np.flatnonzero(is_relevant)


def take_rows(table: HeaderTable, rows: NDArray[np.int64]) -> HeaderTable:
    """Return a table of these rows only."""
    return HeaderTable._make(column[rows] for column in table)


# -- segment pass


class SegmentJob(NamedTuple):
    """A segment and how to read it.

    Attributes:
        ranges: only these parts of the file count.
        threads: with several, one reads ahead.
        index_max_bytes: the size limit of a broker's index.
        is_as_broker: end at the first entry that an index does not take, like a recovery.
    """

    path: str
    base_offset: int
    is_last: bool
    interval_bytes: int = DEFAULT_INTERVAL_BYTES
    ranges: tuple[Range, ...] | None = None
    threads: int = 1
    index_max_bytes: int = DEFAULT_INDEX_MAX_BYTES
    is_as_broker: bool = False


class Block(NamedTuple):
    """The rows of some batches that producer state depends on, with markers by row."""

    table: HeaderTable
    markers: MarkerColumns


class EpochRun(NamedTuple):
    """The batches of one leader epoch: base offsets of the first and the last batch."""

    epoch: int
    first_base_offset: int
    last_base_offset: int


class PassEnd(NamedTuple):
    """The result of a pass, after its last block.

    `failure` is an entry that a broker's index does not take: its recovery ends with an exception.
    """

    base_offset: int
    next_offset: int  # one above the last whole, valid batch, else the base offset
    valid_bytes: int
    log_bytes: int
    batches_count: int
    indexes: BuiltIndexes
    epochs: tuple[EpochRun, ...]
    verdict: Verdict
    failure: IndexFailure | None = None

    @property
    def is_cut(self) -> bool:
        """Return whether recovery would truncate here and drop all later segments (REC-6)."""
        return self.valid_bytes < self.log_bytes


def pass_over(job: SegmentJob) -> Iterator[Block | PassEnd]:
    """Walk a segment up to the first batch that recovery would not keep.

    Raises:
        AccessError: it cannot be opened, or a part of it cannot be read.
        CorruptError: BAT-12, a control batch without an end marker: a broker cannot load it.
    """
    if job.ranges is not None:
        whole = SplicedFile(job.path, [(job.path, *each) for each in job.ranges])
        with Segment(whole, job.base_offset) as segment:
            yield from pass_over_segment(segment, job)
        return
    with open_segment(job.path, base_offset=job.base_offset) as segment:
        yield from pass_over_segment(segment, job)


def pass_over_segment(segment: Segment, job: SegmentJob) -> Iterator[Block | PassEnd]:
    """Walk an open segment, either a file or a planned file.

    Raises:
        AccessError, CorruptError: as in `pass_over`.
    """
    builder = IndexBuilder(job.base_offset, job.interval_bytes, job.index_max_bytes)
    epochs = _EpochCollector()
    blocks: list[Block] = []

    def hand_on(table: HeaderTable, markers: MarkerColumns, rows: slice) -> None:
        if job.is_as_broker and builder.failure is not None:
            return
        builder.add(table)
        failure, stop = builder.failure, rows.stop
        if job.is_as_broker and failure is not None and failure.row is not None:
            stop = min(stop, failure.row)
            table = rows_of(table, 0, failure.row)
            walk.is_over = True
        epochs.add(table)
        blocks.append(_block(rows_of(table, rows.start, stop), markers))

    walk = SegmentWalk(segment, hand_on, start_offset=None, end_offset=None)
    scan = BulkScan(
        segment, with_bodies=False, threads=job.threads, is_active=job.is_last, resume=False
    )
    for _ in walk.over(scan):
        yield from blocks
        blocks.clear()
    if walk.refusal is not None:
        raise walk.refusal
    indexes = builder.finish()
    yield PassEnd(
        base_offset=job.base_offset,
        next_offset=max(walk.last_offset + 1, job.base_offset),
        valid_bytes=walk.valid_bytes,
        log_bytes=scan.end_pos,  # a running broker may have appended since
        batches_count=walk.batches_count,
        indexes=indexes,
        epochs=tuple(epochs.runs),
        verdict=walk.stop or _verdict_at(scan.verdicts, walk.valid_bytes, scan.verdict),
        failure=builder.failure,
    )


def _block(table: HeaderTable, markers: MarkerColumns) -> Block:
    """Reduce a table to its relevant rows. These include all control batches."""
    rows = relevant_rows(table)
    markers = markers.between(0, table.row_count)
    return Block(take_rows(table, rows), markers._replace(row=np.searchsorted(rows, markers.row)))


def _verdict_at(verdicts: list[Verdict], pos: int, default: Verdict) -> Verdict:
    """Return the verdict of the place where the pass stopped."""
    return next((each for each in verdicts if each.end_pos > pos), default)


class _EpochCollector:
    """A collector of leader epochs. Ignores batches of an epoch below the greatest (EPOCH-2)."""

    def __init__(self) -> None:
        self.runs: list[EpochRun] = []

    def add(self, table: HeaderTable) -> None:
        latest = self.runs[-1].epoch if self.runs else -1
        epochs = np.where(table.magic >= MAGIC_V2, table.partition_leader_epoch, -1)
        greatest = np.maximum.accumulate(np.concatenate(([latest], epochs)))[1:]
        rows = np.flatnonzero((epochs == greatest) & (epochs >= 0))
        if not len(rows):
            return
        starts = np.flatnonzero(np.diff(epochs[rows], prepend=-1))
        lasts = np.append(starts[1:], len(rows)) - 1
        for first, last in zip(rows[starts].tolist(), rows[lasts].tolist(), strict=True):
            run = EpochRun(
                int(epochs[first]), int(table.base_offset[first]), int(table.base_offset[last])
            )
            add_epoch_run(self.runs, run)


def add_epoch_run(runs: list[EpochRun], run: EpochRun) -> None:
    """Append a run, or extend the last run. Ignore a lower epoch."""
    if runs and runs[-1].epoch == run.epoch:
        runs[-1] = runs[-1]._replace(last_base_offset=run.last_base_offset)
    elif not runs or run.epoch > runs[-1].epoch:
        runs.append(run)
