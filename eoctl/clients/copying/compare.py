"""Whether the destination has what the source has: read once more from both logs.

Where the bytes of the records are equal they are compared as bytes, many batches at a time, else
record by record.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.clients.copying.copied_batch import difference, equal_count
from eoctl.clients.log.batch_reader import TableBatches
from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from eoctl.clients.copying.resume import Destination
    from eoctl.clients.log.batch_consumer import BatchConsumer
    from eoctl.clients.log.batch_reader import LogBatch


class ComparisonOutcome(StrEnum):
    """How a comparison came out."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # one of the logs has lost what was to be compared


class CopyComparison(NamedTuple):
    """What was compared: `records` and `batches` are equal; `words` tell of what is not."""

    outcome: ComparisonOutcome
    records: int = 0
    batches: int = 0
    words: str = ""


class CopiedRange(NamedTuple):
    """Offsets of the source, half open, and where the destination has them."""

    start_offset: int
    end_offset: int
    copy_start_offset: int


def compare(
    source: BatchConsumer,
    destination: Destination,
    part: CopiedRange,
    producer_ids: Collection[int],
) -> CopyComparison:
    """Compare a part of the source with its copy.

    Args:
        source: at the isolation level of the copy.
        destination: closed.
        part: what is compared.
        producer_ids: of the copier.

    Raises:
        DamageError, FormatError: one of them does not decode.
    """
    source.partition.refresh()
    gone = _gone(source, destination, part)
    if gone:
        return CopyComparison(ComparisonOutcome.UNKNOWN, words=gone)
    originals = source.blocks_again(part.start_offset, part.end_offset)
    copies = _of_producers(destination.blocks(part.copy_start_offset), producer_ids)
    comparison = _Comparison(originals, copies, has_own_times=destination.has_own_times)
    words: str | None = ""
    try:
        while words == "":
            words = comparison.step()
        outcome = ComparisonOutcome.DIFFERENT if words else ComparisonOutcome.EQUAL
    except AccessError as exc:
        words, outcome = str(exc), ComparisonOutcome.UNKNOWN
    return CopyComparison(
        outcome=outcome, records=comparison.records, batches=comparison.batches, words=words or ""
    )


class _Blocks:
    """Batches that come in blocks.

    Attributes:
        block: the one at hand; after `fill` empty only at the end.
        place: in it, of the next batch.
    """

    def __init__(self, blocks: Iterable[Sequence[LogBatch]]) -> None:
        self._blocks = iter(blocks)
        self.block: Sequence[LogBatch] = ()
        self.place = 0

    def fill(self) -> None:
        """Take the next block if nothing is left of this one."""
        while self.place == len(self.block):
            block = next(self._blocks, None)
            self.block, self.place = block or (), 0
            if block is None:
                return

    @property
    def left_count(self) -> int:
        """How many batches are left of the block."""
        return len(self.block) - self.place

    @property
    def left(self) -> TableBatches | None:
        """Those that are left, if they are columns."""
        block = self.block
        return block[self.place :] if isinstance(block, TableBatches) else None


class _Comparison:
    """Goes through both logs.

    Attributes:
        records, batches: found equal so far.
    """

    def __init__(
        self,
        originals: Iterable[Sequence[LogBatch]],
        copies: Iterable[Sequence[LogBatch]],
        *,
        has_own_times: bool,
    ) -> None:
        self.records = self.batches = 0
        self._originals, self._copies = _Blocks(originals), _Blocks(copies)
        self._has_own_times = has_own_times
        self._singles_count = 0  # to be compared one by one

    def step(self) -> str | None:
        """Compare some more; tells of the first difference, None if nothing is left in either."""
        ours, theirs = self._originals, self._copies
        ours.fill()
        theirs.fill()
        if not ours.left_count and not theirs.left_count:
            return None
        count = 0
        if not self._singles_count:
            one, other = ours.left, theirs.left
            if one is not None and other is not None:
                count = equal_count(one, other, has_own_times=self._has_own_times)
                self.records += one[:count].records_count
            if not count:
                self._singles_count = max(min(ours.left_count, theirs.left_count), 1)
        if not count:
            words = self._compare_one()
            if words:
                return words
            count = 1
            self._singles_count -= 1
        self.batches += count
        ours.place += count
        theirs.place += count
        return ""

    def _compare_one(self) -> str:
        ours, theirs = self._originals, self._copies
        if not ours.left_count:
            offset = theirs.block[theirs.place].header.base_offset
            return f"the destination has a batch at offset {offset} that the source has not"
        original = ours.block[ours.place]
        if not theirs.left_count:
            offset = original.header.base_offset
            return f"the destination lacks the batch at offset {offset} of the source"
        copy = theirs.block[theirs.place]
        words = difference(original, copy, has_own_times=self._has_own_times)
        if words:
            return (
                f"{original.segment.path}: position {original.batch.pos}:"
                f" {copy.segment.path}: position {copy.batch.pos}: {words}"
            )
        self.records += original.records_count
        return ""


def _of_producers(
    blocks: Iterable[Sequence[LogBatch]], producer_ids: Collection[int]
) -> Iterator[Sequence[LogBatch]]:
    """Leave out what others have written."""
    ids = np.array(sorted(producer_ids), dtype=np.int64)
    for block in blocks:
        if isinstance(block, TableBatches):
            yield block.where(np.isin(block.table.producer_id, ids))
        else:
            yield [each for each in block if each.header.producer_id in producer_ids]


def _gone(source: BatchConsumer, destination: Destination, part: CopiedRange) -> str:
    log_start_offset = source.partition.local_log_start_offset or 0
    if part.start_offset < min(log_start_offset, part.end_offset):
        return f"the log of the source starts at offset {log_start_offset} now"
    if part.copy_start_offset < min(destination.start_offset, destination.end_offset):
        return f"the log of the destination starts at offset {destination.start_offset} now"
    return ""
