"""Which files this process opens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Opened:
    """Paths of files that were opened while it was on."""

    is_hooked = False
    is_on = False
    paths: ClassVar[set[str]] = set()

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.is_on and event == "open":
            cls.paths.add(str(arguments[0]))

    @classmethod
    def logs(cls) -> set[str]:
        """Those of record data."""
        return cls.ending(".log")

    @classmethod
    def ending(cls, *suffixes: str) -> set[str]:
        return {each for each in cls.paths if each.endswith(suffixes)}


@pytest.fixture
def opened() -> Iterator[type[Opened]]:
    """On for a test; a hook can never be taken back."""
    if not Opened.is_hooked:
        sys.addaudithook(Opened.hook)
        Opened.is_hooked = True
    Opened.paths.clear()
    Opened.is_on = True
    yield Opened
    Opened.is_on = False
