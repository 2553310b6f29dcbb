"""Files that brokers of other releases wrote in their own way: named as such where it is proven."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from eoctl.clock import resolve_now
from recovery.rebuild import older_brokers
from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.rebuild.diff import FileState, compare_files
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.formats.producer_snapshot import encode_snapshot, parse_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Golden = Callable[[str], Path]

INDEX = f"{0:020d}.index"
TIME_INDEX = f"{0:020d}.timeindex"
INTERVAL_BYTES = {"plain": 4096, "trimmed": 4096}  # of the other topics: 200
# Release, partition -> file -> why it is right.
EXPECTED = {
    ("1.1.1", "idempotent-0"): {INDEX: older_brokers.FIRST_OFFSETS},
    ("1.1.1", "txn-0"): {
        INDEX: older_brokers.FIRST_OFFSETS,
        f"{108:020d}.snapshot": older_brokers.DATA_TIMES,
    },
    ("1.1.1", "v0-0"): {
        INDEX: older_brokers.FIRST_OFFSETS,
        f"{100:020d}.snapshot": older_brokers.EMPTY_SNAPSHOT,
    },
    ("2.8.2", "v1-0"): {
        INDEX: older_brokers.APPENDED_SETS,
        f"{100:020d}.snapshot": older_brokers.EMPTY_SNAPSHOT,
        "leader-epoch-checkpoint": older_brokers.NO_EPOCHS,
    },
    ("2.8.2", "txn-0"): {TIME_INDEX: older_brokers.RECORD_OFFSETS},
    ("3.3.2", "idempotent-1"): {TIME_INDEX: older_brokers.RECORD_OFFSETS},
    ("3.9.1", "txn-0"): {},
    ("4.3.1-two-dirs", "idempotent-0"): {},
}


def directory_of(root: Path, name: str) -> Path:
    (found,) = root.glob(f"*/{name}")
    return found


def compared(directory: Path) -> dict[str, tuple[FileState, str]]:
    now_ms = resolve_now("dir", [directory.parent]).ms
    partition = Partition.of(select_partition(str(directory)))
    interval_bytes = INTERVAL_BYTES.get(partition.topic, 200)
    rebuilt = rebuild_partition(partition, RebuildSettings(now_ms, interval_bytes))
    return {each.name: (each.state, each.reason) for each in compare_files(partition, rebuilt)}


@pytest.mark.parametrize(("release", "name"), EXPECTED)
def test_real_directories(golden: Golden, release: str, name: str) -> None:
    found = compared(directory_of(golden(f"kafka-{release}"), name))
    assert {state for state, _ in found.values()} == {FileState.EQUAL}
    reasons = {file: reason for file, (_, reason) in found.items() if reason}
    assert {file: each for file, each in reasons.items() if each != "agrees with the log"} == (
        EXPECTED[release, name]
    )


@pytest.fixture
def copied(golden: Golden, tmp_path: Path) -> Callable[[str, str], Path]:
    def copy(release: str, name: str) -> Path:
        source = directory_of(golden(f"kafka-{release}"), name)
        shutil.copytree(source.parent, tmp_path / "log-dir", copy_function=shutil.copyfile)
        (tmp_path / "log-dir").chmod(0o755)
        directory = tmp_path / "log-dir" / name
        directory.chmod(0o755)
        return directory

    return copy


@pytest.mark.parametrize("field", [0, 4])
@pytest.mark.parametrize("entry", [0, 5, -1])
@pytest.mark.parametrize(("release", "name"), [("1.1.1", "txn-0"), ("2.8.2", "v1-0")])
def test_an_entry_that_is_wrong_is_no_older_one(
    copied: Callable[[str, str], Path], release: str, name: str, entry: int, field: int
) -> None:
    path = copied(release, name) / INDEX
    data = bytearray(path.read_bytes())
    pos = (entry % (len(data) // 8)) * 8 + field
    (value,) = struct.unpack_from(">i", data, pos)
    # Beyond what a batch can have there: an offset of long ago or far ahead, no batch's position.
    struct.pack_into(
        ">i", data, pos, 0 if field == 0 and entry == -1 else value + (1000, 1)[field > 0]
    )
    path.write_bytes(data)
    assert compared(path.parent)[INDEX][0] is FileState.DIFFERS


@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
def test_an_index_without_entries_is_no_older_one(
    copied: Callable[[str, str], Path], name: str
) -> None:
    path = copied("2.8.2", "txn-0") / name
    for data in (b"", bytes(240)):
        path.write_bytes(data)
        assert compared(path.parent)[name][0] is FileState.DIFFERS


def test_a_time_that_is_wrong_is_no_older_one(copied: Callable[[str, str], Path]) -> None:
    path = copied("2.8.2", "txn-0") / TIME_INDEX
    data = path.read_bytes()
    for pos, value in ((7, data[7] ^ 1), (11, data[11] + 40)):
        path.write_bytes(data[:pos] + bytes([value]) + data[pos + 1 :])
        assert compared(path.parent)[TIME_INDEX][0] is FileState.DIFFERS


def test_another_time_than_the_data_has_differs(copied: Callable[[str, str], Path]) -> None:
    path = copied("1.1.1", "txn-0") / f"{108:020d}.snapshot"
    first, *others = parse_snapshot(path.read_bytes())
    changed = first._replace(timestamp_ms=first.timestamp_ms - 1)
    path.write_bytes(encode_snapshot([changed, *others]))
    assert compared(path.parent)[path.name][0] is FileState.DIFFERS


def test_an_empty_snapshot_of_a_log_with_producers_is_not_needed(
    copied: Callable[[str, str], Path],
) -> None:
    directory = copied("1.1.1", "txn-0")
    (directory / f"{50:020d}.snapshot").write_bytes(encode_snapshot([]))
    assert compared(directory)[f"{50:020d}.snapshot"][0] is FileState.SURPLUS
