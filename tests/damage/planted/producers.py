"""Faults of producers: SNP-1 to SNP-6 in snapshots, PRD-1 to PRD-6 and TXO-1 to TXO-3 in logs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.appending import append, end_of
from tests.damage.planted.layout import ABORT, COMMIT
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
LOG = "00000000000000000000.log"
PLAIN, IDEM, MANY, TXN = (
    f"{name}-0/{LOG}" for name in ("plain", "idem-none", "many-producers", "txn")
)
IDEM_SNAPSHOT = "idem-none-0/00000000000000000150.snapshot"
TXN_SNAPSHOT = "txn-0/00000000000000000329.snapshot"
NOW_MS = 1795229886400  # before the last batch of plain-0: its time index stays as it is
DAY_MS = 86_400_000


# --- snapshots ------------------------------------------------------------------------------------

# A snapshot that cannot be read is none.
UNREAD = ("SNP-4",)


@FAULTS.plants("clean", "idem-none-0", closure=UNREAD)
def snapshot_bit(log_dir: Path) -> Expected:
    layout.flip(log_dir / IDEM_SNAPSHOT, 22, 4)
    return Expected("SNP-1", IDEM_SNAPSHOT, severity="error")


@FAULTS.plants("clean", "idem-none-0", closure=UNREAD)
def snapshot_version(log_dir: Path) -> Expected:
    layout.patch(log_dir / IDEM_SNAPSHOT, 0, struct.pack(">h", 2))
    return Expected("SNP-1", IDEM_SNAPSHOT, severity="error")


@FAULTS.plants("clean", "idem-none-0", closure=UNREAD)
def snapshot_cut(log_dir: Path) -> Expected:
    path = log_dir / IDEM_SNAPSHOT
    layout.write(path, path.read_bytes()[:40])
    return Expected("SNP-1", IDEM_SNAPSHOT, severity="error")


@FAULTS.plants("clean", "many-producers-0", closure=UNREAD)
def snapshot_with_a_tail(log_dir: Path) -> Expected:
    """A shorter state was written over a longer file."""
    path = log_dir / "many-producers-0/00000000000000000174.snapshot"
    old = path.read_bytes()
    layout.write_snapshot(path, layout.read_snapshot(path)[:5])
    new = path.read_bytes()
    layout.write(path, new + old[len(new) :])
    return Expected("SNP-1", f"many-producers-0/{path.name}", severity="error")


@FAULTS.plants("clean", "rolled-0")
def snapshot_at_no_base(log_dir: Path) -> Expected:
    """It is right for its offset."""
    partition_dir = log_dir / "rolled-0"
    batch = layout.batch_at(layout.segment(partition_dir, 25), 2)
    rows = layout.read_snapshot(layout.segment(partition_dir, 50, "snapshot"))
    rows[0] |= {"last_sequence": 39, "last_offset": 39, "timestamp": batch.max_timestamp}
    path = layout.segment(partition_dir, 40, "snapshot")
    layout.write_snapshot(path, rows)
    return Expected("SNP-2", f"rolled-0/{path.name}", severity="note")


@FAULTS.plants("clean", "rolled-0")
def no_snapshot_at_the_end(log_dir: Path) -> Expected:
    layout.segment(log_dir / "rolled-0", 60, "snapshot").unlink()
    return Expected("SNP-3", "rolled-0", severity="warning")


@FAULTS.plants("clean", "idem-none-0")
def no_snapshot_at_all(log_dir: Path) -> Expected:
    (log_dir / IDEM_SNAPSHOT).unlink()
    return Expected("SNP-4", "idem-none-0", severity="error")


def _impossible(log_dir: Path, field_pos: int, **fields: int) -> Expected:
    """Set a field of an entry; `field_pos` is where it is in there."""
    pos = layout.edit_producer(log_dir / IDEM_SNAPSHOT, 0, **fields)
    return Expected("SNP-5", IDEM_SNAPSHOT, pos + field_pos, "error")


# An entry that cannot be is not what a replay gives.
@FAULTS.plants("clean", "idem-none-0", closure=("SNP-6",))
def snapshot_last_offset_too_high(log_dir: Path) -> Expected:
    return _impossible(log_dir, 14, last_offset=150)


@FAULTS.plants("clean", "idem-none-0", closure=("SNP-6",))
def snapshot_transaction_too_high(log_dir: Path) -> Expected:
    return _impossible(log_dir, 38, current_txn_first_offset=150)


@FAULTS.plants("clean", "idem-none-0", closure=("SNP-6",))
def snapshot_epoch_negative(log_dir: Path) -> Expected:
    return _impossible(log_dir, 8, epoch=-1)


@FAULTS.plants("clean", "idem-none-0", closure=("SNP-6",))
def snapshot_offset_without_sequence(log_dir: Path) -> Expected:
    return _impossible(log_dir, 10, last_sequence=-1)


@FAULTS.plants("clean", "idem-none-0", closure=("SNP-6",))
def snapshot_offset_delta_too_high(log_dir: Path) -> Expected:
    return _impossible(log_dir, 22, offset_delta=150)


@FAULTS.plants("clean", "idem-none-0")
def snapshot_producer_twice(log_dir: Path) -> Expected:
    rows = layout.read_snapshot(log_dir / IDEM_SNAPSHOT)
    layout.write_snapshot(log_dir / IDEM_SNAPSHOT, rows * 2)
    return Expected("SNP-5", IDEM_SNAPSHOT, 10 + 46, "error")


@FAULTS.plants("clean", "idem-none-0")
def snapshot_sequence_differs(log_dir: Path) -> Expected:
    layout.edit_producer(log_dir / IDEM_SNAPSHOT, 0, last_sequence=140)
    return Expected("SNP-6", IDEM_SNAPSHOT, severity="warning")


@FAULTS.plants("clean", "txn-0")
def snapshot_lacks_a_producer(log_dir: Path) -> Expected:
    rows = layout.read_snapshot(log_dir / TXN_SNAPSHOT)
    layout.write_snapshot(log_dir / TXN_SNAPSHOT, rows[:6] + rows[7:])
    return Expected("SNP-6", TXN_SNAPSHOT, severity="warning")


@FAULTS.plants("clean", "txn-0")
def snapshot_lacks_an_open_transaction(log_dir: Path) -> Expected:
    rows = layout.read_snapshot(log_dir / TXN_SNAPSHOT)
    index = next(at for at, row in enumerate(rows) if row["current_txn_first_offset"] >= 0)
    layout.edit_producer(log_dir / TXN_SNAPSHOT, index, current_txn_first_offset=-1)
    return Expected("SNP-6", TXN_SNAPSHOT, severity="warning")


@FAULTS.plants("clean", "idem-none-0")
def snapshot_invents_an_open_transaction(log_dir: Path) -> Expected:
    """It would hold back read_committed at an offset that another producer's batch has."""
    rows = layout.read_snapshot(log_dir / IDEM_SNAPSHOT)
    more = {"producer_id": 777, "last_offset": 60, "last_sequence": 5, "offset_delta": 5}
    rows.append({**rows[0], **more, "current_txn_first_offset": 55})
    layout.write_snapshot(log_dir / IDEM_SNAPSHOT, rows)
    return Expected("SNP-6", IDEM_SNAPSHOT, severity="warning")


