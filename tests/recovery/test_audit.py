"""Audits of pieces: against kafka-dump-log's words, a plain definition, and any split."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recovery.audit
from recovery.audit import (
    SUMMARY_FIELDS,
    UNSEQUENCED_TOPICS,
    AuditedPiece,
    Auditor,
    AuditRows,
    PieceAudit,
    merge,
    merge_all,
    pack_audit,
    unpack_audit,
)
from recovery.segment_audit import SegmentAudit, audit_segment
from recovery.transaction_counts import NO_MARKER
from storage.discovery import discover
from storage.errors import AccessError, CorruptError, UnsupportedError
from storage.formats.record_batch import CRC, CRC_POS, BatchHeader, compute_crc
from storage.kernels.numpy_kernel import table_of
from storage.kernels.protocol import ScannedBatch
from storage.partition import Partition
from tests.audit_logs import CONTROL_KINDS, LAP, Batch, define, encoded, write_segments
from tests.dump_counts import counts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recovery.sequence_ranges import SequenceRanges

STATES = ["crash", "recovered", "clean", "hard", "hard-clean", "tv2", "tv2-clean"]


def audit_directory(partition: Partition) -> tuple[PieceAudit, list[SegmentAudit]]:
    """What a local engine does: segment by segment, joined in order."""
    has_sequences = partition.topic not in UNSEQUENCED_TOPICS
    found, pieces = [], []
    for files in partition.segments:

        def read(before: SequenceRanges | None, files: Any = files) -> SegmentAudit:
            return audit_segment(
                files.log.path,
                is_active=partition.is_active(files),
                has_sequences=has_sequences,
                before=before,
            )

        found.append(read(None))
        packed = unpack_audit(pack_audit(found[-1].audit))
        pieces.append(AuditedPiece(packed, lambda b, r=read: r(b).audit.duplicate_batches))
    return merge_all(pieces), found


def audit_path(path: Path) -> tuple[PieceAudit, list[SegmentAudit]]:
    (selected,) = discover([path]).selected
    return audit_directory(Partition.of(selected))


# --- against kafka-dump-log -----------------------------------------------------------------------


def check_dumps(root: Path, dumps: Path) -> dict[str, int]:
    totals = dict.fromkeys(SUMMARY_FIELDS, 0)
    names = sorted(path.name for path in dumps.iterdir() if path.is_dir())
    assert names
    for name in names:
        whole, found = audit_path(root / name)
        expected = counts_of(dumps / name)
        assert whole.summary() == expected, name
        assert [each.notes for each in found if each.is_corrupt or each.is_unreadable] == []
        totals = {each: totals[each] + expected[each] for each in totals}
    return totals


@pytest.mark.parametrize("state", STATES)
def test_golden_states(golden: Callable[[str], Path], state: str) -> None:
    totals = check_dumps(golden("kafka-4.3.1") / state, golden("kafka-4.3.1.dump") / state)
    open_counts = {"hard": 106, "hard-clean": 104, "tv2": 0, "tv2-clean": 0}
    assert totals["open_transactions"] == open_counts.get(state, 2)
    assert totals["committed_transactions"] > 50
    assert totals["aborted_batches"] > 50


@pytest.mark.parametrize("broker", ["1", "2", "3"])
@pytest.mark.parametrize("state", ["diverged", "after"])
def test_golden_brokers(golden: Callable[[str], Path], state: str, broker: str) -> None:
    place = f"{state}/broker-{broker}"
    dumps = golden("kafka-4.3.1-three-brokers.dump") / place
    assert check_dumps(golden("kafka-4.3.1-three-brokers") / place, dumps)["batches"] > 0


def test_golden_legacy(golden: Callable[[str], Path]) -> None:
    totals = check_dumps(golden("kafka-0.10.2-legacy"), golden("kafka-0.10.2-legacy.dump"))
    assert totals["records"] > totals["batches"] > 0


# --- a definition, one batch at a time ------------------------------------------------------------


def rows_of(batches: Sequence[Batch], first_offset: int = 0) -> AuditRows:
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
            crc=0,
            attributes=attributes,
            last_offset_delta=count - 1,
            base_timestamp_ms=0,
            max_timestamp_ms=0,
            producer_id=each.pid,
            producer_epoch=each.epoch,
            base_sequence=-1 if is_control else each.sequence,
            records_count=count,
        )
        scanned.append(ScannedBatch(offset * 100, header, each.kind != "corrupt"))
        offset += count
    markers = [CONTROL_KINDS.get(each.kind, NO_MARKER) for each in batches]
    table = table_of(scanned)
    return AuditRows(
        table,
        np.array(markers, np.int8),
        table.records_count.astype(np.int64),
        np.zeros(len(batches), np.bool_),
    )


def audit_of(batches: Sequence[Batch], before: SequenceRanges | None = None) -> PieceAudit:
    auditor = Auditor(before=before)
    auditor.add(rows_of(batches))
    return auditor.finish()


sequences = st.one_of(
    st.integers(0, 12),
    st.integers(LAP - 6, LAP - 1),
    st.sampled_from([-1, LAP // 2 - 1, LAP // 2, LAP // 2 + 1, LAP // 4]),
)
some_batches = st.lists(
    st.builds(
        Batch,
        pid=st.sampled_from([1, 1, 1, 2, 7, 2**63 - 1, -1]),
        epoch=st.sampled_from([0, 0, 0, 1, 32767]),
        sequence=sequences,
        count=st.integers(1, 5),
        kind=st.sampled_from(
            ["data", "txn", "txn", "txn", "commit", "abort", "control", "corrupt"]
        ),
    ),
    max_size=30,
)
splits = st.lists(st.integers(0, 30), max_size=4).map(sorted)


class Piece(NamedTuple):
    batches: Sequence[Batch]
    audit: PieceAudit


def join(left: Piece, right: Piece) -> Piece:
    def recount(before: SequenceRanges) -> int | None:
        return audit_of(right.batches, before).duplicate_batches

    batches = [*left.batches, *right.batches]
    return Piece(batches, merge(left.audit, right.audit, recount))


def cut(batches: list[Batch], places: list[int]) -> list[Piece]:
    edges = [0, *(min(each, len(batches)) for each in places), len(batches)]
    parts = [batches[a:b] for a, b in pairwise(edges)]
    return [Piece(part, unpack_audit(pack_audit(audit_of(part)))) for part in parts]


@given(some_batches)
def test_the_definition(batches: list[Batch]) -> None:
    assert audit_of(batches).summary() == define(batches)


@given(some_batches, splits)
def test_any_split_merges_to_the_whole(batches: list[Batch], places: list[int]) -> None:
    whole = pack_audit(audit_of(batches))
    pieces = cut(batches, places)
    joined = pieces[0]
    for piece in pieces[1:]:
        joined = join(joined, piece)
    assert pack_audit(joined.audit) == whole
    joined = pieces[-1]
    for piece in reversed(pieces[:-1]):
        joined = join(piece, joined)
    assert pack_audit(joined.audit) == whole


@given(some_batches, splits, st.integers(1, 5))
def test_blocks_of_any_size(batches: list[Batch], places: list[int], block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery.audit, "MAX_BLOCK_ROWS", block_rows)
        auditor = Auditor()
        for piece in cut(batches, places):
            auditor.add(rows_of(piece.batches))
        assert pack_audit(auditor.finish()) == pack_audit(audit_of(batches))


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
    expected = define(batches)
    assert 500 < expected["duplicate_batches"] < 3000
    assert audit_of(batches).summary() == expected


def test_a_producer_that_goes_round_repeats_nothing() -> None:
    step = LAP // 16
    lap = [Batch(sequence=n * step, count=step) for n in range(16)]
    assert audit_of([*lap, *lap, *lap]).duplicate_batches == 0
    around = [Batch(sequence=LAP - 2, count=4)]
    assert audit_of([*lap, *around, Batch(sequence=1)]).duplicate_batches == 2
    assert join(Piece(lap, audit_of(lap)), Piece(lap, audit_of(lap))).audit.duplicate_batches == 0


def test_a_producer_without_epoch_or_id_is_no_other() -> None:
    batches = [Batch(), Batch(epoch=1), Batch(pid=2), Batch(pid=-1), Batch(pid=-1), Batch()]
    assert audit_of(batches).duplicate_batches == 1


def test_unknown_without_a_recount() -> None:
    piece = audit_of([Batch()])
    assert merge(piece, piece).duplicate_batches is None
    assert merge(merge(piece, piece), audit_of([])).duplicate_batches is None
    assert merge(piece, audit_of([Batch(sequence=1)])).duplicate_batches == 0


def test_size_grows_with_producers_only() -> None:
    def packed_bytes(count: int) -> int:
        batches = []
        for n in range(count):
            batches += [Batch(n % 3, 0, n // 3, 1, "txn"), Batch(n % 3, kind="commit")]
        return len(pack_audit(audit_of(batches)))

    assert packed_bytes(30_000) <= packed_bytes(300) + 30


def test_what_is_no_packed_audit() -> None:
    with pytest.raises(UnsupportedError):
        unpack_audit(b"\x92\x63\x00")
    for data in (b"", b"\xc1", b"\x01", b"\x92\x01\x00", pack_audit(PieceAudit())[:-1]):
        with pytest.raises(CorruptError):
            unpack_audit(data)


# --- files ----------------------------------------------------------------------------------------


def test_transactions_and_duplicates_across_segments(tmp_path: Path) -> None:
    segments = [
        [Batch(1, 0, 0, 3, "txn"), Batch(2, 0, 0, 2), Batch(3, 0, 0, 1, "txn")],
        [Batch(1, 0, 3, 2, "txn"), Batch(2, 0, 2, 2), Batch(2, 0, 0, 2)],
        [Batch(1, kind="abort"), Batch(2, 0, 3, 1), Batch(2, 0, 4, 1), Batch(2, 0, 1, 1)],
        [Batch(1, kind="commit"), Batch(3, kind="commit"), Batch(1, 0, 5, 1, "txn")],
    ]
    whole, found = audit_path(write_segments(tmp_path / "t-0", *segments))
    expected = define([batch for segment in segments for batch in segment])
    summary = whole.summary()
    assert {**summary, "bytes": 0} == {**expected, "bytes": 0}
    assert summary["bytes"] == sum(path.stat().st_size for path in (tmp_path / "t-0").iterdir())
    assert (summary["aborted_batches"], summary["duplicate_batches"]) == (2, 3)
    assert (summary["aborted_transactions"], summary["committed_transactions"]) == (1, 1)
    assert summary["open_transactions"] == 1
    assert sum(each.problems_count for each in found) == 0


def test_internal_topics_repeat_sequences(tmp_path: Path) -> None:
    segments = [[Batch(kind="txn")], [Batch(kind="txn"), Batch(kind="commit")]]
    assert audit_path(write_segments(tmp_path / "t-0", *segments))[0].duplicate_batches == 1
    for topic in UNSEQUENCED_TOPICS:
        whole, _ = audit_path(write_segments(tmp_path / f"{topic}-0", *segments))
        assert (whole.duplicate_batches, whole.transactions.committed_transactions) == (0, 1)


def test_a_copy_at_the_same_offsets_is_damage_and_no_duplicate(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(sequence=n) for n in range(3)])
    (log,) = directory.iterdir()
    log.write_bytes(log.read_bytes() * 2)
    whole, (found,) = audit_path(directory)
    assert (whole.counts.batches, whole.duplicate_batches) == (6, 0)
    assert found.is_corrupt


def test_damaged_batches_are_counted_apart(golden: Callable[[str], Path], tmp_path: Path) -> None:
    directory = tmp_path / "txn-0"
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "txn-0", directory)
    (log,) = directory.glob("*.log")
    log.chmod(0o644)
    right, _ = audit_path(directory)
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    whole, (found,) = audit_path(directory)
    assert (whole.counts.corrupt_batches, found.problems_count) == (1, 1)
    assert (found.is_corrupt, found.is_unreadable) == (True, False)
    assert "position" in found.notes[0]
    assert whole.counts.batches == right.counts.batches - 1
    assert whole.counts.transactional_batches == right.counts.transactional_batches - 1


def test_a_marker_that_does_not_decode_ends_nothing(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(kind="txn"), Batch(kind="abort")])
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    start = len(encoded(Batch(kind="txn"), 0))
    broken = data[start:]
    broken[66:68] = b"\xff\xff"  # version of the key
    CRC.pack_into(broken, CRC_POS, compute_crc(bytes(broken)))
    log.write_bytes(data[:start] + broken)
    whole, (found,) = audit_path(directory)
    assert (whole.open_transactions, whole.transactions.aborted_batches) == (1, 0)
    assert whole.counts.control_batches == 1
    assert found.is_corrupt
    assert "CTL-1" in found.notes[0]


def test_empty_and_torn_segments(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [])
    whole, found = audit_path(directory)
    assert whole.counts.batches == 1
    last = max(directory.iterdir())
    last.write_bytes(encoded(Batch(sequence=1), 1) + encoded(Batch(sequence=2), 2)[:-1])
    whole, found = audit_path(directory)
    assert whole.counts.batches == 2
    assert (found[-1].is_corrupt, found[-1].problems_count) == (False, 1)
    assert "torn_tail" in found[-1].notes[0]


def test_notes_are_limited(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(sequence=n) for n in range(40)])
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    for pos in range(66, len(data), 2 * len(data) // 40):
        data[pos] ^= 1
    log.write_bytes(data)
    whole, (found,) = audit_path(directory)
    assert whole.counts.corrupt_batches == found.problems_count == 20
    assert len(found.notes) == 10


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        audit_segment(str(tmp_path / f"{0:020d}.log"))


def test_a_corrupt_batch_with_a_high_offset_hides_no_duplicate(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(), Batch(sequence=1), Batch()])
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    size = len(data) // 3
    data[size : size + 8] = (1_000_000).to_bytes(8, "big")
    data[2 * size - 1] ^= 1
    log.write_bytes(data)
    whole, _ = audit_path(directory)
    assert (whole.counts.corrupt_batches, whole.duplicate_batches) == (1, 1)
