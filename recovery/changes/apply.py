"""Application of a plan that loses nothing, even if it is interrupted.

    1  under the locks, check that nothing is unfinished, that every file is as the plan expects,
       that new files can keep the owner, and that the backups fit
    2  write the plan and the backups to the directory of the journal, each synced
    3  write the whole journal with the old state, the new state, and the places of the backups
    4  create `.eoctl-unfinished` in each log dir. From here on a change may have begun
    5  remove the clean-shutdown markers, durably
    6  do the other steps in order, each content synced, then the directories
    7  note in the journal that it is applied, and remove `.eoctl-unfinished`

An error or a crash before 4 leaves everything unchanged. After 4, another `apply` completes the
plan from the journal, and `undo` undoes it. A plan that is already applied stays applied.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.changes.journals import backups, journal, listing
from recovery.changes.journals.backups import Applied, stating
from recovery.changes.journals.journal import DirectoryFacts, Journal, JournalStep, Status
from recovery.changes.plans.file_facts import digest_of_data, inspect, is_still, list_files
from recovery.changes.plans.path_limits import require_in_reach
from recovery.changes.plans.plan import (
    Action,
    absolute_path,
    read_plan,
    require_fresh,
    require_owners,
)
from recovery.changes.prepare import prepare
from recovery.changes.steps import StepState, do_step, state_of
from storage.errors import EoctlError, RefusedError, pasted
from storage.file_names import (
    LOCK_FILE_NAME,
    LOG_FILE_KINDS,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    FileKind,
    FileSuffix,
    classify,
    is_clean_marker,
)
from storage.files import fsio
from storage.files.broker_lock import take
from storage.files.fsio import require_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from recovery.changes.plans.plan import Pieces, Plan
    from storage.dirs.discovery import Selected
    from storage.files.fsio import FileSystem


# -- the end of a journal of appends: the final state of all files, so that undo knows ours.
#
# A killed run leaves a journal without an end. When it is closed later, the appended data stays.
# As after an unclean shutdown, the next start of a broker, or the next command that appends,
# recovers the partitions. If a broker has changed them already, the run cannot be undone.


_MADE_KINDS = LOG_FILE_KINDS | {FileKind.PARTITION_METADATA}


def close(fs: FileSystem, found: Journal) -> Journal:
    """Note the final state of all files, and that the run is applied.

    Raises:
        AccessError: the journal cannot be written, or a file cannot be read.
    """
    with stating(f"the change is unfinished: {listing.ways_out(found)}"):
        found = _with_ends(found)
        assert found.appends is not None
        found = journal.append_entry(fs, found, journal.encode_end(found.appends))
        found = found._replace(status=Status.APPLIED)
    with stating(f"it is applied, and eoctl undo {pasted(found.path)} undoes it"):
        listing.clear_unfinished(fs, found)
    return found


def _with_ends(found: Journal) -> Journal:
    appends = found.appends
    assert appends is not None
    # The directory of a planned partition may not exist.
    made = [each for each in appends.new_directories if Path(each).is_dir()]
    directories = {
        each: DirectoryFacts(Path(each).stat().st_mtime_ns, list_files(each))
        for each in (*found.directories, *made)
    }
    paths = [each.path for each in (*found.steps, *appends.sessions)]
    paths += new_files(found)
    ends = {each: inspect(each, touched_from=None) for each in dict.fromkeys(paths)}
    return found._replace(appends=appends._replace(ends=ends, end_directories=directories))


def new_files(found: Journal) -> Iterator[str]:
    """Yield the files that the run created in partitions."""
    assert found.appends is not None
    for directory in (*found.directories, *found.appends.new_directories):
        if directory in found.log_dirs or not Path(directory).is_dir():
            continue
        before = found.directories.get(directory)
        for name in sorted(list_files(directory)):
            if before is None or name not in before.files:
                yield str(Path(directory, name))


def close_interrupted(fs: FileSystem, found: Journal) -> Applied:
    """Close the journal of a killed run. Requires the locks of its log dirs.

    Raises:
        RefusedError: its undo has begun, or it was undone. Nothing is touched.
        AccessError: the journal cannot be written, or a file cannot be read.
    """
    assert found.appends is not None
    require_in_reach(found.touched_directories, found.log_dirs)
    listing.require_no_other(found)
    if found.status is Status.UNDOING:
        raise RefusedError(
            f"{found.path}: its undo has begun; nothing was touched",
            next_step=f"eoctl undo {pasted(found.path)}",
        )
    if found.status is not Status.UNFINISHED:
        listing.clear_unfinished(fs, found)
        if found.status is Status.UNDONE:
            raise RefusedError(f"{found.path}: it was undone", next_step="run the command again")
        return Applied(found, was_done=True)
    for each in found.directories:
        fsio.remove_leftovers(fs, each)
    if why_not_ours(found):
        found = journal.note_status(fs, found, Status.KEPT)
        listing.clear_unfinished(fs, found)
        return Applied(found, was_done=False)
    return Applied(close(fs, found), was_done=False)


def close_appends(fs: FileSystem, log_dirs: Iterable[str]) -> list[Applied]:
    """Close the journals of killed runs that append. Requires the locks of the log dirs.

    Raises:
        RefusedError: another change is unfinished there.
        AccessError, CorruptError: a journal cannot be used.
    """
    done: list[Applied] = []
    for log_dir, found in listing.unfinished_journals(log_dirs):
        if found.appends is None or found.status in {Status.UNDOING, Status.UNDONE}:
            listing.require_finished([log_dir])
        done.append(close_interrupted(fs, found))
    return done


# --- are the files ours ---------------------------------------------------------------------------


def why_not_ours(found: Journal) -> str:
    """Return why the files are not as an interrupted run or its undo left them, or "".

    A broker that ran since changed files of the log dir, which it writes at every start and stop.
    It also changed files of partitions that the run does not change.

    Raises:
        AccessError: a directory or a file cannot be read.
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
    """Return why a file is neither as before nor as the run left it, or ""."""
    if is_clean_marker(step.path):
        is_gone = inspect(step.path, touched_from=None) is None
        return "" if is_gone or is_still(step.path, step.before) else f"{step.path}: is there"
    if step.action is Action.APPEND and not has_old_bytes(step):
        return f"{step.path}: does not begin with what was there"
    return ""


