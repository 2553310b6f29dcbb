"""The only module that changes files of a log directory, one system call at a time, durably.

A file is replaced in steps, so that a crash at any moment leaves the old or the new content:

1. NAME.eoctl-tmp in the same directory: O_CREAT | O_EXCL | O_NOFOLLOW, mode 0600
2. all of the data
3. owner, group and mode of the directory, without the x bits, as its broker writes
4. fsync of the file: without it the rename may survive while the data is lost
5. rename to NAME: atomic, so a reader sees the old or the new file
6. fsync of the directory: without it the old file may come back

A failed step removes the temporary file and leaves NAME as it was. After step 5 the new content is
in place. If step 6 fails, the error says that it may not be durable. A NAME.eoctl-tmp that an
earlier crash left is replaced. A broker ignores such files.

Every change goes through a `FileSystem` object. So tests can record all calls with their payloads,
and let any of them fail or do nothing. Its methods raise OSError. The functions of this module
raise eoctl's own errors.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from storage.errors import LEFT_AS_IT_WAS, RefusedError, os_errors
from storage.file_names import CLEAN_SHUTDOWN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Bytes = bytes | bytearray | memoryview
    StrPath = str | os.PathLike[str]


TEMP_SUFFIX = ".eoctl-tmp"
WRITE_BYTES = 1 << 20  # small chunks of a stream are collected up to this size
_PRIVATE_MODE = 0o600


class OpenFile:
    """A file or a directory that a `FileSystem` opened. As a context manager it closes itself.

    `pos` is the position of the next write and may be set.
    """

    def __init__(self, fs: FileSystem, path: str, fd: int, pos: int = 0) -> None:
        self.fs = fs
        self.path = path
        self.fd = fd
        self.pos = pos

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        if error is None:
            self.fs.close(self)
            return
        with suppress(OSError):  # the first error says more
            self.fs.close(self)


class FileSystem:
    """The operating system's calls that change files, and nothing else. All raise OSError.

    Each method is one system call. Only `fsync` and `fsync_dir` make a change durable.

    Attributes:
        threads_count: most threads that may wait for it at once.
    """

    threads_count = 16

    # --- the content and the attributes of one file -----------------------------------------------

    def open_new(self, path: StrPath, mode: int = _PRIVATE_MODE) -> OpenFile:
        """Create a file for writing.

        The name must not exist, not even as a dangling symbolic link.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = os.fspath(path)
        return OpenFile(self, path, os.open(path, flags, mode))

    def open_existing(self, path: StrPath) -> OpenFile:
        """Open a regular file for writing at its end. Symbolic links are not followed."""
        # O_NONBLOCK: opening a pipe of that name must not block.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        path = os.fspath(path)
        fd = os.open(path, flags)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "Not a regular file", path)
        return OpenFile(self, path, fd, found.st_size)

    def open_dir(self, path: StrPath) -> OpenFile:
        """Open a directory to set its attributes. Its `fsync` does the same as `fsync_dir`."""
        path = os.fspath(path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return OpenFile(self, path, os.open(path, flags))

    def write(self, file: OpenFile, data: Bytes) -> None:
        """Write all of `data` at `file.pos` and advance `file.pos`."""
        written_bytes = os.pwrite(file.fd, data, file.pos)
        file.pos += written_bytes
        view = memoryview(data)
        while written_bytes < view.nbytes:
            view = view.cast("B")[written_bytes:]
            written_bytes = os.pwrite(file.fd, view, file.pos)
            file.pos += written_bytes

    def truncate(self, file: OpenFile, size_bytes: int) -> None:
        """Truncate the file, or extend it with zeros. `file.pos` becomes its end."""
        os.ftruncate(file.fd, size_bytes)
        file.pos = size_bytes

    def set_owner(self, file: OpenFile, uid: int, gid: int) -> None:
        """Change owner and group."""
        os.fchown(file.fd, uid, gid)

    def set_mode(self, file: OpenFile, mode: int) -> None:
        """Change the permission bits."""
        os.fchmod(file.fd, mode)

    def set_times(self, file: OpenFile, *, atime_ns: int, mtime_ns: int) -> None:
        """Change access and modification time. Later writes change them again."""
        os.utime(file.fd, ns=(atime_ns, mtime_ns))

    def start_writeback(self, file: OpenFile, pos: int) -> None:
        """Let the system begin to write new data from `pos` on to the disk, without waiting.

        It guarantees nothing, but shortens a later `fsync`. Pages already on the disk may leave the
        page cache.
        """
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fd, pos, file.pos - pos, os.POSIX_FADV_DONTNEED)

    def fsync(self, file: OpenFile) -> None:
        """Make content, size and attributes of the file durable, but not its name."""
        os.fsync(file.fd)

    def close(self, file: OpenFile) -> None:
        """Close the descriptor, even if this raises. A second `close` does nothing."""
        fd, file.fd = file.fd, -1
        if fd >= 0:
            os.close(fd)

    # --- names in directories ---------------------------------------------------------------------

    def rename(self, old: StrPath, new: StrPath) -> None:
        """Give a file or directory another name on the same file system, replacing a file there."""
        os.rename(old, new)  # noqa: PTH104 - as a simulated cluster does thousands of times

    def link(self, old: StrPath, new: StrPath) -> None:
        """Give a file a second name, which must not exist."""
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: StrPath) -> None:
        """Remove a name of a file."""
        os.unlink(path)  # noqa: PTH108 - as `rename`

    def make_dir(self, path: StrPath, mode: int = 0o700) -> None:
        """Create a directory, whose parent must exist."""
        Path(path).mkdir(mode)

    def remove_dir(self, path: StrPath) -> None:
        """Remove an empty directory."""
        Path(path).rmdir()

    def fsync_dir(self, path: StrPath) -> None:
        """Make the names in a directory durable. `path` may be a symbolic link to it."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # A file system that cannot sync directories returns EINVAL and offers no better way.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)


def _gathered(data: Bytes | Iterable[Bytes]) -> Iterator[Bytes]:
    """Yield the bytes of a stream in pieces large enough for a system call."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield data
        return
    gathered = bytearray()
    for chunk in data:
        if not gathered and len(chunk) >= WRITE_BYTES:
            yield chunk
            continue
        gathered += chunk
        if len(gathered) >= WRITE_BYTES:
            yield gathered
            gathered = bytearray()
    if gathered:
        yield gathered


