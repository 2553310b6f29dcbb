"""The error tree: fields instead of prose, so that every report can name path, position and rule.

Formats raise `FormatError`s with a position in the buffer they were given; the layer that knows the
file adds `path` (and shifts `pos` to the place in the file) with `located`.
"""

from __future__ import annotations

from typing import Any, Self

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
            f"{what} is cut short",
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
