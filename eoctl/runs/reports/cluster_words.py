"""What `cluster-state` says to a person before its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.runs.told import Said, counted, listing, moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.runs.reports.cluster_state import StateRun

GRAVE = 1


def answer(run: StateRun) -> Iterator[Said]:
    """Say who leads what, and what is the matter."""
    row = run.cluster
    when = "" if row.timestamp_ms is None else f", {moment(row.timestamp_ms)}"
    yield Said("State", f"after metadata record {row.end_offset - 1}{when}")
    if not row.is_complete:
        yield Said("Unread", "not all of it could be read: this may be an older state", BAD_RANK)
    if row.maybe_records_count:
        records = counted(row.maybe_records_count, "record")
        yield Said("Agreed", f"up to {row.counted_offset} for sure; {records} above may not count")
    yield from _brokers(run)
    yield from _partitions(run)


def _brokers(run: StateRun) -> Iterator[Said]:
    row = run.cluster
    if row.fenced_count:
        fenced = [str(each.broker) for each in run.brokers if each.state == "fenced"]
        text = f"{row.fenced_count:,} of {row.brokers_count:,} fenced: {listing(fenced, 'brokers')}"
        yield Said("Brokers", text, GRAVE)
    else:
        yield Said("Brokers", f"{row.brokers_count:,}, none fenced")


def _partitions(run: StateRun) -> Iterator[Said]:
    partitions = run.partitions
    names = [f"{each.topic}-{each.partition}" for each in partitions if each.leader == -1]
    text = f"{counted(len(partitions), 'partition')}"
    if not names:
        yield Said("Leaders", f"{text}, all led")
    else:
        yield Said("Leaders", f"none of {listing(names, 'partitions')}, of {text}", BAD_RANK)
    under = [
        f"{each.topic}-{each.partition}"
        for each in partitions
        if each.is_under_min_isr and each.leader != -1
    ]
    if under:
        yield Said("ISR", f"too few for acks=all in {listing(under, 'partitions')}", GRAVE)
    recovering = [f"{each.topic}-{each.partition}" for each in partitions if each.is_recovering]
    if recovering:
        yield Said(
            "Unclean", f"led since an unclean election: {listing(recovering, 'partitions')}", GRAVE
        )


BAD_RANK = 2
