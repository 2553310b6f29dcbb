"""A consumer that is given batches: what a copy reads of its source."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from eoctl.clients.log.batch_reader import BatchBlock, BatchReader, LogBatch
from eoctl.clients.log.consumer import TAIL_GRACE_S, Consumed, LogConsumer
from eoctl.clients.log.log_watch import LogWatch
from storage.checksum import crc32c
from storage.errors import RefusedError
from storage.formats.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.clients.log.bulk_records import IsHidden
    from eoctl.clients.log.consumer import ConsumeOptions
    from storage.formats.record_batch import BatchHeader

NEW_SESSION = "another --session begins a copy of its own, --from says where"


class BatchConsumer(LogConsumer[BatchBlock]):
    """Gives the batches of one partition, in passes over what is there.

    What was to be read and is gone is an error here: a copy would have a hole.
    """

    def __init__(self, path: str, options: ConsumeOptions, tell: Callable[[str], None]) -> None:
        """As `LogConsumer`."""
        super().__init__(path, options, tell)
        self._path = path
        self._watch = LogWatch(self.partition)
        self._tail_since_s: float | None = None

    def _new_reader(self, offset: int, is_hidden: IsHidden) -> BatchReader:
        return BatchReader(self.partition, offset, is_hidden=is_hidden)

    def _count(self, given: BatchBlock) -> BatchBlock:
        before = self.consumed
        if given.batches:
            first = before.first_offset
            if first is None:
                first = given.batches[0].header.base_offset
            self.consumed = Consumed(
                records=before.records + given.records_count,
                first_offset=first,
                last_offset=given.batches[-1].header.last_offset,
                next_offset=given.next_offset,
            )
        return given

    # --- passes ---

    def blocks(self) -> Iterator[BatchBlock]:
        """Give what is there by now, from where the last pass came to.

        Raises:
            DamageError, RefusedError, AccessError: what follows cannot be had.
        """
        assert self.reader is not None
        return self._pass(self.reader)

    def has_more(self) -> bool:
        """Look, without waiting, whether the log has changed, and take that in."""
        reader = self.reader
        assert reader is not None
        if not self._watch.has_changed():
            if not reader.tail:
                self._tail_since_s = None
            elif self._tail_since_s is None:
                self._tail_since_s = time.monotonic()
            elif time.monotonic() - self._tail_since_s > TAIL_GRACE_S:
                reader.finish()
            return False
        self._tail_since_s = None
        self._take_in(self._watch, reader)
        return True

    def finish(self) -> None:
        """Meet the damage at the end of the log, if there is any. Raises DamageError."""
        assert self.reader is not None
        self._look_behind(self.reader)
        self.reader.finish()

    def blocks_again(self, start_offset: int, end_offset: int) -> Iterator[Sequence[LogBatch]]:
        """Give the batches of a range once more, at the same isolation level."""
        is_hidden = self._is_hidden if self._is_committed else None
        reader = BatchReader(self.partition, start_offset, is_hidden=is_hidden)
        return (block.batches for block in reader.read(end_offset))

    # --- what must not have changed ---

    def require_batch(self, last_offset: int, digest: int) -> None:
        """Make sure that a batch that was copied is there as it was.

        What was deleted at the start of the log meanwhile is passed over.

        Args:
            last_offset: its last one.
            digest: as `records_digest` gave it.

        Raises:
            RefusedError: it is not.
        """
        log_end_offset = self.log_end_offset
        if log_end_offset <= last_offset:
            self._meet_truncation(last_offset + 1, log_end_offset)
        if last_offset < (self.partition.local_log_start_offset or 0):
            return
        found = self.partition.find_offset(last_offset)
        if found is not None and found.batch.header.last_offset == last_offset:
            with open_segment(found.files.log.path) as segment:
                data = segment.read_batch(found.batch)
            if records_digest(found.batch.header, data) == digest:
                return
        place = self._path
        if found is not None:
            place = f"{found.files.log.path}: position {found.batch.pos}"
        raise RefusedError(
            f"{place}: the batch that ends at offset {last_offset} is not the one that was copied:"
            " the source was truncated and written anew, or compacted, since",
            next_step=NEW_SESSION,
        )

    def _meet_truncation(self, offset: int, end_offset: int) -> None:
        raise RefusedError(
            f"{self._path}: was truncated to offset {end_offset}, and copied up to {offset}: the"
            " copy has records that the source has no more",
            next_step=NEW_SESSION,
        )

    def _meet_deletion(self, offset: int, first_offset: int) -> None:
        raise RefusedError(
            f"{self._path}: offsets {offset} to {first_offset - 1} were deleted before they were"
            f" copied: its log starts at {first_offset} now",
            next_step=NEW_SESSION,
        )

    def require_from(self, offset: int) -> None:
        """Make sure that what follows an offset was not deleted. Raises RefusedError."""
        first_offset = self.partition.local_log_start_offset or 0
        if offset < first_offset:
            self._meet_deletion(offset, first_offset)


def records_digest(header: BatchHeader, data: bytes | memoryview) -> int:
    """Digest the records of a batch, as bytes, without what a leader or a producer stamps."""
    start = HEADER_BYTES if header.magic >= MAGIC_V2 else LOG_OVERHEAD_BYTES
    return crc32c(memoryview(data)[start:])
