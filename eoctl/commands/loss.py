"""`eoctl loss`: lost, duplicate and aborted records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import eoctl.arrow_files  # noqa: F401 - for URIs
from eoctl.messages import (
    Said,
    draw_below_answer,
    first_of_each_kind,
    left_out_by_limit,
    report_answer,
)
from eoctl.options import (
    TERMINAL_KEY,
    TERMINAL_ROWS,
    Limit,
    Output,
    Paths,
    ServerProperties,
    Topics,
    given_paths,
)
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option
from eoctl.progress import Progress
from recovery.changes.journals.losses import note_of_changes
from recovery.duplicates.spill import spill_space
from recovery.export.lost import lost_offsets_count
from recovery.loss.rows import LossKind, LossRow, LossSummary
from recovery.loss.survey import LossSurvey
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError, call_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


KINDS = tuple(LossKind)


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    limit: Limit = None,
    spill_dir: Annotated[
        str | None,
        advanced_option(metavar="DIR", help="Directory for what does not fit into memory."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show which records are lost, duplicated or aborted: offsets, times, producers, keys.

    A record is lost if it was acknowledged, or lies in damaged bytes, and cannot be read. Records
    below the log start are not lost. `eoctl diff` compares with another copy, record by record.
    """
    from eoctl.output import draws_tables, while_read

    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl loss PATH...")
    is_drawn = output is OutputFormat.TEXT and draws_tables()
    has_all = limit is not None
    if limit is None and is_drawn:
        limit = TERMINAL_ROWS
    run = LossRun(wanted, limit=limit, spill_dir=spill_dir)
    with while_read(lambda: run.status, is_verdict=True):
        if is_drawn:
            _draw(run, has_all=has_all)
        else:
            _stream(run, output)
    return run.status


def _draw(run: LossRun, *, has_all: bool) -> None:
    """Print the answer first, for a terminal. `has_all`: aborted transactions are listed, too."""
    from eoctl.console.columns import row_as_text
    from eoctl.output import Report

    rows = sorted(run.rows(), key=lambda each: KINDS.index(each.kind))
    report_answer(run.answer(), OutputFormat.TEXT)
    # Aborted transactions are normal: the answer on a terminal counts them.
    listed = [
        row_as_text(each, TERMINAL_KEY) for each in rows if has_all or each.kind != LossKind.ABORTED
    ]
    reports = [
        Report(run.name, run.columns, listed),
        Report("partition", run.summary_columns, run.concerned),
    ]
    draw_below_answer(reports, run.notes)


def _stream(run: LossRun, output: OutputFormat) -> None:
    """Print rows as they are found, then their summary."""
    from eoctl.console.columns import row_as_text
    from eoctl.output import Report, emit, line

    rows = run.rows()
    is_text = output is OutputFormat.TEXT
    emit(Report(run.name, run.columns, map(row_as_text, rows) if is_text else rows), output)
    if is_text:
        line("")
    summaries = Report(
        kind="partition", columns=run.summary_columns, rows=run.summaries, notes=run.notes
    )
    emit(summaries, output)
    report_answer(run.answer(), output)


# -- a run of `eoctl loss`: the survey, the notes, and the exit status


MEMORY_BYTES = 256 << 20
VERIFIED = "verified: headers and checksums of all batches, and that their content decodes"


