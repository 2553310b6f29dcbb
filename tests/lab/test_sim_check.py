"""eoctl sim check: simulated clusters, histories alone, histories with log dirs."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.checker.rules import RULES
from tests.lab.histories import PLANTED, Story
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Run = Callable[..., Outcome]


MAN = Path(__file__).parents[2] / "man"


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(each) for each in outcome.text.splitlines()]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    story = Story(random.Random(3))
    for number in range(6):
        story.send(number % 2)
    story.finish()
    path = tmp_path / "history.jsonl"
    path.write_bytes(story.data())
    return path


@pytest.fixture
def lossy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    story = Story(random.Random(3))
    for _ in range(5):
        PLANTED["lost-write"](story)
    story.finish()
    path = tmp_path / "lossy.jsonl"
    path.write_bytes(story.data())
    return path


def test_a_sound_history_alone(eoctl: Run, history: Path) -> None:
    outcome = eoctl("sim", "check", "--history", history.name)
    assert outcome.status == 0
    assert "nothing is wrong: 6 acknowledged records, 12 records read" in outcome.errors
    assert on_terminal("sim", "check", "--history", history.name, cwd=history.parent).lines == [
        "OK      history.jsonl: nothing is wrong: 6 acknowledged records, 12 records",
        "        read, 2 partitions",
        "        22 lines of history",
    ]


def test_a_loss_is_shown_with_the_lines_that_bear_witness(eoctl: Run, lossy: Path) -> None:
    outcome = eoctl("sim", "check", "--history", lossy.name, "-o", "jsonl")
    assert outcome.status == 1
    lost = [each for each in rows(outcome) if each["kind"] == "lost-write"]
    assert len(lost) == 5
    assert lost[0]["witness"][0].startswith("lossy.jsonl:")
    assert "q sends" in lost[0]["witness"][0]
    shown = on_terminal("sim", "check", "--history", lossy.name, cwd=lossy.parent)
    assert shown.status == 1
    assert shown.lines[0].startswith(
        "WRONG   lossy.jsonl: 5 lost-write (reported as written, and gone)"
    )
    assert any(re.match(r"  line \d+, .* s: q sends v\d+ to t-\d", each) for each in shown.lines)
    assert "2 more of lost-write" in shown.text
    assert "--directory LOG-DIR..." in shown.text
    assert all(len(each) <= 80 for each in shown.lines if not each.startswith("Next"))
    text = eoctl("sim", "check", "--history", lossy.name)
    assert text.text.splitlines()[0].split("\t") == [
        "kind", "partition", "offset", "value", "words", "line",
    ]  # fmt: skip


def test_with_log_dirs(eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated cluster, called by its files: the same answer; one of its replicas damaged: told."""
    monkeypatch.chdir(tmp_path)
    assert eoctl("sim", "init", "play").status == 0
    assert eoctl("sim", "run", "play", "--records", 40).status == 0
    logs = [word for number in range(3) for word in ("--directory", f"play/node-{number}")]
    call = ["sim", "check", "--history", "play/history-1.jsonl", *logs]
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert "3 replicas" in outcome.errors
    log = tmp_path / "play" / "node-1" / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    outcome = eoctl(*call, "-o", "jsonl")
    assert outcome.status == 1
    assert {each["kind"] for each in rows(outcome)} == {"damaged-replica"}
    assert "eoctl check play/node-0/t-0" in outcome.errors
    one = eoctl(
        "sim", "check", "--history", "play/history-1.jsonl", "--directory", "play/controller"
    )
    assert one.status == 5
    assert "no directory of t-0 is given" in one.errors
    assert eoctl(*call, "--directory", "nowhere").status in {1, 3}


