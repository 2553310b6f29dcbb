"""Copies of real log dirs to plant faults in."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.damage.planted import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Fault


@pytest.fixture
def copied(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[Fault], Path]:
    """A function that copies what a fault names."""
    return partial(copied_to, tmp_path, golden)


def copied_to(parent: Path, golden: Callable[[str], Path], fault: Fault) -> Path:
    """Copy what a fault names: its partitions, and the log dir's own files.

    Checkpoints keep the lines of these partitions, and their times.
    """
    is_legacy = fault.state == "legacy"
    source = golden("kafka-0.10.2-legacy") if is_legacy else golden("kafka-4.3.1") / fault.state
    log_dir = parent / "kafka"
    log_dir.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, log_dir)
    for name in fault.partitions:
        shutil.copytree(source / name, log_dir / name)
    for path in [log_dir, *log_dir.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in log_dir.glob("*-offset-checkpoint"):
        rows = layout.read_lines(path)
        kept = [row for row in rows if f"{row[0]}-{row[1]}" in fault.partitions]
        if kept != rows:
            layout.write_lines(path, kept)
    return log_dir
