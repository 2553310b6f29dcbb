"""Whole batches for which a broker does not load a log: what a salvage takes out beside damage.

  PRD-4               a data batch outside of the transaction that its producer has open
  BAT-12              a control batch without an end marker
  CTL-1, CTL-2, BAT-7 a control batch whose record does not parse: recovery cuts behind it

Their checksums are right; no scan finds them, but the replay of producer state that every start
makes (PROD-6, PROD-9).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.repair.salvage_scan import Loss
from recovery.replay.end_markers import CUT_CHECK_IDS
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.rebuild.segment_pass import PassEnd
    from recovery.repair.run_order import Run
    from recovery.repair.salvage_scan import SalvagedSegment
    from storage.errors import FormatError
    from storage.kernels.protocol import HeaderTable


class _QuarantinedBatch(NamedTuple):
    """Of which nothing but its place counts."""

    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int


def without_refused(
    found: Sequence[SalvagedSegment], error: FormatError | AppendError
) -> list[SalvagedSegment] | None:
    """Take the batches out of what stays for which a replay has failed.

    Of a producer's data batches in a transaction of another kind all go at once, up to its next
    control batch in that segment.

    Args:
        found: the segments of the partition, in order.
        error: what `rebuild_partition` raised for their kept ranges.

    Returns:
        What stays then; None: the error is of nothing that could go.

    Raises:
        AccessError: the segment cannot be opened.
    """
    batches: list[_QuarantinedBatch] = []
    if isinstance(error, AppendError):
        check_id, reason = "PRD-4", f"{error}: a broker cannot load it"
        number = max(bisect_right([each.base_offset for each in found], error.offset) - 1, 0)
        batches += _of_producer(found[number], error)
    else:
        check_id, reason = error.check_id, f"{error.message}: {error.found}"
        numbers = [n for n, each in enumerate(found) if each.path == error.path]
        number = numbers[0] if numbers else 0
        if numbers:
            batches += _at(found[number], error.pos)
    return _without(found, number, batches, check_id, reason)


def without_cut(found: Sequence[SalvagedSegment], end: PassEnd) -> list[SalvagedSegment] | None:
    """Take the control batch out behind which recovery would cut; None: it is for another reason.

    Raises:
        AccessError: the segment cannot be opened.
    """
    verdict = end.verdict
    if verdict.check_id not in CUT_CHECK_IDS or verdict.start_pos >= end.valid_bytes:
        return None
    number = [each.base_offset for each in found].index(end.base_offset)
    batches = [*_at(found[number], verdict.start_pos)]
    reason = f"{verdict.reason}: a broker cuts the log behind this control batch"
    return _without(found, number, batches, verdict.check_id, reason)


def _without(
    found: Sequence[SalvagedSegment],
    number: int,
    batches: Sequence[_QuarantinedBatch],
    check_id: str,
    reason: str,
) -> list[SalvagedSegment] | None:
    if not batches:
        return None
    segment = found[number]
    runs = segment.runs
    for each in batches:
        runs = tuple(_split(runs, each))
    losses = [
        *segment.losses,
        *(
            Loss(
                kind=VerdictKind.CORRUPT,
                start_pos=each.start_pos,
                end_pos=each.end_pos,
                base_offset=each.base_offset,
                last_offset=each.last_offset,
                check_id=check_id,
                reason=reason,
            )
            for each in batches
        ),
    ]
    losses.sort(key=_start_pos_of)
    left = [*found]
    left[number] = segment._replace(runs=runs, losses=tuple(losses))
    return left


def _split(runs: Iterable[Run], batch: _QuarantinedBatch) -> Iterator[Run]:
    for run in runs:
        if not run.start_pos <= batch.start_pos < run.end_pos:
            yield run
            continue
        # Their numbers of batches are of use to a search only, which is over.
        if run.start_pos < batch.start_pos:
            yield run._replace(end_pos=batch.start_pos, last_offset=batch.base_offset - 1)
        if batch.end_pos < run.end_pos:
            yield run._replace(start_pos=batch.end_pos, base_offset=batch.last_offset + 1)


def _start_pos_of(loss: Loss) -> int:
    return loss.start_pos


def _at(segment: SalvagedSegment, pos: int) -> Iterator[_QuarantinedBatch]:
    """The batch with the byte at a position of what stays, as if that were a file of its own."""
    for run in segment.runs:
        if pos < run.end_pos - run.start_pos:
            wanted = run.start_pos + pos
            for table in _tables(segment, run):
                rows = np.flatnonzero(table.pos <= wanted)
                if len(rows) and wanted < table.pos[rows[-1]] + table.batch_bytes[rows[-1]]:
                    yield _batch(table, int(rows[-1]))
            return
        pos -= run.end_pos - run.start_pos


def _of_producer(segment: SalvagedSegment, error: AppendError) -> Iterator[_QuarantinedBatch]:
    """Data batches of no transaction from the refused one to the producer's next control batch."""
    for run in segment.runs:
        if run.last_offset < error.offset:
            continue
        for table in _tables(segment, run):
            is_own = (table.producer_id == error.producer_id) & (table.magic >= MAGIC_V2)
            for row in np.flatnonzero(is_own & (table.base_offset >= error.offset)).tolist():
                attributes = int(table.attributes[row])
                if attributes & CONTROL_MASK:
                    return
                if not attributes & TRANSACTIONAL_MASK:
                    yield _batch(table, row)


def _tables(segment: SalvagedSegment, run: Run) -> Iterator[HeaderTable]:
    with open_segment(segment.path, base_offset=segment.base_offset) as file:
        yield from file.scan_tables(
            start_pos=run.start_pos, end_pos=run.end_pos, verify_crc=False, resume=False
        )


def _batch(table: HeaderTable, row: int) -> _QuarantinedBatch:
    pos = int(table.pos[row])
    return _QuarantinedBatch(
        start_pos=pos,
        end_pos=pos + int(table.batch_bytes[row]),
        base_offset=int(table.base_offset[row]),
        last_offset=int(table.last_offset[row]),
    )
