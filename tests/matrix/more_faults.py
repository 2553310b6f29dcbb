"""Damage beside what is planted for `eoctl check`: a `.log` that cannot be read, or is gone.

As in tests/damage/planted, nothing of ours is imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

MORE = Faults()
LOG = "plain-0/00000000000000000000.log"


@MORE.plants("clean", "plain-0")
def base_offset_too_low(log_dir: Path) -> Expected:
    """One bit of a field that no checksum covers."""
    batch = layout.batch_at(log_dir / LOG, 5)
    layout.flip(log_dir / LOG, batch.pos + 7, 0x40)
    return Expected("BAT-3", LOG)


@MORE.plants("clean", "plain-0", "plain-1")
def log_is_a_dangling_link(log_dir: Path) -> Expected:
    (log_dir / LOG).unlink()
    (log_dir / LOG).symlink_to("gone")
    return Expected("", LOG)


@MORE.plants("clean", "plain-0", "plain-1")
def log_is_a_link_loop(log_dir: Path) -> Expected:
    (log_dir / LOG).unlink()
    (log_dir / LOG).symlink_to((log_dir / LOG).name)
    return Expected("", LOG)


@MORE.plants("clean", "txn-0", "plain-0")
def log_missing(log_dir: Path) -> Expected:
    layout.segment(log_dir / "txn-0").unlink()
    return Expected("OFS-3", "txn-0")


@MORE.plants("clean", "rolled-0")
def last_log_missing(log_dir: Path) -> Expected:
    layout.segment(log_dir / "rolled-0", 50).unlink()
    return Expected("OFS-3", "rolled-0")


@MORE.plants("clean", "plain-0")
def base_offset_raised(log_dir: Path) -> Expected:
    """The leader epochs are not to be asked for such an offset."""
    batch = layout.batch_at(log_dir / LOG, 5)
    layout.flip(log_dir / LOG, batch.pos + 5, 0x40)
    return Expected("BAT-3", LOG)


@MORE.plants("clean", "plain-0")
def base_offset_raised_a_little(log_dir: Path) -> Expected:
    batch = layout.batch_at(log_dir / LOG, 5)
    layout.flip(log_dir / LOG, batch.pos + 7, 0x20)
    return Expected("BAT-3", LOG)


@MORE.plants("clean", "rolled-0")
def base_offset_raised_before_a_segment(log_dir: Path) -> Expected:
    log = layout.segment(log_dir / "rolled-0", 25)
    batch = layout.batch_at(log, -1)
    layout.flip(log, batch.pos + 5, 0x40)
    return Expected("SEG-1", f"rolled-0/{log.name}")


@MORE.plants("clean", "plain-0", "plain-1")
def log_is_a_fifo(log_dir: Path) -> Expected:
    """Who opens it without care waits for ever."""
    (log_dir / LOG).unlink()
    os.mkfifo(log_dir / LOG)
    return Expected("", LOG)


@MORE.plants("clean", "plain-0", "plain-1")
def log_is_a_directory(log_dir: Path) -> Expected:
    (log_dir / LOG).unlink()
    (log_dir / LOG).mkdir()
    return Expected("", LOG)
