"""Effect on a query of segments that cannot be listed or opened."""

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
from storage.places.list_places import open_place

if TYPE_CHECKING:
    from eoctl.spark.rows.kafka_options import KafkaOptions
    from eoctl.spark.rows.source_options import SourceOptions
    from storage.log.segment import Segment
    from storage.places.listing import Listing, SegmentPlace


class NotMountedError(EoctlError):
    """Error: a host does not have a directory that planning saw on another host."""

    exit_status = EXIT_ACCESS


class UnopenedError(EoctlError):
    """Error: a segment of the query cannot be opened. Without it the rows would look complete."""

    exit_status = EXIT_ACCESS

    def __init__(self, error: AccessError) -> None:
        super().__init__(
            f"{error.path}: cannot be read on {socket.gethostname()}: {error.reason}",
            next_step=f"make it readable there; or {READ_THE_REST}, and kafka-log-findings shows"
            " what is left out",
        )


class LeftOutWarning(UserWarning):
    """Warning: an unreadable segment has no rows, because failOnDataLoss is false."""


class Needed(Enum):
    """Effect of a missing or unreadable segment that planning has seen.

    Attributes:
        NOTHING: the segment has no rows, and a warning reports it.
        BY_QUERY: a query without a stream fails.
        BY_MICRO_BATCH: a stream fails.
    """

    NOTHING = auto()
    BY_QUERY = auto()
    BY_MICRO_BATCH = auto()


def require_listed(options: SourceOptions, listing: Listing) -> None:
    """Check that planning knows all chosen segments.

    A segment that disappears during the listing is not required, but a missing PATH is an error.

    Raises:
        UnopenedError: a path cannot be listed, and failOnDataLoss is not false.
    """
    for each in listing.problems:
        if isinstance(each, AccessError) and _may_hold_rows(options, each):
            if options.kafka.fails_on_loss:
                raise UnopenedError(each) from each
            _report_left_out(each)


def _may_hold_rows(options: SourceOptions, problem: AccessError) -> bool:
    path = problem.path
    if problem.errno == ENOENT and path not in options.paths:
        return not is_uri(path) and os.path.islink(path)  # noqa: PTH114 - a link to nothing
    around, _, name = path.rpartition("/")
    file = classify(name)
    if file.kind not in (FileKind.LOG, FileKind.UNKNOWN) or file.suffix is not FileSuffix.NONE:
        return False  # a file next to segments
    partition = parse_partition_name(name) or parse_partition_name(around.rpartition("/")[2])
    return partition is None or options.kafka.choice.holds(partition)


def _report_left_out(error: AccessError) -> None:
    words = f"{error.path}: left out on {socket.gethostname()}: {error.reason}"
    warnings.warn(words, LeftOutWarning, stacklevel=3)  # each path once, into the log of a task


def needed_by_query(kafka: KafkaOptions) -> Needed:
    """Return the effect for a query without a stream, by its failOnDataLoss."""
    return Needed.BY_QUERY if kafka.fails_on_loss else Needed.NOTHING


def open_seen(place: SegmentPlace, *, needed: Needed) -> Segment:
    """Open a segment that planning has seen.

    Raises:
        NotMountedError: its whole directory is missing, so this host has another directory.
        DataLossError: it is missing, and needed.
        UnopenedError: it cannot be opened, and is needed. This is no AccessError, which readers of
            damaged data ignore.
        AccessError: it is missing or unreadable, and not needed.
    """
    try:
        return open_place(place)
    except AccessError as exc:
        _require_mounted(place, exc)
        if needed is Needed.NOTHING:
            _report_left_out(exc)
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
        "start the query again. It plans that micro-batch again",
    ),
}
