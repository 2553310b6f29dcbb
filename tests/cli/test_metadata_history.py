"""`eoctl metadata --history` as a stream: who stops it, and who watches it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_closed_pipe import after_one_line
from tests.cli.test_progress import at_once, lines_drawn
from tests.metadata_logs import change, partition, topic, write_log

if TYPE_CHECKING:
    from pathlib import Path

T = bytes(range(16))
CHANGES_COUNT = 4000  # more rows than fit into a pipe, in any format
FORMATS = ("text", "jsonl")


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One replica of a partition comes and goes."""
    directory = tmp_path_factory.mktemp("long") / "__cluster_metadata-0"
    shrinks = [change(T, isr=[1]), change(T, isr=[1, 2])]
    changes = [(2 + number, [shrinks[number % 2]]) for number in range(CHANGES_COUNT)]
    write_log(directory, [(1, [topic("t", T), partition(T, [1, 2])]), *changes])
    return directory


@pytest.mark.parametrize("output", FORMATS)
def test_its_reader_goes_away(long_log: Path, output: str) -> None:
    """Nothing is known yet: quietly, and no sums."""
    status, words = after_one_line("metadata", long_log, "--history", "-o", output)
    assert (status, words) == (141, b"")


@pytest.mark.parametrize("output", FORMATS)
def test_it_is_interrupted(long_log: Path, output: str) -> None:
    """In the midst: what waits for its reader cannot be done."""
    with subprocess.Popen(
        [sys.executable, "-m", "eoctl", "metadata", long_log, "--history", "-o", output],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        words = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert b"interrupted" in words
    assert b"Traceback" not in words


@pytest.mark.exhaustive
def test_progress_is_drawn_while_the_newest_rows_are_looked_for(long_log: Path) -> None:
    shown = at_once("metadata", long_log, "--history", width=120)
    drawn = [each for each in lines_drawn(shown) if each.startswith("reading")]
    assert any(f"__cluster_metadata-0/{0:020d}.log" in each and "%" in each for each in drawn)
    assert "earlier changes are not printed" in shown.text
