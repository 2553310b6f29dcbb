"""Replay in bulk agrees with the definition on any log, however it is cut, and both with brokers."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import recovery.replay.bulk_state
import storage.kernels.numpy_kernel
from recovery.replay.bulk_state import BulkState, SegmentReplay, replay_segment
from recovery.replay.end_markers import read_marker
from recovery.replay.producer_columns import MarkerColumns
from storage.errors import CorruptError, FormatError
from storage.formats.control_record import (
    REFUSED_CHECK_ID,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_marker,
)
from storage.formats.producer_snapshot import ProducerEntry, encode_snapshot, parse_snapshot
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAX_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    encode_batch,
)
from storage.kernels.numpy_kernel import table_of
from storage.kernels.protocol import ScannedBatch, VerdictKind
from storage.log.segment import Segment, open_segment
from storage.producers.producer_state import (
    AppendError,
    CachedBatch,
    CompletedTransaction,
    Marker,
    ProducerStateManager,
)
from tests.drawn import examples
from tests.made_logs import damaged_logs, with_right_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

TRANSACTIONAL = TRANSACTIONAL_MASK
MARKER = TRANSACTIONAL_MASK | CONTROL_MASK

Step = tuple[BatchHeader, Marker | None]
Completed = tuple[CompletedTransaction, int]


class Outcome(NamedTuple):
    """All that a replay leaves behind."""

    entries: list[ProducerEntry]
    producers: list[tuple[int, int, int, int, int | None, list[CachedBatch]]]
    ongoing: dict[int, int]
    map_end_offset: int
    violations: list[object]
    completed: list[Completed]
    error: tuple[str, int, int] | None


def outcome(
    manager: ProducerStateManager, completed: list[Completed], error: AppendError | None
) -> Outcome:
    return Outcome(
        manager.entries(),
        [
            (
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.timestamp_ms,
                each.current_txn_first_offset,
                list(each.batches),
            )
            for each in manager.producers.values()
        ],
        manager.ongoing,
        manager.map_end_offset,
        list(manager.violations),
        # A refusal leaves the caller without the list.
        completed if error is None else [],
        None if error is None else (str(error), error.producer_id, error.offset),
    )


def defined(steps: Iterable[Step], manager: ProducerStateManager | None = None) -> Outcome:
    """What the definition makes of a log."""
    manager = manager or ProducerStateManager()
    completed = []
    for header, marker in steps:
        try:
            ended = manager.append(header, marker)
        except AppendError as error:
            return outcome(manager, [], error)
        if ended is not None:
            completed.append((ended, manager.last_stable_offset(ended)))
            manager.complete(ended)
    return outcome(manager, completed, None)


def bulk(steps: list[Step], sizes: Iterable[int], state: BulkState | None = None) -> Outcome:
    """What the twin makes of it, in tables of these sizes (the last one takes the rest)."""
    state = state or BulkState()
    completed: list[Completed] = []
    error = None
    sizes = iter(sizes)
    while steps and error is None:
        size = next(sizes, len(steps))
        part, steps = steps[:size], steps[size:]
        table = table_of(ScannedBatch(0, header, crc_ok=True) for header, _ in part)
        markers = [(row, each) for row, (_, each) in enumerate(part) if each is not None]
        try:
            completed += state.apply_table(table, markers)
        except AppendError as caught:
            error = caught
        assert state.entries() == state.to_manager().entries()
    assert BulkState.from_manager(state.to_manager()).to_manager().entries() == state.entries()
    assert state.first_undecided_offset == min(state.ongoing.owners, default=None)
    return outcome(state.to_manager(), completed, error)


def batch(
    offset: int,
    producer_id: int = 7,
    *,
    epoch: int = 0,
    attributes: int = 0,
    count: int = 1,
    sequence: int = 0,
    timestamp_ms: int = 1000,
    magic: int = 2,
    records_count: int | None = None,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=magic,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count if records_count is None else records_count,
    )


def data(offset: int, producer_id: int = 7, **fields: int) -> Step:
    return batch(offset, producer_id, **fields), None


def end(
    offset: int, producer_id: int = 7, *, epoch: int = 0, commit: bool = True, coordinator: int = 0
) -> Step:
    header = batch(offset, producer_id, epoch=epoch, attributes=MARKER, sequence=-1)
    return header, Marker(commit, coordinator, 2000 + offset)


# --- any log --------------------------------------------------------------------------------------

KINDS = ["data", "data", "txn", "txn", "txn", "end", "end", "empty", "none", "legacy"]


@st.composite
def logs(draw: Callable[..., Any], *, tidy: bool = False, max_size: int = 40) -> list[Step]:
    """Batches of few producers: transactions, regressions, gaps, and (not tidy) illegal mixes."""
    steps: list[Step] = []
    open_ids: set[int] = set()
    offset = draw(st.sampled_from([0, 0, 100]))
    ids = [0, 1, 16, 17, 1000, 2**62] if draw(st.booleans()) else list(range(60))
    for _ in range(draw(st.integers(0, max_size))):
        kind = draw(st.sampled_from(KINDS))
        producer_id = draw(st.sampled_from(ids))
        epoch = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2, -1]))
        count = draw(st.sampled_from([1, 1, 2, 5]))
        sequence = draw(st.sampled_from([0, 3, -1, MAX_SEQUENCE, MAX_SEQUENCE - 1]))
        timestamp_ms = draw(st.sampled_from([-1, 5, 1000, 2**62]))
        attributes = {"txn": TRANSACTIONAL, "end": MARKER, "empty": MARKER}.get(kind, 0)
        marker = None
        if kind == "none":
            producer_id, epoch = -1, -1
        elif kind == "end":
            epochs = st.sampled_from([-1, 0, 1, 2])
            marker = Marker(draw(st.booleans()), draw(epochs), timestamp_ms)
            open_ids.discard(producer_id)
        elif kind == "txn":
            open_ids.add(producer_id)
        elif kind == "data" and producer_id in open_ids and (tidy or draw(st.integers(0, 9))):
            attributes = TRANSACTIONAL
        header = batch(
            offset,
            producer_id,
            epoch=epoch,
            attributes=attributes,
            count=count,
            sequence=sequence,
            timestamp_ms=timestamp_ms,
            magic=1 if kind == "legacy" else 2,
            records_count=0 if kind == "empty" else None,
        )
        steps.append((header, marker))
        offset += count + draw(st.sampled_from([0, 0, 0, 4]))
        if not tidy and not draw(st.integers(0, 19)):
            offset = draw(st.integers(0, 60))  # offsets may go back: recovery does not look
    return steps


@settings(max_examples=examples(200))
@given(logs(), st.lists(st.integers(1, 9), max_size=30))
def test_any_log_in_any_tables(steps: list[Step], sizes: list[int]) -> None:
    expected = defined(steps)
    event(f"refused {expected.error is not None}")
    event(f"ended {min(len(expected.completed), 3)}")
    assert bulk(steps, sizes) == expected


@settings(max_examples=examples(60))
@given(logs(tidy=True, max_size=120), st.integers(1, 50))
def test_many_transactions_in_any_tables(steps: list[Step], size: int) -> None:
    expected = defined(steps)
    assert expected.error is None
    assert bulk(steps, [size] * len(steps)) == expected


@settings(max_examples=examples(60))
@given(logs(), logs(), st.lists(st.integers(1, 9), max_size=30))
def test_goes_on_from_a_state_of_the_definition(
    before: list[Step], after: list[Step], sizes: list[int]
) -> None:
    manager = ProducerStateManager()
    defined(before, manager)
    state = BulkState.from_manager(manager)
    assert bulk(after, sizes, state) == defined(after, manager)


@settings(max_examples=examples(60))
@given(logs(tidy=True), logs(), st.sampled_from([0, 1000, 1003, 2**62, 2**62 + 1000]))
def test_goes_on_from_a_snapshot(before: list[Step], after: list[Step], now_ms: int) -> None:
    snapshot = defined(before)
    manager, state = ProducerStateManager(), BulkState()
    for each in (manager, state):
        each.load(snapshot.entries, snapshot.map_end_offset, now_ms=now_ms, expiration_ms=1000)
    assert state.entries() == manager.entries()
    assert bulk(after, [3, 5], state) == defined(after, manager)


def test_a_snapshot_that_names_a_producer_twice() -> None:
    entries = [
        ProducerEntry(7, 0, 1, 10, 1, 5, -1, 9),
        ProducerEntry(7, 1, 2, 20, 1, 5, -1, 19),
        ProducerEntry(8, 1, 2, 15, 1, 5, -1, 15),
    ]
    manager, state = ProducerStateManager(), BulkState()
    for each in (manager, state):
        each.load(iter(entries), 30, now_ms=6)
    assert state.entries() == manager.entries() == entries[1:]
    assert state.first_undecided_offset == 9
    steps = [end(30, 7, epoch=1, commit=False), end(31, 8, epoch=1, commit=False)]
    found = bulk(steps, [], state)
    assert found == defined(steps, manager)
    # The broker's map forgets the first entry, its set of transactions does not.
    assert [stable for _, stable in found.completed] == [15, 9]
    assert found.ongoing == {9: 7}


# --- rules one by one -----------------------------------------------------------------------------


def test_the_last_five_batches_stay_across_tables() -> None:
    steps = [data(offset, sequence=offset) for offset in range(9)]
    for sizes in ([9], [3, 3], [1] * 9, [7, 1], [4, 4]):
        (producer,) = bulk(steps, sizes).producers
        assert [each.last_offset for each in producer[-1]] == [4, 5, 6, 7, 8]


def test_sequences_wrap() -> None:
    found = bulk([data(0, sequence=MAX_SEQUENCE - 1, count=4), data(4, sequence=2)], [])
    assert [each.last_sequence for each in found.producers[0][-1]] == [1, 2]


def test_a_refused_table_is_reflected_up_to_the_refused_batch() -> None:
    steps = [
        data(0, attributes=TRANSACTIONAL, epoch=3),
        data(1, 8),
        data(2, epoch=2),  # not transactional, and of a lower epoch
        data(3, 9),
    ]
    found = bulk(steps, [])
    assert found == defined(steps)
    assert found.error is not None
    assert found.error[1:] == (7, 2)
    assert [each.producer_id for each in found.entries] == [7, 8]
    assert found.map_end_offset == 2
    assert len(found.violations) == 1


def test_last_stable_offset_is_that_of_the_oldest_other_open_transaction() -> None:
    steps = [data(offset, offset, attributes=TRANSACTIONAL) for offset in range(1000)]
    steps += [end(1000 + each, each, commit=False) for each in (5, 0, 1, 999, 3)]
    found = bulk(steps, [100, 903])
    assert found == defined(steps)
    assert [stable for _, stable in found.completed] == [0, 1, 2, 2, 2]
    alone = bulk([data(0, attributes=TRANSACTIONAL), end(1)], [])
    assert [stable for _, stable in alone.completed] == [2]


@pytest.mark.parametrize("last_offset", [5, 12])
def test_transactions_that_begin_at_one_offset(last_offset: int) -> None:
    # Only a log whose offsets go back has them; the later one takes the place of the earlier.
    begins = [data(10, 1), data(10, 2), data(11, 3), data(last_offset, 4)]
    begins = [(each._replace(attributes=TRANSACTIONAL), marker) for each, marker in begins]
    steps = [*begins, *(end(12 + each, each, commit=False) for each in (1, 2, 4, 3))]
    for count in range(5, 9):
        expected = defined(steps[:count])
        for sizes in ([], [1] * 8, [2], [3], [4], [5]):
            assert bulk(steps[:count], sizes) == expected
    assert [stable for _, stable in expected.completed] == (
        [5, 5, 11, 16] if last_offset == 5 else [10, 11, 11, 16]
    )


def test_producers_come_in_the_order_of_their_first_batch_whatever_it_is() -> None:
    ids = [48, 16, 32, 0]  # one bucket
    steps = [
        end(0, ids[0]),
        (batch(1, ids[1], attributes=MARKER, records_count=0), None),
        data(2, ids[2]),
        data(3, ids[3], attributes=TRANSACTIONAL),
        data(4, ids[1]),
    ]
    for sizes in ([5], [1] * 5, [2, 3]):
        found = bulk(steps, sizes)
        assert [each.producer_id for each in found.entries] == ids
        assert found == defined(steps)


def test_ten_thousand_producers_in_the_order_of_the_brokers_map() -> None:
    ids = np.random.default_rng(1).permutation(10_000).tolist()
    steps = [data(offset, producer_id) for offset, producer_id in enumerate(ids)]
    found = bulk(steps, [10, 50, 3000])
    # A full definition of as many would take long: its order depends on ids and capacity alone.
    assert [each.producer_id for each in found.entries] == sorted(ids)
    assert found.producers == [(each, 0, -1, 1000, None, [CachedBatch(0, offset, 0, 1000)])
                               for offset, each in enumerate(ids)]  # fmt: skip


def test_ids_too_far_apart_for_one_integer() -> None:
    steps = [data(offset, [2**63 - 1, 0, 5][offset % 3], sequence=offset) for offset in range(20)]
    assert bulk(steps, [20]) == defined(steps)


def test_markers_between_rows() -> None:
    pairs = [(row, Marker(row % 2 == 0, row, row)) for row in (1, 4, 5, 9)]
    part = MarkerColumns.of(pairs).between(4, 9)
    assert part.row.tolist() == [0, 1]
    assert part.coordinator_epoch.tolist() == [4, 5]
    assert MarkerColumns.of(()).row.tolist() == []


# --- segments -------------------------------------------------------------------------------------


class PlainWalk(NamedTuple):
    """What recovery reads of a segment, one batch at a time."""

    steps: list[Step]
    headers: list[BatchHeader]  # of all batches that are kept, also of a last one that is no step
    valid_bytes: int
    check_id: str  # of what ended it


def read_plainly(segment: Segment) -> PlainWalk:
    steps: list[Step] = []
    headers: list[BatchHeader] = []
    valid_bytes = 0
    check_id = ""
    scan = segment.scan(resume=False)
    for each in scan:
        header, marker = each.header, None
        relative_offset = header.last_offset - segment.base_offset
        if each.crc_ok is False:
            check_id = "BAT-1"
        elif segment.known_base_offset is not None and not 0 <= relative_offset < 2**31:
            check_id = "SEG-2" if relative_offset < 0 else "SEG-3"
        if check_id:
            break
        headers.append(header)
        valid_bytes = each.pos + header.batch_bytes
        if header.magic >= 2 and header.is_control and header.producer_id >= 0:
            try:
                marker = read_marker(segment, each) if header.records_count else None
            except FormatError as error:
                check_id = error.check_id
                break
        steps.append((header, marker))
    rest = [each for each in scan.verdicts if each.end_pos > valid_bytes]
    if not check_id and rest:
        check_id = rest[0].check_id
    return PlainWalk(steps, headers, valid_bytes, check_id)


def replayed(segment: Segment, state: BulkState | None = None) -> tuple[Outcome, SegmentReplay]:
    state = state or BulkState()
    completed: list[Completed] = []
    rows: list[int] = []
    found = replay_segment(
        segment,
        state,
        on_table=lambda table: rows.extend(table.pos.tolist()),
        on_completed=lambda ended: completed.extend(ended.values()),
    )
    assert rows == sorted(rows)
    assert len(rows) == found.batches_count
    assert found.completed == [each for each in completed if each[0].is_aborted]
    assert found.committed_count == len(completed) - len(found.completed)
    return outcome(state.to_manager(), completed, None), found


def compare(segment: Segment) -> None:
    """Assert that `replay_segment` does what the plain walk and the definition do."""
    steps, headers, valid_bytes, check_id = read_plainly(segment)
    expected = defined(steps)
    if expected.error is not None:
        with pytest.raises(AppendError) as refused:
            replay_segment(segment, BulkState())
        assert (str(refused.value), refused.value.producer_id, refused.value.offset) == (
            expected.error
        )
        return
    if check_id == REFUSED_CHECK_ID:
        with pytest.raises(CorruptError, match=REFUSED_CHECK_ID):
            replay_segment(segment, BulkState())
        return
    got, found = replayed(segment)
    assert got == expected
    assert found.valid_bytes == valid_bytes
    assert found.batches_count == len(headers)
    assert (found.stop.check_id if found.stop else "") == check_id
    if headers:
        assert found.last_offset == headers[-1].last_offset
        assert found.max_timestamp_ms == max(-1, *(each.max_timestamp_ms for each in headers))


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small logs be read in many windows and handed on in many tables."""
    monkeypatch.setattr(storage.kernels.numpy_kernel, "WINDOW_BYTES", 400)
    monkeypatch.setattr(storage.kernels.numpy_kernel, "CAREFUL_BYTES", 100)
    monkeypatch.setattr(recovery.replay.bulk_state, "MIN_TABLE_ROWS", 3)
    monkeypatch.setattr(recovery.replay.bulk_state, "MAX_BLOCK_ROWS", 4)


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay") / f"{0:020d}.log"


