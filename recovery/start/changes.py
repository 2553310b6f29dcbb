"""What a start does: to a file, as a row of a report, and to segments, step by step."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recovery.checks.partition_check import CheckedSegment
    from storage.dirs.partition_files import SegmentFiles


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


class RecoverStep(NamedTuple):
    """A recovery of a segment; `known` are those that are loaded, as they stand then."""

    segment: CheckedSegment
    known: tuple[CheckedSegment, ...]
    is_emptied: bool


class SplitStep(NamedTuple):
    """A split of a segment in others (REC-10)."""

    source: CheckedSegment
    parts: tuple[CheckedSegment, ...]


class RemoveStep(NamedTuple):
    """A deletion of a segment behind a cut, with its snapshot (REC-6)."""

    files: SegmentFiles


LoadStep = RecoverStep | SplitStep | RemoveStep
