"""A file system that does its work on a real directory and notes every call with its payload.

Files and directories have numbers here, as inodes do: a rename moves a number to another name, and
what is written belongs to the number. So the notes tell which data belongs to which name at any
moment, whatever order names and data reach the disk in.
"""

from __future__ import annotations

import os
import stat
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.file_names import LOCK_FILE_NAME
from storage.files.fsio import FileSystem, OpenFile

if TYPE_CHECKING:
    from storage.files.fsio import Bytes, StrPath

ROOT = 0  # the number of the directory that is watched


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"


class Inode(NamedTuple):
    """Content and attributes of a file; of a link the data is where it leads to.

    `mtime_ns` is None after a write: some moment of the run.
    """

    kind: Kind
    data: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int | None


# --- operations -----------------------------------------------------------------------------------


class Write(NamedTuple):
    text: str
    inode: int
    pos: int
    data: bytes

    def applied(self, old: Inode) -> Inode:
        end_pos = self.pos + len(self.data)
        data = old.data[: self.pos].ljust(self.pos, b"\0") + self.data + old.data[end_pos:]
        return old._replace(data=data, mtime_ns=None)


class Truncate(NamedTuple):
    text: str
    inode: int
    size_bytes: int

    def applied(self, old: Inode) -> Inode:
        data = old.data[: self.size_bytes].ljust(self.size_bytes, b"\0")
        return old._replace(data=data, mtime_ns=None)


class SetAttributes(NamedTuple):
    text: str
    inode: int
    changed: dict[str, Any]  # fields of Inode

    def applied(self, old: Inode) -> Inode:
        return old._replace(**self.changed)


class SyncFile(NamedTuple):
    text: str
    inode: int


class Entry(NamedTuple):
    directory: int
    name: str
    inode: int


class Rename(NamedTuple):
    """Any change of names: a new one has no `removed`, a removed one no `added`, a rename both."""

    text: str
    removed: Entry | None
    added: Entry | None

    @property
    def directories(self) -> set[int]:
        return {entry.directory for entry in (self.removed, self.added) if entry}

    def apply_to(self, names: dict[int, dict[str, int]]) -> None:
        if self.removed:
            entries = names.get(self.removed.directory, {})
            if entries.get(self.removed.name) == self.removed.inode:
                del entries[self.removed.name]
        if self.added:
            names.setdefault(self.added.directory, {})[self.added.name] = self.added.inode


class SyncDirectory(NamedTuple):
    text: str
    inode: int


class Mark(NamedTuple):
    """No change: the caller was told at this moment that something is done."""

    text: str


FileChange = Write | Truncate | SetAttributes
Operation = FileChange | SyncFile | Rename | SyncDirectory | Mark


# --- the file system ------------------------------------------------------------------------------


