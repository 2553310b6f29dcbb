"""Join the summaries of splits to the summary of a partition directory."""

from __future__ import annotations

from functools import partial, reduce
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from recovery.summaries.segment import MAX_FINDINGS_COUNT, PieceSummary, read_split
from recovery.summaries.summary import Before, Piece, Summary, merge, merge_again, merge_all
from recovery.timeline.piece import ReadTimeline, Timeline, join_read, with_fewer_bins
from storage.dirs.log_dir import StoppedState
from storage.dirs.lookup import is_wrong_end
from storage.dirs.offset_ledger import OffsetSpan, joined, not_given, unread
from storage.dirs.partition import cleanup_of
from storage.places.log_reader import GONE, ReadFinding, not_there

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from storage.dirs.acknowledged_offsets import Acknowledged, Missing
    from storage.dirs.offset_ledger import KnownRange
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split

    ReadSplit = Callable[[Split, Before | None], PieceSummary]


class ReadPiece(NamedTuple):
    """A split and its summary."""

    split: Split
    piece: PieceSummary


class FoundDamage(NamedTuple):
    """The damage of a partition directory. Fields as in `PartitionSummary`."""

    findings: tuple[ReadFinding, ...]
    findings_count: int
    stopped: StoppedState

    @property
    def is_corrupt(self) -> bool:
        """Return whether there is damage."""
        return any(each.is_corrupt for each in self.findings)

    @property
    def has_wrong_end(self) -> bool:
        """Return whether bytes follow the last batch of a closed log."""
        return any(is_wrong_end(each.kind, self.stopped) for each in self.findings)

    @property
    def is_unreadable(self) -> bool:
        """Return whether a part is unreadable or absent."""
        return any(each.is_unreadable or each.is_missing for each in self.findings)


class PartitionSummary(NamedTuple):
    """The summary of a partition directory.

    Attributes:
        findings: the first bad stretches, in log order, including removed files.
        findings_count: all bad stretches.
        stopped: how its broker stopped. Known after `against`.
        timeline: None if not requested.
        span: the offsets of its good batches.
    """

    summary: Summary
    findings: tuple[ReadFinding, ...]
    findings_count: int
    stopped: StoppedState = StoppedState.UNKNOWN
    timeline: Timeline | None = None
    span: OffsetSpan = OffsetSpan()

    @property
    def damage(self) -> FoundDamage:
        """Return the damage of the directory."""
        return FoundDamage(self.findings, self.findings_count, self.stopped)

    def against(
        self, known: Acknowledged, directory: str, segments: Sequence[SegmentPlace]
    ) -> PartitionSummary:
        """Add the acknowledged offsets of a directory that the summary lacks."""
        missing = _missing_from(self.span, self.findings, known, directory, segments)
        found = [not_there(directory, each) for each in missing]
        return self._replace(
            findings=(*found, *self.findings),
            findings_count=self.findings_count + len(found),
            stopped=known.stopped,
        )


def _missing_from(
    span: OffsetSpan,
    findings: Sequence[ReadFinding],
    known: Acknowledged,
    directory: str,
    segments: Sequence[SegmentPlace],
) -> tuple[Missing, ...]:
    """Return the acknowledged offsets of a directory that the summary lacks.

    If the last segment could not be read, the end of the log is left out.
    """
    if any(each.is_unreadable and each.path == segments[-1].path for each in findings):
        span = span._replace(end_offset=known.end_offset)
    ends = {each.path: each.end_offset for each in segments}
    lost: list[KnownRange] = [_bounded(each, ends) for each in findings if each.is_lost]
    gone = {each.path for each in findings if each.is_gone}
    lost += (unread(e.base_offset, e.end_offset) for e in segments if e.path in gone)
    return not_given(known, span, partial(cleanup_of, directory), lost)


def _bounded(finding: ReadFinding, ends: Mapping[str, int | None]) -> ReadFinding:
    """Limit damage at the end of a segment to the offsets before the next segment."""
    end = ends.get(finding.path)
    is_open = finding.last_offset is None and end is not None
    return finding._replace(last_offset=end - 1) if is_open and end is not None else finding


def absent_from(pieces: Sequence[ReadPiece], known: Acknowledged) -> list[ReadFinding]:
    """Return the acknowledged offsets of a directory that none of its whole segments has."""
    splits = [each.split for each in pieces]
    findings = [finding for each in pieces for finding in each.piece.findings]
    span = _joined([each.piece.span for each in pieces], splits)
    directory = splits[0].place.directory
    missing = _missing_from(span, findings, known, directory, [each.place for each in splits])
    return [not_there(directory, each) for each in missing]


