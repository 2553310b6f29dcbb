"""The calls of the digests are right ones: the whole of them takes too long for `make test`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_the_calls_are_understood() -> None:
    command = [sys.executable, "-m", "tests.digests", "--show", "case.sequence-gap"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    calls = re.findall(r"^\$ eoctl (.*?)   # status (\d)", done.stdout, re.MULTILINE)
    assert len(calls) > 80
    assert not re.findall(r"no such option|is missing|is not one of|no such command", done.stdout)
    verbs = {call.split()[0] for call, _ in calls}
    assert {"check", "consume", "dump-segment", "export", "loss", "repair", "txn"} <= verbs
