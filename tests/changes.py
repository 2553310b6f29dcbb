"""What the tests of changing commands share: rows, journals, interrupts, and a lock that is held."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from storage.files.fsio import FileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from tests.running import Outcome

PLAN_ID = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[a-z-]+-[0-9a-f]{4}")

_PROGRAM = [sys.executable, "-m", "eoctl"]
_ROOT = Path(__file__).parents[1]

_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def rows_of(outcome: Outcome, kind: str | None = None) -> list[dict[str, Any]]:
    """The rows of `--output jsonl`, or those of one kind without it."""
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    if kind is None:
        return rows
    return [
        {name: value for name, value in row.items() if name != "kind"}
        for row in rows
        if row["kind"] == kind
    ]


def unpacked(outcome: Outcome) -> list[dict[str, Any]]:
    """The rows of `--output msgpack`."""
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(outcome.stdout)
    return list(unpacker)


def notes_of(outcome: Outcome) -> list[str]:
    """The messages of `--output jsonl` or `msgpack`, but those of the answer."""
    said = map(json.loads, outcome.errors.splitlines())
    return [each["message"] for each in said if each["level"] != "answer"]


LABELS = ("Plan", "Loses", "Lost", "Blocked", "Owner", "Done", "Undo", "Next", "Found", "Waits")


def split_answer(errors: str) -> tuple[list[str], list[str]]:
    """The lines of an answer in a pipe, and the others."""
    lines = [re.sub("^([A-Z][a-z]+) +", r"\1 ", each) for each in errors.splitlines()]
    is_answer = [each.partition(" ")[0] in LABELS for each in lines]
    answer = [each for each, is_one in zip(lines, is_answer, strict=True) if is_one]
    return answer, [each for each, is_one in zip(lines, is_answer, strict=True) if not is_one]


def table(*rows: str) -> str:
    """Rows as a report gives them to a pipe; written here with ` | ` between the columns."""
    return "".join(row.replace(" | ", "\t") + "\n" for row in rows)


def journal_of(log_dir: Path) -> Path:
    """The only journal in the default place of a log dir."""
    (found,) = log_dir.with_name(f"{log_dir.name}.eoctl").iterdir()
    return found


def same_ids(text: str) -> str:
    """With `ID` for every plan id."""
    return PLAN_ID.sub("ID", text)


def interrupt(
    monkeypatch: pytest.MonkeyPatch, method: str = "truncate", *, call: int = 1, name: str = ""
) -> None:
    """Let the n-th call of a method of FileSystem, for files called so, end as Ctrl-C does."""
    real = getattr(FileSystem, method)
    calls: list[int] = []

    def interrupted(fs: FileSystem, file: Any, *arguments: Any, **named: Any) -> Any:
        path = str(getattr(file, "path", file))
        if path.endswith(name):
            calls.append(1)
            if len(calls) == call:
                raise KeyboardInterrupt
        return real(fs, file, *arguments, **named)

    monkeypatch.setattr(FileSystem, method, interrupted)


def leave_unfinished(
    eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, *arguments: Any
) -> Outcome:
    """Run a command that is interrupted when it first cuts a file."""
    with monkeypatch.context() as patch:
        interrupt(patch)
        outcome = eoctl(*arguments)
    assert outcome.status == 130, outcome.errors
    return outcome


def run_program(
    *arguments: Any, environment: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own."""
    return subprocess.run(
        [*_PROGRAM, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(_ROOT), **(environment or {})},
        check=False, timeout=60, **options,
    )  # fmt: skip


def in_80_columns(*arguments: Any) -> str:
    """What a terminal of that width shows; lines of tables fit; paths and words for people may be longer."""
    command = shlex.join([*_PROGRAM, *map(str, arguments)])
    done = subprocess.run(
        ["script", "-qec", f"sh -c {shlex.quote(f'stty cols 80; exec {command}')}", "/dev/null"],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True, check=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
    shown = re.sub(r"\r[^\r\n]*\x1b\[K", "", shown)  # progress, on a busy machine
    words = (
        "path  ",
        "verified",
        "now is",
        "eoctl undo",
        "Next    eoctl",
        "Undo    eoctl",
        "nothing was",
        "this is a plan",
        "it had been",
        "leader and ISR as of",
    )
    lines = shown.splitlines()
    assert max(len(each) for each in lines if not each.startswith(words)) <= 80, shown
    return shown


def in_a_closed_pipe(*arguments: Any) -> subprocess.CompletedProcess[bytes]:
    """The program, with nobody who reads its rows."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        return run_program(*arguments, stdout=write_end, stderr=subprocess.PIPE)
    finally:
        os.close(write_end)


@contextmanager
def held(log_dir: Path) -> Iterator[int]:
    """Another process holds the lock of a log dir, as a broker does; yields its process id."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, log_dir / ".lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
