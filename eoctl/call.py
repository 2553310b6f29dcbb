"""The words of this call as they were given: the next one that is told is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import RefusedError, call_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.errors import EoctlError


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


class Lacking(NamedTuple):
    """What must be given and is not, or what else stands in the way.

    Attributes:
        why: it must.
        options: that give it; none: no option does.
        meaning: of these.
        first: what is better done, or has to be.
    """

    why: str
    options: tuple[str, ...] = ()
    meaning: str = ""
    first: str = ""


def refusal(path: str, lacking: Sequence[Lacking | None]) -> RefusedError | None:
    """Return one refusal that names all that is missing, with the call that has it; None: nothing.

    Args:
        path: what is refused; "": each of them says it.
        lacking: one after the other.
    """
    found = [each for each in lacking if each is not None]
    if not found:
        return None
    told = "; ".join(dict.fromkeys(each.why for each in found))
    steps = [each.first for each in found if each.first]
    given = [each for each in found if each.options]
    if given:
        meaning = " and ".join(dict.fromkeys(each.meaning for each in given))
        options = dict.fromkeys(each.options for each in given)
        steps.append(f"if {meaning}: {again(*(word for each in options for word in each))}")
    return RefusedError(
        f"{path}: {told}" if path else told, next_step="; ".join(dict.fromkeys(steps))
    )


class LackingError(RefusedError):
    """A refusal for one reason, which a caller may tell together with others."""

    def __init__(self, path: str, lacking: Lacking) -> None:
        found = refusal(path, [lacking])
        assert found is not None, "there is one"
        super().__init__(found.message, next_step=found.next_step)
        self.lacking = lacking._replace(why=f"{path}: {lacking.why}")


def lacking_of(error: EoctlError) -> Lacking:
    """What an error says that something is refused with."""
    if isinstance(error, LackingError):
        return error.lacking
    return Lacking(error.message, first=error.next_step)


def require_given(path: str, lacking: Sequence[Lacking | None]) -> None:
    """Refuse, as `refusal` says it. Raises RefusedError."""
    error = refusal(path, lacking)
    if error is not None:
        raise error
