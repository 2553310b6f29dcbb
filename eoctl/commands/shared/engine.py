"""The engine for bulk work, processes on this machine or Spark, and how work is sent to it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import eoctl.arrow_files  # noqa: F401 - for URIs, here and in processes that import this module
from eoctl.options import EngineName, process_count
from recovery.pool import map_unordered, paying_jobs
from storage.errors import AccessError, UsageError
from storage.files.uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from eoctl.spark.session import Setting


T = TypeVar("T")
R = TypeVar("R")

MAX_SEARCHED = 100  # log dirs that each executor has to find before a job


class EngineOptions(NamedTuple):
    """The command line options.

    Attributes:
        jobs: processes of the local engine, None for one per processor.
        master, settings: for Spark. None: no master was given.
    """

    name: EngineName = EngineName.AUTO
    jobs: int | None = None
    master: str | None = None
    settings: tuple[Setting, ...] = ()


class ChosenEngine(NamedTuple):
    """The chosen engine, and a sentence with the reason."""

    is_spark: bool
    why: str


def choose_engine(options: EngineOptions) -> ChosenEngine:
    """Choose the requested engine, else by machines: Spark on this machine has no more of it."""
    if options.name is not EngineName.AUTO:
        return ChosenEngine(
            options.name is EngineName.SPARK, f"engine: {options.name}, as requested"
        )
    if options.master is not None or options.settings:
        return ChosenEngine(True, "engine: spark, as --master or --conf was given")
    if options.jobs is not None:
        return ChosenEngine(False, "engine: local, as --jobs was given")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return ChosenEngine(True, "engine: spark, as spark-submit runs this")
    return ChosenEngine(False, "engine: local, as no cluster was named (--master)")


def jobs_of(options: EngineOptions) -> int:
    """Return the number of processes of the local engine."""
    return process_count(options.jobs)


def anywhere(function: Callable[[T], R]) -> Callable[[T], R]:
    """Make a function work behind URIs in every process.

    A new process imports only the modules of the objects it receives. With this function it imports
    this module, and so the code that opens URIs.
    """
    return partial(_call_anywhere, function)


def _call_anywhere(function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except BrokenPipeError as exc:  # from a file system; the command would blame stdout
        raise AccessError(exc) from exc


def open_session(
    options: EngineOptions, directories: Iterable[str] = ()
) -> AbstractContextManager[Any]:
    """Open the SparkSession of the options.

    Raises:
        SparkUnavailableError: it does not start, or executors cannot run our tasks, or cannot see
            the log dirs of the partition directories to read.
    """
    from eoctl.spark.session import DEFAULT_MASTER, spark_session

    local = {os.path.dirname(each) for each in directories if not is_uri(each)}  # noqa: PTH120
    return spark_session(
        options.master or DEFAULT_MASTER, options.settings, sorted(local)[:MAX_SEARCHED]
    )


def require_lasting(places: Mapping[str, str | None]) -> None:
    """Check that written files still exist after the command has ended.

    In spark-submit's cluster mode, the working directory belongs to a container that is removed.

    Args:
        places: the given paths, by option. None: not given.

    Raises:
        UsageError: a path would be below that directory.
    """
    relative = [
        f"{option} {place}"
        for option, place in places.items()
        if place is not None and not place.startswith("/") and not is_uri(place)
    ]
    if not relative or "PYSPARK_GATEWAY_PORT" not in os.environ:
        return
    from eoctl.spark.session import is_in_cluster_mode

    if is_in_cluster_mode():
        raise UsageError(
            f"{relative[0]}: in cluster mode the working directory is a container's, which is "
            "removed at the end",
            next_step="name it in full, on a mount that all hosts have",
        )


class EngineRun:
    """A context manager that maps functions over values on the engine of the first use.

    Attributes:
        chosen: None before the first use.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.chosen: ChosenEngine | None = None
        self._options = options
        self._stack = ExitStack()
        self._session: Any = None  # a SparkSession, once opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def map(
        self,
        function: Callable[[T], R],
        values: Sequence[T],
        name_of: Callable[[T], object] = str,
        bytes_of: Callable[[T], int] | None = None,
    ) -> Iterator[tuple[int, R]]:
        """Yield (index, result) for each value, in any order.

        Args:
            function: of a module, or a partial of it.
            values: its arguments.
            name_of: the path that errors print for a value.
            bytes_of: the bytes to read per value. This process reads small amounts itself.

        Raises:
            EoctlError: the function raised it, Spark does not start, or Spark gave up.
        """
        if not values:
            return
        if not self.choose().is_spark:
            jobs = jobs_of(self._options)
            if bytes_of is not None:
                jobs = paying_jobs(jobs, map(bytes_of, values))
            yield from map_unordered(anywhere(function), values, jobs, name_of=name_of)
            return
        from eoctl.spark.mapping import map_on_spark

        yield from map_on_spark(self.session(), function, values)

    def require_functions(self) -> None:
        """Check that functions can be sent to the engine, before any work.

        Raises:
            SparkUnavailableError: it is Spark Connect, which accepts no functions.
        """
        if self.choose().is_spark:
            from eoctl.spark.mapping import require_functions

            require_functions(self.session())

    def choose(self) -> ChosenEngine:
        """Return the engine, chosen at the first use."""
        if self.chosen is None:
            self.chosen = choose_engine(self._options)
        return self.chosen

    def session(self, directories: Iterable[str] = ()) -> Any:
        """Return the SparkSession, which is open until this context ends.

        Raises as `open_session`. Its `directories` count only at the first use.
        """
        if self._session is None:
            self._session = self._stack.enter_context(open_session(self._options, directories))
        return self._session
