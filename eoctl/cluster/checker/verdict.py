"""What a check comes to: findings with their witnesses, and what could not be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.checker.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.file_names import TopicPartition

MAX_OF_A_KIND = 1000


class HistoryFinding(NamedTuple):
    """Something that must not be.

    Attributes:
        line: of the history that shows it, the last of `witness`; 0: the directories alone do.
        witness: lines of the history that together show it, in order.
    """

    kind: str
    partition: str
    offset: int
    value: str
    words: str
    line: int
    witness: tuple[WitnessLine, ...] = ()


class WitnessLine(NamedTuple):
    """A line of a history, in plain English."""

    history: str
    line: int
    words: str


class HistoryProblem(NamedTuple):
    """A line of a history that cannot be judged, or not be relied on."""

    history: str
    line: int
    why: str


class FoundLine(NamedTuple):
    """A finding whose values are known by their hashes, and whose lines by their numbers only.

    Attributes:
        lines: numbers over all histories.
        hash: of the value.
        other_hash: of the value that it is held against.
        details: what its words need.
    """

    kind: str
    partition: str
    offset: int
    lines: tuple[int, ...]
    hash: int | None = None
    other_hash: int | None = None
    details: tuple[int | str, ...] = ()


class FoundLines:
    """Gathers findings; counts all of them, and keeps the first of each kind."""

    def __init__(self) -> None:
        self.kept: list[FoundLine] = []
        self.counts: dict[str, int] = {}

    def add(
        self,
        kind: str,
        partition: str,
        offset: int,
        lines: Iterable[int],
        *,
        hash: int | None = None,  # noqa: A002 - what it is
        other_hash: int | None = None,
        details: tuple[int | str, ...] = (),
    ) -> None:
        """Take note of a finding, as `FoundLine`; a line 0 is none."""
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if count <= MAX_OF_A_KIND:
            self.kept.append(
                FoundLine(
                    kind=kind,
                    partition=partition,
                    offset=offset,
                    lines=(*sorted({*lines} - {0}),),
                    hash=hash,
                    other_hash=other_hash,
                    details=details,
                )
            )

    def add_more(self, kind: str, count: int) -> None:
        """Count findings that are not kept."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count


class HistoryVerdict(NamedTuple):
    """What histories and directories come to.

    Attributes:
        findings: what is wrong or told of, at most MAX_OF_A_KIND of each kind.
        counts: by kind, all of them.
        problems: lines that were not judged as they should; at most MAX_OF_A_KIND.
        problems_count: all of them.
        torn: histories whose last line has no end.
        sends: by type of line.
        dropped_count: records that a client had no room for, and never sent.
        reads_count: records that were read.
        handled_count: records that consumers have done with, each as often as they did.
        is_healed: no fault is left at the end.
    """

    findings: tuple[HistoryFinding, ...]
    counts: dict[str, int]
    problems: tuple[HistoryProblem, ...]
    problems_count: int
    torn: tuple[str, ...]
    lines_count: int
    sends: dict[str, int]
    dropped_count: int
    reads_count: int
    handled_count: int
    partitions: tuple[TopicPartition, ...]
    replicas_count: int
    is_healed: bool

    @property
    def has_findings(self) -> bool:
        """Whether anything is wrong."""
        return any(RULES[kind].is_finding for kind in self.counts)

    @property
    def is_whole(self) -> bool:
        """Whether all could be judged."""
        return not (self.problems_count or self.torn or self.counts.get("unseen"))
