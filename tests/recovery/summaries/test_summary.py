"""Summaries of pieces: against kafka-dump-log's words, a plain definition, and any split."""

from __future__ import annotations

import shutil
import tracemalloc
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recovery.summaries.summary
from recovery.summaries.codec import PACKED_VERSION, pack_summary, unpack_summary
from recovery.summaries.partition import PartitionSummary, ReadPiece, join_partition
from recovery.summaries.segment import PieceSummary, read_split, summarize_split
from recovery.summaries.settled_epochs import Sequences
from recovery.summaries.summary import (
    MAX_BUCKETS,
    NAMES,
    Before,
    Piece,
    Summarizer,
    Summary,
    SummaryRows,
    fingerprint,
    join_fingerprints,
    merge,
    merge_all,
)
from storage.errors import AccessError, CorruptError, UnsupportedError
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.formats.record_batch import CRC, CRC_POS, BatchHeader, compute_crc
from storage.kernels.layouts import empty_table
from storage.kernels.numpy_kernel import rows_of as rows_in
from storage.kernels.numpy_kernel import table_of
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.places.list_places import list_places, open_place
from storage.places.listing import UNSEQUENCED_TOPICS
from storage.places.splits import Split, split_places
from tests.audit_logs import CONTROL_KINDS, Batch, define_all, encoded, write_segments
from tests.batches import LAP
from tests.dump_counts import counts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

STATES = ["crash", "recovered", "clean", "hard", "hard-clean", "tv2", "tv2-clean"]


def summarize_path(path: Path, split_bytes: int = 1 << 30) -> PartitionSummary:
    """What a local engine does: split by split, joined in order."""
    splits = split_places(list_places([str(path)]).places, split_bytes)
    return join_partition(ReadPiece(each, repacked(read_split(each))) for each in splits)


def repacked(piece: PieceSummary) -> PieceSummary:
    return piece._replace(summary=unpack_summary(pack_summary(piece.summary)))


# --- against kafka-dump-log -----------------------------------------------------------------------


def check_dumps(root: Path, dumps: Path, split_bytes: int) -> dict[str, int]:
    names = sorted(path.name for path in dumps.iterdir() if path.is_dir())
    assert names
    totals: dict[str, int] = {}
    for name in names:
        found = summarize_path(root / name, split_bytes)
        expected = counts_of(dumps / name)
        figures = found.summary.figures()
        assert {each: figures[each] for each in expected} == expected, name
        assert (found.damage.is_corrupt, found.damage.is_unreadable) == (False, False)
        for each, value in figures.items():
            totals[each] = totals.get(each, 0) + (value or 0)
    return totals


@pytest.mark.share(2)
@pytest.mark.parametrize("split_bytes", [1, 20_000, 1 << 30])
@pytest.mark.parametrize("state", STATES)
def test_golden_states(golden: Callable[[str], Path], state: str, split_bytes: int) -> None:
    root, dumps = golden("kafka-4.3.1") / state, golden("kafka-4.3.1.dump") / state
    totals = check_dumps(root, dumps, split_bytes)
    open_counts = {"hard": 106, "hard-clean": 104, "tv2": 0, "tv2-clean": 0}
    assert totals["open_transactions"] == open_counts.get(state, 2)
    assert totals["committed_transactions"] > 50
    assert totals["aborted_batches"] > 50
    assert totals["late_batches"] == 0


@pytest.mark.parametrize("broker", ["1", "2", "3"])
@pytest.mark.parametrize("state", ["diverged", "after"])
def test_golden_brokers(golden: Callable[[str], Path], state: str, broker: str) -> None:
    place = f"{state}/broker-{broker}"
    root = golden("kafka-4.3.1-three-brokers") / place
    check_dumps(root, golden("kafka-4.3.1-three-brokers.dump") / place, 1 << 30)


def test_golden_legacy(golden: Callable[[str], Path]) -> None:
    root, dumps = golden("kafka-0.10.2-legacy"), golden("kafka-0.10.2-legacy.dump")
    assert check_dumps(root, dumps, 1 << 30)["records"] > 100


# --- a plain definition ---------------------------------------------------------------------------


