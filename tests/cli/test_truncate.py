"""`eoctl truncate`: what it shows, what it cuts, what it refuses, and how to go back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.commands import truncate as truncate_run
from recovery.changes.journals import backups
from storage.errors import pasted
from tests.changes import (
    held,
    in_80_columns,
    in_a_closed_pipe,
    interrupt,
    journal_of,
    leave_unfinished,
    notes_of,
    rows_of,
    run_program,
    same_ids,
    split_answer,
    table,
    unpacked,
)
from tests.crash.trees import difference, leftovers, tree_of
from tests.kafka.broker import copy_log_dir
from tests.truncations import Log, expected_tree, log_start_of, read_tree

if TYPE_CHECKING:
    from collections.abc import Callable

TO_311 = ("truncate", "killed/txn-0", "--to-offset", "311")


def cut(outcome: Any) -> tuple[int, int, int]:
    """Target, end before and after; of a call with --output jsonl that was right."""
    assert outcome.status == 0, outcome.errors
    row, *_ = rows_of(outcome, "truncation")
    return row["target_offset"], row["log_end_offset"], row["end_after_restart"]


# --- what is shown --------------------------------------------------------------------------------

TEXT = "\n".join(
    [
        table(
            "path | target_offset | log_start_offset | log_end_offset | end_after_restart"
            " | high_watermark | applied",
            "killed/txn-0 | 311 | 0 | 329 | 311 | 311 | no",
        ),
        table(
            "action | file | before_bytes | after_bytes | backup_bytes | reason",
            "truncate | txn-0/00000000000000000000.log | 27718 | 25555 | 2163"
            " | batches below offset 311 stay",
            "truncate | txn-0/00000000000000000000.index | 16384 | 320 | 0"
            " | entries below offset 311 stay",
            "truncate | txn-0/00000000000000000000.timeindex | 16380 | 480 | 0"
            " | entries below offset 311 stay",
            "create | txn-0/00000000000000000311.snapshot | 0 | 792 | 0"
            " | producer state at the end",
        ),
        table(
            "price | value",
            "cut_start_offset | 311",
            "cut_end_offset | 329",
            "batches_count | 2",
            "records_count | 18",
            "log_bytes | 2163",
            "high_watermark | 311",
            "acknowledged_records_count | 0",
            "missing_offsets_count | 0",
            "transactions_count.reopened | 0",
            "transactions_count.removed | 1",
            "transactions_count.shortened | 0",
            "transactions | 1",
            "producers_count | 2",
            "producers | 2",
            "group_offsets | 0",
            "group_offsets_are_complete | yes",
            "recovery.partitions_count | 23",
            "recovery.log_bytes | 748520",
        ),
        table(
            "producer_id | first_offset | marker_offset | kind | outcome",
            "40 | 311 | unknown | open | removed",
        ),
        table(
            "producer_id | epoch_before | last_sequence_before | epoch_after | last_sequence_after",
            "40 | 0 | 6 | -1 | -1",
            "42 | 0 | 10 | -1 | -1",
        ),
    ]
)
NOTES = [
    "now is 2026-11-21 02:58:59 UTC (the newest checkpoint of the directory)",
    (
        "the checkpointed high watermark 311 is a lower bound: after a crash the real one may have been"
        " higher, by what was acknowledged in the last seconds"
    ),
    (
        "verified: checksums from the recovery point to the truncation, headers of the removed "
        "batches; records were not decompressed"
    ),
    "this is a plan, nothing was changed: --apply runs it",
]


def test_the_whole_plan_as_text(killed: Path, eoctl: Callable) -> None:
    outcome = eoctl("truncate", "killed/txn-0", "--to-hw", "--now", "dir")
    assert outcome.status == 0
    assert outcome.text == TEXT
    answer, notes = split_answer(outcome.errors)
    assert notes == NOTES
    assert answer == [
        "Plan truncate txn-0 from 329 to 311; 4 files change",
        "Loses 18 records, 0 acknowledged; transactions: 1 removed",
        "Undo yes: backups are made first, eoctl undo puts every byte back",
        "Next eoctl truncate killed/txn-0 --to-hw --now dir --apply",
    ]


def test_the_whole_plan_as_rows(killed: Path, eoctl: Callable) -> None:
    outcome = eoctl("truncate", "killed/txn-0", "--to-hw", "--now", "dir", "--output", "jsonl")
    assert outcome.status == 0
    assert notes_of(outcome) == NOTES
    rows = rows_of(outcome)
    assert rows[0] == {
        "kind": "truncation",
        "path": "killed/txn-0",
        "target_offset": 311,
        "log_start_offset": 0,
        "log_end_offset": 329,
        "end_after_restart": 311,
        "high_watermark": 311,
        "applied": False,
    }
    assert rows[1:-1] == [
        {
            "kind": "step",
            "action": action,
            "file": f"txn-0/{name}",
            "before_bytes": before,
            "after_bytes": after,
            "backup_bytes": kept,
            "reason": reason,
        }
        for action, name, before, after, kept, reason in (
            ("truncate", f"{0:020d}.log", 27718, 25555, 2163, "batches below offset 311 stay"),
            ("truncate", f"{0:020d}.index", 16384, 320, 0, "entries below offset 311 stay"),
            ("truncate", f"{0:020d}.timeindex", 16380, 480, 0, "entries below offset 311 stay"),
            ("create", f"{311:020d}.snapshot", 0, 792, 0, "producer state at the end"),
        )
    ]
    lost = {"epoch_before": 0, "epoch_after": -1, "last_sequence_after": -1}
    assert rows[-1] == {
        "kind": "price",
        "cut_start_offset": 311,
        "cut_end_offset": 329,
        "batches_count": 2,
        "records_count": 18,
        "log_bytes": 2163,
        "high_watermark": 311,
        "acknowledged_records_count": 0,
        "missing_offsets_count": 0,
        "transactions_count": {"reopened": 0, "removed": 1, "shortened": 0},
        "transactions": [
            {
                "producer_id": 40,
                "first_offset": 311,
                "marker_offset": None,
                "kind": "open",
                "outcome": "removed",
            }
        ],
        "producers_count": 2,
        "producers": [
            {"producer_id": 40, "last_sequence_before": 6, **lost},
            {"producer_id": 42, "last_sequence_before": 10, **lost},
        ],
        "group_offsets": [],
        "group_offsets_are_complete": True,
        "recovery": {"partitions_count": 23, "log_bytes": 748520},
    }
    packed = eoctl("truncate", "killed/txn-0", "--to-hw", "--now", "dir", "--output", "msgpack")
    assert unpacked(packed) == rows
    assert packed.errors.replace("msgpack", "jsonl") == outcome.errors


def test_a_segment_that_comes_while_the_log_is_read(
    killed: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a broker that rolls: it is in no step, and would stay behind what is cut."""
    price = truncate_run.estimate_truncation

    def slow(*arguments: Any, **named: Any) -> Any:
        (killed / f"txn-0/{329:020d}.log").touch()
        return price(*arguments, **named)

    monkeypatch.setattr(truncate_run, "estimate_truncation", slow)
    refused = eoctl(*TO_311, "--save-plan", "plan.json")
    assert refused.status == 4
    assert f"killed/txn-0: {329:020d}.log came while the log was read" in refused.errors
    assert not Path("plan.json").exists()


