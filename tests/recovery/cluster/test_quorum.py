"""Which copy of the metadata is believed, and how much of it counts for sure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.cluster.clusters import counted_to, metadata_copies
from storage.dirs.discovery import discover
from tests.metadata_logs import level, node, snapshot

if TYPE_CHECKING:
    from recovery.cluster.clusters import MetadataCopy


def copies_of(root: Path) -> list[MetadataCopy]:
    copies, notes = metadata_copies(discover(sorted(root.glob("node-*"))).selected)
    assert notes == []
    return copies


def test_the_latest_epoch_comes_before_the_longest_log(tmp_path: Path) -> None:
    node(tmp_path, 1, [(1, 0)], 30)
    node(tmp_path, 2, [(1, 0), (2, 10)], 14)
    node(tmp_path, 3, [(1, 0), (2, 10)], 12)
    copies = copies_of(tmp_path)
    assert [(each.node_id, each.epoch, each.end_offset) for each in copies] == [
        (2, 2, 14), (3, 2, 12), (1, 1, 30),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "end_offset"),
    [((1, 2, 3), 12), ((2, 3), 12), ((1, 2), 0), ((2,), 0)],
)
def test_what_a_majority_has_in_the_latest_epoch_counts(
    tmp_path: Path, given: tuple[int, ...], end_offset: int
) -> None:
    """Node 1 went on alone in epoch 1: it agrees up to offset 10 only, which is no new epoch's."""
    logs = {1: ([(1, 0)], 30), 2: ([(1, 0), (2, 10)], 14), 3: ([(1, 0), (2, 10)], 12)}
    for each in given:
        node(tmp_path, each, *logs[each])
    assert counted_to(copies_of(tmp_path), (1, 2, 3), 14).end_offset == end_offset


def test_a_snapshot_and_a_single_voter(tmp_path: Path) -> None:
    node(tmp_path, 2, [(1, 0), (2, 10)], 14)
    copies = copies_of(tmp_path)
    assert counted_to(copies, (2,), 14).end_offset == 14
    assert counted_to(copies, (), 14).end_offset == 0
    path = tmp_path / "node-2" / "__cluster_metadata-0"
    (path / f"{8:020d}-0000000001.checkpoint").write_bytes(snapshot(level("f", 7)))
    found = counted_to(copies_of(tmp_path), (1, 2, 3), 14)
    assert (found.end_offset, found.why) == (8, "a snapshot")


def test_of_an_older_copy_what_the_newest_has_too(tmp_path: Path) -> None:
    """Node 1 has other records from 10 on; a newer snapshot says nothing of them."""
    node(tmp_path, 1, [(1, 0)], 30)
    node(tmp_path, 2, [(1, 0), (2, 10)], 14, start_offset=12)
    copies = copies_of(tmp_path)
    assert counted_to(copies, (1, 2, 3), 14).end_offset == 12
    found = counted_to(copies, (1, 2, 3), 30, read=copies[1])
    assert (found.end_offset, found.diverged_from) == (10, copies[0].partition.path)
    found = counted_to(copies, (1, 2, 3), 9, read=copies[1])
    assert (found.end_offset, found.diverged_from) == (9, None)
    (Path(copies[1].partition.path) / "leader-epoch-checkpoint").unlink()
    copies = copies_of(tmp_path)
    assert counted_to(copies, (1, 2, 3), 9, read=copies[1]).end_offset == 0