def rows_of(batches: Sequence[Batch], first_offset: int = 0, top_offset: int = -1) -> SummaryRows:
    scanned = []
    offset = first_offset
    for each in batches:
        is_control = each.kind in CONTROL_KINDS
        attributes = 0x30 if is_control else 0x10 if each.kind == "txn" else 0
        count = 1 if is_control else each.count
        header = BatchHeader(
            base_offset=offset,
            batch_length=88,
            partition_leader_epoch=0,
            magic=2,
            crc=offset % 2**32,
            attributes=attributes,
            last_offset_delta=count - 1,
            base_timestamp_ms=0,
            max_timestamp_ms=1000 + offset,
            producer_id=each.pid,
            producer_epoch=each.epoch,
            base_sequence=-1 if is_control else each.sequence,
            records_count=count,
        )
        scanned.append(ScannedBatch(offset * 100, header, each.kind != "corrupt"))
        offset += count
    table = table_of(scanned)
    return SummaryRows(
        table,
        np.array([CONTROL_KINDS.get(each.kind, NO_MARKER) for each in batches], np.int8),
        table.records_count.astype(np.int64),
        np.asarray(table.base_offset <= top_offset),
        np.zeros(table.row_count, np.bool_),
    )


def size_of(batches: Sequence[Batch]) -> int:
    return sum(1 if each.kind in CONTROL_KINDS else each.count for each in batches)


def summary_of(
    batches: Sequence[Batch], first_offset: int = 0, before: Before | None = None
) -> Summary:
    summarizer = Summarizer(before=before)
    top_offset = -1 if before is None else before.top_offset
    if batches:
        summarizer.add(rows_of(batches, first_offset, top_offset))
    return summarizer.finish()


def piece_of(batches: Sequence[Batch], first_offset: int = 0) -> Piece:
    summary = unpack_summary(pack_summary(summary_of(batches, first_offset)))
    return Piece(summary, lambda before: summary_of(batches, first_offset, before))


sequences = st.one_of(
    st.integers(0, 12),
    st.integers(LAP - 6, LAP - 1),
    st.sampled_from([-1, LAP // 2 - 1, LAP // 2, LAP // 2 + 1, LAP // 4]),
)
some_batches = st.lists(
    st.builds(
        Batch,
        pid=st.sampled_from([1, 1, 1, 2, 7, 2**63 - 1, -1]),
        epoch=st.sampled_from([0, 0, 0, 1, 2, 32767, -1, -32768]),
        sequence=sequences,
        count=st.integers(1, 5),
        kind=st.sampled_from(
            ["data", "txn", "txn", "txn", "commit", "abort", "control", "corrupt"]
        ),
    ),
    max_size=30,
)
# Each transaction an epoch of its own: what is settled, and sometimes comes back.
step_batches = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(["commit", "abort", ""])),
    max_size=12,
).map(
    lambda steps: [
        batch
        for epoch, (count, again, end) in enumerate(steps)
        for batch in (
            *(Batch(3, max(epoch - (again == 3), 0), n, 1, "txn") for n in range(count)),
            *([Batch(3, epoch + 1, kind=end)] if end else []),
            *([Batch(5, epoch, again, 2)] if again else []),
        )
    ]
)
splits = st.lists(st.integers(0, 30), max_size=4).map(sorted)


def cut(batches: list[Batch], places: list[int]) -> list[Piece]:
    edges = [0, *(min(each, len(batches)) for each in places), len(batches)]
    return [piece_of(batches[a:b], size_of(batches[:a])) for a, b in pairwise(edges)]


def found_in(summary: Summary) -> tuple[list[tuple[int, ...]], list[tuple[int, str]]]:
    gaps = summary.gaps()
    rows = [tuple(row) for row in zip(*(column.tolist() for column in gaps[:5]), strict=True)]
    violations = summary.violations
    names = [NAMES[kind] for kind in violations["kind"].tolist()]
    return rows, sorted(zip(violations["offset"].tolist(), names, strict=True))


@given(st.one_of(some_batches, step_batches))
def test_the_definition(batches: list[Batch]) -> None:
    summary, expected = summary_of(batches), define_all(batches)
    assert summary.figures() == expected.figures
    assert found_in(summary) == (expected.gaps, expected.violations)


@given(st.one_of(some_batches, step_batches), splits)
def test_any_split_merges_to_the_whole(batches: list[Batch], places: list[int]) -> None:
    whole = pack_summary(summary_of(batches))
    pieces = cut(batches, places)
    joined = pieces[0]
    for piece in pieces[1:]:
        joined = merge(joined, piece)
    assert pack_summary(joined.summary) == whole
    joined = pieces[-1]
    for piece in reversed(pieces[:-1]):
        joined = merge(piece, joined)
    assert pack_summary(joined.summary) == whole
    assert pack_summary(merge_all(pieces)) == whole