@pytest.mark.usefixtures("small_windows")
@settings(max_examples=examples(120))
@given(damaged_logs(), st.booleans())
def test_damaged_logs(log_path: Path, log: bytes, checksums: bool) -> None:
    log_path.write_bytes(with_right_checksums(log) if checksums else log)
    with open_segment(log_path) as segment:
        compare(segment)


def encoded(step: Step, *, codec: int = 0, horizon_ms: int | None = None) -> bytes:
    """A batch whose header says what the step says; one record, a marker's if it has one."""
    header, marker = step
    if header.records_count == 0:
        return encode_batch(header, b"")
    key: bytes | None = None
    value: bytes | None = b"value"
    delta_ms = 0
    if marker is not None:
        key = encode_control_key(int(marker.is_commit))
        value = encode_end_txn_marker(EndTxnMarker(0, marker.coordinator_epoch))
        base_ms = marker.timestamp_ms if horizon_ms is None else horizon_ms
        delta_ms = marker.timestamp_ms - base_ms
        header = header._replace(base_timestamp_ms=base_ms, attributes=header.attributes | codec)
        if horizon_ms is not None:
            header = header._replace(attributes=header.attributes | DELETE_HORIZON_MASK)
    body = encode_record(Record(0, delta_ms, 0, key, value, ()))
    if codec == 1:
        import gzip

        body = gzip.compress(body)
    return encode_batch(header._replace(records_count=1), body)


