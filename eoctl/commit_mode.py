"""When a consumer's position is saved, which decides what a crash does.

before   saved, then handed over: a crash between the two loses what was to be handed over
after    handed over and acknowledged, then saved: a crash between the two hands it over again
atomic   handed over; the program's new state is saved with the position, in one file, and is what
         the program begins with: a crash leaves both as they were, and neither loses nor repeats
"""

from __future__ import annotations

from enum import StrEnum


class Commit(StrEnum):
    """When the position is saved."""

    BEFORE = "before"
    AFTER = "after"
    ATOMIC = "atomic"
