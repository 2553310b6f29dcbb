"""`make demo` runs through: each of its commands ends with the status that it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_demo_runs_through() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "scripts/demo.sh"],
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    # It shows what it speaks of: who holds consumers, what a start would cost, and the way back.
    assert "open-1, overdue since 2026-11-21" in done.stdout
    assert "Removes at least 246 records, 228 acknowledged" in done.stdout
    assert "Undo    eoctl undo " in done.stdout
    assert "\none\ntwo\n" in done.stdout
    calls = [line for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert len(calls) > 15
    assert not [call for call in calls if re.search(r"\bcut\b|jq|expand", call)]