@FAULTS.plants("crash", "rolled-0")
def snapshot_bit_below_recovery_point(log_dir: Path) -> Expected:
    path = layout.segment(log_dir / "rolled-0", 25, "snapshot")
    layout.flip(path, 30)
    return Expected("SNP-1", f"rolled-0/{path.name}", severity="error")


# --- sequences and epochs -------------------------------------------------------------------------


@FAULTS.plants("clean", "idem-none-0")
def sequence_gap(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / IDEM, 3, base_sequence=125)
    layout.edit_producer(log_dir / IDEM_SNAPSHOT, 0, last_sequence=154)
    return Expected("PRD-1", IDEM, batch.pos, "warning")


@FAULTS.plants("clean", "idem-none-0")
def batch_repeated(log_dir: Path) -> Expected:
    data = (log_dir / IDEM).read_bytes()
    last = layout.walk(data)[-1]
    raw = bytearray(data[last.pos :])
    struct.pack_into(">qii", raw, 0, last.last_offset + 1, last.size - 12, 2)
    return Expected("PRD-2", IDEM, append(log_dir, "idem-none-0", bytes(raw)), "warning")


# The one in between has the sequences of the first, and the last one does not follow it.
@FAULTS.plants("clean", "idem-none-0", closure=("PRD-1",))
def sequences_repeated_in_the_middle(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / IDEM, 2, base_sequence=40)
    return Expected("PRD-2", IDEM, batch.pos, "warning")


