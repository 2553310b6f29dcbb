"""Transactions that hang, made in tests: the coordinator of an open one is made to forget it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.replay.snapshots import Clock
from storage.dirs.log_dir import read_log_dir
from storage.dirs.log_tail import NotClosedError
from storage.dirs.topic_settings import LogConfig
from storage.formats.transaction_state import TransactionStatus, encode_key, encode_value
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.writing import NoSyncFileSystem, open_writer, recover, tail_at

if TYPE_CHECKING:
    from pathlib import Path

    from storage.formats.transaction_state import TransactionState

CONFIG = LogConfig(index_interval_bytes=4096, index_max_bytes=16_384)


def newest_state(log_dir: Path, transactional_id: str) -> tuple[Path, TransactionState]:
    """The partition of `__transaction_state` that has an id, and its newest record."""
    record = CoordinatorLog([read_log_dir(log_dir)]).ids[transactional_id]
    assert record.state is not None
    return log_dir / f"__transaction_state-{record.partition}", record.state


def replace_state(log_dir: Path, transactional_id: str, **fields: object) -> None:
    """Append a record with other fields to the coordinator's log; no broker must be running."""
    directory, state = newest_state(log_dir, transactional_id)
    append_record(
        directory,
        encode_key(transactional_id),
        encode_value(state._replace(**fields)),  # type: ignore[arg-type]
        state.last_update_timestamp_ms + 1,
    )


def append_record(
    directory: Path,
    key: bytes,
    value: bytes | None,
    now_ms: int,
    identity: ProducerIdentity | None = None,
) -> None:
    """Append a record to a partition, which is closed afterwards; of a producer in a transaction."""
    try:
        tail = tail_at(directory, CONFIG)
    except NotClosedError:
        backups = directory.parent.parent / "state-backups"
        recover(directory, Clock(now_ms), 4096, NoSyncFileSystem(), backups)
        tail = tail_at(directory, CONFIG)
    builder = BatchBuilder(batch_bytes=2**31 - 1)
    builder.add(key, value, now_ms)
    writer = open_writer(
        directory, CONFIG, fs=NoSyncFileSystem(), leader_epoch=max(tail.last_leader_epoch, 0), tail=tail,
        now_ms=now_ms,
    )  # fmt: skip
    producer = identity or ProducerIdentity()
    writer.append(builder.build(producer, is_transactional=identity is not None))
    writer.close()


def forget(log_dir: Path, transactional_id: str) -> None:
    """Have the coordinator say that no transaction of the id is going on."""
    replace_state(
        log_dir,
        transactional_id,
        transaction_status=TransactionStatus.EMPTY,
        partitions=None,
        start_timestamp_ms=-1,
    )
