"""The journal of a run that appends, for `undo`. It grows with the changed files.

Before the first change of a partition, the journal durably gets an entry about it. The entry has
the files with sizes and times, and the end of the last segment. It also names the backups of files
that are replaced. These backups are hard links: indexes, snapshots and checkpoints always become
new files. An append needs no backup: `undo` truncates the file to its former end, and removes new
files. The cost per batch is therefore constant, whatever its size.

    1  backups, then the journal with its first entry, whole; then `.eoctl-unfinished`
    2  a further entry for each further partition, or file that was not expected to change
    3  at the end the final state of all files, and that the run is applied; `.eoctl-unfinished`
       is removed

A recovery before the first append belongs to the same journal. The journal also keeps the file of
a session, which lies elsewhere. Otherwise the session would still list the undone records.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.apply import carry_out, close
from recovery.changes.journals import backups, journal, listing
from recovery.changes.journals.backups import stating
from recovery.changes.journals.journal import (
    JOURNAL_NAME,
    Appends,
    BackupKind,
    Journal,
    JournalStep,
    Status,
)
from recovery.changes.journals.listing import next_order
from recovery.changes.plans.file_facts import inspect
from recovery.changes.plans.path_limits import require_in_reach
from recovery.changes.plans.plan import (
    Action,
    Step,
    absolute_path,
    new_id,
    require_fresh,
    require_owners,
)
from recovery.changes.prepare import directory_facts, journal_step, make_directory, neighbours_in
from recovery.changes.steps import StepState
from storage.errors import EoctlError, os_errors
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    LEADER_EPOCHS_NAME,
    FileKind,
    FileSuffix,
    classify,
    is_clean_marker,
)
from storage.files import fsio
from storage.files.fsio import require_own_file, require_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.changes.journals.journal import DirectoryFacts
    from recovery.changes.plans.plan import Plan
    from storage.files.fsio import FileSystem

_NOTHING = Appends(new_directories={}, sessions=(), ends={}, end_directories={})


class AppendJournal:
    """The `Keeper` of a partition's store. It creates no journal until a file changes.

    The caller holds the locks of the log dirs. No other change is unfinished in them.

    Args:
        fs: changes files.
        log_dirs: absolute paths.
        command: the name in the plan id.
        backup_dir: the parent of the journal's directory. None: the default place.
        has_backup: False: no old data is kept, and the run cannot be undone.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dirs: Sequence[str],
        command: str,
        *,
        backup_dir: str | None = None,
        has_backup: bool = True,
    ) -> None:
        self.fs = fs
        self._log_dirs = tuple(map(absolute_path, log_dirs))
        self._command = command
        self._backup_dir = backup_dir
        self._has_backup = has_backup
        self._journal: Journal | None = None
        self._kept: set[str] = set()  # paths of files
        self._open: set[str] = set()  # partitions that are not closed
        self._backups_count = 0

    # --- calls of a store ---

    def will_begin(self, directory: str, begun_as: str | None) -> None:
        """Keep the state of a partition before its first change.

        Raises:
            RefusedError: it is out of reach, or the owner of its files could not be restored.
            AccessError: it cannot be read, or the journal cannot be written.
        """
        directory = absolute_path(directory)
        if not self._is_begun(directory):
            self._touch(_Touch(directory, None if begun_as is None else absolute_path(begun_as)))
        self._open.add(directory)

    def will_append(self, path: str) -> None:
        """Keep the end of a `.log`. Raises as `will_begin`."""
        self._keep(path, Action.APPEND)

    def will_replace(self, path: str) -> None:
        """Keep a file. Raises as `will_begin`."""
        self._keep(path, Action.REPLACE)

    def has_ended(self, directory: str) -> None:
        """Note that a partition is closed."""
        self._open.discard(absolute_path(directory))

    def _keep(self, path: str, action: Action) -> None:
        path = absolute_path(path)
        if path in self._kept or self._journal is None:
            return
        before = self._journal.directories.get(str(Path(path).parent))
        if before is not None and Path(path).name in before.files:
            touch = _Touch(str(Path(path).parent), None)
            touch.is_known = True
            touch.steps.append(_step(action, path))
            self._touch(touch)

    # --- calls of a command ---

    def recover(
        self, directory: str, plan: Plan, on_bytes: Callable[[int], None] = lambda _: None
    ) -> None:
        """Apply the recovery of a partition as a part of this run.

        Raises:
            RefusedError, AccessError: the next step says what is left.
        """
        with stating("nothing was changed"):
            require_fresh(plan)
            require_owners(plan)
            place = backups.choose_place(plan.log_dirs, self._backup_dir)
            backups.require_room(plan, place, has_backup=self._has_backup)
        directory = absolute_path(directory)
        touch = _Touch(directory, None)
        # The entry of the log dir keeps the marker.
        touch.steps += [e for e in plan.steps if not is_clean_marker(e.path)]
        made = self._touch(touch, on_bytes)
        self._open.add(directory)
        fsio.remove_leftovers(self.fs, directory)
        for log_dir in plan.log_dirs:
            fsio.remove_clean_marker(self.fs, log_dir)
        contents = {
            each.path: each.pieces or each.content or b""
            for each in plan.steps
            if each.action is Action.REPLACE
        }
        planned = {each.path for each in touch.steps}
        steps = [(each, StepState.BEFORE) for each in made.steps if each.path in planned]
        with stating(f"the change is unfinished: {listing.ways_out(self._begun)}"):
            carry_out(self.fs, steps, contents)
        self._open.discard(directory)

    def keep_session(self, path: str) -> None:
        """Keep the file of a session before it is first replaced.

        Raises:
            RefusedError, AccessError: as `will_begin`.
        """
        path = absolute_path(path)
        if path not in self._kept:
            touch = _Touch("", None)
            touch.session = path
            self._touch(touch)

    @property
    def journal(self) -> Journal | None:
        """The current journal. None: nothing was changed."""
        return self._journal

    def close(self) -> Journal | None:
        """Close the journal, and return it, or None if nothing was changed.

        If a partition could not be closed, the status of the journal stays unfinished.

        Raises:
            AccessError: the journal cannot be written, or a file cannot be read.
        """
        if self._journal is None:
            return None
        if not self._open and self._journal.status is Status.UNFINISHED:
            self._journal = close(self.fs, self._begun)
        return self._journal

    # --- the journal ---

    @property
    def _begun(self) -> Journal:
        """The journal as on disk, with all entries."""
        assert self._journal is not None
        return self._journal

    def _is_begun(self, directory: str) -> bool:
        if self._journal is None or self._journal.appends is None:
            return False
        return directory in {*self._journal.directories, *self._journal.appends.new_directories}

    def _touch(self, touch: _Touch, on_bytes: Callable[[int], None] = lambda _: None) -> Journal:
        """Write the coming change into the journal, and return that part of it."""
        with stating("nothing was changed" if self._journal is None else _WRITTEN):
            part = self._describe(touch)
            if self._journal is None:
                part = self._begin(part, on_bytes)
            else:
                backups_count = self._backups_count
                part = self._with_backups(part, self._journal.path, on_bytes)
                if self._backups_count > backups_count:
                    fsio.sync_dir(self.fs, self._journal.path)
                entry = journal.encode_touch(part)
                self._journal = journal.append_entry(self.fs, self._journal, entry)
                self._journal = _joined(self._journal, part)
        appends = part.appends or _NOTHING
        self._kept.update(each.path for each in (*part.steps, *appends.sessions))
        return part

    def _begin(self, part: Journal, on_bytes: Callable[[int], None]) -> Journal:
        """Write the first entries, and flag the log dirs. On an error, remove the new journal."""
        place = backups.choose_place(self._log_dirs, self._backup_dir, is_small=True)
        plan_id = new_id(self._command)
        directory = str(Path(place, plan_id))
        make_directory(self.fs, directory, self._log_dirs[0])
        try:
            part = self._with_backups(part, directory, on_bytes)
            order = next_order(place, part.applied_at_ms)
            made = part._replace(path=directory, plan_id=plan_id, order=order)
            data = journal.encode_begin(made) + journal.encode_touch(made)
            # Also syncs the names of the backups, before the journal becomes valid.
            fsio.replace_file(self.fs, Path(directory, JOURNAL_NAME), data)
            fsio.sync_dir(self.fs, place)
            made = made._replace(valid_bytes=len(data))
            listing.set_unfinished(self.fs, made)
        except BaseException:
            if not any(listing.unfinished_path(each) == directory for each in self._log_dirs):
                self._discard(directory)
            raise
        self._journal = made
        return part

    def _discard(self, directory: str) -> None:
        with suppress(EoctlError, OSError):
            files = journal.require_only_ours(directory)
            for each in sorted(files, key=lambda file: file.name != JOURNAL_NAME):
                self.fs.unlink(each)
            self.fs.remove_dir(directory)

    def _describe(self, touch: _Touch) -> Journal:
        """Describe the current state of all that a change touches, without backups."""
        directories: dict[str, DirectoryFacts] = {}
        neighbours: dict[str, str] = {}
        steps: list[Step] = []
        made: dict[str, str] = {}
        log_dir = str(Path(touch.directory).parent) if touch.directory else self._log_dirs[0]
        if not self._is_begun(log_dir):
            require_in_reach([log_dir], self._log_dirs)
            directories[log_dir] = directory_facts(log_dir)
            marker = str(Path(log_dir, CLEAN_SHUTDOWN_NAME))
            if os.path.lexists(marker):
                steps.append(_step(Action.REMOVE, marker))
                neighbours = neighbours_in(log_dir)
        steps += touch.steps
        if touch.begun_as is not None:
            require_owner(log_dir)
            made[touch.directory] = touch.begun_as
        elif touch.directory and not touch.is_known:
            require_in_reach([touch.directory], self._log_dirs)
            require_owner(touch.directory)
            directories[touch.directory] = directory_facts(touch.directory)
            planned = {each.path for each in touch.steps}
            steps += [each for each in _end_of(touch.directory) if each.path not in planned]
        for each in steps:
            if each.before is not None:
                require_own_file(each.path, each.before.uid, each.before.gid)
        session = () if touch.session is None else (_session_step(touch.session),)
        return Journal(
            path="",
            plan_id="",
            command=self._command,
            arguments={},
            log_dirs=self._log_dirs,
            has_backup=self._has_backup,
            applied_at_ms=time.time_ns() // 1_000_000,
            order=0,
            directories=directories,
            neighbours=neighbours,
            steps=tuple(_unkept(each) for each in steps),
            status=Status.UNFINISHED,
            valid_bytes=0,
            appends=_NOTHING._replace(new_directories=made, sessions=session),
        )

    def _with_backups(
        self, part: Journal, directory: str, on_bytes: Callable[[int], None]
    ) -> Journal:
        appends = part.appends
        if not self._has_backup or appends is None:
            return part
        steps = [self._backed_up(each, directory, on_bytes) for each in part.steps]
        sessions = [self._backed_up(each, directory, on_bytes) for each in appends.sessions]
        return part._replace(steps=tuple(steps), appends=appends._replace(sessions=tuple(sessions)))

    def _backed_up(
        self, step: JournalStep, directory: str, on_bytes: Callable[[int], None]
    ) -> JournalStep:
        if step.action is Action.APPEND:
            return step._replace(backup_kind=BackupKind.END)
        name = f"{self._backups_count:05d}-{Path(step.path).name}"
        self._backups_count += 1
        wanted = Step(
            action=step.action, path=step.path, before=step.before, after_bytes=step.after_bytes
        )
        kept = backups.back_up(self.fs, wanted, directory, name, on_bytes)
        return step._replace(backup=kept.name, backup_kind=kept.kind, backup_sha256=kept.sha256)


