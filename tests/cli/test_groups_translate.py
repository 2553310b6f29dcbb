"""`eoctl groups translate`: committed offsets of a source as those of its copy, by the sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import groups
from tests.changes import in_80_columns, notes_of, rows_of
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

TOPICS = ("--topic", "plain:2", "--topic", "txn:2", "--topic", "other:1")


@pytest.fixture
def copied(kafka: Path, tmp_path: Path, eoctl: Cli) -> Path:
    """A new log dir with copies of plain-1 and txn-1."""
    new = tmp_path / "new"
    assert eoctl("init", new, *TOPICS, "--apply").status == 0
    for name in ("plain-1", "txn-1"):
        outcome = eoctl("copy", kafka / name, new / name, "--apply")
        assert outcome.status == 0, outcome.errors
    return new


def rows(eoctl: Cli, *arguments: object, status: int = 0) -> list[dict[str, Any]]:
    outcome = eoctl("groups", "translate", *arguments, "-o", "jsonl")
    assert outcome.status == status, outcome.errors
    return rows_of(outcome, "translated_offset")


def test_groups_go_on_in_the_copy(kafka: Path, copied: Path, eoctl: Cli) -> None:
    """Without markers and aborted records the copy has other offsets; nothing is changed."""
    before = tree_of(kafka), tree_of(copied)
    found = rows(eoctl, kafka, "--copy", copied)
    assert [
        (each["group"], each["source_offset"], each["offset"], each["exactness"]) for each in found
    ] == [("ctp", 89, 60, "exact"), ("plain-group", 200, 200, "exact")]
    source = eoctl("consume", kafka / "txn-1", "--from", "89", "--max-messages", "1", "-o", "jsonl",
                   "--isolation", "read_committed")  # fmt: skip
    copy = eoctl("consume", copied / "txn-1", "--from", "60", "--max-messages", "1", "-o", "jsonl")
    ours, theirs = (json.loads(each.text.splitlines()[0]) for each in (source, copy))
    assert (ours["key"], ours["value"]) == (theirs["key"], theirs["value"])
    assert (difference(before[0], tree_of(kafka)), difference(before[1], tree_of(copied))) == (
        [], []
    )  # fmt: skip


def test_it_is_imported(kafka: Path, copied: Path, eoctl: Cli) -> None:
    """The lines are those of an export."""
    outcome = eoctl("groups", "translate", kafka, "--copy", copied)
    assert (outcome.status, outcome.text) == (0, "ctp,txn,1,60\nplain-group,plain,1,200\n")
    for name, arguments in (("a.csv", ()), ("b.jsonl", ("-o", "jsonl"))):
        call = ("groups", "translate", kafka, "--copy", copied, "--to", name, *arguments)
        assert eoctl(*call).status == 0
    texts = [Path(name).read_text() for name in ("a.csv", "b.jsonl")]
    assert texts[0] == "ctp,txn,1,60\nplain-group,plain,1,200\n"
    assert [json.loads(each)["offset"] for each in texts[1].splitlines()] == [60, 200]
    for name in ("a.csv", "b.jsonl"):
        assert eoctl("groups", "import", copied, "--from", name, "--apply").status == 0
        outcome = eoctl("groups", "export", copied)
        assert (outcome.status, outcome.text) == (0, texts[0])


def test_a_file_of_rfc_4180(kafka: Path, copied: Path, eoctl: Cli) -> None:
    """As on standard output."""
    call = ("groups", "translate", kafka, "--copy", copied, "-o", "csv")
    printed = eoctl(*call)
    assert printed.stdout.startswith(b"group,topic,partition,offset,exactness,")
    assert eoctl(*call, "--to", "offsets.csv").status == 0
    assert Path("offsets.csv").read_bytes() == printed.stdout


def test_into_a_topic_of_another_name(kafka: Path, copied: Path, eoctl: Cli) -> None:
    """Both copies have a session: it has to be said which one is meant."""
    assert eoctl("copy", kafka / "plain-1", copied / "other-0", "--apply").status == 0
    outcome = eoctl("groups", "translate", kafka, "--copy", copied)
    assert outcome.status == 2
    assert "has two sessions of copies" in outcome.errors
    session = next(copied.with_suffix(".eoctl").glob("copies/other-0.*"))
    (row,) = rows(eoctl, kafka, "--copy", copied, "--session", session, "--group", "plain-group")
    assert (row["topic"], row["partition"], row["offset"]) == ("other", 0, 200)


def test_partitions_that_were_not_copied(kafka: Path, copied: Path, eoctl: Cli) -> None:
    groups.commit(kafka, "app", "plain", 0, 3)
    groups.commit(kafka, "app", "plain", 1, 3)
    outcome = eoctl("groups", "translate", kafka, "--copy", copied, "--group", "app", "-o", "jsonl")
    assert outcome.status == 5
    assert [each["offset"] for each in rows_of(outcome, "translated_offset")] == [3]
    reported = " ".join(notes_of(outcome))
    assert "1 offset left out, of partitions that no session says are copied: plain-0" in reported


def test_what_is_rounded_down_is_told(kafka: Path, copied: Path, eoctl: Cli) -> None:
    """With the reason; where something is in the way, the exit status says so."""
    for path in (copied / "plain-1").glob("*.log"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    outcome = eoctl("groups", "translate", kafka, "--copy", copied, "-o", "jsonl")
    assert outcome.status == 5
    found = {each["group"]: each for each in rows_of(outcome, "translated_offset")}
    assert found["ctp"]["exactness"] == "exact"
    assert found["plain-group"]["exactness"] == "rounded-down"
    assert found["plain-group"]["offset"] < 200
    assert found["plain-group"]["reason"]
    assert any("1 rounded-down" in each for each in notes_of(outcome))


def test_wrong_calls(kafka: Path, copied: Path, tmp_path: Path, eoctl: Cli) -> None:
    assert eoctl("groups", "translate", kafka).status == 2
    assert eoctl("groups", "translate", kafka, "--copy", tmp_path / "gone").status in {2, 3}
    outcome = eoctl("groups", "translate", kafka, "--copy", kafka)
    assert outcome.status == 2
    assert "no session of a copy" in outcome.errors
    (tmp_path / "junk").write_bytes(b"junk")
    call = ("groups", "translate", kafka, "--copy", copied, "--session")
    assert eoctl(*call, tmp_path / "junk").status == 4
    assert eoctl(*call, tmp_path / "none").status == 3


def test_in_80_columns(copied: Path) -> None:
    shown = in_80_columns("groups", "translate", "kafka", "--copy", copied.name).splitlines()
    assert "exactness" in " ".join(shown[:4])
