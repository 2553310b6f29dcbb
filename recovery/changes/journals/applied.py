"""What came of a change, and how its errors say what state things are in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import LEFT_AS_IT_WAS, EoctlError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.changes.journals.journal import Journal


class Applied(NamedTuple):
    """What came of it. `was_done`: it had been applied before, and still is."""

    journal: Journal
    was_done: bool


class SpentTargetError(RefusedError):
    """What was asked for means nothing in what is there: it may have been cut already."""


@contextmanager
def stating(state: str) -> Iterator[None]:
    """Begin the next step of an error with what is left; an interruption carries it as a note."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        interruption.add_note(state)
        raise
    except EoctlError as error:
        own_state = f"{LEFT_AS_IT_WAS}; "
        error.next_step = error.next_step.removeprefix(own_state)
        if not error.next_step.startswith(state):
            error.next_step = f"{state}; {error.next_step}" if error.next_step else state
        raise
