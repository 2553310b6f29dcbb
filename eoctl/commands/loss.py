"""`eoctl loss`: which records are lost, duplicated or aborted, and how two copies differ."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import eoctl.arrow_files  # noqa: F401 - for URIs
from eoctl.declared import advanced_option, option
from eoctl.messages import Said, counted, is_for_people, tell_answer
from eoctl.options import TERMINAL_ROWS, Limit, Output, Paths, ServerProperties, Topics, given_paths
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.progress import Progress
from recovery.changes.journals.journal import has_journal, read_journal
from recovery.changes.journals.losses import losses_of
from recovery.duplicates.spill import spill_space
from recovery.export.lost import lost_offsets_count
from recovery.loss.against import AgainstSurvey, key_of, side_before, touched_of
from recovery.loss.rows import ChangeKind, ChangeRow, ChangeSummary, LossKind, LossRow, LossSummary
from recovery.loss.sides import side_of, total_bytes
from recovery.loss.survey import LossSurvey
from recovery.rules.findings import Severity
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from recovery.changes.journals.losses import JournalLoss
    from recovery.loss.sides import Side


TERMINAL_KEY = 16  # characters of a key


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    against: Annotated[
        str | None,
        option(metavar="DIR|JOURNAL", help="Another copy, or before a change: by record."),
    ] = None,
    limit: Limit = None,
    spill_dir: Annotated[
        str | None,
        advanced_option(metavar="DIR", help="Directory for what does not fit into memory."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show which records are lost, duplicated or aborted: offsets, times, producers, keys.

    Lost is what was acknowledged, or lies in damaged bytes, and cannot be read; what lies below
    the log start is not. With --against: the records that are gone, new or changed.
    """
    from eoctl.output import draws_tables, while_read

    # Of what is compared, a partition may be in the other one only.
    wanted = given_paths(paths, server_properties, topic if against is None else None)
    if not wanted and against is None:
        raise UsageError("no PATH given", next_step="eoctl loss PATH...")
    is_drawn = output is OutputFormat.TEXT and draws_tables()
    has_all = limit is not None
    if limit is None and is_drawn:
        limit = TERMINAL_ROWS
    run: LossRun | AgainstRun
    if against is None:
        run = LossRun(wanted, limit=limit, spill_dir=spill_dir)
    else:
        run = AgainstRun(wanted, against, limit=limit, topics=topic or ())
    with while_read(lambda: run.status, is_verdict=True):
        if is_drawn:
            _draw(run, has_all=has_all)
        else:
            _stream(run, output)
    return run.status


def _draw(run: LossRun | AgainstRun, *, has_all: bool) -> None:
    """On a terminal the answer comes first; `has_all`: aborted transactions are listed, too."""
    from eoctl.face.columns import row_as_text
    from eoctl.output import Report, emit, line, message

    rows: list[LossRow | ChangeRow] = sorted(
        run.rows(), key=lambda each: [*map(str, run.kinds)].index(str(each.kind))
    )
    tell_answer(run.answer(), OutputFormat.TEXT)
    # Aborted transactions are normal traffic: on a terminal they are counted above.
    listed = [
        row_as_text(each, TERMINAL_KEY) for each in rows if has_all or each.kind != LossKind.ABORTED
    ]
    for name, columns, drawn in (
        (run.name, run.columns, listed),
        ("partition", run.summary_columns, run.concerned),
    ):
        if drawn:
            if is_for_people(OutputFormat.TEXT):
                line("")
            report = Report(kind=name, columns=columns, rows=drawn)
            emit(report, OutputFormat.TEXT)
    for note in run.notes:
        message(note)


def _stream(run: LossRun | AgainstRun, output: OutputFormat) -> None:
    """Rows as they are found, then what they come to."""
    from eoctl.face.columns import row_as_text
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
    tell_answer(run.answer(), output)


# -- a run of `eoctl loss`: the survey, what is said at the end, and the exit status


MEMORY_BYTES = 256 << 20
VERIFIED = "verified: headers and checksums of all batches, and that their content decodes"


class LossRun:
    """One survey, and what came of it.

    Attributes:
        notes: sentences for the end, complete when the rows are through.
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

    def answer(self) -> Iterator[Said]:
        """Say what is lost, what of it each change has taken, and what else is missing or there."""
        found = self._survey.summaries
        changes = self._survey.by_changes
        if self._survey.lost or not changes:
            yield Said("Lost", self._lost_words(), Severity.ERROR.rank if self._survey.lost else 0)
        for each in told_of_changes(changes):
            yield Said("Lost", each, Severity.ERROR.rank)
        unknown = sum(each.unknown_records for each in found)
        if unknown:
            transactions = counted(self.counts[LossKind.UNKNOWN], "transaction")
            yield Said(
                "Unknown",
                f"the outcome of {transactions} with {unknown:,} records",
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


# -- a run of `eoctl loss --against`: the comparison, what is said at the end, and the exit status


ALL_COMPARED = "verified: checksums and contents of all batches that were compared"


class AgainstRun:
    """One comparison, and what came of it.

    Attributes:
        notes: sentences for the end, complete when the rows are through.
    """

    name = "change"
    columns = Columns(ChangeRow._fields, answers=("kind", *PLACE, "offset", "key", "differences"))
    summary_columns = Columns(ChangeSummary._fields, answers=(
        *PLACE, "gone", "changed", "new", "equal", "is_whole",
    ))  # fmt: skip
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
        self.notes: list[str] = [ALL_COMPARED, f"compared with {what}"]
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

    def answer(self) -> Iterator[Said]:
        """Say what it comes to."""
        found = self._survey.summaries
        sums = {
            "gone": sum(each.gone for each in found),
            "changed": sum(each.changed for each in found),
            "new": sum(each.new for each in found),
            "equal": sum(each.equal for each in found),
        }
        told = ", ".join(f"{count:,} {name}" for name, count in sums.items())
        more = "; a part could not be read" if self._survey.is_short else ""
        yield Said("Records", f"{told}{more}")
        for each in told_of_changes(self._by_journal):
            yield Said("Lost", each, Severity.ERROR.rank)

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
