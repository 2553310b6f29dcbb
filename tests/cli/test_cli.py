"""The program as a whole: help, exit status, messages, and that the man pages tell the truth."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl import output, shared_options
from eoctl.command_table import COMMANDS, GROUPS, wanted_command
from eoctl.outcome import exit_status_of
from eoctl.output import OutputFormat, Report, emit
from storage.errors import CorruptError, RefusedError, UsageError
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

# Options that every command has, which eoctl(1) tells of.
SHARED = {f"--{name.replace('_', '-')}" for name in shared_options.SHARED}
MAN_DIR = Path(__file__).parents[2] / "man"


def page_of(command: str) -> str:
    return (MAN_DIR / f"eoctl-{command}.1").read_text()


# --- help and man pages ---------------------------------------------------------------------------


def test_help_lists_every_command(eoctl: Callable) -> None:
    """With a summary each; and so does a call without arguments, as a usage error."""
    outcome = eoctl("--help")
    assert outcome.status == 0
    shown = re.findall(r"^  ([a-z-]+) {2,}(\S.*)$", outcome.text, re.MULTILINE)
    assert [each for each in shown if each[0] in COMMANDS] == list(COMMANDS.items())
    headings = re.findall(r"^(\w[\w ]+):$", outcome.text, re.MULTILINE)
    assert headings == ["Examples", *GROUPS, "Help", "Options"]
    assert eoctl().status == 2


def test_version_names_the_kernel(eoctl: Callable) -> None:
    """Enough to reproduce a report."""
    outcome = eoctl("--version")
    assert outcome.status == 0
    assert re.search(r"^kernel (native|numpy|pure), Python 3\.", outcome.text, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments", [("--version",), ("dump-segment", "x.log"), ("describe", ".")]
)
def test_an_unknown_kernel_is_a_wrong_call(
    arguments: tuple[str, ...], eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no kernel would be used: a typing error must not go unnoticed."""
    monkeypatch.setenv("EOCTL_KERNEL", "nosuch")
    outcome = eoctl(*arguments)
    assert outcome.status == 2
    assert "EOCTL_KERNEL=nosuch" in outcome.errors
    assert not outcome.stdout


def help_of(command: str, eoctl: Callable) -> str:
    """Of a command, and of those that it has itself."""
    outcome = eoctl(command, "--help")
    assert outcome.status == 0
    text: str = outcome.text
    for name in re.findall(r"^  (\w+)  ", text.partition("\nCommands:\n")[2], re.MULTILINE):
        outcome = eoctl(command, name, "--help")
        assert outcome.status == 0
        text += outcome.text
    return text


@pytest.mark.parametrize("command", COMMANDS)
def test_man_page_has_exactly_the_options(command: str, eoctl: Callable) -> None:
    """Each long option of --help stands in the page's list and synopsis, and no other does."""
    in_help = set(
        re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]+)", help_of(command, eoctl), re.MULTILINE)
    )
    page = page_of(command)
    in_help -= SHARED - {f"-{each}" for each in re.findall(r"Fl (-[a-z-]+)", page)}
    listed = {
        f"-{option}"
        for line in re.findall(r"^\.It (Fl .*)$", page, re.MULTILINE)
        for option in re.findall(r"Fl (-[a-z][a-z-]+)", line)
    }
    assert listed | {"--help"} == in_help
    synopsis = page.partition(".Sh SYNOPSIS")[2].partition(".Sh DESCRIPTION")[0]
    in_synopsis = {f"-{option}" for option in re.findall(r"Fl (-[a-z][a-z-]+)", synopsis)}
    assert in_synopsis == in_help - {"--help"}


def test_the_first_page_has_the_shared_options() -> None:
    page = (MAN_DIR / "eoctl.1").read_text()
    listed = {f"-{each}" for each in re.findall(r"^\.It .*?Fl (-[a-z-]+)", page, re.MULTILINE)}
    assert SHARED | {"--output"} <= listed


# Examples that speak of a machine with a broker on it.
NOT_HERE = ("--server-properties", "/var/lib/kafka")


