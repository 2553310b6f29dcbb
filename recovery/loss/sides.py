"""The two sides of a comparison: the segments of each partition, and how to read them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from recovery.export.plan import ExportOptions, plan_export
from recovery.loss.content_rows import ContentBuilder
from recovery.records.piece_reader import PieceReader
from recovery.records.read_options import ReadOptions
from storage.log.intact_batches import intact_batches
from storage.places.list_places import open_place
from storage.places.splits import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from recovery.loss.content_rows import ContentRows
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.log_reader import ReadFinding

Key = tuple[str, int]
COLUMNS = ("offset", "key")


class PartitionSide(NamedTuple):
    """A partition of a side.

    Attributes:
        path: the directory.
        log_start_offset: lower offsets do not count.
        places: its segments, by base offset.
        opener: opens them.
    """

    path: str
    log_start_offset: int
    places: tuple[SegmentPlace, ...]
    opener: Callable[[SegmentPlace], Segment] = open_place


class Side(NamedTuple):
    """One side: partitions by topic and number.

    Attributes:
        notes: for people.
        problems: what could not be listed, so that partitions may be missing here.
        absent: topic and sentence of each absent partition.
        is_before: the other side before a change, so its log start counts.
    """

    partitions: dict[Key, PartitionSide]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    absent: tuple[tuple[str, str], ...] = ()
    is_before: bool = False

    @property
    def shortcomings(self) -> list[str]:
        """Return all sentences about possibly missing data."""
        return [*self.problems, *(said for _, said in self.absent)]


def side_of(
    paths: Sequence[str], choose: Callable[[Sequence[str]], str], topics: Collection[str] = ()
) -> Side:
    """List a side: partition directories or log dirs.

    `choose` returns one of several replicas of a partition, by their directories. With `topics`,
    partitions of other topics are left out.

    Raises:
        AccessError, UsageError: as in `plan_export`.
    """
    plan = plan_export(paths, ExportOptions(to="", columns=COLUMNS))
    places: dict[str, dict[str, SegmentPlace]] = {}
    for piece in plan.pieces:
        place = piece.split.place
        places.setdefault(place.directory, {})[place.path] = place
    replicas: dict[Key, list[str]] = {}
    for each in plan.directories:
        if topics and each.topic not in topics:
            continue
        replicas.setdefault((each.topic, each.partition), []).append(each.directory)
    partitions: dict[Key, PartitionSide] = {}
    for key, found in replicas.items():
        directory = found[0] if len(found) == 1 else choose(found)
        partitions[key] = PartitionSide(
            path=directory,
            log_start_offset=plan.known_of(directory).log_start_offset or 0,
            places=tuple(places.get(directory, {}).values()),
        )
    notes = [each for each in plan.notes if each not in map(str, plan.problems)]
    return Side(
        partitions,
        tuple(notes),
        tuple(map(str, plan.problems)),
        absent=tuple(
            (each.key.topic, str(each))
            for each in plan.absent
            if not topics or each.key.topic in topics
        ),
    )


class SideRecords:
    """The records of one partition of a side, from an offset on. Iterate once.

    Attributes:
        findings: bad stretches, complete after the iteration.
    """

    def __init__(
        self, side: PartitionSide | None, from_offset: int, on_bytes: Callable[[int], object] = int
    ) -> None:
        self._side = side
        self._options = ReadOptions(columns=COLUMNS, from_offset=from_offset)
        self._on_bytes = on_bytes
        self.findings: list[ReadFinding] = []

    def __iter__(self) -> Iterator[ContentRows]:
        side = self._side
        if side is None:
            return
        for place in side.places:
            split = Split(place=place, start_pos=0, end_pos=place.file_bytes, is_last=True)
            reader = PieceReader(
                split, self._options, ContentBuilder(), opener=side.opener, listed=side.places
            )
            for rows in reader:
                if rows.num_rows:
                    yield rows
            self.findings += (each for each in reader.findings if each.is_lost)
            self._on_bytes(place.file_bytes)

    def opened(self, path: str) -> Segment:
        """Open a segment of the side. Raises AccessError."""
        assert self._side is not None
        return self._side.opener(next(each for each in self._side.places if each.path == path))

    def intact(self, finding: ReadFinding) -> Iterator[HeaderTable]:
        """Yield the intact batches in a bad stretch."""
        with self.opened(finding.path) as segment:
            yield from intact_batches(segment, finding.start_pos, finding.end_pos)

    def stretches(self) -> Iterator[tuple[Callable[[], Segment], int, int | None]]:
        """Yield all segments with their offsets. See `dropped_batches`."""
        if self._side is not None:
            for place in self._side.places:
                yield partial(self._side.opener, place), 0, None


def total_bytes(sides: Iterable[Side]) -> int:
    """Return the number of bytes to read."""
    return sum(
        place.file_bytes
        for side in sides
        for each in side.partitions.values()
        for place in each.places
    )
