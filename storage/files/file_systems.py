"""File systems behind URIs, and files there that are read by ranges like a local one."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.errors import AccessError, EoctlError, UsageError
from storage.files.positioned_file import MEDIA_ERRNOS, PositionedFile
from storage.files.uris import Uri, decode

if TYPE_CHECKING:
    from collections.abc import Callable


# -- file systems behind URIs: which one a URI belongs to, and what is asked of one
#
# Nothing is known here of any protocol. A scheme is served by a factory that was registered for
# it, else by the default one; `eoctl.arrow_files` registers pyarrow for all schemes that it
# knows. Both count for this process only: a worker that is not forked, such as a Spark executor,
# has to register what it needs too. Only URIs travel between processes; file systems are opened
# where they are used, and kept.


KEPT_COUNT = 64  # file systems that are kept open


class RemoteEntry(NamedTuple):
    """A file or a directory in a file system.

    `path` is in the words of the file system; "" if the name is not UTF-8. `file_bytes` and
    `modified_ns` are 0 where they are not known.
    """

    path: str
    is_dir: bool
    file_bytes: int = 0
    modified_ns: int = 0

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.rpartition("/")[2]


class OpenedFile(Protocol):
    """A file that is read by ranges. Errors are OSErrors."""

    def size(self) -> int:
        """Return the size in bytes."""

    def read_at(self, count: int, pos: int) -> bytes:
        """Return `count` bytes from `pos`; never asked for more than there were at the open."""

    def close(self) -> None:
        """Give back what it holds."""


class FileTree(Protocol):
    """A file system. Errors are OSErrors, with an errno where the cause is known."""

    def entry(self, path: str) -> RemoteEntry | None:
        """Return what is at a path; None if nothing is."""

    def entries(self, path: str, *, is_recursive: bool = False) -> list[RemoteEntry]:
        """List a directory, with everything below it if wanted; [] if it is not there."""

    def open_file(self, path: str) -> OpenedFile:
        """Open a file."""


class Located(NamedTuple):
    """A place in a file system."""

    tree: FileTree
    root: str  # what a path begins with that is not in the URI's path: a bucket, or "/"
    uri: Uri

    @property
    def path(self) -> str:
        """The path in the words of the file system."""
        return self.full(decode(self.uri.path))

    def full(self, path: str) -> str:
        """Put the root before a path that begins with a `/`."""
        stem = self.root.rstrip("/")
        path = path.rstrip("/")
        return f"{stem}{path}" if self.root else path.lstrip("/")

    def uri_of(self, path: str) -> str:
        """Return the URI of a path in the words of the file system."""
        return str(self.uri.at(path.removeprefix(self.root.rstrip("/"))))


_factories: dict[str, Callable[[str], tuple[FileTree, str]]] = {}
_defaults: list[Callable[[str], tuple[FileTree, str]]] = []
_kept: OrderedDict[tuple[int, str], tuple[FileTree, str]] = OrderedDict()
_lock = threading.Lock()


def register_file_system(scheme: str, factory: Callable[[str], tuple[FileTree, str]]) -> None:
    """Serve all URIs of a scheme in this process.

    Args:
        scheme: such as "s3", in small letters.
        factory: takes the URI of a file system, such as "s3://bucket/?region=eu-west-1"; returns
            it and the path that this URI stands for in it, such as "bucket". It may raise an
            EoctlError or an OSError.
    """
    with _lock:
        _factories[scheme] = factory
        _kept.clear()


def register_default(factory: Callable[[str], tuple[FileTree, str]]) -> None:
    """Serve all schemes that nothing else is registered for."""
    with _lock:
        _defaults[:] = [factory]
        _kept.clear()


def locate(text: str) -> Located:
    """Find the file system of a URI.

    Raises:
        UsageError: no file system is known for it.
        AccessError: it cannot be reached.
    """
    uri = Uri.parse(text)
    root_uri = str(uri.root)
    key = (os.getpid(), root_uri)  # what holds connections is of no use to a forked child
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
            return Located(*found, uri)
        factory = _factories.get(uri.scheme) or next(iter(_defaults), None)
    if factory is None:
        raise UsageError(
            f"{text}: nothing here reads {uri.scheme}: URIs",
            next_step="import eoctl.arrow_files, or register_file_system()",
        )
    try:
        found = factory(root_uri)
    except OSError as exc:
        raise AccessError(exc, text) from exc
    with _lock:
        _kept[key] = found
        while len(_kept) > KEPT_COUNT:
            _kept.popitem(last=False)
    return Located(*found, uri)


# -- a file behind a URI that is read by ranges, with the interface and the outcomes of a local one
#
# What is read is what is asked for; no file is ever fetched whole. Retries are the file system's.
#   An
# error of a range becomes an unreadable stretch, as with a local disk:
#   EIO and its kin        halved down to sectors, until MAX_MEDIA_ERRORS were met: a request costs
#                          far more than on a disk
#   any other, or without  the whole rest of the request is unreadable (ECOMM where the file system
#   a number               does not say more)
# The size is that at the open.


MAX_MEDIA_ERRORS = 64


class RemoteFile(PositionedFile):
    """An opened file behind a URI. Raises AccessError when it cannot be opened.

    Attributes:
        last_error: what the file system said when a range could not be read, "" if all could.
    """

    def __init__(self, uri: str) -> None:
        self.path = uri
        self.last_error = ""
        self._fd = -1  # there is none
        self._pread = self._read_range
        self._file: OpenedFile | None = None
        self._media_errors_count = 0
        located = locate(uri)
        try:
            self._file = located.tree.open_file(located.path)
            self._file_bytes = int(self._file.size())
        except EoctlError:
            raise
        except Exception as exc:
            self.close()
            raise AccessError(as_os_error(exc), uri) from exc

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except Exception as exc:  # noqa: BLE001 - it was only read: nothing can be lost
                self.last_error = str(exc)

    @property
    def file_bytes(self) -> int:
        """The size at the open."""
        return self._file_bytes

    def _read_range(self, fd: int, view: memoryview, pos: int) -> int:
        """Do what `pread` does."""
        del fd
        count = min(len(view), self._file_bytes - pos)
        if count <= 0:
            return 0
        if self._file is None:
            raise OSError(errno.EBADF, "the file is closed")
        try:
            data = self._file.read_at(count, pos)
        except Exception as exc:
            self.last_error = str(exc)
            error = as_os_error(exc)
            if error.errno in MEDIA_ERRNOS:
                self._media_errors_count += 1
                if self._media_errors_count > MAX_MEDIA_ERRORS:
                    error = OSError(errno.ECOMM, str(exc))
            raise error from exc
        data = data[:count]
        view[: len(data)] = data
        return len(data)


def as_os_error(error: Exception) -> OSError:
    """Turn whatever a file system raises into an OSError with a number."""
    if isinstance(error, OSError) and error.errno:
        return error
    code = errno.ECOMM
    if isinstance(error, FileNotFoundError):
        code = errno.ENOENT
    elif isinstance(error, PermissionError) or "ACCESS_DENIED" in str(error):
        code = errno.EACCES
    return OSError(code, str(error) or type(error).__name__)
