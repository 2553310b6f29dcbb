"""The marker of an offline abort: what a leader would have written, in a segment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.cluster.coordinator_log import CoordinatorLog, StatePartition
from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.transactions.abort import count_open, plan_markers, require_epochs, with_recovery
from recovery.transactions.open_transactions import find_open
from storage.errors import RefusedError
from storage.producers.producer_state import AppendError
from tests.drawn import examples
from tests.writing import (
    NOW_MS,
    SMALL,
    NoSyncFileSystem,
    batch,
    carry_out,
    content,
    headers_of,
    make_log_dir,
    open_writer,
    partition_at,
    tail_at,
)

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from recovery.transactions.abort import PlannedMarkers
    from recovery.transactions.open_transactions import OpenTransactionReport


def open_in(directory: Path) -> list[OpenTransactionReport]:
    return find_open(partition_at(directory), None, now_ms=NOW_MS)[0]


def plan(directory: Path, found: OpenTransactionReport, *, leader_epoch: int = 0) -> PlannedMarkers:
    tail = tail_at(directory, SMALL)
    return plan_markers(
        str(directory), tail, SMALL, [found], now_ms=NOW_MS + 5, leader_epoch=leader_epoch
    )


def carried_out(directory: Path, planned: PlannedMarkers) -> None:
    backups = directory.parent.parent / "backups"
    carry_out(partition_at(directory), planned.steps, NoSyncFileSystem(), backups)


steps = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["txn", "txn", "txn", "plain", "commit", "abort"])),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=examples(60))
@given(steps, st.integers(0, 2))
def test_any_open_transaction_ends_as_its_leader_would_end_it(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[int, str]], version: int
) -> None:
    """As a writer that appends the marker, but for the roll; and as a rebuild from the logs."""
    root = tmp_path_factory.mktemp("abort")
    fs = NoSyncFileSystem()
    writers = [open_writer(make_log_dir(root / name) / "t-0", fs=fs) for name in ("ours", "twin")]
    for writer in writers:
        epochs: dict[int, int] = {}
        sequences: dict[int, int] = {}
        is_open: set[int] = set()
        for producer_id, what in done:
            epoch = epochs.setdefault(producer_id, 0)
            if what in {"commit", "abort"}:
                if producer_id in is_open and version == 2:
                    epochs[producer_id] = epoch = epoch + 1
                    sequences[producer_id] = 0
                writer.end_transaction(
                    producer_id, epoch, is_commit=what == "commit", coordinator_epoch=2
                )
                is_open.discard(producer_id)
                continue
            if what == "plain" and producer_id in is_open:
                continue
            if what == "txn":
                is_open.add(producer_id)
            sequence = sequences.get(producer_id, 0)
            writer.append(batch(2, (producer_id, epoch, sequence), is_transactional=what == "txn"))
            sequences[producer_id] = sequence + 2
        writer.close()
    ours, twin = root / "ours/t-0", root / "twin/t-0"
    before = content(ours)
    for found in open_in(ours):
        planned = plan(ours, found)
        carried_out(ours, planned)
        writer = open_writer(twin, fs=fs, now_ms=NOW_MS + 5)
        appended = writer.end_transaction(
            found.producer_id,
            found.producer_epoch,
            is_commit=False,
            coordinator_epoch=max(found.coordinator_epoch, 0),
        )
        writer.close()
        assert planned.offsets[0] == appended.base_offset
        assert headers_of(ours) == headers_of(twin)
        end = f"{appended.base_offset + 1:020d}.snapshot"
        assert content(ours)[end] == content(twin)[end]
        indexes = [
            b"".join(
                data for name, data in sorted(content(each).items()) if name.endswith(".txnindex")
            )
            for each in (ours, twin)
        ]
        assert indexes[0] == indexes[1]
        still = open_in(ours)
        assert found.producer_id not in {each.producer_id for each in still}
        oldest = min((each.first_offset for each in still), default=appended.base_offset + 1)
        assert planned.stable_offsets[-1] == oldest
    after = content(ours)
    assert {name: after[name] for name in before} == before
    rebuilt = dict(
        rebuild_partition(
            partition_at(ours), RebuildSettings(NOW_MS, SMALL.index_interval_bytes)
        ).files()
    )
    assert rebuilt == {name: after.get(name, b"") for name in rebuilt}


@settings(max_examples=examples(40))
@given(steps, st.randoms(use_true_random=False))
def test_several_end_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[int, str]], order: Random
) -> None:
    """In any order: the same markers, the same state, the same last stable offsets."""
    root = tmp_path_factory.mktemp("aborts")
    fs = NoSyncFileSystem()
    for name in ("ours", "twin"):
        writer = open_writer(make_log_dir(root / name) / "t-0", fs=fs)
        for number, (producer_id, _) in enumerate(done):
            writer.append(batch(2, (producer_id + number, 0, 0), is_transactional=True))
        writer.close()
    ours, twin = root / "ours/t-0", root / "twin/t-0"
    found = open_in(ours)
    order.shuffle(found)
    planned = plan_markers(
        str(ours), tail_at(ours, SMALL), SMALL, found, now_ms=NOW_MS + 5, leader_epoch=0
    )
    carried_out(ours, planned)
    one_by_one = []
    for each in found:
        one_by_one.append(plan(twin, each))
        carried_out(twin, one_by_one[-1])
    assert headers_of(ours) == headers_of(twin)
    assert [each.offsets[0] for each in one_by_one] == [*planned.offsets]
    stable = [each.stable_offsets for each in one_by_one]
    assert [first for first, _ in stable] == [*planned.stable_offsets[:-1]]
    assert [last for _, last in stable] == [*planned.stable_offsets[1:]]
    last = f"{planned.offsets[-1] + 1:020d}.snapshot"
    assert content(ours)[last] == content(twin)[last]
    assert open_in(ours) == []


def test_the_coordinator_epoch_is_that_of_the_last_marker(tmp_path: Path) -> None:
    """And the leader epoch that of the log, or a newer one, which gets an entry."""
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory, leader_epoch=3)
    writer.append(batch(1, (7, 1, 0), is_transactional=True))
    writer.end_transaction(7, 2, is_commit=True, coordinator_epoch=9, transaction_version=2)
    writer.append(batch(1, (7, 2, 0), is_transactional=True))
    writer.close()
    (found,) = open_in(directory)
    assert (found.producer_epoch, found.coordinator_epoch) == (2, 9)
    carried_out(directory, plan(directory, found, leader_epoch=5))
    marker = headers_of(directory)[-1]
    assert (marker.producer_epoch, marker.partition_leader_epoch) == (2, 5)
    log = max(directory.glob("*.log")).read_bytes()
    assert int.from_bytes(log[-5:-1], "big") == 9  # the record ends with it and 0 headers
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n3 0\n5 3\n"


def test_an_empty_last_segment_gets_the_marker(tmp_path: Path) -> None:
    """There is no other name for a segment at that offset (ROLL-7)."""
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory)
    writer.append(batch(1, (7, 1, 0), is_transactional=True))
    writer.close()
    (directory / "00000000000000000001.log").touch()
    (directory / "00000000000000000001.index").touch()
    (directory / "00000000000000000001.timeindex").touch()
    (found,) = open_in(directory)
    planned = plan(directory, found)
    assert planned.offsets[0] == 1
    carried_out(directory, planned)
    assert (directory / "00000000000000000001.log").stat().st_size == 78
    assert open_in(directory) == []


def test_what_is_not_open_any_more_is_refused(tmp_path: Path) -> None:
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory)
    writer.append(batch(1, (7, 1, 0), is_transactional=True))
    writer.append(batch(1, (8, 0, 0)))
    writer.close()
    (found,) = open_in(directory)
    for other in (found._replace(first_offset=9), found._replace(producer_id=8)):
        with pytest.raises(RefusedError, match="has no transaction open since"):
            plan(directory, other)
    with pytest.raises(AppendError, match="INVALID_PRODUCER_EPOCH"):
        plan(directory, found._replace(producer_epoch=0))


def test_epochs_that_a_coordinator_cannot_have(tmp_path: Path) -> None:
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory)
    writer.append(batch(3, (7, 4, 0), is_transactional=True))
    writer.append(batch(2, (8, 4, 0), is_transactional=True))
    writer.append(batch(2, (7, 4, 3), is_transactional=True))
    writer.close()
    found, _ = open_in(directory)
    counted = count_open(partition_at(directory), found.producer_id, found.first_offset)
    assert counted is not None
    assert counted[:2] == (2, 5)
    require_epochs(found, None)
    require_epochs(found._replace(coordinator_producer_epoch=4), None)
    with pytest.raises(RefusedError, match="the coordinator of None is at 3"):
        require_epochs(found._replace(coordinator_producer_epoch=3), None)
    log = CoordinatorLog([])
    known = found._replace(coordinator_partition=2, coordinator_epoch=6)
    require_epochs(known, log)
    for leader_epoch, is_refused in ((5, True), (6, False), (-1, False)):
        log.partitions[2] = StatePartition(
            2, leader_epoch, is_whole=True, source=partition_at(directory)
        )
        if is_refused:
            with pytest.raises(RefusedError, match="is at leader epoch 5"):
                require_epochs(known, log)
        else:
            require_epochs(known, log)


def test_a_file_is_changed_once(tmp_path: Path) -> None:
    """Where a recovery touches what the marker's segment replaces, the marker's step stays."""
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory)
    writer.append(batch(1, (7, 1, 0), is_transactional=True))
    writer.close()
    (found,) = open_in(directory)
    marker = plan(directory, found).steps
    recovery = [marker[1]._replace(reason="recovery"), marker[0]._replace(path="other")]
    assert [*with_recovery(recovery, marker)] == [recovery[1], *marker]
