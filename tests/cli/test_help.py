"""Help in panels with examples; wrong calls told in our words."""

from __future__ import annotations

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
from eoctl.command_table import COMMANDS, GROUPS, module_of
from eoctl.help.command import SHARED_NOTE
from eoctl.help.examples import EXAMPLES
from eoctl.help.saved_pages import PAGES, page_of, saved_help
from eoctl.help.usage_errors import COMMANDS_MEANT, OPTIONS_MEANT
from eoctl.parameters import Panel
from tests.help_options import made_of
from tests.kafka.jars import missing_broker
from tests.saved_help import help_of_typer

if TYPE_CHECKING:
    from collections.abc import Callable


def _calls() -> list[str]:
    """Every command, and every command of one."""
    found = [""]
    for name in COMMANDS:
        subcommands = getattr(module_of(name), "SUBCOMMANDS", ())
        found += [name, *(f"{name} {each}" for each in subcommands)]
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
        groups = [*GROUPS, "Help"] if not call else ["Commands"]
        assert headings == ["Examples", *groups, "Options"]
    else:
        assert panels == [each for each in Panel if each in panels]
        assert panels
        without = ("bench", "sim explore", "sim scripts", "sim table")
        arguments = [] if call in without else ["Arguments"]
        assert headings == ["Examples", *arguments, *panels]
    shown = re.split(r"\n\n(?=\S|  \S)", outcome.text.partition("\nExamples:\n")[2])[0]
    shown = shown.replace(" \\\n     ", "")
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
    text = re.sub(r"\n {8,}", " ", eoctl(*call.split(), "-h").text).replace(SHARED_NOTE, "")
    for line in re.findall(r"^  -.*$", text, re.MULTILINE):
        reported = re.sub(r" \[default: [^\]]+(\])?\]?( \[required\])?$| \[required\]$", "", line)
        assert "efault" not in reported, line
        assert not re.search(r"\[[^\]]*\]", reported), line
        assert reported.endswith((".", "exit")), line


