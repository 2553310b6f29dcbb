"""The error tree: fields instead of prose, so that every report can name path, position and rule.

A parser raises a `FormatError` with a position in its buffer. The layer that knows the file adds
`path` with `located`, which also shifts `pos` to the place in the file.
"""

from __future__ import annotations

import errno
import os
import shlex
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


# -- the words of a command as you paste them into a shell, without bytes that a terminal acts on
#
# A name may contain any byte but a slash. Unprintable bytes are written as `$'...'`, each byte as
# an octal number. sh of POSIX 2024, bash, zsh and ksh know that form.


def quoted(word: str) -> str:
    """Return a word quoted for a shell, in printable characters only."""
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
    """Return a path as `quoted` does, in a form that no command takes for an option."""
    return quoted(as_argument(os.fspath(path)))


def as_argument(path: str) -> str:
    """Return a path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def call_text(words: Iterable[str]) -> str:
    """Return the words of a command as one line."""
    return " ".join(map(quoted, words))


def printable_call(text: str) -> str:
    """Return a command line with all words printable.

    Returns `text` itself if `shlex` cannot split it.
    """
    if text.isprintable():
        return text
    try:
        return call_text(shlex.split(text))
    except ValueError:  # `text` is no command line
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
EXIT_UNREAD = 141  # as after SIGPIPE: the output is closed, and no result is known yet


class EoctlError(Exception):
    """Base of all our errors.

    Attributes:
        exit_status: exit status of eoctl if nothing handles the error.
        next_step: the command or action to try next, "" when there is none.
    """

    exit_status = EXIT_BUG

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        if next_step:  # a traceback, as Spark prints it, has the next step too
            self.add_note(f"try: {next_step}")

    def without_frames(self) -> Self:
        """Drop the traceback. A kept error would keep the buffers of its frames alive."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with all fields, whatever the signature of its class."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[EoctlError], args: tuple[Any, ...], fields: dict[str, Any]) -> EoctlError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class UsageError(EoctlError):
    """The command itself is wrong: an option, an argument or their combination."""

    exit_status = EXIT_USAGE


class AccessError(EoctlError):
    """A file cannot be read or written at all. Wraps the operating system's error.

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
    """An action that is possible, but refused: a held lock, a stale plan, a missing flag."""

    exit_status = EXIT_REFUSED


class KernelError(EoctlError):
    """A kernel was requested that this installation does not have."""

    exit_status = EXIT_USAGE


class FormatError(EoctlError):
    """Bytes do not have the shape that their format requires.

    Attributes:
        check_id: the rule that is broken (an id of docs/rules, such as `BAT-2`).
        pos: position of the fault, in bytes from the start of the buffer (located: of the file).
        path: the file, "" until located.
        expected, found: the required and the actual value, as short text.
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
        """Name the file and shift the position by `base_pos`.

        Returns the error itself, to be raised.
        """
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
    """The bytes are complete and contradict the format."""


class UnsupportedError(FormatError):
    """An unknown magic, version, codec or type. eoctl never guesses."""


class TooLargeError(FormatError):
    """Decompressed data would exceed the limit that bounds memory (a bomb, or a limit to raise)."""


# -- the operating system's errors while files are changed: the state, and the next step


# The state of one file. A command that changes several files reports the state of the others
# itself.
LEFT_AS_IT_WAS = "the file is as it was"

_ADVICE = {
    errno.ENOSPC: "free space on this file system, then run it again",
    errno.EDQUOT: "raise the quota of this user, then run it again",
    errno.EACCES: "run it as the user of the broker, or as root",
    errno.EPERM: "run it as the user of the broker, or as root; look for immutable files (lsattr)",
    errno.EROFS: "the file system is mounted read-only. The kernel's log may say why",
    errno.EIO: "look into the kernel's log. The device may be failing; save what can be read first",
}


class os_errors:  # noqa: N801 - it reads as the function that it is
    """Turn an OSError into an AccessError about `path`, with `state` as in `access_error`.

    A class, not a generator, for speed: it wraps each system call that changes a file.
    """

    __slots__ = ("_path", "_state")

    def __init__(self, path: str | os.PathLike[str], *, state: str = LEFT_AS_IT_WAS) -> None:
        self._path = path
        self._state = state

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise an AccessError for an OSError."""
        if isinstance(error, OSError):
            raise access_error(error, self._path, state=self._state) from error


def access_error(
    error: OSError, path: str | os.PathLike[str], state: str = LEFT_AS_IT_WAS
) -> AccessError:
    """Return the error for the command line. Its next step begins with the state of the files."""
    advice = _ADVICE.get(error.errno or 0, "put that right, then run it again")
    return AccessError(error, os.fspath(path), next_step=f"{state}; {advice}")
