"""Every acknowledged record is given under its offset, or lies in a loss that is reported.

`tests.damage.absences` makes the mutants and judges. `EOCTL_ABSENCES=FIRST-LAST` tries other seeds.
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.damage.absences import absence, complaints
from tests.drawn import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Range = tuple[int | None, int | None]


def seeds() -> range:
    wanted = re.fullmatch(r"(\d+)-(\d+)", os.environ.get("EOCTL_ABSENCES", ""))
    return range(int(wanted[1]), int(wanted[2]) + 1) if wanted else range(times(20_000, 20))


def told_ranges(text: str) -> Iterator[Range]:
    """The losses in what a command says to people."""
    for first, last in re.findall(r"offsets (\d+) to (\d+|unknown)", text):
        yield int(first), None if last == "unknown" else int(last)


def exported(target: Path) -> Iterator[tuple[int, bytes | None]]:
    for path in sorted(target.rglob("*.jsonl")):
        if not path.name.startswith("_"):
            for row in map(json.loads, path.read_text().splitlines()):
                yield row["offset"], base64.b64decode(row["value_base64"])


PARTS = times(200, 5)  # each ends well within the limit of a test


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_in_silence(part: int, tmp_path: Path, eoctl: Cli) -> None:
    for seed in seeds()[part::PARTS]:
        out = tmp_path / str(seed)
        out.mkdir()
        mutant = absence(seed, out)
        lost_of = eoctl("loss", mutant.partition, "--output", "jsonl")
        rows = [row for row in map(json.loads, lost_of.text.splitlines()) if row["kind"] == "lost"]
        lost: list[Range] = [(row["base_offset"], row["last_offset"]) for row in rows]
        consumed = eoctl("consume", mutant.partition, "--skip-corrupt", "--output", "jsonl")
        records = map(json.loads, consumed.text.splitlines())
        given = [(each["offset"], each["value"].encode()) for each in records]
        call = ("export", mutant.partition, "--format", "jsonl", "--to", out / "to")
        exporting = eoctl(*call)
        files = [*exported(out / "to")]
        lines = (out / "to" / "_lost.jsonl").read_text().splitlines()
        listed = [(row["base_offset"], row["last_offset"]) for row in map(json.loads, lines)]
        checked = eoctl("check", mutant.partition, "--fail-on", "error")

        assert complaints(mutant, given, lost) == [], mutant.story
        assert complaints(mutant, given, told_ranges(consumed.errors)) == [], mutant.story
        assert complaints(mutant, files, listed) == [], mutant.story
        if {offset for offset, _ in given} != mutant.offsets:
            statuses = [each.status for each in (lost_of, consumed, checked)]
            assert statuses == [1, 5, 1], mutant.story
            assert exporting.status in {1, 5}, mutant.story  # damage, or nothing but absence
