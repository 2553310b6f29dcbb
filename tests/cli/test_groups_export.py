"""`eoctl groups export`: committed offsets as lines for Kafka's tool, and for `groups import`."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from tests import groups
from tests.changes import in_80_columns, notes_of, rows_of
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

HOSTILE = ["a,b", 'say "hi"', "אב\u202e", "g" * 249, " a ", "{", "#", "\ufeffx", "a\\b", "a\rb"]


def test_as_kafkas_tool_takes_them(kafka: Path, eoctl: Cli) -> None:
    """With and without groups; nothing is changed."""
    before = tree_of(kafka)
    outcome = eoctl("groups", "export", kafka)
    assert (outcome.status, outcome.text) == (0, "ctp,txn,1,89\nplain-group,plain,1,200\n")
    outcome = eoctl("groups", "export", kafka, "--group", "ctp", "--no-group-column")
    assert (outcome.status, outcome.text) == (0, "txn,1,89\n")
    assert difference(before, tree_of(kafka)) == []


def test_json_lines_have_the_rest(kafka: Path, eoctl: Cli) -> None:
    outcome = eoctl("groups", "export", kafka, "--group", "ctp", "-o", "jsonl")
    assert rows_of(outcome, "group_offset") == [
        {
            "group": "ctp", "topic": "txn", "partition": 1, "offset": 89, "leader_epoch": 0,
            "metadata": "", "commit_timestamp_ms": 1795229910164,
        }
    ]  # fmt: skip


def test_into_a_file(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """That is new, and in no log dir; also as JSON Lines."""
    target = tmp_path / "offsets.csv"
    outcome = eoctl("groups", "export", kafka, "--to", target)
    assert (outcome.status, outcome.text) == (0, "")
    assert f"{target}: 2 offsets of 2 groups" in outcome.errors
    assert target.read_text() == "ctp,txn,1,89\nplain-group,plain,1,200\n"
    assert eoctl("groups", "export", kafka, "--to", target).status == 3
    assert eoctl("groups", "export", kafka, "--to", kafka / "x.csv").status == 4
    assert eoctl("groups", "export", kafka, "--to", tmp_path / "no" / "x.csv").status == 3
    assert eoctl("groups", "export", kafka, "--to", tmp_path / "x", "-o", "msgpack").status == 2
    lines = tmp_path / "offsets.jsonl"
    assert eoctl("groups", "export", kafka, "--to", lines, "-o", "jsonl").status == 0
    assert [json.loads(each)["offset"] for each in lines.read_text().splitlines()] == [89, 200]


def test_a_file_of_rfc_4180(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """As on standard output, with a line of names; text is the CSV of Kafka's tool, as before."""
    groups.commit(kafka, 'two "lines"\nof, a name', "plain", 0, 1)
    printed = eoctl("groups", "export", kafka, "-o", "csv")
    assert printed.stdout.startswith(b"group,topic,partition,offset,leader_epoch,metadata,commit_")
    target = tmp_path / "offsets.csv"
    for options in ((), ("--table", "group_offset")):
        outcome = eoctl("groups", "export", kafka, "--to", target, "-o", "csv", *options)
        assert (outcome.status, outcome.text) == (0, ""), outcome.errors
        assert target.read_bytes() == printed.stdout
        target.unlink()
    assert "3 offsets of 3 groups" in outcome.errors
    columns = ("--columns", "offset,group")
    outcome = eoctl("groups", "export", kafka, "--to", target, "-o", "csv", *columns)
    assert (outcome.status, outcome.text) == (0, ""), outcome.errors
    assert target.read_text().startswith("offset,group\n")
    target.unlink()
    outcome = eoctl("groups", "export", kafka, "--to", target, "-o", "csv", "--table", "segment")
    assert outcome.status == 2
    assert not target.exists()
    outcome = eoctl("groups", "export", kafka, "--to", target, "-o", "csv", "--topic", "none")
    assert outcome.status == 0
    assert target.read_bytes() == printed.stdout.partition(b"\n")[0] + b"\n"


def test_names_and_globs(kafka: Path, eoctl: Cli) -> None:
    groups.commit(kafka, "app[1]", "plain", 0, 3)
    groups.commit(kafka, "app2", "txn", 0, 4)

    def exported(*arguments: str) -> list[str]:
        outcome = eoctl("groups", "export", kafka, *arguments)
        assert outcome.status == 0, outcome.errors
        return outcome.text.splitlines()

    assert exported("--group", "app*") == ["app2,txn,0,4", "app[1],plain,0,3"]
    assert exported("--group", "app[1]") == ["app[1],plain,0,3"]
    assert exported("--group", "app2", "--group", "c?p") == ["app2,txn,0,4", "ctp,txn,1,89"]
    assert exported("--topic", "t*") == ["app2,txn,0,4", "ctp,txn,1,89"]
    assert exported("--topic", "nothing") == []
    assert eoctl("groups", "export", kafka, "--group", "none*").status == 2
    assert eoctl("groups", "export", kafka, "--group", "nobody").status == 2
    outcome = eoctl("groups", "export", kafka, "--no-group-column")
    assert outcome.status == 2
    assert "These are of 4" in outcome.errors


def test_hostile_names(kafka: Path, eoctl: Cli) -> None:
    """All can be said in JSON Lines, and all but those with line feeds in CSV."""
    for name in HOSTILE:
        groups.commit(kafka, name, "plain", 0, 1)
    outcome = eoctl("groups", "export", kafka)
    assert outcome.status == 0
    assert '"a,b",plain,0,1\n' in outcome.text
    assert '"say ""hi""",plain,0,1\n' in outcome.text
    groups.commit(kafka, "two\nlines", "plain", 0, 1)
    outcome = eoctl("groups", "export", kafka)
    assert outcome.status == 5
    assert "two" not in outcome.text
    assert "1 offset is left out" in outcome.errors
    outcome = eoctl("groups", "export", kafka, "-o", "jsonl")
    assert outcome.status == 0
    found = {each["group"] for each in rows_of(outcome, "group_offset")}
    assert found == {*HOSTILE, "two\nlines", "ctp", "plain-group"}


def test_what_does_not_count_is_left_out(kafka: Path, eoctl: Cli) -> None:
    """What is pending in a transaction; offsets outside of their logs are given, and told."""
    groups.pending(kafka, "app", "plain", 0, 5, producer_id=9)
    groups.commit(kafka, "app", "plain", 1, 10**6)
    outcome = eoctl("groups", "export", kafka, "--group", "app", "-o", "jsonl")
    assert outcome.status == 0
    assert [each["partition"] for each in rows_of(outcome, "group_offset")] == [1]
    reported = " ".join(notes_of(outcome))
    assert "1 offset is pending" in reported
    assert "app: plain-1 at 1000000 is beyond-end of its log 0..221" in reported


def test_parts_that_are_not_here(kafka: Path, eoctl: Cli) -> None:
    shutil.rmtree(groups.home_of(kafka, "ctp"))
    outcome = eoctl("groups", "export", kafka)
    assert (outcome.status, outcome.text) == (5, "plain-group,plain,1,200\n")
    assert eoctl("groups", "export", kafka, "--group", "plain-group").status == 0
    assert eoctl("groups", "export").status == 2


def test_on_a_terminal_it_is_a_table(kafka: Path) -> None:
    shown = in_80_columns("groups", "export", "kafka", "--now", "2026-11-22").splitlines()
    assert shown[1].split() == [
        "group",
        "partition",
        "offset",
        "epoch",
        "metadata",
        "commit",
        "timestamp",
    ]
    assert all(len(line) <= 80 for line in shown if "verified" not in line)