def test_two_runs_are_told_apart(
    eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert eoctl("sim", "init", "play").status == 0
    for _ in range(2):
        run = eoctl("sim", "run", "play", "--records", 40, "--faults", "power all at 50%")
        assert run.status == 0
    outcome = eoctl("sim", "check", "play", "-o", "jsonl")
    witnesses = {each.split(":")[0] for row in rows(outcome) for each in row["witness"]}
    assert outcome.status == 1
    assert {Path(each).name for each in witnesses} == {"history-1.jsonl", "history-2.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "neither a simulated cluster nor a history"),
        (["--directory", "."], 2, "neither a simulated cluster nor a history"),
        (["--history", "nowhere"], 3, "nowhere"),
        (["--history", "."], 4, "is no plain file"),
        (["--history", "pipe"], 4, "is no plain file"),
        (["--history", "empty"], 4, "is empty"),
        (["--history", "zeros"], 4, "line 1"),
        (["--history", "history.jsonl", "."], 4, "is no simulated cluster"),
    ],
)
def test_wrong_calls(
    eoctl: Run, history: Path, arguments: list[str], status: int, words: str
) -> None:
    (history.parent / "empty").touch()
    (history.parent / "zeros").write_bytes(bytes(1000))
    os.mkfifo(history.parent / "pipe")
    outcome = eoctl("sim", "check", *arguments)
    assert (outcome.status, words in outcome.errors) == (status, True), outcome.errors


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda data: data + b'{"type":', 5, "its last line has no end"),
        (lambda data: data + b"\x00\xff\n", 5, "line 23: no JSON"),
        (lambda data: data.replace(b"\n", b"\r\n"), 0, "nothing is wrong"),
        (lambda data: data.replace(b'"id": 2,', b'"id": 2222,', 1), 5, "which no line before has"),
        (lambda data: data.replace(b'"op": "send"', b'"op": "melt"', 1), 5, "op 'melt'"),
        (lambda data: data.replace(b'"offset": 0', b'"offset": 9' + b"9" * 30, 1), 5, "none"),
        (lambda data: b"\n".join(data.split(b"\n")[:1]) + b"\n", 0, "nothing is wrong"),
    ],
)
def test_lines_that_cannot_be_judged(
    eoctl: Run, history: Path, change: Callable[[bytes], bytes], status: int, words: str
) -> None:
    history.write_bytes(change(history.read_bytes()))
    outcome = eoctl("sim", "check", "--history", history.name)
    assert (outcome.status, words in outcome.errors) == (status, True), outcome.errors


def test_a_last_line_without_an_end_is_not_verified(eoctl: Run, history: Path) -> None:
    """What it says may be an acknowledgement: the disk was full, or another run still writes."""
    whole = history.read_bytes()
    for cut in (2, 20, len(whole.splitlines(keepends=True)[-1]) - 1):
        history.write_bytes(whole[:-cut])
        outcome = eoctl("sim", "check", "--history", history.name)
        assert outcome.status == 5, outcome.errors
        assert f"the last line of {history.name}, which has no end" in outcome.errors
        assert "nothing is wrong" not in outcome.errors


def test_a_history_that_nobody_read_is_not_verified(eoctl: Run, history: Path) -> None:
    lines = [each for each in history.read_text().splitlines() if '"poll"' not in each]
    history.write_text("\n".join(lines) + "\n")
    outcome = eoctl("sim", "check", "--history", history.name)
    assert outcome.status == 5
    assert "6 acknowledged values may still come (unseen)" in outcome.errors


def test_hostile_values_do_not_reach_the_terminal(eoctl: Run, tmp_path: Path) -> None:
    story = Story(random.Random(3))
    for value in ("\x1b[2J\u202eabc\n\x07", "\ud800", "x" * 100_000):
        sent = story.invoke(0, value=value)
        story.answer(sent, "ok", story.append(sent))
        story.append(sent)
    story.finish()
    path = tmp_path / "history.jsonl"
    path.write_bytes(story.data())
    shown = on_terminal("sim", "check", "--history", path)
    assert shown.status == 1
    assert "\x1b[2J" not in shown.raw
    assert "\u202e" not in shown.raw
    assert max(map(len, shown.lines[1:])) < 400
    outcome = eoctl("sim", "check", "--history", path, "-o", "jsonl")
    assert outcome.status == 1
    assert len(rows(outcome)) == 3


def test_the_manual_has_each_rule_in_its_words() -> None:
    page = (MAN / "eoctl-sim.1").read_text()
    listed = page[page.index(".Ss check") : page.index(".Ss explore")]
    reported = dict(re.findall(r"^\.It Cm (\S+)\n((?:[^.].*\n)+)", listed, re.MULTILINE))
    assert {name: text.replace("\n", " ").strip() for name, text in reported.items()} == {
        each.name: each.meaning for each in RULES.values()
    }
