"""How output looks: the formats, the columns that are wanted, colours, and the pager."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from typing import TYPE_CHECKING

import pytest

from tests.changes import rows_of
from tests.damage.planted.layout import flip
from tests.kafka.broker import copy_log_dir
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

LOG = "00000000000000000000.log"
INDEX = "txn-0/00000000000000000000.index"


@pytest.fixture
def clean(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = golden("kafka-4.3.1")
    monkeypatch.chdir(directory)
    return directory


pytestmark = pytest.mark.usefixtures("clean")


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        ("describe", "clean/txn-0", "clean/txn-1"),
        ("dump-segment", f"clean/{INDEX}"),
        ("dump-segment", f"clean/txn-0/{LOG}", "--print-data-log"),
        ("consume", "clean/idem-lz4-0"),
        ("consume", "clean/txn-0", "--max-messages", "0"),
        ("txn", "list", "clean", "--now", "0"),
        ("check", "--explain", "BAT-1"),
    ],
)
def test_json_is_one_array_of_the_lines_of_jsonl(
    call: tuple[str, ...], eoctl: Callable[..., Outcome]
) -> None:
    lines, array = eoctl(*call, "-o", "jsonl"), eoctl(*call, "-o", "json")
    assert json.loads(array.text) == [json.loads(each) for each in lines.stdout.splitlines()]
    assert array.text.endswith("]\n")
    assert (array.status, array.stderr) == (lines.status, lines.stderr)


def test_json_is_whole_after_an_error(eoctl: Callable[..., Outcome]) -> None:
    """What came before it is there, and the status tells."""
    outcome = eoctl("dump-segment", f"clean/{INDEX}", "nothing/here.log", "-o", "json")
    assert outcome.status == 5
    assert json.loads(outcome.text)[-1]["kind"] == "verdict"
    assert json.loads(outcome.errors)["error"] == "AccessError"
    assert json.loads(eoctl("describe", "nothing-0", "-o", "json").text) == []


def test_text_in_a_pipe_and_on_demand(eoctl: Callable[..., Outcome]) -> None:
    call = ("recover-state", "clean/txn-0", "--now", "0")
    assert eoctl(*call).stdout == eoctl(*call, "--output", "text").stdout
    shown = on_terminal(*call, "--output", "text", streams=("stdout",))
    assert shown.text == eoctl(*call).text
    assert eoctl(*call).text.startswith("producerId: 32 producerEpoch: 0 ")


def test_a_table_on_demand(eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a pipe, in the width that COLUMNS says, without colours."""
    monkeypatch.setenv("COLUMNS", "40")
    shown = eoctl("describe", "clean/txn-0", "-o", "table").text
    assert shown.startswith("txn-0: offsets 0 to 328, 329 records,\n")
    assert "\npartition               txn-0\n" in shown
    assert max(map(len, shown.splitlines()[:8])) <= 40


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (INDEX, "pos  offset"), ("txn-0/00000000000000000000.txnindex", "producer"),
        ("txn-0/00000000000000000329.snapshot", "producer"), ("meta.properties", "cluster id"),
        ("txn-0/leader-epoch-checkpoint", "epoch"), ("replication-offset-checkpoint", "txn-0"),
        ("txn-0/partition.metadata", "topic id"),
    ],
)  # fmt: skip
def test_files_that_are_no_logs_are_tables_on_a_terminal(
    name: str, words: str, eoctl: Callable[..., Outcome]
) -> None:
    shown = on_terminal("dump-segment", f"clean/{name}")
    assert (shown.status, shown.lines[0]) == (0, f"Dumping clean/{name}")
    assert words in shown.text
    text = on_terminal("dump-segment", f"clean/{name}", "-o", "text", streams=("stdout",)).text
    assert text == eoctl("dump-segment", f"clean/{name}").text != shown.text


def test_logs_are_lines_on_a_terminal(eoctl: Callable[..., Outcome]) -> None:
    call = ("dump-segment", f"clean/txn-0/{LOG}")
    assert on_terminal(*call, streams=("stdout",)).text == eoctl(*call).text


