"""Undo an applied plan, or one that was interrupted: every file as it was, to byte, mode and time.

    1  under the locks: every file is what the plan has made of it, or still what it was before, no
       other file of these directories was changed or added, and the old bytes are whole
    2  `.eoctl-unfinished` in each log dir, and the journal says that an undo has begun
    3  the steps are taken back, the last one first; each content synced, then the directories
    4  the clean-shutdown markers come back, when all else is certain; but not if another partition
       of the log dir was changed since, which they would vouch for
    5  the journal says that it is undone, `.eoctl-unfinished` goes, the directories get their times

What is interrupted is completed by another `undo`. A broker that has run since shows in the files
that it writes at every start and stop; then there is nothing that could safely be put back.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes import undo_appends
from recovery.changes.apply import remove_leftovers, require_untouched
from recovery.changes.journals import journal, unfinished
from recovery.changes.journals.applied import stating
from recovery.changes.journals.journal import BackupKind, Journal, Status
from recovery.changes.journals.order import later_applied, later_without_backup
from recovery.changes.plans.confinement import require_in_reach
from recovery.changes.plans.file_facts import UNREADABLE, list_files, listing_digest
from recovery.changes.plans.plan import Action
from recovery.changes.steps import StepState, has_whole_backup, state_of, take_back
from storage.errors import RefusedError, os_errors, pasted
from storage.file_names import is_clean_marker
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from recovery.changes.journals.journal import JournalStep
    from storage.files.fsio import FileSystem


class Undone(NamedTuple):
    """What came of it.

    `unlike` are partitions of the same log dirs that were changed since: the clean-shutdown marker
    would vouch for them, so it did not come back.
    """

    journal: Journal
    unlike: tuple[str, ...]


def undo(fs: FileSystem, path: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> Undone:
    """Take a plan back; call it under the locks of its log dirs. What is undone stays that.

    Args:
        fs: what changes files.
        path: the directory of its journal.
        on_bytes: told how many bytes were copied back.

    Raises:
        RefusedError: something was changed since, a later plan is still applied, or there is no
            backup: nothing is touched.
        AccessError, CorruptError: the journal or a file cannot be used; the next step says what
            is left.
    """
    found = journal.read_journal(path)
    if found.status is Status.UNDONE:
        with stating("the plan is undone"):
            require_in_reach(found.touched_directories, found.log_dirs)
            unfinished.clear_unfinished(fs, found)
            _restore_times(fs, found)
        return Undone(found, ())
    with stating("nothing was touched"):
        states = check_undo(found)
        unlike = tuple(
            each for each, digest in found.neighbours.items() if _is_unlike(found, each, digest)
        )
    with stating(f"the undo is unfinished: eoctl undo {pasted(found.path)} completes it"):
        unfinished.set_unfinished(fs, found)
        was_interrupted = found.status is Status.UNDOING
        if not was_interrupted:
            found = journal.note_status(fs, found, Status.UNDOING)
        remove_leftovers(fs, found)
        if found.appends is not None:
            undo_appends.restore(fs, found, on_bytes)
            if not unlike:
                undo_appends.restore_markers(fs, found, on_bytes)
        else:
            steps = [(each, states[each.path]) for each in reversed(found.steps)]
            for has_markers in (False, True)[: 1 if unlike else 2]:
                _take_back(
                    fs, found, steps, on_bytes,
                    was_interrupted=was_interrupted, has_markers=has_markers,
                )  # fmt: skip
        found = journal.note_status(fs, found, Status.UNDONE)
    with stating("the plan is undone"):
        unfinished.clear_unfinished(fs, found)
        _restore_times(fs, found)
    return Undone(found, unlike)


def _is_unlike(found: Journal, directory: str, digest: str) -> bool:
    """Whether a partition that the plan does not touch is not surely what it was when applied."""
    if directory in found.directories:
        return False
    return digest == UNREADABLE or listing_digest(directory) != digest


def _take_back(
    fs: FileSystem,
    found: Journal,
    steps: Iterable[tuple[JournalStep, StepState]],
    on_bytes: Callable[[int], None],
    *,
    was_interrupted: bool,
    has_markers: bool,
) -> None:
    """Markers come last, by themselves: with one a broker trusts everything that it finds."""
    directories: dict[str, None] = {}
    for step, state in steps:
        if is_clean_marker(step.path) is not has_markers:
            continue
        directories[str(Path(step.path).parent)] = None
        if step.backup_kind is BackupKind.LINK:
            directories[found.path] = None  # it is moved out of there
        # A cut file that looks restored may not be durable: an earlier undo was killed.
        is_sure = state is StepState.BEFORE and (
            step.action is not Action.TRUNCATE or not was_interrupted
        )
        if not is_sure:
            take_back(fs, found, step, on_bytes)
    made_directories = found.made_directories
    for directory in directories:
        if directory not in made_directories:  # that has gone
            fsio.sync_dir(fs, directory)


def check_undo(found: Journal) -> dict[str, StepState]:
    """Make sure that a plan can be undone; returns the state of each step of a plan by its path.

    Raises:
        RefusedError: as `undo`.
        AccessError: a file cannot be looked at.
    """
    require_way_back(found)
    require_in_reach(found.touched_directories, found.log_dirs)
    unfinished.require_no_other(found)
    _require_newest(found)
    if found.appends is not None:
        undo_appends.check(found)
        return {}
    states = {each.path: state_of(found, each) for each in found.steps}
    steps = [(each, states[each.path]) for each in found.steps]
    if found.status is Status.APPLIED:
        # What is not as it became has been changed, also when somebody has put the old file there.
        steps = [(e, s if s is StepState.AFTER else StepState.CHANGED) for e, s in steps]
    require_untouched(found, steps)
    for directory in sorted(found.made_directories):
        undo_appends.require_no_strangers(directory)
    for each in found.steps:
        is_needed = states[each.path] is not StepState.BEFORE or found.status is Status.UNDOING
        if is_needed and not _has_old_bytes(found, each, states[each.path]):
            raise RefusedError(
                f"{found.backup_path(each)}: is not what was kept of {each.path}",
                next_step="get that file back from elsewhere",
            )
    return states


def require_way_back(found: Journal) -> None:
    """Refuse what no undo can ever reach: old bytes are not kept, or not those of a later plan.

    Raises:
        RefusedError: so it is.
        AccessError: its place cannot be listed.
    """
    if not found.has_backup:
        raise RefusedError(f"{found.path}: was applied without a backup, so there is no way back")
    if later := later_without_backup(found):
        raise RefusedError(
            f"{found.path}: a later plan for the same log dir was applied without a backup, and"
            f" there is no way back to before that: {later}",
            next_step=f"what this one replaced is kept in {found.path}: copy from there by hand",
        )


def _has_old_bytes(found: Journal, step: JournalStep, state: StepState) -> bool:
    if state is StepState.BEFORE and step.action is not Action.TRUNCATE:
        return True  # it has been moved back
    return has_whole_backup(found, step)


def _require_newest(found: Journal) -> None:
    """Plans are undone in the reverse of their order: a later one was made on top of this one."""
    if later := later_applied(found):
        raise RefusedError(
            f"{found.path}: a later plan for the same log dir is applied: {later}",
            next_step=f"eoctl undo {pasted(later)}   # first",
        )


def _restore_times(fs: FileSystem, found: Journal) -> None:
    """Give directories their times back, as far as their files are again what they were."""
    made_directories = found.made_directories
    for path, facts in found.directories.items():
        if path in made_directories or list_files(path) != facts.files:
            continue
        real = os.path.realpath(path)
        with os_errors(path), fs.open_dir(real) as directory:
            fs.set_times(directory, atime_ns=facts.mtime_ns, mtime_ns=facts.mtime_ns)
