"""Which copy of the metadata is believed, and how much of it counts for sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.cluster.quorum import counted, metadata_copies
from storage.dirs.discovery import discover
from tests.metadata_logs import batch, leader_change, level, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.cluster.quorum import MetadataCopy

META = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id={}\ndirectory.id={}\n"


def node(root: Path, node_id: int, epochs: list[tuple[int, int]], end_offset: int) -> None:
    """A log dir whose metadata has these epochs, by their start offsets, up to an end."""
    log_dir = root / f"node-{node_id}"
    directory = log_dir / "__cluster_metadata-0"
    directory.mkdir(parents=True)
    (log_dir / "meta.properties").write_text(META.format(node_id, f"A{node_id}" + "A" * 20))
    starts = [start for _, start in epochs]
    data = b""
    for (epoch, start), end in zip(epochs, [*starts[1:], end_offset], strict=True):
        data += leader_change(start, 1, [1, 2, 3], time_ms=epoch, epoch=epoch)
        for offset in range(start + 1, end):
            data += batch(offset, [level("f", offset)], epoch=epoch, time_ms=epoch)
    (directory / f"{0:020d}.log").write_bytes(data)
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")


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
    assert counted(copies_of(tmp_path), (1, 2, 3), 14).end_offset == end_offset


def test_a_snapshot_and_a_single_voter(tmp_path: Path) -> None:
    node(tmp_path, 2, [(1, 0), (2, 10)], 14)
    copies = copies_of(tmp_path)
    assert counted(copies, (2,), 14).end_offset == 14
    assert counted(copies, (), 14).end_offset == 0
    path = tmp_path / "node-2" / "__cluster_metadata-0"
    (path / f"{8:020d}-0000000001.checkpoint").write_bytes(snapshot(level("f", 7)))
    found = counted(copies_of(tmp_path), (1, 2, 3), 14)
    assert (found.end_offset, found.why) == (8, "a snapshot")
