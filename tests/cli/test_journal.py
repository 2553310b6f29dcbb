"""`eoctl journal`: what is kept, what it says, and what may go; and the examples of the man pages."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from crc32c import crc32c

from storage.files.fsio import FileSystem
from tests.changes import (
    PLAN_ID,
    in_80_columns,
    in_a_closed_pipe,
    interrupt,
    journal_of,
    leave_unfinished,
    notes_of,
    rows_of,
    table,
    unpacked,
)
from tests.cli.test_cli import examples, matches
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

TRUNCATE = ("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")
FURTHER = ("truncate", "kafka/txn-1", "--to-offset", "200")
LIST = "plan_id | status | command | applied_at_ms | steps | kept_bytes | path"
DAY_NS = 86_400_000_000_000


@pytest.fixture
def journal(kafka: Path, eoctl: Callable) -> Path:
    """That of a truncation of kafka/txn-0."""
    assert eoctl(*TRUNCATE).status == 0
    return journal_of(kafka)


def listed(eoctl: Callable[..., Outcome], *paths: Any) -> list[tuple[str, str | None]]:
    """Status and command of what `list` finds."""
    rows = rows_of(eoctl("journal", "list", *paths, "--output", "jsonl"))
    return [(row["status"], row["command"]) for row in rows]


# --- list, show -----------------------------------------------------------------------------------


def backups_bytes(journal: Path) -> int:
    """The contents of the backups, in every file system and below a path of any length."""
    backups = [path for path in journal.iterdir() if path.name not in ("journal", "plan.json")]
    return sum(path.stat().st_size for path in backups)


def test_list_as_a_whole(journal: Path, kafka: Path, eoctl: Callable) -> None:
    """In each format; by the log dir, by the place, and by the journal itself."""
    rows = eoctl("journal", "list", "kafka", "--output", "jsonl")
    assert rows.status == 0
    assert [json.loads(line)["message"].split()[0] for line in rows.errors.splitlines()] == [
        "Changes", "Next",
    ]  # fmt: skip
    (row,) = rows_of(rows)
    assert row == {
        "kind": "journal",
        "plan_id": journal.name,
        "status": "applied",
        "command": "truncate",
        "applied_at_ms": row["applied_at_ms"],
        "steps": 8,
        "kept_bytes": row["kept_bytes"],
        "path": str(journal),
    }
    assert abs(row["applied_at_ms"] - journal.stat().st_mtime_ns // 1_000_000) < 60_000
    assert row["kept_bytes"] == backups_bytes(journal)
    assert unpacked(eoctl("journal", "list", "kafka", "--output", "msgpack")) == [row]
    text = table(LIST, " | ".join(str(value) for name, value in row.items() if name != "kind"))
    for paths in (
        ("kafka",), ("kafka/",), (kafka,), ("kafka.eoctl",), (journal,), (journal / "journal",),
        (journal / "plan.json",), ("kafka", "kafka.eoctl", journal),
    ):  # fmt: skip
        outcome = eoctl("journal", "list", *paths)
        assert (outcome.status, outcome.text) == (0, text)
        assert outcome.errors.startswith("Changes 1 journal: 1 applied; ")


def test_show_as_a_whole(journal: Path, kafka: Path, eoctl: Callable) -> None:
    """What each file was, is, and where its old bytes are."""
    zero, checkpoint = f"{0:020d}", "offset-checkpoint"
    steps = [
        ("remove", "kafka/.kafka_cleanshutdown", 31, 0, "link"),
        ("replace", f"kafka/recovery-point-{checkpoint}", 415, 415, "link"),
        ("replace", f"kafka/replication-{checkpoint}", 415, 415, "link"),
        ("replace", "txn-0/leader-epoch-checkpoint", 14, 8, "link"),
        ("remove", f"txn-0/{329:020d}.snapshot", 884, 0, "link"),
        ("truncate", f"txn-0/{zero}.log", 27718, 25555, "cut"),
        ("truncate", f"txn-0/{zero}.timeindex", 492, 480, "cut"),
        ("replace", f"txn-0/{311:020d}.snapshot", None, 792, "none"),
    ]
    expected = [
        {
            "kind": "journal_step",
            "action": action,
            "file": file,
            "state": "after",
            "before_bytes": before,
            "after_bytes": after,
            "backup": backup,
            "path": f"{journal}/{number:05d}-{Path(file).name}"
            if backup != "none"
            else str(kafka / file),
            "plan_id": journal.name,
        }
        for number, (action, file, before, after, backup) in enumerate(steps)
    ]
    rows = eoctl("journal", "show", "kafka", "--output", "jsonl")
    assert (rows.status, rows.errors) == (0, "")
    assert rows_of(rows) == expected
    assert unpacked(eoctl("journal", "show", "kafka", "--output", "msgpack")) == expected
    text = eoctl("journal", "show", journal)
    assert text.text == table(
        " | ".join([*expected[0]][1:]),
        *(
            " | ".join("unknown" if value is None else str(value) for value in [*row.values()][1:])
            for row in expected
        ),
    )
    kept = {Path(str(row["path"])).name: row for row in expected if row["backup"] != "none"}
    assert {path.name for path in journal.iterdir()} == {"journal", "plan.json", *kept}
    assert (journal / f"00005-{zero}.log").stat().st_size == 2163
    assert eoctl("undo", journal).status == 0
    assert {row["state"] for row in rows_of(eoctl("journal", "show", journal, "--output", "jsonl"))} == {
        "before"
    }  # fmt: skip


def test_states_of_files(kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was interrupted when it set the time of what it had cut, then touched."""
    with monkeypatch.context() as patch:
        interrupt(patch, "truncate", call=2)
        assert eoctl(*TRUNCATE).status == 130

    def states() -> list[str]:
        rows = rows_of(eoctl("journal", "show", "kafka", "--output", "jsonl"))
        return [row["state"] for row in rows]

    assert states() == ["after"] * 6 + ["before"] * 2
    os.truncate(kafka / "txn-0" / f"{0:020d}.timeindex", 12)
    (kafka / "replication-offset-checkpoint").write_text("0\n0\n")
    found = states()
    assert found[2] == "changed"
    assert found[6] == "changed"


