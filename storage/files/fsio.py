"""The only module that changes files of a log directory, one system call at a time, durably.

A file is replaced in steps, so that a crash at any moment leaves the old content or the new one:

    1  NAME.eoctl-tmp in the same directory: O_CREAT | O_EXCL | O_NOFOLLOW, mode 0600
    2  all of the data
    3  owner, group and mode: those of the directory, without the x bits, as its broker writes
    4  fsync of the file           without it the rename may survive and the data be lost
    5  rename to NAME              atomic: readers see one of the two files
    6  fsync of the directory      without it the old file may come back after all

A step that fails takes the temporary file away and leaves NAME as it was; only after step 5 the new
content is there and merely not known to be durable, and the error says so. What an earlier crash
left of NAME.eoctl-tmp is replaced; a broker ignores such files.

Every change goes through a `FileSystem` object, so that tests can record each call with its
payload, let any of them fail, and leave one out. Its methods raise OSError; the functions of this
module raise the program's own errors.
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
WRITE_BYTES = 1 << 20  # small chunks of a stream are gathered up to this size
_PRIVATE_MODE = 0o600


class OpenFile:
    """A file or a directory that a `FileSystem` opened. As a context manager it closes itself.

    `pos` is where the next write goes; it may be set.
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
        with suppress(OSError):  # the first error tells more
            self.fs.close(self)


class FileSystem:
    """The operating system's calls that change files, and nothing else. All raise OSError.

    A method is one call. Nothing but `fsync` and `fsync_dir` makes anything durable.

    Attributes:
        threads_count: so many threads may wait for it at once.
    """

    threads_count = 16

    # --- the content and the attributes of one file -----------------------------------------------

    def open_new(self, path: StrPath, mode: int = _PRIVATE_MODE) -> OpenFile:
        """Create a file that must not exist, not even as a dangling symbolic link; for writing."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = os.fspath(path)
        return OpenFile(self, path, os.open(path, flags, mode))

    def open_existing(self, path: StrPath) -> OpenFile:
        """Open a regular file for writing at its end; symbolic links are not followed."""
        # O_NONBLOCK: a pipe of that name must not make us wait.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        path = os.fspath(path)
        fd = os.open(path, flags)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "Not a regular file", path)
        return OpenFile(self, path, fd, found.st_size)

    def open_dir(self, path: StrPath) -> OpenFile:
        """Open a directory, to set its attributes; `fsync` of it is as `fsync_dir`."""
        path = os.fspath(path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return OpenFile(self, path, os.open(path, flags))

    def write(self, file: OpenFile, data: Bytes) -> None:
        """Write all of `data` at `file.pos`, and move that."""
        written_bytes = os.pwrite(file.fd, data, file.pos)
        file.pos += written_bytes
        view = memoryview(data)
        while written_bytes < view.nbytes:
            view = view.cast("B")[written_bytes:]
            written_bytes = os.pwrite(file.fd, view, file.pos)
            file.pos += written_bytes

    def truncate(self, file: OpenFile, size_bytes: int) -> None:
        """Cut the file, or extend it with zeros; `file.pos` becomes its end."""
        os.ftruncate(file.fd, size_bytes)
        file.pos = size_bytes

    def set_owner(self, file: OpenFile, uid: int, gid: int) -> None:
        """Change owner and group."""
        os.fchown(file.fd, uid, gid)

    def set_mode(self, file: OpenFile, mode: int) -> None:
        """Change the permission bits."""
        os.fchmod(file.fd, mode)

    def set_times(self, file: OpenFile, *, atime_ns: int, mtime_ns: int) -> None:
        """Change access and modification time; later writes change them again."""
        os.utime(file.fd, ns=(atime_ns, mtime_ns))

    def start_writeback(self, file: OpenFile, pos: int) -> None:
        """Have the system begin to write what is new from `pos` on to the disk, without waiting.

        It promises nothing, but leaves less to wait for in `fsync`. Pages that are on the disk
        already may leave the page cache.
        """
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fd, pos, file.pos - pos, os.POSIX_FADV_DONTNEED)

    def fsync(self, file: OpenFile) -> None:
        """Make content, size and attributes of the file durable; not its name."""
        os.fsync(file.fd)

    def close(self, file: OpenFile) -> None:
        """Close the descriptor, whether this raises or not; a second time does nothing."""
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
        """Make the names in a directory durable; `path` may be a symbolic link to it."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # What cannot sync directories at all says so; it has no better way to offer.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)