def has_old_bytes(step: JournalStep) -> bool:
    """Return whether an appended file begins with its old content, as far as the digest covers it.

    Raises:
        AccessError: it cannot be read.
    """
    before = step.before
    now = inspect(step.path, touched_from=None)
    if before is None or now is None or now.file_bytes < before.file_bytes:
        return False
    return digest_of_data(step.path, before.digest_start, before.digest_end) == before.sha256


# -- apply


@contextmanager
def writing(
    selected: Sequence[Selected],
    fs: FileSystem,
    *,
    begun: Sequence[str] = (),
    broker_is_stopped: bool = False,
) -> Iterator[list[str]]:
    """Keep brokers away from the log dirs of these partitions for the length of the block.

    This includes the new log dirs `begun`, which have no partitions yet. The function refuses the
    metadata log, owners that cannot be kept, and a held lock, before it touches anything.

    Yields:
        The log dirs, by absolute path.

    Raises:
        RefusedError: as said above.
        AccessError: a directory cannot be locked.
    """
    for each in selected:
        if each.partition.name.topic == METADATA_TOPIC:
            raise RefusedError(f"{each.partition.path}: {METADATA_TOPIC} is never changed")
        require_owner(each.partition.path)
    for each_begun in begun:
        require_owner(each_begun)
    around = {str(Path(absolute_path(each.partition.path)).parent) for each in selected}
    log_dirs = sorted(around | {*begun})
    with take(log_dirs, broker_is_stopped=broker_is_stopped, fs=fs):
        yield log_dirs


def begun_by(plan: Plan) -> list[str]:
    """Return the log dirs that a plan begins."""
    names = (each.log_dir for each in plan.steps if Path(each.path).name == META_PROPERTIES_NAME)
    return [*dict.fromkeys(names)]


