"""`eoctl txn`: what is open in real directories, what hangs, what is torn, and an offline abort."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.formats.transaction_state import TransactionStatus
from tests.audit_logs import Batch, write_segments
from tests.batches import commit_marker
from tests.changes import (
    held,
    in_80_columns,
    in_a_closed_pipe,
    interrupt,
    journal_of,
    notes_of,
    rows_of,
    table,
    unpacked,
)
from tests.crash.trees import difference, leftovers, tree_of
from tests.dump_counts import BATCH, MARKER
from tests.hanging import CONFIG, forget, replace_state
from tests.kafka.broker import copy_log_dir
from tests.writing import batch, headers_of, open_writer, tail_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STATES = ("crash", "recovered", "clean", "hard", "hard-clean", "tv2", "tv2-clean")
CRASH_FAMILY = {"crash", "recovered", "clean", "hard"}  # a broker aborted them in hard-clean
LATE = ("--now", "2026-11-21T04:00:00Z")  # an hour after the golden transactions began
YOUNG = ("--now", "2026-11-21T03:00:00Z")
ABORT = ("txn", "abort", "kafka/txn-0", "--producer-id", "40", *LATE)
Ended = tuple[int, int, int, str]  # producer id, first offset, marker offset, outcome


# --- what kafka-dump-log says ---------------------------------------------------------------------


def transactions_of(dump_dir: Path) -> tuple[dict[int, int], list[Ended]]:
    """First offset of each open transaction by producer id, and those that have ended."""
    opened: dict[int, int] = {}
    ended: list[Ended] = []
    control = (-1, -1)
    for path in sorted(dump_dir.glob("*.log.txt")):
        for line in path.read_bytes().split(b"\n"):
            if match := BATCH.match(line):
                pid, offset = int(match["pid"]), int(match["base"])
                if match["control"] == b"true":
                    control = (pid, offset)
                elif match["txn"] == b"true":
                    opened.setdefault(pid, offset)
            elif match := MARKER.match(line):
                pid, offset = control
                first = opened.pop(pid, None)
                if first is not None:
                    ended.append((pid, first, offset, match[1].decode().lower()))
    return opened, ended


def partitions_of(dump: Path) -> list[Path]:
    return [each for each in sorted(dump.iterdir()) if re.search(r"-\d+$", each.name)]


@pytest.mark.share(3)
@pytest.mark.parametrize("state", STATES)
def test_list_finds_exactly_the_open_ones(
    state: str, golden: Callable[[str], Path], eoctl: Callable
) -> None:
    """As kafka-dump-log shows them; in the crash family the two ids that were open are named."""
    outcome = eoctl("txn", "list", golden("kafka-4.3.1") / state, *LATE, "--output", "jsonl")
    # A log of the family `hard` was made with gaps.
    assert outcome.status == (5 if state.startswith("hard") else 0), outcome.errors
    rows = rows_of(outcome, "transaction")
    found = {(f"{r['topic']}-{r['partition']}", r["producer_id"], r["first_offset"]) for r in rows}
    expected = {
        (each.name, producer_id, first_offset)
        for each in partitions_of(golden("kafka-4.3.1.dump") / state)
        for producer_id, first_offset in transactions_of(each)[0].items()
    }
    assert found == expected
    assert len(rows) == len(found)
    named = {
        (r["topic"], r["partition"], r["transactional_id"], r["verdict"])
        for r in rows
        if r["topic"] == "txn"
    }
    is_open = state in CRASH_FAMILY
    assert named == (
        {("txn", 0, "open-1", "overdue"), ("txn", 1, "open-2", "overdue")} if is_open else set()
    )
    # What was put under the other topics no coordinator has ever heard of.
    assert {r["verdict"] for r in rows if r["topic"] != "txn"} <= {"hanging"}


@pytest.mark.parametrize("state", ["clean", "tv2"])
def test_list_all_gives_every_outcome(
    state: str, golden: Callable[[str], Path], eoctl: Callable
) -> None:
    """Of the logs that were never compacted, marker by marker in their order."""
    outcome = eoctl("txn", "list", golden("kafka-4.3.1") / state, "--all", "--output", "jsonl")
    rows = rows_of(outcome, "transaction")
    for dump in partitions_of(golden("kafka-4.3.1.dump") / state):
        topic, _, number = dump.name.rpartition("-")
        found = [
            (r["producer_id"], r["first_offset"], r["last_offset"], r["state"])
            for r in rows
            if (r["topic"], r["partition"]) == (topic, int(number)) and r["state"] != "open"
        ]
        names = {"commit": "committed", "abort": "aborted"}
        assert found == [(*each[:3], names[each[3]]) for each in transactions_of(dump)[1]]
    assert len(rows) > 70


# --- verdicts -------------------------------------------------------------------------------------


def test_hanging_text(kafka: Path, eoctl: Callable) -> None:
    """One that its coordinator lists, and one that it does not: exit status 1."""
    forget(kafka, "open-1")
    outcome = eoctl("txn", "hanging", "kafka", *LATE)
    assert outcome.status == 1
    call = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic txn --partition"
    assert outcome.text == table(
        "topic | partition | producer_id | producer_epoch | transactional_id | first_offset"
        " | last_offset | age_ms | verdict | coordinator_partition | coordinator_status"
        " | coordinator_epoch | holds_last_stable_offset | held_offsets_count | reason"
        " | abort_command | offline_command | last_timestamp_ms | path",
        "txn | 0 | 40 | 0 | open-1 | 311 | 317 | 3659355 | hanging | 2 | Empty | unknown | yes | 18"
        f" | the coordinator has it as Empty | {call} 0 --start-offset 311 | eoctl txn abort"
        f" kafka/txn-0 --producer-id 40 {' '.join(LATE)} | 1795229940645 | kafka/txn-0",
        "txn | 1 | 41 | 0 | open-2 | 282 | 284 | 3658814 | overdue | 1 | Ongoing | unknown | yes"
        " | 12 | the coordinator has it as Ongoing and lists the partition"
        f" | {call} 1 --start-offset 282 | eoctl txn complete kafka --transactional-id open-2"
        f" {' '.join(LATE)} | 1795229941186 | kafka/txn-1",
    )
    assert "now is 2026-11-21 04:00:00 UTC (as given)" in outcome.errors
    assert eoctl("txn", "hanging", "kafka", *LATE, "--fail-on", "error").status == 0
    assert eoctl("txn", "hanging", "kafka", *YOUNG).status == 0


def test_hanging_tells_of_the_open_ones_that_are_not_late(kafka: Path, eoctl: Callable) -> None:
    """By the clock of a directory whose broker was stopped at once none is."""
    outcome = eoctl("txn", "hanging", "kafka", "--now", "dir", "--output", "jsonl")
    assert (outcome.status, rows_of(outcome)) == (0, [])
    assert any(note.startswith("2 more transactions are open") for note in notes_of(outcome))


def test_hanging_fields(kafka: Path, eoctl: Callable) -> None:
    """For machines: the same in both formats."""
    forget(kafka, "open-1")
    rows = rows_of(eoctl("txn", "hanging", "kafka/txn-0", *LATE, "--output", "jsonl"))
    assert rows == unpacked(eoctl("txn", "hanging", "kafka/txn-0", *LATE, "--output", "msgpack"))
    (row,) = rows
    names = (
        *("topic", "partition", "producer_id", "producer_epoch", "transactional_id"),
        *("first_offset", "last_offset", "age_ms", "verdict"),
    )
    expected = ("txn", 0, 40, 0, "open-1", 311, 317, 3_659_355, "hanging")
    assert tuple(row[name] for name in names) == expected


def verdict_of(outcome: Any) -> tuple[str, str | None]:
    (row,) = rows_of(outcome, "transaction")
    return row["verdict"], row["transactional_id"]


def test_verdicts_by_age_and_by_what_is_given(kafka: Path, eoctl: Callable) -> None:
    """Nothing is said of a transaction whose coordinator's log is not there."""
    call = ("txn", "list", "kafka/txn-0", "--output", "jsonl")
    assert verdict_of(eoctl(*call, *YOUNG)) == ("ongoing", "open-1")
    assert verdict_of(eoctl(*call, *LATE)) == ("overdue", "open-1")
    longer = ("--transaction-max-timeout-ms", "3400000")
    assert verdict_of(eoctl(*call, *LATE, *longer)) == ("ongoing", "open-1")
    forget(kafka, "open-1")
    assert verdict_of(eoctl(*call, *YOUNG)) == ("unlisted", "open-1")
    elsewhere = kafka.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.copy2(kafka / "meta.properties", elsewhere)
    shutil.move(kafka / "__transaction_state-2", elsewhere)
    assert verdict_of(eoctl(*call, *LATE)) == ("unknown", None)
    outcome = eoctl("txn", "hanging", "kafka/txn-0", *LATE, "--output", "jsonl")
    assert "1 of 4 were not given" in rows_of(outcome)[0]["reason"]
    assert outcome.status == 1
    given = ("--coordinator-dir", "elsewhere")
    assert verdict_of(eoctl(*call, *LATE, *given)) == ("hanging", "open-1")


