"""The end of a journal of appends: what became of all files, so that undo knows what is ours.

A run that was killed leaves a journal without an end. What it wrote stays when it is closed later,
and counts as every log that was not closed: the next start of a broker recovers the partitions, and
so does the next command that appends. If a broker has gone on with them already, there is no way
back any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals import journal, unfinished
from recovery.changes.journals.applied import Applied, stating
from recovery.changes.journals.journal import DirectoryFacts, Status
from recovery.changes.plans.confinement import require_in_reach
from recovery.changes.plans.file_facts import digest_of_data, is_still, list_files, look
from recovery.changes.plans.plan import Action
from storage.errors import RefusedError, pasted
from storage.file_names import LOG_FILE_KINDS, FileKind, FileSuffix, classify, is_clean_marker
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.changes.journals.journal import Journal, JournalStep
    from storage.files.fsio import FileSystem

_MADE_KINDS = LOG_FILE_KINDS | {FileKind.PARTITION_METADATA}


def close(fs: FileSystem, found: Journal) -> Journal:
    """Note what became of all files, and that the run is applied.

    Raises:
        AccessError: the journal cannot be written, or a file not be looked at.
    """
    with stating(f"the change is unfinished: {unfinished.ways_out(found)}"):
        found = _with_ends(found)
        assert found.appends is not None
        found = journal.append_entry(fs, found, journal.encode_end(found.appends))
        found = found._replace(status=Status.APPLIED)
    with stating(f"it is applied, and eoctl undo {pasted(found.path)} takes it back"):
        unfinished.clear_unfinished(fs, found)
    return found


def _with_ends(found: Journal) -> Journal:
    appends = found.appends
    assert appends is not None
    # Of a partition that was not made after all, nothing is there.
    made = [each for each in appends.new_directories if Path(each).is_dir()]
    directories = {
        each: DirectoryFacts(Path(each).stat().st_mtime_ns, list_files(each))
        for each in (*found.directories, *made)
    }
    paths = [each.path for each in (*found.steps, *appends.sessions)]
    paths += new_files(found)
    ends = {each: look(each, touched_from=None) for each in dict.fromkeys(paths)}
    return found._replace(appends=appends._replace(ends=ends, end_directories=directories))


def new_files(found: Journal) -> Iterator[str]:
    """The files of the partitions that were not there before the run."""
    assert found.appends is not None
    for directory in (*found.directories, *found.appends.new_directories):
        if directory in found.log_dirs or not Path(directory).is_dir():
            continue
        before = found.directories.get(directory)
        for name in sorted(list_files(directory)):
            if before is None or name not in before.files:
                yield str(Path(directory, name))


def close_interrupted(fs: FileSystem, found: Journal) -> Applied:
    """Close the journal of a run that was killed; call it under the locks of its log dirs.

    Raises:
        RefusedError: its undo has begun, or it was undone; nothing is touched.
        AccessError: the journal cannot be written, or a file not be looked at.
    """
    assert found.appends is not None
    require_in_reach(found.touched_directories, found.log_dirs)
    unfinished.require_no_other(found)
    if found.status is Status.UNDOING:
        raise RefusedError(
            f"{found.path}: its undo has begun; nothing was touched",
            next_step=f"eoctl undo {pasted(found.path)}",
        )
    if found.status is not Status.UNFINISHED:
        unfinished.clear_unfinished(fs, found)
        if found.status is Status.UNDONE:
            raise RefusedError(f"{found.path}: it was undone", next_step="run the command again")
        return Applied(found, was_done=True)
    for each in found.directories:
        fsio.remove_leftovers(fs, each)
    if why_not_ours(found):
        found = journal.note_status(fs, found, Status.KEPT)
        unfinished.clear_unfinished(fs, found)
        return Applied(found, was_done=False)
    return Applied(close(fs, found), was_done=False)


def close_appends(fs: FileSystem, log_dirs: Iterable[str]) -> list[Applied]:
    """Close what killed runs that append have left in log dirs; call it under their locks.

    Raises:
        RefusedError: something else is unfinished there.
        AccessError, CorruptError: its journal cannot be used.
    """
    done: list[Applied] = []
    for log_dir, found in unfinished.unfinished_journals(log_dirs):
        if found.appends is None or found.status in {Status.UNDOING, Status.UNDONE}:
            unfinished.require_finished([log_dir])
        done.append(close_interrupted(fs, found))
    return done


# --- is it ours -----------------------------------------------------------------------------------


def why_not_ours(found: Journal) -> str:
    """Why what is there was not left by an interrupted run, or by its undo; "": it was.

    A broker that ran since shows in the files of the log dir, which it writes at every start and
    stop, and in files of partitions that the run does not change.

    Raises:
        AccessError: a directory or a file cannot be looked at.
    """
    touched = {each.path for each in found.steps}
    for directory, before in found.directories.items():
        now = list_files(directory)
        for name in sorted(now.keys() | before.files.keys()):
            path = str(Path(directory, name))
            if path in touched or now.get(name) == before.files.get(name):
                continue
            if name in before.files:
                return f"{path}: was changed"
            if directory in found.log_dirs or not _may_be_made(name):
                return f"{path}: was not there"
    for step in found.steps:
        if reason := _why_not_left(step):
            return reason
    return ""


def _may_be_made(name: str) -> bool:
    found = classify(name)
    return found.kind in _MADE_KINDS and found.suffix is FileSuffix.NONE


def _why_not_left(step: JournalStep) -> str:
    """Of one file, which is what it was or what the run made of it."""
    if is_clean_marker(step.path):
        is_gone = look(step.path, touched_from=None) is None
        return "" if is_gone or is_still(step.path, step.before) else f"{step.path}: is there"
    if step.action is Action.APPEND and not has_old_bytes(step):
        return f"{step.path}: does not begin with what was there"
    return ""


def has_old_bytes(step: JournalStep) -> bool:
    """Whether a file that was appended to begins with what it was, as far as its digest tells.

    Raises:
        AccessError: it cannot be read.
    """
    before = step.before
    now = look(step.path, touched_from=None)
    if before is None or now is None or now.file_bytes < before.file_bytes:
        return False
    return digest_of_data(step.path, before.digest_start, before.digest_end) == before.sha256
