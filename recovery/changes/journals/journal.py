"""The journal of an applied plan: the old state, the new state, and the places of the backups.

A directory PLACE/PLAN-ID holds all files of one plan:

    plan.json   the plan itself, from which a second run can complete it
    journal     the data that `undo` needs to restore everything (eoctl-journal(5))
    NNNNN-NAME  a backup: a hard link of a whole file, its copy, or a copy of a truncated range

A run that appends (`recovery.changes.append_journal`) has no plan. Its journal grows by an entry
before the first change of each partition. At its end it has the final state of all files.
"""

from __future__ import annotations

import json
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from recovery.changes.plans.file_facts import (
    FileFacts,
    bool_of,
    number_of,
    plain_object,
    text_of,
    time_ns_of,
)
from recovery.changes.plans.path_limits import (
    begins_a_log_dir,
    why_no_partition,
    why_not_confined,
    why_not_made,
)
from recovery.changes.plans.plan import PLAN_ID, Action
from storage.checksum import crc32c
from storage.dirs.state_file import StateSchema
from storage.errors import AccessError, CorruptError, RefusedError, os_errors
from storage.file_names import DirState, parse_partition_name
from storage.files import fsio
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from storage.files.fsio import FileSystem

JOURNAL_NAME = "journal"
PLAN_NAME = "plan.json"
BACKUP_NAME = re.compile(r"[0-9]{5,}-[^/\0]+")
PLACE_SUFFIX = ".eoctl"
CHECK_ID = "JNL-1"
MAX_JOURNAL_BYTES = 1 << 28  # enough for a million files


class Status(StrEnum):
    """The state of a journal."""

    ABANDONED = "abandoned"  # no journal: the run ended before its first change
    UNFINISHED = "unfinished"  # changes have begun, or may have
    APPLIED = "applied"
    UNDOING = "undoing"  # an undo has begun
    UNDONE = "undone"
    KEPT = "kept"  # of appends: interrupted, then changed by a broker; it cannot be undone


class BackupKind(StrEnum):
    """The kind of backup for a step."""

    NONE = "none"  # no old data, or the user wanted no backup
    LINK = "link"  # a hard link of the whole file
    COPY = "copy"  # of the whole file
    CUT = "cut"  # of the bytes from `after_bytes` on, without many zeros at their end
    END = "end"  # not needed: the file only grows, and is truncated to its former end


class JournalStep(NamedTuple):
    """One change. Names are as in `recovery.changes.plans.plan.Step`.

    Attributes:
        after_mtime_ns: modification time of the new file.
        after_sha256: for REPLACE, of the whole content. Else "".
        backup: name of the file next to the journal, or "" for NONE.
        backup_sha256: of a copy. Else "".
    """

    action: Action
    path: str
    before: FileFacts | None
    after_bytes: int
    after_mtime_ns: int
    after_sha256: str
    backup: str
    backup_kind: BackupKind
    backup_sha256: str


class DirectoryFacts(NamedTuple):
    """A directory before its first change. `files` has size and mtime_ns of each file by name."""

    mtime_ns: int
    files: dict[str, tuple[int, int]]


class Appends(NamedTuple):
    """Additional data in the journal of a run that appends.

    Attributes:
        new_directories: new partitions, with the path under which each was begun.
        sessions: files of sessions, which lie outside of the log dirs.
        ends: the final state of all changed or new files. Empty before the end.
        end_directories: by path, the contents of the directories at the end.
    """

    new_directories: dict[str, str]
    sessions: tuple[JournalStep, ...]
    ends: dict[str, FileFacts | None]
    end_directories: dict[str, DirectoryFacts]


class Journal(NamedTuple):
    """A journal as read.

    Attributes:
        path: the directory of plan, journal and backups.
        order: as `applied_at_ms`, but above the order of all journals in the same place. Undo uses
            it because the clock may step back.
        directories: by path, the directories with touched files.
        neighbours: by path, a digest of the listing of each partition of the log dirs whose
            clean-shutdown marker is removed. The marker vouches for these partitions too.
        valid_bytes: size of the journal without a torn last entry.
        appends: None for a plan.
    """

    path: str
    plan_id: str
    command: str
    arguments: dict[str, Any]
    log_dirs: tuple[str, ...]
    has_backup: bool
    applied_at_ms: int
    order: int
    directories: dict[str, DirectoryFacts]
    neighbours: dict[str, str]
    steps: tuple[JournalStep, ...]
    status: Status
    valid_bytes: int
    appends: Appends | None = None

    @property
    def plan_path(self) -> str:
        """The path of the plan next to the journal."""
        return str(Path(self.path, PLAN_NAME))

    @property
    def touched_directories(self) -> list[str]:
        """All directories with touched files, each once, log dirs included."""
        parents = (str(Path(each.path).parent) for each in self.steps)
        grown: list[str] = []
        if self.appends is not None:
            grown = [*self.directories, *self.appends.new_directories]
        return list(dict.fromkeys([*self.log_dirs, *parents, *grown]))

    @property
    def made_directories(self) -> frozenset[str]:
        """The directories that a plan creates."""
        return frozenset(each.path for each in self.steps if each.action is Action.MAKE)

    def backup_path(self, step: JournalStep) -> str:
        """Return the path of the backup of a step."""
        return str(Path(self.path, step.backup))