def test_a_plan_changes_nothing(killed: Path, eoctl: Callable) -> None:
    """Not even a lock file, nor anything beside the log dir."""
    before = tree_of(killed.parent, directory_times=True)
    assert eoctl(*TO_311).status == 0
    assert difference(before, tree_of(killed.parent, directory_times=True)) == []
    assert not (killed / ".lock").exists()


def test_what_is_done_is_told_with_the_way_back(kafka: Path, eoctl: Callable) -> None:
    before = tree_of(kafka)
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--now", "dir")
    plan = eoctl(*call)
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 0
    assert outcome.text == plan.text.replace("329\tno\n", "329\tyes\n")
    done, (first, *notes) = split_answer(outcome.errors)  # the way back at once, before any row
    assert done[0] == "Done truncated txn-0 from 329 to 311"
    compare = f"eoctl diff {first.split()[2]} shows which records are lost, new or changed"
    assert notes == [*split_answer(plan.errors)[1][:-1], compare]
    journal = journal_of(kafka)
    assert first == f"eoctl undo {journal} undoes it"
    assert sorted(difference(before, tree_of(kafka))) == [
        ".kafka_cleanshutdown: only in the first",
        "recovery-point-offset-checkpoint: mtime_ns, data",
        "replication-offset-checkpoint: mtime_ns, data",
        "txn-0/00000000000000000000.log: mtime_ns, data",
        "txn-0/00000000000000000000.timeindex: mtime_ns, data",
        "txn-0/00000000000000000311.snapshot: only in the second",
        "txn-0/00000000000000000329.snapshot: only in the first",
        "txn-0/leader-epoch-checkpoint: mtime_ns, data",
    ]
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(kafka)) == []
    assert leftovers(kafka) == []


def test_the_steps_are_done_in_their_order(kafka: Path, eoctl: Callable) -> None:
    """Marker, checkpoints, epochs, the last segment first, then what is cut, then the snapshot."""
    outcome = eoctl("truncate", "kafka/rolled-0", "--to-offset", "12", "--output", "jsonl")
    steps = [(row["action"], Path(row["file"]).name) for row in rows_of(outcome, "step")]
    assert steps == [
        ("remove", ".kafka_cleanshutdown"),
        ("replace", "recovery-point-offset-checkpoint"),
        ("replace", "replication-offset-checkpoint"),
        ("replace", "leader-epoch-checkpoint"),
        ("remove", f"{50:020d}.log"),
        ("remove", f"{50:020d}.index"),
        ("remove", f"{50:020d}.timeindex"),
        ("remove", f"{50:020d}.snapshot"),
        ("remove", f"{25:020d}.log"),
        ("remove", f"{25:020d}.index"),
        ("remove", f"{25:020d}.timeindex"),
        ("remove", f"{25:020d}.snapshot"),
        ("remove", f"{60:020d}.snapshot"),
        ("truncate", f"{0:020d}.log"),
        ("truncate", f"{0:020d}.index"),
        ("truncate", f"{0:020d}.timeindex"),
        ("create", f"{10:020d}.snapshot"),
    ]


