"""Transactions that are left at any point, as a process leaves them that dies there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from eoctl.change_options import ChangeOptions
from eoctl.clients.coordinators.log_dir_coordinator import Transactional, TransactionalOptions
from eoctl.clients.partitions.open_partition import OpenPartitions, WriteOptions
from eoctl.clients.partitions.target import TargetOptions
from eoctl.clock import resolve_now, wall_ms
from recovery.changes.append_journal import AppendJournal
from recovery.changes.apply import close_appends
from storage.files import fsio
from storage.files.broker_lock import take
from storage.writing.coordinator import TransactionCoordinator
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import BatchBuilder, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from storage.producers.transaction_metadata import Metadata


class DeadError(BaseException):
    """The process has died here."""


def open_partitions(log_dir: Path, journal: AppendJournal | None = None) -> OpenPartitions:
    """Partitions of a log dir to be written to, where nobody else does."""
    write = WriteOptions(flush=FlushPolicy.NEVER, change=ChangeOptions(apply=True))
    now = resolve_now("wall", [str(log_dir)])
    target = TargetOptions(single_copy=True)
    journal = journal or AppendJournal(fsio.FileSystem(), [str(log_dir)], "test")
    return OpenPartitions(str(log_dir), write, target, now, journal)


class Session:
    """A session of a transactional id, in a log dir whose lock is held."""

    def __init__(self, log_dir: Path, options: TransactionalOptions) -> None:
        close_appends(fsio.FileSystem(), [str(log_dir)])
        self.journal = AppendJournal(fsio.FileSystem(), [str(log_dir)], "test")
        self.partitions = open_partitions(log_dir, self.journal)
        self.transactional = Transactional(str(log_dir), None, self.partitions, options, wall_ms)

    def send(self, topic: str, partition: int, *values: bytes, base_sequence: int = 0) -> None:
        """Send one batch in the transaction."""
        self.transactional.add([(topic, partition)])
        builder = BatchBuilder()
        for value in values:
            builder.add(None, value, wall_ms())
        identity = ProducerIdentity(*self.transactional.producer, base_sequence=base_sequence)
        batch = builder.build(identity, is_transactional=True)
        self.partitions.writer(topic, partition).append(batch)

    def prepare(self, monkeypatch: pytest.MonkeyPatch, *, is_commit: bool) -> None:
        """Decide the transaction, and die before the first marker."""

        def die(self: TransactionCoordinator, prepared: Metadata) -> Metadata:
            raise DeadError

        with monkeypatch.context() as patched:
            patched.setattr(TransactionCoordinator, "_complete", die)
            try:
                self.transactional.end(is_commit=is_commit)
            except DeadError:
                return
        raise AssertionError("it was ended")


@contextmanager
def session(
    log_dir: Path,
    transactional_id: str,
    *,
    timeout_ms: int = 60_000,
    version: int | None = None,
    is_closed: bool = True,
) -> Iterator[Session]:
    """Begin a session under the lock of the log dir; without `is_closed` it dies at the end."""
    options = TransactionalOptions(transactional_id, timeout_ms, version=version)
    with take([str(log_dir)]):
        begun = Session(log_dir, options)
        yield begun
        if is_closed:
            error = begun.partitions.close()
            assert error is None, error
            begun.journal.close()
