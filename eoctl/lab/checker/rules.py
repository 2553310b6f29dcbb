"""Rules of a history: the table that findings, the man page and the tests use.

Names come from Jepsen's test of Redpanda if it has a rule for the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.file_names import TopicPartition


class Family(StrEnum):
    """Subject of a rule. Each subject has its own module."""

    SENDS = "sends"
    POLLS = "polls"
    VALUES = "values"
    COMMITS = "commits"
    CONSUMERS = "consumers"
    TRANSACTIONS = "transactions"
    DIRECTORIES = "directories"


class HistoryRule(NamedTuple):
    """An anomaly that eoctl looks for.

    Attributes:
        title: a few words.
        meaning: the condition of a finding.
        is_finding: False if eoctl reports it without a fault of the cluster.
    """

    name: str
    family: Family
    title: str
    meaning: str
    is_finding: bool = True


_ALL = (
    HistoryRule(
        name="lost-write",
        family=Family.VALUES,
        title="reported as written, and gone",
        meaning=(
            "A value was acknowledged, or sent with acks=0, and no replica has it after"
            " the heal. Without directories: no consumer read it, and a consumer "
            "skipped its offset, got another value there, or reached an end below it."
        ),
    ),
    HistoryRule(
        name="unseen",
        family=Family.VALUES,
        title="not looked at",
        meaning=(
            "A value was acknowledged, and no consumer read it or a later value: it may"
            " still come. This is no finding, and the exit status is 5."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="precommitted-read",
        family=Family.VALUES,
        title="read, and gone",
        meaning=(
            "A value was read below the high watermark, and no replica has it after the"
            " heal, or the last consumer ended below it. Also a value that was read as "
            "committed before its transaction requested the commit."
        ),
    ),
    HistoryRule(
        name="duplicate",
        family=Family.VALUES,
        title="there twice",
        meaning=("A value has two offsets: read, acknowledged, or in a log."),
    ),
    HistoryRule(
        name="inconsistent-offsets",
        family=Family.VALUES,
        title="one offset, two values",
        meaning=("An offset had two values: acknowledged, read, or in replicas after the heal."),
    ),
    HistoryRule(
        name="G1a",
        family=Family.VALUES,
        title="failed or aborted, and there",
        meaning=(
            "A failed value is in a log, or a value of an aborted transaction was read "
            "as committed."
        ),
    ),
    HistoryRule(
        name="lost-commit",
        family=Family.COMMITS,
        title="committed, and not given",
        meaning=(
            "A value was acknowledged as committed, or read as committed, and the last "
            "read_committed consumer did not get it. That consumer either skipped the "
            "value, or stops below it at a transaction that had ended. All replicas may"
            " have the value: its marker is lost, so its transaction is open again or "
            "aborted."
        ),
    ),
    HistoryRule(
        name="nonmonotonic-poll",
        family=Family.POLLS,
        title="read backwards",
        meaning=("A poll begins at or below an offset that the consumer had, without a seek."),
    ),
    HistoryRule(
        name="int-nonmonotonic-poll",
        family=Family.POLLS,
        title="read backwards within a poll",
        meaning=("Offsets within a poll do not increase."),
    ),
    HistoryRule(
        name="poll-skip",
        family=Family.POLLS,
        title="passed over between polls",
        meaning=("Between two polls a consumer skipped an offset whose value it had to get."),
    ),
    HistoryRule(
        name="int-poll-skip",
        family=Family.POLLS,
        title="passed over within a poll",
        meaning=("Within a poll a consumer skipped an offset whose value it had to get."),
    ),
    HistoryRule(
        name="hw-back",
        family=Family.POLLS,
        title="high watermark went back",
        meaning=(
            "A consumer saw a lower high watermark in the same leader epoch, or at the "
            "end a high watermark below an earlier value."
        ),
    ),
    HistoryRule(
        name="never-handled",
        family=Family.CONSUMERS,
        title="lost for the consumer: committed, and never handled",
        meaning=(
            "A consumer continues after a record that it never handled, because it "
            "ended between commit and handling. This is no finding: it commits before "
            "it handles, and the record exists."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="handled-twice",
        family=Family.CONSUMERS,
        title="given to the consumer again, and handled twice",
        meaning=(
            "A restarted consumer handled a record again, because it ended before the "
            "commit. This is no finding: it commits after it handles, and the record "
            "exists once."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="nonmonotonic-send",
        family=Family.SENDS,
        title="sent later, and before",
        meaning=(
            "A process sent a value after an earlier value was acknowledged, and the "
            "later value has the lower offset."
        ),
    ),
    HistoryRule(
        name="two-leaders",
        family=Family.SENDS,
        title="two leaders",
        meaning=("Two brokers acknowledged records in the same leader epoch."),
    ),
    HistoryRule(
        name="torn-transaction",
        family=Family.TRANSACTIONS,
        title="half a transaction",
        meaning=(
            "A value of a transaction that was not aborted was read as committed, and "
            "another value is missing."
        ),
    ),
    HistoryRule(
        name="G1c",
        family=Family.TRANSACTIONS,
        title="each has read the other",
        meaning=(
            "Committed transactions have read each other's values in a circle, as read_committed."
        ),
    ),
    HistoryRule(
        name="G1c-mixed",
        family=Family.TRANSACTIONS,
        title="a circle of reads and writes",
        meaning=(
            "Committed transactions have read each other's values, or written after "
            "each other, in a circle. Kafka does not isolate writes: no finding."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="G0",
        family=Family.TRANSACTIONS,
        title="a circle of writes",
        meaning=(
            "Committed transactions have written after each other in a circle. Kafka "
            "does not isolate writes: no finding."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="replicas-differ",
        family=Family.DIRECTORIES,
        title="replicas differ",
        meaning=(
            "Two replicas have different batches below the high watermark of both, by "
            "offsets, leader epoch, size and checksum."
        ),
    ),
    HistoryRule(
        name="replica-lags",
        family=Family.DIRECTORIES,
        title="a replica ends too early",
        meaning=(
            "The history says that everything is healed, and a replica ends below a "
            "recorded high watermark."
        ),
    ),
    HistoryRule(
        name="damaged-replica",
        family=Family.DIRECTORIES,
        title="a replica is damaged",
        meaning=("eoctl check finds an error in a replica."),
    ),
)
RULES = {each.name: each for each in _ALL}


# -- result of a check: findings with their witnesses, and lines that could not be judged


MAX_OF_A_KIND = 1000


class HistoryFinding(NamedTuple):
    """An anomaly found in a history or in the directories.

    Attributes:
        line: the last line of `witness`, 0 if only the directories show the anomaly.
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
    """A line of a history that eoctl cannot judge or rely on."""

    history: str
    line: int
    why: str