# --- replacing and removing -----------------------------------------------------------------------


def temp_path(path: StrPath) -> str:
    """Return the path of the temporary file with the new content of `path`."""
    return os.fspath(path) + TEMP_SUFFIX


def create_file(
    fs: FileSystem, path: StrPath, data: Bytes | Iterable[Bytes], attributes: FileAttributes
) -> None:
    """Write and sync a file that must not exist. Its name is not durable yet (`sync_dir`).

    After an error, also an error of the stream, the file is removed.

    Raises:
        AccessError: the operating system refused, or the name exists.
        RefusedError: the operating system refused these attributes.
    """
    with os_errors(path):
        file = fs.open_new(path)
    try:
        # Wrap only our own calls: an OSError of the stream is not about this file and is raised
        # unchanged.
        for chunk in _gathered(data):
            with os_errors(path):
                fs.write(file, chunk)
        with os_errors(path):
            set_attributes(fs, file, attributes)
            fs.fsync(file)
            fs.close(file)
    except BaseException:
        with suppress(OSError):
            fs.close(file)
        _discard(fs, path)
        raise


def _discard(fs: FileSystem, path: StrPath) -> None:
    """Remove the file of a failed step. If that fails too, the next run removes it."""
    with suppress(OSError):
        fs.unlink(path)