def test_every_status(kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing to abandoned, unfinished, applied, undoing, undone and damaged."""
    assert listed(eoctl, "kafka") == []
    leave_unfinished(eoctl, monkeypatch, *TRUNCATE)
    assert listed(eoctl, "kafka") == [("unfinished", "truncate")]
    journal = journal_of(kafka)
    assert eoctl("apply", journal).status == 0
    assert listed(eoctl, "kafka") == [("applied", "truncate")]
    leave_unfinished(eoctl, monkeypatch, "undo", journal)
    assert listed(eoctl, "kafka") == [("undoing", "truncate")]
    assert eoctl("undo", journal).status == 0
    assert listed(eoctl, "kafka") == [("undone", "truncate")]
    data = (journal / "journal").read_bytes()
    (journal / "journal").write_bytes(data[:100])
    assert listed(eoctl, "kafka") == [("damaged", None)]
    (journal / "journal").unlink()
    assert listed(eoctl, "kafka") == [("abandoned", None)]
    shown = eoctl("journal", "show", "kafka")
    assert shown.status == 0
    assert shown.errors == f"{journal}: its run ended before anything was changed\n"


def test_a_damaged_journal(journal: Path, eoctl: Callable) -> None:
    """Status 1, with where and what; every other one is shown nevertheless."""
    assert eoctl("truncate", "kafka/txn-1", "--to-offset", "200", "--apply").status == 0
    data = bytearray((journal / "journal").read_bytes())
    data[len(data) // 2] ^= 1
    (journal / "journal").write_bytes(data)
    for action in ("list", "show"):
        outcome = eoctl("journal", action, "kafka", "--output", "jsonl")
        assert outcome.status == 1
        if action == "show":
            assert any(f"{journal}/journal: position" in note for note in notes_of(outcome))
            assert any("the journal is damaged [JNL-1]" in note for note in notes_of(outcome))
            assert {row["file"].split("/")[0] for row in rows_of(outcome)} == {"kafka", "txn-1"}
    assert [status for status, _ in listed(eoctl, "kafka")] == ["damaged", "applied"]


@pytest.mark.exhaustive
def test_a_flipped_bit_is_never_believed(journal: Path, kafka: Path, eoctl: Callable) -> None:
    """Anywhere in the journal: it is damaged, or at its end, as if that had not been written."""
    good = (journal / "journal").read_bytes()
    after = tree_of(kafka)
    status_bytes = len(msgpack.packb([msgpack.packb({"entry": "applied"}), 1 << 31]))
    seen = set()
    for pos in range(0, len(good), 7):
        data = bytearray(good)
        data[pos] ^= 1 << pos % 8
        (journal / "journal").write_bytes(data)
        ((status, _),) = listed(eoctl, "kafka")
        seen.add(status)
        assert status == "damaged" or pos >= len(good) - status_bytes, pos
    assert seen == {"damaged", "unfinished"}
    assert difference(after, tree_of(kafka)) == []


def test_a_torn_last_entry_is_as_if_it_had_not_been(
    journal: Path, kafka: Path, eoctl: Callable
) -> None:
    """A run that was killed while it wrote that all is done: it is said again."""
    path = journal / "journal"
    good = path.read_bytes()
    path.write_bytes(good[:-3])
    assert listed(eoctl, "kafka") == [("unfinished", "truncate")]
    assert eoctl("apply", journal).status == 0
    assert path.read_bytes() == good
    assert listed(eoctl, "kafka") == [("applied", "truncate")]


def test_where_journals_are_found(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere only by that place, unless it is unfinished: then the log dir leads to it."""
    Path("place").mkdir()
    leave_unfinished(eoctl, monkeypatch, *TRUNCATE, "--backup-dir", "place")
    for path in ("kafka", "place"):
        assert listed(eoctl, path) == [("unfinished", "truncate")]
    assert eoctl(*TRUNCATE).status == 0
    assert listed(eoctl, "place") == [("applied", "truncate")]
    assert listed(eoctl, "kafka") == []
    assert eoctl("truncate", "kafka/txn-1", "--to-offset", "200", "--apply").status == 0
    assert listed(eoctl, "kafka", "place") == [("applied", "truncate")] * 2
    paths = [
        row["path"]
        for row in rows_of(eoctl("journal", "list", "place", "kafka", "--output", "jsonl"))
    ]
    assert [Path(each).parent.name for each in paths] == ["place", "kafka.eoctl"]  # by time


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("list", "nowhere"), 3),
        (("list", "kafka/txn-0"), 2),
        (("list", "kafka/meta.properties"), 2),
        (("list",), 2),
        (("look", "kafka"), 2),
        (("list", "kafka", "--apply"), 2),
        (("show", "kafka", "--older-than", "3"), 2),
        (("prune", "kafka", "--older-than", "-1"), 2),
        (("prune", "kafka", "--older-than", "nan"), 2),
        (("prune", "kafka", "--older-than", "inf"), 2),
    ],
)
def test_wrong_calls(
    arguments: tuple[str, ...], status: int, journal: Path, kafka: Path, eoctl: Callable
) -> None:
    before = tree_of(kafka.parent)
    outcome = eoctl("journal", *arguments)
    assert outcome.status == status, outcome.errors
    assert outcome.errors
    assert not outcome.stdout
    assert difference(before, tree_of(kafka.parent)) == []


