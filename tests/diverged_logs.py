"""Copies of a real partition that part at an offset: from there on one was led by another epoch."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

from tests.damage.faults import read_batches

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS_NAME = "leader-epoch-checkpoint"


def begin_epoch(partition: Path, offset: int, epoch: int) -> None:
    """Let the batches from an offset on be of a higher leader epoch, which no checksum covers."""
    for path in sorted(partition.glob("*.log")):
        data = bytearray(path.read_bytes())
        for each in read_batches(bytes(data)):
            if each.base_offset >= offset:
                struct.pack_into(">i", data, each.pos + 12, epoch)
        before = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    lines = (partition / EPOCHS_NAME).read_text().splitlines()[2:]
    kept = [each for each in lines if int(each.split()[1]) < offset]
    write_epochs(partition, [*kept, f"{epoch} {offset}"])


def write_epochs(partition: Path, lines: list[str]) -> None:
    """Write the file by hand."""
    (partition / EPOCHS_NAME).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def copy_partition(source: Path, target: Path) -> Path:
    """Copy a partition directory, to be written to."""
    shutil.copytree(source, target)
    for path in (target, *target.iterdir()):
        path.chmod(path.stat().st_mode | 0o200)
    return target


def log_of(partition: Path) -> bytes:
    """The bytes of all segments, in order."""
    return b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))


def batches_of(partition: Path) -> list[tuple[int, int, int]]:
    """Base offset, last offset and leader epoch of each batch."""
    found = read_batches(log_of(partition))
    return [(each.base_offset, each.last_offset, each.leader_epoch) for each in found]
