"""Log dirs with names that a terminal would act on, or a shell: what is said, and told to run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from storage.formats.record import Record, RecordHeader
from tests.batches import encoded_batch
from tests.terminal import ROOT, on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

ODD = {
    "escapes": "a\x1b[31mred\x1b]0;title\x07'",
    "lines": "two\nlines",
    "right to left": "\u202ethgir\u200f",
    "option": "-q",
    "quotes": 'it\'s "$HOME" `id`',
}
# What a terminal would obey, and how it is shown.
OBEYED = {
    b"\x1b[31mred": "\\x1b[31mred",
    b"\x07\x08\r": "\\x07\\x08\\r",
    "\x9b31m\x7f\u202eabc".encode(): "\\x9b31m\\x7f\\u202eabc",
    b"\x9b31m\xff": "\\x9b31m\\xff",
}
CALLS = [
    ("check",),
    ("txn", "hanging"),
    ("repair", "--strategy", "salvage"),
    ("undo",),
    ("journal", "list"),
    ("describe",),
]


@pytest.fixture(params=sorted(ODD))
def odd(request: pytest.FixtureRequest, killed: Path) -> Path:
    """A log dir with such a name, in the working directory."""
    return killed.rename(killed.parent / ODD[request.param])


def in_shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a call as it was pasted."""
    function = f'eoctl() {{ {sys.executable} -m eoctl "$@"; }}'
    return subprocess.run(
        ["bash", "-c", f"{function}\n{command}"],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )


@pytest.mark.share(3)
@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_nothing_reaches_a_terminal_as_it_is(
    odd: Path, eoctl: Callable[..., Outcome], call: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(odd.parent)
    done = eoctl(*call, "--output", "table", "--color", "never", "--", odd.name)
    assert done.status in {0, 1, 2}
    reported = done.text + done.errors
    assert all(each.isprintable() for each in reported.split("\n")), ascii(reported)
    if odd.name == ODD["lines"]:
        assert "lines:" not in [each.partition(" ")[0] for each in reported.split("\n")]


@pytest.mark.share(1)
def test_the_next_call_can_be_pasted(odd: Path) -> None:
    """The call that check names, and the first one that this call names."""
    shown = on_terminal("check", "-q", "--", odd.name, cwd=odd.parent)
    command = next(each for each in shown.lines if each.startswith("Next"))[8:]
    done = in_shell(command, odd.parent)
    assert done.returncode == 1, done.stderr
    shown = on_terminal("txn", "hanging", "-q", "--", odd.name, cwd=odd.parent)
    ends = re.findall(r"^ +(eoctl txn .*)$", shown.text, re.MULTILINE)[0]
    ended = in_shell(ends, odd.parent)
    assert ended.returncode == 0, ended.stderr


def test_machines_are_told_names_as_they_are(killed: Path, eoctl: Callable[..., Outcome]) -> None:
    odd = killed.rename(killed.parent / "\x9b31m\u202e")
    reported = json.loads(eoctl("undo", odd, "--output", "jsonl").errors)
    assert reported["message"].startswith(str(odd))


@pytest.mark.share(2)
@pytest.mark.parametrize("words", [["describe"], ["dump-segment"], ["txn", "list"]])
def test_commands_that_read_no_uris_say_so(words: list[str]) -> None:
    for path, is_reported in (("s3a://bucket/logs", True), ("nothing/here", False)):
        done = subprocess.run(
            [sys.executable, "-m", "eoctl", *words, path],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 3
        assert ("this command reads no URIs; export, spark-audit" in done.stderr) is is_reported


@pytest.fixture
def escapes(log_dir: Path) -> Path:
    """A partition whose keys, headers and values are escape sequences."""
    partition = log_dir / "t-0"
    partition.mkdir()
    records = [
        Record(0, 0, delta, each, each, (RecordHeader(each, each),))
        for delta, each in enumerate(OBEYED)
    ]
    (partition / f"{0:020d}.log").write_bytes(encoded_batch(0, records))
    return partition


RECORD_CALLS = {
    "consume": ["--print-key", "--print-headers"],
    "dump-segment": ["--print-data-log", "--output", "text"],
}


@pytest.mark.parametrize("call", [*RECORD_CALLS])
def test_a_terminal_shows_escapes_of_records(
    escapes: Path, eoctl: Callable[..., Outcome], call: str
) -> None:
    words = (call, *RECORD_CALLS[call], escapes, "-q", "--no-pager")
    piped = eoctl(*words).stdout
    assert b"\x1b[31mred" in piped
    assert eoctl(*words, "--raw").stdout == piped
    shown = on_terminal(*words, streams=["stdout"]).raw
    is_tool = call == "dump-segment"  # it prints U+FFFD for what is no UTF-8
    for each in [*OBEYED.values()][: 3 if is_tool else 4]:
        assert shown.count(each) == (3 if is_tool else 4)
    assert all(each.isprintable() or each in "\t\n\ufffd" for each in shown), ascii(shown)
    raw = on_terminal(*words, "--raw", streams=["stdout"]).raw
    assert raw.encode("utf-8", "surrogateescape") == piped


@pytest.mark.parametrize("output", ["json", "jsonl", "msgpack", "table"])
@pytest.mark.parametrize("call", [*RECORD_CALLS])
def test_no_format_lets_a_terminal_obey(escapes: Path, call: str, output: str) -> None:
    words = (call, *RECORD_CALLS[call], escapes, "-q", "--no-pager", "--color", "never")
    shown = on_terminal(*words, "--output", output, streams=["stdout"]).raw
    assert all(each.isprintable() or each in "\t\n\ufffd" for each in shown), ascii(shown)
    if "json" in output:
        rows = json.loads(shown) if output == "json" else map(json.loads, shown.splitlines())
        values = [each["value"] for each in rows if "value" in each]
        assert [each.encode() for each in values[:3]] == [*OBEYED][:3]