class LossRun:
    """One survey and its results.

    Attributes:
        notes: sentences for the end, complete after the last row.
        counts: rows by kind, so far.
    """

    name = "loss"
    columns = Columns(LossRow._fields, answers=(
        "kind", *PLACE, "base_offset", "last_offset", "first_key", "producer_id", "check_id",
    ))  # fmt: skip
    summary_columns = Columns(LossSummary._fields, answers=(
        *PLACE, "lost_offsets", "duplicate_records", "aborted_records", "open_records",
        "unknown_records", "records",
    ))  # fmt: skip

    def __init__(self, paths: Sequence[str], *, limit: int | None, spill_dir: str | None) -> None:
        self._progress = Progress("reading")
        space = spill_space(spill_dir, MEMORY_BYTES)
        self._survey = LossSurvey(paths, space, on_bytes=self._progress.advance)
        self._progress.total_bytes = self._survey.total_bytes
        self._limit = limit
        self._paths = tuple(paths)
        self.counts = dict.fromkeys(LossKind, 0)
        self.notes: list[str] = [VERIFIED]

    def rows(self) -> Iterator[LossRow]:
        """Yield the rows within the limit, and count all of them."""
        with self._progress:
            yield from first_of_each_kind(self._survey.rows(), self.counts, self._limit)
        self.notes += dict.fromkeys(self._survey.notes)
        self.notes += left_out_by_limit(self.counts, self._limit)

    @property
    def summaries(self) -> list[LossSummary]:
        """A row per partition directory, directories with losses first."""
        return sorted(
            self._survey.summaries,
            key=lambda each: (
                not each.lost_ranges,
                not each.duplicate_records,
                not each.aborted_records,
                each.topic,
                -1 if each.partition is None else each.partition,
                each.path,
            ),
        )

    @property
    def concerned(self) -> list[LossSummary]:
        """The summaries with lost, duplicate, aborted, open or unknown records."""
        return [each for each in self.summaries if _is_concerned(each)]

    def answer(self) -> Iterator[Said]:
        """Yield the lost records, the losses by change, and other missing or extra records."""
        found = self._survey.summaries
        changes = self._survey.by_changes
        if self._survey.lost or not changes:
            yield Said("Lost", self._lost_words(), Severity.ERROR.rank if self._survey.lost else 0)
        for each in note_of_changes(changes):
            yield Said("Lost", each, Severity.ERROR.rank)
        unknown = sum(each.unknown_records for each in found)
        if unknown:
            transactions = counted(self.counts[LossKind.UNKNOWN], "transaction")
            yield Said(
                "Unknown",
                f"the outcome of {transactions} with {counted(unknown, 'record')}",
                Severity.WARNING.rank,
            )
        if rows := self.counts[LossKind.SUSPECTED]:
            records = counted(self._survey.suspected_records, "record")
            gaps = counted(rows, "gap")
            yield Said(
                "Suspect",
                f"{records} missing by {gaps} in the sequences of producers",
                Severity.WARNING.rank,
            )
        repeats = [each.duplicate_records for each in found if each.duplicate_records != 0]
        known = [each for each in repeats if each is not None]
        least = "at least " if len(known) != len(repeats) else ""
        if rows := self.counts[LossKind.DUPLICATE]:
            records = counted(sum(known), "duplicate record")
            where = f"in {counted(rows, 'batch', 'batches')}"
            yield Said("Repeats", f"{least}{records} {where}", Severity.WARNING.rank)
        else:
            yield Said("Repeats", "no duplicate record is proved")
        aborted = sum(each.aborted_records for each in found)
        transactions = counted(sum(each.aborted_transactions for each in found), "transaction")
        words = f"{counted(aborted, 'record')} in {transactions}"
        yield Said("Aborted", words if aborted else "no record")
        if self._survey.lost:
            yield Said("Next", call_text(["eoctl", "check", *self._paths]))

    def _lost_words(self) -> str:
        lost = self._survey.lost
        if not lost:
            count = len(self._survey.summaries)
            more = "; a part could not be read" if self._survey.is_short else ""
            return f"nothing, in {counted(count, 'partition')}{more}"
        known = lost_offsets_count(lost)
        is_bounded = all(each.missing_offsets is not None for each in lost)
        places = {(each.topic, each.partition) for each in lost}
        where = next(iter(places)) if len(places) == 1 else None
        in_what = f"{len(places)} partitions" if where is None else f"{where[0]}-{where[1]}"
        if len(lost) == 1 and lost[0].base_offset is not None and lost[0].last_offset is not None:
            return (
                f"at most {_number(known)} offsets, {lost[0].base_offset} to"
                f" {lost[0].last_offset}, in {in_what}"
            )
        bound = f"at most {_number(known)}" if is_bounded else f"{_number(known)} or more"
        return f"{bound} offsets in {len(lost)} places of {in_what}"

    @property
    def status(self) -> int:
        """The exit status so far."""
        if self._survey.is_lost:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self._survey.is_short else EXIT_OK


def _is_concerned(found: LossSummary) -> bool:
    return bool(
        found.lost_ranges
        or found.aborted_records
        or found.open_records
        or found.unknown_records
        or found.duplicate_records != 0
    )


def _number(count: int) -> str:
    return f"{count:,}"
