"""What a copy compares when it has come to its end."""

from __future__ import annotations

from enum import StrEnum


class Compare(StrEnum):
    """How much is compared."""

    RUN = "run"  # what this run has copied
    ALL = "all"  # what the session has, from its beginning on
    NONE = "none"
