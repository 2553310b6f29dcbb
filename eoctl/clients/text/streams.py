"""The input of a producer as the command line names it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import AccessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from typing import BinaryIO

    from eoctl.clients.partitions.interrupts import Interrupts


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


class InterruptibleInput:
    """An input that can be interrupted while it is waited for, in work that else cannot."""

    def __init__(self, file: BinaryIO, interrupts: Interrupts) -> None:
        self._file = file
        self._read: Callable[[int], bytes] = getattr(file, "read1", file.read)
        self._interrupts = interrupts

    def read1(self, count: int) -> bytes:
        """Read what there is, at most `count` bytes."""
        with self._interrupts.released():
            return self._read(count)

    read = read1

    def seekable(self) -> bool:
        """Whether it can be read twice."""
        return self._file.seekable()

    def seek(self, pos: int) -> int:
        """Go on from a place."""
        return self._file.seek(pos)


def separator_bytes(text: str) -> bytes:
    """The bytes of a separator as they came on the command line.

    Raises:
        UsageError: there are none.
    """
    if not text:
        raise UsageError("--key-separator: it must not be empty")
    return text.encode("utf-8", "surrogateescape")
