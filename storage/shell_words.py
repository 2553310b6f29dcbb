"""Words of a call as they are pasted into a shell, and nothing that a terminal would act on.

A name may hold anything but a slash: what cannot be printed is written as `$'...'`, which sh of
POSIX 2024, bash, zsh and ksh know, each byte as an octal number.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
