"""The run of an export plan: the remaining pieces, and the result of all pieces.

The caller decides how pieces are exported: `execute` takes them, and returns results in any order.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from recovery.export.files import ExportDir, require_target
from recovery.export.lost import lost_absent, lost_of_directory, lost_offsets_count, lost_unlisted
from recovery.export.piece import PieceResult, result_of_entry
from recovery.transactions.outcomes import unknown_in
from storage.dirs.lookup import END_KINDS, is_wrong_end
from storage.errors import AccessError, FormatError
from storage.files.fsio import FileSystem
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from recovery.export.lost import LostRange
    from recovery.export.plan import ExportOptions, ExportPiece, ExportPlan
    from storage.places.listing import DirectoryPlace

    Execute = Callable[[Sequence[ExportPiece], ExportOptions], Iterable[PieceResult]]


class ExportSummary(NamedTuple):
    """The result for one partition directory.

    Attributes:
        topic, partition, broker: of the directory.
        records: in its files. bytes, files: of these files. first_offset, last_offset: of the
            records.
        committed, aborted, open, unknown: numbers of records by outcome, including records that the
            isolation level excludes.
        skipped: records that it excludes, as headers count them.
        lost_ranges: number of unreadable ranges.
        lost_offsets: upper limit of missing offsets. None: unknown.
        lost_records: records of unreadable batches with a correct checksum, as headers count them.
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
    unknown: int
    skipped: int
    lost_ranges: int
    lost_offsets: int | None
    lost_records: int
    path: str


class ExportResult(NamedTuple):
    """The result of an export.

    Attributes:
        summaries: a row per partition directory.
        lost: all unreadable ranges.
        resumed_count: pieces that an earlier run had finished.
        kept_count: files of an earlier run whose segments have been removed since.
        is_corrupt: some data is damaged.
        is_unreadable: the operating system refused access, or data is missing.
        has_wrong_end: a log that was closed has bytes after its last batch.
        remarks: sentences about bad ranges that lost no records.
        decoded_count: values that schemas have decoded.
        undecoded: numbers of values that stay bytes, by reason.
    """

    summaries: tuple[ExportSummary, ...]
    lost: tuple[LostRange, ...]
    resumed_count: int
    kept_count: int
    is_corrupt: bool
    is_unreadable: bool
    has_wrong_end: bool
    remarks: tuple[str, ...]
    decoded_count: int
    undecoded: Counter[str]


def run_export(
    plan: ExportPlan,
    options: ExportOptions,
    execute: Execute,
    *,
    resume: bool = False,
    fs: FileSystem | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ExportResult:
    """Export all unfinished pieces, and write the lists.

    Args:
        plan: from `plan_export`.
        options: of the plan.
        execute: exports pieces.
        resume: continue with the files of the target directory.
        fs: changes files.
        on_bytes: called with the number of source bytes that are done.

    Raises:
        AccessError: a file cannot be written. Finished pieces stay, and are not exported again.
        RefusedError: the target directory cannot be used.
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
    lost = lost_unlisted(plan)
    summaries = []
    for directory in plan.directories:
        own = by_directory.get(directory.directory, [])
        own_lost = lost_of_directory(plan, directory, own)
        lost += own_lost
        summaries.append(_summary(directory, own, own_lost))
    lost += lost_absent(plan)
    findings = [each for result in results for each in result.findings]
    harmless = [
        each
        for each in findings
        if not each.is_lost and not each.is_gone and each.kind not in END_KINDS
    ]
    ends = [
        each
        for result in results
        for each in result.findings
        if is_wrong_end(each.kind, plan.known_of(result.piece.split.place.directory).stopped)
    ]
    unknown = [
        f"{each.path}: {found}"
        for each in summaries
        if each.unknown
        for found in unknown_in(each.path)
    ]
    return ExportResult(
        summaries=tuple(summaries),
        lost=tuple(lost),
        resumed_count=0,
        kept_count=0,
        is_corrupt=any(each.is_corrupt for each in findings)
        or any(isinstance(each, FormatError) for each in plan.problems),
        is_unreadable=any(each.is_unreadable for each in findings)
        or bool(plan.doubts)
        or any(each.kind == VerdictKind.MISSING for each in lost)
        or any(each.unknown for each in summaries)
        or any(isinstance(each, AccessError) for each in plan.problems),
        has_wrong_end=bool(ends),
        remarks=(
            *dict.fromkeys(str(each) for each in findings if each.is_gone),
            *(f"{each.reported}; its records are exported" for each in harmless),
            *(f"{each.reported}; all before it are exported" for each in ends),
            *unknown,
        ),
        decoded_count=sum(each.decoded_count for each in results),
        undecoded=sum((Counter(each.undecoded) for each in results), Counter()),
    )


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
        unknown=sum(each.unknown + each.unknown_skipped for each in counts),
        skipped=sum(
            each.aborted_skipped + each.open_skipped + each.unknown_skipped + each.unstable_skipped
            for each in counts
        ),
        lost_ranges=len(lost),
        lost_offsets=None if unknown else lost_offsets_count(lost),
        lost_records=sum(each.lost_records for each in counts),
        path=directory.directory,
    )
