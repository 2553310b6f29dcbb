"""Faults in offset and epoch checkpoints: OFS-1 to OFS-6, EPC-1 to EPC-5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
PLAIN_EPOCHS = "plain-0/leader-epoch-checkpoint"
PLAIN_LOG = "plain-0/00000000000000000000.log"


def _set(log_dir: Path, kind: str, partition: str, offset: int | None) -> str:
    return layout.set_offset(log_dir, kind, partition, offset).name


# --- offsets --------------------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def log_start_beyond_the_log(log_dir: Path) -> Expected:
    return Expected("OFS-1", _set(log_dir, "log-start", "plain-0", 1000), severity="error")


@FAULTS.plants("crash", "plain-0")
def log_start_beyond_the_log_after_crash(log_dir: Path) -> Expected:
    return Expected("OFS-1", _set(log_dir, "log-start", "plain-0", 1000), severity="error")


@FAULTS.plants("crash", "plain-0")
def recovery_point_beyond_the_log(log_dir: Path) -> Expected:
    return Expected("OFS-2", _set(log_dir, "recovery-point", "plain-0", 10_000), severity="error")


@FAULTS.plants("clean", "plain-0")
def high_watermark_beyond_the_log(log_dir: Path) -> Expected:
    return Expected("OFS-3", _set(log_dir, "replication", "plain-0", 180), severity="error")


@FAULTS.plants("crash", "plain-0")
def high_watermark_beyond_the_log_after_crash(log_dir: Path) -> Expected:
    return Expected("OFS-3", _set(log_dir, "replication", "plain-0", 180), severity="error")


@FAULTS.plants("crash", "plain-0")
def high_watermark_below_log_start(log_dir: Path) -> Expected:
    layout.set_epochs(log_dir / "plain-0", (0, 100))
    _set(log_dir, "log-start", "plain-0", 100)
    return Expected("OFS-4", _set(log_dir, "replication", "plain-0", 50), severity="note")


@FAULTS.plants("clean", "compacted-0")
def cleaner_offset_beyond_the_log(log_dir: Path) -> Expected:
    return Expected("OFS-5", _set(log_dir, "cleaner", "compacted-0", 500), severity="note")


@FAULTS.plants("clean", "plain-0")
def recovery_point_too_low_after_clean_stop(log_dir: Path) -> Expected:
    return Expected("OFS-6", _set(log_dir, "recovery-point", "plain-0", 100), severity="warning")


# Beyond the log's end, and not equal to it.
@FAULTS.plants("clean", "plain-0")
def recovery_point_too_high_after_clean_stop(log_dir: Path) -> list[Expected]:
    name = _set(log_dir, "recovery-point", "plain-0", 200)
    return [Expected("OFS-6", name, severity="warning"), Expected("OFS-2", name, severity="error")]


# --- leader epochs --------------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def leader_epochs_fall(log_dir: Path) -> Expected:
    path = layout.set_epochs(log_dir / "plain-0", (0, 0), (3, 179), (2, 180))
    return Expected("EPC-1", path, severity="error")


@FAULTS.plants("clean", "plain-0")
def leader_epoch_starts_equal(log_dir: Path) -> Expected:
    path = layout.set_epochs(log_dir / "plain-0", (0, 0), (2, 179), (3, 179))
    return Expected("EPC-1", path, severity="error")


@FAULTS.plants("clean", "plain-0")
def leader_epoch_start_negative(log_dir: Path) -> Expected:
    path = layout.set_epochs(log_dir / "plain-0", (0, -1), (2, 179))
    return Expected("EPC-1", path, severity="error")


@FAULTS.plants("clean", "plain-0")
def leader_epoch_beyond_the_log(log_dir: Path) -> Expected:
    path = layout.set_epochs(log_dir / "plain-0", (0, 0), (2, 179), (9, 5000))
    return Expected("EPC-2", path, severity="note")


@FAULTS.plants("clean", "plain-0")
def leader_epoch_invented(log_dir: Path) -> Expected:
    """The batches from 108 on have epoch 0."""
    path = layout.set_epochs(log_dir / "plain-0", (0, 0), (1, 100), (2, 179))
    return Expected("EPC-3", path, severity="error")


@FAULTS.plants("crash", "plain-0")
def batch_of_an_unknown_epoch(log_dir: Path) -> Expected:
    """The last batch: no epoch falls behind it."""
    log = layout.segment(log_dir / "plain-0")
    layout.edit_batch(log, 9, leader_epoch=1)
    return Expected("EPC-3", PLAIN_EPOCHS, severity="error")


@FAULTS.plants("clean", "plain-0")
def leader_epochs_missing(log_dir: Path) -> Expected:
    (log_dir / PLAIN_EPOCHS).unlink()
    return Expected("EPC-4", PLAIN_EPOCHS, severity="warning")


@FAULTS.plants("clean", "plain-0")
def leader_epochs_empty(log_dir: Path) -> Expected:
    layout.write(log_dir / PLAIN_EPOCHS, b"")
    return Expected("EPC-4", PLAIN_EPOCHS, severity="warning")