@contextmanager
def begun_log_dirs(
    fs: FileSystem, log_dirs: Sequence[str], *, broker_is_stopped: bool = False
) -> Iterator[None]:
    """Create the missing log dirs of `log_dirs`, because their locks need them.

    If the block fails while they are empty, they and their locks are removed: nothing was changed.
    A later undo leaves an empty log dir.

    Raises:
        AccessError, RefusedError: a log dir could not be created.
    """
    made = [each for each in log_dirs if not os.path.lexists(each)]
    lockless = [each for each in log_dirs if not os.path.lexists(Path(each, LOCK_FILE_NAME))]
    try:
        for each in made:
            parent = Path(each).parent
            fsio.make_dir_like(fs, each, parent)
            fsio.sync_dir(fs, parent)
        yield
    except BaseException:
        for each in lockless:
            with suppress(EoctlError, OSError):  # only the error before it is reported
                _leave(fs, each, is_made=each in made, broker_is_stopped=broker_is_stopped)
        raise


def _leave(fs: FileSystem, log_dir: str, *, is_made: bool, broker_is_stopped: bool) -> None:
    """Remove a begun log dir that is empty."""
    with take([log_dir], broker_is_stopped=broker_is_stopped, fs=fs):
        if [each.name for each in Path(log_dir).iterdir()] != [LOCK_FILE_NAME]:
            return
        fsio.remove_file(fs, Path(log_dir, LOCK_FILE_NAME))
        if is_made:
            fs.remove_dir(log_dir)
            fsio.sync_dir(fs, Path(log_dir).parent)


