"""What may be wrong with a history: the one table that findings, man page and tests go by.

Names are those of Jepsen's test of Redpanda where it has one for the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Family(StrEnum):
    """What a rule looks at; each is a module."""

    SENDS = "sends"
    POLLS = "polls"
    VALUES = "values"
    COMMITS = "commits"
    CONSUMERS = "consumers"
    TRANSACTIONS = "transactions"
    DIRECTORIES = "directories"


class HistoryRule(NamedTuple):
    """One thing that must not be.

    Attributes:
        title: a few words.
        meaning: when it is found.
        is_finding: False: it is told, and is no fault of the cluster.
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
            "A value was acknowledged, or sent with acks=0, and is in no replica after the heal; "
            "without directories: nobody has read it, and a reader has passed over its offset, "
            "been given another value there, or come to an end below it."
        ),
    ),
    HistoryRule(
        name="unseen",
        family=Family.VALUES,
        title="not looked at",
        meaning=(
            "A value was acknowledged, and was not read, nor was anything read behind it: it may "
            "still come. No finding; the exit status is 5."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="precommitted-read",
        family=Family.VALUES,
        title="read, and gone",
        meaning=(
            "A value was read below the high watermark, and is in no replica after the heal, or "
            "the last reader came to an end below it; or it was read as committed before its "
            "transaction was asked to commit."
        ),
    ),
    HistoryRule(
        name="duplicate",
        family=Family.VALUES,
        title="there twice",
        meaning="A value is at two offsets: read, acknowledged, or in a log.",
    ),
    HistoryRule(
        name="inconsistent-offsets",
        family=Family.VALUES,
        title="one offset, two values",
        meaning=(
            "An offset has had two values, told to producers, read, or in replicas after the heal."
        ),
    ),
    HistoryRule(
        name="G1a",
        family=Family.VALUES,
        title="failed or aborted, and there",
        meaning=(
            "A value is there that was told to have failed, or was read as committed though its "
            "transaction was aborted."
        ),
    ),
    HistoryRule(
        name="lost-commit",
        family=Family.COMMITS,
        title="committed, and not given",
        meaning=(
            "A value was told to be committed, or was read as committed, and the last reader of "
            "what is committed was not given it: it waits below it, at a transaction that was told "
            "to have ended or that was read before, or it has passed over it. It may be in all "
            "replicas: its marker is lost, and its transaction is open again, or aborted."
        ),
    ),
    HistoryRule(
        name="nonmonotonic-poll",
        family=Family.POLLS,
        title="read backwards",
        meaning=(
            "A poll begins at or below an offset that the consumer has had, without it having "
            "been moved."
        ),
    ),
    HistoryRule(
        name="int-nonmonotonic-poll",
        family=Family.POLLS,
        title="read backwards within a poll",
        meaning="Offsets within one poll do not rise.",
    ),
    HistoryRule(
        name="poll-skip",
        family=Family.POLLS,
        title="passed over between polls",
        meaning=(
            "A consumer passed over an offset between two polls that holds a value which it had "
            "to be given."
        ),
    ),
    HistoryRule(
        name="int-poll-skip",
        family=Family.POLLS,
        title="passed over within a poll",
        meaning="One poll passed over an offset that holds a value which it had to be given.",
    ),
    HistoryRule(
        name="hw-back",
        family=Family.POLLS,
        title="high watermark went back",
        meaning=(
            "A consumer was told a lower high watermark in the same leader epoch, or, at the end, "
            "one that never came back to what it was."
        ),
    ),
    HistoryRule(
        name="never-handled",
        family=Family.CONSUMERS,
        title="lost for the consumer: committed, and never handled",
        meaning=(
            "A consumer goes on behind a record, as it has committed, and has not handled it: it "
            "ended between the two. No finding: it commits before it handles, and the record is "
            "there."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="handled-twice",
        family=Family.CONSUMERS,
        title="given to the consumer again, and handled twice",
        meaning=(
            "A consumer has handled a record, and again after it was started: it ended before it "
            "had committed. No finding: it commits after it handles, and the record is there once."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="nonmonotonic-send",
        family=Family.SENDS,
        title="sent later, and before",
        meaning=(
            "A process sent a value after another one was acknowledged to it, and it has a lower "
            "offset."
        ),
    ),
    HistoryRule(
        name="two-leaders",
        family=Family.SENDS,
        title="two leaders",
        meaning="Two brokers have acknowledged in one leader epoch.",
    ),
    HistoryRule(
        name="torn-transaction",
        family=Family.TRANSACTIONS,
        title="half a transaction",
        meaning=(
            "Of a transaction that was not aborted one value was read as committed, and another "
            "one is gone."
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
            "Committed transactions have read each other's values, or written behind each other, "
            "in a circle. Kafka does not keep writes apart: no finding."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="G0",
        family=Family.TRANSACTIONS,
        title="a circle of writes",
        meaning=(
            "Committed transactions have written behind each other in a circle. Kafka does not "
            "keep writes apart: no finding."
        ),
        is_finding=False,
    ),
    HistoryRule(
        name="replicas-differ",
        family=Family.DIRECTORIES,
        title="replicas differ",
        meaning=(
            "Two replicas have other batches below the high watermark of both, by offsets, leader "
            "epoch, size and checksum."
        ),
    ),
    HistoryRule(
        name="replica-lags",
        family=Family.DIRECTORIES,
        title="a replica ends too early",
        meaning=(
            "The history says that all is healed, and a replica ends below the high watermark that "
            "a replica has noted, or that the last reader was told after the heal."
        ),
    ),
    HistoryRule(
        name="damaged-replica",
        family=Family.DIRECTORIES,
        title="a replica is damaged",
        meaning="A replica has what eoctl check finds to be an error.",
    ),
)
RULES = {each.name: each for each in _ALL}
