"""The kept journals: their list and order, and the unfinished and old journals among them."""

from __future__ import annotations

import errno
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import default_place
from recovery.changes.journals.journal import (
    BACKUP_NAME,
    JOURNAL_NAME,
    PLACE_SUFFIX,
    PLAN_NAME,
    Status,
    has_journal,
    read_journal,
    require_only_ours,
)
from recovery.changes.plans.plan import PLAN_ID, read_plan
from storage.errors import AccessError, CorruptError, RefusedError, UsageError, os_errors, pasted
from storage.file_names import LOCK_FILE_NAME, META_PROPERTIES_NAME
from storage.files import fsio
from storage.files.broker_lock import probe
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from recovery.changes.journals.journal import Journal
    from storage.files.fsio import FileSystem


# -- the unfinished change of a log dir.
#
# A log dir with an unfinished plan holds a file `.eoctl-unfinished` with the path of the journal's
# directory. A broker ignores it. The journal appears whole under its final name, then that file
# appears, and then the first change happens. Therefore
#     no such file                  means that nothing is half done,
#     a directory without journal   means that its run ended before its first change.


UNFINISHED_NAME = ".eoctl-unfinished"
MAX_UNFINISHED_BYTES = 1 << 14


def unfinished_path(log_dir: str) -> str | None:
    """Return the directory of the unfinished journal of a log dir, or None.

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
    """Yield each unfinished journal of log dirs once, with one of its log dirs.

    The next log dir is read after the caller has handled the journal before.

    Raises:
        RefusedError: a log dir names a journal that does not exist.
        AccessError, CorruptError: a journal cannot be used.
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
        f"eoctl journal list {pasted(f'{file.parent}{PLACE_SUFFIX}')} shows whether a change is "
        "unfinished; if none is, remove that file"
    )
    return AccessError(error, str(file), next_step=next_step)


def require_finished(log_dirs: Iterable[str]) -> None:
    """Refuse to change a log dir with an unfinished plan.

    Raises:
        RefusedError: exit status 4, with the two commands that end the change.
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
    """Refuse to continue a change if a log dir has a different unfinished change.

    Raises:
        RefusedError, AccessError: as `require_finished`.
    """
    for log_dir in journal.log_dirs:
        if unfinished_path(log_dir) not in (None, journal.path):
            require_finished([log_dir])


def ways_out_of(log_dir: str, path: str) -> str:
    """Return the next steps for a log dir that names a journal as unfinished."""
    try:
        return ways_out(read_journal(path))
    except (AccessError, CorruptError) as error:
        return (
            f"its journal cannot be used ({error}): get it back, or, to keep the files as they are,"
            f" remove {Path(log_dir, UNFINISHED_NAME)}"
        )


def ways_out(found: Journal) -> str:
    """Return the command that completes an unfinished change, and the command that undoes it."""
    path = found.path
    if found.status in {Status.UNDOING, Status.UNDONE}:
        return f"eoctl undo {pasted(path)} completes its undo"
    if found.status is Status.KEPT:
        return f"eoctl apply {pasted(path)} closes it"
    completes = f"eoctl apply {pasted(path)} completes it"
    return f"{completes}, eoctl undo {pasted(path)} undoes it" if found.has_backup else completes


def set_unfinished(fs: FileSystem, journal: Journal) -> None:
    """Note in every log dir of a plan that its changes may have begun.

    Raises:
        AccessError: it could not be written.
    """
    for log_dir in journal.log_dirs:
        if unfinished_path(log_dir) != journal.path:
            fsio.replace_file(fs, Path(log_dir, UNFINISHED_NAME), os.fsencode(journal.path) + b"\n")


def clear_unfinished(fs: FileSystem, journal: Journal) -> None:
    """Note that the changes have ended.

    Raises:
        AccessError: a note could not be removed.
    """
    for log_dir in journal.log_dirs:
        if unfinished_path(log_dir) in (None, journal.path):
            fsio.remove_file(fs, Path(log_dir, UNFINISHED_NAME))


# -- the order in which the plans of a place were applied, independent of the clock.
#
# Each unchanged journal is read once: `rebuild --apply` of a log dir writes one for each of
# thousands of partitions.


_ON_TOP = frozenset({Status.APPLIED, Status.UNDOING})


class _Ordered(NamedTuple):
    path: str
    order: int
    status: Status
    log_dirs: tuple[str, ...]
    has_backup: bool


def next_order(place: str, now_ms: int) -> int:
    """Return the order of a new plan: the time, but above the order of all existing journals.

    Raises:
        AccessError: the place cannot be listed.
    """
    return max(now_ms, 1 + max((each.order for each in _journals_in(place)), default=0))


def later_applied(found: Journal, undone: Collection[str] = ()) -> str:
    """Return a later plan's journal for one of the log dirs that is still applied, or "".

    `undone`: journals that are undone first.

    Raises:
        AccessError: its place cannot be listed.
    """
    return next((each for each in _later(found, _ON_TOP) if each not in undone), "")


def later_without_backup(found: Journal) -> str:
    """Return a later applied plan's journal without a backup, or "". Raises as `later_applied`."""
    return next((each for each in _later(found, _ON_TOP, is_kept=False)), "")


