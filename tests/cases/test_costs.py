"""What a change costs: intact records that are not there afterwards are counted, and kept."""

from __future__ import annotations

import shutil
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
    "a lowered offset": ({0: [*singles(0, 8), moved(batch(8), 1), *singles(9, 15)]}, 1),
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


def reported(count: int) -> list[str]:
    """What every command says of so many records in batches of one, or of three."""
    batches = {1: "1 batch", 3: "1 batch"}.get(count, f"{count} batches")
    return [f"{count} intact record{'s' * (count != 1)} in {batches}"] if count else []


def reported_by_check(eoctl: Cli, log_dir: Path) -> list[str]:
    """What its findings say of lost records; there are no others, and its status says so."""
    checked = eoctl("check", log_dir, *JSONL)
    found = rows_of(checked, "finding")
    grave = [each for each in found if each["severity"] != "note"]
    assert {each["check_id"] for each in grave} <= {"JNL-3"}
    assert checked.status == (1 if grave else 0)
    return [each["message"].partition(" of 2")[0] for each in grave]


def reported_by_loss(eoctl: Cli, log_dir: Path) -> list[str]:
    found = eoctl("loss", log_dir, *JSONL)
    rows = rows_of(found, "lost")
    assert found.status == (1 if rows else 0)
    return [each["reason"].partition(" of 2")[0] for each in rows]


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
    journal = journal_of(log_dir)
    found = reported_by_check(eoctl, log_dir)
    assert found == reported_by_loss(eoctl, log_dir)
    assert [each.partition(", ")[0] for each in found] == reported(count)
    against = eoctl("diff", journal, log_dir, *JSONL)
    assert len(rows_of(against, "gone")) == count
    assert against.status == (1 if count or rows_of(against, "new") else 0)
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


def closed_log(tmp_path: Path) -> Path:
    made = HandLogDir(tmp_path)
    made.closed(singles(0, 30), 30)
    return made.path


def flip_last(log_dir: Path) -> None:
    """Change a bit of the last batch."""
    path = log_dir / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def flip_middle(log_dir: Path) -> None:
    """Change a bit of the batch at offset 20, behind which the log goes on."""
    path = log_dir / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"v20")] ^= 1
    path.write_bytes(data)