def _append_to_plain(log_dir: Path, *specs: tuple[str, dict[str, int]]) -> list[int]:
    """Append batches of one record: ("data" | "abort" | "commit", fields). Returns positions."""
    pos, offset = end_of(log_dir / "plain-0")
    batches: list[bytes] = []
    positions = []
    for kind, fields in specs:
        values = {"leader_epoch": 2, "base_timestamp": NOW_MS, "producer_epoch": 0, **fields}
        if kind == "data":
            batch = layout.data_batch(offset, **values)
        else:
            batch = layout.marker_batch(offset, COMMIT if kind == "commit" else ABORT, **values)
        positions.append(pos + sum(map(len, batches)))
        batches.append(batch)
        offset += 1
    assert append(log_dir, "plain-0", *batches) == pos
    return positions


def _data(producer_id: int, base_sequence: int, **fields: int) -> tuple[str, dict[str, int]]:
    return "data", {"producer_id": producer_id, "base_sequence": base_sequence, **fields}


def _transactional(
    producer_id: int, base_sequence: int, **fields: int
) -> tuple[str, dict[str, int]]:
    return _data(producer_id, base_sequence, attributes=0x10, **fields)


def _commit(producer_id: int, **fields: int) -> tuple[str, dict[str, int]]:
    return "commit", {"producer_id": producer_id, **fields}


@FAULTS.plants("clean", "plain-0")
def producer_epoch_falls(log_dir: Path) -> Expected:
    positions = _append_to_plain(
        log_dir, _data(800, 0, producer_epoch=1), _data(800, 0, producer_epoch=0)
    )
    return Expected("PRD-3", PLAIN, positions[1], "warning")


@FAULTS.plants("clean", "plain-0")
def other_batch_in_a_transaction(log_dir: Path) -> Expected:
    positions = _append_to_plain(log_dir, _transactional(801, 0), _data(801, 1), _commit(801))
    return Expected("PRD-4", PLAIN, positions[1], "error")


@FAULTS.plants("clean", "plain-0")
def first_sequences_never_came(log_dir: Path) -> Expected:
    [position] = _append_to_plain(log_dir, _data(803, 17))
    return Expected("PRD-6", PLAIN, position, "note")


@FAULTS.plants("clean", "txn-0")
def transactional_bit_lost(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / TXN, 4)
    layout.edit_batch(log_dir / TXN, 4, attributes=batch.attributes & ~0x10)
    return Expected("PRD-4", TXN, batch.pos, "error")


@FAULTS.plants("clean", "plain-0")
def coordinator_epoch_falls(log_dir: Path) -> Expected:
    positions = _append_to_plain(
        log_dir,
        _transactional(802, 0),
        _commit(802, coordinator_epoch=5),
        _transactional(802, 1),
        _commit(802, coordinator_epoch=3),
    )
    return Expected("PRD-5", PLAIN, positions[3], "warning")


# --- transactions ---------------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def young_open_transaction(log_dir: Path) -> Expected:
    _append_to_plain(log_dir, _transactional(803, 0))
    return Expected("TXO-1", PLAIN, severity="note")


@FAULTS.plants("clean", "plain-0")
def old_open_transaction(log_dir: Path) -> Expected:
    """No coordinator can be waiting any more."""
    _append_to_plain(log_dir, _transactional(803, 0, base_timestamp=NOW_MS - DAY_MS))
    return Expected("TXO-1", PLAIN, severity="warning")


@FAULTS.plants("clean", "plain-0")
def marker_without_transaction(log_dir: Path) -> Expected:
    _append_to_plain(log_dir, _commit(804))
    return Expected("TXO-2", PLAIN, severity="note")


@FAULTS.plants("clean", "plain-0")
def marker_of_a_lower_epoch(log_dir: Path) -> Expected:
    positions = _append_to_plain(
        log_dir, _transactional(805, 0, producer_epoch=3), _commit(805, producer_epoch=2)
    )
    return Expected("TXO-3", PLAIN, positions[1], "warning")