def write_log(path: Path, steps: list[Step]) -> list[int]:
    """Write a log; returns where its batches begin, and its end."""
    parts = [encoded(each) for each in steps]
    path.write_bytes(b"".join(parts))
    return list(accumulate(map(len, parts), initial=0))


@pytest.mark.usefixtures("small_windows")
@settings(max_examples=examples(60))
@given(logs(tidy=True, max_size=60), st.data())
def test_written_logs(log_path: Path, steps: list[Step], draw: st.DataObject) -> None:
    steps = [each for each in steps if each[0].magic == 2]
    write_log(log_path, steps)
    with open_segment(log_path) as segment:
        compare(segment)
        got, found = replayed(segment)
        assert found.stop is None
        assert got == defined(steps)
        if not steps:
            return
        # From and to an offset, with the rest in a second pass.
        last = steps[-1][0].last_offset + 2
        offset = draw.draw(st.integers(0, last))
        count = next((i for i, each in enumerate(steps) if each[0].last_offset >= offset), None)
        state = BulkState()
        first = replay_segment(segment, state, end_offset=offset)
        assert first.batches_count == (len(steps) if count is None else count)
        assert first.stop is None
        assert outcome(state.to_manager(), [], None)._replace(completed=[]) == defined(
            steps[:count]
        )._replace(completed=[])
        tables: list[int] = []
        second = replay_segment(
            segment, state, start_offset=offset, on_table=lambda each: tables.append(each.row_count)
        )
        assert outcome(state.to_manager(), [], None) == got._replace(completed=[])
        assert second.batches_count == sum(tables) == len(steps)
        assert max(tables) <= 4


