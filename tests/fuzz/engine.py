"""Running a target on an input: what it may raise, how long it may take, how much memory.

Coverage, when it is asked for, is counted in edges (from line to line) of our own packages, through
`sys.settrace`: it needs nothing installed, sees nothing of compiled code, and is slow. It is for
Python versions that atheris has no wheel for.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import EoctlError, FormatError

from .mutations import Mutator, no_repair

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from types import FrameType

    from .corpus import Corpus
    from .mutations import Repair

ROOT = str(Path(__file__).parents[2])
PACKAGE_DIRS = tuple(f"{ROOT}/{name}/" for name in ("storage", "recovery", "eoctl"))
INPUT_MAX_BYTES = 8192
HANG_S = 10.0
# Python's values take more than their bytes on disk, and a scan has its buffers. What is not
# Python's own comes on top: the windows of the codecs, and the interpreter's slack.
ALLOWED_BYTES = 16 * 2**20
ALLOWED_BYTES_PER_BYTE = 256
ALLOWED_RESIDENT_BYTES = 64 * 2**20
MEASURE_EVERY = 64  # inputs; measuring takes longer than most of what is measured

Edges = set[tuple[object, int, int]]


class Target(NamedTuple):
    """Something that takes bytes from outside.

    Attributes:
        run: returns or raises one of `allowed`; an `AssertionError` is a broken promise like any
            other exception.
        seeds: inputs to begin with.
        share_runs: the number of inputs in `make test-all`, seeds included; `make test` tries all
            seeds and a third of the rest.
        repair: makes mutated bytes pass the checksums in front of what is to be reached.
        words: worth inserting.
        allowed_bytes: memory that it may take beside what is in proportion to the input.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[Corpus], list[bytes]]
    share_runs: int = 1000
    repair: Repair = no_repair
    words: tuple[bytes, ...] = ()
    allowed_bytes: int = ALLOWED_BYTES
    allowed: tuple[type[EoctlError], ...] = (FormatError,)


class Report(NamedTuple):
    """How much was tried."""

    runs_count: int
    corpus_count: int
    edges_count: int


class FuzzError(AssertionError):
    """A target broke its promise; `data` is the input that shows it."""

    def __init__(self, target: Target, data: bytes, reason: str) -> None:
        super().__init__(f"{target.name}: {reason}; input (hex): {data.hex()}")
        self.data = data


class Hang(BaseException):
    """A target took too long. No `Exception`, so that no parser can take it for an error."""


def run_quietly(target: Target, data: bytes) -> None:
    """Run a target; what it may raise ends here, and must be fit to be printed."""
    try:
        target.run(data)
    except target.allowed as error:
        str(error).encode("utf-8", "surrogateescape")


def fuzz(
    target: Target,
    seeds: list[bytes],
    *,
    rng: random.Random,
    runs_count: int | None = None,
    seconds: float = 0.0,
    is_guided: bool = False,
) -> Report:
    """Try `runs_count` inputs, or for `seconds`; the seeds come first.

    Raises:
        FuzzError: another exception than those allowed, no end after `HANG_S`, or memory out of
            proportion to the input.
    """
    corpus = [b"", *(seed[:INPUT_MAX_BYTES] for seed in seeds)]
    mutator = Mutator(rng, target.words, target.repair)
    known: Edges = set()
    deadline_s = time.monotonic() + seconds
    tried_count = 0
    with _alarm_handler():
        for data in _inputs(corpus, mutator, rng):
            if time.monotonic() > deadline_s if runs_count is None else tried_count >= runs_count:
                break
            tried_count += 1
            edges = _run(target, data, is_traced=is_guided)
            is_new = not edges <= known
            if is_new:
                known |= edges
                corpus.append(data)
            if is_new or tried_count % MEASURE_EVERY == 1:
                check_memory(target, data)
    return Report(tried_count, len(corpus), len(known))


def _inputs(corpus: list[bytes], mutator: Mutator, rng: random.Random) -> Iterator[bytes]:
    yield from tuple(corpus)
    while True:
        # Half of the time one of the latest finds: that is where new code is likely.
        recent = corpus[-8:] if rng.random() < 0.5 else corpus
        yield mutator.mutate(rng.choice(recent), rng.choice(corpus), INPUT_MAX_BYTES)


@contextlib.contextmanager
def _alarm_handler() -> Iterator[None]:
    def raise_hang(*_: object) -> None:
        raise Hang(f"no result after {HANG_S} s")

    old_handler = signal.signal(signal.SIGALRM, raise_hang)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, old_handler)


def _run(target: Target, data: bytes, *, is_traced: bool) -> Edges:
    """Run a target within its time; returns the edges that were taken, if traced."""
    edges: Edges = set()
    old_trace = sys.gettrace()
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    if is_traced:
        sys.settrace(_tracer(edges))
    try:
        run_quietly(target, data)
    except (Exception, Hang) as error:
        raise FuzzError(target, data, f"{type(error).__name__}: {error}") from error
    finally:
        if is_traced:
            sys.settrace(old_trace)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return edges


def _tracer(edges: Edges) -> Callable[..., Any]:
    def trace_call(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE_DIRS):
            return None
        last_line = 0

        def trace_line(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
            nonlocal last_line
            if event == "line":
                edges.add((code, last_line, frame.f_lineno))
                last_line = frame.f_lineno
            return trace_line

        return trace_line

    return trace_call


def check_memory(target: Target, data: bytes) -> None:
    """Run a target twice more: what Python allocates, and what the process grows by."""
    tracemalloc.start()
    try:
        run_quietly(target, data)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak_bytes > target.allowed_bytes + ALLOWED_BYTES_PER_BYTE * len(data):
        raise FuzzError(target, data, f"took {peak_bytes} bytes of Python's memory")
    before_bytes = _reset_resident_peak()
    run_quietly(target, data)
    grown_bytes = _resident_bytes("VmHWM:") - before_bytes if before_bytes else 0
    allowed_bytes = max(target.allowed_bytes, ALLOWED_RESIDENT_BYTES)
    if grown_bytes > allowed_bytes + ALLOWED_BYTES_PER_BYTE * len(data):
        raise FuzzError(target, data, f"made the process grow by {grown_bytes} bytes")


def _reset_resident_peak() -> int:
    """Make VmHWM begin anew; returns what is resident now, 0 where the system has no such thing."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _resident_bytes("VmRSS:")
    except OSError:
        return 0


def _resident_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
