"""Every acknowledged record is given under its offset, or lies in a loss that is reported.

`tests.damage.absences` makes the mutants and judges. `make test-all` tries a fifth of the seeds,
`make absences` all of them, `EOCTL_ABSENCES=FIRST-LAST` others.
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


def seeds(count: int = 20_000) -> range:
    wanted = os.environ.get("EOCTL_ABSENCES", "")
    if wanted == "all":
        return range(count)
    first, _, last = wanted.partition("-")
    return range(int(first), int(last) + 1) if wanted else range(times(count // 5, 20))


def reported_ranges(text: str) -> Iterator[Range]:
    """The losses in what a command says to people."""
    for first, last in re.findall(r"offsets (\d+) to (\d+|unknown)", text):
        yield int(first), None if last == "unknown" else int(last)


def ranges_in(outcome: Outcome, kind: str = "") -> list[Range]:
    """The losses in the rows of a command; one of damage that has no room names no offsets."""
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    return [
        (row["base_offset"], row["last_offset"])
        for row in rows
        if (row["kind"] == kind or not kind)
        and not str(row.get("reason")).endswith("no offset is missing")
        and (row["base_offset"], row.get("offsets_count")) != (None, 0)
    ]


def listed_in(target: Path) -> list[Range]:
    """The losses in the list of an export."""
    rows = map(json.loads, (target / "_lost.jsonl").read_text().splitlines())
    return [(row["base_offset"], row["last_offset"]) for row in rows if row["missing_offsets"] != 0]


def exported(target: Path) -> Iterator[tuple[int, bytes | None]]:
    for path in sorted(target.rglob("*.jsonl")):
        if not path.name.startswith("_"):
            for row in map(json.loads, path.read_text().splitlines()):
                yield row["offset"], base64.b64decode(row["value_base64"])


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def consumed(eoctl: Cli, partition: Path) -> tuple[list[tuple[int, bytes]], list[Range]]:
    """Return the records that `consume` gives, and the losses that it names."""
    outcome = eoctl("consume", partition, "--skip-corrupt", "--output", "jsonl")
    rows = map(json.loads, outcome.text.splitlines())
    given = [(each["offset"], each["value"].encode()) for each in rows]
    return given, [*reported_ranges(outcome.errors)]


PARTS = times(200, 5)  # each ends well within the limit of a test


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_in_silence(part: int, tmp_path: Path, eoctl: Cli) -> None:
    for seed in seeds()[part::PARTS]:
        mutant = absence(seed, directory(tmp_path / str(seed)))
        out = tmp_path / str(seed)
        lost_of = eoctl("loss", mutant.partition, "--output", "jsonl")
        lost = ranges_in(lost_of, "lost")
        reading = eoctl("consume", mutant.partition, "--skip-corrupt", "--output", "jsonl")
        records = map(json.loads, reading.text.splitlines())
        given = [(each["offset"], each["value"].encode()) for each in records]
        call = ("export", mutant.partition, "--format", "jsonl", "--to", out / "to")
        exporting = eoctl(*call)
        files = [*exported(out / "to")]
        listed = listed_in(out / "to")
        checked = eoctl("check", mutant.partition, "--fail-on", "error")

        assert complaints(mutant, given, lost) == [], mutant.story
        assert complaints(mutant, given, reported_ranges(reading.errors)) == [], mutant.story
        assert complaints(mutant, files, listed) == [], mutant.story
        if {offset for offset, _ in given} != mutant.offsets:
            statuses = [each.status for each in (lost_of, reading, checked)]
            assert statuses == [1, 5, 1], mutant.story
            assert exporting.status in {1, 5}, mutant.story  # damage, or nothing but absence


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_in_silence_by_what_changes_or_sums_up(
    part: int, tmp_path: Path, eoctl: Cli
) -> None:
    """An audit, a salvage, and `adopt` of the mutant and of a whole copy."""
    for seed in seeds()[part::PARTS][:: times(1, 2)]:
        mutant = absence(seed, directory(tmp_path / str(seed)))
        given, _ = consumed(eoctl, mutant.partition)
        log_dir = mutant.partition.parent
        audited = eoctl("spark-audit", log_dir, "--report", "corrupt", "--output", "jsonl")
        assert complaints(mutant, given, ranges_in(audited)) == [], mutant.story
        is_whole = {offset for offset, _ in given} == mutant.offsets
        assert is_whole or audited.status != 0, mutant.story

        whole = absence(seed, directory(tmp_path / f"{seed}-whole"), is_whole=True)
        meta = whole.partition.parent / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
        target = tmp_path / f"{seed}-new"
        adopted = eoctl("adopt", log_dir, meta.parent, "--to", target, "--apply")
        # No record is lost with a leader epoch: either copy may lead, and damage is refused.
        assert adopted.status == 0 or "EPC-3" in adopted.errors, (mutant.story, adopted.errors)
        if adopted.status == 0:
            taken, _ = consumed(eoctl, target / "t-0")
            assert complaints(whole, taken, []) == [], mutant.story

        repair = ("repair", mutant.partition, "--strategy", "salvage", "--single-copy", "--apply")
        repaired = eoctl(*repair, "--output", "jsonl")
        assert repaired.status in {0, 1, 5}, (mutant.story, repaired.errors)
        kept, _ = consumed(eoctl, mutant.partition)
        lost = ranges_in(eoctl("loss", log_dir, "--output", "jsonl"), "lost")
        assert complaints(mutant, kept, lost) == [], mutant.story
