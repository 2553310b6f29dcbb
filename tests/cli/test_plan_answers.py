"""What a plan tells a person first, and what was done last; the questions of an operator."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import terminal
from tests.changes import journal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.terminal import Shown

LOG = "00000000000000000000.log"
FIRST = 10  # lines in which a question is answered


def on_terminal(*arguments: object, width: int = 80) -> Shown:
    """What is seen there, without what is drawn meanwhile."""
    quiet = () if "-q" in arguments else ("-q",)
    return terminal.on_terminal(*arguments, *quiet, width=width)


def flip(path: Path, pos: int) -> None:
    data = bytearray(path.read_bytes())
    data[pos] ^= 0x10
    path.write_bytes(data)


def said(shown: Shown, label: str) -> str:
    """What stands behind a label."""
    found = [each for each in shown.lines if each.split(" ")[0] == label]
    assert found, shown.text
    return found[0].removeprefix(label).strip()


def words_of(shown: Shown, label: str = "Next") -> list[str]:
    words = shlex.split(said(shown, label), comments=True)
    assert words[0] == "eoctl"
    return words[1:]


def rows_of(outcome: Any, kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [row for row in rows if row["kind"] == kind]


@pytest.fixture
def damaged(killed: Path) -> Path:
    flip(killed / "plain-0" / LOG, 2000)  # in the first of its batches, offsets 0 to 20
    return killed


# --- plans ----------------------------------------------------------------------------------------


def test_a_cut_is_told_done_and_taken_back(killed: Path, eoctl: Callable[..., Any]) -> None:
    before = (killed / "plain-0" / LOG).read_bytes()
    call = ("truncate", "killed/plain-0", "--to-offset", "100", "--single-copy")
    [price] = rows_of(eoctl(*call, "-o", "jsonl"), "price")
    plan = on_terminal(*call)
    assert said(plan, "Plan").startswith("truncate plain-0 from 179 to ")
    loses = said(plan, "Loses")
    assert loses.startswith(f"{price['records_count']} records, ")
    assert f"{price['acknowledged_records_count']} acknowledged" in loses
    assert said(plan, "Undo").startswith("yes")
    assert plan.lines.index(next(e for e in plan.lines if e.startswith("Next"))) < 6
    done = on_terminal(*words_of(plan))
    assert (killed / "plain-0" / LOG).read_bytes() != before
    *_, last_but_two, last_but_one, last = done.lines
    assert last_but_two.startswith("Done    truncated plain-0 from 179 to ")
    assert last_but_one == f"Lost    {loses}"
    assert on_terminal(*words_of(done, "Undo")).status == 0
    assert last.startswith("Undo    eoctl undo /")
    assert (killed / "plain-0" / LOG).read_bytes() == before


def test_what_a_cut_leaves_open_is_said_with_the_command(killed: Path) -> None:
    call = ("truncate", "killed/txn-0", "--to-offset", "300", "--single-copy")
    blocks = said(on_terminal(*call, width=200), "Blocked")
    stops, _, command = blocks.partition(": ")
    assert stops == "read_committed stops at 268 of 300 until 3 transactions are ended"
    assert command == "eoctl txn abort killed/txn-0 --producer-id 22"
    done = on_terminal(*call, "--apply", width=200)
    assert said(done, "Blocked") == blocks
    assert on_terminal("undo", journal_of(killed)).status == 0


def test_the_records_that_a_completion_aborts(killed: Path) -> None:
    """Flink may have decided otherwise: the call to make first is there."""
    call = ("txn", "complete", "killed", "--single-copy", "--transactional-id", "open-1")
    plan = on_terminal(*call, width=200)
    assert said(plan, "Loses") == "7 records of open-1 for read_committed consumers"
    owner = said(plan, "Owner")
    assert owner.startswith("if a checkpoint of Flink has open-1 as prepared: eoctl txn commit ")
    names = [each.split(" ")[0] for each in plan.lines]
    assert names.index("Owner") < names.index("Loses")


@pytest.mark.exhaustive
def test_strategies_beside_each_other(damaged: Path, eoctl: Callable[..., Any]) -> None:
    """What each loses is what its own plan says."""
    shown = on_terminal("repair", "killed", width=100)
    assert said(shown, "Found") == "1 of 23 partitions to repair: plain-0"
    lines = [each.split() for each in shown.lines if each.startswith("plain-0 ")]
    compared = {each[1]: each[2:] for each in lines}
    assert set(compared) == {"salvage", "as-broker"}
    for strategy, (kept, lost, acknowledged, _) in compared.items():
        call = ("repair", "killed/plain-0", "--strategy", strategy, "--single-copy")
        [row] = rows_of(eoctl(*call, "-o", "jsonl"), "repair")
        assert int(lost) == row["lost_offsets_count"]
        assert int(kept) == row["log_end_offset"] - (int(lost) if strategy == "salvage" else 0)
        assert acknowledged == lost  # all of it lies below the high watermark
        plan = on_terminal(*call)
        assert said(plan, "Loses") == f"{lost} offsets, {acknowledged} acknowledged"
    assert words_of(shown) == ["repair", "killed/plain-0", "--strategy", "salvage"]
    assert on_terminal(*words_of(shown)).status == 0


def test_a_repair_of_a_log_dir_lists_what_it_changes(damaged: Path) -> None:
    shown = on_terminal("repair", "killed", "--strategy", "salvage")
    assert "22 partitions with nothing to repair" in shown.text
    assert "killed/plain-1" not in shown.text
    assert "nothing: there is nothing to repair" in said(
        on_terminal("repair", "killed/plain-1", "--strategy", "salvage"), "Plan"
    )


def test_one_file_changes(killed: Path) -> None:
    (killed / "replication-offset-checkpoint").write_text("0\n1\nplain 0 x\n")
    plan = said(on_terminal("repair", "killed", "--strategy", "salvage"), "Plan")
    assert plan.endswith("; 1 file changes")


def test_nothing_to_repair(kafka: Path) -> None:
    assert said(on_terminal("repair", "kafka"), "Plan") == "nothing: there is nothing to repair"


def test_move_away_asks_for_what_is_not_known(diverged: Path) -> None:
    flip(diverged / "broker-1" / "div-0" / LOG, 30)
    (diverged / "broker-1" / "__cluster_metadata-0").rename(diverged / "away")
    shown = on_terminal("repair", "broker-1")
    assert said(shown, "Next") == "if another broker has it in sync:"
    words = words_behind(shown)
    assert words[-3:] == ["--strategy", "move-away", "--replicated"]
    assert on_terminal(*words).status == 0


def words_behind(shown: Shown) -> list[str]:
    """The command below the condition for it."""
    place = next(n for n, each in enumerate(shown.lines) if each.startswith("Next"))
    _, *words = shlex.split(shown.lines[place + 1])
    return words


@pytest.mark.parametrize("width", [80, 200])
def test_only_copy_is_confirmed_by_nobody_who_pastes(diverged: Path, width: int) -> None:
    """Two other brokers have a replica by the metadata, out of the ISR: the condition says so."""
    flip(diverged / "broker-2" / "calm-0" / LOG, 1000)
    shown = on_terminal("repair", "broker-2", width=width)
    assert said(shown, "Next") == (
        "if the replicas on brokers 1, 3 are lost (see eoctl replicas compare):"
    )
    words = words_behind(shown)
    assert words[-3:] == ["--strategy", "salvage", "--single-copy"]
    assert on_terminal(*words).status == 0


def test_the_end_of_a_transaction(killed: Path, eoctl: Callable[..., Any]) -> None:
    call = ("txn", "abort", "killed/txn-0", "--producer-id", "40", "--single-copy",
            "--force-overdue")  # fmt: skip
    [price] = rows_of(eoctl(*call, "-o", "jsonl"), "price")
    plan = on_terminal(*call)
    assert said(plan, "Plan").startswith("write an ABORT marker of producer 40 to txn-0 at 329")
    assert said(plan, "Loses").startswith(
        f"{price['aborted_records_count']} records become aborted"
    )
    assert words_of(plan) == [*call, "-q", "--apply"]


def test_a_rejoin_is_told(diverged: Path) -> None:
    call = ("replicas", "rejoin", "broker-1/div-0", "--leader", "broker-2/div-0", "--unclean")
    plan = on_terminal(*call)
    assert said(plan, "Plan").startswith("truncate div-0 from 73 to 36")
    assert said(plan, "Loses").startswith("33 records, 0 acknowledged")


def test_derived_files(kafka: Path) -> None:
    (kafka / "plain-0" / LOG.replace(".log", ".index")).write_bytes(b"\xff" * 8)
    shown = on_terminal("rebuild", "kafka/plain-0")
    assert said(shown, "Found").endswith("1 do not")
    done = on_terminal(*words_of(shown))
    assert said(done, "Done") == "derived 1 file of 1 partition from the log"
    assert said(done, "Lost").startswith("no record")
    assert on_terminal("rebuild", "kafka/plain-0").status == 0


def test_rebuild_does_not_name_a_call_that_is_refused(damaged: Path) -> None:
    shown = on_terminal("rebuild", "killed/plain-0")
    assert words_of(shown) == ["repair", "killed/plain-0"]


# --- questions, each answered by at most two calls within the first lines -------------------------


def head(shown: Shown) -> str:
    return "\n".join(shown.lines[:FIRST])


def test_why_does_it_not_start(kafka: Path) -> None:
    (kafka / "plain-0" / "abc.log").write_bytes(b"")
    shown = on_terminal("check", "kafka")
    assert "will NOT start: abc.log: the name of a .log" in head(shown)


def test_what_will_be_lost(damaged: Path) -> None:
    assert "at least 158 records of plain, all acknowledged" in head(on_terminal("check", "killed"))


def test_what_hangs_since_when_and_how_is_it_ended(killed: Path) -> None:
    shown = on_terminal("check", "killed")
    assert "txn-0 stops at 311 of 329 since 2026-11-21 " in head(shown)
    assert words_of(shown)[:2] == ["txn", "hanging"]


def test_what_did_the_repair_change_and_can_i_go_back(damaged: Path) -> None:
    before = (damaged / "plain-0" / LOG).read_bytes()
    call = ("repair", "killed/plain-0", "--strategy", "salvage", "--single-copy", "--apply")
    last = "\n".join(on_terminal(*call).lines[-FIRST:])
    assert "Done    repaired plain-0, strategy salvage" in last
    assert "Lost    21 offsets, 21 acknowledged" in last
    back = shlex.split(last[last.index("Undo") :].splitlines()[0].removeprefix("Undo"))
    assert on_terminal(*back[1:]).status == 0
    assert (damaged / "plain-0" / LOG).read_bytes() == before


def test_what_frees_space(kafka: Path) -> None:
    (kafka / "plain-0" / f"{LOG}.deleted").write_bytes(bytes(1 << 20))
    shown = on_terminal("reclaim", "kafka")
    assert re.search(r"1\.0+ MiB\n", shown.text), shown.text
    assert "kafka/plain-0/*.deleted" in shown.text
    assert "1.00 GiB are free" in shown.text


def test_is_this_copy_complete(kafka: Path) -> None:
    whole = on_terminal("check", "kafka")
    assert "nothing: no damaged batch, none missing below the high watermarks" in head(whole)
    log = kafka / "txn-0" / LOG
    log.write_bytes(log.read_bytes()[:-500])
    assert "11 acknowledged offsets missing: txn-0 318..328" in head(on_terminal("check", "kafka"))


def test_an_append_says_what_it_comes_to_and_how_it_is_taken_back(kafka: Path) -> None:
    Path("lines").write_text("a\nb\n")
    log = (kafka / "plain-0" / LOG).read_bytes()
    call = ("produce", "kafka/plain-0", "lines", "--single-copy")
    plan = on_terminal(*call)
    assert plan.lines[:3] == [
        "Plan    append 2 records to plain-0, offsets 179..180",
        "Undo    yes: a journal is kept for eoctl undo",
        "Next    eoctl produce kafka/plain-0 lines --single-copy -q --apply",
    ]
    kept = on_terminal(*call, "--no-backup", "--i-accept-the-loss")
    assert kept.lines[1].startswith("Undo    no: ")
    done, undo = on_terminal(*call, "--apply").lines[-2:]
    assert done == "Done    appended 2 records to plain-0, offsets 179..180"
    dry = on_terminal("undo", "kafka", "--dry-run")
    assert dry.lines[-2:] == [
        "Undo    produce can be undone: 5 files",
        f"Next    {undo.removeprefix('Undo    ')}",
    ]
    back = shlex.split(undo.removeprefix("Undo"))
    assert on_terminal(*back[1:]).lines[-1].startswith("Done    undid produce, ")
    assert (kafka / "plain-0" / LOG).read_bytes() == log


def test_a_saved_plan_says_what_was_done(kafka: Path) -> None:
    call = ("truncate", "kafka/txn-0", "--to-offset", "300", "--single-copy")
    saved = on_terminal(*call, "--save-plan", "plan.json", "--no-backup", "--i-accept-the-loss")
    assert saved.lines[2].startswith("Blocked read_committed stops at 268 of 300 until 3 ")
    assert saved.lines[3].startswith("Undo    no: ")
    done, lost, blocks, undo = on_terminal("apply", "plan.json").lines[-4:]
    assert blocks == saved.lines[2].replace("kafka/txn-0", str(kafka / "txn-0"))
    assert done == "Done    truncate: 10 files changed"
    assert lost.startswith("Lost    24 records, 24 acknowledged")
    assert undo.startswith("Undo    eoctl undo ")


def test_transactions_that_are_ended(killed: Path) -> None:
    assert killed.exists()
    shown = on_terminal("txn", "complete", "killed", "--no-pager")
    assert shown.lines[0] == "Plan    end 2 transactions: 2 aborted"


def test_a_state_says_how_disk_compares(kafka: Path) -> None:
    first = on_terminal("recover-state", "kafka/txn-0", "--now", "dir").lines[:3]
    assert first[0] == "State   19 producers at offset 329, 1 transaction open"
    assert first[1].endswith(".snapshot is whole, not compared with the log")
    assert "--from-scratch" in first[2]
    (kafka / "txn-0" / "00000000000000000329.snapshot").unlink()
    lacking = on_terminal("recover-state", "kafka/txn-0", "--now", "dir").lines[:3]
    assert lacking[1] == "Disk    no valid 00000000000000000329.snapshot"
    assert lacking[2].endswith("--apply")
