"""`eoctl diff`: what another copy has, and what a change has made of records and groups."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.test_loss import cut_batches, kafka
from tests.cli.test_loss_rows import flip
from tests.damage.planted import layout
from tests.doubled_logs import Said, Sent, write_log
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

FINDINGS = 1

__all__ = ["kafka"]


def rows_of(outcome: Any, *kinds: str) -> list[dict[str, Any]]:
    rows = (json.loads(line) for line in outcome.text.splitlines())
    return [row for row in rows if row["kind"] in kinds]


def records_of(eoctl: Callable[..., Any], path: Path, *more: str) -> dict[int, dict[str, Any]]:
    """What a consumer is given, by offset: another reader than that of `diff`."""
    text = eoctl("consume", path, "--output", "jsonl", *more).text
    return {row["offset"]: row for row in map(json.loads, text.splitlines())}


def journal_in(outcome: Any) -> Path:
    """The journal that the last lines of an apply name."""
    found = re.findall(r"eoctl undo (\S+) undoes it", outcome.errors)
    assert found, outcome.errors
    return Path(found[-1])


@pytest.mark.parametrize("damage", [flip, cut_batches])
def test_what_is_gone_is_what_the_other_copy_gives(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    log_dir = kafka("clean", "plain-0", "txn-1")
    whole = shutil.copytree(log_dir, tmp_path / "backup")
    same = eoctl("diff", whole, log_dir, "--output", "jsonl")
    assert (same.status, rows_of(same, "gone", "new", "changed")) == (0, [])
    damage(log_dir)
    outcome = eoctl("diff", whole, log_dir, "--output", "jsonl")
    assert outcome.status == FINDINGS
    before = records_of(eoctl, whole / "plain-0")
    after = records_of(eoctl, log_dir / "plain-0", "--skip-corrupt")
    gone = rows_of(outcome, "gone")
    assert rows_of(outcome, "new", "changed") == []
    assert [row["offset"] for row in gone] == sorted(before.keys() - after.keys()) != []
    assert [row["key"] for row in gone] == [before[row["offset"]]["key"] for row in gone]
    sums = {row["topic"]: row for row in rows_of(outcome, "partition")}
    assert (sums["plain"]["gone"], sums["plain"]["equal"]) == (len(gone), len(after))
    assert (sums["txn"]["gone"], sums["txn"]["equal"]) == (0, 258)
    assert sums["plain"]["is_whole"] == (damage is not flip)
    turned = eoctl("diff", log_dir, whole, "--output", "jsonl")
    assert [row["offset"] for row in rows_of(turned, "new")] == [row["offset"] for row in gone]
    assert turned.status == FINDINGS


def test_what_changed_is_named(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    said = Said(500, b"k", b"a", ((b"h", b"1"),))
    one = [Sent(7, 0, 0, (said,)), Sent(8, 0, 0, (said,), "txn"), Sent(8, 0, kind="commit")]
    other = [
        Sent(7, 0, 0, (said._replace(value=b"b", headers=((b"h", b"2"),)),)),
        Sent(9, 1, 0, (said._replace(time=501, key=b"l"),), "txn"),
        Sent(9, 1, kind="abort"),
    ]
    paths = [write_log(tmp_path / name / "t-0", log) for name, log in (("a", one), ("b", other))]
    outcome = eoctl("diff", paths[1], paths[0], "--output", "jsonl")
    found = rows_of(outcome, "gone", "changed", "new")
    assert [(row["kind"], row["offset"], row["differences"]) for row in found] == [
        ("changed", 0, ["value", "headers"]),
        ("changed", 1, ["key", "timestamp", "producer", "outcome"]),
    ]
    assert outcome.status == FINDINGS


def test_blocks_that_do_not_fit_are_compared_one_by_one(
    eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """Segments are cut elsewhere, a batch is missing in the middle, another is at the end."""
    log = [Sent(7, 0, number, (Said(number, b"k%d" % number, b"v"),)) for number in range(50)]
    one = write_log(tmp_path / "a" / "t-0", log, cuts=[7, 20])
    gap = [*log[:30], log[31]._replace(gap=1), *log[32:], Sent(7, 0, 50)]
    other = write_log(tmp_path / "b" / "t-0", gap, cuts=[11])
    outcome = eoctl("diff", other, one, "--output", "jsonl")
    found = rows_of(outcome, "gone", "changed", "new")
    assert [(row["kind"], row["offset"]) for row in found] == [("new", 30), ("gone", 50)]
    (summary,) = rows_of(outcome, "partition")
    assert summary["equal"] == 49


def test_what_retention_deleted_is_not_gone(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path
) -> None:
    log_dir = kafka("clean", "rolled-0")
    whole = shutil.copytree(log_dir, tmp_path / "backup")
    layout.log_files(log_dir / "rolled-0")[0].unlink()
    layout.set_offset(log_dir, "log-start", "rolled-0", 25)
    outcome = eoctl("diff", whole, log_dir, "--output", "jsonl")
    assert (outcome.status, rows_of(outcome, "gone", "new", "changed")) == (0, [])
    sums = {row["topic"]: row for row in rows_of(outcome, "partition")}
    assert (sums["rolled"]["from_offset"], sums["rolled"]["equal"]) == (25, 35)


def test_a_partition_that_one_does_not_have(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path
) -> None:
    log_dir = kafka("clean", "plain-0", "idem-none-0")
    whole = shutil.copytree(log_dir, tmp_path / "backup")
    shutil.rmtree(log_dir / "plain-0")
    outcome = eoctl("diff", whole, log_dir, "--output", "jsonl")
    assert (outcome.status, len(rows_of(outcome, "gone"))) == (FINDINGS, 179)
    other = eoctl("diff", whole, log_dir, "--topic", "idem-none", *JSONL)
    assert (other.status, rows_of(other, "gone")) == (0, [])
    one = eoctl("diff", whole, log_dir, "--topic", "plain", *JSONL)
    assert (one.status, len(rows_of(one, "gone"))) == (FINDINGS, 179)
    few = eoctl("diff", whole, log_dir, "--limit", "2", "--output", "jsonl")
    assert (few.status, len(rows_of(few, "gone"))) == (FINDINGS, 2)
    assert "not printed (--limit): 177 gone rows" in few.errors


CHANGES = {
    "salvage": ("repair", "plain-0", "--strategy", "salvage", "--single-copy"),
    "as-broker": ("repair", "plain-0", "--strategy", "as-broker", "--single-copy"),
    "truncate": ("truncate", "plain-0", "--to-offset", "60", "--single-copy"),
    "segments": ("truncate", "rolled-0", "--to-offset", "30", "--single-copy"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_has_made(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    """By the backup of its journal, as by a copy that was made before; and the apply names it."""
    command, partition, *more = CHANGES[name]
    log_dir = kafka("clean", "plain-0", "rolled-0")
    if command == "repair":
        flip(log_dir)
    whole = shutil.copytree(log_dir, tmp_path / "backup")
    done = eoctl(command, log_dir / partition, *more, "--apply")
    assert done.status == 0, done.errors
    journal = journal_in(done)
    assert f"eoctl diff {journal}" in done.errors
    by_copy = eoctl("diff", whole / partition, log_dir / partition, *JSONL)
    expected = [
        {key: value for key, value in row.items() if not key.endswith("path")}
        for row in rows_of(by_copy, "gone", "new", "changed", "partition")
    ]
    for paths in ((), (log_dir,), (log_dir / partition,)):
        outcome = eoctl("diff", journal, *paths, *JSONL)
        found = [
            {key: value for key, value in row.items() if not key.endswith("path")}
            for row in rows_of(outcome, "gone", "new", "changed", "partition")
        ]
        assert found == expected
        assert (
            outcome.status == FINDINGS
        )  # the plan says what it lost, also where a copy is damaged
    if name != "salvage":
        assert any(row["kind"] == "gone" for row in expected)
    assert eoctl("undo", journal).status == 0
    undone = eoctl("diff", journal)
    assert undone.status == 4
    assert "is undone" in undone.errors


JSONL = ("--output", "jsonl")


def test_what_a_producer_has_appended(
    eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path
) -> None:
    log_dir = kafka("clean", "plain-0")
    (tmp_path / "lines").write_text("one\ntwo\n")
    done = eoctl("produce", log_dir / "plain-0", tmp_path / "lines", "--single-copy", "--apply")
    assert done.status == 0, done.errors
    outcome = eoctl("diff", journal_in(done), *JSONL)
    assert [row["offset"] for row in rows_of(outcome, "new")] == [179, 180]
    assert (outcome.status, rows_of(outcome, "gone", "changed")) == (FINDINGS, [])


def test_wrong_calls(eoctl: Callable[..., Any], kafka: Callable[..., Path], tmp_path: Path) -> None:
    log_dir = kafka("clean", "plain-0")
    whole = shutil.copytree(log_dir, tmp_path / "backup")
    alone = eoctl("diff", whole)
    assert (alone.status, "B is missing" in alone.errors) == (2, True)
    assert eoctl("diff", tmp_path / "none", log_dir).status == 3
    assert eoctl("diff", whole, f"{log_dir},{tmp_path / 'none'}").status == 5
    empty = eoctl("diff", whole / "plain-0", log_dir / "plain-0", "--no-records")
    assert (empty.status, empty.text) == (2, "")
    assert "there is nothing to compare here" in empty.errors


def test_a_journal_whose_log_dir_is_elsewhere(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    log_dir = kafka("clean", "plain-0")
    call = ("truncate", log_dir / "plain-0", "--to-offset", "50", "--single-copy", "--apply")
    journal = journal_in(eoctl(*call))
    moved = log_dir.rename(log_dir.with_name("elsewhere"))
    done = eoctl("diff", journal)
    assert (done.status, done.text) == (3, "")
    assert f"{log_dir / 'plain-0'}: No such file or directory" in done.errors
    assert eoctl("diff", journal, moved).status == FINDINGS


def test_one_side_without_metadata(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """What could not be compared is not equal."""
    clean = golden("kafka-4.3.1") / "clean"
    copy = tmp_path / "copy"
    shutil.copytree(clean, copy, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
    done = eoctl("diff", clean, copy, "-o", "jsonl")
    assert done.status == 5
    assert f"topics and settings are not compared: {copy}: no metadata" in done.errors


def test_only_what_was_asked_for_is_compared(
    eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    """The other partitions of a log dir are not gone because one was given, nor new."""
    node = golden("kafka-4.3.1")
    for calls in (("crash/plain-0", "clean"), ("crash", "clean/plain-0")):
        one, other = (node / each for each in calls)
        done = eoctl("diff", other, one, "-o", "jsonl")
        assert done.status == 0, done.text
        (row,) = [json.loads(line) for line in done.text.splitlines()]
        assert (row["topic"], row["partition"], row["equal"]) == ("plain", 0, 179)
    done = eoctl("diff", node / "clean/plain-1", node / "crash/plain-0")
    assert done.status == 2
    assert "no partition to compare with" in done.errors


def test_a_directory_is_not_compared_with_itself(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """By another name neither: that all is equal would say nothing of a copy."""
    given, link = golden("kafka-4.3.1") / "clean", tmp_path / "copy"
    link.symlink_to(given)
    for other in (given, link, link / "txn-0"):
        done = eoctl("diff", other, given)
        assert (done.status, done.text) == (2, "")
        assert "the same directory" in done.errors


def test_what_changed_by_the_repair(eoctl: Callable[..., Any], kafka: Callable[..., Path]) -> None:
    """As an operator asks: the apply names the call, and its first lines answer."""
    log_dir = kafka("clean", "plain-0")
    done = eoctl("truncate", log_dir / "plain-0", "--to-offset", "60", "--single-copy", "--apply")
    assert done.status == 0
    shown = on_terminal("diff", journal_in(done), streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == FINDINGS
    gone = int(
        re.search(r"Records (\d+) only in A, 0 only in B, 0 changed", "\n".join(lines[:3]))[1]
    )
    assert gone >= 100


def states_of(outcome: Any) -> list[tuple[Any, ...]]:
    names = ("change", "what", "name", "field", "a", "b")
    return [tuple(row[each] for each in names) for row in rows_of(outcome, "state")]


def test_an_import_of_offsets_is_seen_before_and_after(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """By its journal as by a copy: each committed offset that it changed, and no other."""
    log_dir = shutil.copytree(golden("kafka-4.3.1") / "clean", tmp_path / "kafka", symlinks=True)
    whole = shutil.copytree(log_dir, tmp_path / "backup", symlinks=True)
    offsets = tmp_path / "offsets.csv"
    offsets.write_text("group-new,plain,0,17\n")
    done = eoctl("groups", "import", log_dir, "--from", offsets, "--single-copy", "--apply")
    assert done.status == 0, done.errors
    expected = [("new", "committed offset", "group-new", "plain-0", None, "17")]
    assert states_of(eoctl("diff", whole, log_dir, "--no-records", *JSONL)) == expected
    assert states_of(eoctl("diff", journal_in(done), *JSONL)) == expected
    as_before = eoctl("diff", journal_in(done), whole, *JSONL)  # B is not what is there now
    assert states_of(as_before) == []
    turned = eoctl("diff", log_dir, whole, "--no-records", *JSONL)
    assert states_of(turned) == [("gone", *expected[0][1:4], "17", None)]
    assert turned.status == FINDINGS
    of_others = eoctl("diff", log_dir, whole, "--topic", "txn", *JSONL)
    assert (of_others.status, states_of(of_others)) == (0, [])


def test_two_clusters(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    """Topics, settings and features; ids only where it is one cluster."""
    for name, more in (
        ("a", ("--topic", "t:3", "--topic", "old:1", "--config", "t:retention.ms=5")),
        ("b", ("--topic", "t:4", "--topic", "new:1", "--config", "t:retention.ms=6")),
    ):
        done = eoctl("init", tmp_path / name, *more, "--apply")
        assert done.status == 0, done.errors
    done = eoctl("diff", tmp_path / "a", tmp_path / "b", *JSONL)
    assert done.status == FINDINGS
    assert states_of(done) == [
        ("new", "topic", "new", "partitions", None, "1"),
        ("new", "topic", "new", "replication factor", None, "1"),
        ("gone", "topic", "old", "partitions", "1", None),
        ("gone", "topic", "old", "replication factor", "1", None),
        ("changed", "topic", "t", "partitions", "3", "4"),
        ("changed", "setting", "topic t", "retention.ms", "5", "6"),
    ]
    text = on_terminal("diff", tmp_path / "a", tmp_path / "b", streams=("stdout",)).text
    assert "Topics  5 differences in new, old, t" in text


def test_replicas_of_two_clusters(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    """Of several replicas on a side the recommended one is compared, and named."""
    root = golden("kafka-4.3.1-three-brokers")
    sides = [
        ",".join(str(root / state / f"broker-{n}") for n in (1, 2, 3))
        for state in ("diverged", "after")
    ]
    done = eoctl("diff", *sides, "--topic", "div", *JSONL)
    assert done.status in (0, FINDINGS), done.errors
    assert "the replica that replicas compare recommends" in done.errors
    (row,) = rows_of(done, "partition")
    assert row["equal"] > 0


def test_damage_outside_the_records_is_no_difference(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Offsets and metadata that cannot be read whole are not compared, and it is said."""
    clean = golden("kafka-4.3.1") / "clean"
    for name, what in (
        ("__consumer_offsets-0", "groups in __consumer_offsets-0 are not compared"),
        ("__cluster_metadata-0", "topics and settings are not compared"),
    ):
        copy = shutil.copytree(clean, tmp_path / name)
        (log, *_) = sorted((copy / name).glob("*.log"))
        data = bytearray(log.read_bytes())
        data[-40] ^= 0xFF
        log.write_bytes(data)
        done = eoctl("diff", clean, copy, "--no-records", "-o", "jsonl")
        assert (done.status, rows_of(done, "state")) == (5, []), name
        assert what in done.errors
