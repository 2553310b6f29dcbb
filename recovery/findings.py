"""What a check finds: broken rules, each with its place, its gravity, and what a broker does then.

The ids are those of the reference's invariants. The severity is the reference's class: C is error,
S is warning, I is note; where it depends on the circumstances a check gives another one. What is
normal in the state of a directory (stopped cleanly, crashed, in use) is no finding.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """The reference's classes: C is error, S is warning, I is note."""

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
        fix: the command that puts it right, "" if none does.
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


# All other rules are errors.
_SEVERITIES = {
    "BAT-5": Severity.WARNING,
    "BAT-6": Severity.WARNING,
    "BAT-9": Severity.WARNING,
    "BAT-10": Severity.WARNING,
    "BAT-11b": Severity.WARNING,
    "BAT-12": Severity.WARNING,  # an error where the marker cannot be read
    "BAT-13": Severity.NOTE,
    "BAT-14": Severity.WARNING,
    "BAT-16": Severity.NOTE,
    "CSD-1": Severity.NOTE,  # the marker's content is lost, the stop was clean all the same
    "DIR-5": Severity.NOTE,
    "DIR-6": Severity.NOTE,
    "DIR-8": Severity.NOTE,
    "EPC-2": Severity.NOTE,
    "EPC-4": Severity.WARNING,
    "EPC-5": Severity.NOTE,
    "IDX-5": Severity.NOTE,
    "IDX-6": Severity.NOTE,
    "KRF-3": Severity.WARNING,
    "KRF-5": Severity.WARNING,
    "OFS-2": Severity.NOTE,
    "OFS-3": Severity.WARNING,
    "OFS-4": Severity.NOTE,
    "OFS-5": Severity.NOTE,
    "OFS-6": Severity.WARNING,
    "PRD-1": Severity.WARNING,
    "PRD-2": Severity.WARNING,
    "PRD-3": Severity.WARNING,
    "PRD-5": Severity.WARNING,
    "SEG-4": Severity.WARNING,
    "SEG-7": Severity.NOTE,
    "SEG-8": Severity.NOTE,
    "SEG-9": Severity.NOTE,
    "SNP-2": Severity.NOTE,
    "SNP-3": Severity.WARNING,
    "SNP-6": Severity.WARNING,
    "TIM-3": Severity.WARNING,
    "TIM-4": Severity.WARNING,
    "TXI-1": Severity.WARNING,
    "TXI-6": Severity.WARNING,
    "TXI-7": Severity.WARNING,
    "TXO-1": Severity.NOTE,  # a warning when no coordinator can be waiting any more
    "TXO-2": Severity.NOTE,
    "TXO-3": Severity.WARNING,
    "TXT-1": Severity.NOTE,  # a broker reads such a text file, and would not have written it so
}


def severity_of(check_id: str) -> Severity:
    """Severity of a broken rule, by its id."""
    return _SEVERITIES.get(check_id, Severity.ERROR)