# --- the target -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "targets",
    [
        (),
        ("--to-hw", "--to-offset", "3"),
        ("--to-leader-epoch", "0", "--to-time", "2026-11-21"),
        ("--to-hw", "--to-offset", "3", "--to-leader-epoch", "0", "--to-time", "1"),
    ],
)
def test_exactly_one_target(targets: tuple[str, ...], killed: Path, eoctl: Callable) -> None:
    outcome = eoctl("truncate", "killed/txn-0", *targets)
    assert outcome.status == 2
    assert "one is needed" in outcome.errors
    assert "try: --to-hw, --to-offset N, --to-leader-epoch E or --to-time TIME" in outcome.errors
    assert not outcome.stdout


# What an independent walk over the batches expects is in `expected_tree`.
CUTS = [
    ("clean", "txn-0", ("--to-offset", "313"), 313),
    ("clean", "txn-0", ("--to-offset", "0"), 0),
    ("clean", "rolled-0", ("--to-offset", "33"), 33),
    ("clean", "rolled-0", ("--to-time", "1795229896797"), 30),
    ("clean", "compacted-0", ("--to-offset", "40"), 40),
    ("clean", "trimmed-0", ("--to-offset", "250"), 250),
    ("clean", "trimmed-0", ("--to-offset", "7"), 7),
    ("clean", "txn-1", ("--to-hw", "--assume-hw", "200"), 200),
    ("crash", "txn-0", ("--to-hw",), 311),
    ("crash", "rolled-0", ("--to-time", "2026-11-21T02:58:16.811Z"), 51),
    ("crash", "many-producers-0", ("--to-offset", "100"), 100),
    ("crash", "trimmed-0", ("--to-hw", "--assume-hw", "25"), 25),
    ("crash", "idem-zstd-0", ("--to-hw", "--assume-hw", "80"), 80),
]


@pytest.mark.parametrize(("state", "name", "target", "offset"), CUTS)
def test_each_kind_of_target(
    state: str,
    name: str,
    target: tuple[str, ...],
    offset: int,
    golden: Callable[[str], Path],
    tmp_path: Path,
    eoctl: Callable,
) -> None:
    """All files but the snapshot at the end are those of an independent truncation."""
    source = golden("kafka-4.3.1") / state
    log_dir = tmp_path / "kafka"
    for path in [*source.iterdir(), *(source / name).iterdir()]:
        if path.is_file():
            copied = log_dir / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)
    before = read_tree(log_dir)
    end, expected = expected_tree(before, name, offset)
    expected.pop(".kafka_cleanshutdown", None)
    single = ("--single-copy", "--output", "jsonl")
    call = ("truncate", log_dir / name, *target, *single)
    old_end = Log(before, name).end_offset
    assert cut(eoctl(*call)) == (offset, old_end, end)
    assert cut(eoctl(*call, "--apply")) == (offset, old_end, end)
    after = read_tree(log_dir)
    after.pop(".lock")
    snapshot = f"{name}/{end:020d}.snapshot"
    assert after.keys() - {snapshot} == expected.keys() - {snapshot}
    assert [each for each in expected if each != snapshot and after[each] != expected[each]] == []
    left = Log(after, name)
    assert left.end_offset == end
    assert (snapshot in after) is (end > log_start_of(after, name, min(left.segments)))
    again = eoctl("truncate", log_dir / name, "--to-offset", offset, *single, "--apply")
    assert cut(again) == (offset, end, end)
    assert not rows_of(again, "step")


def test_a_batch_goes_as_a_whole(killed: Path, eoctl: Callable) -> None:
    outcome = eoctl("truncate", "killed/txn-0", "--to-offset", "313", "--output", "jsonl")
    assert cut(outcome) == (313, 329, 311)
    assert (
        "offset 313 lies inside of the batch with offsets 311 to 317 (position 25555 of"
        " killed/txn-0/00000000000000000000.log): all of that batch goes"
    ) in notes_of(outcome)
    refused = eoctl("truncate", "killed/txn-0", "--to-offset", "313", "--exact")
    assert refused.status == 4
    assert "only whole batches can be removed" in refused.errors
    assert "--to-offset 311, --to-offset 318" in refused.errors
    for offset in (311, 318):
        exact = eoctl(
            "truncate", "killed/txn-0", "--to-offset", offset, "--exact", "--output", "jsonl"
        )
        assert cut(exact) == (offset, 329, offset)


def test_nothing_to_cut(kafka: Path, eoctl: Callable) -> None:
    """Nothing is planned, saved or changed, and the marker stays."""
    before = tree_of(kafka)
    call = ("truncate", "kafka/txn-0", "--to-hw")
    inspect = eoctl(*call, "--save-plan", "plan.json")
    assert inspect.status == 0
    assert inspect.text == table(
        "path | target_offset | log_start_offset | log_end_offset | end_after_restart"
        " | high_watermark | applied",
        "kafka/txn-0 | 329 | 0 | 329 | 329 | 329 | no",
    )
    assert inspect.errors.splitlines()[-2:] == [
        "nothing to truncate: the log ends at 329",
        "there is nothing to truncate: nothing would be changed, and no plan was saved",
    ]
    assert not Path("plan.json").exists()
    above = eoctl("truncate", "kafka/txn-0", "--to-offset", "400", "--output", "jsonl")
    assert cut(above) == (400, 329, 329)
    assert "nothing to truncate: the log ends at 329, below 400" in notes_of(above)
    done = eoctl(*call, "--apply")
    assert (done.status, done.stdout) == (0, inspect.stdout)
    assert done.errors.endswith("there is nothing to truncate: nothing was changed\n")
    assert difference(before, tree_of(kafka)) == []
    assert not Path("kafka.eoctl").exists()


