"""What parsers promise beside not to fail: stated once, used by the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PREFIX = b"\x80\x01\xff"


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, ...]:
    """The value, or what the error says, to be compared."""
    try:
        return "value", call(*args, **options)
    except FormatError as error:
        return type(error), error.check_id, error.pos, error.message


def reads_any_buffer(parse: Callable[[Any], Any], data: bytes) -> Any:
    """Parse bytes, bytearray and memoryview alike, with errors that lie in the buffer.

    Returns the value, or raises the error.
    """
    expected = outcome(parse, data)
    if expected[0] != "value":
        assert 0 <= expected[2] <= len(data), f"position {expected[2]} of {len(data)} bytes"
    for other in (bytearray(data), memoryview(data)):
        found = outcome(parse, other)
        assert repr(found) == repr(expected), f"{type(other).__name__}: {found}, not {expected}"
    return parse(data)


def reads_at_any_pos(parse: Callable[[Any, int], Any], data: bytes, *, has_next: bool) -> Any:
    """Parse behind other bytes as at the start, errors and the next position moved along.

    Returns the value (without the next position), or raises the error.
    """
    expected = list(outcome(parse, data, 0))
    found = list(outcome(parse, PREFIX + data, len(PREFIX)))
    if found[0] != "value":
        found[2] -= len(PREFIX)
    elif has_next:
        found[1] = (found[1][0], found[1][1] - len(PREFIX))
    assert repr(found) == repr(expected), f"behind other bytes: {found}, not {expected}"
    if has_next and expected[0] == "value":
        value, next_pos = expected[1]
        assert 0 < next_pos <= len(data)
        return value
    return parse(data, 0)


def are_problems(problems: Iterable[FormatError], data: bytes) -> None:
    """Problems of a file are errors with positions in it, in order, fit to be printed."""
    positions = []
    for problem in problems:
        assert isinstance(problem, FormatError)
        assert problem.check_id
        str(problem).encode("utf-8", "surrogateescape")
        positions.append(problem.pos)
    assert all(0 <= pos <= len(data) for pos in positions), positions
    assert positions == sorted(positions)


def require(condition: bool, what: str) -> None:
    """State a promise where an exception is at hand."""
    if not condition:
        raise AssertionError(what)


def never_raises(call: Callable[..., Any], *args: Any) -> Any:
    """Call what promises not to raise at all."""
    try:
        return call(*args)
    except FormatError as error:
        raise AssertionError(f"{call.__name__} raised {error!r}") from error
