"""`eoctl duplicates`: duplicate records, proved by sequences or suspected by content."""

from __future__ import annotations

import os
from collections import Counter
from enum import StrEnum
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from eoctl.messages import UNREAD, Said, is_for_people, notes_in_use, report_answer
from eoctl.options import Output, Paths, ServerProperties, Topics, given_paths
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option, option, output_option, records_option
from recovery.cluster.placement import doubts_around
from recovery.duplicates.groups import DuplicateGroup, RecordFinder, groups_of
from recovery.duplicates.search import DuplicateSearch
from recovery.duplicates.spill import DuplicateCause, DuplicateKind
from recovery.rules.findings import Severity
from recovery.transactions.isolation import Isolation
from storage.counts import counted
from storage.errors import EXIT_ACCESS, EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.duplicates.search import DuplicateOptions
    from recovery.duplicates.spill import Duplicate, SpillSpace
    from storage.dirs.discovery import Discovery, Selected


T = TypeVar("T")

MIB = 1 << 20
NULL = "null"
TERMINAL_GROUPS = 20  # without --limit
TERMINAL_COPIES = 2  # offsets, and sessions
TERMINAL_BYTES = 12  # characters of a key, and of a value


class KindChoice(StrEnum):
    """The values of `--kind`."""

    ALL = "all"
    PROVED = "proved"
    SUSPECTED = "suspected"