def test_a_partition_copied_out_of_its_log_dir(kafka: Path, eoctl: Callable) -> None:
    """Its coordinators are those of the one directory that is given for them."""
    shutil.copytree(kafka / "txn-0", "txn-0")
    call = ("txn", "list", "txn-0", *LATE, "--output", "jsonl")
    assert verdict_of(eoctl(*call)) == ("unknown", None)
    assert verdict_of(eoctl(*call, "--coordinator-dir", "kafka")) == ("overdue", "open-1")


def test_damage_does_not_end_a_list(kafka: Path, eoctl: Callable) -> None:
    """What cannot be read is told, and makes the exit status; the rest is listed."""
    log = kafka / "__transaction_state-2" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-20] ^= 1
    log.write_bytes(data)
    outcome = eoctl("txn", "list", "kafka", *LATE, "--output", "jsonl")
    assert outcome.status == 1
    found = {r["producer_id"]: r["verdict"] for r in rows_of(outcome, "transaction")}
    assert found == {40: "unknown", 41: "overdue"}
    assert any("__transaction_state-2" in note for note in notes_of(outcome))
    with held(kafka):
        outcome = eoctl("txn", "list", "kafka/txn-1", "--output", "jsonl")
    assert any("a broker is running on it" in note for note in notes_of(outcome))