def _gathered(data: Bytes | Iterable[Bytes]) -> Iterator[Bytes]:
    """The bytes of a stream in pieces that are worth a system call."""
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
    """Where the new content of `path` is written before it takes that name."""
    return os.fspath(path) + TEMP_SUFFIX


def create_file(
    fs: FileSystem, path: StrPath, data: Bytes | Iterable[Bytes], attributes: FileAttributes
) -> None:
    """Write a file that must not exist, and sync it; its name is not durable yet (`sync_dir`).

    After an error, also one that the stream raises, the file is removed again.

    Raises:
        AccessError: the operating system refused, or something has that name.
        RefusedError: it would not let the file have these attributes.
    """
    with os_errors(path):
        file = fs.open_new(path)
    try:
        # Only our own calls: an OSError of the stream is not about this file and goes out as it is.
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
    """Remove what a failed step leaves; when that fails too, the next run does it."""
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
        fs: what does it.
        path: a regular file, or nothing yet. Its directory must exist.
        data: the content, whole or as a stream. An error of the stream leaves the file as it was.
        attributes: what the file gets; by default owner, group and mode (without x bits) of its
            directory.

    Raises:
        AccessError: the operating system refused, with what to do next. Until the rename the old
            content is untouched; after it, the new one is there but may not be durable.
        RefusedError: owner and group cannot be kept, or `path` is something else than a file.
    """
    put_file(fs, path, data, attributes=attributes)
    state = f"{os.fspath(path)} has its new content, which may not survive a crash yet"
    sync_dir(fs, directory_of(path), state=state)


def directory_of(path: StrPath) -> str:
    """The directory of a file; in fewer steps than pathlib's, for each file that is written."""
    return os.path.dirname(path) or "."  # noqa: PTH120


def put_file(
    fs: FileSystem,
    path: StrPath,
    data: Bytes | Iterable[Bytes],
    *,
    attributes: FileAttributes | None = None,
) -> None:
    """As `replace_file`, but for the last step: the name is not durable yet (`sync_dir`)."""
    path = os.fspath(path)
    if attributes is None:
        attributes = kept_attributes(directory_of(path))
    elif attributes.uid != os.geteuid():
        require_owner(directory_of(path))  # of a file that stays one's own nothing has to be given
    require_replaceable(path)
    temp = _create_temp(fs, path, data, attributes)
    try:
        with os_errors(path):
            fs.rename(temp, path)
    except BaseException:
        _discard(fs, temp)
        raise


def open_alone(fs: FileSystem, path: StrPath) -> OpenFile:
    """Open a file of a log dir that is to be changed in place, for writing at its end.

    A file that has other names (`cp -al`, backups by hard links) is copied first: what is done to
    it must not be done to them, which may be a running broker's.

    Raises:
        AccessError: the operating system refused; the file is as it was.
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
    """Make a file durably and in one step, unless something has that name: it is never replaced.

    The file is linked to its name, so that the loser of a race with another process finds out.

    Raises:
        AccessError: as `replace_file`; `errno` is EEXIST when something has that name.
        RefusedError: owner and group cannot be kept.
    """
    path = os.fspath(path)
    directory = directory_of(path)
    attributes = kept_attributes(directory)
    # Of its own: no lock keeps another process from adding the same file now.
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
        fs.unlink(temp)  # what a crash left: the lock keeps other writers away
    create_file(fs, temp, data, attributes)
    return temp


def require_replaceable(path: StrPath) -> None:
    """Look before anything is written: a link would be lost, and the directory must be syncable."""
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
    """Make a directory with the owner, group and mode of another, unless it is there already.

    Neither that nor its name is durable yet (`sync_dir` of it and of its parent).

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

    Returns their paths. Call it with the lock held only: they may be another process's work.

    Raises:
        AccessError: the directory cannot be listed, or a file not be removed.
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
    """Remove a file durably. Returns False when it was not there.

    Then too the directory is synced: an earlier run may have been killed between its two steps, and
    a crash would bring the file back.

    Raises:
        AccessError: it could not be removed, or that is not known to be durable.
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
    """Remove the clean-shutdown marker of a log dir durably; the first change of every plan.

    With it a broker skips recovery and trusts all that it finds. Returns False when there is none.

    Raises:
        AccessError: as `remove_file`; change nothing then.
    """
    return remove_file(fs, Path(log_dir, CLEAN_SHUTDOWN_NAME))


def sync_dir(fs: FileSystem, directory: StrPath, *, state: str = LEFT_AS_IT_WAS) -> None:
    """Make the names in a directory durable; the next step of an AccessError begins with `state`.

    Also for a run that finds its work done: the one before may have been killed before this step.
    """
    with os_errors(directory, state=state):
        fs.fsync_dir(directory)


def set_attributes(fs: FileSystem, file: OpenFile, wanted: FileAttributes) -> None:
    """Set what differs: a file system without owners need not be asked to change them.

    Raises:
        RefusedError: the owner cannot be set.
        OSError: anything else.
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