def test_what_is_wrong_is_told_below_a_table(golden: Callable, tmp_path: Path) -> None:
    kafka = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    path = kafka / "txn-0" / "00000000000000000329.snapshot"
    flip(path, path.stat().st_size - 1)
    shown = on_terminal("dump-segment", path)
    assert shown.status == 1
    assert "eoctl: " in shown.text
    assert "producer" in shown.lines[1] + shown.lines[2]


# --- columns --------------------------------------------------------------------------------------


def test_columns_in_every_format(eoctl: Callable[..., Outcome]) -> None:
    call = ("describe", "clean/txn-0", "clean/txn-1", "--columns", "LSO,topic")
    assert eoctl(*call).text == "last_stable_offset\ttopic\n311\ttxn\n282\ttxn\n"
    assert rows_of(eoctl(*call, "-o", "jsonl")) == [
        {"kind": "partition", "last_stable_offset": 311, "topic": "txn"},
        {"kind": "partition", "last_stable_offset": 282, "topic": "txn"},
    ]
    assert on_terminal(*call, streams=("stdout",)).text.split() == [
        "LSO", "topic", "311", "txn", "282", "txn",
    ]  # fmt: skip
    dumped = rows_of(eoctl("dump-segment", f"clean/{INDEX}", "-o", "jsonl", "--columns", "offset"))
    assert dumped[0] == {"kind": "index_entry", "offset": 10}


@pytest.mark.parametrize("option", [("--columns", "all"), ("--wide",)])
def test_all_columns(option: tuple[str, ...], eoctl: Callable[..., Outcome]) -> None:
    """Whatever the width: where they have no room, each row is written one field a line."""
    call = ("describe", "clean/txn-0", "clean/txn-1", *option)
    names = eoctl(*call).text.partition("\n")[0].split("\t")
    assert names == eoctl(*call[:3]).text.partition("\n")[0].split("\t")
    shown = on_terminal(*call).text
    assert len(re.findall(r"^replication factor +1$", shown, re.MULTILINE)) == 2
    assert len(re.findall(r"^path +clean/txn-", shown, re.MULTILINE)) == 2
    assert "not shown" not in shown


def test_a_column_that_is_nowhere_is_a_wrong_call(eoctl: Callable[..., Outcome]) -> None:
    outcome = eoctl("describe", "clean/txn-0", "--columns", "topic,nothing")
    assert outcome.status == 2
    assert "--columns nothing: not among topic, partition, " in outcome.errors
    # A report that has none of them is left out; one that has is enough.
    assert eoctl("describe", "clean/txn-0", "--columns", "base_offset").status == 0


def test_records_have_no_columns(eoctl: Callable[..., Outcome]) -> None:
    outcome = eoctl("consume", "clean/txn-0", "--columns", "key")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert "--columns: records are printed whole" in outcome.errors


# --- colours --------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_colours(eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("describe", "clean/txn-0", "clean/plain-0")
    assert "\x1b[32mok" in on_terminal(*call).raw
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(*call, environment=environment).raw
    assert "\x1b" not in on_terminal(*call, "--color", "never").raw
    forced = on_terminal(*call, "--color", "always", environment={"NO_COLOR": "1"})
    assert "\x1b[32mok" in forced.raw
    monkeypatch.setenv("COLUMNS", "80")
    assert "\x1b" not in eoctl(*call, "-o", "table").text
    assert "\x1b[32mok" in eoctl(*call, "-o", "table", "--color", "always").text


