"""Help in panels with examples; wrong calls told in our words."""

from __future__ import annotations

import importlib
import json
import re
from typing import TYPE_CHECKING

import pytest

from eoctl.help.examples import EXAMPLES
from eoctl.help.old_names import OLD_NAMES
from eoctl.help.panels import Panel
from eoctl.main import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _calls() -> list[str]:
    """Every command, and every command of one."""
    found = [""]
    for name, entry in COMMANDS.items():
        module = importlib.import_module(entry.module)
        found += [name, *(f"{name} {each}" for each in getattr(module, "SUBCOMMANDS", ()))]
    return found


CALLS = _calls()


def test_every_call_has_its_examples() -> None:
    assert {*EXAMPLES} == {*CALLS}
    assert all(each.call.startswith("eoctl ") or "| eoctl " in each.call
               for pair in EXAMPLES.values() for each in pair)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_help_of_every_call(call: str, eoctl: Callable) -> None:
    """Three ways to it, 80 columns, panels in their order, two examples, and the page."""
    words = call.split()
    outcome = eoctl(*words, "--help")
    assert (outcome.status, outcome.errors) == (0, "")
    assert eoctl(*words, "-h") == outcome
    assert eoctl("help", *words) == outcome
    lines = outcome.text.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    headings = re.findall(r"^(\w[\w ]+):$", outcome.text, re.MULTILINE)
    panels = [each for each in headings if each in [*Panel]]
    if call in ("", "txn", "lease-pid"):
        assert headings == ["Options", "Commands", "Examples"]
    else:
        assert panels == [each for each in Panel if each in panels]
        assert panels
        assert headings == ["Arguments", *panels, "Examples"]
    shown = outcome.text.partition("\nExamples:\n")[2].replace(" \\\n     ", "")
    calls = [line.strip() for line in shown.splitlines() if line.startswith("    ")]
    assert calls == [each.call for each in EXAMPLES[call]]
    assert lines[-1] == f"For details see man {'-'.join(['eoctl', *words[:1]])}"


OLD_WORDS = {name for names in OLD_NAMES.values() for name in names}
WRONG = [
    ("chek .", "chek: no such command", "eoctl check"),
    ("help chek", "chek: no such command", "eoctl check"),
    ("zzz", "zzz: no such command", "eoctl --help"),
    ("txn hangin .", "hangin: no such command", "eoctl txn hanging"),
    ("check --predic .", "--predic: no such option", "--predict"),
    ("check --zzz .", "--zzz: no such option", "eoctl check --help"),
    ("consume", "PARTITION is missing", "eoctl consume --help"),
    ("rebuild", "PARTITION is missing", "eoctl rebuild --help"),
    ("replicas", "ACTION is missing", "eoctl replicas --help"),
    ("txn abort x", "--producer-id is missing", "eoctl txn abort --help"),
    ("consume x --max-messages y", "--max-messages: 'y' is not a whole number", "eoctl consume"),
    ("consume x --max-messages -1", "--max-messages: -1 is not in the range x>=0", "eoctl consume"),
    ("consume x --isolation y", "--isolation: 'y' is not one of 'read_un", "eoctl consume --help"),
    ("replicas comp x", "ACTION: 'comp' is not one of 'compare', 'rejoin'", "eoctl replicas"),
    ("consume x y z", "y z: not expected here", "eoctl consume --help"),
    ("consume x --group", "--group: needs a value", "eoctl consume --help"),
    ("--zzz", "--zzz: no such option", "eoctl --help"),
]


@pytest.mark.parametrize(("call", "words", "next_step"), WRONG)
def test_a_wrong_call(call: str, words: str, next_step: str, eoctl: Callable) -> None:
    """What is wrong and what to try, in two lines, as of all errors; status 2."""
    outcome = eoctl(*call.split())
    assert (outcome.status, outcome.text) == (2, "")
    first, second = outcome.errors.splitlines()
    assert first.startswith(f"eoctl: {words}")
    assert second.startswith(f"  try: {next_step}")


