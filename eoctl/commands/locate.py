"""`eoctl locate`: the position of an offset, a time, a key or a byte in a partition."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from eoctl.clock import format_time_ms
from eoctl.console.columns import bytes_text
from eoctl.options import Output
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import argument, option
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, EoctlError, UsageError, call_text
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.inspect.locate import Location, Search
    from storage.dirs.log_dir import Problem
    from storage.dirs.partition import Partition
    from storage.formats.record_batch import BatchHeader
    from storage.log.segment import LogRecord

ANSWERS = (*PLACE, "offset", "timestamp_ms", "segment_base_offset", "batch_pos", "path")


def command(
    path: Annotated[
        str, argument(metavar="PARTITION", help="A partition directory, or a .log in it.")
    ],
    offset: Annotated[int | None, option(min=0, metavar="N", help="Find this offset.")] = None,
    timestamp: Annotated[
        str | None,
        option(
            metavar="TIME", help="Find the first record at or after this time (ms or ISO 8601)."
        ),
    ] = None,
    key: Annotated[
        str | None, option(metavar="KEY", help="Find all records with this key (UTF-8).")
    ] = None,
    pos: Annotated[
        int | None,
        option(min=0, metavar="POS", help="Find the batch at this byte of a .log file."),
    ] = None,
    segment: Annotated[
        int | None,
        option(min=0, metavar="BASE_OFFSET", help="Base offset of the segment that --pos is in."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Find the segment, the batch and the byte position of an offset, a time, a key or a byte.

    The output includes the indexes, and whether their entries are right. The position does not
    depend on them.
    """
    from eoctl.clock import parse_time_ms
    from eoctl.messages import report_answer
    from eoctl.output import Report, emit, while_read
    from recovery.inspect.locate import Location, Search
    from storage.dirs.discovery import discover
    from storage.dirs.partition import Partition
    from storage.file_names import FileKind, classify

    if sum(each is not None for each in (offset, timestamp, key, pos)) != 1:
        raise UsageError(
            "exactly one of --offset, --timestamp, --key and --pos is needed",
            next_step="eoctl locate PARTITION --offset N",
        )
    if segment is not None and pos is None:
        raise UsageError("--segment goes with --pos")
    time_ms = None if timestamp is None else parse_time_ms(timestamp)
    selected = discover([path]).selected
    if len(selected) != 1:
        raise UsageError(
            f"{path}: {len(selected)} partitions there", next_step="name one directory TOPIC-N"
        )
    if segment is None and not Path(path).is_dir():
        name = classify(os.path.basename(path))  # noqa: PTH119 - the name, as given
        segment = name.offset if name.kind is FileKind.LOG else None
    search = Search(Partition.of(selected[0]))
    run = _LocateRun(search, selected[0].problems)
    if offset is not None:
        rows = run.rows([search.by_offset(offset)])
    elif time_ms is not None:
        rows = run.rows([search.by_time(time_ms)])
    elif pos is not None:
        rows = run.rows([search.by_position(pos, base_offset=segment)])
    else:
        rows = run.rows(search.by_key(str(key).encode("utf-8", "surrogateescape")))
    with while_read(lambda: run.status_so_far):
        if offset is not None:
            report_answer(who_wrote(search.partition, offset), output)
        columns = Columns(Location._fields, answers=ANSWERS)
        emit(Report("location", columns, rows, notes=search.notes), output)
    return run.status


class _LocateRun:
    """A counter of the places found while they are printed."""

    def __init__(self, search: Search, around: Sequence[Problem]) -> None:
        self._search = search
        self._around = around
        self._count = 0
        self._is_bad = False

    def rows(self, locations: Iterable[Location | None]) -> Iterator[Location]:
        for location in locations:
            if location is not None:
                self._count += 1
                self._is_bad = self._is_bad or location.crc_ok is False
                yield location
        partition = self._search.partition
        problems = dict.fromkeys(map(str, (*self._around, *partition.problems)))
        self._search.notes += [*problems, *partition.notes]

    @property
    def status_so_far(self) -> int:
        """The exit status while the search continues."""
        return EXIT_FINDINGS if self._is_bad else EXIT_OK

    @property
    def status(self) -> int:
        if not self._count or self._is_bad:
            return EXIT_FINDINGS
        problems = self._around or self._search.partition.problems
        is_skipped = self._search.is_unreadable or bool(problems)
        if is_skipped:
            return EXIT_SKIPPED
        return EXIT_FINDINGS if self._search.is_damaged else EXIT_OK


# -- the producer of a record, in words


MOST_CHARACTERS = 40  # of a key


def who_wrote(partition: Partition, offset: int) -> Iterator[str]:
    """Yield up to three lines about the batch with an offset, none if there is no such batch."""
    try:
        place = partition.find_offset(offset)
        if place is None or place.batch.header.base_offset > offset:
            return
        with open_segment(place.files.log.path, base_offset=place.files.base_offset) as segment:
            found = (each for each in segment.records(place.batch) if each.offset == offset)
            record = next(found, None)
    except EoctlError:  # already reported by the search
        return
    header = place.batch.header
    doubt = "" if place.batch.crc_ok is not False else ", by a batch whose checksum is wrong"
    yield f"offset {offset}: {_writer(header)}, leader epoch {header.partition_leader_epoch}{doubt}"
    if record is not None and not header.is_control:
        yield f"  {_said(record)}"
    if header.is_transactional and header.producer_id >= 0:
        log_dir = os.path.dirname(partition.path) or "."  # noqa: PTH120 - as it was given
        call = ["eoctl", "txn", "describe", "--producer-id", str(header.producer_id), log_dir]
        yield f"  whose transactional id: {call_text(call)}"


def _writer(header: BatchHeader) -> str:
    if header.is_control:
        return f"a marker for producer {header.producer_id}, epoch {header.producer_epoch}"
    if header.producer_id < 0:
        return "a producer without idempotence"
    kind = "in a transaction" if header.is_transactional else "idempotent"
    return f"producer {header.producer_id}, epoch {header.producer_epoch}, {kind}"


def _said(record: LogRecord) -> str:
    key = "null" if record.key is None else bytes_text(record.key, MOST_CHARACTERS)
    time = (
        "without a time" if record.timestamp_ms < 0 else f"at {format_time_ms(record.timestamp_ms)}"
    )
    return f"key {key}, {time}"
