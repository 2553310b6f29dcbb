"""A producer's sender: batches to the leader, some of them at once, and again until acknowledged.

With idempotence the log then holds each record once and in order, whatever the link does:
  the leader answers a batch that is among the producer's last five, and does not write it again
  the leader refuses a batch that leaves a gap: OUT_OF_ORDER_SEQUENCE_NUMBER
  the sender repeats such a refused batch, unless all before it are acknowledged: then the gap is
      not of its making
  batches that wait to be sent again are in the order of their sequence numbers, and of them only
      the next one to be acknowledged is sent
  no batch is sent that is five or more after the oldest one without acknowledgement: that one
      might be in the log, and the leader must still know it
  the first batch is acknowledged before the second is sent: a leader that does not know a producer
      takes any sequence number for its first, and what was overtaken then would never fit
Without idempotence what is not acknowledged is sent again, blindly: what was in the log is there
twice, and what was overtaken stays behind.

Source: Sender, TransactionManager (canRetry, isNextSequence), RecordAccumulator
(insertInSequenceOrder, shouldStopDrainBatchesForPartition). One connection keeps answers in order
there, so an older batch without answer means that later ones have none; here answers are lost one
by one, and the limit of five says the same. Time does not pass: what was lost is noticed when
nothing else is on its way.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.producing.link import Fate, Link
from storage.errors import EXIT_ACCESS, EoctlError, UsageError
from storage.producers.producer_state import CACHED_BATCHES_COUNT, AppendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.clients.producing.link import Faults
    from storage.writing.writer import Appended

MAX_ATTEMPTS = 1000
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class SentBatch(NamedTuple):
    """A batch as it was given to the sender; `tag` is the caller's."""

    batch: bytes
    first_sequence: int
    records_count: int
    tag: Any


class SenderStats(NamedTuple):
    """What a sender and its link have done.

    `requests` counts what was sent, `retries` those among them that were not the first of their
    batch; `duplicates` are batches that the leader knew already.
    """

    requests: int
    drops: int
    reorders: int
    lost_acks: int
    retries: int
    duplicates: int


class DeliveryTimeoutError(EoctlError):
    """A batch was sent again and again, and never acknowledged (delivery.timeout.ms)."""

    exit_status = EXIT_ACCESS


class _Waiting:
    """A batch without acknowledgement; `number` counts the sender's batches."""

    __slots__ = ("attempts", "number", "sent")

    def __init__(self, number: int, sent: SentBatch) -> None:
        self.number = number
        self.sent = sent
        self.attempts = 0


_by_number = attrgetter("number")