def test_without_a_high_watermark(killed: Path, eoctl: Callable) -> None:
    outcome = eoctl("truncate", "killed/trimmed-0", "--to-hw")
    assert outcome.status == 4
    assert outcome.errors == (
        "eoctl: killed/trimmed-0: its high watermark is unknown: replication-offset-checkpoint "
        "has no line of it\n  try: --assume-hw N, or --to-offset N\n"
    )
    assumed = eoctl(
        "truncate", "killed/trimmed-0", "--to-hw", "--assume-hw", "40", "--output", "jsonl"
    )
    assert cut(assumed) == (40, 300, 40)
    assert "the high watermark is taken to be 40, as given" in notes_of(assumed)
    (price,) = rows_of(assumed, "price")
    assert (price["high_watermark"], price["acknowledged_records_count"]) == (40, 0)


# --- replicas -------------------------------------------------------------------------------------


def test_a_high_watermark_above_the_common_log(diverged: Path, eoctl: Callable) -> None:
    """The two part at 36, and 37 is checkpointed; with the epochs' answers it is 36."""
    call = ("truncate", "broker-1/div-0", "--replica", "broker-2/div-0")
    refused = eoctl(*call, "--to-hw")
    assert refused.status == 4
    assert (
        "broker-1/div-0: its high watermark 37 is above the end of the part in common with "
        "broker-2/div-0: by their leader epochs they diverge at 36"
    ) in refused.errors
    assert "try: --to-offset 36, or --to-leader-epoch E" in refused.errors
    assert eoctl("truncate", "broker-1/div-0", "--to-hw", "--output", "jsonl").status == 0
    known = eoctl(*call, "--to-hw", "--assume-hw", "37", "--output", "jsonl")
    assert cut(known) == (37, 73, 37)
    below = (*call, "--to-leader-epoch", "0", "--output", "jsonl")
    assert eoctl(*below).status == 4  # 36 is below the high watermark, of three replicas
    found = eoctl(*below, "--single-copy")
    assert cut(found) == (36, 73, 36)
    assert (
        "broker-2/div-0: by its leader epochs the two diverge at 36: the target is that instead "
        "of 73"
    ) in notes_of(found)


def test_leader_epochs(diverged: Path, eoctl: Callable) -> None:
    """The end of a known one, of the latest one, and of one that is not known."""
    jsonl = ("--single-copy", "--output", "jsonl")
    assert cut(eoctl("truncate", "broker-2/div-0", "--to-leader-epoch", 0, *jsonl)) == (36, 66, 36)
    assert cut(eoctl("truncate", "broker-2/div-0", "--to-leader-epoch", 1, *jsonl)) == (66, 66, 66)
    refused = eoctl("truncate", "broker-2/div-0", "--to-leader-epoch", 2)
    assert refused.status == 4
    assert "its latest leader epoch is 1, of 2 it knows no end" in refused.errors
    Path("broker-2/div-0/leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 36\n")
    between = eoctl("truncate", "broker-2/div-0", "--to-leader-epoch", 2, *jsonl)
    assert cut(between) == (36, 66, 36)
    assert (
        "leader epoch 2 is unknown here: a replica would get the end of epoch 0, 36"
    ) in notes_of(between)
    Path("broker-2/div-0/leader-epoch-checkpoint").unlink()
    without = eoctl("truncate", "broker-2/div-0", "--to-leader-epoch", 0)
    assert without.status == 4
    assert "knows no leader epochs" in without.errors


def test_other_replicas_would_have_more(diverged: Path, eoctl: Callable) -> None:
    """Below the high watermark, by a replication factor of three and by one that is unknown."""
    call = ("truncate", "broker-1/div-0", "--to-offset", "30", "--output", "jsonl")
    for words in ("has 3 replicas", "has an unknown number of replicas"):
        refused = eoctl(*call)
        assert refused.status == 4
        assert "would end at 30, below its high watermark 37" in refused.errors
        assert words in refused.errors
        assert cut(eoctl(*call, "--single-copy")) == (30, 73, 30)
        shutil.rmtree("broker-1/__cluster_metadata-0", ignore_errors=True)
    elsewhere = eoctl(*call, "--metadata-dir", "broker-2")
    assert elsewhere.status == 4
    assert "has 3 replicas" in elsewhere.errors
    assert eoctl("truncate", "broker-1/div-0", "--to-offset", "37").status == 0
    two_of_three = eoctl(*call, "--metadata-dir", "broker-2", "--all-replicas", "broker-2/div-0")
    assert two_of_three.status == 4


