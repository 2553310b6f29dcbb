"""Calls of a function for many values in Spark's tasks, one task per value."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import eoctl.spark.own_packages  # isort: skip - says what is missing before the rest fails to import

import eoctl.arrow_files
from eoctl.spark.executors import SparkUnavailableError, is_remote
from eoctl.spark.rows.gc_freeze import keep_modules
from eoctl.spark.session import job_errors, stages_reported
from storage.errors import EoctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

# Results return after each wave, so finished results survive later failures.
TASKS_PER_CORE = 4
_IMPORTED_FOR_THEIR_EFFECT = (eoctl.spark.own_packages, eoctl.arrow_files)


def map_on_spark(
    session: SparkSession, function: Callable[[T], R], values: Sequence[T]
) -> Iterator[tuple[int, R]]:
    """Yield (index, result) for each value.

    Raises:
        EoctlError: the function raised it.
        SparkJobError: Spark gave the job up.
        SparkUnavailableError: the session is of Spark Connect.
    """
    require_functions(session)
    context = session.sparkContext
    wave = max(context.defaultParallelism, 1) * TASKS_PER_CORE
    numbered = list(enumerate(values))
    for start in range(0, len(numbered), wave):
        part = numbered[start : start + wave]
        with job_errors(), stages_reported(context):
            answers = context.parallelize(part, len(part)).map(partial(_call, function)).collect()
        for number, result in answers:
            if isinstance(result, EoctlError):
                raise result
            yield number, result


def require_functions(session: SparkSession) -> None:
    """Check that the session takes functions.

    Raises:
        SparkUnavailableError: the session is of Spark Connect.
    """
    if is_remote(session):
        raise SparkUnavailableError(
            "Spark Connect takes no functions of ours, only tables. Its client has no SparkContext",
            next_step="--master spark://HOST:7077 or yarn; spark-audit and the sources go over it",
        )


def _call(function: Callable[[Any], Any], numbered: tuple[int, Any]) -> tuple[int, Any]:
    """Run in a task. An error of eoctl is a result, so Spark does not retry it."""
    number, value = numbered
    try:
        return number, function(value)
    except EoctlError as exc:
        return number, exc.without_frames()
    finally:
        keep_modules()
