"""The coordinators' log shows what became of transactions whose end marker is damaged or absent."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from recovery.cluster.coordinator_log import IdRecord
from recovery.transactions.unknown_ends import (
    CoordinatorHistory,
    find_ends,
    log_files_of,
    read_ended,
)
from storage.dirs.discovery import discover
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition
from storage.formats.control_record import ABORT, COMMIT, UNKNOWN
from storage.formats.transaction_state import TransactionState, TransactionStatus
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAMES = {ABORT: "abort", COMMIT: "commit"}


class Marker(NamedTuple):
    producer_id: int
    first_offset: int
    offset: int
    pos: int
    batch_bytes: int
    kind: int


def partition_of(directory: Path) -> Partition:
    (selected,) = discover([str(directory)]).selected
    return Partition.of(selected)


def markers_of(directory: Path) -> Iterator[Marker]:
    """End markers of transactions with data, from the log as it was written."""
    with open_segment(str(next(directory.glob("*.log")))) as segment:
        places = {each.header.base_offset: each for each in segment.scan()}
    for block in read_ended(partition_of(directory)).blocks:
        columns = (block.producer_id, block.first_offset, block.marker_offset, block.is_abort)
        for producer_id, first, offset, is_abort in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            if first in places:
                batch = places[offset]
                kind = ABORT if is_abort else COMMIT
                size = batch.header.batch_bytes
                yield Marker(producer_id, first, offset, batch.pos, size, kind)


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize(
    ("state", "name", "least"), [("clean", "txn-0", 0), ("tv2-clean", "t2-0", 5)]
)
def test_the_outcome_is_that_of_the_marker(
    state: str, name: str, least: int, how: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each marker is damaged, or cut out, by itself, and no `.txnindex` shows anything."""
    log_dir = tmp_path / "kafka"
    shutil.copytree(golden("kafka-4.3.1") / state, log_dir)
    directory = log_dir / name
    directory.chmod(0o755)
    for each in directory.glob("*.txnindex"):
        each.unlink()
    log = next(directory.glob("*.log"))
    log.chmod(0o644)
    whole = log.read_bytes()
    shown = 0
    for marker in markers_of(directory):
        data = bytearray(whole)
        if how == "flip":
            data[marker.pos + marker.batch_bytes - 1] ^= 1
        else:
            del data[marker.pos : marker.pos + marker.batch_bytes]
        log.write_bytes(data)
        found = find_ends(log_files_of(partition_of(directory)))
        at = found.ends.offset == marker.offset
        kinds = set(found.ends.kind[at & (found.ends.producer_id == marker.producer_id)].tolist())
        assert kinds <= {marker.kind, UNKNOWN}, (marker, found)
        shown += marker.kind in kinds
    assert shown >= least


def test_without_the_coordinators_nothing_is_shown(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    directory = tmp_path / "t2-0"
    shutil.copytree(golden("kafka-4.3.1") / "tv2-clean" / "t2-0", directory)
    directory.chmod(0o755)
    for each in directory.glob("*.txnindex"):
        each.unlink()
    first = next(each for each in markers_of(directory) if each.kind == COMMIT)
    log = next(directory.glob("*.log"))
    log.chmod(0o644)
    data = bytearray(log.read_bytes())
    data[first.pos + first.batch_bytes - 1] ^= 1
    log.write_bytes(data)
    found = find_ends(log_files_of(partition_of(directory)))
    assert first.first_offset in {each.first_offset for each in found.unknown}


def state(
    status: TransactionStatus, epoch: int, *, start: int = 100, version: int = 2, **more: int
) -> TransactionState:
    values = {"producer_id": 7, "previous_producer_id": -1, "next_producer_id": -1, **more}
    return TransactionState(
        transactional_id="id",
        version=1,
        **values,
        producer_epoch=epoch,
        next_producer_epoch=-1,
        timeout_ms=60_000,
        transaction_status=status,
        partitions=(("t", 0),),
        last_update_timestamp_ms=start + 10,
        start_timestamp_ms=-1 if status is TransactionStatus.EMPTY else start,
        client_transaction_version=version,
    )


EMPTY, ONGOING = TransactionStatus.EMPTY, TransactionStatus.ONGOING
COMMITTED, ABORTED = TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT
NEW = state(EMPTY, 5)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([NEW, state(ONGOING, 5), state(COMMITTED, 6)], COMMIT),
        ([NEW, state(ONGOING, 5), state(ABORTED, 6)], ABORT),
        # Each transaction has the epoch that the one before left.
        (
            [state(EMPTY, 4), state(ONGOING, 4, start=1), state(COMMITTED, 5, start=1),
             state(ONGOING, 5), state(ABORTED, 6)],
            ABORT,
        ),
        # A coordinator that aborts writes its own version; the client shares epochs.
        ([NEW, state(ONGOING, 5, version=0), state(ABORTED, 6)], UNKNOWN),
        ([NEW, state(ONGOING, 5, version=0), state(COMMITTED, 5, version=0)], UNKNOWN),
        # Records before it are compacted away: another transaction may have had its epoch.
        ([state(ONGOING, 5), state(COMMITTED, 6)], UNKNOWN),
        ([state(COMMITTED, 6)], UNKNOWN),
        # A client that has come to the new version goes on with an epoch that was used.
        (
            [state(ONGOING, 5, start=1, version=0), state(COMMITTED, 5, start=1, version=0),
             state(ONGOING, 5), state(ABORTED, 6)],
            UNKNOWN,
        ),
        # Records between the two are lost.
        ([NEW, state(ONGOING, 5), state(ABORTED, 8, start=900)], UNKNOWN),
        ([NEW, state(ONGOING, 5), state(EMPTY, 7), state(ABORTED, 6)], UNKNOWN),
        # It has not ended.
        ([NEW, state(ONGOING, 5), state(TransactionStatus.PREPARE_COMMIT, 6)], UNKNOWN),
        # The epochs of the producer id have run out.
        (
            [NEW, state(ONGOING, 5), state(COMMITTED, 0, producer_id=8, previous_producer_id=7)],
            COMMIT,
        ),
        ([NEW, state(ONGOING, 5), state(COMMITTED, 6, producer_id=9)], UNKNOWN),
    ],
)  # fmt: skip
def test_an_epoch_that_no_other_transaction_has(
    records: list[TransactionState],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    class Given:
        def __init__(self, _: object, __: object, take: Callable[[IdRecord], None]) -> None:
            for offset, each in enumerate(records):
                take(IdRecord("id", 0, offset, each))

        @staticmethod
        def knows(_: int) -> bool:
            return True

    monkeypatch.setattr("recovery.cluster.coordinator_log.CoordinatorLog", Given)
    history = CoordinatorHistory(read_log_dir(str(tmp_path)))
    assert history.outcome(7, 5) == expected
    assert history.outcome(7, 6) == UNKNOWN
