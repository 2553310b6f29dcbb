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


_APPENDED = (
    "batch-repeated",
    "compressed-marker",
    "coordinator-epoch-falls",
    "first-sequences-never-came",
    "marker-of-a-lower-epoch",
    "marker-without-transaction",
    "marker-without-transactional-bit",
    "old-open-transaction",
    "producer-epoch-falls",
    "timestamps-in-other-units",
    "two-markers-in-a-batch",
    "young-open-transaction",
)
# Nothing is foretold of a start that is refused; another one makes these indexes anew.
_METADATA_NOT_STARTED = (
    "bootstrap-checkpoint-without-version",
    "metadata-control-type",
    "metadata-record-cut",
    "metadata-record-frame",
    "metadata-snapshot-named-by-hand",
    "metadata-snapshot-without-footer",
    "metadata-snapshot-without-header",
    "metadata-transaction-begins-twice",
    "metadata-transaction-ends-unbegun",
    "quorum-state-torn",
)
_CLIENTS = ("consume", "consume --skip-corrupt", "export", "loss", "duplicates", "producers")

ALLOWED = (
    Allowed(
        ("torn-tail-after-crash",),
        ("silence",),
        _CLIENTS,
        "what a crash leaves is normal: it is where the log ends for who reads records",
    ),
    Allowed(
        (
            "checkpoint-of-a-later-version",
            "index-without-number",
            "meta-properties-of-a-later-version",
            "meta-properties-without-node",
            "snapshot-without-number",
        ),
        ("told and green",),
        ("rebuild",),
        "its exit status is that of the derived files; what else it meets it only tells",
    ),
    Allowed(
        _APPENDED,
        ("unfounded",),
        ("rebuild",),
        "batches were appended by hand, and not indexed: an index with fewer entries than a broker"
        " makes is right to all that read it, and check does not know index.interval.bytes",
    ),
    Allowed(
        _METADATA_NOT_STARTED,
        ("unfounded",),
        ("rebuild",),
        "KRaft indexes what it appends at once, several batches; how many a log does not tell",
    ),
    Allowed(
        ("offset-beyond-index",),
        ("silence",),
        (*_CLIENTS, "describe", "spark-audit"),
        "the offset was acknowledged: readers give the batch, and a start splits the segment",
    ),
    Allowed(
        ("segments-overlap",),
        ("missing",),
        ("describe", "duplicates", "producers"),
        "the batch that reaches into the next segment costs that offset, too",
    ),
    Allowed(
        ("empty-log-in-the-middle",),
        ("unfounded",),
        ("rebuild",),
        "after a clean stop a start takes the newest snapshot: check asks for that one only",
    ),
    Allowed(
        ("short-marker", "unknown-control-type"),
        ("silence", "false green"),
        ("export", "loss"),
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
