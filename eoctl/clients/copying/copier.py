"""A copier of one partition into another, and their comparison: a producer with a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.clients.copying.copied_batch import difference, equal_count, run_parts, stamp, stamp_run
from eoctl.clients.copying.resume import Destination, last_batch, resume
from eoctl.clients.copying.session import Anchor, CopySession, PartitionOf, own_id
from eoctl.clients.log.batch_reader import LeftOut, TableBatches
from eoctl.clients.log.consumer import StartKind
from eoctl.clients.partitions.identity import EPOCHS_COUNT
from eoctl.clients.partitions.target import read_topic_id
from storage.dirs.log_dir import PartitionDir
from storage.dirs.partition import Partition
from storage.errors import AccessError, RefusedError
from storage.formats.partition_metadata import format_uuid
from storage.formats.record_batch import increment_sequence
from storage.producers.producer_state import NO_EPOCH, AppendError
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from eoctl.clients.copying.resume import Resumed
    from eoctl.clients.copying.session import CopySessionKeeper, LastBatch
    from eoctl.clients.log.batch_reader import BatchBlock, BatchConsumer, LogBatch
    from eoctl.clients.log.consumer import ConsumeOptions
    from eoctl.clients.partitions.identity import OwnIds
    from eoctl.clients.partitions.open_partition import OpenPartition
    from storage.formats.record_batch import BatchHeader


# -- copies one partition into another: an idempotent producer of its own, with a session
#
# The producer id is the copier's own, because ids of the source belong to its cluster. It is
# derived from source and destination, so that a lost session can be found again in the log. Each
# batch of the source becomes one batch of the destination (`copied_batch`), whose offsets are
# dense.


ANCHOR_BYTES = 128 << 20  # of batches between two anchors, which is compared at most after a crash
MIN_RUN_BATCHES = 4  # fewer are not worth the overhead of a run


@dataclass(slots=True)
class Copied:
    """The totals of a run. Offsets are None if nothing was copied.

    Attributes:
        encoded_batches: batches that were not copied as bytes.
        left_out: batches and records of the source that were left out.
    """

    records: int = 0
    batches: int = 0
    bytes: int = 0
    encoded_batches: int = 0
    base_offset: int | None = None
    last_offset: int | None = None
    left_out: LeftOut = field(default_factory=LeftOut)


class Beginning(NamedTuple):
    """The beginning of a run in the source and in the destination."""

    source_offset: int
    end_offset: int


class Copier:
    """A copier of a partition that continues its session.

    Args:
        consumer: of the source.
        options: of the consumer.
        opened: the destination.
        keeper: of the session.
        producer_id: given by the user.
        own_ids: of the log dir of the destination, for a new copy.

    Attributes:
        resumed: the position at which the run continues.
        began: the same, for the comparison at the end.
        copied: totals of this run.
        source_offset: the first offset that is not copied.
        producer_id, producer_epoch: of this run. There is no epoch before its first batch.

    Raises:
        AppendError, RefusedError, UsageError: it cannot continue, or its position is unknown.
        DamageError, AccessError: source or destination cannot be read.
    """

    def __init__(
        self,
        consumer: BatchConsumer,
        options: ConsumeOptions,
        opened: OpenPartition,
        keeper: CopySessionKeeper,
        producer_id: int | None,
        own_ids: OwnIds,
    ) -> None:
        self.consumer = consumer
        self.opened = opened
        self.keeper = keeper
        self.copied = Copied()
        self._options = options
        self._source = PartitionOf.of(consumer.partition)
        self._destination = self._destination_of()
        self.producer_id, self._has_new_id = self._choose_id(producer_id, own_ids)
        self.producer_epoch = NO_EPOCH
        self.resumed = self._resume() if keeper.session is not None else self._begin()
        self.source_offset = self.resumed.source_offset
        self.began = Beginning(self.source_offset, opened.tail.end_offset)
        consumer.require_from(self.source_offset)
        if self.resumed.last is not None:
            self._require_unchanged(self.resumed.last)
        consumer.start(self.source_offset)
        self._last = self.resumed.last
        # Not in `_last` yet, as the batch exists only until the end of its block.
        self._last_sent: tuple[LogBatch, BatchHeader, int] | None = None
        self._sequence = 0
        self._anchored_bytes = 0

    # --- identity ---

    def _destination_of(self) -> PartitionOf:
        target = self.opened.target
        meta = None if target.log_dir is None else target.log_dir.meta
        topic_id = target.topic_id or read_topic_id(Path(target.path))
        return PartitionOf(
            cluster_id=None if meta is None else meta.cluster_id,
            topic_id=None if topic_id is None else format_uuid(topic_id),
            topic=target.name.topic,
            partition=target.name.partition,
        )

    def _choose_id(self, given: int | None, own_ids: OwnIds) -> tuple[int, bool]:
        """Choose the copier's producer id, and return whether it is new to the session."""
        session = self.keeper.session
        if session is None:
            if given is not None:
                return given, True
            ids = {each.producer_id for each in self.opened.tail.producers}
            path = self.opened.target.path
            return own_id(self._source, self._destination, ids, own_ids, path), True
        self._require_same(session)
        known = session.last_anchor
        if given in (None, known.producer_id):
            return known.producer_id, False
        if known.producer_epoch + 1 < EPOCHS_COUNT:
            raise RefusedError(
                f"{self.keeper.path}: the session has producer id {known.producer_id}, not {given}",
                next_step="leave out --producer-id, or name another --session",
            )
        assert given is not None
        return given, True

    def _require_same(self, session: CopySession) -> None:
        start = self._options.start
        pairs = [
            ("source", session.source, self._source),
            ("destination", session.destination, self._destination),
        ]
        for name, before, now in pairs:
            if before.is_other(now):
                raise RefusedError(
                    f"{self.keeper.path}: the session's {name} is {before}, not {now}",
                    next_step="name another --session",
                )
        isolation = str(self._options.isolation)
        if session.isolation != isolation:
            raise RefusedError(
                f"{self.keeper.path}: the session was begun with --isolation {session.isolation},"
                f" not {isolation}",
                next_step="give the same, or name another --session",
            )
        if start.kind is StartKind.OFFSET and start.number != session.start_offset:
            raise RefusedError(
                f"{self.keeper.path}: the session was begun at offset {session.start_offset}, not"
                f" {start.number}",
                next_step="leave out --from, or name another --session",
            )

    # --- position ---

    @property
    def _log(self) -> Destination:
        opened = self.opened
        target, tail = opened.target, opened.tail
        partition, cleaned_end_offset, flushed_end_offset = None, 0, 0
        if target.partition is not None:
            directory = target.partition.directory
            partition = Partition(directory, target.log_dir)
            if target.log_dir is not None:
                cleaned = target.log_dir.cleaner_offsets or {}
                cleaned_end_offset = cleaned.get(directory.topic_partition, 0)
                flushed_end_offset = target.log_dir.recovery_point(directory) or 0
        start_offset = None if partition is None else partition.local_log_start_offset
        epochs = {each.producer_id: each.producer_epoch for each in tail.producers}
        return Destination(
            path=target.path,
            partition=partition,
            start_offset=tail.end_offset if start_offset is None else start_offset,
            end_offset=tail.end_offset,
            cleaned_end_offset=cleaned_end_offset,
            flushed_end_offset=flushed_end_offset,
            epochs=epochs,
            has_own_times=opened.config.is_log_append_time,
        )

    def _resume(self) -> Resumed:
        log = self._log
        found = resume(self.keeper.begun, log, self.consumer)
        if self._has_new_id:
            self._require_unknown(log)
            found = found._replace(last_epoch=NO_EPOCH)
        return found

    def _require_unknown(self, log: Destination) -> None:
        if self.producer_id in log.epochs:
            raise RefusedError(
                f"{log.path}: knows producer id {self.producer_id} already, and the session does"
                " not",
                next_step="another --producer-id",
            )

    def _begin(self) -> Resumed:
        """Begin a session. If a session was lost, continue it if its position can be proved."""
        log = self._log
        start_offset = self.consumer.start()
        first = Anchor(start_offset, log.start_offset, self.producer_id)
        isolation = str(self._options.isolation)
        session = CopySession(
            source=self._source,
            destination=self._destination,
            isolation=isolation,
            start_offset=start_offset,
            anchors=(first,),
        )
        try:
            found = resume(session, log, self.consumer, is_lost=True)
        except RefusedError as exc:
            raise self._lost(log, exc.message) from exc
        is_known = self.producer_id in log.epochs
        if not found.verified_batches and not (is_known and log.start_offset):
            # The existing batches are not from the copier.
            found = found._replace(
                anchors=(first._replace(end_offset=log.end_offset),),
                last_epoch=log.epochs.get(self.producer_id, NO_EPOCH),
            )
        else:
            self._require_proof(log, start_offset)
        self.keeper.save(session._replace(anchors=found.anchors))
        return found

    def _require_proof(self, log: Destination, start_offset: int) -> None:
        """Refuse equal batches as a proof unless both logs are known from the copy's beginning."""
        if log.start_offset:
            what = f"its log starts at offset {log.start_offset}, and the records below are unknown"
            raise self._lost(log, what)
        if start_offset and self._options.start.kind is not StartKind.OFFSET:
            what = f"it is unknown whether the copy began at offset {start_offset} of the source"
            raise self._lost(log, what)

    def _lost(self, log: Destination, why: str) -> RefusedError:
        return RefusedError(
            f"{log.path}: producer {self.producer_id} of this copy has written to it, its session"
            f" {self.keeper.path} is not there, and how far it had come cannot be proved: {why}",
            next_step="--session FILE, if it is elsewhere; --from OFFSET says where it began;"
            " --producer-id ID copies all of it once more",
        )

    # --- copying ---

    def blocks(self) -> Iterator[BatchBlock]:
        """Return the present batches of the source, to be taken block by block.

        Raises:
            RefusedError, DamageError, AccessError: the next batches are not available.
        """
        return self.consumer.blocks()

    def take(self, block: BatchBlock) -> None:
        """Copy a block of batches.

        Raises:
            AppendError: the answer of a broker.
            RefusedError, FormatError, AccessError: the copy ends before a batch of the block.
        """
        if self.producer_epoch != NO_EPOCH:
            self.keeper.require_mine()
        batches = block.batches
        while isinstance(batches, TableBatches) and len(batches):
            batches = batches[self._send_some(batches) :]
        for each in batches:
            self._send(each)
        self.copied.left_out = self.copied.left_out.plus(block.left_out)
        self._last_batch()
        self.source_offset = block.next_offset
        if self.copied.bytes - self._anchored_bytes >= ANCHOR_BYTES:
            self._save_anchor()

    def _send_some(self, batches: TableBatches) -> int:
        """Send the first batch, or as many as can be sent at once. Return their number."""
        writer, count = self.opened.writer, 0
        if self.producer_epoch != NO_EPOCH and not self.opened.config.is_compacted:
            count = writer.room_for(run_parts(batches.table))
            count = batches[:count].joined_count if count >= MIN_RUN_BATCHES else 0
        if count < MIN_RUN_BATCHES:
            self._send(batches[0])
            return 1
        last = batches[count - 1]
        identity = ProducerIdentity(self.producer_id, self.producer_epoch, self._sequence)
        run = stamp_run(batches[:count], identity, writer.end_offset, writer.leader_epoch)
        writer.append_run(run)
        header = run.headers[-1]
        self._sent(last, header, header.last_offset)
        self._sequence = increment_sequence(header.last_sequence, 1)
        done = self.copied
        done.records += header.last_offset - run.headers[0].base_offset + 1
        done.batches += count
        done.bytes += len(run.data)
        return count

    def _sent(self, last: LogBatch, header: BatchHeader, last_offset: int) -> None:
        """Record the last batch that was sent, with its header and its last offset in the log."""
        self.source_offset = last.header.last_offset + 1
        self._last_sent = last, header, last_offset
        self.copied.last_offset = last_offset

    def _send(self, batch: LogBatch) -> None:
        if self.producer_epoch == NO_EPOCH:
            self._begin_epoch()
        writer, done = self.opened.writer, self.copied
        if self.opened.config.is_compacted:
            self._require_keys(batch)
        identity = ProducerIdentity(self.producer_id, self.producer_epoch, self._sequence)
        header, data = stamp(batch, identity)
        appended = writer.append_copy(header, data)
        self._sent(batch, header, appended.last_offset)
        count = batch.records_count
        self._sequence = increment_sequence(self._sequence, count)
        done.records += count
        done.batches += 1
        done.bytes += header.batch_bytes
        done.encoded_batches += batch.own_records is not None
        if done.base_offset is None:
            done.base_offset = appended.base_offset

    def _require_keys(self, batch: LogBatch) -> None:
        """Refuse a record without a key in a compacted topic (APP-3)."""
        for each in batch.records():
            if each.key is None:
                error = AppendError(
                    "INVALID_RECORD",
                    f"{self.opened.target.path}: is compacted, and the record at offset"
                    f" {each.offset} of the source has no key",
                    producer_id=self.producer_id,
                    offset=self.opened.writer.end_offset,
                )
                error.next_step = "copy it into a topic with cleanup.policy=delete"
                raise error

    # --- session ---

    def _begin_epoch(self) -> None:
        """Take an epoch that was never used, which fences every copier with an older epoch."""
        epoch = self.resumed.last_epoch + 1
        if epoch >= EPOCHS_COUNT:
            raise RefusedError(
                f"{self.keeper.path}: producer id {self.producer_id} has no epoch left. Each run"
                f" takes one, and there are {EPOCHS_COUNT}",
                next_step="--producer-id ID with one that the destination does not know",
            )
        self.producer_epoch = epoch
        session = self.keeper.begun._replace(anchors=self.resumed.anchors)
        self.keeper.save(session.with_anchor(self._anchor()))

    def _anchor(self) -> Anchor:
        return Anchor(
            source_offset=self.source_offset,
            end_offset=self.opened.writer.end_offset,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sequence=self._sequence,
            last=self._last_batch(),
        )

    def _last_batch(self) -> LastBatch | None:
        if self._last_sent is not None:
            original, header, last_offset = self._last_sent
            self._last, self._last_sent = last_batch(original, header, last_offset), None
        return self._last

    def _save_anchor(self, *, is_clean: bool = False) -> None:
        self._anchored_bytes = self.copied.bytes
        self.keeper.save(self.keeper.begun.with_anchor(self._anchor(), is_clean=is_clean))

    def has_more(self) -> bool:
        """Return whether the source has changed.

        It must still have the batches that were copied.
        """
        if not self.consumer.has_more():
            return False
        last = self._last_batch()
        if last is not None:
            self._require_unchanged(last)
        return True

    def _require_unchanged(self, last: LastBatch) -> None:
        self.consumer.require_batch(last.source_offset, last.source_digest)

    def close(self) -> None:
        """Close the destination, and save the position of the copy.

        Raises:
            AccessError, AppendError, RefusedError: the session is unchanged, and the log decides.
        """
        writer = self.opened.writer
        is_ready = writer.is_ready
        writer.close()
        if is_ready and self.producer_epoch != NO_EPOCH:
            self._save_anchor(is_clean=True)

    # --- after the copy ---

    @property
    def producer_ids(self) -> set[int]:
        """All producer ids of the session."""
        return {each.producer_id for each in self.keeper.begun.anchors}

    def closed_log(self) -> Destination:
        """Return the destination after it was closed."""
        opened, log = self.opened, self._log
        directory = PartitionDir(opened.target.path, opened.target.name)
        if not Path(directory.path).is_dir():  # nothing was written
            return log
        partition = Partition(directory, opened.target.log_dir)
        start_offset = partition.local_log_start_offset
        return log._replace(
            partition=partition,
            start_offset=log.start_offset if start_offset is None else start_offset,
            end_offset=opened.writer.end_offset,
        )

    def part(self, *, is_all: bool) -> CopiedRange:
        """Return the range of the source that this run has copied, or the whole session."""
        start = self.began
        if is_all:
            first = self.keeper.begun.anchors[0]
            start = Beginning(first.source_offset, first.end_offset)
        return CopiedRange(start.source_offset, self.source_offset, start.end_offset)