_WRITTEN = "what was written before that is there"


class _Touch:
    """A coming change: of a partition, of a file in a known partition, or of a session."""

    def __init__(self, directory: str, begun_as: str | None) -> None:
        self.directory = directory
        self.begun_as = begun_as
        self.is_known = False
        self.steps: list[Step] = []
        self.session: str | None = None


def _joined(whole: Journal, part: Journal) -> Journal:
    before, more = whole.appends or _NOTHING, part.appends or _NOTHING
    return whole._replace(
        directories={**whole.directories, **part.directories},
        neighbours={**whole.neighbours, **part.neighbours},
        steps=(*whole.steps, *part.steps),
        appends=before._replace(
            new_directories={**before.new_directories, **more.new_directories},
            sessions=(*before.sessions, *more.sessions),
        ),
    )


def _step(action: Action, path: str) -> Step:
    before = inspect(path, touched_from=0 if action is Action.REPLACE else None)
    after_bytes = before.file_bytes if before is not None and action is Action.APPEND else 0
    return Step(action=action, path=path, before=before, after_bytes=after_bytes)


def _session_step(path: str) -> JournalStep:
    return _unkept(Step(Action.REPLACE, path, inspect(path)))


def _unkept(step: Step) -> JournalStep:
    return journal_step(step, backups.Backup(BackupKind.NONE), time.time_ns())


def _end_of(directory: str) -> list[Step]:
    """Return steps for the files that an append changes: the last segment and the leader epochs.

    Raises:
        RefusedError: a file is a link or a directory, which a change would destroy.
    """
    with os_errors(directory):
        names = [classify(each) for each in sorted(e.name for e in Path(directory).iterdir())]
    plain = [each for each in names if each.suffix is FileSuffix.NONE]
    last = max((each.offset or 0 for each in plain if each.kind is FileKind.LOG), default=None)
    steps = []
    for each in plain:
        path = str(Path(directory, each.name))
        if each.kind is FileKind.LOG and each.offset == last:
            steps.append(_step(Action.APPEND, path))
        elif each.name == LEADER_EPOCHS_NAME or (each.kind in _INDEXES and each.offset == last):
            steps.append(_step(Action.REPLACE, path))
    return steps


_INDEXES = frozenset({FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX})
