"""Who a run writes as: one producer id and epoch in all partitions, a sequence number in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.clients.partitions.identity import EPOCHS_COUNT, Identities, choose_identity
from storage.errors import RefusedError, UsageError
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.clients.partitions.open_partition import OpenPartition
    from eoctl.clients.producing.produce_session import ProduceSession
    from eoctl.clients.producing.topic_producer import Transactions

NEW_EPOCHS_VERSION = 2  # from this transaction version on each transaction has its own epoch


def first_identities(
    opened: Sequence[OpenPartition],
    producer_ids: list[int],
    transactions: Transactions | None,
    *,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
) -> list[Identities]:
    """Begin as what the user gave, completed by what the partitions know of the producer.

    Args:
        opened: the partitions.
        producer_ids: one; the identities share the list.
        transactions: None: there are none.
        producer_epoch: None: the highest one known.
        base_sequence: None: what each partition expects.

    Raises:
        UsageError: they do not go together.
        RefusedError: a transaction of the producer is open already, which this run would end.
    """
    if transactions is not None:
        _require_no_open_transaction(opened, producer_ids[0])
    states = [each.writer.producers for each in opened]
    if producer_epoch is None and producer_ids[0] >= 0:
        known = [state.producers.get(producer_ids[0]) for state in states]
        producer_epoch = max((each.producer_epoch for each in known if each is not None), default=0)
        producer_epoch = max(producer_epoch, 0)
    firsts = [
        choose_identity(
            state, producer_ids[0], producer_epoch=producer_epoch, base_sequence=base_sequence
        )
        for state in states
    ]
    is_per_transaction = transactions is not None and transactions.version >= NEW_EPOCHS_VERSION
    if is_per_transaction:
        if any(each.base_sequence for each in firsts):
            # There is data of that epoch: the next transaction has the next one.
            firsts = [
                each._replace(producer_epoch=each.producer_epoch + 1, base_sequence=0)
                for each in firsts
            ]
        if firsts[0].producer_epoch >= EPOCHS_COUNT:
            raise UsageError(
                f"producer id {producer_ids[0]} has no epoch left for a transaction",
                next_step="another --producer-id, or none",
            )
    return [
        Identities(each, producer_ids, is_per_transaction=is_per_transaction) for each in firsts
    ]


def _require_no_open_transaction(opened: Sequence[OpenPartition], producer_id: int) -> None:
    for each in opened:
        state = each.writer.producers.producers.get(producer_id)
        if state is not None and state.current_txn_first_offset is not None:
            raise RefusedError(
                f"{each.target.path}: producer {producer_id} has a transaction open since offset"
                f" {state.current_txn_first_offset}, which this run would end with its own first",
                next_step="another --producer-id, or the --producer-session that began it",
            )


def session_identities(
    session: ProduceSession, producer_ids: list[int], transactions: Transactions | None
) -> list[Identities]:
    """Go on as a session began."""
    is_per_transaction = transactions is not None and transactions.version >= NEW_EPOCHS_VERSION
    return [
        Identities(
            ProducerIdentity(producer_ids[0], session.producer_epoch, each.base_sequence),
            producer_ids,
            is_per_transaction=is_per_transaction,
        )
        for each in session.partitions
    ]