_HOLDS = (Journal, JournalStep, DirectoryFacts, Appends, FileFacts, Status, Action, BackupKind)
SCHEMA = StateSchema("journal of a plan", 3, _HOLDS)
APPEND_SCHEMA = StateSchema("journal of a run that appends", 4, _HOLDS)
# Versions 1 and 2 differ only in lacking the actions `make` and `link`.
_OF_PLANS, _OF_APPENDS = (1, SCHEMA.version), (2, APPEND_SCHEMA.version)

# --- the file -------------------------------------------------------------------------------------


def _frame(entry: dict[str, Any]) -> bytes:
    # Times of more than 64 bits are text, because msgpack has no numbers for them.
    payload = msgpack.packb(entry, unicode_errors="surrogateescape", default=str)
    frame: bytes = msgpack.packb([payload, crc32c(payload)])
    return frame


def encode_journal(journal: Journal) -> bytes:
    """Return the file of a plan before the first change: an entry for the plan, one per step."""
    begin = {
        **_begin_to_map(journal, SCHEMA.version),
        "directories": {path: [*facts] for path, facts in journal.directories.items()},
        "neighbours": journal.neighbours,
        "steps_count": len(journal.steps),
    }
    steps = [{"entry": "step", **step_to_map(each)} for each in journal.steps]
    return b"".join(map(_frame, [begin, *steps]))


def _begin_to_map(journal: Journal, version: int) -> dict[str, Any]:
    return {
        "entry": "begin",
        "version": version,
        "plan_id": journal.plan_id,
        "command": journal.command,
        "arguments": json.dumps(journal.arguments),
        "log_dirs": journal.log_dirs,
        "has_backup": journal.has_backup,
        "applied_at_ms": journal.applied_at_ms,
        "order": journal.order,
    }


def step_to_map(step: JournalStep) -> dict[str, Any]:
    """Return a step as the journal stores it."""
    return {
        **step._asdict(),
        "before": None if step.before is None else step.before.to_json(),
        "action": str(step.action),
        "backup_kind": str(step.backup_kind),
    }


def encode_begin(journal: Journal) -> bytes:
    """Return the first entry of a journal of appends. `encode_touch` returns the others."""
    return _frame(_begin_to_map(journal, APPEND_SCHEMA.version))


def encode_touch(journal: Journal) -> bytes:
    """Return an entry for a coming change, given as a journal with only that change."""
    appends = journal.appends
    assert appends is not None
    return _frame(
        {
            "entry": "touch",
            "directories": {path: [*facts] for path, facts in journal.directories.items()},
            "neighbours": journal.neighbours,
            "new_directories": appends.new_directories,
            "steps": [*map(step_to_map, journal.steps)],
            "sessions": [*map(step_to_map, appends.sessions)],
        }
    )


def encode_end(appends: Appends) -> bytes:
    """Return the entries that close a journal of appends."""
    facts = {path: None if each is None else each.to_json() for path, each in appends.ends.items()}
    directories = {path: [*each] for path, each in appends.end_directories.items()}
    end = {"entry": "end", "files": facts, "directories": directories}
    return _frame(end) + _frame({"entry": str(Status.APPLIED)})


def has_journal(directory: str | os.PathLike[str]) -> bool:
    """Return whether a file of that name exists. It may be damaged or not a journal."""
    return os.path.lexists(Path(directory, JOURNAL_NAME))


def read_journal(path: str | os.PathLike[str]) -> Journal:
    """Read the journal in a directory, or the journal file `path`.

    Raises:
        AccessError: it does not exist, or it cannot be read.
        CorruptError: it is damaged, and the steps are incomplete.
    """
    file = Path(path)
    if file.is_dir():
        file /= JOURNAL_NAME
    with os_errors(file):
        try:
            data = read_small_file(file, MAX_JOURNAL_BYTES)
        except FileNotFoundError as error:
            if not file.parent.is_dir():
                raise
            next_step = "eoctl journal list LOG-DIR lists the journals"
            if PLAN_ID.fullmatch(file.parent.name):
                next_step = "its run ended before anything was changed: nothing is to be undone"
            raise AccessError(error, str(file), next_step=next_step) from error
    return parse_journal(data, os.path.realpath(file.parent))


