"""The target directory of an export: its conditions, its manifest, and files that appear whole.

    _manifest.jsonl  the options, the names of planned files, and a line for each finished piece,
                     written after its file. It is sorted when the export is complete
    _lost.jsonl      the unreadable ranges, written when the export is complete
    topic=.../       the files of records

Spark, Hive and Arrow skip names that begin with `_` or `.`. A file of records is written as
`.NAME.eoctl-tmp`, synced and renamed, so that the final name always has the whole content.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from storage.dirs.discovery import is_in_log_dir
from storage.dirs.state_file import read_as
from storage.errors import AccessError, RefusedError
from storage.files.fsio import TEMP_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from storage.files.fsio import FileSystem, OpenFile

MANIFEST_NAME = "_manifest.jsonl"
LOST_NAME = "_lost.jsonl"
VERSION = 1
FILE_MODE, DIR_MODE = 0o666, 0o777  # the umask restricts access
NEXT_STEP = "put that right, then run the same with --resume. Finished files stay"


@contextmanager
def output_errors(path: str | Path) -> Iterator[None]:
    """Turn an OSError of writing into an AccessError with the next step."""
    try:
        yield
    except NotADirectoryError as error:  # for example, of a directory above
        raise AccessError(error, error.filename or os.fspath(path), next_step=NEXT_STEP) from error
    except OSError as error:
        raise AccessError(error, os.fspath(path), next_step=NEXT_STEP) from error


def require_target(to: str, sources: Iterable[str]) -> None:
    """Refuse a target directory in a log dir, or in an exported directory.

    Raises:
        RefusedError: it is there.
    """
    target = Path(to).resolve()
    inside = [each for each in sources if "://" not in each and _holds(Path(each), target)]
    if is_in_log_dir(target) or inside:
        raise RefusedError(
            f"{to}: lies in a log directory, where a broker expects nothing else",
            next_step="--to DIR outside of it",
        )


def _holds(directory: Path, target: Path) -> bool:
    real = directory.resolve()
    return target == real or real in target.parents


class ExportDir:
    """The target directory of a running export, locked against other exports.

    Attributes:
        path: of the directory.
        finished: entries of pieces that earlier runs have finished, by name.
    """

    def __init__(self, fs: FileSystem, path: str, lock: OpenFile) -> None:
        self.path = path
        self.finished: dict[str, dict[str, Any]] = {}
        self._planned: set[str] = set()
        self._fs = fs
        self._lock = lock
        self._head: dict[str, Any] = {}
        self._entries: dict[str, Mapping[str, Any]] = {}
        self._manifest: OpenFile | None = None

    @classmethod
    def take(cls, fs: FileSystem, path: str, options: Mapping[str, Any], *, resume: bool) -> Self:
        """Open or create the directory, and lock it.

        Args:
            fs: changes files.
            path: of the directory.
            options: must be the same when the export is resumed.
            resume: continue with the existing files.

        Raises:
            AccessError: it cannot be created, listed or written to.
            RefusedError: it is not empty without `resume`, it has other files or an export with
                other options, or another export is writing to it.
        """
        with output_errors(path):
            make_dirs(fs, path)
            lock = fs.open_dir(Path(path).resolve())  # the path may contain a link
            try:
                fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # A file system without locks for directories (NFS) returns another error.
                if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                    fs.close(lock)
                    raise RefusedError(f"{path}: another export is writing there") from None
        try:
            opened = cls(fs, path, lock)
            opened._begin(options, resume=resume)
        except BaseException:
            with suppress(OSError):
                fs.close(lock)
            raise
        return opened

    def _begin(self, options: Mapping[str, Any], *, resume: bool) -> None:
        self._head = {"kind": "export", "version": VERSION, "options": dict(options)}
        with output_errors(self.path):
            names = os.listdir(self.path)  # noqa: PTH208 - names, not paths
        names = [name for name in names if not name.endswith(TEMP_SUFFIX)]
        if not names:
            return
        if not resume:
            raise RefusedError(
                f"{self.path}: not empty",
                next_step="--resume goes on with an export; or name another directory",
            )
        if MANIFEST_NAME not in names:
            raise RefusedError(
                f"{self.path}: not empty, and no export of ours", next_step="--to another directory"
            )
        self._read_manifest()

    def _read_manifest(self) -> None:
        path = Path(self.path, MANIFEST_NAME)
        with output_errors(path):
            data = path.read_bytes()
        lines = list(_json_lines(data))
        head = lines[0] if lines else {}
        if head.get("kind") != "export" or head.get("version") != VERSION:
            raise RefusedError(
                f"{path}: not the manifest of an export that can be resumed",
                next_step="--to another directory",
            )
        known, wanted = head.get("options"), self._head["options"]
        known = known if isinstance(known, dict) else {}
        wanted = json.loads(json.dumps(wanted))
        for name in wanted:
            if known.get(name) != wanted[name]:
                raise RefusedError(
                    f"{self.path}: was exported with {name} {_shown(known.get(name))}, "
                    f"not {_shown(wanted[name])}",
                    next_step="the same options as before, or --to another directory",
                )
        try:
            for line in lines[1:]:
                if line.get("kind") == "plan":
                    self._planned.update(read_as(tuple[str, ...], line["names"]))
                elif line.get("kind") == "piece":
                    self.finished[read_as(str, line["name"])] = line
        except (KeyError, ValueError) as exc:
            raise RefusedError(
                f"{path}: damaged ({type(exc).__name__}: {exc})",
                next_step="--to another directory",
            ) from exc

    def holds(self, name: str, file_bytes: int) -> bool:
        """Return whether a finished file still has its size. An empty piece has no file."""
        try:
            found = Path(self.path, name).stat().st_size
        except OSError:
            return file_bytes == 0
        return found == file_bytes

    def begin(self, names: Iterable[str], kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the plan and the kept pieces of earlier runs, and remove other files of these runs.

        Raises:
            AccessError: the directory cannot be written to.
        """
        planned = sorted(names)
        self._entries = dict(kept)
        every = sorted(self._planned.union(planned))
        lines = [self._head, {"kind": "plan", "names": every}, *kept.values()]
        manifest = Path(self.path, MANIFEST_NAME)
        with output_errors(manifest):
            self._replace(manifest, lines)
            for name in sorted(self._planned.difference(kept)):
                for each in (Path(self.path, name), temp_of(Path(self.path, name))):
                    with suppress(FileNotFoundError):
                        self._fs.unlink(each)
            self._manifest = self._fs.open_existing(manifest)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write an entry for a finished piece. Its file is durable already."""
        assert self._manifest is not None
        self._entries[entry["name"]] = entry
        with output_errors(self._manifest.path):
            self._fs.write(self._manifest, _line(entry))

    def finish(self, lost: Iterable[Mapping[str, Any]]) -> None:
        """Write the lost ranges, and the sorted manifest."""
        self._close_manifest()
        entries = [self._entries[name] for name in sorted(self._entries)]
        lines = [self._head, {"kind": "plan", "names": sorted(self._entries)}, *entries]
        with output_errors(self.path):
            self._replace(Path(self.path, LOST_NAME), lost)
            self._replace(Path(self.path, MANIFEST_NAME), lines)

    def close(self) -> None:
        """Unlock and close the directory."""
        with suppress(OSError):
            self._close_manifest()
        with suppress(OSError):
            self._fs.close(self._lock)

    def _close_manifest(self) -> None:
        if self._manifest is not None:
            self._fs.close(self._manifest)
            self._manifest = None

    def _replace(self, path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
        target = TargetFile(self._fs, path)
        with target:
            for line in lines:
                target.write(_line(line))
            target.finish()


def temp_of(path: Path) -> Path:
    """Return the name that a file has while it is written."""
    return path.with_name(f".{path.name}{TEMP_SUFFIX}")


class TargetFile:
    """A new file that gets its name when it is complete and durable. It raises OSError.

    As a context manager it removes an unfinished file. It has the methods that Arrow needs.
    """

    closed = False

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._temp = temp_of(path)
        self._is_given_up = False
        self._waiting = bytearray()
        self.file_bytes = 0
        with suppress(FileNotFoundError):
            fs.unlink(self._temp)  # left by a killed run
        self._file = fs.open_new(self._temp, FILE_MODE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._file.fd >= 0:
            self.give_up()

    def write(self, data: bytes | memoryview) -> int:
        """Append data. Small pieces are buffered."""
        size = len(data)
        if not self._is_given_up:
            self._waiting += data
            self.file_bytes += size
            if len(self._waiting) >= 1 << 20:
                self._push()
        return size

    def _push(self) -> None:
        data, self._waiting = self._waiting, bytearray()
        self._fs.write(self._file, data)

    def report(self) -> int:
        """Return the number of bytes so far."""
        return self.file_bytes

    def flush(self) -> None:
        """Do nothing: `finish` flushes."""

    def close(self) -> None:
        """Do nothing: Arrow closes its output even after an error."""

    def finish(self) -> None:
        """Make the file durable, and give it its name."""
        self._push()
        self._fs.fsync(self._file)
        self._fs.close(self._file)
        self._fs.rename(self._temp, self._path)
        self._fs.fsync_dir(self._path.parent)

    def give_up(self) -> None:
        """Remove the file, and ignore further writes."""
        self._is_given_up = True
        with suppress(OSError):
            self._fs.close(self._file)
        with suppress(OSError):
            self._fs.unlink(self._temp)


def make_dirs(fs: FileSystem, path: str | Path) -> None:
    """Create a directory and its missing parents, durably. Raises OSError."""
    missing = []
    here = Path(path)
    while not here.is_dir():
        if here.exists():
            if here.is_dir():
                break  # another process has created it since
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(here))
        missing.append(here)
        if here == here.parent:
            break
        here = here.parent
    for each in reversed(missing):
        try:
            fs.make_dir(each, DIR_MODE)
        except FileExistsError:
            if not each.is_dir():
                raise
        fs.fsync_dir(each.parent)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield whole lines up to the first invalid line: a crash may have torn the last line."""
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        try:
            value = json.loads(line)
        except ValueError:
            return
        if not isinstance(value, dict):
            return
        yield value


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "nothing" if value is None else str(value)