PAIR_ANSWERS = (
    "kind", "cause", *PLACE, "first_base_offset", "first_last_offset", "repeat_base_offset",
    "repeat_last_offset",
)  # fmt: skip
GROUP_ANSWERS = ("kind", "causes", *PLACE, "copies_count", "key", "offsets", "sessions")


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    kind: Annotated[KindChoice, option(help="Kind of duplicates to find.")] = KindChoice.ALL,
    window: Annotated[
        str,
        option(metavar="DURATION", help="Largest time between suspected duplicates: 30s, 5m, 1h."),
    ] = "10m",
    record_id: Annotated[
        str | None,
        option(
            "--id",
            metavar="key|header:NAME",
            help="Compare keys, or a header, instead of whole records.",
        ),
    ] = None,
    min_bytes: Annotated[
        int, records_option(min=0, metavar="N", help="Ignore contents (or ids) smaller than this.")
    ] = 1,
    across_partitions: Annotated[
        bool,
        option("--across-partitions", help="Compare across the partitions of a topic."),
    ] = False,
    isolation: Annotated[
        Isolation, records_option(help="Look at all batches, or only at committed ones.")
    ] = Isolation.READ_UNCOMMITTED,
    grouped: Annotated[
        bool, option("--grouped", help="One row for all copies, as in a table.")
    ] = False,
    limit: Annotated[
        int | None, output_option(min=0, metavar="N", help="Print at most N rows. All are counted.")
    ] = None,
    fail_on: Annotated[
        Severity,
        output_option(help="Exit with 1 for proved (warning) or also for suspected (note) ones."),
    ] = Severity.WARNING,
    spill_dir: Annotated[
        str | None,
        advanced_option(metavar="DIR", help="Directory for what does not fit into memory."),
    ] = None,
    memory: Annotated[int, advanced_option(min=1, metavar="MIB", help="Memory for rows.")] = 256,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Find duplicates: proved ones by sequence numbers, suspected ones by their content.

    Proved: two batches of one producer id and epoch share sequences, at different offsets.
    Suspected: two records say the same within the window, and no session kept retries out.
    """
    from eoctl.clock import parse_duration_ms
    from eoctl.output import draws_tables, while_read
    from recovery.duplicates.record_digests import parse_record_id
    from recovery.duplicates.search import DuplicateOptions
    from recovery.duplicates.spill import DuplicateKind, spill_space
    from storage.dirs.discovery import discover

    kinds = frozenset(DuplicateKind) if kind is KindChoice.ALL else {DuplicateKind(kind.value)}
    if DuplicateKind.SUSPECTED not in kinds and (across_partitions or record_id is not None):
        raise UsageError("--id and --across-partitions look for suspected ones, not --kind proved")
    is_drawn = output is OutputFormat.TEXT and draws_tables()
    is_grouped = is_drawn or grouped
    options = DuplicateOptions(
        kinds=frozenset(kinds),
        window_ms=parse_duration_ms(window),
        record_id=None if record_id is None else parse_record_id(record_id),
        min_bytes=min_bytes,
        is_across_partitions=across_partitions,
        is_committed_only=isolation is Isolation.READ_COMMITTED,
        is_by_group=is_grouped,
    )
    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl duplicates PATH...")
    space = spill_space(spill_dir, memory * MIB)
    run = DuplicatesRun(discover(wanted), wanted, options, space, limit=limit, fail_on=fail_on)
    with while_read(lambda: run.status, is_verdict=True):
        if is_drawn:
            _draw_groups(run, TERMINAL_GROUPS if limit is None else limit, output)
            return run.status
        if is_grouped:
            _report_groups(run, output)
        else:
            _report_pairs(run, output)
        report_answer(run.answer(), output)
    return run.status


def _report_pairs(run: DuplicatesRun, output: OutputFormat) -> None:
    from eoctl.output import Report, emit
    from recovery.duplicates.spill import Duplicate

    columns = Columns(Duplicate._fields, answers=PAIR_ANSWERS)
    emit(Report("duplicate", columns, run.rows(), notes=run.notes), output)


def _report_groups(run: DuplicatesRun, output: OutputFormat) -> None:
    from eoctl.output import Report, emit
    from recovery.duplicates.groups import DuplicateGroup

    found = run.groups()
    rows = map(_worded, found) if output is OutputFormat.TEXT else found
    columns = Columns(DuplicateGroup._fields, answers=GROUP_ANSWERS)
    emit(Report(kind="duplicate-group", columns=columns, rows=rows, notes=run.notes), output)


def _draw_groups(run: DuplicatesRun, count: int, output: OutputFormat) -> None:
    """Print the largest groups, because a terminal has no room for a million rows."""
    from eoctl.output import Report, emit, line, message
    from recovery.duplicates.groups import DuplicateGroup

    rows = [_drawn(each) for each in run.largest_groups(count)]
    report_answer(run.answer(), output)
    if not rows:
        for note in run.notes:
            message(note)
        return
    if is_for_people(output):
        line("")
    columns = Columns(DuplicateGroup._fields, answers=GROUP_ANSWERS)
    report = Report(kind="duplicate-group", columns=columns, rows=rows, notes=run.notes)
    emit(report, OutputFormat.TEXT)


def _worded(group: DuplicateGroup, most: int | None = None) -> tuple[Any, ...]:
    """Return a row of text. A key or value can be shown as null only if the payload is known."""
    from eoctl.console.columns import row_as_text

    if group.is_same_payload is not None:
        null = NULL.encode()
        group = group._replace(
            key=null if group.key is None else group.key,
            value=null if group.value is None else group.value,
        )
    return row_as_text(group, most)


def _drawn(group: DuplicateGroup) -> tuple[Any, ...]:
    """Return a row for a terminal, with long values shortened."""
    return _worded(
        group._replace(offsets=_short(group.offsets), sessions=_short(group.sessions)),
        TERMINAL_BYTES,
    )


def _short(values: tuple[T, ...]) -> tuple[T | str, ...]:
    return values if len(values) <= TERMINAL_COPIES else (*values[:TERMINAL_COPIES], "...")


# -- a run of `eoctl duplicates`: the search, the notes, and the exit status


SEVERITIES = {DuplicateKind.PROVED: Severity.WARNING, DuplicateKind.SUSPECTED: Severity.NOTE}
_GRAVE_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)

_CAUSES = {
    DuplicateCause.RETRY: "a retry that the broker let through",
    DuplicateCause.SESSION: "another producer session: another process, or a restart",
    DuplicateCause.UNKNOWN: "unknown, a copy was written without idempotence",
}
VERIFIED = "verified: headers and checksums of all batches"
DECODED = "verified: headers and checksums of all batches, records of the compared batches"


class DuplicatesRun:
    """One search and its results.

    Attributes:
        notes: sentences for the end, complete after the last row.
    """

    def __init__(
        self,
        found: Discovery,
        wanted: Iterable[str],
        options: DuplicateOptions,
        space: SpillSpace,
        *,
        limit: int | None,
        fail_on: Severity,
    ) -> None:
        self._found = found
        self._requested = {_directory_of(each) for each in wanted}
        self._options = options
        self._space = space
        self._limit = limit
        self._fail_on = fail_on
        is_decoded = DuplicateKind.SUSPECTED in options.kinds
        doubts = doubts_around(found.whole)
        self.notes: list[str] = [DECODED if is_decoded else VERIFIED, *map(str, found.problems)]
        self.notes += (*doubts, *notes_in_use(found.log_dirs))
        # Directories that are no partitions to a broker may contain records, too, which are not
        # read.
        self._is_skipped = bool(found.problems or doubts)
        self._is_all_skipped = False
        self._counts = dict.fromkeys(DuplicateKind, 0)
        self._repeats: Counter[DuplicateCause] = Counter()  # batches, or records
        self._records: Counter[DuplicateCause] = Counter()

    def rows(self) -> Iterator[Duplicate]:
        """Search and yield the duplicates. AccessError: temporary files cannot be written."""
        yield from self._searched(self._limit)
        count = sum(self._counts.values())
        if self._limit is not None and self._limit < count:
            self.notes.append(f"{self._limit} of them are printed (--limit)")

    def groups(self) -> Iterator[DuplicateGroup]:
        """Search and yield a row for all copies of a batch or record. Raises as `rows`."""
        count = 0
        for each in groups_of(self._searched(None), RecordFinder()):
            count += 1
            if self._limit is None or count <= self._limit:
                yield each
        if self._limit is not None and self._limit < count:
            self.notes.append(f"{self._limit} of {count} groups are printed (--limit)")

    def largest_groups(self, count: int) -> list[DuplicateGroup]:
        """Search and return the groups with most copies, proved groups first. Raises as `rows`."""
        found = 0

        def counted() -> Iterator[DuplicateGroup]:
            nonlocal found
            for each in groups_of(self._searched(None), RecordFinder()):
                found += 1
                yield each

        largest = nsmallest(count, counted(), key=_weight)
        if found > len(largest):
            self.notes.append(
                f"{len(largest)} of {found} groups are printed, those with most copies (--limit)"
            )
        return largest

    def _searched(self, limit: int | None) -> Iterator[Duplicate]:
        from eoctl.progress import Progress, log_bytes

        with Progress("reading", lambda: log_bytes(self._found.selected)) as progress:
            search = DuplicateSearch(
                self._found.selected,
                self._options,
                self._space,
                requested=self._is_requested,
                on_bytes=progress.advance,
            )
            self._counts = search.counts
            for each in search.duplicates(limit):
                self._repeats[each.cause] += 1
                self._records[each.cause] += each.records_count or 0
                yield each
        self._is_all_skipped = search.is_skipped and not search.opened_count
        self._is_skipped = self._is_skipped or search.is_skipped or search.is_short
        self.notes += search.notes
        counts = [f"{count} {kind}" for kind, count in search.counts.items()]
        self.notes.append(f"duplicates: {', '.join(counts)}")

    def answer(self) -> Iterator[Said]:
        """Yield the number of duplicate records, and their producers."""
        total = sum(self._counts.values())
        unread = UNREAD if self._is_skipped else ""
        if not total:
            yield Said("Found", f"no duplicate records{unread}", int(bool(unread)))
            return
        if sum(self._repeats.values()) < total:  # with --limit the others are only counted
            for kind, found in self._counts.items():
                noun = "batch" if kind is DuplicateKind.PROVED else "record"
                if found:
                    plural = f"{kind} duplicate {noun}{'es' if noun == 'batch' else 's'}"
                    words = counted(found, f"{kind} duplicate {noun}", plural)
                    yield Said("Found", f"{words}{unread}", Severity.WARNING.rank)
            return
        count = counted(sum(self._records.values()), "duplicate record")
        words = f"{count}, the first copies not included{unread}"
        yield Said("Found", words, Severity.WARNING.rank)
        for cause, words in _CAUSES.items():
            if self._repeats[cause]:
                yield Said("Cause", f"{counted(self._records[cause], 'record')}: {words}")

    @property
    def status(self) -> int:
        """The exit status after the last row."""
        grave = _GRAVE_FIRST[: _GRAVE_FIRST.index(self._fail_on) + 1]
        if any(count and SEVERITIES[kind] in grave for kind, count in self._counts.items()):
            return EXIT_FINDINGS
        if self._is_all_skipped:
            return EXIT_ACCESS
        return EXIT_SKIPPED if self._is_skipped else EXIT_OK

    def _is_requested(self, selected: Selected) -> bool:
        return os.path.realpath(selected.partition.path) in self._requested


def _weight(group: DuplicateGroup) -> tuple[int, int, str, int, int]:
    kind = [*DuplicateKind].index(group.kind)
    partition = -1 if group.partition is None else group.partition
    return kind, -group.copies_count, group.topic, partition, group.base_offset


def _directory_of(path: str) -> str:
    """Return the real path of a directory, or of the directory of a file."""
    return os.path.realpath(path if Path(path).is_dir() else Path(path).parent)