@pytest.mark.exhaustive
def test_on_a_terminal_and_without_a_reader(journal: Path, kafka: Path, eoctl: Callable) -> None:
    """80 columns are enough for each command; a closed pipe ends it quietly, and it is done."""
    plan = journal / "plan.json"
    assert "applied" in in_80_columns("journal", "list", "kafka")
    assert "leader-epoch-checkpoint" in in_80_columns("journal", "show", "kafka")
    assert "removed     no" in in_80_columns("journal", "prune", "kafka")
    assert f"it had been applied before: {journal}" in in_80_columns("apply", plan)
    assert "it can be undone" in in_80_columns("undo", "--dry-run", journal)
    for arguments, words in (
        (("journal", "list", "kafka"), "Changes 1 journal: 1 applied"),
        (("journal", "show", "kafka"), ""),
        (("undo", journal), "Done    undid truncate"),
        (("apply", plan), f"eoctl undo {journal} undoes it\n"),
        (("undo", journal), "Done    undid truncate"),
        (("journal", "prune", "kafka", "--apply"), ""),
    ):
        done = in_a_closed_pipe(*arguments)
        said = done.stderr.decode()
        assert (done.returncode, said.startswith(words), bool(said)) == (0, True, bool(words)), said
    assert not journal.exists()
    assert (kafka / ".kafka_cleanshutdown").exists()