def parse_journal(data: bytes, directory: str) -> Journal:
    """Parse the file.

    Raises:
        CorruptError: as `read_journal`.
    """
    entries: list[dict[str, Any]] = []
    valid_bytes = 0
    for entry, end_pos in _frames(data):
        entries.append(entry)
        valid_bytes = end_pos
    try:
        if _has_entry(data[valid_bytes:]):  # no entry follows a torn end
            raise ValueError("an entry within is damaged")  # noqa: TRY301
        return _journal_of(entries, directory, valid_bytes)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise CorruptError(
            "the journal is damaged", check_id=CHECK_ID, pos=valid_bytes, found=str(error)
        ).located(str(Path(directory, JOURNAL_NAME))) from error


def _frames(data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield whole entries with their end positions, up to the first bad entry."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    while True:
        try:
            payload, checksum = unpacker.unpack()
            if crc32c(payload) != checksum:
                return
            entry = msgpack.unpackb(payload, unicode_errors="surrogateescape")
        except (msgpack.OutOfData, ValueError, TypeError, msgpack.UnpackException):
            return
        if not isinstance(entry, dict):
            return
        yield entry, unpacker.tell()


def _has_entry(data: bytes) -> bool:
    """Return whether a whole entry is somewhere in the data: a list of bytes and a checksum."""
    starts = (each.start() for each in re.finditer(rb"\x92[\xc4-\xc6]", data))
    return any(True for start_pos in starts for _ in _frames(data[start_pos:]))


def _journal_of(entries: list[dict[str, Any]], directory: str, valid_bytes: int) -> Journal:
    begin = entries[0]
    if begin["entry"] != "begin" or begin["version"] not in (*_OF_PLANS, *_OF_APPENDS):
        known = f"this program knows up to {APPEND_SCHEMA.version}"
        raise ValueError(f"{begin['entry']} of version {begin['version']!r}, {known}")
    found = Journal(
        path=directory,
        plan_id=text_of(begin["plan_id"]),
        command=text_of(begin["command"]),
        arguments=plain_object(json.loads(begin["arguments"])),
        log_dirs=tuple(map(text_of, begin["log_dirs"])),
        has_backup=bool_of(begin["has_backup"]),
        applied_at_ms=number_of(begin["applied_at_ms"]),
        order=number_of(begin["order"]),
        directories={},
        neighbours={},
        steps=(),
        status=Status.UNFINISHED,
        valid_bytes=valid_bytes,
    )
    if begin["version"] in _OF_APPENDS:
        return _with_touches(found, entries[1:])
    count = begin["steps_count"]
    steps = entries[1 : 1 + count]
    if len(steps) != count or any(each["entry"] != "step" for each in steps):
        raise ValueError(f"{len(steps)} of {count} steps")
    for each in entries[1 + count :]:
        found = found._replace(status=Status(each["entry"]))
    found = found._replace(
        directories=_directories(begin["directories"]),
        neighbours=_texts(begin["neighbours"]),
        steps=tuple(_steps_of(steps, found.log_dirs)),
    )
    if foreign := found.directories.keys() - set(found.touched_directories):
        raise ValueError(f"{min(foreign)} is no directory of its steps")
    return found


def _with_touches(found: Journal, entries: list[dict[str, Any]]) -> Journal:
    """Return the journal with the entries of a journal of appends, in order."""
    steps: list[JournalStep] = []
    sessions: list[JournalStep] = []
    made: dict[str, str] = {}
    appends = Appends(new_directories=made, sessions=(), ends={}, end_directories={})
    for each in entries:
        if each["entry"] == "touch":
            found.directories.update(_directories(each["directories"]))
            found.neighbours.update(_texts(each["neighbours"]))
            made.update(_texts(each["new_directories"]))
            steps += _steps_of(each["steps"], found.log_dirs)
            sessions += [_session_of(step) for step in each["sessions"]]
        elif each["entry"] == "end":
            ends = {
                text_of(path): None if facts is None else FileFacts.from_json(facts)
                for path, facts in each["files"].items()
            }
            appends = Appends(
                new_directories=made,
                sessions=(),
                ends=ends,
                end_directories=_directories(each["directories"]),
            )
        else:
            found = found._replace(status=Status(each["entry"]))
    for path in {*found.directories, *made}:
        if path not in found.log_dirs and (reason := why_no_partition(path, found.log_dirs)):
            raise ValueError(f"{path}, {reason}")
    for path, begun_as in made.items():
        name = parse_partition_name(Path(begun_as).name)
        is_near = Path(begun_as).parent == Path(path).parent
        if not is_near or name is None or name.state is not DirState.DELETE:
            raise ValueError(f"{begun_as} is no name under which a partition is begun")
    return found._replace(steps=tuple(steps), appends=appends._replace(sessions=tuple(sessions)))


def _directories(value: dict[Any, Any]) -> dict[str, DirectoryFacts]:
    return {
        text_of(path): DirectoryFacts(time_ns_of(mtime_ns), _sizes_and_times(files))
        for path, (mtime_ns, files) in value.items()
    }


def _texts(value: dict[Any, Any]) -> dict[str, str]:
    return {text_of(name): text_of(text) for name, text in value.items()}


def _sizes_and_times(files: dict[Any, Any]) -> dict[str, tuple[int, int]]:
    return {
        text_of(name): (number_of(size_bytes), time_ns_of(mtime_ns))
        for name, (size_bytes, mtime_ns) in files.items()
    }


def _steps_of(entries: Iterable[dict[str, Any]], log_dirs: Collection[str]) -> list[JournalStep]:
    found = [_parsed_step(each) for each in entries]
    is_beginning = begins_a_log_dir(each.path for each in found)
    for each in found:
        _require_confined(each, log_dirs, is_beginning=is_beginning)
    return found


def _require_confined(step: JournalStep, log_dirs: Collection[str], *, is_beginning: bool) -> None:
    # As in a plan: input from elsewhere must not lead to other files.
    is_removed = step.action is Action.REMOVE
    is_new = step.before is None
    reason = (
        why_not_made(step.path, log_dirs, is_beginning=is_beginning)
        if step.action is Action.MAKE
        else why_not_confined(
            step.path,
            log_dirs,
            None,
            is_removed=is_removed,
            is_new=is_new,
            is_beginning=is_beginning,
        )
    )
    if reason:
        raise ValueError(f"{step.path}, {reason}")


def _session_of(entry: dict[str, Any]) -> JournalStep:
    step = _parsed_step(entry)
    if step.path != os.path.normpath(step.path) or not Path(step.path).is_absolute():
        raise ValueError(f"{step.path} is no absolute path")
    if step.action is not Action.REPLACE:
        raise ValueError(f"{step.action} of a session")
    return step


def _parsed_step(entry: dict[str, Any]) -> JournalStep:
    fields = {name: entry[name] for name in JournalStep._fields}
    before = fields["before"]
    fields["before"] = None if before is None else FileFacts.from_json(before)
    fields["after_bytes"] = number_of(fields["after_bytes"])
    fields["after_mtime_ns"] = time_ns_of(fields["after_mtime_ns"])
    for name in ("path", "after_sha256", "backup", "backup_sha256"):
        text_of(fields[name])
    fields["action"] = Action(fields["action"])
    fields["backup_kind"] = BackupKind(fields["backup_kind"])
    step = JournalStep(**fields)
    if step.backup and not BACKUP_NAME.fullmatch(step.backup):
        raise ValueError(f"{step.backup} is no name of a backup")
    return step


def note_status(fs: FileSystem, journal: Journal, status: Status) -> Journal:
    """Append the new status durably to the journal, and return the new journal.

    Raises:
        AccessError: it could not be written.
    """
    entry = _frame({"entry": str(status)})
    return append_entry(fs, journal, entry)._replace(status=status)


def append_entry(fs: FileSystem, journal: Journal, entry: bytes) -> Journal:
    """Append encoded entries durably, and return the journal with its new size.

    Raises:
        AccessError: they could not be written.
    """
    path = str(Path(journal.path, JOURNAL_NAME))
    with os_errors(path), fs.open_existing(path) as file:
        if file.pos != journal.valid_bytes:  # a torn entry of a killed run
            fs.truncate(file, journal.valid_bytes)
        fs.write(file, entry)
        fs.fsync(file)
    return journal._replace(valid_bytes=journal.valid_bytes + len(entry))


def require_only_ours(directory: str) -> list[Path]:
    """Return the files in a journal's directory, which may be removed with it.

    Raises:
        RefusedError: the directory has other files.
        AccessError: it cannot be listed.
    """
    with os_errors(directory):
        files = sorted(Path(directory).iterdir())
    for file in files:
        name = file.name.removesuffix(fsio.TEMP_SUFFIX)
        if name not in (JOURNAL_NAME, PLAN_NAME) and not BACKUP_NAME.fullmatch(name):
            raise RefusedError(
                f"{file}: is nothing of a journal; its directory was left as it is",
                next_step="put it elsewhere, and look whether that is the right directory",
            )
    return files
