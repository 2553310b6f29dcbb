"""Faults within a `.log` of v2 batches: BAT-1 to BAT-16."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.appending import append, end_of, last_epoch
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
LOG = "00000000000000000000.log"
PLAIN, IDEM = f"plain-0/{LOG}", f"idem-none-0/{LOG}"
NOW_MS = 1795229886400  # before the last batch of plain-0: its time index stays as it is


# --- what can be read at all ----------------------------------------------------------------------

# No batch proves the time index entry of one that cannot be read.
HOLE = ("TIM-3",)


@FAULTS.plants("clean", "idem-none-0", closure=HOLE)
def bit_in_a_payload(log_dir: Path) -> Expected:
    log = log_dir / IDEM
    batch = layout.batch_at(log, 1)
    layout.flip(log, batch.pos + 500, 0x10)
    return Expected("BAT-1", IDEM, batch.pos, "error")


@FAULTS.plants("crash", "rolled-0", closure=HOLE)
def bit_below_recovery_point(log_dir: Path) -> Expected:
    """No start of a broker verifies it."""
    log = layout.segment(log_dir / "rolled-0", 25)
    batch = layout.batch_at(log, 2)
    layout.flip(log, batch.pos + batch.size - 1, 0x80)
    return Expected("BAT-1", f"rolled-0/{log.name}", batch.pos, "error")


@FAULTS.plants("crash", "plain-0", closure=("OFS-3",))
def bit_in_the_last_batch_after_crash(log_dir: Path) -> Expected:
    """It has its whole length, and not all of its bytes."""
    batch = layout.batch_at(log_dir / PLAIN, 9)
    layout.patch(log_dir / PLAIN, batch.pos + batch.size - 600, bytes(600))
    return Expected("BAT-1", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "__transaction_state-1")
def bit_in_an_internal_topic(log_dir: Path) -> Expected:
    name = f"__transaction_state-1/{LOG}"
    batch = layout.batch_at(log_dir / name, 3)
    layout.flip(log_dir / name, batch.pos + 70)
    return Expected("BAT-1", name, batch.pos, "error")


@FAULTS.plants("clean", "plain-0")
def bit_in_a_checksum(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / PLAIN, 0)
    layout.flip(log_dir / PLAIN, batch.pos + 20)
    return Expected("BAT-1", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "plain-0")
def unknown_magic(log_dir: Path) -> Expected:
    """The checksum does not cover it."""
    batch = layout.batch_at(log_dir / PLAIN, 3)
    layout.patch(log_dir / PLAIN, batch.pos + 16, b"\x05")
    return Expected("BAT-2", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "plain-0", closure=HOLE)
def length_too_small(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / PLAIN, 3)
    layout.patch(log_dir / PLAIN, batch.pos + 8, struct.pack(">i", 40))
    return Expected("BAT-2", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "plain-0", closure=HOLE)
def length_negative(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / PLAIN, 5)
    layout.patch(log_dir / PLAIN, batch.pos + 8, struct.pack(">i", -1))
    return Expected("BAT-2", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "plain-0", closure=HOLE)
def zeros_in_the_middle(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / PLAIN, 4)
    layout.patch(log_dir / PLAIN, batch.pos, bytes(batch.size))
    return Expected("BAT-2", PLAIN, batch.pos, "error")


# --- offsets and counts ---------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def offsets_overlap(log_dir: Path) -> Expected:
    """A batch begins with the last offset of the one before, and ends one too low."""
    batch = layout.edit_batch(log_dir / PLAIN, 3, base_offset=53)
    layout.move_indexed(log_dir / "plain-0", 0, batch.last_offset, batch.last_offset - 1)
    return Expected("BAT-3", PLAIN, batch.pos, "error")


# The count is not the last delta plus one either.
@FAULTS.plants("clean", "plain-0", closure=("BAT-5",))
def more_records_than_offsets(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / PLAIN, 2)
    layout.edit_batch(log_dir / PLAIN, 2, records_count=batch.records_count + 1)
    return Expected("BAT-4", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "plain-0")
def negative_records_count(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / PLAIN, 2, records_count=-1)
    return Expected("BAT-4", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "idem-none-0")
def a_record_is_missing(log_dir: Path) -> Expected:
    """What compaction does, in a topic that is never compacted."""
    batch = layout.batch_at(log_dir / IDEM, 1)
    deltas = [delta for delta in range(batch.records_count) if delta != 7]
    layout.replace_batch(log_dir / IDEM, 1, layout.stand_in(batch, deltas))
    return Expected("BAT-5", IDEM, batch.pos, "warning")


@FAULTS.plants("clean", "plain-0")
def no_records_in_a_long_batch(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / PLAIN, 4, records_count=0)
    return Expected("BAT-6", PLAIN, batch.pos, "warning")


# --- records --------------------------------------------------------------------------------------


@FAULTS.plants("clean", "idem-none-0", deep=True)
def record_length_wrong(log_dir: Path) -> Expected:
    """The first record's length, one more than it is."""
    data = (log_dir / IDEM).read_bytes()
    batch = layout.batch_at(log_dir / IDEM, 2)
    first = data[batch.pos + 61]
    layout.edit_body(log_dir / IDEM, 2, 61, bytes([first ^ 2]))
    return Expected("BAT-7", IDEM, batch.pos + 61, "error")