# -- comparison of the destination with the source: both logs are read again.
#
# Records with equal bytes are compared as bytes, many batches at a time, and other records one by
# one.


class ComparisonOutcome(StrEnum):
    """The outcome of a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # one of the logs has lost a part of the range


class CopyComparison(NamedTuple):
    """The result of a comparison: the equal `records` and `batches`, `words` about a difference."""

    outcome: ComparisonOutcome
    records: int = 0
    batches: int = 0
    words: str = ""


class CopiedRange(NamedTuple):
    """A half-open range of offsets of the source, and its start in the destination."""

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
        part: the range to compare.
        producer_ids: of the copier.

    Raises:
        DamageError, FormatError: one of the logs cannot be decoded.
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
    """Batches that are read in blocks.

    Attributes:
        block: the current block. After `fill` it is empty only at the end.
        place: of the next batch in the block.
    """

    def __init__(self, blocks: Iterable[Sequence[LogBatch]]) -> None:
        self._blocks = iter(blocks)
        self.block: Sequence[LogBatch] = ()
        self.place = 0

    def fill(self) -> None:
        """Take the next block if the current block is used up."""
        while self.place == len(self.block):
            block = next(self._blocks, None)
            self.block, self.place = block or (), 0
            if block is None:
                return

    @property
    def left_count(self) -> int:
        """The number of batches left in the block."""
        return len(self.block) - self.place

    @property
    def left(self) -> TableBatches | None:
        """The batches left in the block, if they are columns."""
        block = self.block
        return block[self.place :] if isinstance(block, TableBatches) else None


class _Comparison:
    """A comparison of both logs, step by step.

    Attributes:
        records, batches: equal so far.
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
        self._singles_count = 0  # number of batches to compare one by one

    def step(self) -> str | None:
        """Compare the next batches.

        Return the first difference, or None at the end of both logs.
        """
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
            return f"the destination has a batch at offset {offset} that the source lacks"
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
    """Leave out the batches of other producers."""
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