def absent_in(place: SegmentPlace, piece: PieceSummary, known: Acknowledged) -> list[ReadFinding]:
    """Return absent acknowledged offsets between the start of a whole segment and the next segment.

    All segments of a directory together give the result of `absent_from`, if the topic was never
    compacted. Then the batches of other segments explain no gap.
    """
    base, end, span = place.base_offset, place.end_offset, piece.span
    first = min(known.bases, default=base)
    own_end = base if span.end_offset is None else span.end_offset
    gaps = span.gaps
    log_end = own_end
    if end is not None:
        gaps = (*gaps, (own_end, end - 1)) if own_end < end else gaps
        log_end = max(end, *known.bases, known.end_offset or 0)  # the last segment has more of it
    whole = span._replace(first_offset=first, begin_offset=first, end_offset=log_end, gaps=gaps)
    missing = _missing_from(whole, piece.findings, known, place.directory, [place])
    within = (each.within(0 if base == first else base, end) for each in missing)
    return [not_there(place.directory, each) for each in within if each is not None]


class JoinedRun(NamedTuple):
    """Neighbouring segments of a directory, joined. Pieces and runs can be joined to it.

    Attributes:
        splits: a whole segment each, in log order.
        findings, findings_count: as of a partition.
        timeline: of its batches. None if not requested.
        needs_floor: its timeline needs the end of the batches before it.
        span: the offsets of its good batches.
    """

    splits: tuple[Split, ...]
    summary: Summary
    findings: tuple[ReadFinding, ...]
    findings_count: int
    timeline: ReadTimeline | None
    needs_floor: bool
    span: OffsetSpan


def join_partition(pieces: Iterable[ReadPiece], read: ReadSplit = read_split) -> PartitionSummary:
    """Join the splits of one directory, in any order.

    Args:
        pieces: all pieces, each once.
        read: reads a split again if a seam cannot be resolved without its batches.
    """
    return partition_of(join_pieces(pieces, read))


def join_pieces(pieces: Iterable[ReadPiece], read: ReadSplit = read_split) -> JoinedRun:
    """Join all splits of neighbouring segments, in any order."""
    ordered = sorted(pieces, key=lambda each: (each.split.place.base_offset, each.split.start_pos))
    groups = groupby(ordered, key=lambda each: each.split.place.path)
    return join_runs((_run_of(join_segment([*group], read)) for _, group in groups), read)


def join_runs(runs: Iterable[JoinedRun], read: ReadSplit = read_split) -> JoinedRun:
    """Join neighbouring runs, given in log order."""
    splits: list[Split] = []
    findings: list[ReadFinding] = []
    findings_count = 0
    timeline: ReadTimeline | None = None
    needs_floor = False
    spans: list[OffsetSpan] = []

    def pieces() -> Iterator[Piece]:
        nonlocal findings_count, timeline, needs_floor
        for run in runs:
            if splits:
                timeline, is_needed = _joined_timelines(timeline, run, read)
                needs_floor |= is_needed
            else:
                timeline, needs_floor = run.timeline, run.needs_floor
            splits.extend(run.splits)
            findings.extend(run.findings[: MAX_FINDINGS_COUNT - len(findings)])
            findings_count += run.findings_count
            spans[:] = [_joined([*spans, run.span], splits)]
            yield Piece(run.summary, _rereading(run, read))

    summary = merge_all(pieces())
    return JoinedRun(
        splits=tuple(splits),
        summary=summary,
        findings=tuple(findings),
        findings_count=findings_count,
        timeline=timeline,
        needs_floor=needs_floor,
        span=_joined(spans, splits),
    )


def _joined(spans: Sequence[OffsetSpan], splits: Sequence[Split]) -> OffsetSpan:
    """Join spans of one directory. Each of its splits knows the cleaner's position."""
    return joined(spans, splits[0].place.cleaned_offset if splits else None)


def partition_of(run: JoinedRun) -> PartitionSummary:
    """Return the summary from a run of all segments of a directory."""
    timeline = None
    if run.timeline is not None:
        wanted = run.splits[0].timeline
        timeline = run.timeline.timeline
        if wanted is not None:
            timeline = with_fewer_bins(timeline, wanted.max_bins)
    return PartitionSummary(
        run.summary, run.findings, run.findings_count, timeline=timeline, span=run.span
    )


def _run_of(segment: ReadPiece) -> JoinedRun:
    split, piece = segment
    timeline = None if split.timeline is None else piece.timeline
    return JoinedRun(
        splits=(split,),
        summary=piece.summary,
        findings=piece.findings,
        findings_count=piece.findings_count,
        timeline=timeline,
        needs_floor=timeline is not None and timeline.needs_floor,
        span=piece.span,
    )


def _rereading(run: JoinedRun, read: ReadSplit) -> Callable[[Before], Summary | None]:
    """Return a function that reads segments again in order, after earlier segments."""
    known = {each.path for each in run.findings if _is_lost(each)}
    first, *others = (each._replace(timeline=None) for each in run.splits)

    def reread(before: Before) -> Summary | None:
        is_whole = True

        def rest() -> Iterator[Piece]:
            nonlocal is_whole
            for split in others:
                found = read(split, None)
                is_whole &= split.place.path in known or not any(map(_is_lost, found.findings))
                yield Piece(found.summary, partial(_again, split, read))

        begun = Piece(Summary(), partial(_again, first, read))
        found = merge_again(chain([begun], rest()), before)
        return found if is_whole else None

    return reread


