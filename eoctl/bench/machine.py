"""The machine that figures are of: without it they say nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import NamedTuple


class MachineRow(NamedTuple):
    """What the figures were taken on. None: of brokers that somebody else has started."""

    cpu: str
    processors_count: int
    ram_bytes: int
    disk: str | None
    python_version: str
    client: str
    kafka_version: str | None
    java_version: str | None
    brokers_count: int
    fsync_policy: str | None
    load_average: float


def cpu_name() -> str:
    """The processor's name, as it says itself."""
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine()


def ram_bytes() -> int:
    """Size of the memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def disk_of(path: Path) -> str:
    """The file system that a path is on, and whether its disk turns."""
    device = path.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    kind = "unknown file system"
    for line in _lines("/proc/self/mountinfo"):
        fields = line.split()
        if numbers == fields[2]:
            kind = fields[fields.index("-") + 1]
    for place in (f"/sys/dev/block/{numbers}/queue", f"/sys/dev/block/{numbers}/../queue"):
        for turns in _lines(f"{place}/rotational"):
            return f"{kind}, {'disk that turns' if turns.strip() == '1' else 'no disk that turns'}"
    return kind


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
