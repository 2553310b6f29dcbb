"""Which change of a log dir has begun and not ended.

A log dir whose plan has begun and not ended holds a file `.eoctl-unfinished` with the path of that
directory; a broker ignores it. The journal appears whole, under its final name, before that file
does, and that file before the first change, so that
    no such file                  nothing is half done
    a directory without journal   its run ended before anything was changed
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals.journal import PLACE_SUFFIX, Status, has_journal, read_journal
from storage.errors import AccessError, CorruptError, RefusedError, pasted
from storage.files import fsio
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.changes.journals.journal import Journal
    from storage.files.fsio import FileSystem

UNFINISHED_NAME = ".eoctl-unfinished"
MAX_UNFINISHED_BYTES = 1 << 14


def unfinished_path(log_dir: str) -> str | None:
    """Directory of the journal that has begun and not ended in a log dir; None: there is none.

    Raises:
        AccessError: it cannot be read.
    """
    file = Path(log_dir, UNFINISHED_NAME)
    try:
        text = os.fsdecode(read_small_file(file, MAX_UNFINISHED_BYTES)).removesuffix("\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(file, error) from error
    if not Path(text).is_absolute() or "\0" in text:
        raise _unusable(file, OSError(errno.EINVAL, "Does not hold the path of a journal"))
    return text


def unfinished_journals(log_dirs: Iterable[str]) -> Iterator[tuple[str, Journal]]:
    """Each journal that has begun and not ended in log dirs, once, with one of them.

    The next log dir is looked at when the journal before has been dealt with.

    Raises:
        RefusedError: there is no journal where a log dir says that one is.
        AccessError, CorruptError: it cannot be used.
    """
    seen: set[str] = set()
    for log_dir in log_dirs:
        path = unfinished_path(log_dir)
        if path is None or path in seen:
            continue
        seen.add(path)
        if not has_journal(path):
            require_finished([log_dir])
        yield log_dir, read_journal(path)


def _unusable(file: Path, error: OSError) -> AccessError:
    next_step = (
        f"eoctl journal list {pasted(f'{file.parent}{PLACE_SUFFIX}')} tells whether a change is"
        " unfinished; if"
        " none is, remove that file"
    )
    return AccessError(error, str(file), next_step=next_step)


def require_finished(log_dirs: Iterable[str]) -> None:
    """Refuse to change a log dir in which a plan has begun and not ended.

    Raises:
        RefusedError: exit status 4, with both ways out of it.
        AccessError: it cannot be read.
    """
    for log_dir in log_dirs:
        path = unfinished_path(log_dir)
        if path is not None:
            raise RefusedError(
                f"{log_dir}: an earlier change has not been finished; nothing was touched",
                next_step=ways_out_of(log_dir, path),
            )


def require_no_other(journal: Journal) -> None:
    """Refuse to go on with a change where a log dir has another one that has not ended.

    Raises:
        RefusedError, AccessError: as `require_finished`.
    """
    for log_dir in journal.log_dirs:
        if unfinished_path(log_dir) not in (None, journal.path):
            require_finished([log_dir])


def ways_out_of(log_dir: str, path: str) -> str:
    """What can be done about a log dir that names a journal as unfinished."""
    try:
        return ways_out(read_journal(path))
    except (AccessError, CorruptError) as error:
        return (
            f"its journal cannot be used ({error}): get it back, or, to keep the files as they are,"
            f" remove {Path(log_dir, UNFINISHED_NAME)}"
        )


def ways_out(found: Journal) -> str:
    """The call that completes an unfinished change, and the one that takes it back."""
    path = found.path
    if found.status in {Status.UNDOING, Status.UNDONE}:
        return f"eoctl undo {pasted(path)} completes its undo"
    if found.status is Status.KEPT:
        return f"eoctl apply {pasted(path)} closes it"
    completes = f"eoctl apply {pasted(path)} completes it"
    return (
        f"{completes}, eoctl undo {pasted(path)} takes it back" if found.has_backup else completes
    )


def set_unfinished(fs: FileSystem, journal: Journal) -> None:
    """Note in every log dir of a plan that its changes may have begun.

    Raises:
        AccessError: it could not be written.
    """
    for log_dir in journal.log_dirs:
        if unfinished_path(log_dir) != journal.path:
            fsio.replace_file(fs, Path(log_dir, UNFINISHED_NAME), os.fsencode(journal.path) + b"\n")


def clear_unfinished(fs: FileSystem, journal: Journal) -> None:
    """Note that they have ended.

    Raises:
        AccessError: it could not be removed.
    """
    for log_dir in journal.log_dirs:
        if unfinished_path(log_dir) in (None, journal.path):
            fsio.remove_file(fs, Path(log_dir, UNFINISHED_NAME))
