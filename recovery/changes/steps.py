"""One step of a journal on disk: its state, its change, and its undo. Each may run twice."""

from __future__ import annotations

import errno
import os
import stat
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals.journal import BackupKind, Status
from recovery.changes.plans.file_facts import (
    digest_of,
    digest_of_data,
    has_bytes_of,
    is_still,
    read_chunks,
)
from recovery.changes.plans.plan import Action, Pieces, read_pieces
from storage.errors import RefusedError, os_errors
from storage.files import fsio
from storage.files.fsio import FileAttributes, attributes_for, set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.changes.journals.journal import Journal, JournalStep
    from storage.files.fsio import FileSystem

_CHUNK_BYTES = 1 << 20


class StepState(Enum):
    """The state of a step on disk."""

    BEFORE = "before"  # not done, or undone
    AFTER = "after"
    PARTIAL = "partial"  # of an interrupted truncation or its undo: neither state is complete
    CHANGED = "changed"  # neither: somebody else changed it


def state_of(journal: Journal, step: JournalStep) -> StepState:
    """Compare the file with its state before and after the step.

    Raises:
        AccessError: it cannot be read.
    """
    if is_still(step.path, step.before):
        return StepState.BEFORE
    if journal.appends is not None:
        return _state_of_touched(journal, step)
    with os_errors(step.path):
        try:
            found = os.lstat(step.path)
        except FileNotFoundError:
            return StepState.AFTER if step.action is Action.REMOVE else StepState.CHANGED
    if step.action is Action.MAKE:
        return StepState.AFTER if stat.S_ISDIR(found.st_mode) else StepState.CHANGED
    if step.action is Action.REMOVE or not stat.S_ISREG(found.st_mode):
        return StepState.CHANGED
    if step.action in {Action.REPLACE, Action.LINK}:
        is_ours = (found.st_size, found.st_mtime_ns) == (step.after_bytes, step.after_mtime_ns)
        if is_ours and digest_of(step.path, 0, found.st_size) == step.after_sha256:
            return StepState.AFTER
        return StepState.CHANGED
    return _state_of_cut(journal, step, found)


def _state_of_touched(journal: Journal, step: JournalStep) -> StepState:
    """Return the state in a run that appends. Only its end shows the final state of a file."""
    assert journal.appends is not None
    if step.path not in journal.appends.ends:
        return StepState.PARTIAL
    is_ours = is_still(step.path, journal.appends.ends[step.path])
    return StepState.AFTER if is_ours else StepState.CHANGED


def _state_of_cut(journal: Journal, step: JournalStep, found: os.stat_result) -> StepState:
    """Return the state of a truncated file. A crash may separate its size, data and time."""
    before = step.before
    assert before is not None
    is_under_way = journal.status in {Status.UNFINISHED, Status.UNDOING}
    has_our_time = found.st_mtime_ns == step.after_mtime_ns
    if found.st_size == step.after_bytes:
        return StepState.AFTER if has_our_time or is_under_way else StepState.CHANGED
    if journal.status is Status.UNFINISHED:
        is_old = found.st_size == before.file_bytes and has_our_time
        digested = (before.digest_start, before.digest_end)
        if is_old and digest_of_data(step.path, *digested) == before.sha256:
            return StepState.PARTIAL
    if journal.status is Status.UNDOING:
        is_between = step.after_bytes < found.st_size <= before.file_bytes
        if is_between and _is_being_restored(journal, step):
            return StepState.PARTIAL
    return StepState.CHANGED


def _is_being_restored(journal: Journal, step: JournalStep) -> bool:
    """Return whether every byte after the truncation is the old byte, or a zero not yet written."""
    assert step.before is not None
    pos = step.after_bytes
    wanted_pos = 0
    for chunk in read_chunks(step.path, pos, step.before.file_bytes):
        end = wanted_pos + len(chunk)
        wanted = b"".join(read_chunks(journal.backup_path(step), wanted_pos, end))
        wanted = wanted.ljust(len(chunk), b"\0")
        if chunk != wanted and any(
            found not in (0, old) for found, old in zip(chunk, wanted, strict=True)
        ):
            return False
        wanted_pos = end
    return True


