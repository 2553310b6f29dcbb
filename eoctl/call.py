"""The words of this call as they were given: the next one that is told is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.shell_words import call_text

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Call:
    words: tuple[str, ...] = ()


def keep(words: Sequence[str]) -> None:
    """Keep the words of a call, without the program's name."""
    _Call.words = tuple(words)


def again(*more: str) -> str:
    """Tell this call with more options, to be pasted into a shell."""
    words = [*_Call.words]
    end = words.index("--") if "--" in words else len(words)
    return call_text(["eoctl", *words[:end], *more, *words[end:]])