def replace_file(
    fs: FileSystem,
    path: StrPath,
    data: Bytes | Iterable[Bytes],
    *,
    attributes: FileAttributes | None = None,
) -> None:
    """Make `data` the content of `path`, which may exist, durably and in one step.

    Args:
        fs: makes the changes.
        path: a regular file, or a name that does not exist. Its directory must exist.
        data: the content, whole or as a stream. An error of the stream leaves the file as it was.
        attributes: of the file, by default owner, group and mode (without x bits) of its directory.

    Raises:
        AccessError: the operating system refused, with the next step. Before the rename the old
            content is untouched. After the rename the new content is in place, but may not be
            durable.
        RefusedError: owner and group cannot be kept, or `path` is not a regular file.
    """
    put_file(fs, path, data, attributes=attributes)
    state = f"{os.fspath(path)} has its new content, which may not survive a crash yet"
    sync_dir(fs, directory_of(path), state=state)


def directory_of(path: StrPath) -> str:
    """Return the directory of a file. Runs for each written file, so it is faster than pathlib."""
    return os.path.dirname(path) or "."  # noqa: PTH120


def put_file(
    fs: FileSystem,
    path: StrPath,
    data: Bytes | Iterable[Bytes],
    *,
    attributes: FileAttributes | None = None,
) -> None:
    """Replace a file as `replace_file` does, but its name is not durable before `sync_dir`."""
    path = os.fspath(path)
    if attributes is None:
        attributes = kept_attributes(directory_of(path))
    elif attributes.uid != os.geteuid():
        require_owner(directory_of(path))  # no owner has to be changed for a file of this user
    require_replaceable(path)
    temp = _create_temp(fs, path, data, attributes)
    try:
        with os_errors(path):
            fs.rename(temp, path)
    except BaseException:
        _discard(fs, temp)
        raise


def open_alone(fs: FileSystem, path: StrPath) -> OpenFile:
    """Open a file of a log directory for changes in place, for writing at its end.

    A file with several names (`cp -al`, backups by hard links) is copied first. The change must not
    reach the other names, which may belong to a running broker.

    Raises:
        AccessError: the operating system refused. The file is as it was.
        RefusedError: the copy could not get its owner.
    """
    path = os.fspath(path)
    with os_errors(path):
        file = fs.open_existing(path)
    try:
        found = os.fstat(file.fd)
        if found.st_nlink == 1:
            return file
        mode = stat.S_IMODE(found.st_mode)
        attributes = FileAttributes(
            uid=found.st_uid, gid=found.st_gid, mode=mode, mtime_ns=found.st_mtime_ns
        )
        replace_file(fs, path, _chunks_of(file), attributes=attributes)
    except BaseException:
        with suppress(OSError):
            fs.close(file)
        raise
    with os_errors(path):
        fs.close(file)
        return fs.open_existing(path)


def _chunks_of(file: OpenFile) -> Iterator[Bytes]:
    pos = 0
    while True:
        with os_errors(file.path):
            chunk = os.pread(file.fd, WRITE_BYTES, pos)
        if not chunk:
            return
        yield chunk
        pos += len(chunk)


def add_file(fs: FileSystem, path: StrPath, data: Bytes | Iterable[Bytes]) -> None:
    """Create a file durably and in one step. Never replaces an existing name.

    The file is linked to its name, so that the loser of a race with another process gets an error.

    Raises:
        AccessError: as `replace_file`. `errno` is EEXIST if the name exists.
        RefusedError: owner and group cannot be kept.
    """
    path = os.fspath(path)
    directory = directory_of(path)
    attributes = kept_attributes(directory)
    # The temporary name has our process id: no lock keeps another process from adding the same
    # file.
    temp = _create_temp(fs, f"{path}.{os.getpid()}", data, attributes)
    try:
        with os_errors(path):
            fs.link(temp, path)
    finally:
        _discard(fs, temp)
    sync_dir(fs, directory, state=f"{path} is there, but may not survive a crash yet")


def _create_temp(
    fs: FileSystem, path: str, data: Bytes | Iterable[Bytes], attributes: FileAttributes
) -> str:
    temp = temp_path(path)
    with os_errors(temp), suppress(FileNotFoundError):
        fs.unlink(temp)  # left by a crash: the lock keeps other writers away
    create_file(fs, temp, data, attributes)
    return temp


