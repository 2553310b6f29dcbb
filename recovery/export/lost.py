"""The list of losses of a partition, for all readers that read by pieces.

It combines the findings of a directory's pieces, missing acknowledged offsets, and partitions and
directories that could not be listed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.dirs.offset_ledger import joined, not_given, unread
from storage.dirs.partition import cleanup_of
from storage.errors import AccessError
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.cluster.placement import AbsentPartition
    from recovery.export.plan import ExportPiece, ExportPlan
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.places.listing import DirectoryPlace
    from storage.places.log_reader import ReadFinding

# A batch that reaches beyond the base offset of the next segment.
BEYOND_SEGMENT_CHECK_ID = "SEG-1"


class LostRange(NamedTuple):
    """An unreadable range, a line of the list of losses.

    `base_offset` to `last_offset`, both included, is the largest possible gap between the good
    batches around it. `missing_offsets` is their number. None is unknown: a side has no bound, or
    (with 0 offsets) those batches leave no room.
    """

    broker: str
    topic: str
    partition: int
    path: str
    start_pos: int | None
    end_pos: int | None
    kind: str
    check_id: str
    reason: str
    errno: int
    base_offset: int | None
    last_offset: int | None
    missing_offsets: int | None


def lost_offsets_count(lost: Iterable[LostRange]) -> int:
    """Return the upper limit of lost offsets in bounded ranges, each offset of a directory once.

    Ranges without a good batch between them may each have any of their common offsets.
    """
    by_directory: dict[tuple[str, str, int, str], list[tuple[int, int]]] = {}
    for each in lost:
        if each.base_offset is None or each.last_offset is None:
            continue
        is_directory = each.kind == VerdictKind.MISSING
        directory = each.path if is_directory else each.path.rpartition("/")[0]
        key = (each.broker, each.topic, each.partition, directory)
        by_directory.setdefault(key, []).append((each.base_offset, each.last_offset))
    count = 0
    for ranges in by_directory.values():
        end_offset = 0  # of the offsets counted so far
        for base_offset, last_offset in sorted(ranges):
            count += max(last_offset + 1 - max(base_offset, end_offset), 0)
            end_offset = max(end_offset, last_offset + 1)
    return count


class PieceRead(Protocol):
    """The data about a piece that was read, see `PieceResult`."""

    @property
    def piece(self) -> ExportPiece:
        """The piece."""

    @property
    def findings(self) -> Sequence[ReadFinding]:
        """Its bad ranges."""

    @property
    def span(self) -> OffsetSpan:
        """The offsets of its good batches."""


def lost_of_directory(
    plan: ExportPlan, directory: DirectoryPlace, results: Sequence[PieceRead]
) -> list[LostRange]:
    """Return the losses of one directory. Requires the results of all its pieces, in order."""
    return _with_missing(plan, directory, results, list(_lost_ranges(results)))


def _with_missing(
    plan: ExportPlan,
    directory: DirectoryPlace,
    results: Sequence[PieceRead],
    lost: list[LostRange],
) -> list[LostRange]:
    """Add missing acknowledged offsets, and offsets hidden by a wrong log start offset.

    A range at the end of a log, without a good batch after it, extends to the acknowledged end.
    """
    path = directory.directory
    from_offset, to_offset = plan.bounds.get(path, (None, None))
    known = plan.known_of(path)
    span = joined((each.span for each in results), known.cleaned_offset)
    placed = [each for each in lost if each.missing_offsets != 0]
    unbounded = [each for each in placed if each.last_offset is None]
    # Segments that retention has deleted meanwhile are not lost.
    gone = [
        unread(place.base_offset, place.end_offset)
        for place, findings in ((each.piece.split.place, each.findings) for each in results)
        if any(each.is_gone for each in findings)
    ]
    for found in not_given(known, span, partial(cleanup_of, path), [*placed, *gone]):
        if found.is_on_disk and from_offset is not None:
            continue  # with its own first offset an export does not begin at the log start
        missing = found.within(from_offset or 0, to_offset)
        if missing is None:
            continue
        if len(unbounded) == 1 and unbounded[0].base_offset == missing.base_offset:
            place = lost.index(unbounded[0])
            lost[place] = unbounded[0]._replace(
                last_offset=missing.last_offset, missing_offsets=missing.offsets_count
            )
            continue
        lost.append(
            LostRange(
                broker=directory.broker,
                topic=directory.topic,
                partition=directory.partition,
                path=path,
                start_pos=None,
                end_pos=None,
                kind=str(VerdictKind.MISSING),
                check_id=missing.check_id,
                reason=str(missing),
                errno=0,
                base_offset=missing.base_offset,
                last_offset=missing.last_offset,
                missing_offsets=missing.offsets_count,
            )
        )
    return lost


def lost_absent(plan: ExportPlan) -> list[LostRange]:
    """Return the acknowledged offsets of partitions without a directory."""
    return [_of_absent(each) for each in plan.absent]


def _of_absent(absent: AbsentPartition) -> LostRange:
    """Return the line of a partition without a directory."""
    missing = absent.missing
    return LostRange(
        broker="",
        topic=absent.key.topic,
        partition=absent.key.partition,
        path=absent.path or absent.log_dir,
        start_pos=None,
        end_pos=None,
        kind=str(VerdictKind.MISSING),
        check_id="DIR-8" if missing is None else missing.check_id,
        reason=str(absent),
        errno=0,
        base_offset=missing and missing.base_offset,
        last_offset=missing and missing.last_offset,
        missing_offsets=missing and missing.offsets_count,
    )


def lost_unlisted(plan: ExportPlan) -> list[LostRange]:
    """Return the lines of paths that could not be listed."""
    return [_unlisted(each) for each in plan.problems if isinstance(each, AccessError)]


def _unlisted(problem: AccessError) -> LostRange:
    """Return the line of a path that was never listed. Its contents are unknown."""
    return LostRange(
        broker="",
        topic="",
        partition=-1,
        path=problem.path,
        start_pos=None,
        end_pos=None,
        kind=str(VerdictKind.UNREADABLE),
        check_id="",
        reason=problem.reason,
        errno=problem.errno,
        base_offset=None,
        last_offset=None,
        missing_offsets=None,
    )


def _lost_ranges(results: Sequence[PieceRead]) -> Iterator[LostRange]:
    """Yield the losses of one directory. Neighbouring pieces bound the gaps between them."""
    for number, result in enumerate(results):
        place = result.piece.split.place
        for each in result.findings:
            if not each.is_lost:
                continue
            base_offset, last_offset = each.base_offset, each.last_offset
            if base_offset is None:
                base_offset = _end_before(results[:number])
            if last_offset is None:
                is_bound = each.check_id != BEYOND_SEGMENT_CHECK_ID
                last_offset = _start_behind(results[number + 1 :], is_name_a_bound=is_bound)
            missing = None
            if base_offset is not None and last_offset is not None:
                missing = max(last_offset - base_offset + 1, 0)
                if not missing:  # the batches around it leave no offset for it
                    base_offset = last_offset = None
            yield LostRange(
                broker=place.broker,
                topic=place.topic,
                partition=place.partition,
                path=each.path,
                start_pos=each.start_pos,
                end_pos=each.end_pos,
                kind=str(each.kind),
                check_id=each.check_id,
                reason=each.reason,
                errno=each.errno,
                base_offset=base_offset,
                last_offset=last_offset,
                missing_offsets=missing,
            )


def _end_before(results: Sequence[PieceRead]) -> int | None:
    ends = (each.span.end_offset for each in reversed(results))
    known = next((end for end in ends if end is not None), None)
    if known is None and results:
        return results[0].piece.split.place.base_offset
    return known


def _start_behind(results: Sequence[PieceRead], *, is_name_a_bound: bool) -> int | None:
    """Return the last offset before the next good batches, or before the next base offset.

    A batch that reaches beyond the next segment's base offset contradicts it. Then it is no bound.
    """
    for each in results:
        split = each.piece.split
        is_named = is_name_a_bound and not split.start_pos
        start = split.place.base_offset if is_named else each.span.first_offset
        if start is not None:
            return start - 1
    return None