WRONG = [
    ("chek .", "chek: no such command", "eoctl check ."),
    ("help chek", "chek: no such command", "eoctl check --help"),
    ("zzz", "zzz: no such command", "eoctl --help"),
    ("txn hangin .", "hangin: no such command", "eoctl txn hanging ."),
    ("check --predic .", "--predic: no such option", "eoctl check --predict ."),
    ("check --zzz .", "--zzz: no such option", "eoctl check --help"),
    ("consume", "PARTITION is missing", "eoctl consume --help"),
    ("rebuild", "PARTITION is missing", "eoctl rebuild --help"),
    ("replicas", "ACTION is missing", "eoctl replicas --help"),
    (
        "txn abort x",
        "say which transactions",
        "--producer-id N, --transactional-id ID or --all-overdue, one of them",
    ),
    (
        "consume x --max-messages y",
        "--max-messages: 'y' is not a whole number",
        "eoctl consume --help",
    ),
    (
        "consume x --max-messages -1",
        "--max-messages: -1 is not in the range x>=0",
        "eoctl consume --help",
    ),
    (
        "consume x --isolation y",
        "--isolation: 'y' is not one of 'read_uncommitted', 'read_committed'",
        "eoctl consume --help",
    ),
    (
        "replicas comp x",
        "ACTION: 'comp' is not one of 'compare', 'rejoin'",
        "eoctl replicas compare x",
    ),
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
    assert first == f"eoctl: {words}"
    assert second == f"  try: {next_step}"


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


# What people type who know Kafka's own tools, kcat, rpk, git or a file system, and what was meant.
MEANT = [
    ("fsck /d", "eoctl check /d"),
    ("ls /d", "eoctl describe /d"),
    ("list /d", "eoctl describe /d"),
    ("topics /d", "eoctl describe /d"),
    ("cat /d/t-0", "eoctl consume /d/t-0"),
    ("tail /d/t-0", "eoctl consume --follow /d/t-0"),
    ("status /d", "eoctl check /d"),
    ("verify /d", "eoctl check --deep /d"),
    ("hanging /d", "eoctl txn hanging /d"),
    ("transactions /d", "eoctl txn list /d"),
    ("restore /d", "eoctl undo /d"),
    ("rollback /d", "eoctl undo /d"),
    ("cluster /d", "eoctl metadata /d"),
    ("cluster-state /d", "eoctl metadata /d"),
    ("advise /d /e", "eoctl start-order /d /e"),
    ("advise /d --settings", "eoctl metadata --durability /d"),
    ("cluster run play", "eoctl sim run play"),
    ("--bootstrap-server h:9092 check /d", "eoctl check /d"),
    ("consume /d --from-beginning -n 3", "eoctl consume /d --max-messages 3"),
    ("compare /d /e", "eoctl diff /d /e"),
    ("consumer-groups /d", "eoctl groups list /d"),
    ("lag /d", "eoctl groups list /d"),
    ("dump /d/t-0", "eoctl dump-segment /d/t-0"),
    ("reindex /d/t-0", "eoctl rebuild /d/t-0"),
    ("salvage '/d 1'", "eoctl repair '/d 1'"),
    ("brokers /d", "eoctl metadata /d"),
    ("consume /d/t-0 --from-beginning", "eoctl consume /d/t-0"),
    ("consume /d/t-0 --offset 5", "eoctl consume /d/t-0 --from 5"),
    ("consume /d/t-0 -c 10", "eoctl consume /d/t-0 --max-messages 10"),
    ("consume /d/t-0 --limit=10", "eoctl consume /d/t-0 --max-messages 10"),
    ("consume --bootstrap-server h:9092 -q", "eoctl consume LOG-DIR -q"),
    ("consume /d/t-0 --bootstrap-server h:9092", "eoctl consume /d/t-0"),
    ("check /d --fix", "eoctl repair /d"),
    ("check --dir /d", "eoctl check /d"),
    ("check /d --json", "eoctl check /d -o json"),
    ("repair /d --execute", "eoctl repair /d --apply"),
    ("repair /d --dry-run", "eoctl repair /d"),
    ("serve /d --port 9092", "eoctl serve /d --listen 127.0.0.1:9092"),
    ("export /d --to x --from-offset 5", "eoctl export /d --to x --offsets 5.."),
    ("export /d --output-dir x", "eoctl export /d --to x"),
    ("produce /d --topic t", "eoctl produce /d --to-topic t"),
    ("copy /d /e --topic t --apply", "eoctl copy /d /e --to-topic t --apply"),
    ("loss /d --against /e", "eoctl diff /e /d"),
    ("start-order /d --settings", "eoctl metadata --durability /d"),
    ("truncate /d/t-0 --offset 5", "eoctl truncate /d/t-0 --to-offset 5"),
    ("dump-segment /d/t-0 --deep", "eoctl dump-segment /d/t-0 --deep-iteration"),
    ("report /d --html r.html", "eoctl report /d --to r.html"),
    ("txn hanging /d --fix", "eoctl txn abort --all-overdue /d"),
    ("verify /d --deep", "eoctl check --deep /d"),
    ("replicas /d /e", "eoctl replicas compare /d /e"),
    ("replicas comp /d /e", "eoctl replicas compare /d /e"),
    ("check /d --limit 5", "eoctl check --help"),
    ("consume /d/t-0 --partition 0", "eoctl consume --help"),
]


@pytest.mark.parametrize(("call", "meant"), MEANT)
def test_the_call_that_was_meant(call: str, meant: str, eoctl: Callable) -> None:
    outcome = eoctl(*shlex.split(call))
    assert (outcome.status, outcome.text) == (2, "")
    assert outcome.errors.splitlines()[1:] == [f"  try: {meant}"]


def test_no_synonym_is_a_name() -> None:
    """Each leads to a call that is there, and none hides a command or an option."""
    assert len(MEANT) >= 40
    assert not {*COMMANDS_MEANT} & {*COMMANDS}
    calls = [each.split() for each in COMMANDS_MEANT.values()]
    for words, names in OPTIONS_MEANT.items():
        made = [] if words == "*" else made_of(words.split())[0].params
        assert not {*names} & {name for each in made for name in each.opts}, words
        calls += [each.split()[1:] for each in names.values() if each.startswith("eoctl ")]
    for call in calls:
        has_own = bool(call[0] in COMMANDS and hasattr(module_of(call[0]), "SUBCOMMANDS"))
        found = made_of([each for each in call[: 1 + has_own] if not each.startswith("-")])[0]
        options = {name for each in found.params for name in each.opts} | {"--version"}
        assert {each for each in call if each.startswith("-")} <= options, call
    everywhere = {name for each in CALLS if each not in ("", "txn", "groups", "sim", "lease-pid")
                  for param in made_of(each.split())[0].params for name in param.opts}  # fmt: skip
    for words, names in OPTIONS_MEANT.items():
        options = everywhere
        if words != "*":
            options = {name for each in made_of(words.split())[0].params for name in each.opts}
        for each in names.values():
            if each.startswith("--"):
                assert each.split()[0].removesuffix("{-}") in options, (words, each)


def test_one_dialect_of_ranges(eoctl: Callable, kafka: Path) -> None:
    """A..B, both included, in every reader."""
    calls = [
        ("consume", "--offsets", "3..5", "-o", "jsonl"),
        ("dump-segment", "--offsets", "3..5", "--deep-iteration", "-o", "jsonl"),
    ]
    for name, *options in calls:
        place = kafka / "plain-0" / (f"{0:020}.log" if name == "dump-segment" else "")
        rows = [json.loads(line) for line in eoctl(name, place, *options).text.splitlines()]
        assert [row["offset"] for row in rows if "offset" in row] == [3, 4, 5]
    target = kafka.parent / "exported"
    options = ("--to", target, "--format", "jsonl", "--offsets", "3..5")
    assert eoctl("export", kafka / "plain-0", *options).status == 0
    (file,) = target.rglob("topic=*/**/*.jsonl")
    assert [json.loads(line)["offset"] for line in file.read_text().splitlines()] == [3, 4, 5]
    refused = [
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


# What is added where an example as it stands takes minutes, or does not end by itself.
CHEAPER = {
    ("serve", 0): "--for-seconds 1",
    ("serve", 1): "--for-seconds 1",
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
@pytest.mark.parametrize(
    "call",
    [pytest.param(e, marks=pytest.mark.exhaustive) if e == "bench" else e for e in CALLS],
)
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
    if call in ("replicas", "start-order"):
        topic = "div"
        for name in ("broker-1", "broker-2", "broker-3"):
            diverged = golden("kafka-4.3.1-three-brokers") / "diverged" / name
            shutil.copytree(diverged, root / name, symlinks=True)
    elif call in ("copy", "diff", "groups translate"):
        name = "backup" if call == "diff" else "new"
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
