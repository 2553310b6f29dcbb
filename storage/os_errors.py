"""The operating system's errors while files are changed: what is left, and what to do next."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def os_errors(path: str | os.PathLike[str], *, state: str = LEFT_AS_IT_WAS) -> Iterator[None]:
    """Turn an OSError into an AccessError about `path`; `state` as `access_error`."""
    try:
        yield
    except OSError as error:
        raise access_error(error, path, state=state) from error


def access_error(
    error: OSError, path: str | os.PathLike[str], state: str = LEFT_AS_IT_WAS
) -> AccessError:
    """The error for the command line; its next step begins with the state that things are in."""
    advice = _ADVICE.get(error.errno or 0, "put that right, then run it again")
    return AccessError(error, os.fspath(path), next_step=f"{state}; {advice}")
