"""The outcome of a broker's recovery of one segment, including exceptions (REC-7, REC-10).

    KEPT     all of it is good
    CUT      it is truncated before the first bytes that are no good batch
    EMPTIED  an index does not take an offset, and the broker empties the segment
             (InvalidOffsetException)
    SPLIT    offsets are too far from the base offset, and the broker splits the segment
    FATAL    the start fails, because the offsets do not fit the name, or an index is full

For a log without a contradiction the check knows the outcome. A contradicting segment is read
again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.checks.partition_check import CheckedSegment
from recovery.rebuild.index_builder import DEFAULT_INDEX_MAX_BYTES, DEFAULT_INTERVAL_BYTES
from recovery.rebuild.segment_pass import PassEnd, SegmentJob, pass_over
from storage.dirs.partition_files import SegmentFiles
from storage.errors import FormatError
from storage.files.positioned_file import PositionedFile, SplicedFile
from storage.kernels.layouts import TIME_ENTRY
from storage.limits import MAX_RELATIVE_OFFSET
from storage.log.segment import Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Fate(StrEnum):
    """The outcome of a recovery."""

    KEPT = "kept"
    CUT = "cut"
    EMPTIED = "emptied"
    SPLIT = "split"
    FATAL = "fatal"


class IndexLimits(NamedTuple):
    """The settings of a topic that decide which entries an index gets."""

    interval_bytes: int = DEFAULT_INTERVAL_BYTES
    max_bytes: int = DEFAULT_INDEX_MAX_BYTES


class SegmentOutcome(NamedTuple):
    """The effect of a recovery on a segment.

    Attributes:
        valid_bytes: size of the `.log` after it.
        end_offset: one above the last batch, else the base offset.
        reason: why it is emptied, or why the start fails. Otherwise "".
        parts: the segments after a split, in the order of the file.
    """

    fate: Fate
    valid_bytes: int
    end_offset: int
    reason: str = ""
    parts: tuple[CheckedSegment, ...] = ()


def open_start_segment(checked: CheckedSegment) -> Segment:
    """Open a segment as a start finds it. Raises AccessError."""
    path, base_offset = checked.files.log.path, checked.files.base_offset
    if checked.range_bytes is None:
        return Segment(PositionedFile(path), base_offset)
    return Segment(SplicedFile(path, [(path, *checked.range_bytes)]), base_offset)


def recovery_job(checked: CheckedSegment, limits: IndexLimits, *, is_last: bool) -> SegmentJob:
    """Return the pass of a broker's recovery over a segment."""
    return SegmentJob(
        path=checked.files.log.path,
        base_offset=checked.files.base_offset,
        is_last=is_last,
        interval_bytes=limits.interval_bytes,
        ranges=None if checked.range_bytes is None else (checked.range_bytes,),
        index_max_bytes=limits.max_bytes,
        is_as_broker=True,
    )


def recover_segment(checked: CheckedSegment, limits: IndexLimits) -> SegmentOutcome:
    """Return the outcome of the recovery of a segment.

    Raises:
        AccessError: it has to be read again, but cannot be.
    """
    base_offset, log_bytes, stop = checked.files.base_offset, checked.log_bytes, checked.stop
    may_be_full = log_bytes // limits.interval_bytes >= limits.max_bytes // TIME_ENTRY.itemsize - 1
    if not checked.is_doubtful and not may_be_full:
        if stop is None or stop.pos >= log_bytes:
            end_offset = checked.end_offset if stop is None else stop.end_offset
            outcome = _ended(Fate.KEPT, log_bytes, max(end_offset, base_offset))
        else:
            outcome = _ended(Fate.CUT, stop.pos, max(stop.end_offset, base_offset))
    else:
        outcome = _read_again(checked, limits)
    if checked.fatal_reason and outcome.fate is not Fate.EMPTIED:
        return outcome._replace(fate=Fate.FATAL, reason=checked.fatal_reason)
    return outcome


def _ended(fate: Fate, valid_bytes: int, end_offset: int, reason: str = "") -> SegmentOutcome:
    return SegmentOutcome(fate=fate, valid_bytes=valid_bytes, end_offset=end_offset, reason=reason)


