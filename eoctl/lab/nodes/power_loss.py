"""File system that forgets unsynced changes: a real directory with a simulated power loss.

It works on a real directory, as `FileSystem` does. It also remembers how to undo each change that
no fsync has confirmed yet. `lose_power` undoes some of these changes:

- Content: a random number of the latest changes of each file. Half of the earliest undone write may
  stay, or the file may keep its size with zeros instead of data.
- Names: the latest new, removed and changed names, in reverse order. This is as on ext4, which
  keeps the order of names. A rename between two directories is durable once both are synced.

An fsync confirms the remembered changes, and does not sync the real disk, which no simulated power
loss affects. To protect the result from a real power loss, sync everything at the end
(`trees.sync_tree`).

A killed process loses nothing. Old changes reach the disk by themselves (`write_back`), as the
operating system writes them.
"""

from __future__ import annotations

import errno
import os
import sys
from bisect import bisect_left
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.files.fsio import FileSystem, OpenFile, directory_of
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files.fsio import Bytes, StrPath


class _Change(NamedTuple):
    """Change of a file's content. `old` is the data at `pos` before, up to the old end."""

    at_us: int
    pos: int
    new_bytes: int  # 0: truncated at `pos`
    old: bytes
    old_size: int
    size: int  # after the change


_AT_US = attrgetter("at_us")


class _Names(NamedTuple):
    """Name that was made, removed or changed. `replaced` is the content that lost its name."""

    at_us: int
    old: str | None
    new: str | None
    replaced: bytes | None
    is_dir: bool
    unsynced: set[str]


class LostPower(NamedTuple):
    """Effect of a power loss on one path."""

    path: str
    lost: str


