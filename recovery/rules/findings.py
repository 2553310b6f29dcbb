"""What a rule is, and what a check finds: a broken rule with its place and its severity."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Rule(NamedTuple):
    """What holds for a log, or what a broker does; build it by name.

    Attributes:
        check_id: its name, such as BAT-1.
        title: what holds.
        kafka: the classes of Kafka that make it so.
        test: of this project, the file that shows it, by its last one or two names.
        severity: of a broken one, where a check does not say otherwise; None: it says what a
            broker does, and nothing tells of it as broken.
        broker: what a broker does about a broken one, in general.
        command: what puts it right, {} for the directory; "" if no command does.
        fix: what else there is to do, in words.
        excuse: where it is no finding, or one of another severity.
        is_normal_when_compacted: compaction leaves it broken as a matter of course.
        stops_start: where a start is refused because of the file, then because of this.
        at_start: what the next start does whatever becomes of the file, {} for the log end.
    """

    check_id: str
    title: str
    kafka: str
    test: str
    severity: Severity | None = None
    broker: str = ""
    command: str = ""
    fix: str = ""
    excuse: str = ""
    is_normal_when_compacted: bool = False
    stops_start: bool = False
    at_start: str = ""

    @property
    def family(self) -> str:
        """The part of its name that it shares with others: BAT."""
        return self.check_id.partition("-")[0]

    @property
    def number(self) -> tuple[int, str]:
        """What its family is sorted by."""
        digits = re.search(r"\d+", self.check_id)
        return (int(digits[0]), self.check_id) if digits else (0, self.check_id)


# -- what a check finds: broken rules, each with its place, its gravity, and what a broker does
#    then
#
# The ids are those of the book of rules (`recovery.rules.catalogue`), which has the severity of
# each; where it depends on the circumstances a check gives another one. What is normal in the
# state of a directory (stopped cleanly, crashed, in use) is no finding.


class Severity(StrEnum):
    """How grave a broken rule is.

    ERROR: data is lost, or a broker will misbehave or not start. WARNING: no healthy broker writes
    that, or a person has to judge. NOTE: worth knowing, and harmless.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """The greater, the graver."""
        return _RANKS[self]


_RANKS = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class Finding(NamedTuple):
    """A broken rule. Positions are half open, in bytes; offsets are inclusive; None is unknown.

    Attributes:
        check_id: the rule, such as BAT-1.
        topic, partition: as the directory's name says; "" and None for a log dir.
        path: of the file, or the directory.
        start_pos, end_pos: what of the file is wrong; None: the file as a whole.
        base_offset, last_offset: what of the log is concerned.
        expected, found: what the rule demands and what is there, as short text; "" if there is
            nothing more to say than `message`.
        broker_action: what a broker does about it at its next start, "" until that is known.
        fix: the command that puts it right, or a sentence if no command does; "": see the rule.
    """

    check_id: str
    severity: Severity
    path: str
    message: str
    topic: str = ""
    partition: int | None = None
    start_pos: int | None = None
    end_pos: int | None = None
    base_offset: int | None = None
    last_offset: int | None = None
    expected: str = ""
    found: str = ""
    broker_action: str = ""
    fix: str = ""

    @property
    def offsets_count(self) -> int | None:
        """How many offsets it concerns; None if it is not known."""
        if self.base_offset is None or self.last_offset is None:
            return None
        return self.last_offset - self.base_offset + 1
