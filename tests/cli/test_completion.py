"""Completion: what bash, zsh and fish offer."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.help.completion import SHELLS, script_of
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

ROOT = Path(__file__).parents[2]
ASK_FISH = "complete -C {}"
ASK_BASH = """
read -ra COMP_WORDS <<< {0}
[[ {0} == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_eoctl_completion eoctl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# What zsh does with the answer is to draw a list: here the answer is read.
ASK_ZSH = """
words=({0})
[[ {0} == *' ' ]] && words+=("")
CURRENT=$#words
_arguments() {{ print -r -- "$@" }}
_files() {{ :; }}
_eoctl_completion
"""


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, golden: Callable[[str], Path]
) -> tuple[Path, dict[str, str]]:
    """A working directory with a log dir and its journal, and what finds `eoctl` there."""
    root = tmp_path_factory.mktemp("completion")
    copy_log_dir(golden("kafka-4.3.1") / "clean", root / "kafka")
    program = root / "bin" / "eoctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m eoctl "$@"\n')
    program.chmod(0o755)
    home = root / "home"
    home.mkdir()
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
    }
    cut = ["eoctl", "truncate", "kafka/txn-0", "--to-offset", "311", "--apply", "--single-copy"]
    subprocess.run(cut, cwd=root, env=environment, check=True, capture_output=True)
    return root, environment


def offered(shell: str, line: str, place: tuple[Path, dict[str, str]]) -> list[str]:
    """What a shell would offer at the end of a line."""
    root, environment = place
    script = script_of(shell)
    if shell == "bash":
        text = script + ASK_BASH.format(shlex.quote(line))
        call = ["bash", "--norc", "-c", text]
    elif shell == "zsh":
        words = " ".join(map(shlex.quote, line.split()))
        ask = ASK_ZSH.replace("words=({0})", f"words=({words})").format(shlex.quote(line))
        call = ["zsh", "-f", "-c", f"compdef() {{ :; }}\n{script}\n{ask}"]
    else:
        call = ["fish", "--no-config", "-c", f"{script}\n{ASK_FISH.format(shlex.quote(line))}"]
    done = subprocess.run(
        call,
        stdin=subprocess.DEVNULL,
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr
    if shell == "zsh":
        return re.findall(r'"([^"]+)"', done.stdout)
    return [each.partition("\t")[0] for each in done.stdout.splitlines() if each]


RUN = ["bash", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("zsh", "fish"))]
CASES = [
    ("eoctl che", ["check"]),
    ("eoctl help tru", ["truncate"]),
    ("eoctl txn ha", ["hanging"]),
    ("eoctl check --pred", ["--predict"]),
    ("eoctl consume --isolation ", ["read_committed", "read_uncommitted"]),
    ("eoctl replicas ", ["compare", "rejoin"]),
    ("eoctl consume kafka/pl", ["kafka/plain-0", "kafka/plain-1"]),
    ("eoctl describe kafka --topic t", ["trimmed", "txn"]),
    ("eoctl produce kafka --to-topic pl", ["plain"]),
    ("eoctl lease-pid acquire kafka --topic plain --partition ", ["0", "1"]),
    ("eoctl groups describe kafka --group g", ["group-a", "group-b"]),
    ("eoctl txn describe kafka --transactional-id txn-", ["txn-1"]),
    ("eoctl diff kafka/pl", ["kafka/plain-0", "kafka/plain-1"]),
    ("eoctl check --explain BAT-1", ["BAT-1", "BAT-10", "BAT-11", "BAT-12", "BAT-13"]),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("shell", RUN)
def test_what_a_shell_offers(shell: str, place: tuple[Path, dict[str, str]]) -> None:
    """Commands, options, values of options, partitions, topics, journals, rules."""
    for line, expected in CASES:
        found = offered(shell, line, place)
        if "BAT" in line:
            assert set(expected[:2]) <= set(found)
            assert all(each.startswith("BAT-1") for each in found)
        else:
            assert sorted(found) == expected, line
    (journal,) = (place[0] / "kafka.eoctl").iterdir()
    for call in ("undo", "apply", "journal show"):
        assert offered(shell, f"eoctl {call} kaf", place)[:1] == [f"kafka.eoctl/{journal.name}"]


def test_no_name_is_offered_that_a_shell_would_run(place: tuple[Path, dict[str, str]]) -> None:
    """What is offered goes into the line as it is."""
    root, _ = place
    odd = ["$(touch ran)-0", "`id`-0", "a;b-0", "it's-0", "two\nlines-0", "\x1b[31m-0", "star*-0"]
    for name in [*odd, "plain.name_1-0", "日本-0"]:
        (root / "odd" / name).mkdir(parents=True)
    assert offered("bash", "eoctl describe odd/", place) == ["odd/plain.name_1-0", "odd/日本-0"]


def test_an_empty_instruction_is_none(
    eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_EOCTL_COMPLETE", "")
    assert eoctl("check", "--explain", "DIR-9").status == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_shown_and_installed(
    shell: str, eoctl: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    outcome = eoctl("--show-completion", shell)
    assert (outcome.status, outcome.text.strip()) == (0, script_of(shell))
    assert eoctl(f"--show-completion={shell}") == outcome
    outcome = eoctl("--install-completion", shell)
    assert outcome.status == 0
    (path,) = re.findall(r"is installed in (\S+);", outcome.errors)
    assert Path(path).read_text().strip() == script_of(shell)
    assert Path(path).is_relative_to(tmp_path)


def test_other_shells_are_refused(eoctl: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert eoctl("--show-completion", "tcsh").status == 2
    monkeypatch.setenv("_EOCTL_COMPLETE", "complete_tcsh")
    assert eoctl().status == 2


def test_other_calls_load_nothing_of_it() -> None:
    """Their start-up is what it was."""
    code = (
        "import sys\nfrom eoctl.main import run\n"
        "try: run(['--version'])\nexcept SystemExit: pass\n"
        "assert not {'eoctl.help.completion', 'eoctl.help.completion'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