def _read_again(checked: CheckedSegment, limits: IndexLimits) -> SegmentOutcome:
    path, base_offset = checked.files.log.path, checked.files.base_offset
    end = None
    try:
        for message in pass_over(recovery_job(checked, limits, is_last=False)):
            if isinstance(message, PassEnd):
                end = message
    except FormatError as error:
        return _ended(Fate.FATAL, 0, base_offset, f"{error}: refuses to start")
    assert end is not None
    if end.failure is not None:
        fate = Fate.FATAL if end.failure.is_full else Fate.EMPTIED
        ends = ": refuses to start" if end.failure.is_full else ""
        return _ended(fate, 0, base_offset, f"{path}: {end.failure.reason}{ends}")
    if end.is_cut and end.verdict.check_id in {"SEG-2", "SEG-3"}:
        return _split(checked)
    fate = Fate.CUT if end.is_cut else Fate.KEPT
    return _ended(fate, end.valid_bytes, end.next_offset)


def _split(checked: CheckedSegment) -> SegmentOutcome:
    """Split a segment as LocalLog.splitOverflowedSegment does, if possible."""
    path, base_offset = checked.files.log.path, checked.files.base_offset
    batches = _batches_of(checked)
    base, last = batches["base_offset"], batches["last_offset"]
    end_pos = int(batches["end_pos"][-1])

    def fatal(reason: str) -> SegmentOutcome:
        text = f"{path}: {reason}: refuses to start"
        return _ended(Fate.FATAL, 0, base_offset, text)

    if not (last >= base_offset).any() or int(last[-1]) - base_offset <= MAX_RELATIVE_OFFSET:
        wrong = int(base[np.flatnonzero((last < base_offset) | (last > _most(base_offset)))[0]])
        first = int(base[0])
        if first < base_offset:
            return fatal(f"its batches begin at offset {first}, not at {base_offset}")
        return fatal(f"offset {wrong} does not fit its base offset {base_offset}")
    if end_pos < checked.log_bytes:
        return fatal("its offsets need a split, and it does not end with a whole batch")
    start_pos = 0 if checked.range_bytes is None else checked.range_bytes[0]
    parts: list[CheckedSegment] = []
    row = 0
    while row < len(base):
        part_base = int(base[row])
        relative = last[row:] - part_base
        misfits = np.flatnonzero((relative < 0) | (relative > MAX_RELATIVE_OFFSET))
        stop = row + int(misfits[0]) if len(misfits) else len(base)
        if stop == row or part_base in {each.files.base_offset for each in parts}:
            return fatal(f"it cannot be split at offset {part_base}")
        begin, end = (int(batches["end_pos"][each - 1]) if each else 0 for each in (row, stop))
        parts.append(
            CheckedSegment(
                files=SegmentFiles(
                    base_offset=part_base,
                    log=checked.files.log,
                    offset_index=None,
                    time_index=None,
                    txn_index=None,
                    snapshot=None,
                ),
                log_bytes=end - begin,
                stop=None,
                end_offset=int(last[stop - 1]) + 1,
                is_doubtful=True,
                range_bytes=(start_pos + begin, start_pos + end),
            )
        )
        row = stop
    return SegmentOutcome(
        fate=Fate.SPLIT,
        valid_bytes=checked.log_bytes,
        end_offset=int(last[-1]) + 1,
        parts=tuple(sorted(parts, key=lambda each: each.files.base_offset)),
    )


def _most(base_offset: int) -> int:
    return base_offset + MAX_RELATIVE_OFFSET


def _batches_of(checked: CheckedSegment) -> dict[str, NDArray[np.int64]]:
    """Return the batch positions and offsets up to where a broker's reader stops."""
    with open_start_segment(checked) as segment:
        tables = list(segment.scan_tables(verify_crc=False, resume=False))
    return {
        "base_offset": np.concatenate([each.base_offset for each in tables]),
        "last_offset": np.concatenate([each.last_offset for each in tables]),
        "end_pos": np.concatenate([each.pos + each.batch_bytes for each in tables]),
    }
