"""A run of `eoctl loss`: the survey, what is said at the end, and the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import eoctl.arrow_files  # noqa: F401 - for URIs
from eoctl.progress import Progress
from recovery.duplicates.spill import spill_space
from recovery.export.lost import lost_offsets_count
from recovery.loss.rows import LossKind, LossRow, LossSummary
from recovery.loss.survey import LossSurvey
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.changes.journals.losses import JournalLoss

MEMORY_BYTES = 256 << 20
VERIFIED = "verified: headers and checksums of all batches, and that their content decodes"


class LossRun:
    """One survey, and what came of it.

    Attributes:
        notes: sentences for the end, complete when the rows are through.
        counts: rows by kind, so far.
    """

    name = "loss"
    columns = LossRow._fields
    summary_columns = LossSummary._fields
    kinds = tuple(LossKind)

    def __init__(self, paths: Sequence[str], *, limit: int | None, spill_dir: str | None) -> None:
        self._progress = Progress("reading")
        space = spill_space(spill_dir, MEMORY_BYTES)
        self._survey = LossSurvey(paths, space, on_bytes=self._progress.advance)
        self._progress.total_bytes = self._survey.total_bytes
        self._limit = limit
        self.counts = dict.fromkeys(LossKind, 0)
        self.notes: list[str] = [VERIFIED]

    def rows(self) -> Iterator[LossRow]:
        """Give the rows that are wanted; all are counted."""
        with self._progress:
            for each in self._survey.rows():
                self.counts[each.kind] += 1
                if self._limit is None or self.counts[each.kind] <= self._limit:
                    yield each
        self.notes += dict.fromkeys(self._survey.notes)
        left = sum(self.counts.values()) - sum(
            count if self._limit is None else min(count, self._limit)
            for count in self.counts.values()
        )
        if left:
            self.notes.append(f"{left} more such rows are counted and not printed (--limit)")

    @property
    def summaries(self) -> list[LossSummary]:
        """Return a row per partition directory, those with losses first."""
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
        """Return those of which there is something to tell."""
        return [each for each in self.summaries if _is_concerned(each)]

    def answer(self) -> list[str]:
        """Return a line for each kind of row, and for each change that has lost something."""
        found = self._survey.summaries
        changes = self._survey.by_changes
        lines = [f"lost: {self._lost_words()}"] if self._survey.lost or not changes else []
        lines += [f"lost: {each}" for each in told_of_changes(changes)]
        unknown = sum(each.unknown_records for each in found)
        if unknown:
            rows = self.counts[LossKind.UNKNOWN]
            lines.append(
                f"unknown outcome: {_number(unknown)} records in {_number(rows)} transactions"
            )
        if rows := self.counts[LossKind.SUSPECTED]:
            records = _number(self._survey.suspected_records)
            gaps = f"{_number(rows)} gaps in the sequences of producers"
            lines.append(f"suspected: {records} records that no batch has, by {gaps}")
        repeats = [each.duplicate_records for each in found if each.duplicate_records != 0]
        known = [each for each in repeats if each is not None]
        twice = _number(sum(known)) + (" at least" if len(known) != len(repeats) else "")
        rows = self.counts[LossKind.DUPLICATE]
        lines.append(
            f"there twice: {f'{twice} records in {rows} batches' if rows else 'nothing proved'}"
        )
        aborted = sum(each.aborted_records for each in found)
        transactions = sum(each.aborted_transactions for each in found)
        words = f"{_number(aborted)} records in {_number(transactions)} transactions"
        lines.append(f"aborted: {words if aborted else 'nothing'}")
        return lines

    def _lost_words(self) -> str:
        lost = self._survey.lost
        if not lost:
            count = len(self._survey.summaries)
            more = "; a part could not be read" if self._survey.is_short else ""
            return f"nothing, in {_number(count)} partition{'s' * (count != 1)}{more}"
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
        """Exit status, as far as it is known."""
        if self._survey.is_lost:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self._survey.is_short else EXIT_OK


def told_of_changes(changes: Sequence[JournalLoss]) -> Iterator[str]:
    """Tell what each change took from all partitions together, as its own last lines did."""
    by_journal: dict[str, JournalLoss] = {}
    for each in changes:
        known = by_journal.get(each.journal)
        lost = each.lost if known is None else known.lost.plus(each.lost)
        by_journal[each.journal] = each._replace(lost=lost)
    yield from (each.told for each in by_journal.values())


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
