"""Each command that changes a log dir prints one call that takes it back, and that does it.

Right after the command, to byte, mode and time; what prints no such call says so before it begins.
"""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.changes import interrupt, notes_of, rows_of
from tests.crash.commands import CHANGES, LOG_DIR_NAMES
from tests.crash.trees import difference, leftovers, tree_of
from tests.kafka.broker import copy_log_dir
from tests.writing import NEW_TOPIC, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.trees import Entry
    from tests.running import Outcome

    Cli = Callable[..., Outcome]

LINES = "".join(f"a line, the number {n}\n" for n in range(400))
SMALL = ("--segment-bytes", "1500", "--batch-records", "9")
TXN = ("--transactional-id", "ctp", "--txn-records", "60")
FILTER = (
    "--exec",
    "cat",
    "--format",
    "jsonl",
    "--bytes",
    "base64",
    "--group",
    "new",
    "--transactional-id",
    "ctp",
    "--txn-records",
    "40",
)
WORKS = ("kafka", "killed", "empty", "linked")


class Situation(NamedTuple):
    """A call, in a directory with the log dirs `kafka`, `killed` and `empty`, and `lines`.

    `first` are calls before it, whose changes stay; `log_dir` is what it changes.
    """

    call: str
    log_dir: str = "kafka"
    first: tuple[str, ...] = ()


NEW = " ".join(NEW_TOPIC)
APPENDS = {
    "produce": Situation("produce kafka/plain-0 lines --apply --single-copy"),
    "produce over segments": Situation(
        f"produce kafka/txn-0 lines --apply --single-copy {' '.join(SMALL)}"
    ),
    "produce after a crash": Situation(
        "produce killed/txn-0 lines --apply --single-copy", log_dir="killed"
    ),
    "produce to a new partition": Situation(
        f"produce empty/t-0 lines --apply {NEW} {' '.join(SMALL)}", log_dir="empty"
    ),
    "produce transactions": Situation(
        "produce kafka/txn-0 lines --apply --single-copy --txn-records 7 --abort-every 3"
    ),
    "produce with a transactional id": Situation(
        f"produce kafka/txn-0 lines --apply {' '.join(TXN)}"
    ),
    "produce with a transactional id after a crash": Situation(
        f"produce killed/txn-0 lines --apply {' '.join(TXN)}", log_dir="killed"
    ),
    "produce with a transactional id to a new log dir": Situation(
        f"produce empty/t-0 lines --apply {NEW} {' '.join(TXN)}", log_dir="empty"
    ),
    "produce to a topic": Situation(
        f"produce empty lines --topic many --partitions 3 --apply {NEW}", log_dir="empty"
    ),
    "produce a session": Situation(
        "produce kafka/plain-0 lines --producer-session session --apply --single-copy"
    ),
    "produce more of a session": Situation(
        "produce kafka/plain-0 more --producer-session session --apply --single-copy",
        first=("produce kafka/plain-0 lines --producer-session session --apply --single-copy",),
    ),
    "produce with a lease": Situation(
        "produce empty/t-0 lines --lease app"
        f" --apply {NEW}",
        log_dir="empty",
        first=("lease-pid acquire empty --app-id app --expiry-ms 1000000",),
    ),
    "produce into files with other names": Situation(
        "produce linked/plain-0 lines --apply --single-copy", log_dir="linked"
    ),
    "copy": Situation(f"copy kafka/txn-0 empty/txn-0 --apply {NEW}", log_dir="empty"),
    "copy a topic": Situation(f"copy kafka empty --topic txn --apply {NEW}", log_dir="empty"),
    "copy to what is there": Situation(
        "copy kafka/plain-0 killed/txn-1 --apply --single-copy", log_dir="killed"
    ),
    "copy more": Situation(
        f"copy kafka/plain-0 empty/plain-0 --apply {NEW}",
        log_dir="empty",
        first=(
            f"copy kafka/plain-0 empty/plain-0 --apply {NEW}",
            "produce kafka/plain-0 lines --apply --single-copy",
        ),
    ),
    "txn run": Situation(
        f"txn run kafka/txn-0 kafka/txn-1 --to kafka/ctp-out-0 {' '.join(FILTER)} --apply"
    ),
    "txn run after a crash": Situation(
        f"txn run killed/txn-0 --to killed/ctp-out-0 {' '.join(FILTER)} --apply", log_dir="killed"
    ),
    "txn complete": Situation("txn complete killed --apply", log_dir="killed"),
    "consume for a group": Situation("consume kafka/plain-0 --group new --apply"),
    "consume for a group after a crash": Situation(
        "consume killed/plain-0 --group new --max-messages 3 --apply", log_dir="killed"
    ),
    "a saved plan": Situation(
        "apply plan", first=("truncate kafka/txn-0 --to-offset 311 --save-plan plan",)
    ),
    "truncate over files with other names": Situation(
        "truncate linked/txn-0 --to-offset 311 --apply", log_dir="linked"
    ),
}  # fmt: skip


