"""Transactions of a growing log: as a scan of the whole one finds them, and as markers say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.transactions.isolation import AbortedSource
from recovery.transactions.outcomes import find_stability
from recovery.transactions.view import IndexGap, TransactionView
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.formats.txn_index import AbortedTxn, encode_entries
from storage.kernels.numpy_kernel import table_of
from storage.log.decoded_records import BatchOutcome, MarkerIndex
from storage.log.segment import open_segment
from storage.places.list_places import list_places
from tests.audit_logs import CONTROL_KINDS, Batch, encoded, write_segments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.kernels.protocol import ScannedBatch

kinds = st.sampled_from(["data", "txn", "txn", "txn", "commit", "abort", "control"])
batches = st.lists(
    st.builds(lambda pid, count, kind: Batch(pid, 0, 0, count, kind), st.integers(1, 4),
              st.integers(1, 3), kinds),
    max_size=25,
)  # fmt: skip


def partition_in(directory: Path) -> Partition:
    return Partition.of(select_partition(directory))


def every_batch(partition: Partition) -> list[ScannedBatch]:
    found: list[ScannedBatch] = []
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            found += segment.scan()
    return found


def hidden_offsets(view: TransactionView, partition: Partition) -> list[int]:
    rows = [
        each for each in every_batch(partition)
        if each.header.is_transactional and not each.header.is_control
        and each.header.base_offset < view.last_stable_offset
    ]  # fmt: skip
    if not rows:
        return []
    is_hidden = view.is_hidden(table_of(rows)).tolist()
    return [row.header.base_offset for row, is_in in zip(rows, is_hidden, strict=True) if is_in]


def aborted_offsets(partition: Partition, stable_offset: int) -> list[int]:
    """What the next marker of a producer says of its batches (RC-5), one by one."""
    markers = MarkerIndex()
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            markers.read_segment(segment)
    return [
        each.header.base_offset for each in every_batch(partition)
        if not each.header.is_control and each.header.base_offset < stable_offset
        and markers.outcome(each.header) is BatchOutcome.ABORTED
    ]  # fmt: skip


@given(
    first=batches, second=batches, third=batches,
    high_watermark=st.none() | st.integers(0, 60), log_start=st.integers(0, 8),
)  # fmt: skip
def test_as_a_scan_finds_them(
    first: list[Batch], second: list[Batch], third: list[Batch], high_watermark: int | None,
    log_start: int, tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    """At once, and step by step as the log grows and rolls."""
    directory = tmp_path_factory.mktemp("log") / "t-0"
    write_segments(directory, first, second)
    growing = partition_in(directory)
    step_by_step = TransactionView(growing, high_watermark=high_watermark)
    step_by_step.log_start_offset = step_by_step.log_end_offset = log_start
    step_by_step.update()
    log = max(directory.glob("*.log"))
    offset = int(log.stem)
    for each in second:
        offset += 1 if each.kind in CONTROL_KINDS else each.count
    for place, each in enumerate(third):
        if place == len(third) // 2:
            log = directory / f"{offset:020d}.log"
        with log.open("ab") as file:
            file.write(encoded(each, offset))
        offset += 1 if each.kind in CONTROL_KINDS else each.count
        if place % 3 == 0:
            growing.refresh()
            step_by_step.update()
    growing.refresh()
    step_by_step.update()
    at_once = TransactionView(growing, high_watermark=high_watermark)
    at_once.log_start_offset = at_once.log_end_offset = log_start
    at_once.update()
    places = list_places([str(directory)]).places
    stability = find_stability(places, high_watermark=high_watermark, log_start_offset=log_start)
    for view in (step_by_step, at_once):
        assert view.last_stable_offset == stability.stable_offset
        assert tuple(view.open_transactions) == stability.open_transactions
        assert view.log_end_offset == stability.log_end_offset
    if not log_start:
        expected = aborted_offsets(growing, stability.stable_offset)
        assert hidden_offsets(at_once, growing) == expected
        assert hidden_offsets(step_by_step, growing) == expected


def test_a_damaged_log_that_grows(tmp_path: Path) -> None:
    """What lies behind damage is looked at again, and counts once."""
    directory = write_segments(
        tmp_path / "t-0",
        [Batch(kind="txn"), Batch(kind="abort"), Batch(kind="data"), Batch(pid=2, kind="txn"),
         Batch(pid=2, kind="abort"), Batch(kind="txn")],
    )  # fmt: skip
    log = directory / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    with open_segment(log) as segment:
        third = list(segment.scan())[2]
    data[third.pos + 8] = 0x7F  # its length: the chain is broken there
    log.write_bytes(bytes(data))
    partition = partition_in(directory)
    view = TransactionView(partition)
    for _ in range(3):
        view.update()
        assert [each.first_offset for each in view.open_transactions] == [5]
        assert view.last_stable_offset == 5
        assert hidden_offsets(view, partition) == [0, 3]
    with log.open("ab") as file:
        file.write(encoded(Batch(kind="commit"), 6))
    view.update()
    assert view.open_transactions == []
    assert view.last_stable_offset == view.log_end_offset == 7


# --- the index of aborted transactions ------------------------------------------------------------


@pytest.fixture
def interleaved(tmp_path: Path) -> Path:
    """Offsets 0 to 8: producer 1 aborts 0 and 2, then commits 5; producer 2 aborts 1 and 6."""
    return write_segments(
        tmp_path / "t-0",
        [Batch(kind="txn"), Batch(pid=2, kind="txn"), Batch(kind="txn"), Batch(kind="abort"),
         Batch(pid=2, kind="abort")],
        [Batch(kind="txn"), Batch(pid=2, kind="txn"), Batch(kind="commit"),
         Batch(pid=2, kind="abort")],
    )  # fmt: skip


def view_of(directory: Path, source: AbortedSource) -> tuple[TransactionView, Partition]:
    partition = partition_in(directory)
    view = TransactionView(partition, source=source)
    view.update()
    return view, partition


def test_a_right_index(interleaved: Path) -> None:
    (interleaved / f"{0:020d}.txnindex").write_bytes(
        encode_entries([AbortedTxn(0, 1, 0, 3, 1), AbortedTxn(0, 2, 1, 4, 5)])
    )
    (interleaved / f"{5:020d}.txnindex").write_bytes(encode_entries([AbortedTxn(0, 2, 6, 8, 9)]))
    for source in AbortedSource:
        view, partition = view_of(interleaved, source)
        assert hidden_offsets(view, partition) == [0, 1, 2, 6]
        assert view.index_gap() is None


def test_a_wrong_index_is_what_a_consumer_goes_by(interleaved: Path) -> None:
    """As rule RC-4 has it: from the first offset on, until the next ABORT marker of the log."""
    assert hidden_offsets(*view_of(interleaved, AbortedSource.TXNINDEX)) == []
    assert view_of(interleaved, AbortedSource.LOG)[0].index_gap() == IndexGap(3, 1, 0)
    cases: list[tuple[list[AbortedTxn], list[int]]] = [
        ([AbortedTxn(0, 1, 2, 3, 1)], [2]),  # begins too late
        ([AbortedTxn(0, 2, 1, 99, 5)], [1]),  # the end does not matter
        ([AbortedTxn(0, 1, 4, 7, 5)], [5]),  # no ABORT follows: hidden to the end
        ([AbortedTxn(0, 9, 0, 8, 9)], []),  # nobody
    ]
    for entries, expected in cases:
        (interleaved / f"{0:020d}.txnindex").write_bytes(encode_entries(entries))
        assert hidden_offsets(*view_of(interleaved, AbortedSource.TXNINDEX)) == expected
        assert hidden_offsets(*view_of(interleaved, AbortedSource.LOG)) == [0, 1, 2, 6]


@pytest.mark.usefixtures("gaps_were_never_filled")
@pytest.mark.parametrize("state", ["clean", "recovered", "hard-clean", "tv2-clean"])
def test_the_indexes_of_real_brokers(state: str, golden: Callable[[str], Path]) -> None:
    """What they say of batches that are there is what the markers say."""
    compared = 0
    for directory in sorted((golden("kafka-4.3.1") / state).glob("*-0")):
        if not list(directory.glob("*.txnindex")):
            continue
        from_log, partition = view_of(directory, AbortedSource.LOG)
        from_index, _ = view_of(directory, AbortedSource.TXNINDEX)
        found = hidden_offsets(from_log, partition)
        assert found == hidden_offsets(from_index, partition), directory.name
        assert from_log.index_gap() is None
        compared += bool(found)
    assert compared
