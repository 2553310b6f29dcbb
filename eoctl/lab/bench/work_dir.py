"""Work directory of `eoctl bench`: marked, locked during a run, recognised after a crash.

- `bench.json`: the marker, with pid and start time of each started process.
- `node-0`, `node-1`, ...: the log dirs of the brokers. `node-100` is the controller's.
- `node-0.properties`: the settings of each node.
- `node-0.log`: the output of each node.

A process counts as started here if its pid is in bench.json, and the kernel reports the same start
time. The system reuses pids.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, RefusedError, os_errors, pasted
from storage.files import fsio
from storage.files.broker_lock import LockHeldError, take
from storage.files.fsio import FileSystem, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


MARKER_NAME = "bench.json"
LAYOUT_VERSION = 1
END_S = 60.0
POLL_S = 0.05
_START_FIELD = 19  # starttime, as counted behind the name in /proc/PID/stat


class Started(NamedTuple):
    """A process that eoctl has started."""

    pid: int
    start_ticks: int


def started(pid: int) -> Started:
    """Return a process with its start time."""
    return Started(pid, start_ticks(pid) or 0)


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in the kernel's ticks, None if it is missing or dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _START_FIELD or fields[0] in "ZX":
        return None
    return int(fields[_START_FIELD])


def is_running(process: Started) -> bool:
    """Return whether this process still runs."""
    return start_ticks(process.pid) == process.start_ticks


class WorkDir:
    """The work directory, owned by this process.

    Attributes:
        path: its real path.
        found: remains of an unfinished command, in words.
    """

    def __init__(self, path: Path, fs: FileSystem) -> None:
        self.path = path
        self.found: list[str] = []
        self._fs = fs
        self._processes: dict[str, Started] = {}

    def note(self, processes: Mapping[int, Started]) -> None:
        """Record the running processes. Raises AccessError."""
        self._processes = {str(node): each for node, each in processes.items()}
        self._save()

    def put(self, name: str, text: str) -> Path:
        """Write a file. Raises AccessError."""
        fsio.put_file(self._fs, self.path / name, text.encode())
        return self.path / name

    def put_bytes(self, name: str, data: bytes) -> None:
        """Write a file. Raises AccessError."""
        fsio.put_file(self._fs, self.path / name, data)

    def make_dir(self, name: str) -> Path:
        """Make a directory. Raises AccessError."""
        with os_errors(self.path / name):
            self._fs.make_dir(self.path / name, 0o755)
        return self.path / name

    def open_log(self, name: str) -> fsio.OpenFile:
        """Open a file for the output of a process, at its end. Raises AccessError."""
        path = self.path / name
        with os_errors(path):
            if path.exists():
                return self._fs.open_existing(path)
            return self._fs.open_new(path, 0o644)

    def remove(self, name: str) -> None:
        """Remove a file or a tree, without following links."""
        remove_tree(self._fs, self.path / name)

    def clear(self) -> None:
        """Remove everything except the marker and the lock. Raises AccessError."""
        for each in sorted(self.path.glob("node-*")):
            self.remove(each.name)

    def _save(self) -> None:
        value = {
            "eoctl_bench": LAYOUT_VERSION,
            "pid": os.getpid(),
            "processes": {name: each._asdict() for name, each in self._processes.items()},
        }
        data = (json.dumps(value, indent=1) + "\n").encode()
        fsio.replace_file(self._fs, self.path / MARKER_NAME, data)

    def end_left_over(self, value: dict[str, Any]) -> None:
        """End the processes of an earlier command, and remove its files.

        Raises:
            RefusedError: a process does not end.
        """
        left = {
            name: Started(int(each["pid"]), int(each["start_ticks"]))
            for name, each in value["processes"].items()
        }
        running = {name: each for name, each in left.items() if is_running(each)}
        for each in running.values():
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        deadline_s = time.monotonic() + END_S
        while any(map(is_running, running.values())):
            if time.monotonic() > deadline_s:
                pids = " ".join(str(each.pid) for each in running.values() if is_running(each))
                raise RefusedError(f"{self.path}: brokers of a call before do not end: {pids}")
            time.sleep(POLL_S)
        has_nodes = any(self.path.glob("node-*"))
        if left or has_nodes:
            reported = ", ".join(f"node {name} ({each.pid})" for name, each in running.items())
            self.found.append(
                f"{self.path}: a call before (process {value.get('pid')}) did not come to its end;"
                + (
                    f" it left running, and now ended: {reported}"
                    if reported
                    else " nothing of it runs"
                )
            )
        self.clear()

    def leave(self) -> None:
        """Remove the directory if no process runs, and it has no other files."""
        if self._processes:
            return
        self.clear()
        with suppress(OSError):
            for name in (MARKER_NAME, ".lock"):
                self._fs.unlink(self.path / name)
            self._fs.remove_dir(self.path)


@contextmanager
def work_dir(path: str, fs: FileSystem | None = None) -> Iterator[WorkDir]:
    """Open the directory, either new or left by an unfinished command.

    Raises:
        RefusedError: the directory has other files, or another command runs in it.
        AccessError: the directory cannot be made.
    """
    fs = fs or FileSystem()
    next_step = "--work-dir DIR, one that is not there yet"
    require_outside_log_dirs(path, next_step)
    root = Path(path).absolute()
    value = _require_ours(root, path, next_step)
    if not root.parent.is_dir():
        raise RefusedError(
            f"{path}: there is no directory {root.parent}",
            next_step=f"mkdir -p {pasted(str(root.parent))}",
        )
    if not root.exists():
        with os_errors(path):
            fs.make_dir(root, 0o755)
    made = WorkDir(root.resolve(), fs)
    try:
        with take([root], fs=fs):
            if value is not None:
                made.end_left_over(value)
            made.note({})
            yield made
    except LockHeldError as error:
        raise RefusedError(
            f"{path}: another eoctl bench runs there (process {error.pid}); nothing was touched",
            next_step=next_step,
        ) from error


def _require_ours(root: Path, path: str, next_step: str) -> dict[str, Any] | None:
    """Read the marker. Return None if the directory is empty or does not exist."""
    try:
        names = {each.name for each in root.iterdir()}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AccessError(error, path) from error
    if not names - {".lock"}:
        return None
    marker = root / MARKER_NAME
    try:
        value = json.loads(marker.read_bytes())
        if value["eoctl_bench"] == LAYOUT_VERSION:
            _ = {
                int(each["pid"]) + int(each["start_ticks"]) for each in value["processes"].values()
            }
            return dict(value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise RefusedError(
        f"{path}: is not empty, and no directory of eoctl bench; nothing was touched",
        next_step=next_step,
    )
