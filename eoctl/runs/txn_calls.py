"""The calls of ours that end a transaction while its broker is stopped, filled in."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.transactions.open_transactions import Verdict
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import TransactionStatus
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from eoctl.runs.txn_readers import TxnOptions
    from recovery.transactions.open_transactions import OpenTransaction


def offline_command(found: OpenTransaction, options: TxnOptions) -> str | None:
    """Return the call that ends a transaction, with the clock and the directories of this one.

    What its coordinator lists is completed where the coordinator's partition lies beside it, so
    that all partitions of the transaction and the id come out alike. What no coordinator will end
    is aborted here. None: nothing says yet what it should become.
    """
    is_listed = found.verdict in {Verdict.ONGOING, Verdict.OVERDUE}
    if is_listed and found.transactional_id is not None:
        log_dir = os.path.dirname(found.path) or "."  # noqa: PTH120 - as it was given
        name = f"{TRANSACTION_STATE_TOPIC}-{found.coordinator_partition}"
        if Path(log_dir, name).is_dir():
            call = ["eoctl", "txn", "complete", log_dir, "--transactional-id"]
            return shlex.join([*call, found.transactional_id, *_metadata(options), *_now(options)])
    is_decided = found.coordinator_status == TransactionStatus.PREPARE_COMMIT.label
    if found.verdict is Verdict.HANGING or (found.verdict is Verdict.OVERDUE and not is_decided):
        call = ["eoctl", "txn", "abort", found.path, "--producer-id", str(found.producer_id)]
        if found.verdict is Verdict.OVERDUE:
            call.append("--force-overdue")
        for each in options.coordinator_dirs:
            call += ["--coordinator-dir", each]
        if options.max_timeout_ms != DEFAULT_MAX_TIMEOUT_MS:
            call += ["--transaction-max-timeout-ms", str(options.max_timeout_ms)]
        return shlex.join([*call, *_metadata(options), *_now(options)])
    return None


def _metadata(options: TxnOptions) -> list[str]:
    return [] if options.metadata_dir is None else ["--metadata-dir", options.metadata_dir]


def _now(options: TxnOptions) -> list[str]:
    return [] if options.now is None else ["--now", options.now]
