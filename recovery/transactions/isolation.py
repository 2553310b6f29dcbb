"""The records that a reader gets, and its source of aborted transactions."""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """The isolation level of a consumer."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class AbortedSource(StrEnum):
    """The source of the list of aborted transactions."""

    LOG = "log"
    TXNINDEX = "txnindex"
