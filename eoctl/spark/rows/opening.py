"""What it means for a query that something it is to read cannot be listed, or opened."""

from __future__ import annotations

import os
import socket
import warnings
from enum import Enum, auto
from errno import ENOENT
from typing import TYPE_CHECKING

from eoctl.spark.rows.kafka_options import READ_THE_REST, DataLossError
from storage.errors import EXIT_ACCESS, AccessError, EoctlError
from storage.file_names import FileKind, FileSuffix, classify, parse_partition_name
from storage.files.uris import is_uri
from storage.places.find import open_place

if TYPE_CHECKING:
    from eoctl.spark.rows.kafka_options import KafkaOptions
    from eoctl.spark.rows.source_options import SourceOptions
    from storage.log.segment import Segment
    from storage.places.listing import Listing, SegmentPlace


class NotMountedError(EoctlError):
    """A host has not the directory that planning has seen on another one."""

    exit_status = EXIT_ACCESS


class UnopenedError(EoctlError):
    """What a query has to read cannot be opened: without it the rows would look whole."""

    exit_status = EXIT_ACCESS

    def __init__(self, error: AccessError) -> None:
        super().__init__(
            f"{error.path}: cannot be read on {socket.gethostname()}: {error.reason}",
            next_step=f"make it readable there; or {READ_THE_REST}, and kafka-log-findings shows"
            " what is left out",
        )


class LeftOutWarning(UserWarning):
    """What cannot be read has no rows, as failOnDataLoss=false wants it."""


class Needed(Enum):
    """Who needs the segments that planning has seen.

    Attributes:
        NOTHING: nobody: one that is gone, or cannot be opened, has no rows, and a warning tells.
        BY_QUERY: a query that ends, which either fails.
        BY_MICRO_BATCH: a stream, which either fails.
    """

    NOTHING = auto()
    BY_QUERY = auto()
    BY_MICRO_BATCH = auto()


def require_listed(options: SourceOptions, listing: Listing) -> None:
    """See that planning knows all segments that are asked for.

    What is gone while it looks is none of them, but a PATH that is not there is.

    Raises:
        UnopenedError: something cannot be listed, and failOnDataLoss is not false.
    """
    for each in listing.problems:
        if isinstance(each, AccessError) and _may_hold_rows(options, each):
            if options.kafka.fails_on_loss:
                raise UnopenedError(each) from each
            _tell_left_out(each)


def _may_hold_rows(options: SourceOptions, problem: AccessError) -> bool:
    path = problem.path
    if problem.errno == ENOENT and path not in options.paths:
        return not is_uri(path) and os.path.islink(path)  # noqa: PTH114 - a link to nothing
    around, _, name = path.rpartition("/")
    file = classify(name)
    if file.kind not in (FileKind.LOG, FileKind.UNKNOWN) or file.suffix is not FileSuffix.NONE:
        return False  # what stands beside segments
    partition = parse_partition_name(name) or parse_partition_name(around.rpartition("/")[2])
    return partition is None or options.kafka.choice.holds(partition)


def _tell_left_out(error: AccessError) -> None:
    words = f"{error.path}: left out on {socket.gethostname()}: {error.reason}"
    warnings.warn(words, LeftOutWarning, stacklevel=3)  # each path once, into the log of a task


def needed_by_query(kafka: KafkaOptions) -> Needed:
    """Return what a query that ends needs, by its failOnDataLoss."""
    return Needed.BY_QUERY if kafka.fails_on_loss else Needed.NOTHING


def open_seen(place: SegmentPlace, *, needed: Needed) -> Segment:
    """Open a segment that planning has seen.

    Raises:
        NotMountedError: its whole directory is not there: it is another one on this host.
        DataLossError: it is gone, and is needed.
        UnopenedError: it cannot be opened, and is needed. No AccessError, which is what those who
            read past damage pass over.
        AccessError: either, and nobody needs it.
    """
    try:
        return open_place(place)
    except AccessError as exc:
        _require_mounted(place, exc)
        if needed is Needed.NOTHING:
            _tell_left_out(exc)
            raise
        planned, again = _NEEDED_BY[needed]
        if exc.errno == ENOENT:
            raise DataLossError(
                f"{place.path}: is gone since the {planned} was planned", next_step=again
            ) from exc
        raise UnopenedError(exc) from exc


def _require_mounted(place: SegmentPlace, error: AccessError) -> None:
    is_gone = error.errno == ENOENT and not is_uri(place.path)
    if is_gone and not os.path.isdir(place.directory):  # noqa: PTH112 - a place is plain text
        raise NotMountedError(
            f"{socket.gethostname()}: there is no directory {place.directory}, which is there"
            " where Spark has planned the query",
            next_step="mount it on every host under the same path, or give a URI",
        ) from error


_NEEDED_BY = {
    Needed.BY_QUERY: ("query", f"run it again, or {READ_THE_REST}"),
    Needed.BY_MICRO_BATCH: (
        "micro-batch",
        "start the query again: it plans that micro-batch anew",
    ),
}
