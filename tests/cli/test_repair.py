"""`eoctl repair`: whole log dirs by each strategy, what is refused, and how to go back."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage.file_names import CLEAN_SHUTDOWN_NAME, LOG_FILE_KINDS, classify
from tests.changes import (
    held,
    in_80_columns,
    interrupt,
    journal_of,
    notes_of,
    rows_of,
    table,
    unpacked,
)
from tests.crash.trees import difference, leftovers, tree_of
from tests.damage.faults import read_batches
from tests.damage.planted import FAULTS
from tests.damage.planted.layout import edit_body
from tests.kafka.broker import copy_log_dir
from tests.recovery.repair.test_broker_start import COMPARED, TARGETS, WRITTEN_ON
from tests.transaction_logs import damaged, example, index_of, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

JSONL = ("--output", "jsonl")


def touch(log: Path, *numbers: int, place: int = 70, mask: int = 4) -> None:
    """Change a bit of some batches."""
    data = bytearray(log.read_bytes())
    for number in numbers:
        data[read_batches(log.read_bytes())[number].pos + place] ^= mask
    log.write_bytes(data)


def first_log(partition: Path) -> Path:
    return min(partition.glob("*.log"))


def repairs_of(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {Path(row["path"]).name: row for row in rows_of(outcome, "repair")}


# --- as the broker --------------------------------------------------------------------------------


def compared_files(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if classify(path.name).kind in COMPARED and path.suffix != ".deleted"
    }


@pytest.mark.share(2)
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("source", list(TARGETS))
def test_as_broker_leaves_what_a_real_start_left(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, source: str, jobs: int
) -> None:
    """Whole log dirs of killed brokers, all partitions by one plan; and back again."""
    target = golden("kafka-4.3.1") / TARGETS[source]
    log_dir = copy_log_dir(golden("kafka-4.3.1") / source, tmp_path / "log-dir")
    before = tree_of(log_dir)
    now_ms = (target / "recovery-point-offset-checkpoint").stat().st_mtime_ns // 1_000_000
    done = eoctl(
        "repair", log_dir, "--strategy", "as-broker", "--jobs", jobs, "--now", now_ms, "--apply",
        *JSONL,
    )  # fmt: skip
    assert done.status == 0, done.errors
    rows = repairs_of(done)
    assert sum(row["applied"] for row in rows.values()) > 10
    seen = 0
    for name in rows:
        if name in WRITTEN_ON.get(source, ()) or not list((log_dir / name).glob("*.log")):
            continue
        found, expected = compared_files(log_dir / name), compared_files(target / name)
        assert set(found) == set(expected), name
        assert [each for each in found if found[each] != expected[each]] == [], name
        seen += len(found)
    assert seen > 80
    again = eoctl("repair", log_dir, "--strategy", "as-broker", "--now", now_ms, *JSONL)
    assert (again.status, rows_of(again, "step")) == (0, [])
    assert eoctl("undo", journal_of(log_dir)).status == 0
    assert [e for e in difference(before, tree_of(log_dir)) if ".lock" not in e] == []


def test_as_broker_tells_what_the_start_drops(kafka: Path, eoctl: Cli) -> None:
    """Below the recovery point nothing is looked at (REC-14); above it all behind damage goes."""
    touch(first_log(kafka / "txn-0"), 17)
    touch(first_log(kafka / "rolled-0"), 1)
    whole = first_log(kafka / "txn-0").read_bytes()
    cut_pos = _bad_pos(whole)
    planned = eoctl("repair", kafka, "--strategy", "as-broker", *JSONL)
    rows = repairs_of(planned)
    assert rows["rolled-0"]["steps_count"] == 0
    (price,) = rows_of(planned, "price")
    (lost,) = price["lost_ranges"]
    assert (lost["start_pos"], lost["last_offset"]) == (cut_pos, 328)
    assert lost["base_offset"] == rows["txn-0"]["log_end_offset"]
    assert rows["txn-0"]["lost_offsets_count"] == 329 - lost["base_offset"]
    assert price["producers_count"] > 0
    assert price["changed_aborts"]
    reason = "corrupt at position"
    assert any(
        reason in note and "a broker truncates it there" in note for note in notes_of(planned)
    )


def _bad_pos(data: bytes) -> int:
    pos = 0
    while True:
        size = int.from_bytes(data[pos + 8 : pos + 12], "big") + 12
        try:
            read_batches(data[pos : pos + size])
        except AssertionError:
            return pos
        pos += size


def test_as_broker_of_what_was_flushed_and_is_gone(kafka: Path, eoctl: Cli) -> None:
    """A broker clamps its recovery point; here it is lowered, and told what goes."""
    log = first_log(kafka / "plain-0")
    log.write_bytes(log.read_bytes()[:-5])
    done = eoctl("repair", kafka / "plain-0", "--strategy", "as-broker", "--apply", *JSONL)
    assert done.status == 0, done.errors
    end = repairs_of(done)["plain-0"]["log_end_offset"]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert f"plain 0 {end}\n" in (kafka / name).read_text()
    (lost,) = rows_of(done, "price")[0]["lost_ranges"]
    assert (lost["base_offset"], lost["finding"]) == (end, "torn_tail")


@pytest.mark.parametrize(
    ("place", "mask", "said"), [(0, 0x40, "REC-10"), (3, 0x20, "REC-10"), (16, 0x20, "REC-8")]
)
def test_as_broker_of_what_no_broker_mends(
    kafka: Path, eoctl: Cli, place: int, mask: int, said: str
) -> None:
    """A wrong base offset keeps it from starting, a wrong magic it does not see."""
    touch(first_log(kafka / "plain-0"), 4, place=place, mask=mask)
    outcome = eoctl("repair", kafka / "plain-0", "--strategy", "as-broker", "--apply")
    assert outcome.status == 4
    assert said in outcome.errors
    assert "--strategy salvage" in outcome.errors
    assert eoctl("repair", kafka / "plain-0", "--strategy", "salvage", "--apply").status == 0


def test_as_broker_of_old_formats(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """Nothing is written in another format: logs are cut, and what is derived is made anew."""
    log_dir = tmp_path / "legacy"
    shutil.copytree(golden("kafka-0.10.2-legacy"), log_dir)
    (log_dir / CLEAN_SHUTDOWN_NAME).unlink()
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    kept = {}
    for log in sorted(log_dir.glob("*/*.log")):
        log.chmod(0o644)
        data = log.read_bytes()
        last = read_batches(data)[-1]
        kept[log] = data[: last.pos]
        log.write_bytes(data[:-3])
    assert len(kept) > 5
    done = eoctl(
        "repair", log_dir, "--strategy", "as-broker", "--single-copy", "--apply", "--now", "0",
        *JSONL,
    )  # fmt: skip
    assert done.status == 0, done.errors
    assert {log: log.read_bytes() for log in kept} == kept
    rows = rows_of(done, "repair")
    assert {row["lost_ranges_count"] for row in rows} == {1}
    rebuilt = rows_of(eoctl("rebuild", log_dir, "--now", "0", *JSONL))
    # Old brokers have no leader epochs, and there are none to write: that is as it should be.
    assert {row["state"] for row in rebuilt} == {"equal"}


def test_as_broker_with_leader_epochs_that_do_not_parse(kafka: Path, eoctl: Cli) -> None:
    """They end a start (REC-2): what makes them anew is the next step."""
    (kafka / "rolled-0" / "leader-epoch-checkpoint").write_text("0\n1\n0#0\n")
    refused = eoctl("repair", kafka / "rolled-0", "--strategy", "as-broker", "--apply")
    assert refused.status == 4
    assert f"eoctl repair {kafka / 'rolled-0'} --strategy salvage" in refused.errors


# --- salvage --------------------------------------------------------------------------------------


def test_salvage_of_a_whole_log_dir(kafka: Path, eoctl: Cli) -> None:
    """Places in every partition, middle segments too; what is left is a log, and stays so."""
    source, kept, missing = random.Random(7), {}, {}
    for log in sorted(kafka.glob("*-0/*.log")):
        name = f"{log.parent.name}/{log.name}"
        data = log.read_bytes()
        batches = read_batches(data)
        if log.parent.name == "__cluster_metadata-0" or len(batches) < 4:
            continue
        numbers = {*source.sample(range(1, len(batches) - 1), 2)}
        touch(log, *numbers, place=source.choice([9, 30, 60]))
        kept[name] = b"".join(
            data[each.pos : each.end] for n, each in enumerate(batches) if n not in numbers
        )
        missing[name] = sorted(numbers)
        later = {n: batches[n + 1].base_offset for n in numbers}
        missing[name] = sorted(
            offset for n in numbers for offset in range(batches[n - 1].last_offset + 1, later[n])
        )
    assert len(kept) > 12
    before = tree_of(kafka)
    done = eoctl("repair", kafka, "--strategy", "salvage", "--jobs", 2, "--apply", *JSONL)
    assert done.status == 0, done.errors
    for name, data in kept.items():
        assert (kafka / name).read_bytes() == data, name
    (price,) = rows_of(done, "price")
    lost: dict[str, list[int]] = {}
    for each in price["lost_ranges"]:
        lost.setdefault(each["file"], []).extend(
            range(each["base_offset"], each["last_offset"] + 1)
        )
    for name, offsets in missing.items():
        assert {*offsets} <= {*lost[name]}, name
        if not name.startswith("compacted"):
            assert lost[name] == offsets, name
    assert set(lost) == set(missing)
    assert not (kafka / CLEAN_SHUTDOWN_NAME).exists()
    assert leftovers(kafka) == []
    again = eoctl("repair", kafka, "--strategy", "salvage", *JSONL)
    assert (again.status, rows_of(again, "step")) == (0, [])
    # Nothing is left that a broker's start would change, from the recovery points on.
    start = eoctl("repair", kafka, "--strategy", "as-broker", *JSONL)
    assert (start.status, rows_of(start, "step")) == (0, [])
    found = eoctl("check", "--now", "dir", kafka, *JSONL)
    bad = [row for row in rows_of(found) if row.get("severity") in {"error", "warning"}]
    bad = [row for row in bad if "__cluster_metadata" not in json.dumps(row)]
    assert {row["check_id"] for row in bad} == {"JNL-3"}  # what the repair itself has lost
    assert {Path(row["path"]).name for row in bad} == {Path(name).parent.name for name in kept}
    rebuilt = eoctl("rebuild", kafka, *JSONL)
    names = {Path(name).parent.name for name in kept}
    states = [row for row in rows_of(rebuilt) if row["partition"] in names]
    assert [row for row in states if row["state"] != "equal"] == []
    assert len(states) > 60
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert [e for e in difference(before, tree_of(kafka)) if ".lock" not in e] == []


def test_salvage_lowers_the_recovery_point_to_what_changes(kafka: Path, eoctl: Cli) -> None:
    """So that the next start verifies it, and derives its files anew, if a half was done."""
    middle = sorted((kafka / "rolled-0").glob("*.log"))[1]
    touch(middle, 1)
    done = eoctl("repair", kafka / "rolled-0", "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    points = (kafka / "recovery-point-offset-checkpoint").read_text()
    assert f"rolled 0 {int(middle.stem)}\n" in points
    assert "plain 0 179\n" in points
    assert "rolled 0 60\n" in (kafka / "replication-offset-checkpoint").read_text()


def test_a_lost_marker_leaves_its_transaction_open(kafka: Path, eoctl: Cli) -> None:
    """It is stated, and that `.txnindex` told of an abort that is none any more."""
    log = first_log(kafka / "txn-0")
    data = log.read_bytes()
    index = (kafka / "txn-0" / f"{0:020d}.txnindex").read_bytes()
    producer_id, first_offset, marker_offset = (
        int.from_bytes(index[-34 + at : -34 + at + 8], "big") for at in (2, 10, 18)
    )
    batches = read_batches(data)
    number = next(n for n, each in enumerate(batches) if each.base_offset == marker_offset)
    touch(log, number)
    planned = eoctl("repair", kafka / "txn-0", "--strategy", "salvage", *JSONL)
    assert planned.status == 0, planned.errors
    (price,) = rows_of(planned, "price")
    assert price["changed_aborts"] == [
        {
            "partition": "txn-0", "producer_id": producer_id, "first_offset": first_offset,
            "marker_offset": marker_offset,
        }
    ]  # fmt: skip
    opened = {row["first_offset"]: row["was_open"] for row in price["open_transactions"]}
    assert opened.pop(first_offset, False) is False
    assert set(opened.values()) <= {True}


def test_a_transaction_that_was_open_is_no_loss(killed: Path, eoctl: Cli) -> None:
    """As `check` has it: open-1 has no marker, and all of it lies behind the damage."""
    log = first_log(killed / "txn-0")
    touch(log, next(n for n, e in enumerate(read_batches(log.read_bytes())) if e.base_offset == 48))
    planned = eoctl("repair", killed / "txn-0", "--strategy", "salvage", *JSONL)
    (price,) = rows_of(planned, "price")
    opened = [(row["first_offset"], row["was_open"]) for row in price["open_transactions"]]
    assert opened == [(311, True)]
    assert "Loses   by salvage: 3 offsets, 3 acknowledged\n" in losses_of(eoctl, killed / "txn-0")


def test_a_marker_that_is_cut_off_is_lost(killed: Path, eoctl: Cli) -> None:
    """Of the data before the damage, what was ended behind it is open afterwards."""
    log = first_log(killed / "txn-0")
    number = next(n for n, e in enumerate(read_batches(log.read_bytes())) if e.base_offset >= 60)
    touch(log, number)
    planned = eoctl("repair", killed / "txn-0", "--strategy", "as-broker", *JSONL)
    (price,) = rows_of(planned, "price")
    opened = {row["first_offset"]: row["was_open"] for row in price["open_transactions"]}
    assert opened == dict.fromkeys((48, 51, 53), False)
    assert "the marker of 3 transactions" in losses_of(eoctl, killed / "txn-0")


def test_a_damaged_batch_may_have_been_a_marker(killed: Path, eoctl: Cli) -> None:
    log = first_log(killed / "txn-0")
    number = next(n for n, e in enumerate(read_batches(log.read_bytes())) if e.base_offset == 310)
    touch(log, number)
    planned = eoctl("repair", killed / "txn-0", "--strategy", "salvage", *JSONL)
    (price,) = rows_of(planned, "price")
    opened = {row["first_offset"]: row["was_open"] for row in price["open_transactions"]}
    assert opened == {309: None, 311: True}
    assert "; perhaps the marker of 1 transaction\n" in losses_of(eoctl, killed / "txn-0")


def losses_of(eoctl: Cli, partition: Path) -> str:
    """The comparison of the strategies, as a log keeps it."""
    return eoctl("repair", partition).errors


def test_unreadable_places_stay_behind(
    kafka: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file is kept by another name: what the disk does not give need not be copied."""
    log = first_log(kafka / "plain-0")
    data = log.read_bytes()
    batches = read_batches(data)
    bad = batches[3].pos // 512 * 512 + 1024
    assert batches[3].pos < bad < bad + 512 < batches[3].end
    for name in ("preadv", "pread"):
        monkeypatch.setattr(os, name, failing(getattr(os, name), log, range(bad, bad + 512)))
    done = eoctl(
        "repair", kafka / "plain-0", "--strategy", "salvage", "--jobs", 1, "--apply", *JSONL
    )
    assert done.status == 0, done.errors
    monkeypatch.undo()
    assert log.read_bytes() == data[: batches[3].pos] + data[batches[3].end :]
    (lost,) = rows_of(done, "price")[0]["lost_ranges"]
    assert (lost["finding"], lost["base_offset"], lost["last_offset"]) == (
        "unreadable", batches[3].base_offset, batches[3].last_offset,
    )  # fmt: skip


