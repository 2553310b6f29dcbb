"""A run of `eoctl loss --against`: the comparison, what is said at the end, and the exit status."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eoctl.progress import Progress
from eoctl.runs.reports.loss import told_of_changes
from recovery.changes.journals.journal import has_journal, read_journal
from recovery.changes.journals.losses import losses_of
from recovery.loss.against import AgainstSurvey, key_of, side_before, touched_of
from recovery.loss.rows import ChangeKind, ChangeRow, ChangeSummary
from recovery.loss.sides import side_of, total_bytes
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from recovery.changes.journals.losses import JournalLoss
    from recovery.loss.sides import Side

VERIFIED = "verified: checksums and contents of all batches that were compared"


class AgainstRun:
    """One comparison, and what came of it.

    Attributes:
        notes: sentences for the end, complete when the rows are through.
    """

    name = "change"
    columns = ChangeRow._fields
    summary_columns = ChangeSummary._fields
    kinds = tuple(ChangeKind)

    def __init__(
        self,
        paths: Sequence[str],
        against: str,
        *,
        limit: int | None,
        topics: Collection[str] = (),
    ) -> None:
        """List both sides; with topics, only the partitions of these.

        Raises:
            UsageError: there is nothing to compare.
            AccessError, FormatError, RefusedError: one of them cannot be read.
        """
        self._by_journal: list[JournalLoss] = []
        if has_journal(against):
            for log_dir in read_journal(against).log_dirs:
                self._by_journal += losses_of(against, os.path.realpath(log_dir))
            other = side_before(against)
            side = side_of(list(paths) or touched_of(against))
            # What is given and was not touched is the same; what is gone as a whole was below.
            theirs = other.partitions
            mine = {key: own for key, own in side.partitions.items() if key in theirs}
            if paths:
                above = [os.path.abspath(each) for each in paths]  # noqa: PTH100 - links stay
                theirs = {
                    key: own
                    for key, own in theirs.items()
                    if key in mine or any(_is_below(own.path, each) for each in above)
                }
            side = side._replace(partitions=mine)
            other = other._replace(partitions=theirs)
            what = f"before {against} was applied"
        else:
            if not paths:
                raise UsageError("no PATH given", next_step="eoctl loss PATH --against DIR")
            other, side = side_of([against]), side_of(paths)
            other, side = _in_common(other, side, paths), _in_common(side, other, [against])
            _require_two(side, other)
            what = against
        if topics:
            side, other = _of_topics(side, topics), _of_topics(other, topics)
        if not other.partitions and not side.partitions:
            raise UsageError(f"{against}: no partition to compare with")
        self._progress = Progress("comparing", lambda: total_bytes([side, other]))
        self._survey = AgainstSurvey(side, other, on_bytes=self._progress.advance)
        self._limit = limit
        self.counts = dict.fromkeys(ChangeKind, 0)
        self.notes: list[str] = [VERIFIED, f"compared with {what}"]
        keys = self._survey.keys
        self._by_journal = [each for each in self._by_journal if key_of(each.directory) in keys]
        self.notes += (f"{each.directory}: {each.told}" for each in self._by_journal)

    def rows(self) -> Iterator[ChangeRow]:
        """Give the rows that are wanted; all are counted."""
        with self._progress:
            for each in self._survey.rows():
                self.counts[each.kind] += 1
                if self._limit is None or self.counts[each.kind] <= self._limit:
                    yield each
        self.notes += dict.fromkeys(self._survey.notes)
        if self._limit is not None:
            left = sum(max(each - self._limit, 0) for each in self.counts.values())
            if left:
                self.notes.append(f"{left} more such rows are counted and not printed (--limit)")

    @property
    def summaries(self) -> list[ChangeSummary]:
        """Return a row per partition, those that differ first."""
        return sorted(
            self._survey.summaries,
            key=lambda each: (not each.gone, not each.changed, not each.new, each.topic,
                              each.partition),
        )  # fmt: skip

    @property
    def concerned(self) -> list[ChangeSummary]:
        """Return those that differ, or cannot be read whole."""
        return [
            each
            for each in self.summaries
            if each.gone or each.new or each.changed or not each.is_whole
        ]

    def answer(self) -> list[str]:
        """Return what it comes to, in one line."""
        found = self._survey.summaries
        sums = {
            "gone": sum(each.gone for each in found),
            "changed": sum(each.changed for each in found),
            "new": sum(each.new for each in found),
            "equal": sum(each.equal for each in found),
        }
        told = ", ".join(f"{count:,} {name}" for name, count in sums.items())
        more = "; a part could not be read" if self._survey.is_short else ""
        lost = (f"lost: {each}" for each in told_of_changes(self._by_journal))
        return [f"records: {told}{more}", *lost]

    @property
    def status(self) -> int:
        """Exit status, as far as it is known."""
        if self._survey.is_changed or self.counts[ChangeKind.GONE] or self._by_journal:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self._survey.is_short else EXIT_OK


def _in_common(side: Side, other: Side, paths: Sequence[str]) -> Side:
    """Leave out what the other side was not asked for: of partitions nothing else is missing."""
    given = {os.path.realpath(each) for each in paths}
    asked = {os.path.realpath(own.path) for own in other.partitions.values()}
    if not given <= asked:
        return side
    found = {key: own for key, own in side.partitions.items() if key in other.partitions}
    return side._replace(partitions=found)


def _require_two(side: Side, other: Side) -> None:
    """Refuse to hold a directory against itself, which is always the same. Raises UsageError."""
    for key, own in side.partitions.items():
        theirs = other.partitions.get(key)
        if theirs is not None and os.path.realpath(own.path) == os.path.realpath(theirs.path):
            raise UsageError(f"{own.path} and {theirs.path}: the same directory")


def _of_topics(side: Side, topics: Collection[str]) -> Side:
    kept = {key: own for key, own in side.partitions.items() if key[0] in topics}
    absent = tuple(each for each in side.absent if each[0] in topics)
    return side._replace(partitions=kept, absent=absent)


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above.rstrip('/')}/")
