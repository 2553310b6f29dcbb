"""Export a plan: which pieces are still to be done, and what all of them come to.

Who does the pieces is up to the caller: `execute` takes them and gives results in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.export.files import ExportDir, require_target
from recovery.export.piece import PieceResult, result_of_entry
from storage.dirs.lookup import END_KINDS, is_wrong_end
from storage.errors import AccessError, FormatError
from storage.files.fsio import FileSystem
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.cluster.absent import AbsentPartition
    from recovery.export.options import ExportOptions
    from recovery.export.plan import ExportPiece, ExportPlan
    from recovery.summaries.read_findings import ReadFinding
    from storage.places.listing import DirectoryPlace

    Execute = Callable[[Sequence[ExportPiece], ExportOptions], Iterable[PieceResult]]


class LostRange(NamedTuple):
    """What an export could not read; a line of the list of losses.

    `base_offset` to `last_offset`, both included, is the most that is missing, by the good batches
    around it; `missing_offsets` is their number. None is unknown: it is not bounded on a side.
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


class ExportSummary(NamedTuple):
    """What became of one partition directory.

    Attributes:
        topic, partition, broker: whose it is.
        records: in its files; bytes, files: these files; first_offset, last_offset: of the records.
        committed, aborted, open: records by outcome, those left out by the isolation level too.
        skipped: records that it left out, as headers count them.
        lost_ranges: number of stretches that could not be read.
        lost_offsets: the most offsets that are missing; None: unknown.
        path: the directory.
    """

    topic: str
    partition: int | None
    broker: str
    records: int
    bytes: int
    files: int
    first_offset: int | None
    last_offset: int | None
    committed: int
    aborted: int
    open: int
    skipped: int
    lost_ranges: int
    lost_offsets: int | None
    path: str


class ExportResult(NamedTuple):
    """What an export came to.

    Attributes:
        summaries: a row per partition directory.
        lost: all that could not be read.
        resumed_count: pieces that an earlier run had finished.
        kept_count: files of an earlier run whose segments have gone since.
        is_corrupt: something is damaged.
        is_unreadable: the operating system refused something, or it is not there.
        has_wrong_end: a log that was closed has bytes behind its last batch.
        remarks: sentences on bad stretches that cost no records.
    """

    summaries: tuple[ExportSummary, ...]
    lost: tuple[LostRange, ...]
    resumed_count: int
    kept_count: int
    is_corrupt: bool
    is_unreadable: bool
    has_wrong_end: bool
    remarks: tuple[str, ...]


