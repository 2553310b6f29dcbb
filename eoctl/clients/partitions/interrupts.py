"""Ctrl-C where it does no harm: not in the middle of a line, nor of a file that is replaced."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class EndedWork(Protocol):
    """What came of some work: a NamedTuple with what ended it early."""

    @property
    def error(self) -> BaseException | None:
        """None if nothing did."""

    def _replace(self, *, error: BaseException | None = ...) -> Self: ...


_Ended = TypeVar("_Ended", bound=EndedWork)


class Interrupts:
    """A context in which SIGINT raises KeyboardInterrupt as ever, except within `held`.

    There the first one waits for the end of the block; the second one does not: what is being done
    may itself be waiting, for a reader that does not read.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False
        self._before: Any = None

    def __enter__(self) -> Self:
        # Elsewhere signals are not ours to handle (and only the main thread may).
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do something to its end before an interruption."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    @contextmanager
    def released(self) -> Iterator[None]:
        """Within `held`: wait for something that may never come. What is pending comes first."""
        was_held, self._is_held = self._is_held, False
        try:
            if self._is_pending:
                self._is_pending = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_held = was_held

    def _handle(self, *_: object) -> None:
        if self._is_held and not self._is_pending:
            self._is_pending = True
            return
        raise KeyboardInterrupt


def run_held(work: Callable[[Interrupts], _Ended]) -> _Ended:
    """Do work to its end, with an interruption where it lets one in, or as its error in the end."""
    result: _Ended | None = None
    with Interrupts() as interrupts:
        try:
            with interrupts.held():
                result = work(interrupts)
        except KeyboardInterrupt as exc:
            if result is None:
                raise
            return result._replace(error=result.error or exc)
    return result
