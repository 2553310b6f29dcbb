"""A share of the mutants; `make mutants` runs many more."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest

from storage.dirs.lookup import END_KINDS
from tests.damage.mutants import faults, judge, pieces
from tests.damage.mutants.run import run, write_files
from tests.drawn import IS_ALL, times
from tests.running import runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

MUTANTS_COUNT = times(300, 60)
PARTS_COUNT = 2  # for as many processes of the test run
BY_COMMAND_COUNT = 6


@pytest.mark.parametrize("part", range(PARTS_COUNT))
def test_no_good_batch_is_lost_in_silence(
    golden: Callable[[str], Path], tmp_path: Path, part: int
) -> None:
    seed = int(os.environ["EOCTL_SEED"])
    numbers = range(part, MUTANTS_COUNT, PARTS_COUNT)
    found = run(golden("kafka-4.3.1"), golden("kafka-0.10.2-legacy"), tmp_path, seed, numbers)
    print(f"{found.mutants_count} mutants, seed {seed}; {found.good_count} good batches")
    assert not found.faults
    assert found.mutants_count == len(numbers)
    assert found.damaged_count > (0.9 if IS_ALL else 0.8) * found.mutants_count
    assert found.good_count > 3 * found.mutants_count


def test_commands_say_what_their_readers_do(
    golden: Callable[[str], Path], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A few through the command line: rows and statuses."""
    eoctl = runner(capfdbinary)
    v2, _ = pieces.read_sources(golden("kafka-4.3.1"), golden("kafka-0.10.2-legacy"))
    directory = tmp_path / "t-0"
    directory.mkdir()
    seed = int(os.environ["EOCTL_SEED"])
    for number in range(BY_COMMAND_COUNT):
        rng = random.Random(f"{seed} command {number}")
        _, segments = pieces.draw(rng, v2, v2)
        mutant = faults.mutate(rng, segments)
        write_files(directory, segments, mutant.files)
        is_reported = False
        for place, data in enumerate(mutant.files):
            path = directory / f"{segments[place].base_offset:020d}.log"
            kinds = _check_rows(eoctl, path, judge.good_batches(data, mutant.places[place]))
            if place == len(mutant.files) - 1:
                kinds -= END_KINDS  # there the log ends, for who reads it
            is_reported |= bool(kinds)
        consumed = eoctl("consume", directory, "--skip-corrupt", "--output", "jsonl")
        assert consumed.status in {0, 1, 5}, mutant.words  # 1: damaged, and given
        exported = eoctl("export", directory, "--to", tmp_path / f"export-{number}")
        assert exported.status in {0, 1}, mutant.words
        if is_reported:
            assert exported.status == 1, mutant.words
            assert consumed.status, mutant.words


def _check_rows(eoctl: Callable[..., Outcome], path: Path, good: list[judge.Batch]) -> set[str]:
    """Return the kinds of damage reported; each good batch has a row, or lies in what was."""
    found = eoctl("dump-segment", path, "--output", "jsonl")
    rows = [json.loads(line) for line in found.text.splitlines()]
    given = {each["pos"] for each in rows if each["kind"] == "batch"}
    reported = [each for each in rows if each["kind"] == "verdict" and not each["is_normal"]]
    for batch in good:
        is_reported = any(each["start_pos"] <= batch.pos < each["end_pos"] for each in reported)
        assert batch.pos in given or is_reported, path
    assert found.status == 1 or not reported
    return {each["verdict"] for each in reported}
