"""The operating system's errors while files are changed: what is left, and what to do next."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from storage.errors import AccessError

if TYPE_CHECKING:
    from types import TracebackType

# Of one file: a command that changes several says itself what became of the others.
LEFT_AS_IT_WAS = "the file is as it was"

_ADVICE = {
    errno.ENOSPC: "free space on this file system, then run it again",
    errno.EDQUOT: "raise the quota of this user, then run it again",
    errno.EACCES: "run it as the user of the broker, or as root",
    errno.EPERM: "run it as the user of the broker, or as root; look for immutable files (lsattr)",
    errno.EROFS: "the file system is mounted read-only: the kernel's log may say why",
    errno.EIO: "look into the kernel's log: the device may be failing; save what can be read first",
}


class os_errors:  # noqa: N801 - it reads as the function that it is
    """Turn an OSError into an AccessError about `path`; `state` as `access_error`.

    A class, not a generator: it stands around each call that changes a file.
    """

    __slots__ = ("_path", "_state")

    def __init__(self, path: str | os.PathLike[str], *, state: str = LEFT_AS_IT_WAS) -> None:
        self._path = path
        self._state = state

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises AccessError."""
        if isinstance(error, OSError):
            raise access_error(error, self._path, state=self._state) from error


def access_error(
    error: OSError, path: str | os.PathLike[str], state: str = LEFT_AS_IT_WAS
) -> AccessError:
    """The error for the command line; its next step begins with the state that things are in."""
    advice = _ADVICE.get(error.errno or 0, "put that right, then run it again")
    return AccessError(error, os.fspath(path), next_step=f"{state}; {advice}")
