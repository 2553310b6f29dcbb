"""Spans under min.insync.replicas, and sums of what became of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.cluster.history import PartitionChange, read_history
from recovery.cluster.in_sync import UnderIsrSpans
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from tests.metadata_logs import change, partition, setting, topic, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.cluster.in_sync import UnderIsrSpan

T = bytes(range(16))


def spans_of(path: Path) -> tuple[list[UnderIsrSpan], UnderIsrSpans]:
    (selected,) = discover([path]).selected
    spans = UnderIsrSpans()
    taken = [
        spans.take(each)
        for each in read_history(Partition.of(selected))
        if isinstance(each, PartitionChange)
    ]
    return [each for each in taken if each is not None], spans


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "__cluster_metadata-0"


def test_spans_and_sums(directory: Path) -> None:
    write_log(directory, [
        (10, [topic("t", T), setting(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")]),
        (10, [partition(T, [1, 2, 3])]),
        (20, [change(T, isr=[1])]),
        (30, [change(T, leader=-1)]),
        (45, [change(T, leader=3, isr=[3])]),
        (60, [change(T, isr=[3, 2])]),
        (70, [change(T, isr=[3])]),
    ])  # fmt: skip
    (span,), spans = spans_of(directory)
    assert (span.start_offset, span.end_offset, span.duration_ms) == (3, 6, 40)
    assert (span.least_in_sync_count, span.was_leaderless, span.is_start_known) == (0, True, True)
    (still,) = spans.still_open()
    assert (still.start_offset, still.end_offset, still.duration_ms) == (7, None, None)
    assert (still.least_in_sync_count, still.was_leaderless) == (1, False)
    (found,) = spans.sums.values()
    assert (found.changes_count, found.elections_count, found.unclean_count) == (6, 1, 1)
    assert (found.last_unclean_offset, found.last_unclean_timestamp_ms) == (5, 45)
    assert (found.spans_count, found.under_ms, found.longest_ms) == (1, 40, 40)
    assert (found.leaderless_count, found.isr_changes_count) == (1, 4)


def test_clocks_that_go_back_give_no_duration(directory: Path) -> None:
    write_log(directory, [
        (10, [topic("t", T), partition(T, [1], leader=-1)]),
        (5, [change(T, leader=1)]),
    ])  # fmt: skip
    (span,), spans = spans_of(directory)
    assert span.duration_ms is None
    assert [each.under_ms for each in spans.sums.values()] == [0]
