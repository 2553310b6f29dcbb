"""Where an offset of the source lies in a copy: the place of the first record from it on.

From the latest anchor at or below the offset both logs are gone through side by side, each batch
compared with its copy, up to the one with the offset: the copy's offsets are dense, and its batches
have the records of the source's in their order. What was proved so is exact.

Where it cannot be proved (the source was trimmed, the copy was, something else is in the place of
a copied batch), the answer is the end of what was proved, or the anchor: never a later place than
the true one. Records are read twice then, and none is passed over.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.copying.resume import Destination, holds, verified_pairs
from storage.errors import EoctlError
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.clients.copying.session import Anchor, CopySession
    from eoctl.clients.log.batch_consumer import BatchConsumer
    from eoctl.clients.log.batch_reader import LogBatch
    from storage.dirs.partition import Partition
    from storage.dirs.topic_settings import LogConfig


class Exactness(StrEnum):
    """How good an answer is."""

    EXACT = "exact"
    ROUNDED_DOWN = "rounded-down"  # records before it are read again
    BEGINS_LATER = "begins-later"  # the copy has not the first records that are wanted


class Translated(NamedTuple):
    """An offset in the copy; `reason`: why it is not exact.

    `is_doubtful`: something was in the way, other than that the copy has not come so far.
    """

    offset: int
    exactness: Exactness
    reason: str = ""
    is_doubtful: bool = False


def destination_of(partition: Partition, config: LogConfig) -> Destination:
    """What a copy is in, as it is on disk."""
    end, start_offset = partition.log_end(), partition.local_log_start_offset or 0
    directory, log_dir = partition.directory, partition.log_dir
    cleaned = {} if log_dir is None else log_dir.cleaner_offsets or {}
    flushed = None if log_dir is None else log_dir.recovery_point(directory)
    return Destination(
        path=partition.path,
        partition=partition,
        start_offset=start_offset,
        end_offset=start_offset if end is None else end.offset,
        cleaned_end_offset=cleaned.get(directory.topic_partition, 0),
        flushed_end_offset=flushed or 0,
        epochs={},
        has_own_times=config.is_log_append_time,
    )


def translate(
    session: CopySession,
    destination: Destination,
    source: BatchConsumer,
    offsets: Sequence[int],
) -> dict[int, Translated]:
    """Tell where each of these offsets lies in the copy. Reads only, and raises nothing for it.

    Args:
        session: of the copy.
        destination: where it is.
        source: what it is a copy of, at the isolation level of the copy.
        offsets: of the source.
    """
    first, *_ = session.anchors
    found: dict[int, Translated] = {}
    by_anchor: dict[Anchor, list[int]] = {}
    anchors = [each for each in session.anchors if holds(each, destination)] or [first]
    for offset in sorted({*offsets}):
        if offset < first.source_offset:
            found[offset] = Translated(
                max(first.end_offset, destination.start_offset),
                Exactness.BEGINS_LATER,
                f"the copy begins at offset {first.source_offset} of the source",
            )
            continue
        below = [each for each in anchors if each.source_offset <= offset]
        nearest = max(below, key=lambda each: each.source_offset, default=first)
        by_anchor.setdefault(nearest, []).append(offset)
    for anchor, wanted in by_anchor.items():
        found |= _from_anchor(session, anchor, destination, source, wanted)
    return found


def _from_anchor(
    session: CopySession,
    anchor: Anchor,
    destination: Destination,
    source: BatchConsumer,
    offsets: Sequence[int],
) -> dict[int, Translated]:
    """The same, for offsets from an anchor on, by size."""
    walk = _SideBySide(anchor, destination, source)
    why = ""
    if anchor.end_offset < destination.start_offset:
        why = f"the log of the copy starts at offset {destination.start_offset} now"
    elif anchor.source_offset < (source.partition.local_log_start_offset or 0):
        log_start_offset = source.partition.local_log_start_offset
        why = f"the log of the source starts at offset {log_start_offset} now"
    found: dict[int, Translated] = {}
    pairs = iter(()) if why else verified_pairs(session, anchor, destination, source)
    for offset in offsets:
        try:
            place = None if why else walk.find(pairs, offset)
            if place is not None:
                found[offset] = Translated(place, Exactness.EXACT)
                continue
            lacking = "" if why else walk.what_follows(offset)
        except (EoctlError, OSError) as exc:
            why = str(exc)
        place = max(walk.end_offset, destination.start_offset)
        if why:
            found[offset] = Translated(place, Exactness.ROUNDED_DOWN, why, is_doubtful=True)
        elif lacking:
            found[offset] = Translated(place, Exactness.ROUNDED_DOWN, lacking)
        else:
            found[offset] = Translated(place, Exactness.EXACT)
    return found


class _SideBySide:
    """Goes on from an anchor, for one offset after the other.

    Attributes:
        end_offset: behind the last copied batch that was passed.
        source_offset: the same, in the source.
    """

    def __init__(self, anchor: Anchor, destination: Destination, source: BatchConsumer) -> None:
        self.end_offset = min(anchor.end_offset, destination.end_offset)
        self.source_offset = anchor.source_offset
        self._source = source
        self._pair: tuple[LogBatch, LogBatch] | None = None

    def find(self, pairs: Iterator[tuple[LogBatch, LogBatch]], offset: int) -> int | None:
        """Return the place of the first record from an offset on; None: it is not copied yet."""
        while True:
            if self._pair is None:
                self._pair = next(pairs, None)
                if self._pair is None:
                    return None
            original, copy = self._pair
            if original.header.last_offset >= offset:
                index = _records_below(original, offset)
                if index < original.records_count:
                    return copy.header.base_offset + index
            self.end_offset = copy.header.last_offset + 1
            self.source_offset = original.header.last_offset + 1
            self._pair = None

    def what_follows(self, offset: int) -> str:
        """Tell which records below an offset the source has and the copy has not; "": none."""
        log_end_offset = self._source.log_end_offset
        if offset > log_end_offset:
            return f"the log of the source ends at offset {log_end_offset}"
        blocks = self._source.blocks_again(self.source_offset, MAX_OFFSET)
        following = next(chain.from_iterable(blocks), None)
        if following is None or not _records_below(following, offset):
            return ""
        return f"the copy has come to offset {self.source_offset} of the source"


def _records_below(batch: LogBatch, offset: int) -> int:
    """How many records of a batch lie below an offset; those of a client are dense."""
    if batch.own_records is None:
        return max(offset - batch.header.base_offset, 0)
    return sum(each.offset < offset for each in batch.own_records)