@pytest.fixture
def place(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Situation], Path]:
    """Makes the working directory of a situation: what its words name."""

    def make(situation: Situation) -> Path:
        words = " ".join((situation.call, *situation.first))
        if "kafka" in words:
            copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
        if "linked" in words:
            copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "linked")
            shutil.copytree(tmp_path / "linked", tmp_path / "other", copy_function=_link)
        if "killed" in words:
            copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "killed")
        make_log_dir(tmp_path / "empty")
        (tmp_path / "lines").write_text(LINES)
        (tmp_path / "more").write_text(LINES + LINES)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return make


def _link(source: str, target: str) -> None:
    from pathlib import Path

    Path(target).hardlink_to(source)


def undo_call(outcome: Outcome) -> list[str]:
    """The one call that a command has printed."""
    found = re.findall(r"eoctl (undo [^\n]*?) undoes (?:it|all of it)", outcome.errors)
    assert len(set(found)) == 1, outcome.errors
    return shlex.split(found[0])


def state_of(root: Path) -> dict[str, Entry]:
    """All but the places of journals; sessions are in one, too."""
    found = tree_of(root, directory_times=True)
    return {
        name: each
        for name, each in found.items()
        if not re.match(r"[^/]+\.eoctl(/[0-9]{8}T.*)?$", name) and name not in (".", *WORKS)
    } | {name: found[name]._replace(mtime_ns=0) for name in WORKS if name in found}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", APPENDS)