# --- describe, stats, torn ------------------------------------------------------------------------


def test_describe_one(kafka: Path, eoctl: Callable) -> None:
    """By either id: the coordinator's word, what is not here, and every transaction of it."""
    shutil.rmtree(kafka / "txn-0")
    by_name = eoctl("txn", "describe", "kafka", "--transactional-id", "open-1", "--output", "jsonl")
    (row,) = rows_of(by_name, "transactional_id")
    assert row["status"] == "Ongoing"
    assert (row["partitions"], row["not_here"]) == (["txn-0"], ["txn-0"])
    assert (row["producer_id"], row["coordinator_partition"]) == (40, 2)
    by_number = eoctl("txn", "describe", "kafka", "--producer-id", "40", "--output", "jsonl")
    assert by_number.stdout == by_name.stdout
    many = eoctl("txn", "describe", "kafka", "--transactional-id", "tx-0", "--output", "jsonl")
    found = rows_of(many, "transaction")
    assert {each["transactional_id"] for each in found} == {"tx-0"}
    assert {each["state"] for each in found} == {"committed", "aborted"}
    nobody = eoctl("txn", "describe", "kafka", "--transactional-id", "nobody", "--output", "jsonl")
    assert nobody.status == 5  # the high watermark of txn-0 says that there was more
    assert nobody.stdout == b""
    assert "it would be in __transaction_state-" in nobody.errors
    nobody = eoctl("txn", "describe", "kafka", "--producer-id", "99999", "--output", "jsonl")
    assert (nobody.status, nobody.stdout) == (5, b"")
    assert "no record of producer id 99999: no transactional id has it" in nobody.errors
    shutil.rmtree(kafka / "__transaction_state-1")
    part = eoctl("txn", "describe", "kafka", "--producer-id", "99999", "--output", "jsonl")
    assert "which is not all of it" in part.errors


def test_describe_needs_one_id(kafka: Path, eoctl: Callable) -> None:
    for arguments in ((), ("--producer-id", "1", "--transactional-id", "x")):
        assert eoctl("txn", "describe", "kafka", *arguments).status == 2
    for verb in ("list", "describe", "hanging", "torn", "stats"):
        assert eoctl("txn", verb, *(("--producer-id", 1) if verb == "describe" else ())).status == 2


def test_stats(golden: Callable[[str], Path], eoctl: Callable) -> None:
    """As kafka-dump-log counts; ids by status."""
    outcome = eoctl("txn", "stats", golden("kafka-4.3.1") / "clean", *LATE, "--output", "jsonl")
    for row in rows_of(outcome, "transaction_stats"):
        dump = golden("kafka-4.3.1.dump") / "clean" / f"{row['topic']}-{row['partition']}"
        opened, ended = transactions_of(dump)
        outcomes = [each[3] for each in ended]
        counts = (row["committed_count"], row["aborted_count"], row["open_count"])
        assert counts == (outcomes.count("commit"), outcomes.count("abort"), len(opened))
        assert row["oldest_open_offset"] == min(opened.values(), default=None)
        if opened:
            assert row["last_stable_offset"] == row["oldest_open_offset"]
    ids = {r["status"]: r["ids_count"] for r in rows_of(outcome, "coordinator_stats")}
    assert ids == {"Ongoing": 2, "CompleteCommit": 6, "CompleteAbort": 1}


def test_nothing_is_torn_in_real_directories(
    golden: Callable[[str], Path], eoctl: Callable
) -> None:
    for state in ("clean", "crash", "tv2-clean"):
        outcome = eoctl("txn", "torn", golden("kafka-4.3.1") / state, "--output", "jsonl")
        assert (outcome.status, outcome.stdout) == (0, b""), outcome.text
        # One run reads twice, and says once what it verified.
        (verified,) = (e for e in notes_of(outcome) if e.startswith(("verified", "engine")))
        assert "of all batches, records of __transaction_state; records of other" in verified


