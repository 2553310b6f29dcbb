"""Who reads a command's output goes away: its exit status and its errors stay what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import in_a_closed_pipe, run_program

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENT = "00000000000000000000.log"


def after_one_line(*arguments: Any) -> tuple[int, bytes]:
    """As under `head -1`, with nothing in between that a buffer could hold back."""
    with subprocess.Popen(
        [sys.executable, "-m", "eoctl", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # else all waits for the end
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        words = process.stderr.read()
        return process.wait(timeout=90), words


@pytest.fixture
def damaged(kafka: Path) -> Path:
    """With one bit that no checksum of a batch allows, in each of two partitions."""
    for name in ("txn-0", "txn-1"):
        path = kafka / name / SEGMENT
        data = bytearray(path.read_bytes())
        data[200] ^= 1
        path.write_bytes(data)
    return kafka


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def _buffered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a buffer that tells of the closed pipe at the end only."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_buffered")
def test_findings_stay_findings(damaged: Path) -> None:
    """Whether all was looked at before somebody noticed, or not."""
    assert in_a_closed_pipe("check", damaged).returncode == 1
    assert after_one_line("check", damaged)[0] == 1
    assert after_one_line("check", damaged, "--output", "jsonl")[0] == 1
    assert in_a_closed_pipe("rebuild", damaged).returncode == 1


@pytest.mark.usefixtures("_buffered")
def test_what_was_looked_at_as_a_whole_is_clean(kafka: Path) -> None:
    """The rows had been waiting in the buffer for the end."""
    done = in_a_closed_pipe("check", "--now", "dir", kafka)
    assert done.returncode == 0
    assert b"0 errors" in done.stderr


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "kafka"),
        ("dump-segment", "kafka", "--output", "jsonl"),
        ("dump-segment", f"kafka/txn-0/{SEGMENT}", "--deep-iteration"),
    ],
)
def test_nothing_is_known_yet(kafka: Path, arguments: tuple[str, ...]) -> None:
    """Neither clean nor a finding: 141, as of a program that SIGPIPE ends, and not a word."""
    assert kafka.exists()
    status, words = after_one_line(*arguments)
    assert status == 141
    assert b"Traceback" not in words
    assert b"verified" not in words


def test_a_group_stays_where_its_reader_was(kafka: Path) -> None:
    """What nobody has read is not committed."""
    done = in_a_closed_pipe("consume", kafka / "txn-0", "--group", "g", "--apply", "--single-copy")
    assert done.returncode == 141
    assert not list(kafka.glob("__consumer_offsets-*/*.log.eoctl*"))


REFUSED = (
    "txn", "run", "kafka/txn-0", "--to", "kafka/txn-1", "--exec", "exit 3",
    "--transactional-id", "t", "--group", "g", "--apply",
)  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [(), ("--single-copy",)])
@pytest.mark.parametrize("call", [in_a_closed_pipe, after_one_line])
def test_why_a_change_ended_is_told(
    kafka: Path, call: Callable[..., Any], more: tuple[str, ...]
) -> None:
    """A refusal, or a program that fails: the same status and the same last words as ever."""
    assert kafka.exists()
    expected = run_program(*REFUSED, *more, capture_output=True)
    assert expected.returncode in (3, 4)
    last_words = expected.stderr.splitlines()[-2:]
    assert last_words[0].startswith(b"eoctl: ")
    outcome = call(*REFUSED, *more)
    if isinstance(outcome, subprocess.CompletedProcess):
        outcome = (outcome.returncode, outcome.stderr)
    assert (outcome[0], outcome[1].splitlines()[-2:]) == (expected.returncode, last_words)


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [(), ("--single-copy",)])
def test_why_a_change_ended_is_told_beside_a_full_disk(kafka: Path, more: tuple[str, ...]) -> None:
    """Both errors are told, the status is that of the change."""
    assert kafka.exists()
    expected = run_program(*REFUSED, *more, capture_output=True)
    with Path("/dev/full").open("wb") as full:
        done = run_program(*REFUSED, *more, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == expected.returncode
    assert expected.stderr.splitlines()[-2] in done.stderr


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("check", "--now", "dir", "kafka/txn-0"), 0),
        (("check", "--no-such-option"), 2),
        (REFUSED, 4),
    ],
)
@pytest.mark.parametrize("where", ["closed pipe", "full disk", "closed"])
def test_words_that_cannot_be_said(
    kafka: Path, arguments: tuple[str, ...], status: int, where: str
) -> None:
    """Standard error cannot be written: the exit status is the same."""
    assert kafka.exists()
    if where == "closed":
        words = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "eoctl", *arguments]
        assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == status
        return
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe, Path("/dev/full").open("wb") as full:
        target = pipe if where == "closed pipe" else full
        done = run_program(*arguments, stdout=subprocess.DEVNULL, stderr=target)
    assert done.returncode == status