@pytest.mark.parametrize("width", ["9" * 5000, "0", "-5", "wide", "\N{SUPERSCRIPT TWO}"])
def test_a_width_that_is_none(
    eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    done = eoctl("describe", "clean/txn-0", "-o", "table")
    assert done.status == 0, done.errors
    assert max(map(len, done.text.splitlines())) <= 80


# --- the pager ------------------------------------------------------------------------------------


@pytest.fixture
def pager(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """One that keeps what it is given: the environment that names it, and the file."""
    kept = tmp_path / "paged"
    return {"EOCTL_PAGER": f"sh -c {shlex.quote(f'cat > {kept}')}"}, kept


def test_what_is_longer_than_the_screen_is_paged(pager: tuple[dict[str, str], Path]) -> None:
    """Rows and words, each where it belongs; with colours, and as without a pager otherwise."""
    environment, kept = pager
    call = ("describe", "clean", "-q")
    plain = on_terminal(*call, "--no-pager", rows=10, environment=environment)
    assert len(plain.lines) > 10
    assert not kept.exists()
    paged = on_terminal(*call, rows=10, environment=environment)
    assert (paged.raw, paged.status) == ("", plain.status)
    assert kept.read_text() == plain.raw


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("environment", "rows"),
    [
        ({"EOCTL_PAGER": ""}, 10), ({"EOCTL_PAGER": "cat"}, 10), ({"TERM": "dumb"}, 10),
        ({"EOCTL_PAGER": "nosuch-pager"}, 10), ({"EOCTL_PAGER": "'"}, 10), ({}, 0),
        ({"EOCTL_PAGER": "$HOME/nosuch-pager"}, 10),
    ],
)  # fmt: skip
def test_where_there_is_no_pager(
    pager: tuple[dict[str, str], Path], environment: dict[str, str], rows: int
) -> None:
    given = {**pager[0], **environment}
    shown = on_terminal("describe", "clean", rows=rows, environment=given)
    assert (shown.status, pager[1].exists()) == (0, False)
    assert "txn-1" in shown.text
    assert " ".join(shown.text.split()).endswith("in clean/__cluster_metadata-0")


def test_what_fits_is_not_paged(pager: tuple[dict[str, str], Path]) -> None:
    shown = on_terminal("describe", "clean", rows=200, environment=pager[0])
    assert "txn-1" in shown.text
    assert not pager[1].exists()


@pytest.mark.parametrize("call", [("describe", "clean"), ("dump-segment", f"clean/txn-0/{LOG}")])
def test_a_pager_that_is_left_early(call: tuple[str, ...]) -> None:
    """The command ends in silence."""
    shown = on_terminal(*call, rows=10, environment={"EOCTL_PAGER": "head -n 1"})
    assert len(shown.lines) == 1, shown.raw
    assert shown.status in (0, 141)


def test_a_pager_of_a_shell(tmp_path: Path) -> None:
    """As git takes it: nothing of the answer is lost between two programs."""
    kept = tmp_path / "paged"
    environment = {"EOCTL_PAGER": f"tr a-z A-Z | cat > {shlex.quote(str(kept))}"}
    assert on_terminal("describe", "clean", "-q", rows=10, environment=environment).raw == ""
    assert "TXN-1" in kept.read_text()


def test_colours_in_less_whatever_it_is_told(tmp_path: Path) -> None:
    environment = {"EOCTL_PAGER": f"echo $LESS > {tmp_path}/told; cat > /dev/null"}
    on_terminal("describe", "clean", rows=10, environment={**environment, "LESS": "-i"})
    assert (tmp_path / "told").read_text() == "-R -i\n"


def test_undo_is_not_paged(
    golden: Callable, tmp_path: Path, pager: tuple[dict[str, str], Path], eoctl: Callable
) -> None:
    """It changes files without being asked twice."""
    kafka = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    cut = ("truncate", kafka / "txn-0", "--to-offset", "311", "--single-copy", "--apply")
    assert eoctl(*cut).status == 0
    (journal,) = (tmp_path / "kafka.eoctl").iterdir()
    shown = on_terminal("undo", journal, rows=2, environment=pager[0])
    assert "undone" in shown.text
    assert not pager[1].exists()


def test_what_changes_files_is_not_paged(
    golden: Callable, tmp_path: Path, pager: tuple[dict[str, str], Path]
) -> None:
    """How a change is undone is said at once."""
    kafka = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    call = ("truncate", kafka / "txn-0", "--to-offset", "311", "--single-copy", "--apply")
    shown = on_terminal(*call, rows=2, environment=pager[0])
    assert shown.status == 0
    assert "eoctl undo " in shown.text
    assert not pager[1].exists()


def test_less_as_it_is() -> None:
    """A person scrolls, and leaves it: the command waits, and ends as without it."""
    pressed = []

    def press(shown: str, terminal: int) -> None:
        if not pressed and ("\n:" in shown or shown.rstrip().endswith(":")):
            pressed.append(time.monotonic())
            os.write(terminal, b"q")

    shown = on_terminal("describe", "clean", rows=10, environment={"PAGER": "less"}, react=press)
    assert pressed
    assert shown.status in (0, 141)
    assert "Traceback" not in shown.text
