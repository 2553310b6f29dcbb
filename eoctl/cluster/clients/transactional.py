"""A transactional producer of a played cluster: begins, sends, commits or aborts (KIP-98, KIP-890).

It gives so many records to a transaction, waits until all are answered, and ends it; the next one
begins then. What has not been acknowledged aborts its transaction, as some are on purpose. One that
the coordinator does not let commit has failed: the producer begins a new session, with which all
that the old one may still have on its way is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.clients.producer import RETRY_BACKOFF_US, Producer
from eoctl.cluster.world.messages import CONCURRENT_TRANSACTIONS
from eoctl.cluster.world.scheduler import MS_US
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.cluster.clients.producer import FlyingBatch
    from eoctl.cluster.nodes.broker import Broker
    from eoctl.cluster.nodes.coordinator import PlayedCoordinator
    from eoctl.cluster.world.history import HistoryWriter
    from eoctl.cluster.world.network import Network
    from eoctl.cluster.world.scheduler import Scheduler
    from eoctl.cluster.world.settings import RunSettings
    from storage.file_names import TopicPartition
    from storage.producers.transaction_metadata import ProducerIdAndEpoch


class TransactionalProducer(Producer):
    """One producer whose records belong to transactions, each in one at a time."""

    transactional_id = "eoctl-producer-0"

    def __init__(
        self,
        settings: RunSettings,
        run_number: int,
        brokers: Mapping[int, Broker],
        keys: list[TopicPartition],
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
        coordinator: PlayedCoordinator,
    ) -> None:
        super().__init__(settings, run_number, brokers, keys, scheduler, network, history)
        self._coordinator = coordinator
        self._who: ProducerIdAndEpoch | None = None
        self._begun_count = 0
        self._first_number = 0  # of the records of this transaction
        self._is_open = False  # records may be given to it
        self._is_ending = False
        self._is_held = False  # a record was to be given meanwhile
        self._has_failed = False

    # -- its life

    def kill(self) -> None:
        """End it at once: nobody ends its transaction for it."""
        self._is_open = self._is_ending = self._is_held = False
        self._history_fields.clear()
        self._who = None
        super().kill()

    def restart(self) -> None:
        """Start after a kill, in a new session, which aborts what the one before has left."""
        self.incarnation += 1
        self.is_running = True
        if self._view is not None:  # else once it has learnt who leads
            self._ready()

    def _of_this_life(self, action: Callable[..., None]) -> Callable[..., None]:
        """What is not done any more once it was killed: an answer may reach who was started."""
        incarnation = self.incarnation

        def done(*given: object) -> None:
            if self.is_running and self.incarnation == incarnation:
                action(*given)

        return done

    def _later(self, action: Callable[[], None]) -> None:
        """Try again."""
        self._scheduler.after(RETRY_BACKOFF_US, self._of_this_life(action))

    # -- sessions

    def _ready(self) -> None:
        """Find out who it is, before it gives anything."""
        if not self.is_running:  # killed before it was told who leads
            return
        coordinator = self._coordinator
        self._network.send(
            self, coordinator, coordinator.init_producer_id, self, self.transactional_id,
            self._settings.transaction_timeout_ms, self._of_this_life(self._begun),
        )  # fmt: skip

    def _begun(self, error: str, who: ProducerIdAndEpoch | None) -> None:
        if error:
            assert error == CONCURRENT_TRANSACTIONS, error
            self._later(self._ready)
            return
        self._go_on(who)

    def _go_on(self, who: ProducerIdAndEpoch | None) -> None:
        """The transaction before is over; in the epoch that it has now all sequences begin anew."""
        assert who is not None
        is_first, self._who = self._who is None, who
        self._sequences = dict.fromkeys(self._sequences, 0)
        self._is_ending = False
        self._history_fields.clear()
        self._settle()
        if is_first or self._is_held:
            self._is_held = False
            self._next()

    def _identity(self, key: TopicPartition) -> ProducerIdentity:
        assert self._who is not None
        return ProducerIdentity(
            self._who.producer_id, self._who.producer_epoch, self._sequences[key]
        )

    # -- a transaction

    def _next(self) -> None:
        if self._is_ending:
            self._is_held = True
            return
        if not self._is_open and self._given_count < self._settings.records:
            self._begin_transaction()
        super()._next()
        if self._is_open:
            given = self._given_count - self._first_number
            is_full = given >= self._settings.transaction_records
            if is_full or self._has_failed or self._given_count >= self._settings.records:
                self._close()

    def _begin_transaction(self) -> None:
        self._begun_count += 1
        self._first_number = self._given_count
        self._is_open, self._has_failed = True, False
        self._history_fields["transaction"] = f"x{self._run_number}-{self._begun_count}"
        self._note("invoke", "begin")
        self._note("ok", "begin")

    def _end(
        self, number: int, key: TopicPartition, value: str, kind: str, **fields: object
    ) -> None:
        self._has_failed = self._has_failed or kind != "ok"
        super()._end(number, key, value, kind, **fields)
        if self._is_ending:
            self._end_if_answered()
        elif self._has_failed:
            self._close()

    def _close(self) -> None:
        """Take no more, and end it: what lingers goes out at once (RecordAccumulator.ready)."""
        for key in self._keys:
            self._send(key)
        if self._is_open:  # else what was sent has failed at once, and ended it
            self._is_open, self._is_ending = False, True
            self._end_if_answered()

    def _lingered(self, key: TopicPartition) -> None:
        """Send what has waited for long enough: it may be of a later transaction than the timer."""
        waiting = self._waiting[key]
        due_us = self._scheduler.now_us - self._settings.linger_ms * MS_US
        if waiting and waiting[0].at_us <= due_us:
            super()._lingered(key)

    def _settle(self) -> None:
        """Done is who has all answers, and no transaction."""
        self.is_done = False
        if not (self._is_open or self._is_ending):
            super()._settle()

    def _end_if_answered(self) -> None:
        if self.answered_count < self._given_count:
            return
        every = self._settings.abort_every
        is_on_purpose = bool(every) and self._begun_count % every == 0
        operation = "abort" if self._has_failed or is_on_purpose else "commit"
        self._note("invoke", operation)
        self._ask_end(operation)

    def _ask_end(self, operation: str) -> None:
        coordinator, who = self._coordinator, self._who

        def answered(error: str, who: ProducerIdAndEpoch | None) -> None:
            self._ended(operation, error, who)

        self._network.send(
            self, coordinator, coordinator.end_transaction, self, self.transactional_id, who,
            operation == "commit", self._of_this_life(answered),
        )  # fmt: skip

    def _ended(self, operation: str, error: str, who: ProducerIdAndEpoch | None) -> None:
        if error == CONCURRENT_TRANSACTIONS:
            self._later(lambda: self._ask_end(operation))
        elif error:
            # Whoever was refused to commit did not; whoever was refused to abort did not either.
            self._note("fail" if operation == "commit" else "info", operation, error=error)
            self._ready()
        else:
            self._note("ok", operation)
            self._go_on(who)

    def _note(self, kind: str, operation: str, **fields: object) -> None:
        # Beside the numbers of the records.
        number = self._settings.records + 2 * self._begun_count + (operation == "begin")
        self._history.note(
            kind, self.name, number, self._scheduler.now_us, operation,
            **fields, **self._history_fields,
        )  # fmt: skip

    # -- what is refused

    def _goes_on_after(self, batch: FlyingBatch) -> bool:
        """One before it is missing, and comes first; else what it follows is gone for good."""
        return self._flying[batch.key][0] is not batch

    def _give_up(self, key: TopicPartition) -> None:
        """The transaction is aborted, which raises the epoch: nothing is numbered anew before."""
        del key
