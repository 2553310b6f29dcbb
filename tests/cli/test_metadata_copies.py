"""`eoctl metadata` over copies that differ, or of which the newest is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import notes_of, rows_of
from tests.metadata_logs import node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSONL = ("--output", "jsonl")
LOG = f"__cluster_metadata-0/{0:020d}.log"


def flip(log_dir: Path, share: float) -> None:
    """Flip a bit at a share of the metadata log."""
    (log,) = (log_dir / "__cluster_metadata-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[int(len(data) * share)] ^= 0x10
    log.write_bytes(data)


def level_of(done: Any) -> int:
    (found,) = rows_of(done, "feature")
    level: int = found["level"]
    return level


@pytest.fixture
def diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Node 1 has offsets 10 and 11 of an epoch that was cut off there; node 2 begins at 13."""
    monkeypatch.chdir(tmp_path)
    node(tmp_path, 1, [(1, 0)], 30)
    node(tmp_path, 2, [(1, 0), (2, 10)], 14, start_offset=13)
    return tmp_path


@pytest.mark.parametrize("options", [(), ("--history",)])
def test_an_older_copy_that_parted(
    diverged: Path, eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """The snapshot of the newest copy ends above what is read, and says nothing of it."""
    both = (diverged / "node-1", diverged / "node-2")
    done = eoctl("metadata", *both, *options, "--at", 11, *JSONL)
    assert done.status == 0
    (note,) = (each for each in notes_of(done) if "may never have counted" in each)
    assert "node-1/__cluster_metadata-0: from offset 10 on" in note
    assert "node-2/__cluster_metadata-0 has, which is newer" in note
    if not options:
        (cluster,) = rows_of(done, "cluster")
        assert (cluster["counted_offset"], cluster["maybe_records_count"]) == (10, 2)
    before = eoctl("metadata", *both, *options, "--at", 9, *JSONL)
    assert not [each for each in notes_of(before) if "may never have counted" in each]


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three controllers: the first has most, the others end earlier."""
    monkeypatch.chdir(tmp_path)
    return [node(tmp_path, each, [(1, 0), (2, 10)], 40 - each) for each in (1, 2, 3)]


@pytest.mark.parametrize("options", [(), ("--history",)])
def test_the_newest_is_damaged(
    three: list[Path], eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """As `start-order` does: the newest one that is whole counts, and it is said."""
    flip(three[0], 0.5)
    done = eoctl("metadata", *three, *options, *JSONL)
    assert done.status == 5
    notes = notes_of(done)
    assert f"{three[1]}/__cluster_metadata-0 counts: older, and whole" in notes
    assert any(each.startswith(f"{three[0] / LOG}: position") for each in notes)
    assert not rows_of(done, "unread")
    reported = rows_of(done, "feature_change") if options else rows_of(done, "cluster")
    assert (reported[-1]["after"] if options else reported[0]["path"]) == (
        37 if options else f"{three[1]}/__cluster_metadata-0"
    )
    advice = eoctl("start-order", *three, *JSONL)
    assert f"{three[1]}/__cluster_metadata-0 counts: older, and whole" in advice.errors


@pytest.mark.parametrize("options", [(), ("--history",)])
def test_a_copy_that_may_have_been_the_newest(
    three: list[Path], eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """Damaged from its middle to its end it is the shortest, and is not chosen."""
    (log,) = (three[0] / "__cluster_metadata-0").glob("*.log")
    data = log.read_bytes()
    half = len(data) // 2
    log.write_bytes(data[:half] + b"\x55" * half)
    done = eoctl("metadata", *three, *options, *JSONL)
    assert done.status == 5
    assert any(
        each
        == f"{three[0]}/__cluster_metadata-0: damaged towards its end: what it had may be newer"
        for each in notes_of(done)
    )


def test_before_the_damage_the_newest_counts(three: list[Path], eoctl: Callable[..., Any]) -> None:
    flip(three[0], 0.9)
    done = eoctl("metadata", *three, "--at", 20, *JSONL)
    assert (done.status, level_of(done)) == (0, 20)
    (cluster,) = rows_of(done, "cluster")
    assert cluster["node_id"] == 1


def test_an_older_one_that_does_not_reach_the_moment(
    three: list[Path], eoctl: Callable[..., Any]
) -> None:
    """Its last state would be one of an earlier time."""
    flip(three[0], 0.5)
    done = eoctl("metadata", *three, "--at", 38, *JSONL)
    assert (done.status, level_of(done)) == (5, 38)
    (cluster,) = rows_of(done, "cluster")
    assert (cluster["node_id"], cluster["is_complete"]) == (1, False)
    assert not any("older, and whole" in each for each in notes_of(done))
    done = eoctl("metadata", *three, "--at", 37, *JSONL)
    assert rows_of(done, "cluster")[0]["node_id"] == 2


def test_all_are_damaged(three: list[Path], eoctl: Callable[..., Any]) -> None:
    for each in three:
        flip(each, 0.5)
    for options in ((), ("--history",)):
        done = eoctl("metadata", *three, *options, *JSONL)
        assert done.status == 5
        assert not any("older, and whole" in each for each in notes_of(done))
        assert any("not all of it could be read" in each for each in notes_of(done))