def test_what_was_appended_is_taken_back(
    name: str, place: Callable[[Situation], Path], eoctl: Cli
) -> None:
    situation = APPENDS[name]
    root = place(situation)
    for each in situation.first:
        outcome = eoctl(*shlex.split(each))
        assert outcome.status == 0, outcome.errors
    before = state_of(root)
    outcome = eoctl(*shlex.split(situation.call))
    assert outcome.status == 0, outcome.errors
    assert difference(before, state_of(root)) != []
    call = undo_call(outcome)
    assert eoctl(*call, "--dry-run").status == 0
    undone = eoctl(*call)
    assert undone.status == 0, undone.errors
    # The directory of copies' sessions stays, empty.
    found = [each for each in difference(before, state_of(root)) if "copies: " not in each]
    assert found == []
    assert leftovers(root / situation.log_dir) == []
    # And once more: nothing is left of it that would stand in the way.
    again = eoctl(*shlex.split(situation.call))
    assert again.status == 0, again.errors
    assert eoctl(*undo_call(again)).status == 0
    found = [each for each in difference(before, state_of(root)) if "copies: " not in each]
    assert found == []


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_planned_is_taken_back(
    name: str, golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    change, log_dir = CHANGES[name], tmp_path / "log-dir"
    clean = golden("kafka-4.3.1") / "clean"
    for each in (change.partition, *change.beside):
        shutil.copytree(clean / each, log_dir / each)
    for each in LOG_DIR_NAMES:
        shutil.copy2(clean / each, log_dir / each)
    change.damage(log_dir / change.partition)
    before = tree_of(tmp_path / "log-dir", directory_times=True)
    command, *rest = (each.format(root=tmp_path) for each in change.arguments)
    path = log_dir if change.of_log_dir else log_dir / change.partition
    outcome = eoctl(*command.split(), path, *rest, "--apply")
    assert outcome.status == 0, outcome.errors
    assert eoctl(*undo_call(outcome)).status == 0
    after = tree_of(tmp_path / "log-dir", directory_times=True)
    assert [each for each in difference(before, after) if each != ".: mtime_ns"] == []


def test_a_rebuild_of_several_partitions_is_one_call(kafka: Path, eoctl: Cli) -> None:
    """It has a journal for each, as it comes to them; the newest is undone first."""
    for number in (0, 1):
        (kafka / f"txn-{number}/{0:020d}.timeindex").write_bytes(b"?" * 24)
    before = tree_of(kafka, directory_times=True)
    outcome = eoctl("rebuild", kafka, "--apply")
    assert outcome.status == 0, outcome.errors
    assert eoctl(*undo_call(outcome)).status == 0
    after = tree_of(kafka, directory_times=True)
    assert [each for each in difference(before, after) if each != ".: mtime_ns"] == []


def test_a_lease_is_not_taken_back_and_says_so(place: Callable[..., Path], eoctl: Cli) -> None:
    """An id that was given out is used, whatever the log dir says."""
    place(Situation("", log_dir="empty"))
    for each in ("acquire", "renew", "release", "expire"):
        assert "cannot be undone" in " ".join(eoctl("lease-pid", each, "--help").text.split())
    outcome = eoctl("lease-pid", "acquire", "empty", "--app-id", "app", "--expiry-ms", 1000)
    assert outcome.status == 0
    assert "eoctl undo" not in outcome.errors


# --- one after the other, and what was interrupted ------------------------------------------------


def test_the_newest_comes_first(place: Callable[..., Path], eoctl: Cli) -> None:
    root = place(APPENDS["produce"])
    trees, calls = [state_of(root)], []
    for each in ("plain-0", "txn-0", "plain-0"):
        outcome = eoctl("produce", f"kafka/{each}", "lines", "--apply", "--single-copy")
        calls.append(undo_call(outcome))
        trees.append(state_of(root))
    refused = eoctl(*calls[0])
    assert refused.status == 4
    assert "a later plan for the same log dir is applied" in refused.errors
    trees.pop()
    while calls:
        assert eoctl(*calls.pop()).status == 0
        assert difference(trees.pop(), state_of(root)) == []


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "method", "call"),
    [
        ("produce over segments", "fsync", 9),
        ("produce after a crash", "rename", 5),
        ("copy", "write", 6),
        ("txn run", "fsync", 12),
        ("txn complete", "write", 6),
        ("produce to a topic", "rename", 5),
        ("produce more of a session", "write", 6),
    ],
)
def test_what_was_interrupted_names_both_ways(
    name: str,
    method: str,
    call: int,
    place: Callable[[Situation], Path],
    eoctl: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Undo takes it back; or it is completed, and the next command goes on."""
    situation = APPENDS[name]
    root = place(situation)
    for each in situation.first:
        assert eoctl(*shlex.split(each)).status == 0
    before = state_of(root)
    for way in ("undo", "apply", "again"):
        with monkeypatch.context() as patch:
            interrupt(patch, method, call=call)
            patch.setattr("recovery.changes.append_journal.AppendJournal.close", lambda _: None)
            eoctl(*shlex.split(situation.call))
        if not leftovers(root / situation.log_dir):
            assert difference(before, state_of(root)) == []
            pytest.skip("it has not so many calls")
        refused = eoctl("lease-pid", "expire", root / situation.log_dir, "--single-copy")
        assert refused.status == 4, refused.errors
        ways = re.search(
            r"eoctl (apply \S+) completes it, eoctl (undo \S+) undoes it", refused.errors
        )
        assert ways is not None, refused.errors
        if way == "undo":
            assert eoctl(*ways[2].split()).status == 0
            found = difference(before, state_of(root))
            assert [each for each in found if "copies: " not in each] == []
            continue
        if way == "apply":
            assert eoctl(*ways[1].split()).status == 0
        outcome = eoctl(*shlex.split(situation.call))
        assert outcome.status == 0, outcome.errors
        assert ("was interrupted" in outcome.errors) == (way == "again")
        undone = eoctl("undo", "--with-later", *ways[2].split()[1:])
        assert undone.status == 0, undone.errors
        found = difference(before, state_of(root))
        assert [each for each in found if "copies: " not in each] == []


# --- what is unfinished is told -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["kafka", "kafka/plain-0"])
def test_check_tells_of_an_unfinished_change(
    path: str, place: Callable[..., Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = place(APPENDS["produce"])
    with monkeypatch.context() as patch:
        interrupt(patch, "truncate")
        assert eoctl("truncate", "kafka/txn-0", "--to-offset", 311, "--apply").status == 130
    outcome = eoctl("check", path, "--output", "jsonl", "--fail-on", "error")
    assert outcome.status == 1
    (row,) = [each for each in rows_of(outcome, "finding") if each["check_id"] == "JNL-2"]
    assert (row["severity"], row["path"]) == ("error", str(root / "kafka/.eoctl-unfinished"))
    assert re.search(r"eoctl apply \S+ completes it, eoctl undo \S+ undoes it", row["message"])
    assert eoctl(*row["fix"].split()[1:]).status == 0
    outcome = eoctl("check", path, "--output", "jsonl")
    assert "JNL-2" not in outcome.text


def test_a_journal_that_is_applied_and_not_closed(
    kafka: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that it was applied, while every change was refused."""
    with monkeypatch.context() as patch:
        interrupt(patch, "unlink", name=".eoctl-unfinished")
        assert eoctl("truncate", "kafka/txn-0", "--to-offset", 311, "--apply").status == 130
    outcome = eoctl("journal", "list", kafka, "--output", "jsonl")
    (row,) = rows_of(outcome, "journal")
    assert row["status"] == "unfinished"
    (note,) = notes_of(outcome)
    ways = re.search(r"eoctl (apply \S+) completes it, eoctl undo \S+ undoes it", note)
    assert ways is not None, note
    assert eoctl(*ways[1].split()).status == 0
    (row,) = rows_of(eoctl("journal", "list", kafka, "--output", "jsonl"), "journal")
    assert row["status"] == "applied"


@pytest.mark.parametrize(
    "call", ["txn complete killed --apply", "produce killed/plain-0 lines --apply --single-copy"]
)
def test_closing_the_run_of_another_command_is_said(
    call: str, place: Callable[..., Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(APPENDS["produce after a crash"])
    with monkeypatch.context() as patch:
        patch.setattr("recovery.changes.append_journal.AppendJournal.close", lambda _: None)
        eoctl("txn", "run", "killed/txn-0", "--to", "killed/ctp-out-0", *FILTER, "--apply")
    outcome = eoctl(*shlex.split(call))
    assert outcome.status == 0, outcome.errors
    assert "an earlier txn-run was interrupted. Its records stay" in outcome.errors


def test_what_a_broker_went_on_with_is_not_taken_back(
    place: Callable[..., Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed, and a broker has run: its files stay, and both ways say so."""
    root = place(APPENDS["produce"])
    with monkeypatch.context() as patch:
        patch.setattr("recovery.changes.append_journal.AppendJournal.close", lambda _: None)
        assert eoctl(*shlex.split(APPENDS["produce"].call)).status == 0
    (root / "kafka/recovery-point-offset-checkpoint").write_text("0\n0\n")
    (journal,) = (root / "kafka.eoctl").iterdir()
    before = state_of(root)
    refused = eoctl("undo", journal)
    assert (refused.status, "as by a broker that ran" in refused.errors) == (4, True)
    assert difference(before, state_of(root)) == []
    outcome = eoctl("apply", journal)
    assert outcome.status == 0, outcome.errors
    assert "cannot be undone" in outcome.errors
    assert eoctl("undo", journal).status == 4
    assert eoctl(*shlex.split(APPENDS["produce"].call)).status == 0