def apply_plan(
    fs: FileSystem,
    plan: Plan,
    *,
    backup_dir: str | None = None,
    has_backup: bool = True,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Applied:
    """Apply a plan with at least one step. Requires the locks of its log dirs.

    Args:
        fs: changes files.
        plan: new, interrupted, or applied already.
        backup_dir: the parent of the journal's directory. None: the default place.
        has_backup: False: the plan cannot be undone, as the user requests.
        on_bytes: called with the number of copied bytes.

    Raises:
        RefusedError: the plan is stale or leads elsewhere, there is no room, or another plan is
            unfinished. Nothing is changed.
        AccessError: the operating system refused. The next step says what is left.
    """
    require_in_reach(plan.directories, plan.log_dirs)
    for log_dir in plan.log_dirs:
        path = listing.unfinished_path(log_dir)
        if path is not None and journal.has_journal(path):
            begun = journal.read_journal(path)
            if _is_of(begun, plan):
                return _finish(fs, begun)
    listing.require_finished(plan.log_dirs)
    # A plan that only creates files keeps no old files.
    is_small = all(each.before is None for each in plan.steps)
    place = backups.choose_place(plan.log_dirs, backup_dir, is_small=is_small)
    directory = str(Path(place, plan.plan_id))
    if journal.has_journal(directory):
        earlier = journal.read_journal(directory)
        is_needed = any(listing.unfinished_path(each) == directory for each in earlier.log_dirs)
        if is_needed or not _is_of(earlier, plan):
            raise RefusedError(
                f"{directory}: is the journal of another plan with that id; nothing was touched",
                next_step="--backup-dir DIR with another place, or make the plan again",
            )
        if earlier.status in {Status.APPLIED, Status.UNDOING}:
            return _finish(fs, earlier)
        # It was undone, or it ended before its first change. Start again.
    with stating("nothing was changed"):
        require_fresh(plan)
        made_directories = plan.made_directories
        for each in plan.directories:
            if each not in made_directories:
                require_owner(each)
        require_owners(plan)
        backups.require_room(plan, place, has_backup=has_backup)
        made = prepare(fs, plan, directory, has_backup=has_backup, on_bytes=on_bytes)
    return _run(fs, plan, made, [StepState.BEFORE] * len(made.steps))


def _is_of(found: Journal, plan: Plan) -> bool:
    """Return whether a journal belongs to a plan. The id alone may be of a copy."""
    if Path(found.path).name != plan.plan_id:
        return False
    steps = [(each.action, each.path, each.after_bytes) for each in found.steps]
    return steps == [(each.action, each.path, each.after_bytes) for each in plan.steps]


def resume(
    fs: FileSystem, log_dirs: Iterable[str], command: str, arguments: Collection[dict[str, Any]]
) -> list[Applied]:
    """Complete an interrupted run of the same command. Requires the locks.

    Args:
        fs: changes files.
        log_dirs: the log dirs to search.
        command: as in the plan.
        arguments: of the plans that are ours.

    Raises:
        RefusedError: another change is unfinished there.
        AccessError, CorruptError: its journal cannot be used.
    """
    done: list[Applied] = []
    for log_dir, found in listing.unfinished_journals(log_dirs):
        is_ours = found.command == command and found.arguments in arguments
        if not is_ours or found.status not in {Status.UNFINISHED, Status.APPLIED}:
            listing.require_finished([log_dir])
        done.append(_finish(fs, found))
    return done


def finish(fs: FileSystem, path: str) -> Applied:
    """Complete an interrupted run. Requires the locks of its log dirs.

    Args:
        fs: changes files.
        path: the directory of its journal.

    Raises:
        RefusedError: files were changed since, or its undo has begun.
        AccessError, CorruptError: the journal cannot be used.
    """
    return _finish(fs, journal.read_journal(path))


def _finish(fs: FileSystem, found: Journal) -> Applied:
    path = found.path
    if found.appends is not None:
        return close_interrupted(fs, found)
    require_in_reach(found.touched_directories, found.log_dirs)
    listing.require_no_other(found)
    if found.status is Status.UNDOING:
        raise RefusedError(
            f"{path}: its undo has begun; nothing was touched",
            next_step=f"eoctl undo {pasted(path)}",
        )
    if found.status is Status.APPLIED:
        with stating(f"the plan is applied, and eoctl undo {pasted(path)} undoes it"):
            listing.clear_unfinished(fs, found)
        return _already_applied(found)
    if found.status is Status.UNDONE:
        raise RefusedError(
            f"{path}: it was undone; nothing was touched",
            next_step=f"eoctl apply {pasted(found.plan_path)} --backup-dir DIR   # or a new plan",
        )
    return _run(fs, read_plan(found.plan_path, is_kept=True), found, None)


def _already_applied(found: Journal) -> Applied:
    for each in found.steps:
        if state_of(found, each) is not StepState.AFTER:
            raise RefusedError(
                f"{each.path}: the plan was applied before, and this was changed since; nothing"
                " was touched",
                next_step="make the plan again",
            )
    return Applied(found, was_done=True)


def require_untouched(
    found: Journal,
    steps: Iterable[tuple[JournalStep, StepState]],
    listed: Callable[[str], dict[str, tuple[int, int]]] = list_files,
) -> None:
    """Check that only eoctl changed the directories of a plan since it was begun.

    Args:
        found: its journal.
        steps: the steps to check, with their states.
        listed: lists a directory.

    Raises:
        RefusedError: a file is neither as before nor as after the plan. Or an untouched file was
            changed or added, as by a running broker.
        AccessError: a directory cannot be listed.
    """
    for step, state in steps:
        if state is StepState.CHANGED:
            raise _changed(found, step.path, "was changed since the plan was begun")
    touched = {each.path for each in found.steps}
    made_directories = found.made_directories
    for directory, before in found.directories.items():
        is_not_made = directory in made_directories and not os.path.lexists(directory)
        now = {} if is_not_made else listed(directory)
        for name in sorted(now.keys() | before.files.keys()):
            path = str(Path(directory, name))
            if path in touched:
                continue
            if name not in before.files:
                raise _changed(found, path, "was not there when the plan was begun")
            if now.get(name) != before.files[name]:
                raise _changed(found, path, "was changed since the plan was begun")


def _changed(found: Journal, path: str, what: str) -> RefusedError:
    return RefusedError(
        f"{path}: {what}, as by a broker that ran; going on would lose that",
        next_step=f"eoctl journal show {pasted(found.path)}   # to keep the files as they"
        f" are, remove {listing.UNFINISHED_NAME} from the log dir if it is there",
    )


# --- the changes ----------------------------------------------------------------------------------


_WITH_CONTENT = frozenset({Action.REPLACE, Action.LINK})


def _contents(plan: Plan, found: Journal) -> dict[str, bytes | Pieces]:
    """Return the new contents by path, as the journal describes them.

    Raises:
        RefusedError: the plan next to the journal is a different plan.
    """
    planned = {each.path: each for each in plan.steps if each.action in _WITH_CONTENT}
    contents: dict[str, bytes | Pieces] = {}
    for step in found.steps:
        if step.action in _WITH_CONTENT:
            wanted = planned.get(step.path)
            if wanted is not None and wanted.after_sha256 == step.after_sha256:
                contents[step.path] = wanted.pieces or wanted.content or b""
            else:
                raise RefusedError(
                    f"{found.plan_path}: is not the plan that the journal was made for",
                    next_step=f"eoctl undo {pasted(found.path)}",
                )
    return contents


def _run(fs: FileSystem, plan: Plan, found: Journal, states: Sequence[StepState] | None) -> Applied:
    """Do the remaining steps, and close the journal. `states` is None if they are unknown."""
    with stating(f"the change is unfinished: {listing.ways_out(found)}"):
        if states is None:
            states = [state_of(found, each) for each in found.steps]
            require_untouched(found, zip(found.steps, states, strict=True))
        contents = _contents(plan, found)
        listing.set_unfinished(fs, found)
        remove_leftovers(fs, found)
        carry_out(fs, zip(found.steps, states, strict=True), contents)
        found = journal.note_status(fs, found, Status.APPLIED)
    with stating(f"the plan is applied, and eoctl undo {pasted(found.path)} undoes it"):
        listing.clear_unfinished(fs, found)
    return Applied(found, was_done=False)


def remove_leftovers(fs: FileSystem, found: Journal) -> None:
    """Remove the temporary files of an interrupted run from all directories on disk.

    Raises:
        AccessError: a directory cannot be listed, or a file cannot be removed.
    """
    made_directories = found.made_directories
    for each in found.directories:
        if each not in made_directories or Path(each).is_dir():
            fsio.remove_leftovers(fs, each)


def carry_out(
    fs: FileSystem,
    steps: Iterable[tuple[JournalStep, StepState]],
    contents: Mapping[str, bytes | Pieces],
) -> None:
    """Make the remaining changes durably.

    Raises:
        AccessError, RefusedError: a change failed.
    """
    in_order: list[tuple[JournalStep, StepState]] = []
    made, filled = set[str](), dict[str, list[tuple[JournalStep, StepState]]]()
    for each in steps:
        step = each[0]
        directory = str(Path(step.path).parent)
        if step.action is Action.MAKE:
            made.add(step.path)
        if directory in made:
            filled.setdefault(directory, []).append(each)
            continue
        if filled:
            _fill_directories(fs, in_order, filled, contents)
            in_order, filled = [], {}
        in_order.append(each)
    _fill_directories(fs, in_order, filled, contents)


def _fill_directories(
    fs: FileSystem,
    before: Iterable[tuple[JournalStep, StepState]],
    filled: Mapping[str, Iterable[tuple[JournalStep, StepState]]],
    contents: Mapping[str, bytes | Pieces],
) -> None:
    """Do the steps `before`, and then fill the new directories, several at once.

    Most of the time is waiting for the disk, which can serve several waits together. Each directory
    gets its files in their order. No broker reads a directory before all are complete.
    """
    _in_order(fs, before, contents)
    threads_count = min(fs.threads_count, len(filled))
    if threads_count < 2:
        for each in filled.values():
            _in_order(fs, each, contents)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads_count) as pool:
        waiting = [pool.submit(_in_order, fs, each, contents) for each in filled.values()]
        try:
            for future in waiting:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _in_order(
    fs: FileSystem,
    steps: Iterable[tuple[JournalStep, StepState]],
    contents: Mapping[str, bytes | Pieces],
) -> None:
    unsynced, has_log = "", False
    for step, state in steps:
        directory = str(Path(step.path).parent)
        if is_clean_marker(step.path):
            fsio.remove_file(fs, step.path)
            continue
        # The order of steps is safe for a broker that starts on some of them. The order on disk
        # must be the same: checkpoints before the log, later segments before earlier segments.
        is_log = step.path.endswith(".log")
        # Without meta.properties no broker starts. Everything else must be durable before it.
        is_last = Path(step.path).name == META_PROPERTIES_NAME
        if unsynced and (unsynced != directory or (is_log and has_log) or is_last):
            fsio.sync_dir(fs, unsynced)
            has_log = False
        unsynced, has_log = directory, has_log or is_log
        if state is not StepState.AFTER or step.action is Action.TRUNCATE:
            # Truncate again: the run before may have been killed before its fsync.
            do_step(fs, step, contents.get(step.path))
    if unsynced:
        fsio.sync_dir(fs, unsynced)
