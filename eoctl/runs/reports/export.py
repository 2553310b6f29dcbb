"""A run of `eoctl export`: the plan, who does its pieces, what is said, and the exit status."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.progress import Progress
from eoctl.runs.notes import first_of
from recovery.export.files import require_target
from recovery.export.piece import export_piece
from recovery.export.plan import plan_export, run_stability
from recovery.export.run import ExportSummary, run_export
from recovery.pool import reading_bytes
from storage.errors import EXIT_ACCESS, EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, EoctlError
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.runs.reports.engine import EngineRun
    from recovery.export.piece import PieceResult
    from recovery.export.plan import ExportOptions, ExportPiece, ExportPlan, StabilityJob
    from recovery.export.run import ExportResult
    from recovery.transactions.outcomes import Stability
    from storage.places.splits import Split

VERIFIED = "verified: checksums of all batches, and that their content decodes"
# To decode and write a record takes as long as reading so many times its bytes.
EXPORT_COST = 8
# A client of NFS may know of a new file some seconds late.
PATIENCE_S = (0.0, 0.5, 2.0, 5.0)


class NotSharedError(EoctlError):
    """What an executor has written is not where this process would find it."""

    exit_status = EXIT_ACCESS


def require_file(to: str, name: str, file_bytes: int) -> None:
    """Make sure that a file which another machine has written is here.

    Raises:
        NotSharedError: it is not there, or has another size.
    """
    path = Path(to, name)
    found: int | None = None
    for pause in PATIENCE_S:
        time.sleep(pause)
        try:
            found = path.stat().st_size
        except OSError:
            found = None
        if found == file_bytes:
            return
    what = "is not there" if found is None else f"has {found} bytes"
    raise NotSharedError(
        f"{path}: an executor has written {file_bytes} bytes, but here it {what}",
        next_step=f"a DIR that the driver and all executors share under one path, or --engine local"
        f" (executors may have files of their own below {to})",
    )


def _size_of(pieces: Iterable[ExportPiece]) -> int:
    places = {each.split.place.path: each.split.place for each in pieces}
    return sum(each.data_bytes() for each in places.values())


def _headers_bytes(job: StabilityJob) -> int:
    return sum(reading_bytes(each.path, each.file_bytes) for each in job.places)


def _export_cost(split: Split) -> int:
    return EXPORT_COST * reading_bytes(split.place.path, split.end_pos - split.start_pos)


TOO_LARGE = "decompressed data exceeds the limit"


class ExportRun:
    """Plans and exports, and keeps what is said at the end."""

    def __init__(self, options: ExportOptions) -> None:
        self.columns = ExportSummary._fields
        self.notes: list[str] = [VERIFIED]
        self._options = options
        self._result: ExportResult | None = None

    def export(self, paths: list[str], engine: EngineRun, *, resume: bool) -> None:
        """Do all of it."""

        def stabilities(work: list[StabilityJob]) -> list[Stability]:
            found = dict(
                engine.map(
                    run_stability,
                    work,
                    lambda job: job.places[0].directory,
                    _headers_bytes,
                )
            )
            return [found[number] for number in range(len(work))]

        def execute(pieces: Sequence[ExportPiece], options: ExportOptions) -> Iterator[PieceResult]:
            export = partial(export_piece, options=options)
            for _, result in engine.map(
                export,
                pieces,
                lambda piece: piece.split.place.path,
                lambda piece: _export_cost(piece.split),
            ):
                if engine.chosen is not None and engine.chosen.is_spark and result.file_bytes:
                    require_file(options.to, result.piece.name, result.file_bytes)
                yield result

        require_target(self._options.to, [])
        plan = plan_export(paths, self._options, stabilities=stabilities)
        try:
            with Progress("exporting", _size_of(plan.pieces)) as progress:
                self._result = run_export(
                    plan, self._options, execute, resume=resume, on_bytes=progress.advance
                )
        except KeyboardInterrupt as exc:
            exc.add_note("what is finished stays; the same with --resume goes on")
            raise
        if engine.chosen is not None:
            self.notes.append(engine.chosen.why)
        self._note(plan, self._result)

    def _note(self, plan: ExportPlan, result: ExportResult) -> None:
        self.notes += map(str, plan.problems)
        self.notes += plan.notes
        if result.resumed_count:
            self.notes.append(f"{result.resumed_count} pieces were finished already")
        if result.kept_count:
            self.notes.append(
                f"{result.kept_count} files of earlier runs stay whose segments have gone since;"
                " no row counts them"
            )
        told = [
            f"{each.path}: positions {each.start_pos} to {each.end_pos}: {each.kind}: {each.reason}"
            for each in result.lost
            if each.start_pos is not None
        ]
        gone = [
            each.reason if each.reason.startswith(each.path) else f"{each.path}: {each.reason}"
            for each in result.lost
            if each.kind == VerdictKind.MISSING
        ]
        for sentences in (told, gone, list(result.remarks)):
            self.notes += first_of(sentences, "such places")
        if any(TOO_LARGE in each.reason for each in result.lost):
            self.notes.append("--max-batch-bytes N raises the limit; memory is 3 to 7 times that")
        if result.lost:
            self.notes.append(f"all losses are listed in {self._options.to}/_lost.jsonl")

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row per partition directory, by topic, partition and broker."""
        assert self._result is not None
        rows = [tuple(each) for each in self._result.summaries]
        return sorted(rows, key=lambda row: (row[0], row[1] or 0, row[2], row[-1]))

    @property
    def status(self) -> int:
        """Return the exit status."""
        assert self._result is not None
        if self._result.is_corrupt:
            return EXIT_FINDINGS
        if self._result.is_unreadable:
            return EXIT_SKIPPED
        return EXIT_FINDINGS if self._result.has_wrong_end else EXIT_OK