def test_without_a_second_replica_nothing_is_asked(killed: Path, eoctl: Callable) -> None:
    """The metadata says one; without it, or without a high watermark, it may be more."""
    assert eoctl("truncate", "killed/txn-0", "--to-offset", "300").status == 0
    metadata = killed / "__cluster_metadata-0"
    metadata.rename(killed.parent / metadata.name)
    assert eoctl("truncate", "killed/txn-0", "--to-offset", "311").status == 0
    assert eoctl("truncate", "killed/txn-0", "--to-offset", "300").status == 4
    unknown = eoctl("truncate", "killed/trimmed-0", "--to-offset", "200")
    assert unknown.status == 4
    assert "where its high watermark is unknown" in unknown.errors
    given = ("--metadata-dir", metadata.name)
    assert eoctl("truncate", "killed/txn-0", "--to-offset", "300", *given).status == 0
    assert eoctl("truncate", "killed/trimmed-0", "--to-offset", "200", *given).status == 0


def test_all_replicas_in_one_plan(diverged: Path, eoctl: Callable) -> None:
    """Each is cut at the same offset, under the lock of its own log dir; one undo restores all."""
    before = tree_of(diverged)
    others = ("--all-replicas", "broker-2/div-0", "--all-replicas", "broker-3/div-0")
    call = ("truncate", "broker-1/div-0", "--to-offset", "30", *others)
    with held(diverged / "broker-3") as pid:
        refused = eoctl(*call, "--apply")
        assert refused.status == 4
        assert f"process {pid} holds the lock" in refused.errors
    outcome = eoctl(*call, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    rows = rows_of(outcome, "truncation")
    assert [(row["path"], row["log_end_offset"], row["end_after_restart"]) for row in rows] == [
        ("broker-1/div-0", 73, 30),
        ("broker-2/div-0", 66, 30),
        ("broker-3/div-0", 36, 30),
    ]
    logs = [row["file"] for row in rows_of(outcome, "step") if row["file"].endswith(".log")]
    assert logs == [str(Path(row["path"], f"{0:020d}.log").absolute()) for row in rows]
    (price,) = rows_of(outcome, "price")
    assert (price["cut_start_offset"], price["cut_end_offset"]) == (30, 73)
    assert price["acknowledged_records_count"] == 5
    assert [
        (each["path"], each["cut_end_offset"], each["records_count"]) for each in price["replicas"]
    ] == [("broker-2/div-0", 66, 35), ("broker-3/div-0", 36, 5)]
    data = [Path(row["path"], f"{0:020d}.log").read_bytes() for row in rows]
    assert data[0] == data[1] == data[2]
    assert eoctl("undo", journal_of(diverged / "broker-1")).status == 0
    after = tree_of(diverged)
    mine = {name: each for name, each in after.items() if not name.startswith("broker-1.eoctl")}
    assert difference(before, mine) == []


def test_replicas_that_are_none(diverged: Path, eoctl: Callable) -> None:
    """Of another partition, or the same directory under another name."""
    Path("link").mkdir()
    Path("link/div-0").symlink_to(diverged / "broker-1" / "div-0")
    call = ("truncate", "broker-1/div-0", "--to-offset", "30")
    for option in ("--replica", "--all-replicas"):
        other = eoctl(*call, option, "broker-2/calm-0")
        assert other.status == 2
        assert "is no replica of div-0" in other.errors
    for same in ("broker-1/div-0", "link/div-0"):
        twice = eoctl(*call, "--all-replicas", same)
        assert twice.status == 2
        assert "is given twice" in twice.errors
        compared = eoctl(*call, "--replica", same)
        assert compared.status == 2
        assert "broker-1/div-0: is the partition itself" in compared.errors


@pytest.mark.parametrize("options", [(), ("--apply",)])
def test_two_directories_of_one_node_are_no_two_replicas(
    options: tuple[str, ...], diverged: Path, eoctl: Callable
) -> None:
    """A copy of its log dir beside it, say: the other replicas would be left with more."""
    copy_log_dir(diverged / "broker-1", diverged / "copy-of-1")
    copy_log_dir(diverged / "broker-2", diverged / "copy-of-2")
    before = {name: tree_of(diverged / name) for name in ("broker-1", "copy-of-1", "broker-2")}
    call = ("truncate", "broker-1/div-0", "--to-offset", "30", *options)
    for others in (("copy-of-1",), ("broker-3", "copy-of-1"), ("broker-2", "copy-of-2")):
        given = [word for each in others for word in ("--all-replicas", f"{each}/div-0")]
        refused = eoctl(*call, *given)
        assert refused.status == 2
        assert f"{others[-1]}/div-0: is of node {others[-1][-1]}, as broker-" in refused.errors
    for name, tree in before.items():
        assert difference(tree, tree_of(diverged / name)) == []


# --- the price ------------------------------------------------------------------------------------


def test_transactions_that_lose_their_marker_hang(kafka: Path, eoctl: Callable) -> None:
    """A cut between data and marker reopens the transaction, and a note says what that means."""
    outcome = eoctl("truncate", "kafka/txn-0", "--to-offset", "25", "--output", "jsonl")
    (price,) = rows_of(outcome, "price")
    counts = price["transactions_count"]
    rows = price["transactions"]
    reopened = [row for row in rows if row["outcome"] == "reopened"]
    assert counts == {
        "reopened": len(reopened),
        "removed": len(rows) - len(reopened),
        "shortened": 0,
    }
    assert {row["marker_offset"] for row in reopened} == {25, 26}  # the marker at 24 stays
    assert all(row["first_offset"] < 25 for row in reopened)
    assert all(row["first_offset"] >= 25 for row in rows if row["outcome"] == "removed")
    assert price["producers_count"] == len(price["producers"])
    assert price["acknowledged_records_count"] == price["records_count"]
    (note,) = [each for each in notes_of(outcome) if "decides about their data" in each]
    assert note.startswith("2 transactions keep data without a marker")


def test_group_offsets_beyond_the_end(kafka: Path, eoctl: Callable) -> None:
    """From the log dir's own __consumer_offsets, or from where --coordinator-dir says."""
    call = ("truncate", "kafka/txn-1", "--to-offset", "50", "--output", "jsonl")
    ctp = [{"group": "ctp", "offset": 89, "is_pending": False}]

    def groups(*options: str) -> tuple[Any, bool]:
        (price,) = rows_of(eoctl(*call, *options), "price")
        return price["group_offsets"], price["group_offsets_are_complete"]

    assert groups() == (ctp, True)
    elsewhere = kafka.parent / "coordinator"
    elsewhere.mkdir()
    for path in kafka.glob("__consumer_offsets-*"):
        path.rename(elsewhere / path.name)
    assert groups() == (None, False)
    assert groups("--coordinator-dir", "coordinator") == (ctp, True)
    shutil.rmtree(elsewhere / "__consumer_offsets-0")
    assert groups("--coordinator-dir", "coordinator") == (ctp, False)
    shown = eoctl("truncate", "kafka/txn-1", "--to-offset", "50")
    assert "\ngroup_offsets\tunknown\n" in shown.text


def test_what_is_damaged_is_unknown_and_never_zero(kafka: Path, eoctl: Callable) -> None:
    path = kafka / "txn-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[26000] ^= 1  # inside of the batch at 318, behind the cut
    path.write_bytes(data)
    call = ("truncate", "kafka/txn-0", "--to-offset", "311")
    outcome = eoctl(*call, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    (price,) = rows_of(outcome, "price")
    unknown = {name for name, value in price.items() if value is None}
    assert {"producers", "producers_count"} <= unknown
    assert any(" are unknown" in note for note in notes_of(outcome))
    assert "\nproducers_count\tunknown\n" in eoctl(*call).text
    kept = bytearray(data)
    kept[5000] ^= 1  # in what would stay
    path.write_bytes(kept)
    recovery_point = kafka / "recovery-point-offset-checkpoint"
    recovery_point.write_text(re.sub("txn 0 329", "txn 0 0", recovery_point.read_text()))
    refused = eoctl(*call)
    assert refused.status == 4
    assert "the next start of a broker would truncate the log there" in refused.errors
    end = re.search(r"try: --to-offset (\d+), or below", refused.errors)
    assert end is not None
    assert eoctl("truncate", "kafka/txn-0", "--to-offset", end[1]).status == 0


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.share(5)
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("kafka/txn-0", "--to-offset", "-1"), 2, "--to-offset"),
        (("kafka/txn-0", "--to-time", "noon"), 2, "not a time"),
        (("kafka", "--to-hw"), 2, "partitions there, one is needed"),
        (("nowhere", "--to-hw"), 3, "No such file"),
        (("kafka/txn-0", "--to-hw", "--now", "noon"), 2, "not a time"),
        (("kafka/txn-0", "--to-hw", "--metadata-dir", "kafka/txn-0"), 2, "no __cluster_metadata-0"),
        (("kafka/txn-0", "--to-offset", "9", "--apply", "--save-plan", "x"), 2, "one of them"),
        (("kafka/txn-0", "--to-offset", "9", "--apply", "--no-backup"), 2, "--i-accept-the-loss"),
        (("kafka/txn-0", "--to-offset", "9", "--i-accept-the-loss"), 2, "without --no-backup"),
        (("kafka/txn-0", "--to-offset", "9", "--save-plan", "/dev/null"), 3, "exists"),
        (("kafka/txn-0", "--to-offset", "9", "--save-plan", "no/plan.json"), 3, "No such file"),
        (("kafka/__cluster_metadata-0", "--to-offset", "9"), 4, "is never changed"),
        (("kafka/__cluster_metadata-0", "--to-offset", "9", "--apply"), 4, "is never changed"),
        (
            ("kafka/txn-0", "--to-offset", "9", "--backup-dir", "kafka", "--apply"),
            4,
            "in a log dir",
        ),
    ],
)
def test_what_is_wrong_or_refused(
    arguments: tuple[str, ...], status: int, words: str, kafka: Path, eoctl: Callable
) -> None:
    before = tree_of(kafka.parent)
    outcome = eoctl("truncate", *arguments)
    assert outcome.status == status, outcome.errors
    assert words in outcome.errors
    assert "Traceback" not in outcome.errors
    assert difference(before, tree_of(kafka.parent)) == []


