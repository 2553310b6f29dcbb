"""A rule, and a finding: a broken rule with its place and its severity."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Rule(NamedTuple):
    """A statement that holds for a log, or a broker's behaviour. Build it by name.

    Attributes:
        check_id: its name, such as BAT-1.
        title: the statement.
        kafka: the classes of Kafka that cause it.
        test: the test file of this project that shows it, by the last two parts of its path, or by
            one.
        severity: of a broken rule, unless a check sets another. None for a broker's behaviour,
            which no finding breaks.
        broker: a broker's usual reaction to a broken rule.
        command: the command that fixes it, {} for the directory. "" if no command does.
        fix: what else to do, in words.
        excuse: when it is no finding, or a finding of another severity.
        is_normal_when_compacted: compaction breaks it as a normal effect.
        stops_start: if a start is refused because of the file, this is the reason.
        at_start: what the next start does in any case, {} for the log end.
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
        """The family in its name: BAT."""
        return self.check_id.partition("-")[0]

    @property
    def number(self) -> tuple[int, str]:
        """The sort key within its family."""
        digits = re.search(r"\d+", self.check_id)
        return (int(digits[0]), self.check_id) if digits else (0, self.check_id)


# -- findings: broken rules, each with its place, its severity, and the broker's reaction.
#
# The ids are in `recovery.rules.catalogue`, with the severity of each. A check sets another
# severity if the circumstances require it. Normal states of a directory (stopped cleanly, crashed,
# in use) are no findings.


class Severity(StrEnum):
    """The severity of a broken rule.

    ERROR: data is lost, or a broker will misbehave or not start. WARNING: no healthy broker writes
    that, or a person has to judge. NOTE: worth knowing, and harmless.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """The rank of the severity, higher if more severe."""
        return _RANKS[self]


_RANKS = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class Finding(NamedTuple):
    """A broken rule. Positions are half open, in bytes. Offsets are inclusive. None is unknown.

    Attributes:
        check_id: the rule, such as BAT-1.
        topic, partition: from the directory's name. "" and None for a log dir.
        path: of the file, or the directory.
        start_pos, end_pos: the wrong bytes of the file. None: the whole file.
        base_offset, last_offset: the affected offsets of the log.
        expected, found: what the rule requires and what is on disk, as short text. "" if `message`
            says everything.
        broker_action: what a broker does about it at its next start, "" if unknown.
        fix: the command that fixes it, or a sentence if no command does. "": see the rule.
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
        """The number of affected offsets. None if unknown."""
        if self.base_offset is None or self.last_offset is None:
            return None
        return self.last_offset - self.base_offset + 1