@given(st.one_of(some_batches, step_batches), splits, st.integers(1, 5))
def test_blocks_of_any_size(batches: list[Batch], places: list[int], block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery.summaries.summary, "MAX_BLOCK_ROWS", block_rows)
        summarizer = Summarizer()
        edges = [0, *(min(each, len(batches)) for each in places), len(batches)]
        for a, b in pairwise(edges):
            if a < b:
                summarizer.add(rows_of(batches[a:b], size_of(batches[:a])))
        assert pack_summary(summarizer.finish()) == pack_summary(summary_of(batches))


def test_every_violation_at_a_seam() -> None:
    for left, right, figure in (
        ([Batch(1, 0, 0, 2)], [Batch(1, 0, 1, 2)], "duplicate_batches"),
        ([Batch(1, 0, 0, 2)], [Batch(1, 0, 3, 2)], "gaps"),
        ([Batch(1, 0, 0, 2)], [Batch(1, 1, 3, 2)], "gaps"),
        ([Batch(1, 1, 0, 2)], [Batch(1, 0, 0, 2)], "epoch_regressions"),
        ([Batch(1, 1, kind="abort")], [Batch(1, 0, 5, 1, "txn")], "late_batches"),
        ([Batch(1, 0, 0, 1, "txn")], [Batch(1, 0, kind="abort")], "aborted_transactions"),
    ):
        apart = [piece_of(left), piece_of(right, size_of(left))]
        whole = summary_of([*left, *right])
        assert whole.figures()[figure], figure
        assert pack_summary(merge_all(apart)) == pack_summary(whole)
        alone = [piece.summary.figures()[figure] or 0 for piece in apart]
        assert sum(alone) != whole.figures()[figure], figure


def test_long_logs_with_many_repetitions() -> None:
    random = np.random.default_rng(7)
    batches = [
        Batch(int(pid), int(epoch), int(sequence), int(count), "txn")
        for pid, epoch, sequence, count in zip(
            random.integers(0, 5, 3000),
            random.integers(0, 2, 3000),
            random.integers(0, 4000, 3000),
            random.integers(1, 40, 3000),
            strict=True,
        )
    ]
    expected = define_all(batches)
    assert 500 < expected.figures["duplicate_batches"] < 3000
    summary = summary_of(batches)
    assert summary.figures() == expected.figures
    _, violations = found_in(summary)
    assert violations == expected.violations[:1000]
    assert pack_summary(merge_all(cut(batches, [700, 1500, 1501]))) == pack_summary(summary)


def test_a_producer_that_goes_round_repeats_nothing() -> None:
    step = LAP // 16
    lap = [Batch(sequence=n * step, count=step) for n in range(16)]
    assert summary_of([*lap, *lap, *lap]).duplicate_batches == 0
    around = [Batch(sequence=LAP - 2, count=4)]
    assert summary_of([*lap, *around, Batch(sequence=1)]).duplicate_batches == 2
    pieces = [piece_of(lap), piece_of(lap, LAP)]
    assert merge_all(pieces).figures() == summary_of([*lap, *lap]).figures()


def test_a_producer_without_epoch_or_id_is_no_other() -> None:
    batches = [Batch(), Batch(epoch=1), Batch(pid=2), Batch(pid=-1), Batch(pid=-1), Batch()]
    assert summary_of(batches).duplicate_batches == 1


def test_unknown_if_the_batches_cannot_be_read_again() -> None:
    def gone(first_offset: int) -> Piece:
        return Piece(summary_of([Batch()], first_offset), lambda _: None)

    assert merge_all([gone(0), gone(1)]).duplicate_batches is None
    assert merge_all([gone(0), gone(1), piece_of([], 2)]).duplicate_batches is None
    assert merge(gone(0), piece_of([Batch(sequence=1)], 1)).summary.duplicate_batches == 0
    again = merge(gone(0), gone(1)).reread(Before(Sequences(), -1))
    assert again is None


def transactions(count: int, sizes: Sequence[int], outcomes: Sequence[str]) -> list[Batch]:
    """Transactions of version 2: an epoch each, and a new producer when the epochs are used up."""
    batches = []
    for n in range(count):
        pid, epoch = divmod(n, 32767)
        batches += [Batch(pid, epoch, 0, sizes[n % len(sizes)], "txn")]
        batches += [Batch(pid, epoch + 1, kind=outcomes[n % len(outcomes)])]
    return batches


