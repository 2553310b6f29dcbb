"""A fresh copy of a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cases.states import STATES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def case(tmp_path: Path) -> Callable[[str], Path]:
    """A function from a state's name to a fresh directory in that state."""

    def made(name: str) -> Path:
        out = tmp_path / name
        out.mkdir()
        return STATES[name](out)

    return made
