"""Which records a reader is given, and what it believes about aborted transactions."""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """What a consumer may be given."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class AbortedSource(StrEnum):
    """Where the list of aborted transactions comes from."""

    LOG = "log"
    TXNINDEX = "txnindex"
