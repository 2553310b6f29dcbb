"""Outcomes of transactions: where their markers are looked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from recovery.transactions import outcomes
from recovery.transactions.outcomes import later_segments
from storage.places.list_places import list_places
from tests.audit_logs import Batch, encoded, write_segments

if TYPE_CHECKING:
    from pathlib import Path

    from storage.places.listing import SegmentPlace

# --- segments behind one --------------------------------------------------------------------------


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that were listed, one after the other."""
    found: list[str] = []

    def list_and_note(paths: list[str]) -> object:
        found.extend(paths)
        return list_places(paths)

    monkeypatch.setattr("recovery.transactions.outcomes.list_places", list_and_note)
    monkeypatch.setattr("recovery.transactions.outcomes._listings", {})
    return found


def behind(place: SegmentPlace) -> list[int]:
    return [segment.base_offset for segment in later_segments(place)]


def test_a_directory_is_listed_once(tmp_path: Path, listed: list[str]) -> None:
    folder = write_segments(tmp_path / "t-0", *[[Batch(sequence=n)] for n in range(5)])
    places = list_places([str(folder)]).places
    os.utime(folder, (1_000_000, 1_000_000))
    assert [behind(each) for each in places] == [[*range(n + 1, 5)] for n in range(5)]
    assert listed == [str(folder)]
    # What has come meanwhile is seen.
    (folder / f"{5:020d}.log").write_bytes(encoded(Batch(sequence=5), 5))
    assert behind(places[3]) == [4, 5]
    assert listed == [str(folder)] * 2


def test_a_directory_that_has_just_changed_is_listed_again(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    place = list_places([str(folder)]).places[0]
    now = [folder.stat().st_mtime + 0.1]
    monkeypatch.setattr(outcomes.time, "time", lambda: now[0])
    for count in range(2, 5):
        assert behind(place) == [*range(1, count)]
        before = folder.stat()
        (folder / f"{count:020d}.log").write_bytes(encoded(Batch(sequence=count), count))
        os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))  # a clock that ticks slowly
        now[0] += 3 if count == 3 else 0
    assert len(listed) == 3


def test_a_directory_behind_a_uri_is_listed_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, listed: list[str]
) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow.fs import _MockFileSystem

    from eoctl.arrow_files import ArrowTree
    from storage.files import file_systems

    file_system = _MockFileSystem()
    file_system.create_dir("t-0")
    monkeypatch.setitem(
        file_systems._factories, "listing", lambda uri: (ArrowTree(file_system), "")
    )
    for offset in range(3):
        with file_system.open_output_stream(f"t-0/{offset:020d}.log") as out:
            out.write(encoded(Batch(sequence=offset), offset))
    now = [1_000_000.0]
    monkeypatch.setattr(outcomes.time, "time", lambda: now[0])
    (place, *_) = list_places(["listing:///t-0"]).places
    for _ in range(3):
        assert behind(place) == [1, 2]
        now[0] += outcomes.LISTING_S / 2
    assert listed == ["listing:///t-0"] * 2


def test_a_directory_that_is_gone(tmp_path: Path, listed: list[str]) -> None:
    folder = write_segments(tmp_path / "t-0", [Batch()])
    (place,) = list_places([str(folder)]).places
    next(folder.iterdir()).unlink()
    folder.rmdir()
    assert behind(place) == []
    assert listed == []
