"""Which runs are no batches of the log, but content of one whose header alone is damaged.

A value may hold whole batches (mirrors, dumps). Where the lengths of a log break, a search finds
those too. The checksum that is stored at the break still tells: if it holds for all from there up
to a later boundary, what was found between is content of that batch.

Cost. Bytes and boundaries are paid from one budget a segment; when it is spent, nothing is proven
any more, and what was found stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.repair.run_order import Run
from storage.checksum import load_crc32c
from storage.files.positioned_file import FileRange
from storage.formats.record_batch import CRC_POS, CRC_START_POS, HEADER_BYTES
from storage.kernels.protocol import HeaderTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.log.segment import Segment

PROOF_BYTES = 16 << 20  # how far a batch is followed whose header alone may be damaged
BUDGET_BYTES = 4 * PROOF_BYTES
BUDGET_PER_BYTE = 16
_BOUNDARY_BYTES = 1 << 10  # what looking at one boundary costs, in bytes of budget
_CHUNK_BYTES = 1 << 20


def without_content(
    segment: Segment, tables: Sequence[HeaderTable], start_pos: int
) -> Iterator[HeaderTable]:
    """Leave out batches that are content of a damaged one; the stretch begins at `start_pos`."""
    runs = [
        Run(
            start_pos=pos,
            end_pos=pos + size,
            base_offset=base_offset,
            last_offset=last_offset,
            batches_count=1,
        )
        for table in tables
        for pos, size, base_offset, last_offset in zip(
            table.pos.tolist(),
            table.batch_bytes.tolist(),
            table.base_offset.tolist(),
            table.last_offset.tolist(),
            strict=True,
        )
    ]
    kept = [each.start_pos for each in BatchContent(segment).left_out(runs, start_pos)]
    for table in tables:
        rows = np.isin(table.pos, kept)
        if rows.any():
            yield HeaderTable._make(column[rows] for column in table)


class BatchContent:
    """Tells runs from content of damaged batches; one for each segment."""

    def __init__(self, segment: Segment) -> None:
        self._file = segment.file
        self._log_bytes = segment.file_bytes
        self._budget_bytes = BUDGET_BYTES + BUDGET_PER_BYTE * self._log_bytes

    def left_out(self, runs: Sequence[Run], start_pos: int) -> list[Run]:
        """Leave out runs in a batch that is whole but for what its checksum does not cover.

        `runs` are by position, and those of a stretch that begins at `start_pos`.
        """
        kept: list[Run] = []
        place, pos = 0, start_pos
        while place < len(runs):
            run = runs[place]
            if run.start_pos > pos:
                inside_count = self._inside_count(pos, runs, place)
                if inside_count:
                    place += inside_count
                    pos = runs[place].start_pos if place < len(runs) else self._log_bytes
                    continue
            kept.append(run)
            pos = run.end_pos
            place += 1
        return kept

    def _inside_count(self, pos: int, runs: Sequence[Run], place: int) -> int:
        """How many of the runs from `place` on lie in the batch that begins at `pos`."""
        source = FileRange(self._file, min(self._log_bytes, pos + PROOF_BYTES))
        head = source.read(pos, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return 0
        wanted = int.from_bytes(head[CRC_POS : CRC_POS + 4], "big")
        checksum, value, at_pos = load_crc32c(), 0, pos + CRC_START_POS
        chunk, chunk_pos = memoryview(b""), at_pos
        for count, boundary in enumerate(self._boundaries(runs, place, source.end_pos), 1):
            self._budget_bytes -= _BOUNDARY_BYTES
            while at_pos < boundary:
                if at_pos == chunk_pos + len(chunk):
                    if self._budget_bytes <= 0:
                        return 0
                    chunk, chunk_pos = memoryview(source.read(at_pos, _CHUNK_BYTES)), at_pos
                    self._budget_bytes -= len(chunk)
                    hole = source.first_unreadable(at_pos, at_pos + len(chunk))
                    if hole is not None:
                        chunk = chunk[: max(hole.start_pos - at_pos, 0)]
                    if not chunk:
                        return 0
                part = chunk[at_pos - chunk_pos : boundary - chunk_pos]
                value = checksum(part, value)
                at_pos += len(part)
            if value == wanted:
                return count
        return 0

    def _boundaries(self, runs: Sequence[Run], place: int, end_pos: int) -> Iterator[int]:
        for number in range(place + 1, len(runs)):
            if runs[number].start_pos > end_pos:
                return
            yield runs[number].start_pos
        if self._log_bytes <= end_pos:
            yield self._log_bytes