def _spoil_stream(log_dir: Path, codec: str) -> Expected:
    log = log_dir / f"idem-{codec}-0" / LOG
    batch = layout.edit_body(log, 1, 61, b"\xee" * 40)
    return Expected("BAT-7", f"idem-{codec}-0/{LOG}", batch.pos + 61, "error")


@FAULTS.plants("clean", "idem-gzip-0", deep=True)
def gzip_stream_damaged(log_dir: Path) -> Expected:
    return _spoil_stream(log_dir, "gzip")


@FAULTS.plants("clean", "idem-snappy-0", deep=True)
def snappy_stream_damaged(log_dir: Path) -> Expected:
    return _spoil_stream(log_dir, "snappy")


@FAULTS.plants("clean", "idem-lz4-0", deep=True)
def lz4_stream_damaged(log_dir: Path) -> Expected:
    return _spoil_stream(log_dir, "lz4")


@FAULTS.plants("clean", "idem-zstd-0", deep=True)
def zstd_stream_damaged(log_dir: Path) -> Expected:
    return _spoil_stream(log_dir, "zstd")


@FAULTS.plants("clean", "plain-0")
def unknown_codec(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / PLAIN, 6, attributes=5)
    return Expected("BAT-7", PLAIN, batch.pos, "error")


@FAULTS.plants("clean", "idem-none-0", deep=True)
def offset_deltas_out_of_order(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / IDEM, 1)
    deltas = [1, 0, *range(2, batch.records_count)]
    layout.replace_batch(log_dir / IDEM, 1, layout.stand_in(batch, deltas))
    return Expected("BAT-8", IDEM, batch.pos, "warning")


@FAULTS.plants("clean", "idem-none-0", deep=True)
def offset_delta_beyond_the_last(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / IDEM, 1)
    deltas = [*range(batch.records_count - 1), batch.records_count + 5]
    layout.replace_batch(log_dir / IDEM, 1, layout.stand_in(batch, deltas))
    return Expected("BAT-8", IDEM, batch.pos, "error")


@FAULTS.plants("clean", "idem-none-0", deep=True)
def max_timestamp_of_no_record(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / IDEM, 1)
    raw = layout.stand_in(batch, range(batch.records_count), late_ms=60_000)
    layout.replace_batch(log_dir / IDEM, 1, raw)
    return Expected("BAT-9", IDEM, batch.pos, "warning")


# --- attributes and producers ---------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def unused_attribute_bits(log_dir: Path) -> list[Expected]:
    first = layout.edit_batch(log_dir / PLAIN, 2, attributes=0x80)
    second = layout.edit_batch(log_dir / PLAIN, 5, attributes=0x4000)
    return [Expected("BAT-10", PLAIN, each.pos, "warning") for each in (first, second)]


@FAULTS.plants("clean", "plain-0")
def transactional_without_producer(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / PLAIN, 2, attributes=0x10)
    return Expected("BAT-11", PLAIN, batch.pos, "error")


# The batches around it have sequences.
@FAULTS.plants("clean", "idem-none-0", closure=("PRD-1",))
def producer_without_sequence(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / IDEM, 1, base_sequence=-1)
    return Expected("BAT-11", IDEM, batch.pos, "error")


# The batches around it have epoch 0: the epoch falls, and rises again without sequence 0.
@FAULTS.plants("clean", "idem-none-0", closure=("PRD-1", "PRD-3"))
def producer_without_epoch(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / IDEM, 1, producer_epoch=-1)
    return Expected("BAT-11", IDEM, batch.pos, "error")


@FAULTS.plants("clean", "plain-0")
def epoch_without_producer(log_dir: Path) -> Expected:
    batch = layout.edit_batch(log_dir / PLAIN, 2, producer_epoch=0)
    return Expected("BAT-11b", PLAIN, batch.pos, "warning")


