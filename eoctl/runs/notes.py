"""Sentences that several commands say of what they have read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.dirs.log_dir import LogDir

MAX_TOLD_COUNT = 10  # of one partition, or of one kind


def first_of(sentences: Sequence[str], what: str, count: int | None = None) -> list[str]:
    """Give the first sentences, and how many more of `what` there are; `count`: of them all."""
    more = (len(sentences) if count is None else count) - MAX_TOLD_COUNT
    return [*sentences[:MAX_TOLD_COUNT], *([f"and {more} more {what}"] if more > 0 else [])]


def notes_in_use(log_dirs: Iterable[LogDir]) -> list[str]:
    """Return a note for each log dir whose lock somebody holds."""
    return [
        f"{each.path}: in use by {each.lock.holder}; what is printed may have changed since"
        for each in log_dirs
        if each.lock.is_held
    ]
