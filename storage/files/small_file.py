"""Reading a small file whole, whatever has its name: never waiting, never more than is sensible."""

from __future__ import annotations

import errno
import os
import stat

_CHUNK_BYTES = 1 << 20


def read_small_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`; symbolic links are followed.

    Raises:
        OSError: it cannot be read, is no regular file (EINVAL), or is larger (EFBIG).
    """
    # O_NONBLOCK: a pipe of that name must not make us wait.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
        data = bytearray()
        size_bytes = found.st_size
        while size_bytes <= max_bytes:
            chunk = os.read(fd, min(_CHUNK_BYTES, max_bytes + 1 - len(data)))
            if not chunk:
                return bytes(data)
            data += chunk
            size_bytes = len(data)
        raise OSError(errno.EFBIG, f"Larger than {max_bytes} bytes", os.fspath(path))
    finally:
        os.close(fd)
