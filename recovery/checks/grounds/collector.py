"""Where checks put their findings: all of them are counted, of each kind only so many are kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from recovery.rules.catalogue import severity_of
from recovery.rules.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from storage.errors import FormatError

MAX_KEPT_COUNT = 100  # of one rule in one file


class Collector:
    """Findings of one partition directory, or of one log dir.

    Args:
        topic, partition: of a finding that names none itself.
        topics: findings of other topics are left out; none: of no topic are.

    Attributes:
        kept: in the order they came; at most MAX_KEPT_COUNT of a rule in a file.
        counts: all of them, by rule, path and severity.
    """

    def __init__(
        self, topic: str = "", partition: int | None = None, *, topics: Collection[str] = ()
    ) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, str, Severity]] = Counter()
        self._kept_counts: Counter[tuple[str, str, Severity]] = Counter()
        self._topics = topics
        self._topic = topic
        self._partition = partition

    def add(
        self,
        check_id: str,
        path: str,
        message: str,
        *,
        severity: Severity | None = None,
        count: int = 1,
        **fields: Any,
    ) -> None:
        """Note a broken rule; `fields` are those of Finding, `count` how often it is broken.

        KeyError: the book of rules has no such id.
        """
        topic = fields.get("topic", self._topic)
        if self._topics and topic and topic not in self._topics:
            return
        default = severity_of(check_id)
        severity = default if severity is None else severity
        key = (check_id, path, severity)
        self.counts[key] += count
        self._kept_counts[key] += 1
        if self._kept_counts[key] <= MAX_KEPT_COUNT:
            finding = Finding(
                check_id=check_id,
                severity=severity,
                path=path,
                message=message,
                topic=self._topic,
                partition=self._partition,
            )
            self.kept.append(finding._replace(**fields))

    def add_error(
        self, error: FormatError, *, severity: Severity | None = None, path: str = "", **fields: Any
    ) -> None:
        """Note what a parser raised or listed."""
        self.add(
            error.check_id,
            error.path or path,
            error.message,
            severity=severity,
            start_pos=error.pos,
            expected=error.expected,
            found=error.found,
            **fields,
        )

    def forgive(self, check_ids: frozenset[str]) -> None:
        """Forget all findings of some rules: they turned out to be normal here."""
        self.kept = [each for each in self.kept if each.check_id not in check_ids]
        for key in [key for key in self.counts if key[0] in check_ids]:
            del self.counts[key]

    def soften(self, is_grave: Callable[[Finding], bool]) -> None:
        """Make notes of all findings but the grave ones."""
        stops = {(each.check_id, each.path, each.severity) for each in self.kept if is_grave(each)}
        self.kept = [
            each
            if (each.check_id, each.path, each.severity) in stops
            else each._replace(severity=Severity.NOTE)
            for each in self.kept
        ]
        for key in [key for key in self.counts if key not in stops]:
            self.counts[key[0], key[1], Severity.NOTE] += self.counts.pop(key)

    def severity_counts(self) -> Counter[Severity]:
        """How many findings of each severity there are."""
        found: Counter[Severity] = Counter()
        for (_, _, severity), count in self.counts.items():
            found[severity] += count
        return found
