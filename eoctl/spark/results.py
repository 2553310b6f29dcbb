"""Bring the packed summaries of directories to the driver, some bytes at a time.

The rows stay where they were joined, persisted. One job asks all of them for their sizes, and
brings the small ones; then come, job by job, as many of the others as have AT_ONCE_BYTES, and of
one that is larger a slice at a time. So neither Spark's `maxResultSize` nor the driver's memory
has to be as large as all summaries together, or as the largest.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.spark.errors import SparkJobError
from eoctl.spark.executors import context_of
from eoctl.spark.session import job_errors
from eoctl.spark.stages import stages_told

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from recovery.summaries.codec import HeldSummary, Shelf

AT_ONCE_BYTES = 64 << 20
TRIES = 4  # of a summary that was made anew between its slices
DIRECTORY, WHOLE = "directory", "whole"


class _FarSummary(NamedTuple):
    """A summary that is still with an executor."""

    directory: str
    size_bytes: int


def bring_summaries(
    session: SparkSession, rows: DataFrame, directories: Collection[str], shelf: Shelf
) -> dict[str, HeldSummary]:
    """Put the packed summaries of directories on a shelf.

    Args:
        session: whose rows they are.
        rows: the columns `directory` and `whole`, one row for each directory.
        directories: that there are rows of.
        shelf: where they go.

    Raises:
        SparkJobError: Spark gave a job up, or the rows are not of these directories.
        AccessError: of the shelf.
    """
    with job_errors():
        kept = rows.persist()
    try:
        found = _brought(session, kept, directories, shelf)
    except BaseException:
        with suppress(Exception):  # Spark may be gone, which is what ends this
            kept.unpersist()
        raise
    with suppress(Exception):  # all is here
        kept.unpersist()
    return found


def _brought(
    session: SparkSession, rows: DataFrame, directories: Collection[str], shelf: Shelf
) -> dict[str, HeldSummary]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    small_bytes = AT_ONCE_BYTES // max(len(directories), 1)
    size, whole = F.length(WHOLE), F.col(WHOLE)
    found: dict[str, HeldSummary] = {}
    waiting: list[_FarSummary] = []
    asked = rows.select(DIRECTORY, size, F.when(size <= small_bytes, whole))
    came = _collected(session, asked)
    _require(directories, [each[0] for each in came])
    for directory, size_bytes, packed in came:
        if packed is None:
            waiting.append(_FarSummary(directory, size_bytes))
        else:
            found[directory] = shelf.put(packed)
    del came
    for wave in _waves(sorted(waiting)):
        names = [each.directory for each in wave]
        if len(wave) == 1 and wave[0].size_bytes > AT_ONCE_BYTES:
            found[names[0]] = shelf.put(_in_slices(session, rows, names[0]))
            continue
        wanted = rows.where(F.col(DIRECTORY).isin(names)).select(DIRECTORY, WHOLE)
        came = _collected(session, wanted)
        _require(names, [each[0] for each in came])
        found.update((directory, shelf.put(packed)) for directory, packed in came)
    return found


def _waves(waiting: Iterable[_FarSummary]) -> Iterator[list[_FarSummary]]:
    """Give as many at a time as have AT_ONCE_BYTES; one at least."""
    wave: list[_FarSummary] = []
    for each in waiting:
        if wave and sum(one.size_bytes for one in wave) + each.size_bytes > AT_ONCE_BYTES:
            yield wave
            wave = []
        wave.append(each)
    if wave:
        yield wave


def _in_slices(session: SparkSession, rows: DataFrame, directory: str) -> bytearray:
    """Bring a large one.

    Where an executor is lost Spark makes its rows anew, from files that may have changed: slices
    are those of one summary only if it has the same length and checksum each time.
    """
    from pyspark.sql import functions as F  # noqa: N812

    row = rows.where(F.col(DIRECTORY) == directory)
    identity = [F.length(WHOLE), F.crc32(WHOLE)]
    for _ in range(TRIES):
        packed = bytearray()
        first: list[Any] = []
        while True:
            part = F.substring(WHOLE, len(packed) + 1, AT_ONCE_BYTES)
            came = _collected(session, row.select(DIRECTORY, *identity, part))
            _require([directory], [each[0] for each in came])
            ((_, *told, data),) = came
            first = first or told
            packed += data
            if told != first or not data or len(packed) >= first[0]:
                break
        if told == first and [len(packed), zlib.crc32(packed)] == first:
            return packed
    raise SparkJobError(
        f"{directory}: what was found in it has changed {TRIES} times while it was sent",
        next_step="its broker writes, and executors are lost: call it again",
    )


def _collected(session: SparkSession, rows: DataFrame) -> list[tuple[Any, ...]]:
    with job_errors(), stages_told(context_of(session)):
        return [tuple(row) for row in rows.collect()]


def _require(wanted: Collection[str], came: Collection[str]) -> None:
    """See that each directory has one row: one without would count as empty."""
    if sorted(wanted) == sorted(came):
        return
    differing = sorted({*wanted} ^ {*came}) or sorted(came)
    raise SparkJobError(
        f"Spark gave {len(came)} rows for {len(wanted)} directories, differing in {differing[0]}",
        next_step="call it again, or --engine local",
    )