class RecordingFileSystem(FileSystem):
    """Works on the directory `root` and everything below it; a change elsewhere is an error.

    Attributes:
        operations: what was done since the start, in order. Calls that failed are not in it.
        inodes: every file and directory by its number, as it was at the start or when it was made.
        start_names: directory number -> name -> number, at the start.
    """

    threads_count = 1  # the calls have an order

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.operations: list[Operation] = []
        self.inodes: dict[int, Inode] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._numbers: dict[OpenFile, int] = {}
        self._take_over(self.root, {})
        self.start_names = {number: dict(names) for number, names in self._names.items()}

    def mark(self, text: str) -> None:
        """Note that the caller now counts on what was done; see `CrashState.marks`."""
        self.operations.append(Mark(text))

    def _take_over(self, path: Path, known: dict[tuple[int, int], int]) -> int:
        found = path.lstat()
        file_id = (found.st_dev, found.st_ino)
        if file_id in known:  # a hard link
            return known[file_id]
        known[file_id] = number = self._add(_inode(path, found))
        if self.inodes[number].kind is Kind.DIRECTORY:
            children = sorted(path.iterdir())
            self._names[number] = {each.name: self._take_over(each, known) for each in children}
        return number

    def _add(self, inode: Inode) -> int:
        number = len(self.inodes)
        self.inodes[number] = inode
        return number

    # --- where things are

    def _relative(self, path: StrPath) -> Path:
        whole = Path(os.path.realpath(Path(path).parent), Path(path).name)
        if not whole.is_relative_to(self.root):
            raise AssertionError(f"{path} is outside of {self.root}")
        return whole.relative_to(self.root)

    def _place(self, path: StrPath) -> tuple[int, str]:
        relative = self._relative(path)
        number = ROOT
        for part in relative.parent.parts:
            number = self._names[number][part]
        return number, relative.name

    def _entry(self, path: StrPath) -> Entry:
        directory, name = self._place(path)
        return Entry(directory, name, self._names[directory][name])

    def _directory(self, path: StrPath) -> int:
        whole = Path(os.path.realpath(path))
        return ROOT if whole == self.root else self._entry(whole).inode

    def _note_names(self, text: str, *, removed: Entry | None, added: Entry | None) -> None:
        operation = Rename(text, removed, added)
        operation.apply_to(self._names)
        self.operations.append(operation)

    def _opened(self, file: OpenFile, number: int) -> OpenFile:
        self._numbers[file] = number
        return file

    def _text(self, verb: str, file: OpenFile, rest: str = "") -> str:
        return f"{verb} {self._relative(file.path)}{rest}"

    # --- one file

    def open_new(self, path: StrPath, mode: int = 0o600) -> OpenFile:
        file = super().open_new(path, mode)
        number = self._add(_inode(Path(path), os.fstat(file.fd))._replace(mtime_ns=None))
        added = Entry(*self._place(path), number)
        self._note_names(f"create {self._relative(path)}", removed=None, added=added)
        return self._opened(file, number)

    def open_existing(self, path: StrPath) -> OpenFile:
        file = super().open_existing(path)
        return self._opened(file, self._entry(path).inode)

    def open_dir(self, path: StrPath) -> OpenFile:
        return self._opened(super().open_dir(path), self._directory(path))

    def write(self, file: OpenFile, data: Bytes) -> None:
        pos = file.pos
        payload = bytes(data)
        super().write(file, data)
        text = self._text("write", file, f" [{pos}, {pos + len(payload)})")
        self.operations.append(Write(text, self._numbers[file], pos, payload))

    def truncate(self, file: OpenFile, size_bytes: int) -> None:
        super().truncate(file, size_bytes)
        text = self._text("truncate", file, f" to {size_bytes}")
        self.operations.append(Truncate(text, self._numbers[file], size_bytes))

    def set_owner(self, file: OpenFile, uid: int, gid: int) -> None:
        super().set_owner(file, uid, gid)
        self._note_attributes(self._text("chown", file), file, uid=uid, gid=gid)

    def set_mode(self, file: OpenFile, mode: int) -> None:
        super().set_mode(file, mode)
        self._note_attributes(self._text("chmod", file), file, mode=mode)

    def set_times(self, file: OpenFile, *, atime_ns: int, mtime_ns: int) -> None:
        super().set_times(file, atime_ns=atime_ns, mtime_ns=mtime_ns)
        self._note_attributes(self._text("utime", file), file, mtime_ns=mtime_ns)

    def _note_attributes(self, text: str, file: OpenFile, **changed: int) -> None:
        self.operations.append(SetAttributes(text, self._numbers[file], changed))

    def start_writeback(self, file: OpenFile, pos: int) -> None:
        """It promises nothing, so there is nothing to note: what is not synced may be there."""
        super().start_writeback(file, pos)

    def fsync(self, file: OpenFile) -> None:
        super().fsync(file)
        number = self._numbers[file]
        if self.inodes[number].kind is Kind.DIRECTORY:
            self.operations.append(SyncDirectory(self._text("fsync", file, "/"), number))
        else:
            self.operations.append(SyncFile(self._text("fsync", file), number))

    def close(self, file: OpenFile) -> None:
        self._numbers.pop(file, None)
        super().close(file)

    # --- names

    def rename(self, old: StrPath, new: StrPath) -> None:
        removed = self._entry(old)
        super().rename(old, new)
        added = Entry(*self._place(new), removed.inode)
        text = f"rename {self._relative(old)} to {self._relative(new)}"
        self._note_names(text, removed=removed, added=added)

    def link(self, old: StrPath, new: StrPath) -> None:
        super().link(old, new)
        added = Entry(*self._place(new), self._entry(old).inode)
        text = f"link {self._relative(old)} as {self._relative(new)}"
        self._note_names(text, removed=None, added=added)

    def unlink(self, path: StrPath) -> None:
        super().unlink(path)
        text = f"unlink {self._relative(path)}"
        self._note_names(text, removed=self._entry(path), added=None)

    def make_dir(self, path: StrPath, mode: int = 0o700) -> None:
        super().make_dir(path, mode)
        number = self._add(_inode(Path(path), Path(path).stat()))
        self._names[number] = {}
        added = Entry(*self._place(path), number)
        self._note_names(f"mkdir {self._relative(path)}", removed=None, added=added)

    def remove_dir(self, path: StrPath) -> None:
        super().remove_dir(path)
        text = f"rmdir {self._relative(path)}"
        self._note_names(text, removed=self._entry(path), added=None)

    def fsync_dir(self, path: StrPath) -> None:
        super().fsync_dir(path)
        number = self._directory(path)
        text = f"fsync {self._relative(os.path.realpath(path))}/"
        self.operations.append(SyncDirectory(text, number))


def _inode(path: Path, found: os.stat_result) -> Inode:
    data = b""
    kind = Kind.DIRECTORY
    if stat.S_ISLNK(found.st_mode):
        kind, data = Kind.LINK, os.fsencode(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        kind = Kind.FILE
        # Reading and closing a lock file would drop a lock that this process holds.
        data = b"" if path.name == LOCK_FILE_NAME else path.read_bytes()
    mtime_ns = None if kind is Kind.DIRECTORY else found.st_mtime_ns
    mode = stat.S_IMODE(found.st_mode)
    return Inode(kind, data, mode, found.st_uid, found.st_gid, mtime_ns)
