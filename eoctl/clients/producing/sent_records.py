"""What a log has of a producer: where it has come to, and the records to compare an input with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.clients.partitions.identity import EPOCHS_COUNT, NOWHERE, SEQUENCES_COUNT, LogPlace
from storage.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.clients.partitions.identity import Identities
    from eoctl.clients.text.inputs import InputRecord
    from storage.dirs.log_tail import LogTail
    from storage.dirs.partition import Partition
    from storage.log.segment import LogRecord
    from storage.writing.record_builder import ProducerIdentity

# Producer id, epoch and sequence number.
Sent = tuple[int, int, int]


def find_place(
    partition: Partition | None, tail: LogTail, identities: Identities, start_offset: int
) -> LogPlace:
    """Find how far a log has come with the records of a session that began at `start_offset`.

    The producer state tells; where it has forgotten the producer, the log itself does.

    Raises:
        RefusedError: neither does, since the log has lost its beginning.
    """
    place = identities.find_place(tail.producers, tail.end_offset - start_offset)
    if place != NOWHERE or tail.end_offset <= start_offset or partition is None:
        return place
    ids = identities.producer_ids
    log_start_offset = partition.local_log_start_offset or 0
    if log_start_offset > start_offset:
        raise RefusedError(
            f"{partition.path}: begins at {log_start_offset}, behind {start_offset} where the"
            f" session began, and does not know its producer {ids[0]}: what of the input it had"
            " cannot be told"
        )
    last: LogPlace = NOWHERE
    first = identities.first
    for placed in partition.read(start_offset, tail.end_offset):
        header = placed.batch.header
        if header.producer_id not in ids:
            continue
        if identities.is_per_transaction:
            number = ids.index(header.producer_id) * EPOCHS_COUNT + header.producer_epoch
            count = 0 if header.is_control else header.last_sequence + 1
            last = LogPlace(number - first.producer_epoch, count, is_open=not header.is_control)
        elif header.is_control:
            last = last._replace(is_open=False)
        else:
            # Not the sum of the records: compaction may have taken some.
            count = (header.last_sequence + 1 - first.base_sequence) % SEQUENCES_COUNT
            last = LogPlace(0, count, is_open=header.is_transactional)
    return last


def count_by_epoch(
    partition: Partition, producer_ids: list[int], start_offset: int, end_offset: int
) -> dict[tuple[int, int], int]:
    """Count the records that a log has by (producer id, epoch); compacted ones count, too.

    Without those that retention has taken: an epoch that is not there says nothing.
    """
    found: dict[tuple[int, int], int] = {}
    is_whole = (partition.local_log_start_offset or 0) <= start_offset
    wanted = set(producer_ids)
    for placed in partition.read(start_offset, end_offset):
        header = placed.batch.header
        if header.producer_id not in wanted:
            continue
        key = (header.producer_id, header.producer_epoch)
        if not header.is_control:
            found[key] = header.last_sequence + 1
        elif is_whole:
            # A marker has the epoch behind that of the data, which may have none.
            found.setdefault((header.producer_id, header.producer_epoch - 1), 0)
    return found


class SentRecords:
    """The records of a session in the log of one partition, in their order.

    Args:
        partition: to read.
        producer_ids: of the session.
        start_offset: where to begin.
        end_offset: where to end.
    """

    def __init__(
        self, partition: Partition, producer_ids: list[int], start_offset: int, end_offset: int
    ) -> None:
        self._ids = producer_ids
        self._records = self._read(partition, start_offset, end_offset)
        self._next: tuple[Sent, LogRecord] | None = None

    def _read(
        self, partition: Partition, start_offset: int, end_offset: int
    ) -> Iterator[tuple[Sent, LogRecord]]:
        for placed in partition.read(start_offset, end_offset):
            header = placed.batch.header
            if header.producer_id not in self._ids or header.is_control:
                continue
            for record in placed.segment.records(placed.batch):
                yield (header.producer_id, header.producer_epoch, record.sequence), record

    def differs(self, identity: ProducerIdentity, record: InputRecord) -> bool:
        """Whether the log has another record under that identity. One that compaction took: no."""
        wanted = (identity.producer_id, identity.producer_epoch, identity.base_sequence)
        while self._next is None or self._is_before(self._next[0], wanted):
            self._next = next(self._records, None)
            if self._next is None:
                return False
        found, logged = self._next
        return found == wanted and (logged.key, logged.value, logged.headers) != record.content

    def _is_before(self, found: Sent, wanted: Sent) -> bool:
        """Whether a record was sent before another one; sequence numbers wrap."""
        if found[:2] != wanted[:2]:
            ids = self._ids
            return (ids.index(found[0]), found[1]) < (ids.index(wanted[0]), wanted[1])
        return 0 < (wanted[2] - found[2]) % SEQUENCES_COUNT < SEQUENCES_COUNT // 2