@FAULTS.plants("clean", "plain-0")
def sequence_without_producer(log_dir: Path) -> Expected:
    """What the group coordinator writes, in a topic that is not its own."""
    batch = layout.edit_batch(log_dir / PLAIN, 2, base_sequence=0)
    return Expected("BAT-11b", PLAIN, batch.pos, "warning")


# --- control batches ------------------------------------------------------------------------------


def _append_control(log_dir: Path, records: bytes, count: int = 1, **fields: int) -> int:
    """A control batch of producer 900 at the end of plain-0."""
    partition_dir = log_dir / "plain-0"
    values = {
        "attributes": 0x30,
        "leader_epoch": last_epoch(partition_dir),
        "base_timestamp": NOW_MS,
        "producer_id": 900,
        "producer_epoch": 0,
        **fields,
    }
    batch = layout.make_batch(end_of(partition_dir)[1], records, count, **values)
    return append(log_dir, "plain-0", batch)


@FAULTS.plants("clean", "plain-0")
def short_marker(log_dir: Path) -> Expected:
    """The value has four bytes: no coordinator epoch can be read."""
    value = struct.pack(">hh", 0, layout.COMMIT)
    pos = _append_control(log_dir, layout.record(0, value, b"\x00\x00\x00\x00"))
    return Expected("BAT-12", PLAIN, pos, "error")


@FAULTS.plants("clean", "plain-0")
def short_control_key(log_dir: Path) -> Expected:
    value = struct.pack(">hi", 0, 0)
    pos = _append_control(log_dir, layout.record(0, b"\x00\x00", value))
    return Expected("BAT-12", PLAIN, pos)


@FAULTS.plants("clean", "plain-0")
def unknown_control_type(log_dir: Path) -> Expected:
    pos = _append_control(log_dir, layout.marker_record(9))
    return Expected("BAT-12", PLAIN, pos)


@FAULTS.plants("clean", "plain-0", deep=True)
def two_markers_in_a_batch(log_dir: Path) -> Expected:
    first = layout.marker_record(layout.COMMIT)
    second = layout.marker_record(layout.COMMIT, offset_delta=1)
    return Expected("BAT-12", PLAIN, _append_control(log_dir, first + second, 2), "warning")


@FAULTS.plants("clean", "plain-0", deep=True)
def compressed_marker(log_dir: Path) -> Expected:
    """A broker would read it, and no broker writes it."""
    body = gzip.compress(layout.marker_record(layout.COMMIT), mtime=0)
    pos = _append_control(log_dir, body, attributes=0x31)
    snapshot = layout.segment(log_dir / "plain-0", end_of(log_dir / "plain-0")[1], "snapshot")
    layout.edit_producer(snapshot, 0, coordinator_epoch=0)
    return Expected("BAT-12", PLAIN, pos, "warning")


@FAULTS.plants("clean", "plain-0", deep=True)
def marker_without_transactional_bit(log_dir: Path) -> Expected:
    pos = _append_control(log_dir, layout.marker_record(layout.COMMIT), attributes=0x20)
    return Expected("BAT-12", PLAIN, pos, "warning")


# --- what is a note, or a matter of neighbours ----------------------------------------------------


@FAULTS.plants("clean", "idem-none-0", deep=True)
def delete_horizon_without_reason(log_dir: Path) -> Expected:
    """No tombstone and no marker in the batch."""
    batch = layout.batch_at(log_dir / IDEM, 1)
    raw = layout.stand_in(batch, range(batch.records_count), attributes=0x40)
    layout.replace_batch(log_dir / IDEM, 1, raw)
    return Expected("BAT-13", IDEM, batch.pos, "note")


# The epoch file does not know the epoch that is too high.
@FAULTS.plants("clean", "plain-0", closure=("EPC-3",))
def leader_epoch_falls(log_dir: Path) -> Expected:
    layout.edit_batch(log_dir / PLAIN, 2, leader_epoch=1)
    return Expected("BAT-14", PLAIN, layout.batch_at(log_dir / PLAIN, 3).pos, "warning")


@FAULTS.plants("clean", "plain-0")
def timestamps_in_other_units(log_dir: Path) -> Expected:
    """In seconds, then in microseconds: the first of them has the finding."""
    end = end_of(log_dir / "plain-0")[1]
    seconds = layout.data_batch(end, leader_epoch=2, base_timestamp=NOW_MS // 1000)
    micros = layout.data_batch(end + 1, leader_epoch=2, base_timestamp=NOW_MS * 1000)
    pos = append(log_dir, "plain-0", seconds, micros)
    return Expected("BAT-16", PLAIN, pos, "note")