@pytest.mark.parametrize("option", ["--output jsonl", "--output=msgpack", "-ojson", "-o jsonl"])
def test_a_wrong_call_of_a_program(option: str, eoctl: Callable) -> None:
    outcome = eoctl("consume", *option.split(), "--nonsense", "x")
    error = json.loads(outcome.errors)
    assert (outcome.status, outcome.text) == (2, "")
    assert error["error"] == "UsageError"
    assert error["exit_status"] == 2
    assert error["level"] == "error"
    assert error["message"] == "--nonsense: no such option"
    assert error["next_step"] == "eoctl consume --help"


OLD = [
    (("check", "t-0", "--producer-id-expiration-ms", "5"), "--producer-expiry-ms"),
    (("produce", "d", "--topic=t"), "--to-topic"),
    (("copy", "d", "e", "--topic", "t"), "--to-topic"),
    (("txn", "run", "s", "--to", "d", "--topic", "t", "--exec", "x", "--transactional-id", "x",
      "--group", "g"), "--to-topic"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "new"), OLD)
def test_an_old_name_works_and_is_not_shown(
    call: tuple[str, ...],
    new: str,
    eoctl: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line tells the name of now; behind `--` everything is an argument."""
    monkeypatch.chdir(tmp_path)
    (old,) = [each.partition("=")[0] for each in call if each.startswith(tuple(OLD_WORDS))]
    note = f"eoctl: {old} is an old name: {new} now"
    outcome = eoctl(*call)
    assert outcome.errors.splitlines()[0] == note
    assert "no such option" not in outcome.errors
    told = json.loads(eoctl(*call, "-o", "jsonl").errors.splitlines()[0])
    assert (told["level"], told["message"]) == ("note", note)
    place = call.index(next(each for each in call if each.startswith(old)))
    assert "old name" not in eoctl(*call[:place], "--", *call[place:]).errors
    words = call[:2] if call[0] == "txn" else call[:1]
    shown = eoctl(*words, "-h").text
    assert not re.search(rf"{old}\b(?!-)", shown)
    assert new in shown


def test_one_dialect_of_ranges(eoctl: Callable, kafka: Path) -> None:
    """A..B, both included, in every reader; the old bounds of export say the same."""
    calls = [
        ("consume", "--offsets", "3..5", "-o", "jsonl"),
        ("dump-segment", "--offsets", "3..5", "--deep-iteration", "-o", "jsonl"),
    ]
    for name, *options in calls:
        place = kafka / "plain-0" / (f"{0:020}.log" if name == "dump-segment" else "")
        rows = [json.loads(line) for line in eoctl(name, place, *options).text.splitlines()]
        assert [row["offset"] for row in rows if "offset" in row] == [3, 4, 5]
    exports = [
        ("--offsets", "3..5"),
        ("--from-offset", "3", "--to-offset", "6"),
        ("--offsets", "..5"),
        ("--to-offset", "6"),
        ("--times", "..2026-01-01"),
        ("--to-time", "2026-01-01"),
        ("--times", "2026-01-01.."),
        ("--from-time", "2026-01-01"),
    ]
    found = []
    for number, options in enumerate(exports):
        target = kafka.parent / str(number)
        outcome = eoctl("export", kafka / "plain-0", "--to", target, "--format", "jsonl", *options)
        assert ("is an old name" in outcome.errors) == (options[0] not in ("--offsets", "--times"))
        assert outcome.status == 0, outcome.errors
        found.append([each.read_bytes() for each in sorted(target.rglob("topic=*/**/*.jsonl"))])
    assert found[::2] == found[1::2]
    assert found[0] != found[2]
    refused = [
        ("export", kafka, "--to", "x", "--offsets", "3..5", "--to-offset", "6"),
        ("export", kafka, "--to", "x", "--offsets", "5..3"),
        ("export", kafka, "--to", "x", "--times", "soon.."),
        ("consume", kafka / "plain-0", "--offsets", "3..", "--from", "2"),
        ("consume", kafka / "plain-0", "--offsets", "-3..5"),
        ("dump-segment", kafka / "plain-0", "--offsets", ".."),
    ]
    assert [eoctl(*call).status for call in refused] == [2] * len(refused)
