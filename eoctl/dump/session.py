"""The results of one run over all its files: kafka-dump-log's closing lists and the exit status."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from eoctl import output
from recovery.rules.findings import Severity
from storage.errors import (
    EXIT_ACCESS,
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    CorruptError,
)
from storage.kernels.protocol import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eoctl.dump.selection import DumpOptions
    from storage.errors import EoctlError, FormatError
    from storage.log.segment import LogRecord

Pairs = dict[int, int]
PairList = list[tuple[int, int]]


class DumpSession:
    """The lists that the tool prints after all files, and the counts of problems."""

    def __init__(self, options: DumpOptions) -> None:
        self.options = options
        self.mismatches: dict[str, Pairs] = {}
        self.timestamp_mismatches: dict[str, PairList] = {}
        self.out_of_order_timestamps: dict[str, PairList] = {}
        self.offsets_not_found: dict[str, PairList] = {}
        self.non_consecutive: dict[str, Pairs] = {}
        self.dumped_count = 0
        self.failed_count = 0
        self.invalid_count = 0
        self.unreadable_count = 0
        self._reported_tags: set[tuple[str, int]] = set()

    # -- problems

    def problem(self, error: FormatError) -> None:
        """Report a problem in a file. A note does not change the exit status."""
        from recovery.rules.catalogue import severity_of  # most files never need it

        if severity_of(error.check_id) is not Severity.NOTE:
            self.invalid_count += 1
        output.error(error)

    def tags_of(self, path: str, pos: int, record: LogRecord) -> Callable[[list[int]], None]:
        """Return a function that reports tagged fields that no text shows, each once per file."""

        def report(tags: list[int]) -> None:
            for tag in tags:
                if (path, tag) not in self._reported_tags:
                    self._reported_tags.add((path, tag))
                    message = (
                        f"tagged field {tag} of the record at offset {record.offset} is unknown,"
                        " and not shown"
                    )
                    error = CorruptError(message, check_id="COO-5", pos=pos)
                    self.problem(error.located(path, pos))

        return report

    def failed(self, error: EoctlError) -> None:
        """Report a file that could not be dumped at all."""
        self.failed_count += 1
        output.error(error)

    def missing(self, error: OSError, path: str) -> None:
        """Report a file that cannot be opened."""
        self.failed(AccessError(error, path))

    def verdict(self, path: str, verdict: Verdict, *, is_normal: bool) -> None:
        """Count a scan's verdict, and print it unless it is normal at its place."""
        if verdict.kind is VerdictKind.OK:
            return
        if verdict.kind is VerdictKind.UNREADABLE:
            self.unreadable_count += 1
        elif is_normal:
            return
        else:
            self.invalid_count += 1
        if self.options.is_text:
            output.message(verdict_text(path, verdict))

    @property
    def exit_status(self) -> int:
        """The exit status of the gravest problem."""
        if self.failed_count and not self.dumped_count:
            return EXIT_ACCESS
        if self.failed_count or self.unreadable_count:
            return EXIT_SKIPPED
        return EXIT_FINDINGS if self.invalid_count else EXIT_OK

    # -- kafka-dump-log's closing lists

    def print_lists(self) -> None:
        """Print the lists as the tool does: grouped by file, in the order of a Java HashMap."""
        if not self.options.is_text:
            return
        for path in _java_order(self.mismatches):
            _say(f"Mismatches in :{path}")
            for offset, found in sorted(self.mismatches[path].items(), reverse=True):
                _say(f"  Index offset: {offset}, log offset: {found}")
        for path in _java_order(self.timestamp_mismatches):
            _say(f"Found timestamp mismatch in :{path}")
            for timestamp_ms, found_ms in self.timestamp_mismatches[path]:
                _say(f"  Index timestamp: {timestamp_ms}, log timestamp: {found_ms}")
        for path in _java_order(self.out_of_order_timestamps):
            _say(f"Found out of order timestamp in :{path}")
            for timestamp_ms, before_ms in self.out_of_order_timestamps[path]:
                _say(
                    f"  Index timestamp: {timestamp_ms}, Previously indexed timestamp: {before_ms}"
                )
        for path in _java_order(self.offsets_not_found):
            _say(f"The following indexed offsets are not found in :{path}")
            for offset, found in self.offsets_not_found[path]:
                _say(f"Indexed offset: {offset}, found log offset: {found}")
        for path in _java_order(self.non_consecutive):
            _say(f"Non-consecutive offsets in {path}")
            for before, after in sorted(self.non_consecutive[path].items()):
                _say(f"  {before} is followed by {after}")


def _java_order(lists: Iterable[str]) -> list[str]:
    """Return these file names in the order of a java.util.HashMap."""
    names = list(lists)
    if not names:
        return names
    from storage.producers.java_hash_map import hash_map_order, string_hash

    return hash_map_order(names, string_hash)


def _say(text: str) -> None:
    output.write_stderr(text)


def absolute_path(path: str) -> str:
    """Return the path of java.io.File.getAbsolutePath: not resolved, not normalised."""
    return path if path.startswith("/") else f"{os.getcwd().rstrip('/')}/{path}"  # noqa: PTH109


def verdict_text(path: str, verdict: Verdict) -> str:
    """Return the message for people about a damaged stretch of a file."""
    rule = f" [{verdict.check_id}]" if verdict.check_id else ""
    place = f"{path}: position {verdict.start_pos}..{verdict.end_pos}"
    return f"eoctl: {place}: {verdict.kind.replace('_', ' ')}: {verdict.reason}{rule}"


def verdict_row(path: str, verdict: Verdict, **fields: Any) -> dict[str, Any]:
    """Build the row that ends each file in jsonl and msgpack."""
    return {
        "kind": "verdict",
        "path": path,
        "verdict": str(verdict.kind),
        "start_pos": verdict.start_pos,
        "end_pos": verdict.end_pos,
        "check_id": verdict.check_id or None,
        "reason": verdict.reason or None,
        **fields,
    }