def nbytes_of(summary: Summary) -> int:
    columns = [*summary.sequences.ranges, *summary.sequences.settled, *summary.fingerprint[1:]]
    return sum(each.nbytes for each in (*columns, summary.producers, summary.ended))


def test_finished_transactions_leave_few_bytes() -> None:
    """With sizes and outcomes that never repeat, the worst case, 8 bytes are left of each."""
    batches = transactions(40_000, [1, 2, 3], ["commit", "abort", "commit", "commit", "abort"])
    summary = summary_of(batches)
    assert summary.figures()["committed_transactions"] == 24_000
    assert nbytes_of(summary) < 40_000 * 8.3 + 40_000
    assert len(pack_summary(summary)) < 40_000 * 8
    alike = summary_of(transactions(40_000, [1], ["commit"]))
    assert nbytes_of(alike) < 60_000


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_million_finished_transactions_stay_under_10_mib() -> None:
    """In columns, as nobody wants to wait for a million Python objects."""
    random = np.random.default_rng(6)
    count, block = 1_000_000, 25_000
    summarizer = Summarizer()
    for first in range(0, count, block):
        number = np.arange(first, first + block)
        sizes = random.integers(1, 1000, block)
        summarizer.add(transaction_rows(number, sizes, random.integers(COMMIT, ABORT + 1, block)))
    summary = summarizer.finish()
    figures = summary.figures()
    ended = (figures["committed_transactions"] or 0) + (figures["aborted_transactions"] or 0)
    assert (ended, figures["open_transactions"], figures["gaps"]) == (count, 0, 0)
    assert nbytes_of(summary) < 10 << 20
    assert len(pack_summary(summary)) < 10 << 20


def transaction_rows(
    number: NDArray[np.int64], sizes: NDArray[np.int64], outcome: NDArray[np.int64]
) -> SummaryRows:
    """Two batches for each transaction: data and marker."""
    count = 2 * len(number)
    is_marker = np.arange(count) % 2 == 1
    both = np.repeat(number, 2)
    table = empty_table()
    columns = {name: np.zeros(count, column.dtype) for name, column in table._asdict().items()}
    columns["base_offset"] = both * 2000 + is_marker * 1500
    columns["last_offset"] = columns["base_offset"] + np.where(
        is_marker, 0, np.repeat(sizes, 2) - 1
    )
    columns["magic"][:] = 2
    columns["attributes"][:] = np.where(is_marker, 0x30, 0x10)
    columns["producer_id"] = both // 32767
    columns["producer_epoch"] = (both % 32767 + is_marker).astype(np.int16)
    columns["base_sequence"][:] = np.where(is_marker, -1, 0)
    columns["crc_ok"][:] = True
    marker = np.where(is_marker, np.repeat(outcome, 2), NO_MARKER).astype(np.int8)
    records_count = np.where(is_marker, 1, np.repeat(sizes, 2))
    never = np.zeros(count, np.bool_)
    return SummaryRows(HeaderTable(**columns), marker, records_count, never, never)


def test_many_small_summaries_take_little_memory() -> None:
    """An audit keeps one for each partition."""
    packed = pack_summary(summary_of([]))
    unpack_summary(packed)
    tracemalloc.start()
    try:
        kept = [unpack_summary(packed) for _ in range(200)]
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept_bytes < len(kept) * 8000


def test_what_is_no_packed_summary() -> None:
    good = pack_summary(Summary())
    with pytest.raises(UnsupportedError):
        unpack_summary(zlib.compress(b"\x92\x63\x00"))
    no_columns = zlib.compress(bytes([0x92, PACKED_VERSION, 0]))
    for data in (b"", b"\xc1", zlib.compress(b"\x01"), no_columns, good[:-1]):
        with pytest.raises(CorruptError):
            unpack_summary(data)


# --- fingerprints ---------------------------------------------------------------------------------