def test_a_prepared_transaction_is_torn(kafka: Path, eoctl: Callable) -> None:
    """Each partition that its record lists: open, without a marker, or not here."""
    replace_state(
        kafka,
        "open-1",
        transaction_status=TransactionStatus.PREPARE_COMMIT,
        partitions=(("txn", 0), ("plain", 0), ("gone", 3)),
    )
    outcome = eoctl("txn", "torn", "kafka", *LATE, "--output", "jsonl")
    assert outcome.status == 1
    (row,) = rows_of(outcome, "torn_transaction")
    assert (row["why"], row["transactional_id"]) == ("prepare-not-completed", "open-1")
    assert (row["open_in"], row["without_marker"]) == (["txn-0"], ["plain-0"])
    assert (row["not_here"], row["committed_in"]) == (["gone-3"], [])
    assert eoctl("txn", "torn", "kafka", *LATE, "--fail-on", "error").status == 0


def test_partitions_that_contradict_each_other(kafka: Path, eoctl: Callable) -> None:
    """Committed here and aborted or open there; data that is late; an older coordinator."""
    replace_state(kafka, "open-1", partitions=(("a", 0), ("c", 0), ("gone", 1)))
    write_segments(kafka / "a-0", [Batch(40, 0, 0, 2, "txn"), Batch(40, 1, 0, 1, "commit")])
    write_segments(kafka / "b-0", [Batch(40, 0, 0, 2, "txn"), Batch(40, 1, 0, 1, "abort")])
    write_segments(kafka / "c-0", [Batch(40, 0, 0, 2, "txn")])
    late = [Batch(5, 0, 0, 1, "txn"), Batch(5, 1, 0, 1, "abort"), Batch(5, 0, 1, 1, "txn")]
    write_segments(kafka / "late-0", late)
    old = write_segments(kafka / "old-0", [Batch(5, 0, 0, 1, "txn")])
    log = old / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + commit_marker(1, 5, 7) + commit_marker(2, 5, 6))
    outcome = eoctl("txn", "torn", "kafka", *LATE, "--output", "jsonl")
    assert outcome.status == 1
    rows = {row["why"]: row for row in rows_of(outcome, "torn_transaction")}
    differs = rows["outcome-differs"]
    assert (differs["committed_in"], differs["aborted_in"]) == (["a-0"], ["b-0"])
    assert (differs["transactional_id"], differs["not_here"]) == ("open-1", ["gone-1"])
    missing = rows["marker-missing"]
    assert (missing["producer_id"], {*missing["open_in"]}) == (40, {"c-0", "txn-0"})
    assert missing["committed_in"] == ["a-0"]
    too_late = rows["data-after-marker"]
    assert (too_late["topic"], too_late["offset"], too_late["producer_epoch"]) == ("late", 2, 0)
    older = rows["older-coordinator-epoch"]
    assert (older["topic"], older["offset"]) == ("old", 2)
    assert older["detail"] == "coordinator epoch 6 behind one of 7"


# --- abort ----------------------------------------------------------------------------------------


def test_abort_shows_its_plan(kafka: Path, eoctl: Callable) -> None:
    """Every file, and the price; nothing is changed."""
    forget(kafka, "open-1")
    before = tree_of(kafka)
    outcome = eoctl(*ABORT)
    assert outcome.status == 0, outcome.errors
    reason = "a segment with the ABORT marker"
    assert outcome.text == "\n".join(
        [
            table(
                "topic | partition | producer_id | producer_epoch | transactional_id | first_offset"
                " | verdict | marker_offset | coordinator_epoch | last_stable_offset_before"
                " | last_stable_offset_after | applied | path",
                "txn | 0 | 40 | 0 | open-1 | 311 | hanging | 329 | 0 | 311 | 330 | no"
                " | kafka/txn-0",
            ),
            table(
                "action | file | before_bytes | after_bytes | backup_bytes | reason",
                f"create | txn-0/00000000000000000329.log | 0 | 78 | 0 | {reason}",
                f"create | txn-0/00000000000000000329.index | 0 | 0 | 0 | {reason}",
                f"create | txn-0/00000000000000000329.timeindex | 0 | 12 | 0 | {reason}",
                f"create | txn-0/00000000000000000329.txnindex | 0 | 34 | 0 | {reason}",
                f"create | txn-0/00000000000000000330.snapshot | 0 | 884 | 0 | {reason}",
            ),
            table(
                "price | value",
                "first_offset | 311",
                "marker_offset | 329",
                "aborted_batches_count | 1",
                "aborted_records_count | 7",
                "aborted_bytes | 173",
                "last_stable_offset_before | 311",
                "last_stable_offset_after | 330",
                "recovery.partitions_count | 23",
                "recovery.log_bytes | 750274",
            ),
        ]
    )
    assert "this is a plan, nothing was changed: --apply runs it" in outcome.errors
    assert difference(before, tree_of(kafka)) == []