# -- owner, group, mode and time of the files that we write: those that a broker can live with


class FileAttributes(NamedTuple):
    """Owner, group, permission bits; and the modification time, None: as it comes."""

    uid: int
    gid: int
    mode: int
    mtime_ns: int | None = None


def attributes_for(directory: StrPath) -> FileAttributes:
    """What a new file in `directory` must have: its owner and group, its mode without x bits."""
    with os_errors(directory):
        found = os.stat(directory)  # noqa: PTH116 - for each file that is written
    return FileAttributes(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode) & 0o666)


def own_attributes() -> FileAttributes:
    """What any program gives a file: the user's, with the mode that the umask leaves.

    For what a user keeps beside the log dirs, such as a report: that may be in `/tmp`, which is
    root's.
    """
    return FileAttributes(os.geteuid(), os.getegid(), 0o666 & ~umask())


def umask() -> int:
    """Return the umask of the process; it can only be read by setting it."""
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def can_keep_owner(path: StrPath) -> bool:
    """Whether this process can give new files the owner and group of a directory.

    `path` is the directory, or a file in it. Root can, as far as the ids tell: that it lacks a
    capability, or is nobody to a server, shows only at the first write, which is then refused.
    """
    return can_give(attributes_for(path if Path(path).is_dir() else Path(path).parent))


def can_give(wanted: FileAttributes) -> bool:
    """Whether this process can give new files this owner and group, as `can_keep_owner`."""
    if os.geteuid() == 0:
        return True
    return wanted.uid == os.geteuid() and wanted.gid in {os.getegid(), *os.getgroups()}


def kept_attributes(directory: StrPath) -> FileAttributes:
    """As `attributes_for`, of a directory whose owner and group this process can give.

    Raises:
        RefusedError: it cannot; exit status 4.
        AccessError: the directory is not there, or cannot be looked at.
    """
    wanted = attributes_for(directory)
    if not can_give(wanted):
        raise owner_refused(directory)
    return wanted


def require_owner(path: StrPath) -> None:
    """Refuse beforehand what `can_keep_owner` says no to.

    Raises:
        RefusedError: exit status 4.
        AccessError: the directory is not there, or cannot be looked at.
    """
    if not can_keep_owner(path):
        raise owner_refused(path)


def require_own_file(path: StrPath, uid: int, gid: int) -> None:
    """Refuse beforehand to change a file whose owner or group this process could not give back.

    Its directory counts, whose owner this process must have anyway (`require_owner`): so the answer
    is the same for somebody who only looks.

    Raises:
        RefusedError: exit status 4.
        AccessError: the directory is not there, or cannot be looked at.
    """
    if os.geteuid() == 0:
        return
    wanted = attributes_for(Path(path).parent)
    if uid == wanted.uid and gid in {wanted.gid, os.getegid(), *os.getgroups()}:
        return
    owner = f"{wanted.uid}:{wanted.gid}"
    raise RefusedError(
        f"{os.fspath(path)}: belongs to {uid}:{gid}, and its directory to {owner}:"
        " a copy of it could not get its owner back; nothing was touched",
        next_step="run it as root, or give the file to the owner of its directory first",
    )


def owner_refused(path: StrPath) -> RefusedError:
    """Return the refusal of a change that would change whose file it is."""
    return RefusedError(
        f"{os.fspath(path)}: new files could not get the owner and group of their directory,"
        " and the broker could not use them",
        next_step="run it as the user of the broker, or as root",
    )


# -- directories with all that is in them


def sync_tree(fs: FileSystem, path: Path) -> None:
    """Make all that is in a directory durable, and its names; links are left out.

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
    """Remove a file or a directory with all in it; links are removed, not followed.

    Raises AccessError.
    """
    with os_errors(path):
        if path.is_symlink() or not path.is_dir():
            with suppress(FileNotFoundError):
                fs.unlink(path)
            return
        for directory, names, files in os.walk(path, topdown=False):
            for name in files:
                with suppress(FileNotFoundError):  # a broker that ends takes some away itself
                    fs.unlink(Path(directory, name))
            for name in names:
                below = Path(directory, name)
                if below.is_symlink():
                    fs.unlink(below)
                else:
                    fs.remove_dir(below)
        fs.remove_dir(path)
