"""All states of the disk that a crash may leave, of what a `RecordingFileSystem` noted.

The disk after any prefix of the operations, where of what no fsync has confirmed yet
  content     of each file each prefix of its changes is there, the last write of it whole or only
              the first half; or the last change without those before it; or the new size without
              the data (zeros)
  names       any subset is there: a rename, a new or removed name may be lost while a later one
              survives. A rename between two directories is whole or not at all, and certain when
              both were synced
and every combination of these: a file system may write names before data and the reverse. An fsync
of a file confirms its content and attributes, not its name; an fsync of a directory confirms the
names in it, not the files' content. This allows more than ext4 does, which keeps the order of names.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.crash.recording import (
    ROOT,
    FileChange,
    Inode,
    Kind,
    Mark,
    Operation,
    RecordingFileSystem,
    Rename,
    SyncDirectory,
    SyncFile,
    Write,
)
from tests.drawn import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

RUN_NAME = "run"  # of the directory that runs and states are made in, below a test's own
COMBINATIONS_MAX = 512  # for one moment; above that, one thing differs at a time
_ALL_SUBSETS_MAX = 6  # name changes in flight, up to which every subset is tried
_ALL_PREFIXES_MAX = 8  # changes of one file in flight, up to which every prefix is tried


class CrashState(NamedTuple):
    """What is on the disk after one crash.

    Attributes:
        done_count: so many operations were called before it.
        last: the last of them, as text.
        marks: what the caller had been told to be done (`RecordingFileSystem.mark`).
        lost: what of it did not reach the disk, as text.
        tree: path relative to the root -> number and content; the root itself is ".".
    """

    done_count: int
    last: str
    marks: tuple[str, ...]
    lost: tuple[str, ...]
    tree: dict[str, tuple[int, Inode]]

    def __str__(self) -> str:
        lost = "; ".join(self.lost) or "nothing"
        return f"crash after {self.done_count} operations ({self.last}), lost: {lost}"

    def read(self, path: str) -> bytes | None:
        """The content of a file; None when it is not there."""
        return self.tree[path][1].data if path in self.tree else None

    def write_to(self, root: Path) -> None:
        """Make this state real below `root`, which must not exist."""
        first_paths: dict[int, Path] = {}
        for relative, (number, inode) in self.tree.items():
            path = root / relative
            if number in first_paths:
                os.link(first_paths[number], path, follow_symlinks=False)
                continue
            first_paths[number] = path
            if inode.kind is Kind.DIRECTORY:
                path.mkdir()
            elif inode.kind is Kind.LINK:
                path.symlink_to(os.fsdecode(inode.data))
            else:
                path.write_bytes(inode.data)
        # Children first: a directory may forbid to be written to.
        for relative, (_, inode) in reversed(self.tree.items()):
            _set_attributes(root / relative, inode)


def _set_attributes(path: Path, inode: Inode) -> None:
    if os.geteuid() == 0:
        os.chown(path, inode.uid, inode.gid, follow_symlinks=False)
    if inode.kind is not Kind.LINK:
        path.chmod(inode.mode)
    if inode.mtime_ns is not None:
        os.utime(path, ns=(inode.mtime_ns, inode.mtime_ns), follow_symlinks=False)


def crash_states(
    recording: RecordingFileSystem, *, combinations_max: int = COMBINATIONS_MAX
) -> Iterator[CrashState]:
    """Every state that a crash may leave, each once (the same files after the same marks)."""
    disk = _Disk(recording)
    seen: set[tuple[object, ...]] = set()
    marks: tuple[str, ...] = ()
    last = "nothing"
    for done_count in range(len(recording.operations) + 1):
        if done_count:
            operation = recording.operations[done_count - 1]
            last = operation.text
            if isinstance(operation, Mark):
                marks = (*marks, operation.text)
            disk.apply(operation)
        for lost, tree in disk.outcomes(combinations_max):
            key = (marks, *((path, inode) for path, (_, inode) in tree.items()))
            if key not in seen:
                seen.add(key)
                yield CrashState(done_count, last, marks, lost, tree)


class _Disk:
    """What is certain, and what is in flight, at one moment."""

    def __init__(self, recording: RecordingFileSystem) -> None:
        self._inodes = dict(recording.inodes)
        self._names = {number: dict(names) for number, names in recording.start_names.items()}
        self._file_changes: dict[int, list[FileChange]] = {}
        # In order; with the directories that must be synced yet. Empty: certain, but the ones
        # before it are not.
        self._name_changes: list[tuple[Rename, set[int]]] = []

    def apply(self, operation: Operation) -> None:
        match operation:
            case Rename():
                self._name_changes.append((operation, operation.directories))
            case SyncDirectory():
                for _, unsynced in self._name_changes:
                    unsynced.discard(operation.inode)
                while self._name_changes and not self._name_changes[0][1]:
                    self._name_changes.pop(0)[0].apply_to(self._names)
                self._confirm(operation.inode)
            case SyncFile():
                self._confirm(operation.inode)
            case Mark():
                pass
            case _:
                self._file_changes.setdefault(operation.inode, []).append(operation)

    def _confirm(self, number: int) -> None:
        for change in self._file_changes.pop(number, []):
            self._inodes[number] = change.applied(self._inodes[number])

    def outcomes(
        self, combinations_max: int
    ) -> Iterator[tuple[tuple[str, ...], dict[str, tuple[int, Inode]]]]:
        """(what is lost, tree) of a crash now."""
        pending = [n for n, (_, unsynced) in enumerate(self._name_changes) if unsynced]
        numbers = sorted(self._file_changes)
        axes: list[list[Any]] = [_subsets(pending)]
        axes += [_variants(self._inodes[n], self._file_changes[n]) for n in numbers]
        for kept, *contents in _combinations(axes, combinations_max):
            lost = [self._name_changes[n][0].text for n in pending if n not in kept]
            inodes = dict(self._inodes)
            for number, (text, inode) in zip(numbers, contents, strict=True):
                lost += [text] if text else []
                inodes[number] = inode
            yield tuple(lost), self._tree(kept, inodes)

    def _tree(
        self, kept: tuple[int, ...], inodes: dict[int, Inode]
    ) -> dict[str, tuple[int, Inode]]:
        names = {number: dict(entries) for number, entries in self._names.items()}
        for n, (change, unsynced) in enumerate(self._name_changes):
            if not unsynced or n in kept:
                change.apply_to(names)
        return dict(_walk(".", ROOT, names, inodes))


def _walk(
    path: str, number: int, names: dict[int, dict[str, int]], inodes: dict[int, Inode]
) -> Iterator[tuple[str, tuple[int, Inode]]]:
    """A directory before what is in it."""
    yield path, (number, inodes[number])
    for name, child in sorted(names.get(number, {}).items()):
        yield from _walk(name if path == "." else f"{path}/{name}", child, names, inodes)


def _variants(old: Inode, changes: list[FileChange]) -> list[tuple[str, Inode]]:
    """What a file may be: (what is lost, content), from all lost to all there."""
    found = [("all of " + "; ".join(change.text for change in changes), old)]
    if len(changes) > 1:
        found.append((f"all before {changes[-1].text}", changes[-1].applied(old)))
    last = len(changes) - 1
    # Of a long row not all: its prefixes had their turn, with other names, at earlier moments.
    tried = range(last + 1) if last < _ALL_PREFIXES_MAX else {0, 1, last // 2, last - 1, last}
    new = old
    for number, change in enumerate(changes):
        if number in tried and isinstance(change, Write) and len(change.data) > 1:
            half = change._replace(data=change.data[: len(change.data) // 2])
            found.append((f"half of {change.text} and all after it", half.applied(new)))
        new = change.applied(new)
        if number in tried:
            found.append((f"all after {change.text}", new))
    if len(new.data) > len(old.data):
        zeros = new._replace(data=old.data.ljust(len(new.data), b"\0"))
        found.insert(1, ("the data, not the size, of " + changes[-1].text, zeros))
    found[-1] = ("", new)
    return found


def _subsets(pending: list[int]) -> list[tuple[int, ...]]:
    """Which of the changes are there: from none to all."""
    if len(pending) <= _ALL_SUBSETS_MAX:
        sizes = range(len(pending) + 1)
        return [kept for size in sizes for kept in itertools.combinations(pending, size)]
    prefixes = [tuple(pending[:count]) for count in range(len(pending))]
    alone = [(number,) for number in pending]
    all_but_one = [tuple(n for n in pending if n != lost) for lost in pending]
    return [*prefixes, *alone, *all_but_one, tuple(pending)]


def _combinations(axes: list[list[Any]], combinations_max: int) -> Iterator[tuple[Any, ...]]:
    """One choice of each axis: all combinations, or, where they are too many, one at a time.

    An axis begins with all lost and ends with nothing lost.
    """
    if math.prod(map(len, axes)) <= combinations_max:
        yield from itertools.product(*axes)
        return
    for others in (0, -1):
        usual = [axis[others] for axis in axes]
        for place, axis in enumerate(axes):
            for choice in axis:
                yield (*usual[:place], choice, *usual[place + 1 :])


# --- checking them --------------------------------------------------------------------------------


class Failure(NamedTuple):
    state: CrashState
    error: AssertionError

    def __str__(self) -> str:
        return f"{self.state}: {self.error}"


class CrashReport(NamedTuple):
    """How many states there were, and in which the checker failed."""

    operations_count: int
    states_count: int
    checked_count: int
    failures: list[Failure]

    def __str__(self) -> str:
        text = f"{self.states_count} crash states of {self.operations_count} operations"
        if self.checked_count < self.states_count:
            text += f", {self.checked_count} drawn"
        return "\n  ".join([f"{text}, {len(self.failures)} failed", *map(str, self.failures[:5])])


def check_states(
    recording: RecordingFileSystem,
    check: Callable[[Path, CrashState], None],
    work_dir: Path,
    *,
    combinations_max: int = COMBINATIONS_MAX,
    failures_max: int | None = None,
    skipped_count: int = 0,
    share: int | None = None,
) -> CrashReport:
    """Make every state real in `work_dir`, and call `check(root, state)` on it.

    A failed assertion of the checker is a failure; any other exception is an error of the test.
    The checker may change what it gets. Every state has the path of the recorded run: absolute
    paths in files lead where they did. With a `share` so many are drawn, and the last one is among
    them. After `failures_max` failures the rest is left out, and so are the states of a crash within
    the first `skipped_count` operations.
    """
    root = work_dir / RUN_NAME
    failures: list[Failure] = []
    all_states = crash_states(recording, combinations_max=combinations_max)
    states: Iterable[CrashState] = (each for each in all_states if each.done_count >= skipped_count)
    states_count = checked_count = 0
    if share is not None:
        found = list(states)
        states_count = len(found)
        states = [*drawn(found[:-1], share - 1, len(recording.operations)), found[-1]]
    for state in states:
        checked_count += 1
        state.write_to(root)
        try:
            check(root, state)
        except AssertionError as error:
            failures.append(Failure(state, error))
        finally:
            shutil.rmtree(root)
        if failures_max is not None and len(failures) >= failures_max:
            break
    states_count = max(states_count, checked_count)
    return CrashReport(len(recording.operations), states_count, checked_count, failures)