def test_a_held_lock_refuses(kafka: Path, eoctl: Callable) -> None:
    """Status 4, the holder's process id, nothing touched; a look is allowed."""
    before = tree_of(kafka.parent, directory_times=True)
    with held(kafka) as pid:
        before = tree_of(kafka.parent, directory_times=True)
        outcome = eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")
        assert outcome.status == 4
        assert f"process {pid} holds the lock; nothing was touched" in outcome.errors
        assert difference(before, tree_of(kafka.parent, directory_times=True)) == []
        inspect = eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--now", "dir")
        assert inspect.status == 0
    assert eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--apply").status == 0


def test_a_held_lock_refuses_by_whatever_name(kafka: Path, eoctl: Callable) -> None:
    """A link to the partition from elsewhere, where no lock is held."""
    Path("elsewhere").mkdir()
    Path("elsewhere/txn-0").symlink_to(kafka / "txn-0")
    before = tree_of(kafka)
    with held(kafka):
        call = ("truncate", "elsewhere/txn-0", "--to-offset", "311", "--single-copy", "--apply")
        assert eoctl(*call).status == 4
    assert difference(before, tree_of(kafka)) == []


def tight(patch: pytest.MonkeyPatch, kafka: Path) -> None:
    patch.setattr(backups, "free_bytes", lambda _: 1 << 20)


