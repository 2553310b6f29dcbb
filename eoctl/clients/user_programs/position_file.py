"""The file with a consumer's position, and the state that its program has made so far.

It is one JSON object with the owner of the position (topic, partition, topic id, isolation level,
commit mode) and `next_offset`. Its `state` is any JSON value of the program. It is replaced in one
step (see `storage.files.fsio`), so that position and state always belong together.

One consumer at a time can use it. The file is locked, and its replacement is locked before it takes
the name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from storage.dirs.discovery import require_outside_log_dirs
from storage.dirs.state_file import StateSchema
from storage.errors import AccessError, RefusedError, os_errors
from storage.files import fsio
from storage.files.fsio import FileAttributes, set_attributes
from storage.files.positioned_file import read_small_file
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from storage.files.fsio import FileSystem, OpenFile

MAX_BYTES = 256 << 20
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class PositionOf(NamedTuple):
    """The owner of a position. Unknown values are None."""

    topic: str
    partition: int
    topic_id: str | None
    isolation: str
    commit: str


class Position(NamedTuple):
    """The first offset that is not consumed yet, and the state at that point."""

    next_offset: int
    state: Any = None


SCHEMA = StateSchema("eoctl consume checkpoint", 1, (PositionOf, Position))


class PositionFile:
    """A context manager around one position file, which the first `save` creates."""

    def __init__(self, path: str, owner: PositionOf, fs: FileSystem | None = None) -> None:
        """Check the path without any change. Raises RefusedError if it is in a log dir."""
        self.path = os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links
        self._owner = owner
        self._fs = fsio.FileSystem() if fs is None else fs
        self._file: OpenFile | None = None
        require_outside_log_dirs(path, "name a file elsewhere", place=self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._fs.close(self._file)

    def load(self) -> Position | None:
        """Lock the file for this consumer and read it. None: it does not exist yet.

        Raises:
            RefusedError: another consumer uses it, or it belongs to another consumer.
            AccessError: it cannot be read.
        """
        fsio.require_replaceable(self.path)
        while True:
            try:
                with os_errors(self.path):
                    file = self._fs.open_existing(self.path)
            except AccessError as exc:
                if exc.errno == errno.ENOENT:
                    return None
                raise
            self._file = file
            self._lock(file)
            if self._is_in_place(file):
                break
            self._fs.close(file)  # it was replaced meanwhile
        with os_errors(self.path):
            return self._parse(read_small_file(self.path, MAX_BYTES))

    def save(self, position: Position) -> None:
        """Replace the position, durably.

        Raises:
            RefusedError: the file is not the file that was read or saved.
            AccessError: it cannot be written.
        """
        before, fs = self._file, self._fs
        if before is not None and not self._is_in_place(before):
            raise RefusedError(f"{self.path}: somebody else has replaced it; not saved")
        fields = {"format": SCHEMA.name, "version": SCHEMA.version, **self._owner._asdict()}
        data = json.dumps(
            {**fields, **position._asdict()}, ensure_ascii=False, separators=(",", ":")
        ).encode()
        data += b"\n"
        temp = fsio.temp_path(self.path)
        with os_errors(temp), suppress(FileNotFoundError):
            fs.unlink(temp)  # left by a crash
        with os_errors(temp):
            file = fs.open_new(temp, 0o666)
        try:
            self._fill(file, data, before)
            with os_errors(self.path):
                if before is not None:
                    fs.rename(temp, self.path)
                else:  # a link fails if another process has created the file since
                    fs.link(temp, self.path)
                    fs.unlink(temp)
        except BaseException:
            with suppress(OSError):
                fs.close(file)
            with suppress(OSError):
                fs.unlink(temp)
            raise
        self._file = file
        if before is not None:
            fs.close(before)
        state = f"{self.path} is saved, which may not survive a crash yet"
        fsio.sync_dir(fs, Path(self.path).parent, state=state)

    def _fill(self, file: OpenFile, data: bytes, before: OpenFile | None) -> None:
        fs = self._fs
        with os_errors(file.path):
            fs.write(file, data)
            if before is not None:
                found = os.fstat(before.fd)
                mode = stat.S_IMODE(found.st_mode)
                set_attributes(fs, file, FileAttributes(found.st_uid, found.st_gid, mode))
            fs.fsync(file)
        self._lock(file)

    def _lock(self, file: OpenFile) -> None:
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:  # a file system without locks: `_is_in_place` protects
                return
            raise RefusedError(
                f"{self.path}: another consumer is using it",
                next_step="let that one end, or name another file",
            ) from error

    def _is_in_place(self, file: OpenFile) -> bool:
        try:
            found = Path(self.path).stat()
        except OSError:
            return False
        opened = os.fstat(file.fd)
        return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)

    def _parse(self, data: bytes) -> Position:
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or fields.get("format") != SCHEMA.name:
            raise self._unusable("no checkpoint of eoctl consume, and not replaced by one")
        if fields.get("version") != SCHEMA.version:
            known = f"this program knows {SCHEMA.version}"
            raise self._unusable(f"of another version, {fields.get('version')!r}; {known}")
        names = {"format", "version", *PositionOf._fields, *Position._fields}
        if differing := ", ".join(sorted(names ^ fields.keys())):
            raise self._unusable(f"damaged: with or without {differing}")
        for name, wanted in self._owner._asdict().items():
            found = fields.get(name)
            is_unknown = name == "topic_id" and None in (found, wanted)
            if found != wanted and not is_unknown:
                raise self._unusable(f"its {name.replace('_', ' ')} is {found}, not {wanted}")
        next_offset = fields["next_offset"]
        if type(next_offset) is not int or not 0 <= next_offset <= MAX_OFFSET:
            raise self._unusable(f"{next_offset!r} is no offset")
        return Position(next_offset, fields["state"])

    def _unusable(self, why: str) -> RefusedError:
        next_step = "name another file, or remove it to begin again"
        return RefusedError(f"{self.path}: {why}", next_step=next_step)
