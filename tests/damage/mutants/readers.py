"""What each reader of ours gives of a damaged partition, and what it reports, in one form."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.log.consumer import ConsumeOptions, Consumer
from recovery.records.columns import RecordReader
from recovery.records.read_options import ReadOptions
from recovery.repair.salvage_scan import salvage_segment
from recovery.summaries.segment import summarize_split
from storage.dirs.discovery import select_partition
from storage.dirs.lookup import END_KINDS
from storage.dirs.partition import Partition
from storage.kernels.numpy_kernel import BulkScan, BulkWindow
from storage.log.segment import open_segment
from storage.places.list_places import list_places
from storage.places.splits import splits_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


class Reported(NamedTuple):
    """A stretch of a segment that a reader tells of. Positions are half open, in bytes.

    `last_offset` is below `base_offset` by one where no offset is missing; None: not known.
    """

    segment: int
    start_pos: int
    end_pos: int
    is_lost: bool = True
    base_offset: int | None = None
    last_offset: int | None = None


class Answer(NamedTuple):
    """What a reader says of a partition; only one of the first three is not None.

    Attributes:
        places: segment and position of each batch that it gives.
        offsets: how often it gives each record, by offset.
        batches_count: how many batches it counts, by segment.
        reported: what it tells of.
        ends: what it takes for the normal end of a log that was not closed, or for zeros.
    """

    places: frozenset[tuple[int, int]] | None
    offsets: Counter[int] | None
    batches_count: tuple[int, ...] | None
    reported: tuple[Reported, ...]
    ends: tuple[Reported, ...] = ()


def _partition(directory: Path) -> Partition:
    return Partition.of(select_partition(str(directory)))


def _of_verdicts(segment: int, verdicts: Iterable, *, ends: bool) -> list[Reported]:
    return [
        Reported(segment, each.start_pos, each.end_pos)
        for each in verdicts
        if (each.kind in END_KINDS) is ends
    ]


def _scan(directory: Path, *, in_bulk: bool) -> Answer:
    places, reported, ends = set(), [], []
    partition = _partition(directory)
    for number, files in enumerate(partition.segments):
        options = {
            "is_active": partition.is_active(files),
            "end_offset": partition.end_of(files),
        }
        with open_segment(files.log.path) as segment:
            scan = BulkScan(segment, **options) if in_bulk else segment.scan(**options)
            for part in scan.parts() if in_bulk else scan:
                if isinstance(part, BulkWindow):
                    places |= {(number, pos) for pos in part.table.pos.tolist()}
                elif part.crc_ok:
                    places.add((number, part.pos))
            reported += _of_verdicts(number, scan.verdicts, ends=False)
            ends += _of_verdicts(number, scan.verdicts, ends=True)
    return Answer(frozenset(places), None, None, tuple(reported), tuple(ends))


def dump(directory: Path) -> Answer:
    """The reader behind dump-segment's rows."""
    return _scan(directory, in_bulk=False)


def dump_in_bulk(directory: Path) -> Answer:
    """The reader behind dump-segment's lines of large logs."""
    return _scan(directory, in_bulk=True)


def consume(directory: Path) -> Answer:
    """`eoctl consume --skip-corrupt`."""
    consumer = Consumer(str(directory), ConsumeOptions(skip_corrupt=True), lambda _: None)
    consumer.start()
    offsets: Counter[int] = Counter()
    for records in consumer.records():
        if records is not None:
            offsets.update(records.lists().offsets)
    numbers = {each.log.path: n for n, each in enumerate(consumer.partition.segments)}
    assert consumer.reader is not None
    reported = tuple(
        Reported(
            numbers[each.path],
            each.start_pos,
            each.end_pos,
            base_offset=each.base_offset,
            last_offset=each.last_offset,
        )
        for each in (*consumer.reader.skipped, *consumer.reader.noted)
    )
    return Answer(None, offsets, None, reported)


def _of_findings(number: int, findings: Iterable) -> tuple[list[Reported], list[Reported]]:
    reported: tuple[list[Reported], list[Reported]] = ([], [])
    for each in findings:
        reported[each.kind in END_KINDS].append(
            Reported(
                number,
                each.start_pos,
                each.end_pos,
                each.is_lost,
                each.base_offset,
                each.last_offset,
            )
        )
    return reported


def export(directory: Path) -> Answer:
    """What `eoctl export` writes, and its `_lost.jsonl`."""
    offsets: Counter[int] = Counter()
    reported, ends = [], []
    for number, place in enumerate(list_places([str(directory)]).places):
        (split,) = splits_at(place, [0])
        reader = RecordReader(split, ReadOptions(columns=("offset",)))
        for batch in reader:
            offsets.update(batch.column(0).to_pylist())
        told = _of_findings(number, reader.findings)
        reported += told[0]
        ends += told[1]
    return Answer(None, offsets, None, tuple(reported), tuple(ends))


def audit(directory: Path) -> Answer:
    """The summary behind `eoctl spark-audit`."""
    counts, reported, ends = [], [], []
    for number, place in enumerate(list_places([str(directory)]).places):
        (split,) = splits_at(place, [0])
        found = summarize_split(split)
        counts.append(found.summary.counts.batches)
        told = _of_findings(number, found.findings)
        reported += told[0]
        ends += told[1]
    return Answer(None, None, tuple(counts), tuple(reported), tuple(ends))


def salvage(directory: Path) -> Answer:
    """What `eoctl repair --strategy salvage` keeps, and what it says is lost."""
    partition = _partition(directory)
    places, reported = set(), []
    segments = partition.segments
    for number, files in enumerate(segments):
        is_last = number + 1 == len(segments)
        found = salvage_segment(
            files.log.path,
            files.base_offset,
            is_last=is_last,
            end_offset=None if is_last else segments[number + 1].base_offset,
            entries=partition.index_entries(files),
        )
        for run in found.runs:
            with open_segment(files.log.path) as segment:
                scan = segment.scan(start_pos=run.start_pos, end_pos=run.end_pos)
                places |= {(number, each.pos) for each in scan}
        reported += [
            Reported(
                number,
                each.start_pos,
                each.end_pos,
                base_offset=each.base_offset,
                last_offset=each.last_offset,
            )
            for each in found.losses
        ]
    return Answer(frozenset(places), None, None, tuple(reported))


READERS: dict[str, Callable[[Path], Answer]] = {
    "dump": dump,
    "dump_in_bulk": dump_in_bulk,
    "consume": consume,
    "export": export,
    "audit": audit,
    "salvage": salvage,
}