# --- prune ----------------------------------------------------------------------------------------


def test_prune_as_a_whole(journal: Path, kafka: Path, eoctl: Callable) -> None:
    """A look first; what is removed is gone with its backups, and the log dir stays as it is."""
    before = tree_of(kafka.parent)
    kept_bytes = backups_bytes(journal)
    row = {
        "kind": "pruned_journal",
        "plan_id": journal.name,
        "status": "applied",
        "kept_bytes": kept_bytes,
        "removed": False,
        "path": str(journal),
    }
    note = (
        "nothing was removed: --apply removes 1 journal; then eoctl cannot undo 1 change any more"
    )
    inspect = eoctl("journal", "prune", "kafka")
    assert inspect.status == 0
    assert inspect.text == table(
        "plan_id | status | kept_bytes | removed | path",
        f"{journal.name} | applied | {kept_bytes} | no | {journal}",
    )
    assert inspect.errors == f"{note}\n"
    rows = eoctl("journal", "prune", "kafka", "--output", "jsonl")
    assert (rows_of(rows), notes_of(rows)) == ([row], [note])
    assert unpacked(eoctl("journal", "prune", "kafka", "--output", "msgpack")) == [row]
    assert difference(before, tree_of(kafka.parent)) == []
    done = eoctl("journal", "prune", "kafka", "--apply", "--output", "jsonl")
    assert (done.status, done.errors) == (0, "")
    assert rows_of(done) == [{**row, "removed": True}]
    assert not list(Path("kafka.eoctl").iterdir())
    after = tree_of(kafka.parent)
    gone = {name for name in before if name.startswith("kafka.eoctl/")}
    assert after.keys() == before.keys() - gone
    assert eoctl("undo", journal).status == 3
    assert listed(eoctl, "kafka") == []


def test_prune_of_undone_changes_costs_no_undo(journal: Path, eoctl: Callable) -> None:
    assert eoctl("undo", journal).status == 0
    note = "nothing was removed: --apply removes 1 journal\n"
    assert eoctl("journal", "prune", "kafka").errors == note