def other_disk(patch: pytest.MonkeyPatch, kafka: Path) -> None:
    inside = lambda path: int(Path(path) == kafka or kafka in Path(path).parents)  # noqa: E731
    patch.setattr(backups, "_device_of", inside)


def other_user(patch: pytest.MonkeyPatch, kafka: Path) -> None:
    patch.setattr(os, "geteuid", lambda: kafka.stat().st_uid + 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (tight, "bytes are needed on this disk, 1048576 are free"),
        (other_disk, "is on another disk than the log dir"),
        (other_user, "could not get the owner and group of their directory"),
    ],
)
def test_what_is_refused_beforehand(
    make: Callable[[pytest.MonkeyPatch, Path], None],
    words: str,
    kafka: Path,
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too little room, a default place on another disk, an owner that cannot be kept."""
    (kafka / ".lock").touch()
    before = tree_of(kafka.parent)
    with monkeypatch.context() as patch:
        make(patch, kafka)
        outcome = eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")
    assert outcome.status == 4
    assert words in outcome.errors
    assert "try: " in outcome.errors
    assert not outcome.stdout
    assert difference(before, tree_of(kafka.parent)) == []


# --- interrupted ----------------------------------------------------------------------------------


def test_after_an_interrupt_nothing_else_is_done(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every changing command names both ways out, and the plan of another partition is no way."""
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")
    (kafka / "txn-1" / "00000000000000000000.index").write_bytes(b"")
    interrupted = leave_unfinished(eoctl, monkeypatch, *call)
    journal = journal_of(kafka)
    ways = f"eoctl apply {journal} completes it, eoctl undo {journal} undoes it"
    assert interrupted.errors == f"eoctl: interrupted: the change is unfinished: {ways}\n"
    assert not interrupted.stdout
    assert (kafka / ".eoctl-unfinished").read_text() == f"{journal}\n"
    Path("lines").write_text("one\n")
    assert eoctl("truncate", "kafka/txn-1", "--to-offset", "0", "--save-plan", "other").status == 0
    before = tree_of(kafka, directory_times=True)
    for other in (
        ("truncate", "kafka/txn-0", "--to-offset", "300", "--apply"),
        ("truncate", "kafka/txn-1", "--to-offset", "311", "--apply"),
        ("rebuild", "kafka/txn-1", "--apply"),
        ("recover-state", "kafka/txn-0", "--apply"),
        ("produce", "kafka/plain-0", "lines", "--apply"),
        ("apply", "other"),
    ):
        outcome = eoctl(*other)
        assert outcome.status == 4, (other, outcome.errors)
        assert "an earlier change has not been finished; nothing was touched" in outcome.errors
        assert f"eoctl apply {journal}" in outcome.errors
        assert f"eoctl undo {journal}" in outcome.errors
        assert difference(before, tree_of(kafka, directory_times=True)) == []


def test_the_same_again_completes_it(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], Path]
) -> None:
    """With the result of a run that was not interrupted, and one journal that undoes all."""
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")
    before = tree_of(kafka)
    assert eoctl(*call).status == 0
    journal = journal_of(kafka)
    wanted = {name: each.data for name, each in tree_of(kafka).items()}
    assert eoctl("undo", journal).status == 0
    assert eoctl("journal", "prune", "kafka", "--apply").status == 0
    leave_unfinished(eoctl, monkeypatch, *call)
    again = eoctl(*call)
    journal = journal_of(kafka)
    assert again.status == 0
    assert again.text.splitlines()[1] == "kafka/txn-0\t311\t0\t311\t311\t311\tyes"
    assert again.errors.splitlines()[0] == (
        f"completed what an earlier run began: eoctl undo {journal} undoes it"
    )
    assert {name: each.data for name, each in tree_of(kafka).items()} == wanted
    assert leftovers(kafka) == []
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(kafka)) == []


