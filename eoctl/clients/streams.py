"""The input of a producer as the command line names it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import AccessError, UsageError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from typing import BinaryIO


def open_input(name: str, stack: ExitStack) -> BinaryIO:
    """Open a file to be read; `-` is the standard input.

    Raises:
        AccessError: it cannot be opened.
    """
    if name == "-":
        if sys.stdin is None:
            raise AccessError(OSError(errno.EBADF, os.strerror(errno.EBADF)), "standard input")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as exc:
        raise AccessError(exc, name) from exc


def separator_bytes(text: str) -> bytes:
    """The bytes of a separator as they came on the command line.

    Raises:
        UsageError: there are none.
    """
    if not text:
        raise UsageError("--key-separator: it must not be empty")
    return text.encode("utf-8", "surrogateescape")