def test_prune_older_than(kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time in the journal, whatever the times of its files are."""
    import time

    real = time.time_ns
    for days, offset in ((40, "311"), (3, "300"), (0, "200")):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda past=days: real() - past * DAY_NS)
            call = ("truncate", "kafka/txn-0", "--to-offset", offset, "--apply")
            assert eoctl(*call).status == 0

    def pruned(*options: str) -> int:
        return len(rows_of(eoctl("journal", "prune", "kafka", *options, "--output", "jsonl")))

    assert pruned() == 3
    assert pruned("--older-than", "41") == 0
    assert pruned("--older-than", "39.9") == 1
    assert pruned("--older-than", "2") == 2
    assert pruned("--older-than", "0") == 3
    assert pruned("--older-than", "30", "--apply") == 1
    assert pruned() == 2


def test_what_is_needed_is_not_pruned(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unfinished, undoing, damaged: their backups may be the only copy."""

    def stays(status: str) -> None:
        before = tree_of(kafka.parent)
        outcome = eoctl("journal", "prune", "kafka", "--older-than", "0", "--apply")
        assert outcome.status == 0
        assert outcome.text == table("plan_id | status | kept_bytes | removed | path")
        assert outcome.errors == f"{journal_of(kafka)}: stays: it is {status}\n"
        assert difference(before, tree_of(kafka.parent)) == []

    leave_unfinished(eoctl, monkeypatch, *TRUNCATE)
    stays("unfinished")
    assert eoctl("apply", journal_of(kafka)).status == 0
    leave_unfinished(eoctl, monkeypatch, "undo", journal_of(kafka))
    stays("undoing")
    assert eoctl("undo", journal_of(kafka)).status == 0
    data = (journal_of(kafka) / "journal").read_bytes()
    (journal_of(kafka) / "journal").write_bytes(data[:100])
    stays("damaged")
    (journal_of(kafka) / "journal").unlink()
    assert eoctl("journal", "prune", "kafka", "--apply").status == 0
    assert not list(Path("kafka.eoctl").iterdir())


def test_a_saved_plan_makes_no_journal_of_its_directory(kafka: Path, eoctl: Callable) -> None:
    """A plan that was saved beside other files: all of these stay."""
    Path("mine").mkdir()
    Path("mine/precious").write_text("precious")
    call = ("truncate", "kafka/txn-0", "--to-offset", "311")
    assert eoctl(*call, "--save-plan", "mine/plan.json").status == 0
    before = tree_of(kafka.parent)
    eoctl("journal", "prune", "mine", "--apply")
    assert difference(before, tree_of(kafka.parent)) == []


def test_what_a_log_dir_leads_to_is_not_pruned(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the last entry and the removal of .eoctl-unfinished: both ways stay open."""
    with monkeypatch.context() as patch:
        interrupt(patch, "unlink", name=".eoctl-unfinished")
        assert eoctl(*TRUNCATE).status == 130
    journal = journal_of(kafka)
    assert listed(eoctl, "kafka") == [("unfinished", "truncate")]
    eoctl("journal", "prune", "kafka", "--apply")
    assert journal.is_dir() or not (kafka / ".eoctl-unfinished").exists()
    assert eoctl("truncate", "kafka/txn-1", "--to-offset", "200", "--apply").status in (0, 4)


def test_what_cannot_be_pruned_keeps_no_other_one(
    kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of somebody else, or a system that refuses: the others go, and every one is told."""
    for offset in ("311", "300", "200"):
        call = ("truncate", "kafka/txn-0", "--to-offset", offset, "--apply")
        assert eoctl(*call).status == 0
    oldest, middle, newest = sorted(Path("kafka.eoctl").absolute().iterdir())
    (middle / "precious").write_text("precious")
    inspect = eoctl("journal", "prune", "kafka", "--output", "jsonl")
    assert inspect.status == 0
    assert [row["path"] for row in rows_of(inspect)] == [str(oldest), str(newest)]
    stays = f"{middle}: stays: {middle}/precious: is nothing of a journal"
    assert any(each.startswith(stays) for each in notes_of(inspect))
    unlink = FileSystem.unlink

    def refused(fs: FileSystem, path: Any) -> None:
        if Path(path).parent == oldest:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        unlink(fs, path)

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "unlink", refused)
        done = eoctl("journal", "prune", "kafka", "--apply")
    assert done.status == 3
    assert f"\t{newest}\n" in done.text
    assert str(oldest) not in done.text
    assert f"{oldest}: Operation not permitted" in done.errors
    assert stays in done.errors
    assert sorted(Path("kafka.eoctl").absolute().iterdir()) == [oldest, middle]


def test_links_to_themselves_and_to_nowhere(journal: Path, kafka: Path, eoctl: Callable) -> None:
    """As any path of any command: it cannot be read. It stands for no directory around it."""
    alone = kafka.with_name("alone")
    shutil.copytree(kafka, alone, ignore=lambda _, names: [n for n in names if n.endswith("-1")])
    for target in ("loop", "nowhere"):
        loop = alone / "loop"
        loop.unlink(missing_ok=True)
        loop.symlink_to(target)
        outside = kafka.with_name("loop")
        outside.unlink(missing_ok=True)
        outside.symlink_to("loop")
        before = tree_of(kafka.parent)
        for command in (
            ("describe", loop),
            ("locate", loop, "--offset", "3"),
            ("dump-segment", loop),
            ("recover-state", loop),
            ("rebuild", loop),
            ("rebuild", f"{loop}/../x-0"),
            ("truncate", loop, "--to-offset", "3", "--apply"),
            ("apply", loop),
            ("apply", f"{loop}/x"),
            ("undo", loop),
            ("journal", "list", loop),
            ("journal", "show", f"{loop}/x"),
            (*FURTHER, "--apply", "--backup-dir", outside),
            (*FURTHER, "--apply", "--backup-dir", outside / "x"),
            ("rebuild", "kafka/txn-1", "--to", outside),
            ("rebuild", "kafka/txn-1", "--to", outside / "x"),
            ("recover-state", "kafka/txn-1", "--to", outside / "x"),
        ):
            outcome = eoctl(*command)
            assert outcome.status == 3, (command, outcome.errors)
            assert "eoctl: " in outcome.errors
        found = tree_of(kafka.parent)
        assert [each for each in difference(before, found) if ".lock" not in each] == []


# --- the examples of the man pages ----------------------------------------------------------------

PAGES = ("eoctl-truncate.1", "eoctl-apply.1", "eoctl-undo.1", "eoctl-journal.1")
PLACE = "/var/lib/kafka"


@pytest.mark.share(2)
@pytest.mark.parametrize("page", PAGES)
def test_what_the_pages_show_of_changes(page: str, kafka: Path, eoctl: Callable) -> None:
    """Those that change something, in their order, on one log dir; ids and places are its own."""
    commands = [(command, shown) for each, command, shown in examples() if each == page]
    commands = [each for each in commands if PLACE in each[0]]
    assert commands
    own_ids: dict[str, str] = {}

    def own(text: str) -> str:
        """With the ids of the journals that are there; a new one in the text is the newest."""
        for shown_id in PLAN_ID.findall(text):
            if shown_id not in own_ids:
                own_ids[shown_id] = max(each.name for each in Path(f"{kafka}.eoctl").iterdir())
            text = text.replace(shown_id, own_ids[shown_id])
        return text.replace(PLACE, str(kafka))

    for command, shown in commands:
        words, _, pipe = command.partition(" | ")
        outcome = eoctl(*shlex.split(own(words))[1:])
        assert outcome.status == 0, (command, outcome.errors)
        printed = outcome.text
        if pipe:
            filtered = subprocess.run(
                pipe, shell=True, input=outcome.stdout, capture_output=True, check=True
            )
            printed = filtered.stdout.decode()
        if shown:
            assert matches(printed, [own(line).removesuffix("\\e") for line in shown]), printed


# --- what has the name of a journal and is none -----------------------------------------------------

IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "directory": lambda path: path.mkdir(),
    "huge": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
}
IS_NO_PATH = (b"\n", b"relative/x\n", b"/with\0nul\n")