def all_later(found: Journal) -> list[str]:
    """Return all journals to undo first, also unfinished ones. Raises as `later_applied`."""
    return [*_later(found, {Status.APPLIED, Status.UNDOING, Status.UNFINISHED})]


def _later(
    found: Journal, wanted: AbstractSet[Status], *, is_kept: bool | None = None
) -> Iterator[str]:
    """Yield later journals of these states. `is_kept`: only with a backup, or only without."""
    for each in _journals_in(str(Path(found.path).parent)):
        is_later = each.path != found.path and each.order > found.order
        if is_kept not in {None, each.has_backup}:
            continue
        if each.status in wanted and is_later and not {*each.log_dirs}.isdisjoint(found.log_dirs):
            yield each.path


def _journals_in(place: str) -> Iterator[_Ordered]:
    """Yield the readable journals."""
    with os_errors(place):
        directories = sorted(map(str, Path(place).iterdir()))
    for directory in directories:
        try:
            found = os.lstat(f"{directory}/{JOURNAL_NAME}")
        except OSError:
            continue
        ordered = _read(directory, found.st_ino, found.st_size, found.st_mtime_ns)
        if ordered is not None:
            yield ordered


@lru_cache(maxsize=1 << 16)
def _read(directory: str, *identity: int) -> _Ordered | None:
    del identity
    try:
        found = read_journal(directory)
    except (AccessError, CorruptError):
        return None
    return _Ordered(
        path=found.path,
        order=found.order,
        status=found.status,
        log_dirs=found.log_dirs,
        has_backup=found.has_backup,
    )


# -- the kept journals: their list, their sizes, and the removal of old journals


class KeptJournal(NamedTuple):
    """The directory of one journal.

    Attributes:
        journal: None if it does not exist (abandoned) or is damaged: see `problem`.
        kept_bytes: size of the backups' contents. A linked file counts if it has no other link.
        flagged_in: log dirs that still name it as unfinished, whatever its status is.
    """

    path: str
    status: Status | None  # None: damaged
    journal: Journal | None
    kept_bytes: int
    problem: AccessError | CorruptError | None = None
    flagged_in: tuple[str, ...] = ()


def list_journals(paths: Iterable[str]) -> list[KeptJournal]:
    """Find the journals of log dirs, of places for backups, or single journals, oldest first.

    Raises:
        AccessError: a path does not exist, or cannot be listed.
        UsageError: a path is a file of no journal, or neither a log dir nor a place with journals.
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
    """Return whether it is a journal's directory, by name: a new directory may be empty."""
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
            if status.st_nlink == 1 and BACKUP_NAME.fullmatch(entry.name):
                kept_bytes += status.st_size
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
    """Return why a journal must not be removed, or "" if it may.

    Raises:
        AccessError: its directory, or a log dir, cannot be read.
    """
    if kept.status is None:
        return "it is damaged"
    is_under_way = kept.status in (Status.UNFINISHED, Status.UNDOING)
    if is_under_way and kept.journal is not None:
        gone = [each for each in kept.journal.log_dirs if not Path(each).is_dir()]
        if gone:
            return f"it is {kept.status}, and {gone[0]} is not there to show more"
    for log_dir in _log_dirs_of(kept):
        if is_under_way and unfinished_path(log_dir) == kept.path:
            return f"it is {kept.status}"
        if unfinished_path(log_dir) == kept.path:
            return f"{log_dir} still leads to it: eoctl apply {pasted(kept.path)} closes it"
        if kept.status is Status.ABANDONED and probe(Path(log_dir, LOCK_FILE_NAME)).is_held:
            return f"{log_dir} is in use, perhaps by the run that is making it"
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
    """Remove the directory of a journal with all backups. Undo is impossible afterwards.

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
        # The journal first: a journal without its backups would promise an impossible undo.
        for file in sorted(files, key=lambda each: each.name != JOURNAL_NAME):
            fs.unlink(file)
        fs.remove_dir(directory)
    fsio.sync_dir(fs, directory.parent, state=f"{directory} is removed")
