"""A `.log` that has lost all its bytes, in front of others: told as lost, unless a cleaner did it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from storage.formats.checkpoint import (
    OffsetCheckpointEntry,
    encode_offset_checkpoint,
    parse_offset_checkpoint,
)
from tests.changes import rows_of
from tests.truncations import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

SEGMENTS = {0: "00000000000000000000", 25: "00000000000000000025", 50: "00000000000000000050"}
GAP = "SEG-4"
LOST = "SEG-11"


@pytest.fixture
def rolled(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """Of a log dir that was stopped cleanly one partition: 60 records in three segments."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka", "rolled-0")
    return log_dir / "rolled-0"


def empty(partition: Path, *bases: int, indexes: str = "kept") -> None:
    for base in bases:
        (partition / f"{SEGMENTS[base]}.log").write_bytes(b"")
        for kind in ("index", "timeindex"):
            path = partition / f"{SEGMENTS[base]}.{kind}"
            if indexes == "empty":
                path.write_bytes(b"")
            elif indexes == "zeros":
                path.write_bytes(
                    bytes(10_485_760 // 12 * 12 if kind == "timeindex" else 10_485_760)
                )
            elif indexes == "none":
                path.unlink()


def found(eoctl: Cli, path: Path) -> list[tuple[str, str, int, int]]:
    """What `check` says of offsets that are not there."""
    outcome = eoctl("check", path, "--output", "jsonl")
    return [
        (row["check_id"], row["severity"], row["base_offset"], row["last_offset"])
        for row in rows_of(outcome, "finding")
        if row["check_id"] in {GAP, LOST}
    ]


def set_offset(partition: Path, name: str, offset: int) -> None:
    path = partition.parent / name
    entries = parse_offset_checkpoint(path.read_bytes()) if path.exists() else []
    entries = [each for each in entries if each.topic != "rolled"]
    entries.append(OffsetCheckpointEntry("rolled", 0, offset))
    path.write_bytes(encode_offset_checkpoint(entries))


@pytest.mark.parametrize(
    ("bases", "ranges"), [([0], [(0, 24)]), ([25], [(25, 49)]), ([0, 25], [(0, 24), (25, 49)])]
)
def test_everybody_tells_what_is_lost(
    bases: list[int], ranges: list[tuple[int, int]], rolled: Path, eoctl: Cli
) -> None:
    empty(rolled, *bases)
    assert [each for each in found(eoctl, rolled) if each[0] == LOST] == [
        (LOST, "error", *each) for each in ranges
    ]
    assert eoctl("check", rolled).status == 1
    count = sum(last - first + 1 for first, last in ranges)
    (repaired,) = rows_of(eoctl("repair", rolled, "--output", "jsonl"), "repair")
    assert repaired["lost_offsets_count"] == count
    consumed = eoctl("consume", rolled)
    assert consumed.status == 5
    lost = rows_of(eoctl("loss", rolled, "--output", "jsonl"), "lost")
    assert [(row["base_offset"], row["last_offset"]) for row in lost] == ranges
    for first, last in ranges:
        assert f"offsets {first} to {last} ({last - first + 1}) are missing" in consumed.errors
    assert {row["records_count"] for row in lost} == {None}  # offsets, of whatever was there
    (described,) = rows_of(eoctl("describe", rolled, "--output", "jsonl"), "partition")
    assert described["verdict"] == "missing"


def test_the_last_segment_is_told_by_checkpoints(rolled: Path, eoctl: Cli) -> None:
    empty(rolled, 50)
    assert LOST not in {each[0] for each in found(eoctl, rolled)}
    consumed = eoctl("consume", rolled)
    assert "offsets 50 to 59 (10) are missing" in consumed.errors
    assert consumed.status == 5


@pytest.mark.parametrize("start", [10, 25, 40])
def test_what_lies_below_the_log_start_is_not_missed(start: int, rolled: Path, eoctl: Cli) -> None:
    empty(rolled, 0)
    set_offset(rolled, "log-start-offset-checkpoint", start)
    missing = [each[2:] for each in found(eoctl, rolled)]
    assert missing == ([(10, 24)] if start == 10 else [])
    assert eoctl("consume", rolled).status == (5 if start == 10 else 0)


@pytest.mark.share(3)
@pytest.mark.parametrize("indexes", ["empty", "zeros", "none"])
@pytest.mark.parametrize("base", [0, 25])
def test_without_entries_it_may_be_a_cleaners_work(
    base: int, indexes: str, rolled: Path, eoctl: Cli
) -> None:
    """If the cleaner was there, nothing is missing; else the offsets are lost."""
    empty(rolled, base, indexes=indexes)
    assert found(eoctl, rolled) == [(GAP, "error", base, base + 24)]
    assert eoctl("consume", rolled).status == 5
    set_offset(rolled, "cleaner-offset-checkpoint", 50)
    assert found(eoctl, rolled) == []
    assert eoctl("consume", rolled).status == 0


@pytest.mark.parametrize("base", [0, 25])
def test_entries_are_no_cleaners_work(base: int, rolled: Path, eoctl: Cli) -> None:
    """It writes the indexes of what it leaves anew: those of an empty log are empty."""
    set_offset(rolled, "cleaner-offset-checkpoint", 50)
    empty(rolled, base)
    assert found(eoctl, rolled) == [(LOST, "error", base, base + 24)]


def test_a_repair_says_it_once(rolled: Path, eoctl: Cli) -> None:
    """Its indexes are rebuilt: what is left is as after any repair that lost a segment."""
    empty(rolled, 0)
    call = ("repair", rolled, "--strategy", "salvage", "--single-copy", "--apply")
    done: dict[str, Any]
    (done,) = rows_of(eoctl(*call, "--output", "jsonl"), "repair")
    assert (done["applied"], done["lost_offsets_count"]) == (True, 25)
    assert found(eoctl, rolled) == []  # the journal says it (JNL-3)
    assert eoctl("check", rolled, "--fail-on", "error").status == 1
    assert eoctl("consume", rolled).status == 5


def test_adopt_tells_of_it(rolled: Path, eoctl: Cli, tmp_path: Path) -> None:
    empty(rolled, 0, indexes="empty")
    outcome = eoctl("adopt", rolled.parent, "--to", tmp_path / "new")
    assert "offsets 0 to 24 (25) are missing" in outcome.errors