CHANGES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "truncate": (None, ("truncate", "--to-offset", "20", "--single-copy")),
    "move-away": (None, ("repair", "--strategy", "move-away", "--replicated")),
    "salvage": (flip_last, ("repair", *SALVAGE)),
    "salvage-middle": (flip_middle, ("repair", *SALVAGE)),
    "as-broker": (flip_last, ("repair", "--strategy", "as-broker", "--single-copy")),
}
REPORTED = {
    "truncate": "10 records, 10 acknowledged: lost by the truncation of ",
    "move-away": "30 acknowledged offsets moved away by the repair of ",
    "salvage": "1 acknowledged offset lost by the repair of ",
    "salvage-middle": "1 acknowledged offset lost by the repair of ",
    "as-broker": "1 acknowledged offset lost by the repair of ",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_loss_stays_known(tmp_path: Path, eoctl: Cli, name: str) -> None:
    """The checkpoints are lowered, so only the journal knows what was acknowledged."""
    log_dir = closed_log(tmp_path)
    damage, (command, *options) = CHANGES[name]
    if damage is not None:
        damage(log_dir)
        (log_dir / ".kafka_cleanshutdown").unlink()
        checkpoint = log_dir / "recovery-point-offset-checkpoint"
        checkpoint.write_text(checkpoint.read_text().replace("t 0 30", "t 0 0"))
    if name == "move-away":
        shutil.rmtree(log_dir / "__cluster_metadata-0")
        (log_dir / "bootstrap.checkpoint").unlink()
    done = eoctl(command, log_dir / "t-0", *options, "--apply")
    assert done.status == 0, done.errors
    journal = journal_of(log_dir)
    [row] = rows_of(eoctl("loss", log_dir, *JSONL), "lost")
    assert row["reason"].startswith(REPORTED[name])
    [found] = [
        each
        for each in rows_of(eoctl("check", log_dir, *JSONL), "finding")
        if each["partition"] == 0 and each["topic"] == "t"
    ]
    assert found["check_id"] == "JNL-3"
    assert found["message"] == row["reason"]
    against = eoctl("diff", journal, log_dir, *JSONL)
    assert against.status == 1
    assert row["reason"] in against.errors
    if name in {"truncate", "move-away"}:
        assert len(rows_of(against, "gone")) == row["records_count"] or row["offsets_count"] == 30
    assert eoctl("undo", journal).status == 0
    assert "JNL-3" not in eoctl("check", log_dir).text


# --- nothing to repair ----------------------------------------------------------------------------


def test_a_clean_node_has_nothing_to_repair(case: Callable[[str], Path], eoctl: Cli) -> None:
    """Compaction has removed batches that snapshots and `.txnindex` files still know of."""
    node = case("clean-two-dirs")
    log_dirs = [node / "one", node / "two"]
    repaired = eoctl("repair", *log_dirs, "--strategy", "salvage", *JSONL)
    assert repaired.status == 0, repaired.errors
    assert rows_of(repaired, "step") == []
    files = rows_of(eoctl("rebuild", *log_dirs, *JSONL), "derived_file")
    assert {each["file"] for each in files if each["state"] != "equal"} <= {
        f"{offset:020d}.snapshot"
        for offset in (20, 40, 60)  # at the log start or below it
    }


def test_a_rebuild_keeps_what_only_a_broker_knew(case: Callable[[str], Path], eoctl: Cli) -> None:
    partition = case("clean-two-dirs") / "one/compacted-0"
    before = {each.name: each.read_bytes() for each in partition.iterdir()}
    assert eoctl("rebuild", partition, "--apply").status == 0
    assert {each.name: each.read_bytes() for each in partition.iterdir()} == before


def test_zeros_behind_a_crash_are_nothing_to_repair(
    case: Callable[[str], Path], eoctl: Cli
) -> None:
    log_dir = case("zero-tail")
    for strategy in ((), ("--strategy", "salvage")):
        shown = eoctl("repair", log_dir, *strategy, *JSONL)
        assert shown.status == 0, shown.errors
        assert {each["strategy"] for each in rows_of(shown, "repair")} <= {"none", "salvage"}
        assert rows_of(shown, "step") == []
    assert "there is nothing to repair" in on_terminal("repair", log_dir).text


# --- what can be removed --------------------------------------------------------------------------


def test_a_cleaned_file_goes_with_its_invalid_swap_files(tmp_path: Path, eoctl: Cli) -> None:
    """Without the `.cleaned`, a start takes the `.swap` at or above it for valid (REC-3)."""
    log_dir = closed_log(tmp_path)
    names = [
        *(f"{base:020d}.log.swap" for base in (10, 20)),
        f"{10:020d}.index.swap",
        f"{15:020d}.log.cleaned",
    ]
    for name in names:
        (log_dir / "t-0" / name).write_bytes(batch(20))
    (log_dir / "t-0" / f"{5:020d}.log.deleted").write_bytes(batch(5))
    found = [each["path"] for each in rows_of(eoctl("reclaim", log_dir, *JSONL), "reclaimable")]
    patterns = f"{log_dir}/t-0/{20:020d}.log.swap {log_dir}/t-0/*.cleaned"
    assert found == [f"{log_dir}/t-0/*.deleted", patterns]
    assert eoctl("reclaim", log_dir, "--apply").status == 0
    left = sorted(each.name for each in (log_dir / "t-0").glob("*.swap"))
    assert left == [f"{10:020d}.index.swap", f"{10:020d}.log.swap"]


def test_a_dead_cleaner_is_seen(case: Callable[[str], Path], eoctl: Cli) -> None:
    """19 of 20 segments are closed, and the cleaner has no line for them."""
    log_dir = case("cleaner-dead")
    shown = eoctl("describe", log_dir / "c-0", *JSONL)
    [row] = rows_of(shown, "partition")
    assert (row["uncompacted_records_count"], row["dirty_ratio"]) == (950, 1.0)
    assert row["uncompacted_since_ms"] == T0
    reported = "in 19 closed segments"
    assert f"950 records {reported}" in shown.errors
    assert "(dirty ratio 1.00), the oldest of 2026-" in shown.errors
    reclaimed = eoctl("reclaim", log_dir, *JSONL).errors
    assert f"950 offsets {reported}" in reclaimed
    assert "the cleaner has never recorded progress" in reclaimed
    [other] = rows_of(eoctl("describe", log_dir / "t-0", *JSONL), "partition")
    assert other["dirty_ratio"] is None


def test_an_adoption_that_repairs_says_what_it_leaves_out(
    case: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """The source stays as it is; the journal of the new log dir says what is not in it."""
    new = tmp_path / "new"
    call = ("adopt", case("salvage-drops-records"), "--to", new, "--repair", "salvage")
    planned = eoctl(*call)
    assert planned.status == 0, planned.errors
    text = "4 intact records in 4 batches, 4 acknowledged"
    assert f"repaired for the copy (lost: {text})" in planned.errors
    assert eoctl(*call, "--apply").status == 0
    [row] = rows_of(eoctl("loss", new, *JSONL), "lost")
    assert row["reason"].startswith(f"{text}: lost by the adoption of ")
