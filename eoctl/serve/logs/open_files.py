"""Files whose bytes are on their way to clients: one descriptor for all who are given a file."""

from __future__ import annotations

import errno
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from storage.errors import AccessError
from storage.files.positioned_file import PositionedFile

if TYPE_CHECKING:
    from storage.files.positioned_file import PositionedRead

Key = tuple[str, int]  # path, inode


class Opened:
    """Somebody's hold of an open file, which stays open until all have closed theirs."""

    def __init__(self, files: OpenFiles, key: Key, file: PositionedFile) -> None:
        self.path = file.path
        self._files: OpenFiles | None = files
        self._key = key
        self._file = file

    def read_at(self, pos: int, count: int) -> PositionedRead:
        """Read as `PositionedFile` does."""
        return self._file.read_at(pos, count)

    def close(self) -> None:
        """Let go; a second call does nothing."""
        files, self._files = self._files, None
        if files is not None:
            files.let_go(self._key)

    def __del__(self) -> None:
        """Whoever is in the middle of something here may be interrupted by this: it has to wait."""
        if self._files is not None:
            self._files.dropped.append(self._key)

    def doubt(self) -> None:
        """Say that it is not any more what it was when it was verified."""
        if self._files is not None:
            self._files.is_doubted = True


class OpenFiles:
    """The open files; its methods may be called from any thread.

    Attributes:
        is_doubted: one of them was not what was expected.
        dropped: holds that nobody has closed, and that are gone.
    """

    def __init__(self) -> None:
        self.is_doubted = False
        self.dropped: deque[Key] = deque()
        self._lock = Lock()
        self._held: dict[Key, tuple[PositionedFile, int]] = {}

    def hold(self, path: str, inode: int) -> Opened:
        """Open a file that had this inode.

        Raises:
            AccessError: it cannot be opened, or is another one by now (ENOENT).
        """
        key = path, inode
        with self._lock:
            while self.dropped:
                self._drop(self.dropped.popleft())
            file, holders = self._held.get(key) or (PositionedFile(path), 0)
            if not holders and file.inode != inode:
                file.close()
                error = FileNotFoundError(errno.ENOENT, "replaced while it is served")
                raise AccessError(error, path)
            self._held[key] = file, holders + 1
            return Opened(self, key, file)

    def let_go(self, key: Key) -> None:
        """Close a file when the last one who holds it does."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        file, holders = self._held.pop(key)
        if holders > 1:
            self._held[key] = file, holders - 1
        else:
            file.close()
