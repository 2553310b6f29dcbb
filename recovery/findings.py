"""How grave a broken rule is; the catalogue of findings for `check` will stand here too."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """The reference's classes: C is error, S is warning, I is note."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


# All other rules that a format can be judged by alone are errors.
_SEVERITIES = {
    "BAT-10": Severity.WARNING,
    "BAT-14": Severity.WARNING,
    "TXI-7": Severity.WARNING,
    "TXT-1": Severity.NOTE,  # a broker reads such a text file, and would not have written it so
    "CSD-1": Severity.NOTE,  # the marker's content is lost, the stop was clean all the same
}


def severity_of(check_id: str) -> Severity:
    """Severity of a broken rule, by its id."""
    return _SEVERITIES.get(check_id, Severity.ERROR)
