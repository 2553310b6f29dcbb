"""What is held of many directories: one unpacked at a time, and a file that leaves nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.audit.reports import COLUMNS, Audit, Audited
from recovery.summaries.codec import LoadedSummary, Shelf
from recovery.summaries.partition import PartitionSummary, ReadPiece, join_partition
from recovery.summaries.segment import read_split
from storage.errors import AccessError
from storage.places.list_places import list_places
from storage.places.splits import splits_at
from tests.audit_context import Context

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.summaries.codec import HeldSummary
    from storage.places.listing import Listing


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def open_files() -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:  # that of the listing itself
            continue
    return found


# --- the shelf ------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes", [0, 1, 100, 1000, 1 << 20])
def test_what_is_put_comes_back(temporary: Path, memory_bytes: int) -> None:
    shelf = Shelf(memory_bytes)
    sizes = [0, 70, 1, 300, 45, 5000, 3, 900]
    given = [os.urandom(size) for size in sizes]
    held = [shelf.put(each) for each in given]
    assert [each.packed() for each in reversed(held)] == given[::-1]
    assert shelf.in_memory_bytes <= memory_bytes
    assert shelf.in_memory_bytes + shelf.in_file_bytes == sum(sizes)
    assert (shelf.in_file_bytes == 0) == (memory_bytes >= sum(sizes))
    assert any(str(temporary) in each for each in open_files()) == bool(shelf.in_file_bytes)
    assert [*temporary.iterdir()] == []  # there is no name, so that none stays behind
    del shelf, held
    assert not any(str(temporary) in each for each in open_files())


def test_nothing_is_left_of_a_killed_process(temporary: Path) -> None:
    ready, reported = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held = Shelf(0).put(b"x" * 100)
            os.write(reported, b"yes" if held.packed() == b"x" * 100 else b"no")
            signal.pause()
        finally:
            os._exit(1)
    os.close(reported)
    assert os.read(ready, 3) == b"yes"
    os.close(ready)
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert [*temporary.iterdir()] == []


def test_no_place_for_the_file(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(AccessError) as caught:
        Shelf(0).put(b"x")
    assert caught.value.path == str(temporary)
    assert "TMPDIR" in caught.value.next_step


def test_a_full_disk(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(0)
    kept = shelf.put(b"kept")
    monkeypatch.setattr(shelf, "_file", open("/dev/full", "r+b", buffering=0))  # noqa: SIM115, PTH123
    with pytest.raises(AccessError) as caught:
        shelf.put(b"x")
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, str(temporary))
    full: Any = shelf._file
    monkeypatch.undo()
    full.close()
    assert kept.packed() == b"kept"


@pytest.mark.usefixtures("temporary")
def test_a_file_that_has_become_shorter() -> None:
    shelf = Shelf(0)
    held = shelf.put(b"1234")
    file: Any = shelf._file
    os.ftruncate(file.fileno(), 3)
    with pytest.raises(AccessError, match="shorter"):
        held.packed()


# --- reports --------------------------------------------------------------------------------------


def summaries_of(listing: Listing) -> dict[str, PartitionSummary]:
    found: dict[str, list[ReadPiece]] = {each.directory: [] for each in listing.directories}
    for place in listing.places:
        (split,) = splits_at(place, [0])
        found[place.directory].append(ReadPiece(split, read_split(split)))
    return {path: join_partition(pieces) for path, pieces in found.items()}


def audit_of(listing: Listing, held: dict[str, HeldSummary]) -> Audit:
    return Audit(
        [
            Audited.of(
                each,
                tuple(place for place in listing.places if place.directory == each.directory),
                held[each.directory],
                listing.acknowledged_of(each.directory),
            )
            for each in listing.directories
        ],
        {(each.cluster, 19): "tx-0" for each in listing.directories},
    )


def check_shelves(listing: Listing) -> None:
    """However much of it is in the file, packed: the reports are those of what was never packed."""
    found = summaries_of(listing)
    loaded = {path: LoadedSummary(each) for path, each in found.items()}
    plain = audit_of(listing, {**loaded})
    packed = {path: each.packed() for path, each in loaded.items()}
    whole = sum(map(len, packed.values()))
    for memory_bytes in (0, whole // 2, whole):
        shelf = Shelf(memory_bytes)
        audit = audit_of(listing, {path: shelf.put(each) for path, each in packed.items()})
        assert bool(shelf.in_file_bytes) == (memory_bytes < whole)
        assert bool(shelf.in_memory_bytes) == (memory_bytes > 0)
        for name in COLUMNS:
            assert [*audit.each_row(name)] == plain.rows(name) == audit.rows(name), name
    assert any(plain.rows(name) for name in COLUMNS if name != "partitions")


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("pattern", ["kafka-4.3.1/hard", "kafka-4.3.1-three-brokers/diverged/*"])
def test_golden_directories(golden: Callable[[str], Path], pattern: str) -> None:
    name, _, below = pattern.partition("/")
    check_shelves(list_places([f"{golden(name)}/{below}"]))


@pytest.mark.usefixtures("temporary")
def test_planted_faults(tmp_path: Path) -> None:
    for seed in range(2):
        for log in Context(seed, steps=30).logs:
            log.write(tmp_path / f"broker-{seed}")
    check_shelves(list_places([f"{tmp_path}/broker-*"]))


class Watched:
    """Unpacks one anew each time, and sees how many others are there when it does."""

    def __init__(self, packed: bytes, seen: list[weakref.ref[Any]], alive: list[int]) -> None:
        self._held = Shelf(1 << 30).put(packed)
        self._seen = seen
        self._alive = alive

    def unpacked(self) -> PartitionSummary:
        self._alive.append(sum(each() is not None for each in self._seen))
        found = self._held.unpacked()
        self._seen.append(weakref.ref(found.summary.producers))
        return found

    def packed(self) -> bytes:
        return self._held.packed()


def test_one_is_unpacked_at_a_time(golden: Callable[[str], Path]) -> None:
    listing = list_places([f"{golden('kafka-4.3.1-three-brokers')}/diverged/*"])
    seen: list[weakref.ref[Any]] = []
    alive: list[int] = []
    packed = {path: LoadedSummary(each).packed() for path, each in summaries_of(listing).items()}
    audit = audit_of(listing, {path: Watched(each, seen, alive) for path, each in packed.items()})
    assert len(alive) == len(packed) > 10
    for name in COLUMNS:
        before = len(alive)
        for row in audit.each_row(name):
            assert len(row) == len(COLUMNS[name])
        inspected = len(alive) - before
        assert inspected >= len(packed) // 3 or name in {"partitions", "topics", "corrupt"}, name
    assert set(alive) == {0}


def test_rows_of_large_reports_are_not_kept(golden: Callable[[str], Path]) -> None:
    listing = list_places([f"{golden('kafka-4.3.1')}/hard"])
    audit = audit_of(
        listing, {path: LoadedSummary(each) for path, each in summaries_of(listing).items()}
    )
    for name in COLUMNS:
        first, again = audit.each_row(name), audit.each_row(name)
        is_kept = first is again
        assert is_kept == (name not in {"producers", "open", "violations", "corrupt"}), name
        assert [*first] == [*again] == audit.rows(name)