def put(path: Path, how: str | bytes) -> None:
    path.unlink(missing_ok=True)
    if isinstance(how, bytes):
        path.write_bytes(how)
    else:
        IN_THE_WAY[how](path)


@pytest.mark.share(2)
@pytest.mark.parametrize("how", ["fifo", "directory", "huge", *IS_NO_PATH])
def test_a_note_of_an_unfinished_plan_that_is_none(
    how: str | bytes, journal: Path, kafka: Path, eoctl: Callable
) -> None:
    """Cannot be read, with what to do; nothing waits, and nothing is touched."""
    saved = eoctl("truncate", "kafka/txn-1", "--to-offset", "200", "--save-plan", "plan.json")
    assert saved.status == 0
    note = kafka / ".eoctl-unfinished"
    put(note, how)
    before = tree_of(kafka.parent)
    for command in (
        ("truncate", "kafka/txn-1", "--to-offset", "200"),
        ("truncate", "kafka/txn-1", "--to-offset", "200", "--apply"),
        ("apply", "plan.json"),
        ("apply", journal),
        ("undo", journal),
        ("undo", "--dry-run", journal),
        ("rebuild", "kafka/txn-1", "--apply"),
        ("produce", "kafka/txn-1", "plan.json", "--apply"),
        ("journal", "list", "kafka"),
        ("journal", "prune", journal, "--apply"),
    ):
        outcome = eoctl(*command)
        assert outcome.status == 3, (command, outcome.errors)
        assert ".eoctl-unfinished: " in outcome.errors
        assert "remove that file" in outcome.errors
    assert difference(before, tree_of(kafka.parent)) == []
    note.rmdir() if note.is_dir() else note.unlink()
    assert eoctl("undo", journal).status == 0


