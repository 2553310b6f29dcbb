"""What a change costs: intact records that are not there afterwards are counted, and kept."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases.files import T0, HandLogDir, batch, singles, time_index
from tests.changes import journal_of, rows_of
from tests.cli.test_plan_answers import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

SALVAGE = ("--strategy", "salvage", "--single-copy")
JSONL = ("--output", "jsonl")


def batches_in(paths: Iterable[Path]) -> list[bytes]:
    """Whole batches by their lengths, as bytes."""
    found = []
    for path in sorted(paths):
        data, pos = path.read_bytes(), 0
        while pos < len(data):
            end = pos + 12 + struct.unpack_from(">i", data, pos + 8)[0]
            found.append(data[pos:end])
            pos = end
    return found


def records_in(found: bytes) -> int:
    return int(struct.unpack_from(">i", found, 57)[0])


def other(*offsets: int) -> list[bytes]:
    """Batches of one record each that nothing else has."""
    return [batch(each, [(b"other", b"X%d" % each)]) for each in offsets]


def moved(found: bytes, base_offset: int) -> bytes:
    """Another base offset, which no checksum covers."""
    return struct.pack(">q", base_offset) + found[8:]


# name -> segments by their names, and the records that nothing has after a salvage.
LOGS: dict[str, tuple[dict[int, list[bytes]], int]] = {
    "written over": ({0: [*singles(0, 10), *other(5, 6, 7, 8), *singles(10, 15)]}, 4),
    "a batch twice": ({0: [*singles(0, 10), *singles(5, 6), *singles(10, 15)]}, 0),
    "two swapped": ({0: [*singles(0, 5), batch(6), batch(5), *singles(7, 15)]}, 1),
    "a raised offset": ({0: [*singles(0, 5), moved(batch(5, n=3), 500), *singles(8, 15)]}, 3),
    "a lowered offset": ({0: [*singles(3, 8), moved(batch(8), 1), *singles(9, 15)]}, 1),
    "segments overlap": ({0: singles(0, 12), 10: singles(10, 15)}, 0),
    "segments differ": ({0: [*singles(0, 10), *other(10, 11)], 10: singles(10, 15)}, 2),
    "names swapped": ({0: singles(10, 15), 10: singles(0, 10)}, 15),
    "records in larger batches": ({0: [*singles(0, 12)], 10: [batch(10, n=5)]}, 0),
    "a wrong name": ({100: singles(0, 15)}, 0),
    "a wrong name between": ({0: singles(0, 5), 100: singles(5, 10), 10: singles(10, 15)}, 0),
}


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int]:
    """A log dir, and the records that a salvage of t-0 drops."""
    segments, count = LOGS[request.param]
    made = HandLogDir(tmp_path)
    made.remove()
    for base, batches in segments.items():
        made.segment(base, batches, times=time_index([(T0 + base, base)], base))
    made.checkpoints(high_watermark=15, recovery_point=0)
    made.epochs()
    made.crash()
    return made.path, count


def salvaged(eoctl: Cli, log_dir: Path) -> dict[str, Any]:
    done = eoctl("repair", log_dir / "t-0", *SALVAGE, "--apply", *JSONL)
    assert done.status == 0, done.errors
    [row] = rows_of(done, "repair")
    return row


def test_intact_records_that_go_are_counted(log: tuple[Path, int], eoctl: Cli) -> None:
    """Given and reported lost is what was on disk."""
    log_dir, count = log
    before = batches_in((log_dir / "t-0").glob("*.log"))
    [planned] = rows_of(eoctl("repair", log_dir / "t-0", *SALVAGE, *JSONL), "repair")
    row = salvaged(eoctl, log_dir)
    assert {**planned, "applied": True} == row
    assert row["lost_records_count"] == count
    after = batches_in((log_dir / "t-0").glob("*.log"))
    gone = {each for each in before if each not in after}
    in_larger = {each for each in gone if records_in(each) == 1 and batch(10, n=5) in after}
    assert sum(map(records_in, gone - in_larger)) == count
    checked = eoctl("check", log_dir, *JSONL)
    assert checked.status == 0, checked.errors
    assert eoctl("undo", journal_of(log_dir)).status == 0
    assert batches_in((log_dir / "t-0").glob("*.log")) == before


def test_a_segment_under_a_wrong_name_is_renamed(case: Callable[[str], Path], eoctl: Cli) -> None:
    log_dir = case("wrong-segment-name")
    before = batches_in((log_dir / "t-0").glob("*.log"))
    row = salvaged(eoctl, log_dir)
    assert (row["log_start_offset"], row["log_end_offset"], row["lost_offsets_count"]) == (0, 30, 0)
    [path] = (log_dir / "t-0").glob("*.log")
    assert path.name == f"{0:020d}.log"
    assert batches_in([path]) == before


def test_a_refused_strategy_costs_nothing_known(
    case: Callable[[str], Path],
) -> None:
    """A comparison says nothing of a strategy that cannot be applied."""
    shown = on_terminal("repair", case("salvage-drops-records") / "t-0", width=120)
    loses = [each for each in shown.lines if each.startswith("Loses")]
    assert loses == ["Loses   by salvage: 4 intact records in 4 batches, 4 acknowledged"]