def _is_lost(finding: ReadFinding) -> bool:
    return finding.kind == GONE or finding.is_unreadable


def _again(split: Split, read: ReadSplit, before: Before) -> Summary | None:
    again = read(split, before)
    return None if any(map(_is_lost, again.findings)) else again.summary


def _joined_timelines(
    before: ReadTimeline | None, run: JoinedRun, read: ReadSplit
) -> tuple[ReadTimeline | None, bool]:
    """Add the timeline of a run. Read the run again if its first offsets are unknown.

    Returns the timeline, and whether it lacks the offsets before the whole run.
    """
    found = run.timeline
    if before is None or found is None:
        return found, run.needs_floor
    if not run.needs_floor or before.floor_offset < 0:
        return join_read(before, found), run.needs_floor
    joined: ReadTimeline | None = before
    for split in run.splits:
        joined = _join_timelines(joined, ReadPiece(split, read(split, None)), read)
    return joined, False


def _join_timelines(
    before: ReadTimeline | None, segment: ReadPiece, read: ReadSplit
) -> ReadTimeline | None:
    """Add the timeline of a segment. Read the segment again if its first offsets are unknown."""
    split, found = segment.split, segment.piece.timeline
    if before is None or found is None or split.timeline is None:
        return found
    if found.needs_floor and before.floor_offset >= 0:
        wanted = split.timeline._replace(floor_offset=before.floor_offset)
        again = read(split._replace(timeline=wanted), None)
        if not any(map(_is_lost, again.findings)):
            found = again.timeline or found
    return join_read(before, found)


def join_segment(pieces: Sequence[ReadPiece], read: ReadSplit = read_split) -> ReadPiece:
    """Join the splits of one segment, in order.

    The result of a scan over damage depends on the bytes around it. So a segment with damage, or
    with pieces that do not fit, is read again as a whole.
    """
    first, last = pieces[0].split, pieces[-1].split
    if not _is_whole(pieces):
        # The readers split it differently: the files changed meanwhile, or could not be read once.
        whole = first._replace(start_pos=0, end_pos=first.place.file_bytes, is_last=True)
        return ReadPiece(whole, read(whole, None))
    if len(pieces) == 1:
        return pieces[0]
    whole = first._replace(end_pos=last.end_pos, is_last=last.is_last)
    if not _fit_together(pieces):
        return ReadPiece(whole, read(whole, None))
    joined = _piece_of(pieces[0], read)
    for each in pieces[1:]:
        joined = merge(joined, _piece_of(each, read))
    found = [each.piece for each in pieces]
    lowest = [each.lowest_leader_epoch for each in found if each.lowest_leader_epoch >= 0]
    piece = PieceSummary(
        summary=joined.summary,
        findings=found[-1].findings,
        findings_count=found[-1].findings_count,
        walked_end_pos=found[-1].walked_end_pos,
        lowest_leader_epoch=min(lowest, default=-1),
        highest_leader_epoch=max(each.highest_leader_epoch for each in found),
        timeline=_joined_timeline(found),
        span=_joined([each.span for each in found], [whole]),
    )
    return ReadPiece(whole, piece)


def _joined_timeline(pieces: Sequence[PieceSummary]) -> ReadTimeline | None:
    read = [each.timeline for each in pieces if each.timeline is not None]
    return reduce(join_read, read) if read else None


def _is_whole(pieces: Sequence[ReadPiece]) -> bool:
    """Return whether the pieces are a whole segment, without gaps or overlaps."""
    splits = [each.split for each in pieces]
    meets = all(left.end_pos == right.start_pos for left, right in pairwise(splits))
    return meets and splits[0].start_pos == 0 and splits[-1].is_last


def _fit_together(pieces: Sequence[ReadPiece]) -> bool:
    """Return whether one scan over all pieces would give the same result."""
    top_offset = highest_epoch = -1
    for place, (split, piece) in enumerate(pieces):
        extent, epoch = piece.summary.extent, piece.lowest_leader_epoch
        if 0 <= extent.first_offset <= top_offset or 0 <= epoch < highest_epoch:
            return False
        if place and piece.timeline is not None and piece.timeline.needs_floor:
            return False
        top_offset = max(top_offset, extent.top_offset)
        highest_epoch = max(highest_epoch, piece.highest_leader_epoch)
        is_last = place == len(pieces) - 1
        if is_last and piece.findings:
            # A verdict on a torn end depends on the batch before it.
            is_bad = any(each.is_corrupt or each.is_unreadable for each in piece.findings)
            return not is_bad and piece.summary.counts.batches > 0
        if piece.findings or (not is_last and piece.walked_end_pos != split.end_pos):
            return False
    return True


def _piece_of(read_piece: ReadPiece, read: ReadSplit) -> Piece:
    split = read_piece.split._replace(timeline=None)
    return Piece(read_piece.piece.summary, partial(_again, split, read))
