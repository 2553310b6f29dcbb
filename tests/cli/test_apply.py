"""`eoctl apply`: a saved plan is done once, whole, and only on what it was made for."""

from __future__ import annotations

import base64
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.changes.journals import backups
from tests.changes import (
    held,
    interrupt,
    journal_of,
    leave_unfinished,
    notes_of,
    rows_of,
    same_ids,
    split_answer,
    table,
    unpacked,
)
from tests.crash.trees import difference, leftovers, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = "txn-0/00000000000000000000.log"
COLUMNS = "plan_id | command | status | steps | was_applied_before | path"


@pytest.fixture
def plan(kafka: Path, eoctl: Callable) -> Path:
    """To cut kafka/txn-0 at 311: a marker, checkpoints, epochs, a snapshot gone, two files cut."""
    path = kafka.parent / "plan.json"
    outcome = eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--save-plan", path)
    assert outcome.status == 0
    assert outcome.errors.endswith(f"nothing was changed: eoctl apply {path} runs it\n")
    return path


def edited(plan: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The plan, changed by another hand."""
    value = json.loads(plan.read_bytes())
    change(value)
    path = plan.with_name("edited.json")
    path.write_text(json.dumps(value))
    return path


def step_of(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The step for a file."""
    (step,) = [each for each in value["steps"] if each["path"].endswith(name)]
    return step


# --- done, and done again -------------------------------------------------------------------------


def test_the_whole_output(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """In each format; applied again it is the same, but for one word; so are the files."""
    first = eoctl("apply", plan)
    journal = journal_of(kafka)
    row = {
        "kind": "applied_plan",
        "plan_id": journal.name,
        "command": "truncate",
        "status": "applied",
        "steps": 8,
        "was_applied_before": False,
        "path": str(journal),
    }
    assert first.status == 0
    row_text = table(COLUMNS, f"{journal.name} | truncate | applied | 8 | no | {journal}")
    assert first.text.startswith(f"{row_text}\nprice\tvalue\ncut_start_offset\t311\n")
    assert "\nproducer_id\tfirst_offset\tmarker_offset\tkind\toutcome\n" in first.text
    assert split_answer(first.errors) == (
        [
            "Done truncate: 8 files changed",
            "Lost 18 records, 18 acknowledged; transactions: 1 removed",
            f"Undo eoctl undo {journal}",
        ],
        [f"eoctl undo {journal} undoes it"],
    )
    before = tree_of(kafka, directory_times=True)
    again = eoctl("apply", plan)
    assert again.status == 0
    assert again.text == first.text.replace("\tno\t", "\tyes\t")
    answer, notes = split_answer(again.errors)
    assert answer[0] == "Done truncate: 8 files changed, applied before"
    assert notes == [f"it had been applied before: {journal}"]
    rows = eoctl("apply", plan, "--output", "jsonl")
    applied, price = rows_of(rows)
    assert applied == {**row, "was_applied_before": True}
    assert (price["kind"], price["cut_start_offset"], price["records_count"]) == ("price", 311, 18)
    assert notes_of(rows) == [f"it had been applied before: {journal}"]
    packed = eoctl("apply", plan, "--output", "msgpack")
    assert unpacked(packed) == rows_of(rows)
    assert packed.errors == rows.errors
    assert difference(before, tree_of(kafka, directory_times=True)) == []
    assert eoctl("undo", journal).status == 0
    assert rows_of(eoctl("apply", plan, "--output", "jsonl"))[0] == row


def test_a_saved_plan_does_what_its_command_would(
    plan: Path, kafka: Path, eoctl: Callable, golden: Callable[[str], Path]
) -> None:
    """File by file; and the price stands in the plan as it was shown."""
    shown = eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--output", "jsonl")
    (price,) = rows_of(shown, "price")
    value = json.loads(plan.read_bytes())
    assert value["price"] == price
    assert plan.stat().st_mode & 0o777 == 0o600
    assert eoctl("apply", plan).status == 0
    by_plan = {name: each.data for name, each in tree_of(kafka).items()}
    assert json.loads((journal_of(kafka) / "plan.json").read_bytes()) == value
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert eoctl("truncate", "kafka/txn-0", "--to-offset", "311", "--apply").status == 0
    assert {name: each.data for name, each in tree_of(kafka).items()} == by_plan


@pytest.mark.parametrize("command", ["rebuild", "recover-state"])
def test_plans_of_other_commands(command: str, kafka: Path, eoctl: Callable) -> None:
    """What they saved is what they would have written, and can be taken back."""
    names = {"rebuild": "00000000000000000000.index", "recover-state": f"{329:020d}.snapshot"}
    path = kafka / "txn-0" / names[command]
    wanted = path.read_bytes()
    path.write_bytes(wanted[:-16])
    before = tree_of(kafka)
    saved = eoctl(command, "kafka/txn-0", "--save-plan", "plan.json")
    assert saved.status == 0, saved.errors
    assert "eoctl apply plan.json runs it" in saved.errors
    assert difference(before, tree_of(kafka)) == []
    assert eoctl("apply", "plan.json").status == 0
    assert path.read_bytes() == wanted
    assert not (kafka / ".kafka_cleanshutdown").exists()
    again = eoctl(command, "kafka/txn-0", "--save-plan", "other.json")
    assert again.status == 0
    assert not Path("other.json").exists()
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []


# --- stale ----------------------------------------------------------------------------------------


def with_same_times(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Change a file and give it its modification time back."""

    def changed(log_dir: Path) -> None:
        path = log_dir / LOG
        times = path.stat()
        change(path)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    return changed


def add_a_byte(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def flip(pos: int) -> Callable[[Path], object]:
    def flipped(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[pos] ^= 1
        path.write_bytes(data)

    return flipped


STALE: list[tuple[str, Callable[[Path], object], str]] = [
    ("mtime", lambda each: os.utime(each / LOG), LOG),
    ("size", with_same_times(add_a_byte), LOG),
    ("byte_cut", with_same_times(flip(-1)), LOG),
    ("byte_kept", with_same_times(flip(100)), LOG),
    ("gone", lambda each: (each / LOG).unlink(), LOG),
    ("no_file", lambda each: ((each / LOG).unlink(), (each / LOG).mkdir()), LOG),
    (
        "link",
        lambda each: ((each / LOG).rename(each / "x.log"), (each / LOG).symlink_to("../x.log")),
        LOG,
    ),
    (
        "appeared",
        lambda each: (each / f"txn-0/{311:020d}.snapshot").write_bytes(b""),
        f"{311:020d}.snapshot: was not there when the plan was made",
    ),
    (
        "segment_appeared",
        lambda each: (each / f"txn-0/{329:020d}.log").write_bytes(b""),
        f"{329:020d}.log: was not there when the plan was made",
    ),
    (
        "index_gone",
        lambda each: (each / f"txn-0/{0:020d}.index").unlink(),
        f"{0:020d}.index: has gone since it was there when the plan was made",
    ),
    (
        "marker",
        lambda each: (each / ".kafka_cleanshutdown").write_text("{}"),
        ".kafka_cleanshutdown",
    ),
    (
        "checkpoint",
        lambda each: (each / "replication-offset-checkpoint").write_text("0\n0\n"),
        "replication-offset-checkpoint",
    ),
]


@pytest.mark.share(5)
@pytest.mark.parametrize(("name", "change", "words"), STALE, ids=[each[0] for each in STALE])
def test_a_stale_plan(
    name: str,
    change: Callable[[Path], object],
    words: str,
    plan: Path,
    kafka: Path,
    eoctl: Callable,
) -> None:
    """Anything that it touches is different: nothing is done, also beside the log dir."""
    change(kafka)
    before = tree_of(kafka.parent)
    outcome = eoctl("apply", plan)
    assert outcome.status == 4
    assert words in outcome.errors
    assert "the plan is stale; nothing was changed" in outcome.errors
    assert "try: " in outcome.errors
    assert not outcome.stdout
    assert difference(before, tree_of(kafka.parent)) == []


def test_a_marker_that_was_not_there(killed: Path, eoctl: Callable) -> None:
    """A broker was started and stopped cleanly since: it would not look at what is cut."""
    call = ("truncate", "killed/txn-0", "--to-hw", "--save-plan", "plan.json")
    assert eoctl(*call).status == 0
    (killed / ".kafka_cleanshutdown").write_text("{}")
    before = tree_of(killed.parent)
    outcome = eoctl("apply", "plan.json")
    assert outcome.status == 4
    assert ".kafka_cleanshutdown: was not there: the plan is stale" in outcome.errors
    assert difference(before, tree_of(killed.parent)) == []


def test_what_was_applied_and_then_changed(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """It is not the same result any more."""
    assert eoctl("apply", plan).status == 0
    add_a_byte(kafka / LOG)
    before = tree_of(kafka)
    outcome = eoctl("apply", plan)
    assert outcome.status == 4
    assert f"{LOG}: the plan was applied before, and this was changed since" in outcome.errors
    assert difference(before, tree_of(kafka)) == []


# --- refused beforehand ---------------------------------------------------------------------------


def refuses(eoctl: Callable, kafka: Path, words: str, *arguments: Any, status: int = 4) -> None:
    before = tree_of(kafka.parent, directory_times=True)
    outcome = eoctl("apply", *arguments)
    assert outcome.status == status, outcome.errors
    assert words in outcome.errors
    assert "Traceback" not in outcome.errors
    assert not outcome.stdout
    after = tree_of(kafka.parent, directory_times=True)
    times = {"kafka", "."}  # a lock file may have been made, a place for journals tried
    assert [
        each for each in difference(before, after)
        if each not in {f"{name}: mtime_ns" for name in times}
    ] == []  # fmt: skip


def test_a_held_lock(plan: Path, kafka: Path, eoctl: Callable) -> None:
    with held(kafka) as pid:
        refuses(eoctl, kafka, f".lock: process {pid} holds the lock; nothing was touched", plan)
    assert eoctl("apply", plan).status == 0


def test_too_little_room(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is needed and what is there, in bytes; a little more is enough."""
    asked = []

    def one_mib(path: str) -> int:
        asked.append(path)
        return 1 << 20

    with monkeypatch.context() as patch:
        patch.setattr(backups, "free_bytes", one_mib)
        refuses(eoctl, kafka, "bytes are needed on this disk, 1048576 are free", plan)
    assert asked == [str(kafka.parent)]
    monkeypatch.setattr(backups, "free_bytes", lambda _: (1 << 20) + 10_000)
    assert eoctl("apply", plan).status == 0


def test_the_default_place_on_another_disk(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside a mount point: a place must be named then."""
    inside = lambda path: int(Path(path) == kafka or kafka in Path(path).parents)  # noqa: E731
    monkeypatch.setattr(backups, "_device_of", inside)
    refuses(eoctl, kafka, "is on another disk than the log dir", plan)
    Path("place").mkdir()
    done = eoctl("apply", plan, "--backup-dir", "place")
    assert done.status == 0, done.errors
    _, notes = split_answer(same_ids(done.errors))
    assert notes == [f"eoctl undo {Path.cwd()}/place/ID undoes it"]


def test_a_journal_elsewhere_is_only_known_there(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """Applied again without that place, the files are not what they were."""
    Path("place").mkdir()
    assert eoctl("apply", plan, "--backup-dir", "place").status == 0
    refuses(eoctl, kafka, "the plan is stale", plan)
    again = eoctl("apply", plan, "--backup-dir", "place", "--output", "jsonl")
    assert [row["was_applied_before"] for row in rows_of(again, "applied_plan")] == [True]


def test_a_place_on_another_disk(
    plan: Path, kafka: Path, eoctl: Callable, other_disk: Path
) -> None:
    """There a link cannot be: whole files are copied, and come back the same."""
    before = tree_of(kafka)
    assert eoctl("apply", plan, "--backup-dir", other_disk).status == 0
    (journal,) = other_disk.iterdir()
    kinds = {
        row["backup"] for row in rows_of(eoctl("journal", "show", journal, "--output", "jsonl"))
    }
    assert kinds == {"copy", "cut", "none"}
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(kafka)) == []


def test_an_owner_that_cannot_be_kept(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: kafka.stat().st_uid + 1)
    (kafka / ".lock").touch()
    refuses(eoctl, kafka, "could not get the owner and group of their directory", plan)


@pytest.mark.share(2)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    "name", [LOG, "replication-offset-checkpoint", f"txn-0/{329:020d}.snapshot"]
)
@pytest.mark.parametrize("owner", [(0, 23456), (12345, 34567)])
def test_a_file_whose_owner_could_not_be_given_back(
    owner: tuple[int, int], name: str, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the broker may copy it, and could then not undo: refused, also as a look."""
    for path in [kafka, *kafka.rglob("*")]:
        os.chown(path, 12345, 23456)
    os.chown(kafka / name, *owner)
    call = ("truncate", "kafka/txn-0", "--to-offset", "311")
    assert eoctl(*call, "--save-plan", "by-root.json").status == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        patch.setattr(os, "getegid", lambda: 23456)
        patch.setattr(os, "getgroups", list)
        words = (
            f"{kafka}/{name}: belongs to {owner[0]}:{owner[1]}, and its directory to 12345:23456"
        )
        for options in ((), ("--save-plan", "plan.json"), ("--apply",)):
            outcome = eoctl(*call, *options)
            assert outcome.status == 4
            assert words in outcome.errors
            assert "try: run it as root" in outcome.errors
        refuses(eoctl, kafka, words, "by-root.json")
        os.chown(kafka / name, 12345, 23456)
        assert eoctl(*call).status == 0
        patch.setattr(os, "getgroups", lambda: [34567])
        os.chown(kafka / name, 12345, 34567)
        assert eoctl(*call).status == 0
    assert eoctl(*call, "--apply").status == 0


def test_a_place_inside_of_a_log_dir(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """Its own, or that of another node: a broker would not start there."""
    other = kafka.parent / "other"
    other.mkdir()
    (other / "meta.properties").write_bytes((kafka / "meta.properties").read_bytes())
    Path("link").symlink_to(kafka)
    for place in ("kafka", "kafka/journals", "kafka/txn-0", "other", "other/x", "link", "link/x"):
        refuses(eoctl, kafka, "is in a log dir", plan, "--backup-dir", place)
    refuses(eoctl, kafka, "No such file", plan, "--backup-dir", "no/place", status=3)


def test_without_a_backup(plan: Path, kafka: Path, eoctl: Callable) -> None:
    refuses(
        eoctl, kafka, "a change with --no-backup cannot be undone", plan, "--no-backup", status=2
    )
    refuses(eoctl, kafka, "without --no-backup", plan, "--i-accept-the-loss", status=2)
    done = eoctl("apply", plan, "--no-backup", "--i-accept-the-loss", "--output", "jsonl")
    assert done.status == 0
    assert same_ids(notes_of(done)[0]) == (
        f"applied without a backup: it cannot be undone; its journal is {kafka}.eoctl/ID"
    )
    before = tree_of(kafka)
    assert eoctl("undo", journal_of(kafka)).status == 4
    assert difference(before, tree_of(kafka)) == []


# --- from another hand ----------------------------------------------------------------------------


def moved(name: str, path: Callable[[str], str]) -> Callable[[dict[str, Any]], object]:
    """Let the step of a file lead elsewhere."""

    def change(value: dict[str, Any]) -> None:
        step = step_of(value, name)
        step["path"] = path(step["path"])

    return change


def content(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text)).decode()


def written(name: str, text: bytes) -> Callable[[dict[str, Any]], object]:
    """Let the step that makes a snapshot write another file of the log dir instead."""

    def change(value: dict[str, Any]) -> None:
        step = step_of(value, f"{311:020d}.snapshot")
        step.update(
            path=f"{value['log_dirs'][0]}/{name}", content=content(text), after_bytes=len(text)
        )

    return change


ELSEWHERE = {
    "dots": moved(".log", lambda path: path.replace("/txn-0/", "/txn-0/../txn-1/")),
    "two_slashes": moved(".log", lambda path: path.replace("/txn-0/", "//txn-0/")),
    "relative": moved(".log", lambda path: path.removeprefix("/")),
    "outside": moved(".log", lambda path: path.replace("/kafka/", "/other/")),
    "below": moved(".log", lambda path: path.replace("/txn-0/", "/txn-0/x/")),
    "too_high": moved(".log", lambda path: path.replace("/txn-0/", "/")),
    "marker_elsewhere": moved(".kafka_cleanshutdown", lambda path: path.replace("/kafka/", "/")),
    "metadata": moved(".log", lambda path: path.replace("/txn-0/", "/__cluster_metadata-0/")),
    "lock": written(".lock", b""),
    "meta_properties": written("meta.properties", b""),
    "bootstrap": written("bootstrap.checkpoint", b""),
    "marker": written(".kafka_cleanshutdown", b"{}"),
    "unfinished": written(".eoctl-unfinished", b"/x"),
    "partition_metadata": written("txn-0/partition.metadata", b""),
    "foreign": written("txn-0/x.sh", b""),
    "swap": written(f"txn-0/{0:020d}.log.swap", b""),
    "id_dots": lambda value: value.update(plan_id=".."),
    "id_empty": lambda value: value.update(plan_id=""),
    "id_slash": lambda value: value.update(plan_id="a/b"),
    "id_above": lambda value: value.update(plan_id="../x"),
    "twice": lambda value: value["steps"].append(value["steps"][-1]),
    "no_log_dirs": lambda value: value.update(log_dirs=[]),
}


@pytest.mark.share(8)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_plan_that_leads_elsewhere(name: str, plan: Path, kafka: Path, eoctl: Callable) -> None:
    """Refused before a lock is taken or a file is looked at."""
    path = edited(plan, ELSEWHERE[name])
    assert not (kafka / ".lock").exists()
    refuses(eoctl, kafka, "edited.json: ", path)
    assert not (kafka / ".lock").exists()


def test_a_link_in_the_place_of_a_partition_file(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """It was none when the plan was made; what it leads to stays as it is."""
    snapshot = kafka / f"txn-0/{329:020d}.snapshot"
    outside = kafka.parent / "outside"
    snapshot.rename(outside)
    snapshot.symlink_to(outside)
    refuses(eoctl, kafka, "the plan is stale", plan)


NO_PLANS = {
    "empty": b"",
    "binary": bytes(range(256)),
    "nul": b"\0" * 100,
    "array": b"[]",
    "number": b"7",
    "null": b"null",
    "object": b"{}",
    "deep": b"[" * 100_000,
    "utf-16": json.dumps({"kind": "x"}).encode("utf-16"),
    "other_kind": b'{"kind": "eoctl-journal"}',
}


@pytest.mark.parametrize("name", NO_PLANS)
def test_no_plan_at_all(name: str, kafka: Path, eoctl: Callable) -> None:
    Path("plan.json").write_bytes(NO_PLANS[name])
    refuses(eoctl, kafka, "plan.json: is no plan of eoctl", "plan.json", status=2)


def test_a_plan_that_is_cut_short(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """At every hundredth byte, a wrong call and nothing else."""
    data = plan.read_bytes()
    for size in range(1, len(data) - 2, max(len(data) // 100, 1)):
        plan.write_bytes(data[:size])
        outcome = eoctl("apply", plan)
        assert (outcome.status, outcome.stdout) == (2, b""), size
        assert "is no plan of eoctl" in outcome.errors
    assert not (kafka / ".lock").exists()


def test_no_file_at_all(plan: Path, kafka: Path, eoctl: Callable) -> None:
    refuses(eoctl, kafka, "nowhere: No such file", "nowhere", status=3)


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "version": (lambda value: value.update(schema_version=3), "a plan of version 3, this program"),
    "no_version": (lambda value: value.pop("schema_version"), "is no plan of eoctl"),
    "no_steps": (lambda value: value.update(steps=[]), "has no steps"),
    "steps_text": (lambda value: value.update(steps="abc"), "is no plan of eoctl"),
    "price": (lambda value: value.update(price=[1]), "is no plan of eoctl"),
    "arguments": (lambda value: value.update(arguments="x"), "is no plan of eoctl"),
    "id": (lambda value: value.update(plan_id=7), "is no text"),
    "log_dirs": (lambda value: value.update(log_dirs=7), "is no plan of eoctl"),
    "action": (lambda value: value["steps"][0].update(action="append"), "append"),
    "path": (lambda value: value["steps"][0].update(path=None), "is no text"),
    "before": (lambda value: value["steps"][0].update(before="x"), "is no plan of eoctl"),
    "no_before": (lambda value: value["steps"][0].update(before=None), "that is not there"),
    "fields": (lambda value: value["steps"][0]["before"].pop("mode"), "mode"),
    "negative": (lambda value: value["steps"][0]["before"].update(uid=-1), "is no number"),
    "float": (lambda value: step_of(value, ".log").update(after_bytes=1.5), "is no number"),
    "true": (lambda value: step_of(value, ".log").update(after_bytes=True), "is no number"),
    "grows": (lambda value: step_of(value, ".log").update(after_bytes=1 << 40), "removes nothing"),
    "base64": (lambda value: value["steps"][-1].update(content="*"), "is no plan of eoctl"),
    "zlib": (lambda value: value["steps"][-1].update(content="AAAA"), "is no plan of eoctl"),
    "size": (lambda value: value["steps"][-1].update(after_bytes=1), "content of another size"),
    "no_listings": (lambda value: value.pop("listings"), "is no plan of eoctl"),
    "listing": (lambda value: value["listings"][0].update(names=[7]), "is no text"),
    "no_content": (lambda value: value["steps"][-1].pop("content"), "is no plan of eoctl"),
}


@pytest.mark.share(12)
@pytest.mark.parametrize("name", WRONG)
def test_a_plan_with_something_wrong(name: str, plan: Path, kafka: Path, eoctl: Callable) -> None:
    change, words = WRONG[name]
    refuses(eoctl, kafka, words, edited(plan, change), status=2)


def odd(plan: Path, where: str, text: str) -> Path:
    """The plan with a text in it that is no name of a file."""

    def change(value: dict[str, Any]) -> None:
        if where == "path":
            step = step_of(value, ".log")
            step["path"] = step["path"].replace("/txn-0/", f"/txn{text}-0/")
        elif where == "log_dirs":
            value["log_dirs"].append(f"/{text}")
        else:
            value[where] += text

    return edited(plan, change)


@pytest.mark.parametrize("text", ["\0", "\ud800"], ids=["nul", "surrogate"])
@pytest.mark.parametrize("where", ["plan_id", "path", "log_dirs"])
def test_names_that_no_file_can_have(
    where: str, text: str, plan: Path, kafka: Path, eoctl: Callable
) -> None:
    outcome = eoctl("apply", odd(plan, where, text))
    assert outcome.status in (2, 4)


def test_an_id_that_is_another_directory(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """What is in it is none of the plan's business."""
    Path("place/documents").mkdir(parents=True)
    Path("place/documents/precious").write_text("precious")
    path = edited(plan, lambda value: value.update(plan_id="documents"))
    eoctl("apply", path, "--backup-dir", "place")
    assert Path("place/documents/precious").exists()


def test_a_backup_is_whole_whatever_the_plan_says(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """Fewer bytes to be kept than there are: refused, or kept nevertheless."""
    before = tree_of(kafka)
    path = edited(plan, lambda value: step_of(value, ".log").update(backup_bytes=5))
    if eoctl("apply", path).status == 0:
        assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []


def test_log_dirs_without_a_step(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """Nothing happens in a directory that no step is about."""
    Path("other").mkdir()
    path = edited(plan, lambda value: value["log_dirs"].append(str(Path("other").absolute())))
    eoctl("apply", path)
    assert list(Path("other").iterdir()) == []


# --- interrupted ----------------------------------------------------------------------------------


def test_what_was_interrupted_is_completed(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the plan again, or by the journal, also named by its file; then there is a way back."""
    before = tree_of(kafka)
    assert eoctl("apply", plan).status == 0
    journal = journal_of(kafka)
    wanted = {name: each.data for name, each in tree_of(kafka).items()}
    for way in (plan, journal, journal / "journal"):
        assert eoctl("undo", journal).status == 0
        assert difference(before, tree_of(kafka)) == []
        interrupted = leave_unfinished(eoctl, monkeypatch, "apply", plan)
        assert f"eoctl apply {journal} completes it" in interrupted.errors
        done = eoctl("apply", way, "--output", "jsonl")
        assert done.status == 0, done.errors
        assert [row["was_applied_before"] for row in rows_of(done, "applied_plan")] == [False]
        assert {name: each.data for name, each in tree_of(kafka).items()} == wanted
        assert leftovers(kafka) == []
        again = eoctl("apply", journal, "--output", "jsonl")
        assert [row["was_applied_before"] for row in rows_of(again, "applied_plan")] == [True]
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(kafka)) == []


def test_only_the_last_word_was_missing(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is done and the journal says so; what is left over goes."""
    with monkeypatch.context() as patch:
        interrupt(patch, "unlink", name=".eoctl-unfinished")
        assert eoctl("apply", plan).status == 130
    assert [Path(each).name for each in leftovers(kafka)] == [".eoctl-unfinished"]
    assert (
        rows_of(eoctl("journal", "list", "kafka", "--output", "jsonl"))[0]["status"] == "unfinished"
    )
    assert eoctl("apply", plan).status == 0
    assert leftovers(kafka) == []


def test_what_was_changed_meanwhile_is_not_overwritten(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker was started on half of it: neither way is open, and the old bytes stay."""
    leave_unfinished(eoctl, monkeypatch, "apply", plan)
    journal = journal_of(kafka)
    add_a_byte(kafka / LOG)
    before = tree_of(kafka.parent)
    applied = eoctl("apply", journal)
    assert applied.status == 4
    assert f"{LOG}: was changed since the plan was begun" in applied.errors
    assert f"eoctl journal show {journal}" in applied.errors
    undone = eoctl("undo", journal)
    assert undone.status == 4
    assert difference(before, tree_of(kafka.parent)) == []


def test_an_undo_that_has_begun_is_not_turned_around(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert eoctl("apply", plan).status == 0
    journal = journal_of(kafka)
    leave_unfinished(eoctl, monkeypatch, "undo", journal)
    for each in (plan, journal):
        outcome = eoctl("apply", each)
        assert outcome.status == 4
        assert "its undo has begun; nothing was touched" in outcome.errors
        assert f"try: eoctl undo {journal}" in outcome.errors
    assert eoctl("undo", journal).status == 0
    undone = eoctl("apply", journal)
    assert undone.status == 4
    assert "it was undone; nothing was touched" in undone.errors
    assert f"eoctl apply {journal}/plan.json" in undone.errors
    assert eoctl("apply", journal / "plan.json").status == 0


def test_an_abandoned_journal_is_no_plan(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was killed before there was anything to complete; the plan itself still works."""
    assert eoctl("apply", plan).status == 0
    journal = journal_of(kafka)
    assert eoctl("undo", journal).status == 0
    (journal / "journal").unlink()
    outcome = eoctl("apply", journal)
    assert outcome.status == 3
    assert "its run ended before anything was changed" in outcome.errors
    assert eoctl("apply", plan).status == 0


# --- symbolic links -------------------------------------------------------------------------------


def leading(plan: Path, link_parent: Path) -> Path:
    """The plan, with every partition file reached as `link_parent/txn-0`."""

    def change(value: dict[str, Any]) -> None:
        value["log_dirs"] = [str(link_parent)]
        value["steps"] = [each for each in value["steps"] if "/txn-0/" in each["path"]]
        for each in value["steps"]:
            each["path"] = f"{link_parent}/txn-0/{Path(each['path']).name}"

    return edited(plan, change)


def node_dir(kafka: Path, name: str) -> Path:
    """Another log dir, of files that only one has."""
    made = kafka.with_name(name)
    made.mkdir()
    (made / "meta.properties").write_bytes((kafka / "meta.properties").read_bytes())
    return made


@pytest.mark.parametrize("has_meta_properties", [False, True])
def test_a_partition_that_is_a_link_into_another_log_dir(
    has_meta_properties: bool, plan: Path, kafka: Path, eoctl: Callable
) -> None:
    """The broker of that one holds a lock that nobody would have asked for."""
    other = node_dir(kafka, "other")
    if not has_meta_properties:
        (other / "meta.properties").unlink()
    (other / "txn-0").symlink_to("../kafka/txn-0")
    (other / ".lock").touch()
    path = leading(plan, other)
    with held(kafka):
        refuses(eoctl, kafka, f"{kafka}/txn-0, in the log dir {kafka}, which is another", path)


def test_a_partition_that_is_a_link_to_the_metadata_log(
    plan: Path, kafka: Path, eoctl: Callable
) -> None:
    """Also from a directory that is no log dir, and by two links."""
    (kafka / "__cluster_metadata-0").rename(kafka / "moved")
    shutil.copytree(kafka / "txn-0", kafka / "__cluster_metadata-0")
    for each in (kafka / "txn-0").iterdir():
        times = each.stat()
        os.utime(
            kafka / "__cluster_metadata-0" / each.name, ns=(times.st_atime_ns, times.st_mtime_ns)
        )
    other = kafka.with_name("other")
    other.mkdir()
    (other / ".lock").touch()
    (other / "step").symlink_to("../kafka/__cluster_metadata-0")
    (other / "txn-0").symlink_to("step")
    refuses(eoctl, kafka, "__cluster_metadata is never changed", leading(plan, other))


def test_a_log_dir_that_is_the_metadata_log(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """Its directory gets no checkpoint, and no lock file."""

    def change(value: dict[str, Any]) -> None:
        value["log_dirs"] = [f"{kafka}/__cluster_metadata-0"]
        value["steps"] = [step_of(value, "replication-offset-checkpoint")]
        value["steps"][0].update(
            path=f"{kafka}/__cluster_metadata-0/replication-offset-checkpoint", before=None
        )

    refuses(eoctl, kafka, "__cluster_metadata is never changed", edited(plan, change))


def test_one_partition_by_two_names(plan: Path, kafka: Path, eoctl: Callable) -> None:
    (kafka / "twin-0").symlink_to("txn-0")

    def change(value: dict[str, Any]) -> None:
        step = dict(step_of(value, ".log"))
        step["path"] = step["path"].replace("/txn-0/", "/twin-0/")
        value["steps"].append(step)

    refuses(eoctl, kafka, f"{kafka}/txn-0, so is {kafka}/txn-0", edited(plan, change))


def test_a_partition_on_another_disk(kafka: Path, eoctl: Callable) -> None:
    """A link to a place that is no log dir is where its name is, and can be changed."""
    (kafka / "txn-0").rename(kafka.with_name("big-disk"))
    (kafka / "txn-0").symlink_to("../big-disk")
    before = tree_of(kafka.with_name("big-disk"))
    call = ("truncate", "kafka/txn-0", "--to-offset", "311")
    assert eoctl(*call, "--save-plan", "linked.json").status == 0
    assert eoctl("apply", "linked.json").status == 0
    assert difference(before, tree_of(kafka.with_name("big-disk")))
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka.with_name("big-disk"))) == []


def test_a_link_that_came_later(plan: Path, kafka: Path, eoctl: Callable) -> None:
    """The directory was moved to another log dir, and a link put in its place: neither way."""
    other = node_dir(kafka, "other")
    assert eoctl("apply", plan).status == 0
    (kafka / "txn-0").rename(other / "txn-0")
    (kafka / "txn-0").symlink_to("../other/txn-0")
    before = tree_of(kafka.parent)
    for command in (("undo", journal_of(kafka)), ("undo", "--dry-run", journal_of(kafka))):
        outcome = eoctl(*command)
        assert outcome.status == 4
        assert f"in the log dir {other}, which is another log dir" in outcome.errors
    truncated = eoctl("truncate", "kafka/txn-0", "--to-offset", "200")
    assert truncated.status == 4
    assert difference(before, tree_of(kafka.parent)) == []


# --- times beyond 64 bits -------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("year", [1902, 1969, 2262, 2300, 2400])
def test_times_long_ago_and_far_ahead(year: int, kafka: Path, eoctl: Callable) -> None:
    """What a broken clock has left: saved, applied and taken back like any other."""
    mtime_ns = (year - 1970) * 31_557_600 * 10**9 + 123_000_000
    for path in (kafka / LOG, kafka / "replication-offset-checkpoint", kafka / "txn-0"):
        os.utime(path, ns=(0, mtime_ns))
    if (kafka / LOG).stat().st_mtime_ns != mtime_ns:
        pytest.skip("this file system has no such times")
    before = tree_of(kafka, directory_times=True)
    call = ("truncate", "kafka/txn-0", "--to-offset", "311", "--now", "2026-11-21T00:00:00Z")
    saved = eoctl(*call, "--save-plan", "odd.json")
    assert saved.status == 0, saved.errors
    applied = eoctl("apply", "odd.json")
    assert applied.status == 0, applied.errors
    assert eoctl("journal", "list", "kafka").status == 0
    assert eoctl("undo", journal_of(kafka)).status == 0
    differences = difference(before, tree_of(kafka, directory_times=True))
    assert [each for each in differences if each != ".: mtime_ns"] == []


@pytest.mark.parametrize("depth", [100, 900, 5000])
@pytest.mark.parametrize("name", ["arguments", "price"])
def test_values_that_are_nested_too_deeply(
    name: str, depth: int, plan: Path, kafka: Path, eoctl: Callable
) -> None:
    value = json.loads(plan.read_bytes())
    value[name] = "@"
    nested = '{"x":' * depth + "1" + "}" * depth
    Path("nested.json").write_text(json.dumps(value).replace('"@"', nested))
    refuses(eoctl, kafka, "is no plan of eoctl", "nested.json", status=2)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, float("nan")])
def test_numbers_that_cannot_be_printed(
    number: float, plan: Path, kafka: Path, eoctl: Callable
) -> None:
    path = edited(plan, lambda value: value["price"].update(records_count=number))
    refuses(eoctl, kafka, "is no plan of eoctl", path, "--output", "msgpack", status=2)


# --- the plan beside a journal --------------------------------------------------------------------


def test_a_plan_beside_a_journal_outlives_a_failure(
    plan: Path, kafka: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applied again after its undo it may be the only copy of the plan."""
    assert eoctl("apply", plan).status == 0
    journal = journal_of(kafka)
    assert eoctl("undo", journal).status == 0
    plan.unlink()
    kept = journal / "plan.json"
    data = kept.read_bytes()
    before = tree_of(kafka)
    for method, name in (("link", ".snapshot"), ("write", "journal.eoctl-tmp"), ("write", "x")):
        with monkeypatch.context() as patch:
            interrupt(patch, method, name=name)
            stale = name == "x"
            if stale:
                patch.setattr(backups, "free_bytes", lambda _: 0)
            outcome = eoctl("apply", kept)
        assert outcome.status == (4 if stale else 130), outcome.errors
        assert kept.read_bytes() == data
        assert difference(before, tree_of(kafka)) == []
        assert sorted(path.name for path in journal.iterdir()) == ["plan.json"]
    assert eoctl("apply", kept).status == 0
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(kafka)) == []