def run_export(
    plan: ExportPlan,
    options: ExportOptions,
    execute: Execute,
    *,
    resume: bool = False,
    fs: FileSystem | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ExportResult:
    """Export all pieces that are not finished yet, and write the lists.

    Args:
        plan: of `plan_export`.
        options: those of the plan.
        execute: exports pieces.
        resume: go on with what is in the target directory.
        fs: what changes files.
        on_bytes: told of how much of the sources is done.

    Raises:
        AccessError: something cannot be written; what is finished stays, and is not done again.
        RefusedError: the target directory is not to be used.
    """
    fs = FileSystem() if fs is None else fs
    require_target(options.to, [each.directory for each in plan.directories])
    target = ExportDir.take(fs, options.to, options.to_json(), resume=resume)
    try:
        results: dict[str, PieceResult] = {}
        for piece in plan.pieces:
            entry = target.finished.get(piece.name)
            known = None if entry is None else result_of_entry(piece, entry)
            if known is None or not known.is_final:
                continue
            if target.holds(piece.name, known.file_bytes):
                results[piece.name] = known
        resumed_count = len(results)
        listed = {each.split.place.path for each in plan.pieces}
        kept = {
            name: entry
            for name, entry in target.finished.items()
            if name in results or entry.get("path") not in listed
        }
        target.begin([piece.name for piece in plan.pieces], kept)
        todo = [piece for piece in plan.pieces if piece.name not in results]
        for result in execute(todo, options):
            target.add(result.to_entry())
            results[result.piece.name] = result
            if on_bytes is not None:
                on_bytes(result.piece.split.end_pos - result.piece.split.start_pos)
        ordered = [results[piece.name] for piece in plan.pieces]
        found = _sum_up(plan, ordered)
        target.finish(each._asdict() for each in found.lost)
    finally:
        target.close()
    kept_count = len(kept) - resumed_count
    return found._replace(resumed_count=resumed_count, kept_count=kept_count)


def _sum_up(plan: ExportPlan, results: Sequence[PieceResult]) -> ExportResult:
    by_directory: dict[str, list[PieceResult]] = {}
    for result in results:
        by_directory.setdefault(result.piece.split.place.directory, []).append(result)
    lost = [_unlisted(each) for each in plan.problems if isinstance(each, AccessError)]
    summaries = []
    for directory in plan.directories:
        own = by_directory.get(directory.directory, [])
        own_lost = _with_missing(plan, directory, own, list(_lost_ranges(own)))
        lost += own_lost
        summaries.append(_summary(directory, own, own_lost))
    lost += map(_of_absent, plan.absent)
    findings = [each for result in results for each in result.findings]
    harmless = [each for each in findings if not each.is_lost and each.kind not in END_KINDS]
    ends = [
        each
        for result in results
        for each in result.findings
        if is_wrong_end(each.kind, plan.known_of(result.piece.split.place.directory).stopped)
    ]
    kinds = {each.kind for each in findings}
    return ExportResult(
        summaries=tuple(summaries),
        lost=tuple(lost),
        resumed_count=0,
        kept_count=0,
        is_corrupt=VerdictKind.CORRUPT in kinds
        or any(isinstance(each, FormatError) for each in plan.problems),
        is_unreadable=VerdictKind.UNREADABLE in kinds
        or any(each.kind == VerdictKind.MISSING for each in lost)
        or any(isinstance(each, AccessError) for each in plan.problems),
        has_wrong_end=bool(ends),
        remarks=(
            *(f"{_told(each)}; its records are exported" for each in harmless),
            *(f"{_told(each)}; all before it are exported" for each in ends),
        ),
    )


def _told(found: ReadFinding) -> str:
    where = f"{found.path}: positions {found.start_pos} to {found.end_pos}"
    return f"{where}: {found.kind}: {found.reason} [{found.check_id}]"


def _with_missing(
    plan: ExportPlan,
    directory: DirectoryPlace,
    results: Sequence[PieceResult],
    lost: list[LostRange],
) -> list[LostRange]:
    """Add what was acknowledged and is not there, and what a wrong log start hides.

    A stretch at the end of a log that no good batch follows goes up to what was acknowledged.
    """
    path = directory.directory
    from_offset, to_offset = plan.bounds.get(path, (None, None))
    ends = [each.end_batch_offset for each in results if each.end_batch_offset is not None]
    end_offset = max([*ends, plan.last_bases[path]]) if path in plan.last_bases else None
    known = plan.known_of(path)
    # With a first offset of its own an export does not begin at the log start.
    not_given = known.not_given(end_offset) if from_offset is None else known.missing(end_offset)
    unbounded = [each for each in lost if each.last_offset is None]
    for found in not_given:
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


def _of_absent(absent: AbsentPartition) -> LostRange:
    """Return the line of a partition that has no directory."""
    missing = absent.missing
    return LostRange(
        broker="",
        topic=absent.key.topic,
        partition=absent.key.partition,
        path=absent.log_dir,
        start_pos=None,
        end_pos=None,
        kind=str(VerdictKind.MISSING),
        check_id="DIR-8",
        reason=str(absent),
        errno=0,
        base_offset=missing and missing.base_offset,
        last_offset=missing and missing.last_offset,
        missing_offsets=missing and missing.offsets_count,
    )


def _unlisted(problem: AccessError) -> LostRange:
    """Return the line of what was never listed; nothing is known of what is in it."""
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


def _lost_ranges(results: Sequence[PieceResult]) -> Iterator[LostRange]:
    """Give the losses of one directory; neighbouring pieces tell what lies between them."""
    for number, result in enumerate(results):
        place = result.piece.split.place
        for each in result.findings:
            if not each.is_lost:
                continue
            base_offset, last_offset = each.base_offset, each.last_offset
            if base_offset is None:
                base_offset = _end_before(results[:number])
            if last_offset is None:
                last_offset = _start_behind(results[number + 1 :])
            missing = None
            if base_offset is not None and last_offset is not None:
                missing = max(last_offset - base_offset + 1, 0)
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


def _end_before(results: Sequence[PieceResult]) -> int | None:
    ends = (each.end_batch_offset for each in reversed(results))
    known = next((end for end in ends if end is not None), None)
    if known is None and results:
        return results[0].piece.split.place.base_offset
    return known


def _start_behind(results: Sequence[PieceResult]) -> int | None:
    for each in results:
        split = each.piece.split
        start = each.first_batch_offset if split.start_pos else split.place.base_offset
        if start is not None:
            return start - 1
    return None


def _summary(
    directory: DirectoryPlace, results: Sequence[PieceResult], lost: Sequence[LostRange]
) -> ExportSummary:
    counts = [each.counts for each in results]
    given = [each for each in counts if each.first_offset is not None]
    unknown = any(each.missing_offsets is None for each in lost)
    return ExportSummary(
        topic=directory.topic,
        partition=directory.partition if directory.partition >= 0 else None,
        broker=directory.broker,
        records=sum(each.records for each in counts),
        bytes=sum(each.file_bytes for each in results),
        files=sum(each.file_bytes > 0 for each in results),
        first_offset=given[0].first_offset if given else None,
        last_offset=given[-1].last_offset if given else None,
        committed=sum(each.committed + each.unstable_skipped for each in counts),
        aborted=sum(each.aborted + each.aborted_skipped for each in counts),
        open=sum(each.open + each.open_skipped for each in counts),
        skipped=sum(
            each.aborted_skipped + each.open_skipped + each.unstable_skipped for each in counts
        ),
        lost_ranges=len(lost),
        lost_offsets=None if unknown else sum(each.missing_offsets or 0 for each in lost),
        path=directory.directory,
    )
