"""The error tree: fields instead of prose, so that every report can name path, position and rule.

Formats raise `FormatError`s with a position in the buffer they were given; the layer that knows
the file adds `path` (and shifts `pos` to the place in the file) with `located`.
"""

from __future__ import annotations

import errno
import os
import shlex
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


# -- words of a call as they are pasted into a shell, and nothing that a terminal would act on
#
# A name may hold anything but a slash: what cannot be printed is written as `$'...'`, which sh of
# POSIX 2024, bash, zsh and ksh know, each byte as an octal number.


def quoted(word: str) -> str:
    """Return a word as a shell takes it; all of it can be printed."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if char.isprintable():
        return char
    try:
        data = char.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        data = char.encode("utf-8", "surrogatepass")
    return "".join(f"\\{each:03o}" for each in data)


def pasted(path: str | os.PathLike[str]) -> str:
    """As `quoted`, of a path: it is not taken for an option either."""
    return quoted(as_argument(os.fspath(path)))


def as_argument(path: str) -> str:
    """Return a path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def call_text(words: Iterable[str]) -> str:
    """Return a call as one line."""
    return " ".join(map(quoted, words))


def printable_call(text: str) -> str:
    """Return a call that `shlex` can split so that all of it can be printed."""
    if text.isprintable():
        return text
    try:
        return call_text(shlex.split(text))
    except ValueError:  # it is none
        return text


# -- errors


EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_ACCESS = 3
EXIT_REFUSED = 4
EXIT_SKIPPED = 5
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141  # as of SIGPIPE: nobody reads what is found, and nothing is known yet


class EoctlError(Exception):
    """Base of all our errors.

    Attributes:
        exit_status: what the command line ends with when nothing handles the error.
        next_step: the command or action to try next, "" when there is none.
    """

    exit_status = EXIT_BUG

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        if next_step:  # who meets it as a traceback, as Spark prints them, is told as well
            self.add_note(f"try: {next_step}")

    def without_frames(self) -> Self:
        """Forget where it was raised: one that is kept keeps the buffers of its frames alive."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes with all fields, whatever the signature of the class."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[EoctlError], args: tuple[Any, ...], fields: dict[str, Any]) -> EoctlError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class UsageError(EoctlError):
    """The call itself is wrong: an option, an argument, a combination of them."""

    exit_status = EXIT_USAGE


class AccessError(EoctlError):
    """A file cannot be read or written at all; wraps the operating system's error.

    Attributes:
        reason: the message without the path.
    """

    exit_status = EXIT_ACCESS

    def __init__(self, error: OSError, path: str = "", *, next_step: str = "") -> None:
        self.path = path or str(error.filename or "")
        self.errno = error.errno or 0
        self.reason = error.strerror or str(error)
        super().__init__(f"{self.path}: {self.reason}", next_step=next_step)


class RefusedError(EoctlError):
    """It could be done and is refused: a held lock, a stale plan, unsafe without a flag."""

    exit_status = EXIT_REFUSED


class KernelError(EoctlError):
    """A kernel was demanded that this installation does not have."""

    exit_status = EXIT_USAGE


class FormatError(EoctlError):
    """Bytes do not have the shape their format demands.

    Attributes:
        check_id: the rule that is broken (an id of docs/rules, such as `BAT-2`).
        pos: position of the fault, in bytes from the start of the buffer (located: of the file).
        path: the file, "" until located.
        expected, found: what the rule demands and what is there, as short text.
    """

    exit_status = EXIT_FINDINGS

    def __init__(
        self, message: str, *, check_id: str, pos: int, expected: str = "", found: str = ""
    ) -> None:
        super().__init__(message)
        self.check_id = check_id
        self.pos = pos
        self.path = ""
        self.expected = expected
        self.found = found

    def located(self, path: str, base_pos: int = 0) -> Self:
        """Name the file and shift the position by `base_pos`; returns itself, to be raised."""
        self.path = path
        self.pos += base_pos
        return self

    def __str__(self) -> str:
        where = f"{self.path}: position {self.pos}" if self.path else f"position {self.pos}"
        text = f"{where}: {self.message} [{self.check_id}]"
        if self.expected or self.found:
            text += f" (expected {self.expected}, found {self.found})"
        return text


class TruncatedError(FormatError):
    """The buffer ends before the value does."""

    def __init__(
        self, what: str, *, check_id: str, pos: int, needed_bytes: int, available_bytes: int
    ) -> None:
        super().__init__(
            f"{what} is truncated",
            check_id=check_id,
            pos=pos,
            expected=f"{needed_bytes} bytes",
            found=f"{max(available_bytes, 0)} bytes",
        )
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class CorruptError(FormatError):
    """The bytes are there and contradict the format."""


class UnsupportedError(FormatError):
    """A magic, version, codec or type that is not known; never guessed."""


class TooLargeError(FormatError):
    """Decompressed data would exceed the limit that bounds memory (a bomb, or a limit to raise)."""


# -- the operating system's errors while files are changed: what is left, and what to do next


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
