"""Retention: the forecast against a model of Kafka's code, and its rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.forecast.removals import RuleSet, removals
from recovery.forecast.retention import HighWatermark, high_watermark_of
from recovery.forecast.settings import TimeSource
from recovery.forecast.started_log import StartedLog, StartedSegment
from storage.dirs.cluster_image import PartitionImage
from tests.recovery.forecast.retention_model import ModelLog, ModelSegment

FIRST_RUN_MS, INTERVAL_MS, UNTIL_MS = 100, 50, 900


def segment(base: int, end: int, size: int, largest_ms: int, **changes: Any) -> StartedSegment:
    """Return a segment with these facts."""
    return StartedSegment(
        base_offset=base,
        end_offset=end,
        log_bytes=size,
        disk_bytes=size,
        largest_timestamp_ms=largest_ms,
        largest_from=TimeSource.TIME_INDEX,
        batches_timestamp_ms=largest_ms,
        first_timestamp_ms=largest_ms,
        records_count=end - base,
    )._replace(**changes)


def log_of(*segments: StartedSegment, **changes: Any) -> StartedLog:
    """Return a loaded log of these segments."""
    return StartedLog(
        topic="t",
        partition=0,
        path="d/t-0",
        segments=segments,
        log_start_offset=segments[0].base_offset,
        local_start_offset=segments[0].base_offset,
        end_offset=segments[-1].end_offset,
        high_watermark=segments[-1].end_offset,
        cleaner_line=None,
        opened=(),
        is_verified=True,
    )._replace(**changes)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[StartedSegment], RuleSet]:
    """Draw segments, and the numbers that decide about them."""
    count = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    sizes = [draw(st.integers(1, 9)) * 10 if length else 0 for length in lengths]
    times = draw(st.lists(st.integers(0, 800), min_size=count, max_size=count))
    bases = [sum(lengths[:place]) + place for place in range(count)]
    end = bases[-1] + lengths[-1]
    segments = [
        segment(base, after, size, time_ms)
        for base, after, size, time_ms in zip(bases, [*bases[1:], end], sizes, times, strict=True)
    ]
    rules = RuleSet(
        deletes=draw(st.booleans()) or draw(st.booleans()),
        retention_ms=draw(st.sampled_from([-1, 0, 1, 20, 99, 100, 101, 400])),
        retention_bytes=draw(st.sampled_from([-1, 0, 10, 50, 90, 200])),
        log_start_offset=draw(st.integers(0, end)),
        high_watermark=draw(st.one_of(st.just(end), st.integers(0, end))),
        is_old=draw(st.booleans()),
    )
    return segments, rules


@settings(max_examples=400)
@given(cases())
def test_the_forecast_deletes_what_the_model_deletes(
    case: tuple[list[StartedSegment], RuleSet],
) -> None:
    segments, rules = case
    model = ModelLog(
        [ModelSegment(e.base_offset, e.log_bytes, e.largest_timestamp_ms or 0) for e in segments],
        end=segments[-1].end_offset,
        high_watermark=rules.high_watermark,
        log_start=rules.log_start_offset,
        retention_ms=rules.retention_ms,
        retention_bytes=rules.retention_bytes,
        deletes=rules.deletes,
        is_old=rules.is_old,
    )
    for run_ms in range(FIRST_RUN_MS, UNTIL_MS + 1, INTERVAL_MS):
        model.run(run_ms)
    found = removals(
        segments,
        rules,
        first_run_ms=FIRST_RUN_MS,
        interval_ms=INTERVAL_MS,
        until_ms=UNTIL_MS,
    )
    expected = [(each.place, str(each.by), each.run_at_ms) for each in found]
    bases = [each.base_offset for each in segments]
    assert [(bases[place], by, run) for place, by, run in expected] == model.deleted


def test_the_only_eligible_replica_has_its_log_end_as_high_watermark() -> None:
    log = log_of(segment(0, 10, 100, 5), high_watermark=0)
    placed = PartitionImage(
        replicas=(1,),
        isr=(1,),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(b"\0" * 16,),
    )
    assert high_watermark_of(log, placed, 1) == HighWatermark(10, 10, 10)
    gone = placed._replace(replicas=(1, 2), isr=(), leader=-1, elr=(1,))
    assert high_watermark_of(log, gone, 1) == HighWatermark(10, 10, 10)
    outside = placed._replace(replicas=(1, 2), isr=(2,), leader=-1)
    assert high_watermark_of(log._replace(high_watermark=5), outside, 1) == HighWatermark(5, 5, 5)
    both = placed._replace(replicas=(1, 2), isr=(1, 2))
    assert high_watermark_of(log._replace(high_watermark=5), both, 1) == HighWatermark(5, 10, 5)
    assert high_watermark_of(log._replace(high_watermark=None), None, 1).least == 0
