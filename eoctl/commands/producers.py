"""`eoctl producers`: the number of producer ids, how many are live, and their heap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl.console.columns import size_text, time_text
from eoctl.messages import Said, report_first
from eoctl.options import (
    Now,
    Output,
    Paths,
    ProducerExpiryMs,
    ServerProperties,
    Topics,
    given_paths,
)
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import output_option
from storage.counts import counted as number_of
from storage.errors import EXIT_OK, EXIT_SKIPPED, AccessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.inspect.census import Census, PartitionProducers
    from recovery.replay.snapshots import Clock
    from storage.dirs.discovery import Discovery, Selected

HOUR_COLUMNS = ("topic", "hour", "hour_start_ms", "new_producers_count")
COUNTS = ("producers_count", "live_count", "expired_count", "open_transactions_count", "heap_bytes")


class Counted(NamedTuple):
    """A partition and its counts."""

    topic: str
    partition: int
    path: str
    found: PartitionProducers


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    now: Now = None,
    producer_expiry_ms: ProducerExpiryMs = None,
    by_hour: Annotated[
        bool, output_option("--by-hour", help="Also print new ids for each topic and hour.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Count producer ids: live, expired, with one batch only, new ones an hour, and their heap.

    A row for each partition, for each topic, and for all. Every batch is read. Ids without batches
    are counted from the newest snapshot.
    """
    from eoctl.clock import resolve_now
    from eoctl.output import Report, emit, line, message
    from recovery.inspect.census import Census, count_producers, new_by_hour
    from recovery.replay.snapshots import Clock
    from storage.dirs.discovery import discover

    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl producers PATH...")
    found = discover(wanted)
    moment = resolve_now(
        now,
        [each.path for each in found.log_dirs],
    )
    clock = Clock.at(moment.ms, producer_expiry_ms)
    counted, problems = _count(found)
    # Rows of zeros are left out for people.
    shown = [each for each in counted if output is not OutputFormat.TEXT or _has_any(each)]
    by_topic = {
        name: [each.found.producers for each in shown if each.topic == name]
        for name in sorted({each.topic for each in shown})
    }
    topics = {name: count_producers(each, clock) for name, each in by_topic.items()}
    total = count_producers([each.found.producers for each in counted], clock)
    columns = Census._fields
    reports = [
        Report(
            "partition",
            Columns((*PLACE, *columns, "is_complete", "path"), answers=(*PLACE, *COUNTS)),
            [_row(each, clock) for each in shown],
        ),
        Report(
            "topic",
            Columns(("topic", *columns), answers=("topic", *COUNTS)),
            [(name, *each) for name, each in topics.items()],
        ),
        Report("total", Columns(columns, answers=COUNTS), [total]),
    ]
    if by_hour:
        hours = (
            (topic, time_text(start_ms, is_utc=True), start_ms, count)
            for topic, each in by_topic.items()
            for start_ms, count in new_by_hour(each)
        )
        reports.append(Report("hour", HOUR_COLUMNS, list(hours)))
    is_whole = not problems and all(each.found.is_whole for each in counted)
    report_first(producer_lines(total, len(shown), topics, is_whole=is_whole), output)
    for number, report in enumerate(reports):
        if number and output is OutputFormat.TEXT:
            line("")
        emit(report, output)
    notes = [note for each in counted for note in each.found.notes]
    empty = len(counted) - len(shown)
    left_out = [f"partitions without producers, which have no row: {empty:,}"] if empty else []
    for note in (*left_out, moment.describe(), *problems, *notes, verified(is_whole=is_whole)):
        message(note)
    return EXIT_SKIPPED if problems or notes else EXIT_OK


def producer_lines(
    total: Census,
    partitions_count: int,
    topics: Mapping[str, Census],
    *,
    is_whole: bool,
) -> Iterator[Said]:
    """Yield the number of producer ids, their heap in a broker, and where most of them are."""
    live, known = total.live_count, total.entries_count
    partitions = number_of(partitions_count, "partition")
    ids = number_of(total.producers_count, "producer id")
    text = f"{live:,} live entries of {known:,} of {ids}, in {partitions}"
    yield Said("Heap", f"{size_text(total.heap_bytes)} for {text}")
    if total.open_transactions_count:
        text = number_of(total.open_transactions_count, "transaction")
        yield Said(
            "Open", text if is_whole else f"{text}, or fewer: an end may be in what is damaged"
        )
    if total.new_last_hour_count:
        most = max(topics, key=lambda name: topics[name].new_last_hour_count)
        count = topics[most].new_last_hour_count
        new = f"{total.new_last_hour_count:,} in the last hour, {count:,} of them in {most}"
        yield Said("New", new)


def verified(*, is_whole: bool) -> str:
    """Return the scope of the verification."""
    of_what = "all batches" if is_whole else "what is counted"
    return (
        f"verified: headers and checksums of {of_what}; heap_bytes is an estimate for one broker"
        " with one copy of each partition"
    )


def _has_any(counted: Counted) -> bool:
    return bool(len(counted.found.producers.producer_id)) or bool(counted.found.notes)


def _row(counted: Counted, clock: Clock) -> Sequence[object]:
    from recovery.inspect.census import count_producers

    census: Census = count_producers([counted.found.producers], clock)
    is_complete = not counted.found.notes
    return (counted.topic, counted.partition, *census, is_complete, counted.path)


def _count(found: Discovery) -> tuple[list[Counted], list[str]]:
    """Read all partitions. A partition that cannot be listed becomes a problem."""
    from eoctl.progress import Progress, log_bytes
    from recovery.cluster.placement import doubts_around
    from recovery.inspect.census import read_producers
    from storage.dirs.partition import Partition

    problems = [*map(str, found.problems), *doubts_around(found.whole)]
    counted = []
    with Progress("reading", lambda: log_bytes(found.selected)) as progress:
        for selected in found.selected:
            try:
                partition = Partition.of(selected)
            except AccessError as error:
                if len(found.selected) == 1:
                    raise
                problems.append(str(error))
                continue
            producers = read_producers(partition, on_bytes=progress.advance)
            counted.append(_counted(selected, producers))
    return counted, problems


def _counted(selected: Selected, producers: PartitionProducers) -> Counted:
    name = selected.partition.name
    return Counted(
        topic=name.topic, partition=name.partition, path=selected.partition.path, found=producers
    )
