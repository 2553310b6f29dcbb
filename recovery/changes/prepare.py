"""The work before the first change of a plan: backups, plan and journal become durable.

`recovery.changes.journals.journal` promises the order: backups and plan, then the journal under its
final name, then `.eoctl-unfinished` in the log dirs. Each is durable before the next becomes valid.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals import backups, journal, listing
from recovery.changes.journals.journal import (
    JOURNAL_NAME,
    PLAN_NAME,
    BackupKind,
    DirectoryFacts,
    Journal,
    JournalStep,
    Status,
)
from recovery.changes.journals.listing import next_order
from recovery.changes.plans.file_facts import list_files, listing_digest
from recovery.changes.plans.plan import Action, encode_plan
from storage.errors import EoctlError, os_errors
from storage.file_names import FileKind, classify, is_clean_marker, parse_partition_name
from storage.files import fsio
from storage.files.fsio import attributes_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.changes.plans.plan import Plan, Step
    from storage.files.fsio import FileSystem

_NOTHING_THERE = DirectoryFacts(0, {})  # for a directory that the plan creates
# The mtime of files that eoctl writes: even seconds, which every file system can store.
_MTIME_STEP_NS = 2_000_000_000


def prepare(
    fs: FileSystem,
    plan: Plan,
    directory: str,
    *,
    has_backup: bool,
    on_bytes: Callable[[int], None],
) -> Journal:
    """Create the directory of a journal with all its files, and flag the log dirs as unfinished.

    On an error the directory is removed, and nothing was changed. A plan that existed before stays:
    it may be the user's only copy.

    Args:
        fs: changes files.
        plan: fresh.
        directory: to create. Files of an earlier run that never began are removed.
        has_backup: False: no old data is kept.
        on_bytes: called with the number of copied bytes.

    Raises:
        AccessError, RefusedError: it could not be created.
    """
    place = str(Path(directory).parent)
    make_directory(fs, directory, plan.log_dirs[0])
    has_plan = os.path.lexists(Path(directory, PLAN_NAME))
    _clear(fs, directory)  # files of a run that was killed before its journal was whole
    try:
        made = _fill(fs, plan, directory, has_backup=has_backup, on_bytes=on_bytes)
        fsio.sync_dir(fs, place)
        listing.set_unfinished(fs, made)
    except BaseException:
        if not any(listing.unfinished_path(each) == directory for each in plan.log_dirs):
            with suppress(EoctlError, OSError):
                _clear(fs, directory)
                if not has_plan:
                    with suppress(FileNotFoundError):
                        fs.unlink(Path(directory, PLAN_NAME))
                    fs.remove_dir(directory)
        raise
    return made


def make_directory(fs: FileSystem, directory: str, log_dir: str) -> None:
    """Create the directory of a journal, and its place like the log dir. No name is durable yet.

    Raises:
        AccessError, RefusedError: it could not be created.
    """
    place = str(Path(directory).parent)
    if not Path(place).is_dir():  # the user's own place keeps its mode and owner
        fsio.make_dir_like(fs, place, log_dir)
    fsio.sync_dir(fs, Path(place).parent)
    fsio.make_dir_like(fs, directory, place)


def _clear(fs: FileSystem, directory: str) -> None:
    """Remove the journal and then the backups: without the journal the backups are invalid."""
    files = journal.require_only_ours(directory)
    with os_errors(directory):
        for file in sorted(files, key=lambda each: each.name != JOURNAL_NAME):
            if file.name == PLAN_NAME:
                continue
            fs.unlink(file)
            if file.name == JOURNAL_NAME:
                fs.fsync_dir(directory)


def _fill(
    fs: FileSystem,
    plan: Plan,
    directory: str,
    *,
    has_backup: bool,
    on_bytes: Callable[[int], None],
) -> Journal:
    now_ns = time.time_ns()
    path = Path(directory, PLAN_NAME)
    if os.path.lexists(path):
        fsio.replace_file(fs, path, encode_plan(plan))
    else:
        fsio.create_file(fs, path, encode_plan(plan), attributes_for(directory))
    steps = []
    for number, step in enumerate(plan.steps):
        kept = backups.Backup(BackupKind.NONE)
        if has_backup:
            name = f"{number:05d}-{Path(step.path).name}"
            kept = backups.back_up(fs, step, directory, name, on_bytes)
        steps.append(journal_step(step, kept, now_ns))
    made_directories = plan.made_directories
    made = Journal(
        path=directory,
        plan_id=plan.plan_id,
        command=plan.command,
        arguments=plan.arguments,
        log_dirs=plan.log_dirs,
        has_backup=has_backup,
        applied_at_ms=now_ns // 1_000_000,
        order=next_order(str(Path(directory).parent), now_ns // 1_000_000),
        directories={
            each: _NOTHING_THERE if each in made_directories else directory_facts(each)
            for each in plan.directories
        },
        neighbours=_neighbours(plan),
        steps=tuple(steps),
        status=Status.UNFINISHED,
        valid_bytes=0,
    )
    data = journal.encode_journal(made)
    # Also syncs the names of the backups, before the journal becomes valid.
    fsio.replace_file(fs, Path(directory, JOURNAL_NAME), data)
    return made._replace(valid_bytes=len(data))


def journal_step(step: Step, kept: backups.Backup, now_ns: int) -> JournalStep:
    """Return a step with the place of its backup, and the modification time of its file."""
    mtime_ns = now_ns - now_ns % _MTIME_STEP_NS
    kind = classify(Path(step.path).name).kind
    if step.before is not None and kind is FileKind.OFFSET_CHECKPOINT:
        # The last write of the checkpoints shows when the broker stopped: `--now dir`. Add a
        # second, so that copies by size and time (rsync) include the new file.
        mtime_ns = step.before.mtime_ns + 1_000_000_000
    if step.action is Action.LINK and step.pieces is not None:
        [source] = step.pieces.ranges
        with os_errors(source.path):
            mtime_ns = os.lstat(source.path).st_mtime_ns  # it belongs to the file, not to the name
    return JournalStep(
        action=step.action,
        path=step.path,
        before=step.before,
        after_bytes=step.after_bytes,
        after_mtime_ns=mtime_ns,
        after_sha256=step.after_sha256,
        backup=kept.name,
        backup_kind=kept.kind,
        backup_sha256=kept.sha256,
    )


def directory_facts(path: str) -> DirectoryFacts:
    """Return the current facts of a directory. Raises AccessError."""
    with os_errors(path):
        mtime_ns = Path(path).stat().st_mtime_ns
        return DirectoryFacts(mtime_ns, list_files(path))


def _neighbours(plan: Plan) -> dict[str, str]:
    found: dict[str, str] = {}
    for step in plan.steps:
        if is_clean_marker(step.path):
            found.update(neighbours_in(step.directory))
    return found


def neighbours_in(log_dir: str) -> dict[str, str]:
    """Return the digests of all partitions that a removed clean-shutdown marker vouches for."""
    with os_errors(log_dir), os.scandir(log_dir) as entries:
        paths = sorted(entry.path for entry in entries if _is_partition(entry))
    return {path: listing_digest(path) for path in paths}


def _is_partition(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a directory with a partition's name, which the marker covers."""
    if parse_partition_name(entry.name) is None:
        return False
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
