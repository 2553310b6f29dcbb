"""Faults of the metadata log and of KRaft's own files: KRF-1 to KRF-5, and BAT-12 in its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
METADATA = "__cluster_metadata-0"
LOG = f"{METADATA}/00000000000000000000.log"
NO_OP_BYTES = 72  # a batch of one NoOpRecord, which is `01 14 00 00` from byte 67 on


def _no_op(log_dir: Path, number: int) -> int:
    """Index of a batch with a NoOpRecord only."""
    data = (log_dir / LOG).read_bytes()
    found = [
        index
        for index, batch in enumerate(layout.walk(data))
        if batch.size == NO_OP_BYTES
        and data[batch.pos + 67 : batch.pos + 71] == b"\x01\x14\x00\x00"
    ]
    return found[number]


@FAULTS.plants("clean", METADATA)
def metadata_log_without_its_snapshot(log_dir: Path) -> Expected:
    """The first batch is gone, and no snapshot has what it said."""
    partition_dir = log_dir / METADATA
    log = log_dir / LOG
    first = layout.batch_at(log, 0)
    layout.write(log, log.read_bytes()[first.size :])
    index = layout.segment(partition_dir, 0, "index")
    rows = [(row[0], row[1] - first.size) for row in layout.entries_of(index, layout.INDEX)]
    layout.write_entries(index, layout.INDEX, rows)
    layout.rename_segment(partition_dir, 0, first.last_offset + 1)
    epochs = [
        tuple(map(int, row)) for row in layout.read_lines(partition_dir / "leader-epoch-checkpoint")
    ]
    layout.write_lines(
        partition_dir / "leader-epoch-checkpoint",
        [(epochs[0][0], first.last_offset + 1), *epochs[1:]],
    )
    return Expected("KRF-1", METADATA, severity="error")


@FAULTS.plants("clean", METADATA)
def bootstrap_checkpoint_bit(log_dir: Path) -> Expected:
    path = log_dir / "bootstrap.checkpoint"
    batch = layout.batch_at(path, 1)
    layout.flip(path, batch.pos + 70)
    return Expected("KRF-2", path.name, severity="warning")


@FAULTS.plants("clean", METADATA)
def bootstrap_checkpoint_without_version(log_dir: Path) -> Expected:
    """Header and footer are there; a broker dies, though it has a metadata log."""
    path = log_dir / "bootstrap.checkpoint"
    data = path.read_bytes()
    first, *_, last = layout.walk(data)
    layout.write(path, data[: first.size] + data[last.pos :])
    return Expected("KRF-2", path.name, severity="error")


@FAULTS.plants("clean", METADATA)
def metadata_snapshot_named_by_hand(log_dir: Path) -> Expected:
    source = log_dir / _snapshot(log_dir, 3)
    source.rename(source.with_name("old.checkpoint"))
    return Expected("DIR-9", f"{METADATA}/old.checkpoint", severity="error")


def _snapshot(log_dir: Path, count: int) -> str:
    """A metadata snapshot of the bootstrap records: `count` of its three batches, epoch 1."""
    data = (log_dir / "bootstrap.checkpoint").read_bytes()
    batches = layout.walk(data)[:count]
    raw = b"".join(
        data[each.pos : each.pos + 12]
        + b"\x00\x00\x00\x01"
        + data[each.pos + 16 : each.pos + each.size]
        for each in batches
    )
    path = log_dir / METADATA / "00000000000000000100-0000000001.checkpoint"
    layout.write(path, raw)
    return f"{METADATA}/{path.name}"


@FAULTS.plants("clean", METADATA)
def metadata_snapshot_without_footer(log_dir: Path) -> Expected:
    return Expected("KRF-2", _snapshot(log_dir, 2), severity="error")


@FAULTS.plants("clean", METADATA)
def metadata_snapshot_without_header(log_dir: Path) -> Expected:
    name = _snapshot(log_dir, 3)
    data = (log_dir / name).read_bytes()
    layout.write(log_dir / name, data[layout.walk(data)[0].size :])
    return Expected("KRF-2", name, severity="error")


@FAULTS.plants("clean", METADATA)
def quorum_state_behind_the_log(log_dir: Path) -> Expected:
    path = log_dir / METADATA / "quorum-state"
    layout.write(path, path.read_text().replace('"leaderEpoch":2', '"leaderEpoch":1'))
    return Expected("KRF-3", f"{METADATA}/quorum-state", severity="warning")


@FAULTS.plants("clean", METADATA)
def metadata_record_frame(log_dir: Path) -> Expected:
    batch = layout.edit_body(log_dir / LOG, _no_op(log_dir, 3), 67, b"\x09")
    return Expected("KRF-4", LOG, batch.pos, "error")


@FAULTS.plants("clean", METADATA)
def metadata_record_cut(log_dir: Path) -> Expected:
    """A NoOpRecord turned into a TopicRecord, which is longer."""
    batch = layout.edit_body(log_dir / LOG, _no_op(log_dir, 5), 68, b"\x02")
    return Expected("KRF-4", LOG, batch.pos, "error")


@FAULTS.plants("clean", METADATA)
def metadata_transaction_ends_unbegun(log_dir: Path) -> Expected:
    """A NoOpRecord turned into an EndTransactionRecord."""
    batch = layout.edit_body(log_dir / LOG, _no_op(log_dir, 3), 68, b"\x18")
    return Expected("KRF-5", LOG, batch.pos, "warning")


@FAULTS.plants("clean", METADATA)
def metadata_transaction_begins_twice(log_dir: Path) -> Expected:
    """Two NoOpRecords turned into BeginTransactionRecords, a third into an EndTransactionRecord."""
    layout.edit_body(log_dir / LOG, _no_op(log_dir, 3), 68, b"\x17")
    second = layout.edit_body(log_dir / LOG, _no_op(log_dir, 4), 68, b"\x17")
    layout.edit_body(log_dir / LOG, _no_op(log_dir, 5), 68, b"\x18")
    return Expected("KRF-5", LOG, second.pos, "warning")


@FAULTS.plants("clean", METADATA, deep=True)
def metadata_control_type(log_dir: Path) -> list[Expected]:
    data = (log_dir / LOG).read_bytes()
    at = data.index(b"\x00\x00\x00\x02", 61)  # the key: version 0, type 2
    batch = layout.edit_body(log_dir / LOG, 0, at, b"\x00\x00\x00\x09")
    return [
        Expected("BAT-12", LOG, batch.pos, "warning"),
        Expected("KRF-4", LOG, batch.pos, "error"),
    ]


@FAULTS.plants("clean", METADATA)
def quorum_state_torn(log_dir: Path) -> Expected:
    path = log_dir / METADATA / "quorum-state"
    layout.write(path, path.read_text()[:60])
    return Expected("QST-1", f"{METADATA}/quorum-state", severity="error")
