"""The price of truncations, against a count of one record and one transaction at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

import recovery.truncate.cost as transactions_module
from recovery.replay.end_markers import read_marker
from recovery.replay.recover_state import recovery_price
from recovery.replay.snapshots import Clock
from recovery.truncate.cost import TruncationCost, estimate_truncation
from recovery.truncate.plan import Truncation, plan_truncation
from recovery.truncate.target import TargetKind, TargetRequest
from storage.dirs.cluster_image import load_cluster_image
from storage.dirs.log_dir import read_log_dir
from storage.formats.control_record import EndTxnMarker, encode_control_key, encode_end_txn_marker
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import encode_batch, parse_header
from storage.log.segment import open_segment
from storage.producers.producer_state import ProducerStateManager
from tests.batches import encoded_batch
from tests.truncations import (
    LOG_START,
    Log,
    carry_out,
    copy_log_dir,
    open_partition,
    read_tree,
    write_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.producers.producer_state import Marker

CLOCK = Clock(0)
# producer id, first offset, marker offset, kind
Transaction = tuple[int, int, int | None, str]


def plan(path: Path, offset: int) -> Truncation:
    request = TargetRequest(TargetKind.OFFSET, offset)
    return plan_truncation(open_partition(path), request, clock=CLOCK)


class Content(NamedTuple):
    """All that is in a log, one by one."""

    records: list[int]  # offsets of data
    batches: list[tuple[int, int]]  # base offset, bytes
    transactions: list[Transaction]
    data_of: dict[int, list[int]]  # producer id -> base offsets of its transactional batches
    states: dict[int, dict[int, tuple[int, int]]]  # offset -> producer id -> epoch, last sequence


def read_content(path: Path) -> Content:
    records: list[int] = []
    batches: list[tuple[int, int]] = []
    opened: dict[int, int] = {}
    ended: list[Transaction] = []
    data_of: dict[int, list[int]] = {}
    manager = ProducerStateManager()
    states: dict[int, dict[int, tuple[int, int]]] = {0: {}}
    for log in sorted(path.glob("*.log")):
        with open_segment(log) as segment:
            for batch in segment.scan():
                header = batch.header
                batches.append((header.base_offset, header.batch_bytes))
                marker: Marker | None = None
                if header.is_control:
                    marker = read_marker(segment, batch)
                    first = opened.pop(header.producer_id, None)
                    if first is not None:
                        kind = "commit" if marker.is_commit else "abort"
                        ended.append((header.producer_id, first, header.base_offset, kind))
                else:
                    records += [each.offset for each in segment.records(batch)]
                    if header.is_transactional:
                        opened.setdefault(header.producer_id, header.base_offset)
                        data_of.setdefault(header.producer_id, []).append(header.base_offset)
                done = manager.append(header, marker)
                if done is not None:
                    manager.complete(done)
                states[header.last_offset + 1] = {
                    each.producer_id: (each.producer_epoch, each.last_sequence)
                    for each in manager.entries()
                }
    ended += [(producer_id, first, None, "open") for producer_id, first in opened.items()]
    return Content(records, batches, ended, data_of, states)


def expected_transactions(content: Content, end: int) -> set[tuple[Transaction, str]]:
    found = set()
    for each in content.transactions:
        producer_id, first, marker_offset, _ = each
        if marker_offset is None:
            if first >= end:
                found.add((each, "removed"))
            elif any(base >= end for base in content.data_of[producer_id]):
                found.add((each, "shortened"))
        elif marker_offset >= end:
            found.add((each, "removed" if first >= end else "reopened"))
    return found


@pytest.mark.share(1)
@pytest.mark.parametrize(("state", "name"), [("crash", "txn-0"), ("clean", "txn-1")])
def test_at_every_batch(
    state: str, name: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """`crash` has two open transactions at its end, and a high watermark below it."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path, name)
    path = log_dir / name
    content = read_content(path)
    log = Log(read_tree(log_dir), name)
    seen = set()
    high_watermark = open_partition(path).high_watermark
    assert high_watermark is not None
    last_state = content.states[log.end_offset]
    for end in log.boundaries[:-1]:
        price = estimate_truncation(plan(path, end))
        assert (price.cut_start_offset, price.cut_end_offset) == (end, log.end_offset)
        assert price.batches_count == sum(base >= end for base, _ in content.batches)
        assert price.log_bytes == sum(size for base, size in content.batches if base >= end)
        cut = [each for each in content.records if each >= end]
        assert price.records_count == len(cut)
        acknowledged = sum(each < high_watermark for each in cut)
        assert price.acknowledged_records_count == acknowledged
        assert price.transactions is not None
        rows = {(each[:4], str(each.outcome)) for each in price.transactions}
        assert rows == expected_transactions(content, end)
        assert price.transactions_count is not None
        assert sum(price.transactions_count.values()) == len(price.transactions)
        seen |= {(str(each.kind), str(each.outcome)) for each in price.transactions}
        after = content.states[end]
        assert price.producers is not None
        assert {each.producer_id: each[1:] for each in price.producers} == {
            producer_id: (*known, *after.get(producer_id, (-1, -1)))
            for producer_id, known in last_state.items()
            if after.get(producer_id) != known
        }
        assert price.producers_count == len(price.producers)
    assert {"reopened", "removed"} <= {outcome for _, outcome in seen}
    if state == "crash":
        assert ("open", "removed") in seen