class Sender:
    """Sends the batches of one producer to one partition.

    Args:
        append: the leader: `PartitionWriter.append`.
        in_flight: how many batches may be without acknowledgement
            (max.in.flight.requests.per.connection).
        faults: of the link; None: there is no link, and each batch is appended at once. Senders
            with equal seeds meet with equal faults.
        is_idempotent: the batches carry sequence numbers.
        on_ack: told of each batch once, when its acknowledgement arrives. If an earlier one was
            lost on its way, that is before the earlier batch.
    """

    def __init__(
        self,
        append: Callable[[bytes], Appended],
        *,
        in_flight: int,
        faults: Faults | None,
        is_idempotent: bool,
        on_ack: Callable[[SentBatch, Appended], None] | None = None,
    ) -> None:
        if not 1 <= in_flight <= CACHED_BATCHES_COUNT:
            raise UsageError(
                f"--in-flight {in_flight}: expected 1 to {CACHED_BATCHES_COUNT}, since that many"
                " batches of a producer are known to a broker"
            )
        self._append = append
        self._in_flight = in_flight
        self._is_idempotent = is_idempotent
        self._on_ack = on_ack
        self._link: Link[_Waiting] | None = None if faults is None else Link(faults)
        self._queue: list[_Waiting] = []  # to be sent, by number
        self._lost: list[_Waiting] = []  # nothing will come of them, which is not noticed yet
        self._unacknowledged: list[_Waiting] = []  # all of them, by number
        self._sent_count = 0
        self._is_known = False  # the leader has acknowledged a batch of this producer
        self._requests = self._retries = self._duplicates = 0

    @property
    def stats(self) -> SenderStats:
        """What was done so far."""
        link = self._link
        return SenderStats(
            requests=self._requests,
            drops=0 if link is None else link.drops,
            reorders=0 if link is None else link.reorders,
            lost_acks=0 if link is None else link.lost_acks,
            retries=self._retries,
            duplicates=self._duplicates,
        )

    def begin_producer(self) -> None:
        """Go on under another producer id, which the leader does not know; all is acknowledged."""
        self._is_known = False

    def send(self, batch: bytes, first_sequence: int, records_count: int, tag: Any = None) -> None:
        """Send a batch; returns when it is on its way, which may be before it is in the log.

        Raises:
            AppendError: what the leader answers to this or an earlier batch, and no repetition
                mends. All that is outstanding is forgotten, and may be in the log or not.
            DeliveryTimeoutError, AccessError: and here too.
        """
        sent = SentBatch(
            batch=batch, first_sequence=first_sequence, records_count=records_count, tag=tag
        )
        if self._link is None:
            self._requests += 1
            self._acknowledge(sent, self._append(batch))
            return
        waiting = _Waiting(self._sent_count, sent)
        self._sent_count += 1
        self._queue.append(waiting)
        self._unacknowledged.append(waiting)
        self._run(self._link, until_acknowledged=False)

    def flush(self) -> None:
        """Return when every batch is acknowledged.

        Raises:
            AppendError, DeliveryTimeoutError, AccessError: as `send`.
        """
        if self._link is not None:
            self._run(self._link, until_acknowledged=True)

    def _run(self, link: Link[_Waiting], *, until_acknowledged: bool) -> None:
        try:
            while True:
                self._transmit(link)
                if not self._queue and not (until_acknowledged and self._unacknowledged):
                    return
                if len(link):
                    self._deliver(link)
                else:
                    for waiting in self._lost:
                        insort(self._queue, waiting, key=_by_number)
                    self._lost.clear()
        except BaseException:
            link.clear()
            for each in (self._queue, self._lost, self._unacknowledged):
                each.clear()
            raise

    def _transmit(self, link: Link[_Waiting]) -> None:
        """Put on the link what may go, in order."""
        in_flight = self._in_flight if self._is_known or not self._is_idempotent else 1
        while self._queue:
            waiting = self._queue[0]
            next_number = self._unacknowledged[0].number
            if waiting.number >= next_number + in_flight:
                return
            if waiting.attempts and self._is_idempotent and waiting.number != next_number:
                return
            if waiting.attempts >= MAX_ATTEMPTS:
                raise DeliveryTimeoutError(
                    f"a batch was sent {MAX_ATTEMPTS} times and not acknowledged (sequence"
                    f" {waiting.sent.first_sequence}, {waiting.sent.records_count} records)",
                    next_step="--fault with less of drop and lost-ack",
                )
            del self._queue[0]
            self._retries += waiting.attempts > 0
            waiting.attempts += 1
            self._requests += 1
            link.put(waiting)

    def _deliver(self, link: Link[_Waiting]) -> None:
        """Let one request come to its end."""
        waiting, fate = link.take()
        if fate is Fate.DROPPED:
            self._lost.append(waiting)
            return
        answer: Appended | AppendError
        try:
            answer = self._append(waiting.sent.batch)
        except AppendError as exc:
            answer = exc.without_frames()
        if fate is Fate.ACK_LOST:
            self._lost.append(waiting)
        elif not isinstance(answer, AppendError):
            self._unacknowledged.remove(waiting)
            self._is_known = True
            self._acknowledge(waiting.sent, answer)
        elif self._is_mendable(waiting, answer):
            insort(self._queue, waiting, key=_by_number)
        else:
            raise answer

    def _is_mendable(self, waiting: _Waiting, answer: AppendError) -> bool:
        """Whether a batch was only too early."""
        return (
            self._is_idempotent
            and answer.kafka_error == OUT_OF_ORDER
            and waiting is not self._unacknowledged[0]
        )

    def _acknowledge(self, sent: SentBatch, appended: Appended) -> None:
        self._duplicates += appended.is_duplicate
        if self._on_ack is not None:
            self._on_ack(sent, appended)