def test_a_batch_that_contains_the_start_is_taken_whole(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    write_log(path, [data(0, 1, count=5), data(5, 2, count=5), data(10, 3, count=5)])
    with open_segment(path) as segment:
        for start, ids in ((4, [1, 2, 3]), (5, [2, 3]), (9, [2, 3]), (10, [3]), (15, [])):
            state = BulkState()
            replay_segment(segment, state, start_offset=start)
            assert [each.producer_id for each in state.entries()] == ids
        state = BulkState()
        replay_segment(segment, state, start_offset=7, end_offset=12)
        assert [each.producer_id for each in state.entries()] == [2]


def test_all_batches_behind_the_start_are_taken_though_offsets_go_back(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    write_log(path, [data(10, 1), data(10, 2, count=5), data(11, 3)])
    with open_segment(path) as segment:
        state = BulkState()
        replay_segment(segment, state, start_offset=12)
    assert [each.producer_id for each in state.entries()] == [2, 3]


def test_markers_below_the_start_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    header = batch(0, attributes=MARKER, sequence=-1)
    path.write_bytes(encode_batch(header, b"no record") + encoded(end(1, 8)) + encoded(data(2, 9)))
    with open_segment(path) as segment:
        state = BulkState()
        found = replay_segment(segment, state, start_offset=1)
    assert found.stop is None
    assert [each.producer_id for each in state.entries()] == [8, 9]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("horizon_ms", [None, 90_000_000])
@pytest.mark.parametrize("log_append_time", [False, True])
def test_markers_of_every_shape(
    tmp_path: Path, codec: int, horizon_ms: int | None, log_append_time: bool
) -> None:
    header, marker = end(1, commit=False, coordinator=-5)
    if log_append_time:
        header = header._replace(attributes=header.attributes | LOG_APPEND_TIME_MASK)
    path = tmp_path / f"{0:020d}.log"
    opening = encoded(data(0, attributes=TRANSACTIONAL))
    path.write_bytes(opening + encoded((header, marker), codec=codec, horizon_ms=horizon_ms))
    with open_segment(path) as segment:
        state = BulkState()
        found = replay_segment(segment, state)
    assert found.completed == [(CompletedTransaction(7, 0, 1, is_aborted=True), 2)]
    (entry,) = state.entries()
    assert entry.coordinator_epoch == -5
    assert entry.timestamp_ms == (header.max_timestamp_ms if log_append_time else 2001)


KEY = encode_control_key(1)
VALUE = encode_end_txn_marker(EndTxnMarker(0, 3))


@pytest.mark.parametrize(
    ("key", "value", "check_id"),
    [
        (KEY[:3], VALUE, "CTL-1"),
        (b"\xff\xff\0\1", VALUE, "CTL-1"),
        (KEY, VALUE[:5], "BAT-12"),
        (KEY, b"\xff\xff\0\0\0\1", "CTL-2"),
        (b"\0\0\0\7", VALUE, "BAT-12"),
        (b"\0\0\0\2", b"", "BAT-12"),
        (None, VALUE, "BAT-12"),
        (KEY, None, "BAT-12"),
        (b"\0\1\0\1more", b"\0\1\0\0\0\3more", ""),
    ],
)
def test_what_is_no_marker(
    tmp_path: Path, key: bytes | None, value: bytes | None, check_id: str
) -> None:
    body = encode_record(Record(0, 0, 0, key, value, ()))
    path = tmp_path / f"{0:020d}.log"
    parts = [encoded(data(0)), encode_batch(end(1)[0], body), encoded(data(2, 8))]
    ends = list(accumulate(map(len, parts), initial=0))
    path.write_bytes(b"".join(parts))
    with open_segment(path) as segment:
        compare(segment)
        state = BulkState()
        if check_id == "BAT-12":
            with pytest.raises(CorruptError) as refused:
                replay_segment(segment, state)
            assert refused.value.pos == ends[1]
            assert refused.value.path == str(path)
        else:
            found = replay_segment(segment, state)
            assert (found.stop.check_id if found.stop else "") == check_id
            # It is no marker, but stays in the log: recovery cuts behind it.
            assert found.valid_bytes == ends[2 if check_id else 3]
            assert found.batches_count == (2 if check_id else 3)
        assert state.map_end_offset == (1 if check_id else 3)


def test_only_the_first_record_of_a_control_batch_counts(tmp_path: Path) -> None:
    good = encode_record(Record(0, 0, 0, KEY, VALUE, ()))
    path = tmp_path / f"{0:020d}.log"
    header = end(0)[0]
    for body, count, check_id in ((good + b"\x7f", 2, ""), (good + b"\x7f", 1, "BAT-7")):
        path.write_bytes(
            encode_batch(header._replace(records_count=count, last_offset_delta=1), body)
        )
        with open_segment(path) as segment:
            compare(segment)
            found = replay_segment(segment, BulkState())
        assert (found.stop.check_id if found.stop else "") == check_id


def test_offsets_that_do_not_fit_the_segment(tmp_path: Path) -> None:
    for name, check_id in ((5, "SEG-2"), (0, "SEG-3")):
        path = tmp_path / f"{name:020d}.log"
        end_pos = write_log(path, [data(7), data(4 if name else 2**31, 8)])
        with open_segment(path) as segment:
            compare(segment)
            state = BulkState()
            found = replay_segment(segment, state)
        assert found.stop is not None
        assert found.stop.check_id == check_id
        assert found.stop.start_pos == found.valid_bytes == end_pos[1]
        assert state.producers_count == 1


def test_a_torn_tail_and_an_unchecked_checksum(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    ends = write_log(path, [data(0), data(1, 8), data(2, 9)])
    log = bytearray(path.read_bytes())
    log[ends[2] - 1] ^= 1
    path.write_bytes(log[:-3])
    with open_segment(path) as segment:
        checked = replay_segment(segment, BulkState())
        assert checked.valid_bytes == ends[1]
        assert checked.stop is not None
        assert checked.stop.check_id == "BAT-1"
        state = BulkState()
        found = replay_segment(segment, state, verify_crc=False)
        assert found.valid_bytes == ends[2]
        assert found.stop is not None
        assert found.stop.kind is VerdictKind.TORN_TAIL
        assert state.producers_count == 2


# --- real brokers ---------------------------------------------------------------------------------


def all_partitions(root: Path) -> list[Path]:
    return sorted({each.parent for each in root.rglob("*.log")})


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "archive", ["kafka-4.3.1", "kafka-4.3.1-three-brokers", "kafka-0.10.2-legacy"]
)
def test_every_real_log(golden: Callable[[str], Path], archive: str) -> None:
    transactions = 0
    for directory in all_partitions(golden(archive)):
        manager, state = ProducerStateManager(), BulkState()
        for path in sorted(directory.glob("*.log")):
            with open_segment(path) as segment:
                walk = read_plainly(segment)
                expected = defined(walk.steps, manager)
                got, found = replayed(segment, state)
            assert got == expected, path
            assert found.valid_bytes == walk.valid_bytes
            assert (found.stop.check_id if found.stop else "") == walk.check_id
            transactions += len(got.completed)
    assert transactions > 0 or archive == "kafka-0.10.2-legacy"


def test_replay_of_a_crash_gives_the_snapshots_that_the_broker_wrote_next(
    golden: Callable[[str], Path],
) -> None:
    counts = []
    for directory in all_partitions(golden("kafka-4.3.1") / "crash"):
        snapshots = sorted((golden("kafka-4.3.1") / "clean" / directory.name).glob("*.snapshot"))
        if directory.name == "__cluster_metadata-0" or not snapshots:
            continue
        state = BulkState()
        for path in sorted(directory.glob("*.log")):
            with open_segment(path) as segment:
                replay_segment(segment, state)
        written = snapshots[-1].read_bytes()
        assert encode_snapshot(state.entries()) == written, directory
        assert state.map_end_offset == int(snapshots[-1].stem)
        counts.append(len(parse_snapshot(written)))
    assert (len(counts), sum(each > 0 for each in counts), sum(counts)) == (21, 14, 60)
