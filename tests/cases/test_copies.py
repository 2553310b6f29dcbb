"""Two copies, one with a hole: the other one is recommended, adopted and served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.serve.state.catalogue import Preferences, choose
from storage.dirs.discovery import select_partition
from tests.cases.test_absence import HOLES, Hole, log_dir_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

JSONL = ("--output", "jsonl")
WHOLE = Hole("none", -1, -1)


def rows_of(outcome: Outcome, kind: str) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, outcome.text.splitlines()) if row["kind"] == kind]


@pytest.fixture(params=HOLES[:5], ids=lambda hole: hole.name)
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, Hole]:
    """Log dirs of nodes 1 and 2; t-0 of node 1 has a hole."""
    paths = []
    for number, hole in ((1, request.param), (2, WHOLE)):
        out = tmp_path / str(number)
        out.mkdir()
        log_dir = log_dir_with(out, hole)
        meta = log_dir / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", f"node.id={number}"))
        paths.append(log_dir)
    return paths[0], paths[1], request.param


def test_the_whole_copy_is_recommended(copies: tuple[Path, Path, Hole], eoctl: Cli) -> None:
    holed, whole, hole = copies
    compared = eoctl("replicas", "compare", holed / "t-0", whole / "t-0", *JSONL)
    [found] = rows_of(compared, "recommendation")
    assert found["leader"] == str(whole / "t-0")
    ends = {row["path"]: row["sound_end_offset"] for row in rows_of(compared, "replica")}
    assert ends == {str(holed / "t-0"): hole.first, str(whole / "t-0"): 40}
    assert "a cleaner was at work" not in compared.errors


def test_the_whole_copy_is_adopted(
    copies: tuple[Path, Path, Hole], eoctl: Cli, tmp_path: Path
) -> None:
    holed, whole, _ = copies
    outcome = eoctl("adopt", holed, whole, "--to", tmp_path / "new", *JSONL)
    assert outcome.status == 0, outcome.errors
    [adopted] = [row for row in rows_of(outcome, "adopted") if row["topic"] == "t"]
    assert adopted["source"] == str(whole / "t-0")


@pytest.mark.parametrize("is_first", [True, False])
def test_the_whole_copy_is_served(copies: tuple[Path, Path, Hole], is_first: bool) -> None:
    holed, whole, _ = copies
    order = (holed, whole) if is_first else (whole, holed)
    selected = tuple(select_partition(each / "t-0") for each in order)
    chosen = choose(selected, Preferences())
    assert chosen.selected.partition.path == str(whole / "t-0")
    assert (chosen.end_offset, chosen.notes, chosen.is_lacking) == (None, (), False)


def test_a_hole_makes_no_compacted_topic(tmp_path: Path, eoctl: Cli) -> None:
    """The only copy is taken with its hole, which is told, and its settings stay those it had."""
    log_dir = log_dir_with(tmp_path, HOLES[2])
    outcome = eoctl("adopt", log_dir, "--to", tmp_path / "new", "--apply")
    assert outcome.status == 0, outcome.errors
    assert "offsets 14 to 14 (1) are missing" in outcome.errors
    described = eoctl("describe", tmp_path / "new" / "t-0")
    assert described.status == 1
    assert "the topic is not compacted" in described.errors


def test_nobody_follows_a_hole_or_goes_on_behind_one(
    copies: tuple[Path, Path, Hole], eoctl: Cli
) -> None:
    """Damage is refused in the same way; without the hole the copy follows."""
    holed, whole, hole = copies
    for follower, leader in ((holed, whole), (whole, holed)):
        outcome = eoctl("replicas", "rejoin", follower / "t-0", "--leader", leader / "t-0")
        assert outcome.status == 4, outcome.text
        assert f"{holed / 't-0'}: is damaged behind offset {hole.first}" in outcome.errors


def test_loss_and_advise_of_both_copies(copies: tuple[Path, Path, Hole], eoctl: Cli) -> None:
    holed, whole, hole = copies
    lost = rows_of(eoctl("loss", holed, whole, *JSONL), "lost")
    assert [(row["path"], row["base_offset"]) for row in lost] == [(str(holed / "t-0"), hole.first)]
    advised = eoctl("start-order", holed, whole, "--topic", "t").errors
    reported = f"offsets {hole.first} to {hole.last} ({hole.last - hole.first + 1}) are missing"
    is_between_segments = hole.last % 10 == 9
    assert (reported in advised) is is_between_segments
    assert "not the batches below (eoctl replicas compare)" in advised
