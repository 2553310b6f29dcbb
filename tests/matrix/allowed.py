"""Differences between readers that are meant, each with its reason.

A row that nothing needs any more fails the test of its faults.
"""

from __future__ import annotations

from typing import NamedTuple


class Allowed(NamedTuple):
    """Contradictions of these kinds, by these readers, under these faults; all of them occur."""

    faults: tuple[str, ...]
    kinds: tuple[str, ...]
    readers: tuple[str, ...]
    why: str


_CLEAN_TAILS = (
    "cut-last-batch-after-clean-stop",
    "few-bytes-after-clean-stop",
    "torn-tail-after-clean-stop",
    "zero-tail-after-clean-stop",
)
_CLIENTS = ("consume", "consume --skip-corrupt", "export", "duplicates", "producers")

ALLOWED = (
    Allowed(
        (*_CLEAN_TAILS, "torn-tail-after-crash"),
        ("silence",),
        _CLIENTS,
        "a torn tail is where the log ends for who reads records",
    ),
    Allowed(
        _CLEAN_TAILS,
        ("false green",),
        (*_CLIENTS, "spark-audit"),
        "they do not look at how the broker was stopped",
    ),
    Allowed(
        ("short-marker", "unknown-control-type"),
        ("silence", "false green"),
        ("export",),
        "a client goes by the key of a marker, and passes over a type that it does not know (what"
        " export says is that contents decode); only a broker does not load the log",
    ),
)


def allowed_in(fault: str) -> set[tuple[str, str]]:
    """(kind, reader) of all that is meant under a fault."""
    return {
        (kind, reader)
        for each in ALLOWED
        if fault in each.faults
        for kind in each.kinds
        for reader in each.readers
    }
