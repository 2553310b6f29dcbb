"""Which engine does bulk work, processes on this machine or Spark, and how it is handed to it."""

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

MAX_LOOKED_FOR = 100  # log dirs that each executor is asked for before a job


class EngineOptions(NamedTuple):
    """What the call asks for.

    Attributes:
        jobs: processes of the local engine; None: one for each processor.
        master, settings: of Spark; None: no master was given.
    """

    name: EngineName = EngineName.AUTO
    jobs: int | None = None
    master: str | None = None
    settings: tuple[Setting, ...] = ()


class ChosenEngine(NamedTuple):
    """Where the work is done, and a sentence why there."""

    is_spark: bool
    why: str


def choose_engine(options: EngineOptions) -> ChosenEngine:
    """Choose by what was asked for, else by machines: Spark on this one has no more of it."""
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
    """Return how many processes the local engine has."""
    return process_count(options.jobs)


def anywhere(function: Callable[[T], R]) -> Callable[[T], R]:
    """Make a function work behind URIs in every process that it is sent to.

    A process that is started anew imports only what it is sent; with this it imports this module,
    and so what opens URIs.
    """
    return partial(_call_anywhere, function)


def _call_anywhere(function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except BrokenPipeError as exc:  # a file system's; the command would take it for stdout's
        raise AccessError(exc) from exc


def open_session(
    options: EngineOptions, directories: Iterable[str] = ()
) -> AbstractContextManager[Any]:
    """Open the SparkSession that the call asks for.

    Raises:
        SparkUnavailableError: it does not start, or executors cannot run our tasks, or have not
            the log dirs around the partition directories that will be read.
    """
    from eoctl.spark.session import DEFAULT_MASTER, spark_session

    local = {os.path.dirname(each) for each in directories if not is_uri(each)}  # noqa: PTH120
    return spark_session(
        options.master or DEFAULT_MASTER, options.settings, sorted(local)[:MAX_LOOKED_FOR]
    )


def require_lasting(places: Mapping[str, str | None]) -> None:
    """See that what is written is there when the command has ended.

    Below spark-submit in cluster mode its working directory is a container's, and goes with it.

    Args:
        places: what was given, by the option; None: nothing.

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
    """Calls a function for many values on the engine that suits the first call; a context manager.

    Attributes:
        chosen: None before the first call.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.chosen: ChosenEngine | None = None
        self._options = options
        self._stack = ExitStack()
        self._session: Any = None  # a SparkSession, once there is one

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
        """Give (index, result) for each value, in any order.

        Args:
            function: of a module, or a partial of one.
            values: what it is called for.
            name_of: the path that errors print for a value.
            bytes_of: the bytes to read per value; a few are read by this process.

        Raises:
            EoctlError: the function did, Spark does not start, or gave up.
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
        """See that functions can be sent to the engine, before any work.

        Raises:
            SparkUnavailableError: it is Spark Connect, which takes none.
        """
        if self.choose().is_spark:
            from eoctl.spark.mapping import require_functions

            require_functions(self.session())

    def choose(self) -> ChosenEngine:
        """Return the engine, once and for all."""
        if self.chosen is None:
            self.chosen = choose_engine(self._options)
        return self.chosen

    def session(self, directories: Iterable[str] = ()) -> Any:
        """Return the SparkSession, which lasts as long as this.

        Raises as `open_session`, whose `directories` count in the first call alone.
        """
        if self._session is None:
            self._session = self._stack.enter_context(open_session(self._options, directories))
        return self._session
