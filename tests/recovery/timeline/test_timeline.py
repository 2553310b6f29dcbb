"""Timelines: pieces add up to the whole in any order, and say what a plain loop says."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recovery.timeline.piece import (
    VOLUME,
    Timeline,
    TimelineBuilder,
    join_timelines,
    no_timeline,
    with_fewer_bins,
)
from recovery.timeline.spans import Layout, bin_rows, epochs_of, join_bins, settle
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.formats.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK
from storage.kernels.protocol import HeaderTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DTYPES = {
    "partition_leader_epoch": np.int32,
    "magic": np.int8,
    "attributes": np.int16,
    "producer_epoch": np.int16,
    "base_sequence": np.int32,
    "records_count": np.int32,
    "crc": np.uint32,
    "crc_ok": np.bool_,
}


class Batch(NamedTuple):
    """A batch, as far as a timeline looks at it."""

    segment: int
    producer_id: int
    kind: int  # NO_MARKER: data
    is_transactional: bool
    records_count: int
    timestamp_ms: int
    leader_epoch: int
    producer_epoch: int
    base_sequence: int


@st.composite
def logs(draw: Callable[..., Any]) -> list[Batch]:
    """Batches of a few producers, in a few segments; times and epochs go back now and then."""
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    batches = []
    segment = leader_epoch = 0
    for number in range(draw(st.integers(0, 60))):
        if rng.random() < 0.1:
            segment = number * 10
        leader_epoch += rng.random() < 0.05
        producer_id = rng.choice([-1, 1, 1, 2, 3, 1 << 60])
        kind = rng.choice([NO_MARKER] * 4 + [COMMIT, ABORT]) if producer_id >= 0 else NO_MARKER
        batches.append(
            Batch(
                segment=segment,
                producer_id=producer_id,
                kind=kind,
                is_transactional=producer_id >= 0 and (kind != NO_MARKER or rng.random() < 0.7),
                records_count=rng.randint(1, 9),
                timestamp_ms=rng.choice(
                    [-1, 1000 + number, 1000 + number, rng.randint(0, 1 << 40)]
                ),
                leader_epoch=leader_epoch,
                producer_epoch=rng.choice([0, 0, 0, 1]),
                base_sequence=-1 if kind != NO_MARKER else rng.randint(0, 3),
            )
        )
    return batches


def table_of(batches: Sequence[Batch], first: int) -> tuple[HeaderTable, Any]:
    """The headers of batches that lie 10 offsets and 100 bytes apart, `first` before them."""
    count = len(batches)
    base = (np.arange(count) + first) * 10
    kinds = np.array([each.kind for each in batches], np.int8)
    columns: dict[str, Any] = {
        "pos": base * 10,
        "batch_bytes": np.full(count, 100),
        "base_offset": base,
        "last_offset": base + [each.records_count - 1 for each in batches],
        "partition_leader_epoch": [each.leader_epoch for each in batches],
        "magic": np.full(count, 2),
        "attributes": [
            TRANSACTIONAL_MASK * each.is_transactional + CONTROL_MASK * (each.kind != NO_MARKER)
            for each in batches
        ],
        "base_timestamp_ms": [each.timestamp_ms for each in batches],
        "max_timestamp_ms": [each.timestamp_ms for each in batches],
        "producer_id": [each.producer_id for each in batches],
        "producer_epoch": [each.producer_epoch for each in batches],
        "base_sequence": [each.base_sequence for each in batches],
        "records_count": [each.records_count for each in batches],
        "crc": np.zeros(count),
        "crc_ok": np.ones(count),
    }
    table = HeaderTable(
        **{name: np.array(each, DTYPES.get(name, np.int64)) for name, each in columns.items()}
    )
    return table, kinds


def build(
    batches: Sequence[Batch], first: int = 0, most: int = 1000, max_bins: int = VOLUME.max_bins
) -> Timeline:
    """The timeline of batches that are given in blocks of at most `most`."""
    builder = TimelineBuilder(max_bins=max_bins)
    start = 0
    while start < len(batches):
        end = start
        while end < len(batches) and end - start < most:
            if batches[end].segment != batches[start].segment:
                break
            end += 1
        builder.take(*table_of(batches[start:end], first + start), batches[start].segment)
        start = end
    return builder.finish()


def plain(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


@given(logs(), st.integers(0, 1 << 32))
def test_pieces_add_up_to_the_whole_however_they_are_joined(
    batches: list[Batch], seed: int
) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(len(batches) + 1), min(rng.randint(0, 5), len(batches) + 1)))
    bounds = [0, *cuts, len(batches)]
    pieces = [
        build(batches[start:end], start, rng.randint(1, 9))
        for start, end in itertools.pairwise(bounds)
    ]
    while len(pieces) > 1:
        at = rng.randrange(len(pieces) - 1)
        pieces[at : at + 2] = [join_timelines(pieces[at], pieces[at + 1])]
    assert plain(pieces[0]) == plain(build(batches))


@given(logs(), st.integers(2, 12), st.integers(1, 9))
def test_fewer_bins_from_the_start_are_those_of_afterwards(
    batches: list[Batch], max_bins: int, most: int
) -> None:
    built = build(batches, most=most, max_bins=max_bins)
    assert plain(built) == plain(with_fewer_bins(build(batches), max_bins))


@given(logs())
def test_nothing_joined_to_something_is_that(batches: list[Batch]) -> None:
    whole = build(batches)
    assert plain(join_timelines(no_timeline(), whole)) == plain(whole)
    assert plain(join_timelines(whole, no_timeline())) == plain(whole)


@given(logs())
def test_transactions_are_those_of_a_plain_loop(batches: list[Batch]) -> None:
    opened: dict[int, list[int]] = {}
    ended: dict[int, list[tuple[int, int, int, int]]] = {COMMIT: [], ABORT: []}
    for number, each in enumerate(batches):
        offset = number * 10
        if each.kind != NO_MARKER:
            data = opened.pop(each.producer_id, None)
            if data:
                records = sum(batches[one // 10].records_count for one in data)
                ended[each.kind].append((each.producer_id, data[0], offset, records))
        elif each.is_transactional:
            opened.setdefault(each.producer_id, []).append(offset)
    found = settle(build(batches).spans)
    values = found.committed.values
    assert values[:, 0].tolist() == [1] * len(values)
    # Columns of a bin: see `spans.COMMITTED_LOWS` and the others.
    committed = sorted(values[:, [6, 4, 10, 2]].tolist())
    assert committed == sorted(map(list, ended[COMMIT]))
    aborted = [
        (int(e["producer_id"]), int(e["data"]["first_offset"]), int(e["marker"]["offset"]),
         int(e["data"]["records"]))
        for e in found.aborted
    ]  # fmt: skip
    assert sorted(aborted) == sorted(ended[ABORT])
    assert [int(e["data"]["first_offset"]) for e in found.open] == sorted(
        data[0] for data in opened.values()
    )
    assert all(int(e["data"]["pos"]) == int(e["data"]["first_offset"]) * 10 for e in found.open)


@given(logs())
def test_epochs_that_end_one_transaction_only_are_those_of_a_plain_loop(
    batches: list[Batch],
) -> None:
    opened: dict[int, int] = {}
    raised: dict[int, set[tuple[int, int]]] = {COMMIT: set(), ABORT: set()}
    for each in batches:
        if each.kind != NO_MARKER:
            epoch = opened.pop(each.producer_id, None)
            if epoch is not None and each.producer_epoch > epoch:
                raised[each.kind].add((each.producer_id, each.producer_epoch))
        elif each.is_transactional:
            opened[each.producer_id] = each.producer_epoch
    rows = settle(build(batches).spans).ended
    for name, kind in (("committed", COMMIT), ("aborted", ABORT)):
        place, epochs = epochs_of(rows[name], rows)
        found = zip(rows["producer_id"][place].tolist(), epochs.tolist(), strict=True)
        assert {*found} == raised[kind]


@given(
    st.lists(st.tuples(st.integers(-(1 << 40), 1 << 40), st.integers(0, 100)), max_size=80),
    st.integers(2, 7),  # below and above 0 are never one bin
    st.integers(0, 80),
)
def test_bins_are_as_narrow_as_they_can_be(
    rows: list[tuple[int, int]], most: int, cut: int
) -> None:
    layout = Layout(sums=1, lows=1, highs=1, max_bins=most)

    def of(part: list[tuple[int, int]]) -> Any:
        key = np.array([each for each, _ in part], np.int64)
        value = np.array([each for _, each in part], np.int64)
        return bin_rows(layout, key, [value, key, key])

    whole = of(rows)
    assert plain(join_bins(layout, of(rows[:cut]), of(rows[cut:]))) == plain(whole)
    assert len(whole.key) <= most
    assert int(whole.values[:, 0].sum()) == sum(each for _, each in rows)
    if whole.width_bits:
        narrower = {key >> (whole.width_bits - 1) for key, _ in rows}
        assert len(narrower) > most
    for key, (_, low, high) in zip(whole.key.tolist(), whole.values.tolist(), strict=True):
        assert key << whole.width_bits <= low <= high < (key + 1) << whole.width_bits


def test_very_many_transactions_are_summed_up_and_none_is_lost() -> None:
    count = 20_000
    one = Batch(0, 5, NO_MARKER, True, 1, 1000, 0, 0, 0)
    batches = [one, one._replace(kind=COMMIT)] * count
    batches += [one, one._replace(kind=ABORT)] * 3
    found = settle(build(batches).spans)
    values = found.committed.values
    assert len(values) <= 2000
    assert int(values[:, 0].sum()) == count
    assert len(found.aborted) == 3
    timeline = build(batches)
    assert len(timeline.by_offset.key) <= VOLUME.max_bins
    assert int(timeline.by_offset.values[:, 0].sum()) == 2 * count + 6


def test_a_producer_whose_sequences_simply_go_on_repeats_nothing() -> None:
    first = Batch(0, 5, NO_MARKER, False, 3, 1000, 0, 0, 0)
    following = first._replace(base_sequence=3)
    assert not build([first, following]).producers["irregular"].any()
    assert build([first, following, first]).producers["irregular"].tolist() == [1]
    joined = join_timelines(build([first]), build([first], 1))
    assert joined.producers["irregular"].tolist() == [1]
    back = join_timelines(build([first._replace(producer_epoch=1)]), build([first], 1))
    assert back.producers["irregular"].tolist() == [1]
