"""The coordinators' log shows what became of transactions whose end marker is damaged or absent."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from recovery.transactions.coordinator_history import (
    CompletedTransaction,
    MarkedTransaction,
    outcome_of,
)
from recovery.transactions.unknown_ends import find_ends, log_files_of, read_ended
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER, UNKNOWN
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
    ("state", "name", "least"), [("clean", "txn-0", 20), ("tv2-clean", "t2-0", 5)]
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


def completed(*kinds: int) -> list[CompletedTransaction]:
    """One each 10 s, of producer epoch 0."""
    return [
        CompletedTransaction(0, kind, (("t", 0),), n * 10_000, n * 10_000 + 100, False)
        for n, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("known", "marked", "first_offset", "expected"),
    [
        ((COMMIT, ABORT, COMMIT), ((0, COMMIT), (10, COMMIT)), 10, ABORT),
        ((COMMIT, ABORT), ((0, COMMIT),), 10, ABORT),
        ((COMMIT, COMMIT), ((0, COMMIT), (10, COMMIT)), 10, NO_MARKER),
        # It is open: the coordinator has not ended it.
        ((COMMIT,), ((0, COMMIT),), 10, UNKNOWN),
        # What the coordinator has is another history.
        ((COMMIT, ABORT, ABORT), ((0, COMMIT), (10, COMMIT)), 10, UNKNOWN),
        ((COMMIT, ABORT, COMMIT, COMMIT), ((0, COMMIT), (10, COMMIT)), 10, UNKNOWN),
    ],
)
def test_transactions_are_counted(
    known: tuple[int, ...], marked: tuple[tuple[int, int], ...], first_offset: int, expected: int
) -> None:
    def found(known: list[CompletedTransaction], timestamp_ms: int) -> int:
        return outcome_of(
            known,
            [MarkedTransaction(*each) for each in marked],
            first_offset=first_offset,
            producer_epoch=0,
            timestamp_ms=timestamp_ms,
        )

    assert found(completed(*known), first_offset * 1000) == expected
    assert found(completed(*known), 10_000_000) in {NO_MARKER, UNKNOWN}
