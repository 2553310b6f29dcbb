"""The identity of a run's producer, and its session: begun or found, updated, saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.clients.partitions.identity import EPOCHS_COUNT, Identities, choose_identity
from eoctl.clients.producing.produce_session import (
    DigestedInput,
    ProduceSession,
    digest_of,
    load_session,
    save_session,
)
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import RefusedError, UsageError
from storage.formats.record_batch import NO_PRODUCER_ID
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from eoctl.clients.partitions.open_partition import OpenPartition
    from eoctl.clients.producing.produce_session import Content, SessionPartition
    from eoctl.clients.producing.topic_producer import Transactions
    from recovery.changes.append_journal import AppendJournal


NEW_EPOCHS_VERSION = 2  # from this transaction version on, each transaction has its own epoch


def first_identities(
    opened: Sequence[OpenPartition],
    producer_ids: list[int],
    transactions: Transactions | None,
    *,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
) -> list[Identities]:
    """Return identities from the user's options and the producer's state in the partitions.

    Args:
        opened: the partitions.
        producer_ids: one id. The identities share the list.
        transactions: None without transactions.
        producer_epoch: None for the highest known epoch.
        base_sequence: None for the next sequence number of each partition.

    Raises:
        UsageError: the options contradict each other.
        RefusedError: the producer already has an open transaction, which this run would end.
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
            # This epoch has data, so the next transaction has the next epoch.
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
    """Return identities as a session began."""
    is_per_transaction = transactions is not None and transactions.version >= NEW_EPOCHS_VERSION
    return [
        Identities(
            ProducerIdentity(producer_ids[0], session.producer_epoch, each.base_sequence),
            producer_ids,
            is_per_transaction=is_per_transaction,
        )
        for each in session.partitions
    ]


# -- the session of one run: begun or found, updated during the run, saved each time


READ_BYTES = 1 << 20


class ProduceSessionKeeper:
    """The session at a path.

    Args:
        journal: of the run, which keeps the old file. None: nothing is written, as in a plan.
        path: of the file, outside of every log dir.
        arguments: of this run, see `ProduceSession`.
        producer_id, producer_epoch: given by the user.

    Attributes:
        session: None until it is begun.

    Raises:
        UsageError: there is no producer id.
        RefusedError: the file is in a log dir, or the session has another input.
        AccessError: it cannot be read.
    """

    def __init__(
        self,
        journal: AppendJournal | None,
        path: str,
        arguments: dict[str, Any],
        producer_id: int | None,
        producer_epoch: int | None,
    ) -> None:
        if producer_id == NO_PRODUCER_ID:
            raise UsageError(
                "--producer-session needs a producer id, because sequence numbers are the link",
                next_step="leave out --producer-id -1",
            )
        require_outside_log_dirs(path, "name a file elsewhere")
        self.path = path
        self._journal = journal
        self._arguments = arguments
        self._input: DigestedInput | None = None
        self.session = load_session(path)
        if self.session is None:
            return
        self.session.require_same(arguments, path)
        known_id = self.session.producer_ids[0]
        if producer_id not in (None, known_id):
            raise RefusedError(
                f"{path}: the session has producer id {known_id}, not {producer_id}",
                next_step="leave out --producer-id, or name another file for a new session",
            )
        known_epoch = self.session.producer_epoch
        if producer_epoch not in (None, known_epoch):
            raise RefusedError(
                f"{path}: the session has epoch {known_epoch}, not {producer_epoch}",
                next_step="leave out --producer-epoch, or name another file for a new session",
            )

    def begin(
        self,
        producer_ids: Sequence[int],
        producer_epoch: int,
        partitions: Sequence[SessionPartition],
    ) -> None:
        """Begin a session, before the first record is sent."""
        self._save(
            ProduceSession(
                arguments=self._arguments,
                producer_ids=tuple(producer_ids),
                producer_epoch=producer_epoch,
                partitions=tuple(partitions),
            )
        )

    @property
    def begun(self) -> ProduceSession:
        """The session that was found or begun."""
        if self.session is None:
            raise ValueError("the session has not begun")
        return self.session

    def _save(self, session: ProduceSession) -> None:
        self.session = session
        if self._journal is not None:
            self._journal.keep_session(self.path)
            save_session(self._journal.fs, self.path, session)

    def add_producer_ids(self, producer_ids: Sequence[int]) -> None:
        """Save the producer ids, before the last of them is used."""
        self._save(self.begun._replace(producer_ids=tuple(producer_ids)))

    def note_early_end(self, records_count: int) -> None:
        """Save that a transaction ends at the end of the input, which may grow."""
        if records_count not in self.begun.ends:
            self._save(self.begun._replace(ends=(*self.begun.ends, records_count)))

    def pass_over(self, input_pos: int) -> None:
        """Digest the input up to a position. The bytes before it are then not kept."""
        if self._input is not None:
            self._input.digest_at(input_pos)

    def note_sent(self, input_pos: int, last: Content, end_offsets: Sequence[int]) -> None:
        """Save that all records up to a position of the input were sent. It never decreases."""
        if self._input is None or input_pos <= self.begun.input_pos:
            return
        partitions = [
            known._replace(end_offset=end_offset)
            for known, end_offset in zip(self.begun.partitions, end_offsets, strict=True)
        ]
        digest = self._input.digest_at(input_pos)
        self._save(
            self.begun._replace(
                partitions=tuple(partitions),
                input_pos=input_pos,
                input_sha256=digest,
                last_sha256=digest_of(last),
            )
        )

    def checked_input(self, file: BinaryIO, name: str, end_offsets: Sequence[int]) -> DigestedInput:
        """Return the input, whose beginning must be the same.

        If a log lacks records that were sent, records would be sent before a change of the input is
        noticed. Then the input is checked first, if it can be read twice.

        Raises:
            RefusedError: the input has changed.
        """
        known = self.begun.input_pos, self.begun.input_sha256
        is_behind = any(
            end_offset < each.end_offset
            for end_offset, each in zip(end_offsets, self.begun.partitions, strict=True)
        )
        if is_behind and not file.seekable():
            raise RefusedError(
                f"{name}: a log has lost some records that the session had sent, and the input "
                "can be read only once. eoctl would learn too late whether it is the same",
                next_step="give the input as a file",
            )
        if is_behind:
            ahead, left_bytes = DigestedInput(file, name, *known), known[0]
            while left_bytes > 0:
                left_bytes -= len(ahead.read1(min(left_bytes, READ_BYTES)))
            file.seek(0)
        self._input = DigestedInput(file, name, *known)
        return self._input