def test_an_open_transaction_is_shortened(golden: Callable[[str], Path], tmp_path: Path) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "txn-0")
    path = log_dir / "txn-0"
    log = path / f"{0:020d}.log"
    data = [encoded(329 + n, 77, sequence=n) for n in range(3)]
    log.write_bytes(log.read_bytes() + b"".join(data))
    price = estimate_truncation(plan(path, 330))
    assert price.transactions_count == {"reopened": 0, "removed": 0, "shortened": 1}
    assert price.transactions is not None
    assert [each[:4] for each in price.transactions] == [(77, 329, None, "open")]
    assert price.producers is not None
    assert [tuple(each) for each in price.producers] == [(77, 0, 2, 0, 0)]


def encoded(offset: int, producer_id: int, *, sequence: int = 0, marker: bool = False) -> bytes:
    key, value = None, b"value"
    if marker:
        key, value = encode_control_key(1), encode_end_txn_marker(EndTxnMarker(0, 0))
    return encoded_batch(
        offset,
        [Record(0, 0, 0, key, value, ())],
        attributes=0x30 if marker else 0x10,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1 if marker else sequence,
    )


def test_many_transactions_are_counted_and_some_listed(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_module, "MAX_LISTED_COUNT", 5)
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "txn-0")
    path = log_dir / "txn-0"
    opened = [encoded(n, n) for n in range(20)]
    ended = [encoded(20 + n, n, marker=True) for n in range(20)]
    again = [encoded(40 + n, n // 2, sequence=1, marker=n % 2 == 1) for n in range(20)]
    (path / f"{0:020d}.log").write_bytes(b"".join([*opened, *ended, *again]))
    price = estimate_truncation(plan(path, 22))
    assert price.transactions_count == {"reopened": 18, "removed": 10, "shortened": 0}
    assert price.transactions is not None
    assert [str(each.outcome) for each in price.transactions] == ["reopened"] * 5 + ["removed"] * 5


# --- bounds inside of batches, several segments ---------------------------------------------------


def test_log_start_and_high_watermark_inside_of_batches(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Five records a batch, three segments."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "rolled-0")
    path = log_dir / "rolled-0"
    for offset, records, below_52 in ((59, 5, 0), (47, 15, 7), (7, 55, 47), (0, 60, 52)):
        price = estimate_truncation(plan(path, offset), high_watermark=52)
        assert price.records_count == records
        assert price.acknowledged_records_count == below_52
    (log_dir / LOG_START).write_text("0\n1\nrolled 0 7\n")
    price = estimate_truncation(plan(path, 6), high_watermark=52)
    assert (price.cut_start_offset, price.records_count) == (5, 53)
    assert price.acknowledged_records_count == 45
    assert price.batches_count == 11
    assert price.producers is not None
    assert [tuple(each) for each in price.producers] == [(17, 0, 59, -1, -1)]


def test_of_nothing(golden: Callable[[str], Path]) -> None:
    price = estimate_truncation(plan(golden("kafka-4.3.1") / "clean" / "txn-0", 329))
    assert price.batches_count == price.records_count == price.log_bytes == 0
    assert price.acknowledged_records_count == 0
    assert price.transactions == price.producers == ()
    assert (price.cut_start_offset, price.cut_end_offset) == (329, 329)


# --- unknown is not 0 -----------------------------------------------------------------------------


def test_old_formats(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-0.10.2-legacy")
    price = estimate_truncation(plan(root / "v1-none-0", 53))
    assert (price.records_count, price.acknowledged_records_count) == (7, 7)
    price = estimate_truncation(plan(root / "v1-gzip-0", 53))
    assert (price.batches_count, price.records_count) == (1, None)
    assert price.acknowledged_records_count is None
    assert price.group_offsets is None
    price = estimate_truncation(plan(root / "v1-gzip-0", 53), high_watermark=48)
    assert price.acknowledged_records_count == 0


def test_damage_in_what_is_cut(golden: Callable[[str], Path], tmp_path: Path) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "rolled-0")
    path = log_dir / "rolled-0" / f"{25:020d}.log"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    price = estimate_truncation(plan(path.parent, 10))
    assert price.log_bytes > 0
    assert price.batches_count is price.records_count is price.acknowledged_records_count is None
    assert price.transactions is price.transactions_count is None
    assert str(path) in price.notes[0]
    # The snapshot at 50 tells the producers of the end all the same.
    assert price.producers_count == 1
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    assert estimate_truncation(plan(path.parent, 10)).producers is None


def test_a_marker_that_cannot_be_read(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Its checksum is right, so all is counted; what follows it says nothing of transactions."""
    path = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "txn-0") / "txn-0"
    log = path / f"{0:020d}.log"
    body = encode_record(Record(0, 0, 0, b"\0", b"", ()))
    header = parse_header(encoded(329, 77, marker=True), 0)
    log.write_bytes(log.read_bytes() + encode_batch(header, body) + encoded(330, 78))
    price = estimate_truncation(plan(path, 320))
    assert price.records_count is not None
    assert price.transactions is price.transactions_count is price.producers is None
    assert len(price.notes) == 2


def test_unknown_high_watermark_and_no_log_dir(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    price = estimate_truncation(plan(golden("kafka-4.3.1") / "crash" / "trimmed-0", 100))
    assert price.high_watermark is price.acknowledged_records_count is None
    assert (price.cut_start_offset, price.records_count) == (80, 220)
    copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "dir", "txn-0")
    (tmp_path / "dir" / "txn-0").rename(tmp_path / "txn-0")
    price = estimate_truncation(plan(tmp_path / "txn-0", 100))
    assert price.recovery is price.group_offsets is None


# --- groups, recovery, JSON -----------------------------------------------------------------------


def test_group_offsets_beyond_the_end(golden: Callable[[str], Path]) -> None:
    """`ctp` consumed `plain` in transactions."""
    root = golden("kafka-4.3.1") / "clean"
    image = load_cluster_image(open_partition(root / "__cluster_metadata-0"))
    seen: dict[str, set[int]] = {}
    for name, offset in (("plain-0", 1), ("plain-1", 1)):
        price = estimate_truncation(
            plan(root / name, offset), log_dirs=[read_log_dir(root)], image=image
        )
        assert price.group_offsets is not None
        assert price.group_offsets_are_complete
        seen[name] = {each.offset for each in price.group_offsets}
    for name, offsets in seen.items():
        for offset in offsets:
            price = estimate_truncation(plan(root / name, offset), image=image)
            assert price.group_offsets is not None
            assert offset not in {each.offset for each in price.group_offsets}
    assert any(seen.values())


def check_recovery(price: TruncationCost, log_dir: Path) -> None:
    assert price.recovery == recovery_price(read_log_dir(log_dir))


@pytest.mark.parametrize("offset", [0, 7, 25, 55, 60])
def test_recovery_is_that_of_the_result(
    offset: int, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path, "rolled-0", "txn-0")
    found = plan(log_dir / "rolled-0", offset)
    price = estimate_truncation(found)
    write_tree(carry_out(read_tree(log_dir), found.steps, log_dir), log_dir)
    check_recovery(price, log_dir)


def test_json(golden: Callable[[str], Path]) -> None:
    price = estimate_truncation(plan(golden("kafka-4.3.1") / "clean" / "txn-0", 300))
    value = json.loads(json.dumps(price.to_json()))
    assert value["records_count"] == 24
    assert value["transactions"][0] == {
        "producer_id": 22,
        "first_offset": 268,
        "marker_offset": 300,
        "kind": "commit",
        "outcome": "reopened",
    }
    assert value["producers"][0].keys() == {
        "producer_id",
        "epoch_before",
        "last_sequence_before",
        "epoch_after",
        "last_sequence_after",
    }
    assert value["recovery"].keys() == {"partitions_count", "log_bytes"}
