"""Ctrl-C only at safe places: not in the middle of a line, or of a file that is replaced."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class EndedWork(Protocol):
    """The result of some work: a NamedTuple with the error that ended it early."""

    @property
    def error(self) -> BaseException | None:
        """The error, None without one."""

    def _replace(self, *, error: BaseException | None = ...) -> Self: ...


_Ended = TypeVar("_Ended", bound=EndedWork)


class Interrupts:
    """A context in which SIGINT raises KeyboardInterrupt as usual, except within `held`.

    There the first interrupt waits for the end of the block. The second does not wait, because the
    block itself may wait for a reader that does not read.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False
        self._before: Any = None

    def __enter__(self) -> Self:
        # Signals belong to others outside of the main thread, which alone may handle them.
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
        """Run a block to its end before an interruption."""
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
        """Allow an interruption within `held`, for an endless wait.

        A pending interruption comes first.
        """
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
    """Run work to its end.

    An interruption is allowed where the work allows it, else it is its error.
    """
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