def require_replaceable(path: StrPath) -> None:
    """Refuse a path that cannot be replaced, before anything is written.

    Replacing a symbolic link would lose it, and the directory must be syncable.
    """
    directory = directory_of(path)
    with os_errors(directory):
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    with os_errors(path):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
        raise RefusedError(
            f"{os.fspath(path)}: is {what}, and replacing it would lose that",
            next_step="put the file itself there, then run it again",
        )


def make_dir_like(fs: FileSystem, path: StrPath, like: StrPath) -> None:
    """Create a directory with the owner, group and mode of another, unless it exists.

    Neither its attributes nor its name are durable yet (`sync_dir` of it and of its parent).

    Raises:
        AccessError: the operating system refused.
        RefusedError: owner and group of `like` cannot be given to it.
    """
    require_owner(like)
    with os_errors(path):
        with suppress(FileExistsError):
            fs.make_dir(path)
        found = Path(like).stat()
        wanted = FileAttributes(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))
        with fs.open_dir(path) as directory:
            set_attributes(fs, directory, wanted)


def remove_leftovers(fs: FileSystem, directory: StrPath) -> list[str]:
    """Remove all temporary files that earlier crashes left in a directory, durably.

    Returns their paths. The caller must hold the lock, because they may belong to a running
    process.

    Raises:
        AccessError: the directory cannot be listed, or a file cannot be removed.
    """
    with os_errors(directory):
        files = Path(directory).iterdir()
        paths = sorted(
            str(file) for file in files if file.name.endswith(TEMP_SUFFIX) and not file.is_dir()
        )
        for path in paths:
            fs.unlink(path)
    if paths:
        sync_dir(fs, directory)
    return paths


def remove_file(fs: FileSystem, path: StrPath) -> bool:
    """Remove a file durably. Returns False if it does not exist.

    The directory is synced in both cases. An earlier run may have been killed between its two
    steps, and a crash would bring the file back.

    Raises:
        AccessError: the file could not be removed, or its removal may not be durable.
    """
    is_there = True
    with os_errors(path):
        try:
            fs.unlink(path)
        except FileNotFoundError:
            is_there = False
    sync_dir(fs, directory_of(path), state=f"{path} is removed, but may be back after a crash")
    return is_there


def remove_clean_marker(fs: FileSystem, log_dir: StrPath) -> bool:
    """Remove the clean-shutdown marker of a log directory durably, as a plan's first change.

    With the marker a broker skips recovery and trusts the files. Returns False if there is no
    marker.

    Raises:
        AccessError: as `remove_file`. The caller must then change nothing.
    """
    return remove_file(fs, Path(log_dir, CLEAN_SHUTDOWN_NAME))


def sync_dir(fs: FileSystem, directory: StrPath, *, state: str = LEFT_AS_IT_WAS) -> None:
    """Make the names in a directory durable. The next step of an AccessError begins with `state`.

    A run that finds its work done does this too: the previous run may have been killed before this
    step.
    """
    with os_errors(directory, state=state):
        fs.fsync_dir(directory)


def set_attributes(fs: FileSystem, file: OpenFile, wanted: FileAttributes) -> None:
    """Set the attributes that differ. A file system without owners then needs no change of owner.

    Raises:
        RefusedError: the owner cannot be set.
        OSError: any other failure.
    """
    found = os.fstat(file.fd)
    if (found.st_uid, found.st_gid) != (wanted.uid, wanted.gid):
        try:
            fs.set_owner(file, wanted.uid, wanted.gid)
        except PermissionError as error:
            raise owner_refused(file.path) from error
    if stat.S_IMODE(found.st_mode) != wanted.mode:
        fs.set_mode(file, wanted.mode)
    if wanted.mtime_ns is not None:
        fs.set_times(file, atime_ns=found.st_atime_ns, mtime_ns=wanted.mtime_ns)


# -- owner, group, mode and time of the files that we write, such that a broker can use them


class FileAttributes(NamedTuple):
    """Owner, group, permission bits and modification time (None: not set)."""

    uid: int
    gid: int
    mode: int
    mtime_ns: int | None = None


def attributes_for(directory: StrPath) -> FileAttributes:
    """Return owner, group and mode (without x bits) of `directory`, for a new file in it."""
    with os_errors(directory):
        found = os.stat(directory)  # noqa: PTH116 - for each file that is written
    return FileAttributes(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode) & 0o666)


