"""The position at which a copy continues: the destination's log decides, the source must match.

1. Take the latest anchor whose last batch is in the destination. If the log was truncated, or a
   crash took batches that were not synced, take an earlier anchor.
2. Read the producer's batches after the anchor from the log alone. Its state may have expired,
   because it expires by the records' timestamps. The sequences must continue from the anchor
   without a gap.
3. Each of these batches must be the next batch of the source, as bytes.

The copy continues after the last of them. Without a session file the first anchor is the beginning
of both logs. Then all batches of the producer are compared.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.copying.copied_batch import difference
from eoctl.clients.copying.session import Anchor, CopySession, LastBatch, fenced
from eoctl.clients.log.batch_reader import NEW_SESSION, BatchReader, records_digest
from storage.dirs.lookup import find_end
from storage.errors import EoctlError, RefusedError, pasted
from storage.formats.record_batch import increment_sequence
from storage.limits import MAX_OFFSET
from storage.log.segment import open_segment
from storage.producers.producer_state import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eoctl.clients.log.batch_reader import BatchConsumer, LogBatch
    from storage.dirs.partition import Partition
    from storage.dirs.topic_settings import LogConfig
    from storage.formats.record_batch import BatchHeader


class Destination(NamedTuple):
    """The current destination of a copy.

    Attributes:
        path: of the directory.
        partition: as it is after its recovery, None if it does not exist yet.
        start_offset, end_offset: of its log.
        cleaned_end_offset: a cleaner may have removed batches below it. 0: no cleaner has run.
        flushed_end_offset: a broker has noted that all offsets below it were synced.
        epochs: by producer id, from the producer state at its end.
        has_own_times: its leader sets its own time instead of the timestamps.
    """

    path: str
    partition: Partition | None
    start_offset: int
    end_offset: int
    cleaned_end_offset: int
    flushed_end_offset: int
    epochs: Mapping[int, int]
    has_own_times: bool

    def blocks(self, start_offset: int) -> Iterator[Sequence[LogBatch]]:
        """Yield its data batches from an offset on, of all producers."""
        if self.partition is not None and start_offset < self.end_offset:
            for block in BatchReader(self.partition, start_offset).read(self.end_offset):
                yield block.batches


class Resumed(NamedTuple):
    """The position at which a copy continues.

    Attributes:
        anchors: the anchors that are valid.
        source_offset: the first offset that is not copied.
        last: the last batch that was copied.
        last_epoch: the highest epoch of the last producer id.
        verified_batches, verified_records: compared with the source after the last anchor.
    """

    anchors: tuple[Anchor, ...]
    source_offset: int
    last: LastBatch | None
    last_epoch: int
    verified_batches: int
    verified_records: int


def resume(
    session: CopySession, destination: Destination, source: BatchConsumer, *, is_lost: bool = False
) -> Resumed:
    """Find the position at which a copy continues.

    Args:
        session: of the copy.
        destination: of the copy.
        source: of the copy.
        is_lost: the session was made here, because there is no file.

    Raises:
        AppendError: a later copier has continued the session.
        RefusedError: the position cannot be proved, or one of the logs was changed.
        DamageError, FormatError, AccessError: one of the logs cannot be read.
    """
    count = len(session.anchors)
    while count > 1 and not holds(session.anchors[count - 1], destination):
        count -= 1
    anchor = session.anchors[count - 1]
    if anchor.end_offset > destination.end_offset:  # the first anchor: the whole copy is lost
        anchor = anchor._replace(end_offset=destination.end_offset)
    is_proved = session.is_clean and count == len(session.anchors)
    if anchor.end_offset < destination.start_offset and not is_proved and not is_lost:
        raise RefusedError(
            f"{destination.path}: its log starts at offset {destination.start_offset}. Records that"
            f" the copy wrote from offset {anchor.end_offset} on may have been deleted, and how far"
            " it had come cannot be proved",
            next_step=NEW_SESSION,
        )
    _require_dense(destination, session.anchors[0].end_offset)
    found = _Verified(session, anchor, destination, source, is_lost=is_lost)
    found.run()
    epochs = [found.last_epoch, destination.epochs.get(session.last_anchor.producer_id, NO_EPOCH)]
    highest = max(epochs)
    if not is_lost and highest > session.last_anchor.producer_epoch:
        raise fenced(
            destination.path,
            session.last_anchor.producer_id,
            session.last_anchor.producer_epoch,
            anchor._replace(producer_epoch=highest),
        )
    return Resumed(
        anchors=(*session.anchors[: count - 1], anchor),
        source_offset=found.source_offset,
        last=found.last,
        last_epoch=max(highest, session.last_anchor.producer_epoch),
        verified_batches=found.batches_count,
        verified_records=found.records_count,
    )


def holds(anchor: Anchor, destination: Destination) -> bool:
    """Return whether the destination still has the batches before the anchor, if this can be seen.

    If retention or a cleaner has removed the last batch, the anchor counts as valid.
    """
    if anchor.end_offset > destination.end_offset:
        return False
    last, partition = anchor.last, destination.partition
    if last is None or last.offset < destination.start_offset:
        return True
    found = None if partition is None else partition.find_offset(last.offset)
    if found is None:
        return False
    header = found.batch.header
    if header.base_offset > last.offset:
        return last.offset < destination.cleaned_end_offset
    identity = (header.producer_id, header.producer_epoch, header.last_sequence)
    return identity == (last.producer_id, last.producer_epoch, last.sequence)


def verified_pairs(
    session: CopySession, anchor: Anchor, destination: Destination, source: BatchConsumer
) -> Iterator[tuple[LogBatch, LogBatch]]:
    """Yield the batches of the source from an anchor on, each with its copy, which was compared.

    Raises:
        AppendError, RefusedError: the next batch of the destination is not from this copy.
        DamageError, FormatError, AccessError: one of the logs cannot be read.
    """
    return _Verified(session, anchor, destination, source, is_lost=False).pairs()


def _require_dense(destination: Destination, start_offset: int) -> None:
    """Refuse a log if a segment has lost its end and a later segment exists.

    A crash may do that to a log that was never synced, and no broker notices.
    """
    partition = destination.partition
    if partition is None:
        return
    known_offset = max(start_offset, destination.flushed_end_offset, destination.cleaned_end_offset)
    for files, later in pairwise(partition.segments):
        if later.base_offset <= known_offset:
            continue
        with open_segment(files.log.path) as segment:
            found = find_end(segment, partition.index_entries(files), is_active=False)
        end_offset = files.base_offset
        if found.last is not None:
            end_offset = found.last.header.last_offset + 1
        if end_offset < later.base_offset:
            raise RefusedError(
                f"{files.log.path}: ends at offset {end_offset}, and the next segment begins at"
                f" {later.base_offset}. A crash lost the records between them",
                next_step=f"eoctl truncate {pasted(destination.path)} --to-offset {end_offset}"
                "   # with --apply, then the copy goes on from there",
            )


class _Verified:
    """A comparison of the producer's batches after an anchor with the source.

    Attributes:
        source_offset, last: position after the last compared batch, and that batch.
        last_epoch: the highest epoch of the last producer id.
        batches_count, records_count: compared so far.
    """

    def __init__(
        self,
        session: CopySession,
        anchor: Anchor,
        destination: Destination,
        source: BatchConsumer,
        *,
        is_lost: bool,
    ) -> None:
        self.source_offset = anchor.source_offset
        self.last = anchor.last
        self.last_epoch = NO_EPOCH
        self.batches_count = self.records_count = 0
        self._session = session
        self._anchor = anchor
        self._destination = destination
        self._source = source
        self._is_lost = is_lost
        self._expected = (anchor.producer_id, anchor.producer_epoch, anchor.sequence)

    def run(self) -> None:
        """Compare all batches."""
        for _ in self.pairs():
            pass

    def pairs(self) -> Iterator[tuple[LogBatch, LogBatch]]:
        """Yield each batch of the source with its copy, after comparing them.

        Both exist until the next pair is requested.
        """
        anchor = self._anchor
        ids = {each.producer_id for each in self._session.anchors}
        copies = chain.from_iterable(self._destination.blocks(anchor.end_offset))
        blocks = self._source.blocks_again(anchor.source_offset, MAX_OFFSET)
        originals = chain.from_iterable(blocks)
        is_first = True
        for copy in copies:
            if copy.header.producer_id not in ids:
                continue
            self._require_next(copy)
            if is_first:
                self._require_source()
            original = next(originals, None)
            if original is None:
                raise self._refusal(copy, "the source has nothing in its place")
            words = difference(original, copy, has_own_times=self._destination.has_own_times)
            if words:
                raise self._refusal(copy, f"the source has something else: {words}")
            is_first = False
            self.source_offset = original.header.last_offset + 1
            self.last = last_batch(original, copy.header, copy.header.last_offset)
            self.batches_count += 1
            self.records_count += original.records_count
            yield original, copy

    def _require_next(self, copy: LogBatch) -> None:
        """Require that the sequences continue, or that a new epoch begins at 0."""
        header = copy.header
        producer_id, epoch, sequence = self._expected
        is_same = (header.producer_id, header.producer_epoch) == (producer_id, epoch)
        if header.base_sequence != (sequence if is_same else 0):
            raise self._refusal(copy, "batches of the copy before it are missing")
        after = increment_sequence(header.base_sequence, header.last_offset_delta + 1)
        self._expected = (header.producer_id, header.producer_epoch, after)
        if header.producer_id == self._session.last_anchor.producer_id:
            self.last_epoch = max(self.last_epoch, header.producer_epoch)
            known = self._session.last_anchor.producer_epoch
            if header.producer_epoch > known and not self._is_lost:
                later = self._anchor._replace(producer_epoch=header.producer_epoch)
                raise fenced(self._destination.path, header.producer_id, known, later)

    def _require_source(self) -> None:
        log_start_offset = self._source.partition.local_log_start_offset or 0
        if self._anchor.source_offset < log_start_offset:
            raise RefusedError(
                f"{self._source.partition.path}: its log starts at offset {log_start_offset} now."
                f" The copy from {self._anchor.source_offset} on can no more be compared",
                next_step=NEW_SESSION,
            )

    def _refusal(self, copy: LogBatch, what: str) -> RefusedError:
        header = copy.header
        return RefusedError(
            f"{copy.segment.path}: position {copy.batch.pos}: the batch of producer"
            f" {header.producer_id} at offset {header.base_offset} is not from this copy of"
            f" {self._source.partition.path}: {what}",
            next_step=NEW_SESSION,
        )


def last_batch(original: LogBatch, sent: BatchHeader, last_offset: int) -> LastBatch:
    """Return an anchor's entry about the last batch, as it was sent, and its position."""
    return LastBatch(
        source_offset=original.header.last_offset,
        source_digest=records_digest(original.header, original.data),
        offset=last_offset,
        producer_id=sent.producer_id,
        producer_epoch=sent.producer_epoch,
        sequence=sent.last_sequence,
    )


