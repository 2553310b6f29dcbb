"""Help in panels with examples; wrong calls told in our words."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl import main
from eoctl.declared import OLD_NAMES, Panel
from eoctl.help.examples import EXAMPLES
from eoctl.help.saved import PAGES, page_of, saved_help
from eoctl.verbs import COMMANDS
from tests.kafka.jars import missing_broker
from tests.saved_help import help_of_typer

if TYPE_CHECKING:
    from collections.abc import Callable


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
    if call in ("", "txn", "lease-pid", "groups", "sim"):
        assert headings == ["Options", "Commands", "Examples"]
    else:
        assert panels == [each for each in Panel if each in panels]
        assert panels
        without = ("bench", "sim explore", "sim scripts", "sim table")
        arguments = [] if call in without else ["Arguments"]
        assert headings == [*arguments, *panels, "Examples"]
    shown = outcome.text.partition("\nExamples:\n")[2].replace(" \\\n     ", "")
    calls = [line.strip() for line in shown.splitlines() if line.startswith("    ")]
    assert calls == [each.call for each in EXAMPLES[call]]
    assert lines[-1] == f"For details see man {'-'.join(['eoctl', *words[:1]])}"


def test_each_call_has_a_page_and_there_are_no_others() -> None:
    assert {str(each) for each in Path(PAGES).iterdir()} == {
        page_of(call.split()) for call in CALLS
    }


@pytest.mark.parametrize("call", CALLS)
def test_saved_help_is_typers(call: str) -> None:
    """As `python -m tests.saved_help` writes it."""
    assert saved_help([*call.split(), "-h"]) == help_of_typer(call.split())


@pytest.mark.parametrize("columns", [None, "x", "0", "60", "79", "80", "300"])
@pytest.mark.parametrize("terminal", [None, 0, 79, 200])
def test_saved_help_is_typers_at_every_width(
    columns: str | None,
    terminal: int | None,
    eoctl: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a pipe, on a terminal, and where COLUMNS says how wide."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    if terminal is not None:
        size = os.terminal_size((terminal, 24))
        monkeypatch.setattr(os, "get_terminal_size", lambda *_: size)
    calls = [("--help",), ("txn", "list", "-h"), ("help", "check")]
    found = [eoctl(*each) for each in calls]
    monkeypatch.setattr(main, "saved_help", lambda _: None)
    assert [eoctl(*each) for each in calls] == found


@pytest.mark.parametrize(
    "call",
    ["txn.list --help", "chek --help", "CHECK --help", "check -- --help", "check --help --help",
     "help txn lis", "check x --help", "--help check", "txn --help list", "-h --version"],
)  # fmt: skip
def test_help_of_odd_calls_is_typers(
    call: str, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = eoctl(*call.split())
    monkeypatch.setattr(main, "saved_help", lambda _: None)
    assert eoctl(*call.split()) == found


@pytest.mark.parametrize("call", [each for each in CALLS if each])
def test_one_notation_of_defaults(call: str, eoctl: Callable) -> None:
    """`[default: X]` at the end and nowhere else; a sentence for every option."""
    text = re.sub(r"\n {8,}", " ", eoctl(*call.split(), "-h").text).partition("\nExamples:")[0]
    for line in re.findall(r"^  -.*$", text, re.MULTILINE):
        told = re.sub(r" \[default: [^\]]+(\])?\]?( \[required\])?$| \[required\]$", "", line)
        assert "efault" not in told, line
        assert not re.search(r"\[[^\]]*\]", told), line
        assert told.endswith((".", "exit")), line


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


def test_one_topic_of_a_log_dir(eoctl: Callable, kafka: Path) -> None:
    """Of every command that reads log dirs; the same as naming the directories of its partitions."""
    calls = ["describe", "duplicates", "producers", "loss", "txn list --all", "txn hanging",
             "txn stats", "repair", "rebuild", "check"]  # fmt: skip
    of_topic = sorted(kafka.glob("txn-[0-9]*"))
    for call in calls:
        options = (
            *call.split()[1:],
            "-o",
            "jsonl",
            *(("--now", "dir") if call[:3] in ("che", "txn") else ()),
        )
        name = (call.split()[0],)
        by_name = eoctl(*name, *options, *of_topic)
        by_topic = eoctl(*name, *options, kafka, "--topic", "txn")
        assert by_topic.status == by_name.status, call
        if call != "check":
            assert by_topic.text == by_name.text, call
        assert "plain" not in by_topic.text
        both = eoctl(*name, *options, kafka, "--topic", "txn", "--topic", "plain")
        assert both.status in (0, 1, 5), call
        assert eoctl(*name, *options, kafka, "--topic", "nosuch").status in (2, 3), call
    assert eoctl("spark-audit", "s3://bucket/logs", "--topic", "txn").status == 2


# --- the examples ---------------------------------------------------------------------------------

# What examples need to have been done.
_CUT = "truncate /var/lib/kafka/orders-0 --to-offset 311 --single-copy"
_LEASED = "lease-pid acquire /var/lib/kafka --app-id billing --expiry-ms 60000 --single-copy"
_COMMITTED = "consume /var/lib/kafka/orders-0 --group billing --max-messages 3 --apply"
_MADE = "sim init ./play"
BEFORE = {
    "sim run": _MADE,
    "sim check": f"{_MADE} && sim run ./play --records 20",
    **dict.fromkeys(("groups", "groups describe", "groups export"), _COMMITTED),
    "groups translate": "copy /var/lib/kafka /mnt/new --to-topic orders --apply",
    "groups import": "groups export /var/lib/kafka --to /tmp/offsets.csv",
    "apply": f"{_CUT} --save-plan plan.json",
    "undo": f"{_CUT} --apply",
    "journal": f"{_CUT} --apply",
    **{f"lease-pid {each}": _LEASED for each in ("renew", "release", "list", "expire")},
}


# What is added where an example as it stands takes minutes: fewer records, and cells.
CHEAPER = {
    ("bench", 0): "--cell all-rf1-min1 --brokers 1 --records 200 --no-warm-up",
    ("bench", 1): "--records 200 --no-warm-up",
}


def _require_audited(text: str, records_count: int) -> None:
    """What `bench` shows in the end: all runs of all cells, and that none of their records is gone."""
    relation = re.search(r"every acknowledged record .*\tyes\t0 of ([\d,]+) are not", text)
    assert relation, text
    assert int(relation[1].replace(",", "")) == records_count


def _named(text: str, names: dict[str, str]) -> str:
    return re.sub("|".join(names), lambda found: names[found[0]], text)


@pytest.mark.share(12)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("call", CALLS)
def test_the_examples_run(
    call: str,
    place: int,
    eoctl: Callable,
    kafka: Path,
    golden: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a copy of a real log dir: status 0, or findings; what they need is done before."""
    if call == "bench" and (reason := missing_broker()):
        pytest.skip(reason)
    root = kafka.parent
    topic = "txn"
    if call in ("replicas", "advise"):
        topic = "div"
        for name in ("broker-1", "broker-2", "broker-3"):
            diverged = golden("kafka-4.3.1-three-brokers") / "diverged" / name
            shutil.copytree(diverged, root / name, symlinks=True)
    elif call in ("copy", "loss", "groups translate"):
        name = "backup" if call == "loss" else "new"
        shutil.copytree(kafka, root / name, symlinks=True)
    names = {
        "/var/lib/kafka": str(kafka), "/mnt/": f"{root}/", "/tmp/": f"{root}/", "orders": topic,
        "archive": "plain",
    }  # fmt: skip
    if call.startswith("lease-pid"):  # the cluster of the golden directory does not know its topic
        names["--single-copy"] = "--single-copy --topic-id AAAAAAAAAAAAAAAAAAAAAQ"
    if before := BEFORE.get(call):
        for each in before.split(" && "):
            assert eoctl(*_named(each, names).split()).status == 0
    more = CHEAPER.get((call, place), "")
    text = f"{_named(EXAMPLES[call][place].call, names)} {more}".rstrip()
    if "history.jsonl" in text:  # as if clients of a real cluster had recorded it
        shutil.copy(root / "play" / "history-1.jsonl", root / "history.jsonl")
    head, _, tail = text.rpartition(" | ")
    if head:
        data = subprocess.run(["sh", "-c", head], capture_output=True, check=True).stdout
        (root / "input").write_bytes(data)
    with (root / "input").open() if head else nullcontext(sys.stdin) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = eoctl(*shlex.split(tail)[1:])
    assert outcome.status in (0, 1, 5), outcome.errors
    if call == "bench":  # of the cell and of the bare loop, three times each
        _require_audited(outcome.text, 2 * 3 * 200)