def own_attributes() -> FileAttributes:
    """Return the attributes of a user's own files: the user's ids, with the mode of the umask.

    This is for files outside the log directories, such as a report. Their directory may be `/tmp`,
    which belongs to root.
    """
    return FileAttributes(os.geteuid(), os.getegid(), 0o666 & ~umask())


def umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def can_keep_owner(path: StrPath) -> bool:
    """Return whether this process can give new files the owner and group of a directory.

    `path` is the directory, or a file in it. For root the answer is always yes. If root lacks a
    capability, or a server maps root to nobody, the first write is refused.
    """
    return can_give(attributes_for(path if Path(path).is_dir() else Path(path).parent))


def can_give(wanted: FileAttributes) -> bool:
    """Return whether this process can give new files this owner and group, as `can_keep_owner`."""
    if os.geteuid() == 0:
        return True
    return wanted.uid == os.geteuid() and wanted.gid in {os.getegid(), *os.getgroups()}


def kept_attributes(directory: StrPath) -> FileAttributes:
    """Return `attributes_for` of a directory whose owner and group this process can give.

    Raises:
        RefusedError: it cannot (exit status 4).
        AccessError: the directory does not exist or cannot be read.
    """
    wanted = attributes_for(directory)
    if not can_give(wanted):
        raise owner_refused(directory)
    return wanted


def require_owner(path: StrPath) -> None:
    """Refuse a change in advance if `can_keep_owner` is False.

    Raises:
        RefusedError: exit status 4.
        AccessError: the directory does not exist or cannot be read.
    """
    if not can_keep_owner(path):
        raise owner_refused(path)


def require_own_file(path: StrPath, uid: int, gid: int) -> None:
    """Refuse in advance to change a file whose owner or group this process could not restore.

    The owner of the directory decides, since a change requires it anyway (`require_owner`). So the
    answer is the same for a user who only reads.

    Raises:
        RefusedError: exit status 4.
        AccessError: the directory does not exist or cannot be read.
    """
    if os.geteuid() == 0:
        return
    wanted = attributes_for(Path(path).parent)
    if uid == wanted.uid and gid in {wanted.gid, os.getegid(), *os.getgroups()}:
        return
    owner = f"{wanted.uid}:{wanted.gid}"
    raise RefusedError(
        f"{os.fspath(path)}: belongs to {uid}:{gid}, and its directory to {owner}."
        " A copy of it could not get its owner back; nothing was touched",
        next_step="run it as root, or give the file to the owner of its directory first",
    )


def owner_refused(path: StrPath) -> RefusedError:
    """Return the refusal of a change that would change the owner of a file."""
    return RefusedError(
        f"{os.fspath(path)}: new files could not get the owner and group of their directory,"
        " and the broker could not use them",
        next_step="run it as the user of the broker, or as root",
    )


# -- directories with all their content


def sync_tree(fs: FileSystem, path: Path) -> None:
    """Make the content of a directory and its names durable. Links are left out.

    Raises AccessError.
    """
    with os_errors(path):
        for directory, _, files in os.walk(path, topdown=False):
            for name in files:
                below = Path(directory, name)
                if below.is_symlink():
                    continue
                with fs.open_existing(below) as file:
                    fs.fsync(file)
            fs.fsync_dir(directory)


def remove_tree(fs: FileSystem, path: Path) -> None:
    """Remove a file or a directory with its content. Links are removed, not followed.

    Raises AccessError.
    """
    with os_errors(path):
        if path.is_symlink() or not path.is_dir():
            with suppress(FileNotFoundError):
                fs.unlink(path)
            return
        for directory, names, files in os.walk(path, topdown=False):
            for name in files:
                with suppress(FileNotFoundError):  # a stopping broker removes some files itself
                    fs.unlink(Path(directory, name))
            for name in names:
                below = Path(directory, name)
                if below.is_symlink():
                    fs.unlink(below)
                else:
                    fs.remove_dir(below)
        fs.remove_dir(path)
