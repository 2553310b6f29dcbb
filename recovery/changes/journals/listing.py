"""The journals that are kept: which there are, how large, and removing those nobody needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import default_place
from recovery.changes.journals.journal import (
    JOURNAL_NAME,
    PLACE_SUFFIX,
    PLAN_NAME,
    Status,
    has_journal,
    read_journal,
    require_only_ours,
)
from recovery.changes.journals.unfinished import unfinished_path
from recovery.changes.plans.plan import PLAN_ID, read_plan
from storage.errors import AccessError, CorruptError, RefusedError, UsageError, os_errors, pasted
from storage.file_names import LOCK_FILE_NAME, META_PROPERTIES_NAME
from storage.files import fsio
from storage.files.broker_lock import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.changes.journals.journal import Journal
    from storage.files.fsio import FileSystem


class KeptJournal(NamedTuple):
    """The directory of one journal.

    Attributes:
        journal: None when there is none (abandoned), or it is damaged: see `problem`.
        kept_bytes: on the disk for the plan, the journal and the backups; a linked file counts
            where the log dir does not hold it any more.
        flagged_in: log dirs that still lead to it, whatever its status says.
    """

    path: str
    status: Status | None  # None: damaged
    journal: Journal | None
    kept_bytes: int
    problem: AccessError | CorruptError | None = None
    flagged_in: tuple[str, ...] = ()


def list_journals(paths: Iterable[str]) -> list[KeptJournal]:
    """Find the journals of log dirs, of places for backups, or single ones; oldest first.

    Raises:
        AccessError: a path is not there, or cannot be listed.
        UsageError: it is a file of no journal, or neither a log dir nor a place with journals.
    """
    found: dict[str, KeptJournal] = {}
    for path in paths:
        for directory in _directories_of(path):
            found.setdefault(directory, _kept(directory))
    return sorted(found.values(), key=lambda each: Path(each.path).name)


def _directories_of(path: str) -> list[str]:
    given = Path(path)
    if given.name in (JOURNAL_NAME, PLAN_NAME) and given.is_file():
        given = given.parent
    if given.is_file():
        raise UsageError(f"{path}: is no directory", next_step="a log dir, or a journal's own")
    with os_errors(given):
        resolved = Path(os.path.realpath(given, strict=True))
    if _is_journal(resolved):
        return [str(resolved)]
    found = _in_place(resolved)
    if not resolved.name.endswith(PLACE_SUFFIX):
        found += _in_place(Path(default_place(str(resolved))))
    pointed = unfinished_path(str(resolved))
    if pointed is not None and _is_journal(Path(pointed)):
        found.append(pointed)
    is_known = resolved.name.endswith(PLACE_SUFFIX) or os.path.lexists(
        resolved / META_PROPERTIES_NAME
    )
    if not found and not is_known and not Path(default_place(str(resolved))).is_dir():
        raise UsageError(
            f"{path}: no journal there",
            next_step="a log dir, or the --backup-dir that was given when it was changed",
        )
    return found


def _is_journal(directory: Path) -> bool:
    """Its name alone tells: one that was begun a moment ago may be empty."""
    return PLAN_ID.fullmatch(directory.name) is not None and directory.is_dir()


def _in_place(place: Path) -> list[str]:
    if not place.is_dir():
        return []
    with os_errors(place):
        return [str(each) for each in place.iterdir() if _is_journal(each)]


def _kept(directory: str) -> KeptJournal:
    kept_bytes = 0
    with os_errors(directory), os.scandir(directory) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink == 1:
                kept_bytes += status.st_blocks * 512
    if not has_journal(directory):
        return KeptJournal(
            path=directory, status=Status.ABANDONED, journal=None, kept_bytes=kept_bytes
        )
    try:
        journal = read_journal(directory)
    except (AccessError, CorruptError) as problem:
        return KeptJournal(
            path=directory, status=None, journal=None, kept_bytes=kept_bytes, problem=problem
        )
    return KeptJournal(
        path=directory,
        status=journal.status,
        journal=journal,
        kept_bytes=kept_bytes,
        flagged_in=tuple(_flagged(journal)),
    )


def _flagged(journal: Journal) -> Iterator[str]:
    for log_dir in journal.log_dirs:
        try:
            is_flagged = unfinished_path(log_dir) == journal.path
        except AccessError:
            continue
        if is_flagged:
            yield log_dir


def why_it_stays(kept: KeptJournal) -> str:
    """Why a journal must not be removed; "": it may.

    Raises:
        AccessError: its directory, or a log dir, cannot be looked at.
    """
    if kept.status is None:
        return "it is damaged"
    is_under_way = kept.status in (Status.UNFINISHED, Status.UNDOING)
    if is_under_way and kept.journal is not None:
        gone = [each for each in kept.journal.log_dirs if not Path(each).is_dir()]
        if gone:
            return f"it is {kept.status}, and {gone[0]} is not there to tell more"
    for log_dir in _log_dirs_of(kept):
        if is_under_way and unfinished_path(log_dir) == kept.path:
            return f"it is {kept.status}"
        if unfinished_path(log_dir) == kept.path:
            return f"{log_dir} still leads to it: eoctl apply {pasted(kept.path)} closes it"
        if kept.status is Status.ABANDONED and probe(Path(log_dir, LOCK_FILE_NAME)).is_held:
            return f"{log_dir} is in use, perhaps by the run that is just making it"
    try:
        require_only_ours(kept.path)
    except RefusedError as error:
        return error.message
    return ""


def _log_dirs_of(kept: KeptJournal) -> list[str]:
    if kept.journal is not None:
        return [each for each in kept.journal.log_dirs if Path(each).is_dir()]
    try:
        plan = read_plan(Path(kept.path, PLAN_NAME), is_kept=True)
    except (AccessError, UsageError, RefusedError):
        place = str(Path(kept.path).parent)
        beside = place.removesuffix(PLACE_SUFFIX)
        return [beside] if beside != place and Path(beside).is_dir() else []
    return [each for each in plan.log_dirs if Path(each).is_dir()]


def remove_journal(fs: FileSystem, kept: KeptJournal) -> None:
    """Remove the directory of a journal with all backups: then there is no undo.

    Raises:
        RefusedError: it is needed (`why_it_stays`), or there are other files in it.
        AccessError: it could not be removed.
    """
    if reason := why_it_stays(kept):
        raise RefusedError(
            f"{kept.path}: {reason}; nothing was removed",
            next_step=f"eoctl journal show {pasted(kept.path)}",
        )
    files = require_only_ours(kept.path)
    directory = Path(kept.path)
    with os_errors(directory, state="a part of it may be removed"):
        # The journal first: without its backups it would promise what it cannot keep.
        for file in sorted(files, key=lambda each: each.name != JOURNAL_NAME):
            fs.unlink(file)
        fs.remove_dir(directory)
    fsio.sync_dir(fs, directory.parent, state=f"{directory} is removed")
