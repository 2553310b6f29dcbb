"""Twelve questions of operators: each answered in ten lines, on a terminal and in a pipe.

Each call is one that an operator would guess, or that the answer before it names.
"""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.kafka.broker import copy_log_dir
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINES = 10


class Question(NamedTuple):
    """A question, the calls that answer it, and what the last one's first lines say.

    Attributes:
        calls: at most two; `kafka` is a log dir that was killed, `whole` a copy of it from before.
        answers: patterns of lines, all of which are there.
        before: calls that bring the state about.
    """

    asked: str
    calls: tuple[str, ...]
    answers: tuple[str, ...]
    before: tuple[str, ...] = ()


CUT = "truncate kafka/plain-0 --to-offset 60 --single-copy --apply"
NEW = "produce kafka/plain-0 lines --single-copy --apply"
LATER = "--now 2026-11-21T05:00:00Z"
QUESTIONS = [
    Question("will it start", ("check kafka",), (r"^Start +Kafka \d\S+ will start",)),
    Question(
        "why are consumers stuck", (f"check kafka {LATER}",),
        (r"^Blocked +.*txn-0 stops at 311 of 329", r"^Next +eoctl txn hanging kafka"),
    ),
    Question(
        "which transactions hang, and what ends them", (f"txn hanging kafka {LATER}",),
        (r"^Late +2 transactions in 2 partitions", r"^Blocked +txn-0: open-1, overdue since 2026",
         r"eoctl txn complete kafka --transactional-id open-1"),
    ),
    Question(
        "what was lost, and which keys", ("loss kafka", "diff whole kafka --topic plain"),
        (r"^Records +125 only in A, 0 only in B", r"^gone +plain-0 +54 +k\d+"), (CUT,),
    ),
    Question(
        "retry or bug", ("duplicates kafka",),
        (r"^Found +14 duplicate records", r"^Cause +11 records: another producer session"),
    ),
    Question("which broker first", ("start-order kafka",), (r"^Start +broker 1$", r"^Lost +nothing")),
    Question(
        "get the data out", ("export kafka/plain-0 --to out",),
        (r"^Wrote +179 records of 1 partition",),
    ),
    Question(
        "the disk is full", ("reclaim kafka",),
        (r"^Room +a start needs up to [\d.]+ \wi?B, .* are free.*",),
    ),
    Question(
        "who wrote offset 100", ("locate kafka/plain-0 --offset 100",),
        (r"^offset 100: a producer without idempotence, leader epoch 0", r"key k35, at 2026-11-21"),
    ),
    Question(
        "prove that nothing differs", ("diff whole kafka",),
        (r"^Records +0 only in A, 0 only in B, 0 changed, 2,5\d\d equal", r"^Groups +equal"),
    ),
    Question(
        "how far behind were the groups", ("groups list kafka",),
        (r"^2 groups, 2 behind by 226 offsets", r"eoctl groups describe kafka --group ctp"),
    ),
    Question(
        "take it back", ("journal list kafka", "undo kafka"),
        (r"^Done +undid truncate, restored \d+ files",), (CUT,),
    ),
]  # fmt: skip


@pytest.fixture
def place(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "kafka")
    shutil.copytree(tmp_path / "kafka", tmp_path / "whole", symlinks=True)
    (tmp_path / "lines").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_twelve() -> None:
    assert len(QUESTIONS) == 12
    assert all(1 <= len(each.calls) <= 2 for each in QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS, ids=[each.asked for each in QUESTIONS])
@pytest.mark.parametrize("place_of_answer", ["terminal", "pipe"])
def test_the_answer_is_in_ten_lines(
    question: Question, place_of_answer: str, place: Path, eoctl: Callable[..., Any]
) -> None:
    """At 80 columns above the tables; in a pipe on stderr, or as the first rows."""
    for each in question.before:
        assert eoctl(*shlex.split(each)).status == 0
    *first, last = (shlex.split(each) for each in question.calls)
    for each in first:
        eoctl(*each)
    if place_of_answer == "terminal":
        lines = on_terminal(*last, cwd=place).lines
        wide = [each for each in lines if len(each) > 80 and "eoctl " not in each]
        assert [each for each in wide if str(place) not in each] == []
        first_lines = [line for line in lines if line.strip()][:LINES]
    else:
        done = eoctl(*last)
        rows = [line.replace("\t", " ") for line in done.text.splitlines()]
        first_lines = [*rows[:LINES], *done.errors.splitlines()[:LINES]]
        assert "level" not in done.errors
    text = "\n".join(first_lines)
    for pattern in question.answers:
        loose = pattern.replace("plain-0 +54 +", "plain[- ]0 +54 .*")
        assert re.search(loose, text, re.MULTILINE), f"{pattern} not in:\n{text}"