def test_abort_and_undo(kafka: Path, eoctl: Callable) -> None:
    """The old `.log` is not touched; a second call finds nothing; undo is byte for byte."""
    forget(kafka, "open-1")
    (kafka / CLEAN_SHUTDOWN_NAME).write_bytes(b"{}")
    before = tree_of(kafka)
    outcome = eoctl(*ABORT, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    (row,) = rows_of(outcome, "abort")
    assert row["applied"]
    assert f"eoctl undo {journal_of(kafka)} undoes it" in notes_of(outcome)
    changed = {name for name in {*before} ^ {*tree_of(kafka)} if "kafka_clean" not in name}
    suffixes = ("329.index", "329.log", "329.timeindex", "329.txnindex", "330.snapshot")
    assert changed == {f"txn-0/{'0' * 17}{each}" for each in suffixes}
    assert not (kafka / CLEAN_SHUTDOWN_NAME).exists()
    rows = rows_of(eoctl("txn", "list", "kafka", *LATE, "--output", "jsonl"), "transaction")
    assert [each["producer_id"] for each in rows] == [41]
    again = eoctl(*ABORT, "--apply", "--output", "jsonl")
    assert (again.status, again.stdout) == (0, b"")
    nothing = "producer 40 has no open transaction in kafka/txn-0: nothing was changed"
    assert notes_of(again)[-1] == nothing
    call = ("consume", "kafka/txn-0", "--from", "311", "--isolation", "read_committed")
    offsets = [each["offset"] for each in rows_of(eoctl(*call, "--output", "jsonl"))]
    assert [each for each in offsets if each >= 311] == [*range(318, 329)]
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []
    assert leftovers(kafka) == []


def test_abort_by_a_saved_plan(kafka: Path, eoctl: Callable) -> None:
    """It is refused when a broker ran in between, also where only the coordinator's log changed."""
    forget(kafka, "open-1")
    assert eoctl(*ABORT, "--save-plan", "plan.json").status == 0
    assert eoctl("apply", "plan.json").status == 0
    assert (kafka / "txn-0" / "00000000000000000329.txnindex").stat().st_size == 34
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert eoctl(*ABORT, "--save-plan", "later.json").status == 0
    forget(kafka, "open-1")
    outcome = eoctl("apply", "later.json")
    assert outcome.status == 4
    assert "the plan is stale" in outcome.errors


def test_abort_recovers_first(killed: Path, eoctl: Callable) -> None:
    """After a crash the recovery is a part of the same plan, and of the same undo."""
    forget(killed, "open-1")
    before = tree_of(killed)
    call = ("txn", "abort", "killed/txn-0", "--producer-id", "40", *LATE, "--output", "jsonl")
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 0, outcome.errors
    files = [each["file"] for each in rows_of(outcome, "step")]
    assert files.index("txn-0/00000000000000000000.index") < files.index(
        "txn-0/00000000000000000329.log"
    )
    assert rows_of(outcome, "price")[0]["cut_bytes"] == 0
    assert any("it is recovered first" in note for note in notes_of(outcome))
    assert eoctl("undo", journal_of(killed)).status == 0
    assert difference(before, tree_of(killed)) == []


def test_abort_beside_other_open_ones(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable
) -> None:
    """TXN-6: `.txnindex` names the oldest one that stays open; one below does not move the LSO."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "hard", tmp_path / "hard")
    partition = log_dir / "many-producers-0"
    opened, _ = transactions_of(golden("kafka-4.3.1.dump") / "hard" / partition.name)
    (first, oldest), (second, _), *_ = sorted((at, pid) for pid, at in opened.items())
    other = max(opened, key=lambda each: opened[each])
    for producer_id, before, after in ((other, first, first), (oldest, first, second)):
        call = ("txn", "abort", partition, "--producer-id", producer_id, *LATE, "--apply")
        outcome = eoctl(*call, "--output", "jsonl")
        assert outcome.status == 0, outcome.errors
        (row,) = rows_of(outcome, "abort")
        stable = row["last_stable_offset_before"], row["last_stable_offset_after"]
        assert stable == (before, after)
        entry = max(partition.glob("*.txnindex")).read_bytes()[-34:]
        fields = [int.from_bytes(entry[pos : pos + 8], "big") for pos in (2, 10, 18, 26)]
        assert fields == [producer_id, opened[producer_id], row["marker_offset"], after]


def test_abort_all_overdue(
    golden: Callable[[str], Path],
    tmp_path: Path,
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One plan for each partition, as planned so applied; refused ones are errors beside it."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "hard", tmp_path / "hard")
    monkeypatch.chdir(tmp_path)
    before = tree_of(log_dir)
    hanging = rows_of(eoctl("txn", "hanging", "hard", *LATE, "--output", "jsonl"), "hanging")
    call = ("txn", "abort", "hard", "--all-overdue", "--single-copy", *LATE, "--output", "jsonl")
    planned = eoctl(*call)
    assert planned.status == 4  # two are overdue, and one is fenced by its coordinator
    rows = rows_of(planned, "abort")
    assert len(rows) == len(hanging) - 3
    assert difference(before, tree_of(log_dir)) == []
    ends: dict[str, int] = {}
    for row in rows:
        assert row["marker_offset"] == ends.get(row["topic"], row["marker_offset"])
        assert row["last_stable_offset_before"] <= row["last_stable_offset_after"]
        ends[row["topic"]] = row["marker_offset"] + 1
    applied = eoctl(*call, "--apply")
    assert applied.status == 4
    assert rows_of(applied, "abort") == [{**row, "applied": True} for row in rows]
    journals = sorted(path.name for path in (tmp_path / "hard.eoctl").iterdir())
    assert len(journals) == len({row["topic"] for row in rows}) == 3
    still = rows_of(eoctl("txn", "hanging", "hard", *LATE, "--output", "jsonl"), "hanging")
    assert {each["producer_id"] for each in still} == (
        {each["producer_id"] for each in hanging} - {row["producer_id"] for row in rows}
    )
    for row in rows:
        log = (log_dir / f"{row['topic']}-{row['partition']}").glob("*.log")
        (marker,) = [
            h for h in headers_of(max(log).parent) if h.base_offset == row["marker_offset"]
        ]
        assert (marker.producer_id, marker.is_control) == (row["producer_id"], True)
    assert eoctl("undo", "--with-later", f"hard.eoctl/{journals[0]}").status == 0
    assert difference(before, tree_of(log_dir)) == []


def test_abort_of_a_transactional_id(kafka: Path, eoctl: Callable) -> None:
    """Where nothing may be done the answer does not say that nothing is overdue."""
    call = ("txn", "abort", "kafka", "--transactional-id", "open-1", *LATE)
    refused = eoctl(*call)
    assert refused.status == 4
    assert "is overdue" in refused.errors
    assert "nothing" not in refused.errors + refused.text
    overdue = eoctl("txn", "abort", "kafka", "--all-overdue", *LATE)
    assert (overdue.status, overdue.errors.count("is overdue")) == (4, 2)
    assert "nothing" not in overdue.errors + overdue.text
    forget(kafka, "open-1")
    (row,) = rows_of(eoctl(*call, "--apply", "--output", "jsonl"), "abort")
    assert (row["producer_id"], row["applied"]) == (40, True)
    again = eoctl(*call)
    assert again.status == 0
    assert "open-1: no open transaction in kafka" in again.errors + again.text
    unknown = eoctl("txn", "abort", "kafka", "--transactional-id", "opne-1", *LATE)
    assert unknown.status == 2
    assert "no coordinator here knows the transactional.id 'opne-1'" in unknown.errors
    assert "eoctl txn list kafka" in unknown.errors


def test_an_interrupted_abort_of_several_is_completed(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written by then: the same call goes on."""
    for name in ("open-1", "open-2"):
        forget(kafka, name)
    call = ("txn", "abort", "kafka", "--all-overdue", *LATE)
    for number in (2, 5):
        with monkeypatch.context() as patched:
            interrupt(patched, "rename", call=number)
            assert eoctl(*call, "--apply").status == 130
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 0, outcome.errors
    assert "completed what an earlier run began" in outcome.errors
    assert not rows_of(eoctl("txn", "hanging", "kafka", *LATE, "--output", "jsonl"), "hanging")


def test_offsets_of_a_group_that_hang(kafka: Path, eoctl: Callable) -> None:
    """The coordinators' own topic may be the one that is held up; `check` finds no fault after."""
    forget(kafka, "open-1")
    directory = kafka / "__consumer_offsets-0"
    tail = tail_at(directory, CONFIG)
    now_ms = 1_795_229_940_645
    writer = open_writer(
        directory, CONFIG, tail=tail, leader_epoch=tail.last_leader_epoch, now_ms=now_ms
    )
    writer.append(batch(1, (40, 0, 0), timestamp_ms=now_ms, is_transactional=True))
    writer.close()
    call = (*ABORT[:2], "kafka/__consumer_offsets-0", *ABORT[3:], "--apply", "--output", "jsonl")
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert "the group offsets of this transaction will not count" in notes_of(outcome)
    assert eoctl(*ABORT, "--apply").status == 0
    for path in (directory, kafka / "txn-0"):
        checked = eoctl("check", path, *LATE, "--output", "jsonl")
        assert (checked.status, rows_of(checked, "finding")) == (0, []), checked.text
    assert eoctl("txn", "abort", "kafka/__cluster_metadata-0", *ABORT[3:]).status == 4


def test_abort_is_refused(kafka: Path, eoctl: Callable) -> None:
    """Where a coordinator ends it, or may; with what to do instead."""

    def errors_of(*arguments: object) -> str:
        before = tree_of(kafka)
        for more in ((), ("--apply",)):
            outcome = eoctl(*ABORT[:5], *arguments, *more)
            assert outcome.status == 4, outcome.text
            assert difference(before, tree_of(kafka)) == []
        return str(outcome.errors)

    assert "is overdue: the coordinator has it as Ongoing" in errors_of(*LATE)
    assert "is ongoing" in errors_of(*YOUNG, "--force-overdue")
    forget(kafka, "open-1")
    assert "is unlisted" in errors_of(*YOUNG, "--force-overdue")
    replace_state(
        kafka,
        "open-1",
        transaction_status=TransactionStatus.PREPARE_COMMIT,
        partitions=(("txn", 0),),
    )
    assert "it is decided" in errors_of(*LATE, "--force-overdue")
    with held(kafka):
        assert "process" in errors_of(*LATE)
    shutil.rmtree(kafka / "__transaction_state-2")
    assert "is unknown" in errors_of(*LATE, "--force-overdue")


def test_an_overdue_one_is_aborted_where_it_is_wanted(kafka: Path, eoctl: Callable) -> None:
    outcome = eoctl(*ABORT, "--force-overdue", "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert rows_of(outcome, "abort")[0]["verdict"] == "overdue"


def test_abort_needs_the_only_replica(kafka: Path, eoctl: Callable) -> None:
    """Where the replication factor is unknown, or the topic none that may be written to."""
    forget(kafka, "open-1")
    for path in kafka.glob("__cluster_metadata-0"):
        shutil.move(path, kafka.parent / "metadata")
    outcome = eoctl(*ABORT)
    assert outcome.status == 4
    assert "its replication factor is unknown" in outcome.errors
    # Without the metadata nobody knows how many coordinators' partitions there are; its own is here.
    outcome = eoctl(*ABORT, "--single-copy", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert any("other replicas" in note for note in notes_of(outcome))
    assert eoctl("txn", "abort", "kafka/txn-0", "--producer-id", "77").status != 0


def test_abort_warns_of_a_commit_elsewhere(kafka: Path, eoctl: Callable) -> None:
    """The coordinator's last word on the id was a commit: this may have been a part of it."""
    replace_state(
        kafka, "open-1", transaction_status=TransactionStatus.COMPLETE_COMMIT, partitions=()
    )
    outcome = eoctl(*ABORT, "--output", "jsonl")
    assert outcome.status == 0
    assert any("is committed elsewhere and aborted here" in note for note in notes_of(outcome))


def test_abort_of_one_of_several_replicas(diverged: Path, eoctl: Callable) -> None:
    """The others would not get the marker; that they are gone is for the caller to say."""
    call = ("txn", "abort", diverged / "broker-1" / "div-0", "--producer-id", "77")
    outcome = eoctl(*call)
    assert outcome.status == 4
    assert "has 3 replicas" in outcome.errors
    assert "--single-copy" in outcome.errors
    assert eoctl(*call, "--single-copy").status == 2  # there is no such producer


@pytest.fixture
def two_nodes(kafka: Path) -> Path:
    """Two replicas of a hanging transaction; no metadata says how many there are."""
    forget(kafka, "open-1")
    shutil.move(kafka / "__cluster_metadata-0", kafka.parent / "metadata")
    other = kafka.parent / "other"
    shutil.copytree(kafka, other)
    meta = other / "meta.properties"
    meta.write_text(re.sub(r"node\.id=\d+", "node.id=2", meta.read_text()))
    return other


def test_abort_in_all_replicas(two_nodes: Path, eoctl: Callable) -> None:
    """One plan, one journal: the same batch at the same offset of each; undo takes all back."""
    nodes = [two_nodes.parent / each for each in ("kafka", "other")]
    before = [tree_of(each) for each in nodes]
    call = (*ABORT, "--all-replicas", "other/txn-0", "--output", "jsonl")
    assert eoctl(*call).status == 0
    assert [tree_of(each) for each in nodes] == before
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 0, outcome.errors
    rows = rows_of(outcome, "abort")
    assert [(each["path"], each["marker_offset"], each["applied"]) for each in rows] == [
        ("kafka/txn-0", 329, True),
        ("other/txn-0", 329, True),
    ]
    (price,) = rows_of(outcome, "price")
    assert [each["aborted_records_count"] for each in price["replicas"]] == [7]
    assert not any("other replicas" in note for note in notes_of(outcome))
    name = f"txn-0/{329:020d}.log"
    assert (nodes[0] / name).read_bytes() == (nodes[1] / name).read_bytes() != b""
    again = eoctl(*call, "--apply")
    assert (again.status, again.stdout) == (0, b"")
    assert eoctl("undo", journal_of(nodes[0])).status == 0
    assert [tree_of(each) for each in nodes] == before


def test_abort_needs_replicas_that_agree(two_nodes: Path, eoctl: Callable) -> None:
    """The marker would be another batch, or at another offset."""
    call = (*ABORT, "--all-replicas", "other/txn-0")
    txn, now_ms = two_nodes / "txn-0", 1_795_229_940_645
    tail = tail_at(txn, CONFIG)
    epoch = tail.last_leader_epoch
    writer = open_writer(txn, CONFIG, tail=tail, leader_epoch=epoch, now_ms=now_ms)
    writer.append(batch(1, timestamp_ms=now_ms))
    writer.close()
    nodes = [two_nodes.parent / each for each in ("kafka", "other")]
    before = [tree_of(each) for each in nodes]
    for more in ((), ("--apply",)):
        outcome = eoctl(*call, *more)
        assert outcome.status == 4
        assert "other/txn-0: ends differently" in outcome.errors
        assert "eoctl replicas compare kafka/txn-0 other/txn-0" in outcome.errors
    assert eoctl(*ABORT, "--all-replicas", "other/txn-1").status == 2
    assert [tree_of(each) for each in nodes] == before
    assert eoctl("txn", "abort", "other/txn-0", *ABORT[3:], "--single-copy", "--apply").status == 0
    assert "other/txn-0: has no such open transaction" in eoctl(*call).errors
    assert tree_of(nodes[0]) == before[0]


def test_abort_needs_all_replicas(diverged: Path, eoctl: Callable) -> None:
    """Where the cluster's metadata says how many there are."""
    call = ("txn", "abort", "broker-1/div-0", "--producer-id", "77")
    outcome = eoctl(*call, "--all-replicas", "broker-2/div-0")
    assert outcome.status == 4
    assert "has 3 replicas, 2 are given" in outcome.errors
    others = ("--all-replicas", "broker-2/div-0", "--all-replicas", diverged / "broker-3" / "div-0")
    assert "does not know producer 77" in eoctl(*call, *others).errors


def test_an_epoch_above_the_coordinators_is_refused(kafka: Path, eoctl: Callable) -> None:
    """The state topic has lost records: the marker would not be one of its coordinator."""
    forget(kafka, "open-1")
    replace_state(kafka, "open-1", producer_epoch=-1)
    outcome = eoctl(*ABORT)
    assert outcome.status == 4
    assert "the coordinator of 'open-1' is at -1: its log has lost newer records" in outcome.errors


def test_an_unknown_producer_is_a_wrong_call(kafka: Path, eoctl: Callable) -> None:
    outcome = eoctl(*ABORT[:4], "77", *LATE)
    assert outcome.status == 2
    assert "does not know producer 77" in outcome.errors
    assert "eoctl txn list kafka/txn-0" in outcome.errors
    assert eoctl(*ABORT[:4], "42", *LATE).status == 0  # known, and nothing of it is open


def test_an_interrupted_abort_is_completed(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same call; the journal leads on."""
    forget(kafka, "open-1")
    with monkeypatch.context() as patched:
        interrupt(patched, "rename", call=3)
        outcome = eoctl(*ABORT, "--apply")
    assert outcome.status == 130
    assert "the change is unfinished" in outcome.errors
    outcome = eoctl(*ABORT, "--apply")
    assert outcome.status == 0
    assert "completed what an earlier run began" in outcome.errors
    assert (kafka / "txn-0" / "00000000000000000330.snapshot").exists()


# --- output ---------------------------------------------------------------------------------------


def test_in_80_columns_and_in_a_closed_pipe(kafka: Path) -> None:
    shown = in_80_columns("txn", "list", "kafka", *LATE)
    assert "open-1" in shown
    assert in_a_closed_pipe("txn", "list", "kafka", "--all").returncode == 0


def test_the_help_names_the_commands(eoctl: Callable) -> None:
    outcome = eoctl("txn", "--help")
    assert outcome.status == 0
    for name in ("list", "describe", "hanging", "torn", "stats", "abort"):
        assert re.search(rf"^  {name} ", outcome.text, re.MULTILINE)
        assert eoctl("txn", name, "--help").status == 0
    assert eoctl("txn").status == 2


def test_one_refusal_of_a_log_dir_names_all_options(kafka: Path, eoctl: Callable) -> None:
    """By its id as by its producer: the command that is printed is not refused again."""
    shutil.rmtree(kafka / "__cluster_metadata-0")
    call = ("txn", "abort", "kafka", "--transactional-id", "open-1", *LATE)
    refused = eoctl(*call)
    assert refused.status == 4
    assert "replication factor is unknown" in refused.errors
    assert "producer 40 is overdue" in refused.errors
    assert f"eoctl {' '.join(call)} --single-copy --force-overdue" in refused.errors
    assert eoctl(*call, "--single-copy", "--force-overdue").status == 0
