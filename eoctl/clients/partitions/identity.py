"""Who a producer is: id, epoch, sequence numbers, and how far of it the log has come.

Without transactions, and with those of transaction version 0 and 1, id and epoch stay and the
sequence numbers of a partition go on from batch to batch. With version 2 each transaction has an
epoch of its own, one above the last one, and sequence numbers begin at 0 again (TXN-7); behind
epoch 32766 comes the next producer id with epoch 0.

A place among the records that a producer sends to one partition is (transaction, count): the
number of records before it, with version 2 in that transaction, else since the beginning. Places
are compared with the log, which alone tells what has been written.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import UsageError
from storage.formats.producer_id_record import END_ID as LEASED_END_ID
from storage.formats.record_batch import MAX_SEQUENCE, NO_PRODUCER_ID, increment_sequence
from storage.producers.producer_state import MAX_PRODUCER_EPOCH
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.formats.producer_snapshot import ProducerEntry
    from storage.producers.producer_state import ProducerStateManager

# Brokers hand out producer ids from 0 up, in blocks. An id of theirs would one day be given to a
# client, whose first batches would then be taken for duplicates of ours and be dropped. Leased ids
# end where ours begin. All are below 2^53: what reads JSON numbers as floats (jq, JavaScript) loses
# digits above it.
OWN_IDS = range(LEASED_END_ID, LEASED_END_ID + 2**50)  # of a run without a session
SESSION_IDS = range(OWN_IDS.stop, OWN_IDS.stop + 2**50)
COPY_IDS = range(SESSION_IDS.stop, 2**53)

SEQUENCES_COUNT = MAX_SEQUENCE + 1
EPOCHS_COUNT = MAX_PRODUCER_EPOCH  # those of data: the last one is for a marker


def derived_ids(of: object, ids: range) -> Iterator[int]:
    """Give all of these ids, from one on that follows from something: a digest of its `repr`."""
    digest = hashlib.sha256(repr(of).encode()).digest()
    place = int.from_bytes(digest[:8], "big") * len(ids) >> 64
    yield from ids[place:]
    yield from ids[:place]


def derived_id(of: object, ids: range) -> int:
    """Return the first one of `derived_ids`."""
    return next(derived_ids(of, ids))


def run_ids(names: Iterable[str], end_offset: int) -> Iterator[int]:
    """Give ids for a run without a session; a plan and its run are given the same.

    Args:
        names: of the partitions that are written to.
        end_offset: the highest log end offset of them.
    """
    return derived_ids((sorted(names), end_offset), OWN_IDS)


def choose_identity(
    producers: ProducerStateManager,
    producer_id: int,
    *,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
) -> ProducerIdentity:
    """Complete what the user gave: a known producer goes on where the log has it.

    Raises:
        UsageError: an epoch or a sequence number without a producer id to have it.
    """
    if producer_id == NO_PRODUCER_ID:
        if producer_epoch is not None or base_sequence is not None:
            raise UsageError("without a producer id there is neither epoch nor sequence number")
        return ProducerIdentity()
    state = producers.producers.get(producer_id)
    if producer_epoch is None:
        producer_epoch = 0 if state is None else max(state.producer_epoch, 0)
    if base_sequence is None:
        base_sequence = 0
        if state is not None and state.producer_epoch == producer_epoch:
            last = state.last_sequence
            base_sequence = 0 if last == MAX_SEQUENCE else last + 1
    return ProducerIdentity(producer_id, producer_epoch, base_sequence)


def random_producer_ids() -> Iterator[int]:
    """Give ids for a session, or for a transactional id.

    Drawn, since they must be new also in a log that was cut or made anew.
    """
    while True:
        yield secrets.choice(SESSION_IDS)


class LogPlace(NamedTuple):
    """How far the log of one partition has come with a producer.

    Attributes:
        transaction, records: the first place that it does not have.
        is_open: a transaction of the producer has no marker there.
    """

    transaction: int
    records: int
    is_open: bool


NOWHERE = LogPlace(0, 0, is_open=False)


class Identities:
    """The identity of each record that a producer sends to one partition.

    Args:
        first: of the first record.
        producer_ids: that of `first`, and those that follow when all epochs of one are used up; the
            caller may append.
        is_per_transaction: each transaction has its own (transaction version 2).
    """

    def __init__(
        self,
        first: ProducerIdentity,
        producer_ids: list[int] | None = None,
        *,
        is_per_transaction: bool = False,
    ) -> None:
        self.first = first
        self.producer_ids = [first.producer_id] if producer_ids is None else producer_ids
        self.is_per_transaction = is_per_transaction

    def lacks_id(self, transaction: int) -> bool:
        """Whether one more id must be added to `producer_ids` before this transaction begins."""
        return self.is_per_transaction and self._split(transaction)[0] >= len(self.producer_ids)

    def begins_id(self, transaction: int) -> bool:
        """Whether a transaction is the first one under its producer id."""
        return self.is_per_transaction and self._split(transaction)[1] == 0

    def _split(self, transaction: int) -> tuple[int, int]:
        return divmod(self.first.producer_epoch + transaction, EPOCHS_COUNT)

    def at(self, transaction: int, count: int) -> ProducerIdentity:
        """Identity of a batch that begins at a place."""
        if not self.is_per_transaction:
            if self.first.base_sequence < 0:
                return self.first
            sequence = increment_sequence(self.first.base_sequence, count % SEQUENCES_COUNT)
            return ProducerIdentity(self.first.producer_id, self.first.producer_epoch, sequence)
        index, epoch = self._split(transaction)
        return ProducerIdentity(self.producer_ids[index], epoch, count)

    def find_place(self, entries: Iterable[ProducerEntry], appended_count: int) -> LogPlace:
        """Find how far the log has come.

        Args:
            entries: of the producer state at its end.
            appended_count: offsets that were given out since the producer began: with it, more than
                2^31 records are told from as many less.
        """
        found = NOWHERE
        for each in entries:
            if each.producer_id not in self.producer_ids:
                continue
            if self.is_per_transaction:
                index = self.producer_ids.index(each.producer_id)
                transaction = index * EPOCHS_COUNT + each.producer_epoch - self.first.producer_epoch
                count = each.last_sequence + 1 if each.has_batch else 0
            else:
                transaction, count = 0, 0
                if each.has_batch and each.producer_epoch == self.first.producer_epoch:
                    count = (each.last_sequence + 1 - self.first.base_sequence) % SEQUENCES_COUNT
                    count += max(appended_count - count, 0) // SEQUENCES_COUNT * SEQUENCES_COUNT
            is_open = each.current_txn_first_offset >= 0
            found = max(found, LogPlace(transaction, count, is_open=is_open))
        return found
