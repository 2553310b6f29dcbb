"""What is said of log dirs that a broker works on while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.log_dir import LogDir


def notes_in_use(log_dirs: Iterable[LogDir]) -> list[str]:
    """Return a note for each log dir whose lock somebody holds."""
    return [
        f"{each.path}: in use by {each.lock.holder}; what is printed may have changed since"
        for each in log_dirs
        if each.lock.is_held
    ]