def do_step(fs: FileSystem, step: JournalStep, content: bytes | Pieces | None) -> None:
    """Make the change. Contents are durable, but names are not durable yet (`sync_dir`).

    Raises:
        AccessError, RefusedError: it failed.
    """
    if step.action is Action.REPLACE:
        assert content is not None
        wanted = attributes_for(Path(step.path).parent)._replace(mtime_ns=step.after_mtime_ns)
        data = read_pieces(content) if isinstance(content, Pieces) else content
        fsio.put_file(fs, step.path, data, attributes=wanted)
        return
    if step.action is Action.MAKE:
        fsio.make_dir_like(fs, step.path, Path(step.path).parent)
        return
    with os_errors(step.path):
        if step.action is Action.REMOVE:
            fs.unlink(step.path)
            return
        if step.action is Action.LINK:
            assert isinstance(content, Pieces)
            fs.link(content.ranges[0].path, step.path)
            return
        with fsio.open_alone(fs, step.path) as file:
            fs.truncate(file, step.after_bytes)
            fs.set_times(file, atime_ns=step.after_mtime_ns, mtime_ns=step.after_mtime_ns)
            fs.fsync(file)


def revert(
    fs: FileSystem, journal: Journal, step: JournalStep, on_bytes: Callable[[int], None]
) -> None:
    """Restore the old data, with mode, owner and time of the journal. No name is durable yet.

    Raises:
        AccessError, RefusedError: it failed.
    """
    backup = journal.backup_path(step)
    before = step.before
    if before is None:
        with os_errors(step.path):
            if step.action is Action.MAKE:
                fs.remove_dir(step.path)
            else:
                fs.unlink(step.path)
        return
    wanted = FileAttributes(
        uid=before.uid, gid=before.gid, mode=before.mode, mtime_ns=before.mtime_ns
    )
    if step.backup_kind is BackupKind.LINK and _is_moved_back(fs, backup, step.path, wanted):
        return
    if step.backup_kind in {BackupKind.CUT, BackupKind.END}:
        with os_errors(step.path), fsio.open_alone(fs, step.path) as file:
            if file.pos > step.after_bytes:  # an append may have overwritten zeros
                fs.truncate(file, step.after_bytes)
            file.pos = step.after_bytes
            # An appended file needs no data. A backup has no zeros at the end either.
            kept_bytes = before.file_bytes - step.after_bytes
            for chunk in read_chunks(backup, 0, kept_bytes) if kept_bytes else ():
                fs.write(file, chunk)
                on_bytes(len(chunk))
            fs.truncate(file, before.file_bytes)
            set_attributes(fs, file, wanted._replace(mtime_ns=None))
            fs.set_times(file, atime_ns=before.mtime_ns, mtime_ns=before.mtime_ns)
            fs.fsync(file)
    else:
        chunks = read_chunks(backup, 0, before.file_bytes)
        fsio.put_file(fs, step.path, chunks, attributes=wanted)
        on_bytes(before.file_bytes)


def _is_moved_back(fs: FileSystem, backup: str, path: str, wanted: FileAttributes) -> bool:
    """Move a file back, or return False if it must be copied: another disk, or another owner."""
    if not _has_attributes(fs, backup, wanted):
        return False
    with os_errors(path):
        try:
            fs.rename(backup, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
    return True


def _has_attributes(fs: FileSystem, backup: str, wanted: FileAttributes) -> bool:
    """Give a backup its former mode, owner and time, before it gets its former name."""
    with os_errors(backup):
        found = os.lstat(backup)
    mode = stat.S_IMODE(found.st_mode)
    if wanted == (found.st_uid, found.st_gid, mode, found.st_mtime_ns):
        return True
    if found.st_nlink > 1:  # another hard link must not change
        return False
    try:
        with fs.open_existing(backup) as file:
            set_attributes(fs, file, wanted)
            fs.fsync(file)
    except (OSError, RefusedError):
        return False
    return True


def has_whole_backup(journal: Journal, step: JournalStep) -> bool:
    """Return whether the backup is complete and unchanged.

    Raises:
        AccessError: it cannot be read.
    """
    if step.backup_kind is BackupKind.NONE:
        return step.before is None
    path = journal.backup_path(step)
    if step.backup_kind is BackupKind.LINK or not Path(path).exists():
        return step.before is not None and has_bytes_of(path, step.before)
    digest = sha256()
    for chunk in read_chunks(path, 0, 1 << 62):
        digest.update(chunk)
    return digest.hexdigest() == step.backup_sha256
