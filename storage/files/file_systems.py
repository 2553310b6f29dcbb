"""File systems behind URIs, and their files, which are read by ranges like a local file."""

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


# -- file systems behind URIs: the file system of a URI, and the interface it must have
#
# This module knows no protocol. A scheme is served by a factory that was registered for it, else by
# the default factory. `eoctl.arrow_files` registers pyarrow for all schemes that it knows. Both
# registrations count for this process only. A worker that is not forked, such as a Spark executor,
# has to register its factories too. Only URIs travel between processes. A process opens the file
# systems it uses, and keeps them.


KEPT_COUNT = 64  # file systems that stay open


class RemoteEntry(NamedTuple):
    """A file or a directory in a file system.

    `path` has the syntax of the file system, and is "" if the name is not UTF-8. `file_bytes` and
    `modified_ns` are 0 if unknown.
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
        """Return `count` bytes from `pos`. Callers never request more than the size at the open."""

    def close(self) -> None:
        """Release its resources."""


class FileTree(Protocol):
    """A file system. Errors are OSErrors, with an errno if the cause is known."""

    def entry(self, path: str) -> RemoteEntry | None:
        """Return the entry at a path, or None."""

    def entries(self, path: str, *, is_recursive: bool = False) -> list[RemoteEntry]:
        """List a directory, with everything below it if `is_recursive`. Missing: []."""

    def open_file(self, path: str) -> OpenedFile:
        """Open a file."""


class Located(NamedTuple):
    """A place in a file system."""

    tree: FileTree
    root: str  # prefix of a path that is not in the URI's path: a bucket, or "/"
    uri: Uri

    @property
    def path(self) -> str:
        """The path in the syntax of the file system."""
        return self.full(decode(self.uri.path))

    def full(self, path: str) -> str:
        """Put the root before a path that begins with a `/`."""
        stem = self.root.rstrip("/")
        path = path.rstrip("/")
        return f"{stem}{path}" if self.root else path.lstrip("/")

    def uri_of(self, path: str) -> str:
        """Return the URI of a path in the syntax of the file system."""
        return str(self.uri.at(path.removeprefix(self.root.rstrip("/"))))


_factories: dict[str, Callable[[str], tuple[FileTree, str]]] = {}
_defaults: list[Callable[[str], tuple[FileTree, str]]] = []
_kept: OrderedDict[tuple[int, str], tuple[FileTree, str]] = OrderedDict()
_lock = threading.Lock()


def register_file_system(scheme: str, factory: Callable[[str], tuple[FileTree, str]]) -> None:
    """Serve all URIs of a scheme in this process.

    Args:
        scheme: such as "s3", in lower case.
        factory: takes the URI of a file system, such as "s3://bucket/?region=eu-west-1". Returns
            the file system and the path that this URI stands for in it, such as "bucket". It may
            raise an EoctlError or an OSError.
    """
    with _lock:
        _factories[scheme] = factory
        _kept.clear()


def register_default(factory: Callable[[str], tuple[FileTree, str]]) -> None:
    """Serve all schemes without a registered factory."""
    with _lock:
        _defaults[:] = [factory]
        _kept.clear()


def locate(text: str) -> Located:
    """Find the file system of a URI.

    Raises:
        UsageError: no file system is registered for it.
        AccessError: it cannot be reached.
    """
    uri = Uri.parse(text)
    root_uri = str(uri.root)
    key = (os.getpid(), root_uri)  # a forked child cannot use the connections of its parent
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


# -- a file behind a URI that is read by ranges, with the interface and the results of a local file
#
# Only the requested ranges are read, never a whole file. Retries belong to the file system. An
# error of a range becomes an unreadable stretch, as on a local disk:
#
# - EIO and other media errors: the request is halved down to sectors until MAX_MEDIA_ERRORS. A
#   request costs far more than on a disk.
# - Any other error: the whole rest of the request is unreadable. The error is ECOMM if the file
#   system gives no number.
#
# The size is the size at the open.


MAX_MEDIA_ERRORS = 64


class RemoteFile(PositionedFile):
    """An opened file behind a URI. Raises AccessError when it cannot be opened.

    Attributes:
        last_error: the file system's message for the last unreadable range, "" if there was none.
    """

    def __init__(self, uri: str) -> None:
        self.path = uri
        self.last_error = ""
        self._fd = -1  # no descriptor
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
        """Close the file. A second `close` does nothing."""
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
        """Read a range as `pread` does."""
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
    """Turn any error of a file system into an OSError with a number."""
    if isinstance(error, OSError) and error.errno:
        return error
    code = errno.ECOMM
    if isinstance(error, FileNotFoundError):
        code = errno.ENOENT
    elif isinstance(error, PermissionError) or "ACCESS_DENIED" in str(error):
        code = errno.EACCES
    return OSError(code, str(error) or type(error).__name__)