class FoundLine(NamedTuple):
    """A finding with hashes for its values, and numbers for its lines.

    Attributes:
        lines: numbers over all histories.
        hash: of the value.
        other_hash: of the value compared with it.
        details: values for its words.
    """

    kind: str
    partition: str
    offset: int
    lines: tuple[int, ...]
    hash: int | None = None
    other_hash: int | None = None
    details: tuple[int | str, ...] = ()


class FoundLines:
    """Collector of findings. It counts all of them, and keeps the first of each kind."""

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
        """Add a finding, as `FoundLine`. Line 0 means no line."""
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
        """Count findings without keeping them."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count


class HistoryVerdict(NamedTuple):
    """Result of judging histories and directories.

    Attributes:
        findings: findings and remarks, at most MAX_OF_A_KIND of each kind.
        counts: all findings by kind.
        problems: lines that could not be judged, at most MAX_OF_A_KIND.
        problems_count: all such lines.
        torn: histories whose last line has no end.
        sends: by type of line.
        dropped_count: records that a client never sent because its buffer was full.
        reads_count: records that were read.
        handled_count: records that consumers have handled, counted once for each handling.
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
        """True if a finding is a fault of the cluster."""
        return any(RULES[kind].is_finding for kind in self.counts)

    @property
    def is_whole(self) -> bool:
        """True if everything could be judged."""
        return not (self.problems_count or self.torn or self.counts.get("unseen"))
