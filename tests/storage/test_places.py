"""From PATHs to segments: local paths, wildcards, brokers."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from storage.errors import AccessError
from storage.places import Listing, SegmentPlace, list_places, open_place

if TYPE_CHECKING:
    from pathlib import Path

SEGMENTS = ("00000000000000000000.log", "00000000000000000007.log")


def make_partition(path: Path, *, segments: tuple[str, ...] = SEGMENTS) -> Path:
    path.mkdir(parents=True)
    for number, name in enumerate(segments):
        (path / name).write_bytes(b"x" * number)
        os.utime(path / name, ns=(1, 1_000_000_000 + number))
    return path


def make_broker(path: Path, node_id: int | None, *partitions: str) -> Path:
    for each in partitions:
        make_partition(path / each)
    path.mkdir(exist_ok=True, parents=True)
    if node_id is None:
        (path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    else:
        (path / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id={node_id}\n")
    return path


def brokers_of(listing: Listing) -> list[tuple[str, str]]:
    return [(each.broker, f"{each.topic}-{each.partition}") for each in listing.directories]


def test_a_log_dir(tmp_path: Path) -> None:
    log_dir = make_broker(tmp_path / "logs", 4, "t-0", "__consumer_offsets-1")
    (log_dir / "u-0").mkdir()
    found = list_places([str(log_dir)])
    assert found.places == (
        *(
            SegmentPlace(
                "4", "__consumer_offsets", 1,
                f"{log_dir}/__consumer_offsets-1", f"{log_dir}/__consumer_offsets-1/{name}",
                base_offset, bool(base_offset), number, 1_000_000_000 + number,
            )
            for number, (name, base_offset) in enumerate(zip(SEGMENTS, (0, 7), strict=True))
        ),
        *(
            SegmentPlace(
                "4", "t", 0, f"{log_dir}/t-0", f"{log_dir}/t-0/{name}",
                base_offset, bool(base_offset), number, 1_000_000_000 + number,
            )
            for number, (name, base_offset) in enumerate(zip(SEGMENTS, (0, 7), strict=True))
        ),
    )  # fmt: skip
    assert [each.has_sequences for each in found.places] == [False, False, True, True]
    assert brokers_of(found) == [("4", "__consumer_offsets-1"), ("4", "t-0"), ("4", "u-0")]
    assert (found.problems, found.notes) == ((), ())


def test_open_place(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0")
    place = list_places([str(partition)]).places[1]
    with open_place(place) as segment:
        assert (segment.path, segment.base_offset, segment.file_bytes) == (place.path, 7, 1)
    with open_place(place.path) as segment:
        assert segment.base_offset == 7
    with open_place(place, 3) as segment:
        assert segment.base_offset == 3
    with pytest.raises(AccessError) as caught:
        open_place(f"{partition}/none.log")
    assert caught.value.errno == errno.ENOENT
