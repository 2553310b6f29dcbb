"""Where crash states are made: many small files, many times."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.kills import KillServer

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = Path("/dev/shm")  # not on every system; what is made there needs no disk


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory where that is to be had."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="eoctl-crash-", dir=_MEMORY) as path:
        yield Path(path)


@pytest.fixture
def server() -> Iterator[KillServer]:
    """What runs programs that kill themselves."""
    started = KillServer()
    yield started
    started.close()
