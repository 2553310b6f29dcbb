"""Append batches to a cleanly stopped partition, and all that a clean stop would have left."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.damage.planted import layout

if TYPE_CHECKING:
    from pathlib import Path


def end_of(partition_dir: Path) -> tuple[int, int]:
    """(size of the last `.log`, log end offset) of an undamaged partition."""
    data = layout.log_files(partition_dir)[-1].read_bytes()
    return len(data), layout.walk(data)[-1].last_offset + 1


def last_epoch(partition_dir: Path) -> int:
    """The epoch in force at the end of the log."""
    return int(layout.read_lines(partition_dir / "leader-epoch-checkpoint")[-1][0])


def append(log_dir: Path, partition: str, *batches: bytes) -> int:
    """Append batches, and keep time index, snapshot and checkpoints right.

    Returns the position of the first one. No `.index` entry is made: none has to be.
    """
    partition_dir = log_dir / partition
    log = layout.log_files(partition_dir)[-1]
    base = int(log.stem)
    pos, old_end = end_of(partition_dir)
    layout.write(log, log.read_bytes() + b"".join(batches))
    appended = [each for each in layout.walk(log.read_bytes()) if each.pos >= pos]

    times = layout.segment(partition_dir, base, "timeindex")
    rows = layout.entries_of(times, layout.TIME_INDEX)
    latest = max(appended, key=lambda batch: batch.max_timestamp)
    if latest.max_timestamp > rows[-1][0]:
        rows.append((latest.max_timestamp, latest.last_offset - base))
        layout.write_entries(times, layout.TIME_INDEX, rows)

    new_end = appended[-1].last_offset + 1
    old = layout.segment(partition_dir, old_end, "snapshot")
    producers = {row["producer_id"]: row for row in layout.read_snapshot(old)}
    for batch in appended:
        _follow(producers, batch, log.read_bytes()[batch.pos : batch.pos + batch.size])
    layout.write_snapshot(layout.segment(partition_dir, new_end, "snapshot"), [*producers.values()])
    old.unlink()
    for kind in ("recovery-point", "replication"):
        layout.set_offset(log_dir, kind, partition, new_end)
    return pos


def _follow(producers: dict[int, dict[str, int]], batch: layout.Batch, raw: bytes) -> None:
    """What a batch does to its producer's entry (PROD-5, PROD-7)."""
    if batch.producer_id < 0:
        return
    fresh = dict.fromkeys(layout.PRODUCER_FIELDS, -1)
    fresh |= {"producer_id": batch.producer_id, "epoch": batch.producer_epoch, "offset_delta": 0}
    state = producers.setdefault(batch.producer_id, fresh)
    if state["epoch"] != batch.producer_epoch:
        state |= {"last_sequence": -1, "last_offset": -1, "offset_delta": 0}
        state["epoch"] = batch.producer_epoch
    state["timestamp"] = batch.max_timestamp
    if batch.attributes & 0x20:
        state["coordinator_epoch"] = struct.unpack(">i", raw[-5:-1])[0]
        state["current_txn_first_offset"] = -1
        return
    delta = batch.last_offset - batch.base_offset
    state |= {"last_sequence": batch.base_sequence + delta, "offset_delta": delta}
    state["last_offset"] = batch.last_offset
    if batch.attributes & 0x10 and state["current_txn_first_offset"] < 0:
        state["current_txn_first_offset"] = batch.base_offset
