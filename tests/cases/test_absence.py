"""Offsets that no batch has: each reader names them, and none ends with 0."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.cases.files import T0, HandLogDir, batch, singles, time_index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

SEGMENTS = (0, 10, 20, 30)
END = 40


class Hole(NamedTuple):
    """How a log of four segments lost offsets, and which."""

    name: str
    first: int
    last: int
    dropped_segments: Sequence[int] = ()
    keeps_indexes: bool = False


HOLES = [
    Hole("a segment", 10, 19, (10,)),
    Hole("two segments", 10, 29, (10, 20)),
    Hole("a batch in the middle", 14, 14),
    Hole("the first batches", 0, 2),
    Hole("the end of a closed segment", 17, 19),
    Hole("the last batches before an empty segment", 28, 29, keeps_indexes=True),
]


def log_dir_with(out: Path, hole: Hole, *, is_crashed: bool = False, part: str = "t-0") -> Path:
    """Write a log of 40 records without those of the hole; its checkpoints know of all."""
    made = HandLogDir(out)
    made.remove(part=part)
    for base in SEGMENTS:
        if base in hole.dropped_segments:
            continue
        offsets = [each for each in range(base, base + 10) if not hole.first <= each <= hole.last]
        if hole.keeps_indexes and base == 30:
            offsets = []
        entries = [(T0 + offsets[-1], offsets[-1])] if offsets else []
        made.segment(
            base, [batch(each) for each in offsets], times=time_index(entries, base), part=part
        )
        made.snapshot(base, part=part)
    end = 30 if hole.keeps_indexes else END
    made.snapshot(end, part=part)
    made.checkpoints(high_watermark=end, recovery_point=0 if is_crashed else end, part=part)
    made.epochs(part=part)
    if is_crashed:
        made.crash()
    return made.path


def rows_of(outcome: Outcome, kind: str) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, outcome.text.splitlines()) if row["kind"] == kind]


@pytest.mark.parametrize("is_crashed", [False, True], ids=["clean", "crashed"])
@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.name)
def test_each_reader_names_them(hole: Hole, is_crashed: bool, tmp_path: Path, eoctl: Cli) -> None:
    log_dir = log_dir_with(tmp_path, hole, is_crashed=is_crashed)
    partition = log_dir / "t-0"
    reported = f"offsets {hole.first} to {hole.last} ({hole.last - hole.first + 1})"
    readers: list[tuple[int, tuple[object, ...]]] = [
        (5, ("consume", partition)),
        (5, ("consume", partition, "--isolation", "read_committed")),
        (5, ("export", log_dir, "--to", tmp_path / "exported")),
        (1, ("describe", partition)),
        (5, ("duplicates", partition)),
        (5, ("producers", partition)),
        (5, ("spark-audit", log_dir)),
        (1, ("check", log_dir)),
    ]
    for status, call in readers:
        outcome = eoctl(*call)
        assert (call[0], outcome.status) == (call[0], status), outcome.errors
        assert reported in outcome.text + outcome.errors, call
    [lost] = rows_of(eoctl("loss", log_dir, "--output", "jsonl"), "lost")
    assert (lost["base_offset"], lost["last_offset"]) == (hole.first, hole.last)
    checked = rows_of(eoctl("check", log_dir, "--output", "jsonl"), "finding")
    gaps = [each for each in checked if each["base_offset"] == hole.first]
    assert {each["severity"] for each in gaps} == {"error"}


@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.name)
def test_commands_about_transactions_name_what_they_walked_over(
    hole: Hole, tmp_path: Path, eoctl: Cli
) -> None:
    """After a crash they read the log as the next start does, with --all they read the whole log."""
    reported = f"offsets {hole.first} to {hole.last} ({hole.last - hole.first + 1})"
    for is_crashed in (False, True):
        log_dir = log_dir_with(tmp_path / str(is_crashed), hole, is_crashed=is_crashed)
        calls = [
            ("txn", "list", "--all", log_dir),
            ("txn", "hanging", log_dir),
            ("recover-state", log_dir / "t-0"),
        ]
        for call in calls if is_crashed else calls[:1]:
            outcome = eoctl(*call)
            assert (call, outcome.status) == (call, 5)
            assert outcome.errors.count(reported) == 1, outcome.errors


def test_only_what_was_asked_for_is_missed(tmp_path: Path, eoctl: Cli) -> None:
    partition = log_dir_with(tmp_path, HOLES[2]) / "t-0"
    assert eoctl("consume", partition, "--from", "15").status == 0
    assert eoctl("consume", partition, "--until", "14").status == 0
    assert eoctl("consume", partition, "--until", "15").status == 5


@pytest.mark.parametrize("hole", HOLES[:4], ids=lambda hole: hole.name)
def test_what_a_cleaner_removed_is_not_lost(hole: Hole, tmp_path: Path, eoctl: Cli) -> None:
    """If its checkpoint says that it was there; c is compacted and has one replica."""
    log_dir = log_dir_with(tmp_path, hole, part="c-0")
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    for line, is_lost in ((hole.last + 1, False), (hole.first, True)):
        checkpoint.write_text(f"0\n1\nc 0 {line}\n")
        assert (eoctl("consume", log_dir / "c-0").status == 5) is is_lost
        assert (eoctl("check", log_dir, "--fail-on", "error").status == 1) is is_lost
        assert (eoctl("loss", log_dir).status == 1) is is_lost
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)
        assert (eoctl("export", log_dir, "--to", tmp_path / "exported").status == 5) is is_lost


def test_without_a_policy_a_gap_is_not_explained(tmp_path: Path, eoctl: Cli) -> None:
    """Unless a batch shows that a cleaner was there: here it has fewer records than offsets."""
    log_dir = log_dir_with(tmp_path, HOLES[2])
    shutil.rmtree(log_dir / "__cluster_metadata-0")
    (log_dir / "bootstrap.checkpoint").unlink()
    outcome = eoctl("consume", log_dir / "t-0")
    assert outcome.status == 5
    assert "the cleanup.policy of the topic is unknown" in outcome.errors
    thinned = batch(20, [(b"k", b"v")], last=22)
    log = log_dir / "t-0" / f"{20:020d}.log"
    log.write_bytes(b"".join([thinned, *singles(23, 30)]))
    assert eoctl("consume", log_dir / "t-0").status == 0


def test_a_policy_that_no_metadata_know_can_be_stated(tmp_path: Path, eoctl: Cli) -> None:
    log_dir = log_dir_with(tmp_path, HOLES[2])
    partition = log_dir / "t-0"
    readers: list[tuple[int, tuple[object, ...]]] = [
        (5, ("consume", partition)),
        (5, ("spark-audit", log_dir, "--jobs", "2")),
        (5, ("producers", partition)),
        (1, ("describe", partition)),
        (1, ("loss", log_dir)),
        (1, ("check", log_dir, "--fail-on", "error")),
        (5, ("txn", "list", "--all", log_dir)),
    ]
    compact, delete = (("--cleanup-policy", each) for each in ("compact", "delete"))
    for status, call in readers:
        assert eoctl(*call, *compact).status == status, "the metadata know better"
    shutil.rmtree(log_dir / "__cluster_metadata-0")
    (log_dir / "bootstrap.checkpoint").unlink()
    for status, call in readers:
        assert (call[0], eoctl(*call, *compact).status) == (call[0], 0)
        assert (call[0], eoctl(*call, *delete).status) == (call[0], status)
    assert "and the topic is not compacted" in eoctl("consume", partition, *delete).errors
    assert eoctl("consume", partition).status == 5, "it is stated for one run"
