"""Things that are made once per test run, whatever the number of xdist workers."""

from __future__ import annotations

import fcntl
import os
import pickle
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

T = TypeVar("T")


def once_per_run(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], T]
) -> T:
    """The result of `make(directory)`, called by the first worker that asks for `name`.

    The directory is there, empty, and lives as long as the run's other temporary files. The other
    workers wait, and get a copy of the result (through pickle). When `make` fails, the next one
    that asks tries again, with a directory of its own.
    """
    run_dir = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        run_dir = run_dir.parent
    shared_dir = run_dir / "shared"
    shared_dir.mkdir(exist_ok=True)
    done = shared_dir / f"{name}.pickle"
    with (shared_dir / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            directory = shared_dir / name
            number = 1
            while directory.exists():
                number += 1
                directory = shared_dir / f"{name}.{number}"
            directory.mkdir()
            done.write_bytes(pickle.dumps(make(directory)))
        result: T = pickle.loads(done.read_bytes())
        return result