# -- an offset of the source in a copy: the place of the first record from it on.
#
# Both logs are walked side by side, from the latest anchor at or below the offset to its batch.
# Each batch is compared with its copy. The copy's offsets are dense, and its batches have the
# records of the source's batches in their order. A place found this way is exact.
#
# A proof may be impossible because one log has lost its start or has another batch instead of a
# copied batch. Then the answer is the end of the proved part, or the anchor. It is never after the
# true place, so records are read twice but never skipped.


class Exactness(StrEnum):
    """The precision of an answer."""

    EXACT = "exact"
    ROUNDED_DOWN = "rounded-down"  # consumers read some records before it again
    BEGINS_LATER = "begins-later"  # the copy does not have the first records


class Translated(NamedTuple):
    """An offset in the copy. `reason`: cause of an inexact offset.

    `is_doubtful`: the cause is a problem, not only the progress of the copy.
    """

    offset: int
    exactness: Exactness
    reason: str = ""
    is_doubtful: bool = False


def destination_of(partition: Partition, config: LogConfig) -> Destination:
    """Return the destination of a copy, as it is on disk."""
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


def translate_offset(
    session: CopySession,
    destination: Destination,
    source: BatchConsumer,
    offsets: Sequence[int],
) -> dict[int, Translated]:
    """Return the place of each offset in the copy.

    Reads only. Damage becomes a reason, not an error.

    Args:
        session: of the copy.
        destination: of the copy.
        source: of the copy, at the isolation level of the copy.
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
    """Return the places of sorted offsets from an anchor on."""
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
    """A walk of both logs from an anchor, for one offset after the other.

    Attributes:
        end_offset: after the last passed batch of the copy.
        source_offset: the same, in the source.
    """

    def __init__(self, anchor: Anchor, destination: Destination, source: BatchConsumer) -> None:
        self.end_offset = min(anchor.end_offset, destination.end_offset)
        self.source_offset = anchor.source_offset
        self._source = source
        self._pair: tuple[LogBatch, LogBatch] | None = None

    def find(self, pairs: Iterator[tuple[LogBatch, LogBatch]], offset: int) -> int | None:
        """Return the place of the first record from an offset on, None if it is not copied yet."""
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
        """Return why the copy lacks records below an offset, "" if it lacks none."""
        log_end_offset = self._source.log_end_offset
        if offset > log_end_offset:
            return f"the log of the source ends at offset {log_end_offset}"
        blocks = self._source.blocks_again(self.source_offset, MAX_OFFSET)
        following = next(chain.from_iterable(blocks), None)
        if following is None or not _records_below(following, offset):
            return ""
        return f"the copy has come to offset {self.source_offset} of the source"


def _records_below(batch: LogBatch, offset: int) -> int:
    """Return how many records of a batch are below an offset. A client's records are dense."""
    if batch.own_records is None:
        return max(offset - batch.header.base_offset, 0)
    return sum(each.offset < offset for each in batch.own_records)
