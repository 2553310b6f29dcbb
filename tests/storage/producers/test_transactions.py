"""Open transactions and the last stable offset: the tables agree with the batches, and both with brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.formats.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from storage.kernels.protocol import HeaderTable
from storage.log.segment import open_segment
from storage.producers.transactions import OpenTransaction, OpenTransactions
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = TRANSACTIONAL_MASK
MARKER = TRANSACTIONAL_MASK | CONTROL_MASK


def header(
    offset: int,
    producer_id: int,
    attributes: int,
    *,
    count: int = 1,
    records_count: int | None = None,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        records_count=count if records_count is None else records_count,
    )


def table(headers: list[BatchHeader]) -> HeaderTable:
    columns: dict[str, Any] = {}
    for name in HeaderTable._fields:
        if name in BatchHeader._fields or name in {"batch_bytes", "last_offset"}:
            columns[name] = np.array([getattr(each, name) for each in headers], dtype=np.int64)
    columns["pos"] = np.arange(len(headers))
    columns["crc_ok"] = np.ones(len(headers), dtype=np.bool_)
    return HeaderTable(**columns)


def follow(
    headers: list[BatchHeader], *, log_start_offset: int = 0, high_watermark: int | None = None
) -> OpenTransactions:
    found = OpenTransactions(log_start_offset=log_start_offset, high_watermark=high_watermark)
    for each in headers:
        found.add_batch(each)
    return found


def test_a_transaction_is_open_until_its_marker() -> None:
    headers = [header(0, 7, DATA), header(1, 8, DATA), header(2, 7, DATA), header(3, 7, MARKER)]
    found = follow(headers, high_watermark=4)
    assert list(found) == [OpenTransaction(8, 1)]
    assert found.first_unstable_offset == 1
    assert found.last_stable_offset(4) == 1
    assert len(follow(headers[:3])) == 2


def test_markers_and_data_that_open_nothing() -> None:
    assert len(follow([header(0, 7, MARKER), header(1, 7, 0), header(2, -1, DATA)])) == 0
    # An empty control batch is what compaction leaves of a marker: it says nothing to a replay.
    found = follow([header(0, 7, DATA), header(1, 7, MARKER, records_count=0)])
    assert list(found) == [OpenTransaction(7, 0)]


def test_a_marker_above_the_high_watermark_leaves_its_transaction_unstable() -> None:
    headers = [header(0, 7, DATA), header(1, 8, 0), header(2, 7, MARKER), header(3, 8, 0)]
    assert follow(headers, high_watermark=2).last_stable_offset(4) == 0
    assert follow(headers, high_watermark=3).last_stable_offset(4) == 3
    assert follow(headers, high_watermark=4).last_stable_offset(4) == 4
    assert len(follow(headers, high_watermark=2)) == 0  # not open, only not yet replicated


def test_unknown_high_watermark_means_unknown_last_stable_offset() -> None:
    found = follow([header(0, 7, DATA)])
    assert found.last_stable_offset(1) is None
    assert found.first_unstable_offset == 0


def test_high_watermark_is_brought_into_the_log() -> None:
    headers = [header(10, 7, 0), header(11, 7, 0)]
    assert follow(headers, log_start_offset=10, high_watermark=99).last_stable_offset(12) == 12
    assert follow(headers, log_start_offset=10, high_watermark=3).last_stable_offset(12) == 10


def test_what_lies_below_the_log_start_does_not_count() -> None:
    headers = [header(0, 7, DATA, count=5), header(5, 8, DATA, count=5)]
    assert list(follow(headers, log_start_offset=5)) == [OpenTransaction(8, 5)]
    found = follow(headers, log_start_offset=7, high_watermark=10)
    assert found.first_unstable_offset == 7  # the batch begins at 5, the log at 7
    assert found.last_stable_offset(10) == 7


def test_batches_with_a_wrong_checksum_do_not_count_in_tables() -> None:
    found = OpenTransactions(log_start_offset=0, high_watermark=9)
    rows = table([header(0, 7, DATA), header(1, 8, DATA)])
    rows.crc_ok[0] = False
    found.add_table(rows)
    assert list(found) == [OpenTransaction(8, 1)]


batches = st.lists(
    st.tuples(
        st.integers(-1, 3),  # producer id
        st.sampled_from([0, DATA, DATA, MARKER, MARKER, CONTROL_MASK]),
        st.integers(1, 3),  # offsets
        st.integers(0, 1),  # records
    ),
    max_size=30,
)


@settings(max_examples=examples(200))
@given(batches, st.integers(1, 7), st.none() | st.integers(0, 60), st.integers(0, 20))
def test_tables_agree_with_batches(
    rows: list[tuple[int, int, int, int]],
    block_count: int,
    high_watermark: int | None,
    log_start_offset: int,
) -> None:
    headers = []
    offset = 0
    for producer_id, attributes, count, records_count in rows:
        headers.append(
            header(offset, producer_id, attributes, count=count, records_count=records_count)
        )
        offset += count
    one_by_one = follow(headers, log_start_offset=log_start_offset, high_watermark=high_watermark)
    bulk = OpenTransactions(log_start_offset=log_start_offset, high_watermark=high_watermark)
    for start in range(0, len(headers), block_count):
        bulk.add_table(table(headers[start : start + block_count]))
    assert list(bulk) == list(one_by_one)
    assert bulk.first_unstable_offset == one_by_one.first_unstable_offset
    assert bulk.last_stable_offset(offset) == one_by_one.last_stable_offset(offset)


# --- against real brokers -------------------------------------------------------------------------


def open_transactions(partition: Partition, *, bulk: bool) -> OpenTransactions:
    found = OpenTransactions(
        log_start_offset=partition.log_start_offset or 0, high_watermark=partition.high_watermark
    )
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            if bulk:
                for rows in segment.scan_tables():
                    found.add_table(rows)
            else:
                for batch in segment.scan():
                    found.add_batch(batch.header)
    return found


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ("crash", 2),
        ("recovered", 2),
        ("clean", 2),
        ("hard", 106),
        ("hard-clean", 104),  # the broker timed out the two of topic txn before it stopped
        ("tv2", 0),
        ("tv2-clean", 0),
    ],
)
def test_open_transactions_of_real_directories(
    golden: Callable[[str], Path], state: str, count: int
) -> None:
    producers = set()
    for selected in discover([golden("kafka-4.3.1") / state]).selected:
        partition = Partition.of(selected)
        found = open_transactions(partition, bulk=False)
        assert list(open_transactions(partition, bulk=True)) == list(found)
        producers |= {(partition.topic, each.producer_id) for each in found}
    assert len(producers) == count


def test_last_stable_offset_is_what_a_broker_told_a_client(golden: Callable[[str], Path]) -> None:
    consumed = sorted(golden("kafka-4.3.1-clean.consumed").glob("**/*.read_committed.jsonl"))
    assert len(consumed) == 15
    for path in consumed:
        with path.open() as lines:
            reported = json.loads(next(lines))
        name = f"{reported['topic']}-{reported['partition']}"
        (selected,) = discover([golden("kafka-4.3.1") / "clean" / name]).selected
        partition = Partition.of(selected)
        end = partition.log_end()
        assert end is not None
        found = open_transactions(partition, bulk=False).last_stable_offset(end.offset)
        assert (name, found) == (name, reported["high_watermark"])
