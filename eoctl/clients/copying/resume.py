"""Where a copy goes on: the log of the destination decides, and the source must bear it out.

  1  the latest anchor whose last batch is in the destination: what is behind a cut (a crash that
     took what was not synced, a truncation) is passed over, and an earlier anchor is taken
  2  what the producer has behind it, by the log alone: its state may have expired, since it lives
     by the times of the records. The sequences must go on from the anchor without a gap
  3  each of these batches must be the next one of the source, as bytes
Behind the last of them the copy goes on. Without a session file the first anchor is the beginning
of both logs: then all that the producer has written is compared.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.copying.copied_batch import difference
from eoctl.clients.copying.session import Anchor, CopySession, LastBatch, fenced
from eoctl.clients.log.batch_consumer import NEW_SESSION, records_digest
from eoctl.clients.log.batch_reader import BatchReader
from storage.dirs.lookup import find_end
from storage.errors import RefusedError, pasted
from storage.formats.record_batch import increment_sequence
from storage.limits import MAX_OFFSET
from storage.log.segment import open_segment
from storage.producers.producer_state import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eoctl.clients.log.batch_consumer import BatchConsumer
    from eoctl.clients.log.batch_reader import LogBatch
    from storage.dirs.partition import Partition
    from storage.formats.record_batch import BatchHeader


class Destination(NamedTuple):
    """What a copy has been written to so far.

    Attributes:
        path: of the directory.
        partition: as it is after its recovery; None if it is not there yet.
        start_offset, end_offset: of its log.
        cleaned_end_offset: below it a cleaner may have removed batches; 0: it has not.
        flushed_end_offset: below it all was synced, by a broker that noted it.
        epochs: by producer id, of the producer state at its end.
        has_own_times: its leader puts its own clock in place of the timestamps.
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
        """Give its data batches from an offset on, whosever they are."""
        if self.partition is not None and start_offset < self.end_offset:
            for block in BatchReader(self.partition, start_offset).read(self.end_offset):
                yield block.batches


class Resumed(NamedTuple):
    """Where a copy goes on.

    Attributes:
        anchors: those that hold.
        source_offset: the first one that is not copied.
        last: the last batch that is.
        last_epoch: the highest one that the last producer id has used.
        verified_batches, verified_records: compared with the source behind the last anchor.
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
    """Find where a copy goes on.

    Args:
        session: of the copy.
        destination: where it is.
        source: what it is a copy of.
        is_lost: the session is made up, since there is no file.

    Raises:
        AppendError: a later copier of the session was here.
        RefusedError: it cannot be proved, or one of the two logs was changed.
        DamageError, FormatError, AccessError: one of them cannot be read.
    """
    count = len(session.anchors)
    while count > 1 and not holds(session.anchors[count - 1], destination):
        count -= 1
    anchor = session.anchors[count - 1]
    if anchor.end_offset > destination.end_offset:  # the first one: all of the copy is gone
        anchor = anchor._replace(end_offset=destination.end_offset)
    is_proved = session.is_clean and count == len(session.anchors)
    if anchor.end_offset < destination.start_offset and not is_proved and not is_lost:
        raise RefusedError(
            f"{destination.path}: its log starts at offset {destination.start_offset}: what the"
            f" copy wrote from offset {anchor.end_offset} on may have been deleted, and how far it"
            " had come cannot be proved",
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
    """Is what was copied before the anchor still in the destination, as far as can be seen?

    What retention has deleted, or a cleaner, cannot be seen: where the last batch was is nothing.
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
    """Give the batches of the source from an anchor on, each with its copy, which was compared.

    Raises:
        AppendError, RefusedError: what comes next in the destination is not from this copy.
        DamageError, FormatError, AccessError: one of the two cannot be read.
    """
    return _Verified(session, anchor, destination, source, is_lost=False).pairs()


def _require_dense(destination: Destination, start_offset: int) -> None:
    """Make sure that no segment has lost its end while a later one is there.

    A crash may leave that of a log that was never synced, and no broker notices.
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
                f" {later.base_offset}: what was between them was lost in a crash",
                next_step=f"eoctl truncate {pasted(destination.path)} --to-offset {end_offset}"
                "   # with --apply, then the copy goes on from there",
            )


class _Verified:
    """Compares what the producer has behind an anchor with the source.

    Attributes:
        source_offset, last: behind the last batch that was compared.
        last_epoch: of it, or of the anchor.
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
        """Compare them all."""
        for _ in self.pairs():
            pass

    def pairs(self) -> Iterator[tuple[LogBatch, LogBatch]]:
        """Compare one after the other; gives each of the source with its copy.

        Both are there until the next pair is asked for.
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
        """The sequences go on; a new epoch begins at 0."""
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
                f"{self._source.partition.path}: its log starts at offset {log_start_offset} now:"
                f" what was copied from {self._anchor.source_offset} on can no more be compared",
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
    """Return what an anchor says of the last batch, as it was sent, and where it is."""
    return LastBatch(
        source_offset=original.header.last_offset,
        source_digest=records_digest(original.header, original.data),
        offset=last_offset,
        producer_id=sent.producer_id,
        producer_epoch=sent.producer_epoch,
        sequence=sent.last_sequence,
    )