@pytest.mark.share(4)
@pytest.mark.parametrize("name", ["journal", "plan.json"])
@pytest.mark.parametrize("how", [*IN_THE_WAY, bytes(1000)])
def test_a_journal_that_is_no_file(
    name: str, how: str | bytes, journal: Path, kafka: Path, eoctl: Callable
) -> None:
    """It cannot be read, or is damaged; the others are listed."""
    put(journal / name, how)
    before = tree_of(kafka)
    if name == "journal":
        status = 1 if isinstance(how, bytes) else 3
        for command in ("undo", "apply"):
            outcome = eoctl(command, journal)
            assert outcome.status == status, outcome.errors
            assert f"{journal}/journal: " in outcome.errors
        assert listed(eoctl, "kafka") == [("damaged", None)]
        assert eoctl("journal", "prune", "kafka", "--apply").errors.endswith("it is damaged\n")
    else:
        outcome = eoctl("apply", journal)
        assert outcome.status == (2 if isinstance(how, bytes) else 3), outcome.errors
        (journal / "journal").unlink()
        assert listed(eoctl, "kafka") == [("abandoned", None)]
    assert difference(before, tree_of(kafka)) == []


def test_a_journal_with_names_that_no_file_can_have(
    journal: Path, kafka: Path, eoctl: Callable
) -> None:
    """Whole entries, but from another hand: damaged."""
    data = (journal / "journal").read_bytes()
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    entries = [msgpack.unpackb(payload) for payload, _ in unpacker]
    before = tree_of(kafka)
    changes: list[tuple[int, dict[str, Any]]] = [
        (0, {"log_dirs": [f"{kafka}\0"]}),
        (0, {"log_dirs": 7}),
        (0, {"plan_id": None}),
        (0, {"applied_at_ms": "x"}),
        (0, {"has_backup": 1}),
        (0, {"arguments": "[" * 10_000}),
        (0, {"arguments": "[1]"}),
        (0, {"directories": {"/etc": [1, {}]}}),
        (0, {"directories": {str(kafka): [1, {"x": 3}]}}),
        (0, {"neighbours": {"a\0": "x"}}),
        (1, {"before": {"mode": 1}}),
        (1, {"before": {**entries[1]["before"], "mode": 1 << 40}}),
        (1, {"before": {**entries[1]["before"], "uid": -1}}),
        (1, {"after_mtime_ns": "x"}),
        (1, {"after_bytes": None}),
        (1, {"path": "\0"}),
    ]
    for number, fields in changes:
        changed = [*entries]
        changed[number] = {**entries[number], **fields}
        payloads = [msgpack.packb(each) for each in changed]
        (journal / "journal").write_bytes(
            b"".join(msgpack.packb([payload, crc32c(payload)]) for payload in payloads)
        )
        for command in ("undo", "apply"):
            outcome = eoctl(command, journal)
            assert outcome.status == 1, (fields, outcome.errors)
            assert "the journal is damaged [JNL-1]" in outcome.errors
        assert listed(eoctl, "kafka") == [("damaged", None)]
    assert difference(before, tree_of(kafka)) == []