def examples() -> list[tuple[str, str, list[str]]]:
    """Every `$ eoctl ...` of the man pages with the output shown below it.

    A line that ends in a backslash goes on in the next one, as in a shell.
    """
    found = []
    for page in sorted(MAN_DIR.glob("*.[157]")):
        blocks = re.findall(
            r"^\.Bd -literal.*?\n(.*?)^\.Ed", page.read_text(), re.DOTALL | re.MULTILINE
        )
        for block in blocks:
            joined = block.replace(" \\e\n", " ")
            for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
                command, *shown = part.rstrip("\n").split("\n")
                if command.startswith("eoctl"):
                    found.append((page.name, command, [line.removeprefix("\\&") for line in shown]))
    return found


@pytest.mark.parametrize(("page", "command", "shown"), examples())
def test_examples_of_the_man_pages(
    page: str,
    command: str,
    shown: list[str],
    eoctl: Callable,
    golden: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They run on a golden directory and print what the page shows (`...` is more)."""
    if "legacy" in page:
        monkeypatch.chdir(golden("kafka-0.10.2-legacy"))
    elif "replicas" in page:
        monkeypatch.chdir(golden("kafka-4.3.1-three-brokers") / "diverged")
    else:
        monkeypatch.chdir(golden("kafka-4.3.1") / "clean")
    if any(word in command for word in NOT_HERE):
        return
    words = shlex.split(command.replace("\\e", "\\").partition("|")[0])
    outcome = eoctl(*words[1:])
    assert outcome.status == 0, outcome.errors
    if shown and "|" not in command:
        assert matches(outcome.text, shown)
    else:
        assert outcome.stdout


def readme_examples() -> list[tuple[str, list[str]]]:
    """Every `$ eoctl ...` of the README's tour with the output shown below it."""
    text = (MAN_DIR.parent / "README.md").read_text().replace("\\\n        ", "")
    blocks = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    found = []
    for block in blocks:
        for part in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            found.append((command, [line.strip() for line in shown]))
    return found


def test_examples_of_the_readme(
    eoctl: Callable,
    golden: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tour is what a reader sees who types it, behind `| cut` and `| jq` too."""
    monkeypatch.chdir(copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "clean"))
    for command, shown in readme_examples():
        first, _, filters = command.partition("|")
        words = shlex.split(first)
        if words[0] == "printf":
            subprocess.run(["/bin/sh", "-c", command], check=True)
            continue
        if words[0] == "mkdir":  # it makes the directory that the test is in
            archive = words[words.index("-xf") + 1]
            assert (MAN_DIR.parent / archive).exists()
            assert words[-1].endswith("/clean")
            continue
        assert words[0] == "eoctl"
        arguments = [
            path
            for word in words[1:]
            for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
        ]
        outcome = eoctl(*arguments)
        assert outcome.status == 0, (command, outcome.errors)
        assert outcome.stdout
        if filters and ("jq" not in filters or shutil.which("jq")):
            filtered = subprocess.run(
                ["/bin/sh", "-c", filters], input=outcome.stdout, capture_output=True, check=True
            )
            assert matches(filtered.stdout.decode(), shown), command
        elif not filters:
            assert matches(outcome.text, shown), command


def matches(printed: str, shown: list[str]) -> bool:
    """Whether `shown` is what was printed; `...` stands for anything, long lines may be broken."""
    words = " ".join(" ".join(shown).split())
    pattern = re.escape(words).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


# --- exit status ----------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], int]:
    def call() -> int:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UsageError("no"), 2, "eoctl: no"),
        (RefusedError("held", next_step="stop the broker"), 4, "try: stop the broker"),
        (
            CorruptError("bad", check_id="BAT-1", pos=7).located("a.log", 100),
            1,
            "position 107: bad",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 3, "x: Permission denied"),
        (KeyboardInterrupt(), 130, "eoctl: interrupted"),
        (ValueError("oops"), 70, "EOCTL_DEBUG=1"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_every_end_has_its_status(
    error: BaseException,
    status: int,
    words: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its words: what, where, what to try next; never a traceback."""
    monkeypatch.delenv("EOCTL_DEBUG", raising=False)
    monkeypatch.setattr(output, "discard_stdout", lambda: None)
    assert exit_status_of(raising(error)) == status
    errors = capfd.readouterr().err
    assert words in errors
    assert bool(errors) == bool(words)
    assert "Traceback" not in errors


@pytest.mark.parametrize("arguments", [["--help"], ["txn", "--help"], ["--version"]])
def test_nobody_reads_the_help(arguments: list[str]) -> None:
    """The reader of a pipe that goes away is no finding."""
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    try:
        call = [sys.executable, "-m", "eoctl", *arguments]
        done = subprocess.run(call, stdout=writing_end, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_errors_are_objects_for_machines(eoctl: Callable) -> None:
    """With --output jsonl, stderr holds one JSON object an error."""
    import json

    outcome = eoctl("dump-segment", "nowhere.log", "--output", "jsonl")
    error = json.loads(outcome.errors)
    assert error["level"] == "error"
    assert error["path"] == "nowhere.log"
    assert error["exit_status"] == outcome.status == 3


def test_the_command_is_the_first_word() -> None:
    """Options before it do not hide it."""
    assert wanted_command(["--version", "locate", "x"]) == "locate"
    assert wanted_command(["--help"]) is None


# --- reports --------------------------------------------------------------------------------------

REPORT = Report("thing", ("name", "size_bytes", "is_ok"), [("a\tb", None, True)], ["a note"])


def test_report_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    """Tab-separated under a header; unknown is a word, never 0; notes go to stderr."""
    emit(REPORT, OutputFormat.TEXT)
    output.flush()
    captured = capfd.readouterr()
    assert captured.out == "name\tsize_bytes\tis_ok\na\\tb\tunknown\tyes\n"
    assert captured.err == "a note\n"


def test_report_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    """Every row names its kind; unknown is null."""
    emit(REPORT, OutputFormat.JSONL)
    output.flush()
    assert capfd.readouterr().out == (
        '{"kind":"thing","name":"a\\tb","size_bytes":null,"is_ok":true}\n'
    )


def on_a_narrow_terminal(answers: tuple[str, ...] = ()) -> str:
    code = (
        "from eoctl import output\n"
        "from eoctl.output import *\n"
        "rows = [('x\\x1b[31m', 1, 'y' * 60, 'z' * 60), ('x', 22, '', None)]\n"
        f"columns = Columns(('first', 'second', 'third', 'the_fourth'), answers={answers})\n"
        "emit(Report('r', columns, rows), OutputFormat.TEXT)\n"
        "output.flush()\n"
    )
    script = f"stty cols 80; exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    done = subprocess.run(
        ["script", "-qec", f"sh -c {shlex.quote(script)}", "/dev/null"],
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    shown = done.stdout.decode()
    assert "\x1b[31m" not in shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")


def test_report_on_a_narrow_terminal() -> None:
    """What does not answer is left out, and a line says so."""
    assert on_a_narrow_terminal(("second", "first")) == (
        f"second  first      third{' ' * 55}\n     1  x\\x1b[31m  {'y' * 60}\n    22  x\n"
        "not shown: the_fourth; --wide shows them\n"
    )


def test_a_report_whose_columns_all_answer_on_a_narrow_terminal() -> None:
    """Those that have room, from the first on."""
    assert on_a_narrow_terminal() == (
        f"first      second  third{' ' * 55}\nx\\x1b[31m       1  {'y' * 60}\nx              22\n"
        "not shown: the_fourth; --wide shows them\n"
    )


@pytest.mark.parametrize("jobs", ["0", "1", "2"])
@pytest.mark.parametrize(
    "command",
    ["check", "dump-segment", "rebuild", "repair", "spark-audit --engine local", "export --to %"],
)
def test_jobs_is_one_option(
    command: str, jobs: str, eoctl: Callable, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """0 is one for each processor, in every command."""
    words = command.replace("%", str(tmp_path / "out")).split()
    path = golden("kafka-4.3.1") / "clean" / "plain-0"
    outcome = eoctl(*words, path, "--jobs", jobs)
    assert outcome.status == 0, outcome.errors
    assert eoctl(words[0], "--jobs", "-1", path).status == 2