def failing(real: Any, log: Path, bad: range) -> Any:
    """A read that fails where it touches some bytes of a file, by whatever name it was opened."""
    inode = log.stat().st_ino

    def read(fd: int, wanted: Any, pos: int) -> Any:
        size = wanted if isinstance(wanted, int) else sum(map(len, wanted))
        if os.fstat(fd).st_ino == inode and pos < bad.stop and pos + size > bad.start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, wanted, pos)

    return read


def test_nothing_is_left_of_a_segment(kafka: Path, eoctl: Cli) -> None:
    """An empty one keeps its place, and with it the offsets behind it."""
    log = sorted((kafka / "rolled-0").glob("*.log"))[1]
    before = log.read_bytes()
    log.write_bytes(b"\xff" * len(before))
    done = eoctl("repair", kafka / "rolled-0", "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    assert log.read_bytes() == b""
    assert log.with_suffix(".index").read_bytes() == b""
    row = repairs_of(done)["rolled-0"]
    assert row["log_end_offset"] == 60
    assert row["lost_offsets_count"] == read_batches(before)[-1].last_offset + 1 - int(log.stem)


def test_legacy_logs(golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli) -> None:
    """Messages of both old formats; their indexes are derived anew for what is left."""
    log_dir = tmp_path / "legacy"
    shutil.copytree(golden("kafka-0.10.2-legacy"), log_dir)
    kept = {}
    for log in sorted(log_dir.glob("*/*.log")):
        log.chmod(0o644)
        data = log.read_bytes()
        batches = read_batches(data)
        touch(log, 1, place=batches[1].size - 2)
        kept[log] = data[: batches[1].pos] + data[batches[1].end :]
    done = eoctl(
        "repair", log_dir, "--strategy", "salvage", "--single-copy", "--apply", "--now", "0", *JSONL
    )
    assert done.status == 0, done.errors
    assert {log: log.read_bytes() for log in kept} == kept
    rebuilt = eoctl("rebuild", log_dir, "--now", "0", *JSONL)
    assert {row["state"] for row in rows_of(rebuilt)} == {"equal"}


REFUSED = {
    "other-batch-in-a-transaction": "PRD-4",
    "transactional-bit-lost": "PRD-4",
    "short-marker": "BAT-12",
    "unknown-control-type": "BAT-12",
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", REFUSED)
def test_a_whole_batch_that_no_broker_loads(kafka: Path, eoctl: Cli, name: str) -> None:
    """It goes like a corrupt one: the rest of the log is good, and loads then."""
    (fault,) = [each for each in FAULTS if each.name == name]
    (expected,) = fault.planted_in(kafka)
    log = kafka / expected.path
    data = log.read_bytes()
    (bad,) = [each for each in read_batches(data) if each.pos == expected.start_pos]
    before = tree_of(kafka)
    partition = log.parent
    as_broker = eoctl("repair", partition, "--strategy", "as-broker")
    assert as_broker.status == 4
    assert "--strategy salvage" in as_broker.errors

    done = eoctl("repair", partition, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    (price,) = rows_of(done, "price")
    lost = price["lost_ranges"]
    assert lost[0]["check_id"] == REFUSED[name]
    assert (lost[0]["start_pos"], lost[0]["end_pos"]) == (bad.pos, bad.end)
    assert (lost[0]["base_offset"], lost[0]["last_offset"]) == (bad.base_offset, bad.last_offset)
    gone = b"".join(data[each["start_pos"] : each["end_pos"]] for each in lost)
    assert len(log.read_bytes()) + len(gone) == len(data)
    assert log.read_bytes()[: bad.pos] == data[: bad.pos]
    grave = [
        each
        for each in rows_of(eoctl("check", partition, "--now", SOON, *JSONL), "finding")
        if each["severity"] != "note"
    ]
    assert [each["check_id"] for each in grave] == ["JNL-3"]
    count = sum(each["last_offset"] - each["base_offset"] + 1 for each in lost)
    assert f"{count} offset{'s' * (count > 1)}, {count} acknowledged" in grave[0]["message"]
    start = eoctl("repair", partition, "--strategy", "as-broker", *JSONL)
    assert (start.status, rows_of(start, "step")) == (0, [])
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert [e for e in difference(before, tree_of(kafka)) if ".lock" not in e] == []


@pytest.mark.parametrize(("at", "data"), [(66, b"\xff\xff"), (68, b"\x00\x09")])
def test_control_batches_that_no_broker_reads(
    kafka: Path, eoctl: Cli, at: int, data: bytes
) -> None:
    """Behind one recovery would cut, for the other it does not start (PROD-9); corrupt ones, too.

    Both in the middle of what stays: positions in the file are not those of what is left of it.
    """
    log = first_log(kafka / "txn-0")
    whole = log.read_bytes()
    batches = read_batches(whole)
    markers = [n for n, each in enumerate(batches) if whole[each.pos + 22] & 0x20]
    wanted = {markers[3], markers[3] + 5, markers[8], markers[9]}
    for number in (markers[3], markers[8], markers[9]):
        edit_body(log, number, at, data)
    touch(log, markers[3] + 5, 2)
    wanted.add(2)
    done = eoctl("repair", log.parent, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    kept = [whole[each.pos : each.end] for n, each in enumerate(batches) if n not in wanted]
    assert log.read_bytes() == b"".join(kept)
    lost = {each["base_offset"] for each in rows_of(done, "price")[0]["lost_ranges"]}
    assert lost == {batches[number].base_offset for number in wanted}
    again = eoctl("repair", log.parent, "--strategy", "salvage", *JSONL)
    assert (again.status, rows_of(again, "step")) == (0, [])
    start = eoctl("repair", log.parent, "--strategy", "as-broker", *JSONL)
    assert (start.status, rows_of(start, "step")) == (0, [])


@pytest.mark.parametrize("strategy", ["salvage", "as-broker"])
def test_nothing_to_repair(kafka: Path, eoctl: Cli, strategy: str) -> None:
    before = tree_of(kafka)
    for apply in ((), ("--apply",)):
        outcome = eoctl("repair", kafka, "--strategy", strategy, *apply, *JSONL)
        assert outcome.status == 0, outcome.errors
        assert {row["kind"] for row in rows_of(outcome)} == {"repair"}
        assert all(row["steps_count"] == 0 for row in rows_of(outcome, "repair"))
        assert "there is nothing to repair" in notes_of(outcome)[-1]
    assert [e for e in difference(before, tree_of(kafka)) if ".lock" not in e] == []


def test_what_a_start_derives_anyway_is_no_damage(killed: Path, eoctl: Cli) -> None:
    """Preallocated indexes and a missing snapshot are what a killed broker leaves."""
    outcome = eoctl("repair", killed, "--strategy", "salvage", *JSONL)
    assert (outcome.status, rows_of(outcome, "step")) == (0, [])


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "state",
    [
        "kafka-4.3.1/hard-clean",
        "kafka-4.3.1-three-brokers/after/broker-1",
        "kafka-4.3.1-three-brokers/after/broker-3",
        "kafka-0.10.2-legacy",
    ],
)
def test_what_differs_from_a_rebuild_and_is_right_is_no_damage(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, state: str
) -> None:
    """Indexes of followers that were cut, of logs that grew over two starts, of older brokers."""
    archive, *below = state.split("/")
    log_dir = copy_log_dir(golden(archive).joinpath(*below), tmp_path / "log-dir")
    outcome = eoctl("repair", log_dir, "--strategy", "salvage", *JSONL)
    has_gaps = "hard" in state  # one log of that family was made with them
    assert (outcome.status, rows_of(outcome, "step")) == (5 if has_gaps else 0, [])
    shown = repairs_of(eoctl("repair", log_dir, *JSONL))
    assert {row["strategy"] for row in shown.values()} == {"none"}


def test_a_derived_file_that_is_wrong_is_made_anew_alone(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """Beside it one stays that differs from a rebuild and is right."""
    state = golden("kafka-4.3.1-three-brokers") / "after" / "broker-1"
    log_dir = copy_log_dir(state, tmp_path / "log-dir")
    index = log_dir / "div-0" / f"{0:020d}.txnindex"
    index.write_bytes(index.read_bytes()[34:])
    done = eoctl("repair", log_dir, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    files = [Path(row["file"]).name for row in rows_of(done, "step")]
    assert files == [CLEAN_SHUTDOWN_NAME, index.name]
    assert index.read_bytes() == (state / "div-0" / index.name).read_bytes()


@pytest.mark.parametrize("state", ["crash", "clean"])
def test_what_a_start_reads_before_it_derives_anything(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, state: str
) -> None:
    """Broken leader epochs end a start (REC-2); a broken snapshot is of no use to it."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path / "log-dir")
    (log_dir / "rolled-0" / "leader-epoch-checkpoint").write_text("0\n1\n0#0\n")
    snapshot = max((log_dir / "compacted-0").glob("*.snapshot"))
    snapshot.write_bytes(snapshot.read_bytes()[:-3])
    check = ("check", log_dir, "--now", "dir", *JSONL)
    wrong = {Path(each["path"]).name for each in rows_of(eoctl(*check), "finding")}
    assert {"leader-epoch-checkpoint", snapshot.name} <= wrong

    done = eoctl("repair", log_dir, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    steps = {Path(row["file"]).name for row in rows_of(done, "step")} - {CLEAN_SHUTDOWN_NAME}
    assert steps == {"leader-epoch-checkpoint", snapshot.name}
    assert eoctl(*check).status == 0


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["crash", "clean"])
@pytest.mark.parametrize("touched", [(), (5,)])
def test_a_log_start_beyond_the_log(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, state: str, touched: tuple[int, ...]
) -> None:
    """A broker would delete all of it (OFS-1): the line goes, all that is good stays."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path / "log-dir")
    partition = log_dir / "txn-0"
    starts = log_dir / "log-start-offset-checkpoint"
    starts.write_text("0\n2\ntrimmed 0 100\ntxn 0 99999\n")
    kept = len(read_batches(first_log(partition).read_bytes())) - len(touched)
    touch(first_log(partition), *touched)
    check = ("check", partition, "--now", "2026-11-21T03:04:00Z", *JSONL)
    wrong = [e for e in rows_of(eoctl(*check), "finding") if e["severity"] != "note"]
    (finding,) = [each for each in wrong if each["check_id"] == "OFS-1"]
    assert finding["fix"] == f"eoctl repair {partition} --strategy salvage"
    assert touched or wrong == [finding]
    (row,) = rows_of(eoctl("repair", partition, *JSONL), "repair")
    assert row["strategy"] == "salvage"

    done = eoctl("repair", partition, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    (row,) = rows_of(done, "repair")
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 329)
    assert any("lies beyond the log" in note for note in notes_of(done))
    assert starts.read_text() == "0\n1\ntrimmed 0 100\n"
    assert len(read_batches(first_log(partition).read_bytes())) == kept
    again = eoctl(*check, *JSONL)
    grave = [each for each in rows_of(again, "finding") if each["severity"] != "note"]
    assert {each["check_id"] for each in grave} == ({"JNL-3"} if touched else set())
    assert again.status == (1 if grave else 0)


# --- beside the log -------------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("strategy", ["salvage", "as-broker"])
@pytest.mark.parametrize("data", [None, b"", b"version: 0\ntopic_id: not-an-id", b"\xff\n\n"])
def test_a_topic_id_that_the_cluster_knows(
    kafka: Path, eoctl: Cli, data: bytes | None, strategy: str
) -> None:
    """Without it a broker sets the directory aside (DIR-4); it is what it was."""
    path = kafka / "plain-0" / "partition.metadata"
    whole = path.read_bytes()
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    before = tree_of(kafka)
    (row,) = rows_of(eoctl("repair", kafka / "plain-0", *JSONL), "repair")
    assert row["strategy"] == "salvage"
    done = eoctl("repair", kafka, "--strategy", strategy, "--apply", *JSONL)
    assert done.status == 0, done.errors
    names = [row["file"] for row in rows_of(done, "step")]
    assert names == [CLEAN_SHUTDOWN_NAME, "plain-0/partition.metadata"]
    assert path.read_bytes() == whole
    assert eoctl("check", kafka / "plain-0", "--now", SOON, *JSONL).status == 0
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert [e for e in difference(before, tree_of(kafka)) if ".lock" not in e] == []


def test_a_topic_id_that_may_be_anothers(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """Unknown to the cluster, of another node, or without metadata that can be read in full."""
    (kafka / "plain-0" / "partition.metadata").unlink()
    shutil.copytree(kafka / "plain-0", kafka / "unknown-0")
    copies = {name: tmp_path / name for name in ("other-node", "damaged")}
    for each in copies.values():
        shutil.copytree(kafka, each)
    properties = copies["other-node"] / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
    touch(first_log(copies["damaged"] / "__cluster_metadata-0"), 2)
    for partition in (
        kafka / "unknown-0", copies["other-node"] / "plain-0", copies["damaged"] / "plain-0",
    ):  # fmt: skip
        outcome = eoctl("repair", partition, "--strategy", "salvage", *JSONL)
        assert (outcome.status, rows_of(outcome, "step")) == (0, []), partition


@pytest.mark.parametrize("name", ["backup.log", "179.log"])
def test_a_foreign_log_goes(kafka: Path, eoctl: Cli, name: str) -> None:
    """Loading of the partition fails for it (DIR-9); the backups have it then."""
    partition = kafka / "plain-0"
    shutil.copy2(first_log(partition), partition / name)
    before = tree_of(kafka)
    for strategy in ("as-broker", "move-away"):
        refused = eoctl("repair", partition, "--strategy", strategy)
        assert refused.status == 4
        assert "--strategy salvage" in refused.errors
    done = eoctl("repair", partition, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    steps = [(row["action"], row["file"]) for row in rows_of(done, "step")]
    assert steps == [("remove", CLEAN_SHUTDOWN_NAME), ("remove", f"plain-0/{name}")]
    assert eoctl("check", partition, "--now", SOON, *JSONL).status == 0
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert [e for e in difference(before, tree_of(kafka)) if ".lock" not in e] == []


# --- checkpoints that do not parse ----------------------------------------------------------------

CHECKPOINTS = {kind: f"{kind}-offset-checkpoint" for kind in ("recovery-point", "replication")}
SOON = "2026-11-21T03:04:00Z"  # after the stop: no transaction is late
CHECKPOINTS |= {kind: f"{kind}-offset-checkpoint" for kind in ("log-start", "cleaner")}


@pytest.mark.share(1)
@pytest.mark.parametrize("state", ["clean", "crash"])
@pytest.mark.parametrize("name", sorted(CHECKPOINTS.values()))
def test_a_checkpoint_that_does_not_parse(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, state: str, name: str
) -> None:
    """A broker loses the log dir (DIR-7): what parses stays, and then it is a log dir again."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path / "log-dir")
    (log_dir / name).write_text("0\n1\nplain 0\n")
    before = tree_of(log_dir)
    refused = eoctl("truncate", log_dir / "plain-0", "--to-offset", "20", "--single-copy")
    assert refused.status == 4
    assert f"eoctl repair {log_dir} --strategy salvage" in refused.errors
    shown = eoctl("repair", log_dir, *JSONL)
    assert shown.status == 0, shown.errors
    assert any(
        f"--strategy salvage of the log dir makes {name} again" in e for e in notes_of(shown)
    )
    assert not any("nothing to repair" in each for each in notes_of(shown))

    done = eoctl("repair", log_dir, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    assert name in [row["file"] for row in rows_of(done, "step")]
    (reported,) = [each for each in notes_of(done) if "no broker could use it" in each]
    assert "0 lines stay, 1 is lost" in reported
    assert (log_dir / name).read_text().startswith("0\n")
    found = eoctl("check", log_dir, "--now", SOON, *JSONL)
    assert found.status == 0, found.text
    again = eoctl("repair", log_dir, "--strategy", "salvage", *JSONL)
    assert (again.status, rows_of(again, "step")) == (0, [])
    assert eoctl("undo", journal_of(log_dir)).status == 0
    assert [e for e in difference(before, tree_of(log_dir)) if ".lock" not in e] == []


def test_lines_that_parse_stay_and_are_lowered(kafka: Path, eoctl: Cli) -> None:
    """One step for both: what is salvaged lies below the recovery point then."""
    path = kafka / CHECKPOINTS["recovery-point"]
    whole = path.read_text()
    path.write_text(whole.replace("plain 1 221", "plain 1 2x1"))
    middle = sorted((kafka / "rolled-0").glob("*.log"))[1]
    touch(middle, 1)
    done = eoctl("repair", kafka, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 0, done.errors
    expected = {each for each in whole.splitlines()[2:] if not each.startswith("plain 1 ")}
    expected = {each for each in expected if not each.startswith("rolled 0 ")}
    expected.add(f"rolled 0 {int(middle.stem)}")
    lines = path.read_text().splitlines()
    assert lines[:2] == ["0", str(len(expected))]
    assert {*lines[2:]} == expected
    found = rows_of(eoctl("check", kafka, "--now", SOON, *JSONL), "finding")
    assert {each["check_id"] for each in found if each["severity"] != "note"} == {"JNL-3"}


def test_a_checkpoint_is_mended_for_the_whole_log_dir_only(kafka: Path, eoctl: Cli) -> None:
    """Lines of other partitions may be lost with it; other strategies do not look at it."""
    (kafka / CHECKPOINTS["recovery-point"]).write_text("0\n1\nplain 0\n")
    for path, strategy in (
        (kafka / "plain-0", "salvage"), (kafka / "plain-0", "move-away"), (kafka, "as-broker"),
    ):  # fmt: skip
        refused = eoctl("repair", path, "--strategy", strategy, "--apply")
        assert refused.status == (5 if path == kafka else 4)
        assert f"eoctl repair {kafka} --strategy salvage" in refused.errors
    found = rows_of(eoctl("check", kafka, "--now", SOON, *JSONL), "finding")
    (finding,) = [each for each in found if each["check_id"] == "DIR-7"]
    assert finding["fix"] == f"eoctl repair {kafka} --strategy salvage"


def test_a_checkpoint_is_mended_beside_a_partition_that_is_not(kafka: Path, eoctl: Cli) -> None:
    for each in kafka.iterdir():
        if each.is_dir() and each.name not in {"plain-0", "__cluster_metadata-0"}:
            shutil.rmtree(each)
    (kafka / "plain-0" / "00000000000000000000.log.swap").write_bytes(b"")
    path = kafka / CHECKPOINTS["replication"]
    path.write_bytes(b"\xff" + path.read_bytes())
    done = eoctl("repair", kafka, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 5
    assert "left by a compaction" in done.errors
    assert "plain 0 179\n" in path.read_text()


# --- move away ------------------------------------------------------------------------------------


def test_a_replica_is_moved_away_and_comes_back(diverged: Path, eoctl: Cli) -> None:
    log_dir = diverged / "broker-3"
    partition = log_dir / "div-0"
    before = tree_of(log_dir)
    done = eoctl("repair", partition, "--strategy", "move-away", "--apply", *JSONL)
    assert done.status == 0, done.errors
    assert [p.name for p in partition.iterdir() if classify(p.name).kind in LOG_FILE_KINDS] == []
    assert (partition / "partition.metadata").exists()
    assert not (log_dir / CLEAN_SHUTDOWN_NAME).exists()
    kept = {path.read_bytes() for path in journal_of(log_dir).iterdir()}
    logs = [name for name in before if name.startswith("div-0/") and name.endswith(".log")]
    assert logs
    assert all(before[name].data in kept for name in logs)
    assert eoctl("undo", journal_of(log_dir)).status == 0
    assert [e for e in difference(before, tree_of(log_dir)) if ".lock" not in e] == []


def test_where_no_other_replica_is_known(diverged: Path, tmp_path: Path, eoctl: Cli) -> None:
    """The only copy must not be moved away unawares: the cluster's metadata or the user say so."""
    call = ("--strategy", "move-away", "--apply")
    alone = tmp_path / "alone" / "div-0"
    shutil.copytree(diverged / "broker-3" / "div-0", alone)
    lone = tmp_path / "lone"
    shutil.copytree(diverged / "broker-3", lone)
    shutil.rmtree(lone / "__cluster_metadata-0")
    damaged = tmp_path / "damaged"
    shutil.copytree(diverged / "broker-3", damaged)
    touch(first_log(damaged / "__cluster_metadata-0"), 2)
    for partition in (alone, lone / "div-0", damaged / "div-0"):
        before = tree_of(partition)
        refused = eoctl("repair", partition, *call)
        assert refused.status == 4, refused.errors
        assert f"{partition}: nothing is known of other replicas" in refused.errors
        assert "--metadata-dir" in refused.errors
        assert "--replicated" in refused.errors
        assert difference(before, tree_of(partition)) == []
    known = eoctl("repair", lone / "div-0", *call, "--metadata-dir", diverged / "broker-3")
    assert known.status == 0, known.errors
    said = eoctl("repair", damaged / "div-0", *call, "--replicated")
    assert said.status == 0, said.errors
    assert list((damaged / "div-0").glob("*.log")) == []


def test_of_a_log_dir_only_the_damaged_ones_need_another_replica(
    diverged: Path, eoctl: Cli
) -> None:
    log_dir = diverged / "broker-3"
    shutil.rmtree(log_dir / "__cluster_metadata-0")
    healthy = eoctl("repair", log_dir, "--strategy", "move-away")
    assert healthy.status == 0, healthy.errors
    touch(first_log(log_dir / "div-0"), 2)
    shown = eoctl("repair", log_dir, *JSONL)
    assert repairs_of(shown)["div-0"]["strategy"] == "move-away"
    assert any("--replicated" in note for note in notes_of(shown))
    refused = eoctl("repair", log_dir, "--strategy", "move-away")
    assert refused.status in {4, 5}
    assert "nothing is known of other replicas" in refused.errors


def test_only_damaged_partitions_of_a_log_dir_are_moved_away(diverged: Path, eoctl: Cli) -> None:
    """A healthy replica is not fetched again because it lies beside a damaged one."""
    log_dir = diverged / "broker-3"
    whole = tree_of(log_dir)
    call = ("repair", log_dir, "--strategy", "move-away", *JSONL)
    outcome = eoctl(*call)
    assert (outcome.status, rows_of(outcome, "step")) == (0, [])
    assert "they have lost nothing" in outcome.errors
    assert "there is nothing to repair" in notes_of(outcome)[-1]

    touch(first_log(log_dir / "div-0"), 2)
    done = eoctl(*call, "--apply")
    assert done.status == 0, done.errors
    assert list((log_dir / "div-0").glob("*.log")) == []
    changed = {name.split("/")[0] for name in difference(whole, tree_of(log_dir))}
    assert not {name for name in changed if name.endswith("-0") and name != "div-0"}
    assert {name for name, row in repairs_of(done).items() if row["steps_count"]} == {"div-0"}


def test_the_only_copy_is_not_moved_away(kafka: Path, diverged: Path, eoctl: Cli) -> None:
    """Of three replicas one may be the only one that is in sync."""
    for partition in (kafka / "plain-0", diverged / "broker-1" / "div-0"):
        for said in ((), ("--replicated",)):
            outcome = eoctl("repair", partition, "--strategy", "move-away", "--apply", *said)
            assert outcome.status == 4
            assert "no other replica is in sync" in outcome.errors
            assert first_log(partition).exists()


# --- proposals, refusals --------------------------------------------------------------------------


def test_without_a_strategy_one_is_proposed(kafka: Path, diverged: Path, eoctl: Cli) -> None:
    touch(first_log(kafka / "plain-0"), 3)
    shown = repairs_of(eoctl("repair", kafka, *JSONL))
    assert {name: row["strategy"] for name, row in shown.items() if row["strategy"] != "none"} == {
        "plain-0": "salvage"
    }
    assert shown["plain-0"]["lost_ranges_count"] == 1
    partition = diverged / "broker-3" / "div-0"
    touch(first_log(partition), 0)
    row = repairs_of(eoctl("repair", partition, *JSONL))["div-0"]
    assert row["strategy"] == "move-away"
    row = repairs_of(eoctl("repair", partition, "--single-copy", *JSONL))["div-0"]
    assert row["strategy"] == "salvage"


@pytest.mark.parametrize("strategy", ["salvage", "as-broker"])
def test_one_of_several_replicas_is_not_cut(diverged: Path, eoctl: Cli, strategy: str) -> None:
    partition = diverged / "broker-1" / "div-0"
    touch(max(partition.glob("*.log")), 0)
    before = tree_of(partition)
    arguments = ("repair", partition, "--strategy", strategy, "--apply")
    refused = eoctl(*arguments)
    assert refused.status == 4
    assert "eoctl replicas compare" in refused.errors
    assert difference(before, tree_of(partition)) == []
    assert eoctl(*arguments, "--single-copy").status == 0
    assert difference(before, tree_of(partition)) != []


def test_one_that_cannot_be_repaired_stops_no_other(kafka: Path, eoctl: Cli) -> None:
    (kafka / "plain-0" / "00000000000000000000.log.swap").write_bytes(b"")
    touch(first_log(kafka / "plain-1"), 3)
    done = eoctl("repair", kafka, "--strategy", "salvage", "--apply", *JSONL)
    assert done.status == 5
    assert "left by a compaction" in done.errors
    assert repairs_of(done)["plain-1"]["applied"]
    alone = eoctl("repair", kafka / "plain-0", "--strategy", "salvage")
    assert alone.status == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ("--apply",),
        ("--save-plan", "plan.json"),
        ("--strategy", "move-away", "--single-copy"),
        ("--strategy", "salvage", "--replicated"),
        ("--single-copy", "--replicated"),
        ("--strategy", "salvage", "--apply", "--no-backup"),
    ],
)
def test_calls_that_mean_nothing(kafka: Path, eoctl: Cli, arguments: tuple[str, ...]) -> None:
    assert eoctl("repair", kafka, *arguments).status == 2


def test_never_beside_a_broker(kafka: Path, eoctl: Cli) -> None:
    touch(first_log(kafka / "plain-1"), 3)
    with held(kafka) as pid:
        outcome = eoctl("repair", kafka, "--strategy", "salvage", "--apply")
    assert outcome.status == 4
    assert str(pid) in outcome.errors


def test_the_metadata_log_is_never_changed(kafka: Path, eoctl: Cli) -> None:
    log = first_log(kafka / "__cluster_metadata-0")
    log.write_bytes(log.read_bytes()[:-7])
    whole = tree_of(kafka / "__cluster_metadata-0")
    outcome = eoctl("repair", kafka, "--strategy", "as-broker", "--apply")
    assert outcome.status == 0, outcome.errors
    assert "skipped, it is never changed" in outcome.errors
    refused = eoctl("repair", kafka / "__cluster_metadata-0", "--strategy", "salvage", "--apply")
    assert refused.status == 4
    assert difference(whole, tree_of(kafka / "__cluster_metadata-0")) == []


# --- saved, interrupted ---------------------------------------------------------------------------


def test_a_saved_plan_does_the_same(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    touch(first_log(kafka / "plain-1"), 2, 4)
    twin = tmp_path / "twin"
    shutil.copytree(kafka, twin, copy_function=shutil.copy2)
    assert eoctl("repair", kafka, "--strategy", "salvage", "--apply").status == 0
    saved = eoctl("repair", twin, "--strategy", "salvage", "--save-plan", tmp_path / "plan.json")
    assert saved.status == 0, saved.errors
    assert eoctl("apply", tmp_path / "plan.json").status == 0
    assert {name: each.data for name, each in tree_of(kafka).items()} == {
        name: each.data for name, each in tree_of(twin).items()
    }


def test_an_interrupted_run_is_completed(
    kafka: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(first_log(kafka / "plain-1"), 2, 4)
    arguments = ("repair", kafka, "--strategy", "salvage", "--apply", *JSONL)
    with monkeypatch.context() as patch:
        interrupt(patch, "open_new", name=".log.eoctl-tmp")
        assert eoctl(*arguments).status == 130
    assert (kafka / ".eoctl-unfinished").exists()
    assert eoctl("repair", kafka, "--strategy", "as-broker", "--apply").status == 4
    done = eoctl(*arguments)
    assert done.status == 0, done.errors
    assert "completed what an earlier run began" in done.errors
    assert leftovers(kafka) == []
    assert rows_of(eoctl("repair", kafka, "--strategy", "salvage", *JSONL), "step") == []


def test_a_disk_that_reads_otherwise_leaves_the_file(
    kafka: Path, tmp_path: Path, eoctl: Cli
) -> None:
    """Bytes far from the end are not looked at again; what is written has the planned digest."""
    log = first_log(kafka / "rolled-0")
    touch(log, 1)
    plan = tmp_path / "plan.json"
    planned = eoctl("repair", kafka / "rolled-0", "--strategy", "salvage", "--save-plan", plan)
    assert planned.status == 0
    found = log.stat()
    data = bytearray(log.read_bytes())
    data[500] ^= 1
    log.write_bytes(data)
    os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))
    changed = log.read_bytes()
    outcome = eoctl("apply", plan)
    assert outcome.status == 4, outcome.errors
    assert log.read_bytes() == changed


# --- what is shown --------------------------------------------------------------------------------

TEXT = [
    table(
        "path | strategy | log_start_offset | log_end_offset | lost_offsets_count"
        " | lost_records_count | lost_ranges_count | lost_bytes | open_transactions_count"
        " | steps_count | applied",
        "kafka/plain-1 | salvage | 0 | 221 | 23 | 0 | 1 | 3992 | 0 | 3 | no",
    ),
]


def test_the_text(kafka: Path, eoctl: Cli) -> None:
    touch(first_log(kafka / "plain-1"), 1)
    shown = eoctl("repair", "kafka/plain-1", "--strategy", "salvage")
    assert shown.status == 0, shown.errors
    assert shown.text.split("\n\n")[0] + "\n" == TEXT[0]
    assert "replace\tplain-1/00000000000000000000.log" in shown.text
    assert "file\tstart_pos\tend_pos\tbase_offset\tlast_offset" in shown.text
    rows = rows_of(eoctl("repair", "kafka/plain-1", "--strategy", "salvage", *JSONL))
    packed = unpacked(
        eoctl("repair", "kafka/plain-1", "--strategy", "salvage", "--output", "msgpack")
    )
    assert packed == rows
    in_80_columns("repair", kafka / "plain-1", "--strategy", "salvage")


@pytest.mark.parametrize("index", ["intact", "none"])
@pytest.mark.parametrize(("first", "second"), [("commit", "abort"), ("abort", "commit")])
def test_a_salvage_tells_whose_outcome_changes(
    eoctl: Callable[..., Any], tmp_path: Path, index: str, first: str, second: str
) -> None:
    """The first marker of producer 21 is damaged; a broker then goes by the second one."""
    log = example(0, first, second)
    entries = index_of(log.batches) if index == "intact" else []
    path = write(tmp_path / "made", log, damaged(log, 3, "flip")[0], entries)
    outcomes = {"commit": "committed", "abort": "aborted"}
    before = outcomes[first] if index == "intact" else "unknown"
    run = eoctl("repair", path, "--strategy", "salvage")
    words = f"the outcome of 5 records changes from {before} to {outcomes[second]}"
    assert words in run.errors


def test_what_cannot_be_repaired_is_said_with_its_reason(kafka: Path, eoctl: Callable) -> None:
    shutil.rmtree(kafka / "plain-1")
    done = eoctl("repair", kafka)
    assert done.status == 5
    (answer,) = [line for line in done.errors.splitlines() if line.startswith("Plan")]
    assert answer.startswith("Plan    nothing can be repaired: what is missing cannot be made")
