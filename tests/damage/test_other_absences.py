"""As `test_absences`: logs with transactions, compacted logs, old formats; and `serve`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from storage.log.segment import open_segment
from tests.cli.test_serve_damage import Here
from tests.damage.other_absences import KINDS, Mutant, Range, faults, mutant
from tests.damage.test_absences import (
    PARTS,
    consumed,
    directory,
    exported,
    listed_in,
    ranges_in,
    reported_ranges,
    seeds,
)
from tests.drawn import times

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Given = list[tuple[int, bytes | None]]


def served(log: Mutant, work: Path, *, is_committed: bool) -> tuple[Given, list[Range]]:
    """Return what a client of `serve --on-damage skip` gets, and what was told to be missing."""
    here = Here(log.partition.parent, skips=True)
    topic = log.partition.name.rpartition("-")[0]
    batches, _ = here.read(topic, is_committed=is_committed)
    path = work / f"{0:020d}.log"
    path.write_bytes(b"".join(each.data for each in batches))
    given: Given = []
    aborted = sorted(here.aborted, key=lambda each: each[1])
    hidden: set[int] = set()  # producers, as a client leaves out what was aborted
    with open_segment(path, base_offset=None) as segment:
        for each in segment.scan(verify_crc=True):
            header = each.header
            while aborted and aborted[0][1] <= header.last_offset:
                hidden.add(aborted.pop(0)[0])
            if header.is_control:
                hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                given += [(record.offset, record.value) for record in segment.records(each)]
    unstable: list[Range] = [(here.stable_offset, None)] if is_committed else []
    return given, [*here.lost(topic), *unstable]


def committed(eoctl: Cli, partition: Path) -> tuple[Given, list[Range]]:
    """Return what `consume` gives of committed records, and the losses that it names."""
    call = ("consume", partition, "--isolation", "read_committed", "--skip-corrupt")
    outcome = eoctl(*call, "--output", "jsonl")
    rows = map(json.loads, outcome.text.splitlines())
    given: Given = [(each["offset"], each["value"].encode()) for each in rows]
    stable = re.search(r"the last stable offset is (\d+)", outcome.errors)
    unstable: list[Range] = [(int(stable[1]), None)] if stable else []
    return given, [*reported_ranges(outcome.errors), *unstable]


def prefixed(reader: str, found: list[str]) -> list[str]:
    return [f"{reader}: {each}" for each in found]


def judged(log: Mutant, out: Path, eoctl: Cli) -> list[str]:
    """Tell which reader is wrong, and how."""
    losing = eoctl("loss", log.partition, "--output", "jsonl")
    lost, unknown = ranges_in(losing, "lost"), ranges_in(losing, "unknown")
    given, said = consumed(eoctl, log.partition)
    exporting = eoctl("export", log.partition, "--format", "jsonl", "--to", out / "to")
    files = [*exported(out / "to")]
    found = prefixed("loss", faults(log, given, lost))
    found += prefixed("consume", faults(log, given, said))
    found += prefixed("export", faults(log, files, listed_in(out / "to")))
    found += prefixed("serve", faults(log, *served(log, out, is_committed=False)))
    for reader, (some, missing) in (
        ("serve, committed", served(log, out, is_committed=True)),
        ("consume, committed", committed(eoctl, log.partition)),
    ):
        found += prefixed(reader, faults(log, some, missing, withheld=unknown))
    audit = ("spark-audit", log.partition.parent, "--report", "corrupt", "--output", "jsonl")
    audited = eoctl(*audit)
    found += prefixed("audit", faults(log, given, ranges_in(audited)))
    checked = eoctl("check", log.partition, "--fail-on", "error")
    missed = {each for each in log.records if each >= log.reported_from} - {
        each for each, _ in given
    }
    if missed:
        statuses = [losing.status, audited.status, checked.status]
        if 0 in statuses or exporting.status not in {1, 5}:
            found.append(f"loss, audit, check and export end with {statuses}, {exporting.status}")
    elif log.is_whole and any((losing.status, exporting.status, audited.status, checked.status)):
        found.append("a whole log is told as damaged")
    for name in ("describe", "producers", "duplicates"):
        status = eoctl(name, log.partition, "--output", "jsonl").status
        if (missed and not status) or (log.is_whole and status):
            found.append(f"{name} ends with {status}")
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_in_silence(kind: str, part: int, tmp_path: Path, eoctl: Cli) -> None:
    for seed in seeds(4_000)[part::PARTS]:
        out = directory(tmp_path / str(seed))
        log = mutant(kind, seed, out, is_whole=seed % 20 == 19)
        assert judged(log, out, eoctl) == [], log.story


def test_damage_without_room_is_no_loss(tmp_path: Path, eoctl: Cli) -> None:
    """What is damaged between two batches whose offsets are neighbours lacks nothing."""
    log = mutant("old", 3901, tmp_path)
    assert judged(log, tmp_path, eoctl) == [], log.story
    outcome = eoctl("spark-audit", log.partition.parent, "--report", "corrupt", "--output", "jsonl")
    (row,) = [each for each in map(json.loads, outcome.text.splitlines()) if each["start_pos"]]
    assert (row["base_offset"], row["last_offset"]) == (None, None)
    assert row["reason"].endswith("; no offset is missing")


def test_a_first_wrapper_that_says_nothing_is_lost_from_the_start(
    tmp_path: Path, eoctl: Cli
) -> None:
    log = mutant("old", 1898, tmp_path)
    outcome = eoctl("spark-audit", log.partition.parent, "--report", "corrupt", "--output", "jsonl")
    assert ranges_in(outcome) == ranges_in(eoctl("loss", log.partition, "-o", "jsonl"), "lost")


def test_a_wrapper_that_states_a_wrong_offset_is_an_error(tmp_path: Path, eoctl: Cli) -> None:
    """What is in it says so; an offset is covered by no checksum in the old formats."""
    log = mutant("old", 1898, tmp_path)
    rows = []
    for how in ((), ("--deep",)):
        checked = eoctl("check", log.partition, "-o", "jsonl", *how)
        assert checked.status == 1
        found = map(json.loads, checked.stdout.splitlines())
        rows.append([each for each in found if each.get("check_id") == "BAT-17"])
    assert len(rows[0]) == 1
    assert rows[0] == rows[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_salvaged_is_told(kind: str, part: int, tmp_path: Path, eoctl: Cli) -> None:
    """After a salvage, what is not there is a loss, and no aborted record is committed."""
    for seed in seeds(4_000)[part::PARTS][:: times(1, 2)]:
        log = mutant(kind, seed, directory(tmp_path / str(seed)))
        # A repair takes the mark of a clean stop away.
        log = log._replace(reported_from=log.crashed_from)
        call = ("repair", log.partition, "--strategy", "salvage", "--single-copy", "--apply")
        repaired = eoctl(*call, "--output", "jsonl")
        assert repaired.status in {0, 1, 5}, (log.story, repaired.errors)
        kept, _ = consumed(eoctl, log.partition)
        losing = eoctl("loss", log.partition.parent, "--output", "jsonl")
        lost, unknown = ranges_in(losing, "lost"), ranges_in(losing, "unknown")
        assert faults(log, kept, lost) == [], log.story
        some, missing = committed(eoctl, log.partition)
        missing += lost  # of what a change took, readers know nothing
        assert faults(log, some, missing, withheld=unknown) == [], log.story