@pytest.mark.parametrize("method", ["link", "open_new", "write", "fsync_dir"])
def test_an_interrupt_before_the_first_change_leaves_all_as_it_was(
    method: str, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no journal; nothing is unfinished."""
    before = tree_of(kafka)
    with monkeypatch.context() as patch:
        interrupt(patch, method)
        assert eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--apply").status == 130
    assert difference(before, tree_of(kafka)) == []
    assert leftovers(kafka) == []
    assert not list(Path("kafka.eoctl").glob("*/journal"))
    assert eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--apply").status == 0


# --- no backup, full disks, narrow terminals ------------------------------------------------------


def test_without_a_backup_there_is_no_way_back(kafka: Path, eoctl: Callable) -> None:
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--apply", "--no-backup")
    outcome = eoctl(*call, "--i-accept-the-loss")
    assert outcome.status == 0
    journal = journal_of(kafka)
    assert sorted(path.name for path in journal.iterdir()) == ["journal", "plan.json"]
    assert outcome.errors.startswith(
        f"applied without a backup: it cannot be undone; its journal is {journal}\n"
    )
    before = tree_of(kafka)
    refused = eoctl("undo", journal)
    assert refused.status == 4
    assert "was applied without a backup, so it cannot be undone" in refused.errors
    assert difference(before, tree_of(kafka)) == []


def test_the_way_back_is_told_whoever_reads_the_rows(kafka: Path) -> None:
    """A full disk is status 3 and a closed pipe 0, and the change is done."""
    with Path("/dev/full").open("wb") as full:
        done = run_program(
            "truncate", "kafka/txn-0", "--to-offset", "311", "--apply", stdout=full,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    assert done.returncode == 3
    undo = f"eoctl undo {journal_of(kafka)} undoes it".encode()
    assert undo in done.stderr
    assert b"standard output: No space left" in done.stderr
    closed = in_a_closed_pipe("truncate", "kafka/txn-1", "--to-offset", "200", "--apply")
    assert closed.returncode == 0
    assert b"undoes it" in closed.stderr
    assert b"Traceback" not in closed.stderr
    assert len(list(Path("kafka.eoctl").iterdir())) == 2


def test_names_that_are_no_text(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Bytes that are not UTF-8 in a path, under LC_ALL=C: plan, journal and undo keep them."""
    place = tmp_path / os.fsdecode(b"k\xff\xc3\xa4")
    shutil.copytree(golden("kafka-4.3.1") / "crash", place)
    before = tree_of(place)
    environment = {"LC_ALL": "C"}

    def call(*arguments: Any) -> subprocess.CompletedProcess[bytes]:
        done = run_program(*arguments, capture_output=True, environment=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done

    plan = tmp_path / "plan.json"
    call("truncate", place / "txn-0", "--to-hw", "--save-plan", plan)
    assert json.loads(plan.read_bytes())["log_dirs"] == [str(place)]
    applied = call("apply", plan)
    (journal,) = tmp_path.glob("*.eoctl/*")
    assert f"eoctl undo {pasted(str(journal))} undoes it" in os.fsdecode(applied.stderr)
    assert call("journal", "show", journal).stdout.count(b"k\\udcff") == 4
    call("undo", journal)
    assert difference(before, tree_of(place)) == []


def test_it_fits_80_columns(kafka: Path) -> None:
    """On a terminal what answers is there, whatever the width."""
    shown = in_80_columns("truncate", "kafka/txn-0", "--to-offset", "311")
    assert "recovery.log_bytes" in shown
    assert re.search(r"txn-0 +311 +329 +311 +no", shown)


def test_other_options_reach_the_plan(kafka: Path, eoctl: Callable) -> None:
    """The clock of expiry, a place for the backup, the vouching for a stopped broker."""
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--output", "jsonl")
    expired = eoctl(*call, "--now", "2030-01-01", "--producer-expiry-ms", "1000")
    assert cut(expired) == (311, 329, 311)
    assert "now is 2030-01-01 00:00:00 UTC (as given)" in notes_of(expired)
    Path("place").mkdir()
    done = eoctl(*call, "--apply", "--backup-dir", "place", "--broker-is-stopped")
    assert done.status == 0, done.errors
    (journal,) = Path("place").iterdir()
    assert same_ids(notes_of(done)[0]) == f"eoctl undo {Path.cwd()}/place/ID undoes it"
    assert eoctl("undo", journal).status == 0


def test_a_shorter_replica_hides_no_other_one(diverged: Path, eoctl: Callable) -> None:
    """Nothing is cut of the named one, but of another: the third would be left with more."""
    call = ("truncate", "broker-3/div-0", "--to-offset", "36", "--all-replicas", "broker-1/div-0")
    refused = eoctl(*call)
    assert refused.status == 4
    assert "broker-1/div-0: would end at 36, below its high watermark 37" in refused.errors
    assert eoctl(*call, "--all-replicas", "broker-2/div-0").status == 0


def test_an_assumed_high_watermark_is_no_licence(diverged: Path, eoctl: Callable) -> None:
    """The checkpointed one is a lower bound, whatever somebody assumes."""
    call = ("truncate", "broker-2/div-0", "--to-offset", "10", "--assume-hw", "0")
    assert eoctl(*call).status == 4
    rows = rows_of(eoctl(*call, "--single-copy", "--output", "jsonl"), "price")
    assert rows[0]["acknowledged_records_count"] == 24  # of 26 offsets, two are of markers


def test_a_resumed_run_says_so_whatever_its_target_means_now(
    golden: Callable[[str], Path],
    tmp_path: Path,
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An epoch that was skipped is known no more once the later one is cut."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "tv2-clean", tmp_path / "kafka")
    partition = log_dir / "__transaction_state-0"
    call = ("truncate", partition, "--to-leader-epoch", "3", "--apply")
    leave_unfinished(eoctl, monkeypatch, *call)
    outcome = eoctl(*call)
    assert outcome.status == 0
    assert (
        f"completed what an earlier run began: eoctl undo {journal_of(log_dir)}" in outcome.errors
    )
