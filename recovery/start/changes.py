"""What a start does to a file, as a row of a report."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class StartAction(StrEnum):
    """What is done to a file."""

    DELETES = "deletes"
    TRUNCATES = "truncates"  # to a size
    REBUILDS = "rebuilds"  # an index, from the batches
    REWRITES = "rewrites"
    RENAMES = "renames"
    CREATES = "creates"
    SPLITS = "splits"


class StartChange(NamedTuple):
    """A file that a start changes; `size_bytes` is known afterwards for a `.log` only."""

    path: str
    action: StartAction
    size_bytes: int | None = None

    def __str__(self) -> str:
        return self.action if self.size_bytes is None else f"{self.action} to {self.size_bytes}"
