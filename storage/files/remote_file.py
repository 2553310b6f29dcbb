"""A file behind a URI that is read by ranges, with the interface and the outcomes of a local one.

What is read is what is asked for; no file is ever fetched whole. Retries are the file system's. An
error of a range becomes an unreadable stretch, as with a local disk:
  EIO and its kin        halved down to sectors, until MAX_MEDIA_ERRORS were met: a request costs
                         far more than on a disk
  any other, or without  the whole rest of the request is unreadable (ECOMM where the file system
  a number               does not say more)
The size is that at the open.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from storage.errors import AccessError, EoctlError
from storage.files.file_systems import locate
from storage.files.positioned_file import MEDIA_ERRNOS, PositionedFile

if TYPE_CHECKING:
    from storage.files.file_systems import OpenedFile

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
