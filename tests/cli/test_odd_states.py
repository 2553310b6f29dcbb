"""Records of `__transaction_state` that no coordinator writes: nothing is decided by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import (
    TransactionState,
    TransactionStatus,
    encode_key,
    encode_value,
)
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.crash.trees import difference, tree_of
from tests.writing import NOW_MS, batch, make_log_dir, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Call = Callable[..., Outcome]

NAME = "id"
PREPARED = TransactionState(
    NAME, 1, 7, -1, -1, 2, -1, 60_000, TransactionStatus.PREPARE_COMMIT, (("t", 0),), NOW_MS, NOW_MS, 2
)  # fmt: skip


def make(root: Path, *records: tuple[bytes | None, bytes | None]) -> Path:
    """A log dir with one partition of the coordinator's topic, and one that its records name."""
    log_dir = make_log_dir(root / "log-dir")
    builder = BatchBuilder(batch_bytes=2**31 - 1)
    for key, value in records:
        builder.add(key, value, NOW_MS)
    writer = open_writer(log_dir / f"{TRANSACTION_STATE_TOPIC}-0")
    writer.append(builder.build(ProducerIdentity()))
    writer.close()
    writer = open_writer(log_dir / "t-0")
    writer.append(batch(2))
    writer.close()
    return log_dir


def calls(log_dir: Path, root: Path) -> list[tuple[object, ...]]:
    lines = root / "lines"
    lines.write_text("one\n")
    return [
        ("txn", "complete", log_dir, "--single-copy", "--apply"),
        ("produce", log_dir / "t-0", lines, "--transactional-id", NAME, "--single-copy", "--apply"),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"producer_id": -1}, "producer id -1, epoch 2"),
        ({"producer_id": -5}, "producer id -5, epoch 2"),
        ({"producer_epoch": -1}, "producer id 7, epoch -1"),
        ({"producer_epoch": -7, "transaction_status": 1}, "producer id 7, epoch -7"),
        ({"transaction_status": 6}, "status Dead"),
        ({"transaction_status": 7}, "status PrepareEpochFence"),
    ],
)
def test_states_that_are_never_written(
    changes: dict[str, int], words: str, eoctl: Call, tmp_path: Path
) -> None:
    """No marker of a producer that cannot be goes to a partition, and no id begins anew."""
    value = encode_value(PREPARED._replace(**changes))
    log_dir = make(tmp_path, (encode_key(NAME), value))
    before = tree_of(log_dir)
    for call in calls(log_dir, tmp_path):
        outcome = eoctl(*call)
        assert outcome.status == 4
        assert f"the newest record of {NAME} in {TRANSACTION_STATE_TOPIC} has {words}" in (
            outcome.errors
        )
        assert difference(before, tree_of(log_dir)) == []


def test_a_record_without_a_key(eoctl: Call, tmp_path: Path) -> None:
    """A broker loads none of what is behind it, so what holds is not known."""
    value = encode_value(PREPARED._replace(transaction_status=4))
    log_dir = make(tmp_path, (encode_key(NAME), value), (None, value))
    before = tree_of(log_dir)
    for call in calls(log_dir, tmp_path):
        outcome = eoctl(*call)
        assert outcome.status == 4
        assert "COO-1" in outcome.errors
        assert difference(before, tree_of(log_dir)) == []


def test_the_same_as_it_should_be(eoctl: Call, tmp_path: Path) -> None:
    log_dir = make(tmp_path, (encode_key(NAME), encode_value(PREPARED)))
    for call in calls(log_dir, tmp_path):
        outcome = eoctl(*call)
        assert outcome.status == 0, outcome.errors