class ForgettingFileSystem(FileSystem):
    """File system that remembers changes below `root` that are not durable.

    Args:
        root: its own directory. All paths begin with its real path.
        now_us: the clock of `write_back`.
    """

    def __init__(self, root: StrPath, now_us: Callable[[], int] = lambda: 0) -> None:
        self.root = os.path.realpath(root)
        self._inside = self.root + os.sep
        self._now_us = now_us
        self._contents: dict[str, list[_Change]] = {}
        self._names: list[_Names] = []

    # -- content

    def write(self, file: OpenFile, data: Bytes) -> None:
        """Write, and remember the previous content."""
        changes, pos = self._changes_of(file), file.pos
        # All changes are made here, so the size after the last change is known without a system
        # call.
        size = changes[-1].size if changes else os.fstat(file.fd).st_size
        old = b""
        if pos < size:
            old = os.pread(file.fd, min(memoryview(data).nbytes, size - pos), pos)
        super().write(file, data)
        end, now_us = file.pos, self._now_us()
        changes.append(_Change(now_us, pos, end - pos, old, size, max(size, end)))

    def truncate(self, file: OpenFile, size_bytes: int) -> None:
        """Truncate. The removed bytes may return after a power loss."""
        size = os.fstat(file.fd).st_size
        old = os.pread(file.fd, max(size - size_bytes, 0), size_bytes)
        super().truncate(file, size_bytes)
        change = _Change(self._now_us(), size_bytes, 0, old, size, size_bytes)
        self._changes_of(file).append(change)

    def fsync(self, file: OpenFile) -> None:
        """Confirm all changes of the file."""
        path = self._below(file.path)
        if self._contents.pop(path, None) is None and Path(path).is_dir():
            self._confirm_names(path)

    def _changes_of(self, file: OpenFile) -> list[_Change]:
        changes = self._contents.get(file.path)  # no other path names it
        if changes is None:
            changes = self._contents[self._below(file.path)] = []
        return changes

    # -- names

    def open_new(self, path: StrPath, mode: int = 0o600) -> OpenFile:
        """Create a file whose name may be lost."""
        file = super().open_new(path, mode)
        self._note(None, self._below(path))
        return file

    def rename(self, old: StrPath, new: StrPath) -> None:
        """Rename. Both names may come back."""
        before, after = self._below(old), self._below(new)
        replaced = _content(after)
        is_dir = os.path.isdir(before)  # noqa: PTH112 - thousands of times
        super().rename(old, new)
        self._contents.pop(after, None)
        if is_dir:
            for path in [each for each in self._contents if each.startswith(before + os.sep)]:
                self._contents[after + path[len(before) :]] = self._contents.pop(path)
        elif before in self._contents:
            self._contents[after] = self._contents.pop(before)
        self._note(before, after, replaced, is_dir=is_dir)

    def link(self, old: StrPath, new: StrPath) -> None:
        """Create a second name, which may be lost."""
        super().link(old, new)
        self._note(None, self._below(new))

    def unlink(self, path: StrPath) -> None:
        """Remove a name, which may come back."""
        name = self._below(path)
        removed = _content(name)
        super().unlink(path)
        self._contents.pop(name, None)
        self._note(name, None, removed or b"")

    def make_dir(self, path: StrPath, mode: int = 0o700) -> None:
        """Make a directory, which may be lost."""
        super().make_dir(path, mode)
        self._note(None, self._below(path), is_dir=True)

    def remove_dir(self, path: StrPath) -> None:
        """Remove a directory, which may come back."""
        super().remove_dir(path)
        self._note(self._below(path), None, is_dir=True)

    def fsync_dir(self, path: StrPath) -> None:
        """Confirm the names in a directory."""
        self._confirm_names(self._below(path))

    def _below(self, path: StrPath) -> str:
        """Return the path as a key of changes, below the root and without links."""
        whole = os.fspath(path)
        if not whole.startswith(self._inside) and whole != self.root:
            raise ValueError(f"{whole} is outside of {self.root}")
        return whole

    def _note(
        self,
        old: str | None,
        new: str | None,
        replaced: bytes | None = None,
        *,
        is_dir: bool = False,
    ) -> None:
        unsynced = {directory_of(each) for each in (old, new) if each is not None}
        change = _Names(
            at_us=self._now_us(),
            old=old,
            new=new,
            replaced=replaced,
            is_dir=is_dir,
            unsynced=unsynced,
        )
        self._names.append(change)

    def _confirm_names(self, directory: str) -> None:
        for each in self._names:
            each.unsynced.discard(directory)
        while self._names and not self._names[0].unsynced:
            self._names.pop(0)

    # -- loss of power

    def write_back(self, before_us: int) -> None:
        """Make the changes before a time durable."""
        for path, changes in [*self._contents.items()]:
            del changes[: bisect_left(changes, before_us, key=_AT_US)]
            if not changes:
                del self._contents[path]
        while self._names and self._names[0].at_us < before_us:
            self._names.pop(0)

    def lose_power(self, draw: Callable[[int], int]) -> list[LostPower]:
        """Forget some changes that are not durable. `draw(n)` returns a number from 0 to n - 1.

        No file may be open. Afterwards everything on disk is durable.

        Returns the losses.
        """
        lost: list[LostPower] = []
        for path, changes in self._contents.items():
            kept = draw(len(changes) + 1)
            if kept < len(changes):
                lost.append(self._forget(path, changes, kept, draw))
        self._contents.clear()
        in_order = [each for each in self._names if each.unsynced]
        kept = draw(len(in_order) + 1)
        lost += map(self._forget_name, reversed(in_order[kept:]))
        self._names.clear()
        return lost

    def _forget(
        self, path: str, changes: list[_Change], kept: int, draw: Callable[[int], int]
    ) -> LostPower:
        with FileSystem().open_existing(path) as file:
            full_size = file.pos
            torn = b""
            for change in reversed(changes[kept:]):
                torn = os.pread(file.fd, change.new_bytes, change.pos)
                file.pos = change.pos
                super().write(file, change.old)
                super().truncate(file, change.old_size)
            first = changes[kept]
            size = file.pos
            how = draw(3)
            if how == 1 and len(torn) > 1:
                file.pos = first.pos
                super().write(file, torn[: len(torn) // 2])
            elif how == 2 and full_size > size:
                super().truncate(file, full_size)
        lost = f"{len(changes) - kept} of {len(changes)} changes"
        return LostPower(path, lost + ("", ", but for half of one", ", but for the size")[how])

    def _forget_name(self, change: _Names) -> LostPower:
        plain = FileSystem()
        if change.new is not None and change.old is not None:
            plain.rename(change.new, change.old)
        elif change.new is not None:
            (plain.remove_dir if change.is_dir else plain.unlink)(change.new)
        elif change.is_dir:
            assert change.old is not None
            plain.make_dir(change.old, 0o755)
        if change.replaced is not None:
            path = change.new or change.old
            assert path is not None
            with plain.open_new(path, 0o644) as file:
                plain.write(file, change.replaced)
        return LostPower(change.new or change.old or "", "its name")


def _content(path: str) -> bytes | None:
    """Return the content of a file, None without a regular file of that name."""
    try:
        return read_small_file(path, sys.maxsize)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None  # no regular file