@given(st.integers(1, 4000), st.integers(0, 40), st.data())
def test_fingerprints_of_any_split(count: int, step_bits: int, data: st.DataObject) -> None:
    base_offset = np.arange(count) << step_bits
    table = HeaderTable._make(np.zeros(count, column.dtype) for column in empty_table())
    table = table._replace(base_offset=base_offset, crc=np.arange(count, dtype=np.uint32))
    place = data.draw(st.integers(0, count))
    left, right = fingerprint(rows_in(table, 0, place)), fingerprint(rows_in(table, place, count))
    whole = fingerprint(table)
    joined = join_fingerprints(left, right)
    assert joined.width_bits == whole.width_bits
    assert all(np.array_equal(a, b) for a, b in zip(joined[1:], whole[1:], strict=True))
    assert 0 < len(whole.bucket) <= MAX_BUCKETS
    changed = table._replace(crc=table.crc + (base_offset == base_offset[place // 2]))
    differs = fingerprint(changed).hashes != whole.hashes
    assert whole.bucket[differs].tolist() == [base_offset[place // 2] >> whole.width_bits]


# --- files ----------------------------------------------------------------------------------------


def test_transactions_and_duplicates_across_segments(tmp_path: Path) -> None:
    segments = [
        [Batch(1, 0, 0, 3, "txn"), Batch(2, 0, 0, 2), Batch(3, 0, 0, 1, "txn")],
        [Batch(1, 0, 3, 2, "txn"), Batch(2, 0, 2, 2), Batch(2, 0, 0, 2)],
        [Batch(1, kind="abort"), Batch(2, 0, 3, 1), Batch(2, 0, 4, 1), Batch(2, 0, 1, 1)],
        [Batch(1, kind="commit"), Batch(3, kind="commit"), Batch(1, 0, 5, 1, "txn")],
    ]
    found = summarize_path(write_segments(tmp_path / "t-0", *segments))
    expected = define_all([batch for segment in segments for batch in segment])
    figures = found.summary.figures()
    assert {**figures, "bytes": 0} == {**expected.figures, "bytes": 0}
    assert figures["bytes"] == sum(path.stat().st_size for path in (tmp_path / "t-0").iterdir())
    assert (figures["aborted_batches"], figures["duplicate_batches"]) == (2, 3)
    assert found_in(found.summary) == (expected.gaps, expected.violations)
    assert found.findings_count == 0


def hand_splits(path: Path, edges: list[int]) -> list[Split]:
    """Splits at any batch boundaries."""
    (place,) = list_places([str(path)]).places
    edges = [0, *edges, place.file_bytes]
    return [
        Split(place, start, end, is_last=number == len(edges) - 2)
        for number, (start, end) in enumerate(pairwise(edges))
    ]


def edges_of(path: Path) -> list[int]:
    (place,) = list_places([str(path)]).places
    with open_place(place) as segment:
        return [each.pos for each in segment.scan()][1:]


@given(st.one_of(some_batches, step_batches), st.sets(st.integers(0, 40)), st.data())
def test_any_split_of_a_file(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[Batch],
    places: set[int],
    data: st.DataObject,
) -> None:
    directory = write_segments(tmp_path_factory.mktemp("log") / "t-0", batches)
    (log,) = directory.iterdir()
    content = bytearray(log.read_bytes())
    edges = edges_of(directory)
    if content and data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    log.write_bytes(content)
    whole = read_split(*hand_splits(directory, []))
    chosen = [edge for number, edge in enumerate(edges) if number in places]
    pieces = [ReadPiece(each, read_split(each)) for each in hand_splits(directory, chosen)]
    joined = join_partition(pieces)
    assert pack_summary(joined.summary) == pack_summary(whole.summary)
    assert joined.findings == whole.findings


def test_internal_topics_repeat_sequences(tmp_path: Path) -> None:
    segments = [[Batch(kind="txn")], [Batch(kind="txn"), Batch(kind="commit")]]
    found = summarize_path(write_segments(tmp_path / "t-0", *segments))
    assert found.summary.duplicate_batches == 1
    for topic in UNSEQUENCED_TOPICS:
        figures = summarize_path(
            write_segments(tmp_path / f"{topic}-0", *segments)
        ).summary.figures()
        assert (figures["duplicate_batches"], figures["committed_transactions"]) == (0, 1)


def test_a_copy_at_the_same_offsets_is_damage_and_no_duplicate(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(sequence=n) for n in range(3)])
    (log,) = directory.iterdir()
    log.write_bytes(log.read_bytes() * 2)
    found = summarize_path(directory)
    assert (found.summary.counts.batches, found.summary.duplicate_batches) == (6, 0)
    assert found.damage.is_corrupt


def test_a_copy_in_the_next_segment_is_no_duplicate(tmp_path: Path) -> None:
    """An overlap of segments, as a cleaner that was killed leaves it (SEG-9)."""
    directory = write_segments(tmp_path / "t-0", [Batch(sequence=n) for n in range(4)], [Batch(2)])
    (first, last) = sorted(directory.iterdir())
    size = first.stat().st_size // 4
    (directory / f"{2:020d}.log").write_bytes(first.read_bytes()[2 * size :] + last.read_bytes())
    last.unlink()
    found = summarize_path(directory)
    assert (found.summary.counts.batches, found.summary.duplicate_batches) == (7, 0)


def test_damaged_batches_are_counted_apart(golden: Callable[[str], Path], tmp_path: Path) -> None:
    directory = tmp_path / "txn-0"
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "txn-0", directory)
    (log,) = directory.glob("*.log")
    log.chmod(0o644)
    right = summarize_path(directory).summary
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    for split_bytes in (1, 1 << 30):
        found = summarize_path(directory, split_bytes)
        counts = found.summary.counts
        assert (counts.corrupt_batches, found.findings_count) == (1, 1)
        assert (found.damage.is_corrupt, found.damage.is_unreadable) == (True, False)
        (finding,) = found.findings
        assert (finding.start_pos, finding.base_offset, finding.check_id) == (0, 0, "BAT-1")
        assert finding.last_offset == 0
        assert str(finding).startswith(f"{log}: positions 0 to ")
        assert counts.batches == right.counts.batches - 1
        assert counts.transactional_batches == right.counts.transactional_batches - 1


def test_offsets_around_damage(tmp_path: Path) -> None:
    directory = write_segments(
        tmp_path / "t-0", [Batch(sequence=n, count=2) for n in range(0, 20, 2)]
    )
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    size = len(data) // 10
    data[3 * size + 70] ^= 1
    data[9 * size + 70] ^= 1
    log.write_bytes(data)
    found = summarize_path(directory)
    places = [(each.start_pos, each.base_offset, each.last_offset) for each in found.findings]
    assert places == [(3 * size, 6, 7), (9 * size, 18, None)]


def test_a_marker_that_does_not_decode_ends_nothing(tmp_path: Path) -> None:
    batches = [
        Batch(kind="txn"),
        Batch(kind="abort"),
        Batch(2, kind="txn"),
        Batch(2, kind="commit"),
    ]
    directory = write_segments(tmp_path / "t-0", batches)
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    start = len(encoded(batches[0], 0))
    end = start + len(encoded(batches[1], 1))
    broken = data[start:end]
    broken[66:68] = b"\xff\xff"  # version of the key
    CRC.pack_into(broken, CRC_POS, compute_crc(bytes(broken)))
    log.write_bytes(data[:start] + broken + data[end:])
    found = summarize_path(directory)
    figures = found.summary.figures()
    assert (figures["open_transactions"], figures["aborted_batches"]) == (1, 0)
    assert (figures["control_batches"], figures["committed_transactions"]) == (2, 1)
    assert found.damage.is_corrupt
    assert "BAT-12" in str(found.findings[0])


def test_empty_and_torn_segments(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [])
    assert summarize_path(directory).summary.counts.batches == 1
    last = max(directory.iterdir())
    last.write_bytes(encoded(Batch(sequence=1), 1) + encoded(Batch(sequence=2), 2)[:-1])
    found = summarize_path(directory)
    assert found.summary.counts.batches == 2
    assert (found.damage.is_corrupt, found.findings_count) == (False, 1)
    assert "torn_tail" in str(found.findings[0])


def test_findings_are_limited(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(sequence=n) for n in range(2100)])
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    for pos in range(66, len(data), 2 * len(data) // 2100):
        data[pos] ^= 1
    log.write_bytes(data)
    found = summarize_path(directory)
    assert found.summary.counts.corrupt_batches == found.findings_count == 1050
    assert len(found.findings) == 1000


def test_files_that_are_not_there(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    splits = split_places(list_places([str(directory)]).places, 1 << 30)
    min(directory.iterdir()).unlink()
    with pytest.raises(AccessError):
        summarize_split(splits[0])
    found = join_partition(ReadPiece(each, read_split(each)) for each in splits)
    assert (found.summary.counts.batches, found.findings_count) == (1, 0)
    assert (found.damage.is_corrupt, found.damage.is_unreadable) == (False, False)
    assert str(found.findings[0]).endswith("removed since the directory was listed")


def test_a_corrupt_batch_with_a_high_offset_hides_no_duplicate(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(), Batch(sequence=1), Batch()])
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    size = len(data) // 3
    data[size : size + 8] = (1_000_000).to_bytes(8, "big")
    data[2 * size - 1] ^= 1
    log.write_bytes(data)
    summary = summarize_path(directory).summary
    assert (summary.counts.corrupt_batches, summary.duplicate_batches) == (1, 1)
