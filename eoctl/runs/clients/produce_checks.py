"""What is looked at before `eoctl produce` touches anything, and what a session must find again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.clients.producing.session_keeper import NEW_EPOCHS_VERSION
from eoctl.clients.text.inputs import InputFormat
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clients.producing.topic_producer import ProduceOptions
    from storage.files.fsio import FileSystem


def check_call(input_name: str, options: ProduceOptions, paths: Sequence[str]) -> None:
    """Refuse what makes no sense, before anything is touched.

    Raises:
        UsageError: options contradict each other, or one file is named for two things.
    """
    if options.input_format is not InputFormat.LINES and options.key_separator is not None:
        raise UsageError("--key-separator is for lines: other formats have a field for the key")
    if options.timestamp_ms is not None and options.timestamp_ms < 0:
        raise UsageError(f"--timestamp: {options.timestamp_ms} ms is before 1970")
    transactions = options.transactions
    if options.transactional is not None:
        _check_transactional(options)
    if options.lease is not None and options.producer_id is not None:
        raise UsageError("--lease and --producer-id: the lease says which id it is")
    has_epochs = transactions is not None and transactions.version >= NEW_EPOCHS_VERSION
    if options.lease is not None and has_epochs:
        raise UsageError(
            "--lease: the generation is the epoch, and each transaction would take another one",
            next_step="--transaction-version 1",
        )
    if options.base_sequence and has_epochs:
        raise UsageError("--base-sequence: with transaction version 2 all begin at 0")
    named = {"--acks-to": options.acks_to, "--producer-session": options.session}
    if input_name != "-":
        named["FILE"] = input_name
        place = os.path.realpath(input_name)
        if any(Path(place).is_relative_to(os.path.realpath(each)) for each in paths):
            raise UsageError(f"{input_name}: lies in the directory that is written to")
    seen: dict[str, str] = {}
    for option, path in named.items():
        other = seen.setdefault(os.path.realpath(path), option) if path is not None else option
        if other != option:
            raise UsageError(f"{option} and {other} are the same file: {path}")


def _check_transactional(options: ProduceOptions) -> None:
    given = {
        "--producer-id": options.producer_id,
        "--producer-epoch": options.producer_epoch,
        "--base-sequence": options.base_sequence,
        "--producer-session": options.session,
        "--lease": options.lease,
    }
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{option} and --transactional-id exclude each other: its coordinator says who the"
                " producer is, and fences whoever was that before"
            )
    if options.transactions is not None and options.transactions.coordinator_epoch:
        raise UsageError(
            "--coordinator-epoch and --transactional-id exclude each other: markers have the leader"
            " epoch of its coordinator's partition"
        )


def as_holder(
    targets: Sequence[WriteTarget], options: ProduceOptions, fs: FileSystem | None = None
) -> ProduceOptions:
    """Complete the options with id and epoch of a lease; with `fs` the caller holds the lock.

    With an epoch, or a session that has one, it must still be that of the lease.

    Raises:
        LeaseError: the lease is not held, or by another one.
        RefusedError: its log is damaged.
    """
    if options.lease is None:
        return options
    from eoctl.clients.coordinators.producer_id_topic import look_at_ids
    from eoctl.clients.producing.produce_session import load_session

    generation = options.producer_epoch
    if generation is None and options.session is not None:
        session = load_session(options.session)
        generation = None if session is None else session.producer_epoch
    opened = look_at_ids(targets[0].log_dir_path, options.now, fs)
    lease = opened.ids.require_held(options.lease, generation)
    return options._replace(producer_id=lease.producer_id, producer_epoch=lease.generation)


def session_arguments(targets: Sequence[WriteTarget], options: ProduceOptions) -> dict[str, Any]:
    """What must be the same in every run of a session, as it comes back from the file."""
    transactions = options.transactions
    return {
        "partitions": tuple(Path(each.path).name for each in targets),
        "--format": options.input_format.value,
        "--bytes": options.bytes_as.value,
        "--key-separator": options.key_separator,
        # Where records without key go depends on it.
        "--batch-bytes": options.batch_bytes if len(targets) > 1 else None,
        "--txn-records": None if transactions is None else transactions.records,
        "--abort-every": None if transactions is None else transactions.abort_every,
        "--transaction-version": None if transactions is None else transactions.version,
    }
