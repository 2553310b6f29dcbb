"""Faults between and at the ends of segments: SEG-1 to SEG-9, SEG-11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.appending import append
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
LOG, INDEX = "00000000000000000000.log", "00000000000000000000.index"


@FAULTS.plants("clean", "rolled-0")
def segments_overlap(log_dir: Path) -> Expected:
    """The second segment's base is that of the first one's last record."""
    partition_dir = log_dir / "rolled-0"
    layout.rename_segment(partition_dir, 25, 24)
    layout.segment(partition_dir, 25, "snapshot").unlink()
    return Expected("SEG-1", "rolled-0/00000000000000000024.log", severity="error")


@FAULTS.plants("clean", "rolled-0")
def first_batch_below_base(log_dir: Path) -> Expected:
    """A batch of five offsets that starts one too low ends one too low: a gap behind it."""
    log = layout.segment(log_dir / "rolled-0", 50)
    layout.edit_batch(log, 0, base_offset=49)
    return Expected("SEG-2", f"rolled-0/{log.name}", 0, "error")


# Checkpoints name the offset behind it, so a start splits the segment and loses nothing; nothing
# explains the gap before it.
@FAULTS.plants("clean", "plain-0", closure=("SEG-4",))
def offset_beyond_index(log_dir: Path) -> Expected:
    batch = layout.data_batch(2**31 + 100, leader_epoch=2, base_timestamp=1795229886343)
    pos = append(log_dir, "plain-0", batch)
    return Expected("SEG-3", f"plain-0/{LOG}", pos, "note")


def _shift_last_segment(log_dir: Path) -> None:
    """All offsets from 50 on become one higher."""
    partition_dir = log_dir / "rolled-0"
    log = layout.segment(partition_dir, 50)
    layout.edit_batch(log, 0, base_offset=51)
    layout.edit_batch(log, 1, base_offset=56)
    for kind in ("log", "index", "timeindex", "snapshot"):
        path = layout.segment(partition_dir, 50, kind)
        path.rename(layout.segment(partition_dir, 51, kind))
    last = layout.segment(partition_dir, 60, "snapshot")
    layout.edit_producer(last, 0, last_offset=60)
    last.rename(layout.segment(partition_dir, 61, "snapshot"))
    layout.set_epochs(partition_dir, (0, 0), (2, 61))
    for kind in ("recovery-point", "replication"):
        layout.set_offset(log_dir, kind, "rolled-0", 61)


@FAULTS.plants("clean", "rolled-0")
def gap_between_segments(log_dir: Path) -> Expected:
    _shift_last_segment(log_dir)
    return Expected("SEG-4", "rolled-0/00000000000000000051.log", severity="error")


def _add_tail(path: Path, tail: bytes) -> int:
    """Put bytes behind the last batch. Returns where they start."""
    before = path.read_bytes()
    layout.write(path, before + tail)
    return len(before)


@FAULTS.plants("clean", "rolled-0")
def torn_batch_in_the_middle(log_dir: Path) -> Expected:
    log = layout.segment(log_dir / "rolled-0", 0)
    pos = _add_tail(log, log.read_bytes()[:100])
    return Expected("SEG-5", f"rolled-0/{log.name}", pos, "error")


@FAULTS.plants("clean", "rolled-0")
def zero_tail_in_the_middle(log_dir: Path) -> Expected:
    log = layout.segment(log_dir / "rolled-0", 0)
    pos = _add_tail(log, bytes(4096))
    return Expected("SEG-5", f"rolled-0/{log.name}", pos, "error")


@FAULTS.plants("crash", "rolled-0")
def few_bytes_in_the_middle(log_dir: Path) -> Expected:
    """Too few to be looked at by a reader. The segment is below the recovery point."""
    log = layout.segment(log_dir / "rolled-0", 25)
    pos = _add_tail(log, b"\x01" * 17)
    return Expected("SEG-5", f"rolled-0/{log.name}", pos, "error")


@FAULTS.plants("clean", "plain-0")
def torn_tail_after_clean_stop(log_dir: Path) -> Expected:
    log = layout.segment(log_dir / "plain-0")
    pos = _add_tail(log, log.read_bytes()[:300])
    return Expected("SEG-6", f"plain-0/{LOG}", pos, "error")


@FAULTS.plants("clean", "idem-zstd-0")
def zero_tail_after_clean_stop(log_dir: Path) -> Expected:
    log = layout.segment(log_dir / "idem-zstd-0")
    pos = _add_tail(log, bytes(4096))
    return Expected("SEG-6", f"idem-zstd-0/{LOG}", pos, "error")


@FAULTS.plants("clean", "plain-0")
def few_bytes_after_clean_stop(log_dir: Path) -> Expected:
    """No reader sees them."""
    pos = _add_tail(layout.segment(log_dir / "plain-0"), b"\x01")
    return Expected("SEG-6", f"plain-0/{LOG}", pos, "error")


@FAULTS.plants("crash", "plain-0")
def torn_tail_after_crash(log_dir: Path) -> Expected:
    log = layout.segment(log_dir / "plain-0")
    pos = _add_tail(log, log.read_bytes()[:300])
    return Expected("SEG-6", f"plain-0/{LOG}", pos, "note")


# The last batch is gone: the clean stop had it in a snapshot and in the time index.
@FAULTS.plants("clean", "idem-none-0", closure=("OFS-6", "SNP-3", "TIM-3"))
def cut_last_batch_after_clean_stop(log_dir: Path) -> list[Expected]:
    log = layout.segment(log_dir / "idem-none-0")
    pos = layout.batch_at(log, 3).pos
    layout.write(log, log.read_bytes()[: pos + 1000])
    return [
        Expected("SEG-6", f"idem-none-0/{LOG}", pos, "error"),
        Expected("IDX-4", f"idem-none-0/{INDEX}", severity="error"),
        Expected("OFS-2", "recovery-point-offset-checkpoint"),
        Expected("OFS-3", "replication-offset-checkpoint", severity="error"),
    ]


# An empty segment has room for its base only.
@FAULTS.plants("clean", "rolled-0", closure=("SEG-4",))
def empty_log_in_the_middle(log_dir: Path) -> Expected:
    _shift_last_segment(log_dir)
    for kind in ("log", "index", "timeindex"):
        layout.write(layout.segment(log_dir / "rolled-0", 50, kind), b"")
    return Expected("SEG-7", "rolled-0/00000000000000000050.log", severity="note")


# What its indexes tell of does not fit it any more.
EMPTIED = ("IDX-3", "IDX-4", "TIM-3")


@FAULTS.plants("clean", "rolled-0", closure=EMPTIED)
def first_log_is_emptied(log_dir: Path) -> list[Expected]:
    layout.write(layout.segment(log_dir / "rolled-0", 0), b"")
    return [Expected("SEG-11", f"rolled-0/{LOG}", severity="error")]


@FAULTS.plants("clean", "rolled-0", closure=EMPTIED)
def log_in_the_middle_is_emptied(log_dir: Path) -> list[Expected]:
    layout.write(layout.segment(log_dir / "rolled-0", 25), b"")
    return [Expected("SEG-11", "rolled-0/00000000000000000025.log", severity="error")]


@FAULTS.plants("clean", "rolled-0")
def first_log_is_emptied_without_indexes(log_dir: Path) -> Expected:
    """Only the next segment tells of what is gone."""
    for kind in ("index", "timeindex"):
        layout.segment(log_dir / "rolled-0", 0, kind).unlink()
    layout.write(layout.segment(log_dir / "rolled-0", 0), b"")
    return Expected("SEG-4", "rolled-0/00000000000000000025.log", severity="error")


@FAULTS.plants("clean", "plain-0")
def missing_index(log_dir: Path) -> Expected:
    layout.segment(log_dir / "plain-0", 0, "index").unlink()
    return Expected("SEG-8", f"plain-0/{LOG}", severity="note")


@FAULTS.plants("clean", "plain-0")
def orphan_indexes(log_dir: Path) -> list[Expected]:
    partition_dir = log_dir / "plain-0"
    found = []
    for kind in ("index", "timeindex", "txnindex"):
        path = layout.segment(partition_dir, 500, kind)
        layout.write(path, b"")
        found.append(Expected("SEG-9", f"plain-0/{path.name}", severity="note"))
    return found
