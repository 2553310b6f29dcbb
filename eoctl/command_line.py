"""The words of the running command line, from which suggested commands are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import RefusedError, call_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.errors import EoctlError


class _Call:
    words: tuple[str, ...] = ()


def keep(words: Sequence[str]) -> None:
    """Keep the words of the command line, without the program's name."""
    _Call.words = tuple(words)


def again(*more: str) -> str:
    """Return this command line with more options, ready to paste into a shell."""
    words = [*_Call.words]
    end = words.index("--") if "--" in words else len(words)
    return call_text(["eoctl", *words[:end], *more, *words[end:]])


class Lacking(NamedTuple):
    """A missing option, or another obstacle that makes eoctl refuse.

    Attributes:
        why: the reason for the refusal.
        options: options that supply it, empty if no option does.
        meaning: the meaning of these options.
        first: a step that is better, or must come first.
    """

    why: str
    options: tuple[str, ...] = ()
    meaning: str = ""
    first: str = ""


def refusal(path: str, lacking: Sequence[Lacking | None]) -> RefusedError | None:
    """Return one refusal that names everything missing, with the command that supplies it, or None.

    Args:
        path: the path of the refusal, "" if each reason names its own.
        lacking: the obstacles in order. None entries are skipped.
    """
    found = [each for each in lacking if each is not None]
    if not found:
        return None
    reported = "; ".join(dict.fromkeys(each.why for each in found))
    steps = [each.first for each in found if each.first]
    given = [each for each in found if each.options]
    if given:
        meaning = " and ".join(dict.fromkeys(each.meaning for each in given))
        options = dict.fromkeys(each.options for each in given)
        steps.append(f"if {meaning}: {again(*(word for each in options for word in each))}")
    return RefusedError(
        f"{path}: {reported}" if path else reported, next_step="; ".join(dict.fromkeys(steps))
    )


class LackingError(RefusedError):
    """A refusal for one reason, which a caller may report together with other refusals."""

    def __init__(self, path: str, lacking: Lacking) -> None:
        found = refusal(path, [lacking])
        assert found is not None, "there is one"
        super().__init__(found.message, next_step=found.next_step)
        self.lacking = lacking._replace(why=f"{path}: {lacking.why}")


def lacking_of(error: EoctlError) -> Lacking:
    """Return the reason of a refusal, as a `Lacking`."""
    if isinstance(error, LackingError):
        return error.lacking
    return Lacking(error.message, first=error.next_step)


def require_given(path: str, lacking: Sequence[Lacking | None]) -> None:
    """Raise the RefusedError of `refusal`, if there is one."""
    error = refusal(path, lacking)
    if error is not None:
        raise error
