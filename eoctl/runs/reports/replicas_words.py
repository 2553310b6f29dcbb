"""What `replicas compare` says to a person before its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.runs.in_cluster import partition_words
from eoctl.runs.told import listing
from storage.dirs.acknowledged import CopyStanding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.runs.reports.cluster_rows import PartitionStateRow
    from eoctl.runs.reports.replicas import ComparedRows, RecommendationRow

TOLD_COUNT = 2  # of partitions, in lines


def recommendation_lines(run: ComparedRows) -> Iterator[str]:
    """Say which copies should lead: the dear ones first, a few lines each."""
    ranked = sorted(run.recommendations, key=_dearness)
    states = {(each.topic, each.partition): each for each in run.states}
    standings = {each.path: each.standing for each in run.replicas}
    for each in ranked[:TOLD_COUNT]:
        broker = "" if each.broker is None else f"broker {each.broker}, "
        yield f"{each.topic}-{each.partition}: leader {broker}{each.leader}"
        lost = _count_of(each.lost_records_count)
        acknowledged = _count_of(each.lost_acknowledged_records_count)
        yield f"  {each.reason}"
        yield f"  lost by the others: {lost} records, {acknowledged} acknowledged"
        if each.cheaper_leader is not None:
            yield (
                f"  {each.cheaper_leader} would cost"
                f" {_count_of(each.cheaper_acknowledged_records_count)} acknowledged, and has an"
                " older log"
            )
        yield from _cluster_lines(
            states.get((each.topic, each.partition)), each.broker, standings[each.leader]
        )
    if len(ranked) > TOLD_COUNT:
        yield f"and {len(ranked) - TOLD_COUNT:,} more partitions"


def _cluster_lines(
    state: PartitionStateRow | None, broker: int | None, standing: str | None
) -> Iterator[str]:
    """Say who led by the metadata, and whether the one that should lead may do so at once."""
    if state is None:
        return
    words = partition_words(
        state.leader, state.isr, state.min_insync_replicas, state.min_insync_from
    )
    yield f"  cluster: {words}"
    absent = [each for each in state.replicas if each not in state.isr]
    if absent:
        yield f"  not in the ISR: {listing([f'broker {each}' for each in absent], 'brokers')}"
    if standing == CopyStanding.OUT_OF_SYNC:
        yield f"  broker {broker} leads by an unclean election only: see eoctl advise"


def _dearness(row: RecommendationRow) -> tuple[int, int, str, int]:
    unknown = 1 << 62
    acknowledged, lost = row.lost_acknowledged_records_count, row.lost_records_count
    return (
        -(unknown if acknowledged is None else acknowledged),
        -(unknown if lost is None else lost),
        row.topic,
        row.partition,
    )


def _count_of(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
