"""Timelines of an audit's pieces, sent and joined, are the one that a check of the whole has."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.checks.partition_check import CheckOptions
from recovery.fsck.one_pass import CheckJob
from recovery.fsck.partition_state import inspect_one
from recovery.summaries.codec import pack_partition, pack_piece, unpack_partition, unpack_piece
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.segment import read_split
from recovery.timeline.piece import (
    ReadTimeline,
    Timeline,
    no_timeline,
    pack_timeline,
    unpack_timeline,
    with_fewer_bins,
)
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import CorruptError
from storage.places.list_places import list_places, open_place
from storage.places.splits import TimelineStart, split_places, splits_at
from tests.audit_logs import Batch, write_segments
from tests.damage.planted import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from storage.dirs.discovery import Selected
    from storage.places.splits import Split
    from tests.damage.planted.shape import Fault


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.dtype, value.tolist()
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def of_a_check(selected: Selected) -> Timeline:
    return inspect_one(CheckJob(selected, None, CheckOptions(0))).timeline


def start_of(selected: Selected) -> TimelineStart:
    return TimelineStart(Partition.of(selected).local_log_start_offset or 0)


def of_pieces(splits: Sequence[Split], seed: int = 0) -> Timeline:
    """Read each piece, send it, and join them in any order."""
    pieces = [ReadPiece(each, unpack_piece(pack_piece(read_split(each)))) for each in splits]
    random.Random(seed).shuffle(pieces)
    found = unpack_partition(pack_partition(join_partition(pieces))).timeline
    assert found is not None or not splits
    return found or no_timeline()


def require_same(directory: Path | str, split_bytes: int) -> int:
    """Compare all partitions of a directory; returns how many pieces there were."""
    count = 0
    places = list_places([str(directory)]).places
    for selected in discover([str(directory)]).selected:
        path = selected.partition.path
        mine = [each for each in places if each.directory == path]
        splits = [
            each._replace(timeline=start_of(selected)) for each in split_places(mine, split_bytes)
        ]
        count += len(splits)
        assert plain(of_pieces(splits)) == plain(of_a_check(selected)), path
    return count


# --- real logs ------------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize(
    "state",
    [
        *(f"kafka-4.3.1/{name}" for name in ("clean", "crash", "hard", "recovered", "tv2")),
        *("kafka-0.10.2-legacy/", "kafka-4.3.1-tiered/crash", "kafka-4.3.1-two-dirs/one"),
    ],
)
def test_golden_directories(golden: Callable[[str], Path], state: str) -> None:
    name, _, rest = state.partition("/")
    log_dir = golden(name) / rest
    whole = require_same(log_dir, 1 << 30)
    assert require_same(log_dir, 1) >= whole > 0


@pytest.mark.share(4)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_damaged_directories(fault: Fault, golden: Callable[[str], Path], tmp_path: Path) -> None:
    is_legacy = fault.state == "legacy"
    source = golden("kafka-0.10.2-legacy") if is_legacy else golden("kafka-4.3.1") / fault.state
    log_dir = tmp_path / "kafka"
    shutil.copytree(source, log_dir, copy_function=shutil.copy2)
    for path in [log_dir, *log_dir.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    fault.planted_in(log_dir)
    for name in fault.partitions:
        if (log_dir / name).is_dir():
            for split_bytes in (1, 1 << 30):
                require_same(log_dir / name, split_bytes)


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(30))
def test_flipped_bits(golden: Callable[[str], Path], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(["txn-0", "rolled-0", "many-producers-0", "idem-lz4-0", "compacted-0"])
    partition = tmp_path / name
    shutil.copytree(golden("kafka-4.3.1") / "crash" / name, partition)
    partition.chmod(0o755)
    logs = sorted(each for each in partition.glob("*.log") if each.stat().st_size)
    for _ in range(rng.choice([1, 2, 3])):
        log = rng.choice(logs)
        log.chmod(0o644)
        data = bytearray(log.read_bytes())
        # Most of them into the first batch: there a piece knows the least.
        end = rng.choice([61, 200, len(data)])
        data[rng.randrange(min(end, len(data)))] ^= 1 << rng.randrange(8)
        log.write_bytes(data)
    require_same(partition, 1)
    require_same(partition, 1 << 30)


# --- any log, cut anywhere ------------------------------------------------------------------------

batches = st.lists(
    st.builds(
        Batch,
        pid=st.sampled_from([1, 1, 2, 2**62, -1]),
        epoch=st.sampled_from([0, 0, 1]),
        sequence=st.integers(0, 3),
        count=st.integers(1, 4),
        kind=st.sampled_from(
            ["data", "txn", "txn", "txn", "commit", "abort", "control", "corrupt"]
        ),
    ),
    max_size=15,
)


@given(st.lists(batches, min_size=1, max_size=4), st.integers(0, 1 << 32))
def test_any_split_of_any_log(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[Batch]], seed: int
) -> None:
    rng = random.Random(seed)
    directory = write_segments(
        tmp_path_factory.mktemp("log") / "t-0", *(each for each in segments if each)
    )
    for log in sorted(directory.iterdir()):
        if rng.random() < 0.3:
            data = bytearray(log.read_bytes())
            data[rng.randrange(rng.choice([24, len(data)]))] ^= 1 << rng.randrange(8)
            log.write_bytes(data)
    if not any(directory.iterdir()):
        (directory / f"{0:020d}.log").touch()
    (selected,) = discover([str(directory)]).selected
    splits = []
    for place in list_places([str(directory)]).places:
        with open_place(place) as segment:
            edges = [each.pos for each in segment.scan() if each.crc_ok][1:]
        positions = [0, *(each for each in edges if each and rng.random() < 0.4)]
        splits += [
            each._replace(timeline=start_of(selected)) for each in splits_at(place, positions)
        ]
    assert plain(of_pieces(splits, seed)) == plain(of_a_check(selected))


# --- what is kept and sent ------------------------------------------------------------------------


def test_nothing_is_kept_where_none_is_wanted(golden: Callable[[str], Path]) -> None:
    places = list_places([str(golden("kafka-4.3.1") / "crash")]).places
    (place,) = (each for each in places if each.topic == "txn" and each.partition == 0)
    (split,) = split_places([place], 1 << 30)
    without = pack_piece(read_split(split))
    assert unpack_piece(without).timeline is None
    wanted = split._replace(timeline=TimelineStart())
    assert len(pack_piece(read_split(wanted))) > len(without)
    assert join_partition([ReadPiece(split, unpack_piece(without))]).timeline is None


def test_a_directory_has_no_more_bins_than_are_wanted(golden: Callable[[str], Path]) -> None:
    directory = str(golden("kafka-4.3.1") / "crash" / "txn-0")
    (selected,) = discover([directory]).selected
    few = start_of(selected)._replace(max_bins=30)
    splits = [
        each._replace(timeline=few) for each in split_places(list_places([directory]).places, 1)
    ]
    assert len(splits) > 1
    found = of_pieces(splits)
    assert plain(found) == plain(with_fewer_bins(of_a_check(selected), 30))
    assert len(found.by_offset.key) <= 30


def test_what_is_no_packed_timeline() -> None:
    good = pack_timeline(ReadTimeline(no_timeline(), 5, needs_floor=True))
    assert plain(unpack_timeline(good)) == plain(ReadTimeline(no_timeline(), 5, needs_floor=True))
    for data in (b"", b"\xc1", good[:-1], good[5:]):
        with pytest.raises(CorruptError):
            unpack_timeline(data)
