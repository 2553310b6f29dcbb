"""A run of `eoctl duplicates`: the search, what is said at the end, and the exit status."""

from __future__ import annotations

import os
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.runs.notes import notes_in_use
from recovery.cluster.placement import doubts_around
from recovery.duplicates.groups import DuplicateGroup, RecordFinder, groups_of
from recovery.duplicates.search import DuplicateSearch
from recovery.duplicates.spill import DuplicateKind
from recovery.rules.findings import Severity
from storage.errors import EXIT_ACCESS, EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.duplicates.search import DuplicateOptions
    from recovery.duplicates.spill import Duplicate, SpillSpace
    from storage.dirs.discovery import Discovery, Selected

SEVERITIES = {DuplicateKind.PROVED: Severity.WARNING, DuplicateKind.SUSPECTED: Severity.NOTE}
_GRAVE_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)

VERIFIED = "verified: headers and checksums of all batches"
DECODED = "verified: headers and checksums of all batches, records of those that are compared"


class DuplicatesRun:
    """One search, and what came of it.

    Attributes:
        notes: sentences for the end, complete when the rows are through.
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
        self._asked_for = {_directory_of(each) for each in wanted}
        self._options = options
        self._space = space
        self._limit = limit
        self._fail_on = fail_on
        is_decoded = DuplicateKind.SUSPECTED in options.kinds
        doubts = doubts_around(found.whole)
        self.notes: list[str] = [DECODED if is_decoded else VERIFIED, *map(str, found.problems)]
        self.notes += (*doubts, *notes_in_use(found.log_dirs))
        # What is no partition to a broker may hold records, too, that nobody has looked at.
        self._is_skipped = bool(found.problems or doubts)
        self._is_all_skipped = False
        self._counts = dict.fromkeys(DuplicateKind, 0)

    def rows(self) -> Iterator[Duplicate]:
        """Search. Raises AccessError when temporary files cannot be written."""
        yield from self._searched(self._limit)
        count = sum(self._counts.values())
        if self._limit is not None and self._limit < count:
            self.notes.append(f"{self._limit} of them are printed (--limit)")

    def groups(self) -> Iterator[DuplicateGroup]:
        """Search, and give a row for all copies of one batch or record. Raises as `rows`."""
        count = 0
        for each in groups_of(self._searched(None), RecordFinder()):
            count += 1
            if self._limit is None or count <= self._limit:
                yield each
        if self._limit is not None and self._limit < count:
            self.notes.append(f"{self._limit} of {count} groups are printed (--limit)")

    def largest_groups(self, count: int) -> list[DuplicateGroup]:
        """Search, and return the groups with most copies, proved ones first. Raises as `rows`."""
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
                asked_for=self._is_asked_for,
                on_bytes=progress.advance,
            )
            self._counts = search.counts
            yield from search.duplicates(limit)
        self._is_all_skipped = search.is_skipped and not search.opened_count
        self._is_skipped = self._is_skipped or search.is_skipped or search.is_short
        self.notes += search.notes
        counts = [f"{count} {kind}" for kind, count in search.counts.items()]
        self.notes.append(f"duplicates: {', '.join(counts)}")

    @property
    def status(self) -> int:
        """Exit status, when the rows are through."""
        grave = _GRAVE_FIRST[: _GRAVE_FIRST.index(self._fail_on) + 1]
        if any(count and SEVERITIES[kind] in grave for kind, count in self._counts.items()):
            return EXIT_FINDINGS
        if self._is_all_skipped:
            return EXIT_ACCESS
        return EXIT_SKIPPED if self._is_skipped else EXIT_OK

    def _is_asked_for(self, selected: Selected) -> bool:
        return os.path.realpath(selected.partition.path) in self._asked_for


def _weight(group: DuplicateGroup) -> tuple[int, int, str, int, int]:
    kind = [*DuplicateKind].index(group.kind)
    partition = -1 if group.partition is None else group.partition
    return kind, -group.copies_count, group.topic, partition, group.base_offset


def _directory_of(path: str) -> str:
    """Return the real path of a directory, or of the one that a file is in."""
    return os.path.realpath(path if Path(path).is_dir() else Path(path).parent)
