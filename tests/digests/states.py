"""The directories that are called on: golden ones, planted faults, and cases."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, NamedTuple

from tests.cases.states import STATES
from tests.conftest import GOLDEN_DIR
from tests.damage.conftest import copied_to
from tests.damage.planted import FAULTS
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Fault


class State(NamedTuple):
    """A directory; `make` writes it and returns it, below a directory of its own."""

    name: str
    make: Callable[[Path], Path]


class Unpacked:
    """Golden archives, unpacked once."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def __call__(self, name: str) -> Path:
        target = self._work / name
        if not target.exists():
            with tarfile.open(GOLDEN_DIR / f"{name}.tar.xz") as archive:
                archive.extractall(target, filter="data")
        return target

    def log_dirs(self, name: str) -> list[Path]:
        """Return the log dirs with a segment, of an archive of log dirs."""
        return sorted({log.parent.parent for log in self(name).rglob("*.log")})


def _of_golden(source: Path) -> Callable[[Path], Path]:
    return lambda out: copy_log_dir(source, out / "d")


def _of_fault(golden: Unpacked, fault: Fault) -> Callable[[Path], Path]:
    def make(out: Path) -> Path:
        log_dir = copied_to(out / "d", golden, fault)
        fault.planted_in(log_dir)
        return log_dir

    return make


def all_states(golden: Unpacked) -> list[State]:
    """Return all of them, in an order that is always the same."""
    found = []
    for archive in sorted(GOLDEN_DIR.glob("kafka-*.tar.xz")):
        name = archive.name.removesuffix(".tar.xz")
        if name.endswith((".dump", ".consumed")):
            continue
        log_dirs = golden.log_dirs(name)
        if name.endswith("-deaths"):  # 32 that are much alike
            log_dirs = [each for each in log_dirs if "no-elr/0-then-1/" in str(each)]
        for log_dir in log_dirs:
            place = str(log_dir.relative_to(golden(name))).replace("/", ".")
            found.append(State(f"{name}.{place}", _of_golden(log_dir)))
    found += [State(f"fault.{each.name}", _of_fault(golden, each)) for each in FAULTS]
    # The records of the one that is left out are of the day on which it is made.
    cases = [name for name in STATES if name != "old-records-retention"]
    return found + [State(f"case.{name}", STATES[name]) for name in cases]
